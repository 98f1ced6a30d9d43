//! A service processor by IPMI, through `ipmitool`, which speaks it with the quirks of every vendor.

use super::command::{default_limit_s, must_succeed};
use super::{PowerSwitch, Secret, SwitchError, limit, quoted};
use crate::queue::installed;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// The variable that `ipmitool -E` takes the password from.
const PASSWORD: &str = "IPMI_PASSWORD";

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
    /// Where ipmitool is, if not on PATH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
    /// Seconds that one command has. 30.
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
        let mut argv = vec![
            self.program.clone(),
            "-I".into(),
            config.interface.clone(),
            "-H".into(),
            config.host.clone(),
        ];
        if let Some(port) = config.port {
            argv.extend(["-p".to_owned(), port.to_string()]);
        }
        let rest = [
            "-U",
            &config.user,
            "-L",
            "OPERATOR",
            "-E",
            "chassis",
            "power",
            action,
        ];
        argv.extend(rest.map(str::to_owned));
        let environment = [(PASSWORD, config.password.read()?), ("LC_ALL", "C".to_owned())];
        must_succeed(&argv, &environment, self.limit).map(|output| output.out)
    }
}

impl PowerSwitch for IpmiSwitch {
    fn on(&mut self) -> Result<(), SwitchError> {
        self.power("on").map(drop)
    }

    fn off(&mut self, force: bool) -> Result<(), SwitchError> {
        self.power(if force { "off" } else { "soft" }).map(drop)
    }

    fn state(&mut self) -> Result<Option<bool>, SwitchError> {
        let text = self.power("status")?;
        let last = text.split_whitespace().last().unwrap_or_default();
        match last.to_ascii_lowercase().as_str() {
            "on" => Ok(Some(true)),
            "off" => Ok(Some(false)),
            _ => Err(SwitchError::Answer {
                who: format!("{} about {}", self.program, self.config.host),
                answer: quoted(&text),
                expected: "expected \"Chassis Power is on\" or \"... off\"".into(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::process::{Command, Stdio};

    /// Stands in for ipmitool: keeps a machine's power in a file, and writes down how it was called.
    const PRETENDED: &str = r#"#!/bin/sh
dir=$(dirname "$0")
echo "$*" >> "$dir/calls"
[ "$IPMI_PASSWORD" = "sesame" ] || { echo "Error: Unable to establish IPMI v2 / RMCP+ session" >&2; exit 1; }
for word; do action=$word; done
case $action in
on) echo on > "$dir/power"; echo "Chassis Power Control: Up/On" ;;
soft) [ -e "$dir/stubborn" ] || echo off > "$dir/power"; echo "Chassis Power Control: Soft" ;;
off) echo off > "$dir/power"; echo "Chassis Power Control: Down/Off" ;;
status) echo "Chassis Power is $(cat "$dir/power")" ;;
esac
"#;

    fn config(dir: &Path, password: &str) -> IpmiConfig {
        let program = dir.join("ipmitool");
        // Written by another process: while this one has it open for writing, a child that another test's thread forks
        // keeps it open too, and it could not be executed.
        let mut writer = Command::new("/bin/sh")
            .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
            .arg(&program)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        writer
            .stdin
            .take()
            .unwrap()
            .write_all(PRETENDED.as_bytes())
            .unwrap();
        assert!(writer.wait().unwrap().success());
        let file = dir.join("password");
        fs::write(&file, password).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        fs::write(dir.join("power"), "off").unwrap();
        IpmiConfig {
            host: "bmc1".into(),
            port: Some(6230),
            user: "operator".into(),
            password: Secret::File(file),
            interface: "lanplus".into(),
            program: Some(program),
            limit_s: 30.0,
        }
    }

    #[test]
    fn on_soft_off_and_off_by_force_with_the_password_on_no_command_line() {
        let dir = tempfile::tempdir().unwrap();
        let mut switch = IpmiSwitch::open(config(dir.path(), "sesame\n")).unwrap();
        assert_eq!(switch.state().unwrap(), Some(false));
        switch.on().unwrap();
        assert_eq!(switch.state().unwrap(), Some(true));
        fs::write(dir.path().join("stubborn"), "").unwrap();
        switch.off(false).unwrap();
        assert_eq!(switch.state().unwrap(), Some(true));
        switch.off(true).unwrap();
        assert_eq!(switch.state().unwrap(), Some(false));
        let calls = fs::read_to_string(dir.path().join("calls")).unwrap();
        assert!(calls.contains("-I lanplus -H bmc1 -p 6230 -U operator -L OPERATOR -E chassis power soft"));
        assert!(!calls.contains("sesame"), "{calls}");
    }

    #[test]
    fn a_wrong_password_and_an_odd_answer_are_errors_that_do_not_tell_the_password() {
        let dir = tempfile::tempdir().unwrap();
        let mut switch = IpmiSwitch::open(config(dir.path(), "open\n")).unwrap();
        let error = switch.on().unwrap_err().to_string();
        assert!(
            error.contains("Unable to establish") && !error.contains("open\n"),
            "{error}"
        );
        let mut switch = IpmiSwitch::open(config(dir.path(), "sesame\n")).unwrap();
        fs::write(dir.path().join("power"), "unknown").unwrap();
        assert!(matches!(switch.state(), Err(SwitchError::Answer { .. })));
    }

    #[test]
    fn what_would_be_an_option_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let good = config(dir.path(), "sesame");
        let host = IpmiConfig {
            host: "-x".into(),
            ..good.clone()
        };
        assert!(
            IpmiSwitch::open(host)
                .unwrap_err()
                .to_string()
                .starts_with("host is")
        );
        let interface = IpmiConfig {
            interface: "open".into(),
            ..good
        };
        assert!(IpmiSwitch::open(interface).is_err());
    }
}
