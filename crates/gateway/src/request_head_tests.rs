use http::HeaderValue;
use proptest::prelude::*;

use super::*;

/// A written head, parsed again.
fn write(
    headers: &[(&str, String)],
    config: &ForwardingConfig,
    framing: BodyFraming,
) -> Vec<(String, String)> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(
            HeaderName::try_from(*name).unwrap(),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    let client = ClientIdentity::new("192.0.2.7:4711".parse().unwrap(), true);
    let mut out = Vec::new();
    RequestHead {
        method: &Method::POST,
        target: &"/a?b".parse().unwrap(),
        headers: &map,
        received: Version::HTTP_11,
        host: None,
        authority: b"backend:80",
        framing,
        upgrade: None,
        te_trailers: false,
        expects: false,
        client: &client,
        config,
    }
    .write(&mut out);
    assert!(out.starts_with(b"POST /a?b HTTP/1.1\r\n"));
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut fields);
    let parsed = request.parse(&out).unwrap();
    assert_eq!(
        parsed,
        httparse::Status::Complete(out.len()),
        "one head and nothing else"
    );
    request
        .headers
        .iter()
        .map(|field| {
            (
                field.name.to_owned(),
                String::from_utf8_lossy(field.value).into_owned(),
            )
        })
        .collect()
}

fn all<'a>(fields: &'a [(String, String)], name: &str) -> Vec<&'a str> {
    fields
        .iter()
        .filter(|(known, _)| known == name)
        .map(|(_, value)| value.as_str())
        .collect()
}

#[test]
fn the_framing_is_said_once() {
    let config = ForwardingConfig::default();
    let length = [("content-length", "5".to_owned())];
    let fields = write(&length, &config, BodyFraming::Length);
    assert_eq!(
        (all(&fields, "content-length"), all(&fields, "transfer-encoding")),
        (vec!["5"], vec![])
    );
    let fields = write(&length, &config, BodyFraming::Chunked);
    assert_eq!(
        (all(&fields, "content-length"), all(&fields, "transfer-encoding")),
        (vec![], vec!["chunked"])
    );
    let fields = write(&[], &config, BodyFraming::None);
    assert_eq!(
        all(&fields, "content-length"),
        ["0"],
        "a POST without a body says so"
    );
}

const NAMES: [&str; 10] = [
    "host",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "forwarded",
    "via",
    "accept",
    "cookie",
    "content-length",
    "x-custom",
];

fn policy() -> impl Strategy<Value = ForwardPolicy> {
    prop::sample::select(vec![
        ForwardPolicy::Append,
        ForwardPolicy::Replace,
        ForwardPolicy::Remove,
    ])
}

#[test]
fn other_spellings_of_the_fields_that_the_gateway_writes_do_not_pass() {
    let sent: Vec<(&str, String)> = [
        "x_forwarded_for",
        "x_forwarded-for",
        "x-forwarded_proto",
        "x.forwarded.for",
        "x_forwarded_host",
        "x_forwarded_fox",
        "x_forwarded_for_",
        "my_field",
    ]
    .map(|name| (name, "1".to_owned()))
    .into();
    let policies = [
        ForwardPolicy::Append,
        ForwardPolicy::Replace,
        ForwardPolicy::Remove,
    ];
    for x_forwarded in policies {
        let config = ForwardingConfig {
            x_forwarded,
            ..ForwardingConfig::default()
        };
        let written = write(&sent, &config, BodyFraming::None);
        let odd: Vec<&str> = written
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| name.contains(['_', '.']))
            .collect();
        assert_eq!(odd, ["x_forwarded_fox", "x_forwarded_for_", "my_field"]);
    }
}

proptest! {
    #[test]
    fn the_policies_hold_for_any_fields(
        fields in prop::collection::vec((prop::sample::select(&NAMES[1..]), "[!-~]([ -~]{0,15}[!-~])?"), 0..12),
        host in prop::option::of("[a-z]{1,10}(:[0-9]{1,4})?"),
        x_forwarded in policy(),
        forwarded in policy(),
        via in any::<bool>(),
    ) {
        let config = ForwardingConfig { x_forwarded, forwarded, via, ..ForwardingConfig::default() };
        let mut sent: Vec<(&str, String)> = fields.clone();
        sent.extend(host.clone().map(|host| ("host", host)));
        let written = write(&sent, &config, BodyFraming::Chunked);
        let came = |name: &str| -> Vec<&str> {
            fields.iter().filter(|(known, _)| *known == name).map(|(_, value)| value.as_str()).collect()
        };
        // What is nobody's business passes unchanged and in order.
        for name in ["accept", "cookie", "x-custom"] {
            prop_assert_eq!(all(&written, name), came(name));
        }
        prop_assert_eq!(all(&written, "host"), [host.as_deref().unwrap_or("backend:80")]);
        prop_assert!(all(&written, "content-length").is_empty());
        let appended = |name: &str, element: &str| {
            let mut elements = came(name);
            elements.push(element);
            vec![elements.join(", ")]
        };
        let expected_for = match x_forwarded {
            ForwardPolicy::Append => appended("x-forwarded-for", "192.0.2.7"),
            ForwardPolicy::Replace => vec!["192.0.2.7".to_owned()],
            ForwardPolicy::Remove => vec![],
        };
        prop_assert_eq!(all(&written, "x-forwarded-for"), expected_for);
        let expected_proto = match x_forwarded {
            ForwardPolicy::Append if !came("x-forwarded-proto").is_empty() => came("x-forwarded-proto"),
            ForwardPolicy::Remove => vec![],
            _ => vec!["https"],
        };
        prop_assert_eq!(all(&written, "x-forwarded-proto"), expected_proto);
        let expected_host = match x_forwarded {
            ForwardPolicy::Append if !came("x-forwarded-host").is_empty() => came("x-forwarded-host"),
            ForwardPolicy::Remove => vec![],
            _ => host.iter().map(String::as_str).collect(),
        };
        prop_assert_eq!(all(&written, "x-forwarded-host"), expected_host);
        let element = match &host {
            Some(host) => format!("for=192.0.2.7;proto=https;host=\"{host}\""),
            None => "for=192.0.2.7;proto=https".to_owned(),
        };
        let expected_forwarded = match forwarded {
            ForwardPolicy::Append => appended("forwarded", &element),
            ForwardPolicy::Replace => vec![element],
            ForwardPolicy::Remove => vec![],
        };
        prop_assert_eq!(all(&written, "forwarded"), expected_forwarded);
        if via {
            prop_assert_eq!(all(&written, "via"), appended("via", "1.1 headroom"));
        } else {
            prop_assert_eq!(all(&written, "via"), came("via"));
        }
    }
}
