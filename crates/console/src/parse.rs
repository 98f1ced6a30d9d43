//! A configuration understood as far as it can be: each key that is wrong is said, not the first alone.
//!
//! What `serde` refuses is cut out of the parsed text, which keeps its places, and the rest is tried again; where a key is then missing,
//! or was before, something stands in for it, so that what is beside it is understood and checked. What follows from a cut only (a table
//! that now lacks the key, what is said of what stands in) is no mistake of its own and is not said.

use crate::args::address_objection;
use crate::cuts::Cuts;
use crate::place::{Place, Step, is_alike, place_of, the_one_named, the_one_that_says};
use crate::{ConfigError, ConfigErrors, Document, Mistakes};
use headroom_units::Seconds;
use serde::de::DeserializeOwned;
use std::ops::Range;
use toml::de::{DeTable, Deserializer, Error};

impl Document {
    /// Understands the text as the configuration of `headroom COMMAND` and checks it; every key that is wrong is said.
    ///
    /// # Errors
    /// A text that is no TOML, alone. Else all unknown keys, values of the wrong kind and what `check` finds, each with its line.
    pub fn parse_checked<T: DeserializeOwned>(
        &self,
        command: &str,
        check: impl FnOnce(&T, &mut Mistakes),
    ) -> Result<T, ConfigErrors> {
        let mut root = DeTable::parse(self.text()).map_err(|error| {
            self.twice(&error)
                .unwrap_or_else(|| self.refusal(command, None, error.span(), &error))
        })?;
        let (mut mistakes, mut cuts) = (Mistakes::default(), Cuts::default());
        let value = loop {
            let error = match T::deserialize(Deserializer::from(root.clone())) {
                Ok(value) => break Some(value),
                Err(error) => error,
            };
            let place = error
                .span()
                .and_then(|span| place_of(root.get_ref(), &Place::default(), &span));
            // Where it is not known which key it is about, it is the file that lacks a table.
            let place = place.unwrap_or_default();
            let refused = refused(error.message());
            let named = the_one_named(root.get_mut(), &place, error.message());
            let said = |text| the_one_that_says(root.get_mut(), &place, text);
            let (place, span) = match named.or_else(|| refused.and_then(said)) {
                Some((place, span)) => (place, Some(span)),
                None => (place, error.span()),
            };
            let lacks = missing(&error).map(|key| place.with(Step::Key(key.to_owned())));
            let follows = match &lacks {
                Some(key) => cuts.may_be(key),
                None => cuts.stand_in_within(&place),
            };
            if mistakes.is_full() {
                // Each further one takes as long as all of the file.
                mistakes.cut_short();
                break None;
            }
            if !follows {
                mistakes.push(self.refusal(command, Some(&place), span, &error));
            }
            // Spans of what stands in are beyond the text, each another.
            let beyond = self.text().len() + 1;
            if !cuts.cut(root.get_mut(), lacks.unwrap_or(place), beyond) {
                break None;
            }
        };
        if let Some(value) = &value {
            let mut found = Mistakes::beside(cuts.places().map(Place::to_string).collect());
            check(value, &mut found);
            found.retain(|error| !cuts.explain(error, self.is_written(error.key())));
            mistakes.append(found);
        }
        mistakes.done()?;
        // Nothing was wrong, so nothing was cut and there is a value.
        value.ok_or_else(|| self.error("the file", "is not understood").into())
    }

    fn is_written(&self, key: Option<&str>) -> bool {
        let (table, key) = key.and_then(|key| key.rsplit_once('.')).unwrap_or_default();
        self.has(table, key)
    }

    /// What is wrong, with the key that it is about: an error of a whole file names the table to add, not the first line's.
    fn refusal(
        &self,
        command: &str,
        place: Option<&Place>,
        at: Option<Range<usize>>,
        error: &Error,
    ) -> ConfigError {
        let line = at.as_ref().map(|span| self.line_of(span));
        let (why, span) = (plain(error.message().trim()), at.unwrap_or_default());
        let name = place.and_then(Place::name);
        let why = name
            .and_then(|name| why.strip_prefix(name)?.strip_prefix(": "))
            .unwrap_or(&why);
        let quoted = self.quote(&span);
        let what = match (missing(error), place) {
            (Some(table), Some(place)) if place.0.is_empty() => {
                format!("{table}: is missing: add the table `[{table}]` with its keys")
            }
            (Some(key), Some(place)) => format!("{place}.{key}: is missing: add it to `{place}`{quoted}"),
            (None, Some(place)) if !place.0.is_empty() => {
                let remedy = self
                    .address_remedy(place, why, &span)
                    .or_else(|| remedy(place, why))
                    .or_else(|| list_remedy(place, why))
                    .or_else(|| meant(why));
                format!("{place}: {why}{quoted}{}", remedy.unwrap_or_default())
            }
            _ => format!("{why}{quoted}"),
        };
        ConfigError {
            file: self.file().to_owned(),
            line,
            message: format!(
                "{what}{} `headroom {command} {EXPLAINED}",
                if what.ends_with('?') { "" } else { "." }
            ),
        }
    }

    /// What is wrong with a text that was to be an IP address and a port.
    fn address_remedy(&self, place: &Place, why: &str, span: &Range<usize>) -> Option<String> {
        if !why.starts_with("invalid socket address syntax") {
            return None;
        }
        let written = self.text().get(span.clone())?.trim_matches(['"', '\'']);
        let is_nameserver = place
            .0
            .iter()
            .any(|step| *step == Step::Key("nameservers".to_owned()));
        let example = match is_nameserver {
            true => ([10, 0, 0, 2], 53),
            false => ([127, 0, 0, 1], 8080),
        };
        Some(format!("; {}", address_objection(written, example.into())))
    }
}

/// How a message about a key that is not understood ends, after `headroom COMMAND`.
pub(crate) const EXPLAINED: &str = "--example` prints every key with its meaning";

/// What `serde` says, without names of types that only programmers know.
fn plain(why: &str) -> String {
    let (before, kind) = why.rsplit_once("expected ").unwrap_or_default();
    let kind = match kind {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" | "u64" | "usize" => "a whole number of 0 or more",
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        _ => return why.to_owned(),
    };
    format!("{before}expected {kind}")
}

/// Which of the names that may stand there was meant, where one is nearly what does: "unknown field `a`, expected one of `b`, `c`", or
/// "\"a\" is no law: choose one of b, c".
fn meant(why: &str) -> Option<String> {
    let of_key = why
        .strip_prefix("unknown field `")
        .and_then(|rest| rest.split_once("`, expected "));
    let of_value = || why.strip_prefix('"')?.split_once("\" is no ");
    let (written, rest) = of_key.or_else(of_value)?;
    let names = rest.rsplit_once("one of ").map_or(rest, |(_, names)| names);
    // Of two it says "`a` or `b`".
    let names = names.replace("` or `", "`, `");
    let names = names.split(", ").map(|name| name.trim_matches('`'));
    let bare = |name: &str| name.to_lowercase().replace(['-', '_', ' '], "");
    // "p99" of "p99_ms".
    let lacks_unit = |name: &str| {
        let unit = name.strip_prefix(written);
        unit.is_some_and(|unit| UNITS.iter().any(|(end, ..)| *end == unit))
    };
    let near = |name: &&str| lacks_unit(name) || bare(name) == bare(written) || is_alike(name, written);
    let nearest = names
        .filter(near)
        .min_by_key(|name| strsim::levenshtein(name, written))?;
    Some(format!("; did you mean `{nearest}`?"))
}

/// The value that is of a wrong kind, or none that may be, as an error's message quotes it.
fn refused(message: &str) -> Option<&str> {
    let rest = ["invalid type: ", "invalid value: "]
        .iter()
        .find_map(|begin| message.trim().strip_prefix(begin));
    rest?.rsplit_once(", expected ").map(|(value, _)| value)
}

/// The key that a table lacks, where an error is about that.
fn missing(error: &Error) -> Option<&str> {
    let rest = error.message().trim().strip_prefix("missing field `")?;
    rest.strip_suffix('`')
}

/// What to write instead of one value or one table where several may be.
fn list_remedy(place: &Place, why: &str) -> Option<String> {
    let written = why
        .strip_prefix("invalid type: ")?
        .strip_suffix(", expected a list")?;
    if written == "map" {
        return Some(format!(
            "; there may be several: write [[{place}]], in two brackets, before each"
        ));
    }
    let (text, Some(Step::Key(key))) = (written.strip_prefix("string ")?, place.0.last()) else {
        return None;
    };
    let inner = text.trim_matches('"');
    let words: Vec<&str> = inner.split_whitespace().collect();
    let list = match words.len() {
        0 | 1 => text.to_owned(),
        // What a shell would understand is not told apart at white space.
        _ if inner.contains(['\'', '"', '\\', '$', '`', '|', '&', ';', '<', '>', '*']) => {
            return Some(format!(
                "; there may be several: write them in brackets, each a text of its own, {key} = [\"...\", \"...\"]"
            ));
        }
        _ => format!("\"{}\"", words.join("\", \"")),
    };
    Some(format!(
        "; there may be several: write them in brackets, {key} = [{list}]"
    ))
}

/// What to write instead of a text that was to be a number, where the key's name says its unit.
fn remedy(place: &Place, why: &str) -> Option<String> {
    let text = why
        .strip_prefix("invalid type: string \"")?
        .rsplit_once("\", expected ")?
        .0
        .trim();
    let Some(Step::Key(key)) = place.0.last() else {
        return None;
    };
    let (_, unit, in_seconds) = UNITS.iter().find(|(end, ..)| key.ends_with(end))?;
    let length = || text.parse::<Seconds>().ok().map(Seconds::get);
    // "99 %", and as people say it "p99".
    let bare = text.trim_matches(|c: char| c.is_alphabetic() || c == '%');
    let number = match (text.parse::<f64>(), in_seconds) {
        (Ok(number), _) => Some(number),
        (Err(_), Some(in_seconds)) => length().map(|seconds| seconds / in_seconds),
        // The only unit that such a number can have.
        (Err(_), None) => bare.trim().parse().ok(),
    };
    // 100 ms are not 0.1 s in binary fractions.
    let number = number.map(|number: f64| (number * 1e9).round() / 1e9);
    let write = number.map_or_else(String::new, |number| format!(": write {key} = {number}"));
    Some(format!(
        "; it is a number of {unit}, without quotes and without a unit{write}"
    ))
}

/// How the name of a key with a unit ends, the unit, and how many seconds it is where it is one of time.
const UNITS: [(&str, &str, Option<f64>); 7] = [
    ("percentile", "percent", None),
    ("_us", "microseconds", Some(1e-6)),
    ("_ms", "milliseconds", Some(1e-3)),
    ("_s", "seconds", Some(1.0)),
    ("_days", "days", Some(86_400.0)),
    ("_percent", "percent", None),
    ("_w", "watts", None),
];

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
