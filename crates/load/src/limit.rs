//! What of the generator itself bounded a load, so that its figures are not taken for the service's.

use crate::result::LoadResult;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use std::fmt;

/// From which share of the time of sending on a thread is as busy as can be.
const BUSY: f64 = 0.95;

/// From which share on the wait for a processor, and not the thread's own work, is what is said.
const WAITING: f64 = 0.1;

/// Below this the generator's lateness is not spoken of, milliseconds.
const LATE_MS: f64 = 1.0;

/// Which share of the latency's P99 the generator's own lateness may be.
const LATE_SHARE: f64 = 0.1;

/// Which share of the requests may wait for a connection.
const QUEUED_SHARE: f64 = 0.01;

/// Something of the generator that was at its limit. Displayed as what was, without the remedy; serialised with both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Its busiest thread had no more CPU time to use.
    Cpu {
        /// Of the time in which it sent, the share on a processor.
        busy_share: f64,
        /// How many threads there were.
        threads: usize,
    },
    /// A thread could have run, and something else did.
    Starved {
        /// Of the time in which it sent, the share on a processor.
        busy_share: f64,
        /// And the share in which it waited for one.
        wait_share: f64,
    },
    /// It sent behind schedule, by an amount that matters beside the latency measured from the intended send time; or never.
    Schedule {
        /// The P99 of how late it was by its own doing, milliseconds.
        late_p99_ms: f64,
        /// The P99 of the latency, in which that is.
        latency_p99_ms: f64,
        /// Requests that were due and never sent.
        unsent: u64,
    },
    /// All connections that it may open were busy.
    Connections {
        /// How many it may open.
        connections: usize,
        /// Requests that had to wait for one.
        queued: u64,
        /// Requests that found no room to wait, and were never sent.
        dropped: u64,
    },
    /// Connections were not opened for want of a local port.
    Ports(u64),
    /// Connections were not opened for want of a file descriptor.
    Descriptors(u64),
}

impl Limit {
    /// All that a result shows, the one that explains others first.
    pub(crate) fn of(result: &LoadResult) -> Vec<Self> {
        let counts = &result.counts;
        let (busy_share, wait_share) = (result.generator_busy_share, result.generator_wait_share);
        let mut all = Vec::new();
        if busy_share + wait_share >= BUSY {
            all.push(if wait_share >= WAITING {
                Self::Starved {
                    busy_share,
                    wait_share,
                }
            } else {
                Self::Cpu {
                    busy_share,
                    threads: result.threads,
                }
            });
        }
        let late_p99_ms = result.schedule_error_us.p99.unwrap_or(0.0) / 1000.0;
        let latency_p99_ms = result.latency_ms.p99.unwrap_or(0.0);
        let unsent = counts.failed.unsent;
        if unsent > 0 || late_p99_ms >= LATE_MS && late_p99_ms >= LATE_SHARE * latency_p99_ms {
            all.push(Self::Schedule {
                late_p99_ms,
                latency_p99_ms,
                unsent,
            });
        }
        if counts.failed.dropped > 0 || counts.queued as f64 > QUEUED_SHARE * counts.offered as f64 {
            all.push(Self::Connections {
                connections: result.max_connections,
                queued: counts.queued,
                dropped: counts.failed.dropped,
            });
        }
        if counts.no_local_port > 0 {
            all.push(Self::Ports(counts.no_local_port));
        }
        if counts.no_descriptor > 0 {
            all.push(Self::Descriptors(counts.no_descriptor));
        }
        all
    }

    /// Its name in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Cpu { .. } => "cpu",
            Self::Starved { .. } => "starved",
            Self::Schedule { .. } => "schedule",
            Self::Connections { .. } => "connections",
            Self::Ports(_) => "ports",
            Self::Descriptors(_) => "descriptors",
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Cpu { .. } => {
                "give more --threads where cores are free, a machine of its own, or a lower rate"
            }
            Self::Starved { .. } => {
                "give the generator a core or a machine of its own (taskset, or a CPU set that the service does not share)"
            }
            Self::Schedule { .. } => "give more --threads, a core or a machine of its own, or a lower rate",
            Self::Connections { .. } => {
                "give more --connections, unless the service itself is what keeps them busy"
            }
            Self::Ports(_) => {
                "keep connections (without --new-connections), lower the rate, or widen net.ipv4.ip_local_port_range"
            }
            Self::Descriptors(_) => {
                "raise the limit on open files (`ulimit -n`), or give fewer --connections"
            }
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| 100.0 * share;
        match *self {
            Self::Cpu {
                busy_share,
                threads: 1,
            } => write!(f, "its one thread used {:.0} % of a core", percent(busy_share)),
            Self::Cpu { busy_share, threads } => write!(
                f,
                "the busiest of its {threads} threads used {:.0} % of a core",
                percent(busy_share)
            ),
            Self::Starved {
                busy_share,
                wait_share,
            } => write!(
                f,
                "its busiest thread waited for a processor {:.0} % of the time, beside {:.0} % in which it had one",
                percent(wait_share),
                percent(busy_share)
            ),
            Self::Schedule {
                late_p99_ms,
                latency_p99_ms,
                unsent,
            } => {
                write!(
                    f,
                    "it sent behind schedule, by {late_p99_ms:.1} ms at the P99, where the P99 of the latency with it is \
                     {latency_p99_ms:.1} ms"
                )?;
                match unsent {
                    0 => Ok(()),
                    unsent => write!(f, ", and {unsent} requests never"),
                }
            }
            Self::Connections {
                connections,
                queued,
                dropped,
            } => {
                write!(
                    f,
                    "all of its {connections} connections were busy, {queued} requests waited for one"
                )?;
                match dropped {
                    0 => Ok(()),
                    dropped => write!(f, ", and {dropped} found no room to wait and were never sent"),
                }
            }
            Self::Ports(count) => write!(
                f,
                "{count} connections were not opened, for this machine has no free local port left"
            ),
            Self::Descriptors(count) => write!(
                f,
                "{count} connections were not opened, for this process may open no more files"
            ),
        }
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut limit = serializer.serialize_struct("Limit", 3)?;
        limit.serialize_field("limit", self.name())?;
        limit.serialize_field("says", &self.to_string())?;
        limit.serialize_field("remedy", self.remedy())?;
        limit.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::LoadPeriod;
    use headroom_units::Seconds;

    fn limits(change: impl FnOnce(&mut LoadResult)) -> Vec<Limit> {
        let mut result = LoadResult::new("http://x/".into(), (4, 64), LoadPeriod::new(Seconds::ZERO, 0));
        result.counts.offered = 10_000;
        result.latency_ms.p99 = Some(30.0);
        change(&mut result);
        Limit::of(&result)
    }

    #[test]
    fn a_generator_with_time_and_connections_to_spare_is_no_limit() {
        assert_eq!(limits(|_| {}), []);
        let near = limits(|result| {
            result.generator_busy_share = 0.8;
            result.generator_wait_share = 0.1;
            result.schedule_error_us.p99 = Some(2_900.0);
            result.counts.queued = 100;
        });
        assert_eq!(near, []);
        // Late by much of a latency that is next to nothing: the figures stand.
        let quick = limits(|result| {
            result.latency_ms.p99 = Some(0.9);
            result.schedule_error_us.p99 = Some(900.0);
        });
        assert_eq!(quick, []);
    }

    #[test]
    fn each_limit_is_named_with_its_figures_and_a_remedy() {
        /// What a result has, and the limit's name, words and remedy.
        type Case = (fn(&mut LoadResult), &'static str, &'static str, &'static str);
        let cases: [Case; 7] = [
            (
                |result| result.generator_busy_share = 0.98,
                "cpu",
                "the busiest of its 4 threads used 98 % of a core",
                "--threads",
            ),
            (
                |result| {
                    result.generator_busy_share = 0.56;
                    result.generator_wait_share = 0.42;
                },
                "starved",
                "waited for a processor 42 % of the time, beside 56 %",
                "a core or a machine of its own",
            ),
            (
                |result| result.schedule_error_us.p99 = Some(3_100.0),
                "schedule",
                "by 3.1 ms at the P99, where the P99 of the latency with it is 30.0 ms",
                "lower rate",
            ),
            (
                |result| result.counts.failed.unsent = 7,
                "schedule",
                "and 7 requests never",
                "--threads",
            ),
            (
                |result| {
                    result.counts.queued = 101;
                    result.counts.failed.dropped = 3;
                },
                "connections",
                "all of its 64 connections were busy, 101 requests waited for one, and 3 found no room",
                "--connections",
            ),
            (
                |result| result.counts.no_local_port = 5,
                "ports",
                "5 connections were not opened",
                "net.ipv4.ip_local_port_range",
            ),
            (
                |result| result.counts.no_descriptor = 6,
                "descriptors",
                "6 connections were not opened",
                "ulimit -n",
            ),
        ];
        for (change, name, says, remedy) in cases {
            let found = limits(change);
            let [limit] = found[..] else {
                panic!("{name}: {found:?}")
            };
            assert_eq!(limit.name(), name);
            assert!(limit.to_string().contains(says), "{limit}");
            assert!(limit.remedy().contains(remedy), "{}", limit.remedy());
            let json = serde_json::to_value(limit).unwrap();
            assert_eq!(
                (&json["limit"], &json["remedy"]),
                (&name.into(), &limit.remedy().into())
            );
        }
    }
}
