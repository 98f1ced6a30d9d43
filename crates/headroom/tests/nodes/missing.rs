//! A node that cannot be reached: it counts as having everything on, and nothing is saved by losing it.

use crate::common::{Config, Gateway, Program, assert_has, get, headroom, succeeds, until};
use crate::parts::{Plain, status};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;

/// A metric of the last period.
/// The cores of all nodes.
const CORES: &str = "headroom_cores{role=\"cluster\",part=\"all\"}";

fn metric(admin: SocketAddr, name: &str) -> Option<f64> {
    let metrics = get(admin, "/metrics").ok()?.body;
    let value = metrics
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    value.parse().ok()
}

fn summary(controller: &Program) -> Value {
    serde_json::from_str(&controller.out()).unwrap()
}

fn count(summary: &Value, key: &str) -> u64 {
    summary["conditions"][key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key}: {summary}"))
}

/// The first two runs of a record against each other, as JSON and as the page.
fn compared(db: &Path, out: &Path) -> (Value, String) {
    let json = succeeds(headroom("report 1 2 --json --db").arg(db).arg("--out").arg(out)).out();
    (
        serde_json::from_str(&json).unwrap(),
        std::fs::read_to_string(out).unwrap(),
    )
}

#[test]
fn a_node_that_is_killed_counts_as_full_and_saves_nothing() {
    let (one, two, mut three) = (Plain::start(), Plain::start(), Plain::start());
    let gateway = Gateway::of_nobody();
    let nodes = [("n1", one.at()), ("n2", two.at()), ("n3", three.at())];
    let config = Config::controller(&nodes, &gateway.control(), 2000).with("slo-power", "fixed");

    let (mut controller, admin) = config.start();
    until("all three are counted", || {
        (metric(admin, CORES)? == 12.0 && metric(admin, "headroom_nodes_missing")? == 0.0).then_some(())
    });
    until("some periods", || {
        (status(admin)?["observation"]["period"].as_u64()? > 15).then_some(())
    });
    controller.stop();
    let whole = summary(&controller);
    assert_eq!(count(&whole, "nodes_missing_periods"), 0, "{whole}");
    assert_eq!(
        whole["conditions"]["nodes"],
        serde_json::json!(["n1", "n2", "n3"])
    );
    assert!(whole["energy_j"]["value"].as_f64().unwrap() > 0.0, "{whole}");

    let (mut controller, admin) = config.start();
    until("all three are counted again", || {
        (metric(admin, CORES)? == 12.0).then_some(())
    });
    three.program.kill();
    let lost = until("the loss is noticed", || {
        let seen = status(admin)?;
        (metric(admin, "headroom_nodes_missing")? == 1.0).then_some(seen["observation"]["period"].as_u64()?)
    });
    until("some periods without it", || {
        (status(admin)?["observation"]["period"].as_u64()? > lost + 15).then_some(())
    });
    assert_eq!(metric(admin, CORES), Some(12.0));
    assert_eq!(
        metric(admin, "headroom_node_cpu_watts{source=\"estimated\"}"),
        None
    );
    // The law has what it can command.
    assert_eq!(status(admin).unwrap()["observation"]["in_force"]["cores"], 8.0);
    controller.stop();
    let cut = summary(&controller);
    assert!(count(&cut, "nodes_missing_periods") > 10, "{cut}");
    assert!(
        count(&cut, "energy_unknown_periods") >= count(&cut, "nodes_missing_periods"),
        "{cut}"
    );
    let cores = |summary: &Value| summary["cores"]["mean"].as_f64().unwrap();
    assert!((cores(&cut) - cores(&whole)).abs() < 1e-9, "{whole}\n{cut}");

    let (json, page) = compared(&config.dir().join("record.db"), &config.dir().join("both.html"));
    let comparison = &json[1]["comparison"];
    assert_eq!(comparison["holds"], false, "{comparison}");
    assert!(comparison["saving"].is_null(), "{comparison}");
    let why = comparison["why"].to_string();
    assert_has(&why, &["nodes were missing in", "energy is unknown in"]);
    assert!(page.contains("the comparison does not hold") && !page.contains("% less energy"));
    assert!(page.contains("Where these figures come from") && page.contains("n1 n2 n3"));
}

#[test]
fn the_laws_are_made_for_a_node_that_comes_after_the_start() {
    let (one, mut two) = (Plain::start(), Plain::start());
    two.program.kill();
    let gateway = Gateway::of_nobody();
    let nodes = [("n1", one.at()), ("n2", two.at())];
    // All that n1 has, so that a plant of n1 alone would have it mean everything.
    let constant = "\"constant\"\nconstant.setting = { cores = 4.0 }\n";
    let config = Config::controller(&nodes, &gateway.control(), 2000)
        .with("\"slo-power\"", constant)
        .with("wait_s = 20", "wait_s = 1");
    let (mut controller, admin) = config.start();
    let in_force = || status(admin)?["observation"]["in_force"]["cores"].as_f64();
    until("n1 is commanded", || in_force().filter(|cores| *cores == 4.0));
    two.again();
    until("the cores are spread over both", || {
        one.cores()
            .zip(two.cores())
            .filter(|(one, two)| one + two == 4.0 && *two > 0.0)
    });
    assert_has(controller.err(), &["the laws that set machines begin anew"]);
    controller.stop();
}

#[test]
fn a_node_that_was_never_reached_counts_as_the_largest_of_the_others() {
    let (one, two) = (Plain::start(), Plain::start());
    let gateway = Gateway::of_nobody();
    let nowhere = format!("unix:{}", one.dir.path().join("none.sock").display());
    let nodes = [("n1", one.at()), ("n2", two.at()), ("n3", nowhere)];
    let config = Config::controller(&nodes, &gateway.control(), 2000)
        .with("slo-power", "fixed")
        .with("wait_s = 20", "wait_s = 1");
    let (mut controller, admin) = config.start();
    until("it is counted", || {
        (metric(admin, CORES)? == 12.0 && metric(admin, "headroom_nodes_missing")? == 1.0).then_some(())
    });
    controller.stop();
    let summary = summary(&controller);
    assert_eq!(
        count(&summary, "nodes_missing_periods"),
        summary["periods"].as_u64().unwrap()
    );
    assert!(summary["energy_j"]["value"].is_null(), "{summary}");
    assert_eq!(
        summary["conditions"]["nodes"],
        serde_json::json!(["n1", "n2", "n3"])
    );
}

#[test]
fn one_node_that_refuses_keeps_nobody_from_starting() {
    let (one, two) = (Plain::start(), Plain::start());
    // What it would write can no longer be written, as on a full disk.
    let records = two.dir.path().join("run");
    std::fs::remove_dir_all(&records).unwrap();
    std::fs::write(&records, "").unwrap();
    let gateway = Gateway::of_nobody();
    let nodes = [("n1", one.at()), ("n2", two.at())];
    let config = Config::controller(&nodes, &gateway.control(), 2000).with("slo-power", "fixed");
    let (mut controller, admin) = config.start();
    let status = until("the other is commanded", || {
        let status = status(admin)?;
        let state = |at: usize| status["nodes"][at]["state"].as_str().map(str::to_owned);
        (state(0)? == "held" && state(1)? == "refusing").then_some(status)
    });
    assert!(!status["nodes"][1]["trouble"].is_null(), "{status}");
    controller.stop();
}
