//! An operator takes a server out and gives it back while the run goes on.

use super::come_back::{Cluster, guard};
use super::{CAPACITY_PER_S, fixed, resize};
use crate::common::site::{Service, Site};
use crate::common::{Load, assert_has, get, is_alive, program_or_skipped, until, wait};
use rustix::process::{Signal, kill_process};
use std::fs;
use std::net::SocketAddr;

#[test]
fn a_server_is_taken_out_once_another_has_its_load_and_stays_out_over_a_restart() {
    let site = Site::new(3, Service::Wiki);
    (1..=2).for_each(|server| site.boot(server));
    let _gateway = site.gateway();
    let config = site.behind_gateway(&fixed());
    let whole = fs::read_to_string(&config).unwrap();
    let with = |how: &str| whole.replace("[nodes.web1]\n", &format!("[nodes.web1]\nmaintenance = {how}\n"));
    let load = Load::to(site.front, CAPACITY_PER_S * 3 / 2);
    let mut controller = resize(&config);
    let metrics = controller.says("its metrics", |text| {
        let address = text.split_once("metrics on http://")?.1.split_once('/')?.0;
        address.parse::<SocketAddr>().ok()
    });
    site.until_states(&["serving", "serving", "off"]);

    let begun = site.periods().len();
    fs::write(&config, with("true")).unwrap();
    controller.signal(Signal::HUP);
    site.until_states(&["maintenance", "serving", "serving"]);
    assert!(site.runs(1), "it is left on");
    assert_has(
        controller.err(),
        &["server web1 is taken out", "and then left on"],
    );
    let page = get(metrics, "/metrics").unwrap().body;
    let shown = "headroom_state{role=\"node\",part=\"web1\",state=\"maintenance\"} 1";
    assert_has(&page, &[shown]);
    let takes = |state: &str| ["warming", "serving", "leaving"].contains(&state);
    for period in &site.periods()[begun..] {
        let servers = period["servers"].as_array().unwrap();
        let taking = servers.iter().filter(|one| takes(one["state"].as_str().unwrap()));
        assert!(taking.count() >= 2, "{period}");
    }

    // What is wrong in the file changes nothing.
    fs::write(&config, with("\"soon\"")).unwrap();
    controller.signal(Signal::HUP);
    until("the mistake is reported", || {
        let err = controller.err();
        let said = err
            .split_once("The gateways stay as they were, and who is taken out: ")?
            .1;
        said.contains("nodes.web1.maintenance: ").then_some(())
    });
    let reload = |result: &str| {
        let metric = format!("headroom_config_last_reload_successful {result}");
        until("the metric of the last reading", || {
            let page = get(metrics, "/metrics").ok()?.body;
            page.contains(&metric).then_some(())
        });
    };
    reload("0.0");
    fs::write(&config, with("true")).unwrap();
    controller.signal(Signal::HUP);
    reload("1.0");
    // Whether it runs, comes back or dies is the operator's.
    kill_process(site.pid(1).unwrap(), Signal::KILL).unwrap();
    let seen = site.periods().len();
    wait("ten more periods", || site.periods().len() > seen + 10);
    assert_eq!((site.states()[0].as_str(), site.starts(1)), ("maintenance", 0));
    site.boot(1);

    // The end starts it as little as a controller that begins.
    controller.stop();
    assert_eq!(site.starts(1), 0);
    fs::remove_file(site.path("runs.db")).unwrap();
    let mut controller = resize(&config);
    site.until_states(&["maintenance", "serving", "serving"]);
    for period in site.periods() {
        assert_eq!(period["servers"][0]["state"], "maintenance", "{period}");
    }

    // Given back, and not needed: it is switched as any other. Then it is.
    fs::write(&config, &whole).unwrap();
    controller.signal(Signal::HUP);
    site.until_states(&["off", "serving", "serving"]);
    load.at(CAPACITY_PER_S * 5 / 2);
    site.until_states(&["serving", "serving", "serving"]);
    assert_has(controller.err(), &["server web1 is given back"]);
    let (answered, wrong) = load.counts();
    assert!(answered > 100 && wrong == 0, "{answered} answered, {wrong} wrong");

    // All are needed: only force takes one out, and with it goes its power.
    fs::write(&config, with("{ power_off = true }")).unwrap();
    controller.signal(Signal::HUP);
    site.until_states(&["leaving", "serving", "serving"]);
    let seen = site.periods().len();
    wait("ten more periods", || site.periods().len() > seen + 10);
    assert_eq!(site.states(), ["leaving", "serving", "serving"]);
    fs::write(&config, with("{ power_off = true, at_once = true }")).unwrap();
    controller.signal(Signal::HUP);
    site.until_states(&["maintenance", "serving", "serving"]);
    assert!(!site.runs(1));
    assert_eq!(load.counts().1, 0);
    controller.stop();
    assert!(!site.runs(1) && site.runs(2) && site.runs(3));
}

#[test]
fn a_server_that_was_not_handed_over_before_a_kill_serves_again() {
    if !program_or_skipped("python3 --version", "the server with slow answers needs it") {
        return;
    }
    for with_guard in [true, false] {
        // Requests take long enough for a drain to be seen.
        let site = Site::new(2, Service::Workers(200, 2.0));
        (1..=2).for_each(|server| site.boot(server));
        let mut cluster = Cluster::of(site, &fixed());
        let config = cluster.config.clone();
        cluster.site.until_states(&["serving", "off"]);
        let whole = fs::read_to_string(&config).unwrap();
        let out = "[nodes.web1]\nmaintenance = { power_off = true }\n";
        fs::write(&config, whole.replace("[nodes.web1]\n", out)).unwrap();
        cluster.controller.signal(Signal::HUP);
        cluster.site.until_states(&["draining", "serving"]);
        match with_guard {
            false => cluster.kill_both(),
            true => {
                let last = guard(&cluster.controller);
                cluster.controller.kill();
                wait("the guard is done", || !is_alive(last));
            }
        }
        // A law that lets no other go than who is forced.
        let drained = fs::read_to_string(&config).unwrap();
        fs::write(&config, drained.replace(&fixed(), "name = \"always-on\"")).unwrap();
        fs::remove_file(cluster.site.path("runs.db")).unwrap();
        let mut next = resize(&config);
        cluster.site.until_states(&["leaving", "serving"]);
        let seen = cluster.site.periods().len();
        wait("ten more periods", || cluster.site.periods().len() > seen + 10);
        for period in cluster.site.periods() {
            assert_eq!(period["servers"][0]["state"], "leaving", "{with_guard} {period}");
        }
        assert!(cluster.site.runs(1));
        next.stop();
    }
}

/// Takes the second of two servers out at once; what writes into the file how it is taken out beside that.
fn takes_web2_out(cluster: &Cluster) -> impl Fn(&str) + use<> {
    let config = cluster.config.clone();
    let whole = fs::read_to_string(&config).unwrap();
    let with = move |how: &str| {
        let out = format!("[nodes.web2]\nmaintenance = {{ at_once = true{how} }}\n");
        fs::write(&config, whole.replace("[nodes.web2]\n", &out)).unwrap();
    };
    with("");
    cluster.controller.signal(Signal::HUP);
    cluster.site.until_states(&["serving", "maintenance"]);
    with
}

#[test]
fn a_server_in_maintenance_is_shut_down_once_where_that_is_asked_for_then_or_before_a_start() {
    let mut cluster = Cluster::with("name = \"always-on\"", 2);
    cluster.site.until_states(&["serving", "serving"]);
    let with = takes_web2_out(&cluster);
    assert!(cluster.site.runs(2));
    with(", power_off = true");
    cluster.controller.signal(Signal::HUP);
    wait("it is shut down", || !cluster.site.runs(2));
    cluster
        .controller
        .said("web2 is in maintenance already: it is shut down");
    cluster.site.until_states(&["serving", "maintenance"]);
    // Its operator starts it: that is his affair.
    cluster.site.boot(2);
    let seen = cluster.site.periods().len();
    wait("ten more periods", || cluster.site.periods().len() > seen + 10);
    assert!(cluster.site.runs(2));
    with("");
    cluster.controller.signal(Signal::HUP);
    cluster.controller.said("it stays as it is, on or off");
    cluster.controller.stop();
    // Asked for while no controller ran.
    with(", power_off = true");
    let mut next = resize(&cluster.config);
    wait("it is shut down", || !cluster.site.runs(2));
    next.stop();
    assert!(!cluster.site.runs(2) && cluster.site.runs(1));
}

#[test]
fn a_server_that_is_its_operators_and_will_not_stop_is_his_over_a_restart_of_everything() {
    let mut site = Site::new(2, Service::Wiki);
    let script = serde_json::json!(["/bin/sh", "-c", site.start_script(2)]);
    let switch = format!("kind = \"command\"\nstart = {script}\nstop = [\"/bin/false\"]\n");
    site.powered_by(2, switch);
    (1..=2).for_each(|server| site.boot(server));
    let mut cluster = Cluster::of(site, "name = \"always-on\"");
    cluster.site.until_states(&["serving", "serving"]);
    let with = takes_web2_out(&cluster);
    with(", power_off = true");
    cluster.controller.signal(Signal::HUP);
    cluster.controller.said("failed (command)");
    let seen = cluster.site.periods().len();
    wait("ten more periods", || cluster.site.periods().len() > seen + 10);
    cluster.kill_both();
    cluster.renew_gateway();
    fs::remove_file(cluster.site.path("runs.db")).unwrap();
    let mut next = resize(&cluster.config);
    next.said("web2 is found maintenance");
    next.said("failed (command)");
    wait("ten periods", || cluster.site.periods().len() > 10);
    let takes = ["warming", "serving", "leaving"];
    for period in cluster.site.periods() {
        let state = period["servers"][1]["state"].as_str().unwrap();
        assert!(!takes.contains(&state), "{period}");
    }
    assert!(cluster.site.runs(2));
    next.stop();
}
