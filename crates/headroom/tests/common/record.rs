//! The flight recorder of a controller, read while it runs: each period with its servers, as tests ask for them.

use headroom_record::{Archive, PeriodRecord};
use headroom_units::{Cores, Lever, Part, Role, Sensor};
use serde_json::{Value, json};
use std::path::Path;

fn newest(db: &Path) -> Vec<PeriodRecord> {
    let read = || -> Option<Vec<PeriodRecord>> {
        let archive = Archive::open(db).ok()?;
        let newest = archive.find("latest").ok()?;
        archive.periods(newest.id).ok()
    };
    read().unwrap_or_default()
}

/// The periods of the newest run in a record; none where there is none yet.
pub fn periods(db: &Path) -> Vec<Value> {
    newest(db).iter().map(period).collect()
}

/// The cores and the workers at once that were in force in each period of the newest run.
pub fn cores_and_workers(db: &Path) -> Vec<(Option<f64>, Option<f64>)> {
    let workers = |period: &PeriodRecord| {
        let mut nodes = period.parts.iter().filter(|part| part.role == Role::Node);
        nodes.find_map(|part| part.get(Lever::Concurrency))
    };
    let of = |period: &PeriodRecord| (period.cores.map(Cores::get), workers(period));
    newest(db).iter().map(of).collect()
}

fn period(period: &PeriodRecord) -> Value {
    let of = |role: Role| period.parts.iter().filter(move |part| part.role == role);
    let trouble = of(Role::Gateway).find_map(|part| part.trouble.first());
    json!({
        "period": period.index,
        "arrival_rate_per_s": of(Role::Cluster).find_map(|part| part.get(Sensor::ArrivalRate)),
        "balancer": { "trouble": trouble },
        "servers": of(Role::Node).map(server).collect::<Vec<_>>(),
    })
}

fn server(part: &Part) -> Value {
    let state = part.state.as_deref().unwrap_or_default();
    let (state, cause) = match state.split_once(" (") {
        Some((state, cause)) => (state, Some(cause.trim_end_matches(')'))),
        None => (state, None),
    };
    let fact = |name: &str| part.facts.get(name);
    let count = |name: &str| fact(name).and_then(|count| json!(count).as_f64());
    json!({
        "name": part.name,
        "state": state,
        "cause": cause,
        "command": fact("command"),
        "answering": fact("answering"),
        "capacity": { "kind": fact("capacity"), "per_s": part.get(Sensor::Capacity) },
        "queue": count("arrivals").map(|arrivals| json!({
            "arrivals": arrivals,
            "accepts": count("accepts"),
            "drops": count("drops"),
        })),
        "most_in_flight": fact("most_in_flight"),
        "trouble": part.trouble,
    })
}
