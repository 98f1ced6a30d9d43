//! What a load generator was told to send, so that a colleague can send it again, and whose figures stand beside it.
//!
//! A run on live traffic cannot know it: the generator is another program, often on another machine. It says it itself
//! ([`OfferedLoad`] is the first key of its JSON), and a report shows both together.

use crate::archive::RunInfo;
use crate::clock::{unix_ms, utc_ms, utc_text};
use crate::error::Error;
use crate::provenance::{Provenance, sha256};
use crate::text::number_or_none;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fs;
use std::path::Path;

/// Bytes of a generator's JSON that are read at most.
const MAX_BYTES: u64 = 1 << 20;

/// All that repeats a load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OfferedLoad {
    /// The generator: its command line, version, commit, machine and when it began; its `load` is the fingerprint of what it sent.
    #[serde(flatten)]
    pub origin: Provenance,
    /// What is sent, in words.
    pub what: String,
    /// Each parameter that has a say in what is sent, by name, also where it is a default: seed, duration, curve or trace, ...
    pub parameters: Map<String, Value>,
    /// Each file that it was made of; empty where there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<LoadFile>,
    /// What came of it, as the clients saw it; `None` where it is not over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results: Option<LoadResults>,
    /// Why it is not certain that the run which it stands beside served it; `None` where nothing says so. It then decides nothing
    /// about a comparison.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
}

/// A file that a load was made of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadFile {
    /// The option that named it: `trace`, `paths`, `replay`, `users`.
    pub option: String,
    /// Its name, as it was given.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// The SHA-256 of its bytes, in hexadecimal digits, as `sha256sum` prints it.
    pub sha256: String,
    /// What is in it, where that is text of at most [`LoadFile::MAX_CONTENTS`] bytes; `None` else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<String>,
}

impl LoadFile {
    /// Bytes of a file whose contents are kept with its name, at most.
    pub const MAX_CONTENTS: usize = 64 << 10;

    /// One of these bytes.
    pub fn new(option: &str, name: &Path, bytes: &[u8]) -> Self {
        let text = std::str::from_utf8(bytes).ok();
        Self {
            option: option.to_owned(),
            name: name.display().to_string(),
            bytes: bytes.len() as u64,
            sha256: sha256(bytes),
            contents: text
                .filter(|text| text.len() <= Self::MAX_CONTENTS)
                .map(str::to_owned),
        }
    }
}

/// What came of a load at its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadResults {
    /// How long it took.
    pub duration_s: f64,
    /// Mean latency from the intended send time, in milliseconds; `None` where nothing was answered, or a file of an earlier version does not
    /// say it.
    #[serde(default)]
    pub mean_ms: Option<f64>,
    /// Latency P95 from the intended send time, in milliseconds; `None` where nothing was answered.
    pub p95_ms: Option<f64>,
    /// Requests that failed.
    pub failed: u64,
    /// Of these, those that were not answered in time.
    pub timeouts: u64,
    /// Of these, those that were answered with another page than was asked for.
    pub wrong_pages: u64,
    /// Connections of which the first packet had to be sent again.
    pub connects_retried: u64,
}

/// What is read of a generator's JSON.
#[derive(Deserialize)]
struct File {
    offered_load: OfferedLoad,
    #[serde(flatten)]
    result: Option<FileResult>,
}

/// What a generator's JSON says of its result.
#[derive(Deserialize)]
struct FileResult {
    duration_s: f64,
    failed_total: u64,
    failed: FileFailures,
    connects_retried: u64,
    latency_ms: FileLatency,
}

#[derive(Deserialize)]
struct FileFailures {
    timeout: u64,
    #[serde(default)]
    wrong: u64,
}

#[derive(Deserialize)]
struct FileLatency {
    #[serde(default)]
    mean: Option<f64>,
    p95: Option<f64>,
}

impl From<FileResult> for LoadResults {
    fn from(of: FileResult) -> Self {
        Self {
            duration_s: of.duration_s,
            mean_ms: of.latency_ms.mean,
            p95_ms: of.latency_ms.p95,
            failed: of.failed_total,
            timeouts: of.failed.timeout,
            wrong_pages: of.failed.wrong,
            connects_retried: of.connects_retried,
        }
    }
}

impl OfferedLoad {
    /// That of a file which holds what `headroom load --json` printed.
    ///
    /// # Errors
    /// A file that cannot be read, or is none of these.
    pub fn read(file: &Path) -> Result<Self, Error> {
        let wrong = |why: String| Error::NoLoad {
            file: file.to_owned(),
            why,
        };
        let about = fs::metadata(file).map_err(|error| wrong(error.to_string()))?;
        if about.len() > MAX_BYTES {
            return Err(wrong(format!("it is larger than {MAX_BYTES} bytes")));
        }
        let text = fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
        let file: File = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let mut load = file.offered_load;
        load.results = file.result.map(LoadResults::from).or(load.results);
        Ok(load)
    }

    /// Whether a run can have served it, by when it was sent.
    ///
    /// # Errors
    /// It was over before the run began, or began after the run had ended, or does not say when: both times, in words.
    pub fn can_be_of(&self, run: &RunInfo) -> Result<(), String> {
        let Some(begin) = utc_ms(&self.origin.date) else {
            return Err(format!(
                "it does not say when it was sent (`date` is {:?}): whether run {} served it cannot be known",
                self.origin.date, run.id
            ));
        };
        let planned = || self.parameters.get("length_s").and_then(Value::as_f64);
        let length_s = self.results.map(|results| results.duration_s).or_else(planned);
        // A date has no parts of a second: it began within the second that it names.
        let end = begin.saturating_add(1_000 + (length_s.unwrap_or(0.0) * 1e3) as i64);
        let ran = (
            unix_ms(run.meta.started_at),
            unix_ms(run.ended_at.unwrap_or(run.updated_at)),
        );
        if begin <= ran.1 && end >= ran.0 {
            return Ok(());
        }
        Err(format!(
            "it was sent from {} to {}, and run {} was from {} to {}: the run cannot have served it. Loads are given in the order of the \
             runs",
            utc_text(begin),
            utc_text(end),
            run.id,
            utc_text(ran.0),
            utc_text(ran.1)
        ))
    }

    /// It, each part with its name, for a page.
    pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
        let given = self.parameters.iter().filter(|(_, value)| !value.is_null());
        let given: Vec<String> = given
            .map(|(name, value)| match value {
                Value::String(text) => format!("{name} {text}"),
                value => format!("{name} {value}"),
            })
            .collect();
        let of = &self.origin;
        let lines = [
            ("load", self.what.clone()),
            ("load command", of.command.clone()),
            ("load parameters", given.join(", ")),
            ("load program", of.program()),
            ("load began", format!("{}, on {}", of.date, of.host)),
        ];
        let results = self.results.iter().map(|of| {
            let p95 = number_or_none(of.p95_ms, 1);
            let (failed, late, wrong, retried) = (of.failed, of.timeouts, of.wrong_pages, of.connects_retried);
            let text = format!(
                "P95 {p95} ms at the client; {failed} failed, of which {late} not in time and {wrong} another page; {retried} connects retried"
            );
            ("load results", text)
        });
        let lines = lines.into_iter().chain(results);
        let fingerprint = of.load.iter();
        let fingerprint = fingerprint.map(|hash| ("load fingerprint", format!("SHA-256 {hash}")));
        let files = self.files.iter().map(|file| {
            let kept = match file.contents {
                Some(_) => ", its contents are in the load's JSON",
                None => "",
            };
            let (bytes, hash) = (file.bytes, &file.sha256);
            (
                "load file",
                format!(
                    "--{} {}: {bytes} bytes, SHA-256 {hash}{kept}",
                    file.option, file.name
                ),
            )
        });
        lines.chain(fingerprint).chain(files).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_generator_says_is_read_back_and_another_file_is_refused_with_what_to_give() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("load.json");
        let offered = OfferedLoad {
            origin: Provenance::of_this_process("0.1.0").with_load(Some("ab".to_owned())),
            what: "up to 3 users".to_owned(),
            parameters: [("seed".to_owned(), json!(7)), ("files".to_owned(), Value::Null)]
                .into_iter()
                .collect(),
            files: vec![LoadFile::new("trace", Path::new("day.txt"), b"abc")],
            ..OfferedLoad::default()
        };
        fs::write(
            &file,
            json!({ "offered_load": offered, "url": "http://a/" }).to_string(),
        )
        .unwrap();
        let read = OfferedLoad::read(&file).unwrap();
        assert_eq!(read, offered);
        // As `printf abc | sha256sum` prints it.
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!((read.files[0].bytes, read.files[0].sha256.as_str()), (3, hash));
        assert_eq!(read.files[0].contents.as_deref(), Some("abc"));
        let long = vec![b'1'; LoadFile::MAX_CONTENTS + 1];
        assert_eq!(LoadFile::new("trace", Path::new("long"), &long).contents, None);
        let lines = read.lines();
        assert!(lines.contains(&("load", "up to 3 users".to_owned())));
        assert!(lines.contains(&("load parameters", "seed 7".to_owned())));
        assert!(lines.contains(&("load fingerprint", "SHA-256 ab".to_owned())));
        fs::write(&file, "{}").unwrap();
        let error = OfferedLoad::read(&file).unwrap_err().to_string();
        assert!(
            error.contains("load.json") && error.contains("headroom load --json"),
            "{error}"
        );
        assert!(OfferedLoad::read(&dir.path().join("none.json")).is_err());
    }
}
