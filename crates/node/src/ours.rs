//! Folders whose contents are believed: what is in a run folder is executed, mapped and written to kernel files, so that nobody but
//! this user and root may be able to put anything there, or another folder in its place.
//!
//! Every directory and link on the way is looked at. One that others can write to is harmless where it has the sticky bit (`/tmp`):
//! they cannot rename there what is not theirs.

use rustix::process::{getegid, geteuid};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

/// Links followed on the way to one file: as many as the kernel follows.
const MAX_LINKS: usize = 40;
/// The sticky bit.
const STICKY: u32 = 0o1000;
/// Numbers below are of programs, whose groups have members.
const FIRST_OF_PEOPLE: u32 = 1000;
/// Folders that are root's on every system (Filesystem Hierarchy Standard): also where a user namespace does not have root.
const OF_SYSTEM: [&str; 11] = [
    "/",
    "/dev",
    "/dev/shm",
    "/home",
    "/mnt",
    "/run",
    "/run/user",
    "/srv",
    "/tmp",
    "/var",
    "/var/tmp",
];

/// Why a path is not only this user's and root's to change.
#[derive(Debug, thiserror::Error)]
pub enum NotOurs {
    /// Somebody else owns a part of it.
    #[error(
        "{part} belongs to user {owner}, who could put something else in the place of {path}, and what is there is run and written with \
         your rights: give --run-dir a folder of your own in a folder of yours or root's", path = path.display(), part = part.display()
    )]
    Owner {
        /// The path.
        path: PathBuf,
        /// The part of it, or the link on the way.
        part: PathBuf,
        /// Its owner's number.
        owner: u32,
    },
    /// A part of it can be written by others.
    #[error(
        "{part} can be written by others (mode {mode:04o}), who could put something else in the place of {path}, and what is there is run \
         and written with your rights: give --run-dir a folder elsewhere, or chmod go-w {part}, where it is yours (a container's emptyDir is \
         open to all in the pod: have an init container change its mode)", path = path.display(), part = part.display()
    )]
    Writable {
        /// The path.
        path: PathBuf,
        /// The part of it.
        part: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It cannot be followed.
    #[error("cannot {action} {part}: {source}; give --run-dir a directory that this user may write", part = part.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The part of it.
        part: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Where this user's programs find each other: `/run/headroom` for root, `$XDG_RUNTIME_DIR/headroom` for others, and where that is not
/// set `headroom-UID` in the folder for temporary files.
pub fn folder() -> PathBuf {
    match geteuid().is_root() {
        true => PathBuf::from("/run/headroom"),
        false => folder_in(std::env::var_os("XDG_RUNTIME_DIR")),
    }
}

/// That of who is not root: a variable that is empty, or no absolute path, says nothing (XDG Base Directory Specification).
fn folder_in(runtime_dir: Option<OsString>) -> PathBuf {
    let given = runtime_dir.map(PathBuf::from).filter(|dir| dir.is_absolute());
    given.map_or_else(
        || std::env::temp_dir().join(format!("headroom-{}", geteuid().as_raw())),
        |dir| dir.join("headroom"),
    )
}

/// Makes a folder with those above it that are missing, each with the mode, where it is missing, and sees that it is ours ([`check`]).
///
/// # Errors
/// [`NotOurs`].
pub fn make(dir: &Path, mode: u32) -> Result<(), NotOurs> {
    // Nothing is left where it would be refused.
    let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    if let Some(above) = absolute.ancestors().skip(1).find(|above| above.exists())
        && !absolute.exists()
    {
        check_above(above)?;
    }
    let made = DirBuilder::new().recursive(true).mode(mode).create(dir);
    made.map_err(|source| NotOurs::Io {
        action: "make",
        part: dir.to_owned(),
        source,
    })?;
    check(dir)
}

/// Whether [`make`] would make it, and this user could make files in it then. Nothing is made.
///
/// # Errors
/// As [`make`].
pub fn check_make(dir: &Path) -> Result<(), NotOurs> {
    let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let there = absolute.ancestors().find(|part| part.exists());
    let there = there.unwrap_or(Path::new("/"));
    match there == absolute {
        true => check(there)?,
        false => check_above(there)?,
    }
    let refused = |source| NotOurs::Io {
        action: "write in",
        part: there.to_owned(),
        source,
    };
    if !there.is_dir() {
        return Err(refused(io::ErrorKind::NotADirectory.into()));
    }
    let may = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::access(there, may).map_err(|errno| refused(errno.into()))
}

/// The same of a folder in which another is to be made.
fn check_above(path: &Path) -> Result<(), NotOurs> {
    Walk::of(path, true).follow()
}

/// Sees that nobody but this user and root can change a file or folder, or put another in its place.
///
/// # Errors
/// [`NotOurs`].
pub fn check(path: &Path) -> Result<(), NotOurs> {
    Walk::of(path, false).follow()
}

/// Whether this user namespace has all users, so that the owner of whatever is seen in it is known.
fn whole_range() -> bool {
    // user_namespaces(7): the initial one maps all.
    fs::read_to_string("/proc/self/uid_map").map_or(true, |map| is_whole(&map))
}

fn is_whole(map: &str) -> bool {
    map.split_ascii_whitespace().nth(2) == Some("4294967295")
}

struct Walk<'a> {
    path: &'a Path,
    /// Whether all of it is above what is meant.
    is_above: bool,
    whole: bool,
    links: usize,
}

impl<'a> Walk<'a> {
    fn of(path: &'a Path, is_above: bool) -> Self {
        Self {
            path,
            is_above,
            whole: whole_range(),
            links: 0,
        }
    }

    fn follow(&mut self) -> Result<(), NotOurs> {
        let io = |part: &Path| {
            let part = part.to_owned();
            move |source| NotOurs::Io {
                action: "read",
                part,
                source,
            }
        };
        let absolute = std::path::absolute(self.path).map_err(io(self.path))?;
        // The parts that are still to be looked at, the next one last.
        let mut ahead: Vec<OsString> = Vec::new();
        let mut at = PathBuf::new();
        push_parts(&mut ahead, &absolute);
        while let Some(part) = ahead.pop() {
            match Path::new(&part).components().next() {
                Some(Component::ParentDir) => {
                    at.pop();
                    continue;
                }
                Some(Component::RootDir) => at = PathBuf::from("/"),
                _ => at.push(&part),
            }
            let about = fs::symlink_metadata(&at).map_err(io(&at))?;
            let is_end = ahead.is_empty() && !self.is_above;
            self.see_owner(&at, &about, is_end)?;
            if about.is_symlink() {
                self.links += 1;
                if self.links > MAX_LINKS {
                    return Err(io(&at)(rustix::io::Errno::LOOP.into()));
                }
                let target = fs::read_link(&at).map_err(io(&at))?;
                at.pop();
                push_parts(&mut ahead, &target);
                continue;
            }
            let is_harmless = !is_end && about.mode() & STICKY != 0;
            if !is_harmless && is_writable_by_others(&at, &about, is_end) {
                return Err(NotOurs::Writable {
                    path: self.path.to_owned(),
                    part: at,
                    mode: about.mode() & 0o7777,
                });
            }
        }
        Ok(())
    }

    fn see_owner(&self, part: &Path, about: &Metadata, is_end: bool) -> Result<(), NotOurs> {
        let owner = about.uid();
        let ours = owner == 0 || owner == geteuid().as_raw();
        // Of a user whom this namespace does not have nothing is known: its owner can rename what is in it, whatever the sticky bit says.
        let is_of_system = || OF_SYSTEM.iter().any(|folder| part == Path::new(folder));
        let of_outside = !is_end && !self.whole && owner == overflow_uid() && is_of_system();
        match ours || of_outside {
            true => Ok(()),
            false => Err(NotOurs::Owner {
                path: self.path.to_owned(),
                part: part.to_owned(),
                owner,
            }),
        }
    }
}

fn push_parts(ahead: &mut Vec<OsString>, path: &Path) {
    let parts = path.components().map(|part| part.as_os_str().to_owned());
    let mut parts: Vec<_> = parts.collect();
    parts.reverse();
    ahead.append(&mut parts);
}

/// Whether others than its owner may write to a folder or file. Above a run folder one of a group that is this user's alone may: Debian's and
/// Red Hat's `useradd` make such groups, and their mask lets them write.
fn is_writable_by_others(at: &Path, about: &Metadata, is_end: bool) -> bool {
    let is_private =
        || !is_end && about.uid() == geteuid().as_raw() && is_own_group(about.gid()) && !has_list(at);
    match about.mode() & 0o022 {
        0 => false,
        0o020 => !is_private(),
        _ => true,
    }
}

/// Whether a group is this user's primary one, and nobody else's, as far as the files say.
fn is_own_group(group: u32) -> bool {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    group == getegid().as_raw()
        && group >= FIRST_OF_PEOPLE
        && is_alone_in(
            &read("/etc/passwd"),
            &read("/etc/group"),
            geteuid().as_raw(),
            group,
        )
}

/// The same by the texts of passwd(5) and group(5).
fn is_alone_in(users: &str, groups: &str, user: u32, group: u32) -> bool {
    let fields = |line: &str| -> Vec<String> { line.split(':').map(str::to_owned).collect() };
    let users = users.lines().map(fields).filter(|of| of.len() > 3);
    let of_group: Vec<_> = users.filter(|of| of[3] == group.to_string()).collect();
    let name = match of_group.as_slice() {
        [one] if one[2] == user.to_string() => &one[0],
        _ => return false,
    };
    let groups = groups.lines().map(fields).filter(|of| of.len() > 3);
    groups
        .filter(|of| of[2] == group.to_string())
        .all(|of| of[3].split(',').all(|member| member.is_empty() || member == name))
}

/// Whether a file has a list of those who may do what with it (acl(5)), whose mask stands where the group's rights do.
fn has_list(at: &Path) -> bool {
    let mut none = [0_u8; 0];
    !matches!(
        rustix::fs::getxattr(at, "system.posix_acl_access", &mut none[..]),
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::NOTSUP)
    )
}

/// The number that stands for users that a namespace does not have.
fn overflow_uid() -> u32 {
    let said = fs::read_to_string("/proc/sys/kernel/overflowuid");
    said.ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(65_534)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn folder_of(parent: &Path, name: &str, mode: u32, owner: Option<u32>) -> PathBuf {
        let dir = parent.join(name);
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
        chown(&dir, owner, owner).unwrap();
        dir
    }

    #[test]
    fn a_runtime_folder_that_is_empty_or_relative_is_none() {
        let mine = format!("headroom-{}", geteuid().as_raw());
        for nothing in [None, Some(""), Some("run/user/7")] {
            let found = folder_in(nothing.map(OsString::from));
            assert_eq!(found, std::env::temp_dir().join(&mine));
        }
        let of_user = folder_in(Some("/run/user/7".into()));
        assert_eq!(of_user, Path::new("/run/user/7/headroom"));
    }

    #[test]
    fn a_group_is_ones_own_where_nobody_else_is_in_it() {
        let users = "root:x:0:0::/:/bin/sh\nanna:x:1000:1000::/:/bin/sh\nben:x:1001:1001::/:/bin/sh\nsync:x:4:65534::/:\nnobody:x:65534:65534::/:\n";
        let groups = "root:x:0:\nanna:x:1000:\nben:x:1001:anna\nnogroup:x:65534:\n";
        assert!(is_alone_in(users, groups, 1000, 1000));
        assert!(!is_alone_in(users, groups, 1001, 1001), "anna is a member");
        assert!(!is_alone_in(users, groups, 65_534, 65_534), "sync has it too");
        assert!(!is_alone_in(users, groups, 1000, 1001));
        assert!(!is_alone_in("", "", 1000, 1000));
    }

    /// The mask of a list stands where the group's rights do.
    #[test]
    fn a_list_of_who_may_do_what_is_seen() {
        let base = tempfile::tempdir().unwrap();
        assert!(!has_list(base.path()));
        // acl(5) as the kernel keeps it: its version, then each entry's tag, rights and number; user 1 may write.
        let none = u32::MAX;
        let entries: [(u16, u16, u32); 5] = [
            (1, 7, none),
            (2, 7, 1),
            (4, 5, none),
            (0x10, 7, none),
            (0x20, 5, none),
        ];
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, rights, number) in entries {
            list.extend(tag.to_le_bytes());
            list.extend(rights.to_le_bytes());
            list.extend(number.to_le_bytes());
        }
        let name = "system.posix_acl_access";
        let set = rustix::fs::setxattr(base.path(), name, &list, rustix::fs::XattrFlags::empty());
        if set.is_err() {
            println!("skipped: a file system with lists of access (ACLs)");
            return;
        }
        assert!(has_list(base.path()));
        assert!(matches!(check(base.path()), Err(NotOurs::Writable { .. })));
    }

    #[test]
    fn only_the_whole_map_has_all_users() {
        assert!(is_whole("         0          0 4294967295\n"));
        assert!(!is_whole("         0       1000          1\n"));
        assert!(!is_whole("0 100000 65536\n"));
        assert!(!is_whole(""));
    }

    #[test]
    fn a_folder_that_others_can_write_or_move_is_refused_and_one_below_a_sticky_one_is_not() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path();
        check(base).unwrap();
        make(&base.join("new/inner"), 0o700).unwrap();
        assert_eq!(fs::metadata(base.join("new")).unwrap().mode() & 0o777, 0o700);

        let open = folder_of(base, "open", 0o777, None);
        let error = check(&open).unwrap_err();
        assert!(matches!(&error, NotOurs::Writable { part, .. } if *part == open));
        assert!(error.to_string().contains("mode 0777") && error.to_string().contains("chmod go-w"));
        let inner = folder_of(&open, "inner", 0o700, None);
        assert!(matches!(check(&inner), Err(NotOurs::Writable { part, .. }) if part == open));

        let sticky = folder_of(base, "sticky", 0o1777, None);
        // Others can make files in it, of names that are known beforehand.
        assert!(matches!(check(&sticky), Err(NotOurs::Writable { .. })));
        let inner = folder_of(&sticky, "inner", 0o755, None);
        check(&inner).unwrap();
        check(&inner.join("../inner/.")).unwrap();

        let link = base.join("link");
        symlink("open/inner", &link).unwrap();
        assert!(matches!(check(&link), Err(NotOurs::Writable { part, .. }) if part == open));
        let fine = base.join("fine");
        symlink(base.join("sticky/inner"), &fine).unwrap();
        check(&fine).unwrap();
        let round = base.join("round");
        symlink("round", &round).unwrap();
        assert!(matches!(check(&round), Err(NotOurs::Io { .. })));
        assert!(matches!(check(&base.join("none")), Err(NotOurs::Io { .. })));
    }

    #[test]
    fn what_another_user_owns_is_refused_on_the_way_too_but_not_roots() {
        if !geteuid().is_root() {
            println!("skipped: a folder of another user needs root");
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let base = base.path();
        let theirs = folder_of(base, "theirs", 0o755, Some(65_534));
        let error = check(&theirs).unwrap_err();
        assert!(error.to_string().contains("belongs to user 65534"), "{error}");
        let inner = folder_of(&theirs, "inner", 0o700, Some(0));
        assert!(matches!(check(&inner), Err(NotOurs::Owner { part, .. }) if part == theirs));
        // In a user namespace that does not have them.
        let there = folder_of(&theirs, "there", 0o700, Some(0));
        let inside = Walk {
            whole: false,
            ..Walk::of(&there, false)
        };
        let mut inside = inside;
        assert!(matches!(inside.follow(), Err(NotOurs::Owner { part, .. }) if part == theirs));
        // A link of theirs in a sticky folder, to a folder that is ours: they can point it elsewhere.
        let sticky = folder_of(base, "sticky", 0o1777, None);
        let ours = folder_of(base, "ours", 0o700, None);
        let link = sticky.join("link");
        symlink(&ours, &link).unwrap();
        check(&link).unwrap();
        std::os::unix::fs::lchown(&link, Some(65_534), None).unwrap();
        assert!(matches!(check(&link), Err(NotOurs::Owner { part, .. }) if part == link));
        // Programs' groups have members, root's too.
        let shared = folder_of(base, "shared", 0o775, None);
        for group in [0, 12_345] {
            chown(&shared, None, Some(group)).unwrap();
            assert!(matches!(check(&shared), Err(NotOurs::Writable { .. })));
        }
    }
}
