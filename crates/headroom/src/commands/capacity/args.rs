//! The arguments of `headroom capacity`.

use crate::args::Trees;
use clap::Args;
use headroom_console::args::{seconds, seconds_or_none};
use headroom_control::capacity::QueueTuning;
use headroom_node::queue::{QueuePreference, StatusPage};
use headroom_wire::Address;
use std::net::SocketAddr;
use std::path::PathBuf;

/// `headroom capacity`.
///
/// Watches the accept queue of a TCP port, whoever serves it, and says how many connections a second that server can
/// take now: by queue monitoring as published (C.-H. Tsai et al., 2007) and as our own, by throughput over CPU
/// utilisation as it is read from /proc, vmstat and netstat, SNMP or the server's status page, and as a benchmark found
/// it. It changes nothing on the machine.
///
///   headroom capacity --port 80
///   headroom capacity --port 80 --status-url 'http://127.0.0.1/server-status?auto' --duration 600
///   headroom capacity --port 80 --agent web1:7443 --agent-ca ca.crt --agent-cert controller.crt --agent-key controller.key
///   headroom capacity --port 80 --agent unix:/run/headroom/agent.sock --cgroup /sys/fs/cgroup/system.slice/apache2.service
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct CapacityArgs {
    /// The TCP port, in this network namespace, or in that of the agent.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Ways to measure, with commas: ebpf, kernel, tools, snmp, status. By default all; those that do not work here are
    /// listed with reason and remedy.
    #[arg(long, value_name = "LIST")]
    pub method: Option<QueuePreference>,
    /// T, seconds between two samples.
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = period)]
    pub period: f64,
    /// Stop after this many seconds; by default at SIGINT or SIGTERM.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub duration: Option<f64>,
    /// The share of itself that an estimate keeps when it is adapted, from 0 to below 1 (Equation 5).
    #[arg(long, default_value_t = QueueTuning::default().keep, value_name = "SHARE")]
    pub alpha: f64,
    /// The drop ratio that is too much, in percent of the connection attempts.
    #[arg(long, default_value_t = QueueTuning::default().drop_ratio * 100.0, value_name = "PERCENT")]
    pub threshold: f64,
    /// T_c, seconds for which the queue's growth is forecast: the time that another server would take to start.
    #[arg(long, default_value_t = QueueTuning::default().forecast_s, value_name = "SECONDS", value_parser = seconds_or_none)]
    pub forecast: f64,
    /// K, the accept queue's backlog, in place of the kernel's own figure.
    #[arg(long, value_name = "BACKLOG")]
    pub queue_limit: Option<u32>,
    /// The capacity that a benchmark found, in connections a second, to compare with.
    #[arg(long = "static", value_name = "RATE")]
    pub fixed: Option<f64>,
    /// Call it capacity, as a benchmark under a slowly rising load does, once the drop ratio over this many seconds
    /// reaches the threshold: the mean throughput of that window, and no other figure from then on. 60 in the paper.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub ramp: Option<f64>,
    /// Instead of watching, find out how many samples a second each method can take now, one after another, each for so
    /// many seconds. Not through an agent: that would be how many samples the network carries; run it on that machine.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub rates: Option<f64>,
    /// The server's status page: mod_status with ?auto (Apache), stub_status (nginx). It is got by this program, also where
    /// the port is watched through an agent: give it as this machine can reach it.
    #[arg(long, value_name = "URL")]
    pub status_url: Option<StatusPage>,
    /// The SNMP agent.
    #[arg(long, default_value = "127.0.0.1:161", value_name = "ADDR")]
    pub snmp: SocketAddr,
    /// The community that the agent lets in.
    #[arg(long, default_value = "public", value_name = "NAME")]
    pub snmp_community: String,
    /// Take the CPU utilisation of this control group, in the cores that it may use, instead of the machine's (for the
    /// estimate by /proc). With --agent it is a group of the agent's machine: that of its service, one that its
    /// configuration names (agent.cpu_groups), or one below these.
    #[arg(long, value_name = "DIR", conflicts_with = "pid")]
    pub cgroup: Option<String>,
    /// The same, of the control group that this process of this machine is in.
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Watch the port of another machine, through its `headroom agent`: unix:/path, or host:port with certificates. The ways
    /// to measure are those that it has, and a status page that this machine can reach; SNMP is the agent's machine's own.
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["snmp", "snmp_community", "pid"])]
    pub agent: Option<Address>,
    /// For an agent over TCP: the authority's certificate, as `headroom certs` makes it.
    #[arg(long, value_name = "FILE", requires_all = ["agent", "agent_cert", "agent_key"])]
    pub agent_ca: Option<PathBuf>,
    /// For an agent over TCP: the controller's certificate (`headroom certs issue-controller`).
    #[arg(long, value_name = "FILE", requires = "agent_ca")]
    pub agent_cert: Option<PathBuf>,
    /// For an agent over TCP: the key to it.
    #[arg(long, value_name = "FILE", requires = "agent_ca")]
    pub agent_key: Option<PathBuf>,
    /// The report to write at the end.
    #[arg(long, default_value = "out/capacity.html", value_name = "FILE")]
    pub html: PathBuf,
    /// Write every sample of every method to this file too, as CSV.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// The title of the report.
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// Print the result as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// Print a line a period instead of the live view (the default where standard error is no terminal).
    #[arg(long)]
    pub no_view: bool,
    /// Where the kernel's files are.
    #[command(flatten)]
    pub trees: Trees,
}

/// The sampling period.
fn period(text: &str) -> Result<f64, String> {
    let seconds = text
        .parse()
        .ok()
        .filter(|seconds| (0.01..=3_600.0).contains(seconds));
    seconds.ok_or_else(|| "give a number of seconds between 0.01 and 3600".to_owned())
}
