//! The settings that a run's laws compared, gathered while its periods go by.

use super::grid::Grid;
use super::html::figure;
use super::scale::clock;
use crate::model::PeriodRecord;
use crate::text::NONE;
use headroom_units::{Compared, Comparison, Joules, PerSecond, Ratio, Reading, Seconds, Setting};
use std::collections::VecDeque;

/// Comparisons that are listed: the last.
const MAX_LISTED: usize = 40;

/// The comparisons of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Comparisons {
    last: VecDeque<Comparison>,
    left_out: usize,
}

impl Comparisons {
    /// Adds those that ended with a period.
    pub(crate) fn add(&mut self, period: &PeriodRecord) {
        let Some(all) = period.decided.get("comparisons").and_then(|all| all.as_array()) else {
            return;
        };
        // One that another version wrote otherwise says nothing to this one.
        let all = all
            .iter()
            .filter_map(|one| serde_json::from_value::<Comparison>(one.clone()).ok())
            // Nothing was tried in it.
            .filter(|one| one.compared.iter().any(|of| of.turns > 0));
        for one in all {
            if self.last.len() == MAX_LISTED {
                self.last.pop_front();
                self.left_out += 1;
            }
            self.last.push_back(one);
        }
    }

    /// As a table, a line for each setting; `None` where nothing was compared. `slo` is what the latency at the SLO's percentile is
    /// called.
    pub(crate) fn table(&self, slo: &str) -> Option<Grid> {
        let rows: Vec<Vec<String>> = self.last.iter().flat_map(rows).collect();
        (!rows.is_empty()).then(|| Grid {
            caption: match self.left_out {
                0 => "Each setting in force in turn; means over the periods that were scored".to_owned(),
                more => format!(
                    "Each setting in force in turn; means over the periods that were scored. The last {} comparisons; {more} came before \
                     them",
                    self.last.len()
                ),
            },
            header: vec![
                "ended at".to_owned(),
                "what".to_owned(),
                "setting".to_owned(),
                "queries/s".to_owned(),
                "mJ per query".to_owned(),
                format!("{slo}, or oldest wait ms"),
                "P99 ms".to_owned(),
                "turns".to_owned(),
                "scores beside the best other %".to_owned(),
                "verdict".to_owned(),
            ],
            rows,
            words: vec![0, 1, 2, 9],
        })
        .map(|grid| match slo {
            // The column before it says the same.
            "P99" => without_column(grid, 6),
            _ => grid,
        })
    }
}

fn without_column(mut grid: Grid, at: usize) -> Grid {
    grid.header.remove(at);
    grid.rows.iter_mut().for_each(|row| drop(row.remove(at)));
    let words = grid.words.iter().filter(|word| **word != at);
    grid.words = words
        .map(|word| if *word > at { word - 1 } else { *word })
        .collect();
    grid
}

fn rows(comparison: &Comparison) -> impl Iterator<Item = Vec<String>> + '_ {
    comparison.compared.iter().enumerate().map(|(at, one)| {
        // What is of the whole comparison stands once.
        let once = |text: String| if at == 0 { text } else { String::new() };
        let mut row = vec![
            once(clock(comparison.ended.get())),
            once(comparison.about.clone()),
        ];
        row.extend(cells(one));
        row
    })
}

/// `C 4 workers, N 2 queries`.
fn in_short(setting: &Setting) -> String {
    // A delay of nothing is none.
    let each = setting.iter().filter(|(_, value)| *value > 0.0);
    let each = each.map(|(lever, value)| format!("{} {}", lever.in_short(), lever.info().read(value)));
    each.collect::<Vec<_>>().join(", ")
}

fn cells(one: &Compared) -> [String; 8] {
    let or_none = |value: Option<f64>| value.map_or_else(|| NONE.to_owned(), figure);
    let energy =
        |reading: Reading<Joules>| format!("{} ({})", figure(reading.value.get() * 1e3), reading.source);
    [
        match one.setting.is_empty() {
            true => "not on call".to_owned(),
            false => in_short(&one.setting),
        },
        or_none(one.rate.map(PerSecond::get)),
        one.energy_per_query.map_or_else(|| NONE.to_owned(), energy),
        or_none(one.latency_at_slo.map(Seconds::as_millis)),
        or_none(one.p99.map(Seconds::as_millis)),
        one.turns.to_string(),
        one.gain.map_or_else(
            || NONE.to_owned(),
            |gain: Ratio| format!("{:+.1}", gain.as_percent()),
        ),
        match &one.why {
            None => one.verdict.in_words().to_owned(),
            Some(why) => format!("{}: {why}", one.verdict.in_words()),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_units::{Lever, Source, Verdict};

    fn comparison(ended: f64) -> Comparison {
        let of = |setting: Setting, rate: f64, verdict| Compared {
            setting,
            turns: 3,
            periods: 12,
            rate: Some(PerSecond::new(rate)),
            energy_per_query: Some(Reading::new(Joules::new(0.0125), Source::Estimated)),
            latency_at_slo: Some(Seconds::from_millis(7.5)),
            p99: None,
            gain: Some(Ratio::new(0.05)),
            verdict,
            why: (verdict == Verdict::Worse).then(|| "queries pile up".to_owned()),
        };
        Comparison {
            began: Seconds::ZERO,
            ended: Seconds::new(ended),
            about: "workers <compared>".to_owned(),
            compared: vec![
                of(Setting::from([(Lever::Concurrency, 4.0)]), 812.0, Verdict::Found),
                of(Setting::default(), 700.0, Verdict::Worse),
            ],
        }
    }

    fn period(index: u64, decided: serde_json::Value) -> PeriodRecord {
        PeriodRecord {
            decided,
            ..PeriodRecord::new(index, Seconds::new(index as f64), Seconds::new(1.0), None)
        }
    }

    #[test]
    fn each_setting_has_a_line_with_its_figures_and_verdict() {
        let mut all = Comparisons::default();
        assert!(all.table("P99").is_none());
        all.add(&period(0, serde_json::json!({ "setting": {} })));
        all.add(&period(
            1,
            serde_json::json!({ "comparisons": [{ "of": "another version" }] }),
        ));
        assert!(all.table("P99").is_none());
        all.add(&period(
            2,
            serde_json::json!({ "comparisons": [comparison(75.0)] }),
        ));
        let table = all.table("P95").unwrap();
        assert_eq!(table.rows.len(), 2);
        assert_eq!(
            table.rows[0][2..],
            [
                "C 4 workers",
                "812",
                "12.5 (estimated)",
                "7.5",
                NONE,
                "3",
                "+5.0",
                "found"
            ]
        );
        assert_eq!(
            (table.rows[1][1].as_str(), table.rows[1][2].as_str()),
            ("", "not on call")
        );
        assert!(table.rows.iter().all(|row| row.len() == table.header.len()));
    }

    #[test]
    fn a_long_run_lists_the_last() {
        let mut all = Comparisons::default();
        for index in 0..100 {
            all.add(&period(
                index,
                serde_json::json!({ "comparisons": [comparison(index as f64)] }),
            ));
        }
        let table = all.table("P99").unwrap();
        assert!(!table.header.contains(&"P99 ms".to_owned()));
        assert!(table.rows.iter().all(|row| row.len() == table.header.len()));
        assert_eq!(table.words, [0, 1, 2, 8]);
        assert_eq!(table.rows.len(), 2 * MAX_LISTED);
        assert!(table.caption.contains("60 came before"), "{}", table.caption);
    }
}
