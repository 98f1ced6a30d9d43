//! The demo on two emulated clusters, side by side: each law keeps one of them while both serve the same requests; then they
//! change places. So whatever disturbs this machine disturbs both.

mod board;
mod companion;
mod day;
mod hardware;
mod mains;
mod server;
mod session;
mod site;
pub(crate) mod world;

use super::bystanders::Used;
use super::{DemoArgs, processors};
use crate::commands::trace;
use crate::emulator;
use crate::origin;
use crate::simulate::recorded_load;
use anyhow::anyhow;
use board::{Board, Look, Row, Shown};
use headroom_console::{Failure, Stop, say, terminal};
use headroom_control::{LawConfig, LawName, LoadHistory, Slo};
use headroom_node::Roots;
use headroom_physics::MachineFigures;
use headroom_record::{Limits, Recorder, RunSummary, compare_with_reference};
use headroom_runtime::live::Frame;
use headroom_runtime::live::admin::Status;
use headroom_runtime::live::guard::namespace::Place;
use headroom_runtime::live::run::RunPlan;
use headroom_runtime::live::undo;
use headroom_sim::SavedByCause;
use headroom_testbed::wiki::{self, WikiConfig, Work};
use headroom_units::{Cores, Joules, PerSecond, Ratio, Seconds, Source};
use headroom_workload::{Spacing, Trace, TraceError};
use server::Counted;
use session::{Offered, Session};
use site::{Plan, Site};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Servers of each cluster.
const SERVERS: usize = 12;
/// The share of this machine that stands for all servers of both clusters: the rest is for gateways, load and controllers.
const SERVICE_SHARE: f64 = 0.5;
/// The control period.
const PERIOD: Duration = Duration::from_millis(500);
/// How often both clusters are looked at.
const LOOK: Duration = Duration::from_millis(500);
/// Mean CPU time of a page: a quarter of that of one machine's wiki, for each cluster has a small part of this machine, and few requests
/// are mostly noise.
const PAGE_CPU_MS: f64 = 0.5;
/// The share of the periods that the law `joint` may have late. Of a day of 150 periods its usual half a percent is not one, and
/// nothing could be learned of so rare an event.
const LATE: f64 = 0.05;
/// From the end of a boot until a server is sent requests: its wiki starts, and is found to answer.
const SERVES_AFTER: Seconds = Seconds::new(1.5);
/// How long what one core serves is measured.
const CALIBRATION: Duration = Duration::from_secs(6);
/// How long a load is tried.
const TRIAL: Seconds = Seconds::new(5.0);
/// How often a smaller one is.
const MAX_TRIALS: usize = 4;
/// By how much smaller.
const LESS: f64 = 0.75;
/// With everything on, the busiest time of the day must be answered within this share of the target.
const MARGIN: f64 = 0.7;
/// Days before those, whose load is on record.
const KNOWN_DAYS: usize = 7;
/// Days: each law has each cluster for one.
const DAYS: usize = 2;
const DAY: Seconds = Seconds::new(86_400.0);
const CLUSTERS: [&str; DAYS] = ["left", "right"];

/// What the clusters have in common.
struct Common {
    slo: Slo,
    figures: MachineFigures,
    rate: PerSecond,
    offered: Offered,
    /// What came in on the days before, where they are known.
    before: Option<LoadHistory>,
    length: Seconds,
}

/// Why clusters cannot be emulated here; nothing where they can.
pub fn hindrance() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("emulated servers need root".to_owned());
    }
    let fuse = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    fuse.err()
        .map(|error| format!("emulated servers need /dev/fuse: {error}"))
}

/// Runs two laws on two clusters, a day on each, and records the runs: of each day that of the first law, and that of the second;
/// nothing where it was stopped.
///
/// # Errors
/// A machine that cannot run it, with the remedy; a run that broke.
pub fn perform(
    args: &DemoArgs,
    laws: [LawName; DAYS],
    slo: Slo,
    length: Seconds,
    db: &Path,
) -> Result<Option<Vec<RunSummary>>, Failure> {
    let traces = trace::with_days_before(&args.trace, Seconds::new(10.0), args.seed, KNOWN_DAYS)?;
    let machine = Cores::new(headroom_node::cpu::online(&Roots::default())?.len() as f64);
    if let Some(cores) = args.cores.filter(|cores| *cores > machine.get()) {
        let why = anyhow!("--cores {cores}: this machine has {}", machine.get());
        return Err(Failure::usage(why));
    }
    let real = args.cores.map_or(machine * SERVICE_SHARE, Cores::new) / (DAYS * SERVERS) as f64;
    let figures = hardware::figures();
    let emulated = hardware::emulated(&figures, real);
    emulated.validate().map_err(Failure::usage)?;
    let stop = Stop::at_signals()?;
    let run_dir = undo::run_dir(args.run_dir.as_deref())?;
    // Before anything is made in it: whoever has the run folder may take away what lies there of demos.
    let run_dir = undo::take(&run_dir, emulator::REMAINS)?;
    let folder = emulator::demo_folder(&run_dir)?;
    undo::protect(run_dir, &Roots::default(), Place::Inside)?;
    // Threads and programs that are started from now on have it from here. With the preference that emulated servers have, other
    // programs of a busy machine disturb the two clusters little, and what they do disturb is no law's doing.
    if let Err(error) = rustix::process::setpriority_process(None, args.nice) {
        say::note!("note: other programs may disturb this demo, which runs at the usual priority: {error}");
    }
    let pages = page_cost()?;
    say::note!(
        "starting two clusters of {SERVERS} emulated servers, for each of which {:.2} real cores stand, each with a wiki and an agent",
        real.get()
    );
    let plan = Plan {
        servers: SERVERS,
        figures: &figures,
        hardware: &emulated,
        pages: &pages,
        folder: &folder,
        kept: &args.out.join("demo"),
    };
    let outcome = build(&plan, &stop).and_then(|sites| match sites {
        Some(sites) => on(
            &sites,
            args,
            laws,
            (slo, &traces, length),
            (real, &figures),
            db,
            &stop,
        ),
        None => Ok(None),
    });
    undo::keep();
    let summaries = outcome?;
    if summaries.is_none() {
        say::note!("stopped");
    }
    Ok(summaries)
}

/// What the pages of all wikis cost, found once: so all of them have the same pages.
fn page_cost() -> Result<Vec<String>, Failure> {
    let config = WikiConfig {
        work: Work::MeanCpu(Seconds::from_millis(PAGE_CPU_MS)),
        ..WikiConfig::default()
    };
    let wiki = wiki::serve(config).map_err(Failure::usage)?;
    let calibration = *wiki.calibration();
    wiki.shutdown().map_err(Failure::usage)?;
    Ok(vec![
        "--revisions".to_owned(),
        calibration.revisions.to_string(),
        "--length".to_owned(),
        calibration.length.to_string(),
    ])
}

/// Both clusters, built at the same time; nothing where it was stopped.
fn build(plan: &Plan<'_>, stop: &Stop) -> Result<Option<[Site; DAYS]>, Failure> {
    let [left, right] = std::thread::scope(|scope| {
        let mut first = 0;
        let threads = CLUSTERS.map(|name| {
            let number = first + 1;
            first += plan.servers;
            scope.spawn(move || Site::start(name, number, plan))
        });
        threads.map(joined)
    });
    let sites = [left?, right?];
    Ok((!stop.is_raised()).then_some(sites))
}

/// What a thread came to.
fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, anyhow::Result<T>>) -> anyhow::Result<T> {
    thread
        .join()
        .unwrap_or_else(|_| Err(anyhow!("a thread of the demo panicked")))
}

/// Calibrates, and runs all days.
fn on(
    sites: &[Site; DAYS],
    args: &DemoArgs,
    laws: [LawName; DAYS],
    (slo, (before, trace), length): (Slo, &(Option<Trace>, Trace), Seconds),
    (real, figures): (Cores, &MachineFigures),
    db: &Path,
    stop: &Stop,
) -> Result<Option<Vec<RunSummary>>, Failure> {
    let recorder = Recorder::open(db, Limits::default())?;
    let Some(rate) = service_rate(sites, real, stop)? else {
        return Ok(None);
    };
    let all = rate * f64::from(hardware::CORES) * SERVERS as f64;
    say::note!(
        "one emulated core serves {:.2} pages/s, a cluster {:.0}",
        rate.get(),
        all.get()
    );
    let Some(share) = bearable(sites, slo, all * day::RANGE.1, stop)? else {
        return Ok(None);
    };
    let most = all * share;
    let day = day::between(trace, trace, day::RANGE, most, length).map_err(Failure::usage)?;
    let before = before.as_ref().map(|before| {
        let days = day::between(before, trace, day::RANGE, most, length * KNOWN_DAYS as f64)?;
        let period = Seconds::from(PERIOD);
        // Other requests than those of the day that comes.
        let seed = args.seed.wrapping_add(1);
        Ok(recorded_load(&Arc::new(days), Spacing::Poisson, seed, period))
    });
    let before = before
        .transpose()
        .map_err(|error: TraceError| Failure::usage(error))?;
    if before.is_some() {
        say::note!(
            "the laws recall the load of the {KNOWN_DAYS} days before, as a record has it; those are not the day that comes"
        );
    }
    let common = Common {
        slo,
        figures: figures.clone(),
        rate,
        offered: Offered {
            day: Arc::new(day),
            spacing: Spacing::Poisson,
            seed: args.seed,
        },
        before,
        length,
    };
    let mut board = Board::new(terminal::view(args.no_view, || Board::open(stop.clone()))?);
    let mut summaries = Vec::new();
    for number in 0..DAYS {
        // The first law's cluster is the left one on the first day.
        let places = [&sites[number], &sites[1 - number]];
        let Some(mut pair) = one_day(number, places, laws, &common, args, (&recorder, &mut board), stop)?
        else {
            return Ok(None);
        };
        summaries.append(&mut pair);
    }
    drop(board);
    compare_with_reference(&mut summaries);
    Ok(Some(summaries))
}

/// Does something with each of two clusters at the same time.
fn on_both<T: Send>(
    sites: &[Site; DAYS],
    run: impl Fn(&Site) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<[T; DAYS]> {
    let [left, right] = std::thread::scope(|scope| {
        let run = &run;
        sites
            .each_ref()
            .map(|site| scope.spawn(move || run(site)))
            .map(joined)
    });
    Ok([left?, right?])
}

/// What one core serves, under even load on both clusters at about half of what they can do; nothing where it was stopped.
fn service_rate(sites: &[Site; DAYS], real: Cores, stop: &Stop) -> Result<Option<PerSecond>, Failure> {
    say::note!("measuring what one core serves, for {} s", CALIBRATION.as_secs());
    let guess = PerSecond::new(0.5 * real.get() * SERVERS as f64 / Seconds::from_millis(PAGE_CPU_MS).get());
    // Longer than needed: the measurement stops it.
    let offered = Offered {
        day: Arc::new(Trace::constant(guess, Seconds::from(CALIBRATION * 4))?),
        spacing: Spacing::Even,
        seed: 0,
    };
    let [left, right] = on_both(sites, |site| {
        let Some(mut session) = Session::open(site, LawName::FIXED, PERIOD, Arc::default(), stop)? else {
            return Ok(None);
        };
        session.calibrate(site, &offered, CALIBRATION, stop)
    })?;
    Ok(left.zip(right).map(|(left, right)| (left + right) / 2.0))
}

/// What all services of a cluster have used of their cores.
fn core_time(site: &Site) -> anyhow::Result<Seconds> {
    site.servers.iter().map(|server| server.core_time()).sum()
}

/// The share of that load which both clusters bear at the same time with everything on, with a margin; nothing where it was
/// stopped.
fn bearable(sites: &[Site; DAYS], slo: Slo, most: PerSecond, stop: &Stop) -> Result<Option<f64>, Failure> {
    let mut share = 1.0;
    for trial in 1.. {
        let offered = Offered {
            day: Arc::new(Trace::constant(most * share, TRIAL)?),
            spacing: Spacing::Poisson,
            seed: trial as u64,
        };
        let [Some(left), Some(right)] = on_both(sites, |site| {
            // The controller's own work is part of it.
            let Some(_session) = Session::open(site, LawName::FIXED, PERIOD, Arc::default(), stop)? else {
                return Ok(None);
            };
            let (used, begin) = (core_time(site)?, Instant::now());
            let load = session::load(site, &offered)?;
            while !load.is_finished() && !stop.wait_until(Instant::now() + Duration::from_millis(50)) {}
            load.stop();
            let result = load.join()?;
            let busy = (core_time(site)? - used) / Seconds::from(begin.elapsed());
            Ok((!stop.is_raised()).then_some((result, busy)))
        })?
        else {
            return Ok(None);
        };
        let ((left, left_busy), (right, right_busy)) = (left, right);
        let busy = (left_busy + right_busy) / 2.0 / f64::from(hardware::CORES) / SERVERS as f64;
        // Where one answered nothing it failed, which is looked at first.
        let p95 = [left.latency_ms.p95, right.latency_ms.p95];
        let slowest = p95.into_iter().flatten().fold(0.0, f64::max);
        let failed = left.failed_total + right.failed_total;
        say::note!(
            "tried {:.0} pages/s on each: P95 {slowest:.0} ms with everything on, cores {:.0} % busy",
            (most * share).get(),
            busy * 100.0
        );
        if failed == 0 && slowest <= slo.target().as_millis() * MARGIN {
            // Pages cost more beside many others than by themselves: the most is a share of what the cores can do then.
            return Ok(Some(share * (day::RANGE.1 / busy.max(1e-3)).min(1.0)));
        }
        if trial == MAX_TRIALS {
            say::note!(
                "note: this machine is busy: with everything on, {:.0} pages/s are answered within {slowest:.0} ms only",
                (most * share).get()
            );
            return Ok(Some(share * LESS));
        }
        share *= LESS;
    }
    Ok(None)
}

fn law_config(name: LawName, length: Seconds) -> LawConfig {
    let mut config = LawConfig::of(name);
    // What the law has a day for it has this day for.
    let compressed = length / DAY;
    config.joint.learn_s *= compressed;
    config.joint.warm_s = SERVES_AFTER.get();
    // What a core serves was measured, and how the load goes is on record.
    config.joint.warm_up_periods = 1;
    config.joint.late = LATE;
    config
}

/// One day of both laws, the first of which has the first of these clusters; nothing where it was stopped.
fn one_day(
    number: usize,
    places: [&Site; DAYS],
    laws: [LawName; DAYS],
    common: &Common,
    args: &DemoArgs,
    (recorder, board): (&Recorder, &mut Board),
    stop: &Stop,
) -> Result<Option<Vec<RunSummary>>, Failure> {
    say::note!(
        "day {} of {DAYS}: {} on the {} cluster, {} on the {} one, {:.0} requests each in {:.0} s",
        number + 1,
        laws[0],
        places[0].name,
        laws[1],
        places[1].name,
        common.offered.day.requests(),
        common.length.get()
    );
    let shown: [Shown; DAYS] = laws.map(|law| {
        (
            Arc::new(Status::new(law.to_string(), PERIOD)),
            Arc::new(Mutex::default()),
        )
    });
    // Both are held before either runs.
    let mut sessions = Vec::new();
    for ((site, law), shown) in places.iter().zip(laws).zip(&shown) {
        let Some(session) = Session::open(site, law, PERIOD, Arc::clone(&shown.1), stop)? else {
            return Ok(None);
        };
        let config = law_config(law, common.length);
        let machines = vec![common.figures.clone(); site.servers.len()];
        let mut stack = session::law(&config, common.slo, session.plant, common.rate, machines)
            .map_err(Failure::usage)?;
        if let Some(before) = &common.before {
            stack.recall(before.clone());
        }
        sessions.push((session, stack, config));
    }
    let used = || Used::until_now(&pids(places));
    let before = used();
    let begun = Instant::now();
    let outcomes = std::thread::scope(|scope| {
        let threads: Vec<_> = sessions
            .into_iter()
            .zip(places)
            .zip(laws)
            .zip(&shown)
            .map(|((((session, mut stack, config), site), law), (status, _))| {
                let plan = plan(number, site, law, &config, session.plant, common, args);
                scope.spawn(move || {
                    session.run(site, &mut stack, plan, &common.offered, (recorder, status), stop)
                })
            })
            .collect();
        while !threads.iter().all(|thread| thread.is_finished()) {
            std::thread::sleep(LOOK);
            let row = |at: usize| {
                let (status, drawn) = &shown[at];
                Row::of(places[at].name, laws[at].as_str(), SERVERS, status, drawn)
            };
            board.show(Look {
                day: (number + 1, DAYS),
                at: begun.elapsed().as_secs_f64().min(common.length.get()),
                length: common.length.get(),
                slo: (
                    common.slo.percentile().as_percent(),
                    common.slo.target().as_millis(),
                ),
                rows: [row(0), row(1)],
            });
        }
        threads.into_iter().map(joined).collect::<Vec<_>>()
    });
    let counted = shown
        .each_ref()
        .map(|(_, drawn)| drawn.lock().unwrap_or_else(PoisonError::into_inner).counted);
    let saved = saved_by_cause(laws.map(|law| law.as_str()), counted);
    let others = before
        .zip(used())
        .map(|(before, now)| now.by_others_since(&before, processors()));
    let mut summaries = Vec::new();
    for outcome in outcomes {
        let Some((mut summary, offered)) = outcome? else {
            return Ok(None);
        };
        if offered.failed_total > 0 {
            say::note!(
                "{}: {} requests failed, as the load generator saw it",
                summary.law,
                offered.failed_total
            );
        }
        if let Some(note) = others.map(beside) {
            if let Some(run) = summary.run {
                recorder.annotate(run, &note)?;
            }
            summary.notes.push(note);
        }
        summaries.push(summary);
    }
    if let (Some(saved), Some(second)) = (saved, summaries.last_mut()) {
        say::note!("day {}: {saved}", number + 1);
        if let Some(run) = second.run {
            recorder.annotate(run, &saved)?;
        }
        second.notes.push(saved);
    }
    if let Some(others) = others {
        say::note!("day {}: {}", number + 1, beside(others));
    }
    Ok(Some(summaries))
}

/// What other programs used, in a sentence: it is no condition under which two runs differ that ran at the same time.
fn beside(others: Ratio) -> String {
    format!(
        "other programs used {:.0} % of this machine's processors meanwhile; both laws ran at that time",
        others.as_percent()
    )
}

fn pids(places: [&Site; DAYS]) -> Vec<u32> {
    let mut pids = vec![std::process::id()];
    pids.extend(places.iter().flat_map(|site| site.pids()));
    pids
}

fn plan(
    number: usize,
    site: &Site,
    law: LawName,
    config: &LawConfig,
    plant: headroom_control::Plant,
    common: &Common,
    args: &DemoArgs,
) -> RunPlan {
    let day = &common.offered.day;
    RunPlan {
        name: format!("demo-{law}-{}", number + 1),
        trace: day.name().to_owned(),
        seed: args.seed,
        length: Some(common.length),
        frame: Frame {
            period: PERIOD,
            slo: common.slo,
            dry: false,
        },
        plant,
        notes: vec![
            format!(
                "an emulated cluster of {SERVERS} servers of {} cores: every watt is emulated",
                hardware::CORES
            ),
            "servers, gateways, load generators and controllers share this machine".to_owned(),
        ],
        power_source: Some(Source::Emulated),
        config: format!("{args:?}\n{config:?}"),
        nodes: site.names(),
        provenance: origin::provenance().with_load(Some(origin::of_trace(day, args.seed))),
        lines_every: u64::MAX,
    }
}

/// What the second of these clusters saved against the first, by its cause, in a sentence; nothing where the first counted
/// nothing.
fn saved_by_cause(laws: [&str; DAYS], [reference, other]: [Counted; DAYS]) -> Option<String> {
    let all = reference.energy.total();
    if all <= Joules::ZERO {
        return None;
    }
    let of = |counted: Counted| (counted.energy, counted.on.get());
    let saved = SavedByCause::of(of(other), of(reference));
    let percent = |joules: Joules| joules / all * 100.0;
    Some(format!(
        "{} saved {:.1} % of the {:.0} J of {}: {:.1} by fewer joules for the work, {:.1} by deeper sleep, {:.1} by servers off, \
         {:.1} by switching",
        laws[1],
        percent(saved.total()),
        all.get(),
        laws[0],
        percent(saved.work),
        percent(saved.sleep),
        percent(saved.off),
        percent(saved.switching)
    ))
}

/// What the second law saved against the first over all days, in a sentence.
pub fn verdict(summaries: &[RunSummary]) -> Option<String> {
    let [first, second, ..] = summaries else {
        return None;
    };
    let energy = |law: &str| -> Option<Joules> {
        let of_law = summaries.iter().filter(|summary| summary.law == law);
        of_law.map(|summary| summary.energy_j.value).sum()
    };
    let (reference, other) = (energy(&first.law)?, energy(&second.law)?);
    let failed: u64 = summaries.iter().map(|summary| summary.requests.failed).sum();
    Some(format!(
        "{} used {:.1} % less energy than {} over both days ({:.0} J and {:.0} J), and {failed} requests failed",
        second.law,
        (1.0 - other / reference) * 100.0,
        first.law,
        other.get(),
        reference.get()
    ))
}
