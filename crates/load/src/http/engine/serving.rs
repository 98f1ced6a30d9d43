//! The tasks of the connections: each serves one request after the other; and the sweep that gives up what is
//! overdue.

use super::super::connection::{Broken, Connection};
use super::Engine;
use crate::clock::Moment;
use crate::tally::Failures;
use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io::{self, Write as _};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How long a connection of a closed loop waits after it was refused.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);

/// A request that is due.
pub(super) struct Job {
    pub(super) intended: Moment,
    pub(super) uri: Uri,
    /// Whether it is a HEAD request, whatever the load's method.
    pub(super) head: bool,
    /// Whether the server is told to close the connection after the answer.
    pub(super) close: bool,
    /// Of an auction's visitor: the page that must come.
    pub(super) visit: Option<Wanted>,
}

/// A page that is checked when it comes.
pub(super) struct Wanted {
    /// What it must say.
    pub(super) marker: String,
    /// The form that is sent with POST; a page that only reads has none.
    pub(super) form: Option<Bytes>,
}

/// The lines of a head that these fields make.
pub(super) fn fields(headers: &HeaderMap) -> Vec<u8> {
    let mut lines = Vec::new();
    for (name, value) in headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            lines.extend_from_slice(part);
        }
    }
    lines
}

/// What the dispatcher and a connection's task share.
pub(super) struct Slot {
    pub(super) job: Cell<Option<Job>>,
    /// The task's waker.
    pub(super) waker: Cell<Option<Waker>>,
    /// When the request that is being served is given up.
    pub(super) deadline: Cell<Moment>,
    /// The deadline has passed.
    pub(super) expired: Cell<bool>,
    /// Whether it holds an open connection.
    pub(super) connected: Cell<bool>,
    /// Since when it tries to connect, while it does.
    pub(super) connecting: Cell<Option<Moment>>,
    /// Of a closed loop: when its window began.
    pub(super) window_began: Cell<Moment>,
}

impl Slot {
    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Leaves the task's waker. Called in every poll that may wait.
    pub(super) fn register(&self, cx: &Context<'_>) {
        let waker = self.waker.take().filter(|waker| waker.will_wake(cx.waker()));
        self.waker.set(Some(waker.unwrap_or_else(|| cx.waker().clone())));
    }
}

impl Engine {
    /// A connection's task: serves one request after the other, for as long as the runtime lives.
    pub(super) async fn serve(self: Rc<Self>, slot: Rc<Slot>, mut connection: Option<Connection>) {
        loop {
            self.sleep_between_windows(&slot).await;
            let job = self.next_job(&slot, &mut connection).await;
            self.carry_out(job, &slot, &mut connection).await;
            self.release_due();
            if !self.offering.get() {
                self.progress.notify_one();
            }
        }
    }

    /// Of a closed loop at a density: sleeps to the next window where this one's time to send is over. A connection that the
    /// server closes meanwhile is opened again when it is used. The end of the load waits for no sleep.
    async fn sleep_between_windows(&self, slot: &Slot) {
        while let Some(windows) = self.windows.get() {
            let mut began = slot.window_began.get();
            let now = Moment::now();
            let Some(wake) = windows.sleep_until(&mut began, now) else {
                return;
            };
            slot.window_began.set(began);
            tokio::time::sleep(Duration::from_nanos(wake.nanos_since(now))).await;
        }
    }

    /// Sends a request and waits for the answer, until its deadline; whether it was completed.
    pub(super) async fn carry_out(&self, job: Job, slot: &Slot, connection: &mut Option<Connection>) -> bool {
        let intended = job.intended;
        if !self.offering.get() {
            let now = Moment::now();
            if self.give_up_at.get() <= now {
                self.period.borrow_mut().given_up(intended, self.timeout, now);
                return false;
            }
        }
        slot.deadline
            .set(intended.after(self.timeout).min(self.give_up_at.get()));
        let outcome = self
            .until_deadline(slot, self.perform(job, slot, connection))
            .await;
        slot.deadline.set(Moment::NEVER);
        slot.expired.set(false);
        if outcome.is_none() {
            // The answer may still come; on this connection nothing else can be asked.
            *connection = None;
            let now = Moment::now();
            let mut period = self.period.borrow_mut();
            if let Some(start) = slot.connecting.take() {
                period.connect_given_up(start, now);
            }
            period.given_up(intended, self.timeout, now);
        }
        if !self.keep_alive {
            *connection = None;
        }
        outcome.unwrap_or(false)
    }

    /// The next request: one that waits, or one that the dispatcher brings. While there is none the connection
    /// is watched, so that one which the server closes is not used.
    async fn next_job(&self, slot: &Rc<Slot>, connection: &mut Option<Connection>) -> Job {
        let mut listed = false;
        poll_fn(|cx| {
            if let Some(job) = slot.job.take() {
                return Poll::Ready(job);
            }
            if self.closed_loop && self.offering.get() {
                self.offer();
                return Poll::Ready(self.job(Moment::now()));
            }
            if !listed && let Some(job) = self.waiting.borrow_mut().pop_front() {
                return Poll::Ready(job);
            }
            if connection
                .as_mut()
                .is_some_and(|open| open.poll_ended(cx).is_ready())
            {
                *connection = None;
            }
            slot.connected.set(connection.is_some());
            slot.register(cx);
            if !listed {
                listed = true;
                if connection.is_some() {
                    self.idle.borrow_mut().push_back(Rc::clone(slot));
                } else {
                    self.unconnected.borrow_mut().push(Rc::clone(slot));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Runs a request until it is done or its deadline passes (none).
    async fn until_deadline<T>(&self, slot: &Slot, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(done));
            }
            if slot.expired.get() {
                return Poll::Ready(None);
            }
            slot.register(cx);
            Poll::Pending
        })
        .await
    }

    /// A request of the load's method for the next of the load's paths.
    pub(super) fn job(&self, intended: Moment) -> Job {
        Job {
            intended,
            uri: self.paths.borrow_mut().choose(),
            head: false,
            close: false,
            visit: None,
        }
    }

    /// Sends a request, on a new connection if there is none, reads the answer and counts it. Whether it was completed.
    async fn perform(&self, job: Job, slot: &Slot, connection: &mut Option<Connection>) -> bool {
        let mut sent_before = None;
        loop {
            let open = match connection {
                Some(open) => open,
                None => match self.connect(slot).await {
                    Ok(opened) => connection.insert(opened),
                    Err(error) => {
                        self.period.borrow_mut().connect_failed(&error);
                        // It is counted: a deadline that passes in the pause must not count it once more.
                        slot.deadline.set(Moment::NEVER);
                        slot.expired.set(false);
                        self.after_refusal().await;
                        return false;
                    }
                },
            };
            let used = open.used;
            if open.ready().await.is_err() {
                *connection = None;
                if used {
                    // Closed while it was idle; nothing was sent on it.
                    continue;
                }
                self.fail(|failed| &mut failed.protocol);
                return false;
            }
            let sent = Moment::now();
            if sent_before.is_none() {
                self.period.borrow_mut().sent(job.intended, sent);
            }
            let first_sent = *sent_before.get_or_insert(sent);
            let marker = job.visit.as_ref().map(|wanted| wanted.marker.as_bytes());
            let (body, is_head) = self.compose(&job);
            match open.exchange(&self.head, body, is_head, marker).await {
                Ok(answer) => {
                    let mut period = self.period.borrow_mut();
                    period.counts.body_bytes += answer.body_bytes;
                    let status = answer.status.as_u16();
                    if job.visit.is_some() && status < 500 && !(status < 300 && answer.has_marker) {
                        period.failed(|failed| &mut failed.wrong);
                        return false;
                    }
                    if self.expect_bytes.is_some() && (400..500).contains(&status) {
                        period.failed(|failed| &mut failed.wrong);
                        return false;
                    }
                    if status < 400 && self.expect_bytes.is_some_and(|bytes| bytes != answer.body_bytes) {
                        period.failed(|failed| &mut failed.wrong_size);
                        return false;
                    }
                    return period.answered(answer.status, job.intended, first_sent, Moment::now());
                }
                Err(broken) => {
                    *connection = None;
                    // An unused connection is not tried again: the server, not bad luck, broke it.
                    let again = match broken {
                        Broken::BeforeSending => used,
                        Broken::BeforeAnswer => used && self.is_idempotent(&job),
                        Broken::InAnswer => false,
                    };
                    if !again {
                        self.fail(|failed| &mut failed.protocol);
                        return false;
                    }
                    self.period.borrow_mut().counts.retried += 1;
                }
            }
        }
    }

    /// Opens a connection and counts how long it took. Where the caller gives up, `slot.connecting` says since when
    /// it was being opened.
    pub(super) async fn connect(&self, slot: &Slot) -> io::Result<Connection> {
        let start = Moment::now();
        slot.connecting.set(Some(start));
        let opened = Connection::open(&self.addresses, &self.shared).await;
        slot.connecting.set(None);
        if opened.is_ok() {
            self.period.borrow_mut().connected(start, Moment::now());
        }
        opened
    }

    /// A refusal may come without any waiting, so the others get their turn here; and a closed loop, which would
    /// only ask again, pauses.
    async fn after_refusal(&self) {
        if self.closed_loop {
            tokio::time::sleep(REFUSED_PAUSE).await;
        } else {
            tokio::task::yield_now().await;
        }
    }

    fn is_idempotent(&self, job: &Job) -> bool {
        match &job.visit {
            Some(wanted) => wanted.form.is_none(),
            None => self.idempotent || job.head,
        }
    }

    fn fail(&self, kind: impl FnOnce(&mut Failures) -> &mut u64) {
        self.period.borrow_mut().failed(kind);
    }

    /// Writes a request's head into the memory for it; its body, and whether its method is HEAD.
    fn compose(&self, job: &Job) -> (Bytes, bool) {
        let form = job.visit.as_ref().map(|wanted| &wanted.form);
        let (method, body) = match form {
            Some(Some(form)) => (&Method::POST, form.clone()),
            Some(None) => (&Method::GET, Bytes::new()),
            None if job.head => (&Method::HEAD, self.body.clone()),
            None => (&self.method, self.body.clone()),
        };
        let target = job.uri.path_and_query().map_or("/", |target| target.as_str());
        let head = &mut *self.head.borrow_mut();
        head.clear();
        for part in [method.as_str(), " ", target, " HTTP/1.1\r\n"] {
            head.extend_from_slice(part.as_bytes());
        }
        head.extend_from_slice(&self.fields);
        if let Some(Some(_)) = form {
            head.extend_from_slice(b"content-type: application/x-www-form-urlencoded\r\n");
        }
        if job.close && self.keep_alive {
            head.extend_from_slice(b"connection: close\r\n");
        }
        // RFC 9110 section 8.6: a method that means nothing by a body needs no length where there is none.
        let has_meaning = matches!(*method, Method::POST | Method::PUT | Method::PATCH);
        if !self.has_length && (has_meaning || !body.is_empty()) {
            // Writing into memory cannot fail.
            let _ = write!(head, "content-length: {}\r\n", body.len());
        }
        head.extend_from_slice(b"\r\n");
        (body, *method == Method::HEAD)
    }

    /// Gives up, every so often, the requests whose deadline has passed. One look at all connections costs less
    /// than a timer for every request.
    pub(super) async fn sweep(self: Rc<Self>) {
        let mut ticks =
            tokio::time::interval(Duration::from_secs_f64((self.timeout / 20.0).clamp(0.001, 0.1)));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.give_up_overdue();
            if !self.offering.get() {
                self.progress.notify_one();
            }
        }
    }

    /// Gives up the requests whose deadline has passed, those that wait for a connection among them.
    pub(super) fn give_up_overdue(&self) {
        let now = Moment::now();
        let slots = self.slots.borrow();
        for slot in slots.iter().filter(|slot| slot.deadline.get() <= now) {
            slot.expired.set(true);
            slot.wake();
        }
        let is_over = self.give_up_at.get() <= now;
        let mut waiting = self.waiting.borrow_mut();
        // The timeout is the same for all, so the first in the queue is the first to expire.
        while waiting
            .front()
            .is_some_and(|job| is_over || job.intended.after(self.timeout) <= now)
        {
            if let Some(job) = waiting.pop_front() {
                self.period.borrow_mut().given_up(job.intended, self.timeout, now);
            }
        }
    }
}
