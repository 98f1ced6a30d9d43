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
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// A page's answer may be this much later than the one before it, and its seconds are whole: a server whose own clock fell
/// behind by more was started anew.
const LATE: Duration = Duration::from_secs(3);

/// Measures by a status page.
#[derive(Debug)]
pub struct StatusQueueMeter {
    port: u16,
    whose: Whose,
    page: StatusPage,
    /// Requests, accepts, dropped after the accept.
    counters: Ledger<3>,
    /// How often the page was asked for since the first time.
    asked: u64,
    /// The seconds since the server was started, and when it told them.
    uptime: Option<(u64, Instant)>,
    busy: Busy,
    started: Instant,
    epoch: u64,
}

/// Where the server is.
#[derive(Debug)]
enum Whose {
    /// On this machine, whose kernel tells whether somebody listens.
    Here(Diag),
    /// On a machine of so many processors, where they are known.
    Elsewhere(Option<NonZeroU32>),
}

impl Whose {
    fn check(&mut self, port: u16) -> Result<(), QueueError> {
        match self {
            Self::Here(diag) => diag.listeners(port).map(drop),
            Self::Elsewhere(_) => Ok(()),
        }
    }

    fn processors(&self) -> Option<f64> {
        match self {
            Self::Here(_) => {
                Some(std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64))
            }
            Self::Elsewhere(processors) => processors.map(|count| f64::from(count.get())),
        }
    }
}

impl StatusQueueMeter {
    /// Opens it for a server of this machine, on a port that somebody listens on.
    ///
    /// # Errors
    /// [`QueueError::NobodyListens`]; [`QueueError::Remote`] where there is no status page.
    pub fn open(port: u16, page: &StatusPage) -> Result<Self, QueueError> {
        Self::of(port, Whose::Here(Diag::open()?), page)
    }

    /// Opens it for a server of another machine, which has so many processors: the server's share of their time is told
    /// where they are known. Whether somebody listens on the port there is for others to say; the page is got from here.
    ///
    /// # Errors
    /// [`QueueError::Remote`] where there is no status page, or none that can be reached from here.
    pub fn elsewhere(
        port: u16,
        page: &StatusPage,
        processors: Option<NonZeroU32>,
    ) -> Result<Self, QueueError> {
        Self::of(port, Whose::Elsewhere(processors), page)
    }

    fn of(port: u16, mut whose: Whose, page: &StatusPage) -> Result<Self, QueueError> {
        whose.check(port)?;
        let mut meter = Self {
            port,
            whose,
            page: page.clone(),
            counters: Ledger::new([64; 3]),
            asked: 0,
            uptime: None,
            busy: Busy::default(),
            started: Instant::now(),
            epoch: 0,
        };
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

    /// Whether the server was started since it was asked before: its own clock then shows less than it would.
    fn restarted(&mut self, uptime_s: Option<u64>, at: Instant) -> bool {
        let before = std::mem::replace(&mut self.uptime, uptime_s.map(|uptime_s| (uptime_s, at)));
        let Some(((last_s, asked), now_s)) = before.zip(uptime_s) else {
            return false;
        };
        let passed = (at - asked).saturating_sub(LATE);
        now_s < last_s.saturating_add(passed.as_secs())
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
        // Asked in any case: it keeps what the server's clock shows now, for the page after this.
        let restarted = self.restarted(uptime_s, at);
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
        let elapsed_ms = (at - self.started).as_secs_f64() * 1000.0;
        let whole_ms = self.whose.processors().map(|processors| elapsed_ms * processors);
        let cpu = cpu_s.zip(whole_ms);
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
            cpu_busy: cpu
                .and_then(|(cpu_s, whole_ms)| self.busy.advance((cpu_s * 1000.0) as u64, whole_ms as u64)),
            connections: None,
            loops_busy: None,
            listeners: Vec::new(),
        })
    }
}

impl QueueMeter for StatusQueueMeter {
    fn method(&self) -> QueueMethod {
        QueueMethod::Status
    }

    fn sample(&mut self) -> Result<QueueSample, QueueError> {
        self.whose.check(self.port)?;
        self.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Serves one page after the other: requests, seconds of processor time, seconds since the start.
    fn serve(pages: Vec<(u64, f64, u64)>) -> StatusPage {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/server-status?auto", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for (requests, cpu_s, uptime_s) in pages {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 1024]).unwrap();
                let page = format!(
                    "HTTP/1.0 200 OK\r\n\r\nTotal Accesses: {requests}\nCPUUser: {cpu_s}\nCPUSystem: 0\n\
                     CPUChildrenUser: 0\nCPUChildrenSystem: 0\nUptime: {uptime_s}\n"
                );
                stream.write_all(page.as_bytes()).unwrap();
            }
        });
        url.parse().unwrap()
    }

    #[test]
    fn elsewhere_the_share_is_of_the_processors_there() {
        let busy = |processors: u32| {
            let page = serve(vec![(10, 0.0, 1), (20, 0.1, 1)]);
            // Nobody need listen on that port here.
            let mut meter = StatusQueueMeter::elsewhere(1, &page, NonZeroU32::new(processors)).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            let sample = meter.sample().unwrap();
            let most = 0.1 / 0.1 / f64::from(processors.max(1));
            assert_eq!(sample.server.requests, Some(9), "without the asking");
            sample.cpu_busy.map(|busy| busy.get() / most)
        };
        for processors in [8, 64] {
            let share = busy(processors).unwrap();
            assert!(share > 0.05 && share <= 1.05, "{share} of {processors}");
        }
        assert_eq!(busy(0), None, "of how many it is a share is not known");
    }

    #[test]
    fn a_server_that_started_anew_is_one_new_epoch() {
        let page = serve(vec![(100, 10.0, 100), (5, 0.1, 1), (9, 0.2, 1)]);
        // Opening it takes the first sample.
        let mut meter = StatusQueueMeter::elsewhere(1, &page, None).unwrap();
        let mut epochs = vec![meter.epoch];
        epochs.extend([(); 2].map(|()| meter.sample().unwrap().epoch));
        assert_eq!(epochs, [0, 1, 1]);
    }

    #[test]
    fn a_server_whose_clock_fell_behind_was_started_anew() {
        let page = serve(vec![(0, 0.0, 0)]);
        let mut meter = StatusQueueMeter::elsewhere(1, &page, None).unwrap();
        let mut at = Instant::now();
        let mut after = |seconds: u64, uptime_s: Option<u64>| {
            at += Duration::from_secs(seconds);
            meter.restarted(uptime_s, at)
        };
        assert!(!after(0, Some(100)), "the first after the opening's shows more");
        assert!(!after(10, Some(110)) && !after(10, Some(117)), "a late answer");
        assert!(after(60, Some(150)), "it shows more, and not as much as it would");
        assert!(after(1, Some(0)) && !after(1, Some(1)));
        assert!(!after(1, None) && !after(1, Some(0)), "nothing to compare with");
    }
}
