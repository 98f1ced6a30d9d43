//! Figures 15 to 17: connections with SLOs, and the kernel's schedulers.

use super::super::rows::Row;
use super::Measured;
use super::measure::Pick;
use super::plan::{MOST, NAMED_BATCHES, Policy, Runtime, Server, Who, World};
use super::rows::{FIFO, FLOOR, SLOTS, gain, less, more, plain, printed};
use headroom_record::statistics::Estimate;

/// What is to know before the figures.
pub const BEFORE: &str = "A round over 512 connections takes longer than the strictest targets (20 ms at P95), so that the policy favours the 16 much of \
                          the time and the others yield. Percentiles are of all 512 connections.";
/// Why connections without SLOs wait for longer.
const FAVOURED: &str = "the policy favours the 16 at the others' cost: see above";

/// All rows.
pub fn rows(measured: &Measured) -> Vec<Row> {
    let mut rows = figure_15(measured);
    rows.extend(figure_17(measured));
    rows
}

/// Figures 15 and 16: populations with SLOs.
fn figure_15(measured: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    let populations = [
        (
            World::Tails,
            Policy::Pslo,
            [
                (29.39, "29.39"),
                (2.18, "2.18"),
                (2.99, "2.99"),
                (2.99, "2.99"),
                (42.2, "42.20"),
                (56.33, "56.33"),
            ],
            [
                ("reduces by up to 51.47", 51.47),
                ("up to 31.17", 31.17),
                ("18.08", 18.08),
            ],
        ),
        (
            World::Disengagement,
            Policy::Utslo,
            [
                (33.94, "33.94"),
                (1.87, "1.87"),
                (5.33, "5.33"),
                (4.98, "4.98"),
                (30.31, "30.31"),
                (75.1, "75.10"),
            ],
            [
                ("41.7 (1.99K to 1.16K)", 41.7),
                ("11.16", 11.16),
                ("comparable", f64::NAN),
            ],
        ),
    ];
    for (world, policy, fifteen, sixteen) in populations {
        let (before, after) = (
            (world, Who::of(policy, Runtime::SelfServing)),
            (world, Who::of(policy, Runtime::Reef(NAMED_BATCHES[0]))),
        );
        let name = after.1.name();
        rows.extend(compared_with(measured, "15", (before, after), &fifteen, FAVOURED));
        let ratios = |pick: Pick| measured.ratios(Server::Mongodb, before, after, pick);
        let [sensitive, best_effort, power] = sixteen;
        let ours = less(&ratios(|run| run.sensitive_per_s));
        let what = format!("{name}: throughput of connections with SLOs less, %");
        rows.push(gain(
            "16",
            what,
            printed(sensitive.0, sensitive.1),
            (&ours, 0.0),
            FAVOURED,
        ));
        let ours = more(&ratios(|run| run.best_effort_per_s));
        let what = format!("{name}: throughput of the others more, %");
        rows.push(gain(
            "16",
            what,
            printed(best_effort.0, best_effort.1),
            (&ours, 0.0),
            FAVOURED,
        ));
        let ours = less(&ratios(|run| run.power_w));
        let what = format!("{name}: power less, %");
        let paper = printed(power.0, power.1).filter(|paper| paper.value.is_finite());
        rows.push(gain("16", what, paper, (&ours, 0.0), FLOOR));
        for (_, who) in [(world, Who::ALONE), before, after] {
            let ours = measured.each(Server::Mongodb, world, who, |run| run.missed);
            let what = format!(
                "{}, {}: queries over target, of what may be",
                world.name(),
                who.name()
            );
            let paper = if who == Who::ALONE {
                "not printed"
            } else {
                "at most about 1"
            };
            let over = Estimate::of(&ours).is_some_and(|ours| ours.mean > 1.0) && who != Who::ALONE;
            let why = match over {
                true => {
                    "of the class that is worst off; while one is late quotas double until it is not, once every 0.1 s"
                }
                false => "",
            };
            rows.push(plain("16", what, paper, &ours, 2, why));
        }
    }
    rows
}

/// Figure 17: the kernel's schedulers.
fn figure_17(measured: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    let on_call = Who::of(Policy::Apples, Runtime::Reef(NAMED_BATCHES[0]));
    for (world, numbers) in [
        (
            World::Sol,
            [
                (53.45, "53.45"),
                (1.99, "1.99"),
                (4.86, "4.86"),
                (17.1, "17.10"),
                (33.77, "33.77"),
                (77.32, "77.32"),
            ],
        ),
        (
            World::Connections(MOST),
            [
                (27.79, "27.79"),
                (1.45, "1.45"),
                (2.01, "2.01"),
                (2.5, "2.5"),
                (13.78, "13.78"),
                (38.88, "38.88"),
            ],
        ),
    ] {
        let pair = ((world, Who::APPLES), (world, on_call));
        let mut of = compared_with(measured, "17", pair, &numbers, FIFO);
        let scheduler = match world {
            World::Sol => "ghOSt(sol)",
            _ => "Cgroup(cpu)",
        };
        for row in &mut of {
            row.what = format!("{scheduler}, {}", row.what);
        }
        rows.extend(of);
    }
    rows
}

/// Six numbers of one pair: EE(TPP) more, EE(P99) and EE(P99.9) times, throughput more, P99 and P99.9 less.
pub fn compared_with(
    measured: &Measured,
    figure: &'static str,
    (before, after): ((World, Who), (World, Who)),
    numbers: &[(f64, &'static str); 6],
    cause: &str,
) -> Vec<Row> {
    let ratios = |pick: Pick| measured.ratios(Server::Mongodb, before, after, pick);
    let name = format!("{} over {}", after.1.name(), before.1.name());
    let [tpp, p99, p999, rate, late, later] = *numbers;
    let number = |(value, text)| printed(text, value).filter(|paper| paper.value > 0.0);
    vec![
        gain(
            figure,
            format!("{name}: EE(TPP) more, %"),
            number(tpp),
            (&more(&ratios(|run| run.ee_tpp)), 0.0),
            FLOOR,
        ),
        gain(
            figure,
            format!("{name}: EE(P99), times"),
            number(p99),
            (&ratios(|run| run.ee_p99), 1.0),
            cause,
        ),
        gain(
            figure,
            format!("{name}: EE(P99.9), times"),
            number(p999),
            (&ratios(|run| run.ee_p999), 1.0),
            cause,
        ),
        gain(
            figure,
            format!("{name}: throughput more, %"),
            number(rate),
            (&more(&ratios(|run| run.throughput_per_s)), 0.0),
            SLOTS,
        ),
        gain(
            figure,
            format!("{name}: P99 less, %"),
            number(late),
            (&less(&ratios(|run| run.p99_ms)), 0.0),
            cause,
        ),
        gain(
            figure,
            format!("{name}: P99.9 less, %"),
            number(later),
            (&less(&ratios(|run| run.p999_ms)), 0.0),
            cause,
        ),
    ]
}
