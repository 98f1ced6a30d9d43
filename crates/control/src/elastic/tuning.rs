//! The parameters of the elastic law.

use crate::parameter::{Bound, OutOfRange, Parameters, refused};
use crate::resize::{MAX_SERVERS, PowerTuning, ServerPower};
use headroom_physics::ServerFigures;
use headroom_units::{Seconds, Watts};
use serde::{Deserialize, Serialize};

/// A day.
const DAY_S: f64 = 86_400.0;

/// What the law knows of one server before it was observed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerTraits {
    /// Servers of the same number are equal machines.
    pub kind: usize,
    /// What may fail together: a rack, a supply, a zone of a cloud. Those without are in one.
    pub zone: usize,
    /// What it draws at full load; `None` where all draw alike.
    pub full: Option<Watts>,
}

/// The parameters of [`Elastic`](super::Elastic). The keys are those of the configuration file's `[law.elastic]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ElasticTuning {
    /// The fewest servers that are on. 1.
    pub min_servers: usize,
    /// N+1: so many of the servers that serve may be lost at once, and the others still take what comes. 0.
    pub reserve: usize,
    /// Whether all servers of one zone may be lost at once. `false`.
    pub survive_zone: bool,
    /// The share of the capacity that is kept free. 0.1.
    pub margin: f64,
    /// How rarely the load may grow beyond what is kept on until another server could serve: a share of the time. 0.01.
    pub exceeded: f64,
    /// So many times today's load is always provided for. 1.
    pub surge: f64,
    /// The most servers that boot at once. 4096, as many as there are.
    pub starts_at_once: usize,
    /// After how long the load comes again as it came, seconds: a day, or a week (604800); 0: nothing is learned of that. 86400.
    pub day_s: f64,
    /// What a server takes to boot, until one was observed to, seconds. 120.
    pub boot_s: f64,
    /// After a start nothing is switched off for so long, beyond what the energy of a boot asks for, seconds. 0.
    pub cooldown_s: f64,
    /// A server that can be spared is drained first and stays on for so long, so that it comes back at once where the others are in
    /// difficulty, seconds. 30.
    pub trial_s: f64,
    /// Seconds without the arrival rate after which all servers are turned on. 10.
    pub blind_s: f64,
    /// What servers draw, of `[energy]`; the paper's figures where that is not given.
    #[serde(skip)]
    pub power: ServerPower,
    /// What a shutdown takes, of `[power]`, seconds.
    #[serde(skip)]
    pub shutdown_s: f64,
    /// Each server, in their order; those beyond its end are equal.
    #[serde(skip)]
    pub servers: Vec<ServerTraits>,
}

impl Default for ElasticTuning {
    fn default() -> Self {
        Self {
            min_servers: 1,
            reserve: 0,
            survive_zone: false,
            margin: 0.1,
            exceeded: 0.01,
            surge: 1.0,
            starts_at_once: MAX_SERVERS,
            day_s: DAY_S,
            boot_s: 120.0,
            cooldown_s: 0.0,
            trial_s: 30.0,
            blind_s: 10.0,
            power: ServerPower::default(),
            shutdown_s: PowerTuning::default().shutdown_s,
            servers: Vec::new(),
        }
    }
}

impl ElasticTuning {
    /// How long a server must be away to be worth its boot, by the energy of a shutdown and a boot that takes so long; infinite where
    /// being off draws as much as idling (METHODS, section 10).
    pub(super) fn break_even_s(&self, boot_s: f64) -> f64 {
        let power = &self.power;
        let server = ServerFigures {
            off: Watts::new(power.off_w),
            booting: Watts::new(power.booting_w),
            boot: Seconds::new(boot_s),
            shutting_down: Watts::new(power.shutting_down_w),
            shutdown: Seconds::new(self.shutdown_s),
        };
        server
            .break_even(Watts::new(power.idle_w))
            .map_or(f64::INFINITY, Seconds::get)
            .max(self.cooldown_s)
    }

    /// What is subtracted from what servers take together, in words: ` with 1 lost and 10 % kept free`.
    pub(super) fn kept_free(&self) -> String {
        let lost = match (self.survive_zone, self.reserve) {
            (false, 0) => None,
            (false, servers) => Some(format!("{servers} lost")),
            (true, 0 | 1) => Some("a zone lost".to_owned()),
            (true, servers) => Some(format!("a zone or {servers} lost")),
        };
        let free = (self.margin > 0.0).then(|| format!("{:.0} % kept free", 1e2 * self.margin));
        let all: Vec<String> = lost.into_iter().chain(free).collect();
        match all.is_empty() {
            true => String::new(),
            false => format!(" with {}", all.join(" and ")),
        }
    }

    /// Whether servers may be lost and the others still take what comes.
    pub(super) const fn may_lose(&self) -> bool {
        self.reserve > 0 || self.survive_zone
    }

    pub(super) fn traits(&self, server: usize) -> ServerTraits {
        self.servers.get(server).copied().unwrap_or_default()
    }
}

impl Parameters for ElasticTuning {
    fn outside(&self) -> Vec<OutOfRange> {
        let servers = |key, least: f64, servers: usize| {
            Bound::Between(least, MAX_SERVERS as f64).check(key, servers as f64)
        };
        let within_a_day = |key, value| Bound::Seconds(0.0, DAY_S).check(key, value);
        refused([
            servers("min_servers", 1.0, self.min_servers),
            servers("reserve", 0.0, self.reserve),
            servers("starts_at_once", 1.0, self.starts_at_once),
            Bound::BelowOne.check("margin", self.margin),
            Bound::Between(1e-4, 0.5).check("exceeded", self.exceeded),
            Bound::Between(1.0, 1e3).check("surge", self.surge),
            Bound::Seconds(0.0, 31.0 * DAY_S).check("day_s", self.day_s),
            Bound::Seconds(0.0, 3_600.0).check("boot_s", self.boot_s),
            within_a_day("cooldown_s", self.cooldown_s),
            within_a_day("trial_s", self.trial_s),
            within_a_day("blind_s", self.blind_s),
        ])
    }
}
