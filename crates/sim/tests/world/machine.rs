//! What each lever saves on a machine: what physics says, and no more.

use crate::fixed;
use headroom_control::{Constant, Guardian, Law, Plant};
use headroom_physics::{MachineFigures, Placement};
use headroom_sim::quota::Quota;
use headroom_sim::scenario::{NodeGroup, Parking, Service};
use headroom_sim::{Scenario, Totals, run};
use headroom_units::{Lever, Setting};
use headroom_workload::{ArrivalProcess, Shape};

/// One machine of eight cores at a load, with requests of this mean.
fn machine(load: f64, mean_s: f64) -> Scenario {
    let rate = 1.0 / mean_s;
    Scenario {
        duration_s: Some(60.0_f64.min(2e5 * mean_s)),
        nodes: vec![NodeGroup {
            count: 1,
            cores: 8.0,
            fewest_cores: 1.0,
            ..NodeGroup::default()
        }],
        service: Service {
            rate_per_core_s: rate,
            size: Shape::Exponential {},
            ..Service::default()
        },
        arrivals: ArrivalProcess::Poisson {
            rate_per_s: load * 8.0 * rate,
        },
        ..Scenario::default()
    }
}

fn held(scenario: &Scenario, setting: Setting) -> Totals {
    let plant: Plant = scenario.plant().unwrap();
    let law: Box<dyn Law> = Box::new(Constant::new(setting).unwrap());
    run(scenario, &mut Guardian::new(law, plant, 5), 3, &mut |_| {}).unwrap()
}

fn everything_on(scenario: &Scenario) -> Totals {
    run(scenario, &mut fixed(scenario), 3, &mut |_| {}).unwrap()
}

fn cores(cores: f64) -> Setting {
    Setting::default().with(Lever::Cores, Some(cores))
}

fn saved(less: &Totals, fixed: &Totals) -> f64 {
    1.0 - less.energy / fixed.energy
}

/// The finding that this model is for: idle cores sleep by themselves, allocated or not.
#[test]
fn a_quota_saves_nothing_where_nobody_waits_for_it() {
    let both = |load: f64, mean_s: f64| {
        let mut scenario = machine(load, mean_s);
        scenario.nodes[0].quota = Some(Quota::default());
        (held(&scenario, cores(8.0 * load * 1.6)), everything_on(&scenario))
    };
    for mean_s in [0.04, 0.001] {
        let (less, fixed) = both(0.3, mean_s);
        let saved = saved(&less, &fixed);
        assert!(saved.abs() < 0.02, "{mean_s}: {saved}");
    }
    // Where all stop together for half of the time, the package sleeps then, and each core pays for the way there; the work
    // stays what it was, and requests wait for it.
    let (less, fixed) = both(0.1, 0.04);
    assert!((less.energy_by.work / fixed.energy_by.work - 1.0).abs() < 0.02);
    assert!(less.energy_by.packages < fixed.energy_by.packages);
    assert!(less.energy_by.idle_cores > fixed.energy_by.idle_cores);
    assert!(less.latency.unwrap().p95 > fixed.latency.unwrap().p95 * 3.0);
}

#[test]
fn parking_saves_where_idle_periods_are_short_and_nothing_where_they_are_long() {
    // 0.1 ms of work each: 8,000 idle periods a second, too short for deep sleep on all cores.
    let short = machine(0.1, 1e-4);
    let fixed = everything_on(&short);
    let parked = held(&short, cores(2.0));
    assert!(saved(&parked, &fixed) > 0.05, "{}", saved(&parked, &fixed));
    let cores_j = |totals: &Totals| totals.energy_by.idle_cores.get();
    assert!(cores_j(&parked) < 0.5 * cores_j(&fixed));
    let mut offline = short.clone();
    offline.nodes[0].parking = Parking::Offline;
    assert!(cores_j(&held(&offline, cores(2.0))) <= cores_j(&parked));
    let mut packed = short.clone();
    packed.nodes[0].placement = Placement::Packed;
    assert!(cores_j(&everything_on(&packed)) < cores_j(&fixed));

    // 40 ms each: every core sleeps as deep as it can anyway.
    let long = machine(0.1, 0.04);
    let saved = saved(&held(&long, cores(4.0)), &everything_on(&long));
    assert!(saved.abs() < 0.02, "{saved}");
}

#[test]
fn a_lower_frequency_saves_joules_of_the_work_and_of_nothing_else() {
    let scenario = machine(0.3, 0.01);
    let fixed = everything_on(&scenario);
    let slow = held(&scenario, Setting::default().with(Lever::Frequency, Some(1.4e9)));
    let work = slow.energy_by.work / fixed.energy_by.work;
    // (0.5 V + 3.5 f V²) / f at f = 2/3 of the highest, V = 0.838.
    assert!((work - 0.772).abs() < 0.02, "{work}");
    assert!(slow.latency.unwrap().mean > fixed.latency.unwrap().mean);
    assert_eq!(slow.energy_by.platform, fixed.energy_by.platform);
}

/// The closed form for a package that is awake whenever a core is: M/M/inf leaves it alone for exp(-busy) of the time.
#[test]
fn energy_is_that_of_the_physics() {
    let scenario = machine(0.05, 0.05);
    let totals = everything_on(&scenario);
    let figures = MachineFigures::skylake(8);
    let seconds = totals.duration.get();
    let busy = 0.05 * 8.0;
    let watts = |joules: headroom_units::Joules| joules.get() / seconds;
    assert!((watts(totals.energy_by.work) / (busy * 4.0) - 1.0).abs() < 0.1);
    assert!((watts(totals.energy_by.platform) - 20.0).abs() < 1e-9);
    let (up, asleep) = (
        figures.processor.uncore.get(),
        figures.processor.uncore_asleep.get(),
    );
    let expected = up - (up - asleep) * (-busy).exp();
    let packages = watts(totals.energy_by.packages);
    assert!((packages / expected - 1.0).abs() < 0.1, "{packages} {expected}");
    assert_eq!(totals.energy_by.total(), totals.energy);
}

/// Servers of a cluster go off by the same orders as live ones, and cost their boot.
#[test]
fn servers_that_are_off_save_what_they_idle_at_and_cost_their_boot() {
    let mut scenario = machine(0.1, 0.04);
    scenario.nodes[0].count = 4;
    scenario.duration_s = Some(900.0);
    scenario.power_states = Some(Default::default());
    let servers = |count: f64| Setting::default().with(Lever::Servers, Some(count));
    let fixed = everything_on(&scenario);
    let two = held(&scenario, servers(2.0));
    assert_eq!(two.failed, 0);
    let by = two.energy_by;
    assert!(by.off.get() > 0.0 && by.switching.get() > 0.0, "{by:?}");
    assert!(saved(&two, &fixed) > 0.25, "{}", saved(&two, &fixed));
}
