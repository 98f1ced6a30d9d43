//! Behind an HAProxy, whose servers are told by its statistics socket.

use super::{CAPACITY_PER_S, check, fixed, resize};
use crate::common::site::{Service, Site};
use crate::common::{Load, Program, assert_has, get, program_or_skipped, refused, succeeds, until, wait};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// An HAProxy in front of a site, with a statistics socket, which opens a connection for each request.
pub fn haproxy(site: &Site) -> Option<Program> {
    haproxy_with(site, "option httpclose")
}

/// The same with this option.
fn haproxy_with(site: &Site, option: &str) -> Option<Program> {
    if !program_or_skipped("haproxy -v", "apt install haproxy") {
        return None;
    }
    let mut text = format!(
        "global\n stats socket {} mode 600 level admin\ndefaults\n mode http\n timeout connect 1s\n timeout client 30s\n \
         timeout server 30s\n retries 3\n option redispatch 1\n {option}\nfrontend in\n bind {}\n default_backend app\n\
         backend app\n balance roundrobin\n",
        site.path("haproxy.sock").display(),
        site.front
    );
    for server in 1..=site.ports.len() {
        text.push_str(&format!(
            " server web{server} 127.0.0.1:{} check inter 200ms weight 100{}\n",
            site.ports[server - 1],
            if server > 1 { " disabled" } else { "" }
        ));
    }
    let file = site.path("haproxy.cfg");
    fs::write(&file, text).unwrap();
    let program = Program::start(Command::new("haproxy").args(["-db", "-f"]).arg(&file));
    until("haproxy answers", || get(site.front, "/").ok());
    Some(program)
}

/// The file of its controller, with each server's accept queue where the rest is "queues".
pub fn behind_haproxy(site: &Site, kind: &str, rest: &str) -> PathBuf {
    let head = format!(
        "[law]\n{kind}\n[haproxy]\nsocket = \"{}\"\nbackend = \"app\"\nwarm_up_weight_percent = 50",
        site.path("haproxy.sock").display()
    );
    let port = |server: usize| format!("accept_queue = {}", site.ports[server - 1]);
    site.config(&head, |server| {
        let queue = if rest == "queues" {
            port(server)
        } else {
            String::new()
        };
        format!("member = \"web{server}\"\n{queue}")
    })
}

fn asked(socket: &Path, command: &str) -> String {
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    stream.write_all(format!("{command}\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_cluster_behind_haproxy_keeps_its_servers_while_the_socket_is_gone() {
    let site = Site::new(2, Service::Wiki);
    site.boot(1);
    let Some(_haproxy) = haproxy(&site) else { return };
    let config = behind_haproxy(&site, &fixed(), "");
    let mut controller = resize(&config);
    let load = Load::to(site.front, CAPACITY_PER_S * 3 / 2);
    // While it warms up it has half of its weight, and then all of it.
    let warming = site.until_period("web2 warms up", |period| {
        period["servers"][1]["state"] == "warming"
    });
    assert_eq!(warming["servers"][1]["command"], "enable");
    site.until_states(&["serving", "serving"]);
    let socket = site.path("haproxy.sock");
    wait("all of its weight", || {
        asked(&socket, "get weight app/web2").contains("100 (initial 100)")
    });

    let aside = site.path("aside.sock");
    fs::rename(&socket, &aside).unwrap();
    load.at(CAPACITY_PER_S / 3);
    site.until_period("the balancer is lost", |period| {
        period["balancer"]["trouble"]
            .as_str()
            .is_some_and(|why| why.contains("cannot be reached"))
    });
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(site.states(), ["serving", "serving"]);
    fs::rename(&aside, &socket).unwrap();
    site.until_states(&["serving", "off"]);
    let servers = asked(&socket, "show servers state app");
    let web2 = servers.lines().find(|line| line.contains(" web2 ")).unwrap();
    // Forced maintenance.
    let told = |line: &str| line.split(' ').nth(6)?.parse::<u32>().ok();
    assert_eq!(told(web2).map(|flags| flags & 0x23), Some(1), "{servers}");
    let (answered, wrong) = load.counts();
    assert!(answered > 50 && wrong == 0, "{answered} answered, {wrong} wrong");

    controller.stop();
    assert!(site.runs(1) && site.runs(2));
    let servers = asked(&socket, "show servers state app");
    assert!(
        servers
            .lines()
            .skip(2)
            .all(|line| line.is_empty() || told(line).is_some_and(|flags| flags & 0x23 == 0)),
        "{servers}"
    );
}

#[test]
fn the_dynamic_controller_goes_by_the_accept_queues_as_published() {
    goes_by_the_accept_queues("published");
}

#[test]
fn the_dynamic_controller_goes_by_the_time_for_which_somebody_waits() {
    goes_by_the_accept_queues("busy-time");
}

fn goes_by_the_accept_queues(kind: &str) {
    if !program_or_skipped("python3 --version", "the server with few workers needs it") {
        return;
    }
    // Each takes some 50 connections a second.
    let site = Site::new(3, Service::Workers(1, 0.02));
    site.boot(1);
    let Some(_haproxy) = haproxy(&site) else { return };
    let config = behind_haproxy(&site, "name = \"dynamic\"", "queues");
    // Rates of the few connections of a fifth of a second are noise.
    let text = fs::read_to_string(&config).unwrap();
    let text = text.replace("period_ms = 200.0", "period_ms = 1000.0");
    fs::write(
        &config,
        format!("{text}[capacity.queue]\nkind = \"{kind}\"\nforecast_s = 1.0\n"),
    )
    .unwrap();
    let said = succeeds(check(&config)).out();
    assert_has(&said, &["connections at the accept queues"]);
    if said.contains("cannot be measured by ebpf") {
        println!("skipped: {said}");
        return;
    }
    let controller = resize(&config);
    // More than the accept queue of one has places for.
    let load = Load::of_clients(60, site.front, 20);
    until("six periods", || {
        (site.last()?["period"].as_u64()? >= 6).then_some(())
    });
    assert_eq!(site.states(), ["serving", "off", "off"]);
    // Nobody said what a server takes: the queue of the first says that it is less than this.
    load.at(120);
    wait("another server", || {
        site.states().iter().filter(|state| *state == "serving").count() >= 2
    });
    let capacity = |period: &Value| period["servers"][0]["capacity"].clone();
    let period = site.until_period("a capacity that was met", |period| {
        capacity(period)["kind"] == "exact"
    });
    let per_s = capacity(&period)["per_s"].as_f64().unwrap();
    assert!((15.0..150.0).contains(&per_s), "{per_s}: {}", controller.err());
}

/// As often as it decides, the sum of the accept queues would be next to nothing.
#[test]
fn behind_connections_that_haproxy_keeps_open_the_demand_is_what_it_counts() {
    let site = Site::new(2, Service::Wiki);
    site.boot(1);
    let Some(_haproxy) = haproxy_with(&site, "http-reuse always") else {
        return;
    };
    let config = behind_haproxy(&site, "name = \"dynamic\"", "queues");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("period_ms = 200.0", "period_ms = 500.0")).unwrap();
    let said = succeeds(check(&config)).out();
    if said.contains("cannot be measured by ebpf") {
        println!("skipped: {said}");
        return;
    }
    let mut controller = resize(&config);
    let rate = CAPACITY_PER_S / 2;
    let _load = Load::to(site.front, rate);
    let found = "connections to it stay open";
    let period = site.until_period("it is found", |period| {
        let trouble = period["servers"][0]["trouble"][0].as_str();
        trouble.is_some_and(|trouble| trouble.contains(found))
            && period["servers"][0]["capacity"]["kind"] == "lower-bound"
    });
    assert!(
        period["arrival_rate_per_s"].as_f64() > Some(rate as f64 / 2.0),
        "{period}"
    );
    controller.stop();
    let said = controller.err();
    assert_has(
        &said,
        &[
            "warning: web1: set `option http-server-close` in HAProxy's backend",
            found,
        ],
    );
}

/// Nothing reads HAProxy's log: it counts requests, and times none.
#[test]
fn a_run_in_which_nothing_measures_latencies_is_not_called_late() {
    let site = Site::new(1, Service::Wiki);
    site.boot(1);
    let Some(_haproxy) = haproxy(&site) else { return };
    let config = behind_haproxy(&site, &fixed(), "");
    let note = "nothing measures latencies, so whether slo.target_ms is kept will not be known";
    let statistics = format!("statistics = \"{}\"", site.path("haproxy.sock").display());
    let remedy = [note, "Add [telemetry.haproxy]", &statistics, "`log 127.0.0.1:"];
    assert_has(succeeds(check(&config)).out(), &remedy);
    let mut controller = resize(&config);
    let _load = Load::to(site.front, CAPACITY_PER_S / 2);
    // Its first line comes after ten seconds.
    controller.says("what it knows of latencies", |said| {
        said.contains("  latency unknown in ").then_some(())
    });
    controller.stop();
    let slo = controller.json()["slo"].clone();
    let of = |key: &str| slo[key].as_u64().unwrap();
    assert!(of("periods_unmeasured") > 5, "{slo}");
    assert_eq!(
        (of("periods_unknown"), of("periods_judged")),
        (0, of("periods_without_requests"))
    );
    assert!(slo["periods_over"].as_f64().unwrap_or(0.0) < 1e-9, "{slo}");
    let unmeasured = format!(
        "latency is unknown in {0} of {0} periods with requests",
        of("periods_unmeasured")
    );
    assert_has(controller.json()["notes"].to_string(), &[note, &unmeasured]);
}

/// What HAProxy lacks for its log to come is told before a run without one.
#[test]
fn what_haproxy_needs_to_log_and_its_socket_are_told_to_who_names_the_log_alone() {
    let site = Site::new(1, Service::Wiki);
    site.boot(1);
    let Some(_haproxy) = haproxy(&site) else { return };
    let config = behind_haproxy(&site, &fixed(), "");
    let text = fs::read_to_string(&config).unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let unix = site.path("log.sock").display().to_string();
    let logs = [
        (format!("udp:{udp}"), format!("`log {udp} local0`")),
        (format!("unix:{unix}"), format!("`log {unix} local0`")),
    ];
    let statistics = format!("statistics = \"{}\"", site.path("haproxy.sock").display());
    for (log, line) in logs {
        let table = format!("{text}[telemetry.haproxy]\nlog = \"{log}\"\n");
        fs::write(&config, &table).unwrap();
        let said = succeeds(check(&config)).out();
        assert_has(&said, &[&line, "`option httplog`"]);
        assert_has(&said, &["no statistics socket is named", &statistics]);
        fs::write(&config, format!("{table}{statistics}\n")).unwrap();
        let said = succeeds(check(&config)).out();
        assert!(!said.contains("no statistics socket"), "{said}");
    }
}

/// Fifteen periods and more go by without it.
#[test]
fn lost_telemetry_is_not_told_each_period_and_its_end_is() {
    let site = Site::new(1, Service::Wiki);
    site.boot(1);
    let Some(_haproxy) = haproxy(&site) else { return };
    let config = behind_haproxy(&site, &fixed(), "");
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (socket, aside) = (site.path("haproxy.sock"), site.path("aside.sock"));
    let text = fs::read_to_string(&config).unwrap();
    let table = format!(
        "[telemetry.haproxy]\nlog = \"udp:{udp}\"\nstatistics = \"{}\"\n",
        socket.display()
    );
    fs::write(&config, format!("{text}{table}")).unwrap();
    let mut controller = resize(&config);
    until("a period", || site.last());
    fs::rename(&socket, &aside).unwrap();
    controller.says("that it is lost", |said| {
        said.contains("telemetry lost").then_some(())
    });
    std::thread::sleep(Duration::from_secs(4));
    fs::rename(&aside, &socket).unwrap();
    controller.says("that it is back", |said| {
        said.contains("telemetry is there again").then_some(())
    });
    controller.stop();
    let said = controller.err();
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("telemetry lost"))
        .collect();
    // What is decided without it changes once.
    assert!((1..=3).contains(&lines.len()), "{said}");
    assert_has(lines[0], &["no log line came, and ", "decided without it: "]);
    let (_, periods) = said.split_once("telemetry is there again lost_periods=").unwrap();
    let periods = periods.split_whitespace().next().unwrap();
    assert!(periods.parse::<u32>().unwrap() > 6, "{said}");
}

/// It may be started later, or reloaded: nothing is refused.
#[test]
fn what_haproxy_does_not_know_of_the_telemetrys_names_is_told_at_its_line() {
    let site = Site::new(1, Service::Wiki);
    site.boot(1);
    let Some(_haproxy) = haproxy(&site) else { return };
    let config = behind_haproxy(&site, &fixed(), "");
    let text = fs::read_to_string(&config).unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let socket = |name: &str| format!("statistics = \"{}\"", site.path(name).display());
    let right = socket("haproxy.sock");
    for (names, told) in [
        (
            format!("{right}\nbackends = [\"app\",\n\"apps\"]"),
            [
                "telemetry.haproxy.backends[1]: ",
                "no backend \"apps\"",
                "it has (app)",
            ],
        ),
        (
            format!("{right}\n\nfrontends = [\"www\"]"),
            [
                "telemetry.haproxy.frontends[0]: ",
                "no frontend \"www\"",
                "it has (in)",
            ],
        ),
        (
            format!("\n\n{}", socket("nowhere.sock")),
            [
                "telemetry.haproxy.statistics: ",
                "nowhere.sock",
                "no telemetry yet",
            ],
        ),
    ] {
        // A check does not listen at a Unix socket.
        for log in [
            format!("udp:{udp}"),
            format!("unix:{}", site.path("log.sock").display()),
        ] {
            let text = format!("{text}[telemetry.haproxy]\nlog = \"{log}\"\n{names}\n");
            fs::write(&config, &text).unwrap();
            let said = succeeds(check(&config)).out();
            assert_has(&said, &told);
            let line = text.lines().count();
            assert_has(&said, &[&format!("resize.toml:{line}: ")]);
        }
    }
}

#[test]
fn a_name_that_haproxy_does_not_know_is_told_at_its_line() {
    let site = Site::new(1, Service::Wiki);
    site.boot(1);
    let Some(_haproxy) = haproxy(&site) else { return };
    let config = behind_haproxy(&site, &fixed(), "");
    let text = fs::read_to_string(&config).unwrap();
    let told = |right: &str, wrong: &str, said: &[&str]| {
        let line = 1 + text.lines().position(|line| line == right).unwrap();
        fs::write(&config, text.replace(right, wrong)).unwrap();
        let program = refused(check(&config), said);
        assert_has(program.err(), &[&format!("resize.toml:{line}: ")]);
        assert!(!program.err().contains("gateways"), "{}", program.err());
    };
    told(
        "backend = \"app\"",
        "backend = \"apps\"",
        &["haproxy.backend: is \"apps\"", "no such backend", "it has (app)"],
    );
    told(
        "member = \"web1\"",
        "member = \"w1\"",
        &[
            "nodes.web1.member: is \"w1\"",
            "HAProxy's backend app has no such server",
            "it has (web1)",
        ],
    );
    let socket = format!("socket = \"{}\"", site.path("haproxy.sock").display());
    let nowhere = format!("socket = \"{}\"", site.path("nowhere.sock").display());
    told(&socket, &nowhere, &["haproxy.socket: ", "nowhere.sock"]);
}
