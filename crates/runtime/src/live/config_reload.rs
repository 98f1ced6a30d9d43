//! Whether the configuration was accepted when it was read last, as metrics: that of a process that reads it again while it runs.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// `None` until it was read first.
static LAST: Mutex<Option<Last>> = Mutex::new(None);

#[derive(Clone, Copy, Debug)]
struct Last {
    accepted: bool,
    /// Seconds since 1970.
    accepted_s: f64,
}

fn at(last: Option<Last>, accepted: bool, now_s: f64) -> Last {
    let before = last.map_or(0.0, |last| last.accepted_s);
    Last {
        accepted,
        accepted_s: if accepted { now_s } else { before },
    }
}

/// The configuration was read, at the start or again, and accepted or refused as a whole.
pub fn was_read(accepted: bool) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_s = since.map_or(0.0, |since| since.as_secs_f64());
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    *last = Some(at(*last, accepted, now_s));
}

/// `headroom_config_last_reload_successful` and `headroom_config_last_reload_success_timestamp_seconds`.
#[derive(Debug)]
pub(super) struct ConfigReload;

impl Collector for ConfigReload {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let last = *LAST.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = last else {
            return Ok(());
        };
        for (name, help, value) in [
            (
                "config_last_reload_successful",
                "1 where the configuration was accepted when it was read last, else 0: then what was accepted before it holds",
                f64::from(u8::from(last.accepted)),
            ),
            (
                "config_last_reload_success_timestamp_seconds",
                "When the configuration was accepted last, in seconds since 1970",
                last.accepted_s,
            ),
        ] {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(metric)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::registry::Registry;

    #[test]
    fn a_refused_file_keeps_the_time_of_the_accepted_one() {
        let start = at(None, true, 10.0);
        let refused = at(Some(start), false, 20.0);
        assert_eq!((refused.accepted, refused.accepted_s), (false, 10.0));
        let again = at(Some(refused), true, 30.0);
        assert_eq!((again.accepted, again.accepted_s), (true, 30.0));
    }

    #[test]
    fn it_is_two_metrics_of_a_process_that_reads_its_file_again() {
        let text = || {
            let mut registry = Registry::with_prefix("headroom");
            registry.register_collector(Box::new(ConfigReload));
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            text
        };
        assert!(!text().contains("config_last_reload"));
        was_read(true);
        let accepted = text();
        assert!(
            accepted.contains("headroom_config_last_reload_successful 1.0"),
            "{accepted}"
        );
        was_read(false);
        let refused = text();
        assert!(
            refused.contains("headroom_config_last_reload_successful 0.0"),
            "{refused}"
        );
        let at = |text: &str| {
            let name = "headroom_config_last_reload_success_timestamp_seconds ";
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().parse::<f64>().unwrap()
        };
        assert!(at(&accepted) > 1e9 && at(&accepted) == at(&refused));
    }
}
