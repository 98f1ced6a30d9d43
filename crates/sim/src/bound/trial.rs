//! How often so many servers are late at least, tried.

use crate::balancer::Rule;
use crate::power::NodeModel;
use crate::scenario::Scenario;
use crate::server::{Job, Server};

/// Shares of what the servers can do between which it is tried: with less load they are taken to be in time, and more they cannot.
const TRIED: (f64, f64) = (0.75, 1.02);

/// Servers that are all alike, and the requests of a block.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    servers: usize,
    cores: f64,
    speed: f64,
    target_s: f64,
    /// Of the requests that are answered in a period so many may be late.
    allowed: f64,
    period_s: f64,
    /// When each came, and its size, seconds.
    requests: Vec<(f64, f64)>,
}

impl Trial {
    /// For the servers of a scenario; `None` where they are not alike, cannot be switched, or are not sent requests in turn.
    pub(super) fn of(scenario: &Scenario) -> Option<Self> {
        let in_turn = matches!(scenario.balancer.rule, Rule::RoundRobin {});
        let mut nodes = scenario.each_node();
        let first = nodes.next()?;
        let alike = nodes.all(|node| node == first);
        let service = &scenario.service;
        let model = NodeModel::new(first, service.frequency_insensitive_share);
        let top = model.at(model.top());
        (in_turn && alike && scenario.power_states.is_some()).then(|| Self {
            servers: scenario.each_node().count(),
            cores: first.cores,
            speed: first.speed * top.speed,
            target_s: service.target_ms / 1e3,
            allowed: 1.0 - service.percentile / 100.0,
            period_s: service.period_s,
            requests: Vec::new(),
        })
    }

    /// Takes a request of the block that runs.
    pub(super) fn add(&mut self, at_s: f64, size_s: f64) {
        self.requests.push((at_s, size_s));
    }

    /// Ends a block: the periods in it that are late with one server, with two, and so on.
    pub(super) fn late(&mut self, from_s: f64, to_s: f64) -> Vec<f64> {
        let work_s: f64 = self.requests.iter().map(|request| request.1).sum();
        let each_s = self.cores * self.speed * (to_s - from_s);
        let late = (1..=self.servers).map(|servers| {
            let load = work_s / (servers as f64 * each_s);
            match (TRIED.0..=TRIED.1).contains(&load) {
                true => self.late_with(servers, from_s, to_s) as f64,
                false => 0.0,
            }
        });
        let late = late.collect();
        self.requests.clear();
        late
    }

    /// The whole periods of the block that are late with so many servers at full speed, from empty.
    fn late_with(&self, servers: usize, from_s: f64, to_s: f64) -> usize {
        let first = (from_s / self.period_s).ceil();
        let whole = ((to_s / self.period_s).floor() - first).max(0.0) as usize;
        // Answered and late, period by period.
        let mut periods = vec![(0u64, 0u64); whole];
        for server in 0..servers {
            let mut jobs = Server::new(self.cores, self.speed);
            let mut due_s = f64::INFINITY;
            let mut complete = |jobs: &mut Server, due_s: &mut f64, until_s: f64| {
                while *due_s <= until_s {
                    let at_s = *due_s;
                    let Some((job, next_s)) = jobs.complete(at_s) else {
                        break;
                    };
                    let period = at_s / self.period_s - first;
                    if period >= 0.0
                        && let Some((answered, late)) = periods.get_mut(period as usize)
                    {
                        *answered += 1;
                        *late += u64::from(at_s - job.arrived > self.target_s);
                    }
                    *due_s = next_s;
                }
            };
            for (at_s, size_s) in self.requests.iter().skip(server).step_by(servers) {
                complete(&mut jobs, &mut due_s, *at_s);
                due_s = jobs.arrive(
                    *at_s,
                    *size_s,
                    Job {
                        arrived: *at_s,
                        user: 0,
                    },
                );
            }
            complete(&mut jobs, &mut due_s, to_s);
        }
        let is_late = |(answered, late): &&(u64, u64)| *late as f64 > self.allowed * *answered as f64 + 1e-9;
        periods.iter().filter(is_late).count()
    }
}
