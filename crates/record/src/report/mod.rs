//! Reports: one HTML file each, with everything in it.
//!
//! A report needs no network, no fonts and no script to be read: plots are inline SVG, panels over one time axis as in the
//! SLO-Power paper's Figure 6: latency against target and guard, then one for each lever and sensor that the run has, those of
//! one unit together. Of a run with nodes or gateways follow their states and a panel for each of their quantities. A small inline script adds a
//! crosshair that shows each period's values and its reason. Colours are those of Okabe and Ito, which people with
//! any kind of colour vision can tell apart; a law keeps its colour in every report.
//!
//! Every text that comes from a run is escaped: a law named `<script>` is shown, not run.

mod chart;
mod columns;
mod compared;
mod comparison;
mod data;
mod decisions;
mod distribution;
mod grid;
mod html;
mod key;
mod origin;
mod palette;
mod panels;
mod parts;
mod plot;
mod run;
mod scale;
mod sheet;
mod timeline;
mod validate;

pub use chart::{Chart, Curve, Stroke};
pub use grid::Grid;
pub use sheet::{Bars, Section, Sheet, sheet_html};
pub use validate::validation_html;

use crate::archive::Archive;
use crate::error::Error;
use crate::model::RunId;
use crate::offered::OfferedLoad;
use crate::summary::RunSummary;

/// The report of one run, or the comparison of several.
///
/// # Errors
/// As [`run_html`] and [`comparison_html`].
pub fn runs_html(archive: &Archive, runs: &[RunId]) -> Result<String, Error> {
    runs_under_html(archive, runs, &[])
}

/// The same, with what generators say that they offered to the runs: to the first, to the second, and so on as far as is known.
///
/// # Errors
/// As [`runs_html`].
pub fn runs_under_html(archive: &Archive, runs: &[RunId], loads: &[OfferedLoad]) -> Result<String, Error> {
    if runs.is_empty() {
        return Err(Error::NothingToCompare);
    }
    let loaded = runs.iter().map(|&run| data::RunData::load(archive, run));
    let mut loaded = loaded.collect::<Result<Vec<_>, Error>>()?;
    for (run, load) in loaded.iter_mut().zip(loads) {
        run.summary.served(load.clone());
    }
    with_arrivals(archive, loaded.iter_mut().map(|run| &mut run.summary))?;
    Ok(match loaded.as_slice() {
        [one] => run::render(one),
        several => comparison::render(several),
    })
}

/// Reads when requests arrived in runs that are to be compared.
fn with_arrivals<'a>(archive: &Archive, runs: impl Iterator<Item = &'a mut RunSummary>) -> Result<(), Error> {
    for run in runs {
        if let Some(id) = run.run {
            run.conditions.arrivals = archive.arrivals_in_tenths(id)?;
        }
    }
    Ok(())
}

/// The report of one run: headline numbers, fallbacks, panels over time, its nodes and gateways, the distribution of latency,
/// decisions by rule, the most telling decisions with their reasons, every period as a table.
///
/// # Errors
/// There is no such run, or the file cannot be read or is damaged.
pub fn run_html(archive: &Archive, run: RunId) -> Result<String, Error> {
    Ok(run::render(&data::RunData::load(archive, run)?))
}

/// The report of several runs beside each other, the first being the reference: the table of all figures, what was
/// saved against the reference (or why that cannot be said), and the panels with a line for each run.
///
/// # Errors
/// No run is given, there is no such run, or the file cannot be read or is damaged.
pub fn comparison_html(archive: &Archive, runs: &[RunId]) -> Result<String, Error> {
    if runs.is_empty() {
        return Err(Error::NothingToCompare);
    }
    let loaded = runs.iter().map(|&run| data::RunData::load(archive, run));
    let mut loaded = loaded.collect::<Result<Vec<_>, Error>>()?;
    with_arrivals(archive, loaded.iter_mut().map(|run| &mut run.summary))?;
    Ok(comparison::render(&loaded))
}
