//! Levers that a program sets and shows, since they are no files.

pub(crate) mod nic;

pub use nic::{MAX_US, NicOptions};

use crate::Roots;
use crate::agent::Actuator;
use crate::panel::ForeignWrite;
use crate::restore::{Handle, Outcome, Registry, RestoreError, Undo};
use crate::tool::{NOT_THERE, Tool};
use headroom_units::{Lever, LeverRange};
use headroom_wire::message::NoLever;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Whether somebody else has set the lever is looked up at most this often while the same value is commanded.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A lever that was not set.
#[derive(Debug, thiserror::Error)]
enum ProgramError {
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error("{0}")]
    Failed(String),
}

/// The devices that this process has open: the claim on a lever is the process's, and two services would undo each other.
fn open_here() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    static OPEN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the lever of a tool on one device.
#[derive(Debug)]
pub(crate) struct ProgramLever {
    tool: &'static Tool,
    file: PathBuf,
    what: String,
    range: Result<LeverRange, NoLever>,
    registry: Registry,
    held: Option<Held>,
}

/// What was found, from the first value on.
#[derive(Debug)]
struct Held {
    handle: Handle,
    found: Vec<String>,
    /// As it was read last.
    last: Vec<String>,
    /// What is in force by our doing.
    value: Option<f64>,
    looked: Instant,
    /// Somebody else has set it.
    foreign: bool,
}

impl ProgramLever {
    /// Interrupt coalescing of a network card.
    ///
    /// # Errors
    /// As [`ProgramLever::open`].
    pub(crate) fn coalescing(
        options: &NicOptions,
        roots: &Roots,
        registry: &Registry,
    ) -> Result<Self, RestoreError> {
        let (device, range) = (&options.interface, options.range());
        Self::open(&nic::COALESCING, device, range, roots, registry)
    }

    /// The lever of a device, within a range. Writes nothing; a device that lacks it says so in [`Actuator::range`].
    ///
    /// # Errors
    /// [`RestoreError::InUse`] and what else keeps it from being this process's.
    pub(crate) fn open(
        tool: &'static Tool,
        device: &str,
        range: LeverRange,
        roots: &Roots,
        registry: &Registry,
    ) -> Result<Self, RestoreError> {
        let file = tool.dir(roots).join(device).join(tool.file);
        let range = tool.shown(&file).map(|_| range);
        if range.is_ok() {
            registry.claim(&file)?;
            if !open_here().insert(file.clone()) {
                return Err(RestoreError::InUse {
                    lever: file,
                    owner: "another service of this agent: configure it for one of them".to_owned(),
                });
            }
        }
        Ok(Self {
            tool,
            what: format!("{} of {device}", tool.name),
            file,
            range,
            registry: registry.clone(),
            held: None,
        })
    }

    fn find(&self) -> Result<Held, ProgramError> {
        let found = self.tool.read(&self.file).map_err(ProgramError::Failed)?;
        let handle = self.registry.register(Undo::Program {
            what: self.what.clone(),
            tool: self.tool.name.to_owned(),
            path: self.file.clone(),
            found: found.clone(),
            ours: Vec::new(),
        })?;
        Ok(Held {
            handle,
            last: found.clone(),
            found,
            value: None,
            looked: Instant::now(),
            foreign: false,
        })
    }

    fn change(&self, held: &mut Held, value: f64) -> Result<(), ProgramError> {
        let (tool, failed) = (self.tool, ProgramError::Failed);
        let now = tool.read(&self.file).map_err(failed)?;
        held.looked = Instant::now();
        if let Some(at) = tool.differing(&held.last, &now) {
            held.foreign = true;
            let foreign = ForeignWrite {
                path: self.file.clone(),
                expected: held.last[at].clone(),
                seen: now[at].clone(),
            };
            held.handle.hold(&self.what, &foreign);
            held.last = now;
            let why = format!("{} is left alone until `headroom resume`: {foreign}", self.what);
            return Err(failed(why));
        }
        if held.value == Some(value) {
            return Ok(());
        }
        let wanted: Vec<String> = tool
            .values
            .iter()
            .zip(&held.found)
            .map(|(one, found)| match (one.meanwhile, found.as_str()) {
                (_, NOT_THERE) => NOT_THERE.to_owned(),
                (Some(meanwhile), _) => meanwhile.to_owned(),
                (None, _) => format!("{}", value.round()),
            })
            .collect();
        held.handle.write(
            |undo| {
                if let Undo::Program { ours, .. } = undo {
                    *ours = vec![held.last.clone(), wanted.clone()];
                }
                Ok::<(), ProgramError>(())
            },
            || tool.write(&self.file, &wanted).map_err(failed),
        )?;
        held.last = tool.read(&self.file).map_err(failed)?;
        let last = held.last.clone();
        held.handle.note(|undo| {
            if let Undo::Program { ours, .. } = undo {
                ours.push(last);
            }
        })?;
        match tool.differing(&wanted, &held.last) {
            None => {
                held.value = Some(value);
                Ok(())
            }
            Some(at) => Err(failed(format!(
                "{} reads {} after {} was set",
                self.what, held.last[at], wanted[at]
            ))),
        }
    }
}

impl Drop for ProgramLever {
    fn drop(&mut self) {
        // Before another may find it.
        self.held = None;
        if self.range.is_ok() {
            open_here().remove(&self.file);
        }
    }
}

impl Actuator for ProgramLever {
    fn lever(&self) -> Lever {
        self.tool.lever
    }

    fn device(&self) -> &str {
        self.tool.name
    }

    fn range(&self) -> Result<LeverRange, NoLever> {
        self.range.clone()
    }

    fn in_force(&self) -> Option<f64> {
        self.held.as_ref().and_then(|held| held.value)
    }

    fn set(&mut self, value: f64) -> Result<(), String> {
        let released = |held: &Held| held.foreign && !held.handle.is_held(&self.what);
        let mut held = match self.held.take() {
            // An operator gave it back: what is there now is what was found.
            Some(held) if released(&held) => None,
            held => held,
        };
        if let Some(one) = held.take_if(|one| one.foreign) {
            self.held = Some(one);
            return Err(format!("{} is left alone until `headroom resume`", self.what));
        }
        let mut held = match held {
            Some(held) => held,
            None => self.find().map_err(|error| error.to_string())?,
        };
        if held.value == Some(value) && held.looked.elapsed() < LOOK_EVERY {
            self.held = Some(held);
            return Ok(());
        }
        let done = self.change(&mut held, value);
        if done.is_err() {
            held.value = None;
        }
        self.held = Some(held);
        done.map_err(|error| error.to_string())
    }

    fn put_back(&mut self) -> Vec<Outcome> {
        let mut held = self.held.take();
        held.as_mut()
            .and_then(|held| held.handle.restore())
            .into_iter()
            .collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::restore::{Ledger, lift, recover};
    use crate::testing::says;
    use crate::tool::Value;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// A card whose program keeps its values in a file.
    pub(crate) static CARD: Tool = Tool {
        name: "a card's delay",
        lever: Lever::Servers,
        program: "cardtool",
        package: "cardtools",
        devices: "class/card",
        emulated: "headroom-testbed/card",
        file: "serial",
        show: "-c",
        set: "-C",
        values: &[
            Value {
                label: "Adaptive:",
                word: "adaptive",
                meanwhile: Some("off"),
                tolerance: 0,
            },
            Value {
                label: "delay:",
                word: "delay",
                meanwhile: None,
                tolerance: 2,
            },
        ],
    };

    const RANGE: LeverRange = LeverRange::between(0.0, 200.0);

    struct Card {
        dir: tempfile::TempDir,
        roots: Roots,
    }

    impl Card {
        /// It rounds down to even numbers, and refuses more than 100.
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let card = dir.path().join("sys/class/card/c0");
            fs::create_dir_all(&card).unwrap();
            fs::write(card.join("serial"), "1").unwrap();
            let program = card.join("cardtool");
            let script = "#!/bin/sh\nstate=\"${0%/*}/state\"\n\
                case \"$1\" in\n\
                -c) cat \"$state\" ;;\n\
                -C) if [ \"$6\" -gt 100 ]; then echo 'netlink error: Invalid argument' >&2; exit 1; fi\n\
                    printf 'Adaptive: %s\\ndelay:\\t%s\\n' \"$4\" $(($6 / 2 * 2)) > \"$state\" ;;\n\
                esac\n";
            fs::write(&program, script).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            let roots = Roots::at(dir.path().join("sys"), "/proc");
            let card = Self { dir, roots };
            card.set("on", "7");
            card
        }

        fn state(&self) -> PathBuf {
            self.dir.path().join("sys/class/card/c0/state")
        }

        fn set(&self, adaptive: &str, delay: &str) {
            fs::write(self.state(), format!("Adaptive: {adaptive}\ndelay: {delay}\n")).unwrap();
        }

        fn reads(&self) -> Vec<String> {
            CARD.read(&self.state().with_file_name("serial")).unwrap()
        }

        fn lever(&self, registry: &Registry) -> ProgramLever {
            ProgramLever::open(&CARD, "c0", RANGE, &self.roots, registry).unwrap()
        }
    }

    #[test]
    fn a_value_is_set_read_back_and_put_back_with_what_was_switched_off_for_it() {
        let card = Card::new();
        let mut lever = card.lever(&Registry::new());
        assert_eq!((lever.range(), lever.in_force()), (Ok(RANGE), None));
        lever.set(51.0).unwrap();
        assert_eq!(card.reads(), ["off", "50"]);
        assert_eq!(lever.in_force(), Some(51.0));
        // Refused by the driver: what was in force stays, and nothing is said to be.
        says(
            lever.set(150.0).unwrap_err(),
            &["`cardtool -C c0 adaptive off delay 150` failed (exit status: 1): netlink error"],
        );
        assert_eq!(lever.in_force(), None);
        lever.set(20.0).unwrap();
        let outcomes = lever.put_back();
        assert!(matches!(outcomes[..], [Outcome::Restored { .. }]), "{outcomes:?}");
        // Odd, which the card cannot set: what was found is near what it is.
        assert_eq!(card.reads(), ["on", "6"]);
        assert!(lever.put_back().is_empty() && lever.in_force().is_none());
        let again = ProgramLever::open(&CARD, "c0", RANGE, &card.roots, &Registry::new());
        assert!(again.unwrap_err().to_string().contains("another service"));
        drop(lever);
        card.lever(&Registry::new());
    }

    #[test]
    fn what_somebody_else_set_is_left_alone_until_an_operator_gives_it_back() {
        let card = Card::new();
        card.set("on", "8");
        let registry = Registry::new();
        let mut lever = card.lever(&registry);
        lever.set(50.0).unwrap();
        card.set("off", "30");
        says(
            lever.set(20.0).unwrap_err(),
            &["left alone until `headroom resume`"],
        );
        assert!(lever.set(20.0).is_err());
        assert_eq!(card.reads(), ["off", "30"]);
        assert_eq!(registry.standing().held.len(), 1);
        registry.resume();
        lever.set(20.0).unwrap();
        assert_eq!(card.reads(), ["off", "20"]);
        lever.put_back();
        assert_eq!(
            card.reads(),
            ["off", "30"],
            "what was there when it was given back"
        );
    }

    #[test]
    fn a_device_without_the_lever_says_why() {
        let card = Card::new();
        let registry = Registry::new();
        card.set("off", NOT_THERE);
        let reason = card.lever(&registry).range().unwrap_err().reason;
        assert_eq!(reason, "the device's driver has no a card's delay");
        let open = |device| ProgramLever::open(&CARD, device, RANGE, &card.roots, &registry);
        for device in ["c9", "-c0"] {
            let none = open(device).unwrap().range().unwrap_err();
            assert!(
                none.reason.contains(&format!("there is no device {device:?}")),
                "{none:?}"
            );
        }
        fs::remove_file(card.state().with_file_name("cardtool")).unwrap();
        let none = card.lever(&registry).range().unwrap_err();
        assert_eq!(none.reason, "cardtool is not installed");
        assert_eq!(none.remedy, "apt install cardtools");
    }

    #[test]
    fn what_a_killed_owner_set_is_put_back_by_the_guard_and_by_the_next_start() {
        let card = Card::new();
        card.set("on", "8");
        let (run_dir, copy) = (card.dir.path().join("run"), card.dir.path().join("copy"));
        let registry = Registry::new();
        registry
            .attach(Ledger::open(&run_dir, &card.roots).unwrap().0)
            .unwrap();
        let mut lever = card.lever(&registry);
        lever.set(50.0).unwrap();
        // What a kill leaves is the record.
        fs::create_dir(&copy).unwrap();
        for path in fs::read_dir(&run_dir).unwrap().map(|entry| entry.unwrap().path()) {
            fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
        }
        assert_eq!(lift(&run_dir, &card.roots).unwrap().restored(), 1);
        assert_eq!(card.reads(), ["on", "8"]);
        card.set("off", "50");
        let report = recover(&copy, &card.roots).unwrap();
        assert_eq!(report.restored(), 1, "{report}");
        assert_eq!(card.reads(), ["on", "8"]);
    }

    #[test]
    fn a_record_runs_nothing_that_is_not_on_the_list() {
        let card = Card::new();
        let undo = Undo::Program {
            what: "x".into(),
            tool: "/bin/rm".into(),
            path: card.state(),
            found: vec![],
            ours: vec![],
        };
        let outcome = undo.carry_out().to_string();
        assert!(
            outcome.contains("NOT put back: x") && card.state().exists(),
            "{outcome}"
        );
    }
}
