//! One machine: its cores, then its link, each shared by all requests that are there.

use crate::RunError;
use crate::server::{Job, Server};
use headroom_physics::{ServingLoad, ServingMachine};
use headroom_units::{Joules, Ratio};
use serde::{Deserialize, Serialize};

/// By how much two ways of keeping one account may differ, as a share: what roundings add up to.
const TOLERANCE: f64 = 1e-6;

/// Energy of machines by its cause: what a router can change is where the work and the transfers are, and who is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SizesEnergy {
    /// What machines that are on draw whatever they do.
    pub idle: Joules,
    /// Busy cores.
    pub work: Joules,
    /// Busy links.
    pub link: Joules,
    /// Machines that are off.
    pub off: Joules,
    /// Machines that boot or shut down.
    pub switching: Joules,
}

impl SizesEnergy {
    /// All of it.
    pub fn total(&self) -> Joules {
        self.idle + self.work + self.link + self.off + self.switching
    }
}

impl std::ops::AddAssign for SizesEnergy {
    fn add_assign(&mut self, other: Self) {
        self.idle = self.idle + other.idle;
        self.work = self.work + other.work;
        self.link = self.link + other.link;
        self.off = self.off + other.off;
        self.switching = self.switching + other.switching;
    }
}

/// How long its resources were busy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Busy {
    /// Core-seconds.
    pub(super) core_s: f64,
    /// Seconds of the link.
    pub(super) link_s: f64,
}

impl Busy {
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            core_s: self.core_s - before.core_s,
            link_s: self.link_s - before.link_s,
        }
    }
}

/// A machine at work. A request is known by the number that its [`Job`] has as its user.
#[derive(Clone, Debug)]
pub(super) struct Served {
    cpu: Server,
    link: Server,
    cpu_due_s: f64,
    link_due_s: f64,
    taken_core_s: f64,
    taken_link_s: f64,
    /// What requests whose machine was switched off were not given, and how long they had been there.
    lost: (Busy, f64),
    sojourn_s: f64,
}

impl Served {
    pub(super) fn new(cores: usize) -> Self {
        Self {
            cpu: Server::new(cores as f64, 1.0),
            link: Server::new(1.0, 1.0),
            cpu_due_s: f64::INFINITY,
            link_due_s: f64::INFINITY,
            taken_core_s: 0.0,
            taken_link_s: 0.0,
            lost: (Busy::default(), 0.0),
            sojourn_s: 0.0,
        }
    }

    /// Requests that are there.
    pub(super) fn requests(&self) -> usize {
        self.cpu.jobs() + self.link.jobs()
    }

    /// When something happens next.
    pub(super) fn due_s(&self) -> f64 {
        self.cpu_due_s.min(self.link_due_s)
    }

    pub(super) fn arrive(&mut self, now_s: f64, core_s: f64, request: u32) {
        self.taken_core_s += core_s;
        let job = Job {
            arrived: now_s,
            user: request,
        };
        self.cpu_due_s = self.cpu.arrive(now_s, core_s, job);
    }

    /// What is due happens; the request that is done by it, if one is. `link_s` says of a request how long it takes the link alone.
    pub(super) fn happen(&mut self, now_s: f64, link_s: impl Fn(u32) -> f64) -> Option<Job> {
        // A request that is done makes room before another comes to the link.
        if self.link_due_s <= self.cpu_due_s {
            let (job, due_s) = self.link.complete(now_s)?;
            self.link_due_s = due_s;
            self.sojourn_s += now_s - job.arrived;
            return Some(job);
        }
        let (job, due_s) = self.cpu.complete(now_s)?;
        self.cpu_due_s = due_s;
        let link_s = link_s(job.user);
        self.taken_link_s += link_s;
        self.link_due_s = self.link.arrive(now_s, link_s, job);
        None
    }

    /// How long its resources were busy by now.
    pub(super) fn busy(&mut self, now_s: f64) -> Busy {
        self.cpu.advance(now_s);
        self.link.advance(now_s);
        Busy {
            core_s: self.cpu.busy_core_s(),
            link_s: self.link.busy_core_s(),
        }
    }

    /// Its power goes: all that it held is lost.
    pub(super) fn lose(&mut self, now_s: f64) -> Vec<Job> {
        let (mut lost, core_s) = self.cpu.lose(now_s);
        let (more, link_s) = self.link.lose(now_s);
        lost.extend(more);
        (self.cpu_due_s, self.link_due_s) = (f64::INFINITY, f64::INFINITY);
        self.lost.0.core_s += core_s;
        self.lost.0.link_s += link_s;
        self.lost.1 += lost.iter().map(|job| now_s - job.arrived).sum::<f64>();
        lost
    }

    /// Checks that the work done is the work taken less what remains, and that the requests that were there are the times they took.
    pub(super) fn check(&mut self, now_s: f64) -> Result<(), RunError> {
        let busy = self.busy(now_s);
        let ages_s: f64 = [&self.cpu, &self.link]
            .into_iter()
            .flat_map(Server::each_job)
            .map(|job| now_s - job.arrived)
            .sum();
        equal(
            "processor time (core-seconds)",
            busy.core_s,
            self.taken_core_s - self.cpu.remaining_s() - self.lost.0.core_s,
        )?;
        equal(
            "transfers (seconds of links)",
            busy.link_s,
            self.taken_link_s - self.link.remaining_s() - self.lost.0.link_s,
        )?;
        equal(
            "requests in the system (Little's law, request-seconds)",
            self.cpu.job_s() + self.link.job_s(),
            self.sojourn_s + ages_s + self.lost.1,
        )
    }
}

/// How busy a machine was over a time.
pub(super) fn load(machine: &ServingMachine, busy: Busy, length_s: f64) -> ServingLoad {
    ServingLoad {
        cpu: Ratio::new(busy.core_s / (machine.cores as f64 * length_s)),
        link: Ratio::new(busy.link_s / length_s),
    }
}

/// What a machine that is on drew over a time.
pub(super) fn energy(machine: &ServingMachine, busy: Busy, length_s: f64) -> SizesEnergy {
    let joules = |watts: headroom_units::Watts, time_s: f64| Joules::new(watts.get() * time_s);
    SizesEnergy {
        idle: joules(machine.idle, length_s),
        work: joules(machine.busy, busy.core_s / machine.cores as f64),
        link: joules(machine.link, busy.link_s),
        ..SizesEnergy::default()
    }
}

/// Refuses two ways of keeping one account that differ.
pub(super) fn equal(what: &'static str, left: f64, right: f64) -> Result<(), RunError> {
    if (left - right).abs() <= TOLERANCE * left.abs().max(right.abs()).max(1.0) {
        return Ok(());
    }
    Err(RunError::Account { what, left, right })
}
