//! A fetch, and those that wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};

use bytes::Bytes;
use http::StatusCode;
use tokio::sync::Notify;

use super::store::Store;
use super::stored::Stored;

/// For whom a fetch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// For all that ask meanwhile.
    Leads,
    /// For whoever asked: its answer is stored where it may be, and nobody waits for it.
    Alone,
    /// For nobody: what is stored is used meanwhile.
    Background,
}

/// It is not over yet, or was no failure.
const NO_FAILURE: u16 = 0;
/// It failed without an answer.
const NO_ANSWER: u16 = 1;

/// A fetch that others may wait for.
#[derive(Debug)]
pub(super) struct Flight {
    role: Role,
    is_over: AtomicBool,
    /// What it fetches was changed meanwhile: it is not stored.
    is_outdated: AtomicBool,
    /// How it failed: a status, or one of the two above.
    failed: AtomicU16,
    over: Notify,
    waiting: AtomicUsize,
    /// One that waited has gone.
    left: Notify,
}

/// A failed fetch, and the status that it was answered with, if it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failed(pub Option<StatusCode>);

impl Flight {
    pub(super) fn new(role: Role) -> Self {
        Self {
            role,
            is_over: AtomicBool::new(false),
            is_outdated: AtomicBool::new(false),
            failed: AtomicU16::new(NO_FAILURE),
            over: Notify::new(),
            waiting: AtomicUsize::new(0),
            left: Notify::new(),
        }
    }

    /// Whether no other may begin meanwhile in this role. Nobody waits for one in the background, so that it keeps out only its like.
    pub(super) fn keeps_out(&self, role: Role) -> bool {
        match role {
            Role::Leads => self.role == Role::Leads,
            Role::Background => self.role != Role::Alone,
            Role::Alone => false,
        }
    }

    pub(super) fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Acquire)
    }

    /// What it fetches was changed.
    pub(super) fn outdate(&self) {
        self.is_outdated.store(true, Ordering::Release);
    }

    /// Waits until it is over, and how it failed, if it did.
    pub(super) async fn wait(&self) -> Option<Failed> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let _waiting = Waiting(self);
        let over = self.over.notified();
        tokio::pin!(over);
        // What ends between the look and the wait must be heard.
        over.as_mut().enable();
        if !self.is_over.load(Ordering::Acquire) {
            over.await;
        }
        match self.failed.load(Ordering::Acquire) {
            NO_FAILURE => None,
            // One is no status.
            status => Some(Failed(StatusCode::from_u16(status).ok())),
        }
    }

    /// Waits until nobody waits for it. Who comes just then is told that it is over, and goes by itself.
    async fn left_alone(&self) {
        loop {
            let left = self.left.notified();
            if self.waiting.load(Ordering::Acquire) == 0 {
                return;
            }
            left.await;
        }
    }
}

/// One that waits.
struct Waiting<'a>(&'a Flight);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
        // It is kept for whoever looks just now.
        self.0.left.notify_one();
    }
}

/// The right, and the duty, to fetch. Dropped, nobody waits for it any more.
pub(super) struct FlightTicket {
    store: Arc<Store>,
    key: Bytes,
    flight: Arc<Flight>,
}

impl FlightTicket {
    pub(super) fn new(store: Arc<Store>, key: Bytes, flight: Arc<Flight>) -> Self {
        Self { store, key, flight }
    }

    /// Stores what was fetched; not where it was outdated meanwhile.
    pub(super) fn store(&self, stored: Arc<Stored>) -> bool {
        self.store.store(&self.key, &self.flight, stored)
    }

    /// The answer could not be stored: requests for it need not wait for one another.
    pub(super) fn missed(&self) {
        self.store.missed(&self.key);
    }

    /// This is not to be used any more.
    pub(super) fn forget(&self, stored: &Arc<Stored>) {
        self.store.forget(&self.key, stored);
    }

    /// It failed: those that wait may use what is stale where they are allowed to.
    pub(super) fn failed(&self, status: Option<StatusCode>) {
        let failed = status.map_or(NO_ANSWER, |status| status.as_u16());
        self.flight.failed.store(failed, Ordering::Release);
    }

    /// Waits until nobody waits for it.
    pub(super) async fn left_alone(&self) {
        self.flight.left_alone().await;
    }

    pub(super) fn role(&self) -> Role {
        self.flight.role
    }

    pub(super) fn store_of(&self) -> &Arc<Store> {
        &self.store
    }
}

impl Drop for FlightTicket {
    fn drop(&mut self) {
        self.store.land(&self.key, &self.flight);
        self.flight.is_over.store(true, Ordering::Release);
        self.flight.over.notify_waiters();
    }
}
