//! Starts and stops that meet, control groups that go, somebody else who writes, two programs on one machine.

use crate::common::within;
use crate::lever::{Watched, levers};
use crate::subject::{self, Kind};
use crate::world::{MAX_WAIT, World};
use anyhow::{Context, bail};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// The signal that a choice names.
fn signal_of(how: &str) -> Signal {
    if how == "SIGTERM" {
        Signal::TERM
    } else {
        Signal::KILL
    }
}

/// Waits for the end of a program that was to end.
fn ends(world: &mut World, index: usize) -> anyhow::Result<()> {
    let program = world.program(index);
    let ended = program.wait_for(MAX_WAIT);
    ended.with_context(|| format!("{} does not end: {}", program.what(), program.last_words()))?;
    Ok(())
}

/// SIGTERM or kill -9 at some moment of the start.
pub fn at_start(world: &mut World, kind: Kind, is_killed: bool) -> anyhow::Result<()> {
    let subject = subject::make(world, kind)?;
    // Twice: the second start meets what the first left.
    for name in ["a", "b"] {
        let run = world.start(subject.again(), name);
        let pause = world.draw.ms("after", 0..1_500);
        std::thread::sleep(pause);
        let since = Instant::now();
        world
            .program(run)
            .signal(if is_killed { Signal::KILL } else { Signal::TERM });
        ends(world, run)?;
        world.until_safe(since, "a signal during the start");
    }
    Ok(())
}

/// A second start, of the same configuration and run directory, while the first still stops.
pub fn restart(world: &mut World, kind: Kind) -> anyhow::Result<()> {
    let subject = subject::make(world, kind)?;
    let first = world.start(subject.again(), "a");
    world.must_be_low(first)?;
    let how = world.draw.one("stopped by", &["SIGTERM", "kill -9"]);
    world.program(first).signal(signal_of(how));
    let pause = world.draw.ms("started again after", 0..200);
    std::thread::sleep(pause);
    let second = world.start(subject.again(), "b");
    // It may find the first still there, and say so.
    let low = world.until_low(second, Duration::from_secs(6));
    world.draw.note(&format!("limits of the second: {low:?}"));
    ends(world, first)?;
    let since = Instant::now();
    let how = world.draw.one("then", &["SIGTERM", "kill -9"]);
    world.program(second).signal(signal_of(how));
    world.until_safe(since, "the end of the second");
    Ok(())
}

/// The control group is removed under the program, and made again or not.
pub fn group(world: &mut World, kind: Kind, is_made_again: bool) -> anyhow::Result<()> {
    world.make_group()?;
    let subject = match kind {
        Kind::Agent => subject::agent(world, "a", "web")?,
        _ => subject::up(world, "a", "web")?,
    };
    let run = world.start(subject.again(), "a");
    world.must_be_low(run)?;
    let group = world.group.take().context("there is no control group")?;
    let levers = levers(&group);
    group.remove();
    anyhow::ensure!(group.left().is_empty(), "the control group cannot be removed");
    if is_made_again {
        let pause = world.draw.ms("made again after", 0..1_000);
        std::thread::sleep(pause);
        group.make()?;
    }
    // Nobody has found anything in it: what a fresh one holds is to be there at the end.
    let fresh: Vec<Option<String>> = levers
        .iter()
        .map(|lever| is_made_again.then(|| as_made(lever)).flatten())
        .collect();
    world.watched = levers
        .into_iter()
        .zip(fresh)
        .map(|(lever, expected)| Watched { lever, expected })
        .collect();
    let pause = world.draw.ms("ended after", 500..3_000);
    std::thread::sleep(pause);
    let since = Instant::now();
    let how = world.draw.one("by", &["SIGTERM", "kill -9"]);
    world.program(run).signal(signal_of(how));
    world.program(run).wait_for(MAX_WAIT);
    world.until_safe(since, "the control group went and the program ended");
    if !is_made_again && !group.left().is_empty() {
        world
            .found
            .leftovers
            .push("the control group that was removed is there again".to_owned());
    }
    world.group = Some(group);
    Ok(())
}

/// What a control group that was just made holds: no quota of the kernel's period, the CPUs that it was given.
fn as_made(lever: &crate::lever::Lever) -> Option<String> {
    use crate::lever::Lever;
    match lever {
        Lever::QuotaV1(..) => Some("-1 of 100000".to_owned()),
        Lever::QuotaV2(..) => Some("max 100000".to_owned()),
        Lever::Cpuset(path) => {
            let above = path.parent()?.parent()?.join("cpuset.cpus");
            // Version 2 makes groups with an empty list.
            let v1 = path.parent()?.join("tasks").exists();
            let text = std::fs::read_to_string(above).ok()?;
            Some(if v1 { text.trim().to_owned() } else { String::new() })
        }
        Lever::Number(_) => None,
    }
}

/// Somebody else writes a limit that is in force: it must stay, be reported, and be there at the end.
pub fn foreign(world: &mut World, kind: Kind) -> anyhow::Result<()> {
    let subject = subject::make(world, kind)?;
    let run = world.start(subject.again(), "a");
    world.must_be_low(run)?;
    let later = world.draw.ms("after", 0..1_500);
    std::thread::sleep(later);
    let low: Vec<usize> = (0..world.watched.len())
        .filter(|index| world.watched[*index].is_low())
        .collect();
    if low.is_empty() {
        bail!("nothing is limited any more");
    }
    let chosen = low[world.draw.index(low.len())];
    let lever = world.watched[chosen].lever.clone();
    let seed = world.draw.number(1..900);
    let said = world.program(run).all().len();
    let mut written = lever.interfere(seed)?;
    // The kernel's files cannot be compared and written in one: what is written between the program's look and its own write
    // is lost without a trace, and whoever wrote it writes it again.
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(60));
        if lever.text().is_none_or(|text| text == written) {
            break;
        }
        written = lever.interfere(seed)?;
    }
    world.draw.note(&format!("{} = {written}", lever.name()));
    world.watched[chosen].expected = Some(written.clone());
    // Now the law wants to give back what it took, and to write.
    let traffic = subject.traffic(world, run)?;
    let since = Instant::now();
    let fought = within(Duration::from_secs(3), || {
        lever.text().filter(|text| *text != written)
    });
    if let Some(text) = fought {
        world.found.wrong.push(format!(
            "what another wrote ({written}) was overwritten with {text} after {:.1} s",
            since.elapsed().as_secs_f64()
        ));
    }
    let news = world.program(run).all().split_off(said);
    if !["somebody else", "someone else", "another", "foreign"]
        .iter()
        .any(|words| news.to_lowercase().contains(words))
    {
        world
            .found
            .wrong
            .push("what another wrote was not reported on standard error".to_owned());
    }
    drop(traffic);
    let how = world.draw.one("ended by", &["SIGTERM", "kill -9"]);
    let since = Instant::now();
    world.program(run).signal(signal_of(how));
    world.program(run).wait_for(MAX_WAIT);
    world.until_safe(since, "the end of the program");
    Ok(())
}

/// Two programs on one machine, each with a run directory of its own. The second may be refused.
pub fn two(world: &mut World, kind: Kind) -> anyhow::Result<()> {
    let make = |world: &mut World, name: &str, group: &str| match kind {
        Kind::Agent => subject::agent(world, name, group),
        _ => subject::up(world, name, group),
    };
    match kind {
        // The same group.
        Kind::Up => world.make_group()?,
        // Two groups of a machine that has its power limits and its frequencies once.
        _ => world.emulate()?,
    }
    let subjects = [make(world, "a", "web")?, make(world, "b", "db")?];
    let first = world.start(subjects[0].again(), "a");
    world.must_be_low(first)?;
    let pause = world.draw.ms("the second after", 0..1_000);
    std::thread::sleep(pause);
    let second = world.start(subjects[1].again(), "b");
    let refused = within(Duration::from_secs(4), || world.program(second).ended());
    match refused {
        Some(status) if status.success() => bail!("the second ended well though nobody ended it"),
        Some(_) => world.draw.note("the second was refused"),
        None => world.draw.note("the second runs"),
    }
    let mut order = [first, second];
    if world.draw.index(2) == 1 {
        order.reverse();
    }
    let how = world
        .draw
        .one("the first to end ends by", &["SIGTERM", "kill -9"]);
    let began = Instant::now();
    world.program(order[0]).signal(signal_of(how));
    ends(world, order[0])?;
    let pause = world.draw.ms("the other after", 0..1_500);
    std::thread::sleep(pause);
    if refused.is_some() {
        // One alone: it is safe when that one has ended.
        let since = if order[0] == first { began } else { Instant::now() };
        world.program(first).signal(Signal::TERM);
        world.program(first).wait_for(MAX_WAIT);
        world.until_safe(since, "the only one ended");
        return Ok(());
    }
    let since = Instant::now();
    world.program(order[1]).signal(Signal::TERM);
    world.program(order[1]).wait_for(MAX_WAIT);
    world.until_safe(since, "both ended");
    Ok(())
}
