//! What a client's connection and the requests on it know of each other.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::core::Core;
use crate::headers::ClientIdentity;
use crate::http1::Http1;
use crate::sources::Source;
use crate::upstream::Tunnel;
use crate::watch::{Phase, Watch};

/// Asks how many bytes a client's machine has acknowledged; `None` where the kernel does not say.
pub(crate) type Acknowledged = Box<dyn Fn() -> Option<u64>>;

/// One client connection, as its requests see it.
pub(crate) struct ClientConn {
    core: Rc<Core>,
    pub identity: Rc<ClientIdentity>,
    /// What its source may ask; `None` where nobody limits it.
    pub source: Option<Rc<Source>>,
    pub watch: Rc<Watch>,
    pub http2: bool,
    /// Open HTTP/2 streams.
    streams: Cell<usize>,
    /// HTTP/2 requests that were cancelled, less those that were answered.
    cancelled: Cell<u32>,
    /// The connection itself; `None` of HTTP/2.
    pub http1: Option<Http1>,
    /// The backend's end of an upgraded connection, left here by the handler.
    pub tunnel: RefCell<Option<Tunnel>>,
    /// The answer did not wait for the whole request.
    pub linger: Cell<bool>,
    /// HTTP/2 only: says how many bytes the client's machine has acknowledged of all streams.
    pub acknowledges: RefCell<Option<Acknowledged>>,
    /// The response was broken off: the connection must be reset, lest its end look like the body's.
    pub reset: Cell<bool>,
}

impl ClientConn {
    /// A connection on which nothing was asked yet.
    pub(crate) fn new(
        core: Rc<Core>,
        identity: ClientIdentity,
        source: Option<Rc<Source>>,
        http1: Option<Http1>,
        phase: Phase,
    ) -> Self {
        Self {
            watch: core.watches.add(phase),
            core,
            identity: Rc::new(identity),
            source,
            http2: http1.is_none(),
            streams: Cell::new(0),
            cancelled: Cell::new(0),
            http1,
            tunnel: RefCell::new(None),
            linger: Cell::new(false),
            acknowledges: RefCell::default(),
            reset: Cell::new(false),
        }
    }

    pub(crate) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    pub(crate) fn stream_opened(&self) {
        self.streams.set(self.streams.get() + 1);
        self.watch.enter(Phase::Untimed);
    }

    /// A request of an HTTP/2 connection was answered, or cancelled by its client.
    pub(crate) fn ended(&self, cancelled: bool) {
        let count = self.cancelled.get();
        self.cancelled.set(match cancelled {
            true => count.saturating_add(1),
            false => count.saturating_sub(1),
        });
        if self.cancels_too_much() {
            self.watch.wake();
        }
    }

    /// Whether its client cancels more requests than it lets be answered, by more than it may.
    pub(crate) fn cancels_too_much(&self) -> bool {
        let most = self.core.config.limits.max_h2_resets;
        most > 0 && self.cancelled.get() > most
    }

    pub(crate) fn stream_closed(&self) {
        self.streams.set(self.streams.get() - 1);
        if self.streams.get() == 0 {
            self.watch.enter(Phase::Idle);
        }
    }
}

impl Drop for ClientConn {
    fn drop(&mut self) {
        self.core.watches.remove(&self.watch);
    }
}
