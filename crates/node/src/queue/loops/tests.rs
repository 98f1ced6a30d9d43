use super::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// The socket that those who listen hold.
const SOCKET: u64 = 4_711;
/// One of another port that they hold, too, and one that others hold.
const BESIDE: u64 = 4_712;
const STRANGE: u64 = 4_713;
const EPOLL: &str = "232 0x3";
const ACCEPT: &str = "43 0x3";
const FUTEX: &str = "202 0x7f";
const RUNNING: &str = "running";

/// A machine of four processors made of plain files.
struct Machine {
    tree: tempfile::TempDir,
    loops: Loops,
    now: Instant,
    /// Thread, of a process, and the milliseconds that it has run and waited.
    used: BTreeMap<(u32, u32), [u64; 2]>,
}

impl Machine {
    /// Processes, each with who started it and its threads.
    fn new(processes: &[(u32, u32, &[u32])]) -> Self {
        let tree = tempfile::tempdir().unwrap();
        let roots = Roots::at(tree.path().join("sys"), tree.path().join("proc"));
        fs::create_dir_all(roots.sys("devices/system/cpu")).unwrap();
        fs::write(roots.sys("devices/system/cpu/online"), "0-3\n").unwrap();
        let mut machine = Self {
            loops: Loops::new(&roots),
            tree,
            now: Instant::now(),
            used: BTreeMap::new(),
        };
        for (pid, parent, threads) in processes {
            machine.start(*pid, *parent, threads);
        }
        machine
    }

    fn proc_(&self, below: String) -> PathBuf {
        self.tree.path().join("proc").join(below)
    }

    fn start(&mut self, pid: u32, parent: u32, threads: &[u32]) {
        fs::create_dir_all(self.proc_(format!("{pid}/fd"))).unwrap();
        symlink("/dev/null", self.proc_(format!("{pid}/fd/0"))).unwrap();
        symlink(format!("socket:[{SOCKET}]"), self.proc_(format!("{pid}/fd/3"))).unwrap();
        let status = format!("Name:\tweb\nPPid:\t{parent}\nCpus_allowed_list:\t0-3\n");
        fs::write(self.proc_(format!("{pid}/status")), &status).unwrap();
        for tid in threads {
            fs::create_dir_all(self.proc_(format!("{pid}/task/{tid}"))).unwrap();
            fs::write(self.proc_(format!("{pid}/task/{tid}/status")), &status).unwrap();
            self.used.insert((pid, *tid), [0, 0]);
            self.does(pid, *tid, [0, 0], RUNNING);
        }
    }

    fn does(&mut self, pid: u32, tid: u32, by_ms: [u64; 2], call: &str) {
        let used = self.used.get_mut(&(pid, tid)).unwrap();
        *used = [used[0] + by_ms[0], used[1] + by_ms[1]];
        let text = format!("{} {} 7\n", used[0] * 1_000_000, used[1] * 1_000_000);
        fs::write(self.proc_(format!("{pid}/task/{tid}/schedstat")), text).unwrap();
        fs::write(
            self.proc_(format!("{pid}/task/{tid}/syscall")),
            format!("{call} 0 0\n"),
        )
        .unwrap();
    }

    /// For four seconds each of these threads runs and waits so many milliseconds of every half, and is then in this call.
    fn sees(&mut self, threads: &[(u32, u32, [u64; 2], &str)]) -> Option<u32> {
        for _ in 0..8 {
            self.now += EVERY;
            for (pid, tid, by_ms, call) in threads {
                self.does(*pid, *tid, *by_ms, call);
            }
            self.look();
        }
        self.loops.busy
    }

    fn look(&mut self) {
        if self.loops.searched.is_none() {
            self.loops
                .search(Some([SOCKET].into()), &[(BESIDE, 8443), (STRANGE, 9000)].into());
            self.loops.searched = Some((BTreeSet::new(), self.now));
        }
        self.loops.busy = self.loops.look(self.now);
    }
}

#[test]
fn a_loop_is_full_where_it_runs_or_waits_for_a_cpu_all_the_time() {
    let mut machine = Machine::new(&[(10, 1, &[10])]);
    machine.look();
    assert_eq!(machine.loops.busy, None, "nothing is known at first");
    assert_eq!(machine.sees(&[(10, 10, [450, 0], EPOLL)]), Some(900));
    assert_eq!(machine.sees(&[(10, 10, [400, 100], RUNNING)]), Some(1_000));
    // One that blocks has time left.
    assert_eq!(machine.sees(&[(10, 10, [100, 0], FUTEX)]), Some(200));
}

#[test]
fn one_that_was_full_before_it_was_looked_at_is_known_though_it_never_waits() {
    let mut machine = Machine::new(&[(10, 1, &[10, 11, 12])]);
    // A runtime's own threads, one of which waits for its timers.
    let threads: &[_] = &[
        (10, 10, [490, 10], RUNNING),
        (10, 11, [0, 0], EPOLL),
        (10, 12, [0, 0], FUTEX),
    ];
    assert_eq!(machine.sees(threads), Some(1_000));
}

#[test]
fn a_full_worker_beside_an_idle_one_is_no_full_server() {
    let mut machine = Machine::new(&[(9, 1, &[9]), (10, 9, &[10]), (11, 9, &[11])]);
    let master = (9, 9, [0, 0], "130 0x0");
    let other = |by_ms, call| [master, (10, 10, [500, 0], RUNNING), (11, 11, by_ms, call)];
    // A quarter of what the machine's four processors have.
    assert_eq!(machine.sees(&other([0, 0], EPOLL)), Some(250));
    assert_eq!(machine.sees(&other([250, 0], EPOLL)), Some(500));
    assert_eq!(machine.sees(&other([400, 95], EPOLL)), Some(990));
}

#[test]
fn a_pool_with_a_worker_to_spare_is_never_full() {
    // In accept, and where an acceptor hands over.
    for (call, of_first) in [(ACCEPT, ACCEPT), (FUTEX, EPOLL), (FUTEX, ACCEPT)] {
        let mut machine = Machine::new(&[(10, 1, &[10, 11, 12])]);
        let threads: &[_] = &[
            (10, 10, [1, 0], of_first),
            (10, 11, [500, 0], RUNNING),
            (10, 12, [0, 0], call),
        ];
        assert!(machine.sees(threads) < Some(300), "{call} beside {of_first}");
    }
}

#[test]
fn threads_that_hand_over_to_one_another_are_full_where_they_use_all_cpus_that_they_may() {
    let mut machine = Machine::new(&[(10, 1, &[10, 11, 12, 13])]);
    let all = |ran| [10, 11, 12, 13].map(|tid| (10, tid, [ran, 0], if tid == 11 { EPOLL } else { FUTEX }));
    assert_eq!(machine.sees(&all(400)), Some(800));
    assert_eq!(machine.sees(&all(490)), Some(980));
    // Of one processor that a thread of them leaves to others a quarter of the time.
    let status = "PPid:\t1\nCpus_allowed_list:\t2\n";
    for tid in [10, 11, 12, 13] {
        fs::write(machine.proc_(format!("10/task/{tid}/status")), status).unwrap();
    }
    machine.loops.searched = None;
    assert_eq!(machine.sees(&all(123)), Some(984));
    assert_eq!(machine.sees(&all(90)), Some(720));
}

#[test]
fn the_other_ports_of_those_who_listen_are_found() {
    let mut machine = Machine::new(&[(10, 1, &[10]), (11, 1, &[11])]);
    machine.look();
    let others = |machine: &Machine| machine.loops.others.keys().copied().collect::<Vec<_>>();
    assert!(others(&machine).is_empty());
    symlink(format!("socket:[{BESIDE}]"), machine.proc_("10/fd/4".into())).unwrap();
    // It listens on another port alone.
    fs::remove_file(machine.proc_("11/fd/3".into())).unwrap();
    symlink(format!("socket:[{STRANGE}]"), machine.proc_("11/fd/4".into())).unwrap();
    machine.loops.searched = None;
    machine.look();
    assert_eq!(others(&machine), [8443]);
    // systemd listens for others.
    machine.start(1, 0, &[1]);
    fs::write(machine.proc_("1/comm".into()), "systemd\n").unwrap();
    symlink(format!("socket:[{STRANGE}]"), machine.proc_("1/fd/4".into())).unwrap();
    machine.loops.searched = None;
    machine.look();
    assert_eq!(others(&machine), [8443]);
}

#[test]
fn of_more_threads_than_are_looked_at_nothing_is_told() {
    let threads: Vec<u32> = (10..=10 + MAX_THREADS as u32).collect();
    let mut machine = Machine::new(&[(10, 1, &threads)]);
    assert_eq!(machine.sees(&[(10, 10, [500, 0], EPOLL)]), None);
}

#[test]
fn another_process_of_the_same_number_is_another() {
    let mut machine = Machine::new(&[(10, 1, &[10])]);
    machine.sees(&[(10, 10, [300, 0], EPOLL)]);
    machine.used.insert((10, 10), [0, 0]);
    machine.now += EVERY;
    machine.does(10, 10, [300, 0], EPOLL);
    machine.look();
    assert_eq!(machine.loops.busy, None);
    assert_eq!(machine.sees(&[(10, 10, [500, 0], EPOLL)]), Some(1_000));
}
