//! Which clusters are run under which controllers, and the calibration that they share.

use anyhow::{Context, anyhow};
use headroom_console::Document;
use headroom_console::Failure;
use headroom_control::Law;
use headroom_control::capacity::QueueKind;
use headroom_control::resize::{AlwaysOn, ResizeTuning, Schedule, Scheduled, Stepwise};
use headroom_sim::accept::AcceptScenario;
use headroom_units::{PerSecond, Seconds};
use headroom_workload::ArrivalProcess;
use headroom_workload::generate::{ClarknetLike, clarknet_like};
use headroom_workload::users::Browsing;
use serde::Deserialize;

/// The calibration as it ships.
pub const CALIBRATION: &str = include_str!("../../../../capacity-paper.toml");

/// Start-up and shutdown delays of Figure 12, seconds.
pub const DELAYS_S: [f64; 5] = [15.0, 30.0, 60.0, 120.0, 180.0];
/// Weeks of days whose average is the daily curve.
const WEEKS: usize = 10;
/// Between two numbers of users where they change fast, seconds.
const HOLD_S: f64 = 5.0;
/// The sinusoid of Figures 9 and 10: its period, seconds. Between its two overloads lie the seconds 1,200 to 1,800 in which
/// the paper's estimate stays as it is.
pub const PERIOD_S: f64 = 1_500.0;
/// How long a ramp takes, seconds; the paper prints no length.
const RAMP_S: f64 = 1_800.0;
/// Users at the end of a ramp and at the top of the sinusoid, over as many as the server serves at once: they ask less often
/// the longer they wait, and half as many again only just fill the queue.
const MAX_USERS: f64 = 1.8;
/// Users at the foot of the sinusoid.
const MIN_USERS: f64 = 0.1;

/// The file, key by key.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// What one server serves.
    pub capacity_per_s: f64,
    /// With objects of half the size.
    pub decreased_per_s: f64,
    /// With dynamic documents.
    pub increased_per_s: f64,
    /// How often an idle cluster is asked, over the day.
    pub mean_rate_per_s: f64,
    /// The compressed day.
    pub day_s: f64,
    /// The servers.
    pub cluster: AcceptScenario,
}

impl Calibration {
    /// The one that ships with the program.
    ///
    /// # Errors
    /// Never, as long as it is one.
    pub fn shipped() -> Result<Self, Failure> {
        let document = Document::shipped("capacity-paper.toml", CALIBRATION);
        Ok(document.parse("reproduce capacity")?)
    }
}

/// What requests cost, Sections 7.5.1 to 7.5.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Demand {
    /// As benchmarked.
    Standard,
    /// Half the object size.
    Decreased,
    /// Dynamic documents.
    Increased,
}

impl Demand {
    /// As a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Decreased => "decreased",
            Self::Increased => "increased",
        }
    }
}

/// Who decides on the number of servers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Controller {
    /// The reference.
    AlwaysOn,
    /// By the benchmarked capacity.
    Static,
    /// By the online estimate.
    Dynamic,
    /// The same with our estimator in the place of the paper's.
    BusyTime,
    /// By the time of day, in slots of so many hours of an uncompressed day.
    Scheduled(f64),
}

impl Controller {
    /// As words.
    pub fn name(self) -> String {
        match self {
            Self::AlwaysOn => "always on".to_owned(),
            Self::Static => "static".to_owned(),
            Self::Dynamic => "dynamic".to_owned(),
            Self::BusyTime => "dynamic by busy time".to_owned(),
            Self::Scheduled(hours) if hours < 1.0 => format!("scheduled, {:.0} min", hours * 60.0),
            Self::Scheduled(hours) => format!("scheduled, {hours:.0} h"),
        }
    }
}

/// A day of a cluster.
#[derive(Clone, Debug)]
pub struct Case {
    /// What requests cost.
    pub demand: Demand,
    /// Who decides.
    pub controller: Controller,
    /// The cluster, its delays set.
    pub cluster: AcceptScenario,
}

/// The days that are run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The calibration.
    pub calibration: Calibration,
    /// The daily curve, requests a second of an idle cluster, each held for `hold_s`.
    curve_per_s: Vec<f64>,
    hold_s: f64,
    /// The days.
    pub cases: Vec<Case>,
}

impl Plan {
    /// The plan; `scale` is the share of the paper's rates and capacities, and `length` that of its day.
    ///
    /// # Errors
    /// A calibration that is none.
    pub fn new(scale: f64, length: f64) -> Result<Self, Failure> {
        let mut calibration = Calibration::shipped()?;
        for rate in [
            &mut calibration.capacity_per_s,
            &mut calibration.decreased_per_s,
            &mut calibration.increased_per_s,
            &mut calibration.mean_rate_per_s,
        ] {
            *rate *= scale;
        }
        calibration.day_s *= length;
        let average = average_day()?;
        let mut plan = Self {
            hold_s: calibration.day_s / average.len() as f64,
            curve_per_s: average
                .iter()
                .map(|share| share * calibration.mean_rate_per_s)
                .collect(),
            calibration,
            cases: Vec::new(),
        };
        use Controller::{AlwaysOn, BusyTime, Dynamic, Scheduled, Static};
        for (demand, controllers) in [
            (
                Demand::Standard,
                &[
                    AlwaysOn,
                    Static,
                    Dynamic,
                    BusyTime,
                    Scheduled(0.5),
                    Scheduled(2.0),
                ][..],
            ),
            (Demand::Decreased, &[AlwaysOn, Static, Dynamic, BusyTime]),
            (Demand::Increased, &[AlwaysOn, Static, Dynamic, BusyTime]),
        ] {
            for controller in controllers {
                plan.add(demand, *controller, None);
            }
        }
        let usual = (
            plan.calibration.cluster.boot_s,
            plan.calibration.cluster.shutdown_s,
        );
        for delay_s in DELAYS_S {
            for delays in [(delay_s, usual.1), (usual.0, delay_s)] {
                if delays != usual {
                    plan.add(Demand::Decreased, Dynamic, Some(delays));
                }
            }
        }
        Ok(plan)
    }

    fn add(&mut self, demand: Demand, controller: Controller, delays_s: Option<(f64, f64)>) {
        let mut cluster = self.calibration.cluster.clone();
        (cluster.boot_s, cluster.shutdown_s) = delays_s.unwrap_or((cluster.boot_s, cluster.shutdown_s));
        cluster.cpu_s = 1.0 / self.capacity_per_s(demand);
        cluster.duration_s = self.calibration.day_s;
        cluster.queue.kind = match controller {
            Controller::BusyTime => QueueKind::BusyTime,
            _ => QueueKind::Published,
        };
        // T_c: the time that another server takes to start.
        cluster.queue.forecast_s = cluster.boot_s;
        cluster.power_states.shutdown_s = cluster.shutdown_s;
        let browsing = Browsing::default();
        let per_user = browsing.requests_per_user_s(0.0);
        cluster.arrivals = ArrivalProcess::Browsing(Browsing {
            users: self
                .curve_per_s
                .iter()
                .map(|rate| (rate / per_user).round() as u32)
                .collect(),
            hold_s: self.hold_s,
            ..browsing
        });
        // Whoever is asked first finds as many servers as the first minutes need; the dynamic controller learns from one.
        let first = self.curve_per_s.first().copied().unwrap_or_default() / self.capacity_per_s(demand);
        cluster.serving = match controller {
            Controller::AlwaysOn => cluster.servers,
            _ => (first.ceil().max(1.0) as usize).min(cluster.servers),
        };
        self.cases.push(Case {
            demand,
            controller,
            cluster,
        });
    }

    /// What one server really serves.
    pub const fn capacity_per_s(&self, demand: Demand) -> f64 {
        match demand {
            Demand::Standard => self.calibration.capacity_per_s,
            Demand::Decreased => self.calibration.decreased_per_s,
            Demand::Increased => self.calibration.increased_per_s,
        }
    }

    /// The place of the case with the usual delays.
    pub fn usual(&self, demand: Demand, controller: Controller) -> Option<usize> {
        let base = &self.calibration.cluster;
        self.cases.iter().position(|case| {
            (case.demand, case.controller) == (demand, controller)
                && (case.cluster.boot_s, case.cluster.shutdown_s) == (base.boot_s, base.shutdown_s)
        })
    }

    /// The place of the dynamic controller's day with these delays, of Figure 12.
    pub fn delayed(&self, boot_s: f64, shutdown_s: f64) -> Option<usize> {
        self.cases.iter().position(|case| {
            case.demand == Demand::Decreased
                && case.controller == Controller::Dynamic
                && (case.cluster.boot_s, case.cluster.shutdown_s) == (boot_s, shutdown_s)
        })
    }

    /// The controller itself.
    ///
    /// # Errors
    /// A schedule that cannot be, as of a day without length.
    pub fn resizer(&self, case: &Case) -> Result<Box<dyn Law>, Failure> {
        let capacity = PerSecond::new(self.calibration.capacity_per_s);
        let tuning = ResizeTuning::default();
        Ok(match case.controller {
            Controller::AlwaysOn => Box::new(AlwaysOn),
            Controller::Static => Box::new(Stepwise::fixed(capacity, tuning)?),
            Controller::Dynamic | Controller::BusyTime => Box::new(Stepwise::online(tuning)?),
            Controller::Scheduled(hours) => {
                let curve: Vec<PerSecond> = self.curve_per_s.iter().copied().map(PerSecond::new).collect();
                let slot = Seconds::new(self.calibration.day_s * hours / 24.0);
                let schedule = Schedule::of_curve(&curve, Seconds::new(self.hold_s), slot, capacity)?;
                Box::new(Scheduled::new(schedule, Seconds::new(case.cluster.boot_s))?)
            }
        })
    }

    /// A single server, always on, whose requests also wait for `wait_s`, and as many users as it serves at once where every
    /// answer takes no longer than it must.
    fn single(&self, wait_s: f64) -> (AcceptScenario, f64) {
        let cluster = AcceptScenario {
            servers: 1,
            serving: 1,
            wait_s,
            cpu_s: 1.0 / self.calibration.capacity_per_s,
            ..self.calibration.cluster.clone()
        };
        let users = self.true_capacity_per_s(wait_s) / Browsing::default().requests_per_user_s(wait_s);
        (cluster, users)
    }

    /// What a server whose requests also wait for `wait_s` can serve: its CPU or its workers set the limit.
    pub fn true_capacity_per_s(&self, wait_s: f64) -> f64 {
        let cpu_s = 1.0 / self.calibration.capacity_per_s;
        let workers = f64::from(self.calibration.cluster.workers);
        self.calibration.capacity_per_s.min(workers / (wait_s + cpu_s))
    }

    /// A single server under a linearly increasing number of users.
    pub fn ramp(&self) -> AcceptScenario {
        let (cluster, users) = self.single(0.0);
        with_users(cluster, RAMP_S, |time_s| MAX_USERS * users * time_s / RAMP_S)
    }

    /// A single server under a number of users like a sine wave, twice its period; its requests also wait for `wait_s`.
    pub fn sinusoid(&self, wait_s: f64) -> AcceptScenario {
        let (cluster, users) = self.single(wait_s);
        let (mean, amplitude) = ((MAX_USERS + MIN_USERS) / 2.0, (MAX_USERS - MIN_USERS) / 2.0);
        with_users(cluster, 2.0 * PERIOD_S, |time_s| {
            users * (mean - amplitude * (time_s / PERIOD_S * std::f64::consts::TAU).cos())
        })
    }
}

fn with_users(cluster: AcceptScenario, duration_s: f64, users: impl Fn(f64) -> f64) -> AcceptScenario {
    let steps = (duration_s / HOLD_S).round() as usize;
    AcceptScenario {
        arrivals: ArrivalProcess::Browsing(Browsing {
            users: (0..steps)
                .map(|step| users((step as f64 + 0.5) * HOLD_S).round() as u32)
                .collect(),
            hold_s: HOLD_S,
            ..Browsing::default()
        }),
        duration_s,
        ..cluster
    }
}

/// The average day of the curve like ClarkNet's, its mean 1.
fn average_day() -> Result<Vec<f64>, Failure> {
    let days = 7 * WEEKS;
    let config = ClarknetLike {
        days,
        mean: PerSecond::new(1.0),
        ..ClarknetLike::default()
    };
    let trace = clarknet_like(&config).context("the daily curve")?;
    let mut average = vec![0.0; config.points_per_day];
    for (at, rate) in trace.rates().iter().enumerate() {
        average[at % config.points_per_day] += rate.get() / days as f64;
    }
    let mean = average.iter().sum::<f64>() / average.len() as f64;
    if mean > 0.0 {
        average.iter_mut().for_each(|share| *share /= mean);
        Ok(average)
    } else {
        Err(Failure::Run(anyhow!("the daily curve has no requests")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_has_each_figure_s_days_and_they_can_be_run() {
        let plan = Plan::new(1.0, 1.0).unwrap();
        assert_eq!(plan.cases.len(), 6 + 4 + 4 + 8);
        for case in &plan.cases {
            case.cluster.check().unwrap();
            plan.resizer(case).unwrap();
        }
        for delay_s in DELAYS_S {
            assert!(plan.delayed(delay_s, 60.0).is_some() && plan.delayed(60.0, delay_s).is_some());
        }
        assert_eq!(
            plan.usual(Demand::Decreased, Controller::Dynamic),
            plan.delayed(60.0, 60.0)
        );
        let mean = plan.curve_per_s.iter().sum::<f64>() / plan.curve_per_s.len() as f64;
        assert!((mean / 1_360.0 - 1.0).abs() < 1e-9, "{mean}");
        // What the increased demand needs, all servers together can give.
        let peak = plan.curve_per_s.iter().copied().fold(0.0, f64::max);
        assert!(peak < 5.0 * plan.calibration.increased_per_s, "{peak}");
        plan.ramp().check().unwrap();
        plan.sinusoid(0.5).check().unwrap();
    }

    #[test]
    fn waiting_moves_the_limit_from_the_cpu_to_the_workers() {
        let plan = Plan::new(1.0, 1.0).unwrap();
        assert_eq!(plan.true_capacity_per_s(0.0), 595.0);
        let waiting = plan.true_capacity_per_s(0.5);
        assert!((waiting - 256.0 / (0.5 + 1.0 / 595.0)).abs() < 1e-9, "{waiting}");
    }
}
