//! A strict reader of the OpenMetrics 1.0 text format (the specification's sections "Text format" and "Metric types"),
//! written for these tests: whatever it is not sure of, it refuses.

use std::collections::{BTreeMap, BTreeSet};

/// One sample.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its full name, with the suffix.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

/// Everything that was exposed.
#[derive(Debug, Default)]
pub struct Exposition {
    /// The type of each family.
    pub types: BTreeMap<String, String>,
    /// All samples.
    pub samples: Vec<Sample>,
}

impl Exposition {
    /// The samples of a name.
    pub fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| sample.name == name)
    }

    /// Their sum; nothing where there is none.
    pub fn sum(&self, name: &str) -> Option<f64> {
        self.of(name).map(|sample| sample.value).reduce(|a, b| a + b)
    }
}

/// Reads an exposition.
pub fn parse(text: &str) -> Result<Exposition, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("it does not end with # EOF")?;
    let mut all = Exposition::default();
    let mut units: BTreeMap<String, String> = BTreeMap::new();
    let mut family = String::new();
    let mut begun: BTreeSet<String> = BTreeSet::new();
    let mut points: BTreeSet<String> = BTreeSet::new();
    for line in body.lines() {
        let bad = |why: &str| format!("{why}: {line:?}");
        if let Some(meta) = line.strip_prefix("# ") {
            let mut parts = meta.splitn(3, ' ');
            let (Some(kind), Some(name), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
                return Err(bad("not a metadata line"));
            };
            if !is_name(name) {
                return Err(bad("not a metric name"));
            }
            if name != family {
                if !begun.insert(name.to_owned()) {
                    return Err(bad("a family that is not in one piece"));
                }
                family = name.to_owned();
            } else if all.samples.last().is_some_and(|last| base(&last.name, name)) {
                return Err(bad("metadata after the samples"));
            }
            match kind {
                "TYPE" if ["counter", "gauge", "histogram", "summary", "info", "unknown"].contains(&rest) => {
                    if all.types.insert(name.to_owned(), rest.to_owned()).is_some() {
                        return Err(bad("a second type"));
                    }
                }
                "UNIT" if name.ends_with(&format!("_{rest}")) => {
                    units.insert(name.to_owned(), rest.to_owned());
                }
                "HELP" if !rest.is_empty() => {}
                _ => return Err(bad("metadata that is none")),
            }
            continue;
        }
        let sample = sample(line).ok_or_else(|| bad("not a sample"))?;
        let kind = all
            .types
            .get(&family)
            .ok_or_else(|| bad("a sample without a type"))?;
        let suffix = sample
            .name
            .strip_prefix(family.as_str())
            .ok_or_else(|| bad("a sample outside its family"))?;
        let allowed: &[&str] = match kind.as_str() {
            "counter" => &["_total", "_created"],
            "gauge" | "unknown" => &[""],
            "histogram" => &["_bucket", "_sum", "_count", "_created"],
            _ => return Err(bad("a type that Headroom does not use")),
        };
        if !allowed.contains(&suffix) {
            return Err(bad("not a suffix of this type"));
        }
        if kind != "gauge" && (sample.value.is_nan() || sample.value < 0.0) {
            return Err(bad("a count that is negative or none"));
        }
        if !points.insert(format!("{}{:?}", sample.name, sample.labels)) {
            return Err(bad("the same sample twice"));
        }
        all.samples.push(sample);
    }
    histograms(&all)?;
    Ok(all)
}

/// Whether a sample's name is of a family.
fn base(sample: &str, family: &str) -> bool {
    sample
        .strip_prefix(family)
        .is_some_and(|suffix| ["", "_total", "_created", "_bucket", "_sum", "_count"].contains(&suffix))
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_' || b == b':')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':')
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            if !is_name(label) || label.contains(':') || labels.insert(label.to_owned(), value).is_some() {
                return None;
            }
            rest = after.strip_prefix(',').unwrap_or(after);
            if rest.len() == after.len() && !rest.starts_with('}') {
                return None;
            }
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ')?;
    // Neither timestamps nor exemplars are exposed here.
    if value.contains(' ') || !is_name(name) {
        return None;
    }
    let value = match value {
        "NaN" => f64::NAN,
        // The sign is optional, and the case free (OpenMetrics 1.0, "number").
        "+Inf" | "inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        number
            if number
                .bytes()
                .all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b)) =>
        {
            number.parse().ok()?
        }
        _ => return None,
    };
    Some(Sample {
        name: name.to_owned(),
        labels,
        value,
    })
}

/// A label's value up to its closing quote, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                same @ ('\\' | '"') => same,
                _ => return None,
            }),
            other => value.push(other),
        }
    }
    None
}

/// Buckets ascend, are cumulative, end at +Inf, and the last one is the count.
fn histograms(all: &Exposition) -> Result<(), String> {
    for (name, _) in all.types.iter().filter(|(_, kind)| *kind == "histogram") {
        let bucket = format!("{name}_bucket");
        let mut last = (f64::NEG_INFINITY, 0.0);
        for sample in all.of(&bucket) {
            let end = match sample.labels.get("le").map(String::as_str) {
                Some("+Inf") => f64::INFINITY,
                Some(number) => number.parse().map_err(|_| format!("{bucket}: le=\"{number}\""))?,
                None => return Err(format!("{bucket} without le")),
            };
            if end <= last.0 || sample.value < last.1 {
                return Err(format!("{bucket}: le=\"{end}\" does not ascend"));
            }
            last = (end, sample.value);
        }
        let count = all.sum(&format!("{name}_count")).unwrap_or(f64::NAN);
        if last.0 != f64::INFINITY || last.1 != count {
            return Err(format!(
                "{name}: the last bucket {last:?} is not the count {count}"
            ));
        }
        if all.sum(&format!("{name}_sum")).is_none() {
            return Err(format!("{name} has no sum"));
        }
    }
    Ok(())
}
