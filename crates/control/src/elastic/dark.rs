//! What is decided where the load is not seen: nothing is known of it, or no server takes requests.

use super::{Counts, Elastic};
use crate::resize::Resize;

impl Elastic {
    /// Nothing can be decided: hold, and after a while everything on.
    pub(super) fn blind(&mut self, now_s: f64, counts: Counts, all: usize, what: &str) -> Resize {
        let since_s = *self.blind_since_s.get_or_insert(now_s);
        let blind_s = now_s - since_s;
        // Of a trial nobody knows how it goes: its server comes back.
        self.break_off();
        let numbers = [("blind_s", blind_s)];
        if blind_s <= self.tuning.blind_s {
            let text = format!("{what} for {blind_s:.1} s: {} servers as before", self.target);
            return self.answer(self.target, counts, all, "blind-hold", text, &numbers);
        }
        let text = format!("{what} for {blind_s:.1} s: all {all} servers on");
        self.answer(all, counts, all, "blind-full", text, &numbers)
    }

    /// No server takes requests. That nothing arrives at any is not that nobody comes: as many as what came before needs, at once.
    pub(super) fn outage(
        &mut self,
        (now_s, clock_s): (f64, f64),
        arriving: f64,
        counts: Counts,
        order: &[usize],
    ) -> Resize {
        self.blind_since_s = None;
        self.break_off();
        let all = order.len();
        let Some((at_s, came)) = self.load.came() else {
            // A controller that begins in an outage: whoever comes is refused, and nobody knows how many they are.
            let text =
                format!("no server takes requests, and nothing is known of what came before: all {all}");
            let numbers = [("arrival_rate_per_s", arriving)];
            return self.answer(all, counts, all, "outage", text, &numbers);
        };
        let expected = self
            .load
            .unseen(came, clock_s, self.boot_s, self.rarely())
            .max(arriving);
        let needed = self.takes.needed(expected, order, &self.tuning).max(self.target);
        let ago_s = now_s - at_s;
        let text = format!(
            "no server takes requests, {came:.1}/s came {ago_s:.0} s ago and {expected:.1} may come: {needed} servers, {} on their way",
            counts.booting
        );
        let numbers = [
            ("arrival_rate_per_s", arriving),
            ("came_per_s", came),
            ("expected_per_s", expected),
            ("ago_s", ago_s),
            ("booting", counts.booting as f64),
        ];
        self.answer(needed, counts, all, "outage", text, &numbers)
    }
}
