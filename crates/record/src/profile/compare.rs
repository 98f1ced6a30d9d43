//! Profiles beside each other: the paper's tables and plots, and whether two of one machine agree.

use super::agreement::{Agreement, Answer, TOO_WIDE, agreement, cell_name, percent};
use super::cell::{Cell, Mark};
use super::file::{BaselineKind, Profile};
use super::{KB, size_text};
use crate::report::{Bars, Chart, Curve, Grid, Section, Sheet, Stroke};
use crate::statistics::Estimate;
use std::collections::BTreeSet;

/// What profiles are called beside each other: their names, and a number where two share one.
pub fn names(profiles: &[&Profile]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for profile in profiles {
        let base = match profile.name.is_empty() {
            true => "unnamed",
            false => &profile.name,
        };
        let same = profiles.iter().filter(|other| other.name == profile.name).count();
        let name = match same {
            1 => base.to_owned(),
            _ => (1..)
                .map(|number| format!("{base} ({number})"))
                .find(|name| !names.contains(name))
                .unwrap_or_default(),
        };
        names.push(name);
    }
    names
}

/// The sizes of all of them, ascending, and the densities, descending.
fn axes(profiles: &[&Profile]) -> (Vec<u64>, Vec<f64>) {
    let cells = || profiles.iter().flat_map(|profile| &profile.cells);
    let sizes: BTreeSet<u64> = cells().map(|cell| cell.size_bytes).collect();
    let mut densities: Vec<f64> = cells().map(|cell| cell.density).collect();
    densities.sort_by(|one, two| two.total_cmp(one));
    densities.dedup_by(|one, two| (*one - *two).abs() < 1e-9);
    (sizes.into_iter().collect(), densities)
}

/// Up to so many cells a note names each.
const NAMED: usize = 2;

/// From this share of its cores on a machine that is to be idle is not.
const NOT_IDLE: f64 = 0.05;

/// What a reader of one profile's figures must know, also where they are used for something else.
pub fn warnings(profile: &Profile) -> Vec<String> {
    let names = names(&[profile]);
    let notes = profile.notes.iter().zip(names.iter().cycle());
    let mut all = remarks(&[profile], &names);
    all.extend(notes.map(|(note, name)| format!("{name}: {note}")));
    let wide = profile
        .cells
        .iter()
        .filter(|cell| cell.marks.contains(&Mark::Wide))
        .count();
    let cells = profile.cells.iter().filter(|cell| !cell.windows.is_empty());
    let unknown: Vec<String> = cells.filter(|cell| !cell.is_known()).map(cell_name).collect();
    if !unknown.is_empty() {
        all.push(format!(
            "{}: left out for having fewer than three windows or an interval of more than half of what was served: {}; the same command measures on",
            names[0],
            unknown.join(", ")
        ));
    }
    if wide > 0 {
        all.push(format!(
            "{}: {wide} of {} cells are not known as narrowly as was asked",
            names[0],
            profile.cells.len()
        ));
    }
    all
}

/// One or several profiles as a page: tables, plots, and what to know before they are read.
pub fn sheet(profiles: &[&Profile]) -> Sheet {
    let names = names(profiles);
    let (sizes, densities) = axes(profiles);
    let mut remarks = remarks(profiles, &names);
    let mut sections = vec![
        machines(profiles, &names),
        per_power(profiles, &names, &sizes, &densities),
        over_power(profiles, &names, &sizes),
        resources(profiles, &names, &sizes),
    ];
    sections.extend(
        profiles
            .iter()
            .zip(&names)
            .map(|(profile, name)| cells(profile, name)),
    );
    sections.extend(agreed(profiles).map(|found| agreeing(&found, &names)));
    sections.extend(no_verdict(profiles));
    remarks.extend(
        profiles
            .iter()
            .zip(&names)
            .flat_map(|(profile, name)| profile.notes.iter().map(move |note| format!("{name}: {note}"))),
    );
    Sheet {
        kind: "profile".to_owned(),
        title: "Throughput per power by request size and density".to_owned(),
        lead: lead(profiles, &names, &sizes),
        facts: facts(profiles, &names),
        remarks,
        sections,
        provenance: match profiles {
            [one] => Some(one.provenance.clone()),
            _ => None,
        },
    }
}

/// Whether all watts come from one kind of source, so that they may be ranked.
fn one_source(profiles: &[&Profile]) -> bool {
    let mut sources = profiles
        .iter()
        .map(|profile| profile.meter.as_ref().map(|meter| meter.source));
    let first = sources.next().flatten();
    first.is_some() && sources.all(|source| source == first)
}

fn lead(profiles: &[&Profile], names: &[String], sizes: &[u64]) -> String {
    if profiles.len() < 2 {
        return "What the machine serves for a watt, by the size of the requests and by how much of the time they come.".to_owned();
    }
    if !one_source(profiles) {
        return "These watts are of different sources, or missing: they stand beside each other and are not ranked.".to_owned();
    }
    let protocol = |profile: &&Profile| profile.service.protocol;
    if profiles
        .iter()
        .any(|profile| protocol(profile) != protocol(&profiles[0]))
    {
        return "These are of different protocols: they stand beside each other and are not ranked."
            .to_owned();
    }
    let best: Vec<String> = sizes
        .iter()
        .filter_map(|size| best_at(profiles, names, *size))
        .collect();
    match best.is_empty() {
        true => {
            "No size was measured at 100 % with watts on each, or no figure is a machine's own.".to_owned()
        }
        false => format!("The most KB/s for a watt under full load: {}.", best.join(", ")),
    }
}

/// Who serves the most for a watt at full load, as far as the intervals show it; `None` where fewer than two say.
fn best_at(profiles: &[&Profile], names: &[String], size: u64) -> Option<String> {
    let of = |(profile, name): (&&Profile, &String)| {
        let cell = profile.cell(size, 1.0).filter(|cell| cell.is_true())?;
        Some((cell.throughput_per_power()?, name.clone()))
    };
    let mut found: Vec<(Estimate, String)> = profiles.iter().zip(names).filter_map(of).collect();
    found.sort_by(|one, two| two.0.mean.total_cmp(&one.0.mean));
    let ((first, name), (second, _)) = (found.first()?, found.get(1)?);
    let width = first
        .half_width
        .zip(second.half_width)
        .map(|(one, two)| one.hypot(two));
    let size = size_text(size);
    Some(match width {
        Some(width) if first.mean - second.mean > width => format!("{name} at {size}"),
        _ => format!("none that the intervals tell apart at {size}"),
    })
}

/// How they were measured: in a line for all where it is the same, else in one for each.
fn facts(profiles: &[&Profile], names: &[String]) -> Vec<String> {
    let of = |profile: &Profile| {
        let plan = &profile.plan;
        vec![
            format!("{} connections", plan.concurrency),
            format!("windows of {} s", plan.window_s),
            format!("{} % sets", percent(plan.sets_share)),
            match plan.keep_alive {
                true => "connections kept".to_owned(),
                false => "a connection for each request".to_owned(),
            },
        ]
    };
    let all: Vec<Vec<String>> = profiles.iter().map(|profile| of(profile)).collect();
    match all.first() {
        Some(first) if all.iter().any(|one| one != first) => names
            .iter()
            .zip(&all)
            .map(|(name, facts)| format!("{name}: {}", facts.join(", ")))
            .collect(),
        first => first.cloned().unwrap_or_default(),
    }
}

/// When, by which command and program each of several was measured.
fn origins(profiles: &[&Profile], names: &[String]) -> Vec<String> {
    let of = |(profile, name): (&&Profile, &String)| {
        let origin = &profile.provenance;
        let commit = origin.commit.as_ref().map(|commit| format!(", {commit}"));
        format!(
            "{name}: {}, by `{}` ({}{})",
            origin.date,
            origin.command,
            origin.version,
            commit.unwrap_or_default()
        )
    };
    match profiles.len() {
        // The page's own origin.
        0 | 1 => Vec::new(),
        _ => profiles.iter().zip(names).map(of).collect(),
    }
}

fn remarks(profiles: &[&Profile], names: &[String]) -> Vec<String> {
    let mut remarks = Vec::new();
    if profiles.len() > 1 && !one_source(profiles) {
        remarks.push(
            "The watts come from different sources (measured, estimated, emulated), or some have none: efficiencies of different sources \
             are not comparable."
                .to_owned(),
        );
    }
    if let Some(first) = profiles.first() {
        let other = profiles.iter().zip(names).skip(1).filter(|(profile, _)| {
            let (one, two) = (&first.plan, &profile.plan);
            (one.concurrency, one.window_s, one.sets_share, one.keep_alive)
                != (two.concurrency, two.window_s, two.sets_share, two.keep_alive)
                || first.service.protocol != profile.service.protocol
        });
        for (_, name) in other {
            remarks.push(format!(
                "{name} was measured in another way than {} (protocol, connections, window, mix or keep-alive): what differs between them \
                 is not the machines alone.",
                names.first().map_or("", String::as_str)
            ));
        }
    }
    for (profile, name) in profiles.iter().zip(names) {
        if profile.client_is_local {
            remarks.push(format!(
                "{name}: the generator ran on the machine that it measured and took a part of its cores. Measure from another machine for what \
                 it serves alone."
            ));
        }
        let idle = profile
            .baseline(BaselineKind::Idle)
            .and_then(|idle| idle.busy_cores);
        if let Some(busy) = idle.filter(|busy| *busy > NOT_IDLE * f64::from(profile.machine.cores.max(1))) {
            remarks.push(format!(
                "{name}: other programs kept {busy:.1} of {} cores busy while it was to be idle: its watts and what it serves are not its service's \
                 alone.",
                profile.machine.cores
            ));
        }
        let disturbed: Vec<String> = profile
            .cells
            .iter()
            .filter(|cell| profile.is_disturbed(cell))
            .map(cell_name)
            .collect();
        if !disturbed.is_empty() {
            remarks.push(format!(
                "{name}: something else kept cores busy in the pauses of {}: more than all would have been busy while requests were sent. Its watts \
                 and use there are not its service's alone, and what bounds it is not known.",
                disturbed.join(", ")
            ));
        }
        let below: Vec<String> = profile.below_idle().map(cell_name).collect();
        if !below.is_empty() {
            remarks.push(format!(
                "{name}: less power than idle at {}: others were at work while it was to be idle, or the meter is not of this machine alone.",
                below.join(", ")
            ));
        }
        let missing = profile
            .cells
            .iter()
            .filter(|cell| cell.windows.is_empty())
            .count();
        if missing > 0 {
            remarks.push(format!(
                "{name}: {missing} of {} cells were not measured; the same command goes on with them.",
                profile.cells.len()
            ));
        }
    }
    remarks
}

fn machines(profiles: &[&Profile], names: &[String]) -> Section {
    let watts = |profile: &Profile, kind| {
        let power = profile.baseline(kind).and_then(|baseline| baseline.power_w);
        power.map_or_else(|| "-".to_owned(), |power| format!("{power:.1}"))
    };
    let rows = profiles.iter().zip(names).map(|(profile, name)| {
        let link = profile.link_limit_bytes_per_s();
        vec![
            name.clone(),
            format!(
                "{} x {}",
                profile.machine.cores,
                known(&profile.machine.processor)
            ),
            link.map_or_else(|| "-".to_owned(), |link| format!("{:.1}", link / KB / KB)),
            format!("{} {}", profile.service.protocol, profile.service.software)
                .trim()
                .to_owned(),
            match &profile.meter {
                Some(meter) => format!("{} ({})", meter.source, meter.name),
                None => "none".to_owned(),
            },
            watts(profile, BaselineKind::Idle),
            watts(profile, BaselineKind::Cores),
            watts(profile, BaselineKind::Network),
        ]
    });
    Section {
        title: "The machines".to_owned(),
        tables: vec![Grid {
            header: texts(&[
                "machine",
                "cores",
                "link, MB/s",
                "service",
                "watts",
                "idle, W",
                "all cores busy, W",
                "network only, W",
            ]),
            rows: rows.collect(),
            words: vec![0, 1, 3, 4],
            ..Grid::default()
        }],
        text: origins(profiles, names),
        ..Section::default()
    }
}

fn known(text: &str) -> &str {
    match text.is_empty() {
        true => "not known",
        false => text,
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// An estimate with a star where the cell's figures are not the machine's own.
fn figure(estimate: Option<Estimate>, decimals: usize, cell: Option<&Cell>) -> String {
    let star = if cell.is_some_and(|cell| !cell.is_true()) {
        " *"
    } else {
        ""
    };
    estimate.map_or_else(
        || "-".to_owned(),
        |one| format!("{}{star}", one.written(decimals)),
    )
}

fn per_power(profiles: &[&Profile], names: &[String], sizes: &[u64], densities: &[f64]) -> Section {
    let tables = sizes.iter().map(|size| {
        let rows = profiles.iter().zip(names).map(|(profile, name)| {
            let cell = |density: &f64| {
                let cell = profile.cell(*size, *density);
                let figure = figure(cell.and_then(Cell::throughput_per_power), 1, cell);
                match cell.and_then(Cell::other_density) {
                    Some(had) => format!("{figure} (at {} %)", percent(had)),
                    None => figure,
                }
            };
            std::iter::once(name.clone())
                .chain(densities.iter().map(cell))
                .collect()
        });
        Grid {
            caption: format!("{}, KB/s/W by density", size_text(*size)),
            header: std::iter::once("machine".to_owned())
                .chain(densities.iter().map(|density| format!("{} %", percent(*density))))
                .collect(),
            rows: rows.collect(),
            words: vec![0],
        }
    });
    let charts = sizes.iter().map(|size| Chart {
        title: format!("{}: throughput per power", size_text(*size)),
        unit: "KB/s/W".to_owned(),
        over: Some("density, %".to_owned()),
        curves: curves(profiles, names, *size, |cell| {
            Some((cell.density * 100.0, cell.throughput_per_power()?.mean))
        }),
        ..Chart::default()
    });
    Section {
        title: "Throughput per power".to_owned(),
        text: vec![format!(
            "Means over windows with 95 % intervals, of latencies the means of each window's percentile; a KB is {KB:.0} bytes of content, and a MB {KB:.0} KB. A star marks what is not the machine's own figure: \
             a note below says why. In brackets is the density that a cell had, where it is another than was asked for by more than 2 points."
        )],
        tables: tables.collect(),
        charts: charts.filter(|chart| !chart.curves.is_empty()).collect(),
        ..Section::default()
    }
}

/// A curve of each profile that has points for a size, from left to right.
fn curves(
    profiles: &[&Profile],
    names: &[String],
    size: u64,
    point: impl Fn(&Cell) -> Option<(f64, f64)>,
) -> Vec<Curve> {
    let curve = |(profile, name): (&&Profile, &String)| {
        let cells = profile.cells.iter().filter(|cell| cell.size_bytes == size);
        let mut points: Vec<(f64, f64)> = cells.filter_map(&point).collect();
        points.sort_by(|one, two| one.0.total_cmp(&two.0));
        (!points.is_empty()).then(|| Curve {
            label: name.clone(),
            points,
            stroke: Stroke::Marked,
        })
    };
    profiles.iter().zip(names).filter_map(curve).collect()
}

fn over_power(profiles: &[&Profile], names: &[String], sizes: &[u64]) -> Section {
    let charts = sizes.iter().map(|size| Chart {
        title: format!("{}: throughput over power", size_text(*size)),
        unit: "MB/s".to_owned(),
        over: Some("power, W".to_owned()),
        curves: curves(profiles, names, *size, |cell| {
            Some((cell.power_w()?.mean, cell.throughput_kb_per_s()?.mean / KB))
        }),
        ..Chart::default()
    });
    Section {
        title: "Throughput and power".to_owned(),
        text: vec!["Each point is a density; the more to the upper left, the better.".to_owned()],
        charts: charts.filter(|chart| !chart.curves.is_empty()).collect(),
        ..Section::default()
    }
}

fn resources(profiles: &[&Profile], names: &[String], sizes: &[u64]) -> Section {
    let mut bars = Vec::new();
    for (title, of) in [
        (
            "Cores busy while requests are sent",
            share_of_cores as fn(&Profile, &Cell) -> Option<f64>,
        ),
        ("Cores busy in software interrupts", share_of_softirq),
        ("Link used while requests are sent", share_of_link),
    ] {
        let values = profiles.iter().zip(names).flat_map(|(profile, name)| {
            sizes.iter().filter_map(move |size| {
                let cell = profile.cell(*size, 1.0)?;
                let label = format!("{name}, {}", size_text(*size));
                Some((name.clone(), label, of(profile, cell)? * 100.0))
            })
        });
        let values: Vec<_> = values.collect();
        if !values.is_empty() {
            bars.push(Bars::of(title, "%", values));
        }
    }
    Section {
        title: "Resource use at density 100 %".to_owned(),
        bars,
        ..Section::default()
    }
}

fn share_of_cores(profile: &Profile, cell: &Cell) -> Option<f64> {
    profile.busy_while_sending(cell)
}

fn share_of_softirq(profile: &Profile, cell: &Cell) -> Option<f64> {
    profile.softirq_while_sending(cell)
}

fn share_of_link(profile: &Profile, cell: &Cell) -> Option<f64> {
    Some(profile.link_while_sending(cell)? / profile.link_limit_bytes_per_s()?)
}

fn cells(profile: &Profile, name: &str) -> Section {
    let share =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0));
    let rows = profile.cells.iter().map(|cell| {
        vec![
            size_text(cell.size_bytes),
            match cell.other_density() {
                Some(had) => format!("{} % (had {} %)", percent(cell.density), percent(had)),
                None => format!("{} %", percent(cell.density)),
            },
            figure(cell.requests_per_s(), 0, Some(cell)),
            figure(scaled(cell.throughput_kb_per_s(), 1.0 / KB), 2, Some(cell)),
            figure(cell.power_w(), 1, None),
            share(share_of_cores(profile, cell)),
            share(share_of_softirq(profile, cell)),
            share(share_of_link(profile, cell)),
            cell.latency_ms(|latency| latency.p50_ms)
                .map_or_else(|| "-".to_owned(), |one| format!("{:.2}", one.mean)),
            cell.latency_ms(|latency| latency.p95_ms)
                .map_or_else(|| "-".to_owned(), |one| format!("{:.2}", one.mean)),
            cell.latency_ms(|latency| latency.p99_ms)
                .map_or_else(|| "-".to_owned(), |one| format!("{:.2}", one.mean)),
            cell.latency_ms(|latency| latency.p999_ms)
                .map_or_else(|| "-".to_owned(), |one| format!("{:.2}", one.mean)),
            profile
                .bound(cell)
                .map_or_else(|| "-".to_owned(), |bound| bound.to_string()),
            cell.counted().count().to_string(),
        ]
    });
    Section {
        title: format!("{name}, cell by cell"),
        text: notes(profile),
        tables: vec![Grid {
            header: texts(&[
                "size",
                "density",
                "requests/s",
                "MB/s",
                "W",
                "cores",
                "softirq",
                "link",
                "P50, ms",
                "P95, ms",
                "P99, ms",
                "P99.9, ms",
                "bound by",
                "windows",
            ]),
            rows: rows.collect(),
            words: vec![0, 1, 12],
            ..Grid::default()
        }],
        ..Section::default()
    }
}

/// A line for each thing that is wrong with cells: which, or how many where they are more than a line has room for.
fn notes(profile: &Profile) -> Vec<String> {
    let mut marks: Vec<Mark> = profile
        .cells
        .iter()
        .flat_map(|cell| cell.marks.iter().copied())
        .collect();
    marks.sort_unstable();
    marks.dedup();
    let note = |mark: Mark| {
        let marked: Vec<String> = profile
            .cells
            .iter()
            .filter(|cell| cell.marks.contains(&mark))
            .map(cell_name)
            .collect();
        let (count, all) = (marked.len(), profile.cells.len());
        let which = match count {
            // What is not the machine's own is named.
            _ if mark.is_untrue() || count <= NAMED => marked.join(", "),
            _ if count == all => format!("all {all} cells"),
            _ => format!("{count} of {all} cells"),
        };
        format!("{which}: {}.", mark.text())
    };
    let aside = profile.cells.iter().filter_map(|cell| match cell.set_aside() {
        0 => None,
        1 => Some(format!("{}: 1 window set aside: failures.", cell_name(cell))),
        more => Some(format!(
            "{}: {more} windows set aside: failures.",
            cell_name(cell)
        )),
    });
    marks.into_iter().map(note).chain(aside).collect()
}

fn scaled(estimate: Option<Estimate>, factor: f64) -> Option<Estimate> {
    let one = estimate?;
    Some(Estimate {
        mean: one.mean * factor,
        half_width: one.half_width.map(|half| half * factor),
        ..one
    })
}

/// How two profiles of one machine, service and plan agree; `None` of different ones, and of one or three.
pub(super) fn agreed(profiles: &[&Profile]) -> Option<Agreement> {
    match profiles {
        [one, two] if one.cannot_be_held_against(two).is_none() => Some(agreement(one, two)),
        _ => None,
    }
}

/// Why two profiles of one machine and service have no verdict.
fn no_verdict(profiles: &[&Profile]) -> Option<Section> {
    let [one, two] = profiles else { return None };
    let differing = one
        .cannot_be_held_against(two)
        .filter(|_| one.is_of_the_same(two))?;
    Some(Section {
        title: "Whether the two agree".to_owned(),
        text: vec![format!(
            "It cannot be told, for they are not of the same: {differing}."
        )],
        ..Section::default()
    })
}

fn agreeing(found: &Agreement, names: &[String]) -> Section {
    let rows = found
        .apart
        .iter()
        .map(|apart| vec![apart.what.clone(), apart.one.written(1), apart.two.written(1)]);
    let verdict = format!(
        "{} of {} figures (throughput and power of each cell) are further apart than the 95 % interval of their difference; by chance alone it \
         may be {}: {}.",
        found.apart.len(),
        found.figures,
        found.by_chance(),
        match found.answer() {
            Answer::Agree => "they agree",
            Answer::Differ => "they do not agree",
            Answer::CannotTell =>
                "too few are known to tell whether they agree. Measure for longer (--within), on a machine that does nothing else",
        }
    );
    let unknown = format!(
        "{} more cannot be judged, for their difference is known to no better than {:.0} %: {}.",
        found.unknown.len(),
        TOO_WIDE * 100.0,
        found.unknown.join(", ")
    );
    Section {
        title: "Whether the two agree".to_owned(),
        text: std::iter::once(verdict)
            .chain((!found.unknown.is_empty()).then_some(unknown))
            .collect(),
        tables: match found.apart.is_empty() {
            true => Vec::new(),
            false => vec![Grid {
                header: std::iter::once("figure".to_owned())
                    .chain(names.iter().cloned())
                    .collect(),
                rows: rows.collect(),
                words: vec![0],
                ..Grid::default()
            }],
        },
        ..Section::default()
    }
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
