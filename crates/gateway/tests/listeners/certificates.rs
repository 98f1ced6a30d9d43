//! Certificates chosen by name, and read again when they change.

use crate::common::{Backend, config, eventually, ok, start};
use crate::tls::{Authority, ask, connect, is_resumed, shown};
use headroom_gateway::{Gateway, GatewayConfig, UnknownName};

fn with(backend: &Backend, change: impl FnOnce(&mut GatewayConfig)) -> GatewayConfig {
    let mut config = config(&[backend]);
    config.listen.clear();
    change(&mut config);
    config
}

#[test]
fn each_name_gets_its_certificate_and_an_unknown_one_the_first_or_none() {
    let authority = Authority::new("authority");
    authority.issue("first", &["a.example"], 1);
    authority.issue("second", &["b.example", "x.wild.example"], 2);
    authority.issue("wild", &["*.wild.example"], 3);
    authority.issue("named", &["other.example"], 4);
    let backend = Backend::http(|_| ok("hello"));
    let client = authority.client(None);
    let mut listener = authority.listener(&["first", "second", "wild", "named"]);
    // What is written goes before what is in the certificate.
    listener.certificates[3].names = vec!["Written.example".to_owned()];
    let mut refusing = listener.clone();
    refusing.unknown_name = UnknownName::Refuse;
    let (gateway, address) = start(with(&backend, |it| it.tls = vec![listener, refusing]));
    for (name, certificate) in [
        ("a.example", "first"),
        ("b.example", "second"),
        ("B.Example", "second"),
        ("y.wild.example", "wild"),
        // A name as it is goes before a wildcard.
        ("x.wild.example", "second"),
    ] {
        for address in gateway.local_addrs() {
            let mut stream = connect(&client, *address, name).unwrap();
            assert_eq!(shown(&stream), certificate, "{name}");
            assert_eq!(ask(&mut stream, name, "").unwrap().text(), "hello");
        }
    }
    // The client checks the name, and so says which certificate it was shown: not for the name that it asked for.
    let refused = |address, name| connect(&client, address, name).unwrap_err().to_string();
    for name in ["other.example", "written.example", "z.y.wild.example"] {
        assert!(refused(address, name).contains("not valid for name"), "{name}");
    }
    let strict = gateway.local_addrs()[1];
    for name in ["nobody.example", "other.example", "z.y.wild.example"] {
        let said = refused(strict, name);
        assert!(!said.contains("not valid for name"), "{name}: {said}");
    }
    assert!(refused(strict, "written.example").contains("not valid for name"));
    // A client that asks for no name, as by an address, is shown the first all the same.
    assert!(refused(strict, "127.0.0.1").contains("not valid for name"));
}

#[test]
fn certificates_are_read_again_without_cutting_a_connection_and_bad_ones_change_nothing() {
    let authority = Authority::new("authority");
    authority.issue("first", &["a.example"], 1);
    let backend = Backend::http(|_| ok("hello"));
    let client = authority.client(None);
    let (gateway, address) = start(with(&backend, |it| it.tls = vec![authority.listener(&["first"])]));
    let mut before = connect(&client, address, "a.example").unwrap();
    assert_eq!(shown(&before), "first");
    ask(&mut before, "a.example", "").unwrap();
    authority.issue("renewed", &["a.example", "new.example"], 9);
    let put = |what: &str| {
        for end in ["key", "pem"] {
            std::fs::copy(
                authority.path(&format!("{what}.{end}")),
                authority.path(&format!("first.{end}")),
            )
            .unwrap();
        }
    };
    put("renewed");
    gateway.reload_certificates().unwrap();
    let fresh = || connect(&authority.client(None), address, "a.example").unwrap();
    assert_eq!(shown(&fresh()), "renewed");
    // The connection goes on, and its session can be taken up again.
    assert_eq!(ask(&mut before, "a.example", "").unwrap().status(), 200);
    assert!(is_resumed(&connect(&client, address, "a.example").unwrap()));

    std::fs::write(authority.path("first.pem"), "no certificate").unwrap();
    let error = gateway.reload_certificates().unwrap_err().to_string();
    assert!(error.contains("first.pem"), "{error}");
    assert_eq!(shown(&fresh()), "renewed");
    // Without being asked it finds them, too.
    authority.issue("second", &["a.example"], 10);
    put("second");
    eventually("the new certificate is shown", || shown(&fresh()) == "second");
    assert_eq!(ask(&mut before, "a.example", "").unwrap().status(), 200);
}

#[test]
fn sessions_are_resumed_on_any_core() {
    let authority = Authority::new("authority");
    authority.issue("first", &["a.example"], 1);
    let backend = Backend::http(|_| ok("hello"));
    let client = authority.client(None);
    let (_gateway, address) = start(with(&backend, |it| {
        it.tls = vec![authority.listener(&["first"])];
        it.threads = 3;
    }));
    let resumed = (0..12)
        .filter(|_| {
            let mut stream = connect(&client, address, "a.example").unwrap();
            // Tickets come with the answer.
            assert_eq!(ask(&mut stream, "a.example", "").unwrap().status(), 200);
            is_resumed(&stream)
        })
        .count();
    assert_eq!(resumed, 11, "all but the first");
}

#[test]
fn what_cannot_be_is_refused_with_the_file_or_the_key() {
    let authority = Authority::new("authority");
    authority.issue("first", &["a.example"], 1);
    authority.issue("second", &[], 2);
    let backend = Backend::http(|_| ok("hello"));
    let refused = |change: &dyn Fn(&mut headroom_gateway::TlsListenConfig)| {
        let mut listener = authority.listener(&["first", "second"]);
        change(&mut listener);
        Gateway::start(with(&backend, |it| it.tls = vec![listener]))
            .unwrap_err()
            .to_string()
    };
    let said = refused(&|_| {});
    assert!(said.contains("second.pem") && said.contains("`names`"), "{said}");
    let said = refused(&|it| it.certificates[0].key = authority.path("second.key"));
    assert!(
        said.contains("second.key") && said.contains("does not fit"),
        "{said}"
    );
    let said = refused(&|it| it.certificates.clear());
    assert!(said.starts_with("tls.certificates = 0"), "{said}");
    let said = refused(&|it| it.certificate = Some("a.pem".into()));
    assert!(
        said.starts_with("tls.certificate = a.pem") && said.contains("without its key"),
        "{said}"
    );
    let said = refused(&|it| it.certificates[1].names = vec!["*.*.example".to_owned()]);
    assert!(said.starts_with("tls.certificates.names = *.*.example"), "{said}");
    let said = refused(&|it| it.client_revoked = Some(authority.ca()));
    assert!(said.starts_with("tls.client_revoked = "), "{said}");
    let said = refused(&|it| {
        it.certificates.truncate(1);
        it.client_ca = Some(authority.path("first.key"));
    });
    assert!(said.contains("first.key"), "{said}");
    let said = refused(&|it| it.proxy_protocol = true);
    assert!(said.starts_with("tls.trusted = 0"), "{said}");
}
