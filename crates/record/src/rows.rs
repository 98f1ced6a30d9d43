//! Runs and periods as rows of the file.

use crate::clock::this_process;
use crate::model::{LatencySummary, MAX_PARTS, PeriodRecord, Reason, RunMeta};
use headroom_units::{
    Cores, Fact, Hertz, Joules, Part, PerSecond, Quantity, Ratio, Reading, Role, Seconds, Source, Watts,
};
use rusqlite::types::Type;
use rusqlite::{Connection, Row, ToSql, params};
use std::collections::BTreeMap;

/// Reasons kept of one period; further ones are dropped.
pub(crate) const MAX_REASONS: usize = 32;

/// Bytes kept of one text (a reason's sentence, a note); longer ones are cut and end in "…".
pub(crate) const MAX_TEXT_BYTES: usize = 4 << 10;

/// Bytes of JSON kept of what was seen, and of what was decided, in one period; a longer one is replaced by
/// `{"left_out_bytes": n}`.
pub(crate) const MAX_JSON_BYTES: usize = 64 << 10;

/// Bytes kept of a run's configuration.
pub(crate) const MAX_CONFIG_BYTES: usize = 1 << 20;

/// Facts, and troubles, kept of a part in one period; and the bytes of one, and of a name.
const MAX_FACTS: usize = 32;
const MAX_FACT_BYTES: usize = 512;
const MAX_NAME_BYTES: usize = 256;

/// Notes kept of a run.
pub(crate) const MAX_NOTES: usize = 64;

/// A text of at most so many bytes.
pub(crate) fn cut(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let end = (0..=max_bytes - '…'.len_utf8())
        .rev()
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(0);
    format!("{}…", &text[..end])
}

fn json_text(value: &impl serde::Serialize) -> String {
    // Serialising a value that serde built, or a struct of plain fields, into a string cannot fail.
    let text = serde_json::to_string(value)
        .unwrap_or_else(|error| serde_json::json!({ "not_serialised": error.to_string() }).to_string());
    if text.len() <= MAX_JSON_BYTES {
        text
    } else {
        format!("{{\"left_out_bytes\":{}}}", text.len())
    }
}

fn reasons_text(reasons: &[Reason]) -> String {
    let kept: Vec<Reason> = reasons
        .iter()
        .take(MAX_REASONS)
        .map(|reason| Reason {
            rule: cut(&reason.rule, 256),
            text: cut(&reason.text, MAX_TEXT_BYTES),
            numbers: reason
                .numbers
                .iter()
                .take(64)
                .map(|(name, value)| (cut(name, 256), *value))
                .collect(),
            levers: reason.levers.clone(),
        })
        .collect();
    serde_json::to_string(&kept).unwrap_or_else(|_| "[]".to_owned())
}

pub(crate) fn notes_text(notes: &[String]) -> String {
    let kept: Vec<String> = notes
        .iter()
        .take(MAX_NOTES)
        .map(|note| cut(note, MAX_TEXT_BYTES))
        .collect();
    serde_json::to_string(&kept).unwrap_or_else(|_| "[]".to_owned())
}

/// The notes of a run.
pub(crate) fn notes_of(connection: &Connection, run: i64) -> rusqlite::Result<Vec<String>> {
    connection.query_row("SELECT notes FROM runs WHERE id = ?1", [run], |row| json(row, 0))
}

/// A count as SQLite keeps it.
pub(crate) fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Writes a run's first row; answers its id.
pub(crate) fn insert_run(connection: &Connection, meta: &RunMeta, now_ms: i64) -> rusqlite::Result<i64> {
    let name = |text: &str| cut(text, MAX_NAME_BYTES);
    let kept = RunMeta {
        name: name(&meta.name),
        law: name(&meta.law),
        trace: cut(&meta.trace, MAX_TEXT_BYTES),
        version: name(&meta.version),
        host: name(&meta.host),
        ..meta.clone()
    };
    let unwritable = |error: serde_json::Error| rusqlite::Error::ToSqlConversionFailure(error.into());
    let sql = format!(
        "INSERT INTO runs ({META_COLUMNS}, name, state, updated_at, writer, totals, histogram)
         VALUES (?1, ?2, ?3, ?4, ?5, 'running', ?6, ?7, '{{}}', '[]')"
    );
    let values = params![
        serde_json::to_string(&kept).map_err(unwritable)?,
        notes_text(&meta.notes),
        cut(&meta.config, MAX_CONFIG_BYTES),
        json_text(&meta.provenance),
        kept.name,
        now_ms,
        this_process(),
    ];
    connection.execute(&sql, values)?;
    Ok(connection.last_insert_rowid())
}

/// The columns of a period, in the order in which rows are written and read.
pub(crate) const PERIOD_COLUMNS: &str = "idx, t_s, duration_s, arrivals, completions, failures, failed_by_client, \
    in_flight, oldest_in_flight_ms, latency_mean_ms, latency_p50_ms, latency_p95_ms, latency_p99_ms, latency_p999_ms, \
    latency_max_ms, slo_ms, forecast_per_s, cores, cap_w, cap_at_limit, power_w, power_source, energy_j, \
    energy_source, utilisation, throttled, frequency_hz, frequency_limit_hz, telemetry_lost, levers_lost, \
    nodes_missing, seen, decided, reasons";

/// Writes a period's row.
pub(crate) fn insert_period(
    connection: &Connection,
    run: i64,
    period: &PeriodRecord,
) -> rusqlite::Result<()> {
    let places: Vec<String> = (1..=35).map(|place| format!("?{place}")).collect();
    let sql = format!(
        "INSERT INTO periods ({PERIOD_COLUMNS}, run) VALUES ({})",
        places.join(", ")
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let latency = |part: fn(LatencySummary) -> Seconds| period.latency.map(|all| part(all).as_millis());
    let values: [&dyn ToSql; 35] = [
        &count(period.index),
        &period.at.get(),
        &period.duration.get(),
        &count(period.arrivals),
        &count(period.completions),
        &count(period.failures),
        &count(period.failed_by_client),
        &count(period.in_flight),
        &period.oldest_in_flight.map(Seconds::as_millis),
        &latency(|all| all.mean),
        &latency(|all| all.p50),
        &latency(|all| all.p95),
        &latency(|all| all.p99),
        &latency(|all| all.p999),
        &latency(|all| all.max),
        &period.slo_latency.map(Seconds::as_millis),
        &period.forecast.map(PerSecond::get),
        &period.cores.map(Cores::get),
        &period.cap.map(Watts::get),
        &period.cap_at_limit,
        &period.power.map(|power| power.value.get()),
        &period.power.map(|power| power.source.as_str()),
        &period.energy.map(|energy| energy.value.get()),
        &period.energy.map(|energy| energy.source.as_str()),
        &period.utilisation.map(Ratio::get),
        &period.throttled.map(Ratio::get),
        &period.frequency.map(Hertz::get),
        &period.frequency_limit.map(Hertz::get),
        &period.telemetry_lost,
        &period.levers_lost,
        &count(period.nodes_missing),
        &json_text(&period.seen),
        &json_text(&period.decided),
        &reasons_text(&period.reasons),
        &run,
    ];
    statement.execute(&values[..])?;
    if period.parts.is_empty() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached(
        "INSERT INTO parts (run, idx, part, name, role, state, source, vals, facts, trouble)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?;
    for (number, part) in period.parts.iter().take(MAX_PARTS).enumerate() {
        let finite = part.values.iter().filter(|(_, value)| value.is_finite());
        let facts = part.facts.iter().take(MAX_FACTS);
        let trouble = part.trouble.iter().take(MAX_FACTS);
        statement.execute(params![
            run,
            count(period.index),
            count(number as u64),
            cut(&part.name, MAX_NAME_BYTES),
            part.role.name(),
            part.state.as_deref().map(|state| cut(state, MAX_NAME_BYTES)),
            part.source.map(Source::as_str),
            json_text(&finite.collect::<BTreeMap<_, _>>()),
            json_text(
                &facts
                    .map(|(name, fact)| {
                        let fact = match fact {
                            Fact::Words(words) => Fact::from(cut(words, MAX_FACT_BYTES)),
                            other => other.clone(),
                        };
                        (cut(name, MAX_NAME_BYTES), fact)
                    })
                    .collect::<BTreeMap<_, _>>()
            ),
            json_text(&trouble.map(|text| cut(text, MAX_FACT_BYTES)).collect::<Vec<_>>()),
        ])?;
    }
    Ok(())
}

/// Reads the parts of a period.
pub(crate) fn read_parts(connection: &Connection, run: i64, index: u64) -> rusqlite::Result<Vec<Part>> {
    let mut statement = connection.prepare_cached(
        "SELECT name, role, state, source, vals, facts, trouble FROM parts WHERE run = ?1 AND idx = ?2 ORDER BY part",
    )?;
    let read = |row: &Row<'_>| {
        // A quantity that this program does not know says nothing to it.
        let values: BTreeMap<String, f64> = json(row, 4)?;
        let values = values
            .into_iter()
            .filter_map(|(name, value)| Some((Quantity::named(&name)?, value)));
        Ok(Part {
            name: row.get(0)?,
            role: role(row, 1)?,
            state: row.get(2)?,
            source: source(row, 3)?,
            values: values.collect(),
            facts: json(row, 5)?,
            trouble: json(row, 6)?,
        })
    };
    statement.query_map(params![run, count(index)], read)?.collect()
}

/// How many parts of each role, in which states, a run had when any was last recorded.
pub(crate) fn last_parts(
    connection: &Connection,
    run: i64,
) -> rusqlite::Result<Vec<(Role, Option<String>, u64)>> {
    let mut statement = connection.prepare_cached(
        "SELECT role, state, count(*) FROM parts
            WHERE run = ?1 AND idx = (SELECT max(idx) FROM parts WHERE run = ?1)
            GROUP BY role, state ORDER BY min(part)",
    )?;
    let read = |row: &Row<'_>| Ok((role(row, 0)?, row.get(1)?, natural(row, 2)?));
    statement.query_map([run], read)?.collect()
}

fn role(row: &Row<'_>, column: usize) -> rusqlite::Result<Role> {
    let word: String = row.get(column)?;
    Role::named(&word).ok_or_else(|| damaged(column, format!("\"{word}\" is no role")))
}

/// A value that a row holds and that cannot be understood.
fn damaged(column: usize, detail: impl Into<String>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, detail.into().into())
}

fn source(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Source>> {
    let word: Option<String> = row.get(column)?;
    let unknown = |word: &str| damaged(column, format!("\"{word}\" is no source"));
    let named = |word: String| serde_json::from_value(word.as_str().into()).map_err(|_| unknown(&word));
    word.map(named).transpose()
}

pub(crate) fn json<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text).map_err(|error| damaged(column, error.to_string()))
}

fn natural(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| damaged(column, format!("{value} is negative")))
}

/// Reads a row of [`PERIOD_COLUMNS`].
pub(crate) fn read_period(row: &Row<'_>) -> rusqlite::Result<PeriodRecord> {
    let real = |column: usize| row.get::<_, Option<f64>>(column);
    let millis = |column: usize| Ok::<_, rusqlite::Error>(real(column)?.map(Seconds::from_millis));
    let latencies: Vec<Seconds> = (9..=14)
        .map(millis)
        .filter_map(Result::transpose)
        .collect::<Result<_, _>>()?;
    let latency = match latencies[..] {
        [mean, p50, p95, p99, p999, max] => Some(LatencySummary {
            mean,
            p50,
            p95,
            p99,
            p999,
            max,
        }),
        _ => None,
    };
    let power = real(20)?
        .zip(source(row, 21)?)
        .map(|(watts, source)| Reading::new(Watts::new(watts), source));
    let energy = real(22)?
        .zip(source(row, 23)?)
        .map(|(joules, source)| Reading::new(Joules::new(joules), source));
    Ok(PeriodRecord {
        index: natural(row, 0)?,
        at: Seconds::new(row.get(1)?),
        duration: Seconds::new(row.get(2)?),
        arrivals: natural(row, 3)?,
        completions: natural(row, 4)?,
        failures: natural(row, 5)?,
        in_flight: natural(row, 7)?,
        oldest_in_flight: millis(8)?,
        latency,
        slo_latency: millis(15)?,
        forecast: real(16)?.map(PerSecond::new),
        cores: real(17)?.map(Cores::new),
        cap: real(18)?.map(Watts::new),
        cap_at_limit: row.get(19)?,
        power,
        energy,
        utilisation: real(24)?.map(Ratio::new),
        throttled: real(25)?.map(Ratio::new),
        frequency: real(26)?.map(Hertz::new),
        telemetry_lost: row.get(28)?,
        seen: json(row, 31)?,
        decided: json(row, 32)?,
        reasons: json(row, 33)?,
        frequency_limit: real(27)?.map(Hertz::new),
        levers_lost: row.get(29)?,
        nodes_missing: natural(row, 30)?,
        failed_by_client: natural(row, 6)?,
        parts: Vec::new(),
    })
}

/// The columns of a run's description, as [`read_meta`] reads them.
pub(crate) const META_COLUMNS: &str = "meta, notes, config, provenance";

/// Reads the columns of [`META_COLUMNS`], which start at a row's first column.
pub(crate) fn read_meta(row: &Row<'_>) -> rusqlite::Result<RunMeta> {
    Ok(RunMeta {
        notes: json(row, 1)?,
        config: row.get(2)?,
        provenance: json(row, 3)?,
        ..json(row, 0)?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        assert_eq!(cut("short", 8), "short");
        let long = cut(&"ä".repeat(100), 20);
        assert!(
            long.len() <= 20 && long.ends_with('…') && long.starts_with("ää"),
            "{long}"
        );
    }

    #[test]
    fn a_value_that_is_too_large_says_how_large_it_was() {
        let text = json_text(&"x".repeat(MAX_JSON_BYTES));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["left_out_bytes"], MAX_JSON_BYTES + 2);
    }

    #[test]
    fn a_number_that_json_does_not_have_is_read_back_as_nan() {
        let reasons = [Reason::new(
            "rule",
            "text",
            &[("rate_per_s", f64::INFINITY), ("cores", 2.0)],
        )];
        let back: Vec<Reason> = serde_json::from_str(&reasons_text(&reasons)).unwrap();
        assert!(back[0].numbers["rate_per_s"].is_nan());
        assert_eq!(back[0].numbers["cores"], 2.0);
    }
}
