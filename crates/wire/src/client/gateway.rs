//! Calls a gateway.

use super::channel::{self, Channel};
use super::{CallError, Caller, ClientOptions, Incoming};
use crate::message::routes_message;
use crate::message::{
    Backend, BoundPassed, ClassRoute, GatewayDescription, GatewayPeriod, LeverSetting, SetBackend,
};
use crate::proto::gateway_client;
use crate::{Address, Server, proto};
use std::time::Duration;

/// The longest answer, in bytes: a period of the most classes of sizes at the most backends fits, each with every latency.
const PERIOD_BYTES: usize = 4 << 20;

/// What whoever asks for a gateway's periods is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observer {
    /// To command the gateway by them.
    Commands,
    /// To tell what would be done.
    OnlyLooks,
}

/// A connection to one gateway's control port. It does not reconnect. A clone uses the same connection.
#[derive(Clone, Debug)]
pub struct GatewayClient {
    caller: Caller<gateway_client::GatewayClient<Channel>>,
    gateway: GatewayDescription,
}

impl GatewayClient {
    /// Connects and asks the gateway who it is.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn connect(address: &Address, options: &ClientOptions) -> Result<Self, CallError> {
        let channel = channel::connect(address, options, Server::Gateway).await?;
        let inner = gateway_client::GatewayClient::with_origin(channel.clone(), channel::origin())
            .max_decoding_message_size(PERIOD_BYTES);
        let caller = Caller::new(inner, channel, options);
        let gateway = caller
            .call(async |inner| inner.describe(proto::DescribeGatewayRequest {}).await)
            .await?;
        Ok(Self { caller, gateway })
    }

    /// When the certificate ends that the gateway showed; `None` over a Unix socket.
    pub fn certificate_ends(&self) -> Option<std::time::SystemTime> {
        self.caller.channel.certificate_ends()
    }

    /// What the gateway said about itself when the connection was made.
    pub fn gateway(&self) -> &GatewayDescription {
        &self.gateway
    }

    /// Asks the gateway again who it is and how its backends are.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn describe(&self) -> Result<GatewayDescription, CallError> {
        self.caller
            .call(async |inner| inner.describe(proto::DescribeGatewayRequest {}).await)
            .await
    }

    /// Changes one backend; the backend as it is then.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn set_backend(&self, change: SetBackend) -> Result<Backend, CallError> {
        let request = proto::SetBackendRequest::from(change);
        self.caller
            .call(async |inner| inner.set_backend(request).await)
            .await
    }

    /// Sets levers for the length of the lease, and those that this connection set before and that are not named to what is configured;
    /// every lever of the gateway with its value then.
    ///
    /// # Errors
    /// [`CallError`]; no lever was changed where one setting is refused, as for a lever that another peer's lease holds.
    pub async fn set_levers(
        &self,
        settings: Vec<LeverSetting>,
        lease: Duration,
    ) -> Result<Vec<LeverSetting>, CallError> {
        self.set_levers_and_routes(settings, Vec::new(), lease).await
    }

    /// The same with what the lever placement puts in force: where each class of sizes goes, with the backends in the gateway's order.
    ///
    /// # Errors
    /// [`CallError`], as [`GatewayClient::set_levers`]; also for other classes or backends than the gateway has.
    pub async fn set_levers_and_routes(
        &self,
        settings: Vec<LeverSetting>,
        routes: Vec<ClassRoute>,
        lease: Duration,
    ) -> Result<Vec<LeverSetting>, CallError> {
        let request = proto::SetLeversRequest {
            settings,
            lease_ms: u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
            routes: routes_message(routes),
        };
        self.caller
            .call(async |inner| inner.set_levers(request).await)
            .await
    }

    /// Asks for one period after another. Whoever only looks gives way to whoever may command.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::Refused`] while another has them, here or from the stream.
    pub async fn observe(&self, period: Duration, observer: Observer) -> Result<GatewayPeriods, CallError> {
        let request = proto::ObserveGatewayRequest {
            period_ms: u64::try_from(period.as_millis()).unwrap_or(u64::MAX),
            only_looks: observer == Observer::OnlyLooks,
        };
        self.caller
            .stream(async |inner| inner.observe(request).await)
            .await
    }

    /// Asks for the moment when more requests than this are in flight, in the place of what was asked before.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn watch(&self, in_flight: u64) -> Result<BoundWatch, CallError> {
        let request = proto::WatchRequest { in_flight };
        self.caller.stream(async |inner| inner.watch(request).await).await
    }
}

/// The one message of a watched bound.
pub type BoundWatch = Incoming<proto::BoundPassed, BoundPassed>;

/// The periods of one observation of a gateway.
pub type GatewayPeriods = Incoming<proto::GatewayPeriod, GatewayPeriod>;
