//! The ends of programs: kill -9 of some or all, `cgroup.kill`, the end of a PID namespace.

use super::Fault;
use crate::common::place::KillGroup;
use crate::common::process::children;
use crate::common::{children_of, signal};
use crate::subject::{self, Kind, has_guard_service, in_namespace};
use crate::world::{Low, MAX_WAIT, World};
use anyhow::Context;
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// Kill -9 of the program, its guard, both in either order, all together.
pub fn kill(world: &mut World, kind: Kind, fault: Fault) -> anyhow::Result<()> {
    let subject = subject::make(world, kind)?;
    // Nothing of a program's own can outlive all of it: a guard that is a service of the machine does.
    let needs_service = matches!(
        fault,
        Fault::KillRunThenGuard | Fault::KillGuardThenRun | Fault::KillAll | Fault::KillAllAndRelease
    );
    if needs_service && has_guard_service() {
        subject.guard_service(world)?;
    }
    let run = world.start(subject.again(), "a");
    world.must_be_low(run)?;
    let later = world.draw.ms("after", 0..700);
    std::thread::sleep(later);
    let pid = world.program(run).pid();
    let guards = world.guards();
    let since = Instant::now();
    match fault {
        Fault::KillRun => signal(pid, Signal::KILL),
        Fault::KillGuard => {
            guards.iter().for_each(|guard| signal(*guard, Signal::KILL));
            let pause = world.draw.ms("run killed after", 1_000..2_500);
            std::thread::sleep(pause);
            let zombies = children(pid);
            if let Some(zombie) = zombies
                .iter()
                .find(|child| child.is_zombie && guards.contains(&child.pid))
            {
                let text = format!("the killed guard {} stays a zombie", zombie.pid);
                world.found.wrong.push(text);
            }
            signal(pid, Signal::KILL);
            world.until_safe(since + pause, "the guard and later the program were killed");
            return Ok(());
        }
        Fault::KillGuardThenRun => {
            guards.iter().for_each(|guard| signal(*guard, Signal::KILL));
            let pause = world.draw.ms("run killed after", 0..50);
            std::thread::sleep(pause);
            signal(pid, Signal::KILL);
        }
        Fault::KillRunThenGuard => {
            signal(pid, Signal::KILL);
            let pause = world.draw.ms("guard killed after", 0..20);
            std::thread::sleep(pause);
            guards.iter().for_each(|guard| signal(*guard, Signal::KILL));
        }
        _ => {
            let mut all = children_of(pid);
            all.extend(guards);
            all.push(pid);
            if fault == Fault::KillAllAndRelease {
                all.append(&mut world.services);
            }
            // Any may be the first.
            let first = world.draw.index(all.len());
            all.rotate_left(first);
            all.iter().for_each(|one| signal(*one, Signal::KILL));
            if fault == Fault::KillAllAndRelease {
                world
                    .program(run)
                    .wait_for(MAX_WAIT)
                    .context("a killed program does not end")?;
                // What `ExecStopPost=` of a unit does.
                let command = world.release_command(&subject.run_dir);
                let release = world.start(command, "release");
                world.program(release).wait_for(MAX_WAIT);
            }
        }
    }
    world.until_safe(since, "the kill");
    Ok(())
}

/// `cgroup.kill` of the group that the program was started in.
pub fn cgroup_kill(world: &mut World, kind: Kind) -> anyhow::Result<()> {
    let subject = subject::make(world, kind)?;
    let group = KillGroup::new(&world.mark)?;
    let command = group.enter(&subject.command);
    world.kill_group = Some(group);
    let run = world.start(command, "a");
    world.must_be_low(run)?;
    let later = world.draw.ms("after", 0..700);
    std::thread::sleep(later);
    let since = Instant::now();
    if let Some(group) = &world.kill_group {
        group.kill()?;
    }
    world.until_safe(since, "cgroup.kill");
    Ok(())
}

/// The end of the PID namespace that the program is process 1 of, or that a shell is.
pub fn namespace(world: &mut World, kind: Kind, is_guarded: bool) -> anyhow::Result<()> {
    let subject = subject::make(world, kind)?;
    if is_guarded {
        subject.guard_service(world)?;
    }
    let first = world.draw.one("process 1 is", &["the program", "a shell"]);
    let command = in_namespace(&subject.command, first == "a shell");
    let run = world.start(command, "a");
    let low = if is_guarded {
        world.must_be_low(run)?;
        Low::Yes
    } else {
        // It may refuse to start, or limit nothing.
        world.until_low(run, Duration::from_secs(6))
    };
    world.draw.note(match low {
        Low::Yes => "limits in force",
        Low::Ended => "refused to start",
        Low::No => "nothing limited",
    });
    let later = world.draw.ms("after", 0..700);
    std::thread::sleep(later);
    let pid = world.program(run).pid();
    let since = Instant::now();
    for child in children_of(pid) {
        signal(child, Signal::KILL);
    }
    world.until_safe(since, "the end of the PID namespace");
    let ended = world.program(run).wait_for(MAX_WAIT);
    ended.context("what is in a PID namespace does not end with it")?;
    Ok(())
}
