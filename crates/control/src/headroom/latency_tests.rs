use super::*;
use crate::queueing::percentile::sharing_percentile;
use headroom_units::Cores;

fn range() -> CoreRange {
    CoreRange::new(Cores::new(1.0), Cores::new(48.0), Cores::new(1.0)).unwrap()
}

fn model() -> LatencyModel {
    LatencyModel::new(Ratio::new(0.95), range())
}

/// Periods of a service of this spread and scale.
fn teach(model: &mut LatencyModel, scv: f64, scale: f64, periods: usize) {
    let sizes = ServiceSizes::lognormal(scv);
    for i in 0..periods {
        let (cores, load) = (10.0, [0.5, 0.6, 0.7, 0.8][i % 4]);
        let at = |p: f64| {
            0.04 * scale * sharing_percentile(Cores::new(cores), Ratio::new(load), &sizes, Ratio::new(p))
        };
        model.observe(&Measured {
            cores,
            load,
            cost: 0.04,
            completions: 150.0,
            length: 100.0,
            at_slo: at(0.95),
            median_and_p95: Some((at(0.5), at(0.95))),
        });
    }
}

#[test]
fn spread_and_scale_are_learned() {
    for (scv, scale) in [(0.3, 1.0), (7.0, 1.3), (0.0, 1.5)] {
        let mut model = model();
        teach(&mut model, scv, scale, 200);
        assert_eq!(model.spread(), scv);
        let exact = 0.04
            * scale
            * sharing_percentile(
                Cores::new(14.0),
                Ratio::new(0.65),
                &ServiceSizes::lognormal(scv),
                Ratio::new(0.95),
            );
        let got = model.ln(14.0, 0.65, 0.04, 1e4).0.exp();
        assert!((got / exact - 1.0).abs() < 0.06, "{scv}: {got} for {exact}");
    }
}

#[test]
fn cores_that_work_together_for_a_request_are_fewer_faster_servers() {
    let mut model = model();
    let at = |cores: f64, load: f64, p: f64| {
        let sizes = ServiceSizes::lognormal(0.3);
        0.04 / 8.0 * sharing_percentile(Cores::new(cores / 8.0), Ratio::new(load), &sizes, Ratio::new(p))
    };
    for i in 0..400 {
        let (cores, load) = (8.0 + (i % 13) as f64, [0.4, 0.5, 0.6, 0.75][i % 4]);
        model.observe(&Measured {
            cores,
            load,
            cost: 0.04,
            completions: 1_500.0,
            length: 100.0,
            at_slo: at(cores, load, 0.95),
            median_and_p95: Some((at(cores, load, 0.5), at(cores, load, 0.95))),
        });
    }
    let width = model.ln_width.exp();
    assert!((6.0..11.0).contains(&width), "{width}");
    // Of 12 cores that each work for a request of their own none would wait at all; here it is three times as slow.
    let (idle, loaded) = (
        model.ln(12.0, 0.1, 0.04, 100.0).0.exp(),
        model.ln(12.0, 0.7, 0.04, 100.0).0.exp(),
    );
    let exact = at(12.0, 0.7, 0.95);
    assert!((loaded / exact - 1.0).abs() < 0.15, "{loaded} for {exact}");
    assert!(loaded > 2.0 * idle, "{loaded} {idle}");
}

#[test]
fn what_all_cores_show_is_no_matter_of_their_number() {
    let mut model = model();
    for _ in 0..200 {
        model.uneven.observe(48.0, 0.5, 0.2, 0.02);
        model.uneven.observe(9.0, 0.5, -0.1, 0.02);
    }
    assert!(model.unevenness(9.0) < model.unevenness(48.0));
    assert_eq!(model.power_of(9.0), model.power_of(48.0));
}

#[test]
fn a_surprise_counts_at_once_and_passes() {
    let mut model = model();
    teach(&mut model, 0.3, 1.0, 200);
    model.observe(&Measured {
        cores: 10.0,
        load: 0.6,
        cost: 0.04,
        completions: 150.0,
        length: 1.0,
        at_slo: 0.4,
        median_and_p95: None,
    });
    assert!(model.surprise() > 1.3, "{}", model.surprise());
    teach(&mut model, 0.3, 1.0, 12);
    assert!(model.surprise() < 1.02);
}

#[test]
fn the_probability_of_a_late_period_is_that_of_its_order_statistic() {
    let mut model = model();
    teach(&mut model, 0.3, 1.0, 100);
    // So many requests a second with so many cores, at a bound so much above the percentile that is expected.
    let late = |model: &mut LatencyModel, requests: f64, load: f64, ratio: f64| {
        let station = model.station(requests * 0.04 / load, 0.04);
        let arriving = Arriving {
            load: requests,
            requests,
            length: 1.0,
        };
        let usual = model.ln(station.cores, load, 0.04, 1e4).0;
        model.late(&station, &arriving, usual + f64::ln(ratio), 0.0, 1e-9)
    };
    // 140 requests: late are those periods in which 8 or more of them are, where a mean of 7 is; what is
    // uncertain makes it more.
    let even = late(&mut model, 140.0, 0.15, 1.0);
    assert!((0.4..0.85).contains(&even), "{even}");
    assert!((at_least(8.0, 2.85) - 0.0095).abs() < 1e-3);
    assert!((at_least(1.0, 0.1) - (1.0 - (-0.1f64).exp())).abs() < 1e-12);
    // The two branches meet.
    let (exact, close) = (at_least(40.0, 30.0), at_least(40.5, 30.0));
    assert!((exact - close).abs() < 0.01, "{exact} {close}");
    assert!(late(&mut model, 1_000.0, 0.85, 1.2) < late(&mut model, 50.0, 0.85, 1.2));
    assert!(late(&mut model, 100.0, 0.15, 0.7) > 0.5);
    // What is congested scatters more.
    let (congested, calm) = (
        late(&mut model, 140.0, 0.8, 1.6),
        late(&mut model, 140.0, 0.15, 1.6),
    );
    assert!(congested > 2.0 * calm, "{congested} {calm}");
}

#[test]
fn a_probability_is_known_to_within_the_error_asked_for() {
    let mut model = model();
    teach(&mut model, 1.0, 1.0, 100);
    for (cores, ratio) in [(8.0, 1.1), (7.0, 1.5), (12.0, 0.9), (6.5, 2.0)] {
        let station = model.station(cores, 0.04);
        let arriving = Arriving {
            load: 140.0,
            requests: 140.0,
            length: 1.0,
        };
        let usual = model.ln(cores, 5.6 / cores, 0.04, 1e4).0;
        let mut at = |error: f64| model.late(&station, &arriving, usual + f64::ln(ratio), 0.0, error);
        let exact = at(0.0);
        for error in [1e-6, 1e-4, 1e-2] {
            let close = at(error);
            assert!(close <= exact && exact - close <= error, "{close} for {exact}");
        }
    }
}

#[test]
fn more_caution_more_load_and_a_tighter_bound_are_later() {
    let mut model = model();
    teach(&mut model, 0.3, 1.0, 100);
    let bound = 1.2 * model.ln(10.0, 0.72, 0.04, 1e4).0.exp();
    let mut late = |cores: f64, requests: f64, bound: f64, caution: f64| {
        let station = model.station(cores, 0.04);
        let arriving = Arriving {
            load: requests,
            requests,
            length: 1.0,
        };
        model.late(&station, &arriving, f64::ln(bound), caution, 1e-12)
    };
    let usual = late(10.0, 180.0, bound, 0.0);
    assert!((1e-4..0.5).contains(&usual), "{usual}");
    assert!(late(10.0, 180.0, bound, 0.1) > usual);
    assert!(late(10.0, 195.0, bound, 0.0) > usual);
    assert!(late(10.0, 180.0, 0.9 * bound, 0.0) > usual);
    assert!(late(12.0, 180.0, bound, 0.0) < usual);
    assert!(late(10.0, 251.0, bound, 0.0) > 0.99, "overloaded");
}
