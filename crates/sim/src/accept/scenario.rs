//! What a cluster with accept queues is made of.

use crate::error::ScenarioError;
use crate::scenario::Limits;
use headroom_control::capacity::{QueueKind, QueueTuning};
use headroom_control::resize::{Maintenance, PowerTuning, ServerPower};
use headroom_workload::{ArrivalProcess, Shape};
use serde::{Deserialize, Serialize};

/// The most servers: events are looked up in a tree over them.
const MAX_SERVERS: usize = 4_096;

/// When a client sends a connection attempt again that was not answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SynRetries {
    /// After 3, 6, 12, 24 and 48 s: the paper's platform, Linux 2.4, and all up to 3.0.
    Linux2007,
    /// After 1, 2, 4, 8, 16 and 32 s: Linux from 3.1, with the initial timeout of RFC 6298.
    Linux31,
    /// After 1 s five times, then 2, 4, 8, 16 and 32 s: Linux from 6.5, where `tcp_syn_linear_timeouts` is 4.
    #[default]
    Linux65,
    /// Never: an attempt that is dropped is a request lost, as in the loss formulas.
    Never,
}

impl SynRetries {
    /// The times between attempts, seconds.
    pub const fn waits_s(self) -> &'static [f64] {
        match self {
            Self::Linux2007 => &[3.0, 6.0, 12.0, 24.0, 48.0],
            Self::Linux31 => &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
            Self::Linux65 => &[1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
            Self::Never => &[],
        }
    }
}

/// What the live loop can lack or be asked for, from `at_s` to `until_s`, seconds from the start.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum AcceptFault {
    /// The balancer cannot be asked: requests go on as they did, and nobody who is up may go.
    BalancerLost {
        /// From.
        at_s: f64,
        /// Until.
        until_s: f64,
    },
    /// A server's accept queue cannot be read.
    QueueUnread {
        /// The server's number, from 0.
        server: usize,
        /// From.
        at_s: f64,
        /// Until.
        until_s: f64,
    },
    /// Servers die with what they hold: they are powered, and answer nothing until they were switched off and on.
    ServersLost {
        /// The first one's number, from 0.
        first: usize,
        /// How many.
        count: usize,
        /// From.
        at_s: f64,
        /// Until: one that comes back before dies again.
        until_s: f64,
    },
    /// An operator takes a server out, and gives it back at the end.
    TakenOut {
        /// The server's number, from 0.
        server: usize,
        /// How.
        how: Maintenance,
        /// From.
        at_s: f64,
        /// Until.
        until_s: f64,
    },
    /// Servers that are powered on do not come up.
    BootsHang {
        /// Of the run's boots each so-manieth, 1 for all.
        every: u32,
        /// From.
        at_s: f64,
        /// Until.
        until_s: f64,
    },
}

impl AcceptFault {
    /// Whether it is there at a time.
    pub(super) fn is_at(&self, now_s: f64) -> bool {
        let (Self::BalancerLost { at_s, until_s }
        | Self::QueueUnread { at_s, until_s, .. }
        | Self::ServersLost { at_s, until_s, .. }
        | Self::TakenOut { at_s, until_s, .. }
        | Self::BootsHang { at_s, until_s, .. }) = *self;
        (at_s..until_s).contains(&now_s)
    }
}

/// A cluster and its load. By default five of the paper's servers, each with the capacity of Section 7.4.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AcceptScenario {
    /// When new requests come.
    pub arrivals: ArrivalProcess,
    /// Simulated time, seconds.
    pub duration_s: f64,
    /// T, seconds between two samples and decisions.
    pub step_s: f64,
    /// How many servers there are.
    pub servers: usize,
    /// How many of them serve at the beginning, the first ones.
    pub serving: usize,
    /// K, places of each accept queue.
    pub backlog: u32,
    /// Worker processes of each server.
    pub workers: u32,
    /// CPUs of each server.
    pub cores: f64,
    /// Mean CPU time of a request, seconds.
    pub cpu_s: f64,
    /// How CPU times are distributed.
    pub cpu: Shape,
    /// Mean time that a request waits for something else, seconds.
    pub wait_s: f64,
    /// How those waits are distributed.
    pub wait: Shape,
    /// What clients do that were turned away.
    pub retries: SynRetries,
    /// From power on to the first answer, seconds.
    pub boot_s: f64,
    /// From the order to power off to off, seconds.
    pub shutdown_s: f64,
    /// What servers draw.
    pub power: ServerPower,
    /// The parameters of each server's capacity estimate.
    pub queue: QueueTuning,
    /// The time limits of the servers' power states.
    pub power_states: PowerTuning,
    /// What the loop lacks, and when.
    pub faults: Vec<AcceptFault>,
    /// What ends a run that would not end.
    pub limits: Limits,
}

impl Default for AcceptScenario {
    fn default() -> Self {
        Self {
            arrivals: ArrivalProcess::Poisson { rate_per_s: 500.0 },
            duration_s: 3_600.0,
            step_s: 1.0,
            servers: 5,
            serving: 1,
            backlog: 128,
            workers: 256,
            cores: 1.0,
            cpu_s: 1.0 / 595.0,
            cpu: Shape::Exponential {},
            wait_s: 0.0,
            wait: Shape::Deterministic {},
            retries: SynRetries::default(),
            boot_s: 60.0,
            shutdown_s: 60.0,
            power: ServerPower::default(),
            queue: QueueTuning {
                kind: QueueKind::Published,
                ..QueueTuning::default()
            },
            power_states: PowerTuning::default(),
            faults: Vec::new(),
            limits: Limits::default(),
        }
    }
}

impl AcceptScenario {
    /// Checks the figures.
    ///
    /// # Errors
    /// [`ScenarioError`] with the key.
    pub fn check(&self) -> Result<(), ScenarioError> {
        let ranges = [
            ("duration_s", self.duration_s, 1.0, 1e9),
            ("step_s", self.step_s, 0.001, self.duration_s.min(3_600.0)),
            ("cores", self.cores, 0.01, 4_096.0),
            ("cpu_s", self.cpu_s, 1e-9, 3_600.0),
            ("wait_s", self.wait_s, 0.0, 3_600.0),
            ("boot_s", self.boot_s, 0.0, 86_400.0),
            ("shutdown_s", self.shutdown_s, 0.0, 86_400.0),
            ("power.idle_w", self.power.idle_w, 0.0, 1e5),
            ("power.full_w", self.power.full_w, self.power.idle_w, 1e5),
            ("power.booting_w", self.power.booting_w, 0.0, 1e5),
            ("power.shutting_down_w", self.power.shutting_down_w, 0.0, 1e5),
            ("power.off_w", self.power.off_w, 0.0, 1e5),
            ("servers", self.servers as f64, 1.0, MAX_SERVERS as f64),
            ("serving", self.serving as f64, 1.0, self.servers as f64),
            ("backlog", f64::from(self.backlog), 1.0, 65_535.0),
            ("workers", f64::from(self.workers), 1.0, 1e6),
        ];
        for (key, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                let why = format!("is {value}: it must be between {least} and {most}");
                return Err(ScenarioError::new(key, why));
            }
        }
        self.arrivals.check("arrivals")?;
        self.cpu.check("cpu")?;
        self.wait.check("wait")?;
        let tuning = |table: &str, error: headroom_control::OutOfRange| {
            ScenarioError::new(
                format!("{table}.{}", error.key),
                format!("{}: it must be {}", error.is(), error.range),
            )
        };
        self.queue.check().map_err(|error| tuning("queue", error))?;
        self.power_states
            .check()
            .map_err(|error| tuning("power_states", error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_a_world_and_what_is_none_is_named() {
        assert_eq!(AcceptScenario::default().check(), Ok(()));
        let scenario: AcceptScenario = toml::from_str("backlog = 511\nretries = \"linux2007\"").unwrap();
        assert_eq!((scenario.backlog, scenario.workers), (511, 256));
        for (text, said) in [
            ("workers = 0", "workers: is 0"),
            (
                "duration_s = 5.0\nstep_s = 10.0",
                "step_s: is 10: it must be between 0.001 and 5",
            ),
            ("serving = 6", "serving: is 6: it must be between 1 and 5"),
            (
                "power = { idle_w = 60.0, full_w = 10.0, booting_w = 65.0, shutting_down_w = 60.0, off_w = 0.0 }",
                "power.full_w: is 10",
            ),
            ("queue.keep = 1.0", "queue.keep: is 1: it must be"),
            ("power_states.backoff_s = 0.0", "power_states.backoff_s: is 0"),
        ] {
            let scenario: AcceptScenario = toml::from_str(text).unwrap();
            let error = scenario.check().unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
        assert!(toml::from_str::<AcceptScenario>("backlogs = 5").is_err());
    }

    /// The times that the paper prints, and those of the kernel's own documentation of `tcp_syn_retries`.
    #[test]
    fn clients_give_up_when_their_kernels_do() {
        let sum = |retries: SynRetries| retries.waits_s().iter().sum::<f64>();
        assert_eq!(sum(SynRetries::Linux2007), 93.0);
        assert_eq!(sum(SynRetries::Linux31), 63.0);
        assert_eq!(sum(SynRetries::Linux65), 67.0);
    }
}
