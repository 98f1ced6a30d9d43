//! One recorded run of a law.

use super::admin::Status;
use super::sinks::{Lines, RecorderSink, StatusSink};
use super::view::{Heading, View};
use super::{ControlLoop, Device, Frame, Laws, SystemClock, Telemetry, silence};
use crate::cluster::NoNode;
use headroom_console::Stop;
use headroom_control::{Decision, Plant, Stack};
use headroom_node::cap::LimitError;
use headroom_node::restore;
use headroom_record::{Provenance, Recorder, RunMeta, RunSummary};
use headroom_units::{Ratio, Seconds, Source};
use rustix::process::{getpriority_process, setpriority_process};
use std::sync::Arc;
use std::time::SystemTime;

/// What a run is given beside its law.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// Its name in the record.
    pub name: String,
    /// What drives the load.
    pub trace: String,
    /// The seed of all that is random.
    pub seed: u64,
    /// How long it is to last, where that is known.
    pub length: Option<Seconds>,
    /// What stays the same.
    pub frame: Frame,
    /// What can be allocated.
    pub plant: Plant,
    /// What it falls back to, in plain words.
    pub notes: Vec<String>,
    /// Where its watts come from; `None` where no watt is known because several sources do not add.
    pub power_source: Option<Source>,
    /// Its configuration, as text.
    pub config: String,
    /// The nodes that it has, by name; empty where that is this machine alone.
    pub nodes: Vec<String>,
    /// Where its figures come from: the program, the machine, and what is offered, where that is known beforehand.
    pub provenance: Provenance,
    /// A line on standard error every so many periods, where there is no view.
    pub lines_every: u64,
}

/// The calling thread goes before others as long as this lives, where that is allowed. A control loop works for milliseconds in each period, and
/// one that waits for the processor behind those whose load it is to relieve decides on what was seconds ago.
#[derive(Debug)]
struct Ahead(Option<i32>);

/// The nice level of a control loop (setpriority(2)).
const NICE: i32 = -10;

impl Ahead {
    /// From now on, if it may: as root, with CAP_SYS_NICE or with RLIMIT_NICE.
    fn of_others() -> Self {
        // Of Linux, 0 names the calling thread and not its process.
        let before = getpriority_process(None).ok().filter(|before| *before > NICE);
        Self(before.filter(|_| setpriority_process(None, NICE).is_ok()))
    }

    /// That it may not.
    fn missing(&self) -> Option<String> {
        let is_behind = self.0.is_none() && getpriority_process(None).is_ok_and(|level| level > NICE);
        is_behind.then(|| {
            format!(
                "the control loop has no right to a nice level of {NICE} (root, CAP_SYS_NICE, LimitNICE=): where others take its processor it decides \
                 late"
            )
        })
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            // A level that asks for less is always granted.
            let _ = setpriority_process(None, before);
        }
    }
}

/// What a run happens in.
pub struct World<'a> {
    /// What is controlled.
    pub devices: Vec<&'a mut dyn Device>,
    /// What is known of the requests; `None` where no law goes by it.
    pub telemetry: Option<&'a mut dyn Telemetry>,
    /// Where it is recorded.
    pub recorder: &'a Recorder,
}

/// Who watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watchers<'a> {
    /// The live view; lines on standard error where there is none.
    pub view: Option<&'a View>,
    /// The admin port.
    pub status: Option<&'a Arc<Status>>,
}

/// Runs a law, from everything on, until `stop` is raised or `done` says so; the run's summary. With the law goes what makes it
/// for another plant, where nodes may come that were not known at the start.
///
/// # Errors
/// Where the run cannot be recorded, or the machine refuses to give everything at the start.
pub fn run(
    plan: &RunPlan,
    (law, laws): (&mut Stack, Option<&Laws<'_>>),
    world: World<'_>,
    watchers: Watchers<'_>,
    stop: &Stop,
    done: impl FnMut(Seconds) -> bool,
) -> anyhow::Result<RunSummary> {
    let World {
        mut devices,
        telemetry,
        recorder,
    } = world;
    let ahead = Ahead::of_others();
    let notes: Vec<String> = plan.notes.iter().cloned().chain(ahead.missing()).collect();
    let name = law.name();
    let meters: Vec<String> = devices.iter_mut().filter_map(|device| device.begin()).collect();
    let meter = (!meters.is_empty()).then(|| meters.join("; "));
    // What is full here may be less than what was found: also before the loop's own first sign of life, a thread that stands
    // still must not keep it in force.
    let mut pulse = restore::global().watch().pulse("the start of a run");
    pulse.beat(silence(plan.frame.period));
    for device in devices.iter_mut().filter(|_| !plan.frame.dry) {
        match device.apply(&mut Decision::of(plan.plant.full())) {
            // Nodes that cannot be reached have put everything back, or will; the loop commands them when they return.
            Err(error) if is_unguarded(&error) || error.is::<NoNode>() => {
                tracing::warn!("nothing is limited at the start of the run: {error:#}");
            }
            applied => applied?,
        }
    }
    let run = recorder.start_run(RunMeta {
        name: plan.name.clone(),
        law: name.clone(),
        trace: plan.trace.clone(),
        seed: plan.seed,
        world: match plan.power_source {
            Some(Source::Emulated) => headroom_record::World::Emulated,
            _ => headroom_record::World::Live,
        },
        period: Seconds::from(plan.frame.period),
        slo: Some(headroom_record::Slo {
            percentile: plan.frame.slo.percentile().as_percent(),
            target: plan.frame.slo.target(),
            guard: law
                .guard()
                .map(|guard| Ratio::new(guard / plan.frame.slo.target())),
            // A device counts requests, and measures none.
            is_unmeasured: telemetry.is_none(),
        }),
        power_source: plan.power_source,
        notes: notes.clone(),
        config: plan.config.clone(),
        version: plan.provenance.version.clone(),
        host: plan.provenance.host.clone(),
        started_at: SystemTime::now(),
        energy_bound: None,
        nodes: plan.nodes.clone(),
        provenance: plan
            .provenance
            .clone()
            .configured_by(&plan.config)
            .with_meter(meter),
    })?;
    let mut record = RecorderSink::new(run);
    let mut status = watchers.status.map(|status| StatusSink {
        status: Arc::clone(status),
        recorder: recorder.clone(),
    });
    let mut view = watchers.view;
    // While the view has the terminal lines are held back, so that the news can be read after it.
    let every = watchers.view.is_none().then_some(plan.lines_every);
    let mut lines = Lines::new(&name, every);
    if let Some(view) = view {
        view.begin(Heading {
            law: name.clone(),
            trace: plan.trace.clone(),
            length: plan.length,
            notes,
        });
    }
    let mut control = ControlLoop {
        frame: plan.frame,
        law,
        laws,
        devices,
        telemetry,
        clock: &SystemClock,
        sinks: vec![&mut record],
    };
    if let Some(status) = &mut status {
        control.sinks.push(status);
    }
    if let Some(view) = &mut view {
        control.sinks.push(view);
    }
    control.sinks.push(&mut lines);
    drop(pulse);
    control.run(stop, done);
    Ok(record.into_run().finish()?)
}

/// Whether nothing may be limited now because no guard stands, or because it has just lifted everything: then everything is on,
/// and a run goes on.
fn is_unguarded(error: &anyhow::Error) -> bool {
    let unguarded = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref(), Some(LimitError::Unguarded { .. }))
    };
    error.chain().any(unguarded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_goes_before_others_as_long_as_it_runs_where_it_may() {
        let level = || getpriority_process(None).unwrap();
        let before = level();
        let ahead = Ahead::of_others();
        match ahead.0 {
            Some(_) => assert_eq!(level(), NICE),
            None => assert_eq!(level(), before),
        }
        assert_eq!(ahead.missing().is_some(), level() > NICE);
        drop(ahead);
        assert_eq!(level(), before);
    }
}
