//! A running load, from outside its thread.

use super::clock;
use super::config::{LoadConfig, LoadError, Plan};
use super::engine::{self, Command};
use super::tally::{LoadPeriod, LoadResult};
use headroom_units::Seconds;
use std::io;

use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc;

/// How many requests of the handle may wait for the generator's thread.
const COMMANDS: usize = 64;

/// How long the generator's thread may take to answer, seconds.
const ANSWER_WITHIN_S: u64 = 5;

/// How many tasks run between two looks at the sockets and the timer. Fewer than tokio's 61, because a request
/// that becomes due must not wait for so many.
const EVENT_INTERVAL: u32 = 16;

/// A running load. Dropping it stops the load and forgets its result.
#[derive(Debug)]
pub struct LoadHandle {
    commands: mpsc::Sender<Command>,
    thread: JoinHandle<io::Result<Ended>>,
    url: String,
    /// What was counted in the periods taken so far.
    taken: Option<Box<LoadPeriod>>,
}

/// What the thread leaves.
#[derive(Debug)]
struct Ended {
    rest: Box<LoadPeriod>,
    cpu: Seconds,
}

/// Starts a load on a thread of its own. It first opens the warm connections and then begins.
///
/// The process's soft limit on open files is raised to its hard limit where the connections need it.
///
/// # Errors
/// [`LoadError`] where the configuration is wrong, the host has no address, or the system refuses a thread. A
/// server that does not answer is no error: its requests fail and are counted.
pub fn start(config: LoadConfig) -> Result<LoadHandle, LoadError> {
    let plan = Plan::new(config)?;
    let url = plan.url.clone();
    let (commands, received) = mpsc::channel(COMMANDS);
    let thread = std::thread::Builder::new()
        .name("headroom-load".into())
        .spawn(move || {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .event_interval(EVENT_INTERVAL)
                .build_local(LocalOptions::default())?;
            let rest = runtime.block_on(engine::run(plan, received))?;
            Ok(Ended {
                rest,
                cpu: Seconds::new(clock::thread_cpu()),
            })
        })?;
    Ok(LoadHandle {
        commands,
        thread,
        url,
        taken: None,
    })
}

impl LoadHandle {
    /// Takes what was counted since the last call (or the start). It costs the generator the swap of a pointer;
    /// the merging into the run's result is done here. It waits for the generator's thread, microseconds as a
    /// rule.
    ///
    /// # Errors
    /// [`LoadError::Ended`] once the load has ended, [`LoadError::NoAnswer`] where its thread is starved.
    pub fn take_period(&mut self) -> Result<LoadPeriod, LoadError> {
        let (reply, answer) = sync_channel(1);
        self.send(Command::TakePeriod(reply))?;
        let period = answer
            .recv_timeout(Duration::from_secs(ANSWER_WITHIN_S))
            .map_err(|error| match error {
                std::sync::mpsc::RecvTimeoutError::Timeout => LoadError::NoAnswer(ANSWER_WITHIN_S),
                std::sync::mpsc::RecvTimeoutError::Disconnected => LoadError::Ended,
            })?;
        match &mut self.taken {
            Some(taken) => taken.append(&period),
            None => self.taken = Some(period.clone()),
        }
        Ok(*period)
    }

    /// Offers no more requests. Those outstanding are still answered, or time out.
    pub fn stop(&self) {
        // The only failures are a load that has ended and a queue full of commands. A thread too starved to
        // read those is told by `join`, which closes the channel.
        let _ = self.send(Command::Stop);
    }

    /// Whether the load has ended, so that [`LoadHandle::join`] returns at once.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the load's end (its trace's, or [`LoadHandle::stop`]) and for its last answers.
    ///
    /// # Errors
    /// [`LoadError::System`] where the event loop failed, [`LoadError::Panicked`] where the thread panicked.
    pub fn join(self) -> Result<LoadResult, LoadError> {
        let Self {
            commands,
            thread,
            url,
            taken,
        } = self;
        let ended = thread.join();
        drop(commands);
        let Ended { rest, cpu } =
            ended.map_err(|payload| LoadError::Panicked(panic_message(&*payload)))??;
        let whole = match taken {
            Some(mut taken) => {
                taken.append(&rest);
                taken
            }
            None => rest,
        };
        Ok(LoadResult::new(url, *whole, cpu))
    }

    fn send(&self, command: Command) -> Result<(), LoadError> {
        self.commands.try_send(command).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => LoadError::NoAnswer(ANSWER_WITHIN_S),
            mpsc::error::TrySendError::Closed(_) => LoadError::Ended,
        })
    }
}

fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}
