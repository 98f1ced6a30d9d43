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
        places: None,
        working: None,
        sent: 80.0,
        left: 0.0,
        gone: 0.0,
        in_flight: Some(in_flight),
    }
}

#[test]
fn it_may_have_four_fifths_of_what_it_answers_in_time() {
    let mut server = InHand::new(Seconds::new(0.25));
    assert_eq!(
        server.observe(&period(exact(80.0), 10.0, 2.0)),
        None,
        "nothing was counted"
    );
    assert_eq!(server.observe(&period(exact(80.0), 10.0, 2.0)), Some(16));
    let about = Capacity::About(PerSecond::new(40.0));
    assert_eq!(
        server.observe(&period(about, 10.0, 2.0)),
        Some(11),
        "it works on eight"
    );
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
    assert_eq!(bounds, [None, Some(1), Some(11), Some(11)]);
    // What it has accepted and not answered is known at once, also where TCP tries others again.
    let mut told = InHand::new(Seconds::new(0.25));
    let full = InHandPeriod {
        working: Some(8.0),
        drops: 9.0,
        places: Some(8.0),
        ..period(exact(4.0), 60.0, 8.0)
    };
    assert_eq!((told.observe(&full), told.observe(&full)), (None, Some(11)));
    // A queue that grows is not work.
    let mut growing = InHand::new(Seconds::new(0.25));
    for (in_flight, waiting) in [(8.0, 0.0), (100.0, 50.0), (108.0, 100.0), (108.0, 100.0)] {
        growing.observe(&period(exact(80.0), in_flight, waiting));
    }
    assert_eq!(growing.observe(&period(exact(80.0), 108.0, 100.0)), Some(16));
}

#[test]
fn where_connections_carry_several_requests_there_is_no_bound() {
    let mut server = InHand::new(Seconds::new(0.25));
    let mut kept_alive = period(exact(80.0), 10.0, 2.0);
    kept_alive.accepts = 8.0;
    assert!((0..5).all(|_| server.observe(&kept_alive).is_none()));
}

#[test]
fn drops_bound_it_by_its_places_until_they_are_long_ago() {
    let mut server = InHand::new(SECOND);
    let unknown = Capacity::LowerBound(PerSecond::new(80.0));
    let with_places = |in_flight, waiting, drops| InHandPeriod {
        places: Some(32.0),
        drops,
        ..period(unknown, in_flight, waiting)
    };
    for _ in 0..4 {
        assert_eq!(
            server.observe(&with_places(4.0, 0.0, 0.0)),
            None,
            "no limit was met"
        );
    }
    // Nine tenths of 32, and the four that it works on; what TCP tries again is in flight, and not worked on.
    for _ in 0..8 {
        assert_eq!(server.observe(&with_places(400.0, 32.0, 30.0)), Some(33));
    }
    // It has no more than that, and drops all the same: somebody else connects there.
    let gave_up = InHandPeriod {
        sent: -300.0,
        ..with_places(20.0, 16.0, 3.0)
    };
    server.observe(&gave_up);
    let fewer: Vec<_> = (0..3)
        .filter_map(|_| server.observe(&with_places(20.0, 16.0, 3.0)))
        .collect();
    assert!(
        fewer.is_sorted_by(|one, next| one > next) && fewer[2] >= 20,
        "{fewer:?}"
    );
    let calm: Vec<Option<u32>> = (0..600)
        .map(|_| server.observe(&with_places(10.0, 6.0, 0.0)))
        .collect();
    assert!(calm[..290].is_sorted() && calm[200] >= Some(31), "{calm:?}");
    assert_eq!(calm[400], None, "it is long ago");
}

#[test]
fn one_that_joins_is_bounded_before_its_first_request_and_grows_from_there() {
    let mut server = InHand::new(SECOND);
    assert_eq!(server.rest(SECOND, None, None), None, "nothing is known of any");
    assert!(!server.was_bounded());
    // Four fifths of 50 within a second, and nine tenths of 17 places.
    let presumed = Some(PerSecond::new(50.0));
    assert_eq!(server.rest(SECOND, None, presumed), Some(40));
    assert_eq!(server.rest(SECOND, Some(17.0), presumed), Some(16));
    // The first period counts nothing, and the second few; then it works on four.
    let joins = |in_flight, waiting, accepts| InHandPeriod {
        places: Some(17.0),
        accepts,
        sent: 2.0 * accepts,
        ..period(Capacity::Presumed(PerSecond::new(50.0)), in_flight, waiting)
    };
    assert_eq!(server.observe(&joins(16.0, 12.0, 4.0)), Some(16));
    assert_eq!(server.observe(&joins(16.0, 12.0, 4.0)), Some(16));
    let own = |in_flight| InHandPeriod {
        places: Some(17.0),
        accepts: 50.0,
        sent: 50.0,
        ..period(exact(50.0), in_flight, in_flight - 4.0)
    };
    let most: Vec<_> = (0..4).map(|_| server.observe(&own(16.0))).collect();
    assert_eq!(most[3], Some(20), "{most:?}");
    // It goes, and comes back: as it was, whatever others take.
    for _ in 0..3 {
        assert_eq!(server.rest(SECOND, None, Some(PerSecond::new(500.0))), Some(20));
    }
    assert!(server.was_bounded());
    assert_eq!(server.observe(&joins(20.0, 16.0, 4.0)), Some(20));
}

#[test]
fn requests_that_find_no_connection_are_no_sign_that_connections_carry_several() {
    let mut server = InHand::new(SECOND);
    let mut bound = None;
    for second in 1..=5 {
        let full = InHandPeriod {
            sent: 200.0,
            accepts: 50.0,
            drops: 150.0,
            places: Some(32.0),
            ..period(exact(50.0), 150.0 * f64::from(second), 32.0)
        };
        bound = server.observe(&full);
    }
    assert_eq!(bound, Some(29));
}

#[test]
fn a_bound_that_stands_is_not_given_up_while_connections_are_dropped() {
    let mut server = InHand::new(SECOND);
    let crowded = |sent, drops| InHandPeriod {
        sent,
        drops,
        accepts: 25.0,
        places: Some(32.0),
        ..period(exact(25.0), 20.0, 16.0)
    };
    server.observe(&crowded(25.0, 0.0));
    assert_eq!(server.observe(&crowded(25.0, 0.0)), Some(20));
    // Of a gateway that does not tell whose clients left.
    assert!((0..30).all(|_| server.observe(&crowded(60.0, 35.0)).is_some()));
    let calm = (0..20).map(|_| server.observe(&crowded(60.0, 0.0)));
    assert_eq!(calm.last(), Some(None), "connections carry several");
}

#[test]
fn drops_of_other_peoples_connections_hold_nobody_back() {
    let mut server = InHand::new(Seconds::new(0.25));
    let mut bounds = Vec::new();
    for second in 0..60 {
        let scanned = InHandPeriod {
            drops: if second % 4 == 0 { 100.0 } else { 0.0 },
            places: Some(64.0),
            ..period(exact(80.0), 9.0, 1.0)
        };
        bounds.extend(server.observe(&scanned));
    }
    assert!(bounds.iter().all(|most| *most >= 11), "{bounds:?}");
}

/// A server of so many workers and places, each request taking so long, under a load that fills whatever it is let; the share of its
/// workers that work, and the drops of the last half.
fn run(workers: f64, places: f64, service_s: f64, within_s: f64, told: f64) -> (f64, f64) {
    let mut server = InHand::new(Seconds::new(within_s));
    let capacity = workers / service_s;
    let (mut bound, mut work, mut drops) = (None::<u32>, 0.0, 0.0);
    let mut had = 0.0;
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
            places: Some(places),
            working: None,
            sent: rate + has - had,
            left: 0.0,
            gone: 0.0,
            in_flight: Some(has),
        });
        had = has;
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
        // A bound that was too large is found out by drops, of which a few come again as that is forgotten.
        prop_assert!(drops < f64::from(places + workers), "{drops} dropped");
    }
}
