//! `headroom emulate`: a server with RAPL, cpufreq and idle states, for machines that have none.

use crate::cli::EmulateArgs;
use crate::emulator::{self, Emulator, EmulatorOptions};
use anyhow::{Context, anyhow};
use headroom_console::Document;
use headroom_console::Failure;
use headroom_console::Stop;
use headroom_console::say;
use headroom_runtime::live::undo;
use headroom_testbed::hardware::HardwareConfig;
use headroom_units::Cores;
use std::time::{Duration, Instant};

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
    let at = args
        .at
        .clone()
        .unwrap_or_else(|| undo::default_run_dir().join("emulated"));
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
