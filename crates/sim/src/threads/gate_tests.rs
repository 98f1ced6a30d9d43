use super::*;
use headroom_units::Seconds;

fn ring(concurrency: u32, connections: u32, delay_s: f64) -> Gate {
    let figures = GateFigures {
        concurrency,
        tokens: 1,
        delay_s,
        linger_s: 0.0,
        ..GateFigures::default()
    };
    Gate::new(&figures, connections)
}

fn grant(id: u64, tokens: u32) -> Grant {
    Grant {
        id,
        tokens,
        share: 1.0,
        again: true,
        yields: false,
        retry: Seconds::ZERO,
    }
}

/// Who has turns, one slot at a time, while everybody always has another query.
fn order(gate: &mut Gate, turns: usize) -> Vec<u32> {
    let mut order = Vec::new();
    while order.len() < turns {
        let Some(connection) = gate.admit(0.0) else { break };
        order.push(connection);
        while gate.answered(0.0, connection, true) == Answered::Serves {
            order.push(connection);
        }
        assert_eq!(gate.wait(0.0, connection), None);
    }
    order
}

fn with(gate: &mut Gate, grants: &[Grant]) {
    gate.set(gate.settings().clone(), grants);
}

#[test]
fn slots_go_round_and_none_without_tokens_has_a_turn() {
    let mut gate = ring(1, 4, 0.0);
    with(&mut gate, &[grant(1, 0), grant(2, 2)]);
    (0..4).for_each(|connection| assert_eq!(gate.wait(0.0, connection), None));
    assert_eq!(order(&mut gate, 8), [0, 2, 2, 3, 0, 2, 2, 3]);
    assert_eq!(gate.waiting(), 4);
}

/// One that goes first waits for something inside a query: whoever is in a transaction may have it.
#[test]
fn while_one_that_goes_first_is_blocked_none_in_a_transaction_yields_or_goes_without_a_turn() {
    let mut gate = ring(2, 5, 0.0);
    let yields = |id| Grant {
        yields: true,
        ..grant(id, 1)
    };
    with(&mut gate, &[yields(1), yields(2), grant(3, 0)]);
    assert_eq!(gate.wait(0.0, 4), None);
    assert_eq!(gate.admit(0.0), Some(4));
    [1, 3]
        .into_iter()
        .for_each(|connection| gate.transact(0.0, connection, true));
    (0..4).for_each(|connection| assert_eq!(gate.wait(0.0, connection), None));
    gate.set(
        Settings {
            concurrency: Some(1),
            ..gate.settings().clone()
        },
        &[yields(1), yields(2), grant(3, 0)],
    );
    gate.lend(0.0, 4);
    // 2 yields still: it is in no transaction.
    assert_eq!(order(&mut gate, 6), [0, 1, 3, 0, 1, 3]);
    gate.take_again(4);
    assert_eq!(gate.answered(0.0, 4, false), Answered::Leaves);
    assert_eq!(order(&mut gate, 4), [0, 0, 0, 0]);
}

/// Whoever waits for longer than two seconds waits for something else.
#[test]
fn a_wait_inside_a_query_counts_for_two_seconds() {
    let mut gate = ring(2, 3, 0.0);
    let yields = Grant {
        yields: true,
        ..grant(1, 1)
    };
    with(&mut gate, &[yields]);
    assert_eq!(gate.wait(0.0, 2), None);
    assert_eq!(gate.admit(0.0), Some(2));
    gate.transact(0.0, 1, true);
    gate.lend(0.0, 2);
    let mut first = |now_s: f64| {
        [1, 0]
            .into_iter()
            .for_each(|connection| assert_eq!(gate.wait(now_s, connection), None));
        let first = gate.admit(now_s);
        let second = gate.admit(now_s);
        for connection in [first, second].into_iter().flatten() {
            gate.answered(now_s, connection, false);
        }
        first
    };
    assert_eq!(first(1.0), Some(1));
    assert_eq!(first(2.5), Some(0));
}

#[test]
fn in_the_first_second_of_a_transaction_nobody_pauses_and_the_next_pause_makes_up_for_it() {
    let mut gate = ring(1, 1, 0.0);
    let paced = Grant {
        yields: true,
        retry: Seconds::from_millis(250.0),
        ..grant(0, 1)
    };
    with(&mut gate, &[paced]);
    assert_eq!(gate.wait(0.0, 0), None);
    let mut answered = |now_s: f64, goes_on: bool| {
        assert_eq!(gate.admit(now_s), Some(0));
        gate.transact(now_s, 0, goes_on);
        assert_eq!(gate.answered(now_s, 0, false), Answered::Leaves);
        let ready_s = gate.wait(now_s, 0);
        if let Some(ready_s) = ready_s {
            assert_eq!(gate.wake(ready_s, 0), None);
        }
        ready_s
    };
    for at_s in [0.125, 0.25, 0.375] {
        assert_eq!(answered(at_s, true), None);
    }
    // Its own and three that were spared.
    assert_eq!(answered(0.5, false), Some(1.5));
    assert_eq!(answered(2.0, false), Some(2.25));
    assert_eq!(answered(3.0, true), None);
    // A second after the transaction began it pauses in it, and pays what it owes after it.
    assert_eq!(answered(4.5, true), Some(4.75));
    assert_eq!(answered(6.0, false), Some(6.5));
    for at in 0..8 {
        assert_eq!(answered(7.0 + f64::from(at) / 16.0, true), None);
    }
    assert_eq!(answered(7.75, false), Some(8.75), "a second at most");
}

#[test]
fn a_share_is_one_of_the_rounds_and_whoever_may_not_again_rests_one() {
    let mut gate = ring(1, 3, 0.0);
    with(
        &mut gate,
        &[
            Grant {
                share: 0.5,
                ..grant(0, 1)
            },
            Grant {
                again: false,
                ..grant(2, 1)
            },
        ],
    );
    (0..3).for_each(|connection| assert_eq!(gate.wait(0.0, connection), None));
    // Rounds: 1 2 | 0 1 | 2 1 | 0 1 | 2, each in the order in which they came.
    assert_eq!(order(&mut gate, 9), [1, 2, 0, 1, 2, 1, 0, 1, 2]);
    // Alone, nobody rests.
    let mut gate = ring(1, 1, 0.0);
    with(
        &mut gate,
        &[Grant {
            again: false,
            share: 0.1,
            ..grant(0, 1)
        }],
    );
    assert_eq!(gate.wait(0.0, 0), None);
    assert_eq!(order(&mut gate, 3), [0, 0, 0]);
}

#[test]
fn who_yields_waits_for_the_others_but_not_for_ever() {
    let mut gate = ring(1, 3, 0.0);
    let yields = |id| Grant {
        yields: true,
        ..grant(id, 1)
    };
    with(&mut gate, &[yields(0), yields(1)]);
    (0..3).for_each(|connection| assert_eq!(gate.wait(0.0, connection), None));
    assert_eq!(order(&mut gate, 3), [2, 2, 2]);
    // After a second one in each round.
    let late_s = MAX_YIELD.get();
    let turns: Vec<_> = (0..5)
        .map(|_| {
            let connection = gate.admit(late_s).unwrap();
            assert_eq!(gate.answered(late_s, connection, true), Answered::Leaves);
            assert_eq!(gate.wait(late_s, connection), None);
            connection
        })
        .collect();
    assert_eq!(turns, [0, 2, 1, 2, 2]);
}

#[test]
fn with_a_delay_who_yields_has_a_turn_in_each_round() {
    let mut gate = ring(1, 2, 0.01);
    let yields = Grant {
        yields: true,
        ..grant(0, 1)
    };
    with(&mut gate, &[yields]);
    (0..2).for_each(|connection| assert_eq!(gate.wait(0.0, connection), None));
    assert_eq!(order(&mut gate, 2), [1, 0]);
    assert_eq!(gate.admit(0.0), None);
}

#[test]
fn who_used_its_tokens_up_asks_again_after_its_retry() {
    let mut gate = ring(2, 1, 0.0);
    let retry = Seconds::new(0.02);
    let yields = Grant {
        retry,
        yields: true,
        ..grant(0, 1)
    };
    with(&mut gate, &[yields]);
    assert_eq!(gate.wait(0.0, 0), None);
    assert_eq!(gate.admit(0.0), Some(0));
    assert_eq!(gate.answered(1.0, 0, true), Answered::Leaves);
    assert_eq!(gate.wait(1.0, 0), Some(1.02));
    assert_eq!((gate.admit(1.0), gate.waiting()), (None, 1));
    assert_eq!(gate.wake(1.02, 0), None);
    assert_eq!(gate.admit(1.02), Some(0));
}

#[test]
fn who_goes_first_pauses_only_while_somebody_waits() {
    let mut gate = ring(1, 2, 0.0);
    let retry = Seconds::new(0.2);
    with(&mut gate, &[Grant { retry, ..grant(0, 1) }]);
    assert_eq!(gate.wait(0.0, 0), None);
    assert_eq!(gate.admit(0.0), Some(0));
    assert_eq!(gate.answered(1.0, 0, true), Answered::Leaves);
    assert_eq!(gate.wait(1.0, 0), None, "nobody waits");
    assert_eq!(gate.admit(1.0), Some(0));
    assert_eq!(gate.wait(1.5, 1), None);
    assert_eq!(gate.answered(2.0, 0, true), Answered::Leaves);
    assert_eq!(gate.wait(2.0, 0), Some(2.05));
    assert_eq!(gate.wake(2.05, 0), Some(2.05 + LOOK_S));
    assert_eq!(gate.admit(2.06), Some(1));
    assert_eq!(gate.wake(2.1, 0), None);
}

#[test]
fn a_delay_begins_when_all_slots_of_the_round_are_back() {
    let mut gate = ring(2, 3, 0.01);
    with(&mut gate, &[grant(0, 2)]);
    (0..2).for_each(|connection| assert_eq!(gate.wait(0.0, connection), None));
    assert_eq!(
        (gate.admit(0.0), gate.admit(0.0), gate.admit(0.0)),
        (Some(0), Some(1), None)
    );
    assert_eq!(gate.answered(0.0, 0, true), Answered::Serves);
    assert_eq!(gate.answered(0.0, 0, false), Answered::Leaves);
    // The round has passed connection 0, and has yet to pass 2.
    assert_eq!((gate.wait(0.0, 0), gate.wait(0.0, 2)), (None, None));
    assert_eq!((gate.admit(0.0), gate.admit(0.0)), (Some(2), None));
    assert_eq!(gate.answered(0.0, 1, false), Answered::Leaves);
    assert_eq!((gate.admit(0.0), gate.pause()), (None, None));
    assert_eq!(gate.answered(0.0, 2, false), Answered::Leaves);
    assert_eq!(
        (gate.pause(), gate.pause(), gate.admit(0.0)),
        (Some((0, 0.01)), None, None)
    );
    gate.resume(0);
    assert_eq!((gate.admit(0.0), gate.rounds), (Some(0), 2));
}

/// With many cores some query always runs: a round that everybody may join would have no end, and there would be no delay.
#[test]
fn who_comes_later_than_the_delay_waits_for_the_next_round() {
    let mut gate = ring(2, 4, 0.01);
    assert_eq!(gate.wait(1.0, 0), None);
    assert_eq!(gate.admit(1.0), Some(0));
    assert_eq!(gate.wait(1.005, 1), None);
    assert_eq!(gate.admit(1.005), Some(1), "it still joins");
    assert_eq!(gate.answered(1.009, 0, false), Answered::Leaves);
    assert_eq!(gate.wait(1.011, 2), None);
    assert_eq!((gate.admit(1.011), gate.pause()), (None, None), "there is a slot");
    assert_eq!(gate.answered(1.012, 1, false), Answered::Leaves);
    assert_eq!((gate.admit(1.012), gate.pause()), (None, Some((0, 0.01))));
    gate.resume(0);
    assert_eq!(gate.admit(1.022), Some(2));
}

#[test]
fn a_long_query_holds_no_round_up() {
    let mut gate = ring(2, 4, 0.01);
    assert_eq!(gate.wait(1.0, 0), None);
    assert_eq!(gate.admit(1.0), Some(0));
    assert_eq!(gate.wait(1.005, 1), None);
    assert_eq!(gate.admit(1.005), Some(1));
    assert_eq!(gate.answered(1.006, 1, false), Answered::Leaves);
    assert_eq!(gate.wait(1.011, 2), None);
    assert_eq!((gate.admit(1.011), gate.admit(1.0149)), (None, None));
    // The delay after the last was let in, at 1.005 s; the mean hold is shorter.
    let look_s = gate.take_look();
    assert!((look_s.unwrap() - 1.015).abs() < 1e-12, "{look_s:?}");
    assert_eq!(gate.take_look(), None, "once");
    assert_eq!((gate.admit(1.0151), gate.pause()), (Some(2), None));
}

#[test]
fn each_area_has_its_limit_and_off_call_nobody_waits() {
    let mut gate = ring(1, 4, 0.0);
    gate.set_areas(&[Some(2), None], &[0, 0, 0, 1]);
    (0..4).for_each(|connection| assert_eq!(gate.wait(0.0, connection), None));
    let admitted: Vec<_> = std::iter::from_fn(|| gate.admit(0.0)).collect();
    assert_eq!(admitted, [0, 1, 3]);
    // Connection 0 moves with its slot, which goes back to the area that gave it.
    gate.set_areas(&[Some(2), None], &[1, 0, 0, 1]);
    assert_eq!(gate.answered(0.0, 0, false), Answered::Leaves);
    assert_eq!(gate.admit(0.0), Some(2));
    gate.set(
        Settings {
            concurrency: None,
            ..gate.settings().clone()
        },
        &[],
    );
    assert_eq!(gate.wait(0.0, 0), None);
    assert_eq!((gate.admit(0.0), gate.running()), (Some(0), 4));
}

/// Whoever gives its slot back with tokens left goes on with them in the same round, where it keeps them.
#[test]
fn tokens_are_of_a_round_or_of_a_turn() {
    for keeps_tokens in [true, false] {
        let figures = GateFigures {
            concurrency: 1,
            tokens: 1,
            linger_s: 0.0,
            keeps_tokens,
            ..GateFigures::default()
        };
        let mut gate = Gate::new(&figures, 3);
        with(&mut gate, &[grant(0, 2)]);
        (0..2).for_each(|connection| assert_eq!(gate.wait(0.0, connection), None));
        assert_eq!(gate.admit(0.0), Some(0));
        assert_eq!(gate.answered(0.0, 0, false), Answered::Leaves);
        assert_eq!(gate.admit(0.0), Some(1));
        assert_eq!(gate.answered(0.0, 1, false), Answered::Leaves);
        // Connection 1 came first and has no token left. A second query of it changes nothing.
        assert_eq!((gate.wait(0.0, 1), gate.wait(0.0, 0)), (None, None));
        assert_eq!((gate.wait(0.0, 1), gate.waiting()), (None, 2));
        assert_eq!(gate.admit(0.0), Some(u32::from(!keeps_tokens)));
    }
}
