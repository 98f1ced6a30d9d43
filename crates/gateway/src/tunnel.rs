//! An upgraded connection: bytes both ways until either side is done.

use std::io;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::conn::ClientConn;
use crate::core::Core;
use crate::socket::Socket;
use crate::upstream::Tunnel;
use crate::watch::{Phase, Watch};

/// Bytes held per direction.
const BUFFER_BYTES: usize = 16 * 1024;

/// Counts a tunnel closed, however it ends.
struct Counting<'a>(&'a Core);

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.0.tunnels.set(self.0.tunnels.get() - 1);
    }
}

/// Runs a tunnel to its end: both directions closed, one broken, or neither used for too long.
pub(crate) async fn run(client: &ClientConn, socket: Socket, read: Bytes, tunnel: Tunnel) {
    let core = client.core();
    core.tunnels.set(core.tunnels.get() + 1);
    let _counted = Counting(core);
    client.watch.enter(Phase::Tunnel);
    let (client_read, client_write) = tokio::io::split(socket);
    let (backend_read, backend_write) = tokio::io::split(tunnel.stream);
    let both = async {
        tokio::try_join!(
            pump(read, client_read, backend_write, &client.watch),
            pump(tunnel.read, backend_read, client_write, &client.watch),
        )
    };
    let mut both = std::pin::pin!(both);
    std::future::poll_fn(|cx| {
        client.watch.wake_by(cx);
        if client.watch.expired() {
            return std::task::Poll::Ready(());
        }
        both.as_mut().poll(cx).map(|_| ())
    })
    .await;
}

async fn pump(
    first: Bytes,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    watch: &Watch,
) -> io::Result<()> {
    to.write_all(&first).await?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        to.flush().await?;
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        watch.touch();
        to.write_all(&buffer[..read]).await?;
    }
}
