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

fn verdicts(ejection: &Ejection, config: &HealthConfig, failures: &[ConnectFailure]) -> Vec<Verdict> {
    failures
        .iter()
        .map(|failure| ejection.failed(*failure, config, three))
        .collect()
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
        let last = (0..5).map(|_| ejection.failed(SILENT, &config, census)).last();
        let told = if expected {
            Verdict::Ejected(EjectionCause::TimedOut)
        } else {
            Verdict::Withheld
        };
        assert_eq!(last, Some(told), "{in_service} {away} {percent}");
        assert_eq!(ejection.is_ejected(), expected);
        let ejection = Ejection::new();
        ejection.failed(REFUSAL, &config, census);
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
    assert_eq!(ejection.failed(SILENT, &config, others), Verdict::Withheld);
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
    backends[2].ejection.failed(REFUSAL, &long(), three);
    assert_eq!((census(0), census(1)), ((4, 2), (4, 1)));
    backends[1].apply(BackendState::Drain.into()).unwrap();
    backends[2].apply(BackendChange::Weight(0)).unwrap();
    assert_eq!(census(0), (2, 0));
}

#[test]
fn the_back_off_doubles_with_each_failed_probe_and_not_with_each_failure() {
    let ejection = Ejection::new();
    std::thread::sleep(Duration::from_millis(2));
    let config = HealthConfig {
        ejection_ms: 100_000,
        ejection_max_ms: 300_000,
        ..HealthConfig::default()
    };
    // Rounded, for some time has gone by.
    let left_s = || {
        ejection
            .state()
            .map_or(0, |(left, _)| left.as_secs().div_ceil(20) * 20)
    };
    let mut waits_s = Vec::new();
    for _ in 0..4 {
        // Many that were begun before fail together.
        verdicts(&ejection, &config, &[REFUSAL; 50]);
        waits_s.push(left_s());
        ejection.until_ms.store(1, Relaxed);
        assert!(!ejection.is_ejected());
        // The first to connect is the probe, and the door stays shut behind it.
        ejection.begin_connect(Duration::from_secs(1_000));
        assert_eq!(left_s(), 1_000);
    }
    assert_eq!(waits_s, [100, 200, 300, 300]);
    ejection.connected();
    assert!(!ejection.is_ejected());
    verdicts(&ejection, &config, &[REFUSAL]);
    assert_eq!(left_s(), 100, "it begins anew");
}
