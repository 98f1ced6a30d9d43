use super::*;

#[test]
fn a_misspelt_key_is_refused_by_name() {
    let error = toml::from_str::<GatewayConfig>("lissten = [\"127.0.0.1:1\"]").unwrap_err();
    assert!(error.to_string().contains("lissten"), "{error}");
    let nested = "[timeouts]\nconnect_timeout = 3";
    assert!(
        toml::from_str::<GatewayConfig>(nested)
            .unwrap_err()
            .to_string()
            .contains("connect_timeout")
    );
}

#[test]
fn a_whole_file_is_read() {
    let text = r#"
        listen = ["127.0.0.1:0", "[::1]:0"]
        threads = 2
        balance = "least_connections"
        drain_timeout_ms = 5
        [[backends]]
        url = "http://127.0.0.1:81"
        weight = 3
        [[tls]]
        listen = "127.0.0.1:0"
        certificate = "c.pem"
        key = "k.pem"
        [health]
        path = "/up"
        [timeouts]
        connect_timeout_ms = 7
        [retry]
        max_retries = 0
        [limits]
        max_headers = 9
        [forwarding]
        x_forwarded = "append"
    "#;
    let config: GatewayConfig = toml::from_str(text).unwrap();
    assert_eq!(config.balance, Balance::LeastConnections);
    assert_eq!(config.backends[0].weight, 3);
    assert_eq!(config.timeouts.connect_timeout_ms, 7);
    assert_eq!(config.timeouts.idle_timeout_ms, 75_000);
    assert_eq!(config.forwarding.x_forwarded, ForwardPolicy::Append);
    config.check().unwrap();
}

#[test]
fn values_out_of_range_name_key_and_value() {
    let base = GatewayConfig {
        backends: vec![BackendConfig::new("http://127.0.0.1:1")],
        ..Default::default()
    };
    base.check().unwrap();
    type Spoil = fn(&mut GatewayConfig);
    let spoilt: [(&str, Spoil); 10] = [
        ("limits.max_headers = 0: allowed is 1 to 1000", |it| {
            it.limits.max_headers = 0
        }),
        ("health.path = up: ", |it| it.health.path = Some("up".into())),
        ("health.max_ejection_percent = 101: allowed is 0 to 100", |it| {
            it.health.max_ejection_percent = 101;
        }),
        ("timeouts.queue_timeout_ms = 0: ", |it| {
            it.timeouts.queue_timeout_ms = 0
        }),
        ("threads = 257: ", |it| it.threads = 257),
        ("backends.weight = 1001 (of http://127.0.0.1:1): ", |it| {
            it.backends[0].weight = 1001
        }),
        ("backends.url = http://localhost:8080: ", |it| {
            it.backends[0].url = "http://localhost:8080".into();
        }),
        ("backends.url = http://127.0.0.1: ", |it| {
            it.listen = vec!["0.0.0.0:80".parse().unwrap()];
            it.backends[0].url = "http://127.0.0.1".into();
        }),
        ("backends = 0: ", |it| it.backends.clear()),
        ("listen = []: ", |it| it.listen.clear()),
    ];
    let mut all = base.clone();
    for (words, spoil) in spoilt {
        let mut config = base.clone();
        spoil(&mut config);
        let text = config.check().unwrap_err().to_string();
        assert!(text.starts_with(words), "{text}");
        spoil(&mut all);
    }
    // What can be judged apart is said at once; of backends that are not there nothing is.
    let found: Vec<String> = all.mistakes().iter().map(ToString::to_string).collect();
    for (words, _) in spoilt.iter().filter(|(words, _)| !words.starts_with("backends.")) {
        assert!(
            found.iter().any(|found| found.starts_with(words)),
            "{words}: {found:?}"
        );
    }
}

#[test]
fn a_wait_and_a_number_held_beyond_reason_are_refused_with_the_reason() {
    let with = |max_wait_ms, max_held| GatewayConfig {
        backends: vec![BackendConfig::new("http://127.0.0.1:1")],
        batch: BatchConfig {
            max_wait_ms,
            max_held,
            ..BatchConfig::default()
        },
        ..Default::default()
    };
    with(60_000, 1 << 20).check().unwrap();
    for (config, said) in [
        (
            with(60_001, 1),
            "batch.max_wait_ms = 60001: allowed is 1 to 60000: past a minute",
        ),
        (with(0, 1), "batch.max_wait_ms = 0: "),
        (
            with(1, (1 << 20) + 1),
            "batch.max_held = 1048577: allowed is 1 to 1048576: each request",
        ),
        (with(1, 0), "batch.max_held = 0: "),
    ] {
        let text = config.check().unwrap_err().to_string();
        assert!(text.starts_with(said), "{text}");
    }
}

#[test]
fn bounds_of_sizes_grow_and_are_few() {
    let with = |bounds: &[u64], routes| GatewayConfig {
        backends: vec![BackendConfig::new("http://127.0.0.1:1")],
        sizes: SizesConfig {
            bounds_bytes: bounds.to_vec(),
            routes,
        },
        ..Default::default()
    };
    for (bounds, classes, all) in [(&[][..], 0, 0), (&[4096], 2, 3), (&[1, 2, 3, 4, 5, 6, 7], 8, 9)] {
        let config = with(bounds, 64);
        config.check().unwrap();
        assert_eq!(
            (config.sizes.classes(), config.sizes.all_classes()),
            (classes, all)
        );
    }
    for (config, said) in [
        (
            with(&[1, 2, 3, 4, 5, 6, 7, 8], 64),
            "sizes.bounds_bytes = [1, 2, 3, 4, 5, 6, 7, 8]: allowed is at most 7",
        ),
        (with(&[10, 10], 64), "sizes.bounds_bytes = [10, 10]: "),
        (with(&[10, 5], 64), "sizes.bounds_bytes = [10, 5]: "),
        (with(&[0, 5], 64), "sizes.bounds_bytes = [0, 5]: "),
        (with(&[10], 63), "sizes.routes = 63: allowed is 64 to 1048576"),
        (with(&[10], (1 << 20) + 1), "sizes.routes = 1048577: "),
    ] {
        let text = config.check().unwrap_err().to_string();
        assert!(text.starts_with(said), "{text}");
    }
}

#[test]
fn bytes_have_a_unit_or_none_and_names_either_dash() {
    let cache = |text: &str| {
        let text = format!("[cache]\n{text}");
        toml::from_str::<GatewayConfig>(&text).map(|config| config.cache)
    };
    assert_eq!(cache("bytes = \"64MiB\"").unwrap().bytes, 64 << 20);
    assert_eq!(cache("bytes = 67108864").unwrap().bytes, 64 << 20);
    assert_eq!(
        cache("max_object_bytes = \"20 kB\"").unwrap().max_object_bytes,
        20_000
    );
    for wrong in ["bytes = \"much\"", "bytes = -1", "bytes = true", "bytes = 1.5"] {
        let error = cache(wrong).unwrap_err().to_string();
        assert!(error.contains("as 67108864 or \"64MiB\""), "{wrong}: {error}");
    }
    for policy in ["s3-fifo", "s3_fifo"] {
        let policy = cache(&format!("policy = \"{policy}\"")).unwrap().policy;
        assert_eq!(policy, CachePolicy::S3Fifo);
    }
    for balance in ["least-connections", "least_connections"] {
        let config: GatewayConfig = toml::from_str(&format!("balance = \"{balance}\"")).unwrap();
        assert_eq!(config.balance, Balance::LeastConnections);
    }
}

#[test]
fn a_cache_that_the_machine_cannot_hold_is_refused_with_what_it_can() {
    let config = |bytes| GatewayConfig {
        cache: CacheConfig {
            bytes,
            ..CacheConfig::default()
        },
        ..GatewayConfig::default()
    };
    let memory = 8 << 30;
    let refused = config(4 << 40).check_memory(memory).unwrap_err().to_string();
    assert!(
        refused.starts_with("cache.bytes = 4TiB: allowed is at most the 8GiB of memory")
            && refused.contains(": 4GiB at most"),
        "{refused}"
    );
    for bytes in [0, 1 << 30, memory] {
        config(bytes).check_memory(memory).unwrap();
    }
}

#[test]
fn an_interval_over_its_limit_is_told_the_limit_and_whose_it_is() {
    let refused = |target_ms| {
        let config = GatewayConfig {
            backends: vec![BackendConfig::new("http://127.0.0.1:1")],
            target_ms,
            batch: BatchConfig {
                interval_ms: Some(2_000),
                ..BatchConfig::default()
            },
            ..Default::default()
        };
        config.check().unwrap_err().to_string()
    };
    let by_wait = "batch.interval_ms = 2000: allowed is 0 to 1000: the longest that a request may be held, `batch.max_wait_ms`";
    assert_eq!(refused(None), by_wait);
    assert_eq!(refused(Some(5_000)), by_wait);
    assert!(
        refused(Some(250)).contains("allowed is 0 to 125: half of the latency that is promised, `target_ms`")
    );
}

#[test]
fn requests_go_to_the_fewest_unless_another_balance_is_written() {
    let rule = |text: &str| toml::from_str::<GatewayConfig>(text).unwrap().balance;
    assert_eq!(rule(""), Balance::LeastConnections);
    assert_eq!(
        rule("sizes = { bounds_bytes = [4096] }"),
        Balance::LeastConnections
    );
    let written = "balance = \"round_robin\"\nsizes = { bounds_bytes = [4096] }";
    assert_eq!(rule(written), Balance::RoundRobin);
}
