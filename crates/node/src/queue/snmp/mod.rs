//! By an SNMP agent, such as Debian's snmpd (Section 6.1.4): `tcpPassiveOpens` and `tcpAttemptFails` (RFC 4022), and the
//! processor times of UCD-SNMP-MIB.
//!
//! SNMP tells nothing of one listener: neither its queue nor its drops. And the values are as old as the agent's cache,
//! five seconds with net-snmp: a period shorter than that may show nothing, and the next one twice as much.

mod ber;

use super::counter::{Busy, Ledger};
use super::diag::Diag;
use super::{Counters, QueueError, QueueMeter, QueueMethod, QueueSample};
use ber::{Name, Value};
use headroom_units::Ratio;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// An agent has this long, twice.
const PATIENCE: Duration = Duration::from_millis(500);
const TRIES: usize = 2;
/// An answer to ten objects is far shorter.
const MAX_ANSWER_BYTES: usize = 8192;

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
    socket: UdpSocket,
    options: SnmpOptions,
    request: u32,
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
        let own: SocketAddr = match options.agent {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(own)
            .and_then(|socket| {
                socket.connect(options.agent)?;
                socket.set_read_timeout(Some(PATIENCE))?;
                Ok(socket)
            })
            .map_err(|error| remote(options, format!("cannot be asked by SNMP: {error}")))?;
        let mut meter = Self {
            port,
            diag,
            socket,
            options: options.clone(),
            // Numbers of requests of another run on the same port of this machine are thus rarely those of this one.
            request: std::process::id(),
            machine: Ledger::new([32; 2]),
            ticks: Ledger::new([32; 8]),
            busy: Busy::default(),
            epoch: 0,
        };
        meter.sample()?;
        Ok(meter)
    }

    fn ask(&mut self) -> Result<Vec<Value>, QueueError> {
        let mut last = String::from("nobody answers");
        for _ in 0..TRIES {
            self.request = self.request.wrapping_add(1);
            match self.ask_once() {
                Ok(Some(Ok(values))) => return Ok(values),
                Ok(Some(Err(status))) => {
                    let what = format!("the agent refuses (SNMP error {status})");
                    return Err(remote(&self.options, what));
                }
                Ok(None) => last = "the agent's answers are none".into(),
                Err(error) => last = format!("nobody answers by SNMP ({error})"),
            }
        }
        Err(remote(&self.options, last))
    }

    fn ask_once(&self) -> std::io::Result<Option<Result<Vec<Value>, u8>>> {
        self.socket
            .send(&ber::request(&self.options.community, self.request, &NAMES))?;
        let until = Instant::now() + PATIENCE;
        let mut buffer = [0; MAX_ANSWER_BYTES];
        // A late answer to an earlier request is passed over.
        while Instant::now() < until {
            let length = self.socket.recv(&mut buffer)?;
            if let Some(answer) = ber::response(&buffer[..length], self.request, &NAMES) {
                return Ok(Some(answer));
            }
        }
        Ok(None)
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
        let values = self.ask()?;
        let at = Instant::now();
        let [passive_opens, attempt_fails, ticks @ ..] = counters(&values);
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
            listeners: Vec::new(),
        })
    }
}

/// The counters among the values, in the order of the names.
fn counters(values: &[Value]) -> [Option<u64>; NAMES.len()] {
    std::array::from_fn(|i| match values.get(i)? {
        Value::Counter32(number) | Value::Counter64(number) => Some(*number),
        Value::Number(_) | Value::Hidden => None,
    })
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
    use std::net::TcpListener;

    #[test]
    fn hidden_values_are_none_and_no_processor_times_no_share() {
        let values = [Value::Counter32(7), Value::Hidden, Value::Number(3)];
        assert_eq!(counters(&values)[..3], [Some(7), None, None]);
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
