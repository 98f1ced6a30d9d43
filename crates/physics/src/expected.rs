//! What idle cores draw on average where only rates are known: for a meter, or a law that plans.
//!
//! Idle periods are taken as exponential with the mean that follows from the load: a core that is woken w times a second
//! and idle for a share i of the time has periods of i/w. Its governor believes in the first quartile of its recent
//! periods, m ln(4/3) for a mean m, or the next background timer.

use crate::cores::{background_s, state_power_w};
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
fn core_w(machine: &MachineFigures, mean_s: f64) -> (f64, bool) {
    let processor = &machine.processor;
    let states = &processor.idle_states;
    let Settled { state, stay_s, .. } = settled(states, mean_s, background_s(processor), |_| true);
    let shallowest_w = state_power_w(processor, 0, 1.0);
    let transition_w = states[state].transition_j(shallowest_w) / stay_s;
    (
        states[state].power.get() + transition_w,
        state + 1 == states.len(),
    )
}

/// What idle cores and packages draw under a load, at the highest voltage.
pub fn idle_power(machine: &MachineFigures, load: Load) -> IdlePower {
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
    let (idle_w, deep) = core_w(machine, mean_s);
    let (parked_w, parked_deep) = core_w(machine, background_s(processor));
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
