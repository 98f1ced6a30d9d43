//! The flight recorder, run summaries, plots and reports.
//!
//! - [`Recorder`] writes what every period saw, decided and why into a SQLite file that survives `kill -9` and
//!   stays inside a bound of age and of size. It works on a thread of its own behind a bounded queue: the control
//!   loop hands a period over and goes on, whatever the disk does.
//! - [`Archive`] reads such a file: lists runs, finds one by id, name or `latest`, streams its periods, exports
//!   them as CSV or JSON lines.
//! - [`RunSummary`] is the object in which every run ends; its keys are a contract. [`RunTotals`] computes it period
//!   by period, with or without a recorder.
//! - [`statistics`] says what several runs say together.
//! - [`report`] renders one run, or several beside each other, as one self-contained HTML file; [`table`] as plain
//!   text for a terminal.
//!
//! Energies of different sources (measured, estimated, emulated, simulated) are never added or subtracted here:
//! a run whose source changed reports them side by side, and a comparison across sources says that it is none. The one
//! exception is [`validate`], where it is asked how far a simulated run is from the live one that it stands for.
//!
//! This crate knows of no control law, no Linux and no HTTP, and nothing in it can influence a run.
#![forbid(unsafe_code)]

mod archive;

mod clock;
mod compare;
mod error;
mod export;
mod histogram;
mod limits;
mod model;
mod part_totals;
mod provenance;
mod prune;
mod recorder;
pub mod report;
mod rows;
mod schema;
pub mod statistics;
mod summary;
pub mod table;
mod totals;
pub mod validate;
mod writer;

pub use archive::{Archive, RunFilter, RunInfo, RunState};
pub use clock::utc_text;
pub use compare::{Comparison, compare_with_first, late_reference};
pub use error::Error;
pub use limits::Limits;
pub use model::{LatencySummary, MAX_PARTS, PeriodRecord, Reason, RunId, RunMeta, Slo, World};
pub use provenance::{Experiment, Provenance, fingerprint, fingerprint_of_numbers, host};
pub use recorder::{Health, Recorder, RunRecorder};
pub use schema::SCHEMA_VERSION;
pub use summary::{
    Conditions, CoresSummary, EnergySummary, LatencyMs, NodesSummary, PowerSummary, RequestCounts,
    RunSummary, SloSummary, SourcedEnergy,
};
pub use table::summary_table;
pub use totals::{MAX_LATENCY, RunTotals, WARM_UP_PERIODS};
