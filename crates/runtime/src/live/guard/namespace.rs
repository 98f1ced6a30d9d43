//! Whether the end of a PID namespace would take the guard with its owner.

use std::fs;

/// The inode of the first PID namespace: `PROC_PID_INIT_INO` of the kernel's `include/linux/proc_ns.h`.
const INITIAL: &str = "pid:[4026531836]";

/// Where a guard must stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A child will do: the PID namespace is the machine's own, or the risk was accepted.
    Inside,
    /// Only one that is a service: the end of this PID namespace kills all processes in it at once.
    Outside,
}

impl Place {
    /// Where the guard of this process must stand, unless a guard inside of its PID namespace is accepted. The kernel kills
    /// every process of a PID namespace when the first of them ends, whichever process of it this is: so in each
    /// namespace but the machine's own a child does not do.
    pub fn required(accepted_inside: bool) -> Self {
        match accepted_inside || !is_contained() {
            true => Self::Inside,
            false => Self::Outside,
        }
    }
}

/// Whether this process is in another PID namespace than the machine's own. Where /proc does not say it, it is not taken for
/// one: a process without /proc cannot limit anything.
fn is_contained() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|namespace| namespace.as_os_str() != INITIAL)
}
