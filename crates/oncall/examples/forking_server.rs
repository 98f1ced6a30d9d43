//! A server with a process per connection. The tests of the preload library run it.
//!
//! `forking_server parent WAIT` accepts in the parent and forks a child for each connection, as PostgreSQL does; `forking_server CHILDREN
//! WAIT` forks so many children first, each of which accepts for itself, as httpd's prefork MPM and PHP-FPM do. WAIT is how a child
//! waits for its client: `epoll`, beside a pipe, after a read that finds nothing (PostgreSQL); `poll`, `select`, or `read`, in a read that
//! blocks.
//!
//! It writes its port on its standard output, and serves lines:
//!
//! | line | does |
//! |---|---|
//! | `spin MICROSECONDS` | computes |
//! | `take` | takes the one lock, a semaphore that all processes share, and keeps it until `give` |
//! | `give` | gives it back |
//! | `latch` | waits, in an epoll set of its own, for what the next `fill` writes |
//! | `pipe` | waits for that in read(2) |
//! | `fill` | writes a byte into the pipe |
//! | `run` | forks and executes a program, and waits for it |
//! | `die` | is killed in the midst of the query |
//! | `end` | ends without closing its connection |
//!
//! Each is answered with `ok` and a line's end.

use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::net::TcpListener;
use std::os::fd::IntoRawFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

#[repr(C)]
struct PollFd {
    fd: c_int,
    events: i16,
    revents: i16,
}

#[cfg_attr(target_arch = "x86_64", repr(C, packed))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C))]
#[derive(Clone, Copy)]
struct EpollEvent {
    events: u32,
    data: u64,
}

// SAFETY: libc's, with the types of its manual. By its names, since what the preload library takes over are names.
unsafe extern "C" {
    fn poll(fds: *mut PollFd, count: u64, milliseconds: c_int) -> c_int;
    fn select(count: c_int, reads: *mut u64, writes: *mut u64, errors: *mut u64, time: *mut c_void) -> c_int;
    fn epoll_create1(flags: c_int) -> c_int;
    fn epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut EpollEvent) -> c_int;
    fn epoll_wait(set: c_int, events: *mut EpollEvent, count: c_int, milliseconds: c_int) -> c_int;
    fn accept4(fd: c_int, address: *mut c_void, length: *mut c_void, flags: c_int) -> c_int;
    fn recv(fd: c_int, buffer: *mut c_void, length: usize, flags: c_int) -> isize;
    fn send(fd: c_int, buffer: *const c_void, length: usize, flags: c_int) -> isize;
    fn read(fd: c_int, buffer: *mut c_void, length: usize) -> isize;
    fn write(fd: c_int, buffer: *const c_void, length: usize) -> isize;
    fn close(fd: c_int) -> c_int;
    fn pipe(ends: *mut c_int) -> c_int;
    fn fork() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn signal(number: c_int, handler: usize) -> usize;
    fn raise(number: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
    fn execl(path: *const c_char, name: *const c_char, end: *const c_char) -> c_int;
    fn mmap(
        at: *mut c_void,
        length: usize,
        protection: c_int,
        flags: c_int,
        fd: c_int,
        from: i64,
    ) -> *mut c_void;
    fn sem_init(semaphore: *mut c_void, shared: c_int, value: u32) -> c_int;
    fn sem_wait(semaphore: *mut c_void) -> c_int;
    fn sem_post(semaphore: *mut c_void) -> c_int;
}

const MSG_NOSIGNAL: c_int = 0x4000;
const NONBLOCK_CLOEXEC: c_int = 0x80800;
const CLOEXEC: c_int = 0x80000;

/// What all processes share.
struct Shared {
    lock: usize,
    pipe: [c_int; 2],
}

static SHARED: OnceLock<Shared> = OnceLock::new();

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or_default();
    let wait: &'static str = arguments.next().unwrap_or_default().leak();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors; new memory, shared and of nobody's file, with a semaphore for all processes in it.
    let lock = unsafe {
        if pipe(ends.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let lock = mmap(std::ptr::null_mut(), 4096, 3, 0x21, -1, 0);
        sem_init(lock, 1, 1);
        lock as usize
    };
    SHARED.get_or_init(|| Shared { lock, pipe: ends });
    let fd = listener.into_raw_fd();
    match mode.parse::<usize>() {
        Ok(children) => {
            for _ in 0..children {
                // SAFETY: this process has one thread.
                if unsafe { fork() } == 0 {
                    accept_for_good(fd, wait);
                }
            }
            loop {
                // SAFETY: a child that ended is replaced, as prefork servers do.
                unsafe {
                    waitpid(-1, std::ptr::null_mut(), 0);
                    if fork() == 0 {
                        accept_for_good(fd, wait);
                    }
                }
            }
        }
        Err(_) => loop {
            // SAFETY: SIGCHLD is 17 and SIG_IGN 1; no address is asked for; this process has one thread.
            unsafe {
                signal(17, 1);
                let client = accept4(fd, std::ptr::null_mut(), std::ptr::null_mut(), flags(wait));
                if client >= 0 && fork() == 0 {
                    signal(17, 0);
                    close(fd);
                    serve(client, wait);
                    std::process::exit(0);
                }
                close(client);
            }
        },
    }
}

fn flags(wait: &str) -> c_int {
    if wait == "read" { CLOEXEC } else { NONBLOCK_CLOEXEC }
}

fn accept_for_good(fd: c_int, wait: &str) -> ! {
    loop {
        // SAFETY: no address is asked for, and the connection is ours to close.
        unsafe {
            let client = accept4(fd, std::ptr::null_mut(), std::ptr::null_mut(), flags(wait));
            if client >= 0 {
                serve(client, wait);
                close(client);
            }
        }
    }
}

/// A set with a connection and the read end of a pipe that nobody writes, as a latch.
fn epoll_set(fd: c_int) -> c_int {
    let mut latch = [0; 2];
    // SAFETY: room for two descriptors, and records that outlive the calls.
    unsafe {
        pipe(latch.as_mut_ptr());
        let set = epoll_create1(CLOEXEC);
        for (fd, data) in [(latch[0], 1), (fd, 2)] {
            let mut event = EpollEvent { events: 1, data };
            epoll_ctl(set, 1, fd, &raw mut event);
        }
        set
    }
}

/// Waits until the connection has something to read.
fn wait_for(fd: c_int, set: c_int, wait: &str) {
    // SAFETY: records and bits that outlive the calls.
    unsafe {
        match wait {
            "epoll" => {
                let mut event = EpollEvent { events: 0, data: 0 };
                while epoll_wait(set, &raw mut event, 1, -1) == 1 && event.data != 2 {}
            }
            "poll" => {
                let mut one = PollFd {
                    fd,
                    events: 1,
                    revents: 0,
                };
                poll(&raw mut one, 1, -1);
            }
            _ => {
                let mut bits = [0u64; 16];
                bits[fd as usize / 64] |= 1 << (fd % 64);
                let none = std::ptr::null_mut();
                select(fd + 1, bits.as_mut_ptr(), none, none, none.cast());
            }
        }
    }
}

fn serve(fd: c_int, wait: &str) {
    let set = if wait == "epoll" { epoll_set(fd) } else { -1 };
    let mut line = [0u8; 64];
    loop {
        // SAFETY: a buffer of the length that is said.
        let length = unsafe {
            match wait {
                "read" => read(fd, line.as_mut_ptr().cast(), line.len()),
                _ => recv(fd, line.as_mut_ptr().cast(), line.len(), 0),
            }
        };
        if length < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock {
            wait_for(fd, set, wait);
            continue;
        }
        let text = std::str::from_utf8(&line[..usize::try_from(length).unwrap_or(0)]).unwrap_or_default();
        let mut words = text.split_whitespace();
        let command = words.next().unwrap_or_default();
        if length <= 0 || command == "end" {
            break;
        }
        carry_out(
            command,
            words.next().and_then(|word| word.parse().ok()).unwrap_or(0),
        );
        // SAFETY: three bytes.
        unsafe { send(fd, c"ok\n".as_ptr().cast(), 3, MSG_NOSIGNAL) };
    }
    if set >= 0 {
        // SAFETY: ours.
        unsafe { close(set) };
    }
}

fn carry_out(command: &str, number: u64) {
    let Some(shared) = SHARED.get() else { return };
    let lock = shared.lock as *mut c_void;
    let mut byte = [0u8; 1];
    // SAFETY: the semaphore is mapped for good; one byte of ours; records that outlive the calls; the child does nothing but execute
    // a program.
    unsafe {
        match command {
            "spin" => {
                let end = Instant::now() + Duration::from_micros(number);
                while Instant::now() < end {
                    std::hint::spin_loop();
                }
            }
            "take" => while sem_wait(lock) != 0 {},
            "give" => {
                sem_post(lock);
            }
            "latch" => {
                let set = epoll_create1(CLOEXEC);
                let mut event = EpollEvent { events: 1, data: 0 };
                epoll_ctl(set, 1, shared.pipe[0], &raw mut event);
                epoll_wait(set, &raw mut event, 1, -1);
                close(set);
                read(shared.pipe[0], byte.as_mut_ptr().cast(), 1);
            }
            "pipe" => {
                read(shared.pipe[0], byte.as_mut_ptr().cast(), 1);
            }
            "fill" => {
                write(shared.pipe[1], byte.as_ptr().cast(), 1);
            }
            "run" => match fork() {
                0 => {
                    execl(
                        c"/bin/true".as_ptr(),
                        c"true".as_ptr(),
                        std::ptr::null::<c_char>(),
                    );
                    _exit(127);
                }
                child => {
                    waitpid(child, std::ptr::null_mut(), 0);
                }
            },
            "die" => {
                raise(9);
            }
            _ => {}
        }
    }
}
