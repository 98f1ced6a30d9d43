use super::super::GroupCounters;
use super::*;
use proptest::prelude::*;
use prost::Message as _;

fn counters() -> impl Strategy<Value = QueueCounters> {
    proptest::array::uniform7(proptest::option::of(0..=MAX_COUNT)).prop_map(
        |[
            enqueued,
            accepts,
            drops,
            requests,
            attempt_fails,
            unasked,
            answered,
        ]| QueueCounters {
            enqueued,
            accepts,
            drops,
            requests,
            attempt_fails,
            unasked,
            answered,
        },
    )
}

fn lengths() -> impl Strategy<Value = QueueLength> {
    (0..1u64 << 32, 0..1u64 << 32).prop_map(|(now, limit)| QueueLength { now, limit })
}

fn listeners() -> impl Strategy<Value = QueueListener> {
    (
        (any::<std::net::IpAddr>(), any::<u16>()),
        any::<u64>(),
        lengths(),
        proptest::option::of(0..1u64 << 32),
        proptest::option::of(0..=MAX_COUNT),
    )
        .prop_map(|(address, cookie, length, drops, enqueued)| QueueListener {
            address: address.into(),
            cookie,
            length,
            drops,
            enqueued,
        })
}

fn connections() -> impl Strategy<Value = QueueConnections> {
    proptest::array::uniform9(0..=MAX_COUNT / 4).prop_map(
        |[
            parked,
            silent,
            slow,
            working,
            longest_ms,
            gone,
            cancelled,
            kept,
            elsewhere,
        ]| QueueConnections {
            open: parked + silent + slow + working,
            silent,
            slow,
            working,
            longest_ms,
            gone,
            cancelled,
            kept,
            elsewhere,
        },
    )
}

fn methods() -> impl Strategy<Value = QueueMethod> {
    prop_oneof![
        Just(QueueMethod::Ebpf),
        Just(QueueMethod::Kernel),
        Just(QueueMethod::Tools),
        Just(QueueMethod::Snmp)
    ]
}

prop_compose! {
    fn queue_samples()(
        method in methods(),
        numbers: (u64, u64),
        port in counters(),
        server in counters(),
        machine in counters(),
        length in proptest::option::of(lengths()),
        at_arrival in proptest::option::of((0..=MAX_COUNT, 0..=MAX_COUNT, 0..=MAX_COUNT)),
        cpu_busy in proptest::option::of(0.0..=1.0f64),
        connections in proptest::option::of(connections()),
        loops_busy in proptest::option::of(0..=1_000u32),
        listeners in proptest::collection::vec(listeners(), 0..5),
    ) -> QueueSample {
        QueueSample {
            method,
            meter: numbers.0,
            epoch: numbers.1,
            port,
            server,
            machine,
            length,
            at_arrival: at_arrival.map(|(arrivals, sum, longest)| QueueAtArrival { arrivals, sum, longest }),
            cpu_busy: cpu_busy.map(Ratio::new),
            connections,
            loops_busy,
            listeners,
        }
    }
}

fn snapshots() -> impl Strategy<Value = QueueSnapshot> {
    let shown = prop_oneof![
        queue_samples().prop_map(|sample| QueueShown::Sample(Box::new(sample))),
        ".{0,40}".prop_map(|others| QueueShown::Nobody { others }),
        ".{0,40}".prop_map(|why| QueueShown::Unavailable { why }),
    ];
    let group = prop_oneof![
        any::<(u64, u64, u64)>().prop_map(|(epoch, used, allowed)| Ok(GroupCounters {
            epoch,
            used: Duration::from_micros(used),
            allowed: Duration::from_micros(allowed),
        })),
        ".{0,40}".prop_map(Err),
    ];
    let group = proptest::option::of(group);
    (any::<(u64, u64)>(), 0..1u64 << 50, 0..1u64 << 40, shown, group).prop_map(
        |(numbers, uptime, age, shown, group)| QueueSnapshot {
            number: numbers.0,
            agent_run: numbers.1,
            uptime: Duration::from_micros(uptime),
            age: Duration::from_micros(age),
            shown,
            group,
        },
    )
}

/// Through the bytes of the wire and back.
fn there_and_back<M: prost::Message + Default>(message: M) -> M {
    M::decode(message.encode_to_vec().as_slice()).unwrap()
}

#[test]
fn a_snapshot_without_its_parts_or_with_what_cannot_be_is_refused() {
    use proto::queue_snapshot::Queue;
    let whole = proto::QueueSample {
        method: QueueMethod::Ebpf.into(),
        port: Some(QueueCounters::default()),
        server: Some(QueueCounters::default()),
        machine: Some(QueueCounters::default()),
        ..proto::QueueSample::default()
    };
    let snapshot = |sample: proto::QueueSample| proto::QueueSnapshot {
        queue: Some(Queue::Sample(sample)),
        ..proto::QueueSnapshot::default()
    };
    assert!(QueueSnapshot::try_from(snapshot(whole.clone())).is_ok());
    let listener = proto::QueueListener {
        address: "10.0.0.3:80".into(),
        length: Some(QueueLength::default()),
        ..proto::QueueListener::default()
    };
    let beyond = MAX_COUNT + 1;
    let no_group = proto::QueueSnapshot {
        group: Some(proto::GroupCpu::default()),
        ..snapshot(whole.clone())
    };
    let mut broken = vec![
        ("queue", proto::QueueSnapshot::default()),
        ("group.read", no_group),
    ];
    let mut no = |field, change: &dyn Fn(&mut proto::QueueSample)| {
        let mut sample = whole.clone();
        change(&mut sample);
        broken.push((field, snapshot(sample)));
    };
    no("loops_busy", &|sample| sample.loops_busy = Some(1_001));
    no("connections.silent", &|sample| {
        sample.connections = Some(QueueConnections {
            open: 3,
            silent: 4,
            ..QueueConnections::default()
        });
    });
    no("connections.working", &|sample| {
        sample.connections = Some(QueueConnections {
            open: 3,
            silent: 1,
            slow: 1,
            working: 2,
            ..QueueConnections::default()
        });
    });
    no("connections.gone", &|sample| {
        sample.connections = Some(QueueConnections {
            gone: beyond,
            ..QueueConnections::default()
        });
    });
    no("connections.cancelled", &|sample| {
        sample.connections = Some(QueueConnections {
            cancelled: beyond,
            ..QueueConnections::default()
        });
    });
    no("connections.elsewhere", &|sample| {
        sample.connections = Some(QueueConnections {
            elsewhere: beyond,
            ..QueueConnections::default()
        });
    });
    no("method", &|sample| sample.method = 0);
    no("port", &|sample| sample.port = None);
    no("machine", &|sample| sample.machine = None);
    no("accepts", &|sample| {
        sample.port = Some(QueueCounters {
            accepts: Some(beyond),
            ..QueueCounters::default()
        });
    });
    no("at_arrival.sum", &|sample| {
        sample.at_arrival = Some(QueueAtArrival {
            sum: beyond,
            ..QueueAtArrival::default()
        });
    });
    no("length.limit", &|sample| {
        sample.length = Some(QueueLength {
            now: 0,
            limit: u64::MAX,
        });
    });
    no("cpu_busy", &|sample| sample.cpu_busy = Some(f64::NAN));
    no("listener.address", &|sample| {
        sample.listeners = vec![proto::QueueListener {
            address: "web1:80".into(),
            ..listener.clone()
        }];
    });
    no("listener.length", &|sample| {
        sample.listeners = vec![proto::QueueListener {
            length: None,
            ..listener.clone()
        }];
    });
    no("listeners", &|sample| {
        sample.listeners = vec![listener.clone(); MAX_QUEUE_LISTENERS + 1];
    });
    for (field, message) in broken {
        assert_eq!(QueueSnapshot::try_from(message).unwrap_err().field, field);
    }
}

#[test]
fn a_watch_names_a_port_and_each_method_once() {
    let good = proto::WatchQueueRequest {
        port: 80,
        methods: vec![1, 2],
        period_ms: 200,
        cpu_group: "/web".into(),
    };
    let watch = WatchQueue::try_from(good.clone()).unwrap();
    assert_eq!(watch.methods, [QueueMethod::Ebpf, QueueMethod::Kernel]);
    assert_eq!(watch.cpu_group, Some(CpuGroup::new("/web").unwrap()));
    let none = proto::WatchQueueRequest {
        cpu_group: String::new(),
        ..good.clone()
    };
    assert_eq!(WatchQueue::try_from(none).unwrap().cpu_group, None);
    let up = proto::WatchQueueRequest {
        cpu_group: "/web/../db".into(),
        ..good.clone()
    };
    let port = |port| proto::WatchQueueRequest { port, ..good.clone() };
    let methods = |methods: &[i32]| proto::WatchQueueRequest {
        methods: methods.to_vec(),
        ..good.clone()
    };
    for (field, bad) in [
        ("port", port(0)),
        ("port", port(65_536)),
        ("methods", methods(&[0])),
        ("methods", methods(&[5])),
        ("methods", methods(&[1, 1])),
        ("cpu_group", up),
    ] {
        assert_eq!(WatchQueue::try_from(bad).unwrap_err().field, field);
    }
}

proptest! {
    #[test]
    fn a_snapshot_of_a_queue_survives_the_wire(snapshot in snapshots()) {
        let message = there_and_back(proto::QueueSnapshot::from(snapshot.clone()));
        prop_assert_eq!(QueueSnapshot::try_from(message), Ok(snapshot));
    }

    #[test]
    fn a_watch_survives_the_wire(
        port in 1..=u16::MAX, number in 0..=4usize, ms in 0..1u64 << 40, group in proptest::option::of("/[a-z.\u{e4}]{1,40}"),
    ) {
        let all = [QueueMethod::Snmp, QueueMethod::Ebpf, QueueMethod::Tools, QueueMethod::Kernel];
        let watch = WatchQueue {
            port,
            methods: all[..number].to_vec(),
            period: Duration::from_millis(ms),
            cpu_group: group.and_then(|path| CpuGroup::new(path).ok()),
        };
        let message = there_and_back(proto::WatchQueueRequest::from(watch.clone()));
        prop_assert_eq!(WatchQueue::try_from(message), Ok(watch));
    }

    #[test]
    fn a_snapshot_with_a_wrong_byte_is_a_checked_snapshot_or_an_error(
        snapshot in snapshots(), at: proptest::sample::Index, byte: u8,
    ) {
        let mut bytes = proto::QueueSnapshot::from(snapshot).encode_to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(message) = proto::QueueSnapshot::decode(bytes.as_slice())
            && let Ok(QueueSnapshot { shown: QueueShown::Sample(sample), .. }) = QueueSnapshot::try_from(message)
        {
            for counters in [sample.port, sample.server, sample.machine] {
                prop_assert!(counters.enqueued.is_none_or(|count| count <= MAX_COUNT));
            }
            prop_assert!(sample.cpu_busy.is_none_or(|busy| (0.0..=1.0).contains(&busy.get())));
        }
    }
}
