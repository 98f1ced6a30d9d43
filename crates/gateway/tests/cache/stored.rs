//! One request after another: what is answered from memory, and what is asked for again.

use super::common::{Client, take};
use super::{Cached, POLICIES, answer, how};

#[test]
fn what_is_fresh_is_answered_without_asking() {
    for policy in POLICIES {
        let cached = Cached::with(
            |_, number| {
                answer(
                    "cache-control: max-age=60\r\nlink: a\r\nlink: b\r\n",
                    &format!("body {number}"),
                )
            },
            |config| config.cache.policy = policy,
        );
        let first = cached.get("/", "");
        assert_eq!(
            (first.text().as_str(), how(&first)),
            ("body 0", "headroom; fwd=uri-miss")
        );
        let again = cached.get("/", "");
        assert_eq!(again.text(), "body 0");
        assert!(how(&again).starts_with("headroom; hit; ttl="), "{again:?}");
        assert!(again.header("age").unwrap().parse::<u64>().unwrap() < 60);
        assert_eq!(again.all("link"), ["a", "b"], "no repeated field is lost");
        let head = cached.ask("HEAD", "/", "");
        assert_eq!((head.body.len(), head.header("content-length")), (0, Some("6")));
        // Another target, another host, are others.
        assert_eq!(cached.get("/?x", "").text(), "body 1");
        assert_eq!(cached.asked(), 2);
        let period = take(&cached.handle);
        assert_eq!(
            (period.cache.hits, period.cache.misses, period.cache.stored),
            (2, 2, 2)
        );
        assert_eq!(
            (period.service.completions, period.cache_size.unwrap().objects),
            (4, 2)
        );
        assert!(period.cache_size.unwrap().bytes > 0);
    }
}

#[test]
fn what_is_for_one_client_is_for_no_other() {
    for (headers, request) in [
        ("cache-control: private, max-age=60\r\n", ""),
        ("cache-control: no-store\r\n", ""),
        ("", ""),
        ("cache-control: max-age=60\r\nset-cookie: who=1\r\n", ""),
        ("cache-control: max-age=60\r\nvary: *\r\n", ""),
        ("cache-control: max-age=60\r\n", "Authorization: Basic abc\r\n"),
        ("cache-control: max-age=60\r\n", "Cache-Control: no-store\r\n"),
        ("cache-control: MAX-AGE=0\r\n", ""),
    ] {
        let cached = Cached::new(move |_, number| answer(headers, &number.to_string()));
        for number in 0..3 {
            assert_eq!(
                cached.get("/", request).text(),
                number.to_string(),
                "{headers}{request}"
            );
        }
        assert_eq!(take(&cached.handle).cache.stored, 0, "{headers}{request}");
    }
}

#[test]
fn credentials_and_failures_keep_no_target_out_of_the_cache() {
    let cached = Cached::new(|request, number| match number {
        0 => answer(
            "cache-control: max-age=60\r\n",
            request.header("authorization").unwrap(),
        ),
        1 => b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n".to_vec(),
        _ => answer("cache-control: max-age=60\r\n", &number.to_string()),
    });
    assert_eq!(cached.get("/", "Authorization: me\r\n").text(), "me");
    assert_eq!(cached.get("/", "").status(), 500);
    assert_eq!(cached.get("/", "").text(), "2");
    let stored = cached.get("/", "");
    assert_eq!(stored.text(), "2");
    assert!(stored.header("date").is_some());
}

#[test]
fn what_varies_is_answered_with_what_was_asked_for() {
    let cached = Cached::new(|request, _| {
        let all = request.all("accept-language").join("|");
        answer(
            "cache-control: max-age=60\r\nvary: Accept-Language, accept-encoding\r\n",
            &all,
        )
    });
    let languages = [
        "",
        "Accept-Language: de\r\n",
        "Accept-Language: de\r\nAccept-Language: fr\r\n",
    ];
    for _ in 0..3 {
        for (language, expected) in languages.iter().zip(["", "de", "de|fr"]) {
            assert_eq!(cached.get("/", language).text(), expected);
        }
    }
    assert_eq!(cached.asked(), 3);
    let other = cached.get("/", "Accept-Language: nl\r\n");
    assert_eq!(how(&other), "headroom; fwd=vary-miss");
}

#[test]
fn a_change_forgets_what_was_stored() {
    let cached = Cached::new(|request, number| {
        let failed = request.start.contains("/failed");
        let status = if failed && request.start.starts_with("POST") {
            "500 No"
        } else {
            "200 OK"
        };
        let more = if request.start.starts_with("PUT") {
            "location: /\r\ncontent-location: http://test/c\r\n"
        } else {
            ""
        };
        let body = number.to_string();
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\ncache-control: max-age=60\r\n{more}content-length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    });
    assert_eq!(cached.get("/", "").text(), "0");
    cached.ask("POST", "/", "Content-Length: 0\r\n");
    assert_eq!(cached.get("/", "").text(), "2");
    assert_eq!(cached.get("/c", "").text(), "3");
    // Of a place that it names; an error changes nothing; nor does what is safe.
    cached.ask("PUT", "/other", "Content-Length: 0\r\n");
    assert_eq!(
        (cached.get("/", "").text(), cached.get("/c", "").text()),
        ("5".into(), "6".into())
    );
    assert_eq!(cached.get("/failed", "").text(), "7");
    cached.ask("POST", "/failed", "Content-Length: 0\r\n");
    cached.ask("OPTIONS", "/failed", "");
    assert_eq!(cached.get("/failed", "").text(), "7");
    assert_eq!(take(&cached.handle).cache.invalidated, 3);
}

#[test]
fn what_is_stale_is_asked_for_with_its_validators() {
    let cached = Cached::new(|request, number| {
        match request.header("if-none-match") {
        Some("\"v1\"") => {
            "HTTP/1.1 304 Not Modified\r\netag: \"v1\"\r\ncache-control: max-age=60\r\nx-new: yes\r\ncontent-length: 999\r\n\r\n"
                .as_bytes()
                .to_vec()
        }
        Some(other) => panic!("asked with {other}"),
        None => answer(
            "cache-control: no-cache, max-age=60\r\netag: \"v1\"\r\nx-old: yes\r\n",
            &format!("body {number}"),
        ),
    }
    });
    assert_eq!(cached.get("/", "").text(), "body 0");
    let validated = cached.get("/", "If-None-Match: \"client's\"\r\n");
    assert_eq!((validated.status(), validated.text().as_str()), (200, "body 0"));
    assert_eq!(
        (validated.header("x-new"), validated.header("x-old")),
        (Some("yes"), Some("yes"))
    );
    assert_eq!(validated.header("content-length"), Some("6"));
    assert!(how(&validated).contains("fwd-status=304"), "{validated:?}");
    // Now it is fresh.
    assert_eq!(cached.get("/", "").text(), "body 0");
    assert_eq!(cached.asked(), 2);
    // A client that has it is told so, and one that insists makes us ask.
    let known = cached.get("/", "If-None-Match: \"x, y\", W/\"v1\"\r\n");
    assert_eq!((known.status(), known.header("etag")), (304, Some("\"v1\"")));
    assert_eq!(cached.get("/", "If-None-Match: \"v2\"\r\n").status(), 200);
    assert_eq!(cached.asked(), 2);
    assert_eq!(cached.get("/", "Cache-Control: no-cache\r\n").text(), "body 0");
    assert_eq!(cached.asked(), 3);
    assert_eq!(
        cached.get("/none", "Cache-Control: only-if-cached\r\n").status(),
        504
    );
    assert_eq!(cached.get("/", "Cache-Control: only-if-cached\r\n").status(), 200);
    assert_eq!(cached.asked(), 3);
    // Of what is not stored a client's own condition is the origin's to answer.
    assert_eq!(cached.get("/other", "If-None-Match: \"v1\"\r\n").status(), 304);
    assert_eq!(cached.get("/other", "").text(), "body 4");
}

#[test]
fn a_304_about_another_response_is_not_used() {
    let cached = Cached::new(|request, number| match request.header("if-none-match") {
        Some(_) => b"HTTP/1.1 304 Not Modified\r\netag: \"v2\"\r\n\r\n".to_vec(),
        None => answer(
            "cache-control: no-cache\r\netag: \"v1\"\r\n",
            &format!("body {number}"),
        ),
    });
    assert_eq!(cached.get("/", "").text(), "body 0");
    assert_eq!(cached.get("/", "").text(), "body 2");
}

#[test]
fn a_part_of_what_is_stored_is_given_and_none_is_stored() {
    let cached = Cached::new(|request, _| {
        match request.header("range") {
        Some(_) => {
            b"HTTP/1.1 206 Partial Content\r\ncache-control: max-age=60\r\ncontent-range: bytes 0-1/10\r\ncontent-length: 2\r\n\r\n01"
                .to_vec()
        }
        None => answer("cache-control: max-age=60\r\netag: \"v\"\r\n", "0123456789"),
    }
    });
    assert_eq!(cached.get("/", "Range: bytes=0-1\r\n").text(), "01");
    assert_eq!(cached.get("/", "Range: bytes=0-1\r\n").text(), "01");
    assert_eq!(cached.asked(), 2);
    assert_eq!(cached.get("/", "").text(), "0123456789");
    let part = cached.get("/", "Range: bytes=2-4\r\n");
    assert_eq!((part.status(), part.text().as_str()), (206, "234"));
    assert_eq!(part.header("content-range"), Some("bytes 2-4/10"));
    let beyond = cached.get("/", "Range: bytes=10-\r\n");
    assert_eq!(
        (beyond.status(), beyond.header("content-range")),
        (416, Some("bytes */10"))
    );
    assert_eq!(
        cached
            .get("/", "Range: bytes=2-4\r\nIf-Range: \"v\"\r\n")
            .status(),
        206
    );
    assert_eq!(
        cached
            .get("/", "Range: bytes=2-4\r\nIf-Range: \"w\"\r\n")
            .status(),
        200
    );
    assert_eq!(cached.asked(), 3);
}

#[test]
fn what_fails_is_answered_with_what_is_stale_where_the_origin_allows_it() {
    let cached = Cached::new(
        |request, number| match (number, request.start.contains("/strict")) {
            (0 | 1, strict) => {
                let strict = if strict { ", must-revalidate" } else { "" };
                let control =
                    format!("cache-control: max-age=0, stale-if-error=60{strict}\r\netag: \"v\"\r\n");
                answer(&control, "good")
            }
            _ => b"HTTP/1.1 503 No\r\ncontent-length: 3\r\n\r\nbad".to_vec(),
        },
    );
    assert_eq!(cached.get("/", "").text(), "good");
    assert_eq!(cached.get("/strict", "").text(), "good");
    for _ in 0..2 {
        assert_eq!(cached.get("/", "").text(), "good");
        assert_eq!(cached.get("/strict", "").text(), "bad");
    }
    assert_eq!(take(&cached.handle).cache.stale, 2);
}

#[test]
fn what_is_stale_is_used_while_it_is_asked_for_once() {
    let cached = Cached::new(|_, number| {
        answer(
            "cache-control: max-age=0, stale-while-revalidate=60\r\n",
            &format!("body {number}"),
        )
    });
    assert_eq!(cached.get("/", "").text(), "body 0");
    assert_eq!(cached.get("/", "").text(), "body 0");
    super::common::eventually("it is asked for", || cached.asked() == 2);
    super::common::eventually("the new one is used", || cached.get("/", "").text() != "body 0");
}

#[test]
fn the_bytes_are_bounded_and_what_is_popular_stays() {
    for policy in POLICIES {
        let body = "x".repeat(100_000);
        let cached = Cached::with(
            move |_, _| answer("cache-control: max-age=600\r\n", &body),
            |config| {
                config.cache.bytes = 2_000_000;
                config.cache.max_object_bytes = 200_000;
                config.cache.policy = policy;
            },
        );
        let mut client = Client::connect(cached.address);
        for number in 0..60 {
            client.get("/popular");
            client.get("/popular");
            client.get(&format!("/{number}"));
        }
        let period = take(&cached.handle);
        assert!(
            period.cache_size.unwrap().bytes <= 2_000_000,
            "{policy:?}: {}",
            period.cache_size.unwrap().bytes
        );
        assert!(
            period.cache_size.unwrap().objects >= 10,
            "{policy:?}: {}",
            period.cache_size.unwrap().objects
        );
        assert!(period.cache.hits >= 100, "{policy:?}: {:?}", period.cache);
        assert_eq!(period.cache.hits + period.cache.misses, 180);
    }
}
