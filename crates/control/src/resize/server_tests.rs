use super::*;
use proptest::prelude::*;

const UP: Health = Health {
    answering: true,
    powered: Some(true),
    connections: Some(3),
    command_failed: false,
    in_doubt: false,
    failing: false,
};
const BOOTING: Health = Health {
    answering: false,
    ..UP
};
/// Up, and empty.
const IDLE: Health = Health {
    connections: Some(0),
    ..UP
};
const DOWN: Health = Health {
    answering: false,
    powered: Some(false),
    connections: None,
    command_failed: false,
    in_doubt: false,
    failing: false,
};

fn server(serving: bool) -> Server {
    let found = if serving { Found::Answering } else { Found::Off };
    Server::new(PowerTuning::default(), found, Seconds::ZERO)
}

#[test]
fn a_controller_that_starts_again_finds_what_is_there() {
    for (health, found) in [
        (UP, Found::Answering),
        (BOOTING, Found::Powered),
        (DOWN, Found::Off),
        (Health::default(), Found::Off),
    ] {
        assert_eq!(Found::from(&health), found);
    }
    // One that boots is waited for, wanted or not, and no longer than any other.
    let powered = || Server::new(PowerTuning::default(), Found::Powered, Seconds::ZERO);
    run(
        &mut powered(),
        &[
            (1.0, true, BOOTING, None, PowerState::Booting),
            (60.0, true, UP, Some(Command::Enable), PowerState::Warming),
        ],
    );
    run(
        &mut powered(),
        &[(60.0, false, UP, Some(Command::PowerOff), PowerState::Stopping)],
    );
    run(
        &mut powered(),
        &[(
            301.0,
            true,
            BOOTING,
            Some(Command::Disable),
            PowerState::Failed(Cause::Boot),
        )],
    );
}

#[test]
fn one_that_was_taken_for_off_and_answers_is_used_or_stopped() {
    let nobody_can_say = Health { powered: None, ..UP };
    for up in [UP, nobody_can_say] {
        run(
            &mut server(false),
            &[(1.0, true, up, Some(Command::Enable), PowerState::Warming)],
        );
        run(
            &mut server(false),
            &[(1.0, false, up, Some(Command::PowerOff), PowerState::Stopping)],
        );
    }
    // Its power is said to be off, and something answers in its place: that is nothing to be stopped.
    let another = Health {
        powered: Some(false),
        ..UP
    };
    run(
        &mut server(false),
        &[(1.0, false, another, None, PowerState::Off)],
    );
}

/// Runs a table of (time, wanted, seen, command expected, state expected).
fn run(server: &mut Server, table: &[(f64, bool, Health, Option<Command>, PowerState)]) {
    for (at_s, wanted, health, command, state) in table {
        let got = server.tick(Seconds::new(*at_s), *wanted, health);
        assert_eq!((got, server.state()), (*command, *state), "at {at_s} s");
    }
}

#[test]
fn from_off_to_serving_and_back() {
    let mut server = server(false);
    run(
        &mut server,
        &[
            (0.0, false, DOWN, None, PowerState::Off),
            (1.0, true, DOWN, Some(Command::PowerOn), PowerState::Booting),
            (31.0, true, BOOTING, None, PowerState::Booting),
            (61.0, true, UP, Some(Command::Enable), PowerState::Warming),
            (70.0, true, UP, None, PowerState::Warming),
            (71.0, true, UP, None, PowerState::Serving),
            (99.0, false, UP, Some(Command::Disable), PowerState::Draining),
            (100.0, false, UP, None, PowerState::Draining),
            (101.0, false, IDLE, Some(Command::PowerOff), PowerState::Stopping),
            // A server that is being powered down cannot be turned on until it is off.
            (102.0, true, BOOTING, None, PowerState::Stopping),
            (160.0, true, DOWN, None, PowerState::Off),
            (161.0, true, DOWN, Some(Command::PowerOn), PowerState::Booting),
        ],
    );
    assert_eq!(server.failures(), 0);
}

#[test]
fn a_draining_server_that_is_wanted_again_serves_again() {
    run(
        &mut server(true),
        &[
            (1.0, false, UP, Some(Command::Disable), PowerState::Draining),
            (2.0, true, UP, Some(Command::Enable), PowerState::Serving),
        ],
    );
}

#[test]
fn a_drain_ends_with_its_time_limit() {
    run(
        &mut server(true),
        &[
            (1.0, false, UP, Some(Command::Disable), PowerState::Draining),
            (61.0, false, UP, None, PowerState::Draining),
            (62.0, false, UP, Some(Command::PowerOff), PowerState::Stopping),
        ],
    );
}

#[test]
fn a_shutdown_that_nobody_can_see_takes_its_time() {
    let unseen = Health {
        answering: false,
        powered: None,
        connections: Some(0),
        command_failed: false,
        in_doubt: false,
        failing: false,
    };
    run(
        &mut server(true),
        &[
            (1.0, false, unseen, Some(Command::Disable), PowerState::Draining),
            (2.0, false, unseen, Some(Command::PowerOff), PowerState::Stopping),
            (61.0, false, unseen, None, PowerState::Stopping),
            (62.0, false, unseen, None, PowerState::Off),
        ],
    );
}

#[test]
fn a_failed_boot_is_retried_later_and_later() {
    let mut server = server(false);
    run(
        &mut server,
        &[
            (0.0, true, DOWN, Some(Command::PowerOn), PowerState::Booting),
            (300.0, true, BOOTING, None, PowerState::Booting),
            (
                301.0,
                true,
                BOOTING,
                Some(Command::Disable),
                PowerState::Failed(Cause::Boot),
            ),
            (330.0, true, BOOTING, None, PowerState::Failed(Cause::Boot)),
            // After 30 s: off first, for who knows in what state it hangs.
            (
                331.0,
                true,
                BOOTING,
                Some(Command::PowerOff),
                PowerState::Stopping,
            ),
            (340.0, true, DOWN, None, PowerState::Off),
            (341.0, true, DOWN, Some(Command::PowerOn), PowerState::Booting),
            (
                642.0,
                true,
                DOWN,
                Some(Command::Disable),
                PowerState::Failed(Cause::Boot),
            ),
            // Off by itself; the second wait is 60 s.
            (643.0, true, DOWN, None, PowerState::Off),
            (701.0, true, DOWN, None, PowerState::Off),
            (702.0, true, DOWN, Some(Command::PowerOn), PowerState::Booting),
            (710.0, true, UP, Some(Command::Enable), PowerState::Warming),
        ],
    );
    assert_eq!(server.failures(), 2);
    // Five minutes of service make up for it.
    run(&mut server, &[(720.0, true, UP, None, PowerState::Serving)]);
    server.tick(Seconds::new(1_019.0), true, &UP);
    assert_eq!(server.failures(), 2);
    server.tick(Seconds::new(1_020.0), true, &UP);
    assert_eq!(server.failures(), 0);
}

#[test]
fn a_command_that_could_not_be_carried_out_is_a_failure() {
    let refused = Health {
        command_failed: true,
        in_doubt: false,
        failing: false,
        ..DOWN
    };
    let mut server = server(false);
    run(
        &mut server,
        &[
            (0.0, true, DOWN, Some(Command::PowerOn), PowerState::Booting),
            (
                1.0,
                true,
                refused,
                Some(Command::Disable),
                PowerState::Failed(Cause::Command),
            ),
            (2.0, true, DOWN, None, PowerState::Off),
            (30.0, true, DOWN, None, PowerState::Off),
            (31.0, true, DOWN, Some(Command::PowerOn), PowerState::Booting),
        ],
    );
}

#[test]
fn a_server_that_stops_answering_gets_no_requests_and_may_come_back() {
    run(
        &mut server(true),
        &[
            (5.0, true, UP, None, PowerState::Serving),
            (10.0, true, BOOTING, None, PowerState::Serving),
            (15.0, true, BOOTING, None, PowerState::Serving),
            (
                15.5,
                true,
                BOOTING,
                Some(Command::Disable),
                PowerState::Failed(Cause::Lost),
            ),
            (20.0, true, UP, Some(Command::Enable), PowerState::Warming),
        ],
    );
    // Power that is gone needs no ten seconds.
    run(
        &mut server(true),
        &[(
            1.0,
            true,
            DOWN,
            Some(Command::Disable),
            PowerState::Failed(Cause::Lost),
        )],
    );
}

#[test]
fn one_that_is_wanted_and_waits_says_after_what_and_for_how_long() {
    let mut server = server(true);
    let waits = |server: &Server, at_s: f64| {
        let waits = server.waits(Seconds::new(at_s));
        waits.map(|(cause, rest)| (cause, rest.get()))
    };
    assert_eq!(waits(&server, 0.0), None);
    server.tick(Seconds::new(1.0), true, &DOWN);
    assert_eq!(waits(&server, 1.0), Some((Cause::Lost, 30.0)));
    server.tick(Seconds::new(2.0), true, &DOWN);
    assert_eq!(server.state(), PowerState::Off);
    assert_eq!(waits(&server, 4.0), Some((Cause::Lost, 27.0)));
    assert_eq!(waits(&server, 31.0), None);
    server.tick(Seconds::new(31.0), true, &DOWN);
    assert_eq!(waits(&server, 31.0), None, "it boots");
    // One that came back by itself waits for nothing.
    let mut server = self::server(true);
    server.tick(Seconds::new(1.0), true, &DOWN);
    server.tick(Seconds::new(2.0), true, &UP);
    assert_eq!(waits(&server, 3.0), None);
}

#[test]
fn a_server_that_will_not_stop_is_told_again() {
    run(
        &mut server(true),
        &[
            (1.0, false, UP, Some(Command::Disable), PowerState::Draining),
            (2.0, false, IDLE, Some(Command::PowerOff), PowerState::Stopping),
            (
                303.0,
                false,
                UP,
                Some(Command::Disable),
                PowerState::Failed(Cause::Stop),
            ),
            // Although it answers: it may still be on its way down.
            (304.0, true, UP, None, PowerState::Failed(Cause::Stop)),
            (333.0, false, UP, Some(Command::PowerOff), PowerState::Stopping),
            (340.0, false, DOWN, None, PowerState::Off),
        ],
    );
}

proptest! {
    /// Whatever happens: enabled exactly while it takes requests, and powered on never before its wait is over.
    #[test]
    fn requests_go_only_to_a_server_that_takes_them(
        steps in proptest::collection::vec(
            (0.0..200.0f64, any::<bool>(), any::<bool>(), proptest::option::of(any::<bool>()), 0..3u64, 0..10u8),
            1..200,
        ),
    ) {
        let mut server = server(false);
        let (mut at_s, mut enabled, mut failed_s) = (0.0, false, f64::NEG_INFINITY);
        for (gap_s, wanted, answering, powered, connections, refused) in steps {
            at_s += gap_s;
            let health = Health { answering, powered, connections: Some(connections), command_failed: refused == 0, in_doubt: false, failing: false };
            let before = server.state();
            let command = server.tick(Seconds::new(at_s), wanted, &health);
            match command {
                Some(Command::Enable) => enabled = true,
                Some(Command::Disable) => enabled = false,
                Some(Command::PowerOn) => {
                    prop_assert!(wanted && before == PowerState::Off);
                    prop_assert!(at_s - failed_s >= 30.0 || server.failures() == 0);
                }
                Some(Command::PowerOff) | None => {}
            }
            if matches!(server.state(), PowerState::Failed(_)) && server.state() != before {
                failed_s = at_s;
            }
            prop_assert_eq!(enabled, server.state().takes_requests());
        }
    }
}
