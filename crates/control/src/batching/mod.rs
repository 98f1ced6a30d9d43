//! Self-tuning batching with DVFS (Cheng, Guo and Zhou, MASCOTS 2013): how long a gateway holds requests to group those for the same,
//! and at which frequency the processors run. And a law of our own that seeks the interval of least cost.
//!
//! | part | here | in the paper |
//! |---|---|---|
//! | the fuzzy model of the mean response time | `model` | Equations 1 to 6 |
//! | its identification, and how well it predicts | `identify`, `clusters`, and the crate's `linear` | Section IV.A |
//! | its update in every period | `adapt` | Equations 7 to 9 |
//! | the choice of the interval | `optimise`, `bounds` | Equations 10 and 11 |
//! | the control of the interval to a mean response time | `steer` | Section IV |
//! | the same for the least mean, our own: what it tries, for how long, what that may cost, what it learns of it | `least`, `hold`, `cost`, `learned` | |
//! | whether what batches save lasts, our own | `long_look` | |
//! | which of the two, and its bounds by the SLO's percentile and by what was tried | `interval`, `keep` | |
//! | the rule table, the control of the frequency | `rules`, `frequency` | Section V |
//! | the laws, and the coordinator | `laws` | Section VI |
//! | our own law, which seeks the interval of least cost | `seek` | |

mod adapt;
mod bounds;
mod clusters;
mod cost;
mod frequency;
mod hold;
mod identify;
mod interval;
mod keep;
mod laws;
mod learned;
mod least;
mod long_look;
mod model;
mod optimise;
mod rules;
mod seek;
mod steer;
#[cfg(test)]
mod tests;
mod tuning;

pub use adapt::AdaptiveModel;
pub use frequency::{CpuUse, DvfsTuning};
pub use identify::{Arx, IdentifyError, PredictionError, PredictionErrors, identify, prediction_errors};
pub use laws::{Batching, BatchingDvfs, CoordinatorTuning, Dvfs};
pub use model::{FuzzyModel, Lags, Line, ModelError, Rule, Sample, Span, Spans};
pub use optimise::{Objective, Optimum, optimise};
pub use rules::{RuleTable, RuleTableError, RuleTableErrors, VALUES};
pub use seek::{Seek, SeekTuning};
pub use tuning::BatchingTuning;
