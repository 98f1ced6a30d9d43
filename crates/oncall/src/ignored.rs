//! Signals that whoever started this program had it ignore, as nohup and a shell's background do: a server that it starts ignores them too,
//! whatever this program itself does at them meanwhile.

use std::ffi::c_int;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

const SIG_IGN: usize = 1;
const SIG_ERR: usize = usize::MAX;

unsafe extern "C" {
    fn signal(signal: c_int, disposition: usize) -> usize;
}

/// Has a program begin with these signals ignored. All others that this program handles are at their defaults in it: so execve(2) leaves them.
pub fn ignore_in(command: &mut Command, signals: Vec<c_int>) {
    let ignore = move || {
        signals.iter().try_for_each(|one| {
            // SAFETY: signal(3) is async-signal-safe and SIG_IGN no address of a handler; it runs in the forked child, whose dispositions are
            // its own.
            match unsafe { signal(*one, SIG_IGN) } {
                SIG_ERR => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        })
    };
    // SAFETY: it makes system calls alone in the forked child, takes no lock and allocates nothing.
    unsafe { command.pre_exec(ignore) };
}
