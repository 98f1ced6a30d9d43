//! The configuration file of `headroom agent`, and the certificates that agents, gateways and controllers name.

use super::oncall::OncallConfig;
use super::{AdminConfig, PowerConfig, ServiceConfig};
use headroom_console::{ConfigError, ConfigErrors, Document, Mistakes};
use headroom_node::Roots;
use headroom_node::agent::{AuditFile, LeaseLimits, LocalOptions, MAX_LISTENERS, QueueLimits, Watching};
use headroom_node::cgroup::{CgroupError, TargetSpec};
use headroom_node::power::PowerModel;
use headroom_node::program::{MAX_US, NicOptions};
use headroom_physics::Machine;
use headroom_units::{Cores, Setting};
use headroom_wire::Address;
use headroom_wire::access::{Rules, RulesError};
use headroom_wire::message::{CpuGroup, MAX_CPU_GROUPS};
use headroom_wire::server::Listen;
use headroom_wire::tls::{ServerTls, TlsFiles};
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An example with every key: what `headroom agent --example` prints.
pub const EXAMPLE: &str = include_str!("../../agent.example.toml");

/// The largest value of a lever that makes sense as a least: hertz are the smallest unit.
const MAX_LEAST: f64 = 1e12;

/// Keys of `[service]` that a node does not decide about.
const CONTROLLERS_KEYS: [&str; 5] = [
    "cores_min",
    "cores_max",
    "cores_step",
    "requests_per_core_s",
    "calibrate_s",
];

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentFile {
    /// How the node is served.
    pub agent: AgentSection,
    /// The node's certificate, for TCP.
    pub tls: Option<TlsConfig>,
    /// Who may do what.
    #[serde(default)]
    pub access: AccessConfig,
    /// The value of each lever beyond which nobody takes from the service, in the lever's unit.
    #[serde(default)]
    pub limits: Setting,
    /// What is controlled.
    pub service: ServiceConfig,
    /// The meters.
    #[serde(default)]
    pub power: PowerConfig,
    /// What the machine is.
    #[serde(default)]
    pub machine: Machine,
    /// The network card whose interrupts may be delayed.
    pub nic: Option<NicOptions>,
    /// The service's server on call, which `headroom wrap --steered` starts.
    pub oncall: Option<OncallConfig>,
    /// Where the connections of that server are told; by default nowhere.
    #[serde(default = "nowhere")]
    pub admin: AdminConfig,
}

const fn nowhere() -> AdminConfig {
    AdminConfig { listen: None }
}

/// `[agent]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSection {
    /// Where it listens.
    pub listen: Vec<String>,
    /// The node's name; the host's by default.
    pub name: Option<String>,
    /// The shortest lease, in milliseconds.
    #[serde(default = "default_shortest_lease_ms")]
    pub shortest_lease_ms: f64,
    /// The longest lease, in milliseconds.
    #[serde(default = "default_longest_lease_ms")]
    pub longest_lease_ms: f64,
    /// Control groups beside the service's whose CPU time whoever watches an accept queue may ask for.
    #[serde(default)]
    pub cpu_groups: Vec<String>,
    /// The file that tells who commanded what; the log where there is none.
    pub audit: Option<PathBuf>,
    /// `--sys` and `--proc` are emulated hardware, and every figure is labelled so.
    #[serde(default)]
    pub emulated: bool,
}

fn default_shortest_lease_ms() -> f64 {
    LeaseLimits::default().shortest.as_secs_f64() * 1e3
}

fn default_longest_lease_ms() -> f64 {
    LeaseLimits::default().longest.as_secs_f64() * 1e3
}

/// `[tls]`: files as `headroom certs` makes them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// The authority's certificate.
    pub ca: PathBuf,
    /// The own certificate.
    pub certificate: PathBuf,
    /// The private key to it.
    pub key: PathBuf,
    /// The authority's revocation list (`headroom certs revoke`).
    pub revoked: Option<PathBuf>,
}

/// `[access]`: names of certificates, or `uid:NUMBER`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessConfig {
    /// Who may command; by default whose certificate was issued as a controller's.
    pub operators: Option<Vec<String>>,
    /// Who may observe; by default whose certificate was issued as a reader's.
    pub readers: Option<Vec<String>>,
    /// Who may watch accept queues.
    #[serde(default)]
    pub queues: QueueAccess,
}

/// Who may watch accept queues.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum QueueAccess {
    /// Nobody.
    Off,
    /// One operator at a time.
    #[default]
    Holder,
    /// Every operator and reader.
    Readers,
}

impl TlsConfig {
    /// As the wire wants them.
    pub fn files(&self) -> TlsFiles {
        TlsFiles {
            ca: self.ca.clone(),
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            revoked: self.revoked.clone(),
        }
    }
}

impl AgentFile {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`ConfigErrors`] for a file that cannot be read or understood, and for every value that is outside its range.
    pub fn read(file: &Path) -> Result<(Self, Document), ConfigErrors> {
        Self::checked(Document::read(file, "agent")?)
    }

    /// One made of the command line's words.
    ///
    /// # Errors
    /// As [`AgentFile::read`].
    pub fn of_flags(cgroup: &Path, listen: &[String]) -> Result<(Self, Document), ConfigErrors> {
        let mut root = toml::Table::new();
        let mut agent = toml::Table::new();
        agent.insert("listen".to_owned(), listen.to_vec().into());
        let mut service = toml::Table::new();
        service.insert("cgroup".to_owned(), cgroup.to_string_lossy().into_owned().into());
        root.insert("agent".to_owned(), agent.into());
        root.insert("service".to_owned(), service.into());
        let config: Self = Document::shipped(COMMAND_LINE, &root.to_string()).parse("agent")?;
        // Nobody has written a file: errors name no line of it.
        let document = Document::shipped(COMMAND_LINE, "");
        let mut mistakes = Mistakes::default();
        config.check(&document, &mut mistakes);
        mistakes.done()?;
        Ok((config, document))
    }

    fn checked(document: Document) -> Result<(Self, Document), ConfigErrors> {
        let config = document.parse_checked("agent", |config: &Self, mistakes| {
            config.check(&document, mistakes);
        })?;
        Ok((config, document))
    }

    /// All that is wrong with what the file says, without a look at the machine.
    fn check(&self, document: &Document, mistakes: &mut Mistakes) {
        mistakes.of(self.service.check(document));
        mistakes.of(self.power.check(document));
        for key in CONTROLLERS_KEYS {
            if document.has("service", key) {
                let why = "is the controller's to decide, for all nodes together: remove it here";
                mistakes.push(document.error(&format!("service.{key}"), why));
            }
        }
        let count = self.agent.listen.len();
        if !(1..=MAX_LISTENERS).contains(&count) {
            let why = format!("has {count} entries: give 1 to {MAX_LISTENERS}");
            mistakes.push(document.error("agent.listen", why));
        }
        let (shortest, longest) = (self.agent.shortest_lease_ms, self.agent.longest_lease_ms);
        mistakes.of(document.within(&[
            (
                "service.quota_period_ms",
                self.service.quota_period_ms,
                1.0,
                1_000.0,
            ),
            ("agent.shortest_lease_ms", shortest, 1.0, 86_400_000.0),
            ("agent.longest_lease_ms", longest, shortest, 86_400_000.0),
        ]));
        for listen in &self.agent.listen {
            mistakes.of(place(document, "agent.listen", listen));
        }
        for (lever, least) in self.limits.iter() {
            mistakes.of(document.within(&[(format!("limits.{lever}").as_str(), least, 0.0, MAX_LEAST)]));
        }
        if let Some(nic) = &self.nic {
            mistakes.of(document.within(&[
                ("nic.max_us", nic.max_us, 0.0, MAX_US),
                ("nic.min_us", nic.min_us, 0.0, nic.max_us),
            ]));
        }
        if let Some(oncall) = &self.oncall {
            oncall.check_of_agent(self.admin.listen.is_some(), document, mistakes);
        } else if self.admin.listen.is_some() {
            let why =
                "tells of the connections of a server on call, and there is none: add [oncall], or remove it";
            mistakes.push(document.error("admin.listen", why));
        }
        mistakes.of(self.rules(document));
        mistakes.of(self.cpu_groups(document));
    }

    /// The control groups whose CPU time may be asked for: the service's, and those that are named.
    ///
    /// # Errors
    /// A name that is none, or too many, with their line.
    pub fn cpu_groups(&self, document: &Document) -> Result<Vec<TargetSpec>, ConfigError> {
        let wrong = |why: String| document.error("agent.cpu_groups", why);
        let count = self.agent.cpu_groups.len() + 1;
        if count > MAX_CPU_GROUPS {
            let why = format!(
                "names {} groups: name at most {}, each stands for all below it too",
                count - 1,
                MAX_CPU_GROUPS - 1
            );
            return Err(wrong(why));
        }
        let mut groups = vec![self.service.target()];
        for name in &self.agent.cpu_groups {
            let group = name
                .parse()
                .map_err(|error: CgroupError| wrong(error.to_string()))?;
            // One that nobody could ask for would allow nothing.
            if let TargetSpec::Path(path) = &group {
                CpuGroup::new(path.as_str()).map_err(|invalid| {
                    wrong(format!(
                        "\"{}\" is none: give {}",
                        invalid.value, invalid.expected
                    ))
                })?;
            }
            groups.push(group);
        }
        Ok(groups)
    }

    /// Where the agent is to listen, with its certificates read and checked.
    ///
    /// # Errors
    /// A place that is none, TCP without certificates, certificates that cannot be used; with their line.
    pub fn listen(&self, document: &Document) -> Result<Vec<Listen>, ConfigError> {
        let tls = self.tls.as_ref();
        listen(document, "agent.listen", &self.agent.listen, tls, "under [tls]")
    }

    /// Who may read and who may command.
    ///
    /// # Errors
    /// A name that can be nobody's, with its line.
    pub fn rules(&self, document: &Document) -> Result<Rules, ConfigError> {
        let access = &self.access;
        let wrong = |error: RulesError| document.error("access", error);
        Rules::new(access.operators.clone(), access.readers.clone()).map_err(wrong)
    }

    /// Who may watch accept queues, and what that may cost.
    pub fn queues(&self) -> QueueLimits {
        QueueLimits {
            who: match self.access.queues {
                QueueAccess::Off => Watching::Off,
                QueueAccess::Holder => Watching::Holder,
                QueueAccess::Readers => Watching::Readers,
            },
            ..QueueLimits::default()
        }
    }

    /// Where it is written who commanded what.
    pub fn audit(&self) -> Option<AuditFile> {
        self.agent.audit.as_ref().map(AuditFile::at)
    }

    /// The leases that may be asked for.
    pub fn leases(&self) -> LeaseLimits {
        let length = |ms: f64| Duration::from_secs_f64(ms / 1e3);
        LeaseLimits {
            shortest: length(self.agent.shortest_lease_ms),
            longest: length(self.agent.longest_lease_ms),
        }
    }

    /// The machine to be served.
    ///
    /// # Errors
    /// Figures of power that cannot be, with their line.
    pub fn machine(
        &self,
        document: &Document,
        roots: &Roots,
        machine_cores: Cores,
    ) -> Result<LocalOptions, ConfigError> {
        let figures = super::machine::figures(&self.machine, document, "machine", machine_cores)?;
        let model = PowerModel::new(figures).map_err(|error| document.error("machine", error))?;
        let mut limiter = self.power.limiter(&self.service);
        // A cap that is held by quota must not take what no allocation may.
        if let Some(least) = self.limits.cores() {
            limiter.cap.floor = limiter.cap.floor.max(least);
        }
        Ok(LocalOptions {
            meter: self.power.meter,
            limiter,
            emulated: self.agent.emulated,
            // A delay between rounds makes idle periods longer, and nothing else.
            idle_by_periods: self.oncall.is_some(),
            name: self.agent.name.clone(),
            nic: self.nic.clone(),
            ..LocalOptions::of(roots.clone(), self.service.target(), model)
        })
    }
}

/// Stands for a file where options are given instead.
const COMMAND_LINE: &str = "the command line";

enum Place {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

fn place(document: &Document, key: &str, text: &str) -> Result<Place, ConfigError> {
    let address: Address = text.parse().map_err(|error| document.error(key, error))?;
    match address {
        Address::Unix(path) => Ok(Place::Unix(path)),
        Address::Tcp { .. } => text.parse().map(Place::Tcp).map_err(|_| {
            let why = format!(
                "{text:?} has a host's name: listen on an IP address of this machine, or 0.0.0.0 for all"
            );
            document.error(key, why)
        }),
    }
}

/// Places that the command line gives, under a name of an option; `tls_at` says where it gives certificates.
///
/// # Errors
/// As [`AgentFile::listen`].
pub fn listen_of_flags(
    option: &str,
    places: &[String],
    tls: Option<&TlsConfig>,
    tls_at: &str,
) -> Result<Vec<Listen>, ConfigError> {
    listen(&Document::shipped(COMMAND_LINE, ""), option, places, tls, tls_at)
}

/// Places to listen at, with their certificates read and checked.
fn listen(
    document: &Document,
    key: &str,
    places: &[String],
    tls: Option<&TlsConfig>,
    tls_at: &str,
) -> Result<Vec<Listen>, ConfigError> {
    let mut found = Vec::new();
    for text in places {
        found.push(match place(document, key, text)? {
            Place::Unix(path) => Listen::Unix { path },
            Place::Tcp(address) => {
                let Some(tls) = tls else {
                    let why = format!(
                        "{text} is TCP, which is served with certificates only: make them with `headroom certs` and name \
                         them {tls_at}, or listen on unix:/path"
                    );
                    return Err(document.error(key, why));
                };
                let tls = ServerTls::load(&tls.files()).map_err(|error| document.error("tls", error))?;
                Listen::Tcp { address, tls }
            }
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::example_tests::{gaps, written_out};

    const GOOD: &str =
        "[agent]\nlisten = [\"unix:/run/headroom/agent.sock\"]\n\n[service]\ncgroup = \"/web\"\n";

    fn parse(text: &str) -> Result<(AgentFile, Document), ConfigErrors> {
        AgentFile::checked(Document::shipped("agent.toml", text))
    }

    fn error(from: &str, to: &str) -> String {
        assert!(GOOD.contains(from));
        let parsed = parse(&GOOD.replace(from, to)).and_then(|(file, document)| Ok(file.listen(&document)?));
        parsed.expect_err("a mistake must not pass").to_string()
    }

    #[test]
    fn the_example_is_a_configuration_also_with_every_key_written() {
        parse(EXAMPLE).unwrap();
        let whole = written_out(EXAMPLE, &["systemd_unit", "container", "pid"]);
        let (missing, named) = gaps::<AgentFile>(EXAMPLE);
        // The controller's to know, and what no controller is told.
        let elsewhere = [
            "oncall.class",
            "service.calibrate_s",
            "service.cores_max",
            "service.cores_min",
            "service.cores_step",
            "service.requests_per_core_s",
        ];
        assert_eq!(missing, elsewhere);
        assert_eq!(named, ["limits"]);
        let (file, _) = parse(&whole).unwrap();
        assert_eq!(file.leases(), LeaseLimits::default(), "it names the defaults");
        assert!(file.tls.as_ref().is_some_and(|tls| tls.revoked.is_some()));
        assert_eq!(file.access.queues, QueueAccess::default(), "it names the default");
        assert!(file.access.operators.is_some() && file.access.readers.is_some());
        assert!(!file.limits.is_empty() && file.nic.is_some() && file.audit().is_some());
        let default = OncallConfig::default();
        let oncall = file.oncall.expect("it has a server on call");
        assert!(oncall.server.is_some());
        assert_eq!(oncall.linger_us, default.linger_us, "it names the default");
    }

    #[test]
    fn each_mistake_is_told_with_file_line_value_and_remedy() {
        for (from, to, said) in [
            (
                "unix:/run/headroom/agent.sock",
                "node1",
                "agent.toml:2: agent.listen: \"node1\" is no address",
            ),
            (
                "unix:/run/headroom/agent.sock",
                "node1:7443",
                "listen on an IP address of this machine",
            ),
            (
                "unix:/run/headroom/agent.sock",
                "10.0.0.1:7443",
                "agent.toml:2: agent.listen: 10.0.0.1:7443 is TCP",
            ),
            (
                "[\"unix:/run/headroom/agent.sock\"]",
                "[]",
                "has 0 entries: give 1 to 8",
            ),
            (
                "\n[service]",
                "longest_lease_ms = 10\n[service]",
                "agent.toml:3: agent.longest_lease_ms: is 10.0",
            ),
            (
                "\n[service]",
                "shortest_lease_ms = -1\n[service]",
                "agent.toml:3: agent.shortest_lease_ms: is -1.0",
            ),
            (
                "\n[service]",
                "cpu_groups = [\"web\"]\n[service]",
                "agent.toml:3: agent.cpu_groups: \"web\" is no target",
            ),
            (
                "\n[service]",
                "cpu_groups = [\"/web/../db\"]\n[service]",
                "agent.toml:3: agent.cpu_groups: \"/web/../db\" is none: give the path of a control group without \"..\"",
            ),
            (
                "\n[service]",
                "\n[access]\noperators = [\"\"]\n[service]",
                "access: \"\" names nobody: give the name of a certificate",
            ),
            (
                "\n[service]",
                "\n[access]\nqueues = \"all\"\n[service]",
                "agent.toml:5: access.queues: unknown variant `all`",
            ),
            (
                "\n[service]",
                "\n[limits]\ncores = -1\n[service]",
                "agent.toml:5: limits.cores: is -1.0",
            ),
            (
                "\n[service]",
                "\n[limits]\nround_delay = \"50ms\"\n[service]",
                "agent.toml:5: limits.round_delay: invalid type: string \"50ms\", expected a number of seconds",
            ),
            (
                "\n[service]",
                "\n[nic]\ninterface = \"eth0\"\nmin_us = 300\n[service]",
                "agent.toml:6: nic.min_us: is 300.0",
            ),
            (
                "\n[service]",
                "\n[oncall]\nlinger_us = 200\n[service]",
                "oncall: names no server",
            ),
            (
                "\n[service]",
                "\n[oncall]\nserver = \"a b\"\n[service]",
                "agent.toml:5: oncall.server: \"a b\" is no name",
            ),
            (
                "\n[service]",
                "\n[oncall]\nserver = \"db\"\nconnections_in_metrics = 4\n[service]",
                "agent.toml:6: oncall.connections_in_metrics: is 4, and admin.listen says nowhere",
            ),
            (
                "\n[service]",
                "\n[admin]\nlisten = \"127.0.0.1:9188\"\n[service]",
                "admin.listen: tells of the connections of a server on call, and there is none",
            ),
            (
                "\n[service]",
                "\n[oncall]\nserver = \"db\"\n[[oncall.class]]\nname = \"gold\"\n[service]",
                "run `headroom up` with [oncall] on this machine",
            ),
            (
                "\n[service]",
                "shortest = 1\n[service]",
                "agent.toml:3: agent.shortest: unknown field `shortest`",
            ),
            ("cgroup = \"/web\"\n", "", "name the service by one of"),
            (
                "cgroup = \"/web\"\n",
                "cgroup = \"/web\"\ncores_max = 2.0\n",
                "agent.toml:6: service.cores_max: is the controller's",
            ),
        ] {
            let text = error(from, to);
            assert!(text.contains(said), "{text}");
        }
    }

    #[test]
    fn the_cpu_time_of_the_service_may_be_asked_for_and_of_what_is_named() {
        let groups = |named: &str| {
            let (file, document) = parse(&GOOD.replace("\n[service]", &format!("{named}\n[service]")))?;
            let groups = file.cpu_groups(&document)?;
            Ok::<_, ConfigErrors>(groups.iter().map(TargetSpec::to_string).collect::<Vec<_>>())
        };
        assert_eq!(groups("").unwrap(), ["cgroup /web"]);
        let named = "cpu_groups = [\"/db\", \"unit:nginx.service\"]";
        assert_eq!(
            groups(named).unwrap(),
            ["cgroup /web", "cgroup /db", "unit nginx.service"]
        );
        let many = |count: usize| format!("cpu_groups = {:?}", vec!["/db"; count]);
        assert_eq!(groups(&many(63)).unwrap().len(), MAX_CPU_GROUPS);
        let error = groups(&many(64)).unwrap_err().to_string();
        assert!(error.contains("names 64 groups: name at most 63"), "{error}");
    }

    #[test]
    fn the_command_lines_words_are_a_configuration_too() {
        let (file, _) = AgentFile::of_flags(Path::new("/web \"x\""), &["unix:/a".to_owned()]).unwrap();
        assert_eq!(file.service.target().to_string(), "cgroup /web \"x\"");
        assert_eq!(file.agent.listen, ["unix:/a"]);
        let (file, document) = AgentFile::of_flags(Path::new("/web"), &["127.0.0.1:1".to_owned()]).unwrap();
        let error = file.listen(&document).unwrap_err().to_string();
        assert!(error.starts_with("the command line: agent.listen: "), "{error}");
    }
}
