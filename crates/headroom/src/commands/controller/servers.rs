//! The servers that a controller switches: made of what a configuration names, and described.

use super::record::Place;
use crate::check::Report;
use crate::config::controller::ControllerFile;
use headroom_console::{ConfigError, Document, Failure};
use headroom_control::capacity::QueueKind;
use headroom_control::resize::{Energy, PowerState, kinds};
use headroom_runtime::cluster::{AgentQueue, Gateways, WatchOptions};
use headroom_runtime::queue_sample::sampling_period;
use headroom_runtime::resize::balancer::{Admission, Balancer, Look, Member, Wanted};
use headroom_runtime::resize::{
    CheckTarget, Checks, HaproxyServers, Parts, Queue, ServerParts, Servers, SwitchWorker, TakenOut,
};
use headroom_telemetry::haproxy::{RowKind, StatisticsSocket};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// For how long the servers, their switches and the balancer are waited for at the start.
pub const FIND: Duration = Duration::from_secs(10);
/// How long an HAProxy has for an answer about what is wrong.
const ASK: Duration = Duration::from_secs(1);
/// An agent is asked for so many samples of a queue in one of the loop's periods, so that there always is a new one;
const QUEUE_PARTS: u32 = 5;
/// but in none shorter than this.
const MIN_QUEUE_PART: Duration = Duration::from_millis(20);
/// For how long a thread that samples a queue through an agent waits for a new sample, and no longer than half a period.
const SAMPLE_PATIENCE: Duration = Duration::from_secs(1);

/// Gateways that another controller commands, in the place of the balancer of a check: all of so many servers are taken for admitted.
pub struct Unasked(pub usize);

impl Balancer for Unasked {
    fn name(&self) -> String {
        "gateways that another controller commands".to_owned()
    }

    fn no_reuse(&self) -> &'static str {
        "--backend-idle 0 at headroom gateway"
    }

    fn look(&mut self, _: Duration) -> Result<Look, String> {
        let member = Member {
            admission: Admission::Ready,
            in_flight: None,
            well: None,
            counted: None,
        };
        Ok(Look {
            members: vec![member; self.0],
            traffic: None,
        })
    }

    fn want(&mut self, _: &[Wanted], _: Duration) -> Result<(), String> {
        Err("another controller commands them".to_owned())
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Makes everything that the file names of its servers.
///
/// # Errors
/// A switch or a queue that cannot be opened, with its line.
pub fn assemble(
    config: &ControllerFile,
    document: &Document,
    gateways: Option<&Gateways>,
    place: Option<&Place>,
) -> Result<Parts, Failure> {
    let tuning = config.queue_tuning(document)?;
    let poll = Duration::from_secs_f64(config.cluster.power_poll_s);
    let mut agents = agents(config, document)?;
    let (mut servers, mut targets, mut members): (Vec<ServerParts>, Vec<CheckTarget>, Vec<String>) =
        Default::default();
    let mut machines = Vec::new();
    for (name, node) in &config.nodes {
        let table = &node.server;
        // The file was checked: each has both.
        let (Some(power), Some(member)) = (&table.power, &table.member) else {
            continue;
        };
        let switch = power
            .open()
            .map_err(|error| document.error(&format!("nodes.{name}.power"), error))?;
        let target = config.check_target(document, name)?;
        let is_checked_there = table.accept_queue == Some(target.port) && target.may_be_of(member);
        targets.push(target);
        members.push(member.clone());
        machines.push((&node.machine, table.full_w));
        servers.push(ServerParts {
            name: name.clone(),
            switch_worker: SwitchWorker::start(name, switch, poll)?,
            queue: match agents.remove(name) {
                Some(agent) => Some(Queue::elsewhere(agent, sample_period(config), tuning)?),
                None => table
                    .accept_queue
                    .map(|port| Queue::new(port, config.capacity.method, tuning))
                    .transpose()?,
            },
            is_checked_there,
        });
    }
    let balancer: Box<dyn Balancer> = match (config.haproxy(), gateways) {
        (Some((address, table)), _) => Box::new(HaproxyServers::new(
            address,
            table.backend.clone(),
            members,
            table.warm_up_weight_percent,
        )),
        (None, Some(gateways)) => Box::new(gateways.balancer(members)),
        (None, None) => return Err(document.error("gateways", "has 0: name one").into()),
    };
    let limit = Duration::from_secs_f64(config.cluster.check_limit_s);
    Ok(Parts {
        servers,
        balancer,
        checks: Checks::start(targets, config.control.period(), limit)?,
        tuning: config.power,
        demand: config.demand(),
        fixed: config.given_capacity(),
        energy: config.energy.map(Energy::new),
        kinds: kinds(&machines),
        in_hand: config.in_hand(),
        taken_out: {
            let taken_out = TakenOut::default();
            taken_out.replace(config.taken_out());
            if let Some(file) = place.map(Place::handed_over)
                && let Err(error) = taken_out.recall(&file)
            {
                tracing::warn!(
                    "which servers were in maintenance cannot be read, and what the gateways remember is gone by: {}: {error}",
                    file.display()
                );
            }
            taken_out
        },
        period: config.control.period(),
    })
}

/// That the balancer cannot be relied on, at the key that it stands in: of an HAProxy it is asked once more which that is.
pub fn unreliable(config: &ControllerFile, document: &Document, error: &anyhow::Error) -> ConfigError {
    let Some((address, table)) = config.haproxy() else {
        return document.error("gateways", format!("{error:#}"));
    };
    let socket = StatisticsSocket::new(address);
    let (at, backend) = (socket.address(), &table.backend);
    let backends = match socket.read(ASK) {
        Ok(read) => read.rows.into_iter().filter(|row| row.kind == RowKind::Backend),
        Err(_) => return document.error("haproxy.socket", format!("{error:#}")),
    };
    let backends: Vec<String> = backends.map(|row| row.proxy).collect();
    if !backends.contains(backend) {
        let why = format!(
            "is {backend:?}, and the HAProxy at {at} has no such backend: write one of those that it has ({})",
            backends.join(", ")
        );
        return document.error("haproxy.backend", why);
    }
    let Ok(rows) = socket.servers(backend, ASK) else {
        return document.error("haproxy.socket", format!("{error:#}"));
    };
    let is_missing = |member: &String| rows.iter().all(|row| row.name != *member);
    let mut members = config
        .nodes
        .iter()
        .filter_map(|(name, node)| Some((name, node.server.member.as_ref()?)));
    match members.find(|(_, member)| is_missing(member)) {
        Some((name, member)) => {
            let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
            let why = format!(
                "is {member:?}, and HAProxy's backend {backend} has no such server: write the name of its `server` line, one of those that it \
                 has ({})",
                names.join(", ")
            );
            document.error(&format!("nodes.{name}.member"), why)
        }
        None => document.error("haproxy.socket", format!("{error:#}")),
    }
}

/// The time between two samples of a queue that an agent reports.
fn sample_period(config: &ControllerFile) -> Duration {
    let period = match config.capacity.queue.kind {
        QueueKind::Published => config.control.period() / QUEUE_PARTS,
        QueueKind::BusyTime => sampling_period(config.control.period()),
    };
    period.max(MIN_QUEUE_PART)
}

/// The accept queues that are watched through agents, by the server's name.
fn agents(config: &ControllerFile, document: &Document) -> Result<BTreeMap<String, AgentQueue>, Failure> {
    let client = config.client(document)?;
    let (mut names, mut watches) = (Vec::new(), Vec::new());
    for (name, address) in config.agent_addresses(document)? {
        let Some(port) = config.nodes.get(&name).and_then(|node| node.server.accept_queue) else {
            continue;
        };
        names.push(name);
        watches.push(WatchOptions {
            address,
            client: client.clone(),
            port,
            methods: config.agent_methods(),
            period: sample_period(config),
            patience: match config.capacity.queue.kind {
                // The loop waits for nobody.
                QueueKind::Published => Duration::ZERO,
                // Who samples that often has a thread.
                QueueKind::BusyTime => SAMPLE_PATIENCE.min(config.control.period() / 2),
            },
            cpu_group: None,
        });
    }
    match watches.is_empty() {
        true => Ok(BTreeMap::new()),
        false => Ok(names.into_iter().zip(AgentQueue::watch(watches)?).collect()),
    }
}

/// Says what was found of them; what the user should know of it is returned.
pub fn describe(config: &ControllerFile, servers: &mut Servers, report: &mut Report) -> Vec<String> {
    let mut notes = Vec::new();
    let named = |report: &mut Report, label: &str, text: &str| report.fact(label, label, text, text);
    named(report, "balancer", &servers.balancer_name());
    named(report, "demand", config.demand().words());
    for (name, state) in servers.states() {
        let power = config
            .nodes
            .get(&name)
            .and_then(|node| node.server.power.as_ref());
        let kind = power.map_or("", |power| power.kind());
        report.item(
            "server",
            "servers",
            format_args!("{name}: {}, power by {kind}", state.name()),
            json!({ "name": name, "state": state.name(), "power": kind }),
        );
        let check = config
            .nodes
            .get(&name)
            .and_then(|node| node.server.check.as_deref());
        if let (PowerState::Booting, Some(check)) = (state, check) {
            notes.push(format!(
                "{name} is on and does not answer at {check}: it boots, or nodes.{name}.check is wrong; one that stays silent for longer \
                 than power.boot_timeout_s is switched off and on again at the end of a run"
            ));
        }
    }
    for (name, place) in servers.queues() {
        let value = json!({ "name": name, "place": place.to_string() });
        report.item("queue", "queues", format_args!("{name}: {place}"), value);
    }
    notes
}
