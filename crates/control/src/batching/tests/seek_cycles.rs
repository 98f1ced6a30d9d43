//! The law that seeks the interval, where the load comes and goes in a cycle of few periods: what the load does is in step with blocks of
//! periods, and must not be taken for what batches do.

use super::super::*;
use super::seek::{Run, World, valley};
use super::with_interval;
use crate::common::slo;

#[derive(Clone, Copy, Debug)]
enum Form {
    Sine,
    Square,
}

#[derive(Clone, Copy, Debug)]
struct Cycle {
    form: Form,
    amplitude: f64,
    periods: u64,
    /// Where in itself it begins.
    phase: f64,
}

impl Cycle {
    /// What it makes of the response time, as a factor.
    fn at(&self, number: u64) -> f64 {
        let at = (number as f64 / self.periods as f64 + self.phase).fract();
        let swing = match self.form {
            Form::Sine => (at * std::f64::consts::TAU).sin(),
            Form::Square => (0.5 - at).signum(),
        };
        1.0 + self.amplitude * swing
    }

    /// The mean response time over that without batches, where an interval makes `response` of the usual.
    fn run(&self, response: impl Fn(f64) -> f64, periods: u64, seed: u64) -> (f64, Run) {
        let world = World {
            answer: |number, interval| (0.5 * self.at(number) * response(interval), 1.4, 0.0),
            noise: 0.05,
            tail: 2.0,
            hold: 0.0,
            length: 1.0,
            seed,
        };
        let tuning = SeekTuning {
            seed,
            ..SeekTuning::default()
        };
        let law = Seek::new(slo(4_000.0), with_interval(), tuning).unwrap();
        let run = world.run(law, periods);
        let without = (0..periods).map(|number| 0.5 * self.at(number)).sum::<f64>() / periods as f64;
        (run.mean / without, run)
    }
}

/// Those that the law was led astray most by while it compared blocks of five periods in turn, and some that it was not.
fn cycles() -> impl Iterator<Item = Cycle> {
    let forms = [Form::Sine, Form::Square];
    let all = forms.into_iter().flat_map(|form| {
        let amplitudes = [0.3, 0.6];
        amplitudes.into_iter().flat_map(move |amplitude| {
            let lengths = [2, 4, 6, 8, 10, 12, 14, 20, 40];
            lengths.into_iter().map(move |periods| (form, amplitude, periods))
        })
    });
    all.flat_map(|(form, amplitude, periods)| {
        [0.0, 0.3, 0.7].map(|phase| Cycle {
            form,
            amplitude,
            periods,
            phase,
        })
    })
}

#[test]
fn where_batches_only_hurt_the_budget_is_kept_however_the_load_cycles() {
    for cycle in cycles() {
        for seed in 1..4 {
            let (more, _) = cycle.run(|interval| 1.0 + interval, 3_600, seed);
            assert!(more < 1.012, "{cycle:?} {seed}: {more}");
        }
    }
}

#[test]
fn the_budget_is_kept_for_a_day() {
    for cycle in cycles().filter(|cycle| [10, 40].contains(&cycle.periods)) {
        let (more, _) = cycle.run(|interval| 1.0 + interval, 86_400, 1);
        assert!(more < 1.01, "{cycle:?}: {more}");
    }
}

#[test]
fn what_helps_is_found_however_the_load_cycles() {
    for cycle in cycles() {
        // At the best interval a third of the response time is left.
        let (more, run) = cycle.run(|interval| valley(interval, 0.15, 0.67), 7_200, 1);
        assert!(more < 0.72, "{cycle:?}: {more} {}", run.interval);
    }
}
