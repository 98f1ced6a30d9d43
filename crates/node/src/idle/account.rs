//! One CPU's record in the kernel, and what of it falls between two readings.

use headroom_queue_bpf::idle::{CLASSES, CROSSINGS, MAX_THRESHOLDS, Record, class_of_ns, field};

/// What falls between two readings, nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Between {
    /// Of which it is known whether the CPU was idle; zero where nothing is known of it yet.
    pub(super) observed: u64,
    pub(super) idle: u64,
    pub(super) periods: [u64; CLASSES],
    pub(super) time: [u64; CLASSES],
    pub(super) longer: [u64; MAX_THRESHOLDS],
}

/// A CPU's state at a reading.
#[derive(Clone, Debug)]
pub(super) struct CpuReading {
    record: Record,
    /// When the reading was, nanoseconds of `CLOCK_MONOTONIC`.
    at: u64,
    /// From when on it is known whether the CPU was idle, where that is known from the start.
    since: Option<u64>,
}

impl CpuReading {
    pub(super) fn new(record: Record, at: u64, since: Option<u64>) -> Self {
        Self { record, at, since }
    }

    /// The beginning of the period that was running. One that began after the reading belongs to the next.
    fn running(&self) -> Option<u64> {
        let began = self.record[field::BEGAN];
        (began != 0 && began < self.at).then_some(began)
    }

    /// From when on something is known.
    fn known_since(&self) -> Option<u64> {
        let first = self.record[field::FIRST];
        self.since.or((first != 0).then_some(first))
    }

    /// The length of a period that was running at an earlier reading and has ended.
    fn length_of(&self, began: u64) -> Option<u64> {
        (0..CROSSINGS)
            .map(|at| field::CROSSING + 2 * at)
            .find(|at| self.record[*at] == began)
            .map(|at| self.record[at + 1])
    }

    /// What falls between an earlier reading and this one. `thresholds` are those that the kernel side has.
    pub(super) fn since(&self, before: &Self, thresholds: &[u64; MAX_THRESHOLDS]) -> Between {
        let grown = |at: usize| self.record[at].saturating_sub(before.record[at]);
        let mut between = Between {
            observed: 0,
            idle: 0,
            periods: std::array::from_fn(|class| grown(field::PERIODS + class)),
            time: std::array::from_fn(|class| grown(field::TIME + class)),
            longer: std::array::from_fn(|at| grown(field::LONGER + at)),
        };
        if let Some(known) = self.known_since() {
            between.observed = self.at.saturating_sub(known.max(before.at));
        }
        let longer_than = |length: u64| (0..MAX_THRESHOLDS).filter(move |at| length > thresholds[*at]);
        // A period that ended meanwhile was added whole: what of it was before is not of this time.
        let ended = before
            .running()
            .filter(|began| self.record[field::BEGAN] != *began);
        if let Some((began, length)) = ended.and_then(|began| Some((began, self.length_of(began)?))) {
            let earlier = (before.at - began).min(length);
            let time = &mut between.time[class_of_ns(length)];
            *time = time.saturating_sub(earlier);
            for at in longer_than(length) {
                between.longer[at] = between.longer[at].saturating_sub(earlier);
            }
        }
        if let Some(began) = self.running() {
            let length = self.at - began;
            let here = self.at - began.max(before.at);
            let class = class_of_ns(length);
            between.periods[class] += 1;
            between.time[class] += here;
            for at in longer_than(length) {
                between.longer[at] += here;
            }
        }
        between.idle = between.time.iter().sum();
        between
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const T: [u64; MAX_THRESHOLDS] = [1_000_000, u64::MAX, u64::MAX, u64::MAX];

    /// The kernel side, written again.
    struct Kernel(Record, u64);

    impl Kernel {
        fn new() -> Self {
            Self([0; field::WRITING + 1], 0)
        }

        fn begin(&mut self, now: u64) {
            self.first(now);
            self.0[field::BEGAN] = now;
            self.0[field::EPOCH] = self.1;
        }

        fn end(&mut self, now: u64) {
            self.first(now);
            let began = self.0[field::BEGAN];
            if began == 0 {
                return;
            }
            let length = now - began;
            self.0[field::PERIODS + class_of_ns(length)] += 1;
            self.0[field::TIME + class_of_ns(length)] += length;
            for (at, _) in T.iter().enumerate().filter(|(_, over)| length > **over) {
                self.0[field::LONGER + at] += length;
            }
            if self.0[field::EPOCH] != self.1 {
                let at = field::CROSSING + 2 * (self.0[field::CROSSED] as usize % CROSSINGS);
                (self.0[at], self.0[at + 1]) = (began, length);
                self.0[field::CROSSED] += 1;
            }
            self.0[field::BEGAN] = 0;
        }

        fn first(&mut self, now: u64) {
            if self.0[field::FIRST] == 0 {
                self.0[field::FIRST] = now;
            }
        }

        fn read(&mut self, at: u64) -> CpuReading {
            self.1 += 1;
            CpuReading::new(self.0, at, Some(1))
        }
    }

    #[test]
    fn a_long_sleep_is_in_every_reading_that_it_spans() {
        let ms = 1_000_000;
        let mut kernel = Kernel::new();
        let start = kernel.read(ms);
        kernel.begin(2 * ms);
        let first = kernel.read(1000 * ms);
        let second = kernel.read(2000 * ms);
        kernel.end(2300 * ms);
        let third = kernel.read(3000 * ms);
        let shares = [(&start, &first), (&first, &second), (&second, &third)]
            .map(|(before, now)| now.since(before, &T));
        assert_eq!(shares.each_ref().map(|of| of.idle / ms), [998, 1000, 300]);
        assert_eq!(shares.each_ref().map(|of| of.longer[0] / ms), [998, 1000, 300]);
        assert_eq!(shares.each_ref().map(|of| of.observed / ms), [999, 1000, 1000]);
        assert_eq!(
            shares.each_ref().map(|of| of.periods.iter().sum::<u64>()),
            [1, 1, 1]
        );
        // Its class is by its whole length, wherever the readings fall.
        assert_eq!(shares[2].time[class_of_ns(2298 * ms)], 300 * ms);
        let after = kernel.read(4000 * ms).since(&third, &T);
        assert_eq!((after.idle, after.observed), (0, 1000 * ms));
    }

    #[test]
    fn nothing_is_known_of_a_cpu_before_its_first_event() {
        let mut kernel = Kernel::new();
        let start = CpuReading::new(kernel.0, 100, None);
        let none = CpuReading::new(kernel.0, 200, None);
        assert_eq!(none.since(&start, &T).observed, 0);
        kernel.end(250);
        let some = CpuReading::new(kernel.0, 300, None);
        let between = some.since(&none, &T);
        assert_eq!((between.observed, between.idle), (50, 0));
    }

    #[test]
    fn a_period_that_began_after_the_time_of_the_reading_belongs_to_the_next() {
        let mut kernel = Kernel::new();
        let start = kernel.read(1000);
        kernel.begin(2010);
        let first = kernel.read(2000);
        assert_eq!(first.since(&start, &T).idle, 0);
        kernel.end(2050);
        assert_eq!(kernel.read(3000).since(&first, &T).idle, 40);
    }

    proptest! {
        /// Readings at any times add up to what one reading over all of it has.
        #[test]
        fn idle_time_is_neither_lost_nor_counted_twice(
            steps in prop::collection::vec((1_u64..5_000_000, 1_u64..5_000_000, prop::bool::ANY, prop::bool::ANY), 1..60)
        ) {
            let mut kernel = Kernel::new();
            let mut now = 1000;
            let start = kernel.read(now);
            let mut before = start.clone();
            let (mut idle, mut sum, mut observed) = (0, 0, 0);
            for (sleep, work, read_asleep, read_awake) in steps {
                kernel.begin(now + 1);
                now += 1 + sleep;
                idle += sleep;
                if read_asleep {
                    let reading = kernel.read(now);
                    let between = reading.since(&before, &T);
                    sum += between.idle;
                    observed += between.observed;
                    before = reading;
                    now += 10;
                    idle += 10;
                }
                kernel.end(now);
                now += work;
                if read_awake {
                    let reading = kernel.read(now);
                    let between = reading.since(&before, &T);
                    prop_assert!(between.longer[0] <= between.idle && between.idle <= between.observed);
                    sum += between.idle;
                    observed += between.observed;
                    before = reading;
                }
            }
            let last = kernel.read(now + 1);
            let between = last.since(&before, &T);
            prop_assert_eq!(sum + between.idle, idle);
            prop_assert_eq!(observed + between.observed, now + 1 - 1000);
            prop_assert_eq!(last.since(&start, &T).idle, idle);
        }
    }
}
