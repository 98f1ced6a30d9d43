//! The estimators of capacity on a queue model whose capacity the theory knows.

mod holding;
mod kinds;
mod model;
mod servers;
mod services;
mod stops;
mod table;

use headroom_control::capacity::{
    BusyTimeMonitor, Capacity, QueueMonitor, QueueTuning, Ramp, RampTuning, Spread, UtilisationEstimator,
    UtilisationStep, UtilisationTuning,
};
use headroom_units::{PerSecond, Ratio};
use model::{CPU_BOUND, IO_BOUND, LOOK_S, Model};

fn monitor() -> QueueMonitor {
    QueueMonitor::new(QueueTuning::default()).unwrap()
}

#[test]
fn ten_ramps_find_the_true_capacity() {
    let mut found = Vec::new();
    for seed in 0..10 {
        let mut ramp = Ramp::new(RampTuning::default()).unwrap();
        let mut last = Capacity::Unknown;
        // From 500 to 700 in 400 s: slowly, for the window looks half a minute back.
        CPU_BOUND.run(
            400,
            700.0,
            seed,
            |at_s| 500.0 + at_s / 2.0,
            |_, step, _| last = ramp.step(step).unwrap(),
        );
        let Capacity::Exact(capacity) = last else {
            panic!("the ramp ended without violation: {last:?}")
        };
        found.push(capacity);
    }
    let spread = Spread::of(&found).unwrap();
    let truth = CPU_BOUND.true_capacity();
    println!(
        "ten ramps: mean {:.1}, deviation {:.1}; theory {truth:.1}",
        spread.mean.get(),
        spread.deviation.get()
    );
    assert!(
        (spread.mean.get() / truth - 1.0).abs() < 0.03,
        "{spread:?} against {truth}"
    );
    assert!(spread.deviation.get() < 0.03 * truth, "{spread:?}");
}

/// Figure 9: a sinusoid of users that overloads the server at its top.
fn sinusoid(model: &Model, seed: u64) -> Vec<(f64, Capacity, Capacity, f64)> {
    let truth = model.true_capacity();
    let (mut queue, cpu) = (
        monitor(),
        UtilisationEstimator::new(UtilisationTuning::default()).unwrap(),
    );
    let mut seconds = Vec::new();
    let rate = |at_s: f64| truth * (0.65 - 0.5 * (at_s * std::f64::consts::TAU / 600.0).cos());
    model.run(1_200, truth * 1.15, seed, rate, |_, step, utilisation| {
        let by_cpu = cpu.observe(&UtilisationStep {
            throughput: Some(step.service_rate()),
            utilisation: Some(Ratio::new(utilisation)),
        });
        seconds.push((
            step.drop_ratio(),
            queue.step(step).capacity,
            by_cpu.capacity,
            step.service_rate().get(),
        ));
    });
    seconds
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0, 0.0), |(count, sum), value| (count + 1, sum + value));
    sum / f64::from(count)
}

fn value(capacity: Capacity) -> f64 {
    capacity.value().map_or(f64::NAN, PerSecond::get)
}

#[test]
fn the_online_estimate_stays_within_a_tenth_through_overload_and_quiet() {
    let truth = CPU_BOUND.true_capacity();
    for seed in [1, 2, 3] {
        let seconds = sinusoid(&CPU_BOUND, seed);
        // The fast-start stage ends with the first overload, at the earliest when the queue is all but full.
        let first = seconds
            .iter()
            .position(|second| matches!(second.1, Capacity::Exact(_)))
            .unwrap();
        let dropping = seconds.iter().position(|second| second.0 >= 0.01).unwrap();
        assert!(
            first <= dropping && dropping - first < 30,
            "exact from {first} s, drops from {dropping} s"
        );
        assert!(
            seconds[first..]
                .iter()
                .all(|second| matches!(second.1, Capacity::Exact(_)))
        );
        // Each wave is at its top at 300 s and 900 s; the quiet lies around 0, 600 and 1,200 s.
        let overload = mean(
            seconds[first..]
                .iter()
                .filter(|second| second.0 >= 0.01)
                .map(|second| value(second.1)),
        );
        let quiet: Vec<f64> = seconds[500..700].iter().map(|second| value(second.1)).collect();
        println!(
            "seed {seed}: overload {overload:.1}, quiet {:.1}; theory {truth:.1}",
            quiet[100]
        );
        assert!(
            (overload / truth - 1.0).abs() < 0.10,
            "overload {overload} against {truth}"
        );
        for (at, estimate) in quiet.iter().enumerate() {
            assert!(
                (estimate / truth - 1.0).abs() < 0.10,
                "{estimate} at {} s against {truth}",
                500 + at
            );
        }
        // Nothing happens in the quiet, so nothing changes.
        assert!(quiet[50..150].iter().all(|estimate| *estimate == quiet[50]));
    }
}

/// Figure 10: where requests wait for something else, the CPU says nothing about capacity.
#[test]
fn only_queue_monitoring_finds_the_capacity_of_an_io_bound_server() {
    let truth = IO_BOUND.true_capacity();
    let seconds = sinusoid(&IO_BOUND, 4);
    let by_queue = value(seconds[600].1);
    // In the second wave's rise, in its overload and after it.
    let by_cpu = mean(
        seconds[700..1_100]
            .iter()
            .map(|second| second.2)
            .filter(|capacity| *capacity != Capacity::Unknown)
            .map(value),
    );
    println!("I/O-bound: queue {by_queue:.1}, CPU {by_cpu:.1}; theory {truth:.1}");
    assert!(
        (by_queue / truth - 1.0).abs() < 0.10,
        "{by_queue} against {truth}"
    );
    assert!(by_cpu > 3.0 * truth, "{by_cpu} against {truth}");
    // And where the CPU is the bottleneck, it is a fair guess.
    let by_cpu = mean(
        sinusoid(&CPU_BOUND, 4)[100..200]
            .iter()
            .map(|second| value(second.2)),
    );
    let truth = CPU_BOUND.true_capacity();
    assert!((by_cpu / truth - 1.0).abs() < 0.10, "{by_cpu} against {truth}");
}

#[test]
fn a_drop_in_capacity_is_followed_by_the_next_overload() {
    // Half the CPUs: what was exact before is too much, and the queue says so.
    let half = Model {
        workers: 4,
        cpus: 4.0,
        ..CPU_BOUND
    };
    let mut queue = monitor();
    let mut last = Capacity::Unknown;
    CPU_BOUND.run(
        60,
        800.0,
        1,
        |_| 800.0,
        |_, step, _| last = queue.step(step).capacity,
    );
    assert!(
        (value(last) / CPU_BOUND.true_capacity() - 1.0).abs() < 0.15,
        "{last:?}"
    );
    half.run(
        30,
        500.0,
        2,
        |_| 500.0,
        |_, step, _| last = queue.step(step).capacity,
    );
    assert!(
        (value(last) / half.true_capacity() - 1.0).abs() < 0.15,
        "{last:?}"
    );
    // And the other way round, from below: it rises while the queue stays short.
    CPU_BOUND.run(
        120,
        560.0,
        3,
        |_| 560.0,
        |_, step, _| last = queue.step(step).capacity,
    );
    assert!(value(last) > 540.0 && value(last) < 680.0, "{last:?}");
}

/// What both kinds say at the end of a run, ours by fine looks at the queue as a live meter takes them, and ours by an
/// exact account of the time for which somebody waited.
fn all_kinds(model: &Model, seconds: u32, most: f64, seed: u64, rate: impl Fn(f64) -> f64) -> [Capacity; 3] {
    let (mut published, mut looking, mut exact) = (
        monitor(),
        BusyTimeMonitor::new(QueueTuning::default()).unwrap(),
        BusyTimeMonitor::new(QueueTuning::default()).unwrap(),
    );
    let mut last = [Capacity::Unknown; 3];
    let [by_published, by_looking, by_exact] = &mut last;
    model.run_looking(
        seconds,
        most,
        seed,
        rate,
        |_, step, _| {
            *by_published = published.step(step).capacity;
            *by_exact = exact.step(step).capacity;
        },
        |observation| *by_looking = looking.observe(observation).capacity,
    );
    last
}

/// Bursts of 300 within a tenth of a second, once in ten seconds, over a load of a tenth: the published estimator takes
/// the service rate of a second that was idle for the most part, ours does not.
#[test]
fn bursts_do_not_push_our_estimate_down() {
    let truth = CPU_BOUND.true_capacity();
    let rate = |at_s: f64| if at_s % 10.0 < 0.1 { 4_000.0 } else { 60.0 };
    for seed in [1, 2, 3] {
        let [published, looking, exact] = all_kinds(&CPU_BOUND, 200, 4_000.0, seed, rate);
        println!(
            "bursts: published {:.1}, ours {:.1} and {:.1}; theory {truth:.1}",
            value(published),
            value(looking),
            value(exact)
        );
        assert!(value(published) < 0.6 * truth, "{published:?}");
        for ours in [looking, exact] {
            assert!(ours.met().is_some(), "{ours:?}");
            assert!(
                (value(ours) / truth - 1.0).abs() < 0.06,
                "{ours:?} against {truth}"
            );
        }
    }
}

/// A server that stands still at times (a collection of garbage, a neighbour on the host, workers that wait for
/// connections whose client is gone), for 0.3 s in ten or for 4 s in a minute. Each time somebody waits, and from an empty
/// queue to an empty queue no more is accepted than comes: what an exact account of the waiting finds at light load is the
/// load, and ours leaves such times out.
#[test]
fn stalls_do_not_push_our_estimate_down() {
    let truth = CPU_BOUND.true_capacity();
    for (share, stalls_s) in [
        (0.3, (10.0, 0.3)),
        (0.7, (10.0, 0.3)),
        (0.3, (60.0, 4.0)),
        (1.2, (60.0, 4.0)),
    ] {
        let model = Model {
            stalls_s,
            ..CPU_BOUND
        };
        // An overload, from which both know the capacity; then this share of it.
        let rate = |at_s: f64| truth * if at_s < 8.0 { 1.2 } else { share };
        for seed in [1, 2, 3] {
            let [published, looking, exact] = all_kinds(&model, 400, truth * 1.2, seed, rate);
            println!(
                "stalls {stalls_s:?} at {share}: published {:.1}, ours {:.1}, by an exact account {:.1}; theory {truth:.1}",
                value(published),
                value(looking),
                value(exact)
            );
            assert!(
                (value(looking) / truth - 1.0).abs() < 0.06,
                "{looking:?} against {truth}"
            );
            // Short ones leave it no other time with somebody waiting.
            if share < 0.5 && stalls_s.1 < 1.0 {
                assert!(value(exact) < 0.7 * truth, "{exact:?} against {truth}");
            }
        }
    }
}

/// A server whose workers all end together accepts in bursts, with long pauses between them: that is how it works and no
/// stall. And one that stands still for good serves nothing.
#[test]
fn a_server_that_works_in_bursts_is_followed_and_so_is_one_that_hangs() {
    let bursts = |workers| Model {
        workers,
        limit: 600,
        cpu_s: 1e-6,
        wait_s: 2.0,
        cpus: 1.0,
        stalls_s: (f64::INFINITY, 0.0),
    };
    let mut looking = BusyTimeMonitor::new(QueueTuning::default()).unwrap();
    let mut last = Capacity::Unknown;
    for (workers, seconds) in [(256, 100), (128, 200)] {
        let truth = workers as f64 / 2.0;
        bursts(workers).run_looking(
            seconds,
            400.0,
            1,
            |_| 400.0,
            |_, _, _| {},
            |observation| last = looking.observe(observation).capacity,
        );
        println!("bursts of {workers}: {last:?}; truth {truth}");
        assert!(
            (value(last) / truth - 1.0).abs() < 0.10,
            "{last:?} against {truth}"
        );
    }
    let hanging = Model {
        stalls_s: (1e6, 1e6),
        ..CPU_BOUND
    };
    let mut looking = BusyTimeMonitor::new(QueueTuning::default()).unwrap();
    CPU_BOUND.run_looking(
        60,
        1_000.0,
        1,
        |_| 1_000.0,
        |_, _, _| {},
        |observation| _ = looking.observe(observation),
    );
    let mut answers = Vec::new();
    hanging.run_looking(
        60,
        300.0,
        1,
        |_| 300.0,
        |_, _, _| {},
        |observation| answers.push(looking.observe(observation).capacity),
    );
    let (held, counted) = (answers[(8.0 / LOOK_S) as usize], answers[answers.len() - 1]);
    println!("hangs: {held:?} after 8 s, {counted:?} after a minute");
    assert!((value(held) / 600.0 - 1.0).abs() < 0.06, "{held:?}");
    assert!(
        counted == Capacity::Unknown || value(counted) < 30.0,
        "{counted:?}"
    );
}

#[test]
fn our_estimate_is_right_after_a_ramp_a_wave_and_with_requests_that_wait() {
    for (name, model) in [("CPU", &CPU_BOUND), ("I/O", &IO_BOUND)] {
        let truth = model.true_capacity();
        let ramp = |at_s: f64| truth * (0.5 + at_s / 300.0);
        let wave = |at_s: f64| truth * (0.65 - 0.5 * (at_s * std::f64::consts::TAU / 600.0).cos());
        for seed in [1, 2] {
            let after_ramp = all_kinds(model, 200, truth * 1.2, seed, ramp);
            let after_wave = all_kinds(model, 600, truth * 1.2, seed, wave);
            for (load, [_, looking, exact]) in [("ramp", after_ramp), ("wave", after_wave)] {
                println!(
                    "{name} {load}: ours {:.1} and {:.1}; theory {truth:.1}",
                    value(looking),
                    value(exact)
                );
                for (ours, within) in [(looking, 0.05), (exact, 0.1)] {
                    assert!(ours.met().is_some(), "{ours:?}");
                    assert!(
                        (value(ours) / truth - 1.0).abs() < within,
                        "{name} {load}: {ours:?} against {truth}"
                    );
                }
            }
        }
    }
}

/// Where load never comes near the capacity, chance makes somebody wait now and then. Those moments must not make an
/// exact estimate of what is served.
#[test]
fn light_load_gives_a_lower_bound_or_the_truth() {
    let few = Model {
        workers: 4,
        limit: 64,
        cpu_s: 0.05,
        wait_s: 0.0,
        cpus: 4.0,
        stalls_s: (f64::INFINITY, 0.0),
    };
    let truth = few.true_capacity();
    for share in [0.3, 0.6, 0.8] {
        let [_, looking, exact] = all_kinds(&few, 2_000, truth, 5, |_| truth * share);
        println!("{share}: {looking:?}, {exact:?}; theory {truth:.1}");
        for ours in [looking, exact] {
            match ours {
                Capacity::Exact(value) | Capacity::About(value) => {
                    assert!((value.get() / truth - 1.0).abs() < 0.2, "{value:?}")
                }
                Capacity::LowerBound(value) => assert!(value.get() < truth * 1.05, "{value:?}"),
                Capacity::Presumed(_) | Capacity::Unknown => panic!("nothing at {share}"),
            }
        }
    }
}
