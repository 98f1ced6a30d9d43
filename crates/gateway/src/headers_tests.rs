use proptest::prelude::*;

use super::*;

fn map(fields: &[(&str, &str)]) -> HeaderMap {
    fields
        .iter()
        .map(|(name, value)| {
            (
                HeaderName::try_from(*name).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            )
        })
        .collect()
}

#[test]
fn what_connection_names_goes_and_the_rest_stays() {
    let mut headers = map(&[
        ("connection", "close, X-A"),
        ("x-a", "1"),
        ("x-b", "2"),
        ("keep-alive", "3"),
        ("te", "gzip, Trailers;q=1"),
        ("trailer", "x-t"),
    ]);
    let hop = strip_hop_by_hop(&mut headers);
    assert_eq!(headers, map(&[("x-b", "2"), ("trailer", "x-t")]));
    assert!(!hop.te_trailers, "a parameter makes it another coding");
    // What is no text beside a name does not keep that.
    let mut headers = map(&[("x-a", "1"), ("x-b", "2")]);
    headers.insert("connection", HeaderValue::from_bytes(b"x-a, \xe9").unwrap());
    strip_hop_by_hop(&mut headers);
    assert_eq!(headers, map(&[("x-b", "2")]));
    let mut headers = map(&[("te", "gzip, Trailers")]);
    assert!(strip_hop_by_hop(&mut headers).te_trailers);
    assert!(headers.is_empty());
}

#[test]
fn transfer_encoding_is_judged_before_it_goes() {
    let judge = |fields: &[(&str, &str)]| {
        let mut headers = map(fields);
        let hop = strip_hop_by_hop(&mut headers);
        assert!(!headers.contains_key("transfer-encoding"));
        hop.transfer_encoding
    };
    assert_eq!(judge(&[]), None);
    assert_eq!(judge(&[("transfer-encoding", "Chunked")]), Some(true));
    assert_eq!(judge(&[("transfer-encoding", "gzip, chunked")]), Some(false));
    assert_eq!(
        judge(&[
            ("transfer-encoding", "identity"),
            ("transfer-encoding", "chunked")
        ]),
        Some(false)
    );
    assert_eq!(
        judge(&[
            ("transfer-encoding", "chunked"),
            ("connection", "transfer-encoding")
        ]),
        Some(true),
        "naming it in Connection must not hide it"
    );
}

#[test]
fn an_upgrade_needs_both_fields_and_may_not_be_http() {
    let upgrade = |fields: &[(&str, &str)]| strip_hop_by_hop(&mut map(fields)).upgrade;
    assert_eq!(
        upgrade(&[("connection", "Upgrade"), ("upgrade", "websocket")]).unwrap(),
        "websocket"
    );
    assert_eq!(upgrade(&[("upgrade", "websocket")]), None);
    assert_eq!(upgrade(&[("connection", "upgrade")]), None);
    for (protocol, may) in [
        ("websocket", true),
        ("h2c", false),
        ("H2", false),
        ("HTTP/2.0", false),
        ("TLS/1.0", false),
    ] {
        assert_eq!(may_tunnel(&HeaderValue::from_static(protocol)), may, "{protocol}");
    }
    assert!(!may_tunnel(&HeaderValue::from_static("websocket, h2c")));
    assert!(!may_tunnel(&HeaderValue::from_static("")));
}

#[test]
fn equal_lengths_are_one_and_others_are_none() {
    let joined = |values: &[&str]| {
        let fields: Vec<_> = values.iter().map(|value| ("content-length", *value)).collect();
        let mut headers = map(&fields);
        join_lengths(&mut headers).map(|()| {
            headers
                .get_all("content-length")
                .iter()
                .cloned()
                .collect::<Vec<_>>()
        })
    };
    assert_eq!(joined(&[]).unwrap(), Vec::<HeaderValue>::new());
    for (values, one) in [
        (&["5"][..], "5"),
        (&["05"], "05"),
        (&["5", "5"], "5"),
        (&["5", "05", "5"], "5"),
    ] {
        assert_eq!(joined(values).unwrap(), [one], "{values:?}");
    }
    for bad in [
        &[""][..],
        &["+5"],
        &["5, 5"],
        &["5", "6"],
        &["5", "x"],
        &["18446744073709551616"],
    ] {
        assert_eq!(joined(bad).unwrap_err().status, 400, "{bad:?}");
    }
}

/// The target and the Host after the request was normalised, or the status of the refusal.
fn normalised(
    method: &str,
    target: &str,
    host: Option<&str>,
    version: Version,
) -> Result<(String, String), u16> {
    let mut request = http::Request::builder()
        .method(method)
        .uri(target)
        .version(version);
    if let Some(host) = host {
        request = request.header("host", host);
    }
    let (mut parts, ()) = request.body(()).unwrap().into_parts();
    normalise_target(&mut parts).map_err(|refusal| refusal.status.as_u16())?;
    let host = parts
        .headers
        .get("host")
        .map_or("", |host| host.to_str().unwrap());
    Ok((parts.uri.to_string(), host.to_owned()))
}

#[test]
fn a_target_is_sent_as_the_server_itself_expects_it() {
    for (method, target, sent) in [
        ("GET", "http://h?q", "/?q"),
        ("GET", "http://h", "/"),
        ("GET", "http://h/a?b", "/a?b"),
        ("OPTIONS", "http://h/", "/"),
        ("OPTIONS", "http://h?q", "/?q"),
        ("OPTIONS", "*", "*"),
    ] {
        let (target, host) = normalised(method, target, Some("h"), Version::HTTP_11).unwrap();
        assert_eq!((target.as_str(), host.as_str()), (sent, "h"), "{method}");
    }
    let no_host = normalised("GET", "/a", None, Version::HTTP_10).unwrap();
    assert_eq!(no_host, ("/a".into(), String::new()));
    for (target, host) in [
        ("/a", Some("h:x")),
        ("/a", Some("h:65536")),
        ("/a", Some("[h]")),
        ("/a", None),
        ("http://h:x/", Some("h")),
        ("http://h:99999/", Some("h")),
    ] {
        let Ok(_) = target.parse::<Uri>() else { continue };
        assert_eq!(
            normalised("GET", target, host, Version::HTTP_11),
            Err(400),
            "{target} {host:?}"
        );
    }
}

#[test]
fn cookies_are_joined() {
    let mut headers = map(&[
        ("cookie", "a=1"),
        ("x", "y"),
        ("cookie", "b=2"),
        ("cookie", "c=3"),
    ]);
    join_cookies(&mut headers);
    assert_eq!(
        headers.get_all("cookie").iter().collect::<Vec<_>>(),
        ["a=1; b=2; c=3"]
    );
    let mut one = map(&[("cookie", "a=1")]);
    join_cookies(&mut one);
    assert_eq!(one, map(&[("cookie", "a=1")]));
}

#[test]
fn the_client_is_named_as_rfc_7239_wants_it() {
    let element = |peer: &str, tls: bool, host: Option<&str>| {
        let mut out = Vec::new();
        write_forwarded_element(
            &mut out,
            &ClientIdentity::new(peer.parse().unwrap(), tls),
            host.map(str::as_bytes),
        );
        String::from_utf8(out).unwrap()
    };
    assert_eq!(element("192.0.2.7:1", false, None), "for=192.0.2.7;proto=http");
    assert_eq!(
        element("[2001:db8::1]:1", true, Some("a:80")),
        "for=\"[2001:db8::1]\";proto=https;host=\"a:80\""
    );
    assert_eq!(
        element("[::ffff:192.0.2.7]:1", false, None),
        "for=192.0.2.7;proto=http"
    );
}

const NAMES: [&str; 16] = [
    "connection",
    "keep-alive",
    "te",
    "transfer-encoding",
    "upgrade",
    "proxy-connection",
    "proxy-authorization",
    "host",
    "content-length",
    "x-forwarded-for",
    "via",
    "accept",
    "cookie",
    "x-custom",
    "x-other",
    "trailer",
];

prop_compose! {
    fn field()(name in prop::sample::select(&NAMES[..]), value in "[ -~]{0,20}", option in prop::sample::select(&NAMES[..]))
        -> (&'static str, String) {
        // Connection names other fields now and then.
        if name == "connection" { (name, format!("{option}, {value}")) } else { (name, value) }
    }
}

proptest! {
    #[test]
    fn nothing_connection_specific_survives_and_nothing_else_is_lost(
        fields in prop::collection::vec(field(), 0..20),
    ) {
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let before = map(&fields);
        let mut after = before.clone();
        strip_hop_by_hop(&mut after);
        let named: Vec<String> = elements(&before, &header::CONNECTION).map(str::to_ascii_lowercase).collect();
        for name in after.keys() {
            prop_assert_eq!(specific(name), 0, "{} survived", name);
            prop_assert!(is_protected(name.as_str()) || !named.iter().any(|named| named == name.as_str()));
        }
        for name in before.keys() {
            let goes = specific(name) != 0
                || (named.iter().any(|named| named == name.as_str()) && !is_protected(name.as_str()));
            let kept: Vec<_> = after.get_all(name).iter().collect();
            let had: Vec<_> = before.get_all(name).iter().collect();
            prop_assert_eq!(kept, if goes { Vec::new() } else { had });
        }
        // Once is enough.
        let once = after.clone();
        strip_hop_by_hop(&mut after);
        prop_assert_eq!(after, once);
    }
}
