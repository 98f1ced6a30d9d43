use super::*;
use crate::live::Bell;
use headroom_console::Stop;
use proptest::prelude::*;

fn division(bound: u64, in_flight: &[Option<u64>]) -> Division {
    Division {
        watch: Some(Bell::new(&Stop::default()).watch(bound)),
        in_flight: in_flight.to_vec(),
        left: MAX_DIVISIONS,
    }
}

#[test]
fn one_gateway_has_the_whole_bound_and_one_that_is_away_none() {
    assert_eq!(division(8, &[Some(3)]).parts(), [Some(8)]);
    assert_eq!(division(8, &[Some(20)]).parts(), [Some(8)]);
    assert_eq!(division(8, &[None, Some(3)]).parts(), [None, Some(8)]);
    assert_eq!(division(8, &[None, None]).parts(), [None, None]);
}

#[test]
fn traffic_that_moves_to_one_gateway_passes_the_bound_only_with_all_of_it() {
    let mut moved = division(100, &[Some(20), Some(20)]);
    assert_eq!(moved.parts(), [Some(50), Some(50)]);
    moved.in_flight[1] = Some(0);
    assert!(!moved.passed(0, 51));
    let parts = moved.parts();
    assert!(parts[0] > Some(95), "{parts:?}");
    assert!(!moved.passed(0, 100));
    assert_eq!(moved.parts(), [Some(100), Some(0)]);
    assert!(moved.passed(0, 101));
}

#[test]
fn what_cannot_be_divided_any_more_counts_as_passed() {
    let mut moving = division(100, &[Some(20), Some(20)]);
    let passed = (0..).take_while(|_| !moving.passed(0, 60)).count();
    assert_eq!(passed, MAX_DIVISIONS as usize);
}

#[test]
fn a_gateway_that_leaves_gives_its_part_to_the_others_and_its_place_to_the_next() {
    let divided = Arc::new(Divided::default());
    let (first, second) = (divided.place(), divided.place());
    divided.watch(Some(Bell::new(&Stop::default()).watch(10)));
    first.connected(true);
    second.connected(true);
    let bound = |share: &Share| share.watched().borrow().as_ref().map(|watch| watch.bound);
    assert_eq!((bound(&first), bound(&second)), (Some(5), Some(5)));
    drop(second);
    assert_eq!(bound(&first), Some(10));
    let third = divided.place();
    assert_eq!((third.at, bound(&third)), (1, None));
    third.connected(true);
    assert_eq!((bound(&first), bound(&third)), (Some(5), Some(5)));
}

proptest! {
    /// The parts are the bound, none is under what a gateway has, and whoever passes the bound passes a part.
    #[test]
    fn the_parts_add_up_to_the_bound(
        bound in 0..2000u64,
        in_flight in proptest::collection::vec(proptest::option::of(0..300u64), 1..8),
        later in proptest::collection::vec(0..600u64, 8),
    ) {
        let division = division(bound, &in_flight);
        let parts = division.parts();
        let connected = in_flight.iter().any(Option::is_some);
        prop_assert_eq!(parts.iter().flatten().sum::<u64>(), if connected { bound } else { 0 });
        if division.total() <= bound {
            prop_assert!(parts.iter().zip(&in_flight).all(|(part, has)| part >= has));
        }
        let watched = || parts.iter().zip(&later).filter_map(|(part, later)| part.map(|part| (part, *later)));
        let total: u64 = watched().map(|(_, later)| later).sum();
        prop_assert!(total <= bound || watched().any(|(part, later)| later > part));
    }
}
