//! Idle states of a core.

use crate::machine::{FigureError, check};
use headroom_units::{Seconds, Watts};
use serde::{Deserialize, Serialize};

/// An idle state, as cpuidle lists it (Documentation/admin-guide/pm/cpuidle.rst), with what it draws.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdleState {
    /// Its name, as in `/sys/devices/system/cpu/cpu0/cpuidle/stateN/name`.
    pub name: String,
    /// A core in it.
    pub power: Watts,
    /// From a wake-up to the first instruction.
    pub exit_latency: Seconds,
    /// The governor chooses it for idle periods that it believes to be at least so long.
    pub target_residency: Seconds,
    /// From so long on a period in it costs less than in the shallowest state: what entering and leaving cost, as time.
    pub break_even: Seconds,
}

impl IdleState {
    /// A state; times in microseconds, as the kernel's tables have them.
    pub fn new(name: &str, power_w: f64, exit_us: f64, residency_us: f64, break_even_us: f64) -> Self {
        Self {
            name: name.to_owned(),
            power: Watts::new(power_w),
            exit_latency: Seconds::from_micros(exit_us),
            target_residency: Seconds::from_micros(residency_us),
            break_even: Seconds::from_micros(break_even_us),
        }
    }

    /// What entering and leaving costs beside the shallowest state, joules: `T_be (P_shallowest - P)`. A period of
    /// length t then costs `transition + P t` (REEF, Figure 2: under the break-even dearer than to stay up).
    pub fn transition_j(&self, shallowest_w: f64) -> f64 {
        self.break_even.get() * (shallowest_w - self.power.get()).max(0.0)
    }

    /// Mean power of an idle period of this length spent in the state.
    pub fn mean_power(&self, length: Seconds, shallowest: Watts) -> Watts {
        Watts::new(self.power.get() + self.transition_j(shallowest.get()) / length.get())
    }
}

/// Checks a table: from the shallowest to the deepest.
///
/// # Errors
/// [`FigureError`] with the key of the first figure that cannot be.
pub(crate) fn check_states(table: &str, states: &[IdleState]) -> Result<(), FigureError> {
    check(
        table,
        states.len() as f64,
        (1..=16).contains(&states.len()),
        "give 1 to 16 idle states, the shallowest first",
    )?;
    for (index, state) in states.iter().enumerate() {
        let key = |field: &str| format!("{table}.{index}.{field}");
        let before = index.checked_sub(1).map(|before| &states[before]);
        let power = state.power.get();
        check(
            key("power"),
            power,
            power >= 0.0 && before.is_none_or(|before| power <= before.power.get()),
            before.map_or_else(
                || "give watts".to_owned(),
                |before| {
                    format!(
                        "give watts, at most the {} W of the state before: one that draws more saves nothing by sleeping",
                        before.power.get()
                    )
                },
            ),
        )?;
        for (field, time, least) in [
            (
                "exit_latency",
                state.exit_latency,
                before.map(|before| before.exit_latency),
            ),
            (
                "target_residency",
                state.target_residency,
                before.map(|before| before.target_residency),
            ),
            (
                "break_even",
                state.break_even,
                before.map(|before| before.break_even),
            ),
        ] {
            let least = least.map_or(0.0, Seconds::get);
            check(
                key(field),
                time.get(),
                (least..=1.0).contains(&time.get()),
                "give seconds, at least those of the state before and at most 1",
            )?;
        }
    }
    Ok(())
}

/// The deepest state that a governor chooses for an idle period that it believes to be so long, by index.
pub fn deepest_within(states: &[IdleState], predicted_s: f64) -> usize {
    states
        .iter()
        .rposition(|state| state.target_residency.get() <= predicted_s)
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MachineFigures;

    #[test]
    fn reefs_figure_2_is_what_a_period_in_c6_costs() {
        // E5-2650 v4: under the break-even of 1 ms a period in C6 costs more than C1, beyond it less, in the end C6.
        let machine = MachineFigures::broadwell(12);
        let (c1, c6) = (
            &machine.processor.idle_states[0],
            machine.processor.idle_states.last().unwrap(),
        );
        let at = |micros: f64| c6.mean_power(Seconds::from_micros(micros), c1.power).get();
        assert!(at(300.0) > 2.0 * c1.power.get());
        assert!((at(1000.0) - c1.power.get()).abs() < 1e-9);
        assert!(at(5000.0) < 0.3 * c1.power.get());
        assert!(at(1e9) - c6.power.get() < 1e-5);
        // The kernel enters it from 400 us on, before it pays.
        assert_eq!(deepest_within(&machine.processor.idle_states, 399e-6), 2);
        assert_eq!(deepest_within(&machine.processor.idle_states, 400e-6), 3);
    }

    #[test]
    fn a_deeper_state_that_draws_more_is_refused_with_its_key() {
        let states = [
            IdleState::new("C1", 1.0, 2.0, 2.0, 2.0),
            IdleState::new("C6", 1.5, 100.0, 400.0, 400.0),
        ];
        let error = check_states("idle_states", &states).unwrap_err().to_string();
        assert!(
            error.contains("idle_states.1.power is 1.5: give watts, at most the 1 W")
                && error.contains("saves nothing"),
            "{error}"
        );
        assert!(check_states("idle_states", &[]).is_err());
        let backwards = [
            IdleState::new("C1", 1.0, 2.0, 2.0, 2.0),
            IdleState::new("C6", 0.5, 1.0, 400.0, 400.0),
        ];
        assert!(
            check_states("idle_states", &backwards)
                .unwrap_err()
                .to_string()
                .contains("exit_latency")
        );
    }
}
