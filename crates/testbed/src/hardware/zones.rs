//! Which powercap zones a machine has, and the limits they start with.

use super::config::{HardwareConfig, LimitKind, Zones};
use super::rapl::{AMD_UNIT_NJ, DRAM_UNIT_NJ, Limit, PACKAGE_UNIT_NJ, Zone, ZoneKind};

/// The short-term limit at the start over the thermal design power, and its window.
const SHORT_TERM_FACTOR: f64 = 1.2;
const SHORT_TERM_WINDOW_US: u64 = 2_440;
/// The window of the long-term limit at the start: one second as the hardware can hold it.
pub(super) const LONG_TERM_WINDOW_US: u64 = 999_424;

/// The powercap zones of a machine.
pub(super) fn zones(config: &HardwareConfig) -> Vec<Zone> {
    let amd = match config.rapl.zones {
        Zones::Intel => false,
        Zones::Amd => true,
        Zones::None => return Vec::new(),
    };
    let unit = if amd { AMD_UNIT_NJ } else { PACKAGE_UNIT_NJ };
    let tdp = config.power.tdp_per_package.get();
    let mut zones = Vec::new();
    for package in 0..config.packages as usize {
        let id = format!("intel-rapl:{package}");
        let mut zone = Zone::new(
            id.clone(),
            format!("package-{package}"),
            ZoneKind::Package(package),
            unit,
        );
        zone.set_counter_uj(config.rapl.first_energy_uj);
        if !amd {
            zone.enabled = true;
            let most = tdp * SHORT_TERM_FACTOR;
            zone.limits = config
                .rapl
                .constraints
                .iter()
                .map(|kind| match kind {
                    LimitKind::LongTerm => Limit::new(*kind, tdp, LONG_TERM_WINDOW_US, tdp),
                    LimitKind::ShortTerm => Limit::new(*kind, most, SHORT_TERM_WINDOW_US, most),
                    LimitKind::PeakPower => Limit::new(*kind, most * SHORT_TERM_FACTOR, 0, 0.0),
                })
                .collect();
        }
        zones.push(zone);
        let mut part = |name: &str, kind, unit, limited: bool| {
            let at = zones
                .iter()
                .filter(|zone: &&Zone| zone.id.starts_with(&format!("{id}:")))
                .count();
            let mut zone = Zone::new(format!("{id}:{at}"), name.into(), kind, unit);
            if limited && !amd {
                zone.limits = vec![Limit::new(LimitKind::LongTerm, 0.0, 976, 0.0)];
            }
            zones.push(zone);
        };
        part("core", ZoneKind::Core(package), unit, true);
        if amd {
            continue;
        }
        if config.rapl.uncore {
            part("uncore", ZoneKind::Uncore(package), unit, true);
        }
        part("dram", ZoneKind::Dram(package), DRAM_UNIT_NJ, true);
    }
    if config.rapl.psys && !amd {
        zones.push(Zone::new(
            format!("intel-rapl:{}", config.packages),
            "psys".into(),
            ZoneKind::Psys,
            unit,
        ));
    }
    zones
}
