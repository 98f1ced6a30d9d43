//! The faults, and which subjects each of them is done to.

mod disk;
mod end;
mod other;
mod servers;
mod stop;

use crate::common::place::KillGroup;
use crate::subject::{Kind, has_guard_service, has_namespaces};
use crate::world::World;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Kill -9 of the program.
    KillRun,
    /// Kill -9 of its guard, and a while later, when another should stand, of itself.
    KillGuard,
    /// Kill -9 of the guard and at once of the program.
    KillGuardThenRun,
    /// Kill -9 of the program and at once of the guard.
    KillRunThenGuard,
    /// Kill -9 of the program and of all that it started, at once.
    KillAll,
    /// The same with the guard's service; a service manager's `headroom release` follows.
    KillAllAndRelease,
    /// `cgroup.kill` of the group that they are in.
    CgroupKill,
    /// The end of the PID namespace that they are in.
    Namespace,
    /// The same with a guard outside.
    NamespaceGuarded,
    /// SIGSTOP of the program.
    Stop,
    /// One stopped thread: the one that controls.
    StopThread,
    /// A run directory on a disk that fills up; then kill -9.
    FullDisk,
    /// A run directory that becomes read-only; then kill -9.
    ReadOnly,
    /// SIGTERM during the start.
    TermAtStart,
    /// Kill -9 during the start.
    KillAtStart,
    /// A start while the one before still stops.
    Restart,
    /// The control group is removed.
    GroupDeleted,
    /// The control group is removed and made again.
    GroupRecreated,
    /// Somebody else writes a limit.
    Foreign,
    /// Two programs on one machine.
    Two,
    /// Kill -9 of the controller.
    KillController,
    /// SIGSTOP of the controller.
    StopController,
    /// Kill -9 of a controller that switches servers and of its guard.
    KillServersBoth,
    /// SIGSTOP of the guard of a controller that switches servers, and kill -9 of that.
    StopServersGuard,
    /// Kill -9 of both, and a server hangs that was off: its power is on, and it is silent.
    HangServer,
}

use Fault::{
    CgroupKill, Foreign, FullDisk, GroupDeleted, GroupRecreated, HangServer, KillAll, KillAllAndRelease,
    KillAtStart, KillController, KillGuard, KillGuardThenRun, KillRun, KillRunThenGuard, KillServersBoth,
    Namespace, NamespaceGuarded, ReadOnly, Restart, Stop, StopController, StopServersGuard, StopThread,
    TermAtStart, Two,
};

/// All of them, with their names and subjects.
const FAULTS: [(Fault, &str, &[Kind]); 25] = {
    const ALL: &[Kind] = &[Kind::Up, Kind::UpEmulated, Kind::Agent];
    [
        (KillRun, "kill-run", ALL),
        (KillGuard, "kill-guard", ALL),
        (KillGuardThenRun, "kill-guard-then-run", ALL),
        (KillRunThenGuard, "kill-run-then-guard", ALL),
        (KillAll, "kill-all", ALL),
        (KillAllAndRelease, "kill-all-and-release", ALL),
        (CgroupKill, "cgroup-kill", ALL),
        (Namespace, "pid-namespace", ALL),
        (NamespaceGuarded, "pid-namespace-guarded", ALL),
        (Stop, "stop", ALL),
        (StopThread, "stop-thread", ALL),
        (FullDisk, "full-disk", ALL),
        (ReadOnly, "read-only", ALL),
        (TermAtStart, "term-at-start", ALL),
        (KillAtStart, "kill-at-start", ALL),
        (Restart, "restart", ALL),
        (GroupDeleted, "group-deleted", &[Kind::Up, Kind::Agent]),
        (GroupRecreated, "group-recreated", &[Kind::Up, Kind::Agent]),
        (Foreign, "foreign-write", ALL),
        (Two, "two", ALL),
        (KillController, "kill-controller", &[Kind::Agent]),
        (StopController, "stop-controller", &[Kind::Agent]),
        (KillServersBoth, "kill-both", &[Kind::Resize]),
        (StopServersGuard, "stop-guard-kill", &[Kind::Resize]),
        (HangServer, "kill-both-hang", &[Kind::Resize]),
    ]
};

/// A fault done to a subject.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The fault.
    pub fault: Fault,
    /// The subject.
    pub kind: Kind,
    name: &'static str,
}

impl Scenario {
    /// Its name: the subject's and the fault's.
    pub fn name(&self) -> String {
        format!("{}/{}", self.kind.name(), self.name)
    }

    /// Why it cannot be run with this binary on this machine.
    pub fn missing(&self) -> Option<&'static str> {
        match self.fault {
            NamespaceGuarded if !has_guard_service() => Some("this binary has no `headroom guard --serve`"),
            Namespace | NamespaceGuarded if !has_namespaces() => {
                Some("PID namespaces need unshare of util-linux and the right to make them")
            }
            CgroupKill if !KillGroup::is_possible() => {
                Some("no control group of version 2 with cgroup.kill can be made")
            }
            _ => None,
        }
    }

    /// Does it in a world: what is found wrong is kept there.
    pub fn run(&self, world: &mut World) -> anyhow::Result<()> {
        match self.fault {
            KillRun | KillGuard | KillGuardThenRun | KillRunThenGuard | KillAll | KillAllAndRelease => {
                end::kill(world, self.kind, self.fault)
            }
            CgroupKill => end::cgroup_kill(world, self.kind),
            Namespace | NamespaceGuarded => end::namespace(world, self.kind, self.fault == NamespaceGuarded),
            Stop => stop::run(world, self.kind),
            StopThread => stop::thread(world, self.kind),
            FullDisk => disk::full(world, self.kind),
            ReadOnly => disk::read_only(world, self.kind),
            TermAtStart | KillAtStart => other::at_start(world, self.kind, self.fault == KillAtStart),
            Restart => other::restart(world, self.kind),
            GroupDeleted | GroupRecreated => other::group(world, self.kind, self.fault == GroupRecreated),
            Foreign => other::foreign(world, self.kind),
            Two => other::two(world, self.kind),
            KillServersBoth | StopServersGuard | HangServer => servers::left_off(world, self.fault),
            KillController | StopController => stop::controller(world, self.fault == KillController),
        }
    }
}

/// All scenarios; with `only`, those whose names contain it.
pub fn all(only: Option<&str>) -> Vec<Scenario> {
    let of = |(fault, name, kinds): &(Fault, &'static str, &'static [Kind])| {
        let (fault, name) = (*fault, *name);
        kinds
            .iter()
            .map(move |kind| Scenario {
                fault,
                kind: *kind,
                name,
            })
            .collect::<Vec<_>>()
    };
    let mut all: Vec<Scenario> = FAULTS.iter().flat_map(of).collect();
    if let Some(only) = only {
        all.retain(|scenario| scenario.name().contains(only));
    }
    all
}

/// One scenario of each fault, the subjects in turn.
pub fn one_of_each() -> Vec<Scenario> {
    let choose = |(index, (fault, name, kinds)): (usize, &(Fault, &'static str, &'static [Kind]))| Scenario {
        fault: *fault,
        kind: kinds[index % kinds.len()],
        name,
    };
    FAULTS.iter().enumerate().map(choose).collect()
}
