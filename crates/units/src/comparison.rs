//! Settings that a law compared by having each in force in turn: what each did, and what was found.

use crate::{Joules, PerSecond, Ratio, Reading, Seconds, Setting};
use serde::{Deserialize, Serialize};

/// What became of a setting in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It was found: the best, or the preferred one of those that are as good.
    Found,
    /// As good as the best, as far as can be told; another one is preferred.
    AsGood,
    /// Worse than the best.
    Worse,
    /// Nothing was found, for the comparison was given up, or the load changed while it went on; or it had no whole turn, or was
    /// dropped for another reason than its score or a loss of load.
    Open,
}

impl Verdict {
    /// For people.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::AsGood => "as good",
            Self::Worse => "worse",
            Self::Open => "no verdict",
        }
    }
}

/// A setting of a comparison, with means over the periods that were scored while it was in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The setting; without a value nothing was limited.
    pub setting: Setting,
    /// Turns that it had.
    pub turns: u64,
    /// Periods that were scored.
    pub periods: u64,
    /// Queries answered per second; `None` where no period was scored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<PerSecond>,
    /// Energy for each query; `None` where it is not known of every scored period, or of several sources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_per_query: Option<Reading<Joules>>,
    /// Mean of the periods' latencies at the SLO's percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_at_slo: Option<Seconds>,
    /// Mean of the periods' P99; `None` where the telemetry tells no distribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<Seconds>,
    /// By how much it scored more than the best of the others, as a share; less than 0 where it scored less; `None` where it cannot be
    /// said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<Ratio>,
    /// What became of it.
    pub verdict: Verdict,
    /// Why it was not tried, had a turn cut short, or was dropped beside its score, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A comparison that is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// When it began, from the start of the run.
    pub began: Seconds,
    /// When it ended, from the start of the run.
    pub ended: Seconds,
    /// What it was about and how it ended, in words.
    pub about: String,
    /// The settings, the preferred first.
    pub compared: Vec<Compared>,
}

impl Comparison {
    /// The rule of a decision by which a setting that is compared is in force.
    pub const UNDER_WAY: &'static str = "oncall-compare";
    /// The rule of one by which what a setting left is served, before the comparison goes on.
    pub const DRAINING: &'static str = "oncall-drain";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lever, Source};

    #[test]
    fn a_comparison_is_read_back_as_it_was_written() {
        let all = Comparison {
            began: Seconds::new(1.5),
            ended: Seconds::new(9.0),
            about: "queries always wait".to_owned(),
            compared: vec![
                Compared {
                    setting: Setting::from([(Lever::Concurrency, 4.0), (Lever::QueryBatch, 2.0)]),
                    turns: 3,
                    periods: 12,
                    rate: Some(PerSecond::new(812.0)),
                    energy_per_query: Some(Reading::new(Joules::new(0.03), Source::Estimated)),
                    latency_at_slo: Some(Seconds::from_millis(9.0)),
                    p99: None,
                    gain: Some(Ratio::new(0.04)),
                    verdict: Verdict::Found,
                    why: None,
                },
                Compared {
                    setting: Setting::default(),
                    turns: 0,
                    periods: 0,
                    rate: None,
                    energy_per_query: None,
                    latency_at_slo: None,
                    p99: None,
                    gain: None,
                    verdict: Verdict::Open,
                    why: Some("not tried".to_owned()),
                },
            ],
        };
        let text = serde_json::to_string(&all).unwrap();
        assert!(
            text.contains("\"verdict\":\"found\"") && text.contains("\"source\":\"estimated\""),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Comparison>(&text).unwrap(), all);
    }
}
