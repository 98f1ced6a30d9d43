//! What is asked for: pages, their objects, and what those cost.

use super::scenario::{PageFigures, TiersScenario};
use crate::error::ScenarioError;
use headroom_units::Seconds;
use headroom_workload::Distribution;
use headroom_workload::auction::{Behaviour, Change, Mix, Page as Kind, Place, Site, Visitor};
use headroom_workload::random::{Draw, Rng};

/// Where the number of an object begins in a key, behind that of its page.
const OBJECT_BITS: u32 = 40;
/// The seed of objects' sizes: an object has the same in every run.
const SIZES: u64 = 0x0b1e_c75e;

/// What one request asks for, and what it would cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Asked {
    pub(super) key: u64,
    pub(super) bytes: u64,
    /// Neither held nor looked for in the cache: it changes something.
    pub(super) writes: bool,
    /// Whether others may be given its answer.
    pub(super) shared: bool,
    /// The keys of the objects that it changes.
    pub(super) changes: Vec<u64>,
    /// Work of each tier where it is fetched, seconds at the highest frequency.
    pub(super) work_s: [f64; 3],
    /// Work of the front where it need not be.
    pub(super) hit_s: f64,
    pub(super) delay_s: f64,
}

/// The means of what a request costs.
#[derive(Clone, Copy)]
struct Cost {
    work_s: [f64; 3],
    delay_s: f64,
}

struct Page {
    cost: Cost,
    writes: bool,
    changes: Vec<u32>,
    /// Sum of the popularity up to each object.
    popularity: Vec<f64>,
    bytes: Vec<u32>,
}

/// Where requests come from.
enum Source {
    /// Pages, with the sum of the weights up to each.
    Pages(Vec<Page>, Vec<f64>),
    /// An auction site.
    Auction(Box<Site>, Mix, Cost),
}

/// All that can be asked for.
pub(super) struct Content {
    source: Source,
    shape: Distribution,
    hit_s: f64,
}

impl Content {
    /// Of a checked scenario.
    pub(super) fn new(scenario: &TiersScenario) -> Result<Self, ScenarioError> {
        let source = match &scenario.auction {
            Some(auction) => {
                let cost = Cost {
                    work_s: [auction.front_s, auction.application_s, auction.database_s],
                    delay_s: auction.delay_s,
                };
                Source::Auction(Box::new(auction.site()?), auction.mix()?, cost)
            }
            None => pages(&scenario.pages),
        };
        Ok(Self {
            source,
            shape: scenario.demand.scaled(1.0),
            hit_s: scenario.front.hit_s,
        })
    }

    /// A user of this number, in an auction; the think time is not the visitor's.
    pub(super) fn visitor(&self, seed: u64, number: u32) -> Option<Visitor> {
        match &self.source {
            Source::Pages(..) => None,
            Source::Auction(_, mix, _) => {
                let behaviour = Behaviour::thinking(*mix, Seconds::ZERO);
                Some(Visitor::new(seed, u64::from(number), behaviour))
            }
        }
    }

    /// What a user asks for next. Always as many draws, so that what one request cost changes no other.
    pub(super) fn draw(&self, rng: &mut Rng, visitor: Option<&mut Visitor>) -> Asked {
        let (asked, cost) = match (&self.source, visitor) {
            (Source::Auction(site, _, cost), Some(visitor)) => (visited(visitor, site), *cost),
            (Source::Auction(_, _, cost), None) => (Asked::default(), *cost),
            (Source::Pages(pages, weights), _) => {
                let at = chosen(weights, rng.uniform());
                let page = &pages[at];
                let object = chosen(&page.popularity, rng.uniform()) as u64;
                let changes = page.changes.iter().map(|page| key(*page, object));
                let asked = Asked {
                    key: key(at as u32, object),
                    bytes: u64::from(page.bytes[object as usize]),
                    writes: page.writes,
                    shared: !page.writes,
                    changes: changes.collect(),
                    ..Asked::default()
                };
                (asked, page.cost)
            }
        };
        let mut work = |mean_s: f64| mean_s * self.shape.sample(rng);
        Asked {
            work_s: cost.work_s.map(&mut work),
            hit_s: work(self.hit_s),
            delay_s: work(cost.delay_s),
            ..asked
        }
    }
}

fn pages(all: &[PageFigures]) -> Source {
    let named = |name: &String| {
        let same = |page: &PageFigures| page.name == *name;
        all.iter().position(same).map(|at| at as u32)
    };
    let page = |(at, figures): (usize, &PageFigures)| {
        let sizes = figures.bytes_shape.scaled(figures.bytes);
        let mut rng = Rng::of_user(SIZES, at as u32);
        let size = |_| sizes.sample(&mut rng).clamp(1.0, f64::from(u32::MAX)) as u32;
        Page {
            cost: Cost {
                work_s: [figures.front_s, figures.application_s, figures.database_s],
                delay_s: figures.delay_s,
            },
            writes: figures.writes,
            changes: figures.changes.iter().filter_map(named).collect(),
            popularity: sums((1..=figures.objects).map(|rank| (rank as f64).powf(-figures.zipf))),
            bytes: (0..figures.objects).map(size).collect(),
        }
    };
    let weights = sums(all.iter().map(|page| page.weight));
    Source::Pages(all.iter().enumerate().map(page).collect(), weights)
}

/// What a visitor asks for next.
fn visited(visitor: &mut Visitor, site: &Site) -> Asked {
    let (_, visit) = visitor.next(site);
    Asked {
        key: visit.key,
        bytes: u64::from(visit.bytes),
        writes: visit.is_write(),
        shared: !visit.page().is_personal(),
        changes: visit.writes.map_or_else(Vec::new, |change| changed(change, site)),
        ..Asked::default()
    }
}

/// The keys of the pages that a write changes.
fn changed(change: Change, site: &Site) -> Vec<u64> {
    let about = |page: Kind, subject: u32| Place {
        subject,
        ..Place::of(page)
    };
    match change {
        Change::NewUser => Vec::new(),
        Change::Item(item) => [Kind::ViewItem, Kind::ViewBids]
            .map(|page| about(page, item).key())
            .to_vec(),
        Change::User(user) => vec![about(Kind::ViewUser, user).key()],
        Change::NewItem { category } => (0..site.result_pages(category, None))
            .map(|results| {
                let first = about(Kind::SearchByCategory, category);
                Place { results, ..first }.key()
            })
            .collect(),
    }
}

const fn key(page: u32, object: u64) -> u64 {
    (page as u64) << OBJECT_BITS | object
}

fn sums(weights: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sum = 0.0;
    let up_to = weights.map(|weight| {
        sum += weight;
        sum
    });
    up_to.collect()
}

/// The place whose share of the sum a uniform draw falls into.
fn chosen(sums: &[f64], uniform: f64) -> usize {
    let all = sums.last().copied().unwrap_or(0.0);
    sums.partition_point(|sum| *sum <= uniform * all)
        .min(sums.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::super::scenario::AuctionFigures;
    use super::*;

    #[test]
    fn pages_and_objects_are_asked_for_as_often_as_they_should_be() {
        let mut scenario = TiersScenario::default();
        let mut bid = scenario.pages[0].clone();
        (bid.name, bid.weight, bid.writes) = ("bid".to_owned(), 3.0, true);
        bid.changes = vec!["item".to_owned()];
        (bid.objects, bid.zipf) = (4, 1.0);
        scenario.pages.push(bid);
        let content = Content::new(&scenario).unwrap();
        let mut rng = Rng::of_user(1, 0);
        let asked: Vec<Asked> = (0..100_000).map(|_| content.draw(&mut rng, None)).collect();
        let bids: Vec<&Asked> = asked.iter().filter(|one| one.writes).collect();
        assert!((bids.len() as f64 / 75_000.0 - 1.0).abs() < 0.02);
        // 1 + 1/2 + 1/3 + 1/4 = 25/12.
        let first = bids.iter().filter(|one| one.key == key(1, 0)).count() as f64;
        assert!((first / bids.len() as f64 - 12.0 / 25.0).abs() < 0.01);
        assert_eq!(bids[0].changes, [bids[0].key & 0xff]);
        let work_s: f64 = asked.iter().map(|one| one.work_s[1]).sum();
        assert!((work_s / 100_000.0 / 0.004 - 1.0).abs() < 0.02);
    }

    #[test]
    fn an_auction_is_asked_for_as_its_visitors_do() {
        let scenario = TiersScenario {
            auction: Some(AuctionFigures {
                mix: "bidding".to_owned(),
                ..AuctionFigures::default()
            }),
            ..TiersScenario::default()
        };
        let content = Content::new(&scenario).unwrap();
        let (mut rng, mut visitor) = (Rng::of_user(1, 0), content.visitor(1, 0));
        let asked: Vec<Asked> = (0..20_000)
            .map(|_| content.draw(&mut rng, visitor.as_mut()))
            .collect();
        let writes: Vec<&Asked> = asked.iter().filter(|one| one.writes).collect();
        assert!((0.1..0.2).contains(&(writes.len() as f64 / 20_000.0)));
        assert!(writes.iter().all(|one| !one.shared));
        let changed = writes.iter().flat_map(|one| &one.changes);
        let looked_at = asked.iter().filter(|one| one.shared);
        let looked_at: std::collections::HashSet<u64> = looked_at.map(|one| one.key).collect();
        assert!(
            changed.filter(|key| looked_at.contains(key)).count() > 0,
            "pages that are read are changed"
        );
    }
}
