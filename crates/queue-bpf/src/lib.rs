//! The kernel side of measuring an accept queue: an eBPF program which counts at each connection put in the accept
//! queue of a port, and what it saw there, and one beside it for those that are reset there. And that of measuring idle periods: [`idle`].
//!
//! The program is `accept_queue.bpf.c`, compiled when this crate is, where clang is there. This crate holds the compiled
//! objects and the names by which a loader finds their parts, nothing else: `headroom-node` loads them.
#![forbid(unsafe_code)]

pub mod idle;

/// The program's name in the object.
pub const PROGRAM: &str = "accept_queue";
/// The raw tracepoint it belongs on.
pub const TRACEPOINT: &str = "sk_data_ready";
/// The program in the same object that counts the connections whose clients leave, and those that were answered.
pub const LEFT_PROGRAM: &str = "client_left";
/// The raw tracepoint it belongs on.
pub const LEFT_TRACEPOINT: &str = "inet_sock_set_state";
/// The constant that says which port, a `u16`.
pub const PORT: &str = "port";
/// The constant that says which network namespace, by its inode, a `u32`.
pub const NAMESPACE_INODE: &str = "namespace_inode";
/// The map of tallies: per processor, from a listener's address in the kernel (`u64`) to a [`Tally`].
pub const TALLIES: &str = "tallies";
/// How many listeners it has room for.
pub const MAX_LISTENERS: usize = 1024;
/// The map of controls: an array of `u64`.
pub const CONTROLS: &str = "controls";
/// The control that says in which window the longest queue is looked for.
pub const WINDOW: u32 = 0;
/// The control that counts connections for which there was no room in the tallies.
pub const LOST: u32 = 1;
/// The control in which those are counted that were reset in a queue and had asked nothing.
pub const RESETS: u32 = 2;
/// The control in which those are counted that were reset in a queue and had sent something.
pub const CANCELLED: u32 = 3;
/// The control in which all are counted, accepted or not, that were closed or reset by clients that had asked nothing, or were sent
/// nothing, and those that the server closed and had sent nothing.
pub const UNASKED: u32 = 4;
/// The control in which those are counted that the server was done with, having sent something.
pub const ANSWERED: u32 = 5;

/// A tally of one listener on one processor, as the kernel side writes it: by [`field`].
pub type Tally = [u64; 5];

/// Places in a [`Tally`].
pub mod field {
    /// Connections put in the queue.
    pub const ENQUEUED: usize = 0;
    /// The sum over them of the queue's length that each saw.
    pub const SEEN: usize = 1;
    /// The longest queue seen in the window.
    pub const LONGEST: usize = 2;
    /// The window.
    pub const WINDOW: usize = 3;
    /// The listening socket's cookie, 0 while it has none.
    pub const COOKIE: usize = 4;
}

/// Why there is no object; empty where there is one.
#[cfg(any(test, not(compiled)))]
const REASON: &str = include_str!(concat!(env!("OUT_DIR"), "/reason.txt"));

/// Bytes on a boundary that an ELF header may be read at.
#[cfg(any(compiled, idle_compiled))]
#[repr(C, align(16))]
struct Aligned<T: ?Sized>(T);

#[cfg(compiled)]
static COMPILED: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/accept_queue.o")));

/// The compiled object.
///
/// # Errors
/// Why it was left out of this build, with no remedy: [`REMEDY`] is that.
pub fn object() -> Result<&'static [u8], &'static str> {
    #[cfg(compiled)]
    return Ok(&COMPILED.0);
    #[cfg(not(compiled))]
    return Err(REASON);
}

/// What to do where [`object`] has none.
pub const REMEDY: &str = "apt install clang, then: cargo clean -p headroom-queue-bpf, and build again";

#[cfg(test)]
mod tests {
    use super::*;

    /// An object is one for the kernel, with these parts in it; where there is none, the reason is known.
    pub(crate) fn is_for_the_kernel_or_has_a_reason(
        object: Result<&[u8], &str>,
        reason: &str,
        names: &[&str],
    ) {
        match object {
            Ok(object) => {
                assert_eq!(&object[..4], b"\x7fELF");
                // e_machine of the ELF header: EM_BPF.
                assert_eq!(u16::from_ne_bytes([object[18], object[19]]), 247);
                assert!(reason.is_empty());
                for name in names {
                    assert!(
                        object.windows(name.len()).any(|at| at == name.as_bytes()),
                        "{name}"
                    );
                }
            }
            Err(why) => {
                assert!(!why.is_empty());
                println!("skipped: the eBPF program is not in this build: {why}; {REMEDY}");
            }
        }
    }

    #[test]
    fn there_is_an_object_for_the_kernel_or_a_reason() {
        let names = [
            PROGRAM,
            PORT,
            NAMESPACE_INODE,
            TALLIES,
            CONTROLS,
            TRACEPOINT,
            LEFT_PROGRAM,
            LEFT_TRACEPOINT,
        ];
        is_for_the_kernel_or_has_a_reason(object(), REASON, &names);
    }
}
