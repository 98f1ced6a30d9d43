use super::*;
use headroom_control::capacity::QueueTuning;

/// The example, with the keys that are commented out and can stand beside the others.
fn whole() -> String {
    let alone = [
        "[balancer.haproxy]",
        "socket",
        "backend",
        "warm_up_weight_percent",
        "slots",
    ];
    EXAMPLE
        .lines()
        .map(|line| {
            let key = line.strip_prefix("# ").filter(|rest| {
                let table = rest.starts_with('[');
                let key = rest.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
                (table || key) && !alone.iter().any(|word| rest.split(" = ").next() == Some(word))
            });
            format!("{}\n", key.unwrap_or(line))
        })
        .collect()
}

fn parse(text: &str) -> Result<(ResizeFile, Document), ConfigError> {
    ResizeFile::checked(Document::shipped("resize.toml", text))
}

#[test]
fn the_example_is_a_configuration_also_with_every_key_written() {
    let (config, document) = parse(EXAMPLE).unwrap();
    assert_eq!(config.demand(), Demand::Balancer);
    assert_eq!(config.resizer(&document).unwrap().name(), "static");
    assert_ne!(whole(), EXAMPLE);
    parse(&whole()).unwrap();
}

#[test]
fn the_examples_defaults_are_the_programs() {
    let (short, _) = parse(EXAMPLE).unwrap();
    let (long, _) = parse(&whole()).unwrap();
    assert_eq!(short.resize, long.resize);
    assert_eq!(short.power, long.power);
    assert_eq!(
        QueueTuning {
            queue_limit: None,
            ..long.capacity.queue
        },
        short.capacity.queue
    );
    assert_eq!(short.control.period_ms, long.control.period_ms);
    assert_eq!(short.exit.wait_s, long.exit.wait_s);
    assert_eq!(short.record.max_mib, long.record.max_mib);
    assert_eq!(short.admin.listen, long.admin.listen);
    assert_eq!(short.energy, Some(ServerPower::default()));
}

#[test]
fn an_haproxy_stands_in_the_gateways_place() {
    let text = EXAMPLE
        .replace(
            "[balancer.gateways]\ng1 = \"unix:/run/headroom/gateway.sock\"\n",
            "",
        )
        .replace("# [balancer.haproxy]", "[balancer.haproxy]")
        .replace("# socket = ", "socket = ")
        .replace("# backend = ", "backend = ");
    let (config, _) = parse(&text).unwrap();
    let (address, table) = config.haproxy().unwrap();
    assert_eq!(address.to_string(), "/run/haproxy/headroom.sock");
    assert_eq!(
        (table.backend.as_str(), table.warm_up_weight_percent),
        ("app", 100)
    );
}

#[test]
fn a_schedule_is_made_of_slots_or_of_a_curve() {
    let scheduled = |rest: &str| {
        let text = EXAMPLE.replace("kind = \"static\"", &format!("kind = \"scheduled\"\n{rest}"));
        parse(&text).map(|(config, document)| config.resizer(&document).unwrap().name())
    };
    assert_eq!(scheduled("slots = [1, 2]"), Ok("scheduled"));
    assert_eq!(scheduled("curve_per_s = [100.0, 700.0]"), Ok("scheduled"));
    for rest in [
        "",
        "slots = [1]\ncurve_per_s = [1.0]",
        "slots = [0]",
        "curve_per_s = [-1.0]",
    ] {
        assert!(scheduled(rest).is_err(), "{rest}");
    }
}

#[test]
fn each_mistake_is_told_with_its_line_and_a_remedy() {
    for (from, to, said) in [
        (
            "capacity_per_s = 595.0",
            "",
            "controller.capacity_per_s: is missing",
        ),
        (
            "capacity_per_s = 595.0",
            "capacity_per_s = 0.0",
            "controller.capacity_per_s",
        ),
        (
            "kind = \"static\"",
            "kind = \"dynamic\"",
            "servers.web1.accept_queue: is missing",
        ),
        (
            "# demand = \"balancer\"",
            "demand = \"accept-queue\"",
            "servers.web1.accept_queue: is missing",
        ),
        (
            "# accept_queue = 8080",
            "agent = \"unix:/a\"",
            "servers.web1.agent: watches accept queues alone",
        ),
        (
            "# accept_queue = 8080",
            "accept_queue = 8080\nagent = \"web1:7443\"",
            "servers.web1.agent: web1:7443 is TCP",
        ),
        (
            "# accept_queue = 8080",
            "accept_queue = 8080\nagent = \"web1\"",
            "servers.web1.agent: \"web1\" is no address",
        ),
        ("unix:/run/headroom/gateway.sock", "g1:7443", "g1:7443 is TCP"),
        (
            "http://10.0.0.12:8080",
            "http://10.0.0.11:8080",
            "servers.web2.member",
        ),
        (
            "tcp:10.0.0.12:8080",
            "10.0.0.12:8080",
            "is no check: write tcp:HOST:PORT",
        ),
        ("# period_ms = 1000.0", "period_ms = 1.0", "control.period_ms"),
        ("# margin = 0.0", "margin = 1.5", "resize.margin"),
        ("# backoff_s = 30.0", "backoff_s = 0.0", "power.backoff_s"),
        ("# min_servers = 1", "min_servers = 9", "is 9 of 4 servers"),
        ("off_w = 0.0", "off_w = -1.0", "energy.off_w"),
        ("# keep = 0.9", "keep = 1.0", "capacity.queue.keep"),
        ("# keep = 0.9", "kind = \"by-guess\"", "by-guess"),
        (
            "# keep = 0.9",
            "sampling_period_s = 2.0",
            "capacity.queue.sampling_period_s",
        ),
        ("kind = \"ipmi\"", "kind = \"apc\"", "apc"),
        ("mac = \"00:25:90:ab:cd:ef\"", "mac = \"web4\"", "no MAC address"),
    ] {
        assert!(EXAMPLE.contains(from), "{from}");
        let error = parse(&EXAMPLE.replacen(from, to, 1)).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains(said) && error.line.is_some(),
            "{from} -> {to}: {text}"
        );
    }
    let agents = |rest: &str| {
        let first = "# accept_queue = 8080";
        let text = EXAMPLE.replacen(first, "accept_queue = 8080\nagent = \"unix:/a\"", 1);
        parse(&text.replacen("check = \"tcp:10.0.0.12:8080\"", rest, 1))
    };
    let second = "check = \"tcp:10.0.0.12:8080\"\naccept_queue = 8080";
    // One port of two machines, and of one that is named in two ways.
    agents(&format!("{second}\nagent = \"unix:/b\"")).unwrap();
    agents(second).unwrap();
    let text = agents(&format!("{second}\nagent = \"/a\""))
        .unwrap_err()
        .to_string();
    assert!(text.contains("servers.web2.accept_queue: 8080"), "{text}");
    let status = EXAMPLE
        .replacen("# method = \"auto\"", "method = \"status\"", 1)
        .replacen(
            "# accept_queue = 8080",
            "accept_queue = 8080\nagent = \"unix:/a\"",
            1,
        );
    let text = parse(&status).unwrap_err().to_string();
    assert!(text.contains("agents ask no status page"), "{text}");
    let both = EXAMPLE.replace(
        "# [balancer.haproxy]",
        "[balancer.haproxy]\nsocket = \"/s\"\nbackend = \"b\"",
    );
    assert!(parse(&both).unwrap_err().to_string().contains("exactly one"));
}

#[test]
fn no_password_is_shown_by_an_error_or_by_debug_output() {
    let password = |text: &str| parse(&whole().replace("01:02:03:04:05:06", text));
    let (config, document) = password("a1:b2:c3:d4:e5:f6").unwrap();
    assert!(document.text().contains("c3:d4"));
    assert!(!format!("{config:?} {document:?}").contains("c3:d4"));
    let error = password("a1:b2:c3:d4:e5").unwrap_err().to_string();
    assert!(error.contains("SecureOn") && !error.contains("c3:d4"), "{error}");
}
