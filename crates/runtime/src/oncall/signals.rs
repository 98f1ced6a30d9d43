//! What a program that wraps a server is sent, for the server.

use headroom_console::Stop;
use headroom_node::Roots;
use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::{fs, io};

/// Those that are passed on.
const ALL: [c_int; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// Signals that are caught from now on, and passed on to a server once there is one. Caught before it is started: by its default a signal
/// would end this program and leave the server behind, and as the first process of a PID namespace this program would not have it at all.
#[derive(Debug)]
pub struct PassedOn {
    signals: Signals,
    /// What came before the server was there, in its place.
    early: Vec<c_int>,
    /// Those that whoever started this program had it ignore.
    ignored: Vec<c_int>,
}

impl PassedOn {
    /// Catches them; best while there is one thread.
    ///
    /// # Errors
    /// The handlers cannot be installed, or `/proc` is not the kernel's.
    pub fn catch() -> io::Result<Self> {
        let file = Roots::default().proc_("self/status");
        let ignored = ignored(&fs::read_to_string(&file)?).ok_or_else(|| {
            io::Error::other(format!(
                "{} has no SigIgn: mount /proc of the kernel",
                file.display()
            ))
        })?;
        // One that came after its handler was installed and before signal_hook knows what to do at it would be lost: it is pending meanwhile.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        let signals = Signals::new(ALL);
        before.thread_set_mask()?;
        Ok(Self {
            signals: signals?,
            early: Vec::new(),
            ignored,
        })
    }

    /// Those that are ignored in the server too, as without this program between.
    pub(super) fn ignored(&self) -> &[c_int] {
        &self.ignored
    }

    /// The number of one that came and asks a program to end, which there need not be one for then. What else came is the server's.
    pub(super) fn end(&mut self) -> Option<u8> {
        self.early.extend(self.signals.pending());
        let mut ending = self.early.iter().filter(|signal| ends(**signal));
        let end = ending.find(|signal| !self.ignored.contains(signal))?;
        u8::try_from(*end).ok()
    }

    /// Passes each on to a server, in a thread that lives as long as this program; one that ends a server raises `stop`, and is told in
    /// `signalled`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn pass_on_to(
        mut self,
        server: u32,
        stop: &Stop,
        signalled: &Arc<AtomicBool>,
    ) -> io::Result<()> {
        let (stop, signalled) = (stop.clone(), Arc::clone(signalled));
        // Its number may be another's once it was waited for.
        let handle = i32::try_from(server).ok().and_then(Pid::from_raw);
        let handle = handle.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let pass_on = move || {
            for signal in self.early.into_iter().chain(self.signals.forever()) {
                let named = named(signal);
                let sent = match &handle {
                    Some(handle) => pidfd_send_signal(handle, named),
                    // A kernel before 5.3.
                    None => send(server, named),
                };
                match sent {
                    Ok(()) | Err(Errno::SRCH) => {}
                    Err(error) => tracing::warn!("the server did not get {named:?}: {error}"),
                }
                if ends(signal) {
                    signalled.store(true, Relaxed);
                    stop.raise();
                }
            }
        };
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(pass_on)?;
        Ok(())
    }
}

/// Whether a server ends at it.
const fn ends(signal: c_int) -> bool {
    matches!(signal, SIGINT | SIGQUIT | SIGTERM)
}

const fn named(signal: c_int) -> Signal {
    match signal {
        SIGHUP => Signal::HUP,
        SIGUSR1 => Signal::USR1,
        SIGUSR2 => Signal::USR2,
        SIGINT => Signal::INT,
        SIGQUIT => Signal::QUIT,
        _ => Signal::TERM,
    }
}

/// Which of [`ALL`] a process ignores, by its `/proc/PID/status`.
fn ignored(status: &str) -> Option<Vec<c_int>> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
    Some(
        ALL.into_iter()
            .filter(|signal| mask >> (signal - 1) & 1 == 1)
            .collect(),
    )
}

/// Sends a signal to a process.
pub(super) fn send(pid: u32, signal: Signal) -> rustix::io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.map_or(Ok(()), |pid| kill_process(pid, signal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_read_of_a_mask() {
        let status =
            |mask: &str| format!("SigBlk:\tffffffffffffffff\nSigIgn:\t{mask}\nSigCgt:\t0000000000000000\n");
        assert_eq!(ignored(&status("0000000000000000")), Some(Vec::new()));
        // SIGHUP is 1, SIGINT 2, SIGQUIT 3, and SIGPIPE 13 is none that is passed on.
        assert_eq!(
            ignored(&status("0000000000001007")),
            Some(vec![SIGHUP, SIGINT, SIGQUIT])
        );
        assert_eq!(ignored("SigBlk:\t0\n"), None);
        assert_eq!(ignored(&status("none")), None);
    }

    #[test]
    fn what_came_before_a_server_asks_for_its_end_or_is_kept_for_it() {
        let caught = |ignored: Vec<c_int>, early: Vec<c_int>| PassedOn {
            signals: Signals::new([] as [c_int; 0]).unwrap(),
            early,
            ignored,
        };
        let kept = vec![SIGHUP, SIGUSR1, SIGUSR2];
        let mut others = caught(Vec::new(), kept.clone());
        assert_eq!(others.end(), None);
        assert_eq!(others.early, kept);
        assert_eq!(caught(Vec::new(), vec![SIGHUP, SIGTERM]).end(), Some(15));
        assert_eq!(caught(vec![SIGINT], vec![SIGINT]).end(), None);
        assert_eq!(caught(vec![SIGINT], vec![SIGINT, SIGQUIT]).end(), Some(3));
    }
}
