use super::*;
use std::time::Duration;

use crate::cache::terms::{Asked, Exchange};
use http::Request;

fn stored(headers: &[(&'static str, &'static str)], body: &'static str) -> Arc<Stored> {
    let mut fields = HeaderMap::new();
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=60"));
    for (name, value) in headers {
        fields.append(*name, HeaderValue::from_static(value));
    }
    let exchange = Exchange {
        asked: SystemTime::UNIX_EPOCH,
        answered: SystemTime::UNIX_EPOCH,
    };
    let terms = Terms::of(Asked::default(), StatusCode::OK, &fields, exchange).unwrap();
    let body = Bytes::from_static(body.as_bytes());
    Arc::new(Stored::new(
        StatusCode::OK,
        fields,
        body,
        terms,
        &HeaderMap::new(),
    ))
}

fn status(stored: &Arc<Stored>, headers: &[(&'static str, &str)]) -> u16 {
    let mut request = Request::get("/");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(10);
    let answer = stored.answer(&parts, now, How::Hit);
    assert_eq!(answer.headers()["age"], "10");
    answer.status().as_u16()
}

#[test]
fn a_condition_is_of_the_tag_before_the_date() {
    let modified = "Sun, 06 Nov 1994 08:49:37 GMT";
    let with = stored(&[("etag", "\"a\""), ("last-modified", modified)], "body");
    for (headers, expected) in [
        (&[][..], 200),
        (&[("if-none-match", "\"a\"")], 304),
        (&[("if-none-match", "W/\"a\"")], 304),
        (&[("if-none-match", "\"b\", \"a\"")], 304),
        (&[("if-none-match", "*")], 304),
        (&[("if-none-match", "\"b\"")], 200),
        (&[("if-none-match", "\"a,\"")], 200),
        (&[("if-none-match", "a")], 200),
        (&[("if-modified-since", modified)], 304),
        (&[("if-modified-since", "Sunday, 06-Nov-94 08:49:37 GMT")], 304),
        (&[("if-modified-since", "Sun, 06 Nov 1994 08:49:36 GMT")], 200),
        (&[("if-modified-since", "yesterday")], 200),
        (
            &[("if-none-match", "\"b\""), ("if-modified-since", modified)],
            200,
        ),
    ] {
        assert_eq!(status(&with, headers), expected, "{headers:?}");
    }
    let without = stored(&[], "body");
    assert_eq!(status(&without, &[("if-none-match", "\"a\"")]), 200);
    // It came before then, and was not asked for since: its date stands for when it was modified (RFC 9111 section 4.3.2).
    assert_eq!(status(&without, &[("if-modified-since", modified)]), 304);
}

#[test]
fn an_update_replaces_fields_and_keeps_what_is_of_the_body() {
    let stored = stored(
        &[
            ("etag", "W/\"a\""),
            ("x", "1"),
            ("x", "2"),
            ("content-encoding", "br"),
        ],
        "body",
    );
    let mut answer = HeaderMap::new();
    for (name, value) in [
        ("etag", "\"a\""),
        ("x", "3"),
        ("content-encoding", "gzip"),
        ("content-length", "9"),
    ] {
        answer.insert(name, HeaderValue::from_static(value));
    }
    let updated = stored.updated(&answer).unwrap();
    assert_eq!(updated.get_all("x").iter().collect::<Vec<_>>(), ["3"]);
    assert_eq!(
        (&updated["content-encoding"], &updated["content-length"]),
        (&HeaderValue::from_static("br"), &HeaderValue::from_static("4"))
    );
    answer.insert("etag", HeaderValue::from_static("\"b\""));
    assert!(stored.updated(&answer).is_none());
}

#[test]
fn a_selection_is_of_all_lines_of_each_field() {
    let map = |lines: &[(&'static str, &'static str)]| {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    };
    let vary = map(&[("vary", "a, B"), ("vary", "c")]);
    let one = Selection::of(&vary, &map(&[("a", "1"), ("a", "2")]));
    assert!(one.selects(&map(&[("a", "1"), ("a", "2"), ("d", "x")])));
    assert!(
        one.selects(&map(&[("a", "1 ,2")])),
        "however it is divided into lines"
    );
    for other in [
        &[][..],
        &[("a", "1")],
        &[("a", "2"), ("a", "1")],
        &[("a", "1"), ("a", "2"), ("c", "x")],
        &[("a", "1, 2, 3")],
    ] {
        assert!(!one.selects(&map(other)), "{other:?}");
    }
    assert_eq!(
        one,
        Selection::of(
            &map(&[("vary", "C,A"), ("vary", "b")]),
            &map(&[("a", "1"), ("a", "2")])
        )
    );
}
