//! A port of another machine, by the ways to measure that its agent has.

use super::CapacityArgs;
use super::cpu::ServiceCpu;
use super::page::DistantPage;
use super::watch::Watch;
use super::{Run, order, some};
use anyhow::anyhow;
use headroom_console::Failure;
use headroom_node::queue::{QueueError, QueueMeter, QueueMethod};
use headroom_runtime::cluster::{AgentQueue, Standing, WatchOptions};
use headroom_runtime::looks::look_period;
use headroom_wire::Address;
use headroom_wire::client::ClientOptions;
use headroom_wire::message::CpuGroup;
use headroom_wire::tls::{ClientTls, TlsFiles};
use std::time::{Duration, Instant};

/// For how long the agent's first word is waited for, and for a sight that is late: one by tools takes a second or two.
const PATIENCE: Duration = Duration::from_secs(5);
/// The shortest period of an agent's sights.
const SHORTEST: Duration = Duration::from_millis(10);

/// What a watch of the queue is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// The method's samples, once a period.
    Rows,
    /// The looks of a method in between, where it needs a watch of its own for them.
    Looks,
    /// To know whether somebody listens, for a page that is got from here.
    Listening,
}

/// One watch of the queue through the agent.
struct Asked {
    method: QueueMethod,
    purpose: Use,
    group: Option<CpuGroup>,
}

impl Asked {
    fn options(
        &self,
        address: &Address,
        client: &ClientOptions,
        port: u16,
        period: Duration,
    ) -> WatchOptions {
        let method = match self.purpose {
            Use::Listening => QueueMethod::Kernel,
            Use::Rows | Use::Looks => self.method,
        };
        let looks = self.purpose == Use::Looks || self.method == QueueMethod::Ebpf;
        WatchOptions {
            address: address.clone(),
            client: client.clone(),
            port,
            methods: vec![method],
            period: match looks {
                true => look_period(period).max(SHORTEST),
                false => period,
            },
            patience: period + PATIENCE,
            cpu_group: self.group.clone(),
        }
    }
}

/// Asks the agent for each method, and keeps why it lacks the others.
pub fn open_all(run: &mut Run<'_>, address: &Address, started: Instant) -> Result<Vec<Watch>, Failure> {
    let args = run.args;
    let client = client(args)?;
    let period = Duration::from_secs_f64(run.tuning.sampling_period_s);
    let asked = asked(run)?;
    let options = asked
        .iter()
        .map(|one| one.options(address, &client, args.port, period));
    let queues = AgentQueue::watch(options.collect())?;
    let mut queues = asked.iter().zip(queues).peekable();
    let mut watches = Vec::new();
    let mut seen: Option<Standing> = None;
    while let Some((one, queue)) = queues.next() {
        let looking = queues.next_if(|(next, _)| next.purpose == Use::Looks);
        match queue.first_word(PATIENCE) {
            Ok(standing) => {
                let group = one.group.as_ref();
                if let Some((group, why)) = group.zip(queue.group_trouble()) {
                    return Err(Failure::usage(anyhow!(
                        "--cgroup {group}, by the agent at {address}: {why}"
                    )));
                }
                let cpu = group.map(|_| Box::new(queue.group()) as Box<dyn ServiceCpu>);
                let meter: Box<dyn QueueMeter> = match (one.purpose, &args.status_url) {
                    (Use::Listening, Some(page)) => match DistantPage::open(args.port, page, queue) {
                        Ok(page) => Box::new(page),
                        Err(error) => {
                            run.pass_over(one.method, error.to_string());
                            continue;
                        }
                    },
                    _ => Box::new(queue),
                };
                seen = seen.filter(|seen| seen.sockets > 0).or(Some(standing));
                let looking = looking.map(|(_, queue)| Box::new(queue) as Box<dyn QueueMeter>);
                let watch = Watch::new(meter, looking, cpu, run.tuning, run.ramp(), started);
                watches.push(watch.map_err(Failure::usage)?);
                run.methods.push(one.method);
            }
            Err(error @ QueueError::NobodyListens { .. }) => {
                return Err(Failure::usage(anyhow!("the agent at {address}: {error}")));
            }
            Err(error) => match &one.group {
                Some(group) if queue.is_denied() => {
                    return Err(Failure::usage(anyhow!("--cgroup {group}: {error}")));
                }
                _ if !queue.is_reached() && watches.is_empty() => return Err(Failure::usage(error)),
                _ => run.pass_over(one.method, error.to_string()),
            },
        }
    }
    remark(run, address);
    if let Some(Standing { sockets, places, .. }) = seen {
        run.remark_sockets(sockets, places);
    }
    some(watches)
}

/// What the agent is asked for, method by method.
fn asked(run: &mut Run<'_>) -> Result<Vec<Asked>, Failure> {
    let args = run.args;
    let group = args.cgroup.clone().map(CpuGroup::new).transpose();
    let mut group = group.map_err(|error| Failure::usage(anyhow!("--cgroup: {error}")))?;
    let mut asked = Vec::new();
    for method in order(args) {
        let one = |purpose, group| Asked {
            method,
            purpose,
            group,
        };
        match method {
            QueueMethod::Status if args.status_url.is_none() => {
                let why = "its address is not given: name it by --status-url, as this machine can reach it";
                run.pass_over(method, why.to_owned());
            }
            QueueMethod::Status => asked.push(one(Use::Listening, None)),
            QueueMethod::Kernel => {
                asked.push(one(Use::Rows, group.take()));
                // As on this machine: looks would make a CPU utilisation one of hundredths of a second.
                asked.push(one(Use::Looks, None));
            }
            QueueMethod::Ebpf | QueueMethod::Tools | QueueMethod::Snmp => asked.push(one(Use::Rows, None)),
        }
    }
    Ok(asked)
}

/// What a reader must know of what is measured where.
fn remark(run: &mut Run<'_>, address: &Address) {
    run.remark_machine("other ports");
    let args = run.args;
    if let Some(group) = args
        .cgroup
        .as_ref()
        .filter(|_| run.methods.contains(&QueueMethod::Kernel))
    {
        run.remarks.push(format!(
            "the CPU utilisation by /proc is that of {group} on the machine of the agent at {address}"
        ));
    }
    if let Some(page) = args
        .status_url
        .as_ref()
        .filter(|_| run.methods.contains(&QueueMethod::Status))
    {
        run.remarks.push(format!(
            "the status page {page} is got from this machine and not by the agent: on the way it may be late, and it goes \
             on while the agent is silent"
        ));
    }
}

/// How the agent is reached.
fn client(args: &CapacityArgs) -> Result<ClientOptions, Failure> {
    let tls = match (&args.agent_ca, &args.agent_cert, &args.agent_key) {
        (Some(ca), Some(certificate), Some(key)) => {
            let files = TlsFiles {
                ca: ca.clone(),
                certificate: certificate.clone(),
                key: key.clone(),
                revoked: None,
            };
            Some(ClientTls::load(&files).map_err(Failure::usage)?)
        }
        _ => None,
    };
    // Both together are shorter than PATIENCE: why an agent cannot be reached is known before it is given up.
    let patience = Duration::from_secs(2);
    Ok(ClientOptions {
        tls,
        connect_time: patience,
        answer_time: patience,
        ..ClientOptions::default()
    })
}
