//! Names of fields as messages before had them.

use http::HeaderName;

use crate::headers::specific;

/// Names of fields that are remembered, and how long one may be.
const NAMES: usize = 128;
const MAX_NAME_BYTES: usize = 64;

/// A name as a head had it, and what it was read as.
#[derive(Debug)]
struct Known {
    /// As it was spelt.
    text: Box<[u8]>,
    name: HeaderName,
    /// [`specific`] of it.
    bit: u16,
}

/// The names that fields had before: applications use few, and to compare a name costs a tenth of reading one. A name has one
/// place, from which a later one with the same place puts it out.
#[derive(Debug)]
pub(crate) struct Names {
    known: [Option<Known>; NAMES],
    /// The last of those that are too long to be remembered.
    long: Option<Known>,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            known: [const { None }; NAMES],
            long: None,
        }
    }
}

impl Names {
    /// The field's name, and [`specific`] of it; `None` where it is no name.
    pub(crate) fn read(&mut self, text: &[u8]) -> Option<(&HeaderName, u16)> {
        let known = match text.len() > MAX_NAME_BYTES {
            true => &mut self.long,
            false => &mut self.known[Self::place(text)],
        };
        if known.as_ref().is_none_or(|known| *known.text != *text) {
            let name = HeaderName::from_bytes(text).ok()?;
            *known = Some(Known {
                text: text.into(),
                bit: specific(&name),
                name,
            });
        }
        known.as_ref().map(|known| (&known.name, known.bit))
    }

    fn place(text: &[u8]) -> usize {
        let at = |index: usize| usize::from(text.get(index).copied().unwrap_or(0));
        let half = text.len() / 2;
        // By search: of 53 common names three have the place of another.
        (text.len() * 5 + at(0) * 9 + at(half) * 15 + at(text.len().saturating_sub(1)) * 17) % NAMES
    }
}
