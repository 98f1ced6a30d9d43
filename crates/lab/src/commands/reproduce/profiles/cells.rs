//! The 72 cells in the simulated machines.

use super::paper::{At, DENSITIES};
use super::straight::StraightLine;
use headroom_console::Failure;
use headroom_physics::{ServingKind, StudiedService};
use headroom_sim::sizes::{Pausing, ProfileScenario, profile};
use headroom_units::Ratio;
use serde::Serialize;

/// One cell, ours beside the paper's.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// The machine.
    pub machine: &'static str,
    /// The service.
    pub service: &'static str,
    /// The size, in units of 1024 bytes.
    pub size_kb: u32,
    /// The density, percent.
    pub density_percent: u32,
    /// Whether the machines were calibrated on this cell; the others are predicted.
    pub calibrated: bool,
    /// Throughput per power in the paper.
    pub paper_kb_per_s_per_w: f64,
    /// Ours.
    pub kb_per_s_per_w: f64,
    /// By how much ours is more than the paper's, percent.
    pub error_percent: f64,
    /// The null model's ([`StraightLine`]), through the paper's own cell at 100 % with our watts there, as the paper prints none of most.
    pub line_kb_per_s_per_w: f64,
    /// By how much that is more than the paper's, percent.
    pub line_error_percent: f64,
    /// By how much our throughput is more than on the line through our own 100 %, percent: what the simulation adds.
    pub throughput_off_line_percent: f64,
    /// The same of watts.
    pub power_off_line_percent: f64,
    /// [`StraightLine::lost_s`] of the paper's cell, on its line.
    pub paper_lost_s: f64,
    /// The same of ours, on ours.
    pub lost_s: f64,
    /// Throughput of content.
    pub kb_per_s: f64,
    /// Mean power, simulated.
    pub power_w: f64,
    /// Share of all cores that is busy, the driver's among them.
    pub cpu_percent: f64,
    /// Share of all cores that the network card's driver takes.
    pub driver_percent: f64,
    /// Share of a gigabit.
    pub network_percent: f64,
    /// Latency of the answers, milliseconds.
    pub p50_ms: f64,
    /// The same.
    pub p95_ms: f64,
    /// The same.
    pub p99_ms: f64,
    /// From the beginning of one window to that of the next, with what was outstanding at its end, seconds.
    pub cycle_s: f64,
}

/// By how much one is more than the other, percent.
pub fn percent_more(one: f64, other: f64) -> f64 {
    (one / other - 1.0) * 100.0
}

/// What the paper's clients do with answers that are outstanding when their time is over. A thread that calls memcached's `get` comes back
/// with the answer. ApacheBench with a limit of time drops them (its loop over the connections ends, and the process with it); that the
/// authors ran it so is our assumption, for the paper says only that ApacheBench asked and how long the window is.
const fn pausing(service: StudiedService) -> Pausing {
    match service {
        StudiedService::Apache => Pausing::AtOnce,
        StudiedService::Memcached => Pausing::Together,
    }
}

/// Runs a cell.
///
/// # Errors
/// A run that does not end.
pub fn run(at: At, windows: u32, seed: u64) -> Result<Cell, Failure> {
    let (size_kb, density) = (f64::from(at.kb()), f64::from(DENSITIES[at.density]) / 100.0);
    let (machine, cost) = (at.kind.machine(), at.kind.cost(at.service).of(size_kb * 1024.0));
    let capacity = machine.capacity(cost);
    let full = machine.load([(cost, capacity)]);
    let scenario = ProfileScenario {
        windows,
        pausing: pausing(at.service),
        ..ProfileScenario::of(machine.clone(), cost, Ratio::new(density))
    };
    let done = profile(&scenario, seed)?;
    let kb_per_s = done.throughput.get() * size_kb;
    let efficiency = kb_per_s / done.power.get();
    let line = StraightLine {
        idle_w: machine.idle.get(),
        full_w: machine.power(full).get(),
        full_kb_per_s: capacity.get() * size_kb,
    };
    let full_paper = At { density: 0, ..at }.paper();
    let paper_line = line.through(full_paper);
    let line_efficiency = paper_line.kb_per_s_per_w(density);
    let percentile = |share| {
        let latency = done.latency.percentile(Ratio::new(share));
        latency.map_or(f64::NAN, |latency| latency.as_millis())
    };
    let network = ServingKind::network_use(size_kb * 1024.0, done.throughput);
    Ok(Cell {
        machine: at.kind.name(),
        service: at.service.name(),
        size_kb: at.kb(),
        density_percent: DENSITIES[at.density],
        calibrated: at.density == 0,
        paper_kb_per_s_per_w: at.paper(),
        kb_per_s_per_w: efficiency,
        error_percent: percent_more(efficiency, at.paper()),
        line_kb_per_s_per_w: line_efficiency,
        line_error_percent: percent_more(line_efficiency, at.paper()),
        throughput_off_line_percent: percent_more(kb_per_s, line.kb_per_s(density)),
        power_off_line_percent: percent_more(done.power.get(), line.power_w(density)),
        paper_lost_s: paper_line.lost_s(density, at.paper()),
        lost_s: line.lost_s(density, efficiency),
        kb_per_s,
        power_w: done.power.get(),
        cpu_percent: at.kind.cpu_use(done.load).as_percent(),
        driver_percent: at.kind.driver_use(done.load).as_percent(),
        network_percent: network.as_percent(),
        p50_ms: percentile(0.5),
        p95_ms: percentile(0.95),
        p99_ms: percentile(0.99),
        cycle_s: done.cycle.get(),
    })
}
