//! The requests of a run: when each arrives, how much work it is, and, in a closed loop, whose it is.

use crate::heap::Heap;
use headroom_units::Seconds;
use headroom_workload::process::{ArrivalProcess, Loop, OpenLoop, Population};
use headroom_workload::random::{Purpose, Rng};
use headroom_workload::users::{Site, User};
use headroom_workload::{Distribution, Shape};

/// The requests of a run: the next one is asked for, taken, and so on.
#[derive(Clone, Debug)]
pub(crate) enum Requests {
    Open {
        times: OpenLoop<Rng>,
        sizes: Rng,
        size: Distribution,
    },
    Closed(Box<Closed>),
}

impl Requests {
    /// The requests of a process that was checked; sizes have this shape and mean, seconds.
    pub(crate) fn new(process: &ArrivalProcess, size: &Shape, size_s: f64, seed: u64) -> Self {
        let size = size.scaled(size_s);
        match process.start(Rng::new(seed, Purpose::Arrivals)) {
            Loop::Open(times) => Self::Open {
                times,
                sizes: Rng::new(seed, Purpose::Sizes),
                size,
            },
            Loop::Closed(population) => Self::Closed(Box::new(Closed::new(population, size, seed))),
        }
    }

    /// When the next request arrives, seconds of an absolute clock; infinity where none does any more. To be called once
    /// for each arrival of an open loop, in turn with [`Requests::take`].
    #[inline]
    pub(crate) fn next_s(&mut self) -> f64 {
        match self {
            Self::Open { times, .. } => times.next().map_or(f64::INFINITY, Seconds::get),
            Self::Closed(closed) => closed.due.first_key().unwrap_or(f64::INFINITY),
        }
    }

    /// The request that arrives now: its size, and its user.
    #[inline]
    pub(crate) fn take(&mut self) -> (f64, u32) {
        match self {
            Self::Open { sizes, size, .. } => (size.sample(sizes), 0),
            Self::Closed(closed) => closed.take(),
        }
    }

    /// A user's request has been answered, or has failed; whether that makes another arrival due.
    #[inline]
    pub(crate) fn answered(&mut self, now_s: f64, user: u32) -> bool {
        match self {
            Self::Open { .. } => false,
            Self::Closed(closed) => {
                closed.answered(now_s, user);
                true
            }
        }
    }
}

/// A closed loop: users whose number follows a curve, each with a random stream of its own, so that what one draws never
/// depends on the order in which others were answered.
#[derive(Clone, Debug)]
pub(crate) struct Closed {
    population: Population,
    size: Distribution,
    users: Vec<User<Rng>>,
    /// Who will ask, and when.
    due: Heap<u32>,
}

impl Closed {
    fn new(population: Population, size: Distribution, seed: u64) -> Self {
        let most = population.users.iter().copied().max().unwrap_or(0);
        let mut closed = Self {
            population,
            size,
            users: (0..most)
                .map(|user| User::drawn_from(Rng::of_user(seed, user)))
                .collect(),
            due: Heap::new(),
        };
        for user in 0..most {
            closed.come(0, user);
        }
        closed
    }

    fn take(&mut self) -> (f64, u32) {
        // Called only when somebody is due, so there is somebody.
        let (_, user) = self.due.pop().unwrap_or((0.0, 0));
        (self.size.sample(self.users[user as usize].rng()), user)
    }

    fn answered(&mut self, now_s: f64, user: u32) {
        let within_page = self.users[user as usize].has_more();
        let next_s = now_s + self.off_s(user);
        let step = (next_s / self.population.hold_s) as usize;
        let wanted = self.population.users.get(step).is_some_and(|users| *users > user);
        if within_page || wanted {
            self.fetch(next_s, user);
        } else {
            self.come(step.saturating_add(1), user);
        }
    }

    /// The user comes with the next rise of the number of users that includes it, in this step of the curve or later, and
    /// not all at once: as if it had been reading.
    fn come(&mut self, from: usize, user: u32) {
        let Some(rest) = self.population.users.get(from..) else {
            return;
        };
        if let Some(steps) = rest.iter().position(|users| *users > user) {
            let rises_s = (from + steps) as f64 * self.population.hold_s;
            let at_s = rises_s + self.off_s(user);
            self.fetch(at_s, user);
        }
    }

    fn off_s(&mut self, user: u32) -> f64 {
        self.users[user as usize].off(&self.population.model).get()
    }

    /// The user asks for the next object, of its page or of another.
    fn fetch(&mut self, at_s: f64, user: u32) {
        self.users[user as usize].fetch(&self.population.model, &mut Site::Unknown);
        self.due.push(at_s, user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_workload::users::Browsing;

    /// Everything that the users ask for where every answer takes `answer_s`, by time.
    fn asked(browsing: &Browsing, answer_s: f64, until_s: f64) -> Vec<(f64, u32)> {
        let process = ArrivalProcess::Browsing(browsing.clone());
        process.check("arrivals").unwrap();
        let mut users = Requests::new(&process, &Shape::Deterministic {}, 1.0, 3);
        let mut answers: Heap<u32> = Heap::new();
        let mut asked = Vec::new();
        loop {
            let answer = answers.first_key().unwrap_or(f64::INFINITY);
            let next = users.next_s();
            if next.min(answer) >= until_s {
                return asked;
            }
            if answer <= next {
                let (at, user) = answers.pop().unwrap();
                users.answered(at, user);
            } else {
                let (_, user) = users.take();
                asked.push((next, user));
                answers.push(next + answer_s, user);
            }
        }
    }

    #[test]
    fn users_ask_as_often_as_their_means_say() {
        let browsing = Browsing {
            users: vec![2_000],
            ..Browsing::default()
        };
        for answer_s in [0.0, 0.5] {
            let count = asked(&browsing, answer_s, 2_000.0).len() as f64;
            let expected = browsing.requests_per_user_s(answer_s) * 2_000.0 * 2_000.0;
            // Reading times have a tail that a run of this length does not see all of.
            assert!(
                (count / expected - 1.0).abs() < 0.03,
                "{count} against {expected}"
            );
        }
    }

    #[test]
    fn the_number_of_users_follows_the_curve() {
        let browsing = Browsing {
            users: vec![100, 400, 0, 200],
            hold_s: 500.0,
            ..Browsing::default()
        };
        let all = asked(&browsing, 0.01, f64::INFINITY);
        assert!(all.is_sorted_by(|one, other| one.0 <= other.0));
        let users = |from: f64, to: f64| {
            let mut users: Vec<u32> = all
                .iter()
                .filter(|(at, _)| (from..to).contains(at))
                .map(|(_, user)| *user)
                .collect();
            users.sort_unstable();
            users.dedup();
            users.len()
        };
        // A few read for longer than that.
        assert!((95..=100).contains(&users(0.0, 500.0)), "{}", users(0.0, 500.0));
        assert!(
            (380..=400).contains(&users(550.0, 1_000.0)),
            "{}",
            users(550.0, 1_000.0)
        );
        // Pages that were begun are read to their end.
        assert_eq!(users(1_100.0, 1_500.0), 0);
        assert!(
            (190..=200).contains(&users(1_500.0, 2_000.0)),
            "{}",
            users(1_500.0, 2_000.0)
        );
        assert!(all.last().unwrap().0 < 2_100.0);
    }
}
