//! HTTP/2 by the byte (RFC 9113, RFC 7541): as much of it as the cases need.

use std::io::Read;

use crate::common::Message;
use crate::wire::Got;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// The client's preface with empty settings.
pub fn preface() -> Vec<u8> {
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, b""),
    ]
    .concat()
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A string as it is, without Huffman coding.
fn string(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match u8::try_from(text.len()) {
        Ok(short @ 0..127) => out.push(short),
        _ => {
            out.push(127);
            let mut rest = text.len() - 127;
            while rest >= 128 {
                out.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            out.push(rest as u8);
        }
    }
    out.extend_from_slice(text);
    out
}

/// Fields as literals that no table keeps.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        out.extend(string(name.as_bytes()));
        out.extend(string(value.as_bytes()));
    }
    out
}

/// The digits of a Huffman-coded status: each of 5 or 6 bits.
fn huffman_digits(bytes: &[u8]) -> String {
    let bits: Vec<u8> = bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1))
        .collect();
    let (mut at, mut digits) = (0, String::new());
    let number = |bits: &[u8]| bits.iter().fold(0, |number, bit| number << 1 | bit);
    while digits.len() < 3 {
        match bits.get(at..at + 5).map(number) {
            Some(digit @ 0..=2) => {
                digits.push(char::from(b'0' + digit));
                at += 5;
            }
            _ => match bits.get(at..at + 6).map(number) {
                Some(code @ 0x19..=0x1f) => {
                    digits.push(char::from(b'3' + code - 0x19));
                    at += 6;
                }
                _ => break,
            },
        }
    }
    digits
}

/// The status of an answer's fields, of which it is the first.
fn status(mut block: &[u8]) -> Option<u16> {
    while let [0x20..=0x3f, rest @ ..] = block {
        block = match block[0] {
            0x3f => &rest[rest.iter().position(|byte| byte & 128 == 0)? + 1..],
            _ => rest,
        };
    }
    match block {
        [index @ 0x88..=0x8e, ..] => Some([200, 204, 206, 304, 400, 404, 500][usize::from(index - 0x88)]),
        [0x08 | 0x48 | 0x18, length, value @ ..] => {
            let value = value.get(..usize::from(length & 127))?;
            match length & 128 {
                0 => String::from_utf8_lossy(value).parse().ok(),
                _ => huffman_digits(value).parse().ok(),
            }
        }
        _ => None,
    }
}

/// Reads until the answer on the first stream is over, or the stream or the connection is.
pub fn read(reader: &mut impl Read) -> Got {
    let mut got = Got::default();
    let mut open: Option<Message> = None;
    loop {
        let mut head = [0; 9];
        if let Err(error) = reader.read_exact(&mut head) {
            got.is_closed = !matches!(
                error.kind(),
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
            );
            break;
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length as usize];
        if reader.read_exact(&mut payload).is_err() {
            got.is_closed = true;
            break;
        }
        match kind {
            GOAWAY => {
                got.is_closed = true;
                break;
            }
            RST_STREAM if stream == 1 => {
                got.is_closed = true;
                break;
            }
            HEADERS if stream == 1 && open.is_none() => match status(&payload) {
                Some(status @ 100..=199) => got.interims.push(status),
                Some(status) => {
                    open = Some(Message {
                        start: format!("HTTP/2 {status} x"),
                        ..Message::default()
                    });
                }
                None => got.garbage = true,
            },
            DATA if stream == 1 => {
                if let Some(message) = &mut open {
                    message.body.extend_from_slice(&payload);
                }
            }
            _ => {}
        }
        if stream == 1
            && matches!(kind, DATA | HEADERS)
            && flags & END_STREAM != 0
            && let Some(message) = &mut open
        {
            message.complete = true;
            break;
        }
    }
    got.answers.extend(open);
    got
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_however_it_is_written() {
        assert_eq!(status(&[0x88]), Some(200));
        assert_eq!(status(&[0x3f, 0xe1, 0x1f, 0x8c]), Some(400));
        assert_eq!(status(b"\x08\x03431"), Some(431));
        // RFC 7541 C.6.1: 302 as 6402.
        assert_eq!(status(&[0x48, 0x82, 0x64, 0x02]), Some(302));
    }
}
