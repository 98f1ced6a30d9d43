//! The made-up service processor.

use super::super::{RedfishAuth, RedfishConfig};
use crate::switch::Secret;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// Ways of services that the standard allows, or that are met with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Odd {
    Nothing,
    /// Each path in an answer ends with a slash.
    Slashes,
    /// The system by its name redirects to the system by its number, and a reset too.
    Redirects,
    /// Everything redirects to itself.
    Circles,
    /// The system redirects to another host.
    SendsAway,
    /// How a system can be reset is in a resource of its own.
    ActionInfo,
    /// A shutdown only by its power button.
    Button,
    /// Answers have no length and end with the connection, of which TLS is not informed.
    NoLength,
    /// The connection ends after each answer, which does not say so.
    ShortLived,
    /// Sessions are made elsewhere.
    SessionsElsewhere,
    /// There are no sessions, and nobody is told anything but the root without a password.
    NoSessions,
    /// The list of systems comes in pages of one.
    Pages,
}

/// The made-up machine.
#[derive(Debug)]
pub struct Machine {
    pub power: &'static str,
    /// Answers to a reset with a task, that many looks long.
    pub task_looks: Option<u32>,
    /// How that task ends.
    pub task_ends: &'static str,
    pub systems: u32,
    pub sessions: i32,
    pub log: Vec<String>,
    pub hangs: bool,
    /// What it does in its own way.
    pub odd: Odd,
}

pub struct Bmc {
    pub dir: TempDir,
    pub port: u16,
    pub machine: Arc<Mutex<Machine>>,
    /// Connections that were opened, and that have ended since.
    pub opened: Arc<AtomicUsize>,
    pub ended: Arc<AtomicUsize>,
}

impl Bmc {
    pub fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority_key = rcgen::KeyPair::generate().unwrap();
        let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let root = authority.self_signed(&authority_key).unwrap();
        let issuer = rcgen::Issuer::new(authority, authority_key);
        let key = rcgen::KeyPair::generate().unwrap();
        let leaf = rcgen::CertificateParams::new(vec!["localhost".to_owned()])
            .unwrap()
            .signed_by(&key, &issuer)
            .unwrap();
        fs::write(dir.path().join("ca.crt"), root.pem()).unwrap();
        fs::write(dir.path().join("leaf.crt"), leaf.pem()).unwrap();
        fs::write(dir.path().join("password"), "sesame\n").unwrap();
        fs::set_permissions(dir.path().join("password"), Permissions::from_mode(0o600)).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![leaf.der().clone()],
                PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
            )
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let machine = Arc::new(Mutex::new(Machine {
            power: "Off",
            task_looks: None,
            task_ends: "Completed",
            systems: 1,
            sessions: 0,
            log: Vec::new(),
            hangs: false,
            odd: Odd::Nothing,
        }));
        let shared = Arc::clone(&machine);
        let (opened, ended) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let (opening, ending) = (Arc::clone(&opened), Arc::clone(&ended));
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (config, machine, ending) =
                    (Arc::clone(&config), Arc::clone(&shared), Arc::clone(&ending));
                opening.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    let tls = rustls::ServerConnection::new(config).unwrap();
                    converse(rustls::StreamOwned::new(tls, stream.unwrap()), &machine);
                    ending.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self {
            dir,
            port,
            machine,
            opened,
            ended,
        }
    }

    pub fn config(&self) -> RedfishConfig {
        RedfishConfig {
            url: format!("https://localhost:{}", self.port),
            system: None,
            user: "operator".into(),
            password: Secret::File(self.dir.path().join("password")),
            auth: RedfishAuth::Session,
            ca_file: Some(self.dir.path().join("ca.crt")),
            certificate: None,
            limit_s: 30.0,
        }
    }
}

/// Answers requests until the other end has enough.
fn converse<S: Read + Write>(stream: S, machine: &Mutex<Machine>) {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut head, mut line) = (String::new(), String::new());
        while stream.read_line(&mut line).is_ok_and(|read| read > 2) {
            head.push_str(&line);
            line.clear();
        }
        if head.is_empty() {
            return;
        }
        let field = |name: &str| {
            let found = head.lines().find_map(|line| {
                let (key, value) = line.split_once(": ")?;
                key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            });
            found.unwrap_or_default()
        };
        let mut body = vec![0; field("content-length").parse().unwrap_or(0)];
        stream.read_exact(&mut body).unwrap();
        let body = String::from_utf8(body).unwrap();
        let what = head.split_once(" HTTP/").unwrap().0.to_owned();
        let who = field("x-auth-token") + &field("authorization");
        let (status, fields, answer) = machine.lock().unwrap().answer(&what, &who, &body);
        let odd = machine.lock().unwrap().odd;
        let length = match odd {
            Odd::NoLength => String::new(),
            _ => format!("content-length: {}\r\n", answer.len()),
        };
        let answer = format!("HTTP/1.1 {status}\r\n{fields}{length}\r\n{answer}");
        if stream.get_mut().write_all(answer.as_bytes()).is_err()
            || odd == Odd::NoLength
            || odd == Odd::ShortLived
        {
            return;
        }
    }
}

impl Machine {
    /// What it was commanded to do.
    pub fn resets(&self) -> Vec<&str> {
        let bodies = self
            .log
            .iter()
            .filter_map(|line| line.strip_prefix(r#"{"ResetType":""#));
        bodies.map(|body| body.trim_end_matches("\"}")).collect()
    }

    fn answer(&mut self, what: &str, who: &str, body: &str) -> (&'static str, String, String) {
        if self.hangs {
            std::thread::sleep(Duration::from_secs(600));
        }
        self.log.push(what.to_owned());
        let nothing = String::new();
        let reset = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset";
        let temporarily = |to: &str| {
            (
                "307 Temporary Redirect",
                format!("location: {to}\r\n"),
                String::new(),
            )
        };
        if what == "GET /redfish/v1/" {
            let links = match self.odd {
                Odd::NoSessions => json!({}),
                Odd::SessionsElsewhere => json!({"Sessions": {"@odata.id": "/redfish/v1/Elsewhere/"}}),
                _ => json!({"Sessions": {"@odata.id": "/redfish/v1/SessionService/Sessions"}}),
            };
            return ("200 OK", nothing, json!({"Links": links}).to_string());
        }
        let sessions = match self.odd {
            Odd::SessionsElsewhere => "POST /redfish/v1/Elsewhere/",
            Odd::NoSessions => "",
            _ => "POST /redfish/v1/SessionService/Sessions",
        };
        if what == sessions {
            if body != r#"{"Password":"sesame","UserName":"operator"}"# {
                let error = r#"{"error": {"@Message.ExtendedInfo": [{"Message": "Invalid credentials."}]}}"#;
                return ("401 Unauthorized", nothing, error.into());
            }
            self.sessions += 1;
            let fields =
                "x-auth-token: t1\r\nlocation: https://other/redfish/v1/SessionService/Sessions/1\r\n";
            return ("201 Created", fields.into(), "{}".into());
        }
        // operator:sesame
        if who != "t1" && who != "Basic b3BlcmF0b3I6c2VzYW1l" {
            return ("401 Unauthorized", nothing, "{}".into());
        }
        match what {
            "DELETE /redfish/v1/SessionService/Sessions/1" => {
                self.sessions -= 1;
                ("204 No Content", nothing.clone(), nothing)
            }
            "GET /redfish/v1/Systems" => {
                let slash = if self.odd == Odd::Slashes { "/" } else { "" };
                let shown = if self.odd == Odd::Pages { 1 } else { self.systems };
                let members: Vec<Value> = (1..=shown)
                    .map(|system| json!({"@odata.id": format!("/redfish/v1/Systems/{system}{slash}")}))
                    .collect();
                let list = json!({"Members": members, "Members@odata.count": self.systems});
                ("200 OK", nothing, list.to_string())
            }
            "GET /redfish/v1/Systems/web1" if self.odd == Odd::Redirects => {
                temporarily("/redfish/v1/Systems/1")
            }
            "GET /redfish/v1/Systems/1" if self.odd == Odd::Circles => temporarily("/redfish/v1/Systems/1"),
            "GET /redfish/v1/Systems/1" if self.odd == Odd::SendsAway => {
                temporarily("https://elsewhere.invalid/redfish/v1/Systems/1")
            }
            "GET /redfish/v1/Systems/1" | "GET /redfish/v1/Systems/1/" => {
                let action = match self.odd {
                    Odd::Slashes => json!({}),
                    Odd::ActionInfo => json!({"target": reset, "@Redfish.ActionInfo": "/redfish/v1/Ways"}),
                    Odd::Button => json!({
                        "target": reset,
                        "ResetType@Redfish.AllowableValues": ["On", "PushPowerButton", "ForceOff"],
                    }),
                    Odd::Redirects => json!({"target": "/redfish/v1/Reset"}),
                    _ => json!({
                        "target": reset,
                        "ResetType@Redfish.AllowableValues": ["On", "GracefulShutdown", "ForceOff"],
                    }),
                };
                let system = json!({"PowerState": self.power, "Actions": {"#ComputerSystem.Reset": action}});
                ("200 OK", nothing, system.to_string())
            }
            "POST /redfish/v1/Reset" => temporarily(reset),
            "GET /redfish/v1/Ways" => {
                let other = json!({"Name": "Delay", "AllowableValues": ["On"]});
                let ways = json!({"Name": "ResetType", "AllowableValues": ["ForceOn", "ForceOff"]});
                (
                    "200 OK",
                    nothing,
                    json!({"Parameters": [other, ways]}).to_string(),
                )
            }
            "GET /redfish/v1/TaskService/TaskMonitors/7" => match self.task_looks {
                Some(0) | None => {
                    let task =
                        json!({"TaskState": self.task_ends, "Messages": [{"Message": "no power supply"}]});
                    ("200 OK", nothing, task.to_string())
                }
                Some(looks) => {
                    self.task_looks = Some(looks - 1);
                    (
                        "202 Accepted",
                        "retry-after: 0\r\n".into(),
                        r#"{"TaskState": "Running"}"#.into(),
                    )
                }
            },
            _ if what == format!("POST {reset}") => {
                self.log.push(body.to_owned());
                self.power = match body {
                    r#"{"ResetType":"On"}"# | r#"{"ResetType":"ForceOn"}"# => "On",
                    _ => "Off",
                };
                if self.task_looks.is_some() {
                    let fields = "location: /redfish/v1/TaskService/TaskMonitors/7\r\nretry-after: 0\r\n";
                    ("202 Accepted", fields.into(), r#"{"TaskState": "New"}"#.into())
                } else {
                    ("204 No Content", nothing.clone(), nothing)
                }
            }
            _ => ("404 Not Found", nothing, "{}".into()),
        }
    }
}
