//! The quota and the CPUs of a group, on a tree of files (version 2) and on the kernel (whatever this machine has).

mod common;

use common::{FakeMachine, Running, live_scope, quota_of, says, text};
use headroom_node::Roots;
use headroom_node::cgroup::{Target, Version};
use headroom_node::cpu::quota::Ceiling;
use headroom_node::cpu::{
    CpuError, CpuList, CpusetActuator, QuotaActuator, QuotaOptions, UsageMeter, effective,
};
use headroom_node::restore::{Outcome, Registry};
use headroom_units::{Cores, Seconds};
use proptest::prelude::*;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

fn fake_target(fake: &FakeMachine) -> (Target, PathBuf) {
    let dir = fake.v2_group("slice/web");
    fake.sys("fs/cgroup/slice/cpu.max", "max 100000\n");
    (
        Target::resolve(&fake.roots(), &"/slice/web".parse().unwrap()).unwrap(),
        dir.join("cpu.max"),
    )
}

fn open(fake: &FakeMachine, target: &Target, registry: &Registry) -> QuotaActuator {
    QuotaActuator::open(&fake.roots(), target, QuotaOptions::default(), registry).unwrap()
}

#[test]
fn version_2_is_written_in_one_line_and_put_back() {
    let fake = FakeMachine::v2();
    let (target, max) = fake_target(&fake);
    let registry = Registry::new();
    let mut quota = open(&fake, &target, &registry);
    assert_eq!(text(&max), "max 100000");
    let applied = quota.set(Cores::new(1.5)).unwrap();
    assert_eq!(
        (text(&max).as_str(), applied.cores, applied.limited),
        ("15000 10000", Cores::new(1.5), true)
    );
    let applied = quota.set(Cores::new(99.0)).unwrap();
    assert_eq!(
        (text(&max).as_str(), applied.cores, applied.limited),
        ("max 10000", Cores::new(4.0), false)
    );
    assert_eq!(applied.bounded.unwrap().ceiling, Ceiling::Cpus);
    drop(quota);
    assert_eq!(text(&max), "max 100000");
}

#[test]
fn the_smallest_share_and_the_burst_bound_from_below() {
    let fake = FakeMachine::v2();
    let (target, max) = fake_target(&fake);
    let registry = Registry::new();
    let mut quota = open(&fake, &target, &registry);
    let applied = quota.set(Cores::new(1e-9)).unwrap();
    assert_eq!(
        (text(&max).as_str(), applied.cores),
        ("1000 10000", Cores::new(0.1))
    );
    fs::write(target.cpu_dir.join("cpu.max.burst"), "3000").unwrap();
    assert_eq!(quota.set(Cores::new(0.1)).unwrap().cores, Cores::new(0.3));
}

#[test]
fn limits_found_and_limits_above_bound_from_above() {
    let fake = FakeMachine::v2();
    let (target, max) = fake_target(&fake);
    fs::write(&max, "150000 100000").unwrap();
    let registry = Registry::new();
    let mut quota = open(&fake, &target, &registry);
    let applied = quota.set(Cores::new(4.0)).unwrap();
    assert_eq!(
        (applied.cores, applied.bounded.unwrap().ceiling),
        (Cores::new(1.5), Ceiling::Found)
    );
    let above = fake.sys("fs/cgroup/slice/cpu.max", "33333 100000\n");
    let applied = quota.set(Cores::new(4.0)).unwrap();
    assert_eq!(text(&max), "3333 10000");
    assert_eq!(
        applied.bounded.unwrap().ceiling,
        Ceiling::Ancestor(above.parent().unwrap().into())
    );
    fs::write(&above, "5000 100000").unwrap();
    let error = quota.set(Cores::new(1.0)).unwrap_err();
    assert!(matches!(error, CpuError::NoRoom { .. }) && error.to_string().contains("lengthen the period"));
    drop(quota);
    assert_eq!(text(&max), "150000 100000");
    fs::write(&above, "max 100000").unwrap();
    let options = QuotaOptions {
        exceed_found: true,
        ..QuotaOptions::default()
    };
    let mut quota = QuotaActuator::open(&fake.roots(), &target, options, &registry).unwrap();
    assert_eq!(quota.set(Cores::new(2.0)).unwrap().cores, Cores::new(2.0));
}

#[test]
fn what_is_no_number_of_cores_or_no_period_changes_nothing() {
    let fake = FakeMachine::v2();
    let (target, max) = fake_target(&fake);
    let registry = Registry::new();
    let mut quota = open(&fake, &target, &registry);
    for cores in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
        assert!(
            matches!(quota.set(Cores::new(cores)), Err(CpuError::NotCores { .. })),
            "{cores}"
        );
    }
    assert_eq!(text(&max), "max 100000");
    for ms in [0.0, 0.9, 1001.0, -5.0, f64::NAN] {
        let options = QuotaOptions {
            period: Seconds::from_millis(ms),
            ..QuotaOptions::default()
        };
        let error = QuotaActuator::open(&fake.roots(), &target, options, &registry).unwrap_err();
        assert!(matches!(error, CpuError::Period { .. }), "{ms}: {error}");
    }
}

#[test]
fn another_writer_is_reported_and_left_alone_until_an_operator_gives_the_quota_back() {
    let fake = FakeMachine::v2();
    let (target, max) = fake_target(&fake);
    let registry = Registry::new();
    let mut quota = open(&fake, &target, &registry);
    assert_eq!(quota.set(Cores::new(2.0)).unwrap().foreign, None);
    fs::write(&max, "300000 100000\n").unwrap();
    let set = quota.set(Cores::new(1.0)).unwrap();
    let foreign = set.foreign.unwrap();
    assert_eq!(
        (foreign.expected.as_str(), foreign.seen.as_str()),
        ("20000 10000", "300000 100000")
    );
    assert!(set.held);
    assert_eq!(set.cores, Cores::new(3.0), "what is in force is theirs");
    assert_eq!(quota.set(Cores::new(0.5)).unwrap().foreign, None, "said once");
    assert_eq!(text(&max), "300000 100000");
    registry.resume();
    // Their limit is somebody's decision now: it bounds ours.
    assert_eq!(quota.set(Cores::new(4.0)).unwrap().cores, Cores::new(3.0));
    assert_eq!(quota.set(Cores::new(1.0)).unwrap().cores, Cores::new(1.0));
    drop(quota);
    assert_eq!(text(&max), "300000 100000");
}

#[test]
fn what_was_found_is_nobody_elses_where_it_is_there_again() {
    let fake = FakeMachine::v2();
    let (target, max) = fake_target(&fake);
    let registry = Registry::new();
    let mut quota = open(&fake, &target, &registry);
    quota.set(Cores::new(2.0)).unwrap();
    // The guard put it back while this process stood still.
    fs::write(&max, "max 100000\n").unwrap();
    let set = quota.set(Cores::new(1.0)).unwrap();
    assert_eq!((set.foreign, set.held), (None, false));
    assert_eq!(text(&max), "10000 10000");
    drop(quota);
    assert_eq!(text(&max), "max 100000");
}

#[test]
fn a_pause_puts_everything_back_and_ends_writing_until_it_is_over() {
    let fake = FakeMachine::v2();
    let (target, max) = fake_target(&fake);
    let registry = Registry::new();
    let mut quota = open(&fake, &target, &registry);
    quota.set(Cores::new(2.0)).unwrap();
    let report = registry.pause();
    assert_eq!((report.restored(), report.is_clean()), (1, true), "{report}");
    assert_eq!(text(&max), "max 100000");
    says(quota.set(Cores::new(1.0)).unwrap_err(), &["headroom resume"]);
    assert_eq!(text(&max), "max 100000");
    // What is there when it is over is what was found.
    fs::write(&max, "300000 100000\n").unwrap();
    assert!(registry.resume().is_empty());
    assert_eq!(quota.set(Cores::new(1.0)).unwrap().cores, Cores::new(1.0));
    drop(quota);
    assert_eq!(text(&max), "300000 100000");
}

#[test]
fn a_group_made_anew_is_taken_up_as_it_is() {
    let fake = FakeMachine::v2();
    let (target, max) = fake_target(&fake);
    fs::write(&max, "300000 100000\n").unwrap();
    let mut quota = open(&fake, &target, &Registry::new());
    quota.set(Cores::new(2.0)).unwrap();
    // The old directory keeps its inode while the new one is made, as a new group's is another.
    let group = max.parent().unwrap();
    let gone = group.with_extension("gone");
    fs::rename(group, &gone).unwrap();
    fs::create_dir(group).unwrap();
    for file in fs::read_dir(&gone).unwrap() {
        let file = file.unwrap();
        if file.file_type().unwrap().is_file() {
            fs::copy(file.path(), group.join(file.file_name())).unwrap();
        }
    }
    fs::write(&max, "max 100000\n").unwrap();
    let set = quota.set(Cores::new(1.0)).unwrap();
    assert_eq!((set.foreign, set.held), (None, false));
    assert_eq!(text(&max), "10000 10000");
    drop(quota);
    assert_eq!(text(&max), "max 100000");
}

#[test]
fn another_writer_at_the_end_is_left_alone() {
    let fake = FakeMachine::v2();
    let (target, max) = fake_target(&fake);
    let registry = Registry::new();
    let mut quota = open(&fake, &target, &registry);
    quota.set(Cores::new(2.0)).unwrap();
    fs::write(&max, "70000 100000\n").unwrap();
    assert!(matches!(quota.restore(), Some(Outcome::Foreign { .. })));
    assert_eq!(text(&max), "70000 100000");
    says(quota.set(Cores::new(1.0)).unwrap_err(), &["not written any more"]);
}

#[test]
fn a_format_that_is_not_known_is_refused_before_anything_is_written() {
    let fake = FakeMachine::v2();
    let (target, max) = fake_target(&fake);
    fs::write(&max, "lots of it\n").unwrap();
    let error =
        QuotaActuator::open(&fake.roots(), &target, QuotaOptions::default(), &Registry::new()).unwrap_err();
    assert!(
        error.to_string().contains("cpu.max") && error.to_string().contains("lots of it"),
        "{error}"
    );
    assert_eq!(text(&max), "lots of it");
}

#[test]
fn cpus_are_chosen_among_the_allowed_and_strangers_refused() {
    let fake = FakeMachine::v2();
    let (_, _) = fake_target(&fake);
    let cpus = fake.sys("fs/cgroup/slice/web/cpuset.cpus", "\n");
    fake.sys("fs/cgroup/slice/cpuset.cpus.effective", "1-3\n");
    let target = Target::resolve(&fake.roots(), &"/slice/web".parse().unwrap()).unwrap();
    let registry = Registry::new();
    let mut cpuset = CpusetActuator::open(&fake.roots(), &target, &registry).unwrap();
    assert_eq!(cpuset.set(Cores::new(1.2)).unwrap().cpus.to_string(), "1-2");
    assert_eq!(cpuset.set(Cores::new(64.0)).unwrap().cpus.to_string(), "1-3");
    assert_eq!(cpuset.set(Cores::new(0.01)).unwrap().cpus.to_string(), "1");
    says(
        cpuset.set_list(&"0,2".parse().unwrap()).unwrap_err(),
        &["0,2", "1-3", "cpuset.cpus.effective"],
    );
    assert!(cpuset.set_list(&CpuList::default()).is_err());
    assert_eq!(text(&cpus), "1");
    drop(cpuset);
    assert_eq!(text(&cpus), "");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_is_asked_the_kernels_rules_hold(
        asked in prop_oneof![0.0..8.0f64, any::<f64>()], period_ms in 1.0..1000.0f64,
        found in proptest::option::of(1_000u64..900_000), burst in 0u64..20_000,
    ) {
        let fake = FakeMachine::v2();
        let (target, max) = fake_target(&fake);
        let found = found.map_or("max 100000".to_string(), |quota| format!("{quota} 100000"));
        fs::write(&max, &found).unwrap();
        fs::write(target.cpu_dir.join("cpu.max.burst"), burst.to_string()).unwrap();
        let registry = Registry::new();
        let options = QuotaOptions { period: Seconds::from_millis(period_ms), ..QuotaOptions::default() };
        let mut quota = QuotaActuator::open(&fake.roots(), &target, options, &registry).unwrap();
        match quota.set(Cores::new(asked)) {
            Ok(applied) => {
                let written = text(&max);
                let (quota_us, period_us) = written.split_once(' ').unwrap();
                let period_us: u64 = period_us.parse().unwrap();
                prop_assert!((1_000..=1_000_000).contains(&period_us));
                if quota_us != "max" {
                    let quota_us: u64 = quota_us.parse().unwrap();
                    prop_assert!(quota_us >= 1_000.max(burst), "{written}");
                    prop_assert_eq!(applied.cores, Cores::new(quota_us as f64 / period_us as f64));
                }
            }
            Err(error) => {
                prop_assert!(asked.is_nan() || asked <= 0.0, "{}", error);
            }
        }
        drop(quota);
        prop_assert_eq!(text(&max), found);
    }
}

#[test]
fn the_kernel_never_refuses_what_is_written() {
    let registry = Registry::new();
    let Some(scope) = live_scope(&registry) else {
        return;
    };
    let target = scope.target().clone();
    let found = quota_of(&target);
    let cpus = effective(&Roots::default(), &target).unwrap().len() as f64;
    for period_ms in [1.0, 3.333, 10.0, 100.0, 1000.0] {
        let options = QuotaOptions {
            period: Seconds::from_millis(period_ms),
            ..QuotaOptions::default()
        };
        let mut quota = QuotaActuator::open(&Roots::default(), &target, options, &registry).unwrap();
        let mut asked = vec![
            f64::MIN_POSITIVE,
            1e-6,
            0.000_999,
            0.0999,
            0.1,
            0.5,
            1.0,
            cpus,
            1e3,
            1e300,
            f64::INFINITY,
        ];
        asked.extend((1..=200).map(|step| f64::from(step) * 0.013));
        for cores in asked {
            let applied = quota
                .set(Cores::new(cores))
                .unwrap_or_else(|error| panic!("{cores} cores: {error}"));
            let smallest = 1.0 / period_ms;
            let expected = cores.clamp(smallest.min(cpus), cpus);
            assert!(
                (applied.cores.get() - expected).abs() <= 0.001,
                "{cores}: {applied:?}"
            );
        }
        drop(quota);
        assert_eq!(quota_of(&target), found);
    }
    // And the kernel does refuse what the bounds keep from it.
    if target.version == Version::V1 {
        assert!(fs::write(target.cpu_dir.join("cpu.cfs_quota_us"), "999").is_err());
    }
}

#[test]
fn the_kernel_accepts_what_fits_under_a_group_above() {
    let registry = Registry::new();
    let Some(scope) = live_scope(&registry) else {
        return;
    };
    let above = scope.target().clone();
    if above.version != Version::V1 {
        println!("skipped: only version 1 refuses a share above that of the group above");
        return;
    }
    let child = above.cpu_dir.join("child");
    fs::create_dir(&child).unwrap();
    let group = child.strip_prefix(&above.cpu_root).unwrap().display().to_string();
    let target = Target::resolve(&Roots::default(), &format!("cgroup:/{group}").parse().unwrap()).unwrap();
    let mut upper =
        QuotaActuator::open(&Roots::default(), &above, QuotaOptions::default(), &registry).unwrap();
    let options = QuotaOptions {
        period: Seconds::from_millis(7.0),
        ..QuotaOptions::default()
    };
    let mut lower = QuotaActuator::open(&Roots::default(), &target, options, &registry).unwrap();
    for (limit, asked) in [(1.0, 1.5), (0.777, 0.777), (0.3333, 2.0), (0.5, 0.2)] {
        // The lower one goes first, or version 1 refuses the upper one a share below it.
        lower.set(Cores::new(0.15)).unwrap();
        upper.set(Cores::new(limit)).unwrap();
        let applied = lower.set(Cores::new(asked)).unwrap();
        assert!(
            applied.cores.get() <= f64::min(limit, asked) + 0.000_2,
            "{applied:?}"
        );
        assert!(
            applied.cores.get() > f64::min(limit, asked) - 0.001,
            "{applied:?}"
        );
    }
    drop(lower);
    drop(upper);
    fs::remove_dir(&child).unwrap();
}

#[test]
fn a_quota_really_slows_and_usage_and_throttling_are_counted() {
    let registry = Registry::new();
    let Some(scope) = live_scope(&registry) else {
        return;
    };
    let busy = Running::busy();
    scope.add(busy.pid()).unwrap();
    let mut quota = QuotaActuator::open(
        &Roots::default(),
        scope.target(),
        QuotaOptions::default(),
        &registry,
    )
    .unwrap();
    // The smallest quota: one turn on a CPU uses it up, however many others want to run.
    quota.set(Cores::new(0.1)).unwrap();
    let mut usage = UsageMeter::open(&Roots::default(), scope.target()).unwrap();
    std::thread::sleep(Duration::from_millis(800));
    let sample = usage.sample().unwrap();
    assert!(sample.busy.get() < 0.3, "{sample:?}");
    assert!(
        sample.used.get() > 0.0 && sample.throttled_periods > 0 && sample.periods >= sample.throttled_periods
    );
    assert!(sample.throttled.get() > 0.0);
    assert_eq!(sample.rebases, 0);
}

#[test]
fn cpus_of_the_kernel_are_chosen_and_put_back() {
    let registry = Registry::new();
    let Some(scope) = live_scope(&registry) else {
        return;
    };
    let Some(cpuset) = scope.target().cpuset.clone() else {
        println!("skipped: no cpuset controller for services here");
        return;
    };
    let found = text(cpuset.dir.join("cpuset.cpus"));
    let mut actuator = CpusetActuator::open(&Roots::default(), scope.target(), &registry).unwrap();
    let busy = Running::busy();
    scope.add(busy.pid()).unwrap();
    let chosen = actuator.set(Cores::new(1.0)).unwrap();
    assert_eq!(chosen.cpus.len(), 1);
    assert_eq!(effective(&Roots::default(), scope.target()).unwrap(), chosen.cpus);
    assert_eq!(text(cpuset.dir.join("cpuset.cpus")), chosen.cpus.to_string());
    let allowed = actuator.allowed().unwrap();
    assert_eq!(actuator.set(Cores::new(1e6)).unwrap().cpus, allowed);
    let error = actuator.set_list(&"8000".parse().unwrap()).unwrap_err();
    assert!(matches!(error, CpuError::NotAllowed { .. }), "{error}");
    drop(actuator);
    assert_eq!(text(cpuset.dir.join("cpuset.cpus")), found);
}

#[test]
fn a_group_removed_while_in_use_is_an_error_that_says_so() {
    let registry = Registry::new();
    let Some(mut scope) = live_scope(&registry) else {
        return;
    };
    let target = scope.target().clone();
    let mut quota =
        QuotaActuator::open(&Roots::default(), &target, QuotaOptions::default(), &registry).unwrap();
    let mut usage = UsageMeter::open(&Roots::default(), &target).unwrap();
    quota.set(Cores::new(0.5)).unwrap();
    assert!(matches!(scope.remove(), Some(Outcome::Restored { .. })));
    for message in [
        quota.set(Cores::new(0.4)).unwrap_err().to_string(),
        usage.sample().unwrap_err().to_string(),
    ] {
        says(&message, &["headroom-test", "removed"]);
    }
    assert!(matches!(quota.restore(), Some(Outcome::Gone { .. })));
}

#[test]
fn a_scope_is_made_whole_and_leaves_nothing() {
    let registry = Registry::new();
    let Some(scope) = live_scope(&registry) else {
        return;
    };
    let target = scope.target().clone();
    assert!(target.usage.is_some());
    let busy = Running::busy();
    scope.add(busy.pid()).unwrap();
    for file in scope.procs_files() {
        assert_eq!(text(&file), busy.pid().to_string());
    }
    let by_pid = Target::resolve(&Roots::default(), &format!("pid:{}", busy.pid()).parse().unwrap()).unwrap();
    assert_eq!(by_pid.cpu_dir, target.cpu_dir);
    let dirs: Vec<PathBuf> = scope
        .procs_files()
        .map(|file| file.parent().unwrap().into())
        .collect();
    drop(scope);
    assert!(dirs.iter().all(|dir| !dir.exists()));
    assert!(
        PathBuf::from(format!("/proc/{}", busy.pid())).exists(),
        "the service goes on"
    );
}
