//! The processor time of a control group, as an agent tells it beside an accept queue.

use crate::check::{Invalid, micros};
use crate::proto;
use headroom_units::Ratio;
use std::fmt;
use std::time::Duration;

/// The longest path of a control group that is taken, in bytes (Linux's PATH_MAX).
const MAX_CPU_GROUP: usize = 4096;

/// The control group whose processor time is asked for: its directory, or its path below the hierarchy. Never empty, at
/// most 4096 bytes (Linux's PATH_MAX), without control characters and without a way up (`..`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuGroup(String);

impl CpuGroup {
    /// A path that may be one.
    ///
    /// # Errors
    /// [`Invalid`]: it is empty or too long, has control characters, or goes up.
    pub fn new(path: impl Into<String>) -> Result<Self, Invalid> {
        let path = path.into();
        let goes_up = path.split('/').any(|part| part == "..");
        if path.is_empty() || path.len() > MAX_CPU_GROUP || path.chars().any(char::is_control) || goes_up {
            let expected = "the path of a control group without \"..\", of at most 4096 bytes";
            return Err(Invalid::new("cpu_group", path.escape_debug(), expected));
        }
        Ok(Self(path))
    }

    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CpuGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What could be read of a control group's processor time at one moment: its counters, or why there are none, and what
/// helps.
pub type GroupCpu = Result<GroupCounters, String>;

/// Counters of a control group's processor time. Between two of one run of the agent and one epoch they can be subtracted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounters {
    /// Another number means that the group was made anew, that it could not be read for a while, that what it may use
    /// changed by more than a quarter, or that a counter jumped; and another one in each meter of a process.
    pub epoch: u64,
    /// Processor time used; only grows.
    pub used: Duration,
    /// Processor time that could have been used: over time, the least of the CPUs that the group may run on and of the
    /// quotas of it and of those above it, the mean of the two ends between two readings; only grows.
    pub allowed: Duration,
}

impl GroupCounters {
    /// The share that was used of what could have been since an earlier reading; nothing over two epochs, and where no
    /// time passed or a counter fell. Ticks are counted a little late: what is above 1 is 1.
    pub fn share_since(&self, before: &Self) -> Option<Ratio> {
        if self.epoch != before.epoch {
            return None;
        }
        let used = self.used.checked_sub(before.used)?.as_secs_f64();
        let allowed = self.allowed.checked_sub(before.allowed)?.as_secs_f64();
        (allowed > 0.0).then(|| Ratio::new((used / allowed).min(1.0)))
    }
}

pub(super) fn to_wire(group: GroupCpu) -> proto::GroupCpu {
    use proto::group_cpu::Read;
    proto::GroupCpu {
        read: Some(match group {
            Ok(counters) => Read::Counters(proto::GroupCounters {
                epoch: counters.epoch,
                used_us: micros(counters.used),
                allowed_us: micros(counters.allowed),
            }),
            Err(why) => Read::Unavailable(proto::Unavailable { why }),
        }),
    }
}

pub(super) fn from_wire(message: proto::GroupCpu) -> Result<GroupCpu, Invalid> {
    use proto::group_cpu::Read;
    Ok(
        match message.read.ok_or_else(|| Invalid::missing("group.read"))? {
            Read::Counters(counters) => Ok(GroupCounters {
                epoch: counters.epoch,
                used: Duration::from_micros(counters.used_us),
                allowed: Duration::from_micros(counters.allowed_us),
            }),
            Read::Unavailable(unavailable) => Err(super::queue::words(unavailable.why)),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_path_that_goes_up_or_is_none_is_refused() {
        for good in ["/web", "web", "/sys/fs/cgroup/cpu/a..b/c", "/a\u{e4}"] {
            assert_eq!(CpuGroup::new(good).unwrap().as_str(), good);
        }
        let long = "/".repeat(MAX_CPU_GROUP + 1);
        for bad in ["", "/web/../db", "..", "/a\nb", "/a\0", long.as_str()] {
            let error = CpuGroup::new(bad).unwrap_err();
            assert_eq!(error.field, "cpu_group");
            assert!(error.value.len() <= 83 && !error.value.contains('\n'), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_path_without_a_way_up_or_refused(text in "(\\PC|\\.\\.|/|\u{0}){0,20}") {
            if let Ok(group) = CpuGroup::new(text.clone()) {
                prop_assert_eq!(group.as_str(), &text);
                let path = std::path::Path::new(group.as_str());
                prop_assert!(path.components().all(|part| part != std::path::Component::ParentDir));
            }
        }
    }
}
