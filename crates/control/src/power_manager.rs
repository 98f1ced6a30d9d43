//! The power managers of the SLO-Power paper, which know no latency: a fixed cap by SLO level (Figure 8), and the
//! powersave governor (Figure 1).

use crate::decision::{Allocation, Decision, Reason};
use crate::law::Law;
use crate::observation::Observation;
use crate::parameter::{Bound, OutOfRange, Parameters, refused, require};
use crate::plant::{Plant, Slo};
use crate::registry::LawError;
use headroom_units::{Hertz, Lever, Watts};
use serde::{Deserialize, Serialize};

/// A cap for all services whose target is at least this.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// The target, in milliseconds.
    pub target_ms: f64,
    /// The cap, as a share of what all cores can need.
    pub cap_share: f64,
}

/// The parameters. The keys are those of the configuration file's `[law.power-manager]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PowerManagerTuning {
    /// The levels, from the tightest target to the loosest. The targets are the paper's strict, medium and relaxed (150,
    /// 200 and 250 ms). It says that each had a cap of its own and does not print them: 0.72, 0.70 and 0.68 (199, 193
    /// and 188 W of its 276 W) are ours. They lie below the 203 W at which its power component was late in 5 % of the
    /// periods, since this manager was late at every level, and above the 180 W that its authors let Pegasus go down to.
    pub levels: Vec<Level>,
    /// A cap in watts instead, whatever the target.
    pub cap_w: Option<f64>,
}

impl Default for PowerManagerTuning {
    fn default() -> Self {
        let level = |(target_ms, cap_share)| Level { target_ms, cap_share };
        Self {
            levels: [(150.0, 0.72), (200.0, 0.70), (250.0, 0.68)].map(level).to_vec(),
            cap_w: None,
        }
    }
}

/// The most levels.
const MAX_LEVELS: usize = 32;

impl Parameters for PowerManagerTuning {
    fn outside(&self) -> Vec<OutOfRange> {
        let count = self.levels.len();
        let range = format!("a list of 1 to {MAX_LEVELS} levels");
        let mut checks = vec![
            Bound::Positive.check("cap_w", self.cap_w.unwrap_or(1.0)),
            require("levels", count as f64, (1..=MAX_LEVELS).contains(&count), range),
        ];
        let mut before_ms = 0.0;
        for level in &self.levels {
            let fits = level.target_ms > before_ms && level.target_ms.is_finite();
            let range = format!("above the {before_ms} before it: from the tightest target to the loosest");
            checks.push(require("levels.target_ms", level.target_ms, fits, range));
            checks.push(Bound::Share.check("levels.cap_share", level.cap_share));
            // What is wrong is no measure of the next.
            if fits {
                before_ms = level.target_ms;
            }
        }
        refused(checks)
    }
}

/// All cores under one cap that never changes: that of the loosest level whose target is not above the service's, or of
/// the tightest level where every one is.
#[derive(Clone, Debug)]
pub struct PowerManager {
    plant: Plant,
    cap: Watts,
    /// The level's target, where the cap is a level's.
    level_ms: Option<f64>,
}

impl PowerManager {
    /// The law for an SLO and a machine.
    ///
    /// # Errors
    /// A parameter outside its range, or a cap that the machine cannot be given.
    pub fn new(slo: Slo, plant: Plant, tuning: &PowerManagerTuning) -> Result<Self, OutOfRange> {
        tuning.check()?;
        let limit = plant.full_allocation().cap;
        let target_ms = slo.target().as_millis();
        // A hair above the target is the target.
        let fits = |level: &&Level| level.target_ms <= target_ms * (1.0 + 1e-9);
        // The check has seen to it that there is a first.
        let level = tuning.levels.iter().rfind(fits).unwrap_or(&tuning.levels[0]);
        let lowest = plant.power().lowest_cap;
        let (key, value, cap) = match tuning.cap_w {
            Some(cap_w) => ("cap_w", cap_w, Watts::new(cap_w)),
            // A share says how tight the cap is to be; no machine takes one under its lowest.
            None => (
                "levels.cap_share",
                level.cap_share,
                (limit * level.cap_share).max(lowest),
            ),
        };
        if cap < lowest || cap > limit {
            let range = format!(
                "a cap between {:.2} W, the lowest that the machine accepts, and {:.2} W, which all its cores can need",
                lowest.get(),
                limit.get()
            );
            return Err(OutOfRange::new(key, value, range));
        }
        Ok(Self {
            plant,
            cap,
            level_ms: tuning.cap_w.is_none().then_some(level.target_ms),
        })
    }

    /// Its one cap.
    pub const fn cap(&self) -> Watts {
        self.cap
    }
}

impl Law for PowerManager {
    fn name(&self) -> &'static str {
        "power-manager"
    }

    fn levers(&self) -> &'static [Lever] {
        &[Lever::Cap]
    }

    fn decide(&mut self, _seen: &Observation) -> Decision {
        let cap = self.cap.get();
        let text = match self.level_ms {
            Some(target_ms) => {
                format!("the cap of the level for {target_ms} ms: {cap:.2} W, whatever happens")
            }
            None => format!("the cap is {cap:.2} W, whatever happens"),
        };
        Decision {
            reflex: None,
            setting: Allocation {
                cap: self.cap,
                ..self.plant.full_allocation()
            }
            .into(),
            expected_rate: None,
            reasons: vec![Reason::new("fixed-cap", text, &[("cap_w", cap)])],
            ..Decision::default()
        }
    }

    fn forget(&mut self) {}
}

/// Why the powersave governor cannot be had.
const NO_FREQUENCY: &str = "powersave runs all cores at their lowest frequency, and this machine's frequency cannot be \
                            limited: give it one (cpufreq with a settable policy on a real machine, an emulated or \
                            simulated frequency range otherwise), or choose power-manager, which caps power instead";

/// All cores at the lowest frequency, always, and no cap that limits: what the kernel's powersave governor does.
#[derive(Clone, Debug)]
pub struct Powersave {
    plant: Plant,
    lowest: Hertz,
}

impl Powersave {
    /// The law for a machine.
    ///
    /// # Errors
    /// Where the machine's frequency cannot be limited.
    pub fn new(plant: Plant) -> Result<Self, LawError> {
        let none = || LawError::new("law.name", NO_FREQUENCY);
        let range = plant.frequency().ok_or_else(none)?;
        Ok(Self {
            plant,
            lowest: range.min(),
        })
    }
}

impl Law for Powersave {
    fn name(&self) -> &'static str {
        "powersave"
    }

    fn levers(&self) -> &'static [Lever] {
        &[Lever::Frequency]
    }

    fn decide(&mut self, _seen: &Observation) -> Decision {
        let full = self.plant.full_allocation();
        let (cores, ghz) = (full.cores.get(), self.lowest.get() / 1e9);
        let text = format!("all {cores} cores at their lowest frequency, {ghz:.2} GHz, whatever happens");
        let numbers = [("cores", cores), ("frequency_hz", self.lowest.get())];
        Decision {
            reflex: None,
            setting: Allocation {
                frequency: Some(self.lowest),
                ..full
            }
            .into(),
            expected_rate: None,
            reasons: vec![Reason::new("lowest-frequency", text, &numbers)],
            ..Decision::default()
        }
    }

    fn forget(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::slo;
    use crate::plant::FrequencyRange;
    use headroom_units::{Cores, Seconds};

    fn plant() -> Plant {
        crate::common::plant([6.0, 48.0, 1.0], [138.72, 2.86, 90.0])
    }

    fn any_period() -> Observation {
        Observation {
            length: Seconds::new(1.0),
            in_force: plant().full(),
            ..Observation::default()
        }
    }

    #[test]
    fn the_level_is_the_loosest_that_the_target_allows() {
        // 276 W in all.
        for (target_ms, cap_w) in [
            (100.0, 198.72),
            (150.0, 198.72),
            (199.0, 198.72),
            (200.0, 193.2),
            (250.0, 187.68),
            (900.0, 187.68),
        ] {
            let mut law = PowerManager::new(slo(target_ms), plant(), &PowerManagerTuning::default()).unwrap();
            let setting = law.decide(&any_period()).setting;
            assert!(
                (setting.cap().unwrap().get() - cap_w).abs() < 1e-9,
                "{target_ms} ms: {setting:?}"
            );
            assert_eq!(setting.cores().unwrap(), Cores::new(48.0));
            assert_eq!(setting.frequency(), None);
        }
    }

    #[test]
    fn a_cap_in_watts_stands_for_every_target() {
        let tuning = PowerManagerTuning {
            cap_w: Some(150.0),
            ..PowerManagerTuning::default()
        };
        let mut law = PowerManager::new(slo(150.0), plant(), &tuning).unwrap();
        assert_eq!(
            law.decide(&any_period()).setting.cap().unwrap(),
            Watts::new(150.0)
        );
        for cap_w in [80.0, 300.0] {
            let tuning = PowerManagerTuning {
                cap_w: Some(cap_w),
                ..tuning.clone()
            };
            let error = PowerManager::new(slo(150.0), plant(), &tuning)
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with(&format!("cap_w is {cap_w}: it must be a cap between 90.00 W")),
                "{error}"
            );
        }
    }

    #[test]
    fn levels_that_cannot_be_are_named() {
        let with = |levels: &[(f64, f64)]| {
            let level = |&(target_ms, cap_share): &_| Level { target_ms, cap_share };
            let tuning = PowerManagerTuning {
                levels: levels.iter().map(level).collect(),
                cap_w: None,
            };
            tuning.check().unwrap_err().to_string()
        };
        assert!(with(&[]).starts_with("levels is 0"));
        let message = with(&[(200.0, 0.5), (150.0, 0.6)]);
        assert!(
            message.starts_with("levels.target_ms is 150: it must be above the 200 before it"),
            "{message}"
        );
        assert!(with(&[(200.0, 1.5)]).starts_with("levels.cap_share is 1.5"));
    }

    #[test]
    fn powersave_is_all_cores_at_the_lowest_frequency() {
        let ghz = |ghz: f64| Hertz::new(ghz * 1e9);
        let range = FrequencyRange::new(ghz(0.8), ghz(2.1), ghz(0.1)).unwrap();
        let mut law = Powersave::new(plant().with_frequency(range)).unwrap();
        let decision = law.decide(&any_period());
        assert_eq!(decision.setting.frequency(), Some(ghz(0.8)));
        assert_eq!(decision.setting.cores().unwrap(), Cores::new(48.0));
        assert_eq!(decision.setting.cap().unwrap(), plant().full().cap().unwrap());
        assert_eq!(decision.reasons[0].rule, "lowest-frequency");
    }

    #[test]
    fn powersave_without_a_frequency_names_the_remedy() {
        let error = Powersave::new(plant()).unwrap_err().to_string();
        assert!(
            error.contains("cpufreq") && error.contains("power-manager"),
            "{error}"
        );
    }
}
