use super::*;
use crate::resize::{Fleet, Found, Leave, PowerTuning};
use headroom_units::Seconds;
use proptest::prelude::*;

const UP: Health = Health {
    answering: true,
    powered: Some(true),
    connections: Some(0),
    command_failed: false,
    in_doubt: false,
    failing: false,
};
const BUSY: Health = Health {
    connections: Some(3),
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
const OUT: Maintenance = Maintenance {
    power_off: false,
    at_once: false,
};
const OUT_AND_OFF: Maintenance = Maintenance {
    power_off: true,
    at_once: false,
};
const AT_ONCE: Maintenance = Maintenance {
    power_off: false,
    at_once: true,
};

/// A fleet, its first servers serving, of which the first is taken out.
fn taken_out(serving: &[bool], how: Maintenance) -> Fleet {
    let mut fleet = Fleet::new(PowerTuning::default(), serving, Seconds::ZERO).unwrap();
    fleet.take_out(&[Some(how)]);
    fleet
}

fn second(fleet: &mut Fleet, at_s: u32, target: usize, seen: &[Health]) -> Vec<(usize, Command)> {
    let orders = fleet.steer(Seconds::new(f64::from(at_s)), target, seen);
    orders.iter().map(|order| (order.server, order.command)).collect()
}

fn states(fleet: &Fleet) -> Vec<&'static str> {
    fleet.servers().iter().map(|one| one.state().name()).collect()
}

#[test]
fn another_is_started_before_it_is_drained_and_it_is_left_on() {
    let mut fleet = taken_out(&[true, true, false], OUT);
    assert_eq!(states(&fleet), ["leaving", "serving", "off"]);
    assert_eq!(fleet.in_force().servers(), Some(1));
    assert_eq!(second(&mut fleet, 1, 2, &[UP, UP, DOWN]), [(2, Command::PowerOn)]);
    assert_eq!(second(&mut fleet, 2, 2, &[UP, UP, DOWN]), []);
    assert_eq!(second(&mut fleet, 3, 2, &[BUSY, UP, UP]), [(2, Command::Enable)]);
    assert_eq!(second(&mut fleet, 4, 2, &[BUSY, UP, UP]), [(0, Command::Disable)]);
    assert_eq!(second(&mut fleet, 5, 2, &[BUSY, UP, UP]), []);
    assert_eq!(states(&fleet)[0], "draining");
    // It is empty, and neither its being off nor its silence is anybody's business.
    assert_eq!(second(&mut fleet, 6, 2, &[UP, UP, UP]), []);
    for at_s in 7..400 {
        assert_eq!(second(&mut fleet, at_s, 3, &[DOWN, UP, UP]), []);
    }
    assert_eq!(states(&fleet), ["maintenance", "serving", "serving"]);
    // Given back it is what it is found as: off, and started where it is needed.
    fleet.take_out(&[None]);
    second(&mut fleet, 400, 3, &[DOWN, UP, UP]);
    assert_eq!(
        second(&mut fleet, 401, 3, &[DOWN, UP, UP]),
        [(0, Command::PowerOn)]
    );
}

#[test]
fn one_that_is_given_back_and_runs_gets_requests_or_is_as_one_that_was_drained() {
    let given_back = |health: Health, target| {
        let mut fleet = taken_out(&[false, true], OUT);
        second(&mut fleet, 1, 1, &[DOWN, UP]);
        assert_eq!(states(&fleet), ["maintenance", "serving"]);
        fleet.take_out(&[]);
        let orders = second(&mut fleet, 2, target, &[health, UP]);
        (orders, states(&fleet)[0])
    };
    assert_eq!(given_back(UP, 2), (vec![(0, Command::Enable)], "warming"));
    assert_eq!(given_back(UP, 1), (vec![], "draining"));
    let boots = Health {
        answering: false,
        ..UP
    };
    assert_eq!(given_back(boots, 2), (vec![], "booting"));
    // One that was only asked for serves on.
    let mut fleet = taken_out(&[true, true], OUT);
    assert_eq!(second(&mut fleet, 1, 2, &[UP, UP]), []);
    fleet.take_out(&[]);
    assert_eq!(second(&mut fleet, 2, 2, &[UP, UP]), []);
    assert_eq!(states(&fleet), ["serving", "serving"]);
}

#[test]
fn one_that_is_to_be_off_is_shut_down_once_it_is_drained() {
    let mut fleet = taken_out(&[true, true], OUT_AND_OFF);
    assert_eq!(second(&mut fleet, 1, 1, &[UP, UP]), [(0, Command::Disable)]);
    // Two that serve and only one is asked for: the other is not drained as well.
    assert_eq!(second(&mut fleet, 2, 1, &[BUSY, UP]), []);
    assert_eq!(second(&mut fleet, 3, 1, &[UP, UP]), [(0, Command::PowerOff)]);
    second(&mut fleet, 4, 1, &[DOWN, UP]);
    second(&mut fleet, 5, 1, &[DOWN, UP]);
    assert_eq!(states(&fleet), ["maintenance", "serving"]);
    // A boot is not interrupted, and ends without a request.
    let mut fleet = Fleet::new(PowerTuning::default(), &[false, true], Seconds::ZERO).unwrap();
    second(&mut fleet, 1, 2, &[DOWN, UP]);
    fleet.take_out(&[Some(OUT_AND_OFF)]);
    assert_eq!(second(&mut fleet, 2, 1, &[DOWN, UP]), []);
    assert_eq!(second(&mut fleet, 3, 1, &[UP, UP]), [(0, Command::PowerOff)]);
}

#[test]
fn without_others_that_take_the_load_it_waits_unless_it_is_forced() {
    // Nobody else is there for the second.
    let mut fleet = taken_out(&[true, true], OUT);
    for at_s in 1..100 {
        assert_eq!(second(&mut fleet, at_s, 2, &[UP, UP]), []);
    }
    assert_eq!(states(&fleet)[0], "leaving");
    fleet.take_out(&[Some(AT_ONCE)]);
    // Who takes a server out cannot keep requests from it while the balancer is lost.
    fleet.lose_balancer(true);
    assert_eq!(second(&mut fleet, 100, 2, &[UP, UP]), []);
    fleet.lose_balancer(false);
    assert_eq!(second(&mut fleet, 101, 2, &[UP, UP]), [(0, Command::Disable)]);
    // The requests that it does not end are cut at the limit of any drain.
    let limit_s = PowerTuning::default().drain_timeout_s as u32;
    for at_s in 102..104 + limit_s {
        assert_eq!(second(&mut fleet, at_s, 2, &[BUSY, UP]), []);
    }
    assert_eq!(states(&fleet)[0], "maintenance");
    // One that dies meanwhile leaves at once, and is no failure.
    let mut fleet = taken_out(&[true, true], OUT);
    assert_eq!(second(&mut fleet, 1, 2, &[DOWN, UP]), [(0, Command::Disable)]);
    assert_eq!(states(&fleet)[0], "maintenance");
}

#[test]
fn one_that_is_out_on_trial_stays_as_it_is_and_comes_back_where_it_is_missed() {
    let mut fleet = Fleet::new(PowerTuning::default(), &[true, true, true], Seconds::ZERO).unwrap();
    fleet.take_out(&[Some(OUT_AND_OFF), Some(OUT)]);
    fleet.let_go(&[Leave::Waits, Leave::Waits, Leave::Replaced]);
    assert_eq!(second(&mut fleet, 1, 1, &[UP; 3]), []);
    fleet.let_go(&[Leave::OnTrial, Leave::Waits, Leave::Replaced]);
    assert_eq!(second(&mut fleet, 2, 1, &[UP; 3]), [(0, Command::Disable)]);
    let limit_s = PowerTuning::default().drain_timeout_s as u32;
    for at_s in 3..10 + limit_s {
        assert_eq!(second(&mut fleet, at_s, 1, &[UP; 3]), []);
    }
    assert_eq!(states(&fleet), ["draining", "leaving", "serving"]);
    fleet.let_go(&[Leave::Waits, Leave::Waits, Leave::Replaced]);
    assert_eq!(second(&mut fleet, 500, 1, &[UP; 3]), [(0, Command::Enable)]);
    assert_eq!(states(&fleet), ["leaving", "leaving", "serving"]);
    // A trial that is broken off because more are asked for than stay, and one that is passed.
    fleet.let_go(&[Leave::OnTrial, Leave::Waits, Leave::Replaced]);
    assert_eq!(second(&mut fleet, 501, 1, &[UP; 3]), [(0, Command::Disable)]);
    assert_eq!(second(&mut fleet, 502, 3, &[UP; 3]), [(0, Command::Enable)]);
    assert_eq!(second(&mut fleet, 503, 1, &[UP; 3]), [(0, Command::Disable)]);
    fleet.let_go(&[Leave::Replaced, Leave::Waits, Leave::Replaced]);
    assert_eq!(second(&mut fleet, 504, 1, &[UP; 3]), [(0, Command::PowerOff)]);
    // What was said of one is forgotten when it is given back.
    fleet.take_out(&[Some(OUT_AND_OFF)]);
    fleet.take_out(&[Some(OUT_AND_OFF), Some(OUT)]);
    assert_eq!(
        second(&mut fleet, 505, 1, &[DOWN, UP, UP]),
        [(1, Command::Disable)]
    );
}

#[test]
fn a_controller_that_starts_leaves_a_server_in_maintenance_alone() {
    let found = [Found::Maintenance, Found::Answering];
    let mut fleet = Fleet::found(PowerTuning::default(), &found, Seconds::ZERO).unwrap();
    fleet.take_out(&[Some(OUT)]);
    for at_s in 1..100 {
        assert_eq!(second(&mut fleet, at_s, 2, &[UP, UP]), []);
    }
    assert_eq!(states(&fleet), ["maintenance", "serving"]);
}

#[test]
fn one_in_maintenance_that_is_to_be_off_now_is_shut_down_once() {
    let start = |how| {
        let found = [Found::Maintenance, Found::Answering];
        let mut fleet = Fleet::found(PowerTuning::default(), &found, Seconds::ZERO).unwrap();
        fleet.take_out(&[Some(how)]);
        fleet
    };
    let mut fleet = start(OUT);
    assert_eq!(second(&mut fleet, 1, 1, &[UP, UP]), []);
    fleet.take_out(&[Some(OUT_AND_OFF)]);
    fleet.take_out(&[Some(OUT_AND_OFF)]);
    assert_eq!(second(&mut fleet, 2, 1, &[UP, UP]), [(0, Command::PowerOff)]);
    assert_eq!(states(&fleet), ["stopping", "serving"]);
    second(&mut fleet, 3, 1, &[DOWN, UP]);
    second(&mut fleet, 4, 1, &[DOWN, UP]);
    assert_eq!(states(&fleet), ["maintenance", "serving"]);
    // What its operator starts is his, whatever is read again.
    second(&mut fleet, 5, 1, &[DOWN, UP]);
    fleet.take_out(&[Some(OUT_AND_OFF)]);
    assert_eq!(second(&mut fleet, 6, 1, &[UP, UP]), []);
    // It is off, and to be left on: nobody starts it, and that it is to be off again changes nothing.
    for how in [OUT, OUT_AND_OFF] {
        fleet.take_out(&[Some(how)]);
        assert_eq!(second(&mut fleet, 7, 1, &[DOWN, UP]), []);
    }
    assert_eq!(second(&mut fleet, 8, 1, &[UP, UP]), []);
    assert_eq!(states(&fleet), ["maintenance", "serving"]);
    // One that a start finds so, and that is on, was handed over: its operator may have started it.
    let mut fleet = start(OUT_AND_OFF);
    for at_s in 1..30 {
        assert_eq!(second(&mut fleet, at_s, 1, &[UP, UP]), []);
    }
    assert_eq!(fleet.servers()[0].handed_over(), Some(OUT_AND_OFF));
    // One of which what was asked is not known to be done is shut down, and is his then; of one of which nobody can say whether it is on,
    // whether it answers says so.
    let unfinished = || {
        let found = [Found::Leaving, Found::Answering];
        let mut fleet = Fleet::found(PowerTuning::default(), &found, Seconds::ZERO).unwrap();
        fleet.take_out(&[Some(OUT_AND_OFF)]);
        assert_eq!(fleet.servers()[0].handed_over(), Some(OUT));
        fleet
    };
    let unsaid = |health| Health {
        powered: None,
        ..health
    };
    for (health, orders) in [
        (UP, vec![(0, Command::PowerOff)]),
        (unsaid(UP), vec![(0, Command::PowerOff)]),
        (DOWN, vec![]),
        (unsaid(DOWN), vec![]),
    ] {
        assert_eq!(second(&mut unfinished(), 1, 1, &[health, UP]), orders);
    }
    // An answer of its switch may be lost. Where it tells nothing for long, the server is taken to be off, and what is started later is his.
    for (lost, orders) in [(3, vec![(0, Command::PowerOff)]), (30, vec![])] {
        let mut fleet = unfinished();
        for at_s in 1..=lost {
            assert_eq!(second(&mut fleet, at_s, 1, &[unsaid(DOWN), UP]), []);
        }
        assert_eq!(second(&mut fleet, lost + 1, 1, &[UP, UP]), orders, "{lost}");
    }
    // One that fell silent before it was drained is shut down, too.
    let mut fleet = taken_out(&[true, true], OUT_AND_OFF);
    let silent = Health {
        answering: false,
        ..UP
    };
    let orders: Vec<_> = (1..60)
        .flat_map(|at_s| second(&mut fleet, at_s, 2, &[silent, UP]))
        .collect();
    assert_eq!(orders[..2], [(0, Command::Disable), (0, Command::PowerOff)]);
}

/// One that its operator has and asks to be shut down, after the second in which its switch is told so.
fn asked_to_be_off() -> Fleet {
    let found = [Found::Maintenance, Found::Answering];
    let mut fleet = Fleet::found(PowerTuning::default(), &found, Seconds::ZERO).unwrap();
    fleet.take_out(&[Some(OUT)]);
    second(&mut fleet, 1, 1, &[UP, UP]);
    fleet.take_out(&[Some(OUT_AND_OFF)]);
    assert_eq!(fleet.servers()[0].handed_over(), Some(OUT));
    assert_eq!(second(&mut fleet, 2, 1, &[UP, UP]), [(0, Command::PowerOff)]);
    fleet
}

#[test]
fn one_that_its_operator_has_is_his_while_it_is_shut_down_and_where_it_will_not_be() {
    let his = |fleet: &Fleet| (states(fleet)[0], fleet.servers()[0].handed_over());
    let refused = Health {
        command_failed: true,
        in_doubt: false,
        failing: false,
        ..UP
    };
    let mut fleet = asked_to_be_off();
    assert_eq!(his(&fleet), ("stopping", Some(OUT)));
    for at_s in 3..600 {
        second(&mut fleet, at_s, 1, &[refused, UP]);
        assert_eq!(his(&fleet).1, Some(OUT), "{at_s}");
    }
    // Somebody else switched it off.
    for at_s in 600..603 {
        second(&mut fleet, at_s, 1, &[DOWN, UP]);
    }
    assert_eq!(his(&fleet), ("maintenance", Some(OUT_AND_OFF)));
    // It is off.
    let mut fleet = asked_to_be_off();
    second(&mut fleet, 3, 1, &[DOWN, UP]);
    assert_eq!(his(&fleet), ("off", Some(OUT_AND_OFF)));
    second(&mut fleet, 4, 1, &[DOWN, UP]);
    assert_eq!(his(&fleet), ("maintenance", Some(OUT_AND_OFF)));
    // It is to be left as it is, after all.
    let mut fleet = asked_to_be_off();
    second(&mut fleet, 3, 1, &[refused, UP]);
    fleet.take_out(&[Some(OUT)]);
    second(&mut fleet, 4, 1, &[UP, UP]);
    assert_eq!(his(&fleet), ("maintenance", Some(OUT)));
    // Given back it is not his, nor where it is taken out anew before it is off; and it is once it is in maintenance again.
    let mut fleet = asked_to_be_off();
    fleet.take_out(&[None]);
    assert_eq!(his(&fleet), ("stopping", None));
    second(&mut fleet, 3, 1, &[UP, UP]);
    fleet.take_out(&[Some(OUT)]);
    assert_eq!(his(&fleet), ("stopping", None));
    for at_s in 4..6 {
        second(&mut fleet, at_s, 1, &[DOWN, UP]);
    }
    assert_eq!(his(&fleet), ("maintenance", Some(OUT)));
    // One that is given back and taken out within a period stays his.
    fleet.take_out(&[None]);
    fleet.take_out(&[Some(OUT)]);
    assert_eq!(his(&fleet), ("maintenance", Some(OUT)));
}

proptest! {
    /// Whatever comes of what is asked of its switch: it is its operator's from when it is in maintenance until he gives it back, gets no
    /// requests meanwhile, and is said to be shut down only where it was found off since.
    #[test]
    fn what_an_operator_has_is_his_until_he_gives_it_back(
        seen in proptest::collection::vec((0..4u8, any::<bool>(), any::<bool>(), any::<bool>()), 1..200),
    ) {
        let mut fleet = Fleet::new(PowerTuning::default(), &[true, true], Seconds::ZERO).unwrap();
        let (mut out, mut was_his, mut was_off) = (None, false, false);
        for (at_s, (asked, answering, powered, command_failed)) in (1..).map(|step| 20 * step).zip(seen) {
            let now = match asked {
                0 => None,
                1 => Some(OUT),
                2 => Some(OUT_AND_OFF),
                _ => out,
            };
            was_his &= now.is_some();
            was_off &= now == out;
            out = now;
            fleet.take_out(&[out]);
            let health = Health { answering, powered: Some(powered), command_failed, ..UP };
            let orders = second(&mut fleet, at_s, 1, &[health, UP]);
            was_off |= !powered;
            let his = fleet.servers()[0].handed_over();
            prop_assert!(!was_his || his.is_some() && !orders.contains(&(0, Command::Enable)));
            prop_assert!(was_off || !his.is_some_and(|how| how.power_off));
            prop_assert_eq!(out.is_some() && states(&fleet)[0] == "maintenance", his.is_some() && states(&fleet)[0] == "maintenance");
            was_his = his.is_some();
        }
    }

    /// Whatever is asked for and whenever: as many of those that are not taken out end on as can, and each that is taken out ends in
    /// maintenance wherever the others are enough.
    #[test]
    fn those_that_are_taken_out_and_given_back_end_where_they_should(
        asked in proptest::collection::vec((0..5usize, 0..4u8, 1..5usize), 1..8),
    ) {
        let count = 5;
        let mut fleet = Fleet::new(PowerTuning::default(), &[true, true, false, false, false], Seconds::ZERO).unwrap();
        let mut powered = [true, true, false, false, false];
        let mut maintenance = [None; 5];
        let mut at_s = 0;
        for (server, how, target) in asked {
            maintenance[server] = [None, Some(OUT), Some(OUT_AND_OFF), Some(AT_ONCE)][usize::from(how)];
            fleet.take_out(&maintenance);
            for _ in 0..200 {
                at_s += 1;
                let seen: Vec<Health> = powered.iter().map(|on| if *on { UP } else { DOWN }).collect();
                let before: Vec<PowerState> = fleet.servers().iter().map(Server::state).collect();
                for (server, command) in second(&mut fleet, at_s, target, &seen) {
                    let goes_off = maintenance[server] == Some(OUT_AND_OFF) && command == Command::PowerOff;
                    let is_its_operators = before[server] == PowerState::Maintenance && maintenance[server].is_some();
                    prop_assert!(!is_its_operators || goes_off);
                    match command {
                        Command::PowerOn => powered[server] = true,
                        Command::PowerOff => powered[server] = false,
                        Command::Enable | Command::Disable => {}
                    }
                }
            }
            let of = |state: PowerState| fleet.servers().iter().filter(|one| one.state() == state).count();
            let out = maintenance.iter().flatten().count();
            let on = target.min(count - out);
            prop_assert_eq!(of(PowerState::Serving), on);
            prop_assert_eq!(of(PowerState::Maintenance) + of(PowerState::Leaving), out);
            if on == target {
                prop_assert_eq!(of(PowerState::Leaving), 0);
            }
        }
    }
}
