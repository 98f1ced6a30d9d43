//! Fewer servers, on trial: where no server was ever in difficulty nobody knows what one takes, and a cluster that was built for
//! more than what comes would stay as large as it is.
//!
//! One server is drained and stays powered. If the others come into difficulty within the trial it is given requests again,
//! at once, and the next trial waits, each time twice as long. If not, it goes. One that an operator takes out is tried in the same way:
//! never two at a time, whoever asks.

/// Seconds from a trial that failed to the next.
const FIRST_WAIT_S: f64 = 600.0;
/// The longest wait, seconds.
const MAX_WAIT_S: f64 = 86_400.0;
/// What became of a trial in this period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Trial {
    /// None runs.
    None,
    /// One runs, for so long.
    Running(f64),
    /// It ended: the others are in difficulty.
    Failed,
    /// It ended: they are not.
    Passed,
}

/// The trials of a cluster.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    /// Since when one runs.
    since_s: Option<f64>,
    /// The server that an operator takes out, where that is on trial.
    of: Option<usize>,
    /// No trial before.
    not_before_s: f64,
    wait_s: f64,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            since_s: None,
            of: None,
            not_before_s: f64::NEG_INFINITY,
            wait_s: FIRST_WAIT_S,
        }
    }
}

impl Probe {
    /// Takes a period, whether those that serve are in difficulty, and whether as much comes as usual: in a lull nothing is shown, and a
    /// trial goes on until it is over.
    pub(super) fn observe(
        &mut self,
        now_s: f64,
        (difficulty, is_usual): (bool, bool),
        trial_s: f64,
    ) -> Trial {
        let Some(since_s) = self.since_s else {
            return Trial::None;
        };
        if difficulty {
            self.forget();
            self.not_before_s = now_s + self.wait_s;
            self.wait_s = (2.0 * self.wait_s).min(MAX_WAIT_S);
            return Trial::Failed;
        }
        if now_s - since_s >= trial_s && is_usual {
            self.forget();
            // What had trials fail before is no more.
            self.wait_s = FIRST_WAIT_S;
            return Trial::Passed;
        }
        Trial::Running(now_s - since_s)
    }

    pub(super) fn may_begin(&self, now_s: f64) -> bool {
        self.since_s.is_none() && self.waits_s(now_s) == 0.0
    }

    /// For how long the next one waits, because one failed.
    pub(super) fn waits_s(&self, now_s: f64) -> f64 {
        (self.not_before_s - now_s).max(0.0)
    }

    /// Of the server that an operator takes out, or of any.
    pub(super) fn begin(&mut self, now_s: f64, of: Option<usize>) {
        (self.since_s, self.of) = (Some(now_s), of);
    }

    /// The server that an operator takes out and that is on trial.
    pub(super) const fn of(&self) -> Option<usize> {
        self.of
    }

    /// Breaks off what runs: what was observed meanwhile proves nothing. Whether one ran, whose server is to come back.
    pub(super) fn forget(&mut self) -> bool {
        self.of = None;
        self.since_s.take().is_some()
    }

    pub(super) const fn is_running(&self) -> bool {
        self.since_s.is_some()
    }
}
