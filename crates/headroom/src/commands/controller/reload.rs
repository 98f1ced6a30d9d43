//! SIGHUP to a controller: its gateways are read again, so that some come and some go while it runs, and which servers an operator takes out.
//! What is wrong in the file leaves all as it was.

use super::amendment::Amendment;
use super::ownership::Watched;
use super::told::Told;
use super::{ControllerArgs, read};
use crate::config::controller::ControllerFile;
use anyhow::anyhow;
use headroom_console::terminal::ControllingTerminal;
use headroom_console::{Document, Failure, Stop, say};
use headroom_control::resize::{Maintenance, PowerState};
use headroom_runtime::cluster::GatewayMembers;
use headroom_runtime::live::config_reload;
use headroom_runtime::resize::{GoesOut, TakenOut};
use headroom_wire::Address;
use signal_hook::consts::signal::SIGHUP;
use signal_hook::iterator::Signals;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Keys that are named in a line.
const MOST_NAMED: usize = 8;

/// What is done at SIGHUP, which is known when the run begins.
#[derive(Clone, Default)]
pub(super) struct Hangups(Arc<Mutex<At>>);

/// Where the run is.
#[derive(Default)]
enum At {
    #[default]
    Start,
    Run(Box<Reload>),
    End,
}

/// What a file is read again for.
pub(super) struct Reload {
    pub args: ControllerArgs,
    pub file: PathBuf,
    pub command: &'static str,
    /// The file as it was at the start.
    pub at_start: Document,
    /// Whether there were certificates at the start, without which nothing is reached over TCP.
    pub has_tls: bool,
    /// The gateways of the run; `None` where something else tells what happens to the requests.
    pub members: Option<GatewayMembers>,
    /// The servers that are taken out; `None` where none are switched.
    pub taken_out: Option<TakenOut>,
    /// What does what this process could not, where servers are switched.
    pub watched: Option<Watched>,
    /// What keeps a second controller away from a file that was put in the place of the first.
    pub lock: Option<File>,
    /// What came of it, for the decisions of the run.
    pub told: Told,
    /// What was warned of at the last signal.
    pub warned: Option<String>,
}

impl Hangups {
    /// Catches the signal from now on, in a thread that lives as long as the process. One that came because the terminal was closed
    /// stops the run, as it does all programs.
    ///
    /// # Errors
    /// The signal cannot be caught, or the thread not started.
    pub fn caught(stop: &Stop) -> io::Result<Self> {
        let mut signals = Signals::new([SIGHUP])?;
        let (hangups, stop) = (Self::default(), stop.clone());
        let terminal = ControllingTerminal::at_start();
        let served = hangups.clone();
        std::thread::Builder::new()
            .name("reload".to_owned())
            .spawn(move || {
                for _ in signals.forever() {
                    if terminal.is_gone() {
                        tracing::info!("the terminal was closed: stopping");
                        stop.raise();
                        continue;
                    }
                    match &mut *served.0.lock().unwrap_or_else(PoisonError::into_inner) {
                        At::Run(reload) => reload.at_hangup(),
                        At::End => tracing::warn!("the controller ends: its file is not read again"),
                        At::Start => tracing::warn!(
                            "the controller does not run yet: its file is not read again; send SIGHUP once it says where its metrics are"
                        ),
                    }
                }
            })?;
        Ok(hangups)
    }

    /// Says what is to be done.
    pub fn serve(&self, reload: Reload) {
        config_reload::was_read(true);
        self.is_at(At::Run(Box::new(reload)));
    }

    /// The run is over: what was read is told to nobody any more, nor recorded.
    pub fn end(&self) {
        self.is_at(At::End);
    }

    fn is_at(&self, at: At) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }
}

impl Reload {
    fn at_hangup(&mut self) {
        let again = self.again();
        config_reload::was_read(again.is_ok());
        // Whatever came of it, that of the signal before is no longer what is wrong.
        if let Some(warning) = self.warned.take() {
            say::settle(&warning);
        }
        match again {
            Ok(lines) => {
                for line in &lines {
                    say::note!("{}: {line}", self.file.display());
                    self.told.tell(line);
                }
            }
            Err(errors) => {
                // What holds comes first: a view has room for a few lines.
                let line = format!("The gateways stay as they were, and who is taken out: {errors}");
                tracing::warn!("{line}");
                self.told.tell(&line);
                self.warned = Some(line);
            }
        }
    }

    /// Reads the file again, all of which has to be right, though its gateways and what is taken out alone hold before the next start; what came of it.
    fn again(&mut self) -> Result<Vec<String>, Failure> {
        // One that nobody writes to would be waited for, and no later signal heard.
        if self.file.metadata().is_ok_and(|metadata| !metadata.is_file()) {
            let why = format!(
                "{}: is no regular file: it is not read again",
                self.file.display()
            );
            return Err(Failure::usage(anyhow!(why)));
        }
        let (config, document) = read(&self.args, &self.file, self.command)?;
        let mut others = document.changed(&self.at_start);
        others.retain(|key| !key.starts_with("gateways.") && !is_maintenance(key));
        let mut lines = match (&self.members, &self.taken_out) {
            (Some(members), _) => self.replace(members, &config, &document)?,
            (None, Some(_)) => Vec::new(),
            (None, None) => {
                vec!["no gateways count the requests of this run: there is nothing to read again".to_owned()]
            }
        };
        let wanted = self.taken_out.as_ref().map(|servers| wanted(servers, &config));
        // First: whoever has the servers next is to leave one alone that an operator is told is his.
        if let Some(watched) = &mut self.watched {
            let amendment = Amendment {
                gateways: self.members.is_some().then(|| config.gateways.clone()),
                taken_out: wanted.clone().unwrap_or_default(),
            };
            if let Err(error) = watched.amend(amendment) {
                lines.push(format!(
                    "warning: what was read again cannot be recorded: {error}. Where this process and its guard are both killed, `headroom \
                     release` goes by what was read before: send SIGHUP again once it can be"
                ));
            }
            self.hold();
        }
        if let (Some(taken_out), Some(wanted)) = (&self.taken_out, wanted) {
            lines.extend(take_out(taken_out, wanted));
        }
        if !others.is_empty() {
            let more = match others.len().saturating_sub(MOST_NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            others.truncate(MOST_NAMED);
            lines.push(format!(
                "{}{more}: not as at the start; what is neither a gateway nor maintenance holds from the next start on",
                others.join(", ")
            ));
        }
        Ok(lines)
    }

    fn replace(
        &self,
        members: &GatewayMembers,
        config: &ControllerFile,
        document: &Document,
    ) -> Result<Vec<String>, Failure> {
        let addresses = config.gateway_addresses(document)?;
        let over_tcp = |(_, address): &&(String, Address)| matches!(address, Address::Tcp { .. });
        if let Some((name, address)) = addresses.iter().find(over_tcp).filter(|_| !self.has_tls) {
            let why =
                format!("{address} is TCP, and there was no [tls] at the start: start the controller again");
            return Err(document.error(&format!("gateways.{name}"), why).into());
        }
        let changed = members
            .replace(addresses)
            .map_err(|error| document.error("gateways", error))?;
        let joined = changed.joined.iter().map(|one| {
            format!("gateway {one} joins: its requests count from the first whole period in which it answers")
        });
        let left = changed.left.iter().map(|one| {
            format!(
                "gateway {one} leaves: its levers are put back as configured, and its requests count no more"
            )
        });
        let mut lines: Vec<String> = joined.chain(left).collect();
        if changed.is_nothing() {
            lines.push("the gateways are what they were".to_owned());
        }
        Ok(lines)
    }

    /// Holds the file that is there now, which may be another one in the place of the first.
    fn hold(&mut self) {
        let held = File::open(&self.file).and_then(|file| {
            file.try_lock_shared()?;
            Ok(file)
        });
        match held {
            Ok(file) => self.lock = Some(file),
            Err(error) => tracing::warn!(
                "{}: a process holds a lock on it ({error}): where that is another controller, stop one of the two",
                self.file.display()
            ),
        }
    }
}

/// Whether it is the key of a node by which an operator takes it out, or one in its table.
fn is_maintenance(key: &str) -> bool {
    key.starts_with("nodes.") && key.split('.').skip(2).any(|word| word == "maintenance")
}

/// Which servers are to be taken out, by what the file says now.
fn wanted(taken_out: &TakenOut, config: &ControllerFile) -> BTreeMap<String, Maintenance> {
    let mut wanted = config.taken_out();
    // Somebody works on one whose table is gone: that it is given back is said by its table.
    let gone = taken_out
        .all()
        .into_iter()
        .filter(|(name, _)| !config.nodes.contains_key(name));
    wanted.extend(gone);
    wanted
}

/// Takes these out, and gives the others back; a line each.
fn take_out(taken_out: &TakenOut, wanted: BTreeMap<String, Maintenance>) -> Vec<String> {
    let change = taken_out.replace(wanted);
    let out = change.out.iter().map(goes_out);
    let back = change
        .back
        .iter()
        .map(|name| format!("server {name} is given back: it is switched as the load asks for"));
    out.chain(back).collect()
}

/// What comes of a server that is taken out, in words.
fn goes_out(one: &GoesOut) -> String {
    let (name, off) = (&one.server, one.how.power_off);
    if let Some(was) = one.was {
        let then = match one.state {
            _ if off && !was.power_off => "it is shut down where it is on",
            Some(PowerState::Stopping) => "it is being shut down, and stays off",
            _ => "it stays as it is, on or off",
        };
        return format!("server {name} is in maintenance already: {then}");
    }
    let then = match (one.state, off) {
        (Some(PowerState::Off), _) => "it is off and stays off".to_owned(),
        (Some(PowerState::Stopping), _) => "it is being shut down, and stays off".to_owned(),
        (Some(PowerState::Booting | PowerState::Failed(_)), true) => {
            "it gets no requests, and is shut down".to_owned()
        }
        (Some(PowerState::Booting | PowerState::Failed(_)), false) => {
            "it gets no requests, and is left as it is".to_owned()
        }
        (_, off) => {
            let when = match one.how.at_once {
                true => "drained at once, whatever the others take",
                false => "drained when the others take the load, which are started where they have to be",
            };
            let then = match off {
                true => "shut down",
                false => "left on",
            };
            format!("{when}, and then {then}")
        }
    };
    format!("server {name} is taken out: {then}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_control::resize::Cause;

    #[test]
    fn what_comes_of_a_server_that_is_taken_out_goes_by_what_it_is() {
        let soft = Maintenance::default();
        let off = Maintenance {
            power_off: true,
            ..soft
        };
        let said = |state: PowerState, how, was| {
            goes_out(&GoesOut {
                server: "web1".to_owned(),
                how,
                was,
                state: Some(state),
            })
        };
        for (state, how, was, wanted) in [
            (PowerState::Serving, soft, None, "to be, and then left on"),
            (PowerState::Draining, off, None, "to be, and then shut down"),
            (PowerState::Off, soft, None, "taken out: it is off and stays off"),
            (PowerState::Off, off, None, "taken out: it is off and stays off"),
            (
                PowerState::Stopping,
                soft,
                None,
                "it is being shut down, and stays off",
            ),
            (
                PowerState::Booting,
                soft,
                None,
                "it gets no requests, and is left as it is",
            ),
            (
                PowerState::Failed(Cause::Boot),
                off,
                None,
                "it gets no requests, and is shut down",
            ),
            (
                PowerState::Maintenance,
                off,
                Some(soft),
                "already: it is shut down where it is on",
            ),
            (
                PowerState::Maintenance,
                soft,
                Some(off),
                "already: it stays as it is, on or off",
            ),
            (
                PowerState::Stopping,
                soft,
                Some(off),
                "already: it is being shut down, and stays off",
            ),
        ] {
            let line = said(state, how, was);
            assert!(line.ends_with(wanted), "{line}");
        }
    }
}
