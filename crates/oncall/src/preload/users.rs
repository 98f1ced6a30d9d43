//! Who a client is, where its protocol says it in the first bytes: MySQL's handshake response, PostgreSQL's startup message; and with it,
//! what it speaks. Under TLS nothing is seen of it.

use super::layout::{Connection, USER};
use super::table;
use super::transactions::protocol;
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;

/// Queries after which a client has said who it is, or does not.
const EARLY: u64 = 2;

/// Takes note of what a client sent, where it is early enough to be who it is.
pub fn note(fd: c_int, buffer: *const c_void, length: isize) {
    let Some((region, place)) = table::known(fd) else {
        return;
    };
    let connection = &region.connections[usize::from(place)];
    let is_early = connection.queries.load(Relaxed) <= EARLY && connection.user[0].load(Relaxed) == 0;
    if !is_early || length <= 0 || buffer.is_null() {
        return;
    }
    // SAFETY: libc has just written so many bytes there, for the caller that gave the buffer.
    let bytes = unsafe { core::slice::from_raw_parts(buffer.cast::<u8>(), length.unsigned_abs()) };
    if let Some((speaks, user)) = user(bytes) {
        keep(connection, user);
        connection.protocol.store(speaks, Relaxed);
    }
}

fn keep(connection: &Connection, user: &[u8]) {
    let mut kept = [0; USER];
    // The last byte stays zero.
    let length = user.len().min(USER - 1);
    kept[..length].copy_from_slice(&user[..length]);
    for (word, bytes) in connection.user.iter().zip(kept.as_chunks::<8>().0).rev() {
        word.store(u64::from_le_bytes(*bytes), Relaxed);
    }
}

/// The user that a message names, and the protocol of what follows, as far as it can be read.
pub fn user(bytes: &[u8]) -> Option<(u32, &[u8])> {
    // A server may read the four bytes of MySQL's header alone first.
    let with_header = || mysql(bytes.get(4..)?);
    let postgresql = postgresql(bytes).map(|user| (protocol::POSTGRESQL, user));
    postgresql.or_else(with_header).or_else(|| mysql(bytes))
}

/// PostgreSQL, "StartupMessage": length, protocol 3.x, then names and values, each ended by a zero.
fn postgresql(bytes: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    if number(0)? as usize != bytes.len() || number(4)? >> 16 != 3 {
        return None;
    }
    let mut words = bytes.get(8..)?.split(|byte| *byte == 0);
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        if name == b"user" {
            return is_name(value).then_some(value);
        }
    }
    None
}

/// MySQL, "Protocol::HandshakeResponse41": capabilities, the longest packet, the character set, 23 bytes of which MariaDB uses the last
/// four, then the user, ended by a zero.
fn mysql(bytes: &[u8]) -> Option<(u32, &[u8])> {
    const PROTOCOL_41: u32 = 0x200;
    // CLIENT_COMPRESS and CLIENT_ZSTD_COMPRESSION_ALGORITHM.
    const COMPRESSED: u32 = 0x400_0020;
    let capabilities = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
    let is_filler = bytes.get(9..28)?.iter().all(|byte| *byte == 0);
    if capabilities & PROTOCOL_41 == 0 || !is_filler {
        return None;
    }
    let user = bytes.get(32..)?.split(|byte| *byte == 0).next()?;
    // A name without its end is none: the rest may come with the next read.
    let speaks = match capabilities & COMPRESSED {
        0 => protocol::MYSQL,
        _ => protocol::UNKNOWN,
    };
    (bytes.len() > 32 + user.len() && is_name(user)).then_some((speaks, user))
}

fn is_name(bytes: &[u8]) -> bool {
    !bytes.is_empty() && core::str::from_utf8(bytes).is_ok_and(|name| !name.chars().any(char::is_control))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handshake(user: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x85, 0xa6, 0xff, 0x01, 0, 0, 0, 1, 33];
        bytes.extend([0; 23]);
        bytes.extend(user);
        bytes.push(0);
        bytes.extend([20, 1, 2, 3]);
        bytes
    }

    #[test]
    fn the_user_is_read_from_the_first_message_of_both_protocols() {
        let payload = handshake(b"sbtest");
        let sbtest = Some((protocol::MYSQL, &b"sbtest"[..]));
        assert_eq!(user(&payload), sbtest);
        let mut packet = vec![payload.len() as u8, 0, 0, 1];
        packet.extend(&payload);
        assert_eq!(user(&packet), sbtest);
        // What follows is compressed.
        packet[4] |= 0x20;
        assert_eq!(user(&packet), Some((protocol::UNKNOWN, &b"sbtest"[..])));
        let words = b"user\0anna\0database\0shop\0\0";
        let mut startup = (8 + words.len() as u32).to_be_bytes().to_vec();
        startup.extend(0x0003_0000_u32.to_be_bytes());
        startup.extend(words);
        assert_eq!(user(&startup), Some((protocol::POSTGRESQL, &b"anna"[..])));
    }

    #[test]
    fn what_is_neither_names_nobody() {
        let tls: [&[u8]; 5] = [
            b"GET / HTTP/1.1\r\n\r\n",
            &[0, 0, 0, 8, 4, 210, 22, 47],
            &[0x16, 3, 1, 0, 200],
            b"",
            &handshake(b"")[..33],
        ];
        for bytes in tls {
            assert_eq!(user(bytes), None, "{bytes:?}");
        }
        // Without its end.
        let payload = handshake(b"sbtest");
        assert_eq!(user(&payload[..36]), None);
    }
}
