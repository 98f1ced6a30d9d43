use super::ask::offers_in;
use super::offer::packets;
use super::*;
use headroom_gateway::{BackendConfig, Gateway, GatewayConfig, SharedListeners};
use rustix::net::{SocketAddrUnix, connect};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

/// Two addresses listened on by a number of threads, which are never started.
fn listening(threads: usize) -> (SharedListeners, Vec<SocketAddr>) {
    let bound = Gateway::bind(GatewayConfig {
        listen: vec![([127, 0, 0, 1], 0).into(); 2],
        backends: vec![BackendConfig::new("http://127.0.0.1:9")],
        threads,
        ..GatewayConfig::default()
    })
    .unwrap();
    (bound.share().unwrap(), bound.local_addrs().to_vec())
}

/// An offer of that at a path, and where it says who serves.
fn offered(path: &Path, listeners: SharedListeners) -> (Offering, Receiver<i32>) {
    let (sender, served) = channel();
    let offer = Offer::open(path).unwrap();
    let offering = offer.serve(listeners, move |pid| sender.send(pid).unwrap());
    (offering.unwrap(), served)
}

fn nobody_serves(served: &Receiver<i32>) {
    let soon = Duration::from_millis(100);
    assert_eq!(served.recv_timeout(soon), Err(RecvTimeoutError::Timeout));
}

fn accepts(sockets: &[TcpListener]) -> bool {
    sockets.iter().any(|socket| socket.accept().is_ok())
}

#[test]
fn the_successor_has_every_socket_of_the_addresses_it_asks_for_and_what_waits_in_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("one.sock");
    // More sockets than a message has.
    let (listeners, addresses) = listening(MAX_DESCRIPTORS + 3);
    let (offering, served) = offered(&path, listeners);
    let client = TcpStream::connect(addresses[1]).unwrap();
    let taken = take(&path, &[addresses[1], ([127, 0, 0, 1], 9).into()]).unwrap();
    assert_eq!(taken.sockets.len(), MAX_DESCRIPTORS + 3);
    assert_eq!(taken.predecessors(), [i32::try_from(std::process::id()).unwrap()]);
    nobody_serves(&served);
    assert!(path.exists());
    assert!(taken.serving());
    let pid = served.recv_timeout(PATIENCE).unwrap();
    assert_eq!(pid, i32::try_from(std::process::id()).unwrap());
    assert!(!path.exists(), "it offers no more");
    drop(offering);
    assert!(accepts(&taken.sockets), "what waited before is there");
    let later = TcpStream::connect(addresses[1]).unwrap();
    assert!(accepts(&taken.sockets));
    // Of what was not asked for nothing is left open.
    assert!(TcpStream::connect(addresses[0]).is_err());
    drop((client, later));
}

#[test]
fn a_successor_that_ends_before_it_serves_changes_nothing_and_the_next_gets_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("one.sock");
    let (listeners, addresses) = listening(2);
    let (_offering, served) = offered(&path, listeners);
    // More of them than are heard at once, all dead in the end.
    let dead: Vec<Taken> = (0..20).map(|_| take(&path, &addresses).unwrap()).collect();
    drop(dead);
    nobody_serves(&served);
    let _waiting = TcpStream::connect(addresses[0]).unwrap();
    let next = take(&path, &addresses).unwrap();
    assert_eq!(next.sockets.len(), 4);
    assert!(accepts(&next.sockets));
    assert!(next.serving());
    served.recv_timeout(PATIENCE).unwrap();
    assert!(!Taken::default().serving(), "there was nobody");
}

#[test]
fn what_makes_no_sense_is_refused_and_the_gateway_goes_on_offering() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("one.sock");
    let (listeners, addresses) = listening(1);
    let (_offering, served) = offered(&path, listeners);
    let say = |message: &Message| {
        let socket = packets().unwrap();
        connect(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        be_patient(socket.as_fd()).unwrap();
        send(socket.as_fd(), message, &[]).unwrap();
        receive(socket.as_fd())
    };
    let ask = |version, namespace| {
        say(&Message::Ask {
            version,
            namespace,
            listen: addresses.clone(),
        })
    };
    let refused = |answer: io::Result<Option<(Message, Vec<OwnedFd>)>>, why: &str| {
        let Ok(Some((Message::Refused { why: said }, descriptors))) = answer else {
            panic!("{answer:?}")
        };
        assert!(said.contains(why) && descriptors.is_empty(), "{said}");
    };
    refused(ask(VERSION + 1, namespace()), "by version 1, not 2");
    refused(ask(VERSION, Some("net:[1]".into())), "another network namespace");
    // Who did not ask cannot say that it serves.
    assert!(!matches!(say(&Message::Serving), Ok(Some(_))));
    nobody_serves(&served);
    assert_eq!(take(&path, &addresses).unwrap().sockets.len(), 2);
}

#[test]
fn a_folder_is_rid_of_what_the_dead_left_and_the_living_are_found_by_address() {
    let dir = tempfile::tempdir().unwrap();
    let offers = dir.path().join(OFFERS);
    std::fs::create_dir(&offers).unwrap();
    for name in ["dead.sock", "other"] {
        drop(std::os::unix::net::UnixListener::bind(offers.join(name)).unwrap());
    }
    let (first, of_first) = listening(1);
    let (second, of_second) = listening(2);
    let serve = |listeners| {
        Offer::open_in(dir.path())
            .unwrap()
            .serve(listeners, drop)
            .unwrap()
    };
    let living = [serve(first), serve(second)];
    assert_eq!(offers_in(&offers).len(), 2, "the dead one's is gone");
    assert!(offers.join("other").exists(), "and nothing else");
    let taken = take_in(dir.path(), &of_second);
    assert_eq!((taken.sockets.len(), taken.predecessors().len()), (4, 1));
    assert_eq!(
        take_in(dir.path(), &[of_first[0], of_second[0]])
            .predecessors()
            .len(),
        2
    );
    let nobody: SocketAddr = ([127, 0, 0, 1], 9).into();
    assert!(take_in(dir.path(), &[nobody]).predecessors().is_empty());
    drop(living);
    assert!(offers_in(&offers).is_empty());
    let error = take(&offers.join("dead.sock"), &[nobody]).unwrap_err();
    assert!(
        format!("{error:#}").contains("gives no listening sockets"),
        "{error:#}"
    );
}

#[test]
fn what_is_no_listening_socket_of_the_address_is_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("liar.sock");
    let address: SocketAddr = ([127, 0, 0, 1], 9).into();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    for (descriptor, wrong) in [
        (listener.as_fd(), "a socket of 127.0.0.1:"),
        (stream.as_fd(), "something else"),
        (file.as_fd(), "gives no listening sockets"),
    ] {
        let socket = packets().unwrap();
        let _ = std::fs::remove_file(&path);
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&socket, 1).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let peer = rustix::net::accept(&socket).unwrap();
                receive(peer.as_fd()).unwrap();
                send(peer.as_fd(), &Message::Sockets { address }, &[descriptor]).unwrap();
                // Who is lied to may have gone.
                let _ = send(peer.as_fd(), &Message::All, &[]);
            });
            let error = take(&path, &[address]).unwrap_err();
            assert!(format!("{error:#}").contains(wrong), "{error:#}");
        });
    }
}
