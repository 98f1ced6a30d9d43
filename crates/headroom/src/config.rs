//! The configuration files: that of `headroom up` here, those of [`agent`] and [`controller`] below.
//!
//! Every mistake is one error that names the file, the line, the value and the remedy. All that a file gets wrong are said at once, and
//! before anything on the machine is changed or asked.

pub mod agent;
pub mod controller;
mod laws;
pub mod machine;
mod notes;
pub mod oncall;
pub mod wrap;

use crate::telemetry_config::TelemetryConfig;
use headroom_console::{ConfigError, ConfigErrors, Document, Mistakes};
use headroom_control::{
    CoreRange, FailingLimits, LawConfig, LawNames, Plant, PlantError, PowerEnvelope, Slo, guardian,
};
use headroom_gateway::GatewayConfig;
use headroom_node::cap::LimiterOptions;
use headroom_node::cgroup::TargetSpec;
use headroom_node::cpu::QuotaOptions;
use headroom_node::frequency::FrequencyUse;
use headroom_node::limit::{LeverKind, LeverPreference};
use headroom_node::power::{MeterKind, MeterPreference};
use headroom_physics::Machine;
use headroom_record::Limits;
use headroom_runtime::door;
use headroom_units::{Cores, FailedStatus, Ratio, Seconds};
use oncall::OncallConfig;
use serde::{Deserialize, Deserializer};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An example with every key, its default and what it means: what `headroom up --example` prints.
pub const EXAMPLE: &str = concat!(
    include_str!("../headroom.example.toml"),
    include_str!("../oncall.example.toml"),
    include_str!("../telemetry.example.toml"),
    include_str!("../laws.example.toml"),
    include_str!("../laws-on-call.example.toml")
);

/// As many processors as Linux can be built for.
const MOST_CORES: Cores = Cores::new(8192.0);

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The promise.
    pub slo: SloConfig,
    /// The data plane; absent where another proxy is in front of the service and `[telemetry]` says how to listen to
    /// it.
    pub gateway: Option<GatewayConfig>,
    /// Another source of telemetry than the gateway.
    pub telemetry: Option<TelemetryConfig>,
    /// What is controlled.
    pub service: ServiceConfig,
    /// The service's server where it is on call; its queries are the telemetry where there is no other.
    pub oncall: Option<OncallConfig>,
    /// The law and its parameters.
    #[serde(default)]
    pub law: LawConfig,
    /// The meters.
    #[serde(default)]
    pub power: PowerConfig,
    /// What the machine is.
    #[serde(default)]
    pub machine: Machine,
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

/// `[slo]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SloConfig {
    /// The percentile, in percent.
    #[serde(default = "default_percentile")]
    pub percentile: f64,
    /// T, in milliseconds.
    pub target_ms: f64,
    /// Statuses with which a request counts as failed: it misses the SLO.
    #[serde(default)]
    pub failed_status: FailedStatus,
}

const fn default_percentile() -> f64 {
    95.0
}

impl SloConfig {
    /// The latency promise.
    ///
    /// # Errors
    /// Where it is not one, with its line.
    pub fn slo(&self, document: &Document) -> Result<Slo, ConfigError> {
        if self.percentile > 0.0 && self.percentile < 1.0 {
            let percent = self.percentile * 100.0;
            let why = format!(
                "is {}: it is in percent, so this is a fraction of one percent; write {percent:.1}",
                self.percentile
            );
            return Err(document.error("slo.percentile", why));
        }
        Slo::new(
            Ratio::from_percent(self.percentile),
            Seconds::from_millis(self.target_ms),
        )
        .map_err(|error| {
            let key = if matches!(error, PlantError::Percentile(_)) {
                "slo.percentile"
            } else {
                "slo.target_ms"
            };
            document.error(key, error)
        })
    }
}

/// `[service]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceConfig {
    /// The service's cgroup.
    pub cgroup: Option<PathBuf>,
    /// Its systemd unit.
    pub systemd_unit: Option<String>,
    /// Its container's id.
    pub container: Option<String>,
    /// A process of it.
    pub pid: Option<u32>,
    /// What limits its cores.
    #[serde(default)]
    pub lever: Lever,
    /// Fewest cores.
    pub cores_min: Option<f64>,
    /// Most cores; all of the machine by default.
    pub cores_max: Option<f64>,
    /// Smallest change; 0.1 with quotas and 1 with cpusets by default.
    pub cores_step: Option<f64>,
    /// The quota's period, in milliseconds.
    #[serde(default = "default_quota_period_ms")]
    pub quota_period_ms: f64,
    /// μ, in requests per second and core; observed, and again when it drifts, where absent.
    pub requests_per_core_s: Option<f64>,
    /// For how long μ is observed at least, in seconds.
    #[serde(default = "default_calibrate_s")]
    pub calibrate_s: f64,
}

const fn default_quota_period_ms() -> f64 {
    10.0
}

const fn default_calibrate_s() -> f64 {
    20.0
}

/// What limits the service's cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lever {
    /// CPU bandwidth: fractions of a core.
    #[default]
    Quota,
    /// Whole cores.
    Cpuset,
}

/// `[power]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerConfig {
    /// Which meter to take, or which to try in turn.
    #[serde(default)]
    pub meter: MeterPreference,
    /// What holds caps, or what to try in turn.
    #[serde(default)]
    pub cap_lever: LeverPreference,
    /// Whether laws may limit the processors' frequency.
    #[serde(default)]
    pub frequency: FrequencyUse,
}

impl PowerConfig {
    /// As one of several services of a machine has it: what measures the whole machine tells no service's part, and would hold
    /// each to the watts of the others.
    ///
    /// # Errors
    /// A meter that measures was asked for.
    pub fn share(&mut self, document: &Document) -> Result<(), ConfigError> {
        let model = MeterPreference::one(MeterKind::Model);
        if self.meter != MeterPreference::Auto && self.meter != model {
            let why = "measures the whole machine, and this is one of several services of it: leave it out, or set it to \
                       \"model\"; each service's power is then estimated by the model";
            return Err(document.error("power.meter", why));
        }
        self.meter = model;
        Ok(())
    }

    /// What the levers say of one another.
    ///
    /// # Errors
    /// Caps that are to be held by a frequency that is to be left alone.
    pub fn check(&self, document: &Document) -> Result<(), ConfigError> {
        let named =
            self.cap_lever != LeverPreference::Auto && self.cap_lever.order().contains(&LeverKind::Frequency);
        if self.frequency == FrequencyUse::Off && named {
            let why = "names \"frequency\", and power.frequency = \"off\" leaves the frequency alone: remove it here, or set \
                       power.frequency = \"auto\"";
            return Err(document.error("power.cap_lever", why));
        }
        Ok(())
    }

    /// How a service is limited.
    pub fn limiter(&self, service: &ServiceConfig) -> LimiterOptions {
        LimiterOptions {
            quota: QuotaOptions {
                period: Seconds::from_millis(service.quota_period_ms),
                ..QuotaOptions::default()
            },
            cpuset: service.lever == Lever::Cpuset,
            lever: self.cap_lever,
            frequency: self.frequency,
            ..LimiterOptions::default()
        }
    }
}

/// `[control]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControlConfig {
    /// Length of a period, in milliseconds.
    pub period_ms: f64,
    /// Periods without telemetry after which everything goes to full.
    pub lost_periods_to_full: u32,
    /// How much of the load that earlier runs of this name recorded the laws recall, in days; at most [`headroom_control::LoadHistory::MAX_PERIODS`]
    /// periods.
    pub recall_days: f64,
    /// The share of failed requests in a period, in percent, above which nothing is taken away.
    pub failing_hold_percent: f64,
    /// The share, in percent, from which on everything goes to full at once.
    pub failing_full_percent: f64,
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self {
            period_ms: 1000.0,
            lost_periods_to_full: guardian::DEFAULT_PATIENCE_PERIODS,
            recall_days: 3.0,
            failing_hold_percent: FailingLimits::DEFAULT.hold.as_percent(),
            failing_full_percent: FailingLimits::DEFAULT.full.as_percent(),
        }
    }
}

/// `[record]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecordConfig {
    /// The database.
    pub db: PathBuf,
    /// Runs older than this go, in days.
    pub max_age_days: f64,
    /// The oldest runs go while the file is larger than this, in MiB.
    pub max_mib: f64,
}

impl Default for RecordConfig {
    fn default() -> Self {
        Self {
            db: PathBuf::from(crate::commands::report::DEFAULT_DB),
            max_age_days: 30.0,
            max_mib: 512.0,
        }
    }
}

/// `[admin]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdminConfig {
    /// Address of /metrics, /healthz and /readyz; `"off"` for none.
    #[serde(deserialize_with = "address_or_off")]
    pub listen: Option<SocketAddr>,
}

/// An address and a port, or `"off"`.
fn address_or_off<'de, D: Deserializer<'de>>(input: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(input)?;
    match text.as_str() {
        "off" | "" => Ok(None),
        address => address.parse().map(Some).map_err(|_| {
            serde::de::Error::custom(format!(
                "{address:?} is no IP address with a port, as \"127.0.0.1:9187\"; \"off\" listens nowhere"
            ))
        }),
    }
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 9187))),
        }
    }
}

impl Config {
    /// Reads and checks a file, of which those laws run that `laws` makes of those that it names.
    ///
    /// # Errors
    /// [`ConfigErrors`] for a file that cannot be read or understood, and for every value that is outside its range.
    pub fn read(file: &Path, laws: impl Fn(LawNames) -> LawNames) -> Result<(Self, Document), ConfigErrors> {
        let document = Document::read(file, "up")?;
        Self::checked(document, laws)
    }

    fn checked(
        document: Document,
        laws: impl Fn(LawNames) -> LawNames,
    ) -> Result<(Self, Document), ConfigErrors> {
        let mut config: Self = document.parse_checked("up", |config: &Self, mistakes| {
            config.check(&document, mistakes);
            let names = laws(config.law.names.clone());
            config.check_laws(names, &document, mistakes);
        })?;
        config.gateway = config.gateway_to_run();
        config.law.names = laws(config.law.names);
        Ok((config, document))
    }

    /// The gateway, with what the SLO says to it.
    fn gateway_to_run(&self) -> Option<GatewayConfig> {
        let gateway = self.gateway.as_ref()?;
        Some(GatewayConfig {
            failed_status: self.slo.failed_status,
            target_ms: Some(self.slo.target_ms.ceil() as u64),
            ..gateway.clone()
        })
    }

    /// The latency promise.
    ///
    /// # Errors
    /// Where it is not one, with its line.
    pub fn slo(&self, document: &Document) -> Result<Slo, ConfigError> {
        self.slo.slo(document)
    }

    /// The cores that can be allocated, on a machine of `machine_cores` cores.
    ///
    /// # Errors
    /// A range of cores that this machine has not, with its line.
    pub fn core_range(&self, document: &Document, machine_cores: Cores) -> Result<CoreRange, ConfigError> {
        let service = &self.service;
        let step = service.cores_step.unwrap_or(match service.lever {
            Lever::Quota => 0.1,
            Lever::Cpuset => 1.0,
        });
        if service.lever == Lever::Cpuset && step.fract() != 0.0 {
            let why = format!("is {step}: a cpuset has whole cores only (or set lever = \"quota\")");
            return Err(document.error("service.cores_step", why));
        }
        let max = service.cores_max.unwrap_or(machine_cores.get());
        if max > machine_cores.get() {
            let why = format!("is {max}: at most {} cores can be had here", machine_cores.get());
            return Err(document.error("service.cores_max", why));
        }
        let min = service.cores_min.unwrap_or_else(|| (2.0 * step).min(max));
        let key = match step > 0.0 && step <= max {
            true => "service.cores_min",
            false => "service.cores_step",
        };
        CoreRange::new(Cores::new(min), Cores::new(max), Cores::new(step))
            .map_err(|error| document.error(key, error))
    }

    /// What can be allocated: cores and the power that they can need.
    ///
    /// # Errors
    /// Figures of power that cannot be, with their line.
    pub fn plant(
        &self,
        document: &Document,
        cores: CoreRange,
        power: PowerEnvelope,
    ) -> Result<Plant, ConfigError> {
        let plant = Plant::new(cores, power).map_err(|error| document.error("machine", error))?;
        Ok(match self.service.lever {
            Lever::Quota => plant,
            Lever::Cpuset => plant.with_parking(),
        })
    }

    /// All that is wrong with what the file says, without a look at the machine.
    fn check(&self, document: &Document, mistakes: &mut Mistakes) {
        mistakes.of(self.slo(document));
        match (&self.gateway, &self.telemetry) {
            (None, None) if self.oncall.is_some() => {}
            (None, None) => {
                let why = "is missing: without it nothing is seen of the requests. Where another proxy is in front \
                           of the service, [telemetry] says how to listen to it; where `headroom wrap --steered` started the server, \
                           [oncall] names it";
                mistakes.push(document.error("gateway", why));
            }
            (Some(_), Some(_)) => {
                let why = "conflicts with [gateway]: the gateway is its own telemetry. Remove one of the two";
                mistakes.push(document.error("telemetry", why));
            }
            (None, Some(telemetry)) => drop(mistakes.of(telemetry.check(document))),
            (Some(_), None) => self.check_gateway(document, mistakes),
        }
        let service = &self.service;
        mistakes.of(service.check(document));
        // What is wrong on the largest machine is wrong on all.
        mistakes.of(self.core_range(
            document,
            MOST_CORES.max(service.cores_max.map_or(MOST_CORES, Cores::new)),
        ));
        mistakes.of(self.power.check(document));
        let rate = service.requests_per_core_s.unwrap_or(1.0);
        mistakes.of(document.within(&[
            ("service.quota_period_ms", service.quota_period_ms, 1.0, 1_000.0),
            ("service.calibrate_s", service.calibrate_s, 0.1, 86_400.0),
            ("service.requests_per_core_s", rate, 1e-6, 1e9),
        ]));
        mistakes.of(self.control.check(document));
        mistakes.of(self.record.check(document));
        if let Some(oncall) = &self.oncall {
            oncall.check(true, document, mistakes);
            oncall.check_laws(&self.law, document, mistakes);
        }
        for error in self.law.mistakes() {
            mistakes.push(document.error(&error.key, error.why));
        }
    }

    fn check_gateway(&self, document: &Document, mistakes: &mut Mistakes) {
        for key in ["failed_status", "target_ms"] {
            if document.has("gateway", key) {
                let why = format!("belongs to the SLO: give slo.{key}");
                mistakes.push(document.error(&format!("gateway.{key}"), why));
            }
        }
        let Some(mut gateway) = self.gateway_to_run() else {
            return;
        };
        if mistakes.hide("slo.target_ms", document) {
            gateway.target_ms = None;
        }
        leave_out_unknown_classes(&mut gateway, document, mistakes);
        for error in gateway.mistakes() {
            let (key, why) = door::gateway_objection(&gateway, &error);
            mistakes.push(document.error(&key, why));
        }
    }
}

/// Leaves the classes of importance out where one of them is not understood: a class that lost its conditions would be taken for one
/// that has none.
pub fn leave_out_unknown_classes(gateway: &mut GatewayConfig, document: &Document, mistakes: &Mistakes) {
    if mistakes.hide("gateway.admission.classes", document) {
        gateway.admission.classes.clear();
    }
}

impl ControlConfig {
    /// Length of a period.
    pub fn period(&self) -> Duration {
        Duration::from_secs_f64(self.period_ms / 1e3)
    }

    /// The shares of failed requests at which the guardian acts.
    pub fn failing(&self) -> FailingLimits {
        FailingLimits {
            hold: Ratio::from_percent(self.failing_hold_percent),
            full: Ratio::from_percent(self.failing_full_percent),
            ..FailingLimits::DEFAULT
        }
    }

    fn check(&self, document: &Document) -> Result<(), ConfigErrors> {
        let hold = self.failing_hold_percent;
        document.within(&[
            ("control.period_ms", self.period_ms, 100.0, 60_000.0),
            ("control.recall_days", self.recall_days, 0.0, 365.0),
            ("control.failing_hold_percent", hold, 0.0, 100.0),
            (
                "control.failing_full_percent",
                self.failing_full_percent,
                hold,
                100.0,
            ),
        ])
    }
}

impl RecordConfig {
    /// What of it is kept.
    pub fn limits(&self) -> Limits {
        Limits {
            max_age: Duration::from_secs_f64(self.max_age_days * 86_400.0),
            max_bytes: (self.max_mib * 1024.0 * 1024.0) as u64,
        }
    }

    fn check(&self, document: &Document) -> Result<(), ConfigErrors> {
        // A century, and an exbibyte: above these, a time or a size is a mistake.
        document.within(&[
            ("record.max_age_days", self.max_age_days, 1e-6, 36_525.0),
            ("record.max_mib", self.max_mib, 1.0, 1_099_511_627_776.0),
        ])
    }
}

impl ServiceConfig {
    /// The key that names the service.
    pub fn target_key(&self) -> &'static str {
        match self.target() {
            TargetSpec::Path(_) => "service.cgroup",
            TargetSpec::Unit(_) => "service.systemd_unit",
            TargetSpec::Container(_) => "service.container",
            TargetSpec::Pid(_) => "service.pid",
        }
    }

    /// How the service is named.
    pub fn target(&self) -> TargetSpec {
        // The check at parsing has seen to it that exactly one is given.
        match (&self.cgroup, &self.systemd_unit, &self.container) {
            (Some(path), ..) => TargetSpec::Path(path.to_string_lossy().into_owned()),
            (_, Some(unit), _) => TargetSpec::Unit(unit.clone()),
            (.., Some(id)) => TargetSpec::Container(id.clone()),
            _ => TargetSpec::Pid(self.pid.unwrap_or_default()),
        }
    }

    fn check(&self, document: &Document) -> Result<(), ConfigError> {
        let named = [
            ("cgroup", self.cgroup.is_some()),
            ("systemd_unit", self.systemd_unit.is_some()),
            ("container", self.container.is_some()),
            ("pid", self.pid.is_some()),
        ];
        let given: Vec<&str> = named
            .iter()
            .filter(|(_, given)| *given)
            .map(|(name, _)| *name)
            .collect();
        if given.len() != 1 {
            let found = if given.is_empty() {
                "none".to_owned()
            } else {
                given.join(" and ")
            };
            let why =
                format!("name the service by one of cgroup, systemd_unit, container, pid; here: {found}");
            return Err(document.error("service", why));
        }
        Ok(())
    }
}

#[cfg(test)]
pub mod example_tests;
#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
