use super::super::{BusyTimeMonitor, Estimate, ListenerSample, QueueObservation, QueueTuning};
use super::*;
use proptest::prelude::*;

/// A server that accepts at once, and what is said of it at the end of each second.
struct Watched {
    monitor: BusyTimeMonitor,
    identity: u64,
    answered: u64,
    accepts: u64,
    connections: Option<Connections>,
    /// How many of those accepted in a second end without an answer.
    unasked: Option<u64>,
    ended: u64,
    said: Vec<Estimate>,
}

/// Inside, each for one request.
const MANY: Connections = Connections {
    open: 20,
    silent: 0,
    slow: 0,
    working: 20,
    longest_ms: 0,
    gone: 0,
    cancelled: 0,
    kept: 0,
    elsewhere: 0,
};

impl Watched {
    fn new() -> Self {
        Self {
            monitor: BusyTimeMonitor::new(QueueTuning::default()).unwrap(),
            identity: 1,
            answered: 0,
            accepts: 0,
            connections: Some(MANY),
            unasked: None,
            ended: 0,
            said: Vec::new(),
        }
    }

    /// For each of these seconds so many are answered, and so many accepted.
    fn sees(&mut self, loops_busy: Option<u32>, accepted: u64, answered: &[u64]) -> &Estimate {
        for of_second in answered {
            for at in 1..=10 {
                let part = |count: u64| count * at / 10 - count * (at - 1) / 10;
                self.answered += part(*of_second);
                self.accepts += part(accepted);
                self.ended += part(self.unasked.unwrap_or(0));
                let estimate = self.monitor.observe(&QueueObservation {
                    length: Seconds::new(0.1),
                    sample: ListenerSample::Listening(Listener {
                        identity: self.identity,
                        limit: Some(128),
                        length: Some(0),
                        shortest: Some(0),
                        lengths_seen: None,
                        arrivals: Some(self.accepts),
                        accepts: Some(self.accepts),
                        drops: Some(0),
                        unasked: self.unasked.map(|_| self.ended),
                        answered: Some(self.answered),
                        connections: self.connections,
                        loops_busy,
                    }),
                });
                if at == 10 {
                    self.said.push(estimate);
                }
            }
        }
        self.said.last().unwrap()
    }
}

fn said(estimate: &Estimate) -> (&str, f64, &str) {
    let value = estimate.capacity.value().map_or(0.0, PerSecond::get);
    (estimate.capacity.name(), value.round(), &estimate.reason.rule)
}

#[test]
fn what_full_loops_answer_is_the_capacity_and_what_they_accept_is_not() {
    let mut watched = Watched::new();
    assert_eq!(
        watched.sees(Some(600), 70, &[70; 40]).capacity.name(),
        "lower-bound"
    );
    let full = watched
        .sees(Some(1_000), 180, &[120, 121, 119, 120, 120, 120])
        .clone();
    assert_eq!(said(&full), ("exact", 120.0, "loop-full"));
    assert!(full.reason.text.contains("for 6 s"), "{full:?}");
    let [low, high] = full.interval.unwrap();
    assert!(
        low.get() < 120.0 && high.get() > 120.0 && high.get() < 130.0,
        "{full:?}"
    );
    // A burst that they work off within two seconds shows nothing.
    let mut short = Watched::new();
    short.sees(Some(600), 70, &[70; 40]);
    short.sees(Some(1_000), 90, &[90; 2]);
    assert_eq!(short.sees(Some(600), 70, &[70]).capacity.name(), "lower-bound");
}

#[test]
fn what_a_loop_serves_that_serves_other_ports_too_is_no_more_than_a_lower_bound() {
    let mut watched = Watched::new();
    watched.connections = Some(Connections {
        elsewhere: 30,
        ..MANY
    });
    for at in 0..20 {
        let one = watched.sees(Some(1_000), 40, &[40]).clone();
        let (kind, value, _) = said(&one);
        assert!(
            kind == "lower-bound" && value <= 40.0 || kind == "unknown",
            "{at}: {one:?}"
        );
    }
    let shared = watched.said.last().unwrap();
    assert_eq!(shared.reason.rule, "shared");
    assert!(
        shared
            .reason
            .text
            .starts_with("60 % of those that its processes work on"),
        "{shared:?}"
    );
    // They are alone again, and what they serve is theirs.
    watched.connections = Some(MANY);
    assert_eq!(
        said(watched.sees(Some(1_000), 95, &[90; 45])),
        ("exact", 90.0, "loop-full")
    );
    // What was known before others came is kept, and nothing of what they leave is learned, once that they came is known.
    watched.connections = Some(Connections {
        elsewhere: 30,
        ..MANY
    });
    let shared = watched.sees(Some(1_000), 40, &[40; 30]).clone();
    let (kind, value, rule) = said(&shared);
    assert!(
        kind == "about" && (85.0..=90.0).contains(&value) && rule == "shared",
        "{shared:?}"
    );
    watched.connections = Some(MANY);
    watched.sees(Some(1_000), 95, &[90; 120]);
    // A probe at another port now and then hides nothing.
    for _ in 0..20 {
        for elsewhere in [1, 0, 0, 0] {
            watched.connections = Some(Connections { elsewhere, ..MANY });
            let (kind, value, rule) = said(watched.sees(Some(1_000), 95, &[90]));
            assert!(
                kind == "exact" && (value - 90.0).abs() <= 1.0 && rule == "loop-full",
                "{value}"
            );
        }
    }
}

#[test]
fn what_is_irregular_is_exact_only_after_many_seconds() {
    let mut watched = Watched::new();
    let uneven = [10, 30, 14, 26, 12, 28, 20, 22, 8, 30];
    assert_eq!(said(watched.sees(Some(990), 30, &uneven)).0, "about");
    let later = uneven.repeat(5);
    assert_eq!(
        said(watched.sees(Some(990), 30, &later)),
        ("exact", 20.0, "loop-full")
    );
}

#[test]
fn it_ages_and_is_forgotten() {
    let mut watched = Watched::new();
    watched.sees(Some(1_000), 130, &[120; 7]);
    assert_eq!(
        said(watched.sees(Some(500), 60, &[60; 4])),
        ("exact", 120.0, "loop-full")
    );
    let stale = watched.sees(Some(500), 60, &[60; 4]).clone();
    assert_eq!(said(&stale), ("about", 120.0, "stale"));
    assert!(stale.age.unwrap().get() > 5.0, "{stale:?}");
    let forgotten = watched.sees(Some(500), 60, &[60; 3_600]);
    assert_eq!(forgotten.capacity.name(), "lower-bound", "{forgotten:?}");
    // Whoever listens next is another server.
    watched.sees(Some(1_000), 130, &[120; 7]);
    watched.identity = 2;
    assert_ne!(watched.sees(Some(500), 60, &[60; 2]).reason.rule, "loop-full");
}

#[test]
fn a_change_is_followed_both_ways() {
    for (before, since) in [(120, 60), (60, 120)] {
        let mut watched = Watched::new();
        watched.sees(Some(1_000), 110, &[before; 20]);
        // It changed within a second.
        watched.sees(
            Some(1_000),
            110,
            &[(before + since) / 2, since, since, since, since, since, since],
        );
        let answers: Vec<_> = watched.said[20..].iter().map(said).collect();
        let changed = answers.iter().position(|(.., rule)| *rule == "changed");
        assert!(changed.is_some_and(|second| second <= 2), "{answers:?}");
        for (kind, value, _) in &answers[1..] {
            let off = (value / since as f64 - 1.0).abs();
            assert!(off < 0.15 || *kind == "about" && off < 0.5, "{answers:?}");
        }
        assert_eq!(answers[6], ("exact", since as f64, "loop-full"), "{answers:?}");
    }
    // While nobody was at its limit.
    let mut watched = Watched::new();
    watched.sees(Some(1_000), 180, &[60; 10]);
    watched.sees(Some(500), 50, &[50; 3]);
    let faster = watched.sees(Some(500), 90, &[90; 3]).clone();
    assert_eq!(faster.reason.rule, "faster", "{faster:?}");
    assert_eq!(faster.capacity.name(), "lower-bound");
}

#[test]
fn what_is_kept_open_or_not_counted_is_no_exact_capacity() {
    // Of 200 that are accepted 60 are closed.
    let mut watched = Watched::new();
    assert_eq!(
        said(watched.sees(Some(1_000), 200, &[60; 10])),
        ("about", 60.0, "loop-full")
    );
    // All that it has to do is for connections that stay open.
    let mut kept = Watched::new();
    assert_ne!(kept.sees(Some(1_000), 0, &[0; 10]).reason.rule, "loop-full");
    // Nobody knows whether they are full.
    let mut unknown = Watched::new();
    assert_eq!(unknown.sees(None, 120, &[120; 10]).capacity.name(), "lower-bound");
}

proptest! {
    #[test]
    fn whatever_is_read_the_interval_holds_what_is_said(
        seconds in proptest::collection::vec((proptest::option::of(0..=1_000u32), 0..300u64, 0..300u64), 1..60),
    ) {
        let mut watched = Watched::new();
        for (loops_busy, accepted, answered) in seconds {
            let estimate = watched.sees(loops_busy.map(|busy| busy / 2 + 500), accepted, &[answered]);
            let value = estimate.capacity.value();
            prop_assert!(value.is_none_or(|value| value.get() >= 0.0 && value.is_finite()));
            if let (Some([low, high]), Some(value)) = (estimate.interval, value) {
                prop_assert!(low <= value && value <= high, "{estimate:?}");
            }
        }
    }
}

#[test]
fn what_is_answered_on_connections_that_are_kept_open_is_not_counted_and_nothing_is_exact() {
    let connections = |open, kept| Connections {
        open,
        kept,
        working: open,
        ..Connections::default()
    };
    // A check twice a second beside a balancer that keeps ten connections.
    let mut watched = Watched::new();
    watched.connections = Some(connections(11, 10));
    let estimate = watched.sees(Some(1_000), 2, &[2; 10]).clone();
    assert_eq!((said(&estimate).0, said(&estimate).2), ("about", "loop-full"));
    assert!(
        estimate.reason.text.contains("10 connections that are kept open"),
        "{}",
        estimate.reason.text
    );
    // One in fifty is being sent its answer.
    watched = Watched::new();
    watched.connections = Some(connections(50, 1));
    assert_eq!(
        said(watched.sees(Some(1_000), 100, &[100; 10])),
        ("exact", 100.0, "loop-full")
    );
}

#[test]
fn a_loop_that_polls_while_nobody_waits_for_it_is_not_full() {
    let mut watched = Watched::new();
    watched.connections = Some(Connections {
        open: 1,
        working: 1,
        ..Connections::default()
    });
    let estimate = watched.sees(Some(1_000), 40, &[40; 20]).clone();
    assert_eq!(estimate.capacity.name(), "lower-bound", "{estimate:?}");
    // Of another somebody waited at some looks, and it serves three times as many.
    let mut watched = Watched::new();
    assert_eq!(said(watched.sees(Some(1_000), 40, &[40; 10])).0, "exact");
    for at in 0..8 {
        watched.connections = Some(if at % 2 == 0 { MANY } else { Connections::default() });
        let estimate = watched.sees(Some(1_000), 120, &[120]).clone();
        let (kind, value, rule) = said(&estimate);
        assert!(at == 0 || kind != "exact" || value > 100.0, "{estimate:?}");
        assert!(
            at < 2 || value > 100.0 || kind == "lower-bound",
            "{rule}: {estimate:?}"
        );
    }
}

#[test]
fn where_clients_left_it_may_have_worked_for_them_and_nothing_is_exact() {
    let mut watched = Watched::new();
    watched.unasked = Some(40);
    let estimate = watched.sees(Some(1_000), 100, &[60; 20]).clone();
    assert_eq!(
        (said(&estimate).0, said(&estimate).1),
        ("about", 60.0),
        "{estimate:?}"
    );
}

#[test]
fn loops_that_have_become_idle_are_full_no_more() {
    let listener = |loops_busy| Listener {
        identity: 1,
        limit: None,
        length: Some(0),
        shortest: Some(0),
        lengths_seen: None,
        arrivals: None,
        accepts: Some(0),
        drops: None,
        unasked: None,
        answered: Some(0),
        connections: Some(MANY),
        loops_busy: Some(loops_busy),
    };
    let mut loops = Loops::default();
    for (at, busy) in [1_000, 1_000, 500, 500, 1_000].into_iter().enumerate() {
        loops.take(at as f64, Seconds::new(1.0), Some(listener(busy)), false);
        assert_eq!(loops.are_full(), busy == 1_000, "{at}");
    }
}

#[test]
fn of_a_loop_that_was_seen_to_run_with_nobody_there_nothing_is_exact() {
    let mut watched = Watched::new();
    watched.connections = Some(Connections::default());
    watched.sees(Some(1_000), 40, &[40; 5]);
    watched.connections = Some(MANY);
    for _ in 0..20 {
        assert_ne!(said(watched.sees(Some(1_000), 40, &[40])).0, "exact");
    }
}
