//! How many days the certificates are still valid that this process shows, and those that nodes and gateways showed it.

use headroom_wire::tls::days_left;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use std::fmt;
use std::time::SystemTime;

/// `headroom_certificate_days_left`, as it is when it is asked for.
#[derive(Debug)]
pub(super) struct DaysLeft;

impl Collector for DaysLeft {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let family = Family::<[(&'static str, String); 1], Gauge>::default();
        let known = days_left(SystemTime::now());
        if known.is_empty() {
            return Ok(());
        }
        for (name, days) in known {
            family.get_or_create(&[("certificate", name)]).set(days);
        }
        let metric = encoder.encode_descriptor(
            "certificate_days_left",
            "Whole days until a certificate ends that this process shows or was shown; negative where it has",
            None,
            prometheus_client::metrics::MetricType::Gauge,
        )?;
        family.encode(metric)
    }
}
