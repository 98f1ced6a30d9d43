//! The achieved side where servers can be switched: plans with hindsight, replayed through the simulator.
//!
//! A plan has two parts. *Servers*: the cheapest path of their number that keeps the load of those that serve under a share of
//! what they can do, found by dynamic programming over the whole run, with what a boot and a shutdown cost, each ordered so
//! early that the server serves when it is needed. *Frequency*: for each period the lowest whose load, with the work that is
//! left over, stays under another share. Both shares, and the lowest frequency that is used at all, are searched; each plan is
//! replayed, and the one that needs the least energy while it is late no more often than asked is what can be achieved.

use super::replay::Replay;
use super::{Bound, check_sound, least, requests};
use crate::error::RunError;
use crate::power::NodeModel;
use crate::scenario::{Scenario, Telemetry};
use crate::totals::Totals;
use crate::world::{Bare, run};
use headroom_control::Plant;
use headroom_physics::expected::{Load, server_power};
use headroom_physics::{MachineFigures, ServerFigures};
use headroom_units::{Cores, Hertz, Lever, PerSecond, Ratio, Seconds, Setting};

/// Shares of what the servers can do that are tried for their number, and for the frequency.
const SERVER_LOADS: [f64; 6] = [0.68, 0.76, 0.84, 0.88, 0.92, 0.96];
const FREQUENCY_LOADS: [f64; 5] = [0.65, 0.75, 0.82, 0.88, 0.94];
/// Lowest frequencies that are tried, as shares of the highest.
const LOWEST_PACES: [f64; 2] = [0.45, 0.70];

/// A run's work as hindsight knows it.
struct Hindsight {
    machines: Vec<MachineFigures>,
    /// Cores of each server, as fast as those that sizes are given for.
    capacities: Vec<f64>,
    /// Requests and seconds of work that arrive in each period, a second.
    rates: Vec<f64>,
    works: Vec<f64>,
    period_s: f64,
    /// Limits of the frequency with their pace, the highest first.
    paces: Vec<(Option<Hertz>, f64)>,
    /// Periods from the order to switch a server on until it serves, and for which one that goes stays away at least.
    lead: usize,
    away: usize,
}

/// Finds the best of some plans that are late in at most `late` of the periods; see the [module](self). The one that is late
/// least where none keeps it.
///
/// # Errors
/// As [`run`]; and [`RunError::Scenario`] where the scenario has faults or is a closed loop.
pub(super) fn clairvoyant(scenario: &Scenario, seed: u64, late: Ratio) -> Result<Bound, RunError> {
    check_sound(scenario)?;
    let plant = scenario.plant()?;
    let mut seen = scenario.clone();
    seen.telemetry = Telemetry::default();
    let hindsight = Hindsight::of(&seen, &plant, seed);
    let mut best: Option<(Totals, Vec<Setting>)> = None;
    for server_load in SERVER_LOADS {
        let servers = hindsight.servers(server_load);
        for lowest in LOWEST_PACES {
            for frequency_load in FREQUENCY_LOADS {
                let schedule = hindsight.schedule(&plant, &servers, frequency_load, lowest);
                let mut law = Replay::new(plant, schedule.clone());
                let totals = run(&seen, &mut Bare(&mut law), seed, &mut |_| {})?;
                let rank = |totals: &Totals| {
                    let over = totals.share_over().map_or(0.0, Ratio::get);
                    let broken = (over - late.get()).max(0.0);
                    (broken, totals.energy.get())
                };
                let better = best.as_ref().is_none_or(|(best, _)| rank(&totals) < rank(best));
                let kept = rank(&totals).0 == 0.0;
                if better {
                    best = Some((totals, schedule));
                }
                // A higher share is later still.
                if !kept {
                    break;
                }
            }
        }
    }
    let Some((totals, schedule)) = best else {
        let mut law = Replay::new(plant, Vec::new());
        let totals = run(&seen, &mut Bare(&mut law), seed, &mut |_| {})?;
        return Ok(Bound {
            least: least(scenario, seed, late)?,
            totals,
            schedule: Vec::new(),
        });
    };
    Ok(Bound {
        least: least(scenario, seed, late)?,
        totals,
        schedule,
    })
}

impl Hindsight {
    fn of(scenario: &Scenario, plant: &Plant, seed: u64) -> Self {
        let period_s = scenario.service.period_s;
        let periods = scenario.periods() as usize;
        let (mut rates, mut works) = (vec![0.0; periods], vec![0.0; periods]);
        for (at_s, size_s) in requests(scenario, seed) {
            let period = ((at_s / period_s) as usize).min(periods - 1);
            rates[period] += 1.0 / period_s;
            works[period] += size_s / period_s;
        }
        let insensitive = scenario.service.frequency_insensitive_share;
        let model = scenario
            .each_node()
            .next()
            .map(|node| NodeModel::new(node, insensitive));
        let mut paces = vec![(None, 1.0)];
        if let (Some(range), Some(model)) = (plant.frequency(), model) {
            let steps = ((range.max() - range.min()) / range.step()).round() as usize;
            paces.extend((1..=steps).map(|step| {
                let limit = range.round_down(range.max() - range.step() * step as f64);
                (Some(limit), model.at(model.at_most(limit)).speed)
            }));
        }
        let times = scenario
            .each_node()
            .map(|group| NodeModel::new(group, insensitive).switch_times_s());
        let (boot_s, shutdown_s) = times.fold((0.0_f64, 0.0_f64), |(boot, shutdown), (b, s)| {
            (boot.max(b), shutdown.max(s))
        });
        let warm_s = scenario.power_states.map_or(0.0, |states| states.warm_up_s);
        // The decision comes a period after what it is about began, and the balancer is asked in the next.
        let lead = ((boot_s + warm_s) / period_s).ceil() as usize + 2;
        Self {
            machines: scenario.machines(),
            capacities: scenario.each_node().map(|node| node.cores * node.speed).collect(),
            rates,
            works,
            period_s,
            paces,
            lead,
            away: lead + (shutdown_s / period_s).ceil() as usize,
        }
    }

    fn capacity(&self, servers: usize) -> f64 {
        self.capacities.iter().take(servers).sum()
    }

    /// Mean power of the first so many servers in a period, at the highest frequency: what decides between their numbers.
    fn watts(&self, servers: usize, period: usize) -> f64 {
        let (rate, work) = (self.rates[period], self.works[period]);
        let share = 1.0 / servers as f64;
        let each = self.machines.iter().enumerate().map(|(at, machine)| {
            if at >= servers {
                return machine.server.off.get();
            }
            let busy = (work * share).min(machine.processor.cores as f64);
            let load = Load {
                busy: Cores::new(busy),
                wakeups: PerSecond::new(rate * share),
                on: machine.processor.cores,
            };
            let levels = machine.frequencies(0.0);
            server_power(machine, load, &levels.at(levels.top())).get()
        });
        each.sum()
    }

    /// The work of the busiest second around a period, so that a bunch finds its servers.
    fn busiest(&self, period: usize) -> f64 {
        let around = (5.0 / self.period_s).ceil() as usize;
        let first = period.saturating_sub(around);
        let last = (period + around + 1).min(self.works.len());
        let work = &self.works[first..last];
        work.iter().sum::<f64>() / work.len() as f64
    }

    /// The cheapest path of the number of servers whose load stays under a share of what they can do.
    fn servers(&self, share: f64) -> Vec<usize> {
        let all = self.machines.len();
        let periods = self.works.len();
        // A change of the number by one costs half of what a server's cycle costs beyond being off for it.
        let cycle_j = |server: usize| {
            let figures: &ServerFigures = &self.machines[server].server;
            let cycle = figures.boot + figures.shutdown + Seconds::new(10.0);
            (figures.cycle() - figures.off * cycle).get().max(0.0)
        };
        let mut up_to = vec![0.0; all + 1];
        for server in 0..all {
            up_to[server + 1] = up_to[server] + cycle_j(server) / 2.0;
        }
        let change_j = |from: usize, to: usize| (up_to[from] - up_to[to]).abs();
        let mut cost = vec![f64::INFINITY; all + 1];
        cost[all] = 0.0;
        let mut parents: Vec<u16> = vec![0; periods * (all + 1)];
        for period in 0..periods {
            let needed = self.busiest(period) / share;
            let mut next = vec![f64::INFINITY; all + 1];
            for servers in 1..=all {
                if self.capacity(servers) < needed && servers < all {
                    continue;
                }
                let best = (1..=all)
                    .map(|from| (cost[from] + change_j(from, servers), from))
                    .min_by(|a, b| a.0.total_cmp(&b.0));
                if let Some((before, from)) = best {
                    next[servers] = before + self.watts(servers, period) * self.period_s;
                    parents[period * (all + 1) + servers] = from as u16;
                }
            }
            cost = next;
        }
        let mut at = (1..=all)
            .min_by(|a, b| cost[*a].total_cmp(&cost[*b]))
            .unwrap_or(all);
        let mut path = vec![all; periods];
        for period in (0..periods).rev() {
            path[period] = at;
            at = usize::from(parents[period * (all + 1) + at]).max(1);
        }
        // Who would be away for less than it takes to go and come back stays.
        let held: Vec<usize> = (0..periods)
            .map(|period| {
                let before = path[period.saturating_sub(self.away)..=period].iter().max();
                let after = path[period..(period + self.away).min(periods)].iter().max();
                let both = before.copied().unwrap_or(all).min(after.copied().unwrap_or(all));
                both.max(path[period])
            })
            .collect();
        held
    }

    /// The settings, period by period: the servers ordered ahead, and the lowest frequency that does the work.
    fn schedule(&self, plant: &Plant, servers: &[usize], share: f64, lowest: f64) -> Vec<Setting> {
        let periods = servers.len();
        let mut left_s = 0.0;
        (0..periods)
            .map(|period| {
                // What is decided at the end of this period is in force in the next.
                let next = (period + 1).min(periods - 1);
                let ahead = servers[next..(next + self.lead).min(periods)].iter().max();
                let ordered = ahead.copied().unwrap_or(servers[next]);
                let capacity = self.capacity(servers[next]);
                let work = self.works[next] + left_s / self.period_s;
                let enough = |pace: f64| pace >= lowest && work <= capacity * pace * share;
                let slowest = self.paces.iter().rfind(|(_, pace)| enough(*pace));
                let (limit, pace) = slowest.copied().unwrap_or((None, 1.0));
                left_s = (left_s + (self.works[next] - capacity * pace) * self.period_s).max(0.0);
                plant
                    .full()
                    .with(Lever::Frequency, limit.map(Hertz::get))
                    .with(Lever::Servers, Some(ordered as f64))
            })
            .collect()
    }
}
