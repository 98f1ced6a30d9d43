//! One visitor, as a seeded state machine.

use super::mix::{Mix, Next};
use super::page::{Page, Subject};
use super::place::Place;
use super::site::Site;
use crate::distribution::Distribution;
use crate::random::Draw;
use headroom_units::Seconds;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// How many pages back a visitor can go.
const MAX_HISTORY: usize = 16;

/// How visitors behave.
#[derive(Clone, Debug, PartialEq)]
pub struct Behaviour {
    /// What they come for.
    pub mix: Mix,
    /// Seconds before each page: negative exponential, mean 7 s, at most 70 s by default (as TPC-W, clause 5.3.1.1, and
    /// RUBiS, as recalled).
    pub think_s: Distribution,
    /// A session ends after so many pages where it has not ended before; 200 by default. At least 1.
    pub max_visits: u32,
}

impl Behaviour {
    /// That of a mix, with the figures stated at each field.
    pub fn of(mix: Mix) -> Self {
        Self::thinking(mix, Seconds::new(7.0))
    }

    /// That of a mix with another mean think time, given at most ten times it. With none, the next page follows at once.
    pub fn thinking(mix: Mix, mean: Seconds) -> Self {
        let mean_s = mean.get();
        Self {
            mix,
            think_s: if mean_s > 0.0 {
                // A Weibull distribution of shape 1 is the exponential one.
                Distribution::weibull(mean_s, 1.0).at_most(10.0 * mean_s)
            } else {
                Distribution::constant(0.0)
            },
            max_visits: 200,
        }
    }
}

/// What a page that writes changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new user.
    NewUser,
    /// A new item in this category.
    NewItem {
        /// The category.
        category: u32,
    },
    /// A bid on this item, or a purchase of it.
    Item(u32),
    /// A comment on this user.
    User(u32),
}

/// One page asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Visit {
    /// The page.
    pub place: Place,
    /// Its path and query.
    pub target: String,
    /// [`Place::key`]: what a cache stores it under.
    pub key: u64,
    /// How long the answer is ([`Site::bytes`]).
    pub bytes: u32,
    /// What it changes, where it is a page that writes.
    pub writes: Option<Change>,
    /// The body of a page that writes, as a form sends it (`application/x-www-form-urlencoded`); else empty.
    pub form: String,
    /// Whether it is the first of a session.
    pub begins_session: bool,
    /// Whether it is the last of a session. The next one is a new visitor's.
    pub ends_session: bool,
}

impl Visit {
    /// The kind of page.
    pub fn page(&self) -> Page {
        self.place.page
    }

    /// Whether it changes the database, and so is sent with POST.
    pub fn is_write(&self) -> bool {
        self.writes.is_some()
    }
}

/// A visitor: session after session, each as another user of the site. It has a random stream of its own, so what one
/// draws never depends on how fast others were answered.
///
/// ```
/// use headroom_workload::auction::{Behaviour, Mix, Site, SiteConfig, Visitor};
///
/// let site = Site::new(SiteConfig::default())?;
/// let mut visitor = Visitor::new(1, 0, Behaviour::of(Mix::Browsing));
/// let (think, visit) = visitor.next(&site);
/// assert!(think.get() <= 70.0 && visit.target == "/" && visit.begins_session);
/// # Ok::<(), headroom_workload::auction::SiteError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Visitor {
    behaviour: Behaviour,
    rng: ChaCha8Rng,
    /// What is visited next; none where a session begins.
    upcoming: Option<Place>,
    /// The pages before the one that is visited next, of those that are read.
    history: Vec<Place>,
    visits: u32,
    /// Who it is in this session.
    user: u32,
    /// The category of the item that it looks for.
    category: u32,
    region: u32,
    /// The item that it looks for or at.
    item: u32,
    /// Whether the item was looked at since it was drawn.
    has_viewed: bool,
    /// Whose page it looks at.
    other: u32,
}

impl Visitor {
    /// The visitor of this number; the same seed, number and behaviour do the same.
    pub fn new(seed: u64, number: u64, behaviour: Behaviour) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // Stream 0 is the site's.
        rng.set_stream(number.wrapping_add(1));
        Self {
            behaviour,
            rng,
            upcoming: None,
            history: Vec::new(),
            visits: 0,
            user: 0,
            category: 0,
            region: 0,
            item: 0,
            has_viewed: false,
            other: 0,
        }
    }

    /// How long it thinks once it was answered, and what it asks for then.
    pub fn next(&mut self, site: &Site) -> (Seconds, Visit) {
        let think = Seconds::new(self.behaviour.think_s.sample(&mut self.rng));
        let begins_session = self.upcoming.is_none();
        let place = match self.upcoming.take() {
            Some(place) => place,
            None => self.begin_session(site),
        };
        self.visits += 1;
        let form = self.form(&place);
        self.upcoming = self.follow(site, place);
        let visit = Visit {
            target: place.target(),
            key: place.key(),
            bytes: site.bytes(&place),
            writes: self.change(&place),
            form,
            begins_session,
            ends_session: self.upcoming.is_none(),
            place,
        };
        (think, visit)
    }

    /// The answer did not come: the session is over, and another begins.
    pub fn leave(&mut self) {
        self.upcoming = None;
    }

    fn begin_session(&mut self, site: &Site) -> Place {
        self.history.clear();
        self.visits = 0;
        self.user = self.below(site.config().users);
        self.look_for_another(site);
        self.other = site.seller_of(self.item);
        Place::of(Page::Home)
    }

    /// Draws the next page, or none where the session ends.
    fn follow(&mut self, site: &Site, place: Place) -> Option<Place> {
        if self.visits >= self.behaviour.max_visits {
            return None;
        }
        let row = self.behaviour.mix.row(place.page);
        let mut drawn = self.rng.uniform() * 100.0;
        let next = row.iter().find(|(_, percent)| {
            drawn -= f64::from(*percent);
            drawn < 0.0
        });
        // A row adds up to 100, and the draw is below: only a page that this mix has not leaves none.
        let (next, _) = next?;
        match next {
            Next::End => None,
            Next::Back => {
                let back = self.history.pop().unwrap_or(Place::of(Page::Home));
                self.recall(&back);
                Some(back)
            }
            Next::To(page) => {
                if !place.page.writes() {
                    if self.history.len() == MAX_HISTORY {
                        self.history.remove(0);
                    }
                    self.history.push(place);
                }
                Some(self.place(site, *page, place))
            }
        }
    }

    /// A page of a kind, about what this visitor is interested in.
    fn place(&mut self, site: &Site, page: Page, from: Place) -> Place {
        let mut place = Place::of(page);
        match page {
            // The results are turned, and begin again after the last.
            Page::SearchByCategory | Page::SearchByRegion if from.page == page => {
                let region = (page == Page::SearchByRegion).then_some(from.region);
                place = Place {
                    results: (from.results + 1) % site.result_pages(from.subject, region),
                    ..from
                };
            }
            Page::SearchByCategory => {
                self.look_for_another(site);
                place.subject = self.category;
            }
            Page::CategoriesInRegion => {
                self.look_for_another(site);
                place.subject = self.region;
            }
            Page::SearchByRegion => {
                place.subject = self.category;
                place.region = self.region;
            }
            Page::ViewItem => {
                // The first item looked at is the one whose category was searched; each is an item by popularity.
                match from.page {
                    Page::SearchByCategory if self.has_viewed => {
                        self.item = site
                            .draw_item_of(self.category, &mut self.rng)
                            .unwrap_or(self.item);
                    }
                    Page::AboutMe => self.look_for_another(site),
                    _ => {}
                }
                self.has_viewed = true;
                place.subject = self.item;
            }
            Page::ViewUser => {
                self.other = match from.page {
                    // Whoever bids.
                    Page::ViewBids => self.below(site.config().users),
                    Page::StoreComment => self.other,
                    _ => site.seller_of(self.item),
                };
                place.subject = self.other;
            }
            Page::PutCommentLogin | Page::PutComment | Page::StoreComment => place.subject = self.other,
            Page::SellItem => {
                self.category = self.below(site.config().categories);
                place.subject = self.category;
            }
            Page::ViewBids
            | Page::BuyNowLogin
            | Page::BuyNow
            | Page::StoreBuyNow
            | Page::PutBidLogin
            | Page::PutBid
            | Page::StoreBid => place.subject = self.item,
            Page::Home
            | Page::Register
            | Page::RegisterUser
            | Page::Browse
            | Page::Categories
            | Page::Regions
            | Page::Sell
            | Page::SelectCategory
            | Page::RegisterItem
            | Page::AboutMeLogin
            | Page::AboutMe => {}
        }
        if page.is_personal() && !page.writes() {
            place.user = self.user;
        }
        place
    }

    /// Who goes back to an item, a user or a search looks at that again.
    fn recall(&mut self, place: &Place) {
        match place.page.subject() {
            Subject::Item => self.item = place.subject,
            Subject::User => self.other = place.subject,
            Subject::Category => self.category = place.subject,
            Subject::Region => self.region = place.subject,
            Subject::Nothing => {}
        }
    }

    fn look_for_another(&mut self, site: &Site) {
        self.item = site.draw_item(&mut self.rng);
        self.category = site.category_of(self.item);
        self.region = site.region_of(self.item);
        self.has_viewed = false;
    }

    fn change(&self, place: &Place) -> Option<Change> {
        match place.page {
            Page::RegisterUser => Some(Change::NewUser),
            Page::RegisterItem => Some(Change::NewItem {
                category: self.category,
            }),
            Page::StoreBid | Page::StoreBuyNow => Some(Change::Item(place.subject)),
            Page::StoreComment => Some(Change::User(place.subject)),
            _ => None,
        }
    }

    /// What a page that writes sends. A bid is stated as what it adds to the highest so far, because a visitor reads no
    /// pages.
    fn form(&mut self, place: &Place) -> String {
        let user = self.user;
        match place.page {
            Page::StoreBid => {
                let cents = 10 + self.below(1_000);
                format!("user={user}&raise_cents={cents}")
            }
            Page::StoreBuyNow => format!("user={user}&quantity=1"),
            Page::StoreComment => {
                let rating = self.below(5);
                format!("user={user}&rating={rating}")
            }
            Page::RegisterItem => {
                let (category, cents) = (self.category, 100 + self.below(100_000));
                format!("user={user}&category={category}&price_cents={cents}")
            }
            Page::RegisterUser => format!("region={}", self.region),
            _ => String::new(),
        }
    }

    fn below(&mut self, bound: u32) -> u32 {
        ((self.rng.uniform() * f64::from(bound)) as u32).min(bound - 1)
    }
}
