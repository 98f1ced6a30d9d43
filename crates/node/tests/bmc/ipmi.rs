//! IPMI: OpenIPMI's simulator, which runs a program of ours for its chassis, and pyghmi's.

use crate::common::{PASSWORD, Running, free_udp_port, program, script, secret};
use crate::testing::says;
use headroom_node::switch::{IpmiConfig, IpmiSwitch, PowerSwitch, SwitchError};
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A limit with which ipmitool asks again after a second, as it does by itself.
const SHORT_S: f64 = 11.0;

/// The chassis: its power is in a file, what it is told in another; where there is a file `shut-down` or `refuses`, it takes
/// no shutdown or nothing.
const CHASSIS: &str = r#"#!/bin/sh
dir=$(dirname "$0")
shift
echo "$*" >> "$dir/calls"
case "$1 $2" in
"get power") echo "power:$(cat "$dir/power")" ;;
"set power") [ ! -e "$dir/refuses" ] && echo "$3" > "$dir/power" ;;
"set shutdown") [ ! -e "$dir/refuses" ] && echo 0 > "$dir/power" ;;
esac
"#;

/// Answers until there is a session: of the authentication capabilities, the open session, RAKP 1 and RAKP 3.
const HANDSHAKE: usize = 4;

struct Sim {
    dir: TempDir,
    port: u16,
    _running: Running,
}

impl Sim {
    fn start() -> Option<Self> {
        program("ipmitool", "apt install ipmitool")?;
        let sim = program("ipmi_sim", "apt install openipmi")?;
        let dir = tempfile::tempdir().unwrap();
        let port = free_udp_port();
        let at = |name: &str| dir.path().join(name);
        script(&at("chassis"), CHASSIS);
        fs::write(at("power"), "0\n").unwrap();
        fs::create_dir(at("state")).unwrap();
        let auths: String = ["callback", "user", "operator", "admin"]
            .map(|level| format!("allowed_auths_{level} md2 md5\n"))
            .concat();
        let users = format!(
            "user 2 true \"headroom\" \"{PASSWORD}\" operator 10 none md2 md5\n\
             user 3 true \"guest\" \"{PASSWORD}\" user 10 none md2 md5\n"
        );
        let chassis = at("chassis");
        let lan = format!(
            "name \"web1\"\nset_working_mc 0x20\nstartlan 1\naddr 127.0.0.1 {port}\npriv_limit admin\n{auths}\
             guid a123456789abcdefa123456789abcdef\nendlan\nchassis_control \"{} 0x20\"\n{users}",
            chassis.display()
        );
        fs::write(at("lan.conf"), lan).unwrap();
        let commands = "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\n\
                        sel_enable 0x20 1000 0x0a\nmc_enable 0x20\n";
        fs::write(at("start.emu"), commands).unwrap();
        let mut command = Command::new(sim);
        command
            .arg("-n")
            .arg("-c")
            .arg(at("lan.conf"))
            .arg("-f")
            .arg(at("start.emu"));
        command.arg("-s").arg(at("state"));
        let mut running = Running::start(&mut command, at("sim.log"))?;
        running.until_udp(port);
        Some(Self {
            dir,
            port,
            _running: running,
        })
    }

    fn config(&self) -> IpmiConfig {
        IpmiConfig {
            host: "127.0.0.1".into(),
            port: Some(self.port),
            user: "headroom".into(),
            password: secret(self.dir.path(), "password", PASSWORD),
            interface: "lanplus".into(),
            cipher_suite: Some(3),
            program: None,
            limit_s: 30.0,
        }
    }

    /// What its chassis was told.
    fn told(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.dir.path().join("calls")).unwrap_or_default();
        let set = calls.lines().filter(|call| call.starts_with("set"));
        set.map(str::to_owned).collect()
    }
}

fn open(config: IpmiConfig) -> IpmiSwitch {
    IpmiSwitch::open(config).unwrap()
}

#[test]
fn on_soft_and_off_reach_the_chassis() {
    let Some(sim) = Sim::start() else { return };
    for interface in ["lanplus", "lan"] {
        let mut switch = open(IpmiConfig {
            interface: interface.into(),
            cipher_suite: (interface == "lanplus").then_some(3),
            ..sim.config()
        });
        assert_eq!(switch.state().unwrap(), Some(false));
        switch.on().unwrap();
        assert_eq!(switch.state().unwrap(), Some(true));
        switch.off(false).unwrap();
        assert_eq!(switch.state().unwrap(), Some(false));
        switch.on().unwrap();
        switch.off(true).unwrap();
        assert_eq!(switch.state().unwrap(), Some(false));
    }
    let told = ["set power 1", "set shutdown 1", "set power 1", "set power 0"];
    assert_eq!(sim.told(), [told, told].concat());
}

#[test]
fn what_the_chassis_refuses_is_an_error_where_there_was_something_to_do() {
    let Some(sim) = Sim::start() else { return };
    let mut switch = open(sim.config());
    fs::write(sim.dir.path().join("refuses"), "").unwrap();
    switch.off(false).unwrap();
    switch.off(true).unwrap();
    says(switch.on().unwrap_err(), &["failed", "Up/On"]);
    assert_eq!(sim.told(), ["set shutdown 1", "set power 0", "set power 1"]);
}

#[test]
fn why_there_is_no_session_is_told_with_what_to_do() {
    let Some(sim) = Sim::start() else { return };
    let config = sim.config();
    let wrong = IpmiConfig {
        password: secret(sim.dir.path(), "wrong", "open it"),
        ..config.clone()
    };
    let nobody = IpmiConfig {
        user: "nobody".into(),
        ..config.clone()
    };
    let guest = IpmiConfig {
        user: "guest".into(),
        // The simulator knows this limit here only.
        interface: "lan".into(),
        cipher_suite: None,
        ..config.clone()
    };
    let wrong_lan = IpmiConfig {
        interface: "lan".into(),
        cipher_suite: None,
        ..wrong.clone()
    };
    let unnamed = IpmiConfig {
        host: "bmc.invalid".into(),
        ..config.clone()
    };
    let long = IpmiConfig {
        password: secret(sim.dir.path(), "long", "as long as twenty-one"),
        ..config.clone()
    };
    for (config, said) in [
        (wrong, "the password is wrong"),
        (nobody, "there is no such user"),
        (guest, "OPERATOR"),
        (wrong_lan, "the user or the password is wrong"),
        (unnamed, "correct host"),
        (long, "at most 20 bytes"),
    ] {
        let error = open(config).on().unwrap_err();
        assert!(matches!(error, SwitchError::Network { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(said), "{said}: {text}");
        assert!(!text.contains(PASSWORD) && !text.contains("open it"), "{text}");
    }
    // Versions of the simulator that know this suite take it.
    let suite = IpmiConfig {
        cipher_suite: Some(17),
        ..config
    };
    match open(suite).state() {
        Ok(state) => assert_eq!(state, Some(false)),
        Err(error) => assert!(error.to_string().contains("set cipher_suite"), "{error}"),
    }
    assert!(sim.told().is_empty());
}

#[test]
fn one_that_does_not_say_which_ciphers_it_takes_is_switched_all_the_same() {
    let Some(sim) = Sim::start() else { return };
    let mut switch = open(IpmiConfig {
        cipher_suite: None,
        limit_s: SHORT_S,
        ..sim.config()
    });
    switch.on().unwrap();
    assert_eq!(sim.told(), ["set power 1"]);
}

#[test]
fn one_that_is_not_there_is_given_up_before_the_limit() {
    if program("ipmitool", "apt install ipmitool").is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // It takes what comes, and answers nothing.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let config = IpmiConfig {
        host: "127.0.0.1".into(),
        port: Some(silent.local_addr().unwrap().port()),
        user: "headroom".into(),
        password: secret(dir.path(), "password", PASSWORD),
        interface: "lanplus".into(),
        cipher_suite: None,
        program: None,
        limit_s: SHORT_S,
    };
    says(
        open(config.clone()).on().unwrap_err(),
        &["IPMI over LAN switched on"],
    );
    let hasty = IpmiConfig {
        limit_s: 1.0,
        ..config
    };
    let started = Instant::now();
    let error = open(hasty).on().unwrap_err();
    assert!(matches!(error, SwitchError::TimeLimit { .. }), "{error:?}");
    assert!(started.elapsed() < Duration::from_secs(20));
}

/// Passes packets on to a service processor, and its first answers as much later: those of the handshake.
fn slow(port: u16, delay: Duration) -> u16 {
    let front = UdpSocket::bind("127.0.0.1:0").unwrap();
    let back = UdpSocket::bind("127.0.0.1:0").unwrap();
    back.connect(("127.0.0.1", port)).unwrap();
    let here = front.local_addr().unwrap().port();
    let (answers, waiting) = mpsc::channel::<(Instant, Vec<u8>, SocketAddr)>();
    let (towards, answered) = (front.try_clone().unwrap(), back.try_clone().unwrap());
    let asker = std::sync::Arc::new(std::sync::Mutex::new(None));
    let last_asker = std::sync::Arc::clone(&asker);
    // They end with the test's process.
    std::thread::spawn(move || {
        let mut packet = [0; 2048];
        loop {
            let (length, from) = front.recv_from(&mut packet).unwrap();
            *asker.lock().unwrap() = Some(from);
            back.send(&packet[..length]).unwrap();
        }
    });
    std::thread::spawn(move || {
        let mut packet = [0; 2048];
        loop {
            let length = answered.recv(&mut packet).unwrap();
            let to = last_asker.lock().unwrap().unwrap();
            let due = Instant::now() + delay;
            answers.send((due, packet[..length].to_vec(), to)).unwrap();
        }
    });
    std::thread::spawn(move || {
        for (number, (due, answer, to)) in waiting.into_iter().enumerate() {
            if number < HANDSHAKE {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            towards.send_to(&answer, to).unwrap();
        }
    });
    here
}

#[test]
fn one_that_takes_more_than_a_second_to_answer_is_waited_for() {
    let Some(sim) = Sim::start() else { return };
    let port = slow(sim.port, Duration::from_millis(1100));
    let config = IpmiConfig {
        port: Some(port),
        ..sim.config()
    };
    open(config).on().unwrap();
    // Told once: nothing was asked twice.
    assert_eq!(sim.told(), ["set power 1"]);
}

#[test]
fn another_service_processor_takes_the_same() {
    let Some(fake) = program("fakebmc", "pip install pyghmi") else {
        return;
    };
    if program("ipmitool", "apt install ipmitool").is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let port = free_udp_port();
    let mut command = Command::new(fake);
    command
        .args(["--port", &port.to_string()])
        .env("PYTHONUNBUFFERED", "1");
    let log = dir.path().join("fakebmc.log");
    let Some(mut running) = Running::start(&mut command, log.clone()) else {
        return;
    };
    running.until_udp(port);
    // It knows one user.
    let config = IpmiConfig {
        host: "127.0.0.1".into(),
        port: Some(port),
        user: "admin".into(),
        password: secret(dir.path(), "password", "password"),
        interface: "lanplus".into(),
        cipher_suite: None,
        program: None,
        limit_s: 30.0,
    };
    let mut switch = open(config.clone());
    assert_eq!(switch.state().unwrap(), Some(false));
    switch.on().unwrap();
    assert_eq!(switch.state().unwrap(), Some(true));
    switch.off(false).unwrap();
    assert_eq!(switch.state().unwrap(), Some(false));
    switch.on().unwrap();
    switch.off(true).unwrap();
    assert_eq!(switch.state().unwrap(), Some(false));
    let said = fs::read_to_string(log).unwrap();
    let done: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("power") || line.contains("shut"))
        .collect();
    assert_eq!(
        done,
        [
            "powered on",
            "politely shut down the system",
            "powered on",
            "abruptly remove power"
        ]
    );
    let wrong = IpmiConfig {
        password: secret(dir.path(), "wrong", "open it"),
        ..config
    };
    says(open(wrong).state().unwrap_err(), &["the password is wrong"]);
}
