//! What is asked: an HTTP server or a memcached, by size.

use super::machine;
use anyhow::anyhow;
use bytes::Bytes;
use headroom_console::Failure;
use headroom_load::http::{self, Paths};
use headroom_load::{Bursts, LoadHandle, memcached};
use headroom_record::profile::{Plan, Protocol, ServiceFacts};
use headroom_units::{Ratio, Seconds};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// What a URL has in the place of the size.
const SIZE: &str = "{size}";
/// How long the first answer is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a first answer's head that are read at most.
const MAX_HEAD: u64 = 64 << 10;

/// The service to profile.
#[derive(Clone, Debug)]
pub struct Target {
    protocol: Protocol,
    /// With `{size}` where it is HTTP.
    url: String,
    host: String,
    port: u16,
    threads: usize,
    timeout: Seconds,
    keys: Option<usize>,
}

impl Target {
    /// Of a URL: `http://HOST[:PORT][/PATH]`, below which `{size}` is put where it has none, or `memcached://HOST[:PORT]`.
    ///
    /// # Errors
    /// It is neither.
    pub fn new(url: &str, threads: usize, timeout: Seconds, keys: Option<usize>) -> Result<Self, Failure> {
        let no = |why: &str| {
            Failure::usage(anyhow!(
                "`{url}` {why}: write http://HOST[:PORT]/{SIZE} or memcached://HOST[:PORT]"
            ))
        };
        let (protocol, rest, port) = match url.split_once("://") {
            Some(("http", rest)) => (Protocol::Http, rest, 80),
            Some(("memcached", rest)) => (Protocol::Memcached, rest, 11_211),
            Some((scheme, _)) => return Err(no(&format!("is of {scheme}, which is not spoken"))),
            None => return Err(no("has no scheme")),
        };
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, number)) if !number.ends_with(']') => (
                host,
                number.parse().map_err(|_| no("has a port that is no number"))?,
            ),
            _ => (authority, port),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(no("has no host"));
        }
        let url = match protocol {
            Protocol::Http if url.contains(SIZE) => url.to_owned(),
            Protocol::Http => format!("{}/{SIZE}", url.trim_end_matches('/')),
            Protocol::Memcached if path.is_empty() || path == "/" => url.trim_end_matches('/').to_owned(),
            Protocol::Memcached => return Err(no("has a path, which memcached has not")),
        };
        Ok(Self {
            protocol,
            url,
            host: host.to_owned(),
            port,
            threads,
            timeout,
            keys,
        })
    }

    /// Its protocol.
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The addresses of its host.
    ///
    /// # Errors
    /// It has none.
    pub fn addresses(&self) -> Result<Vec<IpAddr>, Failure> {
        machine::addresses(&self.host, self.port)
    }

    /// Where it is, and what it says that it is.
    ///
    /// # Errors
    /// It does not answer.
    pub fn facts(&self, sizes: &[u64]) -> Result<ServiceFacts, Failure> {
        let software = match self.protocol {
            Protocol::Http => self.first_answer(sizes.first().copied().unwrap_or(0))?.software,
            Protocol::Memcached => self.version()?,
        };
        Ok(ServiceFacts {
            protocol: self.protocol,
            url: self.url.clone(),
            software,
        })
    }

    /// What is wrong with how it answers for a size, in words; `None` where nothing is. Only HTTP can be asked before it is filled.
    ///
    /// # Errors
    /// It does not answer.
    pub fn objection(&self, size: u64) -> Result<Option<String>, Failure> {
        if self.protocol == Protocol::Memcached {
            return Ok(None);
        }
        let answer = self.first_answer(size)?;
        let url = self.url_of(size);
        Ok(match (answer.status, answer.length) {
            (200, Some(length)) if length == size => None,
            (200, Some(length)) => Some(format!("{url} answers with {length} bytes instead of {size}")),
            (200, None) => None,
            (status, _) => Some(format!("{url} answers with status {status}")),
        })
    }

    fn url_of(&self, size: u64) -> String {
        self.url.replace(SIZE, &size.to_string())
    }

    /// A load on it of one size, for as long as one window sends.
    ///
    /// # Errors
    /// It cannot be started, or a memcached cannot be filled.
    pub fn start(
        &self,
        plan: &Plan,
        size: u64,
        density: f64,
        seed: u64,
        fills: bool,
    ) -> Result<LoadHandle, Failure> {
        let started = match self.protocol {
            Protocol::Http => http::start(self.http(plan, size, density, seed)),
            Protocol::Memcached => memcached::start(memcached::LoadConfig {
                fill: fills,
                ..self.memcached(plan, size, density)
            }),
        };
        started.map_err(Failure::usage)
    }

    /// Whether the loads of a plan can be offered, as far as that shows before they are: enough files may be open, and a memcached has room.
    ///
    /// # Errors
    /// They cannot, with the remedy.
    pub fn check(&self, plan: &Plan) -> Result<(), Failure> {
        let checked = match self.protocol {
            Protocol::Http => {
                let size = plan.sizes_bytes.first().copied().unwrap_or(1);
                http::check(self.http(plan, size, 1.0, plan.seed))
            }
            Protocol::Memcached => {
                let sizes = plan.sizes_bytes.iter();
                memcached::check(sizes.map(|size| self.memcached(plan, *size, 1.0)).collect())
            }
        };
        checked.map_err(Failure::usage)
    }

    fn http(&self, plan: &Plan, size: u64, density: f64, seed: u64) -> http::LoadConfig {
        http::LoadConfig {
            body: Bytes::new(),
            paths: Paths::Url,
            keep_alive: plan.keep_alive,
            warm_connections: plan.concurrency,
            max_connections: plan.concurrency,
            expect_bytes: Some(size),
            threads: self.threads.min(plan.concurrency),
            timeout: self.timeout,
            // A window ends with its last answer, however long that takes.
            grace: self.timeout,
            seed,
            ..http::LoadConfig::new(self.url_of(size), http::Pacing::Bursts(sending(plan, density)))
        }
    }

    fn memcached(&self, plan: &Plan, size: u64, density: f64) -> memcached::LoadConfig {
        let pacing = memcached::Pacing::Bursts(sending(plan, density));
        let mut config = memcached::LoadConfig::new(&*self.url, pacing, size as usize);
        config.keys = self.keys.unwrap_or(config.keys);
        memcached::LoadConfig {
            sets_share: Ratio::new(plan.sets_share),
            threads: self.threads.min(plan.concurrency),
            timeout: self.timeout,
            // A window ends with its last answer, however long that takes.
            grace: self.timeout,
            // The contents are of the seed, and are stored once.
            seed: plan.seed,
            ..config
        }
    }

    fn connect(&self) -> Result<TcpStream, Failure> {
        let no = |error: std::io::Error| {
            Failure::usage(anyhow!(
                "{}:{} does not answer ({error}): start the service, or give another --url",
                self.host,
                self.port
            ))
        };
        let addresses = (&*self.host, self.port).to_socket_addrs().map_err(no)?;
        let mut last = std::io::Error::other("its name has no address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE))?;
                    stream.set_write_timeout(Some(PATIENCE))?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(no(last))
    }

    fn version(&self) -> Result<String, Failure> {
        let mut stream = self.connect()?;
        let mut line = String::new();
        stream.write_all(b"version\r\n")?;
        BufReader::new(stream.take(1024)).read_line(&mut line)?;
        match line.trim().strip_prefix("VERSION ") {
            Some(version) => Ok(format!("memcached {version}")),
            None => Err(Failure::usage(anyhow!(
                "{}:{} answers {:?} to memcached's `version`: it is no memcached",
                self.host,
                self.port,
                line.trim()
            ))),
        }
    }

    /// The head of the answer for a size.
    fn first_answer(&self, size: u64) -> Result<Head, Failure> {
        let url = self.url_of(size);
        let path = url
            .split_once("://")
            .and_then(|(_, rest)| rest.find('/').map(|at| rest[at..].to_owned()));
        let (path, mut stream) = (path.unwrap_or_else(|| "/".to_owned()), self.connect()?);
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        // In one write: a server that answers its first part alone may close with the rest unread.
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}:{}\r\nConnection: close\r\n\r\n",
            self.port
        );
        stream.write_all(request.as_bytes())?;
        let mut head = Head::default();
        let mut lines = BufReader::new(stream.take(MAX_HEAD)).lines();
        let no = || {
            Failure::usage(anyhow!(
                "{url} answers with no HTTP: is it another service's port?"
            ))
        };
        let first = lines.next().ok_or_else(no)?.map_err(|_| no())?;
        let mut words = first.split(' ');
        if !words.next().is_some_and(|word| word.starts_with("HTTP/1.")) {
            return Err(no());
        }
        head.status = words.next().and_then(|word| word.parse().ok()).ok_or_else(no)?;
        for line in lines {
            let line = line.map_err(|_| no())?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => head.length = value.trim().parse().ok(),
                "server" => value.trim().clone_into(&mut head.software),
                _ => {}
            }
        }
        Ok(head)
    }
}

/// The part of one window in which requests are sent: its pause is waited for by who measures, so that the load's duration ends with its
/// last answer.
fn sending(plan: &Plan, density: f64) -> Bursts {
    Bursts::closed(plan.concurrency, Seconds::new(plan.window_s * density))
}

/// What is read of a first answer.
#[derive(Debug, Default)]
struct Head {
    status: u16,
    /// Absent of a body in chunks: how long it is, the load says.
    length: Option<u64>,
    software: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn target(url: &str) -> Result<Target, Failure> {
        Target::new(url, 1, Seconds::new(10.0), None)
    }

    #[test]
    fn a_url_without_a_place_for_the_size_gets_one() {
        let url = |text: &str| target(text).unwrap().url;
        assert_eq!(url("http://web1"), "http://web1/{size}");
        assert_eq!(url("http://web1:8080/files/"), "http://web1:8080/files/{size}");
        assert_eq!(url("http://web1/get?n={size}"), "http://web1/get?n={size}");
        assert_eq!(url("memcached://[::1]:11211/"), "memcached://[::1]:11211");
        assert_eq!(target("memcached://[::1]").unwrap().port, 11_211);
        assert_eq!(
            target("http://web1/get?n={size}").unwrap().url_of(1024),
            "http://web1/get?n=1024"
        );
    }

    #[test]
    fn what_cannot_be_asked_is_refused_with_the_remedy() {
        for (url, word) in [
            ("https://web1/", "is of https"),
            ("web1", "has no scheme"),
            ("http://", "has no host"),
            ("http://web1:x/", "a port that is no number"),
            ("memcached://web1/keys", "has a path"),
        ] {
            let why = target(url).unwrap_err().to_string();
            assert!(
                why.contains(word) && why.contains("memcached://HOST[:PORT]"),
                "{why}"
            );
        }
    }

    #[test]
    fn an_answer_of_another_size_is_said_before_it_is_measured() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let answers = [
            "HTTP/1.1 200 OK\r\nServer: test\r\nContent-Length: 7\r\n\r\nseven b",
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            "SSH-2.0-OpenSSH\r\n",
        ];
        let server = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        let target = target(&format!("http://127.0.0.1:{port}/")).unwrap();
        let objection = target.objection(1024).unwrap().unwrap();
        assert!(
            objection.ends_with("/1024 answers with 7 bytes instead of 1024"),
            "{objection}"
        );
        assert!(target.objection(1024).unwrap().unwrap().contains("status 404"));
        assert!(
            target
                .objection(1024)
                .unwrap_err()
                .to_string()
                .contains("no HTTP")
        );
        server.join().unwrap();
        assert!(
            target
                .objection(1024)
                .unwrap_err()
                .to_string()
                .contains("start the service")
        );
    }

    /// A memcached of so much memory and so large items, as far as it is asked before it is filled.
    fn memcached_of(limit_maxbytes: u64, item_size_max: u64) -> (Target, std::thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("memcached://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut asked = BufReader::new(&stream).lines();
            while let Some(Ok(line)) = asked.next() {
                let stat = match &*line {
                    "stats settings" => format!("STAT item_size_max {item_size_max}"),
                    _ => format!("STAT limit_maxbytes {limit_maxbytes}"),
                };
                (&stream)
                    .write_all(format!("{stat}\r\nEND\r\n").as_bytes())
                    .unwrap();
            }
        });
        (target(&url).unwrap(), server)
    }

    #[test]
    fn a_memcached_without_room_for_all_sizes_is_refused_before_it_is_filled() {
        let plan = |sizes_bytes: &[u64], concurrency| Plan {
            sizes_bytes: sizes_bytes.to_vec(),
            concurrency,
            window_s: 1.0,
            ..Plan::default()
        };
        let checked = |memory, item, plan: &Plan| {
            let (target, server) = memcached_of(memory, item);
            let checked = target.check(plan).map_err(|error| error.to_string());
            server.join().unwrap();
            checked
        };
        // 10,000 keys of 1 KB and 1,638 of 10 KB: 10 and 17 MB.
        let two = plan(&[1024, 10_240], 2);
        assert_eq!(checked(64 << 20, 1 << 20, &two), Ok(()));
        let small = checked(20 << 20, 1 << 20, &two).unwrap_err();
        assert!(
            small.contains("10000 keys of 1024 bytes and 1638 keys of 10240 bytes are 2")
                && small.contains("-m 1024"),
            "{small}"
        );
        let items = checked(64 << 20, 4096, &two).unwrap_err();
        assert!(
            items.contains("a value of 10240 bytes") && items.contains("-I"),
            "{items}"
        );
    }

    #[test]
    fn more_connections_than_a_load_may_have_are_refused_before_it_is_offered() {
        let plan = Plan {
            sizes_bytes: vec![1024],
            concurrency: 60_001,
            window_s: 1.0,
            ..Plan::default()
        };
        let refused = target("http://127.0.0.1:1").unwrap().check(&plan);
        assert!(refused.unwrap_err().to_string().contains("60,000"));
    }
}
