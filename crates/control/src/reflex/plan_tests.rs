use super::*;
use proptest::prelude::*;

fn queue(rate: f64, cores: f64) -> Queue {
    Queue {
        rate,
        cost: 0.05,
        cores,
        length: 1.0,
    }
}

#[test]
fn requests_in_flight_are_those_of_the_known_queues() {
    // One core: M/G/1 processor sharing has rho / (1 - rho) requests.
    let (mean, _) = in_system(&queue(10.0, 1.0)).unwrap();
    assert!((mean - 1.0).abs() < 1e-6, "{mean}");
    let (mean, _) = in_system(&queue(16.0, 1.0)).unwrap();
    assert!((mean - 4.0).abs() < 1e-6, "{mean}");
    // Many cores for the load: as many as there are Erlang.
    let (mean, _) = in_system(&queue(100.0, 100.0)).unwrap();
    assert!((mean - 5.0).abs() < 1e-6, "{mean}");
    assert_eq!(in_system(&queue(0.0, 1.0)), None);
    assert_eq!(in_system(&queue(f64::NAN, 1.0)), None);
}

#[test]
fn false_alarms_raise_the_bound_and_calm_lowers_it_again() {
    let mut plan = ReflexPlan::default();
    let cases = [(90.0, 0.5), (110.0, 0.5)];
    let (before, _) = plan.bound(queue(100.0, 8.0), &cases, 0.0);
    let mut past = Past {
        queue: queue(100.0, 8.0),
        in_flight: None,
        fired: true,
        late: false,
        limited: true,
    };
    for _ in 0..5 {
        plan.observe(&past);
        plan.bound(queue(100.0, 8.0), &cases, 0.0);
    }
    let (raised, _) = plan.bound(queue(100.0, 8.0), &cases, 0.0);
    assert!(raised > before, "{raised} {before}");
    past.fired = false;
    for _ in 0..1000 {
        plan.observe(&past);
        plan.bound(queue(100.0, 8.0), &cases, 0.0);
    }
    assert_eq!(plan.bound(queue(100.0, 8.0), &cases, 0.0).0, before);
}

#[test]
fn it_is_bold_only_on_what_reflexes_were_observed_to_save() {
    let mut plan = ReflexPlan::default();
    assert_eq!(plan.bold(), 1.0);
    let past = |fired, late| Past {
        queue: queue(100.0, 8.0),
        in_flight: None,
        fired,
        late,
        limited: true,
    };
    for _ in 0..20 {
        plan.observe(&past(true, false));
    }
    assert_eq!(plan.bold(), MAX_BOLD);
    for _ in 0..40 {
        plan.observe(&past(true, true));
    }
    assert!(plan.bold() < 1.6, "{}", plan.bold());
}

proptest! {
    /// The bound never lies under the mean, nor under what is in flight, and grows with the rate.
    #[test]
    fn the_bound_grows_with_the_rate(rate in 0.01..5000.0f64, cores in 0.1..300.0f64, in_flight in 0.0..1e4f64) {
        let bound = |rate| ReflexPlan::default().bound(queue(rate, cores), &[(rate, 1.0)], in_flight).0;
        let (mean, _) = in_system(&queue(rate, cores)).unwrap();
        prop_assert!(bound(rate) as f64 >= mean.floor() && bound(rate) as f64 >= in_flight);
        prop_assert!(bound(rate * 1.5) >= bound(rate));
    }
}
