//! The auction site of [`headroom_workload::auction`], served: a database, an application that renders pages of what it
//! answers, and an HTTP front. It is what the batching paper's testbed (its Section VII) had RUBiS for.
//!
//! ```text
//! headroom service auction --database sqlite --items 10000 --page-kb 10
//! headroom load --url http://127.0.0.1:8082/ --auction browsing --users steps:650/30s,1600/30s,800/30s
//! ```
//!
//! **The database is real.** Users, items, bids, comments, purchases, categories and regions, with the indexes that their
//! queries need; searches with pages, the history of bids with who bid, bids and sales as transactions. [`Database`] says
//! where it is: SQLite within this process, or a MariaDB server, spoken to in its own protocol. Its first content
//! follows from the [`SiteConfig`] alone: items, sellers, categories and regions are those that
//! [visitors](headroom_workload::auction::Visitor) ask for.
//!
//! **The work is real.** A page shows what its queries answered, then the descriptions that stand with it, rendered from
//! Markdown until the page is as long as [`Site::bytes`] says, from 2 to 50 kB. [`AuctionConfig::page_cpu`] asks for a mean
//! cost: it is timed at the start how often a page must be rendered for it, and each page is then rendered so often, because
//! compiled code costs less than the interpreted pages of RUBiS. Longer pages cost more; with the database within this
//! process, its work comes on top.
//!
//! **Caches.** Pages that all see alike are `public, max-age=` [`AuctionConfig::max_age`] and carry an `ETag`, which
//! `If-None-Match` is compared with; personal pages and what is answered to a write are `no-store`. A write is a POST to the
//! page that it changes (`/item/42/bids`), and names in `Location` the page to look at next (`/item/42`): a cache that
//! follows RFC 9111 (Section 4.4) forgets both. Searches show new bids when their `max-age` is over.
//!
//! **Marks.** Each page says in its head which page it is ([`Place::marker`](headroom_workload::auction::Place::marker)) and,
//! where it is about an item or a user, the version of that, which every write to it raises.
//!
//! **Threads.** One thread speaks HTTP/1.1; [`AuctionConfig::workers`] threads query and render, each with a connection to
//! the database of its own (those of an SQLite database in memory share one). A request that finds [`AuctionConfig::queue`] others
//! waiting is answered 503 with `Retry-After`; so is one that the database did not answer.
//!
//! **Routes** beside the site's own: `/healthz`, without the workers; `/stats`, [`AuctionStats`] as JSON.

mod database;
mod front;
mod mariadb;
mod populate;
mod queries;
mod render;
mod sqlite;
mod worker;

pub use database::{Database, DatabaseError};
pub use worker::{AuctionStats, PageStats};

use crate::server::{self, Limits};
use headroom_units::Seconds;
use headroom_workload::auction::{Site, SiteConfig, SiteError};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::watch;

/// The most worker threads, each of which may hold a connection to the database.
pub const MAX_WORKERS: usize = 256;

/// The most requests that may wait for a worker.
pub const MAX_QUEUE: usize = 100_000;

/// An auction site to serve. Start from `AuctionConfig::default()`.
#[derive(Clone, Debug, PartialEq)]
pub struct AuctionConfig {
    /// Where to listen; `127.0.0.1:0`, a free port, by default.
    pub listen: SocketAddr,
    /// Where the data is; SQLite in memory by default.
    pub database: Database,
    /// Items, users, sizes: the same as the load's, so that visitors ask for what there is.
    pub site: SiteConfig,
    /// Threads that query and render; 8 by default.
    pub workers: usize,
    /// How many requests may wait for a worker; 1,024 by default. One more is answered 503.
    pub queue: usize,
    /// CPU time of rendering a page of mean length; none, the default, renders each page once.
    pub page_cpu: Option<Seconds>,
    /// For how long caches may use a page that all see alike; 30 s by default, whole seconds. With 0 they must ask each time.
    pub max_age: Seconds,
    /// Connections that may be open at a time; 8,192 by default. Further ones wait in the accept queue.
    pub max_connections: usize,
    /// The length of the accept queue asked for; 1,024 by default (the kernel bounds it by `somaxconn`).
    pub backlog: i32,
    /// How long open requests may take to finish once the service is stopped; 10 s by default.
    pub drain: Seconds,
}

impl Default for AuctionConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            database: Database::Memory,
            site: SiteConfig::default(),
            workers: 8,
            queue: 1024,
            page_cpu: None,
            max_age: Seconds::new(30.0),
            max_connections: 8192,
            backlog: 1024,
            drain: Seconds::new(10.0),
        }
    }
}

/// Why an auction site could not be served.
#[derive(Debug, thiserror::Error)]
pub enum AuctionError {
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
    /// The site is none.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// The database cannot be used.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The system refused a thread or an event loop.
    #[error("the auction site could not run: {0}; check the limits on processes and open files")]
    System(#[from] io::Error),
    /// A thread of the service panicked.
    #[error("a thread of the auction site panicked; please report it with its standard error")]
    Panicked,
}

/// What was found at the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Start {
    /// Whether the database was filled; false where it already held this site.
    pub populated: bool,
    /// How often each page is rendered.
    pub renderings: u32,
    /// CPU time of rendering a page, in the mean over a sample of items.
    pub render: Seconds,
}

/// An auction site that is being served. Dropping it stops it without waiting for it.
#[derive(Debug)]
pub struct AuctionHandle {
    address: SocketAddr,
    start: Start,
    workers: Arc<worker::Workers>,
    stop: watch::Sender<bool>,
    front: JoinHandle<io::Result<()>>,
    threads: Vec<JoinHandle<()>>,
}

/// Fills the database where it is empty, times the rendering, and serves from threads of its own. Returns when
/// connections are accepted.
///
/// # Errors
/// [`AuctionError`] where a setting is out of range, the address is taken, the database cannot be used or holds another
/// site, or the system refuses a thread.
pub fn serve(config: AuctionConfig) -> Result<AuctionHandle, AuctionError> {
    check(&config)?;
    let site = Arc::new(Site::new(config.site.clone())?);
    // Listening comes first: a taken port should not cost a population.
    let listener = server::listen(config.listen, config.backlog).map_err(|error| AuctionError::Listen {
        address: config.listen,
        error,
    })?;
    let address = listener.local_addr()?;
    let (mut links, populated) = database::prepare(&config.database, &site, config.workers)?;
    let (renderings, render) = worker::calibrate(&mut links[0], &site, config.page_cpu)?;
    let (workers, threads) = worker::Workers::start(&site, links, config.queue, renderings)?;
    let (stop, stopping) = watch::channel(false);
    let answering = Arc::new(front::Front::new(Arc::clone(&workers), config.max_age));
    let limits = Limits {
        max_connections: config.max_connections,
        drain: config.drain.to_duration(),
    };
    let front = std::thread::Builder::new()
        .name("auction-front".into())
        .spawn(move || server::run(answering, listener, limits, stopping))?;
    Ok(AuctionHandle {
        address,
        start: Start {
            populated,
            renderings,
            render,
        },
        workers,
        stop,
        front,
        threads,
    })
}

impl AuctionHandle {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What was found at the start.
    pub fn start(&self) -> Start {
        self.start
    }

    /// What it has done so far.
    pub fn stats(&self) -> AuctionStats {
        self.workers.stats()
    }

    /// Accepts no more connections, and waits until open requests are answered or [`AuctionConfig::drain`] is over.
    ///
    /// # Errors
    /// [`AuctionError`] where the event loop failed or a thread panicked.
    pub fn shutdown(self) -> Result<AuctionStats, AuctionError> {
        self.stop.send_replace(true);
        let front = self.front.join();
        self.workers.close();
        for thread in self.threads {
            thread.join().map_err(|_| AuctionError::Panicked)?;
        }
        front.map_err(|_| AuctionError::Panicked)??;
        Ok(self.workers.stats())
    }
}

fn check(config: &AuctionConfig) -> Result<(), AuctionError> {
    let need = |holds: bool, setting, value: String, remedy| match holds {
        true => Ok(()),
        false => Err(AuctionError::BadSetting {
            setting,
            value,
            remedy,
        }),
    };
    let holds = (1..=MAX_WORKERS).contains(&config.workers);
    need(
        holds,
        "workers",
        config.workers.to_string(),
        "give from 1 to 256 threads",
    )?;
    let holds = (1..=MAX_QUEUE).contains(&config.queue);
    need(
        holds,
        "queue",
        config.queue.to_string(),
        "give from 1 to 100,000 requests",
    )?;
    let holds = (1..=60_000).contains(&config.max_connections);
    need(
        holds,
        "max_connections",
        config.max_connections.to_string(),
        "give from 1 to 60,000 connections",
    )?;
    let age = config.max_age.get();
    let holds = (0.0..=31_536_000.0).contains(&age) && age.fract() == 0.0;
    need(
        holds,
        "max_age",
        age.to_string(),
        "give whole seconds from 0 to 31,536,000 (a year)",
    )?;
    if let Some(cpu) = config.page_cpu {
        let holds = (1e-5..=1.0).contains(&cpu.get());
        need(
            holds,
            "CPU time of a page",
            format!("{} ms", cpu.as_millis()),
            "give from 0.01 to 1,000 ms",
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
