use super::*;
use headroom_units::PerSecond;
use proptest::prelude::*;

fn trace(step: f64, values: &[f64]) -> Trace {
    Trace::new(
        "t",
        Seconds::new(step),
        values.iter().copied().map(PerSecond::new).collect(),
    )
    .unwrap()
}

fn times(trace: Trace, spacing: Spacing, seed: u64) -> Vec<f64> {
    Arrivals::new(trace, spacing, seed).map(Seconds::get).collect()
}

#[test]
fn even_arrivals_are_even_and_as_many_as_expected() {
    let sent = times(trace(2.0, &[4.0, 0.0, 1.0]), Spacing::Even, 0);
    let expected = [0.125, 0.375, 0.625, 0.875, 1.125, 1.375, 1.625, 1.875, 4.5, 5.5];
    assert_eq!(sent.len(), expected.len());
    for (got, wanted) in sent.iter().zip(expected) {
        assert!((got - wanted).abs() < 1e-9, "{got} against {wanted}");
    }
}

#[test]
fn the_arrivals_of_a_seed_never_change() {
    let sent = times(trace(2.5, &[3.0, 0.0, 40.0, 7.5]), Spacing::Poisson, 9);
    let first: Vec<u32> = sent.iter().take(3).map(|at| (at * 1e6) as u32).collect();
    assert_eq!(first, [40_392, 548_158, 688_806]);
}

#[test]
fn poisson_counts_follow_the_trace() {
    let rates = [100.0, 250.0, 20.0, 400.0, 60.0];
    let sent = times(trace(100.0, &rates), Spacing::Poisson, 11);
    let mut counts = [0.0f64; 5];
    for time in &sent {
        counts[(time / 100.0) as usize] += 1.0;
    }
    for (count, rate) in counts.iter().zip(rates) {
        let expected = rate * 100.0;
        assert!(
            (count - expected).abs() < 4.0 * f64::sqrt(expected),
            "{count} against {expected}"
        );
    }
}

#[test]
fn poisson_counts_of_short_windows_have_the_poisson_distribution() {
    // Chi-square of the number of arrivals in 20,000 windows against Poisson(3), classes 0..=9 and 10 or more.
    let sent = times(trace(20_000.0, &[3.0]), Spacing::Poisson, 4);
    let mut windows = vec![0usize; 20_000];
    for time in sent {
        windows[time as usize] += 1;
    }
    let mut observed = [0.0; 11];
    for count in windows {
        observed[count.min(10)] += 1.0;
    }
    let mut probability = f64::exp(-3.0);
    let mut rest = 1.0;
    let mut chi_square = 0.0;
    for (class, seen) in observed.iter().enumerate() {
        let expected = 20_000.0 * if class == 10 { rest } else { probability };
        chi_square += (seen - expected).powi(2) / expected;
        rest -= probability;
        probability *= 3.0 / (class + 1) as f64;
    }
    // The 99.9 % point of chi-square with 10 degrees of freedom is 29.6.
    assert!(chi_square < 29.6, "{chi_square}");
}

#[test]
fn rescaled_gaps_are_exponential() {
    // Kolmogorov-Smirnov of the gaps on the rescaled axis against 1 - exp(-x).
    let shape = trace(1.0, &[5.0, 200.0, 1.0, 50.0, 0.0, 900.0].repeat(20));
    let cumulative = |time: f64| {
        let whole = time.floor() as usize;
        let before: f64 = shape.rates()[..whole.min(120)]
            .iter()
            .map(|rate| rate.get())
            .sum();
        before + shape.rate_at(Seconds::new(time)).get() * (time - whole as f64)
    };
    let sent = times(shape.clone(), Spacing::Poisson, 8);
    let mut gaps: Vec<f64> = sent
        .windows(2)
        .map(|pair| cumulative(pair[1]) - cumulative(pair[0]))
        .collect();
    gaps.sort_by(f64::total_cmp);
    let n = gaps.len() as f64;
    let distance = gaps
        .iter()
        .enumerate()
        .map(|(rank, gap)| (1.0 - f64::exp(-gap) - (rank as f64 + 0.5) / n).abs())
        .fold(0.0, f64::max);
    // The 99.9 % point is 1.95 / sqrt(n).
    assert!(
        n > 20_000.0 && distance < 1.95 / n.sqrt(),
        "{distance} at n = {n}"
    );
}

#[test]
fn nothing_arrives_while_the_rate_is_zero() {
    let sent = times(trace(10.0, &[50.0, 0.0, 0.0, 50.0]), Spacing::Poisson, 2);
    assert!(sent.iter().any(|&t| t < 10.0) && sent.iter().any(|&t| t >= 30.0));
    assert!(!sent.iter().any(|&t| (10.0..30.0).contains(&t)));
    assert!(times(trace(10.0, &[0.0]), Spacing::Poisson, 2).is_empty());
}

#[test]
fn the_same_seed_gives_the_same_times() {
    let day = || trace(10.0, &[30.0, 60.0]);
    assert_eq!(
        times(day(), Spacing::Poisson, 7),
        times(day(), Spacing::Poisson, 7)
    );
    assert_ne!(
        times(day(), Spacing::Poisson, 7),
        times(day(), Spacing::Poisson, 8)
    );
}

proptest! {
    #[test]
    fn times_never_decrease_and_stay_inside(
        values in proptest::collection::vec(0.0..50.0f64, 1..20),
        even in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let shape = trace(1.0, &values);
        let end = shape.duration().get();
        let spacing = if even { Spacing::Even } else { Spacing::Poisson };
        let mut last = 0.0;
        for time in Arrivals::new(shape, spacing, seed) {
            prop_assert!(time.get() >= last && time.get() <= end);
            last = time.get();
        }
    }

    #[test]
    fn even_arrivals_number_what_the_trace_asks_for(values in proptest::collection::vec(0.0..50.0f64, 1..20)) {
        let shape = trace(1.0, &values);
        let asked = shape.requests();
        let sent = Arrivals::new(shape, Spacing::Even, 0).count() as f64;
        prop_assert!((sent - asked).abs() <= 0.5 + 1e-6, "{sent} against {asked}");
    }
}

#[test]
fn arrivals_end_where_they_are_asked_to_within_a_step_too() {
    let whole = || Arrivals::new(trace(10.0, &[2.0, 6.0, 4.0]), Spacing::Poisson, 3);
    let all: Vec<Seconds> = whole().collect();
    let cut = whole().ending_at(Seconds::new(15.0));
    assert_eq!(
        (cut.duration(), cut.expected()),
        (Seconds::new(15.0), 20.0 + 30.0)
    );
    let until: Vec<Seconds> = cut.collect();
    let wanted = all.iter().copied().filter(|at| at.get() < 15.0);
    assert_eq!(until, wanted.collect::<Vec<_>>());
    assert!(until.len() < all.len());
    let beyond = whole().ending_at(Seconds::new(99.0));
    assert_eq!(
        (beyond.duration(), beyond.expected()),
        (Seconds::new(30.0), 120.0)
    );
    assert_eq!(beyond.collect::<Vec<_>>(), all);
}
