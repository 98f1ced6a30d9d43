//! The machine that is emulated: cores, then a link, each shared by all requests there. It reads no clock.

use headroom_physics::{RequestCost, ServingLoad, ServingMachine};
use headroom_units::{Joules, Ratio, Seconds};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A request at a station: done when the station's virtual time is at its key.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Entry {
    key: f64,
    request: u64,
}

impl Eq for Entry {}

impl Ord for Entry {
    /// The smallest key is the greatest entry, for a heap gives the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        let keys = other.key.total_cmp(&self.key);
        keys.then(other.request.cmp(&self.request))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Processor sharing: n requests on k servers, each at min(1, k/n) of a server's speed.
#[derive(Clone, Debug)]
struct Station {
    servers: f64,
    speed: f64,
    /// What one request would have been given since nobody was there last.
    given_s: f64,
    requests: BinaryHeap<Entry>,
    /// Real time for which it was wholly busy, in part as parts.
    busy_s: f64,
}

impl Station {
    fn new(servers: f64, speed: f64) -> Self {
        Self {
            servers,
            speed,
            given_s: 0.0,
            requests: BinaryHeap::new(),
            busy_s: 0.0,
        }
    }

    /// What each request is given in a second.
    fn rate(&self) -> f64 {
        let requests = self.requests.len() as f64;
        self.speed * (self.servers / requests).min(1.0)
    }

    /// How long until the next is done; infinite of none.
    fn due_in_s(&self) -> f64 {
        self.requests.peek().map_or(f64::INFINITY, |first| {
            (first.key - self.given_s).max(0.0) / self.rate()
        })
    }

    fn pass(&mut self, length_s: f64) {
        let requests = self.requests.len() as f64;
        if requests > 0.0 {
            self.given_s += self.rate() * length_s;
            self.busy_s += length_s * (requests / self.servers).min(1.0);
        }
    }

    fn arrive(&mut self, work_s: f64, request: u64) {
        if self.requests.is_empty() {
            self.given_s = 0.0;
        }
        let key = self.given_s + work_s;
        self.requests.push(Entry { key, request });
    }

    fn complete(&mut self) -> Option<u64> {
        let done = self.requests.pop()?;
        self.given_s = done.key;
        Some(done.request)
    }
}

/// What it did since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Done {
    /// Real time.
    pub(super) at_s: f64,
    /// How long its cores were all busy, in part as parts.
    pub(super) cpu_s: f64,
    /// The same of its link.
    pub(super) link_s: f64,
    /// What it would have drawn.
    pub(super) energy: Joules,
    /// Requests.
    pub(super) completed: u64,
}

/// A machine at a share of its speed.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    figures: ServingMachine,
    at_s: f64,
    cpu: Station,
    link: Station,
    /// Of requests at the cores, how long the link alone takes for them.
    transfers_s: std::collections::HashMap<u64, f64>,
    next: u64,
    completed: u64,
}

impl Machine {
    pub(super) fn new(figures: ServingMachine, speed: f64) -> Self {
        Self {
            at_s: 0.0,
            cpu: Station::new(figures.cores as f64, speed),
            link: Station::new(1.0, speed),
            transfers_s: std::collections::HashMap::new(),
            next: 0,
            completed: 0,
            figures,
        }
    }

    /// A request comes, at the time up to which it has passed; its number.
    pub(super) fn arrive(&mut self, cost: RequestCost) -> u64 {
        let request = self.next;
        self.next += 1;
        self.transfers_s
            .insert(request, cost.bytes / self.figures.link_bytes_per_s);
        self.cpu.arrive(cost.cpu.get(), request);
        request
    }

    /// Lets time pass; the requests that are done by then, in their order.
    pub(super) fn pass_until(&mut self, now_s: f64) -> Vec<u64> {
        let mut done = Vec::new();
        loop {
            let (cpu_s, link_s) = (self.cpu.due_in_s(), self.link.due_in_s());
            let next_s = cpu_s.min(link_s);
            let left_s = (now_s - self.at_s).max(0.0);
            if next_s > left_s {
                self.pass(left_s);
                return done;
            }
            self.pass(next_s);
            if link_s <= cpu_s {
                done.extend(self.link.complete());
                self.completed += 1;
            } else if let Some(request) = self.cpu.complete() {
                let transfer_s = self.transfers_s.remove(&request).unwrap_or(0.0);
                self.link.arrive(transfer_s, request);
            }
        }
    }

    fn pass(&mut self, length_s: f64) {
        self.at_s += length_s;
        self.cpu.pass(length_s);
        self.link.pass(length_s);
    }

    /// How long until something happens; infinite where nobody is there.
    pub(super) fn due_in_s(&self) -> f64 {
        self.cpu.due_in_s().min(self.link.due_in_s())
    }

    pub(super) fn done(&self) -> Done {
        let load = ServingLoad {
            cpu: Ratio::new(self.cpu.busy_s),
            link: Ratio::new(self.link.busy_s),
        };
        let figures = &self.figures;
        let joules = figures.idle * Seconds::new(self.at_s)
            + figures.busy * Seconds::new(load.cpu.get())
            + figures.link * Seconds::new(load.link.get());
        Done {
            at_s: self.at_s,
            cpu_s: self.cpu.busy_s,
            link_s: self.link.busy_s,
            energy: joules,
            completed: self.completed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_physics::{ServerFigures, ServingKind, StudiedService};
    use headroom_units::Watts;
    use headroom_workload::random::{Draw, Purpose, Rng};
    use proptest::prelude::*;

    fn figures(cores: usize) -> ServingMachine {
        ServingMachine {
            name: "test".to_owned(),
            cores,
            link_bytes_per_s: 1e6,
            idle: Watts::new(10.0),
            busy: Watts::new(5.0),
            link: Watts::new(1.0),
            server: ServerFigures::default(),
        }
    }

    fn cost(cpu_s: f64, bytes: f64) -> RequestCost {
        RequestCost {
            cpu: Seconds::new(cpu_s),
            bytes,
        }
    }

    #[test]
    fn a_request_alone_takes_its_cores_and_its_transfer_over_the_speed() {
        let mut machine = Machine::new(figures(2), 0.1);
        let request = machine.arrive(cost(0.01, 20_000.0));
        assert!(machine.pass_until(0.299).is_empty());
        assert_eq!(machine.pass_until(0.301), [request]);
        let done = machine.done();
        // A tenth of a second on one of two cores, two on the link.
        assert!((done.cpu_s - 0.05).abs() < 1e-9 && (done.link_s - 0.2).abs() < 1e-9);
        let joules = 10.0 * 0.301 + 5.0 * 0.05 + 0.2;
        assert!((done.energy.get() - joules).abs() < 1e-9);
        assert_eq!(machine.due_in_s(), f64::INFINITY);
    }

    #[test]
    fn a_closed_loop_of_a_hundred_serves_the_share_of_the_machine_s_capacity() {
        let (kind, service, speed) = (ServingKind::Atom, StudiedService::Memcached, 0.02);
        let cost = kind.cost(service).of(10_240.0);
        let mut spread = Rng::new(1, Purpose::Sizes);
        let mut next = || RequestCost {
            cpu: cost.cpu * spread.exponential(),
            ..cost
        };
        let mut machine = Machine::new(kind.machine(), speed);
        (0..100).for_each(|_| {
            machine.arrive(next());
        });
        let mut now_s = 0.0;
        while now_s < 20.0 {
            // As seldom as a coarse timer wakes somebody.
            now_s += 0.002;
            for _ in machine.pass_until(now_s) {
                machine.arrive(next());
            }
        }
        let expected = kind.machine().capacity(cost).get() * speed;
        let got = machine.done().completed as f64 / now_s;
        assert!((got / expected - 1.0).abs() < 0.05, "{got} {expected}");
    }

    proptest! {
        /// Whatever comes when, and however often it is looked at: all are served, nothing is served faster than it can be, and work is
        /// neither lost nor made.
        #[test]
        fn work_is_kept(requests in proptest::collection::vec((0.0..1.0f64, 1e-4..0.2f64, 1.0..200_000.0f64), 1..40), cores in 1usize..5) {
            let mut machine = Machine::new(figures(cores), 0.5);
            let (mut now_s, mut done, mut cpu_s, mut link_s) = (0.0, 0, 0.0, 0.0);
            for (gap_s, work_s, bytes) in &requests {
                now_s += gap_s;
                done += machine.pass_until(now_s).len();
                machine.arrive(cost(*work_s, *bytes));
                cpu_s += work_s;
                link_s += bytes / 1e6;
            }
            done += machine.pass_until(now_s + 2.0 * (cpu_s + link_s) + 1.0).len();
            prop_assert_eq!(done, requests.len());
            let total = machine.done();
            prop_assert!((total.cpu_s - cpu_s / 0.5 / cores as f64).abs() < 1e-6);
            prop_assert!((total.link_s - link_s / 0.5).abs() < 1e-6);
            prop_assert!(machine.transfers_s.is_empty());
        }
    }
}
