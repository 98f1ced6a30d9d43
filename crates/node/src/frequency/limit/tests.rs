use super::*;
use crate::testing;

struct Policies(testing::Tree);

impl Policies {
    fn new(policies: &[u32]) -> Self {
        let tree = Self(testing::Tree::new());
        for policy in policies {
            for (file, text) in [
                ("cpuinfo_min_freq", "800000"),
                ("cpuinfo_max_freq", "3000000"),
                ("scaling_min_freq", "1200000"),
                ("scaling_max_freq", "3000000"),
                ("scaling_governor", "schedutil"),
                ("scaling_available_governors", "ondemand userspace schedutil"),
                ("scaling_setspeed", "<unsupported>"),
            ] {
                tree.put(*policy, file, text);
            }
        }
        tree
    }

    fn dir(&self, policy: u32) -> String {
        format!("sys/devices/system/cpu/cpufreq/policy{policy}")
    }

    fn put(&self, policy: u32, file: &str, text: &str) {
        self.0.put(&format!("{}/{file}", self.dir(policy)), text);
    }

    fn read(&self, policy: u32, file: &str) -> String {
        self.0.read(&format!("{}/{file}", self.dir(policy)))
    }

    fn roots(&self) -> Roots {
        self.0.roots()
    }
}

fn ghz(value: f64) -> Option<Hertz> {
    Some(Hertz::new(value * 1e9))
}

#[test]
fn the_limit_is_bounded_the_lower_one_gives_way_and_both_come_back() {
    let tree = Policies::new(&[0, 2]);
    let registry = Registry::new();
    let mut actuator = FrequencyActuator::open(&tree.roots(), FrequencyMode::Max, &registry).unwrap();
    let set = actuator.set(ghz(1.5)).unwrap();
    assert_eq!(
        (set.limit, set.policies, set.bounded),
        (Hertz::new(1.5e9), 2, None)
    );
    assert_eq!(
        (tree.read(2, "scaling_max_freq"), tree.read(2, "scaling_min_freq")),
        ("1500000".into(), "1200000".into())
    );
    let set = actuator.set(ghz(0.1)).unwrap();
    assert_eq!(set.limit, Hertz::new(0.8e9));
    assert_eq!(set.bounded.unwrap().lowest, Hertz::new(0.8e9));
    assert_eq!(tree.read(0, "scaling_min_freq"), "800000");
    actuator.set(ghz(2.0)).unwrap();
    assert_eq!(tree.read(0, "scaling_min_freq"), "1200000");
    actuator.set(None).unwrap();
    assert_eq!(tree.read(0, "scaling_max_freq"), "3000000");
    actuator.set(ghz(0.9)).unwrap();
    drop(actuator);
    assert_eq!(
        (tree.read(0, "scaling_max_freq"), tree.read(0, "scaling_min_freq")),
        ("3000000".into(), "1200000".into())
    );
}

#[test]
fn the_lower_limit_goes_down_before_the_upper_one_follows() {
    let tree = Policies::new(&[0]);
    let registry = Registry::new();
    let mut actuator = FrequencyActuator::open(&tree.roots(), FrequencyMode::Max, &registry).unwrap();
    let order = |panel: &Panel, khz| -> Vec<String> {
        let change = change_limits(panel, 0, Some(khz)).unwrap();
        change.writes.iter().map(|write| write.value.clone()).collect()
    };
    assert_eq!(order(&actuator.groups[0].0, 1_000_000), ["1000000", "1000000"]);
    let change = change_limits(&actuator.groups[0].0, 0, Some(1_000_000)).unwrap();
    assert!(change.writes[0].path.ends_with("scaling_min_freq"));
    actuator.set(ghz(1.0)).unwrap();
    let change = change_limits(&actuator.groups[0].0, 0, Some(2_000_000)).unwrap();
    assert!(change.writes[0].path.ends_with("scaling_max_freq"));
}

#[test]
fn discrete_frequencies_are_never_exceeded_and_turbo_is_an_entry_of_its_own() {
    let tree = Policies::new(&[0]);
    tree.put(
        0,
        "scaling_available_frequencies",
        "2101000 2100000 2000000 1000000",
    );
    tree.put(0, "cpuinfo_max_freq", "2101000");
    tree.put(0, "scaling_max_freq", "2101000");
    let mut actuator = FrequencyActuator::open(&tree.roots(), FrequencyMode::Max, &Registry::new()).unwrap();
    assert_eq!(actuator.bounds().below_turbo, ghz(2.1));
    for (asked, set) in [
        (2.05, "2000000"),
        (2.1, "2100000"),
        (2.7, "2101000"),
        (0.5, "800000"),
    ] {
        actuator.set(ghz(asked)).unwrap();
        assert_eq!(tree.read(0, "scaling_max_freq"), set, "{asked}");
    }
}

#[test]
fn a_fixed_speed_takes_the_governor_and_gives_it_back() {
    let tree = Policies::new(&[0]);
    let registry = Registry::new();
    let mut actuator = FrequencyActuator::open(&tree.roots(), FrequencyMode::Setspeed, &registry).unwrap();
    actuator.set(ghz(1.4)).unwrap();
    assert_eq!(
        (tree.read(0, "scaling_governor"), tree.read(0, "scaling_setspeed")),
        ("userspace".into(), "1400000".into())
    );
    actuator.set(ghz(1.6)).unwrap();
    assert_eq!(tree.read(0, "scaling_setspeed"), "1600000");
    drop(actuator);
    assert_eq!(tree.read(0, "scaling_governor"), "schedutil");
    tree.put(0, "scaling_available_governors", "performance powersave");
    let error = FrequencyActuator::open(&tree.roots(), FrequencyMode::Setspeed, &registry).unwrap_err();
    assert!(error.to_string().contains("performance powersave"), "{error}");
}

#[test]
fn a_speed_that_was_found_is_set_and_put_back_and_a_limit_is_set_elsewhere() {
    let tree = Policies::new(&[0, 1]);
    assert_eq!(FrequencyMode::of_machine(&tree.roots()), FrequencyMode::Max);
    for policy in [0, 1] {
        tree.put(policy, "scaling_available_frequencies", "2830000 2330000 2000000");
        for (file, khz) in [
            ("cpuinfo_min_freq", "2000000"),
            ("cpuinfo_max_freq", "2830000"),
            ("scaling_max_freq", "2830000"),
        ] {
            tree.put(policy, file, khz);
        }
    }
    tree.put(0, "scaling_governor", "userspace");
    assert_eq!(
        FrequencyMode::of_machine(&tree.roots()),
        FrequencyMode::Max,
        "not all have it"
    );
    tree.put(1, "scaling_governor", "userspace");
    for policy in [0, 1] {
        tree.put(policy, "scaling_setspeed", "2330000");
    }
    let mode = FrequencyMode::of_machine(&tree.roots());
    assert_eq!(mode, FrequencyMode::Setspeed);
    let mut actuator = FrequencyActuator::open(&tree.roots(), mode, &Registry::new()).unwrap();
    for (asked, set) in [
        (2.0, "2000000"),
        (2.33, "2330000"),
        (2.5, "2330000"),
        (2.83, "2830000"),
    ] {
        let in_force = actuator.set(ghz(asked)).unwrap();
        assert_eq!(in_force.limit.get(), set.parse::<f64>().unwrap() * 1e3);
        for policy in [0, 1] {
            assert_eq!(tree.read(policy, "scaling_setspeed"), set, "{asked}");
            assert_eq!(tree.read(policy, "scaling_governor"), "userspace");
            assert_eq!(
                tree.read(policy, "scaling_max_freq"),
                "2830000",
                "no limit is set"
            );
        }
    }
    assert_eq!(actuator.set(None).unwrap().limit, Hertz::new(2.33e9));
    assert_eq!(tree.read(0, "scaling_setspeed"), "2330000");
    actuator.set(ghz(2.0)).unwrap();
    drop(actuator);
    for policy in [0, 1] {
        assert_eq!(tree.read(policy, "scaling_setspeed"), "2330000");
        assert_eq!(tree.read(policy, "scaling_governor"), "userspace");
    }
}

#[test]
fn another_writer_is_said_and_left_alone_until_an_operator_gives_the_policy_back() {
    let tree = Policies::new(&[0]);
    let registry = Registry::new();
    let mut actuator = FrequencyActuator::open(&tree.roots(), FrequencyMode::Max, &registry).unwrap();
    actuator.set(ghz(1.5)).unwrap();
    tree.put(0, "scaling_max_freq", "2500000");
    let set = actuator.set(ghz(2.9)).unwrap();
    assert_eq!(set.foreign[0].seen, "2500000");
    assert_eq!(set.limit, Hertz::new(2.5e9), "theirs is in force");
    assert!(actuator.set(ghz(1.3)).unwrap().foreign.is_empty(), "said once");
    assert_eq!(tree.read(0, "scaling_max_freq"), "2500000");
    assert_eq!(registry.standing().held.len(), 1);
    registry.resume();
    let set = actuator.set(ghz(2.9)).unwrap();
    assert_eq!(set.limit, Hertz::new(2.5e9), "their limit is a decision too");
    actuator.set(ghz(1.3)).unwrap();
    assert_eq!(tree.read(0, "scaling_max_freq"), "1300000");
    drop(actuator);
    assert_eq!(tree.read(0, "scaling_max_freq"), "2500000");
}

#[test]
fn a_writer_of_the_lower_limit_alone_gets_the_policy_without_our_upper_one() {
    let tree = Policies::new(&[0]);
    let mut actuator = FrequencyActuator::open(&tree.roots(), FrequencyMode::Max, &Registry::new()).unwrap();
    actuator.set(ghz(1.5)).unwrap();
    tree.put(0, "scaling_min_freq", "1000000");
    let set = actuator.set(ghz(1.8)).unwrap();
    assert_eq!(set.foreign[0].seen, "1000000");
    assert_eq!(set.limit, Hertz::new(3.0e9), "ours does not stay beside theirs");
    drop(actuator);
    assert_eq!(tree.read(0, "scaling_max_freq"), "3000000");
    assert_eq!(tree.read(0, "scaling_min_freq"), "1000000");
}

#[test]
fn a_policy_that_goes_does_not_keep_the_others_from_being_put_back() {
    let tree = Policies::new(&[0, 1]);
    let registry = Registry::new();
    let mut actuator = FrequencyActuator::open(&tree.roots(), FrequencyMode::Max, &registry).unwrap();
    actuator.set(ghz(1.5)).unwrap();
    fs::remove_dir_all(tree.0.path(&tree.dir(1))).unwrap();
    let set = actuator.set(ghz(1.6)).unwrap();
    assert_eq!((set.policies, set.passed_over.len()), (1, 1));
    let report = registry.restore_all();
    assert!(report.is_clean() && report.restored() == 1, "{report}");
    assert_eq!(tree.read(0, "scaling_max_freq"), "3000000");
}

#[test]
fn nothing_to_set_and_nothing_that_is_a_frequency_are_said() {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots::at(dir.path(), dir.path());
    let open = || FrequencyActuator::open(&roots, FrequencyMode::Max, &Registry::new());
    assert!(open().unwrap_err().to_string().contains("no frequency driver"));
    fs::create_dir_all(dir.path().join("devices/system/cpu/cpufreq")).unwrap();
    assert!(open().unwrap_err().to_string().contains("virtual machine"));
    let tree = Policies::new(&[0]);
    let mut actuator = FrequencyActuator::open(&tree.roots(), FrequencyMode::Max, &Registry::new()).unwrap();
    for asked in [0.0, -1.0, f64::NAN] {
        assert!(actuator.set(Some(Hertz::new(asked))).is_err());
    }
    assert_eq!(tree.read(0, "scaling_max_freq"), "3000000");
}
