//! A fresh control group for a service that has none of its own, removed again in the end.

use super::mounts::{Hierarchies, Mount, Version};
use super::{CgroupError, Target};
use crate::Roots;
use crate::file::{self, Action, FileError};
use crate::restore::{FileValue, Handle, Registry, Undo};
use std::fs;
use std::path::{Path, PathBuf};

/// Controllers that a group of ours is made under.
const CONTROLLERS: [&str; 3] = ["cpu", "cpuacct", "cpuset"];

/// Where a group is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeOptions {
    /// Its name: 1 to 64 letters, digits, '-' and '_'.
    pub name: String,
    /// The group it is made in, relative to the hierarchies. The default is their root.
    pub parent: String,
}

impl ScopeOptions {
    /// A group below the root of the hierarchies.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            parent: "/".into(),
        }
    }
}

/// A control group that was made, with what it is removed by: on drop its processes go to the group above and it is
/// removed, as [`crate::restore`] does for everything else that was changed.
#[derive(Debug)]
pub struct CgroupScope {
    target: Target,
    dirs: Vec<PathBuf>,
    handle: Handle,
}

impl CgroupScope {
    /// Makes the group: on version 1 under cpu, cpuacct and cpuset (with the CPUs and memory nodes of the group above),
    /// on version 2 with the controllers enabled in the group above where they are not yet.
    ///
    /// # Errors
    /// [`CgroupError`]: the name is none, the group exists already, or may not be made. Nothing is left behind then.
    pub fn create(roots: &Roots, options: &ScopeOptions, registry: &Registry) -> Result<Self, CgroupError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if options.name.is_empty() || options.name.len() > 64 || !options.name.bytes().all(fits) {
            return Err(CgroupError::BadName {
                given: file::shorten(&options.name),
            });
        }
        let hierarchies = Hierarchies::read(roots)?;
        if hierarchies.version_of("cpu").is_none() {
            return Err(CgroupError::NoController {
                controller: "cpu",
                mounted: hierarchies.describe(),
            });
        }
        let parent = options.parent.trim_matches('/');
        let dir_in = |mount: &Mount| mount.point.join(parent).join(&options.name);
        let mut dirs: Vec<PathBuf> = Vec::new();
        for mount in CONTROLLERS
            .iter()
            .filter_map(|controller| hierarchies.v1(controller))
        {
            if !dirs.contains(&dir_in(mount)) {
                dirs.push(dir_in(mount));
            }
        }
        let mut enable = Vec::new();
        if hierarchies.version_of("cpu") == Some(Version::V2)
            && let Some(mount) = &hierarchies.v2
        {
            dirs.push(dir_in(mount));
            enable = to_enable(&mount.point.join(parent))?;
        }
        for dir in &dirs {
            check(dir)?;
        }
        for write in &enable {
            file::check_writable(&write.path)?;
        }
        let undo = Undo::Groups {
            what: format!("the cgroup /{}", Path::new(parent).join(&options.name).display()),
            dirs: dirs.clone(),
            disable: enable
                .iter()
                .map(|write| FileValue {
                    path: write.path.clone(),
                    value: write.value.replace('+', "-"),
                })
                .collect(),
        };
        let handle = registry.register(undo)?;
        // On failure the handle is dropped, which removes what was made until then.
        handle.write(|_| Ok::<(), CgroupError>(()), || make(&dirs, &enable))?;
        let group = format!("/{}", Path::new(parent).join(&options.name).display());
        let target = Target::at(&hierarchies, format!("cgroup {group}"), &group)?;
        Ok(Self { target, dirs, handle })
    }

    /// The group, as a target for meters and actuators.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Moves a process with all its threads into the group; its later children start there.
    ///
    /// # Errors
    /// [`CgroupError::File`]: there is no such process, or it may not be moved.
    pub fn add(&self, pid: u32) -> Result<(), CgroupError> {
        for file in self.procs_files() {
            file::write(&file, &pid.to_string())?;
        }
        Ok(())
    }

    /// The files a process is entered in, one a hierarchy. Writing 0 moves the writer.
    pub fn procs_files(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.dirs.iter().map(|dir| dir.join("cgroup.procs"))
    }

    /// Removes the group now; its processes go to the group above.
    pub fn remove(&mut self) -> Option<crate::restore::Outcome> {
        self.handle.restore()
    }
}

/// That a group can be made there, without making it.
fn check(dir: &Path) -> Result<(), CgroupError> {
    let fail =
        |cause: rustix::io::Errno| CgroupError::File(FileError::new(Action::Create, dir, cause.into()));
    if dir.exists() {
        return Err(fail(rustix::io::Errno::EXIST));
    }
    let parent = dir.parent().unwrap_or(dir);
    rustix::fs::access(parent, rustix::fs::Access::WRITE_OK).map_err(fail)
}

/// The controllers that the group above does not give to its children yet.
fn to_enable(parent: &Path) -> Result<Vec<FileValue>, CgroupError> {
    let path = parent.join("cgroup.subtree_control");
    let enabled = file::read(&path)?;
    let available = file::read(&parent.join("cgroup.controllers"))?;
    let has = |list: &str, name: &str| list.split_whitespace().any(|word| word == name);
    Ok(["cpu", "cpuset"]
        .into_iter()
        .filter(|name| has(&available, name) && !has(&enabled, name))
        .map(|name| FileValue {
            path: path.clone(),
            value: format!("+{name}"),
        })
        .collect())
}

fn make(dirs: &[PathBuf], enable: &[FileValue]) -> Result<(), CgroupError> {
    for write in enable {
        file::write(&write.path, &write.value)?;
    }
    for dir in dirs {
        fs::create_dir(dir).map_err(|cause| FileError::new(Action::Create, dir, cause))?;
        // Version 1: a new cpuset is empty, and no process can enter it (ENOSPC) before both are set.
        let above = dir.parent().unwrap_or(dir);
        for name in ["cpuset.cpus", "cpuset.mems"] {
            let is_v1_cpuset = above.join("cpuset.sched_load_balance").exists();
            if is_v1_cpuset {
                file::write(&dir.join(name), &file::read(&above.join(name))?)?;
            }
        }
    }
    Ok(())
}
