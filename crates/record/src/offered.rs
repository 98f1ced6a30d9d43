//! What a load generator was told to send, so that a colleague can send it again, and whose figures stand beside it.
//!
//! A run on live traffic cannot know it: the generator is another program, often on another machine. It says it itself
//! ([`OfferedLoad`] is the first key of its JSON), and a report shows both together.

use crate::error::Error;
use crate::provenance::Provenance;
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
}

/// What is read of a generator's JSON.
#[derive(Deserialize)]
struct File {
    offered_load: OfferedLoad,
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
        Ok(file.offered_load)
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
        let fingerprint = of.load.iter();
        let fingerprint = fingerprint.map(|hash| ("load fingerprint", format!("SHA-256 {hash}")));
        lines.into_iter().chain(fingerprint).collect()
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
            origin: Provenance::of_this_process("0.1.0", None).with_load(Some("ab".to_owned())),
            what: "up to 3 users".to_owned(),
            parameters: [("seed".to_owned(), json!(7)), ("files".to_owned(), Value::Null)]
                .into_iter()
                .collect(),
        };
        fs::write(
            &file,
            json!({ "offered_load": offered, "url": "http://a/" }).to_string(),
        )
        .unwrap();
        let read = OfferedLoad::read(&file).unwrap();
        assert_eq!(read, offered);
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
