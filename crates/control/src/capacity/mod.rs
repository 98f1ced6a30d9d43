//! How many requests a second a server can take, now, for this workload, whatever its bottleneck: online capacity
//! estimation (C.-H. Tsai, K. G. Shin, J. Reumann, S. Singhal, "Online Web Cluster Capacity Estimation and Its
//! Application to Energy Conservation", IEEE TPDS 18(7), 2007; section and equation numbers here are that paper's).
//!
//! The *capacity* of a server is the most requests a second that it can take while its *drop ratio*, the share of
//! connection attempts that find its accept queue full, stays under a threshold (Section 4: 1 %, each retry an attempt
//! of its own). Ways to estimate it:
//!
//! | module | it is | it fails where |
//! |---|---|---|
//! | [`queue`] | queue monitoring (Section 5.3): the queue grows whatever the bottleneck is | it has seen no overload yet: then it answers with a lower bound |
//! | [`busy_time`] | queue monitoring of our own: the rate of answers, or accepts, while somebody waits | nobody has waited yet: a lower bound |
//! | [`offline`] | offline static estimation (5.1): a benchmark's ramp, once | the workload is not the benchmark's |
//! | [`utilisation`] | CPU-utilisation-based estimation (5.2): throughput over utilisation | the bottleneck is not the CPU |
//!
//! [`equations`] are Equations 1 to 5 alone; [`step`] makes of a listener's counters, which may wrap, restart, jump or
//! be missing, the numbers of one sampling step, or says why it cannot.

mod answers;
mod bunches;
pub mod busy;
pub mod busy_time;
mod clients;
pub mod equations;
mod evidence;
mod loops;
pub mod monitor;
pub mod offline;
pub mod queue;
mod served;
mod shared;
mod stalls;
pub mod step;
pub mod tuning;
pub mod unusable;
pub mod utilisation;

use crate::decision::Reason;
use headroom_units::{PerSecond, Seconds};
use serde::{Deserialize, Serialize};
use std::fmt;

pub use busy::{Busy, BusyMeter};
pub use busy_time::BusyTimeMonitor;
pub use monitor::Monitor;
pub use offline::{Ramp, RampError, RampTuning, Spread, StaticCapacity};
pub use queue::QueueMonitor;
pub use step::{Connections, Listener, ListenerSample, QueueObservation, Step, StepMeter};
pub use tuning::{QueueKind, QueueTuning};
pub use unusable::Unusable;
pub use utilisation::{
    UtilisationEstimator, UtilisationMeter, UtilisationReading, UtilisationStep, UtilisationTuning,
};

/// What is known of a capacity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "per_s", rename_all = "kebab-case")]
pub enum Capacity {
    /// The server takes this much and no more: its limit was met, just now.
    Exact(PerSecond),
    /// It takes about this much: its limit was met a while ago, and it may have changed since; or too little was observed since it
    /// changed to be sure; or what shows its limit now is not its own doing.
    About(PerSecond),
    /// It is presumed to take this much until it shows what it takes: by what it took before, or what others take.
    Presumed(PerSecond),
    /// It takes at least this much: nothing has shown its limit yet.
    LowerBound(PerSecond),
    /// Nothing is known that holds now.
    Unknown,
}

impl Capacity {
    /// The number, whatever it is.
    pub const fn value(self) -> Option<PerSecond> {
        match self {
            Self::Exact(value) | Self::About(value) | Self::Presumed(value) | Self::LowerBound(value) => {
                Some(value)
            }
            Self::Unknown => None,
        }
    }

    /// What its limit was found to be, now or when it was last met; not what it takes at least.
    pub const fn met(self) -> Option<PerSecond> {
        match self {
            Self::Exact(value) | Self::About(value) => Some(value),
            Self::Presumed(_) | Self::LowerBound(_) | Self::Unknown => None,
        }
    }

    /// The same where nothing confirms it now.
    #[must_use]
    pub const fn unconfirmed(self) -> Self {
        match self {
            Self::Exact(value) => Self::About(value),
            other => other,
        }
    }

    /// The word used in metrics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact(_) => "exact",
            Self::About(_) => "about",
            Self::Presumed(_) => "presumed",
            Self::LowerBound(_) => "lower-bound",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Capacity {
    /// For people: `131.2`, `about 131.2`, `presumably 131.2`, `at least 120.0`, `-`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(value) => write!(f, "{:.1}", value.get()),
            Self::About(value) => write!(f, "about {:.1}", value.get()),
            Self::Presumed(value) => write!(f, "presumably {:.1}", value.get()),
            Self::LowerBound(value) => write!(f, "at least {:.1}", value.get()),
            Self::Unknown => f.write_str("-"),
        }
    }
}

/// An estimator's answer to one sampling step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The capacity.
    pub capacity: Capacity,
    /// What it is within, but for a share that depends on how regular the server is (docs/capacity.md); `None` where the estimator has none (the published ones), or nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[PerSecond; 2]>,
    /// How long ago that was last observed from which it follows; `None` as above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age: Option<Seconds>,
    /// Which rule gave it, with its numbers.
    pub reason: Reason,
}

impl Estimate {
    fn unknown(rule: &'static str, text: String) -> Self {
        Self::plain(Capacity::Unknown, Reason::new(rule, text, &[]))
    }

    /// Without an interval and an age.
    pub const fn plain(capacity: Capacity, reason: Reason) -> Self {
        Self {
            capacity,
            interval: None,
            age: None,
            reason,
        }
    }

    fn no_request_yet() -> Self {
        let text = "no request has come yet, so nothing can be estimated".to_owned();
        Self::unknown("no-request-yet", text)
    }

    /// Connections wait, and the server has accepted none: it is in difficulty, which no count of connections measures. `open` are
    /// those that it has accepted and not closed, where they are counted.
    fn none_accepted(waiting: f64, for_s: f64, open: Option<u64>) -> Reason {
        let busy = match open {
            Some(open) if open > 0 => format!("the {open} that it has accepted are kept open"),
            _ => "those that it has accepted are kept open, or it stands still".to_owned(),
        };
        let text = format!(
            "{waiting:.0} wait, none accepted for {for_s:.0} s: {busy}; this counts connections, whatever each carries"
        );
        let numbers = [("waiting", waiting), ("none_accepted_s", for_s)];
        Reason::new(NONE_ACCEPTED, text, &numbers)
    }

    /// Where a step cannot be used: what was estimated before, as long as a user lets it be kept, else nothing. Nothing of it is
    /// exact, for nothing was observed that confirms it; but a step that is only short is part of the next one.
    fn without_reading(
        capacity: Capacity,
        blind_s: f64,
        tuning: &QueueTuning,
        unusable: &Unusable,
    ) -> (Capacity, Reason) {
        match capacity.value() {
            Some(value) if blind_s <= tuning.hold_s => {
                let kept = match unusable {
                    Unusable::Short { .. } => capacity,
                    _ => capacity.unconfirmed(),
                };
                let numbers = [("capacity_per_s", value.get()), ("held_s", blind_s)];
                let text = format!("{unusable}; {kept}/s is kept");
                (kept, Reason::new("without-reading", text, &numbers))
            }
            _ => (
                Capacity::Unknown,
                Reason::new(unusable.rule(), unusable.to_string(), &[]),
            ),
        }
    }
}

/// The rule of an estimate where connections wait and none is accepted.
const NONE_ACCEPTED: &str = "none-accepted";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_says_in_json_what_it_is() {
        let json = |capacity: Capacity| serde_json::to_string(&capacity).unwrap();
        assert_eq!(
            json(Capacity::LowerBound(PerSecond::new(595.0))),
            r#"{"kind":"lower-bound","per_s":595.0}"#
        );
        assert_eq!(json(Capacity::Unknown), r#"{"kind":"unknown"}"#);
        assert_eq!(Capacity::Unknown.value(), None);
        assert_eq!(
            Capacity::Exact(PerSecond::new(5.0)).value(),
            Some(PerSecond::new(5.0))
        );
    }
}
