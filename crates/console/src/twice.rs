//! A key or table that stands twice in a text: where it stands first.

use crate::place::{Place, Step};
use crate::{ConfigError, Document};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};

/// What the parser says of it.
const TWICE: &str = "duplicate key";

impl Document {
    /// The mistake of a text in which something stands twice, where it is found; `None` of any other.
    pub(crate) fn twice(&self, error: &Error) -> Option<ConfigError> {
        let span = error.span().filter(|_| error.message().trim() == TWICE)?;
        let named = format!("{} = 0", self.text().get(span.clone())?);
        let named = DeTable::parse(&named).ok()?;
        let name: &str = named.get_ref().keys().next()?.get_ref();
        // Under another name it stands beside the first; what comes after is not asked.
        let mut other = "other".to_owned();
        while self.text().contains(&other) {
            other.push('_');
        }
        let rest = self.text()[span.end..].lines().next().unwrap_or_default();
        let text = format!("{}{other}{rest}", &self.text()[..span.start]);
        let (root, _) = DeTable::parse_recoverable(&text);
        let (around, table) = table_with(root.get_ref(), &Place::default(), &other)?;
        let (first, value) = named_in(table, name)?;
        let (_, again) = named_in(table, &other)?;
        let is_table = |value: &DeValue<'_>| matches!(value, DeValue::Table(_));
        let remedy = match is_table(value) && is_table(again) {
            true => "join the two",
            false => "leave one of the two",
        };
        let line = self.line_of(&first);
        Some(ConfigError {
            file: self.file().to_owned(),
            line: Some(self.line_of(&span)),
            message: format!(
                "{}: is also at line {line}: {remedy}",
                around.with(Step::Key(name.to_owned()))
            ),
        })
    }
}

/// The span of a key of a table, and its value.
fn named_in<'a, 'i>(table: &'a DeTable<'i>, name: &str) -> Option<(Range<usize>, &'a DeValue<'i>)> {
    let mut keys = table.iter();
    let (key, value) = keys.find(|(key, _)| *key.get_ref() == name)?;
    Some((key.span(), value.get_ref()))
}

/// The table with a key of this name, and its place.
fn table_with<'a, 'i>(table: &'a DeTable<'i>, at: &Place, name: &str) -> Option<(Place, &'a DeTable<'i>)> {
    if named_in(table, name).is_some() {
        return Some((at.clone(), table));
    }
    table.iter().find_map(|(key, value)| {
        let here = at.with(Step::Key(key.get_ref().to_string()));
        within(value, &here, name)
    })
}

fn within<'a, 'i>(
    value: &'a Spanned<DeValue<'i>>,
    here: &Place,
    name: &str,
) -> Option<(Place, &'a DeTable<'i>)> {
    match value.get_ref() {
        DeValue::Table(inner) => table_with(inner, here, name),
        DeValue::Array(entries) => {
            let mut entries = entries.iter().enumerate();
            entries.find_map(|(at, entry)| within(entry, &here.with(Step::At(at)), name))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn said(text: &str) -> String {
        let errors = Document::shipped("m.toml", text).parse::<toml::Table>("up");
        errors.unwrap_err().to_string()
    }

    #[test]
    fn what_stands_twice_is_said_with_the_line_of_the_first() {
        for (text, wanted) in [
            (
                "[a]\nx = 1\n[b]\n[a]\ny = 1\n[a]\n",
                "m.toml:4: a: is also at line 1: join the two",
            ),
            (
                "[a.b]\n[a.c]\n\n[a.b]\n",
                "m.toml:4: a.b: is also at line 1: join the two",
            ),
            (
                "[[n]]\nx = 1\n[[n]]\nx = 1\n\"x\" = 2\n",
                "m.toml:5: n[1].x: is also at line 4: leave one of the two",
            ),
            (
                "a = 1\n[a]\n",
                "m.toml:2: a: is also at line 1: leave one of the two",
            ),
            (
                "[a]\n[[a]]\n",
                "m.toml:2: a: is also at line 1: leave one of the two",
            ),
            (
                "l = [\n{ x = 1,\nx = 2 },\n3]\n[l]\n",
                "m.toml:3: l[0].x: is also at line 2: leave one of the two",
            ),
            (
                "[a]\nother = 1\nx = 1\nx = \"\"\"\n\"\"\"\n",
                "m.toml:4: a.x: is also at line 3: leave one of the two",
            ),
        ] {
            assert_eq!(said(text), wanted, "{text}");
        }
        // No key stands twice.
        assert!(!said("[a\n").contains("is also at"));
    }

    proptest! {
        #[test]
        fn the_first_of_two_tables_is_found(before in 0_usize..5, between in 0_usize..5) {
            let fill = |count: usize, of: char| -> String {
                (0..count).map(|at| format!("[{of}{at}]\n")).collect()
            };
            let text = format!("{}[t]\n{}[t]\n{}", fill(before, 'b'), fill(between, 'c'), fill(2, 'd'));
            let (first, again) = (before + 1, before + between + 2);
            let wanted = format!("m.toml:{again}: t: is also at line {first}: join the two");
            prop_assert_eq!(said(&text), wanted);
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "[\\[\\]\\{\\}a-c.=\"'\n ,1]{0,60}") {
            let _ = Document::shipped("m.toml", &text).parse::<toml::Table>("up");
        }
    }
}
