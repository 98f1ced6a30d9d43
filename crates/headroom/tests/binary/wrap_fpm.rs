//! `headroom wrap` of PHP-FPM: processes that accept, each with a connection of a web server's for a request.

use crate::common::{Program, assert_has, headroom, until, wait};
use rustix::process::Signal;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Where PHP-FPM is, whatever its version.
fn program() -> Option<PathBuf> {
    let all = fs::read_dir("/usr/sbin").into_iter().flatten().flatten();
    let mut named = all.filter(|entry| entry.file_name().to_string_lossy().starts_with("php-fpm"));
    named.next().map(|entry| entry.path())
}

/// A FastCGI record (specification 1.0, Section 3.3) of request 1.
fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    let mut bytes = vec![1, kind, 0, 1, high, low, 0, 0];
    bytes.extend(content);
    bytes
}

/// Asks for a script, on a connection of its own as web servers do by default: what it answers; `None` where nobody listens.
fn ask(socket: &Path, script: &Path) -> Option<String> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut parameters = Vec::new();
    for (name, value) in [
        ("SCRIPT_FILENAME", script.to_str().unwrap()),
        ("REQUEST_METHOD", "GET"),
    ] {
        // Longer ones have lengths of four bytes.
        assert!(value.len() < 128, "{value}");
        parameters.extend([name.len() as u8, value.len() as u8]);
        parameters.extend(name.as_bytes());
        parameters.extend(value.as_bytes());
    }
    // FCGI_BEGIN_REQUEST as a responder that closes, FCGI_PARAMS and FCGI_STDIN, both to their ends.
    let parts = [
        record(1, &[0, 1, 0, 0, 0, 0, 0, 0]),
        record(4, &parameters),
        record(4, &[]),
        record(5, &[]),
    ];
    stream.write_all(&parts.concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    Some(String::from_utf8_lossy(&answer).into_owned())
}

#[test]
fn children_of_php_fpm_are_on_call_and_answer_every_request() {
    let Some(fpm) = program() else {
        println!("skipped: a wrapped PHP-FPM: php-fpm is not installed");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::set_permissions(at, Permissions::from_mode(0o755)).unwrap();
    let (socket, script, config) = (at.join("socket"), at.join("index.php"), at.join("fpm.conf"));
    fs::write(
        &script,
        "<?php $end = microtime(true) + 0.001; while (microtime(true) < $end); echo 'served';",
    )
    .unwrap();
    // Users are changed by root alone.
    let user = match rustix::process::geteuid().is_root() {
        true => "user = nobody\ngroup = nogroup\n",
        false => "",
    };
    let text = format!(
        "[global]\nerror_log = {at}/log\n[www]\n{user}listen = {socket}\npm = static\npm.max_children = 8\n",
        at = at.display(),
        socket = socket.display()
    );
    fs::write(&config, text).unwrap();
    let mut command = headroom(format!(
        "wrap --run-dir {at} --db {at}/record.db --concurrency 1 --batch 1 --linger 0 --",
        at = at.display()
    ));
    command
        .arg(fpm)
        .args(["--nodaemonize", "--fpm-config"])
        .arg(&config);
    let mut program = Program::start(&mut command);
    until("it answers", || ask(&socket, &script));
    thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let answer = ask(&socket, &script).unwrap();
                    assert!(answer.contains("served"), "{answer}");
                }
            });
        }
    });
    wait("it is seen how it serves", || {
        program.err().contains("a process for each connection")
    });
    program.signal(Signal::TERM);
    program.wait();
    let said = program.err();
    assert_has(&said, &["241 queries answered"]);
    assert!(!said.contains("runs as without us"), "{said}");
}
