//! `headroom report` and `headroom runs`.

use anyhow::Context;
use clap::Args;
use headroom_console::Failure;
use headroom_console::file;
use headroom_console::say;
use headroom_record::report::runs_under_html;
use headroom_record::{Archive, OfferedLoad, RunInfo, compare_with_reference, summary_table, table};
use std::fs::File;
use std::io::BufWriter;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Where a run is recorded unless told otherwise.
pub const DEFAULT_DB: &str = "out/headroom.db";

/// Runs that a list has at most: the latest.
const MAX_LISTED: u32 = 100;

/// Where the record is.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// The flight recorder's database.
    #[arg(long, default_value = DEFAULT_DB, value_name = "FILE")]
    pub db: PathBuf,
}

/// `headroom report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The runs: an id, a name (or the beginning of one) or `latest`. Several are compared:
    /// savings are against the first, or the last of its law before the run.
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<String>,
    /// Where the record is.
    #[command(flatten)]
    pub record: RecordArgs,
    /// The HTML file to write.
    #[arg(long, default_value = "out/report.html", value_name = "FILE")]
    pub out: PathBuf,
    /// What `headroom load --json` printed for the load that a run served: shown with it, and what its
    /// clients saw. May be given for each run, in their order; one that was not sent while the run was is refused.
    #[arg(long, value_name = "FILE")]
    pub load: Vec<PathBuf>,
    /// Write the periods of one run as CSV to this file too; where the run has parts (nodes, gateways), those as well, beside
    /// it: `run.csv` and `run.parts.csv`.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write them as JSON lines to this file too: observation, decision and reasons as objects, not as text in a field.
    #[arg(long, value_name = "FILE")]
    pub jsonl: Option<PathBuf>,
    /// Print the run summary as JSON on standard output (an array where there are several), and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// `headroom runs`.
#[derive(Debug, Args)]
pub struct RunsArgs {
    /// Where the record is.
    #[command(flatten)]
    pub record: RecordArgs,
    /// Print the list as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Writes the report of the runs asked for, and prints their table or their JSON.
///
/// # Errors
/// A record that cannot be read, a run that is not in it, a file that cannot be written.
pub fn report(args: &ReportArgs) -> Result<(), Failure> {
    let archive = Archive::open(&args.record.db).map_err(Failure::usage)?;
    let runs = args
        .runs
        .iter()
        .map(|run| archive.find(run))
        .collect::<Result<Vec<RunInfo>, _>>();
    let runs = runs.map_err(Failure::usage)?;
    for (at, run) in runs.iter().enumerate() {
        if runs[..at].iter().any(|other| other.id == run.id) {
            return Err(Failure::usage(anyhow::anyhow!(
                "run {} is named twice: `{}`; name each once",
                run.id,
                args.runs[at]
            )));
        }
    }
    let mut summaries = runs
        .iter()
        .map(|run| archive.summary(run.id))
        .collect::<Result<Vec<_>, _>>()?;
    if args.load.len() > runs.len() {
        return Err(Failure::usage(anyhow::anyhow!(
            "--load is given {} times for {} runs: give it once for each run, in their order",
            args.load.len(),
            runs.len()
        )));
    }
    let loads = args
        .load
        .iter()
        .zip(&runs)
        .map(|(file, run)| served_by(file, run));
    let loads = loads.collect::<Result<Vec<_>, Failure>>()?;
    for (summary, load) in summaries.iter_mut().zip(&loads) {
        summary.served(load.clone());
    }
    if let [_, _, ..] = runs.as_slice() {
        for (summary, run) in summaries.iter_mut().zip(&runs) {
            summary.conditions.arrivals = archive.arrivals_in_tenths(run.id)?;
        }
    }
    compare_with_reference(&mut summaries);
    let ids: Vec<_> = runs.iter().map(|run| run.id).collect();
    file::write(&args.out, &runs_under_html(&archive, &ids, &loads)?)?;
    let only = |option: &str| match runs.as_slice() {
        [run] => Ok(run.id),
        several => Err(Failure::usage(anyhow::anyhow!(
            "{option} takes one run, here are {}",
            several.len()
        ))),
    };
    if let Some(csv) = &args.csv {
        let run = only("--csv")?;
        archive.export_csv(run, create(csv)?)?;
        if archive.has_parts(run)? {
            archive.export_parts_csv(run, create(&csv.with_extension("parts.csv"))?)?;
        }
    }
    if let Some(lines) = &args.jsonl {
        archive.export_jsonl(only("--jsonl")?, create(lines)?)?;
    }
    if !args.json {
        say::result(format_args!(
            "{}\nreport: {}",
            summary_table(&summaries),
            args.out.display()
        ))
    } else if let [summary] = summaries.as_slice() {
        say::result(serde_json::to_string(summary)?)
    } else {
        say::result(serde_json::to_string(&summaries)?)
    }
}

/// The load of a file that is given for a run, with what makes it doubtful that the run served it.
fn served_by(file: &Path, run: &RunInfo) -> Result<OfferedLoad, Failure> {
    let mut load = OfferedLoad::read(file).map_err(Failure::usage)?;
    load.can_be_of(run)
        .map_err(|why| Failure::usage(anyhow::anyhow!("{}: {why}", file.display())))?;
    let url = load.parameters.get("url").and_then(|url| url.as_str());
    load.doubt = url.and_then(|url| doubt(url, &run.meta.config));
    Ok(load)
}

/// Why a load that was sent to this URL may not have come to the run with this configuration. A proxy or another network may stand
/// between: that is no reason to refuse it.
fn doubt(url: &str, configuration: &str) -> Option<String> {
    let (port, ports) = (port_of(url)?, listened_on(configuration));
    // Port 0 is one that the kernel chose.
    if ports.is_empty() || ports.contains(&port) || ports.contains(&0) {
        return None;
    }
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    Some(format!(
        "the load was sent to {url}, and the run listened on port {}: whether it came to this run is not known, and it decides nothing about \
         a comparison",
        ports.join(", ")
    ))
}

/// The port that a URL names, or that its scheme has.
fn port_of(url: &str) -> Option<u16> {
    let url: http::Uri = url.parse().ok()?;
    url.port_u16().or(match url.scheme_str()? {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    })
}

/// The ports that a run's gateway served on, as far as its recorded configuration says; empty where it does not.
fn listened_on(configuration: &str) -> Vec<u16> {
    let parsed = configuration.parse::<toml::Table>().ok();
    let gateway = parsed.as_ref().and_then(|all| all.get("gateway"));
    let own = gateway.and_then(|gateway| gateway.get("listen")?.as_array());
    let tls = gateway.and_then(|gateway| gateway.get("tls")?.as_array());
    let tls = tls.into_iter().flatten().filter_map(|one| one.get("listen"));
    let all = own.into_iter().flatten().chain(tls);
    all.filter_map(|address| Some(address.as_str()?.parse::<SocketAddr>().ok()?.port()))
        .collect()
}

fn create(path: &Path) -> anyhow::Result<BufWriter<File>> {
    let file = File::create(path).with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(BufWriter::new(file))
}

/// Lists the recorded runs.
///
/// # Errors
/// A record that cannot be read.
pub fn runs(args: &RunsArgs) -> Result<(), Failure> {
    let archive = Archive::open(&args.record.db).map_err(Failure::usage)?;
    let runs = archive.runs(MAX_LISTED)?;
    if runs.len() == MAX_LISTED as usize {
        say::note!("these are the latest {MAX_LISTED} runs; older ones are found by their number or name");
    }
    if args.json {
        let summaries = runs
            .iter()
            .map(|run| archive.summary(run.id))
            .collect::<Result<Vec<_>, _>>()?;
        say::result(serde_json::to_string(&summaries)?)
    } else {
        let listed = runs.into_iter().map(|run| {
            let summary = archive.summary(run.id);
            let unreadable = |error: &headroom_record::Error| say::note!("{error}");
            (run, summary.inspect_err(unreadable).ok())
        });
        say::result(table::runs_table(&listed.collect::<Vec<_>>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_was_sent_to_a_port_that_the_run_did_not_listen_on_is_doubtful() {
        let run = "[gateway]\nlisten = [\"0.0.0.0:8080\"]\ntls = [{ listen = \"[::]:443\", certificate = \"a\", key = \"b\" }]\n";
        for url in ["http://web:8080/", "https://web/"] {
            assert_eq!(doubt(url, run), None, "{url}");
        }
        let said = doubt("http://web/", run).unwrap();
        assert!(
            said.contains("http://web/") && said.contains("port 8080, 443"),
            "{said}"
        );
        for unknown in ["", "[telemetry]\n", "[gateway]\nlisten = [\"127.0.0.1:0\"]\n"] {
            assert_eq!(doubt("http://web/", unknown), None, "{unknown}");
        }
    }
}
