//! Locks on hot rows: first come, first served.

use std::collections::VecDeque;

#[derive(Clone, Debug, Default)]
struct Row {
    held: bool,
    queue: VecDeque<u32>,
}

#[derive(Clone, Debug)]
pub(super) struct Locks {
    rows: Vec<Row>,
    pub(super) waits: u64,
}

impl Locks {
    pub(super) fn new(rows: u32) -> Self {
        Self {
            rows: vec![Row::default(); rows as usize],
            waits: 0,
        }
    }

    /// Whether a thread holds the row now; else it waits.
    pub(super) fn take(&mut self, thread: u32, row: u32) -> bool {
        let row = &mut self.rows[row as usize];
        if row.held {
            row.queue.push_back(thread);
            self.waits += 1;
            return false;
        }
        row.held = true;
        true
    }

    /// A thread waits for the row no longer: whether it did.
    pub(super) fn withdraw(&mut self, thread: u32, row: u32) -> bool {
        let queue = &mut self.rows[row as usize].queue;
        let at = queue.iter().position(|waiting| *waiting == thread);
        at.and_then(|at| queue.remove(at)).is_some()
    }

    /// The holder releases the row; who holds it now.
    pub(super) fn release(&mut self, row: u32) -> Option<u32> {
        let row = &mut self.rows[row as usize];
        let next = row.queue.pop_front();
        row.held = next.is_some();
        next
    }
}
