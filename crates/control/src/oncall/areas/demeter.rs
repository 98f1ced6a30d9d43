//! In the style of Demeter: hot cores for latency-sensitive connections, warm ones under DVFS for the rest, cold ones asleep.

use super::{AreaDecision, AreaLaw, CoreArea, Parts, ids};
use crate::decision::Reason;
use crate::observation::Observation;
use crate::parameter::{Bound, OutOfRange, require};
use crate::plant::FrequencyRange;
use headroom_units::{Hertz, PerSecond};

/// By what best-effort throughput exceeds its target before it counts as slack.
const SLACK: f64 = 1.05;

/// What Demeter-style is given.
#[derive(Clone, Debug, PartialEq)]
pub struct DemeterTuning {
    /// Cores of the server, 2 or more.
    pub cores: u32,
    /// The least total throughput of best-effort connections (REEF: 12,500 per second).
    pub best_effort: PerSecond,
    /// The frequencies of warm cores; hot ones have the highest.
    pub frequency: FrequencyRange,
    /// Periods without a violation before a hot core is given back, and with slack before warm cores are slowed.
    pub clean_periods: u32,
}

/// Demeter-style. Derived from its abstract and REEF's Section 5.1 \[D\]: not the authors' algorithm. Latency-sensitive connections
/// violate: hot + 1. n clean periods: hot - 1. Best effort short of its target: warm frequency up, then warm + 1. Slack for n periods: the
/// reverse. Where no core is cold, hot takes one of warm.
#[derive(Clone, Debug)]
pub struct DemeterStyle {
    tuning: DemeterTuning,
    hot: u32,
    warm: u32,
    frequency: Hertz,
    clean: u32,
    slack: u32,
}

impl DemeterStyle {
    /// Begins with one hot core and all others warm, at the highest frequency.
    ///
    /// # Errors
    /// [`OutOfRange`] for fewer than 2 cores or a target that is no throughput.
    pub fn new(tuning: DemeterTuning) -> Result<Self, OutOfRange> {
        require("cores", f64::from(tuning.cores), tuning.cores >= 2, "2 or more")?;
        Bound::Positive.check("best_effort", tuning.best_effort.get())?;
        Ok(Self {
            hot: 1,
            warm: tuning.cores - 1,
            frequency: tuning.frequency.max(),
            clean: 0,
            slack: 0,
            tuning,
        })
    }

    /// Cores that are hot, warm and cold.
    pub const fn zones(&self) -> [u32; 3] {
        [self.hot, self.warm, self.tuning.cores - self.hot - self.warm]
    }

    /// The frequency of the warm ones.
    pub const fn warm_frequency(&self) -> Hertz {
        self.frequency
    }

    fn move_hot(&mut self, violates: bool) -> (&'static str, &'static str) {
        let [_, _, cold] = self.zones();
        if !violates {
            self.clean = self.clean.saturating_add(1);
            if self.clean > self.tuning.clean_periods && self.hot > 1 {
                (self.clean, self.hot) = (0, self.hot - 1);
                return (
                    "demeter-hot-less",
                    "latency SLOs were kept for long: a hot core less",
                );
            }
            return ("demeter-hot-kept", "latency SLOs are kept");
        }
        self.clean = 0;
        if cold > 0 {
            self.hot += 1;
            return (
                "demeter-hot-more",
                "a latency SLO is violated: a cold core is hot",
            );
        }
        if self.warm > 1 {
            (self.hot, self.warm) = (self.hot + 1, self.warm - 1);
            return (
                "demeter-hot-more",
                "a latency SLO is violated: a warm core is hot",
            );
        }
        (
            "demeter-hot-most",
            "a latency SLO is violated, and no core is left to be hot",
        )
    }

    fn move_warm(&mut self, throughput: PerSecond) -> (&'static str, &'static str) {
        let [_, _, cold] = self.zones();
        let (range, target) = (self.tuning.frequency, self.tuning.best_effort);
        if throughput < target {
            self.slack = 0;
            if self.frequency < range.max() {
                self.frequency = (self.frequency + range.step()).min(range.max());
                return (
                    "demeter-warm-faster",
                    "best effort is short of its target: warm cores are faster",
                );
            }
            if cold > 0 {
                self.warm += 1;
                return (
                    "demeter-warm-more",
                    "best effort is short of its target: a cold core is warm",
                );
            }
            return (
                "demeter-warm-most",
                "best effort is short of its target, and no core is cold",
            );
        }
        if throughput < target * SLACK {
            self.slack = 0;
            return ("demeter-warm-kept", "best effort is at its target");
        }
        self.slack = self.slack.saturating_add(1);
        if self.slack <= self.tuning.clean_periods {
            return ("demeter-warm-kept", "best effort is above its target");
        }
        self.slack = 0;
        // The reverse of the way up: a core less first, while the frequency is the highest.
        if self.warm > 1 && throughput * (f64::from(self.warm - 1) / f64::from(self.warm)) > target {
            self.warm -= 1;
            return (
                "demeter-warm-less",
                "best effort has slack for a core: a warm core is cold",
            );
        }
        if self.frequency > range.min() {
            self.frequency = (self.frequency - range.step()).max(range.min());
            return (
                "demeter-warm-slower",
                "best effort has slack: warm cores are slower",
            );
        }
        (
            "demeter-warm-least",
            "best effort has slack, and no less can be warm",
        )
    }
}

impl AreaLaw for DemeterStyle {
    fn name(&self) -> &'static str {
        "demeter-style"
    }

    fn decide(&mut self, observation: &Observation) -> Option<AreaDecision> {
        let parts = Parts::of(observation)?;
        let throughput = parts.best_effort_throughput();
        let hot = self.move_hot(parts.violates());
        let warm = self.move_warm(throughput);
        let [hot_cores, warm_cores, cold_cores] = self.zones();
        let numbers = [
            ("hot_cores", f64::from(hot_cores)),
            ("warm_cores", f64::from(warm_cores)),
            ("cold_cores", f64::from(cold_cores)),
            ("warm_ghz", self.frequency.get() / 1e9),
            ("best_effort_per_s", throughput.get()),
        ];
        let reason = |(rule, text): (&'static str, &str)| Reason::new(rule, text.to_owned(), &numbers);
        let area = |name: &str, cores, connections, frequency| CoreArea {
            name: name.to_owned(),
            cores,
            connections,
            workers: None,
            frequency,
        };
        Some(AreaDecision {
            areas: vec![
                area("hot", hot_cores, ids(&parts.sensitive), None),
                area("warm", warm_cores, ids(&parts.best_effort), Some(self.frequency)),
            ],
            reasons: vec![reason(hot), reason(warm)],
            ..AreaDecision::default()
        })
    }
}
