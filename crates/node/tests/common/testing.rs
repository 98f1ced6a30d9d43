//! What tests of a unit and of the whole have in common.
#![allow(dead_code, reason = "each test file uses its own part of this")]

use headroom_node::Roots;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

/// A message has all these words.
#[track_caller]
pub fn says(message: impl Display, words: &[&str]) {
    let message = message.to_string();
    for word in words {
        assert!(message.contains(word), "{word:?} is not in: {message}");
    }
}

/// The text of a file without its newline.
#[track_caller]
pub fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap().trim().to_owned()
}

/// `sys` and `proc` of plain files.
pub struct Tree(tempfile::TempDir);

impl Tree {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn roots(&self) -> Roots {
        Roots::at(self.path("sys"), self.path("proc"))
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    /// Writes a line, and makes the directories above it.
    pub fn put(&self, below: &str, text: &str) -> PathBuf {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("{}\n", text.trim_end())).unwrap();
        path
    }

    /// Several files of a directory.
    pub fn put_all(&self, dir: &str, files: &[(&str, &str)]) {
        for (name, text) in files {
            self.put(&format!("{dir}/{name}"), text);
        }
    }

    pub fn read(&self, below: &str) -> String {
        text(self.path(below))
    }
}
