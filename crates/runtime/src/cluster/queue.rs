//! Accept queues of other machines, watched through their agents.
//!
//! A task for each queue keeps the connection and leaves the newest sight in one place, from where it is taken. Whoever
//! takes waits for nobody, or for as long as it says.

use super::{BackOff, Network, Shared, stop_requested};
use headroom_node::cpu::GroupUsage;
use headroom_node::queue::{QueueError, QueueMeter, QueueMethod, QueueSample, SnapshotReader};
use headroom_units::Ratio;
use headroom_wire::Address;
use headroom_wire::Refusal;
use headroom_wire::client::{CallError, Client, ClientOptions};
use headroom_wire::message::{CpuGroup, WatchQueue};
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// A sight is too old to be of use after so many of the watch's periods, and not before [`STALE_AT_LEAST`].
const STALE_PERIODS: u32 = 5;
const STALE_AT_LEAST: Duration = Duration::from_secs(1);

/// Which queue, through which agent.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Where the agent is.
    pub address: Address,
    /// How it is reached.
    pub client: ClientOptions,
    /// The port, on the agent's machine.
    pub port: u16,
    /// How it is measured: the first of these that the agent can.
    pub methods: Vec<QueueMethod>,
    /// The time between two sights.
    pub period: Duration,
    /// For how long taking a sample waits for one that is new.
    pub patience: Duration,
    /// The control group there whose CPU time is reported beside the queue.
    pub cpu_group: Option<CpuGroup>,
}

/// What an agent measures of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// By which method.
    pub method: QueueMethod,
    /// How many sockets listen on the port.
    pub sockets: usize,
    /// The places of their queues together, where the method tells.
    pub places: Option<u64>,
}

/// What is known of a queue.
#[derive(Debug, Default)]
struct QueueState {
    /// The newest sight, until it is taken.
    newest: Option<ReceivedSnapshot>,
    /// What the sample that was taken last reported of the control group, until that is taken.
    group: Option<GroupRead>,
    /// Nobody listens, as far as the last sample reported, and on which ports somebody does.
    nobody: Option<String>,
    /// The processors of the agent's machine.
    processors: Option<NonZeroU32>,
    /// When the agent was heard last on this connection.
    heard: Option<Instant>,
    /// What the last sight was of, or why there is nothing.
    standing: Option<Result<Standing, String>>,
    /// Why the agent cannot be asked; `None` while it can.
    trouble: Option<String>,
    /// The trouble is that the agent does not, or cannot, tell the control group that is asked for.
    denied: bool,
}

/// A sight, and when it was taken there, as far as is known here.
#[derive(Debug)]
struct ReceivedSnapshot {
    at: Instant,
    seen: Result<QueueSample, QueueError>,
    group: Option<GroupRead>,
}

/// Counters of a control group and of which run of the agent they are, or why there are none.
type GroupRead = Result<(u64, GroupUsage), String>;

/// The accept queue of a port of another machine. Its clones take from the same sights.
#[derive(Clone, Debug)]
pub struct AgentQueue {
    options: WatchOptions,
    state: Arc<Shared<QueueState>>,
    /// The last of the queues that are watched together ends the tasks.
    _network: Arc<Network>,
}

impl AgentQueue {
    /// Begins to watch, all on one thread.
    ///
    /// # Errors
    /// Where the thread cannot be started.
    pub fn watch(all: Vec<WatchOptions>) -> io::Result<Vec<Self>> {
        let (stop, stopping) = watch::channel(false);
        let state: Vec<Arc<Shared<QueueState>>> = all.iter().map(|_| Arc::default()).collect();
        let tasks = all.iter().zip(&state).map(|(options, state)| {
            let task = Task {
                options: options.clone(),
                state: Arc::clone(state),
            };
            task.attend(stopping.clone())
        });
        let network = Arc::new(Network::start("agent-queues", tasks.collect(), stop)?);
        Ok(all
            .into_iter()
            .zip(state)
            .map(|(options, state)| Self {
                options,
                state,
                _network: Arc::clone(&network),
            })
            .collect())
    }

    /// Waits until the agent has said something of the queue, or why it cannot be asked is known, at most so long; what it
    /// said is still there to be taken.
    ///
    /// # Errors
    /// Why nothing is known, in words; [`QueueError::NobodyListens`] as it is.
    pub fn first_word(&self, patience: Duration) -> Result<Standing, QueueError> {
        let deadline = Instant::now() + patience;
        self.state.wait(deadline, |state| {
            state.standing.is_some() || state.trouble.is_some()
        });
        let state = self.state.lock();
        match (&state.standing, &state.nobody) {
            (Some(Ok(standing)), _) => Ok(*standing),
            (_, Some(others)) => Err(QueueError::NobodyListens {
                port: self.options.port,
                others: others.clone(),
            }),
            (Some(Err(why)), _) => Err(QueueError::Elsewhere { why: why.clone() }),
            (None, _) => Err(self.silent(&state)),
        }
    }

    /// Why the control group that is asked for cannot be read, as the newest sample reported; nothing where it can, or where
    /// none is asked for.
    pub fn group_trouble(&self) -> Option<String> {
        let state = self.state.lock();
        state.newest.as_ref()?.group.as_ref()?.as_ref().err().cloned()
    }

    /// Whether the agent does not, or cannot, tell the control group that is asked for.
    pub fn is_denied(&self) -> bool {
        self.state.lock().denied
    }

    /// The CPU utilisation of the control group that is asked for, sample by sample.
    pub fn group(&self) -> AgentGroup {
        AgentGroup {
            state: Arc::clone(&self.state),
            before: None,
        }
    }

    /// The processors of the agent's machine, once they are known.
    pub fn processors(&self) -> Option<NonZeroU32> {
        self.state.lock().processors
    }

    /// What is watched, and by which method, in words.
    pub fn place(&self) -> String {
        let WatchOptions { address, port, .. } = &self.options;
        let state = self.state.lock();
        match &state.standing {
            Some(Ok(Standing { method, .. })) => {
                format!("port {port} by {method}, through the agent at {address}")
            }
            Some(Err(why)) => format!("port {port}, through the agent at {address}: {why}"),
            None => format!("port {port}, through the agent at {address}, which does not answer"),
        }
    }

    /// Whether the agent can be asked at all, as far as is known.
    pub fn is_reached(&self) -> bool {
        self.state.lock().trouble.is_none()
    }

    /// Why there is nothing new.
    fn silent(&self, state: &QueueState) -> QueueError {
        let address = &self.options.address;
        let why = match (&state.trouble, state.heard) {
            (Some(trouble), _) => trouble.clone(),
            (None, Some(heard)) => format!(
                "the agent at {address} has reported nothing of port {} for {:.1} s",
                self.options.port,
                heard.elapsed().as_secs_f64()
            ),
            (None, None) => format!(
                "the agent at {address} has reported nothing of port {} yet",
                self.options.port
            ),
        };
        QueueError::Elsewhere { why }
    }

    /// Waits until there is a sight that was not taken yet, for as long as was said.
    fn wait(&self) {
        if !self.options.patience.is_zero() {
            let deadline = Instant::now() + self.options.patience;
            self.state.wait(deadline, |state| {
                state.newest.is_some() || state.trouble.is_some()
            });
        }
    }

    /// That nobody listens, where the last sample reported that.
    ///
    /// # Errors
    /// [`QueueError::NobodyListens`]; while the agent is silent it is not known.
    pub fn listening(&self) -> Result<(), QueueError> {
        match &self.state.lock().nobody {
            Some(others) => Err(QueueError::NobodyListens {
                port: self.options.port,
                others: others.clone(),
            }),
            None => Ok(()),
        }
    }

    fn stale_after(&self) -> Duration {
        (self.options.period * STALE_PERIODS).max(STALE_AT_LEAST)
    }
}

impl QueueMeter for AgentQueue {
    fn method(&self) -> QueueMethod {
        let reported = match &self.state.lock().standing {
            Some(Ok(standing)) => Some(standing.method),
            _ => None,
        };
        let first = self.options.methods.first().copied();
        reported.or(first).unwrap_or(QueueMethod::Ebpf)
    }

    /// The newest sight that was not taken yet.
    fn sample(&mut self) -> Result<QueueSample, QueueError> {
        self.wait();
        let mut state = self.state.lock();
        match state.newest.take() {
            Some(ReceivedSnapshot { at, seen, group }) if at.elapsed() <= self.stale_after() => {
                state.group = group;
                seen
            }
            _ => {
                state.group = None;
                Err(self.silent(&state))
            }
        }
    }
}

/// The CPU utilisation of a control group of another machine, reported beside its accept queue.
#[derive(Debug)]
pub struct AgentGroup {
    state: Arc<Shared<QueueState>>,
    before: Option<(u64, GroupUsage)>,
}

impl AgentGroup {
    /// The share that the group used of what it could have between the queue's last two samples; nothing where its
    /// counters are not comparable. To be asked after each sample.
    ///
    /// # Errors
    /// Why the agent could not read the group, or that it reported nothing of it.
    pub fn busy(&mut self) -> Result<Option<Ratio>, String> {
        let reported = self.state.lock().group.take();
        let (run, usage) = match reported {
            Some(Ok(read)) => read,
            // No sample was taken: the next one's share is over this time too, as its counts are.
            None => return Err("the agent reported nothing of the control group".to_owned()),
            Some(Err(why)) => {
                self.before = None;
                return Err(why);
            }
        };
        let before = self.before.replace((run, usage));
        let comparable = before.filter(|(of, _)| *of == run);
        Ok(comparable.and_then(|(_, before)| usage.share_since(&before)))
    }
}

/// What talks to one agent of one queue.
struct Task {
    options: WatchOptions,
    state: Arc<Shared<QueueState>>,
}

impl Task {
    async fn attend(self, mut stop: watch::Receiver<bool>) {
        let mut back_off = BackOff::new();
        let mut reader = SnapshotReader::new(self.options.port);
        loop {
            let ended = tokio::select! {
                ended = self.listen(&mut reader, &mut back_off) => ended,
                () = stop_requested(&mut stop) => return,
            };
            let address = &self.options.address;
            let denied = match &ended {
                Err(CallError::Refused(Refusal::NotAllowed { field, .. })) => field == "cpu_group",
                ended => matches!(ended, Err(CallError::Outdated { .. })),
            };
            let why = match ended {
                Ok(()) => format!("the agent at {address} has ended"),
                Err(error) => error.to_string(),
            };
            reader.interrupted();
            self.state.change(|state| {
                if state.trouble.is_none() {
                    tracing::warn!(port = self.options.port, "the accept queue is not sampled: {why}");
                }
                *state = QueueState {
                    trouble: Some(why),
                    denied,
                    processors: state.processors,
                    ..QueueState::default()
                };
            });
            tokio::select! {
                () = tokio::time::sleep(back_off.again()) => {}
                () = stop_requested(&mut stop) => return,
            }
        }
    }

    /// Takes sights until the connection or the agent ends.
    async fn listen(&self, reader: &mut SnapshotReader, back_off: &mut BackOff) -> Result<(), CallError> {
        let options = &self.options;
        let client = Client::connect(&options.address, &options.client).await?;
        let methods = options.methods.iter();
        let watch = WatchQueue {
            port: options.port,
            methods: methods.filter_map(|method| method.through_agent()).collect(),
            period: options.period,
            cpu_group: options.cpu_group.clone(),
        };
        let processors = NonZeroU32::new(client.agent().node.cores_online);
        self.state.change(|state| state.processors = processors);
        let mut snapshots = client.watch_queue(watch).await?;
        while let Some(snapshot) = snapshots.next().await? {
            // Not before: an agent that lets us in and refuses to watch is not asked again and again at once.
            *back_off = BackOff::new();
            let received = Instant::now();
            let at = received.checked_sub(snapshot.age).unwrap_or(received);
            let run = snapshot.agent_run;
            let group = snapshot
                .group
                .clone()
                .map(|read| read.map(|counters| (run, counters)));
            let seen = reader.read(snapshot, received).map_err(|error| match error {
                QueueError::Elsewhere { why } => QueueError::Elsewhere {
                    why: format!("the agent at {}: {why}", options.address),
                },
                error => error,
            });
            self.state.change(|state| {
                if state.trouble.take().is_some() {
                    tracing::warn!(
                        port = options.port,
                        "the agent at {} is back: what happened meanwhile was not recorded",
                        options.address
                    );
                }
                state.denied = false;
                state.nobody = match &seen {
                    Err(QueueError::NobodyListens { others, .. }) => Some(others.clone()),
                    _ => None,
                };
                state.standing = Some(match &seen {
                    Ok(sample) => Ok(Standing {
                        method: sample.method,
                        sockets: sample.listeners.len(),
                        places: sample.places(),
                    }),
                    Err(QueueError::NobodyListens { .. }) => Err("nobody listens there".to_owned()),
                    Err(error) => Err(error.to_string()),
                });
                state.heard = Some(received);
                state.newest = Some(ReceivedSnapshot { at, seen, group });
            });
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
