//! Takes the samples of all methods, and ends a period with each of the first one's.

use super::sample::{Row, Shown};
use super::text;
use super::totals::Totals;
use super::way::{Way, name, number};
use super::{Plan, SamplesFile, Watching};
use crate::live::view::{Heading, View};
use crate::live::{RecorderSink, Sink, Tick};
use anyhow::anyhow;
use headroom_console::{Stop, say};
use headroom_control::capacity::Estimate;
use headroom_control::{Decision, Observation, Plant, Traffic};
use headroom_node::queue::QueueMethod;
use headroom_record::{RunRecorder, RunSummary};
use headroom_units::{Part, PerSecond, Ratio, Role, Seconds, Sensor};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// Rows that wait to be taken: the methods' threads wait when there are more.
const MAX_WAITING: usize = 256;
/// How often it is asked whether the run is to end.
const STOP_EVERY: Duration = Duration::from_millis(200);

/// Where a run goes.
pub struct Outputs<'a> {
    /// The flight recorder.
    pub recorder: RunRecorder,
    /// The live view, with what stands above it; a line a period on standard error where there is none.
    pub view: Option<(&'a View, Heading)>,
    /// A file for every sample.
    pub samples: Option<SamplesFile>,
}

impl Outputs<'_> {
    /// To the flight recorder alone, with a line a period on standard error.
    pub fn to(recorder: RunRecorder) -> Self {
        Self {
            recorder,
            view: None,
            samples: None,
        }
    }
}

/// What a run found.
pub struct Found {
    /// The summary that every run ends in. A connection counts as a request, one that the full queue dropped as a failed one.
    pub summary: RunSummary,
    pub(super) plan: Plan,
    pub(super) totals: Totals,
    pub(super) passed_over: Vec<super::PassedOver>,
    pub(super) remarks: Vec<String>,
    pub(super) duration: Seconds,
}

/// What the periods of a run are made with.
struct Periods {
    leading: Way,
    whole: String,
    /// When the last period ended, and how many there were.
    before: Option<Seconds>,
    count: u64,
}

impl Watching {
    /// Watches until `stop` is raised or the time is over.
    ///
    /// # Errors
    /// A file that cannot be written, a record that cannot be ended.
    pub fn run(
        mut self,
        outputs: Outputs<'_>,
        duration: Option<Duration>,
        stop: &Stop,
    ) -> anyhow::Result<Found> {
        let Outputs {
            recorder,
            view,
            mut samples,
        } = outputs;
        if let Some(samples) = &mut samples {
            samples.begin(self.ways())?;
        }
        if let Some((view, heading)) = &view {
            view.begin(heading.clone());
        }
        let mut record = RecorderSink::new(recorder, Plant::of_servers(0).power());
        let mut view = view.map(|(view, _)| view);
        let end = duration.map(|duration| self.started + duration);
        let first = self.first();
        let mut periods = Periods {
            leading: self.leading(),
            whole: self.plan.to_string(),
            before: None,
            count: 0,
        };
        let (sender, rows) = sync_channel(MAX_WAITING);
        let mut threads = Vec::new();
        for watch in std::mem::take(&mut self.watches) {
            let (sender, stop) = (sender.clone(), stop.clone());
            let thread = std::thread::Builder::new().name("watch".to_owned());
            threads.push(thread.spawn(move || watch.run(&sender, &stop))?);
        }
        drop(sender);
        let mut totals = Totals::default();
        let mut taken = || {
            while let Some(mut row) = next(&rows, end, stop) {
                let ends = first == row.method;
                if let Some(fixed) = self.plan.fixed.filter(|_| ends) {
                    row.estimates.push((Way::Static, fixed.estimate()));
                }
                let at = row.at;
                let (row, news) = totals.add(row);
                for news in news {
                    say::note!("{:8.1} s  {news}", at.get());
                }
                if let Some(samples) = &mut samples {
                    samples.add(&row)?;
                }
                if !ends {
                    continue;
                }
                if view.is_none() {
                    say::note!("{}", text::line(&row, &totals));
                }
                if let Some(tick) = periods.end(&row, &mut totals) {
                    record.tick(&tick);
                    if let Some(view) = &mut view {
                        Sink::tick(view, &tick);
                    }
                }
            }
            Ok(())
        };
        let outcome: anyhow::Result<()> = taken();
        stop.raise();
        drop(rows);
        for thread in threads {
            if thread.join().is_err() {
                return Err(anyhow!("a thread that measures panicked; please report it"));
            }
        }
        outcome?;
        if let Some(samples) = samples {
            samples.end()?;
        }
        Ok(Found {
            summary: record.into_run().finish()?,
            plan: self.plan,
            totals,
            passed_over: self.passed_over,
            remarks: self.remarks,
            duration: self.started.elapsed().into(),
        })
    }
}

/// The next row; `None` at the end.
fn next(rows: &Receiver<Row>, end: Option<Instant>, stop: &Stop) -> Option<Row> {
    loop {
        let left = end.map_or(STOP_EVERY, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() || stop.is_raised() {
            return None;
        }
        match rows.recv_timeout(left.min(STOP_EVERY)) {
            Ok(row) => return Some(row),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

impl Periods {
    /// The period that ends with a row of the first method; `None` of the first row, before which there was none. Of each other
    /// method it has what was sampled since the period before.
    fn end(&mut self, row: &Row, totals: &mut Totals) -> Option<Tick> {
        let before = self.before.replace(row.at)?;
        let length = row.at - before;
        let index = self.count;
        self.count += 1;
        let leading = totals.ways.get(&self.leading).map(|figures| &figures.latest);
        let reasons = leading.map(|estimate| estimate.reason.clone());
        let whole = Part::new(&self.whole, Role::Cluster).with(Sensor::Capacity, leading.and_then(number));
        let whole = match (&row.shown, leading) {
            (Ok(shown), Some(estimate)) => queue(whole, shown).in_state(estimate.capacity.name()),
            (Ok(shown), None) => queue(whole, shown),
            (Err(_), _) => whole.in_state("unread"),
        };
        let mut parts = vec![whole];
        let newest = totals
            .methods
            .iter_mut()
            .filter_map(|(method, figures)| Some((*method, figures.newest.take()?)));
        let newest: Vec<(QueueMethod, Row)> = newest.collect();
        for (_, row) in &newest {
            parts.extend(
                row.estimates
                    .iter()
                    .map(|(way, estimate)| estimator(*way, estimate)),
            );
        }
        parts.extend(newest.iter().map(|(method, row)| meter(*method, row)));
        Some(Tick {
            at: row.at,
            seen: Observation {
                period: index,
                at: row.at,
                length,
                traffic: row.shown.as_ref().ok().map(|shown| traffic(shown, length)),
                ..Observation::default()
            },
            decision: Decision {
                reasons: reasons.into_iter().collect(),
                ..Decision::default()
            },
            telemetry_lost: row.shown.is_err(),
            parts,
            ..Tick::default()
        })
    }
}

/// What came and what was served in a period; a connection that the full queue dropped failed.
fn traffic(shown: &Shown, length: Seconds) -> Traffic {
    let count = |rate: Option<PerSecond>| rate.map_or(0.0, |rate| (rate.get() * length.get()).round());
    let arrivals = count(shown.arrival_rate);
    Traffic {
        arrivals: arrivals as u64,
        completions: count(shown.service_rate) as u64,
        failures: (arrivals * shown.drop_ratio.map_or(0.0, Ratio::get)).round() as u64,
        ..Traffic::default()
    }
}

/// A part with what a meter shows of the queue.
fn queue(part: Part, shown: &Shown) -> Part {
    part.with(Sensor::ArrivalRate, shown.arrival_rate.map(PerSecond::get))
        .with(Sensor::ServiceRate, shown.service_rate.map(PerSecond::get))
        .with(Sensor::QueueMean, shown.queue_mean)
        .with(Sensor::QueueThreshold, shown.threshold)
        .with(Sensor::Backlog, shown.backlog.map(|backlog| backlog as f64))
        .with(Sensor::DropRatio, shown.drop_ratio.map(Ratio::get))
        .with(Sensor::Utilisation, shown.cpu.map(Ratio::get))
}

fn meter(method: QueueMethod, row: &Row) -> Part {
    let part = Part::new(name(method), Role::Meter);
    match &row.shown {
        Ok(shown) => {
            let connections = shown.connections.map(|count| count as f64);
            let mut part = queue(part, shown)
                .with(Sensor::Connections, connections)
                .with(Sensor::SampleInterval, row.interval.map(Seconds::get))
                .in_state("read")
                .fact("counts of", text::whose(shown.scope));
            part.trouble.extend(shown.note.clone());
            part
        }
        Err(error) => {
            let mut part = part.in_state("unread");
            part.trouble.push(error.clone());
            part
        }
    }
}

fn estimator(way: Way, estimate: &Estimate) -> Part {
    Part::new(way.label(), Role::Estimator)
        .in_state(estimate.capacity.name())
        .with(Sensor::Capacity, number(estimate))
        .fact(
            "why",
            format_args!("{}: {}", estimate.reason.rule, estimate.reason.text),
        )
}
