//! Power and energy sensors of hwmon (Documentation/hwmon/sysfs-interface.rst): `powerN_average` or `powerN_input` in
//! microwatts, `energyN_input` in microjoules, with a `label` that says what they are of.
//!
//! A machine has many sensors that are no measure of it: graphics cards, disks, voltage rails. What is added up is known
//! by the driver's name and the label: the whole machine where there is such a sensor (the ACPI power meter, the inputs
//! of its power supplies), else the processor's sockets. All others are listed and not counted.

use super::counter::EnergyCounter;
use super::refused::Refused;
use super::sensor::{PowerSensor, Quantity, Sensor, Sensors, first_power};
use super::{Meter, MeterError, MeterSample};
use crate::file::FileError;
use crate::{Roots, file, powercap};
use headroom_units::Watts;
use std::fs;
use std::path::{Path, PathBuf};

/// More sensors than any machine has.
const MAX_SENSORS: usize = 256;
/// No machine that runs this draws more.
pub(crate) const MAX_MACHINE_WATTS: f64 = 20_000.0;

/// What a sensor is of. The first kind that a machine has is its total.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// The whole machine.
    Machine,
    /// A processor socket, by an energy counter.
    SocketEnergy,
    /// A processor socket, by AMD's HSMP.
    SocketHsmp,
    /// A processor socket or a part of it that adds up to it.
    Socket,
    /// Anything else.
    Other,
}

/// A sensor that says power or energy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) scope: Scope,
    pub(crate) energy: bool,
}

/// All sensors of power and energy, by name.
pub(crate) fn sensors(roots: &Roots) -> Vec<Found> {
    let mut chips: Vec<PathBuf> = fs::read_dir(roots.sys("class/hwmon"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    chips.sort();
    let mut all: Vec<Found> = Vec::new();
    for dir in chips {
        let chip = file::read(&dir.join("name")).unwrap_or_default();
        for (file_name, label, energy) in readings(&dir) {
            let scope = scope_of(&chip, &label, energy);
            let what = if label.is_empty() {
                stem(&file_name)
            } else {
                &label
            };
            let mut name = format!("{chip}-{}", what.replace(' ', "-"));
            if all.iter().any(|other| other.name == name) {
                let place = dir.file_name().unwrap_or_default().to_string_lossy();
                name = format!("{name}-{place}-{}", stem(&file_name));
            }
            all.push(Found {
                name,
                path: dir.join(&file_name),
                scope,
                energy,
            });
        }
    }
    all.truncate(MAX_SENSORS);
    all
}

/// `power1` of `power1_input`.
fn stem(file_name: &str) -> &str {
    file_name.split('_').next().unwrap_or(file_name)
}

/// The files of a chip that read power or energy, with their labels. The average is taken where there is one: a reading
/// of the moment says little of the time between two.
fn readings(dir: &Path) -> Vec<(String, String, bool)> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| {
            let power = name.starts_with("power") && (name.ends_with("_input") || name.ends_with("_average"));
            power || (name.starts_with("energy") && name.ends_with("_input"))
        })
        .collect();
    names.sort_by_key(|name| (stem(name).len(), name.clone()));
    let averaged: Vec<String> = names
        .iter()
        .filter(|name| name.ends_with("_average"))
        .map(|name| stem(name).to_string())
        .collect();
    names
        .into_iter()
        .filter(|name| name.ends_with("_average") || !averaged.iter().any(|stem_| stem(name) == stem_))
        .map(|name| {
            let label = file::read(&dir.join(format!("{}_label", stem(&name)))).unwrap_or_default();
            let energy = name.starts_with("energy");
            (name, label, energy)
        })
        .collect()
}

fn scope_of(chip: &str, label: &str, energy: bool) -> Scope {
    let label = label.to_ascii_lowercase();
    match chip {
        "power_meter" => Scope::Machine,
        // The sockets' counters; those of the cores lie inside them.
        "amd_energy" if energy && label.starts_with("esocket") => Scope::SocketEnergy,
        "amd_hsmp_hwmon" if !energy => Scope::SocketHsmp,
        "fam15h_power" if !energy => Scope::Socket,
        "zenpower" if label == "svi2_p_core" || label == "svi2_p_soc" => Scope::Socket,
        // Power supplies call what they take from the mains so; IBM's service processor calls the machine System.
        _ if !energy && (label == "pin" || label == "system") => Scope::Machine,
        _ => Scope::Other,
    }
}

/// The scope that adds up to the machine's power, where there is one.
pub(crate) fn total_scope(found: &[Found]) -> Option<Scope> {
    found
        .iter()
        .map(|sensor| sensor.scope)
        .min()
        .filter(|scope| *scope != Scope::Other)
}

/// Reads the sensors of hwmon.
#[derive(Debug)]
pub struct HwmonMeter {
    roots: Roots,
    sensors: Sensors,
}

impl HwmonMeter {
    /// Takes the first reading of every sensor; the first sample covers the time since.
    ///
    /// # Errors
    /// [`MeterError::NoSensor`]: none is of the machine or of its processors. [`MeterError::File`],
    /// [`MeterError::Nonsense`]: one is, and cannot be read, or says nothing that can be.
    pub fn open(roots: &Roots) -> Result<Self, MeterError> {
        let found = sensors(roots);
        let Some(total) = total_scope(&found) else {
            let names: Vec<&str> = found.iter().map(|sensor| sensor.name.as_str()).collect();
            let why = match names.is_empty() {
                true => "no sensor of this machine reports power".to_string(),
                false => format!("there is {}, which is neither", names.join(", ")),
            };
            return Err(MeterError::NoSensor {
                what: "hwmon sensor of the machine's or its processors' power",
                why,
                remedy: "load the driver of the ACPI power meter (acpi_power_meter) or of the processor (amd_energy)",
            });
        };
        let mut all = Vec::with_capacity(found.len());
        for sensor in found {
            let counted = sensor.scope == total;
            match open_sensor(&sensor, counted) {
                Ok(quantity) => all.push(Sensor::new(sensor.name, sensor.path, counted, quantity)),
                Err(error) if counted => return Err(error),
                Err(error) => tracing::debug!(%error, sensor = sensor.name, "sensor left out"),
            }
        }
        Ok(Self {
            roots: roots.clone(),
            sensors: Sensors::new(roots, all, roots.source()),
        })
    }

    fn read(&self) -> Result<Vec<Option<u64>>, FileError> {
        self.sensors
            .all
            .iter()
            .map(|sensor| match file::read_u64(&sensor.path) {
                Ok(raw) => Ok(Some(raw)),
                Err(error) if sensor.counted => Err(error),
                Err(_) => Ok(None),
            })
            .collect()
    }

    /// A driver that was loaded anew has another number: looks for the same sensors at their new places.
    fn find_again(&mut self) -> Result<(), FileError> {
        let found = sensors(&self.roots);
        for at in 0..self.sensors.all.len() {
            let sensor = &self.sensors.all[at];
            let place = found.iter().find(|found| found.name == sensor.zone);
            if let Some(place) = place.filter(|place| place.path != sensor.path || sensor.counted) {
                let raw = file::read_u64(&place.path)?;
                self.sensors.rebase(at, place.path.clone(), raw);
            }
        }
        Ok(())
    }
}

fn most(scope: Scope) -> Watts {
    Watts::new(match scope {
        Scope::Machine | Scope::Other => MAX_MACHINE_WATTS,
        _ => powercap::MAX_WATTS,
    })
}

fn open_sensor(found: &Found, counted: bool) -> Result<Quantity, MeterError> {
    let most = most(found.scope);
    Ok(match (found.energy, counted) {
        (true, _) => Quantity::Energy(EnergyCounter::new(file::read_u64(&found.path)?, None, most)),
        (false, true) => Quantity::Power(first_power(&found.name, &found.path, most)?),
        (false, false) => Quantity::Power(PowerSensor::new(file::read_u64(&found.path)?, most)),
    })
}

impl Meter for HwmonMeter {
    fn describe(&self) -> String {
        let scope = total_scope(&sensors(&self.roots));
        let of = match scope {
            Some(Scope::Machine) => "the whole machine",
            _ => "the processors",
        };
        let others = self.sensors.all.iter().filter(|sensor| !sensor.counted);
        let others: Vec<&str> = others.map(|sensor| sensor.zone.as_str()).collect();
        let besides = match others.is_empty() {
            true => String::new(),
            false => format!("; listed besides: {}", others.join(", ")),
        };
        format!("of {of}: {}{besides}", self.sensors.counted().join(", "))
    }

    fn name(&self) -> &'static str {
        "hwmon"
    }

    fn sample(&mut self) -> Result<MeterSample, MeterError> {
        let readings = match self.read() {
            Err(error) if error.is_gone() => {
                self.find_again()?;
                self.read()?
            }
            readings => readings?,
        };
        self.sensors.advance(&readings)
    }

    fn refused(&self) -> Vec<Refused> {
        self.sensors.refused()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::fake::FakeClock;
    use crate::power::Refusal;
    use crate::testing::{Tree, says};
    use headroom_units::{Joules, Source};
    use std::time::Duration;

    struct Chips(Tree);

    impl Chips {
        fn new() -> Self {
            Self(Tree::new())
        }

        fn put(&self, chip: &str, file: &str, text: &str) {
            self.0.put(&format!("sys/class/hwmon/{chip}/{file}"), text);
        }

        fn roots(&self) -> Roots {
            self.0.roots()
        }

        fn open(&self) -> (HwmonMeter, FakeClock) {
            let mut meter = HwmonMeter::open(&self.roots()).unwrap();
            let clock = FakeClock::default();
            meter.sensors.set_clock(Box::new(clock.clone()));
            (meter, clock)
        }
    }

    fn second(clock: &FakeClock) {
        clock.pass(Duration::from_secs(1), Duration::ZERO);
    }

    #[test]
    fn the_machines_own_meter_is_the_total_and_the_graphics_card_is_not() {
        let tree = Chips::new();
        tree.put("hwmon0", "name", "amdgpu");
        tree.put("hwmon0", "power1_average", "30000000");
        tree.put("hwmon1", "name", "power_meter");
        tree.put("hwmon1", "power1_average", "100000000");
        tree.put("hwmon1", "power1_input", "999000000");
        let (mut meter, clock) = tree.open();
        second(&clock);
        tree.put("hwmon1", "power1_average", "120000000");
        let sample = meter.sample().unwrap();
        assert_eq!(sample.power.unwrap().value, Watts::new(110.0));
        assert_eq!(sample.energy.value, Joules::new(110.0));
        assert_eq!(sample.energy.source, Source::Measured);
        let counted: Vec<&str> = sample
            .zones
            .iter()
            .filter(|z| z.counted)
            .map(|z| z.zone.as_str())
            .collect();
        assert_eq!(counted, ["power_meter-power1"]);
        assert_eq!(sample.zones.len(), 2);
    }

    #[test]
    fn amd_sockets_count_energy_and_their_cores_are_not_added() {
        let tree = Chips::new();
        tree.put("hwmon3", "name", "amd_energy");
        for (number, label) in [(1, "Ecore000"), (2, "Esocket0"), (3, "Esocket1")] {
            tree.put("hwmon3", &format!("energy{number}_label"), label);
            tree.put("hwmon3", &format!("energy{number}_input"), "1000000");
        }
        let (mut meter, clock) = tree.open();
        second(&clock);
        for number in 1..=3 {
            tree.put("hwmon3", &format!("energy{number}_input"), "51000000");
        }
        assert_eq!(meter.sample().unwrap().energy.value, Joules::new(100.0));
        second(&clock);
        tree.put("hwmon3", "energy2_input", "1000000");
        tree.put("hwmon3", "energy3_input", "52000000");
        let sample = meter.sample().unwrap();
        assert_eq!(
            (sample.energy.value, sample.power),
            (Joules::new(101.0), None),
            "one went backwards"
        );
        assert_eq!(meter.refused()[0].reason, Refusal::Backwards);
    }

    #[test]
    fn a_sentinel_is_refused_at_the_start_and_lost_after_some_in_a_row() {
        let tree = Chips::new();
        tree.put("hwmon0", "name", "power_meter");
        tree.put("hwmon0", "power1_average", "4294967295000");
        says(
            HwmonMeter::open(&tree.roots()).unwrap_err(),
            &["stands for none", "power1_average"],
        );
        tree.put("hwmon0", "power1_average", "100000000");
        let (mut meter, clock) = tree.open();
        for (reading, power) in [("4294967295000", None), ("100000000", Some(Watts::new(100.0)))] {
            second(&clock);
            tree.put("hwmon0", "power1_average", reading);
            assert_eq!(meter.sample().unwrap().power.map(|p| p.value), power);
        }
        tree.put("hwmon0", "power1_average", "0");
        for _ in 0..4 {
            second(&clock);
            assert_eq!(meter.sample().unwrap().power, None);
        }
        assert!(meter.sample().unwrap_err().to_string().contains("zero watts"));
        let refused = meter.refused();
        assert_eq!(refused.iter().map(|r| r.count).sum::<u64>(), 6);
        tree.put("hwmon0", "power1_average", "80000000");
        second(&clock);
        assert_eq!(
            meter.sample().unwrap().energy.value,
            Joules::new(180.0),
            "only what was said"
        );
    }

    #[test]
    fn a_driver_that_comes_back_under_another_number_is_found_again() {
        let tree = Chips::new();
        tree.put("hwmon0", "name", "power_meter");
        tree.put("hwmon0", "power1_average", "100000000");
        let (mut meter, clock) = tree.open();
        fs::remove_dir_all(tree.0.path("sys/class/hwmon/hwmon0")).unwrap();
        second(&clock);
        assert!(meter.sample().unwrap_err().to_string().contains("power1_average"));
        tree.put("hwmon7", "name", "power_meter");
        tree.put("hwmon7", "power1_average", "50000000");
        second(&clock);
        assert_eq!(
            meter.sample().unwrap().power.map(|p| p.value),
            Some(Watts::new(50.0))
        );
        assert_eq!(meter.refused()[0].reason, Refusal::Vanished);
    }

    #[test]
    fn other_sensors_alone_are_named_in_the_error() {
        let tree = Chips::new();
        says(HwmonMeter::open(&tree.roots()).unwrap_err(), &["no sensor"]);
        tree.put("hwmon0", "name", "nvme");
        tree.put("hwmon0", "power1_input", "5000000");
        says(HwmonMeter::open(&tree.roots()).unwrap_err(), &["nvme-power1"]);
    }
}
