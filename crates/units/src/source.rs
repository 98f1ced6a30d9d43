//! Where a value came from. A watt that a sensor counted and a watt that a model computed are different things:
//! they have different types here, and adding one to the other is an error, never a silent sum.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A sensor of the machine counted it (RAPL, hwmon, HSMP).
    Measured,
    /// A model computed it from what was observed on a real machine.
    Estimated,
    /// Emulated hardware reported it.
    Emulated,
    /// The simulator computed it.
    Simulated,
}

impl Source {
    /// The word used in metrics, reports and the run summary.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Estimated => "estimated",
            Self::Emulated => "emulated",
            Self::Simulated => "simulated",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

macro_rules! origin {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name<T>(pub T);

        impl<T> From<$name<T>> for Reading<T> {
            fn from(value: $name<T>) -> Self {
                Reading::new(value.0, Source::$name)
            }
        }
    };
}

origin!(
    /// A value that a sensor of the machine counted.
    Measured
);
origin!(
    /// A value that a model computed.
    Estimated
);
origin!(
    /// A value that emulated hardware reported.
    Emulated
);
origin!(
    /// A value of the simulator.
    Simulated
);

/// A value together with its source, where the source is known only at run time.
///
/// There is no arithmetic on it: [`Reading::plus`] adds two of the same source and refuses anything else.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading<T> {
    /// The value.
    pub value: T,
    /// Where it came from.
    pub source: Source,
}

/// Two values of different sources were to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a value that was {0} cannot be added to one that was {1}: report them side by side")]
pub struct MixedSources(pub Source, pub Source);

impl<T> Reading<T> {
    /// A value of a source.
    pub const fn new(value: T, source: Source) -> Self {
        Self { value, source }
    }

    /// Another value of the same source, computed from this one.
    pub fn map<U>(self, compute: impl FnOnce(T) -> U) -> Reading<U> {
        Reading::new(compute(self.value), self.source)
    }
}

impl<T: std::ops::Add<Output = T>> Reading<T> {
    /// The sum of two values of the same source.
    ///
    /// # Errors
    /// [`MixedSources`] where the sources differ.
    pub fn plus(self, other: Self) -> Result<Self, MixedSources> {
        if self.source == other.source {
            Ok(Self::new(self.value + other.value, self.source))
        } else {
            Err(MixedSources(self.source, other.source))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Watts;

    #[test]
    fn values_of_one_source_add() {
        let sum = Reading::from(Measured(Watts::new(40.0))).plus(Measured(Watts::new(2.0)).into());
        assert_eq!(sum, Ok(Reading::new(Watts::new(42.0), Source::Measured)));
    }

    #[test]
    fn a_measured_watt_is_never_added_to_an_estimated_one() {
        let sum = Reading::from(Measured(Watts::new(40.0))).plus(Estimated(Watts::new(2.0)).into());
        let error = sum.unwrap_err();
        assert_eq!(error, MixedSources(Source::Measured, Source::Estimated));
        assert!(error.to_string().contains("measured") && error.to_string().contains("estimated"));
    }

    #[test]
    fn a_source_is_one_lower_case_word() {
        assert_eq!(
            serde_json::to_string(&Source::Estimated).unwrap(),
            "\"estimated\""
        );
        assert_eq!(Source::Emulated.to_string(), "emulated");
    }
}
