//! A server on call as a device of the control loop.

use super::class_table::ClassTable;
use super::classes::Classes;
use super::pressure::Pressure;
use crate::live::{Device, DevicePeriod};
use anyhow::anyhow;
use headroom_control::oncall::areas::{AreaDecision, CoreArea};
use headroom_control::oncall::policy::Grant;
use headroom_control::{ClassObservation, Decision, OncallObservation, Reason};
use headroom_node::restore;
use headroom_oncall::{AreaCores, Levers, Steering, Totals, Turns};
use headroom_units::{Lever, LeverRange, Part, Ratio, Role, Seconds, Sensor, Setting};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a server does of which the library knows nothing: what it costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Instructions since it began.
    pub instructions: Option<u64>,
    /// Context switches since it began.
    pub context_switches: Option<u64>,
    /// CPU time since it began.
    pub cpu_time: Option<Seconds>,
    /// Of its cores' time since the last call the share in idle periods over the break-even time.
    pub long_idle: Option<Ratio>,
}

/// Says what a server costs.
pub trait Costs: Send {
    /// What it costs up to now.
    fn read(&mut self) -> Cost;
}

/// What stays the same of a server on call.
#[derive(Clone, Debug)]
pub struct OncallOptions {
    /// Its name in the record and the metrics.
    pub name: String,
    /// How long a worker with queries left in the round waits for its client's next one, where a round has more than one.
    pub linger: Duration,
    /// For how long what is commanded holds where it is not renewed.
    pub lease: Duration,
    /// The cores that it may use.
    pub cores: Option<u64>,
    /// Which processors these are, by the kernel's numbers: areas have the first of them, in their order. Without any there are no areas.
    pub cpus: Vec<u32>,
    /// Its classes of connections.
    pub classes: ClassTable,
    /// Whether a policy asks for each connection, also where there are no classes.
    pub each: bool,
}

/// A server whose workers are on call.
pub struct OncallDevice {
    steering: Arc<Steering>,
    options: OncallOptions,
    costs: Box<dyn Costs>,
    pressure: Pressure,
    classes: Classes,
    before: (Totals, Cost),
    /// Connections of other processes until the one whose workers are on call was it.
    elsewhere: u64,
    /// Which connection had how many queries answered then.
    asked: HashMap<(usize, u32), u64>,
    at: Instant,
    in_force: Setting,
    /// Connections with a batch size of their own.
    granted: HashSet<u64>,
    /// The rules of the last decision's warnings, which were said.
    warned: Vec<Cow<'static, str>>,
}

/// The state of a server whose workers are on call.
pub const ON_CALL: &str = "on call";
/// The state of a server that is to be on call, and of which no client was seen.
pub const NO_CLIENT: &str = "no client seen yet";
/// That of one that serves many clients with one thread.
pub const BY_EVENTS: &str = "driven by events, as without us";
/// That of one whose process with the workers on call has ended, as where it is reloaded, and of whose next no client came yet.
pub const ENDED: &str = "its process has ended, and no client of its next was seen yet";
/// The states of servers that are to be on call and are not.
pub const UNHELPED: [&str; 3] = [NO_CLIENT, BY_EVENTS, ENDED];

/// The rule of what came of classes that were read again.
const CLASSES: &str = headroom_record::READ_AGAIN[1];

/// What the reason begins with of a law of areas, or a policy, that was asked for too much.
const WARNING: &str = "warning: ";

/// The levers of a server on call, each with its range, for a plant.
pub const LEVERS: [(Lever, LeverRange); 3] = [
    (Lever::Concurrency, whole(MOST_WORKERS)),
    (Lever::QueryBatch, whole(MOST_QUERIES)),
    (Lever::RoundDelay, LeverRange::between(0.0, MOST_DELAY_S)),
];

/// As many connections can be on call.
const MOST_WORKERS: f64 = headroom_oncall::layout::MAX_CONNECTIONS as f64;
const MOST_QUERIES: f64 = 1e6;
const MOST_DELAY_S: f64 = 10.0;

const fn whole(max: f64) -> LeverRange {
    LeverRange {
        min: 1.0,
        max,
        step: 1.0,
        delay: Seconds::ZERO,
    }
}

impl OncallDevice {
    /// Steers this server. Nothing is commanded yet.
    pub fn new(steering: Arc<Steering>, options: OncallOptions, mut costs: Box<dyn Costs>) -> Self {
        Self {
            before: (steering.totals(), costs.read()),
            elsewhere: 0,
            asked: steering.queries().collect(),
            at: Instant::now(),
            pressure: Pressure::new(Arc::clone(&steering)),
            classes: Classes::new(options.classes.clone()),
            steering,
            options,
            costs,
            in_force: Setting::default(),
            granted: HashSet::new(),
            warned: Vec::new(),
        }
    }

    /// The effective number of connections that asked since the last call, in which so many queries were answered; `None` where most of
    /// them were of connections that have left.
    fn asking(&mut self, answered: u64) -> Option<f64> {
        let now: HashMap<_, _> = self.steering.queries().collect();
        let before = std::mem::replace(&mut self.asked, now);
        let since = |(name, queries): (&(usize, u32), &u64)| {
            queries.saturating_sub(before.get(name).copied().unwrap_or(0))
        };
        let counts: Vec<u64> = self.asked.iter().map(since).collect();
        (2 * counts.iter().sum::<u64>() >= answered).then(|| OncallObservation::asking_of(counts.into_iter()))
    }

    fn levers(&self, setting: &Setting) -> Levers {
        let whole = |lever| {
            setting
                .get(lever)
                .map(|value| value.round().clamp(1.0, 4e9) as u32)
        };
        let Some(concurrency) = whole(Lever::Concurrency) else {
            return Levers::default();
        };
        let batch = whole(Lever::QueryBatch).unwrap_or(1);
        Levers {
            enabled: true,
            concurrency,
            batch,
            // A worker without queries left has nothing to wait for.
            linger: match batch {
                1 => Duration::ZERO,
                _ => self.options.linger,
            },
            delay: Duration::from_secs_f64(
                setting
                    .get(Lever::RoundDelay)
                    .unwrap_or(0.0)
                    .clamp(0.0, MOST_DELAY_S),
            ),
        }
    }

    /// Says the first time that a law of areas, or a policy, cannot do what it is asked for, and again after it could.
    fn warn_once(&mut self, decision: &Decision) {
        let before = std::mem::take(&mut self.warned);
        let warnings = decision
            .reasons
            .iter()
            .filter(|reason| reason.text.starts_with(WARNING));
        for reason in warnings {
            if !before.contains(&reason.rule) {
                tracing::warn!("{}", reason.text.trim_start_matches(WARNING));
            }
            self.warned.push(reason.rule.clone());
        }
    }

    /// Puts areas in force, or ends them: each has the processors after those of the one before. A connection that has left since the
    /// decision is nobody's, and one that came since is in the last.
    fn divide(&self, areas: &[CoreArea]) -> anyhow::Result<()> {
        let decision = AreaDecision {
            areas: areas.to_vec(),
            ..AreaDecision::default()
        };
        let cpus = &self.options.cpus;
        decision.check(cpus.len() as u32)?;
        let ranges = decision.cpusets();
        // Areas without a core have no connection, and the last has one.
        let each = areas.iter().zip(ranges).filter(|(area, _)| area.cores > 0);
        let (mut cores, mut members) = (Vec::new(), Vec::new());
        for (area, range) in each {
            let of_area = area.connections.iter();
            members.extend(of_area.map(|id| (place(*id), cores.len())));
            cores.push(AreaCores {
                cpus: cpus[range.start as usize..range.end as usize].to_vec(),
                workers: area.workers,
            });
        }
        let divided = self.steering.divide(&cores, &members);
        divided.map_err(|error| anyhow!("the server's cores cannot be divided: {error}"))
    }

    /// The server's state: what is commanded says nothing where nobody does it.
    fn state(&self) -> &'static str {
        let seen = &self.before.0;
        match self.in_force.get(Lever::Concurrency) {
            // Its queries are not even counted.
            _ if seen.owner_ended => ENDED,
            None => "not on call",
            Some(_) if seen.owner != 0 => ON_CALL,
            Some(_) if seen.event_driven > 0 => BY_EVENTS,
            Some(_) => NO_CLIENT,
        }
    }

    fn parts(&self, period: &mut DevicePeriod, observation: &OncallObservation, length: Seconds) {
        // What is commanded is in force of nobody before there are workers that keep to it.
        let seen = &self.before.0;
        let kept_to = match seen.owner == 0 || seen.owner_ended {
            true => Setting::default(),
            false => self.in_force,
        };
        let mut server = Part::new(self.options.name.clone(), Role::Node)
            .in_state(self.state())
            .set_to(&kept_to)
            .with(Sensor::Connections, Some(observation.connections as f64))
            .with(Sensor::WaitingForSlot, Some(observation.waiting as f64))
            .with(
                Sensor::OldestWaiting,
                observation.oldest_waiting.map(Seconds::get),
            )
            .with(Sensor::InstructionsPerQuery, observation.instructions_per_query())
            .with(Sensor::SwitchesPerQuery, observation.switches_per_query())
            .with(Sensor::LongIdle, observation.long_idle.map(Ratio::get));
        if seen.owner_ended {
            server.trouble.push(owner_ended(seen.owner));
        }
        let elsewhere = seen.elsewhere.saturating_sub(self.elsewhere);
        if elsewhere > 0 && seen.owner != 0 && !seen.owner_ended {
            server.trouble.push(served_elsewhere(seen.owner, elsewhere));
        }
        period.add(server);
        for class in &observation.classes {
            period.add(part_of(class, length));
        }
    }
}

/// What is said of a server whose process with the workers on call has ended.
fn owner_ended(owner: u32) -> String {
    format!(
        "the process whose workers were on call (pid {owner}) has ended, and nobody is until another serves a client that comes from now on; \
         queries are not counted meanwhile"
    )
}

/// What is said where other processes serve connections too.
fn served_elsewhere(owner: u32, connections: u64) -> String {
    format!(
        "{connections} connections have come to other processes than pid {owner}, whose workers are on call: they are served as without us, and \
         not counted. Start what is not the server itself outside of wrap"
    )
}

/// A class of connections in a period: what was answered, how fast, and whether each connection kept its SLOs.
fn part_of(class: &ClassObservation, length: Seconds) -> Part {
    let rate = (length > Seconds::ZERO).then(|| class.queries as f64 / length.get());
    let mut part = Part::new(class.name.clone(), Role::Class)
        .with(Sensor::Connections, Some(class.connections as f64))
        .with(Sensor::ServiceRate, rate);
    let latencies = [Sensor::LatencyP95, Sensor::LatencyP99, Sensor::LatencyP999];
    if let Some([_, tail @ ..]) = class.latency {
        for (sensor, latency) in latencies.into_iter().zip(tail) {
            part = part.with(sensor, Some(latency.get()));
        }
    }
    if class.targets.iter().all(Option::is_none) {
        return part;
    }
    let targets = [Sensor::TargetP95, Sensor::TargetP99, Sensor::TargetP999];
    for (sensor, target) in targets.into_iter().zip(class.targets) {
        part = part.with(sensor, target.map(Seconds::get));
    }
    part.with(Sensor::MissedSlo, Some(class.missed as f64)).in_state(
        match (class.queries, class.missed, class.stalled) {
            // What was answered before says nothing of this period.
            (0, _, 0) => "no queries",
            (_, 0, _) => "kept",
            _ => "missed",
        },
    )
}

impl Device for OncallDevice {
    fn observe(&mut self, period: &mut DevicePeriod) {
        let (now, cost) = (self.steering.totals(), self.costs.read());
        let since = now.since(&self.before.0);
        let difference = |now: Option<u64>, then: Option<u64>| now?.checked_sub(then?);
        let then = self.before.1;
        let (each, classes) = match self.classes.is_any() || self.options.each {
            true => self.classes.observe(&self.steering.connections()),
            false => (Vec::new(), Vec::new()),
        };
        let (least, connections) = (self.pressure.take(), u64::from(now.connections));
        let asking = self.asking(since.queries);
        let observation = OncallObservation {
            queries: since.queries,
            failed: since.failures.min(since.queries),
            rounds: since.rounds,
            running: u64::from(now.running),
            waiting: u64::from(now.waiting),
            waiting_least: Some(least),
            waiting_share: OncallObservation::share_of(least, connections, asking),
            asking,
            oldest_waiting: self.steering.oldest_waiting(),
            oldest_in_turn: Some(self.steering.oldest_in_turn().unwrap_or(Seconds::ZERO)),
            connections,
            given_back: since.given_back + since.reclaimed,
            instructions: difference(cost.instructions, then.instructions),
            context_switches: difference(cost.context_switches, then.context_switches),
            cores: self.options.cores,
            long_idle: cost.long_idle,
            classes,
            each,
        };
        let at = Instant::now();
        let length = Seconds::from(at - std::mem::replace(&mut self.at, at));
        // Where a control group says it, it says it better.
        if period.cpu_time.is_none() {
            period.cpu_time = cost.cpu_time.zip(then.cpu_time).map(|(now, then)| now - then);
            let all = self.options.cores.map(|cores| length * cores as f64);
            let share = period.cpu_time.zip(all).filter(|(_, all)| *all > Seconds::ZERO);
            period.utilisation = share.map(|(used, all)| Ratio::new(used / all).min(Ratio::new(1.0)));
        }
        if now.owner != self.before.0.owner {
            self.elsewhere = now.elsewhere;
        }
        self.before = (now, cost);
        self.parts(period, &observation, length);
        period.oncall = Some(observation);
    }

    fn in_force(&self) -> Setting {
        self.in_force
    }

    fn apply(&mut self, decision: &mut Decision) -> anyhow::Result<()> {
        let news = self.options.classes.news(Instant::now()).into_iter();
        let news = news.map(|what| Reason::new(CLASSES, what, &[]));
        decision.reasons.extend(news);
        let setting = match restore::global().is_paused() {
            true => Setting::default(),
            false => decision.setting.only(&LEVERS.map(|(lever, _)| lever)),
        };
        if !self.steering.is_whole() {
            self.in_force = Setting::default();
            return Err(anyhow!(
                "{}: its server, or whoever else may write to it, cut it short: the server ends by that, or runs as without us; start it again",
                self.steering.path().display()
            ));
        }
        let levers = self.levers(&setting);
        self.in_force = match levers.enabled {
            true => setting,
            false => Setting::default(),
        };
        // First, for it renews the lease: whatever else cannot be done, these hold.
        self.steering.command(levers, Some(self.options.lease));
        let areas = match restore::global().is_paused() {
            true => &[][..],
            false => &decision.areas,
        };
        let divided = self.divide(areas);
        self.warn_once(decision);
        self.give(decision);
        divided
    }
}

impl OncallDevice {
    /// Gives each connection its turns, and who has none any more what others have.
    fn give(&mut self, decision: &Decision) {
        if decision.grants.is_empty() && self.granted.is_empty() {
            return;
        }
        let mut before = std::mem::take(&mut self.granted);
        for grant in &decision.grants {
            before.remove(&grant.id);
            self.granted.insert(grant.id);
            self.steering.give(place(grant.id), turns(grant));
        }
        for id in before {
            self.steering.give(place(id), Turns::default());
        }
    }
}

/// A grant as the workers keep to it: a share of the turns is one of the queries in them.
fn turns(grant: &Grant) -> Turns {
    let tokens = match grant.tokens {
        0 => 0,
        tokens => (f64::from(tokens) * grant.share).round().max(1.0) as u32,
    };
    Turns {
        batch: Some(tokens),
        yields: grant.yields,
        rests: !grant.again,
        pause: Duration::try_from_secs_f64(grant.retry.get()).unwrap_or_default(),
    }
}

/// The place that a connection's name says: see [`Classes`].
const fn place(id: u64) -> (usize, u32) {
    ((id >> 32) as usize, id as u32)
}

#[cfg(test)]
#[path = "device_tests.rs"]
mod tests;
