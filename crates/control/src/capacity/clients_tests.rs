use super::super::{BusyTimeMonitor, Estimate, QueueTuning};
use super::*;
use headroom_units::Seconds;

#[path = "few_clients_tests.rs"]
mod few;

/// An estimator that is told of connections, and of so many accepts in each 20 ms with 60 waiting.
struct Watched {
    monitor: BusyTimeMonitor,
    accepts: u64,
    /// Of these, and of those in each step, the ones that ask for nothing.
    unasked: u64,
    unasked_by: u64,
    /// The same of those that are answered; `None` where nobody counts them.
    answered: Option<u64>,
    answered_by: u64,
}

impl Watched {
    fn new() -> Self {
        Self {
            monitor: BusyTimeMonitor::new(QueueTuning::default()).unwrap(),
            accepts: 0,
            unasked: 0,
            unasked_by: 0,
            answered: None,
            answered_by: 0,
        }
    }

    /// One of whose accepts as many are answered.
    fn answering(by: u64) -> Self {
        Self {
            answered: Some(0),
            answered_by: by,
            ..Self::new()
        }
    }

    /// For so many seconds; the answer of each, and the last.
    fn sees(&mut self, seconds: u64, by: u64, connections: impl Fn(u64) -> Connections) -> Vec<Estimate> {
        self.sees_waiting(60, seconds, by, connections)
    }

    /// The same with so many waiting.
    fn sees_waiting(
        &mut self,
        waiting: u32,
        seconds: u64,
        by: u64,
        connections: impl Fn(u64) -> Connections,
    ) -> Vec<Estimate> {
        let mut answers = Vec::new();
        for at in 0..seconds * 50 {
            self.accepts += by;
            self.unasked += self.unasked_by;
            self.answered = self.answered.map(|answered| answered + self.answered_by);
            let listener = Listener {
                identity: 1,
                limit: Some(65),
                length: Some(waiting),
                shortest: Some(waiting),
                lengths_seen: None,
                arrivals: Some(u64::from(waiting) + self.accepts),
                accepts: Some(self.accepts),
                drops: Some(0),
                unasked: Some(self.unasked),
                answered: self.answered,
                connections: Some(connections(at * 20)),
                loops_busy: None,
            };
            let answer = self.monitor.observe(&QueueObservation {
                length: Seconds::new(0.02),
                sample: ListenerSample::Listening(listener),
            });
            if at % 50 == 49 {
                answers.push(answer);
            }
        }
        answers
    }
}

/// What is said, the number and the rule.
fn said(estimate: Option<&Estimate>) -> (&str, f64, &str) {
    estimate.map_or(("", f64::NAN, ""), |one| {
        let value = one.capacity.value().map_or(f64::NAN, PerSecond::get);
        (one.capacity.name(), value.round(), one.reason.rule.as_ref())
    })
}

const EIGHT_WORK: fn(u64) -> Connections = |_| Connections {
    open: 108,
    working: 8,
    longest_ms: 20,
    ..Connections::default()
};

#[test]
fn what_others_leave_of_a_servers_workers_is_not_learned_as_what_it_takes() {
    let mut watched = Watched::new();
    let alone = |_| Connections {
        open: 20,
        working: 20,
        ..Connections::default()
    };
    let value = |one: &Estimate| one.capacity.value().map_or(0.0, PerSecond::get);
    let before = watched.sees(30, 2, alone).pop().unwrap();
    assert_eq!((before.capacity.name(), value(&before).round()), ("exact", 100.0));
    // Clients at another port of the same processes have half of what they can.
    let beside = |at| Connections {
        elsewhere: 60,
        ..alone(at)
    };
    for one in watched.sees(20, 1, beside).split_off(1) {
        assert!(one.capacity.name() == "about" && value(&one) > 90.0, "{one:?}");
    }
    let after = watched.sees_waiting(0, 20, 1, alone).pop().unwrap();
    assert!(
        after.capacity.name() == "about" && value(&after) > 90.0,
        "{after:?}"
    );
}

#[test]
fn clients_that_send_piece_by_piece_hide_a_server_which_is_kept_as_it_was_before_they_began() {
    for parked in [0, 100] {
        let mut watched = Watched::new();
        let answers = watched.sees(20, 8, EIGHT_WORK);
        assert_eq!(said(answers.last()), ("exact", 400.0, "busy-time"));
        // Half of its workers: for three seconds nothing tells them from those that work.
        let answers = watched.sees(20, 4, |at_ms| Connections {
            open: 8 + parked,
            slow: if at_ms < 3_000 { 0 } else { 4 },
            working: if at_ms < 3_000 { 8 } else { 4 },
            longest_ms: at_ms,
            ..Connections::default()
        });
        for (second, answer) in answers.iter().enumerate().skip(3) {
            assert_eq!(
                said(Some(answer)),
                ("about", 400.0, "held"),
                "{second} s: {answer:?}"
            );
        }
        // They have gone, and it is as before.
        let answers = watched.sees(5, 8, EIGHT_WORK);
        assert_eq!(said(answers.last()), ("exact", 400.0, "busy-time"));
    }
}

#[test]
fn parked_connections_hide_no_client_that_sends_nothing() {
    let mut watched = Watched::new();
    watched.sees(20, 8, EIGHT_WORK);
    let answers = watched.sees(10, 4, |at_ms| Connections {
        open: 108,
        silent: 4,
        working: 4,
        longest_ms: at_ms,
        ..Connections::default()
    });
    assert_eq!(said(answers.last()), ("about", 400.0, "held"));
}

#[test]
fn requests_that_take_far_longer_than_most_make_an_estimate_doubtful_and_nothing_is_set_aside() {
    let mut watched = Watched::new();
    watched.sees(20, 8, EIGHT_WORK);
    let half_hang = |at_ms| Connections {
        open: 8,
        working: 8,
        longest_ms: at_ms,
        ..Connections::default()
    };
    let answers = watched.sees(10, 4, half_hang);
    for (second, answer) in answers.iter().enumerate() {
        let (kind, value, rule) = said(Some(answer));
        let is_right = kind == "exact" && value == 400.0;
        assert!(
            kind == "about" || is_right && second < 2,
            "{second} s: {answer:?}"
        );
        let is_near = (value / 200.0 - 1.0).abs() < 0.02;
        assert!(second < 4 || is_near && rule == "unanswered", "{answer:?}");
    }
    // Where all requests take as long, it is none.
    let mut slow = Watched::new();
    let answers = slow.sees(60, 1, |at_ms| Connections {
        open: 200,
        working: 200,
        longest_ms: at_ms.min(4_000),
        ..Connections::default()
    });
    assert!(
        answers.iter().all(|answer| said(Some(answer)).2 != "unanswered"),
        "{answers:?}"
    );
}

#[test]
fn connections_that_clients_have_closed_without_asking_are_no_requests() {
    let mut watched = Watched::new();
    let answers = watched.sees(20, 8, |_| Connections {
        gone: 30,
        ..EIGHT_WORK(0)
    });
    assert_eq!(said(answers.last()), ("about", 200.0, "gone"));
}

#[test]
fn who_sends_something_and_closes_may_have_asked_for_nothing_whole() {
    let mut watched = Watched::new();
    let answers = watched.sees(20, 8, |_| Connections {
        cancelled: 20,
        ..EIGHT_WORK(0)
    });
    assert_eq!(said(answers.last()), ("about", 400.0, "cancelled"));
    // None has for as long as an estimate stays fresh.
    let answers = watched.sees(11, 8, EIGHT_WORK);
    assert_eq!(said(answers.last()), ("exact", 400.0, "busy-time"));
    let answers = watched.sees(5, 8, |_| Connections {
        cancelled: 5,
        ..EIGHT_WORK(0)
    });
    assert_eq!(
        said(answers.last()),
        ("exact", 400.0, "busy-time"),
        "one in twelve"
    );
    // It seems to take more than it did; that it takes less is seen.
    let answers = watched.sees(20, 12, |_| Connections {
        cancelled: 20,
        ..EIGHT_WORK(0)
    });
    for answer in &answers[2..] {
        let (kind, value, rule) = said(Some(answer));
        assert!(
            kind == "about" && value <= 400.0 && rule == "cancelled",
            "{answer:?}"
        );
        let [low, high] = answer.interval.unwrap();
        assert!(low.get() <= value && value <= high.get(), "{answer:?}");
    }
    // So it stays while others ask for nothing at times.
    let answers = watched.sees(20, 12, |at_ms| Connections {
        cancelled: 20,
        gone: if at_ms / 3_000 % 2 == 0 { 20 } else { 0 },
        ..EIGHT_WORK(0)
    });
    for answer in &answers {
        let (kind, value, _) = said(Some(answer));
        assert!(kind == "about" && value <= 400.0, "{answer:?}");
    }
    let answers = watched.sees(20, 4, |_| Connections {
        cancelled: 20,
        ..EIGHT_WORK(0)
    });
    assert_eq!(said(answers.last()), ("about", 200.0, "cancelled"));
}

#[test]
fn a_check_that_connects_and_closes_is_no_client_that_has_gone() {
    let mut watched = Watched::new();
    let answers = watched.sees_waiting(8, 20, 4, |at_ms| Connections {
        gone: 1 + at_ms / 200 % 2,
        ..EIGHT_WORK(0)
    });
    assert_eq!(said(answers.last()), ("exact", 200.0, "busy-time"));
    let answers = watched.sees_waiting(8, 20, 4, |_| Connections {
        gone: 4,
        ..EIGHT_WORK(0)
    });
    assert_eq!(said(answers.last()).2, "gone");
}

#[test]
fn connections_that_ask_for_nothing_are_not_what_a_server_serves_at_least() {
    // 100 a second are requests, and nobody waits.
    let mut watched = Watched {
        unasked_by: 4,
        ..Watched::new()
    };
    let answers = watched.sees_waiting(0, 60, 6, |_| Connections::default());
    let (kind, value, _) = said(answers.last());
    assert_eq!(kind, "lower-bound");
    assert!((70.0..=100.0).contains(&value), "{value}");
}

#[test]
fn what_is_gone_back_to_is_older_than_the_time_for_which_they_were_held() {
    let mut clients = Clients::default();
    let observation = |connections| QueueObservation {
        length: Seconds::new(0.02),
        sample: ListenerSample::Listening(Listener {
            identity: 1,
            limit: Some(65),
            length: Some(60),
            shortest: Some(60),
            lengths_seen: None,
            arrivals: None,
            accepts: None,
            drops: None,
            unasked: None,
            answered: None,
            connections: Some(connections),
            loops_busy: None,
        }),
    };
    let held = Connections {
        open: 8,
        slow: 4,
        working: 4,
        longest_ms: 3_000,
        ..Connections::default()
    };
    for at in 0..20 {
        clients.keep(f64::from(at), &Evidence::default(), PerSecond::ZERO, 5.0);
    }
    assert!(
        clients
            .take(20.0, &observation(held), &Answers::default())
            .is_some()
    );
    assert!(
        clients
            .take(20.5, &observation(held), &Answers::default())
            .is_none(),
        "it is held already"
    );
    assert!(clients.kept.iter().all(|(at_s, _)| *at_s <= 16.0));
}

#[test]
fn parts_of_requests_are_no_service_where_answers_are_counted_however_few_wait() {
    let mut watched = Watched::answering(4);
    let answers = watched.sees_waiting(6, 20, 4, EIGHT_WORK);
    assert_eq!(said(answers.last()), ("exact", 200.0, "busy-time"));
    // 100/s more send a part and reset: of those who wait two at a time, or none at a time, have.
    watched.unasked_by = 2;
    let few = |at_ms: u64| Connections {
        cancelled: at_ms / 500 % 3,
        ..EIGHT_WORK(0)
    };
    let answers = watched.sees_waiting(6, 20, 6, few);
    for (second, answer) in answers.iter().enumerate() {
        let (kind, value, _) = said(Some(answer));
        assert!((value / 200.0 - 1.0).abs() < 0.05, "{answer:?}");
        assert!(kind == "about" || second < 4, "{second} s: {answer:?}");
    }
    // It may have worked for those who left.
    let [low, high] = answers.last().and_then(|answer| answer.interval).unwrap();
    assert!(
        low.get() < 200.0 && (295.0..330.0).contains(&high.get()),
        "{low:?} {high:?}"
    );
    // It becomes slower and faster meanwhile.
    for by in [2, 8] {
        watched.answered_by = by;
        let answers = watched.sees_waiting(40, 12, by + 2, few);
        for answer in &answers[5..] {
            let (kind, value, _) = said(Some(answer));
            let truth = 50.0 * by as f64;
            assert!(
                kind == "about" && (value / truth - 1.0).abs() < 0.05,
                "{answer:?}"
            );
        }
    }
}

#[test]
fn connections_that_are_kept_open_after_the_answer_are_counted_as_they_are_accepted_and_make_nothing_exact() {
    let mut watched = Watched::answering(8);
    let answers = watched.sees(20, 8, EIGHT_WORK);
    assert_eq!(said(answers.last()), ("exact", 400.0, "busy-time"));
    // For good, all of them or a third.
    for by in [0, 5] {
        watched.answered_by = by;
        let answers = watched.sees(20, 8, EIGHT_WORK);
        for answer in &answers[12..] {
            assert_eq!(said(Some(answer)), ("about", 400.0, "kept-open"), "{answer:?}");
        }
        // For a second, in which few of all are missing yet, it seems to have changed.
        assert!(
            answers[2..]
                .iter()
                .all(|answer| (said(Some(answer)).1 / 400.0 - 1.0).abs() < 0.1),
            "{answers:?}"
        );
    }
    // They close at once.
    watched.answered_by = 50;
    let answers = watched.sees(2, 8, EIGHT_WORK);
    assert!((said(answers.last()).1 / 400.0 - 1.0).abs() < 0.1, "{answers:?}");
}

#[test]
fn more_than_before_served_while_clients_hold_workers_is_what_it_serves_at_least() {
    let mut watched = Watched::answering(8);
    let answers = watched.sees(20, 8, EIGHT_WORK);
    assert_eq!(said(answers.last()), ("exact", 400.0, "busy-time"));
    watched.answered_by = 19;
    let three_hold = |_| Connections {
        open: 108,
        silent: 3,
        working: 5,
        longest_ms: 3_000,
        ..Connections::default()
    };
    let answers = watched.sees(20, 19, three_hold);
    assert_eq!(said(answers.last()), ("about", 950.0, "held"));
    let [low, high] = answers.last().and_then(|answer| answer.interval).unwrap();
    let all = 950.0 * 8.0 / 5.0;
    assert!(
        low.get() > 850.0 && (all..all * 1.1).contains(&high.get()),
        "{low:?} {high:?}"
    );
}

#[test]
fn a_regular_server_whose_requests_take_long_is_exact_after_some_of_them() {
    let mut watched = Watched::new();
    // 1.2 s each.
    let answers = watched.sees(40, 1, |_| Connections {
        open: 60,
        working: 60,
        ..Connections::default()
    });
    for answer in &answers[15..] {
        assert_eq!(said(Some(answer)), ("exact", 50.0, "busy-time"), "{answer:?}");
    }
}
