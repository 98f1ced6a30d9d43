//! The service of `crates/lab/batching-paper.toml` with users and pages of which it is known how long a response takes.

use headroom_control::{Constant, Law, LawConfig, LawContext};
use headroom_sim::tiers::{PageFigures, TiersScenario};
use headroom_units::{Lever, PerSecond, Setting};
use headroom_workload::Shape;
use serde::Deserialize;

/// Users, each of whom thinks for so long in the mean.
pub const USERS: u32 = 400;
const THINK_S: f64 = 1.0;

#[derive(Deserialize)]
struct Calibration {
    service: TiersScenario,
}

/// The service of a calibration.
pub fn read(path: &str) -> TiersScenario {
    let text = std::fs::read_to_string(path).expect("a calibration");
    let calibration: Calibration = toml::from_str(&text).expect("a calibration");
    calibration.service
}

/// What is asked of it.
pub struct Asked {
    /// How long a response takes, about.
    pub response_s: f64,
    /// How busy users who do not wait for each other would keep it.
    pub load: f64,
    /// Of a response, what is no work of the tiers.
    pub delay_s: f64,
    /// Different pages, evenly asked for.
    pub objects: u64,
    pub period_s: f64,
    /// Longest interval and target, seconds.
    pub target_s: f64,
    /// Before what is measured, and that, seconds.
    pub lengths_s: (f64, f64),
}

impl Asked {
    /// The service with such users and pages; its cache is the calibration's.
    pub fn of(&self, service: &TiersScenario) -> TiersScenario {
        let mut scenario = service.clone();
        let site = scenario.auction.take().expect("an auction site");
        // A closed loop answers so many requests a second.
        let rate = f64::from(USERS) / (THINK_S + self.response_s);
        let work_s = self.load / rate;
        scenario.users.think_s = THINK_S;
        scenario.users.counts = vec![USERS];
        scenario.pages = vec![PageFigures {
            name: "page".to_owned(),
            weight: 1.0,
            objects: self.objects,
            zipf: 0.0,
            bytes: f64::from(site.mean_bytes),
            bytes_shape: Shape::Deterministic {},
            front_s: 0.1 * work_s,
            application_s: work_s,
            database_s: 0.35 * work_s,
            delay_s: self.delay_s,
            writes: false,
            changes: Vec::new(),
        }];
        scenario.period_s = self.period_s;
        scenario.target_s = self.target_s;
        scenario.batch.max_interval_s = self.target_s;
        scenario.sample_s = self.period_s * 10.0;
        (scenario.warm_up_s, scenario.duration_s) = (self.lengths_s.0, self.lengths_s.0 + self.lengths_s.1);
        scenario
    }
}

/// What a law is built for.
pub fn context(scenario: &TiersScenario) -> LawContext {
    LawContext {
        slo: scenario.slo().expect("an SLO"),
        plant: scenario.plant().expect("a plant"),
        service_rate: PerSecond::new(1.0),
        machines: vec![scenario.machine.clone()],
    }
}

/// The law of this name with its defaults, or none: no batches.
pub fn law(name: Option<&str>, context: &LawContext) -> Box<dyn Law> {
    match name {
        Some(name) => {
            let config = LawConfig::of(name.parse().expect("a law"));
            config.build(context).expect("a law")
        }
        None => {
            let none = Setting::default().with(Lever::BatchInterval, Some(0.0));
            Box::new(Constant::new(none).expect("a setting"))
        }
    }
}
