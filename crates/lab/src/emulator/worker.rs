//! The process behind the emulated hardware.

use super::{EmulatorOptions, READY};
use anyhow::anyhow;
use headroom_console::Failure;
use headroom_console::Stop;
use headroom_testbed::hardware::{Emulated, RealOptions};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// How often it is looked whether the tree is served still.
const WATCH: Duration = Duration::from_millis(500);

/// Mounts the machine and serves it until standard input closes, which it does when the parent ends, however it ends.
/// Then everything is taken away.
///
/// # Errors
/// A machine that cannot be mounted; one that somebody unmounted; something that could not be taken away.
pub fn work(options: &EmulatorOptions) -> Result<(), Failure> {
    let real = options.real.as_ref().map(|(name, parent)| RealOptions {
        name: name.clone(),
        parent: parent.clone(),
        record: options.record(),
    });
    let stop = Stop::at_signals()?;
    // Before the mount, which may take its time: a parent that ends meanwhile is noticed as soon as it is there.
    let flag = stop.clone();
    std::thread::Builder::new()
        .name("input".to_owned())
        .spawn(move || {
            let mut ignored = [0; 256];
            while std::io::stdin().read(&mut ignored).is_ok_and(|read| read > 0) {}
            flag.raise();
        })?;
    let emulated =
        Emulated::mount(options.hardware.clone(), real.as_ref(), &options.at).map_err(Failure::usage)?;
    for group in &options.groups {
        make_group(&options.at, group)?;
    }
    let mut out = std::io::stdout();
    writeln!(out, "{READY}")?;
    out.flush()?;
    while emulated.is_served() && !stop.wait_until(Instant::now() + WATCH) {}
    let served = emulated.is_served();
    emulated.unmount()?;
    // The directory may have been somebody's before, and hold something by now.
    let _ = fs::remove_dir(&options.at);
    if served {
        Ok(())
    } else {
        Err(Failure::Run(anyhow!("somebody unmounted the emulated hardware")))
    }
}

/// Makes a control group of the emulated machine, in each of its hierarchies; one that a killed emulator left is there.
fn make_group(at: &Path, name: &str) -> Result<(), Failure> {
    for hierarchy in ["fs/cgroup", "fs/cgroup/cpu,cpuacct", "fs/cgroup/cpuset"] {
        let above = at.join(hierarchy);
        if !above.join("cgroup.procs").exists() {
            continue;
        }
        let dir = above.join(name.trim_matches('/'));
        match fs::create_dir(&dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                let why = anyhow!("--group {name}: cannot make {}: {error}", dir.display());
                return Err(Failure::usage(why));
            }
            _ => {}
        }
    }
    Ok(())
}
