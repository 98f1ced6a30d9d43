//! A cap that the hardware holds: what is told to it, and whether it does what it was told.
//!
//! The caller's cap is on what the meter reports; the hardware's limit is on the packages. The rest (memory, fans, what
//! else the meter counts) is measured and subtracted, so that the same cap means the same whatever holds it.

use super::law::Binding;
use crate::limit::{CapBounds, CapInForce, HardwareCap, LeverKind, PowerLimitError};
use headroom_units::{Seconds, Watts};

/// The time constant with which the rest of the machine is followed, seconds.
const REST_TAU_S: f64 = 1.0;
/// A limit is moved where it would differ by so much from what was asked for last: the larger of both.
const MOVE_W: f64 = 0.5;
const MOVE_SHARE: f64 = 0.01;
/// How often somebody else's writes are looked for, seconds.
const LOOK_S: f64 = 1.0;
/// Packages that draw so much more than their limit for so long, after it has settled, are not held by it.
const INERT_SHARE: f64 = 1.1;
const INERT_W: f64 = 1.0;
const INERT_S: f64 = 2.0;
/// From this share of the cap on, the cap is what holds the machine.
const AT_CAP: f64 = 0.97;
/// The least that the packages are asked to keep to, however much the rest draws.
const LEAST_W: f64 = 1.0;

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
        self.cap.and(self.in_force.as_ref()).map(|in_force| in_force.limit)
    }

    /// Holds a cap from now on; nothing lifts it.
    pub(super) fn hold(&mut self, cap: Option<Watts>) -> Result<CapInForce, PowerLimitError> {
        self.cap = cap;
        self.set()
    }

    fn set(&mut self) -> Result<CapInForce, PowerLimitError> {
        let asked = self.wanted();
        let in_force = self.lever.set(asked)?;
        let bounded = |asked: Option<Watts>| {
            let CapBounds { smallest, largest } = self.lever.bounds();
            asked.map(|asked| asked.clamp(smallest, largest))
        };
        if bounded(asked) != bounded(self.asked) {
            self.since_set_s = 0.0;
            self.over_s = 0.0;
        }
        self.asked = asked;
        self.since_look_s = 0.0;
        self.in_force = Some(in_force.clone());
        Ok(in_force)
    }

    fn wanted(&self) -> Option<Watts> {
        let rest = self.rest.unwrap_or_default();
        self.cap.map(|cap| (cap - rest).max(Watts::new(LEAST_W)))
    }

    /// One step of the loop. What was found of others' writes is in the answer where a limit was set anew.
    pub(super) fn step(
        &mut self,
        measured: Option<Watts>,
        packages: Option<Watts>,
        dt: Seconds,
    ) -> Result<(Option<CapInForce>, Verdict), PowerLimitError> {
        let dt_s = dt.get().max(0.0);
        if let (Some(measured), Some(packages)) = (measured, packages) {
            let rest = (measured - packages).max(Watts::ZERO);
            let before = self.rest.unwrap_or(rest);
            self.rest = Some(before + (rest - before) * (1.0 - (-dt_s / REST_TAU_S).exp()));
        }
        self.since_set_s += dt_s;
        self.since_look_s += dt_s;
        let moved = match (self.wanted(), self.asked) {
            (Some(wanted), Some(asked)) => {
                (wanted - asked).get().abs() > MOVE_W.max(MOVE_SHARE * asked.get())
            }
            (wanted, asked) => wanted.is_some() != asked.is_some(),
        };
        let set = match moved || self.since_look_s >= LOOK_S {
            true => Some(self.set()?),
            false => None,
        };
        Ok((set, self.verdict(packages, dt_s)))
    }

    fn verdict(&mut self, packages: Option<Watts>, dt_s: f64) -> Verdict {
        let (Some(limit), Some(packages)) = (self.limit(), packages) else {
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
    pub(super) fn binding(&self, measured: Option<Watts>) -> Binding {
        let (Some(cap), Some(wanted)) = (self.cap, self.wanted()) else {
            return Binding::Allocation;
        };
        if wanted < self.lever.bounds().smallest {
            return Binding::Floor;
        }
        match measured.is_some_and(|measured| measured >= cap * AT_CAP) {
            true => Binding::Cap,
            false => Binding::Allocation,
        }
    }

    /// Puts back what was found.
    pub(super) fn restore(mut self) -> Vec<crate::restore::Outcome> {
        self.lever.restore()
    }
}
