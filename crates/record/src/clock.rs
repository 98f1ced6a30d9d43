//! Wall-clock times as the file keeps them, and which process is writing.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch; a time before it is 0, one beyond the year 292 million the largest number.
pub(crate) fn unix_ms(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The time of a number of milliseconds since the Unix epoch.
pub(crate) fn from_unix_ms(ms: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// `2026-11-21 20:59:59 UTC`: a time for people (proleptic Gregorian calendar, days counted from the civil epoch).
pub(crate) fn utc_text(ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(ms).unwrap_or_default();
    time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// The number of milliseconds since the Unix epoch of what [`utc_text`] wrote; `None` of another text.
pub(crate) fn utc_ms(text: &str) -> Option<i64> {
    let time = jiff::civil::DateTime::strptime("%Y-%m-%d %H:%M:%S UTC", text).ok()?;
    let time = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(time.timestamp().as_millisecond())
}

/// Names this process so that a later one can tell whether it still lives: boot, pid namespace, pid and start
/// time. `None` where `/proc` does not tell.
pub(crate) fn this_process() -> Option<String> {
    process_key(std::process::id())
}

/// Whether the process of such a name still runs; `None` where that cannot be known from here (another machine or
/// container, another boot would be `Some(false)` only on the same machine, so it is `None` too).
pub(crate) fn still_runs(key: &str) -> Option<bool> {
    let ours = this_process()?;
    let split = |key: &str| -> Option<(String, u32)> {
        let (place, rest) = key.rsplit_once('|')?;
        let (pid, _start) = rest.split_once(':')?;
        Some((place.to_owned(), pid.parse().ok()?))
    };
    let (our_place, _) = split(&ours)?;
    let (place, pid) = split(key)?;
    (place == our_place).then(|| process_key(pid).as_deref() == Some(key))
}

fn process_key(pid: u32) -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may itself hold spaces and parentheses: fields are counted from the last one. The
    // first field after it is number 3 of proc_pid_stat(5); a zombie (Z) has ended; start time is number 22.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    let start = fields.nth(18)?;
    (state != "Z" && state != "X").then(|| format!("{}|{}|{pid}:{start}", boot.trim(), namespace.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(utc_text(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc_text(951_782_400_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc_text(1_709_251_199_999), "2024-02-29 23:59:59 UTC");
        assert_eq!(utc_text(4_107_542_400_000), "2100-03-01 00:00:00 UTC");
        assert_eq!(utc_ms("2000-02-29 00:00:00 UTC"), Some(951_782_400_000));
        assert_eq!(utc_ms("yesterday"), None);
    }

    #[test]
    fn this_process_runs_and_an_earlier_one_of_the_same_pid_does_not() {
        let Some(ours) = this_process() else {
            println!("skipped: /proc does not name this process");
            return;
        };
        assert_eq!(still_runs(&ours), Some(true));
        let (head, start) = ours.rsplit_once(':').unwrap();
        let earlier = format!("{head}:{}", start.parse::<u64>().unwrap().wrapping_sub(1));
        assert_eq!(still_runs(&earlier), Some(false));
        assert_eq!(
            still_runs(&format!("another-boot|pid:[1]|{}:1", std::process::id())),
            None
        );
        assert_eq!(still_runs("nonsense"), None);
    }
}
