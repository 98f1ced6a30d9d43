use super::*;
use proptest::prelude::*;

/// All that wait, the first first, as each leaves in turn.
fn emptied(waiting: &Waiting) -> Vec<Key> {
    let first = || waiting.line().waiters.first_key_value().map(|(key, _)| *key);
    let mut order = Vec::new();
    while let Some(key) = first() {
        assert_eq!(waiting.turn(key, Waker::noop()), Turn::Look);
        waiting.leave(key);
        order.push(key);
    }
    order
}

#[test]
fn the_limit_is_one_for_all_cores() {
    let waiting = Waiting::new(4, 3, 1);
    assert_eq!(waiting.part(), 1);
    let first = waiting.join(0, false).unwrap();
    assert!(waiting.join(0, false).is_some() && waiting.join(0, false).is_some());
    assert!(
        waiting.join(0, false).is_none(),
        "three wait, whichever core they are on"
    );
    waiting.leave(first);
    assert!(waiting.join(0, false).is_some());
}

#[test]
fn what_is_more_important_goes_first_and_equals_in_the_order_they_came() {
    let waiting = Waiting::new(2, 30, 3);
    let keys: Vec<_> = [1, 2, 0, 1, 0, 2]
        .into_iter()
        .filter_map(|rank| waiting.join(rank, false))
        .collect();
    assert_eq!(emptied(&waiting), [2, 4, 0, 3, 1, 5].map(|at| keys[at]));
    assert!(!waiting.is_any());
}

#[test]
fn what_is_less_important_leaves_places_for_what_is_more() {
    let waiting = Waiting::new(2, 6, 3);
    let last = [waiting.join(2, false).unwrap(), waiting.join(2, false).unwrap()];
    assert!(waiting.join(2, false).is_none(), "a third of six is theirs");
    let middle = [waiting.join(1, false).unwrap(), waiting.join(1, false).unwrap()];
    let first = [waiting.join(0, false).unwrap(), waiting.join(0, false).unwrap()];
    for key in [last, middle, first].concat() {
        assert_ne!(waiting.turn(key, Waker::noop()), Turn::TurnedAway);
    }
}

#[test]
fn where_no_place_is_free_the_youngest_of_the_least_important_goes() {
    let waiting = Waiting::new(2, 6, 3);
    let last = [waiting.join(2, false).unwrap(), waiting.join(2, false).unwrap()];
    let middle = [waiting.join(1, false).unwrap(), waiting.join(1, false).unwrap()];
    let is_there = |key| waiting.turn(key, Waker::noop()) != Turn::TurnedAway;
    assert!(
        waiting.join(1, false).is_some(),
        "in the place of one of the last"
    );
    assert!(is_there(last[0]) && !is_there(last[1]));
    for _ in 0..3 {
        assert!(waiting.join(0, false).is_some());
    }
    assert!(!is_there(last[0]) && middle.iter().all(|key| is_there(*key)));
    assert!(waiting.join(2, false).is_none());
    assert!(waiting.join(1, false).is_none(), "equals keep theirs");
    for _ in 0..3 {
        assert!(waiting.join(0, false).is_some());
    }
    assert!(!middle.iter().any(|key| is_there(*key)));
    assert!(waiting.join(0, false).is_none());
    assert_eq!(emptied(&waiting).len(), 6);
    assert!(!waiting.is_any());
}

#[test]
fn who_is_turned_away_comes_again_when_its_turn_may_have_come() {
    let waiting = Waiting::new(1, 2, 1);
    assert!((0..4).all(|_| waiting.retry_after_s(0) == 1), "nobody waits");
    let (served, waits) = (waiting.join(0, false).unwrap(), waiting.join(0, false).unwrap());
    waiting.served(served, Duration::from_millis(2_400));
    waiting.leave(served);
    let said: Vec<u64> = (0..4).map(|_| waiting.retry_after_s(0)).collect();
    assert!(said.iter().all(|after| (3..=6).contains(after)), "{said:?}");
    assert!(said.windows(2).any(|two| two[0] != two[1]), "{said:?}");
    waiting.gave_up(waits, Duration::from_secs(86_400));
    assert_eq!(waiting.retry_after_s(0), MAX_RETRY_AFTER_S);
    waiting.leave(waits);
    assert!(waiting.join(0, false).is_some());
    assert_eq!(waiting.retry_after_s(0), 1, "that was before nobody waited");
}

#[test]
fn how_long_waiting_takes_is_of_each_rank() {
    let waiting = Waiting::new(1, 30, 3);
    let keys = [0, 1, 1, 2].map(|rank| waiting.join(rank, false).unwrap());
    waiting.served(keys[0], Duration::from_millis(50));
    waiting.served(keys[1], Duration::from_millis(4_100));
    let told = |rank: usize| (0..7).map(|_| waiting.retry_after_s(rank)).min().unwrap();
    assert_eq!([0, 1, 2].map(told), [1, 5, 5], "what comes later waits no less");
    // None of the last had a turn for so long.
    waiting.line().waits[2].none_since = Instant::now().checked_sub(Duration::from_secs(19));
    assert!(told(2) >= 19, "{}", told(2));
    assert_eq!([0, 1].map(told), [1, 5]);
    waiting.served(keys[3], Duration::from_secs(19));
    assert!(waiting.line().waits[2].none_since.is_none(), "none of it waits");
    assert!(
        waiting.line().waits[1].none_since.is_some(),
        "another of it waits"
    );
}

proptest! {
    #[test]
    fn never_is_a_place_kept_from_who_is_more_important(
        limit in 0_usize..12,
        ranks in 1_usize..5,
        coming in proptest::collection::vec((0_usize..5, any::<bool>()), 0..60),
    ) {
        let waiting = Waiting::new(2, limit, ranks);
        for (rank, leaves) in coming {
            let rank = rank % ranks;
            let before: Vec<Key> = waiting.line().waiters.keys().copied().collect();
            match waiting.join(rank, false) {
                Some(key) => {
                    let after: Vec<Key> = waiting.line().waiters.keys().copied().collect();
                    prop_assert!(after.contains(&key));
                    let gone: Vec<&Key> = before.iter().filter(|key| !after.contains(key)).collect();
                    prop_assert!(gone.is_empty() || gone == [before.last().unwrap()] && gone[0].rank > rank);
                }
                None => {
                    prop_assert!(before.len() >= waiting.limits[rank]);
                    prop_assert!(before.iter().all(|key| key.rank <= rank));
                }
            }
            if leaves && let Some(first) = before.first() {
                waiting.leave(*first);
            }
            let length = waiting.line().waiters.len();
            prop_assert!(length <= limit);
            prop_assert_eq!(waiting.is_any(), length > 0);
        }
    }
}

#[test]
fn one_that_does_not_come_and_one_that_is_choosy_keep_nobody_behind_them_from_looking() {
    let waiting = Waiting::new(2, 8, 1);
    let of_a_core_that_stands = waiting.join(0, false).unwrap();
    let choosy = waiting.join(0, true).unwrap();
    let (next, last) = (waiting.join(0, false).unwrap(), waiting.join(0, false).unwrap());
    let turn = |key| waiting.turn(key, Waker::noop());
    assert_eq!(turn(of_a_core_that_stands), Turn::Look);
    assert_eq!((turn(choosy), turn(next)), (Turn::Wait, Turn::Wait));
    waiting.wake_first();
    assert_eq!(turn(next), Turn::Wait, "it may still come");
    std::thread::sleep(PASSED_OVER + Duration::from_millis(10));
    assert_eq!(
        (turn(choosy), turn(next), turn(last)),
        (Turn::Look, Turn::Look, Turn::Wait)
    );
    // It is back.
    assert_eq!(turn(of_a_core_that_stands), Turn::Look);
    assert_eq!((turn(choosy), turn(next)), (Turn::Wait, Turn::Wait));
    waiting.leave(of_a_core_that_stands);
    assert_eq!(
        (turn(choosy), turn(next), turn(last)),
        (Turn::Look, Turn::Look, Turn::Wait)
    );
}
