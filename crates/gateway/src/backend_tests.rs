use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::config::HealthConfig;
use crate::ejection::{Census, ConnectFailure, Verdict};

fn make(weights: &[u32]) -> Vec<Arc<Backend>> {
    let config = |(index, weight): (usize, &u32)| BackendConfig {
        weight: *weight,
        ..BackendConfig::new(format!("http://127.0.0.1:{}", index + 1))
    };
    weights
        .iter()
        .enumerate()
        .map(config)
        .map(|config| Arc::new(Backend::new(&config).unwrap()))
        .collect()
}

fn turns(balancer: &mut Balancer, backends: &[Arc<Backend>], turns: usize) -> Vec<usize> {
    (0..turns)
        .map(|_| balancer.pick(backends, |_| 0, |_| false).unwrap())
        .collect()
}

#[test]
fn round_robin_interleaves_the_weights() {
    let backends = make(&[5, 1, 1]);
    let mut balancer = Balancer::new(Balance::RoundRobin, 3, 100, 50);
    assert_eq!(turns(&mut balancer, &backends, 7), [0, 0, 1, 0, 2, 0, 0]);
}

#[test]
fn the_least_loaded_per_weight_comes_first_and_ties_go_round() {
    let backends = make(&[1, 2, 1]);
    let mut balancer = Balancer::new(Balance::LeastConnections, 3, 100, 50);
    let loads = [1, 2, 3];
    assert_eq!(balancer.pick(&backends, |index| loads[index], |_| false), Ok(1));
    let equal = make(&[1, 1, 1]);
    let mut balancer = Balancer::new(Balance::LeastConnections, 3, 100, 50);
    assert_eq!(turns(&mut balancer, &equal, 6), [0, 1, 2, 0, 1, 2]);
}

#[test]
fn what_may_not_serve_is_not_picked() {
    let backends = make(&[1, 1, 1, 0]);
    let mut balancer = Balancer::new(Balance::RoundRobin, 4, 2, 50);
    backends[0].set_healthy(false);
    backends[1].apply(BackendState::Drain.into()).unwrap();
    assert!(turns(&mut balancer, &backends, 10).iter().all(|turn| *turn == 2));
    let picked = balancer.pick(&backends, |_| 2, |_| false);
    assert_eq!(picked, Err(NoBackend::OverLimit));
    assert_eq!(
        balancer.pick(&backends, |_| 0, |index| index == 2),
        Err(NoBackend::Unavailable)
    );
}

#[test]
fn idle_backends_get_what_their_weights_say_with_least_connections_too() {
    let backends = make(&[3, 1]);
    let mut balancer = Balancer::new(Balance::LeastConnections, 2, 100, 50);
    assert_eq!(turns(&mut balancer, &backends, 8), [0, 0, 1, 0, 0, 0, 1, 0]);
}

fn eject(backend: &Backend) {
    let config = HealthConfig {
        ejection_ms: 60_000,
        ejection_max_ms: 60_000,
        ..HealthConfig::default()
    };
    let begun = backend.ejection.begin_connect(Duration::ZERO);
    let verdict = backend
        .ejection
        .failed(begun, ConnectFailure::Refused, &config, Census::default);
    assert_eq!(verdict, Verdict::Ejected(EjectionCause::Refused));
}

#[test]
fn an_ejected_backend_is_the_last_resort() {
    let backends = make(&[1, 1]);
    let mut balancer = Balancer::new(Balance::RoundRobin, 2, 10, 50);
    eject(&backends[0]);
    assert!(backends[0].health().ejected_for.is_some());
    assert_eq!(backends[0].health().ejected_by, Some(EjectionCause::Refused));
    assert!(turns(&mut balancer, &backends, 10).iter().all(|turn| *turn == 1));
    assert_eq!(balancer.pick(&backends, |_| 0, |index| index == 1), Ok(0));
    backends[0].ejection.connected();
    assert_eq!(
        turns(&mut balancer, &backends, 4)
            .iter()
            .filter(|turn| **turn == 0)
            .count(),
        2
    );
}

#[test]
fn a_backend_that_is_let_take_requests_again_is_not_held_to_what_was_before() {
    let backends = make(&[1, 1]);
    eject(&backends[0]);
    // It is up already: that is no news.
    backends[0].apply(BackendState::Up.into()).unwrap();
    assert!(backends[0].health().ejected_for.is_some());
    for away in [BackendState::Down, BackendState::Drain] {
        backends[0].apply(away.into()).unwrap();
        assert!(backends[0].health().ejected_for.is_some());
        backends[0].apply(BackendState::Up.into()).unwrap();
        assert_eq!(backends[0].health().ejected_for, None);
        eject(&backends[0]);
    }
}

#[test]
fn a_backend_at_its_limit_is_waited_for_while_the_other_is_ejected() {
    let backends = make(&[1, 1]);
    let mut balancer = Balancer::new(Balance::RoundRobin, 2, 1, 50);
    eject(&backends[0]);
    let at_limit = |index| usize::from(index == 1);
    assert_eq!(
        balancer.pick(&backends, at_limit, |_| false),
        Err(NoBackend::OverLimit)
    );
    assert_eq!(balancer.pick(&backends, at_limit, |index| index == 1), Ok(0));
}

#[test]
fn health_is_disregarded_while_too_few_are_healthy() {
    let backends = make(&[1, 1, 1]);
    let mut balancer = Balancer::new(Balance::RoundRobin, 3, 10, 50);
    let mut of = |backend| {
        turns(&mut balancer, &backends, 9)
            .iter()
            .filter(|turn| **turn == backend)
            .count()
    };
    backends[0].set_healthy(false);
    assert_eq!(of(0), 0);
    backends[1].set_healthy(false);
    assert_eq!([of(0), of(1), of(2)], [3, 3, 3]);
    // A backend that the control side took out is not missed.
    backends[1].apply(BackendState::Drain.into()).unwrap();
    assert_eq!([of(0), of(2)], [0, 9]);
    let mut never = Balancer::new(Balance::RoundRobin, 3, 10, 0);
    backends[2].set_healthy(false);
    assert_eq!(
        never.pick(&backends, |_| 0, |_| false),
        Err(NoBackend::Unavailable)
    );
}

#[test]
fn urls_give_host_port_and_authority() {
    let parse = |url: &str| Backend::new(&BackendConfig::new(url));
    let backend = parse("http://[::1]:8080").unwrap();
    assert_eq!(
        (
            backend.host.as_str(),
            backend.port,
            backend.authority.to_str().unwrap()
        ),
        ("::1", 8080, "[::1]:8080")
    );
    assert_eq!(parse("http://a.example").unwrap().port, 80);
    assert_eq!(parse("https://a.example").unwrap().port, 443);
    assert_eq!(parse("https://a.example:8443").unwrap().port, 8443);
    for bad in [
        "http://a/b",
        "ftp://a",
        "http://",
        "a",
        "http://a:x",
        "http://u@a",
        "http://a?b",
    ] {
        assert!(parse(bad).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn shares_follow_the_weights(weights in prop::collection::vec(0u32..20, 1..6)) {
        let total: u32 = weights.iter().sum();
        let backends = make(&weights);
        let mut balancer = Balancer::new(Balance::RoundRobin, weights.len(), 1, 50);
        if total == 0 {
            prop_assert_eq!(balancer.pick(&backends, |_| 0, |_| false), Err(NoBackend::Unavailable));
        } else {
            // Over one cycle, and the next, each has exactly its weight's share.
            for _ in 0..2 {
                let turns = turns(&mut balancer, &backends, total as usize);
                for (index, weight) in weights.iter().enumerate() {
                    prop_assert_eq!(turns.iter().filter(|turn| **turn == index).count(), *weight as usize);
                }
            }
        }
    }
}

proptest! {
    /// One request at a time finds all idle: each backend has its weight's share. Where none ends, each has it but for one request, and
    /// none is over its limit.
    #[test]
    fn least_connections_follow_the_weights(
        weights in prop::collection::vec(0_u32..20, 1..6),
        limit in 1_usize..200,
    ) {
        let total: u32 = weights.iter().sum();
        prop_assume!(total > 0);
        let backends = make(&weights);
        let mut balancer = Balancer::new(Balance::LeastConnections, weights.len(), limit, 50);
        let one_by_one = turns(&mut balancer, &backends, total as usize);
        for (index, weight) in weights.iter().enumerate() {
            prop_assert_eq!(one_by_one.iter().filter(|turn| **turn == index).count(), *weight as usize);
        }
        let mut loads = vec![0; weights.len()];
        while let Ok(picked) = balancer.pick(&backends, |index| loads[index], |_| false) {
            prop_assert!(loads[picked] < limit);
            let per_weight = |index: usize| loads[index] as f64 / f64::from(weights[index]);
            for index in (0..weights.len()).filter(|index| weights[*index] > 0 && loads[*index] < limit) {
                prop_assert!(per_weight(picked) <= per_weight(index) + 1e-9);
            }
            loads[picked] += 1;
        }
        let in_service = weights.iter().filter(|weight| **weight > 0).count();
        prop_assert_eq!(loads.iter().sum::<usize>(), in_service * limit);
    }
}

/// Turns of a class by these weights.
fn weighted(
    balancer: &Balancer,
    backends: &[Arc<Backend>],
    weights: &[u32],
    turns: usize,
) -> Vec<Option<usize>> {
    let mut credit = vec![0; backends.len()];
    (0..turns)
        .map(|_| balancer.pick_routed(backends, &weights.to_vec().into(), &mut credit, |_| 0, |_| false))
        .collect()
}

#[test]
fn a_class_goes_by_its_own_weights_and_not_by_the_backends() {
    let backends = make(&[1000, 1, 1]);
    let balancer = Balancer::new(Balance::LeastConnections, 3, 100, 50);
    let picked = weighted(&balancer, &backends, &[0, 3, 1], 400);
    let count = |index| picked.iter().filter(|picked| **picked == Some(index)).count();
    assert_eq!((count(0), count(1), count(2)), (0, 300, 100));
}

#[test]
fn a_class_without_a_backend_that_can_take_it_is_for_the_others() {
    let backends = make(&[1, 1, 0]);
    let balancer = Balancer::new(Balance::LeastConnections, 3, 2, 50);
    let pick = |weights: &[u32], loads: [usize; 3], tried: &[usize]| {
        balancer.pick_routed(
            &backends,
            &weights.to_vec().into(),
            &mut [0; 3],
            |index| loads[index],
            |index| tried.contains(&index),
        )
    };
    assert_eq!(pick(&[1, 0, 0], [1, 0, 0], &[]), Some(0));
    assert_eq!(pick(&[1, 0, 0], [2, 0, 0], &[]), None, "at its limit");
    assert_eq!(pick(&[1, 0, 0], [0; 3], &[0]), None, "tried");
    assert_eq!(pick(&[0, 0, 9], [0; 3], &[]), None, "its own weight is 0");
    assert_eq!(
        pick(&[1], [0; 3], &[]),
        Some(0),
        "backends without a weight have none"
    );
    eject(&backends[0]);
    assert_eq!(pick(&[1, 0, 0], [0; 3], &[]), None, "ejected");
    assert_eq!(pick(&[1, 5, 0], [0; 3], &[]), Some(1));
    backends[1].apply(BackendState::Drain.into()).unwrap();
    assert_eq!(pick(&[1, 5, 0], [0; 3], &[]), None, "drained");
}

proptest! {
    /// Whatever backends can take a class, it goes to one with a weight, in proportion, or to none.
    #[test]
    fn a_class_goes_in_proportion_to_the_weights_of_those_that_can_take_it(
        of in prop::collection::vec((0_u32..5, 0_u32..20, any::<bool>()), 1..6),
    ) {
        let backends = make(&of.iter().map(|one| one.0).collect::<Vec<_>>());
        for (backend, (_, _, down)) in backends.iter().zip(&of) {
            if *down {
                backend.apply(BackendState::Down.into()).unwrap();
            }
        }
        let weights: Vec<u32> = of.iter().map(|one| one.1).collect();
        let balancer = Balancer::new(Balance::RoundRobin, of.len(), 10, 50);
        let can: Vec<u32> = of.iter().map(|(own, weight, down)| if *own > 0 && !down { *weight } else { 0 }).collect();
        let total: u32 = can.iter().sum();
        let picked = weighted(&balancer, &backends, &weights, 2 * total as usize + 1);
        for (index, weight) in can.iter().enumerate() {
            let count = picked[..2 * total as usize].iter().filter(|picked| **picked == Some(index)).count();
            prop_assert_eq!(count, 2 * *weight as usize);
        }
        prop_assert_eq!(picked[0].is_some(), total > 0);
    }
}

/// Weights, bounds and requests in flight of backends, and who takes the next requests of the class, each of which stays.
fn bounded(weights: &[u32], most: &[u32], in_flight: &[u32], turns: usize) -> Vec<Option<usize>> {
    let backends = make(&vec![1; weights.len()]);
    for (backend, count) in backends.iter().zip(in_flight) {
        (0..*count).for_each(|_| assert!(backend.try_begin(usize::MAX)));
    }
    let route = ClassRoute {
        weights: weights.to_vec(),
        most_in_flight: most.to_vec(),
    };
    let balancer = Balancer::new(Balance::LeastConnections, weights.len(), 100, 50);
    let mut credit = vec![0; weights.len()];
    let mut turn = || {
        let picked = balancer.pick_routed(&backends, &route, &mut credit, |_| 0, |_| false);
        picked
            .iter()
            .for_each(|picked| assert!(backends[*picked].try_begin(usize::MAX)));
        picked
    };
    (0..turns).map(|_| turn()).collect()
}

#[test]
fn a_class_passes_over_a_backend_with_more_in_flight_than_its_bound() {
    // The first hangs with as many as it may have: the other one of the class takes what it has room for, then all share the rest.
    let picked = bounded(&[3, 1, 0], &[4, 3, 8], &[4, 0, 0], 7);
    let expected = [1, 1, 1, 2, 2, 2, 2].map(Some);
    assert_eq!(picked, expected);
    // Without bounds it takes its turns for ever.
    let picked = bounded(&[3, 1, 0], &[], &[400, 0, 0], 8);
    assert_eq!(picked.iter().filter(|picked| **picked == Some(0)).count(), 6);
    // A backend without a bound takes none, whatever the others have.
    let picked = bounded(&[1, 0, 0], &[2, 0, 0], &[9, 0, 0], 3);
    assert_eq!(picked, [Some(0); 3]);
    assert_eq!(bounded(&[1, 0], &[0, 0], &[0, 0], 1), [None]);
}

proptest! {
    /// However many come, each backend's share of its bound is at most one request above the others', once none has room.
    #[test]
    fn a_rush_is_shared_by_the_bounds(of in prop::collection::vec((0_u32..5, 1_u32..20), 1..6), rush in 0_usize..200) {
        prop_assume!(of.iter().any(|one| one.0 > 0));
        let (weights, most): (Vec<u32>, Vec<u32>) = of.iter().copied().unzip();
        let picked = bounded(&weights, &most, &vec![0; of.len()], rush);
        prop_assert!(picked.iter().all(Option::is_some));
        let count = |index| picked.iter().filter(|picked| **picked == Some(index)).count() as f64;
        for (index, (weight, _)) in of.iter().enumerate() {
            for (other, bound) in most.iter().enumerate() {
                let is_full = count(index) > f64::from(most[index]) || (*weight == 0 && count(index) > 0.0);
                let share = (count(index) - 1.0) / f64::from(most[index]);
                prop_assert!(!is_full || share <= (count(other) + 1.0) / f64::from(*bound) + 1e-9, "{picked:?}");
            }
        }
    }
}
