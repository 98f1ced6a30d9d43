//! Accept queues of other machines, watched through their agents.
//!
//! A task for each queue keeps the connection and leaves the newest sight in one place, from where it is taken. Whoever
//! takes waits for nobody, or for as long as it says.

use super::{BackOff, Network, Shared, told_to_end};
use headroom_node::queue::{QueueError, QueueMeter, QueueMethod, QueueSample, SightReader};
use headroom_wire::Address;
use headroom_wire::client::{CallError, Client, ClientOptions};
use headroom_wire::message::WatchQueue;
use std::io;
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
struct Known {
    /// The newest sight, until it is taken, and when it was taken there, as far as is known here.
    newest: Option<(Instant, Result<QueueSample, QueueError>)>,
    /// When the agent was heard last on this connection.
    heard: Option<Instant>,
    /// What the last sight was of, or why there is nothing.
    standing: Option<Result<Standing, String>>,
    /// Why the agent cannot be asked; `None` while it can.
    trouble: Option<String>,
}

/// The accept queue of a port of another machine.
#[derive(Debug)]
pub struct AgentQueue {
    options: WatchOptions,
    known: Arc<Shared<Known>>,
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
        let known: Vec<Arc<Shared<Known>>> = all.iter().map(|_| Arc::default()).collect();
        let tasks = all.iter().zip(&known).map(|(options, known)| {
            let task = Task {
                options: options.clone(),
                known: Arc::clone(known),
            };
            task.attend(stopping.clone())
        });
        let network = Arc::new(Network::start("agent-queues", tasks.collect(), stop)?);
        Ok(all
            .into_iter()
            .zip(known)
            .map(|(options, known)| Self {
                options,
                known,
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
        self.known.wait(deadline, |known| {
            known.standing.is_some() || known.trouble.is_some()
        });
        let known = self.known.lock();
        match (&known.standing, &known.newest) {
            (Some(Ok(standing)), _) => Ok(*standing),
            (_, Some((_, Err(QueueError::NobodyListens { port, others })))) => {
                Err(QueueError::NobodyListens {
                    port: *port,
                    others: others.clone(),
                })
            }
            (Some(Err(why)), _) => Err(QueueError::Elsewhere { why: why.clone() }),
            (None, _) => Err(self.silent(&known)),
        }
    }

    /// What is watched, and by which method, in words.
    pub fn place(&self) -> String {
        let WatchOptions { address, port, .. } = &self.options;
        let known = self.known.lock();
        match &known.standing {
            Some(Ok(Standing { method, .. })) => {
                format!("port {port} by {method}, through the agent at {address}")
            }
            Some(Err(why)) => format!("port {port}, through the agent at {address}: {why}"),
            None => format!("port {port}, through the agent at {address}, which does not answer"),
        }
    }

    /// Whether the agent can be asked at all, as far as is known.
    pub fn is_reached(&self) -> bool {
        self.known.lock().trouble.is_none()
    }

    /// Why there is nothing new.
    fn silent(&self, known: &Known) -> QueueError {
        let address = &self.options.address;
        let why = match (&known.trouble, known.heard) {
            (Some(trouble), _) => trouble.clone(),
            (None, Some(heard)) => format!(
                "the agent at {address} has told nothing of port {} for {:.1} s",
                self.options.port,
                heard.elapsed().as_secs_f64()
            ),
            (None, None) => format!(
                "the agent at {address} has told nothing of port {} yet",
                self.options.port
            ),
        };
        QueueError::Elsewhere { why }
    }

    fn stale_after(&self) -> Duration {
        (self.options.period * STALE_PERIODS).max(STALE_AT_LEAST)
    }
}

impl QueueMeter for AgentQueue {
    fn method(&self) -> QueueMethod {
        let told = match &self.known.lock().standing {
            Some(Ok(standing)) => Some(standing.method),
            _ => None,
        };
        let first = self.options.methods.first().copied();
        told.or(first).unwrap_or(QueueMethod::Ebpf)
    }

    /// The newest sight that was not taken yet.
    fn sample(&mut self) -> Result<QueueSample, QueueError> {
        if !self.options.patience.is_zero() {
            let deadline = Instant::now() + self.options.patience;
            self.known.wait(deadline, |known| {
                known.newest.is_some() || known.trouble.is_some()
            });
        }
        let mut known = self.known.lock();
        match known.newest.take() {
            Some((at, seen)) if at.elapsed() <= self.stale_after() => seen,
            _ => Err(self.silent(&known)),
        }
    }
}

/// What talks to one agent of one queue.
struct Task {
    options: WatchOptions,
    known: Arc<Shared<Known>>,
}

impl Task {
    async fn attend(self, mut stop: watch::Receiver<bool>) {
        let mut back_off = BackOff::new();
        let mut reader = SightReader::new(self.options.port);
        loop {
            let ended = tokio::select! {
                ended = self.listen(&mut reader, &mut back_off) => ended,
                () = told_to_end(&mut stop) => return,
            };
            let address = &self.options.address;
            let why = match ended {
                Ok(()) => format!("the agent at {address} has ended"),
                Err(error) => error.to_string(),
            };
            reader.interrupted();
            self.known.change(|known| {
                if known.trouble.is_none() {
                    tracing::warn!(port = self.options.port, "the accept queue is not seen: {why}");
                }
                *known = Known {
                    trouble: Some(why),
                    ..Known::default()
                };
            });
            tokio::select! {
                () = tokio::time::sleep(back_off.again()) => {}
                () = told_to_end(&mut stop) => return,
            }
        }
    }

    /// Takes sights until the connection or the agent ends.
    async fn listen(&self, reader: &mut SightReader, back_off: &mut BackOff) -> Result<(), CallError> {
        let options = &self.options;
        let client = Client::connect(&options.address, &options.client).await?;
        let methods = options.methods.iter();
        let watch = WatchQueue {
            port: options.port,
            methods: methods.filter_map(|method| method.through_agent()).collect(),
            period: options.period,
        };
        let mut sights = client.watch_queue(watch).await?;
        while let Some(sight) = sights.next().await? {
            // Not before: an agent that lets us in and refuses to watch is not asked again and again at once.
            *back_off = BackOff::new();
            let received = Instant::now();
            let at = received.checked_sub(sight.age).unwrap_or(received);
            let seen = reader.read(sight, received).map_err(|error| match error {
                QueueError::Elsewhere { why } => QueueError::Elsewhere {
                    why: format!("the agent at {}: {why}", options.address),
                },
                error => error,
            });
            self.known.change(|known| {
                if known.trouble.take().is_some() {
                    tracing::warn!(
                        port = options.port,
                        "the agent at {} is back: what happened meanwhile is not known",
                        options.address
                    );
                }
                known.standing = Some(match &seen {
                    Ok(sample) => Ok(Standing {
                        method: sample.method,
                        sockets: sample.listeners.len(),
                        places: sample.places(),
                    }),
                    Err(QueueError::NobodyListens { .. }) => Err("nobody listens there".to_owned()),
                    Err(error) => Err(error.to_string()),
                });
                known.heard = Some(received);
                known.newest = Some((at, seen));
            });
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
