//! What an SNMP agent and two web servers say of themselves, against Debian's packages. Each is started on free ports of
//! loopback with a configuration of its own and ended with the test.

mod queue_common;
#[path = "common/testing.rs"]
mod testing;

use headroom_node::Roots;
use headroom_node::queue::{
    KernelQueueMeter, QueueError, QueueMeter, SnmpOptions, SnmpQueueMeter, StatusPage, StatusQueueMeter,
};
use queue_common::{connect, ebpf, is_installed, listener, port_of, until};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testing::says;

/// A server that ends with the test.
struct Server(Child);

impl Server {
    fn start(program: &str, arguments: &[&str], dir: &Path) -> Self {
        let child = Command::new(program)
            .args(arguments)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            // snmpd keeps its own notes there, and need not read its descriptions of objects.
            .env("SNMP_PERSISTENT_DIR", dir)
            .env("MIBS", "")
            .current_dir(dir)
            // Apache ends its whole process group.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A server in the foreground takes its workers with it on SIGTERM.
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let deadline = Instant::now() + Duration::from_secs(3);
        while Instant::now() < deadline && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Opens a meter once the server is up.
fn once_up<M>(mut open: impl FnMut() -> Result<M, QueueError>) -> M {
    let deadline = Instant::now() + Duration::from_secs(15);
    loop {
        match open() {
            Ok(meter) => return meter,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// A request on a connection of its own.
fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn snmpd_tells_the_machines_openings_to_those_that_may_see_them() {
    if !is_installed("snmpd") {
        println!("skipped: SNMP needs an agent: apt install snmpd");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("snmpd.conf");
    let restricted = "view little included .1.3.6.1.2.1.1\nrocommunity stranger 127.0.0.1 -V little\n";
    fs::write(&config, format!("rocommunity friend 127.0.0.1\n{restricted}")).unwrap();
    let agent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap();
    let at = format!("udp:{agent}");
    let pid = dir.path().join("pid");
    let _agent = Server::start(
        "snmpd",
        &[
            "-f",
            "-Lo",
            "-I",
            "-smux",
            "-C",
            "-c",
            config.to_str().unwrap(),
            "-p",
            pid.to_str().unwrap(),
            &at,
        ],
        dir.path(),
    );
    let server = listener(0, 64);
    let port = port_of(&server);
    let options = |community: &str| SnmpOptions {
        agent,
        community: community.into(),
    };
    let mut meter = once_up(|| SnmpQueueMeter::open(port, &options("friend")));

    let error = SnmpQueueMeter::open(port, &options("stranger")).unwrap_err();
    assert!(matches!(error, QueueError::Missing { .. }), "{error}");
    assert!(error.to_string().contains("rocommunity stranger"), "{error}");
    let error = SnmpQueueMeter::open(port, &options("nobody")).unwrap_err();
    assert!(matches!(error, QueueError::Remote { .. }), "{error}");

    let before = meter.sample().unwrap();
    assert_eq!(
        (before.length, before.machine.drops),
        (None, None),
        "SNMP knows of neither"
    );
    let clients = connect(port, 20);
    // The agent reads the kernel's counters anew when they are older than five seconds.
    let after = until(&mut meter, "the openings in SNMP", |sample| {
        sample.machine.enqueued.unwrap() >= before.machine.enqueued.unwrap() + 20
    });
    assert!(after.since(&before).unwrap().machine.enqueued.unwrap() >= 20);
    drop((clients, server));
    assert!(matches!(meter.sample(), Err(QueueError::NobodyListens { .. })));
}

/// Twenty requests are twenty in the counters, however often the page was asked for.
fn requests_are_counted_without_the_askings(port: u16, page: &StatusPage, has_accepts: bool) {
    let mut meter = once_up(|| StatusQueueMeter::open(port, page));
    let before = meter.sample().unwrap();
    for _ in 0..20 {
        let answer = get(port, "/");
        assert!(
            answer.starts_with("HTTP/1.1 ") || answer.starts_with("HTTP/1.0 "),
            "{answer}"
        );
    }
    meter.sample().unwrap();
    meter.sample().unwrap();
    let after = meter.sample().unwrap();
    let period = after.since(&before).unwrap();
    assert_eq!(period.server.requests, Some(20));
    assert_eq!(period.server.accepts, has_accepts.then_some(20));
    assert_eq!(after.length, None, "a status page does not know the queue");
    let wrong: StatusPage = format!("http://127.0.0.1:{port}/").parse().unwrap();
    says(StatusQueueMeter::open(port, &wrong).unwrap_err(), &["mod_status"]);
}

#[test]
fn nginxs_stub_status_is_read() {
    if !is_installed("nginx") {
        println!("skipped: stub_status needs nginx: apt install nginx");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let config = format!(
        "daemon off; master_process off; error_log stderr; pid {0}/pid;\nevents {{ worker_connections 64; }}\n\
         http {{ access_log off; client_body_temp_path {0}/a; proxy_temp_path {0}/b; fastcgi_temp_path {0}/c;\n\
         uwsgi_temp_path {0}/d; scgi_temp_path {0}/e;\n\
         server {{ listen 127.0.0.1:{port}; location / {{ return 200 ok; }} location = /status {{ stub_status; }} }} }}\n",
        dir.path().display()
    );
    let path = dir.path().join("nginx.conf");
    fs::write(&path, config).unwrap();
    let prefix = format!("{}/", dir.path().display());
    let _nginx = Server::start(
        "nginx",
        &["-e", "stderr", "-p", &prefix, "-c", path.to_str().unwrap()],
        dir.path(),
    );
    let page = format!("http://127.0.0.1:{port}/status").parse().unwrap();
    requests_are_counted_without_the_askings(port, &page, true);
}

#[test]
fn apaches_mod_status_is_read() {
    let modules = Path::new("/usr/lib/apache2/modules");
    if !is_installed("apache2") || !modules.join("mod_status.so").is_file() {
        println!("skipped: mod_status needs Apache: apt install apache2");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let user = match rustix::process::geteuid().is_root() {
        true => "User www-data\nGroup www-data\n",
        false => "",
    };
    let config = format!(
        "ServerRoot {0}\nServerName localhost\nPidFile {0}/pid\nDefaultRuntimeDir {0}\nErrorLog {0}/error\n\
         Listen 127.0.0.1:{port}\n{user}\
         LoadModule mpm_prefork_module {1}/mod_mpm_prefork.so\nLoadModule authz_core_module {1}/mod_authz_core.so\n\
         LoadModule status_module {1}/mod_status.so\nStartServers 2\nExtendedStatus On\nDocumentRoot {0}\n\
         <Location /server-status>\nSetHandler server-status\n</Location>\n",
        dir.path().display(),
        modules.display()
    );
    let path = dir.path().join("apache.conf");
    fs::write(&path, config).unwrap();
    let _apache = Server::start(
        "apache2",
        &["-D", "FOREGROUND", "-f", path.to_str().unwrap()],
        dir.path(),
    );
    let page = format!("http://127.0.0.1:{port}/server-status?auto")
        .parse()
        .unwrap();
    requests_are_counted_without_the_askings(port, &page, false);
    what_apache_defers_is_no_drop(port);
}

/// Apache sets TCP_DEFER_ACCEPT: the kernel drops an acknowledgement of each connection on purpose, and counts it at the
/// socket.
fn what_apache_defers_is_no_drop(port: u16) {
    const CONNECTIONS: u64 = 60;
    let mut kernel = KernelQueueMeter::open(port, &Roots::default()).unwrap();
    let mut ebpf = ebpf(port);
    let raw = |meter: &mut KernelQueueMeter| meter.sample().unwrap().listeners[0].drops.unwrap();
    let before = raw(&mut kernel);
    for _ in 0..CONNECTIONS {
        get(port, "/");
    }
    let dropped = raw(&mut kernel) - before;
    println!("the socket counts {dropped} drops of {CONNECTIONS} connections");
    let told = [
        Some(kernel.sample().unwrap()),
        ebpf.as_mut().map(|ebpf| ebpf.sample().unwrap()),
    ];
    for sample in told.iter().flatten() {
        let drops = sample.port.drops.unwrap();
        // Counters are not read at one instant.
        assert!(drops <= 2, "{}: {drops} drops", sample.method);
    }
}
