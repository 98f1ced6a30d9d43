//! A made-up ipmitool: how it is called, and what is made of what it says.

use super::*;
use crate::testing::says;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

/// Stands in for ipmitool: keeps a machine's power in a file, and writes down how it was called.
const PRETENDED: &str = r#"#!/bin/sh
dir=$(dirname "$0")
echo "$*" >> "$dir/calls"
[ "$IPMI_PASSWORD" = "sesame" ] || { echo "Error: Unable to establish IPMI v2 / RMCP+ session" >&2; exit 1; }
for word; do action=$word; done
case $action in
on) echo on > "$dir/power"; echo "Chassis Power Control: Up/On" ;;
soft) [ "$(cat "$dir/power")" = on ] || { echo "Set Chassis Power Control to Soft failed: Command not supported" >&2; exit 1; }
    [ -e "$dir/stubborn" ] || echo off > "$dir/power"; echo "Chassis Power Control: Soft" ;;
off) echo off > "$dir/power"; echo "Chassis Power Control: Down/Off" ;;
status) echo "Chassis Power is $(cat "$dir/power")" ;;
esac
"#;

fn config(dir: &Path, password: &str) -> IpmiConfig {
    let program = dir.join("ipmitool");
    // Written by another process: while this one has it open for writing, a child that another test's thread forks
    // keeps it open too, and it could not be executed.
    let mut writer = Command::new("/bin/sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(&program)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    writer
        .stdin
        .take()
        .unwrap()
        .write_all(PRETENDED.as_bytes())
        .unwrap();
    assert!(writer.wait().unwrap().success());
    let file = dir.join("password");
    fs::write(&file, password).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    fs::write(dir.join("power"), "off").unwrap();
    IpmiConfig {
        host: "bmc1".into(),
        port: Some(6230),
        user: "operator".into(),
        password: Secret::File(file),
        interface: "lanplus".into(),
        cipher_suite: Some(3),
        program: Some(program),
        limit_s: 30.0,
    }
}

#[test]
fn on_soft_off_and_off_by_force_with_the_password_on_no_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let mut switch = IpmiSwitch::open(config(dir.path(), "sesame\n")).unwrap();
    assert_eq!(switch.state().unwrap(), Some(false));
    switch.on().unwrap();
    assert_eq!(switch.state().unwrap(), Some(true));
    fs::write(dir.path().join("stubborn"), "").unwrap();
    switch.off(false).unwrap();
    assert_eq!(switch.state().unwrap(), Some(true));
    switch.off(true).unwrap();
    assert_eq!(switch.state().unwrap(), Some(false));
    let calls = fs::read_to_string(dir.path().join("calls")).unwrap();
    let reported =
        "-v -R 2 -N 5 -I lanplus -H bmc1 -p 6230 -C 3 -U operator -L OPERATOR -E chassis power soft";
    assert!(calls.lines().any(|call| call == reported), "{calls}");
    assert!(!calls.contains("sesame"), "{calls}");
}

#[test]
fn a_wrong_password_and_an_odd_answer_are_errors_that_do_not_tell_the_password() {
    let dir = tempfile::tempdir().unwrap();
    let mut switch = IpmiSwitch::open(config(dir.path(), "melon\n")).unwrap();
    let error = switch.on().unwrap_err().to_string();
    assert!(
        error.contains("Unable to establish") && !error.contains("melon"),
        "{error}"
    );
    let mut switch = IpmiSwitch::open(config(dir.path(), "sesame\n")).unwrap();
    fs::write(dir.path().join("power"), "unknown").unwrap();
    assert!(matches!(switch.state(), Err(SwitchError::Answer { .. })));
}

#[test]
fn a_refusal_counts_only_where_there_was_something_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let mut switch = IpmiSwitch::open(config(dir.path(), "sesame")).unwrap();
    // It is off, and its service processor takes no shutdown then.
    switch.off(false).unwrap();
    fs::write(dir.path().join("power"), "unknown").unwrap();
    says(switch.off(false).unwrap_err(), &["Command not supported"]);
}

#[test]
fn of_what_it_says_only_what_tells_is_kept_and_it_waits_as_long_as_its_limit_allows() {
    let said = "Loading IANA PEN Registry...\n\n> Error: no response from RAKP 1 message\n\
                    > Error: no response from RAKP 1 message\nSet Session Privilege Level to OPERATOR failed\n";
    let kept = "Error: no response from RAKP 1 message; Set Session Privilege Level to OPERATOR failed";
    assert_eq!(telling(said, ""), kept);
    for (limit_s, wait) in [(5.0, "1"), (12.0, "2"), (30.0, "5"), (65.0, "10")] {
        let dir = tempfile::tempdir().unwrap();
        let patient = IpmiConfig {
            limit_s,
            ..config(dir.path(), "sesame")
        };
        IpmiSwitch::open(patient).unwrap().on().unwrap();
        let calls = fs::read_to_string(dir.path().join("calls")).unwrap();
        assert!(calls.starts_with(&format!("-v -R 2 -N {wait} ")), "{calls}");
    }
}

/// What ipmitool 1.8.19 said to service processors that were there, slow, and strict.
#[test]
fn what_it_says_of_a_session_that_failed_means_something() {
    let dir = tempfile::tempdir().unwrap();
    let switch = IpmiSwitch::open(config(dir.path(), "sesame")).unwrap();
    let meaning = |err: &str| {
        let output = Output {
            status: ExitStatus::from_raw(256),
            out: String::new(),
            err: format!(
                "Loading IANA PEN Registry...\n{err}\nError: Unable to establish IPMI v2 / RMCP+ session\n"
            ),
        };
        switch.failure(&output).to_string()
    };
    // A message that was sent twice to a slow one: then the password seems to be wrong.
    let slow = "> Error: no response from RAKP 1 message\n> RAKP 2 HMAC is invalid";
    for (err, remedy) in [
        (slow, SLOW),
        ("> RAKP 2 HMAC is invalid", WRONG),
        ("RAKP 2 message indicates an error : unauthorized name", NOBODY),
        (
            "RAKP 2 message indicates an error : unauthorized role or privilege level requested",
            UNPRIVILEGED,
        ),
        ("Set Session Privilege Level to OPERATOR failed", UNPRIVILEGED),
        (
            "Error in open session response message : invalid authentication algorithm\n",
            CIPHER,
        ),
        (
            "Authentication algorithm 0x01 is not what we requested 0x03\n",
            CIPHER,
        ),
        (
            "Error issuing Get Channel Authentication Capabilities request",
            ABSENT,
        ),
    ] {
        let said = meaning(err);
        assert!(
            said.starts_with("IPMI at bmc1: ") && said.ends_with(remedy),
            "{said}"
        );
    }
    assert!(
        meaning("Set Chassis Power Control to Up/On failed: Unspecified error").contains("Unspecified error")
    );
}

#[test]
fn what_would_be_an_option_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let good = config(dir.path(), "sesame");
    let host = IpmiConfig {
        host: "-x".into(),
        ..good.clone()
    };
    assert!(
        IpmiSwitch::open(host)
            .unwrap_err()
            .to_string()
            .starts_with("host is")
    );
    let interface = IpmiConfig {
        interface: "open".into(),
        ..good.clone()
    };
    assert!(IpmiSwitch::open(interface).is_err());
    for (interface, suite) in [("lanplus", 0), ("lanplus", 8), ("lan", 3)] {
        let config = IpmiConfig {
            interface: interface.into(),
            cipher_suite: Some(suite),
            ..good.clone()
        };
        says(IpmiSwitch::open(config).unwrap_err(), &["17 or 3"]);
    }
}
