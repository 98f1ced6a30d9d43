//! The reproduction as a sheet: the paper's figures in its order.

use super::super::rows::{Row, compared};
use super::measure::Run;
use super::plan::{BUSY_TIERS, Plan, World};
use super::{BatchingPaperArgs, Measured, charts};
use headroom_control::batching::DvfsTuning;
use headroom_record::report::{Chart, Grid, Section, Sheet};
use headroom_record::statistics::Estimate;

/// The calibration: which figure, its value, and what it is from.
pub fn calibration(plan: &Plan) -> Vec<[String; 3]> {
    let calibration = &plan.calibration;
    let service = &calibration.service;
    let mut lines = vec![
        (
            "users under dynamic load".to_owned(),
            format!("{:?}, {} s each", calibration.steps, calibration.step_s),
            "Figure 7(a) is not printed as numbers: 650 to 1600, high in samples 6 and 11 to 14; the steps are assumed",
        ),
        (
            "pause between answer and request".to_owned(),
            format!("{:.0} ms", service.users.think_s * 1e3),
            "calibrated: 712 ms at 800 users and 1091 ms at 1200, without batching",
        ),
        (
            "frequencies".to_owned(),
            format!("{:?} GHz", service.frequencies_ghz),
            "Section VII.A; which share of the work depends on them is assumed",
        ),
        (
            "what the machine draws".to_owned(),
            format!(
                "{:.0} W beside the processor, {:.0} W a busy core at the highest frequency",
                service.machine.platform.get(),
                service.machine.processor.frequency.busy_at_top().get()
            ),
            "assumed within the processor's 95 W",
        ),
    ];
    if let Some(cache) = service.cache {
        lines.push((
            "cache".to_owned(),
            format!(
                "{} MB, objects up to {} MB",
                cache.bytes / 1_000_000,
                cache.max_object_bytes / 1_000_000
            ),
            "Sections VII.B and VIII.A",
        ));
        lines.push((
            "how long an object is fresh".to_owned(),
            format!("{} s", cache.fresh_s),
            "calibrated with the pause: how much faster than the users the response time rises without batching",
        ));
    }
    if let Some(site) = &service.auction {
        lines.push((
            "what is asked for".to_owned(),
            format!(
                "an auction of {} items, {} mix, popularity Zipf {}, {} KB in the mean",
                site.items,
                site.mix,
                site.zipf,
                site.mean_bytes / 1_000
            ),
            "RUBiS as recalled, browsing as in Section VIII.C; popularity and mean size are assumed",
        ));
        lines.push((
            "work of a page at the highest frequency".to_owned(),
            format!(
                "front {:.2} ms, application {:.2} ms, database {:.2} ms; from memory {:.2} ms",
                site.front_s * 1e3,
                site.application_s * 1e3,
                site.database_s * 1e3,
                service.front.hit_s * 1e3
            ),
            "the application's is calibrated, the others are assumed; the same for all pages (Section III.B)",
        ));
    }
    let line = |(figure, value, why): (String, String, &str)| [figure, value, why.to_owned()];
    lines.into_iter().map(line).collect()
}

/// The sheet.
pub fn sheet(measured: &Measured, rows: &[Row], args: &BatchingPaperArgs) -> Sheet {
    let section = |title: &str, figures: &[&str], charts: Vec<Chart>| Section {
        title: title.to_owned(),
        tables: vec![compared(rows, figures)],
        charts,
        ..Section::default()
    };
    let all = |title: &str, worlds: &[World]| Section {
        title: title.to_owned(),
        tables: worlds.iter().map(|world| every(measured, *world)).collect(),
        ..Section::default()
    };
    let mut remarks = vec![
        "Simulated: ours are figures of a model of the authors' testbed, calibrated once by what the paper prints of the service \
         without batching. Everything with batching is a prediction."
            .to_owned(),
        Estimate::explained(args.seeds),
        "The paper's laws decide once a batch and steer to the SLA, as published; `batching, our defaults`, `dvfs` and `seek` once a \
         second, as they do live. The paper's model is trained offline; here `batching` identifies its own \
         in the time before the samples, which is in no figure."
            .to_owned(),
        format!(
            "`dvfs` is told that {:.0} % of the three tiers' cores is busy enough for the highest frequency: one tier that all wait for is a \
             third of them. By its own {:.0} % it would slow down a service that is busy all the time.",
            BUSY_TIERS * 100.0,
            DvfsTuning::default().target_utilisation * 100.0
        ),
    ];
    if args.quick {
        remarks.push("Quick: shorter samples and fewer intervals. A look, not a reproduction.".to_owned());
    }
    let [under, over] = measured.plan.calibration.stationary_users;
    Sheet {
        kind: "headroom reproduce".to_owned(),
        title: "Self-tuning batching with DVFS: the paper's evaluation, simulated".to_owned(),
        lead: format!(
            "The numbers of Cheng et al., Section VIII, compared with ours: {} seeds.",
            args.seeds
        ),
        facts: vec![format!("headroom {}", env!("CARGO_PKG_VERSION"))],
        remarks,
        sections: vec![
            Section {
                title: "One calibration for all figures".to_owned(),
                tables: vec![
                    Grid {
                        header: ["of the testbed", "value", "why"].map(str::to_owned).to_vec(),
                        rows: calibration(&measured.plan).into_iter().map(Vec::from).collect(),
                        words: vec![0, 1, 2],
                        caption: String::new(),
                    },
                    compared(rows, &["calibration"]),
                ],
                ..Section::default()
            },
            section(
                "Table II: fixed intervals",
                &["II"],
                vec![charts::table_2(measured)],
            ),
            section(
                "Table III, Figures 7 and 8: dynamic load",
                &["III", "7", "8"],
                charts::performance(measured),
            ),
            section("Figure 9: energy", &["9"], charts::power(measured)),
            section(
                "Table IV, Figure 10: underload",
                &["10"],
                charts::stationary(measured, under),
            ),
            section(
                "Table IV, Figure 11: slight overload",
                &["11"],
                charts::stationary(measured, over),
            ),
            section("Figure 12: sizes of cache and requests", &["12"], Vec::new()),
            section("Beside a cache that collapses", &["collapse"], Vec::new()),
            section("Where batching cannot help", &["harm"], Vec::new()),
            all(
                "All runs",
                &[
                    World::Dynamic,
                    World::Stationary(under),
                    World::Stationary(over),
                    World::Collapsing,
                ],
            ),
        ],
        provenance: None,
    }
}

/// Every law of a world.
fn every(measured: &Measured, world: World) -> Grid {
    let rows = measured.plan.of(world).map(|(at, case)| {
        let of = |pick: fn(&Run) -> f64, decimals: usize| {
            let values: Vec<f64> = measured.runs[at].iter().map(pick).collect();
            Estimate::of(&values).map_or_else(|| "-".to_owned(), |estimate| estimate.written(decimals))
        };
        vec![
            case.who.name(),
            of(|run| run.response_ms, 0),
            of(|run| run.throughput_per_s, 0),
            of(|run| run.over_percent, 0),
            of(|run| run.interval_ms, 0),
            of(|run| run.hit_percent, 1),
            of(|run| run.utilisation_percent, 0),
            of(|run| run.ghz, 2),
            of(|run| run.power_w, 1),
            of(|run| run.energy_per_request_mj, 1),
            of(|run| run.by_frequency_w, 1),
        ]
    });
    Grid {
        caption: world.name(),
        header: [
            "law",
            "response ms",
            "requests/s",
            "over SLA %",
            "interval ms",
            "hits %",
            "CPU %",
            "GHz",
            "W simulated",
            "mJ/request",
            "W by frequency, estimated",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: rows.collect(),
        words: vec![0],
    }
}
