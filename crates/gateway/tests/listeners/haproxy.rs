//! Behind an HAProxy that sends the PROXY protocol.

use crate::common::process::{Process, free_address, version};
use crate::common::{Backend, Client, config, ok, start};
use headroom_gateway::HttpListenConfig;

#[test]
fn the_client_of_an_haproxy_is_ours() {
    if version("haproxy", "-v").is_none() {
        println!("skipped: haproxy is not installed");
        return;
    }
    let backend = Backend::http(|request| ok(request.header("x-forwarded-for").unwrap_or("none")));
    let mut config = config(&[&backend]);
    let mut listener = HttpListenConfig::new("127.0.0.1:0".parse().unwrap());
    listener.proxy_protocol = true;
    listener.trusted = vec!["127.0.0.1".parse().unwrap()];
    config.listen.clear();
    config.http = vec![listener];
    let (_gateway, address) = start(config);
    for (how, client, seen) in [
        ("send-proxy", "127.0.0.1", "127.0.0.1"),
        ("send-proxy-v2", "127.0.0.1", "127.0.0.1"),
        ("send-proxy", "127.77.0.3", "127.77.0.3"),
        (
            "send-proxy-v2 proxy-v2-options crc32c,unique-id",
            "127.77.0.4",
            "127.77.0.4",
        ),
        // Its health check says LOCAL.
        ("send-proxy-v2 check", "127.77.0.5", "127.77.0.5"),
    ] {
        let to = free_address();
        let text = format!(
            "global\n maxconn 50\ndefaults\n mode tcp\n timeout connect 5s\n timeout client 20s\n timeout server 20s\n\
             frontend front\n bind {to}\n default_backend back\n\
             backend back\n server gateway {address} {how}\n"
        );
        let _haproxy = Process::haproxy(&text, &[to]);
        let mut client = Client::from(&format!("{client}:0"), to);
        assert_eq!(client.get("/").text(), seen, "{how}");
    }
}
