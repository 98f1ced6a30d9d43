//! gRPC through the gateway, with a client and a server of tonic: what passes, what counts as failed, deadlines.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use headroom_gateway::{FailedGrpcStatus, GatewayConfig, Handle};
use http::uri::PathAndQuery;
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tonic::body::Body;
use tonic::codegen::tokio_stream::{self, Stream, StreamExt};
use tonic::codegen::{Context, Pin, Poll, Service};
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::authority::Authority;
use crate::common::{eventually, start, take};
use crate::servers::{Server, answer_h2, block_on, h2c_config, serve_h2, tls_config, tls_server};

type Codec = ProstCodec<String, String>;
type Messages = Pin<Box<dyn Stream<Item = Result<String, Status>> + Send>>;
type Answer<T> = Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send>>;

/// A function as a service of tonic.
struct Method<F>(F);

impl<F: Fn(R) -> Answer<A>, R, A> Service<R> for Method<F> {
    type Response = Response<A>;
    type Error = Status;
    type Future = Answer<A>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        self.0(request)
    }
}

/// Counts what is dropped before its end.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn metadata(name: &'static str, value: &str) -> MetadataMap {
    let mut metadata = MetadataMap::new();
    metadata.insert(name, value.parse().unwrap());
    metadata
}

/// Echoes; fails with the status that is asked for.
fn unary(request: Request<String>, dropped: Arc<AtomicUsize>) -> Answer<String> {
    Box::pin(async move {
        let asked = request.metadata().clone();
        let message = request.into_inner();
        if message == "never" {
            let _dropped = Dropped(dropped);
            std::future::pending::<()>().await;
        }
        if let Some(code) = message.strip_prefix("status ") {
            let code = Code::from(code.parse::<i32>().unwrap());
            return Err(Status::with_metadata(
                code,
                "as asked",
                metadata("x-detail", "of the failure"),
            ));
        }
        let mut answer = Response::new(message);
        for (ask, tell) in [("x-ask", "x-answer"), ("grpc-timeout", "x-timeout")] {
            if let Some(value) = asked.get(ask) {
                answer.metadata_mut().insert(tell, value.clone());
            }
        }
        Ok(answer)
    })
}

fn collect(request: Request<Streaming<String>>) -> Answer<String> {
    Box::pin(async move {
        let mut messages = request.into_inner();
        let mut all = String::new();
        while let Some(message) = messages.message().await? {
            all.push_str(&message);
        }
        Ok(Response::new(all))
    })
}

/// So many messages, then the end that is asked for.
fn count(request: Request<String>, dropped: Arc<AtomicUsize>) -> Answer<Messages> {
    Box::pin(async move {
        let asked = request.into_inner();
        let (most, end) = asked.split_once(' ').unwrap_or((&asked, ""));
        let end = end.to_owned();
        let (sender, messages) = mpsc::channel(1);
        let most: u32 = most.parse().unwrap();
        tokio::spawn(async move {
            for number in 0..most {
                if sender.send(Ok(number.to_string())).await.is_err() {
                    return;
                }
            }
            if let Some(code) = end.strip_prefix("status ") {
                let status = Status::new(Code::from(code.parse::<i32>().unwrap()), "in the end");
                let _ = sender.send(Err(status)).await;
            }
            if end == "never" {
                sender.closed().await;
                drop(Dropped(dropped));
            }
        });
        let messages: Messages = Box::pin(tokio_stream::wrappers::ReceiverStream::new(messages));
        Ok(Response::new(messages))
    })
}

fn echo(request: Request<Streaming<String>>) -> Answer<Messages> {
    Box::pin(async move {
        let messages: Messages = Box::pin(
            request
                .into_inner()
                .map(|message| message.map(|text| format!("{text}!"))),
        );
        Ok(Response::new(messages))
    })
}

async fn route(request: http::Request<Incoming>, dropped: Arc<AtomicUsize>) -> http::Response<Body> {
    let mut grpc = tonic::server::Grpc::new(Codec::default());
    match request.uri().path() {
        "/test.Echo/Unary" => {
            let method = Method(move |request| unary(request, dropped.clone()));
            grpc.unary(method, request).await
        }
        "/test.Echo/Collect" => grpc.client_streaming(Method(collect), request).await,
        "/test.Echo/Count" => {
            let method = Method(move |request| count(request, dropped.clone()));
            grpc.server_streaming(method, request).await
        }
        "/test.Echo/Echo" => grpc.streaming(Method(echo), request).await,
        path => panic!("{path}"),
    }
}

/// Runs a server's streams in its own thread.
#[derive(Clone)]
struct Local;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for Local {
    fn execute(&self, stream: F) {
        tokio::task::spawn_local(stream);
    }
}

async fn serve(
    io: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static,
    dropped: Arc<AtomicUsize>,
) {
    let service = hyper::service::service_fn(move |request| {
        let dropped = dropped.clone();
        async move { Ok::<_, Infallible>(route(request, dropped).await) }
    });
    let builder = hyper::server::conn::http2::Builder::new(Local);
    let _ = builder.serve_connection(TokioIo::new(io), service).await;
}

/// A server over h2c, and how many of its handlers were dropped before their end.
fn server() -> (Server, Arc<AtomicUsize>) {
    let dropped = Arc::new(AtomicUsize::new(0));
    let counter = dropped.clone();
    (
        Server::start(move |stream, _| serve(stream, counter.clone())),
        dropped,
    )
}

/// A connection to the gateway as a channel of tonic.
struct Channel(SendRequest<Body>);

impl Service<http::Request<Body>> for Channel {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

type Client = tonic::client::Grpc<Channel>;

async fn client(address: SocketAddr) -> Client {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let origin = format!("http://{address}").parse().unwrap();
    let mut client = tonic::client::Grpc::with_origin(Channel(sender), origin);
    client.ready().await.unwrap();
    client
}

fn path(method: &str) -> PathAndQuery {
    format!("/test.Echo/{method}").parse().unwrap()
}

async fn ask(client: &mut Client, message: &str) -> Result<Response<String>, Status> {
    client.ready().await.unwrap();
    let request = Request::new(message.to_owned());
    client.unary(request, path("Unary"), Codec::default()).await
}

fn gateway(server: &Server) -> (Handle, SocketAddr) {
    start(h2c_config(server.address))
}

/// Messages and then the end of a stream.
async fn all(mut messages: Streaming<String>) -> (Vec<String>, Result<(), Status>) {
    let mut received = Vec::new();
    loop {
        match messages.message().await {
            Ok(Some(message)) => received.push(message),
            Ok(None) => return (received, Ok(())),
            Err(status) => return (received, Err(status)),
        }
    }
}

fn all_kinds(config: GatewayConfig) {
    let (gateway, address) = start(config);
    block_on(async {
        let mut client = client(address).await;
        let mut request = Request::new("hello".to_owned());
        *request.metadata_mut() = metadata("x-ask", "please");
        let answer = client
            .unary(request, path("Unary"), Codec::default())
            .await
            .unwrap();
        assert_eq!(answer.metadata().get("x-answer").unwrap(), "please");
        assert_eq!(answer.into_inner(), "hello");

        client.ready().await.unwrap();
        let messages = tokio_stream::iter(["a", "b", "c"].map(str::to_owned));
        let request = Request::new(messages);
        let answer = client
            .client_streaming(request, path("Collect"), Codec::default())
            .await
            .unwrap();
        assert_eq!(answer.into_inner(), "abc");

        client.ready().await.unwrap();
        let request = Request::new("1000".to_owned());
        let answer = client
            .server_streaming(request, path("Count"), Codec::default())
            .await
            .unwrap();
        let (received, end) = all(answer.into_inner()).await;
        assert!(end.is_ok());
        assert!(
            received
                .iter()
                .map(|text| text.parse::<u32>().unwrap())
                .eq(0..1000)
        );

        // Each message is sent once the one before it has come back: nothing waits for an end.
        client.ready().await.unwrap();
        let (sender, messages) = mpsc::channel(1);
        let messages = tokio_stream::wrappers::ReceiverStream::new(messages);
        sender.send("0".to_owned()).await.unwrap();
        let answer = client
            .streaming(Request::new(messages), path("Echo"), Codec::default())
            .await
            .unwrap();
        let mut echoes = answer.into_inner();
        for number in 0..50 {
            assert_eq!(echoes.message().await.unwrap().unwrap(), format!("{number}!"));
            sender.send((number + 1).to_string()).await.unwrap();
        }
        drop(sender);
        assert_eq!(echoes.message().await.unwrap().unwrap(), "50!");
        assert_eq!(echoes.message().await.unwrap(), None);
    });
    let period = take(&gateway);
    assert_eq!((period.service.completions, period.service.failures), (4, 0));
    assert_eq!(period.backends[0].counts.completions, 4);
}

#[test]
fn a_call_on_which_both_sides_are_silent_goes_on() {
    let (server, _) = server();
    let mut config = h2c_config(server.address);
    config.timeouts.client_grace_ms = 200;
    let (gateway, address) = start(config);
    block_on(async {
        let mut client = client(address).await;
        let (sender, messages) = mpsc::channel(1);
        let messages = tokio_stream::wrappers::ReceiverStream::new(messages);
        sender.send("first".to_owned()).await.unwrap();
        let answer = client
            .streaming(Request::new(messages), path("Echo"), Codec::default())
            .await
            .unwrap();
        let mut echoes = answer.into_inner();
        assert_eq!(echoes.message().await.unwrap().unwrap(), "first!");
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        sender.send("second".to_owned()).await.unwrap();
        assert_eq!(echoes.message().await.unwrap().unwrap(), "second!");
        drop(sender);
        assert_eq!(echoes.message().await.unwrap(), None);
    });
    assert_eq!(take(&gateway).service.completions, 1);
}

#[test]
fn all_four_kinds_of_calls_pass() {
    let (server, _) = server();
    all_kinds(h2c_config(server.address));
    assert_eq!(server.connections(), 1);
}

#[test]
fn all_four_kinds_of_calls_pass_over_tls() {
    let authority = Authority::new();
    let acceptor = TlsAcceptor::from(tls_server(&authority.sign("127.0.0.1"), &["h2"], None));
    let server = Server::start(move |stream, _| {
        let acceptor = acceptor.clone();
        async move {
            let stream = acceptor.accept(stream).await.unwrap();
            serve(stream, Arc::default()).await;
        }
    });
    all_kinds(tls_config(server.address, authority.trusted(), None));
}

#[test]
fn a_call_counts_by_its_status_and_not_by_that_of_http() {
    let (server, _) = server();
    let (gateway, address) = gateway(&server);
    block_on(async {
        let mut client = client(address).await;
        for code in 1..=16 {
            let status = ask(&mut client, &format!("status {code}")).await.unwrap_err();
            assert_eq!((status.code() as i32, status.message()), (code, "as asked"));
            assert_eq!(status.metadata().get("x-detail").unwrap(), "of the failure");
        }
        // The same behind messages.
        for code in [5, 14] {
            client.ready().await.unwrap();
            let request = Request::new(format!("3 status {code}"));
            let answer = client
                .server_streaming(request, path("Count"), Codec::default())
                .await
                .unwrap();
            let (received, end) = all(answer.into_inner()).await;
            let status = end.unwrap_err();
            assert_eq!(
                (received.len(), status.code() as i32, status.message()),
                (3, code, "in the end")
            );
        }
    });
    let period = take(&gateway);
    // 2, 4, 8, 13, 14 and 15, and once more 14.
    for counts in [&period.service, &period.backends[0].counts] {
        assert_eq!(
            (counts.arrivals, counts.failures, counts.completions),
            (18, 7, 11)
        );
    }
    assert_eq!(period.service.failed_by_service(), 7);
    assert_eq!(period.histogram.len(), 11);
}

#[test]
fn which_statuses_have_failed_is_configured() {
    let (server, _) = server();
    let mut config = h2c_config(server.address);
    config.failed_grpc_status = FailedGrpcStatus::try_from(vec!["NOT_FOUND".to_owned()]).unwrap();
    let (gateway, address) = start(config);
    block_on(async {
        let mut client = client(address).await;
        for code in [5, 14] {
            ask(&mut client, &format!("status {code}")).await.unwrap_err();
        }
    });
    let period = take(&gateway);
    assert_eq!((period.service.failures, period.service.completions), (1, 1));
}

#[test]
fn an_answer_without_a_status_has_failed() {
    let server = Server::start(|stream, _| {
        serve_h2(stream, h2::server::Builder::new(), |_, respond| async move {
            answer_h2(respond, Bytes::new());
        })
    });
    let (gateway, address) = gateway(&server);
    block_on(async {
        let mut client = client(address).await;
        assert!(ask(&mut client, "hello").await.is_err());
    });
    let period = take(&gateway);
    assert_eq!((period.service.failures, period.service.completions), (1, 0));
    assert_eq!(period.backends[0].counts.failures, 1);
}

#[test]
fn the_gateway_refuses_a_call_as_grpc_does() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = listener.local_addr().unwrap();
    drop(listener);
    let (gateway, address) = start(h2c_config(dead));
    block_on(async {
        let mut client = client(address).await;
        let status = ask(&mut client, "hello").await.unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (Code::Unavailable, "no backend can be reached")
        );
    });
    let period = take(&gateway);
    assert_eq!((period.service.unreachable, period.service.statuses[4]), (1, 1));
    let (server, _) = server();
    let mut config = h2c_config(server.address);
    config.limits.max_request_body_bytes = 100;
    config.timeouts.response_header_timeout_ms = 200;
    let (gateway, address) = start(config);
    block_on(async {
        let mut client = client(address).await;
        let status = ask(&mut client, &"long".repeat(100)).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        let status = ask(&mut client, "never").await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
    });
    // A backend had been asked for what turned out too long: it was demand.
    let service = take(&gateway).service;
    assert_eq!(
        (service.refused, service.aborted_by_client, service.timed_out),
        (0, 1, 1)
    );
}

async fn ask_within(
    client: &mut Client,
    message: &str,
    patience: Duration,
) -> Result<Response<String>, Status> {
    client.ready().await.unwrap();
    let mut request = Request::new(message.to_owned());
    // This client says so, and does not go away by itself.
    request.set_timeout(patience);
    client.unary(request, path("Unary"), Codec::default()).await
}

#[test]
fn a_call_ends_at_its_deadline_and_so_does_its_work() {
    let (server, dropped) = server();
    let (gateway, address) = gateway(&server);
    block_on(async {
        let mut client = client(address).await;
        let answer = ask_within(&mut client, "quick", Duration::from_secs(10))
            .await
            .unwrap();
        // The server is told the same.
        assert_eq!(answer.metadata().get("x-timeout").unwrap(), "10000000u");
        let begun = Instant::now();
        let status = ask_within(&mut client, "never", Duration::from_millis(300))
            .await
            .unwrap_err();
        assert!(begun.elapsed() >= Duration::from_millis(300));
        assert_eq!(
            (status.code(), status.message()),
            (Code::DeadlineExceeded, "the deadline of the call has passed")
        );
        // In the middle of its answer.
        client.ready().await.unwrap();
        let mut request = Request::new("3 never".to_owned());
        request.set_timeout(Duration::from_millis(300));
        let answer = client
            .server_streaming(request, path("Count"), Codec::default())
            .await
            .unwrap();
        let (received, end) = all(answer.into_inner()).await;
        assert_eq!(
            (received.len(), end.unwrap_err().code()),
            (3, Code::DeadlineExceeded)
        );
        // The connections serve on.
        assert_eq!(ask(&mut client, "hello").await.unwrap().into_inner(), "hello");
    });
    eventually("the server was told to stop", || {
        dropped.load(Ordering::SeqCst) == 2
    });
    assert_eq!(server.connections(), 1);
    let period = take(&gateway);
    for counts in [&period.service, &period.backends[0].counts] {
        assert_eq!(
            (counts.timed_out, counts.aborted_by_client, counts.completions),
            (2, 0, 2)
        );
    }
}

#[test]
fn a_client_that_leaves_at_its_deadline_was_failed_and_one_that_leaves_before_was_not() {
    let (server, dropped) = server();
    let (gateway, address) = gateway(&server);
    block_on(async {
        let mut client = client(address).await;
        // The gateway's clock begins a little after the client's.
        for stays in [1_900, 100] {
            let call = ask_within(&mut client, "never", Duration::from_secs(2));
            let _ = tokio::time::timeout(Duration::from_millis(stays), call).await;
        }
    });
    eventually("both were cancelled", || dropped.load(Ordering::SeqCst) == 2);
    let period = take(&gateway);
    for counts in [&period.service, &period.backends[0].counts] {
        assert_eq!((counts.timed_out, counts.aborted_by_client), (1, 1));
    }
}

#[test]
fn a_server_that_is_gone_in_the_middle_fails_its_calls() {
    let (server, _) = server();
    let (gateway, address) = gateway(&server);
    block_on(async {
        let mut client = client(address).await;
        let request = Request::new("1 never".to_owned());
        let answer = client
            .server_streaming(request, path("Count"), Codec::default())
            .await
            .unwrap();
        let mut messages = answer.into_inner();
        assert_eq!(messages.message().await.unwrap().unwrap(), "0");
        drop(server);
        assert!(messages.message().await.is_err());
        let status = ask(&mut client, "hello").await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
    });
    let period = take(&gateway);
    assert_eq!(
        (period.service.aborted_by_backend, period.service.unreachable),
        (1, 1)
    );
}
