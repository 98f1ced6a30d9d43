//! Which services are run under which laws, and the calibration that they share.

use anyhow::Context;
use headroom_console::{Document, Failure};
use headroom_control::stack::Part;
use headroom_control::{Constant, CpuUse, Law, LawConfig, LawContext, LawName, Plant, Stack};
use headroom_sim::tiers::{CacheFigures, PageFigures, TiersScenario};
use headroom_units::{Lever, PerSecond, Setting};
use headroom_workload::Shape;
use serde::{Deserialize, Serialize};

/// The calibration as it ships.
pub const CALIBRATION: &str = include_str!("../../../../batching-paper.toml");

/// The intervals of Table II, milliseconds, each with the mean response time that is printed there.
pub const TABLE_2: [(u32, &str); 20] = [
    (50, "993"),
    (100, "975"),
    (150, "1033"),
    (200, "983"),
    (250, "907"),
    (300, "847"),
    (350, "879"),
    (400, "936"),
    (450, "989"),
    (500, "1132"),
    (550, "1152"),
    (600, "1279"),
    (650, "1335"),
    (700, "1476"),
    (750, "1533"),
    (800, "1764"),
    (850, "1930"),
    (900, "1985"),
    (950, "2257"),
    (1000, "2448"),
];
/// The caches of Figure 12, megabytes.
pub const CACHES_MB: [u32; 3] = [20, 80, 200];
/// The sizes of requests in Figure 12, kilobytes.
pub const SIZES_KB: [u32; 3] = [2, 10, 50];
/// Users of Figure 12: the paper does not print how many.
const FIGURE_12_USERS: u32 = 1_000;
/// Users who pause for a second and never ask for what somebody has asked for: the tier that all wait for is half busy. Without pauses
/// an interval delays nobody in a closed loop.
const UNIQUE_USERS: u32 = 200;
/// The utilisation of the three tiers together at which the one that all wait for is nearly always busy.
pub const BUSY_TIERS: f64 = 0.45;
/// The batching laws decide every so many periods about the frequency, Section VI.B.
const POWER_PERIODS: u32 = 4;
/// Periods without telemetry after which everything is full; none is lost here.
const PATIENCE: u32 = 5;

/// The file, key by key.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Users, sample by sample.
    pub steps: Vec<u32>,
    /// Length of a sample.
    pub step_s: f64,
    /// Users before the samples.
    pub training_users: u32,
    /// How long they are there.
    pub training_s: f64,
    /// Users of the stationary scenarios: underload and overload.
    pub stationary_users: [u32; 2],
    /// Length of a stationary scenario.
    pub stationary_s: f64,
    /// The service.
    pub service: TiersScenario,
}

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// An interval in milliseconds that stays; 0 is no batching.
    Interval(u32),
    /// Laws that run together as they do live, once a period.
    Laws(&'static [&'static str]),
    /// Laws of the paper, once a batch.
    EachBatch(&'static [&'static str]),
}

/// The paper's baseline.
pub const NONE: Who = Who::Interval(0);
/// The paper's batching control.
pub const BATCHING: Who = Who::EachBatch(&["batching"]);
/// The paper's power control alone.
pub const DVFS: Who = Who::Laws(&["dvfs"]);
/// Both, with the coordinator.
pub const BOTH: Who = Who::EachBatch(&["batching-dvfs"]);
/// The paper's batching control as it runs live and unless told otherwise: for the least mean, and the SLO is kept.
pub const LIVE: Who = Who::Laws(&["batching"]);
/// Ours.
pub const SEEK: Who = Who::Laws(&["seek"]);
/// Ours with the paper's power control.
pub const SEEK_DVFS: Who = Who::Laws(&["seek", "dvfs"]);
/// All that is no interval of Table II.
pub const WHO: [Who; 7] = [NONE, BATCHING, DVFS, BOTH, LIVE, SEEK, SEEK_DVFS];

impl Who {
    /// As words.
    pub fn name(self) -> String {
        match self {
            Self::Interval(0) => "no batching".to_owned(),
            Self::Interval(ms) => format!("fixed, {ms} ms"),
            Self::EachBatch(names) => names.join(" + "),
            LIVE => "batching, our defaults".to_owned(),
            Self::Laws(names) => names.join(" + "),
        }
    }
}

/// What a service is run for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum World {
    /// Table II and Figures 7 to 9.
    Dynamic,
    /// Figures 10 and 11: so many users.
    Stationary(u32),
    /// Figure 12: a cache of so many megabytes, requests of so many kilobytes.
    Cache(u32, u32),
    /// As dynamic, with a cache whose requests wait for each other's fetches.
    Collapsing,
    /// Nothing is asked for twice.
    Unique,
    /// So few users that nobody waits for anybody.
    Light,
    /// The cache has everything.
    Cached,
}

impl World {
    /// As words.
    pub fn name(self) -> String {
        match self {
            Self::Dynamic => "dynamic load".to_owned(),
            Self::Stationary(users) => format!("{users} users"),
            Self::Cache(mb, kb) => format!("{mb} MB, {kb} KB"),
            Self::Collapsing => "dynamic load, a cache that collapses".to_owned(),
            Self::Unique => "nothing is asked for twice".to_owned(),
            Self::Light => "light load".to_owned(),
            Self::Cached => "a cache that holds everything".to_owned(),
        }
    }
}

/// Worlds in which batching can only cost time.
pub const HARMFUL: [World; 3] = [World::Unique, World::Light, World::Cached];

/// One of many runs.
#[derive(Clone, Debug)]
pub struct Case {
    /// What for.
    pub world: World,
    /// Who decides.
    pub who: Who,
    /// The service.
    pub scenario: TiersScenario,
}

/// All runs of one seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The calibration.
    pub calibration: Calibration,
    /// The runs.
    pub cases: Vec<Case>,
    /// Intervals of Table II that are run, milliseconds.
    pub intervals_ms: Vec<u32>,
}

impl Plan {
    /// The plan; a quick one has shorter steps and fewer intervals.
    ///
    /// # Errors
    /// A calibration that is none.
    pub fn new(quick: bool) -> Result<Self, Failure> {
        let mut calibration: Calibration =
            Document::shipped("batching-paper.toml", CALIBRATION).parse("reproduce batching")?;
        if quick {
            calibration.step_s /= 3.0;
            calibration.service.sample_s = calibration.step_s;
            calibration.stationary_s /= 3.0;
        }
        let every = if quick { 4 } else { 1 };
        let intervals_ms: Vec<u32> = TABLE_2.iter().map(|(ms, _)| *ms).skip(1).step_by(every).collect();
        let mut plan = Self {
            calibration,
            cases: Vec::new(),
            intervals_ms: match quick {
                true => intervals_ms,
                false => TABLE_2.iter().map(|(ms, _)| *ms).collect(),
            },
        };
        let fixed: Vec<Who> = plan.intervals_ms.iter().map(|ms| Who::Interval(*ms)).collect();
        for who in WHO.iter().chain(&fixed) {
            plan.add(World::Dynamic, *who);
        }
        for users in plan.calibration.stationary_users {
            for who in WHO.iter().chain(&[Who::Interval(300)]) {
                plan.add(World::Stationary(users), *who);
            }
        }
        // A look at Figure 12 has its corners alone.
        let corners = |at: usize, count: usize| !quick || at == 0 || at == count - 1;
        for (at_mb, mb) in CACHES_MB.into_iter().enumerate() {
            for (at_kb, kb) in SIZES_KB.into_iter().enumerate() {
                if !corners(at_mb, CACHES_MB.len()) || !corners(at_kb, SIZES_KB.len()) {
                    continue;
                }
                for who in [NONE, BATCHING, SEEK] {
                    plan.add(World::Cache(mb, kb), who);
                }
            }
        }
        for who in [NONE, Who::Interval(300), BATCHING, SEEK] {
            plan.add(World::Collapsing, who);
        }
        for world in HARMFUL {
            for who in [NONE, BATCHING, LIVE, SEEK] {
                plan.add(world, who);
            }
        }
        Ok(plan)
    }

    fn add(&mut self, world: World, who: Who) {
        let mut scenario = self.scenario(world);
        scenario.decide_each_batch = matches!(who, Who::EachBatch(_));
        self.cases.push(Case { world, who, scenario });
    }

    /// The service of a world.
    fn scenario(&self, world: World) -> TiersScenario {
        let calibration = &self.calibration;
        let mut scenario = calibration.service.clone();
        let training = (calibration.training_s / calibration.step_s).ceil() as usize;
        let users = &mut scenario.users;
        users.hold_s = calibration.step_s;
        users.counts = vec![calibration.training_users; training];
        scenario.warm_up_s = training as f64 * calibration.step_s;
        let stationary = |users: u32| {
            let steps = (calibration.stationary_s / calibration.step_s).ceil() as usize;
            vec![users; steps]
        };
        let measured = match world {
            World::Dynamic | World::Collapsing => calibration.steps.clone(),
            World::Stationary(count) => stationary(count),
            World::Cache(..) => stationary(FIGURE_12_USERS),
            World::Unique => stationary(UNIQUE_USERS),
            World::Cached => stationary(calibration.stationary_users[0]),
            World::Light => stationary(20),
        };
        if !matches!(world, World::Dynamic | World::Collapsing) {
            scenario.users.counts.fill(measured[0]);
        }
        scenario.users.counts.extend(&measured);
        scenario.duration_s = scenario.users.counts.len() as f64 * calibration.step_s;
        match world {
            World::Dynamic | World::Stationary(_) => {}
            World::Cache(mb, kb) => {
                if let (Some(cache), Some(site)) = (&mut scenario.cache, &mut scenario.auction) {
                    cache.bytes = u64::from(mb) * 1_000_000;
                    // The same spread around another mean; the site has no shorter page than 1,024 bytes.
                    site.mean_bytes = kb * 1_000;
                    site.least_bytes = (kb * 200).max(1_024);
                    site.most_bytes = kb * 5_000;
                }
            }
            World::Collapsing => scenario.collapse = true,
            World::Unique => {
                scenario.users.think_s = 1.0;
                self.ask_for(&mut scenario, 2_000_000);
            }
            World::Light => scenario.users.think_s = 1.0,
            World::Cached => {
                self.ask_for(&mut scenario, 1_000);
                scenario.cache = Some(CacheFigures {
                    bytes: 1_000_000_000,
                    ..CacheFigures::default()
                });
            }
        }
        scenario
    }

    /// So many pages in the place of the site, asked for evenly, at the same costs.
    fn ask_for(&self, scenario: &mut TiersScenario, objects: u64) {
        let Some(site) = scenario.auction.take() else {
            return;
        };
        scenario.pages = vec![PageFigures {
            name: "page".to_owned(),
            weight: 1.0,
            objects,
            zipf: 0.0,
            bytes: f64::from(site.mean_bytes),
            bytes_shape: Shape::Deterministic {},
            front_s: site.front_s,
            application_s: site.application_s,
            database_s: site.database_s,
            delay_s: site.delay_s,
            writes: false,
            changes: Vec::new(),
        }];
    }

    /// The place of a case.
    pub fn find(&self, world: World, who: Who) -> Option<usize> {
        self.cases
            .iter()
            .position(|case| case.world == world && case.who == who)
    }

    /// Those of a world.
    pub fn of(&self, world: World) -> impl Iterator<Item = (usize, &Case)> {
        self.cases
            .iter()
            .enumerate()
            .filter(move |(_, case)| case.world == world)
    }

    /// The law of a case, as it runs live.
    ///
    /// # Errors
    /// A law that the plant cannot have.
    pub fn stack(&self, case: &Case) -> Result<Stack, Failure> {
        let scenario = &case.scenario;
        let plant = scenario.plant().context("the service's plant")?;
        let parts = match case.who {
            Who::Interval(ms) => {
                let held = Setting::default().with(Lever::BatchInterval, Some(f64::from(ms) / 1e3));
                let law = Constant::new(held).context("a setting that names a lever")?;
                vec![Part::new(Box::new(law))]
            }
            Who::Laws(names) | Who::EachBatch(names) => names
                .iter()
                .map(|name| self.law(name, case, plant).map(Part::new))
                .collect::<Result<_, _>>()?,
        };
        Ok(Stack::new(parts, plant, PATIENCE).context("the laws of a case")?)
    }

    fn law(&self, name: &str, case: &Case, plant: Plant) -> Result<Box<dyn Law>, Failure> {
        let scenario = &case.scenario;
        let name: LawName = name.parse().context("the name of a law")?;
        let slo = scenario.slo().context("the SLO")?;
        let mut config = LawConfig::of(name);
        if case.who != LIVE {
            config.batching.explore_periods = (scenario.warm_up_s / scenario.period_s * 0.9) as u32;
            // The paper's SLA is on the mean, to which it steers, and no percentile is kept.
            config.batching.sla_ms = Some(slo.target().as_millis());
            config.batching.keep_slo = false;
        }
        // Ours tries intervals, which say nothing of the work.
        config.dvfs.cpu_use = match case.who == SEEK_DVFS {
            true => CpuUse::Utilisation,
            false => CpuUse::Batches,
        };
        config.dvfs.every_periods = POWER_PERIODS;
        // Of three tiers one is busy all the time: then the three together are so busy, and should have the highest frequency.
        config.dvfs.target_utilisation = BUSY_TIERS;
        config.dvfs.frequencies_ghz = Some(scenario.frequencies_ghz.clone());
        let context = LawContext {
            slo,
            plant,
            // No law of batching goes by it.
            service_rate: PerSecond::new(1.0),
            machines: vec![scenario.machine.clone()],
        };
        Ok(config.build(&context)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_a_service_with_laws_that_it_can_have() {
        for quick in [false, true] {
            let plan = Plan::new(quick).unwrap();
            for case in &plan.cases {
                let said = format!("{}: {}", case.world.name(), case.who.name());
                case.scenario
                    .check()
                    .unwrap_or_else(|error| panic!("{said}: {error}"));
                plan.stack(case)
                    .unwrap_or_else(|error| panic!("{said}: {error:?}"));
            }
            assert!(plan.find(World::Dynamic, Who::Interval(300)).is_some());
        }
    }

    #[test]
    fn the_calibration_says_of_each_figure_where_it_is_from() {
        let figures = CALIBRATION.lines().filter(|line| line.contains(" = "));
        assert!(figures.count() > 20);
        for word in ["Calibrated", "Assumed", "Section"] {
            assert!(CALIBRATION.contains(word));
        }
    }
}
