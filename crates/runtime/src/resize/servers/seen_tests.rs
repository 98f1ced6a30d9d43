use super::super::reused::{Period, Reused, reused};
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

/// A check of a page of each.
fn targets(listeners: &[TcpListener]) -> Vec<crate::resize::CheckTarget> {
    let target = |listener: &TcpListener| {
        let address = listener.local_addr().unwrap();
        crate::resize::CheckTarget::parse(&format!("http://{address}/health")).unwrap()
    };
    listeners.iter().map(target).collect()
}

#[test]
fn one_that_boots_answers_by_its_check_and_one_that_serves_by_its_clients_too() {
    let listeners = ["200 OK", "503 Service Unavailable"].map(answers_with);
    let wanted = Arc::new(Mutex::new(vec![told(Admission::Ready); 2]));
    let (every, limit) = (Duration::from_millis(50), Duration::from_secs(5));
    let targets = targets(&listeners);
    let mut parts = parts(&listeners, &wanted, &TakenOut::default());
    parts.checks = crate::resize::Checks::start(targets, every, limit).unwrap();
    parts
        .servers
        .iter_mut()
        .for_each(|server| server.is_checked_there = true);
    let tuning = parts.tuning;
    let mut servers = found(parts);
    // What is counted of both is the same: so many were accepted, and none waits; or nothing could be read.
    let mut seen = |second: Found, accepts: Option<f64>, reused: Reused| {
        servers.reused = vec![Reused::default(), reused];
        let states = [Found::Answering, second];
        servers.fleet = Fleet::found(tuning, &states, Seconds::ZERO).unwrap();
        let shown = || match accepts {
            Some(accepts) => Shown::Counted(Counted {
                accepts,
                length_s: 1.0,
                waiting: Some(0.0),
                ..Counted::default()
            }),
            None => Shown::Unknown("unread".to_owned()),
        };
        let begun = servers.parts.checks.begun(1);
        while servers.parts.checks.begun(1) < begun + 2 {
            std::thread::sleep(every / 5);
        }
        let look = servers.parts.balancer.look(Duration::ZERO);
        let shown = [Some(shown()), Some(shown())];
        let trouble = servers.check(&shown, &look, &[None, None])[1].trouble.clone();
        let answering = servers.health.iter().map(|health| health.answering);
        (answering.collect::<Vec<_>>(), trouble)
    };
    let (yes, no) = (vec![true, true], vec![true, false]);
    let why = vec!["status 503".to_owned()];
    let single = Reused::default();
    let mut kept = single;
    for _ in 0..2 {
        kept.observe(Seconds::new(10.0), PerSecond::new(50.0), PerSecond::new(1.0));
    }
    let answering = |mut reused: Reused| {
        for _ in 0..2 {
            let period = Period {
                sent: 50.0,
                kept: 50.0,
                failed_answers: 0.0,
                under_way: 0.0,
                in_flight: Some(5.0),
            };
            reused.take(Seconds::new(1.0), Some(period), false);
        }
        reused
    };
    let told = || vec![reused("it so")];
    // The switch of both says that they are on.
    assert_eq!(seen(Found::Powered, Some(2.0), single), (no.clone(), vec![]));
    assert_eq!(
        seen(Found::Powered, Some(20.0), answering(kept)),
        (no.clone(), vec![])
    );
    assert_eq!(
        seen(Found::Answering, Some(2.0), single),
        (no.clone(), why.clone())
    );
    assert_eq!(seen(Found::Answering, Some(20.0), single), (yes.clone(), vec![]));
    // Behind connections that stay open none but the checks are accepted, and not even these where all workers have such: the balancer tells
    // that it answers, also where its queue cannot be read.
    assert_eq!(seen(Found::Answering, Some(2.0), kept).0, no);
    assert_eq!(seen(Found::Answering, Some(0.0), kept).0, no);
    assert_eq!(
        seen(Found::Answering, Some(0.0), answering(kept)),
        (yes.clone(), told())
    );
    assert_eq!(seen(Found::Answering, Some(0.0), answering(single)).0, yes);
    assert_eq!(seen(Found::Answering, None, answering(kept)).0, yes);
    assert_eq!(seen(Found::Answering, None, answering(single)).0, no);
}

#[test]
fn a_check_that_is_not_answered_is_in_doubt_while_connections_may_hold_the_workers_and_somebody_listens() {
    // One that lets its checks wait, and one at whose port nobody listens.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let listeners = [silent, gone];
    let wanted = Arc::new(Mutex::new(vec![told(Admission::Ready); 2]));
    let targets = targets(&listeners);
    let mut parts = parts(&listeners, &wanted, &TakenOut::default());
    let tuning = parts.tuning;
    let [_silent, gone] = listeners;
    drop(gone);
    let (every, limit) = (Duration::from_millis(50), Duration::from_millis(100));
    parts.checks = crate::resize::Checks::start(targets, every, limit).unwrap();
    let mut servers = found(parts);
    servers.fleet = Fleet::found(tuning, &[Found::Answering; 2], Seconds::ZERO).unwrap();
    let mut kept = Reused::default();
    for _ in 0..2 {
        kept.observe(Seconds::new(10.0), PerSecond::new(50.0), PerSecond::new(1.0));
    }
    // It answered, then it was asked nothing for so long.
    let idle = |seconds: u32| {
        let mut idle = kept;
        idle.take(Seconds::new(1.0), None, true);
        (0..seconds).for_each(|_| idle.take(Seconds::new(1.0), None, false));
        idle
    };
    let counted = || {
        Some(Shown::Counted(Counted {
            length_s: 1.0,
            ..Counted::default()
        }))
    };
    // Those that were answered are closed, or open.
    let closed = || counted_with(0.0);
    let open = || counted_with(8.0);
    let unread = || Some(Shown::Unknown("unread".to_owned()));
    let nobody = || Some(Shown::Nobody);
    let seen = |servers: &mut Servers, reused: Reused, shown: fn() -> Option<Shown>| {
        servers.reused = vec![reused; 2];
        let look = servers.parts.balancer.look(Duration::ZERO);
        let seen = servers.check(&[shown(), shown()], &look, &[None, None]);
        let is_check = |trouble: &String| trouble.contains("no answer") || trouble.contains("refused");
        let troubled = seen.iter().map(|seen| seen.trouble.iter().any(is_check));
        let health = servers.health.iter().zip(troubled);
        health
            .map(|(health, troubled)| (health.answering, health.in_doubt, troubled))
            .collect::<Vec<_>>()
    };
    // That it answered a moment ago tells more than its check, unless nobody is there.
    let (well, doubted, dead) = ((true, false, false), (true, true, true), (false, false, true));
    assert_eq!(seen(&mut servers, idle(1), counted), [well, well]);
    assert_eq!(seen(&mut servers, idle(1), nobody), [dead, dead]);
    for shown in [counted, unread] {
        assert_eq!(seen(&mut servers, idle(20), shown), [doubted, dead]);
        assert_eq!(seen(&mut servers, idle(70), shown), [dead, dead]);
    }
    assert_eq!(seen(&mut servers, idle(20), nobody), [dead, dead]);
    assert_eq!(seen(&mut servers, idle(20), closed), [dead, dead]);
    // One that has answered its check meanwhile, or was off, was asked nothing in vain.
    let mut in_vain = idle(1);
    for at in 1..=5 {
        let period = Period {
            sent: 6.0,
            kept: 6.0,
            failed_answers: 0.0,
            in_flight: Some(6.0 * f64::from(at)),
            under_way: 0.0,
        };
        in_vain.take(Seconds::new(1.0), Some(period), false);
    }
    assert_eq!(seen(&mut servers, in_vain, open), [dead, dead]);
    // A controller that was just started knows of no answer.
    assert_eq!(seen(&mut servers, Reused::default(), open), [doubted, dead]);
    assert_eq!(seen(&mut servers, Reused::default(), closed), [dead, dead]);
    // Another was lost behind open connections a moment ago.
    let now = Instant::now();
    for lost in [false, true] {
        servers.held.observe(now, vec![true; 2], [lost; 2].into_iter());
    }
    assert_eq!(seen(&mut servers, in_vain, open), [doubted, dead]);
    assert_eq!(seen(&mut servers, in_vain, closed), [dead, dead]);
}

fn counted_with(kept: f64) -> Option<Shown> {
    Some(Shown::Counted(Counted {
        length_s: 1.0,
        kept: Some(kept),
        ..Counted::default()
    }))
}

#[test]
fn what_was_asked_in_vain_is_forgotten_by_an_answered_check_and_while_another_is_to_serve() {
    let listeners = ["200 OK", "503 Service Unavailable"].map(answers_with);
    let wanted = Arc::new(Mutex::new(vec![told(Admission::Ready); 2]));
    let (every, limit) = (Duration::from_millis(50), Duration::from_secs(5));
    let targets = targets(&listeners);
    let mut parts = parts(&listeners, &wanted, &TakenOut::default());
    parts.checks = crate::resize::Checks::start(targets, every, limit).unwrap();
    let tuning = parts.tuning;
    let mut servers = found(parts);
    let mut forgets = |second: Found| {
        let mut in_vain = Reused::default();
        let hung = |in_flight| Period {
            sent: 6.0,
            kept: 6.0,
            failed_answers: 0.0,
            in_flight: Some(in_flight),
            under_way: 0.0,
        };
        for at in 1..=5 {
            in_vain.take(Seconds::new(1.0), Some(hung(6.0 * f64::from(at))), false);
        }
        assert!(!in_vain.may_be_held(Some(8.0), false));
        servers.reused = vec![in_vain; 2];
        servers.fleet = Fleet::found(tuning, &[Found::Answering, second], Seconds::ZERO).unwrap();
        let look = servers.parts.balancer.look(Duration::ZERO);
        servers.check(&[None, None], &look, &[None, None]);
        let held = servers
            .reused
            .iter()
            .map(|reused| reused.may_be_held(Some(8.0), false));
        held.collect::<Vec<_>>()
    };
    // Both serve, and the second's check fails; then it is off.
    assert_eq!(forgets(Found::Answering), [true, false]);
    assert_eq!(forgets(Found::Off), [true, true]);
}

#[test]
fn who_lets_its_check_wait_is_found_answering_only_where_it_gets_requests_and_somebody_listens() {
    // One that answers, one that refuses, and three that let their checks wait: two are heard at their queues.
    let waits = || TcpListener::bind("127.0.0.1:0").unwrap();
    let listeners = [
        answers_with("200 OK"),
        answers_with("503 Service Unavailable"),
        waits(),
        waits(),
        waits(),
    ];
    let wanted = Arc::new(Mutex::new(vec![told(Admission::Ready); 5]));
    let ports = listeners
        .each_ref()
        .map(|listener| listener.local_addr().unwrap().port());
    let targets = targets(&listeners);
    let mut parts = parts(&listeners, &wanted, &TakenOut::default());
    let (every, limit) = (Duration::from_millis(50), Duration::from_millis(100));
    parts.checks = crate::resize::Checks::start(targets, every, limit).unwrap();
    for at in [1, 2, 3] {
        let tuning = headroom_control::capacity::QueueTuning::default();
        let queue = crate::resize::Queue::new(ports[at], headroom_node::queue::QueuePreference::Auto, tuning);
        let mut queue = queue.unwrap();
        if let Some(why) = queue.obstacle() {
            println!("skipped: {why}");
            return;
        }
        parts.servers[at].queue = Some(queue);
    }
    let until = Instant::now() + Duration::from_secs(20);
    let refused = |parts: &crate::resize::Parts| {
        matches!(parts.checks.answers(1), Err(NoAnswer::Refused(_))) && parts.checks.answers(0).is_ok()
    };
    while !refused(&parts) {
        assert!(Instant::now() < until, "no check came back");
        std::thread::sleep(every);
    }
    let mut found =
        |admission| -> Vec<bool> { (0..5).map(|at| parts.is_found_answering(at, admission)).collect() };
    assert_eq!(found(Admission::Ready), [true, false, true, true, false]);
    assert_eq!(found(Admission::Drain), [true, false, false, false, false]);
}
