//! What holds say of intervals: the samples that are remembered, the model of them, and how far off it is.

use super::adapt::AdaptiveModel;
use super::hold::Held;
use super::identify::{IdentifyError, identify};
use super::model::{FuzzyModel, Lags, Sample};
use headroom_units::Seconds;
use std::collections::VecDeque;

/// Holds that are remembered.
const REMEMBERED: usize = 48;
/// The weight of another hold in how far off the model is.
const WEIGHT: f64 = 0.2;
/// An error beyond so many of the usual, and this share of what came, is a surprise.
const SURPRISE: (f64, f64) = (3.0, 0.1);

/// A hold that followed others.
#[derive(Clone, Debug)]
struct Entry {
    past: Vec<Sample>,
    whole: Sample,
    blocks: Vec<Sample>,
    is_steady: bool,
    /// At the present load.
    is_present: bool,
}

/// What was learned.
#[derive(Clone, Debug)]
pub(super) struct Learned {
    lags: Lags,
    forgetting: f64,
    model: Option<AdaptiveModel>,
    entries: VecDeque<Entry>,
    /// The last holds, without a gap, the present one last.
    past: Vec<Sample>,
    /// The mean square of errors, in seconds squared.
    square: f64,
}

impl Learned {
    /// With lags for models of its own, and a model that is given.
    pub(super) fn new(lags: Lags, forgetting: f64, model: Option<&FuzzyModel>) -> Self {
        Self {
            lags: model.map_or(lags, FuzzyModel::lags),
            forgetting,
            model: model.map(|model| AdaptiveModel::new(model.clone(), forgetting)),
            entries: VecDeque::new(),
            past: Vec::new(),
            square: 0.0,
        }
    }

    pub(super) fn model(&self) -> Option<&AdaptiveModel> {
        self.model.as_ref()
    }

    pub(super) fn past(&self) -> &[Sample] {
        &self.past
    }

    /// What comes next does not follow what was.
    pub(super) fn break_off(&mut self) {
        self.past.clear();
    }

    /// The load is another: what was best is not known any more.
    pub(super) fn forget_best(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.is_present = false);
    }

    /// The hold of least mean at the present load, of those with a longer interval than this.
    pub(super) fn best(&self, none: Seconds) -> Option<Sample> {
        let present = self.entries.iter().filter(|entry| entry.is_present);
        present
            .map(|entry| entry.whole)
            .filter(|whole| whole.interval > none)
            .min_by(|a, b| a.response.get().total_cmp(&b.response.get()))
    }

    /// Blocks that are remembered of holds that followed others.
    pub(super) fn samples(&self) -> u32 {
        self.entries.iter().map(|entry| entry.blocks.len() as u32).sum()
    }

    /// Learns from a hold, which is steady where the interval was as before; whether that is a surprise to the model.
    pub(super) fn observe(&mut self, held: &Held, is_steady: bool) -> bool {
        let mut is_surprise = false;
        if self.past.len() >= self.lags.reach() {
            if let Some(model) = &mut self.model {
                let predicted = model.model().predict(&self.past, held.whole.interval);
                let error = predicted.map_or(0.0, |one| (held.whole.response - one).get());
                is_surprise = error.abs() > SURPRISE.0 * self.square.sqrt()
                    && error.abs() > SURPRISE.1 * held.whole.response.get();
                self.square += WEIGHT * (error * error - self.square);
                // What nothing was varied in must not make it forget what something was varied in.
                let whole = [held.whole];
                let blocks = if is_steady { &whole[..] } else { &held.blocks };
                for block in blocks {
                    model.observe(&self.past, *block);
                }
            }
            if is_steady && self.entries.back().is_some_and(|last| last.is_steady) {
                self.entries.pop_back();
            }
            if self.entries.len() == REMEMBERED {
                self.entries.pop_front();
            }
            self.entries.push_back(Entry {
                past: self.past.clone(),
                whole: held.whole,
                is_present: true,
                blocks: held.blocks.clone(),
                is_steady,
            });
        }
        self.past.push(held.whole);
        let surplus = self.past.len().saturating_sub(self.lags.reach());
        self.past.drain(..surplus);
        is_surprise
    }

    /// Identifies a model from what is remembered.
    ///
    /// # Errors
    /// As [`identify`]; the model stays as it was.
    pub(super) fn identify(&mut self) -> Result<(), IdentifyError> {
        let mut series = Vec::new();
        for entry in &self.entries {
            for block in &entry.blocks {
                series.extend(entry.past.iter().copied().map(Some));
                series.extend([Some(*block), None]);
            }
        }
        let model = AdaptiveModel::new(identify(&series, self.lags)?, self.forgetting);
        let errors = self.entries.iter().flat_map(|entry| {
            let predict = |block: &Sample| model.model().predict(&entry.past, block.interval);
            let error = move |block: &Sample| Some((block.response - predict(block)?).get());
            entry.blocks.iter().filter_map(error)
        });
        let (count, squares) = errors.fold((0.0, 0.0), |(count, sum), one| (count + 1.0, sum + one * one));
        self.square = if count > 0.0 { squares / count } else { 0.0 };
        self.model = Some(model);
        Ok(())
    }

    /// The standard error of the difference between what two intervals would give.
    pub(super) fn doubt(&self, one: Seconds, other: Seconds) -> Option<Seconds> {
        let doubt = self.model.as_ref()?.doubt(&self.past, one, other)?;
        Some(Seconds::new(doubt * self.square.sqrt()))
    }
}
