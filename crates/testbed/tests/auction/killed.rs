//! Kill -9 of the service while it is visited: what it answered as stored is there when it is started again.

use super::{ask, bids, completed, figures, gateway, number_after, visitors};
use headroom_load::http::LoadHandle;
use headroom_testbed::auction::{AuctionConfig, Database, serve};
use headroom_workload::auction::Mix;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const FILE: &str = "HEADROOM_TEST_AUCTION_FILE";
const LISTEN: &str = "HEADROOM_TEST_AUCTION_LISTEN";
const READY: &str = "the auction is open";

/// Not a test of its own: the process that the test kills.
#[test]
#[ignore = "started by the test beside it"]
fn auction_process() {
    let (Ok(file), Ok(listen)) = (std::env::var(FILE), std::env::var(LISTEN)) else {
        return;
    };
    let auction = serve(AuctionConfig {
        listen: listen.parse().unwrap(),
        database: Database::File(file.into()),
        site: figures(),
        ..AuctionConfig::default()
    })
    .unwrap();
    println!("{READY}");
    // Until it is killed, or its parent failed to.
    std::thread::sleep(Duration::from_secs(120));
    auction.shutdown().unwrap();
}

struct Service(Child);

impl Service {
    fn start(file: &Path, listen: SocketAddr) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::auction_process", "--ignored", "--nocapture"])
            .env(FILE, file)
            .env(LISTEN, listen.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let is_open = lines.map_while(Result::ok).any(|line| line.contains(READY));
        assert!(is_open, "the service did not start: {:?}", child.wait());
        Self(child)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until so many pages were answered that there are bids among them.
fn answered_many(load: &mut LoadHandle, otherwise: &str) {
    let until = Instant::now() + Duration::from_secs(60);
    let mut completed = 0;
    while completed < 500 {
        assert!(Instant::now() < until, "{otherwise}");
        std::thread::sleep(Duration::from_millis(100));
        completed += load.take_period().unwrap().counts.completed;
    }
}

#[test]
fn bids_that_were_answered_survive_the_service_and_no_wrong_page_comes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("auction.sqlite");
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = free.local_addr().unwrap();
    drop(free);
    let mut service = Service::start(&file, listen);
    let (gateway, address) = gateway(listen);
    let first = bids(&ask(listen, "GET", "/item/5", ""));

    let mut load = visitors(address, Mix::Bidding, "15", 300.0);
    answered_many(&mut load, "nothing is answered");
    // Bids of our own, beside the visitors', of which we know how many were answered.
    for made in 0..10 {
        let stored = ask(listen, "POST", "/item/5/bids", "user=1&raise_cents=10");
        assert!(stored.starts_with("HTTP/1.1 201"), "{made}: {stored}");
    }
    let answered = number_after(&ask(listen, "GET", "/item/5", ""), "auction-version\" content=\"");
    service.kill();
    // Some failures are waited for, so that the load is known to have met the death.
    let until = Instant::now() + Duration::from_secs(30);
    while load.take_period().unwrap().counts.failed.total() == 0 {
        assert!(Instant::now() < until, "nobody noticed the death");
        std::thread::sleep(Duration::from_millis(100));
    }
    let _again = Service::start(&file, listen);
    let item = ask(listen, "GET", "/item/5", "");
    assert!(bids(&item) >= first + 10, "{first} {item}");
    assert!(number_after(&item, "auction-version\" content=\"") >= answered);
    // And the visitors are served again.
    answered_many(&mut load, "nothing is answered again");
    load.stop();
    let result = load.join().unwrap();
    let failed = result.counts.failed;
    assert_eq!(failed.wrong, 0, "{failed:?}");
    assert!(
        failed.total() > 0 && completed(&result, "store-bid") > 0,
        "{failed:?}"
    );
    drop(gateway);
}
