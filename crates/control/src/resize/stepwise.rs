//! The static and the dynamic controller: one server more where the arrival rate exceeds the capacity of those that serve,
//! one less where one can be spared.

use super::tuning::ResizeTuning;
use super::{Cause, PowerState, Resize};
use crate::capacity::Capacity;
use crate::decision::{Decision, Reason};
use crate::law::Law;
use crate::observation::{NodeObservation, Observation};
use crate::parameter::{Bound, OutOfRange, Parameters};
use headroom_units::{Lever, PerSecond};

/// Where a server's capacity is taken from.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Basis {
    /// The same for every server, always.
    Fixed(PerSecond),
    /// Each server's online estimate.
    Online,
}

/// The controller of Section 7.5. A server of which nothing is known yet, or only what it takes at least, counts as the
/// mean of those of which more is known, for all have the same hardware and serve the same requests (Section 3). While of
/// all that are seen no more is known than what they take at least, none has been in any difficulty, and no server is
/// started. Where the queue of the one server that is left cannot be read, nothing is known of the demand: all are started, and
/// go again, for as long as that lasts; with `min_servers` 2 another queue is there to be read. Servers that accept at once whatever comes never are in any that their accept queue would show.
#[derive(Clone, Debug)]
pub struct Stepwise {
    basis: Basis,
    tuning: ResizeTuning,
    /// Since when a server has been one too many.
    spare_since_s: Option<f64>,
    /// Since when nothing could be decided.
    blind_since_s: Option<f64>,
    /// Since when nothing has been known of one of those that take requests.
    unseen_since_s: Option<f64>,
    /// When the servers that take requests last became more.
    joined_s: f64,
    taking: Option<usize>,
    target: usize,
    /// What came when servers last took it.
    before: Option<Before>,
}

/// What came while servers took requests.
#[derive(Clone, Copy, Debug)]
struct Before {
    at_s: f64,
    arriving: f64,
    /// What one of them takes.
    each: f64,
}

/// What the servers that take requests take.
struct Together {
    /// All of them.
    sum: f64,
    /// The largest of one.
    largest: f64,
    /// Whether that of one is known exactly: it was in difficulty.
    proven: bool,
    /// Whether nothing is known of one.
    unseen: bool,
}

impl Stepwise {
    /// The static controller: every server has this capacity.
    ///
    /// # Errors
    /// A parameter outside its range.
    pub fn fixed(capacity: PerSecond, tuning: ResizeTuning) -> Result<Self, OutOfRange> {
        Bound::Positive.check("capacity_per_s", capacity.get())?;
        Self::new(Basis::Fixed(capacity), tuning)
    }

    /// The dynamic controller: every server has the capacity that was estimated online.
    ///
    /// # Errors
    /// A parameter outside its range.
    pub fn online(tuning: ResizeTuning) -> Result<Self, OutOfRange> {
        Self::new(Basis::Online, tuning)
    }

    fn new(basis: Basis, tuning: ResizeTuning) -> Result<Self, OutOfRange> {
        tuning.check()?;
        Ok(Self {
            basis,
            tuning,
            spare_since_s: None,
            blind_since_s: None,
            unseen_since_s: None,
            joined_s: f64::NEG_INFINITY,
            taking: None,
            target: tuning.min_servers,
            before: None,
        })
    }

    /// The capacity of the servers that take requests. `None` where of none is anything known.
    fn capacity(&self, servers: &[NodeObservation]) -> Option<Together> {
        let taking = servers.iter().filter(|one| one.state.is_capacity());
        let found: Vec<Capacity> = taking
            .map(|one| match self.basis {
                Basis::Fixed(capacity) => Capacity::Exact(capacity),
                Basis::Online => one.capacity,
            })
            .collect();
        let mean = |of: &dyn Fn(&Capacity) -> Option<f64>| {
            let all: Vec<f64> = found.iter().filter_map(of).collect();
            (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
        };
        let exact = mean(&|one| one.met().map(PerSecond::get));
        let other = exact.or_else(|| mean(&|one| one.value().map(PerSecond::get)))?;
        let each = found.iter().map(|one| match one {
            Capacity::Exact(value) | Capacity::About(value) => value.get(),
            // Without an exact one each counts as what it has shown itself.
            Capacity::LowerBound(value) if exact.is_none() => value.get(),
            Capacity::LowerBound(value) => value.get().max(other),
            Capacity::Presumed(_) | Capacity::Unknown => other,
        });
        Some(Together {
            sum: each.clone().sum(),
            largest: each.fold(0.0, f64::max),
            proven: exact.is_some(),
            unseen: found.contains(&Capacity::Unknown),
        })
    }

    /// No server takes requests. That nothing arrives at any is not that nobody comes: as many as took what came before, at once. `None`
    /// where none ever did.
    fn outage(&mut self, now_s: f64, arriving: f64, booting: usize, all: usize) -> Option<Resize> {
        let Before {
            at_s,
            arriving: came,
            each,
        } = self.before?;
        let needed = (came.max(arriving) / each).ceil().max(1.0).min(all as f64) as usize;
        let started = needed.min(self.tuning.starts_in_outage);
        self.target = started.max(booting).max(self.tuning.min_servers);
        let ago_s = now_s - at_s;
        let text = format!(
            "no server takes requests, {came:.1}/s came {ago_s:.0} s ago and one took {each:.1}: {} servers, {booting} on their way",
            self.target.min(all)
        );
        let numbers = [
            ("arrival_rate_per_s", arriving),
            ("came_per_s", came),
            ("each_per_s", each),
            ("ago_s", ago_s),
            ("booting", booting as f64),
        ];
        Some(self.answer(all, "outage", text, &numbers))
    }

    /// Nothing can be decided: hold, and after a while everything on.
    fn blind(&mut self, now_s: f64, all: usize, what: &str) -> Resize {
        let since_s = *self.blind_since_s.get_or_insert(now_s);
        let blind_s = now_s - since_s;
        let numbers = [("blind_s", blind_s)];
        if blind_s <= self.tuning.blind_s {
            let text = format!("{what} for {blind_s:.1} s: {} servers as before", self.target);
            return self.answer(all, "blind-hold", text, &numbers);
        }
        self.target = all;
        let text = format!("{what} for {blind_s:.1} s: all {all} servers on");
        self.answer(all, "blind-full", text, &numbers)
    }

    fn answer(
        &mut self,
        all: usize,
        rule: &'static str,
        text: String,
        numbers: &[(&'static str, f64)],
    ) -> Resize {
        self.target = self.target.min(all).max(self.tuning.min_servers.min(all));
        if rule != "sparing" {
            self.spare_since_s = None;
        }
        Resize {
            servers: self.target,
            reason: Reason::new(rule, text, numbers),
        }
    }

    fn resize(&mut self, observation: &Observation) -> Resize {
        let now_s = observation.at.get();
        let all = observation.nodes.len();
        let count =
            |state: fn(PowerState) -> bool| observation.nodes.iter().filter(|one| state(one.state)).count();
        let taking = count(PowerState::is_capacity);
        let booting = count(|state| state == PowerState::Booting);
        // At the first call the servers that are found serving have long been warm.
        if self.taking.is_some_and(|before| taking > before) {
            self.joined_s = now_s;
        }
        if self.taking.is_none() {
            self.target = taking + booting;
        }
        self.taking = Some(taking);

        let Some(arriving) = observation
            .demand()
            .map(PerSecond::get)
            .filter(|rate| *rate >= 0.0 && rate.is_finite())
        else {
            return self.blind(now_s, all, "the arrival rate is unavailable");
        };
        if taking == 0 {
            self.blind_since_s = None;
            if let Some(outage) = self.outage(now_s, arriving, booting, all) {
                return outage;
            }
            // Whatever a server takes, one is more than none.
            self.target = booting.max(self.tuning.min_servers);
            let rule = if booting > 0 { "on-its-way" } else { "grow" };
            let text = format!(
                "{arriving:.1}/s arrive and no server takes them: {} servers",
                self.target
            );
            return self.answer(all, rule, text, &[("arrival_rate_per_s", arriving)]);
        }
        let known = self.capacity(&observation.nodes);
        if known.is_none() && arriving == 0.0 {
            self.blind_since_s = None;
            let text = "nothing arrives, and no server's capacity is estimated: as before".to_owned();
            return self.answer(all, "fits", text, &[("arrival_rate_per_s", arriving)]);
        }
        let Some(Together {
            sum: capacity,
            largest,
            proven,
            unseen,
        }) = known
        else {
            return self.blind(now_s, all, "no server's capacity is estimated");
        };
        self.blind_since_s = None;

        let unseen_s = match unseen {
            true => now_s - *self.unseen_since_s.get_or_insert(now_s),
            false => {
                self.unseen_since_s = None;
                0.0
            }
        };
        let usable = capacity * (1.0 - self.tuning.margin);
        let without_one = (capacity - largest) * (1.0 - self.tuning.margin);
        let numbers = [
            ("arrival_rate_per_s", arriving),
            ("capacity_per_s", capacity),
            ("usable_per_s", usable),
            ("taking_requests", taking as f64),
            ("booting", booting as f64),
        ];
        let load = format!("{arriving:.1} arrive and {taking} servers take {usable:.1}/s");
        let each = usable / taking as f64;
        let lost = count(|state| state == PowerState::Failed(Cause::Lost));
        if arriving > 0.0 && each > 0.0 {
            self.before = Some(Before {
                at_s: now_s,
                arriving,
                each,
            });
        }
        let warm_s = now_s - self.joined_s;
        if warm_s < self.tuning.warm_up_s {
            let text = format!("{load}: the last to join has {warm_s:.1} s of its warm-up");
            return self.answer(all, "warming-up", text, &numbers);
        }
        if arriving > usable {
            if taking == all {
                self.target = all;
                let text = format!("{load}: there is no other server");
                return self.answer(all, "all-on", text, &numbers);
            }
            // One that has just joined is soon seen; of one that is not, nobody knows whether it is in difficulty.
            let observation = unseen_s <= self.tuning.blind_s;
            if !proven && observation && taking + booting >= self.tuning.min_servers.min(all) {
                self.target = taking + booting;
                let text = format!(
                    "{arriving:.1} arrive, and {taking} servers have taken {capacity:.1}/s at least without any difficulty: \
                     as before"
                );
                return self.answer(all, "unproven", text, &numbers);
            }
            // What one server takes is what the mean of those that serve takes; booting ones are no capacity, but need
            // not be ordered twice.
            let needed = if each > 0.0 {
                (arriving / each).ceil().min(all as f64) as usize
            } else {
                all
            };
            // Those that were lost are replaced together.
            let at_once = self
                .tuning
                .starts_at_once
                .max(lost.min(self.tuning.starts_in_outage));
            let allowed = taking + at_once;
            if booting >= at_once || taking + booting >= needed {
                self.target = taking + booting;
                return self.answer(
                    all,
                    "on-its-way",
                    format!("{load}: {booting} on their way"),
                    &numbers,
                );
            }
            self.target = needed.min(allowed);
            let text = format!("{load}: {} servers", self.target.min(all));
            return self.answer(all, "grow", text, &numbers);
        }
        self.target = taking + booting;
        if booting > 0 {
            return self.answer(
                all,
                "on-its-way",
                format!("{load}: {booting} on their way"),
                &numbers,
            );
        }
        if taking < self.tuning.min_servers.min(all) {
            let text = format!("{load}: the fewest that are on are {}", self.tuning.min_servers);
            return self.answer(all, "grow", text, &numbers);
        }
        if lost > 0 {
            let text = format!("{load}: {lost} lost, and what came to these may come again");
            return self.answer(all, "fits", text, &numbers);
        }
        if taking <= self.tuning.min_servers || arriving > without_one {
            return self.answer(
                all,
                "fits",
                format!("{load}: enough, and none to spare"),
                &numbers,
            );
        }
        let spare_s = now_s - *self.spare_since_s.get_or_insert(now_s);
        if spare_s < self.tuning.spare_for_s {
            let text = format!("{load}: one could be spared for {spare_s:.1} s");
            return self.answer(all, "sparing", text, &numbers);
        }
        self.target = taking - 1;
        let text = format!("{load}, without one {without_one:.1}/s: {} servers", self.target);
        self.answer(all, "shrink", text, &numbers)
    }
}

impl Law for Stepwise {
    fn name(&self) -> &'static str {
        match self.basis {
            Basis::Fixed(_) => "static",
            Basis::Online => "dynamic",
        }
    }

    fn levers(&self) -> &'static [Lever] {
        &[Lever::Servers]
    }

    fn is_informed(&self, observation: &Observation) -> bool {
        observation.demand().is_some()
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        self.resize(observation).into()
    }

    fn forget(&mut self) {
        (self.spare_since_s, self.blind_since_s, self.unseen_since_s) = (None, None, None);
    }
}

#[cfg(test)]
#[path = "stepwise_tests.rs"]
mod tests;
