//! What the admin port says.

use super::*;
use crate::live::BackendTick;
use headroom_units::Lever;

/// Whether it counts as failing after each period of so many answered and so many failed requests.
fn play(periods: &[(u64, u64)]) -> Vec<bool> {
    let mut failing = Failing::default();
    let mut after = |&(completions, failures): &(u64, u64)| {
        failing = failing.after(&Traffic {
            completions,
            failures,
            ..Traffic::default()
        });
        failing.now
    };
    periods.iter().map(&mut after).collect()
}

#[test]
fn one_failed_request_of_a_quiet_service_is_no_outage() {
    assert_eq!(play(&[(0, 1); 5]), [false; 5]);
    assert_eq!(play(&[(0, 2), (0, 0), (1, 2), (0, 0)]), [false; 4]);
    // One bad period, however bad, and periods that alternate.
    assert_eq!(play(&[(0, 500), (9, 0), (0, 500), (9, 0)]), [false; 4]);
    assert_eq!(play(&[(50, 50); 3]), [false; 3]);
}

#[test]
fn a_run_on_one_machine_has_that_node_and_its_gateway() {
    let mut tick = Tick::default();
    tick.observation.in_force = tick.observation.in_force.with(Lever::Cores, Some(2.0));
    tick.observation.utilisation = Some(headroom_units::Ratio::new(0.5));
    let [node] = &of_role(&tick, Role::Node)[..] else {
        panic!("one node");
    };
    assert_eq!(
        (node.state.as_deref(), node.get(Lever::Cores)),
        (Some("held"), Some(2.0))
    );
    assert_eq!(node.get(Sensor::BusyCores), Some(1.0));
    tick.telemetry_lost = true;
    let gateways = of_role(&tick, Role::Gateway);
    assert_eq!(gateways[0].state.as_deref(), Some("unreachable"));
    assert!(gateways[0].get(Lever::Cores).is_none());
    // Another source of its requests is that gateway, and no machine.
    tick.parts = vec![Part::new("haproxy", Role::Gateway)];
    assert_eq!(of_role(&tick, Role::Gateway), tick.parts);
    assert_eq!(of_role(&tick, Role::Node)[0].get(Lever::Cores), Some(2.0));
    tick.parts = vec![Part::new("n1", Role::Node)];
    assert_eq!(of_role(&tick, Role::Node), tick.parts);
    assert!(of_role(&tick, Role::Gateway).is_empty());
}

#[test]
fn a_recorder_that_cannot_write_shows_while_the_service_stays_ready() {
    let status = Status::new("fixed".to_owned(), Duration::from_secs(1));
    status.last.lock().unwrap().unready = None;
    let read = |path| format!("{:?}", answer(&status, &Method::GET, path).into_body());
    let metrics = || status.metrics_text();
    assert!(!read("/readyz").contains("recorder"), "{}", read("/readyz"));
    let failing = "periods: database or disk is full";
    status.recorded(Health {
        unwritten: 7,
        failing: Some(failing.to_owned()),
        ..Health::default()
    });
    status.tick(&Tick::default());
    status.last.lock().unwrap().unready = None;
    assert_eq!(readiness(&status).0, StatusCode::OK);
    assert!(readiness(&status).2.contains(failing));
    assert!(read("/status").contains(failing), "{}", read("/status"));
    for metric in [
        "headroom_record_failing 1.0",
        "headroom_record_lost_periods_total 7",
    ] {
        assert!(metrics().contains(metric), "{}", metrics());
    }
    status.recorded(Health::default());
    assert!(!readiness(&status).2.contains(failing) && metrics().contains("headroom_record_failing 0.0"));
}

#[test]
fn connections_are_told_where_a_server_is_on_call() {
    let status = Status::new("on-call".to_owned(), Duration::from_secs(1));
    let page = |path: &str| answer(&status, &Method::GET, path);
    assert_eq!(page("/connections").status(), StatusCode::NOT_FOUND);
    assert!(format!("{:?}", page("/connections").into_body()).contains("headroom wrap"));
    let folder = tempfile::tempdir().unwrap();
    let steering = Arc::new(headroom_oncall::Steering::create(&folder.path().join("region")).unwrap());
    let connections = Connections::new(Vec::new(), 4);
    connections.follow(&steering);
    status.attend_connections(Arc::new(connections));
    assert_eq!(page("/connections").status(), StatusCode::OK);
    assert_eq!(
        page("/connections").headers()[header::CONTENT_TYPE],
        "application/json"
    );
    let metrics = status.metrics_text();
    assert!(
        metrics.contains("headroom_connections_without_series 0"),
        "{metrics}"
    );
    assert!(metrics.ends_with("# EOF\n"));
}

#[test]
fn after_the_last_period_nothing_is_told_to_be_in_force() {
    let status = Status::new("on-call".to_owned(), Duration::from_secs(1));
    status.tick(&Tick::default());
    let page = |path: &str| answer(&status, &Method::GET, path);
    assert_eq!(page("/metrics").status(), StatusCode::OK);
    status.end("the server was asked to end".to_owned());
    for path in ["/metrics", "/readyz", "/status"] {
        let page = page(path);
        assert_eq!(page.status(), StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert!(
            format!("{:?}", page.into_body()).contains("asked to end"),
            "{path}"
        );
    }
    // What holds on is told on.
    assert_eq!(page("/healthz").status(), StatusCode::OK);
}

#[test]
fn the_last_comparisons_and_the_classes_stay_in_the_status() {
    let status = Status::new("on-call".to_owned(), Duration::from_secs(1));
    let json = || serde_json::from_str::<serde_json::Value>(&status.last().2).unwrap();
    for ended in 0..40 {
        let mut tick = Tick {
            parts: vec![Part::new("gold", Role::Class).in_state("missed")],
            ..Tick::default()
        };
        tick.decision.comparisons = vec![Comparison {
            began: headroom_units::Seconds::ZERO,
            ended: headroom_units::Seconds::new(f64::from(ended)),
            about: "delays".to_owned(),
            compared: Vec::new(),
        }];
        status.tick(&tick);
    }
    // A period that compared nothing.
    status.tick(&Tick::default());
    let told = json();
    // This process has no guard of its own: whether another stands is not said.
    assert!(told.get("guard").is_none(), "{told}");
    let told = told["comparisons"].as_array().unwrap();
    assert_eq!(
        (told.len(), &told[15]["ended"]),
        (MAX_COMPARISONS, &serde_json::json!(39.0))
    );
    assert_eq!(json()["classes"], serde_json::json!([]));
    let mut tick = Tick::default();
    tick.parts.push(Part::new("gold", Role::Class).in_state("missed"));
    status.tick(&tick);
    assert_eq!(json()["classes"][0]["state"], "missed");
}

#[test]
fn the_slo_is_in_the_status_and_of_a_run_without_one_there_is_none() {
    let status = Status::new("on-call".to_owned(), Duration::from_secs(1));
    let json = || serde_json::from_str::<serde_json::Value>(&status.last().2).unwrap();
    status.tick(&Tick {
        target: Some(headroom_units::Seconds::from_millis(50.0)),
        percentile: Some(headroom_units::Ratio::from_percent(99.0)),
        ..Tick::default()
    });
    assert_eq!(
        json()["slo"],
        serde_json::json!({ "percentile": 99.0, "target_ms": 50.0 })
    );
    status.tick(&Tick::default());
    assert!(json()["slo"].is_null());
}

#[test]
fn what_a_service_cannot_rely_on_is_named() {
    let status = Status::new("fixed".to_owned(), Duration::from_secs(1));
    assert_eq!(readiness(&status).2, "no period has ended yet\n");
    let mut gateway = Part::new("g1", Role::Gateway);
    gateway
        .trouble
        .push("tcp:127.0.0.1:9 refuses connections".to_owned());
    let lost = Tick {
        telemetry_lost: true,
        parts: vec![gateway],
        ..Tick::default()
    };
    status.tick(&lost);
    let said =
        "nothing is known of the requests of the last period (g1: tcp:127.0.0.1:9 refuses connections)\n";
    assert_eq!(
        readiness(&status),
        (StatusCode::SERVICE_UNAVAILABLE, PLAIN, said.to_owned())
    );
    let mut unlimited = Tick {
        not_carried_out: vec!["no node is there".to_owned()],
        ..Tick::default()
    };
    unlimited.observation.demand = Some(headroom_units::PerSecond::new(1.0));
    unlimited.backends.push(BackendTick {
        name: "http://127.0.0.1:1".to_owned(),
        requests: 1,
        failures: 0,
        healthy: true,
        connects: None,
        left_by_clients: None,
        answered_to_nobody: None,
        failed_answers: None,
        checks: None,
    });
    status.tick(&unlimited);
    let ready = readiness(&status);
    assert_eq!(ready.0, StatusCode::OK, "{ready:?}");
    assert!(
        ready.2.contains("could not be carried out: no node is there"),
        "{ready:?}"
    );
}

#[test]
fn two_periods_of_failures_are_one_and_two_good_ones_end_it() {
    assert_eq!(
        play(&[
            (2, 3),
            (0, 0),
            (0, 3),
            (0, 0),
            (9, 0),
            (0, 9),
            (9, 0),
            (0, 0),
            (9, 1),
            (9, 0)
        ]),
        [false, false, true, true, true, true, true, true, false, false]
    );
    // It is the failures of the service that count.
    let mut failing = Failing::default();
    for _ in 0..3 {
        failing = failing.after(&Traffic {
            failures: 9,
            failed_by_client: 9,
            ..Traffic::default()
        });
    }
    assert!(!failing.now);
}

#[test]
fn a_server_that_is_not_on_call_or_for_some_of_its_connections_alone_is_named() {
    let said = |state: &str, trouble: &[&str]| {
        let mut part = Part::new("db", Role::Node).in_state(state.to_owned());
        part.trouble = trouble.iter().map(|one| (*one).to_owned()).collect();
        let tick = Tick {
            parts: vec![part],
            ..Tick::default()
        };
        unhelped(&tick).concat()
    };
    assert_eq!(said(ON_CALL, &[]), "");
    assert_eq!(
        said(ON_CALL, &["12 connections are elsewhere"]),
        "db: 12 connections are elsewhere\n"
    );
    assert_eq!(
        said(UNHELPED[0], &["why"]),
        format!("db is not on call: {}\n", UNHELPED[0])
    );
    assert_eq!(said("held", &["late"]), "");
}
