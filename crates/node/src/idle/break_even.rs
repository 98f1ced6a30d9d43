//! From which length on an idle period pays in the deepest idle state that this machine uses.

use super::{MAX_STATES, cpus, state_dir};
use crate::cpu::CpuList;
use crate::{Roots, file};
use headroom_physics::MachineFigures;
use headroom_units::Seconds;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The driver of virtual machines: its states say nothing of what the processor below does.
const VIRTUAL_DRIVER: &str = "haltpoll";

/// T of REEF's Equation 2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BreakEven {
    /// From so long on an idle period pays in the state.
    pub length: Seconds,
    /// The state.
    pub state: String,
    /// Where it is from.
    pub from: BreakEvenFrom,
}

/// Where a break-even is from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BreakEvenFrom {
    /// The target residency that this kernel has for the state: when its governor enters it. What pays may be more: on
    /// REEF's E5-2650 v4 C6 has 400 us here and pays from 1000 us on (Figure 2).
    Kernel,
    /// The figures of a kind of machine, because this one shows no states that say it.
    Figures {
        /// Why not from the kernel.
        reason: String,
    },
}

impl fmt::Display for BreakEven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.length.get() * 1e6;
        write!(f, "{micros:.0} us ({}, ", self.state)?;
        match &self.from {
            BreakEvenFrom::Kernel => write!(f, "the kernel's target residency)"),
            BreakEvenFrom::Figures { reason } => {
                write!(f, "estimated by the figures of a kind of machine: {reason})")
            }
        }
    }
}

/// The break-even of the deepest idle state that is enabled on one of these CPUs, all where it is nothing: the kernel's target
/// residency. Else of the deepest state of the figures, with the reason.
pub fn break_even(roots: &Roots, of: Option<&CpuList>, figures: &MachineFigures) -> BreakEven {
    match of_kernel(roots, of) {
        Ok(found) => found,
        Err(reason) => {
            let deepest = figures.processor.idle_states.last();
            BreakEven {
                length: deepest.map_or(Seconds::ZERO, |state| state.break_even),
                state: deepest.map(|state| state.name.clone()).unwrap_or_default(),
                from: BreakEvenFrom::Figures { reason },
            }
        }
    }
}

fn of_kernel(roots: &Roots, of: Option<&CpuList>) -> Result<BreakEven, String> {
    let driver = file::read(&roots.sys("devices/system/cpu/cpuidle/current_driver")).unwrap_or_default();
    if driver == VIRTUAL_DRIVER {
        return Err(format!(
            "the idle states of {driver}, a virtual machine's driver, are not the processor's"
        ));
    }
    cpus(roots)
        .into_iter()
        .filter(|cpu| of.is_none_or(|of| of.contains(*cpu)))
        .filter_map(|cpu| deepest(roots, cpu))
        .max_by(|one, other| one.length.get().total_cmp(&other.length.get()))
        .ok_or_else(|| "the kernel shows no enabled idle state with a target residency".into())
}

/// The deepest state that is enabled on a CPU.
fn deepest(roots: &Roots, cpu: u32) -> Option<BreakEven> {
    (0..MAX_STATES)
        .map(|state| state_dir(roots, cpu, state))
        .map_while(|dir| Some((file::read(&dir.join("name")).ok()?, dir)))
        .filter(|(_, dir)| file::read_u64(&dir.join("disable")).is_ok_and(|disable| disable == 0))
        .filter_map(|(state, dir)| {
            let micros = file::read_u64(&dir.join("residency")).ok()?;
            (micros > 0).then(|| BreakEven {
                length: Seconds::from_micros(micros as f64),
                state,
                from: BreakEvenFrom::Kernel,
            })
        })
        .last()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    fn put(tree: &Tree, cpu: u32, states: &[(&str, u64, u64)]) {
        for (state, (name, residency, disable)) in states.iter().enumerate() {
            let dir = state_dir(&tree.roots(), cpu, state);
            std::fs::create_dir_all(&dir).unwrap();
            for (file, text) in [
                ("name", (*name).to_string()),
                ("residency", residency.to_string()),
                ("disable", disable.to_string()),
            ] {
                std::fs::write(dir.join(file), format!("{text}\n")).unwrap();
            }
        }
    }

    #[test]
    fn it_is_the_deepest_enabled_states_target_residency() {
        let tree = Tree::new();
        let figures = MachineFigures::skylake(2);
        let of = |cpus: &str| break_even(&tree.roots(), Some(&cpus.parse().unwrap()), &figures);
        put(&tree, 0, &[("POLL", 0, 0), ("C1E", 20, 0), ("C6", 600, 1)]);
        put(&tree, 1, &[("POLL", 0, 0), ("C1E", 20, 0), ("C6", 600, 0)]);
        assert_eq!(
            (of("0").state.as_str(), of("0").length),
            ("C1E", Seconds::from_micros(20.0))
        );
        assert_eq!(
            of("0-1").to_string(),
            "600 us (C6, the kernel's target residency)"
        );
        assert_eq!(of("0-1").from, BreakEvenFrom::Kernel);
    }

    #[test]
    fn a_virtual_machine_and_one_without_states_take_the_figures_and_say_so() {
        let tree = Tree::new();
        let figures = MachineFigures::broadwell(2);
        let none = break_even(&tree.roots(), None, &figures);
        assert_eq!(
            (none.state.as_str(), none.length),
            ("C6", Seconds::from_millis(1.0))
        );
        put(&tree, 0, &[("POLL", 0, 0), ("haltpoll idle", 1, 0)]);
        let driver = tree.path("sys/devices/system/cpu/cpuidle");
        std::fs::create_dir_all(&driver).unwrap();
        std::fs::write(driver.join("current_driver"), "haltpoll\n").unwrap();
        let virtual_ = break_even(&tree.roots(), None, &figures);
        assert_eq!(virtual_.length, Seconds::from_millis(1.0));
        assert!(virtual_.to_string().contains("estimated") && virtual_.to_string().contains("haltpoll"));
    }
}
