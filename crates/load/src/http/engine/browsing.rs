//! Users: how many are there, when each wakes, and what each fetches.

use super::super::connection::Connection;
use super::serving::{Job, Slot};
use super::{Engine, Source};
use crate::clock::Moment;
use headroom_workload::auction::{self, Behaviour};
use headroom_workload::users::{Model, Site, User, UserCurve};
use http::Uri;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

/// How often the number of users is brought to what the curve says, seconds.
const LOOK_EVERY_S: f64 = 0.1;

/// The users of a load. User `n` is there while the curve, rounded, is above `n`.
pub(super) struct Population {
    pub(super) curve: UserCurve,
    /// Seconds.
    pub(super) duration: f64,
    pub(super) people: Crowd,
    /// The site's files, by their index.
    pub(super) files: Vec<Uri>,
    pub(super) seed: u64,
    pub(super) most: usize,
    /// Of every user number that there ever was.
    pub(super) seats: RefCell<Vec<Rc<Seat>>>,
    /// When who wakes: of each user at most one.
    pub(super) alarms: RefCell<BTreeSet<(Moment, usize)>>,
    pub(super) next_look: Cell<Moment>,
    pub(super) wanted: Cell<usize>,
    pub(super) present: Cell<usize>,
    /// Up to when the time of those present is counted.
    pub(super) counted_until: Cell<Moment>,
    /// How many ever came.
    pub(super) came: Cell<u64>,
}

/// Who the users are.
pub(super) enum Crowd {
    Surge(Model, RefCell<Site>),
    Auction(Behaviour, Box<auction::Site>),
}

/// A user number's place.
pub(super) struct Seat {
    pub(super) slot: Rc<Slot>,
    taken: Cell<bool>,
}

impl Population {
    /// When something is due next: a user wakes, or the curve is looked at.
    pub(super) fn next_event(&self) -> Moment {
        let first = self
            .alarms
            .borrow()
            .first()
            .map_or(Moment::NEVER, |alarm| alarm.0);
        first.min(self.next_look.get())
    }
}

impl Engine {
    /// Brings the number of users to what the curve says, and wakes who is due; at most a batch.
    pub(super) fn attend(self: &Rc<Self>, people: &Rc<Population>, now: Moment, batch: usize) {
        if people.next_look.get() <= now {
            people.next_look.set(now.after(LOOK_EVERY_S));
            self.follow_curve(people, now);
        }
        for _ in 0..batch {
            let due = people
                .alarms
                .borrow()
                .first()
                .copied()
                .filter(|alarm| alarm.0 <= now);
            let Some(alarm) = due else { return };
            people.alarms.borrow_mut().remove(&alarm);
            people.seats.borrow()[alarm.1].slot.wake();
        }
    }

    /// Wakes every user at the end of the load, so that those who wait in the middle of a page let go of their
    /// connections: a server with few workers may be waiting for one of them to serve those who still ask.
    pub(super) fn send_home(&self) {
        if let Source::Users(people) = &*self.source.borrow() {
            for seat in people.seats.borrow().iter() {
                seat.slot.wake();
            }
        }
    }

    fn follow_curve(self: &Rc<Self>, people: &Rc<Population>, now: Moment) {
        let users = people.curve.at(self.elapsed(now));
        // A cast from f64 saturates.
        let wanted = (users.round() as usize).min(people.most);
        let before = people.wanted.replace(wanted);
        for number in before..wanted {
            if number == people.seats.borrow().len() {
                let seat = Seat {
                    slot: self.add_slot(),
                    taken: Cell::new(false),
                };
                people.seats.borrow_mut().push(Rc::new(seat));
            }
            let seat = Rc::clone(&people.seats.borrow()[number]);
            // One who is to leave may still be in the middle of a page, and then simply stays.
            if !seat.taken.replace(true) {
                self.count_users(people, now);
                people.present.set(people.present.get() + 1);
                tokio::task::spawn_local(Rc::clone(self).stay(Rc::clone(people), number, seat));
            }
        }
        for seat in people.seats.borrow().iter().take(before).skip(wanted) {
            seat.slot.wake();
        }
    }

    /// Counts the time of those present up to now.
    pub(super) fn count_users(&self, people: &Population, now: Moment) {
        let since = people.counted_until.replace(now);
        let mut period = self.period.borrow_mut();
        period.user_seconds += people.present.get() as f64 * now.since(since);
    }

    /// A user's task: page after page, until it is wanted no more.
    async fn stay(self: Rc<Self>, people: Rc<Population>, number: usize, seat: Rc<Seat>) {
        people.came.set(people.came.get() + 1);
        match &people.people {
            Crowd::Surge(model, site) => self.browse(&people, model, site, number, &seat).await,
            Crowd::Auction(behaviour, site) => {
                self.visit(&people, behaviour, site, number, &seat).await;
            }
        }
        self.count_users(&people, Moment::now());
        people.present.set(people.present.get() - 1);
        seat.taken.set(false);
    }

    /// What a SURGE user does.
    async fn browse(
        self: &Rc<Self>,
        people: &Population,
        model: &Model,
        site: &RefCell<Site>,
        number: usize,
        seat: &Seat,
    ) {
        let mut user = User::new(people.seed, people.came.get());
        let mut connection: Option<Connection> = None;
        let mut answered = Moment::now();
        let mut whole = true;
        loop {
            let (wait, fetch) = user.next(model, &mut site.borrow_mut());
            let due = answered.after(wait.get());
            if !self
                .idle(people, number, &seat.slot, due, fetch.begins_page)
                .await
            {
                break;
            }
            if fetch.begins_page {
                self.period.borrow_mut().counts.pages_begun += 1;
                whole = true;
            }
            let uri = match fetch.file {
                Some(file) => people.files[file].clone(),
                None => self.paths.borrow_mut().choose(),
            };
            self.offer();
            self.period.borrow_mut().released(due, Moment::now());
            let job = Job {
                intended: due,
                uri,
                head: false,
                close: fetch.ends_page,
                visit: None,
            };
            let done = self.carry_out(job, &seat.slot, &mut connection).await;
            answered = Moment::now();
            whole &= done;
            let lost = fetch.begins_page && !done;
            if lost {
                user.leave_page();
            }
            if lost || fetch.ends_page {
                connection = None;
                let counts = &mut self.period.borrow_mut().counts;
                *(if whole {
                    &mut counts.pages_completed
                } else {
                    &mut counts.pages_failed
                }) += 1;
            }
            self.release_due();
            if !self.offering.get() {
                self.progress.notify_one();
            }
        }
    }

    /// Waits until a moment; false where the user is to leave, which between pages it does at once.
    pub(super) async fn idle(
        &self,
        people: &Population,
        number: usize,
        slot: &Slot,
        until: Moment,
        may_leave: bool,
    ) -> bool {
        people.alarms.borrow_mut().insert((until, number));
        if until < self.armed.get() {
            self.rearm.notify_one();
        }
        let stays = poll_fn(|cx| {
            if !self.offering.get() || (may_leave && number >= people.wanted.get()) {
                return Poll::Ready(false);
            }
            if until <= Moment::now() {
                return Poll::Ready(true);
            }
            slot.register(cx);
            Poll::Pending
        })
        .await;
        people.alarms.borrow_mut().remove(&(until, number));
        stays
    }
}
