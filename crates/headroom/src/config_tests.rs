use super::example_tests::{gaps, written_out};
use super::*;
use headroom_control::LawName;

const GOOD: &str = r#"[slo]
percentile = 95
target_ms = 250

[gateway]
backends = [{ url = "http://127.0.0.1:8081" }]

[service]
cgroup = "/web"
requests_per_core_s = 250

[law]
name = "slo-power"

[law.slo-power]
guard = 0.8
"#;

fn parse(text: &str) -> Result<(Config, Document), ConfigErrors> {
    Config::checked(Document::shipped("headroom.toml", text), |names| names)
}

fn error(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from));
    parse(&GOOD.replace(from, to))
        .expect_err("a mistake must not pass")
        .to_string()
}

#[test]
fn the_example_is_valid_and_so_is_each_of_its_commented_keys() {
    parse(EXAMPLE).unwrap();
    // The four names of a service exclude each other, the files of tls are not there, and the gateway is the telemetry.
    let alone = [
        "systemd_unit",
        "container",
        "pid",
        "tls",
        "[telemetry.haproxy]",
        "[telemetry.prometheus]",
    ];
    parse(&written_out(EXAMPLE, &alone)).unwrap();
    let (missing, named) = gaps::<Config>(EXAMPLE);
    let elsewhere = [
        // Those of [slo] are the gateway's.
        "gateway.failed_status",
        "gateway.target_ms",
        // What `headroom identify` prints.
        "law.batching.model",
        // A controller's alone: no server is switched here.
        "law.elastic",
        "law.resize",
        "law.scheduled",
        "law.servers_every_periods",
        "law.static",
    ];
    assert_eq!(missing, elsewhere);
    // Levers, and classes of connections.
    let by_name = [
        "law.constant.setting",
        "law.on-call.table",
        "law.placement.kinds",
        "law.placement.machines",
        "law.reef.table",
    ];
    assert_eq!(named, by_name);
}

#[test]
fn an_unknown_key_is_named_with_its_line() {
    let message = error("percentile = 95", "percentle = 95");
    assert!(message.starts_with("headroom.toml:2: "), "{message}");
    assert!(
        message.contains("percentle") && message.contains("percentile"),
        "{message}"
    );
    assert!(message.contains("--example"), "{message}");
    let message = error("guard = 0.8", "gaurd = 0.8");
    assert!(
        message.starts_with("headroom.toml:16: ") && message.contains("gaurd"),
        "{message}"
    );
}

#[test]
fn an_unknown_law_is_named_with_its_line() {
    let message = error("\"slo-power\"", "\"slopower\"");
    assert!(message.starts_with("headroom.toml:13: "), "{message}");
    assert!(
        message.contains("slopower") && message.contains("fixed"),
        "{message}"
    );
}

#[test]
fn a_percentile_outside_its_range_is_named_with_its_line_and_value() {
    for bad in ["0", "100", "-5", "123.4", "nan"] {
        let message = error("percentile = 95", &format!("percentile = {bad}"));
        assert!(
            message.starts_with("headroom.toml:2: slo.percentile"),
            "{message}"
        );
        assert!(message.contains("between 0 and 100"), "{message}");
    }
}

#[test]
fn a_parameter_outside_its_range_is_named_with_its_line() {
    let message = error("guard = 0.8", "guard = 8");
    assert_eq!(
        message,
        "headroom.toml:16: law.slo-power.guard: is 8: it must be greater than 0 and at most 1"
    );
}

#[test]
fn a_target_that_no_cores_can_meet_is_refused_with_both_numbers() {
    for law in ["slo-power", "headroom", "joint"] {
        let text = GOOD.replace("target_ms = 250", "target_ms = 4");
        let message = parse(&text.replace("\"slo-power\"", &format!("{law:?}")));
        let message = message.unwrap_err().to_string();
        assert!(message.starts_with("headroom.toml:3: slo.target_ms"), "{message}");
        assert!(
            message.contains("4.000 ms") && message.contains("250.000 requests/s"),
            "{message}"
        );
    }
}

#[test]
fn a_service_is_named_once() {
    let message = error("cgroup = \"/web\"", "cgroup = \"/web\"\npid = 1");
    assert!(
        message.starts_with("headroom.toml:8: ") && message.contains("cgroup and pid"),
        "{message}"
    );
    let message = error("cgroup = \"/web\"\n", "");
    assert!(message.contains("here: none"), "{message}");
}

#[test]
fn more_cores_than_the_machine_has_are_refused() {
    let (config, document) = parse(&GOOD.replace("[law]", "[law]#").replace(
        "requests_per_core_s = 250",
        "requests_per_core_s = 250\ncores_max = 64",
    ))
    .unwrap();
    let message = config
        .core_range(&document, Cores::new(2.0))
        .unwrap_err()
        .to_string();
    assert!(
        message.starts_with("headroom.toml:11: service.cores_max"),
        "{message}"
    );
    assert!(message.contains("64") && message.contains("2 cores"), "{message}");
}

#[test]
fn the_admin_port_can_be_switched_off_and_a_word_that_is_none_is_named() {
    let listen =
        |value: &str| toml::from_str::<AdminConfig>(&format!("listen = {value}")).map(|admin| admin.listen);
    assert_eq!(listen("\"off\""), Ok(None));
    assert_eq!(listen("\"\""), Ok(None));
    assert_eq!(
        listen("\"127.0.0.1:0\""),
        Ok(Some(SocketAddr::from(([127, 0, 0, 1], 0))))
    );
    let error = listen("\"none\"").unwrap_err().to_string();
    assert!(
        error.contains("\"none\" is no IP address with a port") && error.contains("\"off\""),
        "{error}"
    );
    assert_eq!(
        AdminConfig::default().listen,
        Some(SocketAddr::from(([127, 0, 0, 1], 9187)))
    );
}

#[test]
fn another_proxy_is_listened_to_instead_of_the_gateway() {
    let without = GOOD.replace(
        "[gateway]\nbackends = [{ url = \"http://127.0.0.1:8081\" }]\n",
        "",
    );
    let message = parse(&without).unwrap_err().to_string();
    assert!(
        message.contains("gateway: is missing") && message.contains("[telemetry]"),
        "{message}"
    );
    let haproxy = "[telemetry.haproxy]\nlog = \"udp:127.0.0.1:5140\"\nstatistics = \"/run/haproxy.sock\"\n";
    parse(&format!("{without}{haproxy}")).unwrap();
    let message = parse(&format!("{GOOD}{haproxy}")).unwrap_err().to_string();
    assert!(message.contains("conflicts with [gateway]"), "{message}");
    let message = parse(&format!("{without}[telemetry]\n")).unwrap_err().to_string();
    assert!(
        message.contains("haproxy") && message.contains("prometheus"),
        "{message}"
    );
    let wrong = haproxy.replace("udp:", "tcp:");
    let message = parse(&format!("{without}{wrong}")).unwrap_err().to_string();
    assert!(
        message.contains("telemetry.haproxy.log") && message.contains("tcp:127.0.0.1:5140"),
        "{message}"
    );
    let format = haproxy.replace("statistics", "log_format = \"%ci %b\"\nstatistics");
    let message = parse(&format!("{without}{format}")).unwrap_err().to_string();
    assert!(
        message.contains("telemetry.haproxy.log_format") && message.contains("log-format"),
        "{message}"
    );
}

#[test]
fn a_prometheus_is_asked_in_one_way_that_is_whole() {
    let without = GOOD.replace(
        "[gateway]\nbackends = [{ url = \"http://127.0.0.1:8081\" }]\n",
        "",
    );
    let with = |keys: &str| {
        let queries = "url = \"https://h\"\nlatency = \"l\"\nrate = \"r\"\n";
        parse(&format!("{without}[telemetry.prometheus]\n{queries}{keys}"))
    };
    for whole in [
        "",
        "token_file = \"/t\"",
        "user = \"u\"\npassword_file = \"/p\"",
        "ca_file = \"/c\"\ncertificate_file = \"/c\"\nkey_file = \"/k\"\nserver_name = \"n\"",
    ] {
        with(whole).unwrap();
    }
    for (part, key, remedy) in [
        ("token_file = \"/t\"\nuser = \"u\"", "token_file", "leave out"),
        ("user = \"u\"", "user", "password_file"),
        ("password_file = \"/p\"", "password_file", "give user"),
        ("certificate_file = \"/c\"", "certificate_file", "key_file"),
        ("key_file = \"/k\"", "key_file", "certificate_file"),
    ] {
        let message = with(part).unwrap_err().to_string();
        let key = format!("telemetry.prometheus.{key}");
        assert!(message.contains(&key) && message.contains(remedy), "{message}");
    }
}

#[test]
fn a_wrapped_server_is_its_own_telemetry_and_gives_laws_its_levers() {
    let without = GOOD.replace(
        "[gateway]\nbackends = [{ url = \"http://127.0.0.1:8081\" }]\n",
        "",
    );
    assert!(!without.contains("[gateway]"), "{without}");
    let oncall = "[oncall]\nserver = \"db\"\nlinger_us = 50\n";
    let both = "name = [\"slo-power\", \"on-call\"]";
    let attached = format!("{without}{oncall}").replace("name = \"slo-power\"", both);
    let (config, document) = parse(&attached).unwrap();
    assert_eq!(config.oncall.as_ref().unwrap().linger_us, 50);
    let says_watched = |config: &Config| {
        let notes = config.notes(&document).unwrap();
        notes.iter().any(|note| note.contains("watched alone"))
    };
    assert!(!says_watched(&config));
    // A law without its levers only watches it, which is said.
    assert!(says_watched(&parse(&format!("{without}{oncall}")).unwrap().0));
    // Beside a gateway it has levers, and the gateway tells of the requests.
    parse(&format!("{GOOD}{oncall}")).unwrap();
    let message = parse(&format!("{without}[oncall]\nlinger_us = 50\n"))
        .unwrap_err()
        .to_string();
    assert!(message.contains("names no server"), "{message}");
}

#[test]
fn a_file_that_is_not_there_says_how_to_make_one() {
    let message = Config::read(Path::new("/nonexistent/headroom.toml"), |names| names)
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("/nonexistent/headroom.toml") && message.contains("--example"),
        "{message}"
    );
}

#[test]
fn what_is_no_toml_is_named_with_its_line() {
    let message = error("[law]", "[law");
    assert!(message.starts_with("headroom.toml:12: "), "{message}");
}

#[test]
fn what_is_written_and_does_nothing_is_noted() {
    let notes = |to: &str| {
        let text = GOOD.replace("\n[service]", &format!("\n{to}\n[service]"));
        let (config, document) = parse(&text).unwrap();
        config.notes(&document).unwrap()
    };
    let said =
        notes("[gateway.batch]\nmax_wait_ms = 500\nmax_held = 64\n[gateway.cache]\npolicy = \"lru\"\n");
    assert_eq!(said.len(), 2, "{said:?}");
    for words in [
        "gateway.batch.max_wait_ms, gateway.batch.max_held is written and does nothing",
        "there is no batcher, which begins with interval_ms = 0 in [gateway.batch]",
    ] {
        assert!(said[0].contains(words), "{said:?}");
    }
    assert!(
        said[1].contains("gateway.cache.policy") && said[1].contains("bytes = \"64MiB\" in [gateway.cache]"),
        "{said:?}"
    );
    let said = notes("[gateway.sizes]\nroutes = 100\n");
    assert!(
        said[0].contains("gateway.sizes.routes is written and does nothing: there is no class of sizes"),
        "{said:?}"
    );
    assert!(notes("[gateway.sizes]\nroutes = 100\nbounds_bytes = [4096]\n").is_empty());
    assert!(notes("[gateway.batch]\ninterval_ms = 0\nmax_wait_ms = 500\n[gateway.cache]\nbytes = 8388608\npolicy = \"lru\"\n").is_empty());
}

#[test]
fn what_a_law_cannot_go_by_is_noted() {
    let notes = |law: &str, more: &str| {
        let text = GOOD.replace("\"slo-power\"", law) + more;
        let (config, document) = parse(&text).unwrap();
        config.notes(&document).unwrap().concat()
    };
    let batches = "[law.dvfs]\ncpu_use = \"batches\"\n";
    let said = notes("\"dvfs\"", batches);
    assert!(
        said.contains("law.dvfs.cpu_use = \"batches\" is of no effect: there is no batcher"),
        "{said}"
    );
    for (law, more) in [
        ("\"dvfs\"", "[law.dvfs]\ncpu_use = \"utilisation\"\n".to_owned()),
        ("\"dvfs\"", format!("{batches}[gateway.batch]\ninterval_ms = 0\n")),
        ("\"slo-power\"", batches.to_owned()),
    ] {
        assert_eq!(notes(law, &more), "", "{law}: {more}");
    }
    let with_batcher = |more: &str| {
        notes(
            "\"batching\"",
            &format!(
                "{more}[gateway.batch]\ninterval_ms = 0\n[gateway.cache]\nbytes = \"2MiB\"\ncollapse = false\n"
            ),
        )
    };
    let said = with_batcher("[law.batching]\nreference_ms = 900\n");
    assert!(
        said.contains("law.batching.reference_ms is 900, above slo.target_ms, 250"),
        "{said}"
    );
    assert_eq!(with_batcher("[law.batching]\nreference_ms = 200\n"), "");
    let with_cache =
        |law: &str, cache: &str| notes(law, &format!("[gateway.batch]\ninterval_ms = 0\n{cache}"));
    let said = with_cache("\"seek\"", "");
    assert!(
        said.contains("the law seek holds requests") && said.contains("there is no cache"),
        "{said}"
    );
    let said = with_cache("\"seek\"", "[gateway.cache]\nbytes = \"2MiB\"\n");
    assert!(
        said.contains("write collapse = false in [gateway.cache]"),
        "{said}"
    );
    assert_eq!(with_cache("\"slo-power\"", ""), "");
}

/// The mistakes of a file in which these stand after the law's name and at the end, a line each.
fn mistakes(law: &str, more: &str) -> Vec<String> {
    let text = GOOD.replace("\"slo-power\"", law) + more;
    let errors = parse(&text).err();
    let errors = errors.iter().flat_map(ConfigErrors::iter);
    errors.map(ToString::to_string).collect()
}

#[test]
fn what_a_law_asks_of_the_gateway_s_levers_is_judged_beside_all_else_that_the_file_gets_wrong() {
    let batcher = "[gateway.batch]\ninterval_ms = 0\nmax_wait_ms = 200\n";
    for (law, more, wanted) in [
        (
            "\"batching\"",
            "[law.batching]\nmin_interval_ms = 300\n",
            "law.batching.min_interval_ms: is 300: it must be at most 125",
        ),
        (
            "\"batching-dvfs\"",
            "[law.batching]\nmax_interval_ms = 240\n",
            "law.batching.max_interval_ms: is 240: the gateway holds requests for 125 ms at most",
        ),
        (
            "\"batching\"",
            "[law.batching]\nexplore_max_ms = 220\n",
            "law.batching.explore_max_ms: is 220: it must be between 0 and 125",
        ),
        (
            "\"seek\"",
            "[law.seek]\nmax_interval_ms = 260\n",
            "law.seek.max_interval_ms: is 260: the gateway holds",
        ),
        (
            "\"joint\"",
            "[law.seek]\nmax_interval_ms = 260\n",
            "law.seek.max_interval_ms: is 260: the gateway holds",
        ),
        (
            "[\"slo-power\", \"constant\"]",
            "[law.constant]\nsetting = { batch_interval = 0.3 }\n",
            "law.constant.setting.batch_interval: is 0.3 seconds: 0 to 0.125 seconds here",
        ),
        (
            "\"dynamic\"",
            "",
            "law.name: dynamic moves the lever servers, which is not here",
        ),
    ] {
        let more = format!("{batcher}{more}");
        let found = mistakes(law, &more);
        assert!(found.len() == 1 && found[0].contains(wanted), "{more}: {found:?}");
        // Neither of the others hides it.
        let found = mistakes(law, &format!("{more}[record]\nmax_mib = 0\nmax = 1\n"));
        assert_eq!(found.len(), 3, "{more}: {found:?}");
        assert!(found.iter().any(|one| one.contains(wanted)), "{found:?}");
    }
    // What the law's own table gets wrong is said once.
    let found = mistakes(
        "\"batching\"",
        &format!("{batcher}[law.batching]\nmin_interval_ms = -1\n"),
    );
    assert_eq!(found.len(), 1, "{found:?}");
    // Of laws that do not run no more is asked than that their parameters can be.
    let bounds = "[law.batching]\nmin_interval_ms = 300\n";
    assert_eq!(mistakes("\"slo-power\"", bounds), [""; 0]);
    let found = mistakes("\"batching\"", bounds);
    assert!(
        found.len() == 1
            && found[0].contains("law.name: batching moves the lever batch_interval, which is not here"),
        "{found:?}"
    );
}

#[test]
fn what_follows_from_a_batcher_that_is_not_understood_is_not_said() {
    // More than a gateway holds by default.
    let found = |batcher: &str| {
        let slow = GOOD.replace("target_ms = 250", "target_ms = 9000");
        let law = slow.replace("\"slo-power\"", "\"batching\"");
        let text = format!("{law}[law.batching]\nmin_interval_ms = 1500\n{batcher}");
        parse(&text).unwrap_err().to_string()
    };
    for (batcher, wanted) in [
        (
            "[gateway.batch]\ninterval_ms = 0\nmax_wait = 1800\n",
            "gateway.batch.max_wait:",
        ),
        (
            "[gateway.batch]\ninterval_ms = 0\nmax_wait_ms = 0\n",
            "gateway.batch.max_wait_ms:",
        ),
        (
            "[gateway.bach]\ninterval_ms = 0\nmax_wait_ms = 1800\n",
            "gateway.bach:",
        ),
    ] {
        let found = found(batcher);
        assert!(found.contains(wanted) && !found.contains('\n'), "{found}");
    }
    // What is misspelt elsewhere hides nothing of it.
    let found = found("[gateway.batch]\ninterval_ms = 0\nmax_wait_ms = 1400\n[gateway.cache]\nbits = 1\n");
    assert!(
        found.contains("law.batching.min_interval_ms: is 1500: it must be at most 1400")
            && found.contains("gateway.cache.bits:"),
        "{found}"
    );
}

#[test]
fn a_law_of_the_command_line_is_judged_instead_of_the_file_s() {
    let text = format!(
        "{GOOD}[law.batching]\nmin_interval_ms = 300\n[gateway.batch]\ninterval_ms = 0\nmax_wait_ms = 200\n"
    );
    let run = |law: &str| {
        let names = LawNames::from(law.parse::<LawName>().unwrap());
        Config::checked(Document::shipped("headroom.toml", &text), |_| names.clone())
    };
    let message = run("batching").unwrap_err().to_string();
    assert!(
        message.contains("law.batching.min_interval_ms: is 300"),
        "{message}"
    );
    let (config, _) = run("fixed").unwrap();
    assert_eq!(config.law.names.to_string(), "fixed");
}

#[test]
fn cores_that_no_machine_can_be_given_are_the_file_s_mistake() {
    for (keys, wanted) in [
        (
            "cores_min = 3\ncores_max = 2",
            "service.cores_min: cores from 3 to 2",
        ),
        ("cores_step = 0", "service.cores_step: cores from"),
        (
            "lever = \"cpuset\"\ncores_step = 0.5",
            "service.cores_step: is 0.5: a cpuset has whole cores only",
        ),
    ] {
        let message = error(
            "requests_per_core_s = 250",
            &format!("requests_per_core_s = 250\n{keys}"),
        );
        assert!(message.contains(wanted) && !message.contains('\n'), "{message}");
    }
}

#[test]
fn a_key_that_is_misspelt_hides_no_other_mistake_of_the_file() {
    let text = GOOD
        .replace("percentile = 95", "percentile = 0")
        .replace("target_ms = 250", "target_m = 250")
        .replace("\"slo-power\"", "\"batching\"");
    let text = format!("{text}[gateway.batch]\ninterval_ms = 100\n[record]\nmax_mib = 0\n");
    let found = parse(&text).unwrap_err();
    let keys: Vec<_> = found.iter().map(|error| error.key().unwrap()).collect();
    assert_eq!(
        keys,
        ["slo.percentile", "slo.target_m", "record.max_mib"],
        "{found}"
    );
}

#[test]
fn the_backends_beside_one_that_lacks_its_address_are_checked() {
    let bad = "[{ weight = 1 }, { url = \"http://127.0.0.1:8081\", weight = 5000 }, { url = \"ftp://b\" }]";
    let message = error("[{ url = \"http://127.0.0.1:8081\" }]", bad);
    for wanted in [
        "backends[0].url: is missing",
        "backends.weight: is 5000",
        "ftp://b",
    ] {
        assert!(message.contains(wanted), "{wanted}: {message}");
    }
    assert_eq!(message.lines().count(), 3, "{message}");
}
