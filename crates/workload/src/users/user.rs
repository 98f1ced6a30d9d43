//! One user, as a seeded state machine.

use super::files::FileSet;
use super::references::References;
use crate::distribution::Distribution;
use crate::random::Draw;
use headroom_units::Seconds;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::sync::Arc;

/// The most objects that a page embeds; a larger number that is drawn is lowered to it.
pub const MAX_EMBEDDED: f64 = 150.0;

/// How users behave. The default is SURGE's, with the truncations stated at each field.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The share of pages that embed anything; the others are a document alone. 30 : 62 by default, as in SURGE's
    /// own site (30 % of its files embed others, 32 % stand alone, 38 % are embedded).
    pub embedding_share: f64,
    /// How many objects an embedding page embeds, rounded down: Pareto, k = 1, alpha = 2.43, at most [`MAX_EMBEDDED`].
    pub embedded: Distribution,
    /// Seconds between an answer and the next object of the same page: Weibull, scale 0.382 s, shape 1.46, at most
    /// 30 s.
    pub active_off_s: Distribution,
    /// Seconds between a page and the next: Pareto, k = 1 s, alpha = 1.5, at most 1,000 s. The mean is 2.9 s then;
    /// without the bound it would be 3 s, with a variance that does not exist.
    pub inactive_off_s: Distribution,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            embedding_share: 30.0 / 62.0,
            embedded: Distribution::pareto(1.0, 2.43).at_most(MAX_EMBEDDED),
            active_off_s: Distribution::weibull(0.382, 1.46).at_most(30.0),
            inactive_off_s: Distribution::pareto(1.0, 1.5).at_most(1000.0),
        }
    }
}

impl Model {
    /// Users who ask for one object after the other and think between them: pages that embed nothing.
    pub fn sessions(think_s: Distribution) -> Self {
        Self {
            embedding_share: 0.0,
            embedded: Distribution::constant(0.0),
            active_off_s: Distribution::constant(0.0),
            inactive_off_s: think_s,
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

/// What a user fetches: one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The file's index in the site's file set; none on a site that is not known.
    pub file: Option<usize>,
    /// Whether it is a page's document, with which the user takes a new connection.
    pub begins_page: bool,
    /// Whether nothing more of the page is fetched after it.
    pub ends_page: bool,
}

/// A user. It has a random stream `R` of its own, so what one draws never depends on how fast others were answered; only
/// the pages of a [`Site::Files`] come from a stream that all share.
///
/// ```
/// use headroom_workload::users::{Model, Site, User};
///
/// let (mut user, model) = (User::new(1, 0), Model::default());
/// let (wait, fetch) = user.next(&model, &mut Site::Unknown);
/// assert!(wait.get() < 1_000.0 && fetch.begins_page);
/// // It is fetched and answered, and the user asked again.
/// let (_, next) = user.next(&model, &mut Site::Unknown);
/// assert_eq!(next.begins_page, fetch.ends_page);
/// ```
#[derive(Clone, Debug)]
pub struct User<R = ChaCha8Rng> {
    rng: R,
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
        Self::drawn_from(rng)
    }
}

impl<R: Draw> User<R> {
    /// A user who draws from a random stream.
    pub fn drawn_from(rng: R) -> Self {
        Self {
            rng,
            came: false,
            page: None,
            embedded: 0,
            asked: 0,
        }
    }

    /// The user's random stream.
    pub fn rng(&mut self) -> &mut R {
        &mut self.rng
    }

    /// What the user does next: how long after the last answer (or after the user came) it fetches what. The first time it
    /// waits for a part of an inactive OFF time, uniformly drawn, so that users who come together do not ask together.
    pub fn next(&mut self, model: &Model, site: &mut Site) -> (Seconds, Fetch) {
        let mut wait = self.off(model);
        if !std::mem::replace(&mut self.came, true) {
            wait = wait * self.rng.uniform();
        }
        (wait, self.fetch(model, site))
    }

    /// Whether more of the page is to be fetched.
    pub const fn has_more(&self) -> bool {
        self.asked < self.embedded
    }

    /// Draws the time to the next fetch: active OFF within a page, inactive OFF between two.
    pub fn off(&mut self, model: &Model) -> Seconds {
        let off_s = if self.has_more() {
            &model.active_off_s
        } else {
            &model.inactive_off_s
        };
        Seconds::new(off_s.sample(&mut self.rng))
    }

    /// Chooses the next fetch: what the page embeds next, or another page's document.
    pub fn fetch(&mut self, model: &Model, site: &mut Site) -> Fetch {
        let begins_page = !self.has_more();
        let file = if begins_page {
            self.open(model, site);
            self.page
        } else {
            self.asked += 1;
            match (site, self.page) {
                (Site::Files(references), Some(document)) => {
                    references.files().embedded(document).get(self.asked - 1).copied()
                }
                _ => None,
            }
        };
        Fetch {
            file,
            begins_page,
            ends_page: !self.has_more(),
        }
    }

    fn open(&mut self, model: &Model, site: &mut Site) {
        self.asked = 0;
        match site {
            Site::Files(references) => {
                let document = references.next_document();
                self.page = Some(document);
                self.embedded = references.files().embedded(document).len();
            }
            Site::Unknown => {
                self.page = None;
                // Sessions draw nothing for what their pages never embed.
                self.embedded = if model.embedding_share > 0.0 && self.rng.uniform() < model.embedding_share {
                    model.embedded.sample(&mut self.rng).min(MAX_EMBEDDED) as usize
                } else {
                    0
                };
            }
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
            let (_, document) = user.next(&model, &mut site);
            assert!(document.begins_page);
            let embedded = files.embedded(document.file.unwrap());
            assert_eq!(document.ends_page, embedded.is_empty());
            for (index, file) in embedded.iter().enumerate() {
                let (_, object) = user.next(&model, &mut site);
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
                let (wait, fetch) = user.next(&model, &mut Site::Unknown);
                assert_eq!(fetch.file, None);
                objects += 1.0;
                pages += f64::from(u8::from(fetch.begins_page));
                time += wait.get();
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
            let (_, fetch) = user.next(&model, &mut Site::Unknown);
            if fetch.begins_page && !fetch.ends_page {
                user.leave_page();
                assert!(user.next(&model, &mut Site::Unknown).1.begins_page);
                left += 1;
            }
        }
    }
}
