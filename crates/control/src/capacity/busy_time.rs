//! Our own queue monitoring: the rate of answers while somebody waits, or of accepts where answers do not tell it.
//!
//! The published estimator sets its estimate to the service rate of the period in which 1 % were dropped (Equation 5).
//! That is the capacity where the server was busy for the whole period. Where a burst came and went within it, the server
//! was idle for the rest, and the estimate falls to a fraction of the capacity. Here only the time counts for which
//! somebody waited (see [`super::busy`]), weighted by its length: a burst says as much about the server as it kept it
//! busy, no drops are needed, and the rise of the arrival rate to a peak is never taken for capacity. A server that stands
//! still for a moment is not taken for a slow one, nor one whose workers wait for clients.

use super::busy::{Busy, BusyMeter};
use super::clients::Clients;
use super::evidence::{Change, Evidence};
use super::loops::{KnownLoops, Loops};
use super::served::{Served, ServedStep};
use super::shared::{Alone, Shared};
use super::step::{Connections, ListenerSample, QueueObservation, Step, StepMeter};
use super::tuning::QueueTuning;
use super::unusable::Unusable;
use super::{Capacity, Estimate};
use crate::decision::Reason;
use crate::parameter::OutOfRange;
use headroom_units::{PerSecond, Seconds};

/// The estimator of one server. It is fed observations at any rate: the more often, the shorter the queues that it can
/// use, fifty a second for a queue of a hundred places and a thousand connections a second.
///
/// An estimate is *exact* while its interval is narrow and what was observed in the last seconds would have shown another
/// server. It is *about* so much when nothing has shown that for a while (it is stale), and when too little was observed to
/// be sure, while clients hold workers or may do so (see [`super::clients`]), and when it could not be observed. It is a lower
/// bound before, and when a stale one is forgotten. Where the blocks of time with somebody waiting are not of one rate the server
/// has changed, and what was before is forgotten at once; the same where it serves more than it was estimated to.
///
/// What it cannot see: a server that accepts everything at once and lets it wait inside has no queue. What its event loops
/// answer while they are full is its capacity (see [`super::loops`]); before that only a lower bound is known of it. And it
/// answers with what the server can do, which for a queue of fewer than some fifty places is more than it can do while dropping
/// less than 1 % of random arrivals.
#[derive(Clone, Debug)]
pub struct BusyTimeMonitor {
    tuning: QueueTuning,
    fine: BusyMeter,
    meter: StepMeter,
    /// Of the sampling step that has begun.
    busy: Busy,
    elapsed_s: f64,
    /// Since the first observation.
    now_s: f64,
    evidence: Evidence,
    /// The same of the time in which clients held workers: all that is known where there was no other.
    held_evidence: Evidence,
    /// The same of the time in which its processes worked for others: what these leave of it, which is no capacity, and least what it serves.
    left_evidence: Evidence,
    served: Served,
    /// Whether a request was ever served.
    begun: bool,
    clients: Clients,
    /// What its event loops show.
    loops: Loops,
    /// For whom else its processes work, and what was known before they did: that they do is seen some time after it began.
    shared: Shared,
    alone: Option<Alone<(Evidence, KnownLoops)>>,
    /// Those who wait, and the connections that it has accepted and not closed, as they were last observed.
    waiting: Option<u32>,
    open: Option<u64>,
    /// For how long somebody has waited while none was accepted.
    none_accepted_s: f64,
    /// The connections that it has open, where they were counted in the step that has begun.
    counted_open: Option<u64>,
    /// Since the last usable step.
    blind_s: f64,
    latest: Estimate,
}

/// Where nobody waits clients hide nothing of what a server serves, whatever they do to connections that it has.
fn of_those_who_wait(told: &QueueObservation) -> QueueObservation {
    let mut observation = *told;
    if let ListenerSample::Listening(listener) = &mut observation.sample
        && listener.length == Some(0)
    {
        listener.connections = None;
    }
    observation
}

/// What a step has shown.
struct Shown {
    change: Option<Change>,
    /// The rate that it was estimated to serve, and what it served without anybody's waiting.
    faster: Option<(PerSecond, PerSecond)>,
}

/// What all workers of a server would serve that has become slower while clients hold some, and that at most.
struct Slower {
    all: PerSecond,
    most: PerSecond,
}

/// What clients leave of a server may be too low by so much, by chance and as connections come and go between two counts of them.
const HELD_NOISE: f64 = 1.3;

/// Seconds for which none is accepted while somebody waits, after which that is said of a server that has accepted before: one whose
/// requests take so long accepts none meanwhile either.
const NONE_ACCEPTED_S: f64 = 3.0;

impl BusyTimeMonitor {
    /// An estimator that knows nothing yet.
    ///
    /// # Errors
    /// A parameter outside its range.
    pub fn new(tuning: QueueTuning) -> Result<Self, OutOfRange> {
        tuning.check()?;
        Ok(Self {
            tuning,
            fine: BusyMeter::new(&tuning),
            meter: StepMeter::new(&tuning),
            busy: Busy::default(),
            elapsed_s: 0.0,
            now_s: 0.0,
            evidence: Evidence::default(),
            held_evidence: Evidence::default(),
            left_evidence: Evidence::default(),
            served: Served::default(),
            begun: false,
            clients: Clients::default(),
            loops: Loops::default(),
            shared: Shared::default(),
            alone: None,
            waiting: None,
            open: None,
            none_accepted_s: 0.0,
            counted_open: None,
            blind_s: 0.0,
            latest: Estimate::unknown("first-sample", Unusable::First.to_string()),
        })
    }

    /// Whether it is to be observed more often, for its queue has no room for as many as are accepted between two observations, so
    /// that nobody can be known to have waited.
    pub const fn wants_finer(&self) -> bool {
        !self.fine.has_room()
    }

    /// Takes an observation; the answer changes once a sampling period.
    pub fn observe(&mut self, told: &QueueObservation) -> Estimate {
        let known = self.known();
        let mut found = self.fine.take(told, known);
        let length_s = told.length.get();
        self.elapsed_s += length_s;
        let valid = length_s > 0.0 && self.elapsed_s.is_finite();
        if valid {
            self.now_s += length_s;
            let listener = match told.sample {
                ListenerSample::Listening(listener) => Some(listener),
                ListenerSample::Nobody | ListenerSample::Unread => None,
            };
            let was_shared = self.shared.share().is_some();
            self.shared.take(told.length, listener.as_ref());
            let is_shared = self.shared.share().is_some();
            if is_shared && !was_shared {
                let before = self.alone.take().and_then(|alone| alone.of_late(self.now_s));
                if let Some((evidence, loops)) = before {
                    self.evidence = evidence;
                    self.loops.take_back(loops);
                }
            }
            self.loops.take(self.now_s, told.length, listener, is_shared);
            let of_clients = of_those_who_wait(told);
            if let Some(before) = self.clients.take(self.now_s, &of_clients, self.fine.answers()) {
                self.evidence = before;
            }
            if !self.fine.answers().count() {
                found.accepts *= self.clients.asking();
            }
            if let Some(listener) = listener {
                self.waiting = listener.length;
                self.counted_open = listener.connections.map(|found| found.open).or(self.counted_open);
                self.open = self.counted_open.or(self.open);
            }
            // What is served meanwhile is what clients leave of it.
            match self.clients.held() {
                _ if is_shared => {
                    let full = self.loops.answered_full().unwrap_or_default();
                    let left = if found.time > Seconds::ZERO { found } else { full };
                    self.left_evidence.add(self.now_s, left);
                }
                None => self.evidence.add(self.now_s, found),
                Some(_) => self.held_evidence.add(self.now_s, found),
            }
            self.busy = self.busy.plus(found);
        }
        // A rounding is no part of a period; and what is no time at all is for the meter to refuse.
        let due = self.elapsed_s >= self.tuning.sampling_period_s * (1.0 - 1e-6);
        if !due && valid {
            return self.latest.clone();
        }
        let whole = QueueObservation {
            length: Seconds::new(if valid { self.elapsed_s } else { f64::NAN }),
            ..*told
        };
        self.elapsed_s = 0.0;
        let busy = std::mem::take(&mut self.busy);
        self.latest = match self.meter.take(&whole) {
            Ok(step) => self.counted(&step, busy),
            Err(unusable) => self.without(&unusable, whole.length),
        };
        self.latest.clone()
    }

    /// Takes one sampling step's numbers, with the part of it for which somebody waited.
    pub fn step(&mut self, step: &Step) -> Estimate {
        if let Err(unusable) = step.check() {
            return self.without(&unusable, step.length);
        }
        let Some(busy) = step.busy else {
            let what = "the time for which somebody waited";
            return self.without(&Unusable::Missing { what }, step.length);
        };
        self.now_s += step.length.get();
        self.evidence.add(self.now_s, busy);
        self.counted(step, busy)
    }

    /// What follows from a step, of which `busy` is already among the evidence: a pause that was no stall after all may be
    /// older than the step.
    fn counted(&mut self, step: &Step, busy: Busy) -> Estimate {
        self.blind_s = 0.0;
        self.begun |= step.accepts > 0.0;
        let waiting = self.waiting.map(f64::from).or(step.queue_mean).unwrap_or(0.0);
        self.none_accepted_s = match step.accepts <= 0.0 && waiting > 0.0 {
            true => self.none_accepted_s + step.length.get(),
            false => 0.0,
        };
        let served = ServedStep {
            length: step.length,
            accepts: match step.unasked {
                Some(unasked) => (step.accepts - unasked).max(0.0),
                None => step.accepts * self.clients.asking(),
            },
            waited: busy.time,
            open: self.counted_open.take(),
        };
        let dispersion = self.evidence.dispersion();
        self.served
            .take(self.now_s, served, dispersion, self.tuning.forget_s);
        if !self.begun {
            return match self.none_accepted_s > 0.0 {
                true => Estimate::plain(
                    Capacity::Unknown,
                    Estimate::none_accepted(waiting, self.none_accepted_s, self.open),
                ),
                false => Estimate::no_request_yet(),
            };
        }
        let shown = self.learn();
        let (rate, stale_s) = (self.served.rate(self.tuning.stale_s), self.tuning.stale_s);
        self.clients.keep(self.now_s, &self.evidence, rate, stale_s);
        if self.shared.is_alone() {
            self.alone = Some(Alone {
                now_s: self.now_s,
                known: (self.evidence.clone(), self.loops.known()),
            });
        }
        let capacity = self.known();
        if self.none_accepted_s >= NONE_ACCEPTED_S && capacity.met().is_none() {
            let reason = Estimate::none_accepted(waiting, self.none_accepted_s, self.open);
            return self.estimate(capacity, reason);
        }
        let (rule, text) = match (self.by_loops(), self.shared.share()) {
            (_, Some(share)) => explain_shared(share, capacity),
            (_, None) if let (Capacity::About(now), Some(share)) = (capacity, self.shared.some()) => {
                explain_some(share, now)
            }
            (Some(by_loops), _) if by_loops == capacity => {
                self.loops.explain(self.now_s, self.tuning.stale_s, capacity)
            }
            _ => self.explain(step, busy, &shown, capacity),
        };
        let mut numbers = vec![
            (
                "capacity_per_s",
                capacity.value().unwrap_or(PerSecond::ZERO).get(),
            ),
            ("arrival_rate_per_s", step.arrival_rate().get()),
            ("service_rate_per_s", step.service_rate().get()),
            ("busy_s", busy.time.get()),
            ("busy_accepts", busy.accepts),
            ("drop_ratio", step.drop_ratio()),
            ("queue_limit", step.limit),
        ];
        numbers.extend(step.queue_mean.map(|mean| ("queue_mean", mean)));
        self.estimate(capacity, Reason::new(rule, text, &numbers))
    }

    /// Forgets what no longer holds.
    fn learn(&mut self) -> Shown {
        self.loops
            .learn(self.now_s, self.tuning.stale_s, self.tuning.forget_s);
        if let Some(by_loops) = self.by_loops().and_then(Capacity::met)
            && !self.loops.are_kept_open()
        {
            // What it has accepted may wait inside.
            self.served.cap(by_loops);
        }
        let service_s = self.served.service_s().unwrap_or(0.0);
        let change = self.evidence.change(self.tuning.stale_s, self.now_s, service_s);
        // How many they hold changes.
        self.held_evidence
            .change(self.tuning.stale_s, self.now_s, service_s);
        let rate = self.evidence.rate();
        if change.is_some() {
            // What was served before was served by another.
            self.served.forget();
        }
        let left = self
            .left_evidence
            .change(self.tuning.stale_s, self.now_s, service_s);
        if left.is_some_and(|change| change.since < change.before) {
            self.served.forget();
        }
        // That an irregular server became slower is found late, and what it served in half a minute would be its bound until then.
        if self.left_evidence.last_s() == Some(self.now_s) {
            self.served.cap(self.served.rate(self.tuning.stale_s));
        }
        for evidence in [&self.evidence, &self.left_evidence] {
            if let Some(least) = evidence.least_of_late(self.now_s, self.tuning.stale_s) {
                self.served.cap(least);
            }
        }
        let known = self.evidence.tells();
        let dispersion = self.evidence.dispersion();
        let by_loops = self.loops.faster();
        let faster = known.then(|| self.served.exceeds(rate, dispersion)).flatten();
        let old = self.evidence.last_s();
        let forgotten = old.is_some_and(|last_s| self.now_s - last_s > self.tuning.forget_s);
        if faster.is_some() || forgotten {
            self.clients = Clients::default();
            self.evidence = Evidence::default();
        }
        for evidence in [&mut self.held_evidence, &mut self.left_evidence] {
            let last_s = evidence.last_s();
            if last_s.is_some_and(|last_s| self.now_s - last_s > self.tuning.stale_s) {
                *evidence = Evidence::default();
            }
        }
        Shown {
            change,
            faster: by_loops.or(faster.map(|served| (rate, served))),
        }
    }

    fn explain(&self, step: &Step, busy: Busy, shown: &Shown, capacity: Capacity) -> (&'static str, String) {
        let now = capacity.value().unwrap_or(PerSecond::ZERO).get();
        if let Some(time) = self.fine.stalled(capacity) {
            let text = format!(
                "nobody was accepted for {:.1} s though somebody waits: the server stands still, which says nothing about \
                 its rate, and {now:.1}/s is kept",
                time.get()
            );
            return ("stalled", text);
        }
        if let Some(found) = self.clients.held() {
            let Connections { silent, slow, .. } = found;
            let text = format!(
                "of the {} requests that it has, {silent} have not begun to come and {slow} come, or are answered, piece by piece: \
                 workers wait for clients, and the {:.1}/s that are served are no capacity: {capacity} is {}",
                found.on_hand(),
                step.service_rate().get(),
                match self.evidence.accepts() > 0.0 {
                    // So few clients cannot hold what it served before: it has become slower.
                    true if now < self.evidence.rate().get() =>
                        "what all its workers would serve, less than before",
                    true if now > self.evidence.rate().get() => "served all the same, more than before",
                    true => "kept",
                    false => "all that is known",
                }
            );
            return ("held", text);
        }
        if let Some((before, served)) = shown.faster {
            let text = format!(
                "{:.1}/s was the estimate, and {:.1}/s are served without anybody's waiting: at least {now:.1}/s",
                before.get(),
                served.get()
            );
            return ("faster", text);
        }
        if let Some(Change { before, since }) = shown.change {
            let text = format!(
                "{:.1}/s with somebody waiting, {:.1}/s until lately: the server has changed, and what was before is \
                 forgotten",
                since.get(),
                before.get()
            );
            return ("changed", text);
        }
        if let (Capacity::About(_), Some(doubt)) = (capacity, self.clients.doubt()) {
            return (doubt.rule(), format!("{now:.1}/s with somebody waiting; {doubt}"));
        }
        match capacity {
            Capacity::Exact(_) => (
                "busy-time",
                format!(
                    "{:.0} were accepted in {:.3} s with somebody waiting: {now:.1}/s of late",
                    busy.accepts,
                    busy.time.get()
                ),
            ),
            Capacity::About(_) if self.is_stale() => (
                "stale",
                format!(
                    "nobody, or too few to tell, waited of late while {:.1}/s are served: {now:.1}/s was measured before",
                    step.service_rate().get()
                ),
            ),
            Capacity::About(_) => (
                "unsure",
                format!(
                    "{now:.1}/s with somebody waiting, of {:.0} accepts, which is too few to be sure",
                    self.evidence.accepts()
                ),
            ),
            Capacity::LowerBound(_) if !self.fine.has_room() && step.drops > 0.0 => (
                "queue-too-short",
                format!(
                    "its {:.0} places are so few that nobody is observed to wait, and {:.1} % of attempts found no room: at \
                     least the {now:.1}/s that were served; a larger backlog would show its capacity",
                    step.limit,
                    step.drop_ratio() * 100.0
                ),
            ),
            Capacity::Presumed(_) | Capacity::Unknown => (
                "served",
                format!(
                    "too little waited yet to tell ({:.0} accepts), and too few were served",
                    self.evidence.accepts()
                ),
            ),
            Capacity::LowerBound(_) => (
                "served",
                format!(
                    "too little waited yet to tell ({:.0} accepts): at least the {now:.1}/s that it served",
                    self.evidence.accepts()
                ),
            ),
        }
    }

    /// With the interval and the age of what is known.
    fn estimate(&mut self, capacity: Capacity, reason: Reason) -> Estimate {
        let (interval, age) = self.interval_and_age(capacity);
        Estimate {
            capacity,
            interval,
            age,
            reason,
        }
    }

    fn interval_and_age(&mut self, capacity: Capacity) -> (Option<[PerSecond; 2]>, Option<Seconds>) {
        let (interval, last_s) = match capacity {
            capacity if self.by_loops() == Some(capacity) => {
                let interval = self.loops.interval(self.now_s, self.tuning.stale_s);
                let more = self.clients.with_those_who_left();
                (
                    interval.map(|[low, high]| [low, high * more]),
                    self.loops.last_s(),
                )
            }
            Capacity::Exact(_) | Capacity::About(_) => {
                let serves_more = self.floor_of_held().is_some();
                let slower = self.slower_than_before().filter(|_| !serves_more);
                let by_held = serves_more || slower.is_some() || !self.evidence.tells();
                let evidence = match by_held {
                    true => &mut self.held_evidence,
                    false => &mut self.evidence,
                };
                let interval = evidence.interval(self.now_s, self.tuning.stale_s);
                let hidden = match by_held {
                    true => self.clients.without_held(),
                    false => self.clients.with_few_held(),
                };
                // Who has left unanswered may have been worked for.
                let more = hidden * self.clients.with_those_who_left();
                let most = slower.map_or(PerSecond::ZERO, |slower| slower.most);
                // What it was before clients hid it may be outside of what is seen now.
                let with = |value: PerSecond| {
                    interval.map(|[low, high]| [low.min(value), (high * more).max(most).max(value)])
                };
                (capacity.value().and_then(with), evidence.last_s())
            }
            Capacity::LowerBound(_) => (None, self.served.shown_s()),
            Capacity::Presumed(_) | Capacity::Unknown => (None, None),
        };
        let age = last_s.map(|last_s| Seconds::new((self.now_s - last_s).max(0.0)));
        (interval, age)
    }

    /// What all its workers would serve, by what is served while clients hold some: as many connections as they hold have as many of its
    /// workers at most, and the others serve what is served. `None` where that is not surely less than it was known to serve before: of
    /// few connections one more or less that is held makes much of it.
    fn slower_than_before(&mut self) -> Option<Slower> {
        self.clients.held()?;
        let (now_s, stale_s) = (self.now_s, self.tuning.stale_s);
        let is_known = self.evidence.tells() && self.held_evidence.tells();
        let [_, high] = self.held_evidence.interval(now_s, stale_s).filter(|_| is_known)?;
        let without = self.clients.without_held();
        let times = self.clients.without_one_more().max(without * HELD_NOISE);
        (high.get() * times < self.evidence.rate().get()).then(|| Slower {
            all: self.held_evidence.rate() * without,
            most: high * times,
        })
    }

    /// What is known; no more than it was while clients leave what may be parts of requests, which a server is done with in no time.
    fn known(&mut self) -> Capacity {
        let found = match (self.by_loops(), self.found()) {
            // What was known before they worked for others, too, and what they serve with that.
            (by_loops, found) if self.shared.share().is_some() => by_loops.unwrap_or(found).unconfirmed(),
            // A limit that its queue shows now is met before they are full.
            (Some(by_loops), Capacity::Exact(found))
                if !self.loops.are_full() && met_before(found, by_loops) =>
            {
                return Capacity::Exact(found);
            }
            // What its queue shows now is newer than what it answered when its loops were full last, and of what is answered on connections
            // that are kept open they tell nothing.
            (Some(Capacity::About(by_loops)), found @ (Capacity::Exact(known) | Capacity::About(known)))
                if known > by_loops && !self.loops.are_full() && self.loops.are_kept_open() =>
            {
                found
            }
            (Some(by_loops), _) => return by_loops,
            // It may be of batches, which say nothing of what is served.
            (None, found) if self.loops.are_full() => found.unconfirmed(),
            (None, found) => found,
        };
        match (found, self.clients.most()) {
            (Capacity::About(found), Some(most)) => Capacity::About(found.min(most)),
            (Capacity::LowerBound(found), Some(most)) => Capacity::LowerBound(found.min(most)),
            (found, _) => found,
        }
    }

    /// What it is by its event loops; `None` where they were never full, as far as is remembered.
    fn by_loops(&mut self) -> Option<Capacity> {
        let found = self.loops.capacity(self.now_s, self.tuning.stale_s)?;
        // Those whose clients left may have been worked for.
        Some(match self.clients.have_left() || self.shared.some().is_some() {
            true => found.unconfirmed(),
            false => found,
        })
    }

    /// What the server serves while clients hold workers, where that is surely more than it was known to serve before.
    fn floor_of_held(&mut self) -> Option<PerSecond> {
        self.clients.held()?;
        let (now_s, stale_s) = (self.now_s, self.tuning.stale_s);
        let is_known = self.evidence.tells() && self.held_evidence.tells();
        let [low, _] = self.held_evidence.interval(now_s, stale_s).filter(|_| is_known)?;
        (low > self.evidence.rate()).then(|| self.held_evidence.rate())
    }

    fn found(&mut self) -> Capacity {
        if let Some(floor) = self.floor_of_held() {
            return Capacity::About(floor);
        }
        // One that has become slower meanwhile is not kept for what it was.
        if let Some(slower) = self.slower_than_before() {
            return Capacity::About(slower.all);
        }
        let rate = self.evidence.rate();
        let service_s = self.served.service_s().unwrap_or(0.0);
        if self.evidence.is_exact(self.now_s, self.tuning.stale_s, service_s) {
            // Clients that hold workers hide what the server serves now: what was is kept, and nothing confirms it.
            let is_all = self.clients.held().is_none()
                && self.clients.doubt().is_none()
                && self.shared.some().is_none();
            return match is_all {
                true => Capacity::Exact(rate),
                false => Capacity::About(rate),
            };
        }
        if self.evidence.tells() {
            return Capacity::About(rate);
        }
        // It is in difficulty, however much of it is its clients' doing.
        if self.held_evidence.tells() {
            return Capacity::About(self.held_evidence.rate());
        }
        // At least nothing is what is known of any server.
        let least = match self.shared.share() {
            // They may have become slower, which others hide.
            Some(_) => PerSecond::ZERO,
            None => self.evidence.least(),
        };
        match self.served.bound().max(least) {
            bound if self.begun && bound > PerSecond::ZERO => Capacity::LowerBound(bound),
            _ => Capacity::Unknown,
        }
    }

    /// Whether what is known is old, and not little.
    fn is_stale(&self) -> bool {
        let last_s = self.evidence.last_s();
        last_s.is_none_or(|last_s| self.now_s - last_s > self.tuning.stale_s)
    }

    /// What is left to say where an observation is unusable.
    fn without(&mut self, unusable: &Unusable, length: Seconds) -> Estimate {
        match unusable {
            // Whoever listens next is another server.
            Unusable::Nobody | Unusable::Another => {
                self.evidence = Evidence::default();
                self.held_evidence = Evidence::default();
                self.left_evidence = Evidence::default();
                self.served.forget();
                self.clients = Clients::default();
                self.loops.forget();
                self.shared = Shared::default();
                self.alone = None;
                self.begun = false;
            }
            Unusable::Length { .. } => self.blind_s = f64::INFINITY,
            _ => self.blind_s += length.get(),
        }
        self.none_accepted_s = 0.0;
        let known = self.known();
        let (capacity, reason) = Estimate::without_reading(known, self.blind_s, &self.tuning, unusable);
        self.estimate(capacity, reason)
    }
}

/// Why no more is said of a server whose processes serve other ports, too.
fn explain_shared(share: f64, capacity: Capacity) -> (&'static str, String) {
    let now = capacity.value().unwrap_or(PerSecond::ZERO).get();
    let known = match capacity.met() {
        Some(_) => format!("{now:.1}/s was measured before"),
        None => format!("{now:.1}/s at least"),
    };
    let text = format!(
        "{:.0} % of those that its processes work on came to other ports that they listen on, and what they serve here may be what is left \
         of what they can: {known}",
        share * 100.0,
    );
    ("shared", text)
}

/// Why nothing is exact of a server whose processes work for few at other ports, most of the time.
fn explain_some(share: f64, now: PerSecond) -> (&'static str, String) {
    let text = format!(
        "for {:.0} % of the time its processes work on some that came to other ports that they listen on, and what these take of them is not \
         known: {:.1}/s with somebody waiting may be what is left",
        share * 100.0,
        now.get()
    );
    ("shared", text)
}

/// Whether a limit is less than another.
fn met_before(limit: PerSecond, other: Capacity) -> bool {
    other.value().is_some_and(|other| limit < other)
}

#[cfg(test)]
#[path = "busy_time_tests.rs"]
mod tests;
