//! Users and replays, end to end.

use super::*;
use headroom_workload::Distribution;
use headroom_workload::access_log::{AccessLog, Replay};
use headroom_workload::users::{FileSet, FileSetConfig, Model, Site, UserCurve};

/// Connections and requests that were taken, and the requests' first lines.
#[derive(Default)]
struct Taken {
    connections: AtomicUsize,
    requests: AtomicUsize,
    lines: Mutex<Vec<String>>,
}

impl Taken {
    fn counts(&self) -> (u64, u64) {
        let count = |number: &AtomicUsize| number.load(Ordering::Relaxed) as u64;
        (count(&self.connections), count(&self.requests))
    }
}

/// A server that notes what it is asked for, and answers `/broken` with 500.
fn noting_server() -> (String, Arc<Taken>) {
    let taken = Arc::new(Taken::default());
    let noted = Arc::clone(&taken);
    let address = raw_server(move |_, mut stream| {
        noted.connections.fetch_add(1, Ordering::Relaxed);
        while let Some(head) = head_of(&mut stream) {
            noted.requests.fetch_add(1, Ordering::Relaxed);
            let line = head.lines().next().unwrap_or_default().to_owned();
            let status = if line.contains("/broken") {
                "500 No"
            } else {
                "200 OK"
            };
            let close = head.to_lowercase().contains("connection: close");
            let body = if line.starts_with("HEAD") { "" } else { "ok" };
            noted.lines.lock().unwrap().push(line);
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{body}");
            if stream.write_all(answer.as_bytes()).is_err() || close {
                return;
            }
        }
    });
    (format!("http://{address}/"), taken)
}

/// SURGE's users, with all times divided by 20, so that a second shows some.
fn hasty() -> Model {
    Model {
        active_off_s: Distribution::weibull(0.382 / 20.0, 1.46).at_most(30.0 / 20.0),
        inactive_off_s: Distribution::pareto(1.0 / 20.0, 1.5).at_most(1000.0 / 20.0),
        ..Model::default()
    }
}

fn users(curve: &str, duration: f64, model: Model, site: Site) -> Pacing {
    Pacing::users(UserLoad {
        curve: UserCurve::parse(curve).unwrap(),
        duration: Seconds::new(duration),
        people: People::Surge { model, site },
    })
}

#[test]
fn users_fetch_pages_each_on_a_connection_of_its_own() {
    let (url, taken) = noting_server();
    let pacing = users("20", 1.5, hasty(), Site::Unknown);
    let result = run(LoadConfig::new(url, pacing));
    let tally = result.counts;
    assert!(tally.pages_completed > 50, "{tally:?}");
    assert_eq!((tally.failed.total(), tally.pages_failed), (0, 0));
    // At the end each user may be in the middle of a page.
    assert!(tally.pages_begun - tally.pages_completed <= 20, "{tally:?}");
    assert_eq!(tally.connections, tally.pages_begun);
    let per_page = tally.completed as f64 / tally.pages_begun as f64;
    assert!((1.2..2.6).contains(&per_page), "{per_page}");
    assert_eq!(taken.counts(), (tally.connections, tally.completed));
    assert_eq!(result.whole.connect.len(), tally.connections);
    assert!(
        (result.users_mean / 20.0 - 1.0).abs() < 0.1,
        "{}",
        result.users_mean
    );

    let (url, taken) = noting_server();
    let mut config = LoadConfig::new(url, users("20", 1.0, hasty(), Site::Unknown));
    config.keep_alive = false;
    let tally = run(config).counts;
    assert_eq!(
        (tally.connections, tally.failed.total()),
        (tally.completed, 0),
        "{tally:?}"
    );
    assert!(tally.completed > tally.pages_begun, "{tally:?}");
    assert_eq!(taken.counts(), (tally.completed, tally.completed));
}

#[test]
fn users_browse_a_file_set_and_fetch_what_it_embeds() {
    let (url, taken) = noting_server();
    let files = Arc::new(
        FileSet::generate(&FileSetConfig {
            files: 50,
            ..FileSetConfig::default()
        })
        .unwrap(),
    );
    let site = Site::of(Arc::clone(&files), 1);
    let result = run(LoadConfig::new(
        format!("{url}site/"),
        users("1", 2.0, hasty(), site),
    ));
    assert!(result.counts.pages_completed > 5);
    // One user: the server sees page after page, whole.
    let names: Vec<String> = (0..files.len())
        .map(|file| format!("GET /site/{} HTTP/1.1", files.name(file)))
        .collect();
    let lines = taken.lines.lock().unwrap();
    let seen: Vec<usize> = lines
        .iter()
        .map(|line| names.iter().position(|name| name == line).unwrap())
        .collect();
    let mut left = &seen[..];
    while let Some((document, after)) = left.split_first() {
        assert!(*document < files.popularity().len());
        let embedded = files.embedded(*document);
        let compared = embedded.len().min(after.len());
        assert_eq!(after[..compared], embedded[..compared]);
        left = &after[compared..];
    }
}

#[test]
fn at_the_end_users_let_go_of_their_connections() {
    // A server with one worker, which keeps a connection until its user closes it.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            while head_of(&mut stream).is_some() {
                if stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                    .is_err()
                {
                    break;
                }
            }
        }
    });
    // Every page embeds something, and waits far longer for it than the load lasts.
    let mut model = hasty();
    model.embedding_share = 1.0;
    model.active_off_s = Distribution::pareto(50.0, 2.0).at_most(100.0);
    let url = format!("http://{address}/");
    let result = run(LoadConfig::new(url, users("5", 0.5, model, Site::Unknown)));
    // The first user held the worker to the end; then the others were answered, one after the other.
    assert_eq!((result.counts.offered, result.counts.completed), (5, 5));
    assert!(result.duration_s.get() < 5.0, "{}", result.duration_s.get());
}

#[test]
fn the_number_of_users_follows_its_curve() {
    let (url, _) = noting_server();
    let curve = "steps:10/2s,40/2s,0/1s,5/2s";
    let pacing = users(curve, 7.0, Model::default(), Site::Unknown);
    let mut load = start(LoadConfig::new(url, pacing)).unwrap();
    let began = std::time::Instant::now();
    let mut present = Vec::new();
    for at in [1.2, 3.2, 4.6, 6.2] {
        std::thread::sleep(Duration::from_secs_f64(at).saturating_sub(began.elapsed()));
        present.push(load.take_period().unwrap().users);
    }
    let result = load.join().unwrap();
    // Between two pages a user leaves at once, in the middle of one it stays: few do, with these times.
    assert_eq!((present[0], present[1]), (10, 40), "{present:?}");
    assert!(present[2] <= 15 && (5..=15).contains(&present[3]), "{present:?}");
    // 10 and 40 users for 2 s, then 5 for 2 s, of 7 s, and stragglers.
    assert!((13.0..22.0).contains(&result.users_mean), "{}", result.users_mean);
}

#[test]
fn a_page_without_its_document_is_left_and_refused_users_do_not_storm() {
    let (url, taken) = noting_server();
    let broken = LoadConfig::new(format!("{url}broken"), users("20", 1.0, hasty(), Site::Unknown));
    let tally = run(broken).counts;
    assert!(tally.pages_failed > 20 && tally.pages_completed == 0, "{tally:?}");
    assert_eq!(
        (tally.failed.status, tally.pages_failed),
        (tally.offered, tally.offered)
    );
    assert_eq!(taken.counts().1, tally.offered);

    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let pacing = users("20", 0.5, hasty(), Site::Unknown);
    let result = run(LoadConfig::new(format!("http://{free}/"), pacing));
    let tally = result.counts;
    let why = result.connect_error.unwrap();
    assert!(why.contains("refused"), "{why}");
    // Each waits 50 ms at least before it tries again, and a part of that before the first time.
    assert!((1..=220).contains(&tally.failed.connect), "{tally:?}");
    assert_eq!(tally.failed.connect, tally.pages_failed);
}

#[test]
fn more_users_than_connections_are_refused() {
    let (url, _) = noting_server();
    let mut config = LoadConfig::new(&url, users("50", 1.0, hasty(), Site::Unknown));
    config.max_connections = 40;
    let message = start(config).err().unwrap().to_string();
    assert!(
        message.contains("users = 50") && message.contains("each user may hold a connection"),
        "{message}"
    );
}

#[test]
fn a_log_is_replayed_at_its_times_with_its_methods() {
    let (url, taken) = noting_server();
    let lines: String = [(0, "GET /a"), (0, "HEAD /b"), (1, "POST /c"), (3, "GET /d?e=f")]
        .map(|(second, request)| {
            format!("h - - [28/Aug/1995:00:00:0{second} -0400] \"{request} HTTP/1.0\" 200 -\n")
        })
        .concat();
    let log = AccessLog::read("t", lines.as_bytes()).unwrap();
    let replay = Replay::new(log, 4.0, Spacing::Even, 1).unwrap();
    let result = run(LoadConfig::new(url, Pacing::Replay(Box::new(replay))));
    assert_eq!((result.counts.completed, taken.counts().1), (3, 3));
    assert_eq!(
        *taken.lines.lock().unwrap(),
        ["GET /a HTTP/1.1", "HEAD /b HTTP/1.1", "GET /d?e=f HTTP/1.1"]
    );
    // The log's four seconds, four times as fast.
    assert!(result.duration_s.get() >= 0.99, "{}", result.duration_s.get());
}

/// An auction that answers every page with its marker; the page of one item with another's, and bids with 500.
fn auction_server() -> (String, Arc<Mutex<Vec<String>>>) {
    use headroom_workload::auction::{Page, Place};
    let lines = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&lines);
    let address = raw_server(move |_, mut stream| {
        while let Some(head) = head_of(&mut stream) {
            let line = head.lines().next().unwrap_or_default().to_owned();
            let (method, rest) = line.split_once(' ').unwrap();
            let target = rest.split(' ').next().unwrap();
            let place = Place::parse(method == "POST", target).unwrap();
            if method == "POST" {
                let lower = head.to_lowercase();
                let (_, length) = lower.split_once("content-length: ").unwrap();
                let length = length.lines().next().unwrap().parse().unwrap();
                let mut form = vec![0; length];
                Read::read_exact(&mut stream, &mut form).unwrap();
                noted.lock().unwrap().push(String::from_utf8(form).unwrap());
            }
            let shown = match place.page {
                Page::ViewUser => Place {
                    subject: place.subject + 1,
                    ..place
                },
                _ => place,
            };
            let status = if place.page == Page::StoreBid {
                "500 No"
            } else {
                "200 OK"
            };
            let body = format!("<html>{}</html>", shown.marker());
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    (format!("http://{address}/"), lines)
}

#[test]
fn an_auction_s_visitors_check_that_they_are_answered_what_they_asked_for() {
    use headroom_workload::auction::{self, Behaviour, Mix, SiteConfig};
    let (url, forms) = auction_server();
    let pacing = Pacing::users(UserLoad {
        curve: UserCurve::parse("10").unwrap(),
        duration: Seconds::new(1.5),
        people: People::Auction {
            behaviour: Behaviour::thinking(Mix::Bidding, Seconds::from_millis(5.0)),
            site: Box::new(auction::Site::new(SiteConfig::default()).unwrap()),
        },
    });
    let result = run(LoadConfig::new(url, pacing));
    let counts = result.counts;
    assert!(counts.completed > 100, "{counts:?}");
    let kind = |name: &str| {
        let found = result.by_kind.iter().find(|kind| kind.page == name);
        found.map_or((0, 0), |kind| (kind.completed, kind.failed))
    };
    // Those of the pages that were answered with another, and those that the server failed at.
    assert_eq!((kind("view-user").0, kind("store-bid").0), (0, 0));
    assert!(counts.failed.wrong > 0 && counts.failed.wrong == kind("view-user").1);
    assert!(counts.failed.status > 0 && counts.failed.status == kind("store-bid").1);
    assert!(kind("view-item").0 > 20 && kind("view-item").1 == 0);
    let (completed, failed) = result
        .by_kind
        .iter()
        .fold((0, 0), |sum, kind| (sum.0 + kind.completed, sum.1 + kind.failed));
    assert_eq!((completed, failed), (counts.completed, counts.failed.total()));
    assert_eq!(counts.pages_completed + counts.pages_failed, counts.pages_begun);
    let forms = forms.lock().unwrap();
    assert!(
        forms.iter().any(|form| form.contains("raise_cents=")),
        "{forms:?}"
    );
}
