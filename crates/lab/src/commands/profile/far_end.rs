//! The far end of two baselines: a program on the machine that serves, which keeps its cores busy or fills its link when it is asked to.
//!
//! One line asks: `cores SECONDS` or `stream SECONDS`, each answered over the same connection: by `done` when the time is over, by
//! bytes until then. One is served at a time, none for longer than [`MAX_S`] and none that has closed its connection; [`MAX_WAITING`] may
//! wait for that, and whoever comes besides is turned away. Who asks for nothing is sent away after [`PATIENCE`], however slowly it writes.

use anyhow::{Context, anyhow, bail};
use clap::Args;
use headroom_console::{Failure, Stop, say};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

/// The longest that is asked for, seconds.
const MAX_S: f64 = 60.0;
/// How long a peer may take for its whole line.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long nobody looks whether the time is over, the peer is gone, or the program ends.
const LOOK: Duration = Duration::from_millis(100);
/// The longest line that asks, bytes.
const MAX_LINE: usize = 64;
/// Peers that wait for the one that is served.
const MAX_WAITING: usize = 4;
/// What a listening far end says first.
const LISTENING: &str = "listening on ";
/// Bytes of one write or read of a stream.
const CHUNK: usize = 256 << 10;

/// `headroom profile far-end`.
///
/// Run it on the machine that is profiled, for as long as `headroom profile --far-end` measures from another: it keeps all cores busy, or
/// fills the link, when that asks for it, at most a minute at a time. Whoever reaches the address can ask: listen where only the measuring
/// machine comes, and end it (Ctrl-C) afterwards.
#[derive(Debug, Args)]
pub struct FarEndArgs {
    /// Where to listen.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7444")]
    pub listen: SocketAddr,
    /// End when standard input ends, as a child does whose parent is gone.
    #[arg(long, hide = true)]
    pub while_parent_lives: bool,
}

/// Serves until a signal comes.
///
/// # Errors
/// The address cannot be listened on.
pub fn run(args: &FarEndArgs) -> Result<(), Failure> {
    let listener =
        TcpListener::bind(args.listen).with_context(|| format!("{}: cannot listen", args.listen))?;
    say::note!("{LISTENING}{}", listener.local_addr()?);
    let stop = Stop::at_signals()?;
    let serving = stop.clone();
    if args.while_parent_lives {
        let ends = stop.clone();
        std::thread::spawn(move || {
            // It says nothing; its end is what counts.
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            ends.raise();
        });
    }
    let (waiting, peers) = sync_channel(MAX_WAITING);
    let accepting = stop.clone();
    std::thread::spawn(move || take(&listener, &waiting, &accepting));
    std::thread::spawn(move || {
        for peer in peers {
            if let Err(error) = serve(&peer, &serving, PATIENCE) {
                tracing::warn!("{error:#}");
            }
        }
    });
    stop.wait();
    Ok(())
}

/// Has peers wait for their turn, and closes the connections of those for whom there is no place.
fn take(listener: &TcpListener, waiting: &SyncSender<TcpStream>, stop: &Stop) {
    for peer in listener.incoming() {
        match peer.map(|peer| waiting.try_send(peer)) {
            Ok(Ok(())) => {}
            Ok(Err(TrySendError::Full(_))) => {
                tracing::warn!("a peer was turned away: {MAX_WAITING} wait already");
            }
            Ok(Err(TrySendError::Disconnected(_))) => return,
            Err(error) => {
                // As where no file may be opened any more: the next would fail alike.
                tracing::warn!("a peer could not be accepted: {error}");
                stop.wait_until(Instant::now() + LOOK);
            }
        }
    }
}

fn serve(peer: &TcpStream, stop: &Stop, patience: Duration) -> anyhow::Result<()> {
    let line = line(peer, Instant::now() + patience)?;
    let asked = line.trim().split_once(' ');
    let (what, seconds) = asked.ok_or_else(|| anyhow!("a peer asked for {:?}", line.trim()))?;
    let seconds: f64 = seconds.parse().context("how long a peer asked for")?;
    if !(0.0..=MAX_S).contains(&seconds) {
        bail!("a peer asked for {seconds} seconds: at most {MAX_S} are served");
    }
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    match what {
        "cores" => {
            if !spin(until, peer, stop) {
                bail!("a peer was gone before its time was over");
            }
            peer.set_write_timeout(Some(patience))?;
            (&mut &*peer).write_all(b"done\n")?;
        }
        "stream" => stream(until, peer, stop)?,
        other => bail!("a peer asked for {other:?}"),
    }
    Ok(())
}

/// What a peer asks, all of it until then.
fn line(mut peer: &TcpStream, until: Instant) -> anyhow::Result<String> {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') && line.len() < MAX_LINE {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!("a peer did not say in time what it asks for");
        }
        peer.set_read_timeout(Some(left))?;
        let mut byte = [0];
        match peer.read(&mut byte) {
            Ok(0) => break,
            Ok(_) => line.push(byte[0]),
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error).context("what a peer asks for"),
        }
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

/// Bytes, as many as pass, until then: however few the peer reads of them.
fn stream(until: Instant, mut peer: &TcpStream, stop: &Stop) -> io::Result<()> {
    let chunk = vec![0x5a; CHUNK];
    while let Some(look) = look(until)
        && !stop.is_raised()
    {
        peer.set_write_timeout(Some(look))?;
        match peer.write(&chunk) {
            Ok(_) => {}
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// An endless loop on each core, until then, or until the peer closes the connection; whether it stayed.
fn spin(until: Instant, peer: &TcpStream, stop: &Stop) -> bool {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let ends = Stop::default();
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while Instant::now() < until && !ends.is_raised() {
                    for _ in 0..10_000 {
                        std::hint::spin_loop();
                    }
                }
            });
        }
        let mut stays = true;
        while let Some(look) = look(until)
            && stays
            && !stop.is_raised()
        {
            stays = peer.set_read_timeout(Some(look)).is_ok();
            match peer.peek(&mut [0]) {
                Ok(0) => stays = false,
                // What it says meanwhile counts for nothing.
                Ok(_) => {
                    stop.wait_until(Instant::now() + look);
                }
                Err(error) if is_timeout(&error) => {}
                Err(_) => stays = false,
            }
        }
        ends.raise();
        stays
    })
}

/// Until when to look next; `None` where the time is over.
fn look(until: Instant) -> Option<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    (!left.is_zero()).then(|| left.min(LOOK))
}

/// What a far end is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// All cores busy.
    Cores,
    /// Bytes over the link.
    Stream,
}

/// A far end: one that somebody runs, or a child of this program.
pub struct FarEnd {
    address: SocketAddr,
    child: Option<Child>,
}

impl FarEnd {
    /// One that runs somewhere.
    pub const fn at(address: SocketAddr) -> Self {
        Self { address, child: None }
    }

    /// One on this machine, as a process of its own, so that what it uses is told from what the generator does.
    ///
    /// # Errors
    /// It does not start.
    pub fn here() -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("this program's file")?;
        let mut child = Command::new(program)
            .args([
                "profile",
                "far-end",
                "--listen",
                "127.0.0.1:0",
                "--while-parent-lives",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("the far end of the baselines")?;
        let said = child.stderr.take();
        // From here on the child ends with what holds it, however this goes on.
        let mut far = Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            child: Some(child),
        };
        let mut said = BufReader::new(said.context("the far end's words")?);
        let mut line = String::new();
        while said.read_line(&mut line)? > 0 {
            if let Some((_, address)) = line.split_once(LISTENING) {
                far.address = address.trim().parse().context("the far end's address")?;
                return Ok(far);
            }
            line.clear();
        }
        bail!("the far end of the baselines ended before it listened")
    }

    /// Has it do something for so long; the bytes that came. Returns when the time is over.
    ///
    /// # Errors
    /// It cannot be reached, breaks off, or does nothing, as where others wait for it already.
    pub fn work(&self, work: Work, seconds: f64) -> anyhow::Result<u64> {
        let at = || format!("the far end at {}", self.address);
        let stream = TcpStream::connect_timeout(&self.address, PATIENCE).with_context(at)?;
        stream.set_read_timeout(Some(PATIENCE + Duration::from_secs_f64(seconds)))?;
        let what = match work {
            Work::Cores => "cores",
            Work::Stream => "stream",
        };
        (&stream)
            .write_all(format!("{what} {seconds}\n").as_bytes())
            .with_context(at)?;
        let mut buffer = vec![0; CHUNK];
        let mut bytes = 0;
        loop {
            match (&stream).read(&mut buffer).with_context(at)? {
                0 if bytes > 0 => return Ok(bytes),
                0 => {
                    return Err(anyhow!(
                        "it did nothing and closed the connection: it may serve others; try again when it does not"
                    ))
                    .with_context(at);
                }
                read => bytes += read as u64,
            }
        }
    }
}

impl Drop for FarEnd {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // One that has ended already needs neither.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn far_end() -> FarEnd {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for peer in listener.incoming().take(4) {
                let _ = serve(&peer.unwrap(), &Stop::default(), PATIENCE);
            }
        });
        FarEnd::at(address)
    }

    #[test]
    fn a_stream_is_bytes_and_cores_are_time() {
        let far = far_end();
        assert!(far.work(Work::Stream, 0.2).unwrap() >= CHUNK as u64);
        let begun = Instant::now();
        let before = super::super::machine::own_cpu();
        assert_eq!(far.work(Work::Cores, 0.3).unwrap(), 5, "the word `done`");
        assert!(begun.elapsed() >= Duration::from_millis(300));
        assert!(super::super::machine::own_cpu() > before);
    }

    #[test]
    fn what_is_too_long_or_unknown_is_not_served() {
        let far = far_end();
        let begun = Instant::now();
        let long = format!("{:#}", far.work(Work::Cores, 3600.0).unwrap_err());
        assert!(long.contains("the far end at"), "{long}");
        let mut peer = TcpStream::connect(far.address).unwrap();
        peer.write_all(b"format 5\n").unwrap();
        let mut answer = Vec::new();
        let _ = peer.read_to_end(&mut answer);
        assert!(answer.is_empty() && begun.elapsed() < Duration::from_secs(30));
    }

    /// A peer, and the connection to it.
    fn peers() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (peer, listener.accept().unwrap().0)
    }

    #[test]
    fn who_drips_its_line_is_sent_away_in_time() {
        let (mut peer, served) = peers();
        let dripping = std::thread::spawn(move || {
            let each = |_: &usize| {
                std::thread::sleep(Duration::from_millis(50));
                peer.write_all(b"c").is_ok()
            };
            (0..MAX_LINE - 1).take_while(each).count()
        });
        let why = serve(&served, &Stop::default(), Duration::from_millis(200))
            .unwrap_err()
            .to_string();
        drop(served);
        assert!(why.contains("in time"), "{why}");
        assert!(dripping.join().unwrap() < MAX_LINE - 1, "it was still at it");
    }

    #[test]
    fn a_peer_that_is_gone_or_reads_nothing_holds_nobody() {
        let (mut peer, served) = peers();
        peer.write_all(b"cores 60\n").unwrap();
        drop(peer);
        let begun = Instant::now();
        let gone = serve(&served, &Stop::default(), PATIENCE).unwrap_err();
        assert!(gone.to_string().contains("gone") && begun.elapsed() < Duration::from_secs(30));
        // More than two sockets hold is sent, and none of it read.
        let (mut peer, served) = peers();
        peer.write_all(b"stream 0.5\n").unwrap();
        serve(&served, &Stop::default(), PATIENCE).unwrap();
    }

    #[test]
    fn few_wait_and_the_others_are_turned_away() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (waiting, queue) = sync_channel(1);
        let taking = std::thread::spawn(move || take(&listener, &waiting, &Stop::default()));
        let connect = || {
            let peer = TcpStream::connect(address).unwrap();
            peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            peer
        };
        let (first, mut second) = (connect(), connect());
        assert_eq!(second.read(&mut [0]).unwrap(), 0, "it is closed");
        let kept: TcpStream = queue.recv().unwrap();
        assert_eq!(kept.peer_addr().unwrap(), first.local_addr().unwrap());
        drop(queue);
        // The next finds nobody who serves.
        drop(connect());
        taking.join().unwrap();
    }
}
