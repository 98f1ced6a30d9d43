//! Bad input: exit status 2, one clear message on standard error, and nothing changed on the machine.

use crate::common::{
    Config, Group, NOBODY, Program, assert_has, copy_headroom, exists_anywhere, free_port, headroom, refused,
    root_or_skipped, run, undo_left,
};
use std::borrow::BorrowMut;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Nobody, on every Linux.
const UNPRIVILEGED: u32 = 65_534;

/// What is wrong with how something was refused: it must be exit status 2 and one message, which holds all of `said`.
fn fault(program: &Program, said: &[&str]) -> Option<String> {
    let (code, out, err) = (program.code(), program.out(), program.err());
    // Whoever is not root is warned that their guard cannot leave their control groups.
    let is_part = |line: &&str| !line.trim().is_empty() && !line.contains("the guard lives no life apart");
    let lines: Vec<&str> = err.lines().filter(is_part).collect();
    let one = lines.len() == 1 && lines[0].starts_with("headroom: ");
    let missing: Vec<_> = said.iter().filter(|part| !err.contains(**part)).collect();
    let right = code == Some(2) && out.is_empty() && one && missing.is_empty();
    (!right).then(|| format!("{code:?}, without {missing:?}, out: {out:?}, err: {err}"))
}

#[track_caller]
fn assert_refused(command: impl BorrowMut<Command>, said: &[&str]) -> Program {
    let program = run(command);
    let fault = fault(&program, said);
    assert!(
        fault.is_none(),
        "{}: {}",
        program.what(),
        fault.unwrap_or_default()
    );
    program
}

/// A message without the number of control groups that were searched: the start has made the guard's by then, the check makes
/// none, and tests that run at the same time make and remove theirs.
fn uncounted(message: &str) -> String {
    let parts: Vec<&str> = message.split(" groups below them").collect();
    let bare = parts
        .iter()
        .map(|part| part.trim_end_matches(|c: char| c.is_ascii_digit()));
    bare.collect::<Vec<_>>().join(" groups below them")
}

/// How what `--check` says of a configuration differs from what the start said: it must be the same message and exit status,
/// and the same as JSON.
fn check_differs(config: &Config, said: &str) -> Option<String> {
    let program = run(config.command().arg("--check"));
    let (code, out, err) = (program.code(), program.out(), program.err());
    let json: serde_json::Value = serde_json::from_str(&out).unwrap_or_default();
    let message = json["errors"][0]["message"].as_str().unwrap_or_default();
    let same = code == Some(2)
        && uncounted(&err) == uncounted(said)
        && json["ok"] == false
        && !message.is_empty()
        && uncounted(said).contains(&uncounted(message));
    (!same).then(|| format!("the check: {code:?}, out: {out}, err: {err}, and the start said: {said}"))
}

/// Starts `headroom up` in earnest on each mistake, and checks it too. Each is a line of a table: what is replaced in a
/// configuration that is otherwise good, by what, on whose line it is reported, and what else the message says.
#[track_caller]
fn refuse(group: &Path, mistakes: &str, unchanged: impl Fn()) {
    let mut faults = Vec::new();
    for mistake in mistakes.lines().filter(|line| !line.trim().is_empty()) {
        let cells = mistake.split(" | ").map(|cell| cell.trim().replace("\\n", "\n"));
        let [from, to, at, said]: [String; 4] = cells.collect::<Vec<_>>().try_into().unwrap();
        let config = Config::of(group, NOBODY).with(&from, &to);
        let outcome = run(config.command());
        let place = format!("headroom.toml:{}: ", config.line_of(&at));
        let parts: Vec<&str> = said.split("; ").chain([&*place]).collect();
        let differs = check_differs(&config, &outcome.err());
        let found = fault(&outcome, &parts).into_iter().chain(differs);
        faults.extend(found.map(|fault| format!("{mistake}: {fault}")));
        assert!(!undo_left(&config.run_dir()), "{mistake}");
        unchanged();
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_mistake_in_the_file_is_named_with_its_line_value_and_remedy() {
    // None of these needs the machine, so none needs a group that exists.
    refuse(
        Path::new("/sys/fs/cgroup/nonexistent"),
        r#"
            percentile | percentle | percentle | percentle; percentile; --example
            [slo] | [sloo] | [sloo] | sloo; slo; --example
            guard = | gaurd = | gaurd | gaurd; guard; --example
            threads = 1 | thread = 1 | thread = 1 | thread; threads; --example
            percentile = 95 | percentile = 0 | percentile | slo.percentile; 0; between 0 and 100
            percentile = 95 | percentile = 0.95 | percentile | slo.percentile; 0.95; in percent; write 95.0
            percentile = 95 | percentile = 100 | percentile | 100; between 0 and 100
            percentile = 95 | percentile = nan | percentile | NaN; between 0 and 100
            percentile = 95 | percentile = -inf | percentile | -inf; between 0 and 100
            percentile = 95 | percentile = "95" | percentile | "95"; --example
            target_ms = 250 | target_ms = 0 | target_ms | slo.target_ms
            target_ms = 250 | target_ms = -5 | target_ms | slo.target_ms; -
            target_ms = 250 | target_ms = nan | target_ms | slo.target_ms
            target_ms = 250 | target_ms = inf | target_ms | slo.target_ms
            target_ms = 250 |  | [slo] | target_ms; --example
            guard = 0.8 | guard = 8 | guard | law.slo-power.guard; 8; at most 1
            "slo-power" | "sloppy" | sloppy | sloppy; slo-power; fixed
            cgroup = | pid = 1\ncgroup = | [service] | cgroup and pid
            period_ms = 200 | period_ms = 1 | period_ms | control.period_ms; 1; between 100
            period_ms = 200 | period_ms = nan | period_ms | control.period_ms; NaN
            250.0\n | -1\n | requests_per_core_s | service.requests_per_core_s; -1
            250.0\n | 250.0\nlever = "clutch"\n | clutch | clutch; quota; cpuset
            "model" | "plug" | plug | plug; rapl; model
            "model" | "model"\nfrequency = "off"\ncap_lever = ["rapl", "frequency"] | cap_lever | power.cap_lever; power.frequency = "off"; remove it here
            listen = ["127.0.0.1:0"] | listen = ["localhost"] | localhost | localhost; --example
            [record]\n | [record]\nmax_age_days = 1e300\n | max_age_days | record.max_age_days; 1e300
            [record]\n | [record]\nmax_mib = -1\n | max_mib | record.max_mib; -1
            requests_per_core_s = 250.0 | calibrate_s = 1e300 | calibrate_s | service.calibrate_s; 1e300
            [law]\n | [law\n | [law | --example
            target_ms = 250 | target_ms = 4 | target_ms | slo.target_ms; no number of cores; 250.000 requests/s
            "slo-power" | "batching" | name = "batching" | law.name; batch_interval; gateway.batch.interval_ms
            250.0\n | 250.0\ncores_min = 3\ncores_max = 2\n | cores_min | service.cores_min; 3; 2
        "#,
        || {},
    );
}

#[test]
fn a_file_that_is_none_is_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("headroom.toml");
    let name = file.to_str().unwrap();
    let up = || headroom(format!("up --config {name}"));
    assert_refused(up(), &[name, "cannot be read", "--example"]);
    fs::write(&file, b"[slo]\n\xff\xfe = 1\n").unwrap();
    assert_refused(up(), &[name, "UTF-8"]);
    fs::write(&file, "").unwrap();
    let program = run(up());
    let (code, err) = (program.code(), program.err());
    assert_eq!((code, err.lines().count()), (Some(2), 3), "{err}");
    for table in ["gateway", "slo", "service"] {
        assert!(err.contains(&format!("{table}: is missing")), "{err}");
    }
    fs::write(&file, "\u{0}\u{0}\u{0}").unwrap();
    assert_refused(up(), &[name]);
    assert_refused(headroom("up --config").arg(folder.path()), &["cannot be read"]);
}

#[test]
fn what_the_machine_has_not_is_refused_and_leaves_everything_as_it_was() {
    let Some(group) = Group::new() else { return };
    group.limit(150_000, 100_000);
    let before = group.settings();
    let path = group.path();
    let root = group.dir().parent().unwrap().to_str().unwrap().to_owned();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let listens = format!("listen = [\"{taken}\"]");
    let serves = format!("[admin]\\nlisten = \"{taken}\"");
    let missing = format!("{path}-not");
    let upwards = format!("{path}/../x");
    let folder = tempfile::tempdir().unwrap();
    let junk = folder.path().join("junk.pem");
    fs::write(&junk, "no certificate").unwrap();
    let tls = |certificate: &str| {
        format!(
            "threads = 1\\ntls = [{{ listen = \"127.0.0.1:0\", certificate = \"{certificate}\", key = \"/no/key.pem\" }}]"
        )
    };
    let (no_file, no_pem) = (tls("/no/chain.pem"), tls(junk.to_str().unwrap()));
    let unit = "systemd_unit = \"headroom-e2e-nonexistent.service\"";
    let line = format!("cgroup = \"{path}\"");
    let line = line.as_str();
    let cores = "requests_per_core_s = 250.0";
    let with_cores = |key: &str| format!("{cores}\\n{key}");
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
        group.dir(),
        &format!(
            r#"
            target_ms = 250 | target_ms = 4 | target_ms | slo.target_ms; 4.000 ms; 250.000 requests/s
            {path} | {missing} | cgroup = | service; {missing}; does not exist; check the name
            {path} | {root} | cgroup = | service; root
            {path} | {upwards} | cgroup = | service; ..
            {line} | {unit} | systemd_unit | headroom-e2e-nonexistent.service
            {line} | container = "feedfacefeedface" | container | feedfacefeedface
            {line} | pid = 2147483647 | pid =  | 2147483647; check that the process runs
            {cores} | {many} | cores_max | service.cores_max; 640
            {cores} | {few} | cores_min | service.cores_min; 9
            {cores} | {step} | cores_step | 0
            {cores} | {long} | quota_period_ms | 5
            {cores} | {short} | quota_period_ms | 0.1
            listen = ["127.0.0.1:0"] | {listens} | listen = [ | {taken}; in use
            [admin]\nlisten = "127.0.0.1:0" | {serves} | {taken} | {taken}; admin; in use
            http://127.0.0.1:9 | ftp://127.0.0.1:9 | backends | ftp://127.0.0.1:9; http://host:port
            http://127.0.0.1:9 | 127.0.0.1:9 | backends | 127.0.0.1:9; http://host:port
            http://127.0.0.1:9 | http://127.0.0.1:99999 | backends | 99999
            http://127.0.0.1:9 |  | backends | http://host:port
            threads = 1 | threads = 100000 | threads | threads; 100000
            threads = 1 | {no_file} | tls =  | /no/chain.pem
            threads = 1 | {no_pem} | tls =  | junk.pem
            "model" | "model"\n[machine]\nkind = "alder-lake" | kind = "alder | alder-lake; skylake; broadwell; figures
        "#
        ),
        || assert_eq!(group.settings(), before),
    );
    let config = Config::new(&group, NOBODY);
    let db = config.db().to_str().unwrap().to_owned();
    let config = config.with(&db, "/proc/nowhere/record.db");
    let outcome = assert_refused(config.command(), &["/proc/nowhere"]);
    assert_eq!(check_differs(&config, &outcome.err()), None);
    assert_eq!(group.settings(), before);
    assert!(!undo_left(&config.run_dir()));
}

#[test]
fn a_run_folder_that_others_may_write_is_refused() {
    let Some(group) = Group::new() else { return };
    let before = group.settings();
    let config = Config::new(&group, NOBODY);
    fs::create_dir(config.run_dir()).unwrap();
    fs::set_permissions(config.run_dir(), fs::Permissions::from_mode(0o777)).unwrap();
    let name = config.run_dir();
    let outcome = assert_refused(config.command(), &[name.to_str().unwrap(), "chmod go-w"]);
    assert_eq!(check_differs(&config, &outcome.err()), None);
    fs::remove_dir_all(&name).unwrap();
    fs::write(&name, "a file").unwrap();
    let outcome = assert_refused(config.command(), &[name.to_str().unwrap(), "--run-dir"]);
    assert_eq!(check_differs(&config, &outcome.err()), None);
    assert_eq!(group.settings(), before);
}

/// The binary where somebody without rights can reach it, run as that.
pub fn as_nobody(folder: &Path) -> Command {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    let binary = folder.join("headroom");
    if !binary.exists() && fs::hard_link(env!("CARGO_BIN_EXE_headroom"), &binary).is_err() {
        copy_headroom(&binary);
    }
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
    let home = folder.join("home");
    let _ = fs::create_dir(&home);
    std::os::unix::fs::chown(&home, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
    let mut command = Command::new(binary);
    command
        .env_remove("RUST_LOG")
        .env("XDG_RUNTIME_DIR", &home)
        .current_dir(home)
        .uid(UNPRIVILEGED)
        .gid(UNPRIVILEGED);
    command
}

#[test]
fn a_group_that_may_not_be_written_is_refused() {
    if !root_or_skipped("running as somebody else") {
        return;
    }
    let Some(group) = Group::new() else { return };
    let before = group.settings();
    let config = Config::new(&group, NOBODY);
    let file = config.file();
    fs::set_permissions(config.dir(), fs::Permissions::from_mode(0o755)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let place = format!("headroom.toml:{}: ", config.line_of("cgroup ="));
    assert_refused(
        as_nobody(folder.path()).args(["up", "--config"]).arg(&file),
        &[&place, &group.path(), "root"],
    );
    assert_eq!(group.settings(), before);
    assert!(!config.db().exists());

    // Nobody cannot make the demo's group either, and is told what to do.
    let demo = run(as_nobody(folder.path()).args(["demo", "--no-view", "--duration", "30"]));
    assert_ne!(demo.code(), Some(0));
    assert_has(demo.err(), &["run as root"]);
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
    let load = |words: &str| headroom(format!("load {words}"));
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
        assert_refused(load(&format!("--trace {name} --url {url}")), &parts);
    }
    fs::write(&trace, "10\n").unwrap();
    let absent = folder.path().join("absent.txt");
    let absent = absent.to_str().unwrap();
    let with = |words: &str| load(&format!("--trace {name} {words}"));
    assert_refused(
        load(&format!("--trace {absent} --url {url}")),
        &[
            absent,
            "neither a built-in trace (wikipedia, azure, clarknet-like) nor a file",
        ],
    );
    assert_refused(load(&format!("--trace /proc --url {url}")), &["/proc"]);
    assert_refused(with("--url nonsense"), &["nonsense", "http://HOST:PORT/PATH"]);
    assert_refused(with("--url gopher://127.0.0.1/"), &["gopher://127.0.0.1/"]);
    assert_refused(with(&format!("--url {url} --paths {absent}")), &[absent]);
    assert_refused(
        with(&format!("--url {url} --connections 0")),
        &["connections", "0"],
    );
    assert_refused(
        with(&format!("--url {url} --timeout-ms nan")),
        &["timeout", "NaN"],
    );
    assert_refused(with(&format!("--url {url} --step 0")), &["step"]);
    assert_refused(with(&format!("--url {url} --scale=-1")), &["-1"]);
    for bad in ["nan", "0", "inf", "soon"] {
        refused(
            with(&format!("--url {url} --duration {bad}")),
            &["--duration", bad],
        );
    }
    assert!(nobody_is_asked.accept().is_err(), "nothing was sent anywhere");
}

#[test]
fn a_gateway_that_cannot_be_is_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let backend = "http://127.0.0.1:9";
    let gateway = |words: &str| headroom(format!("gateway --listen {words}"));
    let free = format!("127.0.0.1:{}", free_port());
    assert_refused(
        gateway(&format!("{taken} --backend {backend}")),
        &[&taken, "in use"],
    );
    assert_refused(
        gateway(&format!("{free} --backend ftp://127.0.0.1:9")),
        &["ftp://127.0.0.1:9"],
    );
    assert_refused(
        gateway(&format!("{free} --backend http://[::1")),
        &["http://[::1"],
    );
    assert_refused(
        gateway(&format!("{free} --backend {backend} --threads 1000")),
        &["threads", "1000"],
    );
    assert_refused(
        gateway(&format!("{free} --backend {backend} --health up")),
        &["health", "up"],
    );
    let tls = "--tls-listen 127.0.0.1:0 --tls-cert /no/chain.pem --tls-key /no/key.pem";
    assert_refused(
        gateway(&format!("{free} --backend {backend} {tls}")),
        &["/no/chain.pem"],
    );
    for bad in ["nan", "-1", "later"] {
        refused(
            gateway(&format!("{free} --backend {backend} --drain={bad}")),
            &["--drain", bad],
        );
    }
    // Half of what TLS needs.
    refused(
        gateway(&format!("{free} --backend {backend} --tls-cert chain.pem")),
        &["--tls-listen"],
    );
}

#[test]
fn a_service_a_trace_and_a_demo_that_cannot_be_are_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let wiki = |words: &str| headroom(format!("service wiki --listen {words}"));
    assert_refused(wiki(&taken), &[&taken, "free port"]);
    assert_refused(wiki("127.0.0.1:0 --workers 0"), &["workers", "0"]);
    assert_refused(wiki("127.0.0.1:0 --page-cpu-ms nan"), &["NaN"]);

    assert_refused(headroom("trace wikipedia --length 0"), &[]);
    assert_refused(headroom("trace azure --length 18446744073709551615"), &[]);

    let folder = tempfile::tempdir().unwrap();
    let word = folder.path().join("trace.txt");
    fs::write(&word, "1\nword\n").unwrap();
    let demo = |words: &str, said: &[&str]| {
        let mut command = headroom(format!("demo --no-view {words}"));
        let outcome = assert_refused(command.current_dir(folder.path()), said);
        assert!(!exists_anywhere(&format!("headroom-demo-{}", outcome.pid())));
        assert!(!folder.path().join("out").exists(), "{words} wrote a record");
    };
    demo("--duration 5", &["--duration 5", "30 s"]);
    demo("--duration nan", &["--duration NaN"]);
    demo("--hardware real", &["--hardware", "--single"]);
    demo("--percentile 100", &["100"]);
    demo("--target-ms 0", &["0"]);
    demo(&format!("--trace {}", word.to_str().unwrap()), &[":2", "word"]);
    if root_or_skipped("the demo") {
        let run_dir = folder.path().join("run");
        let run_dir = run_dir.to_str().unwrap();
        demo(&format!("--cores 1000 --run-dir {run_dir}"), &["--cores 1000"]);
        demo(
            &format!("--single --cores 1000 --run-dir {run_dir}"),
            &["--cores 1000"],
        );
        demo(&format!("--cores 0 --run-dir {run_dir}"), &["0"]);
        demo(&format!("--cores nan --run-dir {run_dir}"), &["NaN"]);
    }
    refused(headroom("demo --laws fixed,best"), &["best", "slo-power"]);
    demo(
        "--laws fixed,hpa,joint",
        &["two different laws", "are 3", "--single"],
    );
    demo("--laws joint,joint", &["two different laws"]);
}
