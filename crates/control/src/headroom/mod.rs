//! Headroom's own law: the cheapest point that keeps the SLO with a stated confidence.
//!
//! Every period it learns from what was seen, and asks which cores, frequency and cap are cheapest among those that keep
//! the *next* period's percentile under the guard with the chosen confidence.
//!
//! | part | here |
//! |---|---|
//! | the arrival rate of the next period and the distribution of its error | `forecast` |
//! | core time per request, by frequency (μ, learned) | `cost` |
//! | the percentile at a point, from M/G/k processor sharing, and the probability that a period is late | `latency` |
//! | what some numbers of cores serve worse than their neighbours, as on several nodes | `uneven` |
//! | watts at a point | `power` |
//! | the search | `choose` |
//!
//! When it is wrong it reacts in the same period: a percentile well above what the model gives for that period's load is
//! added to what is expected at once and fades as it is not confirmed, a backlog is to be worked off within one
//! period, a late period never takes anything away, and each late period makes all later ones a little more cautious,
//! so that in the long run they are at least as rare as asked (the gradient step of online quantile estimation; Gibbs and
//! Candès, "Adaptive conformal inference under distribution shift", 2021). It never makes the law bolder than its model:
//! where the model is too careful, what that costs buys more on the next bad period than a rate of late periods that is
//! met exactly.

pub(crate) mod choose;
pub(crate) mod cost;
pub(crate) mod forecast;
pub(crate) mod kalman;
pub(crate) mod latency;
pub(crate) mod power;
mod table;
mod tuning;
mod uneven;

pub use tuning::HeadroomTuning;

use crate::decision::{Allocation, Decision, Reason};
use crate::everything_on::{EverythingOn, SETTLED_AFTER, load};
use crate::history::LoadHistory;
use crate::law::Law;
use crate::observation::{Observation, Traffic};
use crate::parameter::{Bound, Parameters};
use crate::plant::{Plant, Slo};
use crate::reflex::{Past, Queue, ReflexPlan};
use crate::registry::LawError;
use choose::{Demand, Grid, Learned, Point};
use cost::Cost;
use forecast::{Forecast, Forecaster, Method};
use headroom_units::{Cores, Lever, PerSecond, Seconds, Setting, Watts};
use latency::{LatencyModel, Measured};
use power::PowerModel;

/// What a late period adds to the caution, in ln of the percentile; and its bounds. It does not go below zero: late
/// periods are so rare that a law which may spend what its model spared does so for thousands of periods before it is
/// told that it was wrong.
const CAUTION_STEP: f64 = 0.05;
const CAUTION: (f64, f64) = (0.0, 0.5);
/// A cap within this share of the consumption may have slowed the machine.
const CAP_BINDS: f64 = 0.97;
/// What a cap that seems to bind adds to the margin, what is left of that a period later, and the most it may be.
const MARGIN_STEP: f64 = 0.03;
const MARGIN_STAYS: f64 = 0.995;
const MAX_MARGIN: f64 = 0.3;
/// A cap is lowered where that takes at least this share of it.
const CAP_WORTH: f64 = 0.01;
/// More requests than this for each core in force, at a period's end, are a backlog.
const PRESENT_PER_CORE: f64 = 2.0;
/// A surprise worth telling, as a factor.
const TOLD_SURPRISE: f64 = 1.05;

const WARM_UP: &str = "warm-up";
const UNSEEN: &str = "hold-unobserved";
const CHEAPEST: &str = "cheapest-point";
const KEEP: &str = "keep-point";
const LATE: &str = "late-takes-nothing";
const SURPRISED: &str = "latency-surprise";
const BACKLOG: &str = "backlog";
const MAXIMUM: &str = "at-maximum";
const CAP: &str = "cap-above-need";

/// The law.
#[derive(Clone, Debug)]
pub struct Headroom {
    slo: Slo,
    plant: Plant,
    tuning: HeadroomTuning,
    grid: Grid,
    forecaster: Forecaster,
    cost: Cost,
    latency: LatencyModel,
    power: PowerModel,
    caution: f64,
    /// How often periods were late with everything on.
    full: EverythingOn,
    /// Periods in a row with everything on.
    full_for: u32,
    /// What was added to the cap's margin because caps seemed to bind.
    margin: f64,
    reflex: ReflexPlan,
    periods: u32,
    /// Of the newest period seen: its number, and the requests at its end.
    in_flight: Option<(u64, f64)>,
}

impl Headroom {
    /// The law for an SLO, a machine and a service rate of μ requests per second and core at the highest frequency,
    /// which is corrected as requests are seen.
    ///
    /// # Errors
    /// A parameter out of its range, or a service rate that is not one, by its key.
    pub fn new(
        slo: Slo,
        plant: Plant,
        service_rate: PerSecond,
        tuning: HeadroomTuning,
    ) -> Result<Self, LawError> {
        tuning.check().map_err(LawError::of("headroom"))?;
        let rate = Bound::Positive.check("the requests/s of one core", service_rate.get());
        rate.map_err(|error| LawError::new("service.requests_per_core_s", error))?;
        Ok(Self::fresh(slo, plant, service_rate, tuning))
    }

    fn fresh(slo: Slo, plant: Plant, service_rate: PerSecond, tuning: HeadroomTuning) -> Self {
        Self {
            slo,
            plant,
            grid: Grid::new(plant),
            forecaster: Forecaster::new(),
            cost: Cost::new(service_rate.get()),
            latency: LatencyModel::new(slo.percentile(), plant.cores()),
            power: PowerModel::new(plant.power()),
            caution: 0.0,
            full: EverythingOn::default(),
            full_for: 0,
            margin: 0.0,
            reflex: ReflexPlan::default(),
            periods: 0,
            in_flight: None,
            tuning,
        }
    }

    /// The service rate per core at the highest frequency, as learned so far.
    pub fn service_rate(&self) -> PerSecond {
        PerSecond::new(1.0 / self.cost.at(1.0))
    }

    /// The latency SLO.
    pub const fn slo(&self) -> Slo {
        self.slo
    }

    fn guarded_target(&self) -> Seconds {
        self.slo.target() * self.tuning.guard
    }

    /// The frequency of a period over the highest: the limit in force, or less where the cap bound and the machine says
    /// so.
    fn pace(&self, observation: &Observation) -> f64 {
        let Some(range) = self.plant.frequency() else {
            return 1.0;
        };
        let now = self.plant.allocation(&observation.in_force);
        let limit = now.frequency.map_or(1.0, |limit| limit / range.max());
        let bound = observation
            .power
            .is_some_and(|power| power.value >= now.cap * CAP_BINDS);
        let reported = observation
            .frequency
            .filter(|_| bound)
            .map_or(1.0, |mean| mean.value / range.max());
        let pace = limit.min(reported);
        if pace.is_finite() {
            pace.clamp(range.min() / range.max(), 1.0)
        } else {
            1.0
        }
    }

    fn learn(&mut self, observation: &Observation, traffic: &Traffic) {
        let length = observation.length.get();
        let now = self.plant.allocation(&observation.in_force);
        let cores = now.cores.get();
        let most = self.plant.cores().max().get();
        if !(cores > 0.0 && cores <= 2.0 * most) {
            return;
        }
        let pace = self.pace(observation);
        if let Some(rate) = observation.arrival_rate() {
            self.forecaster.observe(observation.period, rate.get(), length);
        }
        let fired = observation.reflexes > 0;
        self.reflex.observe(&Past {
            queue: Queue {
                rate: observation.arrival_rate().map_or(0.0, PerSecond::get),
                cost: self.cost.at(pace),
                cores,
                length,
            },
            in_flight: traffic
                .in_flight
                .and_then(|_| traffic.mean_in_flight(observation.length)),
            // A gateway's alarm counts those that it holds too.
            at_end: traffic.left_at_end(observation.length),
            fired,
            late: traffic.latency_to_judge() > self.slo.target(),
            limited: observation.in_force.takes_from(&self.plant.full()),
        });
        if fired {
            // Two points were in force: the period says nothing of either.
            self.in_flight = Some((observation.period, observation.at_work(traffic)));
            return;
        }
        let busy = observation
            .utilisation
            .map(|share| share.get().clamp(0.0, 1.0) * cores);
        let in_flight = observation.at_work(traffic);
        if let Some(busy) = busy {
            // What went on in lost periods is none of this one's.
            let before = self
                .in_flight
                .filter(|(period, _)| period + 1 == observation.period);
            let change = in_flight - before.map_or(in_flight, |(_, before)| before);
            self.cost
                .observe(busy * length, traffic.completions as f64, change, pace);
            if let Some(power) = observation.power {
                self.power.observe(power.value, cores, busy, pace);
            }
        }
        self.in_flight = Some((observation.period, in_flight));
        if let Some(power) = observation.power {
            self.margin *= MARGIN_STAYS;
            if power.value >= now.cap * CAP_BINDS {
                self.margin = (self.margin + MARGIN_STEP).min(MAX_MARGIN);
            }
        }
        // A missed percentile is no latency to learn from.
        let latency = traffic.latency.filter(|latency| !latency.missed);
        if let (Some(latency), Some(rate)) = (latency, observation.arrival_rate()) {
            let cost = self.cost.at(pace);
            self.latency.observe(&Measured {
                cores,
                load: rate.get() * cost / cores,
                cost,
                completions: traffic.completions as f64,
                length,
                at_slo: latency.at_slo.get(),
                median_and_p95: latency.distribution.map(|d| (d.p50.get(), d.p95.get())),
            });
        }
    }

    /// The share of periods that may be late: `1 - confidence` or, where not even everything on was observed to make them that
    /// rare, what it was observed to do. What the model believes is no reason.
    fn allowed(&self, load: f64) -> f64 {
        self.full.rate(1.0 - self.tuning.confidence, load)
    }

    /// Takes whether a period with everything on was late. The first such periods may still answer what was left over when less was
    /// on, and one that a reflex raised had the lower point that was chosen for it.
    fn observe_full(&mut self, observation: &Observation, traffic: &Traffic, late: bool) {
        let cores = self.plant.allocation(&observation.in_force).cores;
        // A cap that does not bind takes nothing.
        let is_full =
            observation.reflexes == 0 && cores >= self.plant.cores().max() && self.pace(observation) >= 1.0;
        self.full_for = match is_full {
            true => self.full_for.saturating_add(1),
            false => 0,
        };
        let load = self
            .full
            .load_of(traffic, observation.at_work(traffic), observation.length.get());
        self.full
            .observe(load, (self.full_for > SETTLED_AFTER).then_some(late));
    }

    /// The step of online quantile estimation: late periods are to be at least as rare as was asked, also where everything on is
    /// late more often: who cannot be better than that is not to be bolder for it.
    fn learn_caution(&mut self, late: bool) {
        let allowed = 1.0 - self.tuning.confidence;
        let step = match late {
            true => CAUTION_STEP * (1.0 - allowed),
            false => -CAUTION_STEP * allowed,
        };
        self.caution = (self.caution + step).clamp(CAUTION.0, CAUTION.1);
    }

    fn cap(&self, cores: Cores, pace: f64) -> Watts {
        let margin = self.tuning.cap_margin.max(3.0 * self.power.noise()) + self.margin;
        let need = self.power.at(cores.get(), cores.get(), pace) * (1.0 + margin);
        self.plant.bound_cap(need, cores)
    }

    fn demand(&self, forecast: &Forecast, observation: &Observation, traffic: &Traffic) -> Demand {
        let range = self.plant.cores();
        let now = self.plant.allocation(&observation.in_force);
        let cores = now.cores.clamp(range.min(), range.max()).get();
        let usual = PRESENT_PER_CORE * cores + 3.0;
        let length = observation.length.get();
        Demand {
            rate: forecast.rate,
            cases: forecast.cases.clone(),
            backlog: (observation.at_work(traffic) - usual).max(0.0) / length,
            surprise: self.latency.surprise(),
            length,
            bound: self.guarded_target().get(),
        }
    }
}

impl Law for Headroom {
    fn name(&self) -> &'static str {
        "headroom"
    }

    fn guard(&self) -> Option<Seconds> {
        Some(self.guarded_target()).filter(|guard| *guard < self.slo.target())
    }

    fn levers(&self) -> &'static [Lever] {
        match self.plant.frequency() {
            Some(_) => &[Lever::Cores, Lever::Cap, Lever::Frequency],
            None => &[Lever::Cores, Lever::Cap],
        }
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let range = self.plant.cores();
        // What is no amount, or more than there is, is taken for the most, so that it cannot spread.
        let most = self.plant.full_allocation();
        let now = self.plant.allocation(&observation.in_force);
        let now = Allocation {
            cores: within(now.cores.get(), most.cores.get()).map_or(most.cores, Cores::new),
            cap: within(now.cap.get(), most.cap.get()).map_or(most.cap, Watts::new),
            ..now
        };
        let is_whole = self.forecaster.take_length(observation.length.get());
        let Some(traffic) = observation.traffic.as_ref().filter(|_| is_whole) else {
            let text = "no telemetry of a whole period: what is in force stays".to_owned();
            return decision(now, None, vec![Reason::new(UNSEEN, text, &[])]);
        };
        self.learn(observation, traffic);
        let Some(forecast) = self.forecaster.next() else {
            let text = "no arrival rate yet: what is in force stays".to_owned();
            return decision(now, None, vec![Reason::new(UNSEEN, text, &[])]);
        };
        let expected = Some(PerSecond::new(forecast.rate));
        self.periods = self.periods.saturating_add(1);
        if self.periods < self.tuning.warm_up_periods {
            let text = format!(
                "period {} of {} to look before deciding: everything on",
                self.periods, self.tuning.warm_up_periods
            );
            let numbers = [("warm_up_periods", f64::from(self.tuning.warm_up_periods))];
            return decision(
                self.plant.full_allocation(),
                expected,
                vec![Reason::new(WARM_UP, text, &numbers)],
            );
        }

        let latency = traffic.latency_to_judge();
        let late = latency > self.guarded_target();
        self.observe_full(observation, traffic, late);
        self.learn_caution(late);
        let demand = self.demand(&forecast, observation, traffic);
        let load = load(
            forecast.rate,
            observation.at_work(traffic),
            observation.length.get(),
        );
        let (asked, observed) = (1.0 - self.tuning.confidence, self.allowed(load));
        let pace = now
            .frequency
            .zip(self.plant.frequency())
            .map_or(1.0, |(limit, range)| limit / range.max());
        let mut learned = Learned {
            latency: &mut self.latency,
            cost: &self.cost,
            power: &self.power,
            caution: self.caution,
        };
        let bold = if self.tuning.reflex {
            self.reflex.bold()
        } else {
            1.0
        };
        let left = traffic.left_at_end(observation.length);
        let mut found = self
            .grid
            .cheapest(&mut learned, &demand, (asked * bold, observed));
        if bold > 1.0
            && let Some((best, _)) = found
        {
            let at = (best.cores.get(), best.pace);
            let planned = self.reflex.plan(&mut learned, &demand, at, left);
            if !planned.in_time {
                found = self.grid.cheapest(&mut learned, &demand, (asked, observed));
            }
        }
        let Some((best, allowed)) = found else {
            let full = self.plant.full_allocation();
            let point = learned.point(&demand, full.cores, None, 1.0);
            let mut reasons = vec![self.maximum(&forecast, &point)];
            reasons.extend(self.troubles(&demand, observation.at_work(traffic)));
            return decision(full, expected, reasons);
        };
        let current = learned.point(
            &demand,
            now.cores.clamp(range.min(), range.max()),
            now.frequency,
            pace,
        );
        let idle = learned.power.at(0.0, 0.0, 1.0);
        let gain = (current.watts - best.watts).get();
        let worth = self.tuning.least_gain * (current.watts - idle).get().max(0.0);
        let keeps = current.late <= allowed && gain < worth;
        let point = if keeps { current } else { best };
        let (load, usual) = (learned.load(&demand, &point), learned.expected(&demand, &point));
        let planned = self.tuning.reflex.then(|| {
            let at = (point.cores.get(), point.pace);
            self.reflex.plan(&mut learned, &demand, at, left)
        });

        let need = self.cap(point.cores, point.pace);
        let worthwhile = need > now.cap || need < now.cap * (1.0 - CAP_WORTH) || !keeps;
        let wanted = Allocation {
            cores: point.cores,
            cap: if worthwhile { need } else { now.cap },
            frequency: point.frequency,
        };
        let rule = if keeps { KEEP } else { CHEAPEST };
        let mut reasons = vec![self.explain(rule, &forecast, &point, &current, load, Seconds::new(usual))];
        reasons.extend(self.troubles(&demand, observation.at_work(traffic)));
        let mut allocation = wanted;
        let (asked, before) = (Setting::from(wanted), Setting::from(now));
        if late && asked.takes_from(&before) {
            allocation = self.plant.allocation(&asked.most(before));
            let text = format!(
                "{}: nothing is taken away after a late period",
                traffic.late_in_words(self.slo, self.guarded_target())
            );
            let numbers = [
                ("latency_ms", latency.as_millis()),
                ("guard_ms", self.guarded_target().as_millis()),
            ];
            reasons.push(Reason::new(LATE, text, &numbers));
        }
        if allocation.cap != now.cap {
            reasons.push(self.explain_cap(now, allocation, point.pace));
        }
        let mut decision = decision(allocation, expected, reasons);
        let reflex = planned.map(|planned| planned.to(self.plant.full()));
        decision.arm(reflex, observation.reflexes);
        decision
    }

    /// What was seen just before is no longer what comes next: the present level of the load, who is being served. What was
    /// learned of the service, of the machine and of the day is as true as it was, and it took hours; the forecaster drops
    /// the day by itself where too much of it was not seen.
    fn forget(&mut self) {
        self.forecaster.lose_telemetry();
        self.in_flight = None;
        self.margin = 0.0;
        self.periods = 0;
    }

    fn recalls(&self) -> bool {
        true
    }

    fn recall(&mut self, history: &LoadHistory) {
        self.forecaster.recall(history, |_, _| ());
    }
}

impl Headroom {
    fn explain(
        &self,
        rule: &'static str,
        forecast: &Forecast,
        point: &Point,
        current: &Point,
        load: f64,
        usual: Seconds,
    ) -> Reason {
        let at = point.frequency.map_or_else(String::new, |limit| {
            format!(" at up to {:.2} GHz", limit.get() / 1e9)
        });
        let stays = if rule == KEEP { " stay:" } else { ":" };
        let text = format!(
            "{:.1}/s ± {:.1} expected by the {}, {:.2} ms of a core each: {}{at}{stays} {} {:.0} ms expected, above {:.0} \
             ms with {:.2} %, {:.1} W",
            forecast.rate,
            forecast.deviation,
            method_name(forecast.method),
            self.cost.at(point.pace) * 1e3,
            written(point.cores),
            self.slo.name(),
            usual.as_millis(),
            self.guarded_target().as_millis(),
            point.late * 100.0,
            point.watts.get(),
        );
        Reason::new(
            rule,
            text,
            &[
                ("expected_rate_per_s", forecast.rate),
                ("rate_deviation_per_s", forecast.deviation),
                ("cores", point.cores.get()),
                ("pace", point.pace),
                ("expected_utilisation", load),
                ("expected_latency_ms", usual.as_millis()),
                ("guard_ms", self.guarded_target().as_millis()),
                ("late_probability", point.late),
                ("expected_w", point.watts.get()),
                ("before_w", current.watts.get()),
                ("cost_ms", self.cost.at(point.pace) * 1e3),
                ("service_spread_scv", self.latency.spread()),
                ("caution", self.caution),
            ],
        )
    }

    fn maximum(&self, forecast: &Forecast, point: &Point) -> Reason {
        let text = format!(
            "{:.1}/s ± {:.1} expected: not even all {} keep {} under {:.0} ms with {} % confidence: everything on",
            forecast.rate,
            forecast.deviation,
            written(point.cores),
            self.slo.name(),
            self.guarded_target().as_millis(),
            self.tuning.confidence * 100.0
        );
        let numbers = [
            ("expected_rate_per_s", forecast.rate),
            ("rate_deviation_per_s", forecast.deviation),
            ("late_probability", point.late),
            ("cores", point.cores.get()),
        ];
        Reason::new(MAXIMUM, text, &numbers)
    }

    /// What made the law ask for more than the forecast alone would have.
    fn troubles(&self, demand: &Demand, left: f64) -> Vec<Reason> {
        let mut reasons = Vec::new();
        if demand.backlog > 0.0 {
            let text = format!(
                "{left} requests were left at the period's end: {:.0}/s more, to work them off within one period",
                demand.backlog
            );
            let numbers = [("in_flight", left), ("backlog_per_s", demand.backlog)];
            reasons.push(Reason::new(BACKLOG, text, &numbers));
        }
        let surprise = demand.surprise;
        if surprise > TOLD_SURPRISE {
            let text = format!(
                "latency was above what the model gives for such a load: {surprise:.2} times the load is prepared for, for \
                 now"
            );
            reasons.push(Reason::new(SURPRISED, text, &[("factor", surprise)]));
        }
        reasons
    }

    fn explain_cap(&self, now: Allocation, wanted: Allocation, pace: f64) -> Reason {
        let most = self.power.at(wanted.cores.get(), wanted.cores.get(), pace).get();
        let text = format!(
            "{} can draw {most:.1} W when all are busy: the cap goes from {:.2} to {:.2} W and slows nothing",
            written(wanted.cores),
            now.cap.get(),
            wanted.cap.get()
        );
        Reason::new(CAP, text, &[("need_w", most), ("cap_w", wanted.cap.get())])
    }
}

/// The value where it is a number from 0 to `most`.
fn within(value: f64, most: f64) -> Option<f64> {
    (0.0..=most).contains(&value).then_some(value)
}

fn decision(allocation: Allocation, expected_rate: Option<PerSecond>, reasons: Vec<Reason>) -> Decision {
    Decision {
        setting: allocation.into(),
        expected_rate,
        reflex: None,
        reasons,
        ..Decision::default()
    }
}

fn method_name(method: Method) -> String {
    match method {
        Method::Line => "line".to_owned(),
        Method::Level => "level".to_owned(),
        Method::Trend => "trend".to_owned(),
        Method::Season(periods) => format!("season of {periods:.0} periods"),
    }
}

/// Cores as people write them: 0.9, without the dust that sums of tenths leave.
fn written(cores: Cores) -> Cores {
    Cores::new((cores.get() * 1e3).round() / 1e3)
}
