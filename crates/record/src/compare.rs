//! Whether and how two runs can be compared.

use crate::summary::RunSummary;
use headroom_units::{Ratio, Source};
use std::fmt;

/// Lengths that differ by more than this share are not the same experiment.
const LENGTH_TOLERANCE: f64 = 0.02;

/// Why the energies of two runs are not comparable.
#[derive(Clone, Debug, PartialEq)]
pub enum Incomparable {
    /// One has no energy, or one of several sources.
    NoEnergy,
    /// Their energies have different sources.
    Sources(Source, Source),
    /// They ran in different worlds, on different traces or with different seeds.
    Experiment(&'static str),
    /// Their lengths differ: in seconds.
    Length(f64, f64),
    /// The reference used no energy.
    NoReference,
}

impl fmt::Display for Incomparable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEnergy => write!(f, "not comparable: energy unknown"),
            Self::Sources(one, other) => write!(f, "not comparable: {one} and {other}"),
            Self::Experiment(what) => write!(f, "not comparable: another {what}"),
            Self::Length(one, other) => write!(f, "not comparable: {one:.0} s and {other:.0} s"),
            Self::NoReference => write!(f, "not comparable: the reference used no energy"),
        }
    }
}

/// A run's energy against a reference run's.
pub struct Comparison;

impl Comparison {
    /// The share of the reference's energy that a run saved; negative where it used more.
    ///
    /// # Errors
    /// The two are not the same experiment (world, trace, seed, length within 2 %), or their energies do not have
    /// one and the same source.
    pub fn saving(run: &RunSummary, reference: &RunSummary) -> Result<Ratio, Incomparable> {
        let energy = |summary: &RunSummary| summary.energy_j.value.zip(summary.energy_j.source);
        let ((joules, source), (reference_joules, reference_source)) =
            energy(run).zip(energy(reference)).ok_or(Incomparable::NoEnergy)?;
        if source != reference_source {
            return Err(Incomparable::Sources(reference_source, source));
        }
        if run.world != reference.world {
            return Err(Incomparable::Experiment("world"));
        }
        if run.trace != reference.trace {
            return Err(Incomparable::Experiment("trace"));
        }
        if run.seed != reference.seed {
            return Err(Incomparable::Experiment("seed"));
        }
        let (length, reference_length) = (run.duration_s.get(), reference.duration_s.get());
        if (length - reference_length).abs() > LENGTH_TOLERANCE * reference_length.max(length) {
            return Err(Incomparable::Length(reference_length, length));
        }
        if reference_joules.get() <= 0.0 {
            return Err(Incomparable::NoReference);
        }
        Ok(Ratio::new(1.0 - joules / reference_joules))
    }
}
