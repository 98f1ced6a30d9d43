//! What a plan is held to beside the models of the machines: what was measured of them, and how far the load of a step rises above its mean.

use super::{AdvisorError, Problem};
use headroom_units::{PerSecond, Ratio};
use std::ops::Deref;

/// No step's peak is planned further above its mean than this.
pub const MAX_PEAK: Ratio = Ratio::new(1e4);

/// What a plan is held to beside the models of the machines; by default nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bounds {
    /// The most requests of a class that a machine of a kind was measured to serve when it served nothing else, by kind and class; empty,
    /// or `None`, where that was not measured. What a machine serves of each class as a share of that adds up to at most its limit, as with
    /// its cores and its link: a third resource, whatever it is.
    pub most: Vec<Vec<Option<PerSecond>>>,
    /// By how much the load of each step rises above its mean: the machines that are on can serve so many times the mean. Empty: 1 for all.
    pub peaks: Vec<Ratio>,
}

impl Bounds {
    /// None.
    pub(super) const NONE: &'static Self = &Self {
        most: Vec::new(),
        peaks: Vec::new(),
    };

    /// Checks that they are of this problem.
    pub(super) fn check(&self, problem: &Problem) -> Result<(), AdvisorError> {
        let refuse = |why: String| Err(AdvisorError::Problem(why));
        let is_whole = self.most.len() == problem.kinds.len()
            && self.most.iter().all(|most| most.len() == problem.classes.len());
        if !(self.most.is_empty() || is_whole) {
            return refuse("measured maxima are not given for each kind and class".to_owned());
        }
        let measured = self.most.iter().flatten().flatten();
        if let Some(most) = measured
            .copied()
            .find(|most| !(most.is_finite() && *most > PerSecond::ZERO))
        {
            return refuse(format!(
                "a machine was measured to serve {} requests/s at most: give more than 0",
                most.get()
            ));
        }
        if !self.peaks.is_empty() && self.peaks.len() != problem.steps.len() {
            return refuse(format!(
                "{} peaks for {} steps",
                self.peaks.len(),
                problem.steps.len()
            ));
        }
        let fits = |peak: &Ratio| *peak >= Ratio::new(1.0) && *peak <= MAX_PEAK;
        match self.peaks.iter().find(|peak| !fits(peak)) {
            Some(peak) => refuse(format!(
                "a step's peak of {} times its mean: give 1 to {}",
                peak.get(),
                MAX_PEAK.get()
            )),
            None => Ok(()),
        }
    }
}

/// A problem with its bounds.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) problem: &'a Problem,
    pub(super) bounds: &'a Bounds,
}

impl Deref for Asked<'_> {
    type Target = Problem;

    fn deref(&self) -> &Problem {
        self.problem
    }
}

impl Asked<'_> {
    /// Of the cores and the link of a machine, and of what it was measured to serve at most, the share that one request of a class a second
    /// takes.
    pub(super) fn uses(&self, kind: usize, class: usize) -> [f64; 3] {
        let [cores, link] = self.problem.kinds[kind].uses(class);
        let most = self.bounds.most.get(kind).and_then(|most| most[class]);
        [cores, link, most.map_or(0.0, |most| most.get().recip())]
    }

    /// How many times its mean the load of a step may be.
    pub(super) fn peak(&self, step: usize) -> f64 {
        self.bounds.peaks.get(step).map_or(1.0, |peak| peak.get())
    }
}
