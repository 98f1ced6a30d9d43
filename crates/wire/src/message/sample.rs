//! What was seen in one period.

use super::{LeaseState, OnCallSample, RefusedReadings};
use crate::check::{
    Invalid, amount, at_most, each, micros, optional_amount, required, share, source, source_number,
};
use crate::proto;
use headroom_units::{Cores, Hertz, Joules, Ratio, Reading, Setting, Source, Watts};
use std::time::Duration;

/// The most links of one machine that are reported.
pub const MAX_LINKS: usize = 64;
/// The most zones in one sample.
pub const MAX_ZONES: usize = 1024;
/// The most troubles that one sample names.
pub const MAX_TROUBLES: usize = 16;

/// Energy as it is counted: whole microjoules, so that adding for years loses nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Microjoules(pub u64);

impl From<Microjoules> for Joules {
    fn from(energy: Microjoules) -> Self {
        Joules::new(energy.0 as f64 / 1e6)
    }
}

/// What was seen in one period.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Counts the periods of a stream from 1; a gap is as many samples as the receiver was too slow for.
    pub number: u64,
    /// As in [`super::Description`].
    pub agent_run: u64,
    /// When the period ended, on a monotonic clock that began with the agent.
    pub uptime: Duration,
    /// How long the period was.
    pub period: Duration,
    /// The service's processor time; `None` where it could not be read.
    pub cpu: Option<CpuSample>,
    /// The share of all processors' time that the whole machine was busy; `None` where it could not be read.
    pub machine_utilisation: Option<Ratio>,
    /// Energy by zone. Zones overlap: [`Sample::energy`] is their sum without overlap.
    pub zones: Vec<ZoneSample>,
    /// The machine's energy; `None` where no meter answered.
    pub energy: Option<EnergySample>,
    /// The mean frequency of the processors; `None` where the machine does not say.
    pub frequency: Option<Reading<Hertz>>,
    /// What was in force at the end.
    pub in_force: Setting,
    /// Who held the node at the end.
    pub lease: Option<LeaseState>,
    /// What went wrong in this period. At most [`MAX_TROUBLES`].
    pub troubles: Vec<String>,
    /// Cores that the service could use: what a software cap left of the allocation; `None` where nothing is limited.
    pub usable: Option<Cores>,
    /// The meter's readings that were not believed; `None` where no meter answered.
    pub refused: Option<RefusedReadings>,
    /// The server on call; `None` where the agent has none.
    pub oncall: Option<OnCallSample>,
    /// What the whole machine did; `None` where it could not be read, or where the agent's version does not report it.
    pub work: Option<MachineWork>,
}

/// What a machine did since it started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineWork {
    /// When it was read, on the clock of [`Sample::uptime`].
    pub at: Duration,
    /// Time of its processors that was neither idle nor taken by a hypervisor.
    pub busy: Duration,
    /// Of it, software interrupts.
    pub softirq: Duration,
    /// Its network links. At most [`MAX_LINKS`].
    pub links: Vec<LinkWork>,
}

/// What passed a network link since it is there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkWork {
    /// Its name.
    pub name: String,
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Its nominal speed, bits a second; `None` where it has none.
    pub bits_per_s: Option<f64>,
}

/// The processor time of the service.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuSample {
    /// Since the agent began to look; only grows.
    pub usage: Duration,
    /// Cores busy in this period.
    pub busy: Cores,
    /// Time that the service stood still because its quota was used up; only grows.
    pub throttled: Duration,
    /// The share of this period's quota periods in which it was throttled.
    pub throttled_share: Ratio,
}

/// One zone's energy.
#[derive(Clone, Debug, PartialEq)]
pub struct ZoneSample {
    /// Its name.
    pub name: String,
    /// It counts towards the machine's energy.
    pub in_total: bool,
    /// Its energy.
    pub energy: EnergySample,
}

/// An energy counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EnergySample {
    /// Since the agent began to count; only grows.
    pub accumulated: Reading<Microjoules>,
    /// The mean power of this period; `None` where the period's energy is not known.
    pub power: Option<Reading<Watts>>,
}

impl EnergySample {
    /// An energy counter whose two values have one source.
    pub fn new(source: Source, accumulated: Microjoules, power: Option<Watts>) -> Self {
        Self {
            accumulated: Reading::new(accumulated, source),
            power: power.map(|power| Reading::new(power, source)),
        }
    }
}

impl From<Sample> for proto::Sample {
    fn from(sample: Sample) -> Self {
        Self {
            number: sample.number,
            agent_run: sample.agent_run,
            uptime_us: micros(sample.uptime),
            period_us: micros(sample.period),
            cpu: sample.cpu.map(Into::into),
            machine_utilisation: sample.machine_utilisation.map(Ratio::get),
            zones: sample.zones.into_iter().map(Into::into).collect(),
            energy: sample.energy.map(Into::into),
            frequency: sample.frequency.map(|frequency| proto::Frequency {
                value_hz: frequency.value.get(),
                source: source_number(frequency.source),
            }),
            in_force: Some(sample.in_force.into()),
            lease: sample.lease.map(Into::into),
            troubles: sample.troubles,
            usable_cores: sample.usable.map(Cores::get),
            refused: sample.refused,
            oncall: sample.oncall.map(Into::into),
            work: sample.work.map(Into::into),
        }
    }
}

impl TryFrom<proto::Sample> for Sample {
    type Error = Invalid;
    fn try_from(message: proto::Sample) -> Result<Self, Invalid> {
        let frequency = |message: proto::Frequency| {
            let value = amount("frequency.value_hz", message.value_hz)?;
            Ok(Reading::new(
                Hertz::new(value),
                source("frequency.source", message.source)?,
            ))
        };
        Ok(Self {
            number: message.number,
            agent_run: message.agent_run,
            uptime: Duration::from_micros(message.uptime_us),
            period: Duration::from_micros(message.period_us),
            cpu: message.cpu.map(TryInto::try_into).transpose()?,
            machine_utilisation: message
                .machine_utilisation
                .map(|value| share("machine_utilisation", value))
                .transpose()?,
            zones: each("zones", message.zones, MAX_ZONES)?,
            energy: message.energy.map(TryInto::try_into).transpose()?,
            frequency: message.frequency.map(frequency).transpose()?,
            in_force: required("in_force", message.in_force)?,
            lease: message.lease.map(Into::into),
            troubles: at_most("troubles", message.troubles, MAX_TROUBLES)?,
            usable: optional_amount("usable_cores", message.usable_cores)?.map(Cores::new),
            refused: message.refused,
            oncall: message.oncall.map(TryInto::try_into).transpose()?,
            work: message.work.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<MachineWork> for proto::MachineWork {
    fn from(work: MachineWork) -> Self {
        let link = |link: LinkWork| proto::LinkWork {
            name: link.name,
            received_bytes: link.received,
            sent_bytes: link.sent,
            bits_per_s: link.bits_per_s,
        };
        Self {
            uptime_us: micros(work.at),
            busy_us: micros(work.busy),
            softirq_us: micros(work.softirq),
            links: work.links.into_iter().map(link).collect(),
        }
    }
}

impl TryFrom<proto::MachineWork> for MachineWork {
    type Error = Invalid;
    fn try_from(message: proto::MachineWork) -> Result<Self, Invalid> {
        let link = |link: proto::LinkWork| {
            Ok(LinkWork {
                name: link.name,
                received: link.received_bytes,
                sent: link.sent_bytes,
                bits_per_s: optional_amount("work.links.bits_per_s", link.bits_per_s)?,
            })
        };
        let links = at_most("work.links", message.links, MAX_LINKS)?;
        Ok(Self {
            at: Duration::from_micros(message.uptime_us),
            busy: Duration::from_micros(message.busy_us),
            softirq: Duration::from_micros(message.softirq_us),
            links: links.into_iter().map(link).collect::<Result<_, Invalid>>()?,
        })
    }
}

impl From<CpuSample> for proto::Cpu {
    fn from(cpu: CpuSample) -> Self {
        Self {
            usage_us: micros(cpu.usage),
            busy_cores: cpu.busy.get(),
            throttled_us: micros(cpu.throttled),
            throttled_share: cpu.throttled_share.get(),
        }
    }
}

impl TryFrom<proto::Cpu> for CpuSample {
    type Error = Invalid;
    fn try_from(message: proto::Cpu) -> Result<Self, Invalid> {
        Ok(Self {
            usage: Duration::from_micros(message.usage_us),
            busy: Cores::new(amount("cpu.busy_cores", message.busy_cores)?),
            throttled: Duration::from_micros(message.throttled_us),
            throttled_share: share("cpu.throttled_share", message.throttled_share)?,
        })
    }
}

impl From<ZoneSample> for proto::Zone {
    fn from(zone: ZoneSample) -> Self {
        Self {
            name: zone.name,
            in_total: zone.in_total,
            energy: Some(zone.energy.into()),
        }
    }
}

impl TryFrom<proto::Zone> for ZoneSample {
    type Error = Invalid;
    fn try_from(message: proto::Zone) -> Result<Self, Invalid> {
        Ok(Self {
            name: message.name,
            in_total: message.in_total,
            energy: required("zone.energy", message.energy)?,
        })
    }
}

impl From<EnergySample> for proto::Energy {
    fn from(energy: EnergySample) -> Self {
        Self {
            accumulated_uj: energy.accumulated.value.0,
            power_w: energy.power.map(|power| power.value.get()),
            source: source_number(energy.accumulated.source),
        }
    }
}

impl TryFrom<proto::Energy> for EnergySample {
    type Error = Invalid;
    fn try_from(message: proto::Energy) -> Result<Self, Invalid> {
        Ok(Self::new(
            source("energy.source", message.source)?,
            Microjoules(message.accumulated_uj),
            optional_amount("energy.power_w", message.power_w)?.map(Watts::new),
        ))
    }
}
