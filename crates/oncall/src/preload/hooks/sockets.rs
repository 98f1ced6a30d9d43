//! Clients that come, what they send and are sent, and where they go.

use super::super::habit;
use super::super::join;
use super::super::layout::MAX_FD;
use super::super::lock;
use super::super::processes;
use super::super::sets;
use super::super::sys::{self, EpollEvent, PollFd};
use super::super::table;
use super::super::transactions::{self, Part};
use super::super::users;
use super::super::waits::{self, Patience, Waited};
use super::{aside, result, set_errno};
use core::ffi::{c_int, c_uint, c_void};

/// A client has come, or not.
fn accepted(fd: c_int) -> c_int {
    if fd >= 0 {
        aside(|| {
            join::arrived();
            table::accepted(fd);
        });
    }
    fd
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    type Listen = unsafe extern "C" fn(c_int, c_int) -> c_int;
    aside(join::arrived);
    next!("listen" as Listen, fd, backlog)
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn accept(fd: c_int, address: *mut c_void, length: *mut c_void) -> c_int {
    type Accept = unsafe extern "C" fn(c_int, *mut c_void, *mut c_void) -> c_int;
    accepted(next!("accept" as Accept, fd, address, length))
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn accept4(fd: c_int, address: *mut c_void, length: *mut c_void, flags: c_int) -> c_int {
    type Accept4 = unsafe extern "C" fn(c_int, *mut c_void, *mut c_void, c_int) -> c_int;
    accepted(next!("accept4" as Accept4, fd, address, length, flags))
}

/// A read of a descriptor into a buffer of so many bytes, where it is a client's: by `ordinarily`, whose result is libc's.
fn reading(
    fd: c_int,
    flags: c_int,
    (buffer, room): (*const c_void, usize),
    ordinarily: impl FnOnce() -> isize,
) -> isize {
    let read = reading_aside(fd, flags, ordinarily);
    // What is only looked at comes again. With MSG_TRUNC the result may be more than there was room for.
    if read > 0 && flags & sys::MSG_PEEK == 0 {
        users::note(fd, buffer, room.min(read.unsigned_abs()));
    }
    read
}

fn reading_aside(fd: c_int, flags: c_int, ordinarily: impl FnOnce() -> isize) -> isize {
    let Some((region, place)) = table::connection(fd) else {
        return ordinarily();
    };
    let never_waits = flags & sys::MSG_DONTWAIT != 0;
    if never_waits && flags & sys::MSG_PEEK != 0 {
        // Who looks whether its client is still there is to see what is.
        return ordinarily();
    }
    if lock::is_shared(region) {
        return processes::read((region, place), fd, never_waits, ordinarily).unwrap_or_else(again);
    }
    if never_waits && habit::spares(&region.connections[usize::from(place)]) {
        return again();
    }
    if !never_waits && waits::is_for_query(region, place) && sys::is_blocking(fd) {
        let mut poll = PollFd {
            fd,
            events: sys::POLLIN,
            revents: 0,
        };
        let patience = match sys::receive_timeout(fd) {
            None => Patience::Read,
            some => Patience::Poll(some),
        };
        match aside(|| waits::wait(region, place, &mut poll, patience)) {
            Waited::As(0) => return again(),
            // A read that waits in the kernel has the connection itself, whose end it is told; to read the number would take another's queries.
            Waited::Gone => return 0,
            Waited::As(raw @ ..0) => return result(raw) as isize,
            Waited::As(_) | Waited::Ordinarily | Waited::Others => {}
        }
    }
    let read = ordinarily();
    if never_waits {
        habit::looked(&region.connections[usize::from(place)], read);
    }
    if read > 0 && flags & sys::MSG_PEEK == 0 {
        aside(|| table::received(fd));
    }
    read
}

/// What a read says that would have to wait.
fn again() -> isize {
    set_errno(sys::EAGAIN as c_int);
    -1
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn recv(fd: c_int, buffer: *mut c_void, length: usize, flags: c_int) -> isize {
    type Recv = unsafe extern "C" fn(c_int, *mut c_void, usize, c_int) -> isize;
    reading(fd, flags, (buffer, length), || {
        next!("recv" as Recv, fd, buffer, length, flags)
    })
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn __recv_chk(fd: c_int, buffer: *mut c_void, length: usize, size: usize, flags: c_int) -> isize {
    type Checked = unsafe extern "C" fn(c_int, *mut c_void, usize, usize, c_int) -> isize;
    // Where there is no room, libc ends the program.
    reading(fd, flags, (buffer, length), || {
        next!("__recv_chk" as Checked, fd, buffer, length, size, flags)
    })
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    length: usize,
    flags: c_int,
    from: *mut c_void,
    from_length: *mut c_void,
) -> isize {
    type ReceiveFrom =
        unsafe extern "C" fn(c_int, *mut c_void, usize, c_int, *mut c_void, *mut c_void) -> isize;
    reading(fd, flags, (buffer, length), || {
        next!(
            "recvfrom" as ReceiveFrom,
            fd,
            buffer,
            length,
            flags,
            from,
            from_length
        )
    })
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn recvmsg(fd: c_int, message: *mut c_void, flags: c_int) -> isize {
    type ReceiveMessage = unsafe extern "C" fn(c_int, *mut c_void, c_int) -> isize;
    reading_aside(fd, flags, || {
        next!("recvmsg" as ReceiveMessage, fd, message, flags)
    })
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn read(fd: c_int, buffer: *mut c_void, length: usize) -> isize {
    type Read = unsafe extern "C" fn(c_int, *mut c_void, usize) -> isize;
    reading(fd, 0, (buffer, length), || {
        next!("read" as Read, fd, buffer, length)
    })
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn __read_chk(fd: c_int, buffer: *mut c_void, length: usize, size: usize) -> isize {
    type Checked = unsafe extern "C" fn(c_int, *mut c_void, usize, usize) -> isize;
    reading(fd, 0, (buffer, length), || {
        next!("__read_chk" as Checked, fd, buffer, length, size)
    })
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn readv(fd: c_int, parts: *const c_void, count: c_int) -> isize {
    type ReadParts = unsafe extern "C" fn(c_int, *const c_void, c_int) -> isize;
    reading_aside(fd, 0, || next!("readv" as ReadParts, fd, parts, count))
}

/// A write of a buffer to a descriptor, where it is a client's: by `ordinarily`, whose result is libc's.
fn sending(fd: c_int, buffer: *const c_void, ordinarily: impl FnOnce() -> isize) -> isize {
    let connection = table::sending(fd);
    let sent = ordinarily();
    if let Some(connection) = connection {
        transactions::sent(connection, buffer, usize::try_from(sent).unwrap_or(0));
    }
    sent
}

/// The same of several buffers.
fn sending_parts(fd: c_int, parts: *const Part, count: usize, ordinarily: impl FnOnce() -> isize) -> isize {
    let connection = table::sending(fd);
    let sent = ordinarily();
    if let Some(connection) = connection {
        transactions::sent_parts(connection, parts, count, usize::try_from(sent).unwrap_or(0));
    }
    sent
}

/// The beginning of `struct msghdr`.
#[repr(C)]
struct Message {
    name: *const c_void,
    name_length: u32,
    parts: *const Part,
    count: usize,
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn send(fd: c_int, buffer: *const c_void, length: usize, flags: c_int) -> isize {
    type Send = unsafe extern "C" fn(c_int, *const c_void, usize, c_int) -> isize;
    sending(fd, buffer, || next!("send" as Send, fd, buffer, length, flags))
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn sendto(
    fd: c_int,
    buffer: *const c_void,
    length: usize,
    flags: c_int,
    to: *const c_void,
    to_length: u32,
) -> isize {
    type SendTo = unsafe extern "C" fn(c_int, *const c_void, usize, c_int, *const c_void, u32) -> isize;
    sending(fd, buffer, || {
        next!("sendto" as SendTo, fd, buffer, length, flags, to, to_length)
    })
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn sendmsg(fd: c_int, message: *const Message, flags: c_int) -> isize {
    type SendMessage = unsafe extern "C" fn(c_int, *const Message, c_int) -> isize;
    // SAFETY: the caller's record, or null.
    let (parts, count) =
        unsafe { message.as_ref() }.map_or((core::ptr::null(), 0), |message| (message.parts, message.count));
    sending_parts(fd, parts, count, || {
        next!("sendmsg" as SendMessage, fd, message, flags)
    })
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn write(fd: c_int, buffer: *const c_void, length: usize) -> isize {
    type Write = unsafe extern "C" fn(c_int, *const c_void, usize) -> isize;
    sending(fd, buffer, || next!("write" as Write, fd, buffer, length))
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn writev(fd: c_int, parts: *const Part, count: c_int) -> isize {
    type WriteParts = unsafe extern "C" fn(c_int, *const Part, c_int) -> isize;
    sending_parts(fd, parts, usize::try_from(count).unwrap_or(0), || {
        next!("writev" as WriteParts, fd, parts, count)
    })
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn sendfile64(to: c_int, from: c_int, at: *mut c_void, length: usize) -> isize {
    type SendFile = unsafe extern "C" fn(c_int, c_int, *mut c_void, usize) -> isize;
    table::sending(to);
    next!("sendfile64" as SendFile, to, from, at, length)
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn sendfile(to: c_int, from: c_int, at: *mut c_void, length: usize) -> isize {
    type SendFile = unsafe extern "C" fn(c_int, c_int, *mut c_void, usize) -> isize;
    table::sending(to);
    next!("sendfile" as SendFile, to, from, at, length)
}

/// A descriptor is closed, or becomes another's.
fn gone(fd: c_int) {
    if fd >= 0 {
        aside(|| {
            table::forget(fd);
            sets::closed(fd);
        });
    }
}

/// All clients' descriptors of a range are closed.
fn gone_from(first: c_uint, last: c_uint) {
    let last = last.min(MAX_FD as c_uint - 1);
    processes::closed(first.min(c_int::MAX as c_uint) as c_int, last as c_int);
    let all = first..=last;
    all.map(|fd| fd as c_int)
        .filter(|fd| table::is_client(*fd))
        .for_each(gone);
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn close(fd: c_int) -> c_int {
    type Close = unsafe extern "C" fn(c_int) -> c_int;
    gone(fd);
    processes::closed(fd, fd);
    next!("close" as Close, fd)
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    type CloseRange = unsafe extern "C" fn(c_uint, c_uint, c_int) -> c_int;
    // CLOSE_RANGE_CLOEXEC, 4, closes none.
    if flags & 4 == 0 {
        gone_from(first, last);
    }
    next!("close_range" as CloseRange, first, last, flags)
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn closefrom(first: c_int) {
    type CloseFrom = unsafe extern "C" fn(c_int);
    gone_from(first.max(0) as c_uint, c_uint::MAX);
    next!("closefrom" as CloseFrom, first);
}

/// A new socket: whatever had its number before was closed, perhaps where no hook sees it, as by fclose(3). What is no socket, or has another
/// peer, is told from a client by [`table::is_others`].
fn made(fd: c_int) -> c_int {
    if fd >= 0 && table::is_client(fd) {
        gone(fd);
    }
    fd
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    type Socket = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;
    made(next!("socket" as Socket, family, kind, protocol))
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn socketpair(family: c_int, kind: c_int, protocol: c_int, fds: *mut c_int) -> c_int {
    type SocketPair = unsafe extern "C" fn(c_int, c_int, c_int, *mut c_int) -> c_int;
    let result = next!("socketpair" as SocketPair, family, kind, protocol, fds);
    if result == 0 {
        for at in 0..2 {
            // SAFETY: the call has just written both.
            made(unsafe { fds.add(at).read() });
        }
    }
    result
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    type Dup2 = unsafe extern "C" fn(c_int, c_int) -> c_int;
    if old != new {
        gone(new);
        processes::closed(new, new);
    }
    next!("dup2" as Dup2, old, new)
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    type Dup3 = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;
    gone(new);
    processes::closed(new, new);
    next!("dup3" as Dup3, old, new, flags)
}

#[cfg_attr(oncall_preload, unsafe(no_mangle))]
extern "C" fn epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut c_void) -> c_int {
    type EpollControl = unsafe extern "C" fn(c_int, c_int, c_int, *mut c_void) -> c_int;
    // SAFETY: the caller's record, or null.
    let record = unsafe { event.cast::<EpollEvent>().as_ref() }.copied();
    aside(|| match operation {
        sys::EPOLL_CTL_ADD => table::watched_by_server(set, fd, record),
        sys::EPOLL_CTL_MOD if record.is_some() => sets::change(set, fd, record),
        sys::EPOLL_CTL_DEL => sets::change(set, fd, None),
        _ => {}
    });
    next!("epoll_ctl" as EpollControl, set, operation, fd, event)
}
