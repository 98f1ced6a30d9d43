//! Whether a file makes sense, before anything is done by it.

use super::tables::{ControllerKind, ServerTable};
use super::{DAY_S, MAX_SERVERS, ResizeFile};
use headroom_console::{ConfigError, Document};
use headroom_runtime::resize::{CheckTarget, Demand};
use std::collections::BTreeSet;

/// The most gateways.
const MAX_GATEWAYS: usize = 16;

/// What no two servers may share.
#[derive(Default)]
struct Taken<'a> {
    members: BTreeSet<&'a str>,
    /// Each with the agent of its machine, where that is not this one.
    ports: BTreeSet<(Option<String>, u16)>,
}

impl ResizeFile {
    pub(super) fn check(&self, document: &Document) -> Result<(), ConfigError> {
        let at = |table: &str, error: &headroom_control::OutOfRange| {
            document.error(&format!("{table}.{}", error.key), error)
        };
        self.resize.check().map_err(|error| at("resize", &error))?;
        self.power.check().map_err(|error| at("power", &error))?;
        self.queue_tuning(document)?;
        let control = &self.control;
        document.within(&[
            ("control.period_ms", control.period_ms, 100.0, 60_000.0),
            ("control.check_limit_s", control.check_limit_s, 0.05, 60.0),
            ("control.power_poll_s", control.power_poll_s, 0.1, 3_600.0),
            ("exit.wait_s", self.exit.wait_s, 0.0, DAY_S),
            ("record.max_mib", self.record.max_mib, 0.1, 1e6),
        ])?;
        if let Some(power) = &self.energy {
            for (key, watts) in [
                ("energy.idle_w", power.idle_w),
                ("energy.full_w", power.full_w),
                ("energy.booting_w", power.booting_w),
                ("energy.shutting_down_w", power.shutting_down_w),
                ("energy.off_w", power.off_w),
            ] {
                document.within(&[(key, watts, 0.0, 1e6)])?;
            }
        }
        if !(1..=MAX_SERVERS).contains(&self.servers.len()) {
            let why = format!("has {}: name 1 to {MAX_SERVERS}", self.servers.len());
            return Err(document.error("servers", why));
        }
        if self.resize.min_servers > self.servers.len() {
            let why = format!("is {} of {} servers", self.resize.min_servers, self.servers.len());
            return Err(document.error("resize.min_servers", why));
        }
        self.check_balancer(document)?;
        self.check_servers(document)?;
        self.resizer(document)?;
        Ok(())
    }

    fn check_balancer(&self, document: &Document) -> Result<(), ConfigError> {
        let (gateways, haproxy) = (self.balancer.gateways.len(), &self.balancer.haproxy);
        if (gateways == 0) == haproxy.is_none() {
            let why = "needs exactly one of [balancer.gateways] and [balancer.haproxy]";
            return Err(document.error("balancer", why));
        }
        if gateways > MAX_GATEWAYS {
            let why = format!("has {gateways}: name at most {MAX_GATEWAYS}");
            return Err(document.error("balancer.gateways", why));
        }
        self.gateway_addresses(document)?;
        if let Some(table) = haproxy
            && !(1..=100).contains(&table.warm_up_weight_percent)
        {
            let why = format!("is {}: it must be 1 to 100", table.warm_up_weight_percent);
            return Err(document.error("balancer.haproxy.warm_up_weight_percent", why));
        }
        Ok(())
    }

    fn check_servers(&self, document: &Document) -> Result<(), ConfigError> {
        let mut taken = Taken::default();
        for (name, server) in &self.servers {
            self.check_server(document, name, server, &mut taken)?;
        }
        Ok(())
    }

    fn check_server<'a>(
        &self,
        document: &Document,
        name: &str,
        server: &'a ServerTable,
        taken: &mut Taken<'a>,
    ) -> Result<(), ConfigError> {
        let wrong = |key: &str, why: String| Err(document.error(&format!("servers.{name}.{key}"), why));
        if !taken.members.insert(&server.member) {
            return wrong("member", format!("{:?} is another server's too", server.member));
        }
        self.check_target(document, name)?;
        let agent = self.agent(document, name)?;
        if agent.is_some() && server.accept_queue.is_none() {
            let why = "watches accept queues alone: name the server's port too, accept_queue = 8080";
            return wrong("agent", why.to_owned());
        }
        let machine = agent.map(|agent| agent.to_string());
        let needs = match server.accept_queue {
            Some(port) if port == 0 || !taken.ports.insert((machine, port)) => {
                return wrong(
                    "accept_queue",
                    format!("{port} is no port, or another server's of the same machine too"),
                );
            }
            Some(_) => return Ok(()),
            None if self.controller.kind == ControllerKind::Dynamic => {
                "the dynamic controller goes by each server's accept queue, here or through its agent"
            }
            None if self.demand() == Demand::AcceptQueue => {
                "demand = \"accept-queue\" needs each server's; or use demand = \"balancer\""
            }
            None => return Ok(()),
        };
        wrong("accept_queue", format!("is missing: {needs}"))
    }

    /// How a server is checked.
    ///
    /// # Errors
    /// A text that is no place to check, with its line.
    pub fn check_target(&self, document: &Document, name: &str) -> Result<CheckTarget, ConfigError> {
        let text = self.servers.get(name).map_or("", |server| &server.check);
        CheckTarget::parse(text).ok_or_else(|| {
            let why = format!("{text:?} is no check: write tcp:HOST:PORT or http://HOST:PORT/PATH");
            document.error(&format!("servers.{name}.check"), why)
        })
    }
}
