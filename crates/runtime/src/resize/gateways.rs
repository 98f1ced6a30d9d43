//! Our gateways, through their control ports.

use super::balancer::{Admission, Balancer, Look, Member, Traffic, Wanted};
use crate::cluster::{BackOff, Network, stop_requested};
use hdrhistogram::Histogram;
use headroom_gateway::service_histogram;
use headroom_wire::Address;
use headroom_wire::client::{CallError, ClientOptions, GatewayClient};
use headroom_wire::message::{Backend, BackendState, GatewayPeriod, SetBackend};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// A gateway is asked for so many periods in one of the loop's.
const PARTS: u32 = 5;
/// But none shorter than this.
const MIN_PART: Duration = Duration::from_millis(20);

/// All gateways together.
#[derive(Debug)]
pub struct Gateways {
    gateways: Vec<Arc<Gateway>>,
    /// The backends' URLs, in the controller's order.
    members: Vec<String>,
    /// Ends the tasks when it goes.
    _network: Network,
}

/// One gateway, shared with the task that talks to it.
#[derive(Debug)]
struct Gateway {
    name: String,
    state: Mutex<State>,
    /// Rung when something else is wanted.
    wanted: Notify,
}

impl Gateway {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct State {
    /// Why it cannot be relied on; `None` while it can.
    trouble: Option<String>,
    /// Its backends for the controller's servers, in their order.
    backends: Vec<Option<Backend>>,
    in_flight: Vec<Option<u64>>,
    wanted: Vec<Option<BackendState>>,
    /// Added up since it was last taken.
    sum: Sum,
}

#[derive(Debug)]
struct Sum {
    periods: u64,
    /// How long its periods were together.
    length: Duration,
    broken: bool,
    arrivals: u64,
    completions: u64,
    failures: u64,
    latencies: Histogram<u64>,
}

impl Sum {
    fn new(broken: bool) -> Self {
        Self {
            periods: 0,
            length: Duration::ZERO,
            broken,
            arrivals: 0,
            completions: 0,
            failures: 0,
            latencies: service_histogram(),
        }
    }
}

impl Gateways {
    /// Starts to talk to them.
    ///
    /// # Errors
    /// Where the thread cannot be started.
    pub fn start(
        gateways: Vec<(String, Address)>,
        members: Vec<String>,
        client: &ClientOptions,
        period: Duration,
    ) -> io::Result<Self> {
        let (stop, stopping) = watch::channel(false);
        let part = (period / PARTS).max(MIN_PART);
        let (mut shared, mut tasks) = (Vec::new(), Vec::new());
        for (name, address) in gateways {
            let gateway = Arc::new(Gateway {
                name,
                state: Mutex::new(State {
                    trouble: Some("it does not answer".to_owned()),
                    backends: vec![None; members.len()],
                    in_flight: vec![None; members.len()],
                    wanted: vec![None; members.len()],
                    sum: Sum::new(true),
                }),
                wanted: Notify::new(),
            });
            shared.push(Arc::clone(&gateway));
            let task = Task {
                gateway,
                address,
                options: client.clone(),
                members: members.clone(),
                part,
                again: period,
            };
            tasks.push(task.attend(stopping.clone()));
        }
        Ok(Self {
            gateways: shared,
            members,
            _network: Network::start("gateways", tasks, stop)?,
        })
    }
}

impl Balancer for Gateways {
    fn name(&self) -> String {
        let names: Vec<&str> = self
            .gateways
            .iter()
            .map(|gateway| gateway.name.as_str())
            .collect();
        format!("headroom's gateways ({})", names.join(", "))
    }

    fn look(&mut self, _patience: Duration) -> Result<Look, String> {
        let mut members = vec![
            Member {
                admission: Admission::Out,
                in_flight: Some(0),
                well: None,
            };
            self.members.len()
        ];
        let mut traffic = Traffic {
            length: Duration::ZERO,
            arrivals: 0,
            completions: Some(0),
            failures: Some(0),
            latencies: None,
        };
        let mut latencies = service_histogram();
        let mut whole = true;
        let mut trouble = None;
        for gateway in &self.gateways {
            let mut state = gateway.lock();
            let sum = std::mem::replace(&mut state.sum, Sum::new(false));
            if let Some(why) = &state.trouble {
                trouble.get_or_insert_with(|| format!("gateway {}: {why}", gateway.name));
                continue;
            }
            whole &= sum.periods > 0 && !sum.broken;
            traffic.length += sum.length;
            traffic.arrivals += sum.arrivals;
            traffic.completions = traffic.completions.map(|all| all + sum.completions);
            traffic.failures = traffic.failures.map(|all| all + sum.failures);
            // Both have the same bounds; only that could make it fail.
            whole &= latencies.add(&sum.latencies).is_ok();
            for (at, member) in members.iter_mut().enumerate() {
                let Some(backend) = &state.backends[at] else {
                    continue;
                };
                // What any gateway still gives it counts.
                member.admission = match (member.admission, backend.state) {
                    (Admission::Ready, _) | (_, BackendState::Up) => Admission::Ready,
                    (Admission::Drain, _) | (_, BackendState::Drain) => Admission::Drain,
                    (Admission::Out, BackendState::Down) => Admission::Out,
                };
                member.in_flight = member.in_flight.zip(state.in_flight[at]).map(|(a, b)| a + b);
            }
        }
        if let Some(trouble) = trouble {
            return Err(trouble);
        }
        // Of several gateways, the mean of their times.
        traffic.length /= u32::try_from(self.gateways.len()).unwrap_or(u32::MAX).max(1);
        traffic.latencies = Some(latencies);
        Ok(Look {
            members,
            traffic: whole.then_some(traffic),
        })
    }

    fn want(&mut self, wanted: &[Wanted], _patience: Duration) -> Result<(), String> {
        for gateway in &self.gateways {
            let mut state = gateway.lock();
            for (slot, wanted) in state.wanted.iter_mut().zip(wanted) {
                *slot = Some(match wanted.admission {
                    Admission::Ready => BackendState::Up,
                    Admission::Drain => BackendState::Drain,
                    Admission::Out => BackendState::Down,
                });
            }
            drop(state);
            gateway.wanted.notify_one();
        }
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What talks to one gateway.
struct Task {
    gateway: Arc<Gateway>,
    address: Address,
    options: ClientOptions,
    members: Vec<String>,
    part: Duration,
    /// The time between two looks at the backends' states, which others may change.
    again: Duration,
}

impl Task {
    async fn attend(self, mut stop: watch::Receiver<bool>) {
        let mut back_off = BackOff::new();
        loop {
            let why = tokio::select! {
                why = self.talk(&mut back_off) => why,
                () = stop_requested(&mut stop) => return,
            };
            {
                let mut state = self.gateway.lock();
                if state.trouble.is_none() {
                    tracing::warn!(gateway = self.gateway.name, "the gateway is lost: {why}");
                }
                state.trouble = Some(why);
                state.sum = Sum::new(true);
                state.in_flight.fill(None);
            }
            tokio::select! {
                () = tokio::time::sleep(back_off.again()) => {}
                () = stop_requested(&mut stop) => return,
            }
        }
    }

    /// Talks until the connection ends; why it did.
    async fn talk(&self, back_off: &mut BackOff) -> String {
        match self.converse(back_off).await {
            Ok(why) => why,
            Err(error) => error.to_string(),
        }
    }

    async fn converse(&self, back_off: &mut BackOff) -> Result<String, CallError> {
        let client = GatewayClient::connect(&self.address, &self.options).await?;
        let mut places = match self.places(&client.gateway().backends) {
            Ok(places) => places,
            Err(why) => return Ok(why),
        };
        let mut periods = client.observe(self.part).await?;
        self.take_backends(&client.gateway().backends, &places);
        {
            let mut state = self.gateway.lock();
            state.sum = Sum::new(true);
            state.in_flight.fill(None);
            state.trouble = None;
        }
        *back_off = BackOff::new();
        let mut again = tokio::time::interval(self.again);
        again.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                period = periods.next() => match period? {
                    Some(period) => self.add(&period, &places),
                    None => return Ok("it has ended".to_owned()),
                },
                () = self.gateway.wanted.notified() => self.tell(&client, &places).await?,
                _ = again.tick() => {
                    let backends = client.describe().await?.backends;
                    places = match self.places(&backends) {
                        Ok(places) => places,
                        Err(why) => return Ok(why),
                    };
                    self.take_backends(&backends, &places);
                    self.tell(&client, &places).await?;
                }
            }
        }
    }

    /// Where the gateway has each of the controller's servers.
    fn places(&self, backends: &[Backend]) -> Result<Vec<usize>, String> {
        let place = |member: &String| {
            let same = |backend: &Backend| backend.url.trim_end_matches('/') == member.trim_end_matches('/');
            backends.iter().position(same).ok_or_else(|| {
                let urls: Vec<&str> = backends.iter().map(|backend| backend.url.as_str()).collect();
                format!("it has no backend {member}: it has {}", urls.join(", "))
            })
        };
        self.members.iter().map(place).collect()
    }

    fn take_backends(&self, backends: &[Backend], places: &[usize]) {
        let mut state = self.gateway.lock();
        for (at, place) in places.iter().enumerate() {
            state.backends[at] = backends.get(*place).cloned();
        }
    }

    fn add(&self, period: &GatewayPeriod, places: &[usize]) {
        let mut state = self.gateway.lock();
        let sum = &mut state.sum;
        sum.periods += 1;
        sum.length += period.length;
        sum.broken |= period.cores_missing > 0;
        sum.arrivals += period.arrivals;
        sum.completions += period.completions;
        sum.failures += period.failures;
        for (value, count) in &period.latencies {
            sum.latencies.saturating_record_n(*value, *count);
        }
        let whole = period.cores_missing == 0;
        for (at, place) in places.iter().enumerate() {
            state.in_flight[at] = period
                .backends
                .get(*place)
                .and_then(|backend| backend.in_flight)
                .filter(|_| whole);
        }
    }

    /// Tells it what is wanted and it has not.
    async fn tell(&self, client: &GatewayClient, places: &[usize]) -> Result<(), CallError> {
        for (at, place) in places.iter().enumerate() {
            let change = {
                let state = self.gateway.lock();
                let has = state.backends[at].as_ref().map(|backend| backend.state);
                state.wanted[at].filter(|wanted| has != Some(*wanted))
            };
            let Some(wanted) = change else { continue };
            let change = SetBackend {
                backend: u32::try_from(*place).unwrap_or(u32::MAX),
                state: Some(wanted),
                weight: None,
            };
            let backend = client.set_backend(change).await?;
            let mut state = self.gateway.lock();
            state.backends[at] = Some(backend);
            // What was counted before says nothing of the time since.
            state.in_flight[at] = None;
        }
        Ok(())
    }
}
