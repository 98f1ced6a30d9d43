use super::*;

#[test]
fn a_hosts_file_is_read_as_the_system_reads_it() {
    let text = "# 1.1.1.1 web\n127.0.0.1\tlocalhost web.local\n10.0.0.1 a Web # b\n::1 web\nnonsense web\n10.0.0.2 webs\n";
    let found = |name: &str| in_hosts(text, name);
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    assert_eq!(found("web"), [ip("10.0.0.1"), ip("::1")]);
    assert_eq!(found("WEBS"), [ip("10.0.0.2")]);
    assert!(found("b").is_empty() && found("10.0.0.1").is_empty());
}

#[test]
fn search_domains_come_first_where_a_name_has_few_dots() {
    let names = |name: &str, text: &str| -> Vec<String> {
        let conf = understand(text);
        candidates(name, &conf).iter().map(ToString::to_string).collect()
    };
    let text = "nameserver 127.0.0.1\noptions ndots:2 unheard-of\nsearch a.example b.example\nmeaningless\n";
    assert_eq!(names("web", text), ["web.a.example", "web.b.example", "web"]);
    assert_eq!(
        names("web.x", text),
        ["web.x.a.example", "web.x.b.example", "web.x"]
    );
    assert_eq!(
        names("web.x.y", text),
        ["web.x.y", "web.x.y.a.example", "web.x.y.b.example"]
    );
    assert_eq!(names("web.", text), ["web"]);
    assert_eq!(names("web", ""), ["web"]);
    assert_eq!(understand(text).servers.len(), 1);
}

#[test]
fn addresses_are_sorted_each_once_and_only_so_many() {
    let many = (0..200_u8)
        .rev()
        .chain(0..200)
        .map(|last| IpAddr::from([127, 0, 1, last]));
    let found = Found::new(many, 80, Duration::from_secs(7)).unwrap();
    assert_eq!(found.addresses.len(), MAX_ADDRESSES);
    assert!(found.addresses.is_sorted());
    assert!(Found::new([], 80, Duration::ZERO).is_err());
}

/// What it was asked with is let go of when the configuration changes: nothing grows.
#[test]
fn a_look_up_leaves_no_task_behind() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let server = socket.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut query = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut query) {
                // NXDOMAIN.
                let mut answer = query[..length].to_vec();
                (answer[2], answer[3]) = (0x81, 0x83);
                let _ = socket.send_to(&answer, from);
            }
        });
        let config = ResolverConfig {
            resolv_conf: folder.path().join("resolv.conf"),
            hosts: folder.path().join("hosts"),
            nameservers: vec![server],
            ..ResolverConfig::default()
        };
        let resolver = Resolver::new(&config);
        let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let mut after_some = 0;
        for turn in 0..40 {
            std::fs::write(&config.resolv_conf, format!("search d{turn}.example\n")).unwrap();
            let error = resolver.look_up("web.test", 80).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
            tokio::time::sleep(Duration::from_millis(2)).await;
            if turn == 9 {
                after_some = alive();
            }
        }
        assert!(alive() <= after_some + 5, "{} after {after_some}", alive());
    });
}
