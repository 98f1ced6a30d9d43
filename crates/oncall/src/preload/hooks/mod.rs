//! The names of libc that the shared object takes over. Each does what libc's does, before or after what the gate does.
//!
//! Only the build of the shared object exports them: in any other program that links this crate they are ordinary functions.

use super::join;
use super::sys::{self, errno, set_errno};
use core::ffi::{c_char, c_int, c_long, c_void};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// The next definition of a name: libc's.
struct Next {
    name: &'static [u8],
    /// The symbol's version where an older one under the same name does something else.
    version: Option<&'static [u8]>,
    address: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static [u8]) -> Self {
        Self {
            name,
            version: None,
            address: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// One of the condition variables' functions, whose first version had another layout.
    const fn condition(name: &'static [u8]) -> Self {
        let version: &'static [u8] = match () {
            () if cfg!(target_arch = "x86_64") => b"GLIBC_2.3.2\0",
            () => b"GLIBC_2.17\0",
        };
        Self {
            version: Some(version),
            ..Self::new(name)
        }
    }

    fn get(&self) -> *mut c_void {
        let known = self.address.load(Relaxed);
        if !known.is_null() {
            return known;
        }
        // RTLD_NEXT is -1.
        let next = usize::MAX as *mut c_void;
        let name = self.name.as_ptr().cast::<c_char>();
        // SAFETY: names that end with 0.
        let found = unsafe {
            let versioned = match self.version {
                Some(version) => sys::dlvsym(next, name, version.as_ptr().cast()),
                None => core::ptr::null_mut(),
            };
            match versioned.is_null() {
                true => sys::dlsym(next, name),
                false => versioned,
            }
        };
        if found.is_null() {
            // The program could not have been linked without it.
            sys::abort();
        }
        self.address.store(found, Relaxed);
        found
    }
}

/// Calls libc's function of this name and type.
macro_rules! next {
    ($name:literal as $kind:ty, $($argument:expr),*) => {{
        static NEXT: $crate::preload::hooks::Next = $crate::preload::hooks::Next::new(concat!($name, "\0").as_bytes());
        next!(@ NEXT, $kind, $($argument),*)
    }};
    (condition $name:literal as $kind:ty, $($argument:expr),*) => {{
        static NEXT: $crate::preload::hooks::Next = $crate::preload::hooks::Next::condition(concat!($name, "\0").as_bytes());
        next!(@ NEXT, $kind, $($argument),*)
    }};
    (@ $next:ident, $kind:ty, $($argument:expr),*) => {{
        // SAFETY: the address is that of libc's function of this name, whose type is `$kind` by its manual; the arguments are the
        // caller's own.
        unsafe {
            let function: $kind = core::mem::transmute($next.get());
            function($($argument),*)
        }
    }};
}

mod clients;
mod sleeps;
mod sockets;

/// A system call's result as libc gives it.
fn result(raw: c_long) -> c_long {
    match raw < 0 {
        true => {
            set_errno(-raw as c_int);
            -1
        }
        false => raw,
    }
}

/// Does something that may change errno, which the caller has not asked for.
fn aside<R>(body: impl FnOnce() -> R) -> R {
    let before = errno();
    let result = body();
    set_errno(before);
    result
}

/// Whether the region was looked for: 0 not yet, 1 it was.
static LOOKED: AtomicU32 = AtomicU32::new(0);

/// Joins the region that the environment names, when the program is loaded: later it may have given up its rights, or its files.
extern "C" fn load() {
    if LOOKED.swap(1, Relaxed) == 0 {
        aside(join::join);
    }
}

#[cfg(oncall_preload)]
#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

#[cfg(oncall_preload)]
#[used]
#[unsafe(link_section = ".fini_array")]
static UNLOAD: extern "C" fn() = super::processes::unload;
