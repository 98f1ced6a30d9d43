//! End to end over loopback.

use super::*;
use crate::server::client::{Answer, Client};
use headroom_workload::auction::{Behaviour, Mix, Page, Place, Visitor};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn small() -> AuctionConfig {
    AuctionConfig {
        workers: 4,
        site: SiteConfig {
            items: 120,
            users: 40,
            mean_bytes: 6_000,
            ..SiteConfig::default()
        },
        ..AuctionConfig::default()
    }
}

fn number_after(text: &str, before: &str) -> i64 {
    let (_, rest) = text.split_once(before).expect(before);
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

fn version(answer: &Answer) -> i64 {
    number_after(&answer.body, "auction-version\" content=\"")
}

fn bids(answer: &Answer) -> i64 {
    number_after(&answer.body, "<p>Bids: ")
}

/// What visitors of every mix ask for is answered, is what was asked for, and is as long as the site says.
fn check_visits(config: AuctionConfig) {
    let site = Site::new(config.site.clone()).unwrap();
    let max_age = config.max_age.get();
    let auction = serve(config).unwrap();
    let mut client = Client::connect(auction.address());
    let mut written = 0;
    for (number, mix) in Mix::ALL.into_iter().enumerate() {
        let mut visitor = Visitor::new(7, number as u64, Behaviour::of(mix));
        for _ in 0..250 {
            let visit = visitor.next(&site).1;
            let answer = match visit.is_write() {
                true => client.post(&visit.target, &visit.form),
                false => client.get(&visit.target),
            };
            let expected = if visit.is_write() { 201 } else { 200 };
            assert_eq!(answer.status, expected, "{}: {}", visit.target, answer.body);
            assert_eq!(answer.body.len(), visit.bytes as usize, "{}", visit.target);
            assert!(answer.body.contains(&visit.place.marker()), "{}", visit.target);
            let control = if visit.page().is_personal() {
                "no-store".to_owned()
            } else {
                format!("public, max-age={max_age}")
            };
            assert_eq!(answer.header("cache-control"), Some(control.as_str()));
            if visit.is_write() {
                written += 1;
                // What was written is there to be read.
                let location = answer.header("location").unwrap().to_owned();
                if let Some(place) = visit.place.changes() {
                    assert_eq!(location, place.target());
                }
                assert!(client.get(&location).body.contains("auction-version"));
            }
        }
    }
    assert!(written > 40, "{written}");
    let stats = auction.shutdown().unwrap();
    assert_eq!(stats.pages_served, 750 + written);
    assert_eq!((stats.database_errors, stats.rejected), (0, 0));
    let by_page: u64 = stats.pages.iter().map(|page| page.served).sum();
    assert_eq!(by_page, stats.pages_served);
}

/// Bids that are made at the same time are all there, each above the one before.
fn check_bids(config: AuctionConfig) {
    let auction = serve(config).unwrap();
    let before = Client::connect(auction.address()).get("/item/5");
    let address = auction.address();
    let bidders: Vec<_> = (0..6)
        .map(|user| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                for _ in 0..15 {
                    let answer = client.post("/item/5/bids", &format!("user={user}&raise_cents=10"));
                    assert_eq!(
                        (answer.status, answer.header("location")),
                        (201, Some("/item/5")),
                        "{}",
                        answer.body
                    );
                }
            })
        })
        .collect();
    bidders.into_iter().for_each(|bidder| bidder.join().unwrap());
    let mut client = Client::connect(auction.address());
    let after = client.get("/item/5");
    assert_eq!(
        (bids(&after), version(&after)),
        (bids(&before) + 90, version(&before) + 90)
    );
    let price = |answer: &Answer| {
        number_after(&answer.body, "<p>Price: ") * 100
            + number_after(answer.body.split_once("<p>Price: ").unwrap().1, ".")
    };
    assert_eq!(price(&after), price(&before) + 900);
    let history = client.get("/item/5/bids").body;
    assert!(
        history.contains(">user0</a>") || history.contains(">user5</a>"),
        "{history}"
    );
    auction.shutdown().unwrap();
}

#[test]
fn visitors_are_served_what_they_ask_for() {
    check_visits(small());
}

#[test]
fn bids_made_at_the_same_time_are_all_there() {
    check_bids(small());
    let folder = tempfile::tempdir().unwrap();
    check_bids(AuctionConfig {
        database: Database::File(folder.path().join("auction.sqlite")),
        ..small()
    });
}

#[test]
fn a_file_is_continued_with_and_another_site_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let config = AuctionConfig {
        database: Database::File(folder.path().join("auction.sqlite")),
        ..small()
    };
    let first = serve(config.clone()).unwrap();
    assert!(first.start().populated);
    let mut client = Client::connect(first.address());
    client.post("/item/3/purchases", "user=1&quantity=2");
    let sold = client.get("/item/3");
    assert!(sold.body.contains("<p>Sold: 2</p>"), "{}", sold.body);
    drop(client);
    first.shutdown().unwrap();
    let second = serve(config.clone()).unwrap();
    assert!(!second.start().populated);
    assert_eq!(Client::connect(second.address()).get("/item/3").body, sold.body);
    second.shutdown().unwrap();
    let mut other = config;
    other.site.seed = 9;
    let error = serve(other).unwrap_err().to_string();
    assert!(
        error.contains("holds another site") && error.contains("seed 9"),
        "{error}"
    );
}

#[test]
fn a_page_that_is_held_is_not_sent_again() {
    let auction = serve(small()).unwrap();
    let mut client = Client::connect(auction.address());
    let page = client.get("/item/9");
    let tag = page.header("etag").unwrap().to_owned();
    let ask = format!("/item/9 HTTP/1.1\r\nif-none-match: {tag}\r\nx:");
    client.send("GET", &ask);
    let held = client.receive(false);
    assert_eq!((held.status, held.header("etag")), (304, Some(tag.as_str())));
    assert_eq!(held.header("cache-control"), Some("public, max-age=30"));
    client.post("/item/9/bids", "user=1&raise_cents=10");
    client.send("GET", &ask);
    let changed = client.receive(true);
    assert_eq!(changed.status, 200);
    assert_ne!(changed.header("etag"), Some(tag.as_str()));
    auction.shutdown().unwrap();
}

#[test]
fn what_is_not_there_or_not_allowed_is_refused() {
    let auction = serve(small()).unwrap();
    let mut client = Client::connect(auction.address());
    for (path, status) in [
        ("/item/120", 404),
        ("/user/40", 404),
        ("/search?category=20&page=0", 404),
        ("/nothing", 404),
        ("/users", 405),
        ("/item/1/purchases", 405),
        ("/healthz", 200),
        ("/stats", 200),
    ] {
        assert_eq!(client.get(path).status, status, "{path}");
    }
    for (path, form, status) in [
        ("/item/1", "user=1", 405),
        ("/nothing", "user=1", 404),
        ("/item/1/bids", "user=1", 422),
        ("/item/1/bids", "user=40&raise_cents=10", 422),
        ("/item/120/bids", "user=1&raise_cents=10", 404),
        ("/items", "user=1&category=20&price_cents=5", 422),
        ("/users", "region=62", 422),
        ("/item/1/bids", "user=me", 400),
        ("/item/1/bids", "user=1&raise_cents=0", 400),
        ("/item/1/purchases", "user=1&quantity=0", 400),
        ("/items", "user=1&category=2&price_cents=0", 400),
    ] {
        let answer = client.post(path, form);
        assert_eq!(answer.status, status, "{path} {form}: {}", answer.body);
    }
    // Nothing of a bid that was refused is left.
    let item = client.get("/item/1");
    assert_eq!(version(&item), 1);
    let long = "x".repeat(20_000);
    assert_eq!(client.post("/users", &long).status, 413);
    auction.shutdown().unwrap();
}

#[test]
fn a_cost_that_is_asked_for_is_paid_by_rendering() {
    let cpu = |page_cpu| {
        let auction = serve(AuctionConfig { page_cpu, ..small() }).unwrap();
        let mut client = Client::connect(auction.address());
        for item in 0..40 {
            client.get(&format!("/item/{item}"));
        }
        let renderings = auction.start().renderings;
        let stats = auction.shutdown().unwrap();
        (renderings, stats.worker_cpu_s.get() / 40.0)
    };
    let (once, cheap) = cpu(None);
    let (often, dear) = cpu(Some(Seconds::from_millis(4.0)));
    assert_eq!(once, 1);
    assert!(often > 4, "{often}");
    assert!((0.001..0.02).contains(&dear), "{dear} s for 4 ms");
    assert!(dear > 2.0 * cheap, "{dear} {cheap}");
}

#[test]
fn settings_out_of_range_are_named() {
    type Spoil = fn(&mut AuctionConfig);
    let spoilt: [(&str, Spoil); 6] = [
        ("workers = 0", |it| it.workers = 0),
        ("queue = 0", |it| it.queue = 0),
        ("max_connections = 0", |it| it.max_connections = 0),
        ("max_age = 1.5", |it| it.max_age = Seconds::new(1.5)),
        ("CPU time of a page = 2000 ms", |it| {
            it.page_cpu = Some(Seconds::new(2.0));
        }),
        ("items = 0", |it| it.site.items = 0),
    ];
    for (words, spoil) in spoilt {
        let mut config = small();
        spoil(&mut config);
        let error = serve(config).unwrap_err().to_string();
        assert!(error.starts_with(words), "{error}");
    }
    for name in [
        "sqlite",
        "sqlite:a/b.sqlite",
        "mysql://root@127.0.0.1:3307/auction",
    ] {
        assert_eq!(name.parse::<Database>().unwrap().to_string(), name);
    }
    assert!(
        "sqlite:"
            .parse::<Database>()
            .unwrap_err()
            .to_string()
            .contains("no file")
    );
    let error = serve(AuctionConfig {
        database: "mysql://root@127.0.0.1:1/auction".parse().unwrap(),
        ..small()
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("check that the server runs"), "{error}");
    assert_eq!(Place::of(Page::Home).target(), "/");
}

/// A MariaDB server of its own, in a folder that goes with it.
struct Server {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Server {
    /// Starts it; none where it is not installed.
    fn start() -> Option<Self> {
        let installed = |program: &str| Command::new(program).arg("--version").output().is_ok();
        let find = |name: &str| {
            let places = [
                name.to_owned(),
                format!("/usr/sbin/{name}"),
                format!("/usr/bin/{name}"),
            ];
            places.into_iter().find(|program| installed(program))
        };
        let (server, install) = (find("mariadbd")?, find("mariadb-install-db")?);
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let user = Command::new("id").arg("-un").output().unwrap().stdout;
        let user = String::from_utf8(user).unwrap();
        let made = Command::new(install)
            .args([
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ])
            .arg(format!("--datadir={}", path("data")))
            .arg(format!("--tmpdir={}", path("")))
            .arg(format!("--user={}", user.trim()))
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        std::fs::write(
            path("init.sql"),
            "CREATE DATABASE auction;\n\
             CREATE USER bidder@'127.0.0.1' IDENTIFIED BY 'se cret';\n\
             GRANT ALL ON auction.* TO bidder@'127.0.0.1';\n",
        )
        .unwrap();
        let child = Command::new(server)
            .args(["--no-defaults", "--skip-name-resolve", "--bind-address=127.0.0.1"])
            .arg(format!("--datadir={}", path("data")))
            // One that starts removes the temporary tables of all others that have theirs in the same folder.
            .arg(format!("--tmpdir={}", path("")))
            .arg(format!("--socket={}", path("socket")))
            .arg(format!("--pid-file={}", path("pid")))
            .arg(format!("--port={port}"))
            .arg(format!("--init-file={}", path("init.sql")))
            .arg(format!("--user={}", user.trim()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self {
            child,
            port,
            _folder: folder,
        };
        let start = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "mariadbd does not listen"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(server)
    }

    fn database(&self, user: &str) -> Database {
        format!("mysql://{user}@127.0.0.1:{}/auction", self.port)
            .parse()
            .unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn mariadb_serves_the_same_site() {
    let Some(server) = Server::start() else {
        eprintln!("skipped: mariadbd or mariadb-install-db is not installed");
        return;
    };
    let config = AuctionConfig {
        database: server.database("bidder:se cret"),
        ..small()
    };
    let wrong = serve(AuctionConfig {
        database: server.database("bidder:wrong"),
        ..small()
    });
    let error = wrong.unwrap_err().to_string();
    assert!(
        error.contains("Access denied") && !error.contains("wrong"),
        "{error}"
    );
    // Both databases show the same first site, to the byte.
    let (one, other) = (serve(config.clone()).unwrap(), serve(small()).unwrap());
    let mut clients = [Client::connect(one.address()), Client::connect(other.address())];
    for path in [
        "/item/4",
        "/item/4/bids",
        "/user/3",
        "/search?category=2&page=0",
        "/about-me?user=3",
    ] {
        let [left, right] = clients.each_mut().map(|client| client.get(path));
        assert_eq!((left.status, left.body), (200, right.body), "{path}");
    }
    drop(clients);
    one.shutdown().unwrap();
    other.shutdown().unwrap();
    check_bids(config.clone());
    check_visits(config);
}

#[test]
fn without_its_database_pages_are_answered_503() {
    let Some(mut server) = Server::start() else {
        eprintln!("skipped: mariadbd or mariadb-install-db is not installed");
        return;
    };
    let auction = serve(AuctionConfig {
        database: server.database("bidder:se cret"),
        workers: 1,
        ..small()
    })
    .unwrap();
    let mut client = Client::connect(auction.address());
    assert_eq!(client.get("/item/1").status, 200);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let gone = client.get("/item/1");
    assert_eq!((gone.status, gone.header("retry-after")), (503, Some("1")));
    assert!(auction.stats().database_errors > 0);
    assert_eq!(client.get("/healthz").status, 200);
    auction.shutdown().unwrap();
}
