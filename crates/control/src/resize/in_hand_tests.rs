use super::*;
use headroom_units::PerSecond;
use proptest::prelude::*;

const SECOND: Seconds = Seconds::new(1.0);

fn exact(per_s: f64) -> Capacity {
    Capacity::Exact(PerSecond::new(per_s))
}

fn period(capacity: Capacity, in_flight: f64, waiting: f64) -> InHandPeriod {
    InHandPeriod {
        length: SECOND,
        capacity,
        accepts: 80.0,
        drops: 0.0,
        waiting: Some(waiting),
        answered: 80.0,
        in_flight: Some(in_flight),
    }
}

#[test]
fn it_may_have_what_it_answers_in_time_and_half_as_many_again() {
    let mut server = InHand::new(Seconds::new(0.25));
    assert_eq!(server.observe(&period(exact(80.0), 10.0, 2.0)), Some(30));
    let about = Capacity::About(PerSecond::new(40.0));
    assert_eq!(server.observe(&period(about, 10.0, 2.0)), Some(15));
    for unknown in [Capacity::Unknown, Capacity::LowerBound(PerSecond::new(80.0))] {
        assert_eq!(server.observe(&period(unknown, 10.0, 2.0)), None);
    }
}

#[test]
fn what_it_works_on_is_not_refused_however_long_it_takes() {
    // Eight workers of two seconds: four a second, and a promise of a quarter of one.
    let mut server = InHand::new(Seconds::new(0.25));
    let bounds: Vec<_> = (0..4)
        .map(|_| server.observe(&period(exact(4.0), 12.0, 4.0)))
        .collect();
    assert_eq!(bounds, [Some(2), Some(2), Some(11), Some(11)]);
    // A queue that grows is not work.
    let mut growing = InHand::new(Seconds::new(0.25));
    for (in_flight, waiting) in [(8.0, 0.0), (100.0, 50.0), (108.0, 100.0), (108.0, 100.0)] {
        growing.observe(&period(exact(80.0), in_flight, waiting));
    }
    assert_eq!(growing.observe(&period(exact(80.0), 108.0, 100.0)), Some(30));
}

#[test]
fn where_connections_carry_several_requests_there_is_no_bound() {
    let mut server = InHand::new(Seconds::new(0.25));
    let mut kept_alive = period(exact(80.0), 10.0, 2.0);
    kept_alive.accepts = 8.0;
    assert_eq!(server.observe(&kept_alive), None);
}

#[test]
fn drops_bound_it_until_they_are_long_ago() {
    let mut server = InHand::new(SECOND);
    let mut dropping = period(Capacity::Unknown, 20.0, 12.0);
    dropping.drops = 3.0;
    assert_eq!(server.observe(&dropping), Some(18));
    let calm = period(Capacity::Unknown, 10.0, 2.0);
    let after: Vec<u32> = (0..600).filter_map(|_| server.observe(&calm)).collect();
    assert!(after.is_sorted(), "it may only grow");
    assert!(after[10] <= 20 && *after.last().unwrap() > 80, "{after:?}");
    // What TCP tries again is in flight, and not worked on.
    let mut retried = InHand::new(SECOND);
    let mut full = period(exact(80.0), 400.0, 17.0);
    full.drops = 30.0;
    let bounds: Vec<u32> = (0..8).filter_map(|_| retried.observe(&full)).collect();
    assert_eq!(bounds, [120; 8]);
    server.forget();
    assert_eq!(server.observe(&calm), None);
}

/// A server of so many workers and places, each request taking so long, under a load that fills whatever it is let; the share of its
/// workers that work, and the drops of the last half.
fn run(workers: f64, places: f64, service_s: f64, within_s: f64, told: f64) -> (f64, f64) {
    let mut server = InHand::new(Seconds::new(within_s));
    let capacity = workers / service_s;
    let (mut bound, mut work, mut drops) = (None::<u32>, 0.0, 0.0);
    for second in 0..400 {
        let wanted = bound.map_or(workers + 2.0 * places + 10.0, f64::from);
        let has = wanted.min(workers + places);
        let dropped = wanted - has;
        let working = has.min(workers);
        let waits = has - working;
        if second >= 200 {
            work += working / workers / 200.0;
            drops += dropped;
        }
        let rate = working / service_s;
        bound = server.observe(&InHandPeriod {
            length: SECOND,
            // Only a server with a queue shows what it takes.
            capacity: match waits > 0.0 {
                true => exact(capacity * told),
                false => Capacity::LowerBound(PerSecond::new(rate)),
            },
            accepts: rate,
            drops: dropped,
            waiting: Some(waits),
            answered: rate,
            in_flight: Some(has),
        });
    }
    (work, drops)
}

proptest! {
    #[test]
    fn no_server_is_left_idle_by_its_bound_nor_given_more_than_its_queue_holds(
        workers in 1_u32..200,
        places in 4_u32..1_000,
        service_s in 0.002_f64..3.0,
        within_s in 0.05_f64..2.0,
        told in 0.5_f64..1.5,
    ) {
        let (work, drops) = run(workers.into(), places.into(), service_s, within_s, told);
        prop_assert!(work > 0.98, "{work:.3} of the workers work");
        // A bound that was too large is found out by drops, of which a few come again as it is forgotten.
        let per_s = f64::from(workers) / service_s;
        prop_assert!(drops < 200.0 * per_s.max(f64::from(workers)) * 0.2 + 20.0, "{drops} dropped of {per_s}/s");
    }
}
