//! `headroom gateway` as a process: what it does when it is told to stop.

use crate::common::{
    Program, Server, assert_has, connect_and_send, get, headroom, read_answer, refused, wait,
};
use rustix::process::Signal;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

fn start(backend: SocketAddr, more: &[&str]) -> (Program, SocketAddr) {
    let mut program = Program::start(
        headroom(format!(
            "gateway --listen 127.0.0.1:0 --threads 2 --backend http://{backend}"
        ))
        .args(more),
    );
    let address = program.said("listening on ").parse().unwrap();
    (program, address)
}

fn seen(server: &Server, least: u64) {
    wait("the backend is asked", || {
        server.seen.load(Ordering::Relaxed) >= least
    });
}

#[test]
fn finishes_a_slow_request_when_told_to_stop() {
    let server = Server::start(Duration::from_secs(2));
    let (mut gateway, address) = start(server.address, &[]);
    let request = "GET /slow HTTP/1.1\r\nHost: e2e\r\nConnection: close\r\n\r\n";
    let slow = connect_and_send(address, request).unwrap();
    seen(&server, 1);
    gateway.signal(Signal::TERM);
    wait("it takes no new connections", || {
        TcpStream::connect(address).is_err()
    });
    let answer = read_answer(slow).unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
    gateway.succeeds();
    assert_has(gateway.err(), &["draining"]);
}

#[test]
fn waits_neither_for_idle_connections_nor_beyond_its_drain_time() {
    let server = Server::start(Duration::from_secs(600));
    let (mut gateway, address) = start(server.address, &["--drain", "1"]);
    // One that never asks, and one whose answer never comes.
    let _idle = TcpStream::connect(address).unwrap();
    let hanging = connect_and_send(address, "GET / HTTP/1.1\r\nHost: e2e\r\n\r\n").unwrap();
    seen(&server, 1);
    let begin = Instant::now();
    gateway.stop();
    // Far under the 30 s that the default allows, with room for a busy machine.
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    drop(hanging);

    let server = Server::start(Duration::ZERO);
    let (mut gateway, address) = start(server.address, &["--drain", "600"]);
    assert_eq!(get(address, "/").unwrap().status, 200);
    let _idle = TcpStream::connect(address).unwrap();
    gateway.signal(Signal::INT);
    gateway.succeeds();
}

#[test]
fn says_once_a_second_what_happened_without_colours_into_a_file() {
    let server = Server::start(Duration::ZERO);
    let (mut gateway, address) = start(server.address, &["-v"]);
    for _ in 0..50 {
        assert_eq!(get(address, "/").unwrap().status, 200);
    }
    let said = gateway.says("what happened in a second", |err| {
        err.contains("one second").then(|| err.to_owned())
    });
    assert!(!said.contains('\u{1b}'), "no colours into a file: {said}");
}

/// Bounds of sizes are taken with commas between them; what is said without a control port is that nobody can use them.
#[test]
fn bounds_of_sizes_are_taken_and_checked() {
    let server = Server::start(Duration::ZERO);
    let (mut gateway, address) = start(server.address, &["--size-bounds", "4K,65536"]);
    assert_eq!(get(address, "/").unwrap().status, 200);
    gateway.stop();
    let backend = "gateway --listen 127.0.0.1:0 --backend http://127.0.0.1:9";
    for (flags, said) in [
        (
            "--size-bounds 9,9",
            &["--size-bounds [9, 9]: allowed is at most 7 sizes"][..],
        ),
        (
            "--size-bounds 1,2,3,4,5,6,7,8",
            &["--size-bounds [1, 2, 3", "at most 7"],
        ),
        ("--size-bounds 4XB", &["--size-bounds", "4XB", "10K"]),
    ] {
        refused(headroom(format!("{backend} {flags}")), said);
    }
}

/// Every flag of the batcher is taken; what cannot be is refused in the words of the command line, with an example of what can.
#[test]
fn flags_of_the_cache_and_the_batcher_are_checked_and_named_with_a_right_value() {
    let server = Server::start(Duration::ZERO);
    let all = "--cache 8MiB --cache-no-collapse --batch 20 --batch-max-wait 40 --batch-max-held 64 --batch-key path";
    let words: Vec<&str> = all.split(' ').collect();
    let (mut gateway, address) = start(server.address, &words);
    assert_eq!(get(address, "/").unwrap().status, 200);
    gateway.stop();
    let backend = "gateway --listen 127.0.0.1:0 --backend http://127.0.0.1:9";
    for (flags, said) in [
        ("--cache 64", &["--cache", "no unit", "64MiB"][..]),
        ("--cache 64MBytes", &["--cache", "64MiB"]),
        ("--batch 100 --target-ms 0", &["--target-ms", "0 is not in 1.."]),
        ("--batch 100ms", &["--batch", "without a unit", "write 100"]),
        (
            "--batch 2000",
            &["--batch 2000: allowed is 0 to 1000", "--batch-max-wait"],
        ),
        (
            "--batch 300 --target-ms 250",
            &["--batch 300: allowed is 0 to 125", "--target-ms"],
        ),
        (
            "--batch 0 --batch-max-held 0",
            &["--batch-max-held 0: allowed is 1 to 1048576"],
        ),
        ("--batch-max-held 9", &["--batch <MS>"]),
        ("--batch 0 --batch-key query", &["--batch-key", "target", "path"]),
        ("--cache-no-collapse", &["--cache <SIZE>"]),
        (
            "--cache 4096TiB",
            &[
                "--cache 4096TiB: allowed is at most the ",
                "iB of memory of this machine",
            ],
        ),
        (
            "--batch 5 --batch-max-held 2000000",
            &["--batch-max-held 2000000: allowed is 1 to 1048576: each"],
        ),
    ] {
        refused(headroom(format!("{backend} {flags}")), said);
    }
}

/// A file sets what no flag does, a flag goes before it, and both are checked before anything is served.
#[test]
fn a_file_and_flags_make_one_configuration() {
    let server = Server::start(Duration::ZERO);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let text = format!(
        "[gateway]\nlisten = [\"127.0.0.1:0\"]\nbackends = [{{ url = \"http://{}\" }}]\n\
         [gateway.limits]\nmax_request_body_bytes = \"1KiB\"\n[gateway.sources]\nrequests_per_s = 1\nrequests_burst = 3\n",
        server.address
    );
    std::fs::write(&file, &text).unwrap();
    let put = |address, bytes: usize| {
        let request =
            format!("PUT / HTTP/1.1\r\nHost: e2e\r\nConnection: close\r\nContent-Length: {bytes}\r\n\r\n");
        let stream = connect_and_send(address, &request).unwrap();
        // Of one that is refused by its length the body is not waited for.
        let _ = std::io::Write::write_all(&mut &stream, &vec![b'x'; bytes]);
        read_answer(stream).unwrap().status
    };
    let command = format!("gateway --config {}", file.display());
    let mut gateway = Program::start(headroom(&command));
    let address: SocketAddr = gateway.said("listening on ").parse().unwrap();
    assert_eq!(put(address, 2_000), 413);
    let statuses: Vec<u16> = (0..20).map(|_| get(address, "/").unwrap().status).collect();
    assert!(statuses.contains(&200) && statuses.contains(&429), "{statuses:?}");
    gateway.stop();

    let flags = format!("{command} --max-request-body none --source-requests-per-s 1000");
    let mut gateway = Program::start(headroom(&flags));
    let address: SocketAddr = gateway.said("listening on ").parse().unwrap();
    assert_eq!(put(address, 200_000), 200);
    gateway.stop();

    let checked = headroom(format!("{flags} --check")).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    refused(
        headroom(format!("{command} --max-header 3MiB --check")),
        &["--max-header 3145728: allowed is 8192"],
    );
    std::fs::write(
        &file,
        text.replace("1KiB", "1 kilo")
            .replace("requests_burst", "request_burst"),
    )
    .unwrap();
    refused(
        headroom(&command),
        &[
            "gateway.toml:5",
            "max_request_body_bytes",
            "none",
            "gateway.toml:8",
            "requests_burst",
        ],
    );
    let example = headroom("gateway --example").output().unwrap();
    std::fs::write(&file, &example.stdout).unwrap();
    let checked = headroom(format!("gateway --config {} --check", file.display()))
        .output()
        .unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

/// SIGHUP reads certificates again and ends nothing; what cannot be used is said, and changes nothing.
#[test]
fn a_hang_up_reads_certificates_again() {
    let server = Server::start(Duration::ZERO);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let issue = |name: &str| {
        let made = std::process::Command::new("openssl")
            .args([
                "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
            ])
            .args([
                &format!("/CN={name}"),
                "-addext",
                &format!("subjectAltName=DNS:{name}"),
            ])
            .args(["-out", &path("cert.pem"), "-keyout", &path("key.pem")])
            .output();
        made.is_ok_and(|made| made.status.success())
    };
    if !issue("one.example") {
        println!("skipped: openssl is not installed");
        return;
    }
    let tls = format!(
        "--tls-listen 127.0.0.1:0 --tls-cert {} --tls-key {}",
        path("cert.pem"),
        path("key.pem")
    );
    let words: Vec<&str> = tls.split(' ').collect();
    let (mut gateway, plain) = start(server.address, &words);
    // The first that it says is the one of --listen.
    let address: SocketAddr = gateway.says("where it listens for TLS", |err| {
        let lines = err
            .split_inclusive('\n')
            .filter_map(|line| line.strip_suffix('\n'));
        let places = lines.filter_map(|line| Some(line.split_once("listening on ")?.1));
        places.skip(1).find_map(|place| place.parse().ok())
    });
    let shown = || {
        let client = std::process::Command::new("openssl")
            .args(["s_client", "-connect", &address.to_string()])
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        String::from_utf8_lossy(&client.stdout).into_owned()
    };
    assert!(shown().contains("one.example"), "{}", shown());
    assert!(issue("two.example"));
    gateway.signal(Signal::HUP);
    wait("the new certificate is shown", || shown().contains("two.example"));
    std::fs::write(folder.path().join("cert.pem"), "nothing").unwrap();
    gateway.signal(Signal::HUP);
    gateway.says("what is wrong", |err| {
        err.contains("new certificates cannot be used")
            .then(|| err.to_owned())
    });
    assert!(shown().contains("two.example"));
    assert_eq!(get(plain, "/").unwrap().status, 200);
    gateway.stop();
}

/// What a start refuses --check refuses, with the same words; what a start only warns of it says.
#[test]
fn a_check_looks_at_all_that_a_start_looks_at() {
    let folder = tempfile::tempdir().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let base = "gateway --listen 127.0.0.1:0 --backend http://127.0.0.1:81";
    let run = folder.path().join("run").display().to_string();
    let unmade = folder.path().join("unmade").display().to_string();
    for (flags, said) in [
        (
            format!("--listen {free} --listen {free}"),
            vec!["is given twice", "--listen has it too"],
        ),
        (
            "--control unix:/nonexistent/gateway.sock".to_owned(),
            vec!["there is no folder /nonexistent"],
        ),
        (
            "--control 127.0.0.1:0 --control-ca nope --control-cert nope --control-key nope".to_owned(),
            vec!["nope"],
        ),
        (
            "--user no-such-user-here".to_owned(),
            vec!["--user", "no-such-user-here"],
        ),
    ] {
        for (check, run) in [("", &run), ("--check", &unmade)] {
            refused(headroom(format!("{base} {flags} --run-dir {run} {check}")), &said);
        }
    }
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let checked = headroom(format!("{base} --check --run-dir {}", file.display()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success(), "{said}");
    assert!(said.contains("no gateway can take over from this one"), "{said}");
    assert!(!std::path::Path::new(&unmade).exists(), "a check makes nothing");
    assert_eq!(said.matches("not a directory").count(), 1, "{said}");
}

/// Who takes over is told what of the control port is its own to choose.
#[test]
fn a_successor_with_its_predecessors_control_port_is_told_to_take_another() {
    let server = Server::start(Duration::ZERO);
    let folder = tempfile::tempdir().unwrap();
    let control = format!("--control unix:{}", folder.path().join("gw.sock").display());
    let run = format!("--run-dir {}", folder.path().join("run").display());
    let words: Vec<&str> = control.split(' ').chain(run.split(' ')).collect();
    let (mut gateway, address) = start(server.address, &words);
    let successor = format!(
        "gateway --listen {address} --backend http://{} --takeover {run} {control}",
        server.address
    );
    for check in ["", " --check"] {
        refused(
            headroom(format!("{successor}{check}")),
            &[
                "--control must be another address",
                "is in use: another process listens there",
            ],
        );
    }
    assert_eq!(get(address, "/").unwrap().status, 200);
    gateway.stop();
}

/// Whoever is closed before a request leaves a line: who, and why.
#[test]
fn a_connection_that_is_refused_leaves_a_line() {
    let server = Server::start(Duration::ZERO);
    let (mut gateway, address) = start(server.address, &["-v", "--proxy-protocol-from", "127.0.0.1"]);
    let stream = connect_and_send(address, "GET / HTTP/1.1\r\nHost: e2e\r\n\r\n").unwrap();
    let client = stream.local_addr().unwrap().to_string();
    gateway.says("why it was closed", |err| {
        let mut lines = err.lines();
        lines.find_map(|line| {
            let is_it = line.contains("PROXY protocol header") && line.contains(&client);
            is_it.then(|| line.to_owned())
        })
    });
    gateway.stop();

    let folder = tempfile::tempdir().unwrap();
    let openssl = |words: &str| {
        let mut command = std::process::Command::new("openssl");
        command.args(words.split(' ')).current_dir(folder.path());
        command.stdin(std::process::Stdio::null()).output()
    };
    let authority = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=a.example -addext subjectAltName=DNS:a.example -out ca.pem -keyout ca.key";
    if !openssl(authority).is_ok_and(|made| made.status.success()) {
        println!("skipped: openssl is not installed");
        return;
    }
    let request =
        openssl("req -new -newkey rsa:2048 -nodes -subj /CN=old -out old.csr -keyout old.key").unwrap();
    assert!(request.status.success(), "{request:?}");
    let issue = "x509 -req -in old.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out old.pem";
    let issued = openssl(issue).unwrap();
    assert!(issued.status.success(), "{issued:?}");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (ca, key) = (path("ca.pem"), path("ca.key"));
    let tls = [
        "-v",
        "--tls-listen",
        "127.0.0.1:0",
        "--tls-cert",
        &ca,
        "--tls-key",
        &key,
        "--tls-client-ca",
        &ca,
    ];
    let (mut gateway, _) = start(server.address, &tls);
    let address: SocketAddr = gateway.says("where it listens for TLS", |err| {
        let places = err
            .lines()
            .filter_map(|line| Some(line.split_once("listening on ")?.1));
        places.skip(1).find_map(|place| place.parse().ok())
    });
    let says = |gateway: &mut Program, why: &str| {
        gateway.says(why, |err| {
            let mut lines = err.lines();
            lines.find_map(|line| line.contains(why).then(|| line.to_owned()))
        })
    };
    let connect = format!("s_client -connect {address} -servername a.example");
    openssl(&connect).unwrap();
    says(&mut gateway, "the client has shown no certificate, and must");
    // Newer ones of openssl make version 3 of the same request.
    let text = openssl("x509 -in old.pem -noout -text").unwrap();
    if String::from_utf8_lossy(&text.stdout).contains("Version: 1 ") {
        openssl(&format!("{connect} -cert old.pem -key old.key")).unwrap();
        says(
            &mut gateway,
            "it is an X.509 certificate of version 1, and version 3 is needed",
        );
    }
    gateway.stop();
}
