//! What a gateway's cache and batcher did in a period, as laws are given it and as parts show it.

use headroom_control::{BatchObservation, CacheObservation};
use headroom_gateway::{BatchCounts, CacheCounts, RankCounts};
use headroom_units::{Part, Ratio, Role, Seconds, Sensor};

/// What a law is given of a cache's counts: what was answered from memory, fresh or as stale as the origin allows, is a hit, also where
/// the request waited for another's fetch of the same; what the origin was asked about is none.
pub fn cache(counts: &CacheCounts) -> CacheObservation {
    CacheObservation {
        lookups: counts.lookups(),
        hits: counts.answered(),
    }
}

/// What a law is given of a batcher's counts.
pub fn batching(counts: &BatchCounts) -> BatchObservation {
    BatchObservation {
        batches: counts.batches,
        requests: counts.requests,
        groups: counts.groups,
        answered: counts.answered,
        processing: Seconds::from_micros(counts.processing_us as f64),
        waiting: Seconds::from_micros(counts.waiting_us as f64),
        held: counts.held,
    }
}

/// A part with what its cache and its batcher did; what there was nothing of is absent.
pub fn with_front(part: Part, cache: Option<&CacheObservation>, batching: Option<&BatchObservation>) -> Part {
    part.with(
        Sensor::CacheHitRatio,
        cache.and_then(CacheObservation::hit_ratio).map(Ratio::get),
    )
    .with(
        Sensor::BatchProcessing,
        batching
            .and_then(BatchObservation::mean_processing)
            .map(Seconds::get),
    )
    .with(
        Sensor::BatchWaiting,
        batching
            .and_then(BatchObservation::mean_waiting)
            .map(Seconds::get),
    )
    .with(
        Sensor::BatchGroupSize,
        batching.and_then(BatchObservation::group_size),
    )
}

/// What gateways did with the requests of a class of importance in a period of this length: how many had to wait, and how many of all
/// were turned away.
pub fn importance(name: &str, counts: RankCounts, length: Seconds) -> Part {
    let rate = (length > Seconds::ZERO).then(|| counts.turned_away as f64 / length.get());
    Part::new(name, Role::Importance)
        .with(Sensor::TurnedAway, rate)
        .fact("waited", counts.waited)
        .fact("turned_away", counts.turned_away)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_of_importance_has_its_counts_and_the_rate_at_which_it_was_turned_away() {
        let counts = RankCounts {
            waited: 12,
            turned_away: 3,
        };
        let part = importance("checkout", counts, Seconds::new(0.5));
        assert_eq!(part.get(Sensor::TurnedAway), Some(6.0));
        assert_eq!(part.facts["turned_away"], 3_u64.into());
        assert_eq!(
            importance("checkout", counts, Seconds::ZERO).get(Sensor::TurnedAway),
            None
        );
    }

    #[test]
    fn what_memory_answered_is_a_hit_and_what_the_origin_was_asked_is_none() {
        let seen = cache(&CacheCounts {
            hits: 5,
            stale: 2,
            misses: 9,
            validated: 3,
            collapsed: 4,
            passed: 4,
            ..CacheCounts::default()
        });
        assert_eq!(seen, CacheObservation { lookups: 20, hits: 7 });
        assert_eq!(seen.hit_ratio(), Some(Ratio::new(0.35)));
    }

    #[test]
    fn a_part_has_the_means_of_its_batches_and_nothing_of_none() {
        let seen = batching(&BatchCounts {
            batches: 4,
            requests: 24,
            groups: 12,
            waiting_us: 400_000,
            answered: 2,
            processing_us: 50_000,
            full: 9,
            expired: 9,
            held: 5,
        });
        assert_eq!(seen.held, 5);
        let part = with_front(Part::new("a", Role::Gateway), None, Some(&seen));
        let of = |sensor: Sensor| part.get(sensor);
        assert_eq!(of(Sensor::BatchWaiting), Some(0.1));
        assert_eq!(of(Sensor::BatchProcessing), Some(0.025));
        assert_eq!(of(Sensor::BatchGroupSize), Some(2.0));
        assert_eq!(of(Sensor::CacheHitRatio), None);
        let (cache, none) = (CacheObservation::default(), BatchObservation::default());
        let part = with_front(Part::new("a", Role::Gateway), Some(&cache), Some(&none));
        assert!(part.values.is_empty(), "{part:?}");
    }
}
