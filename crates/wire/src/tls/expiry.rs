//! When the certificates end that this process shows or was shown, for its metrics.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// The most certificates that are known at once; the names of a cluster's nodes are far fewer.
const MAX_KNOWN: usize = 1024;

static KNOWN: Mutex<BTreeMap<String, SystemTime>> = Mutex::new(BTreeMap::new());

/// Notes one that is in use; of each name the newest.
pub(crate) fn note(name: &str, ends: SystemTime) {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() < MAX_KNOWN || known.contains_key(name) {
        known.insert(name.to_owned(), ends);
    }
}

/// The certificates that this process shows itself, and those that servers showed it when it last connected: each one's
/// name, and the whole days that it is still valid at a time; negative where it has ended.
pub fn days_left(now: SystemTime) -> Vec<(String, i64)> {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let days = |ends: &SystemTime| crate::certs::days_between(now, *ends);
    known
        .iter()
        .map(|(name, ends)| (name.clone(), days(ends)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn of_each_name_the_newest_is_told_in_whole_days() {
        let now = SystemTime::now();
        let hours = |hours: u64| Duration::from_secs(3600 * hours);
        note("expiry-test", now + hours(24));
        note("expiry-test", now + hours(60));
        note("expiry-test-ended", now - hours(1));
        let all = days_left(now);
        let of = |name: &str| all.iter().find(|(known, _)| known == name).map(|(_, days)| *days);
        assert_eq!((of("expiry-test"), of("expiry-test-ended")), (Some(2), Some(-1)));
    }
}
