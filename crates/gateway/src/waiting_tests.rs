use super::*;
use proptest::prelude::*;

/// The keys of all that wait, in their order.
fn keys(waiting: &Waiting) -> Vec<Key> {
    let line = waiting.line();
    let cores = line.lanes.iter().flat_map(|lane| &lane.cores);
    let mut keys: Vec<Key> = cores.flat_map(BTreeMap::keys).copied().collect();
    keys.sort();
    keys
}

/// All that wait, the first first, as each leaves in turn.
fn emptied(waiting: &Waiting) -> Vec<Key> {
    let first = || keys(waiting).first().copied();
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
    let first = waiting.join(0, 0, &[]).unwrap();
    assert!(waiting.join(0, 0, &[]).is_some() && waiting.join(0, 0, &[]).is_some());
    assert!(
        waiting.join(0, 0, &[]).is_none(),
        "three wait, whichever core they are on"
    );
    waiting.leave(first);
    assert!(waiting.join(0, 0, &[]).is_some());
}

#[test]
fn what_is_more_important_goes_first_and_equals_in_the_order_they_came() {
    let waiting = Waiting::new(2, 30, 3);
    let keys: Vec<_> = [1, 2, 0, 1, 0, 2]
        .into_iter()
        .filter_map(|rank| waiting.join(0, rank, &[]))
        .collect();
    assert_eq!(emptied(&waiting), [2, 4, 0, 3, 1, 5].map(|at| keys[at]));
    assert!(!waiting.is_any());
}

#[test]
fn what_is_less_important_leaves_places_for_what_is_more() {
    let waiting = Waiting::new(2, 6, 3);
    let last = [waiting.join(0, 2, &[]).unwrap(), waiting.join(0, 2, &[]).unwrap()];
    assert!(waiting.join(0, 2, &[]).is_none(), "a third of six is theirs");
    let middle = [waiting.join(0, 1, &[]).unwrap(), waiting.join(0, 1, &[]).unwrap()];
    let first = [waiting.join(0, 0, &[]).unwrap(), waiting.join(0, 0, &[]).unwrap()];
    for key in [last, middle, first].concat() {
        assert_ne!(waiting.turn(key, Waker::noop()), Turn::TurnedAway);
    }
}

#[test]
fn where_no_place_is_free_the_youngest_of_the_least_important_goes() {
    let waiting = Waiting::new(2, 6, 3);
    let last = [waiting.join(0, 2, &[]).unwrap(), waiting.join(0, 2, &[]).unwrap()];
    let middle = [waiting.join(0, 1, &[]).unwrap(), waiting.join(0, 1, &[]).unwrap()];
    let is_there = |key| waiting.turn(key, Waker::noop()) != Turn::TurnedAway;
    assert!(
        waiting.join(0, 1, &[]).is_some(),
        "in the place of one of the last"
    );
    assert!(is_there(last[0]) && !is_there(last[1]));
    for _ in 0..3 {
        assert!(waiting.join(0, 0, &[]).is_some());
    }
    assert!(!is_there(last[0]) && middle.iter().all(|key| is_there(*key)));
    assert!(waiting.join(0, 2, &[]).is_none());
    assert!(waiting.join(0, 1, &[]).is_none(), "equals keep theirs");
    for _ in 0..3 {
        assert!(waiting.join(0, 0, &[]).is_some());
    }
    assert!(!middle.iter().any(|key| is_there(*key)));
    assert!(waiting.join(0, 0, &[]).is_none());
    assert_eq!(emptied(&waiting).len(), 6);
    assert!(!waiting.is_any());
}

#[test]
fn who_is_turned_away_comes_again_when_its_turn_may_have_come() {
    let waiting = Waiting::new(1, 2, 1);
    assert!((0..4).all(|_| waiting.retry_after_s(0) == 1), "nobody waits");
    let (served, waits) = (waiting.join(0, 0, &[]).unwrap(), waiting.join(0, 0, &[]).unwrap());
    waiting.served(served, Duration::from_millis(2_400));
    waiting.leave(served);
    let said: Vec<u64> = (0..4).map(|_| waiting.retry_after_s(0)).collect();
    assert!(said.iter().all(|after| (3..=6).contains(after)), "{said:?}");
    assert!(said.windows(2).any(|two| two[0] != two[1]), "{said:?}");
    waiting.gave_up(waits, Duration::from_secs(86_400));
    assert_eq!(waiting.retry_after_s(0), MAX_RETRY_AFTER_S);
    waiting.leave(waits);
    assert!(waiting.join(0, 0, &[]).is_some());
    assert_eq!(waiting.retry_after_s(0), 1, "that was before nobody waited");
}

#[test]
fn how_long_waiting_takes_is_of_each_rank() {
    let waiting = Waiting::new(1, 30, 3);
    let keys = [0, 1, 1, 2].map(|rank| waiting.join(0, rank, &[]).unwrap());
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
            let before: Vec<Key> = keys(&waiting);
            match waiting.join(0, rank, &[]) {
                Some(key) => {
                    let after: Vec<Key> = keys(&waiting);
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
            let length = keys(&waiting).len();
            prop_assert!(length <= limit);
            prop_assert_eq!(waiting.is_any(), length > 0);
        }
    }
}

fn turn(waiting: &Waiting, key: Key) -> Turn {
    waiting.turn(key, Waker::noop())
}

#[test]
fn all_of_a_core_that_stands_still_are_passed_over_until_it_is_heard_of() {
    let waiting = Waiting::new(2, 8, 1);
    let standing = [(); 3].map(|()| waiting.join(0, 0, &[]).unwrap());
    let [next, last] = [(); 2].map(|()| waiting.join(1, 0, &[]).unwrap());
    assert_eq!(turn(&waiting, standing[0]), Turn::Look);
    waiting.wake_first();
    assert_eq!(turn(&waiting, next), Turn::Wait, "it may still come");
    std::thread::sleep(PASSED_OVER + Duration::from_millis(10));
    for key in [next, last] {
        // The wait was for the first of that core alone.
        assert_eq!(turn(&waiting, key), Turn::Look);
        waiting.leave(key);
    }
    let new = waiting.join(1, 0, &[]).unwrap();
    assert_eq!(turn(&waiting, new), Turn::Look);
    // It is back.
    waiting.wake_first();
    assert_eq!(turn(&waiting, standing[0]), Turn::Look);
    waiting.wake_first();
    assert_eq!(turn(&waiting, new), Turn::Wait);
    waiting.leave(standing[0]);
    assert_eq!(turn(&waiting, standing[1]), Turn::Look);
}

#[test]
fn a_core_of_which_something_is_heard_is_not_passed_over() {
    let waiting = Waiting::new(2, 8, 1);
    let [first, second] = [(); 2].map(|()| waiting.join(0, 0, &[]).unwrap());
    let other = waiting.join(1, 0, &[]).unwrap();
    for _ in 0..3 {
        std::thread::sleep(PASSED_OVER / 2);
        waiting.leave(waiting.join(0, 0, &[]).unwrap());
        waiting.wake_first();
        assert_eq!(turn(&waiting, other), Turn::Wait);
    }
    assert_eq!(turn(&waiting, first), Turn::Look);
    assert_eq!(turn(&waiting, second), Turn::Wait, "nothing happened since");
}

#[test]
fn the_choosy_have_places_of_their_own_and_keep_nobody_from_coming() {
    let waiting = Waiting::new(1, 2, 2);
    let choosy = [0, 1].map(|tried| waiting.join(0, 0, &[tried]).unwrap());
    assert!(waiting.join(0, 0, &[0]).is_none(), "two wait already");
    assert!(waiting.is_any() && !waiting.is_line());
    let others = [(); 2].map(|()| waiting.join(0, 0, &[]).unwrap());
    assert!(waiting.join(0, 0, &[]).is_none() && waiting.is_line());
    for key in [choosy, others].concat() {
        waiting.leave(key);
    }
    let lesser = waiting.join(0, 1, &[7]).unwrap();
    assert!(waiting.join(0, 1, &[8]).is_none());
    assert!([0, 0].iter().all(|_| waiting.join(0, 0, &[8]).is_some()));
    assert_eq!(turn(&waiting, lesser), Turn::TurnedAway);
    assert!(waiting.join(0, 1, &[]).is_some(), "the main lane has its own");
}

#[test]
fn those_of_too_many_kinds_take_whatever_there_is() {
    let waiting = Waiting::new(1, 100, 1);
    let keys: Vec<Key> = (0..MAX_LANES + 3)
        .map(|tried| waiting.join(0, 0, &[tried]).unwrap())
        .collect();
    assert!(keys[..MAX_LANES].iter().all(|key| key.is_choosy()));
    assert!(keys[MAX_LANES..].iter().all(|key| !key.is_choosy()));
    assert!(waiting.join(0, 0, &[0]).unwrap().is_choosy(), "its lane is there");
    keys.iter().for_each(|key| waiting.leave(*key));
    assert!(waiting.join(0, 0, &[77]).unwrap().is_choosy());
}

#[test]
fn who_looks_in_vain_again_and_again_keeps_no_other_lane_from_looking() {
    let waiting = Waiting::new(1, 100, 1);
    let [first, second] = [0, 1].map(|tried| waiting.join(0, 0, &[tried]).unwrap());
    let last = waiting.join(0, 0, &[]).unwrap();
    for key in [first, second, last, first, second, last] {
        assert_eq!(turn(&waiting, key), Turn::Look);
        // Before the others have looked.
        waiting.wake_first();
    }
}

/// Counts those that were woken, by their number.
struct Alarm(u64, std::sync::Arc<Mutex<Vec<u64>>>);

impl std::task::Wake for Alarm {
    fn wake(self: std::sync::Arc<Self>) {
        self.1.lock().unwrap().push(self.0);
    }
}

/// What happens to those that wait for one of three backends.
#[derive(Debug, Clone)]
enum Step {
    /// One comes: of this core and rank, and does not take these backends.
    Come(usize, usize, Vec<usize>),
    /// There is room for one more at a backend.
    Room(usize),
    /// One of those that wait gives up.
    GiveUp(prop::sample::Index),
    /// There is room for one more at a backend, and who is called for it gives up.
    RoomAndGiveUp(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let tried = prop_oneof![
        3 => Just(vec![]),
        2 => (0_usize..3).prop_map(|one| vec![one]),
        1 => (0_usize..3).prop_map(|but| (0..3).filter(|index| *index != but).collect()),
    ];
    prop_oneof![
        4 => (0_usize..3, 0_usize..3, tried).prop_map(|(core, rank, tried)| Step::Come(core, rank, tried)),
        3 => (0_usize..3).prop_map(Step::Room),
        1 => any::<prop::sample::Index>().prop_map(Step::GiveUp),
        1 => (0_usize..3).prop_map(Step::RoomAndGiveUp),
    ]
}

/// Requests that wait, each with what it tried, and the room there is.
struct Model {
    waiting: Waiting,
    there: Vec<(Key, Vec<usize>)>,
    room: [usize; 3],
    woken: std::sync::Arc<Mutex<Vec<u64>>>,
}

impl Model {
    fn leave(&mut self, at: usize) {
        let (key, _) = self.there.remove(at);
        self.waiting.leave(key);
    }

    /// One is polled.
    fn poll(&mut self, at: usize) -> Result<(), TestCaseError> {
        let (key, tried) = self.there[at].clone();
        let alarm = std::sync::Arc::new(Alarm(key.number, self.woken.clone()));
        match self.waiting.turn(key, &alarm.into()) {
            Turn::Wait => {}
            Turn::TurnedAway => {
                self.there.remove(at);
            }
            Turn::Look => {
                let free = (0..3).find(|index| self.room[*index] > 0 && !tried.contains(index));
                let Some(free) = free else {
                    self.waiting.looked_in_vain();
                    return Ok(());
                };
                let has_place = keys(&self.waiting);
                for (other, tried) in &self.there {
                    prop_assert!(*other >= key || tried.contains(&free) || !has_place.contains(other));
                }
                self.room[free] -= 1;
                self.waiting.served(key, Duration::ZERO);
                self.leave(at);
            }
        }
        Ok(())
    }

    /// All that were woken are polled, until nobody is.
    fn run(&mut self) -> Result<(), TestCaseError> {
        loop {
            let woken = std::mem::take(&mut *self.woken.lock().unwrap());
            if woken.is_empty() {
                return Ok(());
            }
            for number in woken {
                if let Some(at) = self.there.iter().position(|(key, _)| key.number == number) {
                    self.poll(at)?;
                }
            }
        }
    }
}

proptest! {
    /// Whoever is woken, called or gone: where there is room nobody is left waiting for it, and who came first has it.
    #[test]
    fn nobody_waits_for_what_there_is_and_the_first_who_takes_it_has_it(
        steps in prop::collection::vec(step(), 0..80),
        limit in 1_usize..12,
    ) {
        let mut model = Model {
            waiting: Waiting::new(3, limit, 3),
            there: Vec::new(),
            room: [0; 3],
            woken: Default::default(),
        };
        for step in steps {
            match step {
                Step::Come(core, rank, tried) => {
                    if let Some(key) = model.waiting.join(core, rank, &tried) {
                        model.there.push((key, tried));
                        model.poll(model.there.len() - 1)?;
                    }
                }
                Step::Room(backend) => {
                    model.room[backend] += 1;
                    model.waiting.wake_first();
                }
                Step::GiveUp(which) if !model.there.is_empty() => {
                    model.leave(which.index(model.there.len()));
                }
                Step::GiveUp(_) => {}
                Step::RoomAndGiveUp(backend) => {
                    model.room[backend] += 1;
                    model.waiting.wake_first();
                    let called = model.woken.lock().unwrap().first().copied();
                    let at = model.there.iter().position(|(key, _)| Some(key.number) == called);
                    if let Some(at) = at {
                        model.leave(at);
                    }
                }
            }
            model.run()?;
            for (key, tried) in &model.there {
                let could = (0..3).any(|index| model.room[index] > 0 && !tried.contains(&index));
                prop_assert!(!could, "{key:?} waits for what there is: {:?}", model.room);
            }
            prop_assert_eq!(model.waiting.is_any(), !model.there.is_empty());
            prop_assert_eq!(model.waiting.is_line(), model.there.iter().any(|(key, _)| !key.is_choosy()));
        }
    }
}
