//! Trying.
use headroom_control::{Guardian, Joint, JointTuning, LawConfig, LawContext, LawName, Stack};
use headroom_physics::MachineFigures;
use headroom_sim::scenario::NodeGroup;
use headroom_sim::{Controller, Fault, Scenario, run};
use headroom_units::Seconds;
use headroom_workload::Spacing;
use headroom_workload::generate::{Diurnal, diurnal};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let servers: u32 = args.get(1).map_or(4, |a| a.parse().unwrap());
    let what = args.get(2).map_or("", String::as_str);
    let mut base = Scenario {
        nodes: vec![NodeGroup {
            count: servers,
            cores: 8.0,
            ..NodeGroup::default()
        }],
        power_states: Some(Default::default()),
        ..Scenario::default()
    };
    match what {
        "slow" => {
            base.faults = vec![Fault::SlowNode {
                node: 1,
                factor: 0.5,
                at_s: 300.0,
                until_s: 1e9,
            }]
        }
        "late" => {
            base.telemetry.delay_s = 2.0;
            base.telemetry.latency_noise = 0.2;
        }
        "pauses" => {
            base.faults = (0..600)
                .map(|i| Fault::SlowNode {
                    node: 1,
                    factor: 0.001,
                    at_s: 6.0 * f64::from(i) + 3.0,
                    until_s: 6.0 * f64::from(i) + 3.25,
                })
                .collect();
        }
        _ => {}
    }
    let capacity = base.full_capacity().get();
    let whole = diurnal(&Diurnal {
        days: 2,
        points_per_day: 1800,
        step: Seconds::new(args.get(3).map_or(1.0, |a| a.parse().unwrap())),
        seed: 1,
        ..Diurnal::default()
    })
    .unwrap();
    let mean: f64 = whole.rates().iter().map(|r| r.get()).sum::<f64>() / whole.rates().len() as f64;
    let most = whole.rates().iter().map(|r| r.get()).fold(0.0, f64::max);
    let rates = whole
        .rates()
        .iter()
        .map(|r| r.get() / most * 0.6 * capacity)
        .collect();
    eprintln!("mean load {:.1} %", mean / most * 60.0);
    let scenario = base.with_trace(rates, whole.step(), Spacing::Poisson);
    let plant = scenario.plant().unwrap();
    let show = |name: &str, law: &mut dyn Controller| {
        let t = std::time::Instant::now();
        let mut n = 0.0;
        let verbose = std::env::var("SHOW").is_ok_and(|s| s == name);
        let totals = run(&scenario, law, 1, &mut |o| {
            n += o.nodes.iter().filter(|n| n.state.serves()).count() as f64;
            if verbose
                && o.observation.period % std::env::var("EVERY").map_or(20, |e| e.parse().unwrap()) == 0
            {
                println!(
                    "{:5} {:6.1}/s p95 {:6.1} {:?} {}",
                    o.observation.period,
                    o.arrival_rate().get(),
                    o.traffic.latency.map_or(0.0, |l| l.at_slo.as_millis()),
                    o.decision.setting,
                    o.decision
                        .reasons
                        .iter()
                        .map(|r| r.text.clone())
                        .collect::<Vec<_>>()
                        .join(" | ")
                );
            }
        })
        .unwrap();
        let by = totals.energy_by;
        let d = totals.duration.get();
        println!(
            "{:15} {:8.2} W work {:6.2} idle {:6.2} pkg {:6.2} plat {:6.1} off {:4.1} switch {:5.2} p95 {:6.1} ms over {:5.2} % failed {} servers {:4.1}  {:.1}s",
            name,
            totals.power_mean.get(),
            by.work.get() / d,
            by.idle_cores.get() / d,
            by.packages.get() / d,
            by.platform.get() / d,
            by.off.get() / d,
            by.switching.get() / d,
            totals.latency.unwrap().p95.as_millis(),
            totals.share_over().unwrap().as_percent(),
            totals.failed,
            n / totals.periods as f64,
            t.elapsed().as_secs_f64()
        );
    };
    for law in LawName::of_machines().filter(|l| ["fixed"].contains(&l.as_str())) {
        let context = LawContext {
            slo: scenario.slo().unwrap(),
            plant,
            service_rate: scenario.service_rate(),
            machines: scenario.machines(),
        };
        let config = LawConfig {
            names: law.into(),
            ..LawConfig::default()
        };
        let Ok(built) = config.build(&context) else {
            continue;
        };
        let Ok(mut stack) = Stack::of(built, context.plant, 5) else {
            continue;
        };
        show(law.as_str(), &mut stack);
    }
    let machines = vec![MachineFigures::skylake(8); servers as usize];
    let joint = Joint::new(
        scenario.slo().unwrap(),
        plant,
        &machines,
        scenario.service_rate(),
        JointTuning::default(),
    )
    .unwrap();
    show("joint", &mut Guardian::new(Box::new(joint), plant, 5));
    let lower = headroom_sim::bound::lower_bound(
        &Scenario {
            faults: vec![],
            ..scenario.clone()
        },
        1,
    );
    println!(
        "bound (all on): {:.1} W",
        lower.map_or(0.0, |j| j.get()) / scenario.duration().get()
    );
}
