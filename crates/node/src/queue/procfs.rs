//! The kernel's exported counters: `/proc/net/snmp`, `/proc/net/netstat` and `/proc/stat`.

use super::QueueError;
use crate::Roots;
use crate::file;
use crate::work::CpuTicks;

/// One reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Exported {
    /// Connections that became established by somebody else's opening: each was put in an accept queue.
    pub passive_opens: u64,
    /// Openings that failed.
    pub attempt_fails: u64,
    /// Attempts dropped by a listener; `ListenOverflows`, those by a full queue, are among them.
    pub listen_drops: u64,
    /// Acknowledgements dropped on purpose, because the server waits for the client's first data (TCP_DEFER_ACCEPT).
    pub deferred: u64,
}

/// Reads the network's counters, of the calling thread's network namespace.
pub(super) fn network(roots: &Roots) -> Result<Exported, QueueError> {
    let snmp_path = roots.proc_("thread-self/net/snmp");
    let netstat_path = roots.proc_("thread-self/net/netstat");
    let (snmp, netstat) = (file::read(&snmp_path)?, file::read(&netstat_path)?);
    let missing = |path: &std::path::Path, wanted| QueueError::Missing {
        what: path.display().to_string(),
        wanted,
        remedy: "this needs Linux 2.6.32 or later with TCP".into(),
    };
    Ok(Exported {
        passive_opens: named(&snmp, "Tcp:", "PassiveOpens")
            .ok_or_else(|| missing(&snmp_path, "Tcp PassiveOpens"))?,
        attempt_fails: named(&snmp, "Tcp:", "AttemptFails")
            .ok_or_else(|| missing(&snmp_path, "Tcp AttemptFails"))?,
        listen_drops: named(&netstat, "TcpExt:", "ListenDrops")
            .ok_or_else(|| missing(&netstat_path, "TcpExt ListenDrops"))?,
        // A kernel that does not count them defers nothing.
        deferred: named(&netstat, "TcpExt:", "TCPDeferAcceptDrop").unwrap_or(0),
    })
}

/// Reads the CPU time of the machine since its start: the used and the whole, in ticks.
pub(super) fn cpu(roots: &Roots) -> Result<(u64, u64), QueueError> {
    let path = roots.proc_("stat");
    cpu_time(&file::read(&path)?).ok_or_else(|| QueueError::Missing {
        what: path.display().to_string(),
        wanted: "the line \"cpu\" with user, nice, system and idle time",
        remedy: "this needs Linux's own /proc".into(),
    })
}

/// Of pairs of lines that start with the same word, names above numbers: the number under a name.
fn named(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(group));
    while let (Some(names), Some(numbers)) = (lines.next(), lines.next()) {
        let mut pairs = names.split_whitespace().zip(numbers.split_whitespace());
        if let Some((_, number)) = pairs.find(|(found, _)| *found == name) {
            return number.parse().ok();
        }
    }
    None
}

/// Of `/proc/stat`: the used and the whole.
fn cpu_time(text: &str) -> Option<(u64, u64)> {
    let ticks = CpuTicks::of(text)?;
    Some((ticks.busy_or_stolen(), ticks.all()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::says;
    use proptest::prelude::*;

    const SNMP: &str = "\
Ip: Forwarding DefaultTTL InReceives
Ip: 1 64 8000
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets
Tcp: 1 200 120000 -1 1635158 1586102 47994 272139
";
    const STAT: &str = "cpu  100 20 30 800 50 1 2 7 60 0\ncpu0 50 10 15 400 25 0 1 3 30 0\nintr 5 6\n";

    #[test]
    fn numbers_are_found_by_name_and_not_by_place() {
        assert_eq!(named(SNMP, "Tcp:", "PassiveOpens"), Some(1_586_102));
        assert_eq!(named(SNMP, "Tcp:", "AttemptFails"), Some(47_994));
        assert_eq!(named(SNMP, "Tcp:", "MaxConn"), None, "negative");
        assert_eq!(named(SNMP, "Tcp:", "Forwarding"), None, "of another group");
        assert_eq!(named("Tcp: A\n", "Tcp:", "A"), None);
    }

    #[test]
    fn cpu_time_leaves_out_idle_and_waiting_and_counts_guests_once() {
        assert_eq!(cpu_time(STAT), Some((160, 1010)));
        assert_eq!(cpu_time("cpu  1 2 3\n"), None);
        assert_eq!(cpu_time("cpu  1 2 x 4\n"), None);
        assert_eq!(cpu_time(&format!("cpu  {0} {0} 0 0\n", u64::MAX)), None);
    }

    #[test]
    fn the_running_kernel_and_a_missing_file_are_both_read() {
        if let Err(error) = network(&Roots::default()) {
            panic!("{error}");
        }
        cpu(&Roots::default()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::at("/sys", dir.path());
        assert!(network(&roots).unwrap_err().to_string().contains("net/snmp"));
        std::fs::write(dir.path().join("stat"), "intr 1\n").unwrap();
        says(cpu(&roots).unwrap_err(), &["does not show the line \"cpu\""]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC*", words in "(Tcp:( [A-Za-z0-9-]{0,9}){0,9}\n){0,4}", cpu in "cpu ( [0-9]{0,22}){0,11}") {
            for text in [&text, &words, &cpu] {
                named(text, "Tcp:", "PassiveOpens");
                cpu_time(text);
            }
        }
    }
}
