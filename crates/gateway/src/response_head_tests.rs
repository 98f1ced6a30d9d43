use proptest::prelude::*;

use super::*;

fn head(text: &str) -> Result<ResponseHead, HeadError> {
    head_for(text, &Method::GET)
}

fn head_for(text: &str, method: &Method) -> Result<ResponseHead, HeadError> {
    let data = Bytes::from(format!("{text}\r\n\r\nBODY"));
    parse(&data, method, 100, Reading::Fields, &mut Names::default()).map(|parsed| {
        let (head, length) = parsed.expect("the head is complete");
        assert_eq!(&data[length..], b"BODY");
        head
    })
}

#[test]
fn framing_follows_the_rfc() {
    let framing = |text: &str| head(text).map(|head| (head.framing, head.keep_alive));
    assert_eq!(
        framing("HTTP/1.1 200 OK\r\ncontent-length: 5"),
        Ok((Framing::Length(5), true))
    );
    assert_eq!(
        framing("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked"),
        Ok((Framing::Chunked, true))
    );
    assert_eq!(
        framing("HTTP/1.1 200 OK\r\nserver: x"),
        Ok((Framing::UntilClose, false))
    );
    assert_eq!(
        framing("HTTP/1.1 204 No Content\r\nserver: x"),
        Ok((Framing::None, true))
    );
    assert_eq!(
        framing("HTTP/1.1 304 Not Modified\r\ncontent-length: 7"),
        Ok((Framing::None, true))
    );
    assert_eq!(
        framing("HTTP/1.0 200 OK\r\ncontent-length: 5"),
        Ok((Framing::Length(5), false))
    );
    assert_eq!(
        framing("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 5"),
        Ok((Framing::Length(5), true))
    );
    assert_eq!(
        framing("HTTP/1.1 200 OK\r\nconnection: keep-alive, close\r\ncontent-length: 5"),
        Ok((Framing::Length(5), false))
    );
    let mut to_head = head_for("HTTP/1.1 200 OK\r\ncontent-length: 5", &Method::HEAD).unwrap();
    assert_eq!(
        (to_head.framing, &to_head.fields.map()["content-length"]),
        (Framing::None, &"5".parse().unwrap())
    );
}

#[test]
fn ambiguous_responses_are_refused() {
    let cases = [
        ("content-length: 5\r\ncontent-length: 6", HeadError::Length),
        ("content-length: +5", HeadError::Length),
        ("content-length: 5, 5", HeadError::Length),
        ("content-length:", HeadError::Length),
        ("content-length: 99999999999999999999", HeadError::Length),
        (
            "transfer-encoding: chunked\r\ncontent-length: 5",
            HeadError::TransferEncoding,
        ),
        ("transfer-encoding: gzip, chunked", HeadError::TransferEncoding),
        (
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
            HeadError::TransferEncoding,
        ),
        ("transfer-encoding: identity", HeadError::TransferEncoding),
    ];
    for (fields, error) in cases {
        assert_eq!(
            head(&format!("HTTP/1.1 200 OK\r\n{fields}")).unwrap_err(),
            error,
            "{fields}"
        );
    }
    assert_eq!(
        head("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked").unwrap_err(),
        HeadError::TransferEncoding
    );
    assert!(matches!(head("ICY 200 OK\r\na: b"), Err(HeadError::Syntax(_))));
    assert!(matches!(
        head("HTTP/1.1 200 OK\r\na b: c"),
        Err(HeadError::Syntax(_))
    ));
    let mut same = head("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 5").unwrap();
    assert_eq!(same.fields.map().get_all("content-length").iter().count(), 1);
}

#[test]
fn connection_specific_fields_end_here() {
    let mut head = head(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade, x-hop\r\nupgrade: websocket\r\nx-hop: 1\r\n\
         keep-alive: timeout=5\r\nproxy-connection: keep-alive\r\nx-end: 2",
    )
    .unwrap();
    assert_eq!(head.fields.map().len(), 1);
    assert_eq!(head.fields.map()["x-end"], "2");
    assert_eq!(head.upgrade.unwrap(), "websocket");
}

#[test]
fn the_number_of_fields_is_bounded() {
    let data = Bytes::from_static(b"HTTP/1.1 200 OK\r\na: 1\r\nb: 2\r\nc: 3\r\n\r\n");
    assert_eq!(
        parse(&data, &Method::GET, 2, Reading::Fields, &mut Names::default()).unwrap_err(),
        HeadError::TooMany
    );
    assert!(
        parse(&data, &Method::GET, 3, Reading::Fields, &mut Names::default())
            .unwrap()
            .is_some()
    );
    assert!(
        parse(
            &data.slice(..20),
            &Method::GET,
            3,
            Reading::Fields,
            &mut Names::default()
        )
        .unwrap()
        .is_none()
    );
    let many: String = (0..150).map(|n| format!("x-{n}: 1\r\n")).collect();
    let data = Bytes::from(format!("HTTP/1.1 200 OK\r\n{many}\r\n"));
    assert_eq!(
        parse(&data, &Method::GET, 100, Reading::Fields, &mut Names::default()).unwrap_err(),
        HeadError::TooMany
    );
    assert_eq!(
        parse(&data, &Method::GET, 200, Reading::Fields, &mut Names::default())
            .unwrap()
            .unwrap()
            .0
            .fields
            .map()
            .len(),
        150
    );
}

proptest! {
    /// What a head before had for fields changes nothing of what is read.
    #[test]
    fn remembered_names_change_nothing(
        heads in prop::collection::vec(
            prop::collection::vec(("(etag|ETag|x-a|X-A|x-b|connection|Keep-Alive|content-length|upgrade)", "[a-z]{0,3}"), 0..40),
            1..5,
        ),
    ) {
        let mut names = Names::default();
        for fields in heads {
            let mut text = String::from("HTTP/1.1 200 OK\r\n");
            for (name, value) in fields {
                text.push_str(&format!("{name}: {value}\r\n"));
            }
            text.push_str("\r\n");
            let data = Bytes::from(text);
            let with = parse(&data, &Method::GET, 100, Reading::Fields, &mut names);
            let without = parse(&data, &Method::GET, 100, Reading::Fields, &mut Names::default());
            prop_assert_eq!(format!("{with:?}"), format!("{without:?}"));
        }
    }
}
