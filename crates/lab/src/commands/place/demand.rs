//! What comes in over the day: requests of each class of sizes, step by step, from a file or an access log.

mod csv;
mod logged;
mod peak;

use anyhow::{Context, anyhow};
use headroom_console::Failure;
use headroom_console::args::content_bytes;
use headroom_control::placement::advisor::{MAX_CLASSES, MAX_STEPS};
use headroom_record::profile::size_text;
use headroom_units::{PerSecond, Ratio, Seconds};
use serde::Deserialize;
use std::fs;
use std::io::Read;
use std::path::Path;
use toml::Spanned;

pub use logged::logged;
pub use peak::{Peaks, Windows};

/// No class of a step may have a higher rate, requests a second: a thousand times what the largest services have.
pub const MAX_RATE: f64 = 1e9;

/// The largest file of a demand, bytes.
const MAX_BYTES: u64 = 16 << 20;

/// A class of which the size that nearly all are within is more than so many times its mean is one of mixed sizes.
const MIXED: f64 = 2.0;

/// A demand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// The length of a step.
    pub step: Seconds,
    /// The classes, the smallest first.
    pub classes: Vec<DemandClass>,
    /// By how much the load of each step was measured to rise above its mean; `None` where that was not measured, and empty where of no step
    /// it was.
    pub peaks: Vec<Option<Ratio>>,
    /// What a reader must know.
    pub notes: Vec<String>,
}

/// A class of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct DemandClass {
    /// Content of an answer, bytes: the mean, where they are not all alike.
    pub size_bytes: f64,
    /// The size that the class must be in time with: no smaller than as many of its answers as the SLO's percentile says; the mean where no
    /// single answer is known.
    pub late_bytes: f64,
    /// Arrivals in each step.
    pub rates: Vec<PerSecond>,
}

impl DemandClass {
    /// Its name in tables: its mean size, and how large nearly all are where that is far from it.
    pub fn name(&self) -> String {
        let [mean, late] = [self.size_bytes, self.late_bytes].map(|bytes| size_text(bytes.round() as u64));
        match self.late_bytes > MIXED * self.size_bytes {
            true => format!("{mean} (to {late})"),
            false => mean,
        }
    }
}

/// A rate as a number, or why it is none.
fn is_rate(rate: f64) -> Result<PerSecond, String> {
    match (0.0..=MAX_RATE).contains(&rate) {
        true => Ok(PerSecond::new(rate)),
        false => Err(format!("give requests a second, 0 to {MAX_RATE:e}")),
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
    size: Spanned<Text>,
    rates_per_s: Vec<Spanned<f64>>,
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
        // A device or a pipe has no length, and may have no end.
        let mut text = String::new();
        fs::File::open(file)?
            .take(MAX_BYTES + 1)
            .read_to_string(&mut text)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(std::io::Error::other(format!(
                "it has more than {MAX_BYTES} bytes, which are read at most"
            )));
        }
        Ok(text)
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
        csv::csv(&text, step)
    };
    parsed
        .and_then(checked)
        .map_err(|error| Failure::Usage(error.context(format!("{}", file.display()))))
}

fn toml(text: &str, step: Option<f64>) -> Result<Demand, anyhow::Error> {
    let file: File = toml::from_str(text)?;
    let line = |at: usize| text[..at].matches('\n').count() + 1;
    let classes = file.class.into_iter().map(|class| {
        let size_bytes = match class.size.get_ref() {
            Text::Number(bytes) => content_bytes(&bytes.to_string()),
            Text::Text(text) => content_bytes(text),
        };
        let at = line(class.size.span().start);
        let size_bytes = size_bytes.map_err(|error| anyhow!("line {at}: {error}"))?;
        let rates = class.rates_per_s.into_iter().map(|rate| {
            let of = |error| {
                anyhow!(
                    "line {}: rate {}: {error}",
                    line(rate.span().start),
                    rate.get_ref()
                )
            };
            is_rate(*rate.get_ref()).map_err(of)
        });
        Ok(DemandClass {
            size_bytes,
            late_bytes: size_bytes,
            rates: rates.collect::<Result<_, anyhow::Error>>()?,
        })
    });
    Ok(Demand {
        classes: classes.collect::<Result<_, anyhow::Error>>()?,
        step: Seconds::new(step.or(file.step_s).unwrap_or(3600.0)),
        ..Demand::default()
    })
}

pub(super) fn checked(mut demand: Demand) -> Result<Demand, anyhow::Error> {
    demand
        .classes
        .sort_by(|one, two| one.size_bytes.total_cmp(&two.size_bytes));
    let count = demand.classes.len();
    if count == 0 {
        return Err(anyhow!(
            "it holds no demand: give lines of a step, a size and requests a second, as in `headroom place --help`"
        ));
    }
    if count > MAX_CLASSES {
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
        for rate in &class.rates {
            is_rate(rate.get()).map_err(|error| anyhow!("{}: rate {}: {error}", class.name(), rate.get()))?;
        }
    }
    Ok(demand)
}

#[cfg(test)]
mod tests {
    use super::csv::csv;
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let lines = "step,size,requests_per_s\n# night\n0,1K,100\n1, 1024, 50\n0,100K,0\n1,100K,5.5\n";
        let table = "step_s = 600\n[[class]]\nsize = \"1K\"\nrates_per_s = [100, 50]\n[[class]]\nsize = 102400\nrates_per_s = [0, 5.5]\n";
        let one = csv(lines, Some(600.0)).and_then(checked).unwrap();
        assert_eq!(one, toml(table, None).and_then(checked).unwrap());
        assert_eq!(
            one.classes.iter().map(DemandClass::name).collect::<Vec<_>>(),
            ["1 KB", "100 KB"]
        );
    }

    #[test]
    fn a_file_without_end_is_not_read_for_ever() {
        let error = read(Path::new("/dev/zero"), None).unwrap_err().to_string();
        assert!(
            error.contains("/dev/zero") && error.contains("has more than"),
            "{error}"
        );
    }

    #[test]
    fn a_mistake_in_a_table_is_named_with_its_line_and_value() {
        let error = |text: &str| toml(text, None).and_then(checked).unwrap_err().to_string();
        let of_rates = |rates: &str| error(&format!("[[class]]\nsize = 1\nrates_per_s = [\n1,\n{rates}]\n"));
        for (rate, shown) in [
            ("-3", "-3"),
            ("nan", "NaN"),
            ("1e308", "100"),
            ("inf", "inf"),
            ("1e10", "10000000000"),
        ] {
            let why = of_rates(rate);
            assert!(
                why.starts_with(&format!("line 5: rate {shown}")) && why.ends_with("0 to 1e9"),
                "{why}"
            );
        }
        assert!(
            error("[[class]]\nsize = \"1X\"\nrates_per_s = [1]\n").starts_with("line 2: \"1X\" is no size")
        );
        let uneven = "[[class]]\nsize = 1\nrates_per_s = [1, 2]\n[[class]]\nsize = 2\nrates_per_s = [1]\n";
        assert!(error(uneven).contains("1 rates"));
    }
}
