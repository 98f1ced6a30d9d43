//! Packets, and what is in them (MariaDB's documentation, *Clients & Utilities: client/server protocol*).

use super::super::database::{Changed, Row, Value};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY as SHA1, digest};
use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;

/// Long passwords, matched rather than changed rows are counted, a database is named, protocol 4.1, transactions, the native
/// password and the name of its plugin.
const CAPABILITIES: u32 = 0x1 | 0x2 | 0x8 | 0x200 | 0x2000 | 0x8000 | 0x8_0000;

/// `utf8mb4_general_ci`.
const CHARSET: u8 = 45;

/// The only way to log in that is spoken.
const PLUGIN: &str = "mysql_native_password";

/// The most bytes of one packet's payload; longer ones would come in several, which nothing here needs.
const MAX_PAYLOAD: usize = 0xFF_FFFF - 1;

/// The command that asks a statement.
const COM_QUERY: u8 = 3;

/// What a statement was answered.
pub(super) enum Answer {
    Changed(Changed),
    Rows(Vec<Row>),
    /// The server's words.
    Refused(String),
}

/// A connection.
pub(super) struct Wire {
    stream: BufReader<TcpStream>,
    sequence: u8,
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream: BufReader::new(stream),
            sequence: 0,
        }
    }

    /// Answers the server's greeting.
    pub(super) fn log_in(&mut self, user: &str, password: &str, name: &str) -> io::Result<()> {
        let greeting = self.receive()?;
        let mut reader = Reader(&greeting);
        match reader.byte()? {
            10 => {}
            0xFF => return Err(io::Error::other(refusal(reader))),
            other => {
                return Err(invalid(format!(
                    "it speaks version {other} of the protocol, not 10"
                )));
            }
        }
        reader.until_zero()?;
        reader.take(4)?;
        let mut salt = reader.take(8)?.to_vec();
        // A filler, capabilities, character set, status, capabilities, the salt's length, reserved.
        reader.take(1 + 2 + 1 + 2 + 2 + 1 + 10)?;
        salt.extend_from_slice(reader.take(12)?);

        let mut hello = Vec::with_capacity(128);
        hello.extend_from_slice(&CAPABILITIES.to_le_bytes());
        hello.extend_from_slice(&(MAX_PAYLOAD as u32).to_le_bytes());
        hello.push(CHARSET);
        hello.extend_from_slice(&[0; 23]);
        hello.extend_from_slice(user.as_bytes());
        hello.push(0);
        let proof = scramble(password, &salt);
        hello.push(proof.len() as u8);
        hello.extend_from_slice(&proof);
        hello.extend_from_slice(name.as_bytes());
        hello.push(0);
        hello.extend_from_slice(PLUGIN.as_bytes());
        hello.push(0);
        self.send(&hello)?;

        let mut answer = self.receive()?;
        if answer.first() == Some(&0xFE) {
            let mut reader = Reader(&answer[1..]);
            let plugin = String::from_utf8_lossy(reader.until_zero()?).into_owned();
            if plugin != PLUGIN {
                return Err(io::Error::other(format!(
                    "the server asks to log in by `{plugin}`; let the user log in by {PLUGIN}"
                )));
            }
            let salt = reader.take(20)?.to_vec();
            self.send(&scramble(password, &salt))?;
            answer = self.receive()?;
        }
        match answer.first() {
            Some(0) => Ok(()),
            Some(0xFF) => Err(io::Error::other(refusal(Reader(&answer[1..])))),
            _ => Err(invalid(
                "it answers the log-in with neither yes nor no".to_owned(),
            )),
        }
    }

    /// Asks a statement. An error means that the connection can no longer be used.
    pub(super) fn query(&mut self, sql: &str) -> io::Result<Answer> {
        self.sequence = 0;
        let mut command = Vec::with_capacity(sql.len() + 1);
        command.push(COM_QUERY);
        command.extend_from_slice(sql.as_bytes());
        self.send(&command)?;
        let head = self.receive()?;
        let mut reader = Reader(&head);
        match head.first() {
            Some(0) => {
                reader.byte()?;
                let rows = reader.length()?;
                let id = reader.length()? as i64;
                return Ok(Answer::Changed(Changed { rows, id }));
            }
            Some(0xFF) => return Ok(Answer::Refused(refusal(Reader(&head[1..])))),
            _ => {}
        }
        let columns = reader.length()?;
        let mut are_numbers = Vec::new();
        for _ in 0..columns {
            let column = self.receive()?;
            let mut reader = Reader(&column);
            // Catalogue, schema, table and its original name, name and original name.
            for _ in 0..6 {
                reader.text()?;
            }
            // The length of what follows, character set, width.
            reader.take(1 + 2 + 4)?;
            // TINY, SHORT, LONG, LONGLONG, INT24.
            are_numbers.push(matches!(reader.byte()?, 1 | 2 | 3 | 8 | 9));
        }
        self.receive()?;
        let mut rows = Vec::new();
        loop {
            let packet = self.receive()?;
            match packet.first() {
                Some(0xFE) if packet.len() < 9 => return Ok(Answer::Rows(rows)),
                Some(0xFF) => return Ok(Answer::Refused(refusal(Reader(&packet[1..])))),
                _ => {}
            }
            let mut reader = Reader(&packet);
            let mut row = Row::with_capacity(are_numbers.len());
            for is_number in &are_numbers {
                row.push(match reader.text()? {
                    None => Value::Null,
                    Some(text) => {
                        let text = String::from_utf8_lossy(text);
                        match text.parse() {
                            Ok(number) if *is_number => Value::Number(number),
                            _ => Value::Text(text.into_owned()),
                        }
                    }
                });
            }
            rows.push(row);
        }
    }

    fn send(&mut self, payload: &[u8]) -> io::Result<()> {
        if payload.len() > MAX_PAYLOAD {
            return Err(invalid(format!(
                "a statement of {} bytes is too long",
                payload.len()
            )));
        }
        let mut packet = Vec::with_capacity(payload.len() + 4);
        packet.extend_from_slice(&(payload.len() as u32).to_le_bytes()[..3]);
        packet.push(self.sequence);
        packet.extend_from_slice(payload);
        self.sequence = self.sequence.wrapping_add(1);
        self.stream.get_mut().write_all(&packet)
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
        if length > MAX_PAYLOAD {
            return Err(invalid("an answer is longer than one packet".to_owned()));
        }
        self.sequence = head[3].wrapping_add(1);
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload)?;
        Ok(payload)
    }
}

fn invalid(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

/// The proof that the password is known: SHA1(p) xor SHA1(salt, SHA1(SHA1(p))). Of no password, nothing.
fn scramble(password: &str, salt: &[u8]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let once = digest(&SHA1, password.as_bytes());
    let twice = digest(&SHA1, once.as_ref());
    let salted = digest(&SHA1, &[salt, twice.as_ref()].concat());
    once.as_ref()
        .iter()
        .zip(salted.as_ref())
        .map(|(one, other)| one ^ other)
        .collect()
}

/// The server's words in an error packet, after its first byte.
fn refusal(mut reader: Reader<'_>) -> String {
    let code = reader
        .take(2)
        .map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    // `#` and a state of five letters; not before the log-in.
    let words = match reader.0 {
        [b'#', _, _, _, _, _, words @ ..] => words,
        words => words,
    };
    format!("{} (error {code})", String::from_utf8_lossy(words))
}

/// What is left of a packet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> io::Result<&'a [u8]> {
        if count > self.0.len() {
            return Err(invalid("a packet is cut short".to_owned()));
        }
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> io::Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn until_zero(&mut self) -> io::Result<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let end = end.ok_or_else(|| invalid("a text in a packet has no end".to_owned()))?;
        let taken = self.take(end)?;
        self.take(1)?;
        Ok(taken)
    }

    /// A length-encoded number.
    fn length(&mut self) -> io::Result<u64> {
        let bytes = match self.byte()? {
            0xFC => 2,
            0xFD => 3,
            0xFE => 8,
            byte @ 0..=0xFA => return Ok(u64::from(byte)),
            _ => return Err(invalid("a length in a packet is none".to_owned())),
        };
        let mut number = [0; 8];
        number[..bytes].copy_from_slice(self.take(bytes)?);
        Ok(u64::from_le_bytes(number))
    }

    /// A length-encoded text; none is NULL.
    fn text(&mut self) -> io::Result<Option<&'a [u8]>> {
        if self.0.first() == Some(&0xFB) {
            self.byte()?;
            return Ok(None);
        }
        let length = self.length()?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.take(length).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_proof_of_a_password_is_the_protocol_s() {
        // A server checks that SHA1(proof xor SHA1(salt, stored)) is what it stored, SHA1(SHA1(p)).
        let salt = *b"01234567890123456789";
        let stored = digest(&SHA1, digest(&SHA1, b"secret").as_ref());
        let proof = scramble("secret", &salt);
        let mask = digest(&SHA1, &[&salt[..], stored.as_ref()].concat());
        let once: Vec<u8> = proof.iter().zip(mask.as_ref()).map(|(a, b)| a ^ b).collect();
        assert_eq!(digest(&SHA1, &once).as_ref(), stored.as_ref());
        assert_ne!(scramble("other", &salt), proof);
        assert!(scramble("", &salt).is_empty());
    }

    #[test]
    fn numbers_and_texts_are_read_by_their_lengths() {
        let bytes = [5, 0xFC, 1, 2, 0xFD, 1, 0, 1, 2, b'o', b'k', 0xFB];
        let mut reader = Reader(&bytes);
        let lengths = [0; 3].map(|_| reader.length().unwrap());
        assert_eq!(lengths, [5, 513, 65_537]);
        assert_eq!(reader.text().unwrap(), Some(&b"ok"[..]));
        assert_eq!(reader.text().unwrap(), None);
        assert!(reader.text().is_err());
        assert_eq!(
            refusal(Reader(b"\x15\x04#28000Access denied")),
            "Access denied (error 1045)"
        );
    }

    proptest! {
        #[test]
        fn any_packet_is_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut reader = Reader(&bytes);
            while reader.text().is_ok() && !reader.0.is_empty() {}
            let _ = refusal(Reader(&bytes));
            let _ = Reader(&bytes).until_zero();
        }
    }
}
