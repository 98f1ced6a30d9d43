//! A body that is fetched to be stored, and sent meanwhile to whoever asked first.
//!
//! It is read as fast as the backend sends it, not as its client reads: others may wait for it. So all of it may be in memory, which
//! is why only what may be stored is fetched so. What turns out to be too large is left to its client from there on.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http_body::Frame;

use super::store::Store;
use crate::body::{BodyError, UpstreamBody};
use crate::watch::Watch;

/// Where a fetched body is.
#[derive(Default)]
enum Source {
    /// More may come.
    #[default]
    Fetching,
    /// The rest is its client's to read.
    Rest(Box<UpstreamBody>),
    Broken(BodyError),
    Over,
}

#[derive(Default)]
struct Shared {
    /// What its client has not taken yet.
    ready: VecDeque<Frame<Bytes>>,
    source: Source,
    /// Bytes that its client has not taken yet, where that is known.
    left: Option<u64>,
    waker: Option<Waker>,
}

/// The end of a fetched body that its client reads.
pub(crate) struct FetchedBody {
    shared: Rc<RefCell<Shared>>,
}

impl FetchedBody {
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let shared = &mut *self.shared.borrow_mut();
        if let Some(frame) = shared.ready.pop_front() {
            let taken = frame.data_ref().map_or(0, Bytes::len) as u64;
            shared.left = shared.left.map(|left| left.saturating_sub(taken));
            return Poll::Ready(Some(Ok(frame)));
        }
        match &mut shared.source {
            Source::Fetching => {
                shared.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Source::Rest(body) => body.poll_frame(cx),
            Source::Over => Poll::Ready(None),
            Source::Broken(_) => match std::mem::replace(&mut shared.source, Source::Over) {
                Source::Broken(error) => Poll::Ready(Some(Err(error))),
                _ => Poll::Ready(None),
            },
        }
    }

    /// Whether nothing is left of it.
    pub(crate) fn is_over(&self) -> bool {
        let shared = self.shared.borrow();
        shared.ready.is_empty() && matches!(shared.source, Source::Over)
    }

    /// Bytes that are left, where that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        self.shared.borrow().left
    }
}

/// What a fetch holds of the store's room for bodies that come.
struct Room {
    store: Arc<Store>,
    bytes: u64,
}

impl Room {
    /// Whether a body may have so many bytes more.
    fn takes(&mut self, bytes: u64) -> bool {
        let fits = self.bytes + bytes <= self.store.max_object_bytes() && self.store.take_room(bytes);
        if fits {
            self.bytes += bytes;
        }
        fits
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.store.give_back(self.bytes);
    }
}

/// The other end: reads a body from its backend.
pub(super) struct Fetch {
    body: UpstreamBody,
    shared: Rc<RefCell<Shared>>,
    room: Room,
}

impl Fetch {
    /// Of a body that comes, with the end for its client.
    pub(super) fn new(body: UpstreamBody, store: Arc<Store>) -> (Self, FetchedBody) {
        let shared = Rc::new(RefCell::new(Shared {
            left: body.left(),
            ..Shared::default()
        }));
        let client = FetchedBody {
            shared: shared.clone(),
        };
        let room = Room { store, bytes: 0 };
        (Self { body, shared, room }, client)
    }

    /// Reads it to its end. `None` where it broke off, or was too large or too strange to be stored: then its client, by whose
    /// watch its pauses are timed from there on, reads the rest.
    pub(super) async fn run(self, client: Option<Rc<Watch>>) -> Option<Bytes> {
        let Self {
            mut body,
            shared,
            mut room,
        } = self;
        let mut pieces = Vec::new();
        loop {
            let next = poll_fn(|cx| {
                body.call.watch.wake_by(cx);
                body.poll_frame(cx)
            });
            let frame = match next.await {
                None => {
                    go_on(&shared, Source::Over);
                    return Some(joined(pieces));
                }
                Some(Err(error)) => {
                    go_on(&shared, Source::Broken(error));
                    return None;
                }
                Some(Ok(frame)) => frame,
            };
            // What ends with fields of its own is not kept.
            let fits = frame.data_ref().is_some_and(|data| {
                pieces.push(data.clone());
                room.takes(data.len() as u64)
            });
            // Its client may be gone, and others wait.
            let has_client = Rc::strong_count(&shared) > 1;
            if has_client {
                shared.borrow_mut().ready.push_back(frame);
            }
            match (fits, client.as_ref().filter(|_| has_client)) {
                (true, _) => go_on(&shared, Source::Fetching),
                (false, Some(client)) => {
                    body.call.watch = client.clone();
                    go_on(&shared, Source::Rest(Box::new(body)));
                    return None;
                }
                (false, None) => return None,
            }
        }
    }
}

/// Says where a body is, to its client too.
fn go_on(shared: &RefCell<Shared>, source: Source) {
    let shared = &mut *shared.borrow_mut();
    shared.source = source;
    if let Some(waker) = shared.waker.take() {
        waker.wake();
    }
}

fn joined(mut pieces: Vec<Bytes>) -> Bytes {
    match pieces.len() {
        0 => Bytes::new(),
        1 => pieces.swap_remove(0),
        _ => {
            let mut whole = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
            for piece in pieces {
                whole.extend_from_slice(&piece);
            }
            whole.freeze()
        }
    }
}
