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
        ("backends.weight = 1001: ", |it| it.backends[0].weight = 1001),
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
    for (words, spoil) in spoilt {
        let mut config = base.clone();
        spoil(&mut config);
        let text = config.check().unwrap_err().to_string();
        assert!(text.starts_with(words), "{text}");
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
        refused.starts_with("cache.bytes = 4398046511104: allowed is at most the 8589934592 bytes"),
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
    assert!(refused(Some(250)).contains("allowed is 0 to 250: the latency that is promised, `target_ms`"));
}
