//! `[oncall]` of a run or an agent: the service's server, which another program started and this one puts on call.

use crate::check::Report;
use headroom_console::{ConfigError, Document, Failure};
use headroom_node::Roots;
use headroom_node::cgroup::{Target, TargetSpec};
use headroom_node::cpu::{CpuList, effective};
use headroom_node::idle::break_even;
use headroom_oncall::{AttachError, Steering};
use headroom_physics::MachineFigures;
use headroom_runtime::oncall::AttachFailure;
use headroom_runtime::oncall::wrapped::{Wrapped, WrappedAt};
use headroom_units::{Seconds, Source};
use serde_json::json;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// A server on call that another program starts: where it is found, and what the machine says to it.
pub struct OnCall {
    at: WrappedAt,
    roots: Roots,
    /// The CPUs of its control group.
    cpus: CpuList,
    /// From so long on an idle period of theirs pays.
    pays: Seconds,
    /// The control group whose limits are moved.
    group: PathBuf,
}

impl OnCall {
    /// The server of this name, or in this file, of a service; and from when on an idle period of its processors pays, in words.
    ///
    /// # Errors
    /// A name that is none, a control group whose processors cannot be read.
    pub fn new(
        (run_dir, server, document): (&Path, &str, &Document),
        (roots, target, figures): (&Roots, &Target, &MachineFigures),
    ) -> Result<(Self, String), Failure> {
        let at = WrappedAt::new(run_dir, server).map_err(|error| document.error("oncall.server", error))?;
        let cpus = effective(roots, target)?;
        let pays = break_even(roots, Some(&cpus), figures);
        let note = format!("an idle period pays from {pays} on");
        let on_call = Self {
            at,
            roots: roots.clone(),
            cpus,
            pays: pays.length,
            group: target.cpu_dir.clone(),
        };
        Ok((on_call, note))
    }

    /// Where it is found.
    pub const fn at(&self) -> &WrappedAt {
        &self.at
    }

    /// The CPUs of its control group, and from so long on an idle period of theirs pays.
    pub fn machine(&self) -> (CpuList, Seconds) {
        (self.cpus.clone(), self.pays)
    }

    /// Says of the server that is there now that it is not of the service whose limits are moved.
    pub fn note_of_group(&self) -> Option<String> {
        let server = self.at.find().ok();
        server.and_then(|server| self.elsewhere(&server))
    }

    /// Says of a server that it is not of the service whose limits are moved, where that is known.
    fn elsewhere(&self, server: &Wrapped) -> Option<String> {
        // An emulated tree knows no process.
        if self.roots.source() == Source::Emulated {
            return None;
        }
        let ours = &self.group;
        let where_it_runs = match Target::resolve(&self.roots, &TargetSpec::Pid(server.server)) {
            Ok(group) if group.cpu_dir.starts_with(ours) => return None,
            Ok(group) => format!("runs in {}", group.cpu_dir.display()),
            // One of the root's group, which has no limits, above all.
            Err(error) => format!("is in no control group of a service ({error})"),
        };
        Some(format!(
            "warning: the server on call {} (pid {}) {where_it_runs}, and cores and caps are set of {}: start `headroom wrap` in the service's \
             control group, or name the server's in [service]",
            server.name,
            server.server,
            ours.display()
        ))
    }

    /// What a start would find, without attaching to it; `running` is who has this run folder now.
    ///
    /// # Errors
    /// What the start would refuse: a file that is none of ours, another user's, another commander.
    pub fn check(
        &self,
        (document, running): (&Document, Option<u32>),
        report: &mut Report,
    ) -> Result<(), ConfigError> {
        let refused = |error: &dyn Display| document.error("oncall.server", error);
        let server = match self.at.find().map_err(AttachFailure::from) {
            Ok(server) => server,
            Err(error) if error.is_absence() => {
                report.note(format_args!(
                    "no server on call yet, and nothing is saved without: {error}"
                ));
                return Ok(());
            }
            Err(error) => return Err(refused(&error)),
        };
        let commander = Steering::commander_of(&server.region).map_err(|error| refused(&error))?;
        if commander.is_some() && commander != running {
            let (path, pid) = (server.region, commander);
            return Err(refused(&AttachError::Commanded { path, pid }));
        }
        let (pid, program) = (server.server, server.program.display());
        report.fact(
            "on call",
            "on_call",
            format_args!("{} (pid {pid}, {program})", server.name),
            json!({ "name": server.name, "pid": pid, "commanded_by": commander }),
        );
        if let Some(note) = self.elsewhere(&server) {
            report.note(note);
        }
        Ok(())
    }
}
