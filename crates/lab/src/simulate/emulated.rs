//! A live run on emulated hardware, told as a world of the simulator: the same machine, the same SLO, and the service as
//! it was measured while it served.
//!
//! The emulated machine has N cores for which R real ones stand, so an emulated core is R/N of a real one. A request whose
//! page costs x seconds of a real core costs x N/R seconds of an emulated one; but it runs on one real core, which is N/R
//! emulated ones, and on no more. Emulated cores and frequencies are held by the real kernel's CPU quota, in periods of
//! 10 ms. All of that is in the scenario ([`headroom_sim::quota`]).

use anyhow::{Context, bail};
use headroom_console::Document;
use headroom_console::Failure;
use headroom_control::LawName;
use headroom_control::{Plant, Slo};
use headroom_sim::Scenario;
use headroom_sim::capping::Capping;
use headroom_sim::power::Machine;
use headroom_sim::quota::Quota;
use headroom_sim::scenario::{Delays, NodeGroup, Service};
use headroom_testbed::hardware::HardwareConfig;
use headroom_testbed::wiki::WikiCosts;
use headroom_units::{Cores, PerSecond, Seconds};
use headroom_workload::Shape;
use std::time::Duration;

/// The quota's period where real cores stand for emulated ones: the emulator takes the shortest of 10 ms and more that the
/// kernel allows, which is 10 ms from a tenth of a real core on.
const QUOTA_PERIOD_S: f64 = 0.01;
/// Time constant of the emulated package's running average of power: its long-term limit's window.
const CAP_WINDOW_S: f64 = 0.999_424;
/// From a decision until the emulator has it: measured by the agent's benchmark, a quota 2.2 ms, a cap over two packages
/// 4.4 ms, and the emulator's clock, which it wakes, ticks at most once a millisecond.
const CORES_DELAY_S: f64 = 0.003;
const CAP_DELAY_S: f64 = 0.005;

/// What the service cost while a load was served: CPU time of a real core for each kind of request.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Seconds of CPU time, rendering and the request's share of all else that the service did.
    pub costs_s: Vec<f64>,
    /// How often each kind was asked for.
    pub views: Vec<u64>,
}

impl Measured {
    /// What a load cost, from what had been counted before and after it; `None` where nothing was rendered in between.
    pub fn between(before: &WikiCosts, after: &WikiCosts) -> Option<Self> {
        let pages = after.pages.iter().zip(&before.pages);
        let each: Vec<(u64, f64)> = pages
            .map(|(after, before)| {
                let views = after.views.saturating_sub(before.views);
                (views, (after.cpu_s - before.cpu_s).get())
            })
            .filter(|(views, _)| *views > 0)
            .collect();
        let views: u64 = each.iter().map(|(views, _)| views).sum();
        if views == 0 {
            return None;
        }
        let rendering_s: f64 = each.iter().map(|(_, cpu_s)| cpu_s).sum();
        let all_s = (after.process_cpu_s - before.process_cpu_s).get();
        let rest_s = (all_s - rendering_s).max(0.0) / views as f64;
        Some(Self {
            costs_s: each
                .iter()
                .map(|(views, cpu_s)| cpu_s / *views as f64 + rest_s)
                .collect(),
            views: each.iter().map(|(views, _)| *views).collect(),
        })
    }

    /// Mean CPU time of a request.
    pub fn mean(&self) -> Seconds {
        let views: u64 = self.views.iter().sum();
        let pairs = self.costs_s.iter().zip(&self.views);
        Seconds::new(pairs.map(|(cost, views)| cost * *views as f64).sum::<f64>() / views as f64)
    }
}

/// A live run on emulated hardware.
#[derive(Clone, Debug)]
pub struct EmulatedRun<'a> {
    /// Its name.
    pub name: &'a str,
    /// The machine.
    pub hardware: &'a HardwareConfig,
    /// The real cores that stand for all of its cores.
    pub real_cores: Cores,
    /// The real cores that there are.
    pub cpus: f64,
    /// The SLO.
    pub slo: Slo,
    /// The control period.
    pub period: Duration,
    /// What can be allocated, as the law was given it.
    pub plant: Plant,
    /// The law, with its default parameters.
    pub law: LawName,
    /// μ as the law was given it.
    pub assumed: PerSecond,
    /// The service.
    pub service: &'a Measured,
}

impl EmulatedRun<'_> {
    /// The world of the run, without its arrivals.
    pub fn scenario(&self) -> Scenario {
        let hardware = self.hardware;
        let cores = f64::from(hardware.cores());
        let emulated_per_real = cores / self.real_cores.get();
        Scenario {
            name: self.name.to_owned(),
            core_step: self.plant.cores().step().get(),
            // What was recorded is what it was.
            allow_overload: true,
            service: Service {
                percentile: self.slo.percentile().as_percent(),
                target_ms: self.slo.target().as_millis(),
                period_s: self.period.as_secs_f64(),
                rate_per_core_s: 1.0 / (self.service.mean().get() * emulated_per_real),
                size: Shape::Empirical {
                    values: self.service.costs_s.iter().map(|cost_s| cost_s * 1e3).collect(),
                    weights: self.service.views.iter().map(|views| *views as f64).collect(),
                },
                frequency_insensitive_share: 0.0,
            },
            nodes: vec![NodeGroup {
                count: 1,
                cores,
                fewest_cores: self.plant.cores().min().get(),
                speed: 1.0,
                machine: Machine::Figures(Box::new(hardware.metered())),
                capping: Capping {
                    interval_s: hardware.tick.get(),
                    window_s: CAP_WINDOW_S,
                    ..Capping::default()
                },
                quota: Some(Quota {
                    period_s: QUOTA_PERIOD_S,
                    request_cores: Some(emulated_per_real),
                    cores_at_once: Some(self.cpus * emulated_per_real),
                    wakeups_per_busy_s: hardware.power.wakeups_per_busy_second.get(),
                }),
                lowest_cap_w: Some(self.plant.power().lowest_cap.get()),
                ..NodeGroup::default()
            }],
            delays: Delays {
                cap_s: CAP_DELAY_S,
                cores_s: CORES_DELAY_S,
                frequency_s: CAP_DELAY_S,
                ..Delays::default()
            },
            ..Scenario::default()
        }
    }

    /// The same as a scenario file, with the law and what it was given, for the record.
    ///
    /// # Errors
    /// A law that was given another machine than this one, which would be a defect.
    pub fn text(&self) -> Result<String, Failure> {
        let scenario = self.scenario();
        let assumed = scenario.plant().context("the world of the run")?;
        if !alike(&assumed, &self.plant) {
            let why = format!(
                "the law was given {:?}, and the machine is {assumed:?}",
                self.plant
            );
            return Err(anyhow::anyhow!("the run cannot be expressed as a world: {why}").into());
        }
        let mut world = toml::Table::try_from(&scenario).context("the world of the run as TOML")?;
        world.remove("arrivals");
        let mut control = toml::Table::new();
        control.insert("assumed_rate_per_core_s".to_owned(), self.assumed.get().into());
        let mut law = toml::Table::new();
        law.insert("name".to_owned(), self.law.to_string().into());
        world.insert("control".to_owned(), control.into());
        world.insert("law".to_owned(), law.into());
        Ok(format!(
            "{HEAD}\n{}",
            toml::to_string(&world).context("the world of the run as TOML")?
        ))
    }
}

/// Whether two plants are the same but for roundings.
fn alike(one: &Plant, other: &Plant) -> bool {
    let figures = |plant: &Plant| {
        let (cores, power) = (plant.cores(), plant.power());
        let frequency = plant.frequency().map_or([0.0; 3], |range| {
            [range.min().get(), range.max().get(), range.step().get()]
        });
        let of_cores = [cores.min().get(), cores.max().get(), cores.step().get()];
        let of_power = [power.base.get(), power.per_core.get(), power.lowest_cap.get()];
        [of_cores, of_power, frequency].concat()
    };
    let pairs = figures(one).into_iter().zip(figures(other));
    pairs
        .into_iter()
        .all(|(a, b)| (a - b).abs() <= 1e-6 * a.abs().max(b.abs()))
}

/// The first lines of such a text.
const HEAD: &str = "# The world of this run, for `headroom validate` and `headroom sim --scenario`. Service times are those \
                    measured while it ran;\n# a core is one of the emulated server's.\n";

/// The scenario that a run's record holds.
///
/// # Errors
/// A run whose record holds none: it did not run on emulated hardware, or under an older version.
pub fn recorded_world(run: &str, config: &str) -> anyhow::Result<Document> {
    if !config.starts_with(HEAD) {
        bail!(
            "the record of run {run} does not say what machine and service it ran on: only runs of `headroom validate` and \
             `headroom demo` on the emulated server do. Give its world with --scenario (`headroom sim --example`)"
        );
    }
    Ok(Document::shipped(&format!("the world of run {run}"), config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::Setting;
    use headroom_control::{CoreRange, FrequencyRange, PowerEnvelope};
    use headroom_testbed::wiki::PageCost;
    use headroom_units::{Hertz, Ratio, Watts};

    fn costs(process_cpu_s: f64, pages: &[(u64, f64)]) -> WikiCosts {
        WikiCosts {
            process_cpu_s: Seconds::new(process_cpu_s),
            pages: pages
                .iter()
                .map(|(views, cpu_s)| PageCost {
                    views: *views,
                    cpu_s: Seconds::new(*cpu_s),
                })
                .collect(),
        }
    }

    #[test]
    fn what_a_load_cost_is_what_was_counted_in_between() {
        let before = costs(1.0, &[(10, 0.1), (10, 0.4), (7, 0.07)]);
        let after = costs(1.9, &[(30, 0.3), (20, 0.8), (7, 0.07)]);
        // 0.6 s of rendering and 0.3 s of the rest, for 30 requests.
        let measured = Measured::between(&before, &after).unwrap();
        assert_eq!(measured.views, [20, 10]);
        for (cost, expected) in measured.costs_s.iter().zip([0.020, 0.050]) {
            assert!((cost - expected).abs() < 1e-12, "{measured:?}");
        }
        assert!((measured.mean().get() - 0.030).abs() < 1e-12);
        assert_eq!(Measured::between(&before, &before), None);
    }

    fn run<'a>(hardware: &'a HardwareConfig, service: &'a Measured) -> EmulatedRun<'a> {
        let cores = CoreRange::new(Cores::new(2.0), Cores::new(16.0), Cores::new(1.0)).unwrap();
        // Both packages up and sixteen cores in C1, and what each busy one adds to that.
        let power = PowerEnvelope {
            base: Watts::new(46.52 + 16.0 * 0.86),
            per_core: Watts::new(2.0),
            lowest_cap: Watts::new(61.0),
        };
        let frequency = FrequencyRange::new(Hertz::new(0.8e9), Hertz::new(2.1e9), Hertz::new(1e8)).unwrap();
        EmulatedRun {
            name: "demo-slo-power",
            hardware,
            real_cores: Cores::new(1.2),
            cpus: 2.0,
            slo: Slo::new(Ratio::from_percent(95.0), Seconds::from_millis(250.0)).unwrap(),
            period: Duration::from_millis(500),
            plant: Plant::new(cores, power).unwrap().with_frequency(frequency),
            law: LawName::SLO_POWER,
            assumed: PerSecond::new(18.0),
            service,
        }
    }

    #[test]
    fn the_emulated_server_becomes_a_node_and_a_page_what_it_costs_there() {
        let hardware = HardwareConfig::default();
        let service = Measured {
            costs_s: vec![0.002, 0.008],
            views: vec![2, 1],
        };
        let scenario = run(&hardware, &service).scenario();
        scenario.check().unwrap();
        // 4 ms of a real core are 53.3 ms of an emulated one, of which there are 13.3 to a real one.
        assert!((scenario.service.rate_per_core_s - 18.75).abs() < 1e-9);
        assert_eq!(
            scenario.service.size,
            Shape::Empirical {
                values: vec![2.0, 8.0],
                weights: vec![2.0, 1.0]
            }
        );
        let (service, node) = (&scenario.service, &scenario.nodes[0]);
        assert_eq!(
            (service.percentile, service.target_ms, service.period_s),
            (95.0, 250.0, 0.5)
        );
        assert_eq!((node.count, node.cores, node.fewest_cores), (1, 16.0, 2.0));
        assert_eq!(node.machine, Machine::Figures(Box::new(hardware.metered())));
        assert_eq!(node.lowest_cap_w, Some(61.0));
        assert_eq!((node.capping.interval_s, node.capping.smoothing_s), (0.01, 0.1));
        let quota = node.quota.unwrap();
        assert_eq!(quota.period_s, 0.01);
        assert!((quota.request_cores.unwrap() - 16.0 / 1.2).abs() < 1e-9);
        assert!((quota.cores_at_once.unwrap() - 32.0 / 1.2).abs() < 1e-9);
    }

    #[test]
    fn the_text_is_a_scenario_file_that_says_the_same() {
        let (hardware, service) = (
            HardwareConfig::default(),
            Measured {
                costs_s: vec![0.003, 0.004],
                views: vec![100, 90],
            },
        );
        let run = run(&hardware, &service);
        let document = recorded_world("7", &run.text().unwrap()).unwrap();
        let setting = Setting::from_document(document).unwrap();
        assert_eq!(setting.scenario, run.scenario());
        assert_eq!(
            (setting.law.names.first(), setting.assumed()),
            (LawName::SLO_POWER, run.assumed)
        );
        assert!(!setting.has_arrivals);
        assert!(alike(&setting.scenario.plant().unwrap(), &run.plant));
        // A law that was given another machine is no run of this one.
        let fewer = CoreRange::new(Cores::new(2.0), Cores::new(8.0), Cores::new(1.0)).unwrap();
        let other = EmulatedRun {
            plant: Plant::new(fewer, run.plant.power()).unwrap(),
            ..run
        };
        assert!(other.text().is_err());
        let error = recorded_world("7", "DemoArgs { .. }").unwrap_err().to_string();
        assert!(error.contains("run 7") && error.contains("--scenario"), "{error}");
    }

    /// A live run and its simulation can agree in joules only where both draw the same for the same work.
    #[test]
    fn the_emulated_machine_and_its_simulation_draw_the_same() {
        let hardware = HardwareConfig::default();
        let service = Measured {
            costs_s: vec![0.003],
            views: vec![1],
        };
        for share in [0.02, 0.2, 0.6] {
            let mut scenario = run(&hardware, &service).scenario();
            let cores = f64::from(hardware.cores());
            scenario.duration_s = Some(60.0);
            scenario.arrivals = headroom_workload::ArrivalProcess::Poisson {
                rate_per_s: share * cores * scenario.service.rate_per_core_s,
            };
            let mut law = headroom_control::Fixed::new(scenario.plant().unwrap());
            let (mut busy, mut joules, mut seconds) = (0.0, 0.0, 0.0);
            let mut machine = headroom_testbed::hardware::Machine::new(&hardware);
            let totals = headroom_sim::run(&scenario, &mut headroom_sim::Bare(&mut law), 1, &mut |period| {
                let used = period.utilisation.unwrap();
                let load = headroom_testbed::hardware::machine::CpuLoad {
                    allocated: Ratio::new(1.0),
                    busy: used,
                };
                // The emulated hardware in its own steps, from the utilisation that the simulation had.
                for _ in 0..50 {
                    machine.advance(hardware.tick, &vec![load; hardware.cores() as usize]);
                    joules += machine.power().get() * hardware.tick.get();
                    seconds += hardware.tick.get();
                }
                busy += used.get();
            })
            .unwrap();
            assert!((seconds - 60.0).abs() < 0.01);
            let ratio = joules / totals.energy.get();
            assert!((0.99..1.01).contains(&ratio), "{ratio} at {share}: {busy}");
        }
    }
}
