//! How much work a page is, measured and set.

use super::store::Store;
use super::{MAX_REVISIONS, Work, render};
use crate::server::thread_cpu;
use headroom_units::{PerSecond, Seconds};
use serde::Serialize;
use std::fmt;
use std::hint::black_box;

/// The revisions of the pages that are timed to find the cost of one.
const SAMPLE_REVISIONS: usize = 2;

/// For how long pages are timed at least, seconds of CPU time.
const SAMPLE_SECONDS: f64 = 0.15;

/// The range of the length factor: it trims what whole revisions cannot express.
const LENGTHS: (f64, f64) = (0.02, 4.0);

/// What a page costs here, measured at the start: CPU time on one core with nothing else on it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// The mean over all pages that was asked for; none for [`Work::Fixed`].
    pub asked_s: Option<Seconds>,
    /// The mean over all pages.
    pub mean_s: Seconds,
    /// The cheapest page.
    pub cheapest_s: Seconds,
    /// The dearest page.
    pub dearest_s: Seconds,
    /// Pages.
    pub pages: usize,
    /// Revisions of each page.
    pub revisions: usize,
    /// Factor on the pages' lengths.
    pub length: f64,
}

impl Calibration {
    /// How many pages a core renders a second, requests spread evenly over the pages: the service rate per core.
    pub fn service_rate(&self) -> PerSecond {
        PerSecond::new(1.0 / self.mean_s.get())
    }
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} pages of {} revisions: {:.2} ms of CPU time a view in the mean ({:.2} to {:.2} ms), so {:.0} views/s a core",
            self.pages,
            self.revisions,
            self.mean_s.as_millis(),
            self.cheapest_s.as_millis(),
            self.dearest_s.as_millis(),
            self.service_rate().get(),
        )
    }
}

/// Writes the pages, with as much work in them as was asked for, and measures it.
pub(super) fn build(work: Work, pages: usize, seed: u64) -> (Store, Calibration) {
    let (revisions, length, asked) = match work {
        Work::Fixed { revisions, length } => (revisions, length, None),
        Work::MeanCpu(asked) => {
            let (revisions, length) = find_work(asked.get(), pages, seed);
            (revisions, length, Some(asked))
        }
    };
    let store = Store::write(pages, revisions, length, seed);
    let costs = page_costs(&store);
    let calibration = Calibration {
        asked_s: asked,
        mean_s: costs.iter().copied().map(Seconds::new).sum::<Seconds>() / pages as f64,
        cheapest_s: Seconds::new(costs.iter().copied().fold(f64::INFINITY, f64::min)),
        dearest_s: Seconds::new(costs.iter().copied().fold(0.0, f64::max)),
        pages,
        revisions,
        length,
    };
    (store, calibration)
}

/// Revisions and length that make the mean page cost `asked` seconds: whole revisions first, as near as they
/// come, then the length for the rest, measured once more because short pages carry a fixed cost.
fn find_work(asked: f64, pages: usize, seed: u64) -> (usize, f64) {
    let per_revision = mean_cost(pages, SAMPLE_REVISIONS, 1.0, seed) / SAMPLE_REVISIONS as f64;
    let revisions = ((asked / per_revision).round() as usize).clamp(1, MAX_REVISIONS);
    let bounded = |length: f64| length.clamp(LENGTHS.0, LENGTHS.1);
    let first = bounded(asked / (revisions as f64 * per_revision));
    let found = mean_cost(pages, revisions, first, seed);
    (revisions, bounded(first * asked / found))
}

/// The mean over all pages of the CPU time of a view, seconds: the median of several rounds, since a round that
/// something disturbed must not count.
fn mean_cost(pages: usize, revisions: usize, length: f64, seed: u64) -> f64 {
    let store = Store::write(pages, revisions, length, seed);
    let mut rounds = Vec::new();
    while rounds.len() < 2 || rounds.iter().sum::<f64>() * (pages as f64) < SAMPLE_SECONDS {
        rounds.push(page_costs(&store).iter().sum::<f64>() / pages as f64);
    }
    rounds.sort_by(f64::total_cmp);
    rounds[(rounds.len() - 1) / 2]
}

/// The CPU time of a view of each page, seconds.
fn page_costs(store: &Store) -> Vec<f64> {
    let timed = store.pages.iter().map(|page| {
        let start = thread_cpu();
        black_box(render::page(store, page));
        thread_cpu() - start
    });
    timed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calibration_comes_near_what_was_asked_and_follows_it() {
        // The machine may be noisy and the build slow, so the bounds are wide; twice the cost must cost more.
        let mean = |asked_ms| {
            build(Work::MeanCpu(Seconds::from_millis(asked_ms)), 12, 1)
                .1
                .mean_s
                .as_millis()
        };
        let (small, large) = (mean(3.0), mean(12.0));
        assert!((1.0..9.0).contains(&small), "{small} ms for 3 ms");
        assert!((4.0..36.0).contains(&large), "{large} ms for 12 ms");
        assert!(large > 2.0 * small, "{small} {large}");
    }

    #[test]
    fn fixed_work_is_not_calibrated() {
        let (store, calibration) = build(
            Work::Fixed {
                revisions: 3,
                length: 0.1,
            },
            8,
            1,
        );
        assert_eq!(
            (calibration.revisions, calibration.asked_s, calibration.pages),
            (3, None, 8)
        );
        assert_eq!(store.pages[0].edits.len(), 2);
        assert!(calibration.cheapest_s <= calibration.mean_s && calibration.mean_s <= calibration.dearest_s);
        let line = calibration.to_string();
        assert!(
            line.contains("8 pages of 3 revisions") && line.contains("views/s a core"),
            "{line}"
        );
    }

    #[test]
    fn the_dearest_page_costs_an_order_of_magnitude_more_than_the_cheapest() {
        let store = Store::write(24, 4, 1.0, 1);
        let bytes: Vec<usize> = store
            .pages
            .iter()
            .map(|page| render::page(&store, page).len())
            .collect();
        let ratio = *bytes.iter().max().unwrap() as f64 / *bytes.iter().min().unwrap() as f64;
        assert!(
            ratio > 6.0,
            "the documents, which carry a history of constant length, differ by {ratio}"
        );
        // The least of several rounds is what a page costs when nothing disturbs it.
        let rounds: Vec<Vec<f64>> = (0..5).map(|_| page_costs(&store)).collect();
        let least = |index: usize| {
            rounds
                .iter()
                .map(|round| round[index])
                .fold(f64::INFINITY, f64::min)
        };
        let costs: Vec<f64> = (0..24).map(least).collect();
        let ratio =
            costs.iter().copied().fold(0.0, f64::max) / costs.iter().copied().fold(f64::INFINITY, f64::min);
        assert!((7.0..40.0).contains(&ratio), "the costs differ by {ratio}");
    }
}
