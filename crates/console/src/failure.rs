//! How a command fails, and with which exit status.

use crate::{ConfigError, ConfigErrors};
use std::fmt;
use std::process::ExitCode;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// What was asked for is wrong: exit status 2, and nothing was changed.
    Usage(anyhow::Error),
    /// It went wrong: exit status 1.
    Run(anyhow::Error),
    /// It went as it should, and what came of it is not what was demanded: exit status 99, which other load generators have for
    /// their thresholds too.
    Demand(anyhow::Error),
    /// A program that was to be started is not: the exit status that a shell has for it, 126, 127, or 128 and the signal that came before.
    Program(u8, anyhow::Error),
    /// Several at once, as a check finds them: exit status 2 where one of them is of what was asked for.
    Several(Vec<Failure>),
}

impl Failure {
    /// Marks an error as one of what was asked for.
    pub fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::Usage(error.into())
    }

    /// The exit status.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Program(status, _) => ExitCode::from(*status),
            Self::Demand(_) => ExitCode::from(99),
            usage if usage.is_usage() => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }

    fn is_usage(&self) -> bool {
        match self {
            Self::Usage(_) => true,
            Self::Run(_) | Self::Demand(_) | Self::Program(..) => false,
            Self::Several(all) => all.iter().any(Self::is_usage),
        }
    }

    /// What went wrong, each by itself; beside it the place in a configuration, where it has one.
    pub fn each(&self) -> Vec<(String, Option<&ConfigError>)> {
        let error = match self {
            Self::Several(all) => return all.iter().flat_map(Self::each).collect(),
            Self::Usage(error) | Self::Run(error) | Self::Demand(error) | Self::Program(_, error) => error,
        };
        if let Some(errors) = error.downcast_ref::<ConfigErrors>() {
            return errors
                .iter()
                .map(|error| (error.to_string(), Some(error)))
                .collect();
        }
        vec![(with_causes(error), error.downcast_ref())]
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.each().into_iter().map(|(text, _)| text).collect();
        f.write_str(&lines.join("\n"))
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
        if error.is::<ConfigError>() || error.is::<ConfigErrors>() {
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

    #[test]
    fn a_demand_that_was_not_met_has_an_exit_status_of_its_own() {
        let demand = Failure::Demand(anyhow::anyhow!("p95>250ms: failed"));
        assert_eq!(demand.to_string(), "p95>250ms: failed");
        let statuses = [
            demand,
            Failure::Run(anyhow::anyhow!("x")),
            Failure::usage(anyhow::anyhow!("x")),
        ]
        .map(|failure| format!("{:?}", failure.exit_code()));
        assert_eq!(
            statuses,
            [99, 1, 2].map(|status| format!("{:?}", ExitCode::from(status)))
        );
    }

    #[test]
    fn several_are_said_each_by_itself_and_one_of_what_was_asked_for_decides_the_exit_status() {
        let document = crate::Document::shipped("m.toml", "[a]\nx = 1\ny = 2\n");
        let of_file = document.within(&[("a.x", 1.0, 2.0, 3.0), ("a.y", 2.0, 3.0, 4.0)]);
        let broken = || Failure::Run(anyhow::anyhow!("it broke"));
        let both = Failure::Several(vec![Failure::from(of_file.unwrap_err()), broken()]);
        let each = both.each();
        let lines: Vec<Option<usize>> = each
            .iter()
            .map(|(_, place)| place.and_then(|error| error.line))
            .collect();
        assert_eq!(lines, [Some(2), Some(3), None]);
        assert_eq!(both.to_string().lines().count(), 3);
        assert_eq!(
            format!("{:?}", both.exit_code()),
            format!("{:?}", ExitCode::from(2))
        );
        let run = Failure::Several(vec![broken()]);
        assert_eq!(
            format!("{:?}", run.exit_code()),
            format!("{:?}", ExitCode::FAILURE)
        );
    }
}
