//! How many servers: as many as keep the SLO over all that the load may grow to, and no more for longer than a boot is worth.

use super::Joint;
use crate::growth::When;
use crate::headroom::choose::Demand;
use crate::observation::Observation;

/// The load is taken to grow, within a boot, beyond the rates that are looked at with so many times the probability with which a
/// period may be late; what is beyond the first, which reasons name, is taken for that.
const GROWN_BEYOND: [f64; 6] = [1.0, 2.0, 5.0, 10.0, 25.0, 100.0];
/// Servers beyond the fewest that are safe which are tried, in case they are cheaper at a lower frequency.
const MORE_SERVERS: usize = 3;
/// What is less than this share of what decides is not looked at.
const IGNORED: f64 = 0.01;
/// Requests wait for as long as the target when so much of it is left over on the mean: arrivals come in bunches, and the queues of
/// servers differ.
const EACH_WAITS: f64 = 0.3;
/// The load grows to more within a boot as often as to less.
const EVEN_ODDS: f64 = 0.5;

/// How many servers, and what decided it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerPlan {
    /// So many are to be on.
    pub(super) on: usize,
    /// The fewest that keep the SLO over all that the load may grow to within a boot.
    pub(super) safe: usize,
    /// Of these or some more, those that are the cheapest.
    pub(super) cheapest: usize,
    /// The fewest that keep it at what the load may have grown to at the end of a boot: no more are started.
    pub(super) at_end: usize,
    /// The probability that a period is late with one less than are safe; `None` where it is not known, or none is less.
    pub(super) one_less_late: Option<f64>,
    /// The highest rate that is looked at, requests a second; `None` where it is not known yet.
    pub(super) grown_to: Option<f64>,
}

impl Joint {
    /// How many servers are to be on from now on, where a share `allowed` of the periods may be late.
    pub(super) fn plan_servers(
        &mut self,
        observation: &Observation,
        demand: &Demand,
        allowed: f64,
    ) -> ServerPlan {
        let (all, floor) = (self.draw.servers(), self.floor());
        let (safe, one_less_late) = self.fewest_safe(When::Within, demand, allowed, floor);
        let (at_end, _) = self.fewest_safe(When::AtEnd, demand, allowed, floor);
        let most = (safe + MORE_SERVERS).min(all);
        let cheapest = (safe..=most)
            .map(|servers| self.best_point(servers, demand, allowed))
            .min_by(|a, b| a.watts.total_cmp(&b.watts))
            .map_or(safe, |point| point.servers);
        let away = self.draw.break_even_s(all - 1) / observation.length.get().max(1e-3);
        let kept = self
            .needed
            .observe(observation.period, cheapest, away as u64)
            .max(safe);
        ServerPlan {
            // Those that serve, boot or go: none more than these is started for what may come before it could serve.
            on: kept.min(self.ordered(observation).max(at_end)),
            safe,
            cheapest,
            at_end,
            one_less_late,
            grown_to: self.grown(When::Within).and_then(|cases| Some(cases.first()?.0)),
        }
    }

    /// The rates that the load grows to while another server boots, or until it has, the highest first, each with the probability that it grows to
    /// that and no further; `None` where nothing is known.
    pub(super) fn grown(&self, when: When) -> Option<Vec<(f64, f64)>> {
        let growth = self.growth.as_ref()?;
        let beyond = GROWN_BEYOND.map(|times| (times * self.tuning.late).min(EVEN_ODDS));
        let rates = growth.highest(when, &beyond)?;
        let surge = growth.rate()? * self.tuning.surge;
        let mut before = 0.0;
        let each = rates.iter().zip(beyond).map(|(rate, beyond)| {
            let share = beyond - std::mem::replace(&mut before, beyond);
            (rate.max(surge), share)
        });
        let mut cases: Vec<(f64, f64)> = each.collect();
        // The rest of the time it does not exceed the last.
        if let Some(last) = cases.last_mut() {
            last.1 += 1.0 - before;
        }
        Some(cases)
    }

    /// The probability that a period is late with so many servers at full speed when the load has grown so, the highest rate
    /// first; no further than `enough`, and to within a part of what is `allowed`.
    pub(super) fn late_when_grown(
        &mut self,
        demand: &Demand,
        grown: &[(f64, f64)],
        servers: usize,
        (allowed, enough): (f64, f64),
    ) -> f64 {
        let cores = self.draw.cores(servers);
        let (mut late, mut rest) = (0.0, 1.0);
        for (rate, share) in grown {
            let grows = rate / demand.rate.max(1e-9);
            // Averaged, and without what is left over or surprised just now: one period's noise must start no server.
            let grown = Demand {
                rate: *rate,
                cases: demand
                    .cases
                    .iter()
                    .map(|(rate, share)| (rate * grows, *share))
                    .collect(),
                backlog: 0.0,
                surprise: 1.0,
                ..demand.clone()
            };
            let known = self.learned().late(&grown, cores, 1.0) * self.keeper.truth();
            let each = known.max(self.falls_behind(*rate, cores, demand));
            late += share * each;
            rest -= share;
            // With less load it is late no more often.
            if late > enough || each * rest < IGNORED * allowed {
                break;
            }
        }
        late
    }

    /// The share of the time until another server could serve in which requests are late because what is left over grows: it takes
    /// `T c / (λ - c)` until so much is left that a request waits for as long as the target.
    fn falls_behind(&self, rate: f64, cores: f64, demand: &Demand) -> f64 {
        let capacity = cores / self.cost.at(1.0);
        let excess = rate - capacity;
        if excess <= 0.0 {
            return 0.0;
        }
        let horizon_s = self.horizon(demand.length) as f64 * demand.length;
        let in_time_s = EACH_WAITS * self.slo.target().get() * capacity / excess;
        (1.0 - in_time_s / horizon_s).max(0.0)
    }

    /// The fewest servers, of this many at least, that keep the SLO at full speed over all that the load may grow to then, and the
    /// probability that a period is late with one less; `None` where there is no less, or nothing is known.
    pub(super) fn fewest_safe(
        &mut self,
        when: When,
        demand: &Demand,
        allowed: f64,
        least: usize,
    ) -> (usize, Option<f64>) {
        let all = self.draw.servers();
        let learned = self.observed_s >= self.tuning.learn_s;
        let Some(grown) = self.grown(when).filter(|_| learned) else {
            return (all, None);
        };
        let (mut late, mut fits) = (0, all);
        while fits - late > 1 {
            let middle = late + (fits - late) / 2;
            match self.late_when_grown(demand, &grown, middle, (allowed, allowed)) <= allowed {
                true => fits = middle,
                false => late = middle,
            }
        }
        // Servers that are lost once are lost again: their cause is seldom gone with them.
        let spare = self.tuning.spare.max(usize::from(self.spare_for > 0));
        let safe = (fits + spare).min(all).max(least);
        let with_one_less =
            (safe > 1).then(|| self.late_when_grown(demand, &grown, safe - 1, (allowed, 1.0)));
        (safe, with_one_less)
    }
}
