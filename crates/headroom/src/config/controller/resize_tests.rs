use super::*;
use crate::config::example_tests::{gaps, written_out};
use headroom_control::ElasticTuning;
use headroom_control::capacity::QueueTuning;
use headroom_control::resize::Maintenance;

/// The example, with the keys that are commented out and can stand together.
fn whole() -> String {
    let alone = [
        "failed_status",
        "[haproxy]",
        "slots",
        "[telemetry.haproxy]",
        "[telemetry.prometheus]",
    ];
    written_out(EXAMPLE, &alone)
}

fn parse(text: &str) -> Result<(ControllerFile, Document), ConfigErrors> {
    ControllerFile::checked(Document::shipped("resize.toml", text), "resize")
}

#[test]
fn the_example_is_a_configuration_also_with_every_key_written() {
    let (config, _) = parse(EXAMPLE).unwrap();
    assert_eq!(config.demand(), Demand::Balancer);
    assert_eq!(config.law.names.to_string(), "static");
    assert!(config.resizes() && !config.commands());
    parse(&whole()).unwrap();
    let (mut missing, named) = gaps::<ControllerFile>(EXAMPLE);
    // What each node may have stands in the first; the kinds of switch differ.
    missing.retain(|key| {
        !key.starts_with("nodes.web") || key.starts_with("nodes.web1") || key.contains(".power.")
    });
    assert_eq!(
        missing,
        ["capacity.queue.sampling_period_s", "law.batching.model"],
        "they are the control period, and what headroom identify prints"
    );
    let password = |node: &str| format!("nodes.{node}.power.password");
    let by_name = [
        "gateways",
        "law.constant.setting",
        "law.on-call.table",
        "law.placement.kinds",
        "law.placement.machines",
        "law.reef.table",
        "nodes",
    ];
    assert_eq!(named[..7], by_name);
    assert_eq!(named[7..], [password("web2"), password("web3")], "file or env");
}

#[test]
fn the_examples_defaults_are_the_programs() {
    let (short, _) = parse(EXAMPLE).unwrap();
    let (long, _) = parse(&whole()).unwrap();
    assert_eq!(short.law.resize, long.law.resize);
    let elastic = |tuning: &ElasticTuning| ElasticTuning {
        servers: Vec::new(),
        ..tuning.clone()
    };
    assert_eq!(elastic(&short.law.elastic), elastic(&long.law.elastic));
    let power = PowerTuning {
        drained_for_s: Some(0.0),
        ..short.power
    };
    assert_eq!(power, long.power);
    assert_eq!(
        QueueTuning {
            queue_limit: None,
            ..long.capacity.queue
        },
        short.capacity.queue
    );
    assert_eq!(short.control.period_ms, long.control.period_ms);
    assert_eq!(short.exit.wait_s, long.exit.wait_s);
    assert_eq!(short.record.db, long.record.db);
    assert_eq!(short.cluster.power_poll_s, long.cluster.power_poll_s);
    assert_eq!(short.admin.listen, long.admin.listen);
    assert_eq!(short.energy, Some(ServerPower::default()));
}

#[test]
fn the_elastic_law_is_given_what_other_tables_say() {
    let text = EXAMPLE
        .replacen("name = \"static\"", "name = \"elastic\"", 1)
        .replacen("booting_w = 65.0", "booting_w = 70.0", 1)
        .replacen("# trial_s = 30.0", "trial_s = 20.0", 1)
        .replacen("# zone = \"a\"", "zone = \"a\"", 1)
        .replacen("# full_w = 65.0", "full_w = 130.0", 1);
    let missing = parse(&text).unwrap_err().to_string();
    assert!(missing.contains("accept_queue: is missing"), "{missing}");
    let mut text = text;
    for port in 8_081..8_085 {
        text = text.replacen("\nmember = ", &format!("\naccept_queue = {port}\n member = "), 1);
    }
    let (config, _) = parse(&text).unwrap();
    assert_eq!(config.power.drained_for_s, Some(20.0));
    let elastic = &config.law.elastic;
    assert_eq!(elastic.power.booting_w, 70.0);
    let zones: Vec<usize> = elastic.servers.iter().map(|server| server.zone).collect();
    assert_eq!(zones, [0, 1, 1, 1]);
    let watts = |at: usize| elastic.servers[at].full.map(Watts::get);
    assert_eq!((watts(0), watts(1)), (Some(130.0), Some(65.0)));
    let kinds: Vec<usize> = elastic.servers.iter().map(|server| server.kind).collect();
    assert_eq!(kinds, [0, 1, 1, 1]);
}

#[test]
fn an_operator_says_whether_a_server_is_taken_out_or_how() {
    let with = |value: &str| EXAMPLE.replace("# maintenance = false", &format!("maintenance = {value}"));
    let of = |value: &str| parse(&with(value)).unwrap().0.taken_out();
    assert!(of("false").is_empty());
    assert_eq!(of("true").get("web1"), Some(&Maintenance::default()));
    let how = of("{ power_off = true, at_once = true }");
    let both = Maintenance {
        power_off: true,
        at_once: true,
    };
    assert_eq!((how.len(), how.get("web1")), (1, Some(&both)));
    let wrong = |text: String| parse(&text).unwrap_err().to_string();
    for (value, said) in [
        ("1", "power_off and at_once"),
        ("{ off = true }", "unknown field `off`"),
    ] {
        let error = wrong(with(value));
        assert!(error.contains(said), "{error}");
    }
    // Somebody has to take the requests.
    let all = ["web2", "web3", "web4"].iter().fold(with("true"), |text, name| {
        let table = format!("[nodes.{name}]\n");
        text.replace(&table, &format!("{table}maintenance = true\n"))
    });
    let error = wrong(all);
    assert!(
        error.contains("nodes.web1.maintenance") && error.contains("is of every node"),
        "{error}"
    );
}

#[test]
fn an_haproxy_stands_in_the_gateways_place() {
    let text = EXAMPLE
        .replace("[gateways]\ng1 = \"unix:/run/headroom/gateway.sock\"\n", "")
        .replace("# [haproxy]", "[haproxy]")
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
        let text = EXAMPLE
            .replace("name = \"static\"", "name = \"scheduled\"")
            .replace("[law.scheduled]", &format!("[law.scheduled]\n{rest}"));
        parse(&text).map(|(config, _)| config.law.names.to_string())
    };
    let curve = "curve_per_s = [100.0, 700.0]";
    assert_eq!(scheduled("slots = [1, 2]"), Ok("scheduled".to_owned()));
    assert!(scheduled(&format!("{curve}\ncapacity_per_s = 595.0")).is_ok());
    for rest in [
        "",
        curve,
        "slots = [1]\ncurve_per_s = [1.0]",
        "slots = [0]",
        "curve_per_s = [-1.0]\ncapacity_per_s = 595.0",
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
            "law.static.capacity_per_s: is missing",
        ),
        (
            "capacity_per_s = 595.0",
            "capacity_per_s = 0.0",
            "law.static.capacity_per_s",
        ),
        (
            "name = \"static\"",
            "name = \"dynamic\"",
            "nodes.web1.accept_queue: is missing",
        ),
        (
            "# demand = \"balancer\"",
            "demand = \"accept-queue\"",
            "nodes.web1.accept_queue: is missing",
        ),
        (
            "# accept_queue = 8080",
            "accept_queue = 8080\nagent = \"web1:7443\"",
            "nodes.web1.agent: web1:7443 is TCP",
        ),
        (
            "# accept_queue = 8080",
            "accept_queue = 8080\nagent = \"web1\"",
            "nodes.web1.agent: \"web1\" is no address",
        ),
        ("unix:/run/headroom/gateway.sock", "g1:7443", "g1:7443 is TCP"),
        (
            "http://10.0.0.12:8080",
            "http://10.0.0.11:8080",
            "nodes.web2.member: \"http://10.0.0.11:8080\" is the member of web1 too",
        ),
        (
            "tcp:10.0.0.12:8080",
            "tcp:10.0.0.11:8080",
            "nodes.web2.check: is where web1 takes requests",
        ),
        (
            "http://10.0.0.11:8080/healthz",
            "http://10.0.0.14:8080/healthz",
            "nodes.web1.check: is where web4 takes requests",
        ),
        (
            "# accept_queue = 8080",
            "accept_queue = 0",
            "nodes.web1.accept_queue: 0 is no port",
        ),
        (
            "tcp:10.0.0.12:8080",
            "10.0.0.12:8080",
            "is no check: write tcp:HOST:PORT",
        ),
        ("# period_ms = 1000.0", "period_ms = 1.0", "control.period_ms"),
        ("# margin = 0.0", "margin = 1.5", "law.resize.margin"),
        ("# backoff_s = 30.0", "backoff_s = 0.0", "power.backoff_s"),
        (
            "# min_servers = 1",
            "min_servers = 9",
            "law.elastic.min_servers: asks for 9 servers, and there are 4",
        ),
        (
            "# reserve = 0",
            "reserve = 4",
            "asks for 5 servers, and there are 4",
        ),
        (
            "# survive_zone = false",
            "survive_zone = true",
            "give each server its zone",
        ),
        ("off_w = 0.0", "off_w = -1.0", "energy.off_w"),
        (
            "full_w = 65.0",
            "full_w = 6.0",
            "energy.full_w: is 6: a busy server draws no less than an idle one, energy.idle_w = 60",
        ),
        (
            "off_w = 0.0",
            "off_w = 60.5",
            "energy.idle_w: is 60: an idle server",
        ),
        (
            "full_w = 65.0",
            "",
            "energy.full_w: is missing: add it to `energy`, in `[energy]`",
        ),
        ("name = \"static\"", "name = []", "law.name: is empty: name a law"),
        ("# keep = 0.9", "keep = 1.0", "capacity.queue.keep"),
        ("# keep = 0.9", "kind = \"by-guess\"", "by-guess"),
        (
            "# keep = 0.9",
            "sampling_period_s = 2.0",
            "capacity.queue.sampling_period_s",
        ),
        ("kind = \"ipmi\"", "kind = \"apc\"", "apc"),
        (
            "name = \"static\"",
            "name = [\"static\", \"slo-power\"]",
            "nodes.web1.agent: is missing: slo-power sets each node through its agent",
        ),
        (
            "[nodes.web2.power]\nkind = \"ipmi\"",
            "[nodes.web2]\nkind = \"ipmi\"",
            "nodes.web2",
        ),
        ("mac = \"00:25:90:ab:cd:ef\"", "mac = \"web4\"", "no MAC address"),
        // Tables that were copied.
        (
            "stop = [\"ssh\", \"web4\", \"systemctl\", \"suspend\"]",
            "stop = [\"virsh\", \"shutdown\", \"web1\"]",
            "nodes.web4.power.stop: is the stop of web1 too: it would stop that one",
        ),
        (
            "kind = \"redfish\"\nurl = \"https://web3-bmc\"",
            "kind = \"ipmi\"\nhost = \"web2-bmc\"",
            "nodes.web3.power.host: is the service processor of web2 too",
        ),
    ] {
        assert!(EXAMPLE.contains(from), "{from}");
        let error = parse(&EXAMPLE.replacen(from, to, 1)).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains(said) && error.iter().all(|error| error.line.is_some()),
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
    assert!(
        text.contains("nodes.web2.accept_queue: 8080 is the accept_queue of web1 too"),
        "{text}"
    );
    // One place that tells of all servers, by the path, is none of theirs.
    let by_a_third = |first: &str, second: &str| {
        let text = EXAMPLE.replacen("10.0.0.11:8080/healthz", &format!("10.0.0.9:81/{first}"), 1);
        parse(&text.replacen("tcp:10.0.0.12:8080", &format!("http://10.0.0.9:81/{second}"), 1))
    };
    by_a_third("web1", "web2").unwrap();
    let text = by_a_third("health", "health").unwrap_err().to_string();
    assert!(
        text.contains("nodes.web2.check: is the check of web1 too"),
        "{text}"
    );
    let text = EXAMPLE
        .replacen("# survive_zone = false", "survive_zone = true", 1)
        .replace("\nmember = ", "\nzone = \"a\"\nmember = ");
    let text = parse(&text).unwrap_err().to_string();
    assert!(text.contains("all are in the same zone, \"a\""), "{text}");
    let status = EXAMPLE
        .replacen("# method = \"auto\"", "method = \"status\"", 1)
        .replacen(
            "# accept_queue = 8080",
            "accept_queue = 8080\nagent = \"unix:/a\"",
            1,
        );
    let text = parse(&status).unwrap_err().to_string();
    assert!(text.contains("agents ask no status page"), "{text}");
    let both = EXAMPLE.replace("# [haproxy]", "[haproxy]\nsocket = \"/s\"\nbackend = \"b\"");
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

#[test]
fn what_a_law_needs_is_not_asked_of_the_default_where_the_law_s_name_is_misspelt() {
    let text = EXAMPLE.replace("name = \"static\"", "name = \"elastics\"");
    let error = parse(&text).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("law.name: \"elastics\" is no law"), "{error}");
}

#[test]
fn a_time_in_hand_that_is_short_beside_the_target_is_noted() {
    for (ms, is_noted) in [("1.0", true), ("250.0", false), ("0", false)] {
        let text = EXAMPLE.replacen("[cluster]\n", &format!("[cluster]\nin_hand_ms = {ms}\n"), 1);
        assert_eq!(parse(&text).unwrap().0.in_hand_note().is_some(), is_noted, "{ms}");
    }
}

#[test]
fn a_password_that_is_written_into_the_file_is_in_no_message() {
    let switch = "[nodes.web1.power]\nkind = \"ipmi\"\nhost = \"bmc\"\nuser = \"u\"\n";
    let with_power = |power: &str| {
        let text = format!(
            "[law]\nname = \"static\"\n[slo]\ntarget_ms = 250\n[nodes.web1]\nmember = \"http://10.0.0.1\"\n{power}"
        );
        let line = |has: &str| text.lines().position(|line| line.contains(has)).unwrap() + 1;
        (parse(&text).unwrap_err().to_string(), line("hunter2"))
    };
    for written in [
        "password = \"hunter2\"",
        "password = [\"hunter2\"]",
        "password = { value = \"hunter2\" }",
    ] {
        let (error, line) = with_power(&format!("{switch}{written}\n"));
        let said = format!("resize.toml:{line}: nodes.web1.power.password: write ");
        assert!(error.contains(&said) && !error.contains("hunter2"), "{error}");
        assert!(error.contains("{ file = \"...\" }"), "{error}");
    }
    for written in [
        "password = hunter2",
        "token = \"hunter2\"",
        "pasword = \"hunter2\"",
    ] {
        let (error, _) = with_power(&format!("{switch}{written}\n"));
        assert!(!error.contains("hunter2"), "{error}");
    }
    let inline = "power = { kind = \"ipmi\", host = \"bmc\", user = \"u\", password = \"hunter2\" }\n";
    let (error, _) = with_power(inline);
    assert!(
        error.contains("power.password: write ") && !error.contains("hunter2"),
        "{error}"
    );
    let error = with_power("power = \"ipmi\" # hunter2\n").0;
    assert!(
        error.contains("expected a table that says its kind, as { kind = \"ipmi\", host = "),
        "{error}"
    );
}

#[test]
fn figures_that_cannot_be_of_a_server_are_refused() {
    let elastic = EXAMPLE.replace("name = \"static\"", "name = \"elastic\"");
    for (from, to, said) in [
        ("# boot_s = 120.0", "boot_s = 400.0", "power.boot_timeout_s: "),
        (
            "# boot_timeout_s = 300.0",
            "boot_timeout_s = 60.0",
            "power.boot_timeout_s: is 60, and a server boots in 120 s, so each of its boots would be given up: give more than 120, or \
             write law.elastic.boot_s, which is that by default",
        ),
        (
            "# day_s = 86400.0",
            "day_s = 24.0",
            "law.elastic.day_s: is 24 seconds, of which nothing is learned: a day has 288 parts of a period of the loop at least, so give \
             288 or more",
        ),
        (
            "[cluster]\n",
            "[cluster]\nin_hand_ms = 0.05\n",
            "cluster.in_hand_ms: is less than a millisecond",
        ),
        (
            "[nodes.web1]\n",
            "[nodes.web1]\nfull_w = 3.0\n",
            "nodes.web1.full_w: is 3: a busy server draws no less than an idle one, energy.idle_w = 60",
        ),
    ] {
        assert!(elastic.contains(from), "{from}");
        let text = elastic.replacen(from, to, 1);
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_queue_at_another_port_than_requests_go_to_is_noted() {
    let notes = |queue: &str, member: &str| {
        let text = EXAMPLE.replacen("# accept_queue = 8080", queue, 1);
        let text = text.replacen("member = \"http://10.0.0.11:8080\"", member, 1);
        parse(&text).unwrap().0.queue_notes()
    };
    let own = "member = \"http://10.0.0.11:8080\"";
    assert_eq!(notes("", own), [""; 0]);
    assert_eq!(notes("accept_queue = 8080", own), [""; 0]);
    let said = notes("accept_queue = 26013", own);
    assert_eq!(said.len(), 1);
    for part in [
        "nodes.web1.accept_queue: the queue of port 26013 is watched",
        "requests go to port 8080",
        "write 8080",
    ] {
        assert!(said[0].contains(part), "{said:?}");
    }
    // The usual port of its scheme, and HAProxy's names, which tell none.
    assert_eq!(
        notes("accept_queue = 80", "member = \"http://10.0.0.11\""),
        [""; 0]
    );
    assert_eq!(notes("accept_queue = 8080", "member = \"web1\""), [""; 0]);
    assert_eq!(notes("accept_queue = 81", "member = \"http://[::1]\"").len(), 1);
}
