//! Visitors of an auction site: think, ask for a page, check it.

use super::super::connection::Connection;
use super::Engine;
use super::browsing::{Population, Seat};
use super::serving::{Job, Wanted};
use crate::clock::Moment;
use headroom_workload::auction::{Behaviour, Site, Visitor};
use http::Uri;
use std::rc::Rc;

impl Engine {
    /// What a visitor does, until it is wanted no more: it may leave after any page.
    pub(super) async fn visit(
        self: &Rc<Self>,
        people: &Population,
        behaviour: &Behaviour,
        site: &Site,
        number: usize,
        seat: &Seat,
    ) {
        let mut visitor = Visitor::new(people.seed, people.came.get(), behaviour.clone());
        let mut connection: Option<Connection> = None;
        let mut answered = Moment::now();
        loop {
            let (think, visit) = visitor.next(site);
            let due = answered.after(think.get());
            if !self.idle(people, number, &seat.slot, due, true).await {
                break;
            }
            let Ok(uri) = visit.target.parse::<Uri>() else {
                unreachable!("a target is a path and a query of letters and digits")
            };
            let page = visit.page();
            self.offer();
            {
                let mut period = self.period.borrow_mut();
                period.released(due, Moment::now());
                period.counts.pages_begun += 1;
            }
            let job = Job {
                intended: due,
                uri,
                head: false,
                close: visit.ends_session,
                visit: Some(Wanted {
                    marker: visit.place.marker(),
                    form: visit.writes.is_some().then(|| visit.form.into()),
                }),
            };
            let done = self.carry_out(job, &seat.slot, &mut connection).await;
            answered = Moment::now();
            {
                let mut period = self.period.borrow_mut();
                period.kind(page, done, due, answered);
                let counts = &mut period.counts;
                *(if done {
                    &mut counts.pages_completed
                } else {
                    &mut counts.pages_failed
                }) += 1;
            }
            if !done {
                visitor.leave();
            }
            if !done || visit.ends_session {
                connection = None;
            }
            self.release_due();
            if !self.offering.get() {
                self.progress.notify_one();
            }
        }
    }
}
