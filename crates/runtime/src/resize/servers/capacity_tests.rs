use super::*;
use crate::live::DevicePeriod;
use crate::resize::balancer::{Admission, Balancer, Member, Wanted};
use crate::resize::check::{CheckTarget, Checks};
use crate::resize::queues::Counted;
use crate::resize::servers::{Demand, Parts, ServerParts, TakenOut};
use crate::resize::switch_worker::SwitchWorker;
use headroom_console::Stop;
use headroom_control::Decision;
use headroom_control::resize::{Maintenance, PowerTuning};
use headroom_node::switch::{PowerSwitch, SwitchError};
use headroom_units::{Lever, PerSecond, Setting};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A balancer that does what it is told, and remembers it.
struct Obedient(Arc<Mutex<Vec<Wanted>>>);

impl Balancer for Obedient {
    fn name(&self) -> String {
        "a balancer".to_owned()
    }

    fn look(&mut self, _: Duration) -> Result<Look, String> {
        let wanted = self.0.lock().unwrap();
        let members = wanted.iter().map(|wanted| Member {
            admission: wanted.admission,
            in_flight: Some(0),
            well: None,
        });
        Ok(Look {
            members: members.collect(),
            traffic: None,
        })
    }

    fn want(&mut self, wanted: &[Wanted], _: Duration) -> Result<(), String> {
        *self.0.lock().unwrap() = wanted.to_vec();
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

fn told(admission: Admission) -> Wanted {
    Wanted {
        admission,
        warming: false,
        most_in_flight: None,
    }
}

/// Two that listen, of which the second is in maintenance; each request is to be answered within a second.
fn two(listeners: &[TcpListener], wanted: &Arc<Mutex<Vec<Wanted>>>, taken_out: &TakenOut) -> Servers {
    let targets = listeners.iter().map(|listener| {
        let address = listener.local_addr().unwrap();
        CheckTarget::parse(&format!("tcp:{address}")).unwrap()
    });
    let limit = Duration::from_secs(5);
    let servers = ["web1", "web2"].map(|name| ServerParts {
        name: name.to_owned(),
        switch_worker: SwitchWorker::start(name, Box::new(On), limit).unwrap(),
        queue: None,
    });
    taken_out.replace(BTreeMap::from([("web2".to_owned(), Maintenance::default())]));
    let parts = Parts {
        servers: servers.into(),
        balancer: Box::new(Obedient(Arc::clone(wanted))),
        checks: Checks::start(targets.collect(), Duration::from_millis(50), limit).unwrap(),
        tuning: PowerTuning::default(),
        demand: Demand::AcceptQueue,
        fixed: None,
        energy: None,
        kinds: vec![0, 0],
        in_hand: Some(Seconds::new(1.0)),
        taken_out: taken_out.clone(),
        period: Duration::from_secs(1),
    };
    let patience = Duration::from_secs(20);
    Servers::find(parts, false, patience, &Stop::default())
        .unwrap()
        .unwrap()
}

#[test]
fn a_server_that_joins_is_bounded_from_the_moment_at_which_it_is_admitted() {
    let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let first = vec![told(Admission::Ready), told(Admission::Out)];
    let (wanted, taken_out) = (Arc::new(Mutex::new(first)), TakenOut::default());
    let mut servers = two(&listeners, &wanted, &taken_out);
    assert_eq!(
        servers.power_states(),
        [PowerState::Serving, PowerState::Maintenance]
    );
    // Each of the first one's requests has a connection of its own, and it takes 50 a second.
    servers.parts.fixed = Some(PerSecond::new(50.0));
    let counted = Counted {
        arrivals: 50.0,
        accepts: 50.0,
        length_s: 1.0,
        waiting: Some(2.0),
        places: Some(33.0),
        ..Counted::default()
    };
    let shown = [Some(Shown::Counted(counted)), Some(Shown::Nobody)];
    let states = servers.power_states();
    for _ in 0..3 {
        let look = servers.parts.balancer.look(Duration::ZERO);
        servers.bound_in_flight(&shown, &look, &states, &[], Seconds::new(1.0));
    }
    // By its capacity, more than its places, which are those of both.
    assert_eq!(servers.most_in_flight, [Some(30), Some(30)]);
    // What was met of others is presumed of it.
    servers.parts.fixed = None;
    let serving = NodeObservation {
        state: PowerState::Serving,
        capacity: Capacity::About(PerSecond::new(25.0)),
    };
    servers.met.observe(&[serving]);
    taken_out.replace(BTreeMap::new());
    servers.look(&mut DevicePeriod::default());
    let setting = Setting::default().with(Lever::Servers, Some(2.0));
    servers.steer(&mut Decision {
        setting,
        ..Decision::default()
    });
    let joined = wanted.lock().unwrap()[1];
    assert_eq!(
        (joined.admission, joined.most_in_flight),
        (Admission::Ready, Some(20))
    );
}
