//! Whatever ends the process, the machine is as it was: kill -9 and the next start, a panic, a signal's restoration.
//! The processes that end are this test binary again, in the role that an environment variable names.

mod common;

use common::{Running, live_scope, quota_of, says, text};
use headroom_node::Roots;
use headroom_node::cap::{Limiter, LimiterOptions};
use headroom_node::cgroup::{CgroupScope, ScopeOptions, Target, Version};
use headroom_node::cpu::{QuotaActuator, QuotaOptions};
use headroom_node::power::{MeterPreference, PowerModel};
use headroom_node::restore::{self, Ledger, LedgerError, Outcome, Registry, recover};
use headroom_units::{Cores, Lever, Setting};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "HEADROOM_NODE_TEST_ROLE";
const TARGET: &str = "HEADROOM_NODE_TEST_TARGET";
const RUN_DIR: &str = "HEADROOM_NODE_TEST_RUN_DIR";

/// Not a test of its own: the process that the others start.
#[test]
#[ignore = "run by the other tests of this file"]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let run_dir = PathBuf::from(std::env::var(RUN_DIR).unwrap());
    let name = std::env::var(TARGET).unwrap();
    let roots = Roots::default();
    let registry = restore::global();
    if role == "unprivileged" {
        let target = Target::resolve(&roots, &name.parse().unwrap()).unwrap();
        let error = QuotaActuator::open(&roots, &target, QuotaOptions::default(), registry).unwrap_err();
        println!("SAYS {error}");
        return;
    }
    restore::install();
    let (ledger, _) = Ledger::open(&run_dir, &roots).unwrap();
    registry.attach(ledger).unwrap();
    if role == "scope" {
        let scope = CgroupScope::create(&roots, &ScopeOptions::named(name), registry).unwrap();
        let mut service = Command::new("sleep").arg("60").spawn().unwrap();
        scope.add(service.id()).unwrap();
        let mut quota =
            QuotaActuator::open(&roots, scope.target(), QuotaOptions::default(), registry).unwrap();
        quota.set(Cores::new(0.3)).unwrap();
        println!("READY {}", service.id());
        service.wait().unwrap();
        return;
    }
    let target = Target::resolve(&roots, &name.parse().unwrap()).unwrap();
    if role == "churn" {
        let mut quota = QuotaActuator::open(&roots, &target, QuotaOptions::default(), registry).unwrap();
        println!("READY 0");
        let until = Instant::now() + Duration::from_secs(60);
        for step in (0..).take_while(|_| Instant::now() < until) {
            quota.set(Cores::new(0.2 + f64::from(step % 97) * 0.01)).unwrap();
        }
        return;
    }
    let model = PowerModel::default_for(Cores::new(2.0)).unwrap();
    let options = LimiterOptions::default();
    let (limiter, _) = Limiter::open(
        &roots,
        &target,
        model.clone(),
        MeterPreference::one(headroom_node::power::MeterKind::Model),
        options,
        registry,
    )
    .unwrap();
    let cap = model.power(Cores::new(0.4), headroom_units::Ratio::new(1.0));
    limiter
        .apply(
            Setting::default()
                .with(Lever::Cores, Some(1.0))
                .with(Lever::Cap, Some(cap.get())),
        )
        .unwrap();
    println!("READY 0");
    match role.as_str() {
        "panic" => panic!("on purpose"),
        "restore_all" => {
            let report = restore::restore_all();
            assert!(report.is_clean() && report.restored() == 1, "{report}");
            let again = limiter
                .apply(Setting::default().with(Lever::Cores, Some(0.5)))
                .unwrap_err();
            println!("SAYS {again}");
            // No destructor runs: what restores is restore_all alone.
            std::process::exit(0);
        }
        "hold" => std::thread::sleep(Duration::from_secs(60)),
        other => panic!("no role {other}"),
    }
}

fn command(role: &str, target: &str, run_dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", "child", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env(TARGET, target)
        .env(RUN_DIR, run_dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Starts a child and waits until it has changed the machine. Returns what it said after the word.
fn start(role: &str, target: &str, run_dir: &Path) -> (Running, String) {
    let mut child = command(role, target, run_dir).spawn().unwrap();
    let line = wait_for(&mut child, "READY ");
    (Running(child), line)
}

fn wait_for(child: &mut Child, word: &str) -> String {
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    loop {
        line.clear();
        assert!(
            reader.read_line(&mut line).unwrap() > 0,
            "the child ended before it said {word}"
        );
        if let Some((_, said)) = line.split_once(word) {
            let said = said.trim().to_string();
            // The pipe must stay open, or the child's next line would end it.
            child.stdout = Some(reader.into_inner());
            return said;
        }
    }
}

fn end(mut running: Running) -> (ExitStatus, String) {
    let stderr = std::io::read_to_string(running.0.stderr.take().unwrap()).unwrap();
    (running.0.wait().unwrap(), stderr)
}

fn spec(target: &Target) -> String {
    format!(
        "cgroup:/{}",
        target.cpu_dir.strip_prefix(&target.cpu_root).unwrap().display()
    )
}

#[test]
fn kill_9_is_undone_by_the_next_start() {
    let registry = Registry::new();
    let Some(scope) = live_scope(&registry) else {
        return;
    };
    let (target, run_dir) = (scope.target(), tempfile::tempdir().unwrap());
    let found = quota_of(target);
    for _ in 0..2 {
        let (mut running, _) = start("hold", &spec(target), run_dir.path());
        assert_ne!(quota_of(target), found);
        // While it lives, nobody else takes its run directory.
        let error = recover(run_dir.path(), &Roots::default()).unwrap_err();
        assert!(
            matches!(&error, LedgerError::InUse { owner, .. } if *owner == running.pid().to_string()),
            "{error}"
        );
        running.0.kill().unwrap();
        running.0.wait().unwrap();
        assert_ne!(
            quota_of(target),
            found,
            "nothing can put it back at the moment of the kill"
        );
        let report = recover(run_dir.path(), &Roots::default()).unwrap();
        assert!(report.is_clean() && report.restored() == 1, "{report}");
        assert_eq!(quota_of(target), found);
        assert!(
            recover(run_dir.path(), &Roots::default())
                .unwrap()
                .outcomes
                .is_empty()
        );
    }
}

#[test]
fn kill_9_at_any_moment_of_a_write_is_undone() {
    let registry = Registry::new();
    let Some(scope) = live_scope(&registry) else {
        return;
    };
    let (target, run_dir) = (scope.target(), tempfile::tempdir().unwrap());
    let found = quota_of(target);
    for round in 0..12 {
        let (mut running, _) = start("churn", &spec(target), run_dir.path());
        // From within the first write, with its several files, to hundreds of writes later.
        std::thread::sleep(Duration::from_micros(97 * round * round));
        running.0.kill().unwrap();
        running.0.wait().unwrap();
        let report = recover(run_dir.path(), &Roots::default()).unwrap();
        assert!(report.is_clean(), "{report}");
        assert_eq!(quota_of(target), found, "round {round}");
    }
}

#[test]
fn after_kill_9_another_writers_value_is_left_alone_and_reported() {
    let registry = Registry::new();
    let Some(scope) = live_scope(&registry) else {
        return;
    };
    let (target, run_dir) = (scope.target(), tempfile::tempdir().unwrap());
    let (mut running, _) = start("hold", &spec(target), run_dir.path());
    running.0.kill().unwrap();
    running.0.wait().unwrap();
    match target.version {
        Version::V1 => fs::write(target.cpu_dir.join("cpu.cfs_quota_us"), "7777").unwrap(),
        Version::V2 => fs::write(target.cpu_dir.join("cpu.max"), "7777 10000").unwrap(),
    }
    let report = recover(run_dir.path(), &Roots::default()).unwrap();
    assert_eq!(report.foreign().count(), 1, "{report}");
    assert!(report.to_string().contains("7777"), "{report}");
    assert!(quota_of(target).starts_with("7777"));
}

#[test]
fn a_group_made_before_kill_9_is_removed_and_its_service_lives_on() {
    if !rustix::process::geteuid().is_root() || live_scope(&Registry::new()).is_none() {
        println!("skipped: making a cgroup needs root and a cpu controller");
        return;
    }
    let run_dir = tempfile::tempdir().unwrap();
    let name = format!("headroom-killed-{}", std::process::id());
    let (mut running, service) = start("scope", &name, run_dir.path());
    let target = Target::resolve(&Roots::default(), &format!("cgroup:/{name}").parse().unwrap()).unwrap();
    running.0.kill().unwrap();
    running.0.wait().unwrap();
    assert!(target.cpu_dir.exists());
    let report = recover(run_dir.path(), &Roots::default()).unwrap();
    assert!(report.is_clean(), "{report}");
    assert!(!target.cpu_dir.exists());
    let service = rustix::process::Pid::from_raw(service.parse().unwrap()).unwrap();
    rustix::process::kill_process(service, rustix::process::Signal::KILL).expect("the service still runs");
}

#[test]
fn a_panic_puts_everything_back() {
    let registry = Registry::new();
    let Some(scope) = live_scope(&registry) else {
        return;
    };
    let (target, run_dir) = (scope.target(), tempfile::tempdir().unwrap());
    let found = quota_of(target);
    let (running, _) = start("panic", &spec(target), run_dir.path());
    let (status, stderr) = end(running);
    assert!(!status.success());
    says(&stderr, &["on purpose", "put back: the CPU quota of"]);
    assert_eq!(quota_of(target), found);
    assert!(!run_dir.path().join("undo.json").exists());
}

#[test]
fn restore_all_puts_everything_back_and_nothing_is_written_after() {
    let registry = Registry::new();
    let Some(scope) = live_scope(&registry) else {
        return;
    };
    let (target, run_dir) = (scope.target(), tempfile::tempdir().unwrap());
    let found = quota_of(target);
    let mut child = command("restore_all", &spec(target), run_dir.path())
        .spawn()
        .unwrap();
    let said = wait_for(&mut child, "SAYS ");
    assert!(said.contains("not written any more"), "{said}");
    let (status, stderr) = end(Running(child));
    assert!(status.success(), "{stderr}");
    assert_eq!(quota_of(target), found);
}

#[test]
fn a_user_who_may_not_write_gets_one_clear_error_and_nothing_is_changed() {
    let registry = Registry::new();
    let Some(scope) = live_scope(&registry) else {
        return;
    };
    let target = scope.target();
    let found = quota_of(target);
    // The binary where that user can run it.
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = dir.path().join("faults");
    // By another process: if a test beside this one forked while the file was open for writing here, it could not be run.
    let mut copying = Command::new("cp");
    copying.arg(std::env::current_exe().unwrap()).arg(&copy);
    assert!(copying.status().unwrap().success());
    let original = command("unprivileged", &spec(target), dir.path());
    let mut command = Command::new(&copy);
    command.args(original.get_args());
    for (key, value) in original.get_envs() {
        command.env(key, value.unwrap());
    }
    let output = command.uid(65_534).gid(65_534).current_dir("/").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    says(&said, &["SAYS cannot write", "run as root"]);
    assert_eq!(quota_of(target), found);
}

#[test]
fn a_ledger_of_another_boot_has_nothing_to_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let fake = common::FakeMachine::v2();
    let group = fake.v2_group("web");
    let max = group.join("cpu.max");
    fs::write(&max, "5000 10000").unwrap();
    fake.proc_("sys/kernel/random/boot_id", "today\n");
    for (boot, expected) in [("yesterday", "5000 10000"), ("today", "max 100000")] {
        let record = format!(
            r#"{{"version":1,"boot_id":"{boot}","pid":7,"records":[{{"kind":"files","what":"q","ours":[{{"path":"{0}",
            "values":["5000 10000"]}}],"steps":[{{"path":"{0}","value":"max 100000"}}]}}]}}"#,
            max.display()
        );
        fs::write(dir.path().join("undo.json"), record).unwrap();
        fs::set_permissions(dir.path().join("undo.json"), fs::Permissions::from_mode(0o600)).unwrap();
        recover(dir.path(), &fake.roots()).unwrap();
        assert_eq!(text(&max), expected);
    }
}

#[test]
fn a_ledger_that_is_torn_foreign_or_writable_by_others_is_refused_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("undo.json");
    let roots = Roots::default();
    let of = |target: &str| {
        format!(
            r#"{{"version":1,"boot_id":"","pid":7,"records":[{{"kind":"files","what":"q","ours":[],
            "steps":[{{"path":"{target}","value":"x"}}]}}]}}"#
        )
    };
    for contents in [
        "{\"version\":1,",
        "",
        "{\"version\":9,\"boot_id\":\"\",\"pid\":1,\"records\":[]}",
        &of("/etc/passwd"),
        &of("/sys/../etc/passwd"),
        &of("relative"),
    ] {
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let error = recover(dir.path(), &roots).unwrap_err();
        assert!(
            matches!(error, LedgerError::Unreadable { .. }),
            "{contents}: {error}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), contents);
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o622)).unwrap();
    assert!(matches!(
        recover(dir.path(), &roots),
        Err(LedgerError::Exposed(_))
    ));
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(
        recover(dir.path(), &roots),
        Err(LedgerError::Exposed(_))
    ));
}

#[test]
fn what_fails_to_be_put_back_stays_for_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let fake = common::FakeMachine::v2();
    let group = fake.v2_group("web");
    let target = Target::resolve(&fake.roots(), &"/web".parse().unwrap()).unwrap();
    let registry = Registry::new();
    let (ledger, _) = Ledger::open(dir.path(), &fake.roots()).unwrap();
    registry.attach(ledger).unwrap();
    let mut quota = QuotaActuator::open(&fake.roots(), &target, QuotaOptions::default(), &registry).unwrap();
    quota.set(Cores::new(1.0)).unwrap();
    // A directory in the file's place: it can be neither read nor written, and it is not gone.
    let max = group.join("cpu.max");
    fs::remove_file(&max).unwrap();
    fs::create_dir(&max).unwrap();
    let report = registry.restore_all();
    assert!(
        matches!(report.outcomes[..], [Outcome::Failed { .. }]),
        "{report}"
    );
    drop((quota, registry));
    fs::remove_dir(&max).unwrap();
    fs::write(&max, "10000 10000\n").unwrap();
    let report = recover(dir.path(), &fake.roots()).unwrap();
    assert_eq!(
        (report.restored(), text(&max).as_str()),
        (1, "max 100000"),
        "{report}"
    );
}

#[test]
fn a_cap_that_is_none_changes_nothing() {
    let fake = common::FakeMachine::v2();
    let group = fake.v2_group("web");
    let target = Target::resolve(&fake.roots(), &"/web".parse().unwrap()).unwrap();
    let registry = Registry::new();
    let model = PowerModel::default_for(Cores::new(4.0)).unwrap();
    let (limiter, choice) = Limiter::open(
        &fake.roots(),
        &target,
        model.clone(),
        MeterPreference::Auto,
        LimiterOptions::default(),
        &registry,
    )
    .unwrap();
    assert!(
        choice
            .to_string()
            .contains("estimated by model; rapl cannot be used: no RAPL zone"),
        "{choice}"
    );
    for cap in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let allocation = Setting::default()
            .with(Lever::Cores, Some(1.0))
            .with(Lever::Cap, Some(cap));
        says(limiter.apply(allocation).unwrap_err(), &["watts above zero"]);
    }
    assert!(
        limiter
            .apply(Setting::default().with(Lever::Cores, Some(-1.0)))
            .is_err()
    );
    assert_eq!(text(group.join("cpu.max")), "max 100000");
    let rapl = Limiter::open(
        &fake.roots(),
        &target,
        model,
        MeterPreference::one(headroom_node::power::MeterKind::Rapl),
        LimiterOptions::default(),
        &registry,
    );
    says(rapl.unwrap_err(), &["set the meter to auto or model"]);
}
