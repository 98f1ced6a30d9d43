//! A live run and its simulation, side by side: how far apart they are.
//!
//! Everywhere else energies of different sources are neither added nor compared. Here the comparison is what is asked for:
//! whether a simulated watt says what the live one does. So both keep their source, and the difference is given as a
//! distance, never as a saving.

use crate::archive::Archive;
use crate::error::Error;
use crate::figures::{ENERGY, OVER, SERVICE};
use crate::model::{PeriodRecord, RunId};
use crate::statistics::Mean;
use crate::summary::RunSummary;
use crate::text::{number_or_none, trimmed};
use headroom_units::{Cores, Seconds};
use serde::Serialize;

/// How the distance of two figures is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Distance {
    /// In percent of the live figure.
    Percent,
    /// As a difference, in the figure's own unit: for shares and counts near nothing.
    Difference,
}

/// One figure of a run, live and simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// What it is.
    pub name: String,
    /// Its unit.
    pub unit: &'static str,
    /// Live; `None` where the run has no such figure.
    pub live: Option<f64>,
    /// Simulated; likewise.
    pub simulated: Option<f64>,
    /// How the distance is given.
    pub distance: Distance,
    /// Simulated less live, as `distance` says; `None` where one of the two is not known, or the live figure is 0 and
    /// the distance would be a share of it.
    pub apart: Option<f64>,
    #[serde(skip)]
    decimals: usize,
}

impl Side {
    fn new(
        name: impl Into<String>,
        unit: &'static str,
        (live, simulated): (Option<f64>, Option<f64>),
        distance: Distance,
        decimals: usize,
    ) -> Self {
        let apart = live.zip(simulated).and_then(|(live, simulated)| match distance {
            Distance::Difference => Some(simulated - live),
            Distance::Percent => (live != 0.0).then(|| 100.0 * (simulated / live - 1.0)),
        });
        Self {
            name: name.into(),
            unit,
            live,
            simulated,
            distance,
            apart,
            decimals,
        }
    }

    /// The four cells of a table after the name: unit, live, simulated, apart.
    pub fn cells(&self) -> [String; 4] {
        let apart = self.apart.map_or_else(
            || crate::text::NONE.to_owned(),
            |apart| match self.distance {
                Distance::Percent => format!("{apart:+.1} %"),
                Distance::Difference => format!("{apart:+.*}", self.decimals.max(1)),
            },
        );
        [
            self.unit.to_owned(),
            number_or_none(self.live, self.decimals),
            number_or_none(self.simulated, self.decimals),
            apart,
        ]
    }
}

/// What two runs decided period by period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PeriodsApart {
    /// Periods that both have.
    pub periods: u64,
    /// Mean distance of the cores.
    pub cores: f64,
    /// Share of the periods in which they are less than one and a half cores, or a tenth, apart: percent.
    pub cores_alike_percent: f64,
    /// Mean distance of the caps, watts.
    pub cap_w: f64,
    /// Mean distance of the power consumed, watts.
    pub power_w: f64,
}

/// A live run and its simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Validation {
    /// The live run.
    pub live: RunSummary,
    /// The simulated one.
    pub simulated: RunSummary,
    /// Why the figures of the live run are not those of an undisturbed one, each in words.
    pub faults: Vec<String>,
    /// Their figures.
    pub sides: Vec<Side>,
    /// Period by period.
    pub by_period: PeriodsApart,
}

impl Validation {
    /// Reads both.
    ///
    /// # Errors
    /// A run that is not there or cannot be read.
    pub fn of(archive: &Archive, live: RunId, simulated: RunId) -> Result<Self, Error> {
        let by_period = by_period(&archive.periods(live)?, &archive.periods(simulated)?);
        let (live, simulated) = (archive.summary(live)?, archive.summary(simulated)?);
        Ok(Self {
            sides: sides(&live, &simulated),
            faults: crate::compare::faults(&live),
            live,
            simulated,
            by_period,
        })
    }
}

/// The figures that are compared, how, and with how many decimals.
const SIDES: [(&str, Distance, usize); 13] = [
    ("energy", Distance::Percent, 0),
    ("power consumed, mean", Distance::Percent, 1),
    ("power allocated, mean", Distance::Percent, 1),
    ("power ratio", Distance::Percent, 3),
    ("cores, mean", Distance::Percent, 2),
    ("utilisation, mean", Distance::Percent, 1),
    ("latency, mean", Distance::Percent, 1),
    ("latency P50", Distance::Percent, 1),
    ("latency P95", Distance::Percent, 1),
    ("latency P99", Distance::Percent, 1),
    (OVER, Distance::Difference, 1),
    ("requests answered", Distance::Difference, 0),
    ("requests failed", Distance::Difference, 0),
];

/// The figures of two runs.
fn sides(live: &RunSummary, simulated: &RunSummary) -> Vec<Side> {
    let side = |&(name, distance, decimals): &(&str, Distance, usize)| {
        let figure = ENERGY.iter().chain(&SERVICE).find(|figure| figure.name == name)?;
        let shown = if name == OVER {
            live.slo.missing()
        } else {
            name.to_owned()
        };
        let both = ((figure.value)(live), (figure.value)(simulated));
        Some(Side::new(shown, figure.unit, both, distance, decimals))
    };
    SIDES.iter().filter_map(side).collect()
}

/// Cores that are so near are the same decision: less than a step and a half, or a tenth.
fn alike(live: Cores, simulated: Cores) -> bool {
    let apart = (live - simulated).get().abs();
    apart < 1.5 || apart <= 0.1 * live.get()
}

fn by_period(live: &[PeriodRecord], simulated: &[PeriodRecord]) -> PeriodsApart {
    let mut simulated = simulated.iter().peekable();
    let mut periods = 0;
    let (mut cores, mut same, mut caps, mut powers) = <(Mean, Mean, Mean, Mean)>::default();
    for live in live {
        while simulated.next_if(|period| period.index < live.index).is_some() {}
        let Some(other) = simulated.next_if(|period| period.index == live.index) else {
            continue;
        };
        periods += 1;
        if let Some((live, other)) = live.cores.zip(other.cores) {
            cores.add((live - other).get().abs());
            same.add(if alike(live, other) { 100.0 } else { 0.0 });
        }
        if let Some((live, other)) = live.cap.zip(other.cap) {
            caps.add((live - other).get().abs());
        }
        if let Some((live, other)) = live.mean_power().zip(other.mean_power()) {
            powers.add((live.value - other.value).get().abs());
        }
    }
    let mean = |mean: Mean| mean.value().unwrap_or_default();
    PeriodsApart {
        periods,
        cores: mean(cores),
        cores_alike_percent: mean(same),
        cap_w: mean(caps),
        power_w: mean(powers),
    }
}

impl PeriodsApart {
    /// In a sentence.
    pub fn text(&self, period: Seconds) -> String {
        format!(
            "Period by period ({} of {} s): cores {:.2} apart on average, and the same (to 1 core, or a tenth) in {:.0} % of \
             the periods; caps {:.1} W and power {:.1} W apart.",
            self.periods,
            trimmed(period.get()),
            self.cores,
            self.cores_alike_percent,
            self.cap_w,
            self.power_w,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_units::Watts;
    use headroom_units::{Emulated, Simulated};

    #[test]
    fn a_distance_is_a_share_of_the_live_figure_or_a_difference() {
        let side = |live, simulated, distance| Side::new("x", "J", (live, simulated), distance, 1);
        let cells = |side: Side| side.cells()[1..].to_vec();
        let percent = side(Some(200.0), Some(190.0), Distance::Percent);
        assert_eq!(percent.apart, Some(-5.000000000000004));
        assert_eq!(cells(percent), ["200.0", "190.0", "-5.0 %"]);
        let difference = side(Some(0.0), Some(1.5), Distance::Difference);
        assert_eq!(cells(difference), ["0.0", "1.5", "+1.5"]);
        assert_eq!(side(Some(0.0), Some(1.0), Distance::Percent).apart, None);
        assert_eq!(cells(side(None, Some(1.0), Distance::Percent)), ["-", "1.0", "-"]);
    }

    #[test]
    fn periods_are_paired_by_their_numbers() {
        let period = |index: u64, cores: f64, watts: f64, simulated: bool| {
            let watts = Watts::new(watts);
            PeriodRecord {
                cap: Some(Watts::new(80.0 + cores)),
                power: Some(if simulated {
                    Simulated(watts).into()
                } else {
                    Emulated(watts).into()
                }),
                ..PeriodRecord::new(
                    index,
                    Seconds::new(index as f64),
                    Seconds::new(1.0),
                    Cores::new(cores),
                )
            }
        };
        let live = [
            period(0, 16.0, 70.0, false),
            period(1, 10.0, 60.0, false),
            period(3, 4.0, 60.0, false),
        ];
        let simulated = [
            period(0, 16.0, 71.0, true),
            period(1, 11.0, 60.0, true),
            period(2, 9.0, 60.0, true),
            period(3, 6.0, 63.0, true),
        ];
        let apart = by_period(&live, &simulated);
        assert_eq!(apart.periods, 3);
        assert!(
            (apart.cores - 1.0).abs() < 1e-12 && (apart.cap_w - 1.0).abs() < 1e-12,
            "{apart:?}"
        );
        assert!((apart.cores_alike_percent - 200.0 / 3.0).abs() < 1e-9);
        assert!((apart.power_w - 4.0 / 3.0).abs() < 1e-12);
        assert_eq!(by_period(&live, &[]).periods, 0);
        assert!(
            apart
                .text(Seconds::new(0.5))
                .contains("(3 of 0.5 s): cores 1.00 apart")
        );
    }
}
