//! What may keep a server from being helped, said once each: by what its library counts, and by what /proc shows of it as long as no
//! client of its is on call.

use super::listeners::{Listener, Ring, listeners};
use headroom_console::say;
use headroom_node::Roots;
use headroom_oncall::Totals;
use headroom_oncall::layout::{MAX_CONNECTIONS, MAX_FD};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a server may take until it has loaded the library, or is said not to have.
const LOADED_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked at as long as no client of its is on call. What is so at two looks in a row is said.
const LOOK_EVERY: Duration = Duration::from_millis(1500);

/// The doubts about one server.
#[derive(Debug)]
pub struct Doubts {
    pid: u32,
    folder: PathBuf,
    started: Instant,
    looked: Instant,
    /// What the last look found.
    suspected: Option<Unseen>,
    said: Vec<Doubt>,
    /// The process whose workers were on call at the last look; 0 of none.
    owner: u32,
    /// Connections up to then that came while it lacked descriptors or a thread.
    lacked: u64,
}

/// What was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    NotLoaded,
    Unseen(Why),
    EventDriven,
    Processes,
    NoTimes,
    Elsewhere,
    Lacks,
    NoRoom,
}

/// Why no client of a process that listens is on call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The library is not loaded into it.
    NoLibrary,
    /// The library is, and cannot reach the region.
    NoRegion,
    /// It has clients, of whom its library sees none, and waits for them or for what they send in an io_uring.
    Ring,
    /// It has clients, and its library sees none of them.
    Invisible,
}

/// A process whose clients are not on call.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Unseen {
    why: Why,
    who: Listener,
}

impl Doubts {
    /// Of a server that has just been started with the library and the region in a folder.
    pub fn new(pid: u32, folder: &Path) -> Self {
        Self {
            pid,
            folder: folder.to_owned(),
            started: Instant::now(),
            looked: Instant::now(),
            suspected: None,
            said: Vec::new(),
            owner: 0,
            lacked: 0,
        }
    }

    fn say(&mut self, doubt: Doubt, text: &str) {
        if !self.said.contains(&doubt) {
            self.said.push(doubt);
            say::note!("{text}");
        }
    }

    /// Says what there is to say, and has not been said.
    pub fn raise(&mut self, totals: &Totals) {
        self.look(totals);
        self.raise_counted(totals);
    }

    /// The same by what the library counts alone: at the server's end, when whoever waits for it would wait for a look through /proc.
    pub fn raise_counted(&mut self, totals: &Totals) {
        let before = std::mem::replace(&mut self.owner, totals.owner);
        if let Some(text) = change_of_owner(before, totals.owner) {
            say::note!("{text}");
        }
        if totals.loaded == 0 && self.started.elapsed() > LOADED_WITHIN {
            self.say(
                Doubt::NotLoaded,
                "the server has not loaded the library, and runs as without us: it, or the script that starts it, clears LD_PRELOAD or \
                 HEADROOM_ONCALL, or changes to a user that may not read the run folder. Wrap the server itself, and give --run-dir a \
                 folder that its user can read",
            );
        }
        if totals.event_driven > 0 && totals.queries == 0 {
            self.say(
                Doubt::EventDriven,
                "the server watches its connections with epoll and serves many with one thread: there is no worker to park, and it runs \
                 as without us (httpd: use mpm_worker, not mpm_event)",
            );
        }
        if totals.by_processes {
            self.say(
                Doubt::Processes,
                "the server has a process for each connection: these share the slots, and each wakes with its client's query before it \
                 stands in line",
            );
        }
        if totals.by_processes && !Path::new("/proc/self/schedstat").exists() {
            self.say(
                Doubt::NoTimes,
                "the kernel does not count for how long a process waits for a processor (/proc/self/schedstat, CONFIG_SCHED_INFO): while \
                 nobody is on call latencies are without that",
            );
        }
        if totals.elsewhere > 0 {
            self.say(
                Doubt::Elsewhere,
                "several processes serve connections, one of them by threads: those of the first are on call, and when it has ended those of \
                 the next that serves a client; what the others serve meanwhile is served as without us. A reload (apachectl graceful) has two \
                 for a while; where several serve all the time, have one (httpd's mpm_worker: ServerLimit 1, and ThreadsPerChild as many as \
                 MaxRequestWorkers). Where the first was a program beside the server, as an exporter of metrics, start that outside of wrap",
            );
        }
        let lacked = std::mem::replace(&mut self.lacked, totals.lacking);
        if totals.lacking > lacked && (totals.owner == 0 || totals.owner_ended) {
            self.say(
                Doubt::Lacks,
                "the server has no descriptors left for the library, which needs two and a thread, or could not have a thread: it runs as \
                 without us until its next client finds them. Raise its limits (ulimit -n, LimitNOFILE=, TasksMax=)",
            );
        }
        if totals.unmanaged > 0 {
            let text = format!(
                "more connections, or higher descriptors, than can be on call at once ({MAX_CONNECTIONS}, and under {MAX_FD}): those \
                 beyond are served as without us"
            );
            self.say(Doubt::NoRoom, &text);
        }
    }

    /// Looks at its processes as long as no client of theirs was seen.
    fn look(&mut self, totals: &Totals) {
        if has_seen(totals) || self.looked.elapsed() < LOOK_EVERY {
            return;
        }
        self.looked = Instant::now();
        let Some(folder) = self.folder.file_name().and_then(|name| name.to_str()) else {
            return;
        };
        let found = unseen(listeners(&Roots::default(), self.pid, folder));
        let before = std::mem::replace(&mut self.suspected, found.clone());
        if let Some(found) = found
            && before.is_some_and(|before| (before.why, before.who.pid) == (found.why, found.who.pid))
        {
            let text = found.text(&self.folder);
            self.say(Doubt::Unseen(found.why), &text);
        }
    }
}

/// What there is to say where the process whose workers are on call is another than before. Whether the one before has ended and none has come
/// after it is a state of the server, which its device tells of.
fn change_of_owner(before: u32, now: u32) -> Option<String> {
    (before != 0 && before != now).then(|| {
        format!("the workers of pid {now} are on call now, after those of pid {before}, which has ended")
    })
}

/// Whether the library has seen a client, and made something of it.
fn has_seen(totals: &Totals) -> bool {
    totals.owner != 0 || totals.event_driven + totals.elsewhere + totals.unmanaged + totals.lacking > 0
}

/// The worst among the processes that listen, while no client was seen.
fn unseen(all: Vec<Listener>) -> Option<Unseen> {
    // One that has all it needs and no client yet speaks for those beside it.
    if all.iter().any(|one| one.has_region && one.clients == 0) {
        return None;
    }
    let why = |one: &Listener| match one {
        one if !one.has_library => Why::NoLibrary,
        one if !one.has_region => Why::NoRegion,
        one if one.ring == Ring::Sockets => Why::Ring,
        _ => Why::Invisible,
    };
    // A helper without the library beside a server with it is no server.
    let who = all
        .into_iter()
        .max_by_key(|one| (one.has_region, one.has_library, one.clients))?;
    Some(Unseen { why: why(&who), who })
}

impl Unseen {
    fn text(&self, folder: &Path) -> String {
        let Listener { name, pid, user, .. } = &self.who;
        let at = folder.display();
        match self.why {
            Why::NoLibrary => format!(
                "{name} (pid {pid}, user {user}) waits for clients and has not loaded the library, and runs as without us: whatever started \
                 it clears LD_PRELOAD (su -, sudo, setpriv --reset-env), or its user may not read {at}. Keep the environment (runuser -u \
                 USER -- SERVER), and give --run-dir a folder that user {user} can read"
            ),
            Why::NoRegion => format!(
                "{name} (pid {pid}, user {user}) has loaded the library and cannot reach {at}/{}, and runs as without us: its user may not \
                 open that file, and whatever started it closed the descriptor that it was to inherit, or cleared HEADROOM_ONCALL. Start \
                 wrap as that user, or let the server change its user itself (mariadbd --user=mysql)",
                super::folder::REGION_FILE
            ),
            Why::Ring => format!(
                "{name} (pid {pid}) talks to its clients through io_uring, which is not put on call: it runs as without us"
            ),
            Why::Invisible => format!(
                "{name} (pid {pid}) has clients and waits for none of them where the library sees it: it waits for many at once with poll or \
                 select, or by system calls of its own{}. It runs as without us",
                match self.who.ring {
                    Ring::None => "",
                    _ => ", as through the io_uring that it has",
                }
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: ([bool; 2], Ring) = ([true, true], Ring::None);

    fn listener(pid: u32, ([has_library, has_region], ring): ([bool; 2], Ring), clients: usize) -> Listener {
        Listener {
            pid,
            name: "mariadbd".to_owned(),
            user: 104,
            has_library,
            has_region,
            ring,
            clients,
        }
    }

    fn why(all: &[Listener]) -> Option<(Why, u32)> {
        unseen(all.to_vec()).map(|found| (found.why, found.who.pid))
    }

    #[test]
    fn what_keeps_a_server_from_being_helped_is_told_by_its_processes() {
        assert_eq!(why(&[]), None);
        // As long as nobody came, nothing is known.
        assert_eq!(why(&[listener(7, ([true; 2], Ring::Sockets), 0)]), None);
        assert_eq!(
            why(&[listener(7, ([true; 2], Ring::Sockets), 3)]),
            Some((Why::Ring, 7))
        );
        assert_eq!(
            why(&[listener(7, ([true; 2], Ring::Unclear), 3)]),
            Some((Why::Invisible, 7))
        );
        assert_eq!(why(&[listener(7, SERVER, 3)]), Some((Why::Invisible, 7)));
        assert_eq!(
            why(&[listener(7, ([true, false], Ring::None), 0)]),
            Some((Why::NoRegion, 7))
        );
        assert_eq!(
            why(&[listener(7, ([false; 2], Ring::Sockets), 2)]),
            Some((Why::NoLibrary, 7))
        );
    }

    #[test]
    fn a_helper_without_the_library_says_nothing_of_the_server() {
        let helper = listener(8, ([false; 2], Ring::None), 5);
        assert_eq!(why(&[helper.clone(), listener(7, SERVER, 0)]), None);
        assert_eq!(why(&[helper, listener(7, SERVER, 1)]), Some((Why::Invisible, 7)));
    }

    #[test]
    fn what_is_said_names_the_process_the_file_and_the_remedy() {
        let said = |state, clients| {
            let found = unseen(vec![listener(7, state, clients)]).unwrap();
            found.text(Path::new("/run/headroom/oncall-3"))
        };
        for (text, parts) in [
            (
                said(([false; 2], Ring::None), 0),
                vec!["LD_PRELOAD", "--run-dir", "user 104"],
            ),
            (
                said(([true, false], Ring::None), 0),
                vec!["/run/headroom/oncall-3/region", "Start wrap as"],
            ),
            (
                said(([true; 2], Ring::Sockets), 1),
                vec!["io_uring, which is not put on call"],
            ),
            (said(SERVER, 1), vec!["poll or select", "its own. It runs"]),
            (
                said(([true; 2], Ring::Unclear), 1),
                vec!["as through the io_uring that it has"],
            ),
        ] {
            assert!(text.starts_with("mariadbd (pid 7"), "{text}");
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }

    #[test]
    fn a_process_that_is_on_call_after_another_is_said_once() {
        let looks = [0, 7, 7, 8, 8];
        let said: Vec<String> = looks
            .windows(2)
            .filter_map(|pair| change_of_owner(pair[0], pair[1]))
            .collect();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("of pid 8 are on call now, after those of pid 7"));
    }

    #[test]
    fn a_client_that_was_seen_in_any_way_ends_the_looks() {
        assert!(!has_seen(&Totals::default()));
        let seen = [
            Totals {
                owner: 3,
                ..Totals::default()
            },
            Totals {
                event_driven: 1,
                ..Totals::default()
            },
            Totals {
                elsewhere: 1,
                ..Totals::default()
            },
            Totals {
                unmanaged: 1,
                ..Totals::default()
            },
        ];
        assert!(seen.iter().all(has_seen));
    }
}
