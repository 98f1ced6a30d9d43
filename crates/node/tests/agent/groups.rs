//! The processor time of a control group beside an accept queue, told by an agent: which groups may be asked for, and what
//! is said of one that goes, comes back, jumps, or cannot be read. Real listeners; the groups are a tree of plain files.

use crate::agent_common::{PATIENCE, Served, mutual_tls, next, refusal};
use crate::common::says;
use crate::queue_common::{listener, port_of};
use headroom_node::Roots;
use headroom_node::agent::{AgentConfig, AgentError, Watching};
use headroom_node::cgroup::TargetSpec;
use headroom_node::cpu::GroupUsage;
use headroom_wire::Refusal;
use headroom_wire::client::{Client, QueueSnapshots};
use headroom_wire::message::{CpuGroup, GroupCpu, QueueMethod, QueueShown, WatchQueue};
use headroom_wire::server::Listen;
use headroom_wire::tonic::Code;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A version 2 hierarchy of plain files, on a machine that is else this one.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        for dir in [
            "sys/fs/cgroup",
            "sys/devices/system/cpu",
            "sys/kernel",
            "proc/self",
        ] {
            fs::create_dir_all(tree.path(dir)).unwrap();
        }
        fs::write(tree.path("sys/devices/system/cpu/online"), "0-1\n").unwrap();
        fs::write(tree.path("sys/fs/cgroup/cgroup.controllers"), "cpu\n").unwrap();
        let line = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 none rw\n";
        fs::write(tree.path("proc/self/mountinfo"), line).unwrap();
        for file in ["stat", "thread-self"] {
            symlink(Path::new("/proc").join(file), tree.path("proc").join(file)).unwrap();
        }
        for group in ["web", "web/worker", "website", "db"] {
            tree.make(group, 0);
        }
        tree
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    fn group(&self, name: &str) -> PathBuf {
        self.path("sys/fs/cgroup").join(name)
    }

    fn make(&self, name: &str, used_us: u64) {
        fs::create_dir(self.group(name)).unwrap();
        fs::write(self.group(name).join("cpu.max"), "50000 100000\n").unwrap();
        self.used(name, used_us);
    }

    fn used(&self, name: &str, us: u64) {
        self.count(name, &format!("usage_usec {us}\nnr_periods 0\n"));
    }

    /// Writes its counters at once: a reader must not find half of them.
    fn count(&self, name: &str, text: &str) {
        fs::write(self.group(name).join("new"), text).unwrap();
        fs::rename(self.group(name).join("new"), self.group(name).join("cpu.stat")).unwrap();
    }

    fn serve(&self, configure: impl FnOnce(&mut AgentConfig)) -> Served {
        Served::start(|config| {
            config.roots = Roots::at(self.path("sys"), self.path("proc"));
            config.cpu_groups = vec![TargetSpec::Path("/web".into())];
            configure(config);
        })
    }
}

fn asked(server: &TcpListener, group: &str) -> WatchQueue {
    WatchQueue {
        port: port_of(server),
        methods: vec![QueueMethod::Kernel],
        period: Duration::from_millis(20),
        cpu_group: Some(CpuGroup::new(group).unwrap()),
    }
}

async fn group(snapshots: &mut QueueSnapshots) -> GroupCpu {
    next(snapshots).await.group.expect("a group was asked for")
}

/// Reads on until the group is as asked for.
async fn until(what: &str, snapshots: &mut QueueSnapshots, holds: impl Fn(&GroupCpu) -> bool) -> GroupCpu {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let read = group(snapshots).await;
        if holds(&read) {
            return read;
        }
        assert!(Instant::now() < deadline, "{what}: {read:?}");
    }
}

fn usage(read: GroupCpu) -> GroupUsage {
    read.unwrap()
}

async fn watch(client: &Client, server: &TcpListener, group: &str) -> QueueSnapshots {
    client.watch_queue(asked(server, group)).await.unwrap()
}

#[tokio::test]
async fn what_was_used_is_told_as_a_share_of_what_could_be_over_mutual_tls_too() {
    let (tree, server) = (Tree::new(), listener(0, 4));
    let (tls, options) = mutual_tls();
    let mut served = tree.serve(|config| {
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        config.listen.push(Listen::Tcp { address, tls });
        // The two are different peers, who watch one after the other.
        config.queues.who = Watching::Readers;
    });
    let tcp = served.handle().addresses()[1].clone();
    for client in [
        served.connect().await,
        Client::connect(&tcp, &options).await.unwrap(),
    ] {
        assert_eq!(client.agent().cpu_groups, Some(vec!["cgroup /web".to_owned()]));
        let mut snapshots = watch(&client, &server, "/web").await;
        let first = next(&mut snapshots).await;
        assert!(matches!(first.shown, QueueShown::Sample(_)), "{first:?}");
        let first = usage(first.group.unwrap());
        tokio::time::sleep(Duration::from_millis(200)).await;
        tree.used("web", 30_000);
        let used = first.used + Duration::from_millis(30);
        let is_used = |read: &GroupCpu| read.as_ref().is_ok_and(|read| read.used == used);
        let after = usage(until("what was used", &mut snapshots, is_used).await);
        let share = after.share_since(&first).unwrap().get();
        // A quota of half a core: 30 ms of at least 100 ms.
        assert!(share > 0.0 && share <= 0.3, "{share}");
        tree.used("web", 0);
    }
    // Who asks for none is told none.
    let client = served.connect().await;
    let none = WatchQueue {
        cpu_group: None,
        ..asked(&server, "/web")
    };
    let mut snapshots = client.watch_queue(none).await.unwrap();
    assert_eq!(next(&mut snapshots).await.group, None);
    served.stop().await.unwrap();
}

#[tokio::test]
async fn only_what_the_configuration_allows_and_what_is_below_may_be_asked_for() {
    let (tree, server) = (Tree::new(), listener(0, 4));
    let mut served = tree.serve(|_| {});
    let client = served.connect().await;
    let below = tree.group("web/worker");
    for good in [
        "/web",
        "web/",
        "/web/worker",
        "/sys/fs/cgroup/web",
        below.to_str().unwrap(),
    ] {
        assert!(
            group(&mut watch(&client, &server, good).await).await.is_ok(),
            "{good}"
        );
    }
    let mut words = Vec::new();
    // Another group, one whose name begins alike, the whole machine, and one that does not exist: all the same answer.
    for bad in ["/db", "/website", "/", "/nothing", "/sys/fs/cgroup/db", "/proc/1"] {
        let refused = refusal(client.watch_queue(asked(&server, bad)).await);
        assert_eq!(refused.code(), Code::PermissionDenied);
        let Refusal::NotAllowed {
            field,
            value,
            allowed,
        } = refused
        else {
            panic!("{refused}")
        };
        assert_eq!((field.as_str(), value.as_str()), ("cpu_group", bad));
        says(&allowed, &["of cgroup /web and of what is below alone"]);
        words.push(allowed);
    }
    words.dedup();
    assert_eq!(words.len(), 1, "whether there is such a group is not said");
    served.stop().await.unwrap();

    let mut none = tree.serve(|config| config.cpu_groups.clear());
    let refused = refusal(none.connect().await.watch_queue(asked(&server, "/web")).await);
    assert!(refused.to_string().contains("of no control group"), "{refused}");
    none.stop().await.unwrap();

    let mut all = tree.serve(|config| config.cpu_groups = vec![TargetSpec::Path("/".into())]);
    let client = all.connect().await;
    assert!(group(&mut watch(&client, &server, "/db").await).await.is_ok());
    let whole = group(&mut watch(&client, &server, "/").await).await;
    assert!(whole.unwrap_err().contains("root cgroup"));
    all.stop().await.unwrap();
}

/// Whether the processor time of each may be asked for.
async fn allowed<const N: usize>(client: &Client, server: &TcpListener, groups: [&str; N]) -> [bool; N] {
    let mut allowed = [true; N];
    for (group, is_allowed) in groups.iter().zip(&mut allowed) {
        if let Err(error) = client.watch_queue(asked(server, group)).await {
            let refused = refusal::<QueueSnapshots>(Err(error));
            assert!(
                matches!(refused, Refusal::NotAllowed { .. }),
                "{group}: {refused}"
            );
            *is_allowed = false;
        }
    }
    allowed
}

#[tokio::test]
async fn a_unit_and_a_container_allow_what_they_are_now_and_what_is_below() {
    let (tree, server) = (Tree::new(), listener(0, 4));
    let id = "0123456789abcdef".repeat(4);
    let scope = format!("pods/docker-{id}.scope");
    for group in ["system.slice", "system.slice/nginx.service2", "pods"] {
        tree.make(group, 0);
    }
    let mut served = tree.serve(|config| {
        config.cpu_groups = vec![
            TargetSpec::Unit("nginx".into()),
            TargetSpec::Container(id[..12].into()),
        ];
    });
    let client = served.connect().await;
    let unit = [
        "/system.slice/nginx.service",
        "/system.slice/nginx.service/worker",
        "/system.slice",
        "/system.slice/nginx.service2",
        "/web",
        "/",
    ];
    let container = ["/pods", &format!("/{scope}"), &format!("/{scope}/init")];
    // Neither is there yet.
    assert_eq!(allowed(&client, &server, unit).await, [false; 6]);
    assert_eq!(allowed(&client, &server, container).await, [false; 3]);
    tree.make("system.slice/nginx.service", 0);
    tree.make(&scope, 0);
    let now = [true, true, false, false, false, false];
    assert_eq!(allowed(&client, &server, unit).await, now);
    assert_eq!(allowed(&client, &server, container).await, [false, true, true]);
    served.stop().await.unwrap();
}

#[tokio::test]
async fn a_process_allows_the_group_that_it_was_in_at_the_start() {
    let (tree, server) = (Tree::new(), listener(0, 4));
    fs::create_dir(tree.path("proc/41")).unwrap();
    let is_in = |group: &str| fs::write(tree.path("proc/41/cgroup"), format!("0::{group}\n")).unwrap();
    is_in("/web");
    let mut served = tree.serve(|config| {
        // Another process has the second number later.
        config.cpu_groups = vec![TargetSpec::Pid(41), TargetSpec::Pid(42)];
    });
    let client = served.connect().await;
    let groups = ["/web", "/web/worker", "/website", "/db", "/"];
    let at_start = [true, true, false, false, false];
    assert_eq!(allowed(&client, &server, groups).await, at_start);
    is_in("/db");
    fs::create_dir(tree.path("proc/42")).unwrap();
    fs::write(tree.path("proc/42/cgroup"), "0::/website\n").unwrap();
    assert_eq!(allowed(&client, &server, groups).await, at_start);
    served.stop().await.unwrap();
}

#[tokio::test]
async fn look_ups_of_groups_are_bounded_also_those_whose_caller_hung_up() {
    let (tree, server) = (Tree::new(), listener(0, 4));
    let mut served = tree.serve(|config| config.waiting = 1);
    let client = served.connect().await;
    // A look-up reads the mounts; from a pipe it waits for them until somebody writes.
    let (mounts, aside) = (tree.path("proc/self/mountinfo"), tree.path("aside"));
    fs::rename(&mounts, &aside).unwrap();
    let (fifo, readable) = (FileType::Fifo, Mode::from_raw_mode(0o600));
    mknodat(CWD, &mounts, fifo, readable, 0).unwrap();
    let mut first = Box::pin(client.watch_queue(asked(&server, "/web")));
    let deadline = Instant::now() + PATIENCE;
    let writer = loop {
        // Refused until the look-up reads there.
        match open(&mounts, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()) {
            Ok(writer) => break writer,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        let waited = tokio::time::timeout(Duration::from_millis(5), &mut first).await;
        assert!(waited.is_err(), "it waits for the mounts");
    };
    drop(first);
    let refused_at_once = async |watch| {
        let answer = tokio::time::timeout(PATIENCE, client.watch_queue(watch)).await;
        refusal(answer.expect("it waits for no look-up"))
    };
    let refused = refused_at_once(asked(&server, "/web")).await;
    assert!(
        matches!(&refused, Refusal::Busy { what, limit: 1, .. } if what == "control groups that are looked up"),
        "{refused}"
    );
    // What needs no look-up is answered.
    let hurried = WatchQueue {
        period: Duration::from_micros(1),
        ..asked(&server, "/web")
    };
    let refused = refused_at_once(hurried).await;
    assert!(matches!(refused, Refusal::OutOfRange { .. }), "{refused}");
    fs::rename(&aside, &mounts).unwrap();
    drop(writer);
    let deadline = Instant::now() + PATIENCE;
    while client.watch_queue(asked(&server, "/web")).await.is_err() {
        assert!(Instant::now() < deadline, "its place is free again");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    served.stop().await.unwrap();
}

#[tokio::test]
async fn a_group_that_goes_is_told_and_nothing_is_said_of_the_time_until_it_is_back() {
    let (tree, server) = (Tree::new(), listener(0, 4));
    let mut served = tree.serve(|_| {});
    let client = served.connect().await;
    // One that is allowed and not there yet: the queue is told meanwhile.
    let mut snapshots = watch(&client, &server, "/web/later").await;
    let snapshot = next(&mut snapshots).await;
    assert!(matches!(snapshot.shown, QueueShown::Sample(_)), "{snapshot:?}");
    says(
        snapshot.group.unwrap().unwrap_err(),
        &["cgroup /web/later does not exist", "check the name"],
    );
    tree.make("web/later", 500);
    let come = usage(until("it is there", &mut snapshots, Result::is_ok).await);
    tree.used("web/later", 900);
    let after = until("400 us", &mut snapshots, |read| {
        read.as_ref().is_ok_and(|read| read.used > come.used)
    });
    let after = usage(after.await);
    assert_eq!(after.used - come.used, Duration::from_micros(400));
    assert!(after.share_since(&come).is_some());

    fs::rename(tree.group("web/later"), tree.path("gone")).unwrap();
    says(
        until("it is gone", &mut snapshots, Result::is_err)
            .await
            .unwrap_err(),
        &["cgroup /web/later is gone"],
    );
    // It has used more than the one before it, which would be no step back.
    tree.make("web/later", 9_000);
    let back = usage(until("it is back", &mut snapshots, Result::is_ok).await);
    assert_eq!(back.share_since(&after), None);
    assert_eq!(back.used, after.used, "what happened meanwhile is in no count");

    // A counter that leaps beyond what the processors could have done.
    tree.used("web/later", 1 << 50);
    let leapt = |read: &GroupCpu| read.as_ref().is_ok_and(|read| read.epoch != back.epoch);
    let leapt = usage(until("the leap", &mut snapshots, leapt).await);
    assert_eq!(
        (leapt.share_since(&back), leapt.used),
        (None, back.used),
        "it is discarded"
    );
    tree.count("web/later", "usage_usec many\n");
    says(
        until("nonsense", &mut snapshots, Result::is_err)
            .await
            .unwrap_err(),
        &["cpu.stat", "many"],
    );
    served.stop().await.unwrap();
}

#[tokio::test]
async fn a_group_that_may_not_be_read_is_told_with_its_file() {
    if rustix::process::geteuid().is_root() {
        println!("skipped: root may read every file");
        return;
    }
    let (tree, server) = (Tree::new(), listener(0, 4));
    let mut served = tree.serve(|_| {});
    let closed = fs::Permissions::from_mode(0o000);
    fs::set_permissions(tree.group("web").join("cpu.stat"), closed).unwrap();
    let client = served.connect().await;
    says(
        group(&mut watch(&client, &server, "/web").await)
            .await
            .unwrap_err(),
        &["cpu.stat"],
    );
    served.stop().await.unwrap();
}

#[tokio::test]
async fn a_watch_with_another_group_is_another_watch_and_an_agent_s_list_is_bounded() {
    let (tree, server) = (Tree::new(), listener(0, 4));
    let mut served = tree.serve(|config| config.queues.queues = 2);
    let client = served.connect().await;
    let _one = watch(&client, &server, "/web").await;
    let _same = watch(&client, &server, "/web").await;
    let _other = watch(&client, &server, "/web/worker").await;
    let refused = refusal(client.watch_queue(asked(&server, "/web/x")).await);
    assert!(matches!(refused, Refusal::Busy { limit: 2, .. }), "{refused}");
    served.stop().await.unwrap();

    let mut config = AgentConfig::at(vec![Listen::Unix {
        path: tree.path("a.sock"),
    }]);
    config.cpu_groups = vec![TargetSpec::Path("/web".into()); 65];
    let error = headroom_node::agent::Agent::start(config, Box::new(crate::agent_common::Fake::default()));
    assert!(
        matches!(
            error,
            Err(AgentError::Setting {
                setting: "cpu_groups",
                ..
            })
        ),
        "{error:?}"
    );
}
