//! AMD's Host System Management Port: socket power and its limit on server processors
//! (Documentation/arch/x86/amd_hsmp.rst). Newer drivers show both through hwmon, which is preferred; older ones answer
//! messages on `/dev/hsmp`.

mod device;

use crate::file::{Action, FileError};
use crate::{Roots, file};
use headroom_units::Watts;
use rustix::io::Errno;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The device.
pub(crate) const DEVICE: &str = "/dev/hsmp";
/// Sockets are asked for until one is none; no machine has more.
const MAX_SOCKETS: u16 = 16;

/// A message of HSMP about power, with its number in the processor's manual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// 04h, milliwatts.
    SocketPower,
    /// 05h, milliwatts.
    SetLimit,
    /// 06h, milliwatts.
    Limit,
    /// 07h, milliwatts.
    LargestLimit,
}

impl Message {
    fn number(self) -> u32 {
        match self {
            Self::SocketPower => 0x04,
            Self::SetLimit => 0x05,
            Self::Limit => 0x06,
            Self::LargestLimit => 0x07,
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Self::SocketPower => "read the power",
            Self::SetLimit => "set the power limit",
            Self::Limit => "read the power limit",
            Self::LargestLimit => "read the largest power limit",
        }
    }
}

/// A message that was not answered.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} of socket {socket} by {path}: {cause}; {remedy}", path = path.display(), remedy = remedy(cause))]
pub struct HsmpError {
    /// What was tried.
    pub action: &'static str,
    /// Which socket.
    pub socket: u16,
    /// The device.
    pub path: PathBuf,
    /// The answer.
    pub cause: io::Error,
}

/// What the answers of the driver mean (drivers/platform/x86/amd/hsmp/hsmp.c).
pub(crate) fn remedy(cause: &io::Error) -> &'static str {
    match cause.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::TIMEDOUT) => {
            "the processor does not answer: enable HSMP in the BIOS (it is off by default on some boards)"
        }
        Some(Errno::NOMSG) => {
            "this processor or its firmware does not know the message: update the BIOS, or use the software power cap"
        }
        Some(Errno::REMOTEIO) => {
            "something that the message needs is not enabled: see HSMP in the BIOS and the processor's manual"
        }
        Some(Errno::BUSY | Errno::AGAIN) => "the processor is busy with another message: try again",
        Some(Errno::PERM | Errno::ACCESS) => "setting a limit needs write access to the device: run as root",
        Some(Errno::NODEV) => "there is no such socket",
        Some(Errno::NOENT) => "enable HSMP in the BIOS, then: modprobe amd_hsmp",
        Some(Errno::INVAL) => {
            "the driver refuses the value: limits are in milliwatts, up to the socket's maximum"
        }
        _ => "see the kernel's log (dmesg) for more",
    }
}

/// Whoever answers messages: the device, or another in a test.
pub(crate) trait Mailbox: std::fmt::Debug + Send {
    /// Sends a message with or without an argument; the first word of the answer.
    fn send(&mut self, socket: u16, message: Message, argument: Option<u32>) -> Result<u32, Errno>;
}

/// The device with words for its errors.
#[derive(Debug)]
pub(crate) struct Port {
    path: PathBuf,
    mailbox: Box<dyn Mailbox>,
}

impl Port {
    pub(crate) fn open(path: &Path, write: bool) -> Result<Self, FileError> {
        let action = if write { Action::Write } else { Action::Read };
        let device =
            device::Device::open(path, write).map_err(|cause| FileError::new(action, path, cause))?;
        Ok(Self {
            path: path.into(),
            mailbox: Box::new(device),
        })
    }

    #[cfg(test)]
    pub(crate) fn of(mailbox: impl Mailbox + 'static) -> Self {
        Self {
            path: DEVICE.into(),
            mailbox: Box::new(mailbox),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Asks for a power in milliwatts.
    pub(crate) fn ask(&mut self, socket: u16, message: Message) -> Result<u32, HsmpError> {
        self.mailbox
            .send(socket, message, None)
            .map_err(|errno| self.error(socket, message, errno))
    }

    /// Sets a socket's limit in milliwatts.
    pub(crate) fn set_limit(&mut self, socket: u16, milliwatts: u32) -> Result<(), HsmpError> {
        self.mailbox
            .send(socket, Message::SetLimit, Some(milliwatts))
            .map(|_| ())
            .map_err(|errno| self.error(socket, Message::SetLimit, errno))
    }

    /// How many sockets answer.
    pub(crate) fn sockets(&mut self) -> Result<u16, HsmpError> {
        for socket in 0..MAX_SOCKETS {
            match self.mailbox.send(socket, Message::SocketPower, None) {
                Ok(_) => {}
                Err(Errno::NODEV | Errno::NOENT) if socket > 0 => return Ok(socket),
                Err(errno) => return Err(self.error(socket, Message::SocketPower, errno)),
            }
        }
        Ok(MAX_SOCKETS)
    }

    fn error(&self, socket: u16, message: Message, errno: Errno) -> HsmpError {
        HsmpError {
            action: message.in_words(),
            socket,
            path: self.path.clone(),
            cause: errno.into(),
        }
    }
}

/// A socket in hwmon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HwmonSocket {
    pub(crate) dir: PathBuf,
}

impl HwmonSocket {
    pub(crate) fn power(&self) -> PathBuf {
        self.dir.join("power1_input")
    }

    pub(crate) fn cap(&self) -> PathBuf {
        self.dir.join("power1_cap")
    }

    pub(crate) fn largest_cap(&self) -> Option<Watts> {
        let microwatts = file::read_u64(&self.dir.join("power1_cap_max")).ok()?;
        Some(crate::powercap::watts(microwatts)).filter(|watts| watts.get() > 0.0)
    }
}

/// The sockets that hwmon shows, in the order of their numbers.
pub(crate) fn hwmon_sockets(roots: &Roots) -> Vec<HwmonSocket> {
    let mut dirs: Vec<PathBuf> = fs::read_dir(roots.sys("class/hwmon"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|dir| file::read(&dir.join("name")).is_ok_and(|name| name == "amd_hsmp_hwmon"))
        .take(usize::from(MAX_SOCKETS))
        .collect();
    dirs.sort_by_key(|dir| (dir.as_os_str().len(), dir.clone()));
    dirs.into_iter().map(|dir| HwmonSocket { dir }).collect()
}

/// The device, where it speaks of the machine whose tree the roots show.
pub(crate) fn device(roots: &Roots) -> Option<PathBuf> {
    let path = PathBuf::from(DEVICE);
    (roots.is_this_kernel() && path.exists()).then_some(path)
}

/// Why there is none.
pub(crate) fn why_none(roots: &Roots) -> String {
    let cpuinfo = file::read(&roots.proc_("cpuinfo")).unwrap_or_default();
    match cpuinfo.contains("AuthenticAMD") {
        false => "the processor is not AMD's".to_owned(),
        true => format!(
            "neither hwmon nor {DEVICE} shows an HSMP port, which AMD's server processors have: enable it in the BIOS, then \
             modprobe amd_hsmp"
        ),
    }
}

#[cfg(test)]
pub(crate) mod fake {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// A processor that answers.
    #[derive(Clone, Debug)]
    pub(crate) struct FakeSockets(pub(crate) Arc<Mutex<State>>);

    #[derive(Debug)]
    pub(crate) struct State {
        pub(crate) power: Vec<u32>,
        pub(crate) limit: Vec<u32>,
        pub(crate) largest: u32,
        pub(crate) fails: Option<Errno>,
    }

    impl FakeSockets {
        pub(crate) fn new(sockets: usize) -> Self {
            Self(Arc::new(Mutex::new(State {
                power: vec![90_000; sockets],
                limit: vec![200_000; sockets],
                largest: 240_000,
                fails: None,
            })))
        }
    }

    impl Mailbox for FakeSockets {
        fn send(&mut self, socket: u16, message: Message, argument: Option<u32>) -> Result<u32, Errno> {
            let mut state = self.0.lock().unwrap();
            let at = usize::from(socket);
            if at >= state.power.len() {
                return Err(Errno::NODEV);
            }
            if let Some(errno) = state.fails {
                return Err(errno);
            }
            Ok(match (message, argument) {
                (Message::SocketPower, None) => state.power[at],
                (Message::Limit, None) => state.limit[at],
                (Message::LargestLimit, None) => state.largest,
                (Message::SetLimit, Some(milliwatts)) => {
                    state.limit[at] = milliwatts.min(state.largest);
                    0
                }
                _ => return Err(Errno::INVAL),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::says;

    #[test]
    fn sockets_are_counted_until_one_is_none() {
        let mut port = Port::of(fake::FakeSockets::new(2));
        assert_eq!(port.sockets().unwrap(), 2);
        assert_eq!(port.ask(1, Message::LargestLimit).unwrap(), 240_000);
    }

    #[test]
    fn each_answer_of_the_driver_has_a_remedy_in_words() {
        for (errno, word) in [
            (Errno::TIMEDOUT, "enable HSMP in the BIOS"),
            (Errno::NOMSG, "does not know the message"),
            (Errno::INVAL, "milliwatts"),
            (Errno::REMOTEIO, "not enabled"),
            (Errno::BUSY, "try again"),
            (Errno::PERM, "run as root"),
            (Errno::NODEV, "no such socket"),
        ] {
            let sockets = fake::FakeSockets::new(1);
            sockets.0.lock().unwrap().fails = Some(errno);
            says(
                Port::of(sockets).set_limit(0, 1).unwrap_err(),
                &[word, "/dev/hsmp"],
            );
        }
    }

    #[test]
    fn a_missing_device_is_named() {
        let error = Port::open(Path::new("/dev/hsmp-that-is-not"), true)
            .unwrap_err()
            .to_string();
        assert!(error.contains("/dev/hsmp-that-is-not"));
    }
}
