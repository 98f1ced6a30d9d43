//! Which servers an operator takes out, while the run goes on.

use headroom_control::resize::Maintenance;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The servers that are taken out, by name. A clone is of the same run.
#[derive(Clone, Debug, Default)]
pub struct TakenOut(Arc<Mutex<Lists>>);

#[derive(Debug, Default)]
struct Lists {
    out: BTreeMap<String, Maintenance>,
    /// Those that an operator has.
    handed_over: BTreeSet<String>,
}

/// What another list changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaintenanceChange {
    /// Those that are taken out from now on, or otherwise than before; with how they were, where their operator has them already.
    pub out: Vec<(String, Maintenance, Option<Maintenance>)>,
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

    /// Says which servers an operator has.
    pub fn hand_over<'a>(&self, servers: impl Iterator<Item = &'a str>) {
        self.lock().handed_over = servers.map(str::to_owned).collect();
    }

    /// Takes these out, and gives the others back, from the next period on.
    pub fn replace(&self, servers: BTreeMap<String, Maintenance>) -> MaintenanceChange {
        let mut lists = self.lock();
        let before = std::mem::replace(&mut lists.out, servers.clone());
        let back = before.keys().filter(|name| !servers.contains_key(*name));
        MaintenanceChange {
            back: back.cloned().collect(),
            out: servers
                .into_iter()
                .filter(|(name, how)| before.get(name) != Some(how))
                .map(|(name, how)| {
                    let is_handed_over = lists.handed_over.contains(&name);
                    let was = before.get(&name).copied().filter(|_| is_handed_over);
                    (name, how, was)
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::{Device, DevicePeriod};
    use crate::resize::balancer::Admission;
    use crate::resize::testing::{found, parts, told};
    use headroom_control::Decision;
    use headroom_control::resize::PowerState;
    use headroom_units::{Lever, Setting};
    use std::net::TcpListener;

    /// What a server that is to be taken out is found as, by what it gets, and what it gets after the first period.
    fn started(how: Maintenance, gets: Admission) -> (PowerState, Option<Admission>) {
        let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let wanted = Arc::new(Mutex::new(vec![told(Admission::Ready), told(gets)]));
        let taken_out = TakenOut::default();
        taken_out.replace([("web2".to_owned(), how)].into());
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
        (state, gets)
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
    fn what_changed_is_told_and_holds_for_every_clone() {
        let (soft, off) = (
            Maintenance::default(),
            Maintenance {
                power_off: true,
                ..Maintenance::default()
            },
        );
        let list = |servers: &[(&str, Maintenance)]| -> BTreeMap<String, Maintenance> {
            servers
                .iter()
                .map(|(name, how)| ((*name).to_owned(), *how))
                .collect()
        };
        let run = TakenOut::default();
        let operator = run.clone();
        let first = operator.replace(list(&[("web1", soft), ("web2", soft)]));
        assert_eq!((first.out.len(), first.back.len()), (2, 0));
        let second = operator.replace(list(&[("web1", soft), ("web3", off)]));
        assert_eq!(second.out, [("web3".to_owned(), off, None)]);
        assert_eq!(second.back, ["web2"]);
        assert_eq!((run.of("web3"), run.of("web2")), (Some(off), None));
        assert_eq!(
            operator.replace(list(&[("web1", soft), ("web3", off)])),
            MaintenanceChange::default()
        );
        // One that its operator has, and one that was his.
        run.hand_over(["web1", "web2"].into_iter());
        let third = operator.replace(list(&[("web1", off), ("web2", off), ("web3", off)]));
        let out = [
            ("web1".to_owned(), off, Some(soft)),
            ("web2".to_owned(), off, None),
        ];
        assert_eq!(third.out, out);
    }
}
