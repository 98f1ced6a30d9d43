//! What a query does, step by step.

use super::classes::ClassFigures;
use super::scenario::ThreadsScenario;
use headroom_workload::Distribution;
use headroom_workload::random::{Draw, Rng};

/// A step of a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// So many instructions, as with one thread.
    Compute(f64),
    /// A disk access with its service time, seconds.
    Access(f64),
    Lock(u32),
    Unlock(u32),
}

/// Draws the queries of a connection from its own stream: no gate and no scheduler changes them.
#[derive(Clone, Debug)]
pub(super) struct Drawer {
    rng: Rng,
    /// The number of the next query in its transaction, and the row that the transaction locks.
    position: u32,
    row: Option<u32>,
}

/// The work that the queries of one class are.
#[derive(Clone, Debug)]
pub(super) struct Work {
    instructions: Distribution,
    service: Distribution,
    disk_probability: f64,
    locks: bool,
}

impl Work {
    pub(super) fn new(scenario: &ThreadsScenario, class: &ClassFigures) -> Self {
        let query = &scenario.query;
        let shape = class.shape.as_ref().unwrap_or(&query.shape);
        Self {
            instructions: shape.scaled(class.instructions.unwrap_or(query.instructions)),
            service: scenario.disk.service.scaled(scenario.disk.service_s),
            disk_probability: match class.other_application {
                true => 0.0,
                false => class.disk_probability.unwrap_or(scenario.disk.probability),
            },
            locks: !class.other_application,
        }
    }
}

impl Drawer {
    pub(super) fn new(seed: u64, connection: u32) -> Self {
        Self {
            rng: Rng::of_user(seed, connection),
            position: 0,
            row: None,
        }
    }

    pub(super) fn think(&mut self, think: &Distribution) -> f64 {
        think.sample(&mut self.rng)
    }

    /// Whether the transaction goes on after the query that was drawn last.
    pub(super) const fn is_in_transaction(&self) -> bool {
        self.position != 0
    }

    /// The transaction ends here: the row that it locks in a query before its last.
    pub(super) fn abort(&mut self) -> Option<u32> {
        self.position = 0;
        self.row.take()
    }

    /// The steps of the next query, the last first.
    pub(super) fn draw(&mut self, scenario: &ThreadsScenario, work: &Work, steps: &mut Vec<Step>) {
        let (disk, locks) = (&scenario.disk, &scenario.locks);
        let instructions = work.instructions.sample(&mut self.rng);
        // Breaks in the computation: where, as a share of the instructions, and what happens there.
        let mut breaks: Vec<(f64, Step)> = Vec::new();
        if work.disk_probability > 0.0 && self.rng.uniform() < work.disk_probability {
            for access in 1..=disk.accesses {
                let at = f64::from(access) / f64::from(disk.accesses + 1);
                breaks.push((at, Step::Access(work.service.sample(&mut self.rng))));
            }
        }
        if work.locks
            && self.position == 0
            && locks.probability > 0.0
            && self.rng.uniform() < locks.probability
        {
            let row = ((self.rng.uniform() * f64::from(locks.rows)) as u32).min(locks.rows - 1);
            self.row = Some(row);
            breaks.push((locks.from, Step::Lock(row)));
        }
        self.position = (self.position + 1) % locks.queries;
        if self.position == 0
            && let Some(row) = self.row.take()
        {
            breaks.push((locks.until, Step::Unlock(row)));
        }
        // Stable: what shares a place happens in the order above.
        breaks.sort_by(|one, other| one.0.total_cmp(&other.0));
        steps.clear();
        let mut from = 0.0;
        for (at, step) in breaks {
            if at > from {
                steps.push(Step::Compute(instructions * (at - from)));
            }
            from = at;
            steps.push(step);
        }
        if from < 1.0 {
            steps.push(Step::Compute(instructions * (1.0 - from)));
        }
        steps.reverse();
    }
}
