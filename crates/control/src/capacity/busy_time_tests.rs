use super::*;
use crate::capacity::{Connections, Listener, ListenerSample, QueueMonitor};

fn monitor() -> BusyTimeMonitor {
    BusyTimeMonitor::new(QueueTuning::default()).unwrap()
}

/// A second in which so many arrived, were accepted and dropped, and somebody waited for so long while so many were
/// accepted.
fn step(arrivals: f64, accepts: f64, drops: f64, busy: (f64, f64)) -> Step {
    Step {
        length: Seconds::new(1.0),
        limit: 64.0,
        queue_mean: Some(10.0),
        arrivals,
        accepts,
        drops,
        unasked: None,
        busy: Some(Busy {
            time: Seconds::new(busy.0),
            accepts: busy.1,
            spells: 0.0,
        }),
    }
}

fn rule(estimate: &Estimate) -> &str {
    estimate.reason.rule.as_ref()
}

fn per_s(estimate: &Estimate) -> f64 {
    estimate.capacity.value().map_or(f64::NAN, PerSecond::get)
}

#[test]
fn a_burst_within_a_step_says_what_the_server_can_do_and_not_what_came() {
    let (mut ours, mut published) = (monitor(), QueueMonitor::new(QueueTuning::default()).unwrap());
    for _ in 0..20 {
        ours.step(&step(50.0, 50.0, 0.0, (0.0, 0.0)));
        published.step(&step(50.0, 50.0, 0.0, (0.0, 0.0)));
    }
    // 200 at once: 64 wait, a tenth is dropped, and what was accepted took the server a fifth of a second at 600/s.
    let burst = step(200.0, 180.0, 20.0, (0.2, 120.0));
    assert_eq!(
        published.step(&burst).capacity,
        Capacity::Exact(PerSecond::new(180.0))
    );
    // One of them is too little to tell, and twelve are enough to be sure.
    let mut estimate = ours.step(&burst);
    assert_eq!(rule(&estimate), "served");
    for _ in 0..12 {
        (0..3).for_each(|_| drop(ours.step(&step(50.0, 50.0, 0.0, (0.0, 0.0)))));
        estimate = ours.step(&burst);
    }
    assert_eq!(
        (rule(&estimate), estimate.capacity.name()),
        ("busy-time", "exact")
    );
    assert!((per_s(&estimate) - 600.0).abs() < 1e-9, "{estimate:?}");
    let [low, high] = estimate.interval.unwrap().map(PerSecond::get);
    assert!(
        510.0 < low && low < 600.0 && 600.0 < high && high < 690.0,
        "{estimate:?}"
    );
    // In the quiet after it nothing speaks against it, and soon nothing for it either.
    for second in 1..=60 {
        estimate = ours.step(&step(50.0, 50.0, 0.0, (0.0, 0.0)));
        assert_eq!(estimate.age, Some(Seconds::new(f64::from(second))));
    }
    assert_eq!((rule(&estimate), estimate.capacity.name()), ("stale", "about"));
    assert!((per_s(&estimate) - 600.0).abs() < 1e-9);
    // And in the end it is forgotten.
    for _ in 60..3_702 {
        estimate = ours.step(&step(50.0, 50.0, 0.0, (0.0, 0.0)));
    }
    assert!(
        matches!(estimate.capacity, Capacity::LowerBound(bound) if bound.get() < 50.0),
        "{estimate:?}"
    );
}

#[test]
fn before_enough_waited_it_is_a_lower_bound_of_what_was_served_and_never_of_what_came() {
    let mut monitor = monitor();
    let idle = Step {
        queue_mean: Some(0.0),
        ..step(0.0, 0.0, 0.0, (0.0, 0.0))
    };
    assert_eq!(rule(&monitor.step(&idle)), "no-request-yet");
    let mut last = Estimate::unknown("first-sample", String::new());
    for _ in 0..200 {
        last = monitor.step(&step(100.0, 100.0, 0.0, (0.0, 0.0)));
    }
    assert_eq!((rule(&last), last.capacity.name()), ("served", "lower-bound"));
    // Three standard errors of a Poisson count of 3,000 in thirty seconds: 3 * 54.8 / 30.
    assert!(
        (per_s(&last) - (100.0 - 3.0 * 3_000f64.sqrt() / 30.0)).abs() < 0.01,
        "{last:?}"
    );
    // 500 come and 102 are served: it moves with what is served.
    let last = monitor.step(&step(500.0, 102.0, 0.0, (0.01, 3.0)));
    assert!((94.53..=94.62).contains(&per_s(&last)), "{last:?}");
}

/// An estimator of a server that has served as fast as it can for two minutes.
fn of_six_hundred() -> BusyTimeMonitor {
    let mut monitor = monitor();
    for _ in 0..120 {
        monitor.step(&step(620.0, 600.0, 20.0, (1.0, 600.0)));
    }
    monitor
}

#[test]
fn it_follows_a_server_that_slows_down_and_one_that_is_served_faster_without_waiting() {
    let mut monitor = of_six_hundred();
    let mut last = monitor.step(&step(620.0, 590.0, 10.0, (1.0, 590.0)));
    assert!((590.0..=600.0).contains(&per_s(&last)), "{last:?}");
    for _ in 0..60 {
        last = monitor.step(&step(320.0, 300.0, 20.0, (1.0, 300.0)));
    }
    assert!((per_s(&last) - 300.0).abs() < 3.0, "{last:?}");
    let mut rules = Vec::new();
    for _ in 0..60 {
        last = monitor.step(&step(500.0, 500.0, 0.0, (0.0, 0.0)));
        rules.push(rule(&last).to_owned());
    }
    assert!(rules.contains(&"faster".to_owned()), "{rules:?}");
    // What it could serve if more came nobody has seen.
    assert_eq!(last.capacity.name(), "lower-bound");
    assert!((480.0..=500.0).contains(&per_s(&last)), "{last:?}");
}

#[test]
fn a_change_is_found_within_seconds_and_what_was_before_is_forgotten() {
    for (before, since) in [(80.0, 40.0), (40.0, 80.0)] {
        let mut monitor = monitor();
        let mut last = monitor.step(&step(100.0, before, 0.0, (1.0, before)));
        (0..30).for_each(|_| last = monitor.step(&step(100.0, before, 0.0, (1.0, before))));
        assert_eq!((last.capacity.name(), per_s(&last)), ("exact", before));
        let mut rules = Vec::new();
        for second in 1..=8 {
            last = monitor.step(&step(100.0, since, 0.0, (1.0, since)));
            rules.push(rule(&last).to_owned());
            let is_exact = last.capacity.name() == "exact";
            let off = (per_s(&last) / since - 1.0).abs();
            assert!(!(is_exact && off > 0.15) || second <= 2, "{second} s: {last:?}");
        }
        assert!(rules.contains(&"changed".to_owned()), "{rules:?}");
        assert_eq!((last.capacity.name(), per_s(&last)), ("exact", since));
    }
}

#[test]
fn of_a_queue_too_short_for_anybody_to_be_seen_waiting_only_what_was_served_is_known() {
    let mut monitor = monitor();
    let mut last = Estimate::unknown("first-sample", String::new());
    // Two places, always full, 400/s accepted and a third dropped, sampled fifty times a second.
    for at in 0..=2_000u64 {
        last = monitor.observe(&QueueObservation {
            length: Seconds::new(0.02),
            sample: ListenerSample::Listening(Listener {
                identity: 1,
                limit: Some(2),
                length: Some(2),
                shortest: Some(2),
                lengths_seen: None,
                arrivals: Some(2 + at * 12),
                accepts: Some(at * 8),
                drops: Some(at * 4),
                unasked: None,
                answered: None,
                connections: None,
                loops_busy: None,
            }),
        });
        assert!(!matches!(last.capacity, Capacity::Exact(_)), "{last:?}");
        assert!(
            last.capacity.value().is_none_or(|value| value.get() <= 400.0),
            "{last:?}"
        );
    }
    assert_eq!(
        (rule(&last), last.capacity.name()),
        ("queue-too-short", "lower-bound")
    );
    assert!(per_s(&last) > 370.0, "{last:?}");
}

fn seen(identity: u64, length: u32, arrivals: u64, accepts: u64) -> QueueObservation {
    QueueObservation {
        length: Seconds::new(0.02),
        sample: ListenerSample::Listening(Listener {
            identity,
            limit: Some(65),
            length: Some(length),
            shortest: Some(length),
            lengths_seen: None,
            arrivals: Some(arrivals),
            accepts: Some(accepts),
            drops: Some(0),
            unasked: None,
            answered: None,
            connections: None,
            loops_busy: None,
        }),
    }
}

#[test]
fn observations_at_any_rate_answer_once_a_period_and_another_socket_is_another_server() {
    let mut monitor = monitor();
    let mut answers = Vec::new();
    // A queue of 50 that never empties, at 500/s.
    for at in 0..=200u64 {
        answers.push(monitor.observe(&seen(1, 50, 50 + at * 10, at * 10)));
    }
    assert_eq!(rule(&answers[0]), "first-sample");
    let Some(last) = answers.last() else {
        unreachable!()
    };
    assert_eq!((rule(last), last.capacity.name()), ("busy-time", "exact"));
    assert!((per_s(last) - 500.0).abs() < 1e-6, "{last:?}");
    let changes = answers.windows(2).filter(|two| two[0] != two[1]).count();
    assert!(changes <= 4, "{changes} changes in 4 s");
    // Another socket: nothing of the old one holds, and nothing comes from the difference of their counters.
    let mut after = Vec::new();
    for at in 0..=100u64 {
        after.push(monitor.observe(&seen(2, 0, at, at)));
    }
    assert!(after.iter().any(|one| rule(one) == "another-listener"));
    let Some(last) = after.last() else { unreachable!() };
    assert!(
        matches!(last.capacity, Capacity::LowerBound(bound) if bound.get() <= 50.0),
        "{last:?}"
    );
}

#[test]
fn nobody_listening_is_no_estimate_and_what_cannot_be_read_is_held_for_a_while() {
    let mut monitor = of_six_hundred();
    let second = |sample| QueueObservation {
        length: Seconds::new(1.0),
        sample,
    };
    for _ in 0..10 {
        let estimate = monitor.observe(&second(ListenerSample::Unread));
        assert_eq!((rule(&estimate), per_s(&estimate)), ("without-reading", 600.0));
        let [low, high] = estimate.interval.unwrap().map(PerSecond::get);
        assert!(low < 600.0 && 600.0 < high, "{estimate:?}");
    }
    assert_eq!(
        monitor.observe(&second(ListenerSample::Unread)).capacity,
        Capacity::Unknown
    );
    let mut monitor = of_six_hundred();
    let estimate = monitor.observe(&second(ListenerSample::Nobody));
    assert_eq!(
        (rule(&estimate), estimate.capacity),
        ("nobody-listens", Capacity::Unknown)
    );
    let mut monitor = of_six_hundred();
    let no_time = QueueObservation {
        length: Seconds::ZERO,
        sample: ListenerSample::Unread,
    };
    assert_eq!(rule(&monitor.observe(&no_time)), "bad-length");
    let without = Step {
        unasked: None,
        busy: None,
        ..step(1.0, 1.0, 0.0, (0.0, 0.0))
    };
    assert!(monitor.step(&without).reason.text.contains("somebody waited"));
}

#[test]
fn nothing_is_exact_from_the_first_reading_on_that_fails_and_it_ages() {
    let mut monitor = monitor();
    let mut last = monitor.observe(&seen(1, 60, 60, 0));
    for at in 1..500u64 {
        last = monitor.observe(&seen(1, 60, 60 + at * 8, at * 8));
    }
    assert_eq!((last.capacity.name(), rule(&last)), ("exact", "busy-time"));
    let unread = QueueObservation {
        length: Seconds::new(1.0),
        sample: ListenerSample::Unread,
    };
    for second in 1..=3 {
        let kept = monitor.observe(&unread);
        assert_eq!((kept.capacity.name(), rule(&kept)), ("about", "without-reading"));
        assert!((per_s(&kept) - 400.0).abs() < 1.0, "{kept:?}");
        let age = kept.age.map(Seconds::get).unwrap();
        assert!(
            (age - f64::from(second)).abs() < 0.1 && kept.interval.is_some(),
            "{kept:?}"
        );
    }
}

#[test]
fn somebody_waits_and_none_is_accepted_is_no_request_that_has_not_come() {
    let mut monitor = monitor();
    let at = |accepts, open| {
        let QueueObservation { length, sample } = seen(1, 12, 12 + accepts, accepts);
        let ListenerSample::Listening(listener) = sample else {
            unreachable!()
        };
        let connections = Some(Connections {
            open,
            working: open,
            ..Connections::default()
        });
        let sample = ListenerSample::Listening(Listener {
            unasked: None,
            answered: None,
            connections,
            ..listener
        });
        QueueObservation { length, sample }
    };
    // Four workers, each of which keeps its client's connection: before a count is there, and after four more were accepted.
    let mut last = Estimate::unknown("first-sample", String::new());
    (0..560).for_each(|_| last = monitor.observe(&at(0, 4)));
    assert_eq!((rule(&last), last.capacity), ("none-accepted", Capacity::Unknown));
    let said =
        "12 wait, none accepted for 10 s: the 4 that it has accepted are kept open; this counts connections";
    assert!(last.reason.text.starts_with(said), "{}", last.reason.text);
    (0..50).for_each(|_| last = monitor.observe(&at(4, 4)));
    (0..500).for_each(|_| last = monitor.observe(&at(4, 4)));
    assert_eq!((rule(&last), last.capacity.name()), ("none-accepted", "unknown"));
    assert!(
        last.reason.text.starts_with("12 wait, none accepted for "),
        "{last:?}"
    );
}

/// So many connections, of which so many clients have sent nothing.
fn of_clients(open: u64, silent: u64) -> Connections {
    Connections {
        open,
        silent,
        working: open - silent,
        ..Connections::default()
    }
}

#[test]
fn what_clients_that_send_nothing_leave_of_a_server_is_no_capacity() {
    let mut monitor = monitor();
    let mut accepts = 0;
    let mut last = Estimate::unknown("first-sample", String::new());
    let mut observe = |silent, by: u64| {
        accepts += by;
        let QueueObservation { length, sample } = seen(1, 60, 60 + accepts, accepts);
        let ListenerSample::Listening(listener) = sample else {
            unreachable!()
        };
        let listener = Listener {
            connections: Some(of_clients(8, silent)),
            ..listener
        };
        let sample = ListenerSample::Listening(listener);
        monitor.observe(&QueueObservation { length, sample })
    };
    // 400/s for 10 s, and then 200/s with half of its workers held for as long.
    (0..500).for_each(|_| last = observe(0, 8));
    assert_eq!((last.capacity.name(), rule(&last)), ("exact", "busy-time"));
    (0..500).for_each(|at| {
        last = observe(4, 4);
        // From the first answer on that knows of them.
        assert!(at < 50 || last.capacity.name() == "about", "{at}: {last:?}");
    });
    assert_eq!((last.capacity.name(), rule(&last)), ("about", "held"), "{last:?}");
    assert!((per_s(&last) - 400.0).abs() < 1.0, "{last:?}");
    // Where nothing else is known of it, it is in difficulty all the same: who starts servers is to know.
    let mut first = self::monitor();
    let mut alone = Estimate::unknown("first-sample", String::new());
    for at in 0..500u64 {
        let QueueObservation { length, sample } = seen(1, 60, 60 + at * 4, at * 4);
        let ListenerSample::Listening(listener) = sample else {
            unreachable!()
        };
        let connections = Some(of_clients(8, 4));
        let sample = ListenerSample::Listening(Listener {
            unasked: None,
            answered: None,
            connections,
            ..listener
        });
        alone = first.observe(&QueueObservation { length, sample });
    }
    assert_eq!(
        (alone.capacity.name(), rule(&alone)),
        ("about", "held"),
        "{alone:?}"
    );
    assert!(
        (per_s(&alone) - 200.0).abs() < 5.0 && alone.interval.is_some(),
        "{alone:?}"
    );
    // One client of five holds no half of a server: it has become slower, and is not kept for what it was.
    let mut slower = self::monitor();
    let mut accepts = 0;
    for at in 0..1_500u64 {
        let (open, silent, by) = if at < 500 { (8, 0, 8) } else { (5, 1, 4) };
        accepts += by;
        let QueueObservation { length, sample } = seen(1, 60, 60 + accepts, accepts);
        let ListenerSample::Listening(listener) = sample else {
            unreachable!()
        };
        let connections = Some(of_clients(open, silent));
        let sample = ListenerSample::Listening(Listener {
            unasked: None,
            answered: None,
            connections,
            ..listener
        });
        alone = slower.observe(&QueueObservation { length, sample });
    }
    assert_eq!(
        (alone.capacity.name(), rule(&alone)),
        ("about", "held"),
        "{alone:?}"
    );
    assert!((per_s(&alone) - 250.0).abs() < 10.0, "{alone:?}");
    // When they are gone and it is still as slow, it is.
    (0..500).for_each(|_| last = observe(0, 4));
    assert_eq!(last.capacity.name(), "exact", "{last:?}");
    assert!((per_s(&last) - 200.0).abs() < 5.0, "{last:?}");
}

#[test]
fn a_capacity_that_is_held_ages_and_keeps_its_interval() {
    let mut monitor = monitor();
    let mut last = Estimate::unknown("first-sample", String::new());
    (0..500u64).for_each(|at| last = monitor.observe(&seen(1, 60, 60 + at * 8, at * 8)));
    let interval = last.interval;
    assert!(last.capacity.name() == "exact" && interval.is_some(), "{last:?}");
    let unread = QueueObservation {
        length: Seconds::new(1.0),
        sample: ListenerSample::Unread,
    };
    for second in 1..=9 {
        last = monitor.observe(&unread);
        let age_s = last.age.map_or(f64::NAN, Seconds::get);
        assert!((age_s - f64::from(second)).abs() < 0.1, "{second} s: {last:?}");
        assert!(
            last.interval.is_some() && rule(&last) == "without-reading",
            "{last:?}"
        );
    }
    assert_eq!(last.capacity.name(), "about", "{last:?}");
}
