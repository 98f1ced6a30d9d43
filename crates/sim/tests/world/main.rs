//! The world under control: what stays the same, what a cap, a fault and a lost period do.

mod caps;
mod faults;
mod joint;
mod machine;
mod same;
mod telemetry;

use headroom_control::{
    Allocation, Decision, Fixed, Guardian, Law, Observation, Plant, Reason, SloPower, Tuning,
};
use headroom_sim::{Bare, Scenario, Totals, run};
use headroom_units::{Cores, Hertz, Lever, Seconds, Watts};
use headroom_workload::Spacing;

/// A law that asks for the same in each period, from a given one on; everything before.
struct Constant {
    plant: Plant,
    allocation: Allocation,
    from: u64,
}

impl Law for Constant {
    fn name(&self) -> &'static str {
        "constant"
    }
    fn levers(&self) -> &'static [Lever] {
        &[Lever::Cores, Lever::Cap, Lever::Frequency]
    }
    fn decide(&mut self, observation: &Observation) -> Decision {
        Decision {
            setting: if observation.period >= self.from {
                self.allocation.into()
            } else {
                self.plant.full()
            },
            expected_rate: None,
            reflex: None,
            reasons: vec![Reason::new("constant", "as told".to_owned(), &[])],
            ..Decision::default()
        }
    }
    fn forget(&mut self) {}
}

fn day() -> Vec<f64> {
    (0..12).map(|hour| 140.0 + 90.0 * f64::from(hour).sin()).collect()
}

fn default_day() -> Scenario {
    Scenario::paper().with_trace(day(), Seconds::new(10.0), Spacing::Poisson)
}

fn slo_power(scenario: &Scenario) -> Guardian {
    let plant = scenario.plant().unwrap();
    let tuning = Tuning::default();
    let law = SloPower::new(scenario.slo().unwrap(), plant, scenario.service_rate(), tuning).unwrap();
    Guardian::new(Box::new(law), plant, 5)
}

fn fixed(scenario: &Scenario) -> Guardian {
    let plant = scenario.plant().unwrap();
    Guardian::new(Box::new(Fixed::new(plant)), plant, 5)
}

/// Everything that a run tells, as text: to be the same, it must be the same to the bit.
fn told(scenario: &Scenario, seed: u64) -> (Totals, String) {
    let mut all = String::new();
    let totals = run(scenario, &mut slo_power(scenario), seed, &mut |period| {
        all += &serde_json::to_string(&(period.observation, period.decision, period.traffic, period.nodes))
            .unwrap();
        all += &format!("{:?}\n", (period.energy, period.power, period.throttled));
    })
    .unwrap();
    (totals, all)
}

fn constant(scenario: &Scenario, cores: f64, cap_w: f64, ghz: Option<f64>) -> Totals {
    let plant = scenario.plant().unwrap();
    let allocation = Allocation {
        frequency: ghz.map(|ghz| Hertz::new(ghz * 1e9)),
        ..Allocation::new(Cores::new(cores), Watts::new(cap_w))
    };
    let mut law = Constant {
        plant,
        allocation,
        from: 0,
    };
    run(scenario, &mut Bare(&mut law), 3, &mut |_| {}).unwrap()
}
