//! One law for every lever: the cheapest servers and frequency that keep the SLO as often as asked, whatever the model
//! believes.
//!
//! | part | here |
//! |---|---|
//! | the arrival rate of the next period, the cost of a request, the percentile at a point | those of [`crate::headroom`] |
//! | how often periods may be late, whatever these believe | `keeper` |
//! | watts at a point, by the physics of the machines | `draw` |
//! | the frequency by a power cap, where it has no lever of its own | `capped` |
//! | what the load may grow to until another server could serve | `growth` |
//! | how many servers that needs, and for how long one must not have been needed | `servers` |
//! | the cheapest cores and frequency of those that serve | `points` |
//! | what a period says of all these | `learn` |
//! | why, in words and numbers | `explain` |
//! | the batch interval, where there is one | `interval`: the law [`Seek`] |
//! | where requests go by the size of their answers, where gateways tell that | `placement`: the law [`Placement`] |
//! | workers at once, queries in a round, the delay between rounds, where a server is on call | `sleep`: the law [`OnCall`] |
//! | that it stays known what a request costs at full speed: now and then a period there | `Joint::excites` |

mod capped;
mod draw;
mod explain;
mod interval;
mod keeper;
mod learn;
mod placement;
mod points;
mod servers;
mod sleep;
mod tuning;

pub use crate::growth::MAX_HORIZON_PERIODS;
pub use tuning::JointTuning;

use crate::batching::Seek;
use crate::decision::{Decision, Reason};
use crate::everything_on::{SETTLED_AFTER, load};
use crate::growth::Growth;
use crate::headroom::choose::{Demand, Learned};
use crate::headroom::cost::Cost;
use crate::headroom::forecast::{Forecast, Forecaster};
use crate::headroom::latency::LatencyModel;
use crate::headroom::power::PowerModel;
use crate::history::LoadHistory;
use crate::law::Law;
use crate::needed::Needed;
use crate::observation::{NodeObservation, Observation, Traffic};
use crate::oncall::law::OnCall;
use crate::placement::Placement;
use crate::plant::{Plant, Slo};
use crate::reflex::ReflexPlan;
use crate::resize::{Cause, PowerState};
use capped::Capped;
use draw::Draw;
use explain::UNOBSERVED;
use headroom_physics::MachineFigures;
use headroom_units::{Hertz, Lever, PerSecond, Setting, Watts};
use keeper::Keeper;
use points::Point;

/// More requests than this for each core in force, at a period's end, are a backlog.
const PRESENT_PER_CORE: f64 = 2.0;
/// Periods at full speed after a late one, at most, and the share of all periods that may be at full speed for that: where many may
/// be late, to be at full speed after each would cost more than it was late for.
const AFTER_LATE: f64 = 3.0;
const SHARE_AFTER_LATE: f64 = 0.1;
/// A cap leaves the frequency that it stands for to all but one of so many cases.
const CAP_FOR: f64 = 20.0;

/// Seconds for which more servers stay on than those from which the law had to retreat, and one more than are needed after one
/// was lost.
const FLOOR_S: f64 = 7200.0;

/// While a request's cost at full speed is not known to within this (one standard deviation over the cost), one of so many periods is
/// at full speed: servers are planned by what they do there, and at a lower frequency nothing tells it.
const UNSURE: f64 = 0.04;
const EXCITED_EVERY: u32 = 20;

/// The law.
#[derive(Debug)]
pub struct Joint {
    slo: Slo,
    plant: Plant,
    tuning: JointTuning,
    levers: Vec<Lever>,
    /// Limits and their pace, the highest first.
    paces: Vec<(Option<Hertz>, f64)>,
    /// Where the limits are held by a cap.
    capped: Option<Capped>,
    forecaster: Forecaster,
    cost: Cost,
    latency: LatencyModel,
    unused_power: PowerModel,
    draw: Draw,
    keeper: Keeper,
    reflex: ReflexPlan,
    /// From the first period on, whose length says how many a boot lasts.
    growth: Option<Growth>,
    needed: Needed,
    /// So many servers stay on after a retreat from fewer, for so many more periods.
    floor: (usize, u32),
    /// For so many more periods there is a spare: a server was lost.
    spare_for: u32,
    after_late: u32,
    /// Periods since one was at full speed to learn.
    since_excited: u32,
    /// How probable it was that the period that runs is late, had it full speed.
    expected_late: Option<f64>,
    /// Periods in a row with everything on.
    full_for: u32,
    periods: u32,
    /// Seconds of load that it has observed or recalls.
    observed_s: f64,
    in_flight: Option<(u64, f64)>,
    /// So many servers serve, for so many periods.
    steady: (usize, u32),
    /// What moves the batch interval, where there is one.
    seek: Option<Seek>,
    /// What moves the levers of a server on call, where there is one.
    oncall: Option<Box<OnCall>>,
    /// What places requests by size, where that is configured.
    placement: Option<Box<Placement>>,
}

impl Joint {
    /// The law for an SLO, a cluster of these machines in the order in which they are switched on, and a service rate of μ
    /// requests per second and core at the highest frequency; `None` where there is no machine.
    pub fn new(
        slo: Slo,
        plant: Plant,
        machines: &[MachineFigures],
        service_rate: PerSecond,
        tuning: JointTuning,
    ) -> Option<Self> {
        if machines.is_empty() {
            return None;
        }
        let mut paces = vec![(None, 1.0)];
        if let Some(range) = plant.frequency() {
            let steps = ((range.max() - range.min()) / range.step() - 1e-9)
                .ceil()
                .max(0.0) as usize;
            let limits = (1..=steps).map(|step| range.round_down(range.max() - range.step() * step as f64));
            paces.extend(limits.map(|limit| (Some(limit), limit / range.max())));
        }
        let capped = Capped::new(&plant, machines);
        if let Some(capped) = &capped {
            paces = capped.paces();
        }
        let draw = Draw::new(machines, plant.cores().max());
        Some(Self {
            levers: moved(&plant),
            paces,
            capped,
            forecaster: Forecaster::new(),
            cost: Cost::new(service_rate.get()),
            latency: LatencyModel::new(slo.percentile(), plant.cores()),
            unused_power: PowerModel::new(plant.power()),
            keeper: Keeper::new(tuning.late),
            reflex: ReflexPlan::default(),
            growth: None,
            needed: Needed::default(),
            draw,
            floor: (1, 0),
            spare_for: 0,
            after_late: 0,
            since_excited: 0,
            expected_late: None,
            full_for: 0,
            periods: 0,
            observed_s: 0.0,
            in_flight: None,
            steady: (0, 0),
            seek: None,
            oncall: None,
            placement: None,
            slo,
            plant,
            tuning,
        })
    }

    fn demand(&self, forecast: &Forecast, observation: &Observation, traffic: &Traffic) -> Demand {
        let usual = PRESENT_PER_CORE * self.draw.cores(self.serving(observation)) + 3.0;
        let length = observation.length.get().max(1e-3);
        Demand {
            rate: forecast.rate,
            cases: forecast.cases.clone(),
            backlog: (observation.at_work(traffic) - usual).max(0.0) / length,
            surprise: self.latency.surprise(),
            length,
            bound: self.slo.target().get() * self.tuning.guard,
        }
    }

    fn learned(&mut self) -> Learned<'_> {
        Learned {
            latency: &mut self.latency,
            cost: &self.cost,
            power: &self.unused_power,
            caution: self.keeper.caution(),
        }
    }

    /// The cap that holds about the frequency of a point, whatever but one case in [`CAP_FOR`] comes in; `None` where the
    /// frequency has a lever of its own, or nothing is to be limited.
    fn cap(&mut self, point: Option<&Point>, demand: &Demand) -> Option<Watts> {
        let capped = self.capped.as_mut()?;
        let Some(point) = point.filter(|point| point.limit.is_some()) else {
            capped.lift();
            return None;
        };
        let mut rest = 1.0;
        let case = demand.cases.iter().find(|(_, share)| {
            rest -= share;
            rest <= 1.0 / CAP_FOR
        });
        let rate = case.map_or(demand.rate, |(rate, _)| rate.max(demand.rate)) + demand.backlog;
        let (servers, cost) = (point.servers, self.cost.at(point.pace));
        let watts = self.draw.watts(servers, point.on, rate, cost, point.limit) - self.draw.off(servers);
        capped.cap(point.pace, Watts::new(watts))
    }

    /// So many servers, and what the point says of those that serve now.
    fn setting(&mut self, servers: usize, point: Option<&Point>, demand: &Demand) -> Setting {
        let mut setting = self.plant.full();
        if let Some(cap) = self.cap(point, demand) {
            let cores = setting.cores().unwrap_or(self.plant.cores().max());
            setting = setting.with(Lever::Cap, Some(self.plant.bound_cap(cap, cores).get()));
        }
        if let Some(point) = point {
            if self.capped.is_none() {
                setting = setting.with(Lever::Frequency, point.limit.map(Hertz::get));
            }
            if point.on < 1.0 {
                let cores = self.draw.cores(point.servers) * point.on;
                setting = setting.with(Lever::Cores, Some(cores));
            }
        }
        if self.plant.bounds(Lever::Servers).is_some() {
            setting = setting.with(Lever::Servers, Some(servers as f64));
        }
        setting
    }

    /// Whether this period is to be at full speed so that it is known what a request costs there.
    fn excites(&mut self, point: &Point) -> bool {
        self.since_excited = self.since_excited.saturating_add(1);
        let excites =
            point.pace < 1.0 && self.since_excited >= EXCITED_EVERY && self.cost.unsure(1.0) > UNSURE;
        if excites {
            self.since_excited = 0;
        }
        excites
    }

    /// Everything on, and why.
    fn everything(&mut self, why: Reason, forecast: &Forecast) -> Decision {
        if let Some(capped) = &mut self.capped {
            capped.lift();
        }
        let all = self.draw.servers() as f64;
        let servers = self.plant.bounds(Lever::Servers).map(|_| all);
        Decision {
            setting: self.plant.full().with(Lever::Servers, servers),
            expected_rate: Some(PerSecond::new(forecast.rate)),
            reflex: None,
            reasons: vec![why],
            ..Decision::default()
        }
    }

    /// Judges the period that ended, by whether it was late; the share of periods like the next that may be late.
    fn judge(&mut self, observation: &Observation, traffic: &Traffic, expected_rate: f64) -> f64 {
        let serving = self.serving(observation);
        let all = self.draw.servers();
        let length = observation.length.get();
        let limited = self.is_limited(observation, serving);
        // A period that a reflex raised had the lower point that was chosen for it: if late, it is so by that choice.
        let is_whole = serving == all && !limited && observation.reflexes == 0;
        // What is late while rounds of a server on call are delayed may be so by the delay, which has a law of its own that ends it.
        let is_delayed = observation
            .in_force
            .get(Lever::RoundDelay)
            .is_some_and(|delay| delay > 0.0);
        let is_full = is_whole && !is_delayed;
        self.full_for = match is_full {
            true => self.full_for.saturating_add(1),
            false => 0,
        };
        // Before, it may still answer what was left over when less was on.
        let everything_on = self.full_for > SETTLED_AFTER;
        let late = traffic.latency_to_judge() > self.slo.target();
        let retreating = self.keeper.retreat() > 0;
        let load_then = self.keeper.load_of(traffic, observation.at_work(traffic), length);
        match is_whole && is_delayed {
            true => self.keeper.pass(),
            false => self.keeper.observe(load_then, late, everything_on),
        }
        // What the model says is judged by periods at full speed alone: in others a reflex may have kept what it had not.
        if let Some(expected) = self.expected_late.take().filter(|_| !limited && !is_delayed) {
            self.keeper.judge(expected, late);
        }
        let lasts = (FLOOR_S / length.max(1e-3)) as u32;
        self.floor.1 = self.floor.1.saturating_sub(1);
        let is_lost = |node: &NodeObservation| node.state == PowerState::Failed(Cause::Lost);
        self.spare_for = match observation.nodes.iter().any(is_lost) {
            true => lasts,
            false => self.spare_for.saturating_sub(1),
        };
        if self.keeper.retreat() > 0 && !retreating {
            // What so few servers could not do they will not be asked for again soon.
            self.floor = ((serving + 1).max(self.floor()).min(all), lasts);
        }
        self.after_late = match late {
            true => (SHARE_AFTER_LATE / self.tuning.late).min(AFTER_LATE).round() as u32,
            false => self.after_late.saturating_sub(1),
        };
        self.keeper
            .rate(load(expected_rate, observation.at_work(traffic), length))
    }

    /// Servers that stay on, whatever is believed, since the law had to retreat from fewer.
    fn floor(&self) -> usize {
        if self.floor.1 > 0 { self.floor.0 } else { 1 }
    }

    /// What the machines and servers are to be set to.
    fn decide_machines(&mut self, observation: &Observation) -> Decision {
        let hold = |text: &str| Decision {
            reasons: vec![Reason::new(UNOBSERVED, text.to_owned(), &[])],
            ..Decision::of(observation.in_force)
        };
        let is_whole = self.forecaster.take_length(observation.length.get());
        let Some(traffic) = observation.traffic.as_ref().filter(|_| is_whole) else {
            self.expected_late = None;
            return hold("no telemetry of a whole period: what is in force stays");
        };
        self.learn(observation, traffic);
        let Some(forecast) = self.forecaster.next() else {
            return hold("no arrival rate yet: what is in force stays");
        };
        self.periods = self.periods.saturating_add(1);
        if self.periods <= self.tuning.warm_up_periods {
            let why = self.why_warm_up();
            return self.everything(why, &forecast);
        }
        let allowed = self.judge(observation, traffic, forecast.rate);
        if self.keeper.retreat() > 0 {
            self.needed.observe(observation.period, self.draw.servers(), 0);
            let why = self.why_retreat(allowed);
            return self.everything(why, &forecast);
        }
        if allowed > self.tuning.late {
            // What is saved then is paid in periods that are later still, which no caution gets back.
            self.needed.observe(observation.period, self.draw.servers(), 0);
            let why = self.why_all(allowed);
            return self.everything(why, &forecast);
        }
        let demand = self.demand(&forecast, observation, traffic);
        let serving = self.serving(observation);
        let (now, planned) =
            self.best_now(serving, &demand, allowed, traffic.left_at_end(observation.length));
        let servers = self.plan_servers(observation, &demand, allowed);
        let excited = self.excites(&now.point);
        let mut reasons = Vec::new();
        if excited {
            reasons.push(self.why_excited(&now.point));
        }
        if self.after_late > 0 {
            reasons.push(self.why_full_speed(traffic));
        }
        reasons.push(self.why_point(&now, &forecast, &demand));
        if self.plant.bounds(Lever::Servers).is_some() {
            reasons.push(self.why_servers(&servers, allowed));
        }
        let cores = self.draw.cores(serving);
        self.expected_late = (self.after_late == 0).then(|| self.learned().late(&demand, cores, 1.0));
        let point = (self.after_late == 0 && !excited).then_some(&now.point);
        let mut decision = Decision {
            setting: self.setting(servers.on, point, &demand),
            expected_rate: Some(PerSecond::new(forecast.rate)),
            reflex: None,
            reasons,
            ..Decision::default()
        };
        let reflex = planned.map(|planned| planned.to(self.plant.full()));
        decision.arm(reflex, observation.reflexes);
        decision
    }
}

/// The levers of a plant that it moves: all but the cache's size, in which it sees no watts; the placement by size comes with
/// [`Joint::with_placement`].
fn moved(plant: &Plant) -> Vec<Lever> {
    let all = plant.levers().into_iter();
    all.filter(|lever| !matches!(lever, Lever::CacheSize | Lever::Placement))
        .collect()
}

impl Law for Joint {
    fn name(&self) -> &'static str {
        "joint"
    }

    fn levers(&self) -> &[Lever] {
        &self.levers
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let decision = self.decide_machines(observation);
        let decision = self.add_interval(decision, observation);
        let decision = self.add_placement(decision, observation);
        self.add_sleep(decision, observation)
    }

    fn forget(&mut self) {
        self.forecaster.lose_telemetry();
        if let Some(growth) = &mut self.growth {
            growth.lose();
        }
        self.in_flight = None;
        self.periods = 0;
        if let Some(seek) = &mut self.seek {
            seek.forget();
        }
        if let Some(oncall) = &mut self.oncall {
            oncall.forget();
        }
        if let Some(placement) = &mut self.placement {
            placement.forget();
        }
    }

    fn recalls(&self) -> bool {
        true
    }

    fn recall(&mut self, history: &LoadHistory) {
        let length = history.period().get();
        let mut growth = Growth::new(self.horizon(length));
        self.forecaster.recall(history, |forecaster, rate| match rate {
            Some(rate) => growth.observe(rate, length, forecaster),
            None => growth.lose(),
        });
        self.growth = Some(growth);
        self.observed_s = history.known().get();
    }
}
