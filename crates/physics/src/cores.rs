//! The cores of a machine through time: which one runs, which sleep, how deep, and whether the package can.

use crate::governor::{Governor, TICK};
use crate::idle::deepest_within;
use crate::machine::{MachineFigures, ProcessorFigures};
use headroom_units::{Joules, Seconds};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Which idle core gets the next work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// The one that has been idle longest: the kernel spreads work, and all cores sleep for as short a time.
    #[default]
    Spread,
    /// The first: the last cores sleep for as long as nobody needs them (asymmetric packing).
    Packed,
}

/// What idle cores and packages drew, and where the time went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IdleTotals {
    /// Core-seconds for which cores ran.
    pub running: Seconds,
    /// Idle cores in their states.
    pub idle: Joules,
    /// Entering and leaving the states.
    pub transitions: Joules,
    /// Packages beside their cores.
    pub uncore: Joules,
    /// Core-seconds in each idle state, in the order of the table.
    pub states: Vec<Seconds>,
    /// Package-seconds asleep.
    pub package_asleep: Seconds,
    /// Idle periods that work ended.
    pub wakeups: u64,
}

/// Where a core is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Busy,
    Idle { state: usize, since_s: f64, ends_s: f64 },
    Offline,
}

#[derive(Clone, Debug)]
struct Core {
    state: State,
    governor: Governor,
    /// When the next background wake-up comes.
    timer_s: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Package {
    /// Its cores in their deepest state.
    deep: usize,
    /// Since when it sleeps.
    asleep_s: Option<f64>,
}

/// Follows each core of a machine. Between two events everything draws the same, so that an event costs O(1) but for the
/// core that it concerns.
///
/// Cores `0..on` run work; the rest of those online are parked: they idle, and only the background wakes them. Cores that
/// are offline stay in their deepest state and nothing wakes them.
#[derive(Clone, Debug)]
pub struct CoreTracker {
    figures: ProcessorFigures,
    placement: Placement,
    on: usize,
    /// Voltage over that at the highest frequency: what the shallowest state draws follows its square.
    voltage: f64,
    cores: Vec<Core>,
    packages: Vec<Package>,
    /// Idle cores that may run work, the one that has been idle longest first.
    idle: VecDeque<usize>,
    /// Busy cores, the one that has been busy longest first.
    busy: VecDeque<usize>,
    at_s: f64,
    /// Cores in each idle state.
    in_state: Vec<usize>,
    asleep: usize,
    /// No idle period ends of itself before this.
    next_s: f64,
    totals: IdleTotals,
}

impl CoreTracker {
    /// All cores idle from a moment on.
    pub fn new(machine: &MachineFigures, placement: Placement, now_s: f64) -> Self {
        let figures = machine.processor.clone();
        let (cores, states) = (figures.cores, figures.idle_states.len());
        let every_s = background_s(&figures);
        let mut tracker = Self {
            placement,
            on: cores,
            voltage: 1.0,
            cores: (0..cores)
                .map(|core| Core {
                    state: State::Busy,
                    governor: Governor::default(),
                    // One after the other, not all at once.
                    timer_s: now_s + every_s * (core + 1) as f64 / cores as f64,
                })
                .collect(),
            packages: vec![Package::default(); figures.packages],
            idle: VecDeque::with_capacity(cores),
            busy: (0..cores).collect(),
            at_s: now_s,
            in_state: vec![0; states],
            asleep: 0,
            next_s: f64::INFINITY,
            totals: IdleTotals {
                states: vec![Seconds::ZERO; states],
                ..IdleTotals::default()
            },
            figures,
        };
        tracker.release(cores);
        tracker
    }

    /// Cores that run work now.
    pub fn running(&self) -> usize {
        self.busy.len()
    }

    /// Cores that may run work.
    pub fn on(&self) -> usize {
        self.on
    }

    /// What was drawn so far by all that is not a busy core.
    pub fn totals(&self) -> &IdleTotals {
        &self.totals
    }

    /// Lets time pass.
    pub fn advance(&mut self, now_s: f64) {
        while self.next_s <= now_s {
            self.draw(self.next_s);
            self.end_periods();
        }
        self.draw(now_s);
    }

    /// From now on so many cores run work, bounded to those that may. How long the slowest of those woken took to wake.
    pub fn run(&mut self, now_s: f64, cores: usize) -> Seconds {
        self.advance(now_s);
        let cores = cores.min(self.on);
        let mut latency = Seconds::ZERO;
        while self.busy.len() < cores {
            let Some(core) = self.take_idle() else { break };
            if let Some(state) = self.leave(core) {
                latency = latency.max(self.figures.idle_states[state].exit_latency);
            }
            self.totals.wakeups += 1;
            self.busy.push_back(core);
        }
        let extra = self.busy.len().saturating_sub(cores);
        self.release(extra);
        latency
    }

    /// From now on this core runs work, for a simulator that has its own scheduler; how long it takes to wake. A core that runs
    /// already, is parked or offline stays as it is.
    pub fn run_core(&mut self, now_s: f64, core: usize) -> Seconds {
        self.advance(now_s);
        let Some(at) = self.idle.iter().position(|idle| *idle == core) else {
            return Seconds::ZERO;
        };
        self.idle.remove(at);
        let state = self.leave(core).unwrap_or(0);
        self.totals.wakeups += 1;
        self.busy.push_back(core);
        self.figures.idle_states[state].exit_latency
    }

    /// From now on this core is idle, for a simulator that has its own scheduler. A core that is idle already stays as it is.
    pub fn idle_core(&mut self, now_s: f64, core: usize) {
        self.advance(now_s);
        if let Some(at) = self.busy.iter().position(|busy| *busy == core) {
            self.busy.remove(at);
            self.rest(core);
        }
    }

    /// From now on work runs on the first so many cores (a cpuset); the rest of them idle. Work that ran on others moves.
    pub fn set_on(&mut self, now_s: f64, on: usize) {
        self.advance(now_s);
        let on = on.clamp(1, self.figures.cores);
        if on == self.on {
            return;
        }
        let running = self.busy.len();
        self.release(running);
        self.on = on;
        self.idle.clear();
        self.idle
            .extend((0..self.on).filter(|core| matches!(self.cores[*core].state, State::Idle { .. })));
        self.run(now_s, running.min(self.on));
    }

    /// From now on the cores from this one on are offline, the others online.
    pub fn set_online(&mut self, now_s: f64, online: usize) {
        let online = online.clamp(1, self.figures.cores);
        self.advance(now_s);
        self.set_on(now_s, self.on.min(online));
        for core in 0..self.figures.cores {
            match (core < online, self.cores[core].state) {
                (false, State::Idle { .. }) => {
                    self.leave(core);
                    self.cores[core].state = State::Offline;
                    self.enter_deep(core, self.deepest());
                }
                (true, State::Offline) => {
                    self.leave_deep(core, self.deepest());
                    self.cores[core].timer_s = now_s + background_s(&self.figures);
                    self.begin(core);
                }
                _ => {}
            }
        }
    }

    /// Another voltage from now on, over that at the highest frequency.
    pub fn set_voltage(&mut self, now_s: f64, voltage: f64) {
        self.advance(now_s);
        self.voltage = voltage;
    }

    const fn deepest(&self) -> usize {
        self.figures.idle_states.len() - 1
    }

    fn package_of(&self, core: usize) -> usize {
        core / (self.figures.cores / self.figures.packages)
    }

    /// What a core in a state draws at the voltage of now: a deeper one is at its own voltage, and never above the
    /// shallowest.
    fn state_w(&self, state: usize) -> f64 {
        state_power_w(&self.figures, state, self.voltage)
    }

    /// Everything draws what it drew, up to a moment.
    fn draw(&mut self, to_s: f64) {
        let dt_s = to_s - self.at_s;
        self.at_s = to_s;
        if dt_s <= 0.0 {
            return;
        }
        self.totals.running += Seconds::new(self.busy.len() as f64 * dt_s);
        let mut idle_w = 0.0;
        for (state, cores) in self.in_state.iter().enumerate() {
            idle_w += *cores as f64 * state_power_w(&self.figures, state, self.voltage);
            self.totals.states[state] += Seconds::new(*cores as f64 * dt_s);
        }
        self.totals.idle += Joules::new(idle_w * dt_s);
        let up = self.packages.len() - self.asleep;
        let uncore_w =
            self.figures.uncore.get() * up as f64 + self.figures.uncore_asleep.get() * self.asleep as f64;
        self.totals.uncore += Joules::new(uncore_w * dt_s);
        self.totals.package_asleep += Seconds::new(self.asleep as f64 * dt_s);
    }

    /// Idle periods that end of themselves now, by a tick or a timer: the core chooses again.
    fn end_periods(&mut self) {
        let (now_s, every_s) = (self.at_s, background_s(&self.figures));
        let mut next_s = f64::INFINITY;
        for core in 0..self.cores.len() {
            let State::Idle { ends_s, .. } = self.cores[core].state else {
                continue;
            };
            if ends_s <= now_s {
                self.leave(core);
                if self.cores[core].timer_s <= now_s {
                    self.cores[core].timer_s = now_s + every_s;
                }
                self.begin(core);
            }
            if let State::Idle { ends_s, .. } = self.cores[core].state {
                next_s = next_s.min(ends_s);
            }
        }
        self.next_s = next_s;
    }

    fn take_idle(&mut self) -> Option<usize> {
        match self.placement {
            Placement::Spread => self.idle.pop_front(),
            Placement::Packed => {
                let (at, _) = self.idle.iter().enumerate().min_by_key(|(_, core)| **core)?;
                self.idle.remove(at)
            }
        }
    }

    /// So many busy cores fall idle.
    fn release(&mut self, count: usize) {
        for _ in 0..count {
            let core = match self.placement {
                Placement::Spread => self.busy.pop_front(),
                Placement::Packed => {
                    let last = self.busy.iter().enumerate().max_by_key(|(_, core)| **core);
                    last.map(|(at, _)| at).and_then(|at| self.busy.remove(at))
                }
            };
            let Some(core) = core else { return };
            self.rest(core);
        }
    }

    /// A core that is in neither list falls idle.
    fn rest(&mut self, core: usize) {
        if core < self.on {
            self.idle.push_back(core);
        }
        // A timer that came while the core was busy woke nobody.
        let every_s = background_s(&self.figures);
        let timer_s = &mut self.cores[core].timer_s;
        if *timer_s <= self.at_s {
            *timer_s += ((self.at_s - *timer_s) / every_s).floor() * every_s + every_s;
        }
        self.begin(core);
    }

    /// A core begins an idle period in the state that its governor chooses.
    fn begin(&mut self, core: usize) {
        let now_s = self.at_s;
        let Core {
            governor, timer_s, ..
        } = &self.cores[core];
        let timer_s = *timer_s;
        let state = deepest_within(&self.figures.idle_states, governor.predict(timer_s - now_s));
        let stops_tick = state == self.deepest();
        let ends_s = match stops_tick {
            true => timer_s,
            false => timer_s.min(now_s + TICK.get()),
        };
        self.cores[core].state = State::Idle {
            state,
            since_s: now_s,
            ends_s,
        };
        self.next_s = self.next_s.min(ends_s);
        self.enter_deep(core, state);
    }

    /// A core's idle period ends; the state it was in.
    fn leave(&mut self, core: usize) -> Option<usize> {
        let State::Idle { state, since_s, .. } = self.cores[core].state else {
            return None;
        };
        self.cores[core].governor.record(self.at_s - since_s);
        self.cores[core].state = State::Busy;
        self.leave_deep(core, state);
        Some(state)
    }

    fn enter_deep(&mut self, core: usize, state: usize) {
        self.in_state[state] += 1;
        let transition_j = self.figures.idle_states[state].transition_j(self.state_w(0));
        self.totals.transitions += Joules::new(transition_j);
        if state < self.deepest() {
            return;
        }
        let each = self.figures.cores / self.figures.packages;
        let package = self.package_of(core);
        self.packages[package].deep += 1;
        if self.packages[package].deep == each {
            self.packages[package].asleep_s = Some(self.at_s);
            self.asleep += 1;
        }
    }

    fn leave_deep(&mut self, core: usize, state: usize) {
        self.in_state[state] -= 1;
        if state < self.deepest() {
            return;
        }
        let package = self.package_of(core);
        let package = &mut self.packages[package];
        package.deep -= 1;
        if let Some(since_s) = package.asleep_s.take() {
            self.asleep -= 1;
            // What flushing and filling its caches takes; one that is woken at once has not begun.
            let lost = Seconds::new(self.at_s - since_s).min(self.figures.package_break_even);
            self.totals.transitions += (self.figures.uncore - self.figures.uncore_asleep) * lost;
        }
    }
}

/// What a core in an idle state draws, watts, at a voltage over that at the highest frequency: the shallowest follows V²,
/// and no deeper one draws more than it.
pub fn state_power_w(figures: &ProcessorFigures, state: usize, voltage: f64) -> f64 {
    let shallowest_w = figures.idle_states[0].power.get() * voltage * voltage;
    match state {
        0 => shallowest_w,
        _ => figures.idle_states[state].power.get().min(shallowest_w),
    }
}

/// Between two background wake-ups of one core, seconds.
pub(crate) fn background_s(figures: &ProcessorFigures) -> f64 {
    match figures.background.get() {
        rate if rate > 0.0 => 1.0 / rate,
        _ => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests;
