//! The law that moves every lever, in earnest: on emulated servers that are switched, and on one emulated machine.

use crate::both::{Machine, alone, states};
use crate::common::{
    Config, Emulator, Gateway, Load, Program, fuse_or_skipped, headroom, metrics_at, refused, serving_at,
    succeeds, until, wait,
};
use crate::parts::status;
use headroom_physics::{Machine as Kind, MachineFigures};
use headroom_units::Seconds;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

/// The cores of an emulated server.
const CORES: usize = 16;

/// `[machine]` of a server that boots within so many seconds. Its package never sleeps: where it can, little work is cheapest
/// at full speed, and how much is little depends on what else this machine does.
pub fn machine_that_boots_in(boot_s: f64) -> String {
    let mut figures = MachineFigures::skylake(CORES);
    (figures.server.boot, figures.server.shutdown) = (Seconds::new(boot_s), Seconds::new(0.2));
    figures.processor.uncore_asleep = figures.processor.uncore;
    let mut table = toml::Table::new();
    let machine = Kind::Figures(Box::new(figures));
    table.insert("machine".to_owned(), toml::Value::try_from(machine).unwrap());
    table.to_string()
}

fn controller(file: &Path, text: &str) -> Command {
    fs::write(file, text).unwrap();
    let mut command = headroom("controller --json --no-view --config");
    command.arg(file).arg("--run-dir").arg(file.with_file_name("run"));
    command
}

#[test]
fn a_controller_lowers_the_frequency_and_switches_servers_off_by_one_law() {
    if !fuse_or_skipped("emulated hardware") {
        return;
    }
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let machines: Vec<Machine> = (1..=3)
        .map(|number| Machine::named("headroom-joint", number, dir.path()))
        .collect();
    machines.iter().for_each(Machine::boot);
    let wikis: Vec<_> = machines.iter().map(|machine| machine.wiki).collect();
    let gateway = Gateway::start(&wikis);
    let sections: String = machines.iter().map(Machine::section).collect();
    let file = dir.path().join("controller.toml");
    let text = format!(
        "[slo]\ntarget_ms = 2000\n[law]\nname = \"joint\"\n[law.joint]\nwarm_s = 0.5\nlearn_s = 0.0\nlate = 0.2\nspare = 0\n\
         [power]\nboot_timeout_s = 20.0\nwarm_up_s = 0.4\nlost_s = 5.0\ndrain_timeout_s = 5.0\nstop_timeout_s = 10.0\n\
         [cluster]\nlease_ms = 3000\nrequests_per_core_s = 60\npower_poll_s = 0.5\n[control]\nperiod_ms = 500\n\
         [gateways]\ng1 = \"{}\"\n[exit]\nwait_s = 20\n[record]\ndb = \"{}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{sections}{}",
        gateway.control(),
        dir.path().join("runs.db").display(),
        machine_that_boots_in(1.0)
    );

    // What cannot be is refused with its numbers, before anything is changed.
    let spare = text.replace("spare = 0", "spare = 3");
    let said = ["law.joint.spare: is 3 of 3 servers", "at most 2"];
    refused(controller(&file, &spare), &said);
    let slow = text.replace("boot = 1.0\n", "boot = 3600.0\n");
    let said = [
        "control.period_ms: is 500",
        "boots in 3600 s",
        "7201 periods",
        "reaches 4096",
    ];
    refused(controller(&file, &slow), &said);
    let dearer = text.replace("\noff = 3.0\n", "\noff = 300.0\n");
    refused(
        controller(&file, &dearer),
        &["machine.server.off: is 300", "W of the machine on and asleep"],
    );
    let other = text.replace("cores = 16\n", "cores = 8\n");
    let said = ["machine.processor.cores: is 8: the machine has 16 cores"];
    refused(controller(&file, &other), &said);
    assert!(machines.iter().all(Machine::runs));

    // A check says what each lever saves on these machines, and changes nothing.
    let check = succeeds(controller(&file, &text).arg("--check")).out();
    let check: Value = serde_json::from_str(&check).unwrap();
    let savings = check["savings"].as_array().unwrap();
    let saving = |lever: &str| savings.iter().find(|saving| saving["lever"] == lever).unwrap();
    assert_eq!(
        saving("server off")["nodes"],
        json!(["n1", "n2", "n3"]),
        "{check}"
    );
    assert!(
        saving("server off")["total_watts"].as_f64() > Some(0.0),
        "{check}"
    );
    assert!(saving("frequency")["watts"].as_f64() > Some(0.0), "{check}");
    assert_eq!(saving("quota")["watts"], json!(0.0), "{check}");
    assert!(machines.iter().all(Machine::runs));

    let load = Load::to(gateway.address, 60);
    let mut running = Program::start(&mut controller(&file, &text));
    let admin = metrics_at(&mut running);
    until(
        "servers are off, and the frequency of what is on is lowered",
        || {
            let off = states(admin)?.iter().filter(|state| *state == "off").count();
            let status = status(admin)?;
            let hertz = status["nodes"][0]["values"]["frequency"].as_f64()?;
            (off >= 1 && hertz < 2.0e9).then_some(())
        },
    );
    running.signal(Signal::TERM);
    let status = running.wait();
    assert!(status.success(), "{}", running.err());
    assert!(machines.iter().all(Machine::runs), "{}", running.err());
    assert_eq!(load.counts().1, 0, "{}", running.err());
    assert_eq!(running.json()["law"], "joint");
}

#[test]
fn one_machine_runs_the_same_law_by_its_frequency_alone() {
    if !fuse_or_skipped("emulated hardware") {
        return;
    }
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let emulator = Emulator::start(dir.path(), "headroom-joint-up", 0.5);
    let wiki = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // A third of the machine is busy: of what next to nothing runs on, a lower voltage saves too little to be told from noise.
    let mut service = Program::start(&mut headroom(format!(
        "service wiki --page-cpu-ms 2.5 --listen {wiki}"
    )));
    wait("the service answers", || {
        std::net::TcpStream::connect(wiki).is_ok()
    });
    let procs = emulator.sys().join("fs/cgroup/web/cgroup.procs");
    fs::write(procs, format!("{}\n", service.pid())).unwrap();
    let config = Config::of(Path::new("/web"), wiki)
        .with("requests_per_core_s = 250.0", "requests_per_core_s = 12.0")
        .with("target_ms = 250", "target_ms = 2000")
        .with("\"slo-power\"", "\"joint\"")
        .with("[law.slo-power]\nguard = 0.8", "[law.joint]\nlate = 0.05")
        .with("meter = \"model\"", "meter = \"auto\"")
        .with("[control]", &format!("{}\n[control]", machine_that_boots_in(1.0)));

    let mut check = config.check();
    emulator.trees(&mut check);
    let check = succeeds(check).out();
    // Each lever with its watts and their cause.
    for said in [
        "by a lower voltage at",
        "quota: 0.0 W: a quota switches no core off",
        "by deep sleep of",
        "server off:",
    ] {
        assert!(check.contains(said), "{said:?} is not in {check}");
    }

    let mut command = config.command();
    emulator.trees(&mut command);
    let mut up = Program::start(&mut command);
    let at = serving_at(&mut up);
    let admin = metrics_at(&mut up);
    let load = Load::to(at, 60);
    until("the frequency is lowered", || {
        let status = status(admin)?;
        let setting = &status["observation"]["in_force"];
        (setting["frequency"].as_f64()? < 2.0e9).then_some(())
    });
    assert_eq!(load.counts().1, 0);
    up.signal(Signal::TERM);
    let status = up.wait();
    assert!(status.success(), "{}", up.err());
    service.signal(Signal::TERM);
    service.wait();
}
