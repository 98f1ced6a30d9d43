//! An agent without a machine, and certificates.
#![allow(dead_code, reason = "each test program uses a part")]

use headroom_units::{Lever, LeverRange, Setting, Source};
use headroom_wire::access::Rules;
use headroom_wire::certs::{AUTHORITY_DAYS, Authority, Validity};
use headroom_wire::client::ClientOptions;
use headroom_wire::message::{
    Applied, Apply, Description, Holder, LeaseState, Node, QueueCounters, QueueMethod, QueueSample,
    QueueShown, QueueSnapshot, Range, Ranges, Sample, WatchQueue,
};
use headroom_wire::proto::agent_server::Agent;
use headroom_wire::server::{Admission, Limits, Listen, Listener, Peer, Rejected, log_refused, serve};
use headroom_wire::tls::{ClientTls, ServerTls, TlsFiles};
use headroom_wire::{Address, Refusal, proto};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status};

/// Answers every contract's call: refuses caps under 40 W, remembers who called.
#[derive(Clone, Default)]
pub struct Echo {
    pub callers: Arc<Mutex<Vec<Peer>>>,
}

pub fn description() -> Description {
    Description {
        agent_version: "0.1.0".into(),
        agent_run: 7,
        node: Node {
            name: "n1".into(),
            cores_online: 16,
            ..Node::default()
        },
        service: "a test".into(),
        ranges: Ranges::default()
            .with(Lever::Cores, Ok(LeverRange::between(0.1, 16.0)))
            .with(Lever::Cap, Ok(LeverRange::between(40.0, 92.0))),
        devices: vec![],
        meters: vec![],
        envelope: None,
        lease_ms: Range::new(1000.0, 60_000.0),
        observe_period_ms: Range::new(10.0, 60_000.0),
        queue_period_ms: Some(Range::new(10.0, 60_000.0)),
        cpu_groups: Some(vec!["cgroup /web".into()]),
        source: Source::Emulated,
        in_force: Setting::default(),
        lease: None,
        oncall: None,
    }
}

/// What a watch of any port shows: a sample, nobody, nothing.
pub fn snapshots(watch: &WatchQueue) -> Vec<QueueSnapshot> {
    let sample = QueueSample {
        method: watch.methods.first().copied().unwrap_or(QueueMethod::Kernel),
        meter: 1,
        epoch: 2,
        port: QueueCounters {
            enqueued: Some(watch.port.into()),
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
    };
    let nobody = QueueShown::Nobody {
        others: "somebody on 22".into(),
    };
    let unavailable = QueueShown::Unavailable {
        why: "no privilege".into(),
    };
    let shown = [QueueShown::Sample(Box::new(sample)), nobody, unavailable];
    let numbered = (1..).zip(shown).map(|(number, shown)| QueueSnapshot {
        number,
        agent_run: 7,
        uptime: watch.period * number as u32,
        age: Duration::from_micros(3),
        shown,
        group: watch
            .cpu_group
            .as_ref()
            .map(|group| Err(format!("there is no {group}"))),
    });
    numbered.collect()
}

#[tonic::async_trait]
impl Agent for Echo {
    type ObserveStream = Pin<Box<dyn Stream<Item = Result<proto::Sample, Status>> + Send>>;
    type WatchQueueStream = Pin<Box<dyn Stream<Item = Result<proto::QueueSnapshot, Status>> + Send>>;

    async fn watch_queue(
        &self,
        request: Request<proto::WatchQueueRequest>,
    ) -> Result<Response<Self::WatchQueueStream>, Status> {
        let watch = WatchQueue::try_from(request.into_inner()).map_err(Refusal::from)?;
        let snapshots: Vec<_> = snapshots(&watch)
            .into_iter()
            .map(|snapshot| Ok(snapshot.into()))
            .collect();
        Ok(Response::new(Box::pin(tonic::codegen::tokio_stream::iter(
            snapshots,
        ))))
    }

    async fn describe(
        &self,
        request: Request<proto::DescribeRequest>,
    ) -> Result<Response<proto::Description>, Status> {
        if let Some(peer) = request.extensions().get::<Peer>() {
            self.callers.lock().unwrap().push(peer.clone());
        }
        Ok(Response::new(description().into()))
    }

    async fn observe(
        &self,
        request: Request<proto::ObserveRequest>,
    ) -> Result<Response<Self::ObserveStream>, Status> {
        let period = Duration::from_millis(request.into_inner().period_ms);
        let samples: Vec<_> = (1..=3)
            .map(|number| {
                Ok(Sample {
                    number,
                    agent_run: 7,
                    uptime: period * number as u32,
                    period,
                    cpu: None,
                    machine_utilisation: None,
                    zones: vec![],
                    energy: None,
                    frequency: None,
                    in_force: Setting::default(),
                    lease: None,
                    troubles: vec![],
                    usable: None,
                    refused: None,
                    oncall: None,
                    work: None,
                }
                .into())
            })
            .collect();
        Ok(Response::new(Box::pin(tonic::codegen::tokio_stream::iter(
            samples,
        ))))
    }

    async fn apply(&self, request: Request<proto::ApplyRequest>) -> Result<Response<proto::Applied>, Status> {
        let apply = Apply::try_from(request.into_inner()).map_err(Refusal::from)?;
        if let Some(cap) = apply.setting.cap() {
            Refusal::check_range("cap_w", cap.get(), Range::new(40.0, 92.0), "W")?;
        }
        let lease = LeaseState {
            holder: apply.holder.name().into(),
            remaining: apply.length,
            length: apply.length,
            sequence: apply.sequence,
        };
        let took = Duration::from_micros(80);
        Ok(Response::new(
            Applied {
                in_force: apply.setting,
                lease,
                took,
                notes: vec![],
            }
            .into(),
        ))
    }

    async fn release(&self, _: Request<proto::ReleaseRequest>) -> Result<Response<proto::Released>, Status> {
        Err(Refusal::HeldByAnother {
            holder: "b".into(),
            remaining: Duration::from_secs(3),
        }
        .into())
    }
}

pub fn apply(cores: f64, cap: f64) -> Apply {
    Apply {
        holder: Holder::new("controller", 11).unwrap(),
        sequence: 1,
        length: Duration::from_secs(5),
        setting: Setting::default()
            .with(Lever::Cores, Some(cores))
            .with(Lever::Cap, Some(cap)),
    }
}

/// A running server; it stops when it is dropped.
pub struct Running {
    pub address: Address,
    pub rejected: Arc<Mutex<Vec<Rejected>>>,
    pub echo: Echo,
    pub task: tokio::task::JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
}

impl Running {
    pub async fn start(listen: Listen, limits: Limits) -> Self {
        Self::start_by(listen, limits, Rules::default()).await
    }

    pub async fn start_by(listen: Listen, limits: Limits, rules: Rules) -> Self {
        let listener = Listener::open(listen).await.unwrap();
        let address = listener.address().clone();
        let rejected = Arc::new(Mutex::new(Vec::new()));
        let at_arrival = rejected.clone();
        let admission = Admission {
            rules,
            on_rejected: Arc::new(move |one: &Rejected| at_arrival.lock().unwrap().push(one.clone())),
            on_refused: log_refused(),
        };
        let (stop, stopped) = oneshot::channel();
        let echo = Echo::default();
        let served = serve(listener, echo.clone(), limits, admission, async move {
            let _ = stopped.await;
        });
        Self {
            address,
            rejected,
            echo,
            task: tokio::spawn(served),
            stop: Some(stop),
        }
    }

    pub async fn stop(mut self) {
        drop(self.stop.take());
        (&mut self.task).await.unwrap();
    }

    /// The first rejection, once it was told.
    pub async fn rejection(&self) -> String {
        for _ in 0..500 {
            if let Some(one) = self.rejected.lock().unwrap().first() {
                return one.to_string();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("nothing was rejected");
    }
}

pub fn files(dir: &Path, stem: &str) -> TlsFiles {
    TlsFiles {
        ca: dir.join("ca.crt"),
        certificate: dir.join(format!("{stem}.crt")),
        key: dir.join(format!("{stem}.key")),
        revoked: None,
    }
}

/// An authority with a controller and the node n1, good for 127.0.0.1.
pub struct Certs {
    pub dir: tempfile::TempDir,
    pub authority: Authority,
}

impl Certs {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (authority, _) = Authority::create(dir.path(), Validity::days(AUTHORITY_DAYS).unwrap()).unwrap();
        let year = Validity::days(365).unwrap();
        authority.issue_controller(year).unwrap();
        authority.issue_node("n1", &["127.0.0.1".into()], year).unwrap();
        Self { dir, authority }
    }

    pub fn files(&self, stem: &str) -> TlsFiles {
        files(self.dir.path(), stem)
    }

    pub fn listen(&self) -> Listen {
        let tls = ServerTls::load(&self.files("node-n1")).unwrap();
        Listen::Tcp {
            address: "127.0.0.1:0".parse().unwrap(),
            tls,
        }
    }

    pub fn options(&self) -> ClientOptions {
        let tls = ClientTls::load(&self.files("controller")).unwrap();
        ClientOptions {
            tls: Some(tls),
            ..ClientOptions::default()
        }
    }
}
