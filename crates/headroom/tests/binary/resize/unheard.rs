//! A server whose accept queue is said to be at a port on which nobody listens, and a switch that says off of one that serves.

use super::{check, resize};
use crate::common::site::{Service, Site};
use crate::common::{Load, Program, assert_has, free_port, refused, run, succeeds, wait};
use serde_json::Value;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;

/// Two servers that run, the second with this port for its accept queue; `None` where accept queues cannot be measured.
fn site(port: u16) -> Option<(Site, Program, PathBuf)> {
    let site = Site::new(2, Service::Wiki);
    (1..=2).for_each(|server| site.boot(server));
    let gateway = site.gateway();
    let head = format!(
        "[law]\nname = \"elastic\"\n[law.elastic]\nboot_s = 1.0\n[gateways]\ng1 = \"unix:{}\"",
        site.path("gateway.sock").display()
    );
    let ports = [site.ports[0], port];
    let config = site.config(&head, |server| {
        format!(
            "member = \"{}\"\naccept_queue = {}",
            site.url(server),
            ports[server - 1]
        )
    });
    let said = run(check(&config)).all();
    if said.contains("cannot be measured by ebpf") {
        println!("skipped: {said}");
        return None;
    }
    Some((site, gateway, config))
}

#[test]
fn a_check_says_that_nobody_listens_at_the_queue_of_a_server_that_serves() {
    let port = free_port();
    let Some((site, _gateway, config)) = site(port) else {
        return;
    };
    let said = [
        "nodes.web2.accept_queue",
        "nobody listens there, and web2 answers",
    ];
    refused(check(&config), &said);
    // The right port; and a switch that would say off of any server.
    let text = fs::read_to_string(&config).unwrap();
    let text = text.replace(
        &format!("accept_queue = {port}"),
        &format!("accept_queue = {}", site.ports[1]),
    );
    let (before, state) = text.rsplit_once("state = ").unwrap();
    let (_, after) = state.split_once('\n').unwrap();
    fs::write(&config, format!("{before}state = [\"/bin/false\"]\n{after}")).unwrap();
    let said = succeeds(check(&config)).all();
    assert_has(
        &said,
        &["web2: its switch says that it is off, and it answers at its check"],
    );
}

#[test]
fn what_comes_to_a_server_at_whose_queue_nobody_listens_is_counted_at_the_balancer() {
    const RATE: u64 = 60;
    let port = free_port();
    let Some((site, _gateway, config)) = site(port) else {
        return;
    };
    let load = Load::to(site.front, RATE);
    let mut controller = resize(&config);
    wait("some periods", || site.periods().len() > 20);
    controller.said("warning: web2: nobody listens at its accept_queue");
    let rate = |period: &Value| period["arrival_rate_per_s"].as_f64();
    let rates: Vec<f64> = site.periods().iter().skip(5).filter_map(rate).collect();
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    assert!(mean > 0.8 * RATE as f64, "{mean} of {RATE}: {rates:?}");
    let trouble = site.last().unwrap()["servers"][1]["trouble"].to_string();
    assert!(trouble.contains("nobody listens"), "{trouble}");
    // Somebody does: it is told once.
    let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    controller.said("web2: somebody listens at its accept_queue again");
    assert_eq!(controller.err().matches("nobody listens").count(), 1);
    assert_eq!(load.counts().1, 0);
}
