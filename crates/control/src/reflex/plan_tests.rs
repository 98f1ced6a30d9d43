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
    let InSystem { mean, variance, .. } = in_system(&queue(10.0, 1.0)).unwrap();
    assert!((mean - 1.0).abs() < 1e-6, "{mean}");
    assert!((variance - 2.0).abs() < 1e-6, "{variance}");
    let mean = in_system(&queue(16.0, 1.0)).unwrap().mean;
    assert!((mean - 4.0).abs() < 1e-6, "{mean}");
    // Many cores for the load: as many as there are Erlang.
    let InSystem { mean, variance, .. } = in_system(&queue(100.0, 100.0)).unwrap();
    assert!((mean - 5.0).abs() < 1e-6, "{mean}");
    assert!((variance - 5.0).abs() < 1e-6, "{variance}");
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
        at_end: 0.0,
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
        at_end: 0.0,
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

/// Uniform between 0 and 1, from a seed.
fn draw(state: &mut u64) -> f64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    ((*state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

/// One core at 95 %, whose queue takes many periods to become as long as it is in the long run.
#[test]
fn near_saturation_the_bound_is_what_a_period_can_reach_and_not_what_a_day_can() {
    let queue = queue(19.0, 1.0);
    let known = in_system(&queue).unwrap();
    // What a stationary queue passes once in a hundred periods.
    let in_the_long_run = (1..)
        .find(|n| queue.rate * known.chance(f64::from(*n)) < FALSE_ALARM)
        .unwrap();
    let mut plan = ReflexPlan::default();
    let (mut state, mut number, periods) = (7, 0u32, 20_000);
    let (mut fired, mut bounds) = (0, 0.0);
    for _ in 0..periods {
        let (bound, _) = plan.bound(queue, &[(queue.rate, 1.0)], f64::from(number));
        bounds += bound as f64;
        let (mut at, mut area, mut most) = (0.0, 0.0, number);
        loop {
            let departs = if number > 0 { 1.0 / queue.cost } else { 0.0 };
            let next = at - draw(&mut state).ln() / (queue.rate + departs);
            area += f64::from(number) * (next.min(queue.length) - at);
            if next > queue.length {
                break;
            }
            at = next;
            match draw(&mut state) * (queue.rate + departs) < queue.rate {
                true => number += 1,
                false => number -= 1,
            }
            most = most.max(number);
        }
        fired += u32::from(u64::from(most) > bound);
        plan.observe(&Past {
            queue,
            in_flight: Some(area / queue.length),
            at_end: f64::from(number),
            fired: u64::from(most) > bound,
            late: false,
            limited: true,
        });
    }
    let (share, mean) = (f64::from(fired) / f64::from(periods), bounds / f64::from(periods));
    assert!(share < 1.2 * FALSE_ALARM, "{share}");
    assert!(
        mean < 0.6 * f64::from(in_the_long_run),
        "{mean} on average, {in_the_long_run} in the long run"
    );
}

proptest! {
    /// The bound never lies under the mean, nor under what is in flight, and grows with the rate.
    #[test]
    fn the_bound_grows_with_the_rate(rate in 0.01..5000.0f64, cores in 0.1..300.0f64, in_flight in 0.0..1e4f64) {
        let bound = |rate| ReflexPlan::default().bound(queue(rate, cores), &[(rate, 1.0)], in_flight).0;
        let mean = in_system(&queue(rate, cores)).unwrap().mean;
        prop_assert!(bound(rate) as f64 >= mean.floor() && bound(rate) as f64 >= in_flight);
        prop_assert!(bound(rate * 1.5) >= bound(rate));
    }
}
