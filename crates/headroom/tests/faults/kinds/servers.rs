//! A controller that switches servers is killed with its guard: what it left off comes back by the next start or by `headroom release`.

use super::Fault;
use crate::common::process::{Process, children};
use crate::common::site::{Service, Site, resizing, run_dir};
use crate::common::{Load, Program, get, headroom, is_alive, kill, signal, within};
use crate::world::{MAX_WAIT, World};
use anyhow::Context;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// What one server takes, as the law is told.
const CAPACITY_PER_S: u64 = 50;
const LAW: &str = "name = \"static\"\n[law.static]\ncapacity_per_s = 50.0";
/// A server that hangs is started after a boot in vain and another, once what was ordered to stop is down.
const MAX_COMING_BACK: Duration = Duration::from_secs(90);
/// Requests of which each server that the gateway has gets one.
const ENOUGH_REQUESTS: usize = 60;

/// A cluster whose controller has switched a server off.
struct Cluster {
    site: Site,
    controller: Program,
    load: Load,
    _gateway: Program,
}

impl Cluster {
    fn with_one_off(servers: usize, runs: Option<&Path>) -> anyhow::Result<Self> {
        let site = Site::new(servers, Service::Workers(2, 0.005));
        (1..=servers).for_each(|server| site.boot(server));
        let gateway = site.gateway();
        let config = site.behind_gateway(LAW);
        let load = Load::to(site.front, CAPACITY_PER_S / 3);
        let dir = runs.map_or_else(|| run_dir(&config), Path::to_owned);
        let mut command = headroom("resize --json --config");
        let controller = Program::start(command.arg(&config).arg("--run-dir").arg(dir));
        let cluster = Self {
            site,
            controller,
            load,
            _gateway: gateway,
        };
        let off = within(MAX_WAIT, || cluster.is_one_off().then_some(()));
        off.with_context(|| format!("no server is switched off: {}", cluster.controller.last_words()))?;
        Ok(cluster)
    }

    fn servers(&self) -> impl Iterator<Item = usize> + use<> {
        1..=self.site.ports.len()
    }

    fn is_one_off(&self) -> bool {
        self.servers().any(|server| !self.site.runs(server))
    }

    /// Which servers run, and how often each was started.
    fn is_now(&self) -> Vec<(bool, usize)> {
        self.servers()
            .map(|server| (self.site.runs(server), self.site.starts(server)))
            .collect()
    }

    /// The ports of the servers that answer through the gateway.
    fn admitted(&self) -> BTreeSet<u16> {
        let ask = |_| {
            let head = get(self.site.front, "/").ok()?.head;
            let (_, rest) = head.split_once("Server: ")?;
            rest.split_once('\r')?.0.parse().ok()
        };
        (0..ENOUGH_REQUESTS).filter_map(ask).collect()
    }
}

/// The guards of a controller, those that hang too.
fn guards(controller: &Program) -> Vec<u32> {
    let children = children(controller.pid()).into_iter();
    children
        .filter(|child| !child.is_zombie && Process::is_guard(child))
        .map(|guard| guard.pid)
        .collect()
}

fn has_record(run_dir: &Path) -> bool {
    let folders = fs::read_dir(run_dir).into_iter().flatten().flatten();
    folders
        .map(|folder| folder.path().join("servers.json"))
        .any(|file| file.exists())
}

/// Kills a controller and its guard, or stops the guard first, and lets a start or `headroom release` finish what they could not.
pub fn left_off(world: &mut World, fault: Fault) -> anyhow::Result<()> {
    let mut cluster = Cluster::with_one_off(3, None)?;
    let config = cluster.site.path("resize.toml");
    let dir = run_dir(&config);
    world.run_dirs.push(dir.clone());
    // What is another run's is left alone.
    let beside = match world.draw.one("beside it", &["nobody", "a run that lives"]) {
        "nobody" => None,
        _ => Some(Cluster::with_one_off(2, Some(&dir))?),
    };
    if world.draw.one("load", &["stays", "rises"]) == "rises" {
        cluster.load.at(CAPACITY_PER_S * 5 / 2);
    }
    let later = world.draw.ms("after", 0..3_000);
    std::thread::sleep(later);
    let stopped = end_both(world, &mut cluster.controller, fault);
    let since = Instant::now();
    if fault == Fault::HangServer {
        hang(world, &cluster.site)?;
    }
    let before = beside.as_ref().map(Cluster::is_now);
    come_back(world, &config, &dir)?;
    for guard in stopped {
        signal(guard, Signal::CONT);
        // It finds that others have done its work.
        if within(MAX_WAIT, || (!is_alive(guard)).then_some(())).is_none() {
            world
                .found
                .leftovers
                .push(format!("the guard {guard} that was stopped"));
            kill(guard);
        }
    }
    let ports = BTreeSet::from_iter(cluster.site.ports.iter().copied());
    let admitted = within(Duration::from_secs(5), || {
        Some(cluster.admitted()).filter(|them| *them == ports)
    });
    match admitted {
        Some(_) => world.found.safe = Some(since.elapsed()),
        None => world.found.left.push(format!(
            "servers {ports:?} are not all on and given requests: {:?}",
            cluster.is_now()
        )),
    }
    if let Some(beside) = beside {
        let now = Some(beside.is_now());
        if now != before {
            let text = format!("a run that lives had its servers touched: {before:?}, now {now:?}");
            world.found.wrong.push(text);
        }
        let mut controller = beside.controller;
        controller.signal(Signal::TERM);
        controller
            .wait_for(MAX_WAIT)
            .context("the controller beside it does not end")?;
    }
    if has_record(&dir) {
        world
            .found
            .leftovers
            .push(format!("a record in {}", dir.display()));
    }
    Ok(())
}

/// Ends both; the guards that are only stopped.
fn end_both(world: &mut World, controller: &mut Program, fault: Fault) -> Vec<u32> {
    let guards = guards(controller);
    let to_guards = |how| guards.iter().for_each(|guard| signal(*guard, how));
    if fault == Fault::StopServersGuard {
        to_guards(Signal::STOP);
        let pause = world.draw.ms("the controller after", 0..5_000);
        std::thread::sleep(pause);
        controller.kill();
        return guards;
    }
    match world.draw.one("first", &["the guard", "the controller", "both"]) {
        "the guard" => {
            to_guards(Signal::KILL);
            let pause = world.draw.ms("the controller after", 0..30);
            std::thread::sleep(pause);
            controller.kill();
        }
        "the controller" => {
            controller.kill();
            let pause = world.draw.ms("the guard after", 0..7_000);
            std::thread::sleep(pause);
            to_guards(Signal::KILL);
        }
        _ => {
            to_guards(Signal::KILL);
            controller.kill();
        }
    }
    Vec::new()
}

/// Has a server that is off be on and silent, where one is off.
fn hang(world: &mut World, site: &Site) -> anyhow::Result<()> {
    let Some(server) = (1..=site.ports.len()).find(|server| !site.runs(*server)) else {
        world.draw.note("none is off to hang");
        return Ok(());
    };
    let text = format!(
        "exec sleep 600 > {0}.log 2>&1 & echo $! > {0}.pid",
        site.path(&format!("web{server}")).display()
    );
    let hung = Command::new("/bin/sh").args(["-c", &text]).status()?;
    anyhow::ensure!(hung.success(), "no server can be made to hang");
    world.draw.note(&format!("web{server} hangs"));
    Ok(())
}

/// A start, or `headroom release` as `ExecStopPost=` of a unit does it.
fn come_back(world: &mut World, config: &Path, dir: &Path) -> anyhow::Result<()> {
    let by = world.draw.one("brought back by", &["release", "start"]);
    let command = match by {
        "release" => world.release_command(dir),
        _ => resizing(config, "--json"),
    };
    let program = world.start(command, by);
    if by == "start" {
        let has_them = |said: &str| said.contains("every server is back") || said.contains("as they are");
        let told = within(MAX_COMING_BACK, || {
            has_them(&world.program(program).all()).then_some(())
        });
        if told.is_none() {
            world
                .found
                .wrong
                .push("the start does not say what becomes of the servers".to_owned());
        }
        world.program(program).signal(Signal::TERM);
    }
    let status = world.program(program).wait_for(MAX_COMING_BACK);
    if !status.is_some_and(|status| status.success()) {
        let words = world.program(program).last_words();
        world
            .found
            .wrong
            .push(format!("the {by} ended with {status:?}: {words}"));
    }
    Ok(())
}
