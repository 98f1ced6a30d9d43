//! The levers of gateways as a device of the control loop: each has what the laws decide, for the length of a lease that is renewed
//! with every decision; without one it is as configured.

use super::roster::{Gateway, Roster};
use super::state::GatewayState;
use super::{SizedOrder, member};
use crate::live::{Device, DevicePeriod};
use anyhow::bail;
use headroom_control::Decision;
use headroom_control::placement::Routes;
use headroom_node::restore;
use headroom_units::{Gives, Lever, LeverRange, Part, Role, Setting, Spread};
use headroom_wire::Refusal;
use headroom_wire::client::{CallError, GatewayClient};
use headroom_wire::message::{Backend, ClassRoute, GatewayLever, LeverSetting};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the answers of gateways are waited for at most; a controller's periods are not shorter.
const MAX_PATIENCE: Duration = Duration::from_millis(50);

/// Where the classes of sizes go, and which backend each is.
#[derive(Clone, Debug, Default)]
struct WantedRoutes {
    urls: Vec<String>,
    routes: Routes,
    /// Gateways that share what each backend may have in flight.
    gateways: u32,
}

impl WantedRoutes {
    /// The routes for a gateway with these backends, in their order; one that they do not name has no weight. Of a bound on requests in flight
    /// each gateway has an equal part, one at least.
    fn of(&self, backends: &[Backend]) -> Vec<ClassRoute> {
        let places: Vec<Option<usize>> = backends
            .iter()
            .map(|backend| {
                self.urls
                    .iter()
                    .position(|url| member(url) == member(&backend.url))
            })
            .collect();
        let row = |of: &Vec<u32>| -> Vec<u32> {
            let one = |place: &Option<usize>| place.and_then(|place| of.get(place)).copied().unwrap_or(0);
            places.iter().map(one).collect()
        };
        let weights = self.routes.weights.iter().enumerate();
        let route = |(class, weights): (usize, &Vec<u32>)| ClassRoute {
            weights: row(weights),
            most_in_flight: match self.routes.most_in_flight.get(class) {
                None => Vec::new(),
                Some(most) => {
                    let part = |most: u32| most.div_ceil(self.gateways.max(1));
                    row(most).into_iter().map(part).collect()
                }
            },
        };
        weights.map(route).collect()
    }
}

/// What is known of one gateway's levers, and what is wanted of them.
#[derive(Clone, Debug, Default)]
pub(super) struct LeverState {
    /// What it offers.
    offered: Vec<GatewayLever>,
    /// What it said last that is in force.
    in_force: Vec<LeverSetting>,
    /// What is wanted, and for how long.
    wanted: Vec<LeverSetting>,
    /// Where the classes of sizes are to go.
    routes: WantedRoutes,
    lease: Duration,
    /// When it was decided: later than the lease is long after that it is not in force, and not to be.
    decided: Option<Instant>,
    /// Counts what was asked for, and the last of these that was answered.
    asked: u64,
    answered: u64,
    /// Why the last was refused.
    refused: Option<String>,
}

impl LeverState {
    /// The same for a new connection, over which nothing was answered.
    pub fn connected(self, offered: Vec<GatewayLever>) -> Self {
        Self {
            offered,
            in_force: Vec::new(),
            ..self
        }
    }

    /// What is wanted of this, for another gateway.
    pub fn wanted(&self) -> Self {
        Self {
            wanted: self.wanted.clone(),
            routes: self.routes.clone(),
            lease: self.lease,
            decided: self.decided,
            ..Self::default()
        }
    }

    /// Takes what a period says is in force.
    pub fn reported(&mut self, in_force: Vec<LeverSetting>) {
        self.in_force = in_force;
    }

    /// What was said last to be in force.
    pub fn setting(&self) -> Setting {
        self.in_force
            .iter()
            .fold(Setting::default(), |all, one| match Lever::named(&one.lever) {
                Some(lever) => all.with(lever, Some(one.value)),
                None => all,
            })
    }

    /// Whether anything of it was set.
    pub fn is_set(&self) -> bool {
        !self.wanted.is_empty()
    }
}

/// Asks a gateway that was just connected to, and has these backends, for what is wanted of its levers, as long as that is not older than
/// a lease.
pub(super) async fn ask_again(
    gateway: &Gateway,
    client: &GatewayClient,
    backends: &[Backend],
) -> Result<(), CallError> {
    let is_wanted = {
        let levers = &gateway.state.lock().levers;
        let is_new = |decided: Instant| decided.elapsed() < levers.lease;
        levers.is_set() && levers.decided.is_some_and(is_new)
    };
    match is_wanted {
        true => ask_with(gateway, client, backends).await,
        false => Ok(()),
    }
}

/// Asks a gateway for what is wanted of its levers.
pub(super) async fn ask(gateway: &Gateway, client: &GatewayClient) -> Result<(), CallError> {
    let backends = gateway.state.lock().backends.clone().unwrap_or_default();
    ask_with(gateway, client, &backends).await
}

async fn ask_with(gateway: &Gateway, client: &GatewayClient, backends: &[Backend]) -> Result<(), CallError> {
    let (wanted, routes, lease, asked) = {
        let levers = &gateway.state.lock().levers;
        let routes = levers.routes.of(backends);
        (levers.wanted.clone(), routes, levers.lease, levers.asked)
    };
    let answer = client.set_levers_and_routes(wanted, routes, lease).await;
    let answer = match answer {
        Ok(in_force) => Ok(in_force),
        Err(CallError::Refused(refusal @ Refusal::Busy { .. })) => Err(format!(
            "{refusal}. Two controllers cannot move one lever: stop the other one, or wait until its lease ends, or give one of the two a \
             law that leaves this lever alone"
        )),
        Err(CallError::Refused(refusal)) => Err(refusal.to_string()),
        Err(error) => return Err(error),
    };
    gateway.state.change(|state| {
        let levers = &mut state.levers;
        levers.answered = asked;
        match answer {
            Ok(in_force) => (levers.in_force, levers.refused) = (in_force, None),
            Err(why) => levers.refused = Some(why),
        }
    });
    Ok(())
}

/// The levers of all gateways: each gateway has the same value.
#[derive(Debug)]
pub struct GatewayLevers {
    roster: Arc<Roster>,
    /// Which backends the weights of a decision are of.
    sized: Arc<SizedOrder>,
    lease: Duration,
    /// Something was set, and not given back since.
    is_set: bool,
}

/// The levers that gateways have, and what keeps others from being there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OfferedLevers {
    /// The levers that each gateway has, with the values that every one of them takes.
    pub ranges: Vec<(Lever, LeverRange)>,
    /// What is missing, in words.
    pub notes: Vec<String>,
}

impl GatewayLevers {
    pub(super) const fn new(roster: Arc<Roster>, sized: Arc<SizedOrder>, lease: Duration) -> Self {
        Self {
            roster,
            sized,
            lease,
            is_set: false,
        }
    }

    /// The levers that all gateways have which are connected now.
    pub fn offered(&self) -> OfferedLevers {
        let gateways = self.roster.now();
        let connected: Vec<(String, Vec<GatewayLever>)> = gateways
            .iter()
            .filter_map(|gateway| {
                let state = gateway.state.lock();
                state.backends.as_ref()?;
                Some((gateway.name.clone(), state.levers.offered.clone()))
            })
            .collect();
        together(&connected)
    }
}

impl GatewayLevers {
    /// The weights that go with a setting: none where it places nothing.
    fn with_routes(
        &self,
        setting: Setting,
        routes: Option<&Routes>,
    ) -> anyhow::Result<(Setting, WantedRoutes)> {
        if setting.get(Lever::Placement).is_none_or(|value| value < 0.5) {
            return Ok((setting, WantedRoutes::default()));
        }
        let urls = self.sized.get();
        let routes = routes.cloned().unwrap_or_default();
        let (weights, bounds) = (&routes.weights, &routes.most_in_flight);
        let rows = weights.iter().chain(bounds);
        let fits = bounds.is_empty() || bounds.len() == weights.len();
        if weights.is_empty() || !fits || rows.into_iter().any(|row| row.len() != urls.len()) {
            bail!(
                "requests cannot be placed by size: the law decided {} for other backends than the {} that the gateways have",
                match weights.is_empty() {
                    true => "no weights".to_owned(),
                    false => format!("weights of {} classes", weights.len()),
                },
                urls.len()
            );
        }
        let connected = |gateway: &&Gateway| gateway.state.lock().backends.is_some();
        let gateways = self.roster.now().iter().filter(connected).count();
        let gateways = u32::try_from(gateways).unwrap_or(u32::MAX);
        Ok((
            setting,
            WantedRoutes {
                urls,
                routes,
                gateways,
            },
        ))
    }
}

/// The levers that each of these gateways offers.
fn together(gateways: &[(String, Vec<GatewayLever>)]) -> OfferedLevers {
    let mut all = OfferedLevers::default();
    let levers = Lever::ALL
        .into_iter()
        .filter(|lever| lever.info().spread == Spread::Cluster);
    for lever in levers {
        let range = |(name, offered): &(String, Vec<GatewayLever>)| {
            let one = offered.iter().find(|one| one.name == lever.name());
            // Another program's lever of this name may count in another unit.
            let one = one.filter(|one| one.unit == lever.info().unit);
            (name.clone(), one.map(|one| one.range))
        };
        let ranges: Vec<_> = gateways.iter().map(range).collect();
        let without: Vec<&str> = ranges
            .iter()
            .filter(|(_, range)| range.is_none())
            .map(|(name, _)| name.as_str())
            .collect();
        let there = ranges.iter().filter_map(|(_, range)| *range);
        let Some((min, max)) = there
            .map(|range| (range.minimum, range.maximum))
            .reduce(|one, other| (one.0.max(other.0), one.1.min(other.1)))
        else {
            continue;
        };
        if !without.is_empty() {
            all.notes.push(format!(
                "no law can move {lever}: the gateway {} has none, and others have it",
                without.join(", ")
            ));
        } else if min > max {
            all.notes.push(format!(
                "no law can move {lever}: the gateways take no value of it in common"
            ));
        } else {
            all.ranges.push((lever, LeverRange::between(min, max)));
        }
    }
    all
}

/// Whether what is asked for was answered, or cannot be.
fn is_answered(state: &GatewayState) -> bool {
    state.levers.answered >= state.levers.asked || state.backends.is_none()
}

impl Device for GatewayLevers {
    /// What is in force, as part of what is said of the whole.
    fn observe(&mut self, period: &mut DevicePeriod) {
        let in_force = self.in_force();
        if !in_force.is_empty() {
            period.add(Part::new(DevicePeriod::CLUSTER, Role::Cluster).set_to(&in_force));
        }
    }

    /// Of each lever the value of the gateway that has the least of it; of one that is not connected nothing is known.
    fn in_force(&self) -> Setting {
        let gateways = self.roster.now();
        let connected = gateways.iter().filter_map(|gateway| {
            let state = gateway.state.lock();
            state.backends.as_ref()?;
            Some(state.levers.setting())
        });
        connected.reduce(least).unwrap_or_default()
    }

    fn apply(&mut self, decision: &mut Decision) -> anyhow::Result<()> {
        let setting = match restore::global().is_paused() {
            true => Setting::default(),
            false => of_gateways(&decision.setting),
        };
        let (setting, routes) = self.with_routes(setting, decision.routes.as_ref())?;
        // What was never set is not asked for: a gateway without levers is left alone.
        if setting.is_empty() && !self.is_set {
            return Ok(());
        }
        self.is_set = !setting.is_empty();
        let wanted: Vec<LeverSetting> = setting
            .iter()
            .map(|(lever, value)| LeverSetting {
                lever: lever.name().to_owned(),
                value,
            })
            .collect();
        let gateways = self.roster.now();
        for gateway in gateways.iter() {
            gateway.state.change(|state| {
                state.levers.asked += 1;
                state.levers.decided = Some(Instant::now());
                state.levers.wanted.clone_from(&wanted);
                state.levers.routes.clone_from(&routes);
                state.levers.lease = self.lease;
            });
            gateway.lever_bell.notify_one();
        }
        let deadline = Instant::now() + MAX_PATIENCE;
        let mut missed = Vec::new();
        for gateway in gateways.iter() {
            let is_in_time = gateway.state.wait(deadline, is_answered);
            let state = gateway.state.lock();
            let why = match (&state.backends, &state.levers.refused) {
                // One that is dead, or has not come yet, has it as soon as it answers.
                (None, _) if !state.is_missed() => continue,
                (None, _) => state.trouble.as_deref().unwrap_or("it does not answer"),
                (_, Some(refused)) => refused,
                _ if !is_in_time => "it has not answered yet",
                _ => continue,
            };
            missed.push(format!("gateway {}: {why}", gateway.name));
        }
        match missed.is_empty() {
            true => Ok(()),
            false => bail!("{setting} is not in force everywhere: {}", missed.join("; ")),
        }
    }
}

/// The part of a decision that gateways carry out: also while none is connected, which then is not carried out.
fn of_gateways(decided: &Setting) -> Setting {
    let levers: Vec<Lever> = Lever::ALL
        .into_iter()
        .filter(|lever| lever.info().spread == Spread::Cluster && *lever != Lever::Servers)
        .collect();
    decided.only(&levers)
}

/// Of each lever that both have the less generous value.
fn least(one: Setting, other: Setting) -> Setting {
    Lever::ALL.into_iter().fold(Setting::default(), |all, lever| {
        let both = one.get(lever).zip(other.get(lever));
        all.with(
            lever,
            both.map(|(one, other)| match lever.info().gives {
                Gives::Higher => one.min(other),
                Gives::Lower => one.max(other),
            }),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::gateways::membership::Standing;
    use headroom_wire::message::Range;

    fn lever(lever: Lever, min: f64, max: f64) -> GatewayLever {
        GatewayLever {
            name: lever.name().to_owned(),
            unit: lever.info().unit.to_owned(),
            range: Range::new(min, max),
            configured: max,
        }
    }

    #[test]
    fn a_lever_of_all_gateways_has_the_values_that_each_takes() {
        let interval = |most| lever(Lever::BatchInterval, 0.0, most);
        let all = together(&[
            (
                "a".to_owned(),
                vec![interval(0.5), lever(Lever::CacheSize, 1e6, 4e6)],
            ),
            ("b".to_owned(), vec![interval(0.25)]),
        ]);
        assert_eq!(
            all.ranges,
            [(Lever::BatchInterval, LeverRange::between(0.0, 0.25))]
        );
        assert_eq!(all.notes.len(), 1);
        assert!(
            all.notes[0].contains("cache_size: the gateway b has none"),
            "{:?}",
            all.notes
        );

        let size = |min, max| ("x".to_owned(), vec![lever(Lever::CacheSize, min, max)]);
        let apart = together(&[size(1e6, 2e6), size(3e6, 4e6)]);
        assert!(apart.ranges.is_empty() && apart.notes[0].contains("no value of it in common"));
        let other_unit = GatewayLever {
            unit: "ms".to_owned(),
            ..interval(250.0)
        };
        assert_eq!(together(&[("x".to_owned(), vec![other_unit])]).ranges, []);
        assert_eq!(together(&[]), OfferedLevers::default());
    }

    #[test]
    fn what_is_decided_of_a_gateway_that_is_not_connected_is_not_carried_out_in_any_period() {
        let address = "unix:/nowhere/g.sock".parse().unwrap();
        let gone = Gateway::new("g1".to_owned(), address, GatewayState::default());
        let state = Arc::clone(&gone.state);
        let roster = Arc::new(Roster::of(vec![gone]));
        let mut levers = GatewayLevers::new(roster, Arc::default(), Duration::from_secs(2));
        let setting = Setting::from([(Lever::BatchInterval, 0.3), (Lever::Servers, 2.0)]);
        for _ in 0..3 {
            let error = levers.apply(&mut Decision::of(setting)).unwrap_err().to_string();
            assert!(error.contains("gateway g1: it does not answer"), "{error}");
            assert!(!error.contains("servers"), "{error}");
        }
        // Of one that is dead nothing is missed.
        state.change(|state| state.standing = Standing::Dead);
        assert!(levers.apply(&mut Decision::of(setting)).is_ok());
        state.change(|state| state.standing = Standing::Counted);
        // What was given back is asked for once.
        assert!(levers.apply(&mut Decision::of(Setting::default())).is_err());
        assert!(levers.apply(&mut Decision::of(Setting::default())).is_ok());
    }

    #[test]
    fn in_force_is_what_the_least_served_gateway_has() {
        let setting =
            |interval, size| Setting::from([(Lever::BatchInterval, interval), (Lever::CacheSize, size)]);
        assert_eq!(least(setting(0.1, 8.0), setting(0.3, 9.0)), setting(0.3, 8.0));
        let without = Setting::from([(Lever::BatchInterval, 0.0)]);
        assert_eq!(
            least(without, setting(0.3, 9.0)),
            Setting::from([(Lever::BatchInterval, 0.3)])
        );
    }
}
