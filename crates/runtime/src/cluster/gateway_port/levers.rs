//! The levers of a gateway: what can be set of it over its control port for the length of a lease, after which it is as configured.

use headroom_gateway::{GatewayConfig, Handle};
use headroom_units::{Lever, LeverRange};
use headroom_wire::message::{GatewayLever, LeverSetting, Range};
use headroom_wire::server::Peer;
use headroom_wire::{Refusal, Server};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// A lever that gateways can have.
struct Kind {
    lever: Lever,
    /// The values that it takes by a configuration, and the one that is configured; `None` where there is nothing to set.
    configured: fn(&GatewayConfig) -> Option<(LeverRange, f64)>,
    now: fn(&Handle) -> Option<f64>,
    set: fn(&Handle, f64),
}

const KINDS: [Kind; 2] = [
    Kind {
        lever: Lever::BatchInterval,
        configured: |config| {
            let most = config.max_batch_interval()?.as_secs_f64();
            let interval = Duration::from_millis(config.batch.interval_ms?);
            Some((LeverRange::between(0.0, most), interval.as_secs_f64()))
        },
        now: |gateway| Some(gateway.batch_interval()?.as_secs_f64()),
        set: |gateway, seconds| {
            gateway.set_batch_interval(Duration::from_secs_f64(seconds));
        },
    },
    Kind {
        lever: Lever::CacheSize,
        configured: |config| {
            let range = config.cache_bytes_range()?;
            let (least, most) = (*range.start() as f64, *range.end() as f64);
            Some((LeverRange::between(least, most), most))
        },
        now: |gateway| Some(gateway.cache_bytes()? as f64),
        set: |gateway, bytes| {
            gateway.set_cache_bytes(bytes as u64);
        },
    },
];

/// The levers that a gateway of this configuration has, each with the values that it takes.
pub fn levers_of(config: &GatewayConfig) -> Vec<(Lever, LeverRange)> {
    let of_kind = |kind: &Kind| Some((kind.lever, (kind.configured)(config)?.0));
    KINDS.iter().filter_map(of_kind).collect()
}

/// What one peer set.
struct Holding {
    /// `None` for one that is not known.
    peer: Option<Peer>,
    settings: Vec<LeverSetting>,
    /// A lease that ends after something newer was asked for over the same connection ends nothing.
    number: u64,
    until: Instant,
    /// What waits for the end of the lease: one, however often it is renewed.
    ends: AbortHandle,
}

impl Holding {
    /// Whether its levers are not for others: one whose connection has ended renews nothing, and whoever comes next, as the same
    /// controller does over a new connection, need not wait for the end of its lease.
    fn is_live(&self) -> bool {
        self.peer.as_ref().is_none_or(Peer::is_connected)
    }

    fn sets(&self, lever: &str) -> bool {
        self.settings.iter().any(|setting| setting.lever == lever)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.ends.abort();
    }
}

/// What is set, by whom: of each lever one peer at most.
#[derive(Default)]
struct Held {
    holdings: Vec<Holding>,
    /// Counts what was asked for.
    asked: u64,
}

impl Held {
    /// Refuses what another peer's live lease holds.
    fn check(&self, peer: Option<&Peer>, settings: &[LeverSetting]) -> Result<(), Refusal> {
        let mut others = self
            .holdings
            .iter()
            .filter(|held| held.peer.as_ref() != peer && held.is_live());
        let taken = others.find_map(|held| {
            let lever = settings.iter().find(|setting| held.sets(&setting.lever))?;
            Some((held, &lever.lever))
        });
        let Some((held, lever)) = taken else {
            return Ok(());
        };
        let holder = held
            .peer
            .as_ref()
            .map_or_else(|| "somebody else".to_owned(), ToString::to_string);
        let left = held.until.saturating_duration_since(Instant::now()).as_secs_f64();
        Err(Refusal::Busy {
            server: Server::Gateway,
            what: format!(
                "controller that sets {lever} (it is held by {holder} for another {left:.1} s unless renewed)"
            ),
            limit: 1,
        })
    }

    fn setting(&self, lever: Lever) -> Option<f64> {
        let mut all = self.holdings.iter().flat_map(|held| &held.settings);
        Some(all.find(|setting| setting.lever == lever.name())?.value)
    }
}

/// The levers of a running gateway.
pub(super) struct Levers {
    gateway: Arc<Handle>,
    held: Mutex<Held>,
}

impl Levers {
    pub fn new(gateway: Arc<Handle>) -> Self {
        Self {
            gateway,
            held: Mutex::default(),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What can be set.
    pub fn offered(&self) -> Vec<GatewayLever> {
        let config = self.gateway.config();
        let offered = |kind: &Kind| {
            let (range, configured) = (kind.configured)(config)?;
            let info = kind.lever.info();
            Some(GatewayLever {
                name: info.name.to_owned(),
                unit: info.unit.to_owned(),
                range: Range::new(range.min, range.max),
                configured,
            })
        };
        KINDS.iter().filter_map(offered).collect()
    }

    /// The value of each now.
    pub fn now(&self) -> Vec<LeverSetting> {
        let now = |kind: &Kind| {
            Some(LeverSetting {
                lever: kind.lever.name().to_owned(),
                value: (kind.now)(&self.gateway)?,
            })
        };
        KINDS.iter().filter_map(now).collect()
    }

    /// Sets those that are named, which were checked, for the length of the lease, and all others that this peer set to what is
    /// configured; whether that is other than what was set before.
    ///
    /// # Errors
    /// A lever that another peer's live lease holds; nothing is changed then.
    pub fn set(
        self: &Arc<Self>,
        peer: Option<Peer>,
        settings: Vec<LeverSetting>,
        lease: Option<Duration>,
    ) -> Result<bool, Refusal> {
        let mut held = self.held();
        held.check(peer.as_ref(), &settings)?;
        let before = held.holdings.iter().find(|one| one.peer == peer);
        let changed = before.map_or(&[][..], |one| &one.settings) != settings;
        held.holdings.retain(|one| one.peer != peer);
        // Those whose holder is gone are this peer's from now on.
        for other in &mut held.holdings {
            other
                .settings
                .retain(|one| settings.iter().all(|new| new.lever != one.lever));
        }
        held.holdings.retain(|one| !one.settings.is_empty());
        held.asked += 1;
        let number = held.asked;
        if let Some(lease) = lease {
            let levers = Arc::clone(self);
            let ends = tokio::spawn(async move {
                tokio::time::sleep(lease).await;
                levers.end(number);
            });
            held.holdings.push(Holding {
                peer,
                settings,
                number,
                until: Instant::now() + lease,
                ends: ends.abort_handle(),
            });
        }
        if changed {
            self.put(&held);
        }
        Ok(changed)
    }

    /// What this lease was of is as configured.
    fn end(&self, number: u64) {
        let mut held = self.held();
        let Some(at) = held.holdings.iter().position(|one| one.number == number) else {
            return;
        };
        let ended = held.holdings.swap_remove(at);
        let levers: Vec<&str> = ended.settings.iter().map(|one| one.lever.as_str()).collect();
        tracing::warn!(
            "no controller has renewed what it set: of the gateway {} is as configured",
            levers.join(", ")
        );
        self.put(&held);
    }

    /// Everything is as configured.
    pub fn release(&self) {
        let mut held = self.held();
        held.holdings.clear();
        self.put(&held);
    }

    fn put(&self, held: &Held) {
        for kind in &KINDS {
            let Some((_, configured)) = (kind.configured)(self.gateway.config()) else {
                continue;
            };
            (kind.set)(&self.gateway, held.setting(kind.lever).unwrap_or(configured));
        }
    }
}

#[cfg(test)]
#[path = "levers_tests.rs"]
mod tests;
