//! A configuration file's text, and errors that name its lines.

use crate::{ConfigErrors, Mistakes};
use serde::de::DeserializeOwned;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// A mistake in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {}", file.display(), line.map(|l| format!(":{l}")).unwrap_or_default(), shown(message))]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1, where the mistake belongs to one.
    pub line: Option<usize>,
    /// What is wrong with which value, and what to do.
    pub message: String,
}

impl ConfigError {
    /// The key that it is about, where it is about one.
    pub fn key(&self) -> Option<&str> {
        let (key, _) = self.message.split_once(": ")?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-[]".contains(c);
        // A table's name in brackets is no key.
        let is_key = key.chars().all(plain) && !key.is_empty() && !key.starts_with('[');
        is_key.then_some(key)
    }
}

/// A message for a terminal, of which nothing that the file holds is a command.
fn shown(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    for char in message.chars() {
        match char.is_control() && char != '\n' {
            true => text.extend(char.escape_default()),
            false => text.push(char),
        }
    }
    text
}

/// The most bytes of a file, and the most characters of a line of it that a message quotes.
const MOST_BYTES: u64 = 4 * 1024 * 1024;
const QUOTED: usize = 160;

/// The file's text, to find the line of a key in.
#[derive(Clone)]
pub struct Document {
    file: PathBuf,
    text: String,
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // All but the text, in which a password may stand.
        f.debug_struct("Document")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl Document {
    /// The file that it was read from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Reads a file of `headroom COMMAND`.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn read(file: &Path, command: &str) -> Result<Self, ConfigError> {
        let text = Self::read_text(file).map_err(|error| ConfigError {
            file: file.to_owned(),
            line: None,
            message: format!(
                "cannot be read: {error}. `headroom {command} --example` prints one to start from"
            ),
        })?;
        Ok(Self {
            file: file.to_owned(),
            text,
        })
    }

    /// What is endless or far too long is not read on.
    fn read_text(file: &Path) -> io::Result<String> {
        let mut text = String::new();
        File::open(file)?.take(MOST_BYTES + 1).read_to_string(&mut text)?;
        match text.len() as u64 > MOST_BYTES {
            true => Err(io::Error::other(
                "it has more than 4 MiB, which is no configuration",
            )),
            false => Ok(text),
        }
    }

    /// A text that ships with the program, under the name that errors give it.
    pub fn shipped(name: &str, text: &str) -> Self {
        Self {
            file: name.into(),
            text: text.to_owned(),
        }
    }

    /// Understands the text as the configuration of `headroom COMMAND`.
    ///
    /// # Errors
    /// A text that is no TOML; else every unknown key and every value of the wrong kind, with its line.
    pub fn parse<T: DeserializeOwned>(&self, command: &str) -> Result<T, ConfigErrors> {
        self.parse_checked(command, |_, _| {})
    }

    /// Refuses numbers outside their range, each with its key, its least and its most.
    ///
    /// # Errors
    /// All that are outside, with their lines.
    pub fn within(&self, numbers: &[(&str, f64, f64, f64)]) -> Result<(), ConfigErrors> {
        let mut mistakes = Mistakes::default();
        for (key, value, least, most) in numbers {
            if !(*least..=*most).contains(value) {
                let why = format!("is {value:?}: it must be between {least:?} and {most:?}");
                mistakes.push(self.error(key, why));
            }
        }
        mistakes.done()
    }

    /// Whether a key is written in a table, whose name may have dots (`gateway.batch`).
    pub fn has(&self, table: &str, key: &str) -> bool {
        let Ok(root) = DeTable::parse(&self.text) else {
            return false;
        };
        let mut here = root.get_ref();
        for part in table.split('.') {
            let inner = here.iter().find(|(name, _)| name.get_ref().as_ref() == part);
            match inner.map(|(_, value)| value.get_ref()) {
                Some(DeValue::Table(inner)) => here = inner,
                _ => return false,
            }
        }
        here.iter().any(|(name, _)| name.get_ref().as_ref() == key)
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// An error at a key (`slo.percentile`, `levels[1]` or `levels.1`), or at the nearest table around it where the key is not written.
    pub fn error(&self, key: &str, why: impl fmt::Display) -> ConfigError {
        ConfigError {
            file: self.file.clone(),
            line: self.find(key),
            message: format!("{key}: {why}"),
        }
    }

    fn find(&self, key: &str) -> Option<usize> {
        let root = DeTable::parse(&self.text).ok()?;
        // An entry of a list is found as a table's key is.
        let key = key.replace('[', ".").replace(']', "");
        let mut parts = key.split('.');
        let first = parts.next()?;
        let (name, value) = root
            .get_ref()
            .iter()
            .find(|(name, _)| name.get_ref().as_ref() == first)?;
        let mut line = self.line_of(&name.span());
        let mut value = value.get_ref();
        for part in parts {
            value = match value {
                DeValue::Table(inner) => {
                    let Some((name, value)) = inner.iter().find(|(name, _)| name.get_ref().as_ref() == part)
                    else {
                        break;
                    };
                    line = self.line_of(&name.span());
                    value.get_ref()
                }
                // An entry of a list, counted from 0.
                DeValue::Array(entries) => {
                    let Some(entry) = part.parse().ok().and_then(|at: usize| entries.get(at)) else {
                        break;
                    };
                    line = self.line_of(&entry.span());
                    entry.get_ref()
                }
                _ => break,
            };
        }
        Some(line)
    }

    pub(crate) fn line_of(&self, span: &Range<usize>) -> usize {
        self.text
            .bytes()
            .take(span.start)
            .filter(|byte| *byte == b'\n')
            .count()
            + 1
    }

    /// The line that a span begins in, to show beside the message.
    pub(crate) fn quote(&self, span: &Range<usize>) -> String {
        let line = self
            .text
            .lines()
            .nth(self.line_of(span) - 1)
            .unwrap_or_default()
            .trim();
        match line.char_indices().nth(QUOTED) {
            Some((end, _)) => format!(", in `{}...`", &line[..end]),
            None if line.is_empty() => String::new(),
            None => format!(", in `{line}`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn an_entry_of_a_list_is_on_its_own_line() {
        let document = Document::shipped(
            "m.toml",
            "[law]\n\n[law.dvfs]\n# a\nlevels = [\n  1.0,\n  9.0,\n]\none = [3]\n",
        );
        for (key, line) in [
            ("law.dvfs.levels[1]", 7),
            ("law.dvfs.levels.0", 6),
            ("law.dvfs.levels[7]", 5),
            ("law.dvfs.one[0]", 9),
            ("law.dvfs.none[0]", 3),
        ] {
            let error = document.error(key, "is 9").to_string();
            assert_eq!(error, format!("m.toml:{line}: {key}: is 9"));
        }
        assert!(document.has("law.dvfs", "one") && document.has("law", "dvfs"));
        assert!(
            !document.has("law.dvfs", "law")
                && !document.has("law.dvfs.one", "one")
                && !document.has("no", "one")
        );
    }

    #[test]
    fn nothing_of_a_file_is_a_command_to_the_terminal_and_none_is_read_without_end() {
        let document = Document::shipped("a.toml", &format!("a = \"\u{1b}[2J{}\"", "x".repeat(1_000)));
        let error = document.error("a", document.quote(&(0..1))).to_string();
        assert!(
            !error.contains('\u{1b}') && error.contains("\\u{1b}[2J"),
            "{error}"
        );
        assert!(error.len() < 300 && error.ends_with("...`"), "{error}");
        let error = Document::read(Path::new("/dev/zero"), "up")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("/dev/zero: cannot be read: it has more than 4 MiB"),
            "{error}"
        );
    }
}
