//! Records a synthetic day under two laws, and one of three nodes behind two gateways, and writes the reports of all and of the
//! comparison of the first two into a folder:
//! `cargo run -p headroom-record --example sample_report -- FOLDER [PERIODS]`.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Day, cluster, histogram, meta};
use headroom_record::{Archive, Limits, Recorder, report, summary_table, table};
use std::error::Error;
use std::fs;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("name a folder for the reports")?);
    let periods: u64 = arguments.next().map_or(Ok(900), |number| number.parse())?;
    let path = folder.join("runs.db");
    let recorder = Recorder::open(&path, Limits::default())?;
    let (mut ids, mut summaries) = (Vec::new(), Vec::new());
    for law in ["fixed", "slo-power"] {
        let mut run = recorder.start_run(meta(law))?;
        ids.push(run.id());
        for (period, latencies) in Day::new(law, periods) {
            run.record_waiting(period, &latencies)?;
        }
        summaries.push(run.finish()?);
    }
    let mut run = recorder.start_run(meta("cluster"))?;
    let whole = run.id();
    for period in cluster(periods) {
        run.record_waiting(period, &histogram())?;
    }
    summaries.push(run.finish()?);
    let archive = Archive::open(&path)?;
    for id in ids.iter().chain([&whole]) {
        fs::write(
            folder.join(format!("run-{id}.html")),
            report::run_html(&archive, *id)?,
        )?;
    }
    fs::write(
        folder.join("comparison.html"),
        report::comparison_html(&archive, &ids)?,
    )?;
    println!("{}", summary_table(&summaries));
    let listed = archive
        .runs(100)?
        .into_iter()
        .zip(summaries.into_iter().rev().map(Some));
    println!("{}", table::runs_table(&listed.collect::<Vec<_>>()));
    Ok(())
}
