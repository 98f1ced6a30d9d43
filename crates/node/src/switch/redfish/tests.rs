//! A service processor that is made up, behind real TLS.

use super::*;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;
use std::time::Instant;
use tempfile::TempDir;

/// The made-up machine.
#[derive(Debug)]
struct Machine {
    power: &'static str,
    /// Answers to a reset with a task, that many looks long.
    task_looks: Option<u32>,
    /// How that task ends.
    task_ends: &'static str,
    systems: u32,
    sessions: i32,
    log: Vec<String>,
    hangs: bool,
}

struct Bmc {
    dir: TempDir,
    port: u16,
    machine: Arc<Mutex<Machine>>,
}

impl Bmc {
    fn start() -> Self {
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
        }));
        let shared = Arc::clone(&machine);
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (config, machine) = (Arc::clone(&config), Arc::clone(&shared));
                std::thread::spawn(move || {
                    let tls = rustls::ServerConnection::new(config).unwrap();
                    converse(rustls::StreamOwned::new(tls, stream.unwrap()), &machine);
                });
            }
        });
        Self { dir, port, machine }
    }

    fn config(&self) -> RedfishConfig {
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
        let answer = format!(
            "HTTP/1.1 {status}\r\n{fields}content-length: {}\r\n\r\n{answer}",
            answer.len()
        );
        if stream.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

impl Machine {
    fn answer(&mut self, what: &str, who: &str, body: &str) -> (&'static str, String, String) {
        if self.hangs {
            std::thread::sleep(Duration::from_secs(600));
        }
        self.log.push(what.to_owned());
        let nothing = String::new();
        let reset = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset";
        if what == "POST /redfish/v1/SessionService/Sessions" {
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
                let members: Vec<Value> = (1..=self.systems)
                    .map(|system| json!({"@odata.id": format!("/redfish/v1/Systems/{system}")}))
                    .collect();
                ("200 OK", nothing, json!({"Members": members}).to_string())
            }
            "GET /redfish/v1/Systems/1" => {
                let system = json!({
                    "PowerState": self.power,
                    "Actions": {"#ComputerSystem.Reset": {
                        "target": reset,
                        "ResetType@Redfish.AllowableValues": ["On", "GracefulShutdown", "ForceOff"],
                    }},
                });
                ("200 OK", nothing, system.to_string())
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
                    r#"{"ResetType":"On"}"# => "On",
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

fn open(config: RedfishConfig) -> RedfishSwitch {
    RedfishSwitch::open(config).unwrap()
}

#[test]
fn on_off_and_off_by_force_in_sessions_that_are_ended() {
    let bmc = Bmc::start();
    let mut switch = open(bmc.config());
    assert_eq!(switch.state().unwrap(), Some(false));
    switch.on().unwrap();
    assert_eq!(switch.state().unwrap(), Some(true));
    // A machine that is on is not told again.
    switch.on().unwrap();
    switch.off(false).unwrap();
    assert_eq!(switch.state().unwrap(), Some(false));
    bmc.machine.lock().unwrap().power = "On";
    switch.off(true).unwrap();
    let machine = bmc.machine.lock().unwrap();
    let resets: Vec<&str> = machine
        .log
        .iter()
        .filter(|line| line.starts_with('{'))
        .map(String::as_str)
        .collect();
    assert_eq!(
        resets,
        [
            r#"{"ResetType":"On"}"#,
            r#"{"ResetType":"GracefulShutdown"}"#,
            r#"{"ResetType":"ForceOff"}"#
        ]
    );
    assert_eq!(machine.sessions, 0);
}

#[test]
fn basic_authentication_needs_no_session_and_a_certificate_can_be_pinned() {
    let bmc = Bmc::start();
    let mut switch = open(RedfishConfig {
        auth: RedfishAuth::Basic,
        ca_file: None,
        certificate: Some(bmc.dir.path().join("leaf.crt")),
        // The pinned certificate is not for this name, and need not be.
        url: format!("https://127.0.0.1:{}", bmc.port),
        system: Some("1".into()),
        ..bmc.config()
    });
    switch.on().unwrap();
    assert_eq!(switch.state().unwrap(), Some(true));
    assert!(
        !bmc.machine
            .lock()
            .unwrap()
            .log
            .iter()
            .any(|line| line.contains("Session"))
    );
}

#[test]
fn a_certificate_that_nobody_vouches_for_is_refused_before_the_password_is_sent() {
    let (bmc, other) = (Bmc::start(), Bmc::start());
    for config in [
        RedfishConfig {
            ca_file: Some(other.dir.path().join("ca.crt")),
            ..bmc.config()
        },
        RedfishConfig {
            ca_file: None,
            certificate: Some(other.dir.path().join("leaf.crt")),
            ..bmc.config()
        },
        // The right authority and the wrong name.
        RedfishConfig {
            url: format!("https://127.0.0.1:{}", bmc.port),
            ..bmc.config()
        },
    ] {
        let error = open(config).state().unwrap_err().to_string();
        assert!(error.contains("ca_file"), "{error}");
    }
    assert!(bmc.machine.lock().unwrap().log.is_empty());
}

#[test]
fn a_task_is_followed_to_its_end_be_it_good_or_bad() {
    let bmc = Bmc::start();
    let mut switch = open(bmc.config());
    bmc.machine.lock().unwrap().task_looks = Some(3);
    switch.on().unwrap();
    assert_eq!(bmc.machine.lock().unwrap().task_looks, Some(0));
    {
        let mut machine = bmc.machine.lock().unwrap();
        (machine.task_looks, machine.task_ends) = (Some(1), "Exception");
    }
    let error = switch.off(false).unwrap_err().to_string();
    assert!(
        error.contains("no power supply") && error.contains("GracefulShutdown"),
        "{error}"
    );
    assert_eq!(bmc.machine.lock().unwrap().sessions, 0);
}

#[test]
fn what_it_refuses_is_told_in_its_own_words() {
    let bmc = Bmc::start();
    fs::write(bmc.dir.path().join("password"), "wrong\n").unwrap();
    let error = open(bmc.config()).on().unwrap_err().to_string();
    assert!(
        error.contains("Invalid credentials.")
            && error.contains("password is wrong")
            && !error.contains("wrong\n"),
        "{error}"
    );
    fs::write(bmc.dir.path().join("password"), "sesame\n").unwrap();
    let system = RedfishConfig {
        system: Some("blade9".into()),
        ..bmc.config()
    };
    let error = open(system).on().unwrap_err().to_string();
    assert!(error.contains("no /redfish/v1/Systems/blade9"), "{error}");
    bmc.machine.lock().unwrap().systems = 2;
    let error = open(bmc.config()).on().unwrap_err().to_string();
    assert!(error.contains("name one of them"), "{error}");
}

#[test]
fn one_that_hangs_has_its_time_limit() {
    let bmc = Bmc::start();
    bmc.machine.lock().unwrap().hangs = true;
    let mut switch = open(RedfishConfig {
        limit_s: 0.5,
        ..bmc.config()
    });
    let started = Instant::now();
    let error = switch.on().unwrap_err().to_string();
    assert!(started.elapsed() < Duration::from_secs(20));
    assert!(error.contains("within 0.5 s"), "{error}");
}

#[test]
fn a_task_that_does_not_end_in_time_is_not_pressed_and_its_session_is_ended() {
    const LOOKS: u32 = 10_000;
    let bmc = Bmc::start();
    bmc.machine.lock().unwrap().task_looks = Some(LOOKS);
    let mut switch = open(RedfishConfig {
        limit_s: 3.0,
        ..bmc.config()
    });
    let error = switch.on().unwrap_err().to_string();
    assert!(error.contains("within 3 s"), "{error}");
    let machine = bmc.machine.lock().unwrap();
    let looks = LOOKS - machine.task_looks.unwrap();
    assert!(looks <= 30, "{looks} looks in 3 s");
    if looks == 0 {
        println!("skipped: the end of a session: the machine was too busy to begin one in time");
    } else {
        assert_eq!(machine.sessions, 0);
    }
}

#[test]
fn an_address_without_tls_is_refused() {
    let bmc = Bmc::start();
    for (url, said) in [
        ("http://bmc1", "https:// it must be"),
        ("bmc1", "https:// it must be"),
        ("https://u:p@bmc1", "keys of their own"),
        ("https://bmc1/redfish", "no path"),
    ] {
        let config = RedfishConfig {
            url: url.into(),
            ..bmc.config()
        };
        let error = RedfishSwitch::open(config).unwrap_err().to_string();
        assert!(error.contains(said), "{url}: {error}");
    }
}
