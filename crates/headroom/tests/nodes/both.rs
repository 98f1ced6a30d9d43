//! One controller that holds the cores and caps of three emulated machines and switches them on and off, in one run.

use crate::common::{
    Emulator, Gateway, Load, Program, assert_has, fuse_or_skipped, get, headroom, metrics_at, refused,
    succeeds, until, wait,
};
use crate::parts::status;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What one server takes, as the law is told.
const CAPACITY_PER_S: u64 = 30;

/// An emulated machine: its hardware, and scripts that boot and stop what runs on it, a wiki and an agent.
pub struct Machine {
    name: String,
    dir: PathBuf,
    pub wiki: SocketAddr,
    _hardware: Emulator,
}

impl Machine {
    /// One in this folder, whose control group has this name.
    pub fn named(group: &str, number: usize, dir: &Path) -> Self {
        let name = format!("n{number}");
        let dir = dir.join(&name);
        fs::create_dir(&dir).unwrap();
        let hardware = Emulator::start(&dir, &format!("{group}-{number}"), 0.3);
        // Free until it is booted; nobody else is given it meanwhile.
        let wiki = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (here, program) = (dir.display(), env!("CARGO_BIN_EXE_headroom"));
        // A boot takes a moment. What runs in the group is what the machine's power is of.
        let boot = format!(
            "sleep 0.3\n\
             {program} service wiki --page-cpu-ms 1 --listen {wiki} > {here}/wiki.log 2>&1 &\n\
             echo $! > {here}/wiki.pid\n\
             echo $! > {here}/sys/fs/cgroup/web/cgroup.procs\n\
             {program} agent --cgroup /web --listen unix:{here}/agent.sock --run-dir {here}/run \
             --sys {here}/sys --proc {here}/sys/headroom-testbed/proc > {here}/agent.log 2>&1 &\n\
             echo $! > {here}/agent.pid\n"
        );
        fs::write(dir.join("boot"), boot).unwrap();
        let stop = format!(
            "kill $(cat {here}/agent.pid) $(cat {here}/wiki.pid)\n\
             while kill -0 $(cat {here}/agent.pid) 2>/dev/null; do sleep 0.05; done\n"
        );
        fs::write(dir.join("stop"), stop).unwrap();
        Self {
            name,
            dir,
            wiki,
            _hardware: hardware,
        }
    }

    pub fn runs(&self) -> bool {
        TcpStream::connect(self.wiki).is_ok()
    }

    pub fn boot(&self) {
        let booted = Command::new("/bin/sh").arg(self.dir.join("boot")).status();
        assert!(booted.unwrap().success());
        wait("the machine is up", || {
            self.runs() && self.dir.join("agent.sock").exists()
        });
    }

    pub fn section(&self) -> String {
        let here = self.dir.display();
        let shell = |script: String| json!(["/bin/sh", "-c", script]).to_string();
        format!(
            "[nodes.{}]\nagent = \"unix:{here}/agent.sock\"\nmember = \"http://{wiki}\"\ncheck = \"tcp:{wiki}\"\n\
             power = {{ kind = \"command\", start = {}, stop = {}, state = {}, limit_s = 5.0 }}\n",
            self.name,
            shell(format!("/bin/sh {here}/boot")),
            shell(format!("/bin/sh {here}/stop")),
            shell(format!(
                "grep -qs '^State:.[RSDT]' /proc/$(cat {here}/wiki.pid 2>/dev/null || echo none)/status || exit 1"
            )),
            wiki = self.wiki,
        )
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for file in ["agent.pid", "wiki.pid"] {
            let pid = fs::read_to_string(self.dir.join(file)).ok();
            let pid = pid.and_then(|text| Pid::from_raw(text.trim().parse().ok()?));
            if let Some(pid) = pid {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        let agent = self.dir.join("agent.log");
        if std::thread::panicking() {
            println!("{}: {}", self.name, fs::read_to_string(agent).unwrap_or_default());
        }
    }
}

/// Three emulated machines are much for a small one: a test of them has it alone.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of each node, as `/status` has it.
pub fn states(admin: SocketAddr) -> Option<Vec<String>> {
    let status = status(admin)?;
    let nodes = status["nodes"].as_array()?;
    let state = |node: &Value| Some(node["state"].as_str()?.to_owned());
    nodes.iter().map(state).collect()
}

#[test]
fn cores_and_caps_are_held_and_servers_switched_in_one_run_with_one_report() {
    if !fuse_or_skipped("emulated hardware") {
        return;
    }
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let machines: Vec<Machine> = (1..=3)
        .map(|number| Machine::named("headroom-both", number, dir.path()))
        .collect();
    machines.iter().for_each(Machine::boot);
    let wikis: Vec<SocketAddr> = machines.iter().map(|machine| machine.wiki).collect();
    let gateway = Gateway::start(&wikis);
    let sections: String = machines.iter().map(Machine::section).collect();
    let file = dir.path().join("controller.toml");
    let db = dir.path().join("runs.db");
    let text = format!(
        "[slo]\ntarget_ms = 1000\n[law]\nname = [\"slo-power\", \"static\"]\nservers_every_periods = 2\n\
         [law.static]\ncapacity_per_s = {CAPACITY_PER_S}.0\n[law.resize]\nwarm_up_s = 0.6\n\
         [power]\nboot_timeout_s = 20.0\nwarm_up_s = 0.4\nlost_s = 5.0\ndrain_timeout_s = 5.0\nstop_timeout_s = 10.0\n\
         [cluster]\nlease_ms = 3000\ncores_step = 1.0\nrequests_per_core_s = 100\npower_poll_s = 0.5\n[control]\nperiod_ms = 500\n\
         [gateways]\ng1 = \"{}\"\n[exit]\nwait_s = 20\n[record]\ndb = \"{}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{sections}",
        gateway.control(),
        db.display()
    );
    fs::write(&file, &text).unwrap();
    let controller = |law: &str| {
        let mut command = headroom("controller --json --no-view --config");
        command
            .arg(&file)
            .arg("--run-dir")
            .arg(file.with_file_name("run"));
        if !law.is_empty() {
            command.args(["--law", law]);
        }
        command
    };

    // What cannot be together is refused by name, before anything is changed.
    for (law, said) in [
        ("slo-power,hpa", "slo-power and hpa both move the lever cores"),
        (
            "static,always-on",
            "static and always-on both move the lever servers",
        ),
    ] {
        refused(controller(law), &[said]);
    }
    assert!(machines.iter().all(Machine::runs));

    let load = Load::to(gateway.address, CAPACITY_PER_S / 2);
    let mut running = Program::start(&mut controller(""));
    let admin = metrics_at(&mut running);
    // One server is enough for that load, and on it cores and cap are taken away.
    until("one machine is on", || {
        (states(admin)? == ["serving", "off", "off"]).then_some(())
    });
    assert_eq!(
        machines.iter().map(Machine::runs).collect::<Vec<_>>(),
        [true, false, false]
    );
    let saving = until("cores and cap of the first are held", || {
        let status = status(admin)?;
        let values = &status["nodes"][0]["values"];
        let (cores, cap) = (values["cores"].as_f64()?, values["cap"].as_f64()?);
        (cores < 15.0 && cap > 0.0).then_some(status)
    });
    // What is off on purpose is not missing, and the watts of what is on are known.
    assert_eq!(saving["nodes"][1]["state"], "off", "{saving}");
    assert!(saving["nodes"][1]["trouble"].is_null(), "{saving}");
    let metrics = get(admin, "/metrics").unwrap().body;
    assert_has(&metrics, &["headroom_nodes_missing 0"]);
    assert_has(&metrics, &["headroom_cores{role=\"node\",part=\"n1\"}"]);
    assert_has(
        &metrics,
        &["headroom_state{role=\"node\",part=\"n2\",state=\"off\"} 1"],
    );
    until("power is known", || {
        (status(admin)?["observation"]["power"]["source"] == "emulated").then_some(())
    });

    // More than two of them take, whatever of it a busy machine keeps back.
    load.at(CAPACITY_PER_S * 4);
    until("all machines are on, and commanded", || {
        let status = status(admin)?;
        let held = |node: &Value| node["state"] == "serving" && node["values"]["cores"].is_number();
        status["nodes"].as_array()?.iter().all(held).then_some(())
    });
    load.at(CAPACITY_PER_S / 2);
    until("one machine is on again", || {
        (states(admin)? == ["serving", "off", "off"]).then_some(())
    });

    running.signal(Signal::TERM);
    let status = running.wait();
    assert!(status.success(), "{}", running.err());
    assert!(machines.iter().all(Machine::runs), "{}", running.err());
    assert_eq!(load.counts().1, 0, "{}", running.err());
    let summary = running.json();
    assert_eq!(summary["law"], "slo-power+static");
    let transitions = &summary["nodes"]["transitions"];
    assert!(transitions["draining-stopping"].as_u64() >= Some(4), "{summary}");
    assert!(summary["cores"]["mean"].as_f64() > Some(0.0), "{summary}");

    let page = dir.path().join("report.html");
    let mut report = headroom("report latest --db");
    report.arg(&db);
    succeeds(report.arg("--out").arg(&page));
    let page = fs::read_to_string(page).unwrap();
    assert_has(
        &page,
        &[
            "Cores allocated",
            "Power cap",
            "Servers on",
            "n1",
            "n2",
            "n3",
            "g1",
            "draining",
        ],
    );
}
