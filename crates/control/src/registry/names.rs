//! The laws that a configuration names.

use super::{LawName, NoSuchLaw};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::str::FromStr;

/// The laws that run together, at least one; in a configuration a name or a list of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LawNames(Vec<LawName>);

impl LawNames {
    /// Some laws; `None` where there is none.
    pub fn new(names: Vec<LawName>) -> Option<Self> {
        (!names.is_empty()).then_some(Self(names))
    }

    /// The one that is named first.
    pub fn first(&self) -> LawName {
        self.0.first().copied().unwrap_or_default()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = LawName> {
        self.0.iter().copied()
    }
}

impl Default for LawNames {
    fn default() -> Self {
        LawName::default().into()
    }
}

impl From<LawName> for LawNames {
    fn from(name: LawName) -> Self {
        Self(vec![name])
    }
}

/// Names joined by `+`, as they are displayed.
impl FromStr for LawNames {
    type Err = NoSuchLaw;

    fn from_str(text: &str) -> Result<Self, NoSuchLaw> {
        text.split('+')
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl fmt::Display for LawNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|law| law.as_str()).collect();
        f.write_str(&names.join("+"))
    }
}

impl<'de> Deserialize<'de> for LawNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;
        impl<'de> Visitor<'de> for OneOrMore {
            type Value = LawNames;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a law, or a list of names")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<LawNames, E> {
                name.parse::<LawName>().map(LawNames::from).map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<LawNames, A::Error> {
                let mut all = Vec::new();
                while let Some(name) = names.next_element()? {
                    all.push(name);
                }
                LawNames::new(all).ok_or_else(|| serde::de::Error::custom("is empty: name a law"))
            }
        }
        deserializer.deserialize_any(OneOrMore)
    }
}
