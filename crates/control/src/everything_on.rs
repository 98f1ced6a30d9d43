//! How often periods are late with everything on: the one permission to be late more often than asked, since no lever helps then.

/// Periods in a row with everything on before they count: the first still answer what was left over when less was on.
pub(crate) const SETTLED_AFTER: u32 = 3;
/// The weight of the newest period in what everything on was observed to do.
const FORGET: f64 = 1.0 / 2000.0;

/// What everything on was observed to do, which no lever can better. Nothing of it is a model's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EverythingOn {
    /// Late periods and all periods, fading.
    late: f64,
    periods: f64,
}

impl EverythingOn {
    /// Takes a period with everything on: whether it was late.
    pub(crate) fn observe(&mut self, late: bool) {
        self.late = self.late * (1.0 - FORGET) + f64::from(u8::from(late));
        self.periods = self.periods * (1.0 - FORGET) + 1.0;
    }

    /// The share of periods that may be late where so many are asked for at most: that, or what everything on was observed to be
    /// late at least, by Wilson's lower bound at two standard deviations.
    pub(crate) fn rate(&self, asked: f64) -> f64 {
        let Self { late, periods } = *self;
        if periods < 1.0 {
            return asked;
        }
        let share = late / periods;
        let z = 2.0;
        let centre = share + z * z / (2.0 * periods);
        let width = z * (share * (1.0 - share) / periods + z * z / (4.0 * periods * periods)).sqrt();
        let least = (centre - width) / (1.0 + z * z / periods);
        asked.max(least).min(0.5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allowed_is_what_was_asked_until_everything_on_is_late_more_often_beyond_doubt() {
        let mut full = EverythingOn::default();
        assert_eq!(full.rate(0.005), 0.005);
        full.observe(true);
        assert!(
            full.rate(0.005) < 0.25,
            "one period proves little: {}",
            full.rate(0.005)
        );
        for period in 0..1000 {
            full.observe(period % 10 == 0);
        }
        assert!((0.08..0.1).contains(&full.rate(0.005)), "{}", full.rate(0.005));
        for _ in 0..20_000 {
            full.observe(false);
        }
        assert_eq!(full.rate(0.005), 0.005, "what was long ago is forgotten");
    }
}
