//! A machine under the paper's workload: clients that ask for one size, pause, and ask again.

use super::machine::{Busy, Served, SizesEnergy, energy, equal, load};
use crate::error::{RunError, ScenarioError, within};
use crate::heap::Heap;
use crate::histogram::LatencyHistogram;
use crate::scenario::Limits;
use headroom_physics::{RequestCost, ServingLoad, ServingMachine};
use headroom_units::{PerSecond, Ratio, Seconds, Watts};
use headroom_workload::random::{Purpose, Rng};
use headroom_workload::{Distribution, Shape};

/// The most clients.
const MAX_CLIENTS: u32 = 100_000;

/// How clients pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pausing {
    /// All together, once each has the answer that was outstanding: threads of one program.
    #[default]
    Together,
    /// All together as soon as the time to send is over: answers that are outstanding then are dropped with their connections, and what
    /// the machine did for them counts for nothing. So does ApacheBench with a limit of time: its loop ends, and its process with it.
    AtOnce,
    /// Each by itself, once it has its answer: clients that fall out of step after some windows. Some always send then, and the density says
    /// nothing of the machine any more.
    Alone,
}

/// One cell of a profile: a machine, what a request takes of it, and how it is asked (Section 3.2 of the paper).
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileScenario {
    /// The machine.
    pub machine: ServingMachine,
    /// What a request takes on average; the bytes are always as many.
    pub cost: RequestCost,
    /// How the processor time of requests spreads. What a closed loop serves does not depend on it, but where all take the same time
    /// all clients go in step, as real ones do not.
    pub cpu: Shape,
    /// Clients, each with one request at a time. The paper has 100.
    pub clients: u32,
    /// From the beginning of one window to that of the next, if no answer were outstanding. The paper has 5 s.
    pub window: Seconds,
    /// The share of a window in which clients send. Then they pause for the rest of the window; whether the answer that is outstanding
    /// is waited for first, [`pausing`](Self::pausing) says.
    pub density: Ratio,
    /// How they pause.
    pub pausing: Pausing,
    /// Windows that are measured, after one that is not.
    pub windows: u32,
    /// What ends a run that would not end.
    pub limits: Limits,
}

impl ProfileScenario {
    /// A machine asked as the paper asks it, at this density, for six windows.
    pub fn of(machine: ServingMachine, cost: RequestCost, density: Ratio) -> Self {
        Self {
            machine,
            cost,
            cpu: Shape::Exponential {},
            clients: 100,
            window: Seconds::new(5.0),
            density,
            pausing: Pausing::default(),
            windows: 6,
            limits: Limits::default(),
        }
    }

    /// Checks the figures.
    ///
    /// # Errors
    /// [`ScenarioError`] with the key.
    pub fn check(&self) -> Result<(), ScenarioError> {
        self.machine
            .check()
            .map_err(|error| ScenarioError::new("machine", error.to_string()))?;
        within("cost.cpu", self.cost.cpu.get(), 1e-9, 3_600.0, " seconds")?;
        within("cost.bytes", self.cost.bytes, 1e-3, 1e15, " bytes")?;
        within(
            "clients",
            f64::from(self.clients),
            1.0,
            f64::from(MAX_CLIENTS),
            "",
        )?;
        within("window", self.window.get(), 1e-3, 3_600.0, " seconds")?;
        within("density", self.density.get(), 1e-3, 1.0, "")?;
        within("windows", f64::from(self.windows), 1.0, 1e6, "")?;
        self.cpu.check("cpu")?;
        Ok(())
    }
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct ProfileTotals {
    /// For how long: a whole number of the first client's windows with its pauses.
    pub measured: Seconds,
    /// Requests answered in that time.
    pub completed: u64,
    /// These by time.
    pub throughput: PerSecond,
    /// Mean power.
    pub power: Watts,
    /// Energy by cause.
    pub energy: SizesEnergy,
    /// How busy cores and link were on average.
    pub load: ServingLoad,
    /// From the request to the end of its answer.
    pub latency: LatencyHistogram,
    /// Requests whose clients dropped them, in all of the run.
    pub dropped: u64,
    /// Mean time from the beginning of a window to that of the next: the window, and what was waited for at its end.
    pub cycle: Seconds,
}

/// Runs one cell. The same scenario and seed give the same figures.
///
/// # Errors
/// [`RunError::Scenario`] where the scenario is none, [`RunError::TooManyEvents`] where the run would not end, [`RunError::Account`] where
/// work, requests or energy do not add up, which would be an error of the simulator.
pub fn profile(scenario: &ProfileScenario, seed: u64) -> Result<ProfileTotals, RunError> {
    scenario.check()?;
    Cell::new(scenario, seed).run()
}

struct Cell<'a> {
    scenario: &'a ProfileScenario,
    machine: Served,
    cpu: Distribution,
    draws: Rng,
    link_s: f64,
    /// Pausing clients, by when they begin a window.
    pausing: Heap<u32>,
    /// Until when each client sends.
    sends_until_s: Vec<f64>,
    /// When all that is outstanding is dropped.
    dropping_s: f64,
    /// Clients that have their last answer of the window and wait for the others.
    waiting: u32,
    /// Windows that the first client has begun.
    begun: u32,
    sent: u64,
    answered: u64,
    dropped: u64,
    /// At the beginning of what is measured: the time, the busy times, the answers.
    mark: (f64, Busy, u64),
    latency: LatencyHistogram,
}

impl<'a> Cell<'a> {
    fn new(scenario: &'a ProfileScenario, seed: u64) -> Self {
        let mut pausing = Heap::new();
        (0..scenario.clients).for_each(|client| pausing.push(0.0, client));
        Self {
            machine: Served::new(scenario.machine.cores),
            cpu: scenario.cpu.scaled(scenario.cost.cpu.get()),
            draws: Rng::new(seed, Purpose::Sizes),
            link_s: scenario.cost.bytes / scenario.machine.link_bytes_per_s,
            pausing,
            sends_until_s: vec![0.0; scenario.clients as usize],
            dropping_s: f64::INFINITY,
            waiting: 0,
            begun: 0,
            sent: 0,
            answered: 0,
            dropped: 0,
            mark: (0.0, Busy::default(), 0),
            latency: LatencyHistogram::new(),
            scenario,
        }
    }

    fn run(mut self) -> Result<ProfileTotals, RunError> {
        let limit = self.scenario.limits.events;
        let mut events = 0;
        loop {
            let (machine_s, window_s) = (
                self.machine.due_s(),
                self.pausing.first_key().unwrap_or(f64::INFINITY),
            );
            let now_s = machine_s.min(window_s).min(self.dropping_s);
            events += 1;
            if events > limit {
                let length_s = self.scenario.window.get() * f64::from(self.scenario.windows + 1);
                return Err(RunError::TooManyEvents {
                    limit,
                    at_s: now_s,
                    length_s,
                });
            }
            if self.dropping_s <= now_s {
                self.drop_all(now_s);
            } else if machine_s <= window_s {
                let link_s = self.link_s;
                if let Some(job) = self.machine.happen(now_s, |_| link_s) {
                    self.answered += 1;
                    self.latency.record(Seconds::new(now_s - job.arrived));
                    if self.go_on(now_s, job.user) {
                        return self.close(now_s);
                    }
                }
            } else if let Some((_, client)) = self.pausing.pop()
                && self.begin_window(now_s, client)
            {
                return self.close(now_s);
            }
        }
    }

    /// A client that has its answer sends again, or pauses; whether that was the last that is measured.
    fn go_on(&mut self, now_s: f64, client: u32) -> bool {
        if now_s < self.sends_until_s[client as usize] {
            self.send(now_s, client);
            return false;
        }
        let pause_s = self.pause_s();
        if pause_s <= 0.0 {
            return self.begin_window(now_s, client);
        }
        match self.scenario.pausing {
            Pausing::Alone => self.pausing.push(now_s + pause_s, client),
            // At once nobody comes here: what would have been answered at that time or later was dropped.
            Pausing::Together | Pausing::AtOnce => {
                self.waiting += 1;
                if self.waiting == self.scenario.clients {
                    self.pause_together(now_s + pause_s);
                }
            }
        }
        false
    }

    fn pause_s(&self) -> f64 {
        (1.0 - self.scenario.density.get()) * self.scenario.window.get()
    }

    fn pause_together(&mut self, until_s: f64) {
        self.waiting = 0;
        (0..self.scenario.clients).for_each(|one| self.pausing.push(until_s, one));
    }

    /// The clients' program ends, and with its connections all that the machine still held for it.
    fn drop_all(&mut self, now_s: f64) {
        self.dropping_s = f64::INFINITY;
        self.dropped += self.machine.lose(now_s).len() as u64;
        self.pause_together(now_s + self.pause_s());
    }

    fn begin_window(&mut self, now_s: f64, client: u32) -> bool {
        if client == 0 {
            self.begun += 1;
            // The first window is the one in which the clients fall out of step.
            if self.begun == 2 {
                self.mark = (now_s, self.machine.busy(now_s), self.answered);
                self.latency.clear();
            }
            if self.begun == self.scenario.windows + 2 {
                return true;
            }
        }
        let until_s = now_s + self.scenario.density.get() * self.scenario.window.get();
        self.sends_until_s[client as usize] = until_s;
        if self.scenario.pausing == Pausing::AtOnce && self.pause_s() > 0.0 {
            self.dropping_s = until_s;
        }
        self.send(now_s, client);
        false
    }

    fn send(&mut self, now_s: f64, client: u32) {
        self.sent += 1;
        let core_s = self.cpu.sample(&mut self.draws);
        self.machine.arrive(now_s, core_s, client);
    }

    fn close(mut self, now_s: f64) -> Result<ProfileTotals, RunError> {
        let scenario = self.scenario;
        let (from_s, busy_before, answered_before) = self.mark;
        let length_s = now_s - from_s;
        self.machine.check(now_s)?;
        equal(
            "requests",
            self.sent as f64,
            (self.answered + self.dropped + self.machine.requests() as u64) as f64,
        )?;
        let busy = self.machine.busy(now_s).since(busy_before);
        let load = load(&scenario.machine, busy, length_s);
        let energy = energy(&scenario.machine, busy, length_s);
        let power = energy.total() / Seconds::new(length_s);
        equal("power (watts)", power.get(), scenario.machine.power(load).get())?;
        let completed = self.answered - answered_before;
        Ok(ProfileTotals {
            measured: Seconds::new(length_s),
            completed,
            throughput: PerSecond::new(completed as f64 / length_s),
            power,
            energy,
            load,
            latency: self.latency,
            dropped: self.dropped,
            cycle: Seconds::new(length_s / f64::from(scenario.windows)),
        })
    }
}
