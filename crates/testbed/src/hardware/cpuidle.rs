//! Idle states and how often and how long each CPU was in them (Documentation/admin-guide/pm/cpuidle.rst).
//!
//! The kernel chooses by the length of the coming idle period. Here that length is the idle share over a wake-up rate
//! that rises with load: a lightly loaded CPU sleeps deeply, a busy one shallowly.

use super::text;
use rustix::io::Errno;

/// Name, description, exit latency and target residency (microseconds), of intel_idle's table for Broadwell servers.
const STATES: [(&str, &str, u64, u64); 5] = [
    ("POLL", "CPUIDLE CORE POLL IDLE", 0, 0),
    ("C1", "MWAIT 0x00", 2, 2),
    ("C1E", "MWAIT 0x01", 10, 20),
    ("C3", "MWAIT 0x10", 40, 100),
    ("C6", "MWAIT 0x20", 133, 400),
];

/// Wake-ups each second of a CPU that nothing is allocated on.
const WAKES_ASLEEP: f64 = 20.0;
/// Wake-ups each second of an allocated CPU that is idle, and how many more when fully busy.
const WAKES_IDLE: f64 = 200.0;
const WAKES_BUSY: f64 = 1_800.0;

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
    cpus: Vec<[Counters; STATES.len()]>,
}

impl CpuIdle {
    /// All counters zero, all states enabled.
    pub fn new(cpus: usize) -> Self {
        Self {
            cpus: vec![[Counters::default(); STATES.len()]; cpus],
        }
    }

    /// How many states each CPU has.
    pub const fn states() -> usize {
        STATES.len()
    }

    /// Whether the deepest state of a CPU may be used.
    pub fn may_sleep_deeply(&self, cpu: usize) -> bool {
        self.cpus
            .get(cpu)
            .is_none_or(|states| !states[STATES.len() - 1].disabled)
    }

    /// Counts an interval in which a CPU was busy for a share of the time and allocated or not.
    pub fn advance(&mut self, cpu: usize, dt_s: f64, busy: f64, allocated: f64) {
        let Some(states) = self.cpus.get_mut(cpu) else {
            return;
        };
        let idle = (1.0 - busy).max(0.0);
        let wakes = WAKES_ASLEEP + allocated * (WAKES_IDLE - WAKES_ASLEEP + WAKES_BUSY * busy);
        let period_us = idle / wakes * 1e6;
        let fits = |state: usize| STATES[state].3 as f64 <= period_us;
        let best = (0..STATES.len()).rev().find(|state| fits(*state)).unwrap_or(0);
        let chosen = (0..=best)
            .rev()
            .find(|state| !states[*state].disabled)
            .unwrap_or(0);
        let entries = if idle > 0.0 { wakes * dt_s } else { 0.0 };
        let counters = &mut states[chosen];
        counters.time_us += idle * dt_s * 1e6;
        counters.usage += entries;
        if chosen < best {
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
        let (label, description, latency, residency) = STATES[state];
        Ok(match name {
            "name" => label.into(),
            "desc" => description.into(),
            "latency" => latency.to_string(),
            "residency" => residency.to_string(),
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
    use super::*;

    fn number(idle: &CpuIdle, state: usize, name: &str) -> u64 {
        idle.read(0, state, name).unwrap().parse().unwrap()
    }

    #[test]
    fn the_busier_the_shallower_and_all_idle_time_is_counted() {
        for (busy, allocated, expected) in [
            (0.0, 0.0, 4),
            (0.2, 1.0, 4),
            (0.7, 1.0, 3),
            (0.9, 1.0, 2),
            (0.995, 1.0, 1),
        ] {
            let mut idle = CpuIdle::new(1);
            idle.advance(0, 10.0, busy, allocated);
            let times: Vec<u64> = (0..CpuIdle::states())
                .map(|state| number(&idle, state, "time"))
                .collect();
            assert_eq!(times.iter().sum::<u64>(), ((1.0 - busy) * 1e7) as u64, "{busy}");
            assert!(times[expected] > 0, "{busy}: {times:?}");
        }
    }

    #[test]
    fn a_disabled_state_is_passed_over_and_said_to_be_too_shallow() {
        let mut idle = CpuIdle::new(1);
        idle.write(0, 4, "disable", "1\n").unwrap();
        assert!(!idle.may_sleep_deeply(0));
        idle.advance(0, 1.0, 0.0, 0.0);
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
