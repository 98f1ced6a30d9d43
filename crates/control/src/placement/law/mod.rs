//! The law `placement`: requests by the size of their answers to the machines that serve them for the least energy.
//!
//! The idle watts of what is on are drawn in any case; what routing decides is the energy of the work. Each period the classes' rates and
//! mean sizes are taken from what the gateways observed, each class's cost at each backend from the figures of its kind, and the shares of
//! least watts found that keep every backend under the limits of the classes it serves (the advisor's programme of one step). Corrected by
//! what is observed: how much slower the cores and the link of a backend are than its figures ([`speed`]), and how much longer a
//! class's percentile is than the model says for its mean size.
//!
//! Least connections, which needs no figures, is in force wherever the law does not know: without sizes, while it warms up, where a backend
//! has no figures, where the backends are overloaded, and for a while after the SLO was missed several periods in a row and the model did not
//! say why. Where the backends cannot serve all under the guard and are not overloaded, they are placed as little over it as can be: least
//! connections gives a small machine as many requests as a large one; where a few percent of what comes in are more than they can serve,
//! too, for figures may be a little too slow. What a kind of machine serves is spread over all of its backends as evenly as their limits
//! allow, which takes the same watts and leaves each the most room for a rise. Classes that no backend serves under the guard, and
//! requests of unknown size, go by least connections alone and count as load of all backends.
//!
//! Weights hold for a period; what happens within it is seen by the requests in flight. Each backend has a bound on them ([`bounds`]), above
//! which the gateways pass it over: a backend that hangs, one that is slower than its figures, and a rush thus take no more than the
//! bound, and the rest goes where there is the most room. A backend that answers nothing is not reckoned with, and sent one request at a time
//! until it answers ([`silence`]).
//!
//! **Where it does not hold.** What "least connections" stands for here is how the gateway is configured to balance. Requests that a hung
//! backend has up to its bound, or on trial, wait for as long as the gateway lets them. Clients that read slowly keep requests in flight, so that
//! bounds send more away than the machines are in need of, which costs energy and no latency. A backend that pauses counts as a slow one, and its
//! load as larger than it is. Where the backends cannot serve all under the guard by the model, it goes on placing however late that is. Of a
//! backend that is asked for one size alone a slow link counts as slow cores. Failures say nothing to it: a backend that fails at once is for
//! health checks to take out.
//!
//! Routes change only where the present ones put a backend over a limit, a class or backend came or went, or others save
//! [`least_gain`](PlacementTuning::least_gain) of what the work draws.

mod bounds;
mod choose;
mod gathered;
mod path;
mod silence;
mod slow_link;
mod speed;
mod state;
mod tuning;

pub use tuning::{KindFigures, MAX_BACKENDS, PlacementTuning};

use crate::decision::{Decision, Reason};
use crate::law::Law;
use crate::observation::Observation;
use crate::parameter::Parameters;
use crate::placement::{MAX_LIMIT, Routes};
use crate::plant::{Plant, Slo};
use crate::registry::LawError;
use crate::stack;
use choose::{Limits, Model};
use headroom_units::{Lever, Seconds, Setting};
use speed::Slowness;
use state::State;

/// Routes over the guard stay unless others strain the busiest backend less by this factor.
const NO_LESS_STRAINED: f64 = 1.1;
/// To one request for a backend that answers nothing, so many of its class go to the one that gets the most.
const TRIALS: u32 = 50;
/// How often the time for which it lets go is doubled at most.
const MAX_DOUBLINGS: u32 = 3;

/// The law.
#[derive(Clone, Debug)]
pub struct Placement {
    slo: Slo,
    tuning: PlacementTuning,
    state: State,
    limits: Limits,
    /// The routes in force; `None` while least connections is.
    routes: Option<Routes>,
    /// How much of its limit the busiest backend was to use under them.
    strain: f64,
    /// Periods in a row in which the SLO was missed unexplained.
    late: u32,
    /// Periods for which it lets go yet.
    let_go: u32,
    /// How often it has let go without a long good time in between.
    times: u32,
    /// Periods since it last let go in which it placed.
    good: u32,
}

impl Placement {
    const NAME: &'static str = "placement";

    /// The law for an SLO and a plant.
    ///
    /// # Errors
    /// A plant without the lever, a parameter outside its range, no machines, a machine of a kind that has no figures.
    pub fn new(slo: Slo, plant: &Plant, tuning: PlacementTuning) -> Result<Self, LawError> {
        if let Some(error) = Self::objections(&tuning).into_iter().next() {
            return Err(error);
        }
        tuning.check().map_err(LawError::of(Self::NAME))?;
        if plant.range(Lever::Placement).is_none() {
            let why = stack::missing(Self::NAME, Lever::Placement);
            return Err(LawError::new("law.name", why));
        }
        Ok(Self {
            slo,
            tuning,
            state: State::default(),
            limits: Limits::default(),
            routes: None,
            strain: 0.0,
            late: 0,
            let_go: 0,
            times: 0,
            good: 0,
        })
    }

    /// What it objects to on every machine, beside what is outside its range.
    pub(crate) fn objections(tuning: &PlacementTuning) -> Vec<LawError> {
        if tuning.machines.is_empty() {
            let why = "names no machine: give the kind of each backend by its URL, as in { \"http://10.0.0.1:8080\" = \"xeon\" }, and each kind's \
                       figures in [law.placement.kinds.xeon], which `headroom place --law` prints from a profile";
            return vec![LawError::new("law.placement.machines", why)];
        }
        let unknown = tuning
            .machines
            .iter()
            .filter(|(_, kind)| !tuning.kinds.contains_key(*kind));
        unknown
            .map(|(url, kind)| {
                let key = format!("law.placement.machines.{url}");
                LawError::new(
                    key,
                    format!("is {kind:?}, of which nothing is known: give [law.placement.kinds.{kind}]"),
                )
            })
            .collect()
    }

    /// The latency that the model may predict of each class at the SLO's percentile.
    fn allowed(&self) -> Seconds {
        self.slo.target() * self.tuning.guard
    }

    /// Least connections, and why.
    fn let_be(&mut self, reason: Reason) -> Decision {
        self.routes = None;
        Decision {
            reasons: vec![reason],
            ..Decision::of(Setting::default().with(Lever::Placement, Some(0.0)))
        }
    }

    /// The backends in service that answer nothing.
    fn silent(&self) -> Vec<usize> {
        let backends = self.state.backends.iter().enumerate();
        let silent = backends.filter(|(_, one)| one.in_service && one.silent);
        silent.map(|(at, _)| at).collect()
    }

    /// Sends each of these backends one request at a time, and only now and then one of a class: what answers is relied on again.
    fn try_out(&self, routes: &mut Routes, silent: &[usize]) {
        for (weights, most) in routes.weights.iter_mut().zip(&mut routes.most_in_flight) {
            let heaviest = weights.iter().copied().max().unwrap_or(0);
            if heaviest == 0 {
                continue;
            }
            for at in silent {
                (weights[*at], most[*at]) = (heaviest.div_ceil(TRIALS), 1);
            }
        }
    }

    /// Whether the SLO was missed for too long under routes of which the model says that they keep it.
    fn lets_go(&mut self, observation: &Observation, model: Option<&Model>) -> bool {
        // Of a period in which no request ended, the age of the oldest tells.
        let judged = observation.traffic.as_ref().and_then(|traffic| {
            let latency = traffic.latency.map(|latency| latency.at_slo);
            latency.or(traffic.oldest_in_flight)
        });
        let missed = judged.is_some_and(|latency| latency > self.slo.target());
        let explained = match (model, &self.routes) {
            (Some(model), Some(routes)) => model.strain(routes) > 1.0,
            _ => true,
        };
        self.late = match (missed, explained) {
            (true, false) => self.late + 1,
            (true, true) => self.late,
            (false, _) => 0,
        };
        self.good += 1;
        if self.good > self.tuning.let_go_periods * 8 {
            self.times = 0;
        }
        if self.late < self.tuning.late_periods {
            return false;
        }
        self.let_go = self.tuning.let_go_periods << self.times.min(MAX_DOUBLINGS);
        (self.times, self.late, self.good) = (self.times + 1, 0, 0);
        true
    }

    /// The routes for the next period, of a model that has classes to place.
    fn place(&mut self, model: &Model) -> Decision {
        let backends = self.state.backends.len();
        let kept = self
            .routes
            .take()
            .map(|routes| (model.strain(&routes), model.work_w(&routes), routes));
        let best = model.best(backends);
        // Over the guard, routes stay where others would not be much less so.
        let bearable = best
            .as_ref()
            .map_or(1.0, |best| (best.strain * NO_LESS_STRAINED).max(1.0));
        // And none is so busy that its queue only grows, where it need not be.
        let least_busy = best.as_ref().map_or(0.0, |best| best.busiest);
        let serves = |routes: &Routes| model.busiest(routes) <= least_busy.max(MAX_LIMIT.get());
        let (rule, routes, work_w, strain) = match (kept, best) {
            (Some((strain, work_w, routes)), best)
                if strain <= bearable
                    && serves(&routes)
                    && best.as_ref().is_none_or(|best| {
                        best.work_w > work_w * (1.0 - self.tuning.least_gain) || best.strain > strain.max(1.0)
                    }) =>
            {
                ("placement-stays", routes, work_w, strain)
            }
            (_, Some(best)) if best.strain > 1.0 => {
                ("placed-over-guard", best.routes, best.work_w, best.strain)
            }
            (_, Some(best)) => ("placed", best.routes, best.work_w, best.strain),
            (_, None) => {
                let text =
                    "the backends cannot serve what comes in: each request goes as the gateway balances";
                return self.let_be(Reason::new("placement-overloaded", text.to_owned(), &[]));
            }
        };
        let even_w = model.work_w(&Routes::default());
        let busiest = model.busiest(&routes);
        let (not_needed, idle_w) = model.not_needed();
        let slowest = |factor: fn(&Slowness) -> f64| {
            let in_service = self.state.backends.iter().filter(|one| one.in_service);
            in_service.map(|one| factor(&one.slow)).fold(0.0, f64::max)
        };
        let silent = self.silent();
        let text = format!(
            "{}: the work draws {work_w:.1} W, spread evenly {even_w:.1} W; the busiest backend is {:.0} % busy, and {not_needed} could be off, \
             which draw {idle_w:.1} W idle{}",
            match rule {
                "placed" => "placed by size",
                "placed-over-guard" =>
                    "placed by size over the guard, under which the backends cannot serve every class",
                _ => "the routes stay",
            },
            busiest * 100.0,
            match &silent[..] {
                [] => String::new(),
                silent => {
                    let urls: Vec<&str> = silent
                        .iter()
                        .map(|at| self.state.backends[*at].url.as_str())
                        .collect();
                    format!(
                        "; {} answered none of the requests in flight there and is sent single ones until it does",
                        urls.join(", ")
                    )
                }
            }
        );
        let path = self
            .state
            .path
            .get(Seconds::from_millis(self.tuning.path_ms), self.allowed());
        let numbers = [
            ("work_w", work_w),
            ("even_w", even_w),
            ("saved_w", even_w - work_w),
            ("busiest", busiest),
            ("could_be_off", f64::from(not_needed)),
            ("could_be_off_idle_w", idle_w),
            ("slowest_factor", slowest(|slow| slow.cpu)),
            ("slowest_link_factor", slowest(|slow| slow.link)),
            ("path_ms", path.as_millis()),
            ("silent", silent.len() as f64),
        ];
        let most_in_flight = model.most_in_flight(&routes, backends, self.slo, self.allowed(), path);
        (self.routes, self.strain) = (Some(routes.clone()), strain);
        let mut in_force = Routes {
            most_in_flight,
            ..routes
        };
        self.try_out(&mut in_force, &silent);
        Decision {
            routes: Some(in_force),
            reasons: vec![Reason::new(rule, text, &numbers)],
            ..Decision::of(Setting::default().with(Lever::Placement, Some(1.0)))
        }
    }
}

impl Law for Placement {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn levers(&self) -> &[Lever] {
        &[Lever::Placement]
    }

    fn is_informed(&self, observation: &Observation) -> bool {
        observation.traffic.is_some() && observation.sizes.is_some()
    }

    fn guard(&self) -> Option<Seconds> {
        Some(self.allowed())
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let sizes = observation
            .sizes
            .as_ref()
            .filter(|_| observation.length > Seconds::ZERO);
        let Some(sizes) = sizes else {
            let text = "no gateway told the sizes of answers: each request goes as the gateway balances";
            return self.let_be(Reason::new("placement-no-sizes", text.to_owned(), &[]));
        };
        let allowed = self.allowed();
        let observed = self
            .state
            .observe(sizes, observation.length, allowed, &self.tuning);
        if let Err(url) = observed {
            let text = format!(
                "{url} is no machine of law.placement.machines: each request goes as the gateway balances"
            );
            return self.let_be(Reason::new("placement-unknown-backend", text, &[]));
        }
        if self.routes.is_none() {
            self.state.forget_tails();
        } else if observation.in_force.get(Lever::Placement) == Some(1.0) {
            self.state.learn_tails(sizes, allowed, self.strain <= 1.0);
        }
        if self.state.periods <= self.tuning.warm_up_periods {
            let text = "rates and sizes are observed first: each request goes as the gateway balances";
            return self.let_be(Reason::new("placement-warm-up", text.to_owned(), &[]));
        }
        let model = Model::new(&self.state, self.slo, self.tuning.guard, &mut self.limits);
        if self.let_go > 0 {
            self.let_go -= 1;
        } else if !self.lets_go(observation, model.as_ref()) {
            return match model.filter(Model::has_classes) {
                Some(model) => self.place(&model),
                None => {
                    let text = "nothing that can be placed came in, or no backend is in service: each request goes as the gateway balances";
                    self.let_be(Reason::new("placement-nothing", text.to_owned(), &[]))
                }
            };
        }
        let left = f64::from(self.let_go);
        let text = format!(
            "the SLO was missed though the model says that these routes keep it: each request goes as the gateway balances, for {left} periods more"
        );
        self.let_be(Reason::new("placement-late", text, &[("periods_left", left)]))
    }

    /// What is learned of machines stays true; what comes in is observed anew.
    fn forget(&mut self) {
        (self.routes, self.late) = (None, 0);
        self.state.periods = 0;
    }
}

#[cfg(test)]
mod tests;
