use super::*;
use std::time::{Duration, SystemTime};

use crate::cache::terms::{Asked, Exchange};
use http::Request;

fn now() -> Instant {
    static NOW: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    *NOW
}

fn stored(headers: &[(&'static str, &'static str)], body: &'static str) -> Arc<Stored> {
    let mut fields = HeaderMap::new();
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=60"));
    for (name, value) in headers {
        fields.append(*name, HeaderValue::from_static(value));
    }
    let exchange = Exchange {
        asked: now(),
        answered: now(),
        date: SystemTime::UNIX_EPOCH,
    };
    let terms = Terms::of(Asked::default(), StatusCode::OK, &fields, exchange).unwrap();
    let body = Bytes::from_static(body.as_bytes());
    let selection = Selection::of(&fields, &HeaderMap::new()).unwrap();
    Arc::new(Stored::new(StatusCode::OK, &fields, body, terms, selection))
}

fn status(stored: &Arc<Stored>, headers: &[(&'static str, &str)]) -> u16 {
    let mut request = Request::get("/");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let mut answer = stored.answer(&parts, now() + Duration::from_secs(10), How::HIT);
    assert_eq!(answer.fields.map()["age"], "10");
    answer.status.as_u16()
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
fn a_304_is_about_what_it_names() {
    let (old, new) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Mon, 07 Nov 1994 08:49:37 GMT");
    let dated = stored(&[("last-modified", old)], "body");
    let tagged = stored(&[("etag", "\"a\""), ("last-modified", old)], "body");
    let answer = |fields: &[(&'static str, &'static str)]| -> HeaderMap {
        let fields = fields.iter();
        fields
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    };
    for (stored, fields, is_used) in [
        (&dated, &[][..], true),
        (&dated, &[("last-modified", old)], true),
        (&dated, &[("last-modified", new)], false),
        (&tagged, &[("last-modified", new)], false),
        (&tagged, &[("etag", "\"a\""), ("last-modified", new)], true),
        (&tagged, &[("etag", "\"b\""), ("last-modified", old)], false),
    ] {
        assert_eq!(stored.updated(&answer(fields)).is_some(), is_used, "{fields:?}");
    }
    // What has no date is dated when it comes.
    let dateless = dated.updated(&answer(&[])).unwrap();
    assert!(!dateless.contains_key("date"));
}

#[test]
fn a_range_of_a_dated_response_is_given_where_the_date_is_exact() {
    let (modified, later) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:38 GMT");
    for (date, expected) in [(modified, 200), (later, 206)] {
        let stored = stored(&[("last-modified", modified), ("date", date)], "body");
        let headers = [("range", "bytes=0-1"), ("if-range", modified)];
        let mut request = Request::get("/");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        assert_eq!(stored.answer(&parts, now(), How::HIT).status, expected, "{date}");
    }
}

#[test]
fn its_fields_are_in_memory_of_their_own() {
    let buffer = Bytes::from(vec![b'x'; 60_000]);
    let mut fields = HeaderMap::new();
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=60"));
    let value = HeaderValue::from_maybe_shared(buffer.slice(10..20)).unwrap();
    fields.append("a", value.clone());
    fields.append("a", value.clone());
    fields.append("b", HeaderValue::from_static(""));
    let kept = compact(&fields, &[header::CACHE_CONTROL]);
    drop((fields, value));
    assert!(buffer.is_unique(), "nothing of the buffer is kept");
    assert_eq!(kept.get_all("a").iter().collect::<Vec<_>>(), ["xxxxxxxxxx"; 2]);
    assert_eq!((kept.len(), kept["b"].len()), (3, 0));
}

#[test]
fn what_fails_in_the_background_is_asked_for_less_and_less_often() {
    let stored = stored(&[], "body");
    let mut at = now();
    let mut pauses = Vec::new();
    for _ in 0..8 {
        assert!(stored.may_be_asked_for(at));
        stored.failed(at);
        let begun = at;
        while !stored.may_be_asked_for(at) {
            at += Duration::from_millis(500);
        }
        pauses.push((at - begun).as_secs());
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
}
