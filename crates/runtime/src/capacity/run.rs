//! Takes the samples of all methods, and ends a period with each of the first one's.

use super::sample::{Row, Shown};
use super::text;
use super::totals::Totals;
use super::way::{Way, name};
use super::{Plan, SamplesFile, Watching};
use crate::live::view::{Heading, View};
use crate::live::{RecorderSink, Sink, Tick};
use anyhow::anyhow;
use headroom_console::{Stop, say};
use headroom_control::capacity::Estimate;
use headroom_control::{Decision, Observation, Traffic};
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
    pub(super) leading: Way,
    pub(super) totals: Totals,
    pub(super) passed_over: Vec<super::PassedOver>,
    pub(super) remarks: Vec<String>,
    pub(super) duration: Seconds,
}

/// What the periods of a run are made with.
struct Periods<'a> {
    /// The way to measure whose samples end the periods.
    first: QueueMethod,
    leading: Way,
    whole: String,
    /// How many ways to measure there are.
    methods: usize,
    length: Duration,
    /// The sample that ends the period, which waits for those of the other methods until then.
    ending: Option<(Row, Instant)>,
    /// When the last period ended, and how many there were.
    before: Option<Seconds>,
    count: u64,
    record: RecorderSink,
    view: Option<&'a View>,
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
        let end = duration.map(|duration| self.started + duration);
        let mut periods = Periods {
            first: self.first(),
            leading: self.leading(),
            whole: self.plan.to_string(),
            methods: self.watches.len(),
            length: Duration::from_secs_f64(self.plan.tuning.sampling_period_s),
            ending: None,
            before: None,
            count: 0,
            record: RecorderSink::new(recorder),
            view: view.map(|(view, _)| view),
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
            while let Some(row) = next(&rows, periods.ending.as_ref().map(|ending| ending.1), end, stop) {
                if let Some(mut row) = row {
                    let ends = periods.first == row.method;
                    if ends {
                        periods.end(&mut totals);
                        let fixed = self.plan.fixed.map(|fixed| (Way::Static, fixed.estimate()));
                        row.estimates.extend(fixed);
                    }
                    let at = row.at;
                    let (row, news) = totals.add(row);
                    for news in news {
                        say::note!("{:8.1} s  {news}", at.get());
                    }
                    if let Some(samples) = &mut samples {
                        samples.add(&row)?;
                    }
                    if ends {
                        if periods.view.is_none() {
                            say::note!("{}", text::line(&row, &totals, periods.leading));
                        }
                        periods.ending = Some((row, Instant::now() + periods.length / 2));
                    }
                }
                if periods.is_complete(&totals) {
                    periods.end(&mut totals);
                }
            }
            periods.end(&mut totals);
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
            summary: periods.record.into_run().finish()?,
            plan: self.plan,
            leading: periods.leading,
            totals,
            passed_over: self.passed_over,
            remarks: self.remarks,
            duration: self.started.elapsed().into(),
        })
    }
}

/// The next row, or that it is time to go on without one; `None` at the end.
fn next(
    rows: &Receiver<Row>,
    wake: Option<Instant>,
    end: Option<Instant>,
    stop: &Stop,
) -> Option<Option<Row>> {
    let left = |moment: Option<Instant>| {
        moment.map_or(STOP_EVERY, |moment| {
            moment.saturating_duration_since(Instant::now())
        })
    };
    if left(end).is_zero() || stop.is_raised() {
        return None;
    }
    match rows.recv_timeout(left(end).min(left(wake)).min(STOP_EVERY)) {
        Ok(row) => Some(Some(row)),
        Err(RecvTimeoutError::Timeout) => Some(None),
        Err(RecvTimeoutError::Disconnected) => None,
    }
}

impl Periods<'_> {
    /// Whether every method has sampled in the period, or those that have not are late.
    fn is_complete(&self, totals: &Totals) -> bool {
        let sampled = totals.methods.values().filter(|figures| figures.newest.is_some());
        let late = |ending: &(Row, Instant)| Instant::now() >= ending.1;
        self.ending.as_ref().is_some_and(late) || sampled.count() == self.methods
    }

    /// Ends the period, where the sample that ends it is here.
    fn end(&mut self, totals: &mut Totals) {
        let Some((row, _)) = self.ending.take() else {
            return;
        };
        let Some(tick) = self.tick(&row, totals) else {
            return;
        };
        self.record.tick(&tick);
        if let Some(view) = self.view {
            view.tick(&tick);
        }
    }

    /// The period that ends with a row of the first method; `None` of the first row, before which there was none. Of each other
    /// method it has what was sampled since the period before.
    fn tick(&mut self, row: &Row, totals: &mut Totals) -> Option<Tick> {
        // Also those of the first step: they belong to no period.
        let newest = totals
            .methods
            .iter_mut()
            .filter_map(|(method, figures)| Some((*method, figures.newest.take()?)));
        let newest: Vec<(QueueMethod, Row)> = newest.collect();
        let before = self.before.replace(row.at)?;
        let length = row.at - before;
        let index = self.count;
        self.count += 1;
        let leading = totals.ways.get(&self.leading);
        let reasons = leading.map(|figures| figures.latest.reason.clone());
        let whole = Part::new(&self.whole, Role::Cluster);
        let whole = match leading {
            Some(figures) => figures.said.on(whole),
            None => whole,
        };
        let whole = match (&row.shown, leading) {
            (Ok(shown), Some(figures)) => queue(whole, shown).in_state(figures.latest.capacity.name()),
            (Ok(shown), None) => queue(whole, shown),
            (Err(_), _) => whole.in_state("unread"),
        };
        let mut parts = vec![whole];
        for (_, row) in &newest {
            parts.extend(
                row.estimates
                    .iter()
                    .map(|(way, estimate)| estimator(row, *way, estimate)),
            );
        }
        parts.extend(newest.iter().map(|(method, row)| meter(*method, row)));
        Some(Tick {
            at: row.at,
            observation: Observation {
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
                .fact("counts_of", text::whose(shown.scope));
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

fn estimator(row: &Row, way: Way, estimate: &Estimate) -> Part {
    let part = Part::new(way.label(), Role::Estimator).in_state(estimate.capacity.name());
    row.summary(way, estimate).on(part)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Place;
    use super::super::sample::CONNECTIONS;
    use super::*;
    use headroom_control::Reason;
    use headroom_control::capacity::{Capacity, QueueTuning};
    use headroom_node::queue::QueueOptions;
    use headroom_record::{Archive, Limits, Provenance, Recorder, RunMeta};

    fn row(at_s: f64, method: QueueMethod) -> Row {
        let estimate = Estimate::plain(
            Capacity::Exact(PerSecond::new(595.0)),
            Reason::new("kept", "somebody waited".to_owned(), &[]),
        );
        Row {
            at: Seconds::new(at_s),
            method,
            interval: Some(Seconds::new(1.0)),
            shown: Ok(Shown {
                arrival_rate: Some(PerSecond::new(100.0)),
                service_rate: Some(PerSecond::new(90.0)),
                drop_ratio: Some(Ratio::new(0.1)),
                queue_mean: Some(3.0),
                ..Shown::default()
            }),
            estimates: vec![(Way::BusyTime(method), estimate)],
            is_shared: false,
            unit: CONNECTIONS,
        }
    }

    pub fn meta() -> RunMeta {
        let watching = Watching {
            plan: Plan {
                port: 80,
                methods: Vec::new(),
                are_chosen: false,
                tuning: QueueTuning::default(),
                ramp: None,
                fixed: None,
                place: Place::Here {
                    options: Box::new(QueueOptions::new(80)),
                    group: None,
                },
            },
            started: Instant::now(),
            watches: Vec::new(),
            passed_over: Vec::new(),
            remarks: Vec::new(),
        };
        watching.meta("test", Provenance::of_this_process("0.0.0"))
    }

    #[test]
    fn a_period_has_every_method_s_sample_also_where_it_comes_after_the_first_one_s() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.db");
        let recorder = Recorder::open(&file, Limits::default()).unwrap();
        let run = recorder.start_run(meta()).unwrap();
        let id = run.id();
        let mut totals = Totals::default();
        let mut periods = Periods {
            first: QueueMethod::Ebpf,
            leading: Way::BusyTime(QueueMethod::Ebpf),
            whole: "port 80".to_owned(),
            methods: 2,
            length: Duration::from_secs(3_600),
            ending: None,
            before: None,
            count: 0,
            record: RecorderSink::new(run),
            view: None,
        };
        for at_s in [0.0, 1.0, 2.0] {
            let (first, _) = totals.add(row(at_s, QueueMethod::Ebpf));
            periods.ending = Some((first, Instant::now() + periods.length));
            assert!(!periods.is_complete(&totals), "the other method's is on its way");
            totals.add(row(at_s + 0.01, QueueMethod::Kernel));
            assert!(periods.is_complete(&totals));
            periods.end(&mut totals);
        }
        // One that does not come is not waited for for ever.
        let (first, _) = totals.add(row(3.0, QueueMethod::Ebpf));
        periods.ending = Some((first, Instant::now()));
        assert!(periods.is_complete(&totals));
        periods.end(&mut totals);
        let summary = periods.record.into_run().finish().unwrap();
        assert_eq!((summary.periods, summary.law.as_str()), (3, "busy-time"));
        let requests = summary.requests;
        assert_eq!(
            (requests.offered, requests.completed, requests.failed),
            (300, 270, 30)
        );
        assert_eq!(summary.decisions["kept"], 3);
        let archive = Archive::open(&file).unwrap();
        let mut meters = Vec::new();
        for period in archive.periods(id).unwrap() {
            let parts = period.parts.iter().filter(|part| part.role == Role::Meter);
            meters.push(parts.map(|part| part.name.clone()).collect::<Vec<_>>());
            let mut estimators = period.parts.iter().filter(|part| part.role == Role::Estimator);
            let estimator = estimators.next().unwrap();
            assert_eq!(estimator.get(Sensor::Capacity), Some(595.0));
            assert_eq!(estimator.facts["why"], "kept: somebody waited".into());
        }
        let both = vec!["eBPF".to_owned(), "sock_diag, /proc".to_owned()];
        assert_eq!(meters, [both.clone(), both.clone(), both[..1].to_vec()]);
    }
}
