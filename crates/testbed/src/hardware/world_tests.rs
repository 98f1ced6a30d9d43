//! The mapping between real and emulated cores, and the tree, without a kernel: for every user.

use super::backing::{Backing, Paper, Sample};
use super::config::HardwareConfig;
use super::fault::Fault;
use super::tree::{Caller, Node};
use super::world::World;
use headroom_units::Seconds;
use proptest::prelude::*;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Real cores behind the sixteen emulated ones.
const REAL: f64 = 1.2;
const TICK: f64 = 0.02;
const ROOT: Caller = Caller { uid: 0, pid: 1 };
const NOBODY: Caller = Caller { uid: 65_534, pid: 1 };

/// Real groups whose processes use a given part of what they are limited to.
#[derive(Default)]
struct Script {
    shares: BTreeMap<String, f64>,
    /// How much of its limit each group uses, groups below it included.
    used: BTreeMap<String, f64>,
}

struct Scripted(Arc<Mutex<Script>>);

impl Backing for Scripted {
    fn describe(&self) -> String {
        "a script".into()
    }
    fn create(&mut self, _: &str) -> Result<(), Errno> {
        Ok(())
    }
    fn remove(&mut self, _: &str) -> Result<(), Errno> {
        Ok(())
    }
    fn processes(&self, name: &str) -> Result<Vec<u32>, Errno> {
        Ok(self
            .0
            .lock()
            .unwrap()
            .used
            .get(name)
            .map(|_| vec![1])
            .unwrap_or_default())
    }
    fn enter(&mut self, _: &str, _: u32) -> Result<(), Errno> {
        Ok(())
    }
    fn group_of(&self, _: u32) -> Option<String> {
        Some(String::new())
    }
    fn sample(&mut self, name: &str) -> Option<Sample> {
        let script = self.0.lock().unwrap();
        let share = *script.shares.get(name)?;
        let used = script.used.get(name).copied().unwrap_or(0.0);
        let throttled = used >= 1.0;
        Some(Sample {
            used_s: used * share * TICK,
            share,
            periods: 2,
            throttled_periods: if throttled { 2 } else { 0 },
            throttled_s: if throttled { TICK / 2.0 } else { 0.0 },
        })
    }
    fn apply(&mut self, shares: &[(String, f64)]) {
        self.0.lock().unwrap().shares = shares.iter().cloned().collect();
    }
}

fn path(text: &str) -> Vec<&str> {
    text.split('/').collect()
}

fn world() -> (World, Arc<Mutex<Script>>) {
    let script = Arc::new(Mutex::new(Script::default()));
    let world = World::new(
        HardwareConfig::default(),
        Box::new(Scripted(script.clone())),
        REAL,
    );
    (world, script)
}

fn write(world: &mut World, file: &str, text: &str) {
    world
        .write(&path(file), text.as_bytes(), ROOT)
        .unwrap_or_else(|errno| panic!("{file}: {errno}"));
}

fn run(world: &mut World, seconds: f64) {
    (0..(seconds / TICK) as usize).for_each(|_| world.tick(Seconds::new(TICK)));
}

fn stat(world: &World, group: &str, name: &str) -> u64 {
    let text = world
        .read(&path(&format!("fs/cgroup/{group}/cpu.stat")), ROOT)
        .unwrap();
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn real_limits_are_the_scale_times_entitlement_times_speed() {
    let (mut world, script) = world();
    world.mkdir(&path("fs/cgroup/web"), ROOT).unwrap();
    run(&mut world, 0.1);
    let share = |name: &str| script.lock().unwrap().shares[name];
    assert!((share("") - REAL).abs() < 1e-9 && (share("web") - REAL).abs() < 1e-9);
    write(&mut world, "fs/cgroup/web/cpu.max", "40000 10000");
    run(&mut world, 0.1);
    assert!((share("web") - REAL / 4.0).abs() < 1e-9);
    for policy in 0..16 {
        write(
            &mut world,
            &format!("devices/system/cpu/cpufreq/policy{policy}/scaling_max_freq"),
            "1000000",
        );
    }
    run(&mut world, 0.1);
    assert!((share("web") - REAL / 4.0 / 2.1).abs() < 1e-9);
    assert!((share("") - REAL / 2.1).abs() < 1e-9);
    write(&mut world, "fs/cgroup/web/cpuset.cpus", "0-1");
    run(&mut world, 0.1);
    assert!((share("web") - REAL / 8.0 / 2.1).abs() < 1e-9);
}

#[test]
fn what_is_used_of_the_real_limit_is_what_is_used_of_the_emulated_one() {
    let (mut world, script) = world();
    world.mkdir(&path("fs/cgroup/web"), ROOT).unwrap();
    write(&mut world, "fs/cgroup/web/cpu.max", "40000 10000");
    run(&mut world, 0.02);
    for (used, frequency) in [(0.5, "2100000"), (0.5, "800000"), (1.0, "800000")] {
        for policy in 0..16 {
            write(
                &mut world,
                &format!("devices/system/cpu/cpufreq/policy{policy}/scaling_max_freq"),
                frequency,
            );
        }
        script.lock().unwrap().used = BTreeMap::from([("web".into(), used)]);
        run(&mut world, 1.0);
        let (before, throttled) = (
            stat(&world, "web", "usage_usec"),
            stat(&world, "web", "nr_throttled"),
        );
        run(&mut world, 1.0);
        let busy = (stat(&world, "web", "usage_usec") - before) as f64 / 1e6;
        assert!(
            (busy - used * 4.0).abs() < 0.01,
            "{busy} of {used} at {frequency}"
        );
        assert_eq!(stat(&world, "web", "nr_throttled") > throttled, used == 1.0);
    }
    let pressure = world.read(&path("fs/cgroup/web/cpu.pressure"), ROOT).unwrap();
    assert!(
        pressure.starts_with("some avg10=") && !pressure.starts_with("some avg10=0.00"),
        "{pressure}"
    );
    // Without a quota of its own the group is as fast as the machine and not throttled.
    write(&mut world, "fs/cgroup/web/cpu.max", "max");
    let throttled = stat(&world, "web", "nr_throttled");
    run(&mut world, 1.0);
    assert_eq!(stat(&world, "web", "nr_throttled"), throttled);
}

#[test]
fn a_group_with_groups_below_is_counted_once() {
    let (mut world, script) = world();
    world.mkdir(&path("fs/cgroup/slice"), ROOT).unwrap();
    world.mkdir(&path("fs/cgroup/slice/web"), ROOT).unwrap();
    script.lock().unwrap().used = BTreeMap::from([("slice".into(), 0.5), ("slice/web".into(), 0.5)]);
    run(&mut world, 1.0);
    let before = (
        stat(&world, "slice", "usage_usec"),
        stat(&world, "slice/web", "usage_usec"),
    );
    run(&mut world, 1.0);
    assert!((stat(&world, "slice", "usage_usec") - before.0).abs_diff(8_000_000) < 20_000);
    assert!((stat(&world, "slice/web", "usage_usec") - before.1).abs_diff(8_000_000) < 20_000);
    assert!(world.snapshot().power.get() < 85.0);
}

#[test]
fn every_directory_can_be_listed_and_every_file_read() {
    let world = World::new(HardwareConfig::default(), Box::new(Paper::default()), REAL);
    let mut open = vec![String::new()];
    let (mut files, mut unreadable) = (0, Vec::new());
    while let Some(dir) = open.pop() {
        let parts: Vec<&str> = dir.split('/').filter(|part| !part.is_empty()).collect();
        for (name, node) in world
            .list(&parts)
            .unwrap_or_else(|| panic!("{dir} cannot be listed"))
        {
            let full = format!("{dir}/{name}");
            let parts: Vec<&str> = full.split('/').filter(|part| !part.is_empty()).collect();
            assert_eq!(world.node(&parts), Some(node.clone()), "{full}");
            match node {
                Node::Dir => open.push(full),
                Node::File(_) => {
                    files += 1;
                    if world.read(&parts, ROOT).is_err() {
                        unreadable.push(full);
                    }
                }
                Node::Link(target) => {
                    let mut to: Vec<&str> = parts[..parts.len() - 1].to_vec();
                    for step in target.split('/') {
                        if step == ".." {
                            to.pop().map(drop).unwrap()
                        } else {
                            to.push(step)
                        }
                    }
                    assert_eq!(world.node(&to), Some(Node::Dir), "{full} leads to {target}");
                }
            }
        }
    }
    assert!(files > 1_000);
    // The driver knows no maximum of the cores' zones.
    assert!(
        unreadable
            .iter()
            .all(|file| file.ends_with(":0/constraint_0_max_power_uw")),
        "{unreadable:?}"
    );
    assert_eq!(unreadable.len(), 2);
}

#[test]
fn who_may_do_what() {
    let (mut world, _) = world();
    let energy = path("devices/virtual/powercap/intel-rapl/intel-rapl:0/energy_uj");
    let limit = path("devices/virtual/powercap/intel-rapl/intel-rapl:0/constraint_0_power_limit_uw");
    assert_eq!(world.open(&energy, true, false, ROOT), Ok(()));
    assert_eq!(world.open(&energy, true, false, NOBODY), Err(Errno::ACCESS));
    assert_eq!(world.open(&energy, false, true, ROOT), Err(Errno::ACCESS));
    assert_eq!(world.open(&limit, true, false, NOBODY), Ok(()));
    assert_eq!(world.access(&limit, false, true, NOBODY), Err(Errno::ACCESS));
    assert_eq!(world.access(&limit, false, true, ROOT), Ok(()));
    assert_eq!(world.mkdir(&path("fs/cgroup/mine"), NOBODY), Err(Errno::ACCESS));
    assert_eq!(world.mkdir(&path("class/mine"), ROOT), Err(Errno::PERM));
    assert_eq!(world.write(&limit, &[b'1'; 5000], ROOT), Err(Errno::INVAL));
    assert_eq!(world.write(&limit, &[0xff], ROOT), Err(Errno::INVAL));
    world
        .command(super::fault::Command::Set(Fault::ReadOnly))
        .unwrap();
    assert_eq!(world.open(&limit, false, true, ROOT), Err(Errno::ROFS));
    assert_eq!(
        world.open(&path("headroom-testbed/faults"), false, true, ROOT),
        Ok(())
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is used, given and capped: busy time stays within the entitlement, energy between idle and the most.
    #[test]
    fn utilisation_is_a_share_and_energy_has_bounds(
        steps in proptest::collection::vec((0.0..1.6f64, 1_000u64..200_000, 20u64..60, 1usize..20), 1..20),
    ) {
        let (mut world, script) = world();
        world.mkdir(&path("fs/cgroup/web"), ROOT).unwrap();
        for (used, quota, watts, ticks) in steps {
            write(&mut world, "fs/cgroup/web/cpu.max", &format!("{quota} 10000"));
            write(&mut world, "devices/virtual/powercap/intel-rapl/intel-rapl:0/constraint_0_power_limit_uw",
                &format!("{watts}000000"));
            world.tick(Seconds::new(TICK));
            script.lock().unwrap().used = BTreeMap::from([("web".into(), used)]);
            let before = (stat(&world, "web", "usage_usec"), world.snapshot());
            (0..ticks).for_each(|_| world.tick(Seconds::new(TICK)));
            let after = world.snapshot();
            let seconds = ticks as f64 * TICK;
            let entitled = (quota as f64 / 1e4).min(16.0);
            let busy = (stat(&world, "web", "usage_usec") - before.0) as f64 / 1e6;
            prop_assert!(busy <= entitled * seconds + 1e-5, "{} of {}", busy, entitled * seconds);
            let energy = (after.energy - before.1.energy).get();
            prop_assert!(energy >= (2.0 * 8.0 + 16.0 * 0.06) * seconds - 1e-6 && energy <= after.most_power.get() * seconds + 1e-6);
            for share in script.lock().unwrap().shares.values() {
                prop_assert!((0.0..=REAL + 1e-9).contains(share));
            }
        }
    }
}
