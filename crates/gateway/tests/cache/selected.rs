//! Answers that depend on fields of the request: who is given which, and what they may take of the cache.

use super::common::take;
use super::{Cached, POLICIES, answer, how};

#[test]
fn what_depends_on_a_field_that_the_gateway_writes_is_stored_for_nobody() {
    for vary in [
        "X-Forwarded-For",
        "Accept, Forwarded",
        "x-forwarded-proto",
        "X-Forwarded-Host",
        "Via",
        "TE",
        "Upgrade",
        "Expect",
        "Connection",
        "If-None-Match",
    ] {
        let cached = Cached::new(move |_, number| {
            let headers = format!("cache-control: max-age=60\r\nvary: {vary}\r\n");
            answer(&headers, &number.to_string())
        });
        for number in 0..2 {
            assert_eq!(cached.get("/", "").text(), number.to_string(), "{vary}");
        }
        assert_eq!(take(&cached.handle).cache.stored, 0, "{vary}");
    }
}

#[test]
fn a_vary_that_cannot_be_read_is_of_everything() {
    for vary in ["Cookie; Accept", "Cookie Accept", "\"Cookie\"", "Cookie, *"] {
        let cached = Cached::new(move |request, _| {
            let headers = format!("cache-control: max-age=60\r\nvary: {vary}\r\n");
            answer(&headers, request.header("cookie").unwrap())
        });
        for cookie in ["alice", "bob"] {
            assert_eq!(
                cached.get("/", &format!("Cookie: {cookie}\r\n")).text(),
                cookie,
                "{vary}"
            );
        }
    }
}

#[test]
fn only_lists_of_preferences_are_compared_as_lists() {
    for (name, shared) in [
        ("Cookie", false),
        ("X-User", false),
        ("Accept-Encoding", true),
        ("Accept-Language", true),
    ] {
        let cached = Cached::new(move |request, _| {
            let headers = format!("cache-control: max-age=60\r\nvary: {name}\r\n");
            answer(&headers, request.header(name).unwrap())
        });
        assert_eq!(
            cached.get("/", &format!("{name}: u=smith,john\r\n")).text(),
            "u=smith,john"
        );
        let other = cached.get("/", &format!("{name}: u=smith, john\r\n"));
        let expected = if shared { "u=smith,john" } else { "u=smith, john" };
        assert_eq!(other.text(), expected, "{name}");
    }
}

#[test]
fn the_fields_that_select_take_what_is_weighed() {
    for policy in POLICIES {
        let cached = Cached::with(
            |_, _| answer("cache-control: max-age=60\r\nvary: accept-encoding\r\n", "x"),
            |config| config.cache.policy = policy,
        );
        // Longer than any client needs: it is answered, and keeps nothing.
        let long = format!("Accept-Encoding: {}\r\n", "a,".repeat(1_000));
        for target in 0..20 {
            assert_eq!(cached.get(&format!("/{target}"), &long).status(), 200);
        }
        let period = take(&cached.handle);
        assert_eq!(period.cache.stored, 0, "{policy:?}");
        // Nor does it keep others from what is stored for them.
        let short = format!("Accept-Encoding: {}\r\n", "a,".repeat(400));
        cached.get("/0", &short);
        assert!(how(&cached.get("/0", &short)).contains("hit"));
        assert!(!how(&cached.get("/0", &long)).contains("hit"));
        assert!(how(&cached.get("/0", &short)).contains("hit"), "{policy:?}");
        // However long they are, what is kept of them is as long as a hash.
        let size = take(&cached.handle).cache_size.unwrap().bytes;
        assert!(size < 20 * 256 + 2_000, "{policy:?}: {size}");
    }
}

#[test]
fn of_more_variants_than_there_is_room_for_the_newest_are_used() {
    for policy in POLICIES {
        let body = "x".repeat(100_000);
        let cached = Cached::with(
            move |_, _| answer("cache-control: max-age=60\r\nvary: user-agent\r\n", &body),
            |config| {
                config.cache.bytes = 2_000_000;
                config.cache.max_object_bytes = 125_000;
                config.cache.policy = policy;
            },
        );
        for other in 0..3 {
            cached.get(&format!("/other{other}"), "");
            cached.get(&format!("/other{other}"), "");
        }
        for agent in 0..30 {
            cached.get("/", &format!("User-Agent: {agent}\r\n"));
        }
        for agent in (20..30).rev() {
            let again = cached.get("/", &format!("User-Agent: {agent}\r\n"));
            assert!(how(&again).contains("hit"), "{policy:?}: {agent}");
        }
        assert!(take(&cached.handle).cache_size.unwrap().bytes <= 2_000_000);
        // Nor do they take all the room.
        for other in 0..3 {
            let again = cached.get(&format!("/other{other}"), "");
            assert!(how(&again).contains("hit"), "{policy:?}: {other}");
        }
    }
}
