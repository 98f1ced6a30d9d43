//! The reflex between two decisions, live: from a flood at a gateway to the quota that the kernel's file shows, and what it must
//! not do while an operator, somebody else or nobody has the say.

use crate::common::{
    Config, Emulator, Gateway, Group, Program, Server, Up, fuse_or_skipped, get, headroom, metrics_at,
    serving_at, succeeds, until, wait,
};
use crate::parts::{Agent, status};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the backend takes for an answer: a flood is in flight all at once, and all of it is far within the SLO.
const ANSWER: Duration = Duration::from_millis(100);
/// The control loop's period.
const PERIOD: Duration = Duration::from_secs(1);
/// What is waited for a raise: what comes later may be the next decision's.
const WITHIN: Duration = Duration::from_millis(700);
/// How often the quota is read for it: not more often, for the one process that answers for emulated files is what writes them.
const LOOK: Duration = Duration::from_millis(1);
/// Requests that a flood has more than the bound.
const MORE: usize = 5;
/// Floods of the test, and of the measurement unless `REFLEX_EVENTS` says otherwise.
const FLOODS: usize = 5;
const EVENTS: usize = 100;

/// The quota of a control group as the kernel's files show it, in cores; none where there is no limit.
fn quota(group: &Path) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    let text = read("cpu.max").or_else(|| {
        let (quota, period) = (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?);
        Some(format!("{} {}", quota.trim(), period.trim()))
    });
    let text = text.unwrap_or_else(|| panic!("{}: no quota can be read", group.display()));
    let (quota, period) = text.trim().split_once(' ').unwrap();
    let quota = quota.parse::<f64>().ok().filter(|quota| *quota > 0.0)?;
    Some(quota / period.parse::<f64>().unwrap())
}

/// A period as the admin port shows it.
struct Shown {
    number: u64,
    /// The bound of requests in flight of the decision, where that has a reflex.
    bound: Option<usize>,
    reflexes: u64,
}

impl Shown {
    fn of(status: &Value) -> Option<Self> {
        let (observation, decided) = (&status["observation"], &status["decided"]);
        Some(Self {
            number: observation["period"].as_u64()?,
            bound: decided["reflex"]["bound"].as_u64().map(|bound| bound as usize),
            reflexes: observation["reflexes"].as_u64()?,
        })
    }
}

/// A service behind a gateway under control: where requests go, where the periods are shown, the group that is limited.
struct Place {
    gateway: SocketAddr,
    admin: SocketAddr,
    group: PathBuf,
}

/// A flood that has been sent.
struct Flood {
    /// When the first request over the bound was sent.
    over: Instant,
    clients: Vec<TcpStream>,
}

impl Flood {
    /// Waits until every request is answered, with 200.
    fn wait_for_answers(self) {
        for mut client in self.clients {
            let mut text = String::new();
            client.read_to_string(&mut text).unwrap();
            assert!(text.starts_with("HTTP/1.1 200"), "{text:?}");
        }
    }
}

impl Place {
    fn shown(&self) -> Shown {
        until("a period is shown", || Shown::of(&status(self.admin)?))
    }

    /// Requests one after another, which are what the law sees of traffic apart from floods.
    fn trickle(&self) {
        for _ in 0..3 {
            assert_eq!(get(self.gateway, "/").unwrap().status, 200);
        }
    }

    /// The beginning of a period, at which nothing is in flight.
    fn next(&self) -> Shown {
        self.trickle();
        let now = self.shown().number;
        until("the next period", || {
            Some(self.shown()).filter(|shown| shown.number > now)
        })
    }

    /// The beginning of a period for which less than everything is in force: its number, its reflex's bound, and the quota.
    fn saving(&self) -> (u64, usize, f64) {
        until("the law saves, with a reflex", || {
            let shown = self.next();
            Some((shown.number, shown.bound?, quota(&self.group)?))
        })
    }

    /// More requests than the bound at once.
    fn flood(&self, bound: usize) -> Flood {
        let connect = |_| TcpStream::connect(self.gateway).unwrap();
        let mut clients: Vec<_> = (0..bound + MORE).map(connect).collect();
        // The gateway has taken the connections: what is measured is of requests.
        std::thread::sleep(Duration::from_millis(50));
        let mut over = Instant::now();
        for (number, client) in clients.iter_mut().enumerate() {
            if number == bound {
                over = Instant::now();
            }
            client
                .write_all(b"GET / HTTP/1.1\r\nHost: reflex\r\nConnection: close\r\n\r\n")
                .unwrap();
        }
        Flood { over, clients }
    }

    /// From the first request over the bound until the group's file shows more than before; `None` where it does not in time
    /// for a reflex, or where this was too slow for a whole flood to be of one period.
    fn raise(&self) -> Option<Duration> {
        let (number, bound, before) = self.saving();
        let flood = self.flood(bound);
        let raised = loop {
            if quota(&self.group).is_none_or(|now| now > before) {
                break Some(flood.over.elapsed());
            }
            if flood.over.elapsed() > WITHIN {
                break None;
            }
            std::thread::sleep(LOOK);
        };
        flood.wait_for_answers();
        // The period after this one says whether that was a reflex.
        let shown = until("the period is over", || {
            Some(self.shown()).filter(|shown| shown.number > number)
        });
        raised.filter(|_| shown.number == number + 1 && shown.reflexes == 1)
    }

    /// What so many floods took; prints it.
    fn raises(&self, what: &str, floods: usize) -> Vec<f64> {
        let took = (0..floods).filter_map(|_| self.raise());
        let mut took: Vec<f64> = took.map(|took| took.as_secs_f64() * 1e3).collect();
        took.sort_by(f64::total_cmp);
        assert!(!took.is_empty(), "{what}: no flood of {floods} raised the quota");
        let at = |share: f64| took[((took.len() - 1) as f64 * share).round() as usize];
        println!(
            "{what}: from the first request over the bound to the quota in the kernel's file, {} of {floods} floods: P50 {:.2} ms, \
             P99 {:.2} ms, most {:.2} ms",
            took.len(),
            at(0.5),
            at(0.99),
            at(1.0)
        );
        took
    }

    /// Whether a flood in this period and one in the next leave the quota as it is.
    fn is_left_alone(&self, bound: usize) {
        let before = quota(&self.group);
        for _ in 0..2 {
            let flood = self.flood(bound);
            while flood.over.elapsed() < ANSWER * 3 {
                assert_eq!(quota(&self.group), before);
                std::thread::sleep(Duration::from_millis(1));
            }
            flood.wait_for_answers();
        }
    }
}

/// The law that has a reflex, in front of a backend that needs no CPU time for its answers.
fn by_our_law(config: Config) -> Config {
    config
        .with("period_ms = 200", "period_ms = 1000")
        .with("target_ms = 250", "target_ms = 2000")
        .with("name = \"slo-power\"", "name = \"headroom\"")
}

/// A configuration of `headroom up` for this group.
fn up(group: &Path, backend: &Server) -> Config {
    by_our_law(Config::of(group, backend.address))
        .with("[law.slo-power]\nguard = 0.8\n", "")
        .with("requests_per_core_s = 250.0", "requests_per_core_s = 40.0")
}

/// `headroom up` on an emulated server.
struct Alone {
    place: Place,
    program: Program,
    _config: Config,
    _emulator: Emulator,
    _dir: tempfile::TempDir,
}

impl Alone {
    fn start(name: &str, backend: &Server) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let emulator = Emulator::start(dir.path(), name, 0.5);
        let config = up(Path::new("/web"), backend);
        let mut command = config.command();
        emulator.trees(&mut command);
        let mut program = Program::start(command);
        let place = Place {
            gateway: serving_at(&mut program),
            admin: metrics_at(&mut program),
            group: emulator.sys().join("fs/cgroup/web"),
        };
        Self {
            place,
            program,
            _config: config,
            _emulator: emulator,
            _dir: dir,
        }
    }
}

/// A controller, an agent of a real control group and a gateway: a process each.
struct Cluster {
    place: Place,
    controller: Program,
    _config: Config,
    _agent: Agent,
    _gateway: Gateway,
}

impl Cluster {
    fn start(group: &Group, backend: &Server, more: &[&str]) -> Self {
        let (agent, gateway) = (Agent::start(group), Gateway::start(&[backend.address]));
        let config = by_our_law(Config::controller(
            &[("n1", agent.at())],
            &gateway.control(),
            2000,
        ))
        .with("requests_per_core_s = 400", "requests_per_core_s = 40");
        let mut controller = Program::start(config.command().args(more));
        let place = Place {
            gateway: gateway.address,
            admin: metrics_at(&mut controller),
            group: group.dir().to_owned(),
        };
        Self {
            place,
            controller,
            _config: config,
            _agent: agent,
            _gateway: gateway,
        }
    }
}

/// So many floods on an emulated server and on a cluster, as far as this machine can have them.
fn each(floods: usize, mut judge: impl FnMut(&str, Vec<f64>)) {
    let backend = Server::start(ANSWER);
    if fuse_or_skipped("emulated hardware") {
        let mut alone = Alone::start("headroom-reflex", &backend);
        let what = "headroom up, emulated server";
        judge(what, alone.place.raises(what, floods));
        alone.program.stop();
        assert_eq!(quota(&alone.place.group), None, "{}", alone.program.err());
    }
    if let Some(group) = Group::new() {
        let mut cluster = Cluster::start(&group, &backend, &[]);
        let what = "controller, agent and gateway, control group";
        judge(what, cluster.place.raises(what, floods));
        cluster.controller.stop();
        assert_eq!(group.cores(), None, "{}", cluster.controller.err());
    }
}

#[test]
fn a_flood_raises_the_quota_long_before_the_period_is_over() {
    each(FLOODS, |what, took| {
        assert!(took.len() * 2 > FLOODS, "{what}: {} raised", took.len());
        let median_ms = took[took.len() / 2];
        assert!(
            median_ms * 4.0 < PERIOD.as_secs_f64() * 1e3,
            "{what}: {median_ms} ms"
        );
    });
}

/// `make bench-reflex`.
#[test]
#[ignore = "a measurement of several minutes"]
fn measurement() {
    let events = std::env::var("REFLEX_EVENTS").map_or(EVENTS, |events| events.parse().unwrap());
    each(events, |what, took| {
        assert!(took.len() * 2 > events, "{what}: {} raised", took.len());
    });
}

#[test]
fn what_an_operator_paused_or_somebody_else_set_is_not_raised() {
    let Some(group) = Group::new() else { return };
    group.limit(180_000, 100_000);
    let found = group.settings();
    let backend = Server::start(ANSWER);
    let config = up(group.dir(), &backend);
    let mut up = Up::start(&config);
    let place = Place {
        gateway: up.gateway,
        admin: up.admin,
        group: group.dir().to_owned(),
    };
    let operate = |command: &str| {
        let mut command = headroom(command);
        succeeds(command.arg("--run-dir").arg(config.run_dir()));
    };

    // The reflex of the decision before the pause is still watched for.
    let (_, bound, quota) = place.saving();
    assert!(quota < 1.8);
    let fired = up.metric("headroom_reflexes_total");
    operate("pause");
    assert_eq!(group.settings(), found);
    place.is_left_alone(bound);
    assert_eq!(group.settings(), found);
    assert_eq!(
        up.metric("headroom_reflexes_total"),
        fired,
        "{}",
        up.program.err()
    );
    operate("resume");

    let (_, bound, _) = place.saving();
    // Headroom's period of 10 ms is in force: 0.7 cores, less than all. The cap is nobody else's and may be raised.
    group.interfere(7_000);
    place.is_left_alone(bound);
    up.program.said("somebody else wrote");
    assert_eq!(group.cores(), Some(0.7));
    operate("resume");
    // It was no end of reflexes.
    until("a flood raises again", || place.raise());
    up.program.stop();
    assert_eq!(group.cores(), Some(0.7), "what was found when it was given back");
}

#[test]
fn a_controller_that_changes_nothing_raises_nothing() {
    let Some(group) = Group::new() else { return };
    let found = group.settings();
    let backend = Server::start(ANSWER);
    let mut cluster = Cluster::start(&group, &backend, &["--dry-run"]);
    let place = &cluster.place;
    let bound = until("the law would save", || place.next().bound);
    place.is_left_alone(bound);
    assert_eq!(place.next().reflexes, 0);
    assert_eq!(group.settings(), found);
    cluster.controller.stop();
    assert_eq!(group.settings(), found);
}

#[test]
fn floods_at_a_controller_that_is_stopped_or_killed_are_answered_and_everything_is_put_back() {
    let Some(group) = Group::new() else { return };
    let found = group.settings();
    let backend = Server::start(ANSWER);
    let mut cluster = Cluster::start(&group, &backend, &[]);
    let (_, bound, _) = cluster.place.saving();

    // Stopped, it hears no bell; its lease ends, and what was decided before does not return with it.
    cluster.controller.signal(Signal::STOP);
    cluster.place.flood(bound).wait_for_answers();
    wait("the node puts itself back", || group.settings() == found);
    cluster.place.is_left_alone(bound);
    cluster.controller.signal(Signal::CONT);
    until("a flood raises again", || cluster.place.raise());

    // Killed while what a reflex raised is in force.
    let (_, bound, before) = cluster.place.saving();
    let flood = cluster.place.flood(bound);
    until("it is raised", || {
        let now = quota(&cluster.place.group);
        now.is_none_or(|now| now > before).then_some(())
    });
    cluster.controller.kill();
    flood.wait_for_answers();
    wait("the node puts itself back", || group.settings() == found);
    cluster.place.is_left_alone(bound);
    assert_eq!(group.settings(), found);
}
