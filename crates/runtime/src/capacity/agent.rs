//! A port of another machine, by the ways to measure that its agent has.

use super::Watching;
use super::cpu::ServiceCpu;
use super::page::DistantPage;
use super::watch::Watch;
use crate::cluster::{AgentQueue, Standing, WatchOptions};
use crate::queue_sample::sampling_period;
use anyhow::anyhow;
use headroom_console::Failure;
use headroom_node::queue::{QueueError, QueueMeter, QueueMethod, StatusPage};
use headroom_wire::Address;
use headroom_wire::client::ClientOptions;
use headroom_wire::message::CpuGroup;
use std::time::Duration;

/// For how long the agent's first word is waited for, and for a snapshot that is late: one by tools takes a second or two.
const PATIENCE: Duration = Duration::from_secs(5);
/// The shortest period of an agent's snapshots.
const MIN_PERIOD: Duration = Duration::from_millis(10);

/// What a watch of the queue is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// The method's samples, once a period.
    Rows,
    /// The samples of a method in between, where it needs a watch of its own for them.
    Between,
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
            Use::Rows | Use::Between => self.method,
        };
        let often = self.purpose == Use::Between || self.method == QueueMethod::Ebpf;
        WatchOptions {
            address: address.clone(),
            client: client.clone(),
            port,
            methods: vec![method],
            period: match often {
                true => sampling_period(period).max(MIN_PERIOD),
                false => period,
            },
            patience: period + PATIENCE,
            cpu_group: self.group.clone(),
        }
    }
}

impl Watching {
    /// Asks the agent for each method, and keeps why it lacks the others.
    pub(super) fn open_agent(
        &mut self,
        address: &Address,
        client: &ClientOptions,
        group: Option<CpuGroup>,
        status: Option<&StatusPage>,
    ) -> Result<(), Failure> {
        let port = self.plan.port;
        let period = Duration::from_secs_f64(self.plan.tuning.sampling_period_s);
        let asked = self.asked(group.clone(), status);
        let options = asked.iter().map(|one| one.options(address, client, port, period));
        let queues = AgentQueue::watch(options.collect())?;
        let mut queues = asked.iter().zip(queues).peekable();
        let mut sockets: Option<Standing> = None;
        while let Some((one, queue)) = queues.next() {
            let between = queues.next_if(|(next, _)| next.purpose == Use::Between);
            match queue.first_word(PATIENCE) {
                Ok(standing) => {
                    let group = one.group.as_ref();
                    if let Some((group, why)) = group.zip(queue.group_trouble()) {
                        return Err(Failure::usage(anyhow!(
                            "--cgroup {group}, by the agent at {address}: {why}"
                        )));
                    }
                    let cpu = group.map(|_| Box::new(queue.group()) as Box<dyn ServiceCpu>);
                    let meter: Box<dyn QueueMeter> = match (one.purpose, status) {
                        (Use::Listening, Some(page)) => match DistantPage::open(port, page, queue) {
                            Ok(page) => Box::new(page),
                            Err(error) => {
                                self.pass_over(one.method, error.to_string());
                                continue;
                            }
                        },
                        _ => Box::new(queue),
                    };
                    sockets = sockets.filter(|found| found.sockets > 0).or(Some(standing));
                    let between = between.map(|(_, queue)| Box::new(queue) as Box<dyn QueueMeter>);
                    let watch = Watch::new(meter, between, cpu, &self.plan, self.started);
                    self.watches.push(watch.map_err(Failure::usage)?);
                }
                Err(error @ QueueError::NobodyListens { .. }) => {
                    return Err(Failure::usage(anyhow!("the agent at {address}: {error}")));
                }
                Err(error) => match &one.group {
                    Some(group) if queue.is_denied() => {
                        return Err(Failure::usage(anyhow!("--cgroup {group}: {error}")));
                    }
                    _ if !queue.is_reached() && self.watches.is_empty() => {
                        return Err(Failure::usage(error));
                    }
                    _ => self.pass_over(one.method, error.to_string()),
                },
            }
        }
        self.remark_agent(address, group.as_ref(), status);
        if let Some(Standing { sockets, places, .. }) = sockets {
            self.remark_sockets(sockets, places);
        }
        Ok(())
    }

    /// What the agent is asked for, method by method.
    fn asked(&mut self, mut group: Option<CpuGroup>, status: Option<&StatusPage>) -> Vec<Asked> {
        let mut asked = Vec::new();
        for method in self.plan.methods.clone() {
            let one = |purpose, group| Asked {
                method,
                purpose,
                group,
            };
            match method {
                QueueMethod::Status if status.is_none() => {
                    let why =
                        "its address is not given: name it by --status-url, as this machine can reach it";
                    self.pass_over(method, why.to_owned());
                }
                QueueMethod::Status => asked.push(one(Use::Listening, None)),
                QueueMethod::Kernel => {
                    asked.push(one(Use::Rows, group.take()));
                    // As on this machine: one meter for both would make a CPU utilisation one of hundredths of a second.
                    asked.push(one(Use::Between, None));
                }
                QueueMethod::Ebpf | QueueMethod::Tools | QueueMethod::Snmp => {
                    asked.push(one(Use::Rows, None));
                }
            }
        }
        asked
    }

    /// What a reader must know of what is measured where.
    fn remark_agent(&mut self, address: &Address, group: Option<&CpuGroup>, status: Option<&StatusPage>) {
        self.remark_machine("other ports");
        let used: Vec<QueueMethod> = self.methods().collect();
        if let Some(group) = group.filter(|_| used.contains(&QueueMethod::Kernel)) {
            self.remarks.push(format!(
                "the CPU utilisation by /proc is that of {group} on the machine of the agent at {address}"
            ));
        }
        if let Some(page) = status.filter(|_| used.contains(&QueueMethod::Status)) {
            self.remarks.push(format!(
                "the status page {page} is got from this machine and not by the agent: on the way it may be late, and it goes \
                 on while the agent is silent"
            ));
        }
    }
}
