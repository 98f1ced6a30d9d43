//! The control thread: health checks, name resolution, periods, drain. The cores never wait for it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use crate::backend::Backend;
use crate::core::Common;
use crate::descriptors::Descriptors;
use crate::resolve::{self, Resolver};
use crate::sizes::ClassCounts;
use crate::stats::{CoreSample, PeriodStats};
use crate::thread::{FromCore, ToCore};
use crate::tls::{self, TlsEnd};

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainReport {
    /// Client connections (idle ones are closed at once, so: with a request in flight, or upgraded) that were
    /// still open at the deadline and were cut.
    pub connections_cut: u64,
    /// How long it took.
    pub took: Duration,
}

/// What a [`crate::Handle`] asks of the control thread.
pub(crate) enum Order {
    Take {
        patience: Duration,
        reply: oneshot::Sender<PeriodStats>,
    },
    Drain {
        deadline: Duration,
        /// How long connections that wait for their next request are kept open for it.
        idle: Duration,
        reply: oneshot::Sender<DrainReport>,
    },
}

/// Periods whose callers gave up at the last moment; the next take picks them up. Only the control side locks
/// this, never a request; it holds at most one period for each take given up since the last one.
pub(crate) type Returned = Arc<Mutex<Vec<PeriodStats>>>;

/// What connects the control thread with the rest.
pub(crate) struct Channels {
    /// When the first period begins.
    pub started: Instant,
    pub cores: Vec<mpsc::Sender<ToCore>>,
    pub orders: mpsc::Receiver<Order>,
    pub reports: mpsc::UnboundedReceiver<FromCore>,
    /// For how long what each backend's name was at the start holds; `None` where it is an address.
    pub names_last: Vec<Option<Duration>>,
    /// The ends of the TLS listeners.
    pub tls: Vec<Arc<TlsEnd>>,
}

/// One core, seen from the control thread.
struct CoreLink {
    orders: mpsc::Sender<ToCore>,
    /// A sample was asked for by the take of this number and has not come.
    asked: Option<u64>,
    stopped: bool,
    /// Its queue of orders was full when it was last asked.
    deaf: bool,
    /// Gauges of its last sample: in flight (service, then backends), tunnels, connections, oldest start.
    service_in_flight: u64,
    backend_in_flight: Vec<u64>,
    /// Of each class of sizes, in all and then at each backend.
    class_in_flight: Vec<u64>,
    queued: u64,
    held: u64,
    tunnels: u64,
    connections: u64,
    oldest_start: Option<Instant>,
    /// The sample's memory, while the core does not have it.
    spare: Option<Box<CoreSample>>,
}

struct Taking {
    until: Instant,
    reply: oneshot::Sender<PeriodStats>,
}

struct Draining {
    started: Instant,
    replies: Vec<oneshot::Sender<DrainReport>>,
}

struct Control {
    backends: Vec<Arc<Backend>>,
    /// All classes of sizes.
    classes: usize,
    cores: Vec<CoreLink>,
    /// What has been counted and not yet handed out; its gauges and its length are put in when it is.
    ledger: PeriodStats,
    /// When counting into it began.
    since: Instant,
    returned: Returned,
    descriptors: Arc<Descriptors>,
    cache: Option<Arc<crate::cache::Store>>,
    taking: Option<Taking>,
    /// Takes begun so far.
    takes: u64,
    /// Takes that came while one was under way; as many as callers wait at once.
    queued: VecDeque<(Duration, oneshot::Sender<PeriodStats>)>,
    draining: Option<Draining>,
    drained: Option<DrainReport>,
    cut: u64,
}

impl Control {
    fn report(&mut self, report: FromCore) {
        let (core, mut sample) = match report {
            FromCore::Sample { core, sample } => (core, sample),
            FromCore::Stopped { core, sample, cut } => {
                self.cores[core].stopped = true;
                self.cut += cut;
                (core, sample)
            }
        };
        self.ledger.absorb(&sample);
        let link = &mut self.cores[core];
        let answers = link.asked.take();
        link.service_in_flight = sample.service.in_flight;
        link.backend_in_flight.clear();
        link.backend_in_flight
            .extend(sample.backends.iter().map(|backend| backend.counts.in_flight));
        link.class_in_flight.clear();
        let classes = sample.sizes.iter_mut().flat_map(ClassCounts::gauges);
        link.class_in_flight.extend(classes.map(|gauge| *gauge));
        link.oldest_start = sample.oldest_start;
        link.queued = sample.queue.waiting;
        link.held = sample.batch.held;
        link.tunnels = sample.tunnels;
        link.connections = sample.connections;
        link.spare = Some(sample);
        // A late answer to an earlier take holds what was counted until then; this take wants the rest too.
        let late = self.taking.is_some() && answers.is_some_and(|number| number < self.takes);
        if late && !self.cores[core].stopped {
            self.ask(core);
        }
        self.finish_drain();
    }

    /// Asks a core for its counters.
    fn ask(&mut self, core: usize) {
        let link = &mut self.cores[core];
        let sample = link
            .spare
            .take()
            .unwrap_or_else(|| Box::new(CoreSample::empty(self.backends.len(), self.classes)));
        // A core with a full queue has stalled; it is missing from this period, and its counters wait in it.
        link.asked = Some(self.takes);
        link.deaf = link.orders.try_send(ToCore::Take(sample)).is_err();
        if link.deaf {
            link.asked = None;
        }
    }

    fn finish_drain(&mut self) {
        if self.cores.iter().all(|core| core.stopped)
            && let Some(draining) = self.draining.take()
        {
            let report = DrainReport {
                connections_cut: self.cut,
                took: draining.started.elapsed(),
            };
            self.drained = Some(report);
            for reply in draining.replies {
                let _ = reply.send(report);
            }
        }
    }

    fn drain(&mut self, deadline: Duration, idle: Duration, reply: oneshot::Sender<DrainReport>) {
        if let Some(report) = self.drained {
            let _ = reply.send(report);
            return;
        }
        let started = Instant::now();
        let draining = self.draining.get_or_insert(Draining {
            started,
            replies: Vec::new(),
        });
        draining.replies.push(reply);
        for core in &self.cores {
            // A full queue belongs to a core that has stalled for many orders; a later drain can repeat it.
            let order = ToCore::Drain {
                deadline: started + deadline,
                idle_until: started + idle,
            };
            if !core.stopped && core.orders.try_send(order).is_err() {
                tracing::warn!("a core does not take orders");
            }
        }
        self.finish_drain();
    }

    /// Asks every core for its counters.
    fn take(&mut self, patience: Duration, reply: oneshot::Sender<PeriodStats>) {
        if self.taking.is_some() {
            self.queued.push_back((patience, reply));
            return;
        }
        self.takes += 1;
        for core in 0..self.cores.len() {
            if !self.cores[core].stopped && self.cores[core].asked.is_none() {
                self.ask(core);
            }
        }
        self.taking = Some(Taking {
            until: Instant::now() + patience,
            reply,
        });
    }

    /// Hands the period out once every core has answered or patience is over.
    fn finish_take(&mut self) {
        loop {
            let waiting = self
                .cores
                .iter()
                .filter(|core| core.asked.is_some() && !core.stopped)
                .count();
            match &self.taking {
                Some(taking) if waiting == 0 || Instant::now() >= taking.until => {}
                _ => return,
            }
            let Some(taking) = self.taking.take() else { return };
            for period in self
                .returned
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .drain(..)
            {
                self.ledger.add_earlier(&period);
            }
            let now = Instant::now();
            let mut period =
                std::mem::replace(&mut self.ledger, PeriodStats::empty(&self.backends, self.classes));
            period.since += now - std::mem::replace(&mut self.since, now);
            period.accept_pauses += self.descriptors.take_pauses();
            period.cache_size = self.cache.as_ref().map(|store| store.size());
            period.tunnels = self.cores.iter().map(|core| core.tunnels).sum();
            period.connections = self.cores.iter().map(|core| core.connections).sum();
            let deaf = self.cores.iter().filter(|core| core.deaf && !core.stopped);
            period.cores_missing = waiting + deaf.count();
            period.oldest_in_flight = self
                .cores
                .iter()
                .filter(|core| core.asked.is_none())
                .filter_map(|core| core.oldest_start)
                .min()
                .map(|start| now - start);
            period.queue.waiting = self.cores.iter().map(|core| core.queued).sum();
            period.batch.held = self.cores.iter().map(|core| core.held).sum();
            period.service.in_flight = self.cores.iter().map(|core| core.service_in_flight).sum();
            for (index, backend) in period.backends.iter_mut().enumerate() {
                backend.checks += self.backends[index].take_checks();
                backend.counts.in_flight = self
                    .cores
                    .iter()
                    .filter_map(|core| core.backend_in_flight.get(index))
                    .sum();
            }
            let classes = period.sizes.iter_mut().flat_map(ClassCounts::gauges);
            for (index, gauge) in classes.enumerate() {
                *gauge = self
                    .cores
                    .iter()
                    .filter_map(|core| core.class_in_flight.get(index))
                    .sum();
            }
            if let Err(unclaimed) = taking.reply.send(period) {
                self.ledger.add_earlier(&unclaimed);
            }
            match self.queued.pop_front() {
                Some((patience, reply)) => self.take(patience, reply),
                None => return,
            }
        }
    }
}

/// The body of the control thread: ends when the [`crate::Handle`] is dropped, which stops the cores too.
pub(crate) fn run(runtime: tokio::runtime::Runtime, common: Common, channels: Channels, returned: Returned) {
    let Common {
        config,
        backends,
        descriptors,
        cache,
        ..
    } = common;
    let Channels {
        started,
        cores,
        mut orders,
        mut reports,
        names_last,
        tls,
    } = channels;
    runtime.block_on(async move {
        if let Some(path) = &config.health.path {
            for backend in &backends {
                tokio::spawn(crate::health::check_forever(backend.clone(), config.health.clone(), path.clone()));
            }
        }
        let telling = Arc::clone(&descriptors);
        tokio::spawn(async move { telling.say_when_over().await });
        tokio::spawn(tls::refresh_forever(tls));
        let resolver = Arc::new(Resolver::new(&config.resolver));
        for (index, (backend, lasts)) in backends.iter().zip(names_last).enumerate() {
            if let Some(lasts) = lasts {
                tokio::spawn(resolve::follow(index, backend.clone(), resolver.clone(), lasts, cores.clone()));
            }
        }
        let link = |orders| CoreLink {
            orders,
            asked: None,
            stopped: false,
            deaf: false,
            service_in_flight: 0,
            backend_in_flight: vec![0; backends.len()],
            class_in_flight: Vec::new(),
            queued: 0,
            held: 0,
            tunnels: 0,
            connections: 0,
            oldest_start: None,
            spare: None,
        };
        let mut control = Control {
            cores: cores.into_iter().map(link).collect(),
            ledger: PeriodStats::empty(&backends, config.sizes.all_classes()),
            since: started,
            classes: config.sizes.all_classes(),
            backends,
            returned,
            descriptors,
            cache,
            taking: None,
            takes: 0,
            queued: VecDeque::new(),
            draining: None,
            drained: None,
            cut: 0,
        };
        loop {
            let until = control.taking.as_ref().map(|taking| tokio::time::Instant::from_std(taking.until));
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Take { patience, reply }) => control.take(patience, reply),
                    Some(Order::Drain { deadline, idle, reply }) => control.drain(deadline, idle, reply),
                    None => return,
                },
                report = reports.recv() => match report {
                    Some(report) => control.report(report),
                    None => {
                        // Every core has stopped and said so; from here on only orders come.
                        while let Some(order) = orders.recv().await {
                            match order {
                                Order::Take { patience, reply } => control.take(patience, reply),
                                Order::Drain { deadline, idle, reply } => control.drain(deadline, idle, reply),
                            }
                            control.finish_take();
                        }
                        return;
                    }
                },
                () = tokio::time::sleep_until(until.unwrap_or_else(tokio::time::Instant::now)), if until.is_some() => {}
            }
            control.finish_take();
        }
    });
}
