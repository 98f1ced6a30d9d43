//! Users who browse, as a configuration file states them: a number that changes, and the figures of their [`Model`].

use super::curve::MAX_USERS;
use super::user::{MAX_EMBEDDED, Model};
use crate::distribution::{Distribution, Shape};
use crate::error::{Fields, FigureError};
use serde::{Deserialize, Serialize};

/// Values of a user curve at most: a year of minutes.
const MAX_VALUES: usize = 525_600;

/// The users and how they browse; the defaults are SURGE's parameters of 1998, given by their means. A server that is slow
/// is asked less often: this is what keeps a cluster that is a little too small from dropping much, and what an open loop
/// has not.
///
/// ```
/// use headroom_workload::users::Browsing;
///
/// let browsing = Browsing::default();
/// // Two users for each request a second of a server that answers at once.
/// assert!((browsing.requests_per_user_s(0.0) - 0.53).abs() < 0.01);
/// ```
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
    pub(crate) fn check(&self, key: &str) -> Result<(), FigureError> {
        let fields = Fields(key);
        let count = self.users.len();
        let holds = (1..=MAX_VALUES).contains(&count);
        fields.require(
            holds,
            "users",
            format_args!("{count} values"),
            "1 to 525600 values",
        )?;
        for users in &self.users {
            let holds = f64::from(*users) <= MAX_USERS;
            fields.require(holds, "users", users, "at most 1000000 users at any time")?;
        }
        for (field, value, least) in [
            ("hold_s", self.hold_s, 1e-3),
            ("reading_s", self.reading_s, 1e-3),
            ("gap_s", self.gap_s, 0.0),
        ] {
            let rule = format!("between {least} and 1000000 seconds");
            fields.require((least..=1e6).contains(&value), field, value, &rule)?;
        }
        let exponent = self.objects_exponent;
        let holds = exponent > 1.0 && exponent <= 100.0;
        fields.require(holds, "objects_exponent", exponent, "above 1 and at most 100")?;
        let share = self.embedding_share;
        let holds = (0.0..=1.0).contains(&share);
        fields.require(holds, "embedding_share", share, "between 0 and 1")?;
        self.gap.check(&format!("{key}.gap"))?;
        self.reading.check(&format!("{key}.reading"))
    }

    /// How a user behaves. The tail of the number of embedded objects is cut at [`MAX_EMBEDDED`], not conditioned on being
    /// below it: five pages in a million have that many. The figures must have been checked.
    pub fn model(&self) -> Model {
        Model {
            embedding_share: self.embedding_share,
            embedded: Distribution::pareto(1.0, self.objects_exponent),
            active_off_s: if self.gap_s > 0.0 {
                self.gap.scaled(self.gap_s)
            } else {
                Distribution::constant(0.0)
            },
            inactive_off_s: self.reading.scaled(self.reading_s),
        }
    }

    /// The mean number of requests of a page: itself, and what is embedded in it.
    pub fn requests_per_page(&self) -> f64 {
        // The mean of a whole number of at least 1 is the sum of the probabilities of being at least 1, 2, ...
        let embedded: f64 = (1..=MAX_EMBEDDED as u32)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_statements_of_surge_s_parameters_are_the_same_model() {
        let (by_means, by_scales) = (Browsing::default().model(), Model::default());
        assert_eq!(by_means.embedding_share, by_scales.embedding_share);
        for (one, other) in [
            (&by_means.embedded, &by_scales.embedded),
            (&by_means.active_off_s, &by_scales.active_off_s),
            (&by_means.inactive_off_s, &by_scales.inactive_off_s),
        ] {
            for value in [0.1, 0.35, 1.0, 1.5, 3.0, 10.0, 100.0, 149.0] {
                let (one, other) = (one.cumulative(value).unwrap(), other.cumulative(value).unwrap());
                assert!((one - other).abs() < 2e-4, "at {value}: {one} and {other}");
            }
        }
    }

    #[test]
    fn users_that_are_none_are_named() {
        type Spoil = fn(&mut Browsing);
        let spoilt: [(&str, Spoil); 6] = [
            ("users: is 0 values", |it| it.users.clear()),
            ("users: is 2000000", |it| it.users = vec![5, 2_000_000]),
            ("reading_s: is 0", |it| it.reading_s = 0.0),
            ("embedding_share: is 1.1", |it| it.embedding_share = 1.1),
            ("objects_exponent: is 1", |it| it.objects_exponent = 1.0),
            ("gap.shape: is 0", |it| it.gap = Shape::Weibull { shape: 0.0 }),
        ];
        for (words, spoil) in spoilt {
            let mut browsing = Browsing::default();
            spoil(&mut browsing);
            let error = browsing.check("arrivals").unwrap_err().to_string();
            assert!(error.starts_with(&format!("arrivals.{words}")), "{error}");
        }
    }
}
