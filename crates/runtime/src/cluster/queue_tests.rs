use super::*;
use headroom_units::{Setting, Source};
use headroom_wire::access::Rules;
use headroom_wire::message::{
    Description, GroupCounters, GroupCpu, Node, QueueCounters, QueueMethod as WireMethod,
    QueueSample as WireSample, QueueShown, QueueSnapshot, Range, Ranges,
};
use headroom_wire::proto::agent_server::Agent;
use headroom_wire::server::{Admission, Limits, Listen, Listener, serve};
use headroom_wire::tonic::codegen::tokio_stream::{Stream, StreamExt};
use headroom_wire::tonic::{self, Request, Response, Status};
use headroom_wire::{Refusal, Server, proto};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{mpsc, oneshot};

/// What an agent of a test does when it is asked to watch.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    /// It tells so many sights at once, and then nothing.
    Tells(u64),
    /// It refuses.
    Refuses,
    /// It does not know what watching is.
    Old,
    /// It tells one sight after the other, with what it reads of the control group in each.
    Groups,
    /// Its configuration allows no control group.
    Forbids,
}

/// What an agent that tells a control group reads: half of what may be used, the run of the agent, then a reading that
/// failed, and another run.
fn readings() -> Vec<(u64, GroupCpu)> {
    let read = |used, allowed| {
        Ok(GroupCounters {
            epoch: 4,
            used: Duration::from_millis(used),
            allowed: Duration::from_millis(allowed),
        })
    };
    vec![
        (1, read(100, 1_000)),
        (1, read(200, 1_200)),
        (1, Err("the group is gone".into())),
        (1, read(300, 1_400)),
        (1, read(310, 1_500)),
        (2, read(320, 1_600)),
        (2, read(420, 1_700)),
    ]
}

#[derive(Clone)]
struct Scripted {
    manner: Manner,
    asked: Arc<AtomicUsize>,
    /// A turn to tell a sight, each.
    turns: Arc<tokio::sync::Semaphore>,
}

type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

fn snapshot(number: u64) -> QueueSnapshot {
    QueueSnapshot {
        number,
        agent_run: 1,
        uptime: Duration::from_secs(number),
        age: Duration::ZERO,
        shown: QueueShown::Sample(Box::new(WireSample {
            method: WireMethod::Ebpf,
            meter: 1,
            epoch: 0,
            port: QueueCounters {
                enqueued: Some(number),
                ..QueueCounters::default()
            },
            server: QueueCounters::default(),
            machine: QueueCounters::default(),
            length: None,
            at_arrival: None,
            cpu_busy: None,
            connections: None,
            loops_busy: None,
            listeners: vec![],
        })),
        group: None,
    }
}

#[tonic::async_trait]
impl Agent for Scripted {
    type ObserveStream = Streamed<proto::Sample>;
    type WatchQueueStream = Streamed<proto::QueueSnapshot>;

    async fn describe(
        &self,
        _: Request<proto::DescribeRequest>,
    ) -> Result<Response<proto::Description>, Status> {
        let description = Description {
            agent_version: "0.0.9".into(),
            agent_run: 1,
            node: Node::default(),
            service: String::new(),
            ranges: Ranges::default(),
            devices: vec![],
            meters: vec![],
            envelope: None,
            lease_ms: Range::new(1.0, 2.0),
            observe_period_ms: Range::new(1.0, 2.0),
            queue_period_ms: (self.manner != Manner::Old).then(|| Range::new(10.0, 60_000.0)),
            cpu_groups: matches!(self.manner, Manner::Groups | Manner::Forbids).then(Vec::new),
            source: Source::Emulated,
            in_force: Setting::default(),
            lease: None,
            oncall: None,
        };
        Ok(Response::new(description.into()))
    }

    async fn watch_queue(
        &self,
        _: Request<proto::WatchQueueRequest>,
    ) -> Result<Response<Self::WatchQueueStream>, Status> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.manner == Manner::Groups {
            let turns = Arc::clone(&self.turns);
            let reported = (1..).zip(readings());
            let reported: Vec<_> = reported
                .map(|(number, (agent_run, group))| QueueSnapshot {
                    agent_run,
                    group: Some(group),
                    ..snapshot(number)
                })
                .collect();
            let reported = tonic::codegen::tokio_stream::iter(reported).then(move |snapshot| {
                let turns = Arc::clone(&turns);
                async move {
                    turns.acquire().await.unwrap().forget();
                    Ok(snapshot.into())
                }
            });
            let silence = tonic::codegen::tokio_stream::pending();
            return Ok(Response::new(Box::pin(reported.chain(silence))));
        }
        if self.manner == Manner::Forbids {
            return Err(Refusal::NotAllowed {
                field: "cpu_group".into(),
                value: "/web".into(),
                allowed: "nothing is".into(),
            }
            .into());
        }
        let Manner::Tells(snapshots) = self.manner else {
            return Err(Refusal::Busy {
                server: Server::Agent,
                what: "watched accept queues".into(),
                limit: 16,
            }
            .into());
        };
        let reported = (1..=snapshots).map(|number| Ok(snapshot(number).into()));
        let reported: Vec<Result<proto::QueueSnapshot, Status>> = reported.collect();
        let silence = tonic::codegen::tokio_stream::pending();
        Ok(Response::new(Box::pin(
            tonic::codegen::tokio_stream::iter(reported).chain(silence),
        )))
    }

    async fn observe(
        &self,
        _: Request<proto::ObserveRequest>,
    ) -> Result<Response<Self::ObserveStream>, Status> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn apply(&self, _: Request<proto::ApplyRequest>) -> Result<Response<proto::Applied>, Status> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn release(&self, _: Request<proto::ReleaseRequest>) -> Result<Response<proto::Released>, Status> {
        Err(Status::unimplemented("not asked here"))
    }
}

/// An agent on a thread, and a queue that is watched through it.
struct Watched {
    queue: AgentQueue,
    asked: Arc<AtomicUsize>,
    turns: Arc<tokio::sync::Semaphore>,
    agent: Option<(oneshot::Sender<()>, std::thread::JoinHandle<()>)>,
    _dir: tempfile::TempDir,
}

impl Watched {
    fn start(manner: Manner, patience: Duration) -> Self {
        Self::with_group(manner, patience, None)
    }

    fn with_group(manner: Manner, patience: Duration, group: Option<&str>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        let asked = Arc::new(AtomicUsize::new(0));
        let scripted = Scripted {
            manner,
            asked: Arc::clone(&asked),
            turns: Arc::new(tokio::sync::Semaphore::new(0)),
        };
        let turns = Arc::clone(&scripted.turns);
        let (stop, stopped) = oneshot::channel();
        let (listening, mut listens) = mpsc::channel(1);
        let listen = Listen::Unix { path: path.clone() };
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = Listener::open(listen).await.unwrap();
                listening.send(()).await.unwrap();
                let limits = Limits {
                    drain: Duration::ZERO,
                    ..Limits::default()
                };
                let stop = async {
                    let _ = stopped.await;
                };
                serve(
                    listener,
                    scripted,
                    limits,
                    Admission::logged(Rules::default()),
                    stop,
                )
                .await;
            });
        });
        listens.blocking_recv().unwrap();
        let options = WatchOptions {
            address: Address::Unix(path),
            client: ClientOptions::default(),
            port: 80,
            methods: vec![QueueMethod::Ebpf],
            period: Duration::from_millis(200),
            patience,
            cpu_group: group.map(|path| CpuGroup::new(path).unwrap()),
        };
        Self {
            queue: AgentQueue::watch(vec![options]).unwrap().pop().unwrap(),
            asked,
            turns,
            agent: Some((stop, thread)),
            _dir: dir,
        }
    }

    fn end_agent(&mut self) {
        let (stop, thread) = self.agent.take().unwrap();
        stop.send(()).unwrap();
        thread.join().unwrap();
    }

    fn why(&mut self) -> String {
        self.queue.sample().unwrap_err().to_string()
    }
}

/// Far longer than anything takes on a busy machine.
const LONG: Duration = Duration::from_secs(20);

fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LONG;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_sight_is_taken_once_and_an_agent_that_falls_silent_is_no_sight() {
    let mut watched = Watched::start(Manner::Tells(3), Duration::ZERO);
    // Three were told at once; whichever was taken, no later one is older.
    until("the newest", || {
        let sample = watched.queue.sample().ok()?;
        (sample.port.enqueued == Some(3)).then_some(())
    });
    // Nothing was told after it, and it was taken.
    let why = watched.why();
    assert!(why.contains("has reported nothing of port 80 for"), "{why}");
    assert!(
        watched
            .queue
            .place()
            .contains("port 80 by ebpf, through the agent at")
    );
}

#[test]
fn a_sight_that_nobody_took_in_time_is_stale() {
    let mut watched = Watched::start(Manner::Tells(1), Duration::ZERO);
    watched.queue.first_word(LONG).unwrap();
    std::thread::sleep(STALE_AT_LEAST + Duration::from_millis(100));
    let why = watched.why();
    assert!(why.contains("has reported nothing"), "{why}");
}

#[test]
fn who_takes_waits_for_as_long_as_it_said_and_no_longer() {
    let took = |watched: &mut Watched| {
        let began = Instant::now();
        assert!(watched.why().contains("has reported nothing of port 80 yet"));
        began.elapsed()
    };
    let patience = Duration::from_millis(300);
    assert!(took(&mut Watched::start(Manner::Tells(0), patience)) >= patience);
    // A busy machine may hold up any one of them, and not all.
    let mut hasty = Watched::start(Manner::Tells(0), Duration::ZERO);
    assert!((0..10).any(|_| took(&mut hasty) < patience / 10));
}

#[test]
fn a_refusal_an_old_agent_and_none_at_all_are_told_and_not_asked_again_at_once() {
    let mut refusing = Watched::start(Manner::Refuses, Duration::ZERO);
    let why = until("the refusal", || {
        (!refusing.queue.is_reached()).then(|| refusing.why())
    });
    assert!(
        why.contains("serves 16 watched accept queues and no more"),
        "{why}"
    );
    let began = Instant::now();
    let before = refusing.asked.load(Ordering::SeqCst);
    std::thread::sleep(Duration::from_secs(1));
    let again = refusing.asked.load(Ordering::SeqCst) - before;
    // The pauses grow from a tenth of a second.
    let at_most = began.elapsed().as_secs_f64() / FIRST_BACK_OFF_S;
    assert!(
        (again as f64) < at_most / 2.0,
        "{again} times in {at_most} tenths"
    );

    let mut old = Watched::start(Manner::Old, Duration::ZERO);
    let why = until("its version", || (!old.queue.is_reached()).then(|| old.why()));
    assert!(
        why.contains("of version 0.0.9, which cannot watch accept queues"),
        "{why}"
    );
    assert_eq!(old.asked.load(Ordering::SeqCst), 0);

    old.end_agent();
    let why = until("its end", || {
        Some(old.why()).filter(|why| !why.contains("version"))
    });
    assert!(why.contains("there is no such socket"), "{why}");
}

const FIRST_BACK_OFF_S: f64 = 0.1;

#[test]
fn an_agent_that_ends_is_told_at_once_and_what_it_had_told_is_gone() {
    let mut watched = Watched::start(Manner::Tells(1), Duration::ZERO);
    watched.queue.first_word(LONG).unwrap();
    watched.end_agent();
    until("its end", || (!watched.queue.is_reached()).then_some(()));
    let why = watched.why();
    assert!(
        why.contains("agent") && !why.contains("has reported nothing"),
        "{why}"
    );
}

#[test]
fn what_a_group_used_is_of_the_time_between_two_samples_of_one_run() {
    let mut watched = Watched::with_group(Manner::Groups, LONG, Some("/web"));
    let mut group = watched.queue.group();
    assert!(
        group
            .busy()
            .unwrap_err()
            .contains("reported nothing of the control group")
    );
    let mut busy = || {
        watched.turns.add_permits(1);
        watched.queue.sample().unwrap();
        group
            .busy()
            .map(|share| share.map(|share| (share.get() * 1e6).round() / 1e6))
    };
    let gone = || Err("the group is gone".to_owned());
    assert_eq!([busy(), busy(), busy()], [Ok(None), Ok(Some(0.5)), gone()]);
    // What came before it could not be read is not compared with; nor is another run's, whatever its epoch.
    let after = [busy(), busy(), busy(), busy()];
    assert_eq!(after, [Ok(None), Ok(Some(0.1)), Ok(None), Ok(Some(1.0))]);
    // Asked twice of one sample.
    assert!(group.busy().is_err());
}

#[test]
fn a_group_that_an_agent_does_not_or_cannot_tell_is_denied_and_nothing_else_is() {
    for (manner, group, said, asked) in [
        (
            Manner::Forbids,
            Some("/web"),
            "may not be asked for: nothing is",
            true,
        ),
        (
            Manner::Tells(1),
            Some("/web"),
            "of version 0.0.9, which cannot report the processor time of a control group",
            false,
        ),
        (Manner::Refuses, None, "and no more", true),
    ] {
        let mut watched = Watched::with_group(manner, Duration::ZERO, group);
        let why = until("the refusal", || {
            (!watched.queue.is_reached()).then(|| watched.why())
        });
        assert!(why.contains(said), "{why}");
        assert_eq!(watched.queue.is_denied(), group.is_some(), "{manner:?}");
        // An agent that would pass over what it does not know is not asked at all.
        assert_eq!(watched.asked.load(Ordering::SeqCst) > 0, asked, "{manner:?}");
    }
    let watched = Watched::with_group(Manner::Groups, LONG, Some("/web"));
    watched.turns.add_permits(3);
    until("the third", || watched.queue.group_trouble());
    assert!(!watched.queue.is_denied() && watched.queue.listening().is_ok());
}
