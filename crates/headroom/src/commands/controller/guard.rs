//! A process that watches over a controller which switches servers, and starts every server where that was killed or hangs.
//!
//! It has the configuration from the controller itself, on standard input, with what was read of it since, and needs no file. It acts until
//! every server serves, or somebody else has them: a run that is recorded in the place of its own, or whoever holds that place and shares the
//! lock of the file ([`ownership`](super::ownership)).

use super::amendment::Amendment;
use super::record::Place;
use super::servers;
use crate::config::controller::ControllerFile;
use anyhow::Context;
use headroom_console::{Document, Failure, say};
use headroom_runtime::cluster::Gateways;
use headroom_runtime::live::guard::apart::Apart;
use headroom_runtime::resize::{Parts, restore};
use serde::{Deserialize, Serialize};
use std::fs::{File, TryLockError};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
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
/// The servers are another's when they were found so as many times in turn: another starter may just have ended.
const MIN_HELD: u32 = 3;
/// What a guard answers when it stands.
pub const STANDS: &str = "stands";
/// What it answers each beat.
pub const ANSWER: u8 = b'.';
/// A period of the control loop went by.
pub const BEAT: u8 = b'.';
/// The control loop ended, and the controller starts the servers itself.
pub const LEAVES: u8 = b'l';
/// The file was read again: an [`Amendment`] follows, in a line.
pub const AMENDED: u8 = b'a';
/// Everything is done.
pub const DONE: u8 = b'd';

/// What a guard is told first, in a line.
#[derive(Debug, Serialize, Deserialize)]
pub struct Charge {
    /// The run that it watches over.
    pub run: u64,
    /// Where that is recorded. The file may be gone, and a link with it that led to another place.
    pub place: Place,
    /// The configuration, as it was at the start.
    pub text: String,
    /// What was read of it since.
    pub amendment: Option<Amendment>,
}

/// What it hears then.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    Beat,
    Leaves,
    Amended(Amendment),
    Done,
}

/// Watches over a controller until its end, and does what that could not.
///
/// # Errors
/// A standard input that holds no configuration; a run folder that cannot be used.
pub fn watch_over(file: &Path, command: &str) -> Result<(), Failure> {
    let mut input = BufReader::new(std::io::stdin());
    let mut told = String::new();
    input.read_line(&mut told)?;
    let charge: Charge = serde_json::from_str(&told).context("no controller is on standard input")?;
    let document = Document::shipped(&file.display().to_string(), &charge.text);
    let (mut config, document) = ControllerFile::checked(document, command)?;
    if let Some(amendment) = &charge.amendment {
        amendment.apply(&mut config);
    }
    let silence = SILENCE + 3 * config.control.period();
    // What kills the group that the controller was started in is not to kill its guard with it.
    let (apart, note) = Apart::live();
    if let Some(note) = note {
        tracing::debug!("{note}");
    }
    let stands = charge.place.stand(charge.run)?;
    say::result(STANDS)?;
    let (sender, words) = channel();
    std::thread::Builder::new()
        .name("words".to_owned())
        .spawn(move || hear(input, &sender))?;
    if let Ending::Killed = watch(&words, silence, (&mut config, &document), &charge.place) {
        let mut owner = Owner {
            file,
            place: &charge.place,
            run: charge.run,
        };
        succeed(&mut owner, command, SUCCESSOR, |over| {
            act(&config, &document, &charge.place, over)
        });
    }
    drop(stands);
    apart.end();
    Ok(())
}

/// Passes on what the controller says, until that ends.
fn hear(mut input: impl BufRead, words: &Sender<Word>) {
    loop {
        let mut letter = [0];
        if input.read_exact(&mut letter).is_err() {
            return;
        }
        let word = match letter[0] {
            BEAT => Word::Beat,
            LEAVES => Word::Leaves,
            DONE => Word::Done,
            AMENDED => {
                let mut line = String::new();
                // One that is cut off was the controller's last, which had not taken it for said.
                if !input.read_line(&mut line).is_ok_and(|_| line.ends_with('\n')) {
                    return;
                }
                match serde_json::from_str(&line) {
                    Ok(amendment) => Word::Amended(amendment),
                    Err(error) => {
                        say::note!(
                            "warning: the guard does not understand what was read again, and goes by what it had: {error}"
                        );
                        continue;
                    }
                }
            }
            _ => continue,
        };
        if words.send(word).is_err() {
            return;
        }
    }
}

/// Does what a controller that was killed could not, as soon as nobody had the servers for so long, unless it has a successor.
fn succeed(
    owner: &mut Owner,
    command: &str,
    patience: Duration,
    mut act: impl FnMut(&mut dyn FnMut() -> bool) -> bool,
) {
    let mut until = Instant::now() + patience;
    let mut who_waits_for = String::new();
    loop {
        match owner.found() {
            Found::Over(why) => {
                say::note!("headroom {command} was killed, and its guard ends: {why}");
                return;
            }
            Found::Held(who) => {
                if who != who_waits_for {
                    say::note!(
                        "headroom {command} was killed, and {who} has its servers: the guard looks again when that has let go of them"
                    );
                    who_waits_for = who;
                }
                until = Instant::now() + patience;
            }
            Found::Left if Instant::now() >= until => {
                who_waits_for.clear();
                say::note!("headroom {command} was killed: every server is started and given requests");
                if act(&mut || owner.found() != Found::Left) {
                    break;
                }
            }
            Found::Left => {}
        }
        std::thread::sleep(LOOK_AGAIN);
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
    words: &Receiver<Word>,
    silence: Duration,
    (config, document): (&mut ControllerFile, &Document),
    place: &Place,
) -> Ending {
    let mut loops = false;
    let mut next = None;
    loop {
        match next.take().unwrap_or_else(|| words.recv_timeout(silence)) {
            Ok(Word::Beat) => {
                loops = true;
                answer();
            }
            Ok(Word::Done) => return Ending::Done,
            Ok(Word::Amended(amendment)) => amendment.apply(config),
            Ok(Word::Leaves) => loops = false,
            Err(RecvTimeoutError::Disconnected) => return Ending::Killed,
            Err(RecvTimeoutError::Timeout) if loops => {
                say::note!(
                    "the controller gave no sign of life for {:.0} s: every server is started and given requests",
                    silence.as_secs_f64()
                );
                act(config, document, place, &mut || {
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

/// The servers of a run that was killed.
struct Owner<'a> {
    file: &'a Path,
    place: &'a Place,
    /// The run that is watched over.
    run: u64,
}

/// Whose they are.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// Nobody's.
    Left,
    /// Somebody's who may let go of them, in words.
    Held(String),
    /// Another's for good, or there is nothing left to do; why.
    Over(String),
}

impl Owner<'_> {
    fn found(&self) -> Found {
        match self.place.record() {
            Ok(None) => {
                return Found::Over("its record is gone, so every server serves or is another's".to_owned());
            }
            Ok(Some(record)) if record.run != self.run => {
                return Found::Over(format!("the servers are those of pid {} now", record.pid));
            }
            // What cannot be read is nobody's word.
            Ok(Some(_)) | Err(_) => {}
        }
        for times in 1.. {
            match self.holder() {
                Some(who) if times >= MIN_HELD => return Found::Held(who),
                Some(_) => std::thread::sleep(AGAIN),
                None => break,
            }
        }
        Found::Left
    }

    /// Who holds the place. A controller that starts does too, and holds the file alone: nobody knows yet whether it can.
    fn holder(&self) -> Option<String> {
        let pid = self.place.holder()?;
        let starts = File::open(self.file).is_ok_and(|file| match file.try_lock() {
            Err(TryLockError::WouldBlock) => file.try_lock_shared().is_err(),
            _ => true,
        });
        (!starts).then(|| format!("pid {pid}"))
    }
}

/// Starts every server and gives it requests, until `over`. Whether all have them.
pub fn act(
    config: &ControllerFile,
    document: &Document,
    place: &Place,
    over: &mut dyn FnMut() -> bool,
) -> bool {
    let mut said = String::new();
    while !over() {
        match open(config, document, place) {
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
fn open(
    config: &ControllerFile,
    document: &Document,
    place: &Place,
) -> Result<(Parts, Option<Gateways>), Failure> {
    let gateways = match config.gateways.is_empty() {
        true => None,
        false => Some(Gateways::start(
            config.gateway_addresses(document)?,
            &config.client(document)?,
            config.control.period(),
        )?),
    };
    let parts = servers::assemble(config, document, gateways.as_ref(), Some(place))?;
    Ok((parts, gateways))
}

#[cfg(test)]
mod tests {
    use super::super::record::Record;
    use super::*;
    use crate::config::controller::EXAMPLE;
    use headroom_control::resize::Maintenance;
    use std::path::PathBuf;

    fn of_the_start() -> (ControllerFile, Document) {
        let document = Document::shipped("controller.toml", EXAMPLE);
        ControllerFile::checked(document, "controller").unwrap()
    }

    fn amendment() -> Amendment {
        Amendment {
            gateways: Some([("g2".to_owned(), "unix:/run/g2.sock".to_owned())].into()),
            taken_out: [("web1".to_owned(), Maintenance::default())].into(),
        }
    }

    #[test]
    fn a_guard_goes_by_what_its_controller_read_last() {
        let (mut config, document) = of_the_start();
        let said = format!(".a{}\n.d", serde_json::to_string(&amendment()).unwrap());
        let (sender, words) = channel();
        hear(said.as_bytes(), &sender);
        let place = Place::of(Path::new("/run"), Path::new("/etc/c.toml")).unwrap();
        let ending = watch(&words, SILENCE, (&mut config, &document), &place);
        assert!(matches!(ending, Ending::Done));
        assert_eq!(config.gateways, amendment().gateways.unwrap());
        assert_eq!(config.taken_out(), amendment().taken_out);
    }

    #[test]
    fn what_is_cut_off_or_not_understood_changes_nothing() {
        let heard = |said: &str| {
            let (sender, words) = channel();
            hear(said.as_bytes(), &sender);
            drop(sender);
            words.iter().collect::<Vec<_>>()
        };
        assert_eq!(heard(".a{\"gateways\":null,\"taken_out\":{}}"), [Word::Beat]);
        assert_eq!(heard("a{}\n?ld"), [Word::Leaves, Word::Done]);
    }

    #[test]
    fn a_charge_is_one_line_whatever_the_file_holds() {
        for (run, text) in [(0, ""), (u64::MAX, "a = \"\u{e9}\\\"\r\n\t\u{0}\u{2028}\n\"")] {
            let charge = Charge {
                run,
                place: Place::of(Path::new("/run"), Path::new("/etc/c.toml")).unwrap(),
                text: text.to_owned(),
                amendment: Some(amendment()),
            };
            let line = serde_json::to_string(&charge).unwrap();
            assert!(!line.contains('\n'), "{line}");
            let read: Charge = serde_json::from_str(&line).unwrap();
            assert_eq!(
                (read.run, read.text.as_str(), &read.place),
                (run, text, &charge.place)
            );
            assert_eq!(read.amendment, charge.amendment);
        }
    }

    /// The place of a run 7, and its file.
    fn killed() -> (tempfile::TempDir, Place, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.toml");
        std::fs::write(&file, "").unwrap();
        let place = Place::of(dir.path(), &file).unwrap();
        drop(place.take().unwrap());
        place
            .write(&Record::new(7, "resize", &file, "").unwrap())
            .unwrap();
        (dir, place, file)
    }

    #[test]
    fn the_servers_are_whose_who_holds_the_place_or_wrote_his_run_there() {
        let (_dir, place, file) = killed();
        let owner = Owner {
            file: &file,
            place: &place,
            run: 7,
        };
        assert_eq!(owner.found(), Found::Left);
        // A backup, or an editor.
        let locked = File::open(&file).unwrap();
        locked.lock_shared().unwrap();
        assert_eq!(owner.found(), Found::Left);
        locked.lock().unwrap();
        assert_eq!(owner.found(), Found::Left);
        // A controller that starts, and may yet fail.
        let held = place.take().unwrap();
        assert_eq!(owner.found(), Found::Left);
        // One whose guard stands, and `headroom release`.
        locked.lock_shared().unwrap();
        let us = format!("pid {}", std::process::id());
        assert_eq!(owner.found(), Found::Held(us.clone()));
        drop(held);
        assert_eq!(owner.found(), Found::Left);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(owner.found(), Found::Left);
        let held = place.take().unwrap();
        assert_eq!(owner.found(), Found::Held(us));
        drop(held);
        place
            .write(&Record::new(8, "resize", &file, "").unwrap())
            .unwrap();
        assert!(matches!(owner.found(), Found::Over(why) if why.contains(&std::process::id().to_string())));
        place.remove().unwrap();
        assert!(matches!(owner.found(), Found::Over(_)));
    }

    #[test]
    fn a_guard_waits_for_who_has_the_servers_and_does_what_that_did_not() {
        let (_dir, place, file) = killed();
        let mut owner = Owner {
            file: &file,
            place: &place,
            run: 7,
        };
        let mut times = 0;
        let mut held = None;
        succeed(&mut owner, "resize", Duration::ZERO, |over| {
            times += 1;
            if times == 1 {
                // `headroom release` begins, and is killed.
                let locked = File::open(&file).unwrap();
                locked.lock_shared().unwrap();
                let taken = place.take().unwrap();
                assert!(over());
                held = Some(std::thread::spawn(move || {
                    std::thread::sleep(2 * LOOK_AGAIN);
                    drop((taken, locked));
                }));
                return false;
            }
            assert!(held.as_ref().is_some_and(|held| held.is_finished()), "it waited");
            !over()
        });
        assert_eq!(times, 2);
        assert!(!place.is_of(7), "it is done, and nothing is recorded");
    }
}
