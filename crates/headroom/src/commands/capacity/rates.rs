//! How many samples a second each method can take: the paper's Figure 7, on any server, under whatever load it has.

use super::CapacityArgs;
use super::tables::plain;
use super::way::name;
use super::{PassedOver, order};
use hdrhistogram::Histogram;
use headroom_console::Failure;
use headroom_console::say;
use headroom_node::queue::{QueueError, QueueMethod, QueueOptions, open};
use serde_json::json;
use std::time::{Duration, Instant};

/// What one method could do.
struct Rate {
    method: QueueMethod,
    per_s: f64,
    failures: u64,
    /// Of a sample, microseconds.
    took_us: Histogram<u64>,
}

/// Samples with one method after another as often as it can, and prints the table.
///
/// # Errors
/// A port that nobody listens on, a result that cannot be written.
pub fn run(args: &CapacityArgs, options: &QueueOptions, each: Duration) -> Result<(), Failure> {
    let mut rates = Vec::new();
    let mut passed_over = Vec::new();
    for method in order(args) {
        match one(method, options, each) {
            Ok(rate) => rates.push(rate),
            Err(error @ QueueError::NobodyListens { .. }) => return Err(Failure::usage(error)),
            Err(error) => {
                let reason = error.to_string();
                say::note!("{} cannot be used: {reason}", name(method));
                passed_over.push(PassedOver { method, reason });
            }
        }
    }
    let at = |rate: &Rate, percentile| rate.took_us.value_at_percentile(percentile);
    if args.json {
        let rates: Vec<_> = rates
            .iter()
            .map(|rate| {
                json!({
                    "method": rate.method,
                    "samples_per_s": rate.per_s,
                    "failures": rate.failures,
                    "p50_us": at(rate, 50.0),
                    "p99_us": at(rate, 99.0),
                })
            })
            .collect();
        return say::result(json!({ "rates": rates, "passed_over": passed_over }));
    }
    let rows: Vec<Vec<String>> = rates
        .iter()
        .map(|rate| {
            vec![
                name(rate.method).to_owned(),
                format!("{:.1}", rate.per_s),
                at(rate, 50.0).to_string(),
                at(rate, 99.0).to_string(),
                rate.failures.to_string(),
            ]
        })
        .collect();
    let head = ["method", "samples/s", "P50, us", "P99, us", "failed"];
    say::result(plain(&head, &rows).trim_end())
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
