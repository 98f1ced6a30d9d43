use super::*;
use headroom_units::{Cores, Hertz, Lever, LeverRange, Ratio, Reading, Seconds, Source, Watts};
use proptest::prelude::*;
use prost::Message as _;

fn sources() -> impl Strategy<Value = Source> {
    prop_oneof![
        Just(Source::Measured),
        Just(Source::Estimated),
        Just(Source::Emulated),
        Just(Source::Simulated)
    ]
}

fn settings() -> impl Strategy<Value = Setting> {
    proptest::collection::vec(proptest::option::of(0.0..1e10f64), Lever::ALL.len()).prop_map(|values| {
        let all = Lever::ALL.into_iter().zip(values);
        all.fold(Setting::default(), |all, (lever, value)| all.with(lever, value))
    })
}

fn leases() -> impl Strategy<Value = LeaseState> {
    ("[ -~]{1,64}", 0..1u64 << 40, 0..1u64 << 40, any::<u64>()).prop_map(
        |(holder, left, length, sequence)| LeaseState {
            holder,
            remaining: Duration::from_millis(left),
            length: Duration::from_millis(length),
            sequence,
        },
    )
}

fn energies() -> impl Strategy<Value = EnergySample> {
    (sources(), any::<u64>(), proptest::option::of(0.0..1e5f64))
        .prop_map(|(source, uj, power)| EnergySample::new(source, Microjoules(uj), power.map(Watts::new)))
}

fn cpus() -> impl Strategy<Value = CpuSample> {
    (0..1u64 << 50, 0.0..1e4f64, 0..1u64 << 50, 0.0..=1.0f64).prop_map(|(usage, busy, throttled, share)| {
        CpuSample {
            usage: Duration::from_micros(usage),
            busy: Cores::new(busy),
            throttled: Duration::from_micros(throttled),
            throttled_share: Ratio::new(share),
        }
    })
}

prop_compose! {
    fn oncalls()(
        server in "[a-z.-]{1,64}",
        now in proptest::option::of((
            any::<[u32; 4]>(), proptest::option::of(0..1u64 << 40), 0..MAX_COUNT,
            proptest::option::of(0..1u64 << 40), 1..1024u32,
        )),
        counts in proptest::array::uniform7(0..=MAX_COUNT),
        switches in proptest::option::of(0..=MAX_COUNT),
        latencies in proptest::collection::btree_map(0..1u64 << 40, 0..=MAX_COUNT, 0..20),
    ) -> OnCallSample {
        let [arrivals, queries, failures, rounds, given_back, one, two] = counts;
        OnCallSample {
            server,
            now: now
                .map(|([connections, running, waiting, waiting_least], oldest, in_flight, age, cores)| OnCallNow {
                    connections,
                    running,
                    waiting,
                    waiting_least,
                    oldest_waiting: oldest.map(Duration::from_micros),
                    in_flight,
                    oldest_in_flight: age.map(Duration::from_micros),
                    cores,
                    asking_thousandths: age.map(|us| us as u32),
                })
                .ok_or_else(|| "nobody is there".to_owned()),
            counters: OnCallCounters {
                arrivals,
                queries,
                failures,
                rounds,
                given_back,
                context_switches: switches,
                measured: Duration::from_micros(one.max(two)),
                long_idle: Duration::from_micros(one.min(two)),
                latencies: latencies.into_iter().collect(),
            },
        }
    }
}

prop_compose! {
    fn works()(
        times in (0..1u64 << 50, 0..1u64 << 50, 0..1u64 << 50),
        links in proptest::collection::vec(
            ("[a-z0-9]{1,15}", any::<u64>(), any::<u64>(), proptest::option::of(0.0..1e12f64)),
            0..=MAX_LINKS,
        ),
    ) -> MachineWork {
        let link = |(name, received, sent, bits_per_s)| LinkWork { name, received, sent, bits_per_s };
        MachineWork {
            at: Duration::from_micros(times.0),
            busy: Duration::from_micros(times.1),
            softirq: Duration::from_micros(times.2),
            links: links.into_iter().map(link).collect(),
        }
    }
}

prop_compose! {
    fn samples()(
        numbers in (any::<u64>(), any::<u64>(), 0..1u64 << 50, 0..1u64 << 40),
        cpu in proptest::option::of(cpus()),
        machine_utilisation in proptest::option::of(0.0..=1.0f64),
        zones in proptest::collection::vec(("[a-z0-9-]{1,12}", any::<bool>(), energies()), 0..6),
        energy in proptest::option::of(energies()),
        frequency in proptest::option::of((0.0..1e10f64, sources())),
        in_force in settings(),
        lease in proptest::option::of(leases()),
        troubles in proptest::collection::vec(".{0,40}", 0..MAX_TROUBLES),
        usable in proptest::option::of(0.0..1e4f64),
        refused in proptest::option::of(("[a-z]{1,8}", any::<u64>())),
        oncall in proptest::option::of(oncalls()),
        work in proptest::option::of(works()),
    ) -> Sample {
        Sample {
            number: numbers.0,
            agent_run: numbers.1,
            uptime: Duration::from_micros(numbers.2),
            period: Duration::from_micros(numbers.3),
            cpu,
            machine_utilisation: machine_utilisation.map(Ratio::new),
            zones: zones
                .into_iter()
                .map(|(name, in_total, energy)| ZoneSample { name, in_total, energy })
                .collect(),
            energy,
            frequency: frequency.map(|(hertz, source)| Reading::new(Hertz::new(hertz), source)),
            in_force,
            lease,
            troubles,
            usable: usable.map(Cores::new),
            refused: refused.map(|(meter, count)| RefusedReadings { meter, count }),
            oncall,
            work,
        }
    }
}

/// Through the bytes of the wire and back.
fn there_and_back<M: prost::Message + Default>(message: M) -> M {
    M::decode(message.encode_to_vec().as_slice()).unwrap()
}

pub(crate) fn description() -> Description {
    Description {
        agent_version: "0.1.0".into(),
        agent_run: 7,
        node: Node {
            name: "n1".into(),
            cores_online: 16,
            kernel: "6.18".into(),
            ..Node::default()
        },
        service: "/sys/fs/cgroup/web".into(),
        ranges: Ranges::default()
            .with(Lever::Cores, Ok(LeverRange::between(0.1, 16.0)))
            .with(
                Lever::Frequency,
                Ok(LeverRange {
                    min: 0.8e9,
                    max: 2.1e9,
                    step: 1e8,
                    delay: Seconds::from_millis(20.0),
                }),
            )
            .with(
                Lever::Cap,
                Err(NoLever {
                    reason: "no RAPL".into(),
                    remedy: "use the software cap".into(),
                }),
            ),
        devices: vec![Device {
            name: "rapl limit".into(),
            usable: false,
            in_use: false,
            reason: "no powercap directory".into(),
            remedy: "use the software cap".into(),
        }],
        meters: vec![Meter {
            name: "modelled".into(),
            usable: true,
            in_use: true,
            source: Source::Estimated.to_string(),
            reason: "a model of the machine".into(),
            remedy: String::new(),
        }],
        envelope: Some(PowerEnvelope {
            idle: Watts::new(40.0),
            full: Watts::new(92.0),
            source: Source::Estimated,
        }),
        lease_ms: Range::new(1000.0, 300_000.0),
        observe_period_ms: Range::new(10.0, 60_000.0),
        queue_period_ms: Some(Range::new(10.0, 60_000.0)),
        cpu_groups: Some(vec!["cgroup /web".into()]),
        source: Source::Estimated,
        in_force: Setting::default(),
        lease: Some(LeaseState {
            holder: "c".into(),
            remaining: Duration::from_millis(4200),
            length: Duration::from_secs(5),
            sequence: 3,
        }),
        oncall: Some(OnCallServer {
            name: "db".into(),
            break_even: Seconds::from_millis(0.6),
        }),
    }
}

#[test]
fn a_description_survives_the_wire() {
    let message = there_and_back(proto::Description::from(description()));
    assert_eq!(Description::try_from(message), Ok(description()));
}

#[test]
fn another_revision_of_the_contract_is_refused_with_a_remedy() {
    let message = proto::Description {
        protocol: 2,
        ..description().into()
    };
    let error = Description::try_from(message).unwrap_err().to_string();
    assert_eq!(
        error,
        "protocol is 2: expected 1: run one version of headroom on both ends"
    );
}

#[test]
fn a_description_without_its_parts_is_refused() {
    let whole = proto::Description::from(description());
    type Spoil = fn(&mut proto::Description);
    let spoilt: [(&str, Spoil); 6] = [
        ("oncall.break_even_us", |it| {
            it.oncall.as_mut().unwrap().break_even_us = f64::NAN
        }),
        ("node", |it| it.node = None),
        ("lease_ms", |it| it.lease_ms = None),
        ("observe_period_ms", |it| it.observe_period_ms = None),
        ("in_force", |it| it.in_force = None),
        ("source", |it| it.source = 0),
    ];
    for (field, spoil) in spoilt {
        let mut broken = whole.clone();
        spoil(&mut broken);
        assert_eq!(Description::try_from(broken).unwrap_err().field, field);
    }
    let mut crossed = whole;
    crossed.ranges[0].range = Some(Range {
        minimum: 2.0,
        maximum: 1.0,
        step: 0.0,
    });
    assert_eq!(Description::try_from(crossed).unwrap_err().field, "range.maximum");
}

fn levers(values: &[(&str, f64)]) -> proto::Setting {
    let each = |(lever, value): &(&str, f64)| LeverSetting {
        lever: (*lever).into(),
        value: *value,
    };
    proto::Setting {
        levers: values.iter().map(each).collect(),
    }
}

#[test]
fn a_lever_of_a_newer_peer_is_refused_by_name() {
    let refused = |message: proto::Setting| Setting::try_from(message).unwrap_err().to_string();
    let unknown = refused(levers(&[("cores", 1.0), ("turbo", 1.0)]));
    assert!(
        unknown
            .starts_with("setting.lever is \"turbo\": expected a lever that this version knows (cores, cap"),
        "{unknown}"
    );
    assert!(
        unknown.ends_with("run one version of headroom on both ends"),
        "{unknown}"
    );
    let twice = refused(levers(&[("cores", 1.0), ("cores", 2.0)]));
    assert_eq!(
        twice,
        "setting.lever is \"cores\" twice: expected each lever once"
    );
    let mut description = proto::Description::from(description());
    description.ranges[0].lever = "turbo".into();
    let error = Description::try_from(description).unwrap_err();
    assert_eq!(
        (error.field.as_str(), error.value.as_str()),
        ("ranges.lever", "\"turbo\"")
    );
}

#[test]
fn a_setting_outside_the_ranges_is_refused_with_the_value_and_the_range() {
    let ranges = description().ranges;
    let check = |lever, value| {
        let checked = ranges.check(&Setting::default().with(lever, Some(value)));
        checked.map_err(|refusal| refusal.to_string())
    };
    assert_eq!(check(Lever::Cores, 16.0), Ok(()));
    assert_eq!(ranges.check(&Setting::default()), Ok(()));
    for (lever, value, words) in [
        (Lever::Cores, 17.0, "cores is 17 cores, outside 0.1 to 16 cores"),
        (
            Lever::Cap,
            50.0,
            "this node cannot set cap: no RAPL; use the software cap",
        ),
        (
            Lever::Frequency,
            5e8,
            "frequency is 500000000 hertz, outside 800000000 to 2100000000 hertz",
        ),
        (
            Lever::Servers,
            1.0,
            "this node cannot set servers: it has no such lever",
        ),
    ] {
        assert_eq!(check(lever, value), Err(words.to_owned()));
    }
}

#[test]
fn an_apply_without_numbers_is_refused() {
    let good = proto::ApplyRequest {
        holder: "controller".into(),
        lease_id: 9,
        sequence: 1,
        lease_ms: 5000,
        setting: Some(levers(&[("cores", 2.0), ("cap", 60.0), ("frequency", 1.2e9)])),
    };
    assert!(Apply::try_from(good.clone()).is_ok());
    type Spoil = fn(&mut proto::ApplyRequest);
    let spoilt: [(&str, Spoil); 8] = [
        ("setting.cores", |it| {
            it.setting = Some(levers(&[("cores", f64::NAN)]))
        }),
        ("setting.cores", |it| {
            it.setting = Some(levers(&[("cores", -1.0)]))
        }),
        ("setting.cap", |it| {
            it.setting = Some(levers(&[("cap", f64::INFINITY)]))
        }),
        ("setting", |it| it.setting = None),
        ("lease_id", |it| it.lease_id = 0),
        ("holder", |it| it.holder.clear()),
        ("holder", |it| it.holder = "x".repeat(65)),
        ("holder", |it| it.holder = "a\nb".into()),
    ];
    for (field, spoil) in spoilt {
        let mut bad = good.clone();
        spoil(&mut bad);
        assert_eq!(Apply::try_from(bad).unwrap_err().field, field);
    }
}

#[test]
fn a_range_holds_its_ends_and_no_nan() {
    let range = Range::new(40.0, 92.0);
    assert!(range.contains(40.0) && range.contains(92.0));
    assert!(!range.contains(39.9) && !range.contains(92.1) && !range.contains(f64::NAN));
}

#[test]
fn a_list_beyond_its_limit_is_refused() {
    let sample = proto::Sample {
        in_force: Some(proto::Setting::default()),
        troubles: vec![String::new(); MAX_TROUBLES + 1],
        ..proto::Sample::default()
    };
    assert_eq!(
        Sample::try_from(sample).unwrap_err().to_string(),
        "troubles is 17 long: expected at most 16"
    );
}

#[test]
fn a_lease_that_lives_never_reads_zero() {
    let lease = LeaseState {
        holder: "c".into(),
        remaining: Duration::from_micros(10),
        length: Duration::from_secs(1),
        sequence: 1,
    };
    assert_eq!(proto::LeaseState::from(lease).remaining_ms, 1);
}

proptest! {
    #[test]
    fn a_sample_survives_the_wire(sample in samples()) {
        let message = there_and_back(proto::Sample::from(sample.clone()));
        prop_assert_eq!(Sample::try_from(message), Ok(sample));
    }

    #[test]
    fn an_apply_survives_the_wire(
        name in "[ -~]{1,64}", id in 1..u64::MAX, sequence: u64, ms in 0..1u64 << 40, setting in settings(),
    ) {
        let length = Duration::from_millis(ms);
        let apply = Apply { holder: Holder::new(name, id).unwrap(), sequence, length, setting };
        let message = there_and_back(proto::ApplyRequest::from(apply.clone()));
        prop_assert_eq!(Apply::try_from(message), Ok(apply));
    }

    #[test]
    fn answers_survive_the_wire(
        in_force in settings(), lease in leases(), us in 0..1u64 << 50, was_held: bool,
        notes in proptest::collection::vec(".{0,20}", 0..8),
    ) {
        let applied = Applied { in_force, lease, took: Duration::from_micros(us), notes: notes.clone() };
        prop_assert_eq!(Applied::try_from(there_and_back(proto::Applied::from(applied.clone()))), Ok(applied));
        let released = Released { was_held, in_force, notes };
        prop_assert_eq!(Released::try_from(there_and_back(proto::Released::from(released.clone()))), Ok(released));
    }

    #[test]
    fn any_bytes_decode_to_a_checked_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(message) = proto::ApplyRequest::decode(bytes.as_slice())
            && let Ok(apply) = Apply::try_from(message)
        {
            prop_assert!(apply.setting.iter().all(|(_, value)| value.is_finite() && value >= 0.0));
            prop_assert!(apply.holder.lease_id() != 0);
        }
        if let Ok(message) = proto::Sample::decode(bytes.as_slice()) {
            let _ = Sample::try_from(message);
        }
    }
}
