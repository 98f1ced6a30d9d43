//! What is said to a service processor in one action.

use super::super::{SwitchError, quoted};
use super::http::{Answer, Connection};
use super::{RedfishAuth, RedfishConfig};
use http::HeaderValue;
use serde_json::{Value, json};
use std::time::Duration;

/// Where a Redfish service begins (DSP0266, "Protocol version"), and where it keeps its systems and its sessions.
const ROOT: &str = "/redfish/v1/";
const SYSTEMS: &str = "/redfish/v1/Systems";
const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
/// How long between two looks at a task where the service does not say.
const TASK_POLL: Duration = Duration::from_millis(500);
/// The shortest and the longest pause that a service may ask for between two looks.
const MIN_POLL: Duration = Duration::from_millis(100);
const MAX_POLL: Duration = Duration::from_secs(5);
/// The end of a session is waited for no longer than this: the action itself has succeeded or failed already.
const LOG_OUT: Duration = Duration::from_secs(2);

/// What is to be done to a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Ask,
    On,
    Off { force: bool },
}

/// Where sessions are made.
enum Sessions {
    Unknown,
    Nowhere,
    At(String),
}

/// One action's conversation.
pub(super) struct Talk<'a> {
    config: &'a RedfishConfig,
    connection: Connection,
    /// The session's token.
    token: Option<HeaderValue>,
    /// The session's path, to end it.
    session: Option<String>,
}

impl<'a> Talk<'a> {
    /// Nothing is said yet.
    pub(super) const fn new(config: &'a RedfishConfig, connection: Connection) -> Self {
        Self {
            config,
            connection,
            token: None,
            session: None,
        }
    }

    fn wrong(&self, answer: &str, expected: impl Into<String>) -> SwitchError {
        SwitchError::Answer {
            who: self.config.url.clone(),
            answer: quoted(answer),
            expected: expected.into(),
        }
    }

    /// Opens a session, or says who asks from now on.
    pub(super) async fn log_in(&mut self) -> Result<(), SwitchError> {
        let config = self.config;
        let password = config.password.read()?;
        if config.auth == RedfishAuth::Basic {
            self.connection.basic(&config.user, &password);
            return Ok(());
        }
        let who = json!({"UserName": config.user, "Password": password});
        let mut answer = self.connection.ask("POST", SESSIONS, None, Some(&who)).await?;
        let mut sessions = Sessions::Unknown;
        if matches!(answer.status, 401 | 403 | 404 | 405 | 501) {
            sessions = self.sessions().await?;
            if let Sessions::At(path) = &sessions
                && path.trim_end_matches('/') != SESSIONS
            {
                answer = self.connection.ask("POST", path, None, Some(&who)).await?;
            }
        }
        if !answer.is_success() {
            let what = match (answer.status, sessions) {
                (404 | 405 | 501, _) | (_, Sessions::Nowhere) => "it has no sessions: set auth = \"basic\"",
                (401 | 403, _) => "the user or the password is wrong",
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
        self.session = answer.location();
        self.token = answer.token;
        Ok(())
    }

    /// Where its root, which everybody may read, says that sessions are made.
    async fn sessions(&mut self) -> Result<Sessions, SwitchError> {
        let root = self.connection.ask("GET", ROOT, None, None).await?;
        let Some(json) = root.json.as_ref().filter(|_| root.is_success()) else {
            return Ok(Sessions::Unknown);
        };
        let path = json.pointer("/Links/Sessions/@odata.id").and_then(Value::as_str);
        Ok(path.map_or(Sessions::Nowhere, |path| Sessions::At(path.to_owned())))
    }

    /// Ends the session, of which a service processor has few.
    pub(super) async fn log_out(&mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        let ended = tokio::time::timeout(LOG_OUT, self.ask("DELETE", &session, None)).await;
        if !matches!(ended, Ok(Ok(answer)) if answer.is_success()) {
            tracing::debug!(
                url = self.config.url,
                "the session could not be ended; it runs out by itself"
            );
        }
    }

    /// Ends the connection.
    pub(super) async fn hang_up(self) {
        self.connection.close().await;
    }

    async fn ask(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer, SwitchError> {
        let token = self.token.clone();
        self.connection.ask(method, path, token.as_ref(), body).await
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
        // It may be one that the service named.
        let path = quoted(path);
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
        if let Some(name) = &self.config.system {
            return Ok(format!("{SYSTEMS}/{name}"));
        }
        let systems = self.get(SYSTEMS).await?;
        let members = systems.get("Members").and_then(Value::as_array);
        let members: Vec<&str> = members
            .into_iter()
            .flatten()
            .filter_map(|member| member.get("@odata.id")?.as_str())
            .collect();
        // A collection may come in pages (DSP0266, "Paging"): what it counts is what there is.
        let counted = systems.get("Members@odata.count").and_then(Value::as_u64);
        let count = members
            .len()
            .max(counted.map_or(0, |count| usize::try_from(count).unwrap_or(usize::MAX)));
        match (&members[..], count) {
            (&[one], 1) => Ok(one.trim_end_matches('/').to_owned()),
            (_, 0) => Err(self.wrong("", "it has no system: does it still start itself?")),
            _ => Err(self.wrong(
                &members.join(" "),
                format!("it has {count} systems: name one of them as `system`"),
            )),
        }
    }

    /// Does it; whether the system was on before.
    pub(super) async fn act(&mut self, action: Action) -> Result<Option<bool>, SwitchError> {
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
            (Action::Ask, _) | (Action::On, "On" | "PoweringOn") | (Action::Off { .. }, "Off") => {
                return Ok(is_on);
            }
            (Action::Off { force: false }, "PoweringOff") => return Ok(is_on),
            (Action::On, _) => &["On", "ForceOn"],
            // Where no other way is offered: what an operating system that runs takes for the same.
            (Action::Off { force: false }, "On") => &["GracefulShutdown", "PushPowerButton"],
            (Action::Off { force: false }, _) => &["GracefulShutdown"],
            (Action::Off { force: true }, _) => &["ForceOff"],
        };
        self.reset(&path, &system, wanted).await?;
        Ok(is_on)
    }

    /// In which ways the system says that it can be reset: beside the action, or in a resource of its own (DSP0266,
    /// "Action info annotation"); `None` where it says nothing.
    async fn allowed(&mut self, action: &Value) -> Result<Option<Vec<String>>, SwitchError> {
        let values = |list: &Value| -> Vec<String> {
            let values = list.as_array().into_iter().flatten();
            values
                .filter_map(|value| Some(value.as_str()?.to_owned()))
                .collect()
        };
        if let Some(list) = action.get("ResetType@Redfish.AllowableValues") {
            return Ok(Some(values(list)));
        }
        let Some(info) = action.get("@Redfish.ActionInfo").and_then(Value::as_str) else {
            return Ok(None);
        };
        let info = self.get(info).await?;
        let parameters = info.get("Parameters").and_then(Value::as_array);
        let list = parameters.into_iter().flatten().find_map(|parameter| {
            let is_it = parameter.get("Name")?.as_str()? == "ResetType";
            parameter.get("AllowableValues").filter(|_| is_it)
        });
        Ok(list.map(values))
    }

    /// `ComputerSystem.Reset` with the first of these types that the system knows.
    async fn reset(&mut self, path: &str, system: &Value, wanted: &[&str]) -> Result<(), SwitchError> {
        let action = system.pointer("/Actions/#ComputerSystem.Reset");
        let allowed = match action {
            Some(action) => self.allowed(action).await?,
            None => None,
        };
        let kind = match &allowed {
            None => wanted.first(),
            Some(allowed) => wanted.iter().find(|kind| allowed.iter().any(|one| one == *kind)),
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
        let Some(monitor) = answer.location().or(named.map(str::to_owned)) else {
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
            tokio::time::sleep(pause.clamp(MIN_POLL, MAX_POLL)).await;
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
