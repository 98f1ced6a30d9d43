//! What was cut out of a text that is not understood, and what stands in for what it lacks.

use crate::ConfigError;
use crate::place::{Place, Step, is_alike, put, remove};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What may stand in for a value, in the order in which they are tried: what most keys understand, and as little is said of as can be.
const STAND_INS: [&str; 6] = [
    "1",
    "\"http://192.0.2.253:1\"",
    "\"192.0.2.253:1\"",
    "true",
    "[]",
    "{}",
];
/// What all texts among these have: what is said of one shows it. An address of documentation (RFC 5737), which nobody writes.
const STANDS_IN: &str = "192.0.2.253:1";

/// The places that were cut so far.
#[derive(Debug, Default)]
pub(crate) struct Cuts {
    places: Vec<Place>,
    /// Where something stands in, and how many were tried.
    stand_ins: Vec<(Place, usize)>,
}

impl Cuts {
    /// Each of them.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        self.places.iter()
    }

    /// Whether a key that is missing may have been cut, under this name or misspelt, or is of a table that stands in.
    pub(crate) fn may_be(&self, key: &Place) -> bool {
        self.places().any(|cut| cut.may_be(key))
    }

    /// Whether something stands in there or in it: what is wrong with it is then not the file's.
    pub(crate) fn stand_in_within(&self, place: &Place) -> bool {
        self.stand_ins.iter().any(|(at, _)| at.is_within(place))
    }

    /// Cuts what is wrong at a place, or lets something stand in for what is missing there. Whether that was possible.
    pub(crate) fn cut(&mut self, root: &mut DeTable<'_>, place: Place, beyond: usize) -> bool {
        let is_entry = matches!(place.0.last(), Some(Step::At(_)));
        let is_missing = !is_entry && !remove(root, &place.0);
        let stands_in = self.stand_ins.iter().any(|(at, _)| *at == place);
        let is_needed = is_missing || is_entry || stands_in;
        if !self.places.contains(&place) {
            self.places.push(place.clone());
        }
        if !is_needed || self.stand_in(root, &place, beyond) {
            return true;
        }
        // Nothing can stand in: the rest of the table, or of the list, cannot be understood without it.
        let Some(around) = place.parent().filter(|around| remove(root, &around.0)) else {
            return false;
        };
        self.places.push(around);
        true
    }

    fn stand_in(&mut self, root: &mut DeTable<'_>, place: &Place, beyond: usize) -> bool {
        let known = self.stand_ins.iter().position(|(at, _)| at == place);
        let at = known.unwrap_or_else(|| {
            self.stand_ins.push((place.clone(), 0));
            self.stand_ins.len() - 1
        });
        let tried = &mut self.stand_ins[at].1;
        let value = STAND_INS.get(*tried).and_then(|text| DeValue::parse(text).ok());
        *tried += 1;
        let span = beyond + at..beyond + at;
        value.is_some_and(|value| put(root, &place.0, Spanned::new(span, value.into_inner())))
    }

    /// Whether what a check found follows from what was cut only.
    pub(crate) fn explain(&self, error: &ConfigError, is_written: bool) -> bool {
        let key = Place::parse(error.key().unwrap_or_default());
        let text = error.message.split_once(": ").map_or("", |(_, why)| why);
        let says = |name: &str| {
            let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            words.any(|word| is_alike(word, name))
        };
        self.places().any(|cut| {
            let is_it = key.is_within(cut);
            // Of what is not written, a key beside it that was cut may be the reason.
            let was_to_be = !is_written && cut.may_be(&key);
            // Of a table, a key in it of which it is said.
            let is_said = cut.is_within(&key) && (text.contains(STANDS_IN) || cut.name().is_some_and(says));
            is_it || was_to_be || is_said
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_this_machine_is_not_taken_for_what_stands_in() {
        let mut cuts = Cuts::default();
        cuts.places.push(Place::parse("server[0].wait"));
        let said = |address: &str| ConfigError {
            file: "s.toml".into(),
            line: Some(1),
            message: format!("server: {address} is this server's own"),
        };
        assert!(!cuts.explain(&said("127.0.0.1:18981"), true));
        assert!(cuts.explain(&said("192.0.2.253:1"), true));
    }
}
