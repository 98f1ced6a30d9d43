//! A service processor by IPMI, through `ipmitool`, which speaks it with the quirks of every vendor.

use super::command::{Output, default_limit_s, run};
use super::{PowerSwitch, Secret, SwitchError, limit, quoted};
use crate::process::installed;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// The variable that `ipmitool -E` takes the password from.
const PASSWORD: &str = "IPMI_PASSWORD";
/// The cipher suites that are neither broken nor without encryption (IPMI 2.0, table 22-20).
const CIPHER_SUITES: [u8; 2] = [3, 17];
/// How often ipmitool asks before it gives up.
const ASKS: &str = "2";
/// How many waits for an answer a command's limit has room for: finding out that nobody is there takes ipmitool no more. A
/// wait is at least a second, which is ipmitool's own and too short for a busy service processor: one that gets a message of
/// the handshake a second time gives it up.
const WAITS: f64 = 6.0;

/// A service processor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IpmiConfig {
    /// Its name or address.
    pub host: String,
    /// Its UDP port; 623 where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The user; one with the privilege level OPERATOR is enough.
    pub user: String,
    /// The password.
    pub password: Secret,
    /// `lanplus` (IPMI 2.0) or `lan` (1.5, which sends the password nearly in the clear). lanplus.
    #[serde(default = "default_interface")]
    pub interface: String,
    /// The cipher suite, 17 or 3, where the best that the service processor offers is not to be asked for: one that does not
    /// answer that question costs ipmitool more than a third of `limit_s` a command. For lanplus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cipher_suite: Option<u8>,
    /// Where ipmitool is, if not on PATH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
    /// Seconds that one command has; an answer is waited for for a sixth of it before it is asked for again. 30.
    #[serde(default = "default_limit_s")]
    pub limit_s: f64,
}

fn default_interface() -> String {
    "lanplus".into()
}

/// Switches by IPMI.
#[derive(Debug)]
pub struct IpmiSwitch {
    config: IpmiConfig,
    program: String,
    limit: Duration,
}

impl IpmiSwitch {
    /// A switch for this service processor. It is not spoken to yet.
    ///
    /// # Errors
    /// [`SwitchError`]: a value that cannot be, no ipmitool, no password.
    pub fn open(config: IpmiConfig) -> Result<Self, SwitchError> {
        for (key, value) in [("host", &config.host), ("user", &config.user)] {
            // A word that begins with a dash would be an option.
            if value.is_empty() || value.starts_with('-') || value.contains('\0') {
                return Err(SwitchError::Value {
                    key,
                    value: format!("{value:?}"),
                    expected: "a name that does not begin with a dash".into(),
                });
            }
        }
        if !["lanplus", "lan"].contains(&config.interface.as_str()) {
            return Err(SwitchError::Value {
                key: "interface",
                value: format!("{:?}", config.interface),
                expected: "\"lanplus\" or \"lan\"".into(),
            });
        }
        if let Some(suite) = config.cipher_suite
            && (!CIPHER_SUITES.contains(&suite) || config.interface != "lanplus")
        {
            return Err(SwitchError::Value {
                key: "cipher_suite",
                value: suite.to_string(),
                expected: "17 or 3, with the interface lanplus".into(),
            });
        }
        let limit = limit("limit_s", config.limit_s)?;
        let program = config
            .program
            .clone()
            .or_else(|| installed("ipmitool"))
            .ok_or_else(|| SwitchError::Program {
                program: "ipmitool".into(),
                cause: "it is not installed".into(),
                remedy: "apt install ipmitool".into(),
            })?;
        config.password.read()?;
        Ok(Self {
            program: program.display().to_string(),
            config,
            limit,
        })
    }

    fn power(&self, action: &str) -> Result<String, SwitchError> {
        let config = &self.config;
        let wait_s = (config.limit_s / WAITS).max(1.0).floor();
        // With -v it says what a handshake failed at, and nothing of passwords.
        let mut argv: Vec<String> = ["-v", "-R", ASKS, "-N"].map(str::to_owned).into();
        argv.insert(0, self.program.clone());
        argv.push(wait_s.to_string());
        argv.extend(["-I", &config.interface, "-H", &config.host].map(str::to_owned));
        if let Some(port) = config.port {
            argv.extend(["-p".to_owned(), port.to_string()]);
        }
        if let Some(suite) = config.cipher_suite {
            argv.extend(["-C".to_owned(), suite.to_string()]);
        }
        let rest = ["-U", &config.user, "-L", "OPERATOR", "-E"];
        argv.extend(rest.map(str::to_owned));
        argv.extend(["chassis", "power", action].map(str::to_owned));
        let environment = [(PASSWORD, config.password.read()?), ("LC_ALL", "C".to_owned())];
        let output = run(&argv, &environment, self.limit)?;
        if output.status.success() {
            return Ok(output.out);
        }
        Err(self.failure(&output))
    }

    /// What ipmitool's failure means.
    fn failure(&self, output: &Output) -> SwitchError {
        let said = telling(&output.err, &output.out);
        let meaning = MEANINGS.iter().find(|(words, _)| said.contains(words));
        match meaning {
            Some((_, remedy)) => SwitchError::Network {
                who: format!("IPMI at {}", self.config.host),
                cause: quoted(&said),
                remedy: (*remedy).into(),
            },
            None => SwitchError::Failed {
                program: format!("{} to {}", self.program, self.config.host),
                status: output.status.to_string(),
                said: match quoted(&said) {
                    said if said.is_empty() => ", and said nothing".into(),
                    said => format!(", saying: {said}"),
                },
            },
        }
    }

    /// Tells it, and where it refuses looks whether there is nothing to do: some do not take a shutdown of what is off.
    fn tell(&mut self, action: &str, on: bool) -> Result<(), SwitchError> {
        match self.power(action) {
            Ok(_) => Ok(()),
            Err(refused @ SwitchError::Failed { .. }) => match self.state() {
                Ok(Some(is_on)) if is_on == on => Ok(()),
                _ => Err(refused),
            },
            Err(error) => Err(error),
        }
    }
}

/// What ipmitool says when it is not let in, in the order in which to look for it, and what to do.
const MEANINGS: [(&str, &str); 12] = [
    // Before the next: a slow one's answers to a message that was sent twice do not fit each other.
    ("no response from RAKP 1", SLOW),
    ("RAKP 2 HMAC is invalid", WRONG),
    ("unauthorized name", NOBODY),
    ("privilege level", UNPRIVILEGED),
    ("Session Privilege Level", UNPRIVILEGED),
    ("Activate Session", "the user or the password is wrong"),
    ("algorithm", CIPHER),
    ("cipher suite", CIPHER),
    ("Address lookup", "correct host"),
    ("password is longer", LONG),
    ("Authentication Capabilities", ABSENT),
    ("Get Auth Capabilities", ABSENT),
];
const SLOW: &str =
    "there is no such user, or the service processor is slow: then a larger limit_s gives it more time";
const WRONG: &str = "the password is wrong";
const NOBODY: &str = "there is no such user, or it may not use IPMI over LAN";
const UNPRIVILEGED: &str = "the user needs the privilege level OPERATOR";
const CIPHER: &str = "it does not take this cipher suite: set cipher_suite to 3 or 17";
const LONG: &str = "IPMI takes at most 20 bytes, and 16 with the interface lan";
const ABSENT: &str = "does the service processor answer at this address, with IPMI over LAN switched on?";

/// What of ipmitool's output says why it failed: not what it goes through each time.
fn telling(err: &str, out: &str) -> String {
    const ALWAYS: [&str; 8] = [
        "Loading IANA PEN Registry",
        "IANA PEN registry open failed",
        "Using best available cipher suite",
        "Unable to Get Channel Cipher Suites",
        "Get HPM.x Capabilities request failed",
        "Running Get ",
        "Invalid completion code received",
        "Discovered IPMB address",
    ];
    let mut lines: Vec<&str> = Vec::new();
    for line in err
        .lines()
        .chain(out.lines())
        .map(|line| line.trim_start_matches(['>', ' ']))
    {
        let is_noise = line.trim().is_empty() || ALWAYS.iter().any(|always| line.starts_with(always));
        if !is_noise && !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.join("; ")
}

impl PowerSwitch for IpmiSwitch {
    fn on(&mut self) -> Result<(), SwitchError> {
        self.tell("on", true)
    }

    fn off(&mut self, force: bool) -> Result<(), SwitchError> {
        self.tell(if force { "off" } else { "soft" }, false)
    }

    fn state(&mut self) -> Result<Option<bool>, SwitchError> {
        let text = self.power("status")?;
        let reported = text
            .lines()
            .find_map(|line| line.strip_prefix("Chassis Power is "));
        match reported.map(str::trim) {
            Some("on") => Ok(Some(true)),
            Some("off") => Ok(Some(false)),
            _ => Err(SwitchError::Answer {
                who: format!("{} about {}", self.program, self.config.host),
                answer: quoted(&text),
                expected: "expected \"Chassis Power is on\" or \"... off\"".into(),
            }),
        }
    }
}

#[cfg(test)]
#[path = "ipmi_tests.rs"]
mod tests;
