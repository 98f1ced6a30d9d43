//! Lifting the limits of a process that lives and hangs: what its record names is put back, and the record stays.

use super::ledger::{self, LedgerError};
use super::undo::Undo;
use super::{Outcome, RestoreReport};
use crate::Roots;
use std::path::Path;

/// Puts back to what was found whatever a run directory records, without taking the directory: its owner lives, and may
/// go on. The record stays as it is, so that it can be carried out once more. Control groups that the owner made stay too:
/// without limits they take nothing from anybody, and the owner could not go on without them.
///
/// The record is replaced as a whole by its owner, so it is never read half written.
///
/// # Errors
/// [`LedgerError`]: the record cannot be read, or is not one of ours. Nothing was changed then.
pub fn lift(dir: &Path, roots: &Roots) -> Result<RestoreReport, LedgerError> {
    let records = ledger::records(dir, roots)?;
    let outcomes = records
        .into_iter()
        .rev()
        .filter_map(without_groups)
        .map(|undo| undo.carry_out());
    Ok(RestoreReport {
        outcomes: outcomes
            .filter(|outcome| !matches!(outcome, Outcome::Unchanged { .. }))
            .collect(),
    })
}

fn without_groups(undo: Undo) -> Option<Undo> {
    match undo {
        Undo::Groups { .. } => None,
        Undo::Several { what, parts } => {
            let parts: Vec<Undo> = parts.into_iter().filter_map(without_groups).collect();
            (!parts.is_empty()).then_some(Undo::Several { what, parts })
        }
        Undo::Files { .. } | Undo::Hsmp { .. } | Undo::Program { .. } => Some(undo),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restore::{FileValue, FileValues, Ledger, Registry, RestoreError, is_recorded};
    use std::fs;
    use std::path::Path;

    #[test]
    fn what_a_living_process_limits_is_lifted_and_stays_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let (run_dir, file, group) = (
            dir.path().join("run"),
            dir.path().join("quota"),
            dir.path().join("fs/cgroup/group"),
        );
        fs::write(&file, "max").unwrap();
        fs::create_dir_all(&group).unwrap();
        let roots = Roots::at(dir.path(), Path::new("/proc"));
        let registry = Registry::new();
        registry
            .attach(Ledger::open(&run_dir, &roots).unwrap().0)
            .unwrap();
        let values = |values: &[&str]| FileValues {
            path: file.clone(),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            tolerance: 0,
        };
        let undo = Undo::Several {
            what: "both".into(),
            parts: vec![
                Undo::Groups {
                    what: "a group".into(),
                    dirs: vec![group.clone()],
                    disable: Vec::new(),
                },
                Undo::Files {
                    what: "a quota".into(),
                    ours: vec![values(&["max", "10"])],
                    steps: vec![FileValue {
                        path: file.clone(),
                        value: "max".into(),
                    }],
                    identity: None,
                },
            ],
        };
        let handle = registry.register(undo).unwrap();
        let tighten = || {
            handle.write(
                |_| Ok::<(), RestoreError>(()),
                || {
                    fs::write(&file, "10").unwrap();
                    Ok(())
                },
            )
        };
        assert!(
            lift(&run_dir, &roots).unwrap().outcomes.is_empty(),
            "nothing was written yet"
        );
        for _ in 0..2 {
            tighten().unwrap();
            let report = lift(&run_dir, &roots).unwrap();
            assert_eq!(report.restored(), 1, "{report}");
            assert_eq!(fs::read_to_string(&file).unwrap(), "max");
            assert!(group.exists() && is_recorded(&run_dir));
            assert!(
                lift(&run_dir, &roots).unwrap().outcomes.is_empty(),
                "it is said once"
            );
        }
        fs::write(&file, "77").unwrap();
        assert_eq!(lift(&run_dir, &roots).unwrap().foreign().count(), 1);
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            "77",
            "what somebody else wrote is theirs"
        );
    }
}
