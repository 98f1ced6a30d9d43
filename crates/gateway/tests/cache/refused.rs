//! What is stored where the origin says something else, or nothing, when it is asked again.

use super::common::{Client, Message, eventually, take};
use super::{Cached, answer, how};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

#[test]
fn a_head_makes_no_empty_page() {
    let version = Arc::new(AtomicUsize::new(1));
    let now = version.clone();
    let methods = Arc::new(Mutex::new(Vec::new()));
    let seen = methods.clone();
    let cached = Cached::new(move |request, _| {
        let version = now.load(Ordering::SeqCst);
        seen.lock().unwrap().push(request.start.clone());
        let body = format!("version {version}");
        let whole = answer(
            &format!("cache-control: max-age=0, stale-while-revalidate=600\r\netag: \"{version}\"\r\n"),
            &body,
        );
        match request.start.starts_with("HEAD") {
            true => whole[..whole.len() - body.len()].to_vec(),
            false => whole,
        }
    });
    assert_eq!(cached.get("/", "").text(), "version 1");
    version.store(2, Ordering::SeqCst);
    assert_eq!(cached.ask("HEAD", "/", "").status(), 200);
    eventually("it was asked for", || cached.asked() == 2);
    eventually("it is used", || cached.get("/", "").text() == "version 2");
    // Nor does a part.
    version.store(3, Ordering::SeqCst);
    let part = cached.get("/", "Range: bytes=0-1\r\n");
    assert_eq!((part.status(), part.text().as_str()), (206, "ve"));
    eventually("it is used", || cached.get("/", "").text() == "version 3");
    let methods = methods.lock().unwrap();
    assert!(
        methods.iter().all(|start| start.starts_with("GET ")),
        "{methods:?}"
    );
}

/// An origin that is slow to say 503 once `fails` is set.
fn failing(control: &'static str, fails: &Arc<AtomicBool>) -> Cached {
    let fails = fails.clone();
    Cached::new(move |_, _| {
        if fails.load(Ordering::SeqCst) {
            std::thread::sleep(std::time::Duration::from_millis(300));
            return b"HTTP/1.1 503 No\r\ncontent-length: 3\r\n\r\nbad".to_vec();
        }
        answer(&format!("cache-control: {control}\r\netag: \"a\"\r\n"), "good")
    })
}

#[test]
fn all_that_wait_are_given_what_is_stale_where_the_origin_fails() {
    let fails = Arc::default();
    let cached = failing("max-age=0, stale-if-error=600", &fails);
    cached.get("/", "");
    fails.store(true, Ordering::SeqCst);
    let answers: Vec<Message> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..12).map(|_| scope.spawn(|| cached.get("/", ""))).collect();
        asking.into_iter().map(|asking| asking.join().unwrap()).collect()
    });
    for answer in answers {
        assert_eq!((answer.status(), answer.text().as_str()), (200, "good"));
        assert!(
            how(&answer).starts_with("headroom; fwd=stale; fwd-status=503"),
            "{answer:?}"
        );
    }
    assert!(cached.asked() < 12, "they waited for one another");
    let head = cached.ask("HEAD", "/", "");
    assert_eq!((head.status(), head.header("content-length")), (200, Some("4")));
    let part = cached.get("/", "Range: bytes=0-1\r\n");
    assert_eq!((part.status(), part.text().as_str()), (206, "go"));
    assert!(how(&part).contains("fwd=stale; fwd-status=503"), "{part:?}");
    // Who asks for the origin's own answer is given no other.
    let own = cached.get("/", "Cache-Control: no-cache\r\n");
    assert_eq!((own.status(), own.text().as_str()), (503, "bad"));
    assert!(!how(&own).contains("hit"), "{own:?}");
}

#[test]
fn a_failing_origin_is_not_asked_again_at_once() {
    let fails = Arc::default();
    let cached = failing("max-age=0, stale-while-revalidate=600", &fails);
    cached.get("/", "");
    fails.store(true, Ordering::SeqCst);
    cached.get("/", "");
    eventually("it failed", || cached.asked() == 2);
    let begun = std::time::Instant::now();
    let mut rounds = 0;
    while begun.elapsed() < std::time::Duration::from_millis(900) {
        assert_eq!(cached.get("/", "").text(), "good");
        rounds += 1;
    }
    assert!(rounds > 5 && cached.asked() <= 3, "{rounds}: {}", cached.asked());
}

#[test]
fn what_takes_the_place_of_what_is_stored_without_being_stored_ends_its_use() {
    for refusal in [
        "HTTP/1.1 404 No\r\ncontent-length: 4\r\n\r\ngone",
        "HTTP/1.1 403 No\r\ncontent-length: 4\r\n\r\ngone",
        "HTTP/1.1 200 OK\r\ncache-control: private, no-store\r\ncontent-length: 4\r\n\r\ngone",
    ] {
        let cached = Cached::new(move |request, number| {
            let language = request.header("accept-language").unwrap_or_default();
            match (number, language) {
                (0..=1, _) => answer(
                    "cache-control: max-age=0, stale-while-revalidate=600\r\nvary: accept-language\r\n",
                    "old",
                ),
                (_, "de") => panic!("what is stored for others stays as it is"),
                _ => refusal.as_bytes().to_vec(),
            }
        });
        cached.get("/", "");
        cached.get("/x", "");
        cached.get("/", "");
        eventually("it is no more used", || cached.get("/", "").text() == "gone");
        for _ in 0..3 {
            assert_eq!(cached.get("/", "").text(), "gone", "{refusal}");
        }
    }
}

#[test]
fn credentials_remove_nothing() {
    let cached = Cached::new(|request, number| {
        let tag = request.header("if-none-match");
        match (request.header("authorization"), tag) {
            (Some("bad"), _) => b"HTTP/1.1 403 No\r\ncontent-length: 2\r\n\r\nno".to_vec(),
            (_, Some("\"a\"")) => {
                b"HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\ncache-control: max-age=600\r\n\r\n".to_vec()
            }
            _ => answer(
                "cache-control: max-age=600\r\netag: \"a\"\r\n",
                &number.to_string(),
            ),
        }
    });
    cached.get("/", "");
    for who in ["good", "bad"] {
        let headers = format!("Authorization: {who}\r\nCache-Control: no-cache\r\n");
        let asked = cached.asked();
        cached.get("/", &headers);
        assert_eq!(cached.asked(), asked + 1);
        let next = cached.get("/", "");
        assert!(
            how(&next).contains("hit") && next.text() == "0",
            "{who}: {next:?}"
        );
    }
}

#[test]
fn one_that_is_answered_by_itself_keeps_no_other_from_the_cache() {
    for who in ["Accept: bad\r\n", "Cookie: me\r\n"] {
        let cached = Cached::new(|request, number| {
            if request.header("accept") == Some("bad") {
                return b"HTTP/1.1 406 No\r\ncontent-length: 0\r\n\r\n".to_vec();
            }
            let control = match request.header("cookie") {
                Some(_) => "private",
                None => "max-age=600",
            };
            let headers = format!("cache-control: {control}\r\nvary: cookie\r\n");
            answer(&headers, &number.to_string())
        });
        cached.get("/", who);
        // Of what is not stored there is nothing that is cached.
        let cached_only = cached.get("/", "Cache-Control: only-if-cached\r\n");
        assert_eq!(cached_only.status(), 504);
        assert_eq!(cached.get("/", "").text(), "1");
        for _ in 0..3 {
            assert!(how(&cached.get("/", "")).contains("hit"), "{who}");
            assert!(
                !how(&cached.get("/", who)).contains("hit") || who.starts_with("Accept"),
                "{who}"
            );
        }
    }
}

#[test]
fn a_body_that_ends_with_its_connection_is_not_stored() {
    let backend = super::common::Backend::raw(|mut stream, _| {
        use std::io::Write;
        let mut reader = std::io::BufReader::new(stream.try_clone().unwrap());
        if Message::read(&mut reader, false).is_some() {
            let whole = b"HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\n\r\nhello";
            stream.write_all(whole).unwrap();
        }
    });
    let (handle, address) = super::common::gateway_with(&backend, |config| config.cache.bytes = 8 << 20);
    for _ in 0..2 {
        let mut client = Client::connect(address);
        assert_eq!(client.get("/").text(), "hello");
    }
    let period = take(&handle);
    assert_eq!((period.cache.stored, period.cache.hits), (0, 0));
}

#[test]
fn a_change_whose_client_leaves_before_the_answer_is_a_change() {
    let (begun, begins) = channel();
    let begun = Mutex::new(begun);
    let (go, goes) = channel::<()>();
    let goes = Mutex::new(goes);
    let cached = Cached::new(move |request, number| {
        if request.start.starts_with("POST") {
            begun.lock().unwrap().send(()).unwrap();
            goes.lock().unwrap().recv().unwrap();
        }
        answer("cache-control: max-age=600\r\n", &number.to_string())
    });
    assert_eq!(cached.get("/", "").text(), "0");
    let mut leaves = Client::connect(cached.address);
    leaves.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\nx");
    begins.recv().unwrap();
    assert!(
        how(&cached.get("/", "")).contains("hit"),
        "it is not answered yet"
    );
    leaves.reset();
    eventually("it is forgotten", || take(&cached.handle).cache.invalidated == 1);
    go.send(()).unwrap();
    assert_eq!(cached.get("/", "").text(), "2");
}
