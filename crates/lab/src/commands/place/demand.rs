//! What comes in over the day: requests of each class of sizes, step by step, from a file or an access log.

use anyhow::{Context, anyhow};
use headroom_console::Failure;
use headroom_control::placement::advisor::{MAX_CLASSES, MAX_STEPS};
use headroom_record::profile::size_text;
use headroom_units::{PerSecond, Seconds};
use headroom_workload::access_log::AccessLog;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The largest file of a demand, bytes.
const MAX_BYTES: u64 = 16 << 20;

/// A demand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// The length of a step.
    pub step: Seconds,
    /// The classes, the smallest first.
    pub classes: Vec<DemandClass>,
    /// What a reader must know.
    pub notes: Vec<String>,
}

/// A class of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct DemandClass {
    /// Content of an answer, bytes.
    pub size_bytes: f64,
    /// Arrivals in each step.
    pub rates: Vec<PerSecond>,
}

impl DemandClass {
    /// Its name in tables.
    pub fn name(&self) -> String {
        size_text(self.size_bytes.round() as u64)
    }
}

/// `1024`, `10K`, `1M` in bytes, of 1024 each.
///
/// # Errors
/// What it must be.
pub fn size(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let upper = text.to_ascii_uppercase();
    let number = upper.trim_end_matches('B').trim_end();
    let (number, factor) = match (number.strip_suffix('K'), number.strip_suffix('M')) {
        (Some(number), _) => (number, 1024.0),
        (_, Some(number)) => (number, 1_048_576.0),
        _ => (number, 1.0),
    };
    let bytes = number
        .trim()
        .parse()
        .map(|number: f64| number * factor)
        .unwrap_or(f64::NAN);
    match (1.0..=1e12).contains(&bytes) {
        true => Ok(bytes),
        false => Err(format!(
            "{text:?} is no size: give bytes, or K or M of 1024, as 10K"
        )),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    step_s: Option<f64>,
    class: Vec<FileClass>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileClass {
    size: Text,
    rates_per_s: Vec<f64>,
}

/// A size as a number or as text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    Number(f64),
    Text(String),
}

/// Reads a demand: TOML where the file's name ends so, else CSV.
///
/// # Errors
/// A file that cannot be read, with the line and the value that is wrong.
pub fn read(file: &Path, step: Option<f64>) -> Result<Demand, Failure> {
    let text = || {
        let length = fs::metadata(file)?.len();
        if length > MAX_BYTES {
            return Err(std::io::Error::other(format!(
                "it has {length} bytes, and {MAX_BYTES} are read"
            )));
        }
        fs::read_to_string(file)
    };
    let text = text()
        .with_context(|| {
            format!(
                "{}: cannot be read; name a file of rates, CSV or TOML",
                file.display()
            )
        })
        .map_err(Failure::Usage)?;
    let is_toml = file.extension().is_some_and(|of| of.eq_ignore_ascii_case("toml"));
    let parsed = if is_toml {
        toml(&text, step)
    } else {
        csv(&text, step)
    };
    parsed
        .and_then(checked)
        .map_err(|error| Failure::Usage(error.context(format!("{}", file.display()))))
}

fn toml(text: &str, step: Option<f64>) -> Result<Demand, anyhow::Error> {
    let file: File = toml::from_str(text)?;
    let classes = file.class.into_iter().map(|class| {
        let size_bytes = match &class.size {
            Text::Number(bytes) => size(&bytes.to_string()),
            Text::Text(text) => size(text),
        };
        Ok(DemandClass {
            size_bytes: size_bytes.map_err(|error| anyhow!("class.size: {error}"))?,
            rates: class.rates_per_s.into_iter().map(PerSecond::new).collect(),
        })
    });
    Ok(Demand {
        classes: classes.collect::<Result<_, anyhow::Error>>()?,
        step: Seconds::new(step.or(file.step_s).unwrap_or(3600.0)),
        notes: Vec::new(),
    })
}

/// `step,size,requests_per_s`, a line each; what has no line is 0.
fn csv(text: &str, step: Option<f64>) -> Result<Demand, anyhow::Error> {
    let mut cells: BTreeMap<u64, BTreeMap<usize, f64>> = BTreeMap::new();
    let mut steps = 0;
    let lines = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    for (index, (number, line)) in lines.enumerate() {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        if index == 0 && fields.first().is_some_and(|field| field.parse::<f64>().is_err()) {
            continue;
        }
        let [at, of_size, rate] = fields[..] else {
            return Err(anyhow!(
                "line {number}: {line:?}: give step,size,requests_per_s, as 13,10K,250"
            ));
        };
        let at: usize = at.parse().ok().filter(|at| *at < MAX_STEPS).ok_or_else(|| {
            anyhow!(
                "line {number}: step {at:?}: give a whole number from 0 to {}",
                MAX_STEPS - 1
            )
        })?;
        let bytes = size(of_size).map_err(|error| anyhow!("line {number}: {error}"))?;
        let rate: f64 = rate
            .parse()
            .ok()
            .filter(|rate: &f64| rate.is_finite() && *rate >= 0.0)
            .ok_or_else(|| anyhow!("line {number}: rate {rate:?}: give requests a second, 0 or more"))?;
        steps = steps.max(at + 1);
        let of_class = cells.entry(bytes.round() as u64).or_default();
        if of_class.insert(at, rate).is_some() {
            return Err(anyhow!(
                "line {number}: step {at} of size {of_size} has a rate already: give it once"
            ));
        }
    }
    let classes = cells.into_iter().map(|(size_bytes, rates)| DemandClass {
        size_bytes: size_bytes as f64,
        rates: (0..steps)
            .map(|at| PerSecond::new(rates.get(&at).copied().unwrap_or(0.0)))
            .collect(),
    });
    Ok(Demand {
        classes: classes.collect(),
        step: Seconds::new(step.unwrap_or(3600.0)),
        notes: Vec::new(),
    })
}

/// The demand of an access log: classes up to each of these sizes and one beyond, each of the mean size of its answers.
///
/// # Errors
/// A log that cannot be read, or without sizes.
pub fn logged(file: &Path, step: f64, bounds: &[f64]) -> Result<Demand, Failure> {
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
    let mut sums = vec![(0.0, vec![0.0; steps]); bounds.len() + 1];
    let mut without = 0u64;
    for request in &log.requests {
        let Some(bytes) = request.bytes.filter(|bytes| *bytes > 0) else {
            without += 1;
            continue;
        };
        let bytes = bytes as f64;
        let (all, counts) = &mut sums[bounds.partition_point(|bound| *bound < bytes)];
        *all += bytes;
        counts[((f64::from(request.second) / step) as usize).min(steps - 1)] += 1.0;
    }
    let mut notes = Vec::new();
    if without > 0 {
        notes.push(format!(
            "{without} of {} requests have no size in the log, and are left out",
            log.requests.len()
        ));
    }
    if log.bad > 0 {
        notes.push(format!("{} lines of the log are no requests", log.bad));
    }
    let classes = sums.into_iter().filter_map(|(bytes, counts)| {
        let all: f64 = counts.iter().sum();
        (all > 0.0).then(|| DemandClass {
            size_bytes: bytes / all,
            rates: counts
                .into_iter()
                .map(|count| PerSecond::new(count / step))
                .collect(),
        })
    });
    let demand = Demand {
        classes: classes.collect(),
        step: Seconds::new(step),
        notes,
    };
    if demand.classes.is_empty() {
        return Err(wrong(
            "no request has a size: log the bytes of answers, as the common log format does".to_owned(),
        ));
    }
    checked(demand).map_err(|error| wrong(error.to_string()))
}

pub(super) fn checked(mut demand: Demand) -> Result<Demand, anyhow::Error> {
    demand
        .classes
        .sort_by(|one, two| one.size_bytes.total_cmp(&two.size_bytes));
    let count = demand.classes.len();
    if !(1..=MAX_CLASSES).contains(&count) {
        return Err(anyhow!("{count} sizes: give 1 to {MAX_CLASSES}"));
    }
    let steps = demand.classes[0].rates.len();
    if !(1..=MAX_STEPS).contains(&steps) {
        return Err(anyhow!("{steps} steps: give 1 to {MAX_STEPS}"));
    }
    if !(demand.step > Seconds::ZERO && demand.step.is_finite()) {
        return Err(anyhow!(
            "step_s is {}: give more than 0 seconds",
            demand.step.get()
        ));
    }
    for class in &demand.classes {
        if class.rates.len() != steps {
            let (name, given) = (class.name(), class.rates.len());
            return Err(anyhow!(
                "{name} has {given} rates, and {} has {steps}: give as many of each",
                demand.classes[0].name()
            ));
        }
        if let Some(rate) = class
            .rates
            .iter()
            .find(|rate| !(rate.get() >= 0.0 && rate.is_finite()))
        {
            return Err(anyhow!(
                "{}: rate {}: give requests a second, 0 or more",
                class.name(),
                rate.get()
            ));
        }
    }
    Ok(demand)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let lines = "step,size,requests_per_s\n# night\n0,1K,100\n1, 1024, 50\n1,100K,5.5\n";
        let table = "step_s = 600\n[[class]]\nsize = \"1K\"\nrates_per_s = [100, 50]\n[[class]]\nsize = 102400\nrates_per_s = [0, 5.5]\n";
        let one = csv(lines, Some(600.0)).and_then(checked).unwrap();
        assert_eq!(one, toml(table, None).and_then(checked).unwrap());
        assert_eq!(
            one.classes.iter().map(DemandClass::name).collect::<Vec<_>>(),
            ["1 KB", "100 KB"]
        );
    }

    #[test]
    fn a_mistake_is_named_with_its_line_and_value() {
        let error = |lines: &str| csv(lines, None).and_then(checked).unwrap_err().to_string();
        assert!(error("0,1K,100\n0,1K,200\n").contains("line 2: step 0 of size 1K"));
        assert!(error("0,1K,100\n-1,1K,200\n").contains("line 2: step \"-1\""));
        assert!(error("0,1X,100\n").contains("\"1X\" is no size"));
        assert!(error("0,1K,nan\n").contains("rate \"nan\""));
        assert!(error("0,1K\n").contains("13,10K,250"));
        assert!(error("").contains("0 sizes"));
        let uneven = "[[class]]\nsize = 1\nrates_per_s = [1, 2]\n[[class]]\nsize = 2\nrates_per_s = [1]\n";
        assert!(
            toml(uneven, None)
                .and_then(checked)
                .unwrap_err()
                .to_string()
                .contains("1 rates")
        );
    }

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
        let demand = logged(&file, 60.0, &[1024.0, 102_400.0]).unwrap();
        let sizes: Vec<f64> = demand.classes.iter().map(|class| class.size_bytes).collect();
        assert_eq!(sizes, [750.0, 1500.0, 300_000.0]);
        let per_minute = |class: usize| {
            demand.classes[class]
                .rates
                .iter()
                .map(|rate| (rate.get() * 60.0).round())
                .collect::<Vec<_>>()
        };
        assert_eq!((per_minute(0), per_minute(2)), (vec![1.0, 1.0], vec![0.0, 1.0]));
        assert!(demand.notes[0].contains("1 of 5 requests have no size"));
    }
}
