//! Gateways that are killed, hang, come back, come and go, under a controller that runs.

use crate::common::{Config, Gateway, Program, Server, Traffic, assert_has, get, openmetrics, until, wait};
use crate::parts::{Plain, status};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

/// Periods in a row in which a gateway refuses, until it leaves the sum.
const REFUSED: f64 = 3.0;
/// Periods that this machine may lose beside them because it was busy.
const BUSY: f64 = 3.0;

/// How long the backend takes for an answer, without a processor.
const ANSWER: Duration = Duration::from_millis(10);

/// A controller of a node that is limited while its law saves, and of gateways by their names.
struct Place {
    node: Plain,
    config: Config,
    controller: Program,
    admin: SocketAddr,
}

impl Place {
    fn start(gateways: &[(&str, &Gateway)]) -> Self {
        let node = Plain::start();
        let config = Config::controller(&[("n1", node.at())], "none", 2000)
            .with("g1 = \"none\"\n", &table(gateways))
            .with(
                "lease_ms = 2000",
                &format!("lease_ms = 2000\nrefused_periods_to_leave = {REFUSED}"),
            )
            .with("period_ms = 200", "period_ms = 200\nlost_periods_to_full = 10");
        let (controller, admin) = config.start();
        let place = Self {
            node,
            config,
            controller,
            admin,
        };
        let all: Vec<(&str, &str)> = gateways.iter().map(|(name, _)| (*name, "connected")).collect();
        place.until_states(&all);
        place.wait_for_control();
        place
    }

    fn metric(&self, name: &str) -> Option<f64> {
        openmetrics::parse(&get(self.admin, "/metrics").ok()?.body)
            .ok()?
            .sum(name)
    }

    fn lost(&self) -> f64 {
        until("the metrics", || {
            self.metric("headroom_telemetry_lost_periods_total")
        })
    }

    /// Each gateway's name and state.
    fn states(&self) -> Option<Vec<(String, String)>> {
        let status = status(self.admin)?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let of = |one: &Value| Some((text(&one["name"])?, text(&one["state"])?));
        status["gateways"].as_array()?.iter().map(of).collect()
    }

    #[track_caller]
    fn until_states(&self, wanted: &[(&str, &str)]) {
        let mut last = None;
        let states = crate::common::within(crate::common::PATIENCE, || {
            last = self.states();
            let states = last.as_ref()?.iter();
            states
                .map(|(name, state)| (&**name, &**state))
                .eq(wanted.iter().copied())
                .then_some(())
        });
        let err = self.controller.err();
        assert!(states.is_some(), "{last:?} instead of {wanted:?}: {err}");
    }

    /// Waits for five periods in a row of which the traffic is known, and for a node with less than all.
    fn wait_for_control(&self) {
        let period = || status(self.admin)?["observation"]["period"].as_u64();
        let mut begun = until("a period", period);
        let mut lost = self.lost();
        until("the law is back in control", || {
            let (now, is_lost) = (period()?, self.metric("headroom_telemetry_lost_periods_total")?);
            if is_lost > lost {
                (begun, lost) = (now, is_lost);
            }
            (now >= begun + 5 && self.node.cores().is_some()).then_some(())
        });
        let seen = until("the last period", || status(self.admin));
        assert!(seen["observation"]["traffic"]["arrivals"].is_u64(), "{seen}");
    }

    fn hang_up(&self) {
        self.config.file();
        self.controller.signal(Signal::HUP);
    }
}

/// The table that names these.
fn table(gateways: &[(&str, &Gateway)]) -> String {
    let line = |(name, gateway): &(&str, &Gateway)| format!("{name} = \"{}\"\n", gateway.control());
    gateways.iter().map(line).collect()
}

#[test]
fn one_of_two_that_is_killed_costs_a_few_periods_and_joins_when_it_is_started_again() {
    let backend = Server::start(ANSWER);
    let (one, mut two) = (
        Gateway::start(&[backend.address]),
        Gateway::start(&[backend.address]),
    );
    let place = Place::start(&[("g1", &one), ("g2", &two)]);
    let traffic = Traffic::to(one.address);
    let answered = || place.metric("headroom_service_completions_total").unwrap_or(0.0);
    let before = answered();
    wait("the law has traffic", || answered() > before);

    let lost = place.lost();
    two.program.kill();
    place.until_states(&[("g1", "connected"), ("g2", "dead")]);
    let cost = place.lost() - lost;
    assert!((1.0..=REFUSED + BUSY).contains(&cost), "{cost} periods");
    // Before everything would have been put to full, and from then on it is not.
    const { assert!(REFUSED + BUSY < 10.0) };
    place.wait_for_control();
    let err = place.controller.err();
    assert_has(
        &err,
        &[
            "the gateway is dead: its control port has refused connections for 3 periods",
            "nobody listens on that socket",
            "\u{2192} dead: out of the sum",
        ],
    );
    assert!(!err.contains("could not be carried out"), "{err}");
    let alert = get(place.admin, "/metrics").unwrap().body;
    assert_has(
        &alert,
        &["headroom_state{role=\"gateway\",part=\"g2\",state=\"dead\"} 1"],
    );
    let counted = answered();
    wait("requests of the other count", || answered() > counted + 20.0);

    two.again();
    place.until_states(&[("g1", "connected"), ("g2", "connected")]);
    place.wait_for_control();
    assert_has(
        place.controller.err(),
        &[
            "the gateway is back",
            "dead \u{2192} joining",
            "joining \u{2192} connected",
        ],
    );
    drop(traffic);
    let traffic = Traffic::to(two.address);
    let counted = answered();
    wait("its requests count", || answered() > counted + 20.0);
    drop(traffic);

    let mut place = place;
    place.controller.stop();
    assert_eq!(place.node.cores(), None, "{}", place.controller.err());
}

#[test]
fn one_that_hangs_and_the_last_one_are_lost_telemetry_and_everything_is_on() {
    let (one, mut two) = (Gateway::of_nobody(), Gateway::of_nobody());
    let mut place = Place::start(&[("g1", &one), ("g2", &two)]);
    two.program.signal(Signal::STOP);
    wait("everything is on", || place.node.cores().is_none());
    place.until_states(&[("g1", "connected"), ("g2", "unreachable")]);
    two.program.signal(Signal::CONT);
    place.until_states(&[("g1", "connected"), ("g2", "connected")]);
    place.wait_for_control();
    assert!(!place.controller.err().contains("the gateway is dead"));

    // One after the other: the first leaves, the last does not.
    two.program.kill();
    place.until_states(&[("g1", "connected"), ("g2", "dead")]);
    place.wait_for_control();
    let mut one = one;
    one.program.kill();
    wait("everything is on", || place.node.cores().is_none());
    place.until_states(&[("g1", "unreachable"), ("g2", "dead")]);
    // Either of them may be the next to serve.
    two.again();
    place.until_states(&[("g1", "dead"), ("g2", "connected")]);
    place.wait_for_control();
    place.controller.stop();
}

#[test]
fn gateways_join_and_leave_at_sighup_and_mistakes_change_nothing() {
    let backend = Server::start(ANSWER);
    let [one, two, three] = [(); 3].map(|()| Gateway::start(&[backend.address]));
    let mut place = Place::start(&[("g1", &one), ("g2", &two)]);
    let both = table(&[("g1", &one), ("g2", &two)]);
    let file = place.config.file();
    let right = fs::read_to_string(&file).unwrap();

    for (wrong, said) in [
        (right.replace("g2 = ", "g2 == "), "controller.toml:9: "),
        (
            right.replace("target_ms = 250", "target_ms = -1"),
            "slo.target_ms",
        ),
        (right.replace(&both, ""), "gateways: has 0"),
        (
            right.replace("g2 = \"", "g2 = \"127.0.0.1:1\"\n# \""),
            "127.0.0.1:1 is TCP",
        ),
        (right.replace("g2 = \"", "g2 = \"nonsense\"\n# \""), "gateways.g2"),
    ] {
        fs::write(&file, &wrong).unwrap();
        let lines = place.controller.err().len();
        place.controller.signal(Signal::HUP);
        until("the mistake is reported", || {
            let err = place.controller.err();
            let new = &err[lines..];
            (new.contains("The gateways stay as they were") && new.contains(said)).then_some(())
        });
    }
    place.until_states(&[("g1", "connected"), ("g2", "connected")]);

    // One comes, one goes, and what is no gateway is said to wait.
    let config = place
        .config
        .with(&both, &table(&[("g1", &one), ("g3", &three)]))
        .with("target_ms = 250", "target_ms = 300");
    place.config = config;
    place.hang_up();
    place.until_states(&[("g1", "connected"), ("g3", "connected")]);
    assert_has(
        place.controller.err(),
        &[
            &format!("gateway g3 at {} joins", three.control()),
            &format!("gateway g2 at {} leaves", two.control()),
            "slo.target_ms: not as at the start",
            "g2: connected \u{2192} left",
        ],
    );
    place.wait_for_control();
    let answered = || place.metric("headroom_service_completions_total").unwrap_or(0.0);
    let traffic = Traffic::to(three.address);
    let counted = answered();
    wait("requests of the new one count", || answered() > counted + 20.0);
    drop(traffic);

    let lines = place.controller.err().len();
    place.controller.signal(Signal::HUP);
    until("that nothing has changed is said", || {
        place.controller.err()[lines..]
            .contains("the gateways are what they were")
            .then_some(())
    });
    // Who left is nobody's: another controller may count its requests.
    let other = Config::controller(&[("n1", place.node.at())], "none", 2000)
        .with("g1 = \"none\"\n", &table(&[("g2", &two)]))
        .with("\"slo-power\"", "\"fixed\"");
    crate::common::succeeds(other.command().arg("--check"));
    place.controller.stop();
}
