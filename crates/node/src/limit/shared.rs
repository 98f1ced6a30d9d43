//! One power limit of the machine for all services that this process controls.
//!
//! A hardware limit holds the whole machine, so of several services none may set it alone. Each has a [`Shared`] handle
//! with a wish, and in force is what leaves every one its own: the machine's base once, and what each service was given
//! above it. While one of them wishes no cap there is none.

use super::{CapBounds, CapInForce, HardwareCap, LeverKind, PowerLimitError, check};
use crate::order::Word;
use crate::panel::ForeignWrite;
use crate::restore::{Outcome, Registry};
use crate::sharing::{Member, Sharing};
use headroom_units::{Seconds, Watts};
use std::path::Path;

/// A service's cap, as its model of the machine states it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Wish {
    /// What the machine draws before any service runs.
    base: Watts,
    cap: Option<Watts>,
}

/// The cap in force for all wishes; `None` where one of them is for none.
fn together(wishes: &[Wish]) -> Option<Watts> {
    let mut base = Watts::ZERO;
    let mut above = Watts::ZERO;
    let mut highest = Watts::ZERO;
    for wish in wishes {
        let cap = wish.cap?;
        base = base.max(wish.base);
        above += (cap - wish.base).max(Watts::ZERO);
        highest = highest.max(cap);
    }
    // A service is never held under its own cap by a neighbour's.
    (!wishes.is_empty()).then(|| (base + above).max(highest))
}

static SHARING: Sharing<Box<dyn HardwareCap>, Wish> = Sharing::new();

/// One service's part in a limit on the packages. Dropped, its wish goes with it, and with the last one the lever, which
/// then puts back what it found.
#[derive(Debug)]
pub(super) struct Shared {
    member: Member<Box<dyn HardwareCap>, Wish>,
    base: Watts,
    kind: LeverKind,
}

impl Shared {
    /// A part in the limit of this kind on this machine, which is opened where nobody in this process has it yet.
    pub(super) fn join(
        kind: LeverKind,
        sys: &Path,
        registry: &Registry,
        base: Watts,
        open: impl FnOnce() -> Result<Box<dyn HardwareCap>, PowerLimitError>,
    ) -> Result<Self, PowerLimitError> {
        let member = SHARING.join(kind.as_str(), sys, registry, Wish { base, cap: None }, open)?;
        Ok(Self { member, base, kind })
    }
}

impl HardwareCap for Shared {
    fn kind(&self) -> LeverKind {
        self.kind
    }

    fn bounds(&self) -> CapBounds {
        self.member.with(|lever, _| lever.bounds())
    }

    fn settles(&self) -> Seconds {
        self.member.with(|lever, _| lever.settles())
    }

    fn set(&mut self, cap: Option<Watts>) -> Result<CapInForce, PowerLimitError> {
        let cap = cap.map(check).transpose()?;
        let base = self.base;
        self.member.wish(Wish { base, cap }, |lever, wishes| {
            let bounds = lever.bounds();
            let beyond = cap.is_some_and(|cap| cap < bounds.smallest || cap > bounds.largest);
            let in_force = lever.set(together(wishes))?;
            Ok(CapInForce {
                // Of what this service asked for: that a sum is beyond the bounds is nobody's mistake.
                bounded: beyond.then_some(bounds),
                ..in_force
            })
        })
    }

    fn look(&mut self) -> Result<Vec<ForeignWrite>, PowerLimitError> {
        self.member.with(|lever, _| lever.look())
    }

    fn restore(&mut self) -> Vec<Outcome> {
        self.member.leave(|lever, wishes| match together(wishes) {
            None if wishes.is_empty() => lever.restore(),
            cap => {
                if let Err(error) = lever.set(cap) {
                    tracing::warn!("the power limit of the services that go on could not be set: {error}");
                }
                Vec::new()
            }
        })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for outcome in self.restore() {
            if !outcome.is_clean() {
                tracing::warn!("{outcome}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::{Arc, Mutex};

    fn wish(base: f64, cap: Option<f64>) -> Wish {
        Wish {
            base: Watts::new(base),
            cap: cap.map(Watts::new),
        }
    }

    #[test]
    fn the_base_counts_once_and_each_service_has_its_own_above_it() {
        assert_eq!(together(&[]), None);
        assert_eq!(together(&[wish(40.0, Some(60.0))]), Some(Watts::new(60.0)));
        let both = [wish(40.0, Some(60.0)), wish(40.0, Some(55.0))];
        assert_eq!(together(&both), Some(Watts::new(75.0)));
        assert_eq!(together(&[wish(40.0, Some(60.0)), wish(40.0, None)]), None);
        // A cap under the base, and bases that contradict each other, hold nobody under its own.
        let odd = [wish(40.0, Some(30.0)), wish(10.0, Some(70.0))];
        assert_eq!(together(&odd), Some(Watts::new(100.0)));
    }

    proptest! {
        #[test]
        fn nobody_is_held_under_its_own_cap_and_one_more_service_never_lowers_it(
            wishes in proptest::collection::vec((0.0..100.0f64, 1.0..300.0f64), 1..8),
        ) {
            let wishes: Vec<Wish> = wishes.iter().map(|(base, cap)| wish(*base, Some(*cap))).collect();
            let all = together(&wishes).unwrap();
            for one in &wishes {
                prop_assert!(all >= one.cap.unwrap());
            }
            if let Some(fewer) = together(&wishes[1..]) {
                prop_assert!(all.get() >= fewer.get() - 1e-9);
            }
        }
    }

    /// What was done to a lever.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Done {
        Set(Option<Watts>),
        Restored,
    }

    #[derive(Clone, Debug)]
    struct Lever(Arc<Mutex<Vec<Done>>>);

    impl HardwareCap for Lever {
        fn kind(&self) -> LeverKind {
            LeverKind::Rapl
        }

        fn bounds(&self) -> CapBounds {
            CapBounds {
                smallest: Watts::new(20.0),
                largest: Watts::new(100.0),
            }
        }

        fn settles(&self) -> Seconds {
            Seconds::new(1.0)
        }

        fn set(&mut self, cap: Option<Watts>) -> Result<CapInForce, PowerLimitError> {
            self.0.lock().unwrap().push(Done::Set(cap));
            Ok(CapInForce {
                limit: cap.unwrap_or(Watts::new(100.0)),
                zones: Vec::new(),
                bounded: None,
                foreign: Vec::new(),
                held: false,
            })
        }

        fn look(&mut self) -> Result<Vec<ForeignWrite>, PowerLimitError> {
            Ok(Vec::new())
        }

        fn restore(&mut self) -> Vec<Outcome> {
            self.0.lock().unwrap().push(Done::Restored);
            Vec::new()
        }
    }

    #[test]
    fn services_share_one_lever_which_is_put_back_with_the_last() {
        let registry = Registry::new();
        let written = Arc::new(Mutex::new(Vec::new()));
        let opened = Arc::new(Mutex::new(0));
        let join = || {
            Shared::join(
                LeverKind::Rapl,
                Path::new("/sys"),
                &registry,
                Watts::new(10.0),
                || {
                    *opened.lock().unwrap() += 1;
                    Ok(Box::new(Lever(Arc::clone(&written))))
                },
            )
            .unwrap()
        };
        let (mut one, mut other) = (join(), join());
        assert_eq!(*opened.lock().unwrap(), 1);
        let watts = |watts: f64| Some(Watts::new(watts));
        one.set(watts(30.0)).unwrap();
        other.set(watts(15.0)).unwrap();
        let held = one.set(watts(25.0)).unwrap();
        assert_eq!((held.limit, held.bounded), (Watts::new(30.0), None));
        assert!(
            other.set(watts(15.0)).unwrap().bounded.is_some(),
            "its own ask is too low"
        );
        drop(one);
        drop(other);
        let caps = [None, watts(35.0), watts(30.0), watts(30.0), watts(15.0)];
        let mut expected: Vec<_> = caps.into_iter().map(Done::Set).collect();
        expected.push(Done::Restored);
        assert_eq!(*written.lock().unwrap(), expected);
        drop(join());
        assert_eq!(*opened.lock().unwrap(), 2, "opened anew after the last has gone");
    }
}
