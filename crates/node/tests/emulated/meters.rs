//! What the counters do, and what is made of it.

use super::{Bench, HSMP_ANSWERS, wait_for};
use crate::testing::says;
use headroom_node::idle::IdleMeter;
use headroom_node::power::{
    HsmpMeter, HwmonMeter, Meter, MeterError, MeterKind, MeterPreference, MeterSample, PowerModel, RaplMeter,
    RaplTotal, Refusal, choose,
};
use headroom_testbed::hardware::config::RaplConfig;
use headroom_testbed::hardware::{Command, HardwareConfig, Operation};
use headroom_units::{Cores, Joules, Source, Watts};
use rustix::io::Errno;
use std::time::Duration;

/// Sleeps, then samples.
fn after(meter: &mut impl Meter, ms: u64) -> Result<MeterSample, MeterError> {
    std::thread::sleep(Duration::from_millis(ms));
    meter.sample()
}

/// The power over long enough that one step of the emulator's clock more or less does not show. The counter may not
/// have moved on a busy machine: then the next time.
fn power(meter: &mut impl Meter) -> f64 {
    let mut watts = None;
    wait_for("a power", || {
        watts = after(meter, 400).unwrap().power.map(|power| power.value.get());
        watts.is_some()
    });
    watts.unwrap()
}

/// No less than before and no more than is believed of any machine of two packages with memory, whatever the counters
/// read.
fn assert_possible(sample: &MeterSample, before: Joules) {
    let most = 3.0 * 50.0 * 2.0 + 2_000.0 * 2.0;
    assert!(sample.energy.value >= before, "{sample:?}");
    assert!(
        (sample.energy.value - before).get() <= most * (sample.elapsed.get() + 0.1),
        "{sample:?}"
    );
}

#[test]
fn a_loaded_machine_is_measured_and_everything_is_labelled_emulated() {
    let Some(bench) = Bench::new(HardwareConfig {
        rapl: RaplConfig {
            psys: true,
            uncore: true,
            ..RaplConfig::default()
        },
        ..HardwareConfig::default()
    }) else {
        return;
    };
    bench.load(16.0);
    let mut meter = RaplMeter::open(&bench.roots()).unwrap();
    wait_for("the 92 W that the machine draws", || {
        (83.0..101.0).contains(&power(&mut meter))
    });
    let sample = after(&mut meter, 100).unwrap();
    assert_eq!(sample.energy.source, Source::Emulated);
    let counted: Vec<&str> = sample
        .zones
        .iter()
        .filter(|z| z.counted)
        .map(|z| z.zone.as_str())
        .collect();
    assert_eq!(counted, ["package-0", "package-1", "dram-0", "dram-1"]);
    for listed in ["psys", "core-0", "uncore-1"] {
        assert!(
            sample
                .zones
                .iter()
                .any(|zone| zone.zone == listed && !zone.counted),
            "{listed}"
        );
    }
    let mut psys = RaplMeter::open_total(&bench.roots(), RaplTotal::Platform).unwrap();
    // 20 W of fans and disks besides.
    wait_for("the platform, which contains the packages", || {
        (101.0..123.0).contains(&power(&mut psys))
    });
}

#[test]
fn a_wrap_is_counted_through_and_a_jump_is_refused() {
    let Some(bench) = Bench::usual() else { return };
    bench.load(16.0);
    let mut meter = RaplMeter::open(&bench.roots()).unwrap();
    power(&mut meter);
    // Moving the counter is itself a jump; the next reading is before the wrap, the one after behind it.
    bench.machine().wrap_soon("intel-rapl:0", 60_000_000).unwrap();
    after(&mut meter, 50).unwrap();
    let refused = meter.refused();
    assert!(
        refused
            .iter()
            .any(|r| r.zone == "package-0" && r.reason == Refusal::Jump),
        "{refused:?}"
    );
    let counter = || bench.zone(0, "energy_uj").parse::<u64>().unwrap();
    let high = counter();
    let mut before = meter.sample().unwrap();
    wait_for("the wrap", || {
        let sample = after(&mut meter, 100).unwrap();
        assert_possible(&sample, before.energy.value);
        before = sample;
        counter() < high
    });
    let jumps = |meter: &RaplMeter| meter.refused().iter().map(|r| r.count).sum::<u64>();
    let so_far = jumps(&meter);
    let sample = after(&mut meter, 100).unwrap();
    assert_possible(&sample, before.energy.value);
    assert_eq!(jumps(&meter), so_far, "the wrap is no jump");
    bench
        .machine()
        .command(Command::Jump {
            zone: "intel-rapl:1".into(),
            microjoules: 5_000_000_000,
        })
        .unwrap();
    let jumped = after(&mut meter, 100).unwrap();
    assert_possible(&jumped, sample.energy.value);
    assert_eq!(jumps(&meter), so_far + 1);
    assert_eq!(jumped.power, None);
}

#[test]
fn counters_that_start_anew_after_a_suspend_cost_an_interval_and_no_energy() {
    let Some(bench) = Bench::new(HardwareConfig {
        rapl: RaplConfig {
            first_energy_uj: 200_000_000_000,
            ..RaplConfig::default()
        },
        ..HardwareConfig::default()
    }) else {
        return;
    };
    bench.load(8.0);
    let mut meter = RaplMeter::open(&bench.roots()).unwrap();
    let before = after(&mut meter, 200).unwrap();
    for restart in [false, true] {
        bench
            .machine()
            .command(Command::Suspend {
                seconds: 36_000.0,
                restart,
            })
            .unwrap();
        let sample = after(&mut meter, 100).unwrap();
        assert_possible(&sample, before.energy.value);
        assert_eq!(sample.power, None, "{sample:?}");
        assert!(power(&mut meter) < 200.0);
    }
}

#[test]
fn a_counter_that_stands_still_is_an_error_until_it_moves() {
    let Some(bench) = Bench::usual() else { return };
    bench.load(16.0);
    let mut meter = RaplMeter::open(&bench.roots()).unwrap();
    power(&mut meter);
    bench.fault("frozen intel-rapl:1");
    let mut said = String::new();
    wait_for("the counter to be found standing still", || {
        match after(&mut meter, 200) {
            Ok(sample) => {
                assert!(sample.power.is_none_or(|power| power.value < Watts::new(200.0)));
                false
            }
            Err(error) => {
                said = error.to_string();
                true
            }
        }
    });
    says(&said, &["package-1", "stands still"]);
    bench.clear();
    wait_for("it to count again", || {
        after(&mut meter, 100).is_ok_and(|sample| sample.power.is_some())
    });
}

#[test]
fn a_sentinel_a_zero_and_a_word_are_no_energy() {
    let Some(bench) = Bench::usual() else { return };
    bench.load(16.0);
    let mut meter = RaplMeter::open(&bench.roots()).unwrap();
    power(&mut meter);
    let mut before = meter.sample().unwrap().energy.value;
    for lie in ["4294967295000", "18446744073709551615", "0", "262143328850"] {
        bench.fault(&format!("reads intel-rapl:0/energy_uj {lie}"));
        let lied = after(&mut meter, 60).unwrap();
        assert_possible(&lied, before);
        bench.clear();
        let sample = after(&mut meter, 60).unwrap();
        assert_possible(&sample, lied.energy.value);
        before = sample.energy.value;
    }
    bench.fault("reads intel-rapl:0/energy_uj none");
    assert!(meter.sample().unwrap_err().to_string().contains("\"none\""));
    bench.clear();
    power(&mut meter);
}

#[test]
fn a_zone_that_vanishes_and_comes_back_is_counted_while_it_is_there() {
    let Some(bench) = Bench::usual() else { return };
    bench.load(16.0);
    let mut meter = RaplMeter::open(&bench.roots()).unwrap();
    let both = power(&mut meter);
    bench.fault("vanished intel-rapl:1");
    bench.fault("vanished intel-rapl:1:0");
    bench.fault("vanished intel-rapl:1:1");
    let sample = after(&mut meter, 100).unwrap();
    assert_eq!(sample.power, None, "the total has changed");
    wait_for("one package's power", || power(&mut meter) < 0.7 * both);
    let refused = meter.refused();
    assert!(
        refused
            .iter()
            .any(|r| r.zone == "package-1" && r.reason == Refusal::Vanished),
        "{refused:?}"
    );
    bench.clear();
    wait_for("both to be counted again", || power(&mut meter) > 0.8 * both);
}

#[test]
fn every_answer_to_a_read_is_an_error_with_a_remedy() {
    let Some(bench) = Bench::usual() else { return };
    let mut meter = RaplMeter::open(&bench.roots()).unwrap();
    for (on, errno, word) in [
        (Operation::Open, Errno::ACCESS, "run as root"),
        (Operation::Read, Errno::INVAL, "could not read the counter"),
        (Operation::Read, Errno::NODATA, "BIOS"),
        (Operation::Open, Errno::NODEV, "driver was unloaded"),
    ] {
        let files = "intel-rapl:1/energy_uj";
        let said = [(errno, word), (errno, "energy_uj")];
        bench.answers(on, files, &said, || RaplMeter::open(&bench.roots()).map(drop));
        // One that was open before is asked again.
        bench.answers(on, files, &said, || after(&mut meter, 50));
    }
}

#[test]
fn a_masked_or_absent_directory_falls_to_the_next_meter_with_the_reason() {
    let Some(bench) = Bench::usual() else { return };
    let model = PowerModel::default_for(Cores::new(16.0)).unwrap();
    let chosen = |preference| choose(preference, &bench.roots(), &bench.target(), &model);
    assert_eq!(chosen(MeterPreference::Auto).unwrap().1.chosen, MeterKind::Rapl);
    for (fault, word) in [
        ("emptied class/powercap", "container masks it"),
        ("vanished class/powercap", "no powercap directory"),
    ] {
        bench.fault(fault);
        let (mut meter, choice) = chosen(MeterPreference::Auto).unwrap();
        assert_eq!(
            (choice.chosen, choice.source),
            (MeterKind::Model, Source::Emulated)
        );
        assert!(choice.passed_over[0].reason.contains(word), "{choice}");
        assert_eq!(choice.passed_over.len(), 4);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(meter.sample().unwrap().energy.source, Source::Emulated);
        let error = chosen("rapl,hwmon".parse().unwrap()).err().unwrap().to_string();
        assert!(error.contains("rapl,hwmon") && error.contains(word), "{error}");
        bench.clear();
    }
}

#[test]
fn a_counter_that_stands_still_is_passed_over_and_refused_where_it_alone_is_wanted() {
    let Some(bench) = Bench::usual() else { return };
    let model = PowerModel::default_for(Cores::new(16.0)).unwrap();
    let chosen = |preference| choose(preference, &bench.roots(), &bench.target(), &model);
    bench.fault("frozen intel-rapl:0");
    let (_, choice) = chosen(MeterPreference::Auto).unwrap();
    assert_eq!(choice.chosen, MeterKind::Model, "{choice}");
    assert_eq!(choice.passed_over[0].what, MeterKind::Rapl);
    assert!(choice.passed_over[0].reason.contains("does not move"), "{choice}");
    let error = chosen(MeterPreference::one(MeterKind::Rapl))
        .err()
        .unwrap()
        .to_string();
    says(&error, &["\"rapl\" cannot be used", "does not move"]);
    bench.clear();
    assert_eq!(
        chosen(MeterPreference::one(MeterKind::Rapl)).unwrap().1.chosen,
        MeterKind::Rapl
    );
}

#[test]
fn an_amd_server_is_measured_by_zones_by_hsmp_and_by_hwmon() {
    let Some(bench) = Bench::amd() else { return };
    bench.load(16.0);
    std::thread::sleep(Duration::from_millis(300));
    let mut rapl = RaplMeter::open(&bench.roots()).unwrap();
    let mut hsmp = HsmpMeter::open(&bench.roots()).unwrap();
    let mut hwmon = HwmonMeter::open(&bench.roots()).unwrap();
    let near = |one: f64, other: f64| (one / other - 1.0).abs() < 0.2;
    wait_for("all of them to agree", || {
        let watts = power(&mut rapl);
        near(power(&mut hsmp), watts) && near(power(&mut hwmon), watts)
    });
    bench.fault("reads hwmon0/power1_input 4294967295000");
    says(HsmpMeter::open(&bench.roots()).unwrap_err(), &["stands for none"]);
    assert_eq!(after(&mut hwmon, 50).unwrap().power, None);
    bench.clear();
    bench.answers(Operation::Read, "hwmon1/power1_input", &HSMP_ANSWERS, || {
        HsmpMeter::open(&bench.roots()).map(drop)
    });
}

#[test]
fn idle_states_are_deep_on_an_idle_machine_and_absent_without_a_driver() {
    let Some(bench) = Bench::usual() else { return };
    let mut meter = IdleMeter::open(&bench.roots()).unwrap();
    let deepest = |meter: &mut IdleMeter| {
        std::thread::sleep(Duration::from_millis(300));
        let sample = meter.sample().unwrap();
        assert_eq!(sample.cpus, 16);
        sample.states.last().unwrap().residency.get()
    };
    let idle = deepest(&mut meter);
    bench.load(16.0);
    std::thread::sleep(Duration::from_millis(100));
    meter.sample().unwrap();
    let busy = deepest(&mut meter);
    assert!(idle > 0.5 && busy < 0.2, "{idle} when idle, {busy} when busy");
    drop(bench);
    if let Some(bench) = Bench::new(HardwareConfig {
        cpuidle: false,
        ..HardwareConfig::default()
    }) {
        assert!(IdleMeter::open(&bench.roots()).is_none());
    }
}
