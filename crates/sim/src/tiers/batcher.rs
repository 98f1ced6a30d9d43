//! Which requests are held, and in which order their groups go.

use std::collections::HashMap;

/// A batch that was let go, until its last answer.
#[derive(Clone, Copy, Debug)]
struct Released {
    at_s: f64,
    left: u32,
}

/// The batcher.
#[derive(Clone, Debug)]
pub(super) struct Batcher {
    /// The interval in force, seconds; 0 holds nothing.
    pub(super) interval_s: f64,
    /// The length of the interval that runs.
    running_s: f64,
    /// Its end; infinite where none runs.
    pub(super) ends_s: f64,
    /// What is held: by group, in the order in which the groups began.
    groups: Vec<Vec<u32>>,
    at: HashMap<u64, usize>,
    released: Vec<Released>,
    free: Vec<u32>,
    /// The batch that was let go last, and when its last answer came.
    last: Option<(u32, Option<f64>)>,
}

/// What is let go at the end of an interval.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    /// Its number until its last answer.
    pub(super) number: u32,
    /// Its groups, in the order in which they go; each with its requests in the order in which they came.
    pub(super) groups: Vec<Vec<u32>>,
    /// What the processing of the batch before left of its interval, T_w, seconds.
    pub(super) waited_s: f64,
    /// Its requests.
    pub(super) requests: u32,
}

impl Batcher {
    pub(super) fn new(interval_s: f64) -> Self {
        let mut batcher = Self {
            interval_s: 0.0,
            running_s: 0.0,
            ends_s: f64::INFINITY,
            groups: Vec::new(),
            at: HashMap::new(),
            released: Vec::new(),
            free: Vec::new(),
            last: None,
        };
        batcher.set(0.0, interval_s);
        batcher
    }

    /// Another interval: from the next one on, or at once where none runs.
    pub(super) fn set(&mut self, now_s: f64, interval_s: f64) {
        self.interval_s = interval_s;
        if interval_s > 0.0 && self.ends_s == f64::INFINITY {
            self.begin(now_s);
        }
    }

    fn begin(&mut self, now_s: f64) {
        self.running_s = self.interval_s;
        self.ends_s = match self.interval_s > 0.0 {
            true => now_s + self.interval_s,
            false => f64::INFINITY,
        };
    }

    /// Whether requests are held.
    pub(super) fn holds(&self) -> bool {
        self.ends_s < f64::INFINITY
    }

    /// How many are held now.
    pub(super) fn held(&self) -> u64 {
        self.groups.iter().map(|group| group.len() as u64).sum()
    }

    /// Holds a request until the end of the interval.
    pub(super) fn hold(&mut self, key: u64, user: u32) {
        let next = self.groups.len();
        let at = *self.at.entry(key).or_insert(next);
        if at == next {
            self.groups.push(Vec::new());
        }
        self.groups[at].push(user);
    }

    /// The interval ends, and the next begins; what was held, the largest group first, `None` where nothing was.
    pub(super) fn release(&mut self, now_s: f64) -> Option<Batch> {
        let interval_s = self.running_s;
        self.begin(now_s);
        self.at.clear();
        let mut groups = std::mem::take(&mut self.groups);
        if groups.is_empty() {
            return None;
        }
        // A stable sort: of groups of one size the one that began first goes first.
        groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
        let requests = groups.iter().map(Vec::len).sum::<usize>() as u32;
        let released = Released {
            at_s: now_s,
            left: requests,
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.released[number as usize] = released;
                number
            }
            None => {
                self.released.push(released);
                (self.released.len() - 1) as u32
            }
        };
        let waited_s = match self.last.replace((number, None)) {
            None => interval_s,
            Some((_, None)) => 0.0,
            Some((_, Some(done_s))) => interval_s.min(now_s - done_s),
        };
        Some(Batch {
            number,
            groups,
            waited_s,
            requests,
        })
    }

    /// A request of a batch is answered; since its release, where it is the last, seconds.
    pub(super) fn answered(&mut self, now_s: f64, number: u32) -> Option<f64> {
        let batch = &mut self.released[number as usize];
        batch.left -= 1;
        (batch.left == 0).then(|| {
            self.free.push(number);
            if self.last == Some((number, None)) {
                self.last = Some((number, Some(now_s)));
            }
            now_s - batch.at_s
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_group_goes_first_and_intervals_follow_without_a_gap() {
        let mut batcher = Batcher::new(0.5);
        for (key, user) in [(7, 0), (8, 1), (9, 2), (9, 3), (8, 4), (9, 5)] {
            batcher.hold(key, user);
        }
        assert_eq!(batcher.ends_s, 0.5);
        batcher.set(0.2, 0.1);
        assert_eq!(batcher.ends_s, 0.5, "the interval that runs goes on as it began");
        let batch = batcher.release(0.5).unwrap();
        assert_eq!(batch.groups, [vec![2, 3, 5], vec![1, 4], vec![0]]);
        assert_eq!((batch.requests, batch.waited_s), (6, 0.5));
        assert_eq!(batcher.ends_s, 0.6);
        assert!(batcher.release(0.6).is_none(), "nothing was held");
        let answered: Vec<_> = (0..6)
            .map(|at| batcher.answered(1.0 + f64::from(at), batch.number))
            .collect();
        assert_eq!(answered[5], Some(5.5));
        assert!(answered[..5].iter().all(Option::is_none));
        batcher.set(0.65, 0.0);
        batcher.hold(7, 0);
        assert_eq!(
            batcher.release(0.7).map(|batch| batch.number),
            Some(0),
            "the number is free again"
        );
        assert!(!batcher.holds());
    }

    #[test]
    fn waiting_is_what_the_batch_before_left_of_the_interval() {
        let mut batcher = Batcher::new(0.5);
        let mut next = |now_s: f64, done_s: Option<f64>| {
            batcher.hold(1, 0);
            let batch = batcher.release(now_s).unwrap();
            if let Some(done_s) = done_s {
                batcher.answered(done_s, batch.number);
            }
            (batch.waited_s * 1e3).round()
        };
        // Processed in 0.2 s: 0.3 s are left of the next interval. Then one that outlasts the next.
        assert_eq!(
            [next(0.5, Some(0.7)), next(1.0, None), next(1.5, Some(1.6))],
            [500.0, 300.0, 0.0]
        );
        // Intervals in which nothing was held lie between.
        assert_eq!(next(4.0, None), 500.0);
    }
}
