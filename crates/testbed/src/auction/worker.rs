//! What each worker thread does: query, render.

use super::AuctionError;
use super::database::Link;
use super::queries::{self, Fields, Problem};
use super::render;
use crate::server::pool::{Full, Pool, Worker};
use crate::server::thread_cpu;
use bytes::Bytes;
use headroom_units::Seconds;
use headroom_workload::auction::{Page, Place, Site};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// Items whose pages are timed.
const SAMPLED: u32 = 48;

/// The most times that a page is rendered.
const MAX_RENDERINGS: f64 = 100_000.0;

/// What the service has done; the answer of `/stats`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuctionStats {
    /// Threads that query and render.
    pub workers: usize,
    /// Of them, those that do.
    pub busy_workers: usize,
    /// Requests that wait for a worker.
    pub queue_length: usize,
    /// How many may wait.
    pub queue_limit: usize,
    /// Pages answered, those about what does not exist included.
    pub pages_served: u64,
    /// Requests answered 503 because the queue was full.
    pub rejected: u64,
    /// Requests whose client had gone before a worker came to them.
    pub abandoned: u64,
    /// Requests answered 503 because the database did not answer them.
    pub database_errors: u64,
    /// CPU time of the workers: rendering and, of an SQLite database, its queries.
    pub worker_cpu_s: Seconds,
    /// Each kind of page, in their order.
    pub pages: Vec<PageStats>,
}

/// What one kind of page has cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageStats {
    /// Its name.
    pub page: String,
    /// How often it was answered.
    pub served: u64,
    /// CPU time of the workers for it.
    pub cpu_s: Seconds,
}

/// A request for a worker.
pub(super) struct Job {
    pub(super) place: Place,
    pub(super) fields: Fields,
}

/// What comes of it: the page and, where it wrote, the page to look at next.
pub(super) type Done = Result<(Bytes, Option<Place>), Problem>;

/// The workers, and what they have done.
pub(super) struct Workers {
    count: usize,
    limit: usize,
    pool: Arc<Pool<Renderer>>,
    costs: Arc<Costs>,
}

#[derive(Default)]
struct Costs {
    /// Of each kind of page: answered, and CPU time in nanoseconds.
    pages: [(AtomicU64, AtomicU64); Page::ALL.len()],
    database_errors: AtomicU64,
}

struct Renderer {
    site: Arc<Site>,
    link: Link,
    renderings: u32,
    costs: Arc<Costs>,
}

impl Worker for Renderer {
    type Job = Job;
    type Done = Done;

    fn carry_out(&mut self, Job { place, fields }: Job) -> Done {
        let start = thread_cpu();
        let content = self
            .link
            .with(|session| queries::content(session, &self.site, &place, &fields));
        let done = content.map(|content| {
            let bytes = self.site.bytes(&place) as usize;
            let mut page = render::page(&place, &content, bytes);
            for _ in 1..self.renderings {
                page = black_box(render::page(black_box(&place), &content, bytes));
            }
            (page.into(), content.next)
        });
        if let Err(Problem::Database(error)) = &done {
            self.costs.database_errors.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("{}: {error}", place.target());
        }
        let (served, cpu_ns) = &self.costs.pages[place.page as usize];
        served.fetch_add(1, Ordering::Relaxed);
        cpu_ns.fetch_add(((thread_cpu() - start) * 1e9) as u64, Ordering::Relaxed);
        done
    }
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.stats().fmt(f)
    }
}

impl Workers {
    /// Starts a thread for each way to the database.
    pub(super) fn start(
        site: &Arc<Site>,
        links: Vec<Link>,
        limit: usize,
        renderings: u32,
    ) -> io::Result<(Arc<Self>, Vec<JoinHandle<()>>)> {
        let costs = Arc::new(Costs::default());
        let count = links.len();
        let renderers = links.into_iter().map(|link| Renderer {
            site: Arc::clone(site),
            link,
            renderings,
            costs: Arc::clone(&costs),
        });
        let (pool, threads) = Pool::start("auction-worker", renderers.collect(), limit)?;
        let workers = Self {
            count,
            limit,
            pool,
            costs,
        };
        Ok((Arc::new(workers), threads))
    }

    pub(super) fn submit(&self, job: Job) -> Result<oneshot::Receiver<Done>, Full> {
        self.pool.submit(job)
    }

    pub(super) fn close(&self) {
        self.pool.close();
    }

    pub(super) fn stats(&self) -> AuctionStats {
        let counts = self.pool.counts();
        let page = |(page, (served, cpu_ns)): (Page, &(AtomicU64, AtomicU64))| PageStats {
            page: page.name().to_owned(),
            served: served.load(Ordering::Relaxed),
            cpu_s: Seconds::new(cpu_ns.load(Ordering::Relaxed) as f64 / 1e9),
        };
        let pages: Vec<PageStats> = Page::ALL.into_iter().zip(&self.costs.pages).map(page).collect();
        AuctionStats {
            workers: self.count,
            busy_workers: counts.busy,
            queue_length: counts.queued,
            queue_limit: self.limit,
            pages_served: counts.done,
            rejected: counts.rejected,
            abandoned: counts.abandoned,
            database_errors: self.costs.database_errors.load(Ordering::Relaxed),
            worker_cpu_s: pages.iter().map(|page| page.cpu_s).sum(),
            pages,
        }
    }
}

/// How often a page is to be rendered so that one of mean length costs this CPU time (once where none is asked for), and
/// what it costs then: the mean over items spread over the site, each scaled by its length.
pub(super) fn calibrate(
    link: &mut Link,
    site: &Site,
    asked: Option<Seconds>,
) -> Result<(u32, Seconds), AuctionError> {
    let items = site.config().items;
    let sampled = SAMPLED.min(items);
    let (mut cpu, mut bytes_sum) = (0.0, 0.0);
    for index in 0..sampled {
        let place = Place {
            subject: (u64::from(index) * u64::from(items) / u64::from(sampled)) as u32,
            ..Place::of(Page::ViewItem)
        };
        let nothing = Fields(Vec::new());
        let content = match link.with(|session| queries::content(session, site, &place, &nothing)) {
            Ok(content) => content,
            Err(Problem::Database(error)) => return Err(error.into()),
            // An item that was removed by hand is not timed.
            Err(Problem::Missing | Problem::Field(_) | Problem::Nothing(_)) => continue,
        };
        let bytes = site.bytes(&place) as usize;
        // The least of several: what something else disturbed does not count.
        let once = (0..5).map(|_| {
            let start = thread_cpu();
            black_box(render::page(&place, &content, bytes));
            thread_cpu() - start
        });
        cpu += once.fold(f64::INFINITY, f64::min);
        bytes_sum += bytes as f64;
    }
    let once = cpu / f64::max(bytes_sum, 1.0) * f64::from(site.config().mean_bytes);
    let renderings = match asked {
        Some(asked) if once > 0.0 => (asked.get() / once).round().clamp(1.0, MAX_RENDERINGS),
        _ => 1.0,
    };
    Ok((renderings as u32, Seconds::new(once * renderings)))
}
