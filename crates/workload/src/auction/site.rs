//! The site: how many items, users, categories and regions; which item is how popular and where it belongs; how long each
//! page is.

use super::page::Subject;
use super::place::Place;
use crate::random::Draw;
use headroom_units::Ratio;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The most items of a site.
pub const MAX_ITEMS: u32 = 1_000_000;

/// The most users of a site.
pub const MAX_USERS: u32 = 1_000_000;

/// Items on a page of a search.
pub const RESULTS_PER_PAGE: u32 = 20;

/// The most pages of a search that anybody turns.
const MAX_RESULT_PAGES: u32 = 10;

/// What is wrong with a site.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{setting} = {value}: {remedy}")]
pub struct SiteError {
    /// The setting.
    pub setting: &'static str,
    /// Its value.
    pub value: String,
    /// What to give instead.
    pub remedy: &'static str,
}

/// What [`Site::new`] makes.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteConfig {
    /// Items for sale; 10,000 by default, from 1 to [`MAX_ITEMS`]. (RUBiS has some 33,000.)
    pub items: u32,
    /// Registered users; 10,000 by default, from 1 to [`MAX_USERS`]. (RUBiS has a million.)
    pub users: u32,
    /// Categories; 20 by default as RUBiS has, from 1 to 120.
    pub categories: u32,
    /// Regions; 62 by default as RUBiS has, from 1 to 120.
    pub regions: u32,
    /// Zipf's exponent of the items' popularity; 0.8 by default, from 0 (even, as RUBiS draws) to 3. What pages are asked for
    /// follows Zipf's law with an exponent from 0.64 to 0.83 at six proxies (L. Breslau et al., *Web Caching and Zipf-like
    /// Distributions*, INFOCOM 1999).
    pub popularity_exponent: f64,
    /// The shortest page, bytes; 2,000 by default.
    pub least_bytes: u32,
    /// The mean over all pages, bytes; 10,000 by default.
    pub mean_bytes: u32,
    /// The longest page, bytes; 50,000 by default.
    pub most_bytes: u32,
    /// The same seed gives the same site.
    pub seed: u64,
}

impl Default for SiteConfig {
    fn default() -> Self {
        Self {
            items: 10_000,
            users: 10_000,
            categories: 20,
            regions: 62,
            popularity_exponent: 0.8,
            least_bytes: 2_000,
            mean_bytes: 10_000,
            most_bytes: 50_000,
            seed: 1,
        }
    }
}

/// An auction site. Items, users, categories and regions are numbered from 0.
///
/// ```
/// use headroom_workload::auction::{Page, Place, Site, SiteConfig};
///
/// let site = Site::new(SiteConfig { items: 500, ..SiteConfig::default() })?;
/// let item = Place { subject: 42, ..Place::of(Page::ViewItem) };
/// assert!((2_000..=50_000).contains(&site.bytes(&item)));
/// assert!(site.category_of(42) < 20);
/// # Ok::<(), headroom_workload::auction::SiteError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    config: SiteConfig,
    /// Of each item: its place by popularity, the most popular first.
    ranks: Vec<u32>,
    /// Of each category: its items, and the running sum of their shares of all visits.
    shelves: Vec<Shelf>,
    /// The running sum of the categories' shares.
    categories: Vec<f64>,
    /// Items of each category and region, by `category * regions + region`.
    counts: Vec<u32>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Shelf {
    items: Vec<u32>,
    shares: Vec<f64>,
}

impl Site {
    /// The site of these figures.
    ///
    /// # Errors
    /// [`SiteError`] where a figure is out of its range.
    pub fn new(config: SiteConfig) -> Result<Self, SiteError> {
        check(&config)?;
        let mut ranks: Vec<u32> = (0..config.items).collect();
        let mut rng = ChaCha8Rng::seed_from_u64(config.seed);
        for index in (1..ranks.len()).rev() {
            ranks.swap(index, rng.random_range(0..=index));
        }
        let mut site = Self {
            shelves: vec![Shelf::default(); config.categories as usize],
            categories: Vec::with_capacity(config.categories as usize),
            counts: vec![0; (config.categories * config.regions) as usize],
            ranks,
            config,
        };
        let whole: f64 = (0..site.config.items).map(|rank| site.weight(rank)).sum();
        for item in 0..site.config.items {
            let (category, region) = (site.category_of(item), site.region_of(item));
            site.counts[(category * site.config.regions + region) as usize] += 1;
            let share = site.weight(site.ranks[item as usize]) / whole;
            let shelf = &mut site.shelves[category as usize];
            let before = shelf.shares.last().copied().unwrap_or(0.0);
            shelf.items.push(item);
            shelf.shares.push(before + share);
        }
        let mut sum = 0.0;
        for shelf in &site.shelves {
            sum += shelf.shares.last().copied().unwrap_or(0.0);
            site.categories.push(sum);
        }
        Ok(site)
    }

    /// The figures.
    pub fn config(&self) -> &SiteConfig {
        &self.config
    }

    fn weight(&self, rank: u32) -> f64 {
        f64::from(rank + 1).powf(-self.config.popularity_exponent)
    }

    /// The category of an item; defined for items that are added later as well.
    pub fn category_of(&self, item: u32) -> u32 {
        below(self.hash(1, u64::from(item)), self.config.categories)
    }

    /// The region of an item, which is its seller's.
    pub fn region_of(&self, item: u32) -> u32 {
        self.region_of_user(self.seller_of(item))
    }

    /// Who sells an item.
    pub fn seller_of(&self, item: u32) -> u32 {
        below(self.hash(2, u64::from(item)), self.config.users)
    }

    /// The region of a user.
    pub fn region_of_user(&self, user: u32) -> u32 {
        below(self.hash(3, u64::from(user)), self.config.regions)
    }

    /// An item's place by popularity, 0 the most popular.
    ///
    /// # Panics
    /// Where there is no such item.
    pub fn rank_of(&self, item: u32) -> u32 {
        self.ranks[item as usize]
    }

    /// The share of the visits to items that are to this one (Zipf's law).
    ///
    /// # Panics
    /// Where there is no such item.
    pub fn popularity(&self, item: u32) -> Ratio {
        let shelf = &self.shelves[self.category_of(item) as usize];
        let at = shelf.items.partition_point(|other| *other < item);
        let before = if at == 0 { 0.0 } else { shelf.shares[at - 1] };
        Ratio::new(shelf.shares[at] - before)
    }

    /// Draws an item by its popularity.
    pub fn draw_item(&self, rng: &mut impl Draw) -> u32 {
        let whole = self.categories[self.categories.len() - 1];
        let category = find(&self.categories, rng.uniform() * whole);
        self.draw_item_of(category as u32, rng)
            // A sum that was rounded can lead to a category without items; the first item has one that is not empty.
            .unwrap_or(0)
    }

    /// Draws an item of a category by its popularity; none where the category is empty.
    ///
    /// # Panics
    /// Where there is no such category.
    pub fn draw_item_of(&self, category: u32, rng: &mut impl Draw) -> Option<u32> {
        let shelf = &self.shelves[category as usize];
        let whole = shelf.shares.last()?;
        Some(shelf.items[find(&shelf.shares, rng.uniform() * whole)])
    }

    /// How many pages of results a search has that anybody turns: of a category, or of a category in a region; at least one
    /// (which may be empty), at most 10.
    pub fn result_pages(&self, category: u32, region: Option<u32>) -> u32 {
        let first = (category * self.config.regions) as usize;
        let found = match region {
            Some(region) => self.counts[first + region as usize],
            None => self.shelves[category as usize].items.len() as u32,
        };
        found.div_ceil(RESULTS_PER_PAGE).clamp(1, MAX_RESULT_PAGES)
    }

    /// How long a page is, bytes: its own for each page and what it is about, the same for everybody who asks for it. Sizes
    /// are spread between the shortest and the longest as a power of an even spread whose mean is
    /// [`SiteConfig::mean_bytes`].
    pub fn bytes(&self, place: &Place) -> u32 {
        let (least, mean, most) = (
            f64::from(self.config.least_bytes),
            f64::from(self.config.mean_bytes),
            f64::from(self.config.most_bytes),
        );
        if mean <= least {
            return self.config.least_bytes;
        }
        // The mean of u^p is 1 / (p + 1) for u spread evenly from 0 to 1.
        let power = (most - least) / (mean - least) - 1.0;
        let shared = Place { user: 0, ..*place };
        let even = (self.hash(4, shared.key()) >> 11) as f64 / (1u64 << 53) as f64;
        (least + (most - least) * libm::pow(even, power)).round() as u32
    }

    /// Whether what a page is about existed from the start.
    pub fn has(&self, place: &Place) -> bool {
        let known = match place.page.subject() {
            Subject::Nothing => 1,
            Subject::Category => self.config.categories,
            Subject::Region => self.config.regions,
            Subject::Item => self.config.items,
            Subject::User => self.config.users,
        };
        place.subject < known && place.region < self.config.regions && place.user < self.config.users
    }

    /// A number drawn from the seed for a purpose and a value: SplitMix64's finaliser (G. Steele et al., OOPSLA 2014),
    /// twice, so that every bit of all three counts.
    fn hash(&self, purpose: u64, value: u64) -> u64 {
        let seed = self.config.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ purpose;
        mix(mix(seed) ^ value)
    }
}

fn mix(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// A number below a bound from evenly spread bits.
fn below(bits: u64, bound: u32) -> u32 {
    (((bits >> 32) * u64::from(bound)) >> 32) as u32
}

/// The first whose running sum is above a value; the last where rounding leaves none.
fn find(sums: &[f64], value: f64) -> usize {
    sums.partition_point(|sum| *sum <= value).min(sums.len() - 1)
}

fn check(config: &SiteConfig) -> Result<(), SiteError> {
    let need = |holds: bool, setting, value: &dyn std::fmt::Display, remedy| match holds {
        true => Ok(()),
        false => Err(SiteError {
            setting,
            value: value.to_string(),
            remedy,
        }),
    };
    let holds = (1..=MAX_ITEMS).contains(&config.items);
    need(holds, "items", &config.items, "give from 1 to 1,000,000 items")?;
    let holds = (1..=MAX_USERS).contains(&config.users);
    need(holds, "users", &config.users, "give from 1 to 1,000,000 users")?;
    let holds = (1..=120).contains(&config.categories);
    need(
        holds,
        "categories",
        &config.categories,
        "give from 1 to 120 categories",
    )?;
    let holds = (1..=120).contains(&config.regions);
    need(holds, "regions", &config.regions, "give from 1 to 120 regions")?;
    let exponent = config.popularity_exponent;
    let holds = (0.0..=3.0).contains(&exponent);
    need(
        holds,
        "popularity_exponent",
        &exponent,
        "give an exponent from 0 to 3",
    )?;
    let holds = (1_024..=10_000_000).contains(&config.least_bytes);
    need(
        holds,
        "least_bytes",
        &config.least_bytes,
        "give from 1,024 to 10,000,000 bytes",
    )?;
    let holds = (config.least_bytes..=10_000_000).contains(&config.most_bytes);
    need(
        holds,
        "most_bytes",
        &config.most_bytes,
        "give at least the shortest page's bytes and at most 10,000,000",
    )?;
    let holds = (config.least_bytes..=config.most_bytes).contains(&config.mean_bytes);
    need(
        holds,
        "mean_bytes",
        &config.mean_bytes,
        "give a mean between the shortest and the longest page's bytes",
    )
}
