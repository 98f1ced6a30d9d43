//! Where gateways, agents and an HAProxy are, and how they are reached.

use super::ResizeFile;
use super::tables::HaproxyBalancer;
use headroom_console::{ConfigError, Document};
use headroom_node::queue::QueueMethod;
use headroom_runtime::resize::distinguishing;
use headroom_telemetry::haproxy::StatisticsAddress;
use headroom_wire::Address;
use headroom_wire::client::ClientOptions;
use headroom_wire::tls::ClientTls;
use std::path::PathBuf;
use std::time::Duration;

impl ResizeFile {
    /// Each gateway's name and address, by name.
    ///
    /// # Errors
    /// A text that is no address, or TCP without certificates, with its line.
    pub fn gateway_addresses(&self, document: &Document) -> Result<Vec<(String, Address)>, ConfigError> {
        let one = |(name, text): (&String, &String)| {
            let address = self.address(document, &format!("balancer.gateways.{name}"), text)?;
            Ok((name.clone(), address))
        };
        self.balancer.gateways.iter().map(one).collect()
    }

    /// The address of the agent that watches a server's accept queue; `None` where it is of this machine.
    ///
    /// # Errors
    /// As [`ResizeFile::gateway_addresses`]; a method that agents do not have.
    pub fn agent(&self, document: &Document, name: &str) -> Result<Option<Address>, ConfigError> {
        let Some(text) = self.servers.get(name).and_then(|server| server.agent.as_ref()) else {
            return Ok(None);
        };
        if self.agent_methods().is_empty() {
            let why = "agents ask no status page: use method = \"ebpf\"";
            return Err(document.error("capacity.method", why));
        }
        self.address(document, &format!("servers.{name}.agent"), text)
            .map(Some)
    }

    /// How agents measure accept queues, in the order in which they try.
    pub fn agent_methods(&self) -> Vec<QueueMethod> {
        let mut methods = distinguishing(self.capacity.method).order();
        methods.retain(|method| method.through_agent().is_some());
        methods
    }

    fn address(&self, document: &Document, key: &str, text: &str) -> Result<Address, ConfigError> {
        let address: Address = text.parse().map_err(|error| document.error(key, error))?;
        if matches!(address, Address::Tcp { .. }) && self.tls.is_none() {
            let why = format!(
                "{address} is TCP, which is reached with certificates only: make them with `headroom certs` and name \
                 them under [tls]"
            );
            return Err(document.error(key, why));
        }
        Ok(address)
    }

    /// How gateways and agents are reached.
    ///
    /// # Errors
    /// Certificates that cannot be used, with their line.
    pub fn client(&self, document: &Document) -> Result<ClientOptions, ConfigError> {
        let tls = self.tls.as_ref().map(|tls| ClientTls::load(&tls.files()));
        let patience = Duration::from_secs(2);
        Ok(ClientOptions {
            tls: tls.transpose().map_err(|error| document.error("tls", error))?,
            connect_time: patience,
            answer_time: patience,
            silence: patience,
            ..ClientOptions::default()
        })
    }

    /// Where HAProxy's statistics socket is.
    pub fn haproxy(&self) -> Option<(StatisticsAddress, &HaproxyBalancer)> {
        let table = self.balancer.haproxy.as_ref()?;
        let address = match table.socket.parse() {
            Ok(address) => StatisticsAddress::Tcp(address),
            Err(_) => StatisticsAddress::Unix(PathBuf::from(&table.socket)),
        };
        Some((address, table))
    }
}
