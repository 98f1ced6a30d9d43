//! Passwords.

use super::SwitchError;
use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// The longest password, bytes.
const MAX_BYTES: u64 = 4096;

/// Where a password is. It is read again for each use, so that it can be changed while a controller runs.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Secret {
    /// In a file, whose first line it is; readable by nobody but its owner and group.
    File(PathBuf),
    /// In an environment variable of this process.
    Env(String),
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(written: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        enum Place {
            File(PathBuf),
            Env(String),
        }
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Place(Place),
            Other(IgnoredAny),
        }
        match Written::deserialize(written) {
            Ok(Written::Place(Place::File(file))) => Ok(Self::File(file)),
            Ok(Written::Place(Place::Env(name))) => Ok(Self::Env(name)),
            // What stands there may be the password: an error of serde's would have it.
            Ok(Written::Other(_)) | Err(_) => Err(D::Error::custom(
                "password: write { file = \"...\" }, whose first line it is, or { env = \"...\" }: what is written here is not shown, \
                 for it may be the password",
            )),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => write!(f, "file {}", file.display()),
            Self::Env(name) => write!(f, "${name}"),
        }
    }
}

impl Secret {
    /// The password.
    ///
    /// # Errors
    /// [`SwitchError::File`], [`SwitchError::Value`]: it is not there, is empty, or everybody may read it. Never with the
    /// password itself.
    pub fn read(&self) -> Result<String, SwitchError> {
        match self {
            Self::Env(name) => std::env::var(name)
                .ok()
                .filter(|value| !value.is_empty())
                .ok_or_else(|| SwitchError::Value {
                    key: "password",
                    value: format!("in the environment variable {name}, which is not set, empty or no text"),
                    expected: format!("export {name} before the start, or name a file"),
                }),
            Self::File(file) => {
                let error = |cause: String, remedy: String| SwitchError::File {
                    file: file.clone(),
                    cause,
                    remedy,
                };
                let unread = |cause: std::io::Error| {
                    error(
                        cause.to_string(),
                        "it must hold the password, on its first line".into(),
                    )
                };
                let opened = std::fs::File::open(file).map_err(unread)?;
                let mode = opened.metadata().map_err(unread)?.permissions().mode();
                if mode & 0o007 != 0 {
                    let cause = format!(
                        "everybody on this machine may use this password (mode {:o})",
                        mode & 0o777
                    );
                    return Err(error(cause, format!("chmod 600 {}", file.display())));
                }
                let mut text = String::new();
                opened.take(MAX_BYTES).read_to_string(&mut text).map_err(unread)?;
                let password = text.lines().next().unwrap_or_default();
                if password.is_empty() {
                    return Err(error(
                        "its first line is empty".into(),
                        "it must hold the password".into(),
                    ));
                }
                Ok(password.to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};

    #[test]
    fn a_password_is_the_first_line_of_a_file_that_not_everybody_may_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        write(&file, "se cret\nrest\n").unwrap();
        let secret = Secret::File(file.clone());
        set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        assert_eq!(secret.read().unwrap(), "se cret");
        set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let error = secret.read().unwrap_err().to_string();
        assert!(
            error.contains("chmod 600") && !error.contains("se cret"),
            "{error}"
        );
        set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        write(&file, "\n").unwrap();
        assert!(secret.read().unwrap_err().to_string().contains("empty"));
        assert!(Secret::File(dir.path().join("none")).read().is_err());
    }

    #[test]
    fn what_is_written_in_the_place_of_a_password_is_not_repeated() {
        for written in [
            "\"hunter2\"",
            "7331",
            "{\"hunter2\": 1}",
            "{\"file\": 7331}",
            "[\"hunter2\"]",
        ] {
            let error = serde_json::from_str::<Secret>(written).unwrap_err().to_string();
            assert!(error.starts_with("password: write { file = "), "{error}");
            assert!(!error.contains("hunter2") && !error.contains("7331"), "{error}");
        }
    }

    #[test]
    fn a_variable_that_is_not_set_is_named() {
        let error = Secret::Env("HEADROOM_NO_SUCH_PASSWORD".into())
            .read()
            .unwrap_err();
        assert!(error.to_string().contains("export HEADROOM_NO_SUCH_PASSWORD"));
        assert_eq!(
            serde_json::from_str::<Secret>(r#"{"env": "X"}"#).unwrap(),
            Secret::Env("X".into())
        );
    }
}
