//! A client for the services' tests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// An answer, as far as the tests look at it.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}

/// A keep-alive connection.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self(BufReader::new(stream))
    }

    pub(crate) fn send(&mut self, method: &str, path: &str) {
        write!(
            self.0.get_mut(),
            "{method} {path} HTTP/1.1\r\nhost: service\r\n\r\n"
        )
        .unwrap();
    }

    pub(crate) fn receive(&mut self, has_body: bool) -> Answer {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).expect("a status line").parse().unwrap();
        let mut headers = Vec::new();
        loop {
            line.clear();
            self.0.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let mut answer = Answer {
            status,
            headers,
            body: String::new(),
        };
        if has_body {
            let length: usize = answer.header("content-length").unwrap().parse().unwrap();
            let mut body = vec![0; length];
            self.0.read_exact(&mut body).unwrap();
            answer.body = String::from_utf8(body).unwrap();
        }
        answer
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.send("GET", path);
        self.receive(true)
    }

    /// Sends a form.
    pub(crate) fn post(&mut self, path: &str, form: &str) -> Answer {
        let stream = self.0.get_mut();
        let length = form.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: service\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: \
             {length}\r\n\r\n{form}"
        )
        .unwrap();
        self.receive(true)
    }
}
