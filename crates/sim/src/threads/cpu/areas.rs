//! Which threads may run on which cores (cpusets), and how much of them (`cpu.weight`).

use super::{Cpu, Queue};
use crate::heap::Heap;
use crate::threads::scenario::KernelPolicy;
use crate::threads::world::Event;

/// Which threads may run on which cores.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Areas {
    /// All cores.
    pub(super) every: Vec<u32>,
    /// The cores of each area.
    pub(super) cores: Vec<Vec<u32>>,
    pub(super) of_core: Vec<Option<u32>>,
    pub(super) of_thread: Vec<u32>,
}

impl Areas {
    pub(super) fn new(count: usize, cores: Vec<Vec<u32>>, of_thread: Vec<u32>) -> Self {
        let mut of_core = vec![None; count];
        for (area, cores) in cores.iter().enumerate() {
            cores
                .iter()
                .for_each(|core| of_core[*core as usize] = Some(area as u32));
        }
        Self {
            every: (0..count as u32).collect(),
            cores,
            of_core,
            of_thread,
        }
    }

    /// Every thread on every core.
    pub(super) fn one(cores: usize, threads: usize) -> Self {
        Self::new(cores, vec![(0..cores as u32).collect()], vec![0; threads])
    }
}

/// Whether each core has a queue of its own.
pub(super) const fn is_per_core(policy: KernelPolicy) -> bool {
    matches!(policy, KernelPolicy::FairPerCore)
}

impl Cpu {
    /// Other areas from now on: the cores of each, none in two, and the area of each thread. Whoever runs or waits where it may not
    /// any more wakes in its own.
    pub(in crate::threads) fn set_areas(
        &mut self,
        now_s: f64,
        cores: Vec<Vec<u32>>,
        of_thread: Vec<u32>,
        events: &mut Heap<Event>,
    ) {
        let areas = Areas::new(self.cores.len(), cores, of_thread);
        if areas == self.areas {
            return;
        }
        let mut displaced: Vec<u32> = self
            .queues
            .iter_mut()
            .flat_map(|queue| std::mem::take(&mut queue.threads))
            .collect();
        if !is_per_core(self.policy) {
            self.queues = vec![Queue::default(); areas.cores.len()];
        }
        self.areas = areas;
        for core in 0..self.cores.len() as u32 {
            self.settle(now_s, core);
            let Some(thread) = self.cores[core as usize].thread else {
                continue;
            };
            if self.areas.of_core[core as usize] != Some(self.areas.of_thread[thread as usize]) {
                self.core_of[thread as usize] = None;
                displaced.push(thread);
                self.go_on(now_s, core, events);
            }
        }
        for thread in displaced {
            self.wake(now_s, thread, events);
        }
    }

    /// Other weights of the threads from now on, for the fair policies: with different ones, who ran least for its weight is next.
    pub(in crate::threads) fn set_weights(&mut self, now_s: f64, weights: Vec<f64>) {
        (0..self.cores.len() as u32).for_each(|core| self.settle(now_s, core));
        let all_alike = weights.windows(2).all(|two| two[0] == two[1]);
        let weights = Some(weights).filter(|_| !all_alike && self.policy != KernelPolicy::Sol);
        if weights.is_some() && self.weights.is_none() {
            // Nobody ran so far.
            self.virtual_s.fill(0.0);
            self.queues.iter_mut().for_each(|queue| queue.virtual_s = 0.0);
        }
        self.weights = weights;
    }
}
