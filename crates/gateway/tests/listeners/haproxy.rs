//! Behind an HAProxy that sends the PROXY protocol.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use crate::common::{Backend, Client, config, eventually, ok, start};
use headroom_gateway::HttpListenConfig;

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_client_of_an_haproxy_is_ours() {
    let installed = Command::new("haproxy").arg("-v").stdout(Stdio::null()).status();
    if installed.is_err() {
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
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("haproxy.cfg");
        let text = format!(
            "global\n maxconn 50\ndefaults\n mode tcp\n timeout connect 5s\n timeout client 20s\n timeout server 20s\n\
             frontend front\n bind 127.0.0.1:{port}\n default_backend back\n\
             backend back\n server gateway {address} {how}\n"
        );
        std::fs::write(&file, text).unwrap();
        let _haproxy = Running(
            Command::new("haproxy")
                .args(["-db", "-f"])
                .arg(&file)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        );
        let to = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        eventually("haproxy listens", || std::net::TcpStream::connect(to).is_ok());
        let mut client = Client::from(&format!("{client}:0"), to);
        assert_eq!(client.get("/").text(), seen, "{how}");
    }
}
