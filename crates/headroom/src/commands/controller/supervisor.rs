//! The controller's side of its guard: another takes the place of one that was killed or hangs, and while none stands no server is
//! switched off.

use super::amendment::Amendment;
use super::guard::{AMENDED, ANSWER, BEAT, Charge, DONE, LEAVES, STANDS};
use super::record::Place;
use anyhow::{Context, anyhow};
use headroom_console::{Document, Failure};
use headroom_control::Decision;
use headroom_runtime::live::{Device, DevicePeriod};
use headroom_units::Setting;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A guard stands within this time of its start, on a machine however busy.
const STANDS_WITHIN: Duration = Duration::from_secs(20);
/// A guard that has not answered a beat for so long hangs.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked at.
const TICK: Duration = Duration::from_millis(500);
/// Between two attempts to get another.
const AGAIN: Duration = Duration::from_secs(1);
/// A guard that is dismissed ends at once.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// Between two looks at a guard that starts or ends.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Words that wait for the supervisor; a beat that finds no room is lost, and the next says the same.
const MAX_WORDS: usize = 64;

/// What a guard is to know, each of a run's the same.
#[derive(Debug)]
pub struct Orders {
    /// The command that the controller is.
    pub command: &'static str,
    /// Its configuration.
    pub document: Document,
    /// Where the run is recorded.
    pub place: Place,
    /// The run's own number.
    pub run: u64,
}

/// The guard, as its controller has it: a device that moves nothing and gives a sign of life each period.
#[derive(Debug)]
pub struct Guard {
    words: GuardWords,
    stands: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What a controller says to its guard. A clone says it to the same.
#[derive(Clone, Debug)]
pub struct GuardWords {
    words: SyncSender<u8>,
    amended: Amended,
}

/// What every guard of a run is to know of what was read again.
#[derive(Clone, Debug, Default)]
struct Amended(Arc<Mutex<Option<Amendment>>>);

impl Amended {
    fn now(&self) -> Option<Amendment> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, amendment: Amendment) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(amendment);
    }
}

impl GuardWords {
    fn say(&self, word: u8) {
        // The loop waits for nobody.
        if let Err(error) = self.words.try_send(word) {
            tracing::debug!(%error, "a word did not reach the guard");
        }
    }

    /// The file was read again: the guard that stands is to go by that, and so is each that takes its place.
    pub fn amend(&self, amendment: Amendment) {
        self.amended.replace(amendment);
        // Where no word finds room the supervisor is about to look.
        self.say(AMENDED);
    }
}

impl Guard {
    /// Starts it, and waits until it stands.
    ///
    /// # Errors
    /// It does not: nothing may be switched off then.
    pub fn start(orders: Orders) -> Result<Self, Failure> {
        let first = Standing::start(&orders, None)
            .context("no guard can be started: if this process were killed, servers would stay off")?;
        let (words, said) = sync_channel(MAX_WORDS);
        let stands = Arc::new(AtomicBool::new(true));
        let (theirs, amended) = (Arc::clone(&stands), Amended::default());
        let to_tell = amended.clone();
        let thread = std::thread::Builder::new()
            .name("guard".to_owned())
            .spawn(move || supervise(&orders, first, &said, &to_tell, &theirs))?;
        Ok(Self {
            words: GuardWords { words, amended },
            stands,
            thread: Some(thread),
        })
    }

    /// What is said to it, for whoever else has something to say.
    pub fn words(&self) -> GuardWords {
        self.words.clone()
    }

    /// Whether one stands, now and later.
    pub fn stands(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stands)
    }

    /// The control loop is over: what is left to do takes longer than a period.
    pub fn leaves(&mut self) {
        self.words.say(LEAVES);
    }

    /// Everything is done, or known to be left: there is nothing for it to do.
    pub fn dismiss(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        // It takes every word within a moment, or has ended with a panic.
        let heard = self.words.words.send(DONE).is_ok();
        if !heard || thread.join().is_err() {
            tracing::error!(
                "the guard's supervisor has ended before: the guard acts as if this process were killed"
            );
        }
    }
}

impl Device for Guard {
    fn observe(&mut self, _period: &mut DevicePeriod) {
        self.words.say(BEAT);
    }

    fn in_force(&self) -> Setting {
        Setting::default()
    }

    fn apply(&mut self, _decision: &mut Decision) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Passes words on to the guard that stands, and gets another where none does. Ended without the last word it leaves the guard to act.
fn supervise(orders: &Orders, first: Standing, words: &Receiver<u8>, amended: &Amended, stands: &AtomicBool) {
    let mut standing = Some(first);
    let mut due = Instant::now();
    loop {
        match words.recv_timeout(TICK) {
            Ok(DONE) => {
                if let Some(guard) = standing {
                    guard.dismiss();
                }
                return;
            }
            // Below: it may be that no guard stands, or that no room was for the word.
            Ok(AMENDED) => {}
            Ok(word) => {
                if let Some(guard) = &mut standing {
                    guard.say(word);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if let Some(why) = standing.as_mut().and_then(Standing::trouble)
            && let Some(guard) = standing.take()
        {
            stands.store(false, Ordering::Relaxed);
            tracing::error!("the guard {why}: no server is switched off until another stands");
            guard.end(Duration::ZERO);
            due = Instant::now();
        }
        if standing.is_none() && Instant::now() >= due {
            match Standing::start(orders, amended.now()) {
                Ok(guard) => {
                    tracing::warn!("another guard stands");
                    standing = Some(guard);
                    stands.store(true, Ordering::Relaxed);
                }
                Err(error) => {
                    tracing::error!(%error, "no other guard can be started yet");
                    due = Instant::now() + AGAIN;
                }
            }
        }
        if let Some(guard) = &mut standing {
            guard.knows(amended.now());
        }
    }
}

/// A guard that stands.
#[derive(Debug)]
struct Standing {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    /// What was said and not taken yet.
    unsaid: Vec<u8>,
    /// What it knows of what was read again.
    amendment: Option<Amendment>,
    /// Since when an answer is missing.
    asked: Option<Instant>,
}

impl Standing {
    fn start(orders: &Orders, amendment: Option<Amendment>) -> io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([orders.command, "--when-input-closes", "--config"])
            .arg(orders.document.file())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // What ends this process from the terminal must not end the guard with it.
            .process_group(0)
            .spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(ErrorKind::BrokenPipe.into());
        };
        let mut guard = Self {
            child,
            input,
            output,
            unsaid: Vec::new(),
            amendment,
            asked: None,
        };
        match guard.is_told(orders) {
            Ok(()) => Ok(guard),
            Err(error) => {
                guard.end(Duration::ZERO);
                Err(error)
            }
        }
    }

    /// Tells it what it is to know, and waits for its answer.
    fn is_told(&mut self, orders: &Orders) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&self.input, true)?;
        rustix::io::ioctl_fionbio(&self.output, true)?;
        let mut told = serde_json::to_vec(&Charge {
            run: orders.run,
            place: orders.place.clone(),
            text: orders.document.text().to_owned(),
            amendment: self.amendment.clone(),
        })?;
        told.push(b'\n');
        let (mut told, mut answer) = (told.as_slice(), Vec::new());
        let until = Instant::now() + STANDS_WITHIN;
        while !answer.ends_with(b"\n") {
            let mut byte = [0];
            let moved = if told.is_empty() {
                self.output
                    .read(&mut byte)
                    .inspect(|count| answer.extend(&byte[..*count]))
            } else {
                self.input.write(told).inspect(|count| told = &told[*count..])
            };
            match moved {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if Instant::now() >= until {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    std::thread::sleep(LOOK_AGAIN);
                }
                moved => {
                    moved?;
                }
            }
        }
        match answer.trim_ascii() == STANDS.as_bytes() {
            true => Ok(()),
            false => Err(io::Error::other(anyhow!("it does not answer as a guard does"))),
        }
    }

    fn say(&mut self, word: u8) {
        self.unsaid.push(word);
        self.flush();
        if word == BEAT {
            self.asked.get_or_insert_with(Instant::now);
        }
    }

    /// Tells it what was read again, where it does not know.
    fn knows(&mut self, amendment: Option<Amendment>) {
        if self.amendment != amendment
            && let Some(now) = &amendment
        {
            self.unsaid.push(AMENDED);
            match serde_json::to_writer(&mut self.unsaid, now) {
                Ok(()) => self.unsaid.push(b'\n'),
                // It has texts and switches alone.
                Err(error) => tracing::error!(%error, "what was read again cannot be told to the guard"),
            }
            self.amendment = amendment;
        }
        self.flush();
    }

    /// Says what it takes now; one that takes no words gives no answers either.
    fn flush(&mut self) {
        while !self.unsaid.is_empty() {
            match self.input.write(&self.unsaid) {
                Ok(count) => drop(self.unsaid.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    if error.kind() != ErrorKind::WouldBlock {
                        tracing::debug!(%error, "a word did not reach the guard");
                    }
                    return;
                }
            }
        }
    }

    /// What is wrong with it.
    fn trouble(&mut self) -> Option<String> {
        let mut answers = [0; MAX_WORDS];
        match self.output.read(&mut answers) {
            Ok(0) => return Some("has ended".to_owned()),
            Ok(count) if answers[..count].contains(&ANSWER) => self.asked = None,
            _ => {}
        }
        let silent = self.asked.map(|asked| asked.elapsed())?;
        (silent > ANSWERS_WITHIN).then(|| format!("gave no answer for {:.0} s", silent.as_secs_f64()))
    }

    fn dismiss(mut self) {
        self.say(DONE);
        self.end(ENDS_WITHIN);
    }

    /// Waits for its end, and ends it where that does not come. No zombie is left.
    fn end(mut self, within: Duration) {
        let until = Instant::now() + within;
        while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            self.flush();
            std::thread::sleep(LOOK_AGAIN);
        }
        let ended = self.child.kill().and_then(|()| self.child.wait());
        if let Err(error) = ended {
            tracing::warn!(%error, "the guard cannot be ended");
        }
    }
}
