//! Sleep as one more lever, where the server is on call: the joint law moves C, N and D as the law [`OnCall`] does, and its other levers as
//! without it.

use super::Joint;
use crate::decision::{Decision, Reason};
use crate::law::Law;
use crate::observation::Observation;
use crate::oncall::law::{OnCall, OncallTuning};
use crate::registry::LawError;
use headroom_physics::MachineFigures;
use headroom_units::{Lever, Setting};

/// The machine's levers, of which more is faster: while settings of the server are compared none goes down.
const OF_MACHINE: [Lever; 4] = [Lever::Cores, Lever::Frequency, Lever::Cap, Lever::Servers];
/// The rule of a period in which one was to go down.
const HELD: &str = "joint-held";

/// The levers that are moved so.
const OF_SLEEP: [Lever; 3] = [Lever::Concurrency, Lever::QueryBatch, Lever::RoundDelay];

impl Joint {
    /// The same law, which moves C, N and D too where the plant has all three.
    ///
    /// # Errors
    /// A parameter outside its range.
    pub fn with_sleep(
        self,
        machine: Option<&MachineFigures>,
        tuning: OncallTuning,
    ) -> Result<Self, LawError> {
        let is_on_call = OF_SLEEP.iter().all(|lever| self.plant.range(*lever).is_some());
        let oncall = match is_on_call {
            true => {
                let law = OnCall::new(self.slo, self.plant, machine, tuning);
                Some(Box::new(law.map_err(LawError::of("on-call"))?))
            }
            false => None,
        };
        Ok(Self { oncall, ..self })
    }

    /// Adds what sleeps to what was decided of the other levers.
    pub(super) fn add_sleep(&mut self, mut decision: Decision, observation: &Observation) -> Decision {
        let Some(oncall) = &mut self.oncall else {
            return decision;
        };
        let sleep = oncall.decide(observation);
        for reason in &mut decision.reasons {
            // What is said of all levers is said of all others.
            if reason.levers.is_empty() {
                reason.levers.clone_from(&self.levers);
            }
            reason.levers.retain(|lever| !OF_SLEEP.contains(lever));
        }
        // On a machine that is left as it is there is nothing else.
        decision.reasons.retain(|reason| !reason.levers.is_empty());
        let is_comparing = oncall.is_comparing();
        for lever in OF_SLEEP {
            decision.setting = decision.setting.with(lever, sleep.setting.get(lever));
        }
        if is_comparing {
            hold(&mut decision, &observation.in_force);
        }
        let reasons = sleep.reasons.into_iter();
        decision
            .reasons
            .extend(reasons.map(|reason| match reason.levers.is_empty() {
                true => reason.of(&OF_SLEEP),
                false => reason,
            }));
        decision.grants = sleep.grants;
        decision.comparisons = sleep.comparisons;
        decision.areas = sleep.areas;
        decision
    }
}

/// Keeps the machine's levers where they are unless they are to go up: what a comparison is held against must not change in its midst, but a
/// server that needs more has it. (The law of the server then begins the round of turns anew.)
fn hold(decision: &mut Decision, in_force: &Setting) {
    let mut held = Vec::new();
    for lever in OF_MACHINE {
        // Without a value nothing is limited.
        let (is, wanted) = (in_force.get(lever), decision.setting.get(lever));
        let is_less = match (is, wanted) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(is), Some(wanted)) => wanted < is,
        };
        if is_less {
            decision.setting = decision.setting.with(lever, is);
            held.push(lever);
        }
    }
    if !held.is_empty() {
        let text = "held while settings of the server on call are compared: less was wanted".to_owned();
        // Before the reasons for what was wanted: of each lever the first says why it is where it is.
        decision.reasons.insert(0, Reason::new(HELD, text, &[]).of(&held));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JointTuning;
    use crate::observation::OncallObservation;
    use crate::observation::{Latency, Traffic};
    use crate::plant::{CoreRange, FrequencyRange, Plant, PowerEnvelope, Slo};
    use headroom_units::{Cores, Hertz, LeverRange, PerSecond, Ratio, Reading, Seconds, Source, Watts};

    fn joint(levers: &[Lever]) -> Joint {
        let slo = Slo::new(Ratio::new(0.99), Seconds::new(0.1)).unwrap();
        let mut plant = Plant::left_alone(Cores::new(2.0));
        for lever in levers {
            plant = plant.with_range(*lever, LeverRange::between(0.0, 64.0)).unwrap();
        }
        let machine = MachineFigures::skylake(2);
        Joint::new(
            slo,
            plant,
            std::slice::from_ref(&machine),
            PerSecond::new(100.0),
            JointTuning::default(),
        )
        .unwrap()
        .with_sleep(Some(&machine), OncallTuning::default())
        .unwrap()
    }

    fn observation() -> Observation {
        Observation {
            length: Seconds::new(1.0),
            traffic: Some(Traffic::default()),
            oncall: Some(OncallObservation {
                connections: 10,
                cores: Some(2),
                long_idle: Some(Ratio::new(0.2)),
                ..OncallObservation::default()
            }),
            ..Observation::default()
        }
    }

    #[test]
    fn where_a_server_is_on_call_its_levers_are_moved_with_their_own_reasons() {
        let mut law = joint(&OF_SLEEP);
        let decision = law.decide(&observation());
        assert_eq!(decision.setting.get(Lever::Concurrency), Some(4.0));
        assert!(decision.reason_of(Lever::RoundDelay).is_some());
        assert!(decision.reasons.iter().all(|reason| !reason.levers.is_empty()));
    }

    #[test]
    fn while_settings_are_compared_no_lever_of_the_machine_goes_down() {
        let setting = |cores: f64, ghz: Option<f64>| {
            Setting::from([(Lever::Cores, cores), (Lever::RoundDelay, 1e-3)])
                .with(Lever::Frequency, ghz.map(|ghz| ghz * 1e9))
        };
        let held = |in_force: Setting, wanted: Setting| {
            let mut decision = Decision::of(wanted);
            hold(&mut decision, &in_force);
            (
                decision.setting,
                decision.reasons.first().map(|reason| reason.levers.clone()),
            )
        };
        // Fewer cores and a limit where there was none are not had; more of either is.
        let (now, less) = (setting(4.0, None), setting(2.0, Some(2.0)));
        assert_eq!(held(now, less), (now, Some(vec![Lever::Cores, Lever::Frequency])));
        let (now, more) = (setting(2.0, Some(2.0)), setting(4.0, None));
        assert_eq!(held(now, more), (more, None));
        let (now, mixed) = (setting(2.0, Some(3.0)), setting(4.0, Some(2.0)));
        assert_eq!(
            held(now, mixed),
            (setting(4.0, Some(3.0)), Some(vec![Lever::Frequency]))
        );
        // The delay is the comparison's own.
        let (now, longer) = (
            setting(2.0, None),
            setting(2.0, None).with(Lever::RoundDelay, Some(0.0)),
        );
        assert_eq!(held(now, longer), (longer, None));
    }

    #[test]
    fn the_frequency_rests_until_the_delays_are_compared() {
        let (mut law, mut in_force) = quiet();
        let (mut held, mut lower_after) = (0, 0);
        let mut is_compared = false;
        for period in 0..600 {
            let decision = law.decide(&serves(period, in_force, 4_000));
            let compares = decision
                .reasons
                .iter()
                .any(|reason| reason.rule == "oncall-compare");
            is_compared |= compares;
            held += u32::from(decision.reasons.iter().any(|reason| reason.rule == HELD));
            let limit = decision.setting.get(Lever::Frequency);
            assert!(
                !compares || limit.is_none(),
                "period {period}: {:?}",
                decision.reasons
            );
            lower_after += u32::from(is_compared && !compares && limit.is_some());
            in_force = decision.setting;
        }
        assert!(
            is_compared && held > 10 && lower_after > 100,
            "{held} {lower_after}"
        );
    }

    /// A comparison that a quiet load leaves without queries does not hold the machine for ever.
    #[test]
    fn the_machine_is_released_where_the_load_becomes_quiet_in_the_midst_of_a_comparison() {
        let (mut law, mut in_force) = quiet();
        let mut period = 0;
        let mut held = 0;
        while held < 5 {
            let decision = law.decide(&serves(period, in_force, 4_000));
            held += u32::from(decision.reasons.iter().any(|reason| reason.rule == HELD));
            (in_force, period) = (decision.setting, period + 1);
            assert!(period < 600);
        }
        let last_held = (period..period + 60)
            .filter(|period| {
                let decision = law.decide(&serves(*period, in_force, 3));
                in_force = decision.setting;
                decision.reasons.iter().any(|reason| reason.rule == HELD)
            })
            .last();
        assert!(last_held.is_some_and(|last| last < period + 10), "{last_held:?}");
        assert!(in_force.get(Lever::Frequency).is_some(), "{in_force}");
    }

    /// A quiet server whose frequency may go down, and a comparison of delays that begins before the law would have it go down.
    fn quiet() -> (Joint, Setting) {
        let slo = Slo::new(Ratio::new(0.99), Seconds::new(0.1)).unwrap();
        let ghz = |ghz: f64| Hertz::new(ghz * 1e9);
        let cores = CoreRange::new(Cores::new(16.0), Cores::new(16.0), Cores::new(1.0)).unwrap();
        let power = PowerEnvelope {
            base: Watts::new(10.0),
            per_core: Watts::new(4.0),
            lowest_cap: Watts::new(14.0),
        };
        let mut plant = Plant::new(cores, power)
            .unwrap()
            .with_frequency(FrequencyRange::new(ghz(0.8), ghz(2.2), ghz(0.1)).unwrap());
        for lever in OF_SLEEP {
            plant = plant.with_range(lever, LeverRange::between(0.0, 64.0)).unwrap();
        }
        let machine = MachineFigures::skylake(16);
        let tuning = OncallTuning {
            break_even_ms: Some(1.0),
            ..OncallTuning::default()
        };
        let machines = std::slice::from_ref(&machine);
        let law = Joint::new(
            slo,
            plant,
            machines,
            PerSecond::new(1_000.0),
            JointTuning::default(),
        )
        .unwrap()
        .with_sleep(Some(&machine), tuning)
        .unwrap();
        (law, plant.full())
    }

    /// A period of 4,000 requests, of which so many are queries of connections that can be on call, the slower the lower the frequency and the longer the delay.
    fn serves(period: u64, in_force: Setting, queries: u64) -> Observation {
        let at_slo = Seconds::from_millis(3.0 + in_force.get(Lever::RoundDelay).unwrap_or(0.0) * 1e3);
        let pace = in_force.get(Lever::Frequency).map_or(1.0, |hertz| hertz / 2.2e9);
        Observation {
            period,
            at: Seconds::new(1.0 + period as f64),
            in_force,
            power: Some(Reading::new(
                Watts::new(60.0 + 60.0 * pace * pace),
                Source::Estimated,
            )),
            utilisation: Some(Ratio::new(0.25 / pace)),
            cpu_time: Some(Seconds::new(4.0 / pace)),
            traffic: Some(Traffic {
                arrivals: 4_000,
                completions: 4_000,
                latency: Some(Latency {
                    at_slo,
                    missed: false,
                    distribution: None,
                }),
                ..Traffic::default()
            }),
            oncall: Some(OncallObservation {
                queries,
                connections: 640,
                waiting_least: Some(0),
                ..observation().oncall.unwrap()
            }),
            ..observation()
        }
    }

    #[test]
    fn a_server_that_lacks_a_lever_of_them_is_left_alone() {
        let mut law = joint(&OF_SLEEP[..2]);
        let decision = law.decide(&observation());
        assert_eq!(decision.setting.only(&OF_SLEEP), Setting::default());
    }
}
