//! `headroom emulate`: a server with RAPL, cpufreq and idle states, for machines that have none.

use crate::emulator::{self, Emulator, EmulatorOptions};
use anyhow::{Context, anyhow};
use clap::Args;
use headroom_console::Document;
use headroom_console::Failure;
use headroom_console::Stop;
use headroom_console::say;
use headroom_runtime::live::undo;
use headroom_testbed::hardware::HardwareConfig;
use headroom_units::Cores;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// `headroom emulate`.
///
/// Mounts a FUSE tree that looks like the /sys of a server and behaves like it: energy counts and wraps, a power limit
/// or a lower frequency really slows the processes in its control groups. Everything it yields is labelled emulated.
/// It runs until a signal comes; then everything is taken away.
///
///   headroom emulate --group web &
///   echo PID > /run/headroom/emulated/fs/cgroup/web/cgroup.procs
///   headroom up --sys /run/headroom/emulated --proc /run/headroom/emulated/headroom-testbed/proc --config ...
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct EmulateArgs {
    /// Where to mount it. By default /run/headroom/emulated for root, and
    /// $XDG_RUNTIME_DIR/headroom/emulated, or where that is not set /tmp/headroom-UID/emulated, for others.
    #[arg(long, value_name = "DIR")]
    pub at: Option<PathBuf>,
    /// A TOML file that describes the machine; by default the servers of the SLO-Power testbed.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print an example of that file, with every key and its default, and stop.
    #[arg(long)]
    pub example: bool,
    /// Real cores that stand for all the emulated ones. By default 0.6 of this machine's.
    #[arg(long, value_name = "CORES")]
    pub real_cores: Option<f64>,
    /// A control group to make on the emulated machine. May be given more than once; `mkdir` in its fs/cgroup does as
    /// much.
    #[arg(long, value_name = "NAME")]
    pub group: Vec<String>,
    /// The real control group that holds the emulated ones.
    #[arg(long, value_name = "NAME", default_value = "headroom-emulated")]
    pub name: String,
    /// The real control group in which that one is made.
    #[arg(long, value_name = "GROUP", default_value = "/")]
    pub parent: String,
    /// Emulate figures only: no real control group is made, and nothing is slowed.
    #[arg(long)]
    pub figures_only: bool,
    /// Take away what an emulator left at this place that was killed together with the program that watched it, and
    /// stop.
    #[arg(long)]
    pub clean: bool,
    /// Be the process behind the tree (for `headroom emulate` itself).
    #[arg(long, hide = true, requires = "hardware_json")]
    pub worker: bool,
    /// The machine, for a worker.
    #[arg(long, hide = true, value_name = "JSON")]
    pub hardware_json: Option<String>,
}

/// An example with every key, its default and what it means: what `headroom emulate --example` prints.
const EXAMPLE: &str = include_str!("../../emulate.example.toml");

/// How often it is looked whether the machine still runs.
const WATCH: Duration = Duration::from_millis(500);

/// Emulates until a signal comes; then takes everything away.
///
/// # Errors
/// A configuration that describes no machine, a place that cannot be used, no `/dev/fuse`: nothing is left then. A
/// machine that died again and again.
pub fn run(args: &EmulateArgs) -> Result<(), Failure> {
    if args.example {
        return say::result(EXAMPLE.trim_end());
    }
    let at = match &args.at {
        Some(at) => at.clone(),
        None => undo::run_dir(None)?.join("emulated"),
    };
    if args.clean {
        let done = emulator::clean(&at).map_err(Failure::Run)?;
        let nothing = done
            .is_empty()
            .then(|| format!("nothing was left at {}", at.display()));
        return done.into_iter().chain(nothing).try_for_each(say::result);
    }
    let options = EmulatorOptions {
        hardware: hardware(args)?,
        at,
        groups: args.group.clone(),
        real: (!args.figures_only).then(|| (args.name.clone(), args.parent.clone())),
    };
    if args.worker {
        return emulator::work(&options);
    }
    let stop = Stop::at_signals()?;
    let machine = Emulator::start(options).map_err(Failure::usage)?;
    let roots = machine.roots();
    say::result(format_args!(
        "{}\ninstead of /sys:   {}\ninstead of /proc:  {}",
        machine.options().describe(),
        roots.sys.display(),
        roots.proc_.display()
    ))?;
    while !stop.wait_until(Instant::now() + WATCH) {
        if let Some(why) = machine.given_up() {
            return Err(Failure::Run(anyhow!("the emulated hardware ended: {why}")));
        }
    }
    Ok(())
}

fn hardware(args: &EmulateArgs) -> Result<HardwareConfig, Failure> {
    if let Some(json) = &args.hardware_json {
        return serde_json::from_str(json)
            .context("--hardware-json")
            .map_err(Failure::usage);
    }
    let mut hardware: HardwareConfig = match &args.config {
        None => HardwareConfig::default(),
        Some(file) => Document::read(file, "emulate")?.parse("emulate")?,
    };
    if let Some(cores) = args.real_cores {
        hardware.real_cores = Some(Cores::new(cores));
    }
    hardware
        .real_cores
        .get_or_insert_with(emulator::default_real_cores);
    hardware.validate().map_err(Failure::usage)?;
    Ok(hardware)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_the_default_with_every_key() {
        let example: HardwareConfig = toml::from_str(EXAMPLE).unwrap();
        assert_eq!(example, HardwareConfig::default());
        let keys = |value: &toml::Table| -> Vec<String> {
            let below = |(name, value): (&String, &toml::Value)| match value {
                toml::Value::Table(inner) => inner.keys().map(|key| format!("{name}.{key}")).collect(),
                _ => vec![name.clone()],
            };
            value.iter().flat_map(below).collect()
        };
        let written: toml::Table = EXAMPLE.parse().unwrap();
        let all = toml::Table::try_from(HardwareConfig::default()).unwrap();
        assert_eq!(keys(&written), keys(&all));
    }
}
