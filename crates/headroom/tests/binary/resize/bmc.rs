//! Servers behind service processors that others wrote: OpenIPMI's simulator and OpenStack's Redfish emulator. What they
//! switch starts and stops a real server here.

use super::{CAPACITY_PER_S, fixed, resize};
use crate::common::site::{Service, Site};
use crate::common::{Load, Program, free_port, headroom, measuring, succeeds, until, wait};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const PASSWORD: &str = "sesame";
/// bcrypt of it.
const HASH: &str = "$2b$04$9rFPBbM0/ojPHE1wItDGeuFGOrvsq0.kCwmgM.QGGxToM8r2N9.J6";
const SYSTEM: &str = "27946b59-9e44-4fa7-8e91-f3527a1ef094";

fn program(name: &str, from: &str) -> Option<PathBuf> {
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain([cache]);
    let found = dirs.map(|dir| dir.join(name)).find(|file| file.is_file());
    if found.is_none() {
        println!("skipped: {name} not found ({from})");
    }
    found
}

fn private(file: &Path, text: &str, mode: u32) {
    fs::write(file, text).unwrap();
    fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
}

/// A service processor that speaks IPMI; where there is a file `webN.refuses`, its chassis takes no command.
fn ipmi(site: &mut Site, server: usize) -> Option<Program> {
    program("ipmitool", "apt install ipmitool")?;
    let sim = program("ipmi_sim", "apt install openipmi")?;
    let at = |name: &str| site.path(&format!("web{server}.{name}"));
    let port = UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    private(&at("start"), &site.start_script(server), 0o755);
    private(&at("bmc-password"), PASSWORD, 0o600);
    let (pid, refuses, start) = (at("pid"), at("refuses"), at("start"));
    let (pid, refuses, start) = (pid.display(), refuses.display(), start.display());
    let chassis = format!(
        "#!/bin/sh\non() {{ grep -qs '^State:.[RSDT]' /proc/$(cat {pid} 2>/dev/null || echo none)/status; }}\n\
         shift\n[ $1 = set ] && [ -e {refuses} ] && exit 1\ncase \"$*\" in\n\
         'get power') on && echo power:1 || echo power:0 ;;\n'set power 1') on || sh {start} ;;\n\
         *) on && kill $(cat {pid}) || true ;;\nesac\n"
    );
    private(&at("chassis"), &chassis, 0o755);
    let auths = ["callback", "user", "operator", "admin"].map(|level| format!("allowed_auths_{level} md5\n"));
    let lan = format!(
        "name \"bmc\"\nset_working_mc 0x20\nstartlan 1\naddr 127.0.0.1 {port}\npriv_limit admin\n{}\
         guid a123456789abcdefa123456789abcdef\nendlan\nchassis_control \"{} 0x20\"\n\
         user 2 true \"headroom\" \"{PASSWORD}\" operator 10 none md5\n",
        auths.concat(),
        at("chassis").display()
    );
    fs::write(at("lan"), lan).unwrap();
    let commands =
        "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\nmc_enable 0x20\n";
    fs::write(at("emu"), commands).unwrap();
    fs::create_dir(at("bmc")).unwrap();
    let mut command = Command::new(sim);
    command
        .args(["-n", "-c"])
        .arg(at("lan"))
        .arg("-f")
        .arg(at("emu"))
        .arg("-s")
        .arg(at("bmc"));
    let running = Program::start(&mut command);
    // The kernel is asked: whoever tries to bind the port can take it from the simulator.
    let at_port = format!(":{port:04X}");
    wait("ipmi_sim listens", || {
        let sockets = fs::read_to_string("/proc/net/udp").unwrap();
        let mut local = sockets.lines().filter_map(|line| line.split_whitespace().nth(1));
        local.any(|address| address.ends_with(&at_port))
    });
    let table = format!(
        "kind = \"ipmi\"\nhost = \"127.0.0.1\"\nport = {port}\nuser = \"headroom\"\ncipher_suite = 3\n\
         password = {{ file = \"{}\" }}\n",
        at("bmc-password").display()
    );
    site.powered_by(server, table);
    Some(running)
}

/// A service processor that speaks Redfish over TLS, and tells a listener of this test's of each change of power.
fn redfish(site: &mut Site, server: usize) -> Option<Program> {
    let sushy = program("sushy-emulator", "pip install sushy-tools")?;
    let at = |name: &str| site.path(&format!("web{server}.{name}"));
    let dir = site.path("certs");
    for args in [vec!["create"], vec!["issue-node", "bmc", "--also", "127.0.0.1"]] {
        succeeds(headroom("certs").args(args).arg("--dir").arg(&dir));
    }
    private(&at("bmc-password"), PASSWORD, 0o600);
    fs::write(at("users"), format!("headroom:{HASH}\n")).unwrap();
    fs::create_dir(at("bmc")).unwrap();
    let told = TcpListener::bind("127.0.0.1:0").unwrap();
    // Its machines take one to eleven seconds to do what they are told; here always three.
    let config = format!(
        "from sushy_tools.emulator.resources.systems import fakedriver\n\
         fakedriver.random.randint = lambda least, most: 3\nSUSHY_EMULATOR_AUTH_FILE = '{}'\n\
         SUSHY_EMULATOR_STATE_DIR = '{}'\nEXTERNAL_NOTIFICATION_URL = 'http://{}'\n\
         SUSHY_EMULATOR_FAKE_SYSTEMS = [{{'uuid': '{SYSTEM}', 'name': 'web{server}', 'power_state': 'Off', 'nics': [],\n\
         'external_notifier': True}}]\n",
        at("users").display(),
        at("bmc").display(),
        told.local_addr().unwrap()
    );
    fs::write(at("sushy"), config).unwrap();
    let (start, pid) = (site.start_script(server), at("pid"));
    // It ends with the test's process.
    std::thread::spawn(move || {
        let mut was_on = false;
        for stream in told.incoming() {
            let is_on = notified(stream.unwrap());
            if is_on && !was_on {
                let booted = Command::new("/bin/sh").args(["-c", &start]).status();
                assert!(booted.unwrap().success());
            } else if was_on && !is_on {
                let number = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
                kill_process(rustix::process::Pid::from_raw(number).unwrap(), Signal::TERM).unwrap();
            }
            was_on = is_on;
        }
    });
    let port = free_port();
    let mut command = Command::new(sushy);
    command
        .args(["--fake", "-i", "127.0.0.1", "-p", &port.to_string()])
        .arg("--config")
        .arg(at("sushy"))
        .arg("--ssl-certificate")
        .arg(dir.join("node-bmc.crt"))
        .arg("--ssl-key")
        .arg(dir.join("node-bmc.key"));
    let running = Program::start(&mut command);
    until("the emulator listens", || {
        TcpStream::connect(("127.0.0.1", port)).ok()
    });
    let table = format!(
        "kind = \"redfish\"\nurl = \"https://127.0.0.1:{port}\"\nuser = \"headroom\"\nauth = \"basic\"\n\
         ca_file = \"{}\"\npassword = {{ file = \"{}\" }}\n",
        dir.join("ca.crt").display(),
        at("bmc-password").display()
    );
    site.powered_by(server, table);
    Some(running)
}

/// Takes a notification: whether the power is on.
fn notified(stream: TcpStream) -> bool {
    let mut stream = BufReader::new(stream);
    let mut length = 0;
    let mut line = String::new();
    while stream.read_line(&mut line).unwrap() > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    stream.get_mut().write_all(answer).unwrap();
    let system: Value = serde_json::from_slice(&body).unwrap();
    system["power_state"] == "On"
}

#[test]
fn servers_behind_service_processors_go_through_every_state() {
    // It starts each server once, within its timeout: a demo of two dozen beside it would make that a matter of luck.
    let _one_at_a_time = measuring();
    let mut site = Site::new(3, Service::Wiki);
    let (Some(_ipmi), Some(redfish)) = (ipmi(&mut site, 2), redfish(&mut site, 3)) else {
        return;
    };
    site.boot(1);
    let _gateway = site.gateway();
    let config = site.behind_gateway(&fixed());
    // A service processor takes seconds, and a busy machine more.
    let text = fs::read_to_string(&config).unwrap();
    fs::write(
        &config,
        text.replace("boot_timeout_s = 6.0", "boot_timeout_s = 30.0"),
    )
    .unwrap();
    site.set(2, "refuses", true);
    let mut controller = resize(&config);
    let load = Load::to(site.front, CAPACITY_PER_S * 5 / 2);
    // The first chassis takes no command, which is a failure with a back-off, or two; then it does.
    let failed = site.until_period("web2 fails", |period| period["servers"][1]["state"] == "failed");
    assert!(site.starts(2) == 0 && !site.runs(2), "{failed}");
    site.set(2, "refuses", false);
    site.until_states(&["serving", "serving", "serving"]);
    assert_eq!((site.starts(2), site.starts(3)), (1, 1));
    load.at(CAPACITY_PER_S / 3);
    site.until_states(&["serving", "off", "off"]);
    assert!(site.runs(1) && !site.runs(2) && !site.runs(3));
    let (answered, wrong) = load.counts();
    assert!(answered > 100 && wrong == 0, "{answered} answered, {wrong} wrong");
    // At the end all are started, each told once: telling again what is under way would begin it anew there.
    let resets = || {
        let log = redfish.out() + &redfish.err();
        log.matches("ComputerSystem.Reset").count()
    };
    let before = resets();
    controller.stop();
    assert!((1..=3).all(|server| site.runs(server)), "{}", controller.err());
    assert_eq!(resets() - before, 1);
    assert_eq!(load.counts().1, 0);
    let summary = controller.json();
    let transitions = &summary["nodes"]["transitions"];
    for change in [
        "off-booting",
        "booting-failed (command)",
        "booting-warming",
        "warming-serving",
        "serving-draining",
        "draining-stopping",
        "stopping-off",
    ] {
        assert!(transitions[change].as_u64() >= Some(1), "{change}: {summary}");
    }
    let of_failures = |change: &&String| change.contains("-failed");
    let failures: Vec<&String> = transitions
        .as_object()
        .unwrap()
        .keys()
        .filter(of_failures)
        .collect();
    assert_eq!(failures, ["booting-failed (command)"], "{summary}");
}

#[test]
fn a_wrong_password_is_told_before_it_matters_and_may_be_put_right_meanwhile() {
    let mut site = Site::new(2, Service::Wiki);
    let Some(_ipmi) = ipmi(&mut site, 2) else { return };
    site.boot(1);
    let _gateway = site.gateway();
    let config = site.behind_gateway(&fixed());
    let mut controller = resize(&config);
    controller.said("web1 is found serving");
    private(&site.path("web2.bmc-password"), "open it", 0o600);
    let told = controller.says("what is wrong", |text| {
        let told = text
            .lines()
            .find(|line| line.contains("cannot be asked for") && line.contains("web2"));
        told.map(str::to_owned)
    });
    assert!(
        told.contains("the password is wrong") && !told.contains("open it"),
        "{told}"
    );
    private(&site.path("web2.bmc-password"), PASSWORD, 0o600);
    let load = Load::to(site.front, CAPACITY_PER_S * 3 / 2);
    site.until_states(&["serving", "serving"]);
    drop(load);
    controller.stop();
    // Each time it was asked for in vain it was wrong, and that was reported once.
    let err = controller.err();
    let reported =
        |line: &&str| line.contains("cannot be asked for") && line.contains("the password is wrong");
    assert_eq!(err.lines().filter(reported).count(), 1, "{err}");
}
