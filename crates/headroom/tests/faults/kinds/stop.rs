//! What hangs: a stopped program, a stopped thread of it, a controller that is stopped or gone.

use crate::common::process::StoppedThread;
use crate::subject::{self, Kind};
use crate::world::World;
use anyhow::Context;
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// For how long something is stopped.
fn length(world: &mut World) -> Duration {
    world.draw.ms("stopped for", 5_000..10_000)
}

/// Keeps waiting until a stop is over, and looks whether limits come back meanwhile.
fn sit_out(world: &mut World, since: Instant, length: Duration) {
    let was_safe = world.found.left.is_empty();
    while since.elapsed() < length {
        std::thread::sleep(Duration::from_millis(50));
    }
    if was_safe && world.is_limited() {
        world
            .found
            .left
            .push("limits came back while what holds them was stopped".to_owned());
    }
}

/// SIGSTOP of the program that holds the limits.
pub fn run(world: &mut World, kind: Kind) -> anyhow::Result<()> {
    let subject = subject::make(world, kind)?;
    let run = world.start(subject.again(), "a");
    world.must_be_low(run)?;
    let length = length(world);
    world.program(run).signal(Signal::STOP);
    let since = Instant::now();
    world.until_safe(since, "SIGSTOP");
    sit_out(world, since, length);
    world.program(run).signal(Signal::CONT);
    let pause = world.draw.ms("ended after", 0..1_500);
    std::thread::sleep(pause);
    anyhow::ensure!(
        world.program(run).ended().is_none(),
        "it ended after SIGCONT: {}",
        world.program(run).last_words()
    );
    Ok(())
}

/// One stopped thread: the one that decides or writes.
pub fn thread(world: &mut World, kind: Kind) -> anyhow::Result<()> {
    let subject = subject::make(world, kind)?;
    let run = world.start(subject.again(), "a");
    world.must_be_low(run)?;
    let length = length(world);
    let pid = world.program(run).pid();
    let stopped = StoppedThread::control_of(pid)?;
    let since = Instant::now();
    world.draw.note(&format!("thread {}", stopped.name));
    world.until_safe(since, "a thread was stopped");
    sit_out(world, since, length);
    drop(stopped);
    let pause = world.draw.ms("ended after", 0..1_500);
    std::thread::sleep(pause);
    anyhow::ensure!(
        world.program(run).ended().is_none(),
        "it ended after its thread went on: {}",
        world.program(run).last_words()
    );
    Ok(())
}

/// The controller killed or stopped, under whose lease an agent holds limits.
pub fn controller(world: &mut World, is_killed: bool) -> anyhow::Result<()> {
    let subject = subject::make(world, Kind::Agent)?;
    let run = world.start(subject.again(), "a");
    world.must_be_low(run)?;
    let controller = subject.controller.context("an agent has a controller")?;
    let later = world.draw.ms("after", 0..2_000);
    std::thread::sleep(later);
    let since = Instant::now();
    if is_killed {
        world.program(controller).signal(Signal::KILL);
        world.until_safe(since, "the controller was killed");
    } else {
        let length = length(world);
        world.program(controller).signal(Signal::STOP);
        world.until_safe(since, "the controller was stopped");
        sit_out(world, since, length);
        world.program(controller).signal(Signal::CONT);
    }
    Ok(())
}
