//! Servers and a balancer for tests.

use super::balancer::{Admission, Balancer, Look, Member, Wanted};
use super::check::{CheckTarget, Checks};
use super::servers::{Demand, Parts, ServerParts, Servers, TakenOut};
use super::switch_worker::SwitchWorker;
use headroom_console::Stop;
use headroom_control::resize::PowerTuning;
use headroom_node::switch::{PowerSwitch, SwitchError};
use headroom_units::Seconds;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A balancer that does what it is told, and remembers it.
pub struct Obedient(pub Arc<Mutex<Vec<Wanted>>>);

impl Balancer for Obedient {
    fn name(&self) -> String {
        "a balancer".to_owned()
    }

    fn no_reuse(&self) -> &'static str {
        "it so"
    }

    fn look(&mut self, _: Duration) -> Result<Look, String> {
        let wanted = self.0.lock().unwrap();
        let members = wanted.iter().map(|wanted| Member {
            admission: wanted.admission.unwrap(),
            in_flight: Some(0),
            well: None,
            counted: None,
        });
        Ok(Look {
            members: members.collect(),
            traffic: None,
        })
    }

    fn want(&mut self, wanted: &[Wanted], _: Duration) -> Result<(), String> {
        for (now, wanted) in self.0.lock().unwrap().iter_mut().zip(wanted) {
            *now = Wanted {
                admission: wanted.admission.or(now.admission),
                ..*wanted
            };
        }
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The switch of a server that is on.
struct On;

impl PowerSwitch for On {
    fn on(&mut self) -> Result<(), SwitchError> {
        Ok(())
    }

    fn off(&mut self, _: bool) -> Result<(), SwitchError> {
        Ok(())
    }

    fn state(&mut self) -> Result<Option<bool>, SwitchError> {
        Ok(Some(true))
    }
}

pub fn told(admission: Admission) -> Wanted {
    Wanted {
        admission: Some(admission),
        warming: false,
        most_in_flight: None,
    }
}

/// Servers of which each listens, behind a balancer that does what it is told; each request is to be answered within a second.
pub fn parts(listeners: &[TcpListener], wanted: &Arc<Mutex<Vec<Wanted>>>, taken_out: &TakenOut) -> Parts {
    let targets = listeners.iter().map(|listener| {
        let address = listener.local_addr().unwrap();
        CheckTarget::parse(&format!("tcp:{address}")).unwrap()
    });
    let limit = Duration::from_secs(5);
    let servers = (1..=listeners.len()).map(|server| {
        let name = format!("web{server}");
        ServerParts {
            switch_worker: SwitchWorker::start(&name, Box::new(On), limit).unwrap(),
            name,
            queue: None,
            is_checked_there: false,
        }
    });
    Parts {
        servers: servers.collect(),
        balancer: Box::new(Obedient(Arc::clone(wanted))),
        checks: Checks::start(targets.collect(), Duration::from_millis(50), limit).unwrap(),
        tuning: PowerTuning::default(),
        demand: Demand::AcceptQueue,
        fixed: None,
        energy: None,
        kinds: vec![0; listeners.len()],
        in_hand: Some(Seconds::new(1.0)),
        taken_out: taken_out.clone(),
        period: Duration::from_secs(1),
    }
}

/// They, as they are found.
pub fn found(parts: Parts) -> Servers {
    let patience = Duration::from_secs(20);
    Servers::find(parts, false, patience, &Stop::default())
        .unwrap()
        .unwrap()
}
