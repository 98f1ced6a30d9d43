//! An agent on this machine's own control groups, in a process of its own that is killed: whatever happens, the quota is
//! what it was. Needs root; without it the tests say so and pass.

use crate::agent_common::{ask, holder, refusal, until};
use crate::common::live_scope;
use headroom_node::Roots;
use headroom_node::agent::{Agent, AgentConfig, LocalMachine, LocalOptions, keep_state, release};
use headroom_node::cgroup::CgroupScope;
use headroom_node::cpu::{QuotaActuator, QuotaOptions};
use headroom_node::power::PowerModel;
use headroom_node::restore::{self, LedgerError, Registry};
use headroom_units::{Cores, Lever, Setting};
use headroom_wire::client::{CallError, Client, ClientOptions};
use headroom_wire::server::Listen;
use headroom_wire::{Address, Refusal};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const TARGET: &str = "HEADROOM_AGENT_TEST_TARGET";
const RUN_DIR: &str = "HEADROOM_AGENT_TEST_RUN_DIR";
const LONG: Duration = Duration::from_secs(60);

/// Not a test of its own: the agent's process, which the others start and kill.
#[test]
#[ignore = "run by the other tests of this file"]
fn agent_process() {
    let Ok(target) = std::env::var(TARGET) else { return };
    let run_dir = PathBuf::from(std::env::var(RUN_DIR).unwrap());
    let roots = Roots::default();
    restore::install();
    let registry = restore::global();
    let left = keep_state(&run_dir, &roots, registry).unwrap();
    let machine = LocalMachine::open(options(&target), registry).unwrap();
    let config = AgentConfig::at(vec![Listen::Unix {
        path: run_dir.join("agent.sock"),
    }]);
    let handle = Agent::start(config, Box::new(machine)).unwrap();
    println!("READY {}", left.restored());
    // Until the test closes our standard input; a killed one never comes here.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    let done = handle.stop().unwrap();
    println!("STOPPED {}", done.notes.len());
}

fn options(target: &str) -> LocalOptions {
    LocalOptions {
        meter: headroom_node::power::MeterPreference::one(headroom_node::power::MeterKind::Model),
        ..LocalOptions::of(
            Roots::default(),
            target.parse().unwrap(),
            PowerModel::default_for(Cores::new(2.0)).unwrap(),
        )
    }
}

struct AgentProcess {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    /// What it put back of the one before.
    restored: usize,
}

impl AgentProcess {
    fn start(target: &str, run_dir: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "live::agent_process", "--nocapture"])
            .env(TARGET, target)
            .env(RUN_DIR, run_dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let restored = answer(&mut lines, "READY ").expect("the agent starts");
        Self {
            child,
            lines,
            restored,
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// How many things it put back at its end.
    fn stop(mut self) -> usize {
        drop(self.child.stdin.take());
        let stopped = answer(&mut self.lines, "STOPPED ").expect("the agent stops");
        assert!(self.child.wait().unwrap().success());
        stopped
    }
}

/// The number after a word, which may follow what the test harness prints on the same line.
fn answer(lines: &mut impl BufRead, word: &str) -> Option<usize> {
    for line in lines.lines() {
        if let Some((_, number)) = line.unwrap().split_once(word) {
            return number.trim().parse().ok();
        }
    }
    None
}

/// A fresh group, with the quota that an administrator gave it.
struct Live {
    scope: CgroupScope,
    target: String,
    registry: Registry,
    run_dir: tempfile::TempDir,
}

impl Live {
    fn new() -> Option<Self> {
        let registry = Registry::new();
        let scope = live_scope(&registry)?;
        let target = scope.target().cpu_dir.display().to_string();
        Some(Self {
            scope,
            target,
            registry,
            run_dir: tempfile::tempdir().unwrap(),
        })
    }

    fn quota(&self) -> Option<f64> {
        let quota = QuotaActuator::open(
            &Roots::default(),
            self.scope.target(),
            QuotaOptions::default(),
            &self.registry,
        );
        quota.unwrap().read().unwrap().map(Cores::get)
    }

    fn address(&self) -> Address {
        Address::Unix(self.run_dir.path().join("agent.sock"))
    }

    async fn connect(&self) -> Client {
        Client::connect(&self.address(), &ClientOptions::default())
            .await
            .unwrap()
    }
}

fn cores(cores: f64) -> Setting {
    Setting::default().with(Lever::Cores, Some(cores))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kernels_quota_follows_the_lease() {
    let Some(live) = Live::new() else { return };
    let agent = AgentProcess::start(&live.target, live.run_dir.path());
    let client = live.connect().await;
    let applied = client.apply(ask(1, 1, LONG, cores(0.5))).await.unwrap();
    assert_eq!((applied.in_force, live.quota()), (cores(0.5), Some(0.5)));
    // A cap, whose loop writes the quota by itself from now on.
    let cap = client.agent().ranges.get(Lever::Cap).unwrap();
    let low = Setting::default().with(Lever::Cap, Some(cap.min * 1.05));
    let applied = client.apply(ask(1, 2, LONG, low)).await.unwrap();
    assert_eq!(applied.in_force, low);
    assert!(
        live.quota().is_some_and(|cores| cores < 2.0),
        "{:?}",
        live.quota()
    );

    client
        .apply(ask(1, 3, Duration::from_secs(2), cores(0.3)))
        .await
        .unwrap();
    assert_eq!(live.quota(), Some(0.3));
    until("the lease's end", || live.quota().is_none()).await;

    // A release by hand, and one by the agent's own end.
    client.apply(ask(1, 4, LONG, cores(0.4))).await.unwrap();
    let released = client.release(&holder(1)).await.unwrap();
    assert!(
        released.was_held && released.notes[0].contains("put back"),
        "{released:?}"
    );
    assert_eq!(live.quota(), None);
    client.apply(ask(1, 5, LONG, cores(0.4))).await.unwrap();
    assert_eq!(agent.stop(), 1);
    assert_eq!(live.quota(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_agent_left_is_put_back_by_the_next_start() {
    let Some(live) = Live::new() else { return };
    for _ in 0..2 {
        let agent = AgentProcess::start(&live.target, live.run_dir.path());
        let client = live.connect().await;
        client.apply(ask(1, 1, LONG, cores(0.2))).await.unwrap();
        let mut samples = client.observe(Duration::from_millis(20)).await.unwrap();
        samples.next().await.unwrap();
        agent.kill();
        assert_eq!(live.quota(), Some(0.2), "nobody was left to put it back");
        // Its callers notice.
        let ended = loop {
            match samples.next().await {
                Ok(Some(_)) => {}
                other => break other,
            }
        };
        assert!(matches!(ended, Err(CallError::Unreachable { .. })), "{ended:?}");
        assert!(!client.is_connected());

        let next = AgentProcess::start(&live.target, live.run_dir.path());
        assert_eq!((next.restored, live.quota()), (1, None));
        // And it serves, on the socket that the dead one left.
        live.connect()
            .await
            .apply(ask(2, 1, LONG, cores(0.6)))
            .await
            .unwrap();
        assert_eq!(live.quota(), Some(0.6));
        next.kill();
        release(live.run_dir.path(), &Roots::default()).unwrap();
        assert_eq!(live.quota(), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releasing_by_hand_leaves_a_running_agent_alone_and_undoes_a_dead_one() {
    let Some(live) = Live::new() else { return };
    let agent = AgentProcess::start(&live.target, live.run_dir.path());
    let client = live.connect().await;
    client.apply(ask(1, 1, LONG, cores(0.2))).await.unwrap();
    let error = release(live.run_dir.path(), &Roots::default()).unwrap_err();
    assert!(matches!(error, LedgerError::InUse { .. }), "{error}");
    assert!(
        error.to_string().contains(&agent.child.id().to_string()),
        "{error}"
    );
    assert_eq!(live.quota(), Some(0.2));
    agent.kill();
    let report = release(live.run_dir.path(), &Roots::default()).unwrap();
    assert_eq!((report.restored(), live.quota()), (1, None));
    let report = release(live.run_dir.path(), &Roots::default()).unwrap();
    assert_eq!(report.outcomes.len(), 0, "twice is no error");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_goes_away_under_a_lease_is_told_and_harms_nobody() {
    let Some(mut live) = Live::new() else { return };
    let agent = AgentProcess::start(&live.target, live.run_dir.path());
    let client = live.connect().await;
    client.apply(ask(1, 1, LONG, cores(0.2))).await.unwrap();
    live.scope.remove();
    let refused = refusal(client.apply(ask(1, 2, LONG, cores(0.3))).await);
    match &refused {
        Refusal::MachineRefused { why, .. } | Refusal::NoLever { reason: why, .. } => {
            assert!(why.contains(&live.target), "{why}");
        }
        other => panic!("{other}"),
    }
    let mut samples = client.observe(Duration::from_millis(20)).await.unwrap();
    let sample = samples.next().await.unwrap().unwrap();
    assert_eq!(sample.cpu, None);
    client.release(&holder(1)).await.unwrap();
    agent.stop();
}
