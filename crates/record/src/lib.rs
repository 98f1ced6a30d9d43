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
//! - [`profile`] is how many bytes a second a machine serves for a watt, as a file, and several of them compared.
//! - [`report`] renders one run, or several beside each other, as one self-contained HTML file; [`table`] as plain
//!   text for a terminal.
//!
//! Energies of different sources (measured, estimated, emulated, simulated) are never added or subtracted here:
//! a run whose source changed reports them side by side, and a comparison across sources says that it is none. The one
//! exception is [`validate`], where it is asked how far a simulated run is from the live one that it stands for.
//!
//! This crate knows of no control law, no Linux and no HTTP, and nothing in it can influence a run.
//!
//! ```
//! use headroom_record::{Archive, Limits, PeriodRecord, Provenance, Recorder, RunMeta, World, report};
//! use headroom_units::{Cores, Lever, Part, Role, Seconds, Sensor};
//! # let folder = std::env::temp_dir().join(format!("headroom-record-example-{}", std::process::id()));
//! # let file = folder.join("runs.db");
//!
//! let recorder = Recorder::open(&file, Limits::default())?;
//! let mut run = recorder.start_run(RunMeta {
//!     name: "night".to_owned(),
//!     law: "fixed".to_owned(),
//!     trace: "live traffic".to_owned(),
//!     seed: 1,
//!     world: World::Live,
//!     period: Seconds::new(1.0),
//!     slo: None,
//!     power_source: None,
//!     notes: Vec::new(),
//!     config: String::new(),
//!     version: "1.0".to_owned(),
//!     host: "web1".to_owned(),
//!     started_at: std::time::SystemTime::now(),
//!     energy_bound: None,
//!     nodes: Vec::new(),
//!     provenance: Provenance::default(),
//! })?;
//! let id = run.id();
//! let latencies = hdrhistogram::Histogram::new(3)?;
//! for index in 0..3 {
//!     let at = Seconds::new(index as f64);
//!     let node = Part::new("web1", Role::Node).in_state("serving").with(Sensor::ArrivalRate, Some(410.0));
//!     run.record(
//!         PeriodRecord {
//!             parts: vec![node.with(Lever::Cores, Some(2.0))],
//!             ..PeriodRecord::new(index, at, Seconds::new(1.0), Cores::new(2.0))
//!         },
//!         &latencies,
//!     );
//! }
//! let summary = run.finish()?;
//! assert_eq!(summary.nodes.map(|nodes| nodes.state_s["serving"]), Some(3.0));
//! let page = report::run_html(&Archive::open(&file)?, id)?;
//! assert!(page.contains("web1"));
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod archive;
mod arrivals;
mod capacity;

mod clock;
mod compare;
mod error;
mod export;
mod figures;
mod histogram;
mod lengths;
mod limits;
mod model;
mod offered;
mod part_totals;
pub mod profile;
mod provenance;
mod prune;
mod recorder;
pub mod report;
mod rows;
mod schema;
pub mod statistics;
mod summary;
pub mod table;
mod text;
mod totals;
pub mod validate;
mod writer;

pub use archive::{Archive, PastLoad, RunInfo, RunState};
pub use capacity::CapacitySummary;
pub use compare::{Comparison, compare_with_reference, late_reference};
pub use error::Error;
pub use limits::Limits;
pub use model::{LatencySummary, MAX_PARTS, PeriodRecord, READ_AGAIN, Reason, RunId, RunMeta, Slo, World};
pub use offered::{LoadFile, LoadResults, OfferedLoad};
pub use provenance::{Experiment, Provenance, built_from, fingerprint, fingerprint_of_numbers, host};
pub use recorder::{Health, Recorder, RunRecorder};
pub use summary::{
    ClassSummary, Conditions, CoresSummary, EnergySummary, LatencyMs, NodesSummary, PowerSummary,
    RequestCounts, RunSummary, SloSummary, SourcedEnergy, unmeasured_text,
};
pub use table::summary_table;
pub use totals::{RunTotals, WARM_UP_PERIODS};
