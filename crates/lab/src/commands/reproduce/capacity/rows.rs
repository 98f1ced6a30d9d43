//! The paper's numbers beside ours, and where they differ, why.

use super::super::rows::Row;
use super::measure::{Day, Wave};
use super::plan::{Controller, DELAYS_S, Demand, Plan};
use super::{Measured, WAIT_S};
use headroom_record::statistics::Estimate;

/// Why the two totals of a day differ from the paper's in both directions.
const AHEAD: &str = "the estimate rises above what a server can serve for long (in a quiet second after a busy one more \
                     connections are accepted than are served, and Eq. 5 takes that for capacity), so servers start later \
                     than under the static controller and more is saved; users who wait ask less, so that hardly anything \
                     is dropped meanwhile";

/// What our estimator does in the place of the paper's.
const BUSY_TIME: &str =
    "ours, in the place of the paper's estimator: it is right about the capacity, so servers start in time";

/// Why Figure 12 is flatter than the paper's.
const FEW_STARTS: &str = "a slow start costs its power and little else: the table of days says how seldom servers are started, \
                          and while one boots the users of the others wait and ask less";

/// All rows, in the paper's order.
pub fn rows(plan: &Plan, measured: &Measured) -> Vec<Row> {
    let mut rows = server(plan, measured);
    rows.extend(clusters(plan, measured));
    rows.extend(delays(plan, measured));
    rows
}

fn row(
    figure: &'static str,
    what: impl Into<String>,
    paper: &'static str,
    values: &[f64],
    decimals: usize,
    why: impl Into<String>,
) -> Row {
    Row {
        figure,
        what: what.into(),
        paper,
        ours: Estimate::of(values),
        decimals,
        why: why.into(),
    }
}

/// Section 7.4.
fn server(plan: &Plan, measured: &Measured) -> Vec<Row> {
    let each = |waves: &[Wave], pick: fn(&Wave) -> Option<f64>| -> Vec<f64> {
        waves.iter().filter_map(pick).collect()
    };
    let [bound_by_cpu, bound_by_workers] = &measured.waves;
    let truth = plan.true_capacity_per_s(WAIT_S);
    let over = |values: Vec<f64>| -> Vec<f64> { values.into_iter().map(|value| value / truth).collect() };
    vec![
        row(
            "7.4",
            "capacity by linear ramps, requests/s",
            "595",
            &measured.ramps_per_s,
            0,
            "calibrated: a request takes 1/595 s of CPU",
        ),
        row(
            "9",
            "queue monitoring in the first overload, requests/s",
            "586",
            &each(bound_by_cpu, |wave| wave.overloaded_per_s),
            0,
            "",
        ),
        row(
            "9",
            "queue monitoring in the quiet after it, requests/s",
            "614",
            &each(bound_by_cpu, |wave| wave.quiet_per_s),
            0,
            "",
        ),
        row(
            "9",
            "its movement in that quiet, requests/s",
            "0",
            &bound_by_cpu
                .iter()
                .map(|wave| wave.moved_per_s)
                .collect::<Vec<_>>(),
            1,
            "",
        ),
        row(
            "9",
            "CPU utilisation at a medium load, requests/s",
            "about 600, read off the plot",
            &each(bound_by_cpu, |wave| wave.cpu_medium_per_s),
            0,
            "nothing but requests uses the CPU here, so utilisation is exact",
        ),
        row(
            "10",
            "I/O-bound: queue monitoring in overload, over the true capacity",
            "stable",
            &over(each(bound_by_workers, |wave| wave.overloaded_per_s)),
            2,
            "",
        ),
        row(
            "10",
            "I/O-bound: CPU utilisation at a medium load, over the true capacity",
            "a large margin above",
            &over(each(bound_by_workers, |wave| wave.cpu_medium_per_s)),
            2,
            "here the CPU alone could serve 595 a second, little more than the workers' 510: the margin grows with the CPU",
        ),
    ]
}

/// What the days of a case come to, in percent of those of another under the same seeds.
fn compared(days: &[Day], with: &[Day], pick: impl Fn(&Day) -> f64) -> Vec<f64> {
    let pairs = days.iter().zip(with);
    pairs
        .map(|(day, reference)| (1.0 - pick(day) / pick(reference)) * 100.0)
        .collect()
}

/// Energy saved against always-on, percent, seed by seed.
pub fn saved(plan: &Plan, measured: &Measured, case: usize) -> Vec<f64> {
    let reference = plan.usual(plan.cases[case].demand, Controller::AlwaysOn);
    reference.map_or(Vec::new(), |reference| {
        compared(&measured.days[case], &measured.days[reference], |day| {
            day.energy_j
        })
    })
}

fn dropped(measured: &Measured, case: usize) -> Vec<f64> {
    let days = measured.days[case].iter();
    days.map(|day| day.drop_ratio * 100.0).collect()
}

/// Sections 7.5.1 to 7.5.3.
fn clusters(plan: &Plan, measured: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add =
        |figure, demand: Demand, controller: Controller, saving, drops: Option<&'static str>, why: &str| {
            let Some(case) = plan.usual(demand, controller) else {
                return;
            };
            let name = format!("{} demand, {}", demand.name(), controller.name());
            rows.push(row(
                figure,
                format!("{name}: energy saved, %"),
                saving,
                &saved(plan, measured, case),
                1,
                why,
            ));
            if let Some(paper) = drops {
                rows.push(row(
                    figure,
                    format!("{name}: attempts that found the queue full, %"),
                    paper,
                    &dropped(measured, case),
                    4,
                    "",
                ));
            }
        };
    use Controller::{BusyTime, Dynamic, Scheduled, Static};
    add(
        "7.5.1",
        Demand::Standard,
        Static,
        "38",
        Some("0.001"),
        "calibrated: the mean load",
    );
    add("7.5.1", Demand::Standard, Dynamic, "38", Some("0.001"), AHEAD);
    add("7.5.1", Demand::Standard, BusyTime, "-", Some("-"), BUSY_TIME);
    let schedule = "the schedule is made of the very curve that comes, with the capacity known; the paper prints neither its \
                    curve nor how its schedule rounds";
    add("7.5.1", Demand::Standard, Scheduled(0.5), "31", None, schedule);
    add("7.5.1", Demand::Standard, Scheduled(2.0), "25", None, schedule);
    add("11", Demand::Decreased, Static, "35", None, "");
    add("11", Demand::Decreased, Dynamic, "44", Some("0.001"), AHEAD);
    add("11", Demand::Decreased, BusyTime, "-", Some("-"), BUSY_TIME);
    add(
        "7.5.3",
        Demand::Increased,
        Static,
        "unacceptable",
        Some("a large number"),
        "what it saves it takes from its users: see the next two rows",
    );
    add("7.5.3", Demand::Increased, Dynamic, "31", Some("0.002"), "");
    add("7.5.3", Demand::Increased, BusyTime, "-", Some("-"), BUSY_TIME);
    for (demand, controller, name, paper) in [
        (Demand::Decreased, Dynamic, "the online estimate", "about 750"),
        (Demand::Decreased, BusyTime, "the estimate by busy time", "-"),
        (Demand::Increased, Dynamic, "the online estimate", "not printed"),
        (Demand::Increased, BusyTime, "the estimate by busy time", "-"),
    ] {
        if let Some(case) = plan.usual(demand, controller) {
            let estimates: Vec<f64> = measured.days[case]
                .iter()
                .filter_map(|day| day.estimate_per_s)
                .collect();
            rows.push(row(
                if demand == Demand::Decreased {
                    "11"
                } else {
                    "7.5.3"
                },
                format!("{} demand: {name}, median, requests/s", demand.name()),
                paper,
                &estimates,
                0,
                format!("the server's true capacity is {:.0}", plan.capacity_per_s(demand)),
            ));
        }
    }
    for (controller, paper) in [(Static, "a large number"), (Dynamic, "none"), (BusyTime, "-")] {
        let cases = plan
            .usual(Demand::Increased, controller)
            .zip(plan.usual(Demand::Increased, Controller::AlwaysOn));
        if let Some((case, reference)) = cases {
            rows.push(row(
                "7.5.3",
                format!(
                    "increased demand, {}: requests that were never made or failed, %",
                    controller.name()
                ),
                paper,
                &compared(&measured.days[case], &measured.days[reference], |day| {
                    day.completed as f64
                }),
                1,
                "users in a closed loop ask less where they wait longer",
            ));
        }
    }
    rows
}

/// Figure 12.
fn delays(plan: &Plan, measured: &Measured) -> Vec<Row> {
    let base = &plan.calibration.cluster;
    let mut rows = Vec::new();
    for (what, is_boot) in [("start-up", true), ("shutdown", false)] {
        for delay_s in DELAYS_S {
            let (boot_s, shutdown_s, paper) = match is_boot {
                true => (
                    delay_s,
                    base.shutdown_s,
                    match delay_s {
                        15.0 => "43",
                        180.0 => "36",
                        _ => "between",
                    },
                ),
                false => (
                    base.boot_s,
                    delay_s,
                    match delay_s {
                        180.0 => "less than at 15 s, but not as far down as by start-up",
                        _ => "between",
                    },
                ),
            };
            if let Some(case) = plan.delayed(boot_s, shutdown_s) {
                rows.push(row(
                    "12",
                    format!("{what} delay {delay_s:.0} s: energy saved, %"),
                    paper,
                    &saved(plan, measured, case),
                    1,
                    if is_boot { FEW_STARTS } else { "" },
                ));
            }
        }
    }
    rows
}
