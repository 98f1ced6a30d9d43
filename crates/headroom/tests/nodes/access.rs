//! Who may command an agent and a gateway, as real programs: lists, limits, revocation, floods.

use crate::common::{Certs, Group, Program, apply, headroom, run, until};
use headroom_wire::Address;
use headroom_wire::certs::Validity;
use headroom_wire::client::{Client, ClientOptions, GatewayClient};
use headroom_wire::message::{BackendState, SetBackend};
use headroom_wire::tls::{ClientTls, TlsFiles};
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(120);

fn options(certs: &Certs, stem: &str) -> ClientOptions {
    let file = |name: String| certs.dir().join(name);
    let files = TlsFiles {
        ca: file("ca.crt".to_owned()),
        certificate: file(format!("{stem}.crt")),
        key: file(format!("{stem}.key")),
        revoked: None,
    };
    ClientOptions {
        tls: Some(ClientTls::load(&files).unwrap()),
        ..ClientOptions::default()
    }
}

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
    let file = dir.join("agent.toml");
    let text = format!(
        "[agent]\nlisten = [\"127.0.0.1:0\"]\naudit = \"{}\"\n\n{}revoked = \"{}\"\n{sections}\n[service]\ncgroup = \"{}\"\n",
        dir.join("audit.jsonl").display(),
        certs.section("node-n1"),
        certs.dir().join("ca.crl").display(),
        group.path()
    );
    fs::write(&file, text).unwrap();
    let mut command = headroom();
    command.args(["agent", "--config"]).arg(&file);
    let mut program = Program::start(command.arg("--run-dir").arg(dir.join("run")));
    let address = program.said("listening on ").parse().unwrap();
    (program, address)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn an_agent_is_commanded_by_whom_its_file_names_down_to_its_least_until_they_are_revoked() {
    let Some(group) = Group::new() else { return };
    let (certs, dir) = (certs(), tempfile::tempdir().unwrap());
    let sections = "\n[access]\noperators = [\"controller\"]\n\n[limits]\ncores = 0.4\n";
    let (mut program, address) = agent(&group, dir.path(), &certs, sections);
    let controller = options(&certs, "controller");
    for stem in ["controller-b", "reader-grafana"] {
        let error = apply(&address, &options(&certs, stem), 9, 0.5, LONG)
            .unwrap_err()
            .to_string();
        assert!(error.contains("is not for"), "{stem}: {error}");
    }
    let error = apply(&address, &controller, 7, 0.2, LONG)
        .unwrap_err()
        .to_string();
    assert!(error.contains("limits.cores = 0.4"), "{error}");
    assert_eq!(group.cores(), None, "nothing was changed");
    apply(&address, &controller, 7, 0.5, LONG).unwrap();
    assert_eq!(group.cores(), Some(0.5));

    let runtime = runtime();
    let open = runtime.block_on(Client::connect(&address, &controller)).unwrap();
    let (code, out, err) = run(headroom()
        .args(["certs", "revoke", "controller", "--dir"])
        .arg(certs.dir()));
    assert_eq!(code, Some(0), "{err}");
    assert!(
        out.contains("ca.crl") && out.contains("revoked 1 certificates"),
        "{out}"
    );
    until("the end of the revoked connection", || {
        // Its connection is looked after by this thread's runtime.
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(50)).await });
        (!open.is_connected()).then_some(())
    });
    let error = apply(&address, &controller, 7, 0.6, LONG)
        .unwrap_err()
        .to_string();
    assert!(error.contains("revoked"), "{error}");
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
    let controller = options(&certs, "controller");
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
    let mut command = headroom();
    command.args([
        "gateway",
        "--listen",
        "127.0.0.1:0",
        "--backend",
        "http://127.0.0.1:9",
    ]);
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
    };
    runtime().block_on(async {
        let reader = GatewayClient::connect(&address, &options(&certs, "reader-grafana"))
            .await
            .unwrap();
        let error = reader.set_backend(drain).await.unwrap_err().to_string();
        assert!(error.contains("SetBackend is not for \"grafana\""), "{error}");
        let error = reader.set_levers(Vec::new()).await.unwrap_err().to_string();
        assert!(error.contains("SetLevers is not for \"grafana\""), "{error}");
        let error = reader
            .observe(Duration::from_millis(50))
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("Observe is not for \"grafana\""), "{error}");
        let error = GatewayClient::connect(&address, &options(&certs, "controller-b")).await;
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("in the list of operators")
        );
        let operator = GatewayClient::connect(&address, &options(&certs, "controller"))
            .await
            .unwrap();
        assert_eq!(
            operator.set_backend(drain).await.unwrap().state,
            BackendState::Drain
        );
        let error = GatewayClient::connect(&address, &options(&certs, "reader-gone")).await;
        assert!(error.unwrap_err().to_string().contains("revoked"));
    });
    program.stop();
}
