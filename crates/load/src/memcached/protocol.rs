//! memcached's text protocol, as far as `get` and `set` need it: requests as bytes, and answers from bytes that come in any
//! pieces.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The longest first line of an answer that is read; memcached's longest has the longest key (250 bytes) and two numbers.
const MAX_LINE: usize = 1024;

/// What follows a value.
const TAIL: &[u8] = b"\r\nEND\r\n";

/// The digits of a key's number: 8, for 100,000,000 keys.
const DIGITS: usize = 8;

/// The most digits of a value's size: 1 GiB.
const SIZE_DIGITS: usize = 10;

/// How every key begins, so that a shared server's own keys are not touched. The size of its value follows: loads of several sizes, one
/// after the other or at once, leave each other's values alone.
const PREFIX: &str = "headroom-load:";

/// For how long a value is kept, seconds: a day, so that what a load leaves behind goes by itself.
const EXPIRES_S: u32 = 86_400;

/// A complete answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A value of so many bytes.
    Value(u64),
    /// `END` at once: the key is not there.
    Missed,
    /// `STORED`.
    Stored,
    /// `ERROR`, `CLIENT_ERROR` or `SERVER_ERROR`, or `NOT_STORED`; [`Parser::line`] has its words.
    Refused,
}

/// What came is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Garbage;

/// Where in an answer the bytes are.
#[derive(Debug)]
enum Place {
    /// In its first line.
    Line,
    /// In a value's data, of which so many bytes are still to come.
    Data { left: u64 },
    /// In what follows the data, of which so many bytes have come.
    Tail { come: usize },
}

/// Reads one answer after the other. It holds no more than a line.
#[derive(Debug)]
pub(super) struct Parser {
    place: Place,
    line: Vec<u8>,
    value_bytes: u64,
}

impl Parser {
    pub(super) fn new() -> Self {
        Self {
            place: Place::Line,
            line: Vec::new(),
            value_bytes: 0,
        }
    }

    /// Forgets what came of an answer.
    pub(super) fn reset(&mut self) {
        self.place = Place::Line;
        self.line.clear();
    }

    /// How many bytes of a value are still to come, which may be thrown away unread; call [`Parser::skipped`] then.
    pub(super) fn data_left(&self) -> u64 {
        match self.place {
            Place::Data { left } => left,
            Place::Line | Place::Tail { .. } => 0,
        }
    }

    /// So many bytes of a value, at most what is left of it, were thrown away.
    pub(super) fn skipped(&mut self, bytes: u64) {
        if let Place::Data { left } = &mut self.place {
            *left = left.saturating_sub(bytes);
        }
        self.end_of_data();
    }

    /// The first line of the answer that came last, or what came of a line; without its end.
    pub(super) fn line(&self) -> String {
        String::from_utf8_lossy(&self.line).trim_end().to_owned()
    }

    /// Takes bytes up to an answer's end: how many of them, and the answer if it is complete.
    pub(super) fn feed(&mut self, input: &[u8]) -> Result<(usize, Option<Answer>), Garbage> {
        let mut taken = 0;
        while taken < input.len() {
            let rest = &input[taken..];
            match &mut self.place {
                Place::Line => {
                    if self.line.last() == Some(&b'\n') {
                        self.line.clear();
                    }
                    let end = rest.iter().position(|&byte| byte == b'\n');
                    let part = end.map_or(rest.len(), |end| end + 1);
                    let room = MAX_LINE.saturating_sub(self.line.len());
                    self.line.extend_from_slice(&rest[..part.min(room)]);
                    taken += part;
                    if part > room {
                        return Err(Garbage);
                    }
                    if end.is_some()
                        && let Some(answer) = self.end_of_line()?
                    {
                        return Ok((taken, Some(answer)));
                    }
                }
                Place::Data { left } => {
                    let part = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= part as u64;
                    taken += part;
                    self.end_of_data();
                }
                Place::Tail { come } => {
                    let part = rest.len().min(TAIL.len() - *come);
                    if rest[..part] != TAIL[*come..*come + part] {
                        return Err(Garbage);
                    }
                    *come += part;
                    taken += part;
                    if *come == TAIL.len() {
                        self.place = Place::Line;
                        return Ok((taken, Some(Answer::Value(self.value_bytes))));
                    }
                }
            }
        }
        Ok((taken, None))
    }

    fn end_of_data(&mut self) {
        if matches!(self.place, Place::Data { left: 0 }) {
            self.place = Place::Tail { come: 0 };
        }
    }

    fn end_of_line(&mut self) -> Result<Option<Answer>, Garbage> {
        let line = self.line.strip_suffix(b"\r\n").ok_or(Garbage)?;
        if let Some(value) = line.strip_prefix(b"VALUE ") {
            self.value_bytes = value_bytes(value).ok_or(Garbage)?;
            self.place = Place::Data {
                left: self.value_bytes,
            };
            self.end_of_data();
            return Ok(None);
        }
        match line {
            b"END" => Ok(Some(Answer::Missed)),
            b"STORED" => Ok(Some(Answer::Stored)),
            b"ERROR" | b"NOT_STORED" => Ok(Some(Answer::Refused)),
            _ if line.starts_with(b"SERVER_ERROR ") || line.starts_with(b"CLIENT_ERROR ") => {
                Ok(Some(Answer::Refused))
            }
            _ => Err(Garbage),
        }
    }
}

/// The size in `KEY FLAGS BYTES [CAS]`.
fn value_bytes(line: &[u8]) -> Option<u64> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').take(5).collect();
    let number = match fields[..] {
        [_, _, bytes] | [_, _, bytes, _] => bytes,
        _ => return None,
    };
    let digits = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
    digits
        .then(|| std::str::from_utf8(number).ok()?.parse().ok())
        .flatten()
}

/// What is asked of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Get,
    Set,
}

/// Draws requests and writes them.
#[derive(Debug)]
pub(super) struct Requests {
    rng: ChaCha8Rng,
    keys: usize,
    sets_share: f64,
    /// How its keys begin.
    prefix: String,
    /// A value's bytes and the line end that follows them.
    value: Vec<u8>,
    /// `0 EXPIRES BYTES`, as a `set` has it after the key.
    set_tail: String,
}

impl Requests {
    /// Of the load's n-th thread. Values have contents that cannot be compressed, the same for every key.
    pub(super) fn new(value_bytes: usize, keys: usize, sets_share: f64, seed: u64, thread: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut value = vec![0; value_bytes];
        rng.fill(&mut value[..]);
        value.extend_from_slice(b"\r\n");
        rng.set_stream(thread as u64 + 1);
        Self {
            rng,
            keys,
            sets_share,
            prefix: format!("{PREFIX}{value_bytes}:"),
            value,
            set_tail: format!(" 0 {EXPIRES_S} {value_bytes}\r\n"),
        }
    }

    /// Draws a request, whose head is left in `head`. A `set` is followed by [`Requests::value`].
    pub(super) fn draw(&mut self, head: &mut Vec<u8>) -> Kind {
        head.clear();
        let key = self.rng.random_range(0..self.keys);
        if self.sets_share > 0.0 && self.rng.random::<f64>() < self.sets_share {
            self.add_set(head, key);
            Kind::Set
        } else {
            self.add_get(head, key);
            Kind::Get
        }
    }

    /// What follows a `set`'s head.
    pub(super) fn value(&self) -> &[u8] {
        &self.value
    }

    /// Appends a `get`.
    pub(super) fn add_get(&self, head: &mut Vec<u8>, key: usize) {
        head.extend_from_slice(b"get ");
        self.add_key(head, key);
        head.extend_from_slice(b"\r\n");
    }

    /// Appends a `set`'s head.
    pub(super) fn add_set(&self, head: &mut Vec<u8>, key: usize) {
        head.extend_from_slice(b"set ");
        self.add_key(head, key);
        head.extend_from_slice(self.set_tail.as_bytes());
    }

    fn add_key(&self, head: &mut Vec<u8>, key: usize) {
        head.extend_from_slice(self.prefix.as_bytes());
        let mut digits = [b'0'; DIGITS];
        let mut rest = key;
        for digit in digits.iter_mut().rev() {
            *digit += (rest % 10) as u8;
            rest /= 10;
        }
        head.extend_from_slice(&digits);
    }
}

/// How many bytes of a server's memory an item takes at most beyond its value: key, header and suffix.
pub(super) const ITEM_OVERHEAD: usize = 48 + 8 + 2 + PREFIX.len() + SIZE_DIGITS + 1 + DIGITS + 1;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Feeds bytes in pieces of these lengths, again and again.
    fn answers(bytes: &[u8], pieces: &[usize]) -> Result<Vec<Answer>, Garbage> {
        let mut parser = Parser::new();
        let mut answers = Vec::new();
        let mut lengths = pieces.iter().cycle();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(rest.len().min(*lengths.next().unwrap()));
            rest = later;
            let mut piece = piece;
            while !piece.is_empty() {
                let (taken, answer) = parser.feed(piece)?;
                assert!(taken > 0 && taken <= piece.len());
                piece = &piece[taken..];
                answers.extend(answer);
            }
        }
        Ok(answers)
    }

    fn whole(text: &str) -> Result<Vec<Answer>, Garbage> {
        answers(text.as_bytes(), &[usize::MAX])
    }

    fn a_value(bytes: usize) -> (Vec<u8>, Answer) {
        let mut text = format!("VALUE headroom-load:00000001 0 {bytes}\r\n").into_bytes();
        // Data that looks like the end of an answer.
        text.extend(b"\r\nEND\r\n".iter().cycle().take(bytes));
        text.extend(TAIL);
        (text, Answer::Value(bytes as u64))
    }

    fn an_answer() -> impl Strategy<Value = (Vec<u8>, Answer)> {
        let line = |text: &str, answer| Just((text.as_bytes().to_vec(), answer));
        prop_oneof![
            (0..3000_usize).prop_map(a_value),
            line("END\r\n", Answer::Missed),
            line("STORED\r\n", Answer::Stored),
            line("NOT_STORED\r\n", Answer::Refused),
            line("ERROR\r\n", Answer::Refused),
            line("SERVER_ERROR out of memory storing object\r\n", Answer::Refused),
            line("CLIENT_ERROR bad data chunk\r\n", Answer::Refused),
        ]
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_answers(
            sent in vec(an_answer(), 1..12),
            pieces in vec(1..600_usize, 1..20),
        ) {
            let bytes: Vec<u8> = sent.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
            let expected: Vec<Answer> = sent.iter().map(|(_, answer)| *answer).collect();
            prop_assert_eq!(answers(&bytes, &pieces), Ok(expected));
        }

        #[test]
        fn any_bytes_are_an_answer_or_an_error(bytes in vec(any::<u8>(), 0..3000), pieces in vec(1..600_usize, 1..9)) {
            prop_assert_eq!(answers(&bytes, &pieces), answers(&bytes, &[usize::MAX]));
        }

        #[test]
        fn any_line_that_begins_as_a_value_is_an_answer_or_an_error(rest in "[ -~]{0,40}", pieces in vec(1..9_usize, 1..9)) {
            let text = format!("VALUE {rest}\r\n");
            let mut parser = Parser::new();
            let split = answers(text.as_bytes(), &pieces).is_ok();
            prop_assert_eq!(parser.feed(text.as_bytes()).is_ok(), split);
        }
    }

    #[test]
    fn what_is_no_answer_is_garbage() {
        for text in [
            "HTTP/1.1 400 Bad Request\r\n",
            "STORED\n",
            "END \r\n",
            "VALUE k 0\r\n",
            "VALUE k 0 -1\r\n",
            "VALUE k 0 +1\r\n",
            "VALUE k 0 1 2 3\r\n",
            "VALUE k 0 99999999999999999999999\r\n",
            "VALUE k 0 2\r\nabc\r\nEND\r\n",
            "VALUE k 0 2\r\nab\r\nVALUE l 0 2\r\n",
        ] {
            assert_eq!(whole(text), Err(Garbage), "{text:?}");
        }
        assert_eq!(whole(&"x".repeat(MAX_LINE + 1)), Err(Garbage));
        assert_eq!(
            whole("VALUE k 0 2 77\r\nab\r\nEND\r\n"),
            Ok(vec![Answer::Value(2)])
        );
    }

    #[test]
    fn the_words_of_a_refusal_are_kept() {
        let mut parser = Parser::new();
        let text = b"SERVER_ERROR object too large for cache\r\n";
        assert_eq!(parser.feed(text), Ok((text.len(), Some(Answer::Refused))));
        assert_eq!(parser.line(), "SERVER_ERROR object too large for cache");
        assert_eq!(parser.feed(b"END\r\n"), Ok((5, Some(Answer::Missed))));
    }

    #[test]
    fn data_that_was_thrown_away_counts() {
        let mut parser = Parser::new();
        assert_eq!(parser.feed(b"VALUE k 0 1000\r\nab"), Ok((18, None)));
        assert_eq!(parser.data_left(), 998);
        parser.skipped(998);
        assert_eq!(parser.data_left(), 0);
        assert_eq!(parser.feed(TAIL), Ok((TAIL.len(), Some(Answer::Value(1000)))));
    }

    #[test]
    fn requests_are_those_of_the_text_protocol_and_repeat_with_the_seed() {
        let draw = |seed, thread| {
            let mut requests = Requests::new(3, 100, 0.5, seed, thread);
            let mut all = Vec::new();
            for _ in 0..1000 {
                let mut head = Vec::new();
                let kind = requests.draw(&mut head);
                all.push((kind, String::from_utf8(head).unwrap()));
            }
            all
        };
        let requests = draw(7, 0);
        assert_eq!(requests, draw(7, 0));
        assert!(requests != draw(8, 0) && requests != draw(7, 1));
        let mut keys = std::collections::BTreeSet::new();
        for (kind, head) in &requests {
            let (command, tail) = match kind {
                Kind::Get => ("get ", "\r\n"),
                Kind::Set => ("set ", " 0 86400 3\r\n"),
            };
            let key = head
                .strip_prefix(command)
                .and_then(|rest| rest.strip_suffix(tail))
                .unwrap();
            let number = key.strip_prefix("headroom-load:3:").unwrap();
            assert_eq!(number.len(), DIGITS);
            let number: usize = number.parse().unwrap();
            assert!(number < 100);
            keys.insert(number);
        }
        // Of 100 keys 1,000 draws leave one out with a probability of 0.004.
        assert!(keys.len() >= 98);
        let sets = requests.iter().filter(|(kind, _)| *kind == Kind::Set).count();
        assert!((400..600).contains(&sets), "{sets}");
    }
}
