//! One powercap zone as the RAPL registers and `drivers/powercap/intel_rapl_common.c` have it: a 32-bit energy counter
//! in units of the processor, limits in eighths of a watt, windows of the form 2^Y (1 + F/4).

use super::config::LimitKind;
use rustix::io::Errno;

/// The energy unit of a package, nanojoules: 2^-14 J as the driver rounds it.
pub const PACKAGE_UNIT_NJ: u64 = 61_035;
/// The energy unit of server memory, nanojoules: fixed at 15.3 microjoules.
pub const DRAM_UNIT_NJ: u64 = 15_300;
/// The energy unit of AMD's zones, nanojoules: 2^-16 J.
pub const AMD_UNIT_NJ: u64 = 15_258;
/// The power unit, microwatts: an eighth of a watt.
pub const POWER_UNIT_UW: u64 = 125_000;
/// The time unit, microseconds: 2^-10 s as the driver rounds it.
pub const TIME_UNIT_US: u64 = 976;
/// A limit has 15 bits; what is beyond them is cut off, not clamped.
const POWER_MASK: u64 = 0x7fff;

/// A limit on a zone's power.
#[derive(Clone, Debug)]
pub struct Limit {
    /// Whether it limits the long or the short term, or the peak.
    pub kind: LimitKind,
    /// In eighths of a watt, 15 bits.
    power_raw: u16,
    /// 7 bits: exponent in the lower five, quarter steps in the upper two.
    window_raw: u8,
    /// What `max_power_uw` says.
    max_power_uw: u64,
    /// Locked by the firmware.
    pub locked: bool,
}

impl Limit {
    /// A limit that is in force from the start.
    pub fn new(kind: LimitKind, watts: f64, window_us: u64, max_watts: f64) -> Self {
        let mut limit = Self {
            kind,
            power_raw: 0,
            window_raw: 0,
            max_power_uw: (max_watts * 1e6) as u64,
            locked: false,
        };
        limit.power_raw = to_power_raw((watts * 1e6) as u64);
        limit.window_raw = to_window_raw(window_us);
        limit
    }

    /// The limit in microwatts, as it reads back.
    pub fn power_uw(&self) -> u64 {
        u64::from(self.power_raw) * POWER_UNIT_UW
    }

    /// The window in microseconds, as it reads back.
    ///
    /// # Errors
    /// ENODATA: the peak limit has none.
    pub fn window_us(&self) -> Result<u64, Errno> {
        match self.kind {
            LimitKind::PeakPower => Err(Errno::NODATA),
            _ => Ok(from_window_raw(self.window_raw)),
        }
    }

    /// What `max_power_uw` says.
    pub fn max_power_uw(&self) -> u64 {
        self.max_power_uw
    }

    /// Sets the power as the driver does: converted to the hardware's unit (rounded down) and masked, never clamped.
    ///
    /// # Errors
    /// ENODATA where the firmware locked it: the driver's EACCES, as powercap's store passes it on.
    pub fn set_power_uw(&mut self, microwatts: u64) -> Result<(), Errno> {
        if self.locked {
            return Err(Errno::NODATA);
        }
        self.power_raw = to_power_raw(microwatts);
        Ok(())
    }

    /// Sets the window, rounded down to what the hardware can hold.
    ///
    /// # Errors
    /// ENODATA where the firmware locked it or the limit has no window.
    pub fn set_window_us(&mut self, microseconds: u64) -> Result<(), Errno> {
        if self.locked || self.kind == LimitKind::PeakPower {
            return Err(Errno::NODATA);
        }
        self.window_raw = to_window_raw(microseconds);
        Ok(())
    }
}

fn to_power_raw(microwatts: u64) -> u16 {
    ((microwatts / POWER_UNIT_UW) & POWER_MASK) as u16
}

/// Intel SDM volume 3B, "Package RAPL Domain": 2^Y (1 + F/4) time units.
fn to_window_raw(microseconds: u64) -> u8 {
    if microseconds < TIME_UNIT_US {
        return 0;
    }
    let units = microseconds / TIME_UNIT_US;
    let exponent = units.ilog2();
    if exponent > 0x1f {
        return 0x7f;
    }
    let quarters = u128::from(4 * (units - (1 << exponent))) >> exponent;
    (exponent as u8 & 0x1f) | ((quarters as u8 & 3) << 5)
}

fn from_window_raw(raw: u8) -> u64 {
    let (exponent, quarters) = (raw & 0x1f, u64::from(raw >> 5) & 3);
    (1u64 << exponent) * (4 + quarters) * TIME_UNIT_US / 4
}

/// What kind of thing a zone counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneKind {
    /// A package with its cores and uncore, without its memory.
    Package(usize),
    /// The cores of a package: a part of it.
    Core(usize),
    /// What of a package is not its cores: a part of it.
    Uncore(usize),
    /// The memory of a package: beside it.
    Dram(usize),
    /// The whole platform: contains all others.
    Psys,
}

/// A zone.
#[derive(Clone, Debug)]
pub struct Zone {
    /// `intel-rapl:N[:M]`.
    pub id: String,
    /// What its `name` file says.
    pub name: String,
    /// What it counts.
    pub kind: ZoneKind,
    /// Its limits by constraint number.
    pub limits: Vec<Limit>,
    /// PL1's enable bit.
    pub enabled: bool,
    unit_nj: u64,
    /// The hardware's counter.
    raw: u32,
    /// Nanojoules not yet in the counter, below one unit.
    rest_nj: f64,
    /// All energy since the start, joules: what the counter would say if it never wrapped.
    pub total_j: f64,
}

impl Zone {
    /// A zone whose counter starts at zero.
    pub fn new(id: String, name: String, kind: ZoneKind, unit_nj: u64) -> Self {
        Self {
            id,
            name,
            kind,
            limits: Vec::new(),
            enabled: false,
            unit_nj,
            raw: 0,
            rest_nj: 0.0,
            total_j: 0.0,
        }
    }

    /// The counter, microjoules.
    pub fn energy_uj(&self) -> u64 {
        u64::from(self.raw) * self.unit_nj / 1_000
    }

    /// The counter's highest value, microjoules.
    pub fn max_energy_range_uj(&self) -> u64 {
        u64::from(u32::MAX) * self.unit_nj / 1_000
    }

    /// Counts energy; the counter wraps after 2^32 units.
    pub fn count_j(&mut self, joules: f64) {
        self.total_j += joules;
        self.bump_uj(joules * 1e6);
    }

    /// Moves the counter without anything having been drawn: a jump.
    pub fn bump_uj(&mut self, microjoules: f64) {
        let nanojoules = self.rest_nj + microjoules.max(0.0) * 1e3;
        let units = (nanojoules / self.unit_nj as f64).floor();
        self.rest_nj = nanojoules - units * self.unit_nj as f64;
        self.raw = self.raw.wrapping_add((units % 4_294_967_296.0) as u32);
    }

    /// Puts the counter somewhere, rounded down to its unit and at most at its highest value.
    pub fn set_counter_uj(&mut self, microjoules: u64) {
        self.raw = u32::try_from(microjoules.saturating_mul(1_000) / self.unit_nj).unwrap_or(u32::MAX);
        self.rest_nj = 0.0;
    }

    /// A limit of one kind.
    pub fn limit(&self, kind: LimitKind) -> Option<&Limit> {
        self.limits.iter().find(|limit| limit.kind == kind)
    }

    /// Whether the firmware locked the long-term limit.
    pub fn is_locked(&self) -> bool {
        self.limit(LimitKind::LongTerm).is_some_and(|limit| limit.locked)
    }

    /// What `enabled` reads: a locked limit reads 0, and so does a zone without limits.
    pub fn enabled_reads(&self) -> bool {
        self.enabled && !self.limits.is_empty() && !self.is_locked()
    }

    /// Sets PL1's enable bit.
    ///
    /// # Errors
    /// ENOSYS where the limit is locked or there is none: powercap's store knows no other error.
    pub fn set_enabled(&mut self, enabled: bool) -> Result<(), Errno> {
        if self.limits.is_empty() || self.is_locked() {
            return Err(Errno::NOSYS);
        }
        self.enabled = enabled;
        Ok(())
    }

    /// The power that the limits in force allow, watts; nothing where none is in force. The long-term limit does nothing
    /// while `enabled` is 0, locked or not: a locked limit stays in force with the firmware's value.
    pub fn allowed_w(&self) -> Option<f64> {
        self.limits
            .iter()
            .filter(|limit| limit.kind != LimitKind::LongTerm || self.enabled)
            .map(|limit| limit.power_uw() as f64 / 1e6)
            .min_by(f64::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn zone() -> Zone {
        let mut zone = Zone::new(
            "intel-rapl:0".into(),
            "package-0".into(),
            ZoneKind::Package(0),
            PACKAGE_UNIT_NJ,
        );
        zone.limits = vec![
            Limit::new(LimitKind::LongTerm, 50.0, 999_424, 50.0),
            Limit::new(LimitKind::ShortTerm, 60.0, 2_440, 100.0),
        ];
        zone.enabled = true;
        zone
    }

    #[test]
    fn the_ranges_are_those_of_real_machines() {
        assert_eq!(zone().max_energy_range_uj(), 262_143_328_850);
        let dram = Zone::new(
            "intel-rapl:0:1".into(),
            "dram".into(),
            ZoneKind::Dram(0),
            DRAM_UNIT_NJ,
        );
        assert_eq!(dram.max_energy_range_uj(), 65_712_999_613);
    }

    #[test]
    fn a_limit_is_rounded_down_to_eighths_of_a_watt_and_masked_to_15_bits() {
        let mut limit = zone().limits[0].clone();
        for (written, read) in [
            (46_124_999, 46_000_000),
            (46_125_000, 46_125_000),
            (0, 0),
            (4_095_875_000, 4_095_875_000),
            (4_096_000_000, 0),
            (4_146_000_000, 50_000_000),
        ] {
            limit.set_power_uw(written).unwrap();
            assert_eq!(limit.power_uw(), read, "{written}");
        }
    }

    #[test]
    fn windows_are_rounded_down_to_powers_of_two_and_quarters() {
        let mut limit = zone().limits[0].clone();
        assert_eq!(limit.window_us(), Ok(999_424));
        for (written, read) in [
            (1_000_000, 999_424),
            (976, 976),
            (10, 976),
            (1_300_000, 1_249_280),
            (28_000_000, 27_983_872),
        ] {
            limit.set_window_us(written).unwrap();
            assert_eq!(limit.window_us(), Ok(read), "{written}");
        }
        limit.set_window_us(u64::MAX).unwrap();
        assert!(limit.window_us().is_ok());
    }

    #[test]
    fn a_locked_limit_answers_as_the_kernel_does_and_stays_in_force() {
        let mut zone = zone();
        zone.limits[0].locked = true;
        assert_eq!(zone.limits[0].set_power_uw(1), Err(Errno::NODATA));
        assert_eq!(zone.limits[0].set_window_us(1), Err(Errno::NODATA));
        assert!(!zone.enabled_reads());
        assert_eq!(zone.set_enabled(true), Err(Errno::NOSYS));
        assert_eq!(zone.allowed_w(), Some(50.0));
        assert_eq!(zone.limits[1].set_power_uw(40_000_000), Ok(()));
        assert_eq!(zone.allowed_w(), Some(40.0));
    }

    #[test]
    fn the_long_term_limit_is_inert_while_disabled() {
        let mut zone = zone();
        zone.limits[0].set_power_uw(20_000_000).unwrap();
        zone.set_enabled(false).unwrap();
        assert_eq!(zone.allowed_w(), Some(60.0));
        zone.set_enabled(true).unwrap();
        assert_eq!(zone.allowed_w(), Some(20.0));
    }

    #[test]
    fn the_peak_limit_has_no_window() {
        let mut limit = Limit::new(LimitKind::PeakPower, 90.0, 0, 0.0);
        assert_eq!(limit.window_us(), Err(Errno::NODATA));
        assert_eq!(limit.set_window_us(1000), Err(Errno::NODATA));
    }

    proptest! {
        #[test]
        fn energy_is_counted_exactly_modulo_the_range(
            first in any::<u64>(), steps in proptest::collection::vec(0.0..20_000.0f64, 1..50),
        ) {
            let mut zone = zone();
            zone.set_counter_uj(first);
            let start = zone.energy_uj();
            let (mut last, mut counted) = (start, 0.0);
            for joules in &steps {
                zone.count_j(*joules);
                let now = zone.energy_uj();
                let range = zone.max_energy_range_uj();
                prop_assert!(now <= range);
                let delta = if now >= last { now - last } else { range - last + now };
                counted += delta as f64 / 1e6;
                last = now;
            }
            let drawn: f64 = steps.iter().sum();
            // Each wrap loses at most one unit of the counter, and the last unit is not full yet.
            let units = 2.0 + drawn / 262_143.0;
            prop_assert!((counted - drawn).abs() <= units * 61.1e-6 + drawn * 1e-9, "{} {}", counted, drawn);
        }

        #[test]
        fn what_reads_back_is_never_above_what_was_written(microwatts in 0u64..4_096_000_000, window in 976u64..1 << 40) {
            let mut limit = zone().limits[0].clone();
            limit.set_power_uw(microwatts).unwrap();
            prop_assert!(limit.power_uw() <= microwatts && microwatts - limit.power_uw() < POWER_UNIT_UW);
            limit.set_window_us(window).unwrap();
            let read = limit.window_us().unwrap();
            prop_assert!(read <= window && read as f64 > window as f64 * 0.79 - 976.0);
        }
    }
}
