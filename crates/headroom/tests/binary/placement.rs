//! The law `placement` live: emulated machines of two kinds behind a gateway that is a process of its own, placed on by a controller that
//! has no node to command.

use crate::common::{
    Config, Gateway, Group, PATIENCE, Program, assert_has, get, headroom, metrics_at, number, openmetrics,
    run, succeeds, until, wait, within,
};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// So slow that what the gateway and this host take beside it hardly counts.
const SPEED: f64 = 0.01;
const SMALL: &str = "up to 16384 bytes";
const LARGE: &str = "over 16384 bytes";

/// An emulated machine.
struct Machine {
    program: Program,
    address: SocketAddr,
}

impl Machine {
    fn start(kind: &str, listen: &str) -> Self {
        Self::start_with(kind, listen, &[])
    }

    fn start_with(kind: &str, listen: &str, more: &[&OsStr]) -> Self {
        let words = format!("service machine --kind {kind} --speed {SPEED} --listen {listen}");
        let mut program = Program::start(headroom(words).args(more));
        let address = program.said("listening on ").parse().unwrap();
        Self { program, address }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Requests that it has answered.
    fn completed(&self) -> u64 {
        let answer = get(self.address, "/machine").unwrap();
        let said: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(said["source"], "emulated");
        said["completed"].as_u64().unwrap()
    }
}

/// Clients that ask for one path again and again, with a pause.
struct Clients {
    answered: Arc<AtomicU64>,
    wrong: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    fn new(address: SocketAddr, path: &'static str, clients: usize, pause: Duration) -> Self {
        let (answered, wrong, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(Mutex::new(Vec::new())),
            Arc::new(AtomicBool::new(false)),
        );
        let client = |number: usize| {
            // One after another, so that they do not all ask at once for ever.
            let first = pause.mul_f64(number as f64 / clients as f64);
            let (answered, wrong, stop) = (Arc::clone(&answered), Arc::clone(&wrong), Arc::clone(&stop));
            std::thread::spawn(move || {
                std::thread::sleep(first);
                while !stop.load(Ordering::Relaxed) {
                    match get(address, path) {
                        Ok(answer) if answer.status == 200 => {
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                        other => wrong.lock().unwrap().push(format!("{other:?}")),
                    }
                    std::thread::sleep(pause);
                }
            })
        };
        let threads = (0..clients).map(client).collect();
        Self {
            answered,
            wrong,
            stop,
            threads,
        }
    }

    /// What came instead of answers.
    fn wrong(&self) -> Vec<String> {
        self.wrong.lock().unwrap().clone()
    }

    fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// What `headroom place --law` prints for an Atom and an Arm, at these addresses and this share of their speed.
fn law(machines: &BTreeMap<&str, String>) -> String {
    let mut program = run(headroom(
        "place --fleet atom=1 --fleet arm=1 --slo P95=2500ms --law",
    ));
    program.succeeds();
    let scaled = |line: &str| {
        let Some((key, value)) = line.split_once(" = ") else {
            return line.to_owned();
        };
        let by = match key {
            "link_bytes_per_s" => SPEED,
            "request_us" | "kilobyte_us" => 1.0 / SPEED,
            _ => return line.to_owned(),
        };
        format!("{key} = {}", value.parse::<f64>().unwrap() * by)
    };
    let mut text: String = program
        .out()
        .lines()
        .map(|line| format!("{}\n", scaled(line)))
        .collect();
    for (kind, url) in machines {
        let example = format!("http://{kind}-1:80");
        assert_has(&text, &[&example]);
        text = text.replace(&example, url);
    }
    text
}

/// A controller without nodes that places on the machines of this law's tables.
fn placing(gateway: &Gateway, law: &str) -> Config {
    Config::controller(&[], &gateway.control(), 2_000)
        .with("[nodes]\n\n", "")
        .with("target_ms = 250", "target_ms = 2500")
        .with("requests_per_core_s = 400\n", "")
        .with("period_ms = 200", "period_ms = 500")
        .with(
            "name = \"slo-power\"\n",
            &format!("name = \"placement\"\n\n[law.placement]\npath_ms = 5\n\n{law}"),
        )
}

/// Requests so far by backend and class.
fn sent(admin: SocketAddr) -> BTreeMap<(String, String), f64> {
    let exposed = openmetrics::parse(&get(admin, "/metrics").unwrap().body).unwrap();
    exposed
        .of("headroom_backend_size_requests_total")
        .map(|sample| {
            let label = |name: &str| sample.labels[name].clone();
            ((label("backend"), label("size")), sample.value)
        })
        .collect()
}

/// Waits until of some requests of a class nearly all go to one machine, counted anew each time.
#[track_caller]
fn goes_to(admin: SocketAddr, class: &str, machine: &Machine, at_least: f64) {
    let by = |counts: &BTreeMap<(String, String), f64>| {
        let of_class = counts.iter().filter(|((_, size), _)| size == class);
        of_class.fold((0.0, 0.0), |(there, all), ((url, _), count)| {
            match *url == machine.url() {
                true => (there + count, all + count),
                false => (there, all + count),
            }
        })
    };
    let mut share = f64::NAN;
    let reached = within(PATIENCE, || {
        let before = by(&sent(admin));
        let after = within(PATIENCE, || {
            let now = by(&sent(admin));
            (now.1 >= before.1 + at_least).then_some(now)
        })?;
        share = (after.0 - before.0) / (after.1 - before.1);
        (share >= 0.85).then_some(())
    });
    assert!(reached.is_some(), "{share} of {class} go to {}", machine.url());
}

#[test]
fn each_size_goes_to_the_machine_that_serves_it_for_fewer_joules() {
    let atom = Machine::start("atom", "127.0.0.1:0");
    let mut arm = Machine::start("arm", "127.0.0.1:0");
    let words = "--size-bounds 16384 --balance least-connections --target-ms 2500";
    let gateway = Gateway::checked_at("/machine", &[atom.address, arm.address], words);
    let urls = BTreeMap::from([("atom", atom.url()), ("arm", arm.url())]);
    let law = law(&urls);
    // The Arm's own figures say which is cheaper: 0.9 mJ to 1.3 for 1 KB, 8 mJ to 5 for 100 KB.
    let config = placing(&gateway, &law);
    let mut controller = Program::start(config.command());
    let admin = metrics_at(&mut controller);

    let small = Clients::new(gateway.address, "/1KB", 4, Duration::from_millis(250));
    let large = Clients::new(gateway.address, "/100KB", 1, Duration::from_millis(250));
    goes_to(admin, SMALL, &arm, 30.0);
    goes_to(admin, LARGE, &atom, 5.0);
    let status = get(admin, "/status").unwrap().body;
    assert_has(&status, &["\"placement\":1.0", "\"nodes\":[]"]);

    // Only what the killed machine was serving can fail, a request of each client at most: on a connection of its own no gateway knows
    // that it may be sent again. Whoever asks from then on is answered by the other.
    arm.program.kill();
    goes_to(admin, SMALL, &atom, 20.0);
    let lost = [small.wrong(), large.wrong()].concat();
    assert!(
        lost.len() <= 5 && lost.iter().all(|one| one.contains("status: 502")),
        "as a machine was killed: {lost:?}"
    );
    arm = Machine::start("arm", &arm.address.to_string());
    goes_to(admin, SMALL, &arm, 30.0);

    // Without the controller the gateway serves on, and its lease ends: to each goes what it has the fewest of.
    drop(large);
    controller.stop();
    assert_has(controller.out(), &["\"placed\""]);
    let shared = until("both machines serve small answers", || {
        let before = (atom.completed(), arm.completed(), small.answered());
        wait("requests flow", || small.answered() >= before.2 + 40);
        let (on_atom, on_arm) = (atom.completed() - before.0, arm.completed() - before.1);
        (on_atom >= 8 && on_arm >= 8).then_some(on_atom + on_arm)
    });
    assert!(shared >= 40, "{shared}");
    assert!(small.wrong().len() <= lost.len(), "{:?}", small.wrong());
}

/// A machine that accepts and never answers is seen by no health check here, and no latency says so.
#[test]
fn a_machine_that_stands_still_holds_few_requests_and_has_its_class_again_when_it_goes_on() {
    let atom = Machine::start("atom", "127.0.0.1:0");
    let arm = Machine::start("arm", "127.0.0.1:0");
    let words = "--size-bounds 16384 --balance least-connections --target-ms 2500";
    let gateway = Gateway::unchecked(&[atom.address, arm.address], words);
    let urls = BTreeMap::from([("atom", atom.url()), ("arm", arm.url())]);
    let config = placing(&gateway, &law(&urls));
    let mut controller = Program::start(config.command());
    let admin = metrics_at(&mut controller);
    // More clients than can be stuck on the Arm, which are as many as it has cores and some: else nobody would be left to ask.
    let clients = Clients::new(gateway.address, "/1KB", 40, Duration::from_millis(2_000));
    goes_to(admin, SMALL, &arm, 30.0);

    arm.program.signal(Signal::STOP);
    goes_to(admin, SMALL, &atom, 60.0);
    wait("the controller says of which it is", || {
        let status = get(admin, "/status").unwrap().body;
        status.contains(&format!("{} answered none", arm.url()))
    });
    let before = clients.answered();
    wait("the others are answered", || clients.answered() >= before + 60);

    arm.program.signal(Signal::CONT);
    goes_to(admin, SMALL, &arm, 30.0);
    // Those that its bound let it have, which it kept for longer than the gateway waits, or ones on trial.
    let wrong = clients.wrong();
    assert!(wrong.len() <= 12, "{} of 40 clients: {wrong:?}", wrong.len());
}

/// The figures that a tree of an emulated machine has reach a profile through an agent, and are called what they are.
#[test]
fn an_emulated_machine_is_profiled_through_an_agent() {
    let Some(group) = Group::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (tree, socket) = (folder.path().join("arm"), folder.path().join("agent.sock"));
    let arm = Machine::start_with("arm", "127.0.0.1:0", &["--files".as_ref(), tree.as_os_str()]);
    group.add(arm.program.pid());
    let config = folder.path().join("agent.toml");
    let text = format!(
        "[agent]\nlisten = [\"unix:{}\"]\n[service]\ncgroup = \"{}\"\n",
        socket.display(),
        group.path()
    );
    fs::write(&config, text).unwrap();
    let mut command = headroom("agent --config");
    command
        .arg(&config)
        .arg("--run-dir")
        .arg(folder.path().join("run"));
    command
        .arg("--sys")
        .arg(tree.join("sys"))
        .arg("--proc")
        .arg(tree.join("proc"));
    let mut agent = Program::start(command);
    agent.said("listening on ");
    let words =
        "profile --json --sizes 10KB --densities 100 --concurrency 4 --window 1 --within 12s --no-baselines";
    let mut command = headroom(words);
    command.arg("--url").arg(arm.url() + "/{size}");
    command.arg("--agent").arg(format!("unix:{}", socket.display()));
    command.arg("--out").arg(folder.path().join("profile.json"));
    command.arg("--report").arg(folder.path().join("profile.html"));
    let profile = succeeds(command).json();
    assert_eq!(profile["meter"]["source"], "emulated", "{profile}");
    let name = profile["meter"]["name"].as_str().unwrap();
    assert!(name.contains("RAPL"), "{name}");
    // What it draws idle is known from the first window on.
    let idle = number(&profile["baselines"][0], "power_w");
    assert!((3.0..8.0).contains(&idle), "{idle}");
    agent.stop();
}
