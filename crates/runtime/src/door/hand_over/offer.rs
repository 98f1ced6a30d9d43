//! The old gateway's side: offers its sockets, and hears that a successor serves.

use super::{
    MAX_DESCRIPTORS, Message, VERSION, be_patient, borrowed, namespace, own_user, peer_is, receive, send,
};
use anyhow::{Context, ensure};
use headroom_gateway::SharedListeners;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
    sockopt::{self, Timeout},
};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Connections that may wait to be answered, and successors that may have sockets and not serve yet. At one more the one that
/// has not served for the longest time is heard no more: it holds the sockets, and its predecessor serves beside it.
const MAX_SUCCESSORS: usize = 8;

/// The pause before a successor is accepted again for whom there was no descriptor.
const SHORT_PAUSE: Duration = Duration::from_millis(200);
/// How long somebody is waited for who will get nothing.
const STRANGERS_PATIENCE: Duration = Duration::from_millis(100);

/// A Unix socket at which nobody is answered yet. It is removed when this is dropped.
#[derive(Debug)]
pub struct Offer {
    socket: OwnedFd,
    /// Removed with it.
    _file: File,
    /// Who may ask, beside root.
    user: u32,
    namespace: Option<PathBuf>,
}

/// The file of a socket, as long as it is ours.
#[derive(Debug)]
struct File {
    path: PathBuf,
    /// Device and inode.
    id: (u64, u64),
}

impl Drop for File {
    fn drop(&mut self) {
        // A successor may have its own there by now. Where this process may no more, its file is left: nobody answers at it.
        if fs::symlink_metadata(&self.path).is_ok_and(|about| (about.dev(), about.ino()) == self.id) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A socket of packets.
pub(super) fn packets() -> rustix::io::Result<OwnedFd> {
    socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
}

impl Offer {
    /// Listens at a path whose folder there is, in the place of whatever socket is there.
    ///
    /// # Errors
    /// A path that cannot be bound: too long, in a folder that this user may not write.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let open = || -> io::Result<Self> {
            let socket = packets()?;
            // Its file has this mode from the first, less the umask.
            fchmod(&socket, Mode::from_raw_mode(0o600))?;
            let mut new = path.as_os_str().to_owned();
            new.push(".new");
            let new = PathBuf::from(new);
            let _ = fs::remove_file(&new);
            bind(&socket, &SocketAddrUnix::new(&new)?)?;
            let about = fs::symlink_metadata(&new)?;
            let id = (about.dev(), about.ino());
            let file = File {
                path: new.clone(),
                id,
            };
            listen(&socket, MAX_SUCCESSORS as i32)?;
            // Whoever finds it is answered, or waits: it listens already.
            fs::rename(&new, path)?;
            drop(file);
            Ok(Self {
                socket,
                _file: File {
                    path: path.to_owned(),
                    id,
                },
                user: own_user(),
                namespace: namespace(),
            })
        };
        open().with_context(|| {
            format!(
                "{}: a successor cannot be given the listening sockets here",
                path.display()
            )
        })
    }

    /// The same in a folder of many, under a name of its own; what dead gateways left there is removed.
    ///
    /// # Errors
    /// As [`Offer::open`], and a folder that others may write.
    pub fn open_in(run_dir: &Path) -> anyhow::Result<Self> {
        let folder = run_dir.join(super::OFFERS);
        headroom_node::ours::make(run_dir, 0o700)?;
        headroom_node::ours::make(&folder, 0o700)?;
        for path in super::ask::offers_in(&folder) {
            let refused = |error: rustix::io::Errno| error == rustix::io::Errno::CONNREFUSED;
            let probe = || connect(packets()?, &SocketAddrUnix::new(&path)?);
            if probe().is_err_and(refused) {
                let _ = fs::remove_file(&path);
            }
        }
        // A process of another namespace may have the same number.
        let name = format!("{}-{:08x}.sock", std::process::id(), crate::random() as u32);
        Self::open(&folder.join(name))
    }

    /// Whether [`Offer::open_in`] could open one there. Nothing is made.
    ///
    /// # Errors
    /// As [`Offer::open_in`].
    pub fn check_in(run_dir: &Path) -> anyhow::Result<()> {
        if run_dir.exists() {
            headroom_node::ours::check_make(run_dir)?;
        }
        let folder = run_dir.join(super::OFFERS);
        headroom_node::ours::check_make(&folder)?;
        // As long as any that there can be.
        let longest = folder.join(format!("{}-{:08x}.sock.new", i32::MAX, u32::MAX));
        SocketAddrUnix::new(&longest)
            .with_context(|| format!("{}: a socket in it would have too long a path", folder.display()))?;
        Ok(())
    }

    /// Answers successors from a thread of its own; `handed_over` is called once, when one of them serves, with its process.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub fn serve(
        self,
        listeners: SharedListeners,
        handed_over: impl FnOnce(i32) + Send + 'static,
    ) -> io::Result<Offering> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("hand-over".to_owned())
            .spawn(move || {
                let successor = self.answer_all(&listeners, &stopped);
                // Nothing of the sockets is held while the gateway drains, and nobody else is promised them.
                drop((self, listeners));
                if let Some(pid) = successor {
                    handed_over(pid);
                }
            })?;
        Ok(Offering {
            stop,
            thread: Some(thread),
        })
    }

    /// Answers successors until one of them serves, which it returns, or `stop` is written.
    fn answer_all(&self, listeners: &SharedListeners, stop: &OwnedFd) -> Option<i32> {
        let mut successors: Vec<Successor> = Vec::new();
        let mut short = false;
        loop {
            let mut waited = vec![
                PollFd::new(stop, PollFlags::IN),
                PollFd::new(&self.socket, PollFlags::IN),
            ];
            waited.extend(
                successors
                    .iter()
                    .map(|one| PollFd::new(&one.socket, PollFlags::IN)),
            );
            match poll(&mut waited, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => {
                    tracing::error!(%error, "successors are heard no more");
                    return None;
                }
            }
            let ready: Vec<bool> = waited.iter().map(|one| !one.revents().is_empty()).collect();
            drop(waited);
            if ready[0] {
                return None;
            }
            let mut spoke = ready[2..].iter();
            let mut served = None;
            successors.retain(|successor| {
                if !spoke.next().copied().unwrap_or(false) || served.is_some() {
                    return true;
                }
                match receive(successor.socket.as_fd()) {
                    Ok(Some((Message::Serving, _))) => {
                        listeners.handed_over(&successor.addresses);
                        served = Some(successor.pid);
                    }
                    // It ended before it served.
                    other => tracing::warn!(
                        pid = successor.pid,
                        said = ?other,
                        "a successor had the listening sockets and does not serve: this gateway goes on"
                    ),
                }
                false
            });
            if served.is_some() {
                return served;
            }
            if ready[1] {
                let socket = match accept_with(&self.socket, SocketFlags::CLOEXEC) {
                    Ok(socket) => socket,
                    Err(error) => {
                        // It waits in the queue, and would be found there again at once: clients have the descriptors just now.
                        if !std::mem::replace(&mut short, true) {
                            tracing::warn!(%error, "a successor waits to be answered");
                        }
                        std::thread::sleep(SHORT_PAUSE);
                        continue;
                    }
                };
                short = false;
                match self.answer(socket, listeners) {
                    Ok(Some(successor)) => {
                        if successors.len() == MAX_SUCCESSORS {
                            successors.remove(0);
                        }
                        successors.push(successor);
                    }
                    Ok(None) => {}
                    Err(error) => tracing::warn!("a successor was given no sockets: {error:#}"),
                }
            }
        }
    }

    /// Answers one that has connected: it gets the sockets of the addresses that it asks for. `None` where it asks for nothing.
    fn answer(&self, socket: OwnedFd, listeners: &SharedListeners) -> anyhow::Result<Option<Successor>> {
        let peer = socket.as_fd();
        be_patient(peer)?;
        let pid = match peer_is(peer, self.user)? {
            Ok(pid) => pid,
            Err(uid) => {
                let why = format!(
                    "only root and user {} may have them, and not user {uid}",
                    self.user
                );
                // It hears why where it asks, and is not waited for: a packet that nobody read would take the answer away.
                sockopt::set_socket_timeout(peer, Timeout::Recv, Some(STRANGERS_PATIENCE))?;
                let _ = receive(peer);
                let _ = send(peer, &Message::Refused { why: why.clone() }, &[]);
                anyhow::bail!(why);
            }
        };
        let (version, theirs, listen) = match receive(peer)? {
            // Somebody looked whether this process is alive.
            None => return Ok(None),
            Some((
                Message::Ask {
                    version,
                    namespace,
                    listen,
                },
                _,
            )) => (version, namespace, listen),
            Some((other, _)) => anyhow::bail!("it did not ask, it said {other:?}"),
        };
        let fits = || {
            ensure!(
                version == VERSION,
                "this gateway hands over by version {VERSION}, not {version}"
            );
            ensure!(
                theirs == self.namespace,
                "this gateway is in another network namespace, where addresses are others"
            );
            Ok(())
        };
        if let Err(error) = fits() {
            let why = error.to_string();
            let _ = send(peer, &Message::Refused { why }, &[]);
            return Err(error);
        }
        for address in &listen {
            for some in listeners.of(*address).chunks(MAX_DESCRIPTORS) {
                send(peer, &Message::Sockets { address: *address }, &borrowed(some))?;
            }
        }
        send(peer, &Message::All, &[])?;
        tracing::info!(pid, ?listen, "a successor has the listening sockets");
        Ok(Some(Successor {
            socket,
            pid,
            addresses: listen,
        }))
    }
}

/// One that has the sockets and does not serve yet.
struct Successor {
    socket: OwnedFd,
    pid: i32,
    addresses: Vec<SocketAddr>,
}

/// Answers successors until it is dropped; then the descriptors that it held for them are closed.
#[derive(Debug)]
pub struct Offering {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Offering {
    fn drop(&mut self) {
        // A full counter wakes the thread as well.
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that hands over had panicked");
        }
    }
}
