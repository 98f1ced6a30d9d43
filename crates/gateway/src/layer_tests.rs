//! Layers between admission and balancing, as a cache and a batcher will be: they answer from memory, hold requests, fetch
//! once for several, refuse by a deadline. Whatever they do, each request is counted once.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::{LocalSet, spawn_local};

use super::*;
use crate::accept;
use crate::admit::Admit;
use crate::backend::Backend;
use crate::balance::Balance;
use crate::config::{BackendConfig, GatewayConfig};
use crate::core::{Common, Core};
use crate::descriptors::Descriptors;
use crate::endpoint::Endpoint;
use crate::signs::Signs;
use crate::stats::{CoreSample, Failure};
use crate::watch::Phase;

/// No test waits longer for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// An answer that may be given many times.
#[derive(Clone)]
struct Copied {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Copied {
    async fn of(answer: Answer) -> Self {
        Self {
            status: answer.status,
            headers: answer.fields.into_map(),
            body: answer.body.collect().await.unwrap().to_bytes(),
        }
    }

    fn answer(self) -> Answer {
        Answer::new(self.status, self.headers, Body::Memory(self.body))
    }
}

/// Answers by itself what it has, by path; the rest is for the layer below.
struct Memory<L> {
    known: HashMap<&'static str, (u16, Bytes)>,
    inner: L,
}

impl<L: Layer> Layer for Memory<L> {
    async fn call(&self, call: Box<Call>) -> Result<Answer, Stop> {
        let Some((status, body)) = self.known.get(call.parts.uri.path()) else {
            return self.inner.call(call).await;
        };
        let status = StatusCode::from_u16(*status).unwrap();
        Ok(Answer::new(status, HeaderMap::new(), Body::Memory(body.clone())))
    }
}

type Shared = Result<Copied, Stop>;

/// Holds a request until another one for the same target comes, and fetches once for both.
struct Pairs<L> {
    core: Rc<Core>,
    patience: Duration,
    held: RefCell<HashMap<String, oneshot::Sender<Shared>>>,
    inner: Rc<L>,
}

impl<L: Layer + 'static> Pairs<L> {
    /// Fetches in a task of its own, on a watch of its own: either client may go away meanwhile.
    fn fetch(&self, mut call: Box<Call>, waiting: [oneshot::Sender<Shared>; 2]) {
        let (core, inner) = (self.core.clone(), self.inner.clone());
        spawn_local(async move {
            let watch = core.watches.add(Phase::Untimed);
            call.watch = watch.clone();
            let mut fetched = pin!(async {
                match inner.call(call).await {
                    Ok(answer) => Ok(Copied::of(answer).await),
                    Err(stop) => Err(stop),
                }
            });
            let shared = poll_fn(|cx| {
                watch.wake_by(cx);
                fetched.as_mut().poll(cx)
            })
            .await;
            core.watches.remove(&watch);
            for client in waiting {
                // Who has gone needs no answer.
                let _ = client.send(shared.clone());
            }
        });
    }
}

impl<L: Layer + 'static> Layer for Pairs<L> {
    async fn call(&self, call: Box<Call>) -> Result<Answer, Stop> {
        let deadline = call.arrived + self.patience;
        let key = call.parts.uri.to_string();
        call.watch.enter(Phase::Untimed);
        let (sender, answered) = oneshot::channel();
        let other = self.held.borrow_mut().remove(&key);
        match other {
            Some(other) => self.fetch(call, [other, sender]),
            None => drop(self.held.borrow_mut().insert(key, sender)),
        }
        match tokio::time::timeout_at(deadline.into(), answered).await {
            Ok(Ok(shared)) => shared.map(Copied::answer),
            _ => Err(Stop::Fail(Failure::OverLimit, "no second request came")),
        }
    }
}

/// A backend that answers when it may, and counts what it was asked.
#[derive(Clone)]
struct Origin {
    address: SocketAddr,
    requests: Rc<Cell<u32>>,
    open: Rc<Notify>,
}

impl Origin {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = Self {
            address: listener.local_addr().unwrap(),
            requests: Rc::default(),
            open: Rc::default(),
        };
        let serving = origin.clone();
        spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let origin = serving.clone();
                spawn_local(async move { origin.serve(stream).await });
            }
        });
        origin
    }

    async fn serve(&self, mut stream: TcpStream) {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while let Ok(1) = stream.read(&mut byte).await {
            head.push(byte[0]);
            if head.ends_with(b"\r\n\r\n") {
                self.requests.set(self.requests.get() + 1);
                self.open.notified().await;
                head.clear();
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nfetched";
                stream.write_all(answer).await.unwrap();
            }
        }
    }
}

/// A stack with a layer between admission and balancing, on the running task set.
fn start<L: Layer + 'static>(
    origin: &Origin,
    target_ms: Option<u64>,
    layer: impl FnOnce(&Rc<Core>, Balance) -> L,
) -> (Rc<Core>, SocketAddr) {
    let config = GatewayConfig {
        backends: vec![BackendConfig::new(format!("http://{}", origin.address))],
        target_ms,
        ..GatewayConfig::default()
    };
    let backends = vec![Arc::new(Backend::new(&config.backends[0]).unwrap())];
    let common = Common {
        sources: None,
        alarm: Arc::new(crate::alarm::Alarm::new(1)),
        config: Arc::new(config),
        backends,
        cores: 1,
        waiting: Arc::new(crate::waiting::Waiting::new(1, 1_024, 1)),
        signs: Arc::new(Signs::new(1, 1)),
        descriptors: Arc::new(Descriptors::of_process(1, 1, 1)),
        cache: None,
        batch: None,
        routes: None,
    };
    let core = Rc::new(Core::new(0, common));
    let endpoint = Rc::new(Endpoint::new(core.clone(), &[[origin.address].into()]));
    let balance = Balance::new(core.clone(), endpoint);
    let stack = Rc::new(Admit::new(core.clone(), layer(&core, balance)));
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let address = socket.local_addr().unwrap();
    core.accepting.set(1);
    spawn_local(accept::run(stack, crate::listeners::Listener::cleartext(socket)));
    (core, address)
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let test = async { tokio::time::timeout(PATIENCE, test).await.expect("in time") };
    LocalSet::new().block_on(&runtime, test);
}

async fn send(address: SocketAddr, head: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{head} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.write_all(b"\r\n").await.unwrap();
    stream
}

/// The client is gone, and not merely done with sending.
fn reset(client: TcpStream) {
    let socket = socket2::SockRef::from(&client);
    socket.set_linger(Some(Duration::ZERO)).unwrap();
}

/// Status and body of an answer, to the end of its connection.
async fn receive(mut stream: TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    receive(send(address, &format!("GET {path}")).await).await
}

async fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn taken(core: &Core) -> CoreSample {
    let mut sample = CoreSample::empty(1, 0);
    core.take(&mut sample);
    sample
}

#[test]
fn an_answer_from_memory_is_counted_as_one_of_a_backend_is_and_asks_none() {
    run(async {
        let origin = Origin::start().await;
        // More than one piece, so that it is handed over as its reader takes it.
        let long = Bytes::from(vec![b'x'; 300_000]);
        let known = HashMap::from([
            ("/known", (200, long.clone())),
            ("/empty", (204, Bytes::new())),
            ("/broken", (500, Bytes::from_static(b"oops"))),
        ]);
        let (core, address) = start(&origin, None, |_, inner| Memory { known, inner });
        origin.open.notify_one();
        assert_eq!(get(address, "/other").await, (200, "fetched".to_owned()));
        let (status, body) = get(address, "/known").await;
        assert_eq!((status, body.as_bytes()), (200, long.as_ref()));
        assert_eq!(get(address, "/empty").await, (204, String::new()));
        assert_eq!(get(address, "/broken").await, (500, "oops".to_owned()));
        let sample = taken(&core);
        let service = sample.service;
        assert_eq!((service.arrivals, service.completions), (4, 3));
        assert_eq!((service.failures, service.failed_answers), (1, 1));
        assert_eq!((service.in_flight, sample.histogram.len()), (0, 3));
        assert_eq!(service.statuses, [0, 3, 0, 0, 1]);
        assert_eq!(service.response_bytes, 7 + 300_000 + 4);
        let backend = sample.backends[0].counts;
        assert_eq!((backend.arrivals, backend.completions), (1, 1));
        assert_eq!((backend.response_bytes, origin.requests.get()), (7, 1));
    });
}

#[test]
fn what_follows_an_answer_that_left_the_request_unread_is_no_request() {
    run(async {
        let origin = Origin::start().await;
        let known = HashMap::from([("/known", (200, Bytes::from_static(b"ok")))]);
        let (core, address) = start(&origin, None, |_, inner| Memory { known, inner });
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request =
            b"POST /known HTTP/1.1\r\nhost: t\r\ncontent-length: 20\r\n\r\nGET /known HTTP/1.1\r\nhost: t\r\n\r\n";
        stream.write_all(request).await.unwrap();
        assert_eq!(receive(stream).await, (200, "ok".to_owned()));
        assert_eq!(taken(&core).service.arrivals, 1);
    });
}

fn pairs(patience: Duration) -> impl FnOnce(&Rc<Core>, Balance) -> Pairs<Balance> {
    move |core, inner| Pairs {
        core: core.clone(),
        patience,
        held: RefCell::default(),
        inner: Rc::new(inner),
    }
}

#[test]
fn one_fetch_answers_two_requests_that_were_held() {
    run(async {
        let origin = Origin::start().await;
        let (core, address) = start(&origin, None, pairs(PATIENCE));
        let first = send(address, "GET /a").await;
        until(|| core.stats.borrow().service.in_flight == 1).await;
        assert_eq!(core.stats.borrow().backends[0].counts.arrivals, 0, "it is held");
        let second = send(address, "GET /a").await;
        until(|| origin.requests.get() == 1).await;
        assert_eq!(core.stats.borrow().service.in_flight, 2);
        origin.open.notify_one();
        for client in [first, second] {
            assert_eq!(receive(client).await, (200, "fetched".to_owned()));
        }
        let sample = taken(&core);
        assert_eq!((sample.service.arrivals, sample.service.completions), (2, 2));
        assert_eq!((sample.service.in_flight, sample.histogram.len()), (0, 2));
        let backend = sample.backends[0].counts;
        assert_eq!(
            (backend.arrivals, backend.completions, backend.in_flight),
            (1, 1, 0)
        );
    });
}

#[test]
fn who_goes_away_takes_the_answer_from_nobody_else() {
    run(async {
        let origin = Origin::start().await;
        let (core, address) = start(&origin, None, pairs(PATIENCE));
        let first = send(address, "GET /a").await;
        until(|| core.stats.borrow().service.in_flight == 1).await;
        let second = send(address, "GET /a").await;
        until(|| origin.requests.get() == 1).await;
        reset(second);
        until(|| core.stats.borrow().service.aborted_by_client == 1).await;
        assert_eq!(
            core.stats.borrow().backends[0].counts.in_flight,
            1,
            "the fetch goes on"
        );
        origin.open.notify_one();
        assert_eq!(receive(first).await, (200, "fetched".to_owned()));
        let sample = taken(&core);
        assert_eq!((sample.service.completions, sample.service.failures), (1, 1));
        assert_eq!(sample.backends[0].counts.completions, 1);
    });
}

#[test]
fn a_request_that_is_held_too_long_is_refused_by_its_deadline() {
    run(async {
        let origin = Origin::start().await;
        let (core, address) = start(&origin, None, pairs(Duration::from_millis(20)));
        let (status, body) = get(address, "/a").await;
        assert_eq!((status, body.trim()), (503, "no second request came"));
        let sample = taken(&core);
        assert_eq!((sample.service.over_limit, sample.service.in_flight), (1, 0));
        assert_eq!((sample.service.statuses[4], sample.histogram.len()), (1, 0));
        assert_eq!(sample.backends[0].counts.arrivals, 0);
    });
}

#[test]
fn a_client_that_gives_up_on_a_held_request_after_the_target_was_failed_by_the_service() {
    run(async {
        let origin = Origin::start().await;
        for (target_ms, timed_out) in [(1, 1), (60_000, 0)] {
            let (core, address) = start(&origin, Some(target_ms), pairs(PATIENCE));
            let client = send(address, "GET /a").await;
            until(|| core.stats.borrow().service.in_flight == 1).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
            reset(client);
            until(|| core.stats.borrow().service.in_flight == 0).await;
            let counts = taken(&core).service;
            assert_eq!(
                (counts.timed_out, counts.aborted_by_client),
                (timed_out, 1 - timed_out)
            );
        }
    });
}
