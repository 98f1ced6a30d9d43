//! Bad input: exit status 2, one clear message on standard error, and nothing changed on the machine.

use crate::common::{
    Config, Group, Program, copy_headroom, exists_anywhere, free_port, headroom, root_or_skipped, run,
    undo_left,
};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

/// Nobody, on every Linux.
const NOBODY: u32 = 65_534;

/// What is wrong with how something was refused: it must be exit status 2 and one message, which holds all of `said`.
fn fault((status, program): &(ExitStatus, Program), said: &[&str]) -> Option<String> {
    let (out, err) = (program.out(), program.err());
    // Whoever is not root is warned that their guard cannot leave their control groups.
    let is_part = |line: &&str| !line.trim().is_empty() && !line.contains("the guard lives no life apart");
    let lines: Vec<&str> = err.lines().filter(is_part).collect();
    let one = lines.len() == 1 && lines[0].starts_with("headroom: ");
    let missing: Vec<_> = said.iter().filter(|part| !err.contains(**part)).collect();
    let right = status.code() == Some(2) && out.is_empty() && one && missing.is_empty();
    (!right).then(|| format!("{status}, without {missing:?}, out: {out:?}, err: {err}"))
}

#[track_caller]
fn assert_refused(outcome: &(ExitStatus, Program), said: &[&str]) {
    if let Some(fault) = fault(outcome, said) {
        panic!("{fault}");
    }
}

/// A mistake in a configuration that is otherwise good: what is replaced by what, on whose line it is reported, and
/// what else the message says.
type Mistake<'a> = (&'a str, &'a str, &'a str, &'a [&'a str]);

/// How what `--check` says of a configuration differs from what the start said: it must be the same message and exit status,
/// and the same as JSON.
fn check_differs(config: &Config, said: &str) -> Option<String> {
    let (status, program) = run(config.command().arg("--check"));
    let (out, err) = (program.out(), program.err());
    let json: serde_json::Value = serde_json::from_str(&out).unwrap_or_default();
    let message = json["errors"][0]["message"].as_str().unwrap_or_default();
    let same = status.code() == Some(2)
        && err == said
        && json["ok"] == false
        && !message.is_empty()
        && said.contains(message);
    (!same).then(|| format!("the check: {status}, out: {out}, err: {err}, and the start said: {said}"))
}

/// Starts `headroom up` in earnest on each mistake, and checks it too.
#[track_caller]
fn refuse(group: &Path, mistakes: &[Mistake<'_>], unchanged: impl Fn()) {
    let mut faults = Vec::new();
    for (from, to, at, said) in mistakes {
        let config = Config::new(group, "http://127.0.0.1:9").with(from, to);
        let outcome = run(&mut config.command());
        let place = match at.is_empty() {
            true => "headroom.toml".to_owned(),
            false => format!("headroom.toml:{}: ", config.line_of(at)),
        };
        let mut parts = vec![place.as_str()];
        parts.extend(said.iter());
        faults.extend(fault(&outcome, &parts).map(|fault| format!("{to}: {fault}")));
        faults.extend(check_differs(&config, &outcome.1.err()).map(|fault| format!("{to}: {fault}")));
        assert!(!undo_left(&config.run_dir()), "{to}");
        unchanged();
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_mistake_in_the_file_is_named_with_its_line_value_and_remedy() {
    // None of these needs the machine, so none needs a group that exists.
    let example = "--example";
    refuse(
        Path::new("/sys/fs/cgroup/nonexistent"),
        &[
            (
                "percentile",
                "percentle",
                "percentle",
                &["percentle", "percentile", example],
            ),
            ("[slo]", "[sloo]", "[sloo]", &["sloo", "slo", example]),
            ("guard =", "gaurd =", "gaurd", &["gaurd", "guard", example]),
            (
                "threads = 1",
                "thread = 1",
                "thread = 1",
                &["thread", "threads", example],
            ),
            (
                "percentile = 95",
                "percentile = 0",
                "percentile",
                &["slo.percentile", "0", "between 0 and 100"],
            ),
            (
                "percentile = 95",
                "percentile = 0.95",
                "percentile",
                &["slo.percentile", "0.95", "in percent", "write 95.0"],
            ),
            (
                "percentile = 95",
                "percentile = 100",
                "percentile",
                &["100", "between 0 and 100"],
            ),
            (
                "percentile = 95",
                "percentile = nan",
                "percentile",
                &["NaN", "between 0 and 100"],
            ),
            (
                "percentile = 95",
                "percentile = -inf",
                "percentile",
                &["-inf", "between 0 and 100"],
            ),
            (
                "percentile = 95",
                "percentile = \"95\"",
                "percentile",
                &["\"95\"", example],
            ),
            (
                "target_ms = 250",
                "target_ms = 0",
                "target_ms",
                &["slo.target_ms"],
            ),
            (
                "target_ms = 250",
                "target_ms = -5",
                "target_ms",
                &["slo.target_ms", "-"],
            ),
            (
                "target_ms = 250",
                "target_ms = nan",
                "target_ms",
                &["slo.target_ms"],
            ),
            (
                "target_ms = 250",
                "target_ms = inf",
                "target_ms",
                &["slo.target_ms"],
            ),
            ("target_ms = 250", "", "[slo]", &["target_ms", example]),
            (
                "guard = 0.8",
                "guard = 8",
                "guard",
                &["law.slo-power.guard", "8", "at most 1"],
            ),
            (
                "\"slo-power\"",
                "\"sloppy\"",
                "sloppy",
                &["sloppy", "slo-power", "fixed"],
            ),
            ("cgroup =", "pid = 1\ncgroup =", "[service]", &["cgroup and pid"]),
            (
                "period_ms = 200",
                "period_ms = 1",
                "period_ms",
                &["control.period_ms", "1", "between 100"],
            ),
            (
                "period_ms = 200",
                "period_ms = nan",
                "period_ms",
                &["control.period_ms", "NaN"],
            ),
            (
                "250.0\n",
                "-1\n",
                "requests_per_core_s",
                &["service.requests_per_core_s", "-1"],
            ),
            (
                "250.0\n",
                "250.0\nlever = \"clutch\"\n",
                "clutch",
                &["clutch", "quota", "cpuset"],
            ),
            ("\"model\"", "\"plug\"", "plug", &["plug", "rapl", "model"]),
            (
                "listen = [\"127.0.0.1:0\"]",
                "listen = [\"localhost\"]",
                "localhost",
                &["localhost", example],
            ),
            (
                "[record]\n",
                "[record]\nmax_age_days = 1e300\n",
                "max_age_days",
                &["record.max_age_days", "1e300"],
            ),
            (
                "[record]\n",
                "[record]\nmax_mib = -1\n",
                "max_mib",
                &["record.max_mib", "-1"],
            ),
            (
                "requests_per_core_s = 250.0",
                "calibrate_s = 1e300",
                "calibrate_s",
                &["service.calibrate_s", "1e300"],
            ),
            ("[law]\n", "[law\n", "[law", &[example]),
        ],
        || {},
    );
}

#[test]
fn a_file_that_is_none_is_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("headroom.toml");
    let name = file.to_str().unwrap();
    let up = || run(headroom().args(["up", "--config", name]));
    assert_refused(&up(), &[name, "cannot be read", "--example"]);
    fs::write(&file, b"[slo]\n\xff\xfe = 1\n").unwrap();
    assert_refused(&up(), &[name, "UTF-8"]);
    fs::write(&file, "").unwrap();
    assert_refused(&up(), &[name, "slo", "--example"]);
    fs::write(&file, "\u{0}\u{0}\u{0}").unwrap();
    assert_refused(&up(), &[name]);
    assert_refused(
        &run(headroom().args(["up", "--config", folder.path().to_str().unwrap()])),
        &["cannot be read"],
    );
}

#[test]
fn what_the_machine_has_not_is_refused_and_leaves_everything_as_it_was() {
    let Some(group) = Group::new() else { return };
    group.limit(150_000, 100_000);
    let before = group.settings();
    let path = group.path().to_str().unwrap().to_owned();
    let root = group.path().parent().unwrap().to_str().unwrap().to_owned();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let listens = format!("listen = [\"{taken}\"]");
    let serves = format!("[admin]\nlisten = \"{taken}\"");
    let missing = format!("{path}-not");
    let upwards = format!("{path}/../x");
    let folder = tempfile::tempdir().unwrap();
    let junk = folder.path().join("junk.pem");
    fs::write(&junk, "no certificate").unwrap();
    let tls = |certificate: &str| {
        format!(
            "threads = 1\ntls = [{{ listen = \"127.0.0.1:0\", certificate = \"{certificate}\", key = \"/no/key.pem\" }}]"
        )
    };
    let (no_file, no_pem) = (tls("/no/chain.pem"), tls(junk.to_str().unwrap()));
    let unit = "systemd_unit = \"headroom-e2e-nonexistent.service\"";
    let line = format!("cgroup = \"{path}\"");
    let line = line.as_str();
    let cores = "requests_per_core_s = 250.0";
    let with_cores = |key: &str| format!("{cores}\n{key}");
    let (many, few, step) = (
        with_cores("cores_max = 640"),
        with_cores("cores_min = 9"),
        with_cores("cores_step = 0"),
    );
    let (long, short) = (
        with_cores("quota_period_ms = 5000"),
        with_cores("quota_period_ms = 0.1"),
    );
    refuse(
        group.path(),
        &[
            // No number of cores serves a request faster than one core does: both numbers.
            (
                "target_ms = 250",
                "target_ms = 4",
                "target_ms",
                &["slo.target_ms", "4.000 ms", "250.000 requests/s"],
            ),
            (
                &path,
                &missing,
                "cgroup =",
                &["service", &missing, "does not exist", "check the name"],
            ),
            (&path, &root, "cgroup =", &["service", "root"]),
            (&path, &upwards, "cgroup =", &["service", ".."]),
            (line, unit, "systemd_unit", &["headroom-e2e-nonexistent.service"]),
            (
                line,
                "container = \"feedfacefeedface\"",
                "container",
                &["feedfacefeedface"],
            ),
            (
                line,
                "pid = 2147483647",
                "pid = ",
                &["2147483647", "check that the process runs"],
            ),
            (cores, &many, "cores_max", &["service.cores_max", "640"]),
            (cores, &few, "cores_min", &["service.cores_min", "9"]),
            (cores, &step, "cores_step", &["0"]),
            (cores, &long, "quota_period_ms", &["5"]),
            (cores, &short, "quota_period_ms", &["0.1"]),
            (
                "listen = [\"127.0.0.1:0\"]",
                &listens,
                "listen = [",
                &[&taken, "in use"],
            ),
            (
                "[admin]\nlisten = \"127.0.0.1:0\"",
                &serves,
                &taken,
                &[&taken, "admin", "in use"],
            ),
            (
                "http://127.0.0.1:9",
                "ftp://127.0.0.1:9",
                "backends",
                &["ftp://127.0.0.1:9", "http://host:port"],
            ),
            (
                "http://127.0.0.1:9",
                "127.0.0.1:9",
                "backends",
                &["127.0.0.1:9", "http://host:port"],
            ),
            (
                "http://127.0.0.1:9",
                "http://127.0.0.1:99999",
                "backends",
                &["99999"],
            ),
            ("http://127.0.0.1:9", "", "backends", &["http://host:port"]),
            (
                "threads = 1",
                "threads = 100000",
                "threads",
                &["threads", "100000"],
            ),
            ("threads = 1", &no_file, "tls = ", &["/no/chain.pem"]),
            ("threads = 1", &no_pem, "tls = ", &["junk.pem"]),
            (
                "\"model\"",
                "\"model\"\n[power.model]\nbusy_core_w = -3",
                "[power.model]",
                &["power.model", "-3"],
            ),
        ],
        || assert_eq!(group.settings(), before),
    );
    let config = Config::new(group.path(), "http://127.0.0.1:9");
    let db = config.db().to_str().unwrap().to_owned();
    let config = config.with(&db, "/proc/nowhere/record.db");
    let outcome = run(&mut config.command());
    assert_refused(&outcome, &["/proc/nowhere"]);
    assert_eq!(check_differs(&config, &outcome.1.err()), None);
    assert_eq!(group.settings(), before);
    assert!(!undo_left(&config.run_dir()));
}

#[test]
fn a_run_folder_that_others_may_write_is_refused() {
    let Some(group) = Group::new() else { return };
    let before = group.settings();
    let config = Config::new(group.path(), "http://127.0.0.1:9");
    fs::create_dir(config.run_dir()).unwrap();
    fs::set_permissions(config.run_dir(), fs::Permissions::from_mode(0o777)).unwrap();
    let name = config.run_dir();
    let outcome = run(&mut config.command());
    assert_refused(&outcome, &[name.to_str().unwrap(), "chmod go-w"]);
    assert_eq!(check_differs(&config, &outcome.1.err()), None);
    fs::remove_dir_all(&name).unwrap();
    fs::write(&name, "a file").unwrap();
    let outcome = run(&mut config.command());
    assert_refused(&outcome, &[name.to_str().unwrap(), "--run-dir"]);
    assert_eq!(check_differs(&config, &outcome.1.err()), None);
    assert_eq!(group.settings(), before);
}

/// The binary where somebody without rights can reach it, run as that.
fn as_nobody(folder: &Path) -> Command {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    let binary = folder.join("headroom");
    if !binary.exists() && fs::hard_link(env!("CARGO_BIN_EXE_headroom"), &binary).is_err() {
        copy_headroom(&binary);
    }
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
    let home = folder.join("home");
    let _ = fs::create_dir(&home);
    std::os::unix::fs::chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = Command::new(binary);
    command
        .env_remove("RUST_LOG")
        .env("XDG_RUNTIME_DIR", &home)
        .current_dir(home)
        .uid(NOBODY)
        .gid(NOBODY);
    command
}

#[test]
fn a_group_that_may_not_be_written_is_refused() {
    if !root_or_skipped("running as somebody else") {
        return;
    }
    let Some(group) = Group::new() else { return };
    let before = group.settings();
    let config = Config::new(group.path(), "http://127.0.0.1:9");
    let file = config.file();
    fs::set_permissions(config.dir(), fs::Permissions::from_mode(0o755)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let outcome = run(as_nobody(folder.path()).args(["up", "--config"]).arg(&file));
    let place = format!("headroom.toml:{}: ", config.line_of("cgroup ="));
    assert_refused(&outcome, &[&place, group.path().to_str().unwrap(), "root"]);
    assert_eq!(group.settings(), before);
    assert!(!config.db().exists());

    // Nobody cannot make the demo's group either, and is told what to do.
    let (status, demo) = run(as_nobody(folder.path()).args(["demo", "--no-view", "--duration", "30"]));
    assert!(!status.success());
    assert!(demo.err().contains("run as root"), "{}", demo.err());
    assert!(!demo.err().contains("panicked"), "{}", demo.err());
}

#[test]
fn a_trace_or_a_target_of_load_that_is_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.txt");
    let name = trace.to_str().unwrap();
    let nobody_is_asked = TcpListener::bind("127.0.0.1:0").unwrap();
    nobody_is_asked.set_nonblocking(true).unwrap();
    let url = format!("http://{}/", nobody_is_asked.local_addr().unwrap());
    let load = |args: &[&str]| run(headroom().arg("load").args(args));
    for (text, said) in [
        ("10\n20\nmany\n40\n", &[":3", "many"][..]),
        ("10\n-3\n", &[":2", "-3"]),
        ("10\nnan\n", &[":2", "nan"]),
        ("1e999\n", &[":1", "1e999"]),
        ("", &["no value", "one non-negative number a line"]),
        ("0,5\n", &[":1", "0,5"]),
    ] {
        fs::write(&trace, text).unwrap();
        let mut parts = vec![name];
        parts.extend(said);
        assert_refused(&load(&["--trace", name, "--url", &url]), &parts);
    }
    fs::write(&trace, "10\n").unwrap();
    let absent = folder.path().join("absent.txt");
    let absent = absent.to_str().unwrap();
    let with = |args: &[&str]| {
        let mut all = vec!["--trace", name];
        all.extend(args);
        load(&all)
    };
    assert_refused(
        &load(&["--trace", absent, "--url", &url]),
        &[absent, "readable file"],
    );
    assert_refused(&load(&["--trace", "/proc", "--url", &url]), &["/proc"]);
    assert_refused(
        &with(&["--url", "nonsense"]),
        &["nonsense", "http://HOST:PORT/PATH"],
    );
    assert_refused(&with(&["--url", "gopher://127.0.0.1/"]), &["gopher://127.0.0.1/"]);
    assert_refused(&with(&["--url", &url, "--paths", absent]), &[absent]);
    assert_refused(
        &with(&["--url", &url, "--connections", "0"]),
        &["connections", "0"],
    );
    assert_refused(
        &with(&["--url", &url, "--timeout-ms", "nan"]),
        &["timeout", "NaN"],
    );
    assert_refused(&with(&["--url", &url, "--step", "0"]), &["step"]);
    assert_refused(&with(&["--url", &url, "--scale=-1"]), &["-1"]);
    for bad in ["nan", "0", "inf", "soon"] {
        let (status, program) = with(&["--url", &url, "--duration", bad]);
        assert_eq!(status.code(), Some(2), "--duration {bad}");
        assert!(
            program.err().contains("--duration") && program.err().contains(bad),
            "{}",
            program.err()
        );
    }
    assert!(nobody_is_asked.accept().is_err(), "nothing was sent anywhere");
}

#[test]
fn a_gateway_that_cannot_be_is_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let backend = "http://127.0.0.1:9";
    let gateway = |args: &[&str]| run(headroom().arg("gateway").args(args));
    let free = format!("127.0.0.1:{}", free_port());
    assert_refused(
        &gateway(&["--listen", &taken, "--backend", backend]),
        &[&taken, "in use"],
    );
    assert_refused(
        &gateway(&["--listen", &free, "--backend", "https://127.0.0.1:9"]),
        &["https://127.0.0.1:9"],
    );
    assert_refused(
        &gateway(&["--listen", &free, "--backend", "http://[::1"]),
        &["http://[::1"],
    );
    assert_refused(
        &gateway(&["--listen", &free, "--backend", backend, "--threads", "1000"]),
        &["threads", "1000"],
    );
    assert_refused(
        &gateway(&["--listen", &free, "--backend", backend, "--health", "up"]),
        &["health", "up"],
    );
    let tls = [
        "--tls-listen",
        "127.0.0.1:0",
        "--tls-cert",
        "/no/chain.pem",
        "--tls-key",
        "/no/key.pem",
    ];
    let mut all = vec!["--listen", &free, "--backend", backend];
    all.extend(tls);
    assert_refused(&gateway(&all), &["/no/chain.pem"]);
    for bad in ["nan", "-1", "later"] {
        let (status, program) =
            gateway(&["--listen", &free, "--backend", backend, &format!("--drain={bad}")]);
        assert_eq!(status.code(), Some(2), "--drain {bad}");
        assert!(
            program.err().contains("--drain") && program.err().contains(bad),
            "{}",
            program.err()
        );
    }
    // Half of what TLS needs.
    let (status, program) = gateway(&["--listen", &free, "--backend", backend, "--tls-cert", "chain.pem"]);
    assert_eq!(status.code(), Some(2));
    assert!(program.err().contains("--tls-listen"), "{}", program.err());
}

#[test]
fn a_service_a_trace_and_a_demo_that_cannot_be_are_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let wiki = |args: &[&str]| run(headroom().args(["service", "wiki"]).args(args));
    assert_refused(&wiki(&["--listen", &taken]), &[&taken, "free port"]);
    assert_refused(
        &wiki(&["--listen", "127.0.0.1:0", "--workers", "0"]),
        &["workers", "0"],
    );
    assert_refused(
        &wiki(&["--listen", "127.0.0.1:0", "--page-cpu-ms", "nan"]),
        &["NaN"],
    );

    assert_refused(
        &run(headroom().args(["trace", "wikipedia", "--length", "0"])),
        &[],
    );
    assert_refused(
        &run(headroom().args(["trace", "azure", "--length", "18446744073709551615"])),
        &[],
    );

    let folder = tempfile::tempdir().unwrap();
    let word = folder.path().join("trace.txt");
    fs::write(&word, "1\nword\n").unwrap();
    let demo = |args: &[&str]| {
        let outcome = run(headroom()
            .args(["demo", "--no-view"])
            .args(args)
            .current_dir(folder.path()));
        assert!(!exists_anywhere(&format!("headroom-demo-{}", outcome.1.pid())));
        assert!(!folder.path().join("out").exists(), "{args:?} wrote a record");
        outcome
    };
    assert_refused(&demo(&["--duration", "5"]), &["--duration 5", "30 s"]);
    assert_refused(&demo(&["--duration", "nan"]), &["--duration NaN"]);
    assert_refused(&demo(&["--percentile", "100"]), &["100"]);
    assert_refused(&demo(&["--target-ms", "0"]), &["0"]);
    assert_refused(&demo(&["--trace", word.to_str().unwrap()]), &[":2", "word"]);
    if root_or_skipped("the demo") {
        let run_dir = folder.path().join("run");
        let run_dir = run_dir.to_str().unwrap();
        assert_refused(
            &demo(&["--cores", "1000", "--run-dir", run_dir]),
            &["--cores 1000"],
        );
        assert_refused(&demo(&["--cores", "0", "--run-dir", run_dir]), &["0"]);
        assert_refused(&demo(&["--cores", "nan", "--run-dir", run_dir]), &["NaN"]);
    }
    let (status, program) = run(headroom().args(["demo", "--laws", "fixed,best"]));
    assert_eq!(status.code(), Some(2));
    assert!(
        program.err().contains("best") && program.err().contains("slo-power"),
        "{}",
        program.err()
    );
}
