//! Messages of sock_diag(7), as bytes: the request for a port's listeners, and what comes back.
//!
//! Layouts: `struct nlmsghdr` (include/uapi/linux/netlink.h), `struct inet_diag_req_v2`, `struct inet_diag_msg` and its
//! attributes (include/uapi/linux/inet_diag.h). Numbers are in the machine's byte order, ports and addresses in the
//! network's.

use super::super::{Length, Listener};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const HEADER: usize = 16;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH.
const DUMP: u16 = 0x301;
/// NLM_F_DUMP_INTR: sockets came or went while the kernel walked over them.
const INTERRUPTED: u16 = 0x10;

const IPPROTO_TCP: u8 = 6;
const TCP_LISTEN: u8 = 10;
const INET_DIAG_SKMEMINFO: u16 = 7;
/// Place of the drops among the numbers of INET_DIAG_SKMEMINFO (SK_MEMINFO_DROPS).
const DROPS: usize = 8;
/// `struct inet_diag_msg`.
const BODY: usize = 72;

/// Address family of IPv4 (AF_INET).
pub(super) const IPV4: u8 = 2;
/// Address family of IPv6 (AF_INET6).
pub(super) const IPV6: u8 = 10;

/// Asks for all listeners of a port, or of every port for 0.
pub(super) fn request(family: u8, port: u16, sequence: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + 56);
    bytes.extend(((HEADER + 56) as u32).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(DUMP.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes());
    bytes.extend([family, IPPROTO_TCP, 1 << (INET_DIAG_SKMEMINFO - 1), 0]);
    bytes.extend((1u32 << TCP_LISTEN).to_ne_bytes());
    // The kernel compares the port itself, so that only this port's sockets are copied.
    bytes.extend(port.to_be_bytes());
    bytes.resize(HEADER + 56, 0);
    bytes
}

/// One message of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// A listening socket, and the port it listens on.
    Listener(Listener),
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
    while let Some(length) = u32_at(rest, 0) {
        let length = length as usize;
        let Some(message) = rest.get(..length).filter(|_| length >= HEADER) else {
            break;
        };
        messages.push(one(message, sequence).unwrap_or(Message::Other));
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    messages
}

fn one(message: &[u8], sequence: u32) -> Option<Message> {
    if u32_at(message, 8)? != sequence {
        return Some(Message::Other);
    }
    if u16_at(message, 6)? & INTERRUPTED != 0 {
        return Some(Message::Interrupted);
    }
    let body = message.get(HEADER..)?;
    Some(match u16_at(message, 4)? {
        NLMSG_DONE => Message::Done,
        NLMSG_ERROR => Message::Error((u32_at(body, 0)? as i32).wrapping_neg()),
        SOCK_DIAG_BY_FAMILY => listener(body).map_or(Message::Other, Message::Listener),
        _ => Message::Other,
    })
}

fn listener(body: &[u8]) -> Option<Listener> {
    let (family, state) = (*body.first()?, *body.get(1)?);
    if state != TCP_LISTEN {
        return None;
    }
    let port = u16::from_be_bytes(body.get(4..6)?.try_into().ok()?);
    let source: [u8; 16] = body.get(8..24)?.try_into().ok()?;
    let ip: IpAddr = match family {
        IPV4 => Ipv4Addr::new(source[0], source[1], source[2], source[3]).into(),
        IPV6 => Ipv6Addr::from(source).into(),
        _ => return None,
    };
    let cookie = u64::from(u32_at(body, 44)?) | u64::from(u32_at(body, 48)?) << 32;
    Some(Listener {
        address: SocketAddr::new(ip, port),
        cookie,
        // Of a listener, the receive queue is the accept queue and the send queue its limit.
        length: Length {
            now: u32_at(body, 56)?.into(),
            limit: u32_at(body, 60)?.into(),
        },
        drops: drops(body.get(BODY..).unwrap_or_default()),
        enqueued: None,
    })
}

fn drops(attributes: &[u8]) -> Option<u64> {
    let mut rest = attributes;
    loop {
        let length = usize::from(u16_at(rest, 0)?);
        let attribute = rest.get(..length).filter(|_| length >= 4)?;
        if u16_at(attribute, 2)? == INET_DIAG_SKMEMINFO {
            return u32_at(attribute, 4 + 4 * DROPS).map(u64::from);
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        let mut bytes = header(SOCK_DIAG_BY_FAMILY, 2, &body(IPV4, 3, 128, 17));
        bytes.extend(header(NLMSG_DONE, 2, &[0; 4]));
        let messages = messages(&bytes, 7);
        let Message::Listener(listener) = messages[0] else {
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
        let interrupted = header(SOCK_DIAG_BY_FAMILY, INTERRUPTED, &body(IPV6, 0, 0, 0));
        assert_eq!(messages(&interrupted, 7), [Message::Interrupted]);
    }

    #[test]
    fn a_kernel_that_does_not_tell_drops_tells_the_rest() {
        let bytes = header(SOCK_DIAG_BY_FAMILY, 2, &body(IPV6, 1, 2, 3)[..BODY]);
        assert!(matches!(
            messages(&bytes, 7)[..],
            [Message::Listener(Listener { drops: None, .. })]
        ));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            messages(&bytes, 7);
        }

        #[test]
        fn any_change_of_an_answer_is_read_without_a_panic(at in 0usize..140, value in any::<u8>(), cut in 0usize..140) {
            let mut bytes = header(SOCK_DIAG_BY_FAMILY, 2, &body(IPV4, 3, 128, 17));
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            messages(&bytes[..cut.min(bytes.len())], 7);
        }
    }
}
