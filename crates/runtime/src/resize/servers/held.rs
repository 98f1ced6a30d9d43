//! Whether connections that stay open may be why several servers in turn are silent: where one hangs, a balancer opens connections to the others
//! until these hold all their workers, and each would be lost, started, and held again.

use std::time::{Duration, Instant};

/// For so long after one was lost that was silent behind connections that stay open no other one is for that: longer than balancers keep
/// connections that nobody uses.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which servers are silent behind connections that stay open, and when one was lost so last.
#[derive(Debug, Default)]
pub(super) struct Held {
    silent: Vec<bool>,
    lost: Option<Instant>,
    is_said: bool,
}

impl Held {
    /// Whether one that is silent behind connections that stay open is waited for now, however long it was asked in vain.
    pub(super) fn is_patient(&self, now: Instant) -> bool {
        self.lost.is_some_and(|lost| now.duration_since(lost) < PATIENCE)
    }

    /// Takes which are silent so, and which are lost.
    pub(super) fn observe(&mut self, now: Instant, silent: Vec<bool>, lost: impl Iterator<Item = bool>) {
        let is_lost_so = self.silent.iter().zip(lost).any(|(silent, lost)| *silent && lost);
        if is_lost_so {
            (self.lost, self.is_said) = (Some(now), false);
        }
        self.silent = silent;
    }

    /// Whether it is news that one is waited for.
    pub(super) fn news(&mut self) -> bool {
        !std::mem::replace(&mut self.is_said, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_one_was_lost_behind_open_connections_the_others_are_waited_for() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut held = Held::default();
        assert!(!held.is_patient(at(0)));
        held.observe(at(1), vec![true, false], [false, false].into_iter());
        held.observe(at(2), vec![true, true], [false, false].into_iter());
        assert!(!held.is_patient(at(2)));
        held.observe(at(3), vec![false, true], [true, false].into_iter());
        assert!(held.is_patient(at(4)) && held.news() && !held.news());
        // It stays lost for a while, which is no other loss.
        held.observe(at(5), vec![false, true], [true, false].into_iter());
        assert!(held.is_patient(at(62)) && !held.is_patient(at(63)));
        // One that was lost for another reason.
        let mut other = Held::default();
        other.observe(at(1), vec![false, false], [true, false].into_iter());
        assert!(!other.is_patient(at(2)));
    }
}
