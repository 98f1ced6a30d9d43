//! Where a server that `headroom wrap --steered` started is found by its name: a file in the run directory, for as long as its wrap lives.

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The folder in the run directory.
const FOLDER: &str = "wrapped";
/// What ends each file's name.
const ENDING: &str = ".json";
/// The longest file that is read, bytes.
const MAX_FILE: u64 = 1 << 16;
/// The longest name.
const MAX_NAME: usize = 64;
/// For how long the file of a name is waited for: somebody may be looking whether its wrap lives.
const PATIENCE: Duration = Duration::from_millis(500);

/// A server that was started by `headroom wrap --steered`, for another run to command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wrapped {
    /// Its name, the run directory's own.
    pub name: String,
    /// Its program.
    pub program: PathBuf,
    /// Its process.
    pub server: u32,
    /// The process that started it, and ends it.
    pub wrap: u32,
    /// The region by which it is commanded.
    pub region: PathBuf,
}

/// Why a wrapped server cannot be found, or not be offered.
#[derive(Debug, thiserror::Error)]
pub enum WrappedError {
    /// No file can be named so.
    #[error(
        "{name:?} is no name of a wrapped server: give --name, or oncall.server, up to {MAX_NAME} letters, digits and any of `.-_`, and begin with no `.`"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// Nobody offers it now.
    #[error("{path}: no wrapped server is there: start it with `headroom wrap --steered`, in the same --run-dir; `headroom wrap --list` shows those that are", path = path.display())]
    Nobody {
        /// The file.
        path: PathBuf,
    },
    /// Whoever offered it was killed.
    #[error("{path}: the wrap of this server (pid {wrap}) ended without a farewell, and the server, where it still runs, serves as without us: start it again with `headroom wrap --steered`", path = path.display())]
    Dead {
        /// The file.
        path: PathBuf,
        /// The wrap's number.
        wrap: u32,
    },
    /// Another one has the name.
    #[error("{path}: another wrapped server of this name runs (wrap: {by}): give --name another name", path = path.display(), by = by.map_or_else(|| "of an unknown pid".to_owned(), |pid| format!("pid {pid}")))]
    Taken {
        /// The file.
        path: PathBuf,
        /// Its wrap.
        by: Option<u32>,
    },
    /// It is another user's.
    #[error("{path}: belongs to user {owner}, and is believed by its owner alone: run both, `headroom wrap` and who attaches to it, as one user", path = path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its user's number.
        owner: u32,
    },
    /// It is something else.
    #[error("{path}: is not what `headroom wrap --steered` writes: {why}: remove it, and start the server again", path = path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The folder of all of them.
    #[error("{path}: the wrapped servers of this run directory cannot be listed: {source}: give --run-dir a folder that is there and that this user can read", path = path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel refuses.
    #[error("{path}: the file of a wrapped server cannot be used: {source}: give --run-dir a folder that is this user's", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// Where a wrapped server is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrappedAt(PathBuf);

impl WrappedAt {
    /// By its name in a run directory, or, where there is a `/` in it, by its file.
    ///
    /// # Errors
    /// [`WrappedError::Name`].
    pub fn new(run_dir: &Path, server: &str) -> Result<Self, WrappedError> {
        match server.contains('/') {
            true => Ok(Self(server.into())),
            false => Self::named(run_dir, server),
        }
    }

    /// By its name in a run directory.
    ///
    /// # Errors
    /// [`WrappedError::Name`].
    pub fn named(run_dir: &Path, name: &str) -> Result<Self, WrappedError> {
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        let is_name = !name.is_empty() && name.len() <= MAX_NAME && !name.starts_with('.');
        match is_name && name.bytes().all(is_of_name) {
            true => Ok(Self(run_dir.join(FOLDER).join(format!("{name}{ENDING}")))),
            false => Err(WrappedError::Name {
                name: name.to_owned(),
            }),
        }
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn io(&self, source: impl Into<io::Error>) -> WrappedError {
        WrappedError::Io {
            path: self.0.clone(),
            source: source.into(),
        }
    }

    /// Who is there, while its wrap lives.
    ///
    /// # Errors
    /// Nobody, the remains of a wrap that was killed, or what is not to be believed.
    pub fn find(&self) -> Result<Wrapped, WrappedError> {
        let path = || self.0.clone();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file: File = match open(&self.0, flags, Mode::empty()) {
            Ok(file) => file.into(),
            Err(Errno::NOENT) => return Err(WrappedError::Nobody { path: path() }),
            Err(errno) => return Err(self.io(errno)),
        };
        let owner = file.metadata().map_err(|error| self.io(error))?.uid();
        if owner != rustix::process::geteuid().as_raw() {
            return Err(WrappedError::Owner { path: path(), owner });
        }
        let wrong = |why: String| WrappedError::Text { path: path(), why };
        let mut text = String::new();
        let read = (&file).take(MAX_FILE).read_to_string(&mut text);
        read.map_err(|error| wrong(error.to_string()))?;
        let is_offered = match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => false,
            Err(Errno::WOULDBLOCK) => true,
            Err(errno) => return Err(self.io(errno)),
        };
        // The server is being started, or never was.
        if text.is_empty() {
            return Err(WrappedError::Nobody { path: path() });
        }
        let wrapped: Wrapped = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        match is_offered {
            true => Ok(wrapped),
            false => Err(WrappedError::Dead {
                path: path(),
                wrap: wrapped.wrap,
            }),
        }
    }

    /// Takes the name, before the server is started; what a killed wrap left of it goes.
    ///
    /// # Errors
    /// [`WrappedError::Taken`]; a folder that cannot be written.
    pub fn take(&self) -> Result<Offer, WrappedError> {
        let folder = self.0.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(|error| self.io(error))?;
        let until = Instant::now() + PATIENCE;
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            let file: File = open(&self.0, flags, Mode::from_raw_mode(0o600))
                .map_err(|errno| self.io(errno))?
                .into();
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) if Instant::now() < until => {
                    std::thread::sleep(PATIENCE / 50);
                    continue;
                }
                Err(Errno::WOULDBLOCK) => {
                    return Err(WrappedError::Taken {
                        path: self.0.clone(),
                        by: self.find().ok().map(|wrapped| wrapped.wrap),
                    });
                }
                Err(errno) => return Err(self.io(errno)),
            }
            let about = file.metadata().map_err(|error| self.io(error))?;
            let owner = about.uid();
            if owner != rustix::process::geteuid().as_raw() {
                return Err(WrappedError::Owner {
                    path: self.0.clone(),
                    owner,
                });
            }
            let named = fs::symlink_metadata(&self.0).ok();
            // Whoever had it may have removed it since it was opened.
            if named.is_some_and(|named| (named.dev(), named.ino()) == (about.dev(), about.ino())) {
                return Ok(Offer {
                    at: self.clone(),
                    file,
                });
            }
        }
    }
}

/// A name, and who is there or what is wrong.
pub type Named = (String, Result<Wrapped, WrappedError>);

/// All that a run directory offers, by name, with what is wrong of those that cannot be had. Where nobody has offered anything there is none.
///
/// # Errors
/// [`WrappedError::Folder`]: the directory is not there, or cannot be read.
pub fn all(run_dir: &Path) -> Result<Vec<Named>, WrappedError> {
    let folder = run_dir.join(FOLDER);
    let unreadable = |source| WrappedError::Folder {
        path: folder.clone(),
        source,
    };
    let entries: Vec<_> = match fs::read_dir(&folder) {
        Ok(entries) => entries.collect::<io::Result<_>>().map_err(unreadable)?,
        // Nothing was ever offered there, or a wrong folder was meant.
        Err(error) if error.kind() == io::ErrorKind::NotFound && run_dir.exists() => Vec::new(),
        Err(error) => return Err(unreadable(error)),
    };
    let mut all: Vec<_> = entries
        .into_iter()
        .filter_map(|entry| {
            let name = entry.file_name().to_str()?.strip_suffix(ENDING)?.to_owned();
            let found = WrappedAt::named(run_dir, &name).and_then(|at| at.find());
            Some((name, found))
        })
        .collect();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(all)
}

/// Takes away the names of wraps that were killed, and says which files these were.
pub fn sweep(run_dir: &Path) -> Vec<PathBuf> {
    let all = all(run_dir).unwrap_or_default().into_iter();
    let dead = all.filter_map(|(_, found)| match found {
        Err(WrappedError::Dead { path, .. }) => Some(path),
        _ => None,
    });
    dead.filter(|path| fs::remove_file(path).is_ok()).collect()
}

/// A name that is taken; with this value it is free again.
#[derive(Debug)]
pub struct Offer {
    at: WrappedAt,
    /// Locked, so that whoever finds it knows that we live.
    file: File,
}

impl Offer {
    /// Says who is there.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn publish(&mut self, wrapped: &Wrapped) -> Result<(), WrappedError> {
        let Self { at, file } = self;
        let mut write = || {
            file.set_len(0)?;
            file.rewind()?;
            // In one write: half of it is no JSON.
            file.write_all(serde_json::to_string(wrapped)?.as_bytes())
        };
        write().map_err(|error| at.io(error))
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        // Where it is gone already there is nothing to do.
        let _ = fs::remove_file(&self.at.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped() -> Wrapped {
        Wrapped {
            name: "db".to_owned(),
            program: "/usr/sbin/mariadbd".into(),
            server: 7,
            wrap: std::process::id(),
            region: "/run/headroom/oncall-6/region".into(),
        }
    }

    #[test]
    fn a_server_is_found_by_its_name_while_its_wrap_lives() {
        let folder = tempfile::tempdir().unwrap();
        let at = WrappedAt::new(folder.path(), "db").unwrap();
        let found = || at.find().map_err(|error| error.to_string());
        assert!(found().unwrap_err().contains("wrap --steered"));
        let mut offer = at.take().unwrap();
        // Nothing is said of it before it runs.
        assert!(found().unwrap_err().contains("no wrapped server is there"));
        offer.publish(&wrapped()).unwrap();
        assert_eq!(found(), Ok(wrapped()));
        let by_path = WrappedAt::new(Path::new("/nowhere"), at.path().to_str().unwrap()).unwrap();
        assert_eq!(by_path.find().unwrap(), wrapped());
        let taken = at.take().unwrap_err().to_string();
        assert!(
            taken.contains(&format!("pid {}", std::process::id())) && taken.contains("--name"),
            "{taken}"
        );
        assert_eq!(all(folder.path()).unwrap()[0].0, "db");
        drop(offer);
        assert!(!at.path().exists() && all(folder.path()).unwrap().is_empty());
        drop(at.take().unwrap());
        let missing = all(&folder.path().join("none")).unwrap_err();
        assert!(matches!(missing, WrappedError::Folder { .. }), "{missing}");
    }

    #[test]
    fn what_a_killed_wrap_left_is_said_so_and_gives_way() {
        let folder = tempfile::tempdir().unwrap();
        let at = WrappedAt::new(folder.path(), "db").unwrap();
        fs::create_dir(folder.path().join(FOLDER)).unwrap();
        fs::write(at.path(), serde_json::to_string(&wrapped()).unwrap()).unwrap();
        let said = at.find().unwrap_err().to_string();
        assert!(
            said.contains(&format!("(pid {})", std::process::id())) && said.contains("start it again"),
            "{said}"
        );
        assert_eq!(sweep(folder.path()), [at.path()]);
        let mut offer = at.take().unwrap();
        offer.publish(&wrapped()).unwrap();
        assert!(at.find().is_ok());
        assert_eq!(sweep(folder.path()), [""; 0].map(PathBuf::from));
        drop(offer);
        fs::write(at.path(), "{}").unwrap();
        let said = at.find().unwrap_err().to_string();
        assert!(
            said.contains("db.json") && said.contains("missing field"),
            "{said}"
        );
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(at.path(), Some(65_534), None).unwrap();
            for error in [at.find().unwrap_err(), at.take().unwrap_err()] {
                assert!(error.to_string().contains("user 65534"), "{error}");
            }
        } else {
            println!("skipped: a file of another user needs root");
        }
    }

    #[test]
    fn a_name_is_one_of_a_file() {
        for wrong in ["", ".", "..hidden", "a b", "a/b", "ä", &"x".repeat(65)] {
            let error = WrappedAt::named(Path::new("/run/headroom"), wrong).unwrap_err();
            assert!(error.to_string().contains("no name"), "{wrong:?}: {error}");
        }
        let at = WrappedAt::new(Path::new("/run/headroom"), "db-1.a_b").unwrap();
        assert_eq!(at.path(), Path::new("/run/headroom/wrapped/db-1.a_b.json"));
    }
}
