//! What the demo runs on: this machine, or an emulated server where this machine has no RAPL.

use super::{DemoArgs, Hardware};
use crate::emulator::{Emulator, EmulatorOptions, default_real_cores, demo_folder};
use anyhow::{Context, anyhow};
use headroom_console::Failure;
use headroom_console::say;
use headroom_control::CoreRange;
use headroom_node::Roots;
use headroom_node::cpu::online;
use headroom_node::probe::{State, probe};
use headroom_node::restore::RunDir;
use headroom_testbed::hardware::HardwareConfig;
use headroom_units::Cores;
/// The service's share of the machine by default; the rest is for gateway and load generator, which run here too.
const SERVICE_SHARE: f64 = 0.6;
/// What must be usable for the demo to run on the machine itself, by the names that `headroom doctor` gives them.
const RAPL: [&str; 2] = ["RAPL power limits", "RAPL energy"];
/// The emulated server's cores move as those of the SLO-Power testbed do: one at a time, at least two.
const EMULATED_STEP: Cores = Cores::new(1.0);
const EMULATED_MIN: Cores = Cores::new(2.0);

/// What the demo runs on.
#[derive(Debug)]
pub struct DemoMachine {
    /// Where its kernel files are.
    pub roots: Roots,
    /// All of its cores.
    pub cores: Cores,
    /// Those that the service may have.
    pub range: CoreRange,
    /// How much of a core of this machine one of its cores is.
    pub real_per_core: f64,
    /// The machine, where it is emulated.
    pub emulated: Option<HardwareConfig>,
    /// What it is, and why.
    pub note: String,
    /// Dropped, it takes the emulated server away.
    emulator: Option<Emulator>,
}

impl DemoMachine {
    /// Chooses and prepares it.
    ///
    /// # Errors
    /// Cores that this machine has not; emulated hardware that was asked for and cannot be had.
    pub fn prepare(args: &DemoArgs, run_dir: &RunDir) -> Result<Self, Failure> {
        let roots = Roots::default();
        let machine = Cores::new(online(&roots)?.len() as f64);
        if let Some(cores) = args.cores.filter(|cores| *cores > machine.get()) {
            let why = anyhow!("--cores {cores}: this machine has {}", machine.get());
            return Err(Failure::usage(why));
        }
        match args.hardware {
            Hardware::Real => Self::real(args, roots, machine, "as asked for".to_owned()),
            Hardware::Emulated => Self::emulated(args, run_dir, "as asked for"),
            Hardware::Auto => match without_rapl(&roots) {
                None => Self::real(
                    args,
                    roots,
                    machine,
                    "RAPL can be read and limited here".to_owned(),
                ),
                Some(why) => Self::emulated(args, run_dir, &why).or_else(|failure| {
                    let why = format!("{why}, and the emulated server cannot be had ({failure})");
                    Self::real(args, roots, machine, why)
                }),
            },
        }
    }

    /// The process behind the emulated server.
    pub fn emulator_pid(&self) -> Option<u32> {
        self.emulator.as_ref()?.pid()
    }

    fn real(args: &DemoArgs, roots: Roots, machine: Cores, why: String) -> Result<Self, Failure> {
        let most = args.cores.map_or(machine * SERVICE_SHARE, Cores::new);
        let range =
            CoreRange::new(Cores::new(0.2).min(most), most, Cores::new(0.1)).map_err(Failure::usage)?;
        Ok(Self {
            roots,
            cores: machine,
            range,
            real_per_core: 1.0,
            emulated: None,
            note: format!("the demo runs on this machine: {why}"),
            emulator: None,
        })
    }

    fn emulated(args: &DemoArgs, run_dir: &RunDir, why: &str) -> Result<Self, Failure> {
        let real = args.cores.map_or_else(default_real_cores, Cores::new);
        let hardware = HardwareConfig {
            real_cores: Some(real),
            ..HardwareConfig::default()
        };
        hardware.validate().map_err(Failure::usage)?;
        let cores = Cores::new(f64::from(hardware.cores()));
        let options = EmulatorOptions {
            hardware: hardware.clone(),
            at: demo_folder(run_dir).context("the run folder")?,
            groups: Vec::new(),
            real: Some((
                format!("headroom-emulated-{}", std::process::id()),
                "/".to_owned(),
            )),
        };
        let what = options.describe();
        let emulator = Emulator::start(options).map_err(Failure::usage)?;
        say::note!("{what}");
        Ok(Self {
            roots: emulator.roots(),
            cores,
            range: CoreRange::new(EMULATED_MIN, cores, EMULATED_STEP).map_err(Failure::usage)?,
            real_per_core: real / cores,
            emulated: Some(hardware),
            note: format!("the demo runs on {what}: {why}. Every watt is emulated"),
            emulator: Some(emulator),
        })
    }
}

/// Why RAPL cannot be used here; nothing where it can.
fn without_rapl(roots: &Roots) -> Option<String> {
    let findings = probe(roots);
    RAPL.iter().find_map(|name| {
        let finding = findings.iter().find(|finding| finding.what == *name)?;
        (finding.state == State::Unusable)
            .then(|| format!("this machine has no RAPL to use ({})", finding.why))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_findings_that_decide_are_there_under_their_names() {
        let findings = probe(&Roots::default());
        for name in RAPL {
            assert!(findings.iter().any(|finding| finding.what == name), "{name}");
        }
    }
}
