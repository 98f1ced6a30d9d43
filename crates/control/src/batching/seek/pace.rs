//! How long settling and measuring take: a response that was held is seen when it is answered, so both follow the mean response time.

use super::tuning::{MIN_PAIRS, SeekTuning};

/// Mean response times after which what is answered was held as is wanted: an interval of up to one, and the response.
const SETTLES: f64 = 2.0;
/// Mean response times that are then measured, so that what is still in flight at the ends of a block is a small part of it.
const MEASURED: f64 = 4.0;
/// How many times as long patient blocks settle.
const PATIENT: u32 = 7;
/// Blocks are measured for this share of that or more, and less than the second: those of a search, and those of the check of what it
/// found, which so is not in step with it.
pub(super) const SEARCHES: (f64, f64) = (1.0, 1.75);
pub(super) const CHECKS: (f64, f64) = (1.75, 2.5);
/// The most periods that the shortest comparison may take: two hours and three quarters of seconds.
pub(super) const LONGEST: f64 = 10_000.0;

/// How long things take, in periods, as far as is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Until what is held is answered: the mean response time.
    pub(super) lag: f64,
    /// Periods after a change that do not count.
    pub(super) settle: u32,
    /// The fewest periods of a block that count.
    pub(super) measured: u32,
    /// Requests answered in a period; 0 before that is known.
    pub(super) requests: f64,
    /// How much longer a block is than one that need not wait for responses.
    pub(super) stretch: f64,
}

impl Pace {
    /// For a mean response time of so many periods, with the shortest blocks.
    pub(super) fn of(lag: f64, tuning: &SeekTuning) -> Self {
        let settle = tuning.settle_periods.max((SETTLES * lag).ceil() as u32);
        let measured = tuning.block_periods.max((MEASURED * lag).ceil() as u32);
        let least = f64::from(tuning.settle_periods + tuning.block_periods);
        Self {
            lag,
            settle,
            measured,
            requests: 0.0,
            stretch: (f64::from(settle) + f64::from(measured)) / least,
        }
    }

    /// The same with blocks that are measured for so many times as long.
    pub(super) fn scaled(&self, times: u32) -> Self {
        self.with(self.settle, self.measured.saturating_mul(times))
    }

    /// The same with blocks that settle for so long that what an interval changes by and by is there.
    pub(super) fn patient(&self) -> Self {
        self.with(self.settle.saturating_mul(PATIENT), self.measured)
    }

    fn with(&self, settle: u32, measured: u32) -> Self {
        let block = |settle: u32, measured: u32| f64::from(settle) + f64::from(measured);
        Self {
            settle,
            measured,
            stretch: self.stretch * block(settle, measured) / block(self.settle, self.measured),
            ..*self
        }
    }

    /// Periods in which as many requests are answered as are in flight: from then on what is answered tells something.
    pub(super) fn answered(&self) -> u32 {
        (self.lag.ceil() as u32).max(1)
    }

    /// Periods of a block of a search, in the mean.
    pub(super) fn block(&self) -> f64 {
        f64::from(self.settle) + f64::from(self.measured) * 0.5 * (SEARCHES.0 + SEARCHES.1)
    }

    /// Periods whose requests the longest block with another interval holds: all of its own, whenever they are answered, and what may be
    /// in flight besides.
    pub(super) fn holds(&self, shares: (f64, f64)) -> f64 {
        f64::from(self.settle) + f64::from(self.measured) * shares.1 + self.lag
    }

    /// The fewest periods of a comparison whose blocks each cost this share of a period's response times in every period: those of the
    /// blocks, or those in which the budget for them comes together.
    pub(super) fn comparison(&self, share: f64, budget: f64) -> f64 {
        f64::from(MIN_PAIRS) * self.block() * (share / budget).max(2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_the_response_and_are_never_shorter_than_configured() {
        let tuning = SeekTuning::default();
        let pace = |lag| Pace::of(lag, &tuning);
        assert_eq!((pace(0.0).settle, pace(0.0).measured), (1, 4));
        assert_eq!((pace(0.5).settle, pace(0.5).measured), (1, 4));
        assert_eq!((pace(30.0).settle, pace(30.0).measured), (60, 120));
        assert_eq!((pace(0.0).stretch, pace(30.0).stretch), (1.0, 36.0));
        // Three pairs of blocks; with a hundredth of the budget what a block costs takes longer to come together.
        assert_eq!(pace(30.0).comparison(0.015, 0.01), 3.0 * 2.0 * 225.0);
        assert_eq!(pace(0.0).comparison(0.015, 0.0001), 3.0 * 150.0 * 6.5);
    }

    #[test]
    fn longer_blocks_settle_as_long_and_no_block_of_a_check_is_as_long_as_one_of_a_search() {
        let pace = Pace::of(2.0, &SeekTuning::default());
        let longer = pace.scaled(4);
        assert_eq!((longer.settle, longer.measured), (pace.settle, 4 * pace.measured));
        assert_eq!(longer.stretch, pace.stretch * 36.0 / 12.0);
        assert_eq!(longer.holds(SEARCHES), 4.0 + 32.0 * 1.75 + 2.0);
        assert!(SEARCHES.1 <= CHECKS.0);
    }
}
