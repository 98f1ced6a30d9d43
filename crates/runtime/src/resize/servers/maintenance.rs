//! Which servers an operator takes out, while the run goes on, and which he has.
//!
//! The latter is kept in a file, for gateways that were started anew do not remember who is to get nothing, and nobody else whether a server
//! that is on was never shut down or was started by its operator. Nothing else reads it than the next run and the guard of this one. A file
//! that is old would have a server shut down that somebody works on: one that cannot be written is removed, and nobody remembers.

use headroom_control::resize::{Maintenance, PowerState};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The servers that are taken out, by name. A clone is of the same run.
#[derive(Clone, Debug, Default)]
pub struct TakenOut(Arc<Mutex<Lists>>);

#[derive(Debug, Default)]
struct Lists {
    out: BTreeMap<String, Maintenance>,
    /// Which of them an operator has, and how; `None` where this run has handed over none yet, and nobody remembers what the run before had.
    handed_over: Option<HandedOver>,
    /// What each server was in the last period.
    states: BTreeMap<String, PowerState>,
    /// Where that is kept, and whether it is there.
    file: Option<(PathBuf, bool)>,
}

/// How an operator has each server that a run has; `None` where he does not have it.
pub type HandedOver = BTreeMap<String, Option<Maintenance>>;

/// A server that is taken out from now on, or otherwise than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoesOut {
    /// Its name.
    pub server: String,
    /// How it is taken out.
    pub how: Maintenance,
    /// How it was, where its operator has it already.
    pub was: Option<Maintenance>,
    /// What it was in the last period; `None` before the first.
    pub state: Option<PowerState>,
}

/// What another list changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaintenanceChange {
    /// Those that are taken out.
    pub out: Vec<GoesOut>,
    /// Those that are given back.
    pub back: Vec<String>,
}

impl TakenOut {
    fn lock(&self) -> MutexGuard<'_, Lists> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How a server is taken out.
    pub fn of(&self, name: &str) -> Option<Maintenance> {
        self.lock().out.get(name).copied()
    }

    /// All that are taken out, and how.
    pub fn all(&self) -> BTreeMap<String, Maintenance> {
        self.lock().out.clone()
    }

    /// Which of them an operator has, by this run or the one before, and how they were handed over; `None` where nobody remembers.
    pub fn handed_over(&self) -> Option<HandedOver> {
        self.lock().handed_over.clone()
    }

    /// Those that are taken out and that an operator has, as far as somebody remembers.
    pub fn in_maintenance(&self) -> Vec<String> {
        let lists = self.lock();
        let his = lists
            .handed_over
            .iter()
            .flatten()
            .filter(|(_, how)| how.is_some());
        let his = his.map(|(name, _)| name);
        his.filter(|name| lists.out.contains_key(*name))
            .cloned()
            .collect()
    }

    /// Says what each server is in this period.
    pub fn are(&self, states: BTreeMap<String, PowerState>) {
        self.lock().states = states;
    }

    /// Remembers which servers an operator has by what a run before left in a file, where there is one.
    ///
    /// # Errors
    /// A file that cannot be read: nobody remembers.
    pub fn recall(&self, file: &Path) -> io::Result<()> {
        let text = match fs::read(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            text => text?,
        };
        self.lock().handed_over = Some(serde_json::from_slice(&text)?);
        Ok(())
    }

    /// Leaves that in the file from now on.
    pub fn keep_in(&self, file: PathBuf) {
        self.lock().file = Some((file, false));
    }

    /// Says of each server whether an operator has it, and how it was handed over.
    ///
    /// # Errors
    /// It cannot be kept, and nobody remembers; it is tried again with the next.
    pub fn hand_over(&self, servers: HandedOver) -> io::Result<()> {
        self.lock().hand_over(servers)
    }

    /// Takes these out, and gives the others back, from the next period on.
    pub fn replace(&self, servers: BTreeMap<String, Maintenance>) -> MaintenanceChange {
        let mut lists = self.lock();
        let before = std::mem::replace(&mut lists.out, servers.clone());
        let his = lists.handed_over.clone();
        let is_his = |name: &str| {
            his.as_ref()
                .is_some_and(|those| those.get(name).is_some_and(Option::is_some))
        };
        if let Some(his) = his.clone().filter(|_| lists.file.is_some())
            && let Err(error) = lists.hand_over(his)
        {
            tracing::debug!(%error, "it is kept with the next");
        }
        let back = before.keys().filter(|name| !servers.contains_key(*name));
        MaintenanceChange {
            back: back.cloned().collect(),
            out: servers
                .into_iter()
                .filter(|(name, how)| before.get(name) != Some(how))
                .map(|(server, how)| GoesOut {
                    how,
                    was: before.get(&server).copied().filter(|_| is_his(&server)),
                    state: lists.states.get(&server).copied(),
                    server,
                })
                .collect(),
        }
    }
}

impl Lists {
    fn hand_over(&mut self, mut servers: HandedOver) -> io::Result<()> {
        // What is asked of a server that was just read again is done later; a run may end before.
        for (name, how) in &mut servers {
            *how = how.zip(self.out.get(name)).map(|(how, out)| Maintenance {
                power_off: how.power_off && out.power_off,
                ..how
            });
        }
        let is_news = self.handed_over.as_ref() != Some(&servers);
        let kept = match &mut self.file {
            Some((file, is_there)) if is_news || !*is_there => {
                let written = write(file, &servers);
                *is_there = written.is_ok();
                written.map_err(|error| match fs::remove_file(&*file) {
                    Err(also) if also.kind() != ErrorKind::NotFound => io::Error::new(
                        error.kind(),
                        format!(
                            "{error}; and {}, which is old, cannot be removed: {also}",
                            file.display()
                        ),
                    ),
                    _ => error,
                })
            }
            _ => Ok(()),
        };
        self.handed_over = Some(servers);
        kept
    }
}

/// Whoever reads it finds all of it, or what was there before.
fn write(file: &Path, servers: &HandedOver) -> io::Result<()> {
    let mut unfinished = file.as_os_str().to_owned();
    unfinished.push(".new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut new = options.open(&unfinished)?;
    new.write_all(&serde_json::to_vec_pretty(servers)?)?;
    new.sync_all()?;
    fs::rename(&unfinished, file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::{Device, DevicePeriod};
    use crate::resize::balancer::Admission;
    use crate::resize::testing::{found, parts, told};
    use headroom_control::Decision;
    use headroom_units::{Lever, Setting};
    use std::net::TcpListener;

    /// What a server that is to be taken out is found as, by what it gets, and what it gets after the first period, where nobody remembers
    /// anything.
    fn started(how: Maintenance, gets: Admission) -> (PowerState, Option<Admission>) {
        let (found, _, gets) = started_behind(how, gets, None);
        (found, gets)
    }

    fn theirs(servers: &[(&str, Option<Maintenance>)]) -> HandedOver {
        let named = servers.iter().map(|(name, how)| ((*name).to_owned(), *how));
        named.collect()
    }

    fn list(servers: &[(&str, Maintenance)]) -> BTreeMap<String, Maintenance> {
        let named = servers.iter().map(|(name, how)| ((*name).to_owned(), *how));
        named.collect()
    }

    /// The same behind a run that had handed over these, with its state after the first period.
    fn started_behind(
        how: Maintenance,
        gets: Admission,
        before: Option<&[(&str, Option<Maintenance>)]>,
    ) -> (PowerState, PowerState, Option<Admission>) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("handed-over.json");
        if let Some(before) = before {
            let run = TakenOut::default();
            run.keep_in(file.clone());
            run.replace(list(
                &before
                    .iter()
                    .filter_map(|(name, how)| Some((*name, (*how)?)))
                    .collect::<Vec<_>>(),
            ));
            run.hand_over(theirs(before)).unwrap();
        }
        let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let wanted = Arc::new(Mutex::new(vec![told(Admission::Ready), told(gets)]));
        let taken_out = TakenOut::default();
        taken_out.replace([("web2".to_owned(), how)].into());
        taken_out.recall(&file).unwrap();
        let mut servers = found(parts(&listeners, &wanted, &taken_out));
        let state = servers.states()[1].1;
        servers.observe(&mut DevicePeriod::default());
        let setting = Setting::default().with(Lever::Servers, Some(2.0));
        servers
            .apply(&mut Decision {
                setting,
                ..Decision::default()
            })
            .unwrap();
        let gets = wanted.lock().unwrap()[1].admission;
        (state, servers.states()[1].1, gets)
    }

    #[test]
    fn a_start_takes_out_anew_what_was_being_drained_and_leaves_alone_what_was_handed_over() {
        let soft = Maintenance::default();
        let at_once = Maintenance {
            at_once: true,
            ..soft
        };
        let off = Maintenance {
            power_off: true,
            ..soft
        };
        for (how, gets, wanted) in [
            (soft, Admission::Drain, (PowerState::Leaving, Admission::Ready)),
            (off, Admission::Drain, (PowerState::Leaving, Admission::Ready)),
            (at_once, Admission::Drain, (PowerState::Leaving, Admission::Drain)),
            (soft, Admission::Ready, (PowerState::Leaving, Admission::Ready)),
            (soft, Admission::Out, (PowerState::Maintenance, Admission::Out)),
        ] {
            let found = started(how, gets);
            assert_eq!(found, (wanted.0, Some(wanted.1)), "{how:?} {gets:?}");
        }
    }

    #[test]
    fn what_the_run_before_handed_over_is_its_operators_whatever_a_gateway_that_was_started_since_gives_it() {
        let soft = Maintenance::default();
        let off = Maintenance {
            power_off: true,
            ..soft
        };
        let (out, his) = (Some(Admission::Out), PowerState::Maintenance);
        for gets in [Admission::Ready, Admission::Drain, Admission::Out] {
            for (how, was) in [(soft, soft), (off, off), (soft, off)] {
                let found = started_behind(how, gets, Some(&[("web2", Some(was))]));
                assert_eq!(found, (his, his, out), "{how:?} {was:?} {gets:?}");
            }
            // Asked for since.
            let found = started_behind(off, gets, Some(&[("web2", Some(soft))]));
            assert_eq!(found, (his, PowerState::Stopping, out), "{gets:?}");
        }
        // That run had not come so far; nobody remembers.
        let found = |before| started_behind(off, Admission::Out, before).1;
        assert_eq!(found(Some(&[("web2", None)])), PowerState::Stopping);
        assert_eq!(found(None), his);
        // Nor of one that it did not have, or had by another name.
        assert_eq!(found(Some(&[("web1", None), ("web3", Some(off))])), his);
    }

    #[test]
    fn what_an_operator_has_is_kept_and_what_cannot_be_read_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("handed-over.json");
        let recalled = || {
            let next = TakenOut::default();
            next.recall(&file).map(|()| next.handed_over())
        };
        assert_eq!(recalled().unwrap(), None);
        let run = TakenOut::default();
        run.keep_in(file.clone());
        let nobody = theirs(&[("web1", None), ("web2", None)]);
        run.hand_over(nobody.clone()).unwrap();
        assert_eq!(recalled().unwrap(), Some(nobody.clone()));
        let (soft, off) = (
            Maintenance::default(),
            Maintenance {
                power_off: true,
                ..Maintenance::default()
            },
        );
        let web1 = |how| theirs(&[("web1", Some(how)), ("web2", None)]);
        run.replace(list(&[("web1", off)]));
        run.hand_over(web1(off)).unwrap();
        assert_eq!(recalled().unwrap(), Some(web1(off)));
        // That it was shut down is not held against him who asks for something else, also where the run ends before the next period.
        run.replace(list(&[("web1", soft)]));
        assert_eq!(recalled().unwrap(), Some(web1(soft)));
        run.replace(list(&[("web1", off)]));
        assert_eq!(recalled().unwrap(), Some(web1(soft)));
        run.replace(BTreeMap::new());
        assert_eq!(recalled().unwrap(), Some(nobody.clone()));
        // While it cannot be written nobody remembers what is old, and it is written as soon as it can.
        run.replace(list(&[("web1", soft)]));
        let in_the_way = dir.path().join("handed-over.json.new");
        fs::create_dir(&in_the_way).unwrap();
        for _ in 0..2 {
            assert!(run.hand_over(web1(soft)).is_err());
            assert_eq!(recalled().unwrap(), None);
        }
        fs::remove_dir(&in_the_way).unwrap();
        run.hand_over(web1(soft)).unwrap();
        assert_eq!(recalled().unwrap(), Some(web1(soft)));
        for text in ["", "[]", r#"{"web1":true}"#, r#"{"web1":{"power_off":1}}"#] {
            fs::write(&file, text).unwrap();
            assert!(recalled().is_err(), "{text}");
        }
    }

    #[test]
    fn what_changed_is_told_and_holds_for_every_clone() {
        let (soft, off) = (
            Maintenance::default(),
            Maintenance {
                power_off: true,
                ..Maintenance::default()
            },
        );
        let run = TakenOut::default();
        let operator = run.clone();
        let first = operator.replace(list(&[("web1", soft), ("web2", soft)]));
        assert_eq!((first.out.len(), first.back.len()), (2, 0));
        let second = operator.replace(list(&[("web1", soft), ("web3", off)]));
        let goes_out = |server: &str, how, was| GoesOut {
            server: server.to_owned(),
            how,
            was,
            state: None,
        };
        assert_eq!(second.out, [goes_out("web3", off, None)]);
        assert_eq!(second.back, ["web2"]);
        assert_eq!((run.of("web3"), run.of("web2")), (Some(off), None));
        assert_eq!(
            operator.replace(list(&[("web1", soft), ("web3", off)])),
            MaintenanceChange::default()
        );
        // One that its operator has, and one that was his.
        run.hand_over(theirs(&[
            ("web1", Some(soft)),
            ("web2", Some(soft)),
            ("web3", None),
        ]))
        .unwrap();
        let third = operator.replace(list(&[("web1", off), ("web2", off), ("web3", off)]));
        let out = [goes_out("web1", off, Some(soft)), goes_out("web2", off, None)];
        assert_eq!(third.out, out);
        assert_eq!(run.in_maintenance(), ["web1"]);
        run.are([("web2".to_owned(), PowerState::Off)].into());
        let fourth = operator.replace(list(&[("web2", soft)]));
        assert_eq!(fourth.out[0].state, Some(PowerState::Off));
        assert!(run.in_maintenance().is_empty(), "it was given back");
    }
}
