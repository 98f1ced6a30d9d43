//! Places in a configuration: what stands there is found, taken out and replaced.

use std::fmt;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// A part of a dotted key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    /// An entry of a list of tables, from 0.
    At(usize),
}

/// Where in a file something is: the steps to it from the root, which has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place(pub(crate) Vec<Step>);

impl Place {
    pub(crate) fn with(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    pub(crate) fn parent(&self) -> Option<Self> {
        let (_, steps) = self.0.split_last()?;
        Some(Self(steps.to_vec()))
    }

    /// Whether it is that place or in it.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }

    /// The key that it ends with; `None` of an entry of a list.
    pub(crate) fn name(&self) -> Option<&str> {
        match self.0.last()? {
            Step::Key(name) => Some(name),
            Step::At(_) => None,
        }
    }

    /// Whether what was to stand at another place may be what stands here: it is in it, or beside it under nearly the same name.
    pub(crate) fn may_be(&self, other: &Self) -> bool {
        let alike = || Some(is_alike(self.name()?, other.name()?));
        other.is_within(self) || (self.parent() == other.parent() && alike() == Some(true))
    }

    /// The place of a key as [`Document::error`] takes it.
    pub(crate) fn parse(key: &str) -> Self {
        let key = key.replace('[', ".").replace(']', "");
        let step = |part: &str| part.parse().map_or_else(|_| Step::Key(part.to_owned()), Step::At);
        Self(key.split('.').map(step).collect())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if number == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::At(at) => write!(f, "[{at}]")?,
            }
        }
        Ok(())
    }
}

/// Whether one name may be the other, misspelt: as many changes, at most, as a third of its letters.
pub(crate) fn is_alike(one: &str, other: &str) -> bool {
    let most = one.chars().count().max(other.chars().count());
    match most < 3 {
        true => one == other,
        false => strsim::levenshtein(one, other) <= most / 3,
    }
}

/// The place of the key that stands at a span, or of the key whose value does.
pub(crate) fn place_of(table: &DeTable<'_>, at: &Place, span: &Range<usize>) -> Option<Place> {
    table.iter().find_map(|(name, value)| {
        let here = at.with(Step::Key(name.get_ref().to_string()));
        if name.span() == *span {
            return Some(here);
        }
        inside(value, &here, span).or_else(|| (value.span() == *span).then_some(here))
    })
}

fn inside(value: &Spanned<DeValue<'_>>, here: &Place, span: &Range<usize>) -> Option<Place> {
    match value.get_ref() {
        DeValue::Table(inner) => place_of(inner, here, span),
        DeValue::Array(entries) => in_list(entries, here, span),
        _ => None,
    }
}

fn in_list(entries: &DeArray<'_>, here: &Place, span: &Range<usize>) -> Option<Place> {
    entries.iter().enumerate().find_map(|(at, entry)| {
        let one = here.with(Step::At(at));
        inside(entry, &one, span).or_else(|| (entry.span() == *span).then_some(one))
    })
}

/// The key of a table whose value alone reads as a message quotes it (`string "a"`, `integer `5``), and its span. A table that is one of
/// several kinds is read at once before it is understood: what is wrong in it is said of all of it.
pub(crate) fn the_one_that_says(
    root: &mut DeTable<'_>,
    place: &Place,
    quoted: &str,
) -> Option<(Place, Range<usize>)> {
    let mut all = table_at(root, &place.0)?.iter().filter(|(_, value)| {
        let text = match value.get_ref() {
            DeValue::String(text) => format!("string {text:?}"),
            DeValue::Integer(number) => format!("integer `{}`", number.as_str()),
            DeValue::Float(number) => format!("floating point `{}`", number.as_str()),
            DeValue::Boolean(is) => format!("boolean `{is}`"),
            _ => return false,
        };
        text == quoted
    });
    let (name, value) = all.next().filter(|_| !place.0.is_empty())?;
    let key = Step::Key(name.get_ref().to_string());
    all.next().is_none().then(|| (place.with(key), value.span()))
}

/// The key of a table that a message about the table begins with, as `password: write ...`, and its span: what understands a value of a
/// table of one of several kinds knows its key and not its place.
pub(crate) fn the_one_named(
    root: &mut DeTable<'_>,
    place: &Place,
    message: &str,
) -> Option<(Place, Range<usize>)> {
    let (name, _) = message.split_once(": ")?;
    let value = table_at(root, &place.0)?.get(name)?;
    let key = Step::Key(name.to_owned());
    Some((place.with(key), value.span()))
}

/// Takes the key out; of what is an entry of a list the whole list, as the others would have other numbers. Whether there was one.
pub(crate) fn remove(table: &mut DeTable<'_>, steps: &[Step]) -> bool {
    match steps {
        [around @ .., Step::At(_)] => remove(table, around),
        [around @ .., Step::Key(name)] => {
            let inner = table_at(table, around);
            inner.is_some_and(|inner| inner.remove(name.as_str()).is_some())
        }
        [] => false,
    }
}

/// Puts a value there. Whether there is a table or a list to hold it.
pub(crate) fn put<'a>(table: &mut DeTable<'a>, steps: &[Step], value: Spanned<DeValue<'a>>) -> bool {
    match steps {
        [around @ .., Step::At(_)] => {
            let entry = value_at(table, steps).filter(|_| !around.is_empty());
            entry.map(|entry| *entry = value).is_some()
        }
        [around @ .., Step::Key(name)] => {
            let key = Spanned::new(value.span(), name.clone().into());
            let inner = table_at(table, around);
            inner.map(|inner| inner.insert(key, value)).is_some()
        }
        [] => false,
    }
}

fn table_at<'t, 'a>(table: &'t mut DeTable<'a>, steps: &[Step]) -> Option<&'t mut DeTable<'a>> {
    if steps.is_empty() {
        return Some(table);
    }
    match value_at(table, steps)?.get_mut() {
        DeValue::Table(inner) => Some(inner),
        _ => None,
    }
}

fn value_at<'t, 'a>(table: &'t mut DeTable<'a>, steps: &[Step]) -> Option<&'t mut Spanned<DeValue<'a>>> {
    let (Step::Key(first), rest) = steps.split_first()? else {
        return None;
    };
    let mut value = table.get_mut(first.as_str())?;
    for step in rest {
        value = match (step, value.get_mut()) {
            (Step::Key(key), DeValue::Table(inner)) => inner.get_mut(key.as_str())?,
            (Step::At(at), DeValue::Array(entries)) => entries.get_mut(*at)?,
            _ => return None,
        };
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_slip_is_alike_and_another_is_not() {
        for (one, other, alike) in [
            ("percentle", "percentile", true),
            ("target", "target_ms", true),
            ("sloo", "slo", true),
            ("pid", "pid", true),
            ("percentle", "target_ms", false),
            ("cgroup", "container", false),
            ("of", "on", false),
        ] {
            assert_eq!(is_alike(one, other), alike, "{one} {other}");
            assert_eq!(is_alike(other, one), alike, "{one} {other}");
        }
    }
}
