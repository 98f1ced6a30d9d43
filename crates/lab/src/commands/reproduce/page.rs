//! The evaluation as a sheet: what a reader of the paper looks for, in the paper's order.

use super::SloPowerArgs;
use super::cases::{BASELINES, GUARDS, Plan, TARGETS_MS, THRESHOLDS, Traces};
use super::rows::{Evaluation, TargetPoint, compared};
use headroom_record::RunId;
use headroom_record::report::{Bars, Grid, Section, Sheet};
use headroom_record::statistics::Estimate;
use headroom_sim::power::Machine;
use headroom_workload::Shape;

/// The calibration: which figure of the plant, its value, and what it is from.
pub fn calibration(plan: &Plan) -> Vec<[String; 3]> {
    let base = plan.base();
    let (service, tuning) = (&base.scenario.service, &base.law.slo_power);
    let mut lines = vec![
        [
            "requests per second and core".to_owned(),
            format!("{}", service.rate_per_core_s),
            "Figure 1: 91 ms on average where hardly anything queues; with it 12.7 cores are busy at 139.5 requests a second, \
             36 % of Figure 6(b)'s 35 (the paper: 39 %)"
                .to_owned(),
        ],
        [
            "service times".to_owned(),
            match &service.size {
                Shape::Lognormal { scv } => format!("lognormal, squared coefficient of variation {scv}"),
                other => format!("{other:?}"),
            },
            "Figure 6(b): P95 97 ms with that mean, so they hardly vary".to_owned(),
        ],
        [
            "requests per second and core, as laws assume".to_owned(),
            format!("{}", base.assumed().get()),
            "Equation 3 asks for 34.9 cores at 139.5 requests a second with 9, the authors' rate on one node: Figure 6(b) has 35. \
             For the cluster their code has 24 and takes three times what the equation gives for the whole rate: 22"
                .to_owned(),
        ],
        [
            "period".to_owned(),
            format!("{} s", service.period_s),
            "the authors' loop sleeps a second and then asks three nodes one after the other by command-line tools; with 2 s \
             Figure 6(b) comes nearest to its 35 cores and the 12 above them, (c) and (d) to their ratios"
                .to_owned(),
        ],
        [
            "arrival rate, as laws get it".to_owned(),
            "the number of users".to_owned(),
            "the authors read HAProxy's concurrent connections, and their generator has one for each user, who sends a request a \
             second on average at exponential intervals: requests come as a Poisson process, but are not counts"
                .to_owned(),
        ],
        [
            "hold band, from P95".to_owned(),
            format!("{} ms", service.target_ms * tuning.guard - tuning.hold_band_ms),
            "the authors' band, 100 ms under the guard of 200 ms; at other targets and guards it begins at the same latency, \
             or nothing would be saved at 150 and 200 ms"
                .to_owned(),
        ],
    ];
    let machine = base.scenario.nodes.first().map(|group| &group.machine);
    if let Some(power) = machine.and_then(Machine::line) {
        lines.push([
            "power of a node".to_owned(),
            format!(
                "{} W + {} W a core + {} W a busy core at {} GHz",
                power.base_w, power.static_per_core_w, power.dynamic_per_core_w, power.highest_ghz
            ),
            "the authors' limit, 2.86 c + 46.52 W; its division lies between what 193 W of 35 cores (6b) and 189 W of 48 \
             capped ones (6a) ask for"
                .to_owned(),
        ]);
        lines.push([
            "voltage at the lowest frequency".to_owned(),
            format!("{} at {} GHz", power.lowest_voltage, power.lowest_ghz),
            "the processor's lowest frequency; the ratio of the voltages is that of the emulated hardware"
                .to_owned(),
        ]);
    }
    lines
}

/// The sheet; `plotted` are the recorded runs of Figure 6.
pub fn sheet(
    evaluation: &Evaluation,
    plan: &Plan,
    traces: &Traces,
    args: &SloPowerArgs,
    plotted: Vec<(String, RunId)>,
) -> Sheet {
    let words = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| (*text).to_owned())
            .collect::<Vec<String>>()
    };
    let section = |title: &str, figures: &[&str]| Section {
        title: title.to_owned(),
        tables: vec![compared(&evaluation.rows, figures)],
        ..Section::default()
    };
    let mut figure_7 = section("Figure 7: guard and utilisation threshold", &["7"]);
    figure_7
        .tables
        .push(grid(evaluation, "P95, mean of the periods, ms", |point| {
            point.p95_ms
        }));
    figure_7
        .tables
        .push(grid(evaluation, "Cores", |point| point.cores));
    figure_7
        .tables
        .push(grid(evaluation, "Power, W", |point| point.power_w));
    let mut figure_8 = section("Figure 8: other laws, other targets", &["8"]);
    figure_8.tables.push(targets(&evaluation.targets));
    figure_8.bars = vec![
        bars(evaluation, "P95, mean of the periods", "ms", |point| {
            point.p95_ms.mean
        }),
        bars(evaluation, "Periods over the target", "%", |point| {
            point.over_percent.mean
        }),
        bars(evaluation, "Power ratio", "consumed over allocated", |point| {
            point.power_ratio.mean
        }),
        bars(evaluation, "Cores", "mean", |point| point.cores.mean),
        bars(evaluation, "Power", "W", |point| point.power_w.mean),
    ];
    let mut figure_6 = section(
        "Figure 6: either component alone, and both",
        &["6a", "6b", "6c", "6d"],
    );
    figure_6.runs = plotted;
    let mut remarks = vec![
        "Simulated: ours are figures of a model of the authors' cluster, calibrated once for all figures."
            .to_owned(),
        format!("{} Run on {}.", Estimate::explained(args.seeds), traces.said()),
    ];
    if let Some(duration) = args.duration {
        remarks.push(format!(
            "Each run was cut to {duration} simulated seconds: a look, not a reproduction."
        ));
    }
    Sheet {
        kind: "headroom reproduce".to_owned(),
        title: "SLO-Power: the paper's evaluation, simulated".to_owned(),
        lead: format!(
            "The numbers of Savasci et al., Section V, compared with ours: {} seeds on {}.",
            args.seeds,
            traces.said()
        ),
        facts: vec![format!("headroom {}", env!("CARGO_PKG_VERSION"))],
        remarks,
        sections: vec![
            Section {
                title: "One calibration for all figures".to_owned(),
                tables: vec![Grid {
                    header: words(&["of the plant", "value", "why"]),
                    rows: calibration(plan).into_iter().map(Vec::from).collect(),
                    words: vec![0, 1, 2],
                    caption: String::new(),
                }],
                ..Section::default()
            },
            section("Figure 1: power saving or elastic scaling, one node", &["1"]),
            section("Figure 5: the traces", &["5"]),
            figure_6,
            figure_7,
            figure_8,
        ],
        provenance: None,
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn grid(evaluation: &Evaluation, caption: &str, pick: fn(&super::rows::GridPoint) -> Estimate) -> Grid {
    let head = std::iter::once("guard".to_owned());
    Grid {
        caption: format!("{caption}, by guard and utilisation threshold"),
        header: head
            .chain(THRESHOLDS.iter().map(|threshold| percent(*threshold)))
            .collect(),
        rows: GUARDS
            .iter()
            .map(|guard| {
                let row = evaluation.grid.iter().filter(|point| point.guard == *guard);
                std::iter::once(percent(*guard))
                    .chain(row.map(|point| pick(point).written(1)))
                    .collect()
            })
            .collect(),
        words: vec![0],
    }
}

fn targets(points: &[TargetPoint]) -> Grid {
    Grid {
        caption: "By target".to_owned(),
        header: [
            "target ms",
            "law",
            "P95 ms",
            "periods over %",
            "power W",
            "over the bound %",
            "ratio",
            "cores",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: points
            .iter()
            .map(|point| {
                vec![
                    format!("{:.0}", point.target_ms),
                    point.law.clone(),
                    point.p95_ms.written(1),
                    point.over_percent.written(2),
                    point.power_w.written(1),
                    point.energy_over_bound_percent.written(1),
                    point.power_ratio.written(3),
                    point.cores.written(1),
                ]
            })
            .collect(),
        words: vec![1],
    }
}

fn bars(evaluation: &Evaluation, title: &str, unit: &str, pick: fn(&TargetPoint) -> f64) -> Bars {
    let mut values = Vec::new();
    for target_ms in TARGETS_MS {
        for law in BASELINES {
            let found = evaluation
                .targets
                .iter()
                .find(|point| point.target_ms == target_ms && point.law == law.to_string());
            values.extend(
                found.map(|point| (point.law.clone(), format!("{target_ms} ms, {law}"), pick(point))),
            );
        }
    }
    Bars::of(title, unit, values)
}
