//! A body that is fetched to be stored, and sent meanwhile to whoever asked first.
//!
//! It is read as fast as the backend sends it, not as its client reads: others may wait for it. So all of it may be in memory, which
//! is why only what may be stored is fetched so, and only while the store has room for it: what its client has not taken yet counts
//! until it has. What turns out to be too large is left to its client from there on.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;

use super::store::Store;
use crate::body::{BodyError, MAX_PIECE_BYTES, UpstreamBody};
use crate::pieces::Pieces;
use crate::watch::Watch;

/// Where a fetched body is.
enum Source {
    /// More may come.
    Fetching,
    /// The rest is its client's to read.
    Rest(Box<UpstreamBody>),
    Broken(BodyError),
    Over,
}

struct Shared {
    /// What its client has not taken yet.
    ready: Pieces,
    /// The trailers behind that.
    trailers: Option<HeaderMap>,
    source: Source,
    /// Bytes that its client has not taken yet, where that is known.
    left: Option<u64>,
    waker: Option<Waker>,
    /// Bytes that are ready.
    untaken: u64,
    /// What it takes of the store's room.
    room: Room,
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
        if let Some(piece) = shared.ready.pop() {
            let taken = piece.len() as u64;
            shared.left = shared.left.map(|left| left.saturating_sub(taken));
            shared.untaken = shared.untaken.saturating_sub(taken);
            if !matches!(shared.source, Source::Fetching) {
                shared.room.shrink_to(shared.untaken);
            }
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if let Some(trailers) = shared.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
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

    /// Whether the cache reads no more of it.
    pub(crate) fn is_left_to_client(&self) -> bool {
        matches!(self.shared.borrow().source, Source::Rest(_))
    }

    /// Whether nothing is left of it.
    pub(crate) fn is_over(&self) -> bool {
        let shared = self.shared.borrow();
        let over = match &shared.source {
            Source::Over => true,
            Source::Rest(body) => body.is_over(),
            Source::Fetching | Source::Broken(_) => false,
        };
        over && shared.ready.is_empty() && shared.trailers.is_none()
    }

    /// Bytes that are left, where that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        let shared = self.shared.borrow();
        match &shared.source {
            Source::Rest(body) => body.left().map(|left| left + shared.untaken),
            _ => shared.left,
        }
    }
}

/// What a fetch holds of the store's room for bodies that come.
struct Room {
    store: Arc<Store>,
    bytes: u64,
}

impl Room {
    /// Takes so many bytes more; what is against it otherwise.
    fn take(&mut self, bytes: u64) -> Option<Fate> {
        if self.bytes + bytes > self.store.max_object_bytes() {
            return Some(Fate::Unfit);
        }
        if !self.store.take_room(bytes) {
            return Some(Fate::NoRoom);
        }
        self.bytes += bytes;
        None
    }

    /// Gives back what it has more than so many bytes.
    fn shrink_to(&mut self, bytes: u64) {
        let more = self.bytes.saturating_sub(bytes);
        self.bytes -= more;
        self.store.give_back(more);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.store.give_back(self.bytes);
    }
}

/// What became of a body.
pub(super) enum Fate {
    /// It came whole.
    Whole(Bytes),
    /// It is too large, or ends with fields of its own: no such is stored.
    Unfit,
    /// There is no room for it now.
    NoRoom,
    /// It broke off.
    Broken,
}

/// The other end: reads a body from its backend.
pub(super) struct Fetch {
    body: Box<UpstreamBody>,
    shared: Rc<RefCell<Shared>>,
    store: Arc<Store>,
}

impl Fetch {
    /// Of a body that comes, with the end for its client.
    pub(super) fn new(body: Box<UpstreamBody>, store: Arc<Store>) -> (Self, FetchedBody) {
        let shared = Rc::new(RefCell::new(Shared {
            ready: Pieces::default(),
            trailers: None,
            source: Source::Fetching,
            left: body.left(),
            waker: None,
            untaken: 0,
            room: Room {
                store: store.clone(),
                bytes: 0,
            },
        }));
        let client = FetchedBody {
            shared: shared.clone(),
        };
        (Self { body, shared, store }, client)
    }

    /// Reads it to its end. Where it is not stored its client, by whose watch its pauses are timed from there on, reads the rest.
    pub(super) async fn run(self, client: Option<Rc<Watch>>) -> Fate {
        let Self {
            mut body,
            shared,
            store,
        } = self;
        let mut pieces = Pieces::default();
        loop {
            let next = poll_fn(|cx| {
                body.call.watch.wake_by(cx);
                body.poll_frame(cx)
            });
            let frame = match next.await {
                None => {
                    let whole = store.counted(pieces.concat());
                    share(&mut shared.borrow_mut(), &whole);
                    go_on(&shared, Source::Over);
                    return Fate::Whole(whole);
                }
                Some(Err(error)) => {
                    go_on(&shared, Source::Broken(error));
                    return Fate::Broken;
                }
                Some(Ok(frame)) => frame,
            };
            // Its client may be gone, and others wait.
            let has_client = Rc::strong_count(&shared) > 1;
            let against = {
                let shared = &mut *shared.borrow_mut();
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                // What ends with fields of its own is not kept.
                match frame.into_data() {
                    Ok(data) => {
                        let against = shared.room.take(bytes);
                        pieces.push(data.clone());
                        if has_client {
                            shared.untaken += bytes;
                            shared.ready.push(data);
                        }
                        against
                    }
                    Err(frame) => {
                        shared.trailers = frame.into_trailers().ok().filter(|_| has_client);
                        Some(Fate::Unfit)
                    }
                }
            };
            let Some(against) = against else {
                go_on(&shared, Source::Fetching);
                continue;
            };
            if let Some(client) = client.as_ref().filter(|_| has_client) {
                body.call.watch = client.clone();
                go_on(&shared, Source::Rest(body));
            }
            return against;
        }
    }
}

/// What its client has not taken yet is of the stored body from now on, so that there is one copy of it.
fn share(shared: &mut Shared, whole: &Bytes) {
    let untaken = usize::try_from(shared.untaken)
        .unwrap_or(usize::MAX)
        .min(whole.len());
    let mut rest = whole.slice(whole.len() - untaken..);
    shared.ready = Pieces::default();
    while !rest.is_empty() {
        let piece = rest.split_to(rest.len().min(MAX_PIECE_BYTES));
        shared.ready.push(piece);
    }
    shared.room.shrink_to(0);
}

/// Says where a body is, to its client too.
fn go_on(shared: &RefCell<Shared>, source: Source) {
    let shared = &mut *shared.borrow_mut();
    if !matches!(source, Source::Fetching) {
        shared.room.shrink_to(shared.untaken);
    }
    shared.source = source;
    if let Some(waker) = shared.waker.take() {
        waker.wake();
    }
}
