//! How far the load of a step rises above its mean: measured where the demand was, else assumed.
//!
//! A machine's cores are busy with so much for each request and so much for each byte, and so is its link. So its load rises above its mean by
//! no more than the requests do or the bytes do, whichever rise more; that one ratio is taken for all classes of a step.

use super::{Demand, DemandClass};
use headroom_control::placement::advisor::MAX_PEAK;
use headroom_units::{PerSecond, Ratio};

/// By how much the load of a step is taken to rise above its course, where it was not measured: a quarter.
pub const ASSUMED: f64 = 0.25;
/// How many standard deviations of the number that comes in a window (Poisson) are added to that: of 60 windows one in ten steps has one
/// beyond it.
const DEVIATIONS: f64 = 3.0;
/// A step of which fewer windows are known has no measured peak.
const LEAST_WINDOWS: usize = 10;

/// The windows that steps are cut into: 60 of a step, of a second to a minute each. What varies faster than that is in the model of latency,
/// which has Poisson arrivals.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    step_s: f64,
    window_s: f64,
}

impl Windows {
    /// Those of steps of this length.
    pub fn of_step(step_s: f64) -> Self {
        Self {
            step_s,
            window_s: (step_s / 60.0).clamp(1.0, 60.0),
        }
    }

    /// The window in which this time lies.
    pub fn at<T: Clone + Default>(self, windows: &mut Vec<T>, at_s: f64) -> &mut T {
        let index = (at_s / self.window_s) as usize;
        if windows.len() <= index {
            windows.resize(index + 1, T::default());
        }
        &mut windows[index]
    }

    /// The peak of each step over its mean, from the requests and their content in each window and the seconds of it that are known; `None`
    /// where too few windows are.
    pub fn measured(self, classes: &[DemandClass], came: &[[f64; 2]], known: &[f64]) -> Vec<Option<Ratio>> {
        let steps = classes.first().map_or(0, |class| class.rates.len());
        let (mut peaks, mut windows) = (vec![1.0_f64; steps], vec![0; steps]);
        for (index, seconds) in known.iter().enumerate() {
            let step = (((index as f64 + 0.5) * self.window_s) / self.step_s) as usize;
            // A period may be longer than a window: all that it says is then of the one in which it began.
            if step >= steps || *seconds < self.window_s / 2.0 {
                continue;
            }
            windows[step] += 1;
            let rates = came
                .get(index)
                .copied()
                .unwrap_or_default()
                .map(|sum| sum / seconds);
            let mean: Vec<f64> = classes.iter().map(|class| class.rates[step].get()).collect();
            peaks[step] = peaks[step].max(ratio(rates, sums(classes, &mean)));
        }
        let enough = |(peak, windows): (f64, usize)| {
            (windows >= LEAST_WINDOWS).then(|| Ratio::new(peak).min(MAX_PEAK))
        };
        peaks.into_iter().zip(windows).map(enough).collect()
    }
}

/// Requests and bytes of these rates, a second.
fn sums(classes: &[DemandClass], rates: &[f64]) -> [f64; 2] {
    let bytes = classes
        .iter()
        .zip(rates)
        .map(|(class, rate)| class.size_bytes * rate);
    [rates.iter().sum(), bytes.sum()]
}

/// By how much the requests, or the bytes, of one are more than those of the other; 1 where there are none to compare with.
fn ratio(these: [f64; 2], those: [f64; 2]) -> f64 {
    let ratios = these.iter().zip(&those).filter(|(_, those)| **those > 0.0);
    ratios.map(|(these, those)| these / those).fold(1.0, f64::max)
}

/// By how much the load of each step is planned to rise above its mean.
#[derive(Clone, Debug, PartialEq)]
pub struct Peaks {
    /// For each step.
    pub of_steps: Vec<Ratio>,
    /// Where that comes from, in words.
    pub source: String,
}

impl Peaks {
    /// What is asked for, else what was measured, else what is assumed.
    pub fn of(demand: &Demand, margin: Option<f64>) -> Self {
        let steps = demand.classes.first().map_or(0, |class| class.rates.len());
        if let Some(margin) = margin {
            return Self {
                of_steps: vec![Ratio::new(1.0 + margin); steps],
                source: format!("{:.0} % above its mean, by --margin", margin * 100.0),
            };
        }
        let measured = |step: usize| demand.peaks.get(step).copied().flatten();
        let of_steps = (0..steps).map(|step| measured(step).unwrap_or_else(|| assumed(demand, step)));
        let of_steps: Vec<Ratio> = of_steps.collect();
        let count = (0..steps).filter(|step| measured(*step).is_some()).count();
        let range = |of: &dyn Fn(usize) -> bool| {
            let percents = (0..steps)
                .filter(|step| of(*step))
                .map(|step| (of_steps[step].get() - 1.0) * 100.0);
            let (low, high) = percents.fold((f64::INFINITY, 0.0_f64), |(low, high), percent| {
                (low.min(percent), high.max(percent))
            });
            let (low, high) = (format!("{low:.0}"), format!("{high:.0}"));
            match low == high {
                true => format!("{low} % above its mean"),
                false => format!("{low} to {high} % above its mean"),
            }
        };
        let of_measured = || {
            let Windows { window_s, .. } = Windows::of_step(demand.step.get());
            format!(
                "{}, as measured over windows of {window_s:.0} s",
                range(&|step| measured(step).is_some())
            )
        };
        let of_assumed = || {
            format!(
                "{}, assumed: {:.0} % above the course between the means of neighbouring steps, and three standard deviations of Poisson arrivals",
                range(&|step| measured(step).is_none()),
                ASSUMED * 100.0
            )
        };
        let source = match count {
            0 => of_assumed(),
            _ if count == steps => of_measured(),
            _ => format!(
                "{}; in {} of {steps} steps {}",
                of_measured(),
                steps - count,
                of_assumed()
            ),
        };
        Self { of_steps, source }
    }
}

/// What is assumed of a step whose course within it nobody measured: at its ends it is half way to the steps beside it, [`ASSUMED`] above that,
/// and what chance adds.
fn assumed(demand: &Demand, step: usize) -> Ratio {
    let classes = &demand.classes;
    let rates = |step: usize| -> Vec<f64> { classes.iter().map(|class| class.rates[step].get()).collect() };
    let mean = rates(step);
    let steps = classes.first().map_or(0, |class| class.rates.len());
    let beside = [step.checked_sub(1), Some(step + 1).filter(|next| *next < steps)];
    let course = beside.into_iter().flatten().map(|other| {
        let halfway: Vec<f64> = rates(other)
            .iter()
            .zip(&mean)
            .map(|(other, own)| f64::midpoint(*other, *own))
            .collect();
        ratio(sums(classes, &halfway), sums(classes, &mean))
    });
    let course = course.fold(1.0, f64::max);
    let window = Windows::of_step(demand.step.get()).window_s;
    // The coefficient of variation of a compound Poisson sum: of requests, and of bytes.
    let varies = |size: fn(&DemandClass) -> f64| {
        let sum = |power: i32| -> f64 {
            let of = |class: &DemandClass| class.rates[step] * size(class).powi(power);
            classes
                .iter()
                .map(of)
                .fold(PerSecond::ZERO, |sum, one| sum + one)
                .get()
        };
        match sum(1) > 0.0 {
            true => (sum(2) / window).sqrt() / sum(1),
            false => 0.0,
        }
    };
    let chance = varies(|_| 1.0).max(varies(|class| class.size_bytes));
    Ratio::new(course * (1.0 + ASSUMED) + DEVIATIONS * chance).min(MAX_PEAK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_units::Seconds;
    use proptest::prelude::*;

    fn class(size_bytes: f64, rates: &[f64]) -> DemandClass {
        DemandClass {
            size_bytes,
            late_bytes: size_bytes,
            rates: rates.iter().map(|rate| PerSecond::new(*rate)).collect(),
        }
    }

    fn hourly(classes: Vec<DemandClass>) -> Demand {
        Demand {
            step: Seconds::new(3600.0),
            classes,
            ..Demand::default()
        }
    }

    #[test]
    fn the_peak_is_that_of_the_requests_or_of_the_bytes() {
        // A step of ten minutes has windows of ten seconds. Requests are alike in all; of the last one half are large.
        let windows = Windows::of_step(600.0);
        let mut came = vec![[100.0, 100.0 * 1e3]; 60];
        came[59] = [100.0, 50.0 * 1e3 + 50.0 * 1e5];
        let classes = [class(1e3, &[5_950.0 / 600.0]), class(1e5, &[50.0 / 600.0])];
        let known = vec![10.0; 60];
        let bytes = (5_950.0 * 1e3 + 50.0 * 1e5) / 600.0;
        let most = (50.0 * 1e3 + 50.0 * 1e5) / 10.0;
        let peaks = windows.measured(&classes, &came, &known);
        assert!((peaks[0].unwrap().get() - most / bytes).abs() < 1e-9, "{peaks:?}");
        // Where nine windows are known, none is said; nor of windows known for less than half.
        assert_eq!(windows.measured(&classes, &came, &known[..9]), [None]);
        assert_eq!(windows.measured(&classes, &came, &[4.9; 60]), [None]);
        assert!(windows.measured(&classes, &came, &[5.1; 60])[0].is_some());
    }

    #[test]
    fn what_is_assumed_follows_the_course_of_the_day_and_chance() {
        let of = |rates: &[f64]| Peaks::of(&hourly(vec![class(1e3, rates)]), None);
        // 10,000/s flat: three deviations of 600,000 are 0.4 %.
        let flat = of(&[1e4, 1e4]).of_steps;
        assert!(
            (flat[0].get() - (1.25 + 3.0 / 6e5_f64.sqrt())).abs() < 1e-9,
            "{flat:?}"
        );
        // It doubles: the first step ends at 1.5 times its mean.
        let rises = of(&[1e4, 2e4]).of_steps;
        assert!(
            (rises[0].get() - 1.5 * 1.25).abs() < 0.01 && rises[1].get() < 1.26,
            "{rises:?}"
        );
        // A request in ten seconds: six in a window.
        let rare = of(&[0.1]).of_steps;
        assert!(
            (rare[0].get() - (1.25 + 3.0 / 6f64.sqrt())).abs() < 1e-9,
            "{rare:?}"
        );
        // A few large answers among many small ones vary as much as the few do.
        let mixed = Peaks::of(&hourly(vec![class(1e3, &[1e4]), class(1e9, &[1.0])]), None).of_steps;
        assert!(
            (mixed[0].get() - (1.25 + 3.0 / 60f64.sqrt())).abs() < 0.01,
            "{mixed:?}"
        );
        assert_eq!(of(&[0.0]).of_steps, [Ratio::new(1.25)], "nothing comes");
    }

    #[test]
    fn what_is_asked_for_goes_before_what_was_measured_and_that_before_what_is_assumed() {
        let mut demand = hourly(vec![class(1e3, &[1e4, 1e4])]);
        demand.peaks = vec![Some(Ratio::new(1.1)), None];
        let peaks = Peaks::of(&demand, None);
        assert_eq!(peaks.of_steps[0], Ratio::new(1.1));
        assert!(peaks.of_steps[1] > Ratio::new(1.25));
        assert!(
            peaks
                .source
                .starts_with("10 % above its mean, as measured over windows of 60 s; in 1 of 2 steps 25"),
            "{}",
            peaks.source
        );
        let asked = Peaks::of(&demand, Some(0.4));
        assert_eq!(asked.of_steps, [Ratio::new(1.4); 2]);
        assert_eq!(asked.source, "40 % above its mean, by --margin");
    }

    proptest! {
        #[test]
        fn no_window_loads_a_machine_more_than_the_peak_says(
            counts in prop::collection::vec((0u32..50, 0u32..5), 10..60), head in 1e-6..1e-3f64, byte in 1e-10..1e-6f64,
        ) {
            let windows = Windows::of_step(60.0);
            let length = counts.len() as f64;
            let of = |pick: fn(&(u32, u32)) -> u32| -> Vec<f64> { counts.iter().map(|one| f64::from(pick(one))).collect() };
            let counts = [of(|one| one.0), of(|one| one.1)];
            prop_assume!(counts.iter().flatten().sum::<f64>() > 0.0);
            let mean = |class: usize| counts[class].iter().sum::<f64>() / length;
            let classes = [class(1e3, &[mean(0)]), class(1e6, &[mean(1)])];
            let came: Vec<[f64; 2]> =
                counts[0].iter().zip(&counts[1]).map(|(small, large)| [small + large, small * 1e3 + large * 1e6]).collect();
            let peak = windows.measured(&classes, &came, &vec![1.0; came.len()])[0].unwrap().get();
            let load = |small: f64, large: f64| small * (head + byte * 1e3) + large * (head + byte * 1e6);
            for (small, large) in counts[0].iter().zip(&counts[1]) {
                prop_assert!(load(*small, *large) <= load(mean(0), mean(1)) * peak * (1.0 + 1e-9));
            }
        }
    }
}
