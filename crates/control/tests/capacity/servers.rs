//! Servers of many kinds, each with a truth that is known because it is how they are made: workers that come and go, times
//! of service of any distribution, cores that are shared, pauses, a queue of any length, and clients that retry as TCP does.

use super::model::Random;
use headroom_control::capacity::{Busy, Connections, Listener, ListenerSample, QueueObservation, Step};
use headroom_units::Seconds;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What a request takes of a server: seconds of one core, shared with the others, then seconds without one.
pub type Takes = fn(&mut Random, Taken) -> (f64, f64);

/// When a request is taken, and the how many of all it is.
#[derive(Clone, Copy)]
pub struct Taken {
    pub at_s: f64,
    pub number: u64,
}

/// Clients that take workers and are not answered.
#[derive(Clone, Copy)]
pub struct Holding {
    /// Those that have sent nothing, and half a request: each holds a worker all the time, and another comes after so many seconds.
    pub silent: usize,
    pub half: usize,
    pub stay_s: f64,
    /// Whole requests a second that are reset before they are answered: a worker works on each for as long as on any.
    pub resets: f64,
}

impl Holding {
    pub const NONE: Self = Self {
        silent: 0,
        half: 0,
        stay_s: 1.0,
        resets: 0.0,
    };

    const fn workers(self) -> usize {
        self.silent + self.half
    }

    /// What the meter tells of these, and of so many that are worked on and take less time.
    fn told(self, at_s: f64, working: usize) -> Connections {
        let on_hand = working + self.workers();
        let is_tenth = self.workers() >= on_hand.div_ceil(10);
        Connections {
            open: on_hand as u64,
            silent: self.silent as u64,
            working: (working + self.half) as u64,
            longest_ms: if is_tenth {
                (at_s % self.stay_s * 1e3) as u64
            } else {
                0
            },
            ..Connections::default()
        }
    }
}

/// What a connection in the queue has sent.
#[derive(Clone, Copy, PartialEq)]
enum Sent {
    Request,
    /// Its client leaves before it is answered.
    Left,
    Part,
}

/// A server and what comes to it.
pub struct Kind {
    pub name: &'static str,
    /// As given to `listen`: the kernel has room for one more.
    pub backlog: usize,
    pub workers: fn(f64) -> usize,
    pub cores: f64,
    pub takes: Takes,
    /// It stands still at the end of every so many seconds, for so many.
    pub pauses_s: (f64, f64),
    /// New requests a second, at most `most`.
    pub load: fn(f64) -> f64,
    pub most: f64,
    /// What it serves a second as long as somebody waits.
    pub truth: fn(f64) -> f64,
    pub seconds: u32,
    /// When the truth changed.
    pub changed_s: &'static [f64],
    /// Whether its accept queue, or its loops, show an overload at all.
    pub shows: bool,
    /// Whether it accepts all who wait when it has served those that it had, and is done with all of these at once.
    pub in_bunches: bool,
    /// Clients a second that send a part of a request and reset, from a time on.
    pub parts: (f64, f64),
    /// Clients that hold its workers; `None` where the meter tells of no connections.
    pub holding: Option<Holding>,
    /// Whether it is event loops, one for each core: what they have accepted waits inside, in order.
    pub is_loops: bool,
}

/// An event, at a time in nanoseconds: a kind, then a number that it needs.
type Event = Reverse<(u64, u8, u32)>;
const WAITED: u8 = 0;
const ATTEMPT: u8 = 1;
const SECOND: u8 = 2;
const LOOK: u8 = 3;
const WORKERS: u8 = 4;
const PART: u8 = 5;
const RESET: u8 = 6;

fn event(at_s: f64, kind: u8, number: u32) -> Event {
    Reverse(((at_s * 1e9) as u64, kind, number))
}

impl Kind {
    /// Whether it stands still.
    fn pauses(&self, at_s: f64) -> Option<f64> {
        let (every_s, for_s) = self.pauses_s;
        let left_s = every_s - at_s % every_s;
        (left_s < for_s).then_some(left_s)
    }

    /// Runs it, and hands over what the kernel would show once in `look_s` and the step of each second.
    pub fn run(
        &self,
        seed: u64,
        look_s: f64,
        mut look: impl FnMut(f64, &QueueObservation),
        mut step: impl FnMut(f64, &Step),
    ) {
        let mut random = Random(seed);
        let mut events: BinaryHeap<Event> = BinaryHeap::new();
        events.push(event(random.exponential(1.0 / self.most), ATTEMPT, 0));
        events.push(event(1.0, SECOND, 1));
        events.push(event(look_s, LOOK, 1));
        for change in self.changed_s {
            events.push(event(*change, WORKERS, 0));
        }
        if self.parts.0 > 0.0 {
            events.push(event(self.parts.1, PART, 0));
        }
        let holding = self.holding.unwrap_or(Holding::NONE);
        if holding.resets > 0.0 {
            events.push(event(1.0 / holding.resets, RESET, 0));
        }
        let mut queue: VecDeque<Sent> = VecDeque::new();
        // Accepted together and not begun, and those that the server was done with.
        let (mut bunch, mut answered, mut unasked, mut parts) = (0usize, 0u64, 0u64, 0u64);
        // Work left of those that have or share a core, and the time it was counted at.
        let (mut working, mut counted_s): (Vec<(f64, f64)>, f64) = (Vec::new(), 0.0);
        let mut waiting = 0usize;
        let (mut arrivals, mut accepts, mut drops) = (0u64, 0u64, 0u64);
        let mut before = (0u64, 0u64, 0u64, 0u64);
        let mut lengths_seen = 0u64;
        let mut inside: VecDeque<(f64, f64)> = VecDeque::new();
        let mut ran_s = 0.0;
        let mut read: VecDeque<(f64, f64)> = VecDeque::from([(0.0, 0.0)]);
        loop {
            // The next end of work on a core.
            let speed = match working.len() {
                0 => 1.0,
                n => (self.cores / n as f64).min(1.0),
            };
            let first = working.iter().map(|one| one.0).fold(f64::INFINITY, f64::min);
            let mut done_s = counted_s + first / speed;
            if let Some(left_s) = self.pauses(counted_s) {
                done_s += left_s;
            }
            let next_s = events
                .peek()
                .map_or(f64::INFINITY, |Reverse((at, ..))| *at as f64 / 1e9);
            let at_s = done_s.min(next_s);
            // What was worked meanwhile.
            let stood_s = self
                .pauses(counted_s)
                .map_or(0.0, |left_s| left_s.min(at_s - counted_s));
            let worked = (at_s - counted_s - stood_s).max(0.0) * speed;
            for one in &mut working {
                one.0 -= worked;
                ran_s += worked;
            }
            counted_s = at_s;
            if done_s <= next_s {
                let mut at = 0;
                while at < working.len() {
                    if working[at].0 <= 1e-12 {
                        let (_, wait_s) = working.swap_remove(at);
                        waiting += 1;
                        events.push(event(at_s + wait_s, WAITED, 0));
                    } else {
                        at += 1;
                    }
                }
            } else {
                let Some(Reverse((_, kind, number))) = events.pop() else {
                    return;
                };
                match kind {
                    WAITED => match self.pauses(at_s) {
                        Some(left_s) => events.push(event(at_s + left_s + 1e-6, WAITED, number)),
                        None => {
                            waiting -= 1;
                            parts += u64::from(number);
                        }
                    },
                    ATTEMPT => {
                        let mut came = true;
                        if number == 0 {
                            events.push(event(at_s + random.exponential(1.0 / self.most), ATTEMPT, 0));
                            came = random.uniform() * self.most < (self.load)(at_s);
                        }
                        if came {
                            arrivals += 1;
                            lengths_seen += queue.len() as u64;
                            if queue.len() <= self.backlog {
                                queue.push_back(Sent::Request);
                            } else {
                                drops += 1;
                                if number < 6 {
                                    events.push(event(at_s + f64::from(1 << number), ATTEMPT, number + 1));
                                }
                            }
                        }
                    }
                    LOOK => {
                        if read.back().is_none_or(|(last_s, _)| at_s - last_s >= 0.5 - 1e-9) {
                            read.push_back((at_s, ran_s));
                            while read
                                .get(1)
                                .is_some_and(|(second_s, _)| at_s - second_s >= 1.0 - 1e-9)
                            {
                                read.pop_front();
                            }
                        }
                        let share = |(first, last): (&(f64, f64), &(f64, f64))| {
                            (last.1 - first.1) / (last.0 - first.0) / self.cores
                        };
                        let busy = read
                            .front()
                            .zip(read.back())
                            .filter(|(first, last)| last.0 - first.0 > 0.9)
                            .map(share);
                        let sample = ListenerSample::Listening(Listener {
                            identity: 1,
                            limit: Some(self.backlog as u32 + 1),
                            length: Some(queue.len() as u32),
                            shortest: Some(queue.len() as u32),
                            lengths_seen: Some(lengths_seen),
                            arrivals: Some(arrivals),
                            accepts: Some(accepts),
                            drops: Some(drops),
                            unasked: Some(unasked),
                            answered: Some(answered),
                            connections: match self.holding {
                                Some(holding) => Some(holding.told(at_s, working.len() + waiting)),
                                None => self.is_loops.then(|| {
                                    let on_hand = (working.len() + waiting + inside.len()) as u64;
                                    Connections {
                                        open: on_hand,
                                        working: on_hand,
                                        ..Connections::default()
                                    }
                                }),
                            },
                            loops_busy: busy
                                .filter(|_| self.is_loops)
                                .map(|busy| (busy * 1_000.0).round() as u32),
                        });
                        let length = Seconds::new(look_s);
                        look(at_s, &QueueObservation { length, sample });
                        events.push(event(f64::from(number + 1) * look_s, LOOK, number + 1));
                    }
                    SECOND => {
                        let came = arrivals - before.0;
                        step(
                            at_s,
                            &Step {
                                length: Seconds::new(1.0),
                                limit: self.backlog as f64 + 1.0,
                                queue_mean: (came > 0)
                                    .then(|| (lengths_seen - before.3) as f64 / came as f64),
                                arrivals: came as f64,
                                accepts: (accepts - before.1) as f64,
                                drops: (drops - before.2) as f64,
                                unasked: None,
                                busy: Some(Busy::default()),
                            },
                        );
                        before = (arrivals, accepts, drops, lengths_seen);
                        if number == self.seconds {
                            return;
                        }
                        events.push(event(f64::from(number + 1), SECOND, number + 1));
                    }
                    PART => {
                        if queue.len() <= self.backlog {
                            arrivals += 1;
                            unasked += 1;
                            lengths_seen += queue.len() as u64;
                            queue.push_back(Sent::Part);
                        }
                        events.push(event(at_s + random.exponential(1.0 / self.parts.0), PART, 0));
                    }
                    RESET => {
                        if queue.len() <= self.backlog {
                            arrivals += 1;
                            unasked += 1;
                            lengths_seen += queue.len() as u64;
                            queue.push_back(Sent::Left);
                        }
                        events.push(event(at_s + 1.0 / holding.resets, RESET, 0));
                    }
                    _ => {}
                }
            }
            let workers = (self.workers)(at_s);
            let is_idle = working.len() + waiting + bunch == 0;
            if self.in_bunches && is_idle {
                bunch = queue.len();
                accepts += bunch as u64;
                queue.clear();
            }
            while self.pauses(at_s).is_none() && working.len() + waiting + holding.workers() < workers {
                let mut left = 0;
                if self.in_bunches && bunch > 0 {
                    bunch -= 1;
                } else if !self.in_bunches
                    && let Some(sent) = queue.pop_front()
                {
                    accepts += 1;
                    if sent == Sent::Part {
                        parts += 1;
                        continue;
                    }
                    left = u32::from(sent == Sent::Left);
                } else {
                    break;
                }
                let taken = Taken {
                    at_s,
                    number: accepts - 1,
                };
                let (cpu_s, wait_s) = (self.takes)(&mut random, taken);
                if self.is_loops {
                    inside.push_back((cpu_s, wait_s));
                } else if cpu_s > 0.0 {
                    working.push((cpu_s, wait_s));
                } else {
                    waiting += 1;
                    events.push(event(at_s + wait_s, WAITED, left));
                }
            }
            while (working.len() as f64) < self.cores
                && self.is_loops
                && let Some(next) = inside.pop_front()
            {
                working.push(next);
            }
            let on_hand = (working.len() + waiting + bunch + inside.len()) as u64;
            if !self.in_bunches || on_hand == 0 || is_idle {
                answered = accepts - on_hand - parts;
            }
        }
    }
}
