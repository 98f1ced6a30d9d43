//! A service's group is found however it is named, on each layout of control groups, and what cannot be found or used
//! is said with the place and the remedy.

mod common;

use common::{FakeMachine, says};
use headroom_node::cgroup::{CgroupError, Target, TargetSpec, UsageFile, Version};
use std::path::Path;

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const OTHER: &str = "0123ffffffffcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn resolve(fake: &FakeMachine, spec: &str) -> Result<Target, CgroupError> {
    Target::resolve(&fake.roots(), &spec.parse()?)
}

fn message(fake: &FakeMachine, spec: &str) -> String {
    resolve(fake, spec).unwrap_err().to_string()
}

#[test]
fn a_path_is_taken_absolute_as_on_the_machine_and_relative() {
    let fake = FakeMachine::v2();
    let dir = fake.v2_group("web");
    for spec in [
        "/sys/fs/cgroup/web",
        "cgroup:/web",
        "cgroup:web",
        "/web",
        &format!("cgroup:{}", dir.display()),
    ] {
        let target = resolve(&fake, spec).unwrap();
        assert_eq!(target.cpu_dir, dir, "{spec}");
        assert_eq!(target.version, Version::V2);
        assert_eq!(target.usage, Some(UsageFile::V2(dir.join("cpu.stat"))));
    }
}

#[test]
fn on_a_hybrid_machine_the_quota_is_version_1s_and_mounts_may_be_shared() {
    let fake = FakeMachine::hybrid();
    let dir = fake.v1_group("web");
    fake.sys("fs/cgroup/cpuset/web/cpuset.cpus", "0-3\n");
    for spec in ["/sys/fs/cgroup/cpu,cpuacct/web", "/web"] {
        let target = resolve(&fake, spec).unwrap();
        assert_eq!((target.version, &target.cpu_dir), (Version::V1, &dir));
        assert_eq!(target.usage, Some(UsageFile::V1(dir.join("cpuacct.usage"))));
        assert_eq!(target.cpuset.unwrap().version, Version::V1);
    }
}

#[test]
fn a_group_that_does_not_exist_is_named_with_the_place_looked_at() {
    let fake = FakeMachine::v2();
    let message = message(&fake, "/sys/fs/cgroup/nothing");
    says(&message, &["fs/cgroup/nothing does not exist", "looked at"]);
    // On version 1 that path is no mount's: it is looked for below those that there are.
    let hybrid = resolve(&FakeMachine::hybrid(), "/sys/fs/cgroup/nothing");
    let message = hybrid.unwrap_err().to_string();
    says(&message, &["looked at", "/cpu,cpuacct/nothing"]);
    assert!(!message.contains("cpuacct/sys/"), "{message}");
}

#[test]
fn the_root_is_refused_with_a_remedy() {
    for fake in [FakeMachine::v2(), FakeMachine::hybrid()] {
        for spec in ["/", "cgroup:/"] {
            let message = message(&fake, spec);
            says(&message, &["whole machine", "mkdir"]);
        }
    }
}

#[test]
fn going_up_out_of_the_tree_is_refused() {
    let fake = FakeMachine::v2();
    assert!(message(&fake, "/sys/fs/cgroup/../../etc").contains(".."));
}

#[test]
fn version_2_without_the_controller_says_how_to_enable_it() {
    let fake = FakeMachine::v2();
    fake.sys("fs/cgroup/user.slice/web/cgroup.procs", "");
    let message = message(&fake, "/user.slice/web");
    says(&message, &["echo +cpu >", "user.slice/cgroup.subtree_control"]);
}

#[test]
fn a_machine_without_cgroups_or_without_the_controller_says_so() {
    let fake = FakeMachine::new("1 0 0:1 / / rw - ext4 /dev/vda rw\n");
    assert!(message(&fake, "/web").contains("no mounted cgroup file system"));
    let fake = FakeMachine::v2();
    fake.sys("fs/cgroup/cgroup.controllers", "memory pids\n");
    assert!(message(&fake, "/web").contains("no mounted cgroup hierarchy has the cpu controller"));
}

#[test]
fn a_unit_is_found_in_its_usual_place_and_anywhere_else() {
    let fake = FakeMachine::v2();
    let usual = fake.v2_group("system.slice/nginx.service");
    let templated = fake.v2_group("system.slice/system-web.slice/web@1.service");
    assert_eq!(resolve(&fake, "unit:nginx").unwrap().cpu_dir, usual);
    assert_eq!(resolve(&fake, "unit:nginx.service").unwrap().cpu_dir, usual);
    assert_eq!(resolve(&fake, "unit:web@1.service").unwrap().cpu_dir, templated);
}

#[test]
fn a_unit_that_exists_twice_is_ambiguous_unless_one_is_the_systems() {
    let fake = FakeMachine::v2();
    fake.v2_group("user.slice/user-1.slice/web.service");
    fake.v2_group("user.slice/user-2.slice/web.service");
    let message = message(&fake, "unit:web");
    says(&message, &["ambiguous", "user-1", "user-2"]);
    let systems = fake.v2_group("system.slice/web.service");
    assert_eq!(resolve(&fake, "unit:web").unwrap().cpu_dir, systems);
}

#[test]
fn a_unit_known_only_to_systemds_hierarchy_says_how_to_account_it() {
    let fake = FakeMachine::hybrid();
    fake.sys("fs/cgroup/systemd/system.slice/nginx.service/cgroup.procs", "7\n");
    let message = message(&fake, "unit:nginx");
    says(&message, &["CPUAccounting=yes", "fs/cgroup/systemd"]);
}

#[test]
fn a_unit_is_found_through_its_processes() {
    let fake = FakeMachine::hybrid();
    let dir = fake.v1_group("delegated/web");
    fake.proc_(
        "7/cgroup",
        "4:cpu,cpuacct:/delegated/web\n3:name=systemd:/system.slice/web.service\n",
    );
    fake.proc_("8/cgroup", "4:cpu,cpuacct:/\n");
    assert_eq!(resolve(&fake, "unit:web.service").unwrap().cpu_dir, dir);
}

#[test]
fn a_unit_that_is_nowhere_lists_the_places() {
    let message = message(&FakeMachine::hybrid(), "unit:nginx");
    for part in [
        "nginx",
        "system.slice/nginx.service",
        "*/cgroup",
        "systemctl status",
    ] {
        assert!(message.contains(part), "{part} in {message}");
    }
}

#[test]
fn a_container_is_found_by_its_runtimes_naming_and_a_short_id() {
    for name in [
        format!("docker/{ID}"),
        format!("system.slice/docker-{ID}.scope"),
        format!("kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope"),
        format!("machine.slice/libpod-{ID}.scope"),
    ] {
        let fake = FakeMachine::v2();
        let dir = fake.v2_group(&name);
        fake.v2_group(&format!("machine.slice/libpod-conmon-{ID}.scope"));
        assert_eq!(
            resolve(&fake, &format!("container:{}", &ID[..12]))
                .unwrap()
                .cpu_dir,
            dir
        );
        assert_eq!(resolve(&fake, &format!("container:{ID}")).unwrap().cpu_dir, dir);
    }
}

#[test]
fn an_ambiguous_or_impossible_container_id_is_refused() {
    let fake = FakeMachine::v2();
    fake.v2_group(&format!("docker/{ID}"));
    fake.v2_group(&format!("docker/{OTHER}"));
    let ambiguous = message(&fake, "container:0123");
    assert!(ambiguous.contains(ID) && ambiguous.contains(OTHER), "{ambiguous}");
    assert!(resolve(&fake, &format!("container:{}", &ID[..8])).is_ok());
    assert!(message(&fake, "container:012").contains("4 to 64"));
    assert!(message(&fake, "container:web").contains("4 to 64"));
    assert!(message(&fake, "container:ffff").contains("docker ps"));
}

#[test]
fn a_process_brings_its_own_group_in_each_hierarchy() {
    let fake = FakeMachine::hybrid();
    let dir = fake.v1_group("a/b");
    fake.sys("fs/cgroup/cpuset/c/cpuset.cpus", "0-1\n");
    fake.proc_("42/cgroup", "4:cpu,cpuacct:/a/b\n3:cpuset:/c\n0::/\n");
    let target = resolve(&fake, "pid:42").unwrap();
    assert_eq!(target.cpu_dir, dir);
    assert!(target.cpuset.unwrap().dir.ends_with("cpuset/c"));
}

#[test]
fn a_process_in_the_root_or_outside_or_gone_is_refused() {
    let fake = FakeMachine::hybrid();
    fake.proc_("42/cgroup", "4:cpu,cpuacct:/\n0::/system.slice/x\n");
    assert!(message(&fake, "pid:42").contains("root cgroup of cpu"));
    fake.proc_("43/cgroup", "4:cpu,cpuacct:/../outside\n");
    assert!(message(&fake, "pid:43").contains("outside the part"));
    assert!(message(&fake, "pid:44").contains("44/cgroup"));
}

#[test]
fn what_is_no_target_is_refused_with_the_forms() {
    for spec in ["", "nginx", "pid:", "pid:x", "host:1", "pid:-1"] {
        says(spec.parse::<TargetSpec>().unwrap_err(), &["unit:NAME"]);
    }
}

#[test]
fn this_process_is_found_or_refused_for_a_reason() {
    let spec = TargetSpec::Pid(std::process::id());
    match Target::resolve(&headroom_node::Roots::default(), &spec) {
        Ok(target) => {
            assert!(target.cpu_dir.starts_with(&target.cpu_root) && target.cpu_dir != Path::new("/"))
        }
        Err(error) => assert!(error.to_string().len() > 40, "{error}"),
    }
}
