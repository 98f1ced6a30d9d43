//! The levers of a gateway: what can be set of it over its control port for the length of a lease, after which it is as configured.

use headroom_gateway::{GatewayConfig, Handle};
use headroom_units::{Lever, LeverRange};
use headroom_wire::message::{ClassRoute, GatewayLever, LeverSetting, Range};
use headroom_wire::server::Peer;
use headroom_wire::{Invalid, Refusal, Server};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// A lever that gateways can have.
struct Kind {
    lever: Lever,
    /// The values that it takes by a configuration, and the one that is configured; `None` where there is nothing to set.
    configured: fn(&GatewayConfig) -> Option<(LeverRange, f64)>,
    now: fn(&Handle) -> Option<f64>,
    /// With where the classes of sizes are to go, for the lever that puts that in force.
    set: fn(&Handle, f64, &[ClassRoute]),
}

const KINDS: [Kind; 3] = [
    Kind {
        lever: Lever::BatchInterval,
        configured: |config| {
            let most = config.max_batch_interval()?.as_secs_f64();
            let interval = Duration::from_millis(config.batch.interval_ms?);
            Some((LeverRange::between(0.0, most), interval.as_secs_f64()))
        },
        now: |gateway| Some(gateway.batch_interval()?.as_secs_f64()),
        set: |gateway, seconds, _| {
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
        set: |gateway, bytes, _| {
            gateway.set_cache_bytes(bytes as u64);
        },
    },
    Kind {
        lever: Lever::Placement,
        configured: |config| (config.sizes.classes() > 0).then(|| (LeverRange::between(0.0, 1.0), 0.0)),
        now: |gateway| {
            let is_there = gateway.config().sizes.classes() > 0;
            is_there.then(|| if gateway.routes().is_empty() { 0.0 } else { 1.0 })
        },
        set: |gateway, value, routes| {
            let routes = if places(value) {
                of_message(routes)
            } else {
                Vec::new()
            };
            if let Err(error) = gateway.set_routes(routes) {
                // They were checked when they came.
                tracing::error!("the weights of the classes of sizes were not set: {error}");
            }
        },
    },
];

/// Routes as the gateway takes them.
fn of_message(routes: &[ClassRoute]) -> Vec<headroom_gateway::ClassRoute> {
    let route = |route: &ClassRoute| headroom_gateway::ClassRoute {
        weights: route.weights.clone(),
        most_in_flight: route.most_in_flight.clone(),
    };
    routes.iter().map(route).collect()
}

/// Whether this value of the lever that places requests puts weights in force.
fn places(value: f64) -> bool {
    value >= 0.5
}

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
    /// Where the classes of sizes go, as long as the lever for that is among these.
    routes: Vec<ClassRoute>,
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

    /// What the holder of the lever that places requests set.
    fn routes(&self) -> &[ClassRoute] {
        let holder = self
            .holdings
            .iter()
            .find(|held| held.sets(Lever::Placement.name()));
        holder.map_or(&[], |held| &held.routes)
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

    /// Whether weights come with the lever that puts them in force, and it with them, and they fit the gateway.
    fn check_routes(&self, settings: &[LeverSetting], routes: &[ClassRoute]) -> Result<(), Refusal> {
        let placement = settings.iter().find(|one| one.lever == Lever::Placement.name());
        let is_placed = placement.is_some_and(|one| places(one.value));
        if is_placed == routes.is_empty() {
            let expected = match is_placed {
                true => "weights of each class of sizes, for the lever placement is 1",
                false => "none, for the lever placement is not 1",
            };
            return Err(Invalid::new("routes", format!("{} long", routes.len()), expected).into());
        }
        self.gateway.check_routes(&of_message(routes)).map_err(|error| {
            let expected = "weights of each of its classes of sizes for each of its backends";
            Invalid::new("routes", error, expected).into()
        })
    }

    /// Sets those that are named, which were checked, for the length of the lease, and all others that this peer set to what is
    /// configured; whether that is other than what was set before.
    ///
    /// # Errors
    /// A lever that another peer's live lease holds, weights that do not fit; nothing is changed then.
    pub fn set(
        self: &Arc<Self>,
        peer: Option<Peer>,
        settings: Vec<LeverSetting>,
        routes: Vec<ClassRoute>,
        lease: Option<Duration>,
    ) -> Result<bool, Refusal> {
        self.check_routes(&settings, &routes)?;
        let mut held = self.held();
        held.check(peer.as_ref(), &settings)?;
        let before = held.holdings.iter().find(|one| one.peer == peer);
        let changed = before.map_or(&[][..], |one| &one.settings) != settings
            || before.map_or(&[][..], |one| &one.routes) != routes;
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
                routes,
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
            let value = held.setting(kind.lever).unwrap_or(configured);
            (kind.set)(&self.gateway, value, held.routes());
        }
    }
}

#[cfg(test)]
#[path = "levers_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "placement_tests.rs"]
pub(crate) mod placement_tests;
