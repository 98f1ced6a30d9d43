//! What came in, by a web server's access log.

use super::{Demand, DemandClass, Windows, checked};
use anyhow::anyhow;
use headroom_console::Failure;
use headroom_control::placement::advisor::MAX_STEPS;
use headroom_units::{PerSecond, Ratio, Seconds};
use headroom_workload::access_log::AccessLog;
use std::path::Path;

/// The demand of an access log: classes up to each of these sizes and one beyond, each of the mean size of its answers, and of the size that
/// so large a share of them does not exceed.
///
/// # Errors
/// A log that cannot be read, or without sizes.
pub fn logged(file: &Path, step: f64, bounds: &[f64], percentile: Ratio) -> Result<Demand, Failure> {
    let log = AccessLog::from_file(file).map_err(Failure::usage)?;
    let steps = (log.duration().get() / step).ceil() as usize;
    let wrong = |why: String| Failure::Usage(anyhow!("{}: {why}", file.display()));
    if steps > MAX_STEPS {
        return Err(wrong(format!(
            "{:.0} s are {steps} steps of {step} s, and {MAX_STEPS} are planned: give longer ones (--step)",
            log.duration().get()
        )));
    }
    let mut bounds = bounds.to_vec();
    bounds.sort_by(f64::total_cmp);
    let mut sums = vec![(Vec::new(), vec![0.0; steps]); bounds.len() + 1];
    let window = Windows::of_step(step);
    let mut came: Vec<[f64; 2]> = Vec::new();
    let mut without = 0u64;
    for request in &log.requests {
        let Some(bytes) = request.bytes.filter(|bytes| *bytes > 0) else {
            without += 1;
            continue;
        };
        let bytes = bytes as f64;
        let class = bounds.partition_point(|bound| *bound < bytes);
        let (sizes, counts) = &mut sums[class];
        sizes.push(bytes);
        let [requests, content] = window.at(&mut came, f64::from(request.second));
        (*requests, *content) = (*requests + 1.0, *content + bytes);
        counts[((f64::from(request.second) / step) as usize).min(steps - 1)] += 1.0;
    }
    let mut notes = Vec::new();
    if without > 0 {
        notes.push(format!(
            "{without} of {} requests have no size in the log, and are left out",
            log.requests.len()
        ));
    }
    let last = log.duration().get() - (steps as f64 - 1.0) * step;
    if last < step * 0.9 {
        notes.push(format!(
            "the log ends {last:.0} s after its last step began, whose rates are means over the whole {step} s: less than came while it lasted"
        ));
    }
    if log.bad > 0 {
        notes.push(format!("{} lines of the log are no requests", log.bad));
    }
    let mut known = Vec::new();
    for second in 0..log.duration().get().ceil() as u32 {
        *window.at(&mut known, f64::from(second)) += 1.0;
    }
    let classes = sums.into_iter().filter_map(|(mut sizes, counts)| {
        if sizes.is_empty() {
            return None;
        }
        let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
        // The least of which at least this share of the answers are no larger.
        let at = (sizes.len() as f64 * percentile.get()).ceil() as usize;
        let at = at.clamp(1, sizes.len()) - 1;
        let (_, late_bytes, _) = sizes.select_nth_unstable_by(at, f64::total_cmp);
        let late_bytes = late_bytes.max(mean);
        Some(DemandClass {
            size_bytes: mean,
            late_bytes,
            rates: counts.iter().map(|count| PerSecond::new(count / step)).collect(),
        })
    });
    let classes: Vec<DemandClass> = classes.collect();
    let demand = Demand {
        step: Seconds::new(step),
        peaks: window.measured(&classes, &came, &known),
        classes,
        notes,
    };
    if demand.classes.is_empty() {
        return Err(wrong(
            "no request has a size: log the bytes of answers, as the common log format does".to_owned(),
        ));
    }
    checked(demand).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_access_log_is_cut_into_classes_and_steps() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("access.log");
        let line = |minute: u32, bytes: &str| {
            format!("h - - [28/Aug/1995:00:{minute:02}:00 +0000] \"GET /a HTTP/1.0\" 200 {bytes}\n")
        };
        let lines = [
            line(0, "500"),
            line(0, "1500"),
            line(1, "300000"),
            line(1, "-"),
            line(1, "1000"),
        ]
        .concat();
        fs::write(&file, lines).unwrap();
        let demand = logged(&file, 60.0, &[1024.0, 102_400.0], Ratio::new(0.95)).unwrap();
        let sizes: Vec<f64> = demand.classes.iter().map(|class| class.size_bytes).collect();
        assert_eq!(sizes, [750.0, 1500.0, 300_000.0]);
        let late = demand.classes.iter().map(|class| class.late_bytes);
        assert_eq!(late.collect::<Vec<_>>(), [1000.0, 1500.0, 300_000.0]);
        let per_minute = |class: usize| {
            demand.classes[class]
                .rates
                .iter()
                .map(|rate| (rate.get() * 60.0).round())
                .collect::<Vec<_>>()
        };
        assert_eq!((per_minute(0), per_minute(2)), (vec![1.0, 1.0], vec![0.0, 1.0]));
        assert!(demand.notes[0].contains("1 of 5 requests have no size"));
        assert!(
            demand.notes[1].contains("ends 1 s after its last step"),
            "{:?}",
            demand.notes
        );
        // A step of a minute has windows of a second. Of the first one two requests of 0 s are all; of the second, of which the log has a
        // second, the peak is not known.
        assert_eq!(demand.peaks, [Some(Ratio::new(60.0)), None]);
    }
}
