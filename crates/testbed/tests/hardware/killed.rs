//! Kill -9 of the emulator while caps and quotas are low: the service lives on, and its real limits can be put back.

use crate::real::{Busy, REAL_CORES, config, eventually, mount, real_dir, real_quota};
use crate::{can_mount, errno, real_options, write};
use headroom_testbed::hardware::{Emulated, HardwareError, RealOptions, recover};
use rustix::io::Errno;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const DIR: &str = "HEADROOM_TEST_EMULATOR_DIR";
const READY: &str = "the emulator is ready";
const NO_CONTROLLER: &str = "no cpu controller";

/// Not a test of its own: the process that the others kill.
#[test]
#[ignore = "started by the tests beside it"]
fn emulator_process() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let dir = Path::new(&dir);
    match Emulated::mount(config(), Some(&real_options(dir)), &dir.join("sys")) {
        Ok(_emulated) => {
            println!("{READY}");
            // Until it is killed, or its parent failed to.
            std::thread::sleep(Duration::from_secs(60));
        }
        Err(HardwareError::NoCpuController { .. }) => println!("{NO_CONTROLLER}"),
        Err(error) => panic!("{error}"),
    }
}

/// Starts an emulator in a process of its own; nothing where this machine cannot.
fn start(dir: &Path) -> Option<Child> {
    if !can_mount() {
        return None;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::emulator_process", "--ignored", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in lines.map_while(Result::ok) {
        if line.contains(READY) {
            return Some(child);
        }
        if line.contains(NO_CONTROLLER) {
            println!("skipped: {line}");
            child.wait().unwrap();
            return None;
        }
    }
    panic!("the emulator did not start: {:?}", child.wait());
}

/// A busy process on two of sixteen cores under a low cap, whose emulator was killed.
fn killed_while_low(dir: &Path, options: &RealOptions) -> Option<Busy> {
    let mut emulator = start(dir)?;
    let root = dir.join("sys");
    fs::create_dir(root.join("fs/cgroup/web")).unwrap();
    let busy = Busy::new();
    write(&root.join("fs/cgroup/web/cgroup.procs"), &busy.pid().to_string()).unwrap();
    write(&root.join("fs/cgroup/web/cpu.max"), "20000 10000").unwrap();
    write(
        &root.join("class/powercap/intel-rapl:0/constraint_0_power_limit_uw"),
        "25000000",
    )
    .unwrap();
    let real = real_dir(busy.pid(), options).unwrap();
    let low = || real_quota(&real).is_some_and(|quota| quota <= REAL_CORES * 2.0 / 16.0 * 1.01);
    eventually("the quota is low", low);
    assert!(matches!(
        recover(&options.record),
        Err(HardwareError::StillRuns { .. })
    ));
    emulator.kill().unwrap();
    emulator.wait().unwrap();
    assert!(low());
    assert_eq!(fs::read_dir(root).map_err(errno).err(), Some(Errno::NOTCONN));
    Some(busy)
}

#[test]
fn limits_are_put_back_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let options = real_options(dir.path());
    for _ in 0..2 {
        let Some(mut busy) = killed_while_low(dir.path(), &options) else {
            return;
        };
        let real = real_dir(busy.pid(), &options).unwrap();
        let recovered = recover(&options.record).unwrap();
        assert_eq!(recovered.moved, [busy.pid()]);
        assert!(recovered.removed.contains(&real));
        assert!(!real.exists() && !real.parent().unwrap().exists());
        assert!(busy.is_alive() && real_dir(busy.pid(), &options).is_none());
        assert!(!options.record.exists());
    }
    // The dead mount is still there: the next emulator takes its place.
    let emulated = mount(config(), &options, &dir.path().join("sys")).unwrap();
    assert!(emulated.root().join("headroom-testbed/emulated").exists());
    drop(emulated);
    assert_eq!(fs::read_dir(dir.path().join("sys")).unwrap().count(), 0);
}

#[test]
fn the_next_emulator_lifts_the_limits_and_takes_the_service_over() {
    let dir = tempfile::tempdir().unwrap();
    let options = real_options(dir.path());
    let mut before: Vec<Busy> = Vec::new();
    for _ in 0..2 {
        let Some(busy) = killed_while_low(dir.path(), &options) else {
            return;
        };
        before.push(busy);
        let emulated = mount(config(), &options, &dir.path().join("sys")).unwrap();
        let web = emulated.root().join("fs/cgroup/web");
        assert_eq!(
            fs::read_to_string(web.join("cpu.max")).unwrap().trim(),
            "max 100000"
        );
        let procs = fs::read_to_string(web.join("cgroup.procs")).unwrap();
        assert!(
            procs
                .lines()
                .any(|pid| pid == before.last().unwrap().pid().to_string()),
            "{procs}"
        );
        let real = real_dir(before.last().unwrap().pid(), &options).unwrap();
        eventually("the quota is that of the whole machine", || {
            real_quota(&real).is_some_and(|quota| quota > REAL_CORES * 0.95)
        });
        // The service leaves, and the next round finds nothing of it.
        for busy in &before {
            write(
                &emulated.root().join("fs/cgroup/cgroup.procs"),
                &busy.pid().to_string(),
            )
            .unwrap();
        }
        fs::remove_dir(&web).unwrap();
        emulated.unmount().unwrap();
        assert!(before.iter_mut().all(Busy::is_alive));
    }
}
