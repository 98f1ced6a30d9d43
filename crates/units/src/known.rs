//! What kind of number a capacity is: a bound is no measurement, and nobody who reads one may take it for one.

use crate::{Fact, Part};

/// What is known by a capacity's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CapacityKind {
    /// It was given, and none was estimated.
    Given,
    /// It was measured and holds now.
    Exact,
    /// It was measured, and nothing confirms it now.
    About,
    /// It was not measured: it is what others, or it itself, took before.
    Presumed,
    /// It is at least this.
    AtLeast,
}

impl CapacityKind {
    /// All of them, from the surest on.
    pub const ALL: [Self; 5] = [
        Self::Given,
        Self::Exact,
        Self::About,
        Self::Presumed,
        Self::AtLeast,
    ];

    /// The word that records and metrics have.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Exact => "exact",
            Self::About => "about",
            Self::Presumed => "presumed",
            Self::AtLeast => "lower-bound",
        }
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// What stands before the number, for people: `at least `.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Given | Self::Exact => "",
            Self::About => "about ",
            Self::Presumed => "presumably ",
            Self::AtLeast => "at least ",
        }
    }

    /// The same where there is little room.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Given | Self::Exact => "",
            Self::About | Self::Presumed => "~",
            Self::AtLeast => ">=",
        }
    }

    /// Of which kind the capacity of a part is, where its facts tell; a record of an earlier version has none of a cluster.
    pub fn of(part: &Part) -> Option<Self> {
        let named = |fact: &str| match part.facts.get(fact) {
            Some(Fact::Words(words)) => Self::named(words),
            _ => None,
        };
        named("kind").or_else(|| named("capacity"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;

    #[test]
    fn a_kind_is_read_from_what_is_said_of_a_part() {
        for kind in CapacityKind::ALL {
            assert_eq!(CapacityKind::named(kind.name()), Some(kind));
            let node = Part::new("web1", Role::Node).fact("capacity", kind.name());
            assert_eq!(CapacityKind::of(&node), Some(kind));
        }
        let estimated = Part::new("port 80", Role::Cluster)
            .fact("capacity", "at least 80.0 connections/s")
            .fact("kind", "lower-bound");
        assert_eq!(CapacityKind::of(&estimated), Some(CapacityKind::AtLeast));
        assert_eq!(CapacityKind::of(&Part::new("web1", Role::Node)), None);
        let unknown = Part::new("web1", Role::Node).fact("capacity", "unknown");
        assert_eq!(CapacityKind::of(&unknown), None);
    }
}
