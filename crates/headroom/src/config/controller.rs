//! The configuration file of `headroom controller`.

use super::agent::TlsConfig;
use super::{AdminConfig, ControlConfig, RecordConfig, SloConfig};
use headroom_console::{ConfigError, Document};
use headroom_control::LawConfig;
use headroom_units::Cores;
use headroom_wire::Address;
use headroom_wire::client::ClientOptions;
use headroom_wire::tls::ClientTls;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// An example with every key: what `headroom controller --example` prints.
pub const EXAMPLE: &str = include_str!("../../controller.example.toml");

/// The most nodes, and the most gateways, of one controller.
const MAX_PEERS: usize = 256;

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerFile {
    /// The promise.
    pub slo: SloConfig,
    /// The agents, each with its name.
    pub nodes: BTreeMap<String, String>,
    /// The gateways' control ports, each with its name.
    pub gateways: BTreeMap<String, String>,
    /// What is spread over the nodes.
    #[serde(default)]
    pub cluster: ClusterConfig,
    /// The controller's certificate, for TCP.
    pub tls: Option<TlsConfig>,
    /// The law and its parameters.
    #[serde(default)]
    pub law: LawConfig,
    /// The control period.
    #[serde(default)]
    pub control: ControlConfig,
    /// The flight recorder.
    #[serde(default)]
    pub record: RecordConfig,
    /// The admin port.
    #[serde(default)]
    pub admin: AdminConfig,
}

/// `[cluster]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterConfig {
    /// In whose name nodes are held; the host's by default.
    pub name: Option<String>,
    /// How long a node keeps what it was told without hearing from the controller, in milliseconds.
    pub lease_ms: f64,
    /// How long the nodes are waited for at the start, in seconds.
    pub wait_s: f64,
    /// Smallest change of cores.
    pub cores_step: f64,
    /// Most cores, of all nodes together; all that they have by default.
    pub cores_max: Option<f64>,
    /// μ, in requests per second and core; observed, and again when it drifts, where absent.
    pub requests_per_core_s: Option<f64>,
    /// For how long μ is observed at least, in seconds.
    pub calibrate_s: f64,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            name: None,
            lease_ms: 5000.0,
            wait_s: 10.0,
            cores_step: 0.1,
            cores_max: None,
            requests_per_core_s: None,
            calibrate_s: super::default_calibrate_s(),
        }
    }
}

impl ControllerFile {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`ConfigError`] for a file that cannot be read or understood, or a value that is outside its range.
    pub fn read(file: &Path) -> Result<(Self, Document), ConfigError> {
        Self::checked(Document::read(file, "controller")?)
    }

    fn checked(document: Document) -> Result<(Self, Document), ConfigError> {
        let config: Self = document.parse("controller")?;
        config.check(&document)?;
        Ok((config, document))
    }

    fn check(&self, document: &Document) -> Result<(), ConfigError> {
        self.slo.slo(document)?;
        if document.has("slo", "failed_status") {
            let why = "is each gateway's to know: start them with `headroom gateway --failed-status`";
            return Err(document.error("slo.failed_status", why));
        }
        self.law
            .check()
            .map_err(|error| document.error(&error.key, error.why))?;
        for (key, peers) in [("nodes", &self.nodes), ("gateways", &self.gateways)] {
            if !(1..=MAX_PEERS).contains(&peers.len()) {
                let why = format!(
                    "has {}: name 1 to {MAX_PEERS}, each as name = \"address\"",
                    peers.len()
                );
                return Err(document.error(key, why));
            }
        }
        self.node_addresses(document)?;
        self.gateway_addresses(document)?;
        let cluster = &self.cluster;
        let most = cluster.cores_max.unwrap_or(1.0);
        let rate = cluster.requests_per_core_s.unwrap_or(1.0);
        document.within(&[
            ("cluster.lease_ms", cluster.lease_ms, 1.0, 86_400_000.0),
            ("cluster.wait_s", cluster.wait_s, 0.1, 86_400.0),
            ("cluster.cores_step", cluster.cores_step, 0.001, 1_000.0),
            ("cluster.cores_max", most, 0.001, 1e9),
            ("cluster.requests_per_core_s", rate, 1e-6, 1e9),
            ("cluster.calibrate_s", cluster.calibrate_s, 0.1, 86_400.0),
        ])?;
        self.control.check(document)?;
        self.record.check(document)?;
        let period_ms = self.control.period_ms;
        if cluster.lease_ms < 2.0 * period_ms {
            let why = format!(
                "is {}: a lease outlives two periods, so at least {} with control.period_ms = {}",
                cluster.lease_ms,
                2.0 * period_ms,
                period_ms
            );
            return Err(document.error("cluster.lease_ms", why));
        }
        Ok(())
    }

    /// Each node's name and address, by name.
    ///
    /// # Errors
    /// A text that is no address, with its line.
    pub fn node_addresses(&self, document: &Document) -> Result<Vec<(String, Address)>, ConfigError> {
        addresses(document, "nodes", &self.nodes)
    }

    /// Each gateway's name and address, by name.
    ///
    /// # Errors
    /// A text that is no address, with its line.
    pub fn gateway_addresses(&self, document: &Document) -> Result<Vec<(String, Address)>, ConfigError> {
        addresses(document, "gateways", &self.gateways)
    }

    /// How agents and gateways are reached. A peer that is silent for a third of a lease is taken for lost.
    ///
    /// # Errors
    /// TCP without certificates, certificates that cannot be used; with their line.
    pub fn client(&self, document: &Document) -> Result<ClientOptions, ConfigError> {
        let all = [
            ("nodes", self.node_addresses(document)?),
            ("gateways", self.gateway_addresses(document)?),
        ];
        for (key, peers) in &all {
            let tcp = peers
                .iter()
                .find(|(_, address)| matches!(address, Address::Tcp { .. }));
            if let (Some((name, address)), None) = (tcp, &self.tls) {
                let why = format!(
                    "{address} is TCP, which is reached with certificates only: make them with `headroom certs` and name \
                     them under [tls]"
                );
                return Err(document.error(&format!("{key}.{name}"), why));
            }
        }
        let tls = self.tls.as_ref().map(|tls| ClientTls::load(&tls.files()));
        let third = self.lease() / 3;
        Ok(ClientOptions {
            tls: tls.transpose().map_err(|error| document.error("tls", error))?,
            connect_time: third.max(Duration::from_secs(1)),
            answer_time: third,
            silence: third,
            ..ClientOptions::default()
        })
    }

    /// How long a lease lives.
    pub fn lease(&self) -> Duration {
        Duration::from_secs_f64(self.cluster.lease_ms / 1e3)
    }

    /// Most cores of all nodes together, where they are not to have all.
    pub fn most_cores(&self) -> Option<Cores> {
        self.cluster.cores_max.map(Cores::new)
    }
}

fn addresses(
    document: &Document,
    key: &str,
    peers: &BTreeMap<String, String>,
) -> Result<Vec<(String, Address)>, ConfigError> {
    let one = |(name, text): (&String, &String)| {
        let address = text
            .parse()
            .map_err(|error| document.error(&format!("{key}.{name}"), error))?;
        Ok((name.clone(), address))
    };
    peers.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "[slo]\ntarget_ms = 250\n\n[nodes]\nn1 = \"unix:/a\"\n\n[gateways]\ng1 = \"unix:/b\"\n";

    fn parse(text: &str) -> Result<(ControllerFile, Document), ConfigError> {
        ControllerFile::checked(Document::shipped("controller.toml", text))
    }

    #[test]
    fn the_example_is_a_configuration_also_with_every_key_written() {
        parse(EXAMPLE).unwrap();
        let mut whole = String::new();
        for line in EXAMPLE.lines() {
            let key = line.strip_prefix("# ").filter(|rest| {
                rest.starts_with('[') || rest.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '))
            });
            whole.push_str(key.unwrap_or(line));
            whole.push('\n');
        }
        assert_ne!(whole, EXAMPLE);
        parse(&whole).unwrap();
    }

    #[test]
    fn each_mistake_is_told_with_file_line_value_and_remedy() {
        for (from, to, said) in [
            (
                "unix:/a",
                "n1",
                "controller.toml:5: nodes.n1: \"n1\" is no address",
            ),
            (
                "unix:/a",
                "n1:7443",
                "controller.toml:5: nodes.n1: n1:7443 is TCP",
            ),
            (
                "unix:/b",
                "g1:7443",
                "controller.toml:8: gateways.g1: g1:7443 is TCP",
            ),
            (
                "n1 = \"unix:/a\"\n",
                "",
                "controller.toml:4: nodes: has 0: name 1 to 256",
            ),
            (
                "target_ms = 250",
                "target_ms = -1",
                "controller.toml:2: slo.target_ms",
            ),
            (
                "\n[nodes]",
                "[cluster]\nlease_ms = 1500\n[nodes]",
                "controller.toml:4: cluster.lease_ms: is 1500: a lease outlives",
            ),
            (
                "\n[nodes]",
                "[cluster]\ncores_step = 0\n[nodes]",
                "controller.toml:4: cluster.cores_step: is 0.0",
            ),
            (
                "\n[nodes]",
                "[control]\nperiod_ms = 5\n[nodes]",
                "controller.toml:4: control.period_ms: is 5.0: it must be between 100.0",
            ),
            (
                "\n[nodes]",
                "[law.slo-power]\nguard = 3\n[nodes]",
                "controller.toml:4: law.slo-power.guard",
            ),
        ] {
            assert!(GOOD.contains(from));
            let parsed = parse(&GOOD.replace(from, to)).and_then(|(file, document)| file.client(&document));
            let text = parsed.expect_err("a mistake must not pass").to_string();
            assert!(text.contains(said), "{text}");
        }
    }
}
