//! How sure an exact estimate is, by how regular the service is.

use super::kinds::{SLEEP, exponential, lognormal};
use super::model::Random;
use super::servers::{Kind, Taken};
use super::table::seeds;
use headroom_control::capacity::{BusyTimeMonitor, Capacity, QueueTuning};

const LOOK_S: f64 = 0.02;
const RUN_S: u32 = 600;
const CHANGE_S: f64 = 120.0;

/// An overloaded server of 80/s, the time of its run that counts, and how many of its exact estimates may be off by more than 15 %, and
/// have an interval that does not hold the truth.
struct Service {
    kind: Kind,
    from_s: f64,
    to_s: f64,
    off: f64,
    outside: f64,
}

fn service(name: &'static str, takes: fn(&mut Random, Taken) -> (f64, f64), most: [f64; 2]) -> Service {
    Service {
        kind: Kind {
            name,
            takes,
            seconds: RUN_S,
            ..SLEEP
        },
        from_s: 0.0,
        to_s: f64::from(RUN_S),
        off: most[0],
        outside: most[1],
    }
}

/// Of mean 100 ms.
fn pareto(random: &mut Random, exponent: f64) -> (f64, f64) {
    let least_s = 0.1 * (exponent - 1.0) / exponent;
    (0.0, least_s * (1.0 - random.uniform()).powf(-1.0 / exponent))
}

fn services() -> Vec<Service> {
    let fewer = service(
        "lognormal, SCV 4, in the 30 s after 8 to 7 workers",
        lognormal,
        [0.6, 0.6],
    );
    let first = service("lognormal, SCV 4, the first 60 s", lognormal, [0.3, 0.3]);
    let one = service(
        "exponential, one worker of 12.5 ms",
        |random, _| (0.0, random.exponential(0.0125)),
        [0.0, 0.05],
    );
    let alternate = |_: &mut Random, taken: Taken| {
        let is_long = (taken.number / 400) % 2 == 1;
        (0.0, if is_long { 0.18 } else { 0.02 })
    };
    let runs = |random: &mut Random, taken: Taken| {
        let is_long = (taken.number / 20) % 2 == 1;
        (0.0, random.exponential(if is_long { 0.14 } else { 0.06 }))
    };
    vec![
        service(
            "two kinds that alternate every 400 requests (20 and 180 ms)",
            alternate,
            [1.0, 1.0],
        ),
        Service {
            kind: Kind {
                workers: |at_s| if at_s < CHANGE_S { 8 } else { 7 },
                truth: |at_s| if at_s < CHANGE_S { 80.0 } else { 70.0 },
                ..fewer.kind
            },
            from_s: CHANGE_S,
            to_s: CHANGE_S + 30.0,
            ..fewer
        },
        Service { to_s: 60.0, ..first },
        service("lognormal, SCV 4", lognormal, [0.05, 0.1]),
        service(
            "Pareto, exponent 1.6",
            |random, _| pareto(random, 1.6),
            [0.3, 0.3],
        ),
        service(
            "two kinds in runs of 20 (60 and 140 ms, exponential)",
            runs,
            [0.1, 0.2],
        ),
        service(
            "Pareto, exponent 2.2",
            |random, _| pareto(random, 2.2),
            [0.02, 0.05],
        ),
        Service {
            kind: Kind {
                workers: |_| 1,
                ..one.kind
            },
            ..one
        },
        service("exponential", exponential, [0.0, 0.05]),
        service("always the same", SLEEP.takes, [0.0, 0.0]),
    ]
}

/// Samples, those that are exact, of these the ones whose interval does not hold the truth, and those off by more than 15 %.
fn counted(service: &Service, seed: u64) -> [u32; 4] {
    let mut ours = BusyTimeMonitor::new(QueueTuning::default()).unwrap();
    let (mut counts, mut next_s) = ([0; 4], 1.0);
    service.kind.run(
        seed,
        LOOK_S,
        |at_s, observation| {
            let estimate = ours.observe(observation);
            if at_s < next_s - 1e-9 {
                return;
            }
            next_s += 1.0;
            if at_s <= service.from_s || at_s > service.to_s {
                return;
            }
            counts[0] += 1;
            let truth = (service.kind.truth)(at_s - 0.5);
            if let (Capacity::Exact(value), Some([low, high])) = (estimate.capacity, estimate.interval) {
                counts[1] += 1;
                counts[2] += u32::from(!(low.get()..=high.get()).contains(&truth));
                counts[3] += u32::from((value.get() / truth - 1.0).abs() > 0.15);
            }
        },
        |_, _| {},
    );
    counts
}

/// The more irregular the service, the fewer estimates are exact, and the more of them are wrong; where kinds of requests alternate slowly
/// they are of the kind that is served now.
#[test]
fn how_sure_an_exact_estimate_is_depends_on_how_regular_the_service_is() {
    println!(
        "| service | exact, of samples | interval does not hold the truth, of exact ones | off by > 15 %, of exact ones |"
    );
    println!("|---|---|---|---|");
    let mut exact_shares = Vec::new();
    for service in services() {
        let runs = seeds().map(|seed| counted(&service, seed));
        let [samples, exact, outside, off] =
            runs.fold([0; 4], |sum, one| std::array::from_fn(|at| sum[at] + one[at]));
        let of = |count: u32| match count {
            0 => "none".to_owned(),
            count => format!("{:.1} %", 100.0 * f64::from(count) / f64::from(exact)),
        };
        let share = f64::from(exact) / f64::from(samples);
        println!(
            "| {} | {:.0} % | {} | {} |",
            service.kind.name,
            100.0 * share,
            of(outside),
            of(off)
        );
        let at_most = |count: u32, most: f64| f64::from(count) <= most * f64::from(exact);
        assert!(
            at_most(off, service.off),
            "{}: {off} of {exact}",
            service.kind.name
        );
        assert!(
            at_most(outside, service.outside),
            "{}: {outside} of {exact}",
            service.kind.name
        );
        exact_shares.push((service.kind.name, share));
    }
    let share = |name| {
        exact_shares
            .iter()
            .find(|one| one.0 == name)
            .map_or(0.0, |one| one.1)
    };
    let [irregular, regular, same] = ["lognormal, SCV 4", "exponential", "always the same"].map(share);
    assert!(
        irregular < regular && regular <= same && same > 0.95,
        "{exact_shares:?}"
    );
}
