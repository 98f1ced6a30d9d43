use super::super::reused::Reused;
use super::*;
use crate::resize::servers::TakenOut;
use crate::resize::testing::{found, parts, told};
use headroom_control::resize::{Fleet, Found};
use headroom_units::{PerSecond, Seconds};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

/// Answers every request so, as long as the test runs.
fn answers_with(status: &'static str) -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let serving = listener.try_clone().unwrap();
    std::thread::spawn(move || {
        for mut stream in serving.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
        }
    });
    listener
}

#[test]
fn one_that_boots_answers_by_its_check_and_one_that_serves_by_its_clients_too() {
    let listeners = ["200 OK", "503 Service Unavailable"].map(answers_with);
    let wanted = Arc::new(Mutex::new(vec![told(Admission::Ready); 2]));
    let (every, limit) = (Duration::from_millis(50), Duration::from_secs(5));
    let targets = listeners.iter().map(|listener| {
        let address = listener.local_addr().unwrap();
        crate::resize::CheckTarget::parse(&format!("http://{address}/health")).unwrap()
    });
    let mut parts = parts(&listeners, &wanted, &TakenOut::default());
    parts.checks = crate::resize::Checks::start(targets.collect(), every, limit).unwrap();
    parts
        .servers
        .iter_mut()
        .for_each(|server| server.is_checked_there = true);
    let tuning = parts.tuning;
    let mut servers = found(parts);
    // What is counted of both is the same: so many were accepted, and none waits.
    let mut seen = |second: Found, accepts, is_reused: bool| {
        servers.reused = vec![Reused::default(); 2];
        if is_reused {
            let of = PerSecond::new;
            servers.reused[1].observe(Seconds::new(10.0), of(50.0), of(1.0));
        }
        let states = [Found::Answering, second];
        servers.fleet = Fleet::found(tuning, &states, Seconds::ZERO).unwrap();
        let counted = Counted {
            accepts,
            length_s: 1.0,
            waiting: Some(0.0),
            ..Counted::default()
        };
        let begun = servers.parts.checks.begun(1);
        while servers.parts.checks.begun(1) < begun + 2 {
            std::thread::sleep(every / 5);
        }
        let look = servers.parts.balancer.look(Duration::ZERO);
        let shown = [Some(Shown::Counted(counted)), Some(Shown::Counted(counted))];
        let trouble = servers.check(&shown, &look, &[None, None])[1].trouble.clone();
        let answering = servers.health.iter().map(|health| health.answering);
        (answering.collect::<Vec<_>>(), trouble)
    };
    let (yes, no) = (vec![true, true], vec![true, false]);
    let why = vec!["status 503".to_owned()];
    // The switch of both says that they are on.
    assert_eq!(seen(Found::Powered, 2.0, false), (no.clone(), vec![]));
    assert_eq!(seen(Found::Powered, 20.0, true), (no.clone(), vec![]));
    assert_eq!(seen(Found::Answering, 2.0, false), (no, why));
    assert_eq!(seen(Found::Answering, 20.0, false), (yes.clone(), vec![]));
    // Behind connections that stay open none but the checks are accepted.
    assert_eq!(seen(Found::Answering, 2.0, true), (yes, vec![REUSED.to_owned()]));
}
