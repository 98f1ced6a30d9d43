//! The guard's side: it waits for the end or the silence of an owner, and puts back what the owner limits.

use super::link::{Lines, send};
use super::{FromGuard, Hello, SOCKET, ToGuard, apart};
use crate::live::undo::Remains;
use anyhow::{Context, bail};
use headroom_console::say;
use headroom_node::restore::{self, LedgerError, Left, MAX_PULSES};
use headroom_node::{Roots, agent, ours};
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// An owner says hello at once.
const HELLO_WITHIN: Duration = Duration::from_secs(10);
/// Limits that come back while a thread is silent are lifted again after this time.
const LIFT_AGAIN: Duration = Duration::from_millis(250);
/// A service looks this often whether a run that it was not connected to was killed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Lines that are read before it is judged who is late.
const MAX_LINES_AT_ONCE: usize = 256;
/// The most owners that are connected to a service at once: one runs, and others just ended or are refused.
const MAX_CONNECTIONS: usize = 8;
/// A dead owner's lock may be held for a moment by what the kernel has not ended yet.
const DIES_WITHIN: Duration = Duration::from_secs(10);

/// What a guard watches over.
#[derive(Clone, Debug)]
pub struct Post {
    /// The run directory.
    pub run_dir: PathBuf,
    /// Where the kernel's files are.
    pub roots: Roots,
    /// What dead demos left, which is taken away too.
    pub remains: Remains,
}

/// A thread that is to give a sign of life.
struct Due {
    name: String,
    since: Instant,
    at: Instant,
}

/// What was done about silence.
struct Silence {
    why: String,
    again: Instant,
    said: String,
}

impl Post {
    /// Watches over one owner until the connection ends, and puts back what it left: nothing, unless it was killed.
    ///
    /// # Errors
    /// What is left cannot be put back.
    pub fn watch(&self, stream: UnixStream, note: Option<String>) -> anyhow::Result<()> {
        let answers = stream.try_clone()?;
        let mut lines = Lines::new(stream);
        if let Err(why) = self.greet(&mut lines) {
            let why = format!("{why:#}");
            let _ = send(&answers, &FromGuard::Refused { why: why.clone() });
            bail!("{why}");
        }
        let standing = FromGuard::Standing {
            pid: std::process::id(),
            note,
        };
        // An owner that is gone already is found by the next read.
        let _ = send(&answers, &standing);
        self.attend(&mut lines, &answers);
        self.put_back_of_dead()
    }

    /// Whether the owner is one that can be watched over.
    fn greet(&self, lines: &mut Lines) -> anyhow::Result<()> {
        let Some(ToGuard::Hello(hello)) = lines.next(HELLO_WITHIN)? else {
            bail!("no greeting came from whoever connected");
        };
        let Hello {
            version,
            sys,
            proc,
            hierarchies,
            ..
        } = hello;
        let own = env!("CARGO_PKG_VERSION");
        if version != own {
            bail!("this guard is of version {own}, and its owner of {version}: start the guard again");
        }
        if (&sys, &proc) != (&self.roots.sys, &self.roots.proc_) {
            bail!(
                "the owner's kernel files are in {} and {}: start the guard with --sys and --proc like that",
                sys.display(),
                proc.display()
            );
        }
        let other = hierarchies
            .into_iter()
            .find(|one| apart::identity(one.path.clone()).as_ref() != Some(one));
        if let Some(other) = other {
            bail!(
                "{} is another control group hierarchy for this guard than for its owner: mount the host's at the same \
                 place for both",
                other.path.display()
            );
        }
        Ok(())
    }

    /// Until the connection ends.
    fn attend(&self, lines: &mut Lines, answers: &UnixStream) {
        let mut pulses: BTreeMap<u32, Due> = BTreeMap::new();
        let mut silence: Option<Silence> = None;
        loop {
            let now = Instant::now();
            let next = match &silence {
                Some(silence) => Some(silence.again),
                None => pulses.values().map(|due| due.at).min(),
            };
            let mut wait = next.map_or(DIES_WITHIN, |next| next.saturating_duration_since(now));
            // All that came while this process did not run is heard before anybody is judged.
            for _ in 0..MAX_LINES_AT_ONCE {
                match lines.next(wait) {
                    Ok(Some(ToGuard::Beat {
                        pulse,
                        name,
                        within_ms,
                    })) => {
                        let since = Instant::now();
                        let at = since + Duration::from_millis(within_ms);
                        if pulses.len() < MAX_PULSES || pulses.contains_key(&pulse) {
                            pulses.insert(pulse, Due { name, since, at });
                        }
                    }
                    Ok(Some(ToGuard::Rest { pulse })) => drop(pulses.remove(&pulse)),
                    Ok(Some(ToGuard::Ping)) => drop(send(answers, &FromGuard::Alive)),
                    Ok(Some(ToGuard::Hello(_))) => {}
                    Ok(None) => break,
                    Err(_) => return,
                }
                wait = Duration::ZERO;
            }
            let now = Instant::now();
            let late = pulses.values().find(|due| due.at <= now);
            match (late, &mut silence) {
                (None, None) => {}
                (None, Some(_)) => {
                    tracing::warn!("it gives signs of life again: it may set limits again");
                    let _ = send(answers, &FromGuard::Rearmed);
                    silence = None;
                }
                (Some(_), Some(silence)) if now < silence.again => {}
                (Some(_), Some(silence)) => self.lift(silence),
                (Some(late), None) => {
                    let why = format!(
                        "{} gave no sign of life for {:.1} s",
                        late.name,
                        now.saturating_duration_since(late.since).as_secs_f64()
                    );
                    let silence = silence.insert(Silence {
                        why,
                        again: now,
                        said: String::new(),
                    });
                    self.lift(silence);
                    let why = silence.why.clone();
                    let _ = send(answers, &FromGuard::Lifted { why });
                }
            }
        }
    }

    /// Lifts whatever is limited now. What was said of it once is not said again.
    fn lift(&self, silence: &mut Silence) {
        let said = match restore::lift(&self.run_dir, &self.roots) {
            Ok(report) => report.to_string(),
            Err(error) => error.to_string(),
        };
        if !said.is_empty() && said != silence.said {
            for line in said.lines() {
                tracing::error!("{}: {line}", silence.why);
            }
            silence.said = said;
        }
        silence.again = Instant::now() + LIFT_AGAIN;
    }

    /// Puts back what a dead owner left. One that lives (it has another guard) or was followed by the next start already is
    /// left alone.
    fn put_back_of_dead(&self) -> anyhow::Result<()> {
        let until = Instant::now() + DIES_WITHIN;
        let mut first = None;
        loop {
            match self.put_back() {
                Err(LedgerError::InUse { owner, .. }) => {
                    let is_same = *first.get_or_insert_with(|| owner.clone()) == owner;
                    if !is_same || !self.is_anything_left() || Instant::now() >= until {
                        return Ok(());
                    }
                    std::thread::sleep(LIFT_AGAIN);
                }
                other => return Ok(other?),
            }
        }
    }

    /// Limits at once, for a service must not stay slow; but where they may be an emulated server's that is gone, that is
    /// taken away first: what a demo changed on an emulated server that is gone is then gone too, and no failure.
    fn put_back(&self) -> Result<(), LedgerError> {
        let is_real = self.roots.sys == Roots::default().sys;
        if !is_real {
            self.take_away_demos()?;
        }
        if self.is_anything_left() {
            for outcome in &agent::release(&self.run_dir, &self.roots)?.outcomes {
                say::note!("left by a run that was killed: {outcome}");
            }
        }
        if is_real {
            self.take_away_demos()?;
        }
        Ok(())
    }

    /// An owner may have been killed while it wrote its record: half a file is no record, and would stay for ever.
    fn is_anything_left(&self) -> bool {
        restore::is_recorded(&self.run_dir) || restore::is_unfinished(&self.run_dir)
    }

    fn take_away_demos(&self) -> Result<(), LedgerError> {
        // The folder of a run that ended well is not taken: the next may be starting.
        if !(self.remains.are_in)(&self.run_dir) {
            return Ok(());
        }
        let (_, removed) = (self.remains.take)(&self.run_dir)?;
        for line in &removed.done {
            say::note!("left by a demo that was killed: {line}");
        }
        for error in &removed.failed {
            say::note!("left by a demo that was killed, and NOT taken away: {error:#}");
        }
        Ok(())
    }

    /// Watches over every run of the run directory, until `ended` says so.
    ///
    /// # Errors
    /// A run directory that cannot be used, or has such a guard already.
    pub fn serve(&self, ended: impl Fn() -> bool) -> anyhow::Result<()> {
        ours::make(&self.run_dir, 0o700)?;
        // What is in it says what this writes to the machine.
        restore::usable(&self.run_dir)?;
        let alone = self.run_dir.join("guard.lock");
        let alone_file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(&alone)
            .with_context(|| format!("cannot open {}", alone.display()))?;
        if let Err(error) = alone_file.try_lock() {
            bail!(
                "{} is held: a guard serves this run directory already ({error})",
                alone.display()
            );
        }
        let at = self.run_dir.join(SOCKET);
        match fs::remove_file(&at) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", at.display()));
            }
            _ => {}
        }
        let listener =
            UnixListener::bind(&at).with_context(|| format!("cannot listen at {}", at.display()))?;
        fs::set_permissions(&at, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        say::note!("guarding {}", self.run_dir.display());
        crate::live::service_manager::ready();
        let connected = Arc::new(AtomicUsize::new(0));
        let mut trouble = None;
        while !ended() {
            let stream = match accept(&listener) {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection to the guard could not be accepted");
                    std::thread::sleep(LOOK_EVERY);
                    None
                }
            };
            let count = connected.load(Ordering::Relaxed);
            if let Some(stream) = stream
                && count < MAX_CONNECTIONS
            {
                connected.fetch_add(1, Ordering::Relaxed);
                let (post, connected) = (self.clone(), Arc::clone(&connected));
                let watch = move || {
                    if let Err(error) = post.watch(stream, None) {
                        tracing::error!("{error:#}");
                    }
                    connected.fetch_sub(1, Ordering::Relaxed);
                };
                std::thread::Builder::new()
                    .name("owner".to_owned())
                    .spawn(watch)?;
            } else if count == 0 && restore::left(&self.run_dir) == Left::OfKilled {
                let failed = self.put_back().err().map(|error| error.to_string());
                if let Some(error) = failed.as_ref().filter(|_| failed != trouble) {
                    tracing::error!("{error}");
                }
                trouble = failed;
            }
        }
        // The owners notice it, lift their limits, and go on with another guard where one can be had.
        drop(fs::remove_file(&at));
        Ok(())
    }
}

/// The next connection; nothing where none comes within a second.
fn accept(listener: &UnixListener) -> io::Result<Option<UnixStream>> {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut fds = [PollFd::new(listener, PollFlags::IN)];
    let timeout = LOOK_EVERY.try_into().map_err(io::Error::other)?;
    match poll(&mut fds, Some(&timeout)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    match listener.accept() {
        Ok((stream, _)) => {
            stream.set_nonblocking(false)?;
            Ok(Some(stream))
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
