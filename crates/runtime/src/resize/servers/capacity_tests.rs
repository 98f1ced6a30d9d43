use super::*;
use crate::live::DevicePeriod;
use crate::resize::balancer::Admission;
use crate::resize::queues::Counted;
use crate::resize::servers::TakenOut;
use crate::resize::testing::{found, parts, told};
use headroom_control::Decision;
use headroom_control::resize::Maintenance;
use headroom_units::{Lever, PerSecond, Setting};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn a_server_that_joins_is_bounded_from_the_moment_at_which_it_is_admitted() {
    let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let first = vec![told(Admission::Ready), told(Admission::Out)];
    let (wanted, taken_out) = (Arc::new(Mutex::new(first)), TakenOut::default());
    taken_out.replace(BTreeMap::from([("web2".to_owned(), Maintenance::default())]));
    let mut servers = found(parts(&listeners, &wanted, &taken_out));
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
        answered: None,
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
        (Some(Admission::Ready), Some(20))
    );
}
