//! Which control group hierarchies are mounted, and where: read from `mountinfo`, never assumed.

use super::CgroupError;
use crate::{Roots, file};
use std::path::{Component, Path, PathBuf};

/// One mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The group that is seen at the mount point: `/`, or the container's own group where a container sees only that.
    pub root: String,
    /// The mount point, below the roots.
    pub point: PathBuf,
}

/// A version 1 hierarchy and its controllers (several where they are mounted together, such as `cpu,cpuacct`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct V1Mount {
    /// Controllers, and `name=...` for a named hierarchy.
    pub controllers: Vec<String>,
    /// Where it is.
    pub mount: Mount,
}

/// The mounted control group hierarchies: version 1 only, version 2 only, or both (hybrid).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hierarchies {
    /// Version 1, one entry a hierarchy.
    pub v1: Vec<V1Mount>,
    /// Version 2.
    pub v2: Option<Mount>,
}

/// The version of the control group interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// Version 1: one hierarchy a controller.
    V1,
    /// Version 2: one hierarchy.
    V2,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        })
    }
}

impl Hierarchies {
    /// Reads `proc/self/mountinfo` (proc(5): fields 4 and 5 are root and mount point, the file system type follows
    /// the lone hyphen, the super options name version 1's controllers).
    ///
    /// # Errors
    /// [`CgroupError::File`] where mountinfo cannot be read; [`CgroupError::NoCgroups`] where it shows none.
    pub fn read(roots: &Roots) -> Result<Self, CgroupError> {
        let path = roots.proc_("self/mountinfo");
        let found = Self::parse(&file::read(&path)?, roots);
        if found.v1.is_empty() && found.v2.is_none() {
            return Err(CgroupError::NoCgroups { mountinfo: path });
        }
        Ok(found)
    }

    fn parse(mountinfo: &str, roots: &Roots) -> Self {
        let mut found = Self::default();
        for line in mountinfo.lines() {
            let Some((before, after)) = line.split_once(" - ") else {
                continue;
            };
            let mut fields = before.split(' ').skip(3);
            let (Some(root), Some(point)) = (fields.next(), fields.next()) else {
                continue;
            };
            let mut after = after.split(' ');
            let Some(kind) = after.next() else { continue };
            let mount = Mount {
                root: unescape(root),
                point: roots.map(Path::new(&unescape(point))),
            };
            match kind {
                "cgroup2" => prefer(&mut found.v2, mount, roots),
                "cgroup" => {
                    let controllers: Vec<String> = after
                        .nth(1)
                        .unwrap_or_default()
                        .split(',')
                        .filter(|option| {
                            !["rw", "ro", "xattr", "clone_children", "noprefix"].contains(option)
                        })
                        .filter(|option| !option.starts_with("release_agent="))
                        .map(str::to_string)
                        .collect();
                    match found.v1.iter_mut().find(|other| other.controllers == controllers) {
                        Some(other) => {
                            let mut best = Some(other.mount.clone());
                            prefer(&mut best, mount, roots);
                            other.mount = best.unwrap_or_else(|| other.mount.clone());
                        }
                        None => found.v1.push(V1Mount { controllers, mount }),
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// The version 1 hierarchy that has a controller.
    pub fn v1(&self, controller: &str) -> Option<&Mount> {
        self.v1
            .iter()
            .find(|v1| v1.controllers.iter().any(|c| c == controller))
            .map(|v1| &v1.mount)
    }

    /// Which version a controller is bound to: version 1 where it is mounted there, else version 2 where the
    /// version 2 root lists it in `cgroup.controllers`.
    pub fn version_of(&self, controller: &str) -> Option<Version> {
        if self.v1(controller).is_some() {
            return Some(Version::V1);
        }
        let v2 = self.v2.as_ref()?;
        let listed = file::read(&v2.point.join("cgroup.controllers")).ok()?;
        listed
            .split_whitespace()
            .any(|c| c == controller)
            .then_some(Version::V2)
    }

    /// Every mount point, version 2 last.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Mount> {
        self.v1.iter().map(|v1| &v1.mount).chain(self.v2.as_ref())
    }

    /// "v1 (cpu, cpuset)", "v2" or both: for messages.
    pub fn describe(&self) -> String {
        let v1: Vec<String> = self.v1.iter().map(|v1| v1.controllers.join(",")).collect();
        match (v1.is_empty(), &self.v2) {
            (true, None) => "none".into(),
            (true, Some(v2)) => format!("v2 at {}", v2.point.display()),
            (false, None) => format!("v1 ({})", v1.join(" ")),
            (false, Some(v2)) => format!("hybrid: v1 ({}) and v2 at {}", v1.join(" "), v2.point.display()),
        }
    }
}

/// Of two mounts of one hierarchy, the one below the root for `/sys` that shows most of it.
fn prefer(slot: &mut Option<Mount>, other: Mount, roots: &Roots) {
    let rank = |mount: &Mount| (mount.point.starts_with(&roots.sys), mount.root == "/");
    match slot {
        Some(present) if rank(present) >= rank(&other) => {}
        _ => *slot = Some(other),
    }
}

impl Mount {
    /// The directory of a group that `/proc/PID/cgroup` names, or nothing where the group lies outside what this
    /// mount shows.
    pub fn directory_of(&self, group: &str) -> Option<PathBuf> {
        let below = Path::new(group).strip_prefix(Path::new(&self.root)).ok()?;
        let outside = below
            .components()
            .any(|part| !matches!(part, Component::Normal(_) | Component::CurDir));
        (!outside).then(|| self.point.join(below))
    }
}

/// mountinfo writes blank space and backslashes as three octal digits.
fn unescape(field: &str) -> String {
    let mut text = Vec::with_capacity(field.len());
    let bytes = field.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes
            .get(at + 1..at + 4)
            .filter(|d| bytes[at] == b'\\' && d.iter().all(|c| (b'0'..b'8').contains(c)));
        match octal {
            Some(digits) => {
                let value = digits
                    .iter()
                    .fold(0u32, |sum, digit| sum * 8 + u32::from(digit - b'0'));
                text.push((value & 0xff) as u8);
                at += 4;
            }
            None => {
                text.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn a_hybrid_machine_has_both_and_co_mounted_controllers_share_a_mount() {
        let found = Hierarchies::parse(HYBRID, &Roots::default());
        assert_eq!(
            found.v1("cpu").unwrap().point,
            Path::new("/sys/fs/cgroup/cpu,cpuacct")
        );
        assert_eq!(found.v1("cpu"), found.v1("cpuacct"));
        assert_eq!(
            found.v1("name=systemd").unwrap().point,
            Path::new("/sys/fs/cgroup/systemd")
        );
        assert_eq!(found.v1("memory"), None);
        assert_eq!(found.v2.unwrap().point, Path::new("/sys/fs/cgroup/unified"));
    }

    #[test]
    fn mount_points_are_taken_below_the_roots_and_unescaped() {
        let line = r"41 31 0:38 / /sys/fs/a\040b rw - cgroup2 cgroup2 rw";
        let found = Hierarchies::parse(line, &Roots::at("/t/sys", "/t/proc"));
        assert_eq!(found.v2.unwrap().point, Path::new("/t/sys/fs/a b"));
    }

    #[test]
    fn of_two_mounts_the_one_below_the_root_for_sys_is_taken() {
        let lines = "\
1 0 0:1 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup2 rw
2 0 0:1 / /host/sys/fs/cgroup rw - cgroup2 cgroup2 rw
";
        let found = Hierarchies::parse(lines, &Roots::at("/host/sys", "/host/proc"));
        assert_eq!(
            found.v2.unwrap(),
            Mount {
                root: "/".into(),
                point: "/host/sys/fs/cgroup".into()
            }
        );
    }

    #[test]
    fn a_group_outside_the_mount_has_no_directory() {
        let mount = Mount {
            root: "/docker/ab".into(),
            point: "/sys/fs/cgroup".into(),
        };
        assert_eq!(
            mount.directory_of("/docker/ab/x").unwrap(),
            Path::new("/sys/fs/cgroup/x")
        );
        assert_eq!(mount.directory_of("/docker/abc"), None);
        assert_eq!(mount.directory_of("/../x"), None);
        let whole = Mount {
            root: "/".into(),
            point: "/c".into(),
        };
        assert_eq!(whole.directory_of("/../x"), None);
        assert_eq!(whole.directory_of("/a/b").unwrap(), Path::new("/c/a/b"));
    }

    #[test]
    fn nonsense_lines_are_passed_over() {
        assert_eq!(
            Hierarchies::parse("\n - cgroup2\nx - \n1 2 3 - cgroup", &Roots::default()),
            Hierarchies::default()
        );
    }
}
