//! Mutual TLS: who may connect, what backends learn, which hosts a connection may be asked for.

use std::io::Write;
use std::sync::Arc;

use crate::common::{Backend, Client, Message, config, eventually, ok, start, take};
use crate::tls::{Authority, ask, connect, is_resumed};
use headroom_gateway::{ForwardPolicy, GatewayConfig, Handle};
use rustls::ClientConfig;

struct Place {
    servers: Authority,
    clients: Authority,
    backend: Backend,
}

/// A backend that answers with the field that it was sent.
fn echo(request: &Message) -> Vec<u8> {
    ok(&request.all("x-forwarded-client-cert").join(" + "))
}

fn place() -> Place {
    let servers = Authority::new("servers");
    servers.issue("first", &["a.example", "*.a.example"], 1);
    servers.issue("second", &["b.example"], 2);
    let clients = Authority::new("clients");
    clients.issue("alice", &["spiffe://a.example/alice", "alice.example"], 7);
    clients.issue("mallory", &["mallory.example"], 8);
    Place {
        servers,
        clients,
        backend: Backend::http(echo),
    }
}

impl Place {
    fn start(&self, change: impl FnOnce(&mut GatewayConfig)) -> (Handle, std::net::SocketAddr) {
        let mut config = config(&[&self.backend]);
        config.listen.clear();
        let mut listener = self.servers.listener(&["first", "second"]);
        listener.client_ca = Some(self.clients.ca());
        config.tls = vec![listener];
        change(&mut config);
        start(config)
    }

    fn client(&self, issuer: &Authority, who: &str) -> Arc<ClientConfig> {
        let (certificate, key) = (
            issuer.path(&format!("{who}.pem")),
            issuer.path(&format!("{who}.key")),
        );
        self.servers.client(Some((&certificate, &key)))
    }
}

/// Whether a client is let in. With TLS 1.3 it learns that only when it has asked.
fn answer(config: &Arc<ClientConfig>, address: std::net::SocketAddr) -> std::io::Result<Message> {
    ask(
        &mut connect(config, address, "a.example")?,
        "a.example",
        "X-Forwarded-Client-Cert: Hash=forged\r\n",
    )
}

#[test]
fn only_clients_of_the_authority_get_in_and_backends_learn_who_they_are() {
    let place = place();
    let (gateway, address) = place.start(|_| {});
    let said = answer(&place.client(&place.clients, "alice"), address)
        .unwrap()
        .text();
    assert!(
        said.starts_with("Hash=") && !said.contains("forged") && !said.contains(" + "),
        "{said}"
    );
    assert!(said.contains(";Subject=\"CN=alice\""), "{said}");
    assert!(
        said.contains(";URI=spiffe://a.example/alice") && said.contains(";DNS=alice.example"),
        "{said}"
    );
    assert_eq!(said.split(';').next().unwrap().len(), "Hash=".len() + 64);
    // Nobody, and somebody of another authority.
    assert!(answer(&place.servers.client(None), address).is_err());
    assert!(answer(&place.client(&place.servers, "second"), address).is_err());
    // A session that is resumed is the same client's.
    let alice = place.client(&place.clients, "alice");
    let first = answer(&alice, address).unwrap().text();
    let mut again = connect(&alice, address, "a.example").unwrap();
    assert!(is_resumed(&again));
    assert_eq!(ask(&mut again, "a.example", "").unwrap().text(), first);
    drop(gateway);
}

#[test]
fn a_certificate_may_be_optional_and_the_field_is_as_configured() {
    let place = place();
    let alice = place.client(&place.clients, "alice");
    let (_gateway, address) = place.start(|it| it.tls[0].require = false);
    assert_eq!(answer(&place.servers.client(None), address).unwrap().text(), "");
    assert!(answer(&alice, address).unwrap().text().contains("CN=alice"));
    assert!(
        answer(&place.client(&place.servers, "second"), address).is_err(),
        "a bad one is refused"
    );

    let (_gateway, address) = place.start(|it| it.forwarding.client_certificate = ForwardPolicy::Append);
    let said = answer(&alice, address).unwrap().text();
    assert!(
        said.starts_with("Hash=forged, Hash=") && said.contains("CN=alice"),
        "{said}"
    );
    let (_gateway, address) = place.start(|it| it.forwarding.client_certificate = ForwardPolicy::Remove);
    assert_eq!(answer(&alice, address).unwrap().text(), "");
}

/// What came is taken out where no client shows a certificate too: else anybody could be anybody.
#[test]
fn a_field_that_a_client_writes_itself_never_arrives() {
    let place = place();
    let (_gateway, address) = start(config(&[&place.backend]));
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Client-Cert: Hash=forged\r\nx-forwarded-client-cert: a\r\n\r\n");
    assert_eq!(client.receive().text(), "");
}

#[test]
fn a_host_that_the_certificate_is_not_for_is_misdirected_and_the_connection_goes_on() {
    let place = place();
    let (gateway, address) = place.start(|_| {});
    let alice = place.client(&place.clients, "alice");
    let mut stream = connect(&alice, address, "a.example").unwrap();
    for (host, status) in [
        ("a.example", 200),
        ("A.Example:8443", 200),
        ("x.a.example", 200),
        ("b.example", 421),
        ("x.y.a.example", 421),
        ("127.0.0.1", 421),
        ("[::1]:1", 421),
        ("a.example.evil", 421),
        ("a.example.", 200),
    ] {
        assert_eq!(ask(&mut stream, host, "").unwrap().status(), status, "{host}");
    }
    let counts = take(&gateway).service;
    assert_eq!((counts.refused, counts.failures), (5, 0));
    let mut other = connect(&alice, address, "b.example").unwrap();
    assert_eq!(ask(&mut other, "b.example", "").unwrap().status(), 200);
    assert_eq!(ask(&mut other, "a.example", "").unwrap().status(), 421);
}

#[test]
fn who_is_revoked_is_out_with_the_next_handshake_and_no_ticket_helps() {
    let place = place();
    let list = place.clients.revoke(&[]);
    let (gateway, address) = place.start(|it| it.tls[0].client_revoked = Some(list));
    let (alice, mallory) = (
        place.client(&place.clients, "alice"),
        place.client(&place.clients, "mallory"),
    );
    for client in [&alice, &mallory, &mallory] {
        assert_eq!(answer(client, address).unwrap().status(), 200);
    }
    place.clients.revoke(&[8]);
    gateway.reload_certificates().unwrap();
    assert!(answer(&mallory, address).is_err());
    assert_eq!(answer(&alice, address).unwrap().status(), 200);
}

/// rustls has records of an answer that the kernel does not take, and a goodbye behind them.
#[test]
fn clients_of_tls_that_do_not_read_are_given_up() {
    let authority = Authority::new("unread");
    authority.issue("first", &["a.example"], 1);
    let small = "z".repeat(4_000);
    let backend = Backend::http(move |_| ok(&small));
    let mut config = config(&[&backend]);
    config.listen.clear();
    config.tls = vec![authority.listener(&["first"])];
    config.timeouts.idle_timeout_ms = 300;
    config.timeouts.body_timeout_ms = 300;
    let (gateway, address) = start(config);
    let with = authority.client(None);
    let requests = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n".repeat(2_000);
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let mut client = connect(&with, address, "a.example").unwrap();
            client.write_all(requests.as_bytes()).unwrap();
            client
        })
        .collect();
    let mut most = 0;
    eventually("they are let go", || {
        let connections = take(&gateway).connections;
        most = most.max(connections);
        most > 0 && connections == 0
    });
    drop(clients);
}
