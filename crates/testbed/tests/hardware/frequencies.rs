//! The processors' frequency as each driver shows it, and processors that are switched off.

use crate::Bench;
use headroom_testbed::hardware::{Driver, HardwareConfig};
use headroom_units::{Hertz, Seconds};
use rustix::io::Errno;

const CPU: &str = "devices/system/cpu";

#[test]
fn cpufreq_answers_as_each_driver_does() {
    let with = |driver| {
        let mut config = HardwareConfig {
            driver,
            ..HardwareConfig::default()
        };
        config.frequency.max = Hertz::new(3.0e9);
        Bench::new(config)
    };
    let policy = |file: &str| format!("{CPU}/cpufreq/policy3/{file}");
    for (driver, name, governors) in [
        (Driver::IntelPstateActive, "intel_pstate", 2),
        (Driver::IntelPstatePassive, "intel_cpufreq", 6),
        (Driver::AcpiCpufreq, "acpi-cpufreq", 6),
        (Driver::AmdPstateActive, "amd-pstate-epp", 2),
        (Driver::AmdPstateGuided, "amd-pstate", 6),
    ] {
        let Some(bench) = with(driver) else { return };
        assert_eq!(bench.read(&policy("scaling_driver")).unwrap(), name);
        assert_eq!(
            bench
                .read(&policy("scaling_available_governors"))
                .unwrap()
                .split(' ')
                .count(),
            governors
        );
        assert_eq!(bench.read(&policy("scaling_setspeed")).unwrap(), "<unsupported>");
        assert_eq!(
            bench.write(&policy("scaling_setspeed"), "1000000"),
            Err(Errno::INVAL)
        );
        assert_eq!(
            bench.write(&policy("scaling_governor"), "warp"),
            Err(Errno::INVAL)
        );
        assert_eq!(
            bench.write(&policy("scaling_max_freq"), "fast"),
            Err(Errno::INVAL)
        );
        bench.write(&policy("scaling_max_freq"), "1300000").unwrap();
        assert_eq!(bench.number(&policy("scaling_max_freq")), 1_300_000);
        // The lower limit gives way to the upper one.
        bench.write(&policy("scaling_min_freq"), "1500000").unwrap();
        assert_eq!(bench.number(&policy("scaling_min_freq")), 1_300_000);
        bench.emulated.machine().advance(Seconds::new(0.1));
        assert_eq!(bench.number(&policy("scaling_cur_freq")), 1_300_000);
        let can_set_speed = governors == 6;
        assert_eq!(
            bench.write(&policy("scaling_governor"), "userspace").is_ok(),
            can_set_speed
        );
        if can_set_speed {
            bench.write(&policy("scaling_min_freq"), "0").unwrap();
            bench.write(&policy("scaling_setspeed"), "900000").unwrap();
            assert_eq!(bench.number(&policy("scaling_setspeed")), 900_000);
            bench.emulated.machine().advance(Seconds::new(0.1));
            assert_eq!(bench.number(&policy("scaling_cur_freq")), 900_000);
        }
    }
    let Some(bench) = with(Driver::AcpiCpufreq) else {
        return;
    };
    let states = bench.read(&policy("scaling_available_frequencies")).unwrap();
    assert!(
        states.starts_with("2101000 2100000 2000000") && states.ends_with(" 800000"),
        "{states}"
    );
    assert_eq!(bench.number(&policy("cpuinfo_max_freq")), 2_101_000);
    bench.emulated.machine().advance(Seconds::new(0.1));
    assert_eq!(bench.number(&policy("scaling_cur_freq")), 3_000_000);
    bench.write(&format!("{CPU}/cpufreq/boost"), "0").unwrap();
    bench.emulated.machine().advance(Seconds::new(0.1));
    assert_eq!(bench.number(&policy("scaling_cur_freq")), 2_100_000);
}

#[test]
fn intel_pstate_has_its_own_limits_and_loses_them_with_its_status() {
    let mut config = HardwareConfig::default();
    config.frequency.max = Hertz::new(3.0e9);
    let Some(bench) = Bench::new(config) else { return };
    let pstate = |file: &str| format!("{CPU}/intel_pstate/{file}");
    let frequency = || {
        bench.emulated.machine().advance(Seconds::new(0.1));
        bench.number(&format!("{CPU}/cpufreq/policy0/scaling_cur_freq"))
    };
    assert_eq!(frequency(), 3_000_000);
    bench.write(&pstate("max_perf_pct"), "50").unwrap();
    assert_eq!(frequency(), 1_500_000);
    bench.write(&pstate("max_perf_pct"), "100").unwrap();
    bench.write(&pstate("no_turbo"), "1").unwrap();
    assert_eq!(frequency(), 2_100_000);
    bench
        .write(&format!("{CPU}/cpufreq/policy0/scaling_max_freq"), "1000000")
        .unwrap();
    assert_eq!(frequency(), 1_000_000);
    assert_eq!(bench.write(&pstate("status"), "off"), Err(Errno::BUSY));
    assert_eq!(bench.write(&pstate("status"), "sideways"), Err(Errno::INVAL));
    bench.write(&pstate("status"), "passive").unwrap();
    assert_eq!(frequency(), 3_000_000);
    assert_eq!(
        bench
            .read(&format!("{CPU}/cpufreq/policy0/scaling_driver"))
            .unwrap(),
        "intel_cpufreq"
    );
    let preference = format!("{CPU}/cpufreq/policy0/energy_performance_preference");
    assert_eq!(bench.write(&preference, "power"), Err(Errno::BUSY));
    assert_eq!(bench.write(&preference, "thrift"), Err(Errno::INVAL));
    bench
        .write(&format!("{CPU}/cpufreq/policy0/scaling_governor"), "schedutil")
        .unwrap();
    bench.write(&preference, "power").unwrap();
    let plain = Bench::new(HardwareConfig::default()).unwrap();
    assert_eq!(plain.write(&pstate("no_turbo"), "0"), Err(Errno::PERM));
}

#[test]
fn a_cpu_can_be_taken_offline() {
    let Some(bench) = Bench::new(HardwareConfig::default()) else {
        return;
    };
    bench.write(&format!("{CPU}/cpu15/online"), "0").unwrap();
    assert_eq!(bench.read(&format!("{CPU}/online")).unwrap(), "0-14");
    assert_eq!(bench.read(&format!("{CPU}/offline")).unwrap(), "15");
    assert_eq!(
        bench.read(&format!("{CPU}/cpufreq/policy15/scaling_cur_freq")),
        Err(Errno::BUSY)
    );
    assert_eq!(
        bench.read(&format!("{CPU}/cpu15/topology/core_id")),
        Err(Errno::NOENT)
    );
    assert_eq!(bench.read(&format!("{CPU}/cpu0/online")), Err(Errno::NOENT));
    bench.write(&format!("{CPU}/cpu15/online"), "1").unwrap();
    assert_eq!(
        bench.number(&format!("{CPU}/cpufreq/policy15/scaling_cur_freq")),
        2_100_000
    );
}
