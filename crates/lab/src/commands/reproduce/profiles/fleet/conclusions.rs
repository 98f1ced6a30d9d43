//! What is said of the fleet's day, each checked on its runs.

use super::Measured;
use super::measure::{ByCause, Outcome, Run};
use super::rows::Way;
use headroom_record::statistics::Estimate;
use serde::Serialize;

/// The most periods that may be late where an SLO is kept, percent: what P95 of short periods is over by chance and at changes.
pub const KEPT_PERCENT: f64 = 1.0;

/// A sentence, and whether it holds.
#[derive(Clone, Debug, Serialize)]
pub struct Conclusion {
    /// What it says.
    pub says: &'static str,
    /// Whether the runs bear it out.
    pub holds: bool,
    /// The figures by which.
    pub figures: String,
}

/// The runs that ended.
pub fn runs(outcomes: &[Outcome]) -> impl Iterator<Item = &Run> {
    outcomes.iter().filter_map(Outcome::run)
}

/// By how much more one way draws than another, W, seed by seed; `None` where a run of either did not end.
pub fn estimate(measured: &Measured, way: Way, from: Way, of: fn(&ByCause) -> f64) -> Option<Estimate> {
    let watts = |way: Way| -> Option<Vec<f64>> {
        let outcomes = measured.days[way as usize].iter();
        outcomes.map(|one| one.run().map(|run| of(&run.power))).collect()
    };
    Estimate::of_differences(&watts(way)?, &watts(from)?)
}

/// The mean over the seeds of a way; NaN where none ended.
fn mean(measured: &Measured, way: Way, of: impl Fn(&Run) -> f64) -> f64 {
    let values: Vec<f64> = runs(&measured.days[way as usize]).map(of).collect();
    Estimate::of(&values).map_or(f64::NAN, |one| one.mean)
}

/// Periods late of the worst size, percent.
fn worst(run: &Run) -> f64 {
    run.late_by_size_percent
        .into_iter()
        .fold(run.late_percent, f64::max)
}

/// Whether every size keeps the SLO under a way.
fn keeps(measured: &Measured, way: Way) -> bool {
    mean(measured, way, worst) <= KEPT_PERCENT
}

/// A difference below zero by more than its interval.
fn saves(measured: &Measured, way: Way, from: Way) -> (bool, String) {
    let one = estimate(measured, way, from, ByCause::total);
    let holds = one.is_some_and(|one| one.mean < 0.0 && (one.count < 2 || one.is_not_zero()));
    let whole = mean(measured, from, |run| run.power.total());
    let figures = one.map_or_else(String::new, |one| {
        format!(
            "{} W of {whole:.1} ({:+.1} %)",
            one.written(2),
            one.mean / whole * 100.0
        )
    });
    (holds, figures)
}

/// All of them.
pub fn conclusions(measured: &Measured) -> Vec<Conclusion> {
    use Way::{
        ByCapacity, LeastConnections, Placement, Plan, PlanLeastConnections, PlanPlacement, RoundRobin,
        StaticLeastConnections,
    };
    let conclusion = |says, (holds, figures)| Conclusion { says, holds, figures };
    let late = |ways: &[Way]| {
        let each = ways.iter().map(|way| {
            let late = mean(measured, *way, worst);
            format!("{}: {late:.2} %", way.name())
        });
        (
            ways.iter().all(|way| keeps(measured, *way)),
            each.collect::<Vec<_>>().join("; "),
        )
    };
    let total = |way| mean(measured, way, |run| run.power.total());
    let served = |way| mean(measured, way, |run| run.power.served_w());
    let bearable = |way: Way| {
        let loads = &measured.loads[way as usize];
        let kept = |outcomes: &Vec<Outcome>| {
            let ended = outcomes.iter().all(|one| one.run().is_some());
            ended && runs(outcomes).all(|run| worst(run) <= KEPT_PERCENT)
        };
        loads.iter().take_while(|load| kept(load)).count()
    };
    let bears = |way: Way| match bearable(way) {
        0 => format!("{}: none", way.name()),
        count => format!("{}: {:.0} %", way.name(), super::SCALES[count - 1] * 100.0),
    };
    let switching = total(LeastConnections) - total(PlanLeastConnections);
    let routing = total(LeastConnections) - total(Placement);
    vec![
        conclusion(
            "all on: each size keeps the SLO under round robin, least connections, weights and placement alike",
            late(&Way::ALL_ON),
        ),
        conclusion(
            "switched: each size keeps the SLO under every plan",
            late(&[PlanLeastConnections, PlanPlacement, Plan]),
        ),
        conclusion(
            "all on: routing by size takes less than round robin",
            saves(measured, Placement, RoundRobin),
        ),
        conclusion(
            "all on: routing by size takes less than least connections",
            saves(measured, Placement, LeastConnections),
        ),
        conclusion(
            "all on: routing by size takes less than weights by capacity",
            saves(measured, Placement, ByCapacity),
        ),
        conclusion(
            "all on: routing by size saves at least a tenth of what the requests draw under least connections",
            (
                routing >= 0.1 * served(LeastConnections),
                format!("{routing:.2} W of {:.1}", served(LeastConnections)),
            ),
        ),
        conclusion(
            "all on: most of what is drawn is idle, which no routing changes",
            (
                mean(measured, LeastConnections, |run| run.power.idle_w) > 0.5 * total(LeastConnections),
                format!(
                    "{:.1} W idle of {:.1}",
                    mean(measured, LeastConnections, |run| run.power.idle_w),
                    total(LeastConnections)
                ),
            ),
        ),
        conclusion(
            "switching machines off saves more than routing by size alone",
            (
                switching > routing,
                format!("{switching:.1} W by switching under least connections, {routing:.1} W by routing"),
            ),
        ),
        conclusion(
            "with machines switched, routing by size takes less than least connections with a plan of its own",
            saves(measured, PlanPlacement, PlanLeastConnections),
        ),
        conclusion(
            "the plan by size takes less than what a controller of a fixed capacity switches",
            saves(measured, Plan, StaticLeastConnections),
        ),
        conclusion(
            "routing by size keeps the SLO at loads at which round robin does not",
            (
                bearable(Placement) > bearable(RoundRobin),
                [bears(RoundRobin), bears(Placement)].join("; "),
            ),
        ),
        conclusion(
            "routing by size keeps the SLO at least at the loads at which least connections does",
            (
                bearable(Placement) >= bearable(LeastConnections),
                [bears(LeastConnections), bears(ByCapacity), bears(Placement)].join("; "),
            ),
        ),
    ]
}
