//! Periods and their parts as CSV and as JSON lines: the columns of the file, by their names there.

use crate::archive::Archive;
use crate::error::Error;
use crate::model::RunId;
use crate::rows::{PERIOD_COLUMNS, read_parts};
use headroom_units::{Quantity, Source};
use rusqlite::Row;
use rusqlite::types::ValueRef;
use serde::Serializer;
use serde_json::{Value, json};
use std::io::{self, Write};

/// The columns that hold JSON, and those that hold a truth.
const JSON: [&str; 3] = ["seen", "decided", "reasons"];
const TRUTHS: [&str; 3] = ["cap_at_limit", "telemetry_lost", "levers_lost"];

/// A period: names, with the unit last, and values; what is not known is null.
type Pairs = Vec<(String, Value)>;

fn pairs(row: &Row<'_>, columns: &[String]) -> rusqlite::Result<Pairs> {
    let mut pairs = Vec::with_capacity(columns.len() + 2);
    for (number, name) in columns.iter().enumerate() {
        let value = match row.get_ref(number)? {
            ValueRef::Null | ValueRef::Blob(_) => Value::Null,
            ValueRef::Integer(truth) if TRUTHS.contains(&name.as_str()) => json!(truth != 0),
            ValueRef::Integer(integer) => json!(integer),
            ValueRef::Real(real) => json!(real),
            ValueRef::Text(_) if JSON.contains(&name.as_str()) => crate::rows::json(row, number)?,
            ValueRef::Text(text) => json!(String::from_utf8_lossy(text)),
        };
        if name == "reasons" {
            let reasons = value.as_array().into_iter().flatten();
            let rules: Vec<&str> = reasons.filter_map(|reason| reason["rule"].as_str()).collect();
            pairs.push(("rules".to_owned(), json!(rules.join(" "))));
        }
        pairs.push((name.clone(), value));
    }
    Ok(pairs)
}

/// A value as the field of a CSV: what is not known is empty.
fn field(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn csv_writer<W: Write>(out: W) -> csv::Writer<W> {
    csv::WriterBuilder::new()
        .terminator(csv::Terminator::CRLF)
        .from_writer(out)
}

fn failed(error: csv::Error) -> Error {
    Error::Export(error.into())
}

impl Archive {
    fn for_each_row(
        &self,
        id: RunId,
        mut visit: impl FnMut(Pairs) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let damaged = |source| self.row_error(id, "a period", source);
        let columns = format!("run, {PERIOD_COLUMNS}").replace("idx", "idx AS \"index\"");
        let mut statement = self
            .connection
            .prepare(&format!(
                "SELECT {columns} FROM periods WHERE run = ?1 ORDER BY idx"
            ))
            .map_err(damaged)?;
        let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let mut rows = statement.query([id.0]).map_err(damaged)?;
        while let Some(row) = rows.next().map_err(damaged)? {
            visit(pairs(row, &columns).map_err(damaged)?)?;
        }
        Ok(())
    }

    /// Writes a run's periods as CSV (RFC 4180: CRLF, quotes where needed, one header line where there are periods). What was seen
    /// and decided and the reasons are JSON texts in their fields; `rules` names the reasons' rules.
    ///
    /// # Errors
    /// The file cannot be read, or `out` cannot be written.
    pub fn export_csv(&self, id: RunId, out: impl Write) -> Result<(), Error> {
        self.run(id)?;
        let mut csv = csv_writer(out);
        let mut begun = false;
        self.for_each_row(id, |pairs| {
            if !std::mem::replace(&mut begun, true) {
                csv.write_record(pairs.iter().map(|(name, _)| name))
                    .map_err(failed)?;
            }
            csv.write_record(pairs.iter().map(|(_, value)| field(value)))
                .map_err(failed)
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
        let mut csv = csv_writer(out);
        let columns = Quantity::all().map(|quantity| quantity.info().key());
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
                let tail = [json!(part.facts).to_string(), json!(part.trouble).to_string()];
                csv.write_record(head.into_iter().chain(values).chain(tail))
                    .map_err(failed)?;
            }
            Ok(())
        })?;
        csv.flush()?;
        Ok(())
    }

    /// Writes a run's periods as JSON lines: one object a period, the same keys as the CSV, and its parts where it has any.
    ///
    /// # Errors
    /// The file cannot be read, or `out` cannot be written.
    pub fn export_jsonl(&self, id: RunId, mut out: impl Write) -> Result<(), Error> {
        self.run(id)?;
        self.for_each_row(id, |mut pairs| {
            let index = pairs.iter().find(|(name, _)| name == "index");
            let index = index.and_then(|(_, index)| index.as_u64()).unwrap_or_default();
            let parts = read_parts(&self.connection, id.0, index);
            let parts = parts.map_err(|source| self.row_error(id, "a part", source))?;
            if !parts.is_empty() {
                pairs.push(("parts".to_owned(), json!(parts)));
            }
            let mut line = Vec::new();
            serde_json::Serializer::new(&mut line)
                .collect_map(pairs)
                .map_err(io::Error::from)?;
            line.push(b'\n');
            Ok(out.write_all(&line)?)
        })?;
        out.flush()?;
        Ok(())
    }
}
