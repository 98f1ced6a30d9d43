//! Messages of sock_diag(7), as bytes: the request for a port's listeners, and what comes back.

use super::super::{Length, Listener};
use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_sock_diag::inet::nlas::Nla;
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags};
use netlink_packet_sock_diag::{IPPROTO_TCP, SockDiagMessage, TCP_CLOSE_WAIT, TCP_LISTEN};
use std::net::SocketAddr;

/// Bytes of a message's header (`struct nlmsghdr`).
const HEADER: usize = 16;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Listeners,
    /// Connections that clients have not closed, or their side alone.
    Connections,
}

/// Asks for all of these of a port, or of every port for 0.
pub(super) fn request(wanted: Wanted, family: u8, port: u16, sequence: u32) -> Vec<u8> {
    let (extensions, states) = match wanted {
        Wanted::Listeners => (ExtensionFlags::SKMEMINFO, StateFlags::LISTEN),
        Wanted::Connections => (
            ExtensionFlags::INFO,
            StateFlags::ESTABLISHED | StateFlags::CLOSE_WAIT,
        ),
    };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    header.sequence_number = sequence;
    let wanted = InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions,
        states,
        // The kernel compares the port itself, so that only this port's sockets are copied.
        socket_id: SocketId {
            source_port: port,
            ..SocketId::new_v4()
        },
    };
    let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(wanted).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// A connection that its client has not closed, or its side alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Connection {
    /// The kernel's number of it.
    pub cookie: u64,
    /// Whether a process has it: else it waits in the accept queue.
    pub accepted: bool,
    /// Whether the client has closed its side.
    pub closed: bool,
    /// Bytes that the client has sent, and that the server has.
    pub received: u64,
    pub sent: u64,
    /// How long ago the last of either were; since the connection was made where there were none.
    pub received_ago_ms: u32,
    pub sent_ago_ms: u32,
    /// Bytes that have come and that the server has not read.
    pub unread: u64,
    /// Whether the server has written more than was sent.
    pub unsent: bool,
    /// For how long the client took no more of what was to be sent.
    pub not_taken_us: u64,
}

/// One message of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// A listening socket, and the number of its file.
    Listener(Listener, u64),
    /// A connection of the port.
    Connection(Connection),
    /// The end.
    Done,
    /// The kernel's refusal: an errno.
    Error(i32),
    /// Another answer, or what nobody asked for.
    Other,
    /// Sockets came or went meanwhile: the answer may lack some.
    Interrupted,
}

/// The messages in what one read yielded; a torn one ends them.
pub(super) fn messages(bytes: &[u8], sequence: u32) -> Vec<Message> {
    let mut rest = bytes;
    let mut messages = Vec::new();
    while let Some(length) = rest
        .first_chunk()
        .map(|length| u32::from_ne_bytes(*length) as usize)
    {
        let Some(message) = rest.get(..length).filter(|_| length >= HEADER) else {
            break;
        };
        messages.push(one(message, sequence));
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    messages
}

fn one(message: &[u8], sequence: u32) -> Message {
    let Ok(message) = NetlinkMessage::<SockDiagMessage>::deserialize(message) else {
        return Message::Other;
    };
    if message.header.sequence_number != sequence {
        return Message::Other;
    }
    if message.header.flags & NLM_F_DUMP_INTR != 0 {
        return Message::Interrupted;
    }
    match message.payload {
        NetlinkPayload::Done(_) => Message::Done,
        NetlinkPayload::Error(error) => {
            Message::Error(error.code.map_or(0, |code| code.get().wrapping_neg()))
        }
        NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(socket))
            if socket.header.state == TCP_LISTEN =>
        {
            Message::Listener(listener(&socket), socket.header.inode.into())
        }
        NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(socket)) => connection(&socket),
        _ => Message::Other,
    }
}

/// Where `struct tcp_info` (linux/tcp.h) has what is read of it.
mod info {
    pub const LAST_DATA_SENT: usize = 44;
    pub const LAST_DATA_RECEIVED: usize = 52;
    pub const BYTES_ACKED: usize = 120;
    pub const BYTES_RECEIVED: usize = 128;
    pub const NOT_SENT_BYTES: usize = 144;
    pub const WINDOW_LIMITED: usize = 176;
    pub const BYTES_SENT: usize = 200;
}

fn connection(socket: &InetResponse) -> Message {
    let info: &[u8] = socket
        .nlas
        .iter()
        .find_map(|attribute| match attribute {
            Nla::TcpInfo(info) => Some(info.as_slice()),
            _ => None,
        })
        .unwrap_or_default();
    let narrow = |at: usize| Some(u32::from_ne_bytes(*info.get(at..)?.first_chunk()?));
    let wide = |at: usize| Some(u64::from_ne_bytes(*info.get(at..)?.first_chunk()?));
    // A kernel before 4.1 has no count.
    let Some(received) = wide(info::BYTES_RECEIVED) else {
        return Message::Other;
    };
    let closed = socket.header.state == TCP_CLOSE_WAIT;
    // The end of what the client sends takes one of the sequence, as a byte does.
    let end = u64::from(closed);
    Message::Connection(Connection {
        cookie: cookie(socket),
        // Nobody has opened a file of one that is not accepted.
        accepted: socket.header.inode != 0,
        closed,
        received: received.saturating_sub(end),
        sent: wide(info::BYTES_SENT).or(wide(info::BYTES_ACKED)).unwrap_or(0),
        received_ago_ms: narrow(info::LAST_DATA_RECEIVED).unwrap_or(0),
        sent_ago_ms: narrow(info::LAST_DATA_SENT).unwrap_or(0),
        unread: u64::from(socket.header.recv_queue).saturating_sub(end),
        unsent: narrow(info::NOT_SENT_BYTES).unwrap_or(0) > 0,
        not_taken_us: wide(info::WINDOW_LIMITED).unwrap_or(0),
    })
}

/// Two numbers of 32 bits, the lower one first.
fn cookie(socket: &InetResponse) -> u64 {
    let [a, b, c, d, e, f, g, h] = socket.header.socket_id.cookie;
    let (low, high) = (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]));
    u64::from(low) | u64::from(high) << 32
}

fn listener(socket: &InetResponse) -> Listener {
    let header = &socket.header;
    Listener {
        address: SocketAddr::new(header.socket_id.source_address, header.socket_id.source_port),
        cookie: cookie(socket),
        // Of a listener, the receive queue is the accept queue and the send queue its limit.
        length: Length {
            now: header.recv_queue.into(),
            limit: header.send_queue.into(),
        },
        drops: socket.nlas.iter().find_map(|attribute| match attribute {
            Nla::MemInfo(memory) => Some(memory.drops.into()),
            _ => None,
        }),
        enqueued: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::{NLMSG_DONE, NLMSG_ERROR};
    use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, INET_DIAG_SKMEMINFO, SOCK_DIAG_BY_FAMILY};
    use proptest::prelude::*;

    /// Bytes of `struct inet_diag_msg`.
    const BODY: usize = 72;

    fn header(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(7u32.to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn body(family: u8, queue: u32, limit: u32, drops: u32) -> Vec<u8> {
        let mut body = vec![0; BODY];
        body[0] = family;
        body[1] = TCP_LISTEN;
        body[4..6].copy_from_slice(&8080u16.to_be_bytes());
        body[8..12].copy_from_slice(&[127, 0, 0, 1]);
        body[44..48].copy_from_slice(&5u32.to_ne_bytes());
        body[48..52].copy_from_slice(&1u32.to_ne_bytes());
        body[56..60].copy_from_slice(&queue.to_ne_bytes());
        body[60..64].copy_from_slice(&limit.to_ne_bytes());
        // One attribute before the wanted one.
        body.extend([5u16.to_ne_bytes(), 8u16.to_ne_bytes()].concat());
        body.extend([1, 0, 0, 0]);
        body.extend([(4 + 36u16).to_ne_bytes(), INET_DIAG_SKMEMINFO.to_ne_bytes()].concat());
        body.extend([0; 32]);
        body.extend(drops.to_ne_bytes());
        body
    }

    #[test]
    fn a_listener_is_read_with_its_queue_limit_cookie_and_drops() {
        let mut bytes = header(SOCK_DIAG_BY_FAMILY, 2, &body(AF_INET, 3, 128, 17));
        bytes.extend(header(NLMSG_DONE, 2, &[0; 4]));
        let messages = messages(&bytes, 7);
        let Message::Listener(listener, _) = messages[0] else {
            panic!("{messages:?}");
        };
        assert_eq!(listener.address, "127.0.0.1:8080".parse().unwrap());
        assert_eq!(listener.cookie, (1 << 32) | 5);
        assert_eq!(listener.length, Length { now: 3, limit: 128 });
        assert_eq!(listener.drops, Some(17));
        assert_eq!(messages[1], Message::Done);
    }

    #[test]
    fn refusals_interruptions_and_answers_to_others_are_told_apart() {
        let refused = header(NLMSG_ERROR, 0, &(-1i32).to_ne_bytes());
        assert_eq!(messages(&refused, 7), [Message::Error(1)]);
        assert_eq!(messages(&refused, 8), [Message::Other]);
        let interrupted = header(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP_INTR, &body(AF_INET6, 0, 0, 0));
        assert_eq!(messages(&interrupted, 7), [Message::Interrupted]);
    }

    #[test]
    fn a_kernel_that_does_not_tell_drops_tells_the_rest() {
        let bytes = header(SOCK_DIAG_BY_FAMILY, 2, &body(AF_INET6, 1, 2, 3)[..BODY]);
        assert!(matches!(
            messages(&bytes, 7)[..],
            [Message::Listener(Listener { drops: None, .. }, _)]
        ));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            messages(&bytes, 7);
        }

        #[test]
        fn any_change_of_an_answer_is_read_without_a_panic(at in 0usize..140, value in any::<u8>(), cut in 0usize..140) {
            let mut bytes = header(SOCK_DIAG_BY_FAMILY, 2, &body(AF_INET, 3, 128, 17));
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            messages(&bytes[..cut.min(bytes.len())], 7);
        }
    }
}
