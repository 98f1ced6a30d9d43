//! Both ends of a case: the backend that records, and the client.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::case::{Backend, Case, Right, Step};
use crate::common::Message;
use crate::frames;
use crate::strict::{self, Request};

/// The client waits no longer for an answer; the products' own timeouts are shorter.
const PATIENCE: Duration = Duration::from_millis(2_500);

/// Where a connection need not end behind an answer, nothing more comes for so long.
const STAYS: Duration = Duration::from_millis(25);

/// A backend waits so long for more of a request, or for bytes behind it.
const BEHIND: Duration = Duration::from_millis(1_500);

/// What a backend was sent over one connection.
#[derive(Debug, Clone)]
pub enum Recorded {
    Whole(Request),
    /// A part of a request, which never ended.
    Part,
    /// What is no request, or bytes behind one that are none.
    Bad(String),
}

/// A backend that does what the case in hand says.
pub struct Recorder {
    pub address: SocketAddr,
    script: Arc<Mutex<Backend>>,
    recorded: Arc<Mutex<Vec<Recorded>>>,
    open: Arc<AtomicUsize>,
}

impl Recorder {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let recorder = Self {
            address: listener.local_addr().unwrap(),
            script: Arc::new(Mutex::new(Backend::Record)),
            recorded: Arc::default(),
            open: Arc::default(),
        };
        let (script, recorded, open) = (
            recorder.script.clone(),
            recorder.recorded.clone(),
            recorder.open.clone(),
        );
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                open.fetch_add(1, SeqCst);
                let (script, recorded, open) =
                    (script.lock().unwrap().clone(), recorded.clone(), open.clone());
                std::thread::spawn(move || {
                    serve(stream, &script, &recorded);
                    open.fetch_sub(1, SeqCst);
                });
            }
        });
        recorder
    }

    pub fn set(&self, script: &Backend) {
        *self.script.lock().unwrap() = script.clone();
        self.recorded.lock().unwrap().clear();
    }

    /// What came, once every connection is over.
    pub fn take(&self) -> Vec<Recorded> {
        let until = Instant::now() + PATIENCE;
        while self.open.load(SeqCst) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::mem::take(&mut *self.recorded.lock().unwrap())
    }
}

/// Serves one connection. Everything that it is sent is recorded, also what comes behind a request.
fn serve(mut stream: TcpStream, script: &Backend, recorded: &Mutex<Vec<Recorded>>) {
    stream.set_read_timeout(Some(BEHIND)).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut bytes = Vec::new();
    let mut buffer = [0; 16_384];
    let record = |what| recorded.lock().unwrap().push(what);
    let mut is_begun = false;
    loop {
        let has_head = bytes.windows(4).any(|four: &[u8]| four == b"\r\n\r\n");
        if has_head && !is_begun {
            is_begun = true;
            match script {
                Backend::Interim(first, _) => drop(stream.write_all(first)),
                Backend::Early(answer) => {
                    drop(stream.write_all(answer));
                    drop(stream.shutdown(Shutdown::Write));
                }
                Backend::Switches(answer) => {
                    drop(stream.write_all(answer));
                    if let Ok(Some((request, _))) = strict::parse(&bytes) {
                        record(Recorded::Whole(request));
                    }
                    while let Ok(read @ 1..) = stream.read(&mut buffer) {
                        drop(stream.write_all(&buffer[..read]));
                    }
                    return;
                }
                _ => {}
            }
        }
        match strict::parse(&bytes) {
            Err(why) => {
                return record(Recorded::Bad(format!(
                    "{why}: {}",
                    String::from_utf8_lossy(&bytes)
                )));
            }
            Ok(Some((request, length))) => {
                record(Recorded::Whole(request));
                bytes.drain(..length);
                is_begun = false;
                let answer = match script {
                    Backend::Record => {
                        &b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"[..]
                    }
                    Backend::Interim(_, answer) | Backend::Closes(answer) | Backend::Keeps(answer) => answer,
                    Backend::Early(_) | Backend::Switches(_) => b"",
                };
                drop(stream.write_all(answer));
                if !matches!(script, Backend::Keeps(_)) {
                    drop(stream.shutdown(Shutdown::Write));
                }
                continue;
            }
            Ok(None) => {}
        }
        match stream.read(&mut buffer) {
            Ok(read @ 1..) => bytes.extend_from_slice(&buffer[..read]),
            _ if bytes.is_empty() => return,
            _ => return record(Recorded::Part),
        }
    }
}

/// What a client got.
#[derive(Debug, Clone, Default)]
pub struct Got {
    pub interims: Vec<u16>,
    pub answers: Vec<Message>,
    /// The connection ended, or the stream did; otherwise nothing came in time.
    pub is_closed: bool,
    /// Bytes that are no message.
    pub garbage: bool,
}

/// Plays the client of a case against this address.
pub fn play(case: &Case, address: SocketAddr, answers: usize) -> Got {
    let mut got = Got::default();
    let Ok(mut stream) = TcpStream::connect(address) else {
        return got;
    };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    if case.http2 {
        for step in &case.steps {
            if let Step::Send(bytes) = step {
                let _ = stream.write_all(bytes);
            }
        }
        return frames::read(&mut reader);
    }
    let mut to_head = false;
    for step in &case.steps {
        match step {
            Step::Send(bytes) => {
                to_head |= bytes.starts_with(b"HEAD ");
                // The answer may come before everything is sent.
                let _ = stream.write_all(bytes);
            }
            Step::Finish => drop(stream.shutdown(Shutdown::Write)),
            Step::Await(status) => loop {
                match head(&mut reader, to_head, &mut got) {
                    Some(seen) if seen != *status && seen < 200 => {}
                    _ => break,
                }
            },
        }
    }
    while got.answers.len() < answers {
        if head(&mut reader, to_head, &mut got).is_none() {
            return got;
        }
    }
    let is_to_close = case
        .right
        .iter()
        .any(|right| matches!(right, Right::Answered(reply) if reply.closes));
    got.is_closed = ends(&mut reader, if is_to_close { PATIENCE } else { STAYS }, &mut got);
    got
}

/// Reads one head, with its body where it is the final one; its status.
fn head(reader: &mut BufReader<TcpStream>, to_head: bool, got: &mut Got) -> Option<u16> {
    match reader.fill_buf() {
        Ok([]) => {
            got.is_closed = true;
            return None;
        }
        Ok(bytes) if !b"HTTP/1.".starts_with(&bytes[..bytes.len().min(7)]) => {
            got.garbage = true;
            return None;
        }
        Ok(_) => {}
        Err(error) => {
            got.is_closed = !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            return None;
        }
    }
    // It panics at what is no status or no length.
    let message = std::panic::catch_unwind(AssertUnwindSafe(|| Message::read(reader, to_head)));
    let Ok(message) = message else {
        got.garbage = true;
        return None;
    };
    let Some(message) = message else {
        got.is_closed = true;
        return None;
    };
    let status = message.status();
    match status {
        100 | 102..=199 => got.interims.push(status),
        _ => got.answers.push(message),
    }
    Some(status)
}

/// Whether the connection ends soon behind an answer.
fn ends(reader: &mut BufReader<TcpStream>, patience: Duration, got: &mut Got) -> bool {
    let _ = reader.get_ref().set_read_timeout(Some(patience));
    match reader.fill_buf() {
        Ok([]) => true,
        // What the client sent behind its request may be refused.
        Ok(bytes) => {
            got.garbage = !bytes.starts_with(b"HTTP/1.1 4") && !bytes.starts_with(b"<html>");
            false
        }
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}
