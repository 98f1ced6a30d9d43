//! Clients that hold workers, or leave them to work in vain, of each kind fewer than would be set aside.

use super::kinds::SLEEP;
use super::servers::{Holding, Kind};
use super::table::seeds;
use headroom_control::capacity::{BusyTimeMonitor, Capacity, QueueTuning};

const LOOK_S: f64 = 0.02;
/// Until the first of them that send half of a request show, at twenty times the mean time of a request.
const SHOWN_S: f64 = 14.0;

/// Forty workers of 500 ms on average that serve 80/s while no client holds them.
fn forty(holding: Holding) -> Kind {
    Kind {
        // With room for all who come.
        backlog: 4_096,
        workers: |_| 40,
        takes: |random, _| (0.0, 0.25 + 0.5 * random.uniform()),
        load: |_| 90.0,
        most: 90.0,
        seconds: 120,
        holding: Some(holding),
        ..SLEEP
    }
}

/// Samples after that time, those that are exact, of these the ones off by more than 15 %, and of all that have an interval the ones that
/// it does not hold the truth of.
fn counted(holding: Holding, seed: u64) -> [u32; 4] {
    let kind = forty(holding);
    let mut ours = BusyTimeMonitor::new(QueueTuning::default()).unwrap();
    let (mut counts, mut next_s) = ([0; 4], SHOWN_S);
    kind.run(
        seed,
        LOOK_S,
        |at_s, observation| {
            let estimate = ours.observe(observation);
            if at_s < next_s - 1e-9 {
                return;
            }
            next_s += 1.0;
            let truth = (kind.truth)(at_s);
            counts[0] += 1;
            if let Capacity::Exact(value) = estimate.capacity {
                counts[1] += 1;
                counts[2] += u32::from((value.get() / truth - 1.0).abs() > 0.15);
            }
            let interval = estimate.interval.map(|sides| sides.map(|side| side.get()));
            counts[3] += u32::from(interval.is_some_and(|[low, high]| !(low..=high).contains(&truth)));
        },
        |_, _| {},
    );
    counts
}

#[test]
fn few_clients_of_each_kind_that_hold_workers_make_no_exact_estimate_wrong() {
    let none = Holding {
        stay_s: 15.0,
        ..Holding::NONE
    };
    let kinds = [
        ("none", none, 0.9..=1.0),
        ("3 silent", Holding { silent: 3, ..none }, 0.9..=1.0),
        ("5.5/s reset", Holding { resets: 5.5, ..none }, 0.9..=1.0),
        (
            "3 silent, 3 with half of a request",
            Holding {
                silent: 3,
                half: 3,
                ..none
            },
            0.0..=0.0,
        ),
        (
            "3 silent, 5.5/s reset",
            Holding {
                silent: 3,
                resets: 5.5,
                ..none
            },
            0.0..=0.1,
        ),
        (
            "3 silent, 3 with half of a request, 5.5/s reset",
            Holding {
                silent: 3,
                half: 3,
                resets: 5.5,
                ..none
            },
            0.0..=0.0,
        ),
    ];
    for (name, holding, exact_share) in kinds {
        let runs = seeds().map(|seed| counted(holding, seed));
        let [samples, exact, off, outside] =
            runs.fold([0; 4], |sum, one| std::array::from_fn(|at| sum[at] + one[at]));
        println!(
            "{name}: of {samples} samples {exact} are exact, {off} of these off by more than 15 %, {outside} intervals do not hold \
             the truth"
        );
        let share = |many: u32| f64::from(many) / f64::from(samples);
        assert!(
            exact_share.contains(&share(exact)),
            "{name}: {exact} of {samples}"
        );
        assert!(off == 0 && share(outside) < 0.05, "{name}: {off}, {outside}");
    }
}
