//! Demand that a balancer holds back: it comes to no accept queue, where demand is counted, as long as it waits in the balancer, and never
//! where it is turned away there.

/// What is held back, from period to period.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeldBack {
    /// Requests that waited when that was last told.
    waiting: u64,
    /// The seconds since.
    untold_s: f64,
}

impl HeldBack {
    /// Takes a period of so many seconds, and the requests that were turned away, or left by themselves, since this was last told and those
    /// that wait now, where it is told. How many a second came and are in no accept queue; below 0 where more that had waited came to one. What was not
    /// told comes with what is told next.
    pub fn observe(&mut self, length_s: f64, told: Option<(u64, u64)>) -> f64 {
        self.untold_s += length_s.max(0.0);
        let Some((gone, waiting)) = told.filter(|_| self.untold_s > 0.0) else {
            return 0.0;
        };
        let before = std::mem::replace(&mut self.waiting, waiting);
        let held = (gone + waiting) as f64 - before as f64;
        held / std::mem::take(&mut self.untold_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_demand_once_wherever_it_comes_to() {
        let mut held = HeldBack::default();
        assert_eq!(held.observe(1.0, Some((0, 0))), 0.0);
        // 100/s more than the servers take: they wait, then some are turned away.
        assert_eq!(held.observe(1.0, Some((0, 100))), 100.0);
        assert_eq!(held.observe(1.0, Some((80, 120))), 100.0);
        // A period that was not told is in the next.
        assert_eq!(held.observe(1.0, None), 0.0);
        assert_eq!(held.observe(1.0, Some((200, 120))), 100.0);
        // Those that waited come to the accept queues, and are counted there.
        assert_eq!(held.observe(0.5, Some((0, 20))), -200.0);
        assert_eq!(held.observe(0.0, Some((0, 20))), 0.0);
    }

    #[test]
    fn who_leaves_by_itself_is_demand_as_who_is_turned_away() {
        let mut held = HeldBack::default();
        // 50/s come and wait for two seconds; then 30/s of them leave, and 20/s are turned away.
        let said =
            [(0, 50), (0, 100), (30 + 20, 100), (30 + 20, 100)].map(|told| held.observe(1.0, Some(told)));
        assert_eq!(said, [50.0; 4]);
    }
}
