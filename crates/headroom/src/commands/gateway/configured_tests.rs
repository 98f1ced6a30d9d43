use super::*;
use crate::config::example_tests::{gaps, written_out};
use clap::Parser;
use toml::{Table, Value};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: GatewayArgs,
}

fn args(words: &str) -> GatewayArgs {
    let words = ["gateway"].into_iter().chain(words.split_whitespace());
    Line::try_parse_from(words)
        .unwrap_or_else(|error| panic!("{error}"))
        .args
}

fn configured(words: &str) -> Result<GatewayConfig, String> {
    let configured = Configured::read(&args(words)).map_err(|failure| format!("{failure:#}"))?;
    configured
        .config()
        .check()
        .map_err(|error| format!("{:#}", configured.refused(error)))?;
    Ok(configured.config().clone())
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

fn with_file(text: &str, flags: &str) -> Result<GatewayConfig, String> {
    let file = file(text);
    configured(&format!("--config {} {flags}", file.path().display()))
}

/// The file that tests begin with.
const BASE: &str = "[gateway]\nbackends = [{ url = \"http://127.0.0.1:81\" }]\n";

#[test]
fn the_example_has_every_key_and_is_valid_written_out() {
    let example = example();
    with_file(&example, "").unwrap();
    with_file(&written_out(&example, &["tls"]), "").unwrap();
    assert_eq!(gaps::<GatewayFile>(&example), (Vec::new(), Vec::new()));
    assert!(
        !example.contains("HAProxy"),
        "what is about the next table is left out"
    );
}

/// The places of all values of a table that are no tables themselves.
fn keys(table: &Table, path: &[String], out: &mut Vec<Vec<String>>) {
    for (key, value) in table {
        let path = [path, std::slice::from_ref(key)].concat();
        match value {
            Value::Table(inner) => keys(inner, &path, out),
            _ => out.push(path),
        }
    }
}

fn at<'a>(table: &'a Table, path: &[String]) -> Option<&'a Value> {
    let (last, before) = path.split_last()?;
    let table = before
        .iter()
        .try_fold(table, |table, key| table.get(key)?.as_table())?;
    table.get(last)
}

/// Another value of the same kind that is allowed there.
fn another(path: &str, value: &Value) -> Value {
    match (path, value) {
        ("user", _) => "nobody".into(),
        ("balance", _) => "least_connections".into(),
        ("cache.policy", _) => "lru".into(),
        ("batch.key", _) => "path".into(),
        ("health.path", _) => "/other".into(),
        ("resolver.resolv_conf" | "resolver.hosts", _) => "/etc/other".into(),
        ("forwarding.x_forwarded" | "forwarding.forwarded" | "forwarding.client_certificate", _) => {
            "append".into()
        }
        ("failed_status", _) => vec!["429"].into(),
        ("failed_grpc_status", _) => vec!["UNAVAILABLE"].into(),
        ("listen", _) => vec!["127.0.0.1:99"].into(),
        ("sources.exempt", _) => vec!["10.0.0.0/8"].into(),
        ("resolver.nameservers", _) => vec!["127.0.0.1:5353"].into(),
        ("sizes.bounds_bytes", _) => vec![100].into(),
        ("cache.bytes", _) => (64 << 20).into(),
        ("health.panic_percent" | "health.max_ejection_percent", _) => 49.into(),
        (_, Value::Integer(number)) => (number + 1).into(),
        (_, Value::Boolean(is)) => (!is).into(),
        (_, Value::Array(tables)) => Value::Array(tables.clone()),
        (_, other) => panic!("{path}: say another value than {other}"),
    }
}

/// Every key that the data plane knows can be set by the file, one by one, and then is what was written.
#[test]
fn every_key_of_the_gateway_is_set_by_its_file() {
    let whole: Table = toml::from_str(&written_out(&example(), &[])).unwrap();
    let gateway = whole["gateway"].as_table().unwrap();
    let mut paths = Vec::new();
    keys(gateway, &[], &mut paths);
    // Every key of the serialised defaults is among them: none is reachable by a program alone.
    let defaults: Table = Table::try_from(GatewayConfig::default()).unwrap();
    let mut known = Vec::new();
    keys(&defaults, &[], &mut known);
    for path in &known {
        assert!(paths.contains(path), "{path:?} is in no example");
    }
    assert!(paths.len() > 60, "{}", paths.len());
    for path in paths {
        let dotted = path.join(".");
        let value = another(&dotted, at(gateway, &path).unwrap());
        let (table, key) = match path.split_last().unwrap() {
            (key, []) => ("gateway".to_owned(), key),
            (key, tables) => (format!("gateway.{}", tables.join(".")), key),
        };
        // A burst is of no use without its rate, and is refused so.
        let rate = match &dotted[..] {
            "sources.connections_burst" => "connections_per_s = 1\n",
            "sources.requests_burst" => "requests_per_s = 1\n",
            _ => "",
        };
        let text = match &dotted[..] {
            "backends" => format!("[gateway]\nbackends = {value}\n"),
            _ if path.len() == 1 => format!("{BASE}{key} = {value}\n"),
            _ => format!("{BASE}[{table}]\n{rate}{key} = {value}\n"),
        };
        let read: GatewayFile = Document::shipped("gateway.toml", &text)
            .parse("gateway")
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        let config = with_file(&text, "").unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(config, read.gateway, "no flag is given, so none changes it");
        let written = Table::try_from(&config).unwrap();
        match at(&written, &path) {
            // Tables in a list are written with the keys that they were not given.
            Some(Value::Array(all)) if all.iter().any(Value::is_table) => {
                assert_eq!(all.len(), 1, "{dotted}")
            }
            now => assert_eq!(now, Some(&value), "{dotted}"),
        }
        assert_ne!(
            at(&defaults, &path),
            at(&written, &path),
            "{dotted} is not changed by\n{text}"
        );
    }
}

#[test]
fn a_flag_goes_before_the_file_and_its_error_names_the_flag() {
    let text = format!(
        "{BASE}threads = 3\n[gateway.limits]\nmax_request_body_bytes = \"2GiB\"\nmax_queued = 7\n[gateway.batch]\ninterval_ms = 10\n"
    );
    let config = with_file(&text, "").unwrap();
    assert_eq!(
        (config.threads, config.limits.max_request_body_bytes),
        (3, 2 << 30)
    );
    assert_eq!(
        config.balance, None,
        "what a file does not say is as it is in one of up"
    );
    let config = with_file(&text, "--threads 1 --max-request-body none --batch-max-held 9").unwrap();
    assert_eq!((config.threads, config.limits.max_request_body_bytes), (1, 0));
    assert_eq!((config.limits.max_queued, config.batch.max_held), (7, 9));
    let error = with_file(&text, "--threads 300").unwrap_err();
    assert!(error.starts_with("--threads 300: allowed is"), "{error}");
    let error = with_file(&text.replace("threads = 3", "threads = 300"), "--max-queued 4").unwrap_err();
    assert!(error.contains(":3: gateway.threads: is 300"), "{error}");
    let error = with_file(&text.replace("max_queued", "max_cued"), "").unwrap_err();
    assert!(
        error.contains("max_cued") && error.contains("headroom gateway --example"),
        "{error}"
    );
    let error = with_file(&text.replace("\"2GiB\"", "\"2 giga\""), "").unwrap_err();
    assert!(
        error.contains("limits.max_request_body_bytes") && error.contains("none"),
        "{error}"
    );
    let error = configured("--config /nonexistent/gateway.toml").unwrap_err();
    assert!(error.contains("/nonexistent/gateway.toml"), "{error}");
}

#[test]
fn without_a_file_the_flags_are_all() {
    let base = "--listen 127.0.0.1:0 --backend http://127.0.0.1:81,weight=3 --backend http://127.0.0.1:82";
    let config = configured(base).unwrap();
    assert_eq!(
        config.backends.iter().map(|one| one.weight).collect::<Vec<_>>(),
        [3, 1]
    );
    assert_eq!(
        (config.threads, config.balance),
        (1, Some(Balance::LeastConnections))
    );
    assert_eq!(config.limits.max_request_body_bytes, 1 << 30);
    let all = "--threads 2 --balance round-robin --health /up --health-interval 500 --backend-idle 3 --max-in-flight 4 --max-queued 5 \
               --retries 0 --failed-status 4xx --target-ms 300 --size-bounds 4K --max-request-body 3GiB --max-header 64KiB \
               --max-connections 6 --source-connections 7 --source-connects-per-s 8 --source-requests-per-s 9 --connect-timeout 10 \
               --queue-timeout 11 --response-timeout 12 --body-timeout 13 --header-timeout 14 --idle-timeout 15 --cache 64MiB \
               --cache-object 1MiB --cache-policy lru --cache-no-collapse --batch 20 --batch-max-wait 40 --batch-max-held 50 --batch-key path \
               --takeover --tls-listen 127.0.0.1:0 --tls-cert a.pem --tls-key a.key --tls-cert b.pem --tls-key b.key --tls-client-ca ca.pem \
               --tls-client-optional --proxy-protocol-from 10.0.0.0/8,192.0.2.7";
    let config = configured(&format!("{base} {all}")).unwrap();
    let limits = &config.limits;
    assert_eq!(
        (
            limits.max_idle_per_backend_per_core,
            limits.max_in_flight_per_backend,
            limits.max_queued
        ),
        (3, 4, 5)
    );
    assert_eq!(
        (limits.max_request_body_bytes, limits.max_header_bytes),
        (3 << 30, 64 << 10)
    );
    assert_eq!(
        (limits.max_connections_per_core, config.retry.max_retries),
        (6, 0)
    );
    let (sources, times) = (&config.sources, &config.timeouts);
    assert_eq!(
        (
            sources.max_connections,
            sources.connections_per_s,
            sources.requests_per_s
        ),
        (7, 8, 9)
    );
    assert_eq!(
        (
            times.connect_timeout_ms,
            times.queue_timeout_ms,
            times.response_header_timeout_ms
        ),
        (10, 11, 12)
    );
    assert_eq!(
        (
            times.body_timeout_ms,
            times.request_header_timeout_ms,
            times.idle_timeout_ms
        ),
        (13, 14, 15)
    );
    assert_eq!(
        (config.health.path.as_deref(), config.health.interval_ms),
        (Some("/up"), 500)
    );
    assert_eq!(config.tls[0].certificates.len(), 2);
    assert!(!config.tls[0].require && config.tls[0].client_ca.is_some());
    // Both listeners are behind the proxies.
    assert!(config.listen.is_empty());
    assert!(config.tls[0].proxy_protocol && config.http[0].proxy_protocol);
    assert_eq!(
        (config.tls[0].trusted.len(), config.http[0].trusted.len()),
        (2, 2)
    );
    for (flags, said) in [
        ("--max-header 1KiB", "--max-header 1024: allowed is 8192"),
        ("--connect-timeout 0", "--connect-timeout 0: allowed is 1 or more"),
        (
            "--backend http://127.0.0.1:81,weight=1001",
            "--backend 1001: allowed is 0 to 1000",
        ),
        (
            "--tls-listen 127.0.0.1:0 --tls-cert a --tls-key a --tls-cert b",
            "--tls-cert is given 2 times and --tls-key 1",
        ),
    ] {
        let error = configured(&format!("{base} {flags}")).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
}
