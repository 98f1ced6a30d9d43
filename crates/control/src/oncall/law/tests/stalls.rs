//! What a moment in which all is late, or unknown, leaves behind.

use super::resting::{Period, delayed, run};
use super::*;

/// A delay of 2 ms saves 20 %, nobody on call 4 %, and all is late in some periods whatever is in force.
fn late_in(is_late: impl Fn(u64) -> bool) -> impl Fn(u64, &Setting) -> Period {
    move |number, in_force| {
        let delay_ms = in_force.get(Lever::RoundDelay).unwrap_or(0.0) * 1e3;
        let is_on_call = workers(in_force).is_some();
        let late = if is_late(number) { 60.0 } else { 0.0 };
        Period {
            rate: 2_000.0,
            p99_ms: 2.0 + delay_ms + late,
            busy: Some(if is_on_call { 0.4 } else { 0.35 }),
            watts: Some(match (is_on_call, delay_ms >= 2.0) {
                (false, _) => 48.0,
                (true, true) => 40.0,
                (true, false) => 50.0,
            }),
            waiting: 0,
        }
    }
}

/// As long as queries are late though none waits for a slot, it is compared whether to be on call; once they are not, that is no question of the SLO,
/// and being on call costs a little. It was found not to be for ever, and no delay was compared any more.
#[test]
fn a_stall_leaves_nobody_off_call_for_good() {
    for length in [2, 12, 16, 18, 30, 60, 100] {
        let (all, decisions) = run(
            &mut ours(20.0, GoalName::Slo),
            0..6_000,
            late_in(|number| (803..803 + length).contains(&number)),
        );
        let kept = delayed(&all[2_000..]);
        let told: Vec<_> = decisions.iter().flat_map(|one| &one.comparisons).collect();
        assert!(kept > 3_500, "{length}: {kept} of 4000, {told:?}");
        // Nor is it forgotten for long.
        let soon = delayed(&all[803 + length as usize..1_803]);
        assert!(soon > 400, "{length}: {soon}");
    }
}

/// What is late as often with all on call as with nobody, or under a delay, is late for something else.
#[test]
fn periods_that_are_late_by_chance_drop_no_setting() {
    let kept = (0..20_u64).filter(|seed| {
        // One in a hundred, in no order.
        let is_late = |number: u64| {
            let mixed = (number + seed * 7_919).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32 < (u64::from(u32::MAX) / 100)
        };
        let (all, _) = run(&mut ours(20.0, GoalName::Slo), 0..900, late_in(is_late));
        delayed(&all[400..]) > 300
    });
    let kept = kept.count();
    assert!(kept >= 15, "{kept} of 20");
}

#[test]
fn a_comparison_anew_that_is_given_up_leaves_what_was_found() {
    for what in ["meter", "late", "nothing"] {
        let mut since = None;
        let mut law = ours(20.0, GoalName::Slo);
        let usual = late_in(|_| false);
        let (mut in_force, mut kept) = (Setting::default(), 0);
        let mut server = partly_loaded();
        for number in 0..4_000_u64 {
            let at = since.map_or(0, |since: u64| number - since);
            let is_hit = (10..34).contains(&at);
            let mut period = usual(number, &in_force);
            if is_hit && what == "late" {
                period.p99_ms = 60.0;
            }
            period.watts = period.watts.filter(|_| !(is_hit && what == "meter"));
            let observation = period.observation(&mut server, number, in_force);
            let decision = law.decide(&observation);
            in_force = decision.setting;
            if number > 1_000 && decision.reasons[0].text.contains("settings are compared") {
                since.get_or_insert(number);
            }
            kept += u32::from(since.is_some() && in_force.get(Lever::RoundDelay) > Some(0.0));
        }
        let left = 4_000 - since.unwrap();
        assert!(u64::from(kept) * 10 > left * 8, "{what}: {kept} of {left}");
    }
}

/// A meter whose source changes now and then has nobody believe what a model says without a witness.
#[test]
fn a_delay_by_a_models_watts_needs_its_witness_though_a_sensor_answers_now_and_then() {
    for every in [3, 17, 50] {
        let mut server = partly_loaded();
        let mut law = ours(20.0, GoalName::Slo);
        let (mut in_force, mut delays) = (Setting::default(), 0);
        for number in 0..1_000_u64 {
            let mut period = late_in(|_| false)(number, &in_force);
            period.busy = Some(0.4);
            let mut observation = period.observation(&mut server, number, in_force);
            observation.oncall.as_mut().unwrap().long_idle = Some(Ratio::new(0.2));
            if number % every == 0 {
                let watts = observation.power.unwrap().value;
                observation.power = Some(Reading::new(watts, Source::Measured));
            }
            in_force = law.decide(&observation).setting;
            delays += u32::from(number > 600 && in_force.get(Lever::RoundDelay) > Some(0.0));
        }
        assert_eq!(delays, 0, "{every}");
    }
}
