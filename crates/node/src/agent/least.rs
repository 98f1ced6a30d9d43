//! The least that a node ever accepts, as its own configuration sets it, whoever asks.

use super::machine::Ranges;
use headroom_units::{Cores, Hertz, Watts};
use headroom_wire::Refusal;
use headroom_wire::message::{Allocation, Range};

/// The least of each part of an allocation; `None` is what the machine can.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Least {
    /// Cores.
    pub cores: Option<Cores>,
    /// The power cap.
    pub cap: Option<Watts>,
    /// The limit on the frequency.
    pub frequency: Option<Hertz>,
}

impl Least {
    /// Ranges that begin at the least. Where the machine has less than that, what it has is accepted and nothing below.
    pub(super) fn raise(&self, mut ranges: Ranges) -> Ranges {
        let parts = [
            (&mut ranges.cores, self.cores.map(Cores::get)),
            (&mut ranges.cap, self.cap.map(Watts::get)),
            (&mut ranges.frequency, self.frequency.map(Hertz::get)),
        ];
        for (range, least) in parts {
            if let (Ok(range), Some(least)) = (range, least) {
                *range = raised(*range, least);
            }
        }
        ranges
    }

    /// Whether an allocation has the least of everything; `ranges` begin there.
    pub(super) fn check(&self, allocation: &Allocation, ranges: &Ranges) -> Result<(), Refusal> {
        let parts = [
            (
                "cores",
                "cores_min",
                allocation.cores.map(Cores::get),
                self.cores.map(Cores::get),
                &ranges.cores,
                1.0,
            ),
            (
                "cap_w",
                "cap_min_w",
                allocation.cap.map(Watts::get),
                self.cap.map(Watts::get),
                &ranges.cap,
                1.0,
            ),
            (
                "frequency_hz",
                "frequency_min_mhz",
                allocation.frequency.map(Hertz::get),
                self.frequency.map(Hertz::get),
                &ranges.frequency,
                1e6,
            ),
        ];
        for (field, key, asked, least, range, unit) in parts {
            let (Some(asked), Some(least), Ok(range)) = (asked, least, range) else {
                continue;
            };
            if asked < range.minimum {
                return Err(Refusal::NotAllowed {
                    field: field.into(),
                    value: asked.to_string(),
                    allowed: format!(
                        "this node's configuration sets limits.{key} = {}, so that {} is the least",
                        least / unit,
                        range.minimum
                    ),
                });
            }
        }
        Ok(())
    }
}

/// A range from a least on: from the next multiple of its step, since what is asked for is rounded down to one.
fn raised(range: Range, least: f64) -> Range {
    let least = match range.step > 0.0 {
        // A multiple that differs by rounding alone is one.
        true => (least / range.step - 1e-9).ceil() * range.step,
        false => least,
    };
    Range {
        minimum: range.minimum.max(least).min(range.maximum),
        ..range
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::NoLever;
    use super::*;
    use proptest::prelude::*;

    fn ranges() -> Ranges {
        let none = NoLever {
            reason: "no meter".into(),
            remedy: String::new(),
        };
        Ranges {
            cores: Ok(Range::new(0.1, 4.0)),
            cap: Err(none),
            frequency: Ok(Range::new(0.8e9, 3.0e9)),
        }
    }

    #[test]
    fn less_than_the_least_is_refused_with_the_key_that_sets_it() {
        let least = Least {
            cores: Some(Cores::new(0.5)),
            cap: Some(Watts::new(30.0)),
            frequency: Some(Hertz::new(1.2e9)),
        };
        let raised = least.raise(ranges());
        assert_eq!(raised.cores.as_ref().unwrap().minimum, 0.5);
        assert!(raised.cap.is_err());
        let ask = |cores: f64, hertz: f64| {
            let allocation = Allocation {
                cores: Some(Cores::new(cores)),
                cap: None,
                frequency: Some(Hertz::new(hertz)),
            };
            least
                .check(&allocation, &raised)
                .map_err(|refusal| refusal.to_string())
        };
        assert_eq!(ask(0.5, 1.2e9), Ok(()));
        let words = ask(0.2, 1.2e9).unwrap_err();
        assert!(
            words.contains("cores \"0.2\"") && words.contains("limits.cores_min = 0.5"),
            "{words}"
        );
        let words = ask(0.5, 1.1e9).unwrap_err();
        assert!(words.contains("limits.frequency_min_mhz = 1200"), "{words}");
    }

    #[test]
    fn a_machine_that_has_less_gives_all_that_it_has() {
        let least = Least {
            cores: Some(Cores::new(8.0)),
            ..Least::default()
        };
        let cores = least.raise(ranges()).cores.unwrap();
        assert_eq!((cores.minimum, cores.maximum), (4.0, 4.0));
    }

    proptest! {
        #[test]
        fn what_a_raised_range_accepts_is_never_less_after_rounding_down(
            least in 0.0..4.0f64, step in prop_oneof![Just(0.0), Just(0.1), Just(0.25), Just(1.0)], share in 0.0..1.0f64,
        ) {
            let range = Range { minimum: 0.1, maximum: 4.0, step };
            let raised = raised(range, least);
            prop_assert!(raised.minimum >= range.minimum && raised.minimum <= raised.maximum);
            let asked = raised.minimum + (raised.maximum - raised.minimum) * share;
            let kept = if step > 0.0 { ((asked / step) + 1e-9).floor() * step } else { asked };
            prop_assert!(kept >= least - 1e-6, "{} of {}", kept, least);
        }
    }
}
