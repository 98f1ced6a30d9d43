//! What is asked for: pages, their objects, and what those cost.

use super::scenario::{PageFigures, TiersScenario};
use headroom_workload::Distribution;
use headroom_workload::random::{Draw, Rng};

/// Where the number of an object begins in a key, behind that of its page.
const OBJECT_BITS: u32 = 40;
/// The seed of objects' sizes: an object has the same in every run.
const SIZES: u64 = 0x0b1e_c75e;

/// One request's page, and what it would cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Asked {
    pub(super) page: u32,
    pub(super) key: u64,
    /// Work of each tier where it is fetched, seconds at the highest frequency.
    pub(super) work_s: [f64; 3],
    /// Work of the front where it need not be.
    pub(super) hit_s: f64,
    pub(super) delay_s: f64,
}

struct Page {
    means_s: [f64; 3],
    delay_s: f64,
    writes: bool,
    changes: Vec<u32>,
    /// Sum of the popularity up to each object.
    popularity: Vec<f64>,
    bytes: Vec<u32>,
}

/// All pages.
pub(super) struct Content {
    pages: Vec<Page>,
    /// Sum of the weights up to each page.
    weights: Vec<f64>,
    shape: Distribution,
    hit_s: f64,
}

impl Content {
    /// Of a checked scenario.
    pub(super) fn new(scenario: &TiersScenario) -> Self {
        let named = |name: &String| {
            let same = |page: &PageFigures| page.name == *name;
            scenario.pages.iter().position(same).map(|at| at as u32)
        };
        let page = |(at, figures): (usize, &PageFigures)| {
            let sizes = figures.bytes_shape.scaled(figures.bytes);
            let mut rng = Rng::of_user(SIZES, at as u32);
            let size = |_| sizes.sample(&mut rng).clamp(1.0, f64::from(u32::MAX)) as u32;
            Page {
                means_s: [figures.front_s, figures.application_s, figures.database_s],
                delay_s: figures.delay_s,
                writes: figures.writes,
                changes: figures.changes.iter().filter_map(named).collect(),
                popularity: sums((1..=figures.objects).map(|rank| (rank as f64).powf(-figures.zipf))),
                bytes: (0..figures.objects).map(size).collect(),
            }
        };
        Self {
            pages: scenario.pages.iter().enumerate().map(page).collect(),
            weights: sums(scenario.pages.iter().map(|page| page.weight)),
            shape: scenario.demand.scaled(1.0),
            hit_s: scenario.front.hit_s,
        }
    }

    /// What a user asks for next. Always as many draws, so that what one request cost changes no other.
    pub(super) fn draw(&self, rng: &mut Rng) -> Asked {
        let at = chosen(&self.weights, rng.uniform());
        let page = &self.pages[at];
        let object = chosen(&page.popularity, rng.uniform());
        let mut work = |mean_s: f64| mean_s * self.shape.sample(rng);
        let work_s = page.means_s.map(&mut work);
        Asked {
            page: at as u32,
            key: key(at as u32, object as u64),
            work_s,
            hit_s: work(self.hit_s),
            delay_s: work(page.delay_s),
        }
    }

    pub(super) fn writes(&self, asked: &Asked) -> bool {
        self.pages[asked.page as usize].writes
    }

    pub(super) fn bytes(&self, asked: &Asked) -> u64 {
        let object = asked.key & ((1 << OBJECT_BITS) - 1);
        u64::from(self.pages[asked.page as usize].bytes[object as usize])
    }

    /// The keys of the objects that it changes.
    pub(super) fn changes(&self, asked: &Asked) -> impl Iterator<Item = u64> + '_ {
        let object = asked.key & ((1 << OBJECT_BITS) - 1);
        let pages = &self.pages[asked.page as usize].changes;
        pages.iter().map(move |page| key(*page, object))
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
    use super::*;

    #[test]
    fn pages_and_objects_are_asked_for_as_often_as_they_should_be() {
        let mut scenario = TiersScenario::default();
        let mut bid = scenario.pages[0].clone();
        (bid.name, bid.weight, bid.writes) = ("bid".to_owned(), 3.0, true);
        bid.changes = vec!["item".to_owned()];
        (bid.objects, bid.zipf) = (4, 1.0);
        scenario.pages.push(bid);
        let content = Content::new(&scenario);
        let mut rng = Rng::of_user(1, 0);
        let asked: Vec<Asked> = (0..100_000).map(|_| content.draw(&mut rng)).collect();
        let bids: Vec<&Asked> = asked.iter().filter(|one| content.writes(one)).collect();
        assert!((bids.len() as f64 / 75_000.0 - 1.0).abs() < 0.02);
        // 1 + 1/2 + 1/3 + 1/4 = 25/12.
        let first = bids.iter().filter(|one| one.key == key(1, 0)).count() as f64;
        assert!((first / bids.len() as f64 - 12.0 / 25.0).abs() < 0.01);
        let changed: Vec<u64> = content.changes(bids[0]).collect();
        assert_eq!(changed, [bids[0].key & 0xff]);
        let work_s: f64 = asked.iter().map(|one| one.work_s[1]).sum();
        assert!((work_s / 100_000.0 / 0.004 - 1.0).abs() < 0.02);
    }
}
