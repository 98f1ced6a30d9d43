//! What idle cores draw on average where only rates are known: for a meter, or a law that plans.
//!
//! Idle periods are taken as exponential with the mean that follows from the load: a core that is woken w times a second
//! and idle for a share i of the time has periods of i/w. Its governor believes in the first quartile of its recent
//! periods, m ln(4/3) for a mean m, or the next background timer.

use crate::cores::{background_s, state_power_w};
use crate::frequency::Pace;
use crate::governor::{Settled, settled};
use crate::machine::MachineFigures;
use headroom_units::{Cores, PerSecond, Watts};

/// What the cores of a machine are asked to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Busy cores on average.
    pub busy: Cores,
    /// Idle periods that the work ends, a second, over all cores.
    pub wakeups: PerSecond,
    /// Cores that run work, over which it is spread; the others are parked.
    pub on: usize,
}

/// What everything but busy cores and the platform draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IdlePower {
    /// Idle cores with their transitions.
    pub cores: Watts,
    /// Packages beside their cores, with their transitions.
    pub uncore: Watts,
    /// Share of the time for which an idle core that runs work is in the deepest state.
    pub deep: f64,
}

/// The mean power of one idle core whose idle periods have this mean, and whether it is in the deepest state.
fn core_w(machine: &MachineFigures, mean_s: f64, voltage: f64) -> (f64, bool) {
    let processor = &machine.processor;
    let states = &processor.idle_states;
    let Settled { state, stay_s, .. } = settled(states, mean_s, background_s(processor), |_| true);
    let shallowest_w = state_power_w(processor, 0, voltage);
    let transition_w = states[state].transition_j(shallowest_w) / stay_s;
    let staying_w = state_power_w(processor, state, voltage);
    (staying_w + transition_w, state + 1 == states.len())
}

/// What idle cores and packages draw under a load, at the highest voltage.
pub fn idle_power(machine: &MachineFigures, load: Load) -> IdlePower {
    idle_power_at(machine, load, 1.0)
}

/// As [`idle_power`], at a voltage over that at the highest frequency.
pub fn idle_power_at(machine: &MachineFigures, load: Load, voltage: f64) -> IdlePower {
    let processor = &machine.processor;
    let on = load.on.clamp(1, processor.cores) as f64;
    let parked = processor.cores as f64 - on;
    let busy = load.busy.get().clamp(0.0, on);
    let background = processor.background.get();
    let idle_share = 1.0 - busy / on;
    let wakeups = load.wakeups.get().max(0.0) / on + background;
    let mean_s = match wakeups > 0.0 {
        true => idle_share / wakeups,
        false => f64::INFINITY,
    };
    let (idle_w, deep) = core_w(machine, mean_s, voltage);
    let (parked_w, parked_deep) = core_w(machine, background_s(processor), voltage);
    let cores = Watts::new(idle_w * (on - busy) + parked_w * parked);

    // A package sleeps while none of its cores is busy: Poisson work leaves on cores all idle for e^-busy of the time, in
    // periods that each arrival or background wake-up of the package ends.
    let packages = processor.packages as f64;
    let all_idle = match deep && (parked == 0.0 || parked_deep) {
        true => (-busy / packages).exp(),
        false => 0.0,
    };
    let ended = load.wakeups.get().max(0.0) / packages + background * processor.cores as f64 / packages;
    // Of each, the first break-even is lost: E[min(T, X)] of exponential periods X.
    let kept = (-ended * processor.package_break_even.get()).exp();
    let saved = (processor.uncore - processor.uncore_asleep) * (all_idle * kept);
    IdlePower {
        cores,
        uncore: (processor.uncore - saved) * packages,
        deep: if deep { 1.0 } else { 0.0 },
    }
}

/// What a server that is on draws under a load, with its cores at a pace: its platform, its packages, busy and idle cores.
pub fn server_power(machine: &MachineFigures, load: Load, pace: &Pace) -> Watts {
    let busy = load.busy.get().clamp(0.0, machine.processor.cores as f64);
    let idle = idle_power_at(machine, load, pace.voltage);
    machine.platform + pace.busy * busy + idle.cores + idle.uncore
}

/// How cores were in one idle state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InState {
    /// Cores in it on average.
    pub cores: Cores,
    /// How often it was entered, over all cores.
    pub entries: PerSecond,
}

/// What idle cores and packages draw where it was counted how long they were in which state, in the order of the machine's
/// table; at a voltage over that at the highest frequency.
///
/// That no core of a package is out of its deepest state is as likely as that of Poisson arrivals with as many cores out of it
/// on average none is there.
pub fn idle_power_in(machine: &MachineFigures, states: &[InState], voltage: f64) -> IdlePower {
    let processor = &machine.processor;
    let shallowest_w = state_power_w(processor, 0, voltage);
    let each = processor.idle_states.iter().zip(states).enumerate();
    let cores_w: f64 = each
        .map(|(index, (state, spent))| {
            let staying_w = state_power_w(processor, index, voltage) * spent.cores.get().max(0.0);
            staying_w + state.transition_j(shallowest_w) * spent.entries.get().max(0.0)
        })
        .sum();
    let deepest = match states.len() == processor.idle_states.len() {
        true => states.last().copied().unwrap_or_default(),
        false => InState::default(),
    };
    let idle: f64 = states.iter().map(|spent| spent.cores.get().max(0.0)).sum();
    let packages = processor.packages as f64;
    let awake = (processor.cores as f64 - deepest.cores.get()).max(0.0);
    let asleep = match deepest.cores.get() > 0.0 {
        true => (-awake / packages).exp(),
        false => 0.0,
    };
    // Each entry follows a wake-up, which ended a sleep of the package.
    let ended = deepest.entries.get().max(0.0) / packages;
    let kept = (-ended * processor.package_break_even.get()).exp();
    let saved = (processor.uncore - processor.uncore_asleep) * (asleep * kept);
    IdlePower {
        cores: Watts::new(cores_w),
        uncore: (processor.uncore - saved) * packages,
        deep: if idle > 0.0 {
            deepest.cores.get() / idle
        } else {
            0.0
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(cores: f64, entries: f64) -> InState {
        InState {
            cores: Cores::new(cores),
            entries: PerSecond::new(entries),
        }
    }

    #[test]
    fn counted_states_draw_what_the_table_says() {
        let machine = MachineFigures::skylake(4);
        let none = InState::default();
        // All in C1: 1.44 W each, the package up.
        let shallow = idle_power_in(&machine, &[spent(4.0, 0.0), none, none], 1.0);
        assert!((shallow.cores.get() - 5.76).abs() < 1e-9);
        assert_eq!((shallow.uncore, shallow.deep), (machine.processor.uncore, 0.0));
        // All in C6 and never woken: 0.1 W each, the package asleep.
        let deep = idle_power_in(&machine, &[none, none, spent(4.0, 0.0)], 1.0);
        assert!((deep.cores.get() - 0.4).abs() < 1e-9);
        assert!((deep.uncore - machine.processor.uncore_asleep).get().abs() < 1e-9);
        assert_eq!(deep.deep, 1.0);
        // A hundred entries a second of 0.8 mJ each, and one core awake.
        let woken = idle_power_in(&machine, &[none, none, spent(3.0, 100.0)], 1.0);
        assert!((woken.cores.get() - (0.3 + 100.0 * 600e-6 * 1.34)).abs() < 1e-9);
        assert!(woken.uncore > deep.uncore && woken.uncore < shallow.uncore);
    }

    #[test]
    fn a_lower_voltage_lowers_what_shallow_states_draw() {
        let machine = MachineFigures::skylake(4);
        let load = Load {
            busy: Cores::new(1.0),
            wakeups: PerSecond::new(1e6),
            on: 4,
        };
        let (high, low) = (idle_power(&machine, load), idle_power_at(&machine, load, 0.7));
        assert!((low.cores.get() / high.cores.get() - 0.49).abs() < 1e-9);
        assert_eq!(idle_power_at(&machine, load, 1.0), high);
    }
}
