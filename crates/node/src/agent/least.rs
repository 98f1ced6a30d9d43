//! The least that a node ever accepts, as its own configuration sets it, whoever asks.

use headroom_units::{Gives, Lever, LeverRange, Setting};
use headroom_wire::Refusal;
use headroom_wire::message::Ranges;

/// The value of each lever beyond which nobody takes from the service; a lever without one has the machine's own end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Least(pub Setting);

impl Least {
    /// Ranges that end at the least. Where the machine has less than that, what it has is accepted and nothing below.
    pub(super) fn bound(&self, ranges: Ranges) -> Ranges {
        ranges.map(|lever, range| match self.0.get(lever) {
            Some(least) => bounded(lever, range, least),
            None => range,
        })
    }

    /// Whether a setting has the least of everything; `ranges` end there.
    pub(super) fn check(&self, setting: &Setting, ranges: &Ranges) -> Result<(), Refusal> {
        for (lever, asked) in setting.iter() {
            let (Some(least), Some(range)) = (self.0.get(lever), ranges.get(lever)) else {
                continue;
            };
            let (end, beyond) = match lever.info().gives {
                Gives::Higher => (range.min, asked < range.min),
                Gives::Lower => (range.max, asked > range.max),
            };
            if beyond {
                return Err(Refusal::NotAllowed {
                    field: lever.name().into(),
                    value: asked.to_string(),
                    allowed: format!(
                        "this node's configuration sets limits.{lever} = {least}, so that {end} is the least"
                    ),
                });
            }
        }
        Ok(())
    }
}

/// A range that ends at a least: at a multiple of its step, since what is commanded is rounded down to one.
fn bounded(lever: Lever, range: LeverRange, least: f64) -> LeverRange {
    // A multiple that differs by rounding alone is one.
    let whole = |round: fn(f64) -> f64, dust: f64| match range.step > 0.0 {
        true => round(least / range.step + dust) * range.step,
        false => least,
    };
    match lever.info().gives {
        Gives::Higher => LeverRange {
            min: range.min.max(whole(f64::ceil, -1e-9)).min(range.max),
            ..range
        },
        Gives::Lower => LeverRange {
            max: range.max.min(whole(f64::floor, 1e-9)).max(range.min),
            ..range
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::says;
    use headroom_wire::message::NoLever;
    use proptest::prelude::*;

    fn ranges() -> Ranges {
        let none = NoLever {
            reason: "no meter".into(),
            remedy: String::new(),
        };
        Ranges::default()
            .with(Lever::Cores, Ok(LeverRange::between(0.1, 4.0)))
            .with(Lever::Cap, Err(none))
            .with(Lever::Frequency, Ok(LeverRange::between(0.8e9, 3.0e9)))
    }

    #[test]
    fn less_than_the_least_is_refused_with_the_key_that_sets_it() {
        let least = Least(Setting::from([
            (Lever::Cores, 0.5),
            (Lever::Cap, 30.0),
            (Lever::Frequency, 1.2e9),
        ]));
        let bounded = least.bound(ranges());
        assert_eq!(bounded.get(Lever::Cores).unwrap().min, 0.5);
        assert_eq!(bounded.get(Lever::Cap), None);
        let ask = |cores: f64, hertz: f64| {
            let setting = Setting::from([(Lever::Cores, cores), (Lever::Frequency, hertz)]);
            least
                .check(&setting, &bounded)
                .map_err(|refusal| refusal.to_string())
        };
        assert_eq!(ask(0.5, 1.2e9), Ok(()));
        let words = ask(0.2, 1.2e9).unwrap_err();
        says(&words, &["cores \"0.2\"", "limits.cores = 0.5"]);
        let words = ask(0.5, 1.1e9).unwrap_err();
        assert!(words.contains("limits.frequency = 1200000000"), "{words}");
    }

    #[test]
    fn a_machine_that_has_less_gives_all_that_it_has() {
        let least = Least(Setting::from([(Lever::Cores, 8.0)]));
        let cores = least.bound(ranges()).get(Lever::Cores).unwrap();
        assert_eq!((cores.min, cores.max), (4.0, 4.0));
    }

    proptest! {
        #[test]
        fn what_a_bounded_range_accepts_is_never_less_after_rounding_down(
            least in 0.0..4.0f64, step in prop_oneof![Just(0.0), Just(0.1), Just(0.25), Just(1.0)], share in 0.0..1.0f64,
        ) {
            let range = LeverRange { step, ..LeverRange::between(0.1, 4.0) };
            let ends = bounded(Lever::Cores, range, least);
            prop_assert!(ends.min >= range.min && ends.min <= ends.max);
            let asked = ends.min + (ends.max - ends.min) * share;
            let kept = if step > 0.0 { ((asked / step) + 1e-9).floor() * step } else { asked };
            prop_assert!(kept >= least - 1e-6, "{} of {}", kept, least);
        }
    }
}
