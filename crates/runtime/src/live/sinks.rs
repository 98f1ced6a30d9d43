//! Who gets each period: the recorder, the admin port, the live view, a log line.

use super::Sink;
use super::admin::Status;
use super::news::Newsroom;
use super::tick::Tick;
use super::view::View;
use hdrhistogram::Histogram;
use headroom_console::say;
use headroom_record::{
    LatencySummary, PeriodRecord, Reason, Recorder, RunRecorder, RunTotals, unmeasured_text,
};
use headroom_units::Seconds;
use std::sync::Arc;

/// Writes each period into the flight recorder.
pub struct RecorderSink {
    recorder: RunRecorder,
    nothing: Histogram<u64>,
}

impl RecorderSink {
    /// A sink into a run that has been started.
    pub fn new(recorder: RunRecorder) -> Self {
        Self {
            recorder,
            nothing: headroom_gateway::service_histogram(),
        }
    }

    /// The run, to finish it.
    pub fn into_run(self) -> RunRecorder {
        self.recorder
    }
}

impl Sink for RecorderSink {
    fn tick(&mut self, tick: &Tick) {
        let latencies = tick.histogram.as_ref().unwrap_or(&self.nothing);
        let taken = self.recorder.record(record(tick), latencies);
        if !taken {
            tracing::warn!(
                period = tick.observation.period,
                "the flight recorder could not take a period"
            );
        }
    }
}

/// The requests of a period as the recorder keeps them: all that it is judged by.
fn requests(tick: &Tick) -> PeriodRecord {
    let seen = &tick.observation;
    let traffic = seen.traffic.clone().unwrap_or_default();
    let (cores, _) = tick.held();
    PeriodRecord {
        arrivals: traffic.arrivals,
        completions: traffic.completions,
        failures: traffic.failures,
        failed_by_client: traffic.failed_by_client,
        // The column has no place for what is not known; `seen` beside it tells.
        in_flight: traffic.in_flight.unwrap_or(0),
        oldest_in_flight: traffic.oldest_in_flight,
        slo_latency: traffic
            .latency
            .filter(|latency| !latency.missed)
            .map(|latency| latency.at_slo),
        telemetry_lost: tick.telemetry_lost,
        ..PeriodRecord::new(
            seen.period,
            (tick.at - seen.length).max(Seconds::ZERO),
            seen.length,
            cores,
        )
    }
}

/// A period as the recorder keeps it.
fn record(tick: &Tick) -> PeriodRecord {
    let seen = &tick.observation;
    let (_, cap) = tick.held();
    PeriodRecord {
        latency: tick.histogram.as_ref().and_then(LatencySummary::of_micros),
        forecast: tick.decision.expected_rate,
        cap,
        cap_at_limit: tick.cap_at_limit,
        power: tick.power(),
        energy: tick.energy,
        utilisation: seen.utilisation,
        throttled: tick.throttled,
        frequency: seen.frequency.map(|frequency| frequency.value),
        frequency_limit: seen.in_force.frequency(),
        levers_lost: tick.levers_lost,
        nodes_missing: tick.missing.nodes,
        parts: tick.parts.clone(),
        seen: serde_json::to_value(seen).unwrap_or_default(),
        decided: serde_json::to_value(&tick.decision).unwrap_or_default(),
        reasons: tick
            .decision
            .reasons
            .iter()
            .map(|reason| Reason {
                rule: reason.rule.to_string(),
                text: reason.text.clone(),
                numbers: reason
                    .numbers
                    .iter()
                    .map(|(name, value)| (name.to_string(), *value))
                    .collect(),
                levers: reason.levers.clone(),
            })
            .collect(),
        ..requests(tick)
    }
}

/// The periods of a run that are late, counted while it goes on as its summary counts them.
#[derive(Debug, Default)]
pub(super) struct Late(Option<RunTotals>);

impl Late {
    pub(super) fn count(&mut self, tick: &Tick) {
        let totals = self.0.get_or_insert_with(|| {
            RunTotals::new(tick.target).unmeasured(tick.percentile.filter(|_| tick.is_unmeasured))
        });
        totals.add_row(&requests(tick));
    }

    /// Those over the target, and of how many judged periods that had requests.
    pub(super) fn of_judged(&self) -> (u64, u64) {
        self.0.as_ref().map_or((0, 0), RunTotals::over_of_asked)
    }

    /// What is known of them where periods are not judged because nothing measures their latency.
    pub(super) fn unmeasured(&self) -> Option<String> {
        let unmeasured = self.0.as_ref()?.periods_unmeasured();
        let (late, judged) = self.of_judged();
        (unmeasured > 0).then(|| unmeasured_text(late, judged, unmeasured))
    }
}

/// Tells the admin port, of the recorder too.
pub struct StatusSink {
    pub status: Arc<Status>,
    pub recorder: Recorder,
}

impl Sink for StatusSink {
    fn tick(&mut self, tick: &Tick) {
        self.status.recorded(self.recorder.health());
        self.status.tick(tick);
    }
}

impl Sink for &View {
    fn tick(&mut self, tick: &Tick) {
        View::tick(self, tick);
    }
}

/// A latency about the target crosses it in every other period: so many lines say it until the next that is due, which counts the periods.
const MOST_CHANGES: u32 = 4;

/// How the rules begin of the policies that say whose turn it is: they speak beside the law that chooses the setting, and never first.
const POLICY: &str = "policy-";

/// Milliseconds with as many digits as tell a latency from a target of a few of them, or of less than one.
fn millis(time: Seconds, target: Option<Seconds>) -> String {
    let digits = match target.unwrap_or(time).as_millis() {
        ms if ms < 1.0 => 3,
        ms if ms < 10.0 => 1,
        _ => 0,
    };
    format!("{:.digits$}", time.as_millis())
}

/// Writes a line to standard error every so many periods.
pub struct Lines {
    law: String,
    /// Periods from one line to the next; `None` where only news is told, as beside a view.
    every: Option<u64>,
    late: Late,
    /// Whether the period before was over the target.
    is_over: bool,
    /// Lines for that since the last that was due.
    changes: u32,
    news: Newsroom,
}

impl Lines {
    /// A line every `every` periods, and up to four more where the latency has got over the target, or back under it; and what is news.
    pub fn new(law: &str, every: Option<u64>) -> Self {
        Self {
            law: law.to_owned(),
            every: every.map(|every| every.max(1)),
            late: Late::default(),
            is_over: false,
            changes: 0,
            news: Newsroom::default(),
        }
    }

    /// A period in a line.
    fn line(&self, tick: &Tick) -> String {
        let traffic = tick.observation.traffic.as_ref();
        let latency = traffic.and_then(|traffic| traffic.latency);
        let latency = latency.map_or("-".to_owned(), |latency| match latency.missed {
            true => "missed".to_owned(),
            false => millis(latency.at_slo, tick.target),
        });
        let target = tick
            .target
            .map_or("-".to_owned(), |target| millis(target, tick.target));
        let power = tick.observation.power.map_or("- W".to_owned(), |power| {
            format!("{:.1} ({})", power.value, power.source)
        });
        let oncall = tick.observation.oncall.as_ref();
        let oldest = oncall.and_then(|oncall| oncall.oldest_waiting);
        let oldest = oldest.map_or_else(String::new, |oldest| {
            format!("  oldest waits {} ms", millis(oldest, Some(oldest)))
        });
        // What is said after it is of the decision, which holds from now on.
        let mut setting = tick.observation.in_force.to_string();
        let decided = tick.decision.setting.to_string();
        if setting != decided {
            setting = format!("{setting}, next: {decided}");
        }
        let mut reasons = tick.decision.reasons.iter();
        let mut why = reasons
            .next()
            .map_or_else(String::new, |reason| reason.text.clone());
        if let Some(policy) = reasons.find(|reason| reason.rule.starts_with(POLICY)) {
            why = format!("{why}; turns: {}", policy.text);
        }
        let (late, _) = self.late.of_judged();
        let periods = if late == 1 { "period" } else { "periods" };
        let late = self
            .late
            .unmeasured()
            .unwrap_or_else(|| format!("{late} {periods} late"));
        format!(
            "{:>6.0} s  {:<9} latency {latency:>4} / {target} ms{oldest}  {:.1}/s  {setting}  {power}  {late}  {why}",
            tick.at.get(),
            self.law,
            tick.observation.demand().map_or(0.0, |rate| rate.get()),
        )
    }
}

impl Sink for Lines {
    fn tick(&mut self, tick: &Tick) {
        self.late.count(tick);
        let over = tick.is_over();
        let has_changed = std::mem::replace(&mut self.is_over, over) != over;
        let news = self.news.read(tick);
        for one in &news {
            say::note!("{:>6.0} s  {one}", tick.at.get());
        }
        let is_due = |every: u64| (tick.observation.period + 1).is_multiple_of(every);
        match self.every {
            Some(every) if is_due(every) => self.changes = 0,
            Some(_) if has_changed && self.changes < MOST_CHANGES => self.changes += 1,
            _ => return,
        }
        say::note!("{}", self.line(tick));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_control::Traffic;
    use headroom_units::{Lever, Setting};

    #[test]
    fn a_short_target_is_not_rounded_away() {
        let ms =
            |ms: f64, target_ms: f64| millis(Seconds::from_millis(ms), Some(Seconds::from_millis(target_ms)));
        assert_eq!((ms(0.4, 0.5), ms(3.26, 4.0)), ("0.400".into(), "3.3".into()));
        assert_eq!(ms(52.3, 100.0), "52");
        assert_eq!(millis(Seconds::from_millis(0.25), None), "0.250");
    }

    #[test]
    fn the_first_periods_of_a_run_are_not_late_and_one_that_is_is_one_period() {
        let mut lines = Lines::new("on-call", Some(40));
        let mut tick = Tick {
            target: Some(Seconds::from_millis(100.0)),
            ..Tick::default()
        };
        tick.observation.traffic = Some(Traffic {
            oldest_in_flight: Some(Seconds::new(0.4)),
            in_flight: Some(1),
            ..Traffic::default()
        });
        for _ in 0..headroom_record::WARM_UP_PERIODS {
            lines.late.count(&tick);
        }
        assert!(lines.line(&tick).contains("  0 periods late"));
        lines.late.count(&tick);
        assert!(lines.line(&tick).contains("  1 period late"));
        lines.late.count(&tick);
        assert!(lines.line(&tick).contains("  2 periods late"));
    }

    #[test]
    fn where_nothing_measures_latencies_no_period_is_called_late() {
        let mut lines = Lines::new("elastic", Some(10));
        let mut tick = Tick {
            target: Some(Seconds::from_millis(500.0)),
            percentile: Some(headroom_units::Ratio::from_percent(95.0)),
            is_unmeasured: true,
            ..Tick::default()
        };
        tick.observation.traffic = Some(Traffic {
            arrivals: 95,
            completions: 95,
            ..Traffic::default()
        });
        for _ in 0..headroom_record::WARM_UP_PERIODS + 3 {
            lines.late.count(&tick);
        }
        let line = lines.line(&tick);
        assert!(
            line.contains("  latency unknown in 3 of 3 periods  ") && !line.contains("late "),
            "{line}"
        );
        // The same where a source is configured, and says nothing.
        tick.is_unmeasured = false;
        lines.late = Late::default();
        for _ in 0..headroom_record::WARM_UP_PERIODS + 3 {
            lines.late.count(&tick);
        }
        assert!(lines.line(&tick).contains("  3 periods late  "));
    }

    #[test]
    fn a_line_has_what_is_in_force_what_is_next_and_what_a_policy_says_of_turns() {
        let lines = Lines::new("on-call", Some(40));
        let workers = |workers| Setting::from([(Lever::Concurrency, workers)]);
        let reason =
            |rule: &'static str, text: &str| headroom_control::Reason::new(rule, text.to_owned(), &[]);
        let mut tick = Tick::default();
        tick.observation.in_force = workers(4.0);
        tick.decision.setting = workers(4.0);
        tick.decision.reasons = vec![reason("oncall-hold", "nothing to do")];
        let line = lines.line(&tick);
        assert!(
            !line.contains("next") && line.ends_with("  nothing to do"),
            "{line}"
        );
        tick.decision.setting = workers(6.0);
        tick.decision.reasons = vec![
            reason("oncall-compare", "6 workers are tried"),
            reason("area-budgets", "no areas"),
            reason("policy-violated", "an SLO is violated: others yield"),
        ];
        let line = lines.line(&tick);
        let said = format!(
            "  {}, next: {}  - W  0 periods late  6 workers are tried; turns: an SLO is violated: others yield",
            workers(4.0),
            workers(6.0)
        );
        assert!(line.ends_with(&said), "{line}");
    }
}
