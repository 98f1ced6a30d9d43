//! How many requests a server is given at a time, so that the rest waits where it can be told what is important, and is turned away with
//! a word, and not in an accept queue that is first come, first served and drops what it has no place for.
//!
//! By Little's law a server that takes `C` requests a second and has `n` in hand answers each after `n / C`: with more than `C T` a request
//! waits there for longer than `T`. Four fifths of that are let in, so that most are answered within `T` and not only the mean one. This
//! corrects it, for `C` may be wrong, and `T` shorter than a request takes or longer than a client waits:
//!
//! * what it was seen to work on at a time (accepted and not answered; in flight and not in its accept queue) and a quarter more is never
//!   refused, so that its queue goes on showing whether it is busy, on which the estimate of `C` rests: as long as a bound is met by a
//!   server with an empty queue, it is the bound that holds it back, and it grows. While somebody waits in its queue it works on all that
//!   it can, and on how many is learned anew: it may have lost workers;
//! * a request whose client left while it waited there stays in the queue, and costs the server as much as any other: the gateway has it in
//!   flight no more, and sends another. Clients that wait for `p` make the queue grow as long as more than `C p` are in flight, and then
//!   nobody is answered. So fewer are let in while clients leave, until few do; that is forgotten in a few minutes. While the queue holds more
//!   of what they left than the server works on at a time it is given what it gets to within a period behind that, and one at a time where
//!   it does not get to any: what comes behind that is left too. How much that is follows from who left and how far the queue has gone on
//!   since, for others' connections may wait there too. Where clients wait for less than two services, or the gateway lets them wait for
//!   longer than they do less a service, no bound has them answered;
//! * a client that only closes its side is seen to have left once it is answered. Its request is in flight until then, as if it waited;
//! * where its limit is known, or its queue dropped connections, it is given no more than it works on and nine tenths of the places in
//!   its queue, and fewer while that still drops, until a few minutes have gone by without; drops while it has few of these requests are
//!   of somebody else's connections, and no reason to give it fewer;
//! * where connections carry several requests, a capacity in connections bounds no requests, and there is no bound. How many they carry is
//!   not to be seen while connections are dropped: then a bound stays;
//! * what its queue holds is known for as long as it is read: behind one moment without a reading the bound is that without what clients
//!   left. A bound that was met lately stays while somebody waits, also where the capacity is not known any more: it was found for this server.
//!
//! A server that accepts whatever comes (most event loops) shows neither a limit nor drops, and has no bound.
//!
//! One that joins is bounded before it is given its first request, for all that wait may be given to it at once: by the bound that it had
//! when it served last, else by what it is presumed to take ([`mod@super::presumed`]), and by the places in its queue.

mod vain;

use crate::capacity::Capacity;
use headroom_units::{PerSecond, Seconds};
use std::collections::VecDeque;
use vain::Vain;

/// What is let in of what a server answers within the time given on average.
const OF_CAPACITY: f64 = 0.8;
/// With fewer in flight than so large a part of the places in its queue drops are of others' connections.
const OURS: f64 = 0.5;
/// What is let in beside what it was seen to work on.
const MORE_THAN_WORKED_ON: f64 = 1.25;
/// So many periods in a row it was seen to work on that many: while a queue grows what is in flight at a period's end is more than its
/// mean length explains.
const IN_A_ROW: usize = 3;
/// With so many waiting it works on all that it can. Fewer may be those that come just when it is looked at.
const BUSY: f64 = 1.0;
/// So many periods with somebody in its queue show what it works on, whatever it was before.
const BUSY_PERIODS: usize = 10;
/// For so long after a connection was dropped what is in flight may be one that TCP tries again: that is not worked on.
const TRIED_AGAIN_S: f64 = 5.0;
/// The time in which what was learned is forgotten by a factor of e.
const FORGET_S: f64 = 300.0;
/// Of the places in its queue so large a part is used, and so much less in each period with drops all the same.
const OF_PLACES: f64 = 0.9;
/// So large a share of the requests comes on connections of their own where a capacity in connections is one in requests.
const OWN_CONNECTIONS: f64 = 0.8;
/// The time over which that share is counted, and for which a bound stays after a connection was dropped.
const SHARE_S: f64 = 10.0;
/// With fewer answers that share says nothing of a server that has just joined.
const FEW_ANSWERS: f64 = 20.0;
/// Clients leave because it takes too long where so large a share of those that were answered or left did, and not only a few.
const LEAVE: f64 = 0.1;
const MORE_THAN_A_FEW: f64 = 3.0;
/// The time over which they are counted.
const LEAVE_S: f64 = 3.0;
/// Where no more is sent than this part of what it accepts, it is soon done with what clients left.
const DRAINS: f64 = 0.5;
/// A bound of more than so many times what it works on is far from the least that is of use.
const FAR: f64 = 2.0;
/// By so much less is let in each time.
const LESS_FOR_LEAVING: f64 = 0.8;
/// Clients wait for no less than this part of the time given: with less let in the bound would take minutes to grow to what is of use.
const LEAST_PATIENCE: f64 = 0.01;

/// For so many periods without a reading what clients left in the queue is taken to be there still.
const UNREAD_PERIODS: u32 = 1;

/// What a server did in one period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InHandPeriod {
    /// How long it was.
    pub length: Seconds,
    /// What it takes, in connections a second.
    pub capacity: Capacity,
    /// Connections that it accepted.
    pub accepts: f64,
    /// Connections that its accept queue dropped.
    pub drops: f64,
    /// Connections that waited there; `None` where that is not known.
    pub waiting: Option<f64>,
    /// Connections for which it has places; `None` where that is not known.
    pub places: Option<f64>,
    /// Connections that it accepted and has not answered; `None` where that is not known, as while nobody waits.
    pub working: Option<f64>,
    /// Requests that were sent there, less those that failed, came to no connection, or whose clients left, whenever they were sent.
    pub sent: f64,
    /// Requests whose clients left, whenever they were sent.
    pub left: f64,
    /// Requests that it answered, whose clients were found to have left when they were sent the answer.
    pub gone: f64,
    /// Requests that it has whose clients wait, in its accept queue or worked on; `None` where that is not known.
    pub in_flight: Option<f64>,
}

/// What is known of a server in a period in which its queue could not be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InHandUnread {
    /// How long it was.
    pub length: Seconds,
    /// As in [`InHandPeriod`].
    pub sent: f64,
    /// As in [`InHandPeriod`].
    pub left: f64,
    /// As in [`InHandPeriod`].
    pub gone: f64,
    /// As in [`InHandPeriod`].
    pub in_flight: Option<f64>,
}

/// The periods since the queue was read last.
#[derive(Clone, Copy, Debug, Default)]
struct Since {
    periods: u32,
    /// How long they were together, and the last of them.
    length_s: f64,
    last_s: f64,
    /// Requests that were answered.
    answered: f64,
    /// Connections that it is taken to have accepted.
    accepts: f64,
}

/// How many requests one server is given at a time.
#[derive(Clone, Debug)]
pub struct InHand {
    within: Seconds,
    /// What it was seen to work on in the last periods.
    seen: Vec<f64>,
    /// The same in the last periods in which somebody waited.
    busy: VecDeque<f64>,
    /// The most of it, as far as it is not forgotten.
    worked_on: f64,
    /// How many waited in the period before.
    waited: Option<f64>,
    /// What clients left there.
    vain: Vain,
    /// The part of the time given for which clients wait.
    patience: f64,
    /// Requests whose clients left, and those that were answered, in the last seconds.
    leaving: (f64, f64),
    /// The part of what its queue has places for that it is given, beside what it works on.
    of_places: f64,
    /// How long ago it dropped one, in seconds.
    dropped_ago_s: f64,
    /// The places in its queue, as they were known last.
    places: Option<f64>,
    /// How many it is given at most.
    most: Option<u32>,
    /// The same but for what clients left in its queue.
    usual: Option<u32>,
    /// What it may have by its capacity and its places, as they were known last, whoever leaves.
    within_limits: Option<f64>,
    /// How long ago it had as many as it may have, while somebody waited, in seconds.
    met_ago_s: f64,
    /// What it accepts a second while somebody waits, as it was known last.
    rate: f64,
    unread: Since,
    /// How many it was given at most, and what it worked on, when it took requests last.
    before: Option<(u32, f64)>,
    rests: bool,
    /// Whether that is the least it may have.
    is_least: bool,
    in_flight: Option<f64>,
    accepts: f64,
    answered: f64,
}

impl InHand {
    /// For requests that are to be answered within this time of their coming to the server.
    pub const fn new(within: Seconds) -> Self {
        Self {
            within,
            seen: Vec::new(),
            busy: VecDeque::new(),
            worked_on: 0.0,
            waited: None,
            vain: Vain::new(),
            patience: 1.0,
            leaving: (0.0, 0.0),
            of_places: OF_PLACES,
            dropped_ago_s: f64::INFINITY,
            places: None,
            most: None,
            usual: None,
            within_limits: None,
            met_ago_s: f64::INFINITY,
            rate: 0.0,
            unread: Since {
                periods: 0,
                length_s: 0.0,
                last_s: 0.0,
                answered: 0.0,
                accepts: 0.0,
            },
            before: None,
            rests: false,
            is_least: false,
            in_flight: None,
            accepts: 0.0,
            answered: 0.0,
        }
    }

    /// It takes no requests: what was seen of it is not of the server that joins next. How many that one may have before anything is seen of
    /// it, by the places in its queue and what it is presumed to take, where that is known; `None` for as many as come.
    pub fn rest(&mut self, length: Seconds, places: Option<f64>, presumed: Option<PerSecond>) -> Option<u32> {
        let before = match self.rests {
            true => self.before,
            false => self.usual.map(|most| (most, self.worked_on)),
        };
        let places = places.or(self.places);
        let by_capacity = presumed.map(|presumed| OF_CAPACITY * presumed.get() * self.within.get());
        let by_before = before.map(|(most, _)| f64::from(most));
        let worked_on = before.map_or(0.0, |(_, worked_on)| worked_on);
        let by_places = places.map_or(f64::INFINITY, |places| OF_PLACES * places + worked_on);
        let most = by_before
            .or(by_capacity)
            .map(|most| most.min(by_places).max(1.0).ceil() as u32);
        *self = Self {
            of_places: self.of_places,
            dropped_ago_s: self.dropped_ago_s + length.get().max(0.0),
            places,
            most,
            usual: most,
            within_limits: most.map(f64::from),
            before,
            rests: true,
            ..Self::new(self.within)
        };
        most
    }

    /// Whether its requests were ever found to be such that they can be bounded.
    pub const fn was_bounded(&self) -> bool {
        self.before.is_some() || self.most.is_some() && !self.rests
    }

    /// The places in its queue, as they were known last.
    pub const fn places(&self) -> Option<f64> {
        self.places
    }

    /// How many it may have from now on; `None` for as many as come.
    pub fn observe(&mut self, period: &InHandPeriod) -> Option<u32> {
        let unread = std::mem::take(&mut self.unread);
        let mut own_s = period.length.get().max(0.0);
        let mut length_s = own_s + unread.length_s;
        // A sample is compared with the last one before, or with one that was taken since.
        let is_covered = unread.periods > 0 && own_s >= unread.length_s + unread.last_s / 2.0;
        let (mut answered, mut passed) = (0.0, period.accepts);
        if is_covered {
            length_s = own_s;
            own_s -= unread.length_s;
            answered = unread.answered;
            passed = (passed - unread.accepts).max(0.0);
        }
        let kept = (-length_s / SHARE_S).exp();
        let own_answered = self.answered_since(period.sent, period.in_flight);
        answered += own_answered.unwrap_or(0.0);
        if own_answered.is_some() {
            self.accepts = self.accepts * kept + period.accepts;
            self.answered = (self.answered * kept + answered).max(0.0);
        }
        self.rests = false;
        self.places = period.places.or(self.places);
        self.dropped_ago_s += length_s;
        let drops = is_dropped(period);
        if drops {
            self.dropped_ago_s = 0.0;
        }
        let is_met = self
            .most
            .zip(period.in_flight)
            .is_some_and(|(most, in_flight)| in_flight + period.left >= f64::from(most));
        self.met_ago_s = match is_met && is_busy(period) {
            true => 0.0,
            false => self.met_ago_s + length_s,
        };
        self.rate = match met(period.capacity) {
            Some(capacity) => capacity.get(),
            None if period.length > Seconds::ZERO => period.accepts / period.length.get(),
            None => self.rate,
        };
        self.learn_work(period, length_s);
        self.vain.go_on(passed);
        self.vain.leave(period.left, period.waiting.unwrap_or(0.0));
        self.learn_places(period, length_s, drops);
        self.count_leaving(own_s, period.left, period.gone, own_answered.unwrap_or(0.0));
        self.learn_patience(period, length_s);
        self.in_flight = period.in_flight;
        self.usual = self.bound(period);
        self.most = self.usual.map(|usual| self.behind_vain(period, own_s, usual));
        self.most
    }

    /// The same behind a period in which its queue could not be read.
    pub fn unread(&mut self, period: &InHandUnread) -> Option<u32> {
        let length_s = period.length.get().max(0.0);
        let answered = self.answered_since(period.sent, period.in_flight).unwrap_or(0.0);
        self.in_flight = period.in_flight;
        let accepts = self.rate * length_s;
        self.unread = Since {
            periods: self.unread.periods.saturating_add(1),
            length_s: self.unread.length_s + length_s,
            last_s: length_s,
            answered: self.unread.answered + answered,
            accepts: self.unread.accepts + accepts,
        };
        self.vain.go_on(accepts);
        self.vain.leave(period.left, self.waited.unwrap_or(0.0));
        self.count_leaving(length_s, period.left, period.gone, answered);
        if self.unread.periods > UNREAD_PERIODS {
            // That clients left is forgotten as ever.
            self.patience = (self.patience * (length_s / FORGET_S).exp()).min(1.0);
            let known = self
                .within_limits
                .map(|most| (self.patience * most).ceil() as u32);
            self.usual = self
                .usual
                .map(|usual| known.map_or(usual, |known| usual.max(known)));
            self.most = self.usual;
        }
        self.most
    }

    /// What was sent and is not there any more was answered; of what was there at first nobody knows.
    fn answered_since(&self, sent: f64, in_flight: Option<f64>) -> Option<f64> {
        let (now, before) = in_flight.zip(self.in_flight)?;
        Some(sent - (now - before))
    }

    /// Without what clients left in its queue.
    fn bound(&mut self, period: &InHandPeriod) -> Option<u32> {
        // Where nothing was counted yet it is as when it joined.
        if self.accepts <= 0.0 {
            return self.usual;
        }
        let is_of_its_own = self.accepts >= OWN_CONNECTIONS * self.answered;
        let is_dropping = self.usual.is_some() && self.dropped_ago_s < SHARE_S;
        if !is_of_its_own && !is_dropping {
            return self.usual.filter(|_| self.answered < FEW_ANSWERS);
        }
        let met = met(period.capacity);
        let by_capacity = met.map(|capacity| OF_CAPACITY * capacity.get() * self.within.get());
        let is_limited = met.is_some() || self.dropped_ago_s < FORGET_S;
        let by_places = period
            .places
            .filter(|_| is_limited)
            .map(|places| self.of_places * places + self.worked_on);
        let known = [by_capacity, by_places].into_iter().flatten().reduce(f64::min);
        let stays = is_busy(period) && self.met_ago_s < SHARE_S;
        self.within_limits = known.or_else(|| self.within_limits.filter(|_| stays));
        let most = self.patience * self.within_limits?;
        // Where clients leave because it takes too long, what waits beside what is worked on is worked on in vain.
        let beside = match self.patience < 1.0 {
            // Nobody leaves for it, and it may be able to work on more than it was let.
            true if self.leaving.0 < MORE_THAN_A_FEW => self.usual_work() + 1.0,
            true => self.usual_work().max(1.0),
            false => MORE_THAN_WORKED_ON * self.worked_on + 1.0,
        };
        // More than its queue has places for would be dropped.
        let least =
            beside.min(self.worked_on + (self.of_places * period.places.unwrap_or(f64::INFINITY)).max(1.0));
        self.is_least = most <= least;
        Some(most.max(least).ceil() as u32)
    }

    /// How many it may have of so many: who comes now waits behind what clients left. Where that is for longer than a request takes it leaves
    /// too, and where it is less than what is accepted until the bound is found anew, the server is to have work for the rest of that time.
    fn behind_vain(&self, period: &InHandPeriod, until_next_s: f64, usual: u32) -> u32 {
        let (vain, work) = (
            self.vain.in_queue(period.waiting.unwrap_or(0.0)),
            self.usual_work(),
        );
        if self.patience >= 1.0 || vain <= work.max(1.0) {
            return usual;
        }
        let gets_to = self.rate * until_next_s;
        let behind = match vain < gets_to {
            // Clients hardly wait for longer than their requests take, so they leave for what is ahead of them, however little that is.
            true if !self.is_far(usual) => 1.0,
            true => gets_to - vain + work,
            false => 1.0,
        };
        usual.min(behind.max(1.0).ceil() as u32)
    }

    /// Whether a bound is far from the least that is of use.
    fn is_far(&self, bound: u32) -> bool {
        f64::from(bound) > FAR * self.usual_work().max(1.0)
    }

    /// What it works on while somebody waits: the middle of the last periods, for one count may be taken while one of them ends.
    fn usual_work(&self) -> f64 {
        if self.busy.len() < BUSY_PERIODS {
            return self.worked_on;
        }
        let mut busy: Vec<f64> = self.busy.iter().copied().collect();
        busy.sort_unstable_by(f64::total_cmp);
        busy[busy.len() / 2]
    }

    fn learn_work(&mut self, period: &InHandPeriod, length_s: f64) {
        let works_on = self.works_on(period);
        let is_busy = period.waiting.is_some_and(|waiting| waiting >= BUSY);
        if let Some(works_on) = works_on.filter(|_| is_busy) {
            self.busy.push_back(works_on);
            if self.busy.len() > BUSY_PERIODS {
                self.busy.pop_front();
                self.worked_on = self.busy.iter().copied().fold(0.0, f64::max);
                return;
            }
        }
        self.worked_on *= (-length_s / FORGET_S).exp();
        self.worked_on = self.worked_on.max(works_on.unwrap_or(0.0));
    }

    /// What it works on, as far as this period and those before it tell.
    fn works_on(&mut self, period: &InHandPeriod) -> Option<f64> {
        // What TCP tries again is in flight and in no queue, and what clients left is in the queue and not in flight.
        let is_settled = self.dropped_ago_s >= TRIED_AGAIN_S && period.left < MORE_THAN_A_FEW;
        let works_on = period.in_flight.zip(period.waiting).filter(|_| is_settled);
        match works_on {
            Some((in_flight, waiting)) => self.seen.push((in_flight - waiting).max(0.0)),
            None => self.seen.clear(),
        }
        if self.seen.len() > IN_A_ROW {
            self.seen.remove(0);
        }
        let steady =
            (self.seen.len() == IN_A_ROW).then(|| self.seen.iter().copied().fold(f64::INFINITY, f64::min));
        // What it told itself holds however many TCP tries again.
        period.working.or(steady)
    }

    fn count_leaving(&mut self, length_s: f64, left: f64, gone: f64, answered: f64) {
        let kept = (-length_s / LEAVE_S).exp();
        self.leaving.0 = self.leaving.0 * kept + left + gone;
        self.leaving.1 = self.leaving.1 * kept + (answered - gone).max(0.0);
    }

    fn learn_patience(&mut self, period: &InHandPeriod, length_s: f64) {
        let (left, answered) = self.leaving;
        let do_leave = left >= MORE_THAN_A_FEW && left >= LEAVE * (left + answered);
        // Those that left before are answered for by what is less since.
        let do_leave = do_leave && period.left + period.gone > 0.0;
        let is_less = period
            .waiting
            .zip(self.waited)
            .is_none_or(|(now, before)| now < before);
        self.waited = period.waiting;
        // While what clients left lowers the bound little is sent, however far the bound is from the least.
        let is_lowered = self.most < self.usual && self.usual.is_some_and(|usual| self.is_far(usual));
        let drains = is_less && !is_lowered && period.sent + period.left <= DRAINS * period.accepts;
        // Who leaves a server with an empty queue does so for another reason.
        if do_leave && is_busy(period) && !drains && self.most.is_some() && !self.is_least {
            self.patience = (self.patience * LESS_FOR_LEAVING).max(LEAST_PATIENCE);
            self.leaving = (0.0, 0.0);
        } else {
            self.patience = (self.patience * (length_s / FORGET_S).exp()).min(1.0);
        }
    }

    fn learn_places(&mut self, period: &InHandPeriod, length_s: f64, drops: bool) {
        let is_held = self
            .most
            .zip(period.in_flight)
            .is_some_and(|(most, in_flight)| in_flight + period.left <= f64::from(most));
        if drops && is_held {
            self.of_places *= OF_PLACES;
        } else {
            self.of_places = (self.of_places * (length_s / FORGET_S).exp()).min(OF_PLACES);
        }
    }
}

/// What a bound goes by.
fn met(capacity: Capacity) -> Option<PerSecond> {
    match capacity {
        Capacity::Presumed(presumed) => Some(presumed),
        other => other.met(),
    }
}

/// Whether somebody waits, as far as is known.
fn is_busy(period: &InHandPeriod) -> bool {
    period.waiting.is_none_or(|waiting| waiting >= BUSY)
}

/// Whether connections were dropped that may be of what it is given.
fn is_dropped(period: &InHandPeriod) -> bool {
    let is_ours = period
        .in_flight
        .zip(period.places)
        .is_none_or(|(in_flight, places)| in_flight + period.left >= OURS * places);
    period.drops > 0.0 && is_ours
}

#[cfg(test)]
#[path = "in_hand_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "in_hand_vain_tests.rs"]
mod vain_tests;

#[cfg(test)]
#[path = "in_hand_leaving_tests.rs"]
mod leaving_tests;
