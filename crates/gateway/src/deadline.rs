//! How long a client says that it waits for its answer.

use std::time::Duration;

use http::HeaderMap;

/// The shortest time that a request says its client waits: `Prefer: wait=SECONDS` (RFC 7240 section 4.3), `Grpc-Timeout` (gRPC over
/// HTTP/2: a number of at most eight digits and its unit), `X-Envoy-Expected-Rq-Timeout-Ms` (set by an Envoy in front). `None` where it
/// says nothing, or nothing that can be read.
pub(crate) fn client_deadline(headers: &HeaderMap) -> Option<Duration> {
    let prefer = headers.get_all("prefer").iter().filter_map(|value| {
        let preferences = value.to_str().ok()?.split([',', ';']);
        let wait = preferences.filter_map(|one| {
            let (name, seconds) = one.split_once('=')?;
            let seconds = seconds.trim().trim_matches('"');
            name.trim()
                .eq_ignore_ascii_case("wait")
                .then(|| number(seconds))?
        });
        wait.min().map(Duration::from_secs)
    });
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let envoy = text("x-envoy-expected-rq-timeout-ms")
        .and_then(number)
        .map(Duration::from_millis);
    let grpc = text("grpc-timeout").and_then(grpc_timeout);
    prefer.chain(envoy).chain(grpc).min()
}

/// How long the client of a gRPC call waits for its end: `grpc-timeout`. `None` where it says nothing that can be read.
pub(crate) fn grpc_deadline(headers: &HeaderMap) -> Option<Duration> {
    grpc_timeout(headers.get("grpc-timeout")?.to_str().ok()?)
}

fn number(text: &str) -> Option<u64> {
    let digits = (1..=10).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

fn grpc_timeout(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back()?;
    let count = number(&text[..text.len() - unit.len_utf8()])?;
    Some(match unit {
        'H' => Duration::from_secs(count * 3600),
        'M' => Duration::from_secs(count * 60),
        'S' => Duration::from_secs(count),
        'm' => Duration::from_millis(count),
        'u' => Duration::from_micros(count),
        'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_of_what_is_said_counts_and_what_cannot_be_read_says_nothing() {
        let said = |fields: &[(&'static str, &'static str)]| {
            let headers: HeaderMap = fields
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                .collect();
            client_deadline(&headers).map(|deadline| deadline.as_millis())
        };
        assert_eq!(said(&[]), None);
        assert_eq!(said(&[("prefer", "respond-async, Wait=2")]), Some(2_000));
        assert_eq!(said(&[("prefer", "wait=\"3\"; foo")]), Some(3_000));
        assert_eq!(said(&[("x-envoy-expected-rq-timeout-ms", "150")]), Some(150));
        assert_eq!(said(&[("grpc-timeout", "80m"), ("prefer", "wait=1")]), Some(80));
        for (timeout, millis) in [
            ("1H", 3_600_000),
            ("2M", 120_000),
            ("3S", 3_000),
            ("5000u", 5),
            ("7000000n", 7),
        ] {
            assert_eq!(said(&[("grpc-timeout", timeout)]), Some(millis), "{timeout}");
        }
        for odd in ["", "m", "-1m", "1", "1x", "99999999999S", "1 m", "1\u{b5}"] {
            let value = http::HeaderValue::from_bytes(odd.as_bytes()).unwrap();
            let headers: HeaderMap = [("grpc-timeout".parse().unwrap(), value)].into_iter().collect();
            assert_eq!(client_deadline(&headers), None, "{odd:?}");
        }
        assert_eq!(said(&[("prefer", "wait=-1, wait=, wait")]), None);
    }
}
