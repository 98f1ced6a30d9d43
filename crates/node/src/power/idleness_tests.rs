use super::*;
use crate::clock::fake::FakeClock;
use std::fs;

const STATES: [(&str, u64); 4] = [("POLL", 0), ("C1_ACPI", 2), ("C1E", 20), ("C6", 600)];

/// A machine's tree, with idle states where there are any.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn roots(&self) -> Roots {
        Roots::at(self.0.path(), self.0.path())
    }

    /// Microseconds in each state and entries of it, of one CPU.
    fn states(&self, cpu: u32, spent: [(u64, u64); 4]) {
        for (at, ((name, residency), (time, usage))) in STATES.into_iter().zip(spent).enumerate() {
            let dir = self
                .0
                .path()
                .join(format!("devices/system/cpu/cpu{cpu}/cpuidle/state{at}"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("name"), format!("{name}\n")).unwrap();
            for (file, value) in [
                ("residency", residency),
                ("latency", 1),
                ("time", time),
                ("usage", usage),
            ] {
                fs::write(dir.join(file), format!("{value}\n")).unwrap();
            }
        }
    }

    fn stat(&self, busy: [u64; 4], switches: u64) {
        let line = |(cpu, busy): (usize, u64)| format!("cpu{cpu} {busy} 0 0 99999 5 0 0 0 0 0\n");
        let each: String = busy.into_iter().enumerate().map(line).collect();
        let text = format!("cpu  1 2 3 4 5 6 7 8 0 0\n{each}intr 5\nctxt {switches}\nbtime 7\n");
        fs::write(self.0.path().join("stat"), text).unwrap();
    }
}

fn opened(tree: &Tree) -> (MachineFigures, FakeClock, Idleness) {
    let (machine, clock) = (MachineFigures::skylake(4), FakeClock::default());
    let idleness = Idleness::open_with(&tree.roots(), &machine, &|| Box::new(clock.clone()));
    (machine, clock, idleness)
}

#[test]
fn a_state_is_found_by_name_and_else_by_what_it_must_last() {
    let states = MachineFigures::skylake(4).processor.idle_states;
    for (name, residency_us, index) in [
        ("C1", 2.0, 0),
        ("C1_ACPI", 1.0, 0),
        ("c1e", 4.0, 1),
        ("C6\n", 290.0, 2),
        ("POLL", 0.0, 0),
        ("C3_ACPI", 100.0, 1),
        ("C10", 5000.0, 2),
    ] {
        assert_eq!(matching(&states, name, residency_us * 1e-6), index, "{name}");
    }
}

#[test]
fn where_states_are_counted_watts_are_of_the_time_spent_in_them() {
    let tree = Tree::new();
    let zero = [(0, 0); 4];
    (0..4).for_each(|cpu| tree.states(cpu, zero));
    let (machine, clock, mut idleness) = opened(&tree);
    // Nothing observed yet: all in the shallowest, the package up.
    let first = idleness.power(&machine, Cores::ZERO, 1.0);
    assert!((first.cores.get() - 4.0 * 1.44).abs() < 1e-9);
    // Two cores for all of a second in C6, entered ten times each; two in C1.
    clock.pass(Duration::from_secs(1), Duration::ZERO);
    for cpu in 0..2 {
        tree.states(cpu, [(0, 0), (0, 0), (0, 0), (1_000_000, 10)]);
        tree.states(cpu + 2, [(0, 0), (1_000_000, 1000), (0, 0), (0, 0)]);
    }
    let spread = idleness.power(&machine, Cores::ZERO, 1.0);
    // C1 costs no transition: its break-even is 2 us against itself.
    let watts = 2.0 * 0.1 + 20.0 * 600e-6 * 1.34 + 2.0 * 1.44;
    assert!((spread.cores.get() - watts).abs() < 1e-6, "{spread:?}");
    assert!(spread.cores < first.cores && spread.uncore < first.uncore);
    // With a core of the service's busy, three idle as the four did.
    let busy = idleness.power(&machine, Cores::new(1.0), 1.0);
    let entries = 20.0 * 600e-6 * 1.34;
    assert!((busy.cores.get() - ((watts - entries) * 0.75 + entries)).abs() < 1e-6);
}

#[test]
fn without_states_watts_are_by_wake_ups_and_parked_cores_sleep() {
    let tree = Tree::new();
    tree.stat([0; 4], 1000);
    let power = |busy: [u64; 4], switches: u64| {
        tree.stat([0; 4], 1000);
        let (machine, clock, mut idleness) = opened(&tree);
        clock.pass(Duration::from_secs(10), Duration::ZERO);
        tree.stat(busy, 1000 + switches);
        idleness.power(&machine, Cores::new(0.4), 1.0)
    };
    // 0.4 cores busy: spread over four with 4000 wake-ups a second each, or on one; or hardly woken at all.
    let spread = power([100; 4], 320_000);
    let packed = power([400, 0, 0, 0], 320_000);
    let calm = power([100; 4], 200);
    assert!(packed.cores < spread.cores, "{packed:?} {spread:?}");
    assert!(
        calm.cores < spread.cores && calm.uncore < spread.uncore,
        "{calm:?} {spread:?}"
    );
    assert_eq!(spread.uncore, MachineFigures::skylake(4).processor.uncore);
}

#[test]
fn busy_time_and_switches_are_read_and_nonsense_is_not() {
    let stat =
        parse("cpu  9 9 9 9 9 9 9\ncpu0 100 20 30 99999 55 4 6 77\ncpu1 1 0 0 0 0 0 0\nctxt 42\n").unwrap();
    assert_eq!((stat.busy.as_slice(), stat.switches), ([160, 1].as_slice(), 42));
    for nonsense in [
        "",
        "cpu0 1 2 3 4 5 6 7\n",
        "ctxt 5\n",
        "cpu0 1 2\nctxt 5\n",
        "cpu0 a\nctxt x\n",
    ] {
        assert_eq!(parse(nonsense), None, "{nonsense:?}");
    }
    let later = Stat {
        busy: vec![360, 1],
        switches: 2042,
    };
    let load = later.since(&stat, 2.0, 2);
    assert_eq!(
        (load.busy, load.wakeups, load.on),
        (Cores::new(1.0), PerSecond::new(500.0), 1)
    );
}
