//! The one exchange that is needed of SNMP version 2c (RFC 3416): GetRequest and its Response, in the basic encoding
//! rules of ASN.1 (X.690, definite lengths).

/// An object's name: numbers of a path.
pub(super) type Name = &'static [u32];

const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const NULL: u8 = 0x05;
const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const COUNTER32: u8 = 0x41;
const GAUGE32: u8 = 0x42;
const COUNTER64: u8 = 0x46;
const GET_REQUEST: u8 = 0xA0;
const RESPONSE: u8 = 0xA2;
/// Version 2c on the wire.
const VERSION_2C: u8 = 1;

/// One value of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A number of 32 bits, which wraps.
    Counter32(u64),
    /// A number of 64 bits.
    Counter64(u64),
    /// A whole number.
    Number(i64),
    /// The agent has no such object, or does not show it to this community.
    Hidden,
}

/// A GetRequest for some objects.
pub(super) fn request(community: &str, id: u32, names: &[Name]) -> Vec<u8> {
    let bindings: Vec<u8> = names
        .iter()
        .flat_map(|name| {
            let name = element(OBJECT_IDENTIFIER, &identifier(name));
            element(SEQUENCE, &[name, element(NULL, &[])].concat())
        })
        .collect();
    // The top bit stays clear: the number is a signed one.
    let id = element(INTEGER, &(id & 0x7FFF_FFFF).to_be_bytes());
    let none = element(INTEGER, &[0]);
    let body = element(
        GET_REQUEST,
        &[id, none.clone(), none, element(SEQUENCE, &bindings)].concat(),
    );
    let version = element(INTEGER, &[VERSION_2C]);
    let community = element(OCTET_STRING, community.as_bytes());
    element(SEQUENCE, &[version, community, body].concat())
}

/// The values of an answer to the request of this number, in the order in which they were asked for; nothing for what
/// is no such answer. An agent that refuses the whole request answers with its error's number.
pub(super) fn response(bytes: &[u8], id: u32, names: &[Name]) -> Option<Result<Vec<Value>, u8>> {
    let (mut message, _) = take(bytes, SEQUENCE)?;
    take_next(&mut message, INTEGER)?;
    take_next(&mut message, OCTET_STRING)?;
    let mut body = take_next(&mut message, RESPONSE)?;
    if integer(take_next(&mut body, INTEGER)?)? != i64::from(id & 0x7FFF_FFFF) {
        return None;
    }
    let status = integer(take_next(&mut body, INTEGER)?)?;
    take_next(&mut body, INTEGER)?;
    if status != 0 {
        return Some(Err(u8::try_from(status).unwrap_or(u8::MAX)));
    }
    let mut bindings = take_next(&mut body, SEQUENCE)?;
    let mut values = Vec::with_capacity(names.len());
    for name in names {
        let mut binding = take_next(&mut bindings, SEQUENCE)?;
        if take_next(&mut binding, OBJECT_IDENTIFIER)? != identifier(name) {
            return None;
        }
        let (tag, content, _) = first(binding)?;
        values.push(match tag {
            COUNTER32 | GAUGE32 => Value::Counter32(unsigned(content)?),
            COUNTER64 => Value::Counter64(unsigned(content)?),
            INTEGER => Value::Number(integer(content)?),
            // noSuchObject, noSuchInstance, endOfMibView.
            0x80..=0x82 => Value::Hidden,
            _ => return None,
        });
    }
    Some(Ok(values))
}

fn identifier(name: Name) -> Vec<u8> {
    // The first two numbers share a byte; the others have seven bits in each.
    let first = match name {
        [a, b, ..] => a * 40 + b,
        _ => 0,
    };
    let rest = name.get(2..).unwrap_or_default();
    std::iter::once(first)
        .chain(rest.iter().copied())
        .flat_map(|number| {
            let groups = (32 - number.leading_zeros()).div_ceil(7).max(1);
            (0..groups).rev().map(move |group| {
                let more = if group > 0 { 0x80 } else { 0 };
                ((number >> (7 * group)) & 0x7F) as u8 | more
            })
        })
        .collect()
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    match content.len() {
        length @ 0..=127 => bytes.push(length as u8),
        // Two bytes of length: what is sent here is far below 64 KiB.
        length => bytes.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    bytes.extend(content);
    bytes
}

/// The first element: its tag, what is in it, and what follows it.
fn first(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&length, mut rest) = rest.split_first()?;
    let mut length = usize::from(length);
    if length & 0x80 != 0 {
        let count = length & 0x7F;
        let digits = rest.get(..count).filter(|_| (1..=4).contains(&count))?;
        length = digits
            .iter()
            .fold(0, |length, &digit| length << 8 | usize::from(digit));
        rest = &rest[count..];
    }
    Some((tag, rest.get(..length)?, &rest[length..]))
}

fn take(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = first(bytes)?;
    (found == tag).then_some((content, rest))
}

fn take_next<'a>(bytes: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let (content, rest) = take(bytes, tag)?;
    *bytes = rest;
    Some(content)
}

fn integer(content: &[u8]) -> Option<i64> {
    let first = *content.first().filter(|_| content.len() <= 8)?;
    let sign = if first & 0x80 != 0 { -1 } else { 0 };
    Some(
        content
            .iter()
            .fold(sign, |number, &byte| number << 8 | i64::from(byte)),
    )
}

fn unsigned(content: &[u8]) -> Option<u64> {
    // A ninth byte is a 0 that keeps the number positive.
    let digits = match content {
        [0, rest @ ..] => rest,
        digits => digits,
    };
    (!content.is_empty() && digits.len() <= 8).then(|| {
        digits
            .iter()
            .fold(0, |number, &byte| number << 8 | u64::from(byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PASSIVE_OPENS: Name = &[1, 3, 6, 1, 2, 1, 6, 6, 0];
    const IDLE: Name = &[1, 3, 6, 1, 4, 1, 2021, 11, 53, 0];

    fn answer(id: u32, status: u8, values: &[(Name, Vec<u8>)]) -> Vec<u8> {
        let bindings: Vec<u8> = values
            .iter()
            .flat_map(|(name, value)| {
                element(
                    SEQUENCE,
                    &[element(OBJECT_IDENTIFIER, &identifier(name)), value.clone()].concat(),
                )
            })
            .collect();
        let body = [
            element(INTEGER, &id.to_be_bytes()),
            element(INTEGER, &[status]),
            element(INTEGER, &[0]),
            element(SEQUENCE, &bindings),
        ];
        let message = [
            element(INTEGER, &[1]),
            element(OCTET_STRING, b"public"),
            element(RESPONSE, &body.concat()),
        ];
        element(SEQUENCE, &message.concat())
    }

    #[test]
    fn a_request_is_encoded_as_other_implementations_do() {
        // As snmpget -v2c -c public sends it for tcpPassiveOpens.0, but for the request's number.
        let expected = [
            0x30, 0x29, 0x02, 0x01, 0x01, 0x04, 0x06, b'p', b'u', b'b', b'l', b'i', b'c', 0xA0, 0x1C, 0x02,
            0x04, 0x12, 0x34, 0x56, 0x78, 0x02, 0x01, 0x00, 0x02, 0x01, 0x00, 0x30, 0x0E, 0x30, 0x0C, 0x06,
            0x08, 0x2B, 0x06, 0x01, 0x02, 0x01, 0x06, 0x06, 0x00, 0x05, 0x00,
        ];
        assert_eq!(request("public", 0x1234_5678, &[PASSIVE_OPENS]), expected);
        assert_eq!(identifier(IDLE), [0x2B, 6, 1, 4, 1, 0x8F, 0x65, 11, 53, 0]);
    }

    #[test]
    fn values_are_read_in_order_and_hidden_ones_are_told_apart() {
        let names = [PASSIVE_OPENS, IDLE];
        let counter = element(COUNTER32, &[0, 0xFF, 0xFF, 0xFF, 0xFE]);
        let bytes = answer(9, 0, &[(PASSIVE_OPENS, counter.clone()), (IDLE, vec![0x80, 0])]);
        assert_eq!(
            response(&bytes, 9, &names),
            Some(Ok(vec![Value::Counter32(0xFFFF_FFFE), Value::Hidden]))
        );
        assert_eq!(response(&bytes, 8, &names), None, "an answer to another request");
        assert_eq!(response(&bytes, 9, &[IDLE, PASSIVE_OPENS]), None, "another order");
        assert_eq!(response(&answer(9, 16, &[]), 9, &names), Some(Err(16)));
        let negative = answer(9, 0, &[(IDLE, element(INTEGER, &[0xFF, 0x7F]))]);
        assert_eq!(
            response(&negative, 9, &[IDLE]),
            Some(Ok(vec![Value::Number(-129)]))
        );
        let long = element(COUNTER64, &[0, 1, 0, 0, 0, 0, 0, 0, 2]);
        let long = answer(9, 0, &[(IDLE, long)]);
        assert_eq!(
            response(&long, 9, &[IDLE]),
            Some(Ok(vec![Value::Counter64((1 << 56) + 2)]))
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            response(&bytes, 1, &[PASSIVE_OPENS]);
        }

        #[test]
        fn any_change_of_an_answer_is_read_without_a_panic(at in 0usize..60, value in any::<u8>(), cut in 0usize..60) {
            let mut bytes = answer(9, 0, &[(PASSIVE_OPENS, element(COUNTER32, &[1, 2, 3]))]);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            let _ = response(&bytes[..cut.min(bytes.len())], 9, &[PASSIVE_OPENS]);
        }

        #[test]
        fn every_number_is_read_as_it_was_written(number in any::<u64>(), id in any::<u32>()) {
            let mut digits = vec![0];
            digits.extend(number.to_be_bytes());
            let id = id & 0x7FFF_FFFF;
            let bytes = answer(id, 0, &[(IDLE, element(COUNTER64, &digits))]);
            prop_assert_eq!(response(&bytes, id, &[IDLE]), Some(Ok(vec![Value::Counter64(number)])));
        }
    }
}
