//! One user, as a seeded state machine.

use super::distribution::{Shape, Truncated};
use super::files::FileSet;
use super::references::References;
use headroom_units::Seconds;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

/// How users behave. The default is SURGE's, with the truncations stated at each field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// The share of pages that embed anything; the others are a document alone. 30 : 62 by default, as in SURGE's
    /// own site (30 % of its files embed others, 32 % stand alone, 38 % are embedded).
    pub embedding_share: f64,
    /// How many objects an embedding page embeds, rounded down: Pareto, k = 1, alpha = 2.43, at most 150.
    pub embedded: Truncated,
    /// Seconds between an answer and the next object of the same page: Weibull, scale 0.382 s, shape 1.46, at most
    /// 30 s.
    pub active_off_s: Truncated,
    /// Seconds between a page and the next: Pareto, k = 1 s, alpha = 1.5, at most 1,000 s. The mean is 2.9 s then;
    /// without the bound it would be 3 s, with a variance that does not exist.
    pub inactive_off_s: Truncated,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            embedding_share: 30.0 / 62.0,
            embedded: Truncated {
                shape: Shape::Pareto {
                    smallest: 1.0,
                    exponent: 2.43,
                },
                largest: 150.0,
            },
            active_off_s: Truncated {
                shape: Shape::Weibull {
                    scale: 0.382,
                    shape: 1.46,
                },
                largest: 30.0,
            },
            inactive_off_s: Truncated {
                shape: Shape::Pareto {
                    smallest: 1.0,
                    exponent: 1.5,
                },
                largest: 1000.0,
            },
        }
    }
}

/// What users browse.
#[derive(Clone, Debug)]
pub enum Site {
    /// A file set: pages come from its reference stream, which all users share, and embed what the set says.
    Files(Box<References>),
    /// A site that is not known: how many objects a page embeds is drawn for each page, and what is asked for is
    /// left to who fetches it.
    Unknown,
}

impl Site {
    /// A file set, browsed in the order that a seed gives.
    pub fn of(files: Arc<FileSet>, seed: u64) -> Self {
        Self::Files(Box::new(References::new(files, seed)))
    }

    /// The file set, if it is one.
    pub fn files(&self) -> Option<&Arc<FileSet>> {
        match self {
            Self::Files(references) => Some(references.files()),
            Self::Unknown => None,
        }
    }
}

/// What a user does next: waits, then fetches one object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fetch {
    /// How long after the last answer (or after the user came).
    pub wait: Seconds,
    /// The file's index in the site's file set; none on a site that is not known.
    pub file: Option<usize>,
    /// Whether it is a page's document, with which the user takes a new connection.
    pub begins_page: bool,
    /// Whether nothing more of the page is fetched after it.
    pub ends_page: bool,
}

/// A user. It has a random stream of its own, so what one draws never depends on how fast others were answered; only
/// the pages of a [`Site::Files`] come from a stream that all share.
#[derive(Clone, Debug)]
pub struct User {
    rng: ChaCha8Rng,
    came: bool,
    /// The page that is being fetched.
    page: Option<usize>,
    /// How many objects it embeds, and how many of them were asked for.
    embedded: usize,
    asked: usize,
}

impl User {
    /// User number `number` of a seed.
    pub fn new(seed: u64, number: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // Stream 0 is who else draws from the seed.
        rng.set_stream(number.wrapping_add(1));
        Self {
            rng,
            came: false,
            page: None,
            embedded: 0,
            asked: 0,
        }
    }

    /// What the user does next. The first time it waits for a part of an inactive OFF time, uniformly drawn, so that
    /// users who come together do not ask together.
    pub fn next(&mut self, model: &Model, site: &mut Site) -> Fetch {
        if self.asked < self.embedded {
            return self.next_embedded(model, site);
        }
        let mut wait_s = model.inactive_off_s.sample(&mut self.rng);
        if !self.came {
            self.came = true;
            wait_s *= self.rng.random::<f64>();
        }
        self.asked = 0;
        match site {
            Site::Files(references) => {
                let document = references.next_document();
                self.page = Some(document);
                self.embedded = references.files().embedded(document).len();
            }
            Site::Unknown => {
                self.page = None;
                self.embedded = if self.rng.random::<f64>() < model.embedding_share {
                    model.embedded.sample(&mut self.rng) as usize
                } else {
                    0
                };
            }
        }
        Fetch {
            wait: Seconds::new(wait_s),
            file: self.page,
            begins_page: true,
            ends_page: self.embedded == 0,
        }
    }

    fn next_embedded(&mut self, model: &Model, site: &Site) -> Fetch {
        let file = match (site, self.page) {
            (Site::Files(references), Some(document)) => {
                references.files().embedded(document).get(self.asked).copied()
            }
            _ => None,
        };
        self.asked += 1;
        Fetch {
            wait: Seconds::new(model.active_off_s.sample(&mut self.rng)),
            file,
            begins_page: false,
            ends_page: self.asked == self.embedded,
        }
    }

    /// The page's document did not come, so its embedded objects are not known: the page is left.
    pub fn leave_page(&mut self) {
        self.embedded = 0;
        self.asked = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::FileSetConfig;
    use super::*;

    #[test]
    fn a_page_is_a_document_and_then_what_it_embeds() {
        let files = Arc::new(FileSet::generate(&FileSetConfig::default()).unwrap());
        let mut site = Site::of(Arc::clone(&files), 4);
        let mut user = User::new(4, 0);
        let model = Model::default();
        let mut pages = 0;
        while pages < 500 {
            let document = user.next(&model, &mut site);
            assert!(document.begins_page);
            let embedded = files.embedded(document.file.unwrap());
            assert_eq!(document.ends_page, embedded.is_empty());
            for (index, file) in embedded.iter().enumerate() {
                let object = user.next(&model, &mut site);
                assert_eq!((object.file, object.begins_page), (Some(*file), false));
                assert_eq!(object.ends_page, index + 1 == embedded.len());
            }
            pages += 1;
        }
    }

    #[test]
    fn a_user_asks_at_the_rate_that_the_module_states() {
        let model = Model::default();
        let (mut objects, mut pages, mut time) = (0.0, 0.0, 0.0);
        for number in 0..2000 {
            let mut user = User::new(1, number);
            for _ in 0..100 {
                let fetch = user.next(&model, &mut Site::Unknown);
                assert_eq!(fetch.file, None);
                objects += 1.0;
                pages += f64::from(u8::from(fetch.begins_page));
                time += fetch.wait.get();
            }
        }
        // 1 + 30/62 zeta(2.43) objects a page: the mean of floor(Pareto) is the sum of its tail.
        let per_page = objects / pages;
        assert!((per_page - 1.665).abs() < 0.03, "{per_page}");
        let rate = objects / time;
        assert!((0.52..0.55).contains(&rate), "{rate}");
    }

    #[test]
    fn the_same_seed_and_number_do_the_same_and_others_other_things() {
        let fetches = |seed, number| {
            let mut user = User::new(seed, number);
            (0..50)
                .map(|_| user.next(&Model::default(), &mut Site::Unknown))
                .collect::<Vec<_>>()
        };
        assert_eq!(fetches(1, 2), fetches(1, 2));
        assert_ne!(fetches(1, 2), fetches(1, 3));
        assert_ne!(fetches(1, 2), fetches(2, 2));
    }

    #[test]
    fn a_page_that_was_left_is_followed_by_another() {
        let model = Model::default();
        let mut user = User::new(7, 0);
        let mut left = 0;
        while left < 20 {
            let fetch = user.next(&model, &mut Site::Unknown);
            if fetch.begins_page && !fetch.ends_page {
                user.leave_page();
                assert!(user.next(&model, &mut Site::Unknown).begins_page);
                left += 1;
            }
        }
    }
}
