//! Switching a machine's power: another machine's, over the network or by whatever command its owner has for it.
//!
//! | switch | on | off | state |
//! |---|---|---|---|
//! | [`CommandSwitch`] | a command | a command | a command, by its exit status, or not known |
//! | [`IpmiSwitch`] | `ipmitool chassis power on` | `... soft`, by force `... off` | `... status` |
//! | [`RedfishSwitch`] | `ComputerSystem.Reset` `On`, else `ForceOn` | `GracefulShutdown`, else `PushPowerButton`; by force `ForceOff` | `PowerState` |
//! | [`WakeSwitch`] | a magic packet | a command (poweroff, or `systemctl suspend`) | a command, or not known |
//!
//! A switch does what it is commanded and says what came of it. Whether a machine is needed, when a boot has failed and when to
//! try again is decided elsewhere. Every action has a time limit; what is read of an answer or an output is bounded;
//! passwords come from a file or an environment variable and are never on a command line, in a log or in a message.

mod command;
mod ipmi;
mod networks;
mod redfish;
mod secret;
mod wake;

pub use command::{CommandConfig, CommandSwitch, Output, run};
pub use ipmi::{IpmiConfig, IpmiSwitch};
pub use redfish::{RedfishAuth, RedfishConfig, RedfishSwitch};
pub use secret::Secret;
pub use wake::{Mac, SecureOn, WakeConfig, WakeSwitch, magic_packet};

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// The longest time limit of one action, in seconds: an hour.
const MAX_S: f64 = 3_600.0;

/// Something that switches one machine's power.
pub trait PowerSwitch: Send {
    /// Switches it on. On a machine that is on this changes nothing.
    ///
    /// # Errors
    /// [`SwitchError`]: it could not be commanded, or said no.
    fn on(&mut self) -> Result<(), SwitchError>;

    /// Tells it to shut down and go off; `force` cuts its power where the switch can do that.
    ///
    /// # Errors
    /// [`SwitchError`]: it could not be commanded, or said no.
    fn off(&mut self, force: bool) -> Result<(), SwitchError>;

    /// Whether it is on; `None` where this switch cannot know.
    ///
    /// # Errors
    /// [`SwitchError`]: it could not be asked.
    fn state(&mut self) -> Result<Option<bool>, SwitchError>;
}

/// Which switch, and what it needs to know: the `power` table of a server. The key `kind` says which.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "kebab-case",
    expecting = "a table that says its kind, as { kind = \"ipmi\", host = \"...\", user = \"...\", password = { file = \"...\" } }"
)]
pub enum SwitchConfig {
    /// Commands of the user's.
    Command(CommandConfig),
    /// A service processor that speaks IPMI 2.0, through `ipmitool`.
    Ipmi(IpmiConfig),
    /// A service processor that speaks Redfish.
    Redfish(RedfishConfig),
    /// Wake-on-LAN and a command to shut down or suspend.
    WakeOnLan(WakeConfig),
}

impl SwitchConfig {
    /// The word for it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Command(_) => "command",
            Self::Ipmi(_) => "ipmi",
            Self::Redfish(_) => "redfish",
            Self::WakeOnLan(_) => "wake-on-lan",
        }
    }

    /// Makes the switch. Nothing is sent or run yet; programs and files that it needs are looked for.
    ///
    /// # Errors
    /// [`SwitchError`] for a value that cannot be, a program that is not installed, a file that cannot be read.
    pub fn open(&self) -> Result<Box<dyn PowerSwitch>, SwitchError> {
        Ok(match self {
            Self::Command(config) => Box::new(CommandSwitch::open(config.clone())?),
            Self::Ipmi(config) => Box::new(IpmiSwitch::open(config.clone())?),
            Self::Redfish(config) => Box::new(RedfishSwitch::open(config.clone())?),
            Self::WakeOnLan(config) => Box::new(WakeSwitch::open(config.clone())?),
        })
    }
}

/// A machine's power could not be switched or asked for.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// A value of the configuration.
    #[error("{key} is {value}: {expected}")]
    Value {
        /// The key.
        key: &'static str,
        /// What it is.
        value: String,
        /// What it may be.
        expected: String,
    },
    /// A program could not be started.
    #[error("{program} cannot be run: {cause}; {remedy}")]
    Program {
        /// The program that cannot be started.
        program: String,
        /// Why not.
        cause: String,
        /// What to do.
        remedy: String,
    },
    /// A program did not end in time; it and what it started in its process group were killed.
    #[error("{program} did not end within {limit_s} s and was killed, with its process group{said}")]
    TimeLimit {
        /// The program that took too long.
        program: String,
        /// Its limit.
        limit_s: f64,
        /// What it had said, or nothing.
        said: String,
    },
    /// A program said no.
    #[error("{program} failed ({status}){said}")]
    Failed {
        /// The program that failed.
        program: String,
        /// How it ended.
        status: String,
        /// What it had said, or nothing.
        said: String,
    },
    /// What came back is no answer to what was asked.
    #[error("{who} answered {answer:?}: {expected}")]
    Answer {
        /// Who was asked.
        who: String,
        /// What it said, shortened.
        answer: String,
        /// What was expected, and what to do.
        expected: String,
    },
    /// A password, or another file.
    #[error("{}: {cause}; {remedy}", file.display())]
    File {
        /// The file that cannot be used.
        file: PathBuf,
        /// What is wrong.
        cause: String,
        /// What to do.
        remedy: String,
    },
    /// Somebody on the network cannot be reached, or not as expected.
    #[error("{who}: {cause}; {remedy}")]
    Network {
        /// The address or the network interface.
        who: String,
        /// What is wrong.
        cause: String,
        /// What to do.
        remedy: String,
    },
}

/// A time limit as a duration.
fn limit(key: &'static str, seconds: f64) -> Result<Duration, SwitchError> {
    if (0.1..=MAX_S).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(SwitchError::Value {
            key,
            value: format!("{seconds:?}"),
            expected: format!("between 0.1 and {MAX_S} seconds"),
        })
    }
}

/// The beginning of a text of somebody else's, on one line, to put in a message.
fn quoted(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(200) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}
