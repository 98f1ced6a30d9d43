//! Samples of literals: what a cluster makes of its nodes' servers.

use super::*;
use headroom_units::{Role, Setting};
use headroom_wire::message::OnCallSample;

const PERIOD: Duration = Duration::from_secs(1);

/// A sample at a second, of a server that was answered so many queries in the mean of 1 ms, and as many in 5 ms.
fn sample(run: u64, second: u64, queries: u64) -> Sample {
    let oncall = OnCallSample {
        server: "db".to_owned(),
        now: Ok(OnCallNow {
            connections: 8,
            running: 2,
            waiting: 3,
            waiting_least: 1,
            oldest_waiting: Some(Duration::from_millis(20)),
            in_flight: 4,
            oldest_in_flight: Some(Duration::from_millis(30)),
            cores: 2,
            asking_thousandths: None,
        }),
        counters: OnCallCounters {
            arrivals: queries * 2 + 4,
            queries: queries * 2,
            failures: queries / 10,
            rounds: queries,
            given_back: 1,
            context_switches: Some(queries * 6),
            measured: Duration::from_secs(second * 2),
            long_idle: Duration::from_secs(second),
            latencies: match queries {
                0 => Vec::new(),
                _ => vec![(1_000, queries), (5_000, queries)],
            },
        },
    };
    Sample {
        number: second,
        agent_run: run,
        uptime: Duration::from_secs(second),
        period: PERIOD,
        cpu: None,
        machine_utilisation: None,
        zones: Vec::new(),
        energy: None,
        frequency: None,
        in_force: Setting::default(),
        lease: None,
        troubles: Vec::new(),
        usable: None,
        refused: None,
        oncall: Some(oncall),
        work: None,
    }
}

fn away(mut sample: Sample) -> Sample {
    sample.oncall.as_mut().unwrap().now = Err("nobody is there".to_owned());
    sample
}

fn queries(names: &[&str]) -> (ClusterQueries, Vec<Arc<Shared<NodeState>>>) {
    let states: Vec<_> = names
        .iter()
        .map(|_| Arc::new(Shared::new(NodeState::default())))
        .collect();
    let each = names.iter().map(|name| (*name).to_owned()).zip(states.clone());
    (ClusterQueries::new(each, PERIOD), states)
}

fn take(queries: &mut ClusterQueries) -> Option<TrafficPeriod> {
    queries.take(Duration::ZERO)
}

#[test]
fn the_queries_of_all_nodes_are_the_traffic_and_without_one_the_period_is_lost() {
    let (mut queries, states) = queries(&["n1", "n2"]);
    let show = |samples: [Option<Sample>; 2]| {
        for (state, sample) in states.iter().zip(samples) {
            state.change(|state| state.sample = sample);
        }
    };
    assert!(take(&mut queries).is_none() && queries.lost.is_empty());
    assert!(take(&mut queries).is_none());
    assert_eq!(
        queries.lost,
        [
            "n1: its agent sent no sample in time",
            "n2: its agent sent no sample in time"
        ]
    );
    show([Some(sample(1, 1, 100)), Some(sample(9, 50, 7))]);
    assert!(take(&mut queries).is_none());
    assert_eq!(queries.lost[1], "n2: its queries are counted from now on");
    show([Some(sample(1, 2, 150)), Some(sample(9, 51, 17))]);
    let period = take(&mut queries).unwrap();
    assert_eq!(
        (period.arrivals, period.completions, period.failures),
        (120, 120, 6)
    );
    assert_eq!(
        (period.in_flight, period.oldest_in_flight),
        (Some(8), Some(Seconds::from_millis(30.0)))
    );
    let ReportedLatency::Histogram(histogram) = &period.latency else {
        panic!("every query's latency is known");
    };
    assert_eq!((histogram.len(), histogram.count_between(900, 1_100)), (120, 60));
    // Where a sample is late, what all counted comes with the next whole period.
    show([Some(sample(1, 3, 160)), Some(sample(9, 51, 17))]);
    assert!(take(&mut queries).is_none());
    assert_eq!(queries.lost, ["n2: its agent sent no sample in time"]);
    show([Some(sample(1, 4, 170)), Some(sample(9, 53, 30))]);
    assert_eq!(take(&mut queries).unwrap().completions, 2 * (20 + 13));
    // What an agent that stood still tells of is not that of a period.
    show([Some(sample(1, 5, 180)), Some(sample(9, 57, 31))]);
    assert!(take(&mut queries).is_none());
    assert!(
        queries.lost[0].contains("told of 4.0 s at once"),
        "{:?}",
        queries.lost
    );
    show([Some(sample(1, 6, 185)), Some(sample(9, 58, 32))]);
    assert_eq!(take(&mut queries).unwrap().completions, 2 * (5 + 1));
    // Of one whose samples do not come for long, what the others counted meanwhile is in no period, and they are not said to have stood still.
    for second in 7..10 {
        show([Some(sample(1, second, 190)), Some(sample(9, 58, 32))]);
        assert!(take(&mut queries).is_none());
        assert_eq!(queries.lost, ["n2: its agent sent no sample in time"]);
    }
    show([Some(sample(1, 10, 191)), Some(sample(9, 62, 36))]);
    assert!(take(&mut queries).is_none());
    assert_eq!(
        queries.lost,
        ["n2: it told of 4.0 s at once: one of the two processes stood still"]
    );
    show([Some(sample(1, 11, 192)), Some(sample(9, 63, 37))]);
    assert_eq!(take(&mut queries).unwrap().completions, 2 * (1 + 1));
    // A server that is away, an agent that was started again.
    show([Some(sample(1, 12, 195)), Some(away(sample(9, 64, 38)))]);
    assert!(take(&mut queries).is_none());
    assert_eq!(queries.lost, ["n2: nobody is there"]);
    show([Some(sample(1, 13, 200)), Some(sample(9, 65, 38))]);
    assert!(take(&mut queries).is_none());
    show([Some(sample(2, 1, 0)), Some(sample(9, 66, 38))]);
    assert!(take(&mut queries).is_none());
    show([Some(sample(2, 2, 5)), Some(sample(9, 67, 38))]);
    assert_eq!(take(&mut queries).unwrap().completions, 10);
    // One that is off as it was ordered has no queries.
    show([Some(sample(2, 3, 6)), None]);
    states[1].change(|state| state.switched = Some(Instant::now()));
    assert_eq!(take(&mut queries).unwrap().completions, 2);
}

#[test]
fn servers_are_one_with_the_sums_of_what_they_do_and_the_cores_of_one() {
    let served = |queries, second, least, before: &mut Option<Counted>| {
        Served::of(Some(&sample(1, second, queries)), Some(least), PERIOD, before)
    };
    let (mut one, mut two) = (None, None);
    assert!(served(100, 1, 0, &mut one).is_none() && served(10, 1, 0, &mut two).is_none());
    let both = [served(150, 2, 5, &mut one), served(20, 2, 2, &mut two)];
    let part = both[0].as_ref().unwrap().on(Part::new("n1", Role::Node));
    for (sensor, value) in [
        (Sensor::Connections, 8.0),
        (Sensor::WaitingForSlot, 3.0),
        (Sensor::ServiceRate, 100.0),
        (Sensor::SwitchesPerQuery, 3.0),
        (Sensor::LongIdle, 0.5),
    ] {
        assert_eq!(part.get(sensor), Some(value), "{sensor:?}");
    }
    let all = together(&both).unwrap();
    assert_eq!(
        (all.queries, all.failed, all.rounds, all.connections, all.waiting),
        (126, 6, 60, 16, 6)
    );
    assert_eq!((all.waiting_least, all.cores), (Some(2), Some(2)));
    assert_eq!(all.oldest_waiting, Some(Seconds::from_millis(20.0)));
    assert_eq!(
        (all.context_switches, all.long_idle),
        (Some(360), Some(Ratio::new(0.5)))
    );
    // The first node's 100 queries came by 1.5 connections, the second's 20 by no more than its 8: as many as make all as busy as the first.
    assert_eq!(
        (all.asking, all.waiting_share),
        (None, Some(Ratio::new(5.0 / 8.0)))
    );
    let mut pooled = both.clone();
    pooled[0].as_mut().unwrap().now.asking_thousandths = Some(1_500);
    let pooled = together(&pooled).unwrap();
    assert_eq!(
        (pooled.asking, pooled.waiting_share),
        (Some(1.8), Some(Ratio::new(1.0)))
    );
    // One of which nothing is known leaves nothing known of all.
    assert!(together(&[both[0].clone(), None]).is_none() && together(&[]).is_none());
}

#[test]
fn a_sample_says_of_one_period_or_nothing() {
    let mut before = None;
    let mut of = |run, second, queries| {
        let sample = sample(run, second, queries);
        let served = Served::of(Some(&sample), None, PERIOD, &mut before);
        served.map(|served| (served.since.queries, served.waiting_least))
    };
    assert_eq!(of(1, 1, 10), None);
    assert_eq!(of(1, 2, 20), Some((20, 3)));
    assert_eq!(of(1, 2, 20), None, "the same sample again");
    assert_eq!(of(1, 3, 25), Some((10, 3)));
    assert_eq!(of(1, 5, 40), None, "two periods");
    assert_eq!(of(2, 6, 50), None, "another run of the agent");
    assert_eq!(of(2, 7, 51), Some((2, 3)));
    assert!(Served::of(Some(&away(sample(2, 8, 60))), None, PERIOD, &mut before).is_none());
    assert!(before.is_none());
}
