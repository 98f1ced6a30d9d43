//! What `scripts/oncall/live` measured of real servers, beside the simulated figures.

use super::super::rows::Row;
use super::rows::{gain, more, plain, printed};
use anyhow::{Context, bail};
use headroom_record::report::Grid;
use headroom_record::statistics::Estimate;
use serde::Deserialize;
use std::fs;
use std::path::Path;

/// The figures that rows of live runs are of.
pub const FIGURES: [&str; 5] = ["10, live", "13, live", "16, live", "20, live", "Eq. 2, live"];
/// The settings' names in the script that are compared.
const ALONE: &str = "as it is";
const TAILS: &str = "C 4, N 2, linger 200 µs";
const BATCHES: &str = "C 4, N 8, linger 200 µs";
const PSLO_ALONE: &str = "policy pslo, nobody on call (C 1024)";
const PSLO: &str = "on call, pslo";
/// A longer file is none of the script's.
const MAX_BYTES: u64 = 64 << 20;

/// A run of a saturated server.
#[derive(Clone, Debug, Deserialize)]
struct Saturated {
    cell: (String, u32),
    setting: String,
    per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    cpu_us: f64,
}

/// A run with a mixed population, before its SLOs were tightened and after.
#[derive(Clone, Debug, Deserialize)]
struct Mixed {
    setting: String,
    before: Population,
    after: Population,
}

/// What a mixed population had.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Population {
    slo: f64,
    few_per_s: f64,
    few_p99_ms: f64,
    few_p999_ms: f64,
    others_per_s: f64,
    others_p99_ms: f64,
}

/// A run at partial load.
#[derive(Clone, Debug, Deserialize)]
struct Partial {
    share: f64,
    rate: f64,
    setting: String,
    delay_ms: f64,
    long_idle: f64,
    busy: f64,
    watts: f64,
    p99_ms: f64,
}

/// All that a folder of the script has.
#[derive(Clone, Debug, Default)]
pub struct Live {
    mariadb: Vec<Saturated>,
    postgres: Vec<Saturated>,
    mixed: Vec<Mixed>,
    half: Vec<Partial>,
}

/// The runs of a part, in their order; none where it was not run.
fn read<T: for<'a> Deserialize<'a>>(folder: &Path, part: &str) -> anyhow::Result<Vec<T>> {
    let path = folder.join(part).with_extension("jsonl");
    let length = match fs::metadata(&path) {
        Ok(about) => about.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    if length > MAX_BYTES {
        bail!("{}: {length} bytes: at most {MAX_BYTES} are read", path.display());
    }
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let lines = text.lines().enumerate();
    let runs = lines.map(|(at, line)| {
        let run = serde_json::from_str(line);
        run.with_context(|| format!("{}:{}: no run of scripts/oncall/live", path.display(), at + 1))
    });
    runs.collect()
}

impl Live {
    /// Reads what a folder has.
    ///
    /// # Errors
    /// A file that cannot be read or understood; a folder without any.
    pub fn read(folder: &Path) -> anyhow::Result<Self> {
        let live = Self {
            mariadb: read(folder, "mariadb")?,
            postgres: read(folder, "postgres")?,
            mixed: read(folder, "mixed")?,
            half: read(folder, "half")?,
        };
        let runs = live.mariadb.len() + live.postgres.len() + live.mixed.len() + live.half.len();
        if runs == 0 {
            bail!(
                "{} has no runs: name a folder in which scripts/oncall/live left its files (out/oncall-live)",
                folder.display()
            );
        }
        Ok(live)
    }

    /// A figure of each run of MariaDB at a cell under a setting.
    fn each(&self, cell: (&str, u32), setting: &str, pick: fn(&Saturated) -> f64) -> Vec<f64> {
        let of = self.mariadb.iter();
        let of = of.filter(|run| (run.cell.0.as_str(), run.cell.1) == cell && run.setting == setting);
        of.map(pick).collect()
    }

    /// A figure under one setting over the same under another, run by run.
    fn over(&self, cell: (&str, u32), (one, other): (&str, &str), pick: fn(&Saturated) -> f64) -> Vec<f64> {
        let (one, other) = (self.each(cell, one, pick), self.each(cell, other, pick));
        one.into_iter()
            .zip(other)
            .map(|(one, other)| one / other)
            .collect()
    }

    fn population(&self, setting: &str, pick: fn(&Mixed) -> f64) -> Vec<f64> {
        let of = self.mixed.iter().filter(|run| run.setting == setting);
        of.map(pick).collect()
    }

    fn partial(&self, setting: &str, pick: fn(&Partial) -> f64) -> Vec<f64> {
        let of = self
            .half
            .iter()
            .filter(|run| run.share >= 0.5 && run.setting == setting);
        of.map(pick).collect()
    }

    /// The paper's numbers that live runs have a like of; those without any run are left out.
    pub fn rows(&self) -> Vec<Row> {
        const CORE: &str = "MariaDB on one core of a virtual machine, where the paper has MySQL on 24";
        let most = ("point_select", 512);
        let mut rows = vec![
            gain(
                "10, live",
                "MariaDB, point selects, 512: EE(P99.9) at N 2 over N 8, which in a closed loop at the same watts is N 8's P99.9 over N 2's \
                 (Little's law)",
                printed("3.64 times", 3.64),
                (&self.over(most, (BATCHES, TAILS), |run| run.p999_ms), 1.0),
                CORE,
            ),
            plain(
                "13, live",
                "MariaDB, point selects, 512: throughput on call (C 4, N 2) over alone, % more",
                "more",
                &more(&self.over(most, (TAILS, ALONE), |run| run.per_s)),
                1,
                "",
            ),
            plain(
                "13, live",
                "the same: P99.9 alone over that on call",
                "more than 1",
                &self.over(most, (ALONE, TAILS), |run| run.p999_ms),
                2,
                "",
            ),
            plain(
                "13, live",
                "MariaDB, read-only transactions, 512: throughput on call (C 4, N 2) over alone, % more",
                "more",
                &more(&self.over(("read_only", 512), (TAILS, ALONE), |run| run.per_s)),
                1,
                "",
            ),
            plain(
                "13, live",
                "the same: P99.9 alone over that on call",
                "more than 1",
                &self.over(("read_only", 512), (ALONE, TAILS), |run| run.p999_ms),
                2,
                "",
            ),
        ];
        let late =
            "the most of 16 connections, by the clients' clocks, whose own wait for their processor is in it";
        for (what, setting) in [("PSLO + REEF", PSLO), ("PSLO alone", PSLO_ALONE)] {
            rows.push(plain(
                "16, live",
                format!("{what}: worst violation over what is allowed"),
                "at most 1 with REEF",
                &self.population(setting, |run| run.before.slo),
                2,
                late,
            ));
            rows.push(plain(
                "20, live",
                format!("{what}: the same after SLOs are tightened"),
                "at most 1 with REEF",
                &self.population(setting, |run| run.after.slo),
                2,
                late,
            ));
        }
        let others = |setting| self.population(setting, |run| run.before.others_per_s);
        let ratios = others(PSLO).into_iter().zip(others(PSLO_ALONE));
        let ratios: Vec<f64> = ratios.map(|(on_call, alone)| on_call / alone).collect();
        rows.push(plain(
            "16, live",
            "PSLO + REEF over PSLO: throughput of the 496, % more",
            "comparable",
            &more(&ratios),
            1,
            "",
        ));
        for (what, setting) in [("alone", ALONE), ("law on-call", "law on-call")] {
            rows.push(plain(
                "Eq. 2, live",
                format!("half load, {what}: core time in idle periods over the break-even, %"),
                "-",
                &self.partial(setting, |run| run.long_idle),
                1,
                "",
            ));
        }
        rows.retain(|row| row.ours.is_some());
        rows
    }

    /// Every setting of every load.
    pub fn tables(&self) -> Vec<Grid> {
        let parts = [
            ("MariaDB, sysbench", &self.mariadb),
            ("PostgreSQL, pgbench", &self.postgres),
        ];
        let saturated = parts.into_iter().filter(|(_, runs)| !runs.is_empty());
        let mut tables: Vec<Grid> = saturated.map(|(caption, runs)| all(caption, runs)).collect();
        if !self.mixed.is_empty() {
            tables.push(populations(&self.mixed));
        }
        if !self.half.is_empty() {
            tables.push(partial(&self.half));
        }
        tables
    }
}

/// The distinct values of a key, in the order in which they came.
fn distinct<T, K: PartialEq>(runs: &[T], key: impl Fn(&T) -> K) -> Vec<K> {
    let mut found = Vec::new();
    for run in runs {
        let key = key(run);
        if !found.contains(&key) {
            found.push(key);
        }
    }
    found
}

fn estimate(values: &[f64], decimals: usize) -> String {
    Estimate::of(values).map_or_else(|| "-".to_owned(), |estimate| estimate.written(decimals))
}

fn grid(caption: &str, header: &[&str], words: usize, rows: Vec<Vec<String>>) -> Grid {
    Grid {
        caption: caption.to_owned(),
        header: header.iter().map(|&name| name.to_owned()).collect(),
        rows,
        words: (0..words).collect(),
    }
}

fn all(caption: &str, runs: &[Saturated]) -> Grid {
    let mut rows = Vec::new();
    for cell in distinct(runs, |run| run.cell.clone()) {
        let of_cell: Vec<&Saturated> = runs.iter().filter(|run| run.cell == cell).collect();
        for setting in distinct(&of_cell, |run| run.setting.clone()) {
            let of = |pick: fn(&Saturated) -> f64, decimals| {
                let of = of_cell.iter().filter(|run| run.setting == setting);
                estimate(&of.map(|run| pick(run)).collect::<Vec<_>>(), decimals)
            };
            rows.push(vec![
                format!("{}, {}", cell.0.replace('_', " "), cell.1),
                setting.clone(),
                of(|run| run.per_s, 0),
                of(|run| run.p50_ms, 2),
                of(|run| run.p99_ms, 1),
                of(|run| run.p999_ms, 1),
                of(|run| run.cpu_us, 1),
            ]);
        }
    }
    let header = [
        "load, connections",
        "setting",
        "queries/s",
        "P50 ms",
        "P99 ms",
        "P99.9 ms",
        "CPU µs a query",
    ];
    grid(caption, &header, 2, rows)
}

fn populations(runs: &[Mixed]) -> Grid {
    let mut rows = Vec::new();
    for setting in distinct(runs, |run| run.setting.clone()) {
        for phase in ["", "tightened"] {
            let of = |figure: fn(Population) -> f64, decimals| {
                let of = runs.iter().filter(|run| run.setting == setting);
                let had = of.map(|run| match phase {
                    "" => run.before,
                    _ => run.after,
                });
                estimate(&had.map(figure).collect::<Vec<_>>(), decimals)
            };
            rows.push(vec![
                setting.clone(),
                phase.to_owned(),
                of(|had| had.slo, 2),
                of(|had| had.few_per_s, 0),
                of(|had| had.few_p99_ms, 1),
                of(|had| had.few_p999_ms, 1),
                of(|had| had.others_per_s, 0),
                of(|had| had.others_p99_ms, 1),
            ]);
        }
    }
    let header = [
        "16 with SLOs of 512",
        "SLOs",
        "worst violation over what is allowed",
        "the 16: queries/s",
        "P99 ms",
        "P99.9 ms",
        "the 496: queries/s",
        "P99 ms",
    ];
    grid("MariaDB, a mixed population", &header, 2, rows)
}

fn partial(runs: &[Partial]) -> Grid {
    let cells = distinct(runs, |run| (run.share.to_bits(), run.setting.clone()));
    let rows = cells.into_iter().map(|(share, setting)| {
        let cell: Vec<&Partial> = runs
            .iter()
            .filter(|run| run.share.to_bits() == share && run.setting == setting)
            .collect();
        let of = |pick: fn(&Partial) -> f64, decimals| {
            estimate(&cell.iter().map(|run| pick(run)).collect::<Vec<_>>(), decimals)
        };
        vec![
            format!("{:.0} % of the most", f64::from_bits(share) * 100.0),
            setting,
            of(|run| run.rate, 0),
            of(|run| run.delay_ms, 1),
            of(|run| run.long_idle, 1),
            of(|run| run.busy, 1),
            of(|run| run.watts, 2),
            of(|run| run.p99_ms, 1),
        ]
    });
    let header = [
        "load",
        "setting",
        "queries/s",
        "D ms",
        "in long idle periods %",
        "core busy %",
        "W estimated",
        "P99 ms",
    ];
    grid(
        "MariaDB at partial load, 64 connections",
        &header,
        2,
        rows.collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(setting: &str, per_s: f64, p999_ms: f64) -> String {
        format!(
            r#"{{"cell": ["point_select", 512], "setting": "{setting}", "queries": 9, "per_s": {per_s}, "p50_ms": 1.0, "p99_ms": 2.0, "p999_ms": {p999_ms}, "cpu_us": 30.0}}"#
        )
    }

    #[test]
    fn runs_are_compared_in_pairs_beside_the_papers_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let runs = [
            line(ALONE, 20_000.0, 400.0),
            line(TAILS, 22_000.0, 40.0),
            line(ALONE, 30_000.0, 300.0),
            line(TAILS, 36_000.0, 60.0),
        ];
        fs::write(folder.path().join("mariadb.jsonl"), runs.join("\n")).unwrap();
        let live = Live::read(folder.path()).unwrap();
        let rows = live.rows();
        let mean = |at: usize| rows[at].ours.unwrap().mean;
        assert_eq!(
            rows.iter().map(|row| row.figure).collect::<Vec<_>>(),
            ["13, live"; 2]
        );
        assert!(
            (mean(0) - 15.0).abs() < 1e-9 && (mean(1) - 7.5).abs() < 1e-9,
            "{rows:?}"
        );
        let table = &live.tables()[0];
        assert_eq!((live.tables().len(), table.rows.len()), (1, 2));
        assert_eq!(table.rows[1][1], TAILS);
    }

    #[test]
    fn what_is_no_run_is_refused_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let nothing = Live::read(folder.path()).unwrap_err().to_string();
        assert!(nothing.contains("scripts/oncall/live"), "{nothing}");
        let text = format!("{}\n{{\"setting\": 3}}\n", line(ALONE, 1.0, 1.0));
        fs::write(folder.path().join("mariadb.jsonl"), text).unwrap();
        let wrong = format!("{:#}", Live::read(folder.path()).unwrap_err());
        assert!(wrong.contains("mariadb.jsonl:2: no run"), "{wrong}");
    }
}
