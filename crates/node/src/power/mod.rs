//! How many watts the machine draws: counted by a sensor ([`rapl`], [`perf`], [`hwmon`], [`hsmp`]), or computed
//! ([`model`], [`modelled`]). Every sample carries its source, and which meter was taken and why is part of the answer
//! ([`choice`]). What a sensor says and cannot be is refused, counted and reported ([`counter`], [`refused`]).

pub mod choice;
pub mod counter;
pub mod hsmp;
pub mod hwmon;
mod identity;
mod idleness;
mod in_use;
pub mod model;
pub mod modelled;
pub mod perf;
pub mod rapl;
pub mod refused;
pub(crate) mod sensor;
pub(crate) mod trial;

pub use choice::{Choice, MeterKind, MeterPreference, check, choose, choose_of, choose_tried};
pub use counter::Refusal;
pub use hsmp::HsmpMeter;
pub use hwmon::HwmonMeter;
pub use identity::{identity, settled};
pub use model::PowerModel;
pub use modelled::{ModelledMeter, Usage};
pub use perf::PerfMeter;
pub use rapl::{RaplMeter, RaplTotal};
pub use refused::Refused;

use crate::cpu::CpuError;
use crate::file::FileError;
use headroom_units::{Joules, Reading, Seconds, Source, Watts};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// A meter that cannot be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum MeterError {
    /// A file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The target's CPU time could not be read.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// A counter that does not count.
    #[error(
        "the energy counter of {zone} ({path}) stands still although the CPUs work: its power is not known; take another \
         meter, and look in the kernel's log (dmesg) for why",
        path = path.display()
    )]
    Frozen {
        /// The zone.
        zone: String,
        /// Its counter.
        path: PathBuf,
    },
    /// A meter that read the same while a processor worked, when it was opened.
    #[error(
        "it does not move: the {meter} meter ({zones}) read no power while a processor worked for {worked} ms, as dead \
         counters of virtual machines do; take another meter (\"model\" is estimated), and look in the kernel's log \
         (dmesg) for why",
        worked = worked.as_millis()
    )]
    DoesNotMove {
        /// The meter.
        meter: &'static str,
        /// The zones of its total that stood still.
        zones: String,
        /// How long the processor worked.
        worked: Duration,
    },
    /// A sensor that says nothing that can be.
    #[error("the power sensor {zone} ({path}) says nothing that can be ({reason}): take another meter", path = path.display())]
    Nonsense {
        /// The sensor.
        zone: String,
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        reason: Refusal,
    },
    /// There is no sensor of the kind.
    #[error("no {what} ({why}); {remedy}")]
    NoSensor {
        /// What was looked for.
        what: &'static str,
        /// What was seen.
        why: String,
        /// What would help.
        remedy: &'static str,
    },
    /// The processor's power management did not answer.
    #[error(transparent)]
    Hsmp(#[from] crate::hsmp::HsmpError),
    /// An energy event that the kernel does not count.
    #[error("perf cannot count {event} on CPU {cpu}: {cause}; {remedy}")]
    Perf {
        /// The event.
        event: String,
        /// The CPU.
        cpu: u32,
        /// The kernel's answer.
        cause: std::io::Error,
        /// What would help.
        remedy: &'static str,
    },
    /// The meter that was asked for is not there, and another was not to be taken.
    #[error(
        "the power meter \"{wanted}\" cannot be used: {reason}; set the meter to auto or model to go without it"
    )]
    Unavailable {
        /// The preference.
        wanted: MeterPreference,
        /// The reason, with its remedy.
        reason: String,
    },
}

/// One zone of a sample: a part of the machine with a power of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ZoneSample {
    /// Its name, unique within the meter: `package-0`, `dram-1`, `modelled`.
    pub zone: String,
    /// Energy since the meter was opened; never falls.
    pub energy: Reading<Joules>,
    /// Mean power since the sample before; nothing where the difference was discarded.
    pub power: Option<Reading<Watts>>,
    /// Whether it is part of the total. A zone inside another one, or one that holds others (psys), is not.
    pub counted: bool,
}

/// What a meter says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeterSample {
    /// Since the sample before (or since the meter was opened).
    pub elapsed: Seconds,
    /// Energy since the meter was opened, over the counted zones; never falls.
    pub energy: Reading<Joules>,
    /// Mean power since the sample before, over the counted zones; nothing where a counted zone's difference was
    /// discarded, or no time has passed.
    pub power: Option<Reading<Watts>>,
    /// Each zone.
    pub zones: Vec<ZoneSample>,
    /// Differences discarded since the meter was opened: counters that jumped, or gaps too long to tell a wrap.
    pub rebases: u64,
}

/// Something that says how many watts the machine draws.
pub trait Meter: Send {
    /// What it reads, in words.
    fn describe(&self) -> String {
        self.name().to_owned()
    }

    /// Its name in reports and in the configuration: `rapl`, `psys`, `perf`, `hsmp`, `hwmon`, `model`.
    fn name(&self) -> &'static str;

    /// Energy and mean power since the sample before.
    ///
    /// # Errors
    /// [`MeterError`]: nothing could be read. The meter can be asked again.
    fn sample(&mut self) -> Result<MeterSample, MeterError>;

    /// Whether it is not known yet of some zone if it counts.
    fn is_unsettled(&self) -> bool {
        false
    }

    /// Readings that were not believed since it was opened, by zone and reason.
    fn refused(&self) -> Vec<Refused> {
        Vec::new()
    }
}

/// Counters here are in microjoules.
fn joules(microjoules: u64) -> Joules {
    Joules::new(microjoules as f64 / 1e6)
}

/// The power of the counted zones together; nothing where one of them has none.
fn zone_total(zones: &[ZoneSample], source: Source) -> Option<Reading<Watts>> {
    let powers = zones.iter().filter(|zone| zone.counted).map(|zone| zone.power);
    let sum: Option<Watts> = powers.map(|power| Some(power?.value)).sum();
    Some(Reading::new(sum?, source))
}
