//! The service of three tiers against theory, and against its own accounts. Every run is of a fixed seed, so that what passes once
//! passes always.

use headroom_control::{Constant, Fixed, Law};
use headroom_sim::tiers::{
    BatchFigures, CacheFigures, FrontFigures, PageFigures, TierFigures, TiersScenario, TiersTotals,
    UserFigures, run,
};
use headroom_sim::{Bare, RunError};
use headroom_units::{Lever, Setting};
use headroom_workload::Shape;

fn page(objects: u64, zipf: f64, work_s: [f64; 3]) -> PageFigures {
    PageFigures {
        name: "page".to_owned(),
        weight: 1.0,
        objects,
        zipf,
        bytes: 1_000.0,
        bytes_shape: Shape::Deterministic {},
        front_s: work_s[0],
        application_s: work_s[1],
        database_s: work_s[2],
        delay_s: 0.0,
        writes: false,
        changes: Vec::new(),
    }
}

fn users(count: u32, think_s: f64) -> UserFigures {
    UserFigures {
        counts: vec![count],
        think_s,
        ..UserFigures::default()
    }
}

/// Of a service that no law touches: of these levers everything is full, and an interval stays as it is.
fn alone(scenario: &TiersScenario, seed: u64) -> TiersTotals {
    let mut law = Fixed::new(scenario.plant().unwrap());
    run(scenario, &mut Bare(&mut law), seed, &mut |_| {}).unwrap()
}

fn response_s(totals: &TiersTotals) -> f64 {
    totals.counts.mean_response().unwrap().get()
}

fn close(what: &str, got: f64, expected: f64, tolerance: f64) {
    let off = got / expected - 1.0;
    assert!(
        off.abs() <= tolerance,
        "{what}: {got} is {:.2} % off {expected}",
        off * 100.0
    );
}

/// Exact mean-value analysis of a closed network of single-core tiers (Reiser and Lavenberg, J. ACM 1980): throughput, response time,
/// and the requests at each tier, of users who pause for so long, the delay of the service included.
fn mean_values(users: u32, work_s: [f64; 3], think_s: f64, delay_s: f64) -> (f64, f64, [f64; 3]) {
    let (mut jobs, mut throughput, mut response_s) = ([0.0; 3], 0.0, 0.0);
    for count in 1..=users {
        let at: Vec<f64> = work_s
            .iter()
            .zip(jobs)
            .map(|(work, jobs)| work * (1.0 + jobs))
            .collect();
        response_s = at.iter().sum::<f64>() + delay_s;
        throughput = f64::from(count) / (think_s + response_s);
        jobs = [0, 1, 2].map(|tier| throughput * at[tier]);
    }
    (throughput, response_s, jobs)
}

#[test]
fn a_closed_network_is_as_mean_value_analysis_says() {
    let work_s = [0.005, 0.030, 0.015];
    for (count, delay_s) in [(1, 0.0), (10, 0.2), (40, 0.2), (120, 0.0)] {
        let scenario = TiersScenario {
            duration_s: 4_000.0 + 100_000.0 / f64::from(count),
            warm_up_s: 100.0,
            users: users(count, 1.0),
            pages: vec![PageFigures {
                delay_s,
                ..page(1_000, 0.0, work_s)
            }],
            ..TiersScenario::default()
        };
        let totals = alone(&scenario, 1);
        let (throughput, mean_s, jobs) = mean_values(count, work_s, 1.0, delay_s);
        let what = format!("{count} users");
        close(&what, totals.counts.throughput_per_s(), throughput, 0.02);
        close(&what, response_s(&totals), mean_s, 0.03);
        for tier in 0..3 {
            close(&what, totals.tiers[tier].mean_jobs, jobs[tier], 0.08);
            // The utilisation law, U = X D.
            close(
                &what,
                totals.tiers[tier].utilisation,
                throughput * work_s[tier],
                0.02,
            );
        }
        // Little's law, L = X R.
        let little = totals.counts.in_flight_s / totals.counts.length_s;
        close(
            &what,
            little,
            totals.counts.throughput_per_s() * response_s(&totals),
            0.01,
        );
    }
}

#[test]
fn a_lower_frequency_makes_what_depends_on_it_longer() {
    let work_s = [0.002, 0.02, 0.005];
    let scenario = |insensitive_share| TiersScenario {
        duration_s: 2_000.0,
        users: users(20, 1.0),
        pages: vec![page(10, 0.0, work_s)],
        insensitive_share,
        frequencies_ghz: vec![1.415, 2.83],
        machine: {
            let mut machine = TiersScenario::default().machine;
            machine.processor.frequency.lowest = headroom_units::Hertz::new(1.415e9);
            machine
        },
        ..TiersScenario::default()
    };
    let slow = |scenario: &TiersScenario| {
        let mut law = Constant::new(Setting::default().with(Lever::Frequency, Some(2.0e9))).unwrap();
        run(scenario, &mut Bare(&mut law), 1, &mut |_| {}).unwrap()
    };
    // Half the frequency: twice the work, or half as much again where half of it depends on the frequency.
    for (share, factor) in [(0.0, 2.0), (0.5, 1.5)] {
        let scenario = scenario(share);
        let totals = slow(&scenario);
        let (throughput, mean_s, _) = mean_values(20, work_s.map(|work| work * factor), 1.0, 0.0);
        close("throughput", totals.counts.throughput_per_s(), throughput, 0.02);
        close("response", response_s(&totals), mean_s, 0.04);
        let full = alone(&scenario, 1);
        let (slow_j, full_j) = (totals.energy.work.get(), full.energy.work.get());
        assert!(
            slow_j / totals.counts.completions as f64 * 1.05
                < full_j / full.counts.completions as f64 * factor,
            "a request's work never costs more than its time"
        );
        assert!(totals.energy_by_frequency < full.energy_by_frequency);
    }
}

/// The hit ratio of a cache of `size` objects of one size whose popularity is Zipf's, by the approximation of Che, Tung and Wang (IEEE
/// JSAC 2002): an object is there if it was asked for within T, the same for all, with Σ (1 - e^(-p T)) = size.
fn che(objects: u64, zipf: f64, size: f64) -> f64 {
    let weights: Vec<f64> = (1..=objects).map(|rank| (rank as f64).powf(-zipf)).collect();
    let sum: f64 = weights.iter().sum();
    let shares: Vec<f64> = weights.iter().map(|weight| weight / sum).collect();
    let held = |time: f64| {
        shares
            .iter()
            .map(|share| 1.0 - (-share * time).exp())
            .sum::<f64>()
    };
    let (mut least, mut most) = (0.0, 1e9);
    for _ in 0..200 {
        let middle = (least + most) / 2.0;
        match held(middle) < size {
            true => least = middle,
            false => most = middle,
        }
    }
    shares
        .iter()
        .map(|share| share * (1.0 - (-share * least).exp()))
        .sum()
}

#[test]
fn the_cache_hits_as_the_che_approximation_says() {
    for (objects, zipf, size) in [(1_000, 0.8, 100), (10_000, 1.0, 500), (2_000, 0.6, 800)] {
        let scenario = TiersScenario {
            duration_s: 3_000.0,
            warm_up_s: 500.0,
            users: users(200, 1.0),
            pages: vec![page(objects, zipf, [1e-6, 1e-6, 1e-6])],
            front: FrontFigures {
                hit_s: 1e-6,
                ..FrontFigures::default()
            },
            cache: Some(CacheFigures {
                bytes: size * 1_000,
                max_object_bytes: 1_000,
                ..CacheFigures::default()
            }),
            ..TiersScenario::default()
        };
        let hits = alone(&scenario, 1).counts.hit_ratio();
        let expected = che(objects, zipf, size as f64);
        assert!(
            (hits - expected).abs() < 0.01,
            "{objects} {zipf} {size}: {hits} against {expected}"
        );
    }
}

/// Many users who think for long are nearly a Poisson process, whose arrivals are spread evenly over an interval.
#[test]
fn a_request_is_held_for_half_an_interval_in_the_mean() {
    for interval_s in [0.1, 0.4, 1.0] {
        let scenario = TiersScenario {
            duration_s: 2_000.0,
            users: users(1_000, 50.0),
            pages: vec![page(1_000_000, 0.0, [1e-4, 1e-4, 1e-4])],
            batch: BatchFigures {
                interval_s,
                ..BatchFigures::default()
            },
            ..TiersScenario::default()
        };
        let totals = alone(&scenario, 1);
        let counts = totals.counts;
        close(
            "held",
            counts.held_s / counts.batched as f64,
            interval_s / 2.0,
            0.02,
        );
        close("interval", counts.mean_interval_s(), interval_s, 1e-9);
        let unheld = TiersScenario {
            batch: BatchFigures::default(),
            ..scenario
        };
        let added_s = response_s(&totals) - response_s(&alone(&unheld, 1));
        // Requests that are let go together are in each other's way for some of these 0.3 ms each.
        assert!(
            added_s > interval_s / 2.0 * 0.98 && added_s < interval_s / 2.0 + 0.005,
            "{added_s}"
        );
        // T_p is what is worked for at least, and T_w what it leaves of the interval.
        let processing_s = counts.processing_s / counts.answered as f64;
        assert!(processing_s > 3e-4);
        let waiting_s = counts.waiting_s / counts.batches as f64;
        close("an interval", waiting_s + processing_s, interval_s, 0.01);
    }
}

fn cached(collapse: bool, interval_s: f64) -> TiersScenario {
    TiersScenario {
        duration_s: 120.0,
        warm_up_s: 20.0,
        users: users(200, 0.05),
        pages: vec![page(3_000, 0.8, [0.0005, 0.004, 0.002])],
        cache: Some(CacheFigures {
            bytes: 100_000,
            max_object_bytes: 1_000,
            ..CacheFigures::default()
        }),
        collapse,
        batch: BatchFigures {
            interval_s,
            ..BatchFigures::default()
        },
        ..TiersScenario::default()
    }
}

/// What is asked for at once is fetched once: by a batch, by a cache that lets requests wait, and most by both.
#[test]
fn batching_and_collapsing_spare_fetches() {
    let fetches = |collapse, interval_s| {
        let totals = alone(&cached(collapse, interval_s), 1);
        let counts = totals.counts;
        let fetched = totals.tiers[1].requests as f64;
        close("fetches", fetched, (counts.lookups - counts.hits) as f64, 0.01);
        fetched / counts.completions as f64
    };
    let none = fetches(false, 0.0);
    assert!(fetches(true, 0.0) < none * 0.95);
    assert!(fetches(false, 0.5) < none * 0.95);
    assert!(fetches(true, 0.5) < fetches(false, 0.5));
}

#[test]
fn what_is_too_large_or_changed_is_not_answered_from_the_cache() {
    let mut scenario = cached(false, 0.0);
    scenario.cache = Some(CacheFigures {
        bytes: 100_000,
        max_object_bytes: 999,
        ..CacheFigures::default()
    });
    assert_eq!(alone(&scenario, 1).counts.hits, 0, "every object has 1000 bytes");
    let mut scenario = cached(true, 0.0);
    scenario.cache = Some(CacheFigures {
        bytes: 100_000_000,
        max_object_bytes: 1_000,
        ..CacheFigures::default()
    });
    scenario.pages[0].objects = 50;
    assert!(
        alone(&scenario, 1).counts.hit_ratio() > 0.999,
        "all objects are there"
    );
    let mut write = scenario.pages[0].clone();
    write.name = "write".to_owned();
    write.writes = true;
    write.changes = vec!["page".to_owned()];
    write.weight = 1.0;
    scenario.pages.push(write);
    scenario.users = users(1, 0.01);
    scenario.duration_s = 1_000.0;
    let totals = alone(&scenario, 1);
    // One user, of whose requests for an object every second changes it: every second look-up is the first since.
    let hits = totals.counts.hit_ratio();
    assert!((hits - 0.5).abs() < 0.02, "{hits}");
    close(
        "reads",
        totals.counts.lookups as f64 * 2.0,
        totals.counts.completions as f64,
        0.03,
    );
}

/// As many as work at once, and the rest waits in front: the closed network has the same throughput, since its bottleneck stays busy.
#[test]
fn a_limit_on_workers_queues_in_front_of_the_tiers() {
    let mut scenario = cached(false, 0.0);
    scenario.cache = None;
    let free = alone(&scenario, 1);
    scenario.front.workers = 20;
    let limited = alone(&scenario, 1);
    let inside: f64 = limited.tiers.iter().map(|tier| tier.mean_jobs).sum();
    assert!(inside <= 20.0 + 1e-9 && inside > 19.0, "{inside}");
    close(
        "throughput",
        limited.counts.throughput_per_s(),
        free.counts.throughput_per_s(),
        0.02,
    );
    scenario.batch.interval_s = 0.3;
    assert!(alone(&scenario, 1).counts.completions > 0);
}

#[test]
fn the_same_seed_gives_the_same_run_and_energy_has_causes() {
    let scenario = TiersScenario {
        collapse: true,
        users: UserFigures {
            counts: vec![50, 300, 20],
            think_s: 0.1,
            ..UserFigures::default()
        },
        front: FrontFigures {
            workers: 30,
            ..FrontFigures::default()
        },
        application: TierFigures { cores: 2 },
        ..cached(true, 0.2)
    };
    let (one, again, other) = (alone(&scenario, 7), alone(&scenario, 7), alone(&scenario, 8));
    assert_eq!(
        (one.counts, one.energy, &one.samples),
        (again.counts, again.energy, &again.samples)
    );
    assert_ne!(one.counts, other.counts);
    let sampled: f64 = one.samples.iter().map(|sample| sample.energy.get()).sum();
    assert!(
        sampled > one.energy.total().get(),
        "the samples have the warm-up too"
    );
    let users: Vec<u32> = one.samples.iter().map(|sample| sample.users).collect();
    assert_eq!(
        users,
        [300, 20, 20, 20],
        "a step that begins with the next sample is in force at its end"
    );
    // Each cause is what its hardware does: busy cores at the one frequency, and the platform all the time.
    let machine = &scenario.machine;
    let busy_core_s: f64 = (0..3)
        .map(|tier| one.tiers[tier].utilisation * [1.0, 2.0, 1.0][tier])
        .sum::<f64>()
        * one.counts.length_s;
    let busy_w = machine.processor.frequency.busy_at_top().get();
    close("work", one.energy.work.get(), busy_core_s * busy_w, 1e-6);
    close(
        "platform",
        one.energy.platform.get(),
        machine.platform.get() * one.counts.length_s,
        1e-9,
    );
}

/// A law decides once a period, or once an interval, and is given what was.
#[test]
fn a_law_is_given_each_period() {
    let mut scenario = cached(false, 0.2);
    scenario.warm_up_s = 0.0;
    for (each_batch, periods) in [(false, 120), (true, 480)] {
        scenario.decide_each_batch = each_batch;
        let mut law = Constant::new(Setting::default().with(Lever::BatchInterval, Some(0.25))).unwrap();
        let (mut lookups, mut batched, mut arrivals, mut energy_j) = (0, 0, 0, 0.0);
        let totals = run(&scenario, &mut Bare(&mut law as &mut dyn Law), 1, &mut |step| {
            let observation = step.observation;
            lookups += observation.cache.unwrap().lookups;
            batched += observation.batching.unwrap().requests;
            arrivals += observation.traffic.as_ref().unwrap().arrivals;
            let power = observation.power.unwrap().value;
            energy_j += power.get() * observation.length.get();
        })
        .unwrap();
        close("periods", totals.periods as f64, f64::from(periods), 0.01);
        close("lookups", lookups as f64, totals.counts.lookups as f64, 0.01);
        close("batched", batched as f64, totals.counts.batched as f64, 0.01);
        close("arrivals", arrivals as f64, totals.counts.arrivals as f64, 0.01);
        close("energy", energy_j, totals.energy.total().get(), 0.01);
        close("interval", totals.counts.mean_interval_s(), 0.25, 0.01);
    }
}

#[test]
fn a_run_that_would_not_end_says_so() {
    let mut scenario = cached(false, 0.0);
    scenario.limits.events = 1_000;
    let mut law = Fixed::new(scenario.plant().unwrap());
    let ended = run(&scenario, &mut Bare(&mut law), 1, &mut |_| {}).err();
    assert!(matches!(
        ended,
        Some(RunError::TooManyEvents { limit: 1_000, .. })
    ));
    scenario.users.counts.clear();
    let ended = run(&scenario, &mut Bare(&mut law), 1, &mut |_| {}).err();
    assert!(matches!(ended, Some(RunError::Scenario(error)) if error.key == "users.counts"));
}
