//! What `headroom load` says while it sends, and at its end.

use headroom_console::{Stop, say};
use headroom_load::{Judged, LoadHandle, LoadResult, Summary};
use headroom_units::Seconds;
use std::time::{Duration, Instant};

/// How often it is asked whether the load has ended.
const LOOK: Duration = Duration::from_millis(20);

/// A line a second until the load ends, or `stop` is raised, which ends it.
pub(super) fn progress(load: &mut LoadHandle, stop: &Stop, length: Seconds, has_users: bool) {
    let begin = Instant::now();
    let mut next = begin;
    loop {
        next += Duration::from_secs(1);
        // The end is not waited for until the second is over.
        while Instant::now() < next && !load.is_finished() {
            if stop.wait_until((Instant::now() + LOOK).min(next)) {
                load.stop();
                return;
            }
        }
        if load.is_finished() {
            return;
        }
        let Ok(period) = load.take_period() else { return };
        let latency = Summary::of(&period.latency, 1e3);
        let seconds = period.duration.get().max(1e-9);
        let people = if has_users {
            let pages = period.counts.pages_completed as f64 / seconds;
            format!("  {:>5} users  {pages:>6.1} pages/s", period.users)
        } else {
            String::new()
        };
        say::note!(
            "{:>6.0} of {:.0} s{people}  {:>7.0} requests/s  P50 {} ms  P95 {} ms  failed {}  outstanding {}  \
             connects retried {}",
            begin.elapsed().as_secs_f64(),
            length.get(),
            period.counts.offered as f64 / seconds,
            shown(latency.p50, 1),
            shown(latency.p95, 1),
            period.counts.failed.total(),
            period.outstanding,
            period.counts.connects_retried,
        );
    }
}

/// How many characters the name at the beginning of a line of [`table`] has, with the spaces after it.
pub(super) const NAME: usize = 12;

/// A figure with so many decimals; `-` where there is none.
fn shown(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

/// The result for people.
pub(super) fn table(result: &LoadResult, judged: &[Judged], has_users: bool) -> String {
    let counts = &result.counts;
    let failed = &counts.failed;
    let latency = &result.latency_ms;
    let connect = &result.connect_ms;
    let users = if has_users {
        format!(
            "users       {:.1} on average\n\
             pages       {} begun, {} completed ({:.1}/s), {} failed\n",
            result.users_mean,
            counts.pages_begun,
            counts.pages_completed,
            result.pages_per_second.get(),
            counts.pages_failed,
        )
    } else {
        String::new()
    };
    let why = match &result.connect_error {
        Some(error) => format!(" (the first: {error})"),
        None => String::new(),
    };
    let wrong = match result.by_kind.is_empty() {
        true => String::new(),
        false => format!(", {} another page than was asked for", failed.wrong),
    };
    let mut causes = String::new();
    for (count, cause) in [
        (failed.wrong_size, "another size than was asked for"),
        (failed.missed, "a key that was not there"),
        (failed.closed, "closed before the answer"),
        (
            failed.unsent,
            "never sent, for the generator was behind its schedule",
        ),
        (
            failed.unanswered,
            "unanswered when the load and its --grace were over",
        ),
    ] {
        if count > 0 {
            causes.push_str(&format!(", {count} {cause}"));
        }
    }
    if let Some(error) = &result.answer_error {
        causes.push_str(&format!("; the first that was no right answer: \"{error}\""));
    }
    let mut kinds = String::new();
    for kind in &result.by_kind {
        kinds.push_str(&format!(
            "\n{:<20} {:>8} completed ({:.1}/s), {} failed, mean {} ms, P95 {}",
            kind.page,
            kind.completed,
            kind.completed as f64 / result.duration_s.get().max(1e-9),
            kind.failed,
            shown(kind.latency_ms.mean, 2),
            shown(kind.latency_ms.p95, 2),
        ));
    }
    let mut end = String::new();
    for limit in &result.generator_limits {
        end.push_str(&format!(
            "\nlimit       the generator was the limit: {limit}; {}",
            limit.remedy()
        ));
    }
    for one in judged {
        end.push_str(&format!("\nfail-if     {one}"));
    }
    let client_errors = match counts.client_errors {
        0 => String::new(),
        count => format!(", {count} of them with a status from 400 to 499"),
    };
    format!(
        "{users}requests    {} offered, {} completed ({:.1}/s){client_errors}, {} failed\n\
         failures    {} connect{why}, {} timeout, {} status >= 500, {} protocol, {} dropped (no room to wait){wrong}{causes}\n\
         content     {:.1} KB/s, {} of the requests sets; {:.1} connections waited for an answer on average\n\
         latency     from the intended send time: mean {} ms, P50 {}, P95 {}, P99 {}, P99.9 {}, \
         max {}\n\
         connects    {} opened: P50 {} ms, P99 {}, max {}; {} took 0.99 s or more (a SYN sent again), {} given \
         up\n\
         send error  P50 {} us, P99 {} us, max {} us; by the generator itself P50 {} us, P99 {} us\n\
         generator   {:.2} s of CPU in {:.1} s, the busiest of {} threads on a core {:.0} % of the time and waiting for one \
         {:.0} %{kinds}{end}",
        counts.offered,
        counts.completed,
        result.completed_per_second.get(),
        result.failed_total,
        failed.connect,
        failed.timeout,
        failed.status,
        failed.protocol,
        failed.dropped,
        result.content_bytes_per_second.get() / 1000.0,
        counts.sets,
        result.busy_connections,
        shown(latency.mean, 2),
        shown(latency.p50, 2),
        shown(latency.p95, 2),
        shown(latency.p99, 2),
        shown(latency.p999, 2),
        shown(latency.max, 2),
        counts.connections,
        shown(connect.p50, 2),
        shown(connect.p99, 2),
        shown(connect.max, 2),
        counts.connects_retried,
        counts.connects_given_up,
        shown(result.send_error_us.p50, 0),
        shown(result.send_error_us.p99, 0),
        shown(result.send_error_us.max, 0),
        shown(result.schedule_error_us.p50, 0),
        shown(result.schedule_error_us.p99, 0),
        result.generator_cpu_s.get(),
        result.duration_s.get(),
        result.threads,
        100.0 * result.generator_busy_share,
        100.0 * result.generator_wait_share,
    )
}
