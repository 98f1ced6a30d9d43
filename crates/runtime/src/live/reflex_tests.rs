use super::*;
use crate::live::DevicePeriod;
use headroom_units::{Lever, Setting};
use std::time::Duration;

/// A service whose cores are kept in memory; while an operator has paused it everything is on.
struct Service {
    cores: f64,
    refuses: bool,
    applied: u32,
}

impl Device for Service {
    fn observe(&mut self, _: &mut DevicePeriod) {}
    fn in_force(&self) -> Setting {
        Setting::from([(Lever::Cores, self.cores)])
    }
    fn apply(&mut self, decision: &mut Decision) -> anyhow::Result<()> {
        self.applied += 1;
        anyhow::ensure!(!self.refuses, "refused");
        self.cores = decision.setting.get(Lever::Cores).unwrap_or(self.cores);
        Ok(())
    }
}

fn service(cores: f64) -> Service {
    Service {
        cores,
        refuses: false,
        applied: 0,
    }
}

fn reflex(cores: f64) -> Option<Reflex> {
    Some(Reflex {
        bound: 10,
        oldest: None,
        setting: Setting::from([(Lever::Cores, cores)]),
    })
}

#[test]
fn it_raises_once_a_decision_and_says_how_often() {
    let mut service = service(1.0);
    let mut reflexes = Reflexes::new(&Stop::default());
    let watch = reflexes.arm(reflex(4.0)).unwrap();
    reflexes.fire(&mut [&mut service]);
    assert_eq!((service.cores, reflexes.is_due()), (1.0, false));
    watch.passed();
    assert!(reflexes.is_due());
    reflexes.fire(&mut [&mut service]);
    assert_eq!((service.cores, reflexes.take(), reflexes.take()), (4.0, 1, 0));
    service.cores = 1.0;
    watch.passed();
    assert!(!reflexes.is_due());
    reflexes.fire(&mut [&mut service]);
    assert_eq!((service.cores, service.applied), (1.0, 1));
}

#[test]
fn a_bell_for_an_earlier_decision_or_a_later_one_is_not_heard() {
    let mut service = service(1.0);
    let mut reflexes = Reflexes::new(&Stop::default());
    let stale = reflexes.arm(reflex(4.0)).unwrap();
    reflexes.arm(reflex(2.0));
    stale.passed();
    assert!(!reflexes.is_due());
    reflexes.fire(&mut [&mut service]);
    // Nor is any while the newest decision has none.
    let last = reflexes.arm(reflex(4.0)).unwrap();
    assert!(reflexes.arm(None).is_none());
    last.passed();
    reflexes.fire(&mut [&mut service]);
    assert_eq!((service.applied, reflexes.take()), (0, 0));
}

#[test]
fn it_never_lowers_and_what_is_full_or_paused_is_left_alone() {
    let mut service = service(8.0);
    let mut reflexes = Reflexes::new(&Stop::default());
    reflexes.arm(reflex(4.0)).unwrap().passed();
    reflexes.fire(&mut [&mut service]);
    assert_eq!((service.cores, service.applied, reflexes.take()), (8.0, 0, 0));
}

#[test]
fn a_machine_that_refuses_is_no_reflex_and_no_end() {
    let (mut broken, mut sound) = (service(1.0), service(1.0));
    broken.refuses = true;
    let mut reflexes = Reflexes::new(&Stop::default());
    reflexes.arm(reflex(4.0)).unwrap().passed();
    reflexes.fire(&mut [&mut broken]);
    assert_eq!(reflexes.take(), 0);
    reflexes.arm(reflex(4.0)).unwrap().passed();
    reflexes.fire(&mut [&mut broken, &mut sound]);
    assert_eq!((sound.cores, reflexes.take()), (4.0, 1));
}

#[test]
fn who_waits_for_the_end_of_the_period_is_woken() {
    let stop = Stop::default();
    let mut reflexes = Reflexes::new(&stop);
    let watch = reflexes.arm(reflex(4.0)).unwrap();
    let thread = std::thread::spawn(move || watch.passed());
    let deadline = Instant::now() + Duration::from_secs(60);
    assert!(!stop.wait_until_or(deadline, || reflexes.is_due()));
    thread.join().unwrap();
    assert!(reflexes.is_due() && Instant::now() < deadline);
}
