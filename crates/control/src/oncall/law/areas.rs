//! Areas of cores beside C, N and D: which law divides them, and how C is shared out among them.

use super::super::areas::{
    AreaDecision, AreaLaw, ConsolidationTuning, CoreArea, DemeterStyle, DemeterTuning, NoAreas,
    QosConsolidation, SatoriStyle, SatoriTuning,
};
use super::super::consolidation::Profile;
use super::Point;
use crate::decision::Reason;
use crate::observation::Observation;
use crate::parameter::{Bound, OutOfRange, require};
use crate::plant::FrequencyRange;
use headroom_units::{Hertz, PerSecond};
use serde::Deserialize;

/// Areas that can be told apart.
const MOST_AREAS: u32 = 8;

/// Which law divides a server's cores among its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum AreaLawName {
    /// Everybody runs everywhere.
    #[default]
    None,
    /// REEF's consolidation (Algorithm 1).
    Reef,
    /// In the style of Demeter, by cores alone.
    Demeter,
    /// In the style of SATORI.
    Satori,
}

impl TryFrom<String> for AreaLawName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        match &*name {
            "none" => Ok(Self::None),
            "reef" => Ok(Self::Reef),
            "demeter" => Ok(Self::Demeter),
            "satori" => Ok(Self::Satori),
            "weights" => Err(
                "\"weights\" is a baseline of the simulator alone: the kernel weighs threads by control groups or nice levels, and neither can be \
                 put back by a server whose Headroom was killed (a thread that was made less nice stays so without CAP_SYS_NICE, and in a \
                 group it may leave none that is root's): choose none, reef, demeter or satori"
                    .to_owned(),
            ),
            other => Err(format!(
                "{other:?} is no law of areas: choose none, reef, demeter or satori"
            )),
        }
    }
}

/// `areas` of a law for a server on call.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AreasTuning {
    /// Which law.
    pub law: AreaLawName,
    /// R, areas at most (`reef`).
    pub count: u32,
    /// What all connections without an SLO are to be served together at least, queries per second (`reef` and `demeter`).
    pub best_effort_per_s: Option<f64>,
    /// Queries per second on 1, 2, ... cores, one for each core (`reef`); measured where it is not given.
    pub profile_per_s: Vec<f64>,
    /// Periods for which each number of cores is measured.
    pub profile_periods: u32,
    /// Periods without a missed SLO before a core moves away from those that can spare it.
    pub clean_periods: u32,
}

impl Default for AreasTuning {
    fn default() -> Self {
        Self {
            law: AreaLawName::None,
            count: 2,
            best_effort_per_s: None,
            profile_per_s: Vec::new(),
            profile_periods: 6,
            clean_periods: 10,
        }
    }
}

impl AreasTuning {
    /// What is outside its range, by its key beside the law's others.
    pub(super) fn outside(&self) -> impl Iterator<Item = Result<(), OutOfRange>> + use<> {
        let needs_target = matches!(self.law, AreaLawName::Reef | AreaLawName::Demeter);
        let words = "greater than 0: the queries per second that connections without an SLO are to have together at least";
        let key = "areas.best_effort_per_s";
        let of_target = match self.best_effort_per_s {
            Some(target) => require(key, target, target > 0.0 && target.is_finite(), words),
            None if needs_target => Err(OutOfRange::missing(key, words)),
            None => Ok(()),
        };
        let profile = self
            .profile_per_s
            .iter()
            .map(|value| Bound::Positive.check("areas.profile_per_s", *value))
            .find(Result::is_err);
        [
            Bound::Between(1.0, f64::from(MOST_AREAS)).check("areas.count", f64::from(self.count)),
            of_target,
            Bound::Between(3.0, 1_000.0).check("areas.profile_periods", f64::from(self.profile_periods)),
            Bound::Between(1.0, 1e6).check("areas.clean_periods", f64::from(self.clean_periods)),
        ]
        .into_iter()
        .chain(profile)
    }

    fn law(&self, cores: u32) -> Result<Box<dyn AreaLaw>, OutOfRange> {
        let best_effort = PerSecond::new(self.best_effort_per_s.unwrap_or(0.0));
        Ok(match self.law {
            AreaLawName::None => Box::new(NoAreas),
            AreaLawName::Reef => Box::new(QosConsolidation::new(ConsolidationTuning {
                areas: self.count,
                profile: (!self.profile_per_s.is_empty())
                    .then(|| {
                        let values = self.profile_per_s.iter().copied().map(PerSecond::new);
                        Profile::new(values.collect())
                    })
                    .transpose()
                    .map_err(|_| OutOfRange::new("profile_per_s", 0.0, "greater than 0 for each core"))?,
                profile_periods: self.profile_periods,
                clean_periods: self.clean_periods,
                late_profile_periods: Some(LATE_PROFILE),
                ..ConsolidationTuning::of(cores, best_effort)
            })?),
            AreaLawName::Demeter => Box::new(DemeterStyle::new(DemeterTuning {
                cores,
                best_effort,
                // No lever of a server on call is a core's frequency: zones differ by their cores alone.
                frequency: FrequencyRange::new(ONE, ONE, ONE)
                    .map_err(|_| OutOfRange::new("law", 0.0, "another law"))?,
                clean_periods: self.clean_periods,
            })?),
            AreaLawName::Satori => {
                let law = SatoriStyle::new(SatoriTuning { cores });
                Box::new(law.map_err(|super::super::areas::SatoriError::OutOfRange(error)| error)?)
            }
        })
    }
}

/// Periods with a missed SLO that end the measuring of fewer cores.
const LATE_PROFILE: u32 = 2;
const ONE: Hertz = Hertz::new(1e9);

/// The law of areas that runs beside the law of C, N and D.
pub(super) struct Areas {
    law: Box<dyn AreaLaw>,
    cores: u32,
    /// What is in force until the law answers anything else.
    last: Vec<CoreArea>,
    is_measuring: bool,
}

impl Areas {
    /// For a server of so many cores.
    pub(super) fn new(tuning: &AreasTuning, cores: u32) -> Result<Self, OutOfRange> {
        let law = tuning.law(cores).map_err(|error| OutOfRange {
            key: format!("areas.{}", error.key).into(),
            ..error
        })?;
        Ok(Self {
            law,
            cores,
            last: Vec::new(),
            is_measuring: false,
        })
    }

    /// Whether fewer cores are in force for their throughput alone: nothing else is to be compared meanwhile.
    pub(super) const fn is_measuring(&self) -> bool {
        self.is_measuring
    }

    /// The areas of the next period, and why. Those without a C of their own have that of all in proportion to their cores, one at least:
    /// in one line, queries of the strictest area would wait behind all others.
    pub(super) fn decide(&mut self, observation: &Observation, point: Point) -> (Vec<CoreArea>, Vec<Reason>) {
        let mut reasons = Vec::new();
        if let Some(decision) = self.law.decide(observation) {
            (self.last, reasons) = (decision.areas, decision.reasons);
        }
        self.is_measuring = reasons
            .first()
            .is_some_and(|reason| reason.rule == "area-profile");
        let decision = AreaDecision {
            areas: self.last.clone(),
            ..AreaDecision::default()
        };
        if let Err(error) = decision.check(self.cores) {
            self.last.clear();
            let text = format!("warning: {error}: no areas");
            reasons.push(Reason::new("area-impossible", text, &[]));
            return (Vec::new(), reasons);
        }
        let mut areas = decision.areas;
        for area in areas.iter_mut().filter(|area| area.workers.is_none()) {
            let share = f64::from(area.cores) / f64::from(self.cores);
            let own = |all: u32| (f64::from(all) * share).ceil().max(1.0) as u32;
            area.workers = point.workers.map(own);
        }
        (areas, reasons)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::OncallObservation;
    use crate::oncall::policy::{Connection, Kept};
    use headroom_units::{Ratio, Seconds};

    fn connection(id: u64, slo: Option<f64>, queries: u64) -> Connection {
        let kept = |violations| Kept::Percentile {
            percentile: Ratio::new(0.99),
            violations: Ratio::new(violations),
            budget: Some(Seconds::from_millis(10.0)),
        };
        Connection {
            id,
            class: String::new(),
            weight: 1.0,
            queries,
            mean: None,
            cv: None,
            slos: slo.map(kept).into_iter().collect(),
            tokens: 1,
        }
    }

    /// A second: two connections with an SLO, missed by so much, and four without.
    fn period(missed: f64, waiting_least: u64, queries: u64) -> Observation {
        let sensitive = (0..2).map(|id| connection(id, Some(missed), queries / 6));
        let others = (2..6).map(|id| connection(id, None, queries / 6));
        Observation {
            length: Seconds::new(1.0),
            oncall: Some(OncallObservation {
                queries,
                waiting_least: Some(waiting_least),
                connections: 6,
                each: sensitive.chain(others).collect(),
                ..OncallObservation::default()
            }),
            ..Observation::default()
        }
    }

    fn areas(tuning: &AreasTuning) -> Areas {
        Areas::new(tuning, 4).unwrap()
    }

    fn reef() -> AreasTuning {
        AreasTuning {
            law: AreaLawName::Reef,
            best_effort_per_s: Some(600.0),
            profile_periods: 3,
            ..AreasTuning::default()
        }
    }

    fn rule(answer: &(Vec<CoreArea>, Vec<Reason>)) -> &str {
        &answer.1[0].rule
    }

    #[test]
    fn c_is_shared_out_by_cores() {
        let mut areas = areas(&AreasTuning {
            profile_per_s: vec![300.0, 600.0, 900.0, 1200.0],
            ..reef()
        });
        let (divided, _) = areas.decide(&period(0.0, 1, 1200), Point::new(6, 1));
        let of = |area: &CoreArea| (area.name.clone(), area.cores, area.workers);
        let expected = [("hot".to_owned(), 2, Some(3)), ("warm".to_owned(), 2, Some(3))];
        assert_eq!(divided.iter().map(of).collect::<Vec<_>>(), expected);
        // Not on call: processors alone.
        let (divided, _) = areas.decide(&period(0.0, 1, 1200), Point::OFF);
        assert!(divided.iter().all(|area| area.workers.is_none()));
    }

    #[test]
    fn cores_are_measured_while_queries_wait_and_no_longer_than_an_slo_is_missed() {
        let mut areas = areas(&reef());
        let point = Point::new(4, 1);
        // Nobody waits, or nobody has an SLO: what would be measured is the demand.
        assert_eq!(rule(&areas.decide(&period(0.0, 0, 600), point)), "area-waits");
        let mut nobody = period(0.0, 1, 600);
        nobody.oncall.as_mut().unwrap().each.clear();
        assert_eq!(rule(&areas.decide(&nobody, point)), "area-waits");
        let mut fewer = 0;
        for _ in 0..40 {
            let missed = if fewer > 0 { 0.5 } else { 0.0 };
            let answer = areas.decide(&period(missed, 1, 1200), point);
            if !areas.is_measuring() {
                // Fewer cores than were measured serve in proportion: 1200/s on four leave 600/s on two.
                assert_eq!(rule(&answer), "area-divided", "{answer:?}");
                assert_eq!(answer.0.iter().map(|area| area.cores).sum::<u32>(), 4);
                assert!((1..=3).contains(&fewer), "{fewer}");
                return;
            }
            fewer += u32::from(answer.0[0].cores < 4);
        }
        panic!("it measures for ever");
    }

    #[test]
    fn budgets_that_no_cores_can_keep_are_refused_in_words() {
        let mut areas = areas(&AreasTuning {
            profile_per_s: vec![100.0, 200.0, 300.0, 400.0],
            ..reef()
        });
        let (divided, reasons) = areas.decide(&period(0.0, 1, 400), Point::new(4, 1));
        assert!(divided.is_empty());
        assert_eq!(
            reasons[0].text,
            "warning: the SLOs cannot be met: the areas ask for 800.0/s in sum, and the application sustains 400.0/s"
        );
    }

    #[test]
    fn connections_that_come_and_go_leave_cores_where_they_have_moved() {
        let mut areas = areas(&AreasTuning {
            profile_per_s: vec![900.0, 1800.0, 2700.0, 3600.0],
            clean_periods: 1,
            ..reef()
        });
        let point = Point::new(4, 1);
        let first = areas.decide(&period(0.0, 1, 3600), point).0;
        assert_eq!(first.iter().map(|area| area.cores).collect::<Vec<_>>(), [3, 1]);
        let mut more = period(0.0, 1, 3600);
        let each = &mut more.oncall.as_mut().unwrap().each;
        each.remove(5);
        each.push(connection(9, None, 600));
        let (after, reasons) = areas.decide(&more, point);
        assert_eq!(reasons[0].rule, "area-budgets");
        assert!(after[1].connections.contains(&9) && !after[1].connections.contains(&5));
    }

    #[test]
    fn what_cannot_be_run_live_is_refused_with_the_reason() {
        let read = |text: &str| serde_json::from_str::<AreasTuning>(text).map_err(|error| error.to_string());
        assert!(
            read(r#"{"law": "weights"}"#)
                .unwrap_err()
                .contains("baseline of the simulator alone")
        );
        assert!(
            read(r#"{"law": "cold"}"#)
                .unwrap_err()
                .contains("no law of areas")
        );
        let wrong = read(r#"{"law": "reef"}"#).unwrap();
        let error = wrong.outside().find_map(Result::err).unwrap().to_string();
        assert!(
            error.starts_with("areas.best_effort_per_s is missing: it must be greater than 0"),
            "{error}"
        );
        let short = AreasTuning {
            profile_per_s: vec![1.0],
            ..reef()
        };
        let error = Areas::new(&short, 4).err().unwrap().to_string();
        assert_eq!(
            error,
            "areas.profile_per_s is 1: it must be one value for each core"
        );
    }
}
