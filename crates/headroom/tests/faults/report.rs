//! What the runs found, as a table and as JSON.

use crate::world::Findings;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// One run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The scenario's name.
    pub name: String,
    /// Its place in the plan.
    pub number: usize,
    /// Its seed.
    pub seed: u64,
    /// What it chose by that seed.
    pub notes: String,
    /// What it found.
    pub found: Findings,
    /// Why it could not be run here.
    pub skipped: Option<String>,
    /// Why it could not be carried through: then it proves nothing.
    pub error: Option<String>,
    /// What its programs said last.
    pub words: String,
    /// How long it took.
    pub took: Duration,
}

impl Outcome {
    /// Whether nothing was left and nothing went wrong.
    pub fn is_clean(&self) -> bool {
        let found = &self.found;
        self.error.is_none() && found.left.is_empty() && found.leftovers.is_empty() && found.wrong.is_empty()
    }

    fn troubles(&self) -> String {
        let found = &self.found;
        let mut text = String::new();
        for (kind, lines) in [
            ("LIMIT LEFT", &found.left),
            ("LEFTOVER", &found.leftovers),
            ("WRONG", &found.wrong),
        ] {
            for line in lines {
                text.push_str(&format!("\n    {kind}: {line}"));
            }
        }
        if let Some(error) = &self.error {
            text.push_str(&format!("\n    ERROR: {error}"));
        }
        text
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.skipped {
            return write!(f, "{}: skipped: {why}", self.name);
        }
        let safe = self
            .found
            .safe
            .map_or_else(|| "-".to_owned(), |safe| format!("{:.2} s", safe.as_secs_f64()));
        write!(
            f,
            "{} seed {}: {}, safe after {safe}, {:.1} s ({}){}",
            self.name,
            self.seed,
            if self.is_clean() { "clean" } else { "NOT CLEAN" },
            self.took.as_secs_f64(),
            self.notes,
            self.troubles()
        )
    }
}

/// All of them.
pub struct Report {
    /// The seed of all.
    pub seed: u64,
    /// How long they took.
    pub took: Duration,
    /// By name.
    pub outcomes: Vec<Outcome>,
    /// Empty control groups with our name that were not there before.
    pub groups: Vec<String>,
}

/// The sum of one scenario's runs.
#[derive(Default)]
struct Row {
    runs: usize,
    left: usize,
    leftovers: usize,
    wrong: usize,
    errors: usize,
    skipped: usize,
    safe: Vec<Duration>,
}

impl Row {
    fn add(&mut self, outcome: &Outcome) {
        if outcome.skipped.is_some() {
            self.skipped += 1;
            return;
        }
        self.runs += 1;
        self.left += usize::from(!outcome.found.left.is_empty());
        self.leftovers += usize::from(!outcome.found.leftovers.is_empty());
        self.wrong += usize::from(!outcome.found.wrong.is_empty());
        self.errors += usize::from(outcome.error.is_some());
        self.safe.extend(outcome.found.safe);
        self.safe.sort();
    }

    /// The median (the lower of two middle ones) and the worst, in seconds.
    fn times(&self) -> (Option<f64>, Option<f64>) {
        let middle = self.safe.len().saturating_sub(1) / 2;
        let seconds = |time: Option<&Duration>| time.map(Duration::as_secs_f64);
        (seconds(self.safe.get(middle)), seconds(self.safe.last()))
    }

    fn line(&self, name: &str) -> String {
        let told = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |time| format!("{time:.2}"));
        let (p50, worst) = self.times();
        format!(
            "{name:<34} {:>5} {:>11} {:>9} {:>9} {:>9} {:>6} {:>6} {:>7}\n",
            self.runs,
            self.left,
            told(p50),
            told(worst),
            self.leftovers,
            self.wrong,
            self.errors,
            self.skipped
        )
    }

    fn json(&self) -> serde_json::Value {
        let (p50, worst) = self.times();
        json!({
            "runs": self.runs, "limits_left": self.left, "safe_s_p50": p50, "safe_s_worst": worst,
            "leftovers": self.leftovers, "wrong": self.wrong, "errors": self.errors, "skipped": self.skipped,
        })
    }
}

impl Report {
    fn rows(&self) -> (BTreeMap<&str, Row>, Row) {
        let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
        let mut total = Row::default();
        for outcome in &self.outcomes {
            rows.entry(&outcome.name).or_default().add(outcome);
            total.add(outcome);
        }
        (rows, total)
    }

    /// Whether nothing was left anywhere, and every run was carried through.
    pub fn is_clean(&self) -> bool {
        self.groups.is_empty() && self.outcomes.iter().all(Outcome::is_clean)
    }

    /// A line for each scenario, and their sum.
    pub fn table(&self) -> String {
        let mut text = format!(
            "\n{:<34} {:>5} {:>11} {:>9} {:>9} {:>9} {:>6} {:>6} {:>7}\n",
            "scenario",
            "runs",
            "limits left",
            "safe P50",
            "worst, s",
            "leftovers",
            "wrong",
            "errors",
            "skipped"
        );
        let (rows, total) = self.rows();
        for (name, row) in &rows {
            text.push_str(&row.line(name));
        }
        text.push_str(&total.line("all"));
        let mut skipped: Vec<String> = self
            .outcomes
            .iter()
            .filter_map(|outcome| {
                Some(format!(
                    "skipped: {}: {}",
                    outcome.name,
                    outcome.skipped.as_ref()?
                ))
            })
            .collect();
        skipped.dedup();
        for line in skipped {
            text.push_str(&line);
            text.push('\n');
        }
        text.push_str(&format!("seed {}, {:.0} s\n", self.seed, self.took.as_secs_f64()));
        text
    }

    /// The runs that were not clean, with what their programs said last.
    pub fn troubles(&self) -> String {
        let mut text = String::new();
        for outcome in self.outcomes.iter().filter(|outcome| !outcome.is_clean()) {
            text.push_str(&format!("{outcome}{}\n", outcome.words));
        }
        for group in &self.groups {
            text.push_str(&format!("LEFTOVER: control group {group}\n"));
        }
        text
    }

    /// Writes `out/faults.json`.
    pub fn write_json(&self) {
        let (rows, total) = self.rows();
        let rows: serde_json::Map<String, serde_json::Value> = rows
            .iter()
            .map(|(name, row)| ((*name).to_owned(), row.json()))
            .collect();
        let runs: Vec<serde_json::Value> = self
            .outcomes
            .iter()
            .map(|outcome| {
                json!({
                    "scenario": outcome.name, "number": outcome.number, "seed": outcome.seed,
                    "choices": outcome.notes, "skipped": outcome.skipped, "error": outcome.error,
                    "limits_left": outcome.found.left, "leftovers": outcome.found.leftovers,
                    "wrong": outcome.found.wrong,
                    "safe_s": outcome.found.safe.map(|safe| safe.as_secs_f64()),
                    "took_s": outcome.took.as_secs_f64(),
                })
            })
            .collect();
        let all = json!({
            "seed": self.seed, "took_s": self.took.as_secs_f64(), "version": env!("CARGO_PKG_VERSION"),
            "total": total.json(), "scenarios": rows, "control_groups_left": self.groups, "runs": runs,
        });
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../out/faults.json");
        let written = std::fs::create_dir_all(file.with_file_name(""))
            .and_then(|()| std::fs::write(&file, format!("{all:#}\n")));
        if let Err(error) = written {
            panic!("{} cannot be written: {error}", file.display());
        }
    }
}
