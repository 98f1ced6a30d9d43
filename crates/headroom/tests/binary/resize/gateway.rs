//! Behind our gateway: servers come and go, fail and are killed, and so is the controller.

use super::{CAPACITY_PER_S, check, fixed, resize, resizing};
use crate::common::site::{Service, Site};
use crate::common::{Load, Program, assert_has, get, headroom, refused, succeeds, until, wait};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

#[test]
fn a_cluster_behind_the_gateway_follows_its_load_and_is_whole_at_the_end() {
    let site = Site::new(3, Service::Wiki);
    site.boot(1);
    let _gateway = site.gateway();
    let config = site.behind_gateway(&fixed());
    let mut controller = resize(&config);
    let load = Load::to(site.front, CAPACITY_PER_S / 3);
    site.until_states(&["serving", "off", "off"]);
    load.at(CAPACITY_PER_S * 5 / 2);
    site.until_states(&["serving", "serving", "serving"]);
    let metrics = controller.says("its metrics", |text| {
        let address = text.split_once("metrics on http://")?.1.split_once('/')?.0;
        address.parse::<SocketAddr>().ok()
    });
    let page = get(metrics, "/metrics").unwrap().body;
    assert_has(
        &page,
        &["headroom_state{role=\"node\",part=\"web3\",state=\"serving\"} 1"],
    );
    assert_has(
        &page,
        &[
            "headroom_transitions_total{role=\"node\",part=\"web",
            ",from=\"off\",to=\"booting\"}",
        ],
    );
    assert_eq!(get(metrics, "/readyz").unwrap().status, 200);
    load.at(CAPACITY_PER_S / 3);
    // Which one stays is the law's choice: one that a busy machine makes slow goes first.
    wait("one serves and two are off", || {
        let mut states = site.states();
        states.sort_unstable();
        states == ["off", "off", "serving"]
    });
    assert_eq!((1..=3).filter(|server| site.runs(*server)).count(), 1);
    // The servers came and went under load, and nobody noticed.
    let (answered, wrong) = load.counts();
    assert!(answered > 100 && wrong == 0, "{answered} answered, {wrong} wrong");
    // Two controllers with one file would undo each other's work.
    refused(resizing(&config, ""), &["another controller runs"]);

    controller.stop();
    assert!(
        (1..=3).all(|server| site.runs(server)),
        "a server was left off: {}",
        controller.err()
    );
    let summary = controller.json();
    let nodes = &summary["nodes"];
    assert_eq!(summary["law"], "static");
    assert!(!nodes["transitions"].to_string().contains("failed"), "{summary}");
    assert!(
        nodes["transitions"]["draining-stopping"].as_u64() >= Some(2),
        "{summary}"
    );
    assert!(nodes["state_s"]["off"].as_f64() > Some(0.0), "{summary}");
    assert_eq!(summary["energy_j"]["source"], "estimated");
    assert!(
        summary["saving_against_always_on"].as_f64() > Some(0.0),
        "{summary}"
    );
    the_report_shows_it(&site);
    for _ in 0..3 {
        assert_eq!(get(site.front, "/").unwrap().status, 200);
    }
    assert_eq!(load.counts().1, 0);
}

#[test]
fn of_equal_servers_the_slow_one_goes_first() {
    let site = Site::new(3, Service::Workers(8, 0.02)).slowed(1);
    (1..=3).for_each(|server| site.boot(server));
    let _gateway = site.gateway();
    let config = site.behind_gateway(&fixed());
    let load = Load::to(site.front, CAPACITY_PER_S * 5 / 2);
    let mut controller = resize(&config);
    let trouble = |server: &Value| server["trouble"].to_string();
    let is_slow = |server: &Value| trouble(server).contains("longer than those of its equals");
    let known = site.until_period("the slow one is known", |period| is_slow(&period["servers"][0]));
    assert!((1..3).all(|at| !is_slow(&known["servers"][at])), "{known}");
    load.at(CAPACITY_PER_S);
    site.until_states(&["off", "serving", "serving"]);
    // And comes back last.
    load.at(CAPACITY_PER_S * 5 / 2);
    site.until_states(&["serving", "serving", "serving"]);
    assert_eq!(load.counts().1, 0);
    controller.stop();
}

/// The report of the record.
fn the_report_shows_it(site: &Site) {
    let page = site.path("report.html");
    let mut report = headroom("report latest --db");
    report.arg(site.path("runs.db"));
    succeeds(report.arg("--out").arg(&page));
    let page = fs::read_to_string(page).unwrap();
    assert_has(
        &page,
        &["web1", "web2", "web3", "serving", "draining", "estimated"],
    );
}

#[test]
fn servers_that_fail_to_boot_hang_or_die_are_no_capacity_and_are_tried_again() {
    let site = Site::new(3, Service::Wiki);
    site.boot(1);
    site.set(2, "hangs", true);
    site.set(3, "broken", true);
    let _gateway = site.gateway();
    let config = site.behind_gateway(&fixed());
    let mut controller = resize(&config);
    let load = Load::to(site.front, CAPACITY_PER_S * 3 / 2);
    // The start command of web2 hangs and is killed at its limit; web3's says that all is well, and nothing comes.
    let failed = |server: usize, cause: &str| {
        site.until_period(&format!("web{server} fails: {cause}"), |period| {
            period["servers"][server - 1]["cause"] == cause
        })
    };
    let period = failed(2, "command");
    assert!(
        period["servers"][1]["trouble"][0]
            .as_str()
            .unwrap()
            .contains("did not end within 2 s")
    );
    let hung = fs::read_to_string(site.path("web2.hung")).unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", hung.trim())).unwrap_or_default();
    assert!(
        status.is_empty() || status.contains("State:\tZ"),
        "the hanging command lives: {status}"
    );
    failed(3, "boot");
    // They are tried again, and waited for longer each time.
    wait("more tries", || site.starts(2) >= 2 && site.starts(3) >= 2);
    for period in site.periods() {
        for server in period["servers"].as_array().unwrap() {
            let takes = ["warming", "serving"].contains(&server["state"].as_str().unwrap());
            assert!(
                !takes || server["answering"] == true || server["name"] == "web1",
                "{period}"
            );
        }
    }
    site.set(2, "hangs", false);
    site.set(3, "broken", false);
    // Both may have been started for it: then one of the three goes down again.
    wait("a second server, and no third", || {
        let states = site.states();
        let rests = |state: &String| ["serving", "off", "failed"].contains(&state.as_str());
        states.iter().all(rests) && states.iter().filter(|state| *state == "serving").count() == 2
    });

    // One that serves is killed: another takes its place, and it comes back itself where it is needed.
    let victim = if site.states()[1] == "serving" { 2 } else { 3 };
    kill_process(site.pid(victim).unwrap(), Signal::KILL).unwrap();
    // Where nobody asked in that period, it may be the one that is spared before it is missed.
    site.until_period(&format!("web{victim} is lost"), |period| {
        let server = &period["servers"][victim - 1];
        server["cause"] == "lost"
            || ["draining", "stopping", "off"]
                .iter()
                .any(|state| server["state"] == *state)
    });
    wait("a second server again", || {
        site.states().iter().filter(|state| *state == "serving").count() == 2
    });

    // The controller is killed, and finds everything as it is: nobody who runs is started again.
    controller.kill();
    let starts = || (1..=3).map(|server| site.starts(server)).collect::<Vec<_>>();
    let (before, ran) = (starts(), (1..=3).filter(|server| site.runs(*server)));
    let ran: Vec<usize> = ran.collect();
    fs::remove_file(site.path("runs.db")).unwrap();
    let controller = resize(&config);
    // Of those that ran one may have been on its way down, and another still be looked at by a busy machine.
    let states = until("ten periods, and a server that serves", || {
        let states = site.states();
        let serves = states.iter().any(|state| state == "serving");
        (site.last()?["period"].as_u64()? >= 10 && serves).then_some(states)
    });
    for (server, state) in (1..=3).zip(&states) {
        assert!(
            state != "serving" || site.runs(server),
            "{states:?} {}",
            controller.err()
        );
    }
    let after = starts();
    for server in ran {
        assert_eq!(before[server - 1], after[server - 1], "web{server}: {states:?}");
    }
    assert!(load.counts().0 > 100);
}

#[test]
fn a_controller_that_is_killed_for_good_leaves_every_server_serving() {
    let site = Site::new(2, Service::Wiki);
    site.boot(1);
    let _gateway = site.gateway();
    let config = site.behind_gateway(&fixed());
    let mut controller = resize(&config);
    let _load = Load::to(site.front, CAPACITY_PER_S / 3);
    site.until_states(&["serving", "off"]);
    controller.kill();
    wait("the guard has started the other server", || site.runs(2));
    // Which gets requests: it answers in its turn when the first is gone.
    let address = (Ipv4Addr::LOCALHOST, site.ports[1]);
    until("it answers", || TcpStream::connect(address).ok());
    wait("the guard is done", || {
        controller.err().contains("every server is started")
    });
    kill_process(site.pid(1).unwrap(), Signal::KILL).unwrap();
    until("an answer of the other server", || {
        get(site.front, "/").ok().filter(|answer| answer.status == 200)
    });
}

#[test]
fn servers_come_back_though_the_gateway_hangs_the_successor_is_refused_and_the_file_is_spoilt() {
    let site = Site::new(2, Service::Wiki);
    site.boot(1);
    let gateway = site.gateway();
    let config = site.behind_gateway(&fixed());
    let mut controller = resize(&config);
    let load = Load::to(site.front, CAPACITY_PER_S / 3);
    site.until_states(&["serving", "off"]);
    drop(load);
    gateway.signal(Signal::STOP);
    controller.kill();
    // It has the file while the guard wakes, and switches nobody on.
    refused(resizing(&config, ""), &["gateways", "none can be reached"]);
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("target_ms", "target_msx")).unwrap();
    wait("the guard has started the other server", || site.runs(2));
    gateway.signal(Signal::CONT);
    let address = (Ipv4Addr::LOCALHOST, site.ports[1]);
    until("it answers", || TcpStream::connect(address).ok());
    kill_process(site.pid(1).unwrap(), Signal::KILL).unwrap();
    until("an answer of the other server", || {
        get(site.front, "/").ok().filter(|answer| answer.status == 200)
    });
}

#[test]
fn while_the_controller_hangs_its_guard_starts_every_server() {
    let site = Site::new(2, Service::Wiki);
    site.boot(1);
    let _gateway = site.gateway();
    let config = site.behind_gateway(&fixed());
    let controller = resize(&config);
    let _load = Load::to(site.front, CAPACITY_PER_S / 3);
    site.until_states(&["serving", "off"]);
    controller.signal(Signal::STOP);
    wait("the guard has started the other server", || site.runs(2));
    controller.signal(Signal::CONT);
    // It has them again, and the one that was serving all the time was never taken out.
    wait("the other server is off again", || {
        !site.runs(2) && site.states() == ["serving", "off"]
    });
    for period in site.periods() {
        assert_eq!(period["servers"][0]["state"], "serving", "{period}");
    }
}

#[test]
fn a_server_that_cannot_be_started_is_refused_before_and_named_after() {
    let site = Site::new(2, Service::Wiki);
    site.boot(1);
    let _gateway = site.gateway();
    let config = site.behind_gateway(&fixed());
    let text = fs::read_to_string(&config).unwrap();
    let (before, web2) = text.split_once("[nodes.web2.power]").unwrap();
    let nowhere = web2.replacen("/bin/sh", "/bin/nothere", 1);
    fs::write(&config, format!("{before}[nodes.web2.power]{nowhere}")).unwrap();
    let said = ["nodes.web2.power", "start is \"/bin/nothere\"", "cannot be run"];
    refused(check(&config), &said);
    refused(resizing(&config, ""), &said);
    assert!(site.runs(1));

    // One whose start comes to nothing is known only at the end.
    fs::write(&config, text.replace("wait_s = 20.0", "wait_s = 1.0")).unwrap();
    site.set(2, "broken", true);
    let mut controller = resize(&config);
    site.until_states(&["serving", "off"]);
    controller.signal(Signal::TERM);
    let status = controller.wait();
    assert_eq!(status.code(), Some(1), "{}", controller.err());
    assert_has(
        controller.err(),
        &["not every server was left serving: web2 does not answer"],
    );
    assert_eq!(controller.json()["law"], "static");
}

#[test]
fn a_dry_run_and_a_check_change_nothing() {
    let site = Site::new(2, Service::Wiki);
    site.boot(1);
    let _gateway = site.gateway();
    let config = site.behind_gateway(&fixed());
    let load = Load::to(site.front, CAPACITY_PER_S * 3 / 2);
    let said = succeeds(check(&config)).out();
    assert_has(&said, &["web1: serving, power by command", "web2: off"]);
    let mut dry = Program::start(resizing(&config, "--dry-run --json"));
    dry.said("grow");
    dry.stop();
    assert_has(dry.err(), &["dry run: nothing is done"]);
    assert_eq!((site.starts(2), site.runs(1), site.runs(2)), (0, true, false));
    drop(load);
}
