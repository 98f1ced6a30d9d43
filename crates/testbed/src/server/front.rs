//! The HTTP/1.1 front: one thread, which never renders.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use socket2::{Domain, Protocol, Socket, Type};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, watch};

/// How long a client may take to send a request's head, and a connection be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// The most bytes of a request's head, and of the buffers of a connection.
const MAX_BUFFER: usize = 64 << 10;

/// How long to wait when the system refuses a connection (no file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What answers requests.
pub(crate) trait Service: Send + Sync + 'static {
    /// The answer to a request. It must not block: the front's thread is that of every connection.
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Response<Full<Bytes>>> + Send;
}

/// How many connections at a time, and how long open requests may take once the service is told to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_connections: usize,
    pub(crate) drain: Duration,
}

/// Serves until it is stopped, then until open requests are answered or the drain time is over.
pub(crate) fn run(
    service: Arc<impl Service>,
    listener: TcpListener,
    limits: Limits,
    mut stopping: watch::Receiver<bool>,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let graceful = GracefulShutdown::new();
        let room = Arc::new(Semaphore::new(limits.max_connections));
        loop {
            // The semaphore is never closed, so acquiring fails never; without room nothing is accepted.
            let accepted = async {
                let permit = Arc::clone(&room).acquire_owned().await;
                (listener.accept().await, permit)
            };
            let (accepted, permit) = tokio::select! {
                accepted = accepted => accepted,
                // A closed channel means that the handle was dropped.
                _ = stopping.wait_for(|&stop| stop) => break,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            // Without it an answer of several segments could wait for an acknowledgement; if it cannot be
            // set the connection only is slower.
            let _ = stream.set_nodelay(true);
            let shared = Arc::clone(&service);
            let answering = service_fn(move |request| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, Infallible>(shared.answer(request).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(MAX_BUFFER)
                .serve_connection(TokioIo::new(stream), answering);
            let connection = graceful.watch(connection);
            tokio::spawn(async move {
                // A connection that breaks concerns its client only.
                let _ = connection.await;
                drop(permit);
            });
        }
        drop(listener);
        let _ = tokio::time::timeout(limits.drain, graceful.shutdown()).await;
        Ok(())
    })
}

/// Listens with an accept queue of this length.
pub(crate) fn listen(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    Ok(socket.into())
}
