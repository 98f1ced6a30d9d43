//! A simulated run as the flight recorder keeps a live one, period by period.

use super::{Progress, Setting};
use crate::origin;
use hdrhistogram::Histogram;
use headroom_console::Failure;
use headroom_control::LawName;
use headroom_control::PowerEnvelope;
use headroom_record::{
    LatencySummary, PeriodRecord, Reason, Recorder, RunMeta, RunSummary, RunTotals, World,
};
use headroom_sim::Outcome;
use headroom_sim::bound::least;
use headroom_units::{Ratio, Seconds, Source};
use std::time::SystemTime;

/// A run to be watched: a world, a law, and what it is called.
pub struct Watched<'a> {
    /// The world with its arrivals.
    pub setting: &'a Setting,
    /// The law.
    pub law: LawName,
    /// The name of what drives the load.
    pub trace: &'a str,
    /// The seed.
    pub seed: u64,
    /// The name of the run.
    pub name: &'a str,
}

impl Watched<'_> {
    fn meta(&self) -> RunMeta {
        let scenario = &self.setting.scenario;
        let target = Seconds::from_millis(scenario.service.target_ms);
        let guard = self.setting.guarded(self.law).ok().and_then(|law| law.guard());
        RunMeta {
            name: self.name.to_owned(),
            law: self.law.to_string(),
            trace: self.trace.to_owned(),
            seed: self.seed,
            world: World::Simulated,
            period: Seconds::new(scenario.service.period_s),
            slo: Some(headroom_record::Slo {
                percentile: scenario.service.percentile,
                target,
                guard: guard.map(|guard| Ratio::new(guard / target)),
                is_unmeasured: false,
            }),
            power_source: Some(Source::Simulated),
            notes: vec!["simulated: every figure is a model's, none was measured on a machine".to_owned()],
            config: self.setting.text(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: headroom_record::host(),
            started_at: SystemTime::now(),
            // None where it cannot be said: of a closed loop, of nodes that fail.
            energy_bound: least(scenario, self.seed, self.setting.asked())
                .ok()
                .map(|least| least.prompt),
            nodes: Vec::new(),
            provenance: origin::provenance()
                .configured_by(&self.setting.text())
                .with_load(Some(origin::of_arrivals([&scenario.arrivals], &[self.seed]))),
        }
    }

    /// Runs it, and gives each period and its latencies to `keep`, whose first error ends the run's result.
    fn run(
        &self,
        mut keep: impl FnMut(PeriodRecord, &Histogram<u64>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let scenario = &self.setting.scenario;
        let mut law = self.setting.guarded(self.law)?;
        let envelope = scenario.plant()?.power();
        let progress = Progress::new(format!("simulating {}", self.law), scenario.periods());
        let mut latencies = headroom_gateway::service_histogram();
        let mut kept = Ok(());
        let mut sink = |outcome: &Outcome<'_>| {
            progress.add(1);
            if kept.is_ok() {
                latencies.reset();
                outcome.latencies.add_to(&mut latencies);
                kept = keep(period(outcome, &envelope, &latencies), &latencies);
            }
        };
        let ran = headroom_sim::run(scenario, &mut law, self.seed, &mut sink);
        ran.map_err(|error| self.setting.run_error(error))?;
        kept
    }
}

/// Runs it into the recorder.
///
/// # Errors
/// A scenario that is no world, a run that does not end, a record that cannot be written.
pub fn recorded(run: &Watched<'_>, recorder: &Recorder) -> Result<RunSummary, Failure> {
    let mut keeper = recorder.start_run(run.meta())?;
    run.run(|period, latencies| {
        keeper.record_waiting(period, latencies)?;
        Ok(())
    })?;
    Ok(keeper.finish()?)
}

/// Runs it and keeps its summary alone.
///
/// # Errors
/// A scenario that is no world, a run that does not end.
pub fn unrecorded(run: &Watched<'_>) -> Result<RunSummary, Failure> {
    let meta = run.meta();
    let mut totals = RunTotals::new(meta.slo.map(|slo| slo.target));
    run.run(|period, latencies| {
        totals.add(&period, latencies);
        Ok(())
    })?;
    Ok(totals.summary(&meta))
}

/// A period as it really was; what the law saw of it is kept beside.
fn period(outcome: &Outcome<'_>, envelope: &PowerEnvelope, latencies: &Histogram<u64>) -> PeriodRecord {
    let (seen, traffic) = (outcome.observation, outcome.traffic);
    let reasons = outcome.decision.reasons.iter().map(|reason| Reason {
        rule: reason.rule.to_string(),
        text: reason.text.clone(),
        numbers: reason
            .numbers
            .iter()
            .map(|(name, value)| (name.to_string(), *value))
            .collect(),
        levers: reason.levers.clone(),
    });
    PeriodRecord {
        arrivals: traffic.arrivals,
        completions: traffic.completions,
        failures: traffic.failures,
        failed_by_client: traffic.failed_by_client,
        // A simulated world always tells.
        in_flight: traffic.in_flight.unwrap_or(0),
        oldest_in_flight: traffic.oldest_in_flight,
        latency: LatencySummary::of_micros(latencies),
        slo_latency: traffic
            .latency
            .filter(|latency| !latency.missed)
            .map(|latency| latency.at_slo),
        forecast: outcome.decision.expected_rate,
        cap: Some(outcome.allocated.cap),
        cap_at_limit: outcome.allocated.cap >= envelope.limit(outcome.allocated.cores),
        power: Some(outcome.power),
        energy: Some(outcome.energy),
        utilisation: outcome.utilisation,
        throttled: Some(outcome.throttled),
        frequency: outcome.frequency,
        frequency_limit: outcome.allocated.frequency,
        telemetry_lost: seen.traffic.is_none(),
        seen: serde_json::to_value(seen).unwrap_or_default(),
        decided: serde_json::to_value(outcome.decision).unwrap_or_default(),
        reasons: reasons.collect(),
        ..PeriodRecord::new(
            seen.period,
            (outcome.at - seen.length).max(Seconds::ZERO),
            seen.length,
            outcome.cores,
        )
    }
}
