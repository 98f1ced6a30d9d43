//! Periods and their parts as CSV and as JSON lines.

use crate::archive::Archive;
use crate::error::Error;
use crate::model::{PeriodRecord, Reason, RunId};
use headroom_units::{Cores, Hertz, Part, PerSecond, Quantity, Ratio, Seconds, Source, Watts};
use serde::Serialize;
use std::io::{self, Write};

/// A period as one flat record; the keys of an export, with the unit last. Empty (CSV) or `null` (JSON) is unknown.
#[derive(Serialize)]
struct Flat<'a, Json> {
    run: i64,
    index: u64,
    t_s: f64,
    duration_s: f64,
    arrivals: u64,
    completions: u64,
    failures: u64,
    failed_by_client: u64,
    in_flight: u64,
    oldest_in_flight_ms: Option<f64>,
    latency_mean_ms: Option<f64>,
    latency_p50_ms: Option<f64>,
    latency_p95_ms: Option<f64>,
    latency_p99_ms: Option<f64>,
    latency_p999_ms: Option<f64>,
    latency_max_ms: Option<f64>,
    slo_ms: Option<f64>,
    forecast_per_s: Option<f64>,
    cores: Option<f64>,
    cap_w: Option<f64>,
    cap_at_limit: bool,
    power_w: Option<f64>,
    power_source: Option<Source>,
    energy_j: Option<f64>,
    energy_source: Option<Source>,
    utilisation: Option<f64>,
    throttled: Option<f64>,
    frequency_hz: Option<f64>,
    frequency_limit_hz: Option<f64>,
    telemetry_lost: bool,
    levers_lost: bool,
    nodes_missing: u64,
    rules: &'a str,
    seen: Json,
    decided: Json,
    reasons: Json,
}

fn flat<'a, Json>(
    run: RunId,
    period: &PeriodRecord,
    rules: &'a str,
    [seen, decided, reasons]: [Json; 3],
) -> Flat<'a, Json> {
    Flat {
        run: run.0,
        index: period.index,
        t_s: period.at.get(),
        duration_s: period.duration.get(),
        arrivals: period.arrivals,
        completions: period.completions,
        failures: period.failures,
        failed_by_client: period.failed_by_client,
        in_flight: period.in_flight,
        oldest_in_flight_ms: period.oldest_in_flight.map(Seconds::as_millis),
        latency_mean_ms: period.latency.map(|latency| latency.mean.as_millis()),
        latency_p50_ms: period.latency.map(|latency| latency.p50.as_millis()),
        latency_p95_ms: period.latency.map(|latency| latency.p95.as_millis()),
        latency_p99_ms: period.latency.map(|latency| latency.p99.as_millis()),
        latency_p999_ms: period.latency.map(|latency| latency.p999.as_millis()),
        latency_max_ms: period.latency.map(|latency| latency.max.as_millis()),
        slo_ms: period.slo_latency.map(Seconds::as_millis),
        forecast_per_s: period.forecast.map(PerSecond::get),
        cores: period.cores.map(Cores::get),
        cap_w: period.cap.map(Watts::get),
        cap_at_limit: period.cap_at_limit,
        power_w: period.power.map(|power| power.value.get()),
        power_source: period.power.map(|power| power.source),
        energy_j: period.energy.map(|energy| energy.value.get()),
        energy_source: period.energy.map(|energy| energy.source),
        utilisation: period.utilisation.map(Ratio::get),
        throttled: period.throttled.map(Ratio::get),
        frequency_hz: period.frequency.map(Hertz::get),
        frequency_limit_hz: period.frequency_limit.map(Hertz::get),
        telemetry_lost: period.telemetry_lost,
        levers_lost: period.levers_lost,
        nodes_missing: period.nodes_missing,
        rules,
        seen,
        decided,
        reasons,
    }
}

fn rules_of(reasons: &[Reason]) -> String {
    let rules: Vec<&str> = reasons.iter().map(|reason| reason.rule.as_str()).collect();
    rules.join(" ")
}

/// A line of JSON: the period, and its parts where it has any.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    period: Flat<'a, serde_json::Value>,
    #[serde(skip_serializing_if = "<[Part]>::is_empty")]
    parts: &'a [Part],
}

impl Archive {
    /// Writes a run's periods as CSV (RFC 4180: CRLF, quotes where needed, one header line). What was seen and
    /// decided and the reasons are JSON texts in their fields; `rules` names the reasons' rules.
    ///
    /// # Errors
    /// The file cannot be read, or `out` cannot be written.
    pub fn export_csv(&self, id: RunId, out: impl Write) -> Result<(), Error> {
        self.run(id)?;
        let mut csv = csv::WriterBuilder::new()
            .terminator(csv::Terminator::CRLF)
            .has_headers(true)
            .from_writer(out);
        self.for_each_period(id, |period| {
            let json = [
                serde_json::to_string(&period.seen).map_err(io::Error::from)?,
                serde_json::to_string(&period.decided).map_err(io::Error::from)?,
                serde_json::to_string(&period.reasons).map_err(io::Error::from)?,
            ];
            let rules = rules_of(&period.reasons);
            csv.serialize(flat(id, &period, &rules, json))
                .map_err(|error| Error::Export(error.into()))
        })?;
        csv.flush()?;
        Ok(())
    }

    /// Writes the parts of a run's periods as CSV: a line for each part of each period, a column for each quantity, with its
    /// unit last. Facts and troubles are JSON texts.
    ///
    /// # Errors
    /// The file cannot be read, or `out` cannot be written.
    pub fn export_parts_csv(&self, id: RunId, out: impl Write) -> Result<(), Error> {
        self.run(id)?;
        let failed = |error: csv::Error| Error::Export(error.into());
        let mut csv = csv::WriterBuilder::new()
            .terminator(csv::Terminator::CRLF)
            .from_writer(out);
        let columns = Quantity::all().map(|quantity| quantity.info());
        let columns = columns.map(|info| format!("{}_{}", info.name, info.unit));
        let head = ["run", "index", "t_s", "name", "role", "state", "source"].map(str::to_owned);
        let tail = ["facts", "trouble"].map(str::to_owned);
        csv.write_record(head.into_iter().chain(columns).chain(tail))
            .map_err(failed)?;
        self.for_each_period(id, |period| {
            for part in &period.parts {
                let head = [
                    id.to_string(),
                    period.index.to_string(),
                    period.at.get().to_string(),
                    part.name.clone(),
                    part.role.name().to_owned(),
                    part.state.clone().unwrap_or_default(),
                    part.source.map_or("", Source::as_str).to_owned(),
                ];
                let values = Quantity::all().map(|quantity| part.get(quantity));
                let values = values.map(|value| value.map_or_else(String::new, |value| value.to_string()));
                let tail = [
                    serde_json::to_string(&part.facts).map_err(io::Error::from)?,
                    serde_json::to_string(&part.trouble).map_err(io::Error::from)?,
                ];
                csv.write_record(head.into_iter().chain(values).chain(tail))
                    .map_err(failed)?;
            }
            Ok(())
        })?;
        csv.flush()?;
        Ok(())
    }

    /// Writes a run's periods as JSON lines: one object a period, the same keys as the CSV, and its parts.
    ///
    /// # Errors
    /// The file cannot be read, or `out` cannot be written.
    pub fn export_jsonl(&self, id: RunId, mut out: impl Write) -> Result<(), Error> {
        self.run(id)?;
        self.for_each_period(id, |period| {
            let rules = rules_of(&period.reasons);
            let reasons = serde_json::to_value(&period.reasons).map_err(io::Error::from)?;
            let json = [period.seen.clone(), period.decided.clone(), reasons];
            let line = Line {
                period: flat(id, &period, &rules, json),
                parts: &period.parts,
            };
            serde_json::to_writer(&mut out, &line).map_err(io::Error::from)?;
            out.write_all(b"\n")?;
            Ok(())
        })?;
        out.flush()?;
        Ok(())
    }
}
