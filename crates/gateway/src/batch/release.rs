//! How the requests of batches are let go: in their order, and so that what is behind bears it.
//!
//! A whole batch at once would overrun the listen queue of a backend, or the gateway's own queue, both of which took the same requests one
//! by one. So a request goes as soon as a window has room (`window`), and at the latest when its turn would come were the batch spread
//! evenly over an interval: what arrived within one interval goes within the next, as fast as it came, whatever is slow or stuck behind.
//! What answers without a backend, as a cache does, makes room at once. Wherever there is room for many, a few go in a millisecond, and two for
//! each that is answered: a server takes connections out of a listen queue one by one. While what is behind fails, all wait for their turn.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::window::Window;
use crate::core::Core;
use crate::exchanges::Exchanges;

/// The least time between two looks at whose turn it is: what tokio's timer resolves.
const TICK: Duration = Duration::from_millis(1);
/// For each that is answered so many may go at once.
const FOR_EACH: usize = 2;

/// A batch that was let go: how long its requests take together.
struct Batch {
    began: Instant,
    left: Cell<usize>,
    done: Cell<Option<Instant>>,
}

/// Whom a request that is held waits for.
pub(super) type Waiting = oneshot::Sender<Member>;

/// A request's part in its batch, until it is answered to the end or its client goes.
pub(crate) struct Member {
    release: Rc<Release>,
    /// None of one that went by itself.
    batch: Option<Rc<Batch>>,
}

impl Member {
    /// Whether it went with its batch.
    pub(crate) fn is_of_batch(&self) -> bool {
        self.batch.is_some()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let release = &self.release;
        release.on_their_way.set(release.on_their_way.get() - 1);
        if let Some(batch) = &self.batch {
            release.leave(batch);
        }
        let credits = release.credits.get() + FOR_EACH;
        release.credits.set(credits.min(release.in_a_tick()));
        release.go_on();
    }
}

/// The even spread of what waited when the last batch came.
#[derive(Clone, Copy, Debug)]
struct Pace {
    began: Instant,
    interval: Duration,
    requests: usize,
    /// So many have gone since.
    gone: usize,
}

impl Pace {
    /// When the turn of the next comes.
    fn turn(&self) -> Instant {
        let part = (self.gone + 1) as f64 / self.requests.max(1) as f64;
        // Beyond the interval all have had their turn.
        self.began + self.interval.mul_f64(part.min(1.0))
    }
}

/// One core's batches that were let go and are not all on their way.
pub(super) struct Release {
    core: Rc<Core>,
    window: RefCell<Window>,
    pace: Cell<Pace>,
    on_their_way: Cell<usize>,
    /// So many may go before the next tick.
    credits: Cell<usize>,
    waiting: RefCell<VecDeque<(Rc<Batch>, Waiting)>>,
    is_watched: Cell<bool>,
    last: RefCell<Option<Rc<Batch>>>,
}

impl Release {
    /// Of one of `cores` cores.
    pub(super) fn new(core: Rc<Core>, cores: usize) -> Self {
        let now = Instant::now();
        let pace = Pace {
            began: now,
            interval: Duration::ZERO,
            requests: 0,
            gone: 0,
        };
        Self {
            core,
            window: RefCell::new(Window::new(cores, now)),
            pace: Cell::new(pace),
            on_their_way: Cell::default(),
            credits: Cell::default(),
            waiting: RefCell::default(),
            is_watched: Cell::default(),
            last: RefCell::default(),
        }
    }

    /// How many wait for those before them.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Lets a batch go, in this order: the groups that were held for an interval that ends now.
    pub(super) fn begin(self: &Rc<Self>, groups: Vec<Vec<Waiting>>, interval: Duration) {
        let requests: usize = groups.iter().map(Vec::len).sum();
        if requests == 0 {
            return;
        }
        let now = Instant::now();
        let waited = waited(self.last.borrow().as_deref(), now, interval);
        {
            let counts = &mut self.core.stats.borrow_mut().batch;
            counts.batches += 1;
            counts.requests += requests as u64;
            counts.groups += groups.len() as u64;
            counts.waiting_us += micros(waited);
        }
        if let Some(exchanges) = &self.core.exchanges {
            let seen = exchanges.take();
            let mut window = self.window.borrow_mut();
            // What was seen while nothing was held, for hours perhaps, says nothing of now.
            if now - self.pace.get().began <= 2 * interval.max(window.response()) {
                window.follow(seen, interval, now);
            }
        }
        self.forget_gone();
        let batch = Rc::new(Batch {
            began: now,
            left: Cell::new(requests),
            done: Cell::new(None),
        });
        self.last.replace(Some(batch.clone()));
        let clients = groups.into_iter().flatten();
        self.waiting
            .borrow_mut()
            .extend(clients.map(|client| (batch.clone(), client)));
        self.pace.set(Pace {
            began: now,
            interval,
            requests: self.waiting(),
            gone: 0,
        });
        self.tick();
        self.watch();
    }

    /// Goes on when the turn of the next comes, for as long as some wait.
    fn watch(self: &Rc<Self>) {
        if self.waiting.borrow().is_empty() || self.is_watched.replace(true) {
            return;
        }
        let this = self.clone();
        tokio::task::spawn_local(async move {
            while !this.waiting.borrow().is_empty() {
                let soon = Instant::now() + TICK;
                let next = if this.has_room() {
                    soon
                } else {
                    this.pace.get().turn().max(soon)
                };
                tokio::time::sleep_until(next.into()).await;
                this.tick();
            }
            this.is_watched.set(false);
        });
    }

    /// How many may go in a tick: a few, or twice as many as came in one where that is more.
    fn in_a_tick(&self) -> usize {
        let pace = self.pace.get();
        let came = pace.requests as f64 * TICK.as_secs_f64() / pace.interval.max(TICK).as_secs_f64();
        // A cast from f64 saturates.
        let few = self.window.borrow().few();
        few.max((2.0 * came).ceil() as usize)
    }

    fn tick(self: &Rc<Self>) {
        self.credits.set(self.in_a_tick());
        self.go_on();
    }

    /// Whether the window lets more go.
    fn has_room(&self) -> bool {
        self.on_their_way.get() < self.lets().min(self.room())
    }

    /// How many may be on their way whose turn has not come; none while what is behind fails, as failures come fast and would let go all
    /// that wait.
    fn lets(&self) -> usize {
        let is_failing = self.core.exchanges.as_ref().is_some_and(Exchanges::is_failing);
        match is_failing {
            true => 0,
            false => self.window.borrow().size(),
        }
    }

    /// What an answer takes after it was let go; zero where that is not known.
    pub(super) fn response(&self) -> Duration {
        self.window.borrow().response()
    }

    /// One goes by itself, whatever the window: the others make room for it.
    pub(super) fn passes(self: &Rc<Self>) -> Member {
        self.go(None)
    }

    fn go(self: &Rc<Self>, batch: Option<Rc<Batch>>) -> Member {
        self.on_their_way.set(self.on_their_way.get() + 1);
        Member {
            release: self.clone(),
            batch,
        }
    }

    /// How many requests what is behind takes at once, without that it turns any away.
    fn room(&self) -> usize {
        let available = self.core.backends.iter();
        let available = available.filter(|one| one.is_in_service() && one.is_healthy() && !one.is_ejected());
        let in_flight = self
            .core
            .part_in_flight_per_backend
            .saturating_mul(available.count());
        // Half of the queue is for what passes at once.
        in_flight.saturating_add(self.core.waiting.part() / 2).max(1)
    }

    /// Those whose client has gone, or that went by themselves, need not wait for their turn.
    fn forget_gone(&self) {
        self.waiting.borrow_mut().retain(|(batch, client)| {
            let stays = !client.is_closed();
            if !stays {
                self.leave(batch);
            }
            stays
        });
    }

    /// Lets those go for whom there is room, and those whose turn has come.
    fn go_on(self: &Rc<Self>) {
        if self.waiting.borrow().is_empty() {
            return;
        }
        let (room, now) = (self.room(), Instant::now());
        let lets = self.lets();
        let window = lets.min(room);
        loop {
            let there = self.on_their_way.get();
            let mut pace = self.pace.get();
            if there >= room || (there >= window && now < pace.turn()) {
                // It is the window that bounds, and not what is behind it or that nothing waits any more.
                if lets > 0 && there >= lets && !self.waiting.borrow().is_empty() {
                    self.window.borrow_mut().limits(there);
                }
                return;
            }
            let credits = self.credits.get();
            if credits == 0 {
                return;
            }
            let Some((batch, client)) = self.waiting.borrow_mut().pop_front() else {
                return;
            };
            self.credits.set(credits - 1);
            pace.gone += 1;
            self.pace.set(pace);
            if client.is_closed() {
                self.leave(&batch);
                continue;
            }
            drop(client.send(self.go(Some(batch))));
        }
    }

    /// One of a batch's requests has been answered, or is none of it any more.
    fn leave(&self, batch: &Batch) {
        let left = batch.left.get() - 1;
        batch.left.set(left);
        if left == 0 {
            let now = Instant::now();
            batch.done.set(Some(now));
            let counts = &mut self.core.stats.borrow_mut().batch;
            counts.answered += 1;
            counts.processing_us += micros(now - batch.began);
        }
    }
}

/// T_w of the interval that ends now: from the end of the processing of the batch before it, or from its own beginning where that was
/// earlier; nothing where that batch is still being processed.
fn waited(last: Option<&Batch>, now: Instant, interval: Duration) -> Duration {
    match last.map(|last| last.done.get()) {
        None => interval,
        Some(None) => Duration::ZERO,
        Some(Some(done)) => now.saturating_duration_since(done).min(interval),
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::BatchInterval;
    use crate::config::GatewayConfig;
    use crate::core::Common;
    use crate::descriptors::Descriptors;
    use crate::signs::Signs;
    use std::sync::Arc;
    use tokio::task::LocalSet;

    const INTERVAL: Duration = Duration::from_millis(500);

    /// What lets go the batches of a core that has a batcher.
    fn release() -> Rc<Release> {
        let common = Common {
            sources: None,
            alarm: Arc::new(crate::alarm::Alarm::new(1)),
            config: Arc::new(GatewayConfig::default()),
            backends: Vec::new(),
            cores: 1,
            waiting: Arc::new(crate::waiting::Waiting::new(1, 1_024, 1)),
            signs: Arc::new(Signs::new(0, 1)),
            descriptors: Arc::new(Descriptors::of_process(1, 1, 1)),
            cache: None,
            routes: None,
            batch: Some(Arc::new(BatchInterval::new(INTERVAL))),
        };
        Rc::new(Release::new(Rc::new(Core::new(0, common)), 1))
    }

    /// A batch of one request goes, its last so long ago, and backends answered meanwhile, each after so long.
    fn follow(release: &Rc<Release>, ago: Duration, answers: u32, after: Duration) {
        let exchanges = release.core.exchanges.as_ref().unwrap();
        (0..answers).for_each(|_| exchanges.answered(after));
        let pace = release.pace.get();
        release.pace.set(Pace {
            began: Instant::now() - ago,
            ..pace
        });
        let (sender, released) = oneshot::channel();
        release.begin(vec![vec![sender]], INTERVAL);
        drop(released);
    }

    #[test]
    fn what_was_seen_while_nothing_was_held_chooses_no_window() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        LocalSet::new().block_on(&runtime, async {
            let release = release();
            // The window is chosen an interval after it was made at the earliest.
            tokio::time::sleep(INTERVAL).await;
            let few = Duration::from_millis(20);
            // The batcher was off for a while, in which the service was slow.
            follow(&release, 20 * INTERVAL, 100, 10 * few);
            assert_eq!(release.response(), Duration::ZERO);
            // It is gone: nothing of it is added to what is seen from now on.
            follow(&release, INTERVAL, 20, few);
            assert_eq!(release.response().as_millis(), few.as_millis());
        });
    }

    #[test]
    fn a_batch_is_spread_over_an_interval_at_the_latest() {
        let began = Instant::now();
        let turn_ms = |requests, gone| {
            let pace = Pace {
                began,
                interval: Duration::from_millis(100),
                requests,
                gone,
            };
            (pace.turn() - began).as_millis()
        };
        assert_eq!((turn_ms(4, 0), turn_ms(4, 1), turn_ms(4, 3)), (25, 50, 100));
        // Those that are left over have had theirs.
        assert_eq!((turn_ms(4, 9), turn_ms(0, 0)), (100, 100));
    }

    #[test]
    fn waiting_and_processing_make_an_interval() {
        let interval = Duration::from_millis(100);
        let now = Instant::now() + Duration::from_secs(1);
        let after = |done_ms_ago: Option<u64>| {
            let last = Batch {
                began: now - interval,
                left: Cell::new(0),
                done: Cell::new(done_ms_ago.map(|ago| now - Duration::from_millis(ago))),
            };
            waited(Some(&last), now, interval).as_millis()
        };
        assert_eq!(waited(None, now, interval), interval);
        // 70 ms of processing leave 30; one that takes longer than an interval leaves nothing.
        assert_eq!(after(Some(30)), 30);
        assert_eq!(after(None), 0);
        // Intervals without requests lay between.
        assert_eq!(after(Some(400)), 100);
    }
}
