//! `headroom resize --check`, and a start, where the gateways do not let themselves be asked.

use super::come_back::Cluster;
use super::{check, fixed, resize};
use crate::common::site::{Service, Site};
use crate::common::{assert_has, refused, succeeds, wait};
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;

/// The file of a controller whose gateway nobody has started, and which waits for it for a day.
fn without_gateway(site: &Site) -> PathBuf {
    let config = site.behind_gateway(&fixed());
    let text = fs::read_to_string(&config).unwrap();
    fs::write(
        &config,
        text.replace("[cluster]\n", "[cluster]\nwait_s = 86400.0\n"),
    )
    .unwrap();
    config
}

#[test]
fn a_check_waits_for_no_gateway_that_nobody_has_started() {
    let site = Site::new(1, Service::Wiki);
    refused(check(&without_gateway(&site)), &["gateways: none can be reached"]);
}

#[test]
fn a_start_that_waits_for_a_gateway_ends_at_a_signal_that_is_sent_twice_at_once() {
    let site = Site::new(1, Service::Wiki);
    let mut controller = resize(&without_gateway(&site));
    let status = format!("/proc/{}/status", controller.pid());
    wait("it catches signals", || {
        let text = fs::read_to_string(&status).unwrap();
        let caught = text.split_once("SigCgt:").unwrap().1.lines().next().unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << 14 != 0
    });
    // As `timeout` does: to the process, and to its group.
    controller.signal(Signal::TERM);
    controller.signal(Signal::TERM);
    // The second is one of its own where the first was taken before it came.
    let code = controller.wait().code();
    let by_second = 128 + Signal::TERM.as_raw();
    assert!(
        code == Some(0) || code == Some(by_second),
        "{code:?}: {}",
        controller.err()
    );
}

#[test]
fn a_check_beside_a_running_controller_checks_all_but_its_gateways() {
    let cluster = Cluster::with_one_off();
    let said = succeeds(check(&cluster.config)).all();
    let whose = format!(
        "the gateways are commanded by another controller (pid {})",
        cluster.controller.pid()
    );
    assert_has(&said, &["web1: serving, power by command", "web2: off", &whose]);
    // What is wrong beside them is still found.
    let text = fs::read_to_string(&cluster.config).unwrap();
    fs::write(
        &cluster.config,
        text.replace("drain_timeout_s = 5.0", "drain_timeout_s = -5.0"),
    )
    .unwrap();
    refused(check(&cluster.config), &["power.drain_timeout_s"]);
}
