//! A region whose file was cut short: whoever may write to it may do that too, as a server that has become another user, and whoever touches
//! a page that is no longer there is sent SIGBUS (mmap(2)). The server harms itself so; who commands it, perhaps as root and perhaps others
//! too, is not to end by it.

use crate::layout::Region;
use crate::preload::sys::{call, number};
use nix::libc::siginfo_t;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::ffi::{c_int, c_long, c_void};
use std::io;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Regions that one program has mapped at once, at most: an agent has one, and tests some dozens.
const MOST: usize = 256;

static REGIONS: [AtomicPtr<Region>; MOST] = [const { AtomicPtr::new(ptr::null_mut()) }; MOST];
/// What was done at the signal before, as by Rust's own runtime where a stack overflows.
static BEFORE: OnceLock<io::Result<SigAction>> = OnceLock::new();

/// From now on a mapped region whose file is cut short has pages of zeros instead, which are of no other program.
///
/// # Errors
/// The signal cannot be handled, or there are too many regions.
pub(super) fn guard(region: *mut Region) -> io::Result<()> {
    let handler = SigHandler::SigAction(at_bus_error);
    let ours = SigAction::new(
        handler,
        SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK,
        SigSet::empty(),
    );
    // SAFETY: the handler makes a system call and reads atomics alone.
    let before = BEFORE.get_or_init(|| Ok(unsafe { sigaction(Signal::SIGBUS, &ours) }?));
    if let Err(error) = before {
        return Err(io::Error::new(error.kind(), error.to_string()));
    }
    let is_taken = |slot: &AtomicPtr<Region>| {
        slot.compare_exchange(ptr::null_mut(), region, Release, Relaxed)
            .is_ok()
    };
    match REGIONS.iter().any(is_taken) {
        true => Ok(()),
        false => Err(io::Error::other(format!("{MOST} regions are mapped already"))),
    }
}

/// It is no longer mapped.
pub(super) fn forget(region: *mut Region) {
    for slot in &REGIONS {
        let _ = slot.compare_exchange(region, ptr::null_mut(), Release, Relaxed);
    }
}

extern "C" fn at_bus_error(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's record of this signal, which has an address.
    let at = unsafe { (*info).si_addr() } as usize;
    let is_within = |region: &*mut Region| {
        let start = *region as usize;
        start != 0 && (start..start + size_of::<Region>()).contains(&at)
    };
    let found = REGIONS.iter().map(|slot| slot.load(Acquire)).find(is_within);
    if found.is_some_and(replace) {
        return;
    }
    match BEFORE
        .get()
        .and_then(|before| before.as_ref().ok())
        .map(SigAction::handler)
    {
        Some(SigHandler::SigAction(before)) => before(signal, info, context),
        Some(SigHandler::Handler(before)) => before(signal),
        _ => {
            let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
            // SAFETY: no handler. The instruction that failed is tried again, and ends the program.
            let _ = unsafe { sigaction(Signal::SIGBUS, &default) };
        }
    }
}

/// Puts pages of zeros in the place of a region.
fn replace(region: *mut Region) -> bool {
    // PROT_READ | PROT_WRITE; MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS.
    let (protection, flags) = (0x3, 0x32);
    let (start, length) = (region as c_long, size_of::<Region>() as c_long);
    // SAFETY: what is replaced is the mapping of the region and nothing else, in which every value of zeros is one.
    let mapped = unsafe { call(number::MMAP, [start, length, protection, flags, -1, 0]) };
    mapped == start
}
