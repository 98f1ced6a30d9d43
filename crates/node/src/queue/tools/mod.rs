//! By the tools that administrators use (Section 6.1.3): vmstat for the CPU, ss for a listener's queue, netstat for the
//! counters. Each sample starts two processes, and vmstat speaks once a second: this is the baseline, not the way.

mod parse;
mod run;

pub(crate) use run::TOOLS;

use super::counter::Ledger;
use super::kernel::sum;
use super::{Counters, QueueError, QueueMeter, QueueMethod, QueueSample};
use headroom_units::Ratio;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What vmstat said longer ago is not said of now.
const STALE_AFTER: Duration = Duration::from_secs(3);
/// A line of vmstat is far shorter.
const MAX_LINE_BYTES: u64 = 4096;

/// Measures by vmstat, ss and netstat.
#[derive(Debug)]
pub struct ToolsQueueMeter {
    port: u16,
    vmstat: Vmstat,
    /// Passive opens, failed attempts, drops.
    machine: Ledger<3>,
    /// The listeners' addresses at the sample before.
    last: Option<Vec<String>>,
    epoch: u64,
}

impl ToolsQueueMeter {
    /// Opens it on a port that somebody listens on.
    ///
    /// # Errors
    /// [`QueueError::NobodyListens`]; [`QueueError::Tool`] where a tool is not installed or fails, with its package.
    pub fn open(port: u16) -> Result<Self, QueueError> {
        let mut meter = Self {
            port,
            vmstat: Vmstat::start()?,
            machine: Ledger::new([usize::BITS; 3]),
            last: None,
            epoch: 0,
        };
        meter.sample()?;
        Ok(meter)
    }
}

impl QueueMeter for ToolsQueueMeter {
    fn method(&self) -> QueueMethod {
        QueueMethod::Tools
    }

    fn sample(&mut self) -> Result<QueueSample, QueueError> {
        let filter = format!("sport = :{}", self.port);
        let sockets = run::output(
            "ss",
            &["--listening", "--tcp", "--numeric", "--no-header", &filter],
        )?;
        let mut listeners = parse::listeners(&sockets, self.port);
        if listeners.is_empty() {
            self.last = Some(Vec::new());
            return Err(QueueError::NobodyListens {
                port: self.port,
                others: "see them with: ss -ltn".into(),
            });
        }
        if listeners.len() > super::MAX_LISTENERS {
            return Err(QueueError::TooManyListeners { port: self.port });
        }
        listeners.sort_by_key(|listener| listener.address);
        let counters = parse::netstat(&run::output("netstat", &["--statistics", "--tcp"])?);
        if counters.passive_opens.is_none() {
            return Err(QueueError::Missing {
                what: "netstat --statistics --tcp".into(),
                wanted: "passive connection openings",
                remedy: "use netstat of Debian's net-tools".into(),
            });
        }
        let at = Instant::now();
        let (machine, steady) = self.machine.advance(
            at,
            [counters.passive_opens, counters.attempt_fails, counters.drops],
        );
        let addresses: Vec<String> = listeners
            .iter()
            .map(|listener| listener.address.to_string())
            .collect();
        let same = self
            .last
            .replace(addresses)
            .is_none_or(|last| self.last.as_ref() == Some(&last));
        if !(steady && same) {
            self.epoch += 1;
        }
        Ok(QueueSample {
            method: QueueMethod::Tools,
            at,
            epoch: self.epoch,
            port: Counters::default(),
            server: Counters::default(),
            machine: Counters {
                enqueued: machine[0],
                attempt_fails: machine[1],
                drops: machine[2],
                ..Counters::default()
            },
            length: Some(sum(&listeners)),
            seen: None,
            cpu_busy: self.vmstat.busy(),
            connections: None,
            loops_busy: None,
            listeners,
        })
    }
}

/// `vmstat 1`, which runs as long as this lives.
#[derive(Debug)]
struct Vmstat {
    child: Child,
    reader: Option<JoinHandle<()>>,
    last: Arc<Mutex<Option<(Instant, Ratio)>>>,
}

impl Vmstat {
    fn start() -> Result<Self, QueueError> {
        let fail = |what: String| QueueError::Tool {
            tool: "vmstat",
            what,
            remedy: "see what `vmstat -n 1` says".into(),
        };
        let mut child = run::command("vmstat")?
            .args(["-n", "1"])
            .spawn()
            .map_err(|error| fail(format!("cannot be run: {error}")))?;
        let last = Arc::new(Mutex::new(None));
        let pipe = child.stdout.take();
        let reader = pipe.map(|pipe| {
            let last = last.clone();
            thread::spawn(move || follow(pipe, &last))
        });
        Ok(Self { child, reader, last })
    }

    /// The used share of its last whole second; nothing before the first, or where it speaks no more.
    fn busy(&self) -> Option<Ratio> {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.filter(|(at, _)| at.elapsed() < STALE_AFTER)
            .map(|(_, busy)| busy)
    }
}

impl Drop for Vmstat {
    fn drop(&mut self) {
        // It may have ended by itself: either way it is gone afterwards, and its end ends the reader.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// Reads until vmstat ends. Its first line of numbers is the average since the machine's start.
fn follow(pipe: ChildStdout, last: &Mutex<Option<(Instant, Ratio)>>) {
    let mut reader = BufReader::new(pipe);
    let mut columns = None;
    let mut numbers = 0;
    let mut line = String::new();
    loop {
        line.clear();
        match reader.by_ref().take(MAX_LINE_BYTES).read_line(&mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if let Some(found) = parse::Columns::find(&line) {
            columns = Some(found);
        } else if let Some(busy) = columns.and_then(|columns| columns.busy(&line)) {
            numbers += 1;
            if numbers > 1 {
                *last.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), busy));
            }
        }
    }
}
