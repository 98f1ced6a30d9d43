//! Wake-on-LAN on Ethernet: what arrives at the other end of cables between network namespaces, beside what other programs
//! send.

use crate::common::program;
use crate::testing::says;
use headroom_node::switch::{Mac, PowerSwitch, SecureOn, SwitchError, WakeConfig, WakeSwitch, magic_packet};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, eth, recv, socket_with};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const CARD: Mac = Mac([0x02, 0x25, 0x90, 0xab, 0xcd, 0xef]);
const SECURE_ON: SecureOn = SecureOn([1, 2, 3, 4, 5, 6]);
/// An Ethernet header, the type of IPv4 in it, and that of Wake-on-LAN without IP.
const HEADER: usize = 14;
const IPV4: [u8; 2] = [0x08, 0x00];
const BARE: [u8; 2] = [0x08, 0x42];
/// A wait for a frame; what does not come is not waited for longer.
const WAIT: Duration = Duration::from_millis(500);

fn ip(args: &str) -> bool {
    let mut command = Command::new("ip");
    command
        .args(args.split(' '))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn is_up(namespace: &str, card: usize) -> bool {
    let mut command = Command::new("ip");
    let of = format!("-n {namespace} -o link show card{card}");
    let shown = command.args(of.split(' ')).output();
    shown.is_ok_and(|shown| String::from_utf8_lossy(&shown.stdout).contains(" state UP "))
}

/// A namespace that wakes, `here`, with a cable to each of two others, in whose networks it is.
struct Cables {
    here: String,
    ends: [String; 2],
}

impl Cables {
    fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |end: &str| format!("headroom-wake-{}-{number}-{end}", std::process::id());
        let cables = Self {
            here: name("here"),
            ends: [name("a"), name("b")],
        };
        let here = &cables.here;
        let mut made = ip(&format!("netns add {here}"));
        for (at, end) in cables.ends.iter().enumerate() {
            made = made
                && ip(&format!("netns add {end}"))
                && ip(&format!(
                    "-n {here} link add card{at} type veth peer name eth0 netns {end}"
                ))
                && ip(&format!(
                    "-n {here} addr add 198.18.{at}.1/24 broadcast + dev card{at}"
                ))
                && ip(&format!("-n {here} link set card{at} up"))
                && ip(&format!("-n {end} link set eth0 up"));
        }
        // The kernel sends nothing over a card until it has taken note of its cable, up to a second later.
        let until = Instant::now() + Duration::from_secs(10);
        while made && !(0..cables.ends.len()).all(|at| is_up(here, at)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        if !made {
            println!("skipped: network namespaces need root, `ip` of iproute2 and veth");
        }
        made.then_some(cables)
    }

    /// Does something in a namespace: a thread's, which ends with it.
    fn within<T: Send>(namespace: &str, act: impl FnOnce() -> T + Send) -> T {
        let file = File::open(Path::new("/run/netns").join(namespace)).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                act()
            });
            thread.join().unwrap()
        })
    }

    /// What arrives at an end from now on.
    fn listen(&self, end: usize) -> Arrivals {
        let socket = Self::within(&self.ends[end], || {
            socket_with(
                AddressFamily::PACKET,
                SocketType::RAW,
                SocketFlags::CLOEXEC,
                Some(eth::ALL),
            )
            .unwrap()
        });
        set_socket_timeout(&socket, Timeout::Recv, Some(WAIT)).unwrap();
        Arrivals(socket)
    }

    fn wake(&self, config: &WakeConfig) -> Result<(), SwitchError> {
        Self::within(&self.here, || WakeSwitch::open(config.clone()).unwrap().on())
    }

    /// Another program, in the namespace that wakes.
    fn run(&self, program: &Path, args: &[&str]) {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.here])
            .arg(program)
            .args(args);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

impl Drop for Cables {
    fn drop(&mut self) {
        for namespace in self.ends.iter().chain([&self.here]) {
            ip(&format!("netns del {namespace}"));
        }
    }
}

struct Arrivals(OwnedFd);

/// A frame with a magic packet in it.
#[derive(Debug, PartialEq, Eq)]
struct Frame {
    to: [u8; 6],
    kind: [u8; 2],
    /// What the Ethernet header is followed by, where that is not IP; else what UDP carries.
    payload: Vec<u8>,
    /// UDP's.
    port: Option<u16>,
}

impl Arrivals {
    /// The next frame of one of the two kinds, or none.
    fn next(&self) -> Option<Frame> {
        let mut bytes = [0; 2048];
        loop {
            let (_, length) = recv(&self.0, &mut bytes[..], RecvFlags::empty()).ok()?;
            let frame = &bytes[..length];
            let kind = [frame[12], frame[13]];
            let inner = &frame[HEADER..];
            let udp = &inner[usize::from(inner[0] & 15) * 4..];
            let (port, payload) = match kind {
                BARE => (None, inner),
                IPV4 if inner[9] == 17 => {
                    let length = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
                    (Some(u16::from_be_bytes([udp[2], udp[3]])), &udp[8..length])
                }
                _ => continue,
            };
            return Some(Frame {
                to: frame[..6].try_into().unwrap(),
                kind,
                payload: payload.to_vec(),
                port,
            });
        }
    }
}

fn config(broadcast: Option<&str>, secure_on: Option<SecureOn>) -> WakeConfig {
    WakeConfig {
        mac: CARD,
        broadcast: broadcast.map(|address| address.parse::<SocketAddr>().unwrap()),
        secure_on,
        stop: vec!["/bin/true".into()],
        state: None,
        limit_s: 10.0,
    }
}

/// A broadcast frame over UDP.
fn expected(secure_on: Option<SecureOn>, port: u16) -> Frame {
    Frame {
        to: [0xff; 6],
        kind: IPV4,
        payload: magic_packet(CARD, secure_on),
        port: Some(port),
    }
}

#[test]
fn by_default_it_is_sent_to_every_network_that_this_machine_is_in() {
    let Some(cables) = Cables::new() else { return };
    let ends = [cables.listen(0), cables.listen(1)];
    for secure_on in [None, Some(SECURE_ON)] {
        cables.wake(&config(None, secure_on)).unwrap();
        for end in &ends {
            for _ in 0..3 {
                assert_eq!(end.next(), Some(expected(secure_on, 9)));
            }
        }
    }
    // One cable is pulled: what is left is used, and where nothing is left that is said.
    assert!(ip(&format!("-n {} link set card0 down", cables.here)));
    cables.wake(&config(None, None)).unwrap();
    assert_eq!(ends[1].next(), Some(expected(None, 9)));
    assert_eq!(ends[0].next(), None);
    assert!(ip(&format!("-n {} link set card1 down", cables.here)));
    says(
        cables.wake(&config(None, None)).unwrap_err(),
        &["every network", "unreachable"],
    );
}

#[test]
fn a_broadcast_address_chooses_the_network_and_everywhere_needs_a_default_route() {
    let Some(cables) = Cables::new() else { return };
    let ends = [cables.listen(0), cables.listen(1)];
    cables.wake(&config(Some("198.18.1.255:7"), None)).unwrap();
    assert_eq!(ends[1].next(), Some(expected(None, 7)));
    assert_eq!(ends[0].next(), None);
    says(
        cables.wake(&config(Some("255.255.255.255:9"), None)).unwrap_err(),
        &["name the broadcast address"],
    );
    assert!(ip(&format!("-n {} route add default dev card0", cables.here)));
    cables.wake(&config(Some("255.255.255.255:9"), None)).unwrap();
    assert_eq!(ends[0].next(), Some(expected(None, 9)));
    // The rest of the second's three of before.
    let left = std::iter::from_fn(|| ends[1].next())
        .filter(|frame| frame.port == Some(9))
        .count();
    assert_eq!(left, 0);
}

#[test]
fn other_programs_send_the_same() {
    let etherwake = program("etherwake", "apt install etherwake");
    let wakeonlan = program("wakeonlan", "apt install wakeonlan");
    if etherwake.is_none() && wakeonlan.is_none() {
        return;
    }
    let Some(cables) = Cables::new() else { return };
    let end = cables.listen(0);
    if let Some(etherwake) = etherwake {
        for secure_on in [None, Some(SECURE_ON)] {
            let mut args = vec!["-b", "-i", "card0"];
            let password = String::from(SECURE_ON);
            if secure_on.is_some() {
                args.extend(["-p", &password]);
            }
            let card = CARD.to_string();
            args.push(&card);
            cables.run(&etherwake, &args);
            // In a frame of its own kind, and with the same in it.
            let theirs = end.next().unwrap();
            assert_eq!((theirs.kind, theirs.to), (BARE, [0xff; 6]));
            assert_eq!(theirs.payload, magic_packet(CARD, secure_on));
        }
    }
    if let Some(wakeonlan) = wakeonlan {
        cables.run(&wakeonlan, &["-i", "198.18.0.255", &CARD.to_string()]);
        let theirs = end.next().unwrap();
        assert_eq!(theirs, expected(None, 9));
        cables.wake(&config(Some("198.18.0.255:9"), None)).unwrap();
        assert_eq!(end.next(), Some(theirs));
    }
}

#[test]
fn a_suspend_on_a_machine_without_systemd_says_so() {
    if Path::new("/run/systemd/system").exists() {
        println!("skipped: a machine without systemd: this one runs it");
        return;
    }
    let Some(systemctl) = program("systemctl", "apt install systemd") else {
        return;
    };
    let config = WakeConfig {
        // It only says what it would do, should it be able to after all.
        stop: [&systemctl.display().to_string(), "--dry-run", "suspend"]
            .map(str::to_owned)
            .into(),
        ..config(None, None)
    };
    says(
        WakeSwitch::open(config).unwrap().off(false).unwrap_err(),
        &[
            "systemctl failed (exit status: 1)",
            "not been booted with systemd",
        ],
    );
}
