//! Lines of JSON over a Unix stream socket.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The longest line; whoever sends a longer one is cut off.
const MAX_LINE_BYTES: usize = 64 << 10;

/// The receiving half.
#[derive(Debug)]
pub struct Lines {
    stream: UnixStream,
    buffer: Vec<u8>,
}

impl Lines {
    /// Reads from a socket from now on.
    pub fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// The next line; nothing where none comes within a time.
    ///
    /// # Errors
    /// The other end is closed, or sends what is no line of the protocol.
    pub fn next<T: DeserializeOwned>(&mut self, within: Duration) -> io::Result<Option<T>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return serde_json::from_slice(&line).map(Some).map_err(io::Error::other);
            }
            if self.buffer.len() > MAX_LINE_BYTES {
                return Err(io::Error::other("a line of the guard's protocol is too long"));
            }
            // No time at all would mean for ever.
            self.stream
                .set_read_timeout(Some(within.max(Duration::from_millis(1))))?;
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.buffer.extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Sends a line, and waits for nothing: where the other end does not read, it is lost.
///
/// # Errors
/// The other end is closed, or does not read.
pub fn send(stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    use rustix::net::SendFlags;
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    // So short a message is taken as a whole or not at all by a Unix socket.
    let sent = rustix::net::send(stream, &line, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    match sent == line.len() {
        true => Ok(()),
        false => Err(ErrorKind::WriteZero.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FromGuard, ToGuard};
    use super::*;
    use std::io::Write;

    const SOON: Duration = Duration::from_millis(10);

    #[test]
    fn lines_are_read_whole_and_in_order() {
        let (mut owner, guard) = UnixStream::pair().unwrap();
        let mut lines = Lines::new(guard);
        assert!(lines.next::<ToGuard>(SOON).unwrap().is_none());
        send(&owner, &ToGuard::Rest { pulse: 7 }).unwrap();
        owner.write_all(b"\"pi").unwrap();
        assert!(matches!(
            lines.next(SOON).unwrap(),
            Some(ToGuard::Rest { pulse: 7 })
        ));
        assert!(lines.next::<ToGuard>(SOON).unwrap().is_none(), "half a line");
        owner.write_all(b"ng\"\n").unwrap();
        assert!(matches!(lines.next(SOON).unwrap(), Some(ToGuard::Ping)));
        drop(owner);
        assert!(lines.next::<ToGuard>(SOON).is_err());
    }

    #[test]
    fn what_is_no_line_of_the_protocol_ends_it() {
        let (mut owner, guard) = UnixStream::pair().unwrap();
        owner.write_all(b"{\"dance\":1}\n").unwrap();
        assert!(Lines::new(guard).next::<FromGuard>(SOON).is_err());
        let (owner, guard) = UnixStream::pair().unwrap();
        let mut lines = Lines::new(guard);
        let writer = std::thread::spawn(move || (&owner).write_all(&[b'x'; 2 * MAX_LINE_BYTES]));
        while let Ok(None) = lines.next::<FromGuard>(SOON) {}
        drop(lines);
        // It is cut off before or after its last byte.
        let _ = writer.join().unwrap();
    }
}
