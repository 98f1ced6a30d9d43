//! From a listener's counters to the numbers of one sampling step, or why there are none.
//!
//! What a kernel exports are counters that only grow, until they wrap, restart with whatever counts them, or belong to
//! another socket. [`StepMeter`] takes their differences and lets through only what can be true: no more connections
//! than are plausible, no more drops than arrivals, no queue longer than its limit, and arrivals, accepts, drops and
//! growth of the queue that balance (Section 5.3: the queue grows by n_arr - (n_acc + n_d)).

use super::busy::Busy;
use super::tuning::QueueTuning;
use super::unusable::Unusable;
use headroom_units::{PerSecond, Seconds};
use serde::{Deserialize, Serialize};

/// A step may be this many sampling periods long; what lies further back no longer says what is now.
const MAX_PERIODS: f64 = 10.0;
/// A step must be this share of a sampling period long: rates of a shorter one are noise.
const MIN_PERIODS: f64 = 0.5;
/// Counters that are not read at the same instant may disagree by this many connections
const SKEW: f64 = 2.0;
/// and by this share of those that arrived.
const SKEW_SHARE: f64 = 0.05;

/// By how much a counter moved, modulo 2^64; `None` where that is more than `most`: then it was started anew or is not this
/// counter.
pub(super) fn moved(before: u64, now: u64, most: f64) -> Option<f64> {
    let by = now.wrapping_sub(before) as f64;
    (by <= most).then_some(by)
}

/// What was read of a listener. Several sockets of one service (`SO_REUSEPORT`, several addresses) are read as one: sums
/// of their limits, lengths and counters under an identity that changes with the set of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// Which socket it is (its cookie or inode): another number is another socket, with counters and a server of its
    /// own.
    pub identity: u64,
    /// The places of its accept queue; `None` where it is not exported.
    pub limit: Option<u32>,
    /// Connections in the queue at this moment; `None` where it is not exported.
    pub length: Option<u32>,
    /// The shortest queue of several sockets that connections come to; the length where there is one. A worker process
    /// that takes from one of them is not kept busy by those who wait at another. `None` where it is not exported.
    pub shortest: Option<u32>,
    /// Sum over all arrivals of the queue length that each saw, the limit for one that was dropped; `None` where nobody
    /// instruments arrivals.
    pub lengths_seen: Option<u64>,
    /// Attempts to enter the queue, those that were dropped and every retry among them.
    pub arrivals: Option<u64>,
    /// Connections that the server accepted.
    pub accepts: Option<u64>,
    /// Attempts that were dropped because the queue was full.
    pub drops: Option<u64>,
    /// Connections whose client closed or reset them and had sent nothing, or was sent nothing, and those that the server closed and had
    /// sent nothing: they may have been no requests, and were not answered. `None` where nobody counts them.
    #[serde(default)]
    pub unasked: Option<u64>,
    /// Connections that the server was done with, having sent something. One that is kept open after the answer is not among them
    /// yet. `None` where nobody counts them.
    #[serde(default)]
    pub answered: Option<u64>,
    /// The connections that the server has accepted and not closed; `None` where they are not exported, or nobody waits and no event loop
    /// is full.
    pub connections: Option<Connections>,
    /// The share of the last second for which the least busy of the event loops that serve it ran or waited for a CPU, in thousandths;
    /// `None` where it is not known.
    #[serde(default)]
    pub loops_busy: Option<u32>,
}

/// The connections that a server has accepted and not closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connections {
    /// How many.
    pub open: u64,
    /// Of these, the ones whose client has sent nothing yet: a worker that reads from one waits for that.
    pub silent: u64,
    /// The ones whose client sends its request piece by piece, or does not read the answer: a worker waits for that too.
    pub slow: u64,
    /// The ones whose request is not answered, those above not among them.
    pub working: u64,
    /// Of the silent, slow and working ones together, for how many milliseconds the tenth that has been so for the longest has been so
    /// at least.
    pub longest_ms: u64,
    /// Those that wait, or were accepted, and whose client has closed them without sending anything.
    pub gone: u64,
    /// Those that wait, whose client has sent something and has closed or reset them since: whether a whole request is not known.
    #[serde(default)]
    pub cancelled: u64,
    /// Those that were accepted and sent something, and are still open: they carry one request after another, or an answer for long.
    #[serde(default)]
    pub kept: u64,
    /// Those that the same processes work on at other ports that they listen on.
    #[serde(default)]
    pub elsewhere: u64,
}

/// What was read of a listener at the end of a sampling step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are of the large one, and it is copied, not kept"
)]
pub enum ListenerSample {
    /// It is there.
    Listening(Listener),
    /// Nobody listens.
    Nobody,
    /// It could not be read this time.
    Unread,
}

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueObservation {
    /// The time since the observation before, as a monotonic clock had it, not as it was meant to be.
    pub length: Seconds,
    /// What was read.
    pub sample: ListenerSample,
}

/// The numbers of one sampling step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// T, its length.
    pub length: Seconds,
    /// K, the places of the queue.
    pub limit: f64,
    /// The average queue length that arrivals saw; where nobody instruments them, the mean of its length at both ends.
    /// `None` where nothing arrived and the length is not exported.
    pub queue_mean: Option<f64>,
    /// n_arr, attempts to enter the queue.
    pub arrivals: f64,
    /// n_acc, connections accepted.
    pub accepts: f64,
    /// n_d, attempts dropped.
    pub drops: f64,
    /// Connections that ended without an answer, which may have been no requests; `None` where nobody counts them.
    #[serde(default)]
    pub unasked: Option<f64>,
    /// The part of it for which somebody waited in the queue; `None` where nobody looked so closely.
    pub busy: Option<Busy>,
}

impl Step {
    /// The arrival rate.
    pub fn arrival_rate(&self) -> PerSecond {
        PerSecond::new(self.arrivals / self.length.get())
    }

    /// The service rate.
    pub fn service_rate(&self) -> PerSecond {
        PerSecond::new(self.accepts / self.length.get())
    }

    /// The drop ratio; 0 where nothing arrived.
    pub fn drop_ratio(&self) -> f64 {
        if self.arrivals > 0.0 {
            self.drops / self.arrivals
        } else {
            0.0
        }
    }

    /// Whether its numbers can be a step's.
    ///
    /// # Errors
    /// What about them cannot be.
    pub fn check(&self) -> Result<(), Unusable> {
        if !(self.length.get() > 0.0 && self.length.is_finite()) {
            return Err(Unusable::Length {
                length_s: self.length.get(),
            });
        }
        let count = |value: f64| value >= 0.0 && value.is_finite();
        let counts = [
            self.arrivals,
            self.accepts,
            self.drops,
            self.queue_mean.unwrap_or(0.0),
        ];
        if !(counts.into_iter().all(count) && self.limit > 0.0 && self.limit.is_finite()) {
            return Err(Unusable::NotCounts);
        }
        if self.drops > self.arrivals {
            return Err(Unusable::DropsExceedArrivals {
                drops: self.drops,
                arrivals: self.arrivals,
            });
        }
        // A queue of limit K holds K + 1 on Linux, which compares before it adds.
        if self.queue_mean.is_some_and(|mean| mean > self.limit + 1.0) {
            return Err(Unusable::QueueExceedsLimit {
                length: self.queue_mean.unwrap_or_default(),
                limit: self.limit,
            });
        }
        let fits = |busy: Busy| {
            busy.accepts.is_finite() && (0.0..=self.length.get() * (1.0 + 1e-6)).contains(&busy.time.get())
        };
        if !self.busy.is_none_or(fits) {
            return Err(Unusable::NotCounts);
        }
        if self.queue_mean.is_none() && self.arrivals > 0.0 {
            return Err(Unusable::Missing {
                what: "the queue length",
            });
        }
        Ok(())
    }
}

/// Makes steps of observations.
#[derive(Clone, Debug)]
pub struct StepMeter {
    limit: Option<u32>,
    period_s: f64,
    most_per_s: f64,
    base: Option<Listener>,
    /// Since `base` was read.
    elapsed_s: f64,
}

impl StepMeter {
    /// A meter with these parameters, which the caller has checked.
    pub const fn new(tuning: &QueueTuning) -> Self {
        Self {
            limit: tuning.queue_limit,
            period_s: tuning.sampling_period_s,
            most_per_s: tuning.most_per_s,
            base: None,
            elapsed_s: 0.0,
        }
    }

    /// Takes the newest observation.
    ///
    /// # Errors
    /// Why there is no step.
    pub fn take(&mut self, observation: &QueueObservation) -> Result<Step, Unusable> {
        let length_s = observation.length.get();
        if !(length_s > 0.0 && length_s.is_finite()) {
            self.base = None;
            return Err(Unusable::Length { length_s });
        }
        self.elapsed_s += length_s;
        let now = match observation.sample {
            ListenerSample::Listening(now) => now,
            ListenerSample::Unread => return Err(Unusable::Unread),
            ListenerSample::Nobody => {
                self.base = None;
                return Err(Unusable::Nobody);
            }
        };
        let Some(before) = self.base else {
            self.rebase(now);
            return Err(Unusable::First);
        };
        if before.identity != now.identity {
            self.rebase(now);
            return Err(Unusable::Another);
        }
        let length_s = self.elapsed_s;
        if length_s < MIN_PERIODS * self.period_s {
            return Err(Unusable::Short { length_s });
        }
        self.rebase(now);
        let most_s = MAX_PERIODS * self.period_s;
        if length_s > most_s {
            return Err(Unusable::Gap { length_s, most_s });
        }
        self.difference(&before, &now, length_s)
    }

    fn rebase(&mut self, now: Listener) {
        self.base = Some(now);
        self.elapsed_s = 0.0;
    }

    fn difference(&self, before: &Listener, now: &Listener, length_s: f64) -> Result<Step, Unusable> {
        let limit = f64::from(self.limit.or(now.limit).ok_or(Unusable::NoLimit)?.max(1));
        let most = self.most_per_s * length_s;
        let moved = |what, before: Option<u64>, now: Option<u64>, most: f64| {
            let (Some(before), Some(now)) = (before, now) else {
                return Ok(None);
            };
            let jumped = Unusable::Jumped {
                what,
                before,
                now,
                length_s,
            };
            moved(before, now, most).map(Some).ok_or(jumped)
        };
        let arrivals = moved("arrivals", before.arrivals, now.arrivals, most)?;
        let accepts = moved("accepts", before.accepts, now.accepts, most)?;
        let drops = moved("drops", before.drops, now.drops, most)?.ok_or(Unusable::Missing {
            what: "the number of drops",
        })?;
        let unasked = moved("connections without a request", before.unasked, now.unasked, most)?;
        let longest = limit.max(before.limit.map_or(0.0, f64::from)) + 1.0;
        let lengths = before.length.map(f64::from).zip(now.length.map(f64::from));
        if let Some(length) = lengths
            .map(|(first, last)| first.max(last))
            .filter(|one| *one > longest)
        {
            return Err(Unusable::QueueExceedsLimit { length, limit });
        }
        let growth = lengths.map(|(first, last)| last - first);
        let (arrived, accepted) = balanced(arrivals, accepts, drops, growth, longest)?;
        let seen = moved(
            "lengths seen",
            before.lengths_seen,
            now.lengths_seen,
            most * longest,
        )?;
        let ends = lengths.map(|(first, last)| (first + last) / 2.0);
        // Only a count of arrivals goes with the sum over them.
        let by_arrivals = seen
            .zip(arrivals)
            .filter(|(_, arrivals)| *arrivals > 0.0)
            .map(|(sum, arrivals)| sum / arrivals);
        let step = Step {
            length: Seconds::new(length_s),
            limit,
            queue_mean: by_arrivals.or(ends),
            arrivals: arrived,
            accepts: accepted,
            drops: drops.min(arrived),
            unasked,
            busy: None,
        };
        if drops > arrived + SKEW {
            return Err(Unusable::DropsExceedArrivals {
                drops,
                arrivals: arrived,
            });
        }
        step.check().map(|()| step)
    }
}

/// Arrivals and accepts that go with each other, the drops and the growth of the queue; one that is not counted is what
/// the other leaves.
fn balanced(
    arrivals: Option<f64>,
    accepts: Option<f64>,
    drops: f64,
    growth: Option<f64>,
    longest: f64,
) -> Result<(f64, f64), Unusable> {
    match (arrivals, accepts, growth) {
        (Some(arrivals), Some(accepts), growth) => {
            let slack = SKEW + SKEW_SHARE * arrivals.max(accepts) + growth.map_or(longest, |_| 0.0);
            let growth = growth.unwrap_or(0.0);
            if (arrivals - accepts - drops - growth).abs() <= slack {
                Ok((arrivals, accepts))
            } else {
                Err(Unusable::OutOfBalance {
                    arrivals,
                    accepts,
                    drops,
                    growth,
                    slack,
                })
            }
        }
        (Some(arrivals), None, Some(growth)) => {
            let accepts = arrivals - drops - growth;
            let slack = SKEW + SKEW_SHARE * arrivals;
            if accepts >= -slack {
                return Ok((arrivals, accepts.max(0.0)));
            }
            Err(Unusable::OutOfBalance {
                arrivals,
                accepts: 0.0,
                drops,
                growth,
                slack,
            })
        }
        (None, Some(accepts), Some(growth)) => {
            let arrivals = accepts + drops + growth;
            let slack = SKEW + SKEW_SHARE * accepts;
            if arrivals >= drops - slack {
                return Ok((arrivals.max(drops), accepts));
            }
            Err(Unusable::OutOfBalance {
                arrivals: 0.0,
                accepts,
                drops,
                growth,
                slack,
            })
        }
        (None, ..) => Err(Unusable::Missing {
            what: "the number of arrivals",
        }),
        (_, None, None) => Err(Unusable::Missing {
            what: "the number of accepts",
        }),
    }
}

#[cfg(test)]
#[path = "step_tests.rs"]
mod tests;
