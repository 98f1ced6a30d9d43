//! SIGHUP to `wrap`: the classes of connections are read again. The server has the signal as well, as each other one.

use super::WrapArgs;
use crate::config::wrap::WrapConfig;
use anyhow::anyhow;
use headroom_console::{Document, Failure, Mistakes, say};
use headroom_control::LawConfig;
use headroom_node::cpu::CpuList;
use headroom_runtime::oncall::ClassTable;
use signal_hook::consts::signal::SIGHUP;
use signal_hook::iterator::Signals;
use std::io;
use std::path::{Path, PathBuf};

/// Keys that are named in a line, and lines of a kind.
const MOST_NAMED: usize = 8;

/// Reads the classes of a configuration again at each SIGHUP, in a thread that lives as long as the process. What comes of it is said in the log,
/// and by the table's news in the decisions.
///
/// # Errors
/// The signal cannot be caught, or the thread not started.
pub(super) fn at_hangup(
    file: PathBuf,
    classes: ClassTable,
    args: &WrapArgs,
    (config, at_start): (&WrapConfig, &Document),
    cpus: &CpuList,
) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP])?;
    let cores = u32::try_from(cpus.len()).unwrap_or(u32::MAX);
    let (args, at_start, law) = (args.clone(), at_start.clone(), config.law.clone());
    let in_force = law.clone();
    let of = file.clone();
    let read = move || {
        // One that nobody writes to would be waited for, and no later signal heard.
        if of.metadata().is_ok_and(|metadata| !metadata.is_file()) {
            let why = format!("{}: is no regular file: it is not read again", of.display());
            return Err(Failure::usage(anyhow!(why)));
        }
        let (config, document) = args.configured(cores)?;
        // The law in force is the one of the start, whatever the file says of it now.
        let mut lacks = Mistakes::default();
        config.oncall.check_laws(&law, &document, &mut lacks);
        lacks.done()?;
        Ok((config, document))
    };
    std::thread::Builder::new()
        .name("reload".to_owned())
        .spawn(move || {
            for _ in signals.forever() {
                let read = read();
                let is_refused = read.is_err();
                for line in outcome(&file, read, (&at_start, &in_force), &classes) {
                    match is_refused {
                        true => tracing::warn!("{line}"),
                        false => say::note!("{line}"),
                    }
                    classes.tell(line);
                }
            }
        })?;
    Ok(())
}

/// What comes of a configuration that was read again, in words. All of it has to be right, though its classes alone hold before the next start.
fn outcome(
    file: &Path,
    read: Result<(WrapConfig, Document), Failure>,
    (at_start, in_force): (&Document, &LawConfig),
    classes: &ClassTable,
) -> Vec<String> {
    let (config, document) = match read {
        Ok(read) => read,
        // What is wrong comes first: a view has room for a few lines.
        Err(errors) => return vec![format!("{errors}. The classes stay as they were")],
    };
    let mut others = document.changed(at_start);
    others.retain(|key| !key.starts_with("oncall.class"));
    let notes = config.oncall.notes(in_force, &document);
    let mut lines = classes.replace(config.oncall.class);
    let has_none = lines.is_empty();
    match has_none {
        true => lines.push(format!("the classes of {} are what they were", file.display())),
        false => {
            shorten(&mut lines, "change");
            lines
                .iter_mut()
                .for_each(|line| *line = format!("{}: {line}", file.display()));
        }
    }
    if !has_none {
        let mut notes = notes;
        shorten(&mut notes, "note");
        lines.extend(
            notes
                .into_iter()
                .map(|note| format!("{}: {note}", file.display())),
        );
    }
    if !others.is_empty() {
        let more = match others.len().saturating_sub(MOST_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        others.truncate(MOST_NAMED);
        lines.push(format!(
            "{}: {}{more}: not as at the start; what is no class holds from the next start on",
            file.display(),
            others.join(", ")
        ));
    }
    lines
}

/// Leaves the first lines of very many, and says how many it leaves out.
fn shorten(lines: &mut Vec<String>, of: &str) {
    let more = lines.len().saturating_sub(MOST_NAMED);
    lines.truncate(MOST_NAMED);
    if more > 0 {
        lines.push(format!(
            "{more} more {of}{} of this kind",
            if more == 1 { "" } else { "s" }
        ));
    }
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
            let read = WrapConfig::read(Some(&file), |names| names)?;
            Ok::<_, Failure>(read)
        };
        let class = "[[oncall.class]]\nname = \"gold\"\nclients = [\"unix\"]\np99_ms = ";
        let (start, document) = read(&format!("{class}4\n")).unwrap();
        let classes = ClassTable::from(start.oncall.class.clone());
        let said = |text: &str| outcome(&file, read(text), (&document, &start.law), &classes).join("\n");
        assert!(said(&format!("{class}4\n")).ends_with("are what they were"));
        let changed = said(&format!("{class}2\n"));
        assert!(
            changed.contains("class gold: P99 2 ms (was P99 4 ms)")
                && changed.contains("nothing is done to keep it"),
            "{changed}"
        );
        let more = said(&format!("{class}2\n[slo]\ntarget_ms = 7\n"));
        assert!(
            more.contains("wrap.toml: slo.target_ms: not as at the start"),
            "{more}"
        );
        let many: String = (0..20)
            .map(|at| format!("[[oncall.class]]\nname = \"c{at}\"\nclients = [\"user:u{at}\"]\n"))
            .collect();
        let many = said(&format!("{class}2\n{many}"));
        assert!(
            many.contains("class c7: new") && !many.contains("class c8"),
            "{many}"
        );
        assert!(many.contains("12 more changes of this kind"), "{many}");
        assert!(many.contains("law.on-call.policy is fair"), "{many}");
        said(&format!("{class}2\n"));
        let refused = said(&format!("{class}-1\n"));
        assert!(refused.ends_with(". The classes stay as they were"), "{refused}");
        assert_eq!(classes.now()[0].p99_ms, Some(2.0));
    }
}
