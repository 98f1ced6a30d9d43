//! A log file, followed across rotation.
//!
//! Three things can happen to a log file. It is renamed and another made in its place (logrotate's `create`): the
//! old one is read to its end, and the new one from its beginning once something stands in it, because the writer
//! keeps the old one open until it is asked to reopen it. It is copied and emptied (`copytruncate`): it is read again from its
//! beginning; that is noticed by its size, or, where it has already grown past the old size, by its first bytes
//! having changed. It is removed: it is waited for. The file is looked at every 50 ms; of two rotations in that time
//! the file between them is missed.

use super::super::line::LINE_MAX;
use super::super::tally::Intake;
use super::{Control, LOOK_EVERY, SourceError, State, now_utc_ms};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How many of a file's first bytes are compared to see whether it was begun anew.
const HEAD: usize = 64;

/// How much is read at once.
const CHUNK: usize = 256 << 10;

/// For so long the path may name no file in a rotation before the log is said to be gone.
const ABSENCE: Duration = Duration::from_secs(2);

/// An open log file.
#[derive(Debug)]
struct Open {
    file: File,
    /// Device and inode.
    identity: (u64, u64),
    /// Up to where it has been read.
    at: u64,
    /// Its first bytes when last looked at, [`HEAD`] at most.
    head: Vec<u8>,
}

impl Open {
    fn of(file: File, at_end: bool) -> io::Result<Self> {
        let found = file.metadata()?;
        if found.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let mut open = Self {
            identity: (found.dev(), found.ino()),
            at: if at_end { found.len() } else { 0 },
            head: Vec::new(),
            file,
        };
        open.head = open.read_head()?;
        Ok(open)
    }

    fn read_head(&self) -> io::Result<Vec<u8>> {
        let mut head = vec![0; HEAD];
        let length = self.file.read_at(&mut head, 0)?;
        head.truncate(length);
        Ok(head)
    }

    /// Whether the file was emptied, or emptied and written again, since it was last looked at.
    fn begun_anew(&mut self) -> io::Result<bool> {
        let head = self.read_head()?;
        let anew = self.file.metadata()?.len() < self.at || !head.starts_with(&self.head);
        self.head = head;
        Ok(anew)
    }
}

/// What follows a file.
#[derive(Debug)]
pub(super) struct Follower {
    path: PathBuf,
    open: Option<Open>,
    /// The beginning of a line whose end has not come, [`LINE_MAX`] bytes at most.
    partial: Vec<u8>,
    /// The rest of a line that was too long is passed over.
    skipping: bool,
    chunk: Vec<u8>,
}

impl Follower {
    /// Opens the file if it is there.
    pub fn new(path: PathBuf) -> Result<Self, SourceError> {
        let open = match File::open(&path).and_then(|file| Open::of(file, true)) {
            Ok(open) => Some(open),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                return Err(SourceError::Directory(path));
            }
            Err(error) => return Err(SourceError::File { path, error }),
        };
        // What is read first may be the rest of a line whose beginning was there before.
        let skipping = open.as_ref().is_some_and(|open| {
            let mut last = [b'\n'];
            open.at > 0 && open.file.read_at(&mut last, open.at - 1).is_ok() && last != *b"\n"
        });
        Ok(Self {
            path,
            open,
            partial: Vec::new(),
            skipping,
            chunk: vec![0; CHUNK],
        })
    }

    /// Takes everything new; whether the file is there.
    ///
    /// # Errors
    /// What the system says where the file cannot be read, or what stands in its place cannot be opened. It is
    /// tried again by the next call.
    fn advance(&mut self, control: &Control, intake: &mut Intake) -> io::Result<bool> {
        if let Some(open) = &mut self.open
            && open.begun_anew()?
        {
            open.at = 0;
            self.drop_partial(intake);
        }
        self.drain(control, intake)?;
        match fs::metadata(&self.path) {
            Ok(found) => {
                let other = self
                    .open
                    .as_ref()
                    .is_none_or(|open| open.identity != (found.dev(), found.ino()));
                if other && (self.open.is_none() || found.len() > 0) {
                    let next = Open::of(File::open(&self.path)?, false)?;
                    // The writer has gone over to the new file, so nothing comes after what is there now.
                    self.drain(control, intake)?;
                    self.drop_partial(intake);
                    self.open = Some(next);
                    self.drain(control, intake)?;
                }
                Ok(true)
            }
            // Between the two steps of a rotation there is none; the old file is read on.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads the open file to its present end.
    fn drain(&mut self, control: &Control, intake: &mut Intake) -> io::Result<()> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        while !control.stopped() {
            let length = match open.file.read_at(&mut self.chunk, open.at) {
                Ok(0) => return Ok(()),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            open.at += length as u64;
            let now = now_utc_ms();
            let mut rest = &self.chunk[..length];
            while let Some(end) = memchr::memchr(b'\n', rest) {
                let (line, behind) = (&rest[..end], &rest[end + 1..]);
                rest = behind;
                if std::mem::take(&mut self.skipping) {
                    continue;
                }
                if self.partial.is_empty() {
                    intake.line(line, now);
                } else {
                    self.partial.extend_from_slice(line);
                    intake.line(&self.partial, now);
                    self.partial.clear();
                }
            }
            if !self.skipping {
                self.partial.extend_from_slice(rest);
                if self.partial.len() > LINE_MAX {
                    intake.too_long(&self.partial);
                    self.partial.clear();
                    self.skipping = true;
                }
            }
        }
        Ok(())
    }

    /// Gives up a line whose end will not come any more.
    fn drop_partial(&mut self, intake: &mut Intake) {
        if !self.partial.is_empty() {
            // Written whole but for its line end it is a line; otherwise it is counted as cut short.
            intake.line(&self.partial, now_utc_ms());
            self.partial.clear();
        }
        self.skipping = false;
    }
}

/// Follows the file until it is stopped. A file that cannot be read at present is waited for.
pub(super) fn read(control: &Control, intake: &mut Intake, mut follower: Follower) -> io::Result<()> {
    let mut waiting = false;
    let mut seen = Instant::now();
    while !control.stopped() {
        let obstacle = match follower.advance(control, intake) {
            Ok(true) => {
                seen = Instant::now();
                None
            }
            Ok(false) if follower.open.is_some() && seen.elapsed() < ABSENCE => None,
            Ok(false) => Some(format!("{} does not exist", follower.path.display())),
            Err(error) => Some(format!("{}: {error}", follower.path.display())),
        };
        if obstacle.is_some() || waiting {
            waiting = obstacle.is_some();
            control.set(obstacle.map_or(State::Reading, State::Waiting));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
