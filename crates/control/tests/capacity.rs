//! The estimators of capacity on a small queue model whose capacity the theory knows: c workers behind an accept queue,
//! Poisson arrivals, and clients that retry a dropped attempt as TCP does.

use headroom_control::capacity::{
    Busy, BusyTimeMonitor, Capacity, Counter, Listener, Observation, QueueMonitor, QueueTuning, Ramp,
    RampTuning, Sight, Spread, Step, UtilisationEstimator, UtilisationStep, UtilisationTuning,
};
use headroom_units::{PerSecond, Ratio, Seconds};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// SplitMix64 (G. Steele, D. Lea, C. Flood, 2014).
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.uniform()).ln()
    }
}

struct Model {
    workers: usize,
    limit: usize,
    /// Mean CPU time of a request, exponential.
    cpu_s: f64,
    /// What every request waits for besides.
    wait_s: f64,
    /// CPUs, for the utilisation: workers never wait for one another here.
    cpus: f64,
}

/// Eight CPUs with a worker each, 600 requests/s together.
const CPU_BOUND: Model = Model {
    workers: 8,
    limit: 128,
    cpu_s: 8.0 / 600.0,
    wait_s: 0.0,
    cpus: 8.0,
};

/// Section 7.4: half a second of waiting in each request, and 256 workers at most; half a millisecond of CPU.
const IO_BOUND: Model = Model {
    workers: 256,
    limit: 128,
    cpu_s: 0.0005,
    wait_s: 0.5,
    cpus: 1.0,
};

/// What can happen, at a time in nanoseconds: first a kind, then a number that it needs.
type Event = Reverse<(u64, u8, u32)>;
const DONE: u8 = 0;
const ATTEMPT: u8 = 1;
const SECOND: u8 = 2;
const LOOK: u8 = 3;
/// How often [`Model::run_looking`] looks at the queue.
const LOOK_S: f64 = 0.02;
const FIRST_ATTEMPT: u32 = 0;

fn event(at_s: f64, kind: u8, number: u32) -> Event {
    Reverse(((at_s * 1e9) as u64, kind, number))
}

impl Model {
    /// Runs it under this rate of new requests, never above `most`, and hands over each second's step and utilisation.
    fn run(
        &self,
        seconds: u32,
        most: f64,
        seed: u64,
        rate: impl Fn(f64) -> f64,
        each: impl FnMut(u32, &Step, f64),
    ) {
        self.run_looking(seconds, most, seed, rate, each, |_| {});
    }

    /// The same, and hands over what the kernel would show of the listener fifty times a second.
    fn run_looking(
        &self,
        seconds: u32,
        most: f64,
        seed: u64,
        rate: impl Fn(f64) -> f64,
        mut each: impl FnMut(u32, &Step, f64),
        mut look: impl FnMut(&Observation),
    ) {
        let mut random = Random(seed);
        let mut events: BinaryHeap<Event> = BinaryHeap::new();
        events.push(event(random.exponential(1.0 / most), ATTEMPT, FIRST_ATTEMPT));
        events.push(event(1.0, SECOND, 1));
        events.push(event(LOOK_S, LOOK, 1));
        let mut queue: VecDeque<()> = VecDeque::new();
        let (mut busy, mut seen, mut cpu_s) = (0, 0usize, 0.0);
        let (mut arrivals, mut accepts, mut drops) = (0.0, 0.0, 0.0);
        let (mut busy_s, mut waited, mut before_s) = (0.0, 0.0, 0.0);
        let mut counted = [0u64; 3];
        while let Some(Reverse((at_ns, kind, number))) = events.pop() {
            let at_s = at_ns as f64 / 1e9;
            if !queue.is_empty() {
                busy_s += at_s - before_s;
            }
            before_s = at_s;
            match kind {
                LOOK => {
                    look(&Observation {
                        length: Seconds::new(LOOK_S),
                        sight: Sight::Listening(Listener {
                            identity: 1,
                            limit: Some(self.limit as u32),
                            length: Some(queue.len() as u32),
                            shortest: Some(queue.len() as u32),
                            lengths_seen: None,
                            arrivals: Some(Counter::wide(counted[0])),
                            accepts: Some(Counter::wide(counted[1])),
                            drops: Some(Counter::wide(counted[2])),
                        }),
                    });
                    events.push(event(f64::from(number + 1) * LOOK_S, LOOK, number + 1));
                }
                DONE => busy -= 1,
                ATTEMPT => {
                    let mut came = true;
                    if number == FIRST_ATTEMPT {
                        // Thinning: a Poisson process of the highest rate, of which the share of now counts.
                        events.push(event(
                            at_s + random.exponential(1.0 / most),
                            ATTEMPT,
                            FIRST_ATTEMPT,
                        ));
                        came = random.uniform() * most < rate(at_s);
                    }
                    if came {
                        arrivals += 1.0;
                        counted[0] += 1;
                        seen += queue.len();
                        if queue.len() < self.limit {
                            queue.push_back(());
                        } else {
                            drops += 1.0;
                            counted[2] += 1;
                            // 1 s, 2 s, 4 s and so on, six times.
                            if number < 6 {
                                events.push(event(at_s + f64::from(1 << number), ATTEMPT, number + 1));
                            }
                        }
                    }
                }
                _ => {
                    let step = Step {
                        length: Seconds::new(1.0),
                        limit: self.limit as f64,
                        queue_mean: (arrivals > 0.0).then(|| seen as f64 / arrivals),
                        arrivals,
                        accepts,
                        drops,
                        busy: Some(Busy {
                            time: Seconds::new(busy_s.min(1.0)),
                            accepts: waited,
                        }),
                    };
                    each(number, &step, (cpu_s / self.cpus).min(1.0));
                    (arrivals, accepts, drops, seen, cpu_s) = (0.0, 0.0, 0.0, 0, 0.0);
                    (busy_s, waited) = (0.0, 0.0);
                    if number == seconds {
                        return;
                    }
                    events.push(event(f64::from(number + 1), SECOND, number + 1));
                }
            }
            while busy < self.workers && queue.pop_front().is_some() {
                busy += 1;
                accepts += 1.0;
                counted[1] += 1;
                waited += f64::from(u8::from(kind == DONE));
                let work_s = random.exponential(self.cpu_s);
                cpu_s += work_s;
                events.push(event(at_s + work_s + self.wait_s, DONE, 0));
            }
        }
    }

    /// The throughput of the M/M/c/c+K queue at which 1 % of attempts are dropped: the recursion of the loss formula,
    /// bisected for the arrival rate.
    fn true_capacity(&self) -> f64 {
        let service_s = self.cpu_s + self.wait_s;
        let lost = |rate: f64| {
            let load = rate * service_s;
            (1..=self.workers + self.limit).fold(1.0, |lost, n| {
                let each = load / n.min(self.workers) as f64;
                each * lost / (1.0 + each * lost)
            })
        };
        let (mut low, mut high) = (0.0, 4.0 * self.workers as f64 / service_s);
        for _ in 0..100 {
            let middle = (low + high) / 2.0;
            if lost(middle) < 0.01 {
                low = middle
            } else {
                high = middle
            }
        }
        low * 0.99
    }
}

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
            assert_eq!(ours.name(), "exact");
            assert!(
                (value(ours) / truth - 1.0).abs() < 0.06,
                "{ours:?} against {truth}"
            );
        }
    }
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
                for ours in [looking, exact] {
                    assert_eq!(ours.name(), "exact");
                    assert!(
                        (value(ours) / truth - 1.0).abs() < 0.05,
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
    };
    let truth = few.true_capacity();
    for share in [0.3, 0.6, 0.8] {
        let [_, looking, exact] = all_kinds(&few, 2_000, truth, 5, |_| truth * share);
        println!("{share}: {looking:?}, {exact:?}; theory {truth:.1}");
        for ours in [looking, exact] {
            match ours {
                Capacity::Exact(value) => assert!((value.get() / truth - 1.0).abs() < 0.2, "{value:?}"),
                Capacity::LowerBound(value) => assert!(value.get() < truth * 1.05, "{value:?}"),
                Capacity::Unknown => panic!("nothing at {share}"),
            }
        }
    }
}
