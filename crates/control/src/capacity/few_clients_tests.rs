//! Clients of which there are too few of a kind to be set aside, and few connections.

use super::*;

/// Forty workers, of which clients that send nothing hold so many.
fn of_forty(silent: u64) -> impl Fn(u64) -> Connections {
    move |_| Connections {
        open: 40,
        silent,
        working: 40 - silent,
        longest_ms: 20,
        ..Connections::default()
    }
}

fn interval(estimate: &Estimate) -> [f64; 2] {
    estimate
        .interval
        .map_or([f64::NAN; 2], |sides| sides.map(PerSecond::get))
}

#[test]
fn of_few_clients_that_hold_workers_an_exact_estimate_reaches_to_what_all_workers_would_serve() {
    let last = |silent| Watched::new().sees(20, 37, of_forty(silent)).pop().unwrap();
    let [none, few] = [last(0), last(3)];
    assert_eq!(said(Some(&none)), ("exact", 1_850.0, "busy-time"));
    assert_eq!(said(Some(&few)), ("exact", 1_850.0, "busy-time"));
    let [[low, high], [low_of_few, high_of_few]] = [interval(&none), interval(&few)];
    assert!((low_of_few - low).abs() < 1e-9, "{none:?} {few:?}");
    assert!(
        (high_of_few - high * 40.0 / 37.0).abs() < 1e-6 && high_of_few > 2_000.0 && high < 2_000.0,
        "{none:?} {few:?}"
    );
}

#[test]
fn of_few_clients_that_leave_unanswered_an_exact_estimate_reaches_to_what_all_who_came_would_be() {
    let mut watched = Watched {
        unasked_by: 3,
        ..Watched::answering(37)
    };
    let last = watched.sees(20, 40, of_forty(0)).pop().unwrap();
    assert_eq!(said(Some(&last)), ("exact", 1_850.0, "busy-time"));
    let [low, high] = interval(&last);
    assert!(
        low < 1_850.0 && (2_000.0..2_100.0).contains(&high),
        "{low} {high}"
    );
}

#[test]
fn few_clients_of_several_kinds_hide_as_much_together_as_many_of_one() {
    // Workers that are held, and of those accepted the ones that leave: of the forty that all workers would serve in 20 ms.
    for (silent, left, rule) in [(3, 2, "held"), (3, 3, "cancelled"), (2, 3, "cancelled")] {
        let mut watched = Watched {
            unasked_by: left,
            ..Watched::answering(40 - silent - left)
        };
        let answers = watched.sees(40, 40 - silent, of_forty(silent));
        let served = (50 * (40 - silent - left)) as f64;
        for answer in &answers[3..] {
            assert_eq!(said(Some(answer)), ("about", served, rule), "{answer:?}");
            let [low, high] = interval(answer);
            assert!(low < served && (2_000.0..2_200.0).contains(&high), "{low} {high}");
        }
        // Some seconds after they have gone it is exact again.
        watched.unasked_by = 0;
        watched.answered_by = 40;
        let answers = watched.sees(20, 40, of_forty(0));
        assert_eq!(said(answers.last()).0, "exact", "{answers:?}");
    }
    // Two of forty and one of forty are few together, too.
    let mut watched = Watched {
        unasked_by: 1,
        ..Watched::answering(37)
    };
    let answers = watched.sees(20, 38, of_forty(2));
    assert_eq!(said(answers.last()), ("exact", 1_850.0, "busy-time"));
}

#[test]
fn requests_that_are_not_answered_for_long_are_doubted_until_the_next_ones_would_show() {
    let mut watched = Watched::new();
    // Half a second each by Little's law; a tenth take as long as their clients stay, 15 s, and others come then.
    let in_turn = |at_ms: u64| Connections {
        open: 100,
        working: 100,
        longest_ms: at_ms % 15_000,
        ..Connections::default()
    };
    let answers = watched.sees(60, 4, in_turn);
    for answer in &answers[12..] {
        assert_eq!(said(Some(answer)), ("about", 200.0, "unanswered"), "{answer:?}");
        assert!(interval(answer)[1] > 200.0 / 0.9, "{answer:?}");
    }
    let answers = watched.sees(20, 4, |_| Connections {
        longest_ms: 500,
        ..in_turn(0)
    });
    assert_eq!(said(answers.last()), ("exact", 200.0, "busy-time"));
}

#[test]
fn of_few_connections_one_that_is_silent_says_nothing_of_a_server_that_was_faster_before() {
    let mut watched = Watched::new();
    watched.sees(18, 8, EIGHT_WORK);
    let one_of_three = |_| Connections {
        open: 3,
        silent: 1,
        working: 2,
        ..Connections::default()
    };
    for answer in &watched.sees(20, 4, one_of_three)[1..] {
        assert_eq!(said(Some(answer)), ("about", 400.0, "held"), "{answer:?}");
    }
    // Five of forty cannot hold as much: the estimate is of now.
    let mut watched = Watched::new();
    watched.sees(18, 8, EIGHT_WORK);
    let last = watched.sees(20, 2, of_forty(5)).pop().unwrap();
    assert_eq!(said(Some(&last)), ("about", 114.0, "held"));
    let [low, high] = interval(&last);
    assert!(
        (90.0..=100.0).contains(&low) && (130.0..200.0).contains(&high),
        "{low} {high}"
    );
    assert!(last.age.is_some_and(|age| age.get() < 1.0), "{last:?}");
}
