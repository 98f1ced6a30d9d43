//! How a command fails, and with which exit status.

use crate::ConfigError;
use std::fmt;
use std::process::ExitCode;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// What was asked for is wrong: exit status 2, and nothing was changed.
    Usage(anyhow::Error),
    /// It went wrong: exit status 1.
    Run(anyhow::Error),
}

impl Failure {
    /// Marks an error as one of what was asked for.
    pub fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::Usage(error.into())
    }

    /// The exit status.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Run(_) => ExitCode::FAILURE,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(error) | Self::Run(error) => write!(f, "{error:#}"),
        }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        if error.is::<ConfigError>() {
            Self::Usage(error)
        } else {
            Self::Run(error)
        }
    }
}
