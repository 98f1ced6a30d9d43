//! The service at work.

mod control;
mod path;

use super::batcher::Batcher;
use super::cache::Lru;
use super::content::Content;
use super::counts::Counts;
use super::machine::Machine;
use super::scenario::TiersScenario;
use super::totals::{TierTotals, TiersSample, TiersTotals};
use super::users::{Stage, Users};
use crate::energy::EnergyByCause;
use crate::error::RunError;
use crate::heap::Heap;
use crate::histogram::LatencyHistogram;
use crate::server::Server;
use crate::world::Controller;
use headroom_control::{Decision, Observation, Plant, Slo};
use headroom_units::{Joules, Seconds};
use std::collections::{HashMap, VecDeque};

/// Tiers.
const TIERS: usize = 3;

/// One period, for whoever watches.
#[derive(Clone, Copy, Debug)]
pub struct TiersStep<'a> {
    /// What the law was given.
    pub observation: &'a Observation,
    /// What it answered.
    pub decision: &'a Decision,
    /// Users at the end of the period.
    pub users: u32,
}

/// Runs the service under a law; `sink` is given each period. The same scenario, law and seed give the same run, and users draw the
/// same under every law.
///
/// # Errors
/// [`RunError::Scenario`] where the scenario is no world, [`RunError::TooManyEvents`] where the run would not end,
/// [`RunError::Account`] where requests, times or energies do not add up, which would be an error of the simulator.
pub fn run(
    scenario: &TiersScenario,
    law: &mut dyn Controller,
    seed: u64,
    sink: &mut dyn FnMut(&TiersStep<'_>),
) -> Result<TiersTotals, RunError> {
    scenario.check()?;
    World::new(scenario, seed)?.run(law, sink)
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Tier(usize),
    Delay,
    Release,
    Think,
    Users,
    WarmUp,
    Sample,
    Period,
}

/// Where a reading was taken last.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    counts: Counts,
    energy: EnergyByCause,
    by_frequency: Joules,
    /// Of each tier.
    busy_core_s: [f64; TIERS],
    job_s: [f64; TIERS],
    work_s: [f64; TIERS],
    requests: [u64; TIERS],
}

struct World<'a> {
    scenario: &'a TiersScenario,
    plant: Plant,
    slo: Slo,
    now_s: f64,
    content: Content,
    users: Users,
    /// Users that are there, and the step of the list that comes next.
    present: u32,
    next_users: usize,
    thinking: Heap<u32>,
    batcher: Batcher,
    cache: Option<Lru>,
    /// Who fetches what, where others wait for it.
    fetching: HashMap<u64, u32>,
    /// When an object was last changed: what was fetched before that is not stored.
    changed_s: HashMap<u64, f64>,
    free_workers: u32,
    /// Who waits for a worker, in order.
    waiting: VecDeque<u32>,
    tiers: [Server; TIERS],
    due_s: [f64; TIERS],
    tier_requests: [u64; TIERS],
    /// Busy cores of all tiers.
    busy: [usize; TIERS],
    delayed: Heap<u32>,
    machine: Machine,
    in_flight: u32,
    counts: Counts,
    counted_s: f64,
    latencies: LatencyHistogram,
    all_latencies: LatencyHistogram,
    period: u64,
    period_began_s: f64,
    period_ends_s: f64,
    period_reading: Reading,
    sample: u64,
    sample_reading: Reading,
    warm_up_s: f64,
    warm: Reading,
    samples: Vec<TiersSample>,
}

impl<'a> World<'a> {
    fn new(scenario: &'a TiersScenario, seed: u64) -> Result<Self, RunError> {
        let machine = Machine::new(scenario);
        let speed = machine.level().speed;
        let workers = match scenario.front.workers {
            0 => u32::MAX,
            limit => limit,
        };
        Ok(Self {
            plant: scenario.plant()?,
            slo: scenario.slo()?,
            now_s: 0.0,
            content: Content::new(scenario)?,
            users: Users::new(&scenario.users, seed),
            present: 0,
            next_users: 0,
            thinking: Heap::new(),
            batcher: Batcher::new(scenario.batch.interval_s),
            cache: scenario.cache.map(Lru::new),
            fetching: HashMap::new(),
            changed_s: HashMap::new(),
            free_workers: workers,
            waiting: VecDeque::new(),
            tiers: scenario.cores().map(|cores| Server::new(f64::from(cores), speed)),
            due_s: [f64::INFINITY; TIERS],
            tier_requests: [0; TIERS],
            busy: [0; TIERS],
            delayed: Heap::new(),
            machine,
            in_flight: 0,
            counts: Counts::default(),
            counted_s: 0.0,
            latencies: LatencyHistogram::new(),
            all_latencies: LatencyHistogram::new(),
            period: 0,
            period_began_s: 0.0,
            period_ends_s: scenario.period_s,
            period_reading: Reading::default(),
            sample: 0,
            sample_reading: Reading::default(),
            warm_up_s: scenario.warm_up_s,
            warm: Reading::default(),
            samples: Vec::new(),
            scenario,
        })
    }

    fn run(
        mut self,
        law: &mut dyn Controller,
        sink: &mut dyn FnMut(&TiersStep<'_>),
    ) -> Result<TiersTotals, RunError> {
        let (limit, length_s) = (self.scenario.limits.events, self.scenario.duration_s);
        // A sample or a period that ends with the run is a part of it, whatever the roundings.
        let end_s = length_s * (1.0 + 1e-12);
        let mut events = 0;
        loop {
            let (at_s, next) = self.next();
            if at_s > end_s {
                break;
            }
            events += 1;
            if events > limit {
                return Err(RunError::TooManyEvents {
                    limit,
                    at_s,
                    length_s,
                });
            }
            self.now_s = at_s;
            match next {
                Next::Tier(tier) => self.tier_done(tier),
                Next::Delay => {
                    if let Some((_, user)) = self.delayed.pop() {
                        self.fetched(user);
                    }
                }
                Next::Release => self.release(law, sink),
                Next::Think => {
                    if let Some((_, user)) = self.thinking.pop() {
                        self.send(user);
                    }
                }
                Next::Users => self.change_users(),
                Next::WarmUp => self.end_warm_up(),
                Next::Sample => self.end_sample(),
                Next::Period => self.end_period(law, sink),
            }
            self.take_waiting();
        }
        self.now_s = length_s;
        self.close()
    }

    /// Of what happens at once the first of this list comes first: what ends makes room for what begins.
    fn next(&self) -> (f64, Next) {
        let sample_s = (self.sample + 1) as f64 * self.scenario.sample_s;
        let all = [
            (self.due_s[0], Next::Tier(0)),
            (self.due_s[1], Next::Tier(1)),
            (self.due_s[2], Next::Tier(2)),
            (self.delayed.first_key().unwrap_or(f64::INFINITY), Next::Delay),
            (self.users.step_s(self.next_users), Next::Users),
            (self.batcher.ends_s, Next::Release),
            (self.thinking.first_key().unwrap_or(f64::INFINITY), Next::Think),
            (self.warm_up_s, Next::WarmUp),
            (sample_s, Next::Sample),
            (self.period_ends_s, Next::Period),
        ];
        let mut first = all[0];
        for one in &all[1..] {
            if one.0 < first.0 {
                first = *one;
            }
        }
        first
    }

    /// The next number of users of the list.
    fn change_users(&mut self) {
        let count = self.users.count_of(self.next_users).unwrap_or(self.present);
        self.next_users += 1;
        self.users.grow(count, &self.content);
        self.present = count;
        for user in 0..count {
            if self.users.all[user as usize].stage == Stage::Gone {
                self.think(user);
            }
        }
    }

    /// A user thinks, or goes where there are to be fewer.
    fn think(&mut self, user: u32) {
        if user >= self.present {
            self.users.all[user as usize].stage = Stage::Gone;
            return;
        }
        let think_s = self.users.think(user, &self.content);
        self.thinking.push(self.now_s + think_s, user);
    }

    /// Brings the counts up to now; to be called before anything changes that is integrated over time.
    fn count(&mut self) {
        let dt_s = self.now_s - self.counted_s;
        if dt_s > 0.0 {
            self.counted_s = self.now_s;
            self.counts.length_s += dt_s;
            self.counts.in_flight_s += f64::from(self.in_flight) * dt_s;
            self.counts.interval_s2 += self.batcher.interval_s * dt_s;
            self.counts.hertz_s += self.machine.level().frequency.get() * dt_s;
        }
    }

    fn read(&mut self) -> Reading {
        self.count();
        for tier in &mut self.tiers {
            tier.advance(self.now_s);
        }
        let (energy, by_frequency) = self.machine.read(self.now_s);
        let each = |of: fn(&Server) -> f64| [0, 1, 2].map(|tier| of(&self.tiers[tier]));
        Reading {
            counts: self.counts,
            energy,
            by_frequency,
            busy_core_s: each(Server::busy_core_s),
            job_s: each(Server::job_s),
            work_s: each(Server::work_s),
            requests: self.tier_requests,
        }
    }

    fn end_warm_up(&mut self) {
        self.warm_up_s = f64::INFINITY;
        self.warm = self.read();
        self.all_latencies.clear();
    }

    /// What came must have gone somewhere, and what was drawn must have had a cause.
    fn close(mut self) -> Result<TiersTotals, RunError> {
        let end = self.read();
        let unanswered: f64 = self
            .users
            .all
            .iter()
            .filter(|user| !matches!(user.stage, Stage::Gone | Stage::Thinking))
            .map(|user| self.now_s - user.sent_s)
            .sum();
        let counts = end.counts;
        let (energy, energy_again) = self.machine.both_ways_j();
        let gone = counts.completions + u64::from(self.in_flight);
        let utilised: f64 = end.busy_core_s.iter().sum();
        let accounts = [
            ("requests", counts.arrivals as f64, gone as f64),
            (
                "time in the service (Little's law)",
                counts.in_flight_s,
                counts.response_s + unanswered,
            ),
            ("energy", energy, energy_again),
            ("busy core time", utilised, self.machine.running_s()),
        ];
        for (what, left, right) in accounts {
            if (left - right).abs() > 1e-6 * (1.0 + left.abs()) {
                return Err(RunError::Account { what, left, right });
            }
        }
        let warm = self.warm;
        let counts = end.counts - warm.counts;
        let cores = self.scenario.cores();
        let tier = |tier: usize| TierTotals {
            requests: end.requests[tier] - warm.requests[tier],
            utilisation: (end.busy_core_s[tier] - warm.busy_core_s[tier])
                / (counts.length_s * f64::from(cores[tier])),
            mean_jobs: (end.job_s[tier] - warm.job_s[tier]) / counts.length_s,
            work_s: end.work_s[tier] - warm.work_s[tier],
        };
        Ok(TiersTotals {
            counts,
            latency: self.all_latencies,
            tiers: [0, 1, 2].map(tier),
            energy: end.energy - warm.energy,
            energy_by_frequency: end.by_frequency - warm.by_frequency,
            samples: self.samples,
            periods: self.period,
        })
    }

    /// Since when the oldest request is on its way.
    fn oldest(&self) -> Option<Seconds> {
        let sent = self.users.all.iter();
        let sent = sent.filter(|user| !matches!(user.stage, Stage::Gone | Stage::Thinking));
        let oldest_s = sent.map(|user| user.sent_s).min_by(f64::total_cmp)?;
        Some(Seconds::new(self.now_s - oldest_s))
    }
}
