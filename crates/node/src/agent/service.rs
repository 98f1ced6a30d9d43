//! The contract, answered by the machine's thread.

use super::LeaseLimits;
use super::ObserveLimits;
use super::keeper::Command;
use super::mailbox::Receiver;
use super::queues::{Queues, Timed};
use headroom_wire::message::{Apply, CpuGroup, Holder, Sample, WatchQueue};
use headroom_wire::proto;
use headroom_wire::proto::agent_server::Agent;
use headroom_wire::server::Peer;
use headroom_wire::tonic::codegen::tokio_stream::Stream;
use headroom_wire::tonic::{self, Request, Response, Status};
use headroom_wire::{Invalid, Refusal, Server};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, oneshot};

/// Translates between messages and the machine's thread; it decides nothing.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) commands: SyncSender<Command>,
    pub(super) queues: Queues,
    pub(super) waiting: usize,
    /// Places for control groups that are looked up, as many as requests may wait.
    pub(super) looked_up: Arc<Semaphore>,
    pub(super) observe: ObserveLimits,
    pub(super) lease: LeaseLimits,
}

impl Service {
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Refusal> {
        let (answer, answered) = oneshot::channel();
        self.commands
            .try_send(command(answer))
            .map_err(|error| match error {
                TrySendError::Full(_) => Refusal::Busy {
                    server: Server::Agent,
                    what: "waiting requests".into(),
                    limit: self.waiting as u64,
                },
                TrySendError::Disconnected(_) => Refusal::Ending(Server::Agent),
            })?;
        answered.await.map_err(|_| Refusal::Ending(Server::Agent))
    }

    /// Whether the processor time of a control group may be asked for.
    async fn admit(&self, group: CpuGroup) -> Result<(), Refusal> {
        // The look-up holds it to its end: one whose caller hung up waits for a thread all the same.
        let place = Arc::clone(&self.looked_up)
            .try_acquire_owned()
            .map_err(|_| Refusal::Busy {
                server: Server::Agent,
                what: "control groups that are looked up".into(),
                limit: self.waiting as u64,
            })?;
        let queues = self.queues.clone();
        // The network has one thread, and a walk through all groups takes its time.
        let admitted = tokio::task::spawn_blocking(move || {
            let admitted = queues.admit(&group);
            drop(place);
            admitted
        });
        admitted.await.map_err(|_| Refusal::Ending(Server::Agent))?
    }
}

fn malformed(invalid: Invalid) -> Refusal {
    Refusal::Malformed(invalid)
}

/// Samples on their way into messages.
pub(super) struct Samples(Receiver<Sample>);

impl Stream for Samples {
    type Item = Result<proto::Sample, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0)
            .poll_next(context)
            .map(|sample| sample.map(|sample| Ok(sample.into())))
    }
}

/// Snapshots of an accept queue on their way into messages.
pub(super) struct Snapshots(Receiver<Timed>);

impl Stream for Snapshots {
    type Item = Result<proto::QueueSnapshot, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0)
            .poll_next(context)
            .map(|snapshot| snapshot.map(|snapshot| Ok(snapshot.sent().into())))
    }
}

/// Who sent a request.
fn peer<T>(request: &Request<T>) -> Result<Peer, Status> {
    let peer = request.extensions().get::<Peer>();
    peer.cloned()
        .ok_or_else(|| Status::internal("the server does not say who sent the request"))
}

#[tonic::async_trait]
impl Agent for Service {
    type ObserveStream = Samples;
    type WatchQueueStream = Snapshots;

    async fn describe(
        &self,
        _: Request<proto::DescribeRequest>,
    ) -> Result<Response<proto::Description>, Status> {
        let description = self.ask(|answer| Command::Describe { answer }).await?;
        Ok(Response::new(description.into()))
    }

    async fn observe(&self, request: Request<proto::ObserveRequest>) -> Result<Response<Samples>, Status> {
        let connection = peer(&request)?.connection;
        let period_ms = request.into_inner().period_ms;
        Refusal::check_range("period_ms", period_ms as f64, self.observe.range(), "ms")?;
        let period = Duration::from_millis(period_ms);
        let samples = self
            .ask(|answer| Command::Observe {
                period,
                connection,
                answer,
            })
            .await??;
        Ok(Response::new(Samples(samples)))
    }

    async fn apply(&self, request: Request<proto::ApplyRequest>) -> Result<Response<proto::Applied>, Status> {
        let arrived = Instant::now();
        let peer = peer(&request)?;
        let request = request.into_inner();
        // Before the conversion to a duration, so that the value is named as it was given.
        Refusal::check_range("lease_ms", request.lease_ms as f64, self.lease.range(), "ms")?;
        let apply = Apply::try_from(request).map_err(malformed)?;
        let applied = self
            .ask(|answer| Command::Apply {
                apply: Box::new(apply),
                peer,
                arrived,
                answer,
            })
            .await??;
        Ok(Response::new(applied.into()))
    }

    async fn release(
        &self,
        request: Request<proto::ReleaseRequest>,
    ) -> Result<Response<proto::Released>, Status> {
        let peer = peer(&request)?;
        let request = request.into_inner();
        let holder = Holder::new(request.holder, request.lease_id).map_err(malformed)?;
        let released = self
            .ask(|answer| Command::Release { holder, peer, answer })
            .await??;
        Ok(Response::new(released.into()))
    }

    async fn watch_queue(
        &self,
        request: Request<proto::WatchQueueRequest>,
    ) -> Result<Response<Snapshots>, Status> {
        let peer = peer(&request)?;
        let watch = WatchQueue::try_from(request.into_inner()).map_err(malformed)?;
        self.queues.check(&watch, &peer)?;
        if let Some(group) = watch.cpu_group.clone() {
            self.admit(group).await?;
        }
        Ok(Response::new(Snapshots(self.queues.watch(&watch, &peer)?)))
    }
}
