use super::*;
use crate::config::example_tests::{gaps, written_out};
use clap::Parser;
use headroom_gateway::Balance;
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
    let long = |line: &&str| line.chars().count() > COLUMNS && !line.contains(" = ");
    assert_eq!(example.lines().find(long), None);
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
        ("balance", _) => "round_robin".into(),
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
    let by_default = Balance::LeastConnections;
    assert_eq!(config.balance, by_default, "as without a file");
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
    assert_eq!((config.threads, config.balance), (1, Balance::LeastConnections));
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
            "--tls-listen 127.0.0.1:0 --tls-cert a --tls-key a --tls-cert b",
            "--tls-cert is given 2 times and --tls-key 1",
        ),
    ] {
        let error = configured(&format!("{base} {flags}")).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
}

/// What a start would find to be in use by this process itself is said before, by both flags or keys.
#[test]
fn an_address_that_is_given_twice_is_refused_by_both_names() {
    let backend = "--backend http://127.0.0.1:81";
    let tls = "--tls-cert a.pem --tls-key a.key --tls-listen";
    let remedy = "each address and port has one listener: leave one out, or give it another port";
    for (flags, said) in [
        (
            format!("--listen 127.0.0.1:80 {tls} 127.0.0.1:80"),
            "--tls-listen: 127.0.0.1:80 is given twice, --listen has it too",
        ),
        (
            "--listen 127.0.0.1:80 --listen 127.0.0.1:80".to_owned(),
            "--listen: 127.0.0.1:80 is given twice, --listen has it too",
        ),
        (
            "--listen 0.0.0.0:80 --listen 127.0.0.1:80".to_owned(),
            "--listen: 127.0.0.1:80 is given twice, --listen has 0.0.0.0:80, and one of the two is every address of this machine",
        ),
        (
            format!("--listen [::1]:80 {tls} [::]:80"),
            "--tls-listen: [::]:80 is given twice, --listen has [::1]:80, and one of the two is every address of this machine",
        ),
    ] {
        let error = configured(&format!("{backend} {flags}")).unwrap_err();
        assert_eq!(error, format!("{said}; {remedy}"));
    }
    for right in [
        format!("--listen 127.0.0.1:0 {tls} 127.0.0.1:0"),
        "--listen 127.0.0.1:80 --listen 127.0.0.2:80 --listen 127.0.0.1:82".to_owned(),
        "--listen 0.0.0.0:80 --listen [::]:80".to_owned(),
    ] {
        configured(&format!("{backend} {right}")).unwrap();
    }
    let text = format!("{BASE}listen = [\"127.0.0.1:80\"]\n[[gateway.http]]\nlisten = \"127.0.0.1:80\"\n");
    let error = with_file(&text, "").unwrap_err();
    let said = ":5: gateway.http[0].listen: 127.0.0.1:80 is given twice, gateway.listen[0] has it too";
    assert!(error.ends_with(&format!("{said}; {remedy}")), "{error}");
    let error = with_file(&text, "--listen 0.0.0.0:80").unwrap_err();
    let said = ":5: gateway.http[0].listen: 127.0.0.1:80 is given twice, --listen has 0.0.0.0:80";
    assert!(error.contains(said), "{error}");
}

/// A file of certificates is named by its flag, or by its key with the number of its table.
#[test]
fn a_file_that_cannot_be_used_is_named_by_its_flag_or_key() {
    let refused = |words: &str| {
        let configured = Configured::read(&args(words)).unwrap();
        let error = headroom_gateway::Gateway::check(configured.config(), |_| false).unwrap_err();
        configured.refused(error).to_string()
    };
    let base = "--listen 127.0.0.1:0 --backend http://127.0.0.1:81";
    assert_eq!(
        refused(&format!(
            "{base} --tls-listen 127.0.0.1:0 --tls-cert nope.pem --tls-key nope.key"
        )),
        "--tls-cert nope.pem: cannot be read: there is no such file"
    );
    let folder = std::env::temp_dir();
    let file = file(&format!(
        "{BASE}listen = [\"127.0.0.1:0\"]\n[[gateway.tls]]\nlisten = \"127.0.0.1:0\"\ncertificates = [\n  \
         {{ certificate = \"{}\", key = \"b.key\" }},\n]\n",
        folder.display()
    ));
    let error = refused(&format!("--config {}", file.path().display()));
    let said = format!(
        "{}:7: gateway.tls[0].certificates[0].certificate: {}: cannot be read: it is a folder",
        file.path().display(),
        folder.display()
    );
    assert_eq!(error, said);
}

#[test]
fn what_follows_from_nothing_is_refused() {
    let text = format!(
        "{BASE}listen = [\"127.0.0.1:0\"]\n[[gateway.tls]]\nlisten = \"127.0.0.1:0\"\ncertificate = \"a\"\nkey = \"b\"\nrequire = false\n"
    );
    let error = with_file(&text, "").unwrap_err();
    assert!(
        error.contains("gateway.tls.require: is false: allowed is nothing without `gateway.tls.client_ca`"),
        "{error}"
    );
    let words = "gateway --listen 127.0.0.1:0 --backend http://127.0.0.1:81 --health-interval 50";
    let error = Line::try_parse_from(words.split(' '))
        .map(|_| ())
        .unwrap_err()
        .to_string();
    assert!(error.contains("--health <PATH>"), "{error}");
    let text = format!("{BASE}[gateway.resolver]\nresolv_conf = \"/nonexistent/resolv.conf\"\n");
    let file = file(&text);
    let configured = Configured::read(&args(&format!(
        "--config {} --listen 127.0.0.1:0",
        file.path().display()
    )))
    .unwrap();
    let error = headroom_gateway::Gateway::check(configured.config(), |_| false).unwrap_err();
    let error = configured.refused(error).to_string();
    assert!(
        error.contains(
            ":4: gateway.resolver.resolv_conf: is /nonexistent/resolv.conf: allowed is a file that can be read, and there is no such file"
        ),
        "{error}"
    );
}

#[test]
fn what_is_written_in_another_form_than_it_is_wanted_is_answered_with_the_right_one() {
    for (text, said) in [
        (
            "[gateway]\nbackends = [\"http://127.0.0.1:81\"]\n".to_owned(),
            "expected a table, as { url = \"http://10.0.0.7:8081\" }",
        ),
        (
            format!("{BASE}listen = [\"127.0.0.1\"]\n"),
            "it has no port: write 127.0.0.1:8080",
        ),
        (
            format!("{BASE}[gateway.resolver]\nnameservers = [\"10.0.0.2\"]\n"),
            "it has no port: write 10.0.0.2:53",
        ),
    ] {
        let error = with_file(&text, "").unwrap_err();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_mistake_in_a_class_is_said_of_that_class_and_what_follows_from_it_is_not() {
    let class = "[[gateway.admission.classes]]\nname = \"pay\"\npaths = [\"/pay\"]\n";
    let rest = "[[gateway.admission.classes]]\nname = \"rest\"\n";
    for (classes, said) in [
        (
            format!("{}{rest}", class.replace("paths", "path")),
            &["classes[0].path: unknown field `path`"][..],
        ),
        (
            format!("{class}{rest}headers = [\"user-agent: bot\"]\n"),
            &["classes[1].headers[0]: invalid type"],
        ),
        (
            format!("{class}{rest}{}", rest.replace("rest", "all")),
            &["classes[2]: is without conditions: allowed is paths, hosts, methods or headers here"],
        ),
        (
            format!("{class}{class}"),
            &[
                "classes[1].name: is pay: allowed is a name of its own: `gateway.admission.classes[0]` has this one",
            ],
        ),
        (
            format!("{rest}{}", class.replace("/pay", "pay")),
            &["classes[1].paths[0]: is pay: allowed is a path from its first slash on"],
        ),
        (
            format!("{class}hosts = [\"a.example\", \"b.example:80\"]\n"),
            &["classes[0].hosts[1]: is b.example:80: allowed is a whole host without a port"],
        ),
        (
            format!("{class}hosts = [\"*.example.com\"]\n"),
            &["classes[0].hosts[0]: is *.example.com: allowed is a whole host without a port and without *"],
        ),
        (
            format!("{class}headers = [{{ name = \"user-agent\", contains = \"\" }}]\n"),
            &["classes[0].headers[0].contains: is empty: allowed is what the value is to hold"],
        ),
        (
            format!("{}{rest}", class.replace("/pay", "/")),
            &["classes[0].paths[0]: is /: allowed is a path that is not of every request"],
        ),
        (
            format!("{}{rest}", class.replace("/pay", "")),
            &["classes[0].paths[0]: is : allowed is a path from its first slash on"],
        ),
        (
            format!(
                "{}{rest}",
                class.replace("/pay", "/x/..%2fy\", \"/pay/..;/x\", \"/x%zz")
            ),
            &[
                "classes[0].paths[0]: is /x/..%2fy: allowed is a path that all servers read alike",
                "classes[0].paths[1]: is /pay/..;/x: allowed is a path that all servers read alike",
                "classes[0].paths[2]: is /x%zz: allowed is a path that all servers read alike",
            ],
        ),
        (
            format!("{}{rest}", class.replace("\"/pay\"", "")),
            &["classes[0].paths: an empty list: name a path at least"],
        ),
        (
            format!(
                "{class}{}{rest}",
                class.replace("\"pay\"", "\"card\"").replace("/pay", "/pay/card")
            ),
            &["classes[1].paths[0]: is /pay/card: allowed is what is not all in a class before it"],
        ),
        (
            format!(
                "{}hosts = [\"a.example\"]\n{rest}",
                class.replace("paths = [\"/pay\"]\n", "methods = [\"POST\", \"PUT\"]\n")
            ) + "[[gateway.admission.classes]]\nname = \"late\"\nmethods = [\"PUT\"]\nhosts = [\"A.example\"]\n",
            &["classes[2]: is late: allowed is what is not all in a class before it"],
        ),
        (
            rest.replace("rest", "others").to_owned(),
            &["classes[0].name: is others: allowed is any other name"],
        ),
    ] {
        let error = with_file(&format!("{BASE}{classes}"), "").unwrap_err();
        assert_eq!(error.lines().count(), said.len(), "{error}");
        for (line, said) in error.lines().zip(said) {
            assert!(line.contains(&format!("gateway.admission.{said}")), "{error}");
        }
    }
    // Behind it is nothing that it could hide; and where more is asked it is not every request.
    let root = class.replace("/pay", "/").replace("\"pay\"", "\"all\"");
    with_file(&format!("{BASE}{class}{root}"), "").unwrap();
    // The wider class behind has what is left.
    let card = class
        .replace("\"pay\"", "\"card\"")
        .replace("/pay", "/pay/café\", \"/a\\\"b");
    with_file(&format!("{BASE}{card}{class}"), "").unwrap();
    with_file(&format!("{BASE}{root}methods = [\"POST\"]\n{rest}"), "").unwrap();
    let text = format!(
        "{BASE}{class}{}",
        class.replace("/pay", "pay").replace("\"pay\"\n", "\"other\"\n")
    );
    let error = with_file(&text, "").unwrap_err();
    let line = text.lines().position(|line| line == "paths = [\"pay\"]").unwrap() + 1;
    assert!(
        error.contains(&format!(":{line}: gateway.admission.classes[1].paths[0]")),
        "{error}"
    );
}

#[test]
fn what_is_perhaps_not_meant_is_said() {
    let said = |words: &str| {
        let base = "--listen 127.0.0.1:0 --backend http://127.0.0.1:81";
        super::super::notes(&configured(&format!("{base} {words}")).unwrap(), false).join("\n")
    };
    assert_eq!(said("--backend http://127.0.0.1:82"), "");
    let twice = said("--backend http://127.0.0.1:81/");
    assert!(
        twice.contains("http://127.0.0.1:81/ is given more than once"),
        "{twice}"
    );
    let config = with_file(&format!("{BASE}[gateway.health]\nrise = 4\n"), "").unwrap();
    assert!(super::super::notes(&config, true)[0].contains("without health.path"));
    let of_places = |places: usize| {
        let text = format!(
            "{BASE}[gateway.limits]\nmax_queued = {places}\n[[gateway.admission.classes]]\nname = \"shop\"\npaths = [\"/cart\"]\n"
        );
        super::super::notes(&with_file(&text, "").unwrap(), true).join("\n")
    };
    assert!(of_places(0).contains("nobody waits"), "{}", of_places(0));
    assert!(of_places(1).contains("`others`"), "{}", of_places(1));
    assert_eq!(of_places(2), "");
}
