//! By the server's own status page (Section 6.1.5): Apache's mod_status, nginx's stub_status.
//!
//! A server counts what it has done, not what waits for it: neither page tells the accept queue. And the page is asked
//! for through the very queue that is measured: under overload the answer comes late or not at all, which is an error
//! here and a finding of the paper. What the asking itself adds to the counters is taken off again.

mod http;
mod parse;

pub use http::StatusPage;

use super::counter::{Busy, Ledger};
use super::diag::Diag;
use super::{Counters, QueueError, QueueMeter, QueueMethod, QueueSample};
use parse::Page;
use std::time::Instant;

/// Measures by a status page.
#[derive(Debug)]
pub struct StatusQueueMeter {
    port: u16,
    diag: Diag,
    page: StatusPage,
    /// Requests, accepts, dropped after the accept.
    counters: Ledger<3>,
    /// How often the page was asked for since the first time.
    asked: u64,
    uptime_s: Option<u64>,
    busy: Busy,
    started: Instant,
    epoch: u64,
}

impl StatusQueueMeter {
    /// Opens it for a server of this machine, on a port that somebody listens on.
    ///
    /// # Errors
    /// [`QueueError::NobodyListens`]; [`QueueError::Remote`] where there is no status page.
    pub fn open(port: u16, page: &StatusPage) -> Result<Self, QueueError> {
        let mut meter = Self {
            port,
            diag: Diag::open()?,
            page: page.clone(),
            counters: Ledger::new([64; 3]),
            asked: 0,
            uptime_s: None,
            busy: Busy::default(),
            started: Instant::now(),
            epoch: 0,
        };
        meter.diag.listeners(port)?;
        meter.take()?;
        Ok(meter)
    }

    fn ask(&self) -> Result<Page, QueueError> {
        let fail = |what: String| {
            QueueError::Remote {
            address: self.page.to_string(),
            what,
            remedy: "switch the page on and let this machine see it: mod_status with ?auto (Apache), stub_status (nginx)"
                .into(),
        }
        };
        let text = self
            .page
            .get()
            .map_err(|error| fail(format!("the status page cannot be read: {error}")))?;
        parse::page(&text).ok_or_else(|| fail("this is no status page that is known".into()))
    }

    fn take(&mut self) -> Result<QueueSample, QueueError> {
        let page = self.ask()?;
        let at = Instant::now();
        let (requests, accepts, dropped, uptime_s, cpu_s) = match page {
            Page::Apache {
                requests,
                cpu_s,
                uptime_s,
            } => (requests, None, None, uptime_s, cpu_s),
            Page::Nginx {
                accepts,
                handled,
                requests,
            } => (
                requests,
                Some(accepts),
                Some(accepts.saturating_sub(handled)),
                None,
                None,
            ),
        };
        let ([requests, accepts, dropped], steady) =
            self.counters.advance(at, [Some(requests), accepts, dropped]);
        let restarted = matches!((self.uptime_s, uptime_s), (Some(last), Some(now)) if now < last);
        self.uptime_s = uptime_s;
        if !steady || restarted {
            self.epoch += 1;
        }
        if !steady {
            // What was counted since the sample before is not in the totals, nor is the asking then.
            self.asked = self.asked.saturating_sub(1);
        }
        // Either page shows at its n-th asking, counted from 0, n more askings than at the first: Apache those before it,
        // nginx those and its own, as at the first.
        let own = self.asked;
        self.asked += 1;
        let without_own = |total: Option<u64>| Some(total?.saturating_sub(own));
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let whole_ms = (at - self.started).as_secs_f64() * processors * 1000.0;
        Ok(QueueSample {
            method: QueueMethod::Status,
            at,
            epoch: self.epoch,
            port: Counters::default(),
            server: Counters {
                accepts: without_own(accepts),
                requests: without_own(requests),
                drops: dropped,
                ..Counters::default()
            },
            machine: Counters::default(),
            length: None,
            seen: None,
            cpu_busy: cpu_s.and_then(|cpu_s| self.busy.advance((cpu_s * 1000.0) as u64, whole_ms as u64)),
            listeners: Vec::new(),
        })
    }
}

impl QueueMeter for StatusQueueMeter {
    fn method(&self) -> QueueMethod {
        QueueMethod::Status
    }

    fn sample(&mut self) -> Result<QueueSample, QueueError> {
        self.diag.listeners(self.port)?;
        self.take()
    }
}
