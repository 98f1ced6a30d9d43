//! The order in which documents are asked for: as often as their popularity says, and with temporal locality.
//!
//! After SURGE: a block of references holds each document as often as its popularity says. The documents lie on a
//! stack. For each reference a stack distance is drawn (lognormal), and near that depth one document is chosen with
//! a probability proportional to how often it is still due; it goes on top, or away when it is due no more. So a
//! block has exactly the popularity (Zipf) and nearly the distances. Then the next block begins.
//!
//! The window in which a document is chosen is not published; here it is half the depth to either side.

use super::files::FileSet;
use crate::distribution::Distribution;
use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

/// A seeded, endless stream of documents of a file set.
#[derive(Clone, Debug)]
pub struct References {
    files: Arc<FileSet>,
    rng: ChaCha8Rng,
    /// Stack distances: lognormal, mu = 1.5, sigma = 0.80 (median 4.5), at most 10,000 and at most the stack's depth.
    distance: Distribution,
    /// How often each document is still due in this block.
    due: Vec<u32>,
    /// The documents that are still due; the one asked for last is at the end.
    stack: Vec<u32>,
}

impl References {
    /// The stream over a file set.
    pub fn new(files: Arc<FileSet>, seed: u64) -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            distance: Distribution::lognormal(1.5, 0.80).at_most(10_000.0),
            due: Vec::new(),
            stack: Vec::new(),
            files,
        }
    }

    /// The file set.
    pub fn files(&self) -> &Arc<FileSet> {
        &self.files
    }

    /// The next document's index in the file set.
    pub fn next_document(&mut self) -> usize {
        if self.stack.is_empty() {
            // A file set has documents, each with a popularity of 1 or more, so the stack is not empty afterwards.
            self.due = self.files.popularity().to_vec();
            self.stack = (0..self.due.len() as u32).collect();
            self.stack.shuffle(&mut self.rng);
        }
        let depth = self.stack.len();
        let distance = (self.distance.sample(&mut self.rng).round() as usize).clamp(1, depth);
        let half = distance / 2;
        // Depth d is at index `depth - d`.
        let deepest = (distance + half).min(depth);
        let window = depth - deepest..=depth - (distance - half).max(1);
        let total: u64 = window
            .clone()
            .map(|at| u64::from(self.due[self.stack[at] as usize]))
            .sum();
        let mut drawn = self.rng.random_range(0..total);
        let mut chosen = *window.end();
        for at in window {
            let weight = u64::from(self.due[self.stack[at] as usize]);
            if drawn < weight {
                chosen = at;
                break;
            }
            drawn -= weight;
        }
        let document = self.stack.remove(chosen);
        let due = &mut self.due[document as usize];
        *due -= 1;
        if *due > 0 {
            self.stack.push(document);
        }
        document as usize
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::FileSetConfig;
    use super::*;

    fn files() -> Arc<FileSet> {
        Arc::new(
            FileSet::generate(&FileSetConfig {
                files: 1000,
                ..FileSetConfig::default()
            })
            .unwrap(),
        )
    }

    #[test]
    fn a_block_has_exactly_the_popularity() {
        let files = files();
        let mut references = References::new(Arc::clone(&files), 1);
        for _ in 0..2 {
            let mut counts = vec![0; files.popularity().len()];
            let block: u64 = files.popularity().iter().map(|due| u64::from(*due)).sum();
            for _ in 0..block {
                counts[references.next_document()] += 1;
            }
            assert_eq!(counts, files.popularity());
        }
    }

    /// For each reference to a document asked for before, how many others were since, and itself.
    fn distances(order: &[usize]) -> Vec<f64> {
        let mut stack: Vec<usize> = Vec::new();
        let mut distances = Vec::new();
        for document in order {
            if let Some(at) = stack.iter().rposition(|on_stack| on_stack == document) {
                distances.push((stack.len() - at) as f64);
                stack.remove(at);
            }
            stack.push(*document);
        }
        distances.sort_by(f64::total_cmp);
        distances
    }

    #[test]
    fn stack_distances_are_near_the_lognormal_and_far_from_those_of_a_shuffled_order() {
        let files = files();
        let mut references = References::new(Arc::clone(&files), 2);
        let block: u64 = files.popularity().iter().map(|due| u64::from(*due)).sum();
        let order: Vec<usize> = (0..block).map(|_| references.next_document()).collect();
        let local = distances(&order);
        let mut shuffled = order;
        shuffled.shuffle(&mut ChaCha8Rng::seed_from_u64(1));
        let shuffled = distances(&shuffled);
        let at = |values: &[f64], share: f64| values[(share * values.len() as f64) as usize];
        println!(
            "stack distance P25, P50, P75, P90: {:?}; shuffled {:?}",
            [0.25, 0.5, 0.75, 0.9].map(|share| at(&local, share)),
            [0.25, 0.5, 0.75, 0.9].map(|share| at(&shuffled, share)),
        );
        // exp(1.5 + 0.8 z): 2.6, 4.5, 7.7 and 12.5.
        let median = at(&local, 0.5);
        assert!((3.0..6.5).contains(&median), "{median}");
        assert!(at(&local, 0.9) < 20.0);
        assert!(at(&shuffled, 0.5) > 5.0 * median);
    }

    #[test]
    fn the_stream_is_seeded() {
        let stream = |seed| {
            let mut references = References::new(files(), seed);
            (0..200).map(|_| references.next_document()).collect::<Vec<_>>()
        };
        assert_eq!(stream(1), stream(1));
        assert_ne!(stream(1), stream(2));
    }
}
