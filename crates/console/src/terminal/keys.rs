//! The keys that end a live view. They are read here and not by crossterm, which waits for keys and for changes of the
//! terminal's size with one edge-triggered epoll: where both have happened, it tells of one and never looks at the other
//! again, so a key is lost until the next one. The size is looked up for each picture anyway.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use std::os::fd::AsFd;

/// Bytes that are read at once, and how often in one look: what is typed beyond that waits for the next look.
const AT_ONCE: usize = 256;
const READS: usize = 16;

const CTRL_C: u8 = 0x03;
const ESCAPE: u8 = 0x1b;

/// Reads what was typed at a terminal in raw mode, without waiting; whether `q` or Ctrl-C was among it. A terminal that
/// is gone types nothing.
///
/// # Errors
/// Where it cannot be asked.
pub fn asked_to_end(keyboard: impl AsFd) -> std::io::Result<bool> {
    let mut typed = [0; AT_ONCE];
    let mut asked = false;
    for _ in 0..READS {
        let mut ready = [PollFd::new(&keyboard, PollFlags::IN)];
        match poll(&mut ready, Some(&Timespec::default())) {
            Ok(1..) if ready[0].revents().contains(PollFlags::IN) => {}
            Err(Errno::INTR) => continue,
            Ok(_) => break,
            Err(errno) => return Err(errno.into()),
        }
        match read(&keyboard, &mut typed) {
            Ok(0) | Err(Errno::IO | Errno::AGAIN) => break,
            Ok(count) => asked |= has_end(&typed[..count]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(asked)
}

/// Whether `q` or Ctrl-C is among what was typed. A cursor or function key sends several characters, none of which is one
/// that was typed: ESC O and one more, or ESC [ and more up to one from @ to ~ (ECMA-48, Section 5.4). ESC before anything
/// else is the Escape key, or Alt.
fn has_end(typed: &[u8]) -> bool {
    let mut rest = typed;
    while let [first, after @ ..] = rest {
        rest = match (first, after) {
            (&CTRL_C | b'q', _) => return true,
            (&ESCAPE, [b'O', b' '..=u8::MAX, after @ ..]) => after,
            (&ESCAPE, [b'[', sequence @ ..]) => {
                let end = sequence.iter().position(|byte| !(0x20..=0x3f).contains(byte));
                match end {
                    // A control character belongs to no sequence.
                    Some(end) if sequence[end] < 0x20 => &sequence[end..],
                    Some(end) => &sequence[end + 1..],
                    None => &[],
                }
            }
            _ => after,
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn q_and_ctrl_c_end_it_and_no_other_key_does() {
        for typed in [
            &b"q"[..],
            b"\x03",
            b"abcq",
            b"\x1bq",
            b"\x1b\x1bq",
            b"\x1b[Aq",
            b"\x1b[1;5Cq",
            b"\x1bOPq",
            b"\x1b[\x03",
            b"\x1b[1;\x03",
            "é\x03".as_bytes(),
        ] {
            assert!(has_end(typed), "{typed:?}");
        }
        for typed in [
            &b""[..],
            b"Q",
            b"\x1b",
            b"\x1b[A",
            b"\x1b[15~",
            b"\x1b[1;5q",
            b"\x1bOq",
            b"\x1b[",
            b"\x1bO",
            "ѱ√".as_bytes(),
        ] {
            assert!(!has_end(typed), "{typed:?}");
        }
    }

    #[test]
    fn everything_that_was_typed_is_read_and_nothing_is_waited_for() {
        let (read_end, mut write_end) = std::io::pipe().unwrap();
        assert!(!asked_to_end(&read_end).unwrap());
        write_end.write_all(&[b'x'; 3 * AT_ONCE]).unwrap();
        assert!(!asked_to_end(&read_end).unwrap());
        write_end.write_all(&[b'x'; AT_ONCE]).unwrap();
        write_end.write_all(b"q").unwrap();
        assert!(asked_to_end(&read_end).unwrap());
        assert!(!asked_to_end(&read_end).unwrap(), "once");
        drop(write_end);
        assert!(!asked_to_end(&read_end).unwrap(), "gone");
    }

    #[test]
    fn ctrl_c_ends_it_whatever_was_typed_before() {
        for one in 0..=u8::MAX {
            for other in 0..=u8::MAX {
                assert!(has_end(&[one, other, CTRL_C]) && has_end(&[ESCAPE, one, other, CTRL_C]));
            }
        }
    }
}
