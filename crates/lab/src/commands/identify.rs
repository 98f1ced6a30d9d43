//! `headroom identify`: the fuzzy model of the batching paper from a recorded run, and how well it predicts.

use anyhow::{Context, anyhow};
use clap::Args;
use headroom_console::Failure;
use headroom_console::file;
use headroom_console::say;
use headroom_control::Observation;
use headroom_control::batching::{
    Arx, FuzzyModel, IdentifyError, Lags, PredictionError, PredictionErrors, Sample, identify,
    prediction_errors,
};
use headroom_record::{Archive, RunId};
use headroom_units::Seconds;
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

/// The table of a configuration that begins with this model.
fn table(model: &FuzzyModel) -> Result<String, anyhow::Error> {
    let batching = BatchingTable { model };
    let law = LawTable { batching };
    toml::to_string(&Table { law }).context("the model as a table")
}

/// Identifies and judges.
///
/// # Errors
/// A record or a run that cannot be read; a run that says too little of the interval's influence.
pub fn run(args: &IdentifyArgs) -> Result<(), Failure> {
    let archive = Archive::open(&args.db).map_err(Failure::usage)?;
    let found = archive.find(&args.run).map_err(Failure::usage)?;
    let series = series(&archive, found.id)?;
    let lags = Lags {
        outputs: args.output_lags,
        inputs: args.input_lags,
    };
    let of = |part: &[Option<Sample>], which: String, why: IdentifyError| {
        let hint = match why {
            IdentifyError::NotVaried(_) => ", as the law `batching` does while it has no model",
            _ => "",
        };
        Failure::usage(anyhow!(
            "run {} ({}): {} of {which} {} periods have an interval and a mean response time: {why}{hint}",
            found.id,
            found.meta.name,
            part.iter().flatten().count(),
            part.len(),
        ))
    };
    let fitted = series.len() - series.len() * usize::from(args.held_out) / 100;
    let (first, rest) = series.split_at(fitted);
    let of_first = |why| {
        of(
            first,
            format!("the first {} %, which are fitted,", 100 - args.held_out),
            why,
        )
    };
    let of_run = |why| of(&series, "its".to_owned(), why);
    let judged = identify(first, lags).map_err(of_first)?;
    let arx = Arx::fit(first, lags).map_err(of_first)?;
    let errors = prediction_errors(&judged, &arx, rest).ok_or_else(|| {
        Failure::usage(anyhow!(
            "run {}: no period of the last {} % can be predicted: keep a larger part with --held-out, or record a longer run",
            found.id,
            args.held_out
        ))
    })?;
    let fitted = (first.iter().flatten().count(), lags);
    // What is used is fitted to all of it.
    let model = identify(&series, lags)
        .map_err(of_run)?
        .judged(of_no_use(&errors, fitted).is_none());
    let toml = table(&model)?;
    let text = format!(
        "# Fitted to run {} ({}), {} periods. One period ahead, over the last {} % of it, which the judged fit had not seen:\n{}{toml}",
        found.id,
        found.meta.name,
        series.iter().flatten().count(),
        args.held_out,
        judgement(&errors, fitted),
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
                judgement(&errors, fitted),
                model.rules().len(),
                path.display()
            ))
        }
    }
}

/// What the periods of a run say; `None` of one that lacks anything, which is then a gap.
fn series(archive: &Archive, run: RunId) -> Result<Vec<Option<Sample>>, headroom_record::Error> {
    let (mut series, mut hit_ratio) = (Vec::new(), None);
    archive.for_each_period(run, |period| {
        let observed = serde_json::from_value::<Observation>(period.seen).ok();
        let sample = observed.and_then(|observed| Sample::of(&observed, hit_ratio));
        hit_ratio = sample.map(|sample| sample.hit_ratio).or(hit_ratio);
        series.push(sample);
        Ok(())
    })?;
    Ok(series)
}

/// The largest share of the spread that the error of a model of use may be: the mean of all has 1.
const MAX_OF_SPREAD: f64 = 0.9;
/// Periods for each parameter of one rule that a fit needs at least.
const PERIODS_PER_PARAMETER: usize = 5;

/// Why a model is of no use, where it is: it was fitted to too few periods to know, or predicts no better than the last value, or hardly
/// better than the mean.
fn of_no_use(errors: &PredictionErrors, (periods, lags): (usize, Lags)) -> Option<String> {
    let needed = PERIODS_PER_PARAMETER * (lags.antecedents() + 1);
    if periods < needed {
        return Some(format!(
            "is fitted to {periods} periods, and a model of these lags needs {needed} at least"
        ));
    }
    if errors.fuzzy.rmse < errors.last_value.rmse && errors.fuzzy.nrmse < MAX_OF_SPREAD {
        return None;
    }
    Some("is no better than the last value, or hardly better than the mean of all".to_owned())
}

/// The three errors as comments of a file.
fn judgement(errors: &PredictionErrors, fitted: (usize, Lags)) -> String {
    let line = |name: &str, error: PredictionError| {
        let rmse: Seconds = error.rmse;
        format!(
            "#   {name:<12} {:8.1} ms root mean square, {:.2} of the spread, {} periods\n",
            rmse.as_millis(),
            error.nrmse,
            error.periods
        )
    };
    let verdict = of_no_use(errors, fitted).map_or_else(String::new, |why| {
        format!(
            "#   This model {why}: do not use it. Record a longer run, whose interval varies under a steady load.\n"
        )
    });
    [
        line("fuzzy model", errors.fuzzy),
        line("linear ARX", errors.arx),
        line("last value", errors.last_value),
        verdict,
    ]
    .concat()
}

fn json(error: PredictionError) -> serde_json::Value {
    serde_json::json!({ "rmse_ms": error.rmse.as_millis(), "nrmse": error.nrmse, "periods": error.periods })
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_control::{LawConfig, Slo};
    use headroom_units::Ratio;

    #[test]
    fn a_model_that_is_no_better_than_the_last_value_or_the_mean_is_marked() {
        let error = |ms: f64| PredictionError {
            rmse: Seconds::from_millis(ms),
            nrmse: ms / 200.0,
            periods: 18,
        };
        let of = |fuzzy: f64| PredictionErrors {
            fuzzy: error(fuzzy),
            arx: error(194.0),
            last_value: error(191.0),
        };
        let fitted = (100, Lags::DEFAULT);
        let warns = |fuzzy: f64| judgement(&of(fuzzy), fitted).contains("do not use it");
        assert!(warns(292.2) && warns(191.0) && warns(f64::NAN) && !warns(30.0));
        assert!(warns(185.0), "0.93 of the spread");
        let few = judgement(&of(30.0), (9, Lags::DEFAULT));
        assert!(
            few.contains("fitted to 9 periods") && few.contains("do not use it"),
            "{few}"
        );
        // Better than the last value, and no better than the mean.
        let spread = PredictionErrors {
            last_value: error(248.9),
            ..of(235.2)
        };
        assert!(judgement(&spread, fitted).contains("do not use it"));
    }

    #[test]
    fn what_is_printed_is_read_as_a_configuration_and_is_the_same_model() {
        let response = |interval: f64| 0.4 + (interval - 0.3).powi(2);
        let sample = |number: u32| {
            let interval = f64::from(number * 7 % 20) * 0.05;
            Some(Sample {
                interval: Seconds::new(interval),
                hit_ratio: Ratio::new(0.3 + 0.2 * interval),
                response: Seconds::new(response(interval)),
            })
        };
        let series: Vec<_> = (0..200).map(sample).collect();
        let model = identify(&series, Lags::DEFAULT).unwrap();
        // As it is appended to a configuration that has the law's other keys.
        let text = format!(
            "[law]\nname = \"batching\"\n[law.batching]\nsla_ms = 900.0\n{}",
            table(&model).unwrap()
        );
        let read = |text: &str| -> LawConfig {
            let read: toml::Table = text.parse().unwrap();
            read["law"].clone().try_into().unwrap()
        };
        let config = read(&text);
        assert_eq!(config.batching.sla_ms, Some(900.0));
        assert_eq!(config.batching.model.as_ref(), Some(&model));
        // One that is marked stays so, and whoever starts with it is warned.
        let slo = Slo::new(Ratio::from_percent(95.0), Seconds::new(1.0)).unwrap();
        assert_eq!(config.notes(slo), Vec::<String>::new());
        let marked = read(&format!(
            "[law]\nname = \"batching\"\n{}",
            table(&model.clone().judged(false)).unwrap()
        ));
        assert!(
            marked
                .batching
                .model
                .as_ref()
                .is_some_and(|model| !model.is_of_use())
        );
        let notes = marked.notes(slo).concat();
        assert!(
            notes.contains("of_use = false") && notes.contains("remove [law.batching.model]"),
            "{notes}"
        );
    }
}
