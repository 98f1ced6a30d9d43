//! Writing keys and certificates so that no secret is readable by others at any moment, and nothing is lost.

use super::{CertError, is_there};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Larger than any certificate or key.
const MAX_BYTES: u64 = 1 << 20;

fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CertError {
    let path = path.to_path_buf();
    move |cause| CertError::Io { action, path, cause }
}

pub(super) fn make_dir(dir: &Path) -> Result<(), CertError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(io("make", dir))
}

/// Reads a text file of at most a mebibyte.
pub(super) fn read(path: &Path) -> Result<String, CertError> {
    let mut text = String::new();
    let file = File::open(path).map_err(io("read", path))?;
    file.take(MAX_BYTES)
        .read_to_string(&mut text)
        .map_err(io("read", path))?;
    Ok(text)
}

fn create(path: &Path, text: &str, mode: u32) -> Result<(), CertError> {
    let mut file = match OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
    {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(CertError::Exists { path: path.into() });
        }
        opened => opened.map_err(io("make", path))?,
    };
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(path);
    }
    written.map_err(io("write", path))
}

/// Writes a certificate and its key, or neither; refuses where one of the two is there.
pub(super) fn write_pair(crt: &Path, crt_pem: &str, key: &Path, key_pem: &str) -> Result<(), CertError> {
    if let Some(path) = [crt, key].into_iter().find(|path| is_there(path)) {
        return Err(CertError::Exists { path: path.into() });
    }
    create(key, key_pem, 0o600)?;
    create(crt, crt_pem, 0o644).inspect_err(|_| {
        let _ = fs::remove_file(key);
    })
}

/// Writes a file in the place of one that may be there; it is whole at every moment.
pub(super) fn replace(path: &Path, text: &str) -> Result<(), CertError> {
    let new = temporary(path)?;
    create(&new, text, 0o644)?;
    fs::rename(&new, path).map_err(io("replace", path))
}

/// Adds a line to a file, which is made where it is missing.
pub(super) fn append(path: &Path, line: &str) -> Result<(), CertError> {
    let opened = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path);
    let mut file = opened.map_err(io("open", path))?;
    file.write_all(line.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(io("write", path))
}

/// Replaces a certificate and its key. Each file is whole at every moment; between the two renames they do not match,
/// which a program that starts just then reports and does not use.
pub(super) fn replace_pair(crt: &Path, crt_pem: &str, key: &Path, key_pem: &str) -> Result<(), CertError> {
    let (new_crt, new_key) = (temporary(crt)?, temporary(key)?);
    write_pair(&new_crt, crt_pem, &new_key, key_pem)?;
    fs::rename(&new_key, key).map_err(io("replace", key))?;
    fs::rename(&new_crt, crt).map_err(io("replace", crt))
}

/// The path beside it that is written first; what an earlier attempt left there is removed.
fn temporary(path: &Path) -> Result<PathBuf, CertError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io("remove", &new)(error)),
        _ => Ok(new),
    }
}
