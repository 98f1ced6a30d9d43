//! A service processor by Redfish (DMTF DSP0266): JSON over HTTPS.

mod http;
#[cfg(test)]
mod tests;

use super::command::default_limit_s;
use super::{PowerSwitch, Secret, SwitchError, limit, quoted};
use http::{Answer, Connection, Endpoint};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Where every Redfish service keeps its systems and its sessions.
const SYSTEMS: &str = "/redfish/v1/Systems";
const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
/// How long between two looks at a task where the service does not say.
const TASK_POLL: Duration = Duration::from_millis(500);
/// The shortest and the longest pause that a service may ask for between two looks.
const SHORTEST_POLL: Duration = Duration::from_millis(100);
const LONGEST_POLL: Duration = Duration::from_secs(5);
/// The end of a session is waited for no longer than this: the action itself has succeeded or failed already.
const LOG_OUT: Duration = Duration::from_secs(2);

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
    /// Seconds that one action has, its task included; the end of its session has two more. 30.
    #[serde(default = "default_limit_s")]
    pub limit_s: f64,
}

/// Switches by Redfish.
#[derive(Debug)]
pub struct RedfishSwitch {
    config: RedfishConfig,
    endpoint: Endpoint,
    tls: Arc<rustls::ClientConfig>,
    limit: Duration,
    runtime: Runtime,
}

/// What is to be done to a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Look,
    On,
    Off { force: bool },
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
        let tls = http::tls(config.ca_file.as_deref(), config.certificate.as_deref())?;
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
        let mut talk = Talk {
            switch: self,
            connection: Connection::new(self.endpoint.clone(), Arc::clone(&self.tls)),
            token: None,
            session: None,
        };
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
            logged_in.map_err(too_slow)??;
            let outcome = tokio::time::timeout_at(deadline, talk.act(action)).await;
            // Also where the time is over: each session that is left behind is one fewer for the next action.
            talk.log_out().await;
            outcome.map_err(too_slow)?
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
        self.act(Action::Look)
    }
}

fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty() && name.len() <= 200 && name.bytes().all(plain)
}

/// One action's conversation.
struct Talk<'a> {
    switch: &'a RedfishSwitch,
    connection: Connection,
    /// The session's token.
    token: Option<String>,
    /// The session's path, to end it.
    session: Option<String>,
}

impl Talk<'_> {
    fn wrong(&self, answer: &str, expected: impl Into<String>) -> SwitchError {
        SwitchError::Answer {
            who: self.switch.config.url.clone(),
            answer: quoted(answer),
            expected: expected.into(),
        }
    }

    async fn log_in(&mut self) -> Result<(), SwitchError> {
        let config = &self.switch.config;
        let password = config.password.read()?;
        if config.auth == RedfishAuth::Basic {
            self.connection.basic(&config.user, &password);
            return Ok(());
        }
        let who = json!({"UserName": config.user, "Password": password});
        let answer = self.connection.ask("POST", SESSIONS, None, Some(&who)).await?;
        if !answer.is_success() {
            let what = match answer.status {
                401 | 403 => "the user or the password is wrong",
                404 | 405 => "it has no sessions: set auth = \"basic\"",
                _ => "no session was made",
            };
            return Err(self.refused(&answer, what));
        }
        if answer.token.is_none() {
            return Err(self.wrong(
                &answer.text,
                "expected X-Auth-Token with the new session: try auth = \"basic\"",
            ));
        }
        self.token = answer.token;
        self.session = answer.location;
        Ok(())
    }

    /// Ends the session, of which a service processor has few.
    async fn log_out(&mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        let ended = tokio::time::timeout(LOG_OUT, self.ask("DELETE", &session, None)).await;
        if !matches!(ended, Ok(Ok(answer)) if answer.is_success()) {
            tracing::debug!(
                url = self.switch.config.url,
                "the session could not be ended; it runs out by itself"
            );
        }
    }

    async fn ask(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer, SwitchError> {
        let token = self.token.clone();
        self.connection.ask(method, path, token.as_deref(), body).await
    }

    /// A refusal, with the service's own words.
    fn refused(&self, answer: &Answer, what: &str) -> SwitchError {
        let said = answer.json.as_ref().and_then(|json| {
            let error = json.get("error")?;
            let extended = error.pointer("/@Message.ExtendedInfo/0/Message");
            extended.or_else(|| error.get("message"))?.as_str()
        });
        let said = said.unwrap_or(&answer.text);
        self.wrong(&format!("{} {said}", answer.status), what)
    }

    async fn get(&mut self, path: &str) -> Result<Value, SwitchError> {
        let answer = self.ask("GET", path, None).await?;
        if !answer.is_success() {
            let what = match answer.status {
                401 | 403 => format!("the user may not read {path}, or the password is wrong"),
                404 => format!("there is no {path}: correct `system`"),
                _ => format!("{path} cannot be read"),
            };
            return Err(self.refused(&answer, &what));
        }
        answer
            .json
            .ok_or_else(|| self.wrong(&answer.text, format!("expected JSON at {path}")))
    }

    /// The path of the system.
    async fn system(&mut self) -> Result<String, SwitchError> {
        if let Some(name) = &self.switch.config.system {
            return Ok(format!("{SYSTEMS}/{name}"));
        }
        let systems = self.get(SYSTEMS).await?;
        let members = systems.get("Members").and_then(Value::as_array);
        let members: Vec<&str> = members
            .into_iter()
            .flatten()
            .filter_map(|member| member.get("@odata.id")?.as_str())
            .collect();
        match members[..] {
            [one] => Ok(one.to_owned()),
            _ => Err(self.wrong(
                &members.join(" "),
                format!("it has {} systems: name one of them as `system`", members.len()),
            )),
        }
    }

    async fn act(&mut self, action: Action) -> Result<Option<bool>, SwitchError> {
        let path = self.system().await?;
        let system = self.get(&path).await?;
        let state = system
            .get("PowerState")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let is_on = match state {
            "On" | "PoweringOn" | "Paused" => Some(true),
            "Off" => Some(false),
            // Power is still on until it is off.
            "PoweringOff" => Some(true),
            _ => None,
        };
        let wanted: &[&str] = match (action, state) {
            (Action::Look, _) | (Action::On, "On" | "PoweringOn") | (Action::Off { .. }, "Off") => {
                return Ok(is_on);
            }
            (Action::Off { force: false }, "PoweringOff") => return Ok(is_on),
            (Action::On, _) => &["On", "ForceOn"],
            (Action::Off { force: false }, _) => &["GracefulShutdown"],
            (Action::Off { force: true }, _) => &["ForceOff"],
        };
        self.reset(&path, &system, wanted).await?;
        Ok(is_on)
    }

    /// `ComputerSystem.Reset` with the first of these types that the system knows.
    async fn reset(&mut self, path: &str, system: &Value, wanted: &[&str]) -> Result<(), SwitchError> {
        let action = system.pointer("/Actions/#ComputerSystem.Reset");
        let allowed = action
            .and_then(|action| action.get("ResetType@Redfish.AllowableValues")?.as_array())
            .map(|values| values.iter().filter_map(Value::as_str).collect::<Vec<_>>());
        let kind = match &allowed {
            None => wanted.first(),
            Some(allowed) => wanted.iter().find(|kind| allowed.contains(kind)),
        };
        let Some(kind) = kind else {
            let allowed = allowed.unwrap_or_default().join(", ");
            return Err(self.wrong(
                &allowed,
                format!(
                    "the system can be reset in these ways, and {} is not among them",
                    wanted.join(" or ")
                ),
            ));
        };
        let target = action.and_then(|action| action.get("target")?.as_str());
        let target = target.map_or_else(|| format!("{path}/Actions/ComputerSystem.Reset"), str::to_owned);
        let answer = self
            .ask("POST", &target, Some(&json!({"ResetType": kind})))
            .await?;
        if !answer.is_success() {
            return Err(self.refused(&answer, &format!("{kind} was refused")));
        }
        if answer.status == 202 {
            self.follow(kind, answer).await?;
        }
        Ok(())
    }

    /// Follows a task to its end (DSP0266, "Asynchronous operations").
    async fn follow(&mut self, kind: &str, mut answer: Answer) -> Result<(), SwitchError> {
        let named = answer
            .json
            .as_ref()
            .and_then(|json| json.get("@odata.id")?.as_str());
        let Some(monitor) = answer.location.clone().or(named.map(str::to_owned)) else {
            // It was accepted, and nobody says where to ask: what became of it shows in the power state.
            return Ok(());
        };
        // Bounded by the action's time limit.
        loop {
            let state = answer
                .json
                .as_ref()
                .and_then(|json| json.get("TaskState")?.as_str());
            match state {
                Some("Completed") => return Ok(()),
                Some(state @ ("Exception" | "Killed" | "Cancelled" | "Interrupted")) => {
                    let said = answer
                        .json
                        .as_ref()
                        .and_then(|json| json.pointer("/Messages/0/Message")?.as_str());
                    let text = format!("{state}: {}", said.unwrap_or_default());
                    return Err(self.wrong(&text, format!("the task of {kind} failed")));
                }
                _ => {}
            }
            let pause = answer.retry_after.unwrap_or(TASK_POLL);
            tokio::time::sleep(pause.clamp(SHORTEST_POLL, LONGEST_POLL)).await;
            answer = self.ask("GET", &monitor, None).await?;
            // A task monitor that is done answers as the action itself would have, and is then gone.
            let is_task = answer
                .json
                .as_ref()
                .is_some_and(|json| json.get("TaskState").is_some());
            match answer.status {
                404 | 410 => return Ok(()),
                202 => {}
                _ if !answer.is_success() => {
                    return Err(self.refused(&answer, &format!("the task of {kind} failed")));
                }
                _ if is_task => {}
                _ => return Ok(()),
            }
        }
    }
}
