//! What a server is given while clients' requests are in its queue that they left, and while its queue cannot be read.

use super::{InHand, InHandPeriod, InHandUnread};
use crate::capacity::Capacity;
use headroom_units::{PerSecond, Seconds};

const SECOND: Seconds = Seconds::new(1.0);

/// A server of 80 a second that works on eight, of whose queue clients left so many, within a second.
fn leaving(left: f64, waiting: f64) -> InHandPeriod {
    InHandPeriod {
        length: SECOND,
        capacity: Capacity::Exact(PerSecond::new(80.0)),
        accepts: 80.0,
        drops: 0.0,
        waiting: Some(waiting),
        places: Some(128.0),
        working: Some(8.0),
        sent: 80.0,
        left,
        gone: 0.0,
        in_flight: Some(64.0),
    }
}

const UNREAD: InHandUnread = InHandUnread {
    length: SECOND,
    sent: 40.0,
    left: 0.0,
    gone: 0.0,
    in_flight: Some(1.0),
};

/// One that is bounded, and whose clients did not leave yet.
fn bounded() -> InHand {
    let mut server = InHand::new(SECOND);
    server.observe(&leaving(0.0, 50.0));
    assert_eq!(server.observe(&leaving(0.0, 50.0)), Some(64));
    server
}

#[test]
fn behind_what_clients_left_it_has_work_for_the_rest_of_a_period() {
    // Fifty of those that wait were left, of eighty that it gets to: thirty more, and what it works on.
    assert_eq!(bounded().observe(&leaving(50.0, 60.0)), Some(38));
    // All that it gets to, and more: none would be answered.
    for left in [80.0, 100.0] {
        assert_eq!(bounded().observe(&leaving(left, 110.0)), Some(1), "{left}");
    }
    // Little is left there: as many as without.
    assert_eq!(bounded().observe(&leaving(20.0, 20.0)), Some(52));
    // A queue that no more waits in holds nothing that was left.
    assert_eq!(bounded().observe(&leaving(50.0, 4.0)), Some(52));
}

#[test]
fn clients_wait_for_less_in_each_period_in_which_they_leave_also_behind_what_they_left() {
    let mut server = bounded();
    // More is in the queue than it gets to, and each period somebody leaves.
    let held: Vec<_> = (0..10).map(|_| server.observe(&leaving(60.0, 120.0))).collect();
    assert!(held[2..].iter().all(|most| *most == Some(1)), "{held:?}");
    // The queue is empty: what is let in is about what it works on, not the most that it may have.
    assert_eq!(server.observe(&leaving(0.0, 0.0)), Some(9));
}

#[test]
fn clients_wait_for_no_less_where_nobody_left_in_the_period() {
    let mut server = bounded();
    assert_eq!(server.observe(&leaving(30.0, 50.0)), Some(52));
    // Many that left and were not counted yet, of periods in which the queue was not read.
    let left = InHandUnread { left: 40.0, ..UNREAD };
    server.unread(&left);
    let after: Vec<_> = (0..5).map(|_| server.observe(&leaving(0.0, 5.0))).collect();
    assert!(after[0] == Some(52) && after.is_sorted(), "{after:?}");
}

#[test]
fn one_at_a_time_ends_where_the_queue_cannot_be_read() {
    let mut server = bounded();
    assert_eq!(server.observe(&leaving(100.0, 110.0)), Some(1));
    // A moment without a reading, and then it is as without what was left there.
    assert_eq!(server.unread(&UNREAD), Some(1));
    assert_eq!(server.unread(&UNREAD), Some(52));
    // That clients left is forgotten in minutes, whether it is read or not.
    let later: Vec<_> = (0..100).map(|_| server.unread(&UNREAD)).collect();
    assert!(later.is_sorted() && later[99] == Some(64), "{later:?}");
    // So it is where the server is gone meanwhile, and joins again.
    assert_eq!(server.clone().rest(SECOND, None, None), Some(64));
    // It is read again: what was left there was accepted since, as the counts of all that time tell.
    let all = InHandPeriod {
        length: Seconds::new(102.0),
        accepts: 4_080.0,
        sent: 40.0,
        in_flight: Some(1.0),
        ..leaving(0.0, 2.0)
    };
    assert_eq!(server.observe(&all), Some(64));
}

#[test]
fn what_was_left_is_counted_on_while_the_queue_cannot_be_read() {
    // A hundred to be accepted until none of those is there that were left: 80 are, whether that is read or not.
    let after = |left: f64, accepts: f64, length_s: f64| {
        let mut server = bounded();
        server.observe(&leaving(90.0, 100.0));
        server.unread(&InHandUnread { left, ..UNREAD });
        server.observe(&InHandPeriod {
            length: Seconds::new(length_s),
            accepts,
            sent: 40.0,
            in_flight: Some(1.0),
            ..leaving(0.0, 60.0)
        })
    };
    // The counts of two seconds, in one of which 80 were taken to be accepted, and 10 more: 60 of those that wait were left.
    assert_eq!(after(0.0, 90.0, 2.0), Some(28));
    // The rest of it was accepted, too; by a count that begins anew as well.
    assert_eq!(after(0.0, 160.0, 2.0), Some(52));
    assert_eq!(after(0.0, 80.0, 1.0), Some(52));
    // Those that left while nothing was read are in it.
    assert_eq!(after(40.0, 160.0, 2.0), Some(48));
}

#[test]
fn requests_of_periods_without_a_reading_are_those_of_its_connections() {
    // Every second period is not read, and the count of the next covers it.
    let mut server = bounded();
    for _ in 0..30 {
        server.unread(&InHandUnread {
            sent: 80.0,
            in_flight: Some(64.0),
            ..UNREAD
        });
        let both = InHandPeriod {
            length: Seconds::new(2.0),
            accepts: 20.0,
            ..leaving(0.0, 50.0)
        };
        server.observe(&both);
    }
    // Its connections carry eight requests each.
    let one = InHandPeriod {
        accepts: 10.0,
        ..leaving(0.0, 50.0)
    };
    assert_eq!(server.observe(&one), None);
}

#[test]
fn a_bound_that_is_met_stays_while_somebody_waits_and_the_capacity_is_not_known() {
    for unknown in [Capacity::Unknown, Capacity::LowerBound(PerSecond::new(20.0))] {
        let mut server = bounded();
        let crowded = InHandPeriod {
            capacity: unknown,
            ..leaving(0.0, 90.0)
        };
        assert!((0..400).all(|_| server.observe(&crowded) == Some(64)));
        // One count in some is of a moment with one less.
        let fewer = InHandPeriod {
            in_flight: Some(60.0),
            sent: 76.0,
            ..crowded
        };
        assert!((0..5).all(|_| server.observe(&fewer) == Some(64)));
        // Fewer are let in where they leave.
        let leave = InHandPeriod {
            left: 40.0,
            ..crowded
        };
        assert_eq!(server.observe(&leave), Some(48));
        // Another is known.
        let known = InHandPeriod {
            capacity: Capacity::About(PerSecond::new(40.0)),
            ..leaving(0.0, 50.0)
        };
        server.observe(&known);
        assert_eq!(server.observe(&known), Some(26));
        // Nobody waits.
        let calm = InHandPeriod {
            waiting: Some(0.0),
            ..crowded
        };
        assert_eq!(server.observe(&calm), None);
    }
}
