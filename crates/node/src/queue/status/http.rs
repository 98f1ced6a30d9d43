//! One page over HTTP/1.0, bounded in time and length.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// A server has this long for the whole exchange.
const PATIENCE: Duration = Duration::from_secs(1);
/// Addresses of the host that are tried, one after the other.
const MAX_ADDRESSES: usize = 4;
/// A status page with one character for each of 20 000 workers is shorter.
const MAX_PAGE_BYTES: usize = 64 << 10;

/// The address of a server's status page: `http://host[:port]/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusPage {
    authority: String,
    path: String,
}

impl FromStr for StatusPage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fail = |why: &str| Err(format!("\"{text}\" is no address of a status page: {why}"));
        let Some(rest) = text.strip_prefix("http://") else {
            return fail("it starts with http://");
        };
        if rest.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return fail("it has no blanks");
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.is_empty() || authority.contains('@') {
            return fail("after http:// comes a host");
        }
        Ok(Self {
            authority: authority.into(),
            path: format!("/{path}"),
        })
    }
}

impl fmt::Display for StatusPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

impl StatusPage {
    /// Gets the page. A refusal's status line is an error.
    pub(super) fn get(&self) -> io::Result<String> {
        let until = Instant::now() + PATIENCE;
        let has_port = self
            .authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = match has_port {
            true => self.authority.clone(),
            false => format!("{}:80", self.authority),
        };
        let addresses: Vec<SocketAddr> = authority.to_socket_addrs()?.take(MAX_ADDRESSES).collect();
        let mut stream = connect(&addresses)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let request = format!(
            "GET {} HTTP/1.0\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.path, self.authority
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left))?;
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => answer.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if answer.len() > MAX_PAGE_BYTES {
                return Err(io::Error::other("the page is longer than any status page"));
            }
        }
        body(&String::from_utf8_lossy(&answer))
    }
}

/// Connects to the first of a host's addresses that answers: a name may stand for one of each family, and a server may
/// listen on one alone. Each has its share of the time.
fn connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut refused = io::Error::other("the host has no address");
    for address in addresses {
        let share = PATIENCE / u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        match TcpStream::connect_timeout(address, share) {
            Ok(stream) => return Ok(stream),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// What follows the headers of a good answer.
fn body(answer: &str) -> io::Result<String> {
    let fail = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        return fail("the answer is not HTTP".into());
    };
    let status = head.lines().next().unwrap_or_default();
    let mut words = status.split(' ');
    match (words.next(), words.next()) {
        (Some(version), Some("200")) if version.starts_with("HTTP/1.") => Ok(body.into()),
        _ => fail(format!("the answer is \"{}\"", crate::file::shorten(status))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_address_has_a_host_and_a_path() {
        for (text, shown) in [
            (
                "http://127.0.0.1:81/nginx_status",
                "http://127.0.0.1:81/nginx_status",
            ),
            (
                "http://localhost/server-status?auto",
                "http://localhost/server-status?auto",
            ),
            ("http://[::1]:80", "http://[::1]:80/"),
        ] {
            assert_eq!(text.parse::<StatusPage>().unwrap().to_string(), shown);
        }
        for text in [
            "https://a/",
            "a/b",
            "http:///b",
            "http://a/b c",
            "http://u@a/",
            "http://a/\r\nX: y",
        ] {
            assert!(
                text.parse::<StatusPage>()
                    .unwrap_err()
                    .contains("no address of a status page"),
                "{text}"
            );
        }
    }

    #[test]
    fn the_next_address_of_a_host_is_tried_where_one_does_not_answer() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let open = server.local_addr().unwrap();
        assert_eq!(connect(&[closed, open]).unwrap().peer_addr().unwrap(), open);
        assert_eq!(
            connect(&[closed]).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        assert!(connect(&[]).unwrap_err().to_string().contains("no address"));
    }

    #[test]
    fn only_a_good_answer_has_a_page() {
        assert_eq!(body("HTTP/1.1 200 OK\r\nA: b\r\n\r\nx: 1\n").unwrap(), "x: 1\n");
        for (answer, word) in [
            ("HTTP/1.1 403 Forbidden\r\n\r\nno", "403 Forbidden"),
            ("SSH-2.0-OpenSSH", "not HTTP"),
            ("", "not HTTP"),
        ] {
            assert!(body(answer).unwrap_err().to_string().contains(word));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC*", head in "HTTP/1.[01] [0-9]{0,4}[ a-z]{0,9}\r\n\r\n") {
            let _ = body(&text);
            let _ = body(&head);
            let _ = text.parse::<StatusPage>();
        }
    }
}
