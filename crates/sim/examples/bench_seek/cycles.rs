//! Worlds whose load comes and goes in a cycle of few periods: what a law that compares blocks of periods can mistake for a gain or a loss
//! of its own. Formulas say how long a response takes, so that nothing but the cycle and a noise is in the way, and what was lost is
//! exactly known.

use headroom_control::{
    BatchObservation, Distribution, Guardian, Latency, LawConfig, LawContext, Observation, Traffic,
};
use headroom_units::{Lever, Seconds, Setting};
use headroom_workload::random::{Draw, Purpose, Rng};

/// Cycles, in periods.
const PERIODS: [u32; 9] = [2, 4, 6, 8, 10, 12, 14, 20, 40];
/// How far the response goes from its mean in a cycle, as a share.
const AMPLITUDES: [f64; 2] = [0.3, 0.6];
/// Mean response time without batches, and the length of a period, seconds.
const USUAL_S: f64 = 0.5;
const PERIOD_S: f64 = 1.0;
/// Deviation of a period's mean, as a share.
const NOISE: f64 = 0.05;
const ANSWERS: u64 = 120;

/// What holding requests does to a response.
#[derive(Clone, Copy, Debug)]
enum Batching {
    /// Each waits for half of the interval.
    Hurts,
    /// Each waits for a tenth of it: few comparisons tell that.
    HurtsLittle,
    /// Nothing.
    Neutral,
    /// 18 % less at the best interval.
    Helps,
    /// 70 % less.
    HelpsMuch,
}

impl Batching {
    /// The response time with this interval, as a multiple of the usual one, and how many requests for the same are in a batch.
    fn response(self, interval_s: f64) -> (f64, f64) {
        let share = interval_s / USUAL_S;
        let valley = |depth: f64, best: f64| 1.0 - depth * (1.0 - (share / best - 1.0).powi(2));
        match self {
            Self::Hurts => (1.0 + 0.5 * share, 1.4),
            Self::HurtsLittle => (1.0 + 0.1 * share, 1.4),
            Self::Neutral => (1.0, 1.4),
            Self::Helps => (valley(0.18, 0.3), 1.5),
            Self::HelpsMuch => (valley(0.7, 0.3), 3.0),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Form {
    Sine,
    Square,
}

/// What is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cycling {
    batching: Batching,
    form: Form,
    amplitude: f64,
    cycle: u32,
    periods: u64,
}

impl Cycling {
    /// All of them, for so many periods.
    pub(super) fn all(periods: u64) -> Vec<Self> {
        let mut all = Vec::new();
        for batching in [
            Batching::Hurts,
            Batching::HurtsLittle,
            Batching::Neutral,
            Batching::Helps,
            Batching::HelpsMuch,
        ] {
            for form in [Form::Sine, Form::Square] {
                for amplitude in AMPLITUDES {
                    for cycle in PERIODS {
                        all.push(Self {
                            batching,
                            form,
                            amplitude,
                            cycle,
                            periods,
                        });
                    }
                }
            }
        }
        all
    }

    /// What it is an example of, whichever the cycle.
    pub(super) fn group(&self) -> String {
        format!(
            "{:?} {:?} ±{:.0} %",
            self.batching,
            self.form,
            self.amplitude * 100.0
        )
    }

    /// What the load makes of the response time, as a factor, in the period with this number, where the cycle began so far in itself.
    fn load(&self, number: u64, phase: f64) -> f64 {
        let at = (number as f64 / f64::from(self.cycle) + phase).fract();
        let swing = match self.form {
            Form::Sine => (at * std::f64::consts::TAU).sin(),
            Form::Square if at < 0.5 => 1.0,
            Form::Square => -1.0,
        };
        1.0 + self.amplitude * swing
    }

    /// The mean response time under the law over that with nothing held, and the mean interval, seconds. The seed says where the cycle
    /// begins, what the noise is and what the law draws.
    pub(super) fn measure(&self, context: &LawContext, seed: u64) -> (f64, f64) {
        let mut noise = Rng::new(seed, Purpose::Telemetry);
        let phase = Rng::new(seed, Purpose::Arrivals).uniform();
        let mut config = LawConfig::of("seek".parse().expect("a law"));
        config.seek.seed = seed;
        let law = config.build(context).expect("a law");
        let mut law = Guardian::new(law, context.plant, 5);
        let mut interval_s = 0.0;
        let (mut total, mut without, mut held) = (0.0, 0.0, 0.0);
        for number in 0..self.periods {
            let load = self.load(number, phase);
            let (response, groups) = self.batching.response(interval_s);
            total += load * response;
            without += load;
            held += interval_s;
            let seen = load * response * USUAL_S * (1.0 + NOISE * noise.normal());
            let decision = law.decide(&observation(number, interval_s, seen.max(1e-3), groups));
            interval_s = decision.setting.get(Lever::BatchInterval).expect("an interval");
        }
        (total / without, held / self.periods as f64)
    }
}

fn observation(number: u64, interval_s: f64, mean_s: f64, groups: f64) -> Observation {
    let mean = Seconds::new(mean_s);
    let requests = if interval_s > 0.0 { 100 } else { 0 };
    Observation {
        period: number,
        length: Seconds::new(PERIOD_S),
        in_force: Setting::from([(Lever::BatchInterval, interval_s)]),
        traffic: Some(Traffic {
            arrivals: ANSWERS,
            completions: ANSWERS,
            latency: Some(Latency {
                at_slo: mean * 2.0,
                missed: false,
                distribution: Some(Distribution {
                    mean,
                    p50: mean * 0.7,
                    p95: mean * 2.0,
                    p99: mean * 4.0,
                    p999: mean * 6.0,
                }),
            }),
            ..Traffic::default()
        }),
        batching: Some(BatchObservation {
            batches: u64::from(requests > 0),
            requests,
            groups: (requests as f64 / groups).round() as u64,
            answered: 1,
            processing: Seconds::new(0.1),
            waiting: Seconds::new(interval_s),
            held: 0,
        }),
        ..Observation::default()
    }
}
