//! What vmstat, ss and netstat say.

use super::super::{Length, Listener};
use headroom_units::Ratio;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The columns of vmstat that hold idle time and time waiting for a disk, as its line of headings says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    idle: usize,
    waiting: usize,
}

impl Columns {
    /// From the line of headings; nothing for another line.
    pub(super) fn find(line: &str) -> Option<Self> {
        let place = |name| line.split_whitespace().position(|word| word == name);
        Some(Self {
            idle: place("id")?,
            waiting: place("wa")?,
        })
    }

    /// The used share, from a line of numbers: neither idle nor waiting.
    pub(super) fn busy(&self, line: &str) -> Option<Ratio> {
        let percent = |at| {
            line.split_whitespace()
                .nth(at)?
                .parse::<u32>()
                .ok()
                .filter(|&percent| percent <= 100)
        };
        let unused = percent(self.idle)? + percent(self.waiting)?;
        // Each was rounded by itself.
        Some(Ratio::from_percent(f64::from(100u32.saturating_sub(unused))))
    }
}

/// The listeners of a port, from `ss --listening --tcp --numeric --no-header`.
pub(super) fn listeners(text: &str, port: u16) -> Vec<Listener> {
    text.lines()
        .filter_map(listener)
        .filter(|found| found.address.port() == port)
        .collect()
}

fn listener(line: &str) -> Option<Listener> {
    let mut words = line.split_whitespace();
    if words.next()? != "LISTEN" {
        return None;
    }
    let length = Length {
        now: words.next()?.parse().ok()?,
        limit: words.next()?.parse().ok()?,
    };
    let (address, port) = words.next()?.rsplit_once(':')?;
    // A scope or an interface is put behind the address; both families at once are a star.
    let address = address
        .split('%')
        .next()?
        .trim_start_matches('[')
        .trim_end_matches(']');
    let ip: IpAddr = match address {
        "*" => Ipv6Addr::UNSPECIFIED.into(),
        "0.0.0.0" => Ipv4Addr::UNSPECIFIED.into(),
        address => address.parse().ok()?,
    };
    Some(Listener {
        address: SocketAddr::new(ip, port.parse().ok()?),
        cookie: 0,
        length,
        drops: None,
        enqueued: None,
    })
}

/// What `netstat --statistics --tcp` counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Netstat {
    pub passive_opens: Option<u64>,
    pub attempt_fails: Option<u64>,
    pub drops: Option<u64>,
}

/// Reads it. Of the extended counters netstat leaves out those that are 0, so that a missing line is a zero there.
pub(super) fn netstat(text: &str) -> Netstat {
    let number = |words: &[&str]| {
        text.lines().find_map(|line| {
            let (number, rest) = line.trim().split_once(' ')?;
            words.contains(&rest).then(|| number.parse().ok())?
        })
    };
    let extended = text.lines().any(|line| line.trim() == "TcpExt:");
    Netstat {
        passive_opens: number(&["passive connection openings", "passive connections openings"]),
        attempt_fails: number(&["failed connection attempts"]),
        drops: number(&["SYNs to LISTEN sockets dropped", "SYNs to LISTEN sockets ignored"])
            .or(extended.then_some(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VMSTAT: [&str; 4] = [
        "procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----",
        " r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st",
        " 9  0      0 9279580  35188 13271344    0    0  1749  4170 1864 7133 55  8 30  7  0",
        " 1  0      0 7279580  35188 13271344    0    0     0     0  762  817 97  3  0  0  0",
    ];

    #[test]
    fn vmstats_columns_are_found_by_their_headings() {
        assert_eq!(Columns::find(VMSTAT[0]), None);
        let columns = Columns::find(VMSTAT[1]).unwrap();
        assert_eq!(columns.busy(VMSTAT[2]), Some(Ratio::from_percent(63.0)));
        assert_eq!(columns.busy(VMSTAT[3]), Some(Ratio::from_percent(100.0)));
        assert_eq!(columns.busy(VMSTAT[1]), None);
        assert_eq!(columns.busy("1 2 3"), None);
        let later = Columns::find(" r b swpd us sy id wa st gu").unwrap();
        assert_eq!(later.busy("0 0 0 10 5 80 5 0 0"), Some(Ratio::from_percent(15.0)));
    }

    #[test]
    fn the_listeners_of_a_port_are_read_in_every_notation() {
        let text = "\
LISTEN 3      128          0.0.0.0:80         0.0.0.0:*
LISTEN 1      511                *:80               *:*
LISTEN 0      511             [::]:443           [::]:*
LISTEN 2      4096   127.0.0.53%lo:80         0.0.0.0:*
LISTEN 0      4096         [fe80::1]%eth0:80      [::]:*
ESTAB  0      0          127.0.0.1:80       127.0.0.1:5
nonsense
";
        let found = listeners(text, 80);
        let addresses: Vec<String> = found
            .iter()
            .map(|listener| listener.address.to_string())
            .collect();
        assert_eq!(
            addresses,
            ["0.0.0.0:80", "[::]:80", "127.0.0.53:80", "[fe80::1]:80"]
        );
        assert_eq!(found[0].length, Length { now: 3, limit: 128 });
        assert_eq!(listeners(text, 443).len(), 1);
        assert_eq!(listeners(text, 8), []);
    }

    #[test]
    fn netstats_counters_are_read_and_left_out_ones_are_zero_only_where_they_would_be() {
        let text = "\
Tcp:
    1635158 active connection openings
    1586102 passive connection openings
    47994 failed connection attempts
TcpExt:
    1047 times the listen queue of a socket overflowed
    1050 SYNs to LISTEN sockets dropped
";
        let whole = Netstat {
            passive_opens: Some(1_586_102),
            attempt_fails: Some(47_994),
            drops: Some(1050),
        };
        assert_eq!(netstat(text), whole);
        assert_eq!(
            netstat("Tcp:\n    5 passive connections openings\nTcpExt:\n").drops,
            Some(0)
        );
        assert_eq!(
            netstat("Tcp:\n    5 passive connections openings\n"),
            Netstat {
                passive_opens: Some(5),
                ..Netstat::default()
            }
        );
        assert_eq!(
            netstat("    99999999999999999999999 failed connection attempts"),
            Netstat::default()
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(
            text in "\\PC*",
            ss in "(LISTEN [0-9]{0,21} [0-9]{0,5} [\\[\\]0-9a-f:.%*]{0,20}:[0-9*]{0,6} x\n){0,4}",
            row in "( [0-9]{1,12}| id| wa){0,20}",
        ) {
            for text in [&text, &ss, &row] {
                listeners(text, 80);
                netstat(text);
                if let Some(columns) = Columns::find(text) {
                    columns.busy(text);
                }
                Columns { idle: 3, waiting: 5 }.busy(text);
            }
        }
    }
}
