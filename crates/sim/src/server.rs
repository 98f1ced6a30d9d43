//! A processor-sharing server: k cores, n jobs, each job served at rate min(1, k/n) times the speed of a core.

use crate::heap::Heap;
use crate::quota::{Demand, Meter, Quota};

/// A request being served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Job {
    /// When it arrived, seconds.
    pub(crate) arrived: f64,
    /// The user who waits for it, in closed-loop sessions.
    pub(crate) user: u32,
}

/// Virtual time above which it is set back, so that a server that never falls idle loses no precision.
const FAR: f64 = 1e6;

/// The server. Its virtual time V is the work that one job would have been given since the start:
/// dV = min(1, k/n) · speed · dt. A job of size s that arrives at V is done at V + s whatever comes and goes meanwhile,
/// so the jobs wait in a heap keyed by V + s, an event costs O(log n), and a change of cores or speed changes only dV.
/// Where the cores are held by a quota, V stops and goes with it, and each job gets the same part of what the quota gives.
///
/// Units: sizes and V in seconds of one core at full speed, time in seconds.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    jobs: Heap<Job>,
    virtual_s: f64,
    /// The clock up to which everything is accounted for.
    at_s: f64,
    cores: f64,
    speed: f64,
    /// dV/dt with the jobs of now.
    rate: f64,
    /// Busy cores with the jobs of now.
    busy: f64,
    /// ∫ busy cores dt: core-seconds.
    busy_core_s: f64,
    /// ∫ busy cores · speed dt: work done.
    work_s: f64,
    /// ∫ jobs dt: request-seconds, for Little's law.
    job_s: f64,
    /// The cores that the node has, and the quota that holds those allocated, where one does.
    held: Option<(f64, Meter)>,
}

impl Server {
    pub(crate) fn new(cores: f64, speed: f64) -> Self {
        Self {
            jobs: Heap::new(),
            virtual_s: 0.0,
            at_s: 0.0,
            cores,
            speed,
            rate: 0.0,
            busy: 0.0,
            busy_core_s: 0.0,
            work_s: 0.0,
            job_s: 0.0,
            held: None,
        }
    }

    /// The same with its cores held by a quota; the node has as many as it has now.
    pub(crate) fn held_by(self, quota: Option<Quota>) -> Self {
        Self {
            held: quota.map(|quota| (self.cores, Meter::new(quota, self.cores, self.speed))),
            ..self
        }
    }

    /// Whether a quota holds its cores.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    pub(crate) fn jobs(&self) -> usize {
        self.jobs.len()
    }

    pub(crate) fn cores(&self) -> f64 {
        self.cores
    }

    pub(crate) fn busy_core_s(&self) -> f64 {
        self.busy_core_s
    }

    pub(crate) fn work_s(&self) -> f64 {
        self.work_s
    }

    pub(crate) fn job_s(&self) -> f64 {
        self.job_s
    }

    /// The work still to be done for the jobs of now.
    pub(crate) fn remaining_s(&self) -> f64 {
        self.jobs
            .entries()
            .iter()
            .map(|(key, _)| key - self.virtual_s)
            .sum()
    }

    /// When the oldest job arrived.
    pub(crate) fn oldest_s(&self) -> Option<f64> {
        self.jobs
            .entries()
            .iter()
            .map(|(_, job)| job.arrived)
            .min_by(f64::total_cmp)
    }

    pub(crate) fn each_job(&self) -> impl Iterator<Item = &Job> {
        self.jobs.entries().iter().map(|(_, job)| job)
    }

    /// Lets time pass until `now_s`, at the rates of now.
    #[inline]
    pub(crate) fn advance(&mut self, now_s: f64) {
        if self.held.is_some() {
            return self.advance_held(now_s);
        }
        let dt = now_s - self.at_s;
        self.at_s = now_s;
        self.virtual_s += self.rate * dt;
        let busy_core_s = self.busy * dt;
        self.busy_core_s += busy_core_s;
        self.work_s += busy_core_s * self.speed;
        self.job_s += self.jobs.len() as f64 * dt;
    }

    /// As [`Self::advance`], under a quota.
    fn advance_held(&mut self, now_s: f64) {
        let (from_s, jobs) = (self.at_s, self.jobs.len() as f64);
        self.at_s = now_s;
        self.job_s += jobs * (now_s - from_s);
        let demand = self.demand();
        let Some((_, meter)) = &mut self.held else {
            return;
        };
        let work_s = meter.advance(from_s, now_s, demand);
        if work_s > 0.0 {
            self.virtual_s += work_s / jobs;
            self.work_s += work_s;
            self.busy_core_s += work_s / self.speed;
        }
    }

    /// Cores that run just now with so many jobs, and until when a quota lets them run or stand still.
    pub(crate) fn running(&self, jobs: usize) -> (usize, f64) {
        match &self.held {
            Some((most, meter)) => {
                let demand = Demand {
                    jobs: jobs as f64,
                    ..self.demand()
                };
                let (goes_on, until_s) = meter.goes_on(self.at_s, demand);
                let running = if goes_on {
                    jobs.min(most.ceil() as usize)
                } else {
                    0
                };
                (running, until_s)
            }
            None => (jobs.min(self.cores.ceil() as usize), f64::INFINITY),
        }
    }

    fn demand(&self) -> Demand {
        Demand {
            jobs: self.jobs.len() as f64,
            most_cores: self.held.map_or(self.cores, |(most, _)| most),
            speed: self.speed,
        }
    }

    /// The rates that follow from jobs, cores and speed; when the next job is done at these rates.
    #[inline]
    fn settle(&mut self) -> f64 {
        let Some(first) = self.jobs.first_key() else {
            self.rate = 0.0;
            self.busy = 0.0;
            // Nobody is there whose work is measured on it.
            self.virtual_s = 0.0;
            return f64::INFINITY;
        };
        if let Some((_, meter)) = &self.held {
            let left_s = (first - self.virtual_s).max(0.0);
            return meter.due_s(self.at_s, left_s, self.demand());
        }
        let jobs = self.jobs.len() as f64;
        if jobs <= self.cores {
            self.busy = jobs;
            self.rate = self.speed;
        } else {
            self.busy = self.cores;
            self.rate = self.speed * self.cores / jobs;
        }
        if self.rate > 0.0 {
            self.at_s + (first - self.virtual_s).max(0.0) / self.rate
        } else {
            f64::INFINITY
        }
    }

    /// A job arrives; when the next one is done.
    #[inline]
    pub(crate) fn arrive(&mut self, now_s: f64, size_s: f64, job: Job) -> f64 {
        self.advance(now_s);
        if self.virtual_s > FAR {
            self.jobs.shift_keys(self.virtual_s);
            self.virtual_s = 0.0;
        }
        self.jobs.push(self.virtual_s + size_s, job);
        self.settle()
    }

    /// The job that is due is done; when the next one is.
    #[inline]
    pub(crate) fn complete(&mut self, now_s: f64) -> Option<(Job, f64)> {
        self.advance(now_s);
        let (key, job) = self.jobs.pop()?;
        // Exactly, not by a sum of roundings.
        self.virtual_s = key;
        Some((job, self.settle()))
    }

    /// When the next job is done if nothing changes.
    pub(crate) fn due_s(&mut self) -> f64 {
        self.settle()
    }

    /// Another number of cores or another speed from now on; when the next job is done.
    pub(crate) fn set(&mut self, now_s: f64, cores: f64, speed: f64) -> f64 {
        self.advance(now_s);
        self.cores = cores;
        self.speed = speed;
        if let Some((_, meter)) = &mut self.held {
            meter.set(now_s, cores, speed);
        }
        self.settle()
    }

    /// All jobs are lost: those that there were, and the work that remained to be done for them.
    pub(crate) fn lose(&mut self, now_s: f64) -> (Vec<Job>, f64) {
        self.advance(now_s);
        let remaining = self.remaining_s();
        let jobs = self.each_job().copied().collect();
        self.jobs.clear();
        self.settle();
        (jobs, remaining)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What happens to a server under test.
    #[derive(Clone, Copy, Debug)]
    enum Act {
        Arrive(f64),
        Set(f64, f64),
    }

    /// The obvious way: every job's remaining work, taken down step by step. (finish time, arrival) of each job.
    fn naive(acts: &[(f64, Act)], cores: f64, speed: f64) -> Vec<(f64, f64)> {
        let (mut cores, mut speed, mut now) = (cores, speed, 0.0);
        let mut jobs: Vec<(f64, f64)> = Vec::new();
        let mut done = Vec::new();
        let mut acts = acts.iter().peekable();
        loop {
            let rate = if jobs.is_empty() {
                0.0
            } else {
                speed * (cores / jobs.len() as f64).min(1.0)
            };
            let next_act = acts.peek().map_or(f64::INFINITY, |act| act.0);
            let least = jobs.iter().map(|job| job.1).fold(f64::INFINITY, f64::min);
            let next_done = if rate > 0.0 {
                now + least / rate
            } else {
                f64::INFINITY
            };
            let next = next_act.min(next_done);
            if next == f64::INFINITY {
                return done;
            }
            for job in &mut jobs {
                job.1 -= rate * (next - now);
            }
            now = next;
            if next_done <= next_act {
                let at = (0..jobs.len())
                    .min_by(|a, b| jobs[*a].1.total_cmp(&jobs[*b].1))
                    .unwrap();
                done.push((now, jobs.remove(at).0));
            } else {
                match acts.next().unwrap().1 {
                    Act::Arrive(size) => jobs.push((now, size)),
                    Act::Set(new_cores, new_speed) => (cores, speed) = (new_cores, new_speed),
                }
            }
        }
    }

    fn heaped(acts: &[(f64, Act)], cores: f64, speed: f64) -> (Vec<(f64, f64)>, Server) {
        let mut server = Server::new(cores, speed);
        let mut done = Vec::new();
        let mut due = f64::INFINITY;
        let mut acts = acts.iter().peekable();
        loop {
            let next_act = acts.peek().map_or(f64::INFINITY, |act| act.0);
            if due.min(next_act) == f64::INFINITY {
                return (done, server);
            }
            if due <= next_act {
                let at = due;
                let (job, next) = server.complete(at).unwrap();
                done.push((at, job.arrived));
                due = next;
            } else {
                due = match *acts.next().unwrap() {
                    (at, Act::Arrive(size)) => server.arrive(at, size, Job { arrived: at, user: 0 }),
                    (at, Act::Set(cores, speed)) => server.set(at, cores, speed),
                };
            }
        }
    }

    fn acts() -> impl Strategy<Value = Vec<(f64, Act)>> {
        let act = prop_oneof![
            4 => (0.001..3.0f64).prop_map(Act::Arrive),
            1 => (0.25..4.0f64, 0.1..1.0f64).prop_map(|(cores, speed)| Act::Set(cores, speed)),
        ];
        proptest::collection::vec((0.0..2.0f64, act), 1..60).prop_map(|steps| {
            let mut at = 0.0;
            let mut placed = Vec::new();
            for (gap, act) in steps {
                at += gap;
                placed.push((at, act));
            }
            placed
        })
    }

    proptest! {
        /// Arrivals, and cores and speed that change while jobs are being served.
        #[test]
        fn the_heap_does_what_the_obvious_way_does(acts in acts(), cores in 0.25..4.0f64, speed in 0.1..1.0f64) {
            let (fast, server) = heaped(&acts, cores, speed);
            let slow = naive(&acts, cores, speed);
            prop_assert_eq!(fast.len(), slow.len());
            let sorted = |mut done: Vec<(f64, f64)>| {
                done.sort_by(|a, b| a.1.total_cmp(&b.1));
                done
            };
            for (a, b) in sorted(fast).iter().zip(sorted(slow)) {
                prop_assert!((a.0 - b.0).abs() < 1e-6 && a.1 == b.1, "{a:?} {b:?}");
            }
            // Work is conserved: what was asked for was done.
            let asked: f64 = acts.iter().map(|(_, act)| match act { Act::Arrive(size) => *size, Act::Set(..) => 0.0 }).sum();
            prop_assert!((server.work_s() - asked).abs() < 1e-6 * asked.max(1.0));
        }
    }

    #[test]
    fn half_a_core_serves_one_job_at_half_the_speed() {
        let mut server = Server::new(0.5, 1.0);
        assert_eq!(
            server.arrive(
                0.0,
                1.0,
                Job {
                    arrived: 0.0,
                    user: 0
                }
            ),
            2.0
        );
    }

    #[test]
    fn a_server_that_never_falls_idle_keeps_its_precision() {
        let mut server = Server::new(2.0, 1.0);
        server.arrive(
            0.0,
            3e6,
            Job {
                arrived: 0.0,
                user: 0,
            },
        );
        let due = server.arrive(
            2e6,
            0.5,
            Job {
                arrived: 2e6,
                user: 0,
            },
        );
        assert_eq!(due, 2e6 + 0.5);
        let (_, due) = server.complete(due).unwrap();
        assert_eq!(due, 3e6);
    }
}
