//! `headroom identify`: the fuzzy model of the batching paper from a recorded run, and how well it predicts.

use anyhow::anyhow;
use clap::Args;
use headroom_console::Failure;
use headroom_console::file;
use headroom_console::say;
use headroom_control::Observation;
use headroom_control::batching::{
    Arx, FuzzyModel, IdentifyError, Lags, PredictionError, PredictionErrors, Sample, identify,
    prediction_errors,
};
use headroom_record::{Archive, PeriodRecord};
use headroom_units::{Ratio, Seconds};
use serde::Serialize;
use std::path::PathBuf;

/// `headroom identify`.
///
/// Reads from a recorded run, period by period, the batch interval in force, the cache's hit rate and the mean response time; fits
/// to the first part of it the fuzzy model by which the law `batching` predicts; and says how far it is off, one period ahead, in the
/// rest, beside a linear model and the last value. Prints the model as the table of a configuration:
///
///   headroom up --config service.toml --law batching --name sweep     (tries intervals first)
///   headroom identify sweep >> service.toml                            (begins with what was found)
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct IdentifyArgs {
    /// The run: an id, a name (or the beginning of one) or `latest`.
    #[arg(value_name = "RUN", default_value = "latest")]
    pub run: String,
    /// The flight recorder's database.
    #[arg(long, default_value = "out/headroom.db", value_name = "FILE")]
    pub db: PathBuf,
    /// Response times that the model looks back on (n_y).
    #[arg(long, default_value_t = Lags::DEFAULT.outputs, value_name = "N")]
    pub output_lags: usize,
    /// Intervals that it looks back on, beside the one to come (n_u).
    #[arg(long, default_value_t = Lags::DEFAULT.inputs, value_name = "N")]
    pub input_lags: usize,
    /// The last part of the run, percent, which is kept from the fit to judge it by.
    #[arg(long, default_value_t = 30, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(5..=80))]
    pub held_out: u8,
    /// Write the model here instead of printing it.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print the errors and the model as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// The model where a configuration has it.
#[derive(Serialize)]
struct Table<'a> {
    law: LawTable<'a>,
}

#[derive(Serialize)]
struct LawTable<'a> {
    batching: BatchingTable<'a>,
}

#[derive(Serialize)]
struct BatchingTable<'a> {
    model: &'a FuzzyModel,
}

/// Identifies and judges.
///
/// # Errors
/// A record or a run that cannot be read; a run that says too little of the interval's influence.
pub fn run(args: &IdentifyArgs) -> Result<(), Failure> {
    let archive = Archive::open(&args.db).map_err(Failure::usage)?;
    let found = archive.find(&args.run).map_err(Failure::usage)?;
    let mut series = Vec::new();
    archive.for_each_period(found.id, |period| {
        series.push(sample(&period));
        Ok(())
    })?;
    let lags = Lags {
        outputs: args.output_lags,
        inputs: args.input_lags,
    };
    let of_run = |why: IdentifyError| {
        Failure::usage(anyhow!(
            "run {} ({}): of {} periods {} have an interval and a mean response time: {why}",
            found.id,
            found.meta.name,
            series.len(),
            series.iter().flatten().count(),
        ))
    };
    let fitted = series.len() - series.len() * usize::from(args.held_out) / 100;
    let (first, rest) = series.split_at(fitted);
    let judged = identify(first, lags).map_err(of_run)?;
    let arx = Arx::fit(first, lags).map_err(of_run)?;
    let errors = prediction_errors(&judged, &arx, rest).ok_or_else(|| {
        Failure::usage(anyhow!(
            "run {}: no period of the last {} % can be predicted: keep a larger part with --held-out, or record a longer run",
            found.id,
            args.held_out
        ))
    })?;
    // What is used is fitted to all of it.
    let model = identify(&series, lags).map_err(of_run)?;
    let table = Table {
        law: LawTable {
            batching: BatchingTable { model: &model },
        },
    };
    let toml = toml::to_string(&table).map_err(|error| anyhow!("the model cannot be written: {error}"))?;
    let text = format!(
        "# Fitted to run {} ({}), {} periods. One period ahead, over the last {} % of it, which the judged fit had not seen:\n{}{toml}",
        found.id,
        found.meta.name,
        series.iter().flatten().count(),
        args.held_out,
        judgement(&errors),
    );
    if args.json {
        let (fuzzy, linear, last) = (errors.fuzzy, errors.arx, errors.last_value);
        return say::result(serde_json::json!({
            "run": found.id, "periods": series.len(), "held_out_percent": args.held_out,
            "fuzzy": json(fuzzy), "arx": json(linear), "last_value": json(last), "model": model,
        }));
    }
    match &args.out {
        None => say::result(text.trim_end()),
        Some(path) => {
            file::write(path, &text)?;
            say::result(format_args!(
                "{}the model of {} rules is in {}",
                judgement(&errors),
                model.rules().len(),
                path.display()
            ))
        }
    }
}

/// What a period says; `None` where it lacks anything, which is then a gap. Without a cache nothing hits.
fn sample(period: &PeriodRecord) -> Option<Sample> {
    let seen: Observation = serde_json::from_value(period.seen.clone()).ok()?;
    let answered = seen.traffic?.latency?.distribution?;
    Some(Sample {
        interval: seen.in_force.batch_interval()?,
        hit_ratio: seen
            .cache
            .and_then(|cache| cache.hit_ratio())
            .unwrap_or(Ratio::ZERO),
        response: answered.mean,
    })
}

/// The three errors as comments of a file.
fn judgement(errors: &PredictionErrors) -> String {
    let line = |name: &str, error: PredictionError| {
        let rmse: Seconds = error.rmse;
        format!(
            "#   {name:<12} {:8.1} ms root mean square, {:.2} of the spread, {} periods\n",
            rmse.as_millis(),
            error.nrmse,
            error.periods
        )
    };
    [
        line("fuzzy model", errors.fuzzy),
        line("linear ARX", errors.arx),
        line("last value", errors.last_value),
    ]
    .concat()
}

fn json(error: PredictionError) -> serde_json::Value {
    serde_json::json!({ "rmse_ms": error.rmse.as_millis(), "nrmse": error.nrmse, "periods": error.periods })
}
