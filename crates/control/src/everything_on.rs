//! How often periods are late with everything on: the one permission to be late more often than asked, since no lever helps then.
//!
//! It holds at the load at which it was observed. What an hour of overload did says nothing of a calm one: a law that took it
//! for all loads would give itself the permission to be late in calm hours because of the busy ones.

use crate::observation::Traffic;
use std::collections::BTreeMap;

/// Periods in a row with everything on before they count: the first still answer what was left over when less was on.
pub(crate) const SETTLED_AFTER: u32 = 3;
/// Loads whose logarithms are this near to each other are alike.
const BAND: f64 = 0.15;
/// Bands that are kept; of more the one that was seen least goes.
const MAX_BANDS: usize = 64;
/// What a period takes away of what was seen before in its own band, and of what was seen at any load: what everything on did long
/// ago is no permission either.
const FORGET: f64 = 1.0 / 2000.0;
const EXPIRE: f64 = 1.0 / 20_000.0;

/// Late periods and all periods, fading.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    late: f64,
    periods: f64,
}

impl Seen {
    /// The share of late periods at least, by Wilson's lower bound at two standard deviations.
    fn least(self) -> f64 {
        let Self { late, periods } = self;
        if periods < 1.0 {
            return 0.0;
        }
        let share = late / periods;
        let z = 2.0;
        let centre = share + z * z / (2.0 * periods);
        let width = z * (share * (1.0 - share) / periods + z * z / (4.0 * periods * periods)).sqrt();
        (centre - width) / (1.0 + z * z / periods)
    }
}

/// What everything on was observed to do, which no lever can better. Nothing of it is a model's.
#[derive(Clone, Debug, Default)]
pub(crate) struct EverythingOn {
    bands: BTreeMap<i32, Seen>,
    /// Requests that the period before left over.
    left: f64,
}

/// Requests per second that a period has to serve, with so many that are left over from before: what makes it late.
pub(crate) fn load(rate: f64, left: f64, length: f64) -> f64 {
    rate + left / length.max(1e-3)
}

fn band(load: f64) -> i32 {
    (load.clamp(1e-6, 1e12).ln() / BAND).floor() as i32
}

impl EverythingOn {
    /// The load of a period in which so many requests came and that leaves over so many; each is given once.
    pub(crate) fn load_of(&mut self, traffic: &Traffic, leaves: f64, length: f64) -> f64 {
        let left = std::mem::replace(&mut self.left, leaves);
        load(traffic.arrivals as f64 / length.max(1e-3), left, length)
    }

    /// Takes a period of this load: whether it was late, where everything was on.
    pub(crate) fn observe(&mut self, load: f64, late: Option<bool>) {
        for seen in self.bands.values_mut() {
            seen.late *= 1.0 - EXPIRE;
            seen.periods *= 1.0 - EXPIRE;
        }
        let Some(late) = late else { return };
        let seen = self.bands.entry(band(load)).or_default();
        seen.late = seen.late * (1.0 - FORGET) + f64::from(u8::from(late));
        seen.periods = seen.periods * (1.0 - FORGET) + 1.0;
        if self.bands.len() > MAX_BANDS {
            let least = self
                .bands
                .iter()
                .min_by(|a, b| a.1.periods.total_cmp(&b.1.periods));
            if let Some(band) = least.map(|(band, _)| *band) {
                self.bands.remove(&band);
            }
        }
    }

    /// The share of periods of this load that may be late where so many are asked for at most: that, or what everything on was
    /// observed to be late at least, at such a load or at any up to it.
    pub(crate) fn rate(&self, asked: f64, load: f64) -> f64 {
        let here = band(load);
        let own = self.bands.get(&here).copied().unwrap_or_default();
        let mut below = Seen::default();
        for (_, seen) in self.bands.range(..=here) {
            below.late += seen.late;
            below.periods += seen.periods;
        }
        asked.max(own.least()).max(below.least()).min(0.5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allowed_is_what_was_asked_until_everything_on_is_late_more_often_beyond_doubt() {
        let mut full = EverythingOn::default();
        assert_eq!(full.rate(0.005, 100.0), 0.005);
        full.observe(100.0, Some(true));
        let rate = full.rate(0.005, 100.0);
        assert!(rate < 0.25, "one period proves little: {rate}");
        for period in 0..1000 {
            full.observe(100.0, Some(period % 10 == 0));
        }
        let rate = full.rate(0.005, 100.0);
        assert!((0.08..0.1).contains(&rate), "{rate}");
        for _ in 0..20_000 {
            full.observe(100.0, Some(false));
        }
        assert_eq!(full.rate(0.005, 100.0), 0.005, "what was long ago is forgotten");
    }

    #[test]
    fn an_overload_is_no_permission_in_calm_hours() {
        let mut full = EverythingOn::default();
        for _ in 0..10 {
            (0..1700).for_each(|_| full.observe(25.0, Some(false)));
            (0..100).for_each(|_| full.observe(108.0, Some(true)));
        }
        assert_eq!(full.rate(0.005, 25.0), 0.005);
        assert_eq!(full.rate(0.005, 108.0), 0.5);
        assert_eq!(full.rate(0.005, 60.0), 0.005);
    }

    #[test]
    fn what_little_load_does_more_does_too() {
        let mut full = EverythingOn::default();
        (0..4000).for_each(|period| full.observe(20.0 + f64::from(period % 40), Some(period % 20 == 0)));
        let (here, more) = (full.rate(0.005, 45.0), full.rate(0.005, 90.0));
        assert!(here > 0.03 && more > 0.03, "{here} {more}");
    }

    #[test]
    fn it_expires_where_everything_is_never_on_again() {
        let mut full = EverythingOn::default();
        (0..2000).for_each(|period| full.observe(50.0, Some(period % 5 == 0)));
        assert!(full.rate(0.005, 50.0) > 0.15);
        (0..200_000).for_each(|_| full.observe(50.0, None));
        assert_eq!(full.rate(0.005, 50.0), 0.005);
    }

    #[test]
    fn bands_are_bounded() {
        let mut full = EverythingOn::default();
        (0..10_000).for_each(|step| full.observe(1.01f64.powi(step % 2000), Some(false)));
        assert!(full.bands.len() <= MAX_BANDS);
    }
}
