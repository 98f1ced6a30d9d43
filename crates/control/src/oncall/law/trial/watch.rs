//! When a turn is cut, and when what it left is served.

use super::arm::{Load, Sample};
use super::turns::NO_CHANCE;
use headroom_units::Seconds;

/// Where queries wait the whole period through, on this share of the connections, they pile up: all connections are taken, and what
/// comes beside them waits at the clients, where no server sees it.
pub(in crate::oncall::law) const PILED: f64 = 0.5;
/// A period this many times over the target is late by more than its percentile's chance.
const LATE: f64 = 1.2;
/// At saturation everybody waits: a turn in which somebody waits for longer than this many times the longest wait under the first
/// setting, and than the target, costs clients more than it teaches.
const FAR_LONGER: f64 = 5.0;
/// For so many periods the first setting serves what a turn left, at most.
pub(super) const MAX_DRAIN: u32 = 20;
/// A period with less than this share of the queries per second of the first setting's last turn loses load.
const LEAST_LOAD: f64 = 0.8;
/// Late periods, or ones that lose load, beyond those of the first setting, after which a setting is dropped: one may be a pause of the machine.
pub(super) const MAX_STRIKES: u32 = 2;

/// What a period says against the setting that was in force.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Against {
    /// Late, or asked less: a pause looks the same.
    Late(String),
    /// The setting cannot serve what comes, or not as fast as it must.
    Fails(String),
}

/// What a period says against a setting under which the server is to serve what comes within the target.
pub(super) fn against(sample: &Sample, target: Seconds) -> Option<Against> {
    if sample.waiting_share.is_some_and(|share| share >= PILED) {
        let text = format!(
            "queries pile up: {:.0} % of the connections waited all the time",
            sample.waiting_share.unwrap_or(0.0) * 100.0
        );
        return Some(Against::Fails(text));
    }
    if let Some(oldest) = sample.oldest_waiting.filter(|oldest| *oldest > target) {
        let text = format!("a query waited {:.1} ms for a slot", oldest.as_millis());
        return Some(Against::Late(text));
    }
    let late = sample.at_slo.filter(|at_slo| *at_slo > target * LATE)?;
    let text = format!(
        "{:.1} ms where {:.1} ms is the target",
        late.as_millis(),
        target.as_millis()
    );
    Some(Against::Late(text))
}

/// What a period says against a setting where the first one's last turn had this load.
pub(super) fn asked_less(sample: &Sample, first: &Load) -> Option<Against> {
    let queries = sample.queries as f64;
    let (expected, variance) = first.expected(queries, sample.length)?;
    let is_less = queries < LEAST_LOAD * expected && expected - queries > NO_CHANCE * variance.sqrt();
    is_less.then(|| {
        Against::Late(format!(
            "a period had {:.0} % of the queries per second of the first setting's last turn",
            queries / expected * 100.0
        ))
    })
}

/// What a period says against a setting at saturation, where the longest wait under the first one is known.
pub(super) fn far_longer(sample: &Sample, first: Option<Seconds>, target: Seconds) -> Option<String> {
    let bound = (first? * FAR_LONGER).max(target);
    let longest = sample.longest().filter(|longest| *longest > bound)?;
    Some(format!(
        "cut short: a query took {:.0} ms, and {:.0} ms at most under the first setting",
        longest.as_millis(),
        first?.as_millis()
    ))
}

/// Whether what a turn left is served: nobody waits all the time, and nobody for long.
pub(super) fn is_drained(sample: &Sample, serves_what_comes: bool, bound: Seconds) -> bool {
    let waits_none = !serves_what_comes || sample.waiting_share.is_none_or(|share| share <= 0.0);
    waits_none && sample.longest().is_none_or(|longest| longest <= bound)
}
