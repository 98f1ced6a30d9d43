//! The contract over TCP: who is let in, and what each end says when somebody is not.

use crate::common::{Certs, Running, apply, files};
use headroom_wire::Address;
use headroom_wire::access::Access;
use headroom_wire::certs::{Authority, Validity};
use headroom_wire::client::{CallError, Client, ClientOptions};
use headroom_wire::server::Limits;
use headroom_wire::tls::{ClientTls, ServerTls, TlsError};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const DAY: Duration = Duration::from_secs(86_400);

fn socket(address: &Address) -> String {
    address.to_string()
}

/// A client of another make: with any certificate or none, and no checks of its own files. It answers what it was told
/// by the server's end of the handshake.
async fn foreign_client(
    certs: &Certs,
    address: &Address,
    shown: Option<(&std::path::Path, &str)>,
    version: &'static rustls::SupportedProtocolVersion,
) -> std::io::Result<Vec<u8>> {
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(certs.dir.path().join("ca.crt")).unwrap())
        .unwrap();
    let builder =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots);
    let mut config = match shown {
        None => builder.with_no_client_auth(),
        Some((dir, stem)) => {
            let files = files(dir, stem);
            let chain = vec![CertificateDer::from_pem_file(&files.certificate).unwrap()];
            builder
                .with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(&files.key).unwrap())
                .unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(socket(address)).await?;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await?;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
    let mut answer = vec![0; 1];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn the_right_certificates_are_let_in() {
    let certs = Certs::new();
    let running = Running::start(certs.listen(), Limits::default()).await;
    let client = Client::connect(&running.address, &certs.options()).await.unwrap();
    assert_eq!(
        client.apply(apply(2.0, 60.0)).await.unwrap().in_force,
        apply(2.0, 60.0).setting
    );
    let caller = running.echo.callers.lock().unwrap()[0].clone();
    assert_eq!(caller.identity.to_string(), "controller");
    assert_eq!(caller.access, Access::Operator);
    assert!(running.rejected.lock().unwrap().is_empty());
    running.stop().await;
}

#[tokio::test]
async fn a_controller_of_another_authority_is_kept_out_and_both_ends_say_why() {
    let (certs, other) = (Certs::new(), Certs::new());
    let running = Running::start(certs.listen(), Limits::default()).await;
    // The client would not trust this agent either, so it is given this agent's authority beside its own certificate:
    // what remains wrong is what it shows.
    let answer = foreign_client(
        &certs,
        &running.address,
        Some((other.dir.path(), "controller")),
        &rustls::version::TLS13,
    )
    .await;
    assert!(answer.is_err());
    let told = running.rejection().await;
    assert!(
        told.contains("the client's certificate was signed by another authority"),
        "{told}"
    );
    assert!(told.contains("controller.crt"), "{told}");
    running.stop().await;

    // Seen by our own client, which checks the agent first.
    let running = Running::start(certs.listen(), Limits::default()).await;
    let error = Client::connect(&running.address, &other.options())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("the agent's certificate was signed by another authority"),
        "{error}"
    );
    let told = running.rejection().await;
    assert!(
        told.contains("the client does not accept our certificate: another authority"),
        "{told}"
    );
    running.stop().await;
}

#[tokio::test]
async fn a_client_without_a_certificate_is_kept_out() {
    let certs = Certs::new();
    let running = Running::start(certs.listen(), Limits::default()).await;
    let answer = foreign_client(&certs, &running.address, None, &rustls::version::TLS13).await;
    assert!(answer.unwrap_err().to_string().contains("CertificateRequired"));
    let told = running.rejection().await;
    assert!(told.contains("the client showed no certificate"), "{told}");
    running.stop().await;

    let none = ClientOptions::default();
    let address = Address::Tcp {
        host: "127.0.0.1".into(),
        port: 1,
    };
    let error = Client::connect(&address, &none).await.unwrap_err();
    assert!(matches!(error, CallError::NoCertificate { .. }), "{error}");
}

#[tokio::test]
async fn an_expired_client_certificate_is_kept_out() {
    let certs = Certs::new();
    let elsewhere = tempfile::tempdir().unwrap();
    for name in ["ca.crt", "ca.key"] {
        std::fs::copy(certs.dir.path().join(name), elsewhere.path().join(name)).unwrap();
    }
    let past = Validity::starting(SystemTime::now() - DAY * 20, 10).unwrap();
    Authority::open(elsewhere.path())
        .unwrap()
        .issue_controller(past)
        .unwrap();
    let running = Running::start(certs.listen(), Limits::default()).await;
    let shown = Some((elsewhere.path(), "controller"));
    let answer = foreign_client(&certs, &running.address, shown, &rustls::version::TLS13).await;
    assert!(answer.unwrap_err().to_string().contains("CertificateExpired"));
    let told = running.rejection().await;
    assert!(
        told.contains("the client's certificate expired 10 days ago: renew it"),
        "{told}"
    );
    running.stop().await;

    // Our own ends do not even start with one.
    let error = ClientTls::load(&files(elsewhere.path(), "controller")).unwrap_err();
    assert!(matches!(error, TlsError::NotValid { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("controller.crt: certificate expired 10 days ago"),
        "{error}"
    );
}

#[tokio::test]
async fn a_node_cannot_command_another_node() {
    let certs = Certs::new();
    let running = Running::start(certs.listen(), Limits::default()).await;
    let shown = Some((certs.dir.path(), "node-n1"));
    let answer = foreign_client(&certs, &running.address, shown, &rustls::version::TLS13).await;
    assert!(answer.is_err());
    let told = running.rejection().await;
    assert!(
        told.contains("a certificate that is not the controller's"),
        "{told}"
    );
    running.stop().await;
}

#[tokio::test]
async fn cleartext_is_kept_out() {
    let certs = Certs::new();
    let running = Running::start(certs.listen(), Limits::default()).await;
    let mut stream = TcpStream::connect(socket(&running.address)).await.unwrap();
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    let mut answer = vec![];
    let _ = stream.read_to_end(&mut answer).await;
    assert!(
        answer.is_empty() || answer[0] == 21,
        "nothing but a TLS alert: {answer:?}"
    );
    let told = running.rejection().await;
    assert!(told.contains("the client does not speak TLS"), "{told}");
    running.stop().await;
}

#[tokio::test]
async fn an_old_tls_version_is_kept_out() {
    let certs = Certs::new();
    let running = Running::start(certs.listen(), Limits::default()).await;
    let shown = Some((certs.dir.path(), "controller"));
    assert!(
        foreign_client(&certs, &running.address, shown, &rustls::version::TLS12)
            .await
            .is_err()
    );
    let told = running.rejection().await;
    assert!(told.contains("the client does not speak TLS 1.3"), "{told}");
    running.stop().await;
}

#[tokio::test]
async fn an_agent_reached_by_a_name_that_it_has_not_is_refused_by_the_client() {
    let certs = Certs::new();
    let running = Running::start(certs.listen(), Limits::default()).await;
    let options = ClientOptions {
        server_name: Some("n2".into()),
        ..certs.options()
    };
    let error = Client::connect(&running.address, &options).await.unwrap_err();
    // It is there, whoever it is.
    assert!(matches!(error, CallError::Unreachable { .. }), "{error:?}");
    let error = error.to_string();
    assert!(error.contains("good for n1, 127.0.0.1, not for n2"), "{error}");
    let by_name = ClientOptions {
        server_name: Some("n1".into()),
        ..certs.options()
    };
    Client::connect(&running.address, &by_name).await.unwrap();
    let address = running.address.clone();
    running.stop().await;
    let error = Client::connect(&address, &by_name).await.unwrap_err();
    assert!(
        matches!(
            error,
            CallError::NotListening {
                is_missing: false,
                ..
            }
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn our_own_client_is_told_why_the_agent_does_not_let_it_in() {
    // Both authorities are trusted by the client, only one by the agent.
    let (certs, other) = (Certs::new(), Certs::new());
    let both = tempfile::tempdir().unwrap();
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let bundle = read(other.dir.path().join("ca.crt")) + &read(certs.dir.path().join("ca.crt"));
    std::fs::write(both.path().join("ca.crt"), bundle).unwrap();
    for name in ["controller.crt", "controller.key"] {
        std::fs::copy(other.dir.path().join(name), both.path().join(name)).unwrap();
    }
    let tls = ClientTls::load(&files(both.path(), "controller")).unwrap();
    let options = ClientOptions {
        tls: Some(tls),
        ..ClientOptions::default()
    };
    let running = Running::start(certs.listen(), Limits::default()).await;
    for _ in 0..10 {
        let error = Client::connect(&running.address, &options)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("the agent does not accept our certificate: another authority signed it"),
            "{error}"
        );
    }
    running.stop().await;
}

#[tokio::test]
async fn an_agent_that_speaks_no_tls_is_told_as_such() {
    let certs = Certs::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::Tcp {
        host: "127.0.0.1".into(),
        port: listener.local_addr().unwrap().port(),
    };
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
        let mut rest = vec![0; 1024];
        while stream.read(&mut rest).await.is_ok_and(|n| n > 0) {}
    });
    let error = Client::connect(&address, &certs.options())
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("the agent does not speak TLS"), "{error}");
    server.await.unwrap();
}

#[tokio::test]
async fn a_peer_that_says_nothing_is_given_up() {
    let certs = Certs::new();
    let limits = Limits {
        handshake_time: Duration::from_millis(200),
        handshakes: 1,
        ..Limits::default()
    };
    let running = Running::start(certs.listen(), limits).await;
    let _silent = TcpStream::connect(socket(&running.address)).await.unwrap();
    assert!(
        running
            .rejection()
            .await
            .contains("no TLS handshake within 0.2 s")
    );
    Client::connect(&running.address, &certs.options()).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn an_agent_that_takes_the_connection_and_says_nothing_is_given_up() {
    let certs = Certs::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::Tcp {
        host: "127.0.0.1".into(),
        port: listener.local_addr().unwrap().port(),
    };
    let options = ClientOptions {
        connect_time: Duration::from_millis(200),
        ..certs.options()
    };
    let error = Client::connect(&address, &options).await.unwrap_err().to_string();
    assert!(error.contains("no connection within 0.2 s"), "{error}");
}

#[test]
fn files_that_do_not_fit_are_named() {
    let certs = Certs::new();
    let words = |error: TlsError| error.to_string();

    let error = words(ServerTls::load(&certs.files("controller")).unwrap_err());
    assert!(
        error.contains("is the certificate of the controller") && error.contains("needs a node"),
        "{error}"
    );
    let error = words(ClientTls::load(&certs.files("node-n1")).unwrap_err());
    assert!(error.contains("needs the controller"), "{error}");

    let mut mixed = certs.files("node-n1");
    mixed.key = certs.dir.path().join("controller.key");
    let error = words(ServerTls::load(&mixed).unwrap_err());
    assert!(error.contains("controller.key does not belong to"), "{error}");

    let other = Certs::new();
    let mut mixed = certs.files("node-n1");
    mixed.ca = other.dir.path().join("ca.crt");
    let error = words(ServerTls::load(&mixed).unwrap_err());
    assert!(error.contains("node-n1.crt does not belong to"), "{error}");

    let mut missing = certs.files("node-n1");
    missing.key = certs.dir.path().join("nowhere.key");
    let error = words(ServerTls::load(&missing).unwrap_err());
    assert!(error.contains("nowhere.key: No such file"), "{error}");

    let exposed = certs.files("node-n1");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&exposed.key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = words(ServerTls::load(&exposed).unwrap_err());
    assert!(error.contains("can be read by every user (mode 644)"), "{error}");
}
