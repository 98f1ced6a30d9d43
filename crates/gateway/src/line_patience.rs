//! How long requests may wait for a backend below its limit, where their clients wait for less than `timeouts.queue_timeout_ms`.
//!
//! The line is first come, first served. Under an overload its first has waited for nearly as long as one may; where clients leave before
//! they are answered after that, backends work for those that are about to leave, and nobody is answered for as long as the overload
//! lasts. So fewer are let wait for long while clients leave that had waited for long, and who has waited is told in time that there is no
//! room. That is forgotten in a minute. Whether a client that has closed its side has left shows when it is sent its answer: its machine then
//! resets the connection, and acknowledges nothing.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::config::ms;
use crate::core::Core;
use crate::watch::Watch;

/// Who has waited for this part of what one may, and leaves, may have left for it.
const LONG: f64 = 0.25;
/// Who has waited for longer than this part of it came when one might: what becomes of it shows nothing of what one may now.
const LONGER: f64 = 1.1;
/// Clients leave because it takes too long where so large a share of those that waited for long did, and not only a few.
const LEAVE: f64 = 0.2;
const MORE_THAN_A_FEW: f64 = 3.0;
/// The time over which they are counted, in seconds.
const LEAVE_S: f64 = 3.0;
/// By so much less is let wait each time.
const LESS: f64 = 0.8;
/// The time in which it is forgotten by a factor of e, in seconds.
const FORGET_S: f64 = 30.0;
/// Less than this part of what is configured is never learned: who leaves after that leaves for another reason, or to have others turned
/// away.
const LEAST: f64 = 0.1;

#[derive(Debug, Clone, Copy)]
struct Learned {
    at: Instant,
    /// Of what is configured.
    part: f64,
    /// Those that had waited for long, and left or were answered, in the last seconds.
    left: f64,
    answered: f64,
}

/// What one core has learned of its clients.
#[derive(Debug, Default)]
pub(crate) struct LinePatience(Cell<Option<Learned>>);

impl LinePatience {
    /// What was learned, as far as it holds now.
    fn now(&self, now: Instant) -> Learned {
        let Some(known) = self.0.get() else {
            return Learned {
                at: now,
                part: 1.0,
                left: 0.0,
                answered: 0.0,
            };
        };
        let passed_s = now.saturating_duration_since(known.at).as_secs_f64();
        let kept = (-passed_s / LEAVE_S).exp();
        Learned {
            at: now,
            part: (known.part * (passed_s / FORGET_S).exp()).min(1.0),
            left: known.left * kept,
            answered: known.answered * kept,
        }
    }

    /// For how long one may wait, of what is configured.
    pub(crate) fn limit(&self, configured: Duration, now: Instant) -> Duration {
        configured.mul_f64(self.now(now).part)
    }

    /// One that waited for so long was answered, or left before it was.
    pub(crate) fn ended(&self, waited: Duration, configured: Duration, left: bool, now: Instant) {
        let mut learned = self.now(now);
        let one_may = configured.mul_f64(learned.part);
        if waited < one_may.mul_f64(LONG) || waited > one_may.mul_f64(LONGER) {
            return;
        }
        match left {
            true => learned.left += 1.0,
            false => learned.answered += 1.0,
        }
        let all = learned.left + learned.answered;
        if learned.left >= MORE_THAN_A_FEW && learned.left >= LEAVE * all {
            learned.part = (learned.part * LESS).max(LEAST);
            (learned.left, learned.answered) = (0.0, 0.0);
        }
        self.0.set(Some(learned));
    }
}

/// A request that waits for a backend, or did. Dropped before what became of it is said, its client has left.
pub(crate) struct Waited {
    core: Option<Rc<Core>>,
    watch: Rc<Watch>,
    since: Instant,
    /// For how long, where it waits no more.
    waited: Option<Duration>,
}

impl Waited {
    /// It begins to wait, for as long as it may.
    pub(crate) fn begin(core: &Rc<Core>, watch: &Rc<Watch>) -> (Self, Duration) {
        let since = Instant::now();
        let waits = Self {
            core: Some(Rc::clone(core)),
            watch: Rc::clone(watch),
            since,
            waited: None,
        };
        (waits, core.line_patience.limit(configured(core), since))
    }

    /// Its turn has come.
    pub(crate) fn has_turn(&mut self) {
        self.waited = Some(self.since.elapsed());
    }

    /// It is answered; where its client has closed its side it is yet to be seen whether it is there.
    pub(crate) fn answered(mut self) {
        match self.waited.filter(|_| self.watch.is_half_closed()) {
            Some(waited) => {
                self.watch.set_waited(waited);
                self.core = None;
            }
            None => self.ended(false),
        }
    }

    /// What becomes of it says nothing of its client's patience.
    pub(crate) fn says_nothing(mut self) {
        self.core = None;
    }

    fn ended(&mut self, left: bool) {
        if let Some(core) = self.core.take() {
            let waited = self.waited.unwrap_or_else(|| self.since.elapsed());
            ended(&core, waited, left);
        }
    }
}

impl Drop for Waited {
    fn drop(&mut self) {
        // One that the gateway gave up had to go.
        if self.watch.expired() {
            self.core = None;
        }
        self.ended(true);
    }
}

/// A request that waited for so long was answered, or its client had left.
pub(crate) fn ended(core: &Core, waited: Duration, left: bool) {
    core.line_patience
        .ended(waited, configured(core), left, Instant::now());
}

fn configured(core: &Core) -> Duration {
    ms(core.config.timeouts.queue_timeout_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn it_is_less_while_clients_leave_that_waited_for_long_and_grows_again() {
        let (patience, start) = (LinePatience::default(), Instant::now());
        let limit = |after| patience.limit(SECOND, start + after).as_millis();
        assert_eq!(limit(Duration::ZERO), 1_000);
        // Those had not waited for long.
        (0..50).for_each(|_| patience.ended(SECOND / 5, SECOND, true, start));
        assert_eq!(limit(Duration::ZERO), 1_000);
        // A few of many, and then a fifth.
        (0..80).for_each(|_| patience.ended(SECOND / 2, SECOND, false, start));
        (0..19).for_each(|_| patience.ended(SECOND / 2, SECOND, true, start));
        assert_eq!(limit(Duration::ZERO), 1_000);
        patience.ended(SECOND / 2, SECOND, true, start);
        assert_eq!(limit(Duration::ZERO), 800);
        // What is long is so by what may be waited now.
        (0..3).for_each(|_| patience.ended(SECOND * 2 / 5, SECOND, true, start));
        assert_eq!(limit(Duration::ZERO), 640);
        assert!((limit(SECOND * 6) as f64 / 640.0 - 0.2_f64.exp()).abs() < 0.01);
        assert_eq!(limit(SECOND * 60), 1_000);
        // Those came when one might wait for longer.
        (0..50).for_each(|_| patience.ended(SECOND, SECOND, true, start));
        assert_eq!(limit(Duration::ZERO), 640);
        for _ in 0..200 {
            patience.ended(patience.limit(SECOND, start), SECOND, true, start);
        }
        assert_eq!(limit(Duration::ZERO), 100);
    }

    /// How many a second are answered of 60 that come to a server of 25 with four workers. Clients that reset are seen to leave while they
    /// wait; those that close are not, and known by their half-closed connection when they are answered.
    fn answered_per_s(patience_ms: u64, learns: bool, resets: bool) -> f64 {
        let (patience, start) = (LinePatience::default(), Instant::now());
        let wait = Duration::from_millis(patience_ms);
        let (mut line, mut sent) = (
            VecDeque::<Duration>::new(),
            Vec::<(Duration, Duration, Option<Duration>)>::new(),
        );
        let mut answered = 0;
        for step_ms in (0..60_000).step_by(4) {
            let now = Duration::from_millis(step_ms);
            let at = start + now;
            let limit = match learns {
                true => patience.limit(SECOND, at),
                false => SECOND,
            };
            if step_ms % 16 == 0 {
                line.push_back(now);
            }
            line.retain(|came| {
                let has_left = resets && now - *came >= wait;
                if has_left {
                    patience.ended(now - *came, SECOND, true, at);
                }
                !has_left && now - *came < limit
            });
            for (came, _, waited) in &mut sent {
                if now - *came >= wait
                    && let Some(waited) = waited.take()
                {
                    patience.ended(waited, SECOND, true, at);
                }
            }
            // Who has left is worked on all the same, and its place is taken until then.
            sent.retain(|(came, until, waited)| {
                let (is_done, is_there) = (*until <= now, now - *came < wait);
                if is_done && is_there {
                    answered += u32::from(step_ms >= 30_000);
                    waited
                        .iter()
                        .for_each(|waited| patience.ended(*waited, SECOND, false, at));
                }
                !is_done
            });
            while sent.len() < 4
                && let Some(came) = line.pop_front()
            {
                sent.push((came, now + Duration::from_millis(160), Some(now - came)));
            }
        }
        f64::from(answered) / 30.0
    }

    #[test]
    fn clients_that_wait_for_less_than_one_may_wait_here_are_answered() {
        for (patience_ms, resets) in [300, 400, 600, 900]
            .into_iter()
            .flat_map(|one| [(one, true), (one, false)])
        {
            assert_eq!(answered_per_s(patience_ms, false, resets), 0.0, "{patience_ms}");
            let learned = answered_per_s(patience_ms, true, resets);
            assert!(learned > 20.0, "{patience_ms}: {learned}");
        }
        assert!(answered_per_s(1_500, true, true) > 24.0);
    }
}
