//! The thread that has the machine: it carries out what is asked, one thing after the other, watches the lease, and
//! reads the counters when somebody's period ends.

use super::audit::Audit;
use super::lease::Lease;
use super::least::Least;
use super::machine::{About, Counters, Machine, PutBack};
use super::mailbox::{Receiver, Sender, mailbox};
use super::observer::{Differences, Standing};
use super::{LeaseLimits, ObserveLimits, QueueLimits};
use crate::restore::Watch;
use headroom_wire::message::{
    Applied, Apply, Description, Holder, LeaseState, MAX_NOTES, MAX_TROUBLES, Ranges, Released, Sample,
};
use headroom_wire::server::Peer;
use headroom_wire::{Refusal, Server, limiter};
use std::collections::VecDeque;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Counters are read at least this often: a RAPL counter may wrap within minutes, and a difference over more than one
/// wrap says nothing.
const MAX_UNREAD: Duration = Duration::from_secs(10);
/// A description's devices and meters are looked up again when they are older.
const DESCRIPTION_AGE: Duration = Duration::from_secs(10);
/// A reading serves whoever is due within this share of their period.
const SHARED_READING: u32 = 4;
/// Troubles that are kept for those whose period has not ended yet; beyond it the oldest go.
const MAX_KEPT_TROUBLES: usize = 64;
/// Putting back is tried again after this time where it failed.
const PUT_BACK_AGAIN: Duration = Duration::from_secs(1);

/// A lease that has run out and is still held after this time is one whose keeper hangs: the guard lifts the limits.
const EXPIRES_WITHIN: Duration = Duration::from_secs(1);

/// Something asked of the machine's thread. The answer goes to whoever still waits for it.
#[derive(Debug)]
pub(super) enum Command {
    Describe {
        answer: oneshot::Sender<Description>,
    },
    Apply {
        apply: Box<Apply>,
        peer: Peer,
        arrived: Instant,
        answer: oneshot::Sender<Result<Applied, Refusal>>,
    },
    Release {
        holder: Holder,
        peer: Peer,
        answer: oneshot::Sender<Result<Released, Refusal>>,
    },
    Observe {
        period: Duration,
        connection: u64,
        answer: oneshot::Sender<Result<Receiver<Sample>, Refusal>>,
    },
    Stop,
}

#[derive(Debug)]
struct Observer {
    connection: u64,
    period: Duration,
    due: Duration,
    differences: Differences,
    /// The number of the first trouble that was not reported to it.
    troubles_from: u64,
    samples: Sender<Sample>,
}

/// Something that went wrong, numbered from 0.
#[derive(Debug, Default)]
struct Troubles {
    next: u64,
    kept: VecDeque<String>,
}

impl Troubles {
    fn add(&mut self, trouble: String) {
        // Some follow from what a peer asks.
        if limiter::admits("this machine", "trouble") {
            tracing::warn!("{trouble}");
        }
        if self.kept.len() >= MAX_KEPT_TROUBLES {
            self.kept.pop_front();
        }
        self.kept.push_back(trouble);
        self.next += 1;
    }

    /// Those from a number on, the newest where there are too many for one sample.
    fn from(&self, number: u64) -> Vec<String> {
        let wanted = usize::try_from(self.next.saturating_sub(number)).unwrap_or(usize::MAX);
        let count = wanted.min(MAX_TROUBLES).min(self.kept.len());
        self.kept.iter().skip(self.kept.len() - count).cloned().collect()
    }
}

pub(super) struct Settings {
    pub(super) version: String,
    pub(super) run: u64,
    /// When the agent's clock began.
    pub(super) started: Instant,
    pub(super) watch: Watch,
    pub(super) lease: LeaseLimits,
    pub(super) observe: ObserveLimits,
    pub(super) queues: QueueLimits,
    /// The control groups whose processor time may be asked for, in words.
    pub(super) cpu_groups: Vec<String>,
    pub(super) least: Least,
    pub(super) audit: Audit,
}

pub(super) struct Keeper {
    machine: Box<dyn Machine>,
    settings: Settings,
    lease: Lease,
    observers: Vec<Observer>,
    troubles: Troubles,
    reading: (Duration, Counters),
    about: (Duration, About),
    /// When what could not be put back is tried again.
    put_back_again: Option<Duration>,
    /// Why the machine refused the setting before: that is said once.
    refused: Option<String>,
}

impl Keeper {
    pub(super) fn new(mut machine: Box<dyn Machine>, settings: Settings) -> Self {
        let counters = machine.read();
        let now = settings.started.elapsed();
        let about = machine.about();
        let mut keeper = Self {
            machine,
            settings,
            lease: Lease::default(),
            observers: Vec::new(),
            troubles: Troubles::default(),
            reading: (now, counters),
            about: (now, about),
            put_back_again: None,
            refused: None,
        };
        for trouble in std::mem::take(&mut keeper.reading.1.troubles) {
            keeper.troubles.add(trouble);
        }
        keeper
    }

    /// Works until it is stopped, or nobody is left who could tell; then puts everything back.
    pub(super) fn run(mut self, commands: &mpsc::Receiver<Command>) -> PutBack {
        let watch = self.settings.watch.clone();
        let mut pulse = watch.pulse("the thread that has the machine");
        let mut beaten_for = None;
        loop {
            self.expire();
            self.sample();
            watch.turn();
            // Limits are in force until the lease ends, and at its end this thread puts everything back.
            let ends = self.lease.ends();
            if beaten_for != Some(ends) {
                beaten_for = Some(ends);
                match ends {
                    Some(ends) => pulse.beat(ends.saturating_sub(self.now()) + EXPIRES_WITHIN),
                    None => pulse.rest(),
                }
            }
            match commands.recv_timeout(self.until_next()) {
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(command) => {
                    // Whatever waited is judged by the clock of now, not of when the wait began.
                    self.expire();
                    if let Command::Apply { apply, .. } = &command {
                        pulse.beat(apply.length + EXPIRES_WITHIN);
                        beaten_for = None;
                    }
                    self.carry_out(command);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        self.machine.put_back()
    }

    fn now(&self) -> Duration {
        self.settings.started.elapsed()
    }

    /// How old the last reading may become.
    fn unread(&self) -> Duration {
        self.machine
            .read_within()
            .map_or(MAX_UNREAD, |within| within.min(MAX_UNREAD))
    }

    fn until_next(&self) -> Duration {
        let now = self.now();
        let due = self.observers.iter().map(|observer| observer.due);
        let first = due
            .chain(self.lease.ends())
            .chain(self.put_back_again)
            .fold(self.reading.0 + self.unread(), Duration::min);
        first.saturating_sub(now)
    }

    fn expire(&mut self) {
        let now = self.now();
        if let Some(holder) = self.lease.expire(now) {
            self.troubles.add(format!(
                "the lease of {:?} ran out: everything is put back to what was found",
                holder.name()
            ));
            let before = self.machine.in_force();
            self.put_back(now);
            self.settings
                .audit
                .ran_out(&holder, before, self.machine.in_force());
        } else if self.put_back_again.is_some_and(|again| now >= again) {
            self.put_back(now);
        }
    }

    /// Puts everything back, and says what could not be; that is tried again later, unless somebody takes the node first.
    fn put_back(&mut self, now: Duration) -> PutBack {
        let done = self.machine.put_back();
        for failure in &done.failed {
            self.troubles.add(failure.clone());
        }
        self.put_back_again = (!done.failed.is_empty()).then_some(now + PUT_BACK_AGAIN);
        done
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Describe { answer } => {
                let description = self.describe();
                let _ = answer.send(description);
            }
            Command::Apply {
                apply,
                peer,
                arrived,
                answer,
            } => {
                let before = (self.machine.in_force(), self.lease.state(self.now()).is_some());
                let outcome = self.apply((*apply).clone(), &peer, arrived);
                let after = self.machine.in_force();
                self.settings
                    .audit
                    .applied(&peer, &apply, before, after, &outcome);
                let _ = answer.send(outcome);
            }
            Command::Release { holder, peer, answer } => {
                let before = self.machine.in_force();
                let outcome = self.release(&holder, &peer);
                let after = self.machine.in_force();
                self.settings
                    .audit
                    .released(&peer, &holder, before, after, &outcome);
                let _ = answer.send(outcome);
            }
            Command::Observe {
                period,
                connection,
                answer,
            } => {
                let outcome = self.observe(period, connection);
                let _ = answer.send(outcome);
            }
            // The loop ends before it comes here.
            Command::Stop => {}
        }
    }

    fn describe(&mut self) -> Description {
        let now = self.now();
        // What could not be found out is looked for again: it may have been gone for a moment only.
        let unknown = self.about.1.envelope.is_none();
        if unknown || now.saturating_sub(self.about.0) > DESCRIPTION_AGE {
            self.about = (now, self.machine.about());
        }
        let about = self.about.1.clone();
        Description {
            agent_version: self.settings.version.clone(),
            agent_run: self.settings.run,
            node: about.node,
            service: about.service,
            ranges: self.ranges(),
            devices: about.devices,
            meters: about.meters,
            envelope: about.envelope,
            lease_ms: self.settings.lease.range(),
            observe_period_ms: self.settings.observe.range(),
            queue_period_ms: Some(self.settings.queues.range()),
            cpu_groups: Some(self.settings.cpu_groups.clone()),
            source: about.source,
            in_force: self.machine.in_force(),
            lease: self.lease.state(now),
            oncall: about.oncall,
        }
    }

    /// What may be asked for: what the machine can, from the least that the configuration sets.
    fn ranges(&mut self) -> Ranges {
        self.settings.least.bound(self.machine.ranges())
    }

    fn apply(&mut self, apply: Apply, peer: &Peer, arrived: Instant) -> Result<Applied, Refusal> {
        let now = self.now();
        // This thread may have been stopped: whoever asked has given up, and what they asked is not what they would ask now.
        if arrived.elapsed() > apply.length {
            return Err(Refusal::MachineRefused {
                why: format!(
                    "the request waited {:.1} s, longer than its lease: ask again",
                    arrived.elapsed().as_secs_f64()
                ),
                in_force: Box::new(self.machine.in_force()),
            });
        }
        let claim = self.lease.claim(now, &peer.key(), &apply)?;
        let length_ms = apply.length.as_secs_f64() * 1e3;
        Refusal::check_range("lease_ms", length_ms, self.settings.lease.range(), "ms")?;
        let ranges = self.ranges();
        self.settings.least.check(&apply.setting, &ranges)?;
        ranges.check(&apply.setting)?;
        match self.machine.apply(apply.setting) {
            Ok(mut notes) => {
                let took = arrived.elapsed();
                if claim.fresh && limiter::admits(&peer.key(), "lease taken") {
                    tracing::info!(%peer, holder = apply.holder.name(), lease = ?apply.length, "lease taken");
                }
                self.lease.grant(now, claim);
                self.put_back_again = None;
                self.refused = None;
                notes.truncate(MAX_NOTES);
                // The machine may have been slower than the lease is long: the caller is told that nothing is left.
                let lease = self.lease.state(self.now()).unwrap_or_else(|| LeaseState {
                    holder: apply.holder.name().into(),
                    remaining: Duration::ZERO,
                    length: apply.length,
                    sequence: apply.sequence,
                });
                Ok(Applied {
                    in_force: self.machine.in_force(),
                    lease,
                    took,
                    notes,
                })
            }
            Err(error) => {
                if claim.fresh {
                    // Nobody holds the node, so nothing of this attempt may stay.
                    self.put_back(now);
                }
                // A paused node refuses every renewal.
                if self.refused.as_ref() != Some(&error.why) {
                    self.troubles.add(error.why.clone());
                    self.refused = Some(error.why.clone());
                }
                Err(Refusal::MachineRefused {
                    why: error.why,
                    in_force: Box::new(self.machine.in_force()),
                })
            }
        }
    }

    fn release(&mut self, holder: &Holder, peer: &Peer) -> Result<Released, Refusal> {
        let now = self.now();
        let was_held = self.lease.release(now, &peer.key(), holder)?;
        let mut notes = Vec::new();
        if was_held {
            if limiter::admits(&peer.key(), "lease released") {
                tracing::info!(%peer, holder = holder.name(), "lease released");
            }
            let done = self.put_back(now);
            if !done.failed.is_empty() {
                let why = done.failed.join("; ");
                return Err(Refusal::MachineRefused {
                    why,
                    in_force: Box::new(self.machine.in_force()),
                });
            }
            notes = done.notes;
            notes.truncate(MAX_NOTES);
        }
        Ok(Released {
            was_held,
            in_force: self.machine.in_force(),
            notes,
        })
    }

    fn observe(&mut self, period: Duration, connection: u64) -> Result<Receiver<Sample>, Refusal> {
        self.observers.retain(|observer| !observer.samples.is_abandoned());
        let limits = &self.settings.observe;
        let of_this = self
            .observers
            .iter()
            .filter(|observer| observer.connection == connection)
            .count();
        let busy = |what: &str, limit: usize| Refusal::Busy {
            server: Server::Agent,
            what: what.into(),
            limit: limit as u64,
        };
        if of_this >= limits.streams_per_connection {
            return Err(busy(
                "streams of samples over one connection",
                limits.streams_per_connection,
            ));
        }
        if self.observers.len() >= limits.streams {
            return Err(busy("streams of samples", limits.streams));
        }
        self.read();
        let (at, counters) = self.reading.clone();
        let (samples, receiver) = mailbox();
        self.observers.push(Observer {
            connection,
            period,
            due: at + period,
            differences: Differences::new(at, counters),
            troubles_from: self.troubles.next,
            samples,
        });
        Ok(receiver)
    }

    fn read(&mut self) {
        let at = self.now();
        let mut counters = self.machine.read();
        for trouble in std::mem::take(&mut counters.troubles) {
            self.troubles.add(trouble);
        }
        for observer in &mut self.observers {
            observer.differences.see(&counters);
        }
        self.reading = (at, counters);
    }

    /// Reads where that is due, and sends a sample to each whose period has ended.
    fn sample(&mut self) {
        let now = self.now();
        self.observers.retain(|observer| !observer.samples.is_abandoned());
        let age = now.saturating_sub(self.reading.0);
        let due = |observer: &&mut Observer| observer.due <= now;
        let oldest_welcome = self
            .observers
            .iter()
            .filter(|observer| observer.due <= now)
            .map(|one| one.period / SHARED_READING)
            .min();
        if oldest_welcome.is_some_and(|welcome| age > welcome) || age >= self.unread() {
            self.read();
        }
        let (at, counters) = &self.reading;
        let lease = self.lease.state(now);
        let in_force = self.machine.in_force();
        for observer in self.observers.iter_mut().filter(due) {
            let troubles = self.troubles.from(observer.troubles_from);
            observer.troubles_from = self.troubles.next;
            let standing = Standing {
                agent_run: self.settings.run,
                in_force,
                lease: lease.clone(),
                troubles,
            };
            observer
                .samples
                .put(observer.differences.advance(*at, counters, standing));
            // A thread that was held up owes no more than one sample; the periods that were missed are in it.
            observer.due += observer.period;
            if observer.due <= now {
                observer.due = now + observer.period;
            }
        }
    }
}
