//! The model of a machine from what was measured of it: [`fit`].
//!
//! **Processor time and bytes of a request.** At each measured size: busy cores (and bytes over the link) of all its cells over their
//! requests. Between measured sizes the cost is interpolated, for it is not always a line: the Arm of the paper takes more processor time
//! for each byte of its largest values than for smaller ones (Section 5.1, its driver). Below the smallest size the line of the two
//! smallest goes on, never below 0; beyond the largest one that of the two largest. A law, which has one line for each kind, is given the
//! line of least squares of relative errors ([`Fitted::service`]), with how far that is off.
//!
//! **Watts.** Idle, all cores busy, a full link: least squares over cells and baselines, none of the three below 0, exact by trying which
//! of them are 0. Cores that a generator kept busy on the same machine count for these watts, and not for what a request takes
//! ([`Cell::generator_cores`]): a core is taken to draw the same for both. What a full link adds can only be said where the link's use did not go with that of the cores.
//!
//! ```
//! use headroom_control::placement::{Baselines, Cell, MachineDescription, fit};
//! use headroom_units::{Cores, PerSecond, Ratio, Watts};
//!
//! let cell = |size_bytes, rate, busy, link, watts| Cell {
//!     size_bytes,
//!     density: Ratio::new(1.0),
//!     throughput: PerSecond::new(rate),
//!     busy_cores: Cores::new(busy),
//!     generator_cores: Cores::ZERO,
//!     link_bytes_per_s: link,
//!     power: Watts::new(watts),
//!     marked: false,
//! };
//! let cells = [cell(1024.0, 1000.0, 2.0, 1.4e6, 30.0), cell(102_400.0, 500.0, 1.0, 52e6, 22.0)];
//! let baselines = Baselines { idle: Some(Watts::new(10.0)), ..Baselines::default() };
//! let machine = MachineDescription { name: "small".to_owned(), cores: 4, link_bytes_per_s: Some(125e6) };
//! let fitted = fit(&machine, &cells, &baselines)?;
//! assert!((fitted.cost_of(1024.0).cpu.get() - 2e-3).abs() < 1e-12);
//! assert!(fitted.largest_power_error < Ratio::new(0.01));
//! # Ok::<(), headroom_control::placement::FitError>(())
//! ```

use crate::linear::Cholesky;
use headroom_physics::ServerFigures;
use headroom_physics::serving::{RequestCost, ServiceCost, ServingMachine};
use headroom_units::{Cores, PerSecond, Ratio, Seconds, Watts};
use std::fmt;

/// The most cells that a fit takes: a grid of 100 sizes by 100 densities.
pub const MAX_CELLS: usize = 10_000;
/// A part of which less than this is not what the others make is not determined.
const DETERMINED: f64 = 1e-6;

/// What was measured of one size at one density.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// The content of an answer, bytes.
    pub size_bytes: f64,
    /// The share of the time in which requests were sent (Section 3.2).
    pub density: Ratio,
    /// Requests answered, over the whole time.
    pub throughput: PerSecond,
    /// Cores busy, those with interrupts among them, over the whole time.
    pub busy_cores: Cores,
    /// Cores busy besides, which `power` has in it and no request takes: a generator's on the same machine, under a real meter.
    pub generator_cores: Cores,
    /// Bytes over the link in the direction that carries more.
    pub link_bytes_per_s: f64,
    /// Power over the whole time.
    pub power: Watts,
    /// Whether it says nothing of the machine: the client was the bottleneck, requests failed, the meter was lost.
    pub marked: bool,
}

/// What was measured without requests; what was not is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Baselines {
    /// Power of the idle machine.
    pub idle: Option<Watts>,
    /// Power with every core busy.
    pub busy: Option<Watts>,
    /// Power with traffic alone.
    pub network: Option<NetworkBaseline>,
}

/// The baseline of a machine that only carries traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NetworkBaseline {
    /// Power.
    pub power: Watts,
    /// Bytes over the link in the direction that carries more.
    pub link_bytes_per_s: f64,
    /// Cores busy with that.
    pub busy_cores: Cores,
}

/// What is known of the machine beside what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineDescription {
    /// Its kind.
    pub name: String,
    /// Cores that serve at once.
    pub cores: usize,
    /// What its link carries, where that is known; else the most that was measured.
    pub link_bytes_per_s: Option<f64>,
}

/// A request of one size, as measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostPoint {
    /// The content of an answer, bytes.
    pub size_bytes: f64,
    /// What it takes.
    pub cost: RequestCost,
    /// The most requests that a cell of this size had while they were sent, of those with the fewest pauses: what a machine does in a short
    /// burst it may not go on with.
    pub throughput: PerSecond,
}

/// A figure that the cells do not determine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unidentified {
    /// What a full link adds: it is taken as part of the cores' and as 0.
    LinkPower,
    /// What busy cores add: it is taken as part of the link's and as 0.
    BusyPower,
    /// What the link carries: nobody gave it and no cell shows that it was full; the most that was measured is taken.
    LinkCapacity,
    /// What each byte takes: all cells are of one size, whose cost is taken for all.
    PerByte,
}

/// A machine fitted to cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The machine; what a start takes is not in a profile and stands at its default.
    pub machine: ServingMachine,
    /// What a request takes at each measured size, the smallest first.
    pub points: Vec<CostPoint>,
    /// The same as a line, for a law.
    pub service: ServiceCost,
    /// The largest relative error of the power over cells and baselines.
    pub largest_power_error: Ratio,
    /// The largest relative error of the line's processor time over the measured sizes.
    pub largest_service_error: Ratio,
    /// By how much more than it was measured to serve the model believes that the machine can, as a share of what was measured, at the size
    /// where that is most: a machine may be full before its cores and its link are.
    pub largest_capacity_excess: Ratio,
    /// Cells that were used.
    pub used: usize,
    /// Cells that were left out: marked, or without a request.
    pub left_out: usize,
    /// What the cells do not determine.
    pub unidentified: Vec<Unidentified>,
}

/// Cells that no machine can be fitted to.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FitError {
    /// None is left.
    #[error(
        "none of {given} cells can be used: all are marked or without a request; `headroom profile compare` says why each is: mend that, and measure again"
    )]
    NoCells {
        /// How many there were.
        given: usize,
    },
    /// More than are taken.
    #[error("{given} cells: at most {MAX_CELLS} are fitted; leave some out")]
    TooMany {
        /// How many there were.
        given: usize,
    },
    /// A value that cannot be.
    #[error("a cell of {size_bytes} bytes has {what} = {value}: it must be finite and {range}")]
    Value {
        /// Its size.
        size_bytes: f64,
        /// Which value.
        what: &'static str,
        /// The value.
        value: f64,
        /// What it must be.
        range: &'static str,
    },
    /// Neither idle nor a line through cells is there.
    #[error(
        "the idle power is not determined: there is no idle baseline and all cells are equally busy; measure the idle baseline or \
             another density"
    )]
    Idle,
    /// The machine that comes out is none.
    #[error("{machine}: {error}")]
    Machine {
        /// Its name.
        machine: String,
        /// What of it cannot be.
        error: headroom_physics::FigureError,
    },
}

impl fmt::Display for Unidentified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LinkPower => "what a full link draws: its use goes with that of the cores, whose watts have it; measure the network baseline",
            Self::BusyPower => "what busy cores draw: their use goes with that of the link, whose watts have it; measure the busy baseline",
            Self::LinkCapacity => "what the link carries: nothing filled it; give the link's speed",
            Self::PerByte => "what each byte takes: all cells are of one size; measure two sizes or more",
        })
    }
}

/// Fits a machine and the cost of its requests.
///
/// # Errors
/// [`FitError`].
pub fn fit(of: &MachineDescription, cells: &[Cell], baselines: &Baselines) -> Result<Fitted, FitError> {
    if cells.len() > MAX_CELLS {
        return Err(FitError::TooMany { given: cells.len() });
    }
    let used: Vec<Cell> = cells
        .iter()
        .filter(|cell| !cell.marked && cell.throughput > PerSecond::ZERO)
        .copied()
        .collect();
    if used.is_empty() {
        return Err(FitError::NoCells { given: cells.len() });
    }
    used.iter().try_for_each(check)?;
    let mut unidentified = Vec::new();
    let carried = used
        .iter()
        .map(|cell| cell.link_bytes_per_s / cell.density.get().max(1e-9));
    let network = baselines.network.map(|network| network.link_bytes_per_s);
    let most_carried = carried.chain(network).fold(1.0, f64::max);
    let link_bytes_per_s = of.link_bytes_per_s.unwrap_or_else(|| {
        // A network baseline is there to fill the link.
        if network.is_none_or(|network| network < most_carried * 0.9) {
            unidentified.push(Unidentified::LinkCapacity);
        }
        most_carried
    });
    let points = points(&used);
    if points.len() < 2 {
        unidentified.push(Unidentified::PerByte);
    }
    let service = line(&points);
    let rows = rows(&used, baselines, of.cores as f64, link_bytes_per_s);
    let [idle, busy, link] = watts(&rows, &mut unidentified).ok_or(FitError::Idle)?;
    let machine = ServingMachine {
        name: of.name.clone(),
        cores: of.cores,
        link_bytes_per_s,
        idle: Watts::new(idle),
        busy: Watts::new(busy),
        link: Watts::new(link),
        server: ServerFigures::default(),
    };
    machine.check().map_err(|error| FitError::Machine {
        machine: of.name.clone(),
        error,
    })?;
    let power_error = |row: &Row| ((idle + busy * row.cpu + link * row.link - row.watts) / row.watts).abs();
    let service_error = |point: &CostPoint| {
        let line = service.of(point.size_bytes).cpu;
        ((line - point.cost.cpu) / point.cost.cpu.max(Seconds::new(1e-12))).abs()
    };
    let excess = |point: &CostPoint| machine.capacity(point.cost) / point.throughput - 1.0;
    Ok(Fitted {
        largest_power_error: Ratio::new(rows.iter().map(power_error).fold(0.0, f64::max)),
        largest_service_error: Ratio::new(points.iter().map(service_error).fold(0.0, f64::max)),
        largest_capacity_excess: Ratio::new(points.iter().map(excess).fold(0.0, f64::max)),
        used: used.len(),
        left_out: cells.len() - used.len(),
        machine,
        points,
        service,
        unidentified,
    })
}

impl Fitted {
    /// What a request of this size takes, interpolated between measured sizes; see the module's head.
    pub fn cost_of(&self, size_bytes: f64) -> RequestCost {
        let [first, .., last] = &*self.points else {
            return self
                .points
                .first()
                .map_or(self.service.of(size_bytes), |only| only.cost);
        };
        let after = self.points.partition_point(|point| point.size_bytes < size_bytes);
        let at = after.clamp(1, self.points.len() - 1);
        let (low, high) = (&self.points[at - 1], &self.points[at]);
        let part = (size_bytes - low.size_bytes) / (high.size_bytes - low.size_bytes);
        let between = |low: f64, high: f64| low + part * (high - low);
        // Noise may make a line fall: beyond the measured sizes a request takes at least what the nearest one does, or its bytes.
        let (least_cpu, least_bytes) = match size_bytes {
            size if size > last.size_bytes => (last.cost.cpu.get(), last.cost.bytes),
            size if size < first.size_bytes => (0.0, size.max(1.0)),
            _ => (0.0, 1.0),
        };
        RequestCost {
            cpu: Seconds::new(between(low.cost.cpu.get(), high.cost.cpu.get()).max(least_cpu)),
            bytes: between(low.cost.bytes, high.cost.bytes).max(least_bytes),
        }
    }
}

fn check(cell: &Cell) -> Result<(), FitError> {
    let values = [
        ("size_bytes", cell.size_bytes, cell.size_bytes >= 0.0, "0 or more"),
        (
            "density",
            cell.density.get(),
            cell.density > Ratio::ZERO && cell.density <= Ratio::new(1.0),
            "more than 0 and at most 1",
        ),
        ("throughput", cell.throughput.get(), true, "more than 0"),
        (
            "busy_cores",
            cell.busy_cores.get(),
            cell.busy_cores > Cores::ZERO,
            "more than 0",
        ),
        (
            "generator_cores",
            cell.generator_cores.get(),
            cell.generator_cores >= Cores::ZERO,
            "0 or more",
        ),
        (
            "link_bytes_per_s",
            cell.link_bytes_per_s,
            cell.link_bytes_per_s >= 0.0,
            "0 or more",
        ),
        ("power", cell.power.get(), cell.power > Watts::ZERO, "more than 0"),
    ];
    for (what, value, fits, range) in values {
        if !(fits && value.is_finite()) {
            return Err(FitError::Value {
                size_bytes: cell.size_bytes,
                what,
                value,
                range,
            });
        }
    }
    Ok(())
}

fn points(cells: &[Cell]) -> Vec<CostPoint> {
    let mut cells = cells.to_vec();
    cells.sort_by(|one, two| one.size_bytes.total_cmp(&two.size_bytes));
    let same = cells.chunk_by(|one, two| one.size_bytes == two.size_bytes);
    same.map(|cells| {
        let requests: f64 = cells.iter().map(|cell| cell.throughput.get()).sum();
        let busy: f64 = cells.iter().map(|cell| cell.busy_cores.get()).sum();
        let bytes: f64 = cells.iter().map(|cell| cell.link_bytes_per_s).sum();
        let densest = cells
            .iter()
            .map(|cell| cell.density)
            .fold(Ratio::ZERO, Ratio::max);
        let saturated = cells.iter().filter(|cell| cell.density >= densest * 0.95);
        let most = saturated.map(|cell| cell.throughput / cell.density.get());
        CostPoint {
            size_bytes: cells[0].size_bytes,
            cost: RequestCost {
                cpu: Seconds::new(busy / requests),
                bytes: (bytes / requests).max(1.0),
            },
            throughput: most.fold(PerSecond::ZERO, PerSecond::max),
        }
    })
    .collect()
}

/// The line of least squares of relative errors, neither of its parts below 0.
fn line(points: &[CostPoint]) -> ServiceCost {
    let fitted = |value: fn(&CostPoint) -> f64| -> [f64; 2] {
        let rows: Vec<([f64; 2], f64)> = points
            .iter()
            .map(|point| {
                let of = value(point).max(1e-15);
                ([1.0 / of, point.size_bytes / of], 1.0)
            })
            .collect();
        let mut best = None;
        for present in [[true, true], [true, false], [false, true]] {
            keep_better(&rows, present, &mut best);
        }
        best.map_or([points.first().map_or(0.0, value), 0.0], |(found, _)| found)
    };
    let [per_request, per_byte] = fitted(|point| point.cost.cpu.get());
    let [head_bytes, bytes_per_byte] = fitted(|point| point.cost.bytes);
    ServiceCost {
        per_request: Seconds::new(per_request),
        per_byte: Seconds::new(per_byte),
        head_bytes,
        bytes_per_byte,
    }
}

/// One measured power, by how busy the two resources were.
struct Row {
    cpu: f64,
    link: f64,
    watts: f64,
}

fn rows(cells: &[Cell], baselines: &Baselines, cores: f64, link_bytes_per_s: f64) -> Vec<Row> {
    let row = |busy: Cores, bytes: f64, power: Watts| Row {
        cpu: busy.get() / cores,
        link: bytes / link_bytes_per_s,
        watts: power.get(),
    };
    let of_cells = cells.iter().map(|cell| {
        row(
            cell.busy_cores + cell.generator_cores,
            cell.link_bytes_per_s,
            cell.power,
        )
    });
    let idle = baselines.idle.map(|power| row(Cores::ZERO, 0.0, power));
    let busy = baselines.busy.map(|power| row(Cores::new(cores), 0.0, power));
    let network = baselines
        .network
        .map(|of| row(of.busy_cores, of.link_bytes_per_s, of.power));
    of_cells
        .chain(idle)
        .chain(busy)
        .chain(network)
        .filter(|row| row.watts > 0.0)
        .collect()
}

/// Idle, busy and link watts by least squares of relative errors; `None` where idle is not determined.
fn watts(rows: &[Row], unidentified: &mut Vec<Unidentified>) -> Option<[f64; 3]> {
    let rows: Vec<([f64; 3], f64)> = rows
        .iter()
        .map(|row| ([1.0 / row.watts, row.cpu / row.watts, row.link / row.watts], 1.0))
        .collect();
    let all = solve(&rows, [true; 3]).is_some();
    if !all && solve(&rows, [true, true, false]).is_some() {
        unidentified.push(Unidentified::LinkPower);
    } else if !all && solve(&rows, [true, false, true]).is_some() {
        unidentified.push(Unidentified::BusyPower);
    } else if !all {
        return None;
    }
    let mut best = None;
    for bits in 1..8 {
        // Idle is always part of it: a machine that is on draws something.
        let present = [true, bits & 2 != 0, bits & 4 != 0];
        let unknown = |which| unidentified.contains(&which);
        if present[2] && unknown(Unidentified::LinkPower) || present[1] && unknown(Unidentified::BusyPower) {
            continue;
        }
        keep_better(&rows, present, &mut best);
    }
    best.map(|(found, _)| found)
}

/// Keeps a solution of these parts if none is below 0 and it is nearer than the best so far.
fn keep_better<const N: usize>(
    rows: &[([f64; N], f64)],
    present: [bool; N],
    best: &mut Option<([f64; N], f64)>,
) {
    let Some(found) = solve(rows, present) else { return };
    if found.iter().any(|value| *value < 0.0) {
        return;
    }
    let off =
        |(row, value): &([f64; N], f64)| row.iter().zip(&found).map(|(x, b)| x * b).sum::<f64>() - value;
    let error: f64 = rows.iter().map(|row| off(row).powi(2)).sum();
    if best.as_ref().is_none_or(|(_, least)| error < *least) {
        *best = Some((found, error));
    }
}

/// Least squares by the normal equations over the parts that are present, the others 0; `None` where the rows do not determine them.
fn solve<const N: usize>(rows: &[([f64; N], f64)], present: [bool; N]) -> Option<[f64; N]> {
    let parts: Vec<usize> = (0..N).filter(|part| present[*part]).collect();
    let sum =
        |of: &dyn Fn(&[f64; N], f64) -> f64| -> f64 { rows.iter().map(|(row, value)| of(row, *value)).sum() };
    // Scaled to a diagonal of ones, so that one bound tells what is determined whatever the units.
    let scale: Vec<f64> = parts
        .iter()
        .map(|i| sum(&|row, _| row[*i] * row[*i]).sqrt().recip())
        .collect();
    let scaled = || parts.iter().copied().zip(scale.iter().copied());
    let matrix: Vec<f64> = scaled()
        .flat_map(|(i, one)| scaled().map(move |(j, two)| (i, j, one * two)))
        .map(|(i, j, scale)| sum(&|row, _| row[i] * row[j]) * scale)
        .collect();
    let right: Vec<f64> = scaled()
        .map(|(i, scale)| sum(&|row, value| row[i] * value) * scale)
        .collect();
    let solved = Cholesky::of(&matrix, parts.len()).filter(|matrix| matrix.least_pivot() >= DETERMINED)?;
    let mut found = [0.0; N];
    for ((part, scale), value) in scaled().zip(solved.solve(&right)) {
        found[part] = value * scale;
    }
    Some(found)
}

#[cfg(test)]
#[path = "fit_tests.rs"]
mod tests;
