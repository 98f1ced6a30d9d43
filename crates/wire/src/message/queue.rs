//! The accept queue of a port, as an agent tells it.

use super::group::{self, CpuGroup, GroupCpu};
use crate::check::{Invalid, each, micros, millis, share};
use crate::proto::{self, QueueAtArrival, QueueConnections, QueueCounters, QueueLength};
use headroom_units::Ratio;
use std::net::SocketAddr;
use std::time::Duration;

/// The most listening sockets of one port that a sample names.
pub const MAX_QUEUE_LISTENERS: usize = 1024;
/// The largest count: ten million events a second take 28 years to it, and sums of those that are added stay exact.
pub const MAX_COUNT: u64 = 1 << 53;
/// The largest length or limit of a queue: the kernel has 32 bits.
const MAX_QUEUE: u64 = u32::MAX as u64;

/// A way to measure an accept queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueMethod {
    /// A program in the kernel that sees every arrival.
    Ebpf,
    /// The kernel's exported counters.
    Kernel,
    /// User-space tools.
    Tools,
    /// The SNMP agent of the node.
    Snmp,
}

impl From<QueueMethod> for i32 {
    fn from(method: QueueMethod) -> Self {
        let method = match method {
            QueueMethod::Ebpf => proto::QueueMethod::Ebpf,
            QueueMethod::Kernel => proto::QueueMethod::Kernel,
            QueueMethod::Tools => proto::QueueMethod::Tools,
            QueueMethod::Snmp => proto::QueueMethod::Snmp,
        };
        method.into()
    }
}

fn method(field: &str, value: i32) -> Result<QueueMethod, Invalid> {
    match proto::QueueMethod::try_from(value) {
        Ok(proto::QueueMethod::Ebpf) => Ok(QueueMethod::Ebpf),
        Ok(proto::QueueMethod::Kernel) => Ok(QueueMethod::Kernel),
        Ok(proto::QueueMethod::Tools) => Ok(QueueMethod::Tools),
        Ok(proto::QueueMethod::Snmp) => Ok(QueueMethod::Snmp),
        Ok(proto::QueueMethod::Unspecified) | Err(_) => {
            let expected = "1 eBPF, 2 the kernel's counters, 3 tools or 4 SNMP";
            Err(Invalid::new(field, value, expected))
        }
    }
}

/// Asks for the snapshots of one port's accept queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchQueue {
    /// The TCP port, in the agent's network namespace; not 0.
    pub port: u16,
    /// The methods to try, in order, each at most once; none is the agent's own order.
    pub methods: Vec<QueueMethod>,
    /// The time between two snapshots.
    pub period: Duration,
    /// The control group whose processor time each snapshot is to tell too.
    pub cpu_group: Option<CpuGroup>,
}

impl From<WatchQueue> for proto::WatchQueueRequest {
    fn from(watch: WatchQueue) -> Self {
        Self {
            port: watch.port.into(),
            methods: watch.methods.into_iter().map(i32::from).collect(),
            period_ms: millis(watch.period),
            cpu_group: watch
                .cpu_group
                .map_or_else(String::new, |group| group.as_str().to_owned()),
        }
    }
}

impl TryFrom<proto::WatchQueueRequest> for WatchQueue {
    type Error = Invalid;
    fn try_from(message: proto::WatchQueueRequest) -> Result<Self, Invalid> {
        let port = u16::try_from(message.port).ok().filter(|port| *port > 0);
        let port = port.ok_or_else(|| Invalid::new("port", message.port, "a TCP port, 1 to 65535"))?;
        let mut methods = Vec::new();
        for value in message.methods {
            let method = method("methods", value)?;
            // So that there are at most as many as there are methods.
            if methods.contains(&method) {
                return Err(Invalid::new("methods", value, "each method at most once"));
            }
            methods.push(method);
        }
        Ok(Self {
            port,
            methods,
            period: Duration::from_millis(message.period_ms),
            cpu_group: match message.cpu_group.is_empty() {
                true => None,
                false => Some(CpuGroup::new(message.cpu_group)?),
            },
        })
    }
}

/// What an agent saw of an accept queue at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSnapshot {
    /// Counts the snapshots of a stream from 1; a gap is as many as the receiver was too slow for.
    pub number: u64,
    /// As in [`super::Description`].
    pub agent_run: u64,
    /// When the queue was looked at, on a monotonic clock that began with the agent.
    pub uptime: Duration,
    /// How long the snapshot then waited at the agent before it was sent.
    pub age: Duration,
    /// What was seen.
    pub shown: QueueShown,
    /// The processor time of the control group that was asked for; `None` where none was.
    pub group: Option<GroupCpu>,
}

/// What was seen of an accept queue.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueShown {
    /// Somebody listens.
    Sample(Box<QueueSample>),
    /// Nobody listens.
    Nobody {
        /// The ports that somebody does listen on, in words.
        others: String,
    },
    /// It is not known.
    Unavailable {
        /// Why, and what helps.
        why: String,
    },
}

/// What a meter of an accept queue showed. What its method does not tell is `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSample {
    /// How it was measured.
    pub method: QueueMethod,
    /// The agent's number of the meter: another number means that counters began again.
    pub meter: u64,
    /// Between samples of one agent's run, one meter and one epoch the counters can be subtracted.
    pub epoch: u64,
    /// Of the port's listeners.
    pub port: QueueCounters,
    /// Of the server process, whichever ports it listens on.
    pub server: QueueCounters,
    /// Of all TCP listeners of the agent's network namespace.
    pub machine: QueueCounters,
    /// The queues of the port's listeners, summed.
    pub length: Option<QueueLength>,
    /// What arrivals saw.
    pub at_arrival: Option<QueueAtArrival>,
    /// The share of the machine's processor time that was used since the stream's snapshot before.
    pub cpu_busy: Option<Ratio>,
    /// The connections that the server has accepted; `None` where that is not told, or not now.
    pub connections: Option<QueueConnections>,
    /// The share of the last second for which the least busy of the event loops that serve the port ran or waited for a CPU, in
    /// thousandths, at most 1000; `None` where it is not known.
    pub loops_busy: Option<u32>,
    /// Each listening socket of the port. At most [`MAX_QUEUE_LISTENERS`].
    pub listeners: Vec<QueueListener>,
}

/// One listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueListener {
    /// Where it listens.
    pub address: SocketAddr,
    /// The kernel's number of the socket; 0 where the method does not tell it.
    pub cookie: u64,
    /// Its queue.
    pub length: QueueLength,
    /// Its drops since the socket was made, as the kernel has them: 32 bits, which wrap.
    pub drops: Option<u64>,
    /// Connections put in its queue since the meter was opened.
    pub enqueued: Option<u64>,
}

impl QueueCounters {
    /// Attempts to enter the queue: those that got in and those that were dropped.
    pub fn arrivals(&self) -> Option<u64> {
        Some(self.enqueued? + self.drops?)
    }
}

impl QueueListener {
    /// The connections that its queue has room for.
    pub fn room(&self) -> u64 {
        self.length.limit + 1
    }
}

pub(super) fn count(field: &str, value: u64) -> Result<(), Invalid> {
    match value <= MAX_COUNT {
        true => Ok(()),
        false => Err(Invalid::new(field, value, "a count of at most 2^53")),
    }
}

/// Counters that a message must have.
fn counters(field: &str, counters: Option<QueueCounters>) -> Result<QueueCounters, Invalid> {
    let found = counters.ok_or_else(|| Invalid::missing(field))?;
    for (field, value) in [
        ("enqueued", found.enqueued),
        ("accepts", found.accepts),
        ("drops", found.drops),
        ("requests", found.requests),
        ("attempt_fails", found.attempt_fails),
        ("unasked", found.unasked),
        ("answered", found.answered),
    ] {
        count(field, value.unwrap_or(0))?;
    }
    Ok(found)
}

fn length(length: QueueLength) -> Result<QueueLength, Invalid> {
    // Sums of all listeners' may be as many times longer than one.
    let most = MAX_QUEUE * MAX_QUEUE_LISTENERS as u64;
    for (field, value) in [("length.now", length.now), ("length.limit", length.limit)] {
        if value > most {
            return Err(Invalid::new(field, value, format!("at most {most} connections")));
        }
    }
    Ok(length)
}

fn connections(connections: QueueConnections) -> Result<QueueConnections, Invalid> {
    let QueueConnections {
        open,
        silent,
        slow,
        working,
        longest_ms,
        gone,
        cancelled,
        kept,
        elsewhere,
    } = connections;
    for (field, value) in [
        ("connections.open", open),
        ("connections.longest_ms", longest_ms),
        ("connections.gone", gone),
        ("connections.cancelled", cancelled),
        ("connections.kept", kept),
        ("connections.elsewhere", elsewhere),
    ] {
        count(field, value)?;
    }
    let mut left = open;
    for (field, value) in [
        ("connections.silent", silent),
        ("connections.slow", slow),
        ("connections.working", working),
    ] {
        let less = left.checked_sub(value);
        left = less.ok_or_else(|| {
            Invalid::new(
                field,
                value,
                format!("at most {left} of the {open} that are open"),
            )
        })?;
    }
    Ok(connections)
}

fn thousandths(loops_busy: u32) -> Result<u32, Invalid> {
    match loops_busy <= 1_000 {
        true => Ok(loops_busy),
        false => Err(Invalid::new("loops_busy", loops_busy, "at most 1000 thousandths")),
    }
}

fn at_arrival(at_arrival: QueueAtArrival) -> Result<QueueAtArrival, Invalid> {
    count("at_arrival.arrivals", at_arrival.arrivals)?;
    count("at_arrival.sum", at_arrival.sum)?;
    count("at_arrival.longest", at_arrival.longest)?;
    Ok(at_arrival)
}

impl From<QueueSnapshot> for proto::QueueSnapshot {
    fn from(snapshot: QueueSnapshot) -> Self {
        use proto::queue_snapshot::Queue;
        Self {
            number: snapshot.number,
            agent_run: snapshot.agent_run,
            uptime_us: micros(snapshot.uptime),
            age_us: micros(snapshot.age),
            queue: Some(match snapshot.shown {
                QueueShown::Sample(sample) => Queue::Sample((*sample).into()),
                QueueShown::Nobody { others } => Queue::Nobody(proto::NobodyListens { others }),
                QueueShown::Unavailable { why } => Queue::Unavailable(proto::Unavailable { why }),
            }),
            group: snapshot.group.map(group::to_wire),
        }
    }
}

/// The longest text that is taken of an agent, in characters; the rest is cut.
const MAX_WORDS: usize = 2048;

pub(super) fn words(text: String) -> String {
    match text.char_indices().nth(MAX_WORDS) {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    }
}

impl TryFrom<proto::QueueSnapshot> for QueueSnapshot {
    type Error = Invalid;
    fn try_from(message: proto::QueueSnapshot) -> Result<Self, Invalid> {
        use proto::queue_snapshot::Queue;
        Ok(Self {
            number: message.number,
            agent_run: message.agent_run,
            uptime: Duration::from_micros(message.uptime_us),
            age: Duration::from_micros(message.age_us),
            shown: match message.queue.ok_or_else(|| Invalid::missing("queue"))? {
                Queue::Sample(sample) => QueueShown::Sample(Box::new(sample.try_into()?)),
                Queue::Nobody(nobody) => QueueShown::Nobody {
                    others: words(nobody.others),
                },
                Queue::Unavailable(unavailable) => QueueShown::Unavailable {
                    why: words(unavailable.why),
                },
            },
            group: message.group.map(group::from_wire).transpose()?,
        })
    }
}

impl From<QueueSample> for proto::QueueSample {
    fn from(sample: QueueSample) -> Self {
        Self {
            method: sample.method.into(),
            meter: sample.meter,
            epoch: sample.epoch,
            port: Some(sample.port),
            server: Some(sample.server),
            machine: Some(sample.machine),
            length: sample.length,
            at_arrival: sample.at_arrival,
            cpu_busy: sample.cpu_busy.map(Ratio::get),
            connections: sample.connections,
            loops_busy: sample.loops_busy,
            listeners: sample.listeners.into_iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<proto::QueueSample> for QueueSample {
    type Error = Invalid;
    fn try_from(message: proto::QueueSample) -> Result<Self, Invalid> {
        Ok(Self {
            method: method("method", message.method)?,
            meter: message.meter,
            epoch: message.epoch,
            port: counters("port", message.port)?,
            server: counters("server", message.server)?,
            machine: counters("machine", message.machine)?,
            length: message.length.map(length).transpose()?,
            at_arrival: message.at_arrival.map(at_arrival).transpose()?,
            cpu_busy: message.cpu_busy.map(|busy| share("cpu_busy", busy)).transpose()?,
            connections: message.connections.map(connections).transpose()?,
            loops_busy: message.loops_busy.map(thousandths).transpose()?,
            listeners: each("listeners", message.listeners, MAX_QUEUE_LISTENERS)?,
        })
    }
}

impl From<QueueListener> for proto::QueueListener {
    fn from(listener: QueueListener) -> Self {
        Self {
            address: listener.address.to_string(),
            cookie: listener.cookie,
            length: Some(listener.length),
            drops: listener.drops,
            enqueued: listener.enqueued,
        }
    }
}

impl TryFrom<proto::QueueListener> for QueueListener {
    type Error = Invalid;
    fn try_from(message: proto::QueueListener) -> Result<Self, Invalid> {
        let address = message.address.parse();
        let missing = || Invalid::missing("listener.length");
        count("listener.drops", message.drops.unwrap_or(0))?;
        count("listener.enqueued", message.enqueued.unwrap_or(0))?;
        Ok(Self {
            address: address.map_err(|_| {
                let expected = "an IP address and a port";
                Invalid::new("listener.address", &message.address, expected)
            })?,
            cookie: message.cookie,
            length: message.length.ok_or_else(missing).and_then(length)?,
            drops: message.drops,
            enqueued: message.enqueued,
        })
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
