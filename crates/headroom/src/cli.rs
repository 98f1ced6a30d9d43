//! The command line: what can be asked for, and the help that teaches it.

use crate::commands::Command;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser};
use std::error::Error;
use std::ffi::OsString;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

/// Keeps a web service inside its latency SLO on the fewest watts.
///
/// Headroom measures every second how far a service's tail latency is below its SLO target, and turns that
/// gap into saved energy: servers that are off, a lower frequency or power cap, cores parked so that they sleep. When latency
/// nears the target it gives back at once. `headroom doctor` says what each of these can save on this machine.
///
/// Start with `headroom demo` (nothing needed but root for cgroups) and `headroom doctor` (what this machine can do).
#[derive(Debug, Parser)]
#[command(name = "headroom", version = env!("HEADROOM_VERSION"), max_term_width = 110, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Say more on standard error: -v for information, -vv for debugging.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// The commands of the feature `lab`, for a program that is built without it.
const OF_LAB: [&str; 13] = [
    "demo",
    "emulate",
    "load",
    "profile",
    "place",
    "trace",
    "service",
    "sim",
    "validate",
    "compare",
    "reproduce",
    "tune",
    "identify",
];

impl Cli {
    /// Reads the command line; one that is wrong ends the program and says why.
    pub fn of_arguments() -> Self {
        Self::parsed(std::env::args_os()).unwrap_or_else(|error| match not_in_build(&error) {
            Some(why) => Self::command().error(ErrorKind::InvalidSubcommand, why).exit(),
            None => error.exit(),
        })
    }

    /// Understands these words, the program's name first.
    fn parsed(words: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, clap::Error> {
        let matches = with_negative_numbers(Self::command()).try_get_matches_from(words);
        let matches = matches.map_err(|error| match no_number(&error) {
            // Not formatted for a command: that would add the usage of the whole program.
            Some(why) => clap::Error::raw(
                ErrorKind::ValueValidation,
                format!("{why}\n\nFor more information, try '--help'.\n"),
            ),
            None => error,
        })?;
        Self::from_arg_matches(&matches)
    }
}

/// The same command line, to whose options `-5` is a value: what is wrong with it then comes with the option's name.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let takes = |arg: &clap::Arg| arg.get_action().takes_values() && !arg.is_positional();
    let command = command.mut_args(|arg| match takes(&arg) {
        true => arg.allow_negative_numbers(true),
        false => arg,
    });
    command.mut_subcommands(with_negative_numbers)
}

/// Where a value is no number, of which the parsers of the standard library say that a digit is invalid: what it has to be.
fn no_number(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    };
    let (option, value) = text(ContextKind::InvalidArg).zip(text(ContextKind::InvalidValue))?;
    let source = error.source()?;
    let wanted = match source.downcast_ref::<ParseIntError>().map(ParseIntError::kind) {
        Some(IntErrorKind::PosOverflow | IntErrorKind::NegOverflow) => "it is too large a number",
        Some(_) => "write a whole number in digits, without a sign or a unit, such as 8",
        None if source.is::<ParseFloatError>() => "write a number in digits, such as 8 or 0.5",
        None => return None,
    };
    Some(format!("invalid value '{value}' for '{option}': {wanted}"))
}

/// Where the command that was asked for is one that this build was made without: what to do.
fn not_in_build(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(command)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    OF_LAB.contains(&command.as_str()).then(|| {
        format!(
            "`headroom {command}` is not in this production build: build one that has it, with the feature `lab` (cargo \
             build --release --features lab; without --no-default-features it is on)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "lab")]
    use clap::Subcommand;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        with_negative_numbers(Cli::command()).debug_assert();
    }

    #[test]
    fn a_negative_number_is_refused_with_the_name_of_its_option() {
        for (words, option) in [
            ("up --config a --duration -5", "--duration <SECONDS>"),
            (
                "gateway --listen 127.0.0.1:1 --backend http://a --batch -5",
                "--batch <MS>",
            ),
            (
                "gateway --listen 127.0.0.1:1 --backend http://a --threads -1",
                "--threads <N>",
            ),
        ] {
            let words = ["headroom"].into_iter().chain(words.split(' '));
            let error = Cli::parsed(words).unwrap_err().to_string();
            assert!(
                error.contains("invalid value '-") && error.contains(option),
                "{error}"
            );
        }
    }

    #[test]
    fn what_is_no_number_is_told_what_it_has_to_be() {
        let whole = "write a whole number in digits, without a sign or a unit, such as 8";
        let gateway = "gateway --listen 127.0.0.1:1 --backend http://a";
        for (words, said) in [
            (
                format!("{gateway} --backend-idle none"),
                format!("invalid value 'none' for '--backend-idle <N>': {whole}"),
            ),
            (
                format!("{gateway} --max-queued -1"),
                format!("invalid value '-1' for '--max-queued <N>': {whole}"),
            ),
            // With a range of its own.
            (
                format!("{gateway} --target-ms 250ms"),
                format!("invalid value '250ms' for '--target-ms <MS>': {whole}"),
            ),
            (
                format!("{gateway} --retries 99999999999"),
                "99999999999 is not in 0..=4294967295".to_owned(),
            ),
            (
                format!("{gateway} --backend-idle 99999999999999999999999"),
                "it is too large a number".to_owned(),
            ),
        ] {
            let words = ["headroom"].into_iter().chain(words.split(' '));
            let error = Cli::parsed(words).unwrap_err().to_string();
            assert!(error.contains(&said) && error.contains("--help"), "{error}");
            assert!(!error.contains("Usage"), "{error}");
        }
    }

    #[test]
    fn a_name_with_either_dash_is_known() {
        for name in [
            "--cache-policy s3-fifo",
            "--cache-policy s3_fifo",
            "--balance least_connections",
        ] {
            let words =
                format!("headroom gateway --listen 127.0.0.1:1 --backend http://a --cache 64MiB {name}");
            assert!(Cli::parsed(words.split(' ')).is_ok(), "{name}");
        }
    }

    #[test]
    fn what_is_hidden_is_in_no_usage() {
        // Each of these says how the gateway is started.
        for words in [
            "gateway --bogus",
            "gateway",
            "gateway --launched --threads 2",
            "gateway --cache-object 1MiB",
            "gateway --listen 127.0.0.1:1 --backend http://a --cache-object 1MiB",
        ] {
            let words = ["headroom"].into_iter().chain(words.split(' '));
            let error = Cli::parsed(words).unwrap_err().to_string();
            let usage = error.split("Usage:").nth(1).unwrap_or_default();
            assert!(!usage.contains("--launched"), "{error}");
        }
    }

    #[test]
    fn a_command_that_is_not_in_the_build_is_named_with_the_remedy() {
        // As clap says it where a program has no such command.
        let parser = clap::Command::new("headroom").subcommand(clap::Command::new("up"));
        let refused = |command| {
            let error = parser
                .clone()
                .try_get_matches_from(["headroom", command])
                .unwrap_err();
            not_in_build(&error)
        };
        let why = refused("sim").unwrap();
        assert!(
            why.contains("`headroom sim` is not in this production build") && why.contains("--features lab")
        );
        assert_eq!(refused("smi"), None);
        let here = Cli::command();
        for command in OF_LAB {
            assert_eq!(
                here.find_subcommand(command).is_some(),
                cfg!(feature = "lab"),
                "{command}"
            );
        }
    }

    #[test]
    #[cfg(feature = "lab")]
    fn every_command_of_lab_is_known_to_a_build_without_it() {
        let lab = headroom_lab::Command::augment_subcommands(clap::Command::new("lab"));
        for command in lab.get_subcommands() {
            assert!(OF_LAB.contains(&command.get_name()), "{}", command.get_name());
        }
    }

    #[test]
    fn what_the_systemd_units_start_is_understood() {
        let units = [
            include_str!("../../../packaging/systemd/headroom-up.service"),
            include_str!("../../../packaging/systemd/headroom-agent.service"),
            include_str!("../../../packaging/systemd/headroom-guard.service"),
        ];
        let commands: Vec<&str> = units
            .iter()
            .flat_map(|unit| unit.lines())
            .filter_map(|line| {
                let (key, command) = line.split_once('=')?;
                ["ExecStart", "ExecStopPost"].contains(&key).then_some(command)
            })
            .collect();
        assert_eq!(commands.len(), 5);
        for command in commands {
            let parsed = Cli::try_parse_from(command.split(' '));
            assert!(parsed.is_ok(), "{command}: {:?}", parsed.err());
        }
    }
}
