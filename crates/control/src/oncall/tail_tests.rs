use super::*;
use proptest::prelude::*;

fn slo(percentile: f64, target: f64) -> TailSlo {
    TailSlo {
        percentile: Ratio::new(percentile),
        target: Seconds::new(target),
    }
}

#[test]
fn an_exponential_is_the_shape_of_one() {
    let shape = Shape::of_cv(Ratio::new(1.0)).unwrap();
    assert!((shape.get() - 1.0).abs() < 1e-9, "{shape:?}");
    let factor = shape.tail_per_mean(Ratio::new(0.99), 1).unwrap();
    assert!((factor - 100.0f64.ln()).abs() < 1e-9, "{factor}");
    // The slowest of two: (1 - e^-x)^2 = 0.99.
    let factor = shape.tail_per_mean(Ratio::new(0.99), 2).unwrap();
    assert!((factor - -(1.0 - 0.99f64.sqrt()).ln()).abs() < 1e-9, "{factor}");
}

#[test]
fn the_budget_is_the_strictest_of_all_percentiles() {
    let shape = Shape::EXPONENTIAL;
    let both = mean_budget(&[slo(0.99, 0.1), slo(0.999, 0.12)], shape, 1)
        .unwrap()
        .unwrap();
    assert!((both.get() - 0.12 / 1_000.0f64.ln()).abs() < 1e-12, "{both:?}");
    assert_eq!(mean_budget(&[], shape, 1), Ok(None));
    assert!((throughput_target(Seconds::new(0.02)).get() - 50.0).abs() < 1e-12);
}

#[test]
fn what_cannot_be_is_refused_with_the_number() {
    let error = Shape::of_cv(Ratio::new(0.01)).unwrap_err().to_string();
    assert!(
        error.starts_with("a coefficient of variation of 0.01 is outside 0.04"),
        "{error}"
    );
    for cv in [0.0, 1e6, f64::NAN] {
        assert!(Shape::of_cv(Ratio::new(cv)).is_err());
        let (shape, moved) = Shape::of_cv_clamped(Ratio::new(cv));
        assert!(moved && shape.cv().get().is_finite());
    }
    assert!(Shape::EXPONENTIAL.tail_per_mean(Ratio::new(1.0), 1).is_err());
    assert!(Shape::EXPONENTIAL.tail_per_mean(Ratio::new(0.5), 0).is_err());
    assert!(mean_budget(&[slo(0.99, 0.0)], Shape::EXPONENTIAL, 1).is_err());
    assert!(Disengagement::new(Vec::new()).is_err());
    let falling = vec![
        (Seconds::new(0.0), Ratio::new(0.5)),
        (Seconds::new(1.0), Ratio::new(0.4)),
    ];
    assert!(Disengagement::new(falling).is_err());
}

/// Users give up from 0.1 s on, all of them at 1.1 s.
fn table() -> Disengagement {
    Disengagement::new(vec![
        (Seconds::new(0.1), Ratio::new(0.0)),
        (Seconds::new(1.1), Ratio::new(1.0)),
    ])
    .unwrap()
}

#[test]
fn disengagement_is_the_mean_of_the_table() {
    let table = table();
    let measured = table.measured(&[0.05, 0.6, 5.0].map(Seconds::new)).unwrap();
    assert!((measured.get() - 0.5).abs() < 1e-12, "{measured:?}");
    assert_eq!(table.measured(&[]), None);
    // Exponential with mean m: the integral of e^(-x/m) from 0.1 to 1.1 is m (e^(-0.1/m) - e^(-1.1/m)).
    let mean = 0.05f64;
    let exact = mean * ((-0.1 / mean).exp() - (-1.1 / mean).exp());
    let expected = table.expected(Seconds::new(mean), Shape::EXPONENTIAL).get();
    assert!((expected - exact).abs() < 1e-6, "{expected} is not {exact}");
    let budget = table
        .mean_budget(Ratio::new(0.001), Shape::EXPONENTIAL)
        .unwrap()
        .unwrap();
    let at_budget = table.expected(budget, Shape::EXPONENTIAL).get();
    assert!((at_budget - 0.001).abs() < 1e-9, "{at_budget}");
    assert_eq!(table.mean_budget(Ratio::new(1.0), Shape::EXPONENTIAL), Ok(None));
    let always = Disengagement::new(vec![(Seconds::new(0.0), Ratio::new(0.2))]).unwrap();
    assert!(always.mean_budget(Ratio::new(0.1), Shape::EXPONENTIAL).is_err());
}

proptest! {
    /// The shape has the variation that it was asked for, and tails rise with the percentile, the fan-out and the mean.
    #[test]
    fn tails_are_monotone(cv in 0.06..3.0f64, p in 0.3..0.999f64, step in 1e-4..9e-4f64, fanout in 1..50u32) {
        let shape = Shape::of_cv(Ratio::new(cv)).unwrap();
        prop_assert!((shape.cv().get() / cv - 1.0).abs() < 1e-6);
        let tail = |p: f64, fanout| shape.tail_per_mean(Ratio::new(p), fanout).unwrap();
        prop_assert!(tail(p + step, fanout) > tail(p, fanout));
        prop_assert!(tail(p, fanout + 1) > tail(p, fanout));
        let slower = shape.slower(Seconds::new(1.0), Seconds::new(tail(p, 1)));
        prop_assert!((slower - (1.0 - p)).abs() < 1e-6, "{slower} at {p}");
    }

    /// A budget keeps every SLO that it was made of.
    #[test]
    fn a_budget_keeps_its_targets(cv in 0.1..5.0f64, slos in proptest::collection::vec((0.5..0.9999f64, 1e-4..10.0f64), 1..4)) {
        let shape = Shape::of_cv(Ratio::new(cv)).unwrap();
        let slos: Vec<_> = slos.into_iter().map(|(p, target)| slo(p, target)).collect();
        let mean = mean_budget(&slos, shape, 1).unwrap().unwrap();
        for slo in slos {
            prop_assert!(shape.tail(mean, slo.percentile, 1).unwrap().get() <= slo.target.get() * (1.0 + 1e-9));
        }
    }

    /// The disengagement ratio rises with the mean latency.
    #[test]
    fn disengagement_rises_with_the_mean(cv in 0.3..3.0f64, mean in 1e-3..2.0f64, factor in 1.05..4.0f64) {
        let shape = Shape::of_cv(Ratio::new(cv)).unwrap();
        let at = |mean| table().expected(Seconds::new(mean), shape).get();
        prop_assert!(at(mean * factor) >= at(mean) - 1e-9);
    }
}
