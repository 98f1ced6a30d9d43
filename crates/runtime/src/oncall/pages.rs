//! The connections of a server on call as pages of an admin port, for who has no control loop: an agent.

use super::connections::{ConnectionSeries, Connections};
use crate::live::admin::{PLAIN, Page, Pages, json_page, metrics_page};
use hyper::StatusCode;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::sync::Arc;

/// `/connections`, and the metrics of those of them that have some.
#[derive(Debug)]
pub struct ConnectionPages {
    connections: Arc<Connections>,
    registry: Registry,
}

impl ConnectionPages {
    /// Those of a server, whoever commands it.
    pub fn new(connections: Arc<Connections>) -> Self {
        let mut registry = Registry::with_prefix("headroom");
        let series = ConnectionSeries(Arc::new(Arc::clone(&connections).into()));
        registry.register_collector(Box::new(series));
        Self {
            connections,
            registry,
        }
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

impl Pages for ConnectionPages {
    fn page(&self, path: &str) -> Option<Page> {
        Some(match path {
            "/metrics" => metrics_page(self.metrics()),
            "/connections" => json_page(self.connections.json()),
            "/healthz" => (StatusCode::OK, PLAIN, "ok\n".to_owned()),
            _ => return None,
        })
    }

    fn paths(&self) -> &'static str {
        "/connections, /metrics with the busiest of them (oncall.connections_in_metrics), /healthz"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_pages_and_a_server_that_is_away_has_none() {
        let pages = ConnectionPages::new(Arc::new(Connections::new(Vec::new(), 4)));
        let text = |path: &str| pages.page(path).map(|(_, _, text)| text);
        assert!(text("/connections").is_some_and(|text| text.contains(r#""count":0"#)));
        assert!(text("/metrics").is_some_and(|text| text.contains("headroom_connections_without_series 0")));
        assert_eq!(text("/healthz").as_deref(), Some("ok\n"));
        assert_eq!(text("/status"), None);
    }
}
