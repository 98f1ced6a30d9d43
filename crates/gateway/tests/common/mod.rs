//! Raw servers and clients on loopback: what is on the wire is what is asserted.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use headroom_gateway::{BackendConfig, Gateway, GatewayConfig, Handle};

pub mod process;

/// No test waits longer for anything.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A backend: one thread per connection runs a closure on the raw socket.
pub struct Backend {
    pub address: SocketAddr,
    pub connections: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Backend {
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Serves each connection with `serve(stream, number of the connection from 0)`.
    pub fn raw(serve: impl Fn(TcpStream, usize) + Send + Sync + 'static) -> Self {
        Self::raw_on(TcpListener::bind("127.0.0.1:0").unwrap(), serve)
    }

    pub fn raw_on(listener: TcpListener, serve: impl Fn(TcpStream, usize) + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (counter, stopping, serve) = (connections.clone(), stop.clone(), Arc::new(serve));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopping.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { return };
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.set_nodelay(true).unwrap();
                let number = counter.fetch_add(1, Ordering::SeqCst);
                let serve = serve.clone();
                std::thread::spawn(move || serve(stream, number));
            }
        });
        Self {
            address,
            connections,
            stop,
        }
    }

    /// Answers each request of each connection with the bytes that `answer` returns.
    pub fn http(answer: impl Fn(&Message) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::raw(move |stream, _| serve_http(stream, &answer))
    }

    pub fn http_on(
        listener: TcpListener,
        answer: impl Fn(&Message) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        Self::raw_on(listener, move |stream, _| serve_http(stream, &answer))
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the accept loop, so that the port is free again.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve_http(stream: TcpStream, answer: &(impl Fn(&Message) -> Vec<u8> + Send + Sync + 'static)) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    while let Some(request) = Message::read(&mut reader, false) {
        if writer.write_all(&answer(&request)).is_err() {
            return;
        }
    }
}

/// A 200 with this body.
pub fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// A message as it was on the wire.
#[derive(Debug, Clone, Default)]
pub struct Message {
    /// Request or status line.
    pub start: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
    /// The body ended as its framing says (not by a premature end of the connection).
    pub complete: bool,
}

impl Message {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers
            .iter()
            .filter(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
            .collect()
    }

    pub fn status(&self) -> u16 {
        self.start.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Reads the head; `None` at the end of the connection.
    pub fn read_head(reader: &mut impl BufRead) -> Option<Self> {
        let mut message = Self::default();
        let mut line = String::new();
        match reader.read_line(&mut line) {
            Ok(read) if read > 0 => message.start = line.trim_end_matches("\r\n").to_owned(),
            _ => return None,
        }
        message.headers = read_fields(reader)?;
        Some(message)
    }

    /// Reads a message. A response without a length lasts until the connection ends.
    pub fn read(reader: &mut impl BufRead, to_head: bool) -> Option<Self> {
        let mut message = Self::read_head(reader)?;
        let is_response = message.start.starts_with("HTTP/");
        let bodiless = is_response && (to_head || matches!(message.status(), 100..=199 | 204 | 304));
        message.complete = true;
        if bodiless {
            return Some(message);
        }
        if message.header("transfer-encoding").is_some() {
            message.complete = read_chunked(reader, &mut message).is_some();
        } else if let Some(length) = message.header("content-length") {
            let length: u64 = length.parse().unwrap();
            let read = reader.take(length).read_to_end(&mut message.body);
            message.complete = read.is_ok() && message.body.len() as u64 == length;
        } else if is_response {
            message.complete = reader.read_to_end(&mut message.body).is_ok();
        }
        Some(message)
    }
}

fn read_fields(reader: &mut impl BufRead) -> Option<Vec<(String, String)>> {
    let mut fields = Vec::new();
    loop {
        let mut line = Vec::new();
        reader.read_until(b'\n', &mut line).ok()?;
        let line = String::from_utf8_lossy(line.strip_suffix(b"\r\n")?).into_owned();
        if line.is_empty() {
            return Some(fields);
        }
        let (name, value) = line.split_once(':')?;
        fields.push((name.to_owned(), value.trim().to_owned()));
    }
}

fn read_chunked(reader: &mut impl BufRead, message: &mut Message) -> Option<()> {
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let size = u64::from_str_radix(line.trim_end().split(';').next()?, 16).ok()?;
        if size == 0 {
            message.trailers = read_fields(reader)?;
            return Some(());
        }
        let before = message.body.len() as u64;
        reader.take(size).read_to_end(&mut message.body).ok()?;
        if message.body.len() as u64 - before != size {
            return None;
        }
        let mut end = [0; 2];
        reader.read_exact(&mut end).ok()?;
        if &end != b"\r\n" {
            return None;
        }
    }
}

/// A client with one connection.
pub struct Client {
    pub reader: BufReader<TcpStream>,
    pub stream: TcpStream,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap())
    }

    /// A client at another address of this machine.
    pub fn from(source: &str, address: SocketAddr) -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let source: SocketAddr = source.parse().unwrap();
        socket.bind(&source.into()).unwrap();
        socket.connect(&address.into()).unwrap();
        Self::over(socket.into())
    }

    /// A client whose kernel takes little that it does not read.
    pub fn narrow(address: SocketAddr) -> Self {
        let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.connect(&address.into()).unwrap();
        Self::over(socket.into())
    }

    pub fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            reader: BufReader::new(stream.try_clone().unwrap()),
            stream,
        }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    pub fn receive(&mut self) -> Message {
        Message::read(&mut self.reader, false).expect("a response")
    }

    pub fn get(&mut self, path: &str) -> Message {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
        self.receive()
    }

    /// Is gone, and not merely done with sending: the connection is reset.
    pub fn reset(self) {
        let socket = socket2::SockRef::from(&self.stream);
        socket.set_linger(Some(Duration::ZERO)).unwrap();
    }

    /// Whether the connection has been closed (or reset) by the other side.
    pub fn is_closed(&mut self) -> bool {
        match self.reader.fill_buf() {
            Ok(bytes) => bytes.is_empty(),
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }
}

/// A configuration for one core on a free port in front of these backends.
pub fn config(backends: &[&Backend]) -> GatewayConfig {
    GatewayConfig {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        backends: backends
            .iter()
            .map(|backend| BackendConfig::new(backend.url()))
            .collect(),
        threads: 1,
        ..GatewayConfig::default()
    }
}

/// A gateway in front of one backend, with a changed configuration.
pub fn gateway_with(backend: &Backend, change: impl FnOnce(&mut GatewayConfig)) -> (Handle, SocketAddr) {
    let mut config = config(&[backend]);
    change(&mut config);
    start(config)
}

pub fn gateway(backend: &Backend) -> (Handle, SocketAddr) {
    gateway_with(backend, |_| {})
}

pub fn start(config: GatewayConfig) -> (Handle, SocketAddr) {
    let handle = Gateway::start(config).unwrap();
    let address = handle.local_addrs()[0];
    (handle, address)
}

/// Waits until `condition` holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The period so far.
pub fn take(handle: &Handle) -> headroom_gateway::PeriodStats {
    let period = handle.take_period_blocking(PATIENCE);
    assert_eq!(period.cores_missing, 0);
    period
}
