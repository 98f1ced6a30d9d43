//! What the cases are put to: our gateway, and HAProxy and nginx where they are installed, each before a backend of its own.

use std::net::SocketAddr;
use std::process::Command;

use headroom_gateway::Handle;

use crate::common;
use crate::common::process::{Process, free_address, version};
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
    Process(#[allow(dead_code)] Process),
}

impl Product {
    fn of(
        name: &'static str,
        version: String,
        recorder: Recorder,
        [http1, http2]: [SocketAddr; 2],
        process: Process,
    ) -> Self {
        Self {
            name,
            version,
            recorder,
            http1,
            http2,
            _runs: Runs::Process(process),
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

pub fn haproxy() -> Option<Product> {
    let version = version("haproxy", "-v")?;
    let recorder = Recorder::start();
    let addresses = [free_address(), free_address()];
    let config = format!(
        "global\n nbthread 1\ndefaults\n mode http\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n \
         timeout http-request 1s\n timeout http-keep-alive 1s\n option forwardfor\n retries 0\n\
         frontend f\n bind {}\n bind {} proto h2\n default_backend b\n\
         backend b\n http-reuse never\n server s {}\n",
        addresses[0], addresses[1], recorder.address
    );
    let process = Process::haproxy(&config, &addresses);
    Some(Product::of("haproxy", version, recorder, addresses, process))
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
    let path = folder.path().join("nginx.conf");
    std::fs::write(&path, config).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-p").arg(folder.path()).arg("-c").arg(path);
    let process = Process::serving(&mut command, folder, &addresses);
    Some(Product::of("nginx", version, recorder, addresses, process))
}
