//! Fewer servers, on trial: where no server was ever in difficulty nobody knows what one takes, and a cluster that was built for
//! more than what comes would stay as large as it is.
//!
//! One server is drained and stays powered. If the others come into difficulty within the trial it is given requests again,
//! at once, and the next trial waits, each time twice as long. If not, it goes.

/// Seconds from a trial that failed to the next.
const FIRST_WAIT_S: f64 = 600.0;
/// The longest wait, seconds.
const MAX_WAIT_S: f64 = 86_400.0;
/// A trial has failed where requests take so many times as long as before it.
const MAX_SLOWER: f64 = 2.0;
/// Weight of a period in what they took before, and in what they take in the trial.
const WEIGHTS: (f64, f64) = (0.02, 0.2);

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
    /// What a request takes outside trials, seconds.
    usual_s: Option<f64>,
    /// What it takes in the trial.
    trial_s: f64,
    /// No trial before.
    not_before_s: f64,
    wait_s: f64,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            since_s: None,
            usual_s: None,
            trial_s: 0.0,
            not_before_s: f64::NEG_INFINITY,
            wait_s: FIRST_WAIT_S,
        }
    }
}

impl Probe {
    /// Takes a period: what a request takes, where that is known, and whether those that serve are in difficulty by what is known of
    /// their limits.
    pub(super) fn observe(
        &mut self,
        now_s: f64,
        takes_s: Option<f64>,
        difficulty: bool,
        trial_s: f64,
    ) -> Trial {
        let Some(since_s) = self.since_s else {
            if let Some(takes_s) = takes_s {
                let usual_s = self.usual_s.get_or_insert(takes_s);
                *usual_s += WEIGHTS.0 * (takes_s - *usual_s);
            }
            return Trial::None;
        };
        if let Some(takes_s) = takes_s {
            self.trial_s += WEIGHTS.1 * (takes_s - self.trial_s);
        }
        let slower = self
            .usual_s
            .is_some_and(|usual_s| self.trial_s > MAX_SLOWER * usual_s);
        if difficulty || slower {
            self.since_s = None;
            self.not_before_s = now_s + self.wait_s;
            self.wait_s = (2.0 * self.wait_s).min(MAX_WAIT_S);
            return Trial::Failed;
        }
        if now_s - since_s >= trial_s {
            self.since_s = None;
            return Trial::Passed;
        }
        Trial::Running(now_s - since_s)
    }

    pub(super) fn may_begin(&self, now_s: f64) -> bool {
        self.since_s.is_none() && now_s >= self.not_before_s
    }

    pub(super) fn begin(&mut self, now_s: f64) {
        self.since_s = Some(now_s);
        self.trial_s = self.usual_s.unwrap_or(0.0);
    }

    /// Breaks off what runs: what was observed meanwhile proves nothing.
    pub(super) fn forget(&mut self) {
        self.since_s = None;
    }
}
