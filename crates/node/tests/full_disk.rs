//! What comes of limits while the state file cannot be saved: a run directory on a full or a read-only disk.

mod common;

use common::{FakeMachine, says, text};
use headroom_node::cgroup::Target;
use headroom_node::cpu::{CpuError, QuotaActuator, QuotaOptions};
use headroom_node::restore::{Ledger, LedgerError, Registry, RestoreError, RunDir};
use headroom_units::Cores;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

/// A disk of a few pages, mounted as long as this lives.
struct Disk(tempfile::TempDir);

impl Disk {
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        match mount(
            "tmpfs",
            dir.path(),
            "tmpfs",
            MountFlags::empty(),
            Some(c"size=32k,mode=700"),
        ) {
            Ok(()) => Some(Self(dir)),
            Err(error) => {
                println!("skipped: a small disk cannot be mounted here: {error}");
                None
            }
        }
    }

    fn run_dir(&self) -> PathBuf {
        self.0.path().join("run")
    }

    fn fill(&self) {
        let _ = fs::write(self.0.path().join("ballast"), vec![0; 64 << 10]);
    }

    fn empty(&self) {
        fs::remove_file(self.0.path().join("ballast")).unwrap();
    }

    /// Makes it read-only for everybody who comes from now on: what is open for writing keeps a disk from becoming so.
    fn cover(&self) {
        mount_bind(self.0.path(), self.0.path()).unwrap();
        mount_remount(self.0.path(), MountFlags::BIND | MountFlags::RDONLY, "").unwrap();
    }

    fn uncover(&self) {
        unmount(self.0.path(), UnmountFlags::DETACH).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

/// A quota on a machine of four CPUs, found at three cores, under a ledger on that disk.
fn quota(fake: &FakeMachine, disk: &Disk) -> (QuotaActuator, Registry, PathBuf) {
    let group = fake.v2_group("web");
    let target = Target::resolve(&fake.roots(), &"/web".parse().unwrap()).unwrap();
    let max = group.join("cpu.max");
    fs::write(&max, "300000 100000\n").unwrap();
    let registry = Registry::new();
    registry
        .attach(Ledger::open(&disk.run_dir(), &fake.roots()).unwrap().0)
        .unwrap();
    let quota = QuotaActuator::open(&fake.roots(), &target, QuotaOptions::default(), &registry).unwrap();
    (quota, registry, max)
}

fn is_unsaved(error: &CpuError) -> bool {
    matches!(
        error,
        CpuError::Restore(RestoreError::Ledger(LedgerError::Io { .. }))
    )
}

/// What the next start does with the record that a killed process left, on a disk that fails again.
fn next_start(fake: &FakeMachine, disk: &Disk, fail: impl Fn(&Disk), heal: impl Fn(&Disk)) -> String {
    heal(disk);
    // The same record in a directory that nobody has, as after kill -9.
    let left = disk.0.path().join("left");
    fs::DirBuilder::new().mode(0o700).create(&left).unwrap();
    fs::copy(disk.run_dir().join("undo.json"), left.join("undo.json")).unwrap();
    fs::write(left.join("lock"), "1\n").unwrap();
    fail(disk);
    let (_, report) = RunDir::take(&left).unwrap().ledger(&fake.roots()).unwrap();
    assert_eq!(report.foreign().count(), 0, "it was ours: {report}");
    report.to_string()
}

fn a_failing_disk(fail: impl Fn(&Disk), heal: impl Fn(&Disk)) {
    let fake = FakeMachine::v2();
    let Some(disk) = Disk::new() else { return };
    let (mut quota, registry, max) = quota(&fake, &disk);

    // Nothing was recorded yet: whatever is tried, however often, what was found stays.
    fail(&disk);
    for _ in 0..3 {
        assert!(is_unsaved(&quota.set(Cores::new(1.0)).unwrap_err()));
        assert_eq!(text(&max), "300000 100000");
    }
    heal(&disk);
    quota.set(Cores::new(1.0)).unwrap();
    assert_eq!(text(&max), "10000 10000");

    // What tightens is not written, as often as it is tried; what relaxes gives back everything.
    fail(&disk);
    for _ in 0..3 {
        assert!(is_unsaved(&quota.set(Cores::new(0.4)).unwrap_err()));
        assert_eq!(text(&max), "10000 10000");
    }
    let set = quota.set(Cores::new(1.5)).unwrap();
    assert_eq!((set.cores, set.foreign), (Cores::new(3.0), None));
    assert_eq!(text(&max), "300000 100000");
    assert!(is_unsaved(&quota.set(Cores::new(1.5)).unwrap_err()));

    // Once it can be saved again, it is before anything is written.
    heal(&disk);
    quota.set(Cores::new(0.8)).unwrap();
    assert_eq!(text(&max), "8000 10000");
    fail(&disk);
    assert!(is_unsaved(&quota.set(Cores::new(0.4)).unwrap_err()));
    let said = next_start(&fake, &disk, &fail, &heal);
    assert!(said.contains("put back"), "{said}");
    assert_eq!(text(&max), "300000 100000");
    heal(&disk);
    drop((quota, registry));
}

#[test]
fn on_a_full_disk_nothing_is_limited_that_is_not_recorded() {
    a_failing_disk(Disk::fill, Disk::empty);
}

#[test]
fn on_a_read_only_disk_nothing_is_limited_that_is_not_recorded() {
    a_failing_disk(Disk::cover, Disk::uncover);
}

#[test]
fn a_disk_that_is_full_from_the_start_is_refused_before_anything_is_changed() {
    let fake = FakeMachine::v2();
    let Some(disk) = Disk::new() else { return };
    let (ledger, _) = Ledger::open(&disk.run_dir(), &fake.roots()).unwrap();
    disk.fill();
    says(Registry::new().attach(ledger).unwrap_err(), &["--run-dir"]);
    assert!(!disk.run_dir().join("undo.json").exists());
}
