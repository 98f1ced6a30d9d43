//! How often periods may be late, kept whatever the model believes.
//!
//! Four things, each of which the model cannot talk its way around:
//!
//! - **Caution**, in ln of the percentile, by adaptive conformal control with a fixed error rate (Gibbs and Candès, "Adaptive
//!   conformal inference under distribution shift", 2021; Angelopoulos, Candès and Tibshirani, "Conformal PID control for
//!   time series prediction", 2023): each period that is late adds a step, each that is not takes the step's share back. As
//!   long as it is within its bounds the share of late periods over n periods is at most the rate asked for plus
//!   (bound / step) / n. It never falls below zero: a model is not made bolder for having been too careful.
//! - **A rate that everything on was observed to have.** Where even with everything on more periods are late than asked, the
//!   rate is what was observed then, by its lower confidence bound, at such a load or less, and never what a model says.
//! - **One budget.** What is late although everything is on, which nothing helps, is late all the same: it is taken off what may be
//!   late at other loads. So an overload of an hour is not paid for a second time in the calm hours.
//! - **Retreat**: two bets against "late at most at twice the rate" are kept as wealth (Ramdas et al., "Game-theoretic
//!   statistics and safe anytime-valid inference", 2023): a high stake, which finds several late periods among a few, and a low
//!   one, which finds a rate of some times what is asked over hundreds. Late periods come in runs, as what one leaves over is
//!   answered late in the next: the high stake is on what begins them, a run that lasts counts for less. Where one passes its
//!   bound the model is not to be trusted: everything goes on for a while, longer each time. Wealth never falls below one, so that a good hour buys no bad
//!   minute: these are detectors that are started anew, and now and then one raises a false alarm (where exactly half a
//!   percent of the periods are late, by chance, about once in 8,000).

use crate::everything_on::EverythingOn;
use crate::observation::Traffic;

/// What a late period adds to the caution.
const STEP: f64 = 0.25;
/// The share of the rate that is aimed at: what caution cannot help, and the time that it takes to grow, come on top.
const AIM: f64 = 0.8;
/// The most caution: a percentile eight times that of the model.
const MAX_CAUTION: f64 = 2.1;
/// Stakes, as the share of the wealth that a period in time loses, and the wealth at which the model is given up. The lower is
/// about what is best where four times the rate asked are late.
const BURST: f64 = 0.5;
const MAX_OF_BURST: f64 = 140.0;
/// How often a period after a late one is late too, of one cause.
const RUN: f64 = 0.5;
const MAX_OF_RATE: f64 = 1000.0;
/// The first retreat, and the longest, in periods.
const FIRST_RETREAT: u32 = 30;
const MAX_RETREAT: u32 = 960;
/// What the model expected, and what came, in late periods: so many of each are supposed beforehand, the memory of them, and the
/// least that is believed of a model that expects too many.
const SUPPOSED: (f64, f64) = (4.0, 1.2);
const JUDGED: f64 = 1.0 / 8000.0;
const LEAST_TRUTH: f64 = 0.2;
/// What a period takes away of what is remembered of periods that were late whatever was on: as slowly as what everything on did
/// expires.
const EXCUSES_FORGET: f64 = 1.0 / 20_000.0;
/// Of what is late whatever is on, the share that may be late beside it where that is all that is asked and more.
const BESIDE: f64 = 0.1;
/// Periods without retreat after which the next is as short as the first.
const FORGIVEN: u32 = 4 * MAX_RETREAT;

/// The keeper of the SLO.
#[derive(Clone, Debug)]
pub(super) struct Keeper {
    /// The share of periods that may be late.
    asked: f64,
    caution: f64,
    full: EverythingOn,
    /// Periods that were late whatever was on, and all, fading.
    excused: (f64, f64),
    /// Of the bet on bursts, and of that on the rate.
    wealth: [f64; 2],
    was_late: bool,
    /// Late periods that were expected, and that came.
    expected: f64,
    came: f64,
    retreat: u32,
    next_retreat: u32,
    since_retreat: u32,
}

impl Keeper {
    pub(super) fn new(asked: f64) -> Self {
        Self {
            asked,
            caution: 0.0,
            full: EverythingOn::default(),
            excused: (0.0, 1.0 / asked.max(1e-6)),
            wealth: [1.0; 2],
            was_late: false,
            expected: SUPPOSED.0,
            came: SUPPOSED.1,
            retreat: 0,
            next_retreat: FIRST_RETREAT,
            since_retreat: 0,
        }
    }

    /// What is added to the ln of the percentile.
    pub(super) const fn caution(&self) -> f64 {
        self.caution
    }

    /// Periods for which everything stays on.
    pub(super) const fn retreat(&self) -> u32 {
        self.retreat
    }

    /// The share of periods of this load that may be late: what everything on is late there, where that is more than asked; else what is
    /// left of what is asked.
    pub(super) fn rate(&self, load: f64) -> f64 {
        match self.full.rate(self.asked, load) {
            observed if observed > self.asked => observed,
            _ => self.left(),
        }
    }

    /// What is left of the share asked for when what was late whatever was on is taken off.
    fn left(&self) -> f64 {
        let excused = self.excused.0 / self.excused.1;
        (self.asked - excused).max(BESIDE * excused).min(self.asked)
    }

    /// As [`EverythingOn::load_of`].
    pub(super) fn load_of(&mut self, traffic: &Traffic, leaves: f64, length: f64) -> f64 {
        self.full.load_of(traffic, leaves, length)
    }

    /// Takes how probable it was that a period is late, and whether it was.
    pub(super) fn judge(&mut self, expected: f64, late: bool) {
        let fade = |sum: &mut f64, supposed: f64, more: f64| *sum += JUDGED * (supposed - *sum) + more;
        fade(&mut self.expected, SUPPOSED.0, expected);
        fade(&mut self.came, SUPPOSED.1, f64::from(u8::from(late)));
    }

    /// How much of what the model says of lateness comes true; one at most.
    pub(super) fn truth(&self) -> f64 {
        (self.came / self.expected).clamp(LEAST_TRUTH, 1.0)
    }

    /// Takes a period that says nothing of what the machine's levers did.
    pub(super) const fn pass(&mut self) {
        self.retreat = self.retreat.saturating_sub(1);
    }

    /// Takes a period of this load: whether it was late, and whether everything was on in it.
    pub(super) fn observe(&mut self, load: f64, late: bool, everything_on: bool) {
        let error = f64::from(u8::from(late));
        self.full.observe(load, everything_on.then_some(late));
        let rate = self.rate(load);
        let is_excused = late && (everything_on || rate > self.asked);
        self.excused.0 += f64::from(u8::from(is_excused)) - EXCUSES_FORGET * self.excused.0;
        self.excused.1 += 1.0 - EXCUSES_FORGET * self.excused.1;
        self.caution = (self.caution + STEP * (error - AIM * rate)).clamp(0.0, MAX_CAUTION);
        self.retreat = self.retreat.saturating_sub(1);
        let in_run = std::mem::replace(&mut self.was_late, late);
        if everything_on {
            return;
        }
        self.since_retreat = self.since_retreat.saturating_add(1);
        if self.since_retreat > FORGIVEN {
            self.next_retreat = FIRST_RETREAT;
        }
        let twice = 2.0 * rate;
        // Where runs of late periods begin so often, and last so long, twice the rate are late.
        let expected = match in_run {
            true => RUN.max(twice),
            false => twice * (1.0 - RUN),
        };
        let bets = [(BURST / expected, expected), (1.0, twice)];
        for (wealth, (stake, expected)) in self.wealth.iter_mut().zip(bets) {
            *wealth = (*wealth * (1.0 + stake * (error - expected))).max(1.0);
        }
        if self.wealth[0] > MAX_OF_BURST || self.wealth[1] > MAX_OF_RATE {
            self.wealth = [1.0; 2];
            self.retreat = self.next_retreat;
            self.next_retreat = (2 * self.next_retreat).min(MAX_RETREAT);
            self.since_retreat = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LOAD: f64 = 100.0;

    #[test]
    fn late_periods_make_it_careful_at_once_and_calm_ones_slowly_less_so() {
        let mut keeper = Keeper::new(0.005);
        keeper.observe(LOAD, true, false);
        assert!(keeper.caution() > 0.24);
        for _ in 0..100 {
            keeper.observe(LOAD, false, false);
        }
        assert!((0.1..0.15).contains(&keeper.caution()), "{}", keeper.caution());
        for _ in 0..200 {
            keeper.observe(LOAD, false, false);
        }
        assert_eq!(keeper.caution(), 0.0);
    }

    #[test]
    fn a_model_that_is_wrong_again_and_again_is_given_up_for_longer_each_time() {
        let mut keeper = Keeper::new(0.005);
        let mut lengths = Vec::new();
        for period in 0..2000 {
            let before = keeper.retreat();
            keeper.observe(LOAD, before == 0 && period % 3 == 0, before > 0);
            if before == 0 && keeper.retreat() > 0 {
                lengths.push(keeper.retreat());
            }
        }
        assert!(
            lengths.len() >= 3 && lengths.windows(2).all(|two| two[1] >= two[0]),
            "{lengths:?}"
        );
        assert_eq!(lengths[..2], [30, 60]);
    }

    #[test]
    fn a_run_of_late_periods_is_one_event_where_many_may_be_late() {
        let retreats_after = |asked: f64| {
            let mut keeper = Keeper::new(asked);
            (1..100).find(|_| {
                keeper.observe(LOAD, true, false);
                keeper.retreat() > 0
            })
        };
        assert_eq!(retreats_after(0.005), Some(2));
        assert!((5..10).contains(&retreats_after(0.05).unwrap()));
        // Two runs soon after each other are two events.
        let mut keeper = Keeper::new(0.05);
        for late in [true, true, true, false, true, true] {
            keeper.observe(LOAD, late, false);
        }
        assert!(keeper.retreat() > 0);
    }

    #[test]
    fn a_rate_of_many_times_what_is_asked_is_found_however_even_it_is() {
        for every in [7, 12, 25] {
            let mut keeper = Keeper::new(0.005);
            let found = (0..3000).find(|period| {
                keeper.observe(LOAD, period % every == 0, false);
                keeper.retreat() > 0
            });
            assert!(found.is_some(), "one of {every} periods late is never found");
        }
        // What is asked for is no reason.
        let mut keeper = Keeper::new(0.005);
        for period in 0..100_000 {
            keeper.observe(LOAD, period % 200 == 0, false);
            assert_eq!(keeper.retreat(), 0);
        }
    }

    #[test]
    fn only_what_everything_on_was_observed_to_do_relaxes_the_rate() {
        let mut keeper = Keeper::new(0.005);
        for _ in 0..500 {
            keeper.observe(LOAD, true, false);
        }
        assert_eq!(keeper.rate(LOAD), 0.005);
        for period in 0..1000 {
            keeper.observe(LOAD, period % 10 == 0, true);
        }
        assert!((0.08..0.12).contains(&keeper.rate(LOAD)), "{}", keeper.rate(LOAD));
    }

    #[test]
    fn what_nothing_helps_is_taken_off_what_may_be_late_at_other_loads() {
        let mut keeper = Keeper::new(0.05);
        // Of 2,000 periods 80 of overload, all of them late with everything on.
        for period in 0..6000 {
            let overload = period % 2000 >= 1920;
            keeper.observe(if overload { 5.0 * LOAD } else { LOAD }, overload, overload);
        }
        let calm = keeper.rate(LOAD);
        assert!(
            (0.008..0.013).contains(&calm),
            "4 of 5 percent are used up: {calm}"
        );
        assert!(keeper.rate(5.0 * LOAD) > 0.4);
        // Where it is all used up a little is left, as the SLO allows a fifth more than everything on.
        let mut keeper = Keeper::new(0.02);
        for period in 0..6000 {
            let overload = period % 2000 >= 1920;
            keeper.observe(if overload { 5.0 * LOAD } else { LOAD }, overload, overload);
        }
        assert!(
            (0.003..0.005).contains(&keeper.rate(LOAD)),
            "{}",
            keeper.rate(LOAD)
        );
    }

    proptest! {
        /// The long-run guarantee, for any world: where caution is honoured within its bounds, no sequence of periods is late
        /// more often than asked by more than bound over step over n.
        #[test]
        fn no_sequence_is_late_more_often_than_asked(threshold in 0.05..(MAX_CAUTION - STEP), seed in any::<u64>()) {
            let mut keeper = Keeper::new(0.01);
            let (mut state, mut late) = (seed, 0);
            let periods = 5000;
            for _ in 0..periods {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // A world that is late whenever the law is less careful than it asks, which drifts.
                let needed = threshold * ((state >> 33) as f64 / f64::from(1u32 << 31));
                let is_late = keeper.retreat() == 0 && keeper.caution() < needed;
                late += u32::from(is_late);
                keeper.observe(LOAD, is_late, keeper.retreat() > 0);
            }
            let bound = 0.01 + MAX_CAUTION / STEP / f64::from(periods) + 1.0 / f64::from(periods);
            prop_assert!(f64::from(late) / f64::from(periods) <= bound, "{late}");
        }
    }
}
