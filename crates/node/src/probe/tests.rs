use super::*;
use crate::testing::{Tree, says};
use std::fs;

/// A machine of files, with permissions of its own: everything that exists, except what is named.
struct Fake {
    tree: Tree,
    denied: Vec<(String, Errno)>,
    devices: Vec<&'static str>,
    /// Meters that stand still.
    dead: Vec<&'static str>,
}

impl Permissions for Fake {
    fn read(&self, path: &Path) -> Result<(), Errno> {
        let text = path.display().to_string();
        if let Some((_, errno)) = self.denied.iter().find(|(part, _)| text.contains(part.as_str())) {
            return Err(*errno);
        }
        if path.starts_with("/dev") {
            return if self.devices.contains(&text.as_str()) {
                Ok(())
            } else {
                Err(Errno::NOENT)
            };
        }
        if path.exists() { Ok(()) } else { Err(Errno::NOENT) }
    }

    fn write(&self, path: &Path) -> Result<(), Errno> {
        self.read(path)
    }

    /// Files stand still by nature: what moves is said.
    fn moves(&self, meter: &mut dyn Meter) -> Result<(), MeterError> {
        match self.dead.contains(&meter.name()) {
            true => trial::moves(meter),
            false => Ok(()),
        }
    }
}

impl Fake {
    fn new(cpuinfo: &str) -> Self {
        let fake = Self {
            tree: Tree::new(),
            denied: Vec::new(),
            devices: vec!["/dev/fuse"],
            dead: Vec::new(),
        };
        fake.put("proc/cpuinfo", cpuinfo);
        fake.put("proc/self/status", "Name:\theadroom\nCapEff:\t000001ffffffffff\n");
        fake.put("proc/self/ns/net", "");
        fake.put("proc/sys/kernel/perf_event_paranoid", "2\n");
        fake.put("proc/sys/kernel/unprivileged_bpf_disabled", "2\n");
        fake.put("sys/kernel/btf/vmlinux", "");
        fake.put("sys/devices/system/cpu/online", "0-1\n");
        fake
    }

    fn put(&self, below: &str, text: &str) {
        self.tree.put(below, text);
    }

    fn cgroup2(self, enabled: &str) -> Self {
        self.put(
            "proc/self/mountinfo",
            "25 20 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        );
        self.put("sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory\n");
        self.put("sys/fs/cgroup/cgroup.subtree_control", enabled);
        self.put("sys/fs/cgroup/cpu.stat", "usage_usec 1\n");
        self
    }

    fn zone(&self, zone: &str, name: &str, limits: bool) {
        let dir = format!("sys/class/powercap/{zone}");
        self.put(&format!("{dir}/name"), &format!("{name}\n"));
        self.put(&format!("{dir}/energy_uj"), "12345\n");
        self.put(&format!("{dir}/max_energy_range_uj"), "262143328850\n");
        if limits {
            self.put(&format!("{dir}/constraint_0_name"), "long_term\n");
            self.put(&format!("{dir}/constraint_0_power_limit_uw"), "95000000\n");
            self.put(&format!("{dir}/constraint_0_max_power_uw"), "95000000\n");
            self.put(&format!("{dir}/enabled"), "1\n");
        }
    }

    fn policy(&self, driver: &str) {
        let dir = "sys/devices/system/cpu/cpufreq/policy0";
        for (file, text) in [
            ("scaling_driver", driver),
            ("scaling_governor", "powersave"),
            ("affected_cpus", "0 1"),
            ("scaling_cur_freq", "1200000"),
            ("cpuinfo_max_freq", "3000000"),
            ("scaling_max_freq", "3000000"),
            ("scaling_available_governors", "performance powersave"),
        ] {
            self.put(&format!("{dir}/{file}"), text);
        }
    }

    fn intel() -> Self {
        let fake = Self::new("vendor_id : GenuineIntel\nflags\t\t: fpu rdtscp\n").cgroup2("cpuset cpu\n");
        for package in 0..2 {
            fake.zone(
                &format!("intel-rapl:{package}"),
                &format!("package-{package}"),
                true,
            );
            fake.zone(&format!("intel-rapl:{package}:0"), "dram", false);
        }
        fake.policy("intel_pstate");
        fake.put("sys/devices/system/cpu/cpu0/cpuidle/state0/name", "POLL\n");
        fake.put("sys/devices/system/cpu/cpu0/cpuidle/state1/name", "C6\n");
        fake.put("sys/class/hwmon/hwmon2/name", "power_meter\n");
        fake.put("sys/class/hwmon/hwmon2/power1_average", "95000000\n");
        fake.put("sys/class/hwmon/hwmon3/name", "amdgpu\n");
        fake.put("sys/class/hwmon/hwmon3/power1_input", "30000000\n");
        fake
    }

    fn probe(&self) -> Vec<Finding> {
        let roots = self.tree.roots();
        let findings = probe_with(&roots, &roots, self);
        for finding in &findings {
            assert!(!finding.why.is_empty());
            assert!(
                finding.state != State::Limited
                    || finding.remedy.is_some()
                    || finding.why.contains("this version"),
                "{finding}"
            );
        }
        findings
    }

    fn of(&self, what: &str) -> Finding {
        let found: Vec<Finding> = self
            .probe()
            .into_iter()
            .filter(|finding| finding.what == what)
            .collect();
        assert_eq!(found.len(), 1, "{what}: {found:?}");
        found.into_iter().next().unwrap()
    }
}

#[test]
fn an_intel_server_measures_its_packages_and_dram() {
    let fake = Fake::intel();
    let energy = fake.of("RAPL energy");
    assert_eq!(energy.state, State::Usable);
    says(&energy.why, &["package-0, package-1, dram-0, dram-1"]);
    for what in [
        "CPU quota",
        "CPU sets",
        "software power cap",
        "CPU frequency",
        "CPU time of a service",
        "modelled power",
    ] {
        assert_eq!(fake.of(what).state, State::Usable, "{what}");
    }
    let limits = fake.of("RAPL power limits");
    assert!(
        limits.state == State::Usable
            && limits
                .why
                .contains("2 package(s), held together between 38 W and 190 W"),
        "{limits}"
    );
    let hwmon = fake.of("hwmon power sensors");
    assert!(
        hwmon
            .why
            .contains("the whole machine: power_meter-power1; listed besides: amdgpu-power1"),
        "{hwmon}"
    );
    assert!(fake.of("CPU idle states").why.contains("POLL, C6"));
    assert!(
        fake.of("CPU frequency limit")
            .why
            .contains("no governor userspace")
    );
    assert_eq!(fake.of("HSMP power limits (AMD)").state, State::Unusable);
}

#[test]
fn a_counter_that_stands_still_under_load_is_no_meter() {
    let mut fake = Fake::intel();
    fake.dead.push("rapl");
    let energy = fake.of("RAPL energy");
    assert_eq!(energy.state, State::Unusable, "{energy}");
    for part in ["does not move", "package-0", "remedy: take another meter"] {
        assert!(energy.to_string().contains(part), "{part}: {energy}");
    }
    assert_eq!(fake.of("hwmon power sensors").state, State::Usable);
}

#[test]
fn a_limit_that_is_switched_off_is_said_to_do_nothing() {
    let fake = Fake::intel();
    fake.put("sys/class/powercap/intel-rapl:1/enabled", "0\n");
    let limits = fake.of("RAPL power limits");
    assert_eq!(limits.state, State::Unusable);
    assert!(limits.why.contains("package-1") && limits.remedy.unwrap().contains("BIOS"));
}

#[test]
fn an_amd_server_counts_but_has_no_rapl_limits() {
    let mut fake = Fake::new("vendor_id : AuthenticAMD\nflags\t\t: fpu\n").cgroup2("cpuset cpu\n");
    fake.zone("intel-rapl:0", "package-0", false);
    fake.zone("intel-rapl:0:0", "core", false);
    fake.policy("amd-pstate-epp");
    assert_eq!(fake.of("RAPL energy").state, State::Usable);
    let limits = fake.of("RAPL power limits");
    assert!(
        limits.state == State::Unusable && limits.why.contains("AMD"),
        "{limits}"
    );
    let hsmp = fake.of("HSMP power limits (AMD)");
    assert!(hsmp.why.contains("modprobe amd_hsmp"), "{hsmp}");
    // A device of this kernel says nothing of another machine's tree.
    fake.devices.push("/dev/hsmp");
    assert_eq!(fake.of("HSMP power limits (AMD)").state, State::Unusable);
    for socket in 0..2 {
        let dir = format!("sys/class/hwmon/hwmon{socket}");
        fake.put(&format!("{dir}/name"), "amd_hsmp_hwmon\n");
        fake.put(&format!("{dir}/power1_input"), "90000000\n");
        fake.put(&format!("{dir}/power1_cap"), "200000000\n");
        fake.put(&format!("{dir}/power1_cap_max"), "240000000\n");
    }
    let hsmp = fake.of("HSMP power limits (AMD)");
    assert!(
        hsmp.state == State::Usable && hsmp.why.contains("between 96 W and 400 W"),
        "{hsmp}"
    );
    assert_eq!(fake.of("HSMP socket power (AMD)").state, State::Usable);
    fake.put("sys/class/hwmon/hwmon0/power1_input", "4294967295000\n");
    let power = fake.of("HSMP socket power (AMD)");
    assert!(
        power.state == State::Unusable && power.why.contains("stands for none"),
        "{power}"
    );
    fake.denied.push(("power1_cap".into(), Errno::ACCESS));
    assert!(
        fake.of("HSMP power limits (AMD)")
            .remedy
            .unwrap()
            .contains("root")
    );
}

#[test]
fn a_sensor_that_says_nonsense_is_named_with_its_reading() {
    let fake = Fake::intel();
    for (reading, word) in [
        ("4294967295000\n", "stands for none"),
        ("0\n", "zero watts"),
        ("none\n", "not a whole number"),
    ] {
        fake.put("sys/class/hwmon/hwmon2/power1_average", reading);
        let hwmon = fake.of("hwmon power sensors");
        assert!(
            hwmon.state == State::Unusable && hwmon.why.contains(word),
            "{hwmon}"
        );
        assert!(hwmon.evidence.ends_with("power1_average"));
    }
}

#[test]
fn sensors_of_other_things_are_no_meter_of_the_machine() {
    let fake = Fake::new("flags\t\t: fpu\n").cgroup2("cpuset cpu\n");
    fake.put("sys/class/hwmon/hwmon0/name", "nvme\n");
    fake.put("sys/class/hwmon/hwmon0/power1_input", "5000000\n");
    let hwmon = fake.of("hwmon power sensors");
    assert!(
        hwmon.state == State::Unusable && hwmon.why.contains("nvme-power1"),
        "{hwmon}"
    );
}

#[test]
fn a_stricter_limit_by_another_way_is_named() {
    let fake = Fake::intel();
    fake.zone("intel-rapl-mmio:0", "package-0", true);
    assert_eq!(fake.of("RAPL power limits").state, State::Usable);
    fake.put(
        "sys/class/powercap/intel-rapl-mmio:0/constraint_0_power_limit_uw",
        "15000000\n",
    );
    let limits = fake.of("RAPL power limits");
    assert!(
        limits.state == State::Limited && limits.why.contains("holds 15 W"),
        "{limits}"
    );
}

#[test]
fn a_read_only_sys_is_named_at_every_lever() {
    let mut fake = Fake::intel();
    fake.denied.push(("power_limit_uw".into(), Errno::ROFS));
    fake.denied.push(("scaling_max_freq".into(), Errno::ROFS));
    for what in ["RAPL power limits", "CPU frequency limit"] {
        let lever = fake.of(what);
        assert!(
            lever.state == State::Unusable && lever.why.contains("read-only"),
            "{lever}"
        );
        assert!(lever.remedy.unwrap().contains("container"));
    }
}

#[test]
fn energy_events_are_counted_by_the_running_kernel_alone() {
    let fake = Fake::intel();
    assert!(
        fake.of("perf energy events")
            .remedy
            .unwrap()
            .contains("modprobe rapl")
    );
    for (file, text) in [
        ("type", "23"),
        ("cpumask", "0"),
        ("events/energy-pkg", "event=0x02"),
        ("events/energy-pkg.scale", "2.3283064365386962890625e-10"),
        ("events/energy-pkg.unit", "Joules"),
    ] {
        fake.put(&format!("sys/bus/event_source/devices/power/{file}"), text);
    }
    let perf = fake.of("perf energy events");
    assert!(
        perf.state == State::Unusable && perf.why.contains("running kernel"),
        "{perf}"
    );
}

#[test]
fn the_platforms_counter_is_a_meter_of_its_own() {
    let fake = Fake::intel();
    let psys = fake.of("RAPL platform energy");
    assert!(
        psys.state == State::Unusable && psys.why.contains("psys"),
        "{psys}"
    );
    fake.zone("intel-rapl:2", "psys", false);
    let psys = fake.of("RAPL platform energy");
    assert!(
        psys.state == State::Usable && psys.why.contains("board's choice"),
        "{psys}"
    );
    assert!(!fake.of("RAPL energy").why.contains("psys"));
}

#[test]
fn a_virtual_machine_without_anything_falls_to_the_model_and_the_software_cap() {
    let fake = Fake::new("flags\t\t: fpu hypervisor\n").cgroup2("cpuset cpu\n");
    for what in [
        "RAPL energy",
        "RAPL power limits",
        "CPU frequency",
        "CPU frequency limit",
        "CPU idle states",
    ] {
        let finding = fake.of(what);
        assert_eq!(finding.state, State::Unusable, "{finding}");
        assert!(finding.why.contains("host"), "{finding}");
        assert!(finding.remedy.is_some(), "{finding}");
    }
    assert_eq!(fake.of("software power cap").state, State::Usable);
    let modelled = fake.of("modelled power");
    assert!(
        modelled.state == State::Usable && modelled.why.contains("estimated"),
        "{modelled}"
    );
    assert!(modelled.why.contains("highest is assumed"));
    let amd = Fake::new("vendor_id\t: AuthenticAMD\nflags\t\t: fpu hypervisor\n");
    for (what, helps) in [
        ("HSMP socket power (AMD)", "modelled meter"),
        ("hwmon power sensors", "modelled meter"),
        ("HSMP power limits (AMD)", "software power cap"),
    ] {
        let remedy = amd.of(what).remedy.unwrap();
        assert!(remedy.contains(helps), "{what}: {remedy}");
    }
}

#[test]
fn a_container_with_masked_powercap_says_that_it_may_be_masked() {
    let fake = Fake::new("flags\t\t: fpu\n").cgroup2("cpuset cpu\n");
    fs::create_dir_all(fake.tree.path("sys/class/powercap")).unwrap();
    let energy = fake.of("RAPL energy");
    assert!(
        energy.state == State::Unusable && energy.why.contains("container masks it"),
        "{energy}"
    );
}

#[test]
fn counters_for_root_alone_say_how_to_share_them() {
    let fake = Fake::intel();
    let roots = Roots::at(fake.tree.path(""), fake.tree.path(""));
    let machine = Machine::examine(&roots, &roots, &fake);
    let path = Path::new("/sys/class/powercap/intel-rapl:0/energy_uj");
    let denied = file::FileError::new(file::Action::Read, path, Errno::ACCESS.into());
    let (evidence, why, remedy) = power::why_no_meter(&machine, &denied.into());
    assert_eq!(evidence.as_deref(), Some(path));
    assert!(
        why.contains("this user may not") && remedy.contains("chgrp"),
        "{why}; {remedy}"
    );
}

#[test]
fn a_controller_that_is_not_enabled_for_services_limits_quota_and_cap() {
    let fake = Fake::new("flags\t\t: fpu\n").cgroup2("memory\n");
    for what in ["CPU quota", "software power cap"] {
        let finding = fake.of(what);
        assert_eq!(finding.state, State::Limited, "{finding}");
        assert!(finding.remedy.unwrap().contains("echo +cpu >"));
    }
}

#[test]
fn a_read_only_cgroup_file_system_is_unusable() {
    let mut fake = Fake::new("flags\t\t: fpu\n").cgroup2("cpuset cpu\n");
    fake.denied.push(("fs/cgroup".into(), Errno::ROFS));
    let quota = fake.of("CPU quota");
    assert!(
        quota.state == State::Unusable && quota.why.contains("read-only"),
        "{quota}"
    );
    assert!(quota.remedy.unwrap().contains("container"));
    assert_eq!(fake.of("software power cap").state, State::Unusable);
}

#[test]
fn a_hybrid_machine_limits_by_version_1() {
    let fake = Fake::new("flags\t\t: fpu\n");
    let lines = "1 0 0:1 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                 2 0 0:2 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n\
                 3 0 0:3 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    fake.put("proc/self/mountinfo", lines);
    fake.put("sys/fs/cgroup/cpu/cgroup.procs", "");
    fake.put("sys/fs/cgroup/cpuacct/cpuacct.usage", "1");
    fake.put("sys/fs/cgroup/unified/cgroup.controllers", "\n");
    let quota = fake.of("CPU quota");
    assert!(
        quota.state == State::Usable && quota.why.contains("v1 (v2 is mounted as well"),
        "{quota}"
    );
    let cpuset = fake.of("CPU sets");
    assert!(
        cpuset.state == State::Unusable && cpuset.why.contains("hybrid: v1 (cpu cpuacct)"),
        "{cpuset}"
    );
}

#[test]
fn a_machine_without_cgroups_has_no_quota_and_no_cap() {
    let fake = Fake::new("flags\t\t: fpu\n");
    fake.put("proc/self/mountinfo", "1 0 0:1 / / rw - ext4 /dev/vda rw\n");
    for what in [
        "CPU quota",
        "CPU sets",
        "CPU time of a service",
        "software power cap",
    ] {
        assert_eq!(fake.of(what).state, State::Unusable, "{what}");
    }
}

#[test]
fn tools_follow_capabilities_levels_and_devices() {
    let mut fake = Fake::new("flags\t\t: fpu\n").cgroup2("cpuset cpu\n");
    for what in [
        "perf events",
        "eBPF",
        "FUSE (emulated hardware)",
        "network namespaces",
    ] {
        assert_eq!(fake.of(what).state, State::Usable, "{what}");
    }
    fake.put("proc/self/status", "CapEff:\t0000000000000000\n");
    fake.put("proc/sys/user/max_user_namespaces", "1000\n");
    fake.devices.clear();
    assert_eq!(fake.of("perf events").state, State::Limited);
    assert_eq!(fake.of("eBPF").state, State::Unusable);
    assert_eq!(fake.of("network namespaces").state, State::Limited);
    assert!(
        fake.of("FUSE (emulated hardware)")
            .remedy
            .unwrap()
            .contains("modprobe fuse")
    );
    fake.put("proc/sys/kernel/perf_event_paranoid", "4\n");
    assert_eq!(fake.of("perf events").state, State::Unusable);
    fake.put("proc/sys/kernel/perf_event_paranoid", "-1\n");
    assert_eq!(fake.of("perf events").state, State::Usable);
}

#[test]
fn this_machine_is_probed_without_a_change_and_every_finding_shows_its_evidence() {
    let findings = probe(&Roots::default());
    assert!(findings.len() >= 14);
    for finding in &findings {
        assert!(finding.evidence.is_absolute(), "{finding}");
        println!("{finding}");
    }
    let names: std::collections::BTreeSet<&str> =
        findings.iter().map(|finding| finding.what.as_str()).collect();
    assert_eq!(names.len(), findings.len());
    let kinds: Vec<Kind> = findings.iter().map(|finding| finding.kind).collect();
    assert!(kinds.windows(2).all(|pair| pair[0] as u8 <= pair[1] as u8));
}

#[test]
fn the_ways_to_measure_a_queue_follow_the_kernel_capabilities_and_agents() {
    let fake = Fake::new("flags\t\t: fpu\n").cgroup2("cpuset cpu\n");
    let ebpf = "accept queue by eBPF";
    if headroom_queue_bpf::object().is_ok() {
        fake.put("proc/sys/kernel/osrelease", "6.18.1\n");
        assert_eq!(fake.of(ebpf).state, State::Usable);
        fake.put("proc/sys/kernel/osrelease", "5.15.0-91-generic\n");
        assert!(fake.of(ebpf).why.contains("5.15.0"));
        fake.put("proc/self/status", "CapEff:\t0000000000000000\n");
        assert!(fake.of(ebpf).remedy.unwrap().contains("CAP_BPF"));
    } else {
        assert!(fake.of(ebpf).remedy.unwrap().contains("clang"));
    }
    let kernel = "accept queue by sock_diag and /proc";
    assert_eq!(fake.of(kernel).state, State::Unusable);
    fake.put("proc/net/netstat", "TcpExt: ListenDrops\nTcpExt: 0\n");
    assert_eq!(fake.of(kernel).state, State::Usable);
    let snmp = "accept queue by SNMP";
    assert_eq!(fake.of(snmp).state, State::Unusable);
    fake.put(
        "proc/net/udp",
        "  sl  local_address rem_address   st\n  1: 0100007F:00A1 00000000:0000 07\n",
    );
    assert_eq!(fake.of(snmp).state, State::Limited);
}
