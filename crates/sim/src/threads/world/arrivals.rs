//! When queries come.

use super::{Event, World};
use crate::error::RunError;
use crate::threads::scenario::QueryArrivals;
use headroom_workload::random::{Draw, Purpose, Rng};
use std::ops::Range;

/// An open loop: its rate, whose queries it sends, and its own stream of draws.
pub(super) struct Stream {
    rate_per_s: f64,
    members: Vec<Range<u32>>,
    rng: Rng,
}

impl World<'_> {
    /// The clients of each class begin: those without arrivals of their own share the scenario's.
    pub(super) fn begin_arrivals(&mut self, seed: u64) {
        let mut common = Stream {
            rate_per_s: 0.0,
            members: Vec::new(),
            rng: Rng::new(seed, Purpose::Arrivals),
        };
        for number in 0..self.classes.len() {
            let class = &mut self.classes[number];
            let own = class.figures.arrivals.clone();
            match own.as_ref().unwrap_or(&self.scenario.arrivals) {
                QueryArrivals::Closed { think_s, think } => {
                    class.think = Some(think.scaled(*think_s));
                    class.members.clone().for_each(|thread| self.send_later(thread));
                }
                QueryArrivals::Open { rate_per_s } if own.is_some() => self.streams.push(Stream {
                    rate_per_s: *rate_per_s,
                    members: vec![class.members.clone()],
                    // No connection has such a number.
                    rng: Rng::of_user(seed, u32::MAX - number as u32),
                }),
                QueryArrivals::Open { rate_per_s } => {
                    common.rate_per_s = *rate_per_s;
                    common.members.push(class.members.clone());
                }
            }
        }
        if !common.members.is_empty() {
            self.common = Some(self.streams.len());
            self.streams.push(common);
        }
        (0..self.streams.len()).for_each(|stream| self.arrive_later(stream as u32));
    }

    pub(super) fn send_later(&mut self, thread: u32) {
        let class = &self.classes[self.threads[thread as usize].class as usize];
        if let Some(think) = &class.think {
            let think_s = self.threads[thread as usize].drawer.think(think);
            self.events.push(self.now_s + think_s, Event::Sent(thread));
        }
    }

    /// The scenario's own open loop has this times its rate from its next query on.
    pub(super) fn load(&mut self, scale: f64) {
        if let QueryArrivals::Open { rate_per_s } = self.scenario.arrivals
            && let Some(common) = self.common
        {
            self.streams[common].rate_per_s = rate_per_s * scale;
        }
    }

    fn arrive_later(&mut self, number: u32) {
        let stream = &mut self.streams[number as usize];
        let gap_s = stream.rng.exponential() / stream.rate_per_s;
        self.events.push(self.now_s + gap_s, Event::Arrival(number));
    }

    pub(super) fn arrived(&mut self, number: u32) -> Result<(), RunError> {
        self.arrive_later(number);
        let stream = &mut self.streams[number as usize];
        let count: u32 = stream.members.iter().map(|members| members.len() as u32).sum();
        let mut drawn = ((stream.rng.uniform() * f64::from(count)) as u32).min(count - 1);
        let mut of = stream.members.iter();
        let thread = of.find_map(|members| {
            let here = members.len() as u32;
            let found = (drawn < here).then(|| members.start + drawn);
            drawn = drawn.saturating_sub(here);
            found
        });
        thread.map_or(Ok(()), |thread| self.sent(thread))
    }
}
