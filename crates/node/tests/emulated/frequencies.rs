//! The frequency lever with every driver.

use super::Bench;
use crate::testing::says;
use headroom_node::frequency::{FrequencyActuator, FrequencyMode, FrequencyReader};
use headroom_node::restore::Registry;
use headroom_testbed::hardware::config::{Driver, FrequencyRange};
use headroom_testbed::hardware::{HardwareConfig, Operation};
use headroom_units::Hertz;
use rustix::io::Errno;

const DRIVERS: [Driver; 6] = [
    Driver::IntelPstateActive,
    Driver::IntelPstatePassive,
    Driver::AcpiCpufreq,
    Driver::AmdPstateActive,
    Driver::AmdPstatePassive,
    Driver::AmdPstateGuided,
];

fn bench(driver: Driver) -> Option<Bench> {
    Bench::new(HardwareConfig {
        driver,
        cpus_per_policy: 4,
        frequency: FrequencyRange {
            max: Hertz::new(3.0e9),
            ..FrequencyRange::default()
        },
        ..HardwareConfig::default()
    })
}

fn policy(bench: &Bench, policy: u32, file: &str) -> String {
    bench.read(&format!("devices/system/cpu/cpufreq/policy{policy}/{file}"))
}

fn ghz(value: f64) -> Option<Hertz> {
    Some(Hertz::new(value * 1e9))
}

#[test]
fn a_limit_is_set_and_put_back_whatever_the_driver() {
    for driver in DRIVERS {
        let Some(bench) = bench(driver) else { return };
        let found = |file| policy(&bench, 4, file);
        let before = (found("scaling_min_freq"), found("scaling_max_freq"));
        let mut actuator =
            FrequencyActuator::open(&bench.roots(), FrequencyMode::Max, &Registry::new()).unwrap();
        let set = actuator
            .set(ghz(1.25))
            .unwrap_or_else(|error| panic!("{driver:?}: {error}"));
        assert_eq!((set.policies, set.passed_over.len()), (4, 0), "{driver:?}");
        let wanted = if driver == Driver::AcpiCpufreq {
            "1200000"
        } else {
            "1250000"
        };
        assert_eq!(policy(&bench, 4, "scaling_max_freq"), wanted, "{driver:?}");
        bench.load(16.0);
        let reader = FrequencyReader::open(&bench.roots()).unwrap();
        super::wait_for("the CPUs to slow down", || {
            reader.mean().is_some_and(|mean| mean <= Hertz::new(1.25e9))
        });
        actuator.set(ghz(0.1)).unwrap();
        assert_eq!(policy(&bench, 12, "scaling_max_freq"), "800000", "{driver:?}");
        let bounds = actuator.bounds();
        let below_turbo = (driver == Driver::AcpiCpufreq).then(|| Hertz::new(2.1e9));
        assert_eq!(bounds.below_turbo, below_turbo, "{driver:?}");
        let amd = matches!(
            driver,
            Driver::AmdPstateActive | Driver::AmdPstatePassive | Driver::AmdPstateGuided
        );
        assert_eq!(bounds.efficient_floor.is_some(), amd, "{driver:?}");
        drop(actuator);
        assert_eq!(
            (
                policy(&bench, 4, "scaling_min_freq"),
                policy(&bench, 4, "scaling_max_freq")
            ),
            before,
            "{driver:?}"
        );
    }
}

#[test]
fn a_fixed_speed_needs_a_driver_that_has_the_governor() {
    for driver in DRIVERS {
        let Some(bench) = bench(driver) else { return };
        assert_eq!(
            policy(&bench, 0, "scaling_setspeed"),
            "<unsupported>",
            "{driver:?}"
        );
        let opened = FrequencyActuator::open(&bench.roots(), FrequencyMode::Setspeed, &Registry::new());
        if matches!(driver, Driver::IntelPstateActive | Driver::AmdPstateActive) {
            assert!(
                opened.unwrap_err().to_string().contains("passive mode"),
                "{driver:?}"
            );
            continue;
        }
        let mut actuator = opened.unwrap();
        let governor = policy(&bench, 0, "scaling_governor");
        actuator.set(ghz(1.2)).unwrap();
        assert_eq!(policy(&bench, 0, "scaling_governor"), "userspace");
        assert_eq!(policy(&bench, 0, "scaling_setspeed"), "1200000");
        bench.fails(Operation::Write, Errno::INVAL, "policy0/scaling_setspeed");
        says(
            actuator.set(ghz(1.4)).unwrap_err(),
            &["needs the governor userspace"],
        );
        bench.clear();
        drop(actuator);
        assert_eq!(policy(&bench, 0, "scaling_governor"), governor, "{driver:?}");
    }
}

#[test]
fn three_levels_of_a_userspace_governor_are_speeds_that_are_set_and_put_back() {
    let made = Bench::new(HardwareConfig {
        driver: Driver::AcpiCpufreq,
        cpus_per_policy: 4,
        frequency: FrequencyRange {
            min: Hertz::new(2.0e9),
            base: Hertz::new(2.83e9),
            max: Hertz::new(2.83e9),
        },
        frequency_states: vec![Hertz::new(2.33e9)],
        ..HardwareConfig::default()
    });
    let Some(bench) = made else { return };
    let states = policy(&bench, 0, "scaling_available_frequencies");
    assert_eq!(states, "2830000 2330000 2000000");
    assert_eq!(FrequencyMode::of_machine(&bench.roots()), FrequencyMode::Max);
    for (file, value) in [("scaling_governor", "userspace"), ("scaling_setspeed", "2330000")] {
        for first in [0, 4, 8, 12] {
            let path = format!("devices/system/cpu/cpufreq/policy{first}/{file}");
            bench.write(&path, value);
        }
    }
    let mode = FrequencyMode::of_machine(&bench.roots());
    assert_eq!(mode, FrequencyMode::Setspeed);
    let mut actuator = FrequencyActuator::open(&bench.roots(), mode, &Registry::new()).unwrap();
    for (asked, set) in [
        (2.83, "2830000"),
        (2.0, "2000000"),
        (2.4, "2330000"),
        (1.0, "2000000"),
    ] {
        actuator.set(ghz(asked)).unwrap();
        assert_eq!(policy(&bench, 4, "scaling_setspeed"), set, "{asked}");
        assert_eq!(policy(&bench, 4, "scaling_max_freq"), "2830000");
    }
    drop(actuator);
    for first in [0, 4, 8, 12] {
        assert_eq!(policy(&bench, first, "scaling_governor"), "userspace");
        assert_eq!(policy(&bench, first, "scaling_setspeed"), "2330000");
    }
}

#[test]
fn a_policy_whose_cpus_are_offline_is_passed_over_and_taken_up_again() {
    let Some(bench) = bench(Driver::IntelPstatePassive) else {
        return;
    };
    bench.fault("inactive policy4");
    let registry = Registry::new();
    let mut actuator = FrequencyActuator::open(&bench.roots(), FrequencyMode::Max, &registry).unwrap();
    let set = actuator.set(ghz(1.5)).unwrap();
    assert_eq!(set.policies, 3);
    assert!(
        set.passed_over[0].contains("policy4") && set.passed_over[0].contains("EBUSY"),
        "{set:?}"
    );
    bench.clear();
    assert_eq!(actuator.set(ghz(1.5)).unwrap().policies, 4);
    assert_eq!(policy(&bench, 4, "scaling_max_freq"), "1500000");
    bench.fault("inactive policy8");
    assert_eq!(actuator.set(ghz(1.1)).unwrap().policies, 3);
    bench.clear();
    let report = registry.restore_all();
    assert!(report.is_clean(), "{report}");
    assert_eq!(policy(&bench, 8, "scaling_max_freq"), "3000000");
    for number in [0, 4, 8, 12] {
        bench.fault(&format!("inactive policy{number}"));
    }
    says(
        FrequencyActuator::open(&bench.roots(), FrequencyMode::Max, &registry).unwrap_err(),
        &["offline"],
    );
}

#[test]
fn every_answer_to_a_write_is_an_error_with_a_remedy() {
    let Some(bench) = bench(Driver::IntelPstateActive) else {
        return;
    };
    let mut actuator = FrequencyActuator::open(&bench.roots(), FrequencyMode::Max, &Registry::new()).unwrap();
    for (on, errno, word) in [
        (Operation::Write, Errno::INVAL, "refuses this value"),
        (Operation::Write, Errno::BUSY, "offline"),
        (Operation::Open, Errno::ACCESS, "run as root"),
        (Operation::Open, Errno::ROFS, "read-only"),
    ] {
        bench.fails(on, errno, "policy4/scaling_max_freq");
        says(actuator.set(ghz(1.3)).unwrap_err(), &[word, "policy4"]);
        bench.clear();
        actuator.set(None).unwrap();
    }
}

#[test]
fn a_virtual_machines_empty_directory_is_said() {
    let Some(bench) = bench(Driver::None) else { return };
    let error = FrequencyActuator::open(&bench.roots(), FrequencyMode::Max, &Registry::new())
        .unwrap_err()
        .to_string();
    assert!(error.contains("virtual machine"), "{error}");
    assert!(FrequencyReader::open(&bench.roots()).is_none());
}
