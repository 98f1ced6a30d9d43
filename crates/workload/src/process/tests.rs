use super::*;
use crate::random::{Purpose, Rng};

fn times(process: &ArrivalProcess, until_s: f64) -> Vec<f64> {
    process.check("arrivals").unwrap();
    let Loop::Open(arrivals) = process.start(Rng::new(5, Purpose::Arrivals)) else {
        panic!("a closed loop");
    };
    arrivals
        .map(Seconds::get)
        .take_while(|at| *at < until_s)
        .collect()
}

#[test]
fn a_series_has_its_rates_and_ends() {
    let process = ArrivalProcess::Series {
        rates_per_s: vec![100.0, 0.0, 1000.0],
        hold_s: 100.0,
        spacing: Spacing::Poisson,
    };
    let all = times(&process, f64::INFINITY);
    let within = |from: f64, to: f64| all.iter().filter(|at| (from..to).contains(*at)).count();
    assert!((9_600..10_400).contains(&within(0.0, 100.0)));
    assert_eq!(within(100.0, 200.0), 0);
    assert!((98_700..101_300).contains(&within(200.0, 300.0)));
    let even = ArrivalProcess::Series {
        rates_per_s: vec![2.0, 4.0],
        hold_s: 1.0,
        spacing: Spacing::Even,
    };
    assert_eq!(
        times(&even, f64::INFINITY),
        [0.25, 0.75, 1.125, 1.375, 1.625, 1.875]
    );
    let recorded = ArrivalProcess::Times {
        at_s: vec![0.0, 0.5, 0.5, 7.0],
    };
    assert_eq!(times(&recorded, f64::INFINITY), [0.0, 0.5, 0.5, 7.0]);
    assert_eq!(
        times(&ArrivalProcess::Even { rate_per_s: 2.0 }, 2.0),
        [0.25, 0.75, 1.25, 1.75]
    );
}

#[test]
fn what_is_expected_is_the_integral_of_the_rates() {
    let series = ArrivalProcess::Series {
        rates_per_s: vec![100.0, 0.0, 50.0],
        hold_s: 10.0,
        spacing: Spacing::Poisson,
    };
    let expected = |from_s, to_s| series.expected(from_s, to_s).unwrap();
    assert_eq!(expected(0.0, 2.0), 200.0);
    assert_eq!(expected(9.0, 11.0), 100.0);
    assert_eq!(expected(8.0, 22.0), 300.0);
    assert_eq!(expected(12.0, 14.0), 0.0);
    assert_eq!(expected(28.0, 32.0), 100.0);
    assert_eq!(expected(30.0, 31.0), 0.0);
    let poisson = ArrivalProcess::Poisson { rate_per_s: 7.0 };
    assert_eq!(poisson.expected(3.0, 5.0), Some(14.0));
    let times = ArrivalProcess::Times {
        at_s: vec![0.0, 0.5, 0.5, 7.0],
    };
    assert_eq!(times.expected(0.0, 1.0), Some(3.0));
    assert_eq!(times.expected(1.0, 2.0), Some(0.0));
    let sessions = ArrivalProcess::Sessions {
        users: 3,
        think_s: 1.0,
        think: Shape::Exponential {},
    };
    assert_eq!(sessions.expected(0.0, 1.0), None);
}

#[test]
fn an_mmpp_has_its_mean_rate_and_is_burstier_than_poisson() {
    let process = ArrivalProcess::Mmpp {
        rates_per_s: vec![10.0, 100.0, 0.0],
        transitions_per_s: vec![vec![0.0, 0.1, 0.1], vec![1.0, 0.0, 0.0], vec![0.5, 0.5, 9.0]],
    };
    let mean = process.mean_rate_per_s().unwrap();
    // Balance by hand: 0.2 a = b + 0.5 c, b = 0.1 a + 0.5 c, c = 0.1 a.
    let (a, b, c) = (1.0, 0.15, 0.1);
    assert!(
        (mean - (10.0 * a + 100.0 * b) / (a + b + c)).abs() < 1e-9,
        "{mean}"
    );
    let length_s = 200_000.0;
    let all = times(&process, length_s);
    assert!((all.len() as f64 / length_s / mean - 1.0).abs() < 0.02);
    let mut counts = vec![0.0; length_s as usize];
    for at in &all {
        counts[*at as usize] += 1.0;
    }
    let mean_count = all.len() as f64 / length_s;
    let variance = counts
        .iter()
        .map(|count: &f64| (count - mean_count).powi(2))
        .sum::<f64>()
        / length_s;
    assert!(
        variance / mean_count > 5.0,
        "index of dispersion {}",
        variance / mean_count
    );
}

#[test]
fn processes_that_are_none_are_named() {
    let cases = [
        (
            ArrivalProcess::Poisson { rate_per_s: -1.0 },
            "arrivals.rate_per_s: is -1",
        ),
        (
            ArrivalProcess::Series {
                rates_per_s: vec![1.0, f64::NAN],
                hold_s: 1.0,
                spacing: Spacing::Even,
            },
            "arrivals.rates_per_s: is NaN at value 2",
        ),
        (
            ArrivalProcess::Series {
                rates_per_s: vec![1.0],
                hold_s: -10.0,
                spacing: Spacing::Even,
            },
            "arrivals.hold_s: is -10",
        ),
        (
            ArrivalProcess::Mmpp {
                rates_per_s: vec![1.0, 2.0],
                transitions_per_s: vec![vec![0.0, 1.0]],
            },
            "arrivals.transitions_per_s: is not 2 rows of 2",
        ),
        (
            ArrivalProcess::Mmpp {
                rates_per_s: vec![1.0, 2.0],
                transitions_per_s: vec![vec![0.0, 1.0], vec![0.0, 5.0]],
            },
            "arrivals.transitions_per_s: is all 0 in row 2",
        ),
        (
            ArrivalProcess::Times { at_s: vec![1.0, 0.5] },
            "arrivals.at_s: is 0.5 at value 2",
        ),
        (
            ArrivalProcess::Sessions {
                users: 0,
                think_s: 1.0,
                think: Shape::Exponential {},
            },
            "arrivals.users: is 0",
        ),
    ];
    for (process, expected) in cases {
        let error = process.check("arrivals").unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
