//! Real accept queues on loopback, measured by the kernel's program, by what the kernel exports, and by tools.

mod queue_common;

use headroom_node::Roots;
use headroom_node::queue::{
    KernelQueueMeter, QueueError, QueueMeter, QueueMethod, QueueOptions, QueuePreference, Scope,
    ToolsQueueMeter, choose,
};
use headroom_units::Ratio;
use queue_common::{attempt, connect, ebpf, listener, port_of, until};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

fn kernel(port: u16) -> KernelQueueMeter {
    KernelQueueMeter::open(port, &Roots::default()).unwrap()
}

fn tools(port: u16) -> Option<ToolsQueueMeter> {
    match ToolsQueueMeter::open(port) {
        Ok(meter) => Some(meter),
        Err(error @ QueueError::Tool { .. }) => {
            println!("skipped: the accept queue by tools: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_queue_that_fills_overflows_and_drains_is_seen_alike_by_all_that_can() {
    let server = listener(0, 4);
    let port = port_of(&server);
    let other = listener(0, 16);
    let (mut kernel, mut tools, mut ebpf) = (kernel(port), tools(port), ebpf(port));
    let start = kernel.sample().unwrap();
    let ebpf_start = ebpf.as_mut().map(|ebpf| ebpf.sample().unwrap());

    // Linux lets in one more than the limit.
    let clients = connect(port, 5);
    let elsewhere = connect(port_of(&other), 7);
    let full = until(&mut kernel, "full", |sample| sample.length.unwrap().now == 5);
    assert_eq!(full.length.unwrap().limit, 4);
    assert_eq!(full.listeners[0].length.now, full.listeners[0].room());
    assert_eq!(full.places(), Some(5));
    assert_eq!(full.port.drops, Some(0));
    if let Some(tools) = &mut tools {
        assert_eq!(tools.sample().unwrap().length, full.length);
    }
    if let Some(ebpf) = &mut ebpf {
        let sample = until(ebpf, "all five seen", |sample| sample.seen.unwrap().arrivals == 5);
        assert_eq!(sample.length, full.length);
        assert_eq!((sample.port.enqueued, sample.port.accepts), (Some(5), Some(0)));
        assert_eq!(
            sample.listeners[0].enqueued,
            Some(5),
            "the other listener's are not among them"
        );
        // The first saw an empty queue, the fifth saw four before it.
        assert_eq!(sample.seen.unwrap().sum, 1 + 2 + 3 + 4);
        let again = ebpf.sample().unwrap();
        assert_eq!(again.seen.unwrap().longest, 0, "nothing arrived since");
    }

    attempt(port, 3);
    let over = until(&mut kernel, "three dropped", |sample| {
        sample.port.drops == Some(3)
    });
    let machine_drops = over.since(&start).unwrap().machine.drops.unwrap();
    assert!(machine_drops >= 3, "{machine_drops}");
    if let Some(ebpf) = &mut ebpf {
        let sample = until(ebpf, "three dropped", |sample| sample.port.drops == Some(3));
        // Those that were dropped saw a full queue.
        let seen = sample.seen.unwrap();
        assert_eq!((seen.arrivals, seen.sum), (8, 10 + 3 * 5));
        let period = sample.since(ebpf_start.as_ref().unwrap()).unwrap();
        assert_eq!(period.drop_ratio(), Some((Ratio::new(3.0 / 8.0), Scope::Port)));
        assert_eq!(period.seen_mean, Some(25.0 / 8.0));
    }

    drop((server.accept().unwrap(), server.accept().unwrap()));
    assert_eq!(kernel.sample().unwrap().length.unwrap().now, 3);
    if let Some(ebpf) = &mut ebpf {
        let sample = until(ebpf, "two accepted", |sample| sample.port.accepts == Some(2));
        assert_eq!(sample.length.unwrap().now, 3);
        assert_eq!(sample.port.enqueued, Some(5));
    }
    drop((clients, elsewhere));
}

#[test]
fn what_is_served_at_once_is_counted_by_every_method() {
    const CONNECTIONS: u64 = 60;
    let server = listener(0, 128);
    let port = port_of(&server);
    let (mut kernel, mut tools, mut ebpf) = (kernel(port), tools(port), ebpf(port));
    let starts = (
        kernel.sample().unwrap(),
        tools.as_mut().map(|tools| tools.sample().unwrap()),
    );
    for _ in 0..CONNECTIONS {
        let client = connect(port, 1);
        server.accept().unwrap();
        drop(client);
    }
    if let Some(ebpf) = &mut ebpf {
        let sample = until(ebpf, "all served", |sample| {
            sample.port.accepts == Some(CONNECTIONS)
        });
        assert_eq!(sample.port.enqueued, Some(CONNECTIONS));
        assert_eq!((sample.length.unwrap().now, sample.port.drops), (0, Some(0)));
    }
    // The machine's counters have what others do meanwhile as well, and never less than this.
    let period = kernel.sample().unwrap().since(&starts.0).unwrap();
    assert!(period.machine.enqueued.unwrap() >= CONNECTIONS, "{period:?}");
    assert_eq!(period.arrival_rate().unwrap().1, Scope::Machine);
    let busy = period.cpu_busy.map_or(0.0, Ratio::get);
    assert!((0.0..=1.0).contains(&busy));
    if let (Some(tools), Some(start)) = (&mut tools, &starts.1) {
        let period = tools.sample().unwrap().since(start).unwrap();
        assert!(period.machine.enqueued.unwrap() >= CONNECTIONS, "{period:?}");
    }
}

#[test]
fn sockets_that_share_a_port_are_summed_and_kept_apart() {
    let first = listener(0, 64);
    let port = port_of(&first);
    let second = listener(port, 32);
    let (mut kernel, mut ebpf) = (kernel(port), ebpf(port));
    let clients = connect(port, 40);
    let sample = until(&mut kernel, "all forty", |sample| {
        sample.length.unwrap().now == 40
    });
    assert_eq!(sample.length.unwrap().limit, 96);
    assert_eq!(sample.places(), Some(98));
    let parts: Vec<u64> = sample
        .listeners
        .iter()
        .map(|listener| listener.length.now)
        .collect();
    // The kernel spreads connections over the sockets by a hash of their addresses.
    assert!(
        parts.len() == 2 && parts.iter().all(|&part| part > 0),
        "{parts:?}"
    );
    if let Some(ebpf) = &mut ebpf {
        let sample = until(ebpf, "all forty", |sample| sample.port.enqueued == Some(40));
        for listener in &sample.listeners {
            assert_eq!(listener.enqueued, Some(listener.length.now), "{listener:?}");
        }
    }
    drop((clients, second));
}

#[test]
fn a_listener_that_goes_and_comes_back_starts_another_epoch_and_is_never_subtracted_from() {
    let server = listener(0, 8);
    let port = port_of(&server);
    let mut meters: Vec<Box<dyn QueueMeter>> = vec![Box::new(kernel(port))];
    meters.extend(ebpf(port).map(|meter| Box::new(meter) as _));
    meters.extend(tools(port).map(|meter| Box::new(meter) as _));
    let clients = connect(port, 3);
    let befores: Vec<_> = meters
        .iter_mut()
        .map(|meter| until(meter.as_mut(), "three", |sample| sample.length.unwrap().now == 3))
        .collect();

    drop((server, clients));
    for meter in &mut meters {
        // A process that another test starts meanwhile holds a copy of the socket for a moment, until its exec.
        let error = (0..500)
            .find_map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                meter.sample().err()
            })
            .expect("somebody still listens");
        assert!(matches!(error, QueueError::NobodyListens { .. }), "{error}");
        assert!(error.to_string().contains(&port.to_string()), "{error}");
    }

    let server = listener(port, 8);
    for (meter, before) in meters.iter_mut().zip(&befores) {
        let method = meter.method();
        let back = meter.sample().unwrap();
        assert_ne!(back.epoch, before.epoch, "{method}");
        let error = back.since(before).unwrap_err();
        assert!(matches!(error, QueueError::NoPeriod(_)), "{method}: {error}");
        // Counters never decrease, and what was in the queue that went was not accepted.
        assert!(back.port.enqueued >= before.port.enqueued, "{method}");
        assert_eq!(back.port.accepts, before.port.accepts, "{method}");
        let clients = connect(port, 2);
        let after = until(meter.as_mut(), "two", |sample| sample.length.unwrap().now == 2);
        let period = after.since(&back).unwrap();
        if method == QueueMethod::Ebpf {
            assert_eq!((period.port.enqueued, period.port.accepts), (Some(2), Some(0)));
        }
        drop((server.accept().unwrap(), server.accept().unwrap(), clients));
    }
}

/// Set for the child of [`a_plain_user_is_served_by_sock_diag_and_told_why`]: the port to measure.
const PORT: &str = "HEADROOM_TEST_QUEUE_PORT";

#[test]
fn a_plain_user_is_served_by_sock_diag_and_told_why() {
    if let Ok(port) = std::env::var(PORT) {
        let options = QueueOptions::new(port.parse().unwrap());
        let (mut meter, choice) = choose(QueuePreference::Auto, &options).unwrap();
        println!("{choice}");
        println!("length {:?}", meter.sample().unwrap().length);
        return;
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: another user can only be tried as root");
        return;
    }
    let server = listener(0, 8);
    let clients = connect(port_of(&server), 2);
    // Where the user may read it: the build's folder may be closed to others.
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("queue-test");
    // By another process: if a test beside this one forked while the file was open for writing here, it could not be run.
    let mut copy = Command::new("cp");
    copy.arg(std::env::current_exe().unwrap()).arg(&program);
    assert!(copy.status().unwrap().success());
    let output = Command::new(&program)
        .args([
            "--exact",
            "a_plain_user_is_served_by_sock_diag_and_told_why",
            "--nocapture",
        ])
        .env(PORT, port_of(&server).to_string())
        .current_dir("/")
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(said.contains("by kernel; ebpf cannot be used"), "{said}");
    if headroom_queue_bpf::object().is_ok() {
        assert!(said.contains("CAP_BPF"), "{said}");
    }
    assert!(said.contains("now: 2"), "{said}");
    drop(clients);
}

#[test]
fn a_listener_of_both_families_is_one() {
    let Ok(server) = std::net::TcpListener::bind("[::]:0") else {
        println!("skipped: a listener on IPv6");
        return;
    };
    let port = port_of(&server);
    let (mut kernel, mut ebpf) = (kernel(port), ebpf(port));
    let clients = connect(port, 3);
    let sample = until(&mut kernel, "three", |sample| sample.length.unwrap().now == 3);
    assert_eq!(sample.listeners.len(), 1);
    if let Some(ebpf) = &mut ebpf {
        until(ebpf, "three", |sample| sample.port.enqueued == Some(3));
    }
    if let Some(mut tools) = tools(port) {
        assert_eq!(tools.sample().unwrap().length, sample.length);
    }
    drop(clients);
}

/// Closes connections with a reset.
fn reset(connections: Vec<std::net::TcpStream>) {
    for connection in connections {
        let none = Some(std::time::Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&connection, none).unwrap();
    }
}

#[test]
fn connections_that_are_reset_in_the_queue_are_told_from_requests() {
    use std::io::Write;
    let server = listener(0, 64);
    let port = port_of(&server);
    let Some(mut ebpf) = ebpf(port) else { return };
    ebpf.sample().unwrap();
    let left = |sample: &headroom_node::queue::QueueSample| {
        sample
            .connections
            .map_or((0, 0), |found| (found.gone, found.cancelled))
    };
    let mut asking = connect(port, 6);
    for client in &mut asking {
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    }
    // The server reads what these have asked, and works on it in vain.
    reset(asking.split_off(4));
    // Those of another port are not among them.
    let elsewhere = listener(0, 64);
    reset(connect(port_of(&elsewhere), 9));
    // Longer than it takes until connections are looked at again.
    std::thread::sleep(std::time::Duration::from_millis(600));
    let sample = until(&mut ebpf, "six wait", |sample| sample.length.unwrap().now == 6);
    assert_eq!(left(&sample), (0, 2));
    reset(connect(port, 6));
    std::thread::sleep(std::time::Duration::from_millis(600));
    let sample = until(&mut ebpf, "twelve wait", |sample| {
        sample.length.unwrap().now == 12
    });
    assert_eq!(left(&sample), (6, 2));
    // Of the two that had asked nobody knows whether it was a whole request.
    assert_eq!(sample.port.unasked, Some(8));
    // Whether it has accepted them or not, and however they leave.
    let mut closing = connect(port, 3);
    closing[0].write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    reset(closing.split_off(2));
    closing.clear();
    // One has asked for something, and may be answered yet.
    until(&mut ebpf, "two more", |sample| sample.port.unasked == Some(10));
    let accepted: Vec<_> = (0..15).map(|_| server.accept().unwrap()).collect();
    let mut asked = connect(port, 2);
    for client in &mut asked {
        client.write_all(b"GET").unwrap();
    }
    let mut working = [(); 2].map(|()| server.accept().unwrap().0);
    // One that was sent something was a request, however it ends; of the other nobody knows.
    working[0].write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
    reset(asked);
    reset(connect(port, 4));
    until(&mut ebpf, "five more", |sample| sample.port.unasked == Some(15));
    drop((accepted, working));
    // It was not, and neither were the first four.
    until(&mut ebpf, "five more", |sample| sample.port.unasked == Some(20));
}

#[test]
fn a_connection_is_answered_once_and_only_where_the_server_has_sent_something() {
    use std::io::{Read, Write};
    use std::net::Shutdown;
    let server = listener(0, 64);
    let port = port_of(&server);
    let Some(mut ebpf) = ebpf(port) else { return };
    ebpf.sample().unwrap();
    let pair = || {
        let mut client = connect(port, 1).remove(0);
        client.write_all(b"GET").unwrap();
        let mut server = server.accept().unwrap().0;
        server.read_exact(&mut [0; 3]).unwrap();
        (client, server)
    };
    let answer = |connection: &mut std::net::TcpStream| connection.write_all(b"200").unwrap();
    // The server closes first, at once or one side before the other.
    let (mut first, mut half) = (pair(), pair());
    answer(&mut first.1);
    answer(&mut half.1);
    half.1.shutdown(Shutdown::Write).unwrap();
    drop((first, half));
    until(&mut ebpf, "two", |sample| sample.port.answered == Some(2));
    // The client does, and one resets what it was sent.
    let (mut closed, mut resets) = (pair(), pair());
    closed.0.shutdown(Shutdown::Write).unwrap();
    answer(&mut closed.1);
    answer(&mut resets.1);
    drop(closed.1);
    resets.0.read_exact(&mut [0; 3]).unwrap();
    reset(vec![resets.0]);
    until(&mut ebpf, "four", |sample| sample.port.answered == Some(4));
    // Closed, reset and left without an answer, or kept open after it.
    let (unanswered, left, mut kept) = (pair(), pair(), pair());
    answer(&mut kept.1);
    drop(unanswered.1);
    reset(vec![left.0]);
    std::thread::sleep(std::time::Duration::from_millis(50));
    let counted = ebpf.sample().unwrap().port;
    // One that the server closed and sent nothing, and one that was reset.
    assert_eq!((counted.answered, counted.unasked), (Some(4), Some(2)));
    drop(kept);
    until(&mut ebpf, "five", |sample| sample.port.answered == Some(5));
}
