//! Finding the group of a systemd unit or a container by walking the trees: no D-Bus, no container runtime.

use super::CgroupError;
use super::mounts::{Hierarchies, Mount};
use crate::{Roots, file};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A walk stops after this many groups: far beyond any machine, but not endless.
const MAX_GROUPS: usize = 100_000;
/// A walk goes this deep.
const DEEPEST: usize = 24;
/// A search through processes stops after this many.
const MAX_PROCESSES: usize = 262_144;
/// The shortest beginning of a container id that is accepted.
const MIN_ID: usize = 4;
/// The length of a full container id.
const ID_LENGTH: usize = 64;

/// Where a unit was found.
pub(super) enum Found {
    /// As a group of this path, the same in each hierarchy.
    Group(String),
    /// Only as the group of this process, which may be elsewhere in each hierarchy.
    Process(u32),
}

/// The lines of `/proc/PID/cgroup`: controllers (empty for version 2) and group.
pub(super) fn memberships(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            Some((fields.next()?.to_string(), fields.next()?.to_string()))
        })
        .collect()
}

/// A systemd unit: its usual place first, then anywhere in the trees, then through the processes.
pub(super) fn unit(roots: &Roots, hierarchies: &Hierarchies, name: &str) -> Result<Found, CgroupError> {
    const SUFFIXES: [&str; 3] = [".service", ".scope", ".slice"];
    let what = format!("unit {name}");
    if name.contains('/') || name.starts_with('.') || name.is_empty() {
        return Err(CgroupError::BadSpec {
            given: file::shorten(name),
            why: "a unit's name is one word",
        });
    }
    let unit = match SUFFIXES.iter().any(|suffix| name.ends_with(suffix)) {
        true => name.to_string(),
        false => format!("{name}.service"),
    };
    let usual = format!("/system.slice/{unit}");
    if hierarchies
        .all()
        .any(|mount| mount.point.join(&usual[1..]).is_dir())
    {
        return Ok(Found::Group(usual));
    }
    let matches = walk(hierarchies, |dir_name| dir_name == unit);
    let mut groups = matches.groups.into_iter();
    match (groups.next(), groups.next()) {
        (Some(group), None) => return Ok(Found::Group(group)),
        (Some(first), Some(second)) => {
            let matches = [first, second].into_iter().chain(groups).collect();
            return Err(CgroupError::Ambiguous { what, matches });
        }
        _ => {}
    }
    if let Some(pid) = process_in(roots, &unit) {
        return Ok(Found::Process(pid));
    }
    let mut looked_at: Vec<String> = hierarchies
        .all()
        .map(|mount| mount.point.join(&usual[1..]).display().to_string())
        .collect();
    looked_at.push(format!("{} groups below them", matches.seen));
    looked_at.push(format!("{}/*/cgroup", roots.proc_.display()));
    let remedy = format!("check that the unit is running (systemctl status {unit})");
    Err(CgroupError::NotFound {
        what,
        looked_at,
        remedy,
    })
}

/// The first process whose membership names the unit as one part of a path.
fn process_in(roots: &Roots, unit: &str) -> Option<u32> {
    let pids = fs::read_dir(&roots.proc_)
        .ok()?
        .take(MAX_PROCESSES)
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.into_iter().find(|pid| {
        let text = file::read(&roots.proc_(format!("{pid}/cgroup"))).unwrap_or_default();
        memberships(&text)
            .iter()
            .any(|(_, group)| group.split('/').any(|part| part == unit))
    })
}

/// A container by its id or the beginning of it.
pub(super) fn container(hierarchies: &Hierarchies, id: &str) -> Result<String, CgroupError> {
    let what = format!("container {id}");
    let wanted = id.to_ascii_lowercase();
    if wanted.len() < MIN_ID
        || wanted.len() > ID_LENGTH
        || !wanted.bytes().all(|byte| byte.is_ascii_hexdigit())
    {
        let why = "a container id is 4 to 64 hexadecimal digits (docker ps --no-trunc, crictl ps, podman ps)";
        return Err(CgroupError::BadSpec {
            given: file::shorten(id),
            why,
        });
    }
    let matches = walk(hierarchies, |dir_name| {
        id_of(dir_name).is_some_and(|full| full.starts_with(&wanted))
    });
    let ids: BTreeSet<&str> = matches
        .groups
        .iter()
        .filter_map(|group| id_of(group.rsplit('/').next().unwrap_or_default()))
        .collect();
    if ids.len() > 1 {
        return Err(CgroupError::Ambiguous {
            what,
            matches: ids.into_iter().map(str::to_string).collect(),
        });
    }
    // The same container may sit under different paths in different hierarchies: the cpu controller's counts.
    let cpu = hierarchies.v1("cpu").or(hierarchies.v2.as_ref());
    let in_cpu = |group: &&String| cpu.is_some_and(|mount| mount.point.join(&group[1..]).is_dir());
    if let Some(group) = matches.groups.iter().find(in_cpu).or(matches.groups.first()) {
        return Ok(group.clone());
    }
    let mut looked_at: Vec<String> = hierarchies
        .all()
        .map(|mount| mount.point.display().to_string())
        .collect();
    looked_at.push(format!("{} groups below them", matches.seen));
    let remedy = "check that the container is running (docker ps, crictl ps, podman ps)".into();
    Err(CgroupError::NotFound {
        what,
        looked_at,
        remedy,
    })
}

/// The container id in a group's name: bare (cgroupfs driver), or `RUNTIME-ID.scope` (systemd driver). The monitor
/// processes of Podman and CRI-O carry the id too, in groups of their own, and are not the container.
fn id_of(dir_name: &str) -> Option<&str> {
    let bare = dir_name.strip_suffix(".scope").unwrap_or(dir_name);
    if bare.contains("conmon") {
        return None;
    }
    let id = bare.rsplit(['-', ':']).next()?;
    (id.len() == ID_LENGTH && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))).then_some(id)
}

struct Matches {
    /// Paths below the hierarchies, with a leading slash, each once, in order.
    groups: BTreeSet<String>,
    /// How many groups were looked at.
    seen: usize,
}

/// Every group of any hierarchy whose last name fits.
fn walk(hierarchies: &Hierarchies, fits: impl Fn(&str) -> bool) -> Matches {
    let mut found = Matches {
        groups: BTreeSet::new(),
        seen: 0,
    };
    for mount in hierarchies.all() {
        walk_one(mount, &fits, &mut found);
    }
    found
}

fn walk_one(mount: &Mount, fits: &impl Fn(&str) -> bool, found: &mut Matches) {
    let mut open: Vec<(PathBuf, usize)> = vec![(mount.point.clone(), 0)];
    while let Some((dir, depth)) = open.pop() {
        // A group may vanish during the walk: what cannot be listed is passed over.
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            found.seen += 1;
            if found.seen > MAX_GROUPS {
                return;
            }
            let path = entry.path();
            if entry.file_name().to_str().is_some_and(fits) {
                found.groups.insert(below(&path, &mount.point));
            }
            if depth < DEEPEST {
                open.push((path, depth + 1));
            }
        }
    }
}

fn below(path: &Path, point: &Path) -> String {
    format!("/{}", path.strip_prefix(point).unwrap_or(path).display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_in_the_names_that_the_runtimes_give() {
        let id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        for name in [
            "{}",
            "docker-{}.scope",
            "cri-containerd-{}.scope",
            "crio-{}",
            "libpod-{}.scope",
            "nerdctl-{}.scope",
            "kubepods-burstable-pod1_2.slice:cri-containerd:{}",
        ] {
            let name = name.replace("{}", id);
            assert_eq!(id_of(&name), Some(id), "{name}");
        }
        assert_eq!(id_of(&format!("crio-conmon-{id}.scope")), None);
        assert_eq!(id_of("system.slice"), None);
        assert_eq!(id_of(&id[1..]), None);
    }

    #[test]
    fn memberships_keep_colons_in_group_names() {
        let text = "4:cpu,cpuacct:/a:b\n0::/user.slice\nnonsense\n";
        let expected = vec![
            ("cpu,cpuacct".to_string(), "/a:b".to_string()),
            (String::new(), "/user.slice".into()),
        ];
        assert_eq!(memberships(text), expected);
    }
}
