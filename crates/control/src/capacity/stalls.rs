//! Times in which a server stands still: a collection of garbage, a neighbour on the host, workers that wait for
//! connections whose client is gone.
//!
//! They make somebody wait at any load, and from an empty queue to an empty queue a server accepts no more than what
//! arrives. Where load is light stalls would be all that is ever counted, so that an estimate would fall towards the load;
//! and as a cluster that believes it gives each server less, nothing would correct it. So they are set aside, up to a
//! share of the time.
//!
//! A stall is a gap between two accepts that is far longer than the gaps before it: long against their mean, and against how
//! unequal they are. Of workers that are independent of one another the gaps are all but exponential (the superposition of many
//! renewal processes: D. R. Cox, W. L. Smith, 1954), and one of ten times their mean is one in 22,000.

use super::busy::Busy;
use headroom_units::{PerSecond, Seconds};

/// A gap of as many mean gaps is a stall,
const STALL_GAPS: f64 = 10.0;
/// where it is as many times the gap that a moment of waiting is in on average (the mean square over the mean: twice the mean where gaps
/// are exponential, more where few of them take most of the time).
const STALL_TYPICAL_GAPS: f64 = 5.0;
/// Gaps from which that is known.
const KNOWN_GAPS: f64 = 30.0;
/// What is remembered of gaps: as many, and those of as long a time.
const MEMORY_GAPS: f64 = 200.0;
const MEMORY_S: f64 = 10.0;
/// What stalls may have of the time in which the server works, and still be set aside: one that stands still for longer
/// is one that serves less.
const STALL_SHARE: f64 = 0.1;
/// And how long it has to have worked since the one before: the pauses of workers that began together come again with each request.
const BETWEEN_S: f64 = 2.0;

/// Gaps between accepts: how many, their sum, and the sum of their squares, the older ones counting less.
#[derive(Clone, Copy, Debug, Default)]
struct Gaps {
    count: f64,
    sum_s: f64,
    squares: f64,
}

impl Gaps {
    /// Takes an interval in which so many were accepted, before which nobody was for so long.
    fn take(&mut self, still_s: f64, time_s: f64, accepts: f64) {
        let each_s = time_s / accepts;
        let passed = (accepts / MEMORY_GAPS).min((still_s + time_s) / MEMORY_S);
        let keep = 1.0 - passed.min(1.0);
        *self = Self {
            count: self.count * keep + accepts,
            sum_s: self.sum_s * keep + still_s + time_s,
            squares: self.squares * keep
                + (still_s + each_s).powi(2)
                + (accepts - 1.0).max(0.0) * each_s.powi(2),
        };
    }

    fn mean_s(&self) -> f64 {
        self.sum_s / self.count
    }

    /// The gap that is a stall; `None` where too few are known.
    fn stall_s(&self) -> Option<f64> {
        let typical_s = self.squares / self.sum_s;
        (self.count >= KNOWN_GAPS).then(|| (STALL_GAPS * self.mean_s()).max(STALL_TYPICAL_GAPS * typical_s))
    }
}

/// Sets aside what would be counted while a server stands still, and after that until as many were accepted as it would
/// have in that time: a server whose workers all end together accepts in bursts, and a burst without the pause before it
/// is no rate.
#[derive(Clone, Debug)]
pub(super) struct Stalls {
    /// The time that may be set aside at once, and what is left of it: it comes back at [`STALL_SHARE`] of the time in which the
    /// server works.
    most_s: f64,
    left_s: f64,
    /// For how long it has worked since the last stall; without end before the first. One that stands still again and again, for a
    /// larger share of the time, works so: its workers all end together.
    worked_s: f64,
    /// For how long nobody was accepted while somebody waited, and what of that would be counted.
    still_s: f64,
    pending: Busy,
    /// The accepts after a stall that are still to be set aside, and how long it was.
    owed: f64,
    stalled_s: f64,
    /// Spells that began in what was set aside, and may go on after it.
    spells: f64,
    /// Gaps while somebody waited, those of stalls that were set aside not among them, and gaps of all the time.
    waiting: Gaps,
    all: Gaps,
}

impl Stalls {
    /// None yet; at most so many seconds are set aside at once.
    pub(super) fn new(most_s: f64) -> Self {
        Self {
            most_s,
            left_s: most_s,
            worked_s: f64::INFINITY,
            still_s: 0.0,
            pending: Busy::default(),
            owed: 0.0,
            stalled_s: 0.0,
            spells: 0.0,
            waiting: Gaps::default(),
            all: Gaps::default(),
        }
    }

    /// What is to be counted now, given what was accepted in an interval, whether anybody waited at its start, what of it
    /// would be counted, and what its limit was found to be.
    pub(super) fn sift(
        &mut self,
        time: Seconds,
        accepts: f64,
        waited: bool,
        found: Busy,
        met: Option<PerSecond>,
    ) -> Busy {
        if waited && accepts <= 0.0 {
            self.still_s += time.get();
            self.pending = self.pending.plus(found);
            // Workers that go on in phase accept in bunches: the pauses between those that were held up are set aside with them, but
            // none that is longer than what held them up. Longer than may be set aside: this is how the server works.
            let is_between = self.owed > 0.0 && self.still_s <= self.stalled_s;
            return match self.still_s > self.allowed_s(met) && !is_between {
                true => self.counted(Busy::default()),
                false => Busy::default(),
            };
        }
        let stood_still = self.stands_still(met);
        if stood_still {
            self.left_s -= self.still_s;
            self.stalled_s = self.still_s;
            self.owed = self.still_s / self.mean_gap_s(met);
            self.spells += std::mem::take(&mut self.pending).spells;
        }
        match self.is_pause(met) {
            true => self.worked_s = 0.0,
            false => self.worked_s += self.still_s + time.get(),
        }
        let still_s = std::mem::take(&mut self.still_s);
        if accepts > 0.0 {
            self.all.take(still_s, time.get(), accepts);
            if waited && !stood_still {
                self.waiting.take(still_s, time.get(), accepts);
            }
        } else {
            // Nobody came, or nobody was accepted: a part of a gap between accepts.
            self.all.sum_s += time.get();
        }
        self.left_s = (self.left_s + STALL_SHARE * time.get()).min(self.most_s);
        if self.owed <= 0.0 {
            return self.counted(found);
        }
        self.spells += std::mem::take(&mut self.pending).plus(found).spells;
        // An empty queue ends what a stall left behind, and the spell with it.
        match waited {
            true => self.owed -= accepts,
            false => (self.owed, self.spells) = (0.0, 0.0),
        }
        Busy::default()
    }

    /// This and what is pending. A spell that began in what was set aside begins with what is counted of it.
    fn counted(&mut self, found: Busy) -> Busy {
        let mut counted = std::mem::take(&mut self.pending).plus(found);
        if counted.time > Seconds::ZERO {
            counted.spells += std::mem::take(&mut self.spells);
        }
        counted
    }

    /// Whether the last intervals are a stall that is set aside.
    pub(super) fn stands_still(&self, met: Option<PerSecond>) -> bool {
        self.still_s <= self.allowed_s(met) && self.is_pause(met)
    }

    /// Whether it is no chance that nobody was accepted for so long.
    fn is_pause(&self, met: Option<PerSecond>) -> bool {
        self.still_s > 0.0 && self.still_s >= self.stall_s(met)
    }

    /// The gap that is a stall. Of a server whose limit was not met yet the gaps while somebody waited may be stalls for the most
    /// part; it can serve as many as it does serve, and more.
    fn stall_s(&self, met: Option<PerSecond>) -> f64 {
        let known_s = match met {
            Some(_) => self.waiting.stall_s(),
            None => None,
        };
        known_s.unwrap_or_else(|| STALL_GAPS * self.mean_gap_s(met))
    }

    /// The mean gap of a server at its limit, or what is known of it.
    fn mean_gap_s(&self, met: Option<PerSecond>) -> f64 {
        match met {
            Some(rate) if rate > PerSecond::ZERO => 1.0 / rate.get(),
            _ if self.all.count >= KNOWN_GAPS => self.all.mean_s(),
            _ => f64::INFINITY,
        }
    }

    /// How long a stall may be now. How a server works whose limit was not met yet has to be seen first.
    fn allowed_s(&self, met: Option<PerSecond>) -> f64 {
        let worked_s = match met {
            Some(_) => self.worked_s,
            None => self.worked_s.min(self.all.sum_s),
        };
        match worked_s >= BETWEEN_S {
            true => self.left_s.min(STALL_SHARE * worked_s),
            false => 0.0,
        }
    }

    /// For how long nobody was accepted though somebody waits.
    pub(super) const fn still(&self) -> Seconds {
        Seconds::new(self.still_s)
    }

    /// Nothing is known of what happened since the last interval.
    pub(super) fn forget(&mut self) {
        (self.still_s, self.owed, self.spells) = (0.0, 0.0, 0.0);
        self.pending = Busy::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn busy(time_s: f64, accepts: f64) -> Busy {
        Busy {
            time: Seconds::new(time_s),
            accepts,
            spells: 0.0,
        }
    }

    const CAPACITY: PerSecond = PerSecond::new(500.0);

    /// Intervals of 20 ms in which so many were accepted, with somebody waiting at the start of each; what was counted
    /// of each.
    fn sifted(stalls: &mut Stalls, accepts: &[f64]) -> Vec<Busy> {
        let time = Seconds::new(0.02);
        let sift = |&accepts: &f64| stalls.sift(time, accepts, true, busy(0.02, accepts), Some(CAPACITY));
        accepts.iter().map(sift).collect()
    }

    fn sum(counted: &[Busy]) -> Busy {
        counted.iter().fold(Busy::default(), |sum, one| sum.plus(*one))
    }

    #[test]
    fn a_pause_that_is_chance_is_counted_with_what_follows() {
        let mut stalls = Stalls::new(10.0);
        // 80 ms at 100/s are 8 gaps.
        let known = Some(PerSecond::new(100.0));
        let time = Seconds::new(0.02);
        let pause = [2.0, 0.0, 0.0, 0.0, 0.0, 3.0];
        let counted = pause.map(|accepts| stalls.sift(time, accepts, true, busy(0.02, accepts), known));
        assert_eq!(counted[0], busy(0.02, 2.0));
        assert_eq!(sum(&counted[1..5]), Busy::default());
        let Busy { time, accepts, .. } = counted[5];
        assert!((time.get() - 0.1).abs() < 1e-12 && accepts == 3.0, "{counted:?}");
    }

    #[test]
    fn where_gaps_are_unequal_a_long_one_is_no_stall_and_one_far_longer_than_those_is() {
        let time = Seconds::new(0.02);
        // 500/s, in bunches of 100 with 180 ms between them, which are 90 mean gaps.
        let bunch = || std::iter::repeat_n(0.0, 9).chain([100.0]);
        let mut stalls = Stalls::new(10.0);
        let mut counted = Vec::new();
        let mut sift = |stalls: &mut Stalls, accepts: f64| {
            counted.push(stalls.sift(time, accepts, true, busy(0.02, accepts), Some(CAPACITY)));
        };
        for accepts in bunch().cycle().take(10 * 50) {
            sift(&mut stalls, accepts);
        }
        (0..40).for_each(|_| sift(&mut stalls, 0.0));
        assert!(!stalls.stands_still(Some(CAPACITY)), "0.8 s are four such gaps");
        (0..5).for_each(|_| sift(&mut stalls, 0.0));
        assert!(stalls.stands_still(Some(CAPACITY)), "0.9 s are more than five");
    }

    #[test]
    fn of_a_server_whose_limit_was_not_met_a_stall_is_known_by_what_it_serves() {
        let mut stalls = Stalls::new(10.0);
        let time = Seconds::new(0.02);
        // 50/s without anybody's waiting, and then nothing for 0.4 s.
        for _ in 0..300 {
            stalls.sift(time, 1.0, false, Busy::default(), None);
        }
        let pause =
            |stalls: &mut Stalls, accepts| stalls.sift(time, accepts, true, busy(0.02, accepts), None);
        let still: Vec<Busy> = (0..20).map(|_| pause(&mut stalls, 0.0)).collect();
        assert_eq!(sum(&still), Busy::default());
        assert!(stalls.stands_still(None));
        // Those who came meanwhile.
        assert_eq!(pause(&mut stalls, 15.0), Busy::default());
        assert_eq!(pause(&mut stalls, 5.0), Busy::default());
    }

    #[test]
    fn a_stall_is_set_aside_and_so_is_what_it_held_up() {
        let mut stalls = Stalls::new(10.0);
        // 120 ms are 60 accepts: the next 60 are set aside with them.
        let pause = [0.0; 6];
        assert_eq!(sum(&sifted(&mut stalls, &pause)), Busy::default());
        assert!(stalls.stands_still(Some(CAPACITY)));
        assert_eq!(sum(&sifted(&mut stalls, &[30.0, 31.0])), Busy::default());
        assert!(!stalls.stands_still(Some(CAPACITY)));
        assert_eq!(sifted(&mut stalls, &[11.0]), [busy(0.02, 11.0)]);
        // Where the queue runs empty nothing is held up any more.
        sifted(&mut stalls, &pause);
        let time = Seconds::new(0.02);
        assert_eq!(
            stalls.sift(time, 8.0, false, Busy::default(), Some(CAPACITY)),
            Busy::default()
        );
        assert_eq!(sifted(&mut stalls, &[11.0]), [busy(0.02, 11.0)]);
    }

    #[test]
    fn a_server_that_stands_still_too_long_or_too_often_is_a_slow_one() {
        let mut stalls = Stalls::new(1.0);
        // After 1 s nothing of it is set aside any more.
        let hang = [0.0; 60];
        let counted = sum(&sifted(&mut stalls, &hang));
        assert!((counted.time.get() - 1.2).abs() < 1e-9, "{counted:?}");
        assert!(!stalls.stands_still(Some(CAPACITY)));
        assert_eq!(
            sifted(&mut stalls, &[10.0]),
            [busy(0.02, 10.0)],
            "nothing was set aside, so nothing is owed"
        );
        // Bursts of 200 accepted at once, with 380 ms between them, in which nobody is: 500/s.
        let burst: Vec<f64> = std::iter::repeat_n(0.0, 19).chain([200.0]).collect();
        let bursts: Vec<f64> = burst.iter().copied().cycle().take(20 * 200).collect();
        let counted = sum(&sifted(&mut stalls, &bursts));
        assert!(counted.time.get() > 0.8 * 80.0, "{counted:?}");
        assert!(
            (counted.accepts / counted.time.get() / 500.0 - 1.0).abs() < 0.02,
            "{counted:?}"
        );
    }

    #[test]
    fn after_a_stall_the_pauses_of_workers_that_go_on_in_phase_are_set_aside_with_what_they_serve() {
        let mut stalls = Stalls::new(10.0);
        // 400/s, in bunches of 40 with 80 ms between them.
        let known = Some(PerSecond::new(400.0));
        let bunch = [0.0, 0.0, 0.0, 0.0, 40.0];
        let time = Seconds::new(0.02);
        let mut sift = |accepts: f64| stalls.sift(time, accepts, true, busy(0.02, accepts), known);
        for accepts in bunch.repeat(300) {
            sift(accepts);
        }
        let stall: Vec<Busy> = (0..100).map(|_| sift(0.0)).collect();
        // In the 2 s of it 800 would have been accepted: as many, in their 2 s, and what was held up is over.
        let after: Vec<Busy> = bunch.repeat(20).iter().map(|&accepts| sift(accepts)).collect();
        assert_eq!((sum(&stall), sum(&after)), (Busy::default(), Busy::default()));
        let Busy { time, accepts, .. } = sum(&bunch.repeat(20).into_iter().map(sift).collect::<Vec<_>>());
        assert!(
            (accepts / time.get() / 400.0 - 1.0).abs() < 0.01,
            "{accepts} in {time:?}"
        );
    }

    #[test]
    fn without_an_exact_rate_or_time_to_hold_nothing_is_set_aside() {
        let time = Seconds::new(0.02);
        let mut stalls = Stalls::new(10.0);
        let mut counted = Busy::default();
        for accepts in std::iter::repeat_n(0.0, 50).chain([10.0]) {
            let found = busy(time.get(), accepts);
            counted = counted.plus(stalls.sift(time, accepts, true, found, None));
        }
        assert!((counted.time.get() - 1.02).abs() < 1e-9, "{counted:?}");
        let counted = sum(&sifted(&mut Stalls::new(0.0), &[0.0; 50]));
        assert!((counted.time.get() - 1.0).abs() < 1e-9, "{counted:?}");
    }
}
