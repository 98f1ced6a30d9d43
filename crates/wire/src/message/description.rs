//! What a node is and what can be asked of it.

use super::{Device, LeaseState, Meter, Node, OnCallServer, Range, Ranges, range};
use crate::check::{Invalid, amount, at_most, protocol, required, source, source_number};
use crate::proto;
use headroom_units::{Setting, Source, Watts};

/// The most devices, and the most meters, that one description names.
const MAX_DEVICES: usize = 256;

/// The most control groups whose processor time may be asked for that one description names.
pub const MAX_CPU_GROUPS: usize = 64;

/// What a node is and what can be asked of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// The version of the agent's program.
    pub agent_version: String,
    /// A number drawn when the agent started: another number means that its counters began again.
    pub agent_run: u64,
    /// The machine.
    pub node: Node,
    /// What the setting applies to, in words.
    pub service: String,
    /// What can be commanded of each lever, or why it cannot be.
    pub ranges: Ranges,
    /// Every device of the node that sets a lever, usable or not.
    pub devices: Vec<Device>,
    /// Every meter that the agent knows, usable or not.
    pub meters: Vec<Meter>,
    /// What the machine draws at least and at most; `None` where nobody knows.
    pub envelope: Option<PowerEnvelope>,
    /// The lease lengths that may be asked for, in milliseconds.
    pub lease_ms: Range,
    /// The periods of an observation that may be asked for, in milliseconds.
    pub observe_period_ms: Range,
    /// The periods in which an accept queue may be watched, in milliseconds; `None` where the agent's version cannot
    /// watch.
    pub queue_period_ms: Option<Range>,
    /// The control groups whose processor time a watch may ask for, with all that are below them, as the agent's
    /// configuration calls them. At most [`MAX_CPU_GROUPS`]; `None` where the agent's version cannot tell it.
    pub cpu_groups: Option<Vec<String>>,
    /// What the machine's figures are.
    pub source: Source,
    /// What is in force now.
    pub in_force: Setting,
    /// Who holds the node now.
    pub lease: Option<LeaseState>,
    /// The server on call that the agent commands, there or not; `None` where its configuration names none.
    pub oncall: Option<OnCallServer>,
}

/// What a machine draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerEnvelope {
    /// Doing nothing.
    pub idle: Watts,
    /// With every core busy at the highest frequency.
    pub full: Watts,
    /// Where the two come from.
    pub source: Source,
}

impl From<Description> for proto::Description {
    fn from(description: Description) -> Self {
        Self {
            protocol: crate::PROTOCOL,
            agent_version: description.agent_version,
            agent_run: description.agent_run,
            node: Some(description.node),
            service: description.service,
            ranges: description.ranges.into(),
            devices: description.devices,
            meters: description.meters,
            envelope: description.envelope.map(Into::into),
            lease_ms: Some(description.lease_ms),
            observe_period_ms: Some(description.observe_period_ms),
            queue_period_ms: description.queue_period_ms,
            cpu_groups: description.cpu_groups.map(|names| proto::CpuGroups { names }),
            source: source_number(description.source),
            in_force: Some(description.in_force.into()),
            lease: description.lease.map(Into::into),
            oncall: description.oncall.map(Into::into),
        }
    }
}

impl TryFrom<proto::Description> for Description {
    type Error = Invalid;
    fn try_from(message: proto::Description) -> Result<Self, Invalid> {
        protocol(message.protocol)?;
        Ok(Self {
            agent_version: message.agent_version,
            agent_run: message.agent_run,
            node: message.node.ok_or_else(|| Invalid::missing("node"))?,
            service: message.service,
            ranges: message.ranges.try_into()?,
            devices: at_most("devices", message.devices, MAX_DEVICES)?,
            meters: at_most("meters", message.meters, MAX_DEVICES)?,
            envelope: message.envelope.map(TryInto::try_into).transpose()?,
            lease_ms: range("lease_ms", message.lease_ms)?,
            observe_period_ms: range("observe_period_ms", message.observe_period_ms)?,
            queue_period_ms: message
                .queue_period_ms
                .map(|period| range("queue_period_ms", Some(period)))
                .transpose()?,
            cpu_groups: message
                .cpu_groups
                .map(|groups| at_most("cpu_groups", groups.names, MAX_CPU_GROUPS))
                .transpose()?,
            source: source("source", message.source)?,
            in_force: required("in_force", message.in_force)?,
            lease: message.lease.map(Into::into),
            oncall: message.oncall.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<PowerEnvelope> for proto::PowerEnvelope {
    fn from(envelope: PowerEnvelope) -> Self {
        Self {
            idle_w: envelope.idle.get(),
            full_w: envelope.full.get(),
            source: source_number(envelope.source),
        }
    }
}

impl TryFrom<proto::PowerEnvelope> for PowerEnvelope {
    type Error = Invalid;
    fn try_from(message: proto::PowerEnvelope) -> Result<Self, Invalid> {
        Ok(Self {
            idle: Watts::new(amount("envelope.idle_w", message.idle_w)?),
            full: Watts::new(amount("envelope.full_w", message.full_w)?),
            source: source("envelope.source", message.source)?,
        })
    }
}
