//! A service processor by Redfish (DMTF DSP0266): JSON over HTTPS.

mod http;
mod talk;
#[cfg(test)]
mod tests;
mod tls;

use super::command::default_limit_s;
use super::{PowerSwitch, Secret, SwitchError, limit};
use http::{Connection, Endpoint};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use talk::{Action, Talk};
use tokio::runtime::Runtime;

/// How the user is told to the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RedfishAuth {
    /// A session for each action, which is ended after it.
    #[default]
    Session,
    /// Name and password with each request (RFC 7617).
    Basic,
}

/// A service processor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedfishConfig {
    /// Its address, as `https://HOST` or `https://HOST:PORT`.
    pub url: String,
    /// Which of its systems: the last word of its path under `/redfish/v1/Systems`. May be left out where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The user.
    pub user: String,
    /// The password.
    pub password: Secret,
    /// A session or basic authentication. Session.
    #[serde(default)]
    pub auth: RedfishAuth,
    /// Certificates of the authorities that may have signed its certificate, PEM. By default the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// Instead: its own certificate, PEM, such as the one that it came with and signed itself. Only this one is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// Seconds that one action has, its task included; the end of its session has two more, that of its connection one. 30.
    #[serde(default = "default_limit_s")]
    pub limit_s: f64,
}

/// Switches by Redfish.
#[derive(Debug)]
pub struct RedfishSwitch {
    config: RedfishConfig,
    endpoint: Endpoint,
    tls: rustls::ClientConfig,
    limit: Duration,
    runtime: Runtime,
}

impl RedfishSwitch {
    /// A switch for this service processor. It is not spoken to yet.
    ///
    /// # Errors
    /// [`SwitchError`]: an address that is none, certificates or a password that cannot be read.
    pub fn open(config: RedfishConfig) -> Result<Self, SwitchError> {
        let endpoint = Endpoint::parse(&config.url)?;
        let limit = limit("limit_s", config.limit_s)?;
        if let Some(system) = config.system.as_ref().filter(|name| !is_plain(name)) {
            return Err(SwitchError::Value {
                key: "system",
                value: format!("{system:?}"),
                expected: "letters, digits and -_. as in the last word of /redfish/v1/Systems/1".into(),
            });
        }
        let tls = tls::config(config.ca_file.as_deref(), config.certificate.as_deref())?;
        config.password.read()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|cause| SwitchError::Network {
                who: config.url.clone(),
                cause: cause.to_string(),
                remedy: "raise the limit of open files or processes".into(),
            })?;
        Ok(Self {
            config,
            endpoint,
            tls,
            limit,
            runtime,
        })
    }

    /// Does it, within the time limit; whether the system was on before.
    fn act(&self, action: Action) -> Result<Option<bool>, SwitchError> {
        let connection = Connection::new(self.endpoint.clone(), self.tls.clone());
        let mut talk = Talk::new(&self.config, connection);
        let too_slow = |_| SwitchError::Network {
            who: self.config.url.clone(),
            cause: format!("did not finish within {} s", self.config.limit_s),
            remedy:
                "is the address right and the service processor reachable? A slow one needs a larger limit_s"
                    .into(),
        };
        // The timers belong to the runtime, so they must be made inside it.
        self.runtime.block_on(async {
            let deadline = tokio::time::Instant::now() + self.limit;
            let logged_in = tokio::time::timeout_at(deadline, talk.log_in()).await;
            let mut outcome = logged_in.map_err(too_slow).flatten().map(|()| None);
            if outcome.is_ok() {
                let done = tokio::time::timeout_at(deadline, talk.act(action)).await;
                outcome = done.map_err(too_slow).flatten();
                // Also where the time is over: each session that is left behind is one fewer for the next action.
                talk.log_out().await;
            }
            // Here, for nothing goes on between two actions: it would stay open until the next.
            talk.hang_up().await;
            outcome
        })
    }
}

impl PowerSwitch for RedfishSwitch {
    fn on(&mut self) -> Result<(), SwitchError> {
        self.act(Action::On).map(drop)
    }

    fn off(&mut self, force: bool) -> Result<(), SwitchError> {
        self.act(Action::Off { force }).map(drop)
    }

    fn state(&mut self) -> Result<Option<bool>, SwitchError> {
        self.act(Action::Ask)
    }
}

fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty() && name.len() <= 200 && name.bytes().all(plain)
}
