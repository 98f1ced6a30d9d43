//! Whether the levers that a run began with are in force, by what the machine reports of them.

use crate::cap::Event;

/// What is known of a machine's levers since it was opened.
#[derive(Debug, Default)]
pub(super) struct LeverWatch {
    /// The hardware was given up or found to do nothing: another lever holds the cap from then on.
    replaced: bool,
    /// A limit cannot be written.
    unwritten: bool,
    /// What is true of the current period alone: somebody else's write, a cap that was not kept.
    now: bool,
}

impl LeverWatch {
    /// Takes what happened.
    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::LeverGivenUp { .. } | Event::CapInert { .. } => self.replaced = true,
            Event::WriteFailed { .. } => self.unwritten = true,
            Event::WriteBack => self.unwritten = false,
            Event::Foreign(_) | Event::LeaseExpired => self.now = true,
            _ => {}
        }
    }

    /// Whether a lever was not in force in the period that ends now, which begins the next one.
    pub(super) fn lost(&mut self) -> bool {
        std::mem::take(&mut self.now) || self.replaced || self.unwritten
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::LeverKind;

    #[test]
    fn a_lever_that_is_given_up_stays_lost_and_one_that_comes_back_does_not() {
        let reason = || "gone".to_owned();
        let mut watch = LeverWatch::default();
        assert!(!watch.lost());
        watch.note(&Event::MeterLost { reason: reason() });
        assert!(!watch.lost());
        watch.note(&Event::WriteFailed { reason: reason() });
        assert!(watch.lost() && watch.lost());
        watch.note(&Event::WriteBack);
        assert!(!watch.lost());
        watch.note(&Event::LeaseExpired);
        assert!(watch.lost() && !watch.lost());
        watch.note(&Event::LeverGivenUp {
            lever: LeverKind::Rapl,
            reason: reason(),
        });
        assert!(watch.lost() && watch.lost());
    }
}
