//! What `headroom profile` is told.

use super::{compare, far_end};
use clap::{Args, Subcommand};
use headroom_console::args::{seconds, whole_content_bytes};
use headroom_node::power::MeterPreference;
use headroom_wire::Address;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What the help teaches by example.
const EXAMPLES: &str = "\
Examples:
  headroom profile --url http://127.0.0.1/sizes --write-files /var/www/html/sizes     makes the files that are asked for, and asks
  headroom profile --url http://web1/sizes --agent web1:7443 --agent-ca ca.crt --agent-cert c.crt --agent-key c.key --far-end 10.0.0.7:7444
  headroom profile --url memcached://127.0.0.1 --sets 0.1 --out cache1.json           one request of ten stores a value
  headroom profile compare web1.json arm3.json                                        tables and plots of both

What is measured: for each size and each density (the share of each window of 5 s in which requests are sent) the throughput of
--concurrency connections that ask again as soon as they are answered; what the machine draws and how busy its cores, its software
interrupts and its link are meanwhile; latencies. Round after round, each cell one window, in an order that the seed shuffles, until the
95 % interval of throughput and watts is within --precision of the mean (five windows at least) or the time is over. Before that what the
machine draws idle, with all cores busy, and with its link full: the last two by `headroom profile far-end`, which runs on the machine.

Where watts come from: RAPL, HSMP, hwmon or perf where the machine has them, else a model by its busy cores (--machine: its figures),
called estimated everywhere. From another machine the node's agent reports them (--agent).

On one machine the generator takes a part of the cores: what is found is less than the machine serves alone, and is marked.
An interrupted profile goes on by the same command.";

/// `headroom profile`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct ProfileArgs {
    /// What else is done.
    #[command(subcommand)]
    pub what: Option<What>,
    /// The service: http://HOST[:PORT]/PATH, where {size} stands for the bytes asked for (`/{size}` is added where it stands
    /// nowhere), or memcached://HOST[:PORT].
    #[arg(long, value_name = "URL", required = true)]
    pub url: Option<String>,
    /// The sizes: 1KB,10KB,100KB by default, of a memcached 1KB,10KB,999KB. A KB is 1024 bytes.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = whole_content_bytes)]
    pub sizes: Vec<u64>,
    /// The densities, in percent of each window.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "100,75,50,25", value_parser = density)]
    pub densities: Vec<f64>,
    /// Connections that ask at once.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub concurrency: u32,
    /// The length of a window, seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = window)]
    pub window: f64,
    /// Of a memcached: the share of requests that store a value, 0 to 1; the others get one.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    pub sets: f64,
    /// Of a memcached: how many keys there are; by default as many as 16 MiB of values, at most 10,000.
    #[arg(long, value_name = "N")]
    pub keys: Option<usize>,
    /// Of HTTP: a new connection for each request, as ApacheBench has without -k.
    #[arg(long)]
    pub new_connections: bool,
    /// Begin no other window after this time (90s, 15m, 1h).
    #[arg(long, value_name = "TIME", default_value = "14m", value_parser = seconds)]
    pub within: f64,
    /// How narrow is narrow enough: half of a 95 % interval, in percent of the mean.
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0, value_parser = precision)]
    pub precision: f64,
    /// Threads of the generator: 1 on the machine that is measured, else as many as there are processors, at most 4.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: Option<u32>,
    /// Seed of the order of cells, and of keys.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write a file of each size into this folder first, named by its bytes: what an HTTP server needs to be asked for it.
    #[arg(long, value_name = "DIR")]
    pub write_files: Option<PathBuf>,
    /// The node that serves, read through its `headroom agent`: unix:/path, or host:port with certificates.
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["sys", "proc", "meter", "machine"])]
    pub agent: Option<Address>,
    /// For an agent over TCP: the authority's certificate, as `headroom certs` makes it.
    #[arg(long, value_name = "FILE", requires_all = ["agent", "agent_cert", "agent_key"])]
    pub agent_ca: Option<PathBuf>,
    /// For an agent over TCP: a reader's or a controller's certificate (`headroom certs issue-reader`).
    #[arg(long, value_name = "FILE", requires = "agent_ca")]
    pub agent_cert: Option<PathBuf>,
    /// For an agent over TCP: the key to it.
    #[arg(long, value_name = "FILE", requires = "agent_ca")]
    pub agent_key: Option<PathBuf>,
    /// Where `headroom profile far-end` listens on the machine that serves, for the baselines of all cores busy and of a full link. On
    /// this machine it is started for that.
    #[arg(long, value_name = "ADDR:PORT")]
    pub far_end: Option<SocketAddr>,
    /// Leave those two baselines out.
    #[arg(long, conflicts_with = "far_end")]
    pub no_baselines: bool,
    /// The link whose bytes count; by default the one that most passes.
    #[arg(long, value_name = "NAME")]
    pub link: Option<String>,
    /// The meters that may be taken, in order: auto, or rapl, psys, perf, hsmp, hwmon, model.
    #[arg(long, value_name = "LIST", default_value = "auto")]
    pub meter: MeterPreference,
    /// The figures of this machine for the modelled meter: a TOML file with the table [machine] as `headroom up --example` shows it.
    #[arg(long, value_name = "FILE")]
    pub machine: Option<PathBuf>,
    /// Use this tree instead of /sys, such as the one of `headroom emulate`.
    #[arg(long, default_value = "/sys", value_name = "DIR")]
    pub sys: PathBuf,
    /// Use this tree instead of /proc.
    #[arg(long, default_value = "/proc", value_name = "DIR")]
    pub proc: PathBuf,
    /// What the machine is called in tables; its host's name by default.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The profile to write: after each window, so that an interrupted one goes on.
    #[arg(long, value_name = "FILE", default_value = "out/profile.json")]
    pub out: PathBuf,
    /// Begin anew where the file has a profile already; a file that is something else is left alone.
    #[arg(long)]
    pub fresh: bool,
    /// The report to write; by default beside the profile, as NAME.html.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Print the profile as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

impl ProfileArgs {
    /// Where the report goes: beside the profile, so that that of another machine is no other's, unless it was said.
    pub fn report(&self) -> PathBuf {
        self.report.clone().unwrap_or_else(|| {
            let mut name = self.out.file_stem().unwrap_or_default().to_owned();
            // A profile that is called so itself is not written over.
            if self.out.extension().is_some_and(|extension| extension == "html") {
                name.push(".report");
            }
            name.push(".html");
            self.out.with_file_name(name)
        })
    }
}

/// What `headroom profile` does besides measuring.
#[derive(Debug, Subcommand)]
pub enum What {
    /// Profiles beside each other: throughput per power by size and density, throughput over power, resource use; whether two of the
    /// same machine agree.
    Compare(compare::CompareArgs),
    /// On the machine that serves: keep all cores busy, or fill the link, when `headroom profile --far-end` asks for it.
    FarEnd(far_end::FarEndArgs),
}

fn density(text: &str) -> Result<f64, String> {
    let percent: Option<f64> = text.trim().trim_end_matches('%').parse().ok();
    let share = percent.filter(|percent| *percent >= 1.0 && *percent <= 100.0);
    share
        .map(|percent| percent / 100.0)
        .ok_or_else(|| format!("`{text}` is no density: give 1 to 100 percent of a window"))
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "give a share from 0 to 1".to_owned())
}

fn window(text: &str) -> Result<f64, String> {
    seconds(text).and_then(|seconds| match (0.5..=600.0).contains(&seconds) {
        true => Ok(seconds),
        false => Err("give 0.5 to 600 seconds".to_owned()),
    })
}

fn precision(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').parse().ok();
    let percent = percent.filter(|percent| (0.1..=50.0).contains(percent));
    percent.ok_or_else(|| "give 0.1 to 50 percent".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_goes_beside_its_profile() {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            profile: ProfileArgs,
        }
        let report = |words: &str| {
            let words = format!("profile --url http://web1/ {words}");
            let args = <Command as clap::Parser>::try_parse_from(words.split_whitespace()).unwrap();
            args.profile.report().display().to_string()
        };
        for (words, at) in [
            ("", "out/profile.html"),
            ("--out web1.json", "web1.html"),
            ("--out a.b/web1", "a.b/web1.html"),
            ("--out x/web1.html", "x/web1.report.html"),
            ("--out web1.json --report r.html", "r.html"),
        ] {
            assert_eq!(report(words), at, "{words}");
        }
    }

    #[test]
    fn densities_are_read_as_people_write_them() {
        assert_eq!((density("75").unwrap(), density("25%").unwrap()), (0.75, 0.25));
        for bad in ["0", "101", "x"] {
            assert!(density(bad).unwrap_err().contains("1 to 100"), "{bad}");
        }
        assert!(window("0.1").is_err() && share("1.1").is_err() && precision("0").is_err());
    }
}
