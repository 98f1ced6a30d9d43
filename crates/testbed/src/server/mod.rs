//! What the built-in services share: an HTTP/1.1 front of one thread, and worker threads behind a bounded queue.

pub(crate) mod answers;
#[cfg(test)]
pub(crate) mod client;
mod front;
pub(crate) mod pool;

pub(crate) use front::{Limits, Service, listen, run};

use rustix::time::{ClockId, clock_gettime};

/// CPU time that the calling thread has used, seconds.
pub(crate) fn thread_cpu() -> f64 {
    clock_s(ClockId::ThreadCPUTime)
}

/// CPU time that this process has used, seconds.
pub(crate) fn process_cpu() -> f64 {
    clock_s(ClockId::ProcessCPUTime)
}

fn clock_s(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
