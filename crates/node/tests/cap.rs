//! The software cap on the kernel: the watts of a busy service stay under the cap, and everything is put back.

mod common;

use common::{Drawing, FakeMachine, Running, live_scope, text};
use headroom_node::Roots;
use headroom_node::cap::law::Binding;
use headroom_node::cap::{Event, LimitError, Limiter, LimiterOptions};
use headroom_node::cgroup::Target;
use headroom_node::cpu::UsageMeter;
use headroom_node::power::{Meter, MeterKind, MeterPreference, ModelledMeter, PowerModel};
use headroom_node::restore::Registry;
use headroom_physics::MachineFigures;
use headroom_units::{Cores, Lever, Ratio, Seconds, Setting, Source, Watts};
use std::fs;
use std::time::{Duration, Instant};

const FULL: Ratio = Ratio::new(1.0);

/// A machine whose cores know one idle state, so that what wakes them changes nothing.
fn always_shallow(cores: usize) -> PowerModel {
    let mut machine = MachineFigures::skylake(cores);
    let processor = &mut machine.processor;
    processor.idle_states.truncate(1);
    processor.uncore_asleep = processor.uncore;
    PowerModel::new(machine).unwrap()
}

/// A limiter by the modelled meter.
fn modelled(
    roots: &Roots,
    target: &Target,
    model: PowerModel,
    options: LimiterOptions,
    registry: &Registry,
) -> Result<Limiter, Box<LimitError>> {
    let meter = MeterPreference::one(MeterKind::Model);
    let (limiter, _) = Limiter::open(roots, target, model, meter, options, registry)?;
    Ok(limiter)
}

#[test]
fn a_busy_service_is_held_under_the_cap() {
    let registry = Registry::new();
    let Some(scope) = live_scope(&registry) else {
        return;
    };
    let (roots, target) = (Roots::default(), scope.target());
    let busy = [Running::busy(), Running::busy()];
    busy.iter().for_each(|process| scope.add(process.pid()).unwrap());
    let model = always_shallow(2);
    let options = LimiterOptions::default();
    let (limiter, choice) = Limiter::open(
        &roots,
        target,
        model.clone(),
        MeterPreference::one(MeterKind::Model),
        options,
        &registry,
    )
    .unwrap();
    assert_eq!(choice.chosen.source(), Source::Estimated);
    let cores = Cores::new(1.0);
    let cap = model.power(Cores::new(0.5), FULL);
    let applied = limiter
        .apply(
            Setting::default()
                .with(Lever::Cores, Some(cores.get()))
                .with(Lever::Cap, Some(cap.get())),
        )
        .unwrap();
    assert_eq!(
        (applied.cores, applied.cap, applied.binding),
        (cores, Some(cap), Binding::Cap)
    );
    assert!((applied.effective_quota.get() - 0.5).abs() < 0.01, "{applied:?}");
    let mut meter = ModelledMeter::open(&roots, target, model.clone()).unwrap();
    let mut usage = UsageMeter::open(&roots, target).unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    let sample = meter.sample().unwrap();
    let power = sample.power.unwrap();
    assert_eq!(power.source, Source::Estimated);
    let above_idle = (power.value - model.idle(FULL)).get() / (cap - model.idle(FULL)).get();
    println!(
        "cap {cap:.2}, held at {:.2}: {above_idle:.3} of the room above idle",
        power.value
    );
    assert!(above_idle < 1.1, "{} over the cap of {cap}", power.value);
    // Where the machine left the service enough to run into the quota, the cap is used, not only kept.
    let used = usage.sample().unwrap();
    if used.throttled_periods * 10 >= used.periods * 9 {
        assert!(above_idle > 0.7, "{} far under the cap of {cap}", power.value);
    } else {
        println!("the machine is too busy to tell whether the cap is used: {used:?}");
    }
    let status = limiter.status();
    assert!(
        status.steps > 3 && status.blind_steps == 0 && status.failed_writes == 0,
        "{status:?}"
    );
    assert_eq!(limiter.take_events(), []);

    // Without the cap the allocation alone holds.
    let applied = limiter
        .apply(Setting::default().with(Lever::Cores, Some(cores.get())))
        .unwrap();
    assert_eq!(
        (applied.effective_quota, applied.binding),
        (cores, Binding::Allocation)
    );

    // A cap under the idle power cannot be kept: the floor is left, and it is said.
    limiter
        .apply(
            Setting::default()
                .with(Lever::Cores, Some(cores.get()))
                .with(Lever::Cap, Some((model.idle(FULL) * 0.5).get())),
        )
        .unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    let mut events = Vec::new();
    while Instant::now() < until
        && !events
            .iter()
            .any(|event| matches!(event, Event::CapNotKept { .. }))
    {
        std::thread::sleep(Duration::from_millis(100));
        events.extend(limiter.take_events());
    }
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::CapNotKept { .. })),
        "{events:?}"
    );
    assert_eq!(limiter.status().binding, Binding::Floor);

    drop(limiter);
    let mut usage = UsageMeter::open(&roots, target).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(
        usage.sample().unwrap().throttled_periods,
        0,
        "the limit is lifted"
    );
}

#[test]
fn whole_cpus_follow_the_allocation_down_and_up() {
    let registry = Registry::new();
    let Some(scope) = live_scope(&registry) else {
        return;
    };
    if scope.target().cpuset.is_none() {
        println!("skipped: no cpuset controller for services here");
        return;
    }
    let model = PowerModel::default_for(Cores::new(2.0)).unwrap();
    let options = LimiterOptions {
        cpuset: true,
        ..LimiterOptions::default()
    };
    let limiter = modelled(
        &Roots::default(),
        scope.target(),
        model.clone(),
        options,
        &registry,
    )
    .unwrap();
    let most = limiter.bounds().unwrap().largest;
    for cores in [most, Cores::new(1.0), Cores::new(0.5), most] {
        let applied = limiter
            .apply(Setting::default().with(Lever::Cores, Some(cores.get())))
            .unwrap();
        assert_eq!(
            applied.cpus.as_ref().unwrap().len() as f64,
            cores.get().ceil(),
            "{applied:?}"
        );
        assert_eq!((applied.effective_quota, applied.cores), (cores, cores));
    }
    assert_eq!(limiter.bounds().unwrap().largest, most);
}

#[test]
fn a_lease_that_nobody_renews_gives_everything_back() {
    let fake = FakeMachine::v2();
    let max = fake.v2_group("web").join("cpu.max");
    let target = Target::resolve(&fake.roots(), &"/web".parse().unwrap()).unwrap();
    let registry = Registry::new();
    let model = PowerModel::default_for(Cores::new(4.0)).unwrap();
    let options = LimiterOptions {
        lease: Some(Seconds::new(0.3)),
        ..LimiterOptions::default()
    };
    let limiter = modelled(&fake.roots(), &target, model.clone(), options, &registry).unwrap();
    limiter
        .apply(
            Setting::default()
                .with(Lever::Cores, Some(2.0))
                .with(Lever::Cap, Some(model.limit(Cores::new(1.0)).get())),
        )
        .unwrap();
    let until = Instant::now() + Duration::from_millis(700);
    while Instant::now() < until {
        limiter.renew();
        std::thread::sleep(Duration::from_millis(20));
    }
    let events = limiter.take_events();
    // On a machine so busy that this thread did not run for a whole lease, it may rightly have expired.
    println!("while renewed: {} {events:?}", text(&max));
    let until = Instant::now() + Duration::from_secs(10);
    while text(&max) != "max 10000" && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(text(&max), "max 10000");
    assert!(
        events
            .into_iter()
            .chain(limiter.take_events())
            .any(|event| event == Event::LeaseExpired)
    );
    assert_eq!(limiter.status().binding, Binding::Allocation);
    drop(limiter);
    assert_eq!(text(&max), "max 100000");
}

#[test]
fn a_lost_meter_is_said_once_and_the_model_holds_the_cap() {
    let fake = FakeMachine::v2();
    let group = fake.v2_group("web");
    let zone = |file: &str, text: &str| fake.sys(&format!("class/powercap/intel-rapl:0/{file}"), text);
    zone("name", "package-0\n");
    zone("max_energy_range_uj", "262143328850\n");
    let energy = zone("energy_uj", "1000\n");
    // A counter that stands still is no meter.
    let drawing = Drawing::start(&energy);
    let target = Target::resolve(&fake.roots(), &"/web".parse().unwrap()).unwrap();
    let registry = Registry::new();
    let model = PowerModel::default_for(Cores::new(4.0)).unwrap();
    let options = LimiterOptions {
        step: Seconds::from_millis(10.0),
        ..LimiterOptions::default()
    };
    let (limiter, choice) = Limiter::open(
        &fake.roots(),
        &target,
        model.clone(),
        MeterPreference::Auto,
        options,
        &registry,
    )
    .unwrap();
    assert_eq!(
        (choice.chosen.source(), choice.passed_over.len()),
        (Source::Measured, 0)
    );
    let cores = Cores::new(4.0);
    limiter
        .apply(
            Setting::default()
                .with(Lever::Cores, Some(cores.get()))
                .with(Lever::Cap, Some(model.power(Cores::new(2.0), FULL).get())),
        )
        .unwrap();
    let wait = |wanted: fn(&Event) -> bool| {
        let until = Instant::now() + Duration::from_secs(10);
        let mut seen = Vec::new();
        while Instant::now() < until && !seen.iter().any(wanted) {
            std::thread::sleep(Duration::from_millis(20));
            seen.extend(limiter.take_events());
        }
        assert!(seen.iter().any(wanted), "{seen:?}");
        seen
    };
    drop(drawing);
    fs::remove_file(&energy).unwrap();
    let events = wait(|event| matches!(event, Event::MeterLost { .. }));
    assert_eq!(events.len(), 1, "{events:?}");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(limiter.take_events(), [], "said once");
    let quota: f64 = text(group.join("cpu.max"))
        .split_once(' ')
        .unwrap()
        .0
        .parse()
        .unwrap();
    assert!(quota <= 20_000.0, "never more than the model says: {quota}");
    fs::write(&energy, "2000\n").unwrap();
    wait(|event| matches!(event, Event::MeterBack));
}

#[test]
fn a_group_that_vanishes_under_the_cap_is_reported_and_nothing_panics() {
    let registry = Registry::new();
    let Some(mut scope) = live_scope(&registry) else {
        return;
    };
    let model = PowerModel::default_for(Cores::new(2.0)).unwrap();
    let options = LimiterOptions::default();
    let limiter = modelled(
        &Roots::default(),
        scope.target(),
        model.clone(),
        options,
        &registry,
    )
    .unwrap();
    let cap = Some(model.power(Cores::new(0.5), FULL));
    limiter
        .apply(
            Setting::default()
                .with(Lever::Cores, Some(1.0))
                .with(Lever::Cap, cap.map(Watts::get)),
        )
        .unwrap();
    scope.remove();
    let error = limiter
        .apply(
            Setting::default()
                .with(Lever::Cores, Some(0.7))
                .with(Lever::Cap, cap.map(Watts::get)),
        )
        .unwrap_err()
        .to_string();
    assert!(error.contains("removed"), "{error}");
    std::thread::sleep(Duration::from_millis(200));
    let events = limiter.take_events();
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::MeterLost { .. })),
        "{events:?}"
    );
    drop(limiter);
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    let fake = FakeMachine::v2();
    fake.v2_group("web");
    let target = Target::resolve(&fake.roots(), &"/web".parse().unwrap()).unwrap();
    let model = PowerModel::default_for(Cores::new(4.0)).unwrap();
    let good = LimiterOptions::default();
    let cap = |floor: f64, tau: f64| headroom_node::cap::CapOptions {
        floor: Cores::new(floor),
        time_constant: Seconds::new(tau),
    };
    for (options, word) in [
        (
            LimiterOptions {
                step: Seconds::ZERO,
                ..good
            },
            "step",
        ),
        (
            LimiterOptions {
                cap: cap(0.0, 0.2),
                ..good
            },
            "floor",
        ),
        (
            LimiterOptions {
                cap: cap(0.1, f64::NAN),
                ..good
            },
            "time constant",
        ),
        (
            LimiterOptions {
                lease: Some(Seconds::new(-1.0)),
                ..good
            },
            "lease",
        ),
    ] {
        let opened = modelled(&fake.roots(), &target, model.clone(), options, &Registry::new());
        assert!(opened.unwrap_err().to_string().contains(word));
    }
}
