//! The processor time of a control group beside a queue: which groups may be asked for, and what reads one.

use crate::Roots;
use crate::cgroup::{Target, TargetSpec, cpu_dir_of};
use crate::cpu::GroupMeter;
use headroom_wire::Refusal;
use headroom_wire::message::{CpuGroup, GroupCpu};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// One that was not there is looked for again after this time.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The longest that is shown of a value that was refused, in characters.
const SHOWN: usize = 80;

/// The groups that may be asked for, with all that are below them.
#[derive(Debug)]
pub(super) struct Groups {
    roots: Roots,
    /// With the group of a process, as it was at the start: its number may be another's later.
    allowed: Vec<(TargetSpec, Option<PathBuf>)>,
}

impl Groups {
    /// Finds the groups of processes; one that is not there allows nothing, which is logged.
    pub(super) fn new(roots: Roots, allowed: Vec<TargetSpec>) -> Self {
        let found = |spec: &TargetSpec| match spec {
            TargetSpec::Pid(_) => Target::resolve(&roots, spec)
                .inspect_err(|error| {
                    tracing::warn!("nobody may ask for the processor time of {spec}'s group: {error}");
                })
                .ok()
                .map(|target| target.cpu_dir),
            TargetSpec::Path(_) | TargetSpec::Unit(_) | TargetSpec::Container(_) => None,
        };
        let with_group = |spec: TargetSpec| {
            let group = found(&spec);
            (spec, group)
        };
        Self {
            allowed: allowed.into_iter().map(with_group).collect(),
            roots,
        }
    }

    /// Whether a group may be asked for. Only names are compared: whether there is such a group is not said of one that
    /// may not. It reads files, and walks through all groups where a unit or a container is allowed.
    pub(super) fn admit(&self, asked: &CpuGroup) -> Result<(), Refusal> {
        let dir = cpu_dir_of(&self.roots, asked.as_str()).map_err(|error| no(asked, error.to_string()))?;
        let allows = |(spec, process): &(TargetSpec, Option<PathBuf>)| {
            self.directory(spec, process.as_deref())
                .is_some_and(|allowed| dir.starts_with(allowed))
        };
        if self.allowed.iter().any(allows) {
            return Ok(());
        }
        let names: Vec<String> = self.allowed.iter().map(|(spec, _)| spec.to_string()).collect();
        let allowed = match names.is_empty() {
            true => "this agent tells the processor time of no control group".to_owned(),
            false => format!(
                "this agent tells the processor time of {} and of what is below alone; more are named by agent.cpu_groups \
                 in its configuration",
                names.join(", ")
            ),
        };
        Err(no(asked, allowed))
    }

    /// Where an allowed group is now, and a process's was; nothing where it is not.
    fn directory(&self, spec: &TargetSpec, process: Option<&Path>) -> Option<PathBuf> {
        match spec {
            TargetSpec::Path(path) => cpu_dir_of(&self.roots, path).ok(),
            TargetSpec::Pid(_) => process.map(Path::to_owned),
            TargetSpec::Unit(_) | TargetSpec::Container(_) => Target::resolve(&self.roots, spec)
                .ok()
                .map(|target| target.cpu_dir),
        }
    }
}

fn no(asked: &CpuGroup, allowed: String) -> Refusal {
    Refusal::NotAllowed {
        field: "cpu_group".into(),
        value: asked.as_str().chars().take(SHOWN).collect(),
        allowed,
    }
}

/// Reads a group that may be asked for, from when it is there.
#[derive(Debug)]
pub(super) struct GroupEye {
    roots: Roots,
    group: CpuGroup,
    meter: Option<GroupMeter>,
    /// When it is looked for again, and why it was not there.
    failed: Option<(Instant, String)>,
    /// What the log has of it: what is the same is not written again.
    said: Option<String>,
}

impl GroupEye {
    pub(super) const fn new(roots: Roots, group: CpuGroup) -> Self {
        Self {
            roots,
            group,
            meter: None,
            failed: None,
            said: None,
        }
    }

    pub(super) fn read(&mut self) -> GroupCpu {
        let read = self.sample();
        let why = read.as_ref().err();
        if why != self.said.as_ref() {
            match why {
                Some(why) => tracing::warn!(group = %self.group, "{why}"),
                None => tracing::info!(group = %self.group, "its processor time can be read again"),
            }
            self.said = why.cloned();
        }
        read
    }

    fn sample(&mut self) -> GroupCpu {
        if let Some((again, why)) = &self.failed
            && Instant::now() < *again
        {
            return Err(why.clone());
        }
        let meter = match self.meter.take() {
            Some(meter) => meter,
            None => self.open().inspect_err(|why| {
                self.failed = Some((Instant::now() + LOOK_AGAIN, why.clone()));
            })?,
        };
        self.failed = None;
        self.meter.insert(meter).sample()
    }

    fn open(&self) -> Result<GroupMeter, String> {
        let spec = TargetSpec::Path(self.group.as_str().to_owned());
        let target = Target::resolve(&self.roots, &spec).map_err(|error| error.to_string())?;
        GroupMeter::open(&self.roots, &target).map_err(|error| error.to_string())
    }
}
