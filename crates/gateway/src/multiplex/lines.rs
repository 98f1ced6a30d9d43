//! One core's HTTP/2 connections to the backends, and who opens the next.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tokio::sync::Notify;

use super::connection::{Connection, Driver, Patience};
use crate::backend::BackendState;
use crate::config::BackendProtocol;
use crate::core::Core;
use crate::ejection::ConnectFailure;

/// The most connections of one core to one backend. Past them requests wait in the connection with the fewest for the backend to take
/// one more.
const MAX_CONNECTIONS: usize = 64;

/// One core's connections, of each backend.
pub(crate) struct Lines {
    core: Rc<Core>,
    lines: Vec<Line>,
}

#[derive(Default)]
struct Line {
    connections: RefCell<Vec<Rc<Connection>>>,
    /// A connection is being opened.
    dialling: RefCell<Option<Rc<Dialling>>>,
    /// The backend chose HTTP/1.1 when it was last asked.
    chose_http1: Cell<bool>,
}

#[derive(Default)]
struct Dialling {
    outcome: Cell<Option<Result<(), ConnectFailure>>>,
    over: Notify,
}

/// Who opens a connection when there is none with room.
pub(crate) enum Turn<'a> {
    Mine(Dial<'a>),
    /// Somebody else did, and this came of it.
    Theirs(Result<(), ConnectFailure>),
}

/// The one who opens a connection; the others wait. Dropped before it has [`Dial::finish`]ed, as when its client goes away, another of them
/// takes its turn.
pub(crate) struct Dial<'a> {
    line: &'a Line,
    dialling: Rc<Dialling>,
}

impl Dial<'_> {
    /// What came of it, for those that wait.
    pub(crate) fn finish(self, outcome: Result<(), ConnectFailure>) {
        self.dialling.outcome.set(Some(outcome));
    }
}

impl Drop for Dial<'_> {
    fn drop(&mut self) {
        self.line.dialling.replace(None);
        self.dialling.over.notify_waiters();
    }
}

impl Lines {
    pub(crate) fn new(core: Rc<Core>) -> Self {
        Self {
            lines: core.backends.iter().map(|_| Line::default()).collect(),
            core,
        }
    }

    /// Whether requests to the backend go over HTTP/2, as far as is known.
    pub(crate) fn is_for(&self, backend: usize) -> bool {
        match self.core.backends[backend].dial.protocol() {
            BackendProtocol::Http1 => false,
            BackendProtocol::H2 => true,
            BackendProtocol::Auto => !self.lines[backend].chose_http1.get(),
        }
    }

    /// The backend was asked which HTTP it speaks.
    pub(crate) fn chose(&self, backend: usize, http2: bool) {
        self.lines[backend].chose_http1.set(!http2);
    }

    /// A connection that takes one more request.
    pub(crate) fn with_room(&self, backend: usize) -> Option<Rc<Connection>> {
        let mut connections = self.lines[backend].connections.borrow_mut();
        connections.retain(|connection| connection.is_open());
        let with_room = connections.iter().find(|connection| connection.has_room());
        let least = || connections.iter().min_by_key(|connection| connection.active());
        match with_room {
            None if connections.len() >= MAX_CONNECTIONS => least().cloned(),
            with_room => with_room.cloned(),
        }
    }

    /// Whether to open a connection, or what came of it when another request did: those that find none with room wait for one, and do not
    /// open one each.
    pub(crate) async fn turn(&self, backend: usize) -> Turn<'_> {
        let line = &self.lines[backend];
        let known = line.dialling.borrow().clone();
        let Some(dialling) = known else {
            let dialling = Rc::new(Dialling::default());
            line.dialling.replace(Some(dialling.clone()));
            return Turn::Mine(Dial { line, dialling });
        };
        dialling.over.notified().await;
        Turn::Theirs(dialling.outcome.get().unwrap_or(Ok(())))
    }

    /// Takes in a new connection, and has it run.
    pub(crate) fn add(self: &Rc<Self>, backend: usize, connection: &Rc<Connection>, driver: Driver) {
        let mut connections = self.lines[backend].connections.borrow_mut();
        connections.push(connection.clone());
        let (lines, shared) = (Rc::downgrade(self), Rc::downgrade(connection));
        let patience = Patience::new(&self.core.config.timeouts);
        let to = self.core.backends[backend].clone();
        let is_wanted = move || to.state() != BackendState::Down;
        tokio::task::spawn_local(driver.run(shared, patience, is_wanted, move |retired| {
            if let Some(lines) = lines.upgrade() {
                lines.remove(backend, retired);
            }
        }));
    }

    fn remove(&self, backend: usize, retired: &Rc<Connection>) {
        let mut connections = self.lines[backend].connections.borrow_mut();
        connections.retain(|connection| !Rc::ptr_eq(connection, retired));
    }

    /// Lets go of the connections to a backend: they end with the requests that they carry.
    pub(crate) fn clear_backend(&self, backend: usize) {
        self.lines[backend].connections.borrow_mut().clear();
    }

    /// Lets go of all.
    pub(crate) fn clear(&self) {
        for backend in 0..self.lines.len() {
            self.clear_backend(backend);
        }
    }
}
