//! A cap that the hardware holds: what it is commanded, and whether it does that.
//!
//! The caller's cap is on what the meter reports; the hardware's limit is on the packages. The rest (memory, fans, what
//! else the meter counts) is measured and subtracted, so that the same cap means the same whatever holds it.

use super::law::Binding;
use crate::limit::{CapBounds, CapInForce, HardwareCap, LeverKind, PowerLimitError};
use headroom_units::{Seconds, Watts};

/// The time constant with which power is followed, seconds: counters are updated in steps, and a short interval between
/// two readings holds sometimes one more and sometimes one less.
const TAU_S: f64 = 1.0;
/// A limit is moved where it would differ by so much from what was asked for last: the larger of both.
const MOVE_W: f64 = 0.5;
const MOVE_SHARE: f64 = 0.01;
/// How often somebody else's writes are looked for, seconds.
const LOOK_S: f64 = 1.0;
/// Packages that draw so much more than their limit for so long, after it has settled, are not held by it.
const INERT_SHARE: f64 = 1.1;
const INERT_W: f64 = 1.0;
const INERT_S: f64 = 2.0;
/// From this share of the cap on, the cap is what holds the machine: frequencies come in steps, so hardware stays under
/// its limit by up to one.
const AT_CAP: f64 = 0.95;
/// The least that the packages are asked to keep to, however much the rest draws.
const MIN_W: f64 = 1.0;

/// What one step found.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Nothing to say.
    Holds,
    /// The packages draw more than their limit: it does nothing.
    Inert {
        /// The limit.
        limit: Watts,
        /// What they draw.
        packages: Watts,
    },
}

/// A hardware lever in use.
#[derive(Debug)]
pub(super) struct Hardware {
    lever: Box<dyn HardwareCap>,
    cap: Option<Watts>,
    /// What the meter counts beside the packages.
    rest: Option<Watts>,
    /// What the meter counts, and of that the packages.
    measured: Option<Watts>,
    packages: Option<Watts>,
    asked: Option<Watts>,
    in_force: Option<CapInForce>,
    since_set_s: f64,
    since_look_s: f64,
    over_s: f64,
    said_inert: bool,
}

impl Hardware {
    pub(super) fn new(lever: Box<dyn HardwareCap>) -> Self {
        Self {
            lever,
            cap: None,
            rest: None,
            measured: None,
            packages: None,
            asked: None,
            in_force: None,
            since_set_s: 0.0,
            since_look_s: 0.0,
            over_s: 0.0,
            said_inert: false,
        }
    }

    pub(super) fn kind(&self) -> LeverKind {
        self.lever.kind()
    }

    /// The caps that can be held, as the meter will report them.
    pub(super) fn bounds(&self) -> CapBounds {
        let CapBounds { smallest, largest } = self.lever.bounds();
        let rest = self.rest.unwrap_or_default();
        CapBounds {
            smallest: smallest + rest,
            largest: largest + rest,
        }
    }

    /// The limit in force on the packages together; nothing without a cap.
    pub(super) fn limit(&self) -> Option<Watts> {
        self.cap
            .and(self.in_force.as_ref())
            .map(|in_force| in_force.limit)
    }

    /// What is in force of a cap, as the meter reports it, where somebody else's limit is left alone.
    pub(super) fn held_cap(&self) -> Option<Watts> {
        let in_force = self.in_force.as_ref().filter(|in_force| in_force.held)?;
        Some(in_force.limit + self.rest.unwrap_or_default())
    }

    /// Holds a cap from now on; nothing lifts it.
    pub(super) fn hold(&mut self, cap: Option<Watts>) -> Result<CapInForce, PowerLimitError> {
        self.cap = cap;
        if cap.is_none() {
            // Without a cap nobody looks: what was measured is old when the next one comes.
            (self.measured, self.packages) = (None, None);
        }
        self.set(self.wanted())
    }

    fn set(&mut self, asked: Option<Watts>) -> Result<CapInForce, PowerLimitError> {
        let in_force = self.lever.set(asked)?;
        let before = self.in_force.as_ref().map(|in_force| in_force.limit);
        // What was lowered takes its time to take hold; a limit that was raised held already.
        if before.is_none_or(|before| in_force.limit < before - Watts::new(MOVE_W)) {
            (self.since_set_s, self.over_s) = (0.0, 0.0);
        }
        self.asked = asked;
        self.since_look_s = 0.0;
        self.in_force = Some(in_force.clone());
        Ok(in_force)
    }

    fn wanted(&self) -> Option<Watts> {
        let rest = self.rest.unwrap_or_default();
        self.cap.map(|cap| (cap - rest).max(Watts::new(MIN_W)))
    }

    /// One step of the loop. What was found of others' writes is in the answer where a limit was set anew.
    pub(super) fn step(
        &mut self,
        measured: Option<Watts>,
        packages: Option<Watts>,
        dt: Seconds,
    ) -> Result<(Option<CapInForce>, Verdict), PowerLimitError> {
        let dt_s = dt.get().max(0.0);
        let weight = 1.0 - (-dt_s / TAU_S).exp();
        let follow = |mean: Option<Watts>, now: Watts| {
            let mean = mean.unwrap_or(now);
            Some(mean + (now - mean) * weight)
        };
        if let Some((measured, packages)) = measured.zip(packages) {
            self.rest = follow(self.rest, (measured - packages).max(Watts::ZERO));
            self.measured = follow(self.measured, measured);
            self.packages = follow(self.packages, packages);
        }
        self.since_set_s += dt_s;
        self.since_look_s += dt_s;
        let moved = match (self.wanted(), self.asked) {
            (Some(wanted), Some(asked)) => {
                (wanted - asked).get().abs() > MOVE_W.max(MOVE_SHARE * asked.get())
            }
            (wanted, asked) => wanted.is_some() != asked.is_some(),
        };
        let set = match moved {
            true => Some(self.set(self.wanted())?),
            false if self.since_look_s >= LOOK_S => Some(self.set(self.asked)?),
            false => None,
        };
        Ok((set, self.verdict(dt_s)))
    }

    fn verdict(&mut self, dt_s: f64) -> Verdict {
        let (Some(limit), Some(packages)) = (self.limit(), self.packages) else {
            return Verdict::Holds;
        };
        let settled = self.since_set_s >= self.lever.settles().get();
        match settled && packages > limit * INERT_SHARE + Watts::new(INERT_W) {
            true => self.over_s += dt_s,
            false => self.over_s = 0.0,
        }
        if packages <= limit {
            self.said_inert = false;
        }
        if self.over_s < INERT_S || std::mem::replace(&mut self.said_inert, true) {
            return Verdict::Holds;
        }
        Verdict::Inert { limit, packages }
    }

    /// What holds the machine back.
    pub(super) fn binding(&self) -> Binding {
        let (Some(cap), Some(wanted)) = (self.cap, self.wanted()) else {
            return Binding::Allocation;
        };
        if wanted < self.lever.bounds().smallest {
            return Binding::Floor;
        }
        match self.measured.is_some_and(|measured| measured >= cap * AT_CAP) {
            true => Binding::Cap,
            false => Binding::Allocation,
        }
    }

    /// Puts back what was found.
    pub(super) fn restore(mut self) -> Vec<crate::restore::Outcome> {
        self.lever.restore()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A lever that takes every limit within its bounds.
    #[derive(Debug)]
    struct Lever {
        limit: Option<Watts>,
    }

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
            Seconds::new(2.0)
        }

        fn set(&mut self, cap: Option<Watts>) -> Result<CapInForce, PowerLimitError> {
            let CapBounds { smallest, largest } = self.bounds();
            self.limit = cap.map(|cap| cap.clamp(smallest, largest));
            Ok(CapInForce {
                limit: self.limit.unwrap_or(largest),
                zones: Vec::new(),
                bounded: None,
                foreign: Vec::new(),
                held: false,
            })
        }

        fn foreign_writes(&mut self) -> Result<Vec<crate::panel::ForeignWrite>, PowerLimitError> {
            Ok(Vec::new())
        }

        fn restore(&mut self) -> Vec<crate::restore::Outcome> {
            Vec::new()
        }
    }

    fn hardware() -> Hardware {
        Hardware::new(Box::new(Lever { limit: None }))
    }

    const STEP: Seconds = Seconds::new(0.05);

    /// So many steps of a machine whose packages want `demand` and whose rest draws `rest`; the first verdict against
    /// the lever and when.
    fn run(hardware: &mut Hardware, works: bool, demand: f64, rest: f64, steps: usize) -> Option<usize> {
        (0..steps).find(|_| {
            let limit = hardware.limit().unwrap_or(Watts::new(1e3)).get();
            let packages = Watts::new(if works { demand.min(limit) } else { demand });
            let step = hardware.step(Some(packages + Watts::new(rest)), Some(packages), STEP);
            matches!(step.unwrap().1, Verdict::Inert { .. })
        })
    }

    #[test]
    fn the_packages_get_what_the_rest_leaves_of_the_cap() {
        let mut hardware = hardware();
        hardware.hold(Some(Watts::new(80.0))).unwrap();
        assert_eq!(
            hardware.limit(),
            Some(Watts::new(80.0)),
            "the rest is not known yet"
        );
        assert_eq!(run(&mut hardware, true, 95.0, 12.0, 200), None);
        let limit = hardware.limit().unwrap().get();
        assert!((limit - 68.0).abs() <= 0.7, "{limit} W");
        assert_eq!(hardware.binding(), Binding::Cap);
        assert_eq!(hardware.bounds().smallest, Watts::new(32.0));
        hardware.hold(None).unwrap();
        assert_eq!(
            (hardware.limit(), hardware.binding()),
            (None, Binding::Allocation)
        );
    }

    #[test]
    fn a_limit_that_does_nothing_is_found_out_once_and_only_after_it_had_its_time() {
        let mut hardware = hardware();
        hardware.hold(Some(Watts::new(50.0))).unwrap();
        let found = run(&mut hardware, false, 90.0, 4.0, 1_000).unwrap() as f64 * STEP.get();
        assert!((3.5..8.0).contains(&found), "after {found} s");
        assert_eq!(run(&mut hardware, false, 90.0, 4.0, 1_000), None, "said once");
    }

    #[test]
    fn a_cap_under_what_the_hardware_holds_is_its_floor() {
        let mut hardware = hardware();
        hardware.hold(Some(Watts::new(5.0))).unwrap();
        assert_eq!(
            (hardware.binding(), hardware.limit()),
            (Binding::Floor, Some(Watts::new(20.0)))
        );
    }

    proptest! {
        #[test]
        fn whatever_is_measured_the_limit_stays_within_the_bounds_and_under_the_cap(
            caps in proptest::collection::vec(1.0..300.0f64, 1..5),
            seen in proptest::collection::vec(
                (proptest::option::of(0.0..500.0f64), proptest::option::of(0.0..500.0f64), 0.0..3.0f64), 1..60),
        ) {
            let mut hardware = hardware();
            for cap in caps {
                hardware.hold(Some(Watts::new(cap))).unwrap();
                for (measured, packages, dt) in &seen {
                    let (measured, packages) = (measured.map(Watts::new), packages.map(Watts::new));
                    hardware.step(measured, packages, Seconds::new(*dt)).unwrap();
                    let limit = hardware.limit().unwrap();
                    prop_assert!(limit >= Watts::new(20.0) && limit <= Watts::new(cap.max(20.0)), "{limit} at {cap}");
                }
            }
        }
    }
}
