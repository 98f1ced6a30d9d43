//! SIGHUP to `wrap`: the classes of connections are read again. The server has the signal as well, as each other one.

use super::WrapArgs;
use crate::config::wrap::WrapConfig;
use headroom_console::Failure;
use headroom_node::cpu::CpuList;
use headroom_runtime::oncall::ClassTable;
use signal_hook::consts::signal::SIGHUP;
use signal_hook::iterator::Signals;
use std::io;
use std::path::{Path, PathBuf};

/// Reads the classes of a configuration again at each SIGHUP, in a thread that lives as long as the process. What comes of it is said in the log,
/// and by the table's news in the decisions.
///
/// # Errors
/// The signal cannot be caught, or the thread not started.
pub(super) fn at_hangup(
    file: PathBuf,
    classes: ClassTable,
    args: &WrapArgs,
    config: &WrapConfig,
    cpus: &CpuList,
) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP])?;
    let cores = u32::try_from(cpus.len()).unwrap_or(u32::MAX);
    let (args, at_start) = (args.clone(), others(config));
    let read = move || args.configured(cores).map(|(config, _)| config);
    std::thread::Builder::new()
        .name("reload".to_owned())
        .spawn(move || {
            for _ in signals.forever() {
                for line in outcome(&file, read(), &at_start, &classes) {
                    tracing::warn!("{line}");
                    classes.tell(line);
                }
            }
        })?;
    Ok(())
}

/// What comes of a configuration that was read again, in words. All of it has to be right, though its classes alone hold before the next start.
fn outcome(
    file: &Path,
    read: Result<WrapConfig, Failure>,
    at_start: &str,
    classes: &ClassTable,
) -> Vec<String> {
    let config = match read {
        Ok(config) => config,
        Err(errors) => return vec![format!("the classes stay as they were: {errors}")],
    };
    let differs = others(&config) != at_start;
    let mut lines = classes.replace(config.oncall.class);
    match lines.is_empty() {
        true => lines.push(format!("the classes of {} are what they were", file.display())),
        false => lines
            .iter_mut()
            .for_each(|line| *line = format!("{}: {line}", file.display())),
    }
    if differs {
        lines.push(format!(
            "{}: other keys than the classes differ from those at the start, and hold from the next start on",
            file.display()
        ));
    }
    lines
}

/// All but the classes, to compare.
fn others(config: &WrapConfig) -> String {
    let mut config = config.clone();
    config.oncall.class.clear();
    format!("{config:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_keys_that_differ_are_said_to_hold_from_the_next_start_on() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("wrap.toml");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            let (config, _) = WrapConfig::read(Some(&file), |names| names)?;
            Ok(config)
        };
        let class = "[[oncall.class]]\nname = \"gold\"\nclients = [\"unix\"]\np99_ms = ";
        let start: Result<WrapConfig, Failure> = read(&format!("{class}4\n"));
        let start = start.unwrap();
        let classes = ClassTable::from(start.oncall.class.clone());
        let said = |text: &str| outcome(&file, read(text), &others(&start), &classes).join("\n");
        assert!(said(&format!("{class}4\n")).ends_with("are what they were"));
        let changed = said(&format!("{class}2\n"));
        assert!(
            changed.ends_with("class gold: P99 2 ms (was P99 4 ms)"),
            "{changed}"
        );
        let more = said(&format!("{class}2\n[slo]\ntarget_ms = 7\n"));
        assert!(more.ends_with("hold from the next start on"), "{more}");
        let refused = said(&format!("{class}-1\n"));
        assert!(
            refused.starts_with("the classes stay as they were: "),
            "{refused}"
        );
        assert_eq!(classes.now()[0].p99_ms, Some(2.0));
    }
}
