//! A port of another machine, by the ways to measure that its agent has.

use super::watch::{Watch, look_period};
use super::{Run, order, some};
use crate::cli::CapacityArgs;
use crate::cluster::{AgentQueue, Standing, WatchOptions};
use crate::failure::Failure;
use anyhow::anyhow;
use headroom_node::queue::{QueueError, QueueMeter, QueueMethod};
use headroom_wire::Address;
use headroom_wire::client::ClientOptions;
use headroom_wire::tls::{ClientTls, TlsFiles};
use std::time::{Duration, Instant};

/// For how long the agent's first word is waited for, and for a sight that is late: one by tools takes a second or two.
const PATIENCE: Duration = Duration::from_secs(5);
/// The shortest period of an agent's sights.
const SHORTEST: Duration = Duration::from_millis(10);

/// One method, and a second watch of it for the looks in between where it needs one.
struct Asked {
    method: QueueMethod,
    looks: bool,
}

/// Asks the agent for each method, and keeps why it lacks the others.
pub fn open_all(run: &mut Run<'_>, address: &Address, started: Instant) -> Result<Vec<Watch>, Failure> {
    let args = run.args;
    let client = client(args)?;
    let period = Duration::from_secs_f64(run.tuning.sampling_period_s);
    let looks = look_period(period).max(SHORTEST);
    let mut asked = Vec::new();
    for method in order(args) {
        if method.through_agent().is_none() {
            run.pass_over(method, "agents ask no status page".to_owned());
            continue;
        }
        // As on this machine: looks would make a CPU utilisation one of hundredths of a second.
        let looks = method == QueueMethod::Kernel;
        asked.push(Asked { method, looks: false });
        asked.extend(looks.then_some(Asked { method, looks }));
    }
    let options = asked.iter().map(|one| WatchOptions {
        address: address.clone(),
        client: client.clone(),
        port: args.port,
        methods: vec![one.method],
        period: match one.looks || one.method == QueueMethod::Ebpf {
            true => looks,
            false => period,
        },
        patience: period + PATIENCE,
    });
    let queues = AgentQueue::watch(options.collect())?;
    let mut queues = asked.iter().zip(queues).peekable();
    let mut watches = Vec::new();
    let mut seen: Option<Standing> = None;
    while let Some((one, queue)) = queues.next() {
        let looking = queues.next_if(|(next, _)| next.looks).map(|(_, queue)| queue);
        match queue.first_word(PATIENCE) {
            Ok(standing) => {
                seen = seen.filter(|seen| seen.sockets > 0).or(Some(standing));
                let looking = looking.map(|queue| Box::new(queue) as Box<dyn QueueMeter>);
                let watch = Watch::new(Box::new(queue), looking, None, run.tuning, run.ramp(), started);
                watches.push(watch.map_err(Failure::usage)?);
                run.methods.push(one.method);
            }
            Err(error @ QueueError::NobodyListens { .. }) => {
                return Err(Failure::usage(anyhow!("the agent at {address}: {error}")));
            }
            Err(error) if !queue.is_reached() && watches.is_empty() => return Err(Failure::usage(error)),
            Err(error) => run.pass_over(one.method, error.to_string()),
        }
    }
    run.remark_machine("other ports");
    if let Some(Standing { sockets, places, .. }) = seen {
        run.remark_sockets(sockets, places);
    }
    some(watches)
}

/// How the agent is reached.
fn client(args: &CapacityArgs) -> Result<ClientOptions, Failure> {
    let tls = match (&args.agent_ca, &args.agent_cert, &args.agent_key) {
        (Some(ca), Some(certificate), Some(key)) => {
            let files = TlsFiles {
                ca: ca.clone(),
                certificate: certificate.clone(),
                key: key.clone(),
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
