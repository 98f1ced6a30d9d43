//! Idle states by the lengths of idle periods: for a machine whose idle periods were measured and whose idle states were
//! not, because it shows none (a virtual machine) or is none of the kind asked about.
//!
//! Each period is taken to have been in the deepest state whose target residency it meets, as by a governor that foresees
//! its length. A real one errs: it enters a deep state for a period that turns out short, and stays in a shallow one for
//! one that turns out long. So what follows is the best that these periods allow, and is labelled estimated where it is
//! shown.

use crate::expected::{IdlePower, InState, idle_power_in};
use crate::idle::{IdleState, deepest_within};
use crate::machine::MachineFigures;
use headroom_units::{Cores, PerSecond, Seconds};

/// Idle periods of about one length.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Periods {
    /// How many.
    pub count: f64,
    /// The sum of their lengths, core-seconds.
    pub time: Seconds,
    /// How long one of them is.
    pub length: Seconds,
}

/// For each state, in the order of the table, how many cores were in it on average and how often it was entered, where
/// these idle periods happened in `elapsed`. All zero of no time.
pub fn states_of(
    states: &[IdleState],
    periods: impl IntoIterator<Item = Periods>,
    elapsed: Seconds,
) -> Vec<InState> {
    let mut all = vec![InState::default(); states.len()];
    if elapsed <= Seconds::ZERO {
        return all;
    }
    for period in periods {
        let Some(state) = all.get_mut(deepest_within(states, period.length.get())) else {
            continue;
        };
        state.cores += Cores::new(period.time / elapsed);
        state.entries += PerSecond::new(period.count / elapsed.get());
    }
    all
}

/// What idle cores and packages of a machine draw with these idle periods, the energy of entering and leaving the states
/// included ([`idle_power_in`]); at a voltage over that at the highest frequency.
pub fn idle_power_of(
    machine: &MachineFigures,
    periods: impl IntoIterator<Item = Periods>,
    elapsed: Seconds,
    voltage: f64,
) -> IdlePower {
    let states = states_of(&machine.processor.idle_states, periods, elapsed);
    idle_power_in(machine, &states, voltage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn periods(count: f64, length_us: f64) -> Periods {
        Periods {
            count,
            time: Seconds::from_micros(count * length_us),
            length: Seconds::from_micros(length_us),
        }
    }

    #[test]
    fn a_period_is_in_the_deepest_state_that_it_is_long_enough_for() {
        let states = MachineFigures::broadwell(2).processor.idle_states;
        // In two seconds: 1000 of 15 us (C1), 2000 of 50 us (C1E), 1000 of 399 us (C3), 500 of 2 ms (C6).
        let measured = [
            periods(1000.0, 15.0),
            periods(2000.0, 50.0),
            periods(1000.0, 399.0),
            periods(500.0, 2000.0),
        ];
        let found = states_of(&states, measured, Seconds::new(2.0));
        let cores: Vec<f64> = found.iter().map(|state| state.cores.get()).collect();
        let entries: Vec<f64> = found.iter().map(|state| state.entries.get()).collect();
        for (found, expected) in cores.iter().zip([0.0075, 0.05, 0.1995, 0.5]) {
            assert!((found - expected).abs() < 1e-12, "{cores:?}");
        }
        assert_eq!(entries, [500.0, 1000.0, 500.0, 250.0]);
        assert_eq!(
            states_of(&states, measured, Seconds::ZERO),
            vec![InState::default(); 4]
        );
    }

    #[test]
    fn a_period_between_the_residency_and_the_break_even_costs_more_than_it_saves() {
        // REEF, Figure 2: the kernel enters C6 from 400 us on, which pays from 1 ms on.
        let machine = MachineFigures::broadwell(1);
        let second = Seconds::new(1.0);
        let at = |length_us: f64| {
            let of = [periods(1e6 / length_us, length_us)];
            idle_power_of(&machine, of, second, 1.0).cores.get()
        };
        let c1 = machine.processor.idle_states[0].power.get();
        assert!(at(500.0) > c1);
        assert!((at(1000.0) - c1).abs() < 1e-9);
        assert!(at(5000.0) < 0.3 * c1);
    }

    proptest! {
        #[test]
        fn no_time_and_no_period_is_lost(measured in prop::collection::vec((1.0_f64..1e4, 0.1_f64..1e6), 0..50)) {
            let states = MachineFigures::skylake(4).processor.idle_states;
            let all: Vec<Periods> = measured.iter().map(|(count, length)| periods(*count, *length)).collect();
            let found = states_of(&states, all.iter().copied(), Seconds::new(1.0));
            let time: f64 = all.iter().map(|period| period.time.get()).sum();
            let count: f64 = all.iter().map(|period| period.count).sum();
            let cores: f64 = found.iter().map(|state| state.cores.get()).sum();
            let entries: f64 = found.iter().map(|state| state.entries.get()).sum();
            prop_assert!((time - cores).abs() <= 1e-9 * time.max(1.0));
            prop_assert!((count - entries).abs() <= 1e-9 * count.max(1.0));
        }
    }
}
