//! The law that seeks the interval, after what made batches help has ended.

use super::seek::{Run, World, seek, valley};

/// An hour in which batches halve half a second, and two in which a request only waits for half an interval beside `alone` seconds.
fn ended(alone: f64, seed: u64) -> Run {
    let world = World {
        answer: |number, interval| match number {
            0..3_600 => (0.5 * valley(interval, 0.15, 0.5), 1.6, 0.0),
            _ => (alone + interval * 0.5, 1.1, 0.0),
        },
        noise: 0.05,
        tail: 1.5,
        hold: 0.0,
        length: 1.0,
        seed,
    };
    world.run(seek(4_000.0), 10_800)
}

#[test]
fn a_gain_that_was_found_is_doubted_again_though_the_load_looks_the_same() {
    // With batches in force the response is then what it was with them before, or nearly: another server does the rest.
    for (alone, most) in [(0.2, 0.07), (0.1, 0.09), (0.5, 0.03)] {
        for seed in 1..41 {
            let run = ended(alone, seed);
            let held = &run.intervals[3_000..3_600];
            assert!(
                held.iter().sum::<f64>() / 600.0 > 0.05,
                "{alone} {seed}: it helps"
            );
            let none = run.intervals[3_600..5_400]
                .iter()
                .filter(|interval| **interval < 1e-3);
            assert!(
                none.count() > 0,
                "{alone} {seed}: never without within half an hour"
            );
            let after = run.intervals[3_600..]
                .iter()
                .map(|interval| 0.5 * interval / alone);
            let lost = after.sum::<f64>() / 7_200.0;
            assert!(lost < most, "{alone} {seed}: {:.1} %", lost * 100.0);
        }
    }
}
