//! The contract over a Unix socket.

use crate::common::{Running, apply, description, snapshots};
use headroom_wire::client::{CallError, Client, ClientOptions};
use headroom_wire::message::{CpuGroup, QueueMethod, WatchQueue};
use headroom_wire::server::{Limits, Listen, ListenError, Listener};
use headroom_wire::{Address, Refusal};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn listen(path: &Path) -> Listen {
    Listen::Unix { path: path.into() }
}

async fn connect(address: &Address) -> Result<Client, CallError> {
    Client::connect(address, &ClientOptions::default()).await
}

#[tokio::test]
async fn every_call_goes_there_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(listen(&dir.path().join("a.sock")), Limits::default()).await;
    let client = connect(&running.address).await.unwrap();
    assert_eq!(client.agent(), &description());
    assert_eq!(running.echo.callers.lock().unwrap()[0].place(), "a local process");

    let applied = client.apply(apply(2.5, 60.0)).await.unwrap();
    assert_eq!(applied.in_force, apply(2.5, 60.0).setting);
    assert_eq!(applied.took, Duration::from_micros(80));

    let mut samples = client.observe(Duration::from_millis(100)).await.unwrap();
    let mut numbers = vec![];
    while let Some(sample) = samples.next().await.unwrap() {
        assert_eq!(sample.period, Duration::from_millis(100));
        numbers.push(sample.number);
    }
    assert_eq!(numbers, [1, 2, 3]);

    let refused = client.release(&apply(1.0, 50.0).holder).await.unwrap_err();
    assert!(
        matches!(&refused, CallError::Refused(Refusal::HeldByAnother { .. })),
        "{refused}"
    );
    assert!(
        refused.to_string().contains("\"b\" for another 3.0 s"),
        "{refused}"
    );

    let refused = client.apply(apply(2.5, 20.0)).await.unwrap_err();
    assert_eq!(refused.to_string(), "cap_w is 20 W, outside 40 to 92 W");
    let refused = client.apply(apply(f64::NAN, 60.0)).await.unwrap_err();
    assert!(
        refused.to_string().starts_with("setting.cores is NaN"),
        "{refused}"
    );
    running.stop().await;
}

#[tokio::test]
async fn an_accept_queue_is_watched_and_what_is_no_port_or_no_order_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(listen(&dir.path().join("a.sock")), Limits::default()).await;
    let client = connect(&running.address).await.unwrap();
    let watch = WatchQueue {
        port: 80,
        methods: vec![QueueMethod::Ebpf, QueueMethod::Snmp],
        period: Duration::from_millis(200),
        cpu_group: Some(CpuGroup::new("/web").unwrap()),
    };
    let mut seen = vec![];
    let mut stream = client.watch_queue(watch.clone()).await.unwrap();
    while let Some(snapshot) = stream.next().await.unwrap() {
        seen.push(snapshot);
    }
    assert_eq!(seen, snapshots(&watch));

    let no_port = WatchQueue {
        port: 0,
        ..watch.clone()
    };
    let twice = WatchQueue {
        methods: vec![QueueMethod::Kernel; 2],
        ..watch
    };
    for (asked, words) in [(no_port, "port is 0"), (twice, "each method at most once")] {
        let refused = client.watch_queue(asked).await.unwrap_err();
        assert!(
            matches!(&refused, CallError::Refused(Refusal::Malformed(_)))
                && refused.to_string().contains(words),
            "{refused}"
        );
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_may_be_made_from_any_task() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(listen(&dir.path().join("a.sock")), Limits::default()).await;
    let client = connect(&running.address).await.unwrap();
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                client
                    .apply(apply(1.0, 50.0))
                    .await
                    .map(|applied| applied.in_force)
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap(), apply(1.0, 50.0).setting);
    }
    running.stop().await;
}

#[tokio::test]
async fn only_the_owner_and_the_group_may_connect() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    let listener = Listener::open(listen(&path)).await.unwrap();
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o660
    );
    drop(listener);
    assert!(!path.exists(), "the socket goes with its listener");
}

#[tokio::test]
async fn a_socket_that_nobody_listens_on_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    // What a killed process leaves: the file, without a listener.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let running = Running::start(listen(&path), Limits::default()).await;
    connect(&running.address).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_socket_that_somebody_listens_on_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    let running = Running::start(listen(&path), Limits::default()).await;
    let error = Listener::open(listen(&path)).await.unwrap_err();
    assert!(matches!(error, ListenError::InUse { .. }), "{error}");
    connect(&running.address).await.unwrap();
    running.stop().await;

    // One of another program, which takes no lock.
    let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let error = Listener::open(listen(&path)).await.unwrap_err();
    assert!(matches!(error, ListenError::InUse { .. }), "{error}");
    assert!(path.exists());
    drop(other);
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_named_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("none/a.sock");
    let error = Listener::open(listen(&path)).await.unwrap_err().to_string();
    assert!(
        error.contains("there is no folder") && error.contains("make it first"),
        "{error}"
    );
    assert_eq!(listen(&path).check().unwrap_err().to_string(), error);
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_never_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    std::fs::write(&path, "precious").unwrap();
    let error = Listener::open(listen(&path)).await.unwrap_err();
    assert!(matches!(error, ListenError::NoSocket { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn an_agent_that_is_not_there_is_told_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    let address = Address::Unix(path.clone());
    let not_listening = |error: &CallError| match error {
        CallError::NotListening { is_missing, .. } => Some(*is_missing),
        _ => None,
    };
    let error = connect(&address).await.unwrap_err();
    assert_eq!(not_listening(&error), Some(true), "{error:?}");
    assert!(
        error
            .to_string()
            .contains("there is no such socket: start `headroom agent`"),
        "{error}"
    );
    assert!(!error.to_string().contains("gateway"), "{error}");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let error = connect(&address).await.unwrap_err();
    assert_eq!(not_listening(&error), Some(false), "{error:?}");
    assert!(
        error.to_string().contains("nobody listens on that socket"),
        "{error}"
    );
}

#[tokio::test]
async fn one_that_accepts_and_says_nothing_is_not_taken_for_one_that_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    let _listens = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let options = ClientOptions {
        connect_time: Duration::from_millis(200),
        answer_time: Duration::from_millis(200),
        ..ClientOptions::default()
    };
    let error = Client::connect(&Address::Unix(path), &options).await.unwrap_err();
    assert!(
        matches!(error, CallError::Unreachable { .. } | CallError::NoAnswer { .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_server_that_stops_lets_go_of_its_clients() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(listen(&dir.path().join("a.sock")), Limits::default()).await;
    let client = connect(&running.address).await.unwrap();
    assert!(client.is_connected());
    running.stop().await;
    let error = client.describe().await.unwrap_err();
    assert!(matches!(error, CallError::Unreachable { .. }), "{error}");
    assert!(!client.is_connected());
}

#[tokio::test]
async fn an_agent_that_falls_silent_is_noticed_long_before_the_answer_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(listen(&dir.path().join("a.sock")), Limits::default()).await;
    let Address::Unix(behind) = running.address.clone() else {
        panic!("a Unix socket")
    };
    // A relay that carries everything both ways until it is told to swallow it, as a network that was cut does.
    let relay = tokio::net::UnixListener::bind(dir.path().join("relay.sock")).unwrap();
    let (cut, is_cut) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        let (mut near, _) = relay.accept().await.unwrap();
        let mut far = tokio::net::UnixStream::connect(behind).await.unwrap();
        let mut until_cut = is_cut.clone();
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
            _ = until_cut.wait_for(|cut| *cut) => {}
        }
        let mut swallowed = [0; 4096];
        while near.read(&mut swallowed).await.is_ok_and(|n| n > 0) {}
    });
    let options = ClientOptions {
        silence: Duration::from_millis(200),
        answer_time: Duration::from_secs(60),
        ..ClientOptions::default()
    };
    let address = Address::Unix(dir.path().join("relay.sock"));
    let client = Client::connect(&address, &options).await.unwrap();
    cut.send(true).unwrap();
    let asked = Instant::now();
    let error = client.describe().await.unwrap_err().to_string();
    assert!(error.contains("the agent answers no more"), "{error}");
    assert!(asked.elapsed() < options.answer_time / 2);
    assert!(!client.is_connected());
    running.stop().await;
}

#[tokio::test]
async fn garbage_on_the_socket_harms_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    let running = Running::start(listen(&path), Limits::default()).await;
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff",
        &[0; 4096],
    ] {
        let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        let mut rest = vec![];
        let closed = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "the server closes on nonsense");
    }
    connect(&running.address).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits {
        connections: 2,
        ..Limits::default()
    };
    let running = Running::start(listen(&dir.path().join("a.sock")), limits).await;
    let first = connect(&running.address).await.unwrap();
    let _second = connect(&running.address).await.unwrap();
    let error = connect(&running.address).await.unwrap_err();
    assert!(matches!(error, CallError::Unreachable { .. }), "{error}");
    assert!(
        running.rejection().await.contains("2 connections are open"),
        "{}",
        running.rejection().await
    );
    first.describe().await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_request_beyond_the_limit_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits {
        request_bytes: 16,
        ..Limits::default()
    };
    let running = Running::start(listen(&dir.path().join("a.sock")), limits).await;
    let client = connect(&running.address).await.unwrap();
    let error = client.apply(apply(1.0, 50.0)).await.unwrap_err();
    assert!(matches!(error, CallError::Other { .. }), "{error}");
    client.describe().await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn connections_that_ask_nothing_do_not_keep_others_out_for_long() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    let limits = Limits {
        handshake_time: Duration::from_millis(300),
        ..Limits::default()
    };
    let places = limits.connections;
    let running = Running::start(listen(&path), limits).await;
    let asks = connect(&running.address).await.unwrap();
    let mut silent = Vec::new();
    for number in 0..places {
        let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
        // Half of them begin to speak, and never finish.
        if number % 2 == 0 {
            stream.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
        }
        silent.push(stream);
    }
    let begun = Instant::now();
    while let Err(error) = connect(&running.address).await {
        assert!(begun.elapsed() < Duration::from_secs(20), "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Who has asked once may be silent for longer than that.
    tokio::time::sleep(Duration::from_millis(600)).await;
    asks.describe().await.unwrap();
    let rejected = running.rejected.lock().unwrap().clone();
    assert!(
        rejected
            .iter()
            .any(|one| one.to_string().contains("no request within 0.3 s")),
        "{rejected:?}"
    );
    running.stop().await;
}
