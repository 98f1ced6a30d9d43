//! What the kernel knows of a connection (`TCP_INFO` of tcp(7)).

use std::mem::{MaybeUninit, offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd};

/// The segments that were sent again since the connection was begun, its SYN too (`tcpi_total_retrans`); `None` where the kernel does not
/// say, as of a socket that is not TCP.
///
/// Where a listen queue is full the kernel drops a SYN, or the last step of the handshake behind it, without a word (`tcp_abort_on_overflow`
/// of tcp(7)): the one who connects sees only that it took longer, by a second or by a fifth of one.
pub(crate) fn retransmits(socket: impl AsFd) -> Option<u32> {
    let end = offset_of!(libc::tcp_info, tcpi_total_retrans) + size_of::<u32>();
    info(socket, end).map(|info| info.tcpi_total_retrans)
}

/// The bytes that the other end has acknowledged (`tcpi_bytes_acked`); `None` where the kernel does not say.
pub(crate) fn acknowledged(socket: impl AsFd) -> Option<u64> {
    let end = offset_of!(libc::tcp_info, tcpi_bytes_acked) + size_of::<u64>();
    info(socket, end).map(|info| info.tcpi_bytes_acked)
}

/// What the other end has done to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    /// It sends no more.
    Ended,
    Reset,
}

/// The same of this one (`tcpi_state`); `None` where the kernel does not say.
pub(crate) fn state(socket: impl AsFd) -> Option<State> {
    // `TCP_CLOSE` and `TCP_CLOSE_WAIT` of the kernel's include/net/tcp_states.h.
    const CLOSE: u8 = 7;
    const CLOSE_WAIT: u8 = 8;
    let end = offset_of!(libc::tcp_info, tcpi_state) + size_of::<u8>();
    info(socket, end).map(|info| match info.tcpi_state {
        CLOSE => State::Reset,
        CLOSE_WAIT => State::Ended,
        _ => State::Open,
    })
}

/// Whether all that was sent is acknowledged (`tcpi_unacked`, `tcpi_notsent_bytes`); `None` where the kernel does not say.
pub(crate) fn is_acknowledged(socket: impl AsFd) -> Option<bool> {
    let end = offset_of!(libc::tcp_info, tcpi_notsent_bytes) + size_of::<u32>();
    info(socket, end).map(|info| info.tcpi_unacked == 0 && info.tcpi_notsent_bytes == 0)
}

/// What it knows, where that is at least so many bytes.
fn info(socket: impl AsFd, needed: usize) -> Option<libc::tcp_info> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is borrowed and so open; the buffer is as long as `length` says, and the kernel writes no further.
    #[allow(unsafe_code)]
    let failed = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if failed != 0 || (length as usize) < needed {
        return None;
    }
    // SAFETY: all of it is integers, it was zeroed, and the kernel wrote as much of it as is read.
    #[allow(unsafe_code)]
    let info = unsafe { info.assume_init() };
    Some(info)
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    #[test]
    fn a_listen_queue_that_was_full_shows() {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener
            .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .unwrap();
        // One may wait, by the kernel's count one more than is said.
        listener.listen(0).unwrap();
        let listener = TcpListener::from(listener);
        let address = listener.local_addr().unwrap();
        let first = TcpStream::connect(address).unwrap();
        assert_eq!(retransmits(&first), Some(0));
        let second = std::thread::spawn(move || TcpStream::connect(address).unwrap());
        // Its SYN is dropped for as long as the first is not accepted; the next comes a second later.
        let begun = Instant::now();
        std::thread::sleep(Duration::from_millis(300));
        drop(listener.accept().unwrap());
        let second = second.join().unwrap();
        assert!(
            begun.elapsed() > Duration::from_millis(500),
            "{:?}",
            begun.elapsed()
        );
        assert!(retransmits(&second).unwrap() >= 1);
    }

    #[test]
    fn what_the_other_end_has_done_shows_behind_what_it_has_sent() {
        use std::io::Write;
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        client.write_all(b"unread").unwrap();
        assert_eq!(state(&server), Some(State::Open));
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(state(&server), Some(State::Ended));
        socket2::SockRef::from(&client)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(client);
        assert_eq!(state(&server), Some(State::Reset));
    }

    #[test]
    fn what_is_not_tcp_says_nothing() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(retransmits(&one), None);
    }
}
