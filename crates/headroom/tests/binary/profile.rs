//! `headroom profile`: a grid on real servers, what of it is marked and why, and what becomes of one that is interrupted.

use super::common::{
    Program, assert_has, command, free_port, headroom, program_or_skipped, refused, run, signal, succeeds,
    until,
};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// A server that answers `/N` with N bytes, but for what it is told to do wrong.
struct Sizes {
    address: SocketAddr,
}

#[derive(Clone, Copy, Default)]
struct Wrong {
    /// This size is answered with a byte less.
    short: u64,
    /// While more requests than this are answered, others get a 503.
    busy_from: usize,
    /// It serves one request at a time, so long each.
    one_at_a_time: Option<Duration>,
}

/// What the threads of a server share.
#[derive(Default)]
struct Inside {
    at_once: AtomicUsize,
    turn: Mutex<()>,
}

impl Sizes {
    fn start(wrong: Wrong) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let inside = Arc::new(Inside::default());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, inside) = (stream.unwrap(), Arc::clone(&inside));
                std::thread::spawn(move || serve(&stream, wrong, &inside));
            }
        });
        Self { address }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

fn serve(mut stream: &TcpStream, wrong: Wrong, inside: &Inside) {
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(first)) = lines.next() {
        let size: u64 = first
            .split(['/', ' '])
            .nth(2)
            .and_then(|size| size.parse().ok())
            .unwrap_or(0);
        while lines
            .next()
            .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
        {}
        let before = inside.at_once.fetch_add(1, Ordering::SeqCst);
        let answer = match wrong.busy_from {
            most if most > 0 && before >= most => {
                b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec()
            }
            _ => {
                let length = size - u64::from(size == wrong.short);
                let mut answer =
                    format!("HTTP/1.1 200 OK\r\nServer: sizes/1\r\nContent-Length: {length}\r\n\r\n")
                        .into_bytes();
                answer.resize(answer.len() + length as usize, b'x');
                answer
            }
        };
        if wrong.busy_from > 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Some(each) = wrong.one_at_a_time {
            let _turn = inside.turn.lock().unwrap();
            std::thread::sleep(each);
        }
        inside.at_once.fetch_sub(1, Ordering::SeqCst);
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
}

/// A folder with what a profile writes.
struct Written(TempDir);

impl Written {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, words: &str) -> std::process::Command {
        let (out, report) = (self.file("p.json"), self.file("p.html"));
        headroom(format!(
            "profile --out {} --report {} --no-baselines --meter model --concurrency 8 {words}",
            out.display(),
            report.display()
        ))
    }

    fn profile(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.file("p.json")).unwrap()).unwrap()
    }
}

fn cell(profile: &Value, size: u64, density: f64) -> &Value {
    let cells = profile["cells"].as_array().unwrap();
    let found = cells
        .iter()
        .find(|cell| cell["size_bytes"] == size && cell["density"].as_f64() == Some(density));
    found.unwrap_or_else(|| panic!("no cell of {size} bytes at {density}: {profile}"))
}

fn marks(cell: &Value) -> Vec<&str> {
    let marks = cell["marks"].as_array().map_or(&[][..], Vec::as_slice);
    marks.iter().filter_map(Value::as_str).collect()
}

fn windows(cell: &Value) -> &[Value] {
    cell["windows"].as_array().unwrap()
}

fn sum(cell: &Value, key: &str) -> f64 {
    windows(cell)
        .iter()
        .filter_map(|window| window[key].as_f64())
        .sum()
}

#[test]
fn a_grid_says_what_was_served_at_which_watts_and_goes_on_where_it_ended() {
    let (server, written) = (Sizes::start(Wrong::default()), Written::new());
    let words = format!(
        "--url {} --sizes 1KB,64KB --densities 100,50 --window 0.5 --precision 50 --json",
        server.url()
    );
    let done = succeeds(written.command(&words));
    let profile = done.json();
    assert_eq!(profile["schema"], "headroom-profile/1");
    assert_eq!(profile["service"]["software"], "sizes/1");
    assert_eq!(profile["meter"]["source"], "estimated", "{profile}");
    assert_eq!(profile["client_is_local"], true);
    for (size, density) in [(1024, 1.0), (1024, 0.5), (65_536, 1.0), (65_536, 0.5)] {
        let cell = cell(&profile, size, density);
        assert!(windows(cell).len() >= 5, "{cell}");
        assert_eq!(sum(cell, "content_bytes"), size as f64 * sum(cell, "completed"));
        assert!(sum(cell, "power_w") > 0.0 && sum(cell, "failed") == 0.0, "{cell}");
        for window in windows(cell) {
            let share = window["sending_share"].as_f64().unwrap();
            // The window ends with the answers that were outstanding: about the density or more (on a busy machine its end is seen late), and
            // never all where there is a pause.
            assert!(
                share >= density * 0.5 && (density == 1.0 || share < 1.0),
                "{window}"
            );
        }
    }
    // Half of the time, about half as many: a wide margin for a busy machine.
    let rate = |density| {
        let cell = cell(&profile, 1024, density);
        sum(cell, "completed") / sum(cell, "length_s")
    };
    let ratio = rate(0.5) / rate(1.0);
    assert!((0.25..0.9).contains(&ratio), "{ratio}");
    assert!(
        fs::read_to_string(written.file("p.html"))
            .unwrap()
            .contains("KB/s/W")
    );
    // The same command finds nothing left to do, and keeps all.
    let again = succeeds(written.command(&words));
    assert_has(again.err(), &["goes on after"]);
    assert_eq!(again.json()["cells"], profile["cells"]);
    assert_has(again.json()["notes"].to_string(), &["it went on after", "by `"]);
    refused(
        written.command(&format!("{words} --name other")),
        &["p.json", "it is called"],
    );
    // Its report is not written over it.
    let over = format!("profile compare {0} --out {0}", written.file("p.json").display());
    refused(headroom(over), &["p.json", "something else than a report"]);
    assert_eq!(written.profile()["cells"], profile["cells"]);
    let far = format!(
        "profile --url {} --far-end 127.0.0.1:{} --meter model --out {}",
        server.url(),
        free_port(),
        written.file("far.json").display()
    );
    refused(headroom(far), &["--far-end 127.0.0.1:", "far-end --listen"]);
    // Another plan is another measurement.
    refused(
        written.command(&format!("{words} --seed 2")),
        &["p.json", "not of the same: the plan", "--fresh"],
    );
    succeeds(written.command(&format!("{words} --seed 2 --fresh --within 3s")));
}

#[test]
fn a_queue_that_drains_after_the_sending_makes_no_server_seem_quicker() {
    let each = Duration::from_millis(16);
    let server = Sizes::start(Wrong {
        one_at_a_time: Some(each),
        ..Wrong::default()
    });
    let done = succeeds(Written::new().command(&format!(
        "--url {} --sizes 1KB --densities 50 --window 0.5 --within 4s --json",
        server.url()
    )));
    let profile = done.json();
    let cell = cell(&profile, 1024, 0.5);
    for window in windows(cell) {
        let of = |key: &str| window[key].as_f64().unwrap();
        // While 0.25 s are sent, 8 connections wait for 0.128 s of work: 20 % too much where sending time is the connections' mean.
        let served_per_s = of("completed") / (of("length_s") * of("sending_share"));
        assert!(of("completed") > 0.0, "{window}");
        assert!(
            served_per_s <= 1.02 / each.as_secs_f64(),
            "{served_per_s} a second: {window}"
        );
    }
}

#[test]
fn what_a_server_does_wrong_marks_its_cell_and_the_rest_stands() {
    let written = Written::new();
    let short = Sizes::start(Wrong {
        short: 2048,
        ..Wrong::default()
    });
    let words = format!(
        "--url {} --sizes 1KB,2KB --densities 100 --window 0.5 --precision 50 --json",
        short.url()
    );
    let done = succeeds(written.command(&words));
    assert_has(
        done.err(),
        &["/2048 answers with 2047 bytes instead of 2048", "will be marked"],
    );
    let profile = done.json();
    let (good, bad) = (cell(&profile, 1024, 1.0), cell(&profile, 2048, 1.0));
    assert!(
        sum(good, "completed") > 0.0 && !marks(good).contains(&"wrong-size"),
        "{good}"
    );
    assert_eq!(
        (sum(bad, "completed"), sum(bad, "failed")),
        (0.0, sum(bad, "wrong_size")),
        "{bad}"
    );
    assert!(
        marks(bad).contains(&"wrong-size") && marks(bad).contains(&"nothing"),
        "{bad}"
    );
    // As an outage may end, it is tried again after the other cell.
    assert_eq!(windows(bad).len(), 10, "it is given up");

    let (busy, written) = (
        Sizes::start(Wrong {
            busy_from: 2,
            ..Wrong::default()
        }),
        Written::new(),
    );
    let done = succeeds(written.command(&format!(
        "--url {} --sizes 1KB --densities 100 --window 0.5 --within 4s --json",
        busy.url()
    )));
    let profile = done.json();
    let cell = cell(&profile, 1024, 1.0);
    assert!(
        marks(cell).contains(&"failing") && sum(cell, "completed") > 0.0,
        "{cell}"
    );
    let notes = profile["notes"].to_string();
    assert_has(
        &notes,
        &["1 KB at 100 %: requests failed: answered with an error"],
    );
}

#[test]
fn an_interrupted_profile_keeps_whole_windows_and_goes_on() {
    let (server, written) = (Sizes::start(Wrong::default()), Written::new());
    let words = format!(
        "--url {} --sizes 1KB --densities 100,25 --window 0.5 --precision 50",
        server.url()
    );
    let mut first = Program::start(written.command(&words));
    let kept = until("a window is kept", || {
        let text = fs::read_to_string(written.file("p.json")).ok()?;
        let profile: Value = serde_json::from_str(&text).ok()?;
        let cells = profile["cells"].as_array()?;
        cells
            .iter()
            .any(|cell| !windows(cell).is_empty())
            .then_some(profile)
    });
    signal(first.pid(), Signal::INT);
    let status = until("it ends", || first.ended());
    assert!(status.success(), "{}", first.err());
    assert_has(first.err(), &["the same command goes on"]);
    let before = written.profile();
    for (one, two) in before["cells"]
        .as_array()
        .unwrap()
        .iter()
        .zip(kept["cells"].as_array().unwrap())
    {
        assert!(windows(one).len() >= windows(two).len());
        assert!(
            windows(one)
                .iter()
                .all(|window| window["length_s"].as_f64().unwrap() > 0.4),
            "{one}"
        );
    }
    let second = succeeds(written.command(&words));
    assert_has(second.err(), &["goes on after"]);
    let after = written.profile();
    for (one, two) in before["cells"]
        .as_array()
        .unwrap()
        .iter()
        .zip(after["cells"].as_array().unwrap())
    {
        assert_eq!(
            windows(one),
            &windows(two)[..windows(one).len()],
            "what was measured stays"
        );
        assert!(windows(two).len() >= 5, "{two}");
    }
}

/// A tree with a RAPL counter that a thread drives, until it is taken away.
struct Hardware {
    dir: TempDir,
    energy: PathBuf,
    over: Arc<AtomicBool>,
}

impl Hardware {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let file = dir.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, text).unwrap();
            file
        };
        put("sys/headroom-testbed/emulated", "");
        put("sys/devices/system/cpu/online", "0-1\n");
        let zone = "sys/class/powercap/intel-rapl:0";
        put(&format!("{zone}/name"), "package-0\n");
        put(&format!("{zone}/max_energy_range_uj"), "262143328850\n");
        let energy = put(&format!("{zone}/energy_uj"), "1000000\n");
        put("proc/cpuinfo", "model name\t: Test 9000\n");
        put(
            "proc/net/dev",
            "Inter-|\n face |\n  lo: 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0\n",
        );
        let stat = put("proc/stat", "cpu  0 0 0 0 0 0 0 0 0 0\n");
        let over = Arc::new(AtomicBool::new(false));
        let (stop, file, ticks) = (Arc::clone(&over), energy.clone(), AtomicU64::new(0));
        std::thread::spawn(move || {
            // 40 W: 0.4 J each 10 ms, and a core busy.
            while !stop.load(Ordering::SeqCst) {
                let tick = ticks.fetch_add(1, Ordering::SeqCst);
                replace(&file, &format!("{}\n", 1_000_000 + tick * 400_000));
                replace(&stat, &format!("cpu  {tick} 0 0 {tick} 0 0 0 0 0 0\n"));
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Self { dir, energy, over }
    }

    fn trees(&self) -> String {
        let at = |name: &str| self.dir.path().join(name).display().to_string();
        format!("--sys {} --proc {}", at("sys"), at("proc"))
    }

    fn take_the_meter_away(&self) {
        self.over.store(true, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(50));
        fs::remove_file(&self.energy).unwrap();
    }
}

/// Whole or not at all, as the kernel's files are.
fn replace(file: &Path, text: &str) {
    let beside = file.with_extension("new");
    if fs::write(&beside, text).is_ok() {
        let _ = fs::rename(&beside, file);
    }
}

impl Drop for Hardware {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_meter_that_vanishes_marks_its_windows_and_throughput_stands() {
    let (server, hardware, written) = (Sizes::start(Wrong::default()), Hardware::start(), Written::new());
    let (out, report) = (written.file("p.json"), written.file("p.html"));
    let mut program = Program::start(headroom(format!(
        "profile --out {} --report {} --url {} --sizes 1KB --densities 100 --window 0.5 --precision 0.1 --within 8s --no-baselines \
         --concurrency 8 --meter rapl {}",
        out.display(),
        report.display(),
        server.url(),
        hardware.trees()
    )));
    until("some windows have watts", || {
        let profile: Value = serde_json::from_str(&fs::read_to_string(&out).ok()?).ok()?;
        (windows(&profile["cells"][0]).len() >= 3).then_some(())
    });
    hardware.take_the_meter_away();
    let status = until("it ends", || program.ended());
    assert!(status.success(), "{}", program.err());
    let profile = written.profile();
    assert_eq!(profile["meter"]["source"], "emulated");
    assert_eq!(profile["machine"]["processor"], "Test 9000");
    let cell = cell(&profile, 1024, 1.0);
    let with = windows(cell)
        .iter()
        .filter(|window| window["power_w"].is_number())
        .count();
    assert!((3..windows(cell).len()).contains(&with), "{cell}");
    assert!(marks(cell).contains(&"power-missing"), "{cell}");
    assert!(
        windows(cell)
            .iter()
            .all(|window| window["completed"].as_u64().unwrap() > 0)
    );
    assert_has(program.out(), &["the meter did not answer in every window"]);
}

#[test]
fn a_memcached_is_filled_and_asked_for_values_of_each_size() {
    if !program_or_skipped("memcached -V", "Debian: memcached") {
        return;
    }
    let (port, written) = (free_port(), Written::new());
    let mut memcached = command(format!("memcached -l 127.0.0.1 -p {port} -u nobody -m 64"));
    let _memcached = Program::start(&mut memcached);
    let url = format!("memcached://127.0.0.1:{port}");
    until("memcached listens", || {
        TcpStream::connect(("127.0.0.1", port)).ok()
    });
    let done = succeeds(written.command(&format!(
        "--url {url} --sizes 1KB,999KB --densities 100,25 --sets 0.2 --window 0.5 --precision 50 --json"
    )));
    let profile = done.json();
    assert_has(
        profile["service"]["software"].as_str().unwrap(),
        &["memcached 1."],
    );
    for (size, density) in [(1024, 1.0), (1024, 0.25), (999 * 1024, 1.0), (999 * 1024, 0.25)] {
        let cell = cell(&profile, size, density);
        assert!(
            sum(cell, "completed") > 0.0 && sum(cell, "wrong_size") == 0.0,
            "{cell}"
        );
    }
    refused(
        written.command(&format!("--url http://127.0.0.1:{port} --sets 0.2")),
        &["--sets is of memcached"],
    );
}

#[test]
fn profiles_are_compared_and_what_is_none_is_refused() {
    let (server, written) = (Sizes::start(Wrong::default()), Written::new());
    let words = format!(
        "--url {} --sizes 1KB --densities 100 --window 0.5 --precision 50",
        server.url()
    );
    let profile = |name: &str| {
        let out = written.file(&format!("{name}.json"));
        succeeds(headroom(format!(
            "profile {words} --name {name} --out {} --report {} --no-baselines --meter model --concurrency 8",
            out.display(),
            written.file("x.html").display()
        )));
        out.display().to_string()
    };
    let (one, two) = (profile("one"), profile("two"));
    let page = written.file("both.html");
    let compared = succeeds(headroom(format!(
        "profile compare {one} {two} --out {}",
        page.display()
    )));
    assert_has(
        compared.out(),
        &["one", "two", "KB/s/W by density", "Whether the two agree"],
    );
    assert!(
        fs::read_to_string(&page).unwrap().contains("<svg"),
        "it has plots"
    );
    let told = succeeds(headroom(format!(
        "profile compare {one} {two} --out {} --json",
        page.display()
    )))
    .json();
    assert_eq!(told["schema"], "headroom-profile-comparison/1");
    assert!(told["agreement"]["agree"].is_boolean(), "{told}");
    let rows = told["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert!(
        rows[0]["throughput_per_power"]["mean"].as_f64().unwrap() > 0.0,
        "{told}"
    );
    let none = written.file("none.json");
    fs::write(&none, "{}").unwrap();
    refused(
        headroom(format!("profile compare {one} {}", none.display())),
        &["none.json", "is no profile"],
    );
}

#[test]
fn what_cannot_be_profiled_is_said_with_the_remedy() {
    let written = Written::new();
    let nobody = free_port();
    let says = |words: &str, parts: &[&str]| {
        refused(written.command(words), parts);
    };
    says(
        &format!("--url http://127.0.0.1:{nobody}"),
        &["does not answer", "start the service"],
    );
    says("--url ftp://x/", &["is of ftp", "memcached://HOST"]);
    says("--url http://127.0.0.1 --sizes 0", &["is no size"]);
    says("--url http://127.0.0.1 --densities 0", &["1 to 100 percent"]);
    let help = run(headroom("profile --help"));
    assert_has(
        help.out(),
        &[
            "headroom profile compare",
            "--write-files",
            "--far-end",
            "goes on by the same command",
        ],
    );
}

#[test]
fn what_would_fail_later_is_said_before_anything_is_measured() {
    let (server, written) = (Sizes::start(Wrong::default()), Written::new());
    let plain = written.file("plain");
    fs::write(&plain, "").unwrap();
    let shell = |limits: &str, words: &str| {
        let line = format!(
            "{limits} exec {} profile --url {} --no-baselines --meter model --sizes 1KB {words}",
            env!("CARGO_BIN_EXE_headroom"),
            server.url()
        );
        let mut command = std::process::Command::new("sh");
        command.env_remove("RUST_LOG").args(["-c", &line]);
        command
    };
    // Folders that cannot be: a file is in the way, which stops root too.
    let inside = plain.join("p.json").display().to_string();
    refused(
        shell("", &format!("--out {inside}")),
        &[&inside, "cannot be written"],
    );
    let out = written.file("p.json").display().to_string();
    refused(
        shell("ulimit -n 64 &&", &format!("--out {out} --concurrency 100")),
        &["may open only 64 files", "ulimit -n"],
    );
    assert!(!written.file("p.json").exists());
}

#[test]
fn the_far_end_keeps_cores_busy_and_fills_a_link_for_those_that_ask() {
    let mut far = Program::start(headroom("profile far-end --listen 127.0.0.1:0"));
    let address: SocketAddr = far.said("listening on ").trim().parse().unwrap();
    let ask = |line: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(line.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        let _ = std::io::Read::read_to_end(&mut stream, &mut bytes);
        bytes
    };
    assert!(ask("stream 0.2\n").len() > 100_000);
    assert_eq!(ask("cores 0.2\n"), b"done\n");
    assert!(ask("cores 9999\n").is_empty() && ask("rm -rf\n").is_empty());
    let (server, written) = (Sizes::start(Wrong::default()), Written::new());
    let done = succeeds(headroom(format!(
        "profile --out {} --report {} --url {} --far-end {address} --sizes 1KB --densities 100 --window 0.5 --precision 50 \
         --meter model --concurrency 8 --json",
        written.file("p.json").display(),
        written.file("p.html").display(),
        server.url()
    )));
    let profile = done.json();
    let baselines = profile["baselines"].as_array().unwrap();
    let kinds: Vec<&str> = baselines.iter().filter_map(|one| one["kind"].as_str()).collect();
    assert_eq!(kinds, ["idle", "cores", "network"]);
    let watts = |at: usize| baselines[at]["power_w"].as_f64().unwrap();
    // On a machine that is busy with other tests nothing is idle: which draws more is for a quiet one.
    assert!((0..3).all(|at| watts(at) > 0.0), "{profile}");
    assert!(
        baselines[2]["link_bytes_per_s"].as_f64().unwrap() > 1e6,
        "{profile}"
    );
}
