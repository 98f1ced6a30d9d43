//! Whether a program can be helped at all, from its file: before it is started.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Why a program's workers cannot be put on call, with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// There is no such program in PATH.
    #[error("{0}: there is no such program in PATH: install it, or name its file with its folder")]
    Missing(PathBuf),
    /// There is no such file.
    #[error("{0}: there is no such file: check the path, or name a program that is in PATH without a folder")]
    NoFile(PathBuf),
    /// It is a folder.
    #[error("{0}: it is a folder and no program: name the server's file in it")]
    Folder(PathBuf),
    /// It may not be executed.
    #[error("{0}: it may not be executed by this user: make it executable (chmod +x), or name another file")]
    NotExecutable(PathBuf),
    /// It cannot be read.
    #[error("{0}: it cannot be read: {1}")]
    Unreadable(PathBuf, io::Error),
    /// It is none for Linux.
    #[error("{0}: it is neither a program for this machine (ELF) nor a script (#!)")]
    NoProgram(PathBuf),
    /// A script's interpreter is not there.
    #[error(
        "{0}: its first line names {1:?} as its interpreter, and there is no such file{2}: correct the line, or install that program"
    )]
    NoInterpreter(PathBuf, PathBuf, &'static str),
    /// A statically linked program loads no library.
    #[error(
        "{0}: it is linked statically, so that no library can be preloaded into it: use the distribution's dynamically linked package"
    )]
    Static(PathBuf),
    /// A Go program calls the kernel without libc.
    #[error(
        "{0}: it is a Go program, which calls the kernel without libc and multiplexes its connections itself: there is no thread of a \
         connection to park"
    )]
    Go(PathBuf),
    /// The kernel lets nobody preload into a set-user-ID program.
    #[error(
        "{0}: it is a set-user-ID or set-group-ID program, into which the kernel lets nobody preload: start it as the user that it is to \
         run as, from a copy without that bit"
    )]
    SetUser(PathBuf),
}

impl Unfit {
    /// The exit status with which a shell says the same: 127 for what is not there, 126 for what is and cannot be executed; `None` where
    /// the shell would start it.
    pub const fn shell_status(&self) -> Option<u8> {
        match self {
            Self::Missing(_) | Self::NoFile(_) | Self::NoInterpreter(..) => Some(127),
            Self::Folder(_) | Self::NotExecutable(_) | Self::Unreadable(..) | Self::NoProgram(_) => Some(126),
            Self::Static(_) | Self::Go(_) | Self::SetUser(_) => None,
        }
    }
}

/// The file of a program as the shell finds it.
///
/// # Errors
/// There is none in `path`, the value of PATH; or, where it is named with a folder, it is none that can be executed.
pub fn find(program: &Path, path: &str) -> Result<PathBuf, Unfit> {
    if program.components().count() > 1 {
        let file = program.to_owned();
        return match fs::metadata(program) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Unfit::NoFile(file)),
            Err(error) => Err(Unfit::Unreadable(file, error)),
            Ok(metadata) if metadata.is_dir() => Err(Unfit::Folder(file)),
            Ok(_) if !may_execute(program) => Err(Unfit::NotExecutable(file)),
            Ok(_) => Ok(file),
        };
    }
    let is_program =
        |file: &PathBuf| fs::metadata(file).is_ok_and(|metadata| metadata.is_file()) && may_execute(file);
    let mut files = path.split(':').map(|folder| Path::new(folder).join(program));
    files
        .find(is_program)
        .ok_or_else(|| Unfit::Missing(program.to_owned()))
}

/// Whether this user may execute a file. To root the kernel says no only where nobody may.
fn may_execute(file: &Path) -> bool {
    rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Whether the preload library can be loaded into a program. A script's interpreter is started with it, and what the script starts
/// inherits it.
///
/// # Errors
/// It cannot, with the reason.
pub fn check(file: &Path) -> Result<(), Unfit> {
    let unreadable = |error| Unfit::Unreadable(file.to_owned(), error);
    let metadata = fs::metadata(file).map_err(unreadable)?;
    let us = fs::metadata("/proc/self").map_err(|error| Unfit::Unreadable("/proc/self".into(), error))?;
    let owner = [metadata.uid(), metadata.gid()];
    if changes_user(metadata.mode(), owner, [us.uid(), us.gid()]) {
        return Err(Unfit::SetUser(file.to_owned()));
    }
    let open = fs::File::open(file).map_err(unreadable)?;
    let mut first = [0; MAX_FIRST_LINE];
    let length = read_at(&open, 0, &mut first).map_err(unreadable)?;
    if let Some(line) = first[..length].strip_prefix(b"#!") {
        return match interpreter(line) {
            Some(path) if !path.exists() => {
                let ends_as_elsewhere = path.as_os_str().as_encoded_bytes().ends_with(b"\r");
                let why = match ends_as_elsewhere {
                    true => ", for the line ends with a carriage return, as Windows writes it",
                    false => "",
                };
                Err(Unfit::NoInterpreter(file.to_owned(), path, why))
            }
            _ => Ok(()),
        };
    }
    let elf = Elf::of(&open).map_err(unreadable)?;
    let elf = elf.ok_or_else(|| Unfit::NoProgram(file.to_owned()))?;
    match elf.is_go().map_err(unreadable)? {
        true => Err(Unfit::Go(file.to_owned())),
        false if elf.has_loader() => Ok(()),
        false => Err(Unfit::Static(file.to_owned())),
    }
}

/// The kernel reads as much of a script's first line (BINPRM_BUF_SIZE).
const MAX_FIRST_LINE: usize = 256;

/// The program that a script's first line names, after its `#!`.
fn interpreter(line: &[u8]) -> Option<PathBuf> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let word = line
        .trim_ascii_start()
        .split(|byte| b" \t".contains(byte))
        .next()?;
    (!word.is_empty()).then(|| PathBuf::from(std::ffi::OsStr::from_bytes(word)))
}

/// Whether whoever executes a file of this mode and this owner becomes another user or group: then the loader preloads nothing. Where
/// root executes su, it does.
const fn changes_user(mode: u32, owner: [u32; 2], us: [u32; 2]) -> bool {
    // Without the group's right to execute, the bit is that of mandatory locking.
    let sets_group = mode & 0o2010 == 0o2010;
    mode & 0o4000 != 0 && owner[0] != us[0] || sets_group && owner[1] != us[1]
}

/// What is at a place of a file: as much of it as there is.
fn read_at(file: &fs::File, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], at.saturating_add(read as u64)) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// Tables of an ELF file that are longer than any linker's are not read, bytes.
const MAX_TABLE: usize = 1 << 20;
/// As much of the writable data of a file without names of sections is looked through for Go's mark.
const MAX_DATA: u64 = 1 << 20;
/// Kinds of program headers: what is loaded, and the dynamic loader's name.
const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;
/// The flag of a program header whose memory may be written.
const PF_W: u32 = 2;

/// A 64-bit ELF file of this machine's byte order, of which the tables alone are read: a server has tens of megabytes, and its user waits.
struct Elf<'a> {
    file: &'a fs::File,
    header: [u8; 64],
    programs: Vec<u8>,
}

/// A number in a table of the file.
fn number<const BYTES: usize>(table: &[u8], at: usize) -> Option<u64> {
    let bytes = table.get(at..at.checked_add(BYTES)?)?;
    let mut word = [0; 8];
    match cfg!(target_endian = "little") {
        true => word[..BYTES].copy_from_slice(bytes),
        false => word[8 - BYTES..].copy_from_slice(bytes),
    }
    Some(u64::from_ne_bytes(word))
}

impl<'a> Elf<'a> {
    /// `None` where it is none, or is cut off before the end of its program headers.
    fn of(file: &'a fs::File) -> io::Result<Option<Self>> {
        let order = if cfg!(target_endian = "little") { 1 } else { 2 };
        let mut header = [0; 64];
        let read = read_at(file, 0, &mut header)?;
        if read < header.len() || header[..6] != [0x7f, b'E', b'L', b'F', 2, order] {
            return Ok(None);
        }
        let elf = Self {
            file,
            header,
            programs: Vec::new(),
        };
        let programs = elf.table::<32, 54, 56>()?;
        Ok(programs.map(|programs| Self { programs, ..elf }))
    }

    /// A table by where in the header its place, the size of an entry and their number are; `None` where it is cut off or too long.
    fn table<const PLACE: usize, const SIZE: usize, const COUNT: usize>(
        &self,
    ) -> io::Result<Option<Vec<u8>>> {
        let half = |at| number::<2>(&self.header, at).unwrap_or(0) as usize;
        let place = number::<8>(&self.header, PLACE).unwrap_or(0);
        self.part(place, half(SIZE) * half(COUNT))
    }

    fn part(&self, place: u64, length: usize) -> io::Result<Option<Vec<u8>>> {
        if length > MAX_TABLE {
            return Ok(None);
        }
        let mut bytes = vec![0; length];
        let read = read_at(self.file, place, &mut bytes)?;
        Ok((read == length).then_some(bytes))
    }

    /// Each program header's bytes.
    fn programs(&self) -> impl Iterator<Item = &[u8]> {
        let size = number::<2>(&self.header, 54).unwrap_or(0).max(1) as usize;
        self.programs.chunks_exact(size)
    }

    /// Whether a dynamic loader starts it, which preloads.
    fn has_loader(&self) -> bool {
        let mut kinds = self.programs().map(|header| number::<4>(header, 0));
        kinds.any(|kind| kind == Some(u64::from(PT_INTERP)))
    }

    /// Whether Go's linker wrote it: it has a section of Go's of what it was built of, or, where the names of sections were taken out, that
    /// section's mark in its writable data. (As `go version` finds it.)
    fn is_go(&self) -> io::Result<bool> {
        if let Some(names) = self.names()? {
            return Ok(contains(&names, b".go.buildinfo\0"));
        }
        let is_data = |header: &&[u8]| {
            number::<4>(header, 0) == Some(u64::from(PT_LOAD))
                && number::<4>(header, 4).is_some_and(|flags| flags & u64::from(PF_W) != 0)
        };
        let Some(data) = self.programs().find(is_data) else {
            return Ok(false);
        };
        let place = number::<8>(data, 8).unwrap_or(0);
        let length = number::<8>(data, 32).unwrap_or(0).min(MAX_DATA) as usize;
        let mut bytes = vec![0; length];
        let read = read_at(self.file, place, &mut bytes)?;
        Ok(contains(&bytes[..read], b"\xff Go buildinf:"))
    }

    /// The names of its sections, each between zeros; `None` where it has none.
    fn names(&self) -> io::Result<Option<Vec<u8>>> {
        let Some(sections) = self.table::<40, 58, 60>()? else {
            return Ok(None);
        };
        let size = number::<2>(&self.header, 58).unwrap_or(0).max(1) as usize;
        let which = number::<2>(&self.header, 62).unwrap_or(0) as usize;
        let Some(section) = sections.chunks_exact(size).nth(which) else {
            return Ok(None);
        };
        let [place, length] = [24, 32].map(|at| number::<8>(section, at).unwrap_or(0));
        match usize::try_from(length) {
            Ok(length @ 1..) => self.part(place, length),
            _ => Ok(None),
        }
    }
}

fn contains(bytes: &[u8], mark: &[u8]) -> bool {
    bytes.windows(mark.len()).any(|window| window == mark)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    fn file(bytes: &[u8], mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server");
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    /// An ELF file with one program header of a kind.
    fn elf(kind: u32) -> Vec<u8> {
        let order = if cfg!(target_endian = "little") { 1 } else { 2 };
        let mut bytes = vec![0; 120];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, order]);
        bytes[32..40].copy_from_slice(&64u64.to_ne_bytes());
        bytes[54..56].copy_from_slice(&56u16.to_ne_bytes());
        bytes[56..58].copy_from_slice(&1u16.to_ne_bytes());
        bytes[64..68].copy_from_slice(&kind.to_ne_bytes());
        bytes
    }

    /// The same, with names of sections, Go's among them.
    fn go_with_section(kind: u32) -> Vec<u8> {
        let names = b"\0.text\0.go.buildinfo\0.shstrtab\0";
        let mut bytes = elf(kind);
        let sections = bytes.len() as u64;
        bytes[40..48].copy_from_slice(&sections.to_ne_bytes());
        for (at, half) in [(58, 64u16), (60, 1), (62, 0)] {
            bytes[at..at + 2].copy_from_slice(&half.to_ne_bytes());
        }
        let mut section = [0; 64];
        section[24..32].copy_from_slice(&(sections + 64).to_ne_bytes());
        section[32..40].copy_from_slice(&(names.len() as u64).to_ne_bytes());
        bytes.extend_from_slice(&section);
        bytes.extend_from_slice(names);
        bytes
    }

    /// The same without sections, and with the mark in writable data.
    fn go_stripped() -> Vec<u8> {
        let mut bytes = elf(1);
        let mark = b"\xff Go buildinf:";
        let place = bytes.len() as u64;
        bytes[68..72].copy_from_slice(&6u32.to_ne_bytes());
        bytes[72..80].copy_from_slice(&place.to_ne_bytes());
        bytes[96..104].copy_from_slice(&(mark.len() as u64).to_ne_bytes());
        bytes.extend_from_slice(mark);
        bytes
    }

    #[test]
    fn a_program_that_cannot_be_helped_is_refused_with_the_reason() {
        let why = |bytes: &[u8], mode| {
            let (_folder, path) = file(bytes, mode);
            check(&path).map_err(|unfit| unfit.to_string())
        };
        assert_eq!(why(&elf(3), 0o755), Ok(()));
        assert_eq!(why(b"#!/bin/sh\nexec mariadbd", 0o755), Ok(()));
        assert!(why(&elf(1), 0o755).unwrap_err().contains("linked statically"));
        // Its own: nobody becomes anybody else.
        assert_eq!(why(&elf(3), 0o6755), Ok(()));
        assert!(why(b"hello", 0o755).unwrap_err().contains("neither a program"));
        for kind in [1, 3] {
            assert!(
                why(&go_with_section(kind), 0o755)
                    .unwrap_err()
                    .contains("a Go program")
            );
        }
        assert!(why(&go_stripped(), 0o755).unwrap_err().contains("a Go program"));
        // A program that has the mark among what it says is none.
        let mut speaks_of_it = elf(3);
        speaks_of_it.extend_from_slice(b"\xff Go buildinf:");
        assert_eq!(why(&speaks_of_it, 0o755), Ok(()));
        // A file that is cut off is none.
        let whole = elf(3);
        for length in [63, 66, whole.len() - 1] {
            assert!(why(&whole[..length], 0o755).unwrap_err().contains("neither"));
        }
    }

    #[test]
    fn who_becomes_another_user_is_given_no_library() {
        let (root, user) = ([0, 0], [1000, 1000]);
        for (mode, owner, us, changes) in [
            (0o4755, root, user, true),
            (0o2755, root, user, true),
            (0o2745, root, user, false),
            (0o755, root, user, false),
            (0o4755, root, root, false),
            (0o4755, user, root, true),
            (0o2755, [0, 42], root, true),
            (0o6755, user, user, false),
        ] {
            assert_eq!(
                changes_user(mode, owner, us),
                changes,
                "{mode:o} {owner:?} {us:?}"
            );
        }
        let su = Unfit::SetUser("/usr/bin/su".into()).to_string();
        assert!(su.contains("set-user-ID"), "{su}");
    }

    #[test]
    fn a_program_is_found_as_the_shell_finds_it() {
        let (folder, path) = file(&elf(3), 0o755);
        let folder = folder.path().to_str().unwrap();
        assert_eq!(
            find(Path::new("server"), &format!("/nowhere:{folder}")).unwrap(),
            path
        );
        let refused = |program: &Path, path: &str| {
            let unfit = find(program, path).unwrap_err();
            (unfit.shell_status(), unfit.to_string())
        };
        assert_eq!(refused(Path::new("server"), "/nowhere").0, Some(127));
        assert_eq!(find(&path, "").unwrap(), path);
        let (status, said) = refused(&Path::new(folder).join("none"), "");
        assert!(
            status == Some(127) && said.contains("no such file") && said.contains("none"),
            "{said}"
        );
        let (status, said) = refused(&Path::new(folder).join("."), "");
        assert!(status == Some(126) && said.contains("a folder"), "{said}");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let (status, said) = refused(&path, "");
        assert!(status == Some(126) && said.contains("chmod +x"), "{said}");
        // In PATH the next one is taken, as by the shell.
        assert_eq!(refused(Path::new("server"), folder).0, Some(127));
    }
}
