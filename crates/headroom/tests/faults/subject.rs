//! What a fault is done to: a program that holds limits, and those that it works with.

use crate::common::place::Disk;
use crate::common::{Group, Server, Traffic, command, headroom, within};
use crate::world::World;
use anyhow::{Context, bail};
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// The kinds of subjects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `headroom up` with a quota or CPUs of a real control group.
    Up,
    /// `headroom up` on an emulated server: quota, power limits, frequency.
    UpEmulated,
    /// `headroom agent` on either, under a controller's lease.
    Agent,
    /// `headroom resize` of a cluster whose servers it switches.
    Resize,
}

impl Kind {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::UpEmulated => "up-emulated",
            Self::Agent => "agent",
            Self::Resize => "resize",
        }
    }
}

/// A program that holds limits, not started yet.
pub struct Subject {
    /// How it is started.
    pub command: Command,
    /// Its run directory.
    pub run_dir: PathBuf,
    /// The controller that it works for, an index of the world's programs.
    pub controller: Option<usize>,
    /// The gateway in front of its service where that is a program of its own, an index of the world's programs.
    pub gateway: Option<usize>,
}

/// Whether the binary has a guard that can stand by itself.
pub fn has_guard_service() -> bool {
    let help = headroom("guard --help").output();
    help.is_ok_and(|help| help.status.success() && String::from_utf8_lossy(&help.stdout).contains("--serve"))
}

/// Where a web service answers everybody, for as long as this process runs.
fn backend() -> SocketAddr {
    static BACKEND: OnceLock<Server> = OnceLock::new();
    BACKEND.get_or_init(|| Server::start(Duration::ZERO)).address
}

/// What is limited: the real group, or one of the emulated server's.
fn service(world: &World, group: &str) -> anyhow::Result<String> {
    if world.sys().is_some() {
        return Ok(format!("/{group}"));
    }
    let real = world.group.as_ref().context("there is no control group")?;
    Ok(real.path())
}

/// The lines of a law that saves at once, from all that it may limit.
fn law(world: &mut World, may_limit_frequency: bool) -> String {
    let quick =
        "[law.slo-power]\nsustained_periods = 1\npower_step_w_per_core = 6.0\nat_limit_margin_w = 12.0\n";
    let law = if may_limit_frequency {
        world.draw.one("law", &["slo-power", "headroom", "powersave"])
    } else {
        world.draw.one("law", &["slo-power", "headroom"])
    };
    format!("[law]\nname = \"{law}\"\n\n{quick}")
}

/// The real machine's own power limits and frequency are left alone: they are not ours to limit in a test, and runs beside
/// each other would be refused them.
const REAL_POWER: &str = "cap_lever = \"software\"\nfrequency = \"off\"\n";

/// `headroom up` for a group, in front of a backend that is there and gets no requests: a law saves all it can.
pub fn up(world: &mut World, name: &str, group: &str) -> anyhow::Result<Subject> {
    let is_emulated = world.sys().is_some();
    let service = service(world, group)?;
    let several = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
    let has_cpuset = several && world.group.as_ref().is_some_and(Group::has_cpuset);
    let (lever, meter) = if is_emulated {
        ("cores_step = 1.0\nrequests_per_core_s = 15.0", "auto")
    } else if has_cpuset && world.draw.one("lever", &["quota", "quota", "cpuset"]) == "cpuset" {
        (
            "lever = \"cpuset\"\ncores_min = 1.0\nrequests_per_core_s = 250.0",
            "model",
        )
    } else {
        ("requests_per_core_s = 250.0", "model")
    };
    let law = law(world, is_emulated);
    let real = if is_emulated { "" } else { REAL_POWER };
    let text = format!(
        "[slo]\npercentile = 95\ntarget_ms = 250\n\n[gateway]\nlisten = [\"127.0.0.1:0\"]\nthreads = 1\n\
         backends = [{{ url = \"http://{}\" }}]\n\n[service]\ncgroup = \"{service}\"\n{lever}\n\n{law}\n\
         [power]\nmeter = \"{meter}\"\n{real}\n[control]\nperiod_ms = 100\n\n[record]\ndb = \"{}\"\n\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n",
        backend(),
        world.dir().join(format!("{name}.db")).display(),
    );
    let file = world.dir().join(format!("{name}.toml"));
    fs::write(&file, text)?;
    let run_dir = world.dir().join(format!("run-{name}"));
    let mut command = headroom("up --json --no-view --config");
    command.arg(file).arg("--run-dir").arg(&run_dir);
    world.with_trees(&mut command);
    world.run_dirs.push(run_dir.clone());
    Ok(Subject {
        command,
        run_dir,
        controller: None,
        gateway: None,
    })
}

/// An agent for a group; its controller and a gateway run and wait for it.
pub fn agent(world: &mut World, name: &str, group: &str) -> anyhow::Result<Subject> {
    let service = service(world, group)?;
    let socket = |what: &str| {
        format!(
            "unix:{}",
            world.dir().join(format!("{name}-{what}.sock")).display()
        )
    };
    let (at, gateway_at) = (socket("agent"), socket("gateway"));
    let words = format!("--control {gateway_at} --backend http://{}", backend());
    let gateway = headroom(format!("gateway --listen 127.0.0.1:0 {words}"));
    let gateway = world.start(gateway, &format!("{name}-gateway"));

    let rate = if world.sys().is_some() { "15.0" } else { "400.0" };
    let law = law(world, false);
    let text = format!(
        "[slo]\ntarget_ms = 250\n\n[nodes]\nn1 = \"{at}\"\n\n[gateways]\ng1 = \"{gateway_at}\"\n\n\
         [cluster]\nname = \"{name}\"\nlease_ms = 2000\nwait_s = 40\nrequests_per_core_s = {rate}\n\n{law}\n\
         [control]\nperiod_ms = 200\n\n[record]\ndb = \"{}\"\n\n[admin]\nlisten = \"127.0.0.1:0\"\n",
        world.dir().join(format!("{name}.db")).display(),
    );
    let file = world.dir().join(format!("{name}.toml"));
    fs::write(&file, text)?;
    let mut controller = headroom("controller --json --no-view --config");
    controller.arg(file);
    let controller = world.start(controller, &format!("{name}-controller"));

    let run_dir = world.dir().join(format!("run-{name}"));
    let mut command = headroom("agent");
    if world.sys().is_some() {
        command.args(["--cgroup", &service, "--listen", &at]);
    } else {
        let file = world.dir().join(format!("{name}-agent.toml"));
        let text = format!(
            "[agent]\nlisten = [\"{at}\"]\n\n[service]\ncgroup = \"{service}\"\n\n[power]\nmeter = \"model\"\n{REAL_POWER}"
        );
        fs::write(&file, text)?;
        command.arg("--config").arg(file);
    }
    command.arg("--run-dir").arg(&run_dir);
    world.with_trees(&mut command);
    world.run_dirs.push(run_dir.clone());
    Ok(Subject {
        command,
        run_dir,
        controller: Some(controller),
        gateway: Some(gateway),
    })
}

/// A subject of a kind, with what it stands on.
pub fn make(world: &mut World, kind: Kind) -> anyhow::Result<Subject> {
    match kind {
        Kind::Up => {
            world.make_group()?;
            up(world, "a", "web")
        }
        Kind::UpEmulated => {
            world.emulate()?;
            up(world, "a", "web")
        }
        Kind::Agent => {
            if world.draw.one("server", &["real", "emulated"]) == "real" {
                world.make_group()?;
            } else {
                world.emulate()?;
            }
            agent(world, "a", "web")
        }
        Kind::Resize => bail!("a controller limits nothing: its servers are a site's"),
    }
}

impl Subject {
    /// Sends more requests than the law expects, so that it wants to give back what it took.
    pub fn traffic(&self, world: &mut World, run: usize) -> anyhow::Result<[Traffic; 2]> {
        let serving = self.gateway.unwrap_or(run);
        let said = world.program(serving).all();
        let address = said
            .lines()
            .find_map(|line| match self.gateway {
                Some(_) => line.split_once("listening on ")?.1.trim().parse().ok(),
                None => line
                    .strip_prefix("serving ")?
                    .rsplit_once(" on ")?
                    .1
                    .trim()
                    .parse()
                    .ok(),
            })
            .with_context(|| format!("no word of where it listens: {said}"))?;
        Ok([Traffic::to(address), Traffic::to(address)])
    }

    /// The same command again: it may be started more than once.
    pub fn again(&self) -> Command {
        copy(&self.command)
    }

    /// Puts its run directory on a small file system of its own.
    pub fn on_small_disk(&self, world: &mut World) -> anyhow::Result<()> {
        world.disk = Some(Disk::new(&self.run_dir, "64k")?);
        Ok(())
    }

    /// A guard that is a service of its own for its run directory; waits until it listens.
    pub fn guard_service(&self, world: &mut World) -> anyhow::Result<usize> {
        fs::create_dir_all(&self.run_dir)?;
        let mut command = headroom("guard --serve --run-dir");
        command.arg(&self.run_dir);
        world.with_trees(&mut command);
        let index = world.start(command, "guard-service");
        let pid = world.program(index).pid();
        world.services.push(pid);
        let socket = self.run_dir.join("guard.sock");
        within(crate::world::MAX_WAIT, || {
            (socket.exists() || world.program(index).ended().is_some()).then_some(())
        });
        anyhow::ensure!(
            world.program(index).ended().is_none(),
            "the guard's service ended: {}",
            world.program(index).last_words()
        );
        Ok(index)
    }
}

/// The same program and arguments.
fn copy(command: &Command) -> Command {
    let mut copy = Command::new(command.get_program());
    copy.args(command.get_args());
    copy
}

/// The same command as, or under, process 1 of a PID namespace with a /proc of its own.
pub fn in_namespace(inner: &Command, under_shell: bool) -> Command {
    let mut outer = command("unshare --pid --fork --kill-child --mount-proc");
    if under_shell {
        outer.args(["sh", "-c", "\"$@\" & wait", "sh"]);
    }
    outer.arg(inner.get_program()).args(inner.get_args());
    outer
}

/// Whether PID namespaces can be made here.
pub fn has_namespaces() -> bool {
    let mut command = in_namespace(&Command::new("true"), false);
    command.output().is_ok_and(|output| output.status.success())
}
