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
            Self::Usage(error) | Self::Run(error) => f.write_str(&with_causes(error)),
        }
    }
}

/// An error and its causes, each once: many messages quote their cause, and a cause so quoted its own.
fn with_causes(error: &anyhow::Error) -> String {
    let (mut text, mut quoted) = (error.to_string(), false);
    for cause in error.chain().skip(1).map(ToString::to_string) {
        let end = cause.rsplit(": ").next().unwrap_or_default();
        quoted = text.contains(&cause) || quoted && text.contains(end);
        if !quoted {
            text = format!("{text}: {cause}");
        }
    }
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_printed_once() {
        for (causes, wanted) in [
            (
                &["x: not opened: no a. Make it", "no a", "Error code 14: no a"][..],
                "x: not opened: no a. Make it",
            ),
            (
                &["x: not opened", "n1: refused", "n2: refused"],
                "x: not opened: n1: refused: n2: refused",
            ),
            (&["x: no a", "no a", "code 5"], "x: no a: code 5"),
        ] {
            let (last, outer) = causes.split_last().unwrap();
            let error = outer
                .iter()
                .rev()
                .fold(anyhow::anyhow!("{last}"), |error, context| {
                    error.context(*context)
                });
            assert_eq!(Failure::Run(error).to_string(), wanted);
        }
    }
}
