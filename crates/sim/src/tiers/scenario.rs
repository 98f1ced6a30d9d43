//! What such a service is made of.

use crate::error::ScenarioError;
use crate::scenario::Limits;
use headroom_control::{CoreRange, Plant, PlantError, PowerEnvelope, Slo};
use headroom_physics::{FrequencyFigures, IdleState, MachineFigures};
use headroom_units::{Cores, Hertz, Lever, LeverRange, PerSecond, Ratio, Seconds, Watts};
use headroom_workload::Shape;
use headroom_workload::auction::{Mix, Site, SiteConfig};
use serde::{Deserialize, Serialize};

/// Between two frequencies that a law may ask for, hertz; what is in force is the highest of the list within it.
const FREQUENCY_STEP_HZ: f64 = 1e7;

/// The service and its users.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TiersScenario {
    /// Simulated time, seconds.
    pub duration_s: f64,
    /// The first so many seconds, of which no total says anything.
    pub warm_up_s: f64,
    /// Seconds between two decisions.
    pub period_s: f64,
    /// Decide at the end of each batching interval instead, while there is one: the paper's control period.
    pub decide_each_batch: bool,
    /// Seconds that a sample is over.
    pub sample_s: f64,
    /// The SLO on the mean response time, seconds.
    pub target_s: f64,
    /// Who asks.
    pub users: UserFigures,
    /// What is asked for.
    pub pages: Vec<PageFigures>,
    /// An auction site in the place of those pages.
    pub auction: Option<AuctionFigures>,
    /// How what a page costs is distributed around its means.
    pub demand: Shape,
    /// The tier in front: the web server with its cache.
    pub front: FrontFigures,
    /// The application's tier.
    pub application: TierFigures,
    /// The database's tier.
    pub database: TierFigures,
    /// The cache; none by default.
    pub cache: Option<CacheFigures>,
    /// Whether requests for what is being fetched wait for that fetch, batched or not.
    pub collapse: bool,
    /// The batcher.
    pub batch: BatchFigures,
    /// The share of the work at the highest frequency that does not depend on the frequency.
    pub insensitive_share: f64,
    /// The frequencies, gigahertz, ascending.
    pub frequencies_ghz: Vec<f64>,
    /// What the machine draws. Its tiers use as many of its cores as they have; the rest idles.
    pub machine: MachineFigures,
    /// What ends a run that would not end.
    pub limits: Limits,
}

/// The users: each thinks, asks and waits for the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UserFigures {
    /// How many there are, one number after the other; the last one stays.
    pub counts: Vec<u32>,
    /// How long each number stays, seconds.
    pub hold_s: f64,
    /// Mean time from an answer to the next request, seconds.
    pub think_s: f64,
    /// How it is distributed.
    pub think: Shape,
}

impl Default for UserFigures {
    fn default() -> Self {
        Self {
            counts: vec![100],
            hold_s: 30.0,
            think_s: 1.0,
            think: Shape::Exponential {},
        }
    }
}

/// Pages of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageFigures {
    /// Its name.
    pub name: String,
    /// How often it is asked for, over the sum of all pages' weights.
    pub weight: f64,
    /// How many different ones there are.
    pub objects: u64,
    /// Popularity of the i-th most popular one in proportion to i^-zipf; 0: all alike.
    #[serde(default)]
    pub zipf: f64,
    /// Mean size, bytes.
    pub bytes: f64,
    /// How sizes are distributed over the objects; an object always has the same.
    #[serde(default = "deterministic")]
    pub bytes_shape: Shape,
    /// Mean work of the front tier for one that is not in the cache, seconds at the highest frequency.
    pub front_s: f64,
    /// Mean work of the application's tier, seconds at the highest frequency.
    pub application_s: f64,
    /// Mean work of the database's tier, seconds at the highest frequency.
    pub database_s: f64,
    /// A delay that no frequency changes (disk, network), seconds.
    #[serde(default)]
    pub delay_s: f64,
    /// Never held and never stored: it changes something.
    #[serde(default)]
    pub writes: bool,
    /// The pages of whose kind it changes the one with its number, by name.
    #[serde(default)]
    pub changes: Vec<String>,
}

const fn deterministic() -> Shape {
    Shape::Deterministic {}
}

/// An auction site in the manner of RUBiS ([`headroom_workload::auction`]). Its pages cost the same, whichever they are: "requests are of
/// roughly equivalent processing demand" (the paper, Section III.B).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuctionFigures {
    /// What visitors come for: `browsing`, `bidding` or `selling`.
    pub mix: String,
    /// Items for sale.
    pub items: u32,
    /// Registered users.
    pub registered: u32,
    /// Zipf's exponent of the items' popularity; 0 is even, as RUBiS draws them.
    pub zipf: f64,
    /// The shortest page, bytes.
    pub least_bytes: u32,
    /// The mean over all pages, bytes.
    pub mean_bytes: u32,
    /// The longest page, bytes.
    pub most_bytes: u32,
    /// Mean work of the front tier for a page that is not in the cache, seconds at the highest frequency.
    pub front_s: f64,
    /// Mean work of the application's tier, seconds at the highest frequency.
    pub application_s: f64,
    /// Mean work of the database's tier, seconds at the highest frequency.
    pub database_s: f64,
    /// A delay that no frequency changes (disk, network), seconds.
    pub delay_s: f64,
}

impl Default for AuctionFigures {
    fn default() -> Self {
        let site = SiteConfig::default();
        Self {
            mix: Mix::Browsing.name().to_owned(),
            items: site.items,
            registered: site.users,
            zipf: site.popularity_exponent,
            least_bytes: site.least_bytes,
            mean_bytes: site.mean_bytes,
            most_bytes: site.most_bytes,
            front_s: 0.0005,
            application_s: 0.004,
            database_s: 0.002,
            delay_s: 0.0,
        }
    }
}

impl AuctionFigures {
    /// The site.
    pub(super) fn site(&self) -> Result<Site, ScenarioError> {
        let config = SiteConfig {
            items: self.items,
            users: self.registered,
            popularity_exponent: self.zipf,
            least_bytes: self.least_bytes,
            mean_bytes: self.mean_bytes,
            most_bytes: self.most_bytes,
            ..SiteConfig::default()
        };
        Site::new(config).map_err(|error| {
            let key = match error.setting {
                "users" => "registered",
                "popularity_exponent" => "zipf",
                other => other,
            };
            ScenarioError::new(
                format!("auction.{key}"),
                format!("is {}: {}", error.value, error.remedy),
            )
        })
    }

    /// What visitors come for.
    pub(super) fn mix(&self) -> Result<Mix, ScenarioError> {
        self.mix
            .parse::<Mix>()
            .map_err(|error| ScenarioError::new("auction.mix", error.to_string()))
    }
}

/// The tier in front.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FrontFigures {
    /// Its cores.
    pub cores: u32,
    /// Requests that it works at together, behind tiers included; 0: any number.
    pub workers: u32,
    /// Mean work for an answer from the cache, or from what another fetched, seconds at the highest frequency.
    pub hit_s: f64,
}

impl Default for FrontFigures {
    fn default() -> Self {
        Self {
            cores: 1,
            workers: 0,
            hit_s: 0.0001,
        }
    }
}

/// A tier behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TierFigures {
    /// Its cores.
    pub cores: u32,
}

impl Default for TierFigures {
    fn default() -> Self {
        Self { cores: 1 }
    }
}

/// The cache.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheFigures {
    /// What it may hold, bytes.
    pub bytes: u64,
    /// The largest object that is stored, bytes.
    pub max_object_bytes: u64,
    /// How long an object may be used once it is stored, seconds; a day by default.
    pub fresh_s: f64,
}

impl Default for CacheFigures {
    /// That of the paper, Section VII.B and VIII.A.
    fn default() -> Self {
        Self {
            bytes: 20_000_000,
            max_object_bytes: 1_000_000,
            fresh_s: 86_400.0,
        }
    }
}

/// The batcher.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BatchFigures {
    /// The interval at the beginning, seconds; 0 holds nothing.
    pub interval_s: f64,
    /// The longest that a law may set, seconds.
    pub max_interval_s: f64,
}

impl Default for BatchFigures {
    fn default() -> Self {
        Self {
            interval_s: 0.0,
            max_interval_s: 1.0,
        }
    }
}

impl Default for TiersScenario {
    /// Ten seconds of a page that a processor of the paper's testbed serves, without a cache.
    fn default() -> Self {
        Self {
            duration_s: 600.0,
            warm_up_s: 0.0,
            period_s: 1.0,
            decide_each_batch: false,
            sample_s: 30.0,
            target_s: 1.0,
            users: UserFigures::default(),
            pages: default_pages(),
            auction: None,
            demand: Shape::Exponential {},
            front: FrontFigures::default(),
            application: TierFigures::default(),
            database: TierFigures::default(),
            cache: None,
            collapse: false,
            batch: BatchFigures::default(),
            insensitive_share: 0.0,
            frequencies_ghz: vec![2.0, 2.33, 2.83],
            machine: q9550(),
            limits: Limits::default(),
        }
    }
}

pub(super) fn default_pages() -> Vec<PageFigures> {
    vec![PageFigures {
        name: "item".to_owned(),
        weight: 1.0,
        objects: 1_000,
        zipf: 0.8,
        bytes: 10_000.0,
        bytes_shape: Shape::Deterministic {},
        front_s: 0.0005,
        application_s: 0.004,
        database_s: 0.002,
        delay_s: 0.0,
        writes: false,
        changes: Vec::new(),
    }]
}

/// An Intel Core 2 Quad Q9550 in a small server: 95 W of thermal design power by its data sheet, of which the cores' and the rest's
/// parts, the voltages and the idle states' powers are assumed; it has no deep idle state that its kernel of then would enter.
fn q9550() -> MachineFigures {
    let mut machine = MachineFigures::broadwell(4);
    let processor = &mut machine.processor;
    processor.frequency = FrequencyFigures {
        lowest: Hertz::new(2.0e9),
        highest: Hertz::new(2.83e9),
        step: Hertz::new(FREQUENCY_STEP_HZ),
        lowest_voltage: 0.88,
        dynamic: Watts::new(16.0),
        leakage: Watts::new(4.0),
    };
    processor.idle_states = vec![
        IdleState::new("C1", 5.0, 1.0, 1.0, 1.0),
        IdleState::new("C1E", 4.0, 10.0, 20.0, 20.0),
    ];
    processor.uncore = Watts::new(15.0);
    processor.uncore_asleep = Watts::new(15.0);
    processor.background = PerSecond::new(100.0);
    machine.platform = Watts::new(40.0);
    machine
}

impl TiersScenario {
    /// The cores of the tiers: front, application, database.
    pub(super) const fn cores(&self) -> [u32; 3] {
        [self.front.cores, self.application.cores, self.database.cores]
    }

    /// The SLO that a law is given. The paper's is on the mean, for which the median stands: the 95th percentile of a service that is busy
    /// all the time exceeds such a target long before the mean does.
    ///
    /// # Errors
    /// [`PlantError::Target`].
    pub fn slo(&self) -> Result<Slo, PlantError> {
        Slo::new(Ratio::new(0.5), Seconds::new(self.target_s))
    }

    /// What laws can set: the batching interval, and the frequency where there are several.
    ///
    /// # Errors
    /// [`PlantError`], of a scenario that has not been checked.
    pub fn plant(&self) -> Result<Plant, PlantError> {
        let processor = &self.machine.processor;
        let cores = Cores::new(processor.cores as f64);
        let idle = processor.idle_states[0].power;
        let base = self.machine.platform + processor.uncore + idle * processor.cores as f64;
        let power = PowerEnvelope {
            base,
            per_core: processor.frequency.busy_at_top() - idle,
            lowest_cap: base,
        };
        let interval = LeverRange::between(0.0, self.batch.max_interval_s);
        let plant = Plant::new(CoreRange::new(cores, cores, Cores::new(1.0))?, power)?
            .with_range(Lever::BatchInterval, interval)?;
        match self.frequencies_ghz[..] {
            [least, .., most] => {
                let range = LeverRange {
                    step: FREQUENCY_STEP_HZ,
                    ..LeverRange::between(least * 1e9, most * 1e9)
                };
                plant.with_range(Lever::Frequency, range)
            }
            _ => Ok(plant),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_laws_can_set_is_what_there_is() {
        let mut scenario = TiersScenario::default();
        let plant = scenario.plant().unwrap();
        assert_eq!(plant.bounds(Lever::BatchInterval), Some((0.0, 1.0)));
        assert_eq!(plant.bounds(Lever::Frequency), Some((2.0e9, 2.83e9)));
        scenario.frequencies_ghz = vec![2.83];
        assert_eq!(scenario.plant().unwrap().bounds(Lever::Frequency), None);
    }

    #[test]
    fn a_scenario_is_what_it_was_written_as() {
        let scenario = TiersScenario {
            cache: Some(CacheFigures::default()),
            ..TiersScenario::default()
        };
        let text = toml::to_string(&scenario).unwrap();
        assert_eq!(toml::from_str::<TiersScenario>(&text).unwrap(), scenario);
    }
}
