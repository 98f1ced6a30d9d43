//! A server that is stopped and goes on (SIGSTOP and SIGCONT): nothing is said of it that it does not do.

use super::kinds::SLEEP;
use super::servers::Kind;
use headroom_control::capacity::{BusyTimeMonitor, Capacity, QueueTuning};

const LOOK_S: f64 = 0.02;
const ONCE_S: f64 = 40.0;

/// What is said, second by second, of one that stands still for so long until 40 s have passed.
fn said(kind: &Kind, for_s: f64) -> Vec<(f64, Capacity)> {
    let mut ours = BusyTimeMonitor::new(QueueTuning::default()).unwrap();
    let (mut said, mut next_s) = (Vec::new(), 1.0);
    let stopped = Kind {
        pauses_s: (ONCE_S, for_s),
        seconds: 60,
        ..*kind
    };
    stopped.run(
        7,
        LOOK_S,
        |at_s, observation| {
            let capacity = ours.observe(observation).capacity;
            if at_s >= next_s - 1e-9 {
                said.push((at_s, capacity));
                next_s += 1.0;
            }
        },
        |_, _| {},
    );
    said
}

/// Workers that all take equally long go on in phase after it: their accepts come in bunches.
#[test]
fn a_stop_is_set_aside_and_never_a_bound_of_nothing() {
    let kinds = [
        SLEEP,
        Kind {
            workers: |_| 32,
            load: |_| 400.0,
            most: 400.0,
            ..SLEEP
        },
        Kind {
            workers: |_| 2,
            load: |_| 25.0,
            most: 25.0,
            ..SLEEP
        },
    ];
    for kind in kinds {
        for for_s in [0.5, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0] {
            let truth = (kind.workers)(0.0) as f64 * 10.0;
            for (at_s, capacity) in said(&kind, for_s) {
                println!("{truth} {for_s} {at_s:.0} {capacity}");
                let none = matches!(capacity, Capacity::LowerBound(bound) if bound.get() <= 0.0);
                assert!(!none, "{truth} {for_s} s, {at_s:.0} s: {capacity}");
                // One that is no longer than is set aside changes nothing.
                let near = capacity
                    .met()
                    .is_some_and(|met| (met.get() / truth - 1.0).abs() < 0.1);
                assert!(
                    near || at_s < 10.0 || for_s > 8.0,
                    "{truth} {for_s} s, {at_s:.0} s: {capacity}"
                );
            }
        }
    }
}
