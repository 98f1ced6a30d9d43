//! Making a group on a tree of files, where the kernel does not fill it: what was begun is taken back.

mod common;

use common::{FakeMachine, says, text};
use headroom_node::cgroup::{CgroupError, CgroupScope, ScopeOptions};
use headroom_node::restore::Registry;

fn create(fake: &FakeMachine, name: &str) -> CgroupError {
    CgroupScope::create(&fake.roots(), &ScopeOptions::named(name), &Registry::new()).unwrap_err()
}

#[test]
fn a_group_that_turns_out_unusable_is_removed_and_its_controllers_are_disabled_again() {
    let fake = FakeMachine::v2();
    let control = fake.sys("fs/cgroup/cgroup.subtree_control", "memory cpuset\n");
    let error = create(&fake, "web");
    assert!(matches!(error, CgroupError::ControllerOff { .. }), "{error}");
    assert!(!fake.roots().sys("fs/cgroup/web").exists());
    assert_eq!(text(&control), "-cpu");
}

#[test]
fn a_controller_that_other_groups_may_rely_on_stays_enabled() {
    let fake = FakeMachine::v2();
    let control = fake.sys("fs/cgroup/cgroup.subtree_control", "memory cpuset\n");
    fake.v2_group("other");
    create(&fake, "web");
    assert!(!fake.roots().sys("fs/cgroup/web").exists());
    assert_eq!(text(&control), "+cpu");
}

#[test]
fn a_group_that_exists_or_has_no_name_is_refused_and_left_alone() {
    let fake = FakeMachine::v2();
    let dir = fake.v2_group("web");
    let control = fake.roots().sys("fs/cgroup/cgroup.subtree_control");
    let message = create(&fake, "web").to_string();
    says(&message, &["fs/cgroup/web", "choose another name"]);
    assert!(dir.join("cpu.max").exists());
    for name in ["", "a/b", "..", "a b", &"x".repeat(65)] {
        assert!(
            matches!(create(&fake, name), CgroupError::BadName { .. }),
            "{name}"
        );
    }
    assert_eq!(text(&control), "cpuset cpu memory");
}
