//! The reproduction as a sheet: the paper's tables and figures in its order.

use super::ProfilesPaperArgs;
use super::cells::Cell;
use super::conclusions::Conclusion;
use super::paper::{At, DENSITIES};
use headroom_physics::{ServingKind, StudiedService};
use headroom_record::report::{Bars, Chart, Curve, Grid, Section, Sheet, Stroke};

/// The calibration: which figure, its value, and what it is from.
pub fn calibration() -> Vec<[String; 3]> {
    let mut lines = Vec::new();
    for kind in ServingKind::ALL {
        let machine = kind.machine();
        let busy = match kind {
            ServingKind::Arm => {
                "three of its four cores at the infinite loop's watts; the fourth is ksoftirqd's"
            }
            ServingKind::Xeon | ServingKind::Atom => {
                "fitted to the 100 % columns: the service at 100 % CPU is not the infinite loop"
            }
        };
        let link = match kind {
            ServingKind::Arm => "fitted: what the driver of its USB network card carries on one core",
            ServingKind::Xeon | ServingKind::Atom => "a gigabit",
        };
        let name = kind.name();
        let watts = |watts: headroom_units::Watts| format!("{:.1} W", watts.get());
        lines.extend([
            [
                format!("{name}: idle"),
                watts(machine.idle),
                "Section 3.1".to_owned(),
            ],
            [
                format!("{name}: link"),
                watts(machine.link),
                "Section 3.1: iperf less idle".to_owned(),
            ],
            [
                format!("{name}: all {} cores busy", machine.cores),
                watts(machine.busy),
                busy.to_owned(),
            ],
            [
                format!("{name}: link rate"),
                format!("{:.1} MB/s", machine.link_bytes_per_s / 1e6),
                link.to_owned(),
            ],
        ]);
        for service in StudiedService::ALL {
            let cost = kind.cost(service);
            let kb_us = cost.base.per_byte.get() * 1024e6;
            let mut text = format!("{:.1} us + {kb_us:.1} us/KB", cost.base.per_request.get() * 1e6);
            if cost.base.head_bytes > 0.0 {
                text.push_str(&format!(
                    ", {:.1} KB of the driver",
                    cost.base.head_bytes / cost.base.bytes_per_byte / 1024.0
                ));
            }
            lines.push([
                format!("{name}: a request to {}", service.name()),
                text,
                "fitted to the 100 % columns and the throughputs of the text".to_owned(),
            ]);
        }
    }
    lines
}

fn holds(answer: bool) -> String {
    if answer { "holds" } else { "does not hold" }.to_owned()
}

/// The sheet.
pub fn sheet(cells: &[Cell], conclusions: &[Conclusion], args: &ProfilesPaperArgs) -> Sheet {
    let held = conclusions.iter().filter(|one| one.holds).count();
    let mut sections = vec![
        Section {
            title: "Sections 4 to 6: the conclusions, checked".to_owned(),
            tables: vec![conclusions_table(conclusions)],
            ..Section::default()
        },
        Section {
            title: "One calibration, at density 100 % alone".to_owned(),
            tables: vec![Grid {
                header: ["of the machine", "value", "from"].map(str::to_owned).to_vec(),
                rows: calibration().into_iter().map(Vec::from).collect(),
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
            tables: vec![efficiency_table(cells, service)],
            charts: (0..3)
                .map(|size| efficiency_chart(cells, service, size))
                .collect(),
            ..Section::default()
        });
        sections.push(Section {
            title: format!("Figure {figure}: throughput and power, {}", service.name()),
            text: vec!["The paper prints no numbers of its plot: the curves are ours.".to_owned()],
            tables: vec![throughput_table(cells, service)],
            charts: (0..3)
                .map(|size| throughput_chart(cells, service, size))
                .collect(),
            ..Section::default()
        });
        sections.push(Section {
            title: format!(
                "Figure {resources}: resources at density 100 %, {}",
                service.name()
            ),
            tables: vec![resources_table(cells, service)],
            bars: ["CPU", "network"]
                .into_iter()
                .map(|what| resource_bars(cells, service, what))
                .collect(),
            ..Section::default()
        });
    }
    sections.push(Section {
        title: "999 KB: why a quarter of the time is more than a quarter of the work".to_owned(),
        text: vec![
            "A hundred answers of 999 KB take a gigabit nearly a second and the Arm nearly three: what is outstanding when the clients stop is \
             still sent, and the pause begins after it. 'In proportion' is what a machine would come to that worked for the density's \
             share of the time. Ours has the effect with clients that pause together; the paper's is larger still at low \
             density, as if its clients fell out of step in part (in our model, clients that pause each by itself come to keep the machine busy all the time)."
                .to_owned(),
        ],
        tables: vec![outstanding_table(cells)],
        ..Section::default()
    });
    let predicted = cells.iter().filter(|cell| !cell.calibrated);
    let (mean, worst) = errors(predicted);
    let (calibrated_mean, calibrated_worst) = errors(cells.iter().filter(|cell| cell.calibrated));
    Sheet {
        kind: "headroom reproduce".to_owned(),
        title: "Power by request size: the paper's evaluation, simulated".to_owned(),
        lead: format!(
            "Tables 1 and 2 of Yamada, Kawai and Oshima beside ours: 18 cells at 100 % calibrated (mean error {calibrated_mean:.1} %, worst \
             {calibrated_worst:.1} %), 54 predicted (mean error {mean:.1} %, worst {worst:.1} %); {held} of {} conclusions hold.",
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

/// Mean and largest absolute error, percent.
fn errors<'a>(cells: impl Iterator<Item = &'a Cell>) -> (f64, f64) {
    let errors: Vec<f64> = cells.map(|cell| cell.error_percent.abs()).collect();
    let sum: f64 = errors.iter().sum();
    (
        sum / errors.len().max(1) as f64,
        errors.into_iter().fold(0.0, f64::max),
    )
}

fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn conclusions_table(conclusions: &[Conclusion]) -> Grid {
    let rows = conclusions.iter().map(|one| {
        vec![
            one.section.to_owned(),
            one.says.to_owned(),
            one.in_the_tables.map_or_else(|| "-".to_owned(), holds),
            holds(one.holds),
            one.remark.clone(),
        ]
    });
    Grid {
        caption: String::new(),
        header: header(&[
            "section",
            "the paper concludes",
            "in its tables",
            "ours",
            "remark",
        ]),
        rows: rows.collect(),
        words: vec![0, 1, 2, 3, 4],
    }
}

fn of_service(cells: &[Cell], service: StudiedService) -> impl Iterator<Item = &Cell> {
    cells.iter().filter(move |cell| cell.service == service.name())
}

fn efficiency_table(cells: &[Cell], service: StudiedService) -> Grid {
    let rows = of_service(cells, service).map(|cell| {
        vec![
            cell.machine.to_owned(),
            cell.size_kb.to_string(),
            cell.density_percent.to_string(),
            format!("{:.2}", cell.paper_kb_per_s_per_w),
            format!("{:.2}", cell.kb_per_s_per_w),
            format!("{:+.1}", cell.error_percent),
            if cell.calibrated {
                "calibrated"
            } else {
                "predicted"
            }
            .to_owned(),
        ]
    });
    Grid {
        caption: String::new(),
        header: header(&[
            "machine",
            "KB",
            "density %",
            "paper KB/s/W",
            "ours KB/s/W",
            "error %",
            "is",
        ]),
        rows: rows.collect(),
        words: vec![0, 6],
    }
}

fn throughput_table(cells: &[Cell], service: StudiedService) -> Grid {
    let rows = of_service(cells, service).map(|cell| {
        vec![
            cell.machine.to_owned(),
            cell.size_kb.to_string(),
            cell.density_percent.to_string(),
            format!("{:.1}", cell.kb_per_s / 1024.0),
            format!("{:.1}", cell.power_w),
            format!("{:.2}", cell.p50_ms),
            format!("{:.2}", cell.p95_ms),
            format!("{:.2}", cell.p99_ms),
        ]
    });
    Grid {
        caption: "1 MB is 1024 KB".to_owned(),
        header: header(&[
            "machine",
            "KB",
            "density %",
            "MB/s",
            "W, simulated",
            "P50 ms",
            "P95 ms",
            "P99 ms",
        ]),
        rows: rows.collect(),
        words: vec![0],
    }
}

fn resources_table(cells: &[Cell], service: StudiedService) -> Grid {
    let rows = of_service(cells, service)
        .filter(|cell| cell.density_percent == 100)
        .map(|cell| {
            vec![
                cell.machine.to_owned(),
                cell.size_kb.to_string(),
                format!("{:.1}", cell.cpu_percent),
                format!("{:.1}", cell.driver_percent),
                format!("{:.1}", cell.network_percent),
            ]
        });
    Grid {
        caption: String::new(),
        header: header(&["machine", "KB", "CPU %", "of it the driver %", "network %"]),
        rows: rows.collect(),
        words: vec![0],
    }
}

fn outstanding_table(cells: &[Cell]) -> Grid {
    let rows = cells.iter().filter(|cell| cell.size_kb == 999).map(|cell| {
        vec![
            cell.machine.to_owned(),
            cell.density_percent.to_string(),
            format!("{:.2}", cell.cycle_s),
            format!("{:.0}", cell.proportional_kb_per_s_per_w),
            format!("{:.0}", cell.kb_per_s_per_w),
            format!("{:.0}", cell.paper_kb_per_s_per_w),
        ]
    });
    Grid {
        caption: "KB/s/W of memcached".to_owned(),
        header: header(&[
            "machine",
            "density %",
            "window and pause s",
            "in proportion",
            "ours",
            "paper",
        ]),
        rows: rows.collect(),
        words: vec![0],
    }
}

/// A machine's cells of a size, by density.
fn curve(
    cells: &[Cell],
    (kind, service, size): (ServingKind, StudiedService, usize),
    label: String,
    stroke: Stroke,
    point: impl Fn(&Cell) -> (f64, f64),
) -> Curve {
    let points = (0..DENSITIES.len()).rev().map(|density| {
        let at = At {
            kind,
            service,
            size,
            density,
        };
        point(&cells[at.index()])
    });
    let mut points: Vec<(f64, f64)> = points.collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    Curve {
        label,
        points,
        stroke,
    }
}

fn efficiency_chart(cells: &[Cell], service: StudiedService, size: usize) -> Chart {
    let density = |cell: &Cell| f64::from(cell.density_percent);
    let curves = ServingKind::ALL.into_iter().flat_map(|kind| {
        let of = (kind, service, size);
        [
            curve(cells, of, kind.name().to_owned(), Stroke::Marked, |cell| {
                (density(cell), cell.kb_per_s_per_w)
            }),
            curve(
                cells,
                of,
                format!("{}, the paper", kind.name()),
                Stroke::Quiet,
                |cell| (density(cell), cell.paper_kb_per_s_per_w),
            ),
        ]
    });
    Chart {
        title: format!(
            "Throughput per power, {}, {} KB",
            service.name(),
            service.sizes_kb()[size]
        ),
        unit: "KB/s/W".to_owned(),
        over: Some("the density in %".to_owned()),
        curves: curves.collect(),
        ..Chart::default()
    }
}

fn throughput_chart(cells: &[Cell], service: StudiedService, size: usize) -> Chart {
    let curves = ServingKind::ALL.into_iter().map(|kind| {
        curve(
            cells,
            (kind, service, size),
            kind.name().to_owned(),
            Stroke::Marked,
            |cell| (cell.power_w, cell.kb_per_s / 1024.0),
        )
    });
    Chart {
        title: format!(
            "Throughput over power, {}, {} KB",
            service.name(),
            service.sizes_kb()[size]
        ),
        unit: "MB/s".to_owned(),
        over: Some("the power in W".to_owned()),
        curves: curves.collect(),
        ..Chart::default()
    }
}

fn resource_bars(cells: &[Cell], service: StudiedService, what: &str) -> Bars {
    let full = of_service(cells, service).filter(|cell| cell.density_percent == 100);
    let values = full.map(|cell| {
        let value = match what {
            "CPU" => cell.cpu_percent,
            _ => cell.network_percent,
        };
        (
            cell.machine.to_owned(),
            format!("{}, {} KB", cell.machine, cell.size_kb),
            value,
        )
    });
    Bars::of(&format!("{what} use"), "%", values)
}
