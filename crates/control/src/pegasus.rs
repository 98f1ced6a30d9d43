//! Pegasus (Lo et al., "Towards Energy Proportionality for Large-Scale Latency-Critical Workloads", ISCA 2014): one
//! power cap for all servers, moved by a table of thresholds on latency. All cores stay on, at any frequency.
//!
//! L is the target, X the average latency, Y the instantaneous one; the first row that matches decides. Percentages are
//! of the cap in force, which is clipped to what the machine accepts and can need.
//!
//! | rule | as published | as the SLO-Power authors ran it |
//! |---|---|---|
//! | `average-late` | X > L, X over the last 30 s: maximum, then hold 5 min | X > L, X since the last hold, looked at from 30 s on: maximum, then hold 30 s |
//! | `far-over` | Y > 1.35 L: maximum | the same |
//! | `over` | Y > L: +7 % | the same |
//! | `near` | Y ≥ 0.85 L: keep | the same |
//! | `far-under` | Y < 0.60 L: −3 % | never: it is tested after the next row, which is true then |
//! | `under` | Y < 0.85 L: −1 % | the same, also for Y < 0.60 L |
//! | looks | every period | every 2 s |
//! | lowest cap | the machine's | 30 W of 46 W a socket: 65 % of the limit |
//!
//! Y is the SLO's percentile of one interval; over several periods, their mean weighted by the requests answered. X is
//! the mean of the Ys, each period counting alike. A period in which nothing was answered and nothing waits has no
//! latency: it changes nothing (`idle`), as in the authors' code; the publication does not speak of it.

use crate::decision::{Allocation, Decision, Reason};
use crate::law::Law;
use crate::observation::Observation;
use crate::parameter::{Bound, OutOfRange, Parameters, refused, require};
use crate::plant::{Plant, Slo};
use headroom_units::{Lever, Seconds, Watts};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Whose Pegasus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PegasusVariant {
    /// As published in 2014.
    Published,
    /// As the SLO-Power authors ran it for their Figure 8.
    AsRun,
}

/// The parameters. What is absent differs between the two variants, and has the variant's own value. The keys are those
/// of the configuration file's `[law.pegasus]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PegasusTuning {
    /// Seconds between two looks at Y. Published: every period; as run: 2.
    pub interval_s: Option<f64>,
    /// Seconds that X is the average of; as run, seconds after a hold before it is looked at. 30.
    pub average_s: f64,
    /// Seconds at the maximum after X exceeded the target. Published: 300; as run: 30.
    pub hold_s: Option<f64>,
    /// Y above this multiple of the target: maximum. 1.35.
    pub far_over: f64,
    /// Y below this share of the target: the small step down. 0.85.
    pub under: f64,
    /// Y below this share of the target: the large step down. 0.60.
    pub far_under: f64,
    /// The step up, as a share of the cap. 0.07.
    pub raise: f64,
    /// The small step down. 0.01.
    pub lower: f64,
    /// The large step down. 0.03.
    pub lower_far: f64,
    /// The lowest cap, as a share of the limit of all cores. Published: what the machine accepts; as run: 30/46.
    pub lowest_cap_share: Option<f64>,
}

impl Default for PegasusTuning {
    fn default() -> Self {
        Self {
            interval_s: None,
            average_s: 30.0,
            hold_s: None,
            far_over: 1.35,
            under: 0.85,
            far_under: 0.60,
            raise: 0.07,
            lower: 0.01,
            lower_far: 0.03,
            lowest_cap_share: None,
        }
    }
}

/// The longest time that X is the average of: with the shortest period it bounds the window.
const MAX_AVERAGE_S: f64 = 3_600.0;

/// The most periods that X is the average of, however short they are.
const MAX_SAMPLES: usize = 36_000;

impl Parameters for PegasusTuning {
    fn outside(&self) -> Vec<OutOfRange> {
        let is_far_over = self.far_over >= 1.0 && self.far_over.is_finite();
        let is_far_under = self.far_under >= 0.0 && self.far_under <= self.under;
        let under = format!("between 0 and under, {}", self.under);
        refused([
            Bound::Seconds(0.0, 3_600.0).check("interval_s", self.interval_s.unwrap_or(0.0)),
            Bound::Seconds(1.0, MAX_AVERAGE_S).check("average_s", self.average_s),
            Bound::Seconds(0.0, 86_400.0).check("hold_s", self.hold_s.unwrap_or(0.0)),
            require("far_over", self.far_over, is_far_over, "1 or more"),
            Bound::Share.check("under", self.under),
            require("far_under", self.far_under, is_far_under, under),
            Bound::Positive.check("raise", self.raise),
            Bound::Share.check("lower", self.lower),
            Bound::Share.check("lower_far", self.lower_far),
            Bound::Share.check("lowest_cap_share", self.lowest_cap_share.unwrap_or(1.0)),
        ])
    }
}

/// The law.
#[derive(Clone, Debug)]
pub struct Pegasus {
    target: Seconds,
    plant: Plant,
    variant: PegasusVariant,
    tuning: PegasusTuning,
    interval_s: f64,
    hold_s: f64,
    lowest: Watts,
    average: Average,
    /// Seconds seen since the last look at Y, and in it: latency times requests, and requests.
    since_look_s: f64,
    weighted: (f64, f64),
    /// Seconds of the hold that are left.
    hold_left_s: f64,
}

/// X.
#[derive(Clone, Debug)]
enum Average {
    /// Over a sliding window: length and latency of each period, and the length of all.
    Sliding(VecDeque<(f64, Option<f64>)>, f64),
    /// Since the last hold: seconds, sum of the latencies, number.
    SinceHold(f64, f64, f64),
}

impl Average {
    fn new(variant: PegasusVariant) -> Self {
        match variant {
            PegasusVariant::Published => Self::Sliding(VecDeque::new(), 0.0),
            PegasusVariant::AsRun => Self::SinceHold(0.0, 0.0, 0.0),
        }
    }

    fn push(&mut self, length_s: f64, latency_s: Option<f64>, window_s: f64) {
        match self {
            Self::Sliding(periods, total_s) => {
                periods.push_back((length_s, latency_s));
                *total_s += length_s;
                // The oldest goes as soon as the others cover the window by themselves.
                while let Some((oldest_s, _)) = periods.front()
                    && (*total_s - oldest_s >= window_s - 1e-9 || periods.len() > MAX_SAMPLES)
                {
                    *total_s -= oldest_s;
                    periods.pop_front();
                }
            }
            Self::SinceHold(seconds, sum, count) => {
                *seconds += length_s;
                if let Some(latency_s) = latency_s {
                    *sum += latency_s;
                    *count += 1.0;
                }
            }
        }
    }

    /// X, once it covers the window.
    fn value(&self, window_s: f64) -> Option<f64> {
        match self {
            Self::Sliding(periods, total_s) => {
                let with_latency = || periods.iter().filter_map(|(_, latency)| *latency);
                let count = with_latency().count();
                (*total_s >= window_s - 1e-9 && count > 0).then(|| with_latency().sum::<f64>() / count as f64)
            }
            Self::SinceHold(seconds, sum, count) => {
                (*seconds >= window_s - 1e-9 && *count > 0.0).then(|| sum / count)
            }
        }
    }

    fn clear(&mut self) {
        match self {
            Self::Sliding(periods, total_s) => {
                periods.clear();
                *total_s = 0.0;
            }
            Self::SinceHold(seconds, sum, count) => (*seconds, *sum, *count) = (0.0, 0.0, 0.0),
        }
    }
}

impl Pegasus {
    /// The law for an SLO and a machine.
    ///
    /// # Errors
    /// A parameter outside its range.
    pub fn new(
        slo: Slo,
        plant: Plant,
        variant: PegasusVariant,
        tuning: PegasusTuning,
    ) -> Result<Self, OutOfRange> {
        tuning.check()?;
        let limit = plant.full_allocation().cap;
        let (interval_s, hold_s, share) = match variant {
            PegasusVariant::Published => (0.0, 300.0, None),
            PegasusVariant::AsRun => (2.0, 30.0, Some(30.0 / 46.0)),
        };
        let lowest = tuning
            .lowest_cap_share
            .or(share)
            .map_or(Watts::ZERO, |share| limit * share);
        Ok(Self {
            target: slo.target(),
            plant,
            variant,
            interval_s: tuning.interval_s.unwrap_or(interval_s),
            hold_s: tuning.hold_s.unwrap_or(hold_s),
            lowest: lowest.max(plant.power().lowest_cap),
            average: Average::new(variant),
            since_look_s: 0.0,
            weighted: (0.0, 0.0),
            hold_left_s: 0.0,
            tuning,
        })
    }

    /// Y of the interval, and an empty interval; `None` where there was nothing to answer.
    fn take_instantaneous(&mut self) -> Option<f64> {
        let (sum, weight) = std::mem::take(&mut self.weighted);
        (weight > 0.0).then(|| sum / weight)
    }

    /// Takes one period: its length, and its latency where it has one; whether it has.
    fn observe(&mut self, observation: &Observation) -> bool {
        let length_s = observation.length.get().max(0.0);
        self.since_look_s += length_s;
        let judged = observation
            .traffic
            .as_ref()
            .filter(|traffic| traffic.latency.is_some() || traffic.oldest_in_flight.is_some());
        if let Some(traffic) = judged {
            // Where none was answered, the one that waits longest counts as one.
            let weight = (traffic.completions as f64).max(1.0);
            self.weighted.0 += traffic.latency_to_judge().get() * weight;
            self.weighted.1 += weight;
        }
        let latency_s = judged.map(|traffic| traffic.latency_to_judge().get());
        self.average.push(length_s, latency_s, self.tuning.average_s);
        latency_s.is_some()
    }

    /// The row of the table for Y, and the new cap.
    fn row(&self, latency_s: f64, cap: Watts) -> (&'static str, Watts, String) {
        let (target, tuning) = (self.target.get(), &self.tuning);
        let over = latency_s / target;
        let lower = |rule, threshold: f64, share: f64| {
            let text = format!(
                "below {threshold} of it: the cap goes down by {} %",
                percent(share)
            );
            (rule, cap * (1.0 - share), text)
        };
        if over > tuning.far_over {
            let text = format!("more than {} of it: the cap goes to its maximum", tuning.far_over);
            ("far-over", self.plant.full_allocation().cap, text)
        } else if over > 1.0 {
            let text = format!("above it: the cap goes up by {} %", percent(tuning.raise));
            ("over", cap * (1.0 + tuning.raise), text)
        } else if over >= tuning.under {
            let text = format!("at least {} of it: the cap stays", tuning.under);
            ("near", cap, text)
        } else if over < tuning.far_under && self.variant == PegasusVariant::Published {
            lower("far-under", tuning.far_under, tuning.lower_far)
        } else {
            lower("under", tuning.under, tuning.lower)
        }
    }

    fn look(&mut self, cap: Watts) -> (Watts, Reason) {
        self.since_look_s = 0.0;
        let Some(latency_s) = self.take_instantaneous() else {
            let text = "nothing was asked for, so nothing was late: the cap stays".to_owned();
            return (cap, Reason::new("idle", text, &[("cap_w", cap.get())]));
        };
        let (latency_ms, target_ms) = (latency_s * 1e3, self.target.as_millis());
        let (rule, asked, what) = self.row(latency_s, cap);
        let cap = self.bounded(asked);
        let text = format!(
            "latency {latency_ms:.0} ms against a target of {target_ms:.0} ms, {what}: {:.2} W",
            cap.get()
        );
        let numbers = [
            ("latency_ms", latency_ms),
            ("target_ms", target_ms),
            ("asked_w", asked.get()),
            ("cap_w", cap.get()),
        ];
        (cap, Reason::new(rule, text, &numbers))
    }

    fn bounded(&self, cap: Watts) -> Watts {
        cap.clamp(self.lowest, self.plant.full_allocation().cap)
    }

    fn decide_cap(&mut self, observation: &Observation) -> (Watts, Reason) {
        let has_latency = self.observe(observation);
        let now = self.plant.needed(&observation.in_force).cap;
        let maximum = self.plant.full_allocation().cap;
        if self.hold_left_s > 0.0 {
            self.hold_left_s -= observation.length.get().max(0.0);
            if self.variant == PegasusVariant::AsRun {
                self.average.clear();
            }
            // A hair of a period is no period.
            if self.hold_left_s > 1e-9 {
                self.weighted = (0.0, 0.0);
                self.since_look_s = 0.0;
                let left = self.hold_left_s;
                let text = format!("the average was late: at the maximum for {left:.0} s more");
                return (
                    maximum,
                    Reason::new("hold-maximum", text, &[("hold_left_s", left)]),
                );
            }
            self.hold_left_s = 0.0;
        }
        let average = self.average.value(self.tuning.average_s).filter(|_| has_latency);
        if let Some(average_s) = average.filter(|average_s| *average_s > self.target.get()) {
            self.hold_left_s = self.hold_s;
            let (average_ms, target_ms) = (average_s * 1e3, self.target.as_millis());
            let text = format!(
                "average latency {average_ms:.0} ms > target {target_ms:.0} ms: the cap goes to its maximum for {:.0} s",
                self.hold_s
            );
            let numbers = [
                ("average_ms", average_ms),
                ("target_ms", target_ms),
                ("cap_w", maximum.get()),
            ];
            return (maximum, Reason::new("average-late", text, &numbers));
        }
        let length_s = observation.length.get().max(0.0);
        if self.since_look_s < self.interval_s - length_s / 2.0 {
            let left = (self.interval_s - self.since_look_s).max(0.0);
            let text = format!("the next look is in {left:.1} s");
            let cap = self.bounded(now);
            return (cap, Reason::new("between-looks", text, &[("next_look_s", left)]));
        }
        self.look(now)
    }
}

/// A share in percent without the dust of binary fractions.
fn percent(share: f64) -> f64 {
    (share * 1e8).round() / 1e6
}

impl Law for Pegasus {
    fn name(&self) -> &'static str {
        match self.variant {
            PegasusVariant::Published => "pegasus",
            PegasusVariant::AsRun => "pegasus-as-run",
        }
    }

    fn levers(&self) -> &'static [Lever] {
        &[Lever::Cap]
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let (cap, reason) = self.decide_cap(observation);
        Decision {
            reflex: None,
            setting: Allocation {
                cap,
                ..self.plant.full_allocation()
            }
            .into(),
            expected_rate: None,
            reasons: vec![reason],
            ..Decision::default()
        }
    }

    fn forget(&mut self) {
        self.average.clear();
        self.weighted = (0.0, 0.0);
        self.since_look_s = 0.0;
        self.hold_left_s = 0.0;
    }
}
