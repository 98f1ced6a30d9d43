//! Lost telemetry may cost energy, never latency: a law that cannot see must not save.
//!
//! The guardian wraps any law. While a period's telemetry is missing it holds what is in force; when this many
//! periods in a row are missing it puts everything to full, and keeps it there until the law can see again.
//!
//! Failures are quick and idle: a service that answers 500 to everything looks to any law like one that could do with
//! less. So where a few percent of the requests fail, the law may give but not take; where more do, or a few percent do
//! for as many periods in a row as telemetry may be lost, everything goes to full: whatever comes back must find it. It stays there until as
//! many periods in a row are well.
//! The same holds while more requests fail than are answered, whoever broke them off and however few they are.

use crate::decision::{Decision, Reason};
use crate::history::LoadHistory;
use crate::law::Law;
use crate::observation::{Observation, Traffic};
use crate::plant::Plant;
use crate::resize::PowerState;
use headroom_units::{Ratio, Setting};

/// Periods without telemetry after which everything goes to full.
pub const DEFAULT_PATIENCE_PERIODS: u32 = 5;

/// When requests count as failing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FailingLimits {
    /// The share of a period's requests from which on nothing is taken away.
    pub hold: Ratio,
    /// The share from which on everything goes to full at once.
    pub full: Ratio,
    /// Fewer failed requests in a period than this are no share of anything.
    pub fewest: u64,
}

impl FailingLimits {
    /// Hold above 2 %, full from 10 %, from 3 failed requests on.
    pub const DEFAULT: Self = Self {
        hold: Ratio::new(0.02),
        full: Ratio::new(0.1),
        fewest: 3,
    };
}

/// How badly the requests of a period fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Failing {
    No,
    Some,
    Many,
}

const HOLD: &str = "telemetry-lost-hold";
const FULL: &str = "telemetry-lost-full";
const FAILING: &str = "failing-hold";
const FAILING_FULL: &str = "failing-full";

/// A law that goes to full when it cannot see.
pub struct Guardian {
    law: Box<dyn Law>,
    plant: Plant,
    patience: u32,
    limits: FailingLimits,
    lost: u32,
    failing: u32,
    /// Whether everything is at full because requests failed.
    stays_full: bool,
    /// Periods in a row since in which they did not: by chance alone a period of a service that fails 3 % looks well.
    well: u32,
}

impl Guardian {
    /// Wraps `law`; everything goes to full in the `patience`-th period without telemetry, or in which requests
    /// failed (at least the first), by [`FailingLimits::DEFAULT`].
    pub fn new(law: Box<dyn Law>, plant: Plant, patience: u32) -> Self {
        Self {
            law,
            plant,
            patience: patience.max(1),
            limits: FailingLimits::DEFAULT,
            lost: 0,
            failing: 0,
            stays_full: false,
            well: 0,
        }
    }

    /// With other limits on failing requests.
    #[must_use]
    pub fn with_failing(mut self, limits: FailingLimits) -> Self {
        self.set_failing(limits);
        self
    }

    /// Sets the limits on failing requests.
    pub fn set_failing(&mut self, limits: FailingLimits) {
        self.limits = limits;
    }

    fn failing(&self, traffic: &Traffic) -> Failing {
        let share = traffic.failed_share().unwrap_or(Ratio::ZERO);
        let enough = traffic.failed_by_service() >= self.limits.fewest;
        if enough && share >= self.limits.full {
            Failing::Many
        } else if (enough && share > self.limits.hold) || traffic.failures > traffic.completions {
            Failing::Some
        } else {
            Failing::No
        }
    }

    /// Lets the law recall what came in before its first period.
    pub fn recall(&mut self, history: &LoadHistory) {
        self.law.recall(history);
    }

    /// Its own rules, which come in the place of the law's.
    pub const RULES: [&'static str; 4] = [HOLD, FULL, FAILING, FAILING_FULL];

    /// The law inside.
    pub fn law(&self) -> &dyn Law {
        &*self.law
    }

    /// Periods without telemetry up to now, in a row.
    pub const fn lost_periods(&self) -> u32 {
        self.lost
    }

    /// Decides as the law does, or as a guardian must.
    pub fn decide(&mut self, observation: &Observation) -> Decision {
        let kept = observation.in_force;
        let decision = self.decide_on(observation, Some(observation), kept);
        decision.unwrap_or_else(|| Decision::of(kept))
    }

    /// The same for a law that decides on a window of several periods, or, without one, not in this period. The guardian goes by
    /// the present period alone: what is lost or fails does not wait for the law's turn. Without telemetry the law is not asked,
    /// and `kept` stays. `None` where there is nothing to decide.
    pub(crate) fn decide_on(
        &mut self,
        now: &Observation,
        window: Option<&Observation>,
        kept: Setting,
    ) -> Option<Decision> {
        if !self.law.is_informed(now) {
            return Some(self.decide_blind(kept));
        }
        if self.lost >= self.patience {
            self.law.forget();
        }
        self.lost = 0;
        let decision = window.map(|window| self.law.decide(window));
        let failing = now.traffic.as_ref().map_or(Failing::No, |one| self.failing(one));
        let Some(traffic) = now.traffic.as_ref().filter(|_| failing != Failing::No) else {
            self.failing = 0;
            self.well = self.well.saturating_add(1);
            self.stays_full &= self.well < self.patience;
            return match self.stays_full {
                true => {
                    let text = format!(
                        "requests failed until {} periods ago: everything stays at full until {} in a row are well",
                        self.well, self.patience
                    );
                    let numbers = [("well_periods", f64::from(self.well))];
                    Some(self.full_for(decision, Reason::new(FAILING_FULL, text, &numbers)))
                }
                false => decision,
            };
        };
        self.failing = self.failing.saturating_add(1);
        self.well = 0;
        let numbers = [
            ("failures", traffic.failures as f64),
            ("failed_by_client", traffic.failed_by_client as f64),
            ("completions", traffic.completions as f64),
            ("failing_periods", f64::from(self.failing)),
            ("patience_periods", f64::from(self.patience)),
        ];
        let failed = format!(
            "{} requests failed and {} were answered",
            traffic.failures, traffic.completions
        );
        self.stays_full |= self.failing >= self.patience || failing == Failing::Many;
        if self.stays_full {
            let out = now
                .nodes
                .iter()
                .filter(|node| node.state == PowerState::Maintenance);
            let out = match out.count() {
                0 => String::new(),
                out => format!(", and {out} in maintenance could serve"),
            };
            let text = match self.failing {
                1 => format!("{failed}: everything to full{out}"),
                periods => format!("{failed}, failing for {periods} periods now: everything to full{out}"),
            };
            return Some(self.full_for(decision, Reason::new(FAILING_FULL, text, &numbers)));
        }
        decision.map(|decision| {
            if !decision.setting.takes_from(&now.in_force) {
                return decision;
            }
            let text = format!("{failed}: nothing is taken away meanwhile");
            Decision {
                setting: decision.setting.most(now.in_force),
                reasons: vec![Reason::new(FAILING, text, &numbers)],
                ..decision
            }
        })
    }

    /// Whether a decision puts everything to full because too much was lost or failed.
    pub(crate) fn is_full(decision: &Decision) -> bool {
        let full = |reason: &Reason| [FULL, FAILING_FULL].contains(&&*reason.rule);
        decision.reasons.iter().any(full)
    }

    /// Everything at full in the place of a decision, for this reason.
    fn full_for(&self, decision: Option<Decision>, reason: Reason) -> Decision {
        Decision {
            setting: self.full(),
            expected_rate: decision.and_then(|decision| decision.expected_rate),
            reflex: None,
            reasons: vec![reason],
            ..Decision::default()
        }
    }

    /// Everything on; a gateway's levers of the law, which are otherwise left as configured, at what gives the service most.
    fn full(&self) -> Setting {
        let levers = self.law.levers();
        let own = self
            .plant
            .of_cluster()
            .filter(|(lever, _)| levers.contains(lever));
        own.fold(self.plant.full(), |full, (lever, range)| {
            full.with(lever, Some(range.full(lever)))
        })
    }

    fn decide_blind(&mut self, kept: Setting) -> Decision {
        self.lost = self.lost.saturating_add(1);
        (self.failing, self.well) = (0, 0);
        let numbers = [
            ("lost_periods", f64::from(self.lost)),
            ("patience_periods", f64::from(self.patience)),
        ];
        let (setting, reason) = if self.lost < self.patience {
            let text = format!("no telemetry for {} periods: what is in force stays", self.lost);
            (kept, Reason::new(HOLD, text, &numbers))
        } else {
            let text = format!("no telemetry for {} periods: everything to full", self.lost);
            (self.full(), Reason::new(FULL, text, &numbers))
        };
        Decision {
            setting,
            expected_rate: None,
            reflex: None,
            reasons: vec![reason],
            ..Decision::default()
        }
    }
}
