//! The cells, the errors and the conclusions as tables.

use super::cells::Cell;
use super::conclusions::Conclusion;
use super::straight::Errors;
use headroom_physics::StudiedService;
use headroom_record::report::Grid;

fn holds(answer: bool) -> String {
    if answer { "yes" } else { "no" }.to_owned()
}

fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The conclusions.
pub fn conclusions(conclusions: &[Conclusion]) -> Grid {
    let rows = conclusions.iter().map(|one| {
        vec![
            one.section.to_owned(),
            match one.remark.as_str() {
                "" => one.says.to_owned(),
                remark => format!("{} ({remark})", one.says),
            },
            one.in_the_tables.map_or_else(|| "-".to_owned(), holds),
            holds(one.holds),
            format!("{:+.1} {}", one.margin, one.unit),
            one.follows_from.name().to_owned(),
        ]
    });
    Grid {
        caption: String::new(),
        header: header(&[
            "section",
            "the paper concludes",
            "tables",
            "ours",
            "margin",
            "follows from",
        ]),
        rows: rows.collect(),
        words: vec![0, 1, 2, 3, 5],
    }
}

/// What the simulation adds to a straight line.
pub fn errors(errors: &[Errors]) -> Grid {
    let rows = errors.iter().map(|one| {
        vec![
            one.cells.clone(),
            one.count.to_string(),
            format!("{:.1}", one.line_percent),
            format!("{:+.1}", one.line_signed_percent),
            format!("{:.1}", one.ours_percent),
            format!("{:+.1}", one.ours_signed_percent),
            format!("{:+.1}", one.throughput_percent),
            format!("{:+.1}", one.power_percent),
            format!("{:+.2}", one.paper_lost_s),
            format!("{:+.2}", one.ours_lost_s),
        ]
    });
    Grid {
        caption: "KB/s/W of the predicted cells, percent off the paper's on average".to_owned(),
        header: header(&[
            "cells",
            "of",
            "line",
            "signed",
            "ours",
            "signed",
            "KB/s",
            "W",
            "paper lost s",
            "ours lost s",
        ]),
        rows: rows.collect(),
        words: vec![0],
    }
}

/// The cells of a service.
pub fn of_service(cells: &[Cell], service: StudiedService) -> impl Iterator<Item = &Cell> {
    cells.iter().filter(move |cell| cell.service == service.name())
}

/// Table 1 or 2.
pub fn efficiency(cells: &[Cell], service: StudiedService) -> Grid {
    let rows = of_service(cells, service).map(|cell| {
        vec![
            cell.machine.to_owned(),
            cell.size_kb.to_string(),
            cell.density_percent.to_string(),
            format!("{:.2}", cell.paper_kb_per_s_per_w),
            format!("{:.2}", cell.kb_per_s_per_w),
            format!("{:+.1}", cell.error_percent),
            format!("{:.2}", cell.line_kb_per_s_per_w),
            format!("{:+.1}", cell.line_error_percent),
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
            "straight line",
            "error %",
            "is",
        ]),
        rows: rows.collect(),
        words: vec![0, 8],
    }
}

/// What is plotted in Figure 1 or 3.
pub fn throughput(cells: &[Cell], service: StudiedService) -> Grid {
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

/// What is plotted in Figure 2 or 4.
pub fn resources(cells: &[Cell], service: StudiedService) -> Grid {
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

/// 999 KB: what is outstanding at the end of a window.
pub fn outstanding(cells: &[Cell]) -> Grid {
    let rows = cells.iter().filter(|cell| cell.size_kb == 999).map(|cell| {
        vec![
            cell.machine.to_owned(),
            cell.density_percent.to_string(),
            format!("{:.2}", cell.cycle_s),
            format!("{:.0}", cell.line_kb_per_s_per_w),
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
            "straight line",
            "ours",
            "paper",
        ]),
        rows: rows.collect(),
        words: vec![0],
    }
}
