//! Whether a file makes sense, before anything is done by it.

use super::ControllerFile;
use super::switches::Switches;
use super::tables::ServerTable;
use headroom_console::{ConfigError, ConfigErrors, Document, Mistakes};
use headroom_control::elastic::FEWEST_SLOTS;
use headroom_control::oncall::law::{AreaLawName, PolicyName};
use headroom_control::{LawConfig, LawName};
use headroom_runtime::resize::{CheckTarget, Demand};
use headroom_wire::Address;
use std::collections::{BTreeMap, BTreeSet};

/// The most nodes of one controller: the most backends of one gateway.
const MAX_NODES: usize = 256;
/// The most gateways.
const MAX_GATEWAYS: usize = 256;
/// A day.
const DAY_S: f64 = 86_400.0;

/// What no two servers may share, each with the name of the server that has it.
#[derive(Default)]
struct Taken<'a> {
    members: BTreeMap<&'a str, &'a str>,
    /// Each with the agent of its machine, where that is not this one.
    ports: BTreeMap<(Option<String>, u16), &'a str>,
    /// Host, port and path; the same place may tell of several servers by the path.
    checks: BTreeMap<(String, u16, Option<String>), &'a str>,
    switches: Switches<'a>,
}

/// The host and port of a backend's URL; `None` for a name, which may be anywhere.
fn place_of(member: &str) -> Option<(String, u16)> {
    CheckTarget::parse(member)
        .filter(|target| target.path.is_some())
        .map(|target| (target.host, target.port))
}

impl ControllerFile {
    /// Checks what can be checked before anything is opened.
    ///
    /// # Errors
    /// All that is outside its range or does not fit together, with its line.
    pub fn check(&self, document: &Document) -> Result<(), ConfigErrors> {
        let mut mistakes = Mistakes::default();
        self.check_beside(document, &mut mistakes);
        mistakes.done()
    }

    /// The same beside what was not understood.
    pub(super) fn check_beside(&self, document: &Document, mistakes: &mut Mistakes) {
        mistakes.of(self.slo.slo(document));
        if document.has("slo", "failed_status") && self.telemetry.is_none() {
            let why = "is each gateway's to know: start them with `headroom gateway --failed-status`";
            mistakes.push(document.error("slo.failed_status", why));
        }
        for error in self.law.mistakes() {
            mistakes.push(document.error(&error.key, error.why));
        }
        self.check_values(document, mistakes);
        self.check_on_call(document, mistakes);
        mistakes.of(self.control.check(document));
        mistakes.of(self.record.check(document));
        mistakes.of(self.queue_tuning(document));
        if let Some(telemetry) = &self.telemetry {
            mistakes.of(telemetry.check(document));
        }
        // What needs others to be right is asked of those that are.
        let is_law_known = !mistakes.hide("law.name", document);
        if is_law_known && mistakes.of(self.check_places(document)).is_some() {
            mistakes.of(self.check_laws(document));
        }
    }

    /// What of servers on call no controller can do: its contract with agents carries levers and sums, and no connections.
    fn check_on_call(&self, document: &Document, mistakes: &mut Mistakes) {
        let remedy = "a controller is told of no connection: remove it, or run `headroom up` with [oncall] on each machine";
        let (on_call, reef) = (&self.law.on_call, &self.law.reef);
        for (law, policy, areas) in [
            ("on-call", on_call.policy, on_call.areas.law),
            ("reef", reef.policy, reef.areas.law),
        ] {
            if policy != PolicyName::Fair {
                let why = format!("gives each connection turns of its own, and {remedy}");
                mistakes.push(document.error(&format!("law.{law}.policy"), why));
            }
            if areas != AreaLawName::None {
                let why = format!("divides cores among connections, and {remedy}");
                mistakes.push(document.error(&format!("law.{law}.areas.law"), why));
            }
        }
        if !self.cluster.queries {
            return;
        }
        let other = match (&self.telemetry, self.gateways.is_empty()) {
            (Some(_), _) => "[telemetry]",
            (None, false) => "[gateways]",
            (None, true) => return,
        };
        let why = format!("is true, and {other} counts requests already: remove one of the two");
        mistakes.push(document.error("cluster.queries", why));
    }

    /// How many nodes and gateways there are, and where.
    fn check_places(&self, document: &Document) -> Result<(), ConfigError> {
        for (key, count, most) in [
            ("nodes", self.nodes.len(), MAX_NODES),
            ("gateways", self.gateways.len(), MAX_GATEWAYS),
        ] {
            if count > most {
                return Err(document.error(key, format!("has {count}: name at most {most}")));
            }
        }
        if let Some(law) = self.law.names.iter().find(|law| !law.of_gateways())
            && self.nodes.is_empty()
        {
            let why = format!(
                "has 0: {law} needs 1 to 256, each as name = \"the address of its agent\", or as a table (laws that set gateways alone need none)"
            );
            return Err(document.error("nodes", why));
        }
        let mut places = BTreeMap::new();
        for (name, address) in self.agent_addresses(document)? {
            let place = address.to_string();
            // Who only watches accept queues may do so at several ports of one machine.
            if let Some(other) = places
                .insert(place.clone(), name.clone())
                .filter(|_| self.commands())
            {
                let why = format!("{place} is the agent of {other} too: its watts would count twice");
                return Err(document.error(&self.agent_key(&name), why));
            }
        }
        let mut places = BTreeMap::new();
        for (name, address) in self.gateway_addresses(document)? {
            let place = address.to_string();
            if let Some(other) = places.insert(place.clone(), name.clone()) {
                let why = format!("{place} is the gateway {other} too: its requests would count twice");
                return Err(document.error(&format!("gateways.{name}"), why));
            }
        }
        Ok(())
    }

    /// What the laws need of nodes, gateways and servers.
    fn check_laws(&self, document: &Document) -> Result<(), ConfigError> {
        if let Some(law) = self.law.names.iter().find(|law| !law.resizes()) {
            self.check_commanded(document, law)?;
        }
        let out = self.taken_out();
        if let Some(name) = out.keys().next() {
            let mistake =
                |why: &str| Err(document.error(&format!("nodes.{name}.maintenance"), why.to_owned()));
            if !self.resizes() {
                return mistake("is of servers that a law switches, and none does: remove it");
            }
            if out.len() == self.nodes.len() {
                return mistake("is of every node: leave one that takes the requests");
            }
        }
        match self.switching_law() {
            Some(law) => self.check_switched(document, law),
            None if self.haproxy.is_some() => {
                let why = format!(
                    "is for a law that switches servers, and {} switches none: remove it, or add such a law to law.name \
                     (HAProxy as the source of latency is [telemetry.haproxy])",
                    self.law.names
                );
                Err(document.error("haproxy", why))
            }
            None => Ok(()),
        }
    }

    fn check_values(&self, document: &Document, mistakes: &mut Mistakes) {
        if let Err(error) = self.power.check() {
            mistakes.push(document.error(&format!("power.{}", error.key), &error));
        }
        let cluster = &self.cluster;
        let most = cluster.cores_max.unwrap_or(1.0);
        let rate = cluster.requests_per_core_s.unwrap_or(1.0);
        let refused_periods = f64::from(cluster.refused_periods_to_leave);
        mistakes.of(document.within(&[
            ("cluster.refused_periods_to_leave", refused_periods, 1.0, 1_000.0),
            ("cluster.lease_ms", cluster.lease_ms, 1.0, 86_400_000.0),
            ("cluster.wait_s", cluster.wait_s, 0.1, DAY_S),
            ("cluster.cores_step", cluster.cores_step, 0.001, 1_000.0),
            ("cluster.cores_max", most, 0.001, 1e9),
            ("cluster.requests_per_core_s", rate, 1e-6, 1e9),
            ("cluster.calibrate_s", cluster.calibrate_s, 0.1, DAY_S),
            (
                "cluster.in_hand_ms",
                cluster.in_hand_ms.unwrap_or(0.0),
                0.0,
                600_000.0,
            ),
            ("cluster.check_limit_s", cluster.check_limit_s, 0.05, 60.0),
            ("cluster.power_poll_s", cluster.power_poll_s, 0.1, 3_600.0),
            ("exit.wait_s", self.exit.wait_s, 0.0, DAY_S),
        ]));
        if cluster.in_hand_ms.is_some_and(|ms| ms > 0.0 && ms < 1.0) {
            let why = "is less than a millisecond, within which no server answers: write 0 for no bound";
            mistakes.push(document.error("cluster.in_hand_ms", why));
        }
        let idle_w = self.energy.map(|power| power.idle_w).unwrap_or(0.0);
        for (name, node) in &self.nodes {
            let Some(full_w) = node.server.full_w else {
                continue;
            };
            let key = format!("nodes.{name}.full_w");
            let is_within = mistakes.of(document.within(&[(&key, full_w, 1.0, 1e6)]));
            if is_within.is_some() && full_w < idle_w {
                let why = format!(
                    "is {full_w}: a busy server draws no less than an idle one, energy.idle_w = {idle_w}"
                );
                mistakes.push(document.error(&key, why));
            }
        }
        if let Some(power) = &self.energy {
            mistakes.of(document.within(&[
                ("energy.idle_w", power.idle_w, 0.0, 1e6),
                ("energy.full_w", power.full_w, 0.0, 1e6),
                ("energy.booting_w", power.booting_w, 0.0, 1e6),
                ("energy.shutting_down_w", power.shutting_down_w, 0.0, 1e6),
                ("energy.off_w", power.off_w, 0.0, 1e6),
            ]));
            let (idle, full, off) = (power.idle_w, power.full_w, power.off_w);
            if full < idle {
                let why = format!(
                    "is {full}: a busy server draws no less than an idle one, energy.idle_w = {idle}"
                );
                mistakes.push(document.error("energy.full_w", why));
            }
            if idle < off {
                let why = format!(
                    "is {idle}: an idle server draws no less than one that is off, energy.off_w = {off}"
                );
                mistakes.push(document.error("energy.idle_w", why));
            }
        }
        if let Some(table) = &self.haproxy
            && !(1..=100).contains(&table.warm_up_weight_percent)
        {
            let why = format!("is {}: it must be 1 to 100", table.warm_up_weight_percent);
            mistakes.push(document.error("haproxy.warm_up_weight_percent", why));
        }
    }

    /// What a law needs that sets nodes.
    fn check_commanded(&self, document: &Document, law: LawName) -> Result<(), ConfigError> {
        if let Some(name) = self
            .nodes
            .iter()
            .find(|(_, node)| node.agent.is_none())
            .map(|(name, _)| name)
        {
            let why =
                format!("is missing: {law} sets each node through its agent; start `headroom agent` there");
            return Err(document.error(&format!("nodes.{name}.agent"), why));
        }
        if self.gateways.is_empty() && self.telemetry.is_none() && !self.cluster.queries {
            let why = format!(
                "has 0: {law} goes by latency, so name gateways, or another source under [telemetry], or write cluster.queries = true where \
                 each node has a server on call"
            );
            return Err(document.error("gateways", why));
        }
        let (lease_ms, period_ms) = (self.cluster.lease_ms, self.control.period_ms);
        if lease_ms < 2.0 * period_ms {
            let why = format!(
                "is {lease_ms}: a lease outlives two periods, so at least {} with control.period_ms = {period_ms}",
                2.0 * period_ms
            );
            return Err(document.error("cluster.lease_ms", why));
        }
        Ok(())
    }

    /// What a law needs that switches servers.
    fn check_switched(&self, document: &Document, law: LawName) -> Result<(), ConfigError> {
        if self.gateways.is_empty() == self.haproxy.is_none() {
            let why = format!("{law} needs exactly one of [gateways] and [haproxy] in front of the servers");
            return Err(document.error("gateways", why));
        }
        let elastic = &self.law.elastic;
        for (key, servers) in [
            ("law.resize.min_servers", self.law.resize.min_servers),
            ("law.elastic.min_servers", elastic.min_servers),
            (
                "law.elastic.reserve",
                elastic.reserve + usize::from(elastic.reserve > 0),
            ),
        ] {
            if servers > self.nodes.len() {
                let why = format!("asks for {servers} servers, and there are {}", self.nodes.len());
                return Err(document.error(key, why));
            }
        }
        if law.as_str() == "elastic" {
            if let Err(mut why) = self.power.waits_for(elastic.boot_s) {
                if !document.has("law.elastic", "boot_s") {
                    why += ", or write law.elastic.boot_s, which is that by default";
                }
                return Err(document.error("power.boot_timeout_s", why));
            }
            let least_s = FEWEST_SLOTS as f64 * self.control.period_ms / 1e3;
            if elastic.day_s > 0.0 && elastic.day_s < least_s {
                let why = format!(
                    "is {} seconds, of which nothing is learned: a day has {FEWEST_SLOTS} parts of a period of the loop at least, so give \
                     {least_s} or more (a day is 86400), or 0 to learn none",
                    elastic.day_s
                );
                return Err(document.error("law.elastic.day_s", why));
            }
        }
        let zones: BTreeSet<_> = self
            .nodes
            .values()
            .map(|node| node.server.zone.as_deref())
            .collect();
        if elastic.survive_zone && (zones.len() < 2 || zones.contains(&None)) {
            let asked = "asks that the servers of a whole zone may be lost";
            let why = match zones.first().copied().flatten().filter(|_| zones.len() == 1) {
                Some(zone) => {
                    format!("{asked}, and all are in the same zone, {zone:?}: name two zones at least")
                }
                None => format!("{asked}: give each server its zone, as zone = \"a\", of two at least"),
            };
            return Err(document.error("law.elastic.survive_zone", why));
        }
        let agents: BTreeMap<String, Address> = self.agent_addresses(document)?.into_iter().collect();
        let mut taken = Taken::default();
        for (name, node) in &self.nodes {
            let agent = agents.get(name).map(Address::to_string);
            self.check_server(document, (name, &node.server), agent, law, &mut taken)?;
        }
        // The laws of servers know no machine: what they lack shows here.
        if law.resizes() {
            LawConfig::build_servers(&self.law, law)
                .map_err(|error| document.error(&error.key, error.why))?;
        }
        Ok(())
    }

    fn check_server<'a>(
        &self,
        document: &Document,
        (name, server): (&'a String, &'a ServerTable),
        agent: Option<String>,
        law: LawName,
        taken: &mut Taken<'a>,
    ) -> Result<(), ConfigError> {
        let wrong = |key: &str, why: String| Err(document.error(&format!("nodes.{name}.{key}"), why));
        let Some(switch) = &server.power else {
            let why =
                format!("is missing: {law} moves the lever servers, and nothing switches this one's power");
            return wrong("power", why);
        };
        if let Err((key, why)) = taken.switches.take(name, switch) {
            return wrong(&format!("power.{key}"), why);
        }
        let Some(member) = &server.member else {
            return wrong(
                "member",
                format!("is missing: {law} must know what the balancer calls this server"),
            );
        };
        if let Some(other) = taken.members.insert(member, name) {
            return wrong("member", format!("{member:?} is the member of {other} too"));
        }
        let target = self.check_target(document, name)?;
        if let Some(why) = self.is_of_another((name, member), target, taken) {
            return wrong("check", why);
        }
        if agent.is_some() && server.accept_queue.is_some() && self.agent_methods().is_empty() {
            let why = "agents ask no status page: use method = \"ebpf\"";
            return Err(document.error("capacity.method", why));
        }
        let needs = match server.accept_queue {
            Some(0) => return wrong("accept_queue", "0 is no port".to_owned()),
            Some(port) => match taken.ports.insert((agent, port), name) {
                Some(other) => {
                    let why = format!("{port} is the accept_queue of {other} too, on the same machine");
                    return wrong("accept_queue", why);
                }
                None => return Ok(()),
            },
            None if ["dynamic", "elastic"].contains(&law.as_str()) => {
                "the law goes by each server's accept queue, here or through its agent"
            }
            None if self.demand() == Demand::AcceptQueue => {
                "demand = \"accept-queue\" needs each server's; or use demand = \"balancer\""
            }
            None => return Ok(()),
        };
        wrong("accept_queue", format!("is missing: {needs}"))
    }

    /// Why a server's check tells whether another one answers, where it does.
    fn is_of_another<'a>(
        &self,
        (name, member): (&'a str, &str),
        target: CheckTarget,
        taken: &mut Taken<'a>,
    ) -> Option<String> {
        let place = (target.host.clone(), target.port);
        let is_there =
            |other: &ServerTable| other.member.as_deref().and_then(place_of).as_ref() == Some(&place);
        let mut others = self.nodes.iter().filter(|(other, _)| *other != name);
        if place_of(member).as_ref() != Some(&place)
            && let Some((other, _)) = others.find(|(_, node)| is_there(&node.server))
        {
            return Some(format!(
                "is where {other} takes requests: it tells whether that one answers"
            ));
        }
        let other = taken
            .checks
            .insert((target.host, target.port, target.path), name)?;
        Some(format!(
            "is the check of {other} too: it cannot tell which of the two answers"
        ))
    }

    /// How a server is checked.
    ///
    /// # Errors
    /// A text that is no place to check, with its line.
    pub fn check_target(&self, document: &Document, name: &str) -> Result<CheckTarget, ConfigError> {
        let text = self.nodes.get(name).and_then(|node| node.server.check.as_deref());
        CheckTarget::parse(text.unwrap_or_default()).ok_or_else(|| {
            let why = format!(
                "{:?} is no check: write tcp:HOST:PORT or http://HOST:PORT/PATH",
                text.unwrap_or_default()
            );
            document.error(&format!("nodes.{name}.check"), why)
        })
    }
}
