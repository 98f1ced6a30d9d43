//! All that is wrong in a configuration, where its parts can be judged apart from one another.

use crate::{ConfigError, Document};
use std::fmt;

/// The mistakes of a configuration, one at least, by file and line. In words they are a line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    first: Vec<ConfigError>,
    /// Whether there are more.
    more: bool,
}

/// The most mistakes that are said at once.
const MOST: usize = 40;

impl ConfigErrors {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.first.iter()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.first.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))?;
        match self.more {
            true => f.write_str("\nand more, which are said once these are mended"),
            false => Ok(()),
        }
    }
}

impl std::error::Error for ConfigErrors {}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self {
            first: vec![error],
            more: false,
        }
    }
}

/// What was found to be wrong so far.
#[derive(Debug, Default)]
pub struct Mistakes {
    errors: Vec<ConfigError>,
    /// Whether there are more than are kept.
    more: bool,
    /// Keys that were not understood, of which it is said elsewhere.
    not_understood: Vec<String>,
}

impl Mistakes {
    /// For what is left of a text of which these keys were not understood.
    pub(crate) fn beside(not_understood: Vec<String>) -> Self {
        Self {
            not_understood,
            ..Self::default()
        }
    }

    /// Whether what a table or a key (`gateway.batch`) is to say is not known: it or a key in it is wrong so far or was not understood,
    /// or what was not understood beside it is perhaps it, misspelt. What follows from what it says is then no mistake of its own.
    pub fn hide(&self, table: &str, document: &Document) -> bool {
        let is_in = |key: &str, table: &str| {
            let rest = key.strip_prefix(table);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let (around, name) = table.rsplit_once('.').unwrap_or_default();
        let is_written = document.has(around, name);
        let may_be_its = |key: &String| {
            let beside = key.rsplit_once('.').map_or("", |(beside, _)| beside);
            !is_written && (beside.is_empty() || is_in(table, beside))
        };
        let mut not_understood = self.not_understood.iter();
        let mut keys = self.errors.iter().filter_map(ConfigError::key);
        not_understood.any(|key| is_in(key, table) || may_be_its(key)) || keys.any(|key| is_in(key, table))
    }

    /// Keeps what is wrong of one part; what is right of it is returned.
    pub fn of<T>(&mut self, part: Result<T, impl Into<ConfigErrors>>) -> Option<T> {
        part.map_err(|errors| {
            let errors = errors.into();
            self.more |= errors.more;
            errors.first.into_iter().for_each(|error| self.push(error));
        })
        .ok()
    }

    /// One more.
    pub fn push(&mut self, error: ConfigError) {
        match self.is_full() {
            true => self.more = true,
            false => self.errors.push(error),
        }
    }

    /// What is left was not judged.
    pub(crate) fn cut_short(&mut self) {
        self.more = true;
    }

    /// Whether no more are kept.
    pub fn is_full(&self) -> bool {
        self.errors.len() >= MOST
    }

    /// Nothing is wrong so far.
    pub fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// Leaves out those that are not kept.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&ConfigError) -> bool) {
        self.errors.retain(keep);
    }

    /// All of both.
    pub(crate) fn append(&mut self, other: Self) {
        self.more |= other.more;
        other.errors.into_iter().for_each(|error| self.push(error));
    }

    /// Whether all is well.
    ///
    /// # Errors
    /// What is wrong, in the order of the file.
    pub fn done(mut self) -> Result<(), ConfigErrors> {
        self.errors
            .sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
        // Of several the last says how to learn of every key.
        let said = self.errors.iter().rposition(|error| error.explained().is_some());
        for error in self.errors.iter_mut().take(said.unwrap_or_default()) {
            if let Some(end) = error.explained() {
                error.message.truncate(end);
            }
        }
        match self.errors.is_empty() {
            true => Ok(()),
            false => Err(ConfigErrors {
                first: self.errors,
                more: self.more,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_in_the_order_of_the_file() {
        let document = Document::shipped("m.toml", "[a]\nx = 1\ny = 2\nz = 3\n");
        let mut mistakes = Mistakes::default();
        assert_eq!(mistakes.of(Ok::<_, ConfigError>(7)), Some(7));
        assert!(mistakes.is_empty());
        mistakes.push(document.error("a.z", "no"));
        let within = document.within(&[
            ("a.x", 1.0, 2.0, 3.0),
            ("a.z", 3.0, 2.0, 3.0),
            ("a.y", 2.0, 5.0, 6.0),
        ]);
        assert_eq!(mistakes.of(within), None);
        let text = mistakes.done().unwrap_err().to_string();
        assert_eq!(
            text,
            "m.toml:2: a.x: is 1.0: it must be between 2.0 and 3.0\nm.toml:3: a.y: is 2.0: it must be between 5.0 and 6.0\n\
             m.toml:4: a.z: no"
        );
        assert_eq!(Mistakes::default().done(), Ok(()));
    }
}
