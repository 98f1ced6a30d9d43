use super::super::*;
use super::{Noise, u_shaped};
use headroom_units::{Ratio, Seconds};
use proptest::prelude::*;

/// A plant whose response time follows the interval with a lag: y(k+1) = 0.3 y(k) + 0.7 f(u) - 0.1 h.
fn series(seed: u64, periods: usize, noise: f64, f: impl Fn(Seconds) -> f64) -> Vec<Option<Sample>> {
    let mut random = Noise::new(seed);
    let (mut response, mut hit_ratio) = (1.0, 0.5);
    let mut interval = 0.0;
    (0..periods)
        .map(|period| {
            if period % 3 == 0 {
                interval = random.uniform();
            }
            response =
                0.3 * response + 0.7 * f(Seconds::new(interval)) - 0.1 * hit_ratio + noise * random.normal();
            hit_ratio = (0.3 + 0.3 * interval + 0.05 * random.normal()).clamp(0.0, 1.0);
            Some(Sample {
                interval: Seconds::new(interval),
                hit_ratio: Ratio::new(hit_ratio),
                response: Seconds::new(response),
            })
        })
        .collect()
}

#[test]
fn a_u_shape_is_predicted_better_than_by_a_line_or_by_the_last_value() {
    for seed in 1..6 {
        let all = series(seed, 900, 0.01, u_shaped);
        let (training, held_out) = all.split_at(600);
        let model = identify(training, Lags::DEFAULT).unwrap();
        let arx = Arx::fit(training, Lags::DEFAULT).unwrap();
        let errors = prediction_errors(&model, &arx, held_out).unwrap();
        assert_eq!(errors.fuzzy.periods, 299);
        assert!(errors.fuzzy.rmse < errors.arx.rmse * 0.5, "{errors:?}");
        assert!(errors.fuzzy.rmse < errors.last_value.rmse * 0.4, "{errors:?}");
        assert!(errors.fuzzy.nrmse < 0.16, "{errors:?}");
        assert!(model.rules().len() > 1);
    }
}

#[test]
fn a_system_of_two_linear_regions_is_predicted_twice_as_well_as_by_one_line() {
    let f = |interval: Seconds| {
        // A soft switch between a falling and a rising line.
        let weight = 1.0 / (1.0 + (-(interval.get() - 0.5) * 20.0).exp());
        (1.0 - weight) * (1.0 - 0.6 * interval.get()) + weight * (0.2 + interval.get())
    };
    let all = series(7, 1_200, 0.0, f);
    let model = identify(&all[..900], Lags::DEFAULT).unwrap();
    let arx = Arx::fit(&all[..900], Lags::DEFAULT).unwrap();
    let errors = prediction_errors(&model, &arx, &all[900..]).unwrap();
    assert!(errors.fuzzy.nrmse < 0.25, "{errors:?}");
    assert!(errors.fuzzy.rmse < errors.arx.rmse * 0.4, "{errors:?}");
}

#[test]
fn a_linear_system_is_exactly_one_for_the_linear_model_and_no_worse_for_the_fuzzy() {
    let all = series(3, 600, 0.0, |interval| 0.5 + 0.4 * interval.get());
    let (model, arx) = (
        identify(&all[..400], Lags::DEFAULT).unwrap(),
        Arx::fit(&all[..400], Lags::DEFAULT).unwrap(),
    );
    let errors = prediction_errors(&model, &arx, &all[400..]).unwrap();
    assert!(errors.arx.nrmse < 1e-3 && errors.fuzzy.nrmse < 1e-2, "{errors:?}");
}

#[test]
fn lost_periods_split_a_series() {
    let mut all = series(1, 200, 0.01, u_shaped);
    for at in (0..200).step_by(2) {
        all[at] = None;
    }
    let error = identify(&all, Lags::DEFAULT).unwrap_err();
    assert_eq!(error, IdentifyError::TooFew { given: 0, needed: 15 });
}

#[test]
fn series_that_say_nothing_are_refused() {
    let mut all = series(1, 100, 0.01, u_shaped);
    for (response, interval, hit_ratio) in [
        (f64::NAN, 0.1, 0.5),
        (1e6, 0.1, 0.5),
        (1e300, 0.1, 0.5),
        (-1.0, 0.1, 0.5),
        (0.5, -0.1, 0.5),
        (0.5, 1e4, 0.5),
        (0.5, 0.1, 1.5),
    ] {
        let mut one_off = all.clone();
        *one_off[7].as_mut().unwrap() = Sample {
            interval: Seconds::new(interval),
            hit_ratio: Ratio::new(hit_ratio),
            response: Seconds::new(response),
        };
        let text = identify(&one_off, Lags::DEFAULT).unwrap_err().to_string();
        let (is_told, ms) = (text.starts_with("period 7 of the run"), response * 1e3);
        assert!(is_told && text.contains(&format!("{ms} ms")), "{text}");
        assert!(Arx::fit(&one_off, Lags::DEFAULT).is_err());
    }
    let mut same = all.clone();
    for one in same.iter_mut().flatten() {
        one.response = Seconds::new(0.5);
    }
    assert_eq!(
        identify(&same, Lags::DEFAULT),
        Err(IdentifyError::Constant(500.0))
    );
    for one in all.iter_mut().flatten() {
        (one.interval, one.response) = (Seconds::new(0.1), Seconds::new(0.5));
    }
    let text = identify(&all, Lags::DEFAULT).unwrap_err().to_string();
    assert!(
        text.starts_with("the batch interval is 100 ms in every period"),
        "{text}"
    );
    let lags = Lags {
        outputs: 0,
        inputs: 1,
    };
    assert_eq!(identify(&all, lags), Err(IdentifyError::Lags(0, 1)));
}

#[test]
fn a_model_is_read_from_what_was_written_and_one_with_a_hole_is_refused_by_name() {
    let model = identify(
        &series(2, 400, 0.01, u_shaped),
        Lags {
            outputs: 2,
            inputs: 1,
        },
    )
    .unwrap();
    let written = serde_json::to_string(&model).unwrap();
    // What is read is written the same again: all of it was kept.
    let read: FuzzyModel = serde_json::from_str(&written).unwrap();
    let now = [Sample {
        interval: Seconds::new(0.2),
        hit_ratio: Ratio::new(0.4),
        response: Seconds::new(0.9),
    }; 2];
    let predicted = |model: &FuzzyModel| model.predict(&now, Seconds::new(0.35)).unwrap().get();
    assert!((predicted(&read) - predicted(&model)).abs() < 1e-9);
    let trace = |model: &FuzzyModel| AdaptiveModel::new(model.clone(), 0.98).trace();
    assert!((trace(&read) / trace(&model) - 1.0).abs() < 1e-9);
    let refused = |change: fn(&mut serde_json::Value)| {
        let mut table: serde_json::Value = serde_json::from_str(&written).unwrap();
        change(&mut table);
        serde_json::from_value::<FuzzyModel>(table)
            .unwrap_err()
            .to_string()
    };
    for (text, start) in [
        (
            refused(|table| table["sigma"] = 0.0.into()),
            "the model's sigma is 0",
        ),
        (
            refused(|table| table["rules"][0]["centre"] = serde_json::json!([0.5])),
            "the model's rules[0].centre has 1 values: 5 are needed",
        ),
        (
            refused(|table| table["lags"]["outputs"] = 0.into()),
            "the model's lags are 0 and 1",
        ),
        (
            refused(|table| table["covariance"] = serde_json::json!([1.0])),
            "the model's covariance has 1 values",
        ),
        (
            refused(|table| table["covariance"][2] = (-0.5).into()),
            "the model's covariance[2] is -0.5: it is the variance of parameter 1, which is more than 0",
        ),
        (
            refused(|table| table["covariance"][1] = 1e12.into()),
            "the model's covariance[1] is 1000000000000: the variances of the parameters 1 and 0 allow at most",
        ),
        (
            refused(|table| table["rules"][0]["consequent"][3] = 1e300.into()),
            "the model's rules[0].consequent[3] is 1000",
        ),
        (
            refused(|table| table["sigma"] = 1e-200.into()),
            "the model's sigma is 0.000",
        ),
        (
            refused(|table| *table = "m.toml".into()),
            "invalid type: string \"m.toml\", expected the model itself, not a file's name: the table [law.batching.model]",
        ),
        (
            refused(|table| table["spans"]["interval"]["width"] = 0.0.into()),
            "the model's spans.interval begins",
        ),
        (
            refused(|table| table["rules"] = serde_json::json!([])),
            "the model's rules are none",
        ),
    ] {
        assert!(text.starts_with(start), "{text}");
    }
}

#[test]
fn the_online_update_follows_a_plant_that_has_changed() {
    let model = identify(&series(4, 400, 0.0, |u| 0.5 + 0.4 * u.get()), Lags::DEFAULT).unwrap();
    let later: Vec<Sample> = series(5, 600, 0.0, |u| 0.9 - 0.3 * u.get())
        .into_iter()
        .flatten()
        .collect();
    let mut adaptive = AdaptiveModel::new(model, 0.97);
    let errors: Vec<f64> = later
        .windows(2)
        .map(|two| adaptive.observe(&two[..1], two[1]).unwrap().get().abs())
        .collect();
    let mean = |errors: &[f64]| errors.iter().sum::<f64>() / errors.len() as f64;
    assert!(
        mean(&errors[500..]) < mean(&errors[..10]) * 0.05,
        "{} {}",
        mean(&errors[..10]),
        mean(&errors[500..])
    );
}

#[test]
fn forgetting_without_anything_new_does_not_let_the_covariance_grow_without_bound() {
    let all = series(6, 300, 0.01, u_shaped);
    let mut adaptive = AdaptiveModel::new(identify(&all, Lags::DEFAULT).unwrap(), 0.95);
    let most = adaptive.trace() * 100.0;
    let same = all[10].unwrap();
    for _ in 0..2_000 {
        adaptive.observe(&[same], same).unwrap();
        assert!(adaptive.trace() <= most * (1.0 + 1e-9));
    }
    let far = Sample {
        response: Seconds::new(1.5),
        ..same
    };
    adaptive.observe(&[same], far).unwrap();
    let predicted = adaptive.model().predict(&[same], same.interval).unwrap();
    assert!(predicted.is_finite() && predicted < Seconds::new(3.0));
}

proptest! {
    #[test]
    fn the_optimum_is_that_of_a_fine_grid(
        seed in 1u64..40, reference in 0.0..1.5f64, effort in 0.0..1.0f64, now in 0.0..1.0f64,
        response in 0.2..2.0f64, least in 0.0..0.4f64, width in 0.01..0.6f64,
    ) {
        let model = identify(&series(seed, 300, 0.02, u_shaped), Lags::DEFAULT).unwrap();
        let now = Sample {
            interval: Seconds::new(now), hit_ratio: Ratio::new(0.4), response: Seconds::new(response),
        };
        let objective = Objective { reference: Seconds::new(reference), accuracy: 1.0, effort };
        let bounds = (Seconds::new(least), Seconds::new(least + width));
        let found = optimise(&model, &[now], bounds, &objective).unwrap();
        prop_assert!(found.interval >= bounds.0 && found.interval <= bounds.1);
        let cost = |interval: Seconds| {
            let response = model.predict(&[now], interval).unwrap();
            objective.cost(response, interval - now.interval)
        };
        prop_assert!((cost(found.interval) - found.cost).abs() < 1e-12);
        let grid = (0..=4_000).map(|at| cost(bounds.0 + (bounds.1 - bounds.0) * (f64::from(at) / 4_000.0)));
        let best = grid.fold(f64::INFINITY, f64::min);
        prop_assert!(found.cost <= best * 1.01 + 1e-5, "{} {best}", found.cost);
    }

    #[test]
    fn predictions_are_finite_however_far_from_the_data(
        seed in 1u64..20, interval in -1e6..1e6f64, response in -1e6..1e6f64, hit_ratio in -1e3..1e3f64,
    ) {
        let model = identify(&series(seed, 200, 0.02, u_shaped), Lags::DEFAULT).unwrap();
        let now = Sample {
            interval: Seconds::new(interval), hit_ratio: Ratio::new(hit_ratio), response: Seconds::new(response),
        };
        prop_assert!(model.predict(&[now], Seconds::new(interval)).unwrap().is_finite());
    }
}
