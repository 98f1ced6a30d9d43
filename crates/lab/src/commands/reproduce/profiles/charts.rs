//! The paper's figures: our cells as curves and bars, beside what the paper has numbers of.

use super::cells::Cell;
use super::grids::of_service;
use super::paper::{At, DENSITIES};
use headroom_physics::{ServingKind, StudiedService};
use headroom_record::report::{Bars, Chart, Curve, Stroke};

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

/// Throughput per power by density, ours and the paper's.
pub fn efficiency(cells: &[Cell], service: StudiedService, size: usize) -> Chart {
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
                Stroke::Beside,
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

/// Throughput over power.
pub fn throughput(cells: &[Cell], service: StudiedService, size: usize) -> Chart {
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

/// A resource at density 100 %.
pub fn resource(cells: &[Cell], service: StudiedService, what: &str) -> Bars {
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
