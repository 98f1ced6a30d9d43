//! One request and its answer: over which socket, and what came of it.

use super::Engine;
use crate::clock::Moment;
use crate::memcached::connection::{Broken, Doing};
use crate::memcached::protocol::{Answer, Kind};
use crate::share::WARM_UP_S;
use crate::tally::Failures;
use rustix::event::epoll::EventFlags;
use std::cmp::Reverse;
use std::io;
use std::net::SocketAddr;

/// How long a connection of a closed loop waits after it was refused or closed, seconds.
const REFUSED_PAUSE_S: f64 = 0.01;

/// The most characters of a server's words that are kept.
const MAX_WORDS: usize = 200;

impl Engine<'_> {
    /// Sends a request, over a new socket if there is none.
    pub(super) fn ask(&mut self, index: usize, intended: Moment) {
        let now = Moment::now();
        let connection = &mut self.connections[index];
        if connection.stream.is_none() {
            return self.connect(index, Some(intended), now);
        }
        let kind = self.requests.draw(&mut connection.head);
        connection.written = 0;
        connection.deadline = intended.after(self.plan.contents.timeout);
        connection.doing = Doing::Asking {
            kind,
            intended,
            sent: now,
        };
        self.period.sent(intended, now);
        self.send(index);
    }

    fn send(&mut self, index: usize) {
        match self.connections[index].send(self.requests.value()) {
            Ok(bytes) => self.period.counts.sent_bytes += bytes,
            Err(_) => self.broken(index, &Broken::Closed),
        }
    }

    /// Begins to open a connection's socket, for a request or before there is one.
    pub(super) fn connect(&mut self, index: usize, intended: Option<Moment>, now: Moment) {
        let connection = &mut self.connections[index];
        connection.tried = 0;
        connection.doing = Doing::Connecting { since: now, intended };
        let timeout = self.plan.contents.timeout;
        connection.deadline = match intended {
            Some(intended) => intended.after(timeout),
            None => now.after(timeout.min(WARM_UP_S)),
        };
        self.try_address(index);
    }

    fn try_address(&mut self, index: usize) {
        let addresses: &[SocketAddr] = &self.plan.contents.addresses;
        let connection = &mut self.connections[index];
        let address = addresses[(self.address + connection.tried) % addresses.len()];
        if let Err(error) = connection.connect(&self.epoll, index, address) {
            self.refused(index, &error);
        }
    }

    /// An address could not be connected to.
    fn refused(&mut self, index: usize, error: &io::Error) {
        let connection = &mut self.connections[index];
        connection.close();
        connection.tried += 1;
        if connection.tried < self.plan.contents.addresses.len() {
            return self.try_address(index);
        }
        let Doing::Connecting { intended, .. } = connection.doing else {
            return;
        };
        connection.doing = Doing::Idle;
        if intended.is_some() {
            self.period.connect_failed(error);
            self.pause(index);
        }
    }

    /// After a failure that may come without any waiting: a closed loop, which would only ask again, pauses.
    fn pause(&mut self, index: usize) {
        let now = Moment::now();
        if self.windows.is_some() {
            self.asleep.push(Reverse((now.after(REFUSED_PAUSE_S), index)));
        } else {
            // Not given a waiting request here: where every one is refused at once, each would be inside the last.
            self.idle.push_back(index);
        }
    }

    /// Treats an event of a connection's socket.
    pub(super) fn attend(&mut self, index: usize, flags: EventFlags) {
        let ended = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        self.connections[index].ended |= ended;
        match self.connections[index].doing {
            Doing::Connecting { since, intended } => {
                if let Err(error) = self.connections[index].connected() {
                    return self.refused(index, &error);
                }
                if !flags.intersects(EventFlags::OUT) {
                    return;
                }
                self.period.connected(since, Moment::now());
                let tried = self.connections[index].tried;
                self.address = (self.address + tried) % self.plan.contents.addresses.len();
                self.connections[index].doing = Doing::Idle;
                if let Some(intended) = intended {
                    self.ask(index, intended);
                }
            }
            Doing::Asking { kind, intended, sent } => {
                if flags.intersects(EventFlags::IN) || ended {
                    let received = &mut self.period.counts.received_bytes;
                    match self.connections[index].receive(&mut self.buffer, received) {
                        Ok(Some(answer)) => return self.answered(index, answer, kind, intended, sent),
                        Ok(None) => {}
                        Err(broken) => return self.broken(index, &broken),
                    }
                }
                if flags.intersects(EventFlags::OUT) {
                    self.send(index);
                }
            }
            Doing::Idle => {
                // Nothing was asked, so only an end can come; it is noticed here or when the next request is sent.
                if flags.intersects(EventFlags::IN) || ended {
                    self.connections[index].close();
                }
            }
        }
    }

    fn answered(&mut self, index: usize, answer: Answer, kind: Kind, intended: Moment, sent: Moment) {
        let now = Moment::now();
        let size = self.plan.contents.value_bytes as u64;
        let connection = &mut self.connections[index];
        let unsent = connection.written < connection.head.len()
            || kind == Kind::Set && connection.written < connection.head.len() + self.requests.value().len();
        match (kind, answer) {
            (Kind::Get, Answer::Value(bytes)) if bytes == size => {
                self.period.counts.body_bytes += bytes;
                self.period.completed(intended, sent, now);
            }
            (Kind::Get, Answer::Value(_)) => self.period.failed(|failed| &mut failed.wrong_size),
            (Kind::Get, Answer::Missed) => self.period.failed(|failed| &mut failed.missed),
            (Kind::Set, Answer::Stored) if !unsent => {
                self.period.counts.sets += 1;
                self.period.counts.stored_bytes += size;
                self.period.completed(intended, sent, now);
            }
            (_, Answer::Refused) => {
                self.note(index);
                self.period.failed(|failed| &mut failed.status);
            }
            (Kind::Get, Answer::Stored) | (Kind::Set, _) => return self.broken(index, &Broken::Garbage),
        }
        let connection = &mut self.connections[index];
        connection.deadline = Moment::NEVER;
        connection.doing = Doing::Idle;
        if unsent {
            // It answered before it had the whole request, whose rest it may take for another.
            connection.close();
            return self.pause(index);
        }
        if connection.ended {
            connection.close();
        }
        self.go_on(index, now);
    }

    /// The exchange of a connection that asks has broken.
    fn broken(&mut self, index: usize, broken: &Broken) {
        let kind: fn(&mut Failures) -> &mut u64 = match broken {
            Broken::Closed => |failed| &mut failed.closed,
            Broken::Garbage => |failed| &mut failed.protocol,
        };
        if *broken == Broken::Garbage {
            self.note(index);
        }
        self.period.failed(kind);
        let connection = &mut self.connections[index];
        connection.close();
        connection.deadline = Moment::NEVER;
        connection.doing = Doing::Idle;
        self.pause(index);
    }

    /// Keeps what the server said, if it is the first that went wrong.
    fn note(&mut self, index: usize) {
        let parser = &self.connections[index].parser;
        self.period
            .answer_error
            .get_or_insert_with(|| parser.line().chars().take(MAX_WORDS).collect());
    }

    /// Gives up, every so often, the requests whose deadline has passed. One look at all connections costs less than a timer
    /// for every request.
    pub(super) fn sweep(&mut self, now: Moment) {
        let is_over = self.give_up_at <= now;
        if now < self.next_sweep && !is_over {
            return;
        }
        let timeout = self.plan.contents.timeout;
        self.next_sweep = now.after((timeout / 20.0).clamp(0.001, 0.1));
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            if connection.deadline > now && !(is_over && connection.deadline < Moment::NEVER) {
                continue;
            }
            connection.deadline = Moment::NEVER;
            // The answer may still come; on this connection nothing else can be asked.
            connection.close();
            let doing = std::mem::replace(&mut connection.doing, Doing::Idle);
            let intended = match doing {
                Doing::Connecting { since, intended } => {
                    self.period.connect_given_up(since, now);
                    intended
                }
                Doing::Asking { intended, .. } => Some(intended),
                Doing::Idle => None,
            };
            if let Some(intended) = intended {
                self.period.given_up(intended, timeout, now);
                if !is_over {
                    self.go_on(index, now);
                }
            }
        }
        // The timeout is the same for all, so the first in the queue is the first to expire.
        while let Some(&intended) = self.waiting.front()
            && (is_over || intended.after(timeout) <= now)
        {
            self.waiting.pop_front();
            self.period.given_up(intended, timeout, now);
        }
    }
}
