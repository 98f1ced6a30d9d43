//! What came of a file that was read again, for the decisions of the run: so it is in the record, the report, the view and `/status`.

use headroom_control::{Decision, Reason};
use headroom_record::READ_AGAIN;
use headroom_runtime::live::{Device, DevicePeriod};
use headroom_units::Setting;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Lines that wait for a period at most: somebody may send signals without an end.
const MOST: usize = 32;

/// What is told with the next decision. A clone is of the same run.
#[derive(Clone, Debug, Default)]
pub(super) struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the next decision say a line.
    pub fn tell(&self, line: &str) {
        let mut lines = self.lock();
        if lines.len() < MOST {
            lines.push(line.to_owned());
        }
    }
}

impl Device for Told {
    fn observe(&mut self, _period: &mut DevicePeriod) {}

    fn in_force(&self) -> Setting {
        Setting::default()
    }

    fn apply(&mut self, decision: &mut Decision) -> anyhow::Result<()> {
        let lines = std::mem::take(&mut *self.lock());
        let reasons = lines
            .into_iter()
            .map(|line| Reason::new(READ_AGAIN[0], line, &[]));
        decision.reasons.extend(reasons);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_told_with_one_decision_after_the_laws_own_reasons() {
        let mut told = Told::default();
        let reload = told.clone();
        reload.tell("server web1 is taken out");
        let mut decision = Decision::of(Setting::default());
        decision.reasons = vec![Reason::new("hold", "all is well".to_owned(), &[])];
        told.apply(&mut decision).unwrap();
        let rules: Vec<&str> = decision.reasons.iter().map(|reason| &*reason.rule).collect();
        assert_eq!(rules, ["hold", "read-again"]);
        assert_eq!(decision.reasons[1].text, "server web1 is taken out");
        told.apply(&mut decision).unwrap();
        assert_eq!(decision.reasons.len(), 2);
        (0..99).for_each(|_| reload.tell("again"));
        assert_eq!(told.lock().len(), MOST);
    }
}
