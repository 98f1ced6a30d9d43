//! A running load, from outside its threads.

use crate::error::LoadError;
use crate::result::LoadResult;
use crate::tally::LoadPeriod;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc;

/// How many requests of the handle may wait for a generator's thread.
const COMMANDS: usize = 64;

/// How long a generator's thread may take to answer, seconds.
const ANSWER_WITHIN_S: u64 = 5;

/// What the handle asks of a generator's thread.
#[derive(Debug)]
pub(crate) enum Command {
    /// Hand over what was counted since the last time.
    TakePeriod(SyncSender<Box<LoadPeriod>>),
    /// Offer no more; answer what is outstanding.
    Stop,
}

/// Hands over a period; gives it back where who asked has given up waiting, so that what it holds is kept.
pub(crate) fn hand_over(
    reply: &SyncSender<Box<LoadPeriod>>,
    period: Box<LoadPeriod>,
) -> Option<Box<LoadPeriod>> {
    match reply.try_send(period) {
        Ok(()) => None,
        Err(TrySendError::Full(period) | TrySendError::Disconnected(period)) => Some(period),
    }
}

/// Wakes a thread that waits in `epoll_wait`; also when it is dropped, so that the thread sees the channel's end.
#[derive(Debug)]
pub(crate) struct Bell(Arc<OwnedFd>);

impl Bell {
    pub(crate) fn new() -> io::Result<(Self, Arc<OwnedFd>)> {
        let counter = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        Ok((Self(Arc::clone(&counter)), counter))
    }

    fn ring(&self) {
        // It fails only where the counter is full, and then the thread is awake.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.ring();
    }
}

/// Where commands to a thread are put. Its fields are dropped in order: the channel ends, then the bell rings.
#[derive(Debug)]
struct Commands {
    sender: mpsc::Sender<Command>,
    bell: Option<Bell>,
}

/// One thread of a load.
#[derive(Debug)]
pub(crate) struct Generator {
    commands: Commands,
    thread: JoinHandle<io::Result<Box<LoadPeriod>>>,
    /// What was counted in the periods taken so far.
    taken: Option<Box<LoadPeriod>>,
}

impl Generator {
    /// Starts a thread, which is given its commands and leaves what was counted since the last period was taken.
    pub(crate) fn start(
        bell: Option<Bell>,
        run: impl FnOnce(mpsc::Receiver<Command>) -> io::Result<Box<LoadPeriod>> + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, received) = mpsc::channel(COMMANDS);
        let thread = std::thread::Builder::new()
            .name("headroom-load".into())
            .spawn(move || run(received))?;
        Ok(Self {
            commands: Commands { sender, bell },
            thread,
            taken: None,
        })
    }

    fn send(&self, command: Command) -> Result<(), LoadError> {
        self.commands
            .sender
            .try_send(command)
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => LoadError::NoAnswer(ANSWER_WITHIN_S),
                mpsc::error::TrySendError::Closed(_) => LoadError::Ended,
            })?;
        if let Some(bell) = &self.commands.bell {
            bell.ring();
        }
        Ok(())
    }

    fn ask(&self) -> Result<Receiver<Box<LoadPeriod>>, LoadError> {
        let (reply, answer) = sync_channel(1);
        self.send(Command::TakePeriod(reply))?;
        Ok(answer)
    }

    fn receive(&mut self, answer: &Receiver<Box<LoadPeriod>>) -> Result<Box<LoadPeriod>, LoadError> {
        let period = answer
            .recv_timeout(Duration::from_secs(ANSWER_WITHIN_S))
            .map_err(|error| match error {
                RecvTimeoutError::Timeout => LoadError::NoAnswer(ANSWER_WITHIN_S),
                RecvTimeoutError::Disconnected => LoadError::Ended,
            })?;
        match &mut self.taken {
            Some(taken) => taken.append(&period),
            None => self.taken = Some(period.clone()),
        }
        Ok(period)
    }

    fn join(self) -> Result<Box<LoadPeriod>, LoadError> {
        let Self {
            commands,
            thread,
            taken,
        } = self;
        let ended = thread.join();
        drop(commands);
        let rest = ended.map_err(|payload| LoadError::Panicked(panic_message(&*payload)))??;
        Ok(match taken {
            Some(mut taken) => {
                taken.append(&rest);
                taken
            }
            None => rest,
        })
    }
}

/// A running load. Dropping it stops the load and forgets its result.
#[derive(Debug)]
pub struct LoadHandle {
    generators: Vec<Generator>,
    url: String,
    /// How many threads, and how many connections at most.
    size: (usize, usize),
}

impl LoadHandle {
    /// Of the threads of one load, at least one.
    pub(crate) fn new(url: String, size: (usize, usize), generators: Vec<Generator>) -> Self {
        Self {
            generators,
            url,
            size,
        }
    }

    /// Takes what was counted since the last call (or the start), of all threads together. It costs the generator the
    /// swap of a pointer; the merging into the run's result is done here. It waits for the generator's threads,
    /// microseconds as a rule.
    ///
    /// # Errors
    /// [`LoadError::Ended`] once the load has ended, [`LoadError::NoAnswer`] where its thread is starved; what other
    /// threads counted is then in the result of [`LoadHandle::join`].
    pub fn take_period(&mut self) -> Result<LoadPeriod, LoadError> {
        // All are asked before one is waited for, so that their spans end together.
        let asked: Vec<_> = self.generators.iter().map(Generator::ask).collect();
        let mut whole: Option<Box<LoadPeriod>> = None;
        let mut failure = None;
        for (generator, asked) in self.generators.iter_mut().zip(asked) {
            match asked.and_then(|answer| generator.receive(&answer)) {
                Ok(period) => match &mut whole {
                    Some(whole) => whole.merge(&period),
                    None => whole = Some(period),
                },
                // One that has served its share, while others still wait for answers.
                Err(LoadError::Ended) => {}
                Err(error) => failure = Some(error),
            }
        }
        match (failure, whole) {
            (Some(error), _) => Err(error),
            (None, Some(whole)) => Ok(*whole),
            (None, None) => Err(LoadError::Ended),
        }
    }

    /// Offers no more requests. Those outstanding are still answered, time out, or are given up after the load's grace.
    pub fn stop(&self) {
        for generator in &self.generators {
            // The only failures are a load that has ended and a queue full of commands. A thread too starved to
            // read those is told by `join`, which closes the channel.
            let _ = generator.send(Command::Stop);
        }
    }

    /// Whether the load has ended, so that [`LoadHandle::join`] returns at once.
    pub fn is_finished(&self) -> bool {
        self.generators
            .iter()
            .all(|generator| generator.thread.is_finished())
    }

    /// Waits for the load's end (its trace's, or [`LoadHandle::stop`]) and for its last answers, at most for its grace.
    ///
    /// # Errors
    /// [`LoadError::System`] where the event loop failed, [`LoadError::Panicked`] where the thread panicked.
    pub fn join(self) -> Result<LoadResult, LoadError> {
        let mut generators = self.generators.into_iter();
        let first = generators.next().ok_or(LoadError::Ended)?;
        let mut whole = first.join()?;
        for generator in generators {
            whole.merge(&*generator.join()?);
        }
        Ok(LoadResult::new(self.url, self.size, *whole))
    }
}

fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}
