//! What the cores draw while they run, and how fast they do.

use super::Cpu;
use crate::heap::Heap;
use crate::threads::world::Event;
use headroom_units::Hertz;

impl Cpu {
    /// Counts what a core drew that runs.
    pub(super) fn draw(&mut self, now_s: f64, core: u32) {
        let state = &mut self.cores[core as usize];
        if state.thread.is_some() {
            self.work_j += state.busy_w * (now_s - state.drawn_s);
            state.drawn_s = now_s;
        }
    }

    /// What cores drew while they ran, joules.
    pub(in crate::threads) fn work_j(&mut self, now_s: f64) -> f64 {
        (0..self.cores.len() as u32).for_each(|core| self.draw(now_s, core));
        self.work_j
    }

    /// The cores' frequency, in the mean over them.
    pub(in crate::threads) fn mean_frequency(&self) -> Hertz {
        let sum: f64 = self.cores.iter().map(|core| core.speed).sum();
        self.frequencies.highest * (sum / self.cores.len() as f64)
    }

    /// Another frequency of each core from now on; `None`: the highest. The work is of the processor alone: it takes as much longer as
    /// the frequency is lower. All cores have one voltage when they idle, that of the fastest.
    pub(in crate::threads) fn set_frequencies(
        &mut self,
        now_s: f64,
        limits: Vec<Option<Hertz>>,
        events: &mut Heap<Event>,
    ) {
        let figures = self.frequencies;
        let mut fastest: f64 = 0.0;
        for (core, limit) in limits.into_iter().enumerate() {
            let frequency = limit.map_or(figures.highest, |limit| limit.min(figures.highest));
            let speed = frequency / figures.highest;
            fastest = fastest.max(speed);
            if speed == self.cores[core].speed {
                continue;
            }
            self.settle(now_s, core as u32);
            self.draw(now_s, core as u32);
            let state = &mut self.cores[core];
            (state.speed, state.busy_w) = (speed, figures.busy(frequency).get());
            self.schedule(core as u32, events);
        }
        self.tracker
            .set_voltage(now_s, figures.voltage(figures.highest * fastest));
    }
}
