//! What the cases are put to: our gateway, and HAProxy and nginx where they are installed, each before a backend of its own.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use headroom_gateway::Handle;
use tempfile::TempDir;

use crate::common;
use crate::wire::Recorder;

/// A product that runs.
pub struct Product {
    pub name: &'static str,
    pub version: String,
    pub recorder: Recorder,
    /// Where it speaks HTTP/1.1, and HTTP/2 with prior knowledge.
    pub http1: SocketAddr,
    pub http2: SocketAddr,
    _runs: Runs,
}

enum Runs {
    Ours(#[allow(dead_code)] Handle),
    Process(Child, #[allow(dead_code)] TempDir),
}

impl Drop for Runs {
    fn drop(&mut self) {
        if let Self::Process(child, _) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Our gateway, with waits as short as the others'.
pub fn ours() -> Product {
    let recorder = Recorder::start();
    let config = headroom_gateway::GatewayConfig {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        backends: vec![headroom_gateway::BackendConfig::new(format!(
            "http://{}",
            recorder.address
        ))],
        threads: 1,
        ..headroom_gateway::GatewayConfig::default()
    };
    let mut config = config;
    config.timeouts.request_header_timeout_ms = 1_000;
    config.timeouts.body_timeout_ms = 1_000;
    config.timeouts.response_header_timeout_ms = 1_000;
    config.timeouts.expect_timeout_ms = 300;
    config.limits.max_idle_per_backend_per_core = 0;
    let (handle, address) = common::start(config);
    Product {
        name: "headroom",
        version: env!("CARGO_PKG_VERSION").to_owned(),
        recorder,
        http1: address,
        http2: address,
        _runs: Runs::Ours(handle),
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The version that a program says it has; `None` where it is not installed.
fn version(program: &str, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let is_number =
        |word: &&str| word.contains('.') && word.starts_with(|first: char| first.is_ascii_digit());
    let word = text.split([' ', '/', '\n', '-']).find(is_number)?;
    Some(word.to_owned())
}

fn started(
    name: &'static str,
    version: String,
    recorder: Recorder,
    [http1, http2]: [SocketAddr; 2],
    command: &mut Command,
    folder: TempDir,
) -> Product {
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let runs = Runs::Process(child, folder);
    let until = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(http1).is_err() || TcpStream::connect(http2).is_err() {
        assert!(Instant::now() < until, "{name} does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    Product {
        name,
        version,
        recorder,
        http1,
        http2,
        _runs: runs,
    }
}

fn file(folder: &TempDir, name: &str, text: &str) -> std::path::PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

pub fn haproxy() -> Option<Product> {
    let version = version("haproxy", "-v")?;
    let recorder = Recorder::start();
    let addresses = [free_address(), free_address()];
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "global\n nbthread 1\ndefaults\n mode http\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n \
         timeout http-request 1s\n timeout http-keep-alive 1s\n option forwardfor\n retries 0\n\
         frontend f\n bind {}\n bind {} proto h2\n default_backend b\n\
         backend b\n http-reuse never\n server s {}\n",
        addresses[0], addresses[1], recorder.address
    );
    let path = file(&folder, "haproxy.cfg", &config);
    let mut command = Command::new("haproxy");
    command.arg("-db").arg("-f").arg(path);
    Some(started(
        "haproxy",
        version,
        recorder,
        addresses,
        &mut command,
        folder,
    ))
}

pub fn nginx() -> Option<Product> {
    let version = version("nginx", "-v")?;
    let recorder = Recorder::start();
    let addresses = [free_address(), free_address()];
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|what| format!("{what}_temp_path {};\n", at(what)))
        .collect();
    // Host, HTTP/1.1 and Upgrade are passed on as its documentation says; the rest is as it comes.
    let config = format!(
        "daemon off;\nmaster_process off;\npid {};\nerror_log {} crit;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}\
         map $http_upgrade $connection_upgrade {{ default upgrade; '' close; }}\n\
         client_header_timeout 1s;\nclient_body_timeout 1s;\nproxy_read_timeout 1s;\nkeepalive_timeout 1s;\n\
         server {{\nlisten {};\nlisten {} http2;\nlocation / {{\nproxy_pass http://{};\nproxy_http_version 1.1;\n\
         proxy_next_upstream off;\nproxy_set_header Host $http_host;\nproxy_set_header Upgrade $http_upgrade;\n\
         proxy_set_header Connection $connection_upgrade;\n\
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n}}\n}}\n}}\n",
        at("pid"),
        at("error.log"),
        addresses[0],
        addresses[1],
        recorder.address
    );
    let path = file(&folder, "nginx.conf", &config);
    let mut command = Command::new("nginx");
    command
        .arg("-p")
        .arg(Path::new(folder.path()))
        .arg("-c")
        .arg(path);
    Some(started(
        "nginx",
        version,
        recorder,
        addresses,
        &mut command,
        folder,
    ))
}
