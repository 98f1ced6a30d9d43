//! For the least mean: responses that outlast periods, slow seconds, and a load that changes what batches bring.

use super::super::*;
use super::{Noise, with_interval};
use crate::common::slo;
use crate::{Distribution, Latency, Law, Observation, Traffic};
use headroom_units::{Lever, Seconds, Setting};

/// A service whose mean response time goes to what an interval leads to, about as fast as a response takes.
struct Service<F: Fn(f64, u64) -> f64> {
    /// The mean that an interval leads to, by the period.
    leads_to: F,
    /// The longest response time that others are waited for: how slowly it goes there.
    mean: f64,
    random: Noise,
}

/// What a run comes to.
struct Ran {
    /// Mean response time and interval of each period.
    periods: Vec<(f64, f64)>,
    rules: Vec<String>,
}

impl Ran {
    fn mean(&self, from: usize) -> f64 {
        let rest = &self.periods[from..];
        rest.iter().map(|(mean, _)| mean).sum::<f64>() / rest.len() as f64
    }
}

pub(super) fn observation(number: u64, interval: f64, mean: f64, at_slo: f64) -> Observation {
    let seconds = Seconds::new;
    Observation {
        period: number,
        length: seconds(1.0),
        in_force: Setting::from([(Lever::BatchInterval, interval)]),
        traffic: Some(Traffic {
            arrivals: 100,
            completions: 100,
            latency: Some(Latency {
                at_slo: seconds(at_slo),
                missed: false,
                distribution: Some(Distribution {
                    mean: seconds(mean),
                    p50: seconds(mean * 0.7),
                    p95: seconds(at_slo),
                    p99: seconds(at_slo * 1.5),
                    p999: seconds(at_slo * 2.0),
                }),
            }),
            ..Traffic::default()
        }),
        ..Observation::default()
    }
}

impl<F: Fn(f64, u64) -> f64> Service<F> {
    fn new(leads_to: F) -> Self {
        Self {
            mean: leads_to(0.0, 0),
            leads_to,
            random: Noise::new(7),
        }
    }

    /// Under the law with its defaults and a target that is far off; with so much noise.
    fn run(mut self, periods: u64, noise: f64) -> Ran {
        let mut law = Batching::new(slo(60_000.0), with_interval(), BatchingTuning::default()).unwrap();
        let (mut interval, mut held) = (0.0, Vec::new());
        let mut ran = Ran {
            periods: Vec::new(),
            rules: Vec::new(),
        };
        for number in 0..periods {
            held.push(interval);
            // What is answered now was held a response ago.
            let lag = (self.mean.ceil() as usize).min(held.len());
            let goes_to = (self.leads_to)(held[held.len() - lag], number);
            self.mean += (goes_to - self.mean) / self.mean.max(1.0);
            let seen = self.mean * (1.0 + noise * self.random.normal());
            let decision = law.decide(&observation(number, interval, seen, seen * 2.5));
            ran.periods.push((self.mean, interval));
            ran.rules.push(decision.reasons[0].rule.to_string());
            interval = decision.setting.batch_interval().unwrap().get();
        }
        ran
    }
}

/// A queue that grouping takes away.
fn queue(without: f64) -> impl Fn(f64, u64) -> f64 {
    move |interval, _| without * (0.07 + 0.93 * (-interval / 0.1).exp()) + 0.5 * interval
}

#[test]
fn what_batches_take_off_long_responses_is_found() {
    for without in [0.5, 3.0, 8.0] {
        let ran = Service::new(queue(without)).run(6_000, 0.03);
        let leads_to = queue(without);
        let best = (0..1_000).map(|ms| leads_to(f64::from(ms) / 1e3, 0));
        let (best, mean) = (best.fold(f64::INFINITY, f64::min), ran.mean(5_000));
        assert!(
            best < 0.4 * without && mean < 1.25 * best,
            "{without}: {mean}, {best}"
        );
        // It goes on seeking, and that costs little.
        assert!(ran.rules[2_000..].iter().any(|rule| rule == "batching-explore"));
    }
}

#[test]
fn where_nothing_is_grouped_it_costs_no_more_than_its_budget() {
    for without in [0.2, 3.0, 15.0] {
        for noise in [0.0, 0.03, 0.2] {
            let ran = Service::new(|interval, _| without + 0.5 * interval).run(3_000, noise);
            let more = ran.mean(0) / without - 1.0;
            assert!(more < 0.015, "{without}, {noise}: {more}");
            assert!(
                ran.rules.iter().any(|rule| rule == "batching-explore"),
                "{without}"
            );
        }
    }
}

#[test]
fn what_is_tried_is_held_for_several_responses_once_the_service_has_settled() {
    let ran = Service::new(|interval, number| {
        let grows = (number as f64 / 40.0).min(1.0);
        1.0 + 7.0 * grows + 0.5 * interval
    })
    .run(3_000, 0.01);
    let holds = ran.periods.chunk_by(|a, b| a.1 == b.1);
    let lengths: Vec<(f64, usize)> = holds.map(|hold| (hold[0].1, hold.len())).collect();
    assert!(lengths[0].0 == 0.0 && lengths[0].1 > 40 + 16, "{lengths:?}");
    let tried: Vec<_> = lengths.iter().filter(|(interval, _)| *interval > 0.0).collect();
    assert!(!tried.is_empty());
    assert!(tried.iter().all(|(_, periods)| *periods >= 4 * 8), "{tried:?}");
}

#[test]
fn a_load_that_comes_later_is_learned_of() {
    // Batches bring nothing for half an hour, and then much.
    let busy = queue(3.0);
    let ran = Service::new(move |interval, number| match number < 1_800 {
        true => 0.3 + 0.5 * interval,
        false => busy(interval, number),
    })
    .run(5_400, 0.03);
    let first: f64 = ran.periods[..1_800].iter().map(|(mean, _)| mean).sum::<f64>() / 1_800.0;
    assert!(first < 0.3 * 1.015, "{first}");
    assert!(ran.mean(4_400) < 1.2, "{}", ran.mean(4_400));
    // And the other way round: batches are given up.
    let busy = queue(3.0);
    let ran = Service::new(move |interval, number| match number < 1_800 {
        true => busy(interval, number),
        false => 0.05 + 0.5 * interval,
    })
    .run(5_400, 0.03);
    assert!(ran.mean(4_400) < 0.05 * 1.02, "{}", ran.mean(4_400));
}

#[test]
fn a_response_of_hundreds_of_periods_is_left_alone_and_that_is_said() {
    let mut law = Batching::new(slo(3_600_000.0), with_interval(), BatchingTuning::default()).unwrap();
    for number in 0..2_000 {
        let decision = law.decide(&observation(number, 0.0, 400.0, 500.0));
        assert_eq!(decision.setting.batch_interval(), Some(Seconds::ZERO));
        if number > 200 {
            let text = &decision.reasons[0].text;
            assert!(text.contains("a response takes 400 periods"), "{text}");
        }
    }
}

#[test]
fn soon_after_its_first_model_it_tries_again_and_then_more_and_more_seldom() {
    for without in [0.3, 3.0] {
        let ran = Service::new(|interval, _| without + 0.5 * interval).run(12_000, 0.02);
        let explores = |at: usize| ran.rules[at] == "batching-explore";
        let has_model = ran
            .rules
            .iter()
            .position(|rule| rule == "batching-predict")
            .unwrap();
        let begins = (has_model + 1..ran.rules.len()).filter(|at| explores(*at) && !explores(at - 1));
        let tries: Vec<usize> = begins.map(|at| at - has_model).collect();
        let longest = tries.windows(2).map(|two| two[1] - two[0]).max().unwrap();
        // After 8, 16 and 32 holds, and then 64.
        assert!(tries[2] <= longest, "{tries:?}");
    }
}

#[test]
fn a_response_of_less_than_two_milliseconds_is_left_alone_and_that_is_said() {
    let mut law = Batching::new(slo(250.0), with_interval(), BatchingTuning::default()).unwrap();
    for number in 0..600 {
        let decision = law.decide(&observation(number, 0.0, 0.0015, 0.003));
        assert_eq!(decision.setting.batch_interval(), Some(Seconds::ZERO));
        if number > 120 {
            let text = &decision.reasons[0].text;
            assert!(
                text.contains("a response takes 1.5 ms, so that the shortest interval, 1 ms"),
                "{text}"
            );
        }
    }
}
