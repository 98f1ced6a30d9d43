//! Measures μ, the requests that one core serves in a second, before a run, under a load that is made for it; where
//! nobody can be asked for load, [`headroom_control::Calibrating`] observes it while the service runs.

use super::{Clock, Device, DevicePeriod, Telemetry};
use anyhow::bail;
use headroom_console::Stop;
use headroom_control::calibrate::{MIN_CPU, MIN_REQUESTS};
use headroom_units::{PerSecond, Seconds};
use std::time::Duration;

/// How many times the asked length to wait for enough traffic.
const PATIENCE: u32 = 30;

/// Watches the traffic for `length`, and longer where it is thin; μ as requests answered per second of CPU time.
///
/// # Errors
/// Where there is too little traffic to tell, or nothing reads the CPU time; `Ok(None)` where `stop` was raised.
pub fn service_rate(
    machine: &mut dyn Device,
    telemetry: &mut dyn Telemetry,
    length: Duration,
    clock: &dyn Clock,
    stop: &Stop,
) -> anyhow::Result<Option<PerSecond>> {
    const PERIOD: Duration = Duration::from_millis(500);
    let begin = clock.now();
    let (mut requests, mut cpu) = (0, Seconds::ZERO);
    let mut used_since = || {
        let mut period = DevicePeriod::default();
        machine.observe(&mut period);
        // A node that is missing serves on, and its time is not known.
        period.cpu_time.filter(|_| period.missing.nodes == 0)
    };
    used_since();
    let mut is_lost = telemetry.take(PERIOD).is_none();
    let mut due = begin;
    loop {
        due += PERIOD;
        if clock.wait_until(due, stop, &|| false) {
            return Ok(None);
        }
        let traffic = telemetry.take(PERIOD);
        let used = used_since();
        // What was counted in a period that was lost on either side comes with the next one, or not at all: neither says what a core serves.
        let is_after_loss = std::mem::replace(&mut is_lost, traffic.is_none() || used.is_none());
        if let Some((traffic, used)) = traffic.zip(used).filter(|_| !is_after_loss) {
            requests += traffic.completions;
            cpu += used;
        }
        let waited = clock.now() - begin;
        let enough = requests >= MIN_REQUESTS && cpu >= MIN_CPU;
        if enough && waited >= length {
            return Ok(Some(from_totals(requests, cpu)));
        }
        if waited >= length * PATIENCE {
            bail!(
                "the service rate could not be measured: {requests} requests and {:.2} s of CPU time in {:.0} s are \
                 too few to tell",
                cpu.get(),
                waited.as_secs_f64()
            );
        }
    }
}

/// μ: requests answered per second of CPU time.
fn from_totals(requests: u64, cpu: Seconds) -> PerSecond {
    PerSecond::new(requests as f64 / cpu.get())
}
