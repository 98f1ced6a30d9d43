//! A demand as CSV: a line for each step and size.

use super::{Demand, DemandClass, is_rate};
use anyhow::anyhow;
use headroom_console::args::content_bytes;
use headroom_control::placement::advisor::MAX_STEPS;
use headroom_units::{PerSecond, Seconds};
use std::collections::BTreeMap;

/// The columns, in the order of a file without a header.
const COLUMNS: [&str; 3] = ["step", "size", "requests_per_s"];

/// How many steps without a line a note names.
const NAMED: usize = 10;

/// Where the columns are: at which place each of [`COLUMNS`], and how many there are.
struct Header {
    at: [usize; 3],
    fields: usize,
}

impl Header {
    /// That of a file without one.
    const NONE: Self = Self {
        at: [0, 1, 2],
        fields: 3,
    };

    /// The header that a first line is, with the columns that are not used; `None` where it is none: where a field is a number or a size.
    fn read(fields: &[&str]) -> Result<Option<(Self, Vec<String>)>, String> {
        if fields
            .iter()
            .any(|field| content_bytes(field).is_ok() || field.parse::<f64>().is_ok())
        {
            return Ok(None);
        }
        let mut at = [0; 3];
        for (index, column) in COLUMNS.into_iter().enumerate() {
            let mut places = (0..fields.len()).filter(|place| fields[*place].eq_ignore_ascii_case(column));
            at[index] = places.next().ok_or_else(|| {
                format!(
                    "the header has no column {column}: name {} in any order, or give no header",
                    COLUMNS.join(", ")
                )
            })?;
            if places.next().is_some() {
                return Err(format!("the header has two columns {column}: name each once"));
            }
        }
        let others = (0..fields.len()).filter(|place| !at.contains(place));
        let others = others.map(|place| fields[place].to_owned()).collect();
        let header = Self {
            at,
            fields: fields.len(),
        };
        Ok(Some((header, others)))
    }
}

/// Reads lines of a step, a size and requests a second, in this order or as a header names them; what has no line is 0, and said.
pub(super) fn csv(text: &str, step: Option<f64>) -> Result<Demand, anyhow::Error> {
    let mut cells: BTreeMap<u64, BTreeMap<usize, PerSecond>> = BTreeMap::new();
    let (mut steps, mut header, mut notes) = (0, Header::NONE, Vec::new());
    let lines = text.trim_start_matches('\u{feff}').lines();
    let lines = lines.enumerate().map(|(index, line)| (index + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    for (index, (number, line)) in lines.enumerate() {
        let fields: Vec<&str> = line
            .split(',')
            .map(|field| field.trim().trim_matches('"'))
            .collect();
        if index == 0
            && let Some((found, others)) =
                Header::read(&fields).map_err(|error| anyhow!("line {number}: {error}"))?
        {
            header = found;
            notes.extend(
                others
                    .into_iter()
                    .map(|other| format!("the demand's column {other:?} is not used")),
            );
            continue;
        }
        if fields.len() != header.fields {
            return Err(anyhow!(
                "line {number}: {line:?} has {} fields, not {}: give {}, as 13,10K,250",
                fields.len(),
                header.fields,
                COLUMNS.join(",")
            ));
        }
        let [at, of_size, rate] = header.at.map(|place| fields[place]);
        let at: usize = at.parse().ok().filter(|at| *at < MAX_STEPS).ok_or_else(|| {
            anyhow!(
                "line {number}: step {at:?}: give a whole number from 0 to {}",
                MAX_STEPS - 1
            )
        })?;
        let bytes = content_bytes(of_size).map_err(|error| anyhow!("line {number}: {error}"))?;
        let parsed = rate
            .parse()
            .map_err(|_| "is no number; give requests a second".to_owned());
        let rate = parsed
            .and_then(is_rate)
            .map_err(|error| anyhow!("line {number}: rate {rate:?}: {error}"))?;
        steps = steps.max(at + 1);
        let of_class = cells.entry(bytes.round() as u64).or_default();
        if of_class.insert(at, rate).is_some() {
            return Err(anyhow!(
                "line {number}: step {at} of size {of_size} has a rate already: give it once"
            ));
        }
    }
    notes.extend(missing(&cells, steps));
    let classes = cells.into_iter().map(|(size_bytes, rates)| DemandClass {
        size_bytes: size_bytes as f64,
        late_bytes: size_bytes as f64,
        rates: (0..steps)
            .map(|at| rates.get(&at).copied().unwrap_or(PerSecond::ZERO))
            .collect(),
    });
    Ok(Demand {
        classes: classes.collect(),
        step: Seconds::new(step.unwrap_or(3600.0)),
        notes,
        ..Demand::default()
    })
}

/// What of the day has no line, as notes.
fn missing(cells: &BTreeMap<u64, BTreeMap<usize, PerSecond>>, steps: usize) -> Vec<String> {
    let has = |step: &usize| cells.values().any(|rates| rates.contains_key(step));
    let (there, without): (Vec<usize>, Vec<usize>) = (0..steps).partition(has);
    let mut notes = Vec::new();
    if !without.is_empty() {
        let named: Vec<String> = without.iter().take(NAMED).map(usize::to_string).collect();
        let more = if without.len() > NAMED { ", ..." } else { "" };
        notes.push(format!(
            "{} of {steps} steps have no line in the demand and count as without requests: {}{more}",
            without.len(),
            named.join(", ")
        ));
    }
    let pairs: usize = cells.values().map(BTreeMap::len).sum();
    let some = there.len() * cells.len() - pairs;
    if some > 0 {
        notes.push(format!(
            "in the other steps {some} rates have no line and count as 0"
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::super::checked;
    use super::*;
    use proptest::prelude::*;

    fn read(lines: &str) -> Demand {
        csv(lines, None).and_then(checked).unwrap()
    }

    #[test]
    fn columns_are_found_by_their_names() {
        let plain = read("0,1K,100\n1,10K,5\n1,1K,0\n0,10K,0\n");
        let named = "\u{feff}Requests_per_s,Size,STEP\n100,1K,0\n5,10K,1\n0,1K,1\n0,10K,0\n";
        assert_eq!(plain, read(named));
        let quoted = "\"step\",\"size\",\"requests_per_s\"\n0,\"1K\",100\n1,10K,5\n1,1K,0\n0,10K,0\n";
        assert_eq!(plain, read(quoted));
        let more = read("host,requests_per_s,size,step\na,100,1K,0\nb,5,10K,1\nb,0,1K,1\nb,0,10K,0\n");
        assert_eq!(
            (&more.classes, &*more.notes),
            (
                &plain.classes,
                &["the demand's column \"host\" is not used".to_owned()][..]
            )
        );
    }

    #[test]
    fn what_has_no_line_is_said() {
        let demand = read("0,1K,100\n4,1K,100\n4,10K,1\n");
        assert_eq!(
            demand.notes,
            [
                "3 of 5 steps have no line in the demand and count as without requests: 1, 2, 3",
                "in the other steps 1 rates have no line and count as 0"
            ]
        );
        assert!(read("0,1K,1\n100,1K,1\n").notes[0].ends_with("8, 9, 10, ..."));
        assert!(read("0,1K,1\n1,1K,0\n").notes.is_empty());
    }

    #[test]
    fn a_mistake_is_named_with_its_line_and_value() {
        let error = |lines: &str| csv(lines, None).and_then(checked).unwrap_err().to_string();
        assert!(error("0,1K,100\n0,1K,200\n").contains("line 2: step 0 of size 1K"));
        assert!(error("0,1K,100\n-1,1K,200\n").contains("line 2: step \"-1\""));
        assert!(error("0,1X,100\n").contains("\"1X\" is no size"));
        assert!(error("0,1K\n").contains("13,10K,250"));
        assert!(error("").contains("holds no demand"));
        assert!(error("0,1K,x\n").contains("line 1: rate \"x\": is no number"));
        for rate in ["nan", "-1", "1e308", "inf", "1e10", "-inf"] {
            let why = error(&format!("step,size,requests_per_s\n0,1K,1\n1,1K,{rate}\n"));
            assert!(
                why.contains(&format!(
                    "line 3: rate {rate:?}: give requests a second, 0 to 1e9"
                )),
                "{why}"
            );
        }
        assert!(
            error("step,size,rate\n0,1K,1\n").contains("line 1: the header has no column requests_per_s")
        );
        assert!(error("step,size,step,requests_per_s\n").contains("two columns step"));
        assert!(
            error("step,requests_per_s,size\n0,1,1K,4\n")
                .contains("line 2: \"0,1,1K,4\" has 4 fields, not 3")
        );
    }

    proptest! {
        #[test]
        fn no_text_is_a_panic(text in "[0-9a-zA-Z,.\\n\"#+-]{0,80}") {
            if let Ok(demand) = csv(&text, None).and_then(checked) {
                prop_assert!(demand.classes.iter().flat_map(|class| &class.rates).all(|rate| is_rate(rate.get()).is_ok()));
            }
        }

        #[test]
        fn any_order_of_columns_says_the_same(order in Just([0usize, 1, 2]).prop_shuffle(), rates in prop::collection::vec(0.0..1e6f64, 1..6)) {
            let line = |fields: [String; 3]| order.map(|place| fields[place].clone()).join(",") + "\n";
            let mut text = line(COLUMNS.map(str::to_owned));
            for (step, rate) in rates.iter().enumerate() {
                text += &line([step.to_string(), "10K".to_owned(), rate.to_string()]);
            }
            let demand = read(&text);
            let read: Vec<f64> = demand.classes[0].rates.iter().map(|rate| rate.get()).collect();
            prop_assert_eq!(read, rates);
        }
    }
}
