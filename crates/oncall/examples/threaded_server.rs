//! A server with a thread per connection that waits as MariaDB does: recv without waiting, poll, recv, send. The tests of the preload
//! library run it.
//!
//! `threaded_server read` waits in a blocking read(2) instead, as many simple servers do, and `threaded_server select` in select(2);
//! `threaded_server greets` speaks first, with `ok` and a line's end.
//!
//! It writes its port on its standard output, and serves lines:
//!
//! | line | does |
//! |---|---|
//! | `spin MICROSECONDS` | computes |
//! | `take` | takes the one row lock, by a condition variable, and keeps it until `give` |
//! | `give` | gives it back |
//! | `late MICROSECONDS` | computes, and then takes it |
//! | `more` | waits for another line of its client's before it answers |
//! | `pipe` | waits in read(2) of a pipe for what the next `fill` of any connection writes |
//! | `fill` | writes into it |
//! | `fork` | forks a child that exits, and waits for it |
//! | `vanish` | ends its thread inside a query, as a cancelled one does, and leaves the connection open |
//! | `status FLAGS` | answers with MySQL's OK packet with these status flags first |
//! | `fails NUMBER` | answers with MySQL's ERR packet with this number first |
//! | `ends NUMBER` | answers with that alone, and closes the connection |
//! | `http STATUS` | answers with a status line of HTTP first |
//! | `patience MILLISECONDS` | closes the connection where no line comes for so long |
//!
//! Each is answered with `ok` and a line's end.

use std::ffi::{c_int, c_long, c_ulong, c_void};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

#[repr(C)]
struct PollFd {
    fd: c_int,
    events: i16,
    revents: i16,
}

// SAFETY: libc's, with the types of its manual. By its names, since what the preload library takes over are names.
unsafe extern "C" {
    fn poll(fds: *mut PollFd, count: c_ulong, milliseconds: c_int) -> c_int;
    fn accept4(fd: c_int, address: *mut c_void, length: *mut c_void, flags: c_int) -> c_int;
    fn recv(fd: c_int, buffer: *mut c_void, length: usize, flags: c_int) -> isize;
    fn send(fd: c_int, buffer: *const c_void, length: usize, flags: c_int) -> isize;
    fn select(count: c_int, reads: *mut u64, writes: *mut u64, errors: *mut u64, time: *mut c_void) -> c_int;
    fn read(fd: c_int, buffer: *mut c_void, length: usize) -> isize;
    fn write(fd: c_int, buffer: *const c_void, length: usize) -> isize;
    fn close(fd: c_int) -> c_int;
    fn pipe(ends: *mut c_int) -> c_int;
    fn fork() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
    fn pthread_create(
        thread: *mut c_ulong,
        attributes: *const c_void,
        body: extern "C" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
    fn pthread_detach(thread: c_ulong) -> c_int;
}

const MSG_DONTWAIT: c_int = 0x40;
const MSG_NOSIGNAL: c_int = 0x4000;

/// How connections wait for their clients.
static HOW: OnceLock<String> = OnceLock::new();
static GREETS: AtomicBool = AtomicBool::new(false);
static LOCKED: Mutex<bool> = Mutex::new(false);
static UNLOCKED: Condvar = Condvar::new();
static PIPE: Mutex<[c_int; 2]> = Mutex::new([0; 2]);

fn main() -> io::Result<()> {
    let how = std::env::args().nth(1).unwrap_or_default();
    GREETS.store(how == "greets", Relaxed);
    HOW.get_or_init(|| if how == "greets" { String::new() } else { how });
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    if unsafe { pipe(ends.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    *PIPE.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = ends;
    let fd = listener.as_raw_fd();
    loop {
        // SAFETY: no address is asked for; SOCK_CLOEXEC.
        let client = unsafe { accept4(fd, std::ptr::null_mut(), std::ptr::null_mut(), 0x80000) };
        if client < 0 {
            let _ = listener.into_raw_fd();
            return Err(io::Error::last_os_error());
        }
        let mut thread = 0;
        // SAFETY: the argument is a number, and the thread is nobody's to join.
        unsafe {
            if pthread_create(
                &raw mut thread,
                std::ptr::null(),
                serve,
                client as c_long as *mut c_void,
            ) == 0
            {
                pthread_detach(thread);
            }
        }
    }
}

/// A connection's thread: it holds nothing that its cancellation would have to free.
extern "C" fn serve(client: *mut c_void) -> *mut c_void {
    let fd = client as c_long as c_int;
    let mut patience = -1;
    let mut line = [0u8; 64];
    if GREETS.load(Relaxed) {
        // SAFETY: as many bytes as are said.
        unsafe { send(fd, b"ok\n".as_ptr().cast(), 3, MSG_NOSIGNAL) };
    }
    loop {
        // SAFETY: a buffer of the length that is said, and one record.
        let length = unsafe {
            let how = HOW.get().map_or("", String::as_str);
            if how == "select" {
                let mut bits = [0u64; 16];
                bits[fd as usize / 64 % 16] |= 1 << (fd % 64);
                let none = std::ptr::null_mut();
                select(fd + 1, bits.as_mut_ptr(), none, none, none.cast());
            }
            let mut read = match how {
                "" => recv(fd, line.as_mut_ptr().cast(), line.len(), MSG_DONTWAIT),
                _ => read(fd, line.as_mut_ptr().cast(), line.len()),
            };
            if read < 0 && how.is_empty() {
                let mut one = PollFd {
                    fd,
                    events: 1,
                    revents: 0,
                };
                let ready = poll(&raw mut one, 1, patience);
                if ready == 0 {
                    break;
                }
                read = recv(fd, line.as_mut_ptr().cast(), line.len(), 0);
            }
            read
        };
        if length <= 0 {
            break;
        }
        let text = std::str::from_utf8(&line[..length as usize]).unwrap_or_default();
        let mut words = text.split_whitespace();
        let command = words.next().unwrap_or_default();
        let number: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        match command {
            "patience" => patience = number as c_int,
            "vanish" => return std::ptr::null_mut(),
            "more" => {
                let mut one = PollFd {
                    fd,
                    events: 1,
                    revents: 0,
                };
                // SAFETY: one record, and a buffer of the length that is said.
                unsafe {
                    poll(&raw mut one, 1, -1);
                    recv(fd, line.as_mut_ptr().cast(), line.len(), 0);
                }
            }
            "status" => {
                let [low, high, ..] = number.to_le_bytes();
                let packet = [7, 0, 0, 1, 0, 0, 0, low, high, 0, 0];
                // SAFETY: as many bytes as are said.
                unsafe { send(fd, packet.as_ptr().cast(), packet.len(), MSG_NOSIGNAL) };
            }
            "fails" | "ends" => {
                let [low, high, ..] = number.to_le_bytes();
                let packet = [9, 0, 0, 1, 255, low, high, b'#', b'H', b'Y', b'0', b'0', b'0'];
                // SAFETY: as many bytes as are said.
                unsafe { send(fd, packet.as_ptr().cast(), packet.len(), MSG_NOSIGNAL) };
                if command == "ends" {
                    break;
                }
            }
            "http" => {
                let status = format!("HTTP/1.1 {number}\r\n");
                // SAFETY: as many bytes as are said.
                unsafe { send(fd, status.as_ptr().cast(), status.len(), MSG_NOSIGNAL) };
            }
            _ => carry_out(command, number),
        }
        // SAFETY: three bytes.
        unsafe { send(fd, c"ok\n".as_ptr().cast(), 3, MSG_NOSIGNAL) };
    }
    // SAFETY: the connection is ours.
    unsafe { close(fd) };
    std::ptr::null_mut()
}

fn carry_out(command: &str, number: u64) {
    match command {
        "spin" => spin(number),
        "take" => take(),
        "late" => {
            spin(number);
            take();
        }
        "give" => {
            *LOCKED.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = false;
            UNLOCKED.notify_one();
        }
        "pipe" | "fill" => {
            let ends = *PIPE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let mut byte = [0u8; 1];
            // SAFETY: one byte of ours.
            unsafe {
                match command {
                    "pipe" => read(ends[0], byte.as_mut_ptr().cast(), 1),
                    _ => write(ends[1], byte.as_ptr().cast(), 1),
                };
            }
        }
        // SAFETY: the child does nothing but end.
        "fork" => unsafe {
            match fork() {
                0 => _exit(0),
                child => waitpid(child, std::ptr::null_mut(), 0),
            };
        },
        _ => {}
    }
}

fn spin(microseconds: u64) {
    let end = Instant::now() + Duration::from_micros(microseconds);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

fn take() {
    let mut is_locked = LOCKED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    while *is_locked {
        is_locked = UNLOCKED
            .wait(is_locked)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
    }
    *is_locked = true;
}
