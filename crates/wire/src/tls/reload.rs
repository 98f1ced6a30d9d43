//! Certificates, keys and revocation lists that are read again when their files change, without a restart.

use super::{TlsError, TlsFiles};
use crate::certs::Certificate;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// A certificate that ends within so many days is told of, once at each of them.
const WARN_AT_DAYS: [i64; 4] = [30, 7, 1, 0];

/// What one end of a connection makes of its files.
pub trait End: Sized {
    fn load(files: &TlsFiles) -> Result<(Self, Certificate), TlsError>;
}

/// The files of one end, as they were last good.
pub(super) struct Reloading<E> {
    files: TlsFiles,
    inside: Mutex<Inside<E>>,
}

struct Inside<E> {
    end: Arc<E>,
    own: Certificate,
    state: Vec<FileState>,
    checked: Instant,
    /// Why the new files are not used, as the log has it.
    complaint: Option<String>,
    /// The least of [`WARN_AT_DAYS`] that was reported.
    warned_at: Option<i64>,
}

/// What changes when a file is written or replaced; `None` where it is missing.
type FileState = Option<(u64, u64, u64, i64, i64)>;

fn state(path: &Path) -> FileState {
    let about = std::fs::metadata(path).ok()?;
    Some((
        about.dev(),
        about.ino(),
        about.size(),
        about.mtime(),
        about.mtime_nsec(),
    ))
}

impl<E: End> Reloading<E> {
    pub(super) fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        // Before the files are read: one that changes meanwhile is read again.
        let state = states(files);
        let (end, own) = E::load(files)?;
        let mut inside = Inside {
            end: Arc::new(end),
            own,
            state,
            checked: Instant::now(),
            complaint: None,
            warned_at: None,
        };
        inside.note_days_left(SystemTime::now());
        Ok(Self {
            files: files.clone(),
            inside: Mutex::new(inside),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inside<E>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is good now.
    pub(super) fn current(&self) -> Arc<E> {
        Arc::clone(&self.lock().end)
    }

    /// Whole days until the own certificate ends; negative where it has.
    pub(super) fn days_left(&self) -> i64 {
        self.lock().own.days_left(SystemTime::now())
    }

    /// Reads the files again where they changed and the last look is at least `every` ago. Bad ones are reported once, and
    /// the good ones kept.
    pub(super) fn refresh(&self, every: Duration) {
        let mut inside = self.lock();
        if inside.checked.elapsed() < every {
            return;
        }
        inside.checked = Instant::now();
        let state = states(&self.files);
        if state != inside.state || inside.complaint.is_some() {
            match E::load(&self.files) {
                Ok((end, own)) => {
                    tracing::info!(
                        certificate = %own.path.display(),
                        days_left = own.days_left(SystemTime::now()),
                        "the certificate, its key, the authority and the revocation list were read again"
                    );
                    inside.end = Arc::new(end);
                    inside.own = own;
                    inside.complaint = None;
                    inside.warned_at = None;
                    inside.state = state;
                }
                Err(error) => {
                    let why = error.to_string();
                    if inside.complaint.as_ref() != Some(&why) {
                        tracing::error!(
                            "new certificate files cannot be used, those before stay in use: {why}"
                        );
                        inside.complaint = Some(why);
                    }
                }
            }
        }
        inside.note_days_left(SystemTime::now());
    }
}

impl<E> Inside<E> {
    fn note_days_left(&mut self, now: SystemTime) {
        super::expiry::note(&self.own.subject, self.own.not_after);
        let days_left = self.own.days_left(now);
        let reached = WARN_AT_DAYS.into_iter().filter(|at| days_left < *at).min();
        if reached.is_some() && reached != self.warned_at {
            tracing::warn!(
                certificate = %self.own.path.display(),
                days_left,
                "the certificate ends soon: renew it with `headroom certs renew`"
            );
        }
        self.warned_at = reached;
    }
}

fn states(files: &TlsFiles) -> Vec<FileState> {
    let always = [&files.ca, &files.certificate, &files.key];
    always
        .into_iter()
        .chain(&files.revoked)
        .map(|path| state(path))
        .collect()
}
