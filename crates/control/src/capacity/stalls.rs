//! Times in which a server stands still: a collection of garbage, a neighbour on the host, workers that wait for
//! connections whose client is gone.
//!
//! They make somebody wait at any load, and from an empty queue to an empty queue a server accepts no more than what
//! arrives. Where load is light stalls would be all that is ever counted, so that an estimate would fall towards the load;
//! and as a cluster that believes it gives each server less, nothing would correct it. So they are set aside, up to a
//! share of the time.

use super::busy::Busy;
use headroom_units::{PerSecond, Seconds};

/// A server that accepts nobody for as long as it usually takes for this many stands still: were accepts a Poisson
/// process, that would happen once in 10^21.
const STALL_ACCEPTS: f64 = 50.0;
/// What stalls may have of the time in which the server works, and still be set aside: one that stands still for longer
/// is one that serves less.
const STALL_SHARE: f64 = 0.1;

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
    /// The accepts after a stall that are still to be set aside.
    owed: f64,
}

impl Stalls {
    /// None yet; at most so many seconds are set aside at once.
    pub(super) const fn new(most_s: f64) -> Self {
        Self {
            most_s,
            left_s: most_s,
            worked_s: f64::INFINITY,
            still_s: 0.0,
            pending: Busy {
                time: Seconds::ZERO,
                accepts: 0.0,
            },
            owed: 0.0,
        }
    }

    /// What is to be counted now, given what was accepted in an interval, whether anybody waited at its start, what of it
    /// would be counted, and what is known of the capacity.
    pub(super) fn sift(
        &mut self,
        time: Seconds,
        accepts: f64,
        waited: bool,
        found: Busy,
        capacity: PerSecond,
    ) -> Busy {
        if waited && accepts <= 0.0 {
            self.still_s += time.get();
            self.pending = self.pending.plus(found);
            // Longer than may be set aside: this is how the server works.
            return match self.still_s > self.allowed_s() {
                true => std::mem::take(&mut self.pending),
                false => Busy::default(),
            };
        }
        let pending = std::mem::take(&mut self.pending);
        if self.stands_still(capacity) {
            self.left_s -= self.still_s;
            self.owed = capacity.get() * self.still_s;
        }
        match self.is_pause(capacity) {
            true => self.worked_s = 0.0,
            false => self.worked_s += self.still_s + time.get(),
        }
        self.still_s = 0.0;
        self.left_s = (self.left_s + STALL_SHARE * time.get()).min(self.most_s);
        if self.owed <= 0.0 {
            return pending.plus(found);
        }
        // An empty queue ends what a stall left behind.
        self.owed = if waited { self.owed - accepts } else { 0.0 };
        Busy::default()
    }

    /// Whether the last intervals are a stall that is set aside.
    pub(super) fn stands_still(&self, capacity: PerSecond) -> bool {
        self.still_s <= self.allowed_s() && self.is_pause(capacity)
    }

    /// Whether it is no chance that nobody was accepted for so long.
    fn is_pause(&self, capacity: PerSecond) -> bool {
        capacity.get() * self.still_s >= STALL_ACCEPTS
    }

    /// How long a stall may be now.
    fn allowed_s(&self) -> f64 {
        self.left_s.min(STALL_SHARE * self.worked_s)
    }

    /// For how long nobody was accepted though somebody waits.
    pub(super) fn still(&self) -> Seconds {
        Seconds::new(self.still_s)
    }

    /// Nothing is known of what happened since the last interval.
    pub(super) fn forget(&mut self) {
        (self.still_s, self.owed) = (0.0, 0.0);
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
        }
    }

    const CAPACITY: PerSecond = PerSecond::new(500.0);

    /// Intervals of 20 ms in which so many were accepted, with somebody waiting at the start of each; what was counted
    /// of each.
    fn sifted(stalls: &mut Stalls, accepts: &[f64]) -> Vec<Busy> {
        let time = Seconds::new(0.02);
        let sift = |&accepts: &f64| stalls.sift(time, accepts, true, Busy { time, accepts }, CAPACITY);
        accepts.iter().map(sift).collect()
    }

    fn sum(counted: &[Busy]) -> Busy {
        counted.iter().fold(Busy::default(), |sum, one| sum.plus(*one))
    }

    #[test]
    fn a_pause_that_is_chance_is_counted_with_what_follows() {
        let mut stalls = Stalls::new(10.0);
        // 80 ms are 40 accepts.
        let counted = sifted(&mut stalls, &[10.0, 0.0, 0.0, 0.0, 0.0, 9.0]);
        assert_eq!(counted[0], busy(0.02, 10.0));
        assert_eq!(sum(&counted[1..5]), Busy::default());
        let Busy { time, accepts } = counted[5];
        assert!((time.get() - 0.1).abs() < 1e-12 && accepts == 9.0, "{counted:?}");
    }

    #[test]
    fn a_stall_is_set_aside_and_so_is_what_it_held_up() {
        let mut stalls = Stalls::new(10.0);
        // 120 ms are 60 accepts: the next 60 are set aside with them.
        let pause = [0.0; 6];
        assert_eq!(sum(&sifted(&mut stalls, &pause)), Busy::default());
        assert!(stalls.stands_still(CAPACITY));
        assert_eq!(sum(&sifted(&mut stalls, &[30.0, 31.0])), Busy::default());
        assert!(!stalls.stands_still(CAPACITY));
        assert_eq!(sifted(&mut stalls, &[11.0]), [busy(0.02, 11.0)]);
        // Where the queue runs empty nothing is held up any more.
        sifted(&mut stalls, &pause);
        let time = Seconds::new(0.02);
        assert_eq!(
            stalls.sift(time, 8.0, false, Busy::default(), CAPACITY),
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
        assert!(!stalls.stands_still(CAPACITY));
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
    fn without_an_exact_rate_or_time_to_hold_nothing_is_set_aside() {
        let time = Seconds::new(0.02);
        let mut stalls = Stalls::new(10.0);
        let mut counted = Busy::default();
        for accepts in std::iter::repeat_n(0.0, 50).chain([10.0]) {
            let found = Busy { time, accepts };
            counted = counted.plus(stalls.sift(time, accepts, true, found, PerSecond::ZERO));
        }
        assert!((counted.time.get() - 1.02).abs() < 1e-9, "{counted:?}");
        let counted = sum(&sifted(&mut Stalls::new(0.0), &[0.0; 50]));
        assert!((counted.time.get() - 1.0).abs() < 1e-9, "{counted:?}");
    }
}
