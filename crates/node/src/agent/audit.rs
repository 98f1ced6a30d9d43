//! Who commanded what: one JSON line for each change, each release and each refusal.
//!
//! | key | it is |
//! |---|---|
//! | `time_unix_s` | when, in seconds since 1970 |
//! | `peer`, `address`, `role` | who: its certificate's name or `uid:NUMBER`, from where, and what it may do here |
//! | `call`, `holder`, `lease_id`, `sequence` | what was asked |
//! | `before`, `after` | what was in force: a value for each lever that the agent limits, in the lever's unit |
//! | `outcome` | `done`, or why it was refused |

use headroom_units::Setting;
use headroom_wire::message::{Applied, Apply, Holder, Released};
use headroom_wire::server::Peer;
use headroom_wire::{Refusal, limiter};
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The size of one audit file where nothing else is said, in bytes.
pub const MAX_BYTES: u64 = 4 << 20;
/// Older files that are kept beside it: FILE.1 is the newest.
pub const MAX_OLDER: u32 = 4;

/// Where it is written who commanded what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditFile {
    /// The file; made with mode 0600 where it is missing, and added to where it is there.
    pub path: PathBuf,
    /// A file that would grow beyond it is kept as FILE.1, and a new one begun.
    pub max_bytes: u64,
}

impl AuditFile {
    /// At a path, of the usual size.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            max_bytes: MAX_BYTES,
        }
    }
}

/// The audit of one agent; a clone writes to the same.
#[derive(Clone, Debug)]
pub(super) struct Audit(Option<Arc<Mutex<Rotating>>>);

#[derive(Debug)]
struct Rotating {
    file: AuditFile,
    /// What is open and how long it is; `None` after a failure, until it can be opened again.
    open: Option<(File, u64)>,
}

impl Audit {
    /// Opens the file, so that one that cannot be written is known at the start.
    pub(super) fn open(file: Option<AuditFile>) -> io::Result<Self> {
        let Some(file) = file else { return Ok(Self(None)) };
        let open = open(&file.path).map_err(|error| {
            let why = format!("cannot write the audit file {}: {error}", file.path.display());
            io::Error::new(error.kind(), why)
        })?;
        let open = Some(open);
        Ok(Self(Some(Arc::new(Mutex::new(Rotating { file, open })))))
    }

    /// An Apply: written where it was refused, changed what is in force, or took the lease. `before` is what was in force,
    /// and whether there was a lease.
    pub(super) fn applied(
        &self,
        peer: &Peer,
        apply: &Apply,
        before: (Setting, bool),
        after: Setting,
        outcome: &Result<Applied, Refusal>,
    ) {
        if outcome.is_ok() && before == (after, true) {
            return;
        }
        let about = json!({
            "call": "apply",
            "holder": apply.holder.name(),
            "lease_id": format!("{:016x}", apply.holder.lease_id()),
            "sequence": apply.sequence,
            "asked": apply.setting,
        });
        self.note(Some(peer), about, Some((before.0, after)), outcome.as_ref().err());
    }

    /// A Release.
    pub(super) fn released(
        &self,
        peer: &Peer,
        holder: &Holder,
        before: Setting,
        after: Setting,
        outcome: &Result<Released, Refusal>,
    ) {
        let about = json!({
            "call": "release",
            "holder": holder.name(),
            "lease_id": format!("{:016x}", holder.lease_id()),
        });
        self.note(Some(peer), about, Some((before, after)), outcome.as_ref().err());
    }

    /// A lease that was not renewed.
    pub(super) fn ran_out(&self, holder: &Holder, before: Setting, after: Setting) {
        let about = json!({
            "call": "lease ran out",
            "holder": holder.name(),
            "lease_id": format!("{:016x}", holder.lease_id()),
        });
        self.note(None, about, Some((before, after)), None);
    }

    /// A call that the peer's role does not allow.
    pub(super) fn refused(&self, peer: &Peer, refusal: &Refusal) {
        let call = match refusal {
            Refusal::Forbidden { call, .. } => call.to_lowercase(),
            _ => "unknown".to_owned(),
        };
        self.note(Some(peer), json!({ "call": call }), None, Some(refusal));
    }

    fn note(
        &self,
        peer: Option<&Peer>,
        mut line: Value,
        change: Option<(Setting, Setting)>,
        refusal: Option<&Refusal>,
    ) {
        // A peer that is refused again and again must not push out of the files what others did.
        if let (Some(peer), Some(_)) = (peer, refusal)
            && !limiter::admits(&peer.key(), "audit of refusals")
        {
            return;
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        line["time_unix_s"] = json!((time.as_secs_f64() * 1e3).round() / 1e3);
        if let Some(peer) = peer {
            line["peer"] = json!(peer.identity.to_string());
            line["address"] = json!(peer.place());
            line["role"] = json!(peer.access.as_str());
        }
        if let Some((before, after)) = change {
            line["before"] = json!(before);
            line["after"] = json!(after);
        }
        line["outcome"] = match refusal {
            Some(refusal) => json!(format!("refused: {refusal}")),
            None => json!("done"),
        };
        match &self.0 {
            None => tracing::info!(target: "audit", "{line}"),
            Some(rotating) => {
                let mut rotating = rotating.lock().unwrap_or_else(PoisonError::into_inner);
                if let Err(error) = rotating.write(&format!("{line}\n")) {
                    rotating.open = None;
                    if limiter::admits("this machine", "audit file") {
                        let path = rotating.file.path.display();
                        tracing::error!("cannot write the audit file {path}: {error}; not in it: {line}");
                    }
                }
            }
        }
    }
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)?;
    let length = file.metadata()?.len();
    Ok((file, length))
}

fn older(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

impl Rotating {
    fn write(&mut self, line: &str) -> io::Result<()> {
        let (mut file, mut length) = match self.open.take() {
            Some(open) => open,
            None => open(&self.file.path)?,
        };
        if length > 0 && length + line.len() as u64 > self.file.max_bytes {
            for number in (1..MAX_OLDER).rev() {
                let from = older(&self.file.path, number);
                match fs::rename(&from, older(&self.file.path, number + 1)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            fs::rename(&self.file.path, older(&self.file.path, 1))?;
            (file, length) = open(&self.file.path)?;
        }
        file.write_all(line.as_bytes())?;
        self.open = Some((file, length + line.len() as u64));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::says;

    #[test]
    fn old_lines_are_kept_in_so_many_files_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let file = AuditFile {
            path: path.clone(),
            max_bytes: 100,
        };
        let audit = Audit::open(Some(file)).unwrap();
        let holder = Holder::new("c", 7).unwrap();
        for _ in 0..20 {
            audit.ran_out(&holder, Setting::default(), Setting::default());
        }
        // Each line is longer than a file may be, so that each has one.
        let mut files: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        files.sort();
        assert_eq!(files, ["audit", "audit.1", "audit.2", "audit.3", "audit.4"]);
        for file in files {
            let text = fs::read_to_string(dir.path().join(file)).unwrap();
            let line: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(
                (&line["call"], &line["outcome"]),
                (&json!("lease ran out"), &json!("done"))
            );
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_is_known_at_the_start() {
        says(
            Audit::open(Some(AuditFile::at("/proc/nowhere/audit"))).unwrap_err(),
            &["cannot write the audit file /proc/nowhere/audit"],
        );
    }
}
