//! The networks that this machine is in.

use std::io;
use std::net::Ipv4Addr;

/// The most networks that are told of; further ones are left out.
const MOST: usize = 64;
/// The kernel's routes, of the network namespace of this thread.
const ROUTES: &str = "/proc/thread-self/net/route";
/// Of a route (linux/route.h): it is up; it goes through a gateway; it rejects.
const UP: u16 = 0x1;
const GATEWAY: u16 = 0x2;
const REJECT: u16 = 0x200;

/// The broadcast addresses of the IPv4 networks that this machine is in, without its loopback.
///
/// # Errors
/// Where the kernel does not tell its routes.
pub(super) fn broadcasts() -> io::Result<Vec<Ipv4Addr>> {
    std::fs::read_to_string(ROUTES).map(|text| of_routes(&text))
}

/// The same, of the kernel's table: interface, destination, gateway, flags, three numbers, mask. The addresses are
/// hexadecimal as they are in memory.
fn of_routes(text: &str) -> Vec<Ipv4Addr> {
    let address = |word: &str| Some(Ipv4Addr::from(u32::from_str_radix(word, 16).ok()?.to_ne_bytes()));
    let mut found = Vec::new();
    for line in text.lines().skip(1) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [interface, destination, _, flags, _, _, _, mask, ..] = words[..] else {
            continue;
        };
        let flags = u16::from_str_radix(flags, 16).unwrap_or_default();
        let (Some(destination), Some(mask)) = (address(destination), address(mask)) else {
            continue;
        };
        let is_direct = flags & UP != 0 && flags & (GATEWAY | REJECT) == 0;
        let is_unicast = interface != "lo" && !destination.is_loopback() && !destination.is_multicast();
        // A network of two addresses has none for all (RFC 3021); one of everything is a default route without a gateway.
        let prefix = mask.to_bits().leading_ones();
        if is_direct && is_unicast && (1..=30).contains(&prefix) {
            let broadcast = destination | !mask;
            if !found.contains(&broadcast) && found.len() < MOST {
                found.push(broadcast);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row as the kernel writes it.
    fn row(interface: &str, destination: [u8; 4], flags: u16, mask: [u8; 4]) -> String {
        let hex = |address: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(address));
        let (destination, mask) = (hex(destination), hex(mask));
        format!("{interface}\t{destination}\t00000000\t{flags:04X}\t0\t0\t0\t{mask}\t0\t0\t0")
    }

    #[test]
    fn each_network_that_is_reached_without_a_gateway_has_one() {
        let rows = [
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT".to_owned(),
            row("eth0", [0, 0, 0, 0], 0x3, [0, 0, 0, 0]),
            row("ppp0", [0, 0, 0, 0], 0x1, [0, 0, 0, 0]),
            row("eth0", [10, 1, 2, 0], 0x1, [255, 255, 255, 0]),
            row("eth1", [172, 16, 0, 0], 0x1, [255, 240, 0, 0]),
            // The same network by a second way, one behind a gateway, one that is down, one of two addresses.
            row("eth2", [10, 1, 2, 0], 0x1, [255, 255, 255, 0]),
            row("eth0", [10, 9, 0, 0], 0x3, [255, 255, 0, 0]),
            row("eth3", [10, 8, 0, 0], 0x0, [255, 255, 0, 0]),
            row("tun0", [10, 7, 0, 2], 0x1, [255, 255, 255, 254]),
            row("wg0", [10, 6, 0, 2], 0x5, [255, 255, 255, 255]),
            row("eth0", [224, 0, 0, 0], 0x1, [240, 0, 0, 0]),
            row("lo", [127, 0, 0, 0], 0x1, [255, 0, 0, 0]),
            row("eth0", [10, 5, 0, 0], 0x201, [255, 255, 0, 0]),
            "eth0 nonsense".to_owned(),
        ];
        let found = of_routes(&rows.join("\n"));
        assert_eq!(
            found,
            [Ipv4Addr::new(10, 1, 2, 255), Ipv4Addr::new(172, 31, 255, 255)]
        );
    }

    #[test]
    fn they_are_bounded() {
        let header = String::from("Iface\n");
        let rows = (0..=255).map(|number| row("eth0", [10, 0, number, 0], 1, [255, 255, 255, 0]));
        let text = rows.fold(header, |text, row| text + &row + "\n");
        assert_eq!(of_routes(&text).len(), MOST);
    }
}
