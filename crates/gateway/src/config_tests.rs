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
