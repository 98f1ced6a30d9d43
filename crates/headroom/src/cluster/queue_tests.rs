use super::*;
use headroom_units::Source;
use headroom_wire::message::{
    Allocation, Description, Node, QueueCounters, QueueMethod as Told, QueueSample as ToldSample, QueueShown,
    QueueSight, Range,
};
use headroom_wire::proto::agent_server::Agent;
use headroom_wire::server::{Limits, Listen, Listener, log_rejected, serve};
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
}

#[derive(Clone)]
struct Scripted {
    manner: Manner,
    asked: Arc<AtomicUsize>,
}

type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

fn sight(number: u64) -> QueueSight {
    QueueSight {
        number,
        agent_run: 1,
        uptime: Duration::from_secs(number),
        age: Duration::ZERO,
        shown: QueueShown::Sample(Box::new(ToldSample {
            method: Told::Ebpf,
            meter: 1,
            epoch: 0,
            port: QueueCounters {
                enqueued: Some(number),
                ..QueueCounters::default()
            },
            server: QueueCounters::default(),
            machine: QueueCounters::default(),
            length: None,
            seen: None,
            cpu_busy: None,
            listeners: vec![],
        })),
    }
}

#[tonic::async_trait]
impl Agent for Scripted {
    type ObserveStream = Streamed<proto::Sample>;
    type WatchQueueStream = Streamed<proto::QueueSight>;

    async fn describe(
        &self,
        _: Request<proto::DescribeRequest>,
    ) -> Result<Response<proto::Description>, Status> {
        let description = Description {
            agent_version: "0.0.9".into(),
            agent_run: 1,
            node: Node::default(),
            service: String::new(),
            cores: None,
            cap: None,
            frequency: None,
            levers: vec![],
            meters: vec![],
            envelope: None,
            lease_ms: Range::new(1.0, 2.0),
            observe_period_ms: Range::new(1.0, 2.0),
            queue_period_ms: (self.manner != Manner::Old).then(|| Range::new(10.0, 60_000.0)),
            source: Source::Emulated,
            in_force: Allocation::AS_FOUND,
            lease: None,
        };
        Ok(Response::new(description.into()))
    }

    async fn watch_queue(
        &self,
        _: Request<proto::WatchQueueRequest>,
    ) -> Result<Response<Self::WatchQueueStream>, Status> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let Manner::Tells(sights) = self.manner else {
            return Err(Refusal::Busy {
                server: Server::Agent,
                what: "watched accept queues".into(),
                limit: 16,
            }
            .into());
        };
        let told = (1..=sights).map(|number| Ok(sight(number).into()));
        let told: Vec<Result<proto::QueueSight, Status>> = told.collect();
        let silence = tonic::codegen::tokio_stream::pending();
        Ok(Response::new(Box::pin(
            tonic::codegen::tokio_stream::iter(told).chain(silence),
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
    agent: Option<(oneshot::Sender<()>, std::thread::JoinHandle<()>)>,
    _dir: tempfile::TempDir,
}

impl Watched {
    fn start(manner: Manner, patience: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        let asked = Arc::new(AtomicUsize::new(0));
        let scripted = Scripted {
            manner,
            asked: Arc::clone(&asked),
        };
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
                serve(listener, scripted, limits, log_rejected(), stop).await;
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
        };
        Self {
            queue: AgentQueue::watch(vec![options]).unwrap().pop().unwrap(),
            asked,
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
    assert!(why.contains("has told nothing of port 80 for"), "{why}");
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
    assert!(why.contains("has told nothing"), "{why}");
}

#[test]
fn who_takes_waits_for_as_long_as_it_said_and_no_longer() {
    let took = |watched: &mut Watched| {
        let began = Instant::now();
        assert!(watched.why().contains("has told nothing of port 80 yet"));
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
        why.contains("agent") && !why.contains("has told nothing"),
        "{why}"
    );
}
