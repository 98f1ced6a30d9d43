//! What a client's connection and the requests on it know of each other.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::core::Core;
use crate::headers::ClientIdentity;
use crate::sources::Source;
use crate::upstream::Tunnel;
use crate::watch::{Phase, Watch};

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
    /// The raw bytes of the request heads since the connection was last idle, HTTP/1 only, bounded by
    /// `limits.max_header_bytes`.
    pub raw_heads: RefCell<Vec<u8>>,
    /// The first line of the first request was looked at.
    pub looked: Cell<bool>,
    /// The backend's end of an upgraded connection, left here by the handler.
    pub tunnel: RefCell<Option<Tunnel>>,
    /// The answer did not wait for the whole request.
    pub linger: Cell<bool>,
    /// The response was broken off: the connection must be reset, lest its end look like the body's.
    pub reset: Cell<bool>,
}

impl ClientConn {
    /// A connection on which nothing was asked yet.
    pub(crate) fn new(
        core: Rc<Core>,
        identity: ClientIdentity,
        source: Option<Rc<Source>>,
        http2: bool,
        phase: Phase,
    ) -> Self {
        Self {
            watch: core.watches.add(phase),
            core,
            identity: Rc::new(identity),
            source,
            http2,
            streams: Cell::new(0),
            raw_heads: RefCell::default(),
            looked: Cell::new(false),
            tunnel: RefCell::new(None),
            linger: Cell::new(false),
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
