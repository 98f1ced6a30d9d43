//! One run's world: its folder, what can be limited in it, the programs that it started, and what was found wrong.

use crate::common::place::{Disk, KillGroup};
use crate::common::process::{self, Process};
use crate::common::{Group, Program, headroom, kill, signal, within};
use crate::draw::Draw;
use crate::lever::{Lever, Watched, levers};
use anyhow::{Context, bail};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The variable that marks what belongs to a run, and all that it starts.
const MARK: &str = "HEADROOM_FAULT_RUN";

/// Long enough for anything that happens at all on a busy machine.
pub const MAX_WAIT: Duration = Duration::from_secs(40);

/// What was found in one run.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Limits that stood longer than they may, or at the end.
    pub left: Vec<String>,
    /// Processes, mounts, files and control groups that stayed.
    pub leftovers: Vec<String>,
    /// Other things that must not be.
    pub wrong: Vec<String>,
    /// From the fault until no limit was in force, or every server that a controller switched was given requests.
    pub safe: Option<Duration>,
}

/// How a wait for limits in force ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Low {
    /// They are in force.
    Yes,
    /// The program that was to set them has ended.
    Ended,
    /// Neither.
    No,
}

/// The world of one run. Dropped, everything of it is killed, unmounted and removed, in the order of these fields.
pub struct World {
    /// What was found.
    pub found: Findings,
    /// Where choices come from.
    pub draw: Draw,
    /// The mark of its processes, and the beginning of its control groups' names.
    pub mark: String,
    /// How long a limit may stand after the fault.
    pub most: Duration,
    programs: Vec<Program>,
    emulator: Option<Program>,
    /// A file system of its own for a run directory.
    pub disk: Option<Disk>,
    /// A control group that can be killed.
    pub kill_group: Option<KillGroup>,
    /// The service's control group on the real machine.
    pub group: Option<Group>,
    /// What may be limited.
    pub watched: Vec<Watched>,
    /// The run directories.
    pub run_dirs: Vec<PathBuf>,
    /// Programs that stand for services of the machine: they do not end on their own.
    pub services: Vec<u32>,
    dir: TempDir,
}

impl World {
    /// An empty one.
    pub fn new(mark: String, seed: u64, most: Duration) -> anyhow::Result<Self> {
        // A gateway that is not root reaches what is its own below it, as below /run.
        let dir = tempfile::Builder::new()
            .prefix("hf-")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()?;
        Ok(Self {
            found: Findings::default(),
            draw: Draw::new(seed),
            mark,
            most,
            programs: Vec::new(),
            emulator: None,
            disk: None,
            kill_group: None,
            group: None,
            watched: Vec::new(),
            run_dirs: Vec::new(),
            services: Vec::new(),
            dir,
        })
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The emulated server's tree, where there is one.
    pub fn sys(&self) -> Option<PathBuf> {
        self.emulator.as_ref().map(|_| self.dir().join("sys"))
    }

    /// Starts a program; its name is that of its output files, and an index of it comes back.
    pub fn start(&mut self, command: Command, name: &str) -> usize {
        let program = self.started(command, name);
        self.programs.push(program);
        self.programs.len() - 1
    }

    fn started(&self, mut command: Command, name: &str) -> Program {
        let command = command.env_remove("RUST_LOG").env_remove("RUST_BACKTRACE");
        Program::start_named(command.env(MARK, &self.mark), self.dir.path(), name)
    }

    /// A program by its index.
    pub fn program(&mut self, index: usize) -> &mut Program {
        &mut self.programs[index]
    }

    /// Makes the service's control group, with what an administrator might have set.
    pub fn make_group(&mut self) -> anyhow::Result<()> {
        let group = Group::named(&self.mark)?;
        match self.draw.one(
            "found",
            &["no quota", "0.9 cores", "1.5 cores", "1 core of 50 ms"],
        ) {
            "0.9 cores" => group.limit(90_000, 100_000),
            "1.5 cores" => group.limit(150_000, 100_000),
            "1 core of 50 ms" => group.limit(50_000, 50_000),
            _ => {}
        }
        self.watched.extend(levers(&group).into_iter().map(Watched::now));
        self.group = Some(group);
        Ok(())
    }

    /// Starts an emulated server with two groups, and watches all that can be limited on it.
    pub fn emulate(&mut self) -> anyhow::Result<()> {
        let sys = self.dir().join("sys");
        let words = format!(
            "emulate --figures-only --group web --group db --name {}-emulated --at",
            self.mark
        );
        let mut command = headroom(words);
        command.arg(&sys);
        let mut emulator = self.started(command, "emulate");
        let ready = within(MAX_WAIT, || {
            let ended = emulator.ended().is_some();
            (ended || emulator.all().contains("an emulated server of ")).then_some(!ended)
        });
        if ready != Some(true) {
            bail!("no emulated server: {}", emulator.last_words());
        }
        self.emulator = Some(emulator);
        let mut levers: Vec<Lever> = ["web", "db"]
            .map(|group| Lever::QuotaV2(sys.join("fs/cgroup").join(group), 16.0))
            .into();
        let number = |path: String| Lever::Number(sys.join(path));
        for package in 0..2 {
            for limit in 0..2 {
                levers.push(number(format!(
                    "class/powercap/intel-rapl:{package}/constraint_{limit}_power_limit_uw"
                )));
            }
        }
        let policies = (0..16).map(|cpu| format!("devices/system/cpu/cpufreq/policy{cpu}/scaling_max_freq"));
        levers.extend(policies.map(number));
        let watched: Vec<Watched> = levers.into_iter().map(Watched::now).collect();
        if let Some(unread) = watched.iter().find(|watched| watched.expected.is_none()) {
            bail!("{} cannot be read on the emulated server", unread.lever.name());
        }
        self.watched.extend(watched);
        Ok(())
    }

    /// Whether a limit of ours is in force.
    pub fn is_limited(&self) -> bool {
        self.watched.iter().any(Watched::is_tighter)
    }

    /// Waits until a program has limits in force.
    pub fn until_low(&mut self, index: usize, most: Duration) -> Low {
        let low = within(most, || {
            if self.watched.iter().any(Watched::is_low) {
                return Some(Low::Yes);
            }
            self.programs[index].ended().map(|_| Low::Ended)
        });
        low.unwrap_or(Low::No)
    }

    /// The same where nothing else will do.
    pub fn must_be_low(&mut self, index: usize) -> anyhow::Result<()> {
        match self.until_low(index, MAX_WAIT) {
            Low::Yes => Ok(()),
            Low::Ended => bail!(
                "{} ended before it limited anything: {}",
                self.programs[index].what(),
                self.programs[index].last_words()
            ),
            Low::No => bail!(
                "{} limited nothing within {} s: {}",
                self.programs[index].what(),
                MAX_WAIT.as_secs(),
                self.programs[index].last_words()
            ),
        }
    }

    /// Measures how long limits stay in force from now on, or from `since`.
    pub fn until_safe(&mut self, since: Instant, what: &str) {
        let left = self.most.saturating_sub(since.elapsed());
        let safe = within(left, || (!self.is_limited()).then(|| since.elapsed()));
        match safe {
            Some(took) => {
                let worst = self.found.safe.map_or(took, |before| before.max(took));
                self.found.safe = Some(worst);
            }
            None => {
                let tight: Vec<String> = self
                    .watched
                    .iter()
                    .filter(|watched| watched.is_tighter())
                    .map(|watched| {
                        format!(
                            "{} {}",
                            watched.lever.name(),
                            watched.lever.text().unwrap_or_default()
                        )
                    })
                    .take(3)
                    .collect();
                self.found.left.push(format!(
                    "{:.0} s after {what} limits stand: {}",
                    since.elapsed().as_secs_f64(),
                    tight.join(", ")
                ));
            }
        }
    }

    /// The processes that carry its mark, or that name its folder on their command line. Zombies carry nothing any more.
    fn marked(&self) -> Vec<Process> {
        let wanted = format!("{MARK}={}", self.mark);
        let dir = self.dir().display().to_string();
        let belongs = |process: &Process| {
            let environment = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
            let mut variables = environment.split(|byte| *byte == 0);
            variables.any(|variable| variable == wanted.as_bytes())
                || process.args.iter().any(|arg| arg.contains(&dir))
        };
        process::all().into_iter().filter(belongs).collect()
    }

    /// What runs of this world beside the emulated server.
    pub fn processes(&self) -> Vec<Process> {
        let emulator = self.emulator.as_ref().map(Program::pid);
        let mut found = self.marked();
        found.retain(|process| {
            !process.is_zombie && !process.is_command("emulate") && Some(process.pid) != emulator
        });
        found
    }

    /// The guards that run, but those that are services.
    pub fn guards(&self) -> Vec<u32> {
        let processes = self.processes().into_iter();
        let guards = processes.filter(|process| process.is_guard() && !self.services.contains(&process.pid));
        guards.map(|process| process.pid).collect()
    }

    /// `headroom release` for a run directory.
    pub fn release_command(&self, run_dir: &Path) -> Command {
        let mut command = headroom("release --run-dir");
        command.arg(run_dir);
        self.with_trees(&mut command);
        command
    }

    /// Says where the kernel's files are.
    pub fn with_trees(&self, command: &mut Command) {
        if let Some(sys) = self.sys() {
            command.arg("--proc").arg(sys.join("headroom-testbed/proc"));
            command.arg("--sys").arg(sys);
        }
    }

    /// Waits until nothing but services runs of this world; what still does.
    pub fn until_ended(&self, most: Duration) -> Vec<Process> {
        let others = || -> Vec<Process> {
            let mut processes = self.processes();
            processes.retain(|process| !self.services.contains(&process.pid));
            processes
        };
        within(most, || others().is_empty().then(Vec::new)).unwrap_or_else(others)
    }

    /// Ends everything in an orderly way but the emulated server.
    pub fn end_programs(&mut self) {
        for program in &mut self.programs {
            if program.ended().is_none() && !self.services.contains(&program.pid()) {
                program.signal(Signal::CONT);
                program.signal(Signal::TERM);
            }
        }
        let deadline = Instant::now() + MAX_WAIT;
        for program in &mut self.programs {
            if self.services.contains(&program.pid()) {
                continue;
            }
            if program
                .wait_for(deadline.saturating_duration_since(Instant::now()))
                .is_none()
            {
                self.found.wrong.push(format!(
                    "{} does not end at SIGTERM: {}",
                    program.what(),
                    program.last_words()
                ));
                program.signal(Signal::KILL);
                program.wait_for(MAX_WAIT);
            }
        }
        // A gateway outlives a controlling side that was killed, so that requests go on being served: it is stopped like
        // any service.
        for process in self.processes() {
            if process.is_command("gateway") {
                signal(process.pid, Signal::TERM);
            }
        }
    }

    /// Ends the programs that stand for services.
    pub fn end_services(&mut self) {
        let services = std::mem::take(&mut self.services);
        for program in &mut self.programs {
            if services.contains(&program.pid()) && program.ended().is_none() {
                program.signal(Signal::TERM);
                if program.wait_for(Duration::from_secs(5)).is_none() {
                    // What a service manager does to what ignores it.
                    program.signal(Signal::KILL);
                    program.wait_for(MAX_WAIT);
                }
            }
        }
    }

    /// Ends the emulated server.
    pub fn end_emulator(&mut self) -> anyhow::Result<()> {
        if let Some(mut emulator) = self.emulator.take() {
            emulator.signal(Signal::TERM);
            emulator
                .wait_for(MAX_WAIT)
                .with_context(|| format!("the emulated server does not end: {}", emulator.last_words()))?;
        }
        Ok(())
    }

    /// What the programs said last, for a run that failed.
    pub fn last_words(&self) -> String {
        let mut text = String::new();
        for program in &self.programs {
            text.push_str(&format!("\n    {}: {}", program.what(), program.last_words()));
        }
        text
    }

    /// Keeps the output of the programs of a run that failed, where `FAULTS_KEEP` names a folder.
    pub fn keep_output(&self) {
        let Some(to) = std::env::var_os("FAULTS_KEEP") else {
            return;
        };
        let to = Path::new(&to).join(&self.mark);
        let kept = fs::create_dir_all(&to).and_then(|()| {
            for entry in fs::read_dir(self.dir())? {
                let entry = entry?;
                if entry.file_type()?.is_file() {
                    fs::copy(entry.path(), to.join(entry.file_name()))?;
                }
            }
            Ok(())
        });
        if let Err(error) = kept {
            println!("the output is not kept in {}: {error}", to.display());
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Whatever is left carries the mark of this run alone. It is reported already.
        for process in self.processes() {
            kill(process.pid);
        }
    }
}
