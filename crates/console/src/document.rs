//! A configuration file's text, and errors that name its lines.

use crate::parse::EXPLAINED;
use crate::place::is_alike;
use crate::{ConfigErrors, Mistakes};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
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
    /// Where the sentence begins that says how to learn of every key, with the dot before it, where the message ends with one.
    pub(crate) fn explained(&self) -> Option<usize> {
        let rest = self.message.strip_suffix(EXPLAINED)?;
        let end = rest.rfind(" `headroom ")?;
        Some(end - usize::from(rest[..end].ends_with('.')))
    }

    /// The key that it is about, where it is about one.
    pub fn key(&self) -> Option<&str> {
        let (key, _) = self.message.split_once(": ")?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-[]".contains(c);
        // A table's name in brackets is no key.
        let is_key = key.chars().all(plain) && !key.is_empty() && !key.starts_with('[');
        is_key.then_some(key)
    }
}

/// A message for a terminal, of which nothing that the file holds is a command or turns the writing round, and no line of which is endless:
/// of a longer one the middle is left out, for what to do is at its end.
fn shown(message: &str) -> String {
    let lines = message.split('\n').map(|line| {
        let mut text = String::new();
        for char in line.chars() {
            match char {
                '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                    text.extend(char.escape_unicode());
                }
                char if char.is_control() => text.extend(char.escape_default()),
                char => text.push(char),
            }
        }
        let count = text.chars().count();
        if count <= LONGEST.0 + LONGEST.1 {
            return text;
        }
        let begin: String = text.chars().take(LONGEST.0).collect();
        let end: String = text.chars().skip(count - LONGEST.1).collect();
        format!("{begin} ... {end}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The names of keys that hold a secret, or are taken for such.
const SECRETS: [&str; 6] = [
    "password",
    "passphrase",
    "secure_on",
    "secret",
    "token",
    "community",
];
/// The most bytes of a file, and the most characters of a line of it that a message quotes.
const MOST_BYTES: u64 = 4 * 1024 * 1024;
const QUOTED: usize = 160;
/// The most characters of a line of a message, from its beginning and from its end: a value of the file may be in it.
const LONGEST: (usize, usize) = (1_600, 400);

/// The file's text, to find the line of a key in.
#[derive(Clone)]
pub struct Document {
    file: PathBuf,
    text: String,
    lines: OnceLock<Lines>,
    /// Keys whose values the command line gave, each with its flag.
    flags: BTreeMap<&'static str, &'static str>,
}

/// The line of each key and each entry of a list, by its whole name (`law.dvfs.levels.1`), and where lines begin.
#[derive(Clone, Default)]
struct Lines {
    of: BTreeMap<String, usize>,
    begin: Vec<usize>,
}

impl Lines {
    fn of(text: &str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let mut lines = Self {
            of: BTreeMap::new(),
            begin: std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect(),
        };
        if let Ok(root) = DeTable::parse(text) {
            lines.add("", root.get_ref());
        }
        lines
    }

    /// The line of a place in the text, from 1.
    fn at(&self, place: usize) -> usize {
        self.begin.partition_point(|begin| *begin <= place)
    }

    fn add(&mut self, around: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            self.enter(around, name.get_ref(), name.span().start, value.get_ref());
        }
    }

    fn enter(&mut self, around: &str, name: &str, at: usize, value: &DeValue<'_>) {
        let name = match around {
            "" => name.to_owned(),
            _ => format!("{around}.{name}"),
        };
        let line = self.at(at);
        match value {
            DeValue::Table(inner) => self.add(&name, inner),
            // An entry of a list is counted from 0.
            DeValue::Array(entries) => {
                for (number, entry) in entries.iter().enumerate() {
                    self.enter(&name, &number.to_string(), entry.span().start, entry.get_ref());
                }
            }
            _ => {}
        }
        self.of.insert(name, line);
    }
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
            lines: OnceLock::new(),
            flags: BTreeMap::new(),
        })
    }

    /// What is endless or far too long is not read on.
    fn read_text(file: &Path) -> io::Result<String> {
        let mut bytes = Vec::new();
        File::open(file)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(io::Error::other(
                "it has more than 4 MiB, which is no configuration",
            ));
        }
        String::from_utf8(bytes)
            .map_err(|error| io::Error::other(format!("it is no UTF-8: {}", error.utf8_error())))
    }

    /// A text that ships with the program, under the name that errors give it.
    pub fn shipped(name: &str, text: &str) -> Self {
        Self {
            file: name.into(),
            text: text.to_owned(),
            lines: OnceLock::new(),
            flags: BTreeMap::new(),
        }
    }

    /// Says that a key's value is a flag's, which errors about it name from now on.
    pub fn given_by(&mut self, key: &'static str, flag: &'static str) {
        self.flags.insert(key, flag);
    }

    /// What a user gives a key's value by: the flag, where that gave it.
    pub fn name_of<'a>(&'a self, key: &'a str) -> &'a str {
        self.flags.get(key).copied().unwrap_or(key)
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
        !table.is_empty() && self.lines().of.contains_key(&format!("{table}.{key}"))
    }

    /// The keys whose values are others than in another text, by their whole names; those that stand in one alone, too.
    pub fn changed(&self, since: &Self) -> Vec<String> {
        let (now, before) = (self.values(), since.values());
        let keys: BTreeSet<&String> = now.keys().chain(before.keys()).collect();
        let differs = keys.into_iter().filter(|key| now.get(*key) != before.get(*key));
        differs.cloned().collect()
    }

    /// The value of each key in words, by its whole name; none of a text that is no TOML.
    fn values(&self) -> BTreeMap<String, String> {
        fn add(values: &mut BTreeMap<String, String>, name: &str, value: &toml::Value) {
            let within = |key: &str| match name {
                "" => key.to_owned(),
                _ => format!("{name}.{key}"),
            };
            match value {
                toml::Value::Table(table) => {
                    table
                        .iter()
                        .for_each(|(key, value)| add(values, &within(key), value));
                }
                toml::Value::Array(all) if all.iter().any(toml::Value::is_table) => {
                    let each = all.iter().enumerate();
                    each.for_each(|(at, value)| add(values, &format!("{name}[{at}]"), value));
                }
                value => {
                    values.insert(name.to_owned(), value.to_string());
                }
            }
        }
        let mut values = BTreeMap::new();
        if let Ok(table) = self.text.parse::<toml::Table>() {
            add(&mut values, "", &toml::Value::Table(table));
        }
        values
    }

    fn lines(&self) -> &Lines {
        self.lines.get_or_init(|| Lines::of(&self.text))
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// An error at a key (`slo.percentile`, `levels[1]` or `levels.1`), or at the nearest table around it where the key is not written. Where a
    /// flag gave the value ([`Self::given_by`]), at the flag: nothing is wrong with the file.
    pub fn error(&self, key: &str, why: impl fmt::Display) -> ConfigError {
        if let Some(flag) = self.flags.get(key) {
            return ConfigError {
                file: flag.into(),
                line: None,
                message: why.to_string(),
            };
        }
        ConfigError {
            file: self.file.clone(),
            line: self.find(key),
            message: format!("{key}: {why}"),
        }
    }

    /// The line of a key, or of the nearest table or list around it that is written.
    fn find(&self, key: &str) -> Option<usize> {
        // An entry of a list is found as a table's key is.
        let key = key.replace('[', ".").replace(']', "");
        let ends = key.match_indices('.').map(|(at, _)| at).chain([key.len()]);
        let written = ends.map_while(|end| self.lines().of.get(&key[..end]));
        written.last().copied()
    }

    pub(crate) fn line_of(&self, span: &Range<usize>) -> usize {
        self.lines().at(span.start)
    }

    /// The line that a span begins in, to show beside the message.
    pub(crate) fn quote(&self, span: &Range<usize>) -> String {
        let number = self.line_of(span);
        let line = |number: usize| self.text.lines().nth(number).unwrap_or_default().trim();
        // A value may stand in the line after its key's.
        let before = number.checked_sub(2).map_or("", line);
        let is_open = before.ends_with(['=', ':', '[', '{']);
        let line = line(number - 1);
        match line.char_indices().nth(QUOTED) {
            _ if has_secret(line) || is_open && has_secret(before) => String::new(),
            Some((end, _)) => format!(", in `{}...`", &line[..end]),
            None if line.is_empty() => String::new(),
            None => format!(", in `{line}`"),
        }
    }
}

/// Whether a secret may stand in a line, which is then quoted in no message: in an address before its host, or anywhere behind a word that
/// is, or perhaps misspells, the name of a secret. The line may be no TOML, so that no sign between the two is relied on.
fn has_secret(line: &str) -> bool {
    let has_user = line.split_once("://").is_some_and(|(_, rest)| rest.contains('@'));
    let is_of_name = |c: char| c.is_alphanumeric() || "_-".contains(c);
    // Behind the last word of a line there is nothing but what closes it.
    let line = line.trim_end_matches(['"', '\'', ']', '}', ',', ' ', '\t']);
    let mut words = line.split(|c| !is_of_name(c)).rev().skip(1);
    has_user || words.any(names_a_secret)
}

/// Whether a word is the name of a secret, perhaps misspelt or with something before it (`bmc_password`).
fn names_a_secret(word: &str) -> bool {
    let word = word.to_lowercase();
    let last = word.rsplit(['_', '-']).next().unwrap_or_default();
    SECRETS
        .iter()
        .any(|secret| [word.as_str(), last].contains(secret) || secret.len() > 5 && is_alike(secret, &word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_a_secret_is_not_quoted() {
        for (line, is_quoted) in [
            ("password = \"x\"", false),
            ("Pasword=x", false),
            (
                "power = { user = \"u\", \"password\" = \"a=b\", limit_s = 3 }",
                false,
            ),
            ("secure_on = 1", false),
            ("password : \"hunter2\"", false),
            ("password \"hunter2\"", false),
            ("password hunter2", false),
            ("\"password\": \"hunter2\",", false),
            ("password.file = \"/etc/hostname\" hunter2", false),
            ("power = { password = { file = \"/p\" } } hunter2", false),
            ("bmc-password = 'hunter2'", false),
            ("[password] hunter2", false),
            ("password = \"$%&\"", false),
            ("url = \"https://admin:hunter2@127.0.0.1:22999\" x", false),
            ("url = \"https://admin:hun/ter2@127.0.0.1\" x", false),
            ("url = \"https://127.0.0.1:22999\" x", true),
            ("password_file = \"x\"", true),
            ("user = \"password\"", true),
            ("[nodes.web1.power.password]", true),
            ("select = 3 # server", true),
            ("limit_s = 3", true),
        ] {
            let quoted = Document::shipped("a.toml", line).quote(&(0..1));
            assert_eq!(!quoted.is_empty(), is_quoted, "{line}");
        }
        for (first, is_quoted) in [
            ("password =", false),
            ("password = [", false),
            ("password = 1", true),
        ] {
            let text = format!("{first}\n\"hunter2\"\n");
            let second = first.len() + 1;
            let quoted = Document::shipped("a.toml", &text).quote(&(second..second + 1));
            assert_eq!(!quoted.is_empty(), is_quoted, "{first}");
        }
    }

    #[test]
    fn what_differs_of_two_texts_is_named_by_its_key() {
        let before = Document::shipped(
            "a",
            "[slo]\ntarget_ms = 5\n[[oncall.class]]\nname = \"a\"\np99_ms = 4\n",
        );
        let text =
            "# more\n[[oncall.class]]\nname = \"a\"\np99_ms = 3\n[slo]\ntarget_ms = 5\npercentile = 9\n";
        let after = Document::shipped("a", text);
        assert_eq!(
            after.changed(&before),
            ["oncall.class[0].p99_ms", "slo.percentile"]
        );
        assert_eq!(before.changed(&before), [""; 0]);
        assert_eq!(Document::shipped("a", "[").changed(&before).len(), 3);
    }

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
    fn an_error_about_what_a_flag_gave_names_the_flag_and_no_file() {
        let mut document = Document::shipped("a.toml", "[record]\ndb = \"x\"\n");
        let error = |document: &Document| document.error("record.db", "is no file").to_string();
        assert_eq!(error(&document), "a.toml:2: record.db: is no file");
        document.given_by("record.db", "--db");
        assert_eq!(error(&document), "--db: is no file");
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
        let error = document.error("a", "is \u{202e}mosnar").to_string();
        assert!(error.ends_with("is \\u{202e}mosnar"), "{error}");
        let error = document
            .error("a", "y".repeat(100_000) + ": write less")
            .to_string();
        assert!(
            error.len() < 2_100 && error.ends_with("yyy: write less"),
            "{error}"
        );
        let error = Document::read(Path::new("/dev/zero"), "up")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("/dev/zero: cannot be read: it has more than 4 MiB"),
            "{error}"
        );
    }
}
