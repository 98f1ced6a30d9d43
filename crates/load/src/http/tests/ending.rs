//! How a load ends: on time, whatever the server does.

use super::*;
use headroom_workload::users::{Model, Site, UserCurve};
use std::time::Instant;

/// A server that reads requests and answers none.
fn silent() -> String {
    let address = raw_server(|_, mut stream| while read_head(&mut stream) {});
    format!("http://{address}/")
}

fn closed(connections: usize, duration: f64) -> Pacing {
    Pacing::Closed {
        connections,
        duration: Seconds::new(duration),
    }
}

/// What came of a load whose timeout is much longer than it may take, and how long it took, seconds.
fn ended(url: &str, pacing: Pacing, grace: f64, change: fn(&mut LoadConfig)) -> (LoadResult, f64) {
    let mut config = LoadConfig::new(url, pacing);
    config.timeout = Seconds::new(60.0);
    config.grace = Seconds::new(grace);
    change(&mut config);
    let begun = Instant::now();
    let result = run(config);
    let took = begun.elapsed().as_secs_f64();
    assert!(took < 30.0, "it took {took} s: it waited for the timeout");
    (result, took)
}

#[test]
fn what_is_outstanding_at_the_end_is_unanswered_after_the_grace() {
    let url = silent();
    for grace in [0.0, 0.4] {
        let (result, took) = ended(&url, closed(4, 0.3), grace, |_| {});
        assert_eq!(
            (result.counts.offered, result.counts.failed.unanswered),
            (4, 4),
            "{:?}",
            result.counts
        );
        assert!(took >= 0.3 + grace);
        // Each has been waited for at least so long: a lower bound of its latency.
        assert_eq!(result.whole.latency.len(), 4);
        assert!(result.whole.latency.min() >= ((0.29 + grace) * 1e6) as u64);
    }
    // Those that wait for a connection too, and those of users.
    let (result, _) = ended(&url, open(100.0, 0.3, Spacing::Even), 0.1, |config| {
        config.max_connections = 2;
    });
    let counts = result.counts;
    assert_eq!((counts.offered, counts.failed.unanswered), (30, 30), "{counts:?}");
    let users = Pacing::users(UserLoad {
        curve: UserCurve::parse("5").unwrap(),
        duration: Seconds::new(0.5),
        people: People::Surge {
            model: Model::default(),
            site: Site::Unknown,
        },
    });
    let (result, _) = ended(&url, users, 0.1, |_| {});
    let counts = result.counts;
    assert_eq!(counts.failed.unanswered, counts.offered, "{counts:?}");
}

#[test]
fn a_request_whose_timeout_is_over_in_the_grace_has_timed_out() {
    let (result, _) = ended(&silent(), closed(3, 0.3), 20.0, |config| {
        config.timeout = Seconds::new(0.5);
    });
    let failed = result.counts.failed;
    assert_eq!((failed.timeout, failed.unanswered), (3, 0), "{failed:?}");
}

#[test]
fn answers_within_the_grace_count_and_end_it() {
    let url = serve(|_| async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        text("x")
    });
    let (result, took) = ended(&url, closed(4, 0.2), 25.0, |_| {});
    assert_eq!(result.counts.completed, 4, "{:?}", result.counts);
    assert!(took < 20.0, "{took}");
}

#[test]
fn a_stopped_load_waits_for_its_grace_alone() {
    let mut config = LoadConfig::new(silent(), closed(2, 3600.0));
    config.timeout = Seconds::new(60.0);
    config.grace = Seconds::new(0.2);
    let begun = Instant::now();
    let load = start(config).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    load.stop();
    let counts = load.join().unwrap().counts;
    assert_eq!(counts.failed.unanswered, 2, "{counts:?}");
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_server_that_accepts_nothing_does_not_keep_the_load_from_beginning() {
    // Opened 64 at a time, and each would be waited for until the timeout.
    let (result, _) = ended(&short_queue(None), closed(300, 0.2), 0.1, |_| {});
    let counts = result.counts;
    assert_eq!(
        (counts.offered, counts.failed.unanswered),
        (300, 300),
        "{counts:?}"
    );
}

#[test]
fn a_generator_that_cannot_keep_up_ends_on_time_and_counts_what_it_never_sent() {
    // No thread sends thirty million requests a second.
    let url = serve(|_| async { text("x") });
    let (result, _) = ended(&url, open(3e7, 0.1, Spacing::Even), 0.05, |config| {
        config.max_connections = 4;
    });
    let failed = result.counts.failed;
    assert!(failed.unsent > 0, "{failed:?}");
    let offered = result.counts.offered;
    assert!((2_999_000..=3_001_000).contains(&offered), "{offered}");
    // It says that it was the limit, and by what: its processor time, or what other programs left it of that.
    let limits: Vec<&str> = result.generator_limits.iter().map(crate::Limit::name).collect();
    assert!(limits.contains(&"schedule"), "{limits:?}");
    assert!(
        limits.contains(&"cpu") || limits.contains(&"starved"),
        "{limits:?}"
    );
}

#[test]
fn a_generator_that_waits_for_a_slow_server_is_not_the_limit_unless_its_connections_are_few() {
    let url = serve(|_| async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        text("x")
    });
    let limits = |connections: usize| {
        let mut config = LoadConfig::new(&url, open(50.0, 1.0, Spacing::Even));
        config.max_connections = connections;
        config.grace = Seconds::new(30.0);
        let limits = run(config).generator_limits;
        limits.iter().map(crate::Limit::name).collect::<Vec<_>>()
    };
    let (many, few) = (limits(50), limits(2));
    assert!(
        !many.contains(&"cpu") && !many.contains(&"connections"),
        "{many:?}"
    );
    assert!(few.contains(&"connections") && !few.contains(&"cpu"), "{few:?}");
}
