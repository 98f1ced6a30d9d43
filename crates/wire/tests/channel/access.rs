//! What each role may do over real connections, and how certificates are revoked and replaced while they are in use.

use crate::common::{Certs, Running, apply};
use headroom_wire::access::{Access, Rules};
use headroom_wire::certs::Validity;
use headroom_wire::client::{CallError, Client, ClientOptions};
use headroom_wire::server::{Limits, Listen};
use headroom_wire::tls::{ClientTls, ServerTls, TlsFiles};
use headroom_wire::{Address, Refusal};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Far longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn year() -> Validity {
    Validity::days(365).unwrap()
}

fn options(files: &TlsFiles) -> ClientOptions {
    ClientOptions {
        tls: Some(ClientTls::load(files).unwrap()),
        ..ClientOptions::default()
    }
}

fn listen(files: &TlsFiles) -> Listen {
    Listen::Tcp {
        address: "127.0.0.1:0".parse().unwrap(),
        tls: ServerTls::load(files).unwrap(),
    }
}

/// Looks at its files all the time.
fn quick() -> Limits {
    Limits {
        recheck: Duration::from_millis(20),
        ..Limits::default()
    }
}

fn refusal<T: std::fmt::Debug>(outcome: Result<T, CallError>) -> Refusal {
    match outcome {
        Err(CallError::Refused(refusal)) => refusal,
        other => panic!("no refusal: {other:?}"),
    }
}

async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "{what} never came");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_reader_observes_and_commands_nothing() {
    let certs = Certs::new();
    certs.authority.issue_reader("grafana", year()).unwrap();
    let running = Running::start(certs.listen(), Limits::default()).await;
    let client = Client::connect(&running.address, &options(&certs.files("reader-grafana")))
        .await
        .unwrap();
    let mut samples = client.observe(Duration::from_millis(20)).await.unwrap();
    assert!(samples.next().await.unwrap().is_some());
    let words = refusal(client.apply(apply(2.0, 60.0)).await).to_string();
    assert!(
        words.contains("\"grafana\"") && words.contains("reader") && words.contains("issue-controller"),
        "{words}"
    );
    let held = refusal(client.release(&apply(2.0, 60.0).holder).await);
    assert!(matches!(held, Refusal::Forbidden { .. }), "{held}");
    assert_eq!(running.echo.callers.lock().unwrap()[0].access, Access::Reader);
    running.stop().await;
}

#[tokio::test]
async fn a_list_of_operators_keeps_out_other_controllers_of_the_same_authority() {
    let certs = Certs::new();
    certs
        .authority
        .issue_controller_named("controller-a", year())
        .unwrap();
    let rules = Rules::new(Some(vec!["controller-a".into()]), None).unwrap();
    let running = Running::start_by(certs.listen(), Limits::default(), rules).await;
    let named = options(&certs.files("controller-controller-a"));
    let named = Client::connect(&running.address, &named).await.unwrap();
    named.apply(apply(2.0, 60.0)).await.unwrap();
    let words = refusal(Client::connect(&running.address, &certs.options()).await).to_string();
    assert!(
        words.contains("Describe is not for \"controller\", which has here the access of no role")
            && words.contains("in the list of operators"),
        "{words}"
    );
    running.stop().await;
}

#[tokio::test]
async fn a_revoked_certificate_is_kept_out_and_its_open_connection_ended() {
    let certs = Certs::new();
    certs.authority.issue_controller_named("stolen", year()).unwrap();
    // A list must be there to be named: one that revokes somebody else.
    certs.authority.issue_reader("gone", year()).unwrap();
    certs.authority.revoke("gone").unwrap();
    let files = TlsFiles {
        revoked: Some(certs.dir.path().join("ca.crl")),
        ..certs.files("node-n1")
    };
    let running = Running::start(listen(&files), quick()).await;
    let stolen = options(&certs.files("controller-stolen"));
    let client = Client::connect(&running.address, &stolen).await.unwrap();
    let other = Client::connect(&running.address, &certs.options()).await.unwrap();
    assert_eq!(certs.authority.revoke("stolen").unwrap().0, 1);
    until("the end of its connection", async || !client.is_connected()).await;
    let told = running.rejection().await;
    assert!(told.contains("cut off") && told.contains("was revoked"), "{told}");
    let error = Client::connect(&running.address, &stolen)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("does not accept our certificate: it was revoked"),
        "{error}"
    );
    other.apply(apply(2.0, 60.0)).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_node_whose_certificate_was_revoked_is_not_commanded() {
    let certs = Certs::new();
    certs.authority.revoke("n1").unwrap();
    let running = Running::start(certs.listen(), Limits::default()).await;
    let files = TlsFiles {
        revoked: Some(certs.dir.path().join("ca.crl")),
        ..certs.files("controller")
    };
    let error = Client::connect(&running.address, &options(&files))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("the agent's certificate was revoked"), "{error}");
    running.stop().await;
}

#[tokio::test]
async fn what_was_replaced_can_be_revoked_and_what_replaces_it_is_good() {
    let certs = Certs::new();
    let old = tempfile::tempdir().unwrap();
    for name in ["ca.crt", "controller.crt", "controller.key"] {
        std::fs::copy(certs.dir.path().join(name), old.path().join(name)).unwrap();
    }
    let crt = certs.dir.path().join("controller.crt");
    certs.authority.renew(&crt, year()).unwrap();
    assert_eq!(
        certs.authority.revoke("controller").unwrap().0,
        2,
        "both of that name"
    );
    certs.authority.renew(&crt, year()).unwrap();
    let files = TlsFiles {
        revoked: Some(certs.dir.path().join("ca.crl")),
        ..certs.files("node-n1")
    };
    let running = Running::start(listen(&files), Limits::default()).await;
    let stolen = options(&crate::common::files(old.path(), "controller"));
    let error = Client::connect(&running.address, &stolen)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("revoked"), "{error}");
    Client::connect(&running.address, &certs.options()).await.unwrap();
    running.stop().await;

    let error = certs.authority.revoke("nobody").unwrap_err().to_string();
    assert!(
        error.contains("\"nobody\" is no name of a certificate"),
        "{error}"
    );
}

#[tokio::test]
async fn renewed_files_are_served_without_a_restart_and_bad_ones_are_not() {
    let certs = Certs::new();
    let files = certs.files("node-n1");
    let tls = ServerTls::load(&files).unwrap();
    let place = Listen::Tcp {
        address: "127.0.0.1:0".parse().unwrap(),
        tls: tls.clone(),
    };
    let running = Running::start(place, quick()).await;
    let ends = async || {
        let client = Client::connect(&running.address, &certs.options()).await.unwrap();
        client.certificate_ends().unwrap()
    };
    let first = ends().await;
    let open = Client::connect(&running.address, &certs.options()).await.unwrap();
    assert!(tls.days_left() > 300);

    let good = std::fs::read(&files.certificate).unwrap();
    std::fs::write(&files.certificate, "no certificate").unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(ends().await, first, "the one before is kept");
    std::fs::write(&files.certificate, good).unwrap();

    certs
        .authority
        .renew(&files.certificate, Validity::days(20).unwrap())
        .unwrap();
    until("the new certificate", async || ends().await < first).await;
    assert!(tls.days_left() < 20);
    assert!(open.is_connected(), "nobody was cut off by it");
    running.stop().await;
}

#[tokio::test]
async fn idle_connections_keep_no_controller_out() {
    let certs = Certs::new();
    let running = Running::start(certs.listen(), Limits::default()).await;
    let mut idle = Vec::new();
    for _ in 0..64 {
        idle.push(TcpStream::connect(running.address.to_string()).await.unwrap());
    }
    // Well under the time that each of them has for its handshake.
    let options = certs.options();
    let connected = tokio::time::timeout(
        Limits::default().handshake_time * 2 / 3,
        Client::connect(&running.address, &options),
    );
    connected.await.expect("no wait for the idle ones").unwrap();
    // The first of them gave up its place.
    let mut end = [0; 1];
    let ended = tokio::time::timeout(PATIENCE, idle[0].read(&mut end))
        .await
        .unwrap();
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    running.stop().await;
}

#[tokio::test]
async fn readers_leave_half_of_the_connections_to_operators() {
    let certs = Certs::new();
    certs.authority.issue_reader("grafana", year()).unwrap();
    let limits = Limits {
        connections: 4,
        ..Limits::default()
    };
    let running = Running::start(certs.listen(), limits).await;
    let reader = options(&certs.files("reader-grafana"));
    let mut open = Vec::new();
    for _ in 0..2 {
        open.push(Client::connect(&running.address, &reader).await.unwrap());
    }
    Client::connect(&running.address, &reader).await.unwrap_err();
    assert!(
        running
            .rejection()
            .await
            .contains("2 connections of readers are open")
    );
    Client::connect(&running.address, &certs.options()).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn the_owner_of_a_unix_socket_is_its_operator() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let nobody = Rules::new(Some(vec![]), Some(vec![])).unwrap();
    let running = Running::start_by(Listen::Unix { path: path.clone() }, Limits::default(), nobody).await;
    let client = Client::connect(&Address::Unix(path), &ClientOptions::default())
        .await
        .unwrap();
    client.apply(apply(2.0, 60.0)).await.unwrap();
    let uid = rustix::process::geteuid().as_raw();
    let caller = running.echo.callers.lock().unwrap()[0].clone();
    assert_eq!(caller.identity.to_string(), format!("uid:{uid}"));
    running.stop().await;
}

#[test]
fn a_file_without_a_list_is_not_taken_for_an_empty_one() {
    let certs = Certs::new();
    let load = |revoked: &Path| {
        let files = TlsFiles {
            revoked: Some(revoked.into()),
            ..certs.files("node-n1")
        };
        ServerTls::load(&files).unwrap_err().to_string()
    };
    let none = load(&certs.dir.path().join("ca.crl"));
    assert!(none.contains("ca.crl"), "{none}");
    let wrong = load(&certs.dir.path().join("ca.crt"));
    assert!(
        wrong.contains("ca.crt cannot be used: it holds no revocation list"),
        "{wrong}"
    );
}
