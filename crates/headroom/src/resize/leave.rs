//! The end: every server is left serving, for nobody will start one any more.

use super::balancer::{Admission, Wanted};
use super::cluster::Cluster;
use super::hand::PowerOrder;
use crate::say;
use headroom_control::resize::PowerState;
use std::time::{Duration, Instant};

/// How often the servers are looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// A server that was told to start, and of whose power nothing is heard, is told again after this long. No sooner: a service
/// processor takes some seconds to switch what it was told to, says meanwhile that the power is off, and may begin anew with
/// each order.
const START_AGAIN: Duration = Duration::from_secs(15);
/// One that could not be told is told again after this long.
const TELL_AGAIN: Duration = Duration::from_secs(5);
/// The balancer has this long for the last word.
const LAST_WORD: Duration = Duration::from_secs(3);

/// Starts every server that does not answer and gives requests to each that does; at the end of `wait` to all, for the
/// balancer's own checks keep requests from one that is down. What could not be done, in words.
pub fn leave(cluster: &mut Cluster, wait: Duration) -> Vec<String> {
    // One that was told to stop answers for a while yet: it does not count until it fell silent, or was not stopped after
    // all.
    let mut going: Vec<bool> = cluster
        .states()
        .iter()
        .map(|(_, state)| *state == PowerState::Stopping)
        .collect();
    let parts = &mut cluster.parts;
    let count = parts.servers.len();
    let mut is_told = vec![false; count];
    // Not to be told before.
    let mut due = vec![Instant::now(); count];
    let wanted = |ready: &[bool]| -> Vec<Wanted> {
        let one = |ready: &bool| Wanted {
            admission: if *ready { Admission::Ready } else { Admission::Out },
            warming: false,
        };
        ready.iter().map(one).collect()
    };
    let mut until = Instant::now() + wait;
    let mut last_word = false;
    loop {
        let mut answering: Vec<bool> = (0..count).map(|at| parts.checks.answers(at).is_ok()).collect();
        for (at, server) in parts.servers.iter().enumerate() {
            let has_failed = server.hand.take_failure().is_some();
            going[at] = going[at] && answering[at] && !has_failed;
            if going[at] {
                answering[at] = false;
                continue;
            }
            let now = Instant::now();
            if has_failed && is_told[at] {
                due[at] = now + TELL_AGAIN;
            }
            if server.hand.powered() == Some(true) {
                // Booting, or shutting down: then it is off soon, and is started then.
                due[at] = now;
            } else if !answering[at] && now >= due[at] && !server.hand.busy() {
                if !is_told[at] {
                    say::note!("starting {} before the end", server.name);
                }
                server.hand.set_eager(true);
                server.hand.order(PowerOrder::On);
                is_told[at] = true;
                due[at] = now + START_AGAIN;
            }
        }
        let ready = if last_word {
            vec![true; count]
        } else {
            answering.clone()
        };
        let look = parts.balancer.look(parts.period);
        let told = parts.balancer.want(&wanted(&ready), parts.period);
        let admitted = look.as_ref().is_ok_and(|look| {
            let members = look.members.iter().zip(&ready);
            members
                .into_iter()
                .all(|(member, ready)| !ready || member.admission == Admission::Ready)
        });
        let served = answering.iter().all(|answers| *answers);
        if admitted && told.is_ok() && (served || last_word) {
            return left(cluster, &answering);
        }
        if Instant::now() >= until {
            if last_word {
                let why = look
                    .err()
                    .or(told.err())
                    .unwrap_or_else(|| "it has not taken every change".to_owned());
                let mut left = left(cluster, &answering);
                left.push(format!(
                    "the balancer could not be told that every server gets requests: {why}"
                ));
                return left;
            }
            last_word = true;
            until = Instant::now() + LAST_WORD;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn left(cluster: &Cluster, answering: &[bool]) -> Vec<String> {
    let servers = cluster.parts.servers.iter().enumerate();
    servers
        .filter(|(at, _)| !answering[*at])
        .map(|(_, server)| {
            let why = server
                .hand
                .trouble()
                .map_or(String::new(), |why| format!(": {why}"));
            format!("{} does not answer yet{why}", server.name)
        })
        .collect()
}
