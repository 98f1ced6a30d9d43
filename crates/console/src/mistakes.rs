//! All that is wrong in a configuration, where its parts can be judged apart from one another.

use crate::ConfigError;
use std::fmt;

/// The mistakes of a configuration, one at least, by file and line. In words they are a line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ConfigErrors {}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

/// What was found to be wrong so far.
#[derive(Debug, Default)]
pub struct Mistakes(Vec<ConfigError>);

impl Mistakes {
    /// Keeps what is wrong of one part; what is right of it is returned.
    pub fn of<T>(&mut self, part: Result<T, impl Into<ConfigErrors>>) -> Option<T> {
        part.map_err(|errors| self.0.extend(errors.into().0)).ok()
    }

    /// One more.
    pub fn push(&mut self, error: ConfigError) {
        self.0.push(error);
    }

    /// Nothing is wrong so far.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Leaves out those that are not kept.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&ConfigError) -> bool) {
        self.0.retain(keep);
    }

    /// All of both.
    pub(crate) fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Whether all is well.
    ///
    /// # Errors
    /// What is wrong, in the order of the file.
    pub fn done(mut self) -> Result<(), ConfigErrors> {
        self.0
            .sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(ConfigErrors(self.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Document;

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
