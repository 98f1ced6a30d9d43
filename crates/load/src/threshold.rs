//! What a load's result must not be: `p95>250ms`, `failed>1%`, `rate<100/s`.

use crate::result::LoadResult;
use headroom_units::Seconds;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

const FORMS: &str = "write p50, p90, p95, p99, p99.9, mean or max and a time (p95>250ms), failed and a percentage (failed>1%), \
                     or rate and a number a second (rate<100/s), with >, >=, < or <=";

/// Figures of a result by which it is judged, the names that begin with another's first.
const METRICS: [(&str, Metric); 9] = [
    ("p50", Metric::P50),
    ("p90", Metric::P90),
    ("p95", Metric::P95),
    ("p99.9", Metric::P999),
    ("p99", Metric::P99),
    ("mean", Metric::Mean),
    ("max", Metric::Max),
    ("failed", Metric::Failed),
    ("rate", Metric::Rate),
];

/// How figures are compared, those of two characters first.
const COMPARISONS: [(&str, Comparison); 4] = [
    (">=", |value, bound| value >= bound),
    ("<=", |value, bound| value <= bound),
    (">", |value, bound| value > bound),
    ("<", |value, bound| value < bound),
];

type Comparison = fn(f64, f64) -> bool;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    P50,
    P90,
    P95,
    P99,
    P999,
    Mean,
    Max,
    Failed,
    Rate,
}

impl Metric {
    /// In what it is counted.
    fn unit(self) -> &'static str {
        match self {
            Self::Failed => "%",
            Self::Rate => "/s",
            _ => "ms",
        }
    }

    /// A bound for it, in its unit.
    fn bound(self, text: &str) -> Option<f64> {
        let number = |text: &str| text.trim().parse().ok();
        let bound: f64 = match self {
            Self::Failed => number(text.strip_suffix('%')?).filter(|percent| *percent <= 100.0)?,
            Self::Rate => number(text.strip_suffix("/s")?)?,
            // A time without a unit would be seconds, where milliseconds may be meant.
            _ if !text.ends_with(|last: char| last.is_ascii_alphabetic()) => return None,
            _ => 1000.0 * text.parse::<Seconds>().ok()?.get(),
        };
        (bound.is_finite() && bound >= 0.0).then_some(bound)
    }

    /// What a result has of it, in its unit; an error says why it has none.
    fn of(self, result: &LoadResult) -> Result<f64, &'static str> {
        let counts = &result.counts;
        if counts.offered == 0 {
            return Err("no request was sent");
        }
        let latency = &result.latency_ms;
        let value = match self {
            Self::Failed => return Ok(100.0 * counts.failed.total() as f64 / counts.offered as f64),
            Self::Rate => return Ok(result.completed_per_second.get()),
            // Requests that were given up have a latency too, but only a lower bound of one.
            _ if counts.completed == 0 => None,
            Self::P50 => latency.p50,
            Self::P90 => latency.p90,
            Self::P95 => latency.p95,
            Self::P99 => latency.p99,
            Self::P999 => latency.p999,
            Self::Mean => latency.mean,
            Self::Max => latency.max,
        };
        value.ok_or("no request was completed")
    }
}

/// A condition on a load's result under which the load has failed. Read from text: a figure, a comparison and a bound with its
/// unit, as `p95>250ms`; latencies are those from the intended send time, the rate that of completed requests.
#[derive(Clone, Debug)]
pub struct Threshold {
    metric: Metric,
    comparison: Comparison,
    /// In the metric's unit.
    bound: f64,
    /// As it was written, without blanks.
    text: String,
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (name, metric, rest) = METRICS
                .iter()
                .find_map(|(name, metric)| Some((*name, *metric, text.trim().strip_prefix(name)?)))?;
            let (sign, comparison, bound) = COMPARISONS.iter().find_map(|(sign, comparison)| {
                Some((*sign, *comparison, rest.trim().strip_prefix(sign)?.trim()))
            })?;
            Some(Self {
                metric,
                comparison,
                bound: metric.bound(bound)?,
                text: format!("{name}{sign}{}", bound.replace(char::is_whitespace, "")),
            })
        };
        read().ok_or_else(|| format!("`{text}` is no condition on a result: {FORMS}"))
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Threshold {
    /// Judges a result. One that has no such figure is failed: nothing shows that it is good.
    pub fn judge(&self, result: &LoadResult) -> Judged {
        let value = self.metric.of(result);
        Judged {
            fail_if: self.text.clone(),
            value: value.ok(),
            unit: self.metric.unit(),
            failed: value.map_or(true, |value| (self.comparison)(value, self.bound)),
            unjudged: value.err(),
        }
    }
}

/// What a threshold says of a result. Displayed as a line for people.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The threshold.
    pub fail_if: String,
    /// The result's figure; `None` where it has none.
    pub value: Option<f64>,
    /// In what that is: `ms`, `%` or `/s`.
    pub unit: &'static str,
    /// Whether the load has failed by it.
    pub failed: bool,
    /// Why it could not be judged, which is a failure.
    pub unjudged: Option<&'static str>,
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.fail_if)?;
        match (self.value, self.unjudged) {
            (Some(value), _) => {
                let verdict = if self.failed { "failed" } else { "kept" };
                write!(
                    f,
                    "{verdict}, at {value:.2}{}{}",
                    if self.unit == "ms" { " " } else { "" },
                    self.unit
                )
            }
            (None, why) => write!(
                f,
                "failed, for it cannot be judged: {}",
                why.unwrap_or("it has no figure")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::LoadPeriod;
    use headroom_units::PerSecond;
    use proptest::prelude::*;

    fn read(text: &str) -> Threshold {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    /// 1,000 requests, of which so many were completed.
    fn result(completed: u64) -> LoadResult {
        let mut result = LoadResult::new("http://x/".into(), (1, 1), LoadPeriod::new(Seconds::ZERO, 0));
        result.counts.offered = 1000;
        result.counts.completed = completed;
        result.counts.failed.timeout = 1000 - completed;
        result.completed_per_second = PerSecond::new(completed as f64 / 10.0);
        result.latency_ms = crate::Summary {
            mean: Some(60.0),
            p50: Some(50.0),
            p90: Some(90.0),
            p95: Some(95.0),
            p99: Some(99.0),
            p999: Some(99.9),
            max: Some(100.0),
        };
        result
    }

    #[test]
    fn a_result_is_judged_by_each_of_its_figures() {
        let result = result(980);
        for (text, failed) in [
            ("p50>50ms", false),
            ("p50>=50ms", true),
            ("p90 > 0.0899s", true),
            ("p95<95ms", false),
            ("p95<=95ms", true),
            ("p99>99ms", false),
            ("p99.9>99ms", true),
            ("p99.9 > 1m", false),
            ("mean>59.9ms", true),
            ("max>100ms", false),
            ("failed>2%", false),
            ("failed>1.9%", true),
            ("rate<98/s", false),
            ("rate < 98.1 /s", true),
        ] {
            let judged = read(text).judge(&result);
            assert_eq!(
                (judged.failed, judged.unjudged),
                (failed, None),
                "{text}: {judged}"
            );
        }
        assert_eq!(
            read("p95 > 90ms").judge(&result).to_string(),
            "p95>90ms: failed, at 95.00 ms"
        );
        assert_eq!(
            read("failed>5%").judge(&result).to_string(),
            "failed>5%: kept, at 2.00%"
        );
        let json = serde_json::to_value(read("rate<98/s").judge(&result)).unwrap();
        let wanted = serde_json::json!(
            {"fail_if": "rate<98/s", "value": 98.0, "unit": "/s", "failed": false, "unjudged": null}
        );
        assert_eq!(json, wanted);
    }

    #[test]
    fn what_cannot_be_judged_has_failed_and_says_so() {
        let none_completed = result(0);
        for text in ["p95>1h", "p95<1ms", "max>1h", "mean>1h"] {
            let judged = read(text).judge(&none_completed);
            assert!(
                judged.failed && judged.to_string().contains("no request was completed"),
                "{judged}"
            );
        }
        assert!(read("failed>99%").judge(&none_completed).value == Some(100.0));
        assert!(read("rate<1/s").judge(&none_completed).failed);
        let mut none_sent = result(0);
        none_sent.counts.offered = 0;
        for text in ["p95>1h", "failed>99%", "rate<1/s"] {
            let judged = read(text).judge(&none_sent);
            assert!(
                judged.failed && judged.to_string().contains("no request was sent"),
                "{judged}"
            );
        }
    }

    #[test]
    fn what_is_no_condition_is_refused_with_the_forms() {
        for text in [
            "",
            "p95",
            "p95>",
            ">250ms",
            "p95>250",
            "p95>fast",
            "p95=250ms",
            "p95>>250ms",
            "p95>2 50ms",
            "p95>-1ms",
            "p96>250ms",
            "p99.5>1s",
            "failed>1",
            "failed>101%",
            "failed>-1%",
            "failed>x%",
            "failed>1ms",
            "rate<100",
            "rate<nan/s",
            "rate<inf/s",
            "rate<100ms",
            "P95>250ms",
            "p95>250ms;p99>1s",
        ] {
            let error = text.parse::<Threshold>().unwrap_err();
            assert!(
                error.contains("p95>250ms") && error.contains("failed>1%") && error.contains("rate<100/s")
            );
        }
    }

    proptest! {
        /// Whatever is written with blanks between its parts is read as what it says.
        #[test]
        fn every_condition_is_read_back(
            metric in 0..METRICS.len(),
            comparison in 0..COMPARISONS.len(),
            bound in 0.0..100.0f64,
            blanks in proptest::collection::vec(0usize..3, 4),
            value in 0.0..200.0f64,
        ) {
            let (name, metric) = METRICS[metric];
            let (sign, compares) = COMPARISONS[comparison];
            let blank = |at: usize| " ".repeat(blanks[at]);
            let text = format!("{}{name}{}{sign}{}{bound}{}{}", blank(0), blank(1), blank(2), blank(3), metric.unit());
            let threshold = text.parse::<Threshold>().map_err(TestCaseError::fail)?;
            prop_assert_eq!(threshold.metric, metric);
            prop_assert!((threshold.bound - bound).abs() <= 1e-9 * bound);
            prop_assert_eq!((threshold.comparison)(value, bound), compares(value, bound));
            let again = threshold.to_string().parse::<Threshold>().map_err(TestCaseError::fail)?;
            prop_assert_eq!((again.metric, again.bound), (threshold.metric, threshold.bound));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}", tail in "[a-z0-9.<>=%/ -]{0,12}") {
            for text in [text, format!("p95>{tail}"), format!("failed{tail}"), format!("rate<{tail}")] {
                if let Ok(threshold) = text.parse::<Threshold>() {
                    prop_assert!(threshold.bound >= 0.0 && threshold.bound.is_finite());
                }
            }
        }
    }
}
