use super::*;

fn sizes(bounds: &[u64]) -> Sizes {
    let config = SizesConfig {
        bounds_bytes: bounds.to_vec(),
        ..SizesConfig::default()
    };
    Sizes::new(&config).unwrap()
}

fn request(method: &str, host: &str, target: &str) -> request::Parts {
    let builder = http::Request::builder().method(method).uri(target);
    let request = builder.header(header::HOST, host).body(());
    request.unwrap().into_parts().0
}

fn get(target: &str) -> request::Parts {
    request("GET", "a", target)
}

fn learn(sizes: &Sizes, request: &request::Parts, bytes: u64) {
    sizes.learn(sizes.of(request), StatusCode::OK, bytes);
}

#[test]
fn nothing_is_kept_where_it_is_not_configured() {
    assert!(Sizes::new(&SizesConfig::default()).is_none());
}

#[test]
fn a_route_has_the_class_of_its_answers_up_to_and_with_the_bound() {
    let sizes = sizes(&[4096, 65_536]);
    for (target, bytes, class) in [
        ("/a/0", 0, 0),
        ("/b/1", 4096, 0),
        ("/c/2", 4097, 1),
        ("/d/3", 65_536, 1),
        ("/e/4", 65_537, 2),
    ] {
        let request = get(target);
        assert_eq!(sizes.of(&request).class, 3, "{target} is not known");
        learn(&sizes, &request, bytes);
        assert_eq!(sizes.of(&request).class, class, "{bytes}");
    }
}

#[test]
fn the_query_is_not_part_of_a_route_and_method_and_host_are() {
    let sizes = sizes(&[4096]);
    learn(&sizes, &get("/p?session=1"), 10);
    assert_eq!(sizes.of(&get("/p?session=2")).class, 0);
    assert_eq!(
        sizes.of(&request("GET", "a", "http://a/p")).class,
        0,
        "the target's own host"
    );
    for other in [
        request("POST", "a", "/p"),
        request("GET", "b", "/p"),
        get("/P"),
        get("/p/"),
    ] {
        assert_eq!(sizes.of(&other).class, 2, "{other:?}");
    }
}

#[test]
fn what_has_no_content_of_its_own_teaches_nothing() {
    let sizes = sizes(&[4096]);
    learn(&sizes, &request("HEAD", "a", "/h"), 0);
    assert_eq!(sizes.of(&request("HEAD", "a", "/h")).class, 2);
    for status in [304, 206, 500, 503, 403, 429, 101] {
        sizes.learn(sizes.of(&get("/s")), StatusCode::from_u16(status).unwrap(), 10);
        assert_eq!(sizes.of(&get("/s")).class, 2, "{status}");
    }
    for status in [200, 201, 301, 404, 410] {
        let request = get(&format!("/told/{status}"));
        sizes.learn(sizes.of(&request), StatusCode::from_u16(status).unwrap(), 10);
        assert_eq!(sizes.of(&request).class, 0, "{status}");
    }
}

#[test]
fn a_path_that_nobody_asked_for_has_the_size_of_those_like_it_where_they_agree() {
    let sizes = sizes(&[4096, 65_536]);
    for number in 0..6 {
        learn(
            &sizes,
            &get(&format!("/photos/{number}.jpg")),
            200_000 + number * 1000,
        );
        learn(&sizes, &get(&format!("/photos/{number}.json")), 900 + number);
        learn(
            &sizes,
            &get(&format!("/mixed/{number}")),
            if number % 2 == 0 { 100 } else { 500_000 },
        );
    }
    assert_eq!(sizes.of(&get("/photos/99.jpg")).class, 2);
    assert_eq!(sizes.of(&get("/photos/99.json")).class, 0);
    assert_eq!(sizes.of(&get("/mixed/99")).class, 3, "they do not agree");
    assert_eq!(sizes.of(&get("/photos/99.png")).class, 3, "another extension");
    assert_eq!(sizes.of(&get("/other/99.jpg")).class, 3, "another directory");
}

#[test]
fn a_popular_route_does_not_speak_for_its_group() {
    let sizes = sizes(&[4096]);
    for _ in 0..100 {
        learn(&sizes, &get("/dir/popular"), 10);
    }
    assert_eq!(sizes.of(&get("/dir/popular")).class, 0);
    assert_eq!(sizes.of(&get("/dir/another")).class, 2);
}

#[test]
fn a_route_that_changes_is_learned_again() {
    let sizes = sizes(&[4096]);
    let route = get("/r");
    for _ in 0..50 {
        learn(&sizes, &route, 100);
    }
    // One large answer among small ones is no large route.
    learn(&sizes, &route, 1_000_000);
    assert_eq!(sizes.of(&route).class, 0);
    for _ in 0..16 {
        learn(&sizes, &route, 1_000_000);
    }
    assert_eq!(sizes.of(&route).class, 1);
}

/// Nanoseconds for each of these requests, looked up and learned.
fn cost_ns(sizes: &Sizes, requests: &[request::Parts], rounds: usize) -> f64 {
    let begun = std::time::Instant::now();
    for _ in 0..rounds {
        for request in requests {
            sizes.learn(sizes.of(request), StatusCode::OK, 1000);
        }
    }
    begun.elapsed().as_secs_f64() * 1e9 / (rounds * requests.len()) as f64
}

/// A measurement: `cargo test --release -p headroom-gateway --lib -- --ignored --nocapture sizes::tests::what_a_request_costs`.
#[test]
#[ignore = "a measurement, of an optimised build"]
fn what_a_request_costs() {
    let sizes = sizes(&[4096, 65_536]);
    let paths = |from: usize, count: usize| -> Vec<request::Parts> {
        let path = |number| {
            get(&format!(
                "/wiki/articles/{}/page-{number}.html?session=17",
                number % 50
            ))
        };
        (from..from + count).map(path).collect()
    };
    let popular = paths(0, 4_000);
    cost_ns(&sizes, &popular, 5);
    let known = cost_ns(&sizes, &popular, 100);
    let once = cost_ns(&sizes, &paths(10_000, 400_000), 1);
    println!("4000 known routes: {known:.0} ns a request; 400000 paths that come once: {once:.0} ns");
    // A flood misses the processor's caches, and does no more work than that.
    assert!(once < 20.0 * known);
}
