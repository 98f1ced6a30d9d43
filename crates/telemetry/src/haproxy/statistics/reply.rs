//! What HAProxy replies, read: its information, its servers' states, its sessions.

use super::ServerState;
use headroom_units::Seconds;
use std::net::{IpAddr, SocketAddr};

/// A server, as `show servers state` has it (HAProxy's management guide, section 9.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRow {
    /// Its name.
    pub name: String,
    /// What it was commanded to be, by whomever.
    pub state: ServerState,
    /// Whether its checks find it up; true where it has none.
    pub up: bool,
    /// Whether it has health checks.
    pub checked: bool,
    /// Its weight now.
    pub weight: u32,
    /// The weight that it is configured with.
    pub configured_weight: u32,
    /// Where requests to it go; `None` where HAProxy has no such address: its name is not resolved, it is a Unix socket, or it is where the
    /// client connected to.
    pub address: Option<SocketAddr>,
}

/// HAProxy's process id, as `show info` has it; 0 where it does not say.
pub(super) fn pid(info: &str) -> u64 {
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:"));
    pid.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Log lines that HAProxy could not send, as `show info` has it.
pub(super) fn dropped_logs(info: &str) -> Option<u64> {
    let dropped = info.lines().find_map(|line| line.strip_prefix("DroppedLogs:"));
    dropped?.trim().parse().ok()
}

/// An address and a port of `show servers state`, where they are ones that can be connected to.
fn address(address: &str, port: &str) -> Option<SocketAddr> {
    let address = address
        .parse()
        .ok()
        .filter(|address: &IpAddr| !address.is_unspecified());
    let port = port.parse().ok().filter(|port| *port != 0);
    Some(SocketAddr::new(address?, port?))
}

/// The lines of `show servers state`, whose first is the version of their format and whose second names the columns.
pub(super) fn server_rows(text: &str) -> Result<Vec<ServerRow>, &'static str> {
    /// Maintenance: forced, inherited, for want of an address. That a server was `disabled` by the configuration (0x04)
    /// stays told of one that is ready meanwhile.
    const MAINTENANCE: u32 = 0x01 | 0x02 | 0x20;
    /// Drain: forced, inherited.
    const DRAIN: u32 = 0x08 | 0x10;
    const CHECK_CONFIGURED: u32 = 0x02;
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    if lines.next() != Some("1") {
        return Err("expected format 1 of the servers' states; is there a backend of this name?");
    }
    let columns: Vec<&str> = lines
        .next()
        .and_then(|line| line.strip_prefix("# "))
        .ok_or("the columns are not named")?
        .split(' ')
        .collect();
    let place = |name: &str| columns.iter().position(|column| *column == name);
    let find = |name| place(name).ok_or("a column of the servers' states is missing");
    let (name, op, admin) = (find("srv_name")?, find("srv_op_state")?, find("srv_admin_state")?);
    let (weight, configured) = (find("srv_uweight")?, find("srv_iweight")?);
    let check = find("srv_check_state")?;
    // Without them all else is known.
    let (host, port) = (place("srv_addr"), place("srv_port"));
    let row = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at)?.parse::<u32>().ok();
        let (admin, op) = (number(admin)?, number(op)?);
        let state = if admin & MAINTENANCE != 0 {
            ServerState::Maintenance
        } else if admin & DRAIN != 0 {
            ServerState::Drain
        } else {
            ServerState::Ready
        };
        Some(ServerRow {
            name: (*words.get(name)?).to_owned(),
            state,
            // 0 is stopped; 1 to 3 are starting, running and stopping.
            up: op != 0,
            checked: number(check)? & CHECK_CONFIGURED != 0,
            weight: number(weight)?,
            configured_weight: number(configured)?,
            address: host
                .zip(port)
                .and_then(|(host, port)| address(words.get(host)?, words.get(port)?)),
        })
    };
    lines
        .map(|line| row(line).ok_or("a line of the servers' states cannot be read"))
        .collect()
}

/// The largest `age=` of the sessions of `show sess` that are in one of the backends (`be=`).
pub(super) fn oldest(sessions: &str, in_backend: impl Fn(&str) -> bool) -> Option<Seconds> {
    sessions
        .lines()
        .filter_map(|line| {
            let mut backend = None;
            let mut age_s = None;
            for word in line.split_ascii_whitespace() {
                if let Some(name) = word.strip_prefix("be=") {
                    backend = Some(name);
                } else if let Some(age) = word.strip_prefix("age=") {
                    age_s = age_seconds(age);
                }
            }
            in_backend(backend?).then_some(age_s)?
        })
        .max()
        .map(|age_s| Seconds::new(age_s as f64))
}

/// HAProxy's short way to write a length: `12s`, `3m4s`, `2h5m`, `1d2h`.
fn age_seconds(text: &str) -> Option<u64> {
    let mut total_s = 0_u64;
    let mut number: Option<u64> = None;
    for c in text.chars() {
        if let Some(digit) = c.to_digit(10) {
            number = Some(
                number
                    .unwrap_or(0)
                    .checked_mul(10)?
                    .checked_add(u64::from(digit))?,
            );
        } else {
            let unit_s = match c {
                's' => 1,
                'm' => 60,
                'h' => 3600,
                'd' => 86_400,
                _ => return None,
            };
            total_s = total_s.checked_add(number.take()?.checked_mul(unit_s)?)?;
        }
    }
    number.is_none().then_some(total_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_states_are_read() {
        // As HAProxy 2.6 writes them.
        let text = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight \
            srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state \
            bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr \
            srv_agent_addr srv_agent_port\n\
            3 app 1 s1 127.0.0.1 2 0 1 1 5 1 0 0 0 0 0 0 - 8081 - 0 0 - - 0\n\
            3 app 2 s2 127.0.0.1 0 8 25 100 5 8 2 0 6 0 0 0 - 8082 - 0 0 - - 0\n\
            3 app 3 s3 127.0.0.1 0 1 1 1 5 1 0 0 14 0 0 0 - 8083 - 0 0 - - 0\n\
            3 app 4 s4 ::1 2 4 1 1 5 1 0 0 14 0 0 0 - 8084 - 0 0 - - 0\n\
            3 app 5 s5 - 2 0 1 1 5 1 0 0 0 0 0 0 web5 8085 - 0 0 - - 0\n\n";
        let rows = server_rows(text).unwrap();
        let seen: Vec<_> = rows
            .iter()
            .map(|row| {
                (
                    row.name.as_str(),
                    row.state,
                    row.up,
                    row.checked,
                    row.weight,
                    row.configured_weight,
                    row.address,
                )
            })
            .collect();
        let at = |text: &str| Some(text.parse().unwrap());
        assert_eq!(
            seen,
            [
                ("s1", ServerState::Ready, true, false, 1, 1, at("127.0.0.1:8081")),
                (
                    "s2",
                    ServerState::Drain,
                    false,
                    true,
                    25,
                    100,
                    at("127.0.0.1:8082")
                ),
                (
                    "s3",
                    ServerState::Maintenance,
                    false,
                    true,
                    1,
                    1,
                    at("127.0.0.1:8083")
                ),
                ("s4", ServerState::Ready, true, true, 1, 1, at("[::1]:8084")),
                ("s5", ServerState::Ready, true, false, 1, 1, None),
            ]
        );
        // What is nowhere, and a port that is the client's.
        assert_eq!(address("0.0.0.0", "80"), None);
        assert_eq!(address("10.0.0.1", "0"), None);
        for text in [
            "",
            "Can't find backend.\n",
            "2\n# be_id\n",
            "1\n# be_id be_name\n3 app\n",
        ] {
            assert!(server_rows(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn ages_are_read() {
        assert_eq!(age_seconds("12s"), Some(12));
        assert_eq!(age_seconds("3m4s"), Some(184));
        assert_eq!(age_seconds("1d2h"), Some(93_600));
        assert_eq!(age_seconds("12"), None);
        assert_eq!(age_seconds("12x"), None);
    }

    #[test]
    fn the_oldest_session_of_a_backend_is_found() {
        let sessions = "0x55f0: proto=tcpv4 src=127.0.0.1:1 fe=in be=app srv=s1 ts=00 age=7s calls=2\n\
                        0x55f1: proto=tcpv4 src=127.0.0.1:2 fe=in be=app srv=s1 ts=00 age=1m2s calls=2\n\
                        0x55f2: proto=unix_stream src=unix:1 fe=GLOBAL be=<NONE> srv=<none> ts=00 age=9m calls=1\n";
        assert_eq!(oldest(sessions, |name| name == "app"), Some(Seconds::new(62.0)));
        assert_eq!(oldest(sessions, |name| name == "other"), None);
    }
}
