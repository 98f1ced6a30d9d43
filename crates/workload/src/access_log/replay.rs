//! An access log's requests, at the log's own times.

use super::{AccessLog, AccessLogError, Logged};
use crate::arrivals::Spacing;
use headroom_units::Seconds;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The GET and HEAD requests of an access log, to be sent again, open loop.
///
/// A log tells seconds only. Within its second the requests are spread: evenly, or at random (as a Poisson process
/// that is known to have so many arrivals in it). A faster replay divides all times; it also changes what the users
/// are like, whose connections and retries keep their own time, as the capacity paper notes (Section 7).
///
/// ```
/// use headroom_workload::Spacing;
/// use headroom_workload::access_log::{AccessLog, Replay};
///
/// let line = r#"host - - [28/Aug/1995:00:00:34 -0400] "GET /index.html HTTP/1.0" 200 1839"#;
/// let mut replay = Replay::new(AccessLog::read("a.log", line.as_bytes())?, 1.0, Spacing::Even, 1)?;
/// let paths = replay.take_paths();
/// let due = replay.take().map(|due| (due.at.get(), paths[due.path].as_str()));
/// assert_eq!(due, Some((0.5, "/index.html")));
/// # Ok::<(), headroom_workload::access_log::AccessLogError>(())
/// ```
#[derive(Debug)]
pub struct Replay {
    paths: Vec<String>,
    requests: Vec<Logged>,
    speed: f64,
    spacing: Spacing,
    rng: ChaCha8Rng,
    duration: Seconds,
    /// The next request, and the times of those of its second that are left, the earliest last, seconds of the log.
    next: usize,
    times: Vec<f64>,
}

/// A request that is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Due {
    /// When, from the replay's start.
    pub at: Seconds,
    /// Its path, among those of [`Replay::take_paths`].
    pub path: usize,
    /// Whether its method is HEAD; GET otherwise.
    pub head: bool,
}

impl Replay {
    /// The requests of a log, so many times as fast.
    ///
    /// # Errors
    /// [`AccessLogError`] where the speed is not from 0.001 to 1,000,000 or the log has no request to be sent.
    pub fn new(log: AccessLog, speed: f64, spacing: Spacing, seed: u64) -> Result<Self, AccessLogError> {
        if !(1e-3..=1e6).contains(&speed) {
            return Err(AccessLogError::BadSpeed(speed));
        }
        let duration = log.duration() / speed;
        let mut requests = log.requests;
        requests.retain(|request| request.path.is_some());
        if requests.is_empty() {
            return Err(AccessLogError::NothingToSend(log.name));
        }
        Ok(Self {
            paths: log.paths,
            requests,
            speed,
            spacing,
            rng: ChaCha8Rng::seed_from_u64(seed),
            duration,
            next: 0,
            times: Vec::new(),
        })
    }

    /// How long the replay lasts.
    pub fn duration(&self) -> Seconds {
        self.duration
    }

    /// How many requests it sends.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Leaves out what is due at `end` or later.
    pub fn cut(&mut self, end: Seconds) {
        self.duration = self.duration.min(end);
    }

    /// Takes the paths, which requests name by their index.
    pub fn take_paths(&mut self) -> Vec<String> {
        std::mem::take(&mut self.paths)
    }

    /// When the next request is due; none once all were taken, or the end was reached.
    pub fn peek(&mut self) -> Option<Seconds> {
        if self.times.is_empty() {
            self.spread();
        }
        let at = Seconds::new(self.times.last()? / self.speed);
        (at < self.duration).then_some(at)
    }

    /// Takes the next request.
    pub fn take(&mut self) -> Option<Due> {
        let at = self.peek()?;
        self.times.pop();
        let request = self.requests[self.next];
        self.next += 1;
        Some(Due {
            at,
            // Only requests with a path were kept.
            path: request.path.unwrap_or(0) as usize,
            head: request.head,
        })
    }

    /// Gives the requests of the next second their times in it.
    fn spread(&mut self) {
        let Some(first) = self.requests.get(self.next) else {
            return;
        };
        let second = first.second;
        let count = self.requests[self.next..]
            .iter()
            .take_while(|request| request.second == second)
            .count();
        let begin = f64::from(second);
        match self.spacing {
            Spacing::Even => self.times.extend(
                (0..count)
                    .rev()
                    .map(|index| begin + (index as f64 + 0.5) / count as f64),
            ),
            Spacing::Poisson => {
                self.times
                    .extend((0..count).map(|_| begin + self.rng.random::<f64>()));
                self.times.sort_by(|a, b| b.total_cmp(a));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(seconds: &[u32]) -> AccessLog {
        let lines: String = seconds
            .iter()
            .enumerate()
            .map(|(index, second)| {
                format!("h - - [28/Aug/1995:00:00:{second:02} -0400] \"GET /{index} HTTP/1.0\" 200 -\n")
            })
            .collect();
        AccessLog::read("t", lines.as_bytes()).unwrap()
    }

    fn times(mut replay: Replay) -> Vec<(f64, usize)> {
        std::iter::from_fn(|| replay.take().map(|due| (due.at.get(), due.path))).collect()
    }

    #[test]
    fn requests_are_spread_within_their_second_in_their_order() {
        let replay = Replay::new(log(&[10, 10, 12, 10]), 1.0, Spacing::Even, 1).unwrap();
        assert_eq!((replay.duration(), replay.requests()), (Seconds::new(3.0), 4));
        let got = times(replay);
        assert_eq!(
            got.iter().map(|(_, path)| *path).collect::<Vec<_>>(),
            [0, 1, 3, 2]
        );
        for ((time, _), expected) in got.iter().zip([1.0 / 6.0, 0.5, 5.0 / 6.0, 2.5]) {
            assert!((time - expected).abs() < 1e-12, "{time}");
        }
        let random = times(Replay::new(log(&[0, 0, 0, 5]), 2.0, Spacing::Poisson, 3).unwrap());
        assert!(random.is_sorted_by_key(|(time, _)| *time));
        assert!(random[2].0 < 0.5 && (2.5..3.0).contains(&random[3].0));
    }

    #[test]
    fn a_replay_is_cut_and_bad_ones_are_refused() {
        let mut replay = Replay::new(log(&[0, 4, 8]), 2.0, Spacing::Even, 1).unwrap();
        replay.cut(Seconds::new(3.0));
        assert_eq!(times(replay).len(), 2);
        for speed in [0.0, -1.0, f64::NAN, 1e9] {
            assert!(Replay::new(log(&[0]), speed, Spacing::Even, 1).is_err());
        }
        let posts = "h - - [28/Aug/1995:00:00:00 -0400] \"POST / HTTP/1.0\" 200 -\n";
        let posts = AccessLog::read("t", posts.as_bytes()).unwrap();
        let message = Replay::new(posts, 1.0, Spacing::Even, 1).unwrap_err().to_string();
        assert!(message.contains("GET or HEAD"), "{message}");
    }
}
