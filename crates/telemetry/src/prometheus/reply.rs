//! What the query API answers: one number, or why there is none.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// So many series are listed where there should be one.
const LISTED_MAX: usize = 5;

/// One value with its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub value: f64,
    /// Seconds since 1970.
    pub at_s: f64,
}

/// Why a reply gives no number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("the server answered status {status}: {message}")]
    Refused { status: u16, message: String },
    #[error("the reply is not that of a Prometheus query: {0}")]
    Shape(String),
    #[error(
        "the result is empty: no series matches, or none has a sample that is new enough; check the names and labels, \
         and whether the target is scraped"
    )]
    Empty,
    #[error("the result has {count} series ({listed}): make it one, for example by sum(...) or max(...)")]
    Several { count: usize, listed: String },
    #[error(
        "the result is a {0}: ask for an instant vector of one series, or a scalar (no range like [1m] outside)"
    )]
    Kind(String),
    #[error(
        "the result is a native histogram: ask for a number, for example by histogram_quantile(0.95, ...)"
    )]
    Histogram,
}

#[derive(Deserialize)]
struct Reply {
    status: String,
    #[serde(default)]
    data: Option<Data>,
    #[serde(default)]
    error: Option<String>,
}

#[derive(Deserialize)]
struct Data {
    #[serde(rename = "resultType")]
    result_type: String,
    result: Value,
}

#[derive(Deserialize)]
struct Series {
    #[serde(default)]
    metric: BTreeMap<String, String>,
    #[serde(default)]
    value: Option<(f64, String)>,
    #[serde(default)]
    histogram: Option<Value>,
}

/// Reads a reply.
pub(super) fn read(status: u16, body: &[u8]) -> Result<Sample, Fault> {
    let reply: Reply = match serde_json::from_slice(body) {
        Ok(reply) => reply,
        Err(_) if status != 200 => {
            let start = String::from_utf8_lossy(&body[..body.len().min(120)])
                .trim()
                .to_owned();
            return Err(Fault::Refused {
                status,
                message: start,
            });
        }
        Err(error) => return Err(Fault::Shape(error.to_string())),
    };
    if status != 200 || reply.status != "success" {
        return Err(Fault::Refused {
            status,
            message: reply.error.unwrap_or(reply.status),
        });
    }
    let data = reply.data.ok_or_else(|| Fault::Shape("it has no data".into()))?;
    let shape = |error: serde_json::Error| Fault::Shape(error.to_string());
    let (at_s, value) = match data.result_type.as_str() {
        "scalar" => serde_json::from_value(data.result).map_err(shape)?,
        "vector" => {
            let mut series: Vec<Series> = serde_json::from_value(data.result).map_err(shape)?;
            if series.len() > 1 {
                let listed: Vec<String> = series.iter().take(LISTED_MAX).map(Series::name).collect();
                let more = if series.len() > LISTED_MAX { ", …" } else { "" };
                return Err(Fault::Several {
                    count: series.len(),
                    listed: listed.join(", ") + more,
                });
            }
            let only = series.pop().ok_or(Fault::Empty)?;
            match (only.value, only.histogram) {
                (Some(value), _) => value,
                (None, Some(_)) => return Err(Fault::Histogram),
                (None, None) => return Err(Fault::Shape("the series has no value".into())),
            }
        }
        other => return Err(Fault::Kind(other.to_owned())),
    };
    let value = value
        .parse()
        .map_err(|_| Fault::Shape(format!("{value:?} is no number")))?;
    Ok(Sample { value, at_s })
}

impl Series {
    fn name(&self) -> String {
        let name = self.metric.get("__name__").map_or("", String::as_str);
        let labels: Vec<String> = self
            .metric
            .iter()
            .filter(|(label, _)| *label != "__name__")
            .map(|(label, value)| format!("{label}={value:?}"))
            .collect();
        format!("{name}{{{}}}", labels.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn success(result_type: &str, result: &str) -> Result<Sample, Fault> {
        let body =
            format!(r#"{{"status":"success","data":{{"resultType":"{result_type}","result":{result}}}}}"#);
        read(200, body.as_bytes())
    }

    #[test]
    fn one_number_is_read() {
        let sample = Sample {
            value: 0.25,
            at_s: 1_435_781_451.781,
        };
        assert_eq!(success("scalar", r#"[1435781451.781,"0.25"]"#), Ok(sample));
        let vector = r#"[{"metric":{"__name__":"up","job":"x"},"value":[1435781451.781,"0.25"]}]"#;
        assert_eq!(success("vector", vector), Ok(sample));
        assert!(success("scalar", r#"[1,"NaN"]"#).unwrap().value.is_nan());
        assert_eq!(success("scalar", r#"[1,"+Inf"]"#).unwrap().value, f64::INFINITY);
    }

    #[test]
    fn what_is_no_number_says_why() {
        assert_eq!(success("vector", "[]"), Err(Fault::Empty));
        assert_eq!(success("matrix", "[]"), Err(Fault::Kind("matrix".into())));
        let histogram = r#"[{"metric":{},"histogram":[1,{"count":"3"}]}]"#;
        assert_eq!(success("vector", histogram), Err(Fault::Histogram));
        let two = r#"[{"metric":{"job":"a"},"value":[1,"1"]},{"metric":{"job":"b"},"value":[1,"2"]}]"#;
        let text = success("vector", two).unwrap_err().to_string();
        assert!(
            text.contains("2 series") && text.contains("job=\"b\"") && text.contains("sum("),
            "{text}"
        );
        let refused = read(
            400,
            br#"{"status":"error","errorType":"bad_data","error":"parse error at char 3"}"#,
        );
        assert!(refused.unwrap_err().to_string().contains("parse error at char 3"));
        assert!(matches!(
            read(502, b"<html>"),
            Err(Fault::Refused { status: 502, .. })
        ));
        assert!(matches!(read(200, b"<html>"), Err(Fault::Shape(_))));
        assert!(matches!(success("scalar", r#"[1,"x"]"#), Err(Fault::Shape(_))));
    }

    proptest! {
        #[test]
        fn no_reply_makes_it_panic(body in "[ -~]{0,200}", result in "[ -~]{0,100}") {
            let _ = read(200, body.as_bytes());
            let _ = success("vector", &result);
        }
    }
}
