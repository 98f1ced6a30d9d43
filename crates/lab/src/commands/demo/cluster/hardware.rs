//! What one server of the demo's clusters is.
//!
//! A small server with one package of four Skylake cores, by the figures of [`MachineFigures::skylake`], which say where they
//! come from: about 50 W with all cores busy, 34 W awake and idle, 25 W asleep. Off it draws what a management controller does; it
//! boots at nine tenths of its full power, doing no work. In a day of minutes a boot takes [`BOOT`], which is ten minutes of that
//! day: that is to the disadvantage of whoever switches servers off.

use headroom_physics::{MachineFigures, ServerFigures};
use headroom_testbed::hardware::{FrequencyRange, HardwareConfig, PowerFigures};
use headroom_units::{Cores, Seconds, Watts};

/// Cores of a server.
pub const CORES: u32 = 4;
/// From the order to boot until services are started.
pub const BOOT: Seconds = Seconds::new(0.5);
/// From the order to shut down until it is off, at least.
pub const SHUTDOWN: Seconds = Seconds::new(0.3);
/// Booting and shutting down, as shares of the full power.
const BOOTING: f64 = 0.9;
const SHUTTING_DOWN: f64 = 0.6;
const OFF: Watts = Watts::new(3.0);
/// The memory's part of the package's power, as in the other emulated servers.
const DRAM: Watts = Watts::new(1.5);
/// Between two steps of a server's clock: there are many, and each step is CPU time of this machine.
const TICK: Seconds = Seconds::new(0.02);

/// A server's figures.
pub fn figures() -> MachineFigures {
    let mut figures = MachineFigures::skylake(CORES as usize);
    let processor = &figures.processor;
    let full = figures.platform + processor.uncore + processor.frequency.busy_at_top() * f64::from(CORES);
    figures.server = ServerFigures {
        off: OFF,
        booting: full * BOOTING,
        boot: BOOT,
        shutting_down: full * SHUTTING_DOWN,
        shutdown: SHUTDOWN,
    };
    figures
}

/// The same as emulated hardware, for which so many real cores stand.
pub fn emulated(figures: &MachineFigures, real: Cores) -> HardwareConfig {
    let processor = &figures.processor;
    let frequency = &processor.frequency;
    let full = processor.uncore + frequency.busy_at_top() * processor.cores as f64;
    HardwareConfig {
        packages: processor.packages as u32,
        cores_per_package: (processor.cores / processor.packages) as u32,
        // One frequency for the package, as on small servers: there is less to read for an agent, too.
        cpus_per_policy: (processor.cores / processor.packages) as u32,
        frequency: FrequencyRange {
            min: frequency.lowest,
            base: frequency.highest,
            max: frequency.highest,
        },
        power: PowerFigures {
            dynamic_per_core: frequency.dynamic,
            leakage_per_core: frequency.leakage,
            lowest_voltage: frequency.lowest_voltage,
            idle_states: processor.idle_states.clone(),
            uncore_per_package: processor.uncore,
            uncore_asleep_per_package: processor.uncore_asleep,
            dram_per_package: DRAM,
            background: processor.background,
            platform: figures.platform,
            tdp_per_package: full,
            ..PowerFigures::default()
        },
        real_cores: Some(real),
        tick: TICK,
        ..HardwareConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_emulated_is_what_the_law_is_given() {
        let figures = figures();
        figures.check().unwrap();
        let hardware = emulated(&figures, Cores::new(0.2));
        hardware.validate().unwrap();
        let MachineFigures {
            processor, platform, ..
        } = hardware.machine();
        assert_eq!((&processor, platform), (&figures.processor, figures.platform));
    }

    #[test]
    fn a_boot_costs_more_than_a_moment_of_idling() {
        let figures = figures();
        let idle = figures.platform + figures.processor.uncore;
        let pays_after = figures.server.break_even(idle).unwrap();
        assert!(pays_after > BOOT * 1.5, "{pays_after}");
        assert!(figures.server.off < figures.platform);
    }
}
