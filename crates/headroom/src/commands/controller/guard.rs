//! A process that watches over a controller which switches servers, and starts every server where that was killed or hangs.
//!
//! It has the configuration from the controller itself, on standard input, and needs the file only where the controller has read other
//! gateways in it. Two locks of the
//! file say who has the servers: a controller that starts holds it alone; one whose own guard stands shares it. A guard acts until
//! every server serves, or a controller that shares the lock has them.

use super::servers;
use crate::config::controller::ControllerFile;
use anyhow::{Context, anyhow};
use headroom_console::{Document, Failure, say};
use headroom_control::Decision;
use headroom_runtime::cluster::Gateways;
use headroom_runtime::live::{Device, DevicePeriod};
use headroom_runtime::resize::restore;
use headroom_units::Setting;
use std::fs::{File, TryLockError};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

/// A controller that was killed may be started again within this time; else its guard acts.
const SUCCESSOR: Duration = Duration::from_secs(5);
/// A controller that gives no sign of life for this long and three of its periods hangs.
const SILENCE: Duration = Duration::from_secs(10);
/// How long a starter tries the lock, which guards hold for a moment when they look whose it is.
const MAX_LOCK: Duration = Duration::from_secs(1);
/// The time between two tries.
const AGAIN: Duration = Duration::from_millis(50);
/// The time between two tries of what a configuration names.
const OPEN_AGAIN: Duration = Duration::from_secs(1);
/// The lock is shared when it was found so as many times in turn: another starter may just have ended.
const MIN_SHARED: u32 = 3;
/// What a guard answers when it stands.
const STANDS: &str = "stands";
/// A period of the control loop went by.
const BEAT: u8 = b'.';
/// The control loop ended, and the controller starts the servers itself.
const LEAVES: u8 = b'l';
/// The file was read again, and has other gateways.
const REREAD: u8 = b'r';
/// Everything is done.
const DONE: u8 = b'd';

/// Keeps a second controller with the same file away: they would undo each other's work.
pub fn lock(file: &Path) -> Result<File, Failure> {
    let opened = File::open(file)?;
    let until = Instant::now() + MAX_LOCK;
    while let Err(error) = opened.try_lock() {
        if Instant::now() >= until {
            return Err(Failure::usage(anyhow!(
                "{}: another controller runs with this file ({error}); stop it first",
                file.display()
            )));
        }
        std::thread::sleep(AGAIN);
    }
    Ok(opened)
}

/// The guard, as its controller has it: a device that moves nothing and gives a sign of life each period.
pub struct Guard(GuardWords);

/// What a controller says to its guard. A clone says it to the same.
#[derive(Clone, Debug)]
pub struct GuardWords(Arc<ChildStdin>);

impl GuardWords {
    fn say(&self, word: u8) {
        // It may be gone; then nobody waits for the word.
        if let Err(error) = (&*self.0).write_all(&[word]) {
            tracing::debug!(%error, "a word did not reach the guard");
        }
    }

    /// The file was read again: the guard is to go by the gateways that it has now.
    pub fn reread(&self) {
        self.say(REREAD);
    }
}

impl Guard {
    /// Starts it, and waits until it stands.
    ///
    /// # Errors
    /// It does not: nothing may be switched off then.
    pub fn start(file: &Path, document: &Document, command: &str) -> Result<Self, Failure> {
        let start = || -> std::io::Result<Self> {
            let mut guard = Command::new(std::env::current_exe()?)
                .args([command, "--when-input-closes", "--config"])
                .arg(file)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                // What ends this process from the terminal must not end the guard with it.
                .process_group(0)
                .spawn()?;
            let (Some(mut input), Some(output)) = (guard.stdin.take(), guard.stdout.take()) else {
                return Err(ErrorKind::BrokenPipe.into());
            };
            let text = document.text();
            input.write_all(format!("{}\n{text}", text.len()).as_bytes())?;
            let mut answer = String::new();
            BufReader::new(output).read_line(&mut answer)?;
            if answer.trim() != STANDS {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            // Beats that nobody takes are lost; the loop waits for nobody.
            rustix::io::ioctl_fionbio(&input, true)?;
            Ok(Self(GuardWords(Arc::new(input))))
        };
        Ok(
            start()
                .context("no guard can be started: if this process were killed, servers would stay off")?,
        )
    }

    /// What is said to it, for whoever else has something to say.
    pub fn words(&self) -> GuardWords {
        self.0.clone()
    }

    fn say(&self, word: u8) {
        self.0.say(word);
    }

    /// The control loop is over: what is left to do takes longer than a period.
    pub fn leaves(&mut self) {
        self.say(LEAVES);
    }

    /// Everything is done: there is nothing left for it.
    pub fn dismiss(&mut self) {
        self.say(DONE);
    }
}

impl Device for Guard {
    fn observe(&mut self, _period: &mut DevicePeriod) {
        self.say(BEAT);
    }

    fn in_force(&self) -> Setting {
        Setting::default()
    }

    fn apply(&mut self, _decision: &mut Decision) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Watches over a controller until its end, and does what that could not.
///
/// # Errors
/// A standard input that holds no configuration.
pub fn watch_over(file: &Path, command: &str) -> Result<(), Failure> {
    let mut input = BufReader::new(std::io::stdin());
    let mut length = String::new();
    input.read_line(&mut length)?;
    let length: u64 = length
        .trim()
        .parse()
        .context("no controller is on standard input")?;
    let mut text = String::new();
    input.by_ref().take(length).read_to_string(&mut text)?;
    let document = Document::shipped(&file.display().to_string(), &text);
    let (mut config, document) = ControllerFile::checked(document, command)?;
    let silence = SILENCE + 3 * config.control.period();
    say::result(STANDS)?;
    let (sender, words) = channel();
    std::thread::Builder::new()
        .name("words".to_owned())
        .spawn(move || {
            for word in input.bytes() {
                if !word.is_ok_and(|word| sender.send(word).is_ok()) {
                    return;
                }
            }
        })?;
    let mut reread = |config: &mut ControllerFile| match ControllerFile::read(file, command) {
        Ok((now, _)) => {
            for (name, node) in &mut config.nodes {
                let of_now = now.nodes.get(name);
                node.server.maintenance = of_now.and_then(|node| node.server.maintenance);
            }
            config.gateways = now.gateways;
        }
        Err(errors) => say::note!("warning: the guard goes by the gateways that it had: {errors}"),
    };
    match watch(&words, silence, &mut config, &document, &mut reread) {
        Ending::Done => return Ok(()),
        Ending::Killed => {}
    }
    std::thread::sleep(SUCCESSOR);
    let mut owner = Owner { file, shared: 0 };
    if owner.is_over() {
        return Ok(());
    }
    say::note!("headroom {command} was killed: every server is started and given requests");
    act(&config, &document, &mut || owner.is_over());
    Ok(())
}

/// How a controller ended.
enum Ending {
    Done,
    Killed,
}

/// Waits for its end; while it hangs the servers are started.
fn watch(
    words: &Receiver<u8>,
    silence: Duration,
    config: &mut ControllerFile,
    document: &Document,
    reread: &mut dyn FnMut(&mut ControllerFile),
) -> Ending {
    let mut loops = false;
    let mut next = None;
    loop {
        match next.take().unwrap_or_else(|| words.recv_timeout(silence)) {
            Ok(BEAT) => loops = true,
            Ok(DONE) => return Ending::Done,
            Ok(REREAD) => reread(config),
            Ok(_) => loops = false,
            Err(RecvTimeoutError::Disconnected) => return Ending::Killed,
            Err(RecvTimeoutError::Timeout) if loops => {
                say::note!(
                    "the controller gave no sign of life for {:.0} s: every server is started and given requests",
                    silence.as_secs_f64()
                );
                act(config, document, &mut || {
                    next = match words.try_recv() {
                        Ok(word) => Some(Ok(word)),
                        Err(TryRecvError::Disconnected) => Some(Err(RecvTimeoutError::Disconnected)),
                        Err(TryRecvError::Empty) => None,
                    };
                    next.is_some()
                });
                if next.is_none() {
                    next = Some(words.recv().map_err(|_| RecvTimeoutError::Disconnected));
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Whether somebody else has the servers of a file.
struct Owner<'a> {
    file: &'a Path,
    /// How many times in turn its lock was found shared.
    shared: u32,
}

impl Owner<'_> {
    fn is_over(&mut self) -> bool {
        for _ in 0..MIN_SHARED {
            match self.is_shared() {
                true => self.shared += 1,
                false => self.shared = 0,
            }
            if self.shared == 0 || self.shared >= MIN_SHARED {
                break;
            }
            std::thread::sleep(AGAIN);
        }
        self.shared >= MIN_SHARED
    }

    /// Whether a controller whose guard stands has its lock; and a file that is gone was taken away with its servers.
    fn is_shared(&self) -> bool {
        let file = match File::open(self.file) {
            Ok(file) => file,
            Err(error) => return error.kind() == ErrorKind::NotFound,
        };
        matches!(file.try_lock(), Err(TryLockError::WouldBlock)) && file.try_lock_shared().is_ok()
    }
}

/// Starts every server and gives it requests, until `over`.
fn act(config: &ControllerFile, document: &Document, over: &mut dyn FnMut() -> bool) {
    let mut said = String::new();
    while !over() {
        match open(config, document) {
            Ok(mut parts) => {
                return restore(&mut parts, Duration::from_secs_f64(config.exit.wait_s), over);
            }
            Err(error) => {
                let why = error.to_string();
                if why != said {
                    say::note!("warning: no server can be started yet: {why}");
                    said = why;
                }
                std::thread::sleep(OPEN_AGAIN);
            }
        }
    }
}

fn open(config: &ControllerFile, document: &Document) -> Result<headroom_runtime::resize::Parts, Failure> {
    let gateways = match config.gateways.is_empty() {
        true => None,
        false => Some(Gateways::start(
            config.gateway_addresses(document)?,
            &config.client(document)?,
            config.control.period(),
        )?),
    };
    servers::assemble(config, document, gateways.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::controller::EXAMPLE;

    #[test]
    fn a_guard_goes_by_the_gateways_that_its_controller_read_last() {
        let document = Document::shipped("controller.toml", EXAMPLE);
        let (mut config, document) = ControllerFile::checked(document, "controller").unwrap();
        let (sender, words) = channel();
        for word in [BEAT, REREAD, BEAT, DONE] {
            sender.send(word).unwrap();
        }
        let mut times = 0;
        let mut reread = |config: &mut ControllerFile| {
            times += 1;
            config
                .gateways
                .insert("g2".to_owned(), "unix:/run/g2.sock".to_owned());
        };
        let ending = watch(&words, SILENCE, &mut config, &document, &mut reread);
        assert!(matches!(ending, Ending::Done));
        assert_eq!(times, 1);
        assert!(config.gateways.contains_key("g2"));
    }
}
