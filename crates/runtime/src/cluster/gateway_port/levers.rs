//! The levers of a gateway: what can be set of it over its control port for the length of a lease, after which it is as configured.

use headroom_gateway::{GatewayConfig, Handle};
use headroom_units::{Lever, LeverRange};
use headroom_wire::message::{GatewayLever, LeverSetting, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
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

/// What was set last.
#[derive(Default)]
struct Held {
    settings: Vec<LeverSetting>,
    /// Counts what was asked for: a lease that ends after something newer was asked for ends nothing.
    asked: u64,
    /// What waits for the end of the lease: one, however often it is renewed.
    ends: Option<AbortHandle>,
}

impl Held {
    /// Something newer is asked for: the lease before it ends nothing any more. Its number.
    fn ask(&mut self) -> u64 {
        if let Some(ends) = self.ends.take() {
            ends.abort();
        }
        self.asked += 1;
        self.asked
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

    /// Sets those that are named, which were checked, for the length of the lease, and all others to what is configured; whether that is
    /// other than what was set before.
    pub fn set(self: &Arc<Self>, settings: Vec<LeverSetting>, lease: Option<Duration>) -> bool {
        let mut held = self.held();
        let asked = held.ask();
        if let Some(lease) = lease {
            let levers = Arc::clone(self);
            let ends = tokio::spawn(async move {
                tokio::time::sleep(lease).await;
                levers.end(asked);
            });
            held.ends = Some(ends.abort_handle());
        }
        let changed = held.settings != settings;
        if changed {
            held.settings = settings;
            self.put(&held.settings);
        }
        changed
    }

    /// Everything is as configured where nothing was asked for since.
    fn end(&self, asked: u64) {
        let mut held = self.held();
        if held.asked == asked {
            tracing::warn!("no controller has renewed what it set: the gateway's levers are as configured");
            held.settings.clear();
            self.put(&[]);
        }
    }

    /// Everything is as configured.
    pub fn release(&self) {
        let mut held = self.held();
        held.ask();
        held.settings.clear();
        self.put(&[]);
    }

    fn put(&self, settings: &[LeverSetting]) {
        for kind in &KINDS {
            let Some((_, configured)) = (kind.configured)(self.gateway.config()) else {
                continue;
            };
            let named = settings.iter().find(|setting| setting.lever == kind.lever.name());
            (kind.set)(&self.gateway, named.map_or(configured, |setting| setting.value));
        }
    }
}
