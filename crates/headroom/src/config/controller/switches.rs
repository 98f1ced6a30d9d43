//! Whether a server's power switch is another server's too: a law would then switch a machine that it did not mean, perhaps one that
//! serves. Commands get no argument, so that the same command does the same, whose ever it is.

use headroom_node::switch::{Mac, SwitchConfig};
use std::collections::BTreeMap;

/// A system that a Redfish service processor was asked for by name, each with the server that has it; `None` for the only one there is.
type Systems<'a> = BTreeMap<Option<&'a str>, &'a str>;

/// The power switches of the servers so far, each with the name of the server that has it.
#[derive(Default)]
pub(super) struct Switches<'a> {
    /// Each with the server and the key that have it.
    commands: BTreeMap<&'a [String], (&'a str, &'static str)>,
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
                self.take_command(name, "start", Some(&command.start))?;
                self.take_command(name, "stop", Some(&command.stop))?;
                self.take_command(name, "force_stop", command.force_stop.as_ref())?;
                self.take_command(name, "state", command.state.as_ref())
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
                self.take_command(name, "stop", Some(&wake.stop))?;
                self.take_command(name, "state", wake.state.as_ref())
            }
        }
    }

    /// A server may stop by force as it stops otherwise.
    fn take_command(
        &mut self,
        name: &'a str,
        key: &'static str,
        command: Option<&'a Vec<String>>,
    ) -> Result<(), (&'static str, String)> {
        let Some(command) = command else { return Ok(()) };
        let (other, what) = *self.commands.entry(command).or_insert((name, key));
        let why = match (other == name, what) {
            (true, _) if what == key || (what, key) == ("stop", "force_stop") => return Ok(()),
            (true, _) => format!("is its {what} too: the same command cannot do both"),
            (false, "start") => format!("is the start of {other} too: it would start that one"),
            (false, "state") if key == "state" => format!(
                "is the state of {other} too: a command gets no argument, so it cannot tell which of the two is on; write the name of each in its own"
            ),
            (false, "state") => format!("is the state of {other} too: it tells whether that one is on"),
            (false, _) => format!("is the {what} of {other} too: it would stop that one"),
        };
        Err((key, why))
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
                "kind = \"command\"\nstart = [\"on\", \"{number}\"]\nstop = [\"off\", \"{number}\"]\nstate = [\"state\", \"{number}\"]\n{more}"
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
                two.clone(),
                wake(3, "2"),
                of("stop", "stop of web2 too: it would stop that one"),
            ),
            (
                two.clone(),
                two.replace("\"on\", \"2\"", "\"on\", \"3\"")
                    .replace("\"off\", \"2\"", "\"off\", \"3\""),
                of(
                    "state",
                    "state of web2 too: a command gets no argument, so it cannot tell which of the two is on; write the name of each in its own",
                ),
            ),
            // One of another kind.
            (
                two.clone(),
                command(3, "").replace("\"on\", \"3\"", "\"off\", \"2\""),
                of("start", "stop of web2 too: it would stop that one"),
            ),
            (
                two.clone(),
                command(3, "").replace("\"off\", \"3\"", "\"state\", \"2\""),
                of("stop", "state of web2 too: it tells whether that one is on"),
            ),
            (
                two,
                format!("{}state = [\"on\", \"2\"]\n", wake(3, "3")),
                of("state", "start of web2 too: it would start that one"),
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
    #[test]
    fn a_command_that_starts_and_stops_the_same_server_does_one_of_the_two() {
        let said = |start: &str, stop: &str, more: &str| {
            let text = format!("kind = \"command\"\nstart = [{start}]\nstop = [{stop}]\n{more}\n");
            let switch = toml::from_str::<SwitchConfig>(&text).unwrap();
            let wrong = Switches::default().take("web2", &switch).err();
            wrong.map(|(key, why)| format!("{key} {why}"))
        };
        let is_its = |key: &str, what: &str| {
            Some(format!(
                "{key} is its {what} too: the same command cannot do both"
            ))
        };
        assert_eq!(said("\"sw\"", "\"sw\"", ""), is_its("stop", "start"));
        assert_eq!(
            said("\"on\"", "\"off\"", "force_stop = [\"on\"]"),
            is_its("force_stop", "start")
        );
        assert_eq!(
            said("\"on\"", "\"off\"", "state = [\"on\"]"),
            is_its("state", "start")
        );
        assert_eq!(said("\"on\"", "\"off\"", "force_stop = [\"off\"]"), None);
    }
}
