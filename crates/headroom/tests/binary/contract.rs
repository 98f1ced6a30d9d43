//! The run summary's keys are a contract: other programs read them.

use serde_json::Value;

/// What a key holds.
enum Kind {
    Text,
    Number,
    /// A number of requests or periods.
    Count,
    Object(&'static [(&'static str, Kind)]),
}
use Kind::{Count, Number, Object, Text};

const KEYS: &[(&str, Kind)] = &[
    ("law", Text),
    ("trace", Text),
    ("seed", Count),
    ("world", Text),
    ("periods", Count),
    ("duration_s", Number),
    (
        "requests",
        Object(&[("offered", Count), ("completed", Count), ("failed", Count)]),
    ),
    (
        "latency_ms",
        Object(&[
            ("mean", Number),
            ("p50", Number),
            ("p95", Number),
            ("p99", Number),
            ("p999", Number),
        ]),
    ),
    (
        "slo",
        Object(&[
            ("percentile", Number),
            ("target_ms", Number),
            ("periods_over", Number),
        ]),
    ),
    ("energy_j", Object(&[("value", Number), ("source", Text)])),
    ("joules_per_request", Number),
    (
        "power_w",
        Object(&[
            ("consumed_mean", Number),
            ("allocated_mean", Number),
            ("ratio", Number),
        ]),
    ),
    ("cores", Object(&[("mean", Number), ("core_seconds", Number)])),
    ("utilisation_mean", Number),
];

fn check(at: &str, value: &Value, keys: &[(&str, Kind)]) {
    for (key, kind) in keys {
        let found = value
            .get(key)
            .unwrap_or_else(|| panic!("the summary has no {at}{key}: {value}"));
        match kind {
            Text => assert!(found.is_string(), "{at}{key} is {found}"),
            Count => assert!(found.is_u64(), "{at}{key} is {found}"),
            Number => assert!(
                found.as_f64().is_some_and(|number| number >= 0.0),
                "{at}{key} is {found}"
            ),
            Object(keys) => check(&format!("{at}{key}."), found, keys),
        }
    }
}

/// A number of a summary, by its path.
pub fn number(summary: &Value, path: &str) -> f64 {
    let found = path.split('.').fold(summary, |value, key| &value[key]);
    found.as_f64().unwrap_or_else(|| panic!("{path} is {found}"))
}

/// Checks a run's summary that had traffic, in a world (`live`, `emulated`): every key is there, and its values can be
/// true. `before` is how many requests may have been under way when the run began.
pub fn assert_summary(summary: &Value, law: &str, world: &str, most_cores: f64, before: f64) {
    check("", summary, KEYS);
    let of = |path: &str| number(summary, path);
    assert_eq!(summary["law"], law);
    assert_eq!(summary["world"], world);
    assert!(of("periods") > 0.0);
    // Every request that came was answered, failed or still on its way at the end, none twice.
    assert!(of("requests.completed") > 0.0);
    assert!(
        of("requests.completed") + of("requests.failed") <= of("requests.offered") + before,
        "{summary}"
    );
    let latencies = ["p50", "p95", "p99", "p999"].map(|key| of(&format!("latency_ms.{key}")));
    assert!(latencies.is_sorted() && latencies[0] > 0.0, "{latencies:?}");
    assert!(of("latency_ms.mean") > 0.0 && of("latency_ms.mean") <= latencies[3]);
    assert!(of("slo.periods_over") <= 1.0);
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * b.abs().max(1.0);
    assert!(near(
        of("joules_per_request"),
        of("energy_j.value") / of("requests.completed")
    ));
    // The means are over the periods in which the value is known, which the first may not be.
    let mean_power = of("energy_j.value") / of("duration_s");
    assert!(
        (of("power_w.consumed_mean") / mean_power - 1.0).abs() < 0.25,
        "{summary}"
    );
    assert!(of("power_w.ratio") > 0.0);
    assert!(near(
        of("cores.core_seconds"),
        of("cores.mean") * of("duration_s")
    ));
    assert!(of("cores.mean") > 0.0 && of("cores.mean") <= most_cores + 1e-9);
    assert!(of("utilisation_mean") > 0.0);
}
