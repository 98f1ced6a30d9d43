//! Socket power limits of AMD servers: through hwmon where the driver shows them there, else by message.
//! The stricter of this limit and the one that a service processor sets (APML) holds.

use super::split::{Share, bounds, comparable, split};
use super::{CapBounds, CapInForce, HardwareCap, LeverKind, PowerLimitError, ZoneLimit, check};
use crate::Roots;
use crate::file;
use crate::hsmp::{self, HwmonSocket, Message, Port};
use crate::panel::{Change, Definition, ForeignWrite, NotInForce, Panel, first_number, in_order};
use crate::powercap::watts;
use crate::restore::{Handle, Outcome, Registry, RestoreError, Undo};
use headroom_units::{Seconds, Watts};

/// Limits are whole milliwatts; firmware rounds them to what it can hold.
const TOLERANCE_UW: u64 = 1_000_000;
/// How long the firmware takes.
const SETTLES_S: f64 = 2.0;

/// Sets the limits of all sockets.
#[derive(Debug)]
pub struct HsmpLimits {
    access: Access,
    shares: Vec<Share>,
}

#[derive(Debug)]
enum Access {
    Hwmon(Panel),
    Device(Port, Vec<Socket>),
}

/// A socket whose limit is set by message.
#[derive(Debug)]
struct Socket {
    found_mw: u32,
    last_mw: u32,
    handle: Handle,
    /// Somebody else wrote it, and it is left alone.
    held: bool,
    /// The count of pauses when what was found was read.
    pauses: u64,
}

impl HsmpLimits {
    /// Reads what is in force and checks that it may be changed. Writes nothing.
    ///
    /// # Errors
    /// [`PowerLimitError::NoLimits`]: there is no HSMP. [`PowerLimitError::File`], [`PowerLimitError::Hsmp`]: there is,
    /// and it may not be set or does not answer.
    pub fn open(roots: &Roots, registry: &Registry) -> Result<Self, PowerLimitError> {
        let sockets: Vec<HwmonSocket> = hsmp::hwmon_sockets(roots)
            .into_iter()
            .filter(|socket| socket.cap().exists())
            .collect();
        if !sockets.is_empty() {
            return Self::open_hwmon(&sockets, registry);
        }
        match hsmp::device(roots) {
            Some(path) => {
                registry.claim(&path)?;
                Self::open_device(Port::open(&path, true)?, registry)
            }
            None => Err(PowerLimitError::NoLimits {
                why: hsmp::why_none(roots),
            }),
        }
    }

    fn open_hwmon(sockets: &[HwmonSocket], registry: &Registry) -> Result<Self, PowerLimitError> {
        let mut shares = Vec::with_capacity(sockets.len());
        let mut definitions = Vec::with_capacity(sockets.len());
        for (number, socket) in sockets.iter().enumerate() {
            let found = watts(file::read_u64(&socket.cap())?);
            shares.push(share(number, found, socket.largest_cap())?);
            definitions.push(Definition {
                what: format!("the power limit of socket {number} ({})", socket.dir.display()),
                paths: vec![socket.cap()],
                sequence: in_order,
                tolerance: TOLERANCE_UW,
                joint: false,
                room: first_number,
            });
        }
        let panel = Panel::open(registry, "the power limits of the sockets".into(), definitions)?;
        comparable(shares.iter_mut());
        Ok(Self {
            access: Access::Hwmon(panel),
            shares,
        })
    }

    fn open_device(mut port: Port, registry: &Registry) -> Result<Self, PowerLimitError> {
        let mut sockets = Vec::new();
        let mut shares = Vec::new();
        for socket in 0..port.sockets()? {
            let found_mw = port.ask(socket, Message::Limit)?;
            let largest = port.ask(socket, Message::LargestLimit)?;
            let largest = Some(milli(largest)).filter(|watts| watts.get() > 0.0);
            shares.push(share(usize::from(socket), milli(found_mw), largest)?);
            let handle = registry.register(Undo::Hsmp {
                what: format!("the power limit of socket {socket} ({})", port.path().display()),
                path: port.path().to_path_buf(),
                socket,
                found_mw,
                ours_mw: vec![found_mw],
            })?;
            sockets.push(Socket {
                found_mw,
                last_mw: found_mw,
                held: handle.is_held(&Socket::name(&port, socket)),
                pauses: handle.operated()?.pauses,
                handle,
            });
        }
        comparable(shares.iter_mut());
        Ok(Self {
            access: Access::Device(port, sockets),
            shares,
        })
    }

    fn in_force(&self, bounded: Option<CapBounds>, foreign: Vec<ForeignWrite>) -> CapInForce {
        let limits: Vec<Watts> = match &self.access {
            Access::Hwmon(panel) => (0..self.shares.len())
                .map(|at| watts(panel.last(at)[0].parse().unwrap_or(0)))
                .collect(),
            Access::Device(_, sockets) => sockets.iter().map(|socket| milli(socket.last_mw)).collect(),
        };
        CapInForce {
            limit: limits.iter().copied().sum(),
            zones: limits
                .into_iter()
                .enumerate()
                .map(|(number, limit)| ZoneLimit {
                    zone: format!("package-{number}"),
                    limit,
                })
                .collect(),
            bounded,
            foreign,
            held: match &self.access {
                Access::Hwmon(panel) => (0..self.shares.len()).any(|at| panel.is_held(at)),
                Access::Device(_, sockets) => sockets.iter().any(|socket| socket.held),
            },
        }
    }

    /// Sets each socket to what is given; nothing is what was found.
    fn write(&mut self, parts: &[Option<Watts>]) -> Result<(), PowerLimitError> {
        match &mut self.access {
            Access::Hwmon(panel) => {
                let changes: Vec<Change> = parts
                    .iter()
                    .enumerate()
                    .map(|(at, part)| match part {
                        Some(part) => {
                            panel.change(at, vec![((part.get() * 1e3).round() as u64 * 1_000).to_string()])
                        }
                        None => panel.change(at, panel.found(at).to_vec()),
                    })
                    .filter(|change| change.values != panel.last(change.at))
                    .collect();
                Ok(panel.write_all(&changes)?)
            }
            Access::Device(port, sockets) => {
                for (number, (socket, part)) in sockets.iter_mut().zip(parts).enumerate() {
                    let wanted = part.map_or(socket.found_mw, |part| (part.get() * 1e3).round() as u32);
                    socket.set(port, number as u16, wanted)?;
                }
                Ok(())
            }
        }
    }
}

impl Socket {
    fn name(port: &Port, number: u16) -> String {
        format!("{} socket {number}", port.path().display())
    }

    fn set(&mut self, port: &mut Port, number: u16, wanted_mw: u32) -> Result<(), PowerLimitError> {
        if wanted_mw == self.last_mw || self.handle.is_held(&Self::name(port, number)) {
            return Ok(());
        }
        let (last_mw, found_mw) = (self.last_mw, self.found_mw);
        let written = self.handle.write(
            |undo| {
                if let Undo::Hsmp { ours_mw, .. } = undo {
                    *ours_mw = vec![last_mw, wanted_mw];
                }
                Ok::<(), PowerLimitError>(())
            },
            || set_limit(port, number, wanted_mw),
        );
        let (seen, wanted_mw) = match written {
            // What cannot be recorded is not written; but what was found may always be given back.
            Err(PowerLimitError::Restore(RestoreError::Ledger(_)))
                if wanted_mw > last_mw && found_mw >= last_mw =>
            {
                let back = || set_limit(port, number, found_mw);
                (self.handle.give_back(back)?, found_mw)
            }
            written => (written?, wanted_mw),
        };
        self.last_mw = seen;
        // What the firmware made of it is ours too.
        let noted = self.handle.note(|undo| {
            if let Undo::Hsmp { ours_mw, .. } = undo
                && seen != found_mw
                && !ours_mw.contains(&seen)
            {
                ours_mw.push(seen);
            }
        });
        if let Err(error) = noted {
            self.last_mw = self.handle.give_back(|| set_limit(port, number, found_mw))?;
            return Err(error.into());
        }
        match u64::from(seen.abs_diff(wanted_mw)) * 1_000 <= TOLERANCE_UW {
            true => Ok(()),
            false => Err(NotInForce {
                path: port.path().to_path_buf(),
                written: format!("{wanted_mw} mW"),
                seen: format!("{seen} mW"),
            }
            .into()),
        }
    }

    /// As [`Panel::look`].
    fn foreign_writes(
        &mut self,
        port: &mut Port,
        number: u16,
    ) -> Result<Option<ForeignWrite>, PowerLimitError> {
        let name = Self::name(port, number);
        let was_held = self.held;
        let operated = self.handle.operated()?;
        let pauses = std::mem::replace(&mut self.pauses, operated.pauses);
        let was_paused = pauses != operated.pauses && !operated.written;
        self.held = self.handle.is_held(&name);
        let seen = port.ask(number, Message::Limit)?;
        if !self.held && (was_held || was_paused) {
            self.found_mw = seen;
            self.handle.correct(|undo| {
                if let Undo::Hsmp {
                    found_mw, ours_mw, ..
                } = undo
                {
                    (*found_mw, *ours_mw) = (seen, vec![seen]);
                }
            });
        }
        let expected = std::mem::replace(&mut self.last_mw, seen);
        if self.held || operated.paused || seen == expected {
            return Ok(None);
        }
        if seen == self.found_mw {
            self.handle.distrust();
            return Ok(None);
        }
        let foreign = ForeignWrite {
            path: port.path().to_path_buf(),
            expected: format!("{expected} mW for socket {number}"),
            seen: format!("{seen} mW"),
        };
        self.held = true;
        self.handle.hold(&name, &foreign);
        Ok(Some(foreign))
    }
}

/// Sets a limit; what the firmware made of it.
fn set_limit(port: &mut Port, number: u16, wanted_mw: u32) -> Result<u32, PowerLimitError> {
    port.set_limit(number, wanted_mw)?;
    Ok(port.ask(number, Message::Limit)?)
}

fn milli(milliwatts: u32) -> Watts {
    Watts::new(f64::from(milliwatts) / 1e3)
}

/// No lower limit is known to the interface.
fn share(number: usize, found: Watts, max: Option<Watts>) -> Result<Share, PowerLimitError> {
    Share::of(&format!("socket {number}"), Some(found), None, max)
}

impl HardwareCap for HsmpLimits {
    fn kind(&self) -> LeverKind {
        LeverKind::Hsmp
    }

    fn bounds(&self) -> CapBounds {
        bounds(&self.shares)
    }

    fn settles(&self) -> Seconds {
        Seconds::new(SETTLES_S)
    }

    fn set(&mut self, cap: Option<Watts>) -> Result<CapInForce, PowerLimitError> {
        let cap = cap.map(check).transpose()?;
        let foreign = self.foreign_writes()?;
        let bounds = bounds(&self.shares);
        let parts: Vec<Option<Watts>> = match cap {
            Some(cap) => split(cap, &self.shares).into_iter().map(Some).collect(),
            None => vec![None; self.shares.len()],
        };
        self.write(&parts)?;
        let bounded = cap
            .filter(|cap| *cap < bounds.smallest || *cap > bounds.largest)
            .map(|_| bounds);
        Ok(self.in_force(bounded, foreign))
    }

    fn foreign_writes(&mut self) -> Result<Vec<ForeignWrite>, PowerLimitError> {
        let mut all = Vec::new();
        match &mut self.access {
            Access::Hwmon(panel) => {
                for at in 0..self.shares.len() {
                    all.extend(panel.foreign_writes(at)?);
                }
            }
            Access::Device(port, sockets) => {
                for (number, socket) in sockets.iter_mut().enumerate() {
                    all.extend(socket.foreign_writes(port, number as u16)?);
                }
            }
        }
        Ok(all)
    }

    fn restore(&mut self) -> Vec<Outcome> {
        match &mut self.access {
            Access::Hwmon(panel) => panel.restore().into_iter().collect(),
            Access::Device(_, sockets) => sockets
                .iter_mut()
                .rev()
                .filter_map(|s| s.handle.restore())
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hsmp::fake::FakeSockets;
    use crate::testing::says;
    use rustix::io::Errno;

    fn limits(sockets: &FakeSockets, registry: &Registry) -> Result<HsmpLimits, PowerLimitError> {
        HsmpLimits::open_device(Port::of(sockets.clone()), registry)
    }

    fn set_mw(sockets: &FakeSockets) -> Vec<u32> {
        sockets.0.lock().unwrap().limit.clone()
    }

    #[test]
    fn messages_set_each_socket_and_lift_it_again() {
        let sockets = FakeSockets::new(2);
        let mut limits = limits(&sockets, &Registry::new()).unwrap();
        assert_eq!(
            (limits.bounds().smallest, limits.bounds().largest),
            (Watts::new(96.0), Watts::new(400.0))
        );
        assert_eq!(
            limits.set(Some(Watts::new(250.0))).unwrap().limit,
            Watts::new(250.0)
        );
        assert_eq!(set_mw(&sockets), [125_000, 125_000]);
        assert!(limits.set(Some(Watts::new(10.0))).unwrap().bounded.is_some());
        assert_eq!(set_mw(&sockets), [48_000, 48_000]);
        limits.set(None).unwrap();
        assert_eq!(set_mw(&sockets), [200_000, 200_000]);
    }

    #[test]
    fn another_writer_is_said_and_left_alone_until_an_operator_gives_the_limit_back() {
        let sockets = FakeSockets::new(1);
        let registry = Registry::new();
        let mut limits = limits(&sockets, &registry).unwrap();
        limits.set(Some(Watts::new(100.0))).unwrap();
        sockets.0.lock().unwrap().limit[0] = 170_000;
        let set = limits.set(Some(Watts::new(90.0))).unwrap();
        assert_eq!(set.foreign[0].seen, "170000 mW");
        assert_eq!(set.limit, Watts::new(170.0), "theirs is in force");
        assert!(
            limits.set(Some(Watts::new(80.0))).unwrap().foreign.is_empty(),
            "said once"
        );
        assert_eq!(set_mw(&sockets), [170_000]);
        assert_eq!(registry.resume().len(), 1);
        limits.set(Some(Watts::new(90.0))).unwrap();
        assert_eq!(set_mw(&sockets), [90_000]);
        limits.set(None).unwrap();
        assert_eq!(set_mw(&sockets), [170_000]);
    }

    #[test]
    fn a_port_that_does_not_answer_is_said_with_what_would_help() {
        let sockets = FakeSockets::new(1);
        let mut open = limits(&sockets, &Registry::new()).unwrap();
        sockets.0.lock().unwrap().fails = Some(Errno::TIMEDOUT);
        says(open.set(Some(Watts::new(90.0))).unwrap_err(), &["BIOS"]);
        says(limits(&sockets, &Registry::new()).unwrap_err(), &["BIOS"]);
    }
}
