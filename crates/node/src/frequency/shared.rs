//! The frequency of the machine for all services that this process controls: in force is the highest that any of them
//! wishes, and no limit while one of them wishes none.

use super::{FrequencyActuator, FrequencyBounds, FrequencyError, FrequencyInForce, FrequencyMode};
use crate::Roots;
use crate::restore::{Outcome, Registry};
use crate::sharing::{Member, Sharing};
use headroom_units::Hertz;

type Wish = Option<Hertz>;

static SHARING: Sharing<FrequencyActuator, Wish> = Sharing::new();

/// The limit for all wishes.
fn together(wishes: &[Wish]) -> Option<Hertz> {
    wishes
        .iter()
        .copied()
        .reduce(|one, other| Some(one?.max(other?)))
        .flatten()
}

/// One service's part in the limit on the frequency. Dropped, its wish goes with it, and with the last one the lever, which
/// then puts back what it found.
#[derive(Debug)]
pub(crate) struct SharedFrequency(Member<FrequencyActuator, Wish>);

impl SharedFrequency {
    /// A part in the upper limit on this machine's frequency, or in its speed where the governor `userspace` was found, which is opened
    /// where nobody in this process has it yet.
    ///
    /// # Errors
    /// Those of [`FrequencyActuator::open`].
    pub(crate) fn join(roots: &Roots, registry: &Registry) -> Result<Self, FrequencyError> {
        let open = || FrequencyActuator::open(roots, FrequencyMode::of_machine(roots), &registry.shared());
        SHARING.join(&roots.sys, registry, None, open).map(Self)
    }

    /// Between which frequencies a limit can lie.
    pub(crate) fn bounds(&self) -> FrequencyBounds {
        self.0.with(|lever, _| lever.bounds())
    }

    /// The highest frequency of the hardware.
    pub(crate) fn hardware_highest(&self) -> Hertz {
        self.0.with(|lever, _| lever.hardware_highest())
    }

    /// Wishes a limit from now on, nothing for none; what is in force for all services then.
    ///
    /// # Errors
    /// Those of [`FrequencyActuator::set`].
    pub(crate) fn set(&mut self, wish: Wish) -> Result<FrequencyInForce, FrequencyError> {
        self.0.wish(wish, |lever, wishes| lever.set(together(wishes)))
    }

    /// Takes this service's wish away, and puts back what was found where it was the last; later wishes are nobody's.
    pub(crate) fn leave(&self) -> Vec<Outcome> {
        self.0.leave(|lever, wishes| {
            if wishes.is_empty() {
                return lever.restore();
            }
            if let Err(error) = lever.set(together(wishes)) {
                tracing::warn!("the frequency of the services that go on could not be set: {error}");
            }
            Vec::new()
        })
    }
}

impl Drop for SharedFrequency {
    fn drop(&mut self) {
        for outcome in self.leave().iter().filter(|outcome| !outcome.is_clean()) {
            tracing::warn!("{outcome}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_wish_is_in_force_and_one_for_no_limit_lifts_it() {
        let ghz = |ghz: f64| Some(Hertz::new(ghz * 1e9));
        assert_eq!(together(&[]), None);
        assert_eq!(together(&[ghz(1.0), ghz(2.0), ghz(1.5)]), ghz(2.0));
        assert_eq!(together(&[ghz(1.0), None]), None);
        assert_eq!(together(&[None, ghz(1.0)]), None);
    }
}
