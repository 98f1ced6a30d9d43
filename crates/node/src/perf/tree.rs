//! Counts of a process and its descendants by files of `/proc` (proc_pid_stat(5), proc_pid_status(5)).

use super::{CountSource, Counts, PerfError};
use crate::{Roots, file};
use headroom_units::Seconds;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;

/// USER_HZ: 100 on every architecture.
const USER_HZ: f64 = 100.0;

/// A process by its number and when it started, in ticks since boot: numbers are used again.
type Id = (u32, u64);

/// Counts of a process and its descendants, where [`super::Counters`] are refused.
///
/// CPU time is in ticks of 10 ms, and that of ended children is in it once their parent has waited for them. A child that
/// outlives its parent leaves the tree; what it had counted by then stays. Of a thread that has ended, context switches are as
/// of the last reading: read once a period.
#[derive(Debug)]
pub struct TreeCounters {
    roots: Roots,
    root: Id,
    /// CPU ticks of processes that left the tree other than by ending as somebody's waited-for child.
    cpu: HashMap<Id, Ticks>,
    /// Of living threads.
    switches: HashMap<u32, u64>,
    ended_switches: u64,
    left_cpu: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    own: u64,
    /// Of children that were waited for.
    waited: u64,
}

/// What `/proc/PID/stat` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    ticks: Ticks,
    started: u64,
}

impl TreeCounters {
    /// Of the process with this number, and its descendants.
    ///
    /// # Errors
    /// [`PerfError::NoProcess`].
    pub fn open(roots: &Roots, pid: u32) -> Result<Self, PerfError> {
        let stat = stat_of(roots, pid).ok_or(PerfError::NoProcess { pid })?;
        Ok(Self {
            roots: roots.clone(),
            root: (pid, stat.started),
            cpu: HashMap::new(),
            switches: HashMap::new(),
            ended_switches: 0,
            left_cpu: 0,
        })
    }

    /// Counts since the processes' start. Reads every process of the machine: some microseconds for each.
    ///
    /// # Errors
    /// [`PerfError::File`]: `/proc` cannot be read. [`PerfError::NoProcess`]: the process has ended.
    pub fn read(&mut self) -> Result<Counts, PerfError> {
        let all = processes(&self.roots)?;
        let (root, started) = self.root;
        if all.get(&root).is_none_or(|stat| stat.started != started) {
            return Err(PerfError::NoProcess { pid: root });
        }
        let members = tree(&all, root);
        self.account_cpu(&all, &members);
        let mut switches = HashMap::new();
        for pid in &members {
            threads(&self.roots.proc_(pid.to_string()), &mut switches);
        }
        for (thread, before) in std::mem::replace(&mut self.switches, switches) {
            // A number that counts less than before is another thread's.
            if self.switches.get(&thread).is_none_or(|now| *now < before) {
                self.ended_switches += before;
            }
        }
        let cpu: u64 = self.cpu.values().map(|ticks| ticks.own + ticks.waited).sum();
        Ok(Counts {
            source: CountSource::Proc,
            instructions: None,
            user_only: false,
            counted_share: None,
            context_switches: Some(self.ended_switches + self.switches.values().sum::<u64>()),
            cpu_time: Some(Seconds::new((cpu + self.left_cpu) as f64 / USER_HZ)),
            migrations: None,
        })
    }

    /// The time of one that ended is in its parent's, where that waited for it; where not, what was read of it is kept.
    fn account_cpu(&mut self, all: &BTreeMap<u32, Stat>, members: &BTreeSet<u32>) {
        let now: HashMap<Id, Ticks> = members
            .iter()
            .filter_map(|pid| all.get(pid).map(|stat| ((*pid, stat.started), stat.ticks)))
            .collect();
        let waited_more: u64 = now
            .iter()
            .map(|(id, ticks)| {
                ticks.waited
                    - self
                        .cpu
                        .get(id)
                        .map_or(0, |before| before.waited.min(ticks.waited))
            })
            .sum();
        let gone: u64 = self
            .cpu
            .iter()
            .filter(|(id, _)| !now.contains_key(id))
            .map(|(_, ticks)| ticks.own + ticks.waited)
            .sum();
        self.left_cpu += gone.saturating_sub(waited_more);
        self.cpu = now;
    }
}

/// The numbers of a process and its descendants as they are now. Reads every process of the machine: some microseconds for each.
///
/// # Errors
/// [`PerfError::File`]: `/proc` cannot be read.
pub fn tree_of(roots: &Roots, root: u32) -> Result<BTreeSet<u32>, PerfError> {
    Ok(tree(&processes(roots)?, root))
}

/// The numbers of a process and its descendants.
fn tree(all: &BTreeMap<u32, Stat>, root: u32) -> BTreeSet<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for (pid, stat) in all {
        children.entry(stat.parent).or_default().push(*pid);
    }
    let mut found = BTreeSet::new();
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        if found.insert(pid) {
            next.extend(children.get(&pid).into_iter().flatten());
        }
    }
    found
}

fn processes(roots: &Roots) -> Result<BTreeMap<u32, Stat>, PerfError> {
    let dir = roots.proc_("");
    let entries =
        fs::read_dir(&dir).map_err(|cause| file::FileError::new(file::Action::Read, &dir, cause))?;
    Ok(entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, stat_of(roots, pid)?)))
        .collect())
}

fn stat_of(roots: &Roots, pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(roots.proc_(format!("{pid}/stat"))).ok()?)
}

/// `pid (name) state ppid ...`; a name may have spaces and brackets.
fn parse_stat(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    // Field 3 of proc_pid_stat(5) is the first of these.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Stat {
        parent: u32::try_from(field(4)?).ok()?,
        ticks: Ticks {
            own: field(14)? + field(15)?,
            waited: field(16)? + field(17)?,
        },
        started: field(22)?,
    })
}

/// Context switches of each thread of a process; of one that ended meanwhile nothing.
fn threads(process: &Path, switches: &mut HashMap<u32, u64>) {
    for entry in fs::read_dir(process.join("task")).into_iter().flatten().flatten() {
        let thread = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let status = fs::read_to_string(entry.path().join("status"));
        if let (Some(thread), Some(count)) = (thread, status.ok().and_then(|text| parse_status(&text))) {
            switches.insert(thread, count);
        }
    }
}

/// The sum of voluntary and other switches.
fn parse_status(text: &str) -> Option<u64> {
    let number = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok())
    };
    Some(number("voluntary_ctxt_switches:")? + number("nonvoluntary_ctxt_switches:")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Tree, says};

    struct Process<'a> {
        pid: u32,
        parent: u32,
        ticks: [u64; 4],
        started: u64,
        threads: &'a [(u32, u64, u64)],
    }

    fn put(tree: &Tree, process: &Process) {
        let dir = tree.path(&format!("proc/{}", process.pid));
        let _ = fs::remove_dir_all(&dir);
        let [user, system, waited_user, waited_system] = process.ticks;
        fs::create_dir_all(&dir).unwrap();
        let (pid, parent, started) = (process.pid, process.parent, process.started);
        fs::write(
            dir.join("stat"),
            format!(
                "{pid} (a ) b) S {parent} 1 1 0 -1 4194560 1 1 1 1 {user} {system} {waited_user} {waited_system} 20 0 1 0 {started} 1 1\n"
            ),
        )
        .unwrap();
        for (thread, voluntary, other) in process.threads {
            let dir = dir.join(format!("task/{thread}"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(
                dir.join("status"),
                format!(
                    "Name:\tx\nvoluntary_ctxt_switches:\t{voluntary}\nnonvoluntary_ctxt_switches:\t{other}\n"
                ),
            )
            .unwrap();
        }
    }

    fn root(ticks: [u64; 4], threads: &[(u32, u64, u64)]) -> Process<'_> {
        Process {
            pid: 10,
            parent: 1,
            ticks,
            started: 5,
            threads,
        }
    }

    fn child(ticks: [u64; 4], threads: &[(u32, u64, u64)]) -> Process<'_> {
        Process {
            pid: 11,
            parent: 10,
            ticks,
            started: 7,
            threads,
        }
    }

    #[test]
    fn a_tree_is_the_process_and_its_descendants_and_keeps_what_ended() {
        let tree = Tree::new();
        put(&tree, &root([100, 50, 0, 0], &[(10, 5, 1), (12, 7, 2)]));
        put(&tree, &child([30, 20, 0, 0], &[(11, 100, 0)]));
        let other = Process {
            pid: 13,
            parent: 1,
            ..child([900, 900, 0, 0], &[(13, 900, 900)])
        };
        put(&tree, &other);
        let mut counters = TreeCounters::open(&tree.roots(), 10).unwrap();
        let counts = counters.read().unwrap();
        assert_eq!(counts.cpu_time, Some(Seconds::new(2.0)));
        assert_eq!((counts.context_switches, counts.instructions), (Some(115), None));
        assert_eq!(counts.source, CountSource::Proc);

        // Thread 12 ends; the child ends at 60 ticks and is waited for.
        put(&tree, &root([100, 50, 35, 25], &[(10, 6, 1)]));
        fs::remove_dir_all(tree.path("proc/11")).unwrap();
        let counts = counters.read().unwrap();
        assert_eq!(counts.cpu_time, Some(Seconds::new(2.1)));
        assert_eq!(counts.context_switches, Some(116));
    }

    #[test]
    fn a_child_that_leaves_unwaited_keeps_its_time_and_a_root_that_ended_is_an_error() {
        let tree = Tree::new();
        put(&tree, &root([100, 0, 0, 0], &[(10, 1, 0)]));
        put(&tree, &child([50, 0, 0, 0], &[(11, 1, 0)]));
        let mut counters = TreeCounters::open(&tree.roots(), 10).unwrap();
        counters.read().unwrap();
        fs::remove_dir_all(tree.path("proc/11")).unwrap();
        assert_eq!(counters.read().unwrap().cpu_time, Some(Seconds::new(1.5)));
        assert_eq!(counters.read().unwrap().cpu_time, Some(Seconds::new(1.5)));
        // The number is another process's now.
        put(
            &tree,
            &Process {
                started: 99,
                ..root([1, 0, 0, 0], &[])
            },
        );
        says(counters.read().unwrap_err(), &["no process 10"]);
        says(
            TreeCounters::open(&tree.roots(), 77).unwrap_err(),
            &["no process 77"],
        );
    }
}
