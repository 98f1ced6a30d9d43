//! A wiki to put under control: it renders Markdown pages on request and caches none.
//!
//! **The work is real.** A page keeps its history as a wiki does: a first text and the edits since. A view of the
//! page rebuilds each revision, parses and renders it to HTML, follows its links, counts its words and bytes, and
//! answers with the newest text, its table of contents and what changed in each revision. So a view costs
//! (length of the page) x (number of revisions); no loop only burns time.
//!
//! **The cost is set by calibration.** Pages differ in length by a factor of twelve, spread evenly on a
//! logarithmic scale. At the start the pages are rendered and timed (CPU time of the thread), and the number of
//! revisions, then the lengths, are chosen so that the mean over all pages comes to
//! what [`Work::MeanCpu`] asks for, 4 ms by default: with requests spread evenly over the pages, a service rate of
//! about 250 requests a second on each core. A build without optimisation renders some ten times slower and so
//! gets fewer revisions and shorter pages for the same cost. [`Work::Fixed`] does without calibration, for content
//! that is the same on every machine.
//!
//! **Threads.** One thread speaks HTTP/1.1; [`WikiConfig::workers`] threads render. A request that finds
//! [`WikiConfig::queue`] others waiting is answered 503 with `Retry-After`.
//!
//! **Routes.** `/` links to every page; `/wiki/TITLE` is a page; `/pages.txt` lists the pages' paths, one a line,
//! for a load generator; `/healthz` answers without the workers; `/stats` is [`WikiStats`] as JSON, and
//! `/costs` is [`WikiCosts`]: what each page has cost so far, measured while it was served.

mod calibrate;
mod front;
mod render;
mod store;
mod workers;

pub use calibrate::Calibration;
pub use workers::{PageCost, WikiCosts, WikiStats};

use crate::server::{self, Limits};
use headroom_units::Seconds;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::watch;

/// The most pages that a wiki may have: as many different titles as the words give.
pub const MAX_PAGES: usize = 400;

/// The most revisions that a page may have.
pub const MAX_REVISIONS: usize = 4096;

/// The most worker threads.
pub const MAX_WORKERS: usize = 1024;

/// The most requests that may wait for a worker.
pub const MAX_QUEUE: usize = 100_000;

/// How much work a page is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// As much as takes this CPU time in the mean over all pages, found by calibration at the start.
    MeanCpu(Seconds),
    /// So many revisions of pages so long: the content depends on the seed only, the time on the machine.
    Fixed {
        /// Revisions of every page, at least 1.
        revisions: usize,
        /// Factor on the pages' lengths; at 1 their mean is about 12 kB of Markdown.
        length: f64,
    },
}

/// A wiki to serve. Start from `WikiConfig::default()`.
#[derive(Clone, Debug, PartialEq)]
pub struct WikiConfig {
    /// Where to listen; `127.0.0.1:0`, a free port, by default.
    pub listen: SocketAddr,
    /// Threads that render; 2 by default.
    pub workers: usize,
    /// How many requests may wait for a worker; 1,024 by default. One more is answered 503.
    pub queue: usize,
    /// How many pages; 48 by default.
    pub pages: usize,
    /// How much work a page is; 4 ms of CPU time in the mean by default.
    pub work: Work,
    /// The same seed gives the same titles, texts and links.
    pub seed: u64,
    /// Connections that may be open at a time; 4,096 by default. Further ones wait in the accept queue.
    pub max_connections: usize,
    /// The length of the accept queue asked for; 1,024 by default (the kernel bounds it by `somaxconn`).
    pub backlog: i32,
    /// How long open requests may take to finish once the wiki is told to stop; 10 s by default.
    pub drain: Seconds,
}

impl Default for WikiConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            workers: 2,
            queue: 1024,
            pages: 48,
            work: Work::MeanCpu(Seconds::from_millis(4.0)),
            seed: 1,
            max_connections: 4096,
            backlog: 1024,
            drain: Seconds::new(10.0),
        }
    }
}

/// Why a wiki could not be served.
#[derive(Debug, thiserror::Error)]
pub enum WikiError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}; choose a free port, or port 0 for any")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system answered.
        error: io::Error,
    },
    /// A setting is out of its range.
    #[error("{setting} = {value}: {remedy}")]
    BadSetting {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What to give instead.
        remedy: &'static str,
    },
    /// The system refused a thread or an event loop.
    #[error("the wiki could not run: {0}; check the limits on processes and open files")]
    System(#[from] io::Error),
    /// A thread of the wiki panicked.
    #[error("a thread of the wiki panicked; please report it with its standard error")]
    Panicked,
}

/// A wiki that is being served. Dropping it stops the wiki without waiting for it.
#[derive(Debug)]
pub struct WikiHandle {
    address: SocketAddr,
    calibration: Calibration,
    pool: Arc<workers::Workers>,
    stop: watch::Sender<bool>,
    front: JoinHandle<io::Result<()>>,
    workers: Vec<JoinHandle<()>>,
}

/// Stops a wiki from another thread.
#[derive(Clone, Debug)]
pub struct WikiStopper(watch::Sender<bool>);

impl WikiStopper {
    /// Accepts no more connections and lets open requests finish. Returns at once;
    /// [`WikiHandle::wait`] returns when all is done.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// Writes the pages, calibrates their cost, and serves them from threads of their own. Returns when the wiki
/// accepts connections: after about half a second for the calibration.
///
/// # Errors
/// [`WikiError`] where a setting is out of range, the address is taken, or the system refuses a thread.
pub fn serve(config: WikiConfig) -> Result<WikiHandle, WikiError> {
    check(&config)?;
    // Listening comes first: a taken port should not cost a calibration.
    let listener = server::listen(config.listen, config.backlog).map_err(|error| WikiError::Listen {
        address: config.listen,
        error,
    })?;
    let address = listener.local_addr()?;
    let (store, calibration) = calibrate::build(config.work, config.pages, config.seed);
    let store = Arc::new(store);
    let (pool, workers) = workers::Workers::start(&store, config.workers, config.queue)?;
    let (stop, stopping) = watch::channel(false);
    let shared = Arc::clone(&pool);
    let front = std::thread::Builder::new()
        .name("wiki-front".into())
        .spawn(move || {
            let limits = Limits {
                max_connections: config.max_connections,
                drain: config.drain.to_duration(),
            };
            server::run(front::Front::new(store, shared), listener, limits, stopping)
        })?;
    Ok(WikiHandle {
        address,
        calibration,
        pool,
        stop,
        front,
        workers,
    })
}

impl WikiHandle {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a page costs.
    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// What it has done so far.
    pub fn stats(&self) -> WikiStats {
        self.pool.stats()
    }

    /// What a signal handler needs to stop it.
    pub fn stopper(&self) -> WikiStopper {
        WikiStopper(self.stop.clone())
    }

    /// Stops it and waits until open requests are answered.
    ///
    /// # Errors
    /// As [`WikiHandle::wait`].
    pub fn shutdown(self) -> Result<WikiStats, WikiError> {
        self.stopper().stop();
        self.wait()
    }

    /// Waits until somebody stops it and open requests are answered, or [`WikiConfig::drain`] is over.
    ///
    /// # Errors
    /// [`WikiError`] where the event loop failed or a thread panicked.
    pub fn wait(self) -> Result<WikiStats, WikiError> {
        let front = self.front.join();
        // The front does so itself, unless it panicked.
        self.pool.close();
        for worker in self.workers {
            worker.join().map_err(|_| WikiError::Panicked)?;
        }
        front.map_err(|_| WikiError::Panicked)??;
        Ok(self.pool.stats())
    }
}

fn check(config: &WikiConfig) -> Result<(), WikiError> {
    let need = |holds: bool, setting, value: &dyn fmt::Display, remedy| match holds {
        true => Ok(()),
        false => Err(WikiError::BadSetting {
            setting,
            value: value.to_string(),
            remedy,
        }),
    };
    for (setting, value, allowed, remedy) in [
        (
            "workers",
            config.workers,
            1..=MAX_WORKERS,
            "give from 1 to 1,024 threads",
        ),
        (
            "queue",
            config.queue,
            1..=MAX_QUEUE,
            "give from 1 to 100,000 requests",
        ),
        ("pages", config.pages, 2..=MAX_PAGES, "give from 2 to 400 pages"),
        (
            "max_connections",
            config.max_connections,
            1..=60_000,
            "give from 1 to 60,000 connections",
        ),
    ] {
        need(allowed.contains(&value), setting, &value, remedy)?;
    }
    match config.work {
        Work::MeanCpu(mean) => {
            let holds = (1e-5..=1.0).contains(&mean.get());
            need(
                holds,
                "mean CPU time of a page",
                &mean,
                "give from 0.01 to 1,000 ms",
            )
        }
        Work::Fixed { revisions, length } => {
            let holds = (0.01..=100.0).contains(&length);
            need(
                holds,
                "length of pages",
                &length,
                "give a factor from 0.01 to 100",
            )?;
            let holds = (1..=MAX_REVISIONS).contains(&revisions);
            need(holds, "revisions", &revisions, "give from 1 to 4,096 revisions")
        }
    }
}

#[cfg(test)]
mod tests;
