use super::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Instant;

fn config(kind: ServingKind, service: StudiedService, speed: f64) -> ServingConfig {
    ServingConfig {
        kind,
        service,
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        speed,
        tree: None,
    }
}

fn http(address: SocketAddr, path: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    (
        String::from_utf8_lossy(&answer[..end]).into_owned(),
        answer[end + 4..].to_vec(),
    )
}

/// One word of a file of the tree.
fn number(tree: &Path, file: &str, line: &str, word: usize) -> u64 {
    let text = std::fs::read_to_string(tree.join(file)).unwrap();
    let found = text
        .lines()
        .find(|one| one.trim_start().starts_with(line))
        .unwrap();
    found.split_whitespace().nth(word).unwrap().parse().unwrap()
}

#[test]
fn a_size_is_answered_no_sooner_than_the_machine_could() {
    // The Arm's link carries 48 MB/s at most: 100 KB at a hundredth of its speed take over 200 ms, whatever the host does.
    let arm = serve(&config(ServingKind::Arm, StudiedService::Apache, 0.01)).unwrap();
    let begin = Instant::now();
    let (head, body) = http(arm.address(), "/100KB");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!(body.len(), 102_400);
    assert!(
        begin.elapsed() > Duration::from_millis(200),
        "{:?}",
        begin.elapsed()
    );
    let (head, body) = http(arm.address(), "/machine");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let status: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (&status["machine"], &status["source"]),
        (&"arm".into(), &"emulated".into())
    );
    assert_eq!(status["completed"], 1);
    let watts = status["mean_w"].as_f64().unwrap();
    assert!((3.7..=16.3).contains(&watts), "{watts}");
    for (path, status) in [("/none", "404"), ("/17000KB", "400"), ("/healthz", "200")] {
        assert!(
            http(arm.address(), path)
                .0
                .starts_with(&format!("HTTP/1.1 {status}")),
            "{path}"
        );
    }
    arm.shutdown().unwrap();
}

#[test]
fn memcached_s_commands_are_answered_and_bad_ones_refused() {
    let atom = serve(&config(ServingKind::Atom, StudiedService::Memcached, 1.0)).unwrap();
    let stream = TcpStream::connect(atom.address()).unwrap();
    let mut read = BufReader::new(stream.try_clone().unwrap());
    let mut write = stream;
    let mut ask = |asked: &[u8], lines: usize| -> String {
        write.write_all(asked).unwrap();
        let mut text = String::new();
        (0..lines).for_each(|_| {
            read.read_line(&mut text).unwrap();
        });
        text
    };
    assert_eq!(ask(b"get a\r\n", 1), "END\r\n");
    assert_eq!(ask(b"set a 5 0 3\r\nabc\r\n", 1), "STORED\r\n");
    assert_eq!(
        ask(b"set b 0 0 2 noreply\r\nxy\r\nget a b none\r\n", 5),
        "VALUE a 5 3\r\nabc\r\nVALUE b 0 2\r\nxy\r\nEND\r\n"
    );
    assert_eq!(ask(b"gets b\r\n", 3), "VALUE b 0 2 0\r\nxy\r\nEND\r\n");
    assert_eq!(ask(b"delete b\r\ndelete b\r\n", 2), "DELETED\r\nNOT_FOUND\r\n");
    for (asked, refused) in [
        ("\r\n".to_owned(), "ERROR"),
        ("flush_everything\r\n".to_owned(), "ERROR"),
        ("get\r\n".to_owned(), "CLIENT_ERROR"),
        (format!("get {}\r\n", "k".repeat(251)), "CLIENT_ERROR"),
        ("set a 0 0 many\r\n".to_owned(), "CLIENT_ERROR"),
        (
            "set a 0 0 1\r\nabcd\r\n".to_owned(),
            "CLIENT_ERROR bad data chunk",
        ),
    ] {
        let answer = ask(asked.as_bytes(), 1);
        assert!(answer.starts_with(refused), "{asked:?}: {answer}");
    }
    // What is left of the bad chunk is a command of its own, as with memcached.
    assert_eq!(ask(b"\r\n", 1), "ERROR\r\n");
    let large = [
        b"set a 0 0 2000000\r\n".as_slice(),
        &vec![b'x'; 2_000_000],
        b"\r\n",
    ]
    .concat();
    assert_eq!(ask(&large, 1), "ERROR\r\n", "of the line before");
    assert_eq!(ask(b"", 1), "SERVER_ERROR object too large for cache\r\n");
    assert!(ask(b"stats\r\n", 6).contains("STAT emulated_machine atom\r\n"));
    atom.shutdown().unwrap();
}

#[test]
fn the_tree_says_what_the_machine_did() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("machine");
    let with_tree = ServingConfig {
        tree: Some(at.clone()),
        ..config(ServingKind::Arm, StudiedService::Apache, 0.02)
    };
    let arm = serve(&with_tree).unwrap();
    let energy = || number(&at, "sys/class/powercap/intel-rapl:0/energy_uj", "", 0);
    let (before, begin) = (energy(), Instant::now());
    (0..3).for_each(|_| assert_eq!(http(arm.address(), "/100KB").1.len(), 102_400));
    std::thread::sleep(3 * WRITE_EVERY);
    let (drawn_j, length_s) = ((energy() - before) as f64 / 1e6, begin.elapsed().as_secs_f64());
    let watts = drawn_j / length_s;
    // Between idle and its most, less what was not yet written.
    assert!((2.0..17.0).contains(&watts), "{watts}");
    assert!(number(&at, "proc/net/dev", "eth0", 9) >= 3 * 102_400);
    let (user, softirq) = (
        number(&at, "proc/stat", "cpu ", 1),
        number(&at, "proc/stat", "cpu ", 7),
    );
    // The link of the Arm is its driver's core.
    assert!(softirq > user && softirq > 0, "{softirq} {user}");
    assert_eq!(number(&at, "sys/class/net/eth0/speed", "", 0), 20);
    // Control groups are the host's, and not removed with the folder.
    let groups = std::fs::read_link(at.join("sys/fs/cgroup")).unwrap();
    assert_eq!(groups, Path::new("/sys/fs/cgroup"));
    let mounts = std::fs::read_to_string(at.join("proc/self/mountinfo")).unwrap();
    assert!(mounts.lines().all(|line| line.contains(" - cgroup")), "{mounts}");
    arm.shutdown().unwrap();
    // The same folder again, and another that is somebody's.
    serve(&with_tree).unwrap().shutdown().unwrap();
    std::fs::write(folder.path().join("mine"), "").unwrap();
    let theirs = ServingConfig {
        tree: Some(folder.path().to_owned()),
        ..with_tree
    };
    assert!(matches!(serve(&theirs), Err(ServingError::NotEmpty { .. })));
}

#[test]
fn what_is_no_machine_is_refused() {
    let good = config(ServingKind::Xeon, StudiedService::Apache, 0.5);
    for speed in [0.0, -1.0, 1.5, f64::NAN] {
        let bad = ServingConfig {
            speed,
            ..good.clone()
        };
        assert!(matches!(serve(&bad), Err(ServingError::Speed { .. })), "{speed}");
    }
    let taken = serve(&good).unwrap();
    let again = ServingConfig {
        listen: taken.address(),
        ..good
    };
    let error = serve(&again).unwrap_err().to_string();
    assert!(error.contains("choose a free port"), "{error}");
    taken.shutdown().unwrap();
}
