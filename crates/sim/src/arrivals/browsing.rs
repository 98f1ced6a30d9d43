//! People who read pages, as the SURGE model has them (P. Barford and M. Crovella, "Generating Representative Web Workloads",
//! SIGMETRICS 1998), in a number that changes.
//!
//! A user fetches a page and, one after another with short gaps, the objects in it; then reads for a while, and goes on to
//! the next page. A server that is slow is asked less often: this is what keeps a cluster that is a little too small from
//! dropping much, and what an open loop has not.

use super::MAX_USERS;
use crate::distribution::{Sampler, Shape};
use crate::error::ScenarioError;
use crate::heap::Heap;
use crate::random::Rng;
use serde::{Deserialize, Serialize};

/// Values of a user curve at most: a year of minutes.
const MAX_VALUES: usize = 525_600;
/// Objects embedded in a page at most, where the tail of their number is cut.
const MAX_OBJECTS: f64 = 150.0;

/// The users and how they browse; the defaults are SURGE's parameters of 1998.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Browsing {
    /// How many users there are, each number held for `hold_s`. Who is one too many stays until the page is read.
    pub users: Vec<u32>,
    /// How long each number is held, seconds.
    pub hold_s: f64,
    /// The share of pages that embed anything; the others are a document alone. 30/62, as in SURGE's own site (30 % of its
    /// files embed others, 32 % stand alone, 38 % are embedded).
    pub embedding_share: f64,
    /// The exponent of the Pareto distribution of the objects in a page that embeds any, of which there is at least one
    /// then. 2.43.
    pub objects_exponent: f64,
    /// Mean gap between an object and the next, seconds (active OFF). 0.346, that of a Weibull distribution with scale
    /// 0.382.
    pub gap_s: f64,
    /// How those gaps are distributed. Weibull with shape 1.46.
    pub gap: Shape,
    /// Mean time between two pages, seconds (inactive OFF). 2.905, that of a Pareto distribution from 1 s with exponent 1.5,
    /// cut at 1,000 s.
    pub reading_s: f64,
    /// How those times are distributed.
    pub reading: Shape,
}

impl Default for Browsing {
    fn default() -> Self {
        Self {
            users: vec![100],
            hold_s: 3_600.0,
            embedding_share: 30.0 / 62.0,
            objects_exponent: 2.43,
            gap_s: 0.346,
            gap: Shape::Weibull { shape: 1.46 },
            reading_s: 2.905,
            reading: Shape::Pareto {
                exponent: 1.5,
                range: 1_000.0,
            },
        }
    }
}

impl Browsing {
    /// Checks the figures; `key` is where they stand.
    pub(super) fn check(&self, key: &str) -> Result<(), ScenarioError> {
        let bad = |field: &str, value: String, rule: &str| {
            Err(ScenarioError::new(
                format!("{key}.{field}"),
                format!("is {value}: it must be {rule}"),
            ))
        };
        if self.users.is_empty() || self.users.len() > MAX_VALUES {
            return bad(
                "users",
                format!("{} values", self.users.len()),
                "1 to 525600 values",
            );
        }
        if let Some(users) = self.users.iter().find(|users| **users > MAX_USERS) {
            return bad("users", users.to_string(), "at most 1000000 users at any time");
        }
        for (field, value, least) in [
            ("hold_s", self.hold_s, 1e-3),
            ("reading_s", self.reading_s, 1e-3),
            ("gap_s", self.gap_s, 0.0),
        ] {
            if !(least..=1e6).contains(&value) {
                return bad(
                    field,
                    value.to_string(),
                    &format!("between {least} and 1000000 seconds"),
                );
            }
        }
        if !(self.objects_exponent > 1.0 && self.objects_exponent <= 100.0) {
            return bad(
                "objects_exponent",
                self.objects_exponent.to_string(),
                "above 1 and at most 100",
            );
        }
        if !(0.0..=1.0).contains(&self.embedding_share) {
            return bad(
                "embedding_share",
                self.embedding_share.to_string(),
                "between 0 and 1",
            );
        }
        self.gap.check(&format!("{key}.gap"))?;
        self.reading.check(&format!("{key}.reading"))
    }

    /// The mean number of requests of a page: itself, and what is embedded in it.
    pub fn requests_per_page(&self) -> f64 {
        // The mean of a whole number of at least 1 is the sum of the probabilities of being at least 1, 2, ...
        let embedded: f64 = (1..=MAX_OBJECTS as u32)
            .map(|count| f64::from(count).powf(-self.objects_exponent))
            .sum();
        1.0 + self.embedding_share * embedded
    }

    /// The requests that a user makes in a second where every answer takes `answer_s`.
    pub fn requests_per_user_s(&self, answer_s: f64) -> f64 {
        let requests = self.requests_per_page();
        requests / (self.reading_s + (requests - 1.0) * self.gap_s + requests * answer_s)
    }
}

/// A user of which something is known.
#[derive(Clone, Debug)]
struct Reader {
    rng: Rng,
    /// Objects of the page that are still to be fetched.
    left: u32,
}

/// The users at work, each with a random stream of its own.
#[derive(Clone, Debug)]
pub(crate) struct Readers {
    curve: Vec<u32>,
    hold_s: f64,
    readers: Vec<Reader>,
    /// Who will ask, and when.
    due: Heap<u32>,
    gap: Option<Sampler>,
    reading: Sampler,
    size: Sampler,
    embedding_share: f64,
    /// -1/α of the number of objects.
    objects_power: f64,
}

impl Readers {
    pub(super) fn new(browsing: &Browsing, size: Sampler, seed: u64) -> Self {
        let most = browsing.users.iter().copied().max().unwrap_or(0);
        let mut readers = Self {
            curve: browsing.users.clone(),
            hold_s: browsing.hold_s,
            readers: (0..most)
                .map(|user| Reader {
                    rng: Rng::of_user(seed, user),
                    left: 0,
                })
                .collect(),
            due: Heap::new(),
            gap: (browsing.gap_s > 0.0).then(|| browsing.gap.scaled(browsing.gap_s)),
            reading: browsing.reading.scaled(browsing.reading_s),
            size,
            embedding_share: browsing.embedding_share,
            objects_power: -1.0 / browsing.objects_exponent,
        };
        for user in 0..most {
            readers.come(0, user);
        }
        readers
    }

    pub(super) fn next_s(&self) -> f64 {
        self.due.first_key().unwrap_or(f64::INFINITY)
    }

    pub(super) fn take(&mut self) -> (f64, u32) {
        // Called only when somebody is due, so there is somebody.
        let (_, user) = self.due.pop().unwrap_or((0.0, 0));
        (self.size.sample(&mut self.readers[user as usize].rng), user)
    }

    pub(super) fn answered(&mut self, now_s: f64, user: u32) {
        let reader = &mut self.readers[user as usize];
        if reader.left > 0 {
            reader.left -= 1;
            let gap_s = self.gap.as_ref().map_or(0.0, |gap| gap.sample(&mut reader.rng));
            self.due.push(now_s + gap_s, user);
            return;
        }
        let next_s = now_s + self.reading.sample(&mut reader.rng);
        let step = (next_s / self.hold_s) as usize;
        match self.curve.get(step) {
            Some(users) if *users > user => self.open(next_s, user),
            _ => self.come(step.saturating_add(1), user),
        }
    }

    /// The user comes with the next rise of the number of users that includes it, in this step of the curve or later, and
    /// not all at once: as if it had been reading.
    fn come(&mut self, from: usize, user: u32) {
        let Some(rest) = self.curve.get(from..) else {
            return;
        };
        if let Some(steps) = rest.iter().position(|users| *users > user) {
            let reading_s = self.reading.sample(&mut self.readers[user as usize].rng);
            self.open((from + steps) as f64 * self.hold_s + reading_s, user);
        }
    }

    /// The user asks for a page.
    fn open(&mut self, at_s: f64, user: u32) {
        let reader = &mut self.readers[user as usize];
        // The inverse of the Pareto distribution from 1, whole.
        reader.left = if reader.rng.uniform() < self.embedding_share {
            let objects = (1.0 - reader.rng.uniform()).powf(self.objects_power);
            objects.floor().min(MAX_OBJECTS) as u32
        } else {
            0
        };
        self.due.push(at_s, user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that the users ask for where every answer takes `answer_s`, by time.
    fn asked(browsing: &Browsing, answer_s: f64, until_s: f64) -> Vec<(f64, u32)> {
        browsing.check("arrivals").unwrap();
        let size = Shape::Deterministic {}.scaled(1.0);
        let mut readers = Readers::new(browsing, size, 3);
        let mut answers: Heap<u32> = Heap::new();
        let mut asked = Vec::new();
        loop {
            let answer = answers.first_key().unwrap_or(f64::INFINITY);
            let next = readers.next_s();
            if next.min(answer) >= until_s {
                return asked;
            }
            if answer <= next {
                let (at, user) = answers.pop().unwrap();
                readers.answered(at, user);
            } else {
                let (_, user) = readers.take();
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

    #[test]
    fn users_that_are_none_are_named() {
        for (browsing, said) in [
            (
                Browsing {
                    users: vec![],
                    ..Browsing::default()
                },
                "arrivals.users: is 0 values",
            ),
            (
                Browsing {
                    users: vec![5, 2_000_000],
                    ..Browsing::default()
                },
                "arrivals.users: is 2000000",
            ),
            (
                Browsing {
                    reading_s: 0.0,
                    ..Browsing::default()
                },
                "arrivals.reading_s: is 0",
            ),
            (
                Browsing {
                    embedding_share: 1.1,
                    ..Browsing::default()
                },
                "arrivals.embedding_share: is 1.1",
            ),
            (
                Browsing {
                    objects_exponent: 1.0,
                    ..Browsing::default()
                },
                "arrivals.objects_exponent: is 1",
            ),
            (
                Browsing {
                    gap: Shape::Weibull { shape: 0.0 },
                    ..Browsing::default()
                },
                "arrivals.gap.shape: is 0",
            ),
        ] {
            let error = browsing.check("arrivals").unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
