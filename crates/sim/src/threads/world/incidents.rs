//! What befalls the server: storms, stalls, kills, another load.

use super::super::query::Step;
use super::super::scenario::Incident;
use super::{Event, World};
use crate::error::RunError;

impl World<'_> {
    pub(super) fn begin_incidents(&mut self) {
        for (number, incident) in (0..).zip(&self.scenario.incidents) {
            self.events.push(incident.at_s(), Event::Incident(number));
        }
    }

    pub(super) fn befalls(&mut self, number: u32) -> Result<(), RunError> {
        match self.scenario.incidents[number as usize] {
            Incident::Storm { queries, .. } => {
                for thread in 0..self.threads.len() as u32 {
                    for _ in 0..queries {
                        self.threads[thread as usize].extra += 1;
                        self.sent(thread)?;
                    }
                }
            }
            Incident::Stall { length_s, .. } => {
                let until_s = self.now_s + length_s;
                self.disk.stalled_until_s = self.disk.stalled_until_s.max(until_s);
            }
            Incident::Kill { connection, .. } => self.kill(connection),
            Incident::Load { scale, .. } => self.load(scale),
        }
        Ok(())
    }

    fn kill(&mut self, number: u32) {
        let thread = &mut self.threads[number as usize];
        let is_to_lock = thread.steps.iter().any(|step| matches!(step, Step::Lock(_)));
        let unlocks = thread.steps.iter().find_map(|step| match step {
            Step::Unlock(row) => Some(*row),
            _ => None,
        });
        thread.steps.clear();
        let row = thread.drawer.abort().or(unlocks);
        if let Some(gate) = &mut self.gate {
            gate.transact(self.now_s, number, false);
        }
        let Some(row) = row.filter(|_| !is_to_lock) else {
            return;
        };
        if self.locks.withdraw(number, row) {
            self.unblock(number);
        } else if self.threads[number as usize].serving {
            self.threads[number as usize].steps.push(Step::Unlock(row));
        } else if let Some(next) = self.locks.release(row) {
            self.unblock(next);
        }
    }
}
