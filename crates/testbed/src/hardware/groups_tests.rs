use super::config::CgroupVersion::{V1, V2};
use super::groups::{Groups, Hierarchy, MAX_GROUPS};
use proptest::prelude::*;
use rustix::io::Errno;

const ALL_ONLINE: fn(usize) -> bool = |_| true;

fn v2(names: &[&str]) -> Groups {
    let mut groups = Groups::new(V2, 16, 2);
    for name in names {
        groups.create(name, Hierarchy::Cpu).unwrap();
    }
    groups
}

fn v1() -> Groups {
    let mut groups = Groups::new(V1, 16, 2);
    for hierarchy in [Hierarchy::Cpu, Hierarchy::Cpuset] {
        groups.create("web", hierarchy).unwrap();
        groups.create("web/inner", hierarchy).unwrap();
    }
    groups
}

#[test]
fn groups_are_made_and_removed_as_the_kernel_does_it() {
    let mut groups = v2(&["web", "web/inner"]);
    assert_eq!(groups.create("web", Hierarchy::Cpu), Err(Errno::EXIST));
    assert_eq!(groups.create("no/inner", Hierarchy::Cpu), Err(Errno::NOENT));
    assert_eq!(groups.create("web/", Hierarchy::Cpu), Err(Errno::INVAL));
    assert_eq!(groups.remove("web", Hierarchy::Cpu), Err(Errno::BUSY));
    assert_eq!(groups.remove("", Hierarchy::Cpu), Err(Errno::BUSY));
    groups.remove("web/inner", Hierarchy::Cpu).unwrap();
    groups.remove("web", Hierarchy::Cpu).unwrap();
    assert_eq!(groups.remove("web", Hierarchy::Cpu), Err(Errno::NOENT));
    assert_eq!(
        groups.create("a/b/c/d/e/f/g/h/i", Hierarchy::Cpu),
        Err(Errno::NOENT)
    );
    for at in 1..MAX_GROUPS {
        groups.create(&format!("g{at}"), Hierarchy::Cpu).unwrap();
    }
    assert_eq!(groups.create("one-more", Hierarchy::Cpu), Err(Errno::NOSPC));
}

#[test]
fn version_1_groups_live_in_each_hierarchy_by_themselves() {
    let mut groups = Groups::new(V1, 16, 2);
    groups.create("web", Hierarchy::Cpu).unwrap();
    assert!(!groups.is_in("web", Hierarchy::Cpuset));
    groups.create("web", Hierarchy::Cpuset).unwrap();
    groups.remove("web", Hierarchy::Cpu).unwrap();
    assert!(groups.is_in("web", Hierarchy::Cpuset) && !groups.is_in("web", Hierarchy::Cpu));
}

#[test]
fn quotas_outside_the_kernels_bounds_are_refused() {
    let mut groups = v2(&["web"]);
    for (quota, period) in [
        (Some(0), 10_000),
        (Some(999), 10_000),
        (Some(1 << 44), 10_000),
        (Some(5_000), 999),
        (None, 1_000_001),
    ] {
        assert_eq!(
            groups.set_bandwidth("web", quota, period),
            Err(Errno::INVAL),
            "{quota:?} {period}"
        );
    }
    groups.set_bandwidth("web", Some(25_000), 10_000).unwrap();
    assert_eq!(groups.entitlement("web", ALL_ONLINE), 2.5);
    assert_eq!(groups.set_burst("web", 25_001), Err(Errno::INVAL));
    groups.set_burst("web", 20_000).unwrap();
    assert_eq!(
        groups.set_bandwidth("web", Some(19_999), 10_000),
        Err(Errno::INVAL)
    );
}

#[test]
fn version_1_refuses_a_share_above_the_group_above_and_version_2_does_not() {
    let mut groups = v1();
    groups.set_bandwidth("web", Some(40_000), 10_000).unwrap();
    assert_eq!(
        groups.set_bandwidth("web/inner", Some(50_000), 10_000),
        Err(Errno::INVAL)
    );
    groups.set_bandwidth("web/inner", Some(30_000), 10_000).unwrap();
    assert_eq!(
        groups.set_bandwidth("web", Some(20_000), 10_000),
        Err(Errno::INVAL)
    );
    let mut groups = v2(&["web", "web/inner"]);
    groups.set_bandwidth("web", Some(40_000), 10_000).unwrap();
    groups.set_bandwidth("web/inner", Some(50_000), 10_000).unwrap();
    assert_eq!(groups.entitlement("web/inner", ALL_ONLINE), 4.0);
}

#[test]
fn cpusets_answer_with_the_kernels_errors() {
    let mut groups = v1();
    assert_eq!(groups.may_enter("web", Hierarchy::Cpuset), Err(Errno::NOSPC));
    assert_eq!(groups.set_cpus("web", "0-16"), Err(Errno::RANGE));
    assert_eq!(groups.set_cpus("web", "zero"), Err(Errno::INVAL));
    groups.set_cpus("web", "0-3\n").unwrap();
    assert_eq!(groups.may_enter("web", Hierarchy::Cpuset), Err(Errno::NOSPC));
    assert_eq!(groups.set_mems("web", "2"), Err(Errno::INVAL));
    groups.set_mems("web", "0").unwrap();
    groups.may_enter("web", Hierarchy::Cpuset).unwrap();
    assert_eq!(groups.set_cpus("web/inner", "4"), Err(Errno::ACCESS));
    groups.set_cpus("web/inner", "2").unwrap();
    assert_eq!(groups.set_cpus("web", "0-1"), Err(Errno::BUSY));
    groups.get_mut("web/inner").unwrap().cpuset_processes.insert(7);
    assert_eq!(groups.set_cpus("web/inner", ""), Err(Errno::NOSPC));
    assert_eq!(groups.effective_cpus("web/inner", ALL_ONLINE), [2]);
}

#[test]
fn version_2_falls_back_to_the_group_above() {
    let mut groups = v2(&["web", "web/inner"]);
    groups.set_cpus("web", "4-7").unwrap();
    groups.set_cpus("web/inner", "0-1").unwrap();
    assert_eq!(groups.effective_cpus("web/inner", ALL_ONLINE), [4, 5, 6, 7]);
    assert_eq!(groups.effective_cpus("web", |cpu| cpu != 5), [4, 6, 7]);
    assert_eq!(groups.entitlement("web", ALL_ONLINE), 4.0);
}

#[test]
fn controllers_are_there_where_the_group_above_gives_them() {
    let mut groups = v2(&["web", "web/inner"]);
    assert!(
        groups.has_controller("web", Hierarchy::Cpu) && !groups.has_controller("web/inner", Hierarchy::Cpu)
    );
    assert!(!groups.has_controller("", Hierarchy::Cpu));
    assert_eq!(groups.controllers("web"), "cpuset cpu");
    assert_eq!(groups.controllers("web/inner"), "");
    assert_eq!(
        groups.set_subtree_control("web", "+memory", false),
        Err(Errno::NOENT)
    );
    assert_eq!(
        groups.set_subtree_control("web", "+wood", false),
        Err(Errno::INVAL)
    );
    assert_eq!(groups.set_subtree_control("web", "cpu", false), Err(Errno::INVAL));
    assert_eq!(groups.set_subtree_control("web", "+cpu", true), Err(Errno::BUSY));
    assert_eq!(
        groups.set_subtree_control("web/inner", "+cpu", false),
        Err(Errno::NOENT)
    );
    groups.set_subtree_control("web", "+cpu", false).unwrap();
    assert!(groups.has_controller("web/inner", Hierarchy::Cpu));
    assert_eq!(groups.set_subtree_control("", "-cpu", false), Err(Errno::BUSY));
    assert_eq!(groups.may_enter("web", Hierarchy::Cpu), Err(Errno::BUSY));
    groups.set_bandwidth("web/inner", Some(5_000), 10_000).unwrap();
    groups.set_subtree_control("web", "-cpu", false).unwrap();
    assert_eq!(groups.get("web/inner").unwrap().quota_us, None);
}

#[test]
fn what_is_allocated_is_what_living_groups_are_entitled_to() {
    let total = |groups: &Groups| groups.allocation(ALL_ONLINE).iter().sum::<f64>();
    let mut groups = v2(&["a", "b", "b/c"]);
    assert_eq!(total(&groups), 0.0);
    groups.set_bandwidth("a", Some(40_000), 10_000).unwrap();
    assert!((total(&groups) - 4.0).abs() < 1e-9);
    groups.get_mut("b/c").unwrap().populated = true;
    assert!((total(&groups) - 16.0).abs() < 1e-9);
    groups.set_bandwidth("b", Some(20_000), 10_000).unwrap();
    assert!((total(&groups) - 6.0).abs() < 1e-9);
    groups.set_cpus("b", "0-1").unwrap();
    let allocation = groups.allocation(ALL_ONLINE);
    assert!((allocation[0] - 1.0).abs() < 1e-9 && (allocation[15] - 0.25).abs() < 1e-9);
}

proptest! {
    /// What is counted never exceeds the entitlement, in any interval, and nothing is counted twice.
    #[test]
    fn counted_busy_time_is_within_the_entitlement(
        steps in proptest::collection::vec((0.001..0.1f64, 0.0..3.0f64, 0.1..16.0f64), 1..100),
    ) {
        let mut groups = v2(&["web"]);
        let group = groups.get_mut("web").unwrap();
        let mut given = 0.0;
        for (dt, use_, entitled) in steps {
            group.entitled = entitled;
            let used = use_ * entitled * dt;
            given += used;
            let before = group.own_usage_us;
            let busy = group.count_busy(dt, used);
            prop_assert!(busy <= entitled * (1.0 + 1e-9));
            prop_assert!(group.own_usage_us >= before);
            prop_assert!((group.own_usage_us / 1e6 + group.dropped_s) <= given + 1e-9);
        }
    }

    /// Whatever the groups and their limits, no CPU is allocated more than once.
    #[test]
    fn no_cpu_is_given_out_twice(
        quotas in proptest::collection::vec((proptest::option::of(0.1..40.0f64), any::<bool>(), 0usize..16), 4),
    ) {
        let mut groups = v2(&["a", "a/b", "c", "c/d"]);
        for (name, (quota, alive, cpu)) in ["a", "a/b", "c", "c/d"].iter().zip(quotas) {
            groups.set_bandwidth(name, quota.map(|q| (q * 1e5) as u64), 100_000).unwrap();
            groups.set_cpus(name, &format!("{cpu}-15")).unwrap();
            groups.get_mut(name).unwrap().populated = alive;
        }
        let allocation = groups.allocation(ALL_ONLINE);
        prop_assert!(allocation.iter().all(|share| (0.0..=1.0 + 1e-9).contains(share)), "{:?}", allocation);
    }
}
