use super::*;
use proptest::prelude::*;

fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(*name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

/// The date of receipt.
fn today() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

/// The moment of receipt.
fn now() -> Instant {
    static NOW: std::sync::LazyLock<Instant> =
        std::sync::LazyLock::new(|| Instant::now() + Duration::from_secs(10));
    *NOW
}

fn at(seconds: i64) -> String {
    let offset = Duration::from_secs(seconds.unsigned_abs());
    httpdate::fmt_http_date(if seconds < 0 {
        today() - offset
    } else {
        today() + offset
    })
}

fn terms_of(status: u16, fields: &[(&'static str, &str)], asked: Asked) -> Option<Terms> {
    let exchange = Exchange {
        asked: now(),
        answered: now(),
        date: today(),
    };
    Terms::of(
        asked,
        StatusCode::from_u16(status).unwrap(),
        &headers(fields),
        exchange,
    )
}

fn terms(fields: &[(&'static str, &str)]) -> Option<Terms> {
    terms_of(200, fields, Asked::default())
}

/// Seconds for which it is fresh when it comes.
fn fresh(fields: &[(&'static str, &str)]) -> u64 {
    terms(fields).map_or(0, |terms| terms.fresh_for(now()).as_secs())
}

#[test]
fn the_origin_says_for_how_long() {
    assert_eq!(fresh(&[("cache-control", "max-age=60")]), 60);
    assert_eq!(fresh(&[("cache-control", "max-age=60, s-maxage=5")]), 5);
    assert_eq!(fresh(&[("expires", &at(30))]), 30);
    assert_eq!(
        fresh(&[("expires", &at(30)), ("cache-control", "max-age=60")]),
        60
    );
    assert_eq!(fresh(&[("expires", &at(130)), ("date", &at(100))]), 30);
    for over in ["0", "-1", "tomorrow", &at(-5)] {
        assert_eq!(fresh(&[("expires", over)]), 0, "{over}");
    }
    // A tenth of its age at the origin, and a day at most.
    assert_eq!(fresh(&[("last-modified", &at(-1000))]), 100);
    assert_eq!(fresh(&[("last-modified", &at(-100_000_000))]), 24 * 3600);
    assert_eq!(fresh(&[]), 0);
}

#[test]
fn what_it_was_on_the_way_is_part_of_its_age() {
    assert_eq!(fresh(&[("cache-control", "max-age=60"), ("age", "50")]), 10);
    // Of several the first counts, and what is no number says nothing (RFC 9111 section 5.1).
    assert_eq!(fresh(&[("cache-control", "max-age=60"), ("age", "50, 5")]), 10);
    assert_eq!(fresh(&[("cache-control", "max-age=60"), ("age", "70")]), 0);
    assert_eq!(
        fresh(&[("cache-control", "max-age=60"), ("age", "5"), ("age", "50")]),
        55
    );
    for unknown in ["x", "-1", "x, 50", "1.5", "0;x", ""] {
        assert_eq!(
            fresh(&[("cache-control", "max-age=60"), ("age", unknown)]),
            60,
            "{unknown}"
        );
    }
    assert_eq!(fresh(&[("cache-control", "max-age=60"), ("date", &at(-20))]), 40);
    let exchange = Exchange {
        asked: now() - Duration::from_secs(7),
        answered: now(),
        date: today(),
    };
    let slow = headers(&[("cache-control", "max-age=60")]);
    let slow = Terms::of(Asked::default(), StatusCode::OK, &slow, exchange).unwrap();
    assert_eq!(slow.fresh_for(now()), Duration::from_secs(53));
    assert_eq!(slow.age(now() - Duration::from_secs(5)), Duration::from_secs(7));
}

#[test]
fn a_date_that_is_set_makes_nothing_younger() {
    for date in [
        today(),
        SystemTime::UNIX_EPOCH,
        today() + Duration::from_secs(3600),
    ] {
        let exchange = Exchange {
            asked: now(),
            answered: now(),
            date,
        };
        let fields = headers(&[("cache-control", "max-age=60")]);
        let terms = Terms::of(Asked::default(), StatusCode::OK, &fields, exchange).unwrap();
        assert_eq!(
            terms.age(now() + Duration::from_secs(59)),
            Duration::from_secs(59)
        );
        assert!(terms.fresh_for(now() + Duration::from_secs(60)).is_zero());
    }
}

#[test]
fn what_is_not_for_all_is_not_stored() {
    for private in [
        "private",
        "no-store",
        "no-store, max-age=60",
        "private=\"x\", max-age=60",
    ] {
        assert_eq!(terms(&[("cache-control", private)]), None, "{private}");
    }
    assert_eq!(
        terms(&[("cache-control", "max-age=60"), ("vary", "accept, *")]),
        None
    );
    let cookie = ("set-cookie", "a=b");
    assert_eq!(terms(&[("cache-control", "max-age=60"), cookie]), None);
    assert!(terms(&[("cache-control", "public, max-age=60"), cookie]).is_some());
    let authorized = Asked { authorized: true };
    for (directives, stored) in [
        ("max-age=60", false),
        ("max-age=60, public", true),
        ("s-maxage=60", true),
        ("max-age=60, must-revalidate", true),
    ] {
        let found = terms_of(200, &[("cache-control", directives)], authorized);
        assert_eq!(found.is_some(), stored, "{directives}");
    }
}

#[test]
fn a_status_that_is_not_known_is_stored_only_where_it_has_a_life() {
    for status in [206, 304, 101] {
        assert_eq!(
            terms_of(status, &[("cache-control", "max-age=60")], Asked::default()),
            None
        );
    }
    for status in [200, 299, 302, 404, 500, 599] {
        assert!(terms_of(status, &[("cache-control", "max-age=60")], Asked::default()).is_some());
    }
    let modified = at(-1000);
    let unsaid = [("last-modified", modified.as_str())];
    assert!(terms_of(404, &unsaid, Asked::default()).is_some());
    for status in [201, 302, 403, 500] {
        assert_eq!(terms_of(status, &unsaid, Asked::default()), None, "{status}");
    }
    let understand = [("cache-control", "no-store, must-understand, max-age=60")];
    assert!(terms_of(200, &understand, Asked::default()).is_some());
    assert_eq!(terms_of(299, &understand, Asked::default()), None);
}

#[test]
fn a_request_may_ask_for_less_age_or_accept_more() {
    let request = |value: &str| Directives::of_message(&headers(&[("cache-control", value)]));
    let plain = Directives::default();
    let later = |seconds: u64| now() + Duration::from_secs(seconds);
    let terms = terms(&[("cache-control", "max-age=60")]).unwrap();
    assert!(terms.serves(&plain, later(59)) && !terms.serves(&plain, later(60)));
    assert!(!terms.serves(&request("no-cache"), now()));
    assert!(
        !terms.serves(&request("max-age=10"), later(11)) && terms.serves(&request("max-age=10"), later(10))
    );
    assert!(
        !terms.serves(&request("min-fresh=10"), later(51))
            && terms.serves(&request("min-fresh=10"), later(50))
    );
    assert!(
        terms.serves(&request("max-stale=5"), later(65)) && !terms.serves(&request("max-stale=5"), later(66))
    );
    let strict = self::terms(&[
        ("cache-control", "max-age=60, must-revalidate"),
        ("etag", "\"a\""),
    ])
    .unwrap();
    assert!(strict.serves(&plain, later(59)) && !strict.serves(&request("max-stale"), later(61)));
    let asks = self::terms(&[("cache-control", "max-age=60, no-cache"), ("etag", "\"a\"")]).unwrap();
    assert!(!asks.serves(&plain, now()) && asks.fresh_for(now()).is_zero());
}

#[test]
fn stale_is_used_only_for_as_long_as_the_origin_allows() {
    let later = |seconds: u64| now() + Duration::from_secs(seconds);
    let plain = Directives::default();
    let value = "max-age=60, stale-while-revalidate=10, stale-if-error=20";
    let lenient = terms(&[("cache-control", value)]).unwrap();
    assert!(lenient.serves_while_revalidating(&plain, later(70)));
    assert!(!lenient.serves_while_revalidating(&plain, later(71)));
    assert!(lenient.serves_if_error(later(80)) && !lenient.serves_if_error(later(81)));
    let strict = terms(&[("cache-control", &format!("{value}, must-revalidate"))]).unwrap();
    assert!(!strict.serves_while_revalidating(&plain, later(61)) && !strict.serves_if_error(later(61)));
}

proptest! {
    /// Whatever an origin sends, what is fresh now was no younger and is not fresh for longer later.
    #[test]
    fn time_makes_nothing_fresher(value in "(max-age|s-maxage)=[0-9]{1,6}(, [a-z-]{1,20}){0,2}", age in 0u64..100_000, later in 0u64..100_000) {
        let age = age.to_string();
        if let Some(terms) = terms(&[("cache-control", &value), ("age", &age)]) {
            let then = now() + Duration::from_secs(later);
            prop_assert!(terms.fresh_for(then) <= terms.fresh_for(now()));
            prop_assert!(terms.age(then) >= terms.age(now()));
            prop_assert_eq!(terms.serves(&Directives::default(), then), !terms.fresh_for(then).is_zero());
        }
    }
}
