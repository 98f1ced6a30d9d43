//! The limiter with a hardware lever: the same allocation means the same, whatever holds the cap.

use super::{Bench, wait_for};
use crate::testing::says;
use headroom_node::cap::law::Binding;
use headroom_node::cap::{Event, Limiter, LimiterOptions};
use headroom_node::limit::{LeverKind, LeverPreference};
use headroom_node::power::{Meter, MeterPreference, PowerModel, RaplMeter};
use headroom_node::restore::Registry;
use headroom_testbed::hardware::config::{RaplConfig, Zones};
use headroom_testbed::hardware::{HardwareConfig, Operation};
use headroom_units::{Cores, Lever, Setting, Source, Watts};
use rustix::io::Errno;
use std::time::Duration;

fn limiter(bench: &Bench, lever: LeverPreference, meter: MeterPreference, registry: &Registry) -> Limiter {
    let model = PowerModel::default_for(Cores::new(16.0)).unwrap();
    let options = LimiterOptions {
        lever,
        ..LimiterOptions::default()
    };
    let opened = Limiter::open(&bench.roots(), &bench.target(), model, meter, options, registry);
    let (limiter, _) = opened.unwrap();
    limiter
}

fn all(cap: Option<f64>) -> Setting {
    Setting::default()
        .with(Lever::Cores, Some(16.0))
        .with(Lever::Cap, cap)
}

/// The usual machine under full load, and a limiter on it.
fn usual(lever: LeverPreference, meter: MeterPreference) -> Option<(Bench, Registry, Limiter)> {
    let bench = Bench::usual()?;
    bench.load(16.0);
    let registry = Registry::new();
    let limiter = limiter(&bench, lever, meter, &registry);
    // In this order, so that the limiter goes before its machine.
    Some((bench, registry, limiter))
}

/// Waits until an event is told; all of them until then.
fn events_until(limiter: &Limiter, what: &str, is_it: impl Fn(&Event) -> bool) -> Vec<Event> {
    let mut events = Vec::new();
    wait_for(what, || {
        events.extend(limiter.take_events());
        events.iter().any(&is_it)
    });
    events
}

/// The mean over a second and a half, as the counters have it, comes under the cap, and not far under it.
fn holds(bench: &Bench, limiter: &Limiter, cap: f64) {
    // Without real processes nothing is throttled, so the software cap has no reason to give more than the model says.
    let least = match limiter.status().lever {
        LeverKind::Software => 0.0,
        _ => cap * 0.9,
    };
    let mut meter = RaplMeter::open(&bench.roots()).unwrap();
    wait_for("the power to come under the cap, and near it", || {
        let before = meter.sample().unwrap();
        std::thread::sleep(Duration::from_millis(1_500));
        let after = meter.sample().unwrap();
        let mean = ((after.energy.value - before.energy.value) / after.elapsed).get();
        println!("{mean:.1} W at a cap of {cap} W");
        (least..cap * 1.02).contains(&mean)
    });
}

#[test]
fn a_cap_is_held_by_rapl_by_hsmp_by_frequency_and_by_quota_alike() {
    let amd = HardwareConfig {
        rapl: RaplConfig {
            zones: Zones::Amd,
            ..RaplConfig::default()
        },
        ..HardwareConfig::default()
    };
    for (config, lever, kind) in [
        (HardwareConfig::default(), LeverPreference::Auto, LeverKind::Rapl),
        (amd, LeverPreference::Auto, LeverKind::Hsmp),
        (
            HardwareConfig::default(),
            "frequency".parse().unwrap(),
            LeverKind::Frequency,
        ),
        (
            HardwareConfig::default(),
            LeverPreference::one(LeverKind::Software),
            LeverKind::Software,
        ),
    ] {
        let Some(bench) = Bench::new(config) else { return };
        bench.load(16.0);
        let registry = Registry::new();
        let limiter = limiter(&bench, lever, MeterPreference::Auto, &registry);
        assert_eq!(limiter.lever().chosen, kind, "{}", limiter.lever());
        let applied = limiter.apply(all(Some(70.0))).unwrap();
        assert_eq!((applied.cap, applied.lever), (Some(Watts::new(70.0)), kind));
        holds(&bench, &limiter, 70.0);
        let status = limiter.status();
        assert_eq!(status.power.unwrap().source, Source::Emulated);
        assert_eq!(status.lever, kind);
        assert_eq!(
            status.quota < Cores::new(16.0),
            kind == LeverKind::Software,
            "{status:?}"
        );
        if kind != LeverKind::Software {
            wait_for("the cap to be what binds", || {
                limiter.status().binding == Binding::Cap
            });
        }
        let fastest = || bench.read("devices/system/cpu/cpufreq/policy5/scaling_max_freq");
        if kind == LeverKind::Frequency {
            assert!(fastest().parse::<u64>().unwrap() < 2_000_000, "{}", fastest());
        } else if kind != LeverKind::Software {
            // The cap is on what the meter counts, memory included; the packages get what is left.
            let limit = status.hardware_limit.unwrap().get();
            assert!((60.0..=70.0).contains(&limit), "{status:?}");
        }
        assert_eq!(limiter.take_events(), [], "{kind}");
        let applied = limiter.apply(all(None)).unwrap();
        assert_eq!(
            (applied.effective_quota, applied.binding),
            (Cores::new(16.0), Binding::Allocation)
        );
        assert_eq!(
            fastest(),
            bench.read("devices/system/cpu/cpufreq/policy5/cpuinfo_max_freq")
        );
        drop(limiter);
    }
}

#[test]
fn what_the_lowest_frequency_leaves_over_a_cap_is_left_to_the_quota_and_all_is_put_back() {
    let Some(bench) = Bench::usual() else { return };
    bench.load(16.0);
    let policy = |file: &str| bench.read(&format!("devices/system/cpu/cpufreq/policy9/{file}"));
    let found = (policy("scaling_min_freq"), policy("scaling_max_freq"));
    let registry = Registry::new();
    let limiter = limiter(
        &bench,
        "frequency".parse().unwrap(),
        MeterPreference::one(headroom_node::power::MeterKind::Model),
        &registry,
    );
    limiter.apply(all(Some(1.0))).unwrap();
    wait_for("the quota to be taken as well", || {
        policy("scaling_max_freq") == policy("cpuinfo_min_freq")
            && limiter.status().quota < Cores::new(1.0)
            && limiter.status().binding == Binding::Floor
    });
    // An allocation's own limit holds beside the cap's, and is what is told.
    let applied = limiter
        .apply(all(Some(500.0)).with(Lever::Frequency, Some(1.5e9)))
        .unwrap();
    assert_eq!(applied.frequency, Some(headroom_units::Hertz::new(1.5e9)));
    wait_for("the allocation's limit alone to hold", || {
        policy("scaling_max_freq") == "1500000"
    });
    wait_for("the quota to be given back", || {
        limiter.status().quota == Cores::new(16.0)
    });
    drop(limiter);
    assert_eq!((policy("scaling_min_freq"), policy("scaling_max_freq")), found);
}

#[test]
fn a_frequency_that_cannot_be_written_any_more_leaves_the_cap_to_the_quota() {
    let Some(bench) = Bench::usual() else { return };
    bench.load(16.0);
    let registry = Registry::new();
    let limiter = limiter(
        &bench,
        "frequency,software".parse().unwrap(),
        MeterPreference::Auto,
        &registry,
    );
    bench.fails(Operation::Write, Errno::IO, "scaling_max_freq");
    limiter.apply(all(Some(65.0))).unwrap();
    let events = limiter.take_events();
    assert!(
        matches!(&events[..], [Event::LeverGivenUp { lever: LeverKind::Frequency, reason }] if reason.contains("scaling_max_freq")),
        "{events:?}"
    );
    assert_eq!(limiter.lever().chosen, LeverKind::Software);
    holds(&bench, &limiter, 65.0);
    bench.clear();
}

#[test]
fn a_cap_beyond_what_the_hardware_holds_is_bounded_and_said() {
    let Some((_bench, _registry, limiter)) = usual(LeverPreference::Auto, MeterPreference::Auto) else {
        return;
    };
    let bounds = limiter.cap_bounds().unwrap();
    assert_eq!(
        (bounds.smallest, bounds.largest),
        (Watts::new(20.0), Watts::new(100.0))
    );
    assert_eq!(limiter.apply(all(Some(500.0))).unwrap().cap_bounded, Some(bounds));
    let applied = limiter.apply(all(Some(5.0))).unwrap();
    assert_eq!(
        (applied.cap_bounded, applied.binding),
        (Some(bounds), Binding::Floor)
    );
    events_until(&limiter, "the cap to be reported as not kept", |event| {
        matches!(event, Event::CapNotKept { .. } | Event::CapInert { .. })
    });
}

#[test]
fn a_limit_that_does_nothing_is_found_out_and_the_quota_takes_over() {
    let Some(bench) = Bench::usual() else { return };
    bench.load(16.0);
    bench.fault("inert intel-rapl:0");
    bench.fault("inert intel-rapl:1");
    let registry = Registry::new();
    let limiter = limiter(&bench, LeverPreference::Auto, MeterPreference::Auto, &registry);
    limiter.apply(all(Some(65.0))).unwrap();
    let events = events_until(&limiter, "the limit to be found out", |event| {
        matches!(event, Event::LeverGivenUp { .. })
    });
    assert!(
        matches!(
            events[0],
            Event::CapInert {
                lever: LeverKind::Rapl,
                ..
            }
        ),
        "{events:?}"
    );
    assert!(events[0].to_string().contains("does nothing"), "{}", events[0]);
    holds(&bench, &limiter, 65.0);
    let choice = limiter.lever();
    assert_eq!(
        (choice.chosen, choice.passed_over.len()),
        (LeverKind::Software, 1),
        "{choice}"
    );
    assert!(limiter.status().quota < Cores::new(16.0));
    assert_eq!(bench.limit_w(0, 0), 50.0, "the useless limit is as it was found");
    assert_eq!(limiter.cap_bounds(), None);
}

#[test]
fn a_locked_limit_falls_to_the_quota_or_is_refused_where_only_the_hardware_may() {
    let Some(bench) = Bench::usual() else { return };
    bench.load(16.0);
    bench.fault("locked intel-rapl:0");
    let registry = Registry::new();
    let only: LeverPreference = "rapl".parse().unwrap();
    let strict = limiter(&bench, only, MeterPreference::Auto, &registry);
    says(
        strict.apply(all(Some(65.0))).unwrap_err(),
        &["locked by the firmware"],
    );
    drop(strict);
    let limiter = limiter(&bench, LeverPreference::Auto, MeterPreference::Auto, &registry);
    let applied = limiter.apply(all(Some(65.0))).unwrap();
    assert_eq!(applied.lever, LeverKind::Software);
    let events = limiter.take_events();
    assert!(
        matches!(&events[..], [Event::LeverGivenUp { reason, .. }] if reason.contains("BIOS")),
        "{events:?}"
    );
    holds(&bench, &limiter, 65.0);
}

#[test]
fn a_limit_that_is_gone_for_a_moment_is_waited_for_and_one_that_stays_away_falls_to_the_quota() {
    let Some((bench, _registry, limiter)) = usual(LeverPreference::Auto, MeterPreference::Auto) else {
        return;
    };
    limiter.apply(all(Some(70.0))).unwrap();
    let gone = "error write ENOENT intel-rapl:0/constraint_0_power_limit_uw";
    bench.fault(gone);
    let applied = limiter.apply(all(Some(65.0))).unwrap();
    assert_eq!(applied.lever, LeverKind::Rapl, "it may come back");
    assert!(
        limiter
            .take_events()
            .iter()
            .any(|event| matches!(event, Event::WriteFailed { .. }))
    );
    bench.clear();
    holds(&bench, &limiter, 65.0);
    assert_eq!(limiter.lever().chosen, LeverKind::Rapl);

    bench.fault(gone);
    limiter.apply(all(Some(60.0))).unwrap();
    wait_for("the quota to take over", || {
        limiter.lever().chosen == LeverKind::Software
    });
}

#[test]
fn a_modelled_meter_keeps_the_hardware_out_of_it() {
    let Some(bench) = Bench::usual() else { return };
    let registry = Registry::new();
    let limiter = limiter(
        &bench,
        LeverPreference::Auto,
        MeterPreference::one(headroom_node::power::MeterKind::Model),
        &registry,
    );
    let choice = limiter.lever();
    assert_eq!(choice.chosen, LeverKind::Frequency);
    assert!(choice.passed_over[0].reason.contains("modelled"), "{choice}");
}

#[test]
fn another_writer_of_the_hardware_limit_is_said_and_left_alone_until_an_operator_gives_it_back() {
    let Some((bench, registry, limiter)) = usual(LeverPreference::Auto, MeterPreference::Auto) else {
        return;
    };
    limiter.apply(all(Some(70.0))).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let file = "class/powercap/intel-rapl:1/constraint_0_power_limit_uw";
    bench.write(file, "48000000");
    events_until(&limiter, "the other writer to be said", |event| {
        matches!(event, Event::Foreign(_))
    });
    limiter.apply(all(Some(60.0))).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(bench.limit_w(1, 0), 48.0, "theirs stays");
    registry.resume();
    limiter.apply(all(Some(50.0))).unwrap();
    wait_for("ours to be there again", || bench.limit_w(1, 0) < 40.0);
    drop(limiter);
    assert_eq!(
        (bench.limit_w(0, 0), bench.limit_w(1, 0)),
        (50.0, 48.0),
        "theirs is what is put back"
    );
}

#[test]
fn a_frozen_counter_is_a_lost_meter_and_the_limit_stays() {
    let Some((bench, _registry, limiter)) = usual(LeverPreference::Auto, MeterPreference::Auto) else {
        return;
    };
    limiter.apply(all(Some(70.0))).unwrap();
    holds(&bench, &limiter, 70.0);
    bench.fault("frozen intel-rapl:0");
    events_until(&limiter, "the meter to be lost", |event| {
        matches!(event, Event::MeterLost { .. })
    });
    assert!(
        bench.limit_w(0, 0) < 36.0,
        "the hardware holds the cap without a meter"
    );
    assert!(limiter.status().power.is_none());
    bench.clear();
    events_until(&limiter, "the meter to be back", |event| {
        matches!(event, Event::MeterBack)
    });
}
