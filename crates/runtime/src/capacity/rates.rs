//! How many samples a second each method can take: the paper's Figure 7, on any server, under whatever load it has.

use super::PassedOver;
use super::way::name;
use hdrhistogram::Histogram;
use headroom_console::{Failure, say};
use headroom_node::queue::{QueueError, QueueMethod, QueueOptions, open};
use headroom_record::table::plain_table;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// What one method can do.
pub struct Rate {
    /// By which it samples.
    pub method: QueueMethod,
    /// Samples a second.
    pub per_s: f64,
    /// Samples that failed.
    pub failures: u64,
    /// How long a sample took, microseconds.
    pub took_us: Histogram<u64>,
}

/// What all of them can do.
pub struct Rates {
    /// Those that work.
    pub rates: Vec<Rate>,
    /// Those that do not.
    pub passed_over: Vec<PassedOver>,
}

/// Samples with one method after another as often as it can, each for so long; says on standard error which cannot be used.
///
/// # Errors
/// A port that nobody listens on.
pub fn rates(methods: &[QueueMethod], options: &QueueOptions, each: Duration) -> Result<Rates, Failure> {
    let mut all = Rates {
        rates: Vec::new(),
        passed_over: Vec::new(),
    };
    for method in methods.iter().copied() {
        match one(method, options, each) {
            Ok(rate) => all.rates.push(rate),
            Err(error @ QueueError::NobodyListens { .. }) => return Err(Failure::usage(error)),
            Err(error) => {
                let reason = error.to_string();
                say::note!("{} cannot be used: {reason}", name(method));
                all.passed_over.push(PassedOver { method, reason });
            }
        }
    }
    Ok(all)
}

impl Rate {
    fn at(&self, percentile: f64) -> u64 {
        self.took_us.value_at_percentile(percentile)
    }
}

impl Rates {
    /// As one object.
    pub fn json(&self) -> Value {
        let rates = self.rates.iter().map(|rate| {
            json!({
                "method": rate.method,
                "samples_per_s": rate.per_s,
                "failures": rate.failures,
                "p50_us": rate.at(50.0),
                "p99_us": rate.at(99.0),
            })
        });
        json!({ "rates": rates.collect::<Vec<_>>(), "passed_over": self.passed_over })
    }

    /// As plain text.
    pub fn table(&self) -> String {
        let row = |rate: &Rate| {
            vec![
                name(rate.method).to_owned(),
                format!("{:.1}", rate.per_s),
                rate.at(50.0).to_string(),
                rate.at(99.0).to_string(),
                rate.failures.to_string(),
            ]
        };
        let head = ["method", "samples/s", "P50, us", "P99, us", "failed"];
        plain_table(&head, &[0], self.rates.iter().map(row))
            .trim_end()
            .to_owned()
    }
}

fn one(method: QueueMethod, options: &QueueOptions, each: Duration) -> Result<Rate, QueueError> {
    let mut meter = open(method, options)?;
    // It grows as far as it needs to; a sample has time limits of seconds.
    let mut took_us = Histogram::new_with_bounds(1, 60_000_000, 3)
        .unwrap_or_else(|error| unreachable!("the bounds are constants: {error}"));
    let (mut samples, mut failures) = (0u64, 0);
    let start = Instant::now();
    while start.elapsed() < each {
        let begun = Instant::now();
        match meter.sample() {
            Ok(_) => samples += 1,
            Err(_) => failures += 1,
        }
        took_us.saturating_record(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    Ok(Rate {
        method,
        per_s: samples as f64 / start.elapsed().as_secs_f64(),
        failures,
        took_us,
    })
}
