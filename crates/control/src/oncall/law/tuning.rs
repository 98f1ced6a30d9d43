//! The parameters of the laws for a server on call.

use super::super::delay::Goal;
use super::super::policy::{Apples, Fair, Paced, Policy, PsloStyle, Table, UtsloStyle};
use super::AreasTuning;
use crate::parameter::{Bound, OutOfRange, Parameters, refused};
use crate::plant::Slo;
use serde::Deserialize;
use std::collections::BTreeMap;

/// What a server on call is run for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GoalName {
    /// The most queries per joule within the SLO.
    #[default]
    Slo,
    /// EE(TPP): queries per joule alone.
    Throughput,
    /// EE(P99): queries per joule, over P99's ratio to the mean.
    P99,
    /// EE(P99.9): the same of P99.9.
    #[serde(rename = "p99.9")]
    P999,
}

impl GoalName {
    /// The goal with its SLO.
    pub(super) const fn goal(self, slo: Slo) -> Goal {
        match self {
            Self::Slo => Goal::Slo(slo),
            Self::Throughput => Goal::Throughput,
            Self::P99 => Goal::TailP99,
            Self::P999 => Goal::TailP999,
        }
    }
}

/// Which connection has how many turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// Weighted round robin.
    #[default]
    Fair,
    /// AppleS: no two turns in a row.
    Apples,
    /// In the style of PSLO: connections with percentile SLOs go first while one is missed.
    Pslo,
    /// In the style of UTSLO: the same by user disengagement ratios.
    Utslo,
    /// Connections with an SLO are always next, and ask no sooner than they must.
    Paced,
    /// By the table of classes.
    Table,
}

impl std::fmt::Display for PolicyName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Fair => "fair",
            Self::Apples => "apples",
            Self::Pslo => "pslo",
            Self::Utslo => "utslo",
            Self::Paced => "paced",
            Self::Table => "table",
        })
    }
}

/// A class in a table of the user's own.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableRow {
    /// Queries of a connection in a round; 0 is one in 20 s.
    pub tokens: u32,
    /// Its share of the turns beside other classes.
    #[serde(default = "one")]
    pub share: f64,
}

/// C at most: more workers than this no server on call has.
const MAX_CONCURRENCY: f64 = 4_096.0;

const fn one() -> f64 {
    1.0
}

/// The parameters of [`super::OnCall`]: `[law.on-call]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OncallTuning {
    /// What for.
    pub goal: GoalName,
    /// Which connection has how many turns.
    pub policy: PolicyName,
    /// The user's own table, by the name of a class, where that is the policy.
    pub table: BTreeMap<String, TableRow>,
    /// Whether all have turns by weight for a while where an SLO is missed though all others give way.
    pub gives_up: bool,
    /// Which connections run on which cores.
    pub areas: AreasTuning,
    /// N at most.
    pub max_batch: u32,
    /// D at most, milliseconds; 0 is never one.
    pub max_delay_ms: f64,
    /// From so long on an idle period saves energy, milliseconds; by the machine's deepest idle state where it is not given.
    pub break_even_ms: Option<f64>,
    /// Periods after a change that say nothing of it.
    pub settle_periods: u32,
    /// Periods for which a setting is in force until another is compared with it.
    pub block_periods: u32,
    /// How often each setting is compared at most.
    pub max_rounds: u32,
    /// Standard errors by which a setting must be worse to be dropped.
    pub significance: f64,
    /// The share by which a setting must be better to be preferred to one with fewer workers, fewer queries a round or a shorter delay.
    pub least_gain: f64,
    /// Periods for which what was found is kept before its neighbours are tried; doubled up to 8 times while none is better.
    pub retry_periods: u32,
}

impl Default for OncallTuning {
    fn default() -> Self {
        Self {
            goal: GoalName::default(),
            policy: PolicyName::default(),
            table: BTreeMap::new(),
            gives_up: true,
            areas: AreasTuning::default(),
            max_batch: 8,
            max_delay_ms: 20.0,
            break_even_ms: None,
            settle_periods: 2,
            block_periods: 6,
            max_rounds: 6,
            significance: 3.0,
            least_gain: 0.01,
            retry_periods: 1_200,
        }
    }
}

impl Parameters for OncallTuning {
    fn outside(&self) -> Vec<OutOfRange> {
        let rows = self.table.iter().map(|(name, row)| {
            Bound::Positive.check(format!("table.{name}.share"), row.share)?;
            Bound::Between(0.0, 1024.0).check(format!("table.{name}.tokens"), f64::from(row.tokens))?;
            // A live server keeps to a share of the turns by fewer queries in each.
            match row.tokens > 0 && f64::from(row.tokens) * row.share < 1.0 {
                true => Err(OutOfRange::new(
                    format!("table.{name}.share"),
                    row.share,
                    "so large that a turn has a query: at least 1 / tokens; give all rows more tokens",
                )),
                false => Ok(()),
            }
        });
        let missing = (self.policy == PolicyName::Table && self.table.is_empty()).then(|| {
            Err(OutOfRange::missing(
                "table",
                "one row or more, as in gold = { tokens = 8 }, where the policy is `table`",
            ))
        });
        refused(
            [
                Bound::Between(1.0, 1024.0).check("max_batch", f64::from(self.max_batch)),
                Bound::Between(0.0, 10_000.0).check("max_delay_ms", self.max_delay_ms),
                Bound::Between(0.001, 1_000.0).check("break_even_ms", self.break_even_ms.unwrap_or(1.0)),
                Bound::Between(0.0, 100.0).check("settle_periods", f64::from(self.settle_periods)),
                Bound::Between(1.0, 1_000.0).check("block_periods", f64::from(self.block_periods)),
                Bound::Between(3.0, 100.0).check("max_rounds", f64::from(self.max_rounds)),
                Bound::Between(0.5, 10.0).check("significance", self.significance),
                Bound::Between(0.0, 0.5).check("least_gain", self.least_gain),
                Bound::Between(1.0, 1e6).check("retry_periods", f64::from(self.retry_periods)),
            ]
            .into_iter()
            .chain(rows)
            .chain(self.areas.outside())
            .chain(missing),
        )
    }
}

impl OncallTuning {
    /// The policy, where it has to be asked: weighted turns of connections that weigh the same are what the server does by itself.
    pub(super) fn policy(&self) -> Box<dyn Policy> {
        match self.policy {
            PolicyName::Fair => Box::new(Fair { tokens: 1 }),
            PolicyName::Apples => Box::new(Apples { tokens: 1 }),
            PolicyName::Pslo => Box::new(PsloStyle::new(1)),
            PolicyName::Utslo => Box::new(UtsloStyle::new(1)),
            PolicyName::Paced => Box::new(Paced::new(1)),
            PolicyName::Table => {
                let rows = self.table.iter();
                Box::new(Table(
                    rows.map(|(name, row)| (name.clone(), (row.tokens, row.share)))
                        .collect(),
                ))
            }
        }
    }
}

/// The parameters of [`super::Reef`]: `[law.reef]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReefTuning {
    /// What for.
    pub goal: GoalName,
    /// Which connection has how many turns.
    pub policy: PolicyName,
    /// The user's own table, by the name of a class, where that is the policy.
    pub table: BTreeMap<String, TableRow>,
    /// Whether all have turns by weight for a while where an SLO is missed though all others give way.
    pub gives_up: bool,
    /// Which connections run on which cores.
    pub areas: AreasTuning,
    /// C, where it is not to be found online. With as many as there are connections nobody waits for a slot, and the policy alone says who pauses.
    pub concurrency: Option<u32>,
    /// N at most; the paper: 8.
    pub max_batch: u32,
    /// D at most, milliseconds; 0 is never one.
    pub max_delay_ms: f64,
    /// From so long on an idle period saves energy, milliseconds; by the machine's deepest idle state where it is not given.
    pub break_even_ms: Option<f64>,
}

impl Default for ReefTuning {
    fn default() -> Self {
        let OncallTuning {
            goal,
            policy,
            table,
            gives_up,
            areas,
            max_batch,
            max_delay_ms,
            break_even_ms,
            ..
        } = OncallTuning::default();
        Self {
            goal,
            policy,
            table,
            gives_up,
            areas,
            concurrency: None,
            max_batch,
            max_delay_ms,
            break_even_ms,
        }
    }
}

impl ReefTuning {
    /// What both laws have, with the defaults of the rest.
    pub(super) fn shared(&self) -> OncallTuning {
        OncallTuning {
            goal: self.goal,
            policy: self.policy,
            table: self.table.clone(),
            gives_up: self.gives_up,
            areas: self.areas.clone(),
            max_batch: self.max_batch,
            max_delay_ms: self.max_delay_ms,
            break_even_ms: self.break_even_ms,
            ..OncallTuning::default()
        }
    }
}

impl Parameters for ReefTuning {
    fn outside(&self) -> Vec<OutOfRange> {
        let workers = f64::from(self.concurrency.unwrap_or(1));
        let own = Bound::Between(1.0, MAX_CONCURRENCY).check("concurrency", workers);
        refused(
            [own]
                .into_iter()
                .chain(self.shared().outside().into_iter().map(Err)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::assert_refused;

    #[test]
    fn what_is_outside_its_range_is_refused_by_its_key() {
        assert_refused::<OncallTuning>(
            Parameters::check,
            &[
                (r#"{"max_batch": 0}"#, "max_batch is 0"),
                (r#"{"max_delay_ms": -1}"#, "max_delay_ms is -1"),
                (
                    r#"{"policy": "table"}"#,
                    "table is missing: it must be one row or more",
                ),
                (
                    r#"{"policy": "table", "table": {"gold": {"tokens": 8, "share": 0}}}"#,
                    "table.gold.share is 0",
                ),
                (r#"{"max_rounds": 2}"#, "max_rounds is 2"),
            ],
        );
        assert_refused::<ReefTuning>(
            Parameters::check,
            &[
                (r#"{"concurrency": 0}"#, "concurrency is 0"),
                (r#"{"concurrency": 100000}"#, "concurrency is 100000"),
                (r#"{"max_batch": 0}"#, "max_batch is 0"),
            ],
        );
    }
}
