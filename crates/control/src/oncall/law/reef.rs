//! REEF's regulator as published (Sections 3.3 and 3.4): C online, N by the goal, D by the load limit.

use super::super::delay::{BatchSize, IsrDelay, Round};
use super::super::saturation::{Climb, ClimbPeriod, ClimbState, ClimbTuning};
use super::areas::Areas;
use super::{LEVERS, OncallTuning, Point, ReefTuning, Turns, break_even, cores, most_workers, unknown};
use crate::decision::{Decision, Reason};
use crate::law::Law;
use crate::observation::{Observation, OncallObservation};
use crate::parameter::{OutOfRange, Parameters};
use crate::plant::{Plant, Slo};
use headroom_physics::MachineFigures;
use headroom_units::{Lever, PerSecond, Seconds};
use std::collections::VecDeque;

/// C where nothing was found yet, in workers per core.
const FIRST_PER_CORE: u32 = 1;
/// C_avail in workers per core: C is below the number of physical cores (Section 3.3).
const MOST_PER_CORE: u32 = 1;

/// Periods with queries that waited all the time of which the most is remembered: a minute or so, through the search for C, and not for
/// ever, for queries become longer or shorter.
const REMEMBERED: u64 = 240;

/// The most throughput of the last periods in which queries waited all the time.
#[derive(Clone, Debug, Default)]
struct Saturation {
    seen: u64,
    /// Those that no later one exceeds, with their number.
    most: VecDeque<(u64, PerSecond)>,
}

impl Saturation {
    fn saw(&mut self, throughput: PerSecond) {
        self.seen += 1;
        while self.most.back().is_some_and(|(_, last)| *last <= throughput) {
            self.most.pop_back();
        }
        self.most.push_back((self.seen, throughput));
        if self
            .most
            .front()
            .is_some_and(|(at, _)| at + REMEMBERED <= self.seen)
        {
            self.most.pop_front();
        }
    }

    /// `None` before there was any.
    fn most(&self) -> Option<PerSecond> {
        let (_, most) = self.most.front()?;
        (*most > PerSecond::ZERO).then_some(*most)
    }
}

/// Under a delay a server that is asked less than this share of what it was asked without has clients that wait for their answers.
const SAME_LOAD: f64 = 0.8;
/// Periods in a row in which it was, after which there is no delay for [`FIRST_HOLD`] periods, and twice as long each time again.
const LOST_PERIODS: u32 = 2;
const FIRST_HOLD: u32 = 120;
const MAX_HOLD: u32 = 1_920;

/// Whether a delay loses queries. Ours: the paper takes whatever waits for nothing for idle; but clients that wait for their answers, and
/// are no more than the workers, never wait for a slot, and each delay makes them ask less.
#[derive(Clone, Debug)]
struct Loss {
    /// What was asked without a delay, lately.
    free: PerSecond,
    lower: u32,
    hold: u32,
    next_hold: u32,
}

impl Loss {
    const NONE: Self = Self {
        free: PerSecond::ZERO,
        lower: 0,
        hold: 0,
        next_hold: FIRST_HOLD,
    };

    /// Takes a period, and answers whether there may be no delay now.
    fn saw(&mut self, throughput: PerSecond, delayed: bool) -> bool {
        self.hold = self.hold.saturating_sub(1);
        let is_lower = delayed && throughput.get() < SAME_LOAD * self.free.get();
        self.lower = if is_lower { self.lower + 1 } else { 0 };
        if !delayed {
            self.free = match self.free > PerSecond::ZERO {
                true => PerSecond::new((self.free.get() + throughput.get()) / 2.0),
                false => throughput,
            };
        }
        if self.lower >= LOST_PERIODS {
            (self.lower, self.hold) = (0, self.next_hold);
            self.next_hold = (self.next_hold * 2).min(MAX_HOLD);
        }
        self.hold > 0
    }
}

/// The law.
pub struct Reef {
    slo: Slo,
    plant: Plant,
    tuning: OncallTuning,
    break_even: Option<Seconds>,
    turns: Turns,
    areas: Areas,
    /// C, where it was given.
    concurrency: Option<u32>,
    climb: Option<Climb>,
    batch: BatchSize,
    /// With the most throughput that it was made for.
    delay: Option<(PerSecond, IsrDelay)>,
    saturated: Saturation,
    loss: Loss,
    wanted: Point,
}

impl Reef {
    /// The law for a service with this SLO on this machine.
    ///
    /// # Errors
    /// [`OutOfRange`].
    pub fn new(
        slo: Slo,
        plant: Plant,
        machine: Option<&MachineFigures>,
        tuning: &ReefTuning,
    ) -> Result<Self, OutOfRange> {
        tuning.check()?;
        let concurrency = tuning.concurrency;
        let tuning = tuning.shared();
        let batch = BatchSize::new(tuning.goal.goal(slo), tuning.max_batch)?;
        Ok(Self {
            slo,
            plant,
            break_even: break_even(tuning.break_even_ms, machine),
            turns: Turns::new(&tuning),
            areas: Areas::new(&tuning.areas, plant.cores().max().get().ceil().max(1.0) as u32)?,
            climb: None,
            concurrency,
            wanted: Point::new(concurrency.unwrap_or(1), batch.size()),
            batch,
            delay: None,
            saturated: Saturation::default(),
            loss: Loss::NONE,
            tuning,
        })
    }

    fn climb(&mut self, period: &ClimbPeriod, cores: u32) -> (u32, Reason, bool) {
        if let Some(given) = self.concurrency {
            let workers = given.min(most_workers(&self.plant));
            let text = format!("C = {workers}, as given: law.reef.concurrency");
            return (workers, Reason::new("climb-given", text, &[]), true);
        }
        let most = cores.saturating_mul(MOST_PER_CORE).min(most_workers(&self.plant));
        if self.climb.is_none() {
            // The range is never empty: the parameters of the climb are its defaults.
            self.climb = Climb::new(ClimbTuning::between(1, most.max(1)), cores * FIRST_PER_CORE).ok();
        }
        match &mut self.climb {
            Some(climb) => {
                let (limit, reason) = climb.observe(period);
                (limit, reason, climb.state() != ClimbState::Searching)
            }
            None => (
                cores,
                Reason::new("climb-impossible", "C stays".to_owned(), &[]),
                true,
            ),
        }
    }

    /// D, where the throughput at saturation is known and an idle state pays.
    fn delay(
        &mut self,
        observation: &Observation,
        oncall: &OncallObservation,
        workers: u32,
    ) -> Option<(Seconds, Reason)> {
        let break_even = self.break_even?;
        let saturated = self.saturated.most()?;
        if oncall.rounds == 0 {
            return None;
        }
        let stale = self
            .delay
            .as_ref()
            .is_none_or(|(of, _)| (saturated.get() / of.get() - 1.0).abs() > 0.02);
        if stale {
            let isr = IsrDelay::new(saturated, break_even, Some(self.slo)).ok()?;
            self.delay = Some((saturated, isr));
        }
        let (_, isr) = self.delay.as_mut()?;
        if let Some(latency) = observation.traffic.as_ref().and_then(|traffic| traffic.latency) {
            isr.measured(latency.at_slo);
        }
        let rounds = oncall.rounds as f64;
        let backlog = oncall.always_waiting() > 0;
        let in_force = observation.in_force.get(Lever::RoundDelay).unwrap_or(0.0);
        // For how long a round kept the server busy: by its CPU time on so many cores, else by what it takes at saturation. Where queries
        // always wait, that is all of the time between two delays: whatever else uses the cores, the server has no other.
        let busy = match observation.cpu_time {
            Some(time) => time / rounds / f64::from(workers.min(cores(oncall, &self.plant)).max(1)),
            None => Seconds::new(oncall.queries as f64 / saturated.get() / rounds),
        };
        let between = observation.length / rounds - Seconds::new(in_force);
        let busy = if backlog { busy.max(between) } else { busy };
        let round = Round {
            queries: (oncall.queries as f64 / rounds).round() as u64,
            elapsed: busy,
            backlog,
        };
        let delayed = isr.after(&round);
        let most = Seconds::from_millis(self.tuning.max_delay_ms);
        let delay = match delayed.delay > most {
            true if most >= break_even => most,
            true => Seconds::ZERO,
            false => delayed.delay,
        };
        Some((delay, delayed.reason.of(&[Lever::RoundDelay])))
    }
}

fn lost() -> Reason {
    let text =
        "D = 0: under a delay fewer queries were asked, so that clients wait for their answers".to_owned();
    Reason::new("isr-lost", text, &[]).of(&[Lever::RoundDelay])
}

impl Law for Reef {
    fn name(&self) -> &'static str {
        "reef"
    }

    fn levers(&self) -> &[Lever] {
        &LEVERS
    }

    fn is_informed(&self, observation: &Observation) -> bool {
        observation.oncall.is_some() && observation.traffic.is_some()
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let Some(oncall) = &observation.oncall else {
            return unknown(observation);
        };
        let length = observation.length;
        let throughput = PerSecond::new(match length > Seconds::ZERO {
            true => oncall.queries as f64 / length.get(),
            false => 0.0,
        });
        let no_delay = observation
            .in_force
            .get(Lever::RoundDelay)
            .is_none_or(|delay| delay == 0.0);
        let saturated = oncall.always_waiting() > 0 && no_delay;
        if saturated && self.wanted.is(&observation.in_force) {
            self.saturated.saw(throughput);
        }
        let workers = observation.in_force.get(Lever::Concurrency);
        let period = ClimbPeriod {
            limit: workers.map_or(u32::MAX, |workers| workers as u32),
            throughput,
            length,
            saturated,
        };
        let all = cores(oncall, &self.plant);
        let (workers, of_workers, settled) = match self.areas.is_measuring() {
            true => {
                let text = format!("C = {all} while the cores of areas are measured");
                (all, Reason::new("climb-waits", text, &[]), false)
            }
            false => self.climb(&period, all),
        };
        let latency = observation.traffic.as_ref().and_then(|traffic| traffic.latency);
        // One lever after the other: N while C is searched would compare two things at once.
        let (batch, of_batch) = match settled {
            true => self.batch.observe(latency.map(|latency| latency.at_slo)),
            false => self.batch.observe(None),
        };
        let loses = self.loss.saw(throughput, !no_delay);
        let delay = match loses {
            true => Some((Seconds::ZERO, lost())),
            false => self.delay(observation, oncall, workers),
        };
        let of_delay = delay
            .as_ref()
            .map(|(_, reason)| reason.clone())
            .unwrap_or_else(|| {
                let why = match self.break_even {
                    None => "the machine has no idle state in which a delay would save anything",
                    Some(_) => "the throughput at saturation was not seen yet",
                };
                Reason::new("isr-unknown", format!("D = 0: {why}"), &[]).of(&[Lever::RoundDelay])
            });
        self.wanted = Point {
            workers: Some(workers),
            batch,
            delay: delay.map_or(Seconds::ZERO, |(delay, _)| delay),
        };
        let (grants, of_policy) = self.turns.decide(observation, oncall, self.wanted.batch);
        let (areas, of_areas) = self.areas.decide(observation, self.wanted);
        let own = [
            of_workers.of(&[Lever::Concurrency]),
            of_batch.of(&[Lever::QueryBatch]),
            of_delay,
        ];
        Decision {
            grants,
            areas,
            reasons: own.into_iter().chain(of_policy).chain(of_areas).collect(),
            ..Decision::of(self.wanted.setting())
        }
    }

    fn forget(&mut self) {
        (self.climb, self.delay, self.saturated) = (None, None, Saturation::default());
        self.loss = Loss::NONE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_under_which_fewer_queries_are_asked_is_given_up_for_longer_and_longer() {
        let mut loss = Loss::NONE;
        let mut saw = |throughput: f64, delayed| loss.saw(PerSecond::new(throughput), delayed);
        assert!(!saw(10_000.0, false) && !saw(9_000.0, true) && !saw(200.0, true));
        assert!(saw(200.0, true), "twice in a row");
        assert!((0..FIRST_HOLD - 1).all(|_| saw(10_000.0, false)) && !saw(10_000.0, false));
        assert!(!saw(200.0, true) && saw(200.0, true));
        assert!((0..2 * FIRST_HOLD - 1).all(|_| saw(10_000.0, false)) && !saw(10_000.0, false));
        // A load of the clients' own goes on.
        assert!((0..100).all(|_| !saw(9_500.0, true)));
    }

    #[test]
    fn throughput_at_saturation_is_the_most_of_the_last_periods_that_were_saturated() {
        let mut saturation = Saturation::default();
        assert_eq!(saturation.most(), None);
        for value in [3.0, 9.0, 5.0, 4.0] {
            saturation.saw(PerSecond::new(value));
        }
        assert_eq!(saturation.most(), Some(PerSecond::new(9.0)));
        // Queries became twice as long: what was before is forgotten.
        (0..REMEMBERED - 3).for_each(|_| saturation.saw(PerSecond::new(4.5)));
        assert_eq!(saturation.most(), Some(PerSecond::new(9.0)));
        saturation.saw(PerSecond::new(4.0));
        assert_eq!(saturation.most(), Some(PerSecond::new(5.0)));
        saturation.saw(PerSecond::new(4.0));
        assert_eq!(saturation.most(), Some(PerSecond::new(4.5)));
    }
}
