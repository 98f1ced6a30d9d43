use super::*;
use crate::expected::{Load, idle_power};
use headroom_units::{Cores, PerSecond};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_distr::{Distribution, Exp};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Poisson arrivals of exponential work on as many cores as may run it, for a time; what waits for a core is kept.
fn serve(
    machine: &MachineFigures,
    placement: Placement,
    on: usize,
    rate: f64,
    mean_s: f64,
    until_s: f64,
) -> CoreTracker {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    let (gap, size) = (Exp::new(rate).unwrap(), Exp::new(1.0 / mean_s).unwrap());
    let mut tracker = CoreTracker::new(machine, placement, 0.0);
    tracker.set_on(0.0, on);
    let mut done: Vec<f64> = Vec::new();
    let mut arrival_s = gap.sample(&mut rng);
    loop {
        let first = (0..done.len()).min_by(|a, b| done[*a].total_cmp(&done[*b]));
        let now_s = first.map_or(arrival_s, |first| done[first].min(arrival_s));
        if now_s >= until_s {
            tracker.advance(until_s);
            return tracker;
        }
        match first.filter(|first| done[*first] <= arrival_s) {
            Some(first) => {
                done.swap_remove(first);
            }
            None => {
                done.push(now_s + size.sample(&mut rng));
                arrival_s = now_s + gap.sample(&mut rng);
            }
        }
        tracker.run(now_s, done.len());
    }
}

fn idle_w(tracker: &CoreTracker, until_s: f64) -> f64 {
    let totals = tracker.totals();
    (totals.idle + totals.transitions + totals.uncore).get() / until_s
}

#[test]
fn a_machine_with_nothing_to_do_sleeps_with_its_package() {
    let machine = MachineFigures::skylake(10);
    let mut tracker = CoreTracker::new(&machine, Placement::Spread, 0.0);
    tracker.advance(100.0);
    let power_w = idle_w(&tracker, 100.0);
    // 12.5 W asleep; two hundred background wake-ups a second keep it up for a part of the time.
    assert!((12.5..21.0).contains(&power_w), "{power_w}");
    let asleep = tracker.totals().package_asleep.get() / 100.0;
    assert!(asleep > 0.95, "{asleep}");
    let expected = idle_power(
        &machine,
        Load {
            busy: Cores::ZERO,
            wakeups: PerSecond::ZERO,
            on: 10,
        },
    );
    let expected_w = (expected.cores + expected.uncore).get();
    assert!(
        (power_w / expected_w - 1.0).abs() < 0.05,
        "{power_w} {expected_w}"
    );
}

#[test]
fn many_short_idle_periods_keep_all_cores_up_and_packing_lets_most_sleep() {
    let machine = MachineFigures::skylake(8);
    // 0.8 busy cores either way, in 8,000 requests a second of 0.1 ms or in 8 of 0.1 s.
    let short = |placement, on| idle_w(&serve(&machine, placement, on, 8000.0, 1e-4, 20.0), 20.0);
    let spread_w = short(Placement::Spread, 8);
    let packed_w = short(Placement::Packed, 8);
    let cpuset_w = short(Placement::Spread, 2);
    let long_w = idle_w(&serve(&machine, Placement::Spread, 8, 8.0, 0.1, 20.0), 20.0);
    assert!(packed_w < 0.9 * spread_w, "{packed_w} {spread_w}");
    assert!(cpuset_w < 0.9 * spread_w, "{cpuset_w} {spread_w}");
    assert!(long_w < 0.9 * spread_w, "{long_w} {spread_w}");
}

#[test]
fn what_is_expected_is_what_is_simulated() {
    let machine = MachineFigures::skylake(8);
    for (on, rate, mean_s) in [
        (8, 8.0, 0.1),
        (8, 80.0, 0.02),
        (8, 8000.0, 1e-4),
        (2, 2000.0, 2e-4),
        (4, 200.0, 0.005),
        (8, 2.0, 0.1),
    ] {
        let tracker = serve(&machine, Placement::Spread, on, rate, mean_s, 30.0);
        let (simulated_w, busy) = (idle_w(&tracker, 30.0), rate * mean_s);
        let wakeups = tracker.totals().wakeups as f64 / 30.0;
        let expected = idle_power(
            &machine,
            Load {
                busy: Cores::new(busy),
                wakeups: PerSecond::new(wakeups),
                on,
            },
        );
        let expected_w = (expected.cores + expected.uncore).get();
        assert!(
            (simulated_w / expected_w - 1.0).abs() < 0.15,
            "{on} cores, {rate}/s of {mean_s} s: {simulated_w} W, expected {expected_w} W"
        );
    }
}

#[test]
fn a_core_that_is_not_allowed_to_work_saves_no_more_than_its_sleep() {
    let machine = MachineFigures::skylake(4);
    let mut parked = CoreTracker::new(&machine, Placement::Spread, 0.0);
    parked.set_on(0.0, 1);
    parked.advance(50.0);
    let mut all = CoreTracker::new(&machine, Placement::Spread, 0.0);
    all.advance(50.0);
    assert!(
        (idle_w(&parked, 50.0) / idle_w(&all, 50.0) - 1.0).abs() < 0.01,
        "nothing to do: nothing saved"
    );
    let mut offline = CoreTracker::new(&machine, Placement::Spread, 0.0);
    offline.set_online(0.0, 1);
    offline.advance(50.0);
    assert!(
        idle_w(&offline, 50.0) <= idle_w(&parked, 50.0),
        "nothing wakes a core that is offline"
    );
}

#[test]
fn a_lower_voltage_lowers_the_shallow_state_alone() {
    let machine = MachineFigures::skylake(1).processor;
    assert_eq!(state_power_w(&machine, 0, 1.0), 1.44);
    assert!((state_power_w(&machine, 0, 0.7) - 1.44 * 0.49).abs() < 1e-12);
    assert!(state_power_w(&machine, 1, 0.7) <= state_power_w(&machine, 0, 0.7));
    assert_eq!(state_power_w(&machine, 2, 0.7), 0.10);
}

proptest! {
    /// Whatever happens, each core is somewhere, and nothing draws less than everything in its deepest state.
    #[test]
    fn core_seconds_are_conserved(
        acts in proptest::collection::vec((0.0..0.02f64, 0usize..4, 0usize..9), 1..80), packed in any::<bool>(),
    ) {
        let machine = MachineFigures::skylake(8);
        let placement = if packed { Placement::Packed } else { Placement::Spread };
        let mut tracker = CoreTracker::new(&machine, placement, 0.0);
        let (mut now_s, mut busy_core_s) = (0.0, 0.0);
        for (gap_s, act, cores) in acts {
            busy_core_s += tracker.running() as f64 * gap_s;
            now_s += gap_s;
            match act {
                0 => tracker.set_on(now_s, cores),
                1 => tracker.set_online(now_s, cores),
                _ => { tracker.run(now_s, cores); }
            }
            prop_assert!(tracker.running() <= tracker.on());
        }
        let totals = tracker.totals();
        let idle_core_s: f64 = totals.states.iter().map(|time| time.get()).sum();
        prop_assert!((idle_core_s + busy_core_s - 8.0 * now_s).abs() < 1e-9 * (1.0 + now_s));
        prop_assert!(totals.package_asleep.get() <= now_s + 1e-12);
        prop_assert!(totals.idle.get() >= 0.1 * idle_core_s - 1e-9);
        prop_assert!(totals.uncore.get() >= machine.processor.uncore_asleep.get() * now_s - 1e-9);
    }
}

#[test]
fn a_scheduler_of_its_own_says_which_core_runs() {
    let machine = MachineFigures::broadwell(4);
    let mut tracker = CoreTracker::new(&machine, Placement::Spread, 0.0);
    let deepest = machine.processor.idle_states.last().unwrap();
    // Core 3 has slept for long; what runs already or is parked needs no waking.
    assert_eq!(tracker.run_core(0.01, 3), deepest.exit_latency);
    assert_eq!(tracker.run_core(0.01, 3), Seconds::ZERO);
    tracker.set_on(0.01, 2);
    assert_eq!((tracker.running(), tracker.run_core(0.02, 3)), (1, Seconds::ZERO));
    tracker.set_on(0.02, 4);
    assert_eq!(tracker.run_core(0.02, 2), deepest.exit_latency);
    // One runs still, on core 0 or 1 since the others were parked.
    tracker.idle_core(0.03, 2);
    tracker.idle_core(0.03, 2);
    assert_eq!(tracker.running(), 1);
    tracker.advance(0.04);
    let totals = tracker.totals();
    let asleep: f64 = totals.states.iter().map(|seconds| seconds.get()).sum();
    assert!(
        (totals.running.get() - 0.04).abs() < 1e-9,
        "{}",
        totals.running.get()
    );
    assert!((asleep + totals.running.get() - 4.0 * 0.04).abs() < 1e-9);
}
