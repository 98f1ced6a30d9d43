//! One core's thread: a current-thread runtime, its layers, its listeners, its tasks; and its obedience to the control
//! thread.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;
use tokio::task::LocalSet;

use crate::accept;
use crate::admit::Admit;
use crate::balance::Balance;
use crate::batch::{BatchInterval, Batcher};
use crate::cache::Cache;
use crate::core::{Common, Core};
use crate::endpoint::Endpoint;
use crate::layer::Layer;
use crate::listeners::Listener;
use crate::stats::CoreSample;

/// What the control thread tells a core.
#[derive(Debug)]
pub(crate) enum ToCore {
    /// Exchange the counters for this empty sample and send them back.
    Take(Box<CoreSample>),
    /// A backend's name resolves to these addresses now.
    Addresses {
        backend: usize,
        addresses: Arc<[SocketAddr]>,
    },
    /// Stop accepting, let requests in flight finish until then; a connection that waits for its next request is kept
    /// open for one more until the second time.
    Drain { deadline: Instant, idle_until: Instant },
}

/// What a core tells the control thread.
#[derive(Debug)]
pub(crate) enum FromCore {
    /// The answer to [`ToCore::Take`].
    Sample { core: usize, sample: Box<CoreSample> },
    /// The core has stopped; its last counters, and how many connections it cut.
    Stopped {
        core: usize,
        sample: Box<CoreSample>,
        cut: u64,
    },
}

/// Everything a core thread is started with.
pub(crate) struct CoreSeed {
    pub index: usize,
    pub common: Common,
    /// The addresses of each backend.
    pub addresses: Vec<Arc<[SocketAddr]>>,
    pub listeners: Vec<Listener>,
    pub orders: mpsc::Receiver<ToCore>,
    pub reports: mpsc::UnboundedSender<FromCore>,
}

/// Obeys the control thread until there is nothing left to do.
async fn obey(
    index: usize,
    core: &Core,
    endpoint: &Endpoint,
    orders: &mut mpsc::Receiver<ToCore>,
    reports: &mpsc::UnboundedSender<FromCore>,
) {
    let mut until: Option<Instant> = None;
    let mut idle_until = Instant::now();
    loop {
        if until.is_some() && core.accepting.get() == 0 && core.connections.get() == 0 {
            return;
        }
        let deadline = until.map(tokio::time::Instant::from_std);
        tokio::select! {
            order = orders.recv() => match order {
                Some(ToCore::Take(mut sample)) => {
                    core.take(&mut sample);
                    // A control thread that is gone needs no answer.
                    let _ = reports.send(FromCore::Sample { core: index, sample });
                }
                Some(ToCore::Addresses { backend, addresses }) => {
                    endpoint.move_backend(backend, &addresses);
                }
                Some(ToCore::Drain { deadline, idle_until: spared_until }) => {
                    until = Some(deadline);
                    idle_until = spared_until;
                    core.sparing_idle.set(spared_until > Instant::now());
                    core.draining.set(true);
                    core.drain.notify_waiters();
                    core.watches.wake_all();
                    endpoint.clear();
                }
                None => return,
            },
            () = core.closed.notified(), if until.is_some() => {}
            () = tokio::time::sleep_until(idle_until.into()), if core.sparing_idle.get() => {
                core.sparing_idle.set(false);
                core.watches.wake_all();
            }
            () = tokio::time::sleep_until(deadline.unwrap_or_else(tokio::time::Instant::now)),
                if until.is_some() => return,
        }
    }
}

/// Accepts clients for these layers, behind a batcher where there is one.
fn batched<L: Layer + 'static>(
    core: &Rc<Core>,
    batch: Option<Arc<BatchInterval>>,
    cores: usize,
    layers: L,
    listeners: Vec<Listener>,
) {
    match batch {
        None => listen(core, layers, listeners),
        Some(interval) => listen(
            core,
            Batcher::new(core.clone(), interval, cores, layers),
            listeners,
        ),
    }
}

/// Accepts clients for these layers.
fn listen<L: Layer + 'static>(core: &Rc<Core>, layers: L, listeners: Vec<Listener>) {
    let stack = Rc::new(Admit::new(core.clone(), layers));
    for listener in listeners {
        core.accepting.set(core.accepting.get() + 1);
        tokio::task::spawn_local(accept::run(stack.clone(), listener));
    }
}

/// The body of a core thread.
pub(crate) fn run(runtime: tokio::runtime::Runtime, seed: CoreSeed) {
    let CoreSeed {
        index,
        common,
        addresses,
        listeners,
        mut orders,
        reports,
    } = seed;
    let cores = common.cores;
    let (cache, batch) = (common.cache.clone(), common.batch.clone());
    let core = Rc::new(Core::new(index, common));
    let endpoint = Rc::new(Endpoint::new(core.clone(), &addresses));
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, async {
        let balance = Balance::new(core.clone(), endpoint.clone());
        // The order of the layers; what is to stand between two of them goes here. One that is off is not there.
        match cache {
            None => batched(&core, batch, cores, balance, listeners),
            Some(store) => {
                let cached = Cache::new(core.clone(), store, balance);
                batched(&core, batch, cores, cached, listeners);
            }
        }
        let watching = core.clone();
        tokio::task::spawn_local(async move { watching.watches.run(|| watching.waiting.is_any()).await });
        let queueing = core.clone();
        tokio::task::spawn_local(async move { queueing.queue.run().await });
        let (waits, pools) = (core.clone(), endpoint.pools.clone());
        tokio::task::spawn_local(async move {
            loop {
                waits.waiting.news(index).await;
                pools.part_with_wanted();
            }
        });
        let pools = endpoint.pools.clone();
        tokio::task::spawn_local(async move { pools.close_expired().await });
        obey(index, &core, &endpoint, &mut orders, &reports).await;
    });
    let cut = core.connections.get() as u64;
    // Dropping the tasks cuts what is left and closes its accounts, which the last sample then holds.
    drop(tasks);
    drop(runtime);
    let mut sample = Box::new(CoreSample::empty(
        core.backends.len(),
        core.config.sizes.all_classes(),
    ));
    core.take(&mut sample);
    let _ = reports.send(FromCore::Stopped {
        core: index,
        sample,
        cut,
    });
}
