use super::*;
use proptest::prelude::*;

const UP: Health = Health {
    answering: true,
    powered: Some(true),
    connections: Some(0),
    command_failed: false,
    in_doubt: false,
    failing: false,
};
const DOWN: Health = Health {
    answering: false,
    powered: Some(false),
    connections: None,
    command_failed: false,
    in_doubt: false,
    failing: false,
};

fn states(fleet: &Fleet) -> Vec<&'static str> {
    fleet.servers().iter().map(|one| one.state().name()).collect()
}

fn order(server: usize, command: Command) -> Order {
    Order { server, command }
}

#[test]
fn the_first_that_is_off_comes_and_the_last_that_serves_goes() {
    let mut fleet = Fleet::new(PowerTuning::default(), &[true, false, false], Seconds::ZERO).unwrap();
    let at = Seconds::new;
    let orders = fleet.steer(at(1.0), 2, &[UP, DOWN, DOWN]);
    assert_eq!(orders, [order(1, Command::PowerOn)]);
    // One on its way is one on its way.
    assert_eq!(fleet.steer(at(2.0), 2, &[UP, DOWN, DOWN]), []);
    fleet.steer(at(3.0), 2, &[UP, UP, DOWN]);
    fleet.steer(at(20.0), 2, &[UP, UP, DOWN]);
    assert_eq!(states(&fleet), ["serving", "serving", "off"]);
    assert_eq!(
        fleet.steer(at(21.0), 1, &[UP, UP, DOWN]),
        [order(1, Command::Disable)]
    );
    // The draining one comes back before the one that is off.
    assert_eq!(
        fleet.steer(at(21.5), 2, &[UP, UP, DOWN]),
        [order(1, Command::Enable)]
    );
}

#[test]
fn one_of_which_it_is_in_doubt_whether_it_answers_goes_before_one_that_does() {
    let at = Seconds::new;
    let doubted = Health { in_doubt: true, ..UP };
    for ranks in [vec![], vec![0, 0, 0], vec![0, 2, 1]] {
        let mut fleet = Fleet::new(PowerTuning::default(), &[true; 3], Seconds::ZERO).unwrap();
        fleet.rank(&ranks);
        let orders = fleet.steer(at(1.0), 2, &[doubted, UP, UP]);
        assert_eq!(orders, [order(0, Command::Disable)], "{ranks:?}");
        // It takes requests, and is not lost.
        let mut alone = Fleet::new(PowerTuning::default(), &[true], Seconds::ZERO).unwrap();
        for second in 1..100 {
            assert_eq!(alone.steer(at(f64::from(second)), 1, &[doubted]), []);
        }
        assert_eq!(states(&alone), ["serving"]);
    }
}

#[test]
fn one_that_fails_what_it_is_sent_is_no_capacity_and_goes_first() {
    let at = Seconds::new;
    let fails = Health { failing: true, ..UP };
    let mut fleet = Fleet::new(PowerTuning::default(), &[true, true, false], Seconds::ZERO).unwrap();
    // Another is started in its place, and it stays as long as nobody is to go.
    let orders = fleet.steer(at(1.0), 2, &[fails, UP, DOWN]);
    assert_eq!(orders, [order(2, Command::PowerOn)]);
    fleet.steer(at(2.0), 2, &[fails, UP, UP]);
    assert_eq!(fleet.steer(at(20.0), 2, &[fails, UP, UP]), []);
    assert_eq!(states(&fleet), ["serving", "serving", "serving"]);
    let mut well = fleet.clone();
    assert_eq!(
        fleet.steer(at(21.0), 1, &[fails, UP, UP]),
        [order(0, Command::Disable)]
    );
    // It is well again, and then the last goes.
    assert_eq!(
        well.steer(at(21.0), 2, &[UP, UP, UP]),
        [order(2, Command::Disable)]
    );
}

#[test]
fn where_none_takes_requests_one_that_served_is_started_at_once_and_a_failed_boot_is_not_waited_out_for_long()
{
    let at = Seconds::new;
    let mut fleet = Fleet::new(PowerTuning::default(), &[true, true], Seconds::ZERO).unwrap();
    let power_on = |orders: Vec<Order>| {
        let on = orders
            .into_iter()
            .filter(|order| order.command == Command::PowerOn);
        on.map(|order| order.server).collect::<Vec<_>>()
    };
    fleet.steer(at(1.0), 2, &[UP, UP]);
    // All die, and again: neither waits.
    for died_s in [100.0, 120.0] {
        fleet.steer(at(died_s), 2, &[DOWN, DOWN]);
        fleet.steer(at(died_s + 1.0), 2, &[DOWN, DOWN]);
        let started = fleet.steer(at(died_s + 2.0), 2, &[DOWN, DOWN]);
        assert_eq!(power_on(started), [0, 1], "{died_s} s: {:?}", states(&fleet));
        fleet.steer(at(died_s + 3.0), 2, &[UP, UP]);
        fleet.steer(at(died_s + 15.0), 2, &[UP, UP]);
    }
    // One of two dies: it waits.
    for second in 200..230 {
        assert!(power_on(fleet.steer(at(f64::from(second)), 2, &[DOWN, UP])).is_empty());
    }
    // Boots that fail again and again wait for 30 s each, in an outage.
    let mut boots = Fleet::new(PowerTuning::default(), &[false], Seconds::ZERO).unwrap();
    let started: Vec<u32> = (1..1_700)
        .filter(|second| !power_on(boots.steer(at(f64::from(*second)), 1, &[DOWN])).is_empty())
        .collect();
    assert_eq!(started, [1, 332, 663, 994, 1_325, 1_656]);
}

#[test]
fn another_takes_the_place_of_one_that_fails_to_boot() {
    let mut fleet = Fleet::new(PowerTuning::default(), &[true, false, false], Seconds::ZERO).unwrap();
    fleet.steer(Seconds::new(1.0), 2, &[UP, DOWN, DOWN]);
    let orders = fleet.steer(Seconds::new(302.0), 2, &[UP, DOWN, DOWN]);
    assert_eq!(orders, [order(1, Command::Disable)]);
    let orders = fleet.steer(Seconds::new(303.0), 2, &[UP, DOWN, DOWN]);
    assert_eq!(orders, [order(2, Command::PowerOn)]);
    assert_eq!(states(&fleet), ["serving", "off", "booting"]);
    // With nobody left, it is tried again when its wait is over, and not before.
    assert_eq!(fleet.steer(Seconds::new(331.0), 3, &[UP, DOWN, DOWN]), []);
    let orders = fleet.steer(Seconds::new(332.0), 3, &[UP, DOWN, DOWN]);
    assert_eq!(orders, [order(1, Command::PowerOn)]);
}

#[test]
fn a_slow_server_goes_first_and_comes_last() {
    let mut fleet = Fleet::new(PowerTuning::default(), &[true; 3], Seconds::ZERO).unwrap();
    let work = |in_flight| {
        Some(Work {
            requests: 20,
            in_flight,
        })
    };
    for _ in 0..100 {
        fleet.observe(&[work(30), work(10), work(11)]);
    }
    let slow: Vec<bool> = (0..3).map(|at| fleet.slow(at).is_some()).collect();
    assert_eq!(slow, [true, false, false]);
    let at = Seconds::new;
    let leaves = fleet.steer(at(1.0), 1, &[UP, UP, UP]);
    assert_eq!(leaves, [order(0, Command::Disable), order(2, Command::Disable)]);
    for second in 2..10 {
        fleet.steer(at(f64::from(second)), 1, &[DOWN, UP, DOWN]);
    }
    assert_eq!(states(&fleet), ["off", "serving", "off"]);
    let comes = fleet.steer(at(700.0), 2, &[DOWN, UP, DOWN]);
    assert_eq!(comes, [order(2, Command::PowerOn)]);
    let comes = fleet.steer(at(701.0), 3, &[DOWN, UP, DOWN]);
    assert_eq!(comes, [order(0, Command::PowerOn)]);
}

/// Not answering, and nobody says that it is off.
const SILENT: Health = Health {
    answering: false,
    ..UP
};

#[test]
fn a_controller_that_stood_still_takes_nobody_out() {
    let mut fleet = Fleet::new(PowerTuning::default(), &[true, true], Seconds::ZERO).unwrap();
    fleet.steer(Seconds::new(1.0), 2, &[UP, UP]);
    // Its own checks stood still as well.
    assert_eq!(fleet.steer(Seconds::new(21.0), 2, &[SILENT, SILENT]), []);
    assert_eq!(fleet.steer(Seconds::new(22.0), 2, &[UP, UP]), []);
    assert_eq!(states(&fleet), ["serving", "serving"]);
}

#[test]
fn the_last_that_takes_requests_keeps_them_until_another_does() {
    let mut fleet = Fleet::new(PowerTuning::default(), &[true, false], Seconds::ZERO).unwrap();
    let mut orders = Vec::new();
    for second in 1..=30 {
        orders.extend(fleet.steer(Seconds::new(f64::from(second)), 1, &[SILENT, DOWN]));
    }
    assert_eq!(orders, [order(1, Command::PowerOn)]);
    assert_eq!(states(&fleet), ["serving", "booting"]);
    assert_eq!(
        fleet.steer(Seconds::new(31.0), 1, &[SILENT, UP]),
        [order(1, Command::Enable)]
    );
    assert_eq!(
        fleet.steer(Seconds::new(32.0), 1, &[SILENT, UP]),
        [order(0, Command::Disable)]
    );
    assert_eq!(states(&fleet), ["failed", "warming"]);
}

#[test]
fn a_boot_that_is_no_longer_wanted_ends_without_a_request() {
    let mut fleet = Fleet::new(PowerTuning::default(), &[true, false], Seconds::ZERO).unwrap();
    fleet.steer(Seconds::new(1.0), 2, &[UP, DOWN]);
    assert_eq!(fleet.steer(Seconds::new(2.0), 1, &[UP, DOWN]), []);
    let orders = fleet.steer(Seconds::new(50.0), 1, &[UP, UP]);
    assert_eq!(orders, [order(1, Command::PowerOff)]);
}

#[test]
fn those_that_are_named_are_on_wherever_they_stand() {
    let mut fleet = Fleet::new(PowerTuning::default(), &[true, false, false], Seconds::ZERO).unwrap();
    let at = Seconds::new;
    let orders = fleet.steer_to(at(1.0), &[true, false, true], &[UP, DOWN, DOWN]);
    assert_eq!(orders, [order(2, Command::PowerOn)]);
    fleet.steer_to(at(2.0), &[true, false, true], &[UP, DOWN, UP]);
    // The one that is not named goes; of one of which nothing is said the same is true.
    let orders = fleet.steer_to(at(30.0), &[false, false, true], &[UP, DOWN, UP]);
    assert_eq!(orders, [order(0, Command::Disable)]);
    assert_eq!(fleet.steer_to(at(31.0), &[], &[UP, DOWN, UP]).len(), 2);
}

#[test]
fn a_law_s_ranks_say_who_goes_and_of_equals_who_has_served_longest() {
    let at = Seconds::new;
    let up = [UP; 4];
    let mut fleet = Fleet::new(PowerTuning::default(), &[true, true, true, false], Seconds::ZERO).unwrap();
    // As published: the last.
    assert_eq!(
        fleet.clone().steer(at(1.0), 2, &[UP, UP, UP, DOWN]),
        [order(2, Command::Disable)]
    );
    fleet.rank(&[2, 0, 1, 1]);
    assert_eq!(
        fleet.clone().steer(at(1.0), 2, &[UP, UP, UP, DOWN]),
        [order(0, Command::Disable)]
    );
    // A period without ranks changes nothing.
    fleet.rank(&[]);
    assert_eq!(
        fleet.clone().steer(at(1.0), 2, &[UP, UP, UP, DOWN]),
        [order(0, Command::Disable)]
    );
    // All alike: the fourth is started, and the one that has served longest goes, not the newest.
    fleet.rank(&[0, 0, 0, 0]);
    fleet.steer(at(1.0), 4, &[UP, UP, UP, DOWN]);
    fleet.steer(at(60.0), 4, &up);
    fleet.steer(at(120.0), 4, &up);
    let gone = fleet.steer(at(121.0), 3, &up);
    assert_eq!(gone, [order(2, Command::Disable)]);
    let states: Vec<bool> = fleet
        .servers()
        .iter()
        .map(|one| one.state().takes_requests())
        .collect();
    assert_eq!(states, [true, true, false, true]);
}

#[test]
fn of_servers_of_equal_worth_the_one_with_the_fewest_sessions_goes_first() {
    let at = Seconds::new;
    let mut fleet = Fleet::new(PowerTuning::default(), &[true; 4], Seconds::ZERO).unwrap();
    for _ in 0..100 {
        fleet.bind(&[Some(5), Some(300), Some(6), Some(100)]);
    }
    let goes = |fleet: &Fleet| fleet.clone().steer(at(1.0), 3, &[UP; 4])[0].server;
    // As published the last, whatever it has.
    assert_eq!(goes(&fleet), 3);
    // The first and the third are alike: of them the last.
    fleet.rank(&[0, 0, 0, 0]);
    assert_eq!(goes(&fleet), 2);
    // Worth goes before sessions.
    fleet.rank(&[0, 1, 0, 0]);
    assert_eq!(goes(&fleet), 1);
}

#[test]
fn a_drained_server_stays_powered_for_its_trial_and_comes_back_at_once() {
    let tuning = PowerTuning {
        drained_for_s: Some(30.0),
        ..PowerTuning::default()
    };
    let at = Seconds::new;
    let mut fleet = Fleet::new(tuning, &[true, true], Seconds::ZERO).unwrap();
    let empty = Health {
        connections: Some(0),
        ..UP
    };
    assert_eq!(fleet.steer(at(1.0), 1, &[UP, UP]), [order(1, Command::Disable)]);
    for second in 2..31 {
        assert_eq!(fleet.steer(at(f64::from(second)), 1, &[UP, empty]), []);
    }
    let mut missed = fleet.clone();
    assert_eq!(
        missed.steer(at(30.5), 2, &[UP, empty]),
        [order(1, Command::Enable)]
    );
    assert_eq!(
        fleet.steer(at(31.0), 1, &[UP, empty]),
        [order(1, Command::PowerOff)]
    );
}

#[test]
fn a_fleet_of_nobody_is_refused() {
    assert!(Fleet::new(PowerTuning::default(), &[], Seconds::ZERO).is_err());
    let tuning = PowerTuning {
        backoff_s: 0.0,
        ..PowerTuning::default()
    };
    assert!(Fleet::new(tuning, &[true], Seconds::ZERO).is_err());
}

proptest! {
    /// A fleet of machines that obey ends where it is told to be, from wherever it was led.
    #[test]
    fn machines_that_obey_end_at_the_target(
        serving in proptest::collection::vec(any::<bool>(), 1..8),
        targets in proptest::collection::vec(0..9usize, 1..6),
    ) {
        let count = serving.len();
        let mut fleet = Fleet::new(PowerTuning::default(), &serving, Seconds::ZERO).unwrap();
        let mut powered = serving.clone();
        let mut at_s = 0.0;
        for target in targets {
            let target = target.min(count);
            for _ in 0..200 {
                at_s += 1.0;
                let seen: Vec<Health> = powered.iter().map(|on| if *on { UP } else { DOWN }).collect();
                for order in fleet.steer(Seconds::new(at_s), target, &seen) {
                    match order.command {
                        Command::PowerOn => powered[order.server] = true,
                        Command::PowerOff => powered[order.server] = false,
                        Command::Enable | Command::Disable => {}
                    }
                }
            }
            let on = fleet.servers().iter().filter(|one| one.state() == PowerState::Serving).count();
            let off = fleet.servers().iter().filter(|one| one.state() == PowerState::Off).count();
            prop_assert_eq!((on, off), (target, count - target));
        }
    }
}
