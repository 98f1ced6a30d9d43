use super::*;
use crate::backend::{BackendChange, BackendState};
use crate::config::BackendConfig;

const SILENT: ConnectFailure = ConnectFailure::TimedOut { alive: false };
const FULL: ConnectFailure = ConnectFailure::TimedOut { alive: true };
const REFUSAL: ConnectFailure = ConnectFailure::Refused;

/// Ejections longer than any test.
fn long() -> HealthConfig {
    HealthConfig {
        ejection_ms: 60_000,
        ejection_max_ms: 60_000,
        ..HealthConfig::default()
    }
}

/// Three others, all there.
fn three() -> Census {
    Census {
        in_service: 3,
        away: 0,
    }
}

/// Longer than any test.
const PATIENCE: Duration = Duration::from_secs(1_000);

/// Begins as many connections, and then they fail.
fn verdicts(ejection: &Ejection, config: &HealthConfig, failures: &[ConnectFailure]) -> Vec<Verdict> {
    let begun: Vec<_> = failures
        .iter()
        .map(|_| ejection.begin_connect(PATIENCE))
        .collect();
    let failed = |(begun, failure): (Begun, &ConnectFailure)| ejection.failed(begun, *failure, config, three);
    begun.into_iter().zip(failures).map(failed).collect()
}

/// Begins a connection, and it fails.
fn fail(
    ejection: &Ejection,
    failure: ConnectFailure,
    config: &HealthConfig,
    others: impl Fn() -> Census,
) -> Verdict {
    ejection.failed(ejection.begin_connect(PATIENCE), failure, config, others)
}

#[test]
fn one_refusal_ejects_and_five_silent_timeouts_do() {
    use Verdict::{Counted, Ejected};
    let ejection = Ejection::new();
    assert_eq!(
        verdicts(&ejection, &long(), &[REFUSAL]),
        [Ejected(EjectionCause::Refused)]
    );
    assert_eq!(
        ejection.state().map(|(_, cause)| cause),
        Some(EjectionCause::Refused)
    );
    let ejection = Ejection::new();
    assert_eq!(
        verdicts(&ejection, &long(), &[SILENT; 5]),
        [
            Counted,
            Counted,
            Counted,
            Counted,
            Ejected(EjectionCause::TimedOut)
        ]
    );
    assert_eq!(
        ejection.state().map(|(_, cause)| cause),
        Some(EjectionCause::TimedOut)
    );
    assert_eq!(ejection.failures(), 5);
}

#[test]
fn a_full_accept_queue_never_ejects() {
    let ejection = Ejection::new();
    assert!(
        verdicts(&ejection, &long(), &[FULL; 1_000])
            .iter()
            .all(|verdict| *verdict == Verdict::Counted)
    );
    // One sign of life in five is enough, and so is an opened connection.
    let mixed = [SILENT, SILENT, SILENT, SILENT, FULL].repeat(100);
    assert!(
        verdicts(&ejection, &long(), &mixed)
            .iter()
            .all(|verdict| *verdict == Verdict::Counted)
    );
    verdicts(&ejection, &long(), &[SILENT; 4]);
    ejection.connected();
    verdicts(&ejection, &long(), &[SILENT; 4]);
    assert!(!ejection.is_ejected());
}

#[test]
fn a_sign_of_life_ends_an_ejection_for_silence_and_none_for_refusals() {
    let ejection = Ejection::new();
    verdicts(&ejection, &long(), &[SILENT; 5]);
    assert!(ejection.is_ejected());
    verdicts(&ejection, &long(), &[FULL]);
    assert!(!ejection.is_ejected());
    verdicts(&ejection, &long(), &[REFUSAL, FULL]);
    assert!(ejection.is_ejected());
}

#[test]
fn want_of_resources_here_is_held_against_nobody() {
    let ejection = Ejection::new();
    let config = HealthConfig {
        eject_after_refusals: 1,
        eject_after_timeouts: 1,
        ..long()
    };
    verdicts(&ejection, &config, &[ConnectFailure::NoResources; 10]);
    assert_eq!((ejection.failures(), ejection.is_ejected()), (0, false));
    let cases = [
        (Errno::CONNREFUSED, REFUSAL),
        (Errno::HOSTUNREACH, REFUSAL),
        (Errno::NETUNREACH, REFUSAL),
        (Errno::CONNRESET, REFUSAL),
        (Errno::TIMEDOUT, SILENT),
        (Errno::MFILE, ConnectFailure::NoResources),
        (Errno::ADDRNOTAVAIL, ConnectFailure::NoResources),
    ];
    for (errno, expected) in cases {
        assert_eq!(ConnectFailure::of(&errno.into(), false), expected, "{errno}");
    }
}

#[test]
fn zero_never_ejects() {
    let zeros = [
        HealthConfig {
            eject_after_refusals: 0,
            eject_after_timeouts: 0,
            ..long()
        },
        HealthConfig {
            ejection_ms: 0,
            ..long()
        },
        HealthConfig {
            eject_after_refusals: 0,
            max_ejection_percent: 0,
            ..long()
        },
    ];
    for config in zeros {
        let ejection = Ejection::new();
        verdicts(&ejection, &config, &[[REFUSAL; 20], [SILENT; 20]].concat());
        assert!(!ejection.is_ejected(), "{config:?}");
    }
}

#[test]
fn timeouts_eject_only_a_share_and_refusals_any() {
    let cases = [
        // (others in service, of them away, percent, may one more go)
        (0, 0, 50, false),
        (1, 0, 50, true),
        (1, 1, 50, false),
        (2, 0, 50, true),
        (2, 1, 50, false),
        (4, 1, 50, true),
        (9, 0, 10, true),
        (8, 0, 10, false),
        (3, 3, 100, true),
    ];
    for (in_service, away, percent, expected) in cases {
        let census = || Census { in_service, away };
        let config = HealthConfig {
            max_ejection_percent: percent,
            ..long()
        };
        let ejection = Ejection::new();
        let last = (0..5).map(|_| fail(&ejection, SILENT, &config, census)).last();
        let reported = if expected {
            Verdict::Ejected(EjectionCause::TimedOut)
        } else {
            Verdict::Withheld
        };
        assert_eq!(last, Some(reported), "{in_service} {away} {percent}");
        assert_eq!(ejection.is_ejected(), expected);
        let ejection = Ejection::new();
        fail(&ejection, REFUSAL, &config, census);
        assert!(ejection.is_ejected());
    }
}

#[test]
fn two_that_go_at_the_same_moment_both_give_way() {
    let ejection = Ejection::new();
    let asked = std::cell::Cell::new(0);
    let others = || {
        asked.set(asked.get() + 1);
        Census {
            in_service: 1,
            away: usize::from(asked.get() > 1),
        }
    };
    let config = HealthConfig {
        eject_after_timeouts: 1,
        ..long()
    };
    assert_eq!(fail(&ejection, SILENT, &config, others), Verdict::Withheld);
    assert!(!ejection.is_ejected());
}

#[test]
fn the_census_counts_who_could_take_requests() {
    let backends: Vec<_> = (0..5)
        .map(|index| {
            let config = BackendConfig::new(format!("http://127.0.0.1:{}", index + 1));
            Arc::new(Backend::new(&config).unwrap())
        })
        .collect();
    let census = |one| {
        let Census { in_service, away } = Census::without(one, &backends);
        (in_service, away)
    };
    assert_eq!(census(0), (4, 0));
    backends[1].set_healthy(false);
    fail(&backends[2].ejection, REFUSAL, &long(), three);
    assert_eq!((census(0), census(1)), ((4, 2), (4, 1)));
    backends[1].apply(BackendState::Drain.into()).unwrap();
    backends[2].apply(BackendChange::Weight(0)).unwrap();
    assert_eq!(census(0), (2, 0));
}

/// 100 s, 200 s, 300 s, 300 s.
fn doubling() -> HealthConfig {
    HealthConfig {
        ejection_ms: 100_000,
        ejection_max_ms: 300_000,
        ..HealthConfig::default()
    }
}

/// What is left of an ejection, rounded up to 20 s, for some time has gone by.
fn left_s(ejection: &Ejection) -> u64 {
    let left = ejection.state().map_or(Duration::ZERO, |(left, _)| left);
    left.as_secs().div_ceil(20) * 20
}

/// Lets the ejection run out.
fn run_out(ejection: &Ejection) {
    std::thread::sleep(Duration::from_millis(2));
    ejection.until_ms.store(1, Relaxed);
    assert!(!ejection.is_ejected());
}

#[test]
fn the_back_off_doubles_with_each_failed_probe_and_not_with_each_failure() {
    let ejection = Ejection::new();
    let mut waits_s = Vec::new();
    for _ in 0..4 {
        // Many that are begun together fail together.
        let verdicts = verdicts(&ejection, &doubling(), &[REFUSAL; 50]);
        let ejected = |verdict: &&Verdict| **verdict == Verdict::Ejected(EjectionCause::Refused);
        assert_eq!(verdicts.iter().filter(ejected).count(), 1);
        waits_s.push(left_s(&ejection));
        run_out(&ejection);
    }
    assert_eq!(waits_s, [100, 200, 300, 300]);
    // The first to connect is the probe, and the door stays shut behind it.
    ejection.begin_connect(PATIENCE);
    assert_eq!(left_s(&ejection), 1_000);
    ejection.connected();
    assert!(!ejection.is_ejected());
    verdicts(&ejection, &doubling(), &[REFUSAL]);
    assert_eq!(left_s(&ejection), 100, "it begins anew");
}

#[test]
fn what_was_begun_before_the_ejection_ends_no_probe_and_doubles_nothing() {
    let ejection = Ejection::new();
    let config = HealthConfig {
        eject_after_timeouts: 1,
        ..doubling()
    };
    let begin = || ejection.begin_connect(PATIENCE);
    let failed = |begun| ejection.failed(begun, SILENT, &config, three);
    let ejected = Verdict::Ejected(EjectionCause::TimedOut);
    let [first, early, late, later] = [begin(), begin(), begin(), begin()];
    assert_eq!((failed(first), left_s(&ejection)), (ejected, 100));
    assert_eq!((failed(early), left_s(&ejection)), (Verdict::Counted, 100));
    run_out(&ejection);
    assert_eq!(failed(late), Verdict::Counted);
    assert!(!ejection.is_ejected(), "it has run out, and nothing new is known");
    let probe = begin();
    let bystander = begin();
    for stale in [later, bystander] {
        assert_eq!((failed(stale), left_s(&ejection)), (Verdict::Counted, 1_000));
    }
    assert_eq!((failed(probe), left_s(&ejection)), (ejected, 200));
    // One that fails after the control side said that the backend is back.
    let last_resort = begin();
    ejection.connected();
    assert_eq!((failed(last_resort), left_s(&ejection)), (Verdict::Counted, 0));
}
