//! An agent end to end over its Unix socket and over mutual TLS, with a machine that the test can look into: leases,
//! refusals, and what happens when something breaks.

use crate::agent_common::{Fake, Served, ask, holder, mutual_tls, refusal, setting, until};
use headroom_node::agent::{Agent, AgentConfig, AgentError};
use headroom_units::{Lever, Reading, Setting, Source, Watts};
use headroom_wire::client::{CallError, Client, ClientOptions};
use headroom_wire::message::Microjoules;
use headroom_wire::server::Listen;
use headroom_wire::{Refusal, Server, proto};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn a_controller_takes_a_node_watches_it_and_gives_it_back() {
    let mut served = Served::start(|_| {});
    let client = served.connect().await;
    let about = client.agent();
    assert_eq!(
        (about.node.name.as_str(), about.source),
        ("fake", Source::Emulated)
    );
    assert_eq!((about.lease.clone(), about.in_force), (None, Setting::default()));
    assert_eq!(about.ranges.get(Lever::Cap).unwrap().max, 92.0);

    let applied = client.apply(ask(1, 1, LONG, setting(2.0, 60.0))).await.unwrap();
    assert_eq!(applied.in_force, setting(2.0, 60.0));
    assert_eq!(
        (applied.lease.holder.as_str(), applied.lease.sequence),
        ("controller-1", 1)
    );
    assert!(applied.lease.remaining <= LONG && applied.lease.remaining > LONG / 2);

    let mut samples = client.observe(Duration::from_millis(50)).await.unwrap();
    let first = samples.next().await.unwrap().unwrap();
    let second = samples.next().await.unwrap().unwrap();
    assert_eq!((first.number, second.number), (1, 2));
    assert!(second.uptime > first.uptime && second.period > Duration::ZERO);
    let busy = second.cpu.unwrap().busy.get();
    assert!((busy - 2.0).abs() < 1e-6, "{busy}");
    let energy = second.energy.unwrap();
    assert!(energy.accumulated.value > first.energy.unwrap().accumulated.value);
    let power = energy.power.unwrap();
    assert!(
        (power.value.get() - 50.0).abs() < 0.1 && power.source == Source::Emulated,
        "{power:?}"
    );
    assert_eq!(second.in_force, setting(2.0, 60.0));
    assert_eq!(second.lease.unwrap().holder, "controller-1");

    let released = client.release(&holder(1)).await.unwrap();
    assert!(released.was_held);
    assert_eq!(
        (released.in_force, released.notes),
        (Setting::default(), vec!["put back: everything".into()])
    );
    let again = client.release(&holder(1)).await.unwrap();
    assert!(!again.was_held);
    assert_eq!(served.fake.writes(), [Some(setting(2.0, 60.0)), None]);
    served.stop().await.unwrap();
}

#[tokio::test]
async fn a_lease_that_is_not_renewed_puts_everything_back_though_its_holder_is_connected() {
    let mut served = Served::start(|_| {});
    let client = served.connect().await;
    let mut samples = client.observe(Duration::from_millis(20)).await.unwrap();
    let began = Instant::now();
    client.apply(ask(1, 1, SHORT, setting(1.0, 50.0))).await.unwrap();
    let fake = served.fake.clone();
    until("putting back", || fake.in_force() == Setting::default()).await;
    assert!(began.elapsed() >= SHORT, "not before its time");
    // It is told in the stream, once.
    let mut told = 0;
    for _ in 0..40 {
        let sample = samples.next().await.unwrap().unwrap();
        told += sample
            .troubles
            .iter()
            .filter(|trouble| trouble.contains("ran out"))
            .count();
    }
    assert_eq!(told, 1);
    // Renewing in time keeps it.
    for sequence in 2..12 {
        client
            .apply(ask(1, sequence, SHORT * 4, setting(1.0, 50.0)))
            .await
            .unwrap();
        tokio::time::sleep(SHORT / 4).await;
        assert_eq!(fake.in_force(), setting(1.0, 50.0));
    }
    served.stop().await.unwrap();
}

#[tokio::test]
async fn the_second_of_two_controllers_is_refused_until_the_first_ones_lease_ends() {
    let mut served = Served::start(|_| {});
    let (first, second) = (served.connect().await, served.connect().await);
    first
        .apply(ask(1, 1, Duration::from_secs(30), setting(1.0, 50.0)))
        .await
        .unwrap();
    let refused = refusal(second.apply(ask(2, 1, LONG, setting(4.0, 92.0))).await);
    match &refused {
        Refusal::HeldByAnother { holder, remaining } => {
            assert_eq!(holder, "controller-1");
            assert!(*remaining > Duration::from_secs(5) && *remaining <= Duration::from_secs(30));
        }
        other => panic!("{other}"),
    }
    assert!(
        refused.to_string().contains("\"controller-1\" for another"),
        "{refused}"
    );
    assert!(matches!(
        refusal(second.release(&holder(2)).await),
        Refusal::HeldByAnother { .. }
    ));
    assert_eq!(served.fake.in_force(), setting(1.0, 50.0));

    // The first goes away without a word: its connection's end is not its lease's.
    first.apply(ask(1, 2, SHORT, setting(1.0, 50.0))).await.unwrap();
    drop(first);
    let patience = Instant::now() + Duration::from_secs(20);
    let taken = loop {
        match second.apply(ask(2, 1, LONG, setting(3.0, 80.0))).await {
            Ok(taken) => break taken,
            Err(CallError::Refused(Refusal::HeldByAnother { .. })) => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(other) => panic!("{other}"),
        }
        assert!(Instant::now() < patience);
    };
    assert_eq!(taken.in_force, setting(3.0, 80.0));
    let writes = served.fake.writes();
    assert_eq!(
        writes[writes.len() - 2..],
        [None, Some(setting(3.0, 80.0))],
        "put back between the two"
    );
    served.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_out_of_range_or_nonsense_changes_nothing() {
    let mut served = Served::start(|_| {});
    let client = served.connect().await;
    let cores = |cores: f64| Setting::default().with(Lever::Cores, Some(cores));
    let cap = |cap: f64| Setting::default().with(Lever::Cap, Some(cap));
    for (asked, length, words) in [
        (cap(39.9), LONG, "cap is 39.9 watts, outside 40 to 92 watts"),
        (cap(92.1), LONG, "cap is 92.1 watts, outside 40 to 92 watts"),
        (cores(5.0), LONG, "cores is 5 cores, outside 0.1 to 4 cores"),
        (cores(0.0), LONG, "cores is 0 cores, outside 0.1 to 4 cores"),
        (
            cores(1.0),
            Duration::from_secs(301),
            "lease_ms is 301000 ms, outside 50 to 300000 ms",
        ),
        (
            cores(1.0),
            Duration::from_millis(1),
            "lease_ms is 1 ms, outside 50 to 300000 ms",
        ),
        (
            cores(-1.0),
            LONG,
            "setting.cores is -1: expected a number from 0, not infinite",
        ),
        (
            cap(f64::NAN),
            LONG,
            "setting.cap is NaN: expected a number from 0, not infinite",
        ),
        (
            cap(f64::INFINITY),
            LONG,
            "setting.cap is inf: expected a number from 0, not infinite",
        ),
    ] {
        let refused = refusal(client.apply(ask(1, 1, length, asked)).await);
        assert_eq!(refused.to_string(), words);
        assert_eq!(refused.code(), headroom_wire::tonic::Code::InvalidArgument);
    }
    for period in [0, 9, 60_001, u64::MAX] {
        let refused = refusal(client.observe(Duration::from_millis(period)).await);
        assert!(matches!(refused, Refusal::OutOfRange { .. }), "{refused}");
    }
    served.fake.set(|inside| inside.no_cap = true);
    let refused = refusal(client.apply(ask(1, 1, LONG, cap(50.0))).await);
    assert_eq!(
        refused.to_string(),
        "this node cannot set cap: it has no meter; give it one"
    );
    assert_eq!(client.describe().await.unwrap().ranges.get(Lever::Cap), None);

    assert_eq!(served.fake.writes(), []);
    assert_eq!(
        client.describe().await.unwrap().lease,
        None,
        "nobody holds the node after a refusal"
    );
    served.stop().await.unwrap();
}

#[tokio::test]
async fn an_answer_that_was_lost_can_be_asked_for_again_but_an_overtaken_request_cannot() {
    let mut served = Served::start(|_| {});
    let client = served.connect().await;
    client.apply(ask(1, 7, LONG, setting(2.0, 60.0))).await.unwrap();
    let again = client.apply(ask(1, 7, LONG, setting(2.0, 60.0))).await.unwrap();
    assert_eq!(again.in_force, setting(2.0, 60.0));
    let refused = refusal(client.apply(ask(1, 6, LONG, setting(1.0, 50.0))).await);
    assert_eq!(refused, Refusal::Stale { given: 6, last: 7 });
    assert_eq!(served.fake.in_force(), setting(2.0, 60.0));
    served.stop().await.unwrap();
}

#[tokio::test]
async fn a_machine_that_refuses_is_told_and_leaves_the_node_to_nobody() {
    let mut served = Served::start(|_| {});
    let client = served.connect().await;
    served
        .fake
        .set(|inside| inside.refuses = Some("cpu.max: EINVAL".into()));
    let refused = refusal(client.apply(ask(1, 1, LONG, setting(2.0, 60.0))).await);
    let expected = "the machine refused: cpu.max: EINVAL; in force now: nothing limited";
    assert_eq!(refused.to_string(), expected);
    assert_eq!(client.describe().await.unwrap().lease, None);

    // A renewal that fails neither ends the lease nor lengthens it.
    served.fake.set(|inside| inside.refuses = None);
    client
        .apply(ask(1, 2, SHORT * 8, setting(2.0, 60.0)))
        .await
        .unwrap();
    served
        .fake
        .set(|inside| inside.refuses = Some("cpu.max: EINVAL".into()));
    let refused = refusal(client.apply(ask(1, 3, LONG, setting(1.0, 50.0))).await);
    assert!(matches!(refused, Refusal::MachineRefused { in_force, .. } if *in_force == setting(2.0, 60.0)));
    let fake = served.fake.clone();
    until("the lease's end", || fake.in_force() == Setting::default()).await;
    served.stop().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_put_back_is_told_and_tried_again() {
    let mut served = Served::start(|_| {});
    let client = served.connect().await;
    client.apply(ask(1, 1, LONG, setting(2.0, 60.0))).await.unwrap();
    served.fake.set(|inside| inside.stuck = 2);
    let refused = refusal(client.release(&holder(1)).await);
    assert_eq!(
        refused.to_string(),
        "the machine refused: the quota is stuck; in force now: cores 2.0 cores, cap 60.0 W"
    );
    assert_eq!(
        client.describe().await.unwrap().lease,
        None,
        "the holder is rid of it"
    );
    let fake = served.fake.clone();
    until("the second and third try", || {
        fake.in_force() == Setting::default()
    })
    .await;
    served.stop().await.unwrap();
}

#[tokio::test]
async fn an_agent_that_ends_puts_everything_back_and_ends_its_streams() {
    let mut served = Served::start(|_| {});
    let client = served.connect().await;
    client.apply(ask(1, 1, LONG, setting(2.0, 60.0))).await.unwrap();
    let mut samples = client.observe(Duration::from_secs(60)).await.unwrap();
    let done = served.stop().await.unwrap();
    assert_eq!(done.notes, ["put back: everything"]);
    assert_eq!(served.fake.in_force(), Setting::default());
    assert!(
        matches!(samples.next().await, Ok(None)),
        "the stream ends, and not with an error"
    );
    let error = client.describe().await.unwrap_err();
    assert!(matches!(error, CallError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn an_agent_whose_machine_fails_says_so_on_every_side() {
    let mut served = Served::start(|_| {});
    let client = served.connect().await;
    served.fake.set(|inside| inside.panics = true);
    let refused = refusal(client.apply(ask(1, 1, LONG, setting(2.0, 60.0))).await);
    assert_eq!(refused, Refusal::Ending(Server::Agent));
    assert_eq!(refusal(client.describe().await), Refusal::Ending(Server::Agent));
    let handle = served.handle();
    until("the failure", || !handle.is_running()).await;
    assert!(matches!(served.stop().await, Err(AgentError::Panicked)));
}

#[tokio::test]
async fn two_agents_cannot_have_one_socket() {
    let served = Served::start(|_| {});
    let config = AgentConfig::at(vec![Listen::Unix {
        path: served.dir.path().join("agent.sock"),
    }]);
    let error = Agent::start(config, Box::new(Fake::default())).unwrap_err();
    assert!(matches!(error, AgentError::Listen(_)), "{error}");
    assert!(
        error
            .to_string()
            .contains("is in use: another process listens there"),
        "{error}"
    );
    served.connect().await;
    let nowhere = AgentConfig::at(vec![]);
    assert!(matches!(
        Agent::start(nowhere, Box::new(Fake::default())),
        Err(AgentError::Setting { .. })
    ));
}

#[tokio::test]
async fn the_same_agent_serves_over_mutual_tls() {
    let (tls, options) = mutual_tls();
    let mut served = Served::start(|config| {
        config.listen.push(Listen::Tcp {
            address: "127.0.0.1:0".parse().unwrap(),
            tls,
        });
    });
    let [local, remote] = served.handle().addresses() else {
        panic!("two places")
    };
    let (local, remote) = (local.clone(), remote.clone());
    let client = Client::connect(&remote, &options).await.unwrap();
    client.apply(ask(1, 1, LONG, setting(2.0, 60.0))).await.unwrap();
    let mut samples = client.observe(Duration::from_millis(20)).await.unwrap();
    for number in 1..=3 {
        assert_eq!(samples.next().await.unwrap().unwrap().number, number);
    }
    // One node, two ways in, one lease.
    let beside = Client::connect(&local, &ClientOptions::default()).await.unwrap();
    assert!(matches!(
        refusal(beside.apply(ask(2, 1, LONG, setting(1.0, 50.0))).await),
        Refusal::HeldByAnother { .. }
    ));
    served.stop().await.unwrap();
}

#[test]
fn energy_is_a_reading_with_its_source_all_the_way() {
    let energy = proto::Energy {
        accumulated_uj: 7,
        power_w: Some(50.0),
        source: 3,
    };
    let energy = headroom_wire::message::EnergySample::try_from(energy).unwrap();
    assert_eq!(energy.accumulated, Reading::new(Microjoules(7), Source::Emulated));
    assert_eq!(
        energy.power,
        Some(Reading::new(Watts::new(50.0), Source::Emulated))
    );
}
