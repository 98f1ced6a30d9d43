//! The reproduction as a sheet: the paper's tables and figures in its order.

use super::cells::Cell;
use super::claims::SPREAD;
use super::conclusions::{Basis, Conclusion};
use super::paper::{At, DENSITIES};
use super::straight::Errors;
use super::{ProfilesPaperArgs, calibration, charts, grids};
use headroom_physics::{ServingKind, StudiedService};
use headroom_record::report::{Grid, Section, Sheet};

/// What the columns of the errors are, and what they say.
const ERRORS: [&str; 4] = [
    "Line: the null model, throughput in proportion to the density and watts on a straight line from the idle watts of Section 3.1 to those at \
     100 %, through the paper's own cell at 100 %. It takes no simulation. Ours: the simulation. Each with its mean absolute and its mean \
     signed error.",
    "KB/s and W: by how much simulated throughput and simulated watts differ from the line through our own 100 %, on average. The paper \
     prints neither for a density below 100 %, so that only their quotient can be compared with it.",
    "Lost s: the seconds of each window of 5 s that a cell falls short of its density by, read from its KB/s/W on the line (median). What \
     the paper's cells of 1 to 100 KB have in common is a time that hardly depends on the density and is the longer the slower the machine. \
     States of idle cores and packages, which are entered within a millisecond, are too short for it. Nothing at density 100 % tells \
     what it is (clients that start, clock rates that rise late), so it is not modelled, and no figure is fitted to it.",
    "Where the two lines of errors are alike the simulation adds nothing to idle watts and proportion. What it adds is what is outstanding \
     at the end of a window: ApacheBench with a limit of time drops it, with what the machine did for it (that the authors ran it so is \
     assumed; the paper does not say); threads of memcached wait for it.",
];

/// The sheet.
pub fn sheet(
    cells: &[Cell],
    errors: &[Errors],
    conclusions: &[Conclusion],
    args: &ProfilesPaperArgs,
) -> Sheet {
    let held = conclusions.iter().filter(|one| one.holds).count();
    let mut sections = vec![
        Section {
            title: "Sections 4 to 6: the conclusions, checked".to_owned(),
            text: vec![follows_from(conclusions)],
            tables: vec![grids::conclusions(conclusions)],
            ..Section::default()
        },
        Section {
            title: "What the simulation adds to a straight line".to_owned(),
            text: ERRORS
                .into_iter()
                .map(str::to_owned)
                .chain([of_the_text(cells)])
                .collect(),
            tables: vec![grids::errors(errors)],
            ..Section::default()
        },
        Section {
            title: "One calibration, at density 100 % alone".to_owned(),
            tables: vec![Grid {
                header: ["of the machine", "value", "from"].map(str::to_owned).to_vec(),
                rows: calibration::lines().into_iter().map(Vec::from).collect(),
                words: vec![0, 1, 2],
                caption: String::new(),
            }],
            ..Section::default()
        },
    ];
    for (service, numbers) in StudiedService::ALL
        .into_iter()
        .zip([("1", "1", "2"), ("2", "3", "4")])
    {
        let (table, figure, resources) = numbers;
        sections.push(Section {
            title: format!("Table {table}: throughput per power, {}", service.name()),
            tables: vec![grids::efficiency(cells, service)],
            charts: (0..3)
                .map(|size| charts::efficiency(cells, service, size))
                .collect(),
            ..Section::default()
        });
        sections.push(Section {
            title: format!("Figure {figure}: throughput and power, {}", service.name()),
            text: vec!["The paper prints no numbers of its plot: the curves are ours.".to_owned()],
            tables: vec![grids::throughput(cells, service)],
            charts: (0..3)
                .map(|size| charts::throughput(cells, service, size))
                .collect(),
            ..Section::default()
        });
        sections.push(Section {
            title: format!(
                "Figure {resources}: resources at density 100 %, {}",
                service.name()
            ),
            tables: vec![grids::resources(cells, service)],
            bars: ["CPU", "network"]
                .into_iter()
                .map(|what| charts::resource(cells, service, what))
                .collect(),
            ..Section::default()
        });
    }
    sections.push(Section {
        title: "999 KB: why a quarter of the time is more than a quarter of the work".to_owned(),
        text: vec![
            "A hundred answers of 999 KB take a gigabit nearly a second and the Arm nearly three: what is outstanding when the clients stop is \
             still sent, and the pause begins after it. The straight line is a machine that works for the density's share of the time. \
             Ours has the effect with clients that pause together; the paper's is larger still at low \
             density, as if its clients fell out of step in part (in our model, clients that pause each by itself come to keep the machine busy all the time)."
                .to_owned(),
        ],
        tables: vec![grids::outstanding(cells)],
        ..Section::default()
    });
    let (calibrated_mean, calibrated_worst) = off(cells.iter().filter(|cell| cell.calibrated));
    let (mean, worst) = off(cells.iter().filter(|cell| !cell.calibrated));
    let line = errors.first().map_or(f64::NAN, |all| all.line_percent);
    Sheet {
        kind: "headroom reproduce".to_owned(),
        title: "Power by request size: the paper's evaluation, simulated".to_owned(),
        lead: format!(
            "Tables 1 and 2 of Yamada, Kawai and Oshima beside ours: 18 cells at 100 % calibrated (mean error {calibrated_mean:.1} %, worst \
             {calibrated_worst:.1} %), 54 predicted (mean error {mean:.1} %, worst {worst:.1} %; of a straight line from idle to 100 % \
             {line:.1} %); {held} of {} conclusions hold.",
            conclusions.len()
        ),
        facts: vec![format!("headroom {}", env!("CARGO_PKG_VERSION"))],
        remarks: vec![
            "Simulated: ours are figures of models of the authors' machines.".to_owned(),
            "1 MB is 1024 KB: with it 50.1 MB/s of 668.74 KB/s/W are the 76 W of the text.".to_owned(),
            format!("{} windows of each cell, seed {}.", args.windows, args.seed),
        ],
        sections,
        provenance: None,
    }
}

/// How many of the conclusions rest on what.
fn follows_from(conclusions: &[Conclusion]) -> String {
    let of = |basis| conclusions.iter().filter(|one| one.follows_from == basis).count();
    format!(
        "Margin: the least of the differences that the conclusion says are there; uses of a resource that are the same within {SPREAD} \
         points count as risen. Follows from: {} are of density 100 %, on which the models \
         are calibrated; of {} a straight line from the idle watts to those at 100 % has the same answer, without a simulation; of {} the \
         simulation alone.",
        of(Basis::Calibration),
        of(Basis::IdleWatts),
        of(Basis::Predicted),
    )
}

const fn xeon_1_kb(density: usize) -> At {
    At {
        kind: ServingKind::Xeon,
        service: StudiedService::Apache,
        size: 0,
        density,
    }
}

/// The one figure of power below 100 % that the text has.
fn of_the_text(cells: &[Cell]) -> String {
    let watts = |density| cells[xeon_1_kb(density).index()].power_w;
    format!(
        "The text has watts of the Xeon at 1 KB with Apache: about 45 to 76 W over the densities (Section 4.1); simulated {:.1} to {:.1} W.",
        watts(DENSITIES.len() - 1),
        watts(0)
    )
}

/// Mean and largest absolute error, percent.
fn off<'a>(cells: impl Iterator<Item = &'a Cell>) -> (f64, f64) {
    let errors: Vec<f64> = cells.map(|cell| cell.error_percent.abs()).collect();
    let sum: f64 = errors.iter().sum();
    (
        sum / errors.len().max(1) as f64,
        errors.into_iter().fold(0.0, f64::max),
    )
}
