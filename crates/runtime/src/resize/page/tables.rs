//! What is told in tables: the rules, the run summary, what happened.

use crate::resize::history::{History, RuleTotal};
use crate::resize::summary::percent;
use headroom_record::report::{Grid, Section};
use serde_json::Value;

pub(super) fn decisions(history: &History) -> Section {
    let mut rules: Vec<(&String, &RuleTotal)> = history.rules.iter().collect();
    rules.sort_by(|one, other| other.1.periods.cmp(&one.1.periods).then(one.0.cmp(other.0)));
    let row = |(name, rule): (&String, &RuleTotal)| {
        vec![
            name.clone(),
            rule.periods.to_string(),
            format!(
                "{:.1}",
                rule.periods as f64 / history.periods.max(1) as f64 * 100.0
            ),
            format!("{:.0} s", rule.example.0),
            rule.example.1.clone(),
        ]
    };
    Section {
        title: "Which rules decided?".to_owned(),
        tables: vec![Grid {
            header: ["rule", "periods", "% of periods", "first at", "what it said then"]
                .map(str::to_owned)
                .to_vec(),
            rows: rules.into_iter().map(row).collect(),
            words: vec![0, 4],
            ..Grid::default()
        }],
        ..Section::default()
    }
}

pub(super) fn happened(history: &History) -> Section {
    let left_out = match history.news_left_out {
        0 => Vec::new(),
        more => vec![format!(
            "The last {}; {more} came before them.",
            history.news.len()
        )],
    };
    let rows: Vec<Vec<String>> = history
        .news
        .iter()
        .map(|news| vec![format!("{:.1} s", news.at_s), news.what.clone(), news.why.clone()])
        .collect();
    let tables = (!rows.is_empty()).then(|| Grid {
        header: ["at", "what", "why"].map(str::to_owned).to_vec(),
        rows,
        words: vec![1, 2],
        ..Grid::default()
    });
    Section {
        title: "What happened".to_owned(),
        text: left_out,
        tables: tables.into_iter().collect(),
        ..Section::default()
    }
}

/// The run summary, as far as it has values.
pub(super) fn figures(summary: &Value) -> Section {
    let resize = &summary["resize"];
    let connections = &resize["connections"];
    let number = |value: &Value, scale: f64, decimals: usize| {
        value
            .as_f64()
            .map(|value| format!("{:.decimals$}", value * scale))
    };
    let list = |counts: &Value| {
        let counts = counts.as_object()?;
        let words: Vec<String> = counts
            .iter()
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        (!words.is_empty()).then(|| words.join(", "))
    };
    let state_s = resize["server_seconds"].as_object().into_iter().flatten();
    let by_state: Vec<String> = state_s
        .map(|(state, seconds)| format!("{state} {:.0}", seconds.as_f64().unwrap_or_default()))
        .collect();
    let rows = [
        (
            "servers that took requests, mean",
            "",
            number(&resize["serving_mean"], 1.0, 2),
        ),
        ("server-seconds by state", "s", Some(by_state.join(", "))),
        ("transitions", "", list(&resize["transitions"])),
        ("failures", "", list(&resize["failures"])),
        (
            "orders to power switches carried out",
            "",
            number(&resize["orders"]["done"], 1.0, 0),
        ),
        (
            "orders that failed",
            "",
            number(&resize["orders"]["failed"], 1.0, 0),
        ),
        (
            "requests at the balancer",
            "",
            number(&summary["requests"]["offered"], 1.0, 0),
        ),
        (
            "requests answered",
            "",
            number(&summary["requests"]["completed"], 1.0, 0),
        ),
        (
            "requests failed",
            "",
            number(&summary["requests"]["failed"], 1.0, 0),
        ),
        (
            "latency, mean",
            "ms",
            number(&summary["latency_ms"]["mean"], 1.0, 1),
        ),
        ("latency P50", "ms", number(&summary["latency_ms"]["p50"], 1.0, 1)),
        ("latency P95", "ms", number(&summary["latency_ms"]["p95"], 1.0, 1)),
        ("latency P99", "ms", number(&summary["latency_ms"]["p99"], 1.0, 1)),
        (
            "connection attempts",
            "",
            number(&connections["attempts"], 1.0, 0),
        ),
        ("attempts dropped", "", number(&connections["dropped"], 1.0, 0)),
        ("drop ratio", "%", number(&connections["drop_ratio"], 100.0, 4)),
        (
            "energy, estimated",
            "J",
            number(&summary["energy_j"]["value"], 1.0, 0),
        ),
        (
            "energy with every server on, estimated",
            "J",
            number(&resize["energy_always_on_j"], 1.0, 0),
        ),
        ("saved", "%", resize["saving"].as_f64().map(percent)),
        (
            "energy per request, estimated",
            "J",
            number(&summary["joules_per_request"], 1.0, 3),
        ),
        (
            "power, estimated mean",
            "W",
            number(&summary["power_w"]["consumed_mean"], 1.0, 1),
        ),
        (
            "periods without an arrival rate",
            "",
            number(&summary["telemetry_lost_periods"], 1.0, 0),
        ),
        (
            "periods without the balancer",
            "",
            number(&resize["balancer_lost_periods"], 1.0, 0),
        ),
    ];
    let known = rows.into_iter().filter_map(|(name, unit, value)| {
        let value = format!("{} {unit}", value?);
        Some(vec![name.to_owned(), value.trim_end().to_owned()])
    });
    Section {
        title: "The run summary".to_owned(),
        tables: vec![Grid {
            header: ["", "value"].map(str::to_owned).to_vec(),
            rows: known.collect(),
            words: vec![0, 1],
            ..Grid::default()
        }],
        ..Section::default()
    }
}
