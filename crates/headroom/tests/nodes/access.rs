//! Who may command an agent and a gateway, as real programs: lists, limits, revocation, floods.

use crate::common::{Group, Program, assert_has, headroom, succeeds, wait};
use crate::parts::{Certs, agent_on, apply, listening, runtime};
use headroom_wire::Address;
use headroom_wire::certs::Validity;
use headroom_wire::client::{Client, GatewayClient, Observer};
use headroom_wire::message::{BackendState, SetBackend};
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(120);

/// With a second controller and a reader, and a revocation list.
fn certs() -> Certs {
    let certs = Certs::new();
    let year = Validity::days(365).unwrap();
    certs.authority().issue_controller_named("b", year).unwrap();
    certs.authority().issue_reader("grafana", year).unwrap();
    certs.authority().issue_reader("gone", year).unwrap();
    certs.authority().revoke("gone").unwrap();
    certs
}

fn agent(group: &Group, dir: &Path, certs: &Certs, sections: &str) -> (Program, Address) {
    let (audit, list) = (dir.join("audit.jsonl"), certs.dir().join("ca.crl"));
    let agent = format!("[\"127.0.0.1:0\"]\naudit = \"{}\"", audit.display());
    let tls = certs.section("node-n1");
    let sections = format!("{tls}revoked = \"{}\"\n{sections}", list.display());
    listening(agent_on(group, dir, &agent, &sections))
}

#[test]
fn an_agent_is_commanded_by_whom_its_file_names_down_to_its_least_until_they_are_revoked() {
    let Some(group) = Group::new() else { return };
    let (certs, dir) = (certs(), tempfile::tempdir().unwrap());
    let sections = "\n[access]\noperators = [\"controller\"]\n\n[limits]\ncores = 0.4\n";
    let (mut program, address) = agent(&group, dir.path(), &certs, sections);
    let controller = certs.client("controller");
    for stem in ["controller-b", "reader-grafana"] {
        let error = apply(&address, &certs.client(stem), 9, 0.5, LONG)
            .unwrap_err()
            .to_string();
        assert!(error.contains("is not for"), "{stem}: {error}");
    }
    let error = apply(&address, &controller, 7, 0.2, LONG)
        .unwrap_err()
        .to_string();
    assert_has(&error, &["limits.cores = 0.4"]);
    assert_eq!(group.cores(), None, "nothing was changed");
    apply(&address, &controller, 7, 0.5, LONG).unwrap();
    assert_eq!(group.cores(), Some(0.5));

    let runtime = runtime();
    let open = runtime.block_on(Client::connect(&address, &controller)).unwrap();
    let out = succeeds(headroom("certs revoke controller --dir").arg(certs.dir())).out();
    assert_has(&out, &["ca.crl", "revoked 1 certificates"]);
    wait("the end of the revoked connection", || {
        // Its connection is looked after by this thread's runtime.
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(50)).await });
        !open.is_connected()
    });
    let error = apply(&address, &controller, 7, 0.6, LONG)
        .unwrap_err()
        .to_string();
    assert_has(&error, &["revoked"]);
    program.stop();
    assert_eq!(group.cores(), None);
    let audit = fs::read_to_string(dir.path().join("audit.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> = audit
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let done: Vec<_> = lines.iter().filter(|line| line["outcome"] == "done").collect();
    assert_eq!(done.len(), 1, "{audit}");
    assert_eq!(
        (&done[0]["peer"], &done[0]["after"]["cores"]),
        (&"controller".into(), &0.5.into())
    );
    // One that is kept out by its role may not even ask what the node is.
    assert!(
        lines
            .iter()
            .any(|line| line["peer"] == "b" && line["call"] == "describe"),
        "{audit}"
    );
}

#[test]
fn a_flood_of_connections_is_a_few_lines_of_log_and_the_controller_keeps_its_node() {
    let Some(group) = Group::new() else { return };
    let (certs, dir) = (certs(), tempfile::tempdir().unwrap());
    let (mut program, address) = agent(&group, dir.path(), &certs, "");
    let controller = certs.client("controller");
    let idle: Vec<_> = (0..64)
        .map(|_| TcpStream::connect(address.to_string()).unwrap())
        .collect();
    for _ in 0..500 {
        let mut junk = TcpStream::connect(address.to_string()).unwrap();
        junk.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    }
    apply(&address, &controller, 7, 0.5, LONG).unwrap();
    drop(idle);
    program.stop();
    let rejected = program
        .err()
        .lines()
        .filter(|line| line.contains("connection rejected"))
        .count();
    // Five in each ten seconds; the slowest machine needs a few of these.
    assert!((1..=30).contains(&rejected), "{rejected} lines");
}

#[test]
fn a_gateway_is_commanded_by_operators_and_described_to_readers() {
    let certs = certs();
    let file = |name: &str| certs.dir().join(name);
    let mut command = headroom("gateway --listen 127.0.0.1:0 --backend http://127.0.0.1:9");
    command.args([
        "--control",
        "127.0.0.1:0",
        "--control-operator",
        "controller",
        "--control-ca",
    ]);
    command
        .arg(file("ca.crt"))
        .arg("--control-cert")
        .arg(file("node-n1.crt"));
    command.arg("--control-key").arg(file("node-n1.key"));
    command.arg("--control-revoked").arg(file("ca.crl"));
    let mut program = Program::start(&mut command);
    let address: Address = program.said("control on ").parse().unwrap();
    let drain = SetBackend {
        backend: 0,
        state: Some(BackendState::Drain),
        weight: None,
        bound: None,
    };
    runtime().block_on(async {
        let reader = GatewayClient::connect(&address, &certs.client("reader-grafana"))
            .await
            .unwrap();
        let error = reader.set_backend(drain).await.unwrap_err().to_string();
        assert_has(&error, &["SetBackend is not for \"grafana\""]);
        let error = reader
            .set_levers(Vec::new(), Duration::ZERO)
            .await
            .unwrap_err()
            .to_string();
        assert_has(&error, &["SetLevers is not for \"grafana\""]);
        let error = reader
            .observe(Duration::from_millis(50), Observer::Commands)
            .await
            .unwrap_err()
            .to_string();
        assert_has(&error, &["Observe is not for \"grafana\""]);
        let error = GatewayClient::connect(&address, &certs.client("controller-b")).await;
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("in the list of operators")
        );
        let operator = GatewayClient::connect(&address, &certs.client("controller"))
            .await
            .unwrap();
        assert_eq!(
            operator.set_backend(drain).await.unwrap().state,
            BackendState::Drain
        );
        let error = GatewayClient::connect(&address, &certs.client("reader-gone")).await;
        assert!(error.unwrap_err().to_string().contains("revoked"));
    });
    program.stop();
}
