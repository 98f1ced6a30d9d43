//! Nodes of literals: what a cluster makes of those that are switched, lost and back.

use super::*;
use headroom_units::LeverRange;
use headroom_wire::message::{
    EnergySample, LeaseState, Microjoules, Node as Hardware, PowerEnvelope, Range, RefusedReadings,
};

const NAMES: [&str; 2] = ["n1", "n2"];

fn description() -> Description {
    let length = Range {
        minimum: 100.0,
        maximum: 60_000.0,
        step: 1.0,
    };
    Description {
        agent_version: String::new(),
        agent_run: 1,
        node: Hardware {
            cores_online: 16,
            ..Hardware::default()
        },
        service: "web".to_owned(),
        ranges: Ranges::default()
            .with(Lever::Cores, Ok(LeverRange::between(0.1, 16.0)))
            .with(Lever::Cap, Ok(LeverRange::between(10.0, 100.0))),
        devices: Vec::new(),
        meters: Vec::new(),
        envelope: None,
        lease_ms: length,
        observe_period_ms: length,
        queue_period_ms: None,
        cpu_groups: None,
        source: Source::Emulated,
        in_force: Setting::default(),
        lease: None,
        oncall: None,
    }
}

/// A sample of a node that has counted so many joules and draws 60 W.
fn sample(joules: u64) -> Sample {
    let accumulated = Microjoules(joules * 1_000_000);
    Sample {
        number: 1,
        agent_run: 1,
        uptime: Duration::ZERO,
        period: Duration::from_secs(1),
        cpu: None,
        machine_utilisation: None,
        zones: Vec::new(),
        energy: Some(EnergySample::new(
            Source::Emulated,
            accumulated,
            Some(Watts::new(60.0)),
        )),
        frequency: None,
        in_force: Setting::from([(Lever::Cores, 4.0)]),
        lease: None,
        troubles: Vec::new(),
        usable: None,
        refused: Some(RefusedReadings {
            meter: "rapl".to_owned(),
            count: 0,
        }),
        oncall: None,
        work: None,
    }
}

fn cluster() -> ClusterMachine {
    let (stop, _) = watch::channel(false);
    let nodes = NAMES.map(|name| Node {
        name: name.to_owned(),
        state: Arc::new(Shared::new(NodeState::default())),
        wish: watch::channel(Wish::default()).0,
        counts: Counts::default(),
        meter: MeterAtStart::default(),
        served: None,
    });
    ClusterMachine {
        name: "test".to_owned(),
        nodes: nodes.into(),
        spread: Spread::new(Cores::new(1.0)).unwrap(),
        period: Duration::from_secs(1),
        plant: None,
        most: None,
        measured: BTreeSet::new(),
        bounded: false,
        mixed: false,
        _network: Network::start("test-nodes", Vec::<std::future::Ready<()>>::new(), stop).unwrap(),
    }
}

/// A period in which each node has counted so many joules, or has no agent, and the second is in this state of its power.
fn period(
    cluster: &mut ClusterMachine,
    joules: [Option<u64>; 2],
    second: Option<PowerState>,
) -> DevicePeriod {
    for (node, joules) in cluster.nodes.iter().zip(joules) {
        node.state.change(|state| {
            state.description = joules.map(|_| description());
            state.last = Some(description());
            state.sample = joules.map(sample);
            state.in_force = Setting::from([(Lever::Cores, 4.0)]);
            state.trouble = joules
                .is_none()
                .then(|| "agent.sock cannot be reached".to_owned());
        });
    }
    let mut period = DevicePeriod::default();
    let second = second.map(|state| (NAMES[1].to_owned(), state));
    period.switched.extend(second);
    cluster.observe(&mut period);
    period
}

#[test]
fn a_lease_of_another_that_ends_before_anything_was_commanded_leaves_the_node_to_us() {
    let mut cluster = cluster();
    let holder = Holder::new("test", 1).unwrap();
    let lease = |holder: &str| LeaseState {
        holder: holder.to_owned(),
        remaining: Duration::from_secs(1),
        length: Duration::from_secs(2),
        sequence: 1,
    };
    let mut found = |seen: Option<LeaseState>, commanded: bool| {
        for node in &cluster.nodes {
            node.state.change(|state| {
                state.description = Some(Description {
                    envelope: Some(PowerEnvelope {
                        idle: Watts::new(10.0),
                        full: Watts::new(100.0),
                        source: Source::Emulated,
                    }),
                    ..description()
                });
                let sample = Sample {
                    lease: seen.clone(),
                    ..sample(0)
                };
                state.report(sample, commanded, &holder);
            });
        }
        cluster.describe(Duration::ZERO, None).map(|found| found.notes)
    };
    let held = found(Some(lease("before")), false).unwrap_err().to_string();
    assert!(
        held.contains("held by \"before\": stop that controller"),
        "{held}"
    );
    assert!(found(Some(lease("test")), false).unwrap().is_empty());
    found(Some(lease("before")), false).unwrap_err();
    // One that has commanded is told by the answers to its commands.
    found(None, true).unwrap_err();
    assert!(found(None, false).unwrap().is_empty());
}

#[test]
fn a_node_that_is_switched_as_commanded_is_neither_missing_nor_in_trouble() {
    let mut cluster = cluster();
    for (state, power_is_known) in [
        (PowerState::Off, true),
        (PowerState::Booting, false),
        (PowerState::Stopping, false),
    ] {
        let period = period(&mut cluster, [Some(10), None], Some(state));
        assert_eq!(period.missing, Missing::default(), "{state:?}");
        assert_eq!(period.parts[1].state.as_deref(), Some(state.name()));
        assert!(period.parts[1].trouble.is_empty(), "{:?}", period.parts[1]);
        // A machine that boots draws what nobody reads.
        assert_eq!(period.power.is_some(), power_is_known, "{state:?}");
    }
    // Its agent has had time to come back.
    cluster.nodes[1].state.change(|state| state.switched = None);
    let period = period(&mut cluster, [Some(11), None], None);
    assert_eq!(
        (period.missing.nodes, period.missing.cores),
        (1, Cores::new(16.0))
    );
    assert_eq!(period.parts[1].state.as_deref(), Some("unreachable"));
    assert_eq!(period.parts[1].trouble, ["agent.sock cannot be reached"]);
}

#[test]
fn no_period_has_the_joules_of_several() {
    let mut cluster = cluster();
    let mut consumed = |joules, second| {
        let energy = period(&mut cluster, joules, second).energy;
        energy.map(|energy| energy.value.get())
    };
    assert_eq!(consumed([Some(10), Some(10)], None), None, "the first");
    assert_eq!(consumed([Some(70), Some(70)], None), Some(120.0));
    for joules in [130, 190, 250] {
        let energy = consumed([Some(joules), None], Some(PowerState::Stopping));
        assert_eq!(energy, None);
    }
    assert_eq!(consumed([Some(310), None], Some(PowerState::Off)), Some(60.0));
    // A node that was cut off counted on, in periods that are over.
    assert_eq!(consumed([Some(370), Some(400)], None), None);
    assert_eq!(consumed([Some(430), Some(460)], None), Some(120.0));
}

#[test]
fn a_node_that_was_switched_is_neither_missing_nor_in_trouble() {
    let mut machine = ClusterMachine::start(ClusterOptions {
        nodes: vec![("n1".to_owned(), "unix:/nowhere/agent.sock".parse().unwrap())],
        client: ClientOptions::default(),
        holder: Holder::new("test", 1).unwrap(),
        lease: Duration::from_secs(5),
        period: Duration::from_millis(500),
        step: Cores::new(1.0),
    })
    .unwrap();
    let mut observed = |switching: bool, lost: bool| {
        machine.nodes[0].state.change(|state| {
            state.trouble = Some("there is no such socket".to_owned());
            state.lost = lost.then(|| "the agent has ended".to_owned());
        });
        let mut period = DevicePeriod::default();
        period
            .switched
            .extend(switching.then(|| ("n1".to_owned(), PowerState::Booting)));
        machine.observe(&mut period);
        assert_eq!(machine.nodes[0].state.lock().lost, None);
        (period.missing.nodes, period.parts[0].trouble.len(), period.energy)
    };
    assert_eq!(observed(false, true), (1, 1, None));
    // It boots or stops as ordered; what it draws is not known.
    assert_eq!(observed(true, true), (0, 0, None));
    // It serves, and its agent is on its way.
    assert_eq!(observed(false, false), (0, 0, None));
}
