//! A service processor that is made up, behind real TLS.

mod bmc;
mod odd;
mod trust;

use super::*;
use crate::testing::says;
use bmc::Bmc;
use std::fs;
use std::sync::atomic::Ordering;
use std::time::Instant;

fn open(config: RedfishConfig) -> RedfishSwitch {
    RedfishSwitch::open(config).unwrap()
}

#[test]
fn on_off_and_off_by_force_in_sessions_that_are_ended() {
    let bmc = Bmc::start();
    let mut switch = open(bmc.config());
    assert_eq!(switch.state().unwrap(), Some(false));
    switch.on().unwrap();
    assert_eq!(switch.state().unwrap(), Some(true));
    // A machine that is on is not told again.
    switch.on().unwrap();
    switch.off(false).unwrap();
    assert_eq!(switch.state().unwrap(), Some(false));
    bmc.machine.lock().unwrap().power = "On";
    switch.off(true).unwrap();
    let machine = bmc.machine.lock().unwrap();
    assert_eq!(machine.resets(), ["On", "GracefulShutdown", "ForceOff"]);
    assert_eq!(machine.sessions, 0);
}

#[test]
fn basic_authentication_needs_no_session_and_a_certificate_can_be_pinned() {
    let bmc = Bmc::start();
    let mut switch = open(RedfishConfig {
        auth: RedfishAuth::Basic,
        ca_file: None,
        certificate: Some(bmc.dir.path().join("leaf.crt")),
        // The pinned certificate is not for this name, and need not be.
        url: format!("https://127.0.0.1:{}", bmc.port),
        system: Some("1".into()),
        ..bmc.config()
    });
    switch.on().unwrap();
    assert_eq!(switch.state().unwrap(), Some(true));
    assert!(
        !bmc.machine
            .lock()
            .unwrap()
            .log
            .iter()
            .any(|line| line.contains("Session"))
    );
}

#[test]
fn no_connection_is_kept_between_two_actions() {
    let bmc = Bmc::start();
    let closed = |what: &str| {
        let deadline = Instant::now() + Duration::from_secs(20);
        while bmc.ended.load(Ordering::SeqCst) < bmc.opened.load(Ordering::SeqCst) {
            assert!(Instant::now() < deadline, "{what}: it is still open");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let mut switch = open(bmc.config());
    switch.on().unwrap();
    closed("after an action");
    assert_eq!(bmc.opened.load(Ordering::SeqCst), 1, "one is enough for it");
    bmc.machine.lock().unwrap().task_looks = Some(10_000);
    let mut hasty = open(RedfishConfig {
        limit_s: 1.0,
        ..bmc.config()
    });
    assert!(hasty.off(false).unwrap_err().to_string().contains("within 1 s"));
    closed("after one that took too long");
    fs::write(bmc.dir.path().join("password"), "melon\n").unwrap();
    assert!(switch.state().is_err());
    closed("after a refusal");
    assert!(bmc.opened.load(Ordering::SeqCst) >= 2);
}

#[test]
fn a_task_is_followed_to_its_end_be_it_good_or_bad() {
    let bmc = Bmc::start();
    let mut switch = open(bmc.config());
    bmc.machine.lock().unwrap().task_looks = Some(3);
    switch.on().unwrap();
    assert_eq!(bmc.machine.lock().unwrap().task_looks, Some(0));
    {
        let mut machine = bmc.machine.lock().unwrap();
        (machine.task_looks, machine.task_ends) = (Some(1), "Exception");
    }
    says(
        switch.off(false).unwrap_err(),
        &["no power supply", "GracefulShutdown"],
    );
    assert_eq!(bmc.machine.lock().unwrap().sessions, 0);
}

#[test]
fn what_it_refuses_is_told_in_its_own_words() {
    let bmc = Bmc::start();
    fs::write(bmc.dir.path().join("password"), "melon\n").unwrap();
    let error = open(bmc.config()).on().unwrap_err().to_string();
    assert!(
        error.contains("Invalid credentials.")
            && error.contains("password is wrong")
            && !error.contains("melon"),
        "{error}"
    );
    fs::write(bmc.dir.path().join("password"), "sesame\n").unwrap();
    let system = RedfishConfig {
        system: Some("blade9".into()),
        ..bmc.config()
    };
    says(open(system).on().unwrap_err(), &["no /redfish/v1/Systems/blade9"]);
    bmc.machine.lock().unwrap().systems = 2;
    says(open(bmc.config()).on().unwrap_err(), &["name one of them"]);
}

#[test]
fn one_that_hangs_has_its_time_limit() {
    let bmc = Bmc::start();
    bmc.machine.lock().unwrap().hangs = true;
    let mut switch = open(RedfishConfig {
        limit_s: 0.5,
        ..bmc.config()
    });
    let started = Instant::now();
    let error = switch.on().unwrap_err().to_string();
    assert!(started.elapsed() < Duration::from_secs(20));
    assert!(error.contains("within 0.5 s"), "{error}");
}

#[test]
fn a_task_that_does_not_end_in_time_is_not_pressed_and_its_session_is_ended() {
    const LOOKS: u32 = 10_000;
    let bmc = Bmc::start();
    bmc.machine.lock().unwrap().task_looks = Some(LOOKS);
    let mut switch = open(RedfishConfig {
        limit_s: 3.0,
        ..bmc.config()
    });
    says(switch.on().unwrap_err(), &["within 3 s"]);
    let machine = bmc.machine.lock().unwrap();
    let looks = LOOKS - machine.task_looks.unwrap();
    assert!(looks <= 30, "{looks} looks in 3 s");
    if looks == 0 {
        println!("skipped: the end of a session: the machine was too busy to begin one in time");
    } else {
        assert_eq!(machine.sessions, 0);
    }
}

#[test]
fn an_address_without_tls_is_refused() {
    let bmc = Bmc::start();
    for (url, said) in [
        ("http://bmc1", "https:// it must be"),
        ("bmc1", "https:// it must be"),
        ("https://u:p@bmc1", "keys of their own"),
        ("https://bmc1/redfish", "no path"),
    ] {
        let config = RedfishConfig {
            url: url.into(),
            ..bmc.config()
        };
        says(RedfishSwitch::open(config).unwrap_err(), &[said]);
    }
}
