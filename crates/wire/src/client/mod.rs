//! Calls an agent or a gateway.

mod channel;
mod gateway;
mod queue;

pub use gateway::{BoundWatch, GatewayClient, GatewayPeriods, Observer};
pub use queue::QueueSnapshots;

use crate::message::{Applied, Apply, Description, Holder, Released, Sample};
use crate::proto::agent_client::AgentClient;
use crate::tls::{ClientTls, TlsError};
use crate::{Address, Invalid, Refusal, Server, proto};
use channel::Channel;
use std::marker::PhantomData;
use std::time::Duration;
use tonic::{Code, Response, Status, Streaming};

/// The longest answer, in bytes: a sample of [`crate::message::MAX_ZONES`] zones fits.
const ANSWER_BYTES: usize = 1 << 20;

/// How a client reaches an agent.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The controller's certificate; needed for TCP, not used on a Unix socket.
    pub tls: Option<ClientTls>,
    /// The name that the agent's certificate must be good for, where it is not the host of its address.
    pub server_name: Option<String>,
    /// How long connecting, the handshake included, may take.
    pub connect_time: Duration,
    /// How long an answer may take.
    pub answer_time: Duration,
    /// An agent that answers no ping for this long is gone; a ping is sent when it was silent for as long.
    pub silence: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            tls: None,
            server_name: None,
            connect_time: Duration::from_secs(5),
            answer_time: Duration::from_secs(5),
            silence: Duration::from_secs(5),
        }
    }
}

/// A call that came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// TCP without certificates was asked for.
    #[error(
        "{address} is reached over TCP, which needs certificates: make them with `headroom certs`, or use a Unix socket"
    )]
    NoCertificate {
        /// The peer.
        address: Address,
    },
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No connection, or it was lost.
    #[error("{address} cannot be reached: {why}")]
    Unreachable {
        /// The peer.
        address: Address,
        /// Why, in plain words.
        why: String,
    },
    /// Nobody listens at the address, which the peer's own machine said at once: no process serves there. A peer that hangs, a
    /// network that is cut and a certificate that is refused are [`CallError::Unreachable`].
    #[error("{address} cannot be reached: {why}")]
    NotListening {
        /// The peer.
        address: Address,
        /// Why, in plain words.
        why: String,
        /// There is not even a socket's file, as before the peer was started for the first time or where its path is misspelt; a
        /// peer that was killed leaves one.
        is_missing: bool,
    },
    /// No answer in time. Whether an [`Apply`] was carried out is not known: send it again with the same sequence number.
    #[error("{address} did not answer within {seconds} s", seconds = after.as_secs_f64())]
    NoAnswer {
        /// The peer.
        address: Address,
        /// How long was waited.
        after: Duration,
    },
    /// The agent refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The answer breaks the contract.
    #[error("{address} answered nonsense: {invalid}")]
    Nonsense {
        /// The peer.
        address: Address,
        /// What is invalid in the answer.
        invalid: Invalid,
    },
    /// The agent's version cannot do what is asked.
    #[error("the agent at {address} is of version {version}, which cannot {what}: update headroom there")]
    Outdated {
        /// The peer.
        address: Address,
        /// Its version.
        version: String,
        /// What was asked.
        what: &'static str,
    },
    /// A gRPC status that carries no refusal: not an agent of ours, or of another version.
    #[error("{address} answered {code:?}: {message}")]
    Other {
        /// The peer.
        address: Address,
        /// The gRPC code.
        code: Code,
        /// The status message.
        message: String,
    },
}

/// A connection to one agent. It does not reconnect: [`Client::is_connected`] and [`CallError::Unreachable`] tell when to
/// connect anew. A clone uses the same connection.
#[derive(Clone, Debug)]
pub struct Client {
    caller: Caller<AgentClient<Channel>>,
    agent: Description,
}

impl Client {
    /// Connects and asks the agent who it is.
    ///
    /// # Errors
    /// [`CallError`]; a certificate that either end does not accept is [`CallError::Unreachable`] with the reason.
    pub async fn connect(address: &Address, options: &ClientOptions) -> Result<Self, CallError> {
        let channel = channel::connect(address, options, Server::Agent).await?;
        let inner = AgentClient::with_origin(channel.clone(), channel::origin())
            .max_decoding_message_size(ANSWER_BYTES);
        let caller = Caller::new(inner, channel, options);
        let agent = caller.describe().await?;
        Ok(Self { caller, agent })
    }

    /// When the certificate ends that the agent showed; `None` over a Unix socket.
    pub fn certificate_ends(&self) -> Option<std::time::SystemTime> {
        self.caller.channel.certificate_ends()
    }

    /// Where the agent is.
    pub fn address(&self) -> &Address {
        self.caller.channel.address()
    }

    /// What the agent said about itself when the connection was made.
    pub fn agent(&self) -> &Description {
        &self.agent
    }

    /// Whether the connection still stands, as far as is known here.
    pub fn is_connected(&self) -> bool {
        self.caller.channel.is_open()
    }

    /// What the node is and what can be asked of it, now.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn describe(&self) -> Result<Description, CallError> {
        self.caller.describe().await
    }

    /// Puts an allocation in force for the length of a lease, or renews the lease.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::Refused`] says why nothing was changed.
    pub async fn apply(&self, apply: Apply) -> Result<Applied, CallError> {
        let request = proto::ApplyRequest::from(apply);
        self.caller.call(async |inner| inner.apply(request).await).await
    }

    /// Ends a lease now.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn release(&self, holder: &Holder) -> Result<Released, CallError> {
        let request = proto::ReleaseRequest {
            holder: holder.name().into(),
            lease_id: holder.lease_id(),
        };
        self.caller.call(async |inner| inner.release(request).await).await
    }

    /// Asks for a sample a period.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn observe(&self, period: Duration) -> Result<Samples, CallError> {
        let period_ms = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
        let request = proto::ObserveRequest { period_ms };
        self.caller
            .stream(async |inner| inner.observe(request).await)
            .await
    }
}

#[derive(Clone, Debug)]
struct Caller<C> {
    inner: C,
    channel: Channel,
    answer_time: Duration,
}

impl Caller<AgentClient<Channel>> {
    async fn describe(&self) -> Result<Description, CallError> {
        self.call(async |inner| inner.describe(proto::DescribeRequest {}).await)
            .await
    }
}

impl<C: Clone> Caller<C> {
    fn new(inner: C, channel: Channel, options: &ClientOptions) -> Self {
        Self {
            inner,
            channel,
            answer_time: options.answer_time,
        }
    }

    async fn call<M, T>(
        &self,
        call: impl AsyncFnOnce(&mut C) -> Result<Response<M>, Status>,
    ) -> Result<T, CallError>
    where
        T: TryFrom<M, Error = Invalid>,
    {
        let message = self.answered(call).await?;
        T::try_from(message).map_err(|invalid| self.channel.nonsense(invalid))
    }

    async fn answered<M>(
        &self,
        call: impl AsyncFnOnce(&mut C) -> Result<Response<M>, Status>,
    ) -> Result<M, CallError> {
        let mut inner = self.inner.clone();
        match tokio::time::timeout(self.answer_time, call(&mut inner)).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.channel.failed(status).await),
            Err(_) => {
                let address = self.channel.address().clone();
                Err(CallError::NoAnswer {
                    address,
                    after: self.answer_time,
                })
            }
        }
    }

    async fn stream<M, T>(
        &self,
        call: impl AsyncFnOnce(&mut C) -> Result<Response<Streaming<M>>, Status>,
    ) -> Result<Incoming<M, T>, CallError> {
        Ok(Incoming {
            stream: self.answered(call).await?,
            channel: self.channel.clone(),
            read_as: PhantomData,
        })
    }
}

/// Messages of one stream.
/// What a server sends of itself, a message at a time: `M` as the contract has it, `T` as it is read.
#[derive(Debug)]
pub struct Incoming<M, T> {
    stream: Streaming<M>,
    channel: Channel,
    read_as: PhantomData<fn() -> T>,
}

/// The samples of one observation.
pub type Samples = Incoming<proto::Sample, Sample>;

impl<M, T: TryFrom<M, Error = Invalid>> Incoming<M, T> {
    /// The next one; `None` when the server ended the stream, which it does when it ends itself.
    ///
    /// It waits as long as it takes; a connection that is lost is noticed within twice [`ClientOptions::silence`].
    ///
    /// # Errors
    /// [`CallError`]; the stream is over then.
    pub async fn next(&mut self) -> Result<Option<T>, CallError> {
        match self.stream.message().await {
            Ok(None) => Ok(None),
            Ok(Some(message)) => T::try_from(message)
                .map(Some)
                .map_err(|invalid| self.channel.nonsense(invalid)),
            Err(status) => Err(self.channel.failed(status).await),
        }
    }
}
