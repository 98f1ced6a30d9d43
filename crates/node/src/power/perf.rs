//! The kernel's energy events (`perf stat -e power/energy-pkg/`): the same RAPL counters, kept by perf in 64 bits, where
//! the powercap tree is masked or its files are for another user. Type, numbers, scale and CPUs come from
//! `bus/event_source/devices/power` (Documentation/ABI/testing/sysfs-bus-event_source-devices-events).

use super::counter::EnergyCounter;
use super::refused::Refused;
use super::sensor::{Quantity, Sensor, Sensors};
use super::{Meter, MeterError, MeterSample};
use crate::cpu::CpuList;
use crate::{Roots, file, powercap};
use headroom_units::Watts;
use perf_event::events::Raw;
use perf_event::{Builder, Counter};
use std::path::PathBuf;

/// The events: the name, what the zone is called, and whether it is part of the total.
const EVENTS: [(&str, &str, bool); 5] = [
    ("energy-pkg", "package", true),
    ("energy-ram", "dram", true),
    ("energy-cores", "core", false),
    ("energy-gpu", "uncore", false),
    ("energy-psys", "psys", false),
];
/// More packages than any machine has: further CPUs of the mask are passed over.
const MAX_CPUS: usize = 64;

/// Where the kernel describes them.
pub(crate) fn dir(roots: &Roots) -> PathBuf {
    roots.sys("bus/event_source/devices/power")
}

/// One event of a kind of counter, as the kernel describes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EnergyEvent {
    pub(crate) name: &'static str,
    zone: &'static str,
    counted: bool,
    kind: u32,
    config: u64,
    /// Joules of one count.
    scale: f64,
}

/// The events that the kernel has, and the CPUs on which they are counted: one of each package.
pub(crate) fn events(roots: &Roots) -> Result<(Vec<EnergyEvent>, CpuList), MeterError> {
    let dir = dir(roots);
    let missing = |why: String| MeterError::NoSensor {
        what: "perf energy event",
        why,
        remedy: "modprobe rapl (the processor must have RAPL)",
    };
    let Some(kind) = file::read_if_there(&dir.join("type"))? else {
        return Err(missing(
            "the kernel has no energy events (perf's power unit)".into(),
        ));
    };
    let kind = kind
        .parse()
        .map_err(|_| missing(format!("its type is \"{}\"", file::shorten(&kind))))?;
    let mut found = Vec::new();
    for (name, zone, counted) in EVENTS {
        let attribute = |end: &str| file::read_if_there(&dir.join(format!("events/{name}{end}")));
        let Some(text) = attribute("")? else { continue };
        let scale = attribute(".scale")?.and_then(|text| text.parse::<f64>().ok());
        let unit = attribute(".unit")?.unwrap_or_default();
        let config = text.strip_prefix("event=").and_then(number);
        match (config, scale) {
            (Some(config), Some(scale)) if scale > 0.0 && unit == "Joules" => found.push(EnergyEvent {
                name,
                zone,
                counted,
                kind,
                config,
                scale,
            }),
            _ => {
                let text = file::shorten(&text);
                return Err(missing(format!(
                    "the kernel describes {name} as \"{text}\" in \"{unit}\", which is not understood"
                )));
            }
        }
    }
    if !found.iter().any(|event| event.counted) {
        let psys = found.iter_mut().find(|event| event.zone == "psys");
        psys.ok_or_else(|| missing("the kernel has none of packages, memory or platform".into()))?
            .counted = true;
    }
    let mask = file::read(&dir.join("cpumask"))?;
    let cpus: CpuList = mask
        .parse()
        .map_err(|_| missing(format!("its cpumask is \"{}\"", file::shorten(&mask))))?;
    Ok((found, cpus))
}

/// `0x02` or `2`.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Counts the energy events.
#[derive(Debug)]
pub struct PerfMeter {
    counters: Vec<(EnergyEvent, u32, Counter)>,
    sensors: Sensors,
}

impl PerfMeter {
    /// Starts to count; the first sample covers the time since.
    ///
    /// # Errors
    /// [`MeterError::NoSensor`]: the kernel has no such events, or the roots are not this kernel's. [`MeterError::Perf`]:
    /// it may not be counted (CAP_PERFMON).
    pub fn open(roots: &Roots) -> Result<Self, MeterError> {
        let (events, cpus) = events(roots)?;
        if !roots.is_this_kernel() {
            return Err(MeterError::NoSensor {
                what: "perf energy event",
                why: format!(
                    "{} is not the running kernel's, which alone counts them",
                    roots.sys.display()
                ),
                remedy: "run on that machine",
            });
        }
        Self::count(roots, &events, &cpus)
    }

    fn count(roots: &Roots, events: &[EnergyEvent], cpus: &CpuList) -> Result<Self, MeterError> {
        let mut counters = Vec::new();
        let mut sensors = Vec::new();
        for (at, cpu) in cpus.iter().take(MAX_CPUS).enumerate() {
            let package = roots.sys(format!(
                "devices/system/cpu/cpu{cpu}/topology/physical_package_id"
            ));
            let package = file::read_u64(&package).unwrap_or(at as u64);
            for event in events {
                let platform = event.zone == "psys";
                if platform && at > 0 {
                    continue;
                }
                let fail = |cause| perf_error(event, cpu, cause);
                // The counters know no users and kernels: asking to leave one out is refused.
                let mut builder = Builder::new(Raw::new(event.config));
                builder.attrs_mut().type_ = event.kind;
                builder
                    .any_pid()
                    .one_cpu(cpu as usize)
                    .include_kernel()
                    .include_hv();
                let mut counter = builder.enabled(true).build().map_err(fail)?;
                let first = microjoules(event, counter.read().map_err(fail)?);
                let mut zone = match platform {
                    true => event.zone.to_string(),
                    false => format!("{}-{package}", event.zone),
                };
                // Two dies of one package.
                if sensors.iter().any(|sensor: &Sensor| sensor.zone == zone) {
                    zone = format!("{zone}-cpu-{cpu}");
                }
                let most = Watts::new(powercap::MAX_WATTS);
                let quantity = Quantity::Energy(EnergyCounter::new(first, None, most));
                let path = dir(roots).join(format!("events/{}", event.name));
                sensors.push(Sensor::new(zone, path, event.counted, quantity));
                counters.push((event.clone(), cpu, counter));
            }
        }
        if !sensors.iter().any(|sensor| sensor.counted) {
            return Err(MeterError::NoSensor {
                what: "perf energy event",
                why: "its cpumask is empty".into(),
                remedy: "switch a CPU of each package on",
            });
        }
        Ok(Self {
            counters,
            sensors: Sensors::new(roots, sensors, headroom_units::Source::Measured),
        })
    }
}

fn perf_error(event: &EnergyEvent, cpu: u32, cause: std::io::Error) -> MeterError {
    let remedy = match cause.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "run as root or with CAP_PERFMON, or: sysctl kernel.perf_event_paranoid=0"
        }
        _ => "take another meter; the kernel's log (dmesg) may say more",
    };
    MeterError::Perf {
        event: format!("power/{}/", event.name),
        cpu,
        cause,
        remedy,
    }
}

fn microjoules(event: &EnergyEvent, count: u64) -> u64 {
    (count as f64 * event.scale * 1e6) as u64
}

impl Meter for PerfMeter {
    fn describe(&self) -> String {
        self.sensors.counted().join(", ")
    }

    fn name(&self) -> &'static str {
        "perf"
    }

    fn sample(&mut self) -> Result<MeterSample, MeterError> {
        let readings = self
            .counters
            .iter_mut()
            .map(|(event, cpu, counter)| match counter.read() {
                Ok(count) => Ok(Some(microjoules(event, count))),
                Err(cause) => Err(perf_error(event, *cpu, cause)),
            })
            .collect::<Result<Vec<_>, _>>()?;
        self.sensors.advance(&readings)
    }

    fn refused(&self) -> Vec<Refused> {
        self.sensors.refused()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::says;
    use std::fs;
    use std::time::Duration;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("bus/event_source/devices/power");
        fs::create_dir_all(at.join("events")).unwrap();
        for (name, text) in files {
            fs::write(at.join(name), format!("{text}\n")).unwrap();
        }
        let roots = Roots::at(dir.path(), "/proc");
        (dir, roots)
    }

    const SERVER: [(&str, &str); 8] = [
        ("type", "23"),
        ("cpumask", "0,28"),
        ("events/energy-pkg", "event=0x02"),
        ("events/energy-pkg.scale", "2.3283064365386962890625e-10"),
        ("events/energy-pkg.unit", "Joules"),
        ("events/energy-psys", "event=0x05"),
        ("events/energy-psys.scale", "2.3283064365386962890625e-10"),
        ("events/energy-psys.unit", "Joules"),
    ];

    #[test]
    fn events_are_what_the_kernel_says_they_are() {
        let (_dir, roots) = tree(&SERVER);
        let (events, cpus) = events(&roots).unwrap();
        assert_eq!(cpus, "0,28".parse().unwrap());
        assert_eq!(
            (events[0].kind, events[0].config, events[0].counted),
            (23, 2, true)
        );
        assert_eq!((events[1].name, events[1].counted), ("energy-psys", false));
        assert_eq!(microjoules(&events[0], 1 << 32), 1_000_000);
    }

    #[test]
    fn what_is_not_understood_is_said_and_not_guessed() {
        let (_dir, roots) = tree(&[]);
        says(events(&roots).unwrap_err(), &["no energy events"]);
        for (name, text) in [
            ("events/energy-pkg", "umask=1"),
            ("events/energy-pkg.unit", "Watts"),
            ("events/energy-pkg.scale", "-1"),
            ("type", "x"),
            ("cpumask", "zero"),
        ] {
            let mut files = SERVER.to_vec();
            files.push((name, text));
            let (_dir, roots) = tree(&files);
            says(events(&roots).unwrap_err(), &["perf energy event", "modprobe"]);
        }
    }

    #[test]
    fn a_tree_that_is_not_this_kernels_is_not_counted_by_it() {
        let (_dir, roots) = tree(&SERVER);
        says(
            PerfMeter::open(&roots).unwrap_err(),
            &["not the running kernel's"],
        );
    }

    /// The CPU clock of CPU 0 in nanoseconds (PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK), described as an energy event
    /// of a nanojoule a count: exactly one watt, by the same system call as the real one.
    #[test]
    fn a_real_counter_of_the_kernel_is_read_and_scaled() {
        let (_dir, roots) = tree(&[
            ("type", "1"),
            ("cpumask", "0"),
            ("events/energy-pkg", "event=0x00"),
            ("events/energy-pkg.scale", "1e-9"),
            ("events/energy-pkg.unit", "Joules"),
        ]);
        let (events, cpus) = events(&roots).unwrap();
        let mut meter = match PerfMeter::count(&roots, &events, &cpus) {
            Ok(meter) => meter,
            Err(error @ MeterError::Perf { .. }) => {
                println!("skipped: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        std::thread::sleep(Duration::from_millis(200));
        let sample = meter.sample().unwrap();
        let watts = sample.power.unwrap().value.get();
        assert!((watts - 1.0).abs() < 0.1, "{sample:?}");
        assert_eq!(sample.zones[0].zone, "package-0");
    }
}
