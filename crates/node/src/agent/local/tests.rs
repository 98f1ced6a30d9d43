use super::*;
use crate::testing::says;
use headroom_units::{Hertz, Lever, Setting, Watts};
use std::fs;
use std::path::Path;

/// A version 2 machine of four processors with the group `/web`.
fn machine(dir: &Path) -> (Roots, LocalOptions) {
    let put = |path: &str, text: &str| {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put(
        "proc/self/mountinfo",
        "25 20 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n",
    );
    put("proc/stat", "cpu  10 0 10 80 0 0 0 0 0 0\n");
    put(
        "proc/cpuinfo",
        "processor\t: 0\nmodel name\t: Some Processor 9000\n",
    );
    put("proc/sys/kernel/hostname", "n1\n");
    put("sys/devices/system/cpu/online", "0-3\n");
    put("sys/fs/cgroup/cgroup.controllers", "cpuset cpu\n");
    put("sys/fs/cgroup/cgroup.subtree_control", "cpuset cpu\n");
    put("sys/fs/cgroup/cpuset.cpus.effective", "0-3\n");
    put("sys/fs/cgroup/web/cpu.max", "max 100000\n");
    put(
        "sys/fs/cgroup/web/cpu.stat",
        "usage_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
    );
    let roots = Roots::at(dir.join("sys"), dir.join("proc"));
    let model = PowerModel::default_for(Cores::new(4.0)).unwrap();
    let options = LocalOptions::of(roots.clone(), "/web".parse().unwrap(), model);
    (roots, options)
}

fn quota(dir: &Path) -> String {
    fs::read_to_string(dir.join("sys/fs/cgroup/web/cpu.max"))
        .unwrap()
        .trim()
        .into()
}

fn cores(cores: f64) -> Setting {
    Setting::default().with(Lever::Cores, Some(cores))
}

#[test]
fn an_allocation_is_written_and_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let (_, options) = machine(dir.path());
    let registry = Registry::new();
    let mut machine = LocalMachine::open(options, &registry).unwrap();
    assert_eq!(quota(dir.path()), "max 100000", "opening writes nothing");
    assert_eq!(machine.apply(cores(1.5)), Ok(vec![]));
    assert_eq!(quota(dir.path()), "15000 10000");
    assert_eq!(machine.in_force(), cores(1.5));
    let done = machine.put_back();
    assert_eq!((done.failed.len(), done.notes.len()), (0, 1), "{done:?}");
    assert_eq!(quota(dir.path()), "max 100000");
    assert_eq!(machine.in_force(), Setting::default());
    assert_eq!(machine.put_back(), PutBack::default());
    // And once more: the registry of a machine that was put back is used again.
    machine.apply(cores(2.0)).unwrap();
    assert_eq!(quota(dir.path()), "20000 10000");
    machine.apply(Setting::default()).unwrap();
    assert_eq!(quota(dir.path()), "max 100000");
}

#[test]
fn what_could_not_be_put_back_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let (_, options) = machine(dir.path());
    let mut machine = LocalMachine::open(options, &Registry::new()).unwrap();
    machine.apply(cores(1.0)).unwrap();
    let file = dir.path().join("sys/fs/cgroup/web/cpu.max");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    for _ in 0..2 {
        let done = machine.put_back();
        assert!(
            done.failed.len() == 1 && done.failed[0].contains("cpu.max"),
            "{done:?}"
        );
    }
    fs::remove_dir(&file).unwrap();
    fs::write(&file, "10000 10000\n").unwrap();
    let done = machine.put_back();
    assert_eq!((done.failed.len(), done.notes.len()), (0, 1), "{done:?}");
    assert_eq!(quota(dir.path()), "max 100000");
}

#[test]
fn what_somebody_changed_between_two_leases_is_what_is_put_back_next() {
    let dir = tempfile::tempdir().unwrap();
    let (_, options) = machine(dir.path());
    let mut machine = LocalMachine::open(options, &Registry::new()).unwrap();
    machine.apply(cores(1.0)).unwrap();
    machine.put_back();
    fs::write(dir.path().join("sys/fs/cgroup/web/cpu.max"), "300000 100000\n").unwrap();
    machine.apply(cores(1.0)).unwrap();
    drop(machine);
    assert_eq!(quota(dir.path()), "300000 100000");
}

#[test]
fn a_cap_limits_by_quota_within_its_range() {
    let dir = tempfile::tempdir().unwrap();
    let (_, options) = machine(dir.path());
    let model = options.model.clone();
    let mut machine = LocalMachine::open(options, &Registry::new()).unwrap();
    let range = machine.ranges().get(Lever::Cap).unwrap();
    assert_eq!(range.max, model.maximum_cap().get());
    let half = Watts::new((range.min + range.max) / 2.0);
    machine
        .apply(Setting::default().with(Lever::Cap, Some(half.get())))
        .unwrap();
    let written: f64 = quota(dir.path()).split(' ').next().unwrap().parse().unwrap();
    assert!((2_000.0..38_000.0).contains(&written), "{written}");
    let counters = machine.read();
    let usable = counters.usable.unwrap().get();
    assert!((0.2..3.8).contains(&usable), "{usable} of 4 cores under the cap");
    assert_eq!(counters.refused.unwrap().count, 0);
    assert_eq!(
        machine.in_force(),
        Setting::default().with(Lever::Cap, Some(half.get()))
    );
}

#[test]
fn a_cap_is_held_by_the_hardware_where_it_can_and_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let (_, options) = machine(dir.path());
    let package = dir.path().join("sys/class/powercap/intel-rapl:0");
    fs::create_dir_all(&package).unwrap();
    for (name, value) in [
        ("name", "package-0"),
        ("energy_uj", "1000000"),
        ("max_energy_range_uj", "262143328850"),
        ("enabled", "1"),
        ("constraint_0_name", "long_term"),
        ("constraint_0_power_limit_uw", "80000000"),
        ("constraint_0_max_power_uw", "100000000"),
        ("constraint_0_time_window_us", "1000000"),
    ] {
        fs::write(package.join(name), format!("{value}\n")).unwrap();
    }
    let limit = || {
        let text = fs::read_to_string(package.join("constraint_0_power_limit_uw")).unwrap();
        text.trim().parse::<u64>().unwrap()
    };
    // A counter that stands still is no meter: this one draws until the machine is open.
    let mut machine = std::thread::scope(|scope| {
        let energy = package.join("energy_uj");
        let (open, opened) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            let pause = std::time::Duration::from_millis(2);
            let closed = std::sync::mpsc::RecvTimeoutError::Disconnected;
            for step in 1u64.. {
                let fresh = energy.with_extension("new");
                fs::write(&fresh, format!("{}\n", 1_000_000 + step * 80_000)).unwrap();
                fs::rename(&fresh, &energy).unwrap();
                if opened.recv_timeout(pause) == Err(closed) {
                    return;
                }
            }
        });
        let machine = LocalMachine::open(options, &Registry::new()).unwrap();
        drop(open);
        machine
    });
    let about = machine.about();
    let used: Vec<&str> = about
        .devices
        .iter()
        .filter(|lever| lever.in_use)
        .map(|lever| lever.name.as_str())
        .collect();
    assert_eq!(used, ["CPU quota", "RAPL power limits"]);
    assert_eq!(about.source, Source::Measured);
    let caps = machine.ranges().get(Lever::Cap).unwrap();
    assert_eq!(
        caps.max, 80.0,
        "what was found is somebody's decision: no cap goes above it"
    );
    let cap = Watts::new(50.0);
    let asked = Setting::default()
        .with(Lever::Cores, Some(2.0))
        .with(Lever::Cap, Some(cap.get()));
    machine.apply(asked).unwrap();
    assert_eq!((limit(), quota(dir.path())), (50_000_000, "20000 10000".into()));
    assert_eq!(machine.in_force(), asked);
    // What was accepted once is accepted at every renewal, whatever is learnt of the rest of the machine.
    assert!(machine.ranges().get(Lever::Cap).unwrap().min <= caps.min);
    let done = machine.put_back();
    assert!(done.failed.is_empty(), "{done:?}");
    assert_eq!((limit(), quota(dir.path())), (80_000_000, "max 100000".into()));
}

#[test]
fn a_cap_that_was_said_to_be_possible_is_not_refused_when_the_rest_of_the_machine_draws_less() {
    let dir = tempfile::tempdir().unwrap();
    let (_, options) = machine(dir.path());
    let zones = dir.path().join("sys/class/powercap");
    for (zone, name) in [("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "dram")] {
        fs::create_dir_all(zones.join(zone)).unwrap();
        for (file, value) in [
            ("name", name),
            ("energy_uj", "1000000"),
            ("max_energy_range_uj", "262143328850"),
            ("enabled", "1"),
        ] {
            fs::write(zones.join(zone).join(file), format!("{value}\n")).unwrap();
        }
    }
    for (file, value) in [
        ("constraint_0_name", "long_term"),
        ("constraint_0_power_limit_uw", "60000000"),
        ("constraint_0_max_power_uw", "60000000"),
        ("constraint_0_time_window_us", "1000000"),
    ] {
        fs::write(zones.join("intel-rapl:0").join(file), format!("{value}\n")).unwrap();
    }
    // What the memory draws beside the package, watts.
    let memory_w = std::sync::atomic::AtomicU64::new(20);
    std::thread::scope(|scope| {
        let (open, ended) = std::sync::mpsc::channel::<()>();
        let (zones, memory_w) = (&zones, &memory_w);
        scope.spawn(move || {
            let closed = std::sync::mpsc::RecvTimeoutError::Disconnected;
            let (mut counted, mut before) = ([1e6; 2], std::time::Instant::now());
            while ended.recv_timeout(std::time::Duration::from_millis(2)) != Err(closed) {
                let now = std::time::Instant::now();
                let us = (now - before).as_secs_f64() * 1e6;
                before = now;
                let watts = [40.0, memory_w.load(std::sync::atomic::Ordering::Relaxed) as f64];
                for ((zone, counted), watts) in ["intel-rapl:0", "intel-rapl:0:0"]
                    .iter()
                    .zip(&mut counted)
                    .zip(watts)
                {
                    *counted += watts * us;
                    let file = zones.join(zone).join("energy_uj");
                    let fresh = file.with_extension("new");
                    fs::write(&fresh, format!("{counted:.0}\n")).unwrap();
                    fs::rename(&fresh, &file).unwrap();
                }
            }
        });
        let registry = Registry::new();
        let mut machine = LocalMachine::open(options, &registry).unwrap();
        let full = machine.ranges().get(Lever::Cap).unwrap();
        assert_eq!(full.max, 60.0, "nothing is known of the rest yet");
        machine
            .apply(Setting::default().with(Lever::Cap, Some(full.max)))
            .unwrap();
        let can_hold = |machine: &LocalMachine| machine.bounds().unwrap().cap.unwrap().largest.get();
        let wait_for = |what: &str, machine: &LocalMachine, holds: &dyn Fn(f64) -> bool| {
            let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while !holds(can_hold(machine)) {
                assert!(std::time::Instant::now() < until, "{what}: {}", can_hold(machine));
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        };
        wait_for("the memory is measured", &machine, &|most| most > 75.0);
        // A controller that connects now is told this, and asks for all of it later.
        let told = machine.ranges().get(Lever::Cap).unwrap().max;
        memory_w.store(1, std::sync::atomic::Ordering::Relaxed);
        wait_for("the memory draws less", &machine, &|most| most < 70.0);
        let asked = Setting::default().with(Lever::Cap, Some(told));
        assert_eq!(machine.ranges().check(&asked), Ok(()));
        let notes = machine.apply(asked).unwrap();
        assert!(
            notes.iter().any(|note| note.contains("was bounded to what")),
            "what cannot be held of it is said: {notes:?}"
        );
        // Without a lease nothing was measured, and what can be held is asked of the machine as it is.
        machine.put_back();
        assert_eq!(machine.ranges().get(Lever::Cap).unwrap().max, 60.0);
        drop(machine);
        drop(open);
    });
}

#[test]
fn the_ranges_follow_the_machine() {
    let dir = tempfile::tempdir().unwrap();
    let (_, options) = machine(dir.path());
    let mut machine = LocalMachine::open(options, &Registry::new()).unwrap();
    assert_eq!(
        machine.ranges().get(Lever::Cores),
        Some(LeverRange::between(0.1, 4.0))
    );
    fs::write(dir.path().join("sys/devices/system/cpu/online"), "0-1\n").unwrap();
    assert_eq!(machine.ranges().get(Lever::Cores).unwrap().max, 2.0);
    fs::remove_dir_all(dir.path().join("sys/fs/cgroup/web")).unwrap();
    let reason = machine.ranges().missing(Lever::Cores).unwrap().reason.clone();
    assert!(reason.contains("/web"), "{reason}");
}

#[test]
fn counters_go_on_when_the_service_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (_, options) = machine(dir.path());
    let mut machine = LocalMachine::open(options, &Registry::new()).unwrap();
    let stat = dir.path().join("sys/fs/cgroup/web/cpu.stat");
    let used = |us: u64| format!("usage_usec {us}\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n");
    fs::write(&stat, used(40_000)).unwrap();
    let before = machine.read();
    assert_eq!(before.cpu.unwrap().used.as_micros(), 40_000);
    assert_eq!(before.energy.as_ref().unwrap().total.source, Source::Estimated);

    fs::remove_file(&stat).unwrap();
    let gone = machine.read();
    assert_eq!((gone.cpu, gone.energy), (None, None));
    assert!(
        gone.troubles.iter().any(|trouble| trouble.contains("cpu.stat")),
        "{:?}",
        gone.troubles
    );
    assert_eq!(
        machine.read().troubles,
        Vec::<String>::new(),
        "it is reported once"
    );

    fs::write(&stat, used(10_000)).unwrap();
    machine.sensors.reopen();
    fs::write(&stat, used(15_000)).unwrap();
    let after = machine.read();
    assert_eq!(after.cpu.unwrap().used.as_micros(), 45_000);
    assert!(after.energy.unwrap().total.uj >= before.energy.unwrap().total.uj);
    assert_eq!(after.troubles, ["the counters of the service can be read again"]);
}

#[test]
fn a_group_that_is_made_anew_is_limited_again() {
    let dir = tempfile::tempdir().unwrap();
    let (_, options) = machine(dir.path());
    let mut machine = LocalMachine::open(options, &Registry::new()).unwrap();
    machine.apply(cores(1.5)).unwrap();
    let web = dir.path().join("sys/fs/cgroup/web");
    let stat = fs::read(web.join("cpu.stat")).unwrap();
    fs::remove_dir_all(&web).unwrap();
    let why = machine.apply(cores(1.0)).unwrap_err().why;
    assert!(machine.gone().unwrap().contains("is gone"), "{why}");
    assert_eq!((machine.lever(), machine.in_force()), (None, Setting::default()));
    machine.apply(cores(1.0)).unwrap_err();
    let said = machine.read().troubles;
    assert_eq!(
        said.iter().filter(|line| line.contains("is gone")).count(),
        1,
        "{said:?}"
    );

    fs::create_dir(&web).unwrap();
    fs::write(web.join("cpu.max"), "max 100000\n").unwrap();
    fs::write(web.join("cpu.stat"), stat).unwrap();
    assert_eq!(machine.apply(cores(1.0)), Ok(vec![]));
    assert_eq!((machine.gone(), quota(dir.path())), (None, "10000 10000".into()));
    let said = machine.read().troubles;
    assert!(
        said.iter().any(|line| line.contains("is there again")),
        "{said:?}"
    );
    machine.put_back();
    assert_eq!(quota(dir.path()), "max 100000");
}

#[test]
fn a_machine_says_who_it_is_and_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let (_, options) = machine(dir.path());
    let mut named = LocalMachine::open(
        LocalOptions {
            name: Some("web-3".into()),
            emulated: true,
            ..options.clone()
        },
        &Registry::new(),
    )
    .unwrap();
    let about = named.about();
    assert_eq!(about.node.name, "web-3");
    assert_eq!(about.source, Source::Emulated);
    assert!(
        about
            .meters
            .iter()
            .all(|meter| meter.source == Source::Emulated.as_str())
    );
    drop(named);

    let mark = dir.path().join("sys/headroom-testbed/emulated");
    fs::create_dir_all(mark.parent().unwrap()).unwrap();
    fs::write(&mark, "").unwrap();
    let mut marked = LocalMachine::open(options.clone(), &Registry::new()).unwrap();
    let about = marked.about();
    assert_eq!(about.source, Source::Emulated, "the tree says so itself");
    assert_eq!(about.envelope.unwrap().source, Source::Emulated);
    assert!(
        about
            .meters
            .iter()
            .all(|meter| meter.source == Source::Emulated.as_str())
    );
    drop(marked);
    fs::remove_file(&mark).unwrap();

    let mut machine = LocalMachine::open(options, &Registry::new()).unwrap();
    let about = machine.about();
    assert_eq!((about.node.name.as_str(), about.node.cores_online), ("n1", 4));
    assert_eq!(about.node.processor, "Some Processor 9000");
    let used: Vec<&str> = about
        .devices
        .iter()
        .filter(|lever| lever.in_use)
        .map(|lever| lever.name.as_str())
        .collect();
    assert_eq!(used, ["CPU quota", "software power cap"]);
    let rapl = about
        .meters
        .iter()
        .find(|meter| meter.name == "RAPL energy")
        .unwrap();
    assert!(!rapl.usable && !rapl.in_use);
    assert!(!rapl.reason.is_empty() && !rapl.remedy.is_empty());
    let modelled = about
        .meters
        .iter()
        .find(|meter| meter.name == "modelled power")
        .unwrap();
    assert_eq!((modelled.source.as_str(), modelled.in_use), ("estimated", true));
}

#[test]
fn a_service_that_does_not_exist_stops_the_agent_before_it_starts() {
    let dir = tempfile::tempdir().unwrap();
    let (_, mut options) = machine(dir.path());
    options.target = "/nowhere".parse().unwrap();
    says(
        LocalMachine::open(options, &Registry::new()).unwrap_err(),
        &["/nowhere"],
    );
}

#[test]
fn a_paused_node_refuses_allocations_and_has_everything_on() {
    let dir = tempfile::tempdir().unwrap();
    let (_, options) = machine(dir.path());
    let registry = Registry::new();
    let mut machine = LocalMachine::open(options, &registry).unwrap();
    machine.apply(cores(1.0)).unwrap();
    let file = dir.path().join("sys/fs/cgroup/web/cpu.max");
    let max = || fs::read_to_string(&file).unwrap().trim().to_owned();
    assert_eq!(max(), "10000 10000");
    assert_eq!(registry.pause().restored(), 1);
    assert_eq!(max(), "max 100000");
    machine.read();
    assert_eq!(machine.in_force(), Setting::default());
    let refused = machine.apply(cores(1.0)).unwrap_err();
    assert!(refused.why.contains("headroom resume"), "{refused}");
    assert_eq!(max(), "max 100000");
    registry.resume();
    machine.apply(cores(1.0)).unwrap();
    assert_eq!(max(), "10000 10000");
    drop(machine);
    assert_eq!(max(), "max 100000");
}

/// Counts what is logged of somebody else's writes.
#[derive(Default)]
struct Logged(std::sync::atomic::AtomicU32);

impl tracing::Subscriber for Logged {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn somebody_elses_write_is_told_once_and_left_to_the_caller_to_log() {
    let dir = tempfile::tempdir().unwrap();
    let (_, options) = machine(dir.path());
    let logged = std::sync::Arc::new(Logged::default());
    tracing::subscriber::with_default(logged.clone(), || {
        let mut machine = LocalMachine::open(options, &Registry::new()).unwrap();
        machine.apply(cores(1.0)).unwrap();
        fs::write(dir.path().join("sys/fs/cgroup/web/cpu.max"), "300000 100000\n").unwrap();
        machine.apply(cores(2.0)).unwrap();
        let reported = machine.read().troubles;
        assert_eq!(reported.len(), 1, "{reported:?}");
        assert!(
            reported[0].contains("somebody else wrote \"300000 100000\""),
            "{reported:?}"
        );
        assert!(machine.read().troubles.is_empty());
        machine.put_back();
    });
    assert_eq!(logged.0.load(std::sync::atomic::Ordering::Relaxed), 0);
}

/// Two policies of two processors each, from 0.8 to 3 GHz.
fn policies(dir: &Path) {
    for number in [0, 2] {
        let policy = dir.join(format!("sys/devices/system/cpu/cpufreq/policy{number}"));
        fs::create_dir_all(&policy).unwrap();
        for (name, value) in [
            ("cpuinfo_min_freq", "800000"),
            ("cpuinfo_max_freq", "3000000"),
            ("scaling_min_freq", "800000"),
            ("scaling_max_freq", "2800000"),
            ("scaling_cur_freq", "2000000"),
            ("affected_cpus", "0 1"),
        ] {
            fs::write(policy.join(name), format!("{value}\n")).unwrap();
        }
    }
}

fn highest(dir: &Path) -> String {
    let file = dir.join("sys/devices/system/cpu/cpufreq/policy2/scaling_max_freq");
    fs::read_to_string(file).unwrap().trim().into()
}

fn slow(ghz: f64) -> Setting {
    cores(1.5).with(Lever::Frequency, Some(ghz * 1e9))
}

#[test]
fn a_limit_on_the_frequency_is_written_beside_the_quota_and_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let (_, options) = machine(dir.path());
    policies(dir.path());
    let mut machine = LocalMachine::open(options, &Registry::new()).unwrap();
    let about = machine.about();
    let lever = |name: &str| {
        about
            .devices
            .iter()
            .find(|lever| lever.name == name)
            .unwrap()
            .in_use
    };
    assert!(lever("CPU frequency limit") && lever("CPU quota") && !lever("CPU sets"));
    let range = machine.ranges().get(Lever::Frequency).unwrap();
    assert_eq!(
        (range.min, range.max, range.step),
        (0.8e9, 2.8e9, 1e8),
        "what was found is somebody's decision"
    );
    assert_eq!(machine.apply(slow(1.25)), Ok(vec![]));
    assert_eq!(
        (quota(dir.path()), highest(dir.path())),
        ("15000 10000".into(), "1250000".into())
    );
    assert_eq!(machine.in_force(), slow(1.25));
    machine.apply(cores(1.0)).unwrap();
    assert_eq!(
        (highest(dir.path()), machine.in_force()),
        ("2800000".into(), cores(1.0))
    );
    machine.apply(slow(0.9)).unwrap();
    let done = machine.put_back();
    assert!(done.failed.is_empty(), "{done:?}");
    assert_eq!(
        (quota(dir.path()), highest(dir.path())),
        ("max 100000".into(), "2800000".into())
    );
}

#[test]
fn a_frequency_that_cannot_be_limited_costs_no_cores_and_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (_, options) = machine(dir.path());
    let mut machine = LocalMachine::open(options.clone(), &Registry::new()).unwrap();
    let none = machine.ranges().missing(Lever::Frequency).unwrap().clone();
    assert!(none.reason.contains("cpufreq"), "{none:?}");
    drop(machine);
    policies(dir.path());
    let mut machine = LocalMachine::open(options, &Registry::new()).unwrap();
    machine.apply(cores(0.5)).unwrap();
    for number in [0, 2] {
        let file = format!("sys/devices/system/cpu/cpufreq/policy{number}/scaling_max_freq");
        fs::remove_file(dir.path().join(&file)).unwrap();
        fs::create_dir(dir.path().join(&file)).unwrap();
    }
    let why = machine.apply(slow(1.2)).unwrap_err().why;
    says(
        &why,
        &["the limit on the frequency is not in force", "scaling_max_freq"],
    );
    assert_eq!(quota(dir.path()), "15000 10000");
    assert_eq!(machine.in_force(), cores(1.5));
}

#[test]
fn a_frequency_that_is_left_alone_is_no_lever() {
    let dir = tempfile::tempdir().unwrap();
    let (_, mut options) = machine(dir.path());
    policies(dir.path());
    options.limiter.frequency = crate::frequency::FrequencyUse::Off;
    let mut machine = LocalMachine::open(options, &Registry::new()).unwrap();
    assert!(
        machine
            .ranges()
            .missing(Lever::Frequency)
            .unwrap()
            .reason
            .contains("leaves the frequency alone")
    );
    assert_eq!(
        machine.read().frequency.unwrap().value,
        Hertz::new(2.0e9),
        "it is read all the same"
    );
}

/// A lever of the machine as a whole that remembers what was commanded.
#[derive(Debug, Default)]
struct Remembering {
    lever: Option<Lever>,
    in_force: Option<f64>,
    refuses: bool,
}

impl Actuator for Remembering {
    fn lever(&self) -> Lever {
        self.lever.unwrap_or(Lever::Servers)
    }

    fn device(&self) -> &str {
        "a device"
    }

    fn range(&self) -> Result<LeverRange, NoLever> {
        Ok(LeverRange::between(1.0, 3.0))
    }

    fn in_force(&self) -> Option<f64> {
        self.in_force
    }

    fn set(&mut self, value: f64) -> Result<(), String> {
        if self.refuses {
            return Err("it is stuck".to_owned());
        }
        self.in_force = Some(value);
        Ok(())
    }

    fn put_back(&mut self) -> Vec<Outcome> {
        let what = "the lever".to_owned();
        self.in_force
            .take()
            .map(|_| Outcome::Restored { what })
            .into_iter()
            .collect()
    }
}

#[test]
fn a_lever_more_is_described_set_and_put_back_with_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let (_, options) = machine(dir.path());
    let open = || LocalMachine::open(options.clone(), &Registry::new()).unwrap();
    let mut machine = open().with(Box::new(Remembering::default())).unwrap();
    let range = machine.ranges().get(Lever::Servers);
    assert_eq!(range, Some(LeverRange::between(1.0, 3.0)));
    let both = Setting::from([(Lever::Cores, 1.5), (Lever::Servers, 2.0)]);
    machine.apply(both).unwrap();
    assert_eq!(machine.in_force(), both);
    let notes = machine.apply(cores(1.0)).unwrap();
    assert_eq!(notes, ["put back: the lever"]);
    assert_eq!(machine.in_force(), cores(1.0));
    machine.apply(both).unwrap();
    assert!(
        machine
            .put_back()
            .notes
            .contains(&"put back: the lever".to_owned())
    );
    assert_eq!(machine.in_force(), Setting::default());

    let stuck = Remembering {
        refuses: true,
        ..Remembering::default()
    };
    let mut machine = open().with(Box::new(stuck)).unwrap();
    assert_eq!(machine.apply(both).unwrap_err().why, "it is stuck");
    assert_eq!(machine.in_force(), cores(1.5), "no other lever waits for it");
}

#[test]
fn two_actuators_of_one_lever_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (_, options) = machine(dir.path());
    for lever in [Lever::Cores, Lever::Servers] {
        let one = |lever| {
            Box::new(Remembering {
                lever: Some(lever),
                ..Remembering::default()
            })
        };
        let machine = LocalMachine::open(options.clone(), &Registry::new()).unwrap();
        let machine = machine.with(one(Lever::Servers)).unwrap();
        let refused = machine.with(one(lever)).unwrap_err();
        assert!(
            refused
                .why
                .contains(&format!("the lever {lever} has two actuators"))
        );
    }
}
