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

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_wire::certs::{Authority, Validity};
    use headroom_wire::tls::{ClientTls, TlsFiles};
    use prometheus_client::registry::Registry;

    #[test]
    fn the_own_certificate_is_a_metric_with_its_days() {
        let dir = tempfile::tempdir().unwrap();
        let (authority, _) = Authority::create(dir.path(), Validity::days(30).unwrap()).unwrap();
        authority
            .issue_controller_named("metrics-test", Validity::days(7).unwrap())
            .unwrap();
        let file = |name: &str| dir.path().join(name);
        let files = TlsFiles {
            ca: file("ca.crt"),
            certificate: file("controller-metrics-test.crt"),
            key: file("controller-metrics-test.key"),
            revoked: None,
        };
        let _tls = ClientTls::load(&files).unwrap();
        let mut registry = Registry::with_prefix("headroom");
        registry.register_collector(Box::new(DaysLeft));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let line = "headroom_certificate_days_left{certificate=\"metrics-test\"} 6";
        assert!(text.contains(line), "{text}");
    }
}
