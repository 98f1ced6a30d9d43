//! What has come over a connection and was not taken yet.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};

use crate::core::Core;
use crate::socket::Socket;

/// What is read at a time where as much is held for slow clients as may be.
const SHORT_READ_BYTES: usize = 4 * 1024;

/// Reads once, through the core's buffer, which stays in the cache, and at most so many bytes; only what has come is kept, behind what was
/// `received` before. How many bytes there were; 0 at the end.
///
/// # Errors
/// Those of the socket.
pub(crate) fn poll_fill(
    cx: &mut Context<'_>,
    socket: &mut Socket,
    received: &mut Bytes,
    core: &Core,
    most: usize,
) -> Poll<io::Result<usize>> {
    let mut scratch = core.scratch.borrow_mut();
    // Where no more may be held for slow clients, little is read ahead of them here too.
    let most = match core.buffered.is_full() {
        true => SHORT_READ_BYTES.min(most),
        false => scratch.len().min(most),
    };
    let mut buffer = ReadBuf::new(&mut scratch[..most]);
    ready!(Pin::new(socket).poll_read(cx, &mut buffer))?;
    let fresh = buffer.filled();
    append(received, fresh);
    Poll::Ready(Ok(fresh.len()))
}

/// Adds bytes behind others. What comes little by little is not copied again each time, unless a piece of it is held elsewhere.
fn append(received: &mut Bytes, fresh: &[u8]) {
    if received.is_empty() {
        *received = Bytes::copy_from_slice(fresh);
        return;
    }
    let mut both = std::mem::take(received).try_into_mut().unwrap_or_else(|shared| {
        let mut copy = BytesMut::with_capacity(shared.len() + fresh.len());
        copy.extend_from_slice(&shared);
        copy
    });
    both.extend_from_slice(fresh);
    *received = both.freeze();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_is_behind_what_came_before_whoever_holds_a_part_of_that() {
        let mut received = Bytes::new();
        append(&mut received, b"one ");
        append(&mut received, b"two ");
        let taken = received.split_to(4);
        append(&mut received, b"three");
        assert_eq!((&taken[..], &received[..]), (&b"one "[..], &b"two three"[..]));
    }

    #[test]
    fn what_comes_byte_by_byte_is_not_copied_each_time() {
        let (mut received, mut moves, mut at) = (Bytes::new(), 0, std::ptr::null());
        for byte in 0..10_000_u32 {
            append(&mut received, &[byte as u8]);
            if received.as_ptr() != at {
                (moves, at) = (moves + 1, received.as_ptr());
            }
        }
        assert_eq!(received.len(), 10_000);
        assert!(moves < 50, "{moves} copies");
    }
}
