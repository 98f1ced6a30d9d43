//! The recorder's handles: what the control loop holds.

use crate::error::Error;
use crate::histogram;
use crate::limits::Limits;
use crate::model::{PeriodRecord, RunId, RunMeta};
use crate::schema;
use crate::summary::RunSummary;
use crate::writer::{Message, OpenFile, Writer};
use hdrhistogram::Histogram;
use headroom_units::Ratio;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

/// Periods that wait for the disk at most; further ones are dropped and counted.
const MAX_QUEUE: usize = 1024;

/// How long the start or the end of a run waits for the disk.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A flight recorder: one file, one thread that writes it. Clones share both.
///
/// The thread ends when the recorder and all its runs are gone; dropping the last of them waits for what is queued.
#[derive(Clone)]
pub struct Recorder {
    inner: Arc<Inner>,
}

struct Inner {
    sender: Option<SyncSender<Message>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
    path: PathBuf,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The thread ends when its queue has no sender any more.
        drop(self.sender.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(path = %self.path.display(), "the thread of the flight recorder ended in a panic");
        }
    }
}

/// Counters that the handles and the writing thread share.
#[derive(Default)]
pub(crate) struct Shared {
    written: AtomicU64,
    dropped: AtomicU64,
    refused: AtomicU64,
    unwritten: AtomicU64,
    failures: AtomicU64,
    failing: Mutex<Option<String>>,
}

impl Shared {
    pub(crate) fn written(&self, rows: u64) {
        self.written.fetch_add(rows, Ordering::Relaxed);
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if failing.take().is_some() {
            let lost = self.unwritten.load(Ordering::Relaxed);
            tracing::warn!(lost_periods = lost, "the flight recorder writes again");
        }
    }

    /// Counts a failure, and says it once: a disk that stays full does not fill the log as well.
    /// Rows were written to a file that is not where it was opened any more: nobody will find them.
    pub(crate) fn lost(&self, rows: u64, why: String) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.unwritten.fetch_add(rows, Ordering::Relaxed);
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if failing.as_ref() != Some(&why) {
            tracing::error!("the flight recorder writes where nobody will look: {why}");
            *failing = Some(why);
        }
    }

    pub(crate) fn failed(&self, rows: u64, doing: &'static str, error: &rusqlite::Error) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.unwritten.fetch_add(rows, Ordering::Relaxed);
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if failing.is_none() {
            tracing::error!(
                %error,
                "the flight recorder cannot write ({doing}): the run goes on, its periods are missing from the file until \
                 the disk has room and may be written"
            );
            *failing = Some(format!("{doing}: {error}"));
        }
    }
}

/// How a recorder fares; all counts are since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Periods written.
    pub written: u64,
    /// Periods dropped because the queue was full: the disk stalls.
    pub dropped: u64,
    /// Periods refused because a value in them is impossible (NaN, a number that does not ascend).
    pub refused: u64,
    /// Periods that reached the writer and that the disk refused.
    pub unwritten: u64,
    /// Failed operations on the file.
    pub failures: u64,
    /// The failure that persists, if one does: what was being done and what SQLite said.
    pub failing: Option<String>,
}

impl Recorder {
    /// Opens a file for recording, creates it (and its folder) where there is none, and removes what exceeds the limits.
    ///
    /// # Errors
    /// The folder or the file cannot be made, opened or written; the file is no recorder file, or another version's;
    /// a limit makes no sense.
    pub fn open(path: &Path, limits: Limits) -> Result<Self, Error> {
        limits.check()?;
        let connection = schema::open_writer(path)?;
        schema::try_room(path)?;
        let (sender, receiver) = mpsc::sync_channel(MAX_QUEUE);
        let shared = Arc::new(Shared::default());
        let file = OpenFile::at(path);
        let writer = Writer::new(connection, file, limits, Arc::clone(&shared)).map_err(Error::open(path))?;
        let thread = thread::Builder::new()
            .name("recorder".to_owned())
            .spawn(move || writer.run(&receiver))
            .map_err(Error::Thread)?;
        let path = path.to_owned();
        Ok(Self {
            inner: Arc::new(Inner {
                sender: Some(sender),
                thread: Some(thread),
                shared,
                path,
            }),
        })
    }

    /// Tries all that [`Recorder::open`] needs, and leaves everything as it was: of a file that is not there yet, one beside
    /// it is made and removed again.
    ///
    /// # Errors
    /// As [`Recorder::open`].
    pub fn check(path: &Path, limits: Limits) -> Result<(), Error> {
        limits.check()?;
        schema::try_writer(path)
    }

    /// The recorder's file.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Starts a run. Waits for the disk, so call it before the control loop starts.
    ///
    /// # Errors
    /// The run cannot be written, or the disk does not answer within 30 s.
    pub fn start_run(&self, meta: RunMeta) -> Result<RunRecorder, Error> {
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&dropped);
        let start = move |writer: &mut Writer| writer.start(meta, counted);
        let id = self.inner.change("starting a run", start)?;
        Ok(RunRecorder {
            inner: Arc::clone(&self.inner),
            id,
            last_index: None,
            dropped,
            refusal_noted: false,
            ended: false,
        })
    }

    /// Replaces a run's configuration, as text, by one that says more: what was known only at its end, such as what it
    /// measured of the service. It may have ended.
    ///
    /// # Errors
    /// There is no such run, the disk refuses, or it does not answer within 30 s.
    pub fn describe(&self, run: RunId, config: impl Into<String>) -> Result<(), Error> {
        let config = config.into();
        let describe = move |writer: &mut Writer| writer.describe(run.0, &config);
        self.inner.change("describing a run", describe)
    }

    /// As [`RunRecorder::note`], of a run that may have ended: what was known only then.
    ///
    /// # Errors
    /// The recorder has stopped, or its queue stays full for 30 s.
    pub fn annotate(&self, run: RunId, text: impl Into<String>) -> Result<(), Error> {
        self.inner.ask(note(run, text.into()))
    }

    /// Keeps the share of the machine's processors that programs other than the run's own used while it lasted. It may have
    /// ended.
    ///
    /// # Errors
    /// There is no such run, the disk refuses, or it does not answer within 30 s.
    pub fn keep_bystanders(&self, run: RunId, share: Ratio) -> Result<(), Error> {
        let keep = move |writer: &mut Writer| writer.keep_bystanders(run.0, share);
        self.inner.change("keeping the share of bystanders", keep)
    }

    /// How the recorder fares.
    pub fn health(&self) -> Health {
        let shared = &self.inner.shared;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Health {
            written: read(&shared.written),
            dropped: read(&shared.dropped),
            refused: read(&shared.refused),
            unwritten: read(&shared.unwritten),
            failures: read(&shared.failures),
            failing: shared
                .failing
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        }
    }
}

/// Adds a note to a run.
fn note(run: RunId, text: String) -> Message {
    Message::Change(Box::new(move |writer| writer.note(run.0, &text)))
}

impl Inner {
    fn sender(&self) -> Result<&SyncSender<Message>, Error> {
        self.sender.as_ref().ok_or_else(|| self.stopped())
    }

    /// Queues a message that must not be dropped; waits for room in the queue, but not for ever.
    fn ask(&self, mut message: Message) -> Result<(), Error> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        loop {
            message = match self.sender()?.try_send(message) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(back)) if Instant::now() < deadline => back,
                Err(TrySendError::Full(_)) => return Err(self.stalled()),
                Err(TrySendError::Disconnected(_)) => return Err(self.stopped()),
            };
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Asks for a change of the file and waits until it is made.
    fn change<T: Send + 'static>(
        &self,
        doing: &'static str,
        change: impl FnOnce(&mut Writer) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        self.answer(change)?.map_err(|source| Error::Database {
            path: self.path.clone(),
            doing,
            source,
        })
    }

    /// Asks the thread, and waits for its answer.
    fn answer<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Writer) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.ask(Message::Change(Box::new(move |writer| {
            // Who asked may have given up waiting; a run that was started then stays open until the recorder closes.
            let _ = reply.send(question(writer));
        })))?;
        answer.recv_timeout(ANSWER_TIMEOUT).map_err(|error| match error {
            mpsc::RecvTimeoutError::Timeout => self.stalled(),
            mpsc::RecvTimeoutError::Disconnected => self.stopped(),
        })
    }

    fn stopped(&self) -> Error {
        Error::Stopped {
            path: self.path.clone(),
        }
    }

    fn stalled(&self) -> Error {
        Error::Stalled {
            path: self.path.clone(),
            seconds: ANSWER_TIMEOUT.as_secs(),
        }
    }
}

/// A run that is being recorded. Dropping it without [`RunRecorder::finish`] leaves a run that is shown as
/// interrupted.
pub struct RunRecorder {
    inner: Arc<Inner>,
    id: RunId,
    last_index: Option<u64>,
    dropped: Arc<AtomicU64>,
    /// Whether the run says that a period of it was refused.
    refusal_noted: bool,
    ended: bool,
}

impl RunRecorder {
    /// The run's number in the file.
    pub fn id(&self) -> RunId {
        self.id
    }

    /// Hands a period over, with the latencies, in microseconds, of the requests that were answered in it. Never
    /// waits: where 1,024 periods already wait for the disk, this one is dropped, counted ([`Health::dropped`],
    /// [`RunSummary::dropped_periods`]) and `false` is answered. So it is with a period that no run can have (a NaN,
    /// a number that does not ascend; [`Health::refused`]), and a note of the run says so.
    pub fn record(&mut self, period: PeriodRecord, latencies: &Histogram<u64>) -> bool {
        let Some(message) = self.message(period, latencies) else {
            return false;
        };
        let sender = self.inner.sender.as_ref();
        let sent = sender.is_some_and(|sender| sender.try_send(message).is_ok());
        if !sent {
            self.count_dropped();
        }
        sent
    }

    /// As [`RunRecorder::record`], but waits for room in the queue: for runs whose clock does not go on meanwhile.
    ///
    /// # Errors
    /// The disk does not answer within 30 s; the period is then dropped and counted.
    pub fn record_waiting(
        &mut self,
        period: PeriodRecord,
        latencies: &Histogram<u64>,
    ) -> Result<bool, Error> {
        let Some(message) = self.message(period, latencies) else {
            return Ok(false);
        };
        self.inner.ask(message).inspect_err(|_| self.count_dropped())?;
        Ok(true)
    }

    fn count_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        self.inner.shared.dropped.fetch_add(1, Ordering::Relaxed);
    }

    fn message(&mut self, period: PeriodRecord, latencies: &Histogram<u64>) -> Option<Message> {
        let fault = period.fault().or_else(|| {
            self.last_index
                .is_some_and(|last| period.index <= last)
                .then_some("index")
        });
        if let Some(field) = fault {
            // Said at the first one: a law that computes NaN does so every period.
            if self.inner.shared.refused.fetch_add(1, Ordering::Relaxed) == 0 {
                tracing::error!(
                    run = self.id.0,
                    period = period.index,
                    field,
                    "the flight recorder refuses a period: the value is not a finite number or does not ascend"
                );
            }
            if !self.refusal_noted {
                let text = format!(
                    "the recorder refused period {}, and any other like it: its {field} is not a finite number or does not \
                     ascend, so it is in none of the sums",
                    period.index
                );
                // Where the queue is full the next one that is refused says it.
                let sender = self.inner.sender.as_ref();
                self.refusal_noted =
                    sender.is_some_and(|sender| sender.try_send(note(self.id, text)).is_ok());
            }
            return None;
        }
        self.last_index = Some(period.index);
        let buckets = histogram::buckets(latencies);
        Some(Message::Period {
            run: self.id,
            period: Box::new(period),
            buckets,
        })
    }

    /// Adds a fallback, in plain words, that became known during the run; one that is already noted is not repeated.
    /// At most 64 notes are kept.
    ///
    /// # Errors
    /// The recorder has stopped, or its queue stays full for 30 s.
    pub fn note(&self, text: impl Into<String>) -> Result<(), Error> {
        self.inner.ask(note(self.id, text.into()))
    }

    /// Ends the run: waits until what is queued is written, and answers with the summary. The summary is whole even
    /// where the disk refused to take rows.
    ///
    /// # Errors
    /// The disk does not answer within 30 s.
    pub fn finish(mut self) -> Result<RunSummary, Error> {
        self.ended = true;
        let (run, ended_at) = (self.id.0, SystemTime::now());
        let summary = self.inner.answer(move |writer| writer.finish(run, ended_at))?;
        summary.ok_or_else(|| self.inner.stopped())
    }
}

impl Drop for RunRecorder {
    fn drop(&mut self) {
        if !self.ended
            && let Some(sender) = &self.inner.sender
        {
            // Where the queue is full the run is seen to be interrupted by its writer's silence instead.
            let run = self.id.0;
            let _ = sender.try_send(Message::Change(Box::new(move |writer| writer.abandon(run))));
        }
    }
}
