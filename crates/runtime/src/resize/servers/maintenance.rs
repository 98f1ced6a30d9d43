//! Which servers an operator takes out, while the run goes on.

use headroom_control::resize::Maintenance;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The servers that are taken out, by name. A clone is of the same run.
#[derive(Clone, Debug, Default)]
pub struct TakenOut(Arc<Mutex<BTreeMap<String, Maintenance>>>);

/// What another list changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaintenanceChange {
    /// Those that are taken out from now on, or otherwise than before.
    pub out: Vec<(String, Maintenance)>,
    /// Those that are given back.
    pub back: Vec<String>,
}

impl TakenOut {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Maintenance>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How a server is taken out.
    pub fn of(&self, name: &str) -> Option<Maintenance> {
        self.lock().get(name).copied()
    }

    /// All that are taken out, and how.
    pub fn all(&self) -> BTreeMap<String, Maintenance> {
        self.lock().clone()
    }

    /// Takes these out, and gives the others back, from the next period on.
    pub fn replace(&self, servers: BTreeMap<String, Maintenance>) -> MaintenanceChange {
        let before = std::mem::replace(&mut *self.lock(), servers.clone());
        let back = before.keys().filter(|name| !servers.contains_key(*name));
        MaintenanceChange {
            back: back.cloned().collect(),
            out: servers
                .into_iter()
                .filter(|(name, how)| before.get(name) != Some(how))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(second.out, [("web3".to_owned(), off)]);
        assert_eq!(second.back, ["web2"]);
        assert_eq!((run.of("web3"), run.of("web2")), (Some(off), None));
        assert_eq!(
            operator.replace(list(&[("web1", soft), ("web3", off)])),
            MaintenanceChange::default()
        );
    }
}
