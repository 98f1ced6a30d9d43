use super::*;
use proptest::prelude::*;

const GHZ: f64 = 1e9;

fn setting(cores: f64, ghz: Option<f64>) -> Setting {
    Setting::from([(Lever::Cores, cores), (Lever::Servers, 3.0)])
        .with(Lever::Frequency, ghz.map(|ghz| ghz * GHZ))
}

#[test]
fn it_raises_what_acts_at_once_and_leaves_the_rest() {
    let reflex = Reflex {
        bound: 10,
        oldest: Some(Seconds::new(0.5)),
        setting: setting(4.0, None).with(Lever::Servers, Some(9.0)),
    };
    let now = setting(2.0, Some(1.2));
    assert_eq!(reflex.raised(&now), setting(4.0, None));
    assert!(reflex.gives(&now) && !reflex.gives(&setting(5.0, None)));
    // More than it gives stays.
    assert_eq!(reflex.raised(&setting(5.0, Some(1.2))), setting(5.0, None));
    assert!(!reflex.is_passed(10, Some(Seconds::new(0.5))));
    assert!(reflex.is_passed(11, None) && reflex.is_passed(0, Some(Seconds::new(0.6))));
}

#[test]
fn several_laws_reflexes_are_one_with_the_lowest_bounds() {
    let one = Reflex {
        bound: 10,
        oldest: None,
        setting: setting(4.0, Some(1.0)),
    };
    let two = Reflex {
        bound: 20,
        oldest: Some(Seconds::new(0.5)),
        setting: setting(9.0, None),
    };
    let decided = setting(2.0, Some(1.0));
    let all = [(one, &[Lever::Cores][..]), (two, &[Lever::Frequency][..])];
    let joined = Reflex::joined(&decided, all).unwrap();
    assert_eq!((joined.bound, joined.oldest), (10, Some(Seconds::new(0.5))));
    assert_eq!(joined.setting, setting(4.0, None));
    assert_eq!(Reflex::joined(&decided, []), None);
    // One that gives nothing is none.
    assert_eq!(Reflex::joined(&setting(4.0, None), all), None);
}

proptest! {
    /// A reflex never takes anything, whatever is in force.
    #[test]
    fn it_never_takes(cores in 0.0..9.0f64, ghz in proptest::option::of(0.5..3.0f64), most in 0.0..9.0f64) {
        let reflex = Reflex { bound: 1, oldest: None, setting: setting(most, None) };
        let now = setting(cores, ghz);
        prop_assert!(!reflex.raised(&now).takes_from(&now));
    }
}
