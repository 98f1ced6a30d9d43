//! A trace: the request rate of a service over time, as a step function.
//!
//! The file format is the one of the published traces: one value a line, requests per second, each held for the
//! trace's step. The format does not carry the step; whoever reads the file gives it (10 s in the SLO-Power
//! authors' traces). Blank lines are skipped, `#` starts a comment, CRLF is accepted.
//!
//! ```
//! use headroom_units::{PerSecond, Seconds};
//! use headroom_workload::Trace;
//!
//! let trace = Trace::parse("day.txt", "60\n120 # noon\n90\n", Seconds::new(10.0))?;
//! assert_eq!(trace.mean(), PerSecond::new(90.0));
//! let small = trace.scaled_to_peak(PerSecond::new(12.0))?;
//! assert_eq!(small.rate_at(Seconds::new(25.0)), PerSecond::new(9.0));
//! # Ok::<(), headroom_workload::TraceError>(())
//! ```

use headroom_units::{PerSecond, Seconds};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The most values a trace may hold: at one value a second, 115 days.
pub const MAX_VALUES: usize = 10_000_000;

/// The largest rate a value may state, requests per second. Beyond what any one service answers, so a larger
/// value is a mistake of unit.
pub const MAX_RATE: f64 = 1e9;

/// The largest file that is read, bytes: [`MAX_VALUES`] of 25 characters.
const MAX_BYTES: u64 = 256 << 20;

/// The most characters of an offending value that an error repeats.
const MAX_SHOWN: usize = 40;

/// What is wrong with a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be read.
    #[error("{file}: cannot read the trace: {error}; name a readable file with one number a line")]
    Unreadable {
        /// The file.
        file: String,
        /// What the system answered.
        error: std::io::Error,
    },
    /// The file is larger than any trace may be.
    #[error(
        "{file}: larger than {MAX_BYTES} bytes, which no trace of {MAX_VALUES} values needs; cut it or choose a longer step"
    )]
    TooLarge {
        /// The file.
        file: String,
    },
    /// A line holds something other than one non-negative number.
    #[error(
        "{file}:{line}: `{value}` is {problem}; write one non-negative number a line, requests per second (`#` starts a comment)"
    )]
    BadValue {
        /// The file.
        file: String,
        /// Its line, from 1.
        line: usize,
        /// What stands there.
        value: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The file holds no value.
    #[error("{file}: no value in it; write one non-negative number a line, requests per second")]
    Empty {
        /// The file.
        file: String,
    },
    /// More values than [`MAX_VALUES`].
    #[error("{name}: {count} values, more than {MAX_VALUES}; cut the trace or choose a longer step")]
    TooManyValues {
        /// The trace or the file.
        name: String,
        /// How many there would be.
        count: usize,
    },
    /// The step is not a positive length of time.
    #[error("{name}: a step of {step} s; the step must be a positive, finite number of seconds")]
    BadStep {
        /// The trace.
        name: String,
        /// The step given, seconds.
        step: f64,
    },
    /// A value of a trace made in a program is not a rate.
    #[error(
        "{name}: value {index} is {value}; each must be a finite number from 0 to {MAX_RATE} requests per second"
    )]
    BadRate {
        /// The trace.
        name: String,
        /// The value's index, from 0.
        index: usize,
        /// The value.
        value: f64,
    },
    /// The trace cannot be scaled as asked.
    #[error("{name}: cannot be scaled {asked}; {remedy}")]
    BadScale {
        /// The trace.
        name: String,
        /// What was asked.
        asked: String,
        /// What to do instead.
        remedy: &'static str,
    },
    /// A slice lies outside the trace.
    #[error(
        "{name}: no part from {from} s to {to} s: the trace lasts {duration} s; choose 0 <= from < to <= duration"
    )]
    BadSlice {
        /// The trace.
        name: String,
        /// Where the slice was to start, seconds.
        from: f64,
        /// Where it was to end, seconds.
        to: f64,
        /// How long the trace lasts, seconds.
        duration: f64,
    },
}

/// A request rate over time: value `i` is held from `i * step` to `(i + 1) * step`.
///
/// Every trace has at least one value and at most [`MAX_VALUES`], each finite and in `[0, MAX_RATE]`, and a
/// positive step: the constructors refuse anything else.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    name: String,
    step: Seconds,
    rates: Vec<PerSecond>,
}

impl Trace {
    /// A trace from its values.
    ///
    /// # Errors
    /// [`TraceError`] where the step is not positive, there is no value or too many, or a value is not a rate.
    pub fn new(name: impl Into<String>, step: Seconds, rates: Vec<PerSecond>) -> Result<Self, TraceError> {
        let name = name.into();
        if !(step.get() > 0.0 && step.is_finite()) {
            return Err(TraceError::BadStep {
                name,
                step: step.get(),
            });
        }
        if rates.is_empty() {
            return Err(TraceError::Empty { file: name });
        }
        if rates.len() > MAX_VALUES {
            return Err(TraceError::TooManyValues {
                name,
                count: rates.len(),
            });
        }
        if let Some(index) = rates
            .iter()
            .position(|rate| !(0.0..=MAX_RATE).contains(&rate.get()))
        {
            return Err(TraceError::BadRate {
                name,
                index,
                value: rates[index].get(),
            });
        }
        Ok(Self { name, step, rates })
    }

    /// A trace from values that were checked elsewhere, or one that never ends: for arrival processes alone.
    pub(crate) fn of_checked(step: Seconds, rates: Vec<PerSecond>) -> Self {
        let name = "series".to_owned();
        Self { name, step, rates }
    }

    /// One rate, held for a time.
    ///
    /// # Errors
    /// [`TraceError`] where the rate is not one or the duration is not positive.
    pub fn constant(rate: PerSecond, duration: Seconds) -> Result<Self, TraceError> {
        Self::new("constant", duration, vec![rate])
    }

    /// Reads a trace from a file of one value a line; its name is the file's without its directory and extension.
    ///
    /// # Errors
    /// [`TraceError`], naming the file and, for a bad value, its line.
    pub fn from_file(path: impl AsRef<Path>, step: Seconds) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let file = path.display().to_string();
        let unreadable = |error| TraceError::Unreadable {
            file: file.clone(),
            error,
        };
        let mut bytes = Vec::new();
        // One byte beyond the limit tells a file that is too large from one that just fits.
        File::open(path)
            .map_err(unreadable)?
            .take(MAX_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(unreadable)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(TraceError::TooLarge { file });
        }
        let name = path
            .file_stem()
            .map_or_else(|| file.clone(), |stem| stem.to_string_lossy().into_owned());
        Ok(Self {
            name,
            ..Self::parse_bytes(&file, &bytes, step)?
        })
    }

    /// Reads a trace from text; `file` is the name that errors show, and the trace's.
    ///
    /// # Errors
    /// [`TraceError`], naming the file and, for a bad value, its line.
    pub fn parse(file: &str, text: &str, step: Seconds) -> Result<Self, TraceError> {
        Self::parse_bytes(file, text.as_bytes(), step)
    }

    /// As [`Trace::parse`], for bytes that may not be UTF-8.
    ///
    /// # Errors
    /// [`TraceError`], naming the file and, for a bad value, its line.
    pub fn parse_bytes(file: &str, bytes: &[u8], step: Seconds) -> Result<Self, TraceError> {
        let mut rates = Vec::new();
        for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            let line = String::from_utf8_lossy(line);
            // A byte order mark is what some editors put before the first line.
            let line = if index == 0 {
                line.trim_start_matches('\u{feff}')
            } else {
                &line
            };
            let value = line.split('#').next().unwrap_or_default().trim();
            if value.is_empty() {
                continue;
            }
            if rates.len() == MAX_VALUES {
                return Err(TraceError::TooManyValues {
                    name: file.into(),
                    count: MAX_VALUES + 1,
                });
            }
            match parse_rate(value) {
                Ok(rate) => rates.push(rate),
                Err(problem) => {
                    let shown = value
                        .chars()
                        .take(MAX_SHOWN)
                        .flat_map(char::escape_debug)
                        .collect();
                    return Err(TraceError::BadValue {
                        file: file.into(),
                        line: index + 1,
                        value: shown,
                        problem,
                    });
                }
            }
        }
        Self::new(file, step, rates)
    }

    /// The trace's name, for reports and the run summary.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same trace under another name.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How long each value is held.
    pub fn step(&self) -> Seconds {
        self.step
    }

    /// The values.
    pub fn rates(&self) -> &[PerSecond] {
        &self.rates
    }

    /// How long the whole trace lasts.
    pub fn duration(&self) -> Seconds {
        self.step * self.rates.len() as f64
    }

    /// The rate at a time from the trace's start; zero before it and from its end on.
    pub fn rate_at(&self, time: Seconds) -> PerSecond {
        let index = (time.get() / self.step.get()).floor();
        if index >= 0.0 && index < self.rates.len() as f64 {
            self.rates[index as usize]
        } else {
            PerSecond::ZERO
        }
    }

    /// The mean rate.
    pub fn mean(&self) -> PerSecond {
        self.rates.iter().copied().sum::<PerSecond>() / self.rates.len() as f64
    }

    /// The largest rate.
    pub fn peak(&self) -> PerSecond {
        self.rates.iter().copied().fold(PerSecond::ZERO, PerSecond::max)
    }

    /// The smallest rate.
    pub fn trough(&self) -> PerSecond {
        self.rates.iter().copied().fold(self.rates[0], PerSecond::min)
    }

    /// How many requests the trace asks for: the rate's integral over its duration.
    pub fn requests(&self) -> f64 {
        self.rates.iter().map(|&rate| rate * self.step).sum()
    }

    /// Every value multiplied by a factor.
    ///
    /// # Errors
    /// [`TraceError::BadScale`] where the factor is negative or not finite, or a value would leave the range.
    pub fn scaled(self, factor: f64) -> Result<Self, TraceError> {
        if !(factor >= 0.0 && factor.is_finite() && self.peak().get() * factor <= MAX_RATE) {
            return Err(TraceError::BadScale {
                name: self.name,
                asked: format!("by {factor}"),
                remedy: "give a finite, non-negative factor that keeps every value below 1e9 requests per second",
            });
        }
        Ok(Self {
            rates: self.rates.into_iter().map(|rate| rate * factor).collect(),
            ..self
        })
    }

    /// Scaled so that the largest value is this one.
    ///
    /// # Errors
    /// [`TraceError::BadScale`] where every value is zero, or the peak is not a rate.
    pub fn scaled_to_peak(self, peak: PerSecond) -> Result<Self, TraceError> {
        let found = self.peak();
        self.scaled_from_to(found, peak, "peak")
    }

    /// Scaled so that the mean of the values is this one.
    ///
    /// # Errors
    /// [`TraceError::BadScale`] where every value is zero, or the mean is not a rate.
    pub fn scaled_to_mean(self, mean: PerSecond) -> Result<Self, TraceError> {
        let found = self.mean();
        self.scaled_from_to(found, mean, "mean")
    }

    fn scaled_from_to(self, found: PerSecond, wanted: PerSecond, what: &str) -> Result<Self, TraceError> {
        if found == PerSecond::ZERO {
            return Err(TraceError::BadScale {
                name: self.name,
                asked: format!("to a {what} of {wanted}"),
                remedy: "every value in it is zero; use a trace with load in it",
            });
        }
        self.scaled(wanted / found)
    }

    /// The same values, each held for another time.
    ///
    /// # Errors
    /// [`TraceError::BadStep`] where the step is not positive.
    pub fn with_step(self, step: Seconds) -> Result<Self, TraceError> {
        if !(step.get() > 0.0 && step.is_finite()) {
            return Err(TraceError::BadStep {
                name: self.name,
                step: step.get(),
            });
        }
        Ok(Self { step, ..self })
    }

    /// The whole trace squeezed (or stretched) into a time: the values stay, the step changes.
    ///
    /// # Errors
    /// [`TraceError::BadStep`] where the time is not positive.
    pub fn compressed_to(self, duration: Seconds) -> Result<Self, TraceError> {
        let step = duration / self.rates.len() as f64;
        self.with_step(step)
    }

    /// The part from one time to another. Both are rounded to whole steps, and at least one step is kept.
    ///
    /// # Errors
    /// [`TraceError::BadSlice`] unless `0 <= from < to <= duration` (a half step beyond the end is rounded).
    pub fn slice(self, from: Seconds, to: Seconds) -> Result<Self, TraceError> {
        let first = (from.get() / self.step.get()).round();
        let last = (to.get() / self.step.get()).round().max(first + 1.0);
        if !(from.get() >= 0.0 && from < to && last <= self.rates.len() as f64) {
            return Err(TraceError::BadSlice {
                from: from.get(),
                to: to.get(),
                duration: self.duration().get(),
                name: self.name,
            });
        }
        Ok(Self {
            rates: self.rates[first as usize..last as usize].to_vec(),
            ..self
        })
    }
}

/// The file format: what [`Trace::parse`] reads back to the same values.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name: String = self
            .name
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        writeln!(
            f,
            "# {name}: requests per second, each value held for {} s",
            self.step.get()
        )?;
        self.rates
            .iter()
            .try_for_each(|rate| writeln!(f, "{}", rate.get()))
    }
}

/// One value, or what is wrong with it.
fn parse_rate(value: &str) -> Result<PerSecond, &'static str> {
    let number: f64 = value.parse().map_err(|_| "not a number")?;
    if number.is_nan() {
        Err("not a number")
    } else if number.is_infinite() {
        Err("infinite")
    } else if number < 0.0 {
        Err("negative")
    } else if number > MAX_RATE {
        Err("more than 1e9 requests per second")
    } else {
        // Minus zero compares equal to zero, and would be printed with its sign.
        Ok(PerSecond::new(number + 0.0))
    }
}

#[cfg(test)]
mod tests;
