//! By an SNMP agent, such as Debian's snmpd (Section 6.1.4): `tcpPassiveOpens` and `tcpAttemptFails` (RFC 4022), and the
//! processor times of UCD-SNMP-MIB.
//!
//! SNMP tells nothing of one listener: neither its queue nor its drops. And the values are as old as the agent's cache,
//! five seconds with net-snmp: a period shorter than that may show nothing, and the next one twice as much.

use super::counter::{Busy, Ledger};
use super::diag::Diag;
use super::{Counters, QueueError, QueueMeter, QueueMethod, QueueSample};
use headroom_units::Ratio;
use snmp2::{Oid, SyncSession, Value, Varbinds};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// An agent has this long, twice.
const PATIENCE: Duration = Duration::from_millis(500);
const TRIES: usize = 2;

/// An object's name: numbers of a path.
type Name = &'static [u64];

const PASSIVE_OPENS: Name = &[1, 3, 6, 1, 2, 1, 6, 6, 0];
const ATTEMPT_FAILS: Name = &[1, 3, 6, 1, 2, 1, 6, 7, 0];
/// Ticks of all processors since the machine's start (UCD-SNMP-MIB), as net-snmp 5.9 on Linux fills them: each without
/// the others. ssCpuRawIdle, ssCpuRawWait.
const IDLE: Name = &[1, 3, 6, 1, 4, 1, 2021, 11, 53, 0];
const WAIT: Name = &[1, 3, 6, 1, 4, 1, 2021, 11, 54, 0];
/// ssCpuRawUser, ssCpuRawNice, ssCpuRawSystem, ssCpuRawInterrupt, ssCpuRawSoftIRQ, ssCpuRawSteal.
const USER: Name = &[1, 3, 6, 1, 4, 1, 2021, 11, 50, 0];
const NICE: Name = &[1, 3, 6, 1, 4, 1, 2021, 11, 51, 0];
const SYSTEM: Name = &[1, 3, 6, 1, 4, 1, 2021, 11, 52, 0];
const INTERRUPT: Name = &[1, 3, 6, 1, 4, 1, 2021, 11, 56, 0];
const SOFT_INTERRUPT: Name = &[1, 3, 6, 1, 4, 1, 2021, 11, 61, 0];
const STEAL: Name = &[1, 3, 6, 1, 4, 1, 2021, 11, 64, 0];
const NAMES: [Name; 10] = [
    PASSIVE_OPENS,
    ATTEMPT_FAILS,
    IDLE,
    WAIT,
    USER,
    NICE,
    SYSTEM,
    INTERRUPT,
    SOFT_INTERRUPT,
    STEAL,
];

/// Whom to ask.
#[derive(Clone, PartialEq, Eq)]
pub struct SnmpOptions {
    /// The agent.
    pub agent: SocketAddr,
    /// The community, which SNMP version 2c has in the place of a password.
    pub community: String,
}

impl fmt::Debug for SnmpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // All but the community, which is a secret.
        f.debug_struct("SnmpOptions")
            .field("agent", &self.agent)
            .finish_non_exhaustive()
    }
}

impl Default for SnmpOptions {
    /// This machine's agent, as the community `public`.
    fn default() -> Self {
        Self {
            agent: (Ipv4Addr::LOCALHOST, 161).into(),
            community: "public".into(),
        }
    }
}

/// Measures by SNMP version 2c.
#[derive(Debug)]
pub struct SnmpQueueMeter {
    port: u16,
    /// To see that somebody listens, where the agent is this machine's.
    diag: Option<Diag>,
    options: SnmpOptions,
    names: [Oid<'static>; NAMES.len()],
    /// The number of the last request.
    request: i32,
    /// Passive opens, failed attempts.
    machine: Ledger<2>,
    /// Idle, waiting, and six kinds of used time.
    ticks: Ledger<8>,
    busy: Busy,
    epoch: u64,
}

impl SnmpQueueMeter {
    /// Opens it: on a port that somebody listens on, where the agent is this machine's own.
    ///
    /// # Errors
    /// [`QueueError::NobodyListens`]; [`QueueError::Remote`] where the agent does not answer or refuses;
    /// [`QueueError::Missing`] where it hides the counters from the community.
    pub fn open(port: u16, options: &SnmpOptions) -> Result<Self, QueueError> {
        let diag = match options.agent.ip().is_loopback() {
            true => Some(Diag::open()?),
            false => None,
        };
        let names = NAMES.map(|name| Oid::from(name).expect("the names above are well formed"));
        let mut meter = Self {
            port,
            diag,
            options: options.clone(),
            names,
            request: 0,
            machine: Ledger::new([32; 2]),
            ticks: Ledger::new([32; 8]),
            busy: Busy::default(),
            epoch: 0,
        };
        meter.sample()?;
        Ok(meter)
    }

    fn ask(&mut self) -> Result<[Option<u64>; NAMES.len()], QueueError> {
        let names: [&Oid<'_>; NAMES.len()] = self.names.each_ref();
        let SnmpOptions { agent, community } = &self.options;
        let mut last = String::from("nobody answers");
        for _ in 0..TRIES {
            self.request = self.request.wrapping_add(1);
            // A socket of its own: a late answer to an earlier request reaches no other.
            let mut session = SyncSession::new_v2c(agent, community.as_bytes(), Some(PATIENCE), self.request)
                .map_err(|error| remote(&self.options, format!("cannot be asked by SNMP: {error}")))?;
            match session.get_many(&names) {
                Ok(answer) if answer.error_status != 0 => {
                    let what = format!("the agent refuses (SNMP error {})", answer.error_status);
                    return Err(remote(&self.options, what));
                }
                Ok(answer) => match counters(answer.varbinds, &names) {
                    Some(values) => return Ok(values),
                    None => last = "the agent answers with other objects than those asked for".into(),
                },
                Err(error) => last = format!("nobody answers by SNMP ({error})"),
            }
        }
        Err(remote(&self.options, last))
    }
}

fn remote(options: &SnmpOptions, what: String) -> QueueError {
    QueueError::Remote {
        address: format!("SNMP agent {}", options.agent),
        what,
        remedy: format!(
            "start one (apt install snmpd) that lets in the community \"{}\", or name another agent",
            options.community
        ),
    }
}

impl QueueMeter for SnmpQueueMeter {
    fn method(&self) -> QueueMethod {
        QueueMethod::Snmp
    }

    fn sample(&mut self) -> Result<QueueSample, QueueError> {
        if let Some(diag) = &mut self.diag {
            diag.listeners(self.port)?;
        }
        let [passive_opens, attempt_fails, ticks @ ..] = self.ask()?;
        let at = Instant::now();
        if passive_opens.is_none() {
            return Err(QueueError::Missing {
                what: format!("SNMP agent {}", self.options.agent),
                wanted: "tcpPassiveOpens (1.3.6.1.2.1.6.6.0)",
                remedy: format!(
                    "Debian's snmpd.conf shows the community \"{0}\" little: add \"rocommunity {0} localhost\" to it \
                     without a view (-V), and restart snmpd",
                    self.options.community
                ),
            });
        }
        let (machine, machine_steady) = self.machine.advance(at, [passive_opens, attempt_fails]);
        let (ticks, _) = self.ticks.advance(at, read_yet(ticks));
        if !machine_steady {
            self.epoch += 1;
        }
        Ok(QueueSample {
            method: QueueMethod::Snmp,
            at,
            epoch: self.epoch,
            port: Counters::default(),
            server: Counters::default(),
            machine: Counters {
                enqueued: machine[0],
                attempt_fails: machine[1],
                ..Counters::default()
            },
            length: None,
            seen: None,
            cpu_busy: busy(&mut self.busy, ticks),
            connections: None,
            loops_busy: None,
            listeners: Vec::new(),
        })
    }
}

/// The counters in an answer, in the order of the names; nothing where the answer is not of these names. A value that is no
/// counter, or that the agent hides from the community, is none.
fn counters(mut answer: Varbinds<'_>, names: &[&Oid<'_>; NAMES.len()]) -> Option<[Option<u64>; NAMES.len()]> {
    let mut values = [None; NAMES.len()];
    for (value, wanted) in values.iter_mut().zip(names) {
        let (name, found) = answer.next()?;
        if name != **wanted {
            return None;
        }
        *value = match found {
            Value::Counter32(number) | Value::Unsigned32(number) => Some(number.into()),
            Value::Counter64(number) => Some(number),
            _ => None,
        };
    }
    Some(values)
}

/// Times that are all 0 were not read yet: net-snmp shows them so in its first seconds.
fn read_yet(ticks: [Option<u64>; 8]) -> [Option<u64>; 8] {
    match ticks.iter().flatten().any(|&ticks| ticks > 0) {
        true => ticks,
        false => [None; 8],
    }
}

/// The used share: nothing where the agent tells no processor times, or has not read new ones.
fn busy(busy: &mut Busy, ticks: [Option<u64>; 8]) -> Option<Ratio> {
    let [idle, wait, user, nice, system, rest @ ..] = ticks;
    let used = user? + nice? + system? + rest.into_iter().flatten().sum::<u64>();
    busy.advance(used, used + idle? + wait.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use snmp2::Pdu;
    use std::net::{TcpListener, UdpSocket};

    /// An answer's bindings: each a sequence of a name and a value, which is a tag and its content.
    fn bindings(names: &[&Oid<'_>], value: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
        let element = |tag: u8, content: &[u8]| [&[tag, content.len() as u8], content].concat();
        let binding = |(at, name): (usize, &&Oid<'_>)| {
            element(0x30, &[element(0x06, name.as_bytes()), value(at)].concat())
        };
        names.iter().enumerate().flat_map(binding).collect()
    }

    #[test]
    fn counters_are_read_in_order_and_hidden_ones_and_other_kinds_are_none() {
        let names = NAMES.map(|name| Oid::from(name).unwrap());
        let names = names.each_ref();
        let bytes = bindings(&names, |at| match at {
            0 => vec![0x41, 5, 0, 0xFF, 0xFF, 0xFF, 0xFE],
            1 => vec![0x80, 0],
            2 => vec![0x46, 9, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
            3 => vec![0x02, 1, 7],
            _ => vec![0x41, 1, 9],
        });
        let values = counters(Varbinds::from_bytes(&bytes), &names).unwrap();
        assert_eq!(
            values[..5],
            [Some(0xFFFF_FFFE), None, Some(u64::MAX), None, Some(9)]
        );
        let mut other = names;
        other.swap(0, 1);
        assert_eq!(
            counters(Varbinds::from_bytes(&bytes), &other),
            None,
            "another order"
        );
        assert_eq!(
            counters(Varbinds::from_bytes(&bytes[..bytes.len() - 4]), &names),
            None,
            "torn"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(answer) = Pdu::from_bytes(&bytes) {
                let names = NAMES.map(|name| Oid::from(name).unwrap());
                counters(answer.varbinds, &names.each_ref());
            }
        }
    }

    #[test]
    fn processor_times_that_are_none_or_old_have_no_share() {
        let mut share = Busy::default();
        assert_eq!(busy(&mut share, [None; 8]), None);
        assert_eq!(read_yet([Some(0); 8]), [None; 8]);
        let mut ticks = [Some(0); 8];
        (ticks[0], ticks[2]) = (Some(10), Some(10));
        assert_eq!(read_yet(ticks), ticks);
        assert_eq!(busy(&mut share, ticks), None, "the first");
        (ticks[0], ticks[2]) = (Some(40), Some(20));
        assert_eq!(busy(&mut share, ticks), Some(Ratio::new(0.25)));
        assert_eq!(busy(&mut share, ticks), None, "from the agent's cache");
    }

    #[test]
    fn the_community_is_in_no_debug_output() {
        let options = SnmpOptions {
            community: "se-cret".into(),
            ..SnmpOptions::default()
        };
        let shown = format!("{options:?}");
        assert!(
            shown.contains("127.0.0.1:161") && !shown.contains("se-cret"),
            "{shown}"
        );
    }

    #[test]
    fn an_agent_that_is_not_there_is_named_with_the_remedy() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // A UDP port that was free a moment ago.
        let agent = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let options = SnmpOptions {
            agent,
            ..SnmpOptions::default()
        };
        let error = SnmpQueueMeter::open(listener.local_addr().unwrap().port(), &options).unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains(&agent.to_string()) && message.contains("apt install snmpd"),
            "{message}"
        );
    }
}
