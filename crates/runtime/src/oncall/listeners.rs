//! The processes of a wrapped server at which clients come, as /proc shows them: what became of the library in each, and whether it has
//! clients.

use headroom_node::Roots;
use headroom_node::perf::tree_of;
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// What /proc calls a ring.
const RING: &str = "anon_inode:[io_uring]";
/// The operations that sockets alone have: IORING_OP_SENDMSG, RECVMSG, ACCEPT, SEND, RECV, SEND_ZC, SENDMSG_ZC and RECV_ZC of
/// linux/io_uring.h.
const OF_SOCKETS: [u32; 8] = [9, 10, 13, 26, 27, 47, 48, 58];

/// A process that listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// The user that it runs as, by number.
    pub user: u32,
    /// Whether the library is loaded into it.
    pub has_library: bool,
    /// Whether it has the region.
    pub has_region: bool,
    /// What it has of io_uring.
    pub ring: Ring,
    /// Connections that came to where it listens and were accepted, by whomever.
    pub clients: usize,
}

/// What a process has of io_uring(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ring {
    /// None.
    None,
    /// One whose operations on sockets, if there are any, are not shown: as one for files.
    Unclear,
    /// One that waits for clients, or for what they send.
    Sockets,
}

/// Those among a process and its descendants that listen. `folder` is the name of the folder in which the library and the region are,
/// which no other has.
pub fn listeners(roots: &Roots, root: u32, folder: &str) -> Vec<Listener> {
    let all = tree_of(roots, root).unwrap_or_default();
    all.into_iter()
        .filter_map(|pid| listener(roots, pid, folder))
        .collect()
}

/// Those that have the library of a folder loaded, wherever they are in the tree of processes, with their names: what a server left behind
/// that has ended. Of other users' none, where this one may not look at them.
pub fn survivors(roots: &Roots, folder: &str) -> Vec<(u32, String)> {
    let library = format!("/{folder}/{}", super::folder::LIBRARY_FILE);
    let all = fs::read_dir(roots.proc_("")).into_iter().flatten().flatten();
    all.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let maps = fs::read_to_string(entry.path().join("maps")).ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        maps.contains(&library).then(|| (pid, name.trim_end().to_owned()))
    })
    .collect()
}

/// One process, where it listens; what has ended meanwhile, or may not be looked at, does not.
fn listener(roots: &Roots, pid: u32, folder: &str) -> Option<Listener> {
    let process = roots.proc_(pid.to_string());
    let read = |name: &str| fs::read_to_string(process.join(name)).unwrap_or_default();
    let links: Vec<(PathBuf, String)> = fs::read_dir(process.join("fd"))
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let link = fs::read_link(entry.path()).ok()?.to_str()?.to_owned();
            Some((process.join("fdinfo").join(entry.file_name()), link))
        })
        .collect();
    let own: HashSet<u64> = links.iter().filter_map(|(_, link)| socket(link)).collect();
    let rings = links
        .iter()
        .filter(|(_, link)| link == RING)
        .map(|(about, _)| ring(&fs::read_to_string(about).unwrap_or_default()));
    let network: Vec<Socket> = [read("net/tcp"), read("net/tcp6")]
        .iter()
        .flat_map(|text| text.lines().filter_map(internet))
        .collect();
    let local: Vec<Socket> = read("net/unix").lines().filter_map(unix).collect();
    let clients = [network, local].iter().try_fold((false, 0), |sum, all| {
        let places: HashSet<&str> = all
            .iter()
            .filter(|socket| socket.listens && own.contains(&socket.inode))
            .map(|socket| socket.place.as_str())
            .collect();
        // One without an inode has not been accepted yet.
        let accepted = all
            .iter()
            .filter(|socket| !socket.listens && socket.inode != 0 && places.contains(socket.place.as_str()));
        Some((sum.0 || !places.is_empty(), sum.1 + accepted.count()))
    });
    let (listens, clients) = clients?;
    if !listens {
        return None;
    }
    let maps = read("maps");
    let has = |file: &str| maps.contains(&format!("/{folder}/{file}"));
    Some(Listener {
        pid,
        name: read("comm").trim_end().to_owned(),
        user: fs::metadata(&process).ok()?.uid(),
        has_library: has(super::folder::LIBRARY_FILE),
        has_region: has(super::folder::REGION_FILE),
        // Its memory is there also where its descriptor is registered alone.
        ring: match maps.contains(RING) {
            true => rings.max().unwrap_or(Ring::None).max(Ring::Unclear),
            false => rings.max().unwrap_or(Ring::None),
        },
        clients,
    })
}

/// What /proc says of a ring's descriptor: among much else the operations that wait until their descriptor is ready, of which those of files
/// never do, as `op=NUMBER, task_works=...` under `PollList:`.
fn ring(about: &str) -> Ring {
    let waiting = about.lines().skip_while(|line| *line != "PollList:").skip(1);
    let mut operations = waiting.map_while(|line| {
        let number = line.trim_start().strip_prefix("op=")?.split(',').next()?;
        number.parse::<u32>().ok()
    });
    match operations.any(|operation| OF_SOCKETS.contains(&operation)) {
        true => Ring::Sockets,
        false => Ring::Unclear,
    }
}

/// The inode that `socket:[INODE]` names.
fn socket(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// A socket that listens, or a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Socket {
    /// Its own port, or its path: what connections have of the socket at which they came.
    place: String,
    listens: bool,
    inode: u64,
}

/// A line of `/proc/net/tcp` (proc_pid_net(5)): number, own address, the other's, state, ..., of which the tenth is the inode.
fn internet(line: &str) -> Option<Socket> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let listens = match *fields.get(3)? {
        "0A" => true,
        "01" => false,
        _ => return None,
    };
    Some(Socket {
        place: fields[1].rsplit_once(':')?.1.to_owned(),
        listens,
        inode: fields.get(9)?.parse().ok()?,
    })
}

/// A line of `/proc/net/unix`: number, references, protocol, flags, type, state, inode, path. Flag 0x10000 is of one that listens, state
/// 3 of one that is connected.
fn unix(line: &str) -> Option<Socket> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let listens = u32::from_str_radix(fields.get(3)?, 16).ok()? & 0x1_0000 != 0;
    if !listens && *fields.get(5)? != "03" {
        return None;
    }
    Some(Socket {
        place: (*fields.get(7)?).to_owned(),
        listens,
        inode: fields.get(6)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn sockets_are_read_as_the_kernel_writes_them() {
        let header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        let listening = "   0: 0100007F:0CEA 00000000:0000 0A 00000000:00000000 00:00000000 00000000   104        0 48211 1 0 100 0 0 10 0";
        let waiting = "   1: 0100007F:0CEA 0100007F:A1B2 01 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1";
        let closing = "   2: 0100007F:0CEA 0100007F:A1B4 06 00000000:00000000 03:000017D0 00000000     0        0 0 3 0";
        assert_eq!(internet(header), None);
        let socket = |place: &str, listens, inode| Socket {
            place: place.to_owned(),
            listens,
            inode,
        };
        assert_eq!(internet(listening), Some(socket("0CEA", true, 48211)));
        assert_eq!(internet(waiting), Some(socket("0CEA", false, 0)));
        assert_eq!(internet(closing), None);
        let listening = "0000000000000000: 00000002 00000000 00010000 0001 01 51234 /run/mysqld/mysqld.sock";
        let connected = "0000000000000000: 00000003 00000000 00000000 0001 03 51236 /run/mysqld/mysqld.sock";
        let unnamed = "0000000000000000: 00000003 00000000 00000000 0001 03 51237";
        assert_eq!(
            unix(listening),
            Some(socket("/run/mysqld/mysqld.sock", true, 51234))
        );
        assert_eq!(
            unix(connected),
            Some(socket("/run/mysqld/mysqld.sock", false, 51236))
        );
        assert_eq!(unix(unnamed), None);
        assert_eq!(super::socket("socket:[48211]"), Some(48211));
        assert_eq!(super::socket("pipe:[48211]"), None);
    }

    #[test]
    fn a_ring_for_clients_is_told_from_one_for_files_by_what_waits_in_it() {
        let about = |waiting: &str| {
            format!("pos:\t0\nUserFiles:\t0\nPollList:\n{waiting}CqOverflowList:\n  op=13, no\n")
        };
        assert_eq!(ring(&about("")), Ring::Unclear);
        assert_eq!(ring(&about("  op=13, task_works=0\n")), Ring::Sockets);
        assert_eq!(
            ring(&about("  op=22, task_works=0\n  op=27, task_works=1\n")),
            Ring::Sockets
        );
        // Somebody may wait in it for a descriptor by which a thread is woken.
        assert_eq!(
            ring(&about("  op=6, task_works=0\n  op=22, task_works=0\n")),
            Ring::Unclear
        );
        assert_eq!(ring(""), Ring::Unclear);
    }

    #[test]
    fn clients_are_those_that_were_accepted_at_any_of_its_sockets() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("socket");
        let (network, local) = (
            TcpListener::bind(("127.0.0.1", 0)).unwrap(),
            UnixListener::bind(&at).unwrap(),
        );
        // Other tests of this program may listen at the same time: this counts what is there beside them.
        let me = || listener(&Roots::default(), std::process::id(), "oncall-none").unwrap();
        let accepted = |all: &[Socket], place: &str| {
            let connections = all.iter().filter(|one| !one.listens && one.place == place);
            connections.filter(|one| one.inode != 0).count()
        };
        let local_clients = || {
            let text = fs::read_to_string("/proc/self/net/unix").unwrap();
            let all: Vec<Socket> = text.lines().filter_map(unix).collect();
            accepted(&all, at.to_str().unwrap())
        };
        let port = network.local_addr().unwrap().port();
        let network_clients = || {
            let text = fs::read_to_string("/proc/self/net/tcp").unwrap();
            let all: Vec<Socket> = text.lines().filter_map(internet).collect();
            accepted(&all, &format!("{port:04X}"))
        };
        let _near = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _own = UnixStream::connect(&at).unwrap();
        assert_eq!((network_clients(), local_clients()), (0, 0));
        let _first = network.accept().unwrap();
        let _second = local.accept().unwrap();
        assert_eq!((network_clients(), local_clients()), (1, 1));
        let me = me();
        assert!(me.clients >= 2, "{me:?}");
        assert!(!me.has_library && !me.has_region, "{me:?}");
    }
}
