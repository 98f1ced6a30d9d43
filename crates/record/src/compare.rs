//! Whether two runs can be compared, and what one saved against the other.
//!
//! A saving is a difference of two energies, and says something of the laws only where all else was the same. Whatever was
//! not is a reason why the comparison does not hold, in words; where there is one, there is no saving.

use crate::arrivals;
use crate::model::RunId;
use crate::summary::RunSummary;
use headroom_units::{Ratio, Source};
use serde::{Deserialize, Serialize};

/// Lengths that differ by more than this share are not the same experiment.
const MAX_LENGTH_APART: f64 = 0.02;
/// Requests that differ by more than this share, and by more than [`MAX_UNDER_WAY`], are not the same load.
const MAX_OFFERED_APART: f64 = 0.02;
/// Requests under way at the ends of a run, which may be counted with either side of them.
const MAX_UNDER_WAY: u64 = 64;
/// The share of the periods whose energy may be unknown, whose latency may be, and in which nodes may be missing.
const MAX_UNKNOWN: f64 = 0.05;
/// The share of the periods in which the reference may be late: a reference that is late more often needs more than it had,
/// and to use less than it is no saving.
const MAX_LATE_REFERENCE: f64 = 0.02;
/// The share of the machine that other programs may use meanwhile.
const MAX_BYSTANDERS: f64 = 0.10;
/// Seconds for which two runs may be on one machine at once: the end of one, and the beginning of the other.
const MAX_SHARED_S: f64 = 2.0;
/// By how much of the machine that may differ.
const MAX_BYSTANDERS_APART: f64 = 0.05;

/// A run's energy against a reference run's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The law of the reference.
    pub against: String,
    /// The reference's number in its recorder file.
    pub against_run: Option<RunId>,
    /// Whether the comparison holds.
    pub holds: bool,
    /// Why it does not, each in words; empty where it holds.
    pub why: Vec<String>,
    /// The share of the reference's energy that was saved, negative where more was used; `None` where the comparison does
    /// not hold. Periods of the run whose energy is unknown count at the mean of its others.
    pub saving: Option<Ratio>,
    /// What is not known of the comparison and does not refuse it, each in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What is said beside a saving where the load of one of the runs is not known.
const LOAD_NOT_KNOWN: &str =
    "whether the load was the same is not known: give --load for each run (`headroom load --json` prints it)";

impl Comparison {
    /// A run against a reference.
    ///
    /// It holds where both are the same experiment (world, trace, seed, SLO, nodes, length within 2 %, requests offered
    /// within 2 %), the energy of each has one and the same source and meter, with the same zones, and is known in 95 % of its periods, all levers were in
    /// force throughout, latencies are known in 95 % of the periods and late in at most 2 % of the reference's, nodes were
    /// missing in at most 5 % of the periods, the same load was offered, and other programs used at most 10 % of the machine, in either within 5
    /// points. Where what was offered is not known of both, the arrivals over time must not differ by more than chance and a tenth
    /// of them, and a note says what is not known.
    pub fn of(run: &RunSummary, reference: &RunSummary) -> Self {
        let mut why = different_experiments(run, reference);
        for one in [reference, run] {
            why.extend(
                faults(one)
                    .into_iter()
                    .map(|fault| format!("{}: {fault}", one.law)),
            );
        }
        why.extend(late_reference(&reference.law, reference.slo.share_over()));
        let saving = if why.is_empty() {
            saved(run, reference).map_err(|fault| why.push(fault)).ok()
        } else {
            // What is wrong with the energies themselves is said all the same.
            why.extend(saved(run, reference).err());
            None
        };
        why.dedup();
        Self {
            against: reference.law.clone(),
            against_run: reference.run,
            holds: saving.is_some(),
            why,
            saving,
            notes: match (offered(run), offered(reference)) {
                (Some(_), Some(_)) => Vec::new(),
                _ => vec![LOAD_NOT_KNOWN.to_owned()],
            },
        }
    }

    /// Why it does not hold, in one sentence; nothing where it does.
    pub fn refusal(&self) -> Option<String> {
        (!self.holds).then(|| format!("the comparison does not hold: {}", self.why.join("; ")))
    }
}

/// The place of the run that one of these is compared with: the last before it of the law of the first, so that of runs in pairs each is
/// compared with that beside it; `None` for the first.
pub fn reference(runs: &[RunSummary], at: usize) -> Option<usize> {
    let law = &runs.first()?.law;
    runs.get(..at)?.iter().rposition(|run| run.law == *law)
}

/// Gives every run but the first its comparison with its [`reference`].
pub fn compare_with_reference(runs: &mut [RunSummary]) {
    for at in 0..runs.len() {
        let comparison = reference(runs, at).map(|of| Comparison::of(&runs[at], &runs[of]));
        runs[at].comparison = comparison;
    }
}

fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// The fingerprint of what was offered, by the run itself or by what its generator says.
fn offered(run: &RunSummary) -> Option<&String> {
    let of_generator = run.provenance.offered_load.as_ref();
    run.provenance.load.as_ref().or_else(|| {
        of_generator
            .filter(|load| load.doubt.is_none())?
            .origin
            .load
            .as_ref()
    })
}

/// Why two runs were not offered the same, as far as that is known.
fn another_load(run: &RunSummary, reference: &RunSummary) -> Option<String> {
    let sent = |run: &RunSummary| {
        let load = run.provenance.offered_load.as_ref()?;
        Some((
            load.origin.date.clone(),
            load.origin.host.clone(),
            load.origin.load.clone(),
        ))
    };
    if sent(run).is_some() && sent(run) == sent(reference) {
        return Some(
            "one and the same sending of a load is given for both: each served another part of it".to_owned(),
        );
    }
    match (offered(reference), offered(run)) {
        (Some(one), Some(other)) if one != other => {
            Some("another load: the fingerprints of what was offered differ".to_owned())
        }
        (Some(_), Some(_)) => None,
        _ => arrivals::apart(&reference.conditions.arrivals, &run.conditions.arrivals).map(|apart| {
            format!(
                "another load: {} of the requests arrived at other times of the run",
                percent(apart)
            )
        }),
    }
}

/// In what two runs are not the same experiment.
fn different_experiments(run: &RunSummary, reference: &RunSummary) -> Vec<String> {
    let mut why = Vec::new();
    let mut differ = |what: &str, one: String, other: String| {
        if one != other {
            why.push(format!("another {what} ({one} and {other})"));
        }
    };
    differ("world", reference.world.to_string(), run.world.to_string());
    differ("trace", reference.trace.clone(), run.trace.clone());
    differ("seed", reference.seed.to_string(), run.seed.to_string());
    let slo = |run: &RunSummary| run.slo.text();
    differ("SLO", slo(reference), slo(run));
    let nodes = |run: &RunSummary| {
        let mut names = run.conditions.nodes.clone();
        names.sort_unstable();
        match names.is_empty() {
            true => "one machine".to_owned(),
            false => names.join(" "),
        }
    };
    differ("set of nodes", nodes(reference), nodes(run));
    why.extend(another_load(run, reference));
    let (meter, other) = (&reference.provenance.meter, &run.provenance.meter);
    if meter != other {
        let named = |meter: &Option<String>| meter.clone().unwrap_or_else(|| "an unknown meter".to_owned());
        why.push(format!(
            "{}: its power was measured by {}, that of {} by {}",
            run.law,
            named(other),
            reference.law,
            named(meter)
        ));
    }
    let (length, other) = (reference.duration_s.get(), run.duration_s.get());
    if (length - other).abs() > MAX_LENGTH_APART * length.max(other) {
        why.push(format!("another length ({length:.0} s and {other:.0} s)"));
    }
    let (offered, other) = (reference.requests.offered, run.requests.offered);
    let apart = offered.abs_diff(other);
    if apart > MAX_UNDER_WAY && share(apart, offered.max(other)) > MAX_OFFERED_APART {
        why.push(format!("another number of requests ({offered} and {other})"));
    }
    why.extend(at_the_same_time(run, reference));
    if let (Some(one), Some(other)) = (reference.conditions.bystanders, run.conditions.bystanders) {
        let apart = (one.get() - other.get()).abs();
        if apart > MAX_BYSTANDERS_APART {
            why.push(format!(
                "other programs used {} and {} of the machine, which is more than {} apart",
                percent(one.get()),
                percent(other.get()),
                percent(MAX_BYSTANDERS_APART)
            ));
        }
    }
    why
}

/// That two runs shared a machine: what it draws was read by both, and each is in the other's latencies.
fn at_the_same_time(run: &RunSummary, reference: &RunSummary) -> Option<String> {
    let span = |run: &RunSummary| {
        let began = run.conditions.began_ms? as f64 / 1e3;
        Some((began, began + run.duration_s.get()))
    };
    let ((one, one_end), (other, other_end)) = (span(reference)?, span(run)?);
    let shared = one_end.min(other_end) - one.max(other);
    let host = &run.provenance.host;
    (reference.provenance.host == *host && !host.is_empty() && shared > MAX_SHARED_S)
        .then(|| format!("both ran on {host} at the same time, for {shared:.0} s"))
}

/// What makes a run unfit for any comparison of its energy, by its own record.
pub(crate) fn faults(run: &RunSummary) -> Vec<String> {
    let conditions = &run.conditions;
    let mut faults = Vec::new();
    let recorded = run.periods + run.dropped_periods;
    for (part, of, what) in [
        (
            conditions.energy_unknown_periods,
            run.periods,
            "energy is unknown",
        ),
        (
            conditions.nodes_missing_periods,
            run.periods,
            "nodes were missing",
        ),
        (
            run.slo.periods_unknown + run.slo.periods_unmeasured,
            run.slo.periods_judged + run.slo.periods_unmeasured,
            "latency is unknown",
        ),
        (run.dropped_periods, recorded, "nothing was recorded"),
    ] {
        if share(part, of) > MAX_UNKNOWN {
            let bound = percent(MAX_UNKNOWN);
            faults.push(format!(
                "{what} in {part} of {of} periods, and at most {bound} may be so"
            ));
        }
    }
    if run.requests.offered == 0 {
        faults.push("no request came: what was used served nobody".to_owned());
    }
    if conditions.levers_lost_periods > 0 {
        faults.push(format!(
            "a lever was not in force, or another held the cap, in {} of {} periods",
            conditions.levers_lost_periods, run.periods
        ));
    }
    if let Some(others) = conditions.bystanders
        && others.get() > MAX_BYSTANDERS
    {
        faults.push(format!(
            "other programs used {} of the machine, and at most {} may be so",
            percent(others.get()),
            percent(MAX_BYSTANDERS)
        ));
    }
    faults
}

/// Why a law's run is no reference: it is late in too large a share of the periods, or nobody knows.
pub fn late_reference(law: &str, share_over: Option<Ratio>) -> Option<String> {
    match share_over {
        None => Some(format!("{law}: no period was held against the SLO")),
        Some(late) if late.get() > MAX_LATE_REFERENCE => Some(format!(
            "{law}, the reference, was late in {} of the judged periods, and at most {} may be so",
            percent(late.get()),
            percent(MAX_LATE_REFERENCE)
        )),
        Some(_) => None,
    }
}

fn saved(run: &RunSummary, reference: &RunSummary) -> Result<Ratio, String> {
    let energy = |run: &RunSummary| {
        let (joules, source): (_, Source) = run.energy_j.value.zip(run.energy_j.source).ok_or_else(|| {
            match run.energy_j.by_source.is_empty() {
                true => format!("{}: energy unknown", run.law),
                false => format!("{}: the source of its energy changed", run.law),
            }
        })?;
        Ok::<_, String>((joules, source))
    };
    let ((joules, source), (before, source_before)) = (energy(run)?, energy(reference)?);
    if source != source_before {
        return Err(format!("energies of two sources ({source_before} and {source})"));
    }
    if before.get() <= 0.0 {
        return Err(format!("{}, the reference, used no energy", reference.law));
    }
    let known = 1.0 - share(run.conditions.energy_unknown_periods, run.periods);
    Ok(Ratio::new(1.0 - joules / before / known.max(1.0 - MAX_UNKNOWN)))
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
