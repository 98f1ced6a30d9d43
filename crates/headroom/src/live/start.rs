//! The start of a run on live traffic, the same on one machine and on many: μ where nobody gave it, the law, the admin
//! port, the view, the run.

use super::admin::{self, Status};
use super::run::{RunPlan, Watchers, World, run};
use super::view::View;
use super::{Frame, calibrate};
use crate::cli::RunArgs;
use crate::config::{AdminConfig, ControlConfig, Document, LawConfig, RecordConfig};
use crate::failure::Failure;
use crate::say;
use crate::stop::Stop;
use crate::terminal;
use anyhow::Context;
use headroom_control::{Guardian, Plant, Slo};
use headroom_record::{Recorder, RunSummary, summary_table};
use headroom_units::{PerSecond, Seconds, Source};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// μ, and how it is come by where nobody gave it.
#[derive(Clone, Copy, Debug)]
pub struct ServiceRate {
    /// As it was given.
    pub given: Option<PerSecond>,
    /// For how long it is measured else.
    pub measured_for: Duration,
    /// The key that would give it, for messages.
    pub key: &'static str,
}

/// Opens the record, and all that is to be listened on: before anything is measured or changed.
///
/// # Errors
/// A record that cannot be written, an address that cannot be listened on.
pub fn open(
    record: &RecordConfig,
    admin: &AdminConfig,
    document: &Document,
) -> Result<(Recorder, Option<TcpListener>), Failure> {
    let recorder = Recorder::open(&record.db, record.limits()).map_err(Failure::usage)?;
    let admin = admin.listen.map(admin::bind).transpose();
    let admin = admin.map_err(|error| document.error("admin.listen", format!("{error:#}")))?;
    Ok((recorder, admin))
}

/// A run on live traffic.
pub struct Start<'a> {
    /// What the command line says of it.
    pub args: &'a RunArgs,
    /// Its name where the command line gives none.
    pub usual_name: &'static str,
    /// The promise.
    pub slo: Slo,
    /// The law's part of the configuration.
    pub law: &'a LawConfig,
    /// The period, and when telemetry is lost.
    pub control: &'a ControlConfig,
    /// The configuration.
    pub document: &'a Document,
    /// What can be allocated.
    pub plant: Plant,
    /// μ.
    pub rate: ServiceRate,
    /// What it falls back to, in plain words.
    pub notes: Vec<String>,
    /// Where its watts come from; `None` where no watt is known because several sources do not add.
    pub power_source: Option<Source>,
}

impl Start<'_> {
    /// Runs until `stop` is raised or the given duration is over; `None` where it was raised before the run began.
    ///
    /// # Errors
    /// A law that cannot be built, a view that cannot be opened, a run that broke.
    pub fn run(
        self,
        world: World<'_>,
        admin: Option<TcpListener>,
        stop: &Stop,
    ) -> Result<Option<RunSummary>, Failure> {
        let World {
            machine,
            telemetry,
            recorder,
        } = world;
        let rate = match self.rate.given {
            Some(rate) => rate,
            None => {
                let length = self.rate.measured_for;
                say::note!(
                    "measuring what one core serves, for {} s with everything on",
                    length.as_secs_f64()
                );
                machine.apply(self.plant.full())?;
                let measured = calibrate::service_rate(machine, telemetry, length, stop)
                    .with_context(|| format!("{} is not given: give it, or send traffic", self.rate.key))?;
                let Some(rate) = measured else { return Ok(None) };
                rate
            }
        };
        say::note!("one core serves {:.1} requests/s", rate.get());
        let law = self.law.law(self.document, self.slo, self.plant, rate)?;
        let mut law = Guardian::new(law, self.plant, self.control.lost_periods_to_full)
            .with_failing(self.control.failing());
        let period = self.control.period();
        let status = Arc::new(Status::new(law.law().name(), period));
        if let Some(listener) = admin {
            let address = admin::serve(listener, Arc::clone(&status))?;
            say::note!("metrics on http://{address}/metrics");
        }
        let view = terminal::view(self.args.no_view, || View::open(stop.clone()))?;
        let plan = RunPlan {
            name: self.args.name.as_deref().unwrap_or(self.usual_name).to_owned(),
            trace: "live traffic".to_owned(),
            seed: 0,
            length: self.args.duration.map(Seconds::new),
            frame: Frame {
                period,
                slo: self.slo,
                guard: self.law.guard(self.slo),
            },
            plant: self.plant,
            notes: self.notes,
            power_source: self.power_source,
            config: self.document.text().to_owned(),
            lines_every: 10,
        };
        let watchers = Watchers {
            view: view.as_ref(),
            status: Some(&status),
        };
        let duration = self.args.duration.unwrap_or(f64::INFINITY);
        let done = |at: Seconds| at.get() >= duration;
        let world = World {
            machine,
            telemetry,
            recorder,
        };
        Ok(Some(run(&plan, &mut law, world, watchers, stop, done)?))
    }
}

/// Prints how a run ended, as was asked for.
///
/// # Errors
/// Standard output that cannot be written.
pub fn tell(summary: RunSummary, args: &RunArgs, db: &Path) -> Result<(), Failure> {
    if args.json {
        return say::result(serde_json::to_string(&summary)?);
    }
    say::result(format_args!(
        "{}\nthe record: {}; `headroom report latest` draws it",
        summary_table(&[summary]),
        db.display()
    ))
}
