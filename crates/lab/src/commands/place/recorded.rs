//! What came in during a recorded run whose gateway told requests apart by the size of their answers.

use super::demand::{Demand, DemandClass, Windows, checked};
use anyhow::anyhow;
use headroom_console::Failure;
use headroom_control::placement::advisor::MAX_STEPS;
use headroom_record::Archive;
use headroom_units::{Fact, PerSecond, Role, Seconds, Sensor};
use std::collections::BTreeMap;
use std::path::Path;

/// What is summed of one class.
#[derive(Default)]
struct Sum {
    /// Requests of each step.
    arrivals: BTreeMap<usize, f64>,
    /// Requests of which the mean content is known, and their content.
    sized: (f64, f64),
    /// The mean content of the last period that says one.
    latest_bytes: f64,
    /// Requests of each window, and their content.
    windows: Vec<[f64; 2]>,
}

/// The demand of a run: the classes of its gateway's `sizes`, each of the mean size of its answers, at the rates of each step.
///
/// # Errors
/// A record or a run that cannot be read; a run without sizes.
pub fn recorded(db: &Path, run: &str, step: f64) -> Result<Demand, Failure> {
    let archive = Archive::open(db).map_err(Failure::usage)?;
    let found = archive.find(run).map_err(Failure::usage)?;
    let wrong = |why: String| {
        Failure::usage(anyhow!(
            "{}: run {} ({}): {why}",
            db.display(),
            found.id,
            found.meta.name
        ))
    };
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    let (mut steps, mut end) = (vec![0.0; 0], 0.0_f64);
    let (window, mut known) = (Windows::of_step(step), Vec::new());
    archive.for_each_period(found.id, |period| {
        let length = period.duration.get();
        end = end.max(period.at.get());
        // A period is of the step in which it began.
        let at = (period.at.get() / step) as usize;
        if at >= MAX_STEPS {
            return Ok(());
        }
        if steps.len() <= at {
            steps.resize(at + 1, 0.0);
        }
        let classes = period.parts.iter().filter(|part| part.role == Role::Size);
        let mut has_sizes = false;
        for part in classes {
            let Some(rate) = part.get(Sensor::ArrivalRate) else {
                continue;
            };
            has_sizes = true;
            let sum = sums.entry(part.name.clone()).or_default();
            *sum.arrivals.entry(at).or_default() += rate * length;
            if let Some(Fact::Number(bytes)) = part.facts.get("mean_bytes") {
                sum.sized.0 += rate * length;
                sum.sized.1 += rate * length * bytes;
                sum.latest_bytes = *bytes;
            }
            let [requests, content] = window.at(&mut sum.windows, period.at.get());
            *requests += rate * length;
            *content += rate * length * sum.latest_bytes;
        }
        if has_sizes {
            steps[at] += length;
            *window.at(&mut known, period.at.get()) += length;
        }
        Ok(())
    })?;
    if end >= step * MAX_STEPS as f64 {
        return Err(wrong(format!(
            "{end:.0} s are more than {MAX_STEPS} steps of {step} s: give longer ones (--step)"
        )));
    }
    let all: f64 = sums.values().flat_map(|sum| sum.arrivals.values()).sum();
    let mut demand = Demand {
        step: Seconds::new(step),
        ..Demand::default()
    };
    let (mut without, mut came) = (0.0, Vec::<[f64; 2]>::new());
    for sum in sums.into_values() {
        let of_class: f64 = sum.arrivals.values().sum();
        if sum.sized.0 <= 0.0 || sum.sized.1 <= 0.0 {
            without += of_class;
            continue;
        }
        // Time of which nothing is recorded counts as the rest of its step.
        let rate = |(at, known): (usize, &f64)| match *known > 0.0 {
            true => sum.arrivals.get(&at).copied().unwrap_or(0.0) / known,
            false => 0.0,
        };
        demand.classes.push(DemandClass {
            size_bytes: sum.sized.1 / sum.sized.0,
            late_bytes: sum.sized.1 / sum.sized.0,
            rates: steps.iter().enumerate().map(rate).map(PerSecond::new).collect(),
        });
        came.resize(came.len().max(sum.windows.len()), [0.0; 2]);
        for (all, of_class) in came.iter_mut().zip(sum.windows) {
            *all = [all[0] + of_class[0], all[1] + of_class[1]];
        }
    }
    if demand.classes.is_empty() {
        return Err(wrong(
            "no period says of which size answers were: record one whose gateway has [gateway.sizes]"
                .to_owned(),
        ));
    }
    demand.peaks = window.measured(&demand.classes, &came, &known);
    if without > 0.0 {
        demand.notes.push(format!(
            "{:.1} % of the requests were of no known size, and are left out",
            without / all * 100.0
        ));
    }
    let silent = steps.iter().filter(|known| **known <= 0.0).count();
    if silent > 0 {
        demand.notes.push(format!(
            "of {silent} of {} steps nothing is recorded: they count as without demand",
            steps.len()
        ));
    }
    demand.notes.push(
        "a record has the mean size of each class and no single answer: answers that are larger than it may be later than planned; give the \
         gateway more size bounds where they differ much"
            .to_owned(),
    );
    checked(demand).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_record::{Limits, PeriodRecord, Recorder, RunMeta, World};
    use headroom_units::{Cores, Part};

    /// A run of periods of a second, whose parts are these.
    fn run(db: &Path, periods: &[Vec<Part>]) {
        let recorder = Recorder::open(db, Limits::default()).unwrap();
        let mut run = recorder
            .start_run(RunMeta {
                name: "day".to_owned(),
                law: "placement".to_owned(),
                trace: "live traffic".to_owned(),
                seed: 1,
                world: World::Live,
                period: Seconds::new(1.0),
                slo: None,
                power_source: None,
                notes: Vec::new(),
                config: String::new(),
                version: "1".to_owned(),
                host: "test".to_owned(),
                started_at: std::time::SystemTime::now(),
                energy_bound: None,
                nodes: Vec::new(),
                provenance: headroom_record::Provenance::default(),
            })
            .unwrap();
        let none = hdrhistogram::Histogram::new(3).unwrap();
        for (index, parts) in periods.iter().enumerate() {
            let at = Seconds::new(index as f64);
            let record = PeriodRecord {
                parts: parts.clone(),
                ..PeriodRecord::new(index as u64, at, Seconds::new(1.0), Cores::new(1.0))
            };
            run.record(record, &none);
        }
        run.finish().unwrap();
    }

    fn class(name: &str, rate: f64, bytes: Option<f64>) -> Part {
        let part = Part::new(name, Role::Size).with(Sensor::ArrivalRate, Some(rate));
        match bytes {
            Some(bytes) => part.fact("mean_bytes", bytes),
            None => part,
        }
    }

    #[test]
    fn a_runs_classes_have_their_rates_and_mean_sizes() {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("runs.db");
        let period = |small, large| {
            vec![
                class("up to 4096 bytes", small, Some(1_000.0)),
                class(
                    "over 4096 bytes",
                    large,
                    Some(if large > 5.0 { 90_000.0 } else { 60_000.0 }),
                ),
                class("of unknown size", 1.0, None),
            ]
        };
        run(
            &db,
            &[period(10.0, 2.0), period(30.0, 4.0), period(5.0, 6.0), Vec::new()],
        );
        let demand = recorded(&db, "day", 2.0).unwrap();
        let names: Vec<String> = demand.classes.iter().map(DemandClass::name).collect();
        assert_eq!(names, ["1000 B", "73.2 KB"], "{demand:?}");
        let rates = |class: usize| {
            demand.classes[class]
                .rates
                .iter()
                .map(|rate| rate.get())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            rates(0),
            [20.0, 5.0],
            "the half of the second step without sizes counts as its rest"
        );
        assert_eq!(rates(1), [3.0, 6.0]);
        assert!(
            demand.notes[0].starts_with("5.0 % of the requests"),
            "{:?}",
            demand.notes
        );
    }

    #[test]
    fn the_peak_of_a_step_is_measured_from_its_periods() {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("runs.db");
        let rates = |at: usize| if at == 30 { 300.0 } else { 100.0 };
        let periods: Vec<Vec<Part>> = (0..60)
            .map(|at| vec![class("up to 4096 bytes", rates(at), Some(1e3))])
            .collect();
        run(&db, &periods);
        let demand = recorded(&db, "day", 60.0).unwrap();
        let mean = (59.0 * 100.0 + 300.0) / 60.0;
        let peak = demand.peaks[0].unwrap().get();
        assert!((peak - 300.0 / mean).abs() < 1e-9, "{demand:?}");
        assert_eq!(
            recorded(&db, "day", 9.0).unwrap().peaks,
            [None; 7],
            "nine windows a step"
        );
    }

    #[test]
    fn a_run_without_sizes_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("runs.db");
        run(&db, &[vec![Part::new("web1", Role::Node)]]);
        let why = recorded(&db, "latest", 3600.0).unwrap_err().to_string();
        assert!(why.contains("[gateway.sizes]") && why.contains("day"), "{why}");
        assert!(
            recorded(&db, "other", 3600.0)
                .unwrap_err()
                .to_string()
                .contains("other")
        );
    }
}
