//! Whether a program can be helped at all, from its file: before it is started.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Why a program's workers cannot be put on call, with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// There is no such program.
    #[error("{0}: there is no such program in PATH")]
    Missing(PathBuf),
    /// It cannot be read.
    #[error("{0}: it cannot be read: {1}")]
    Unreadable(PathBuf, io::Error),
    /// It is none for Linux.
    #[error("{0}: it is neither a program for this machine (ELF) nor a script (#!)")]
    NoProgram(PathBuf),
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

/// The file of a program as the shell finds it.
///
/// # Errors
/// There is none in `path`, the value of PATH.
pub fn find(program: &Path, path: &str) -> Result<PathBuf, Unfit> {
    if program.components().count() > 1 {
        return match program.is_file() {
            true => Ok(program.to_owned()),
            false => Err(Unfit::Missing(program.to_owned())),
        };
    }
    let is_program = |file: &PathBuf| {
        fs::metadata(file)
            .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    let mut files = path.split(':').map(|folder| Path::new(folder).join(program));
    files
        .find(is_program)
        .ok_or_else(|| Unfit::Missing(program.to_owned()))
}

/// Whether the preload library can be loaded into a program. A script's interpreter is started with it, and what the script starts
/// inherits it.
///
/// # Errors
/// It cannot, with the reason.
pub fn check(file: &Path) -> Result<(), Unfit> {
    let unreadable = |error| Unfit::Unreadable(file.to_owned(), error);
    let mode = fs::metadata(file).map_err(unreadable)?.permissions().mode();
    if mode & 0o6000 != 0 {
        return Err(Unfit::SetUser(file.to_owned()));
    }
    let bytes = fs::read(file).map_err(unreadable)?;
    if bytes.starts_with(b"#!") {
        return Ok(());
    }
    let headers = program_headers(&bytes).ok_or_else(|| Unfit::NoProgram(file.to_owned()))?;
    // PT_INTERP is 3: the dynamic loader, which preloads.
    match headers.contains(&3) {
        false if is_go(&bytes) => Err(Unfit::Go(file.to_owned())),
        false => Err(Unfit::Static(file.to_owned())),
        true if is_go(&bytes) => Err(Unfit::Go(file.to_owned())),
        true => Ok(()),
    }
}

/// The kinds of an ELF file's program headers; `None` where it is no 64-bit one of this byte order.
fn program_headers(bytes: &[u8]) -> Option<Vec<u32>> {
    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    if bytes.get(..6)? != [0x7f, b'E', b'L', b'F', 2, order] {
        return None;
    }
    let half = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let start = usize::try_from(u64::from_ne_bytes(bytes.get(32..40)?.try_into().ok()?)).ok()?;
    let (size, count) = (usize::from(half(54)?), usize::from(half(56)?));
    let kind = |index: usize| {
        let at = start.checked_add(index * size)?;
        Some(u32::from_ne_bytes(
            bytes.get(at..at.checked_add(4)?)?.try_into().ok()?,
        ))
    };
    (0..count).map(kind).collect()
}

/// Go's linker writes what it built, with this mark at its beginning.
fn is_go(bytes: &[u8]) -> bool {
    let mark = b"\xff Go buildinf:";
    bytes.windows(mark.len()).any(|window| window == mark)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;

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

    #[test]
    fn a_program_that_cannot_be_helped_is_refused_with_the_reason() {
        let why = |bytes: &[u8], mode| {
            let (_folder, path) = file(bytes, mode);
            check(&path).map_err(|unfit| unfit.to_string())
        };
        assert_eq!(why(&elf(3), 0o755), Ok(()));
        assert_eq!(why(b"#!/bin/sh\nexec mariadbd", 0o755), Ok(()));
        assert!(why(&elf(1), 0o755).unwrap_err().contains("linked statically"));
        assert!(why(&elf(3), 0o4755).unwrap_err().contains("set-user-ID"));
        assert!(why(b"hello", 0o755).unwrap_err().contains("neither a program"));
        let mut go = elf(3);
        go.extend_from_slice(b"\xff Go buildinf:");
        assert!(why(&go, 0o755).unwrap_err().contains("a Go program"));
        // A file that is cut off is none.
        assert!(why(&elf(3)[..70], 0o755).is_ok());
        assert!(why(&elf(3)[..66], 0o755).unwrap_err().contains("neither"));
    }

    #[test]
    fn a_program_is_found_as_the_shell_finds_it() {
        let (folder, path) = file(&elf(3), 0o755);
        let folder = folder.path().to_str().unwrap();
        assert_eq!(
            find(Path::new("server"), &format!("/nowhere:{folder}")).unwrap(),
            path
        );
        assert!(find(Path::new("server"), "/nowhere").is_err());
        assert_eq!(find(&path, "").unwrap(), path);
    }
}
