//! The run's sums, and whether they add up.

use super::{State, World};
use crate::energy::EnergyByCause;
use crate::error::RunError;
use crate::histogram::LatencyHistogram;
use crate::threads::totals::{ClassTotals, ThreadShares, ThreadsTotals};
use headroom_physics::IdleTotals;
use headroom_units::{Joules, Seconds};

/// Sums over a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    pub(super) in_system: u64,
    pub(super) sent: u64,
    pub(super) answered: u64,
    /// Of these, steps of other applications.
    others_sent: u64,
    others_answered: u64,
    /// Threads of other applications that have work.
    others_active: u32,
    latency_s: f64,
    /// The integral of the queries in the system.
    in_system_s: f64,
    /// Threads in each state now, and the integrals: runnable, sleeping, disk.
    states: [u32; 3],
    states_s: [f64; 3],
    /// Instructions as with one thread, and as executed.
    base: f64,
    pub(super) inflated: f64,
    /// What all this was at the end of the warm-up.
    warm: Option<Box<Warm>>,
}

/// Where the measured part of a run begins.
#[derive(Clone, Debug, Default)]
struct Warm {
    at_s: f64,
    account: Account,
    cores: IdleTotals,
    switches: u64,
    accesses: u64,
    served_s: f64,
    lock_waits: u64,
    rounds: u64,
    work_j: f64,
}

impl Account {
    pub(super) fn new(threads: u32) -> Self {
        Self {
            states: [0, threads, 0],
            ..Self::default()
        }
    }

    pub(super) fn pass(&mut self, dt_s: f64) {
        self.in_system_s += self.in_system as f64 * dt_s;
        for (sum_s, threads) in self.states_s.iter_mut().zip(self.states) {
            *sum_s += f64::from(threads) * dt_s;
        }
    }

    pub(super) fn sent(&mut self, is_other: bool) {
        self.sent += 1;
        self.others_sent += u64::from(is_other);
        self.in_system += 1;
    }

    pub(super) fn answered(&mut self, latency_s: f64, is_other: bool) {
        self.answered += 1;
        self.others_answered += u64::from(is_other);
        self.in_system -= 1;
        self.latency_s += latency_s;
    }

    pub(super) fn moved(&mut self, from: State, to: State, is_other: bool) {
        let is_active = |state: State| u32::from(is_other && state != State::Sleeping);
        self.others_active = self.others_active + is_active(to) - is_active(from);
        self.states[from as usize] -= 1;
        self.states[to as usize] += 1;
    }

    /// What so many instructions of the server grow by, now, with the factors over its active threads.
    pub(super) fn compute(&mut self, instructions: f64, factors: &[f64]) -> f64 {
        let factor = factors[self.active() as usize];
        self.base += instructions;
        self.inflated += instructions * factor;
        factor
    }

    /// Queries sent to the server.
    pub(super) const fn queries_sent(&self) -> u64 {
        self.sent - self.others_sent
    }

    /// Queries that the server answered.
    pub(super) const fn queries_answered(&self) -> u64 {
        self.answered - self.others_answered
    }

    /// Threads of the server that are runnable or wait for the disk.
    pub(super) fn active(&self) -> u32 {
        self.states[State::Runnable as usize] + self.states[State::Disk as usize] - self.others_active
    }
}

impl World<'_> {
    fn reading(&mut self) -> Warm {
        Warm {
            at_s: self.now_s,
            account: Account {
                warm: None,
                ..self.account.clone()
            },
            work_j: self.cpu.work_j(self.now_s),
            cores: self.cpu.drawn(self.now_s).clone(),
            switches: self.cpu.switches,
            accesses: self.disk.accesses,
            served_s: self.disk.served_s,
            lock_waits: self.locks.waits,
            rounds: self.gate.as_ref().map_or(0, |gate| gate.rounds),
        }
    }

    pub(super) fn warm_up(&mut self) {
        self.latency.clear();
        self.class_latency.iter_mut().for_each(LatencyHistogram::clear);
        for thread in &mut self.threads {
            thread.answered = 0;
            thread.missed.clear();
        }
        self.cpu.begin_idle(self.now_s);
        self.account.warm = Some(Box::new(self.reading()));
    }

    /// How each class did since the end of the warm-up.
    fn class_totals(&mut self) -> Vec<ClassTotals> {
        let latency = std::mem::take(&mut self.class_latency);
        let of = |(class, latency): (&super::Class, LatencyHistogram)| {
            let allowed = class.allowed();
            let members = &self.threads[class.members.start as usize..class.members.end as usize];
            // The most of a connection's misses over what it may miss.
            let worst = |missed: &[f64], queries: u64| {
                let each = missed.iter().zip(&allowed);
                each.map(|(missed, allowed)| missed / (allowed * queries.max(1) as f64))
                    .fold(0.0, f64::max)
            };
            let mut sums = vec![0.0; allowed.len()];
            for thread in members {
                sums.iter_mut()
                    .zip(&thread.missed)
                    .for_each(|(sum, missed)| *sum += missed);
            }
            let each = members
                .iter()
                .map(|thread| worst(&thread.missed, thread.answered));
            let has_slo = !allowed.is_empty();
            ClassTotals {
                name: class.figures.name.clone(),
                connections: class.figures.connections,
                queries: latency.count(),
                missed: has_slo.then(|| worst(&sums, latency.count())),
                missed_worst: has_slo.then(|| each.fold(0.0, f64::max)),
                latency,
            }
        };
        self.classes.iter().zip(latency).map(of).collect()
    }

    pub(super) fn totals(mut self) -> Result<ThreadsTotals, RunError> {
        self.cpu.end_idle(self.now_s);
        let end = self.reading();
        let warm = self.account.warm.take().unwrap_or_default();
        self.check(&end, &warm)?;
        let length_s = end.at_s - warm.at_s;
        let classes = self.class_totals();
        let (account, before) = (&end.account, &warm.account);
        let threads_s = f64::from(self.scenario.connections) * length_s;
        let share = |state: State| {
            let state = state as usize;
            (account.states_s[state] - before.states_s[state]) / threads_s
        };
        let base = account.base - before.base;
        let machine = &self.scenario.machine;
        let busy = end.cores.running - warm.cores.running;
        let (idle, before_idle) = (&end.cores, &warm.cores);
        let idle_cores = idle.idle + idle.transitions - before_idle.idle - before_idle.transitions;
        let disk = &self.scenario.disk;
        let states = idle.states.iter().enumerate().map(|(state, seconds)| {
            let before = before_idle.states.get(state).copied().unwrap_or_default();
            *seconds - before
        });
        Ok(ThreadsTotals {
            length_s,
            cores: machine.processor.cores,
            queries: account.queries_answered() - before.queries_answered(),
            classes,
            latency: self.latency,
            mean_in_system: (account.in_system_s - before.in_system_s) / length_s,
            busy,
            ipq: if base > 0.0 {
                (account.inflated - before.inflated) / base
            } else {
                1.0
            },
            switches: end.switches - warm.switches,
            accesses: end.accesses - warm.accesses,
            disk_utilisation: (end.served_s - warm.served_s) / (f64::from(disk.parallel) * length_s),
            lock_waits: end.lock_waits - warm.lock_waits,
            rounds: end.rounds - warm.rounds,
            longest_wait: Seconds::new(self.gate.as_ref().map_or(0.0, |gate| gate.longest_s(end.at_s))),
            threads: ThreadShares {
                runnable: share(State::Runnable),
                sleeping: share(State::Sleeping),
                disk: share(State::Disk),
            },
            energy: EnergyByCause {
                work: Joules::new(end.work_j - warm.work_j),
                idle_cores,
                packages: idle.uncore - before_idle.uncore,
                platform: machine.platform * Seconds::new(length_s),
                ..EnergyByCause::default()
            },
            disks: headroom_units::Watts::new(disk.power_w) * Seconds::new(length_s),
            package_asleep: idle.package_asleep - before_idle.package_asleep,
            idle_states: states.collect(),
            idle: self.cpu.idle,
        })
    }

    /// Each sum by two ways.
    fn check(&self, end: &Warm, warm: &Warm) -> Result<(), RunError> {
        let account = &end.account;
        let ages_s: f64 = self
            .threads
            .iter()
            .flat_map(|thread| &thread.sent_s)
            .map(|sent_s| end.at_s - sent_s)
            .sum();
        let waiting: usize = self.threads.iter().map(|thread| thread.sent_s.len()).sum();
        let cores = self.scenario.machine.processor.cores as f64;
        let asleep_s: f64 = end.cores.states.iter().map(|seconds| seconds.get()).sum();
        let measured_s = end.at_s - warm.at_s;
        let ran_s = (end.cores.running - warm.cores.running).get();
        for (what, left, right) in [
            // Little's law: L = lambda W, both times the length.
            (
                "the time of queries in the system",
                account.in_system_s,
                account.latency_s + ages_s,
            ),
            (
                "queries",
                account.sent as f64,
                account.answered as f64 + waiting as f64,
            ),
            (
                "the time of threads",
                account.states_s.iter().sum(),
                f64::from(self.scenario.connections) * end.at_s,
            ),
            (
                "the time of cores",
                end.cores.running.get() + asleep_s,
                cores * end.at_s,
            ),
            (
                "the time of idle periods",
                self.cpu.idle.lengths.sum_s(),
                cores * measured_s - ran_s,
            ),
        ] {
            if (left - right).abs() > 1e-6 * left.abs().max(right.abs()).max(1.0) {
                return Err(RunError::Account { what, left, right });
            }
        }
        Ok(())
    }
}
