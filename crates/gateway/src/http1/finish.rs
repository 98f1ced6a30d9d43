//! The end of an HTTP/1 connection.

use std::time::{Duration, Instant};

use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::serve::End;
use super::{Http1, answer};
use crate::conn::ClientConn;
use crate::headers::Refusal;
use crate::line_patience;
use crate::socket::Socket;
use crate::tcp_info::{State, state};
use crate::tunnel;
use crate::watch::Phase;

/// After an answer that did not wait for the whole request, the rest is read and discarded for this long and
/// this much; a socket closed with unread bytes would be reset, and the answer lost on its way.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1 << 20;
/// The longest that a client is lingered for which takes nothing of what it was sent.
const LINGER_SILENCE: Duration = Duration::from_secs(5);
/// How often it is asked whether a client's machine has acknowledged its answer.
const ACKNOWLEDGED_CHECK: Duration = Duration::from_millis(20);

/// Ends a connection.
pub(super) async fn finish(client: &ClientConn, http1: &Http1, end: End) {
    let Some(mut socket) = http1.socket.take() else {
        return;
    };
    if let Some(tunnel) = client.tunnel.take() {
        tunnel::run(client, socket, http1.received.take(), tunnel).await;
        return;
    }
    if client.reset.get() {
        socket.reset_on_close();
        return;
    }
    // Whoever does not read takes neither a refusal nor the goodbye of TLS.
    let has_unread = !http1.received.borrow().is_empty();
    let is_to_be_judged = matches!(end, End::Over | End::Gone);
    // A body that was broken off is accounted as its client's doing already.
    let is_whole = matches!(end, End::Over);
    match tokio::time::timeout(LINGER, part(client, &mut socket, has_unread, end)).await {
        Ok(lingers) => {
            // Behind the end of our side, so that no client waits for that.
            if is_to_be_judged {
                judge(client, &socket, http1.acknowledged_before.take(), is_whole).await;
            }
            if lingers {
                linger(client, &mut socket).await;
            }
        }
        Err(_) => socket.reset_on_close(),
    }
}

/// Says whether a client that had closed its side was gone when it was sent its answer.
async fn judge(client: &ClientConn, socket: &Socket, before: Option<u64>, is_whole: bool) {
    let Some(answered) = client.watch.take_answered() else {
        return;
    };
    let Some(left) = had_left(socket, before).await else {
        return;
    };
    let core = client.core();
    if let Some(waited) = answered.waited {
        line_patience::ended(core, waited, left);
        core.relayed.note_answered(left);
    }
    if let Some(backend) = answered.backend.filter(|_| left && is_whole) {
        core.stats.borrow_mut().backends[usize::from(backend)]
            .counts
            .answered_to_nobody += 1;
    }
}

/// Whether it was gone: the machine of one that is gone resets the connection and acknowledges nothing, that of one that waits acknowledges
/// what comes, however it ends the connection then. `None` where it did neither in time.
async fn had_left(socket: &Socket, before: Option<u64>) -> Option<bool> {
    let before = before?;
    let until = Instant::now() + LINGER;
    loop {
        // In this order: a reset may come behind what was acknowledged.
        let is_closed = state(socket.tcp()) == Some(State::Reset);
        match socket.acknowledged()? > before {
            true => return Some(false),
            false if is_closed => return Some(true),
            false if Instant::now() >= until => return None,
            false => tokio::time::sleep(ACKNOWLEDGED_CHECK).await,
        }
    }
}

/// Reads what the client still sends, so that it does not cost it what it was sent: for a second, and as long as it takes that, if in lumps,
/// at the least rate that it must keep anywhere, unless it sends too much.
async fn linger(client: &ClientConn, socket: &mut Socket) {
    let rate = client.core().config.timeouts.min_client_rate_bytes_per_s;
    let mut left = LINGER_BYTES;
    let (mut before, mut silent) = (socket.acknowledged(), Duration::ZERO);
    let (first, begun) = (before.unwrap_or(0), Instant::now());
    loop {
        if tokio::time::timeout(LINGER, discard(socket, &mut left))
            .await
            .is_ok()
        {
            return;
        }
        let now = socket.acknowledged();
        silent = match now > before {
            true => Duration::ZERO,
            false => silent + LINGER,
        };
        before = now;
        let lingered = begun.elapsed();
        let least = rate as f64 * lingered.saturating_sub(LINGER_SILENCE).as_secs_f64();
        let is_too_slow = (now.unwrap_or(0).saturating_sub(first) as f64) < least;
        if silent >= LINGER_SILENCE || is_too_slow || socket.is_acknowledged() != Some(false) {
            return;
        }
    }
}

/// Says why, where that is to be said, and ends our side; whether what the client still sends is to be read.
async fn part(client: &ClientConn, socket: &mut Socket, has_unread: bool, end: End) -> bool {
    let refusal = match end {
        End::Malformed(refusal) => Some(refusal),
        End::Silent(Phase::Head) => Some(Refusal {
            status: StatusCode::REQUEST_TIMEOUT,
            reason: "the request head did not come in time",
        }),
        _ => None,
    };
    let lingers = match (refusal, end) {
        (Some(Refusal { status, reason }), _) => {
            let mut answer = Vec::new();
            answer::write_refusal(status, reason, &mut answer);
            socket.write_all(&answer).await.is_ok()
        }
        // What the client sends while its answer is on its way, the kernel would answer with a reset, and throw the answer away
        // (RFC 9112 section 9.6).
        (None, End::Over) => client.linger.get() || has_unread || socket.is_acknowledged() == Some(false),
        (None, _) => false,
    };
    let _ = socket.shutdown().await;
    lingers
}

/// Reads to the end of what the client sends, or so many bytes of it.
async fn discard(socket: &mut Socket, left: &mut usize) {
    let mut buffer = [0; 4096];
    while *left > 0 {
        match socket.read(&mut buffer).await {
            Ok(read) if read > 0 => *left = left.saturating_sub(read),
            _ => return,
        }
    }
}
