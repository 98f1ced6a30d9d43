//! The layer that chooses a backend: waits until one is below its limit, and tries again where that loses nothing.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use http::Method;

use crate::backend::{Balancer, NoBackend};
use crate::call::{Call, Stop};
use crate::core::Core;
use crate::ejection::ConnectFailure;
use crate::endpoint::{Attempt, Endpoint, Fault, OVERDUE};
use crate::layer::{Answer, Layer};
use crate::line_patience::Waited;
use crate::queue::TurnedAway;
use crate::retry::Budget;
use crate::shortage;
use crate::sizes::CoreRoutes;
use crate::stats::Failure;
use crate::watch::Phase;

/// One core's balancing. Requests wait here and not in front of all layers: what is answered without a backend has nothing
/// to wait for, and what is tried again waits again.
pub(crate) struct Balance {
    core: Rc<Core>,
    balancer: RefCell<Balancer>,
    /// Where the classes of sizes go; `None` where sizes are not looked at.
    routes: Option<RefCell<CoreRoutes>>,
    budget: Budget,
    endpoint: Rc<Endpoint>,
}

/// What a request has met so far.
struct Tries {
    retries_left: u32,
    /// Backends that it was given to in vain: another one is better.
    tried: Vec<usize>,
    /// Those of them that no connection could be opened to.
    unreachable: Vec<usize>,
    /// One of these is there: it had a full accept queue.
    full: bool,
    /// What the client hears if there is no other.
    last: Stop,
    /// Since when it waits for a descriptor.
    short_since: Option<Instant>,
    /// It had to wait for its turn; boxed, because that is rare.
    waited: Option<Box<Waited>>,
}

impl Tries {
    /// After a wait each is worth a try again.
    fn forget(&mut self) {
        self.tried.clear();
        self.unreachable.clear();
    }
}

/// One that waits in the queue. Dropped unsettled, it counts among those that left it.
struct Waiter<'a>(Option<&'a Core>);

impl Waiter<'_> {
    /// It has a backend, or was turned away.
    fn settle(&mut self) {
        self.0 = None;
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(core) = self.0 {
            core.stats.borrow_mut().queue.left += 1;
        }
    }
}

/// Methods that may be repeated without changing what they do (RFC 9110 section 9.2.2).
fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE | Method::TRACE
    )
}

impl Balance {
    /// In front of the backends of one core.
    pub(crate) fn new(core: Rc<Core>, endpoint: Rc<Endpoint>) -> Self {
        let config = &core.config;
        // Without active checks nobody is found unhealthy.
        let panic_percent = config
            .health
            .path
            .as_ref()
            .map_or(0, |_| config.health.panic_percent);
        let balancer = Balancer::new(
            config.balance,
            core.backends.len(),
            core.config.limits.max_in_flight_per_backend,
            panic_percent,
        );
        Self {
            budget: Budget::new(&core.config.retry, core.cores),
            balancer: RefCell::new(balancer),
            routes: core.routes.clone().map(CoreRoutes::new).map(RefCell::new),
            core,
            endpoint,
        }
    }

    /// Whose turn it is, with a place there taken; `tried` backends are passed over. Where the request's class has weights, one of those
    /// that have one; and any where none of these can take it, for latency comes before energy.
    fn pick(&self, call: &Call, tried: &[usize]) -> Result<usize, NoBackend> {
        let limit = self.core.config.limits.max_in_flight_per_backend;
        loop {
            let picked = self.pick_once(call, tried)?;
            // Another core may have taken its last place meanwhile.
            if self.core.backends[picked].try_begin(limit) {
                return Ok(picked);
            }
        }
    }

    fn pick_once(&self, call: &Call, tried: &[usize]) -> Result<usize, NoBackend> {
        let backends = &self.core.backends;
        let in_flight = |index: usize| backends[index].in_flight() as usize;
        let tried = |index: usize| tried.contains(&index);
        let mut balancer = self.balancer.borrow_mut();
        if let (Some(routes), Some(sized)) = (&self.routes, call.sized)
            && let Some((route, credit)) = routes.borrow_mut().of(sized.class.into())
            && let Some(picked) = balancer.pick_routed(backends, route, credit, in_flight, tried)
        {
            return Ok(picked);
        }
        balancer.pick(backends, in_flight, tried)
    }

    /// The same for what was tried before: a backend that it has not tried, or else any but those `passed_over`: one whose connection
    /// died took the request, and may take it again.
    fn pick_again(&self, call: &Call, tries: &Tries, passed_over: &[usize]) -> Result<usize, NoBackend> {
        match self.pick(call, &tries.tried) {
            Err(_) if tries.tried.len() > passed_over.len() => self.pick(call, passed_over),
            picked => picked,
        }
    }

    /// Gives the request to the next backend to try; waits where all are at their limits.
    async fn begin(&self, call: Box<Call>, tries: &mut Tries) -> Result<Attempt, Stop> {
        let again = !tries.tried.is_empty();
        if again && tries.retries_left == 0 {
            return Err(tries.last);
        }
        // Nobody overtakes those that wait.
        let mut picked = match self.core.waiting.is_line() {
            false => self.pick_again(&call, tries, &tries.unreachable),
            true => Err(NoBackend::OverLimit),
        };
        if picked == Err(NoBackend::Unavailable) && std::mem::take(&mut tries.full) {
            // By now there may be room in it, as there is for the SYN that TCP itself sends again.
            tries.forget();
            picked = self.pick(&call, &[]);
        }
        if picked == Err(NoBackend::OverLimit) {
            // Boxed, because it is rare and large: the request path does not carry it along.
            picked = Box::pin(self.wait_turn(&call, tries)).await?;
            tries.forget();
        }
        let backend = picked.map_err(|_| tries.last)?;
        if again {
            self.retry(&call, tries);
        }
        Ok(Attempt::begin(&self.core, backend, call))
    }

    /// Waits in the line until a backend is below its limit: another one than those that could not be connected to, as long as there is
    /// any.
    async fn wait_turn(&self, call: &Call, tries: &mut Tries) -> Result<Result<usize, NoBackend>, Stop> {
        let core = &self.core;
        let rank = call.rank;
        let full = |reason| {
            let stats = &mut *core.stats.borrow_mut();
            stats.queue.full += 1;
            stats.ranks[rank].turned_away += 1;
            Stop::Fail(Failure::OverLimit, reason)
        };
        let Some(place) = core.queue.join(rank, &tries.unreachable) else {
            return Err(full(
                "every backend is at its limit of requests in flight, and no more may wait",
            ));
        };
        {
            let stats = &mut *core.stats.borrow_mut();
            stats.queue.waited += 1;
            stats.ranks[rank].waited += 1;
        }
        let mut waiter = Waiter(Some(core));
        let since = Instant::now();
        call.watch.enter(Phase::Untimed);
        let (mut waited, patience) = Waited::begin(core, &call.watch);
        let left = core.watches.left(&call.watch);
        let passed_over: &[usize] = match place.is_choosy() {
            true => &tries.unreachable,
            false => &[],
        };
        let turn = place.turn(|| {
            let picked = match self.pick_again(call, tries, passed_over) {
                Err(NoBackend::Unavailable) if !passed_over.is_empty() => self.pick(call, &[]),
                picked => picked,
            };
            (picked != Err(NoBackend::OverLimit)).then_some(picked)
        });
        match tokio::time::timeout(left.map_or(patience, |left| left.min(patience)), turn).await {
            Ok(Ok(picked)) => {
                place.served(since.elapsed());
                if picked.is_ok() {
                    waiter.settle();
                    waited.has_turn();
                    // It is judged by its last wait.
                    if let Some(before) = tries.waited.replace(Box::new(waited)) {
                        before.says_nothing();
                    }
                } else {
                    waited.says_nothing();
                }
                Ok(picked)
            }
            Ok(Err(TurnedAway)) => {
                waiter.settle();
                waited.says_nothing();
                Err(full(
                    "every backend is at its limit of requests in flight, and what is more important has the places to wait",
                ))
            }
            Err(_) if left.is_some_and(|left| left < patience) => {
                // It was the gateway that had it wait for no longer.
                waited.says_nothing();
                Err(OVERDUE)
            }
            Err(_) => {
                place.gave_up(patience);
                waiter.settle();
                waited.says_nothing();
                if call.watch.is_half_closed() {
                    core.relayed.note_turned_away();
                }
                let stats = &mut *core.stats.borrow_mut();
                stats.queue.expired += 1;
                stats.ranks[rank].turned_away += 1;
                Err(Stop::Fail(
                    Failure::OverLimit,
                    "every backend stayed at its limit of requests in flight",
                ))
            }
        }
    }

    fn retry(&self, call: &Call, tries: &mut Tries) {
        tries.retries_left -= 1;
        let stats = &mut *self.core.stats.borrow_mut();
        stats.service.retries += 1;
        if let Some(sized) = call.sized {
            stats.sizes[usize::from(sized.class)].counts.retries += 1;
        }
    }
}

/// Whether a request whose connection died may be repeated: if nothing of it can have arrived (it was not `sent`), or if
/// its method bears that; never once its body has been begun.
fn may_repeat(call: &Call, sent: bool) -> bool {
    call.body.as_ref().is_none_or(|body| !body.begun) && (!sent || is_idempotent(&call.parts.method))
}

impl Layer for Balance {
    async fn call(&self, call: Box<Call>) -> Result<Answer, Stop> {
        let mut tries = Tries {
            retries_left: self.core.config.retry.max_retries,
            tried: Vec::new(),
            unreachable: Vec::new(),
            full: false,
            last: Stop::Fail(Failure::Unreachable, "no backend is available"),
            short_since: None,
            waited: None,
        };
        self.budget.request();
        let outcome = self.answer(call, &mut tries).await;
        match (tries.waited, &outcome) {
            (Some(waited), Ok(_)) => waited.answered(),
            (Some(waited), Err(_)) => waited.says_nothing(),
            (None, _) => {}
        }
        outcome
    }
}

impl Balance {
    /// Gives the request to backends until one answers, or no other may be tried.
    async fn answer(&self, call: Box<Call>, tries: &mut Tries) -> Result<Answer, Stop> {
        let mut attempt = self.begin(call, tries).await?;
        let mut fresh = false;
        loop {
            match self.endpoint.call(attempt, fresh).await {
                Ok(answer) => return Ok(answer),
                Err(Fault::Unconnected(failed, ConnectFailure::NoResources)) => {
                    let pools = &self.endpoint.pools;
                    // Boxed, because it is rare and large.
                    attempt =
                        Box::pin(shortage::wait(&self.core, pools, failed, &mut tries.short_since)).await?;
                }
                Err(Fault::Unconnected(mut failed, failure)) => {
                    tries.last = explain(failure);
                    failed.account.stop(&tries.last);
                    tries.tried.push(failed.backend);
                    tries.unreachable.push(failed.backend);
                    // Who waits for the same others waits in the same lane.
                    tries.unreachable.sort_unstable();
                    tries.full |= failure == ConnectFailure::TimedOut { alive: true };
                    attempt = self.begin(failed.call, tries).await?;
                }
                Err(Fault::Died {
                    attempt: mut died,
                    sent,
                    reused,
                    stop,
                }) => {
                    let may = tries.retries_left > 0 && may_repeat(&died.call, sent);
                    if !may {
                        return Err(died.stop(stop));
                    }
                    if sent && !self.budget.take(Instant::now()) {
                        self.core.stats.borrow_mut().service.retries_withheld += 1;
                        return Err(died.stop(stop));
                    }
                    if reused {
                        // It may have been closed for its age just now: that says nothing of its backend.
                        died.account.say_nothing();
                    }
                    tries.last = stop;
                    died.account.stop(&stop);
                    tries.tried.push(died.backend);
                    attempt = self.begin(died.call, tries).await?;
                    // What else is in the pools may be as dead.
                    fresh = true;
                }
                Err(Fault::Final(stop)) => return Err(stop),
            }
        }
    }
}

/// What a connection that could not be opened means for the client.
fn explain(failure: ConnectFailure) -> Stop {
    match failure {
        ConnectFailure::Refused => Stop::Fail(Failure::Unreachable, "no backend can be reached"),
        ConnectFailure::TimedOut { .. } => {
            Stop::Fail(Failure::TimedOut, "no backend accepted a connection in time")
        }
        // One that waits for them ([`shortage::wait`]) is not explained here.
        ConnectFailure::NoResources => Stop::Fail(Failure::OverLimit, shortage::REASON),
    }
}
