//! Many gateways as one source of telemetry; and as the balancer in front of servers that are switched on and off, over the
//! same connections, for a gateway's counters are taken by one controller.

mod balancer;
mod division;
mod levers;
mod membership;
mod report;
mod roster;
mod state;
mod task;

pub use balancer::GatewayBalancer;
pub use levers::{GatewayLevers, OfferedLevers};
pub use membership::REFUSED_PERIODS;
pub use roster::{GatewayMembers, GatewaysChanged};

use super::{Attending, Network};
use crate::live::{ReportedLatency, SizesPeriod, Telemetry, TrafficPeriod, Watch};
use headroom_gateway::service_histogram;
use headroom_units::{Part, Role};
use headroom_wire::Address;
use headroom_wire::client::{ClientOptions, Observer};
use membership::{Contact, Member, Standing};
use roster::Gateway;
use state::GatewayState;
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// What a gateway told of is the period where neither is longer than so many times the other and so much.
const SAME_TIME: (f64, Duration) = (2.0, Duration::from_millis(500));

/// How often it is asked whether the gateways are waited for no longer.
const ASKED_EACH: Duration = Duration::from_millis(50);

/// Whether what was told of `length` is what a period of `elapsed` is about. Where this process stood still it is not: the period has no end
/// then, and what came meanwhile is told in the next.
fn is_of(length: Duration, elapsed: Duration) -> bool {
    let (times, more) = SAME_TIME;
    length.max(elapsed) <= length.min(elapsed).mul_f64(times) + more
}

/// Many gateways as one source of telemetry. The periods of all are added; one that is missing makes the period lost, for
/// its requests may be the slow ones. One that is known to be dead is not missing: its control port refuses connections.
#[derive(Debug)]
pub struct Gateways {
    members: GatewayMembers,
    /// Periods in a row in which one refuses, until it leaves the sum.
    refused_periods: u32,
    /// What each showed in the period that was taken last.
    parts: Vec<Part>,
    /// Those that there were then, by name.
    named: BTreeSet<String>,
    /// The backends of all gateways in the order of the sizes that were told last.
    sized: Arc<SizedOrder>,
    /// It was said that the gateways' classes of sizes differ.
    is_said: bool,
    /// When something was taken last: until then no period can be whole.
    taken: Option<Instant>,
    /// Since when is counted what was not taken yet.
    counts_since: Option<Instant>,
    _network: Network,
}

impl Gateways {
    /// Starts to connect to every gateway, to command it.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub fn start(
        gateways: Vec<(String, Address)>,
        client: &ClientOptions,
        period: Duration,
    ) -> io::Result<Self> {
        Self::observed_by(Observer::Commands, gateways, client, period)
    }

    /// The same for who commands none of them, and gives way to who does.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub fn look(
        gateways: Vec<(String, Address)>,
        client: &ClientOptions,
        period: Duration,
    ) -> io::Result<Self> {
        Self::observed_by(Observer::OnlyLooks, gateways, client, period)
    }

    fn observed_by(
        observer: Observer,
        gateways: Vec<(String, Address)>,
        client: &ClientOptions,
        period: Duration,
    ) -> io::Result<Self> {
        let (stop, stopping) = watch::channel(false);
        let network = Network::start("cluster-gateways", Vec::<Attending>::new(), stop)?;
        let members = GatewayMembers::new(network.spawner(), stopping, client.clone(), (period, observer));
        members.begin(gateways)?;
        Ok(Self {
            members,
            refused_periods: REFUSED_PERIODS,
            parts: Vec::new(),
            named: BTreeSet::new(),
            sized: Arc::default(),
            is_said: false,
            taken: None,
            counts_since: None,
            _network: network,
        })
    }

    /// The same with another number of periods in a row, at least one, in which a gateway's control port refuses connections until the
    /// gateway leaves the sum; [`REFUSED_PERIODS`] where nobody says.
    #[must_use]
    pub fn leaving_after(mut self, refused_periods: u32) -> Self {
        self.refused_periods = refused_periods;
        self
    }

    /// Which gateways these are, for whoever changes that while the run goes on.
    pub fn members(&self) -> GatewayMembers {
        self.members.clone()
    }

    /// The gateways as the balancer of these servers, each the URL of a backend.
    pub fn balancer(&self, members: Vec<String>) -> GatewayBalancer {
        GatewayBalancer::new(Arc::clone(self.members.roster()), members)
    }

    /// The gateways' levers, which are set for so long at a time.
    pub fn levers(&self, lease: Duration) -> GatewayLevers {
        GatewayLevers::new(Arc::clone(self.members.roster()), Arc::clone(&self.sized), lease)
    }

    /// Whether each was connected to, or has shown why it could not be.
    pub fn have_shown(&self) -> bool {
        let gateways = self.members.roster().now();
        gateways.iter().all(|gateway| {
            let state = gateway.state.lock();
            state.backends.is_some() || state.trouble.is_some()
        })
    }

    /// Waits until every gateway was connected to, the time is over, or `is_over`, which is asked again and again; why not, for each that
    /// was not.
    pub fn connect(&self, patience: Duration, is_over: impl Fn() -> bool) -> Vec<String> {
        let deadline = Instant::now() + patience;
        let mut missing = Vec::new();
        let connected = |gateway: &Gateway| loop {
            let until = deadline.min(Instant::now() + ASKED_EACH);
            match gateway.state.wait(until, |state| state.backends.is_some()) {
                true => break true,
                false if Instant::now() >= deadline || is_over() => break false,
                false => {}
            }
        };
        for gateway in self.members.roster().now().iter() {
            if !connected(gateway) {
                let state = gateway.state.lock();
                let why = state.trouble.as_deref().unwrap_or("it does not answer");
                missing.push(format!("gateway {}: {why}", gateway.name));
            }
        }
        missing
    }
}

impl Gateways {
    /// The sizes of all gateways together; `None` where one looks at none, or at others.
    fn sizes_of_all(&mut self, of_each: Vec<Option<SizesPeriod>>) -> Option<SizesPeriod> {
        let is_any = of_each.iter().any(Option::is_some);
        let joined = sizes_together(of_each);
        if is_any && joined.is_none() && !self.is_said {
            tracing::warn!(
                "the gateways have different classes of sizes, so none are told of and no law can place requests: give all the same \
                 sizes.bounds_bytes (--size-bounds)"
            );
            self.is_said = true;
        }
        let urls = joined.iter().flat_map(|sizes| &sizes.backends);
        self.sized.set(urls.map(|backend| backend.url.clone()).collect());
        joined
    }
}

/// The sizes of several gateways as one; `None` where one has none, or other classes.
fn sizes_together(of_each: Vec<Option<SizesPeriod>>) -> Option<SizesPeriod> {
    let mut all = of_each.into_iter();
    let mut sum = all.next().flatten()?;
    for one in all {
        if !sum.join(&one?) {
            return None;
        }
    }
    Some(sum)
}

/// The backends in the order in which laws are given them, and set weights for them.
#[derive(Debug, Default)]
struct SizedOrder(Mutex<Vec<String>>);

impl SizedOrder {
    fn set(&self, urls: Vec<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = urls;
    }

    fn get(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What came of the periods that the gateways in the sum reported.
#[derive(Clone, Copy)]
struct Taken {
    /// All are whole, and there are some.
    whole: bool,
    connected: bool,
    /// None told of another time than this period.
    in_time: bool,
}

impl Gateways {
    /// Waits for the period of every gateway that is in the sum; what each is to this period.
    fn standings(&self, gateways: &[Gateway], deadline: Instant) -> Vec<Standing> {
        let (mut members, mut contacts): (Vec<Member>, Vec<Contact>) = Default::default();
        for gateway in gateways {
            // Nothing to wait for while it is not connected.
            gateway.state.wait(deadline, |state| {
                state.periods > 0 || state.backends.is_none() || state.standing != Standing::Counted
            });
            let mut state = gateway.state.lock();
            members.push(state.member);
            contacts.push(state.contact());
        }
        let standings = membership::step(&mut members, &contacts, self.refused_periods);
        for ((gateway, member), standing) in gateways.iter().zip(members).zip(&standings) {
            let mut state = gateway.state.lock();
            let before = std::mem::replace(&mut state.standing, *standing);
            state.member = member;
            if before != *standing {
                self.tell(&gateway.name, &state, before);
            }
        }
        standings
    }

    /// Says that a gateway is something else to the sum than it was.
    fn tell(&self, gateway: &str, state: &GatewayState, before: Standing) {
        let why = state.trouble.as_deref().unwrap_or_default();
        match (before, state.standing) {
            (_, Standing::Dead) => tracing::error!(
                gateway,
                "the gateway is dead: its control port has refused connections for {} periods, so it is out of the sum and \
                 the others are the service: {why}",
                self.refused_periods
            ),
            (Standing::Dead, Standing::Joining) => {
                tracing::warn!(gateway, "the gateway is back: its requests count from now on");
            }
            (_, Standing::Joining) => {}
            (Standing::Joining, Standing::Counted) if state.backends.is_some() => {
                tracing::warn!(gateway, "the gateway has joined: its requests count");
            }
            (Standing::Joining, Standing::Counted) => {
                tracing::warn!(gateway, "the gateway was to join and cannot be relied on: {why}");
            }
            (_, Standing::Counted) => tracing::warn!(
                gateway,
                "the gateway is not known to be dead any more, so it is in the sum again: {why}"
            ),
        }
    }

    /// Ends the period of each gateway, and says what it showed.
    fn end(&mut self, gateways: &[Gateway], standings: &[Standing]) -> Taken {
        let mut taken = Taken {
            whole: standings.contains(&Standing::Counted),
            connected: true,
            in_time: true,
        };
        self.parts.clear();
        for (gateway, standing) in gateways.iter().zip(standings) {
            let mut state = gateway.state.lock();
            let part = match standing {
                Standing::Counted => self.end_counted(&gateway.name, &mut state, &mut taken),
                Standing::Joining => {
                    state.begin();
                    let trouble = state.trouble.iter().filter(|_| state.backends.is_none());
                    Part {
                        trouble: trouble.cloned().collect(),
                        ..Part::new(&gateway.name, Role::Gateway).in_state(Part::JOINING)
                    }
                }
                Standing::Dead => {
                    state.end();
                    state.take();
                    let why = state.trouble.as_deref().unwrap_or_default();
                    Part {
                        trouble: vec![format!("out of the sum, for its process has ended: {why}")],
                        ..Part::new(&gateway.name, Role::Gateway).in_state("dead")
                    }
                }
            };
            self.parts.push(part);
        }
        let now: BTreeSet<String> = gateways.iter().map(|gateway| gateway.name.clone()).collect();
        for gone in self.named.difference(&now) {
            let part = Part::new(gone, Role::Gateway).in_state(Part::LEFT);
            self.parts.push(part);
        }
        self.named = now;
        taken
    }

    fn end_counted(&self, name: &str, state: &mut GatewayState, taken: &mut Taken) -> Part {
        taken.connected &= state.backends.is_some();
        let length = state.length;
        let elapsed = self.taken.map(|taken| taken.elapsed());
        let differs = elapsed.filter(|elapsed| state.periods > 0 && !is_of(length, *elapsed));
        let stood_still = differs.map(|elapsed| {
            let (told, of) = (length.as_secs_f64(), elapsed.as_secs_f64());
            format!("it told of {told:.1} s of a period of {of:.1} s: one of the two processes stood still")
        });
        taken.in_time &= stood_still.is_none();
        if state.end() && stood_still.is_none() {
            let in_force = state.levers.setting();
            return report::part(name, &state.sum, length).set_to(&in_force);
        }
        let trouble = stood_still.as_deref().or(state.trouble.as_deref());
        let why = trouble.unwrap_or("its period is not whole");
        if self.taken.is_some() {
            tracing::warn!(gateway = name, "{why}");
        }
        taken.whole = false;
        Part {
            trouble: vec![why.to_owned()],
            ..Part::new(name, Role::Gateway).in_state("unreachable")
        }
    }
}

impl Telemetry for Gateways {
    fn take(&mut self, patience: Duration) -> Option<TrafficPeriod> {
        let gateways = self.members.roster().now();
        let standings = self.standings(&gateways, Instant::now() + patience);
        let taken = self.end(&gateways, &standings);
        self.taken = Some(Instant::now());
        if !taken.whole {
            // A thread that was late tells the rest in the next period, and so do the others. A gateway that is away may be
            // so for long, and so may this process have stood still: what was counted meanwhile would look like one period's.
            if !taken.connected || !taken.in_time {
                for gateway in gateways.iter() {
                    gateway.state.lock().take();
                }
                self.counts_since = self.taken;
            }
            return None;
        }
        let since = std::mem::replace(&mut self.counts_since, self.taken);
        let over = self
            .taken
            .zip(since)
            .map(|(now, since)| now.duration_since(since).into());
        let mut all = TrafficPeriod {
            over,
            ..TrafficPeriod::default()
        };
        let mut latencies = service_histogram();
        let mut sizes = Vec::new();
        let mut whole = true;
        let of_sum = |standing: &Standing| *standing == Standing::Counted;
        let in_sum = gateways
            .iter()
            .zip(&standings)
            .filter(|(_, standing)| of_sum(standing));
        for (gateway, _) in in_sum {
            let (mut sum, histogram) = gateway.state.lock().take();
            sizes.push(sum.sizes.take());
            all.add(&sum);
            // Both have the same bounds.
            if latencies.add(&histogram).is_err() {
                whole = false;
            }
        }
        all.latency = ReportedLatency::Histogram(latencies);
        all.sizes = self.sizes_of_all(sizes);
        whole.then_some(all)
    }

    fn watch(&mut self, watch: Option<Watch>) {
        self.members.divided().watch(watch);
    }

    fn parts(&self) -> Vec<Part> {
        self.parts.clone()
    }
}

/// What a backend's URL is compared by.
fn member(url: &str) -> &str {
    url.trim_end_matches('/')
}

#[cfg(test)]
mod tests;
