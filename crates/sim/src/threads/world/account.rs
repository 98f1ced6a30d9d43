//! The run's sums, what a period reads of them, and whether they add up.

use super::{GateObservation, GateSettings, State, World};
use crate::energy::EnergyByCause;
use crate::error::RunError;
use crate::threads::policy::ConnectionObservation;
use crate::threads::totals::{ThreadShares, ThreadsTotals};
use headroom_physics::IdleTotals;
use headroom_units::Seconds;

/// Sums over a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    pub(super) in_system: u64,
    sent: u64,
    answered: u64,
    latency_s: f64,
    /// The integral of the queries in the system.
    in_system_s: f64,
    /// Threads in each state now, and the integrals: runnable, sleeping, disk.
    states: [u32; 3],
    states_s: [f64; 3],
    /// Instructions as with one thread, and as executed.
    base: f64,
    inflated: f64,
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

    pub(super) fn sent(&mut self) {
        self.sent += 1;
        self.in_system += 1;
    }

    pub(super) fn answered(&mut self, latency_s: f64) {
        self.answered += 1;
        self.in_system -= 1;
        self.latency_s += latency_s;
    }

    pub(super) fn moved(&mut self, from: State, to: State) {
        self.states[from as usize] -= 1;
        self.states[to as usize] += 1;
    }

    pub(super) fn compute(&mut self, instructions: f64, factor: f64) {
        self.base += instructions;
        self.inflated += instructions * factor;
    }

    /// Threads that are runnable or wait for the disk.
    pub(super) fn active(&self) -> u32 {
        self.states[State::Runnable as usize] + self.states[State::Disk as usize]
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
        self.cpu.begin_idle(self.now_s);
        self.account.warm = Some(Box::new(self.reading()));
    }

    /// A period ends, and the policy is asked.
    pub(super) fn period(
        &mut self,
        policy: &mut dyn FnMut(&GateObservation) -> Option<GateSettings>,
    ) -> Result<(), RunError> {
        let now_s = self.now_s;
        self.events
            .push(now_s + self.scenario.period_s, super::Event::Period);
        let busy_s = self.cpu.drawn(now_s).running.get();
        let Some(gate) = &mut self.gate else {
            return Ok(());
        };
        let mut connections = Vec::with_capacity(self.threads.len());
        for (number, thread) in self.threads.iter_mut().enumerate() {
            let (queries, mean, cv) = thread.recent.take();
            connections.push(ConnectionObservation {
                queries,
                mean,
                cv,
                in_system: thread.sent_s.len() as u32,
                waiting: gate.waits(number as u32),
            });
        }
        let length_s = now_s - self.period_began_s;
        let observation = GateObservation {
            at: Seconds::new(now_s),
            length: Seconds::new(length_s),
            throughput: self.period_latency.count() as f64 / length_s,
            waiting: gate.waiting(),
            percentiles: self.period_latency.at([0.5, 0.99, 0.999]),
            busy: Seconds::new(busy_s - self.period_busy_s),
            connections,
        };
        self.period_latency.clear();
        self.period_began_s = now_s;
        self.period_busy_s = busy_s;
        if let Some(settings) = policy(&observation) {
            self.scenario.check_settings("policy", "tokens", &settings)?;
            gate.set(settings);
        }
        Ok(())
    }

    pub(super) fn totals(mut self) -> Result<ThreadsTotals, RunError> {
        self.cpu.end_idle(self.now_s);
        let end = self.reading();
        let warm = self.account.warm.take().unwrap_or_default();
        self.check(&end, &warm)?;
        let length_s = end.at_s - warm.at_s;
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
            queries: account.answered - before.answered,
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
            threads: ThreadShares {
                runnable: share(State::Runnable),
                sleeping: share(State::Sleeping),
                disk: share(State::Disk),
            },
            energy: EnergyByCause {
                work: machine.processor.frequency.busy_at_top() * busy,
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
