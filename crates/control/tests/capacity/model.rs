//! A small queue model whose capacity the theory knows: c workers behind an accept queue, Poisson arrivals, and clients
//! that retry a dropped attempt as TCP does.

use headroom_control::capacity::{Busy, Listener, ListenerSample, QueueObservation, Step};
use headroom_units::Seconds;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// SplitMix64 (G. Steele, D. Lea, C. Flood, 2014).
pub struct Random(pub u64);

impl Random {
    pub fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.uniform()).ln()
    }

    pub fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.uniform()).ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

pub struct Model {
    pub workers: usize,
    pub limit: usize,
    /// Mean CPU time of a request, exponential.
    pub cpu_s: f64,
    /// What every request waits for besides.
    pub wait_s: f64,
    /// CPUs, for the utilisation: workers never wait for one another here.
    pub cpus: f64,
    /// It stands still at the end of every so many seconds, for so many.
    pub stalls_s: (f64, f64),
}

/// Eight CPUs with a worker each, 600 requests/s together.
pub const CPU_BOUND: Model = Model {
    workers: 8,
    limit: 128,
    cpu_s: 8.0 / 600.0,
    wait_s: 0.0,
    cpus: 8.0,
    stalls_s: (f64::INFINITY, 0.0),
};

/// Section 7.4: half a second of waiting in each request, and 256 workers at most; half a millisecond of CPU.
pub const IO_BOUND: Model = Model {
    workers: 256,
    limit: 128,
    cpu_s: 0.0005,
    wait_s: 0.5,
    cpus: 1.0,
    stalls_s: (f64::INFINITY, 0.0),
};

/// What can happen, at a time in nanoseconds: first a kind, then a number that it needs.
type Event = Reverse<(u64, u8, u32)>;
const DONE: u8 = 0;
const ATTEMPT: u8 = 1;
const SECOND: u8 = 2;
const LOOK: u8 = 3;
/// How often [`Model::run_looking`] looks at the queue.
pub const LOOK_S: f64 = 0.02;
const FIRST_ATTEMPT: u32 = 0;

fn event(at_s: f64, kind: u8, number: u32) -> Event {
    Reverse(((at_s * 1e9) as u64, kind, number))
}

impl Model {
    /// Runs it under this rate of new requests, never above `most`, and hands over each second's step and utilisation.
    pub fn run(
        &self,
        seconds: u32,
        most: f64,
        seed: u64,
        rate: impl Fn(f64) -> f64,
        each: impl FnMut(u32, &Step, f64),
    ) {
        self.run_looking(seconds, most, seed, rate, each, |_| {});
    }

    /// The same, and hands over what the kernel would show of the listener fifty times a second.
    pub fn run_looking(
        &self,
        seconds: u32,
        most: f64,
        seed: u64,
        rate: impl Fn(f64) -> f64,
        mut each: impl FnMut(u32, &Step, f64),
        mut look: impl FnMut(&QueueObservation),
    ) {
        let mut random = Random(seed);
        let mut events: BinaryHeap<Event> = BinaryHeap::new();
        events.push(event(random.exponential(1.0 / most), ATTEMPT, FIRST_ATTEMPT));
        events.push(event(1.0, SECOND, 1));
        events.push(event(LOOK_S, LOOK, 1));
        let mut queue: VecDeque<()> = VecDeque::new();
        let (mut busy, mut seen, mut cpu_s) = (0, 0usize, 0.0);
        let (mut arrivals, mut accepts, mut drops) = (0.0, 0.0, 0.0);
        let (mut busy_s, mut waited, mut before_s) = (0.0, 0.0, 0.0);
        let mut counted = [0u64; 3];
        while let Some(Reverse((at_ns, kind, number))) = events.pop() {
            let at_s = at_ns as f64 / 1e9;
            if !queue.is_empty() {
                busy_s += at_s - before_s;
            }
            before_s = at_s;
            match kind {
                LOOK => {
                    look(&QueueObservation {
                        length: Seconds::new(LOOK_S),
                        sample: ListenerSample::Listening(Listener {
                            identity: 1,
                            limit: Some(self.limit as u32),
                            length: Some(queue.len() as u32),
                            shortest: Some(queue.len() as u32),
                            lengths_seen: None,
                            arrivals: Some(counted[0]),
                            accepts: Some(counted[1]),
                            drops: Some(counted[2]),
                            unasked: None,
                            answered: Some(counted[1] - busy as u64),
                            connections: None,
                            loops_busy: None,
                        }),
                    });
                    events.push(event(f64::from(number + 1) * LOOK_S, LOOK, number + 1));
                }
                DONE => {
                    let (every_s, for_s) = self.stalls_s;
                    let left_s = every_s - at_s % every_s;
                    if left_s < for_s {
                        // What is left of an exponential time is as long as a whole one.
                        let work_s = random.exponential(self.cpu_s);
                        events.push(event(at_s + left_s + work_s, DONE, 0));
                        continue;
                    }
                    busy -= 1;
                }
                ATTEMPT => {
                    let mut came = true;
                    if number == FIRST_ATTEMPT {
                        // Thinning: a Poisson process of the highest rate, of which the share of now counts.
                        events.push(event(
                            at_s + random.exponential(1.0 / most),
                            ATTEMPT,
                            FIRST_ATTEMPT,
                        ));
                        came = random.uniform() * most < rate(at_s);
                    }
                    if came {
                        arrivals += 1.0;
                        counted[0] += 1;
                        seen += queue.len();
                        if queue.len() < self.limit {
                            queue.push_back(());
                        } else {
                            drops += 1.0;
                            counted[2] += 1;
                            // 1 s, 2 s, 4 s and so on, six times.
                            if number < 6 {
                                events.push(event(at_s + f64::from(1 << number), ATTEMPT, number + 1));
                            }
                        }
                    }
                }
                _ => {
                    let step = Step {
                        length: Seconds::new(1.0),
                        limit: self.limit as f64,
                        queue_mean: (arrivals > 0.0).then(|| seen as f64 / arrivals),
                        arrivals,
                        accepts,
                        drops,
                        unasked: None,
                        busy: Some(Busy {
                            time: Seconds::new(busy_s.min(1.0)),
                            accepts: waited,
                            // Whole spells with their ends are no biased choice (Wald's identity).
                            spells: 0.0,
                        }),
                    };
                    each(number, &step, (cpu_s / self.cpus).min(1.0));
                    (arrivals, accepts, drops, seen, cpu_s) = (0.0, 0.0, 0.0, 0, 0.0);
                    (busy_s, waited) = (0.0, 0.0);
                    if number == seconds {
                        return;
                    }
                    events.push(event(f64::from(number + 1), SECOND, number + 1));
                }
            }
            while busy < self.workers && queue.pop_front().is_some() {
                busy += 1;
                accepts += 1.0;
                counted[1] += 1;
                waited += f64::from(u8::from(kind == DONE));
                let work_s = random.exponential(self.cpu_s);
                cpu_s += work_s;
                events.push(event(at_s + work_s + self.wait_s, DONE, 0));
            }
        }
    }

    /// The throughput of the M/M/c/c+K queue at which 1 % of attempts are dropped: the recursion of the loss formula,
    /// bisected for the arrival rate.
    pub fn true_capacity(&self) -> f64 {
        let service_s = self.cpu_s + self.wait_s;
        let lost = |rate: f64| {
            let load = rate * service_s;
            (1..=self.workers + self.limit).fold(1.0, |lost, n| {
                let each = load / n.min(self.workers) as f64;
                each * lost / (1.0 + each * lost)
            })
        };
        let (mut low, mut high) = (0.0, 4.0 * self.workers as f64 / service_s);
        for _ in 0..100 {
            let middle = (low + high) / 2.0;
            if lost(middle) < 0.01 {
                low = middle
            } else {
                high = middle
            }
        }
        low * 0.99
    }
}
