//! What `/proc` tells of processes and threads: who holds a socket, what a thread used, and what it waits in.

use crate::Roots;
use crate::cgroup::{Target, TargetSpec};
use crate::cpu::{CpuList, allowance, online};
use crate::file;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// The most processes that are looked through, and files of each: a server opens the sockets that it listens on first, and numbers are
/// given in order.
const MAX_SEARCHED: usize = 4_096;
const MAX_FILES: usize = 1_024;
/// The most files of all.
const MAX_ALL_FILES: usize = 65_536;

/// The CPU time of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// For which it ran,
    pub ran: Duration,
    /// and for which it was to run and waited for a CPU.
    pub waited: Duration,
}

impl Usage {
    pub(super) fn wanted(self) -> Duration {
        self.ran.saturating_add(self.waited)
    }

    /// Whether it can be of the same thread as one before.
    pub(super) fn follows(self, before: Self) -> bool {
        self.ran >= before.ran && self.waited >= before.waited
    }
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// For events of several files.
    ForEvents,
    /// For a connection, in accept(2).
    ToAccept,
    /// For something else, or it does not, or that is not told.
    Otherwise,
}

/// The system calls that wait so (asm/unistd.h).
#[cfg(target_arch = "x86_64")]
mod calls {
    /// poll, select, epoll_wait, pselect6, ppoll, epoll_pwait, io_uring_enter, epoll_pwait2.
    pub const EVENTS: &[i64] = &[7, 23, 232, 270, 271, 281, 426, 441];
    /// accept, accept4.
    pub const ACCEPT: &[i64] = &[43, 288];
}
#[cfg(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "loongarch64"))]
mod calls {
    /// epoll_pwait, pselect6, ppoll, io_uring_enter, epoll_pwait2.
    pub const EVENTS: &[i64] = &[22, 72, 73, 426, 441];
    /// accept, accept4.
    pub const ACCEPT: &[i64] = &[202, 242];
}
#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64",
    target_arch = "loongarch64"
)))]
mod calls {
    pub const EVENTS: &[i64] = &[];
    pub const ACCEPT: &[i64] = &[];
}

/// The kernel's functions that wait so.
const EVENT_FUNCTIONS: [&str; 4] = [
    "ep_poll",
    "do_epoll_wait",
    "poll_schedule_timeout",
    "io_cqring_wait",
];
const ACCEPT_FUNCTION: &str = "inet_csk_accept";

/// The processes that hold one of these sockets, and at which ports they listen beside, of those of other listening sockets; `None` where
/// they cannot all be found, or there are too many to look through.
pub(super) fn holders(
    roots: &Roots,
    inodes: &BTreeSet<u64>,
    others: &BTreeMap<u64, u16>,
) -> Option<(Vec<u32>, BTreeSet<u16>)> {
    let (mut pids, mut held, mut ports) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let mut files_left = MAX_ALL_FILES;
    let mut is_hidden = false;
    let processes = numbers(&roots.proc_, MAX_SEARCHED)?;
    for pid in processes {
        let files = match fs::read_dir(roots.proc_(format!("{pid}/fd"))) {
            Ok(files) => files,
            Err(error) => {
                is_hidden |= error.kind() == ErrorKind::PermissionDenied;
                continue;
            }
        };
        let (mut holds, mut beside) = (false, BTreeSet::<u16>::new());
        for file in files.flatten().take(MAX_FILES) {
            files_left = files_left.checked_sub(1)?;
            let target = fs::read_link(file.path()).ok();
            let Some(inode) = target.as_deref().and_then(socket) else {
                continue;
            };
            if inodes.contains(&inode) {
                held.insert(inode);
                holds = true;
            }
            beside.extend(others.get(&inode));
        }
        if holds {
            pids.push(pid);
            // Who listens for others until they are started serves nobody.
            if !is_starter(roots, pid) {
                ports.extend(beside);
            }
        }
    }
    // Sockets that only the hidden hold are somebody's.
    let is_whole = !is_hidden || held == *inodes;
    (is_whole && !pids.is_empty()).then_some((pids, ports))
}

/// Whether it is systemd, which holds the sockets of all services that are started by a connection.
fn is_starter(roots: &Roots, pid: u32) -> bool {
    let name = fs::read_to_string(roots.proc_(format!("{pid}/comm")));
    name.is_ok_and(|name| name.trim_end() == "systemd")
}

/// Of `socket:[123]` the number.
fn socket(target: &Path) -> Option<u64> {
    let text = target.to_str()?;
    text.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// The threads of a process, in order; `None` where there are more than so many. None at all of a process that has ended.
pub(super) fn threads(roots: &Roots, pid: u32, most: usize) -> Option<Vec<u32>> {
    numbers(&roots.proc_(format!("{pid}/task")), most)
}

/// The names in a directory that are numbers; `None` where there are more than so many.
fn numbers(dir: &Path, most: usize) -> Option<Vec<u32>> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Some(Vec::new());
    };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let mut found: Vec<u32> = entries.flatten().filter_map(number).take(most + 1).collect();
    found.sort_unstable();
    (found.len() <= most).then_some(found)
}

/// What a thread has used; `None` where it has ended, or the kernel does not count it.
pub(super) fn usage(roots: &Roots, pid: u32, tid: u32) -> Option<Usage> {
    parse_usage(&file::read(&roots.proc_(format!("{pid}/task/{tid}/schedstat"))).ok()?)
}

fn parse_usage(text: &str) -> Option<Usage> {
    let mut fields = text
        .split_whitespace()
        .map(|field| field.parse().map(Duration::from_nanos));
    let (ran, waited) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some(Usage { ran, waited })
}

/// What a thread waits for now.
pub(super) fn waits(roots: &Roots, pid: u32, tid: u32) -> Waits {
    let read = |name: &str| file::read(&roots.proc_(format!("{pid}/task/{tid}/{name}"))).ok();
    match read("syscall") {
        Some(text) if !calls::EVENTS.is_empty() => in_call(&text),
        _ => read("wchan").map_or(Waits::Otherwise, |text| in_function(&text)),
    }
}

fn in_call(text: &str) -> Waits {
    let number = text
        .split_whitespace()
        .next()
        .and_then(|word| word.parse::<i64>().ok());
    match number {
        Some(number) if calls::EVENTS.contains(&number) => Waits::ForEvents,
        Some(number) if calls::ACCEPT.contains(&number) => Waits::ToAccept,
        _ => Waits::Otherwise,
    }
}

fn in_function(text: &str) -> Waits {
    let name = text.trim();
    match () {
        () if name.starts_with(ACCEPT_FUNCTION) => Waits::ToAccept,
        () if EVENT_FUNCTIONS.iter().any(|function| name.starts_with(function)) => Waits::ForEvents,
        () => Waits::Otherwise,
    }
}

/// Who started a process.
pub(super) fn parent(roots: &Roots, pid: u32) -> Option<u32> {
    let text = file::read(&roots.proc_(format!("{pid}/status"))).ok()?;
    of_status(&text, "PPid:")?.parse().ok()
}

fn of_status<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

/// The CPUs that these processes may use together: all those that one of their threads may run on, and no more than the quota and the
/// CPUs of their control group where they are in one. `None` where that is not known.
pub(super) fn allowed(roots: &Roots, pids: &[u32]) -> Option<f64> {
    let mut cpus = BTreeSet::new();
    for pid in pids {
        for tid in threads(roots, *pid, super::MAX_THREADS)? {
            let status = file::read(&roots.proc_(format!("{pid}/task/{tid}/status"))).ok();
            let list = status
                .as_deref()
                .and_then(|text| of_status(text, "Cpus_allowed_list:"));
            cpus.extend(list.and_then(|list| list.parse::<CpuList>().ok())?.iter());
        }
    }
    let online = online(roots).ok()?;
    let own = cpus.into_iter().collect::<CpuList>().intersection(&online).len() as f64;
    let group = |pid: &u32| file::read(&roots.proc_(format!("{pid}/cgroup"))).ok();
    let mut groups = pids.iter().map(group);
    let first = groups.next()?;
    let target = match first.is_some() && groups.all(|other| other == first) {
        true => pids
            .first()
            .and_then(|pid| Target::resolve(roots, &TargetSpec::Pid(*pid)).ok()),
        false => None,
    };
    let of_group = target.and_then(|target| allowance(roots, &target).ok());
    let least = of_group.map_or(own, |cores| own.min(cores.get()));
    (least > 0.0).then_some(least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_socket_is_known_by_its_number() {
        assert_eq!(socket(Path::new("socket:[4711]")), Some(4_711));
        for other in ["pipe:[4711]", "socket:[x]", "/dev/null", "socket:[1"] {
            assert_eq!(socket(Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn what_a_thread_used_is_its_first_two_numbers() {
        let usage = |ran, waited| Usage {
            ran: Duration::from_nanos(ran),
            waited: Duration::from_nanos(waited),
        };
        assert_eq!(parse_usage("12345 678 9\n"), Some(usage(12_345, 678)));
        assert_eq!((parse_usage("12345\n"), parse_usage("x 1 2\n")), (None, None));
        assert!(usage(2, 2).follows(usage(2, 1)) && !usage(2, 2).follows(usage(1, 3)));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn what_a_thread_waits_in_is_told_by_the_call_else_by_the_kernel_s_function() {
        for (text, waits) in [
            (
                "232 0x3 0x7ffc 0x200 0x3e8 0x0 0x8 0x7ffc 0x7f1d\n",
                Waits::ForEvents,
            ),
            ("7 0x7ffc 0x1 0xffffffff 0 0 0 0x7ffc 0x7f1d\n", Waits::ForEvents),
            ("288 0x3 0 0 0x80000 0 0 0x7ffc 0x7f1d\n", Waits::ToAccept),
            ("202 0x7f 0x80 0 0 0 0 0x7ffc 0x7f1d\n", Waits::Otherwise),
            ("running\n", Waits::Otherwise),
            ("-1 0x7ffc 0x7f1d\n", Waits::Otherwise),
        ] {
            assert_eq!(in_call(text), waits, "{text}");
        }
        for (text, waits) in [
            ("ep_poll", Waits::ForEvents),
            ("poll_schedule_timeout.constprop.0", Waits::ForEvents),
            ("inet_csk_accept", Waits::ToAccept),
            ("futex_wait_queue", Waits::Otherwise),
            ("0", Waits::Otherwise),
        ] {
            assert_eq!(in_function(text), waits, "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_a_file_says_panics(text in ".*") {
            let _ = (parse_usage(&text), in_call(&text), in_function(&text), socket(Path::new(&text)));
        }
    }
}
