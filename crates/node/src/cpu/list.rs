//! A set of CPUs in the kernel's notation, `0-3,8`.

use super::CpuError;
use crate::file;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// CPU numbers above this are no CPUs: the largest NR_CPUS of any kernel configuration.
const HIGHEST: u32 = 8191;

/// A set of CPUs. It is written as the kernel writes it: ascending, ranges joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuList(BTreeSet<u32>);

impl CpuList {
    /// The CPUs of the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// None at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a CPU is in it.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// The CPUs in both.
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// The CPUs in this and not in the other.
    pub fn difference(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }
}

impl FromIterator<u32> for CpuList {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl FromStr for CpuList {
    type Err = CpuError;

    fn from_str(text: &str) -> Result<Self, CpuError> {
        let bad = || CpuError::NotAList {
            text: file::shorten(text),
        };
        let mut cpus = BTreeSet::new();
        if text.trim().is_empty() {
            return Ok(Self(cpus));
        }
        for part in text.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u32 = first.parse().map_err(|_| bad())?;
            let last: u32 = last.parse().map_err(|_| bad())?;
            if first > last || last > HIGHEST {
                return Err(bad());
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

impl TryFrom<String> for CpuList {
    type Error = CpuError;
    fn try_from(text: String) -> Result<Self, CpuError> {
        text.parse()
    }
}

impl From<CpuList> for String {
    fn from(list: CpuList) -> Self {
        list.to_string()
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_kernels_notation() {
        let list: CpuList = "0-3,8,10-11\n".parse().unwrap();
        assert_eq!(list.len(), 7);
        assert!(list.contains(2) && !list.contains(9));
        assert_eq!(list.to_string(), "0-3,8,10-11");
        assert!("".parse::<CpuList>().unwrap().is_empty());
    }

    #[test]
    fn what_is_no_list_is_refused_with_its_text() {
        for text in ["a", "3-1", "1,,2", "-1", "0-99999", "1;2"] {
            assert!(
                text.parse::<CpuList>().unwrap_err().to_string().contains(text),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_list_survives_the_way_there_and_back(cpus in proptest::collection::btree_set(0u32..600, 0..80)) {
            let list: CpuList = cpus.into_iter().collect();
            prop_assert_eq!(list.to_string().parse::<CpuList>().unwrap(), list);
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<CpuList>();
        }
    }
}
