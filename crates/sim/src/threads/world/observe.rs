//! What a law is given once a period, and how its answer is carried out.

use super::{Control, Event, World};
use crate::error::{RunError, ScenarioError, within};
use crate::threads::gate::Settings;
use headroom_control::oncall::policy::{Connection, Grant, Kept};
use headroom_control::{
    ClassObservation, Decision, Latency, Observation, OncallObservation, PlantError, Slo, Traffic,
};
use headroom_units::{Hertz, Lever, Ratio, Seconds, Setting, Simulated, Watts};

/// The percentiles of a class's last latencies that an observation has.
const SHARES: [f64; 4] = [0.5, 0.95, 0.99, 0.999];

/// The sums at the beginning of a period.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    at_s: f64,
    sent: u64,
    answered: u64,
    busy_s: f64,
    drawn_j: f64,
    rounds: u64,
    given_back: u64,
    instructions: f64,
    switches: u64,
    long_idle_s: f64,
}

impl World<'_> {
    /// A period ends, and the law is asked.
    pub(super) fn period(&mut self, control: &mut Control<'_>) -> Result<(), RunError> {
        self.events
            .push(self.now_s + self.scenario.period_s, Event::Period);
        let now_s = self.now_s;
        self.classes.iter_mut().for_each(|class| class.pass(now_s));
        let observation = self.observation()?;
        if let Some(decision) = (control.law)(&observation) {
            self.carry_out(&decision)?;
        }
        if let Some(decision) = control.areas.decide(&observation) {
            self.carry_out_areas(&decision)?;
        }
        Ok(())
    }

    /// What was drawn so far of what REEF counts (Section 3.1): processors, memory and storage, joules.
    fn drawn_j(&mut self) -> f64 {
        let disks_j = self.scenario.disk.power_w * self.now_s;
        let work_j = self.cpu.work_j(self.now_s);
        let totals = self.cpu.drawn(self.now_s);
        (totals.idle + totals.transitions + totals.uncore).get() + work_j + disks_j
    }

    fn sums(&mut self) -> Sums {
        let gate = self.gate.as_ref();
        Sums {
            at_s: self.now_s,
            sent: self.account.queries_sent(),
            answered: self.account.queries_answered(),
            rounds: gate.map_or(0, |gate| gate.rounds),
            given_back: gate.map_or(0, |gate| gate.given_back),
            instructions: self.account.inflated,
            switches: self.cpu.switches,
            long_idle_s: self.cpu.long_idle_s,
            drawn_j: self.drawn_j(),
            busy_s: self.cpu.drawn(self.now_s).running.get(),
        }
    }

    fn observation(&mut self) -> Result<Observation, RunError> {
        let now = self.sums();
        let before = std::mem::replace(&mut self.before, now);
        let length_s = now.at_s - before.at_s;
        let cores_s = self.scenario.machine.processor.cores as f64 * length_s;
        let busy_s = now.busy_s - before.busy_s;
        let power = Watts::new((now.drawn_j - before.drawn_j) / length_s);
        let number = self.periods;
        self.periods += 1;
        let traffic = self.traffic(&before)?;
        let mut oncall = self.oncall()?;
        oncall.queries = now.answered - before.answered;
        oncall.rounds = now.rounds - before.rounds;
        oncall.given_back = now.given_back - before.given_back;
        oncall.instructions = Some((now.instructions - before.instructions) as u64);
        oncall.context_switches = Some(now.switches - before.switches);
        oncall.long_idle = Some(Ratio::new(
            ((now.long_idle_s - before.long_idle_s) / cores_s).min(1.0),
        ));
        Ok(Observation {
            period: number,
            at: Seconds::new(now.at_s),
            clock: Seconds::new(now.at_s),
            length: Seconds::new(length_s),
            in_force: self.in_force(),
            traffic: Some(traffic),
            utilisation: Some(Ratio::new((busy_s / cores_s).clamp(0.0, 1.0))),
            power: Some(Simulated(power).into()),
            frequency: Some(Simulated(self.cpu.mean_frequency()).into()),
            cpu_time: Some(Seconds::new(busy_s)),
            oncall: Some(oncall),
            ..Observation::default()
        })
    }

    fn traffic(&mut self, before: &Sums) -> Result<Traffic, PlantError> {
        let server = self.threads.iter().filter(|thread| !thread.is_other);
        let sent = server.filter_map(|thread| thread.sent_s.front());
        let oldest_s = sent.copied().reduce(f64::min);
        // Nothing fails here, so that no target is needed.
        let slo = Slo::new(Ratio::new(self.scenario.slo_percentile), Seconds::new(1.0))?;
        let latency: Option<Latency> = self.period_latency.latency(slo, 0);
        self.period_latency.clear();
        Ok(Traffic {
            arrivals: self.account.queries_sent() - before.sent,
            completions: self.account.queries_answered() - before.answered,
            in_flight: Some(self.account.queries_sent() - self.account.queries_answered()),
            oldest_in_flight: oldest_s.map(|sent_s| Seconds::new(self.now_s - sent_s)),
            latency,
            ..Traffic::default()
        })
    }

    /// The server as a policy sees it; counts of the period are the caller's.
    fn oncall(&mut self) -> Result<OncallObservation, ScenarioError> {
        let mut each = Vec::with_capacity(self.threads.len());
        let mut classes: Vec<ClassObservation> = Vec::with_capacity(self.classes.len());
        let mut kept_s: Vec<f32> = Vec::new();
        for (number, class) in self.classes.iter_mut().enumerate() {
            let mut of = ClassObservation {
                name: class.figures.name.clone(),
                connections: u64::from(class.figures.connections),
                ..ClassObservation::default()
            };
            kept_s.clear();
            let members = class.members.clone();
            for id in members {
                let thread = &mut self.threads[id as usize];
                debug_assert_eq!(thread.class as usize, number);
                let (queries, mean) = thread.recent.take();
                let slos = class.kept(&thread.recent)?;
                of.queries += queries;
                of.missed += u64::from(slos.iter().any(is_missed));
                kept_s.extend_from_slice(thread.recent.kept_s());
                let tokens = self.gate.as_ref().map_or(u32::MAX, |gate| gate.tokens(id));
                each.push(Connection {
                    id: u64::from(id),
                    class: class.figures.name.clone(),
                    weight: class.figures.weight,
                    queries,
                    mean,
                    cv: thread.recent.cv(),
                    slos,
                    tokens,
                });
            }
            of.latency = at_shares(&mut kept_s);
            classes.push(of);
        }
        let gate = self.gate.as_ref();
        let waiting = gate.map_or(0, |gate| gate.waiting() as u64);
        let least = std::mem::replace(&mut self.waiting_least, waiting);
        let asking = OncallObservation::asking_of(each.iter().map(|connection| connection.queries));
        Ok(OncallObservation {
            running: match gate {
                Some(gate) => gate.running(),
                None => u64::from(self.account.active()),
            },
            waiting,
            waiting_least: gate.map(|_| least.min(waiting)),
            waiting_share: gate.and_then(|_| {
                OncallObservation::share_of(least.min(waiting), self.threads.len() as u64, Some(asking))
            }),
            asking: Some(asking),
            oldest_waiting: gate.and_then(|gate| gate.oldest_s(self.now_s)).map(Seconds::new),
            connections: self.threads.len() as u64,
            cores: Some(self.scenario.machine.processor.cores as u64),
            classes,
            each,
            ..OncallObservation::default()
        })
    }

    /// The levers as they are.
    fn in_force(&self) -> Setting {
        let frequency = self.frequency.map(Hertz::get);
        let setting = Setting::default().with(Lever::Frequency, frequency);
        let settings = self.gate.as_ref().map(|gate| gate.settings());
        let Some((settings, concurrency)) = settings.and_then(|of| Some((of, of.concurrency?))) else {
            return setting;
        };
        setting
            .with(Lever::Concurrency, Some(f64::from(concurrency)))
            .with(
                Lever::QueryBatch,
                (settings.tokens < u32::MAX).then(|| f64::from(settings.tokens)),
            )
            .with(Lever::RoundDelay, Some(settings.delay_s))
    }

    /// Carries a decision out as a whole: a lever without a value is not limited, and a connection without a grant has what all have.
    pub(super) fn carry_out(&mut self, decision: &Decision) -> Result<(), ScenarioError> {
        self.set_frequency(decision.setting.frequency())?;
        let settings = settings(&decision.setting)?;
        let connections = self.threads.len() as u64;
        decision
            .grants
            .iter()
            .try_for_each(|grant| check_grant(grant, connections))?;
        match &mut self.gate {
            Some(gate) => gate.set(settings, &decision.grants),
            None if settings.concurrency.is_some() || !decision.grants.is_empty() => {
                let why = "is decided, and the scenario has no gate: give it one";
                return Err(ScenarioError::new("decision.concurrency", why));
            }
            None => {}
        }
        Ok(())
    }

    /// Remembers the least of those that wait.
    pub(super) fn sample_waiting(&mut self) {
        if let Some(gate) = &self.gate {
            self.waiting_least = self.waiting_least.min(gate.waiting() as u64);
        }
    }
}

/// Whether an SLO is missed, without any margin.
fn is_missed(slo: &Kept) -> bool {
    match slo {
        Kept::Percentile {
            percentile,
            violations,
            ..
        } => violations.get() > 1.0 - percentile.get(),
        Kept::Disengagement { target, measured, .. } => measured > target,
    }
}

/// C, N and D of a setting.
fn settings(setting: &Setting) -> Result<Settings, ScenarioError> {
    let key = |lever: Lever| format!("decision.{}", lever.name());
    let whole = |lever: Lever| -> Result<Option<u32>, ScenarioError> {
        let Some(value) = setting.get(lever) else {
            return Ok(None);
        };
        within(&key(lever), value, 1.0, 1e9, "")?;
        Ok(Some(value.round() as u32))
    };
    let delay_s = setting.get(Lever::RoundDelay).unwrap_or(0.0);
    within(&key(Lever::RoundDelay), delay_s, 0.0, 3_600.0, " seconds")?;
    Ok(Settings {
        concurrency: whole(Lever::Concurrency)?,
        tokens: whole(Lever::QueryBatch)?.unwrap_or(u32::MAX),
        delay_s,
    })
}

fn check_grant(grant: &Grant, connections: u64) -> Result<(), ScenarioError> {
    let key = |name: &str| format!("decision.grants.{}.{name}", grant.id);
    if grant.id >= connections {
        let why = format!(
            "is no connection: they are numbered from 0 to {}",
            connections - 1
        );
        return Err(ScenarioError::new(key("id"), why));
    }
    within(&key("share"), grant.share, 1e-6, 1e6, "")?;
    within(&key("retry"), grant.retry.get(), 0.0, 3_600.0, " seconds")
}

/// The values at [`SHARES`] of some, which are put in another order; `None` of none.
fn at_shares(values_s: &mut [f32]) -> Option<[Seconds; 4]> {
    if values_s.is_empty() {
        return None;
    }
    let count = values_s.len();
    let mut from = 0;
    Some(SHARES.map(|share| {
        let rank = ((share * count as f64).ceil() as usize).clamp(1, count) - 1;
        let (_, value, _) = values_s[from..].select_nth_unstable_by(rank - from, f32::total_cmp);
        let value = Seconds::new(f64::from(*value));
        from = rank;
        value
    }))
}
