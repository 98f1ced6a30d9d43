//! The far end of two baselines: a program on the machine that serves, which keeps its cores busy or fills its link when it is asked to.
//!
//! One line asks: `cores SECONDS` or `stream SECONDS`, each answered over the same connection: by `done` when the time is over, by
//! bytes until then. One is served at a time, and none for longer than [`MAX_S`].

use anyhow::{Context, anyhow, bail};
use clap::Args;
use headroom_console::{Failure, Stop, say};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest that is asked for, seconds.
const MAX_S: f64 = 60.0;
/// How long a peer may take for its line, and with each read and write.
const PATIENCE: Duration = Duration::from_secs(5);
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
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            ends.raise();
        });
    }
    std::thread::spawn(move || {
        for peer in listener.incoming() {
            let served = peer
                .map_err(anyhow::Error::from)
                .and_then(|peer| serve(peer, &serving));
            if let Err(error) = served {
                tracing::warn!("{error:#}");
            }
        }
    });
    stop.wait();
    Ok(())
}

fn serve(peer: TcpStream, stop: &Stop) -> anyhow::Result<()> {
    peer.set_read_timeout(Some(PATIENCE))?;
    peer.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new((&peer).take(64)).read_line(&mut line)?;
    let asked = line.trim().split_once(' ');
    let (what, seconds) = asked.ok_or_else(|| anyhow!("a peer asked for {:?}", line.trim()))?;
    let seconds: f64 = seconds.parse().context("how long a peer asked for")?;
    if !(0.0..=MAX_S).contains(&seconds) {
        bail!("a peer asked for {seconds} seconds: at most {MAX_S} are served");
    }
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    match what {
        "cores" => {
            spin(until, stop);
            (&peer).write_all(b"done\n")?;
        }
        "stream" => {
            let chunk = vec![0x5a; CHUNK];
            while Instant::now() < until && !stop.is_raised() {
                (&peer).write_all(&chunk)?;
            }
        }
        other => bail!("a peer asked for {other:?}"),
    }
    Ok(())
}

/// An endless loop on each core, until then.
fn spin(until: Instant, stop: &Stop) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while Instant::now() < until && !stop.is_raised() {
                    for _ in 0..10_000 {
                        std::hint::spin_loop();
                    }
                }
            });
        }
    });
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
    /// It cannot be reached, or breaks off.
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
                0 => return Ok(bytes),
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
                let _ = serve(peer.unwrap(), &Stop::default());
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
        assert_eq!(far.work(Work::Cores, 3600.0).unwrap_or(0), 0);
        let mut peer = TcpStream::connect(far.address).unwrap();
        peer.write_all(b"format 5\n").unwrap();
        let mut answer = Vec::new();
        let _ = peer.read_to_end(&mut answer);
        assert!(answer.is_empty() && begun.elapsed() < Duration::from_secs(30));
    }
}
