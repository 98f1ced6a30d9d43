//! Idle states and how often and how long each CPU was in them (Documentation/admin-guide/pm/cpuidle.rst): state 0 is polling,
//! which no governor chooses here, and then those of the machine.

use super::power::Idle;
use super::text;
use headroom_physics::IdleState;
use rustix::io::Errno;

/// The files of a state with their modes.
pub const ATTRIBUTES: [(&str, u16); 12] = [
    ("above", 0o444),
    ("below", 0o444),
    ("default_status", 0o444),
    ("desc", 0o444),
    ("disable", 0o644),
    ("latency", 0o444),
    ("name", 0o444),
    ("power", 0o444),
    ("rejected", 0o444),
    ("residency", 0o444),
    ("time", 0o444),
    ("usage", 0o444),
];

/// The counters of one state of one CPU.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    time_us: f64,
    usage: f64,
    below: f64,
    disabled: bool,
}

/// The idle states of all CPUs.
#[derive(Clone, Debug)]
pub struct CpuIdle {
    states: Vec<IdleState>,
    cpus: Vec<Vec<Counters>>,
}

impl CpuIdle {
    /// All counters zero, all states enabled.
    pub fn new(cpus: usize, states: Vec<IdleState>) -> Self {
        Self {
            cpus: vec![vec![Counters::default(); states.len() + 1]; cpus],
            states,
        }
    }

    /// How many states each CPU has, polling included.
    pub const fn states(&self) -> usize {
        self.states.len() + 1
    }

    /// Whether a CPU may use a state of the machine.
    pub fn may(&self, cpu: usize, state: usize) -> bool {
        let counters = self.cpus.get(cpu).and_then(|states| states.get(state + 1));
        counters.is_none_or(|counters| !counters.disabled)
    }

    /// Counts an interval that a CPU spent in a state, but for the share in which it was busy.
    pub fn advance(&mut self, cpu: usize, dt_s: f64, busy: f64, idle: &Idle) {
        let settled = idle.settled;
        let Some(counters) = self
            .cpus
            .get_mut(cpu)
            .and_then(|states| states.get_mut(settled.state + 1))
        else {
            return;
        };
        let idle_s = (1.0 - busy).max(0.0) * dt_s;
        let entries = idle_s / settled.stay_s;
        counters.time_us += idle_s * 1e6;
        counters.usage += entries;
        if settled.state < settled.wanted {
            counters.below += entries;
        }
    }

    /// Reads a file of a state.
    ///
    /// # Errors
    /// ENOENT: there is none.
    pub fn read(&self, cpu: usize, state: usize, name: &str) -> Result<String, Errno> {
        let counters = self
            .cpus
            .get(cpu)
            .and_then(|states| states.get(state))
            .ok_or(Errno::NOENT)?;
        let of = state.checked_sub(1).and_then(|state| self.states.get(state));
        let micros = |time: fn(&IdleState) -> f64| of.map_or(0.0, |of| time(of) * 1e6).round();
        Ok(match name {
            "name" => of.map_or("POLL", |of| of.name.as_str()).to_owned(),
            "desc" => of.map_or_else(
                || "CPUIDLE CORE POLL IDLE".to_owned(),
                |of| format!("EMULATED {}", of.name),
            ),
            "latency" => micros(|of| of.exit_latency.get()).to_string(),
            "residency" => micros(|of| of.target_residency.get()).to_string(),
            "time" => (counters.time_us as u64).to_string(),
            "usage" => (counters.usage as u64).to_string(),
            "below" => (counters.below as u64).to_string(),
            "above" | "rejected" | "power" => "0".into(),
            "disable" => u8::from(counters.disabled).to_string(),
            "default_status" => "enabled".into(),
            _ => return Err(Errno::NOENT),
        })
    }

    /// Writes `disable`.
    ///
    /// # Errors
    /// EINVAL: no number. ENOENT: no such state, or a file that is not written.
    pub fn write(&mut self, cpu: usize, state: usize, name: &str, given: &str) -> Result<(), Errno> {
        let counters = self
            .cpus
            .get_mut(cpu)
            .and_then(|states| states.get_mut(state))
            .ok_or(Errno::NOENT)?;
        match name {
            "disable" => counters.disabled = text::any_base(given)? != 0,
            _ => return Err(Errno::NOENT),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::HardwareConfig;
    use super::super::power::PowerModel;
    use super::*;

    fn number(idle: &CpuIdle, state: usize, name: &str) -> u64 {
        idle.read(0, state, name).unwrap().parse().unwrap()
    }

    fn model() -> PowerModel {
        PowerModel::new(&HardwareConfig::default())
    }

    fn idle() -> CpuIdle {
        CpuIdle::new(1, HardwareConfig::default().power.idle_states)
    }

    #[test]
    fn the_busier_the_shallower_and_all_idle_time_is_counted() {
        let mut deepest = usize::MAX;
        for busy in [0.0, 0.3, 0.6, 0.9, 0.99] {
            let mut idle = idle();
            idle.advance(0, 10.0, busy, &model().idle(busy, 2_100_000, |_| true));
            let times: Vec<u64> = (0..idle.states())
                .map(|state| number(&idle, state, "time"))
                .collect();
            let all = times.iter().sum::<u64>();
            assert!(all.abs_diff(((1.0 - busy) * 1e7) as u64) <= 1, "{busy}");
            let state = times.iter().position(|time| *time > 0).unwrap();
            assert!(state > 0 && state <= deepest, "{busy}: {times:?}");
            deepest = state;
        }
        assert!(deepest < 4, "a busy CPU never sleeps deeply");
        let read = |state, name| idle().read(0, state, name).unwrap();
        assert_eq!(
            (read(0, "name").as_str(), read(4, "name").as_str()),
            ("POLL", "C6")
        );
        assert_eq!(
            (read(4, "latency").as_str(), read(4, "residency").as_str()),
            ("133", "400")
        );
    }

    #[test]
    fn a_disabled_state_is_passed_over_and_said_to_be_too_shallow() {
        let mut idle = idle();
        idle.write(0, 4, "disable", "1\n").unwrap();
        assert!(!idle.may(0, 3) && idle.may(0, 2));
        let settled = model().idle(0.0, 2_100_000, |state| idle.may(0, state));
        idle.advance(0, 1.0, 0.0, &settled);
        assert_eq!(
            (number(&idle, 4, "time"), number(&idle, 3, "time")),
            (0, 1_000_000)
        );
        assert_eq!(number(&idle, 3, "below"), number(&idle, 3, "usage"));
        assert_eq!(idle.write(0, 4, "disable", "x"), Err(Errno::INVAL));
        assert_eq!(idle.write(0, 4, "latency", "1"), Err(Errno::NOENT));
        assert_eq!(idle.read(0, 5, "name"), Err(Errno::NOENT));
    }
}
