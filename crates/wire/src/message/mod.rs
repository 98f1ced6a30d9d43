//! The messages as types of this workspace: quantities with units, checked on the way in.
//!
//! `From<T> for proto::...` writes, `TryFrom<proto::...> for T` reads and refuses what is no value: NaN, a negative
//! amount, a missing part, a list longer than its limit.

mod description;
mod gateway;
mod group;
mod lever;
mod oncall;
mod queue;
mod sample;
mod setting;
mod sizes;

pub use description::{Description, MAX_CPU_GROUPS, PowerEnvelope};
pub use gateway::{
    Backend, BackendPeriod, BackendState, BatchCounts, BoundPassed, CacheCounts, ConnectCounts,
    FailureCounts, GatewayDescription, GatewayPeriod, ImportanceCounts, InFlightBound, MAX_BACKENDS,
    MAX_LATENCIES, MAX_WEIGHT, QueueCounts, RetryCounts, SetBackend, SourceCounts,
};
pub use group::{CpuGroup, GroupCounters, GroupCpu};
pub use lever::{GatewayLever, LeverSetting, MAX_LEVERS, check_settings, lease_of};
pub use oncall::{MAX_AWAY, OnCallCounters, OnCallNow, OnCallSample, OnCallServer};
pub use queue::{
    MAX_COUNT, MAX_QUEUE_LISTENERS, QueueListener, QueueMethod, QueueSample, QueueShown, QueueSnapshot,
    WatchQueue,
};
pub use sample::{
    CpuSample, EnergySample, LinkWork, MAX_LINKS, MAX_TROUBLES, MAX_ZONES, MachineWork, Microjoules, Sample,
    ZoneSample,
};
pub use setting::{NoLever, Ranges};
pub(crate) use sizes::routes_message;
pub use sizes::{ClassOnBackend, ClassRoute, MAX_BUCKETS, MAX_SIZE_CLASSES, SizeClass, routes};

use crate::check::{Invalid, amount, at_most, micros, millis, required};
use crate::proto;
use headroom_units::Setting;
use std::time::Duration;

// What the contract says of these is all there is to them.
pub use crate::proto::{Device, Meter, Node, Range, RefusedReadings};
pub use crate::proto::{QueueAtArrival, QueueConnections, QueueCounters, QueueLength};

/// The longest name of a holder, in characters.
pub const MAX_HOLDER: usize = 64;
/// The most notes in one answer.
pub const MAX_NOTES: usize = 64;

impl Range {
    /// A range without steps.
    pub const fn new(minimum: f64, maximum: f64) -> Self {
        Self {
            minimum,
            maximum,
            step: 0.0,
        }
    }

    /// Whether a value lies in it; NaN does not.
    pub fn contains(&self, value: f64) -> bool {
        value >= self.minimum && value <= self.maximum
    }
}

/// A range that a message must have: finite, from 0, not crossed.
fn range(field: &str, message: Option<Range>) -> Result<Range, Invalid> {
    let range = message.ok_or_else(|| Invalid::missing(field))?;
    let minimum = amount("range.minimum", range.minimum)?;
    let maximum = amount("range.maximum", range.maximum)?;
    amount("range.step", range.step)?;
    if maximum < minimum {
        let expected = format!("at least the minimum, {minimum}");
        return Err(Invalid::new("range.maximum", maximum, expected));
    }
    Ok(range)
}

/// Who asks: the name is for people, the lease belongs to the number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    name: String,
    lease_id: u64,
}

impl Holder {
    /// A holder of that name, with a number that the caller drew at random when it started.
    ///
    /// # Errors
    /// [`Invalid`]: a name that is not 1 to 64 printable ASCII characters, or the number 0.
    pub fn new(name: impl Into<String>, lease_id: u64) -> Result<Self, Invalid> {
        let name = name.into();
        if name.is_empty()
            || name.len() > MAX_HOLDER
            || !name.chars().all(|c| c.is_ascii_graphic() || c == ' ')
        {
            let expected = format!("1 to {MAX_HOLDER} printable ASCII characters");
            return Err(Invalid::new("holder", format!("{name:?}"), expected));
        }
        if lease_id == 0 {
            return Err(Invalid::new("lease_id", 0, "a random number other than 0"));
        }
        Ok(Self { name, lease_id })
    }

    /// The name, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number that the lease belongs to.
    pub const fn lease_id(&self) -> u64 {
        self.lease_id
    }
}

/// A lease that lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseState {
    /// Who holds it.
    pub holder: String,
    /// How long it still lives.
    pub remaining: Duration,
    /// How long it lives from each renewal.
    pub length: Duration,
    /// The sequence number last accepted.
    pub sequence: u64,
}

impl From<LeaseState> for proto::LeaseState {
    fn from(lease: LeaseState) -> Self {
        Self {
            holder: lease.holder,
            remaining_ms: millis(lease.remaining),
            length_ms: millis(lease.length),
            sequence: lease.sequence,
        }
    }
}

impl From<proto::LeaseState> for LeaseState {
    fn from(message: proto::LeaseState) -> Self {
        Self {
            holder: message.holder,
            remaining: Duration::from_millis(message.remaining_ms),
            length: Duration::from_millis(message.length_ms),
            sequence: message.sequence,
        }
    }
}

/// Commands a setting, for the length of a lease.
#[derive(Clone, Debug, PartialEq)]
pub struct Apply {
    /// Who asks.
    pub holder: Holder,
    /// Grows with every request of this holder; the same number again is the same request again.
    pub sequence: u64,
    /// How long the lease lives from the moment the agent accepts this.
    pub length: Duration,
    /// What to put in force.
    pub setting: Setting,
}

impl From<Apply> for proto::ApplyRequest {
    fn from(apply: Apply) -> Self {
        Self {
            holder: apply.holder.name,
            lease_id: apply.holder.lease_id,
            sequence: apply.sequence,
            lease_ms: millis(apply.length),
            setting: Some(apply.setting.into()),
        }
    }
}

impl TryFrom<proto::ApplyRequest> for Apply {
    type Error = Invalid;
    fn try_from(message: proto::ApplyRequest) -> Result<Self, Invalid> {
        Ok(Self {
            holder: Holder::new(message.holder, message.lease_id)?,
            sequence: message.sequence,
            length: Duration::from_millis(message.lease_ms),
            setting: required("setting", message.setting)?,
        })
    }
}

/// What is in force after an [`Apply`].
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// As read back from the machine.
    pub in_force: Setting,
    /// The lease.
    pub lease: LeaseState,
    /// From the request's arrival to the last write.
    pub took: Duration,
    /// What the caller should know although it worked. At most [`MAX_NOTES`].
    pub notes: Vec<String>,
}

impl From<Applied> for proto::Applied {
    fn from(applied: Applied) -> Self {
        Self {
            in_force: Some(applied.in_force.into()),
            lease: Some(applied.lease.into()),
            took_us: micros(applied.took),
            notes: applied.notes,
        }
    }
}

impl TryFrom<proto::Applied> for Applied {
    type Error = Invalid;
    fn try_from(message: proto::Applied) -> Result<Self, Invalid> {
        Ok(Self {
            in_force: required("in_force", message.in_force)?,
            lease: message.lease.ok_or_else(|| Invalid::missing("lease"))?.into(),
            took: Duration::from_micros(message.took_us),
            notes: at_most("notes", message.notes, MAX_NOTES)?,
        })
    }
}

/// What a release did.
#[derive(Clone, Debug, PartialEq)]
pub struct Released {
    /// The lease lived until now; else there was nothing to do.
    pub was_held: bool,
    /// What is in force now.
    pub in_force: Setting,
    /// What was put back, and what somebody else had changed and was left alone. At most [`MAX_NOTES`].
    pub notes: Vec<String>,
}

impl From<Released> for proto::Released {
    fn from(released: Released) -> Self {
        Self {
            was_held: released.was_held,
            in_force: Some(released.in_force.into()),
            notes: released.notes,
        }
    }
}

impl TryFrom<proto::Released> for Released {
    type Error = Invalid;
    fn try_from(message: proto::Released) -> Result<Self, Invalid> {
        Ok(Self {
            was_held: message.was_held,
            in_force: required("in_force", message.in_force)?,
            notes: at_most("notes", message.notes, MAX_NOTES)?,
        })
    }
}

#[cfg(test)]
mod tests;
