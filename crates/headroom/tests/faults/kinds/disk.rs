//! Run directories that cannot be written any more, and kill -9 then.

use crate::common::place::Disk;
use crate::subject::{self, Kind};
use crate::world::World;
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// A disk that fills up.
pub fn full(world: &mut World, kind: Kind) -> anyhow::Result<()> {
    broken(world, kind, |disk| disk.fill())
}

/// A disk that becomes read-only.
pub fn read_only(world: &mut World, kind: Kind) -> anyhow::Result<()> {
    broken(world, kind, Disk::read_only)
}

fn broken(
    world: &mut World,
    kind: Kind,
    spoil: impl Fn(&mut Disk) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let subject = subject::make(world, kind)?;
    subject.on_small_disk(world)?;
    let spoil = |world: &mut World| world.disk.as_mut().map_or(Ok(()), &spoil);
    let when = world.draw.one(
        "when",
        &[
            "before the start",
            "during the start",
            "during the start",
            "under limits",
        ],
    );
    if when == "before the start" {
        spoil(world)?;
    }
    let run = world.start(subject.again(), "a");
    match when {
        "during the start" => {
            let pause = world.draw.ms("after", 0..1_200);
            std::thread::sleep(pause);
            spoil(world)?;
        }
        "under limits" => {
            world.must_be_low(run)?;
            spoil(world)?;
        }
        _ => {}
    }
    // With nowhere to record what was found it may refuse to start, or limit nothing.
    let low = world.until_low(run, Duration::from_secs(4));
    world.draw.note(&format!("limits in force: {low:?}"));
    let later = world.draw.ms("killed after", 0..1_500);
    std::thread::sleep(later);
    let since = Instant::now();
    world.program(run).signal(Signal::KILL);
    world.until_safe(since, "kill -9 with a run directory that cannot be written");
    Ok(())
}
