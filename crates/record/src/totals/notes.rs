//! What a run's sums say that a reader has to know.

use super::{RunTotals, WARM_UP_PERIODS};
use crate::model::{MAX_PARTS, RunMeta};

/// A saving is told with what it left unserved where more of the requests failed.
const UNSERVED: f64 = 0.01;

impl RunTotals {
    /// What to know before the figures are read, in plain words.
    pub(super) fn notes(&self, meta: &RunMeta) -> Vec<String> {
        let counts = &self.counts;
        let mut notes = meta.notes.clone();
        if counts.energy_j.len() > 1 {
            let parts: Vec<String> = counts
                .energy_j
                .iter()
                .map(|(source, joules)| format!("{joules:.1} J {source}"))
                .collect();
            notes.push(format!(
                "the source of power changed during the run: {}; these are not added up",
                parts.join(", ")
            ));
        }
        if counts.energy_unknown > 0 && !counts.energy_j.is_empty() {
            notes.push(format!(
                "energy is unknown in {} of {} periods: the sum, and the energy per request, are of the others",
                counts.energy_unknown, counts.periods
            ));
        }
        if counts.levers_lost > 0 {
            notes.push(format!(
                "in {} of {} periods a lever was not in force as commanded, or another one held the cap",
                counts.levers_lost, counts.periods
            ));
        }
        notes.extend(counts.long.note(counts.periods, meta.period));
        if counts.nodes_missing > 0 {
            notes.push(format!(
                "in {} of {} periods nodes could not be reached: they count as having everything on, and energy is \
                 unknown then",
                counts.nodes_missing, counts.periods
            ));
        }
        if counts.energy_j.is_empty() && counts.periods > 0 {
            notes.push("energy is unknown: no power meter answered during the run".to_owned());
        }
        if meta.slo.is_some() && counts.judged + counts.unmeasured == 0 && counts.periods > 0 {
            notes.push(format!(
                "no period was held against the target: the first {WARM_UP_PERIODS} are not, and the run has {}",
                counts.periods
            ));
        }
        let energy_j: f64 = counts.energy_j.values().sum();
        if let Some(bound) = meta
            .energy_bound
            .filter(|bound| energy_j < bound.get() && counts.energy_unknown == 0)
        {
            notes.push(format!(
                "{energy_j:.1} J are less than the {:.1} J that whoever keeps the SLO promptly needs at least, on the mean: it answered late, \
                 or not all, or by chance large requests met at one server",
                bound.get()
            ));
        }
        if let Some(slo) = meta.slo.filter(|slo| self.quantile(*slo).is_none()) {
            notes.push(format!(
                "{} requests failed and {} were answered: {} of the run is missed, and latencies are those of the \
                 answered ones",
                self.missed(),
                counts.completed,
                slo.name()
            ));
        }
        let (missed, asked) = (self.missed(), self.missed() + counts.completed);
        if counts.parts.always_on().is_some() && missed as f64 >= UNSERVED * asked.max(1) as f64 {
            notes.push(format!(
                "{missed} of {asked} requests failed: what it would have taken to serve them counts as saved"
            ));
        }
        if counts.parts.cut_periods > 0 {
            notes.push(format!(
                "{} of {} periods had more than {MAX_PARTS} parts: the others are not recorded",
                counts.parts.cut_periods, counts.periods
            ));
        }
        if let Some(comparing) = &counts.comparing {
            notes.push(format!(
                "a comparison was under way at the end, and what it had so far is in no table: {comparing}"
            ));
        }
        if counts.unmeasured > 0 {
            let asked = counts.unmeasured + counts.judged - counts.empty;
            notes.push(format!(
                "latency is unknown in {} of {asked} periods with requests, which are not judged: nothing that this run was configured \
                 with measures latencies",
                counts.unmeasured
            ));
        }
        if counts.unknown > 0 {
            notes.push(format!(
                "{} periods count as over the target because their latency is unknown",
                counts.unknown
            ));
        }
        notes
    }
}
