//! The demo's service: this program again, as `headroom service wiki`, in a cgroup of its own.

use crate::commands::service::LISTENING;
use anyhow::{Context, bail};
use headroom_node::cgroup::CgroupScope;
use headroom_testbed::wiki::WikiCosts;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Mean CPU time of a page.
pub const PAGE_CPU_MS: f64 = 4.0;
/// Threads that render: more than there are cores, so that the kernel shares them out among requests as the model of
/// a processor-sharing server has it.
const WORKERS: usize = 32;
/// How long the wiki may take to stop by itself.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// A wiki in a process of its own; dropped, it stops.
#[derive(Debug)]
pub struct Wiki {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    /// The paths of its pages.
    pub pages: Vec<String>,
}

impl Wiki {
    /// Starts it, waits until it serves, and puts it into the cgroup.
    ///
    /// # Errors
    /// Where it does not start, does not say its address, or cannot be moved.
    pub fn start(scope: &CgroupScope) -> anyhow::Result<Self> {
        let cost = ["--page-cpu-ms".to_owned(), PAGE_CPU_MS.to_string()];
        let wiki = Self::serve(SocketAddr::from(([127, 0, 0, 1], 0)), WORKERS, &cost, None)?;
        scope.add(wiki.pid())?;
        Ok(wiki)
    }

    /// Starts it at an address, with so many threads that render and pages of that cost, and waits until it serves. What it says
    /// it adds to a log where one is given: in the terminal it would stand over a live view.
    ///
    /// # Errors
    /// Where it does not start, or does not say its address.
    pub fn serve(
        listen: SocketAddr,
        workers: usize,
        cost: &[String],
        log: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let said = match log {
            None => Stdio::inherit(),
            Some(log) => {
                let file = OpenOptions::new().create(true).append(true).open(log);
                file.with_context(|| log.display().to_string())?.into()
            }
        };
        let program = std::env::current_exe().context("this program's own file cannot be found")?;
        let child = Command::new(program)
            .args(["service", "wiki", "--until-input-closes"])
            .args(["--listen", &listen.to_string()])
            .args(["--workers", &workers.to_string()])
            .args(cost)
            // What a terminal sends to its foreground (Ctrl-C) is for the demo, which ends its wikis itself.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(said)
            .spawn()
            .context("the wiki could not be started")?;
        // From here on, an error stops it again.
        let mut wiki = Self {
            child,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            pages: Vec::new(),
        };
        let Some(output) = wiki.child.stdout.take() else {
            bail!("the wiki has no standard output")
        };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let Some(address) = line.trim().strip_prefix(LISTENING) else {
            let place = log.map_or("above".to_owned(), |log| format!("in {}", log.display()));
            bail!("the wiki ended before it served; its own message stands {place}")
        };
        wiki.address = address
            .parse()
            .with_context(|| format!("the wiki's address is {address:?}"))?;
        wiki.pages = pages(wiki.address)?;
        Ok(wiki)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What its pages have cost so far.
    ///
    /// # Errors
    /// Where it does not answer, or not so.
    pub fn costs(&self) -> anyhow::Result<WikiCosts> {
        let (_, body) = get(self.address, "/costs")?;
        serde_json::from_str(&body).context("the wiki's own account of its costs")
    }
}

impl Drop for Wiki {
    fn drop(&mut self) {
        // Its standard input closes: it stops by itself, or not.
        drop(self.child.stdin.take());
        let until = Instant::now() + STOP_WITHIN;
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Head and body of an answer of the wiki.
fn get(address: SocketAddr, path: &str) -> anyhow::Result<(String, String)> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        bail!("the wiki answered {answer:?}")
    };
    Ok((head.to_owned(), body.to_owned()))
}

/// The wiki's own list of its pages.
fn pages(address: SocketAddr) -> anyhow::Result<Vec<String>> {
    let (head, body) = get(address, "/pages.txt")?;
    let pages: Vec<String> = body
        .lines()
        .filter(|line| line.starts_with('/'))
        .map(str::to_owned)
        .collect();
    if pages.is_empty() {
        bail!("the wiki lists no pages: {head}");
    }
    Ok(pages)
}
