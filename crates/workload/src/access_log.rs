//! A web server's access log, in the common or the combined log format, as a trace or as requests to send again.
//!
//! `host ident user [28/Aug/1995:00:00:34 -0400] "GET /path HTTP/1.0" 200 1839`, and in the combined format the
//! referrer and the agent after it, which are not used. Bytes may be `-`.
//!
//! **What is taken.** For a trace every request counts. To be sent again are GET and HEAD requests only; others
//! could change something, and their bodies are not in the log. They are counted in [`AccessLog::not_sent`].
//!
//! **Bad lines** are counted, and the first [`SHOWN`] kept with their number and what is wrong. A log without one
//! good line is an error.
//!
//! **Time.** Servers log a request when it ends, with the second it began, so seconds stand out of order: they are
//! sorted, and the lines that came late are counted.
//!
//! ```
//! use headroom_units::Seconds;
//! use headroom_workload::access_log::AccessLog;
//!
//! let line = r#"host - - [28/Aug/1995:00:00:34 -0400] "GET /index.html HTTP/1.0" 200 1839"#;
//! let log = AccessLog::read("a.log", line.as_bytes())?;
//! assert_eq!((log.requests.len(), log.paths[0].as_str()), (1, "/index.html"));
//! assert_eq!(log.trace(Seconds::new(1.0)).map(|trace| trace.requests()).ok(), Some(1.0));
//! # Ok::<(), headroom_workload::access_log::AccessLogError>(())
//! ```
//!
//! **Bounds.** [`MAX_REQUESTS`] requests, [`MAX_PATHS`] different paths, 64 KiB a line; beyond the first two it is an
//! error, a longer line is a bad one.

use crate::trace::{MAX_VALUES, Trace, TraceError};
use headroom_units::{PerSecond, Seconds};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

mod line;
mod replay;

pub use replay::{Due, Replay};

/// The most requests that are read from a log.
pub const MAX_REQUESTS: usize = 20_000_000;

/// A line that goes on for so long, bytes, is of something else: a device, a file of another kind.
const MAX_SKIPPED: u64 = 64 << 20;

/// The most different paths of the requests to be sent again.
pub const MAX_PATHS: usize = 1_000_000;

/// How many bad lines are kept to be shown.
pub const SHOWN: usize = 10;

/// The longest line that is read, bytes.
const MAX_LINE: usize = 64 << 10;

/// Why a log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AccessLogError {
    /// The file could not be read.
    #[error("{file}: cannot read the access log: {error}; name a readable, uncompressed file")]
    Unreadable {
        /// The file.
        file: String,
        /// What the system answered.
        error: io::Error,
    },
    /// It holds no good line.
    #[error(
        "{file}: no line of it is in the common log format{first}; a line is `host - - [28/Aug/1995:00:00:34 -0400] \"GET /path HTTP/1.0\" 200 1839`"
    )]
    NoRequest {
        /// The file.
        file: String,
        /// What is wrong with its first line.
        first: String,
    },
    /// It is larger than any that is read.
    #[error("{file}: more than {limit} {what}; cut the log into parts")]
    TooLarge {
        /// The file.
        file: String,
        /// How many there may be.
        limit: usize,
        /// Of what.
        what: &'static str,
    },
    /// It cannot be replayed at this speed.
    #[error("speed = {0}: give a factor from 0.001 to 1,000,000; 1 is the log's own time")]
    BadSpeed(f64),
    /// None of its requests may be sent again.
    #[error("{0}: no request to be sent; give a log with GET or HEAD requests; others are not sent again")]
    NothingToSend(String),
}

/// A line that is no request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Its number, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub problem: &'static str,
}

/// A request of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    /// Whole seconds from the log's first request.
    pub second: u32,
    /// Its path in [`AccessLog::paths`]; none of a request that is not sent again.
    pub path: Option<u32>,
    /// Whether its method is HEAD; GET otherwise.
    pub head: bool,
    /// Bytes of the answer, as logged; none where the log has none.
    pub bytes: Option<u64>,
}

/// What was read from a log.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessLog {
    /// The name of the file, without its folder and extension.
    pub name: String,
    /// The requests by the second they began in.
    pub requests: Vec<Logged>,
    /// The different paths, with their queries.
    pub paths: Vec<String>,
    /// How many requests are counted and not sent again: other methods than GET and HEAD, or a target that is no path.
    pub not_sent: u64,
    /// How many requests stood behind one of a later second.
    pub out_of_order: u64,
    /// How many lines were bad.
    pub bad: u64,
    /// The first of them.
    pub shown: Vec<BadLine>,
}

impl AccessLog {
    /// Reads a log from a file.
    ///
    /// # Errors
    /// [`AccessLogError`], naming the file.
    pub fn from_file(path: &Path) -> Result<Self, AccessLogError> {
        let file = path.display().to_string();
        let opened = File::open(path).map_err(|error| AccessLogError::Unreadable {
            file: file.clone(),
            error,
        })?;
        let name = path
            .file_stem()
            .map_or_else(|| file.clone(), |stem| stem.to_string_lossy().into_owned());
        Ok(Self {
            name,
            ..Self::read(&file, BufReader::new(opened))?
        })
    }

    /// Reads a log; `file` is the name that errors show, and the log's.
    ///
    /// # Errors
    /// [`AccessLogError`], naming the file.
    pub fn read(file: &str, mut lines: impl BufRead) -> Result<Self, AccessLogError> {
        let mut log = Self {
            name: file.to_owned(),
            requests: Vec::new(),
            paths: Vec::new(),
            not_sent: 0,
            out_of_order: 0,
            bad: 0,
            shown: Vec::new(),
        };
        let too_large = |limit, what| AccessLogError::TooLarge {
            file: file.to_owned(),
            limit,
            what,
        };
        let mut known: HashMap<Box<str>, u32> = HashMap::new();
        // Seconds of the Unix epoch, beside each request until the first is known.
        let mut times: Vec<i64> = Vec::new();
        let mut latest = i64::MIN;
        let mut buffer = Vec::new();
        for number in 1.. {
            let ended = next_line(&mut lines, &mut buffer).map_err(|error| AccessLogError::Unreadable {
                file: file.to_owned(),
                error,
            })?;
            if ended {
                break;
            }
            let line = String::from_utf8_lossy(&buffer);
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let entry = if buffer.len() > MAX_LINE {
                Err("longer than 64 KiB")
            } else {
                line::parse(line)
            };
            let entry = match entry {
                Ok(entry) => entry,
                Err(problem) => {
                    log.bad += 1;
                    if log.shown.len() < SHOWN {
                        log.shown.push(BadLine {
                            line: number,
                            problem,
                        });
                    }
                    continue;
                }
            };
            if times.len() == MAX_REQUESTS {
                return Err(too_large(MAX_REQUESTS, "requests"));
            }
            log.out_of_order += u64::from(entry.time < latest);
            latest = latest.max(entry.time);
            times.push(entry.time);
            let path = match entry.path {
                None => {
                    log.not_sent += 1;
                    None
                }
                Some(path) => Some(match known.get(path) {
                    Some(index) => *index,
                    None if known.len() == MAX_PATHS => return Err(too_large(MAX_PATHS, "different paths")),
                    None => {
                        let index = known.len() as u32;
                        known.insert(path.into(), index);
                        log.paths.push(path.to_owned());
                        index
                    }
                }),
            };
            log.requests.push(Logged {
                second: 0,
                path,
                head: entry.head,
                bytes: entry.bytes,
            });
        }
        let Some(first) = times.iter().copied().min() else {
            let first = log.shown.first().map_or_else(
                || " (it is empty)".to_owned(),
                |bad| format!(" (line {}: {})", bad.line, bad.problem),
            );
            return Err(AccessLogError::NoRequest {
                file: file.to_owned(),
                first,
            });
        };
        for (request, time) in log.requests.iter_mut().zip(&times) {
            // A log of more than 136 years is one with a wrong date in it.
            request.second =
                u32::try_from(time - first).map_err(|_| too_large(u32::MAX as usize, "seconds"))?;
        }
        // Stable, so that requests of one second keep the order in which they were logged.
        log.requests.sort_by_key(|request| request.second);
        Ok(log)
    }

    /// How long the log lasts: to the end of its last request's second.
    pub fn duration(&self) -> Seconds {
        let last = self.requests.last().map_or(0, |request| request.second);
        Seconds::new(f64::from(last) + 1.0)
    }

    /// The log as a trace: requests per second in each span of `bin`, those that are not sent again included. The last
    /// span may reach beyond the log's end.
    ///
    /// # Errors
    /// [`TraceError`] where the span is shorter than the log's second, or there would be too many values.
    pub fn trace(&self, bin: Seconds) -> Result<Trace, TraceError> {
        if !(bin.get() >= 1.0 && bin.is_finite()) {
            return Err(TraceError::BadStep {
                name: format!("{} (an access log tells seconds, no less)", self.name),
                step: bin.get(),
            });
        }
        let count = (self.duration().get() / bin.get()).ceil();
        if count > MAX_VALUES as f64 {
            return Err(TraceError::TooManyValues {
                name: self.name.clone(),
                count: count as usize,
            });
        }
        let mut counts = vec![0.0; count as usize];
        for request in &self.requests {
            let index = (f64::from(request.second) / bin.get()) as usize;
            counts[index.min(count as usize - 1)] += 1.0;
        }
        let rates = counts
            .into_iter()
            .map(|count| PerSecond::new(count / bin.get()))
            .collect();
        Trace::new(self.name.clone(), bin, rates)
    }
}

/// Reads a line into the buffer, at most one byte more than the longest; what is beyond is skipped. Whether the end was
/// reached before anything was read.
fn next_line(lines: &mut impl BufRead, buffer: &mut Vec<u8>) -> io::Result<bool> {
    buffer.clear();
    let most = MAX_LINE as u64 + 1;
    let read = lines.by_ref().take(most).read_until(b'\n', buffer)?;
    if read as u64 == most && buffer.last() != Some(&b'\n') {
        let skipped = lines.by_ref().take(MAX_SKIPPED).skip_until(b'\n')?;
        if skipped as u64 == MAX_SKIPPED {
            return Err(io::Error::other(format!(
                "a line is longer than {MAX_SKIPPED} bytes, as in no log of requests"
            )));
        }
    }
    Ok(read == 0)
}

#[cfg(test)]
mod tests;
