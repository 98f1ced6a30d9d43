//! What Cache-Status says, and what a directive that is not as it should be comes to.

use super::common::take;
use super::{Cached, answer, how};
use std::time::{Duration, SystemTime};

/// A date so many seconds ago.
fn ago(seconds: u64) -> String {
    httpdate::fmt_http_date(SystemTime::now() - Duration::from_secs(seconds))
}

#[test]
fn a_directive_that_is_broken_is_read_to_the_stricter_side() {
    for control in [
        "x=\"abc, no-store",
        "max-age=60, private =\"x\"",
        "max-age=60, no-store = 1",
        "private\t=x, max-age=60",
    ] {
        let cached = Cached::new(move |_, _| {
            answer(
                &format!("cache-control: max-age=60\r\ncache-control: {control}\r\n"),
                "x",
            )
        });
        cached.get("/", "");
        assert_eq!(take(&cached.handle).cache.stored, 0, "{control}");
    }
}

#[test]
fn what_became_of_a_request_is_said_with_what_caches_behind_said() {
    let stale = ago(100);
    let cached = Cached::new(move |request, _| {
        let target = request.start.split(' ').nth(1).unwrap();
        let headers = match target {
            "/fresh" => {
                "cache-control: max-age=60\r\netag: \"a\"\r\ncache-status: origin; hit\r\n".to_owned()
            }
            "/stale" => {
                format!("cache-control: max-age=60, stale-while-revalidate=600\r\ndate: {stale}\r\n")
            }
            _ => String::new(),
        };
        match request.header("if-none-match") {
            Some(_) => b"HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\n\r\n".to_vec(),
            None => answer(&headers, "x"),
        }
    });
    cached.get("/fresh", "");
    let hit = cached.get("/fresh", "");
    let said = hit.all("cache-status");
    assert_eq!(said[0], "origin; hit");
    assert!(
        said[1].starts_with("headroom; hit; ttl=") && said.len() == 2,
        "{said:?}"
    );
    let asked = cached.get("/fresh", "Cache-Control: no-cache\r\n");
    assert!(
        asked.all("cache-status")[1].starts_with("headroom; fwd=request; fwd-status=304"),
        "{asked:?}"
    );
    cached.get("/stale", "");
    let stale = cached.get("/stale", "");
    assert!(how(&stale).starts_with("headroom; hit; ttl=-"), "{stale:?}");
    for (method, headers, expected) in [
        ("POST", "Content-Length: 0\r\n", "headroom; fwd=method"),
        ("OPTIONS", "", "headroom; fwd=method"),
        ("GET", "If-Match: \"a\"\r\n", "headroom; fwd=bypass"),
    ] {
        assert_eq!(how(&cached.ask(method, "/", headers)), expected);
    }
}

#[test]
fn what_a_304_does_not_date_is_dated_when_it_comes() {
    let old = ago(1000);
    let cached = Cached::new(move |request, _| match request.header("if-none-match") {
        Some(_) => b"HTTP/1.1 304 Not Modified\r\ncache-control: max-age=60\r\netag: \"a\"\r\n\r\n".to_vec(),
        None => answer(
            &format!("cache-control: max-age=60\r\netag: \"a\"\r\ndate: {old}\r\n"),
            "x",
        ),
    });
    cached.get("/", "");
    assert!(how(&cached.get("/", "")).contains("fwd-status=304"));
    assert!(how(&cached.get("/", "")).contains("hit"), "it is fresh again");
    assert_eq!(cached.asked(), 2);
}

#[test]
fn an_age_that_is_no_number_says_nothing_and_of_a_list_the_first_counts() {
    let cached = Cached::new(|request, _| {
        let age = if request.start.contains("list") {
            "1, 700"
        } else {
            "abc"
        };
        answer(&format!("cache-control: max-age=600\r\nage: {age}\r\n"), "x")
    });
    for target in ["/list", "/odd"] {
        cached.get(target, "");
        assert!(how(&cached.get(target, "")).contains("hit"), "{target}");
    }
}

#[test]
fn two_spellings_of_one_target_are_stored_once_and_changed_once() {
    let cached = Cached::new(|request, number| {
        let named = request.header("x-place").unwrap_or("/none");
        answer(
            &format!("cache-control: max-age=60\r\nlocation: {named}\r\n"),
            &number.to_string(),
        )
    });
    cached.get("/v", "");
    assert!(how(&cached.get("/%76", "")).contains("hit"));
    for (place, forgotten) in [
        ("https://test/v", false),
        ("http://other/v", false),
        ("http://test:80/v", true),
        ("/%76", true),
    ] {
        cached.get("/v", "");
        cached.ask(
            "POST",
            "/other",
            &format!("X-Place: {place}\r\nContent-Length: 0\r\n"),
        );
        assert_eq!(!how(&cached.get("/v", "")).contains("hit"), forgotten, "{place}");
    }
}
