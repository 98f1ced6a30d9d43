//! Who comes for the first time, among the attempts to connect that an accept queue counts.
//!
//! A SYN that is dropped comes again: its client's kernel sends it anew after times that are known. So the attempts of an overloaded
//! server are many times what is asked of it (100 a second read as 600). Each period's attempts are split by how often they were made
//! before: of the x_k(t) that are made for the (k+1)th time the share D(t) / A(t) that was dropped comes again as x_{k+1}(t + w_k), for a full
//! queue drops whoever comes. A(t) and D(t) are counted, the waits w_k are the kernel's.
//!
//! What is left of A(t), less all who come again, is the rate of those who come for the first time and noise. To take it as it is would
//! feed its noise back (the inverse of a long sum), so the rate is filtered: a random walk, whose jumps are found by what its noise cannot make.

use std::collections::VecDeque;

/// What clients may do whose attempt was dropped: the times between their attempts, seconds. That is chosen by which what comes was foreseen
/// best; among equals the first.
const SCHEDULES: [&[f64]; 4] = [
    // Linux from 6.5 on, where tcp_syn_linear_timeouts is 4 (ip-sysctl).
    &[1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
    // The same where a balancer gives up the connection after its usual 5 s, and begins anew.
    &[1.0, 1.0, 1.0, 1.0],
    // Linux before: RFC 6298, doubled each time.
    &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
    // They go.
    &[],
];
/// The longest schedule.
const MAX_ATTEMPTS: usize = 11;
/// After so many seconds without a drop a third is left of how badly a schedule foresaw what came.
const JUDGED_S: f64 = 300.0;
/// One period that a schedule did not foresee at all counts as much; what noise does, a deviation, counts nothing.
const MAX_SURPRISE: f64 = 16.0;
const NOISE: f64 = 1.0;
/// By so much another schedule must have foreseen it better to be gone by.
const CLEARLY: f64 = 6.0;

/// Attempts that will be made again.
#[derive(Clone, Copy, Debug)]
struct Returning {
    /// Between these times, evenly.
    from_s: f64,
    to_s: f64,
    /// How often they were made before.
    before: usize,
    /// How many.
    count: f64,
}

/// How fast the rate of first attempts may drift: its deviation after a second, as a share of itself.
const DRIFT: f64 = 0.05;
/// How far those who are expected to come again may be off, as a share of them: clients that give up, and other kernels.
const MODEL_ERROR: f64 = 0.03;
/// What is off by more than so many of its deviations is a jump.
const JUMP: f64 = 4.0;

/// The first attempts at one accept queue, if clients come again by one schedule.
#[derive(Clone, Debug)]
struct Scheduled {
    waits_s: &'static [f64],
    returning: VecDeque<Returning>,
    /// First attempts a second, and the variance of that; none before the first period.
    rate: Option<(f64, f64)>,
    /// How far what came was from what it foresaw, in squares of what counts deviate by.
    surprise: f64,
}

impl Scheduled {
    /// How many of a period's attempts were made for the first time.
    fn observe(&mut self, (from_s, to_s): (f64, f64), attempts: f64, drops: f64) -> f64 {
        let length_s = to_s - from_s;
        let mut made = [0.0; MAX_ATTEMPTS];
        for returning in &self.returning {
            let within_s = returning.to_s.min(to_s) - returning.from_s.max(from_s);
            if within_s > 0.0 {
                made[returning.before] += returning.count * within_s / (returning.to_s - returning.from_s);
            }
        }
        self.returning.retain(|returning| returning.to_s > to_s);
        let again: f64 = made.iter().sum();
        let first = self.filter(length_s, attempts, again);
        made[0] = first;
        if drops > 0.0 {
            let dropped = drops / attempts;
            for (before, wait_s) in self.waits_s.iter().enumerate() {
                let count = made[before] * dropped;
                if count > 1e-3 {
                    self.returning.push_back(Returning {
                        from_s: from_s + wait_s,
                        to_s: to_s + wait_s,
                        before: before + 1,
                        count,
                    });
                }
            }
        }
        first
    }

    /// First attempts of a period, by those that were made at all and those that are expected to have been made before.
    fn filter(&mut self, length_s: f64, attempts: f64, again: f64) -> f64 {
        let left = (attempts - again) / length_s;
        let (rate, variance) = self.rate.unwrap_or((left.max(0.0), left.abs()));
        // All schedules are judged by the same noise: the smaller one's is no merit.
        let common =
            attempts + rate * length_s + (MODEL_ERROR * attempts).powi(2) + (DRIFT * rate).powi(2) + 1.0;
        let off = left - rate;
        // What noise does is no surprise.
        let beyond = (off * length_s).powi(2) / common - NOISE;
        self.surprise += beyond.clamp(0.0, MAX_SURPRISE) * length_s.min(1.0);
        let variance = variance + (DRIFT * rate).powi(2) * length_s;
        let noise = (rate * length_s + again + (MODEL_ERROR * again).powi(2)) / (length_s * length_s);
        let variance = match off.abs() > JUMP * (variance + noise).sqrt() {
            true => off * off,
            false => variance,
        };
        let gain = if again < 1e-9 {
            1.0
        } else {
            variance / (variance + noise)
        };
        let rate = (rate + gain * off).max(0.0);
        self.rate = Some((
            rate,
            (1.0 - gain) * variance + if again < 1e-9 { noise } else { 0.0 },
        ));
        (rate * length_s).min(attempts)
    }
}

/// The first attempts at one accept queue.
#[derive(Clone, Debug)]
pub struct FirstAttempts {
    now_s: f64,
    /// The schedule that is gone by.
    chosen: usize,
    schedules: [Scheduled; SCHEDULES.len()],
}

impl Default for FirstAttempts {
    fn default() -> Self {
        Self {
            now_s: 0.0,
            chosen: 0,
            schedules: SCHEDULES.map(|waits_s| Scheduled {
                waits_s,
                returning: VecDeque::new(),
                rate: None,
                surprise: 0.0,
            }),
        }
    }
}

impl FirstAttempts {
    /// Takes what was counted over a period of this length: attempts, and those of them that were dropped. How many of them were made
    /// for the first time.
    pub fn observe(&mut self, length_s: f64, attempts: f64, drops: f64) -> f64 {
        if length_s <= 0.0 {
            return 0.0;
        }
        let period = (self.now_s, self.now_s + length_s);
        self.now_s = period.1;
        let drops = drops.clamp(0.0, attempts);
        let mut firsts = [0.0; SCHEDULES.len()];
        for (first, schedule) in firsts.iter_mut().zip(&mut self.schedules) {
            *first = schedule.observe(period, attempts, drops);
            if drops <= 0.0 {
                schedule.surprise *= (-length_s / JUDGED_S).exp();
            }
        }
        let surprise = |at: usize| self.schedules[at].surprise;
        let best = (0..SCHEDULES.len()).fold(
            0,
            |best, at| if surprise(at) < surprise(best) { at } else { best },
        );
        if surprise(best) + CLEARLY < surprise(self.chosen) {
            self.chosen = best;
        }
        firsts[self.chosen]
    }

    /// Nothing is known of what came before, as after a time in which the queue could not be read.
    pub fn forget(&mut self) {
        for schedule in &mut self.schedules {
            schedule.returning.clear();
            schedule.rate = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients at `rate` before a queue that lets `taken` in, each of whom comes again by this schedule: what was found of the last half of
    /// the time, and what was counted.
    fn overloaded(waits_s: &[f64], rate: f64, taken: f64, seconds: usize) -> (f64, f64) {
        let mut first = FirstAttempts::default();
        let mut due = vec![[0.0_f64; MAX_ATTEMPTS]; seconds + 40];
        let (mut found, mut counted) = (0.0, 0.0);
        for second in 0..seconds {
            // Before the overload there is a time without one.
            due[second][0] += if second < 10 { 0.8 * taken } else { rate };
            let attempts: f64 = due[second].iter().sum();
            let drops = (attempts - taken).max(0.0);
            let share = if attempts > 0.0 { drops / attempts } else { 0.0 };
            for (before, wait_s) in waits_s.iter().enumerate() {
                let at = second + *wait_s as usize;
                if at < due.len() {
                    due[at][before + 1] += due[second][before] * share;
                }
            }
            let observed = first.observe(1.0, attempts, drops);
            if second >= seconds / 2 {
                found += observed;
                counted += attempts;
            }
        }
        let half = (seconds - seconds / 2) as f64;
        (found / half, counted / half)
    }

    #[test]
    fn who_comes_again_is_not_counted_twice_whatever_kernel_sends_it() {
        for (at, waits_s) in SCHEDULES.into_iter().enumerate() {
            for seconds in [24, 60, 240] {
                let (found, counted) = overloaded(waits_s, 100.0, 60.0, seconds);
                // In so mild an overload schedules are hard to tell from each other: who gives up after 5 s, or comes again later each
                // time, is taken for one of the first schedule, and a third or a quarter is missed.
                let within = [0.1, 0.35, 0.25, 0.1][at];
                assert!(
                    (found / 100.0 - 1.0).abs() < within,
                    "{waits_s:?}, {seconds} s: {found} of 100, {counted} attempts"
                );
            }
        }
        assert!(overloaded(SCHEDULES[0], 100.0, 60.0, 240).1 > 250.0);
    }

    #[test]
    fn without_drops_all_come_for_the_first_time() {
        let mut first = FirstAttempts::default();
        assert_eq!(first.observe(1.0, 50.0, 0.0), 50.0);
        assert_eq!(first.observe(0.7, 35.0, 0.0), 35.0);
        assert_eq!(first.observe(0.0, 0.0, 0.0), 0.0);
    }

    #[test]
    fn clients_that_give_up_are_not_waited_for() {
        let mut first = FirstAttempts::default();
        // All are dropped and nobody comes again; who comes later is new.
        first.observe(1.0, 100.0, 100.0);
        assert_eq!(first.observe(1.0, 0.0, 0.0), 0.0);
        (0..80).for_each(|_| _ = first.observe(1.0, 0.0, 0.0));
        assert_eq!(first.observe(1.0, 40.0, 0.0), 40.0);
        first.observe(1.0, 100.0, 100.0);
        first.forget();
        assert_eq!(first.observe(1.0, 90.0, 0.0), 90.0);
    }
}
