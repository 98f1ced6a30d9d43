//! Which meter, and which of its zones, an energy is the sum of: energies of two identities cannot be compared.

use super::trial::{MAX_TRIAL, STEP};
use super::{Meter, MeterError, MeterSample};
use std::time::Instant;

/// A meter and the zones that it counts, sorted: `rapl: dram-0, package-0`; the meter alone where its one zone is all that
/// it ever has (`model`).
pub fn identity<'a>(meter: &str, counted: impl IntoIterator<Item = &'a str>) -> String {
    let mut zones: Vec<&str> = counted.into_iter().collect();
    zones.sort_unstable();
    match zones.as_slice() {
        [] | [super::ModelledMeter::ZONE] => meter.to_owned(),
        zones => format!("{meter}: {}", zones.join(", ")),
    }
}

impl MeterSample {
    /// The [`identity`] of what its energy is counted by, of a meter of this name.
    pub fn identity(&self, meter: &str) -> String {
        let counted = self.zones.iter().filter(|zone| zone.counted);
        identity(meter, counted.map(|zone| zone.zone.as_str()))
    }
}

/// A sample of a meter just opened, once it is known which of its zones count: memory that reads the same for 300 ms has no
/// counter. A live meter takes some milliseconds.
///
/// # Errors
/// What the meter answers.
pub fn settled(meter: &mut dyn Meter) -> Result<MeterSample, MeterError> {
    let begin = Instant::now();
    loop {
        let sample = meter.sample()?;
        if !meter.is_unsettled() || begin.elapsed() >= MAX_TRIAL {
            return Ok(sample);
        }
        std::thread::sleep(STEP);
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::fake::FakeMeter;
    use super::*;

    #[test]
    fn a_meter_is_known_by_its_name_and_its_counted_zones_in_one_order() {
        assert_eq!(
            identity("rapl", ["package-0", "dram-0"]),
            "rapl: dram-0, package-0"
        );
        assert_eq!(identity("model", ["modelled"]), "model");
        let mut meter = FakeMeter {
            name: "psys",
            ..FakeMeter::default()
        };
        let mut sample = settled(&mut meter).unwrap();
        assert_eq!(sample.identity("psys"), "psys: psys");
        sample.zones[0].counted = false;
        assert_eq!(sample.identity("psys"), "psys");
    }
}
