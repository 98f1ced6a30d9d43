//! A machine as a configuration names it: by its kind, or by all its figures.

use crate::machine::{FigureError, MachineFigures, check};
use serde::{Deserialize, Serialize};

/// A machine by kind or by figures.
///
/// ```
/// use headroom_physics::Machine;
///
/// let machine = Machine::Broadwell {};
/// assert_eq!(machine.figures(12)?.processor.cores, 12);
/// # Ok::<(), headroom_physics::FigureError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Machine {
    /// [`MachineFigures::skylake`], with the cores that the machine has.
    Skylake {},
    /// [`MachineFigures::broadwell`], with the cores that the machine has.
    Broadwell {},
    /// Figures of one's own.
    Figures(Box<MachineFigures>),
}

impl Default for Machine {
    fn default() -> Self {
        Self::Skylake {}
    }
}

impl Machine {
    /// The checked figures for a machine of so many cores.
    ///
    /// # Errors
    /// [`FigureError`]: a figure that cannot be, or figures for another number of cores.
    pub fn figures(&self, cores: usize) -> Result<MachineFigures, FigureError> {
        let figures = match self {
            Self::Skylake {} => MachineFigures::skylake(cores),
            Self::Broadwell {} => MachineFigures::broadwell(cores),
            Self::Figures(figures) => (**figures).clone(),
        };
        figures.check()?;
        let own = figures.processor.cores;
        check(
            "processor.cores",
            own as f64,
            own == cores,
            format!("the machine has {cores} cores: give the figures of a machine of as many"),
        )?;
        Ok(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_the_machines_cores_and_figures_must_have_them() {
        assert_eq!(Machine::default().figures(6).unwrap(), MachineFigures::skylake(6));
        let own = Machine::Figures(Box::new(MachineFigures::broadwell(12)));
        assert_eq!(own.figures(12).unwrap(), MachineFigures::broadwell(12));
        let error = own.figures(8).unwrap_err();
        assert_eq!(error.key, "processor.cores");
        assert!(
            error.to_string().contains("is 12: the machine has 8 cores"),
            "{error}"
        );
    }

    #[test]
    fn a_key_that_a_kind_has_not_is_refused() {
        let parse = serde_json::from_str::<Machine>;
        assert_eq!(parse(r#"{"kind":"broadwell"}"#).unwrap(), Machine::Broadwell {});
        let error = parse(r#"{"kind":"skylake","cores":4}"#).unwrap_err().to_string();
        assert!(error.contains("unknown field `cores`"), "{error}");
        assert!(
            parse(r#"{"kind":"alder-lake"}"#)
                .unwrap_err()
                .to_string()
                .contains("broadwell")
        );
        let own = Machine::Figures(Box::new(MachineFigures::skylake(2)));
        let text = serde_json::to_string(&own).unwrap();
        assert_eq!(parse(&text).unwrap(), own);
    }
}
