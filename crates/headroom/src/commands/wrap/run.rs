//! A wrapped server under a law: started before everything that only its regulation needs, regulated, and waited for.

use super::{WrapArgs, not_started, reload, say_totals};
use crate::args::RunArgs;
use crate::config::machine;
use crate::config::wrap::WrapConfig;
use crate::oncall::{asks_each, lease, no_delay_pays, with_break_even};
use crate::start::{self, Admin, ServiceRate, Start};
use headroom_console::{Document, Failure, Stop, say};
use headroom_control::{LawConfig, LawName, Plant, Slo};
use headroom_node::Roots;
use headroom_node::cpu::{CpuList, online};
use headroom_node::idle::{BreakEven, break_even};
use headroom_node::perf::Ahead;
use headroom_node::power::{self, PowerModel};
use headroom_oncall::{Inherited, Levers, Steering};
use headroom_physics::MachineFigures;
use headroom_record::{Recorder, RunSummary};
use headroom_runtime::live::{Device, run::World, undo};
use headroom_runtime::oncall::{
    ClassTable, Connections, Draw, Ended, Folder, LEVERS, OncallDevice, OncallOptions, OncallTelemetry,
    PassedOn, ProgramCounts, Server, ServerCosts, ServerLog, meter, no_thread,
};
use headroom_units::{Cores, Lever, Seconds};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Lines of a server's log that are shown where it failed beside a view.
const LAST_LINES: usize = 10;

/// What a law will do with a server that was started, in words. Whether it has workers that can be put on call is not known yet.
fn by_law(law: &LawConfig) -> String {
    let laws = &law.names;
    let setting = &law.constant.setting;
    if laws.iter().all(|law| law == LawName::FIXED) {
        "was started, and is left as it is, by the law fixed: none of its workers will wait for a slot"
            .to_owned()
    } else if laws.iter().all(|law| law == LawName::CONSTANT) {
        format!("was started: its workers go on call with its first client, as was set by hand: {setting}")
    } else {
        format!("was started: its workers go on call with its first client, by the law {laws}")
    }
}

/// A server to run.
pub(super) struct Wrapped<'a> {
    pub(super) args: &'a WrapArgs,
    pub(super) config: &'a WrapConfig,
    pub(super) document: &'a Document,
    pub(super) file: &'a Path,
    pub(super) arguments: &'a [OsString],
    /// The processors that it may use.
    pub(super) cpus: &'a CpuList,
}

impl Wrapped<'_> {
    /// Runs it until it ends, with what this program is sent passed on to it; how it did.
    ///
    /// # Errors
    /// A configuration that cannot be used, a server that cannot be started, a run that broke.
    pub(super) fn run(&self, signals: PassedOn) -> Result<Ended, Failure> {
        let Self {
            args,
            config,
            document,
            ..
        } = *self;
        let roots = Roots::default();
        let slo = config.slo.slo(document)?;
        let all = Cores::new(online(&roots).map_err(|error| Failure::Run(error.into()))?.len() as f64);
        let figures = machine::figures(&config.machine, document, "machine", all)?;
        let model = PowerModel::new(figures.clone()).map_err(|error| document.error("machine", error))?;
        // The meter itself is opened once the server runs, whose counts the model needs.
        power::check(config.power.meter, &roots).map_err(|error| document.error("power.meter", error))?;
        let plant = start::with_ranges(Plant::left_alone(Cores::new(self.cpus.len() as f64)), &LEVERS)
            .map_err(|error| Failure::Run(error.into()))?;
        let pays = break_even(&roots, Some(self.cpus), &figures);
        let by_hand = config
            .by_hand()
            .and_then(|setting| setting.get(Lever::RoundDelay));
        let delay = by_hand.map(Seconds::new).filter(|delay| *delay > Seconds::ZERO);
        if let Some(delay) = delay.filter(|delay| *delay < pays.length) {
            say::note!(
                "note: a round delay of {} ms: an idle period pays from {pays} on, and a shorter one costs latency and saves nothing: give it that, or 0",
                delay.as_millis()
            );
        }
        let law = &with_break_even(&config.law, pays.length);
        if let Some(note) = no_delay_pays(law) {
            say::note!("note: {note}");
        }
        let context = start::context(slo, plant, vec![figures.clone()]);
        // Whatever is wrong with the laws is said before the server is started.
        drop(start::stack(law, document, &context, &config.control)?);
        let run_dir = undo::run_dir(args.run_dir.as_deref())?;
        let folder = Folder::make(&run_dir).map_err(Failure::usage)?;
        let steering = Steering::create(&folder.region()).map_err(Failure::usage)?;
        // Root's server may be another user's by now, or become one.
        let steering = Arc::new(steering.distrusting(rustix::process::geteuid().is_root()));
        // Before there is a second thread: see there.
        let inherited = Inherited::open(steering.path()).map_err(|error| Failure::Run(error.into()))?;
        let (recorder, admin, ahead) = std::thread::scope(|scope| {
            let opening = std::thread::Builder::new().spawn_scoped(scope, || {
                start::open(
                    &config.record,
                    &config.admin,
                    (&config.law.names, &config.control),
                    document,
                )
            });
            let opening = opening.map_err(|error| Failure::Run(no_thread(&error)))?;
            // What the kernel takes for it goes by while the record is opened.
            let ahead = Ahead::open();
            let opened = opening
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            opened.map(|(recorder, admin)| (recorder, admin, ahead))
        })?;
        let stop = Stop::default();
        // Without a view the server says what it says where it always did.
        let log = args.has_view().then(|| ServerLog::make(&run_dir));
        let log = log.transpose().map_err(Failure::usage)?;
        let (mut server, counts, notes) = Server::start(
            self.file,
            self.arguments,
            &folder,
            (Arc::clone(&steering), &inherited),
            log,
            (signals, &stop),
        )
        .map_err(not_started)?;
        drop((ahead, inherited));
        if let Some(log) = server.log() {
            say::note!("what the server says is in {}", log.path().display());
        }
        say::note!("{} {}", self.file.display(), by_law(&config.law));
        // It stays open until it is known how the server ended; the run in it ends before.
        let record = recorder.clone();
        let shared = Shared {
            law,
            slo,
            plant,
            figures,
            model: &model,
            pays,
            steering: &steering,
            recorder,
            admin: &admin,
        };
        // Whatever becomes of us, who has a server has it: it is never ended because there is no record, or no thread.
        let without_us = |error: &Failure| {
            steering.command(Levers::default(), None);
            admin
                .status
                .end(format!("no law decides, and nothing is recorded: {error:#}"));
            say::note!(
                "error: {error:#}: the server serves on as without us, and nothing is recorded; end it and start it again to have it on call"
            );
        };
        let regulate = || {
            let outcome = self.regulate(shared, counts, notes, &stop);
            if let Err(error) = &outcome
                && !stop.is_raised()
            {
                without_us(error);
            }
            outcome
        };
        let mut not_begun = None;
        let (ended, outcome) = server.watch_while(&stop, regulate, |error| {
            let error = Failure::Run(error);
            without_us(&error);
            not_begun = Some(error);
        });
        let ended = ended?;
        let outcome = outcome.unwrap_or_else(|| not_begun.map_or(Ok(None), Err));
        if let Some(log) = server.log().filter(|_| ended.code() != 0) {
            say::note!(
                "the last that the server said (all of it: {}):",
                log.path().display()
            );
            for line in log.last_lines(LAST_LINES) {
                say::note!("  {line}");
            }
        }
        say_totals(&steering);
        let db = &config.record.db;
        let how = ended.in_words();
        if let Some(how) = &how {
            say::note!("warning: {how}");
        }
        if let Some(Recorded { summary, failing }) = outcome? {
            if let Some((run, how)) = summary.run.zip(how)
                && let Err(error) = record.annotate(run, how)
            {
                say::note!("warning: that is not in the record: {error}");
            }
            drop(record);
            say::note!("{}", summary.in_short());
            match failing {
                Some(failing) => {
                    say::note!("warning: the record, {}, is not whole: {failing}", db.display());
                }
                None => say::note!(
                    "the record: {}; `headroom report latest{}` draws it",
                    db.display(),
                    start::elsewhere(db)
                ),
            }
        }
        Ok(ended)
    }

    /// Has a law regulate the server once it has started, until `stop` is raised; `None` where that was before there was anything to regulate.
    /// At its end the record is closed and what of the kernel is used for it given back, while the server still shuts down.
    fn regulate(
        &self,
        shared: Shared<'_>,
        counts: ProgramCounts,
        mut notes: Vec<String>,
        stop: &Stop,
    ) -> Result<Option<Recorded>, Failure> {
        let Self {
            args,
            config,
            document,
            ..
        } = *self;
        let Shared {
            law,
            slo,
            plant,
            figures,
            model,
            pays,
            steering,
            recorder,
            admin,
        } = shared;
        let table = &config.oncall;
        let classes = ClassTable::from(table.class.clone());
        if let Some(file) = &args.config {
            reload::at_hangup(file.clone(), classes.clone(), args, (config, document), self.cpus)
                .map_err(|error| Failure::Run(error.into()))?;
        }
        let connections = Connections::new(classes.clone(), table.connections_in_metrics);
        connections.follow(steering);
        admin.status.attend_connections(Arc::new(connections));
        // What follows reads megabytes of the kernel's types and waits for all processors, and nothing is regulated before a client comes.
        if counts.wait_for_quiet(stop) {
            return Ok(None);
        }
        let roots = Roots::default();
        notes.push(format!("an idle period pays from {pays} on"));
        let (meter, choice) = meter(config.power.meter, &roots, &counts, model)
            .map_err(|error| document.error("power.meter", error))?;
        notes.push(format!(
            "power is {} by {}{}",
            choice.source,
            meter.describe(),
            choice.passed_over_in_short()
        ));
        let (costs, more) = ServerCosts::open(&roots, counts, self.cpus, pays.length);
        notes.extend(more);
        let name = self
            .file
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let options = OncallOptions {
            // What an operator calls it: its program may be a launcher, such as setpriv.
            name: args.name.clone().unwrap_or_else(|| name.clone()),
            linger: Duration::from_micros(config.oncall.linger_us),
            lease: lease(&config.control),
            cores: Some(self.cpus.len() as u64),
            classes,
            cpus: self.cpus.iter().collect(),
            each: asks_each(&config.law),
        };
        let mut device = OncallDevice::new(Arc::clone(steering), options, Box::new(costs));
        let mut draw = Draw::new(meter)?;
        let mut telemetry = OncallTelemetry::new(Arc::clone(steering));
        let folder = std::env::current_dir().map_or_else(
            |_| "a folder that is gone".to_owned(),
            |at| at.display().to_string(),
        );
        notes.push(format!(
            "the server: {} in {folder}, on processors {}",
            std::path::absolute(self.file)
                .unwrap_or_else(|_| self.file.to_owned())
                .display(),
            self.cpus
        ));
        for note in &notes {
            say::note!("note: {note}");
        }
        let run_args = RunArgs {
            law: Vec::new(),
            duration: None,
            name: args.name.clone(),
            json: false,
            no_view: !args.view,
        };
        let start = Start {
            args: &run_args,
            usual_name: &name,
            slo,
            law,
            control: &config.control,
            document,
            plant,
            machines: vec![figures],
            rate: ServiceRate {
                given: None,
                observed_for: Seconds::new(0.0),
            },
            notes,
            power_source: Some(choice.source),
            nodes: Vec::new(),
            dry: false,
        };
        let world = World {
            devices: vec![&mut draw as &mut dyn Device, &mut device],
            telemetry: Some(&mut telemetry),
            recorder: &recorder,
        };
        let outcome = start.run(world, admin, stop);
        let failing = recorder.health().failing;
        // Where the run broke the server goes on, and whoever is told that says why.
        if outcome.is_ok() || stop.is_raised() {
            admin.status.end(
            "the server was asked to end: its workers are not on call any more, no law decides, and the record has ended".to_owned(),
        );
        }
        // The one waits for the disk and the other for all processors, and whoever waits for the server's end for both.
        std::thread::scope(|scope| {
            // Where there is no thread the one waits for the other.
            let closing = std::thread::Builder::new().spawn_scoped(scope, || drop(recorder));
            drop((draw, device));
            drop(closing);
        });
        Ok(outcome?.map(|summary| Recorded { summary, failing }))
    }
}

/// A run that came to a record.
struct Recorded {
    summary: RunSummary,
    /// Why the record is not whole.
    failing: Option<String>,
}

/// What was read or opened before the server was started.
struct Shared<'a> {
    law: &'a LawConfig,
    slo: Slo,
    plant: Plant,
    figures: MachineFigures,
    model: &'a PowerModel,
    pays: BreakEven,
    steering: &'a Arc<Steering>,
    recorder: Recorder,
    admin: &'a Admin,
}
