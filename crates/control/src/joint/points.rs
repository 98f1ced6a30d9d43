//! The cheapest cores and frequency at which so many servers keep the SLO.

use super::Joint;
use crate::headroom::choose::Demand;
use crate::reflex::Planned;
use headroom_units::Hertz;

/// The frequency is limited only where that saves at least this share of the watts: by less the figures do not know that it does.
const WORTH_LIMITING: f64 = 0.02;
/// Cores are parked only where the least that could be saved so is at least this share of the watts.
const WORTH_PARKING: f64 = 0.01;
/// The fewest cores that keep the SLO, and so many times as many, are tried.
const MORE_CORES: [f64; 4] = [1.0, 1.3, 1.7, 2.2];

/// A number of servers with its best cores and frequency.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) servers: usize,
    /// The share of their cores that is not parked.
    pub(super) on: f64,
    pub(super) limit: Option<Hertz>,
    pub(super) pace: f64,
    pub(super) watts: f64,
    pub(super) late: f64,
}

/// The point of a period, and what it was allowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    pub(super) point: Point,
    /// The share of such periods that may be late.
    pub(super) allowed: f64,
    /// How many times as often it may be late by the model, as a reflex saves the rest.
    pub(super) saved_by_reflex: f64,
}

impl Joint {
    /// The cheapest frequency at which this share of the cores of so many servers keeps the SLO; the highest where none does,
    /// and whether one does.
    pub(super) fn best_pace(
        &mut self,
        (servers, on): (usize, f64),
        demand: &Demand,
        allowed: f64,
    ) -> (Point, bool) {
        let cores = self.draw.cores(servers) * on;
        // The slowest that keeps it, by halving: a slower one is later.
        let (mut fits, mut late) = (0, self.paces.len());
        while late - fits > 1 {
            let middle = fits + (late - fits) / 2;
            let pace = self.paces[middle].1;
            match self.learned().fits(demand, cores, pace, allowed) {
                true => fits = middle,
                false => late = middle,
            }
        }
        let rate = demand.rate + demand.backlog;
        let watts = |at: usize| {
            let (limit, pace) = self.paces[at];
            self.draw.watts(servers, on, rate, self.cost.at(pace), limit)
        };
        let cheapest = (0..=fits).min_by(|a, b| watts(*a).total_cmp(&watts(*b)));
        let worth = |at: &usize| watts(*at) <= (1.0 - WORTH_LIMITING) * watts(0);
        let best = cheapest.filter(worth).unwrap_or(0);
        let (limit, pace) = self.paces[best];
        let watts = watts(best);
        let late = self.learned().late(demand, cores, pace);
        let point = Point {
            servers,
            on,
            limit,
            pace,
            watts,
            late,
        };
        (point, fits > 0 || late <= allowed)
    }

    /// The cheapest cores and frequency at which so many servers keep the SLO; everything where nothing does.
    pub(super) fn best_point(&mut self, servers: usize, demand: &Demand, allowed: f64) -> Point {
        let (all, keeps) = self.best_pace((servers, 1.0), demand, allowed);
        if !self.plant.parks() || !keeps {
            return all;
        }
        // As many cores as there is work for, at the frequency chosen: no more can sleep.
        let rate = demand.rate + demand.backlog;
        let cores = self.draw.cores(servers);
        let cost = self.cost.at(all.pace);
        let fewest = (rate * cost / cores).clamp(1.0 / cores, 1.0);
        let least = self.draw.watts(servers, fewest, rate, cost, all.limit);
        if least > (1.0 - WORTH_PARKING) * all.watts {
            return all;
        }
        // Whole cores of each server.
        let step = self.plant.cores().step().get().max(servers as f64) / cores;
        let (mut late, mut fits) = ((fewest / step).floor() as usize, (1.0 / step).floor() as usize);
        while fits > late + 1 {
            let middle = late + (fits - late) / 2;
            let on = middle as f64 * step;
            match self.learned().fits(demand, cores * on, 1.0, allowed) {
                true => fits = middle,
                false => late = middle,
            }
        }
        let mut best = all;
        for more in MORE_CORES {
            let on = (fits as f64 * more).ceil() * step;
            if on >= 1.0 {
                break;
            }
            let (point, keeps) = self.best_pace((servers, on), demand, allowed);
            if keeps && point.watts < best.watts {
                best = point;
            }
        }
        best
    }

    /// The next lower frequency for the same cores, where it is cheaper; the chosen one is the cheapest that may be.
    pub(super) fn next_cheaper(&mut self, chosen: &Point, demand: &Demand) -> Option<Point> {
        let cores = self.draw.cores(chosen.servers) * chosen.on;
        let rate = demand.rate + demand.backlog;
        let slower = |(_, pace): &&(Option<Hertz>, f64)| *pace < chosen.pace;
        let (limit, pace) = *self.paces.iter().find(slower)?;
        let cost = self.cost.at(pace);
        let watts = self.draw.watts(chosen.servers, chosen.on, rate, cost, limit);
        (watts < chosen.watts).then(|| Point {
            limit,
            pace,
            watts,
            late: self.learned().late(demand, cores, pace),
            ..*chosen
        })
    }

    /// The best point of the servers that serve, bolder where a reflex is in time for what the model then expects to be late,
    /// and the reflex planned for it.
    pub(super) fn best_now(
        &mut self,
        servers: usize,
        demand: &Demand,
        allowed: f64,
        in_flight: f64,
    ) -> (Chosen, Option<Planned>) {
        if !self.tuning.reflex {
            let point = self.best_point(servers, demand, allowed);
            return (
                Chosen {
                    point,
                    allowed,
                    saved_by_reflex: 1.0,
                },
                None,
            );
        }
        let cores = self.draw.cores(servers);
        let mut plan = self.reflex.clone();
        let mut with = |law: &mut Self, saved_by_reflex: f64| {
            let point = law.best_point(servers, demand, allowed * saved_by_reflex);
            let at = (cores * point.on, point.pace);
            let planned = plan.plan(&mut law.learned(), demand, at, in_flight);
            let chosen = Chosen {
                point,
                allowed,
                saved_by_reflex,
            };
            (chosen, planned)
        };
        let bold = self.reflex.bold();
        let (mut chosen, mut planned) = with(self, bold);
        if !planned.in_time {
            (chosen, planned) = with(self, 1.0);
        }
        self.reflex = plan;
        (chosen, Some(planned))
    }
}
