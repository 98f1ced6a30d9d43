//! The active health check: one task per backend on the control thread.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::addresses::first_open;
use crate::backend::Backend;
use crate::config::{HealthConfig, ms};
use crate::ejection::ConnectFailure;
use crate::socket::Socket;

/// `HTTP/1.x NNN`
const STATUS_LINE_BYTES: usize = 12;

/// Checks a backend until dropped.
pub(crate) async fn check_forever(backend: Arc<Backend>, config: HealthConfig, path: String) {
    let (mut passed, mut failed) = (0_u32, 0_u32);
    // Of several addresses the one that answered last is asked first.
    let mut last = None;
    loop {
        backend.count_check();
        let outcome = match tokio::time::timeout(
            ms(config.timeout_ms),
            probe(&backend, &path, ms(config.timeout_ms), &mut last),
        )
        .await
        {
            Ok(outcome) => outcome,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")),
        };
        match outcome {
            Ok(status) if (200..400).contains(&status) => {
                (passed, failed) = (passed.saturating_add(1), 0);
                if passed >= config.rise {
                    if !backend.is_healthy() {
                        tracing::info!(backend = backend.url, "healthy again");
                    }
                    backend.set_healthy(true);
                    backend.ejection.connected();
                }
            }
            // This process has no descriptor left, which says nothing of the backend.
            Err(error) if ConnectFailure::of(&error, false) == ConnectFailure::NoResources => {
                tracing::debug!(backend = backend.url, %error, "not checked");
            }
            bad => {
                (passed, failed) = (0, failed.saturating_add(1));
                if failed >= config.fall && backend.is_healthy() {
                    let why = bad.map_or_else(|error| error.to_string(), |status| format!("status {status}"));
                    tracing::warn!(backend = backend.url, why, "unhealthy: no new requests go to it");
                    backend.set_healthy(false);
                }
            }
        }
        tokio::time::sleep(ms(config.interval_ms)).await;
    }
}

/// As requests do, it goes by whichever address takes it.
async fn probe(
    backend: &Backend,
    path: &str,
    patience: Duration,
    last: &mut Option<SocketAddr>,
) -> io::Result<u16> {
    let mut order = backend.addresses().to_vec();
    order.sort_by_key(|address| Some(*address) != *last);
    let noted = |address, opened: bool| {
        if opened {
            *last = Some(address);
        }
    };
    let open = |address| backend.dial.open(address, None, false);
    let opened = first_open(&order, patience, open, noted).await??;
    match opened.http2 {
        true => probe_http2(backend, path, opened.stream).await,
        false => probe_http1(backend, path, opened.stream).await,
    }
}

async fn probe_http2(backend: &Backend, path: &str, stream: Socket) -> io::Result<u16> {
    let authority = backend.authority.to_str().unwrap_or(&backend.host);
    let request = Request::get(format!("{}://{authority}{path}", backend.dial.scheme()))
        .version(Version::HTTP_2)
        .header("user-agent", "headroom-health")
        .body(())
        .map_err(io::Error::other)?;
    let (mut sender, connection) = h2::client::handshake(stream).await.map_err(io::Error::other)?;
    let exchange = async {
        let (answer, _) = sender.send_request(request, true)?;
        answer.await.map(|answer| answer.status().as_u16())
    };
    tokio::select! {
        answered = exchange => answered.map_err(io::Error::other),
        ended = connection => Err(match ended {
            Ok(()) => io::ErrorKind::UnexpectedEof.into(),
            Err(error) => io::Error::other(error),
        }),
    }
}

async fn probe_http1(backend: &Backend, path: &str, mut stream: Socket) -> io::Result<u16> {
    let authority = backend.authority.to_str().unwrap_or(&backend.host);
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: {authority}\r\nuser-agent: headroom-health\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut line = [0; STATUS_LINE_BYTES];
    stream.read_exact(&mut line).await?;
    parse_status(&line).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP/1"))
}

fn parse_status(line: &[u8; STATUS_LINE_BYTES]) -> Option<u16> {
    let digits = line.strip_prefix(b"HTTP/1.")?.get(2..)?;
    if line[8] != b' ' {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_read_from_the_line() {
        assert_eq!(parse_status(b"HTTP/1.1 204"), Some(204));
        assert_eq!(parse_status(b"HTTP/1.0 503"), Some(503));
        assert_eq!(parse_status(b"HTTP/2.0 200"), None);
        assert_eq!(parse_status(b"SSH-2.0-Open"), None);
        assert_eq!(parse_status(b"HTTP/1.1 2x4"), None);
    }
}
