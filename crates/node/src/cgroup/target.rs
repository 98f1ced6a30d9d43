//! The control group of a service, however the user names it.

use super::find;
use super::mounts::{Hierarchies, Mount, Version};
use super::{CgroupError, List};
use crate::{Roots, file};
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// How a user names a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetSpec {
    /// A cgroup: absolute (`/sys/fs/cgroup/cpu/web`) or relative to the hierarchy (`/web`).
    Path(String),
    /// A systemd unit (`nginx.service`; a name without a suffix is a service).
    Unit(String),
    /// A container's id, or an unambiguous beginning of it: Docker, containerd, CRI-O, Podman.
    Container(String),
    /// Any process of it. The whole group of the process is the target, with every other process in it.
    Pid(u32),
}

impl FromStr for TargetSpec {
    type Err = CgroupError;

    /// `cgroup:/PATH` or a bare absolute path, `unit:NAME`, `container:ID`, `pid:NUMBER`.
    fn from_str(given: &str) -> Result<Self, CgroupError> {
        let bad = |why| CgroupError::BadSpec {
            given: file::shorten(given),
            why,
        };
        if given.starts_with('/') {
            return Ok(Self::Path(given.into()));
        }
        let (kind, rest) = given
            .split_once(':')
            .ok_or(bad("it has no kind before a colon"))?;
        if rest.is_empty() {
            return Err(bad("nothing follows the colon"));
        }
        match kind {
            "cgroup" => Ok(Self::Path(rest.into())),
            "unit" => Ok(Self::Unit(rest.into())),
            "container" => Ok(Self::Container(rest.into())),
            "pid" => rest
                .parse()
                .map(Self::Pid)
                .map_err(|_| bad("the pid is not a whole number")),
            _ => Err(bad("its kind is unknown")),
        }
    }
}

impl fmt::Display for TargetSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "cgroup {path}"),
            Self::Unit(unit) => write!(f, "unit {unit}"),
            Self::Container(id) => write!(f, "container {id}"),
            Self::Pid(pid) => write!(f, "process {pid}"),
        }
    }
}

/// The file that counts a group's CPU time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageFile {
    /// Version 1 `cpuacct.usage`, nanoseconds.
    V1(PathBuf),
    /// Version 2 `cpu.stat`, `usage_usec`: there in every group, with or without the controller.
    V2(PathBuf),
}

/// Where a group's CPUs are chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpusetDir {
    /// Which interface.
    pub version: Version,
    /// The group's directory.
    pub dir: PathBuf,
    /// The hierarchy's mount point.
    pub root: PathBuf,
}

/// A service's control group: where its quota, its usage and its CPUs are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What the user called it.
    pub name: String,
    /// Which interface the cpu controller has.
    pub version: Version,
    /// Its directory in the hierarchy of the cpu controller.
    pub cpu_dir: PathBuf,
    /// That hierarchy's mount point: no ancestor above it is seen.
    pub cpu_root: PathBuf,
    /// Where its CPU time is counted; nothing where no mounted hierarchy counts it for this group alone.
    pub usage: Option<UsageFile>,
    /// Where its CPUs are chosen; nothing where it has no group of its own under cpuset.
    pub cpuset: Option<CpusetDir>,
}

/// Of a group `web` below the root of `cpu`, the one that counts its CPU time, where another hierarchy does (version 1).
fn counting_beside(hierarchies: &Hierarchies, version: Version, cpu: &Mount) -> Option<String> {
    let counting = match version {
        Version::V1 => hierarchies.v1("cpuacct")?,
        Version::V2 => return None,
    };
    (counting.point != cpu.point).then(|| counting.point.join("web").display().to_string())
}

impl Target {
    /// Finds the group. Reads only.
    ///
    /// # Errors
    /// [`CgroupError`]: it does not exist, is ambiguous, is the root, or the cpu controller is not there for it.
    pub fn resolve(roots: &Roots, spec: &TargetSpec) -> Result<Self, CgroupError> {
        let hierarchies = Hierarchies::read(roots)?;
        Self::resolve_in(roots, &hierarchies, spec)
    }

    fn resolve_in(roots: &Roots, hierarchies: &Hierarchies, spec: &TargetSpec) -> Result<Self, CgroupError> {
        match spec {
            TargetSpec::Path(path) => {
                let group = relative(roots, hierarchies, path)?;
                Self::at(hierarchies, spec.to_string(), &group)
            }
            TargetSpec::Unit(unit) => match find::unit(roots, hierarchies, unit)? {
                find::Found::Group(group) => Self::at(hierarchies, spec.to_string(), &group),
                find::Found::Process(pid) => Self::of_process(roots, hierarchies, pid, spec.to_string()),
            },
            TargetSpec::Container(id) => {
                let group = find::container(hierarchies, id)?;
                Self::at(hierarchies, spec.to_string(), &group)
            }
            TargetSpec::Pid(pid) => Self::of_process(roots, hierarchies, *pid, spec.to_string()),
        }
    }

    /// The group at one path, the same in every hierarchy.
    pub(crate) fn at(hierarchies: &Hierarchies, name: String, group: &str) -> Result<Self, CgroupError> {
        let below = group.trim_matches('/').to_string();
        Self::build(hierarchies, name, |mount, _| Ok(Some(mount.point.join(&below))))
    }

    /// The group of a process: version 1 may put it in a different group in every hierarchy.
    fn of_process(
        roots: &Roots,
        hierarchies: &Hierarchies,
        pid: u32,
        name: String,
    ) -> Result<Self, CgroupError> {
        let path = roots.proc_(format!("{pid}/cgroup"));
        let Some(text) = file::read_if_there(&path)? else {
            return Err(CgroupError::NotFound {
                what: name,
                looked_at: vec![path.display().to_string()],
                remedy:
                    "check that the process runs (ps -p), and that it is named by its number on this host"
                        .into(),
            });
        };
        let lines: Vec<(String, String)> = find::memberships(&text);
        let what = name.clone();
        Self::build(hierarchies, name, move |mount, controller| {
            let group = lines
                .iter()
                .find(|(controllers, _)| match controller {
                    Some(wanted) => controllers.split(',').any(|c| c == wanted),
                    None => controllers.is_empty(),
                })
                .map(|(_, group)| group.trim_end_matches(" (deleted)"));
            match group {
                None => Ok(None),
                Some(group) => match mount.directory_of(group) {
                    Some(dir) => Ok(Some(dir)),
                    None => Err(CgroupError::Outside {
                        what: what.clone(),
                        group: group.into(),
                        point: mount.point.clone(),
                    }),
                },
            }
        })
    }

    /// Puts a target together from its directory in each hierarchy. `directory` is asked with the controller's
    /// name for a version 1 mount and without for version 2.
    fn build(
        hierarchies: &Hierarchies,
        name: String,
        directory: impl Fn(&Mount, Option<&'static str>) -> Result<Option<PathBuf>, CgroupError>,
    ) -> Result<Self, CgroupError> {
        let no_controller = || CgroupError::NoController {
            controller: "cpu",
            mounted: hierarchies.describe(),
        };
        let version = hierarchies.version_of("cpu").ok_or_else(no_controller)?;
        let cpu_mount = mount_of(hierarchies, version, "cpu").ok_or_else(no_controller)?;
        let cpu_dir = directory(cpu_mount, key(version, "cpu"))?.ok_or_else(no_controller)?;
        if cpu_dir == cpu_mount.point {
            return Err(CgroupError::Root {
                what: name,
                controller: "cpu",
                group: cpu_dir.display().to_string(),
                example: cpu_dir.join("web").display().to_string(),
                counting: counting_beside(hierarchies, version, cpu_mount),
            });
        }
        if !cpu_dir.is_dir() {
            return Err(missing(hierarchies, name, &cpu_dir, cpu_mount));
        }
        let limit = cpu_dir.join(match version {
            Version::V1 => "cpu.cfs_quota_us",
            Version::V2 => "cpu.max",
        });
        if !limit.exists() {
            return Err(match version {
                Version::V2 => CgroupError::ControllerOff {
                    controller: "cpu",
                    subtree: cpu_dir
                        .parent()
                        .unwrap_or(&cpu_dir)
                        .join("cgroup.subtree_control"),
                    dir: cpu_dir,
                },
                Version::V1 => CgroupError::NotFound {
                    what: format!("the CPU quota of {name}"),
                    looked_at: vec![limit.display().to_string()],
                    remedy: "use a kernel with CONFIG_CFS_BANDWIDTH".into(),
                },
            });
        }
        let own = |version, controller: &'static str| -> Option<(PathBuf, PathBuf)> {
            let mount = mount_of(hierarchies, version, controller)?;
            let dir = directory(mount, key(version, controller)).ok().flatten()?;
            (dir != mount.point && dir.is_dir()).then(|| (dir, mount.point.clone()))
        };
        let v1_usage = own(Version::V1, "cpuacct").map(|(dir, _)| UsageFile::V1(dir.join("cpuacct.usage")));
        let v2_usage = own(Version::V2, "cpu").map(|(dir, _)| UsageFile::V2(dir.join("cpu.stat")));
        let usage = match version {
            Version::V1 => v1_usage.or(v2_usage),
            Version::V2 => v2_usage.or(v1_usage),
        };
        let usage = usage.filter(|(UsageFile::V1(path) | UsageFile::V2(path))| path.exists());
        let cpuset = hierarchies
            .version_of("cpuset")
            .and_then(|version| own(version, "cpuset").map(|(dir, root)| CpusetDir { version, dir, root }))
            .filter(|cpuset| cpuset.dir.join("cpuset.cpus").exists());
        Ok(Self {
            name,
            version,
            cpu_root: cpu_mount.point.clone(),
            cpu_dir,
            usage,
            cpuset,
        })
    }
}

/// The directory that the group of a path has, or would have, under the cpu controller: only the mounts are read.
///
/// # Errors
/// [`CgroupError`]: the path goes up, or the cpu controller is not mounted.
pub(crate) fn cpu_dir_of(roots: &Roots, path: &str) -> Result<PathBuf, CgroupError> {
    let hierarchies = Hierarchies::read(roots)?;
    let below = relative(roots, &hierarchies, path)?;
    let version = hierarchies.version_of("cpu");
    let mount = version.and_then(|version| mount_of(&hierarchies, version, "cpu"));
    let mount = mount.ok_or_else(|| CgroupError::NoController {
        controller: "cpu",
        mounted: hierarchies.describe(),
    })?;
    Ok(mount.point.join(below.trim_matches('/')))
}

fn mount_of<'a>(hierarchies: &'a Hierarchies, version: Version, controller: &str) -> Option<&'a Mount> {
    match version {
        Version::V1 => hierarchies.v1(controller),
        Version::V2 => hierarchies.v2.as_ref(),
    }
}

fn key(version: Version, controller: &'static str) -> Option<&'static str> {
    (version == Version::V1).then_some(controller)
}

/// The path of a group below its hierarchy, from an absolute or a relative one.
fn relative(roots: &Roots, hierarchies: &Hierarchies, given: &str) -> Result<String, CgroupError> {
    let path = roots.map(Path::new(given));
    if path.components().any(|part| part == Component::ParentDir) {
        let given = file::shorten(given);
        return Err(CgroupError::BadSpec {
            given,
            why: "the path goes up with '..'",
        });
    }
    // The longest mount point that fits: version 2 may be mounted above version 1's.
    let best = hierarchies
        .all()
        .filter_map(|mount| path.strip_prefix(&mount.point).ok())
        .min_by_key(|below| below.as_os_str().len());
    // On version 1 nothing is mounted where version 2 is: such a path is one below whatever is.
    let top = roots.sys("fs/cgroup");
    let best = best.or_else(|| path.strip_prefix(&top).ok());
    Ok(best.unwrap_or(Path::new(given)).to_string_lossy().into_owned())
}

/// The error for a group that has no directory under the cpu controller: it says where else the group exists,
/// because that is the usual mistake on version 1.
fn missing(hierarchies: &Hierarchies, name: String, cpu_dir: &Path, cpu_mount: &Mount) -> CgroupError {
    let below = cpu_dir.strip_prefix(&cpu_mount.point).unwrap_or(cpu_dir);
    let elsewhere: Vec<String> = hierarchies
        .all()
        .filter(|mount| *mount != cpu_mount)
        .map(|mount| mount.point.join(below))
        .filter(|dir| dir.is_dir())
        .map(|dir| dir.display().to_string())
        .collect();
    let remedy = if elsewhere.is_empty() {
        format!("check the name (find {} -type d)", cpu_mount.point.display())
    } else {
        format!(
            "it exists only as {}: for a systemd unit, systemctl set-property UNIT CPUAccounting=yes gives it a \
             group under the cpu controller",
            List(&elsewhere)
        )
    };
    CgroupError::NotFound {
        what: name,
        looked_at: vec![cpu_dir.display().to_string()],
        remedy,
    }
}
