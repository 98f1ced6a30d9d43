//! The system call behind `/dev/hsmp`.
#![allow(unsafe_code, reason = "there is no safe wrapper for this ioctl")]

use super::{Mailbox, Message};
use rustix::io::Errno;
use rustix::ioctl::{Updater, ioctl, opcode};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Words of argument or answer in a message.
const WORDS: usize = 8;

/// `struct hsmp_message` of arch/x86/include/uapi/asm/amd_hsmp.h (packed to four bytes there, which changes nothing).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct HsmpMessage {
    id: u32,
    arguments: u16,
    answers: u16,
    words: [u32; WORDS],
    socket: u16,
}

/// `HSMP_IOCTL_CMD`.
const COMMAND: rustix::ioctl::Opcode = opcode::read_write::<HsmpMessage>(0xF8, 0);

/// The device, opened.
#[derive(Debug)]
pub(super) struct Device(File);

impl Device {
    /// Opens it: for writing only where limits are to be set, as everybody may read.
    pub(super) fn open(path: &Path, write: bool) -> io::Result<Self> {
        OpenOptions::new().read(true).write(write).open(path).map(Self)
    }
}

impl Mailbox for Device {
    fn send(&mut self, socket: u16, message: Message, argument: Option<u32>) -> Result<u32, Errno> {
        let mut about = HsmpMessage {
            id: message.number(),
            arguments: u16::from(argument.is_some()),
            answers: u16::from(argument.is_none()),
            socket,
            ..HsmpMessage::default()
        };
        about.words[0] = argument.unwrap_or(0);
        // SAFETY: COMMAND is HSMP_IOCTL_CMD and HsmpMessage has the layout of the structure that it is defined with, so
        // the kernel reads and writes within `about`, which outlives the call. A file that is no HSMP device answers
        // ENOTTY.
        unsafe { ioctl(&self.0, Updater::<COMMAND, HsmpMessage>::new(&mut about))? };
        Ok(about.words[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_and_the_number_are_the_kernels() {
        assert_eq!(size_of::<HsmpMessage>(), 44);
        assert_eq!(std::mem::offset_of!(HsmpMessage, words), 8);
        assert_eq!(std::mem::offset_of!(HsmpMessage, socket), 40);
        // _IOWR(0xF8, 0, 44 bytes): direction 3, size, type, number.
        assert_eq!(COMMAND, (3 << 30) | (44 << 16) | (0xF8 << 8));
    }

    #[test]
    fn another_device_does_not_know_the_call() {
        let mut device = Device::open(Path::new("/dev/null"), false).unwrap();
        assert_eq!(device.send(0, Message::SocketPower, None), Err(Errno::NOTTY));
    }
}
