//! The connections of a server on call, one by one, as the admin port tells them: as JSON, and the busiest as metrics.

use super::class::Class;
use super::class_table::ClassTable;
use super::classes::{class_of, id};
use headroom_oncall::{ConnectionTotals, Steering};
use headroom_units::Seconds;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Most connections that may have metrics of their own: each has seven series.
pub const MAX_IN_METRICS: usize = 1_024;
/// The percentiles of a connection's last latencies that are told.
const PERCENTILES: [(&str, f64); 3] = [("0.5", 0.5), ("0.95", 0.95), ("0.99", 0.99)];

/// One connection, for whoever asks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConnectionReport {
    /// Its name: its place in the region, and how many had that before. Another connection never has it again.
    pub connection: String,
    /// Its client's address and port, or `unix`.
    pub client: String,
    /// The user that the client gave, where the protocol says it.
    pub user: Option<String>,
    /// Its class.
    pub class: String,
    /// The thread or process that serves it.
    pub tid: Option<u32>,
    /// Its descriptor in the server.
    pub fd: i32,
    /// Whether it is in the midst of a transaction, where it does not yield; `None` where the protocol does not say.
    pub in_transaction: Option<bool>,
    /// Whether it has asked for locks of the server that outlive a transaction, as far as that is seen.
    pub holds_locks: bool,
    /// Whether it goes before others, and its worker is blocked inside a query: who holds locks does not give way meanwhile.
    pub blocked: bool,
    /// Queries answered since it came, also by a failure.
    pub queries: u64,
    /// Those of them that the server failed; `None` where its answers are not read.
    pub failures: Option<u64>,
    /// The latencies of the others together, in seconds.
    pub latency_seconds: f64,
    /// The times between the arrivals of its queries together, in seconds.
    pub interarrival_seconds: f64,
    /// The last latencies that the percentiles are of: at most [`headroom_oncall::layout::KEPT`].
    pub recent: usize,
    /// Median, P95 and P99 of these, in seconds; `None` where there are none.
    pub recent_seconds: Option<[f64; 3]>,
}

impl ConnectionReport {
    fn of(connection: &ConnectionTotals, classes: &[Class]) -> Self {
        let mut recent: Vec<Seconds> = connection.recent.clone();
        recent.sort_by(|one, two| one.get().total_cmp(&two.get()));
        let at = |(_, share): (&str, f64)| {
            let rank = (share * recent.len() as f64).ceil() as usize;
            recent[rank.clamp(1, recent.len()) - 1].get()
        };
        Self {
            connection: format!("{}.{}", connection.place.0, connection.place.1),
            client: connection
                .client
                .map_or_else(|| "unix".to_owned(), |client| client.to_string()),
            user: connection.user.clone(),
            class: class_of(classes, connection).to_owned(),
            tid: connection.tid,
            fd: connection.fd,
            in_transaction: connection.in_transaction,
            holds_locks: connection.holds_locks,
            blocked: connection.is_blocked,
            queries: connection.queries,
            failures: connection.failures,
            latency_seconds: connection.latency.get(),
            interarrival_seconds: connection.between.get(),
            recent: recent.len(),
            recent_seconds: (!recent.is_empty()).then(|| PERCENTILES.map(at)),
        }
    }
}

/// The connections of a server on call, read from its region when somebody asks: the control loop does nothing for them.
#[derive(Debug)]
pub struct Connections {
    /// Whose they are now: whoever commands the server lets it go, and not whoever looks at it.
    server: Mutex<Weak<Steering>>,
    classes: ClassTable,
    in_metrics: usize,
    /// Queries of each connection when the metrics were read last: what tells the busiest. As many as there are connections.
    before: Mutex<HashMap<u64, u64>>,
}

impl Connections {
    /// Those of a server, once there is one ([`follow`](Self::follow)), of which so many have metrics.
    pub fn new(classes: impl Into<ClassTable>, in_metrics: usize) -> Self {
        Self {
            server: Mutex::default(),
            classes: classes.into(),
            in_metrics: in_metrics.min(MAX_IN_METRICS),
            before: Mutex::default(),
        }
    }

    /// From now on those of this server, as long as somebody commands it.
    pub fn follow(&self, server: &Arc<Steering>) {
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(server);
    }

    /// All that there are now.
    fn all(&self) -> Vec<ConnectionTotals> {
        let server = self
            .server
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .upgrade();
        server.map_or_else(Vec::new, |server| server.connections())
    }

    /// All of them as JSON, those that were answered the most queries first.
    pub fn json(&self) -> String {
        let classes = self.classes.now();
        let mut all: Vec<ConnectionReport> = self
            .all()
            .iter()
            .map(|connection| ConnectionReport::of(connection, &classes))
            .collect();
        all.sort_by_key(|one| std::cmp::Reverse(one.queries));
        serde_json::json!({ "count": all.len(), "connections": all }).to_string()
    }

    /// Those that were answered the most queries since the last call, and how many others there are.
    fn busiest(&self, all: &[ConnectionTotals]) -> (Vec<ConnectionReport>, usize) {
        let now: HashMap<u64, u64> = all.iter().map(|one| (id(one), one.queries)).collect();
        let before = {
            let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *before, now)
        };
        let since = |one: &ConnectionTotals| {
            let then = before.get(&id(one)).copied().unwrap_or(0);
            one.queries.saturating_sub(then)
        };
        let mut ranked: Vec<&ConnectionTotals> = all.iter().collect();
        // Of equals those that are there for longer keep their series.
        ranked.sort_by_key(|one| (std::cmp::Reverse((since(one), one.queries)), one.place));
        let shown = ranked.iter().take(self.in_metrics);
        let classes = self.classes.now();
        let shown = shown.map(|connection| ConnectionReport::of(connection, &classes));
        (shown.collect(), all.len().saturating_sub(self.in_metrics))
    }

    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        if self.in_metrics == 0 {
            return Ok(());
        }
        let (shown, left_out) = self.busiest(&self.all());
        encode(&shown, left_out, &mut encoder)
    }
}

type Labels = Vec<(&'static str, String)>;

fn labels(connection: &ConnectionReport) -> Labels {
    vec![
        ("connection", connection.connection.clone()),
        ("client", connection.client.clone()),
        ("user", connection.user.clone().unwrap_or_default()),
        ("class", connection.class.clone()),
        (
            "tid",
            connection.tid.map_or_else(String::new, |tid| tid.to_string()),
        ),
    ]
}

fn encode(
    shown: &[ConnectionReport],
    left_out: usize,
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), fmt::Error> {
    let mut metric = encoder.encode_descriptor(
        "connections_without_series",
        "Connections of the server on call that are not among the busiest, and have no metrics of their own",
        None,
        MetricType::Gauge,
    )?;
    metric.encode_gauge(&(left_out as i64))?;
    // A family without a metric would be an empty one.
    if shown.is_empty() {
        return Ok(());
    }
    let mut metric = encoder.encode_descriptor(
        "connection_queries",
        "Queries of a connection answered since it came; of the busiest connections alone",
        None,
        MetricType::Counter,
    )?;
    for one in shown {
        metric
            .encode_family(&labels(one))?
            .encode_counter::<NoLabelSet, _, u64>(&one.queries, None)?;
    }
    if shown.iter().any(|one| one.failures.is_some()) {
        let mut metric = encoder.encode_descriptor(
            "connection_failures",
            "Queries of a connection that the server failed; of those whose answers are read",
            None,
            MetricType::Counter,
        )?;
        for (one, failures) in shown.iter().filter_map(|one| Some((one, one.failures?))) {
            metric
                .encode_family(&labels(one))?
                .encode_counter::<NoLabelSet, _, u64>(&failures, None)?;
        }
    }
    type Sum = fn(&ConnectionReport) -> f64;
    let sums: [(&str, &str, Sum); 2] = [
        (
            "connection_latency",
            "Latencies of a connection's queries together",
            |one| one.latency_seconds,
        ),
        (
            "connection_interarrival",
            "Times between the arrivals of a connection's queries together",
            |one| one.interarrival_seconds,
        ),
    ];
    for (name, help, sum) in sums {
        let mut metric = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Counter)?;
        for one in shown {
            metric
                .encode_family(&labels(one))?
                .encode_counter::<NoLabelSet, _, u64>(&sum(one), None)?;
        }
    }
    if shown.iter().all(|one| one.recent_seconds.is_none()) {
        return Ok(());
    }
    let mut metric = encoder.encode_descriptor(
        "connection_recent_latency",
        "Percentiles of the last 128 latencies of a connection",
        Some(&Unit::Seconds),
        MetricType::Gauge,
    )?;
    for one in shown {
        let values = one.recent_seconds.into_iter().flatten();
        for ((percentile, _), value) in PERCENTILES.iter().zip(values) {
            let mut labels = labels(one);
            labels.push(("percentile", (*percentile).to_owned()));
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
    }
    Ok(())
}

/// The metrics of the connections that a run has, where it has any: none before they are attended to.
#[derive(Clone, Debug, Default)]
pub struct ConnectionSeries(pub Arc<OnceLock<Arc<Connections>>>);

impl Collector for ConnectionSeries {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        match self.0.get() {
            Some(connections) => connections.encode(encoder),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::registry::Registry;

    fn connection(place: usize, queries: u64, user: Option<&str>) -> ConnectionTotals {
        ConnectionTotals {
            place: (place, 1),
            client: (place > 0).then(|| format!("10.0.0.{place}:4000").parse().unwrap()),
            user: user.map(str::to_owned),
            fd: 7,
            tid: Some(100 + place as u32),
            in_transaction: None,
            holds_locks: false,
            is_blocked: false,
            unanswered: None,
            queries,
            failures: Some(queries / 50),
            latency: Seconds::from_millis(queries as f64),
            between: Seconds::from_millis(10.0 * queries as f64),
            recent: (1..=queries.min(128))
                .map(|ms| Seconds::from_millis(ms as f64))
                .collect(),
        }
    }

    fn connections(in_metrics: usize) -> (tempfile::TempDir, Connections) {
        let folder = tempfile::tempdir().unwrap();
        let steering = Arc::new(Steering::create(&folder.path().join("region")).unwrap());
        let connections = Connections::new(Vec::new(), in_metrics);
        connections.follow(&steering);
        (folder, connections)
    }

    /// What is exposed of so many connections.
    fn exposed(connections: &Connections, all: &[ConnectionTotals]) -> String {
        #[derive(Debug)]
        struct Fixed(Vec<ConnectionReport>, usize);
        impl Collector for Fixed {
            fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
                encode(&self.0, self.1, &mut encoder)
            }
        }
        let (shown, left_out) = connections.busiest(all);
        let mut registry = Registry::with_prefix("headroom");
        registry.register_collector(Box::new(Fixed(shown, left_out)));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn a_connection_has_its_figures_and_its_labels_escaped() {
        let (_folder, connections) = connections(8);
        let text = exposed(&connections, &[connection(3, 100, Some("a\"b\\c\nd"))]);
        let of =
            "connection=\"3.1\",client=\"10.0.0.3:4000\",user=\"a\\\"b\\\\c\\nd\",class=\"rest\",tid=\"103\"";
        for line in [
            format!("headroom_connection_queries_total{{{of}}} 100"),
            format!("headroom_connection_failures_total{{{of}}} 2"),
            format!("headroom_connection_latency_seconds_total{{{of}}} 0.1"),
            format!("headroom_connection_interarrival_seconds_total{{{of}}} 1.0"),
            format!("headroom_connection_recent_latency_seconds{{{of},percentile=\"0.5\"}} 0.05"),
            format!("headroom_connection_recent_latency_seconds{{{of},percentile=\"0.95\"}} 0.095"),
            format!("headroom_connection_recent_latency_seconds{{{of},percentile=\"0.99\"}} 0.099"),
            "headroom_connections_without_series 0".to_owned(),
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
    }

    #[test]
    fn the_busiest_since_the_last_look_have_series_and_the_others_are_counted() {
        let (_folder, connections) = connections(2);
        let names = |all: &[ConnectionTotals]| {
            let (shown, left_out) = connections.busiest(all);
            let names: Vec<String> = shown.into_iter().map(|one| one.connection).collect();
            (names.join(" "), left_out)
        };
        let first = [
            connection(0, 900, None),
            connection(1, 5, None),
            connection(2, 8, None),
        ];
        assert_eq!(names(&first), ("0.1 2.1".to_owned(), 1));
        // The one with the most queries of all has had none since.
        let then = [
            connection(0, 900, None),
            connection(1, 50, None),
            connection(2, 60, None),
        ];
        assert_eq!(names(&then), ("2.1 1.1".to_owned(), 1));
    }

    #[test]
    fn nothing_grows_while_connections_come_and_go() {
        let (_folder, connections) = connections(4);
        let mut longest = 0;
        for round in 0..2_000_u32 {
            let all: Vec<ConnectionTotals> = (0..8)
                .map(|place| ConnectionTotals {
                    place: (place, 2 * round + 1),
                    ..connection(place, 3, None)
                })
                .collect();
            longest = longest.max(exposed(&connections, &all).lines().count());
            assert_eq!(connections.before.lock().unwrap().len(), 8);
        }
        // Four connections of seven series, and the lines that say what they are.
        assert!(longest <= 4 * 7 + 1 + 3 * 6 + 1, "{longest}");
    }

    #[test]
    fn there_are_no_series_where_none_are_asked_for_and_all_are_in_the_json() {
        let (_folder, connections) = connections(0);
        let series = ConnectionSeries::default();
        let mut registry = Registry::with_prefix("headroom");
        registry.register_collector(Box::new(series.clone()));
        let json: serde_json::Value = serde_json::from_str(&connections.json()).unwrap();
        assert_eq!(json, serde_json::json!({ "count": 0, "connections": [] }));
        series.0.set(Arc::new(connections)).unwrap();
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert_eq!(text, "# EOF\n");
    }
}
