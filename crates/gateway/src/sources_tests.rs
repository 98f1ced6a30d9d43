use super::*;
use proptest::prelude::*;

fn limits(change: impl FnOnce(&mut SourceLimitConfig)) -> Arc<Sources> {
    let mut config = SourceLimitConfig::default();
    change(&mut config);
    Sources::new(&config).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn source(admission: Result<Admission, Over>) -> Source {
    match admission {
        Ok(Admission::Source(source)) => source,
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_limits_there_is_no_table() {
    assert!(Sources::new(&SourceLimitConfig::default()).is_none());
}

#[test]
fn connections_are_counted_by_source_and_given_back() {
    let sources = limits(|it| it.max_connections = 2);
    let now = Instant::now();
    let one = source(sources.connect(ip("192.0.2.7"), now));
    let _two = source(sources.connect(ip("::ffff:192.0.2.7"), now));
    assert_eq!(
        sources.connect(ip("192.0.2.7"), now).unwrap_err(),
        Over::Connections
    );
    let _other = source(sources.connect(ip("192.0.2.8"), now));
    drop(one);
    let _again = source(sources.connect(ip("192.0.2.7"), now));
    // IPv6 by its first 64 bits: whoever has a network has as many addresses as they like.
    let _v6 = [
        sources.connect(ip("2001:db8::1"), now).map(source_of),
        sources.connect(ip("2001:db8::2"), now).map(source_of),
    ];
    assert_eq!(
        sources.connect(ip("2001:db8::ffff:3"), now).unwrap_err(),
        Over::Connections
    );
    assert!(sources.connect(ip("2001:db8:0:1::1"), now).is_ok());
}

fn source_of(admission: Admission) -> Source {
    source(Ok(admission))
}

#[test]
fn a_rate_lets_a_burst_through_and_then_as_much_as_it_says() {
    let sources = limits(|it| {
        it.requests_per_s = 10;
        it.requests_burst = 3;
    });
    let start = sources.since;
    let source = source(sources.connect(ip("192.0.2.7"), start));
    let after = |ms| start + Duration::from_millis(ms);
    let asked: Vec<bool> = (0..5).map(|_| source.ask(after(0)).is_ok()).collect();
    assert_eq!(asked, [true, true, true, false, false]);
    assert_eq!(source.ask(after(0)), Err(Duration::from_millis(100)));
    assert!(source.ask(after(99)).is_err());
    assert!(source.ask(after(100)).is_ok() && source.ask(after(100)).is_err());
    // After a while without requests it is the burst again, and no more.
    let later: Vec<bool> = (0..4).map(|_| source.ask(after(60_000)).is_ok()).collect();
    assert_eq!(later, [true, true, true, false]);
}

#[test]
fn connections_over_their_rate_are_closed_and_count_as_none_that_is_open() {
    let sources = limits(|it| {
        it.connections_per_s = 1;
        it.connections_burst = 2;
        it.max_connections = 5;
    });
    let start = sources.since;
    for _ in 0..2 {
        drop(source(sources.connect(ip("192.0.2.7"), start)));
    }
    for _ in 0..10 {
        assert_eq!(
            sources.connect(ip("192.0.2.7"), start).unwrap_err(),
            Over::Connects
        );
    }
    let after = start + Duration::from_secs(1);
    assert!(sources.connect(ip("192.0.2.7"), after).is_ok());
}

#[test]
fn who_is_exempt_is_never_refused() {
    let sources = limits(|it| {
        it.max_connections = 1;
        it.exempt = vec!["10.0.0.0/8".parse().unwrap()];
    });
    let now = Instant::now();
    let held: Vec<_> = (0..9).map(|_| sources.connect(ip("10.1.2.3"), now)).collect();
    assert!(held.iter().all(|one| matches!(one, Ok(Admission::Exempt))));
}

#[test]
fn a_full_table_forgets_who_has_nothing_and_lets_the_rest_pass_uncounted() {
    let sources = limits(|it| {
        it.max_connections = 1;
        it.connections_per_s = 1;
        it.max_sources = 64;
    });
    let start = sources.since;
    let at = |n: u32| IpAddr::from(n.to_be_bytes());
    // All stay open: a crowd that fills the table.
    let held: Vec<_> = (0..2_000).map(|n| sources.connect(at(n), start)).collect();
    let tracked = held
        .iter()
        .filter(|one| matches!(one, Ok(Admission::Source(_))))
        .count();
    assert!((1..=64).contains(&tracked), "{tracked}");
    assert_eq!(
        held.iter()
            .filter(|one| matches!(one, Ok(Admission::Untracked)))
            .count(),
        2_000 - tracked
    );
    let remembered = |sources: &Sources| -> usize {
        sources
            .shards
            .iter()
            .map(|shard| shard.lock().unwrap().states.len())
            .sum()
    };
    assert_eq!(remembered(&sources), tracked);
    drop(held);
    // Their rates are still used up, so that nobody gets a fresh one by coming again.
    assert!((2_000..4_000).all(|n| sources.connect(at(n), start).is_ok()));
    assert!(remembered(&sources) <= 64);
    // A second later nothing need be remembered of them.
    let later = start + Duration::from_secs(3);
    let fresh = (5_000..7_000)
        .map(|n| sources.connect(at(n), later))
        .filter(|one| matches!(one, Ok(Admission::Source(_))))
        .count();
    assert!(fresh > 32, "{fresh}");
}

proptest! {
    /// Whatever a source does, it never gets more than its burst and what came due since the start.
    #[test]
    fn no_source_gets_more_than_its_rate(
        per_s in 1_u32..1000,
        burst in 0_u32..50,
        gaps_us in prop::collection::vec(0_u64..20_000, 1..200),
    ) {
        let sources = limits(|it| {
            it.requests_per_s = per_s;
            it.requests_burst = burst;
        });
        let source = source(sources.connect(ip("192.0.2.7"), sources.since));
        let most = if burst == 0 { per_s } else { burst };
        let (mut now_us, mut taken) = (0_u64, 0_u64);
        for gap in gaps_us {
            now_us += gap;
            taken += u64::from(source.ask(sources.since + Duration::from_micros(now_us)).is_ok());
            let due = u64::from(per_s) * now_us / 1_000_000;
            // A nanosecond of rounding an event.
            prop_assert!(taken <= u64::from(most) + due + 1, "{taken} {most} {due}");
        }
    }
}
