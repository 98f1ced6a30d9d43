//! What `headroom doctor` says of each answer, in words that need no knowledge of the interface.

use super::Bench;
use headroom_node::probe::{Finding, State, probe};
use headroom_testbed::hardware::config::{Driver, RaplConfig, Zones};
use headroom_testbed::hardware::{HardwareConfig, Operation};
use rustix::io::Errno;

fn of(bench: &Bench, what: &str) -> Finding {
    let findings = probe(&bench.roots());
    findings
        .into_iter()
        .find(|finding| finding.what == what)
        .unwrap_or_else(|| panic!("no finding {what}"))
}

/// The finding is not usable, says the word, and has a remedy.
fn says(bench: &Bench, what: &str, word: &str) {
    let finding = of(bench, what);
    assert_ne!(finding.state, State::Usable, "{finding}");
    let text = finding.to_string();
    assert!(text.contains(word), "{word:?} is not in: {text}");
    assert!(finding.remedy.is_some(), "{finding}");
}

#[test]
fn a_sound_machine_has_every_meter_and_lever_of_its_kind() {
    let Some(bench) = Bench::new(HardwareConfig {
        rapl: RaplConfig {
            psys: true,
            ..RaplConfig::default()
        },
        ..HardwareConfig::default()
    }) else {
        return;
    };
    for what in [
        "RAPL energy",
        "RAPL platform energy",
        "RAPL power limits",
        "CPU frequency",
        "CPU frequency limit",
        "CPU idle states",
        "software power cap",
        "CPU quota",
        "CPU sets",
    ] {
        let finding = of(&bench, what);
        assert_eq!(finding.state, State::Usable, "{finding}");
    }
    let rapl = of(&bench, "RAPL energy").why;
    assert!(
        rapl.starts_with("emulated: ") && !rapl.contains("measured"),
        "{rapl}"
    );
    for what in ["perf events", "eBPF", "network namespaces"] {
        let tool = of(&bench, what);
        assert!(
            tool.evidence.starts_with("/proc") || tool.evidence.starts_with("/sys"),
            "of the running kernel, not of the tree: {tool}"
        );
    }
    assert!(
        of(&bench, "RAPL power limits")
            .why
            .contains("between 20 W and 100 W")
    );
}

#[test]
fn each_answer_of_the_power_tree_is_named() {
    let Some(bench) = Bench::usual() else { return };
    for (fault, what, word) in [
        (
            "error open EACCES intel-rapl:0/energy_uj",
            "RAPL energy",
            "CVE-2020-8694",
        ),
        ("frozen intel-rapl:0", "RAPL energy", "does not move"),
        (
            "error read EINVAL intel-rapl:0/energy_uj",
            "RAPL energy",
            "could not ask the hardware (it answers EINVAL)",
        ),
        (
            "error read ENODATA intel-rapl:0/energy_uj",
            "RAPL energy",
            "ENODATA",
        ),
        (
            "locked intel-rapl:1",
            "RAPL power limits",
            "locks it (a write answers ENODATA, switching it on ENOSYS)",
        ),
        ("emptied class/powercap", "RAPL energy", "container masks it"),
        (
            "emptied class/powercap",
            "RAPL power limits",
            "container masks it",
        ),
        ("vanished class/powercap", "RAPL energy", "no powercap directory"),
        ("inactive policy0", "CPU frequency limit", "offline (EBUSY)"),
    ] {
        bench.fault(fault);
        says(&bench, what, word);
        bench.clear();
    }
    bench.write("class/powercap/intel-rapl:0/enabled", "0");
    says(&bench, "RAPL power limits", "switched off");
    bench.write("class/powercap/intel-rapl:0/enabled", "1");
    bench.fault("reads constraint_0_max_power_uw 0");
    let limits = of(&bench, "RAPL power limits");
    assert!(
        limits.state == State::Usable && limits.why.contains("names no maximum"),
        "{limits}"
    );
    bench.clear();
    for policy in 0..16 {
        bench.fault(&format!("inactive policy{policy}"));
    }
    says(&bench, "CPU frequency limit", "all 16 policies are offline");
}

#[test]
fn amd_and_its_hsmp_errors_are_named() {
    let Some(bench) = Bench::new(HardwareConfig {
        rapl: RaplConfig {
            zones: Zones::Amd,
            ..RaplConfig::default()
        },
        driver: Driver::AmdPstateActive,
        ..HardwareConfig::default()
    }) else {
        return;
    };
    says(&bench, "RAPL power limits", "AMD");
    assert_eq!(of(&bench, "HSMP power limits (AMD)").state, State::Usable);
    assert_eq!(of(&bench, "HSMP socket power (AMD)").state, State::Usable);
    for (errno, word) in [
        (Errno::TIMEDOUT, "enable HSMP in the BIOS"),
        (Errno::NOMSG, "does not know the message"),
        (Errno::INVAL, "milliwatts"),
        (Errno::REMOTEIO, "not enabled"),
        (Errno::BUSY, "try again"),
        (Errno::PERM, "root"),
        (Errno::NODEV, "no such socket"),
    ] {
        bench.fails(Operation::Read, errno, "hwmon0/power1_cap");
        says(&bench, "HSMP power limits (AMD)", word);
        bench.clear();
        bench.fails(Operation::Read, errno, "hwmon0/power1_input");
        let word = match errno {
            Errno::INVAL => "could not ask the hardware",
            Errno::NODEV => "driver was unloaded",
            _ => word,
        };
        says(&bench, "HSMP socket power (AMD)", word);
        bench.clear();
    }
    bench.fault("reads hwmon0/power1_input 4294967295000");
    says(&bench, "HSMP socket power (AMD)", "stands for none");
    says(&bench, "hwmon power sensors", "stands for none");
}

#[test]
fn a_machine_like_a_virtual_one_lacks_what_those_lack() {
    let Some(bench) = Bench::new(HardwareConfig {
        rapl: RaplConfig {
            zones: Zones::None,
            ..RaplConfig::default()
        },
        driver: Driver::None,
        cpuidle: false,
        ..HardwareConfig::default()
    }) else {
        return;
    };
    for (what, word) in [
        ("RAPL energy", "no powercap directory"),
        ("RAPL power limits", "no powercap directory"),
        ("CPU frequency", "no frequency driver"),
        ("CPU frequency limit", "no frequency driver"),
        ("CPU idle states", "no idle driver"),
        ("hwmon power sensors", "no sensor"),
        ("perf energy events", "no energy events"),
    ] {
        says(&bench, what, word);
    }
}
