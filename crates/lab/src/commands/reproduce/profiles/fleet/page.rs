//! The fleet's day as a sheet.

use super::super::ProfilesPaperArgs;
use super::conclusions::{Conclusion, estimate, runs};
use super::day::{self, Day, FLEET, HOURS, SIZES_KB, TARGET_MS};
use super::measure::{ByCause, Outcome, Run};
use super::rows::Way;
use super::{Measured, SCALES};
use headroom_console::Failure;
use headroom_record::report::{Bars, Chart, Curve, Grid, Section, Sheet, Stroke};
use headroom_record::statistics::Estimate;

/// What a load is called that the fleet did not keep up with.
const OVERLOADED: &str = "overloaded";

/// The sheet.
///
/// # Errors
/// A load that the fleet cannot be planned for.
pub fn sheet(
    measured: &Measured,
    conclusions: &[Conclusion],
    args: &ProfilesPaperArgs,
) -> Result<Sheet, Failure> {
    let held = conclusions.iter().filter(|one| one.holds).count();
    let day = Day {
        hour_s: args.hour,
        scale: 1.0,
    };
    let fleet = FLEET
        .map(|(kind, count)| format!("{count} {}", kind.name()))
        .join(", ");
    let sections = vec![
        Section {
            title: "What follows, checked".to_owned(),
            tables: vec![concluded(conclusions)],
            ..Section::default()
        },
        Section {
            title: "A day, way by way".to_owned(),
            text: vec![
                "Energy by its cause, as mean watts. Whatever is on draws its idle watts; what routing decides is work and link. 'late' is the share \
                 of periods whose 95th percentile was over the target."
                    .to_owned(),
            ],
            tables: vec![energy(measured), latency(measured)],
            bars: vec![bars(measured)],
            charts: vec![
                hours(measured, "Power by hour", ByCause::total),
                hours(measured, "Of it, what the requests draw (work and link)", ByCause::served_w),
            ],
            ..Section::default()
        },
        Section {
            title: "Where the gain comes from".to_owned(),
            text: vec![
                "Differences of mean power seed by seed: the same requests came. A negative one is a saving."
                    .to_owned(),
            ],
            tables: vec![differences(measured), by_mix(measured, day)],
            ..Section::default()
        },
        Section {
            title: "How much load each way bears with all on".to_owned(),
            text: vec![format!(
                "Periods that are late, percent, of a third as long a day: of all requests, and of the size of which most are. '{OVERLOADED}' is \
                 a queue that only grew."
            )],
            tables: vec![loads(measured)],
            ..Section::default()
        },
        Section {
            title: "The plan by size".to_owned(),
            text: vec![
                "The advisor's (`headroom place`), for the rates of each hour: which machines are on, and what each kind serves.".to_owned(),
            ],
            tables: vec![plan(day)?],
            ..Section::default()
        },
    ];
    Ok(Sheet {
        kind: "headroom reproduce".to_owned(),
        title: "Power by request size: a mixed fleet over a day, simulated".to_owned(),
        lead: format!(
            "{fleet}; Apache's 1, 10 and 100 KB, small ones by day and large ones at night; 95 % within {TARGET_MS} ms; {held} of {} conclusions hold.",
            conclusions.len()
        ),
        facts: vec![format!("headroom {}", env!("CARGO_PKG_VERSION"))],
        remarks: vec![
            "Simulated: the machines are models of the paper's, calibrated on its Tables 1 and 2.".to_owned(),
            format!(
                "An hour is {} s, boots and shutdowns are shortened by as much; a law decides every {} s.",
                args.hour,
                day::PERIOD_S
            ),
            Estimate::explained(args.seeds),
        ],
        sections,
        provenance: None,
    })
}

fn words(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn written(values: &[f64], decimals: usize) -> String {
    Estimate::of(values).map_or_else(|| OVERLOADED.to_owned(), |one| one.written(decimals))
}

fn each(outcomes: &[Outcome], of: impl Fn(&Run) -> f64) -> Vec<f64> {
    runs(outcomes).map(of).collect()
}

fn concluded(conclusions: &[Conclusion]) -> Grid {
    let rows = conclusions.iter().map(|one| {
        let holds = if one.holds { "holds" } else { "does not hold" };
        vec![one.says.to_owned(), holds.to_owned(), one.figures.clone()]
    });
    Grid {
        caption: String::new(),
        header: words(&["what is said", "here", "by"]),
        rows: rows.collect(),
        words: vec![0, 1, 2],
    }
}

fn energy(measured: &Measured) -> Grid {
    let rows = Way::ALL.iter().zip(&measured.days).map(|(way, day)| {
        let of =
            |cause: fn(&ByCause) -> f64, decimals| written(&each(day, |run| cause(&run.power)), decimals);
        vec![
            way.name().to_owned(),
            of(ByCause::total, 2),
            of(|power| power.total() * 24.0 / 1_000.0, 3),
            of(|power| power.idle_w, 2),
            of(|power| power.work_w, 2),
            of(|power| power.link_w, 2),
            of(|power| power.off_w, 2),
            of(|power| power.switching_w, 3),
        ]
    });
    Grid {
        caption: "mean W, simulated".to_owned(),
        header: words(&[
            "way",
            "all",
            "kWh/day",
            "idle",
            "work",
            "link",
            "off",
            "switching",
        ]),
        rows: rows.collect(),
        words: vec![0],
    }
}

fn latency(measured: &Measured) -> Grid {
    let rows = Way::ALL.iter().zip(&measured.days).map(|(way, day)| {
        let late = |size: usize| written(&each(day, |run| run.late_by_size_percent[size]), 2);
        let p95 = |size: usize| written(&each(day, |run| run.p95_ms[size]), 2);
        vec![
            way.name().to_owned(),
            written(&each(day, |run| run.late_percent), 2),
            late(0),
            late(1),
            late(2),
            p95(0),
            p95(1),
            p95(2),
            written(&each(day, |run| run.failed as f64), 0),
            written(&each(day, |run| run.route_changes as f64), 0),
        ]
    });
    Grid {
        caption: format!("periods late, percent, and the day's P95, ms (target {TARGET_MS} ms)"),
        header: words(&[
            "way",
            "late %",
            "1 KB",
            "10 KB",
            "100 KB",
            "P95 1 KB",
            "10 KB",
            "100 KB",
            "failed",
            "routes changed",
        ]),
        rows: rows.collect(),
        words: vec![0],
    }
}

fn bars(measured: &Measured) -> Bars {
    let values = Way::ALL.iter().zip(&measured.days).filter_map(|(way, day)| {
        let mean = Estimate::of(&each(day, |run| run.power.total()))?.mean;
        Some((way.name().to_owned(), way.name().to_owned(), mean))
    });
    Bars::of("Mean power", "W", values)
}

fn hours(measured: &Measured, title: &str, of: fn(&ByCause) -> f64) -> Chart {
    let curves = Way::ALL.iter().zip(&measured.days).filter_map(|(way, day)| {
        let point = |hour: usize| {
            let mean = Estimate::of(&each(day, |run| of(&run.hours[hour])))?.mean;
            Some((hour as f64, mean))
        };
        Some(Curve {
            label: way.name().to_owned(),
            points: (0..HOURS).map(point).collect::<Option<_>>()?,
            stroke: Stroke::Marked,
        })
    });
    Chart {
        title: title.to_owned(),
        unit: "W".to_owned(),
        over: Some("the hour of the day".to_owned()),
        curves: curves.collect(),
        ..Chart::default()
    }
}

fn differences(measured: &Measured) -> Grid {
    use Way::{
        ByCapacity, LeastConnections, Placement, Plan, PlanLeastConnections, PlanPlacement, RoundRobin,
    };
    let pairs = [
        (
            "routing by size, all on, against round robin",
            Placement,
            RoundRobin,
        ),
        (
            "routing by size, all on, against least connections",
            Placement,
            LeastConnections,
        ),
        (
            "routing by size, all on, against weights by capacity",
            Placement,
            ByCapacity,
        ),
        (
            "switching, least connections",
            PlanLeastConnections,
            LeastConnections,
        ),
        (
            "routing by size with machines switched",
            PlanPlacement,
            PlanLeastConnections,
        ),
        ("both, against least connections", PlanPlacement, LeastConnections),
        (
            "both, as planned, against least connections",
            Plan,
            LeastConnections,
        ),
    ];
    let rows = pairs.map(|(what, way, from)| {
        let of = |cause: fn(&ByCause) -> f64| {
            estimate(measured, way, from, cause).map_or_else(|| OVERLOADED.to_owned(), |one| one.written(2))
        };
        vec![
            what.to_owned(),
            of(ByCause::total),
            of(|power| power.idle_w + power.off_w + power.switching_w),
            of(|power| power.work_w),
            of(|power| power.link_w),
        ]
    });
    Grid {
        caption: "differences of mean W".to_owned(),
        header: words(&["gain of", "all", "idle, off, switching", "work", "link"]),
        rows: rows.to_vec(),
        words: vec![0],
    }
}

/// The gain of routing alone in hours of small, mixed and large requests.
fn by_mix(measured: &Measured, day: Day) -> Grid {
    let rows = [14, 20, 3].map(|hour| {
        let served = |way: Way| each(&measured.days[way as usize], |run| run.hours[hour].served_w());
        let whole = each(&measured.days[Way::LeastConnections as usize], |run| {
            run.hours[hour].total()
        });
        let saved = |from: Way| {
            let one = Estimate::of_differences(&served(Way::Placement), &served(from));
            one.map_or_else(|| OVERLOADED.to_owned(), |one| one.written(2))
        };
        let rates = day.rates(hour).map(|rate| format!("{rate:.0}")).join(" / ");
        vec![
            format!("{hour}:00"),
            rates,
            written(&whole, 1),
            written(&served(Way::LeastConnections), 2),
            written(&served(Way::Placement), 2),
            saved(Way::RoundRobin),
            saved(Way::LeastConnections),
            saved(Way::ByCapacity),
        ]
    });
    Grid {
        caption: "routing alone by the mix of an hour, all on: W of work and link".to_owned(),
        header: words(&[
            "hour",
            "1 / 10 / 100 KB per s",
            "least connections, with idle",
            "least connections",
            "placement",
            "against round robin",
            "against least connections",
            "against weights",
        ]),
        rows: rows.to_vec(),
        words: vec![0, 1],
    }
}

fn loads(measured: &Measured) -> Grid {
    let rows = Way::ALL_ON.iter().zip(&measured.loads).map(|(way, loads)| {
        let cell = |outcomes: &Vec<Outcome>| {
            if let Some(hour) = outcomes.iter().find_map(|one| match one {
                Outcome::Overloaded { hour } => Some(*hour),
                Outcome::Ended(_) => None,
            }) {
                return format!("{OVERLOADED} at {hour:.0}:00");
            }
            let worst = |run: &Run| run.late_by_size_percent.into_iter().fold(0.0, f64::max);
            format!(
                "{} | {}",
                written(&each(outcomes, |run| run.late_percent), 1),
                written(&each(outcomes, worst), 1)
            )
        };
        std::iter::once(way.name().to_owned())
            .chain(loads.iter().map(cell))
            .collect()
    });
    let scales = SCALES.map(|scale| format!("{:.0} % load", scale * 100.0));
    Grid {
        caption: "late %: all requests | the worst size".to_owned(),
        header: std::iter::once("way".to_owned()).chain(scales).collect(),
        rows: rows.collect(),
        words: vec![0, 1, 2, 3, 4, 5],
    }
}

fn plan(day: Day) -> Result<Grid, Failure> {
    let steps = day.plan(true)?;
    let other = day.plan(false)?;
    let rows = (0..HOURS).map(|hour| {
        let step = &steps[hour];
        let numbers = |on: &[u32]| on.iter().map(u32::to_string).collect::<Vec<_>>().join(" / ");
        let share = |class: usize| {
            let of = |kind: usize| step.rate(kind, class).get();
            let whole: f64 = (0..FLEET.len()).map(of).sum();
            (0..FLEET.len())
                .map(|kind| format!("{:.0}", of(kind) / whole.max(1e-9) * 100.0))
                .collect::<Vec<_>>()
                .join(" / ")
        };
        let mut row = vec![format!("{hour}:00"), numbers(&step.on), numbers(&other[hour].on)];
        row.extend((0..SIZES_KB.len()).map(share));
        row
    });
    Ok(Grid {
        caption: format!(
            "{}; shares in percent",
            FLEET.map(|(kind, _)| kind.name()).join(" / ")
        ),
        header: words(&[
            "hour",
            "on",
            "on, for least connections",
            "1 KB",
            "10 KB",
            "100 KB",
        ]),
        rows: rows.collect(),
        words: vec![0, 1, 2, 3, 4, 5],
    })
}
