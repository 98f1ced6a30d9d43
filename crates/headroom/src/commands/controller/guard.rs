//! A process that watches over a controller which switches servers, and starts every server where that was killed or hangs.
//!
//! It has the configuration from the controller itself, on standard input, and needs the file only where the controller has read other
//! gateways in it. It acts until every server serves, or somebody else has them: a controller that shares the lock of the file
//! ([`ownership`](super::ownership)), or one whose run is recorded in the place of its own.

use super::record::Place;
use super::servers;
use crate::config::controller::ControllerFile;
use anyhow::Context;
use headroom_console::{Document, Failure, say};
use headroom_runtime::cluster::Gateways;
use headroom_runtime::live::guard::apart::Apart;
use headroom_runtime::resize::{Parts, restore};
use std::fs::{File, TryLockError};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

/// A controller that was killed may be started again within this time; else its guard acts.
const SUCCESSOR: Duration = Duration::from_secs(5);
/// A controller that gives no sign of life for this long and three of its periods hangs.
const SILENCE: Duration = Duration::from_secs(10);
/// The time between two tries.
const AGAIN: Duration = Duration::from_millis(50);
/// The time between two looks for a successor.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// The time between two tries of what a configuration names.
const OPEN_AGAIN: Duration = Duration::from_secs(1);
/// The lock is shared when it was found so as many times in turn: another starter may just have ended.
const MIN_SHARED: u32 = 3;
/// What a guard answers when it stands.
pub const STANDS: &str = "stands";
/// What it answers each beat.
pub const ANSWER: u8 = b'.';
/// A period of the control loop went by.
pub const BEAT: u8 = b'.';
/// The control loop ended, and the controller starts the servers itself.
pub const LEAVES: u8 = b'l';
/// The file was read again, and has other gateways.
pub const REREAD: u8 = b'r';
/// Everything is done.
pub const DONE: u8 = b'd';

/// Watches over a controller until its end, and does what that could not.
///
/// # Errors
/// A standard input that holds no configuration; a run folder that cannot be used.
pub fn watch_over(file: &Path, command: &str, run_dir: &Path) -> Result<(), Failure> {
    let mut input = BufReader::new(std::io::stdin());
    let mut length = String::new();
    input.read_line(&mut length)?;
    let numbers = length.trim().split_once(' ');
    let numbers =
        numbers.and_then(|(length, run)| Some((length.parse::<u64>().ok()?, run.parse::<u64>().ok()?)));
    let (length, run) = numbers.context("no controller is on standard input")?;
    let mut text = String::new();
    input.by_ref().take(length).read_to_string(&mut text)?;
    let document = Document::shipped(&file.display().to_string(), &text);
    let (mut config, document) = ControllerFile::checked(document, command)?;
    let silence = SILENCE + 3 * config.control.period();
    // What kills the group that the controller was started in is not to kill its guard with it.
    let (apart, note) = Apart::live();
    if let Some(note) = note {
        tracing::debug!("{note}");
    }
    let place = Place::of(run_dir, file)?;
    let stands = place.stand(run)?;
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
            take_out_as(config, &now);
            config.gateways = now.gateways;
        }
        Err(errors) => say::note!("warning: the guard goes by the gateways that it had: {errors}"),
    };
    if let Ending::Killed = watch(&words, silence, &mut config, &document, &mut reread) {
        succeed(
            &mut Owner {
                file,
                place: &place,
                run,
                shared: 0,
            },
            command,
            |over| act(&config, &document, over),
        );
    }
    drop(stands);
    apart.end();
    Ok(())
}

/// What an operator takes out now is taken out, whatever the file said at the start.
pub fn take_out_as(config: &mut ControllerFile, now: &ControllerFile) {
    for (name, node) in &mut config.nodes {
        let of_now = now.nodes.get(name);
        node.server.maintenance = of_now.and_then(|node| node.server.maintenance);
    }
}

/// Does what a controller that was killed could not, unless it has a successor.
fn succeed(owner: &mut Owner, command: &str, act: impl FnOnce(&mut dyn FnMut() -> bool) -> bool) {
    let until = Instant::now() + SUCCESSOR;
    while Instant::now() < until {
        if owner.is_over() {
            return;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    say::note!("headroom {command} was killed: every server is started and given requests");
    if !act(&mut || owner.is_over()) {
        return;
    }
    // Who starts meanwhile finds the record, and that all serve.
    if let Ok(_held) = owner.place.take()
        && owner.place.is_of(owner.run)
        && let Err(error) = owner.place.remove()
    {
        say::note!("warning: every server serves, but that cannot be recorded: {error}");
    }
}

/// How a controller ended.
enum Ending {
    Done,
    Killed,
}

/// Tells the controller that its guard does not hang; one that is gone does not ask.
fn answer() {
    let mut out = std::io::stdout();
    if let Err(error) = out.write_all(&[ANSWER]).and_then(|()| out.flush()) {
        tracing::debug!(%error, "an answer did not reach the controller");
    }
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
            Ok(BEAT) => {
                loops = true;
                answer();
            }
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
    place: &'a Place,
    /// The run that is watched over.
    run: u64,
    /// How many times in turn its lock was found shared.
    shared: u32,
}

impl Owner<'_> {
    fn is_over(&mut self) -> bool {
        // Another run has them, or somebody has started them all.
        if !self.place.is_of(self.run) {
            return true;
        }
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

/// Starts every server and gives it requests, until `over`. Whether all have them.
pub fn act(config: &ControllerFile, document: &Document, over: &mut dyn FnMut() -> bool) -> bool {
    let mut said = String::new();
    while !over() {
        match open(config, document) {
            // The gateways are commanded as long as they are held.
            Ok((mut parts, _gateways)) => {
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
    false
}

/// The servers, and the gateways in front of them.
fn open(config: &ControllerFile, document: &Document) -> Result<(Parts, Option<Gateways>), Failure> {
    let gateways = match config.gateways.is_empty() {
        true => None,
        false => Some(Gateways::start(
            config.gateway_addresses(document)?,
            &config.client(document)?,
            config.control.period(),
        )?),
    };
    let parts = servers::assemble(config, document, gateways.as_ref())?;
    Ok((parts, gateways))
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
