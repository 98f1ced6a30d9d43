//! Profiles as rows of figures, for programs.

use super::agreement::{Answer, Apart};
use super::bound::Bound;
use super::cell::{Cell, Mark};
use super::compare::{agreed, names};
use super::file::Profile;
use crate::statistics::Estimate;
use headroom_units::Source;
use serde::Serialize;

/// One cell of a profile with its figures, for programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The profile's name, as tables have it.
    pub profile: String,
    /// Bytes.
    pub size_bytes: u64,
    /// The share of each window in which requests were to be sent.
    pub density: f64,
    /// The share in which they were: more, where clients waited long for their last answers.
    pub density_had: Option<f64>,
    /// Requests a second.
    pub requests_per_s: Option<Estimate>,
    /// KB/s.
    pub throughput_kb_per_s: Option<Estimate>,
    /// Watts.
    pub power_w: Option<Estimate>,
    /// Where the watts come from.
    pub power_source: Option<Source>,
    /// KB/s for each watt.
    pub throughput_per_power: Option<Estimate>,
    /// Busy cores.
    pub busy_cores: Option<Estimate>,
    /// Of these, in software interrupts.
    pub softirq_cores: Option<Estimate>,
    /// Of the link's busier direction, bytes a second.
    pub link_bytes_per_s: Option<Estimate>,
    /// Median of the windows' latencies, milliseconds.
    pub latency_p50_ms: Option<Estimate>,
    /// 95th percentile.
    pub latency_p95_ms: Option<Estimate>,
    /// 99th percentile.
    pub latency_p99_ms: Option<Estimate>,
    /// The first resource that is full.
    pub bound: Option<Bound>,
    /// Windows that the figures are of.
    pub windows: usize,
    /// Windows that are set aside for their failures.
    pub windows_set_aside: usize,
    /// What keeps the figures from being taken as they are.
    pub marks: Vec<Mark>,
}

/// Profiles beside each other, for programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// [`Comparison::SCHEMA`].
    pub schema: &'static str,
    /// Every cell of every profile.
    pub rows: Vec<Row>,
    /// Whether two of one machine, service and plan agree; `None` of any others.
    pub agreement: Option<Verdict>,
}

/// Whether two profiles say the same.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// As well as two measurements of the same do.
    pub agree: bool,
    /// The same, and whether it could be told.
    pub answer: Answer,
    /// Figures that both have with an interval narrow enough to tell: throughput and power of each cell.
    pub figures: usize,
    /// Those whose intervals are too wide to tell.
    pub unknown: Vec<String>,
    /// How many of these may be apart by chance.
    pub by_chance: usize,
    /// Those that are apart.
    pub apart: Vec<Apart>,
}

impl Comparison {
    /// The layout. Keys may be added, and none is renamed under one number.
    pub const SCHEMA: &str = "headroom-profile-comparison/1";

    /// Of these profiles.
    pub fn of(profiles: &[&Profile]) -> Self {
        Self {
            schema: Self::SCHEMA,
            rows: rows(profiles),
            agreement: agreed(profiles).map(|found| Verdict {
                agree: found.answer() == Answer::Agree,
                answer: found.answer(),
                figures: found.figures,
                unknown: found.unknown.clone(),
                by_chance: found.by_chance(),
                apart: found.apart,
            }),
        }
    }
}

/// Every cell of every profile.
pub fn rows(profiles: &[&Profile]) -> Vec<Row> {
    let names = names(profiles);
    let of = |(profile, name): (&&Profile, &String)| {
        let (profile, name) = (*profile, name.clone());
        let row = move |cell: &Cell| Row {
            profile: name.clone(),
            size_bytes: cell.size_bytes,
            density: cell.density,
            density_had: cell.sending_share(),
            requests_per_s: cell.requests_per_s(),
            throughput_kb_per_s: cell.throughput_kb_per_s(),
            power_w: cell.power_w(),
            power_source: profile.meter.as_ref().map(|meter| meter.source),
            throughput_per_power: cell.throughput_per_power(),
            busy_cores: cell.busy_cores(),
            softirq_cores: cell.softirq_cores(),
            link_bytes_per_s: cell.link_bytes_per_s(),
            latency_p50_ms: cell.latency_ms(|latency| latency.p50_ms),
            latency_p95_ms: cell.latency_ms(|latency| latency.p95_ms),
            latency_p99_ms: cell.latency_ms(|latency| latency.p99_ms),
            bound: profile.bound(cell),
            windows: cell.counted().count(),
            windows_set_aside: cell.set_aside(),
            marks: cell.marks.clone(),
        };
        profile.cells.iter().map(row).collect::<Vec<_>>()
    };
    profiles.iter().zip(&names).flat_map(of).collect()
}
