//! Accept queues watched through an agent: real listeners on loopback, snapshots over a Unix socket and over mutual TLS.

use crate::agent_common::{PATIENCE, Served, mutual_tls, next, refusal};
use crate::queue_common::{attempt, connect, ebpf, listener, port_of};
use headroom_node::Roots;
use headroom_node::agent::AgentConfig;
use headroom_node::queue::{QueueError, QueueMethod, QueueSample, SnapshotReader};
use headroom_wire::client::{Client, ClientOptions, QueueSnapshots};
use headroom_wire::message::{QueueMethod as WireMethod, QueueShown, WatchQueue};
use headroom_wire::server::Listen;
use headroom_wire::{Refusal, Server};
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

const FAST: Duration = Duration::from_millis(20);

fn asked(port: u16, methods: &[WireMethod]) -> WatchQueue {
    WatchQueue {
        port,
        methods: methods.to_vec(),
        period: FAST,
        cpu_group: None,
    }
}

/// A queue as a controller sees it.
struct Seen {
    snapshots: QueueSnapshots,
    reader: SnapshotReader,
}

impl Seen {
    async fn watch(client: &Client, port: u16, methods: &[WireMethod]) -> Self {
        Self {
            snapshots: client.watch_queue(asked(port, methods)).await.unwrap(),
            reader: SnapshotReader::new(port),
        }
    }

    async fn next(&mut self) -> Result<QueueSample, QueueError> {
        let snapshot = next(&mut self.snapshots).await;
        self.reader.read(snapshot, Instant::now())
    }

    /// Reads on until a snapshot is as asked for.
    async fn until<T>(
        &mut self,
        what: &str,
        found: impl Fn(&Result<QueueSample, QueueError>) -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.next().await;
            if let Some(found) = found(&seen) {
                return found;
            }
            assert!(Instant::now() < deadline, "{what}: {seen:?}");
        }
    }

    async fn until_sample(&mut self, what: &str, holds: impl Fn(&QueueSample) -> bool) -> QueueSample {
        self.until(what, |seen| {
            seen.as_ref().ok().filter(|sample| holds(sample)).cloned()
        })
        .await
    }

    async fn until_nobody(&mut self) {
        let nobody = |seen: &Result<QueueSample, QueueError>| {
            matches!(seen, Err(QueueError::NobodyListens { .. })).then_some(())
        };
        self.until("nobody", nobody).await;
    }
}

#[tokio::test]
async fn every_arrival_accept_and_drop_is_counted_exactly_and_steps_are_the_agents() {
    let mut served = Served::start(|_| {});
    let client = served.connect().await;
    let server = listener(0, 4);
    let port = port_of(&server);
    if ebpf(port).is_none() {
        return;
    }
    let mut seen = Seen::watch(&client, port, &[]).await;
    let start = seen.next().await.unwrap();
    assert_eq!(start.method, QueueMethod::Ebpf, "the agent's own order");
    let clients = connect(port, 5);
    let full = seen
        .until_sample("full", |sample| sample.port.enqueued == Some(5))
        .await;
    assert_eq!((full.length.unwrap().now, full.length.unwrap().limit), (5, 4));
    assert_eq!(full.places(), Some(5));
    assert_eq!(full.listeners[0].address, server.local_addr().unwrap());
    assert_eq!(full.listeners[0].enqueued, Some(5));
    attempt(port, 2);
    let over = seen
        .until_sample("two dropped", |sample| sample.port.drops == Some(2))
        .await;
    for _ in 0..3 {
        server.accept().unwrap();
    }
    let after = seen
        .until_sample("three accepted", |sample| sample.port.accepts == Some(3))
        .await;
    let period = after.since(&start).unwrap();
    assert_eq!(
        (period.port.enqueued, period.port.accepts, period.port.drops),
        (Some(5), Some(3), Some(2))
    );
    // 0, 1, 2, 3, 4 and the two that saw it full.
    assert_eq!(period.seen_mean, Some(20.0 / 7.0));
    assert!(over.at >= full.at && after.at > over.at);
    // The stream is told once in a period; a step is as long as the agent's clock says.
    let one = seen.next().await.unwrap();
    let mut other = one.clone();
    for _ in 0..10 {
        other = seen.next().await.unwrap();
    }
    let length = other.since(&one).unwrap().duration.get();
    // The first may have been late by less than a period.
    assert!(length >= 8.0 * FAST.as_secs_f64(), "{length}");
    drop(clients);
    served.stop().await.unwrap();
}

#[tokio::test]
async fn a_listener_that_goes_is_nobody_and_one_that_comes_back_is_another_epoch() {
    let mut served = Served::start(|_| {});
    let client = served.connect().await;
    let free = port_of(&listener(0, 4));
    // By what needs no privilege, from before anybody listens; and by eBPF where that can be.
    let mut orders = vec![vec![WireMethod::Kernel]];
    if ebpf(port_of(&listener(0, 1))).is_some() {
        orders.push(vec![WireMethod::Ebpf]);
    }
    for methods in orders {
        let mut seen = Seen::watch(&client, free, &methods).await;
        seen.until_nobody().await;
        let server = listener(free, 4);
        let first = seen.until_sample("a listener", |_| true).await;
        let clients = connect(free, 2);
        let before = seen
            .until_sample("two", |sample| sample.length.unwrap().now == 2)
            .await;
        assert!(before.since(&first).is_ok(), "{methods:?}");
        drop((server, clients));
        seen.until_nobody().await;
        let server = listener(free, 4);
        let back = seen.until_sample("another listener", |_| true).await;
        assert!(back.since(&before).is_err(), "{methods:?}");
        let clients = connect(free, 1);
        let after = seen
            .until_sample("one", |sample| sample.length.unwrap().now == 1)
            .await;
        assert!(after.since(&back).is_ok(), "{methods:?}");
        drop((server, clients));
    }
    served.stop().await.unwrap();
}

#[tokio::test]
async fn a_queue_is_watched_over_mutual_tls_too() {
    let (tls, options) = mutual_tls();
    let mut served = Served::start(|config| {
        config.listen = vec![Listen::Tcp {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            tls,
        }];
    });
    let address = served.handle().addresses()[0].clone();
    assert!(
        Client::connect(&address, &ClientOptions::default())
            .await
            .is_err()
    );
    let client = Client::connect(&address, &options).await.unwrap();
    let server = listener(0, 8);
    let mut seen = Seen::watch(&client, port_of(&server), &[WireMethod::Kernel]).await;
    let clients = connect(port_of(&server), 3);
    let sample = seen
        .until_sample("three", |sample| sample.length.unwrap().now == 3)
        .await;
    assert_eq!(sample.method, QueueMethod::Kernel);
    drop(clients);
    served.stop().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_measured_is_told_with_the_remedy_and_the_next_method_takes_over() {
    // A kernel without types: no program can be fit to it.
    let empty = tempfile::tempdir().unwrap();
    let sys = empty.path().to_path_buf();
    let mut served = Served::start(|config| config.roots = Roots::at(sys, "/proc"));
    let client = served.connect().await;
    let server = listener(0, 4);
    let mut seen = Seen::watch(&client, port_of(&server), &[WireMethod::Ebpf]).await;
    let error = seen.next().await.unwrap_err();
    assert!(
        matches!(&error, QueueError::Elsewhere { why } if why.contains("cannot be measured by ebpf")),
        "{error}"
    );
    // It is told again and again, and not tried again so often.
    assert_eq!(seen.next().await.unwrap_err().to_string(), error.to_string());
    let mut seen = Seen::watch(&client, port_of(&server), &[]).await;
    assert_eq!(seen.next().await.unwrap().method, QueueMethod::Kernel);
    served.stop().await.unwrap();
}

fn busy(what: &str, limit: u64) -> Refusal {
    Refusal::Busy {
        server: Server::Agent,
        what: what.into(),
        limit,
    }
}

fn limited(config: &mut AgentConfig) {
    config.queues.queues = 2;
    config.queues.streams = 4;
    config.queues.streams_per_connection = 3;
}

#[tokio::test]
async fn queues_and_streams_are_limited_and_freed_by_leaving() {
    let mut served = Served::start(limited);
    let (first, second) = (served.connect().await, served.connect().await);
    let servers: Vec<TcpListener> = (0..3).map(|_| listener(0, 4)).collect();
    let ports: Vec<u16> = servers.iter().map(port_of).collect();
    let kernel = [WireMethod::Kernel];
    let one = first.watch_queue(asked(ports[0], &kernel)).await.unwrap();
    let other = first.watch_queue(asked(ports[1], &kernel)).await.unwrap();
    let refused = refusal(first.watch_queue(asked(ports[2], &kernel)).await);
    assert_eq!(refused, busy("watched accept queues", 2));
    assert_eq!(
        refused.to_string(),
        "the agent serves 2 watched accept queues and no more: close one, or try again later"
    );
    // Who watches what is watched already needs no other meter.
    let third = first.watch_queue(asked(ports[0], &kernel)).await.unwrap();
    let refused = refusal(first.watch_queue(asked(ports[0], &kernel)).await);
    let what = "streams of an accept queue's snapshots over one connection";
    assert_eq!(refused, busy(what, 3));
    let fourth = second.watch_queue(asked(ports[1], &kernel)).await.unwrap();
    let refused = refusal(second.watch_queue(asked(ports[1], &kernel)).await);
    assert_eq!(refused, busy("streams of an accept queue's snapshots", 4));

    // What nobody watches any more makes room, long before its meter would go.
    drop((one, third));
    let deadline = Instant::now() + PATIENCE;
    let mut freed = loop {
        match second.watch_queue(asked(ports[2], &kernel)).await {
            Ok(snapshots) => break snapshots,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(FAST).await;
    };
    assert!(matches!(next(&mut freed).await.shown, QueueShown::Sample(_)));
    drop((other, fourth));
    served.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_out_of_range_is_refused() {
    let mut served = Served::start(|_| {});
    let client = served.connect().await;
    for (watch, words) in [
        (asked(0, &[]), "port is 0"),
        (
            WatchQueue {
                period: Duration::from_millis(1),
                ..asked(80, &[])
            },
            "period_ms is 1 ms, outside 10 to 60000 ms",
        ),
        (
            WatchQueue {
                period: Duration::MAX,
                ..asked(80, &[])
            },
            "period_ms is ",
        ),
    ] {
        let refused = refusal(client.watch_queue(watch).await).to_string();
        assert!(refused.starts_with(words), "{refused}");
    }
    assert_eq!(client.agent().queue_period_ms.unwrap().minimum, 10.0);
    served.stop().await.unwrap();
}

/// The number of the meter, and what it showed of the queue's length.
async fn meter(snapshots: &mut QueueSnapshots) -> u64 {
    match next(snapshots).await.shown {
        QueueShown::Sample(sample) => sample.meter,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_meter_is_shared_kept_for_a_while_and_then_given_up() {
    let mut served = Served::start(|config| config.queues.kept = Duration::from_millis(300));
    let client = served.connect().await;
    let server = listener(0, 4);
    let watch = || client.watch_queue(asked(port_of(&server), &[WireMethod::Kernel]));
    let (mut one, mut other) = (watch().await.unwrap(), watch().await.unwrap());
    let number = meter(&mut one).await;
    assert_eq!(meter(&mut other).await, number);
    drop(one);
    // The other's goes on.
    for _ in 0..20 {
        assert_eq!(meter(&mut other).await, number);
    }
    drop(other);
    let mut back = watch().await.unwrap();
    assert_eq!(meter(&mut back).await, number, "in time");
    drop(back);
    // Sooner or later a pause is long enough, whatever the machine does meanwhile.
    let mut pause = Duration::from_millis(400);
    loop {
        tokio::time::sleep(pause).await;
        let mut late = watch().await.unwrap();
        if meter(&mut late).await != number {
            break;
        }
        pause *= 2;
        assert!(pause < PATIENCE, "it is never given up");
    }
    served.stop().await.unwrap();
}

#[tokio::test]
async fn streams_end_with_the_agent_and_a_meter_of_the_next_counts_anew() {
    let mut served = Served::start(|_| {});
    let client = served.connect().await;
    let server = listener(0, 8);
    let mut seen = Seen::watch(&client, port_of(&server), &[WireMethod::Kernel]).await;
    let before = seen.next().await.unwrap();
    let run = client.agent().agent_run;
    served.stop().await.unwrap();
    let mut ended = seen.snapshots.next().await;
    while let Ok(Some(_)) = ended {
        ended = seen.snapshots.next().await;
    }
    assert!(matches!(ended, Ok(None)), "{ended:?}");

    let mut again = Served::start(|_| {});
    let client = again.connect().await;
    assert_ne!(client.agent().agent_run, run);
    seen.snapshots = client
        .watch_queue(asked(port_of(&server), &[WireMethod::Kernel]))
        .await
        .unwrap();
    let after = seen.next().await.unwrap();
    assert!(after.since(&before).is_err(), "counters of another run");
    again.stop().await.unwrap();
}
