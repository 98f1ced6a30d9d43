//! One HTTP/2 connection to a backend, and the task that runs it.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Ping, PingPong, SendStream};
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::MissedTickBehavior;

use crate::config::{LimitConfig, TimeoutConfig, ms};
use crate::socket::Socket;

/// Requests at a time over one connection, where the backend takes as many (RFC 9113 section 6.5.2 recommends to take 100).
const MAX_STREAMS: u32 = 100;

/// Bytes of one stream's request that may wait for the connection.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// The largest window (RFC 9113 section 6.9.1).
const MAX_WINDOW_BYTES: u32 = (1 << 31) - 1;

/// For how long a connection that nobody has any more may say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

/// A connection as those that send requests over it see it. Once all have let go of it, it ends.
pub(crate) struct Connection {
    sender: RefCell<SendRequest<Bytes>>,
    /// Requests under way over it.
    active: Cell<usize>,
    /// Requests ever sent over it.
    begun: Cell<u64>,
    most: usize,
    /// A request was answered on it.
    pub reused: Cell<bool>,
    is_over: Cell<bool>,
}

/// What the connection's task runs.
pub(crate) struct Driver {
    connection: h2::client::Connection<Heard, Bytes>,
    pings: PingPong,
    /// Counts what is read.
    heard: Rc<Cell<u64>>,
}

/// A stream of bytes that counts when something comes.
struct Heard {
    inner: Socket,
    count: Rc<Cell<u64>>,
}

/// An error of the protocol as one of the connection.
fn as_io(error: h2::Error) -> io::Error {
    match error.is_io() {
        true => error
            .into_io()
            .unwrap_or_else(|| io::ErrorKind::BrokenPipe.into()),
        false => io::Error::new(io::ErrorKind::InvalidData, error),
    }
}

/// Begins HTTP/2 on a connection. The backend's answer to a PING is waited for: it shows that HTTP/2 is spoken there, and before it
/// comes how many streams the backend takes.
///
/// # Errors
/// What the backend answered is not HTTP/2 (`InvalidData`), or it closed the connection.
pub(crate) async fn connect(stream: Socket, limits: &LimitConfig) -> io::Result<(Rc<Connection>, Driver)> {
    let heard = Rc::new(Cell::new(0));
    let stream = Heard {
        inner: stream,
        count: heard.clone(),
    };
    let window = limits.h2_window_bytes;
    // All streams together fill the connection's window at most: a client that does not read blocks no other.
    let streams = MAX_STREAMS.min(MAX_WINDOW_BYTES / window.max(1)).max(1);
    let (sender, mut connection) = h2::client::Builder::new()
        .enable_push(false)
        .initial_window_size(window)
        .initial_connection_window_size(window.saturating_mul(streams).min(MAX_WINDOW_BYTES))
        .max_header_list_size(u32::try_from(limits.max_header_bytes).unwrap_or(u32::MAX))
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .handshake::<_, Bytes>(stream)
        .await
        .map_err(as_io)?;
    let closed = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let mut pings = connection.ping_pong().ok_or_else(closed)?;
    pings.send_ping(Ping::opaque()).map_err(as_io)?;
    poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
        Poll::Ready(Ok(())) => Poll::Ready(Err(closed())),
        Poll::Ready(Err(error)) => Poll::Ready(Err(as_io(error))),
        Poll::Pending => pings.poll_pong(cx).map(|pong| pong.map(drop).map_err(as_io)),
    })
    .await?;
    let shared = Rc::new(Connection {
        sender: RefCell::new(sender),
        active: Cell::new(0),
        begun: Cell::new(0),
        most: streams as usize,
        reused: Cell::new(false),
        is_over: Cell::new(false),
    });
    let driver = Driver {
        connection,
        pings,
        heard,
    };
    Ok((shared, driver))
}

impl Connection {
    /// Whether it may carry another request: it is open, and the backend has not announced its end (GOAWAY).
    pub(crate) fn is_open(&self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let mut sender = self.sender.borrow_mut();
        !self.is_over.get() && !matches!(sender.poll_ready(&mut cx), Poll::Ready(Err(_)))
    }

    /// Whether the backend takes one more request over it now.
    pub(crate) fn has_room(&self) -> bool {
        let theirs = self.sender.borrow().current_max_send_streams();
        self.active.get() < theirs.clamp(1, self.most)
    }

    /// Requests under way over it.
    pub(crate) fn active(&self) -> usize {
        self.active.get()
    }

    /// Sends a request's head; `ends` where there is no body. Who has what is returned has one of its places until
    /// [`Connection::leave`].
    ///
    /// # Errors
    /// Nothing was sent.
    pub(crate) fn begin(
        &self,
        request: Request<()>,
        ends: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        // Of its own, because a sender waits for the stream that it opened last.
        let mut sender = self.sender.borrow().clone();
        let begun = sender.send_request(request, ends)?;
        self.active.set(self.active.get() + 1);
        self.begun.set(self.begun.get() + 1);
        Ok(begun)
    }

    /// A request that had begun is over.
    pub(crate) fn leave(&self) {
        self.active.set(self.active.get() - 1);
    }
}

/// For how long a connection may be silent.
pub(crate) struct Patience {
    /// With requests under way, before it is asked for a sign of life, and again until it counts as dead; `None` for ever.
    ping: Option<Duration>,
    /// Without a request.
    idle: Duration,
}

impl Patience {
    pub(crate) fn new(config: &TimeoutConfig) -> Self {
        let ping = config.backend_ping_ms;
        Self {
            ping: (ping > 0).then(|| ms(ping)),
            idle: ms(config.pool_idle_timeout_ms),
        }
    }

    /// How often that is looked at.
    fn tick(&self) -> Duration {
        let shortest = self.ping.map_or(self.idle, |ping| ping.min(self.idle));
        (shortest / 10).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }
}

/// What is to be done about a connection that was looked at.
#[derive(Debug, PartialEq, Eq)]
enum Act {
    Nothing,
    Ping,
    /// Nothing came, though it was asked for.
    GiveUp,
    /// Nobody has used it for long.
    Retire,
}

/// Since when a connection is silent, as far as anybody looked.
struct Silence {
    heard: u64,
    begun: u64,
    /// With requests under way.
    quiet_since: Instant,
    has_pinged: bool,
    /// Without one.
    idle_since: Instant,
}

impl Silence {
    fn new(now: Instant) -> Self {
        Self {
            heard: 0,
            begun: 0,
            quiet_since: now,
            has_pinged: false,
            idle_since: now,
        }
    }

    /// `heard` and `begun` count what was read and the requests.
    fn look(&mut self, heard: u64, begun: u64, active: usize, patience: &Patience, now: Instant) -> Act {
        let was_used = std::mem::replace(&mut self.begun, begun) != begun;
        if active > 0 || was_used {
            self.idle_since = now;
        }
        if std::mem::replace(&mut self.heard, heard) != heard || active == 0 {
            (self.quiet_since, self.has_pinged) = (now, false);
        }
        let idle = now.duration_since(self.idle_since);
        if active == 0 {
            return match idle >= patience.idle {
                true => Act::Retire,
                false => Act::Nothing,
            };
        }
        match patience.ping {
            Some(ping) if now.duration_since(self.quiet_since) >= ping => {
                self.quiet_since = now;
                match std::mem::replace(&mut self.has_pinged, true) {
                    false => Act::Ping,
                    true => Act::GiveUp,
                }
            }
            _ => Act::Nothing,
        }
    }
}

impl Driver {
    /// Runs the connection to its end; what it carries fails then. `retire` is called once nobody has used it for long, or it carries
    /// nothing and is not wanted any more.
    pub(crate) async fn run(
        self,
        shared: Weak<Connection>,
        patience: Patience,
        is_wanted: impl Fn() -> bool,
        retire: impl Fn(&Rc<Connection>),
    ) {
        let Self {
            mut connection,
            mut pings,
            heard,
        } = self;
        let mut ticks = tokio::time::interval(patience.tick());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut silence = Silence::new(Instant::now());
        let mut alone_since = None;
        let ended = poll_fn(|cx| {
            if let Poll::Ready(ended) = Pin::new(&mut connection).poll(cx) {
                return Poll::Ready(ended.map_err(as_io));
            }
            // What a PONG says was heard already.
            let _ = pings.poll_pong(cx);
            while ticks.poll_tick(cx).is_ready() {
                let now = Instant::now();
                let Some(shared) = shared.upgrade() else {
                    if now.duration_since(*alone_since.get_or_insert(now)) > GOODBYE {
                        return Poll::Ready(Ok(()));
                    }
                    continue;
                };
                match silence.look(
                    heard.get(),
                    shared.begun.get(),
                    shared.active.get(),
                    &patience,
                    now,
                ) {
                    Act::Nothing if shared.active.get() == 0 && !is_wanted() => retire(&shared),
                    Act::Nothing => {}
                    Act::Retire => retire(&shared),
                    Act::GiveUp => return Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                    // One that is under way already will do.
                    Act::Ping => drop(pings.send_ping(Ping::opaque())),
                }
            }
            Poll::Pending
        })
        .await;
        if let Err(error) = ended {
            tracing::debug!(%error, "an HTTP/2 connection to a backend broke");
        }
        if let Some(shared) = shared.upgrade() {
            shared.is_over.set(true);
        }
    }
}

impl AsyncRead for Heard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        self.count.set(self.count.get() + 1);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Heard {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_connection_is_asked_once_and_then_given_up() {
        let patience = Patience {
            ping: Some(Duration::from_secs(30)),
            idle: Duration::from_secs(15),
        };
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut silence = Silence::new(start);
        for (second, heard, active, act) in [
            (1, 1, 1, Act::Nothing),
            (30, 1, 1, Act::Nothing),
            (31, 1, 1, Act::Ping),
            // Its answer.
            (32, 2, 1, Act::Nothing),
            (62, 2, 1, Act::Ping),
            (91, 2, 1, Act::Nothing),
            (92, 2, 1, Act::GiveUp),
        ] {
            assert_eq!(
                silence.look(heard, 1, active, &patience, at(second)),
                act,
                "{second}"
            );
        }
    }

    #[test]
    fn one_that_nobody_uses_is_retired_and_never_pinged() {
        let patience = Patience {
            ping: Some(Duration::from_secs(5)),
            idle: Duration::from_secs(15),
        };
        let start = Instant::now();
        let mut silence = Silence::new(start);
        let mut look = |second, begun, active| {
            silence.look(0, begun, active, &patience, start + Duration::from_secs(second))
        };
        assert_eq!(look(10, 0, 0), Act::Nothing);
        // A request came and went between two looks.
        assert_eq!(look(14, 1, 0), Act::Nothing);
        assert_eq!(look(28, 1, 0), Act::Nothing);
        assert_eq!(look(29, 1, 0), Act::Retire);
        let never = Patience {
            ping: None,
            ..patience
        };
        assert_eq!(
            silence.look(0, 2, 1, &never, start + Duration::from_secs(100_000)),
            Act::Nothing
        );
    }
}
