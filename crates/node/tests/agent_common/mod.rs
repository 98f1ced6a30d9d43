//! A machine that a test can look into, and an agent that serves it over a Unix socket.
#![allow(dead_code, reason = "each test file uses its own part of this")]

use headroom_node::agent::machine::{
    About, Counters, CpuCounters, EnergyCounter, EnergyCounters, Machine, MachineError, PutBack, ZoneCounter,
};
use headroom_node::agent::{Agent, AgentConfig, AgentHandle};
use headroom_units::{Lever, LeverRange, Setting, Source};
use headroom_wire::Refusal;
use headroom_wire::certs::{Authority, Validity};
use headroom_wire::client::{CallError, Client, ClientOptions, QueueSnapshots};
use headroom_wire::message::{Apply, Holder, NoLever, Node, QueueSnapshot, Ranges};
use headroom_wire::server::Listen;
use headroom_wire::tls::{ClientTls, ServerTls, TlsFiles};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Far longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The next snapshot of a queue.
pub async fn next(snapshots: &mut QueueSnapshots) -> QueueSnapshot {
    let next = tokio::time::timeout(PATIENCE, snapshots.next()).await;
    next.expect("a snapshot in time")
        .unwrap()
        .expect("the stream goes on")
}

/// What a test sees and sets of its machine.
#[derive(Debug, Default)]
pub struct Inside {
    pub in_force: Setting,
    /// Every write, in order; `None` is putting everything back.
    pub writes: Vec<Option<Setting>>,
    /// Writes fail with this.
    pub refuses: Option<String>,
    /// Putting back fails this many more times.
    pub stuck: u32,
    /// The next write panics.
    pub panics: bool,
    /// Writes wait until this is false.
    pub held_up: bool,
    /// Zones in each reading.
    pub zones: usize,
    pub reads: u64,
    pub no_cap: bool,
    /// It is to be read so often, whoever asks.
    pub read_within: Option<Duration>,
}

/// A machine of four cores and 40 to 92 W, which draws 50 W.
#[derive(Clone, Default)]
pub struct Fake {
    pub inside: Arc<Mutex<Inside>>,
    pub changed: Arc<Condvar>,
    began: Option<Instant>,
}

impl Fake {
    pub fn writes(&self) -> Vec<Option<Setting>> {
        self.inside.lock().unwrap().writes.clone()
    }

    pub fn in_force(&self) -> Setting {
        self.inside.lock().unwrap().in_force
    }

    pub fn set(&self, change: impl FnOnce(&mut Inside)) {
        change(&mut self.inside.lock().unwrap());
        self.changed.notify_all();
    }
}

impl Machine for Fake {
    fn about(&mut self) -> About {
        About {
            node: Node {
                name: "fake".into(),
                cores_online: 4,
                ..Node::default()
            },
            service: "a test".into(),
            devices: vec![],
            meters: vec![],
            envelope: None,
            source: Source::Emulated,
            oncall: None,
        }
    }

    fn ranges(&mut self) -> Ranges {
        let cap = match self.inside.lock().unwrap().no_cap {
            true => Err(NoLever {
                reason: "it has no meter".into(),
                remedy: "give it one".into(),
            }),
            false => Ok(LeverRange::between(40.0, 92.0)),
        };
        Ranges::default()
            .with(Lever::Cores, Ok(LeverRange::between(0.1, 4.0)))
            .with(Lever::Cap, cap)
            .with(Lever::Frequency, Ok(LeverRange::between(0.8e9, 3.0e9)))
    }

    fn apply(&mut self, setting: Setting) -> Result<Vec<String>, MachineError> {
        let mut inside = self.inside.lock().unwrap();
        while inside.held_up {
            inside = self.changed.wait(inside).unwrap();
        }
        assert!(!inside.panics, "on purpose");
        if let Some(why) = &inside.refuses {
            return Err(MachineError::new(why));
        }
        inside.in_force = setting;
        inside.writes.push(Some(setting));
        Ok(vec![])
    }

    fn put_back(&mut self) -> PutBack {
        let mut inside = self.inside.lock().unwrap();
        if inside.stuck > 0 {
            inside.stuck -= 1;
            return PutBack {
                notes: vec![],
                failed: vec!["the quota is stuck".into()],
            };
        }
        if inside.in_force == Setting::default() {
            return PutBack::default();
        }
        inside.in_force = Setting::default();
        inside.writes.push(None);
        PutBack {
            notes: vec!["put back: everything".into()],
            failed: vec![],
        }
    }

    fn in_force(&self) -> Setting {
        self.inside.lock().unwrap().in_force
    }

    fn read_within(&self) -> Option<Duration> {
        self.inside.lock().unwrap().read_within
    }

    fn read(&mut self) -> Counters {
        let clock = self.began.get_or_insert_with(Instant::now).elapsed();
        let mut inside = self.inside.lock().unwrap();
        inside.reads += 1;
        let energy = EnergyCounter {
            uj: (clock.as_secs_f64() * 50e6) as u64,
            gaps: 0,
            source: Source::Emulated,
        };
        let zone = |number| ZoneCounter {
            name: format!("a-zone-with-a-name-that-makes-a-sample-long-{number}"),
            counted: true,
            energy,
        };
        Counters {
            cpu: Some(CpuCounters {
                clock,
                used: clock * 2,
                ..CpuCounters::default()
            }),
            energy: Some(EnergyCounters {
                clock,
                total: energy,
                zones: (0..inside.zones).map(zone).collect(),
            }),
            ..Counters::default()
        }
    }
}

/// An agent on a fake machine.
pub struct Served {
    pub dir: tempfile::TempDir,
    pub fake: Fake,
    pub handle: Option<AgentHandle>,
}

impl Served {
    pub fn start(configure: impl FnOnce(&mut AgentConfig)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = AgentConfig::at(vec![Listen::Unix {
            path: dir.path().join("agent.sock"),
        }]);
        config.lease.shortest = Duration::from_millis(50);
        configure(&mut config);
        let fake = Fake::default();
        let handle = Agent::start(config, Box::new(fake.clone())).unwrap();
        Self {
            dir,
            fake,
            handle: Some(handle),
        }
    }

    pub fn handle(&self) -> &AgentHandle {
        self.handle.as_ref().unwrap()
    }

    pub async fn connect(&self) -> Client {
        Client::connect(&self.handle().addresses()[0], &ClientOptions::default())
            .await
            .unwrap()
    }

    /// Ends the agent without blocking the test's runtime, which its clients need.
    pub async fn stop(&mut self) -> Result<PutBack, headroom_node::agent::AgentError> {
        let handle = self.handle.take().unwrap();
        tokio::task::spawn_blocking(move || handle.stop()).await.unwrap()
    }
}

pub fn setting(cores: f64, cap: f64) -> Setting {
    Setting::default()
        .with(Lever::Cores, Some(cores))
        .with(Lever::Cap, Some(cap))
}

pub fn ask(lease_id: u64, sequence: u64, length: Duration, setting: Setting) -> Apply {
    let holder = Holder::new(format!("controller-{lease_id}"), lease_id).unwrap();
    Apply {
        holder,
        sequence,
        length,
        setting,
    }
}

/// Both ends of mutual TLS, with certificates of an authority of their own.
pub fn mutual_tls() -> (ServerTls, ClientOptions) {
    let certs = tempfile::tempdir().unwrap();
    let (authority, _) = Authority::create(certs.path(), Validity::days(30).unwrap()).unwrap();
    let week = Validity::days(7).unwrap();
    authority.issue_node("n1", &["127.0.0.1".into()], week).unwrap();
    authority.issue_controller(week).unwrap();
    let files = |stem: &str| TlsFiles {
        ca: certs.path().join("ca.crt"),
        certificate: certs.path().join(format!("{stem}.crt")),
        key: certs.path().join(format!("{stem}.key")),
        revoked: None,
    };
    let options = ClientOptions {
        tls: Some(ClientTls::load(&files("controller")).unwrap()),
        ..ClientOptions::default()
    };
    (ServerTls::load(&files("node-n1")).unwrap(), options)
}

pub fn holder(lease_id: u64) -> Holder {
    Holder::new(format!("controller-{lease_id}"), lease_id).unwrap()
}

pub fn refusal<T: std::fmt::Debug>(outcome: Result<T, CallError>) -> Refusal {
    match outcome {
        Err(CallError::Refused(refusal)) => refusal,
        other => panic!("no refusal: {other:?}"),
    }
}

/// Waits until something holds; far longer than it can take on a busy machine.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let patience = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < patience, "{what} never came");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
