//! A controller of one cluster, for one day: what `headroom controller` does, on the demo's own servers and meter.

use super::mains::{Drawn, Mains};
use super::site::Site;
use anyhow::{Context, anyhow, bail};
use headroom_console::Stop;
use headroom_control::resize::PowerTuning;
use headroom_control::{Decision, LawConfig, LawContext, LawName, Plant, Slo, Stack, guardian};
use headroom_load::http::{LoadConfig, LoadHandle, LoadResult, Pacing, Paths};
use headroom_node::switch::PowerSwitch;
use headroom_physics::MachineFigures;
use headroom_record::{Recorder, RunSummary};
use headroom_runtime::cluster::{ClusterMachine, ClusterOptions, Gateways};
use headroom_runtime::live::admin::Status;
use headroom_runtime::live::run::{RunPlan, Watchers, World, run};
use headroom_runtime::live::{Device, DevicePeriod, SystemClock, calibrate};
use headroom_runtime::resize::{
    CheckTarget, Checks, Demand, Parts, ServerParts, Servers, SwitchWorker, TakenOut, leave,
};
use headroom_units::{Cores, PerSecond, Seconds, Setting};
use headroom_wire::client::ClientOptions;
use headroom_wire::message::Holder;
use headroom_workload::{Arrivals, Spacing, Trace};
use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a node keeps what it was commanded without hearing from its controller: longer than what one core serves is measured,
/// while nothing is commanded. Where the demo dies, its agents do.
const LEASE: Duration = Duration::from_secs(60);
/// How long an agent or a gateway has for an answer.
const PATIENCE: Duration = Duration::from_secs(3);
const FOUND_WITHIN: Duration = Duration::from_secs(20);
const CHECK_WITHIN: Duration = Duration::from_secs(1);
const POWER_POLL: Duration = Duration::from_secs(1);
/// How long servers that boot at the end are waited for.
const LEFT_WITHIN: Duration = Duration::from_secs(30);
const STEP: Cores = Cores::new(0.1);
/// How long after the day's end its last requests may take.
const AFTER_THE_END: Seconds = Seconds::new(15.0);

/// The time limits of servers that boot in seconds.
pub(super) fn tuning() -> PowerTuning {
    PowerTuning {
        boot_timeout_s: 30.0,
        warm_up_s: 0.5,
        lost_s: 5.0,
        drain_timeout_s: 5.0,
        stop_timeout_s: 15.0,
        backoff_s: 3.0,
        forgive_s: 10.0,
        ..PowerTuning::default()
    }
}

/// What is offered.
#[derive(Clone, Debug)]
pub struct Offered {
    /// The day.
    pub day: Arc<Trace>,
    /// How requests follow one another.
    pub spacing: Spacing,
    /// The seed of the arrivals.
    pub seed: u64,
}

/// Sends what is offered to a cluster.
pub fn load(site: &Site, offered: &Offered) -> anyhow::Result<LoadHandle> {
    Ok(headroom_load::http::start(LoadConfig {
        paths: Paths::Uniform(site.pages.clone()),
        seed: offered.seed,
        ..LoadConfig::new(
            site.url(),
            Pacing::open(Arrivals::new(
                Arc::clone(&offered.day),
                offered.spacing,
                offered.seed,
            )),
        )
    })?)
}

/// A controller that holds its cluster, with everything on.
pub struct Session {
    // Before the nodes: what is ordered of a server that is switched goes by both.
    servers: Option<Servers>,
    machine: ClusterMachine,
    telemetry: Gateways,
    mains: Mains,
    /// What can be set.
    pub plant: Plant,
    notes: Vec<String>,
}

impl Session {
    /// Takes a cluster for a law; nothing where it was stopped.
    ///
    /// # Errors
    /// A node or a gateway that cannot be reached.
    pub fn open(
        site: &Site,
        law: LawName,
        period: Duration,
        shown: Arc<Mutex<Drawn>>,
        stop: &Stop,
    ) -> anyhow::Result<Option<Self>> {
        let client = ClientOptions {
            connect_time: PATIENCE,
            answer_time: PATIENCE,
            silence: PATIENCE,
            ..ClientOptions::default()
        };
        let telemetry = Gateways::start(vec![("gateway".to_owned(), site.control())], &client, period)?;
        let nodes = site
            .servers
            .iter()
            .map(|server| (server.name().to_owned(), server.agent()));
        let holder = format!("demo-{}-{law}", site.name);
        let mut machine = ClusterMachine::start(ClusterOptions {
            nodes: nodes.collect(),
            client,
            holder: Holder::new(holder, headroom_runtime::random().max(1))?,
            lease: LEASE,
            period,
            step: STEP,
        })?;
        // An agent that was too slow to answer when the day before ended has that one's lease for so long.
        let until = Instant::now() + LEASE;
        let found = loop {
            let found = machine.describe(FOUND_WITHIN, None);
            let is_whole = found
                .as_ref()
                .is_ok_and(|found| found.processors.len() == site.servers.len());
            if is_whole || Instant::now() > until || stop.wait_until(Instant::now() + PATIENCE) {
                break found?;
            }
        };
        if found.processors.len() < site.servers.len() {
            bail!("not every node can be reached: {}", found.notes.join("; "));
        }
        let missing = telemetry.connect(FOUND_WITHIN, || false);
        if !missing.is_empty() {
            bail!("the gateway cannot be reached: {}", missing.join("; "));
        }
        let mut notes = found.notes;
        let mut plant = found.plant;
        let mut servers = None;
        if law.resizes() || law.may_resize() {
            plant = plant.with_servers(site.servers.len());
            let parts = parts(site, &telemetry, period)?;
            let Some(found) = Servers::find(parts, false, FOUND_WITHIN, stop)? else {
                return Ok(None);
            };
            servers = Some(found);
        }
        machine.apply(&mut Decision::of(plant.full()))?;
        notes.push(format!("the {} cluster of the demo", site.name));
        Ok(Some(Self {
            servers,
            machine,
            telemetry,
            mains: Mains::new(site.meters(), shown),
            plant,
            notes,
        }))
    }

    /// Measures what one core serves under this load; nothing where it was stopped.
    ///
    /// # Errors
    /// Too little traffic to tell.
    pub fn calibrate(
        &mut self,
        site: &Site,
        offered: &Offered,
        length: Duration,
        stop: &Stop,
    ) -> anyhow::Result<Option<PerSecond>> {
        let load = load(site, offered)?;
        let measured =
            calibrate::service_rate(&mut self.machine, &mut self.telemetry, length, &SystemClock, stop);
        load.stop();
        load.join()?;
        measured
    }

    /// Runs a law for a day; nothing where it was stopped. The summary, and what the load generator saw.
    ///
    /// # Errors
    /// A run that cannot be recorded, a load that cannot be sent.
    pub fn run(
        mut self,
        site: &Site,
        law: &mut Stack,
        mut plan: RunPlan,
        offered: &Offered,
        (recorder, status): (&Recorder, &Arc<Status>),
        stop: &Stop,
    ) -> anyhow::Result<Option<(RunSummary, LoadResult)>> {
        plan.plant = self.plant;
        plan.notes.append(&mut self.notes);
        let ends = offered.day.duration();
        let load = RefCell::new(None);
        let mut starter = Starter {
            site,
            offered,
            load: &load,
        };
        let mut devices: Vec<&mut dyn Device> = Vec::new();
        // First: who is switched off is not missing.
        devices.extend(self.servers.as_mut().map(|servers| servers as &mut dyn Device));
        devices.push(&mut self.machine);
        devices.push(&mut self.mains);
        devices.push(&mut starter);
        let world = World {
            devices,
            telemetry: Some(&mut self.telemetry),
            recorder,
        };
        let watchers = Watchers {
            view: None,
            status: Some(status),
        };
        let done = |at: Seconds| match &*load.borrow() {
            Some(Ok(load)) => at >= ends && (load.is_finished() || at >= ends + AFTER_THE_END),
            _ => true,
        };
        let outcome = run(&plan, (law, None), world, watchers, stop, done);
        let result = load
            .into_inner()
            .unwrap_or_else(|| Err(anyhow!("the run ended before it began")))
            .and_then(|load| {
                load.stop();
                Ok(load.join()?)
            });
        if let Some(servers) = self.servers.as_mut().filter(|_| !stop.is_raised()) {
            let left = leave(servers, LEFT_WITHIN);
            if !left.is_empty() {
                bail!("not every server was left serving: {}", left.join("; "));
            }
        }
        let (summary, result) = (outcome?, result?);
        Ok((!stop.is_raised()).then_some((summary, result)))
    }
}

/// Starts the load when the loop looks at its devices for the first time: its first period begins then, while the record was being
/// opened before.
struct Starter<'a> {
    site: &'a Site,
    offered: &'a Offered,
    load: &'a RefCell<Option<anyhow::Result<LoadHandle>>>,
}

impl Device for Starter<'_> {
    fn observe(&mut self, _period: &mut DevicePeriod) {
        self.load
            .borrow_mut()
            .get_or_insert_with(|| load(self.site, self.offered));
    }

    fn in_force(&self) -> Setting {
        Setting::default()
    }

    fn apply(&mut self, _decision: &mut Decision) -> anyhow::Result<()> {
        Ok(())
    }
}

fn parts(site: &Site, telemetry: &Gateways, period: Duration) -> anyhow::Result<Parts> {
    let mut targets = Vec::new();
    let mut servers = Vec::new();
    for server in &site.servers {
        let target = format!("tcp:{}", server.wiki());
        targets.push(CheckTarget::parse(&target).with_context(|| target.clone())?);
        let switch: Box<dyn PowerSwitch> = Box::new(server.switch());
        servers.push(ServerParts {
            name: server.name().to_owned(),
            switch_worker: SwitchWorker::start(server.name(), switch, POWER_POLL)?,
            queue: None,
            is_checked_there: false,
        });
    }
    Ok(Parts {
        servers,
        balancer: Box::new(telemetry.balancer(site.members())),
        checks: Checks::start(targets, period, CHECK_WITHIN)?,
        tuning: tuning(),
        demand: Demand::Balancer,
        fixed: None,
        energy: None,
        kinds: Vec::new(),
        in_hand: None,
        taken_out: TakenOut::default(),
        period,
    })
}

/// A law for a cluster of such machines.
///
/// # Errors
/// One that cannot be built for it, and why.
pub fn law(
    config: &LawConfig,
    slo: Slo,
    plant: Plant,
    rate: PerSecond,
    machines: Vec<MachineFigures>,
) -> anyhow::Result<Stack> {
    let context = LawContext {
        slo,
        plant,
        service_rate: rate,
        machines,
    };
    Ok(Stack::of(
        config.build(&context)?,
        plant,
        guardian::DEFAULT_PATIENCE_PERIODS,
    )?)
}
