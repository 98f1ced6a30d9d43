//! What an agent lets each peer do: leases that belong to their peer, the least that is accepted, who watches queues, and
//! what the audit file tells of it. Over mutual TLS, with real certificates.

use crate::agent_common::{Served, ask, refusal, setting};
use headroom_node::agent::{AuditFile, Least, QueueLimits, Watching};
use headroom_units::{Lever, Setting};
use headroom_wire::Refusal;
use headroom_wire::certs::{Authority, Validity};
use headroom_wire::client::{Client, ClientOptions};
use headroom_wire::message::{QueueMethod, WatchQueue};
use headroom_wire::server::Listen;
use headroom_wire::tls::{ClientTls, ServerTls, TlsFiles};
use serde_json::Value;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);

struct Certs {
    dir: tempfile::TempDir,
}

impl Certs {
    /// Three controllers, a reader, and the node n1.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (authority, _) = Authority::create(dir.path(), Validity::days(30).unwrap()).unwrap();
        let week = Validity::days(7).unwrap();
        authority.issue_node("n1", &["127.0.0.1".into()], week).unwrap();
        authority.issue_controller_named("a", week).unwrap();
        authority.issue_controller_named("b", week).unwrap();
        authority.issue_controller_named("flood", week).unwrap();
        authority.issue_reader("grafana", week).unwrap();
        Self { dir }
    }

    fn files(&self, stem: &str) -> TlsFiles {
        let file = |name: &str| self.dir.path().join(name);
        TlsFiles {
            ca: file("ca.crt"),
            certificate: file(&format!("{stem}.crt")),
            key: file(&format!("{stem}.key")),
            revoked: None,
        }
    }

    fn listen(&self) -> Listen {
        Listen::Tcp {
            address: "127.0.0.1:0".parse().unwrap(),
            tls: ServerTls::load(&self.files("node-n1")).unwrap(),
        }
    }

    async fn connect(&self, served: &Served, stem: &str) -> Client {
        let options = ClientOptions {
            tls: Some(ClientTls::load(&self.files(stem)).unwrap()),
            ..ClientOptions::default()
        };
        Client::connect(&served.handle().addresses()[0], &options)
            .await
            .unwrap()
    }
}

fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test]
async fn a_lease_is_not_taken_over_by_another_peer_that_knows_its_number() {
    let certs = Certs::new();
    let dir = tempfile::tempdir().unwrap();
    let audit = dir.path().join("audit");
    let mut served = Served::start(|config| {
        config.listen = vec![certs.listen()];
        config.audit = Some(AuditFile::at(&audit));
    });
    let a = certs.connect(&served, "controller-a").await;
    let b = certs.connect(&served, "controller-b").await;
    let reader = certs.connect(&served, "reader-grafana").await;
    a.apply(ask(7, 1, LEASE, setting(2.0, 60.0))).await.unwrap();
    // The same holder, the same number, a larger sequence.
    let refused = refusal(b.apply(ask(7, 2, LEASE, setting(0.1, 40.0))).await);
    assert!(matches!(refused, Refusal::HeldByAnother { .. }), "{refused}");
    let refused = refusal(b.release(&crate::agent_common::holder(7)).await);
    assert!(matches!(refused, Refusal::HeldByAnother { .. }), "{refused}");
    let refused = refusal(reader.apply(ask(7, 2, LEASE, setting(0.1, 40.0))).await);
    assert!(matches!(refused, Refusal::Forbidden { .. }), "{refused}");
    let refused = refusal(a.apply(ask(7, 1, LEASE, setting(1.0, 60.0))).await);
    assert_eq!(refused, Refusal::Conflict { sequence: 1 });
    assert_eq!(served.fake.in_force(), setting(2.0, 60.0));
    // Renewals change nothing and are no lines of their own.
    for sequence in 1..20 {
        a.apply(ask(7, sequence, LEASE, setting(2.0, 60.0)))
            .await
            .unwrap();
    }
    a.release(&crate::agent_common::holder(7)).await.unwrap();
    served.stop().await.unwrap();

    let lines = lines(&audit);
    let told: Vec<_> = lines
        .iter()
        .map(|line| {
            let outcome = line["outcome"].as_str().unwrap().split(' ').next().unwrap();
            let word = |key: &str| line[key].as_str().unwrap().to_owned();
            (word("peer"), word("role"), word("call"), outcome.to_owned())
        })
        .collect();
    let line = |peer: &str, role: &str, call: &str, outcome: &str| {
        (
            peer.to_owned(),
            role.to_owned(),
            call.to_owned(),
            outcome.to_owned(),
        )
    };
    let expected = [
        line("a", "operator", "apply", "done"),
        line("b", "operator", "apply", "refused:"),
        line("b", "operator", "release", "refused:"),
        line("grafana", "reader", "apply", "refused:"),
        line("a", "operator", "apply", "refused:"),
        line("a", "operator", "release", "done"),
    ];
    assert_eq!(told, expected);
    assert_eq!(lines[0]["before"]["cores"], Value::Null);
    assert_eq!(lines[0]["after"]["cores"], 2.0);
    assert!(lines[0]["address"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert_eq!(lines[5]["after"], serde_json::json!({}));
}

#[tokio::test]
async fn a_flood_of_refused_calls_is_a_few_lines_of_audit() {
    let certs = Certs::new();
    let dir = tempfile::tempdir().unwrap();
    let audit = dir.path().join("audit");
    let mut served = Served::start(|config| {
        config.listen = vec![certs.listen()];
        config.audit = Some(AuditFile::at(&audit));
        config.access =
            headroom_wire::access::Rules::new(Some(vec!["a".into()]), Some(vec!["flood".into()])).unwrap();
    });
    // A name of its own: lines are counted by name, for the whole process.
    let flood = certs.connect(&served, "controller-flood").await;
    for sequence in 1..200 {
        refusal(flood.apply(ask(7, sequence, LEASE, setting(2.0, 60.0))).await);
    }
    served.stop().await.unwrap();
    let lines = lines(&audit);
    // More than one window of ten seconds on the slowest machine.
    assert!((1..40).contains(&lines.len()), "{} lines", lines.len());
}

#[tokio::test]
async fn less_than_the_nodes_least_is_refused_and_the_description_begins_there() {
    let certs = Certs::new();
    let mut served = Served::start(|config| {
        config.listen = vec![certs.listen()];
        config.least = Least(Setting::from([(Lever::Cores, 1.5), (Lever::Cap, 55.0)]));
    });
    let a = certs.connect(&served, "controller-a").await;
    assert_eq!(a.agent().ranges.get(Lever::Cores).unwrap().min, 1.5);
    assert_eq!(a.agent().ranges.get(Lever::Cap).unwrap().min, 55.0);
    let words = refusal(a.apply(ask(7, 1, LEASE, setting(1.4, 60.0))).await).to_string();
    assert!(words.contains("limits.cores = 1.5"), "{words}");
    let words = refusal(a.apply(ask(7, 2, LEASE, setting(2.0, 54.0))).await).to_string();
    assert!(words.contains("limits.cap = 55"), "{words}");
    assert!(served.fake.writes().is_empty(), "nothing was written");
    a.apply(ask(7, 3, LEASE, setting(1.5, 55.0))).await.unwrap();
    served.stop().await.unwrap();
}

#[tokio::test]
async fn queues_are_watched_by_one_operator_at_a_time_or_by_whom_the_agent_lets() {
    let certs = Certs::new();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let watch = || WatchQueue {
        port: server.local_addr().unwrap().port(),
        methods: vec![QueueMethod::Kernel],
        period: Duration::from_millis(50),
        cpu_group: None,
    };
    let start = |who: Watching| {
        Served::start(|config| {
            config.listen = vec![certs.listen()];
            config.queues = QueueLimits {
                who,
                kept: Duration::from_millis(100),
                ..QueueLimits::default()
            };
        })
    };
    let mut served = start(Watching::Holder);
    let a = certs.connect(&served, "controller-a").await;
    let b = certs.connect(&served, "controller-b").await;
    let reader = certs.connect(&served, "reader-grafana").await;
    let first = a.watch_queue(watch()).await.unwrap();
    let second = a.watch_queue(watch()).await.unwrap();
    let words = refusal(b.watch_queue(watch()).await).to_string();
    assert!(words.contains("\"a (who watches accept queues)\""), "{words}");
    let words = refusal(reader.watch_queue(watch()).await).to_string();
    assert!(words.contains("access.queues = \"readers\""), "{words}");
    drop((first, second));
    // The lease ends by itself a while after the last stream.
    let mut taken = None;
    for _ in 0..400 {
        taken = b.watch_queue(watch()).await.ok();
        if taken.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(taken.is_some(), "the lease of watching never ended");
    served.stop().await.unwrap();

    let mut served = start(Watching::Readers);
    let a = certs.connect(&served, "controller-a").await;
    let reader = certs.connect(&served, "reader-grafana").await;
    let both = (
        a.watch_queue(watch()).await.unwrap(),
        reader.watch_queue(watch()).await.unwrap(),
    );
    drop(both);
    served.stop().await.unwrap();

    let mut served = start(Watching::Off);
    let a = certs.connect(&served, "controller-a").await;
    let words = refusal(a.watch_queue(watch()).await).to_string();
    assert!(words.contains("access.queues = \"off\""), "{words}");
    served.stop().await.unwrap();
}

#[tokio::test]
async fn looks_at_many_queues_by_tools_cost_no_more_than_their_budget() {
    if let Err(error) = headroom_node::queue::ToolsQueueMeter::open(1) {
        println!("skipped: {error}");
        return;
    }
    let certs = Certs::new();
    let mut served = Served::start(|config| config.listen = vec![certs.listen()]);
    let a = certs.connect(&served, "controller-a").await;
    let servers: Vec<_> = (0..8)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let mut snapshots = Vec::new();
    for server in &servers {
        let watch = WatchQueue {
            port: server.local_addr().unwrap().port(),
            methods: vec![QueueMethod::Tools],
            period: Duration::from_millis(10),
            cpu_group: None,
        };
        snapshots.push(a.watch_queue(watch).await.unwrap());
    }
    let mut first = snapshots.swap_remove(0);
    let began = std::time::Instant::now();
    let mut told = 0;
    while began.elapsed() < Duration::from_secs(3) {
        if tokio::time::timeout(Duration::from_millis(100), first.next())
            .await
            .is_ok()
        {
            told += 1;
        }
    }
    // A look starts two processes, which takes milliseconds: the half second that may be used at once and the 5 % are
    // shared by eight. Without a budget each stream was told a hundred times a second.
    assert!(told < 100, "one of eight streams was told {told} times in 3 s");
    drop((first, snapshots));
    served.stop().await.unwrap();
}
