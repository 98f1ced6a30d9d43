//! What is wrong with the servers that were found, which only the machine and an HAProxy in front of them tell: a check or an accept queue
//! that is another server's, a check where nobody listens, accept queues of which none can be measured.

use crate::check::Objections;
use crate::config::controller::ControllerFile;
use headroom_console::{ConfigError, Document, Failure};
use headroom_runtime::resize::{CheckTarget, Demand, Servers};
use headroom_telemetry::haproxy::{ServerRow, ServerState, StatisticsSocket};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::Duration;

/// How long an HAProxy has for an answer about where its servers are.
const ASK: Duration = Duration::from_secs(1);
/// The port of a service that answers nothing (RFC 863).
const DISCARD: u16 = 9;
/// What has accept queues measured where this user may not.
const MORE_RIGHTS: &str = "run as root, or with CAP_BPF and CAP_PERFMON";

/// Refuses what would have a law switch off a server that serves. What a start goes on with, as a cluster has to start beside a server that
/// is dead, is returned; a check refuses that too.
///
/// # Errors
/// What is refused, with its line.
pub fn warnings(
    (config, document): (&ControllerFile, &Document),
    servers: &mut Servers,
    is_check: bool,
) -> Result<Vec<String>, Failure> {
    let mut warnings = Vec::from_iter(unmeasured(config, servers));
    // One that does not answer is found wanting elsewhere.
    let rows = config.haproxy().and_then(|(address, table)| {
        let rows = StatisticsSocket::new(address).servers(&table.backend, ASK);
        rows.ok()
    });
    let Some(rows) = rows else {
        return Ok(warnings);
    };
    let nodes = nodes(config, document, &rows)?;
    not_of_another(document, &nodes)?;
    let limit = Duration::from_secs_f64(config.cluster.check_limit_s);
    let mut objections = Objections::default();
    for node in &nodes {
        let Some(error) = unheard_check(document, node, limit) else {
            continue;
        };
        match is_check {
            true => drop(objections.of::<()>(Err(error))),
            false => warnings.push(error.to_string()),
        }
    }
    objections.done()?;
    Ok(warnings)
}

/// That no law that goes by accept queues can save anything, where none can be measured.
fn unmeasured(config: &ControllerFile, servers: &mut Servers) -> Option<String> {
    let law = config.switching_law()?;
    let goes_by_queues = match law.as_str() {
        "dynamic" | "elastic" => true,
        "static" => config.demand() == Demand::AcceptQueue,
        _ => false,
    };
    let why = goes_by_queues.then(|| servers.unmeasured()).flatten()?;
    let remedy = match why.contains(MORE_RIGHTS) {
        true => MORE_RIGHTS,
        false => "the notes of each server say why",
    };
    Some(format!(
        "no server's accept queue can be measured: {law} will keep all {} servers on; {remedy}",
        config.nodes.len()
    ))
}

/// A node beside what HAProxy has of it.
struct Node<'a> {
    name: &'a str,
    check: &'a str,
    target: CheckTarget,
    /// The accept queue that is watched on this machine.
    queue_here: Option<u16>,
    row: &'a ServerRow,
}

fn nodes<'a>(
    config: &'a ControllerFile,
    document: &Document,
    rows: &'a [ServerRow],
) -> Result<Vec<Node<'a>>, ConfigError> {
    let mut nodes = Vec::new();
    for (name, node) in &config.nodes {
        let member = node.server.member.as_deref();
        // A name that HAProxy does not know was refused.
        let Some(row) = rows.iter().find(|row| Some(row.name.as_str()) == member) else {
            continue;
        };
        nodes.push(Node {
            name,
            check: node.server.check.as_deref().unwrap_or_default(),
            target: config.check_target(document, name)?,
            queue_here: node.server.accept_queue.filter(|_| node.agent.is_none()),
            row,
        });
    }
    Ok(nodes)
}

/// Refuses a check and an accept queue that are where HAProxy has another node's server, and not this node's: the wrong one would be switched.
fn not_of_another(document: &Document, nodes: &[Node<'_>]) -> Result<(), ConfigError> {
    for node in nodes {
        let own = node.row.address;
        let is_own = |address: SocketAddr| own.is_some_and(|own| is_same(own, address));
        let others = || {
            let others = nodes.iter().filter(|other| other.name != node.name);
            others.filter_map(|other| Some((other.name, &other.row.name, other.row.address?)))
        };
        let wrong = |key: &str, (other, member, address): (&str, &String, SocketAddr), so: &str| {
            let of_own = own.map_or_else(String::new, |own| {
                format!("; this node's member {} is at {own}", node.row.name)
            });
            let why = format!(
                "is where {other} takes requests ({address}, HAProxy's server {member}): {so}{of_own}. Give each node the member, the check and \
                 the accept_queue of the same server"
            );
            Err(document.error(&format!("nodes.{}.{key}", node.name), why))
        };
        // Names are asked for only where the ports agree.
        let at_port: Vec<_> = others()
            .filter(|(.., address)| address.port() == node.target.port)
            .collect();
        if !at_port.is_empty() {
            let checked = places_of(&node.target);
            let is_checked = |address: SocketAddr| checked.iter().any(|place| is_same(*place, address));
            let other = at_port.into_iter().find(|(.., address)| is_checked(*address));
            if let Some(other) = other.filter(|_| !own.is_some_and(is_checked)) {
                return wrong("check", other, "it tells whether that one answers");
            }
        }
        let Some(port) = node.queue_here else { continue };
        let is_watched = |address: SocketAddr| address.port() == port && is_here(address.ip());
        let other = others().find(|(.., address)| is_watched(*address) && !is_own(*address));
        if let Some(other) = other.filter(|_| !own.is_some_and(is_watched)) {
            return wrong("accept_queue", other, "what comes to that one would be counted");
        }
    }
    Ok(())
}

/// That nobody listens where a server is checked, while HAProxy finds it up elsewhere.
fn unheard_check(document: &Document, node: &Node<'_>, limit: Duration) -> Option<ConfigError> {
    let row = node.row;
    let serves = row.up && row.checked && row.state == ServerState::Ready;
    let address = row
        .address
        .filter(|address| serves && address.port() != node.target.port)?;
    let refuses = |place: &SocketAddr| {
        let tried = TcpStream::connect_timeout(place, limit);
        tried.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    };
    let checked = places_of(&node.target);
    // HAProxy takes a server for up until its first checks have failed: one that listens nowhere is off.
    if checked.is_empty() || !checked.iter().all(refuses) || refuses(&address) {
        return None;
    }
    let right = match &node.target.path {
        Some(path) => format!("http://{address}{path}"),
        None => format!("tcp:{address}"),
    };
    let why = format!(
        "nobody listens at {}, while HAProxy finds {} up at {address} and gives it requests: {} would be taken for a server that boots, and be \
         switched off and on again; write check = \"{right}\", or another place where it answers",
        node.check, row.name, node.name
    );
    Some(document.error(&format!("nodes.{}.check", node.name), why))
}

/// Where a check goes; nowhere where its host's name has no address.
fn places_of(target: &CheckTarget) -> Vec<SocketAddr> {
    let found = (target.host.as_str(), target.port).to_socket_addrs();
    found.map_or_else(|_| Vec::new(), Iterator::collect)
}

/// IPv4 in IPv6's clothes is IPv4.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
}

/// Whether an address is one of this machine's: what goes there comes from the same address. No packet is sent.
fn is_here(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let from: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = || {
        let socket = UdpSocket::bind((from, 0))?;
        socket.connect((address, DISCARD))?;
        socket.local_addr()
    };
    address.is_loopback() || source().is_ok_and(|source| source.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const PATIENCE: Duration = Duration::from_secs(1);

    fn row(name: &str, address: Option<SocketAddr>) -> ServerRow {
        ServerRow {
            name: name.to_owned(),
            state: ServerState::Ready,
            up: true,
            checked: true,
            weight: 1,
            configured_weight: 1,
            address,
        }
    }

    fn at(text: &str) -> Option<SocketAddr> {
        Some(text.parse().unwrap())
    }

    fn node<'a>(name: &'a str, check: &'a str, queue_here: Option<u16>, row: &'a ServerRow) -> Node<'a> {
        let target = CheckTarget::parse(check).unwrap();
        Node {
            name,
            check,
            target,
            queue_here,
            row,
        }
    }

    fn document() -> Document {
        Document::shipped("resize.toml", "[nodes.aio]\ncheck = \"\"\naccept_queue = 1\n")
    }

    #[test]
    fn members_that_are_exchanged_are_refused_at_the_check_and_at_the_queue() {
        let (first, second) = (row("a", at("127.0.0.1:81")), row("b", at("127.0.0.1:82")));
        let said = |checks: [&str; 2], queues: [Option<u16>; 2], rows: [&ServerRow; 2]| {
            let nodes = [
                node("aio", checks[0], queues[0], rows[0]),
                node("thr", checks[1], queues[1], rows[1]),
            ];
            let error = not_of_another(&document(), &nodes).err();
            error.map_or_else(String::new, |error| error.to_string())
        };
        let checks = ["tcp:127.0.0.1:81", "http://[::ffff:127.0.0.1]:82/x"];
        assert_eq!(said(checks, [Some(81), Some(82)], [&first, &second]), "");
        let exchanged = said(checks, [None; 2], [&second, &first]);
        assert_eq!(
            exchanged,
            "resize.toml:2: nodes.aio.check: is where thr takes requests (127.0.0.1:81, HAProxy's server a): it tells whether that one answers; \
             this node's member b is at 127.0.0.1:82. Give each node the member, the check and the accept_queue of the same server"
        );
        // A check of its own, at a port that is nobody's.
        let apart = ["tcp:127.0.0.1:91", "tcp:127.0.0.1:92"];
        let exchanged = said(apart, [Some(81), Some(82)], [&second, &first]);
        assert!(
            exchanged.starts_with("resize.toml:3: nodes.aio.accept_queue: is where thr takes requests"),
            "{exchanged}"
        );
        // Watched elsewhere, or on another machine's port of the same number; and both the same server.
        assert_eq!(said(apart, [None; 2], [&second, &first]), "");
        let (first, second) = (row("a", at("203.0.113.1:82")), row("b", at("203.0.113.2:81")));
        assert_eq!(said(apart, [Some(81), Some(82)], [&first, &second]), "");
        let one = row("a", at("127.0.0.1:81"));
        assert_eq!(
            said(["tcp:127.0.0.1:81", apart[1]], [Some(81), None], [&one, &one]),
            ""
        );
        // Where HAProxy says nothing of where its server is, another's place is another's all the same.
        let nowhere = row("b", None);
        assert!(said(checks, [None; 2], [&nowhere, &one]).contains("nodes.aio.check"));
    }

    #[test]
    fn a_check_where_nobody_listens_is_told_where_haproxy_finds_the_server_up_at_another_port() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let serves = server.local_addr().unwrap();
        let free = || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap()
        };
        let (dead, off) = (free(), free());
        let said = |check: &str, row: &ServerRow| {
            let error = unheard_check(&document(), &node("aio", check, None, row), PATIENCE);
            error.map(|error| error.to_string())
        };
        let up = row("a", Some(serves));
        let check = format!("http://{dead}/healthz");
        let told = said(&check, &up).unwrap();
        assert!(told.starts_with("resize.toml:2: nodes.aio.check: nobody listens at "));
        for words in [
            &check,
            &format!("finds a up at {serves}"),
            &format!("write check = \"http://{serves}/healthz\""),
        ] {
            assert!(told.contains(words.as_str()), "{told}");
        }
        let check = format!("tcp:{dead}");
        assert!(said(&check, &up).unwrap().contains(&format!("\"tcp:{serves}\"")));
        for row in [
            ServerRow {
                up: false,
                ..up.clone()
            },
            ServerRow {
                checked: false,
                ..up.clone()
            },
            ServerRow {
                state: ServerState::Maintenance,
                ..up.clone()
            },
            // One that is off, of which HAProxy has not found so yet; and one that is off where its check is.
            ServerRow {
                address: Some(off),
                ..up.clone()
            },
            ServerRow {
                address: Some(dead),
                ..up.clone()
            },
            ServerRow {
                address: None,
                ..up.clone()
            },
        ] {
            assert_eq!(said(&check, &row), None, "{row:?}");
        }
        // Somebody listens there.
        assert_eq!(said(&format!("tcp:{serves}"), &up), None);
    }
}
