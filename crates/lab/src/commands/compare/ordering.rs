//! Whether the joint law keeps what it says: late at most as often as asked, and less energy than every law that is late no
//! more often than that. Pure: figures in, verdict out.

use headroom_record::statistics::Estimate;
use headroom_units::Ratio;
use serde::Serialize;

/// The law of whom it is asked.
pub const OURS: &str = "joint";
/// Where even the first law, everything on, is late more often, as often as that times this.
pub const OVER_FIRST: f64 = 1.2;

/// A law's figures, seed by seed.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Its name.
    pub law: String,
    /// Energy, joules.
    pub energy_j: Vec<f64>,
    /// Periods over the target, percent.
    pub late_percent: Vec<f64>,
}

/// What can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It holds in every mean.
    Holds,
    /// It does not hold in some mean, but each such difference could be chance's.
    WithinChance,
    /// It does not hold.
    Fails,
}

impl Verdict {
    /// In a word or two.
    pub const fn said(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::WithinChance => "chance",
            Self::Fails => "NO",
        }
    }
}

/// The ordering on some traces.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ordering {
    /// Whether it holds.
    pub verdict: Verdict,
    /// What was taken for an SLO kept, percent of the periods.
    pub kept_percent: f64,
    /// The laws that kept it, [`OURS`] apart.
    pub kept_by: Vec<String>,
    /// Where it does not hold, each with its figures.
    pub exceptions: Vec<String>,
}

/// Judges it against the law of the name `first`, where a share `asked` of the periods may be late; `None` where [`OURS`] was not run, or nothing beside it.
pub fn ordering(laws: &[Measured], first: &str, asked: Ratio) -> Option<Ordering> {
    let ours = laws
        .iter()
        .find(|law| law.law == OURS)
        .filter(|_| laws.len() > 1)?;
    let late = |law: &Measured| Estimate::of(&law.late_percent).map_or(f64::INFINITY, |late| late.mean);
    let reference = laws.iter().find(|law| law.law == first).map_or(0.0, late);
    let kept_percent = asked.as_percent().max(OVER_FIRST * reference);
    let mut found = Ordering {
        verdict: Verdict::Holds,
        kept_percent,
        kept_by: Vec::new(),
        exceptions: Vec::new(),
    };
    let mut except = |said: String, surely: bool| {
        let verdict = if surely {
            Verdict::Fails
        } else {
            Verdict::WithinChance
        };
        found.verdict = found.verdict.max(verdict);
        found.exceptions.push(said);
    };
    if late(ours) > kept_percent {
        let said = format!(
            "{OURS} is late in {:.2} % of the periods, more often than asked (at most {kept_percent:.2} %)",
            late(ours)
        );
        except(said, true);
    }
    for law in laws
        .iter()
        .filter(|law| law.law != OURS && late(law) <= kept_percent)
    {
        let ratios = ours.energy_j.iter().zip(&law.energy_j);
        let more: Vec<f64> = ratios
            .map(|(ours, theirs)| (ours / theirs - 1.0) * 100.0)
            .collect();
        if let Some(more) = Estimate::of(&more).filter(|more| more.mean >= 0.0) {
            let said = format!(
                "{OURS} needs {} % more energy than {}, which is late in {:.2} % of the periods ({OURS}: {:.2} %)",
                more.written(2),
                law.law,
                late(law),
                late(ours)
            );
            except(said, more.is_not_zero());
        }
    }
    found.kept_by = laws
        .iter()
        .filter(|law| law.law != OURS && late(law) <= kept_percent)
        .map(|law| law.law.clone())
        .collect();
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Ratio = Ratio::new(0.005);

    fn law(name: &str, energy_j: [f64; 3], late_percent: [f64; 3]) -> Measured {
        Measured {
            law: name.to_owned(),
            energy_j: energy_j.to_vec(),
            late_percent: late_percent.to_vec(),
        }
    }

    fn judged(ours_j: [f64; 3], ours_late: [f64; 3]) -> Ordering {
        let laws = [
            law("fixed", [100.0, 101.0, 102.0], [0.0; 3]),
            law(OURS, ours_j, ours_late),
            law("slo-power", [84.0, 85.0, 86.0], [0.2, 0.3, 0.4]),
            law("k8s-as-run", [70.0, 71.0, 72.0], [19.0, 20.0, 21.0]),
        ];
        ordering(&laws, "fixed", ASKED).unwrap()
    }

    #[test]
    fn it_holds_below_every_law_that_is_late_no_more_often_than_asked() {
        let found = judged([83.0, 84.0, 85.0], [0.4, 0.5, 0.6]);
        assert_eq!(found.verdict, Verdict::Holds);
        assert_eq!(found.kept_by, ["fixed", "slo-power"]);
        assert!(found.exceptions.is_empty());
        assert_eq!(found.kept_percent, 0.5);
    }

    #[test]
    fn more_energy_than_a_law_that_keeps_it_is_an_exception() {
        let found = judged([86.0, 87.1, 88.0], [0.4, 0.5, 0.6]);
        assert_eq!(found.verdict, Verdict::Fails);
        assert_eq!(found.exceptions.len(), 1);
        assert!(
            found.exceptions[0].starts_with("joint needs 2.39 ± "),
            "{:?}",
            found.exceptions
        );
        assert!(found.exceptions[0].contains("than slo-power, which is late in 0.30 %"));
    }

    #[test]
    fn a_difference_that_could_be_chance_s_is_said_to_be() {
        let found = judged([80.0, 85.1, 90.1], [0.4, 0.5, 0.5]);
        assert_eq!(found.verdict, Verdict::WithinChance);
        assert_eq!(found.exceptions.len(), 1);
    }

    #[test]
    fn late_more_often_than_asked_is_an_exception() {
        let found = judged([83.0, 84.0, 85.0], [1.4, 1.6, 1.9]);
        assert_eq!(found.verdict, Verdict::Fails);
        assert!(
            found.exceptions[0].starts_with("joint is late in 1.63 % of the periods, more often than asked"),
            "{:?}",
            found.exceptions
        );
    }

    #[test]
    fn where_everything_on_is_late_that_is_the_measure() {
        let late = [
            law("fixed", [100.0; 3], [7.0; 3]),
            law(OURS, [99.0; 3], [8.0; 3]),
            law("slo-power", [90.0; 3], [9.0; 3]),
        ];
        let found = ordering(&late, "fixed", ASKED).unwrap();
        assert!((found.kept_percent - 8.4).abs() < 1e-9);
        assert_eq!(found.verdict, Verdict::Holds);
        assert_eq!(found.kept_by, ["fixed"]);
        // Who is asked for more is judged by that.
        let asked = Ratio::from_percent(10.0);
        assert_eq!(ordering(&late, "fixed", asked).unwrap().kept_percent, 10.0);
        assert_eq!(ordering(&late[..1], "fixed", ASKED), None);
        assert_eq!(ordering(&late[1..2], "fixed", ASKED), None, "nobody to be before");
    }

    #[test]
    fn equal_energy_is_not_below() {
        let equal = [
            law("fixed", [100.0; 3], [0.0; 3]),
            law(OURS, [100.0; 3], [0.0; 3]),
        ];
        assert_eq!(
            ordering(&equal, "fixed", ASKED).unwrap().verdict,
            Verdict::WithinChance
        );
    }
}
