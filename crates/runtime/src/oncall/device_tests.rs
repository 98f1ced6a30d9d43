use super::*;

#[derive(Default)]
struct Fixed(u64);

impl Costs for Fixed {
    fn read(&mut self) -> Cost {
        self.0 += 1000;
        Cost {
            instructions: Some(self.0),
            long_idle: Some(Ratio::new(0.5)),
            ..Cost::default()
        }
    }
}

fn device(folder: &std::path::Path) -> (OncallDevice, Arc<Steering>) {
    let steering = Arc::new(Steering::create(&folder.join("region")).unwrap());
    let options = OncallOptions {
        name: "mariadbd".to_owned(),
        linger: Duration::from_micros(200),
        lease: Duration::from_secs(5),
        cores: Some(2),
        cpus: vec![3, 5],
        classes: Vec::new().into(),
        each: false,
    };
    (
        OncallDevice::new(Arc::clone(&steering), options, Box::<Fixed>::default()),
        steering,
    )
}

#[test]
fn laws_and_library_have_the_same_bounds() {
    use headroom_control::oncall::law::{AreasTuning, OnCall, OncallTuning, Reef, ReefTuning};
    use headroom_control::oncall::policy::{MAX_TOKENS, MAX_WAIT, MAX_YIELD};
    use headroom_control::{Plant, Slo};
    use headroom_oncall::layout::{AREAS, MAX_CONNECTIONS, SPARED_QUERIES, STARVED_NS, YIELDED_NS};
    use headroom_units::Cores;
    let nanoseconds = |of: Seconds| (of.get() * 1e9) as u64;
    assert_eq!(
        (nanoseconds(MAX_WAIT), nanoseconds(MAX_YIELD)),
        (STARVED_NS, YIELDED_NS)
    );
    assert_eq!(u32::try_from(SPARED_QUERIES), Ok(MAX_TOKENS));
    let areas = |count: usize| OncallTuning {
        areas: AreasTuning {
            count: count as u32,
            ..AreasTuning::default()
        },
        ..OncallTuning::default()
    };
    let slo = Slo::new(Ratio::from_percent(99.0), Seconds::from_millis(50.0)).unwrap();
    let plant = Plant::left_alone(Cores::new(2.0));
    let may = |tuning| OnCall::new(slo, plant, None, tuning).is_ok();
    assert!(may(areas(AREAS)) && !may(areas(AREAS + 1)));
    let workers = |workers: usize| ReefTuning {
        concurrency: Some(workers as u32),
        ..ReefTuning::default()
    };
    let may = |tuning: &ReefTuning| Reef::new(slo, plant, None, tuning).is_ok();
    assert!(may(&workers(MAX_CONNECTIONS)) && !may(&workers(MAX_CONNECTIONS + 1)));
}

#[test]
fn a_server_that_cut_its_region_short_is_said_to_be_commanded_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let (mut device, steering) = device(folder.path());
    let setting = Setting::from([(Lever::Concurrency, 3.0)]);
    device.apply(&mut Decision::of(setting)).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(steering.path());
    file.unwrap().set_len(0).unwrap();
    device.observe(&mut DevicePeriod::default());
    let error = device.apply(&mut Decision::of(setting)).unwrap_err().to_string();
    assert!(
        error.contains("region") && error.contains("cut it short"),
        "{error}"
    );
    assert_eq!(device.in_force(), Setting::default());
}

#[test]
fn areas_that_cannot_be_leave_the_levers_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let (mut device, steering) = device(folder.path());
    let setting = Setting::from([(Lever::Concurrency, 3.0)]);
    let too_many = CoreArea {
        cores: 9,
        ..CoreArea::default()
    };
    let mut decision = Decision {
        areas: vec![too_many],
        ..Decision::of(setting)
    };
    assert!(device.apply(&mut decision).is_err());
    assert!(steering.commanded().enabled && steering.commanded().concurrency == 3);
    assert_eq!(device.in_force(), setting);
}

#[test]
fn a_setting_is_in_force_until_nothing_is_limited() {
    let folder = tempfile::tempdir().unwrap();
    let (mut device, steering) = device(folder.path());
    let setting = Setting::from([
        (Lever::Concurrency, 3.0),
        (Lever::QueryBatch, 8.0),
        (Lever::RoundDelay, 0.002),
    ]);
    // What is of others is left to them.
    let all = setting.with(Lever::Cores, Some(2.0));
    device.apply(&mut Decision::of(all)).unwrap();
    assert_eq!(device.in_force(), setting);
    let commanded = steering.commanded();
    assert_eq!(
        (commanded.enabled, commanded.concurrency, commanded.batch),
        (true, 3, 8)
    );
    assert_eq!(
        (commanded.delay, commanded.linger),
        (Duration::from_millis(2), Duration::from_micros(200))
    );
    let alone = setting.with(Lever::QueryBatch, Some(1.0));
    device.apply(&mut Decision::of(alone)).unwrap();
    assert_eq!(steering.commanded().linger, Duration::ZERO);
    device.apply(&mut Decision::of(Setting::default())).unwrap();
    assert!(!steering.commanded().enabled && device.in_force().is_empty());
}

#[test]
fn what_came_of_classes_that_were_read_again_is_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (mut device, _steering) = device(folder.path());
    let mut decision = Decision::of(Setting::default());
    device.apply(&mut decision).unwrap();
    assert_eq!(decision.reasons, []);
    device
        .options
        .classes
        .tell("class gold: P99 2 ms (was P99 4 ms)".to_owned());
    device.apply(&mut decision).unwrap();
    let reason = &decision.reasons[0];
    assert_eq!(
        (&*reason.rule, reason.text.as_str()),
        ("oncall-classes", "class gold: P99 2 ms (was P99 4 ms)")
    );
}

#[test]
fn what_was_counted_since_is_of_the_period() {
    let folder = tempfile::tempdir().unwrap();
    let (mut device, _steering) = device(folder.path());
    let mut period = DevicePeriod::default();
    device.observe(&mut period);
    let oncall = period.oncall.unwrap();
    assert_eq!((oncall.instructions, oncall.context_switches), (Some(1000), None));
    assert_eq!(
        (oncall.long_idle, oncall.waiting_least, oncall.asking),
        (Some(Ratio::new(0.5)), Some(0), Some(0.0))
    );
    assert_eq!(period.parts[0].state.as_deref(), Some("not on call"));
}

#[test]
fn a_server_without_a_client_is_not_said_to_be_on_call() {
    let folder = tempfile::tempdir().unwrap();
    let (mut device, _steering) = device(folder.path());
    let mut decision = Decision::of(Setting::from([(Lever::Concurrency, 2.0)]));
    device.apply(&mut decision).unwrap();
    let mut period = DevicePeriod::default();
    device.observe(&mut period);
    assert_eq!(period.parts[0].state.as_deref(), Some(NO_CLIENT));
    for (owner, event_driven, state) in [(0, 3, BY_EVENTS), (7, 0, "on call"), (7, 3, "on call")] {
        (device.before.0.owner, device.before.0.event_driven) = (owner, event_driven);
        assert_eq!(device.state(), state);
    }
}

#[test]
fn a_server_whose_process_has_ended_is_not_said_to_be_on_call_until_another_is() {
    let folder = tempfile::tempdir().unwrap();
    let (mut device, _steering) = device(folder.path());
    let mut part = |owner_ended| {
        (device.before.0.owner, device.before.0.owner_ended) = (7, owner_ended);
        device.in_force = Setting::from([(Lever::Concurrency, 2.0)]);
        let mut period = DevicePeriod::default();
        device.parts(&mut period, &OncallObservation::default(), Seconds::new(1.0));
        let part = period.parts.remove(0);
        let workers = part.get(Lever::Concurrency);
        (part.state.unwrap(), workers, part.trouble.join("; "))
    };
    assert_eq!(part(false), ("on call".to_owned(), Some(2.0), String::new()));
    let (state, workers, trouble) = part(true);
    assert_eq!((state.as_str(), workers), (ENDED, None));
    assert!(
        UNHELPED.contains(&state.as_str()) && trouble.contains("(pid 7)"),
        "{trouble}"
    );
}

#[test]
fn connections_of_other_processes_are_told_of_until_these_are_on_call() {
    let folder = tempfile::tempdir().unwrap();
    let (mut device, _steering) = device(folder.path());
    let mut trouble = |elsewhere, before| {
        (device.before.0.owner, device.before.0.elsewhere) = (7, elsewhere);
        device.elsewhere = before;
        let mut period = DevicePeriod::default();
        device.parts(&mut period, &OncallObservation::default(), Seconds::new(1.0));
        period.parts.remove(0).trouble.join("; ")
    };
    assert_eq!(trouble(0, 0), "");
    assert!(trouble(12, 0).contains("12 connections have come to other processes than pid 7"));
    assert_eq!(trouble(12, 12), "");
}

#[test]
fn a_class_says_whether_it_kept_its_slos_and_of_none_without_queries() {
    let class = |queries, missed| ClassObservation {
        name: "gold".to_owned(),
        connections: 4,
        queries,
        latency: Some([1.0, 2.0, 3.0, 4.0].map(Seconds::from_millis)),
        targets: [
            Some(Seconds::from_millis(20.0)),
            None,
            Some(Seconds::from_millis(60.0)),
        ],
        missed,
        stalled: 0,
    };
    let part = |queries, missed| part_of(&class(queries, missed), Seconds::new(0.5));
    for (queries, missed, state) in [(9, 0, "kept"), (9, 2, "missed"), (0, 2, "no queries")] {
        assert_eq!(part(queries, missed).state.as_deref(), Some(state));
    }
    let stalled = ClassObservation {
        stalled: 1,
        ..class(0, 1)
    };
    let stalled = part_of(&stalled, Seconds::new(0.5));
    assert_eq!(stalled.state.as_deref(), Some("missed"));
    let gold = part(9, 2);
    let values = [
        (Sensor::ServiceRate, Some(18.0)),
        (Sensor::LatencyP95, Some(0.002)),
        (Sensor::LatencyP999, Some(0.004)),
        (Sensor::TargetP95, Some(0.02)),
        (Sensor::TargetP99, None),
        (Sensor::TargetP999, Some(0.06)),
        (Sensor::MissedSlo, Some(2.0)),
    ];
    for (sensor, value) in values {
        assert_eq!(gold.get(sensor), value, "{sensor:?}");
    }
    // Without an SLO there is nothing to keep.
    let rest = ClassObservation {
        targets: [None; 3],
        ..class(9, 0)
    };
    assert_eq!(part_of(&rest, Seconds::new(0.5)).state, None);
}

#[test]
fn areas_have_the_processors_in_their_order_and_end_with_the_decision() {
    let folder = tempfile::tempdir().unwrap();
    let (mut device, steering) = device(folder.path());
    let area = |name: &str, cores, workers| CoreArea {
        name: name.to_owned(),
        cores,
        workers,
        ..CoreArea::default()
    };
    let divided = |areas: Vec<CoreArea>| Decision {
        areas,
        ..Decision::of(Setting::from([(Lever::Concurrency, 3.0)]))
    };
    let two = vec![
        area("hot", 1, Some(1)),
        area("cold", 0, None),
        area("warm", 1, None),
    ];
    device.apply(&mut divided(two)).unwrap();
    let of = |cpu, workers| AreaCores {
        cpus: vec![cpu],
        workers,
    };
    assert_eq!(steering.divided(), [of(3, Some(1)), of(5, None)]);
    // What no machine can have changes nothing.
    let much = device.apply(&mut divided(vec![area("hot", 3, None)]));
    assert!(
        much.unwrap_err()
            .to_string()
            .contains("3 cores together, and there are 2")
    );
    assert_eq!(steering.divided().len(), 2);
    device.apply(&mut divided(Vec::new())).unwrap();
    assert_eq!(steering.divided(), []);
}

#[test]
fn a_pause_is_carried_out() {
    let grant = Grant {
        id: 1,
        tokens: 4,
        share: 0.5,
        again: true,
        yields: true,
        retry: Seconds::from_millis(20.0),
    };
    let expected = Turns {
        batch: Some(2),
        yields: true,
        rests: false,
        pause: Duration::from_millis(20),
    };
    assert_eq!(turns(&grant), expected);
}

#[test]
fn a_place_is_read_back_from_its_name() {
    let name = (3_u64 << 32) | 17;
    assert_eq!(place(name), (3, 17));
}
