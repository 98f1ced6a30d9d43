//! Storing what will be asked for, and whether the server holds it.

use super::config::Contents;
use super::protocol::{Answer, ITEM_OVERHEAD, Parser, Requests};
use crate::error::LoadError;
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// About how many bytes are sent, or asked for, before the answers are read.
const BATCH_BYTES: usize = 256 << 10;

/// The most requests of a batch: their bytes fit in what a socket holds, so that neither side waits for the other.
const MAX_BATCH: usize = 256;

/// The longest line of statistics, and the most lines, that are read.
const MAX_STATS: u64 = 1 << 20;

const START: &str = "start memcached there, or give the address where it listens";
const LARGER_ITEMS: &str = "start memcached with larger items (`-I 2m`), or give smaller values";
const MORE_MEMORY: &str = "start memcached anew with more memory (`-m 1024`), or give fewer keys. Memory that it gave to values of \
                           another size stays theirs: flush_all alone does not free it";

/// A connection that waits for its answers.
struct Client<'a> {
    contents: &'a Contents,
    stream: BufReader<TcpStream>,
}

/// Stores every key and asks for each once.
pub(super) fn fill(contents: &Contents) -> Result<(), LoadError> {
    let refused = |problem: String, remedy| LoadError::Unprepared {
        url: contents.url.clone(),
        problem,
        remedy,
    };
    let broken = |error: io::Error| refused(format!("no connection, or it broke: {error}"), START);
    let mut client = Client::open(contents).map_err(broken)?;
    let before = client.room(&[contents], &contents.url)?;
    client.store_all()?;
    let missing = client.count_missing()?;
    if missing > 0 {
        let after = client.stats("stats\r\n").map_err(broken)?;
        let evicted = match (before.get("evictions"), after.get("evictions")) {
            (Some(before), Some(after)) => format!(" (it evicted {})", after.saturating_sub(*before)),
            _ => String::new(),
        };
        let problem = format!(
            "of {} keys just stored it holds all but {missing}{evicted}",
            contents.keys
        );
        return Err(refused(problem, MORE_MEMORY));
    }
    Ok(())
}

/// Whether the server's largest item and its memory hold all of these at once.
pub(super) fn check_room(all: &[&Contents]) -> Result<(), LoadError> {
    let Some(first) = all.first() else { return Ok(()) };
    let broken = |error: io::Error| LoadError::Unprepared {
        url: first.url.clone(),
        problem: format!("no connection, or it broke: {error}"),
        remedy: START,
    };
    Client::open(first).map_err(broken)?.room(all, &first.url)?;
    Ok(())
}

impl<'a> Client<'a> {
    /// Checks that the server's largest item and its memory hold all of these; its statistics.
    fn room(&mut self, all: &[&Contents], url: &str) -> Result<HashMap<String, u64>, LoadError> {
        let refused = |problem: String, remedy| LoadError::Unprepared {
            url: url.to_owned(),
            problem,
            remedy,
        };
        let broken = |error: io::Error| refused(format!("no connection, or it broke: {error}"), START);
        let settings = self.stats("stats settings\r\n").map_err(broken)?;
        let largest = all.iter().map(|contents| contents.value_bytes).max().unwrap_or(0);
        if let Some(&most) = settings.get("item_size_max")
            && (largest + ITEM_OVERHEAD) as u64 > most
        {
            let problem = format!(
                "a value of {largest} bytes does not fit in its largest item, {most} bytes with key and header"
            );
            return Err(refused(problem, LARGER_ITEMS));
        }
        let stats = self.stats("stats\r\n").map_err(broken)?;
        let bytes_of =
            |contents: &Contents| contents.keys as u64 * (contents.value_bytes + ITEM_OVERHEAD) as u64;
        let needed: u64 = all.iter().map(|contents| bytes_of(contents)).sum();
        if let Some(&most) = stats.get("limit_maxbytes").filter(|&&most| needed > most) {
            let each = all
                .iter()
                .map(|contents| format!("{} keys of {} bytes", contents.keys, contents.value_bytes));
            let problem = format!(
                "{} are {} MB, and its memory is {} MB",
                each.collect::<Vec<_>>().join(" and "),
                needed / 1_000_000,
                most / 1_000_000
            );
            return Err(refused(problem, MORE_MEMORY));
        }
        Ok(stats)
    }

    fn open(contents: &'a Contents) -> io::Result<Self> {
        let patience = Duration::from_secs_f64(contents.timeout);
        let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in &contents.addresses {
            match TcpStream::connect_timeout(address, patience) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(patience))?;
                    stream.set_write_timeout(Some(patience))?;
                    return Ok(Self {
                        contents,
                        stream: BufReader::with_capacity(BATCH_BYTES, stream),
                    });
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Statistics that are whole numbers; none of a server that keeps none, as a proxy.
    fn stats(&mut self, command: &str) -> io::Result<HashMap<String, u64>> {
        self.stream.get_mut().write_all(command.as_bytes())?;
        let mut stats = HashMap::new();
        let mut lines = (&mut self.stream).take(MAX_STATS);
        loop {
            let mut line = Vec::new();
            lines.read_until(b'\n', &mut line)?;
            if line.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = String::from_utf8_lossy(&line);
            let Some(named) = line.strip_prefix("STAT ") else {
                // `END`, or `ERROR` of a server that keeps none.
                return Ok(stats);
            };
            if let Some((name, value)) = named.trim_end().split_once(' ')
                && let Ok(value) = value.parse()
            {
                stats.insert(name.to_owned(), value);
            }
        }
    }

    fn requests(&self) -> Requests {
        let contents = &self.contents;
        Requests::new(contents.value_bytes, contents.keys, 1.0, contents.seed, 0)
    }

    fn store_all(&mut self) -> Result<(), LoadError> {
        let requests = self.requests();
        self.batches(
            |bytes, key| {
                requests.add_set(bytes, key);
                bytes.extend_from_slice(requests.value());
            },
            |answer| answer == Answer::Stored,
        )
        .map(drop)
    }

    fn count_missing(&mut self) -> Result<u64, LoadError> {
        let size = self.contents.value_bytes as u64;
        let requests = self.requests();
        self.batches(
            |bytes, key| requests.add_get(bytes, key),
            |answer| answer == Answer::Value(size) || answer == Answer::Missed,
        )
    }

    /// Sends a request for each key, several at a time. Answers how many keys were not there.
    fn batches(
        &mut self,
        add: impl Fn(&mut Vec<u8>, usize),
        accepts: impl Fn(Answer) -> bool,
    ) -> Result<u64, LoadError> {
        let size = (BATCH_BYTES / self.contents.value_bytes).clamp(1, MAX_BATCH);
        let mut bytes = Vec::new();
        let mut missing = 0;
        for begin in (0..self.contents.keys).step_by(size) {
            let end = (begin + size).min(self.contents.keys);
            bytes.clear();
            (begin..end).for_each(|key| add(&mut bytes, key));
            missing += self.exchange(&bytes, end - begin, &accepts)?;
        }
        Ok(missing)
    }

    /// Sends a batch and reads its answers; how many say that the key is not there.
    fn exchange(
        &mut self,
        bytes: &[u8],
        answers: usize,
        accepts: impl Fn(Answer) -> bool,
    ) -> Result<u64, LoadError> {
        let refused = |problem: String, remedy| LoadError::Unprepared {
            url: self.contents.url.clone(),
            problem,
            remedy,
        };
        let written = self.stream.get_mut().write_all(bytes);
        let mut parser = Parser::new();
        let mut missing = 0;
        for _ in 0..answers {
            let answer = loop {
                // A server that refuses a value may close the connection; what it said counts for more than that.
                let input = match self.stream.fill_buf() {
                    Ok(input) if !input.is_empty() => input,
                    Ok(_) => return Err(refused("it closed the connection".into(), START)),
                    Err(error) => return Err(refused(format!("no answer: {error}"), START)),
                };
                let Ok((taken, answer)) = parser.feed(input) else {
                    let problem = format!(
                        "it does not speak memcached's text protocol: \"{}\"",
                        parser.line()
                    );
                    return Err(refused(
                        problem,
                        "give a memcached's address; its binary protocol is not spoken",
                    ));
                };
                self.stream.consume(taken);
                if let Some(answer) = answer {
                    break answer;
                }
            };
            if answer == Answer::Missed {
                missing += 1;
            }
            if !accepts(answer) {
                let said = parser.line();
                let remedy = match said.contains("too large") {
                    true => LARGER_ITEMS,
                    false => MORE_MEMORY,
                };
                return Err(refused(format!("it answered \"{said}\""), remedy));
            }
        }
        written.map_err(|error| refused(format!("the connection broke: {error}"), START))?;
        Ok(missing)
    }
}
