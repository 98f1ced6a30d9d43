//! Whether a server's power switch is another server's too: a law would then switch a machine that it did not mean, perhaps one that
//! serves.

use headroom_node::switch::{Mac, SwitchConfig};
use std::collections::BTreeMap;

/// A system that a Redfish service processor was asked for by name, each with the server that has it; `None` for the only one there is.
type Systems<'a> = BTreeMap<Option<&'a str>, &'a str>;

/// The power switches of the servers so far, each with the name of the server that has it.
#[derive(Default)]
pub(super) struct Switches<'a> {
    starts: BTreeMap<&'a [String], &'a str>,
    /// Also those that cut the power.
    stops: BTreeMap<&'a [String], &'a str>,
    /// Several may be behind one address, by the port.
    ipmi: BTreeMap<(String, u16), &'a str>,
    redfish: BTreeMap<String, Systems<'a>>,
    macs: BTreeMap<[u8; 6], &'a str>,
}

/// The UDP port of IPMI.
const IPMI_PORT: u16 = 623;

/// A service processor's address, as it is the same however it is written.
fn place_of(url: &str) -> String {
    let url = url.trim_end_matches('/').to_ascii_lowercase();
    url.strip_suffix(":443").map_or(url.clone(), str::to_owned)
}

impl<'a> Switches<'a> {
    /// Takes a server's switch: the key that is another server's too, and why that is wrong.
    pub(super) fn take(
        &mut self,
        name: &'a str,
        switch: &'a SwitchConfig,
    ) -> Result<(), (&'static str, String)> {
        match switch {
            SwitchConfig::Command(command) => {
                self.take_start(name, &command.start)?;
                self.take_stop(name, "stop", &command.stop)?;
                let force_stop = command.force_stop.as_ref();
                force_stop.map_or(Ok(()), |force_stop| {
                    self.take_stop(name, "force_stop", force_stop)
                })
            }
            SwitchConfig::Ipmi(ipmi) => {
                let port = ipmi.port.unwrap_or(IPMI_PORT);
                let place = (ipmi.host.to_ascii_lowercase(), port);
                self.ipmi.insert(place, name).map_or(Ok(()), |other| {
                    let why = format!("is the service processor of {other} too: it would switch that one");
                    Err(("host", why))
                })
            }
            SwitchConfig::Redfish(redfish) => {
                let systems = self.redfish.entry(place_of(&redfish.url)).or_default();
                let system = redfish.system.as_deref();
                // A service processor whose system need not be named has that one only.
                let other = match system {
                    Some(_) => systems.get(&system).or_else(|| systems.get(&None)),
                    None => systems.values().next(),
                };
                if let Some(other) = other {
                    let why = format!(
                        "is the service processor of {other} too, and the same system of it: it would switch that one"
                    );
                    return Err((system.map_or("url", |_| "system"), why));
                }
                systems.insert(system, name);
                Ok(())
            }
            SwitchConfig::WakeOnLan(wake) => {
                let Mac(mac) = wake.mac;
                if let Some(other) = self.macs.insert(mac, name) {
                    return Err((
                        "mac",
                        format!("is the card of {other} too: it would wake that one"),
                    ));
                }
                self.take_stop(name, "stop", &wake.stop)
            }
        }
    }

    fn take_start(&mut self, name: &'a str, start: &'a [String]) -> Result<(), (&'static str, String)> {
        self.starts.insert(start, name).map_or(Ok(()), |other| {
            let why = format!("is the start of {other} too: it would start that one");
            Err(("start", why))
        })
    }

    /// A server may stop by force as it stops otherwise.
    fn take_stop(
        &mut self,
        name: &'a str,
        key: &'static str,
        stop: &'a [String],
    ) -> Result<(), (&'static str, String)> {
        match self.stops.insert(stop, name).filter(|other| *other != name) {
            Some(other) => Err((key, format!("is the stop of {other} too: it would stop that one"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of the second of two servers with these switches.
    fn said(first: &str, second: &str) -> Option<String> {
        let [first, second] = [first, second].map(|text| toml::from_str::<SwitchConfig>(text).unwrap());
        let mut switches = Switches::default();
        switches.take("web2", &first).unwrap();
        let (key, why) = switches.take("web3", &second).err()?;
        Some(format!("{key} {why}"))
    }

    #[test]
    fn a_switch_of_two_servers_is_found() {
        let command = |number: u8, more: &str| {
            format!(
                "kind = \"command\"\nstart = [\"on\", \"{number}\"]\nstop = [\"off\", \"{number}\"]\nstate = [\"state\"]\n{more}"
            )
        };
        let ipmi =
            |place: &str| format!("kind = \"ipmi\"\n{place}\nuser = \"u\"\npassword = {{ env = \"P\" }}\n");
        let redfish = |place: &str| {
            format!("kind = \"redfish\"\n{place}\nuser = \"u\"\npassword = {{ env = \"P\" }}\n")
        };
        let wake = |last: u8, stop: &str| {
            format!(
                "kind = \"wake-on-lan\"\nmac = \"00:25:90:ab:cd:0{last}\"\nstop = [\"off\", \"{stop}\"]\n"
            )
        };
        let two = command(2, "force_stop = [\"off\", \"2\"]\n");
        let of = |key: &str, what: &str| Some(format!("{key} is the {what}"));
        for (first, second, wanted) in [
            (two.clone(), command(3, ""), None),
            (
                two.clone(),
                two.clone(),
                of("start", "start of web2 too: it would start that one"),
            ),
            (
                two.clone(),
                two.replace("\"on\", \"2\"", "\"on\", \"3\""),
                of("stop", "stop of web2 too: it would stop that one"),
            ),
            (
                two.clone(),
                command(3, "force_stop = [\"off\", \"2\"]\n"),
                of("force_stop", "stop of web2 too: it would stop that one"),
            ),
            (
                two,
                wake(3, "2"),
                of("stop", "stop of web2 too: it would stop that one"),
            ),
            (wake(2, "2"), wake(3, "3"), None),
            (
                wake(2, "2"),
                wake(2, "3"),
                of("mac", "card of web2 too: it would wake that one"),
            ),
            (ipmi("host = \"a\""), ipmi("host = \"b\""), None),
            // Behind one address, by the port.
            (ipmi("host = \"a\""), ipmi("host = \"a\"\nport = 624"), None),
            (
                ipmi("host = \"a\""),
                ipmi("host = \"A\"\nport = 623"),
                of("host", "service processor of web2 too: it would switch that one"),
            ),
            (
                redfish("url = \"https://a\"\nsystem = \"1\""),
                redfish("url = \"https://a\"\nsystem = \"2\""),
                None,
            ),
            (
                redfish("url = \"https://a\""),
                redfish("url = \"https://a:444\""),
                None,
            ),
            (
                redfish("url = \"https://a\"\nsystem = \"1\""),
                redfish("url = \"https://A:443/\"\nsystem = \"1\""),
                of(
                    "system",
                    "service processor of web2 too, and the same system of it: it would switch that one",
                ),
            ),
            (
                redfish("url = \"https://a\"\nsystem = \"1\""),
                redfish("url = \"https://a\""),
                of(
                    "url",
                    "service processor of web2 too, and the same system of it: it would switch that one",
                ),
            ),
            (
                redfish("url = \"https://a\""),
                redfish("url = \"https://a\"\nsystem = \"1\""),
                of(
                    "system",
                    "service processor of web2 too, and the same system of it: it would switch that one",
                ),
            ),
        ] {
            assert_eq!(said(&first, &second), wanted, "{first}\n{second}");
        }
    }
}
