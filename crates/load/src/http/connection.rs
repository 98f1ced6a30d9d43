//! One HTTP/1.1 connection, driven by the task that uses it: no task, channel or lock of its own.

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper::body::Body as _;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::cell::Cell;
use std::future::{Future as _, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// In how many of a body's first bytes a marker is looked for.
const BEGINNING: usize = 512;

type Driver = http1::Connection<TokioIo<Metered>, Full<Bytes>>;

/// Bytes that a thread's connections moved.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) received: Cell<u64>,
    pub(crate) sent: Cell<u64>,
}

impl Traffic {
    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.sent.set(self.sent.get() + *bytes as u64);
        }
        written
    }
}

/// A stream whose bytes are counted.
struct Metered {
    stream: TcpStream,
    traffic: Rc<Traffic>,
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let received = &self.traffic.received;
        received.set(received.get() + (buffer.filled().len() - before) as u64);
        polled
    }
}

impl AsyncWrite for Metered {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.traffic.wrote(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.traffic.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// A connection that a request can be sent on.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// None once the connection has ended.
    driver: Option<Pin<Box<Driver>>>,
    /// Whether a request was answered on it.
    pub(crate) used: bool,
}

/// A complete answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body_bytes: u64,
    /// Whether the body's beginning holds the marker that was looked for.
    pub(crate) has_marker: bool,
}

/// Why there was no complete answer.
pub(crate) enum Broken {
    /// The connection had ended before the request was given to it: nothing was sent.
    BeforeSending,
    /// It ended before any part of the answer came.
    BeforeAnswer,
    /// The answer was cut short or is not HTTP.
    InAnswer,
}

impl Connection {
    /// Connects to the first address that answers.
    pub(crate) async fn open(addresses: &[SocketAddr], traffic: &Rc<Traffic>) -> io::Result<Self> {
        let stream = TcpStream::connect(addresses).await?;
        // Requests are written whole; waiting for more to send with them would only delay them.
        stream.set_nodelay(true)?;
        let (sender, driver) = http1::Builder::new()
            .handshake(TokioIo::new(Metered {
                stream,
                traffic: Rc::clone(traffic),
            }))
            .await
            .map_err(io::Error::other)?;
        Ok(Self {
            sender,
            driver: Some(Box::pin(driver)),
            used: false,
        })
    }

    /// Moves bytes in and out; ready once the connection has ended.
    pub(crate) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        poll_driver(&mut self.driver, cx)
    }

    /// Waits until a request may be sent.
    pub(crate) async fn ready(&mut self) -> Result<(), Broken> {
        poll_fn(|cx| {
            if self.poll_ended(cx).is_ready() {
                return Poll::Ready(Err(Broken::BeforeSending));
            }
            self.sender.poll_ready(cx).map_err(|_| Broken::BeforeSending)
        })
        .await
    }

    /// Sends a request and reads the whole answer, whose body is thrown away but for its first bytes, in which a marker is
    /// looked for where there is one. Call [`Connection::ready`] before.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        marker: Option<&[u8]>,
    ) -> Result<Answer, Broken> {
        let mut head = pin!(self.sender.send_request(request));
        let answer = poll_fn(|cx| {
            // The answer's end may reach the driver together with the connection's, so the driver's end is not
            // yet an error: the answer is looked for after it.
            let _ = poll_driver(&mut self.driver, cx);
            head.as_mut().poll(cx)
        });
        let answer = answer.await.map_err(|error| {
            if error.is_canceled() {
                Broken::BeforeSending
            } else if error.is_parse() {
                Broken::InAnswer
            } else {
                Broken::BeforeAnswer
            }
        })?;
        let status = answer.status();
        let mut body = pin!(answer.into_body());
        let mut body_bytes = 0;
        let mut beginning = Vec::new();
        while !body.is_end_stream() {
            let frame = poll_fn(|cx| {
                if let Poll::Ready(frame) = body.as_mut().poll_frame(cx) {
                    return Poll::Ready(frame);
                }
                let _ = poll_driver(&mut self.driver, cx);
                body.as_mut().poll_frame(cx)
            });
            match frame.await {
                Some(Ok(frame)) => {
                    let Some(data) = frame.data_ref() else { continue };
                    body_bytes += data.len() as u64;
                    if marker.is_some() {
                        let room = BEGINNING - beginning.len();
                        beginning.extend_from_slice(&data[..data.len().min(room)]);
                    }
                }
                Some(Err(_)) => return Err(Broken::InAnswer),
                None => break,
            }
        }
        self.used = true;
        let has_marker =
            marker.is_some_and(|marker| beginning.windows(marker.len()).any(|bytes| bytes == marker));
        Ok(Answer {
            status,
            body_bytes,
            has_marker,
        })
    }
}

/// Polls the connection's driver; ready, and the driver gone, once the connection has ended.
fn poll_driver(driver: &mut Option<Pin<Box<Driver>>>, cx: &mut Context<'_>) -> Poll<()> {
    if let Some(running) = driver {
        if running.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        *driver = None;
    }
    Poll::Ready(())
}
