//! What happened: by kind, how often and how long at worst; and what must not have happened.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Violations that are written out.
const SHOWN: usize = 40;

/// Counts of one kind of query.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    answered: u64,
    refused: u64,
    /// Whose connection ended because somebody ended it.
    cut: u64,
    worst: Duration,
    worst_beyond: Duration,
}

#[derive(Default)]
struct Sums {
    asked: BTreeMap<&'static str, Asked>,
    refusals: BTreeMap<String, u64>,
    faults: BTreeMap<&'static str, u64>,
    violations: Vec<String>,
    notes: Vec<String>,
}

/// All of a run.
#[derive(Default)]
pub struct Tally(Mutex<Sums>);

/// How a query ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was answered.
    Answered,
    /// It was answered with an error.
    Refused,
    /// Its connection was ended by somebody who meant to.
    Cut,
}

impl Tally {
    fn with<T>(&self, body: impl FnOnce(&mut Sums) -> T) -> T {
        body(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A query has ended; `own` is what it takes by itself.
    pub fn asked(&self, kind: &'static str, ending: Ending, took: Duration, own: Duration) {
        self.with(|sums| {
            let asked = sums.asked.entry(kind).or_default();
            match ending {
                Ending::Answered => asked.answered += 1,
                Ending::Refused => asked.refused += 1,
                Ending::Cut => asked.cut += 1,
            }
            asked.worst = asked.worst.max(took);
            asked.worst_beyond = asked.worst_beyond.max(took.saturating_sub(own));
        });
    }

    /// The server said no.
    pub fn refused(&self, code: &str) {
        self.with(|sums| *sums.refusals.entry(code.to_owned()).or_default() += 1);
    }

    /// A fault was made, or several of a kind.
    pub fn faults(&self, kind: &'static str, count: u64) {
        self.with(|sums| *sums.faults.entry(kind).or_default() += count);
    }

    /// Something happened that must not.
    pub fn violation(&self, text: String) {
        self.with(|sums| {
            if sums.violations.len() < SHOWN {
                println!("VIOLATION: {text}");
            }
            sums.violations.push(text);
        });
    }

    /// Something worth knowing.
    pub fn note(&self, text: String) {
        println!("{text}");
        self.with(|sums| sums.notes.push(text));
    }

    /// How many violations there are.
    pub fn violations(&self) -> usize {
        self.with(|sums| sums.violations.len())
    }

    /// Queries that were answered in any way.
    pub fn answers(&self) -> u64 {
        self.with(|sums| {
            sums.asked
                .values()
                .map(|asked| asked.answered + asked.refused)
                .sum()
        })
    }

    /// Faults made so far of one kind.
    pub fn made(&self, kind: &str) -> u64 {
        self.with(|sums| sums.faults.get(kind).copied().unwrap_or(0))
    }

    /// All as text.
    pub fn report(&self) -> String {
        self.with(|sums| {
            let mut text = String::new();
            let _ = writeln!(
                text,
                "{:<22} {:>10} {:>9} {:>7} {:>9} {:>14}",
                "queries", "answered", "refused", "cut", "worst s", "beyond its own"
            );
            for (kind, asked) in &sums.asked {
                let _ = writeln!(
                    text,
                    "{kind:<22} {:>10} {:>9} {:>7} {:>9.2} {:>14.2}",
                    asked.answered,
                    asked.refused,
                    asked.cut,
                    asked.worst.as_secs_f64(),
                    asked.worst_beyond.as_secs_f64()
                );
            }
            for (title, counts) in [
                (
                    "refusals by code",
                    sums.refusals
                        .iter()
                        .map(|(code, count)| (code.as_str(), count))
                        .collect::<Vec<_>>(),
                ),
                (
                    "faults",
                    sums.faults.iter().map(|(kind, count)| (*kind, count)).collect(),
                ),
            ] {
                let _ = writeln!(text, "{title}:");
                for (kind, count) in counts {
                    let _ = writeln!(text, "    {count:>8} {kind}");
                }
            }
            let _ = writeln!(text, "violations: {}", sums.violations.len());
            for violation in sums.violations.iter().take(SHOWN) {
                let _ = writeln!(text, "    {violation}");
            }
            text
        })
    }
}
