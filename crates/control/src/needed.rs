//! How many servers were needed within the time that a boot is worth.

use std::collections::VecDeque;

/// What was needed over the last periods: a server goes only when it was not needed for as long as its absence must last to
/// be worth a boot (the ski-rental rule, at most twice the least energy of a server whatever comes, as long as that time is what a boot is
/// worth; Gandhi et al., "AutoScale", 2012). Who asks with a longer time, out of patience after a server that went too early, or drains one
/// on trial, gives that bound up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Needed {
    /// Period and number, falling from the oldest.
    most: VecDeque<(u64, usize)>,
}

impl Needed {
    /// Nothing yet.
    pub(crate) const fn new() -> Self {
        Self {
            most: VecDeque::new(),
        }
    }

    /// Takes what a period needs; the most that was needed within so many periods.
    pub(crate) fn observe(&mut self, period: u64, needed: usize, within: u64) -> usize {
        while self.most.back().is_some_and(|(_, last)| *last <= needed) {
            self.most.pop_back();
        }
        self.most.push_back((period, needed));
        while self
            .most
            .front()
            .is_some_and(|(at, _)| at.saturating_add(within) < period)
        {
            self.most.pop_front();
        }
        self.most.front().map_or(needed, |(_, most)| *most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_goes_only_after_it_was_not_needed_for_a_while() {
        let mut needed = Needed::default();
        assert_eq!(needed.observe(0, 4, 3), 4);
        assert_eq!(needed.observe(1, 2, 3), 4);
        assert_eq!(needed.observe(3, 1, 3), 4);
        assert_eq!(needed.observe(4, 1, 3), 2);
        assert_eq!(needed.observe(5, 1, 3), 1);
        assert_eq!(needed.observe(6, 5, 3), 5);
    }
}
