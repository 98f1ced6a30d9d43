//! The reproduction as a sheet: the paper's figures in its order.

use super::super::rows::{Row, compared};
use super::CapacityPaperArgs;
use super::measure::{Day, Wave};
use super::plan::{Controller, DELAYS_S, Demand, Plan};
use super::{Measured, WAIT_S, rows::saved};
use headroom_record::report::{Chart, Curve, Grid, Section, Sheet, Stroke};
use headroom_record::statistics::Estimate;

/// The calibration: which figure, its value, and what it is from.
pub fn calibration(plan: &Plan) -> Vec<[String; 3]> {
    let calibration = &plan.calibration;
    let cluster = &calibration.cluster;
    [
        (
            "capacity of a server",
            format!("{:.0} requests/s", calibration.capacity_per_s),
            "Section 7.4: the mean of ten ramps",
        ),
        (
            "with objects of half the size",
            format!("{:.0} requests/s", calibration.decreased_per_s),
            "Section 7.5.2: what the dynamic controller estimates",
        ),
        (
            "with dynamic documents",
            format!("{:.0} requests/s", calibration.increased_per_s),
            "not printed; with it the dynamic controller saves about what Section 7.5.3 has",
        ),
        (
            "mean load",
            format!("{:.0} requests/s", calibration.mean_rate_per_s),
            "with it the static controller saves about the 38 % of Section 7.5.1",
        ),
        (
            "the day",
            format!("{:.0} s", calibration.day_s),
            "a curve like ClarkNet's, six times compressed: Section 7.5.1",
        ),
        (
            "users",
            "SURGE".to_owned(),
            "pages with embedded objects, and pauses: a closed loop, which a slow server slows down",
        ),
        (
            "accept queue and workers",
            format!("a backlog of {}, {} processes", cluster.backlog, cluster.workers),
            "Sections 6.1 and 7.3",
        ),
        (
            "power of a server",
            format!(
                "{:.0} W idle, {:.0} W full, {:.0} W booting, {:.0} W shutting down, {:.0} W off",
                cluster.power.idle_w,
                cluster.power.full_w,
                cluster.power.booting_w,
                cluster.power.shutting_down_w,
                cluster.power.off_w
            ),
            "Section 7.5; the last three are not printed",
        ),
        (
            "alpha of Equation 5",
            format!("{}", cluster.queue.keep),
            "not printed",
        ),
    ]
    .map(|(figure, value, why)| [figure.to_owned(), value, why.to_owned()])
    .to_vec()
}

/// The sheet.
pub fn sheet(plan: &Plan, measured: &Measured, rows: &[Row], args: &CapacityPaperArgs) -> Sheet {
    let section = |title: &str, figures: &[&str], charts: Vec<Chart>| Section {
        title: title.to_owned(),
        tables: vec![compared(rows, figures)],
        charts,
        ..Section::default()
    };
    let mut remarks = vec![
        "Simulated: ours are figures of a model of the authors' testbed, calibrated once for all figures.".to_owned(),
        format!(
            "Means over {} seeds (ten ramps) with 95 % confidence intervals.",
            args.seeds
        ),
        "Figures 4 to 7 compare ways to measure a real kernel: they are not simulated. `make capacity` redoes them live."
            .to_owned(),
    ];
    if args.scale != 1.0 || args.day != 1.0 {
        remarks.push(format!(
            "Scaled: {} of the paper's rates and capacities, {} of its day. A look, not a reproduction: queues and delays \
             were not scaled.",
            args.scale, args.day
        ));
    }
    let [by_cpu, by_workers] = &measured.waves;
    let truth = |wait_s| plan.true_capacity_per_s(wait_s);
    Sheet {
        kind: "headroom reproduce".to_owned(),
        title: "Capacity from the accept queue: the paper's evaluation, simulated".to_owned(),
        lead: format!(
            "The numbers of Tsai et al., Section 7, compared with ours: {} seeds.",
            args.seeds
        ),
        facts: vec![format!("headroom {}", env!("CARGO_PKG_VERSION"))],
        remarks,
        sections: vec![
            Section {
                title: "One calibration for all figures".to_owned(),
                tables: vec![Grid {
                    header: ["of the testbed", "value", "why"].map(str::to_owned).to_vec(),
                    rows: calibration(plan).into_iter().map(Vec::from).collect(),
                    words: vec![0, 1, 2],
                    caption: String::new(),
                }],
                ..Section::default()
            },
            section(
                "Section 7.4, Figure 9: one server under a sinusoid",
                &["7.4", "9"],
                wave_chart("Figure 9: estimates of a CPU-bound server", by_cpu, truth(0.0)),
            ),
            section(
                "Figure 10: the same, I/O-bound",
                &["10"],
                wave_chart(
                    "Figure 10: estimates of an I/O-bound server",
                    by_workers,
                    truth(WAIT_S),
                ),
            ),
            Section {
                title: "Section 7.5: all days of clusters".to_owned(),
                tables: vec![days(plan, measured)],
                ..Section::default()
            },
            section("Section 7.5.1: the standard workload", &["7.5.1"], Vec::new()),
            section(
                "Section 7.5.2, Figure 11: decreased demand",
                &["11"],
                days_charts(plan, measured, Demand::Decreased),
            ),
            section(
                "Section 7.5.3: increased demand",
                &["7.5.3"],
                days_charts(plan, measured, Demand::Increased),
            ),
            section(
                "Figure 12: start-up and shutdown delays",
                &["12"],
                vec![delay_chart(plan, measured)],
            ),
        ],
        provenance: None,
    }
}

/// Every controller's days with the usual delays.
fn days(plan: &Plan, measured: &Measured) -> Grid {
    let base = &plan.calibration.cluster;
    let usual =
        plan.cases.iter().enumerate().filter(|(_, case)| {
            (case.cluster.boot_s, case.cluster.shutdown_s) == (base.boot_s, base.shutdown_s)
        });
    let rows = usual.map(|(at, case)| {
        let of = |pick: fn(&Day) -> f64, decimals: usize| {
            let values: Vec<f64> = measured.days[at].iter().map(pick).collect();
            Estimate::of(&values).map_or_else(|| "-".to_owned(), |estimate| estimate.written(decimals))
        };
        vec![
            case.demand.name().to_owned(),
            case.controller.name(),
            of(|day| day.energy_j / 1e6, 3),
            of(|day| day.serving, 2),
            of(|day| day.changes as f64, 0),
            of(|day| day.p99_s * 1e3, 0),
            of(|day| day.drop_ratio * 100.0, 4),
        ]
    });
    Grid {
        caption: "Means over the seeds, with 95 % confidence intervals from 3 seeds on".to_owned(),
        header: [
            "demand",
            "controller",
            "energy MJ",
            "servers serving",
            "changes",
            "P99 ms",
            "queue full %",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: rows.collect(),
        words: vec![0, 1],
    }
}

fn curve(label: &str, points: Vec<(f64, f64)>, stroke: Stroke) -> Curve {
    Curve {
        label: label.to_owned(),
        points,
        stroke,
    }
}

/// The first seed's sinusoid.
fn wave_chart(title: &str, waves: &[Wave], truth_per_s: f64) -> Vec<Chart> {
    let Some(wave) = waves.first() else {
        return Vec::new();
    };
    // Where hardly anything arrives a few requests decide, and utilisation says anything: that is not plotted in full.
    let most = 1.6 * truth_per_s;
    let by_cpu = wave.by_cpu.iter();
    vec![Chart {
        title: title.to_owned(),
        unit: "requests/s".to_owned(),
        curves: vec![
            curve("arrivals", wave.arrivals.clone(), Stroke::Quiet),
            curve("queue monitoring", wave.by_queue.clone(), Stroke::Line),
            curve(
                "CPU utilisation",
                by_cpu.map(|(at_s, value)| (*at_s, value.min(most))).collect(),
                Stroke::Line,
            ),
        ],
        marks: vec![("true".to_owned(), truth_per_s)],
        ..Chart::default()
    }]
}

/// The first seed's days under both controllers: requests, and servers.
fn days_charts(plan: &Plan, measured: &Measured, demand: Demand) -> Vec<Chart> {
    let days: Vec<_> = [Controller::Static, Controller::Dynamic]
        .into_iter()
        .filter_map(|controller| {
            let day = measured.days[plan.usual(demand, controller)?].first()?;
            Some((controller.name(), day))
        })
        .collect();
    let chart = |title: &str, unit: &str, pick: fn(&(f64, f64, f64)) -> f64| Chart {
        title: format!("{title}, {} demand", demand.name()),
        unit: unit.to_owned(),
        curves: days
            .iter()
            .map(|(name, day)| {
                let points = day.curve.iter().map(|point| (point.0, pick(point)));
                curve(name, points.collect(), Stroke::Line)
            })
            .collect(),
        ..Chart::default()
    };
    vec![
        chart("Requests accepted", "requests/s", |point| point.1),
        chart("Servers that take requests", "servers", |point| point.2),
    ]
}

fn delay_chart(plan: &Plan, measured: &Measured) -> Chart {
    let base = &plan.calibration.cluster;
    let curve_of = |label: &str, at: &dyn Fn(f64) -> Option<usize>| {
        let points = DELAYS_S.into_iter().filter_map(|delay_s| {
            let saved = Estimate::of(&saved(plan, measured, at(delay_s)?))?;
            Some((delay_s, saved.mean))
        });
        curve(label, points.collect(), Stroke::Marked)
    };
    Chart {
        title: "Energy saved by the dynamic controller".to_owned(),
        unit: "%".to_owned(),
        over: Some("the delay in s".to_owned()),
        curves: vec![
            curve_of("start-up delay (shutdown 60 s)", &|delay_s| {
                plan.delayed(delay_s, base.shutdown_s)
            }),
            curve_of("shutdown delay (start-up 60 s)", &|delay_s| {
                plan.delayed(base.boot_s, delay_s)
            }),
        ],
        ..Chart::default()
    }
}
