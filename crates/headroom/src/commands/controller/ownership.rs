//! Who has the servers of a configuration: one controller, or `headroom release` once that was killed.
//!
//! Two locks say so. That of the record's folder is held by whoever has the servers. That of the file itself tells a guard, too,
//! when to let go: a controller that starts holds it alone, and one whose own guard stands shares it.

use super::amendment::{self, Amendment};
use super::guard;
use super::record::{Place, Record};
use super::supervisor::{Guard, GuardWords, Orders};
use crate::config::controller::ControllerFile;
use anyhow::{Context, anyhow};
use headroom_console::{Document, Failure, say};
use headroom_node::restore::{LedgerError, RunDir};
use headroom_runtime::resize::Servers;
use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a starter tries a lock, which guards hold for a moment when they look whose it is.
pub const MAX_LOCK: Duration = Duration::from_secs(1);
/// The time between two tries.
const AGAIN: Duration = Duration::from_millis(50);

/// The servers of a configuration are this process's until this is dropped.
#[derive(Debug)]
pub struct Ownership {
    /// Where they are recorded.
    pub place: Place,
    /// The run before, which did not leave every server serving.
    pub before: Option<Record>,
    /// Whether a guard of that run stands, which keeps its word once nobody has the servers.
    pub is_guarded: bool,
    file: File,
    _held: RunDir,
}

impl Ownership {
    /// Takes them, and keeps every other controller with the same file away: they would undo each other's work.
    ///
    /// # Errors
    /// Another has them; a run folder that cannot be used; a record that cannot be read.
    pub fn take(file: &Path, run_dir: &Path) -> Result<Self, Failure> {
        let place = Place::of(run_dir, file)?;
        let locked = lock(file).map_err(|error| match place.holder() {
            Some(pid) => another(file, &pid),
            None => error,
        })?;
        let held = place.take().map_err(|error| match error {
            LedgerError::InUse { owner, .. } => another(file, &owner),
            error => Failure::usage(error),
        })?;
        let before = place.record()?;
        Ok(Self {
            is_guarded: before.as_ref().is_some_and(|before| place.is_guarded(before.run)),
            before,
            place,
            file: locked,
            _held: held,
        })
    }

    /// Has the servers for good, watched over by a guard where every one is to serve at the end; and begins with what the run before
    /// could not do. The guard of that lets go of them.
    ///
    /// # Errors
    /// No guard stands, or the run cannot be recorded: nothing is switched then.
    pub fn take_over(
        &self,
        servers: &mut Servers,
        orders: Option<Orders>,
    ) -> Result<Option<(Guard, Watched)>, Failure> {
        let guard = match orders {
            Some(orders) => {
                let (file, text) = (orders.document.file(), orders.document.text());
                let record = Record::new(orders.run, orders.command, file, text)?;
                let mut guard = Guard::start(orders)?;
                if let Err(error) = self.place.write(&record) {
                    guard.dismiss();
                    let why = unrecorded(self.place.path(), &servers.taken_out().in_maintenance());
                    return Err(Failure::usage(anyhow!(error).context(why)));
                }
                servers.guarded(guard.stands());
                let watched = Watched {
                    words: guard.words(),
                    place: self.place.clone(),
                    record,
                };
                Some((guard, watched))
            }
            None => {
                self.place.remove()?;
                None
            }
        };
        servers.taken_out().keep_in(self.place.handed_over());
        self.file.lock_shared()?;
        if let Some(words) = self.words() {
            say::note!("{words}");
            if !self.is_guarded {
                servers.bring_back();
            }
        }
        Ok(guard)
    }

    /// Sees that all servers of the run before are servers of this one, too.
    ///
    /// # Errors
    /// Some are not: this run could not start them.
    pub fn covers(&self, config: &ControllerFile, run_dir: &Path) -> Result<(), Failure> {
        let Some(before) = &self.before else {
            return Ok(());
        };
        let document = Document::shipped(&before.file.display().to_string(), &before.text);
        let names = match ControllerFile::checked(document, &before.command) {
            Ok((theirs, _)) => switched(&theirs),
            Err(_) => BTreeSet::new(),
        };
        let ours = switched(config);
        let missing: Vec<&str> = names.difference(&ours).map(String::as_str).collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(left(before, &missing.join(", "), run_dir)),
        }
    }

    /// What the user is told of the run before.
    fn words(&self) -> Option<String> {
        let pid = self.before.as_ref()?.pid;
        Some(match self.is_guarded {
            true => {
                format!("the run before (pid {pid}) was killed: its servers are this run's now, as they are")
            }
            false => format!(
                "the run before (pid {pid}) was killed, and its guard with it, or could not start every server: all are started now"
            ),
        })
    }
}

/// What does what a run could not, were its process killed: its guard, and its record.
#[derive(Debug)]
pub struct Watched {
    words: GuardWords,
    place: Place,
    record: Record,
}

impl Watched {
    /// Has both go by what was read again.
    ///
    /// # Errors
    /// The record cannot be written: its old one stands.
    pub fn amend(&mut self, amendment: Amendment) -> io::Result<()> {
        self.words.amend(amendment.clone());
        self.record.amendment = Some(amendment);
        self.place.write(&self.record)
    }
}

/// Sees that nothing is left of a run that switched servers, where this one switches none.
///
/// # Errors
/// There is.
pub fn nothing_left(file: &Path, run_dir: &Path) -> Result<(), Failure> {
    match Place::of(run_dir, file)?.record()? {
        None => Ok(()),
        Some(before) => Err(left(&before, "its servers", run_dir)),
    }
}

/// That nothing is done, for it cannot be recorded; and what that means for what operators have, of which only a controller that runs tells
/// gateways.
fn unrecorded(place: &Path, in_maintenance: &[String]) -> String {
    let why = format!("{}: what is switched off cannot be recorded", place.display());
    match in_maintenance {
        [] => why,
        servers => format!(
            "{why}, so no gateway is told anything: one that was started since the run before gives requests to {}, in maintenance, until a \
             controller runs",
            servers.join(", ")
        ),
    }
}

fn left(before: &Record, what: &str, run_dir: &Path) -> Failure {
    Failure::usage(anyhow!(
        "the run before (pid {}) switched {what}, which this one would not, and may have left them off: start them with \
         `headroom release --run-dir {}` first",
        before.pid,
        run_dir.display()
    ))
}

fn switched(config: &ControllerFile) -> BTreeSet<String> {
    let switched = config
        .nodes
        .iter()
        .filter(|(_, node)| node.server.power.is_some());
    switched.map(|(name, _)| name.clone()).collect()
}

fn another(file: &Path, pid: &str) -> Failure {
    Failure::usage(anyhow!(
        "{}: another controller runs with this file, or `headroom release` starts its servers (pid {pid}); stop it first",
        file.display()
    ))
}

fn locked(file: &Path) -> Failure {
    Failure::usage(anyhow!(
        "{}: a process holds a lock on this file, as another controller with another --run-dir does, or a program that copies files; end \
         it first (`fuser -v` names who has the file open)",
        file.display()
    ))
}

fn lock(file: &Path) -> Result<File, Failure> {
    let opened = File::open(file)?;
    let until = Instant::now() + MAX_LOCK;
    while let Err(error) = opened.try_lock() {
        match error {
            TryLockError::Error(error) => return Err(error.into()),
            TryLockError::WouldBlock if Instant::now() >= until => return Err(locked(file)),
            TryLockError::WouldBlock => {}
        }
        std::thread::sleep(AGAIN);
    }
    Ok(opened)
}

/// What came of what killed controllers left in a run folder.
#[derive(Debug, Default)]
pub struct Finished {
    /// What was done, and what was left alone, a line each.
    pub lines: Vec<String>,
    /// What could not be done; it stays recorded.
    pub failed: Vec<anyhow::Error>,
}

/// Starts the servers of every controller that was killed, and gives them requests. Those of one that runs are left alone.
pub fn finish_all(run_dir: &Path) -> Finished {
    let mut finished = Finished::default();
    for place in Place::all(run_dir) {
        match finish(&place) {
            Ok(Some(line)) => finished.lines.push(line),
            Ok(None) => {}
            Err(error) => finished
                .failed
                .push(anyhow!(error).context(format!("{}", place.path().display()))),
        }
    }
    finished
}

fn finish(place: &Place) -> Result<Option<String>, Failure> {
    let _held = match place.take() {
        Err(LedgerError::InUse { owner, .. }) => {
            let line = format!(
                "{}: pid {owner} has its servers, its controller or another `headroom release`: they are left alone",
                place.path().display()
            );
            return Ok(Some(line));
        }
        taken => taken.map_err(Failure::usage)?,
    };
    let Some(record) = place.record()? else {
        return Ok(None);
    };
    // A file that is gone has servers that are off all the same, and nobody can be started with it.
    if record.file.exists() {
        let file = lock(&record.file)?;
        file.lock_shared()?;
        bring_back(place, &record, Some(file))
    } else {
        bring_back(place, &record, None)
    }
    .map(Some)
}

/// Starts them by the configuration that the run had, which is held meanwhile.
fn bring_back(place: &Place, record: &Record, _file: Option<File>) -> Result<String, Failure> {
    // What the configuration names is named from there.
    std::env::set_current_dir(&record.started_in)
        .with_context(|| format!("{} cannot be entered", record.started_in.display()))?;
    let name = record.file.display();
    let document = Document::shipped(&name.to_string(), &record.text);
    let (mut config, document) = ControllerFile::checked(document, &record.command)?;
    // Somebody may work on a server that was in service when the run began.
    if let Some(amendment) = &record.amendment {
        amendment.apply(&mut config);
    }
    let now = ControllerFile::read(&record.file, &record.command);
    if let Ok((now, _)) = &now {
        amendment::take_out_as(&mut config, now);
    }
    let (mut names, out) = (switched(&config), config.taken_out());
    names.retain(|server| !out.contains_key(server));
    let listed = |names: Vec<String>| match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    };
    let none_is_out = out.is_empty();
    let (names, out) = (
        listed(names.into_iter().collect()),
        listed(out.into_keys().collect()),
    );
    if let Err(error) = now {
        say::note!(
            "warning: what the controller read last holds, by which {out} of its servers is in maintenance, for the file cannot be used now: \
             {error}"
        );
    }
    let tuning = &config.power;
    // One that was ordered to stop has to be down first, and one that hangs is found to after a boot in vain.
    let limit_s = tuning.stop_timeout_s + 2.0 * tuning.boot_timeout_s + config.exit.wait_s;
    let until = Instant::now() + Duration::from_secs_f64(limit_s);
    say::note!(
        "{name}: its controller (pid {}) was killed: {names} are started and given requests; this takes until all answer and what was ordered \
         to stop has stopped ({:.0} s), and {limit_s:.0} s at most",
        record.pid,
        tuning.stop_timeout_s
    );
    if !guard::act(&config, &document, place, &mut || Instant::now() >= until) {
        let why =
            anyhow!("not every server of {name} answers and has requests after {limit_s:.0} s: see above");
        return Err(why.into());
    }
    place.remove()?;
    Ok(match none_is_out {
        true => format!("{name}: {names} serve"),
        false => format!("{name}: {names} serve, and {out} is left alone, in maintenance"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_can_be_recorded_it_is_said_who_is_in_maintenance() {
        let of = |servers: &[&str]| {
            let servers: Vec<String> = servers.iter().map(|name| (*name).to_owned()).collect();
            unrecorded(Path::new("/run/x"), &servers)
        };
        assert_eq!(of(&[]), "/run/x: what is switched off cannot be recorded");
        assert!(of(&["web1", "web3"]).contains("gives requests to web1, web3, in maintenance, until"));
    }
}
