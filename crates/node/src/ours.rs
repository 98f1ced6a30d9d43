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
         and written with your rights: chmod go-w {part}, or give --run-dir another folder", path = path.display(), part = part.display()
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
    let made = DirBuilder::new().recursive(true).mode(mode).create(dir);
    made.map_err(|source| NotOurs::Io {
        action: "make",
        part: dir.to_owned(),
        source,
    })?;
    check(dir)
}

/// Sees that nobody but this user and root can change a file or folder, or put another in its place.
///
/// # Errors
/// [`NotOurs`].
pub fn check(path: &Path) -> Result<(), NotOurs> {
    Walk {
        path,
        whole: whole_range(),
        links: 0,
    }
    .follow()
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
    whole: bool,
    links: usize,
}

impl Walk<'_> {
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
            self.see_owner(&at, &about, ahead.is_empty())?;
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
            let is_end = ahead.is_empty();
            let is_sticky = about.mode() & STICKY != 0 && !is_end;
            if !is_sticky && is_writable_by_others(&about) {
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
        // A folder above, of a user whom this namespace does not have: of whoever made the namespace and mounted it there.
        let of_outside = !is_end && !self.whole && owner == overflow_uid();
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

/// A group that has its user's number is that user's alone, as Debian's and Red Hat's `useradd` make it, and their mask lets it write.
fn is_writable_by_others(about: &Metadata) -> bool {
    let is_private =
        about.gid() == 0 || (about.gid() == getegid().as_raw() && getegid().as_raw() == geteuid().as_raw());
    let others = match is_private {
        true => 0o002,
        false => 0o022,
    };
    about.mode() & others != 0
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
        // A link of theirs in a sticky folder, to a folder that is ours: they can point it elsewhere.
        let sticky = folder_of(base, "sticky", 0o1777, None);
        let ours = folder_of(base, "ours", 0o700, None);
        let link = sticky.join("link");
        symlink(&ours, &link).unwrap();
        check(&link).unwrap();
        std::os::unix::fs::lchown(&link, Some(65_534), None).unwrap();
        assert!(matches!(check(&link), Err(NotOurs::Owner { part, .. }) if part == link));
        // A group of others is not this user's own, whatever its number.
        let shared = folder_of(base, "shared", 0o775, None);
        check(&shared).unwrap();
        chown(&shared, None, Some(12_345)).unwrap();
        assert!(matches!(check(&shared), Err(NotOurs::Writable { .. })));
    }
}
