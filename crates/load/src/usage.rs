//! What a generator's thread had of its processor while it sent.

use crate::clock::{Moment, thread_cpu};

/// What a thread had by a moment.
#[derive(Clone, Copy, Debug)]
struct Times {
    at: Moment,
    /// Seconds on a processor.
    cpu: f64,
    /// Seconds in which it could have run and another thread did.
    waited: f64,
}

impl Times {
    fn now() -> Self {
        Self {
            at: Moment::now(),
            cpu: thread_cpu(),
            waited: waited(),
        }
    }
}

/// Seconds that the calling thread has waited for a processor; none counted where the kernel keeps no statistics of its
/// scheduler (`CONFIG_SCHED_INFO`).
fn waited() -> f64 {
    let counted = std::fs::read_to_string("/proc/thread-self/schedstat");
    counted.ok().and_then(|text| wait_of(&text)).unwrap_or(0.0)
}

/// The second of the file's numbers, which is in nanoseconds.
fn wait_of(schedstat: &str) -> Option<f64> {
    let nanos: u64 = schedstat.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(nanos as f64 / 1e9)
}

/// What a thread had in a span.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Used {
    /// Seconds on a processor, whatever it did.
    pub(crate) cpu: f64,
    /// While it sent.
    pub(crate) sending: Sending,
}

/// What a thread had while it sent: seconds by the clock, on a processor, and waiting for one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sending {
    pub(crate) length: f64,
    pub(crate) cpu: f64,
    pub(crate) waited: f64,
}

impl Sending {
    /// The span that follows, of the same thread.
    pub(crate) fn append(&mut self, later: Self) {
        self.length += later.length;
        self.cpu += later.cpu;
        self.waited += later.waited;
    }

    /// The busier of two threads, over the longer of their times.
    pub(crate) fn merge(&mut self, other: Self) {
        let length = self.length.max(other.length);
        if other.cpu + other.waited > self.cpu + self.waited {
            *self = other;
        }
        self.length = length;
    }
}

/// Reads both of the calling thread.
#[derive(Debug)]
pub(crate) struct Usage {
    /// Up to which CPU time is counted.
    cpu_counted: f64,
    /// Up to which the time of sending is counted, while it sends.
    sending_since: Option<Times>,
    /// What was sent in this span before sending ended.
    sent: Sending,
}

impl Usage {
    pub(crate) const fn new() -> Self {
        Self {
            cpu_counted: 0.0,
            sending_since: None,
            sent: Sending {
                length: 0.0,
                cpu: 0.0,
                waited: 0.0,
            },
        }
    }

    /// The thread begins to send.
    pub(crate) fn begin(&mut self) {
        self.sending_since = Some(Times::now());
    }

    /// It has sent the last.
    pub(crate) fn end(&mut self) {
        let sent = self.count_sending();
        self.sent.append(sent);
        self.sending_since = None;
    }

    /// What it had since the last time.
    pub(crate) fn take(&mut self) -> Used {
        let cpu = thread_cpu();
        let mut sending = std::mem::take(&mut self.sent);
        sending.append(self.count_sending());
        Used {
            cpu: cpu - std::mem::replace(&mut self.cpu_counted, cpu),
            sending,
        }
    }

    fn count_sending(&mut self) -> Sending {
        let Some(since) = self.sending_since else {
            return Sending::default();
        };
        let now = Times::now();
        self.sending_since = Some(now);
        Sending {
            length: now.at.since(since.at),
            cpu: now.cpu - since.cpu,
            waited: now.waited - since.waited,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn spin(milliseconds: u64) {
        let until = Instant::now() + Duration::from_millis(milliseconds);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn what_a_thread_did_before_and_after_it_sent_is_no_part_of_its_sending() {
        let mut usage = Usage::new();
        spin(60);
        usage.begin();
        std::thread::sleep(Duration::from_millis(30));
        let first = usage.take();
        spin(60);
        usage.end();
        spin(60);
        let second = usage.take();
        // Asleep, a thread neither runs nor waits; spinning, it does one or the other.
        let busy = |sending: Sending| (sending.cpu + sending.waited) / sending.length;
        assert!(busy(first.sending) < 0.5, "{first:?}");
        assert!(busy(second.sending) > 0.5, "{second:?}");
        assert!(first.cpu > first.sending.cpu && second.cpu > second.sending.cpu);
        assert_eq!(usage.take().sending, Sending::default());
    }

    #[test]
    fn the_wait_is_the_second_number() {
        assert_eq!(wait_of("97525 2750940000 2\n"), Some(2.75094));
        assert_eq!((wait_of(""), wait_of("1 x 2")), (None, None));
    }

    #[test]
    fn spans_follow_and_threads_run_beside() {
        let of = |length, cpu, waited| Sending { length, cpu, waited };
        let mut sum = of(1.0, 0.5, 0.25);
        sum.append(of(2.0, 1.0, 0.5));
        assert_eq!(sum, of(3.0, 1.5, 0.75));
        sum.merge(of(2.5, 1.0, 1.5));
        assert_eq!(sum, of(3.0, 1.0, 1.5));
        sum.merge(of(4.0, 0.0, 0.0));
        assert_eq!(sum, of(4.0, 1.0, 1.5));
    }
}
