//! Who a client is, where its protocol says it in the first bytes: MySQL's handshake response, PostgreSQL's startup message; and with it,
//! what it speaks. Under TLS nothing is seen of it.

use super::holders;
use super::layout::{Connection, HEAD, USER, protocol};
use super::table;
use super::transactions;
use core::ffi::{c_int, c_void};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Where a connection's greeting is, in the bits above the number of bytes that are kept of its client's message.
mod greeting {
    /// Nothing was said yet.
    pub const SILENT: u32 = 0;
    /// The server spoke first, as MySQL's does.
    pub const OF_SERVER: u32 = 1;
    /// The client spoke first, as PostgreSQL's does.
    pub const OF_CLIENT: u32 = 2;
    /// It is over: what is said from now on names nobody, whatever it looks like.
    pub const OVER: u32 = 3;
    /// Above the bytes that are kept.
    pub const SHIFT: u32 = 16;
}

/// What a client's first message says of who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said<'a> {
    /// Its protocol's next message will say it.
    Next,
    /// The rest of it will say it.
    More,
    /// Nothing.
    Nobody,
    /// The user, and the protocol of what follows, as far as it can be read.
    User(u32, &'a [u8]),
}

/// The server said something to a client.
pub fn spoken_to(connection: &Connection) {
    if connection.greeting.load(Relaxed) == greeting::SILENT {
        let spoken = greeting::OF_SERVER << greeting::SHIFT;
        connection.greeting.store(spoken, Relaxed);
    }
}

/// Whether a client has said something, and what it asks and is answered is not seen: it asked for TLS, or for compression, or speaks
/// something else.
pub fn is_unseen(connection: &Connection) -> bool {
    connection.protocol.load(Relaxed) == protocol::UNKNOWN
        && connection.greeting.load(Relaxed) >> greeting::SHIFT == greeting::OVER
}

/// Takes note of what a client sent: who it is, and later what it asks.
pub fn note(fd: c_int, buffer: *const c_void, length: usize) {
    let Some((region, place)) = table::known(fd) else {
        return;
    };
    let connection = &region.connections[usize::from(place)];
    let before = connection.greeting.load(Relaxed);
    if length == 0 || buffer.is_null() {
        return;
    }
    // SAFETY: libc has just written so many bytes there, for the caller that gave the buffer.
    let bytes = unsafe { core::slice::from_raw_parts(buffer.cast::<u8>(), length) };
    let phase = match before >> greeting::SHIFT {
        greeting::OVER => {
            holders::read(connection, bytes);
            return;
        }
        greeting::OF_SERVER => greeting::OF_SERVER,
        _ => greeting::OF_CLIENT,
    };
    let kept = before as usize & (HEAD - 1);
    let mut head = [0; HEAD];
    let whole = match kept {
        0 => bytes,
        _ => {
            load(&connection.head, &mut head);
            let room = bytes.len().min(HEAD - kept);
            head[kept..kept + room].copy_from_slice(&bytes[..room]);
            &head[..kept + room]
        }
    };
    let said = match phase {
        greeting::OF_SERVER => mysql(whole),
        _ => postgresql(whole),
    };
    let next = match said {
        Said::Next => phase << greeting::SHIFT,
        Said::More if whole.len() < HEAD => {
            store(&connection.head, whole);
            phase << greeting::SHIFT | whole.len() as u32
        }
        _ => greeting::OVER << greeting::SHIFT,
    };
    if let Said::User(speaks, user) = said {
        let mut name = [0; USER];
        // The last byte stays zero.
        let length = user.len().min(USER - 1);
        name[..length].copy_from_slice(&user[..length]);
        // The first word last, by which a reader sees that there is a name.
        for (word, bytes) in connection.user.iter().zip(name.as_chunks::<8>().0).rev() {
            word.store(u64::from_le_bytes(*bytes), Relaxed);
        }
        transactions::begin(connection, speaks);
    }
    connection.greeting.store(next, Relaxed);
}

/// Bytes that are kept.
pub fn load<const N: usize>(words: &[AtomicU64], bytes: &mut [u8; N]) {
    for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = word.load(Relaxed).to_le_bytes();
    }
}

/// Keeps bytes, as many as there is room for.
pub fn store(words: &[AtomicU64], bytes: &[u8]) {
    for (word, bytes) in words.iter().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        word.store(u64::from_le_bytes(whole), Relaxed);
    }
}

/// PostgreSQL, "StartupMessage": length, protocol 3.x, then names and values, each ended by a zero; before it, a client may ask for
/// encryption, and go on without where the server declines.
fn postgresql(bytes: &[u8]) -> Said<'_> {
    const ASKS: [u32; 2] = [80_877_103, 80_877_104];
    /// "MAX_STARTUP_PACKET_LENGTH".
    const LONGEST: usize = 10_000;
    let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let Some((length, asked)) = number(0).zip(number(4)) else {
        return Said::More;
    };
    let length = length as usize;
    if length == 8 && bytes.len() == 8 && ASKS.contains(&asked) {
        return Said::Next;
    }
    if asked >> 16 != 3 || !(9..=LONGEST).contains(&length) {
        return Said::Nobody;
    }
    if bytes.len() < length {
        return Said::More;
    }
    let mut words = bytes[8..length].split(|byte| *byte == 0);
    let mut user = None;
    // An empty name is the end, and of several users the server takes the last.
    while let (Some(name @ [_, ..]), Some(value)) = (words.next(), words.next()) {
        if name == b"user" {
            user = Some(value);
        }
    }
    user.filter(|user| is_name(user))
        .map_or(Said::Nobody, |user| Said::User(protocol::POSTGRESQL, user))
}

/// MySQL: the packet's length, its number, which is 1, then "Protocol::HandshakeResponse41": capabilities, the longest packet, the character
/// set, 23 bytes of which MariaDB uses the last four, then the user, ended by a zero; or "HandshakeResponse320": two bytes of capabilities,
/// three of the longest packet, the user. "SSLRequest" is its beginning, whatever follows: the name comes encrypted.
fn mysql(bytes: &[u8]) -> Said<'_> {
    const PROTOCOL_41: u32 = 0x200;
    const SSL: u32 = 0x800;
    // CLIENT_COMPRESS and CLIENT_ZSTD_COMPRESSION_ALGORITHM.
    const COMPRESSED: u32 = 0x400_0020;
    let Some(&[low, middle, high, number]) = bytes.get(..4) else {
        return Said::More;
    };
    if number != 1 {
        return Said::Nobody;
    }
    let length = usize::from(low) | usize::from(middle) << 8 | usize::from(high) << 16;
    let payload = &bytes[4..bytes.len().min(4 + length)];
    let is_whole = payload.len() == length;
    let missing = match is_whole {
        true => Said::Nobody,
        false => Said::More,
    };
    let Some(capabilities) = payload.first_chunk().copied().map(u32::from_le_bytes) else {
        return missing;
    };
    if capabilities & SSL != 0 {
        return Said::Nobody;
    }
    let (begins, speaks) = match capabilities & PROTOCOL_41 {
        0 => (5, protocol::UNKNOWN),
        _ if capabilities & COMPRESSED != 0 => (32, protocol::UNKNOWN),
        _ => (32, protocol::MYSQL),
    };
    let name = payload.get(begins..).unwrap_or_default();
    match name.iter().position(|byte| *byte == 0) {
        Some(end) if is_name(unquoted(&name[..end])) => Said::User(speaks, unquoted(&name[..end])),
        Some(_) => Said::Nobody,
        None => missing,
    }
}

/// A name without the quotes that MariaDB takes off.
fn unquoted(name: &[u8]) -> &[u8] {
    match name {
        [b'\'', inner @ .., b'\''] => inner,
        name => name,
    }
}

fn is_name(bytes: &[u8]) -> bool {
    !bytes.is_empty() && core::str::from_utf8(bytes).is_ok_and(|name| !name.chars().any(char::is_control))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(number: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_le_bytes();
        [&length[..3], &[number], payload].concat()
    }

    fn handshake(capabilities: u32, filler: u8, user: &[u8]) -> Vec<u8> {
        let mut bytes = capabilities.to_le_bytes().to_vec();
        bytes.extend([0, 0, 0, 1, 33]);
        bytes.extend([filler; 23]);
        bytes.extend(user);
        bytes.push(0);
        bytes.extend([20, 1, 2, 3]);
        packet(1, &bytes)
    }

    const USUAL: u32 = 0x01ff_a685 & !0x800;

    fn startup(words: &[u8]) -> Vec<u8> {
        let mut message = (8 + words.len() as u32).to_be_bytes().to_vec();
        message.extend(0x0003_0000_u32.to_be_bytes());
        message.extend(words);
        message
    }

    #[test]
    fn the_user_is_read_from_the_first_message_of_both_protocols() {
        let sbtest = Said::User(protocol::MYSQL, b"sbtest");
        assert_eq!(mysql(&handshake(USUAL, 0, b"sbtest")), sbtest);
        // Servers do not look at the filler.
        assert_eq!(mysql(&handshake(USUAL, 7, b"sbtest")), sbtest);
        // What follows is compressed.
        let unread = Said::User(protocol::UNKNOWN, b"sbtest");
        assert_eq!(mysql(&handshake(USUAL | 0x20, 0, b"sbtest")), unread);
        assert_eq!(mysql(&packet(1, b"\x85\xa4\0\0\x01sbtest\0")), unread);
        assert_eq!(mysql(&handshake(USUAL, 0, b"'sbtest'")), sbtest);
        let message = startup(b"user\0gold\0database\0shop\0user\0anna\0\0");
        let anna = Said::User(protocol::POSTGRESQL, b"anna");
        assert_eq!(postgresql(&message), anna);
        for asked in [80_877_103_u32, 80_877_104] {
            let ask = [8_u32.to_be_bytes(), asked.to_be_bytes()].concat();
            assert_eq!(postgresql(&ask), Said::Next);
            // Something behind it, before the server has answered.
            assert_eq!(postgresql(&[ask, message.clone()].concat()), Said::Nobody);
        }
    }

    #[test]
    fn what_is_neither_names_nobody() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            &[0x16, 3, 1, 0, 200, 1, 0, 0],
            &[0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 0, 1, 0, 0, 0, 2],
            &startup(b"database\0shop\0\0"),
            &startup(b"user\0\0\0"),
        ] {
            assert_eq!(postgresql(bytes), Said::Nobody, "{bytes:?}");
        }
        // TLS is asked for, and a name is put behind.
        let tls = handshake(USUAL | 0x800, 0, b"gold");
        assert_eq!(mysql(&tls), Said::Nobody);
        assert_eq!(mysql(&packet(1, &tls[4..36])), Said::Nobody);
        // A query that looks like a handshake has another number.
        let mut query = handshake(USUAL, 0, b"gold");
        query[3] = 0;
        assert_eq!(mysql(&query), Said::Nobody);
        assert_eq!(mysql(&handshake(USUAL, 0, b"")), Said::Nobody);
        assert_eq!(mysql(&handshake(USUAL, 0, b"a\nb")), Said::Nobody);
        // A packet that ends before the name does.
        let whole = handshake(USUAL, 0, b"gold");
        assert_eq!(mysql(&packet(1, &whole[4..38])), Said::Nobody);
    }

    proptest! {
        /// A client that sends its greeting in pieces is the same user.
        #[test]
        fn a_beginning_says_that_more_is_to_come_or_what_the_whole_says(
            name in "[a-z]{1,31}",
            cut in 0.0..1.0_f64,
        ) {
            let (name, last) = (name.as_bytes(), [name.as_bytes(), b"\0database\0shop\0\0"].concat());
            let part_of = |bytes: &[u8]| (cut * bytes.len() as f64) as usize;
            let of_mysql = handshake(USUAL, 0, name);
            let of_postgresql = startup(&[&b"user\0"[..], &last].concat());
            for (whole, part) in [
                (mysql(&of_mysql), mysql(&of_mysql[..part_of(&of_mysql)])),
                (postgresql(&of_postgresql), postgresql(&of_postgresql[..part_of(&of_postgresql)])),
            ] {
                prop_assert!(matches!(whole, Said::User(_, said) if said == name));
                prop_assert!(part == Said::More || part == whole, "{part:?}");
            }
        }

        #[test]
        fn nothing_that_is_sent_stops_it(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            mysql(&bytes);
            postgresql(&bytes);
        }
    }
}
