//! Thousands of requests at once, of all kinds: no client is ever given a byte of what is another's.

use super::common::{Client, Message};
use super::{Cached, POLICIES, answer};
use proptest::test_runner::{RngAlgorithm, TestRng};
use std::collections::HashMap;
use std::sync::Mutex;

const CLIENTS: u64 = 24;
const REQUESTS: usize = 250;
const TARGETS: u64 = 12;
const LANGUAGES: [&str; 3] = ["de", "en", "fr"];

/// What the origin answers about a target: who asked for it and how often it was changed are part of the body, so that a wrong byte is
/// seen.
fn body(target: &str, language: &str, version: u64) -> String {
    format!("[{target} {language} {version}]").repeat(1 + version as usize % 40)
}

#[test]
fn nobody_is_given_what_is_another_s_or_older_than_a_change_it_saw() {
    use proptest::prelude::Rng as _;
    for (seed, policy) in (7u8..).zip(POLICIES) {
        let versions: &'static Mutex<HashMap<String, u64>> = Box::leak(Box::default());
        let cached = Cached::with(
            |request, number| {
                let (method, rest) = request.start.split_once(' ').unwrap();
                let target = rest.split(' ').next().unwrap().to_owned();
                let language = request.header("accept-language").unwrap_or("none").to_owned();
                let mut versions = versions.lock().unwrap();
                let version = versions.entry(target.clone()).or_default();
                if method == "POST" {
                    *version += 1;
                    return answer("", &version.to_string());
                }
                // The classes of targets: by language, private, soon stale, with a validator.
                let class = target.as_bytes()[1] % 4;
                let headers = match class {
                    0 => "cache-control: max-age=60\r\nvary: accept-language\r\n".to_owned(),
                    1 => "cache-control: private, max-age=60\r\nvary: accept-language\r\n".to_owned(),
                    2 => "cache-control: max-age=0\r\nvary: accept-language\r\n".to_owned(),
                    _ => format!(
                        "cache-control: no-cache\r\netag: \"{language}{version}\"\r\nvary: accept-language\r\n"
                    ),
                };
                let tag = format!("\"{language}{version}\"");
                if class == 3 && request.header("if-none-match") == Some(&tag) {
                    return format!("HTTP/1.1 304 Not Modified\r\n{headers}\r\n").into_bytes();
                }
                let who = request.header("x-client").unwrap_or_default();
                let text = body(&target, &language, *version);
                let text = if class == 1 { format!("{who}{text}") } else { text };
                if number % 97 == 0 {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                answer(&headers, &text)
            },
            |config| {
                config.threads = 2;
                config.cache.policy = policy;
                // Too small for all.
                config.cache.bytes = 100_000;
                config.cache.max_object_bytes = 4_000;
            },
        );
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let address = cached.address;
                scope.spawn(move || {
                    let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed + client as u8; 32]);
                    let mut connection = Client::connect(address);
                    // The least version of each target that this client knows of.
                    let mut least: HashMap<String, u64> = HashMap::new();
                    for _ in 0..REQUESTS {
                        let target = format!("/{}", char::from(b'a' + (rng.next_u64() % TARGETS) as u8));
                        if rng.next_u64().is_multiple_of(15) {
                            connection.send(format!("POST {target} HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n"));
                            let version = connection.receive().text().parse().unwrap();
                            least.insert(target, version);
                            continue;
                        }
                        let language = LANGUAGES[rng.next_u64() as usize % LANGUAGES.len()];
                        connection.send(format!(
                            "GET {target} HTTP/1.1\r\nHost: t\r\nAccept-Language: {language}\r\nX-Client: {client}\r\n\r\n"
                        ));
                        let got: Message = connection.receive();
                        let text = got.text();
                        let class = target.as_bytes()[1] % 4;
                        let text = match class {
                            1 => text.strip_prefix(&client.to_string()).expect("its own").to_owned(),
                            _ => text,
                        };
                        let version = text.split([' ', ']']).nth(2).unwrap().parse::<u64>().unwrap();
                        assert_eq!(text, body(&target, language, version));
                        let known = least.get(&target).copied().unwrap_or(0);
                        assert!(version >= known, "{target}: {version} after a change to {known}");
                    }
                });
            }
        });
        let period = super::common::take(&cached.handle);
        assert_eq!(period.service.completions, CLIENTS * REQUESTS as u64);
        assert!(
            period.cache.hits > 100 && period.cache.validated > 100,
            "{:?}",
            period.cache
        );
    }
}
