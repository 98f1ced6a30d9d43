//! A lever that a program sets: the interrupts of an emulated network card, commanded over the wire and put back whatever
//! happens to the agent.

use crate::common::{Emulator, Gateway, Program, assert_has, fuse_or_skipped, headroom, refused, run, wait};
use crate::parts::{agent_command, listening, runtime, socket_in};
use headroom_units::{Lever, LeverRange, Setting};
use headroom_wire::client::{Client, ClientOptions};
use headroom_wire::message::{Apply, Holder};
use std::fs;
use std::time::Duration;
use tempfile::TempDir;

struct Server {
    dir: TempDir,
    emulator: Emulator,
    runtime: tokio::runtime::Runtime,
    sequence: u64,
}

impl Server {
    fn start(name: &str) -> Option<Self> {
        if !fuse_or_skipped("emulated hardware") {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let emulator = Emulator::start(dir.path(), &format!("headroom-{name}"), 0.5);
        Some(Self {
            dir,
            emulator,
            runtime: runtime(),
            sequence: 0,
        })
    }

    fn agent(&self, interface: &str) -> Program {
        let file = self.dir.path().join("agent.toml");
        let text = format!(
            "[agent]\nlisten = [\"{}\"]\n[limits]\ncoalescing = 80\n[service]\ncgroup = \"/web\"\n\
             [nic]\ninterface = \"{interface}\"\nmax_us = 100\n",
            self.at()
        );
        fs::write(&file, text).unwrap();
        let mut command = agent_command(&format!("--config {}", file.display()), self.dir.path());
        self.emulator.trees(&mut command);
        listening(command).0
    }

    fn at(&self) -> String {
        socket_in(self.dir.path())
    }

    fn client(&self) -> Client {
        let address = self.at().parse().unwrap();
        let options = ClientOptions::default();
        self.runtime
            .block_on(Client::connect(&address, &options))
            .unwrap()
    }

    /// Commands values under a lease that outlives the test.
    fn apply(&mut self, values: &[(Lever, f64)]) -> Result<Setting, String> {
        self.sequence += 1;
        let with = |all: Setting, (lever, value): &(Lever, f64)| all.with(*lever, Some(*value));
        let apply = Apply {
            holder: Holder::new("test", 7).unwrap(),
            sequence: self.sequence,
            length: Duration::from_secs(300),
            setting: values.iter().fold(Setting::default(), with),
        };
        let client = self.client();
        let applied = self.runtime.block_on(client.apply(apply));
        applied
            .map(|applied| applied.in_force)
            .map_err(|error| error.to_string())
    }

    /// What the card does: whether it chooses its delay itself, and the delay.
    fn card(&self) -> (String, String) {
        let file = self.dir.path().join("sys/headroom-testbed/net/eth0/coalesce");
        let text = fs::read_to_string(file).unwrap();
        let after = |label: &str| {
            let mut lines = text.lines();
            let rest = lines.find_map(|line| line.strip_prefix(label)).unwrap();
            rest.split_whitespace().next().unwrap().to_owned()
        };
        (after("Adaptive RX:"), after("rx-usecs:"))
    }
}

fn is(adaptive: &str, delay: &str) -> (String, String) {
    (adaptive.to_owned(), delay.to_owned())
}

#[test]
fn a_cards_interrupts_are_delayed_as_commanded_and_put_back_whatever_is_killed() {
    let Some(mut server) = Server::start("nic") else {
        return;
    };
    let found = is("on", "4");
    assert_eq!(server.card(), found);
    let mut agent = server.agent("eth0");
    let description = server.client().agent().clone();
    let mut devices = description.devices.iter();
    let device = devices.find(|device| device.name == "NIC interrupt coalescing");
    assert!(device.is_some_and(|device| device.in_use), "{device:?}");
    let range = description.ranges.get(Lever::Coalescing).unwrap();
    let expected = LeverRange {
        step: 1.0,
        ..LeverRange::between(0.0, 80.0)
    };
    assert_eq!(range, expected, "as far as the node's limits let");
    let refused = server.apply(&[(Lever::Coalescing, 90.0)]).unwrap_err();
    assert_has(&refused, &["limits.coalescing = 80"]);
    assert_eq!(server.card(), found, "nothing was changed");

    let in_force = server
        .apply(&[(Lever::Cores, 8.0), (Lever::Coalescing, 50.0)])
        .unwrap();
    assert_eq!(in_force.get(Lever::Coalescing), Some(50.0));
    assert_eq!(server.card(), is("off", "50"));
    // A lever that is not commanded is as it was found.
    let in_force = server.apply(&[(Lever::Cores, 8.0)]).unwrap();
    assert_eq!(in_force.get(Lever::Coalescing), None);
    assert_eq!(server.card(), found);

    server.apply(&[(Lever::Coalescing, 60.0)]).unwrap();
    assert_eq!(server.card(), is("off", "60"));
    agent.kill();
    wait("the guard has put the card back", || server.card() == found);

    let mut agent = server.agent("eth0");
    server.apply(&[(Lever::Coalescing, 70.0)]).unwrap();
    agent.kill_with_guard();
    assert_eq!(server.card(), is("off", "70"), "nobody is left who could");
    let mut agent = server.agent("eth0");
    assert_eq!(server.card(), found, "the next start puts it back");

    server.apply(&[(Lever::Coalescing, 20.0)]).unwrap();
    agent.stop();
    assert_eq!(server.card(), found);
    server.emulator.program.stop();
}

#[test]
fn a_node_without_such_a_card_says_why_and_has_the_other_levers() {
    let Some(mut server) = Server::start("no-nic") else {
        return;
    };
    let mut agent = server.agent("eth9");
    let description = server.client().agent().clone();
    let why = description.ranges.missing(Lever::Coalescing).unwrap();
    assert!(why.reason.contains("there is no device \"eth9\""), "{why:?}");
    let refused = server.apply(&[(Lever::Coalescing, 20.0)]).unwrap_err();
    assert_has(&refused, &["this node cannot set coalescing: there is no device"]);
    server.apply(&[(Lever::Cores, 8.0)]).unwrap();
    agent.stop();

    let mut command = headroom("doctor");
    server.emulator.trees(&mut command);
    assert_has(run(command).all(), &["NIC interrupt coalescing", "eth0: 4"]);
    server.emulator.program.stop();
}

#[test]
fn a_controller_holds_a_cards_interrupts_beside_a_law_of_cores() {
    let Some(server) = Server::start("nic-law") else {
        return;
    };
    let mut agent = server.agent("eth0");
    let gateway = Gateway::of_nobody();
    let file = server.dir.path().join("controller.toml");
    let text = format!(
        "[slo]\ntarget_ms = 250\n[nodes]\nn1 = \"{}\"\n[gateways]\ng1 = \"{}\"\n[law]\n\
         name = [\"slo-power\", \"constant\"]\n[law.constant]\nsetting = {{ coalescing = 50 }}\n[cluster]\nlease_ms = 3000\n\
         requests_per_core_s = 100\n[record]\ndb = \"{}\"\n[admin]\nlisten = \"off\"\n",
        server.at(),
        gateway.control(),
        server.dir.path().join("runs.db").display()
    );
    fs::write(&file, &text).unwrap();
    let command = || {
        let mut command = headroom("controller --no-view --config");
        command.arg(&file);
        command
    };
    let mut controller = Program::start(&mut command());
    wait("the card is held", || server.card() == is("off", "50"));
    controller.stop();
    wait("it is as it was found", || server.card() == is("on", "4"));
    // A node without the lever: refused by name, and nothing is limited.
    agent.stop();
    let mut agent = server.agent("eth9");
    refused(
        command(),
        &["constant moves the lever coalescing, which is not here"],
    );
    agent.stop();
}
