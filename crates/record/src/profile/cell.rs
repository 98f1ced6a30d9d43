//! One cell of a profile: requests of one size at one density, window by window.

use super::KB;
use crate::statistics::Estimate;
use serde::{Deserialize, Serialize};

/// What was measured in one window: the sending, what was outstanding at its end, and the pause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Window {
    /// From its beginning to its end, seconds.
    pub length_s: f64,
    /// The share of it from the first request to the last answer: the density, and more where much was outstanding at the end of the sending.
    pub sending_share: f64,
    /// Requests answered as they should be.
    pub completed: u64,
    /// The content of these answers (of sets: what was sent), bytes.
    pub content_bytes: u64,
    /// Requests that failed, for whatever reason.
    pub failed: u64,
    /// Of these, those with an answer of another size.
    pub wrong_size: u64,
    /// Latency of those answered; `None` where there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latencies>,
    /// Mean power, watts; `None` where the meter did not answer. Its source is the profile's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_w: Option<f64>,
    /// Busy cores of the machine, without the generator's where it runs there; `None` where it was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_cores: Option<f64>,
    /// Of these, in software interrupts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub softirq_cores: Option<f64>,
    /// What the machine's link received, bytes a second; `None` where it was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_per_s: Option<f64>,
    /// What it sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_per_s: Option<f64>,
    /// Cores that the generator used, wherever it runs.
    pub client_cores: f64,
    /// Whether its busiest thread had no time left while it sent.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub client_is_full: bool,
}

/// Latencies of a window, milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// Mean.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 95th percentile.
    pub p95_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// 99.9th percentile.
    pub p999_ms: f64,
}

/// What keeps a cell's figures from being taken as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// The generator was as busy as it can be: the machine may serve more.
    ClientBound,
    /// More than 1 % of the requests failed.
    Failing,
    /// Answers were of another size than asked.
    WrongSize,
    /// The meter did not answer in some or all windows.
    PowerMissing,
    /// Nothing was answered.
    Nothing,
    /// The intervals are wider than asked, and no time was left.
    Wide,
    /// Fewer than three windows: no interval says anything.
    FewWindows,
}

impl Mark {
    /// In words, for a note below a table.
    pub const fn text(self) -> &'static str {
        match self {
            Self::ClientBound => "the generator was the bottleneck: the machine may serve more",
            Self::Failing => "more than 1 % of the requests failed",
            Self::WrongSize => "answers were of another size than asked, and count as failed",
            Self::PowerMissing => "the meter did not answer in every window",
            Self::Nothing => "nothing was answered",
            Self::Wide => "the interval is wider than asked, and no time was left",
            Self::FewWindows => "fewer than three windows: no interval says anything",
        }
    }

    /// Whether throughput or its power is not the machine's own.
    pub const fn is_untrue(self) -> bool {
        matches!(
            self,
            Self::ClientBound | Self::Failing | Self::WrongSize | Self::Nothing
        )
    }
}

/// Requests of one size at one density.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The content of an answer (of a set: of the request), bytes.
    pub size_bytes: u64,
    /// The share of each window in which requests are sent (the paper's density), above 0 to 1.
    pub density: f64,
    /// The windows that were measured, in their order.
    pub windows: Vec<Window>,
    /// What keeps its figures from being taken as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
}

/// A density that was further than this from what was asked is said.
const OTHER_DENSITY: f64 = 0.02;
/// Above this share of failed requests a window is spoilt, and a cell is marked.
const FAILING: f64 = 0.01;

impl Cell {
    /// One without windows yet.
    pub fn new(size_bytes: u64, density: f64) -> Self {
        Self {
            size_bytes,
            density,
            ..Self::default()
        }
    }

    /// How many windows failures spoilt.
    fn spoilt(&self) -> usize {
        self.windows.iter().filter(|window| window.is_spoilt()).count()
    }

    /// Whether failures are what it is measured to have: at least half of its windows are spoilt, so that no outage is told from the rest.
    pub fn is_failing(&self) -> bool {
        let spoilt = self.spoilt();
        spoilt > 0 && spoilt * 2 >= self.windows.len()
    }

    /// How many windows are set aside, and in none of its figures: those that failures spoilt, where they are fewer than the others, as
    /// after an outage. Where they are not, the failures are the cell's own, and none is set aside.
    pub fn set_aside(&self) -> usize {
        match self.is_failing() {
            true => 0,
            false => self.spoilt(),
        }
    }

    /// The windows that its figures are of, in their order: all but those that are [set aside](Self::set_aside).
    pub fn counted(&self) -> impl Iterator<Item = &Window> {
        let all = self.is_failing();
        self.windows
            .iter()
            .filter(move |window| all || !window.is_spoilt())
    }

    fn of(&self, value: impl Fn(&Window) -> Option<f64>) -> Option<Estimate> {
        let values: Vec<f64> = self.counted().filter_map(value).collect();
        Estimate::of_series(&values)
    }

    /// Requests a second that were answered as they should be.
    pub fn requests_per_s(&self) -> Option<Estimate> {
        self.of(|window| Some(window.completed as f64 / window.length_s))
    }

    /// Their content, KB/s.
    pub fn throughput_kb_per_s(&self) -> Option<Estimate> {
        self.of(Window::throughput_kb_per_s)
    }

    /// Mean power, watts.
    pub fn power_w(&self) -> Option<Estimate> {
        self.of(|window| window.power_w)
    }

    /// KB/s for each watt, window by window (the paper's Tables 1 and 2).
    pub fn throughput_per_power(&self) -> Option<Estimate> {
        self.of(|window| {
            let power = window.power_w.filter(|power| *power > 0.0)?;
            Some(window.throughput_kb_per_s()? / power)
        })
    }

    /// Busy cores of the machine.
    pub fn busy_cores(&self) -> Option<Estimate> {
        self.of(|window| window.busy_cores)
    }

    /// Of these, in software interrupts.
    pub fn softirq_cores(&self) -> Option<Estimate> {
        self.of(|window| window.softirq_cores)
    }

    /// What the link carried in its busier direction, bytes a second.
    pub fn link_bytes_per_s(&self) -> Option<Estimate> {
        self.of(Window::link_bytes_per_s)
    }

    /// Cores that the generator used.
    pub fn client_cores(&self) -> Option<Estimate> {
        self.of(|window| Some(window.client_cores))
    }

    /// A latency of its windows.
    pub fn latency_ms(&self, which: impl Fn(&Latencies) -> f64) -> Option<Estimate> {
        self.of(|window| Some(which(window.latency.as_ref()?)))
    }

    /// The share of the time from a window's first request to its last answer.
    pub fn sending_share(&self) -> Option<f64> {
        Some(self.of(|window| Some(window.sending_share))?.mean)
    }

    /// The density it had, where that is another than was asked for by more than 2 points: clients that wait long for their last answers send
    /// for longer.
    pub fn other_density(&self) -> Option<f64> {
        self.sending_share()
            .filter(|had| (had - self.density).abs() > OTHER_DENSITY)
    }

    /// Requests that failed, of all in the windows that count.
    pub fn failed_share(&self) -> Option<f64> {
        let sum = |value: fn(&Window) -> u64| self.counted().map(value).sum::<u64>();
        let (completed, failed) = (sum(|one| one.completed), sum(|one| one.failed));
        (completed + failed > 0).then(|| failed as f64 / (completed + failed) as f64)
    }

    /// Whether throughput and power are known to within `precision` of themselves, half the width of the 95 % interval over the mean, by
    /// three windows at least. Where the meter never answered, throughput alone decides.
    pub fn is_precise(&self, precision: f64) -> bool {
        let narrow = |estimate: Option<Estimate>| {
            estimate.is_some_and(|one| {
                one.count >= 3
                    && one
                        .half_width
                        .is_some_and(|half| half <= precision * one.mean.abs())
            })
        };
        narrow(self.throughput_kb_per_s()) && (self.power_w().is_none() || narrow(self.power_w()))
    }

    /// Whether so much is known of what it serves that a plan may rest on it: three windows at least, and an interval of no more than
    /// half of it to either side, as one has of a server that stood still meanwhile.
    pub fn is_known(&self) -> bool {
        const WIDEST: f64 = 0.5;
        self.counted().count() >= 3
            && self
                .requests_per_s()
                .is_some_and(|rate| rate.half_width.is_some_and(|half| half <= WIDEST * rate.mean))
    }

    /// Marks what follows from its windows; `precision` as asked, of one that is at its end.
    pub fn judge(&mut self, precision: Option<f64>) {
        self.marks.clear();
        let count = self.counted().count();
        let full = self.counted().filter(|one| one.client_is_full).count();
        let powers = self.counted().filter(|one| one.power_w.is_some()).count();
        let completed: u64 = self.counted().map(|one| one.completed).sum();
        let mut mark = |holds: bool, mark: Mark| {
            if holds {
                self.marks.push(mark);
            }
        };
        mark(full > 0 && full * 2 >= count, Mark::ClientBound);
        mark(powers < count, Mark::PowerMissing);
        mark(completed == 0, Mark::Nothing);
        mark(count < 3, Mark::FewWindows);
        let wrong = self.counted().any(|one| one.wrong_size > 0);
        let failing = self.failed_share().is_some_and(|share| share > FAILING);
        let wide = precision.is_some_and(|precision| count >= 3 && !self.is_precise(precision));
        for (holds, mark) in [
            (wrong, Mark::WrongSize),
            (failing, Mark::Failing),
            (wide, Mark::Wide),
        ] {
            if holds {
                self.marks.push(mark);
            }
        }
        self.marks.sort_unstable();
        self.marks.dedup();
    }

    /// Whether its throughput and power may be taken as the machine's own.
    pub fn is_true(&self) -> bool {
        !self.windows.is_empty() && !self.marks.iter().any(|mark| mark.is_untrue())
    }
}

impl Window {
    /// Whether it says nothing of what the machine serves: more than 1 % of its requests failed, or none was answered, as while the server
    /// is away.
    pub fn is_spoilt(&self) -> bool {
        self.completed == 0 || self.failed as f64 > FAILING * (self.completed + self.failed) as f64
    }

    /// The content answered, KB/s; `None` of a window without length.
    pub fn throughput_kb_per_s(&self) -> Option<f64> {
        (self.length_s > 0.0).then(|| self.content_bytes as f64 / KB / self.length_s)
    }

    /// What the link carried in its busier direction, bytes a second.
    pub fn link_bytes_per_s(&self) -> Option<f64> {
        Some(self.received_per_s?.max(self.sent_per_s?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(kb: u64, power_w: Option<f64>) -> Window {
        Window {
            length_s: 5.0,
            sending_share: 1.0,
            completed: kb,
            content_bytes: kb * 1024,
            power_w,
            ..Window::default()
        }
    }

    #[test]
    fn a_plan_rests_on_no_cell_of_few_windows_nor_of_a_server_that_stood_still() {
        let cell = |completed: &[u64]| {
            let mut cell = Cell::new(1024, 1.0);
            let window = |completed: &u64| Window {
                length_s: 1.0,
                sending_share: 1.0,
                completed: *completed,
                ..Window::default()
            };
            cell.windows = completed.iter().map(window).collect();
            cell.is_known()
        };
        assert!(cell(&[60, 58, 61, 62, 59]));
        assert!(!cell(&[60, 60]));
        assert!(!cell(&[3, 60, 61, 62]));
    }

    #[test]
    fn throughput_per_power_is_of_windows_that_have_both() {
        let mut cell = Cell::new(1024, 1.0);
        cell.windows = vec![
            window(5_000, Some(10.0)),
            window(5_000, None),
            window(5_500, Some(10.0)),
        ];
        let per_power = cell.throughput_per_power().unwrap();
        assert_eq!((per_power.count, per_power.mean), (2, 105.0));
        cell.judge(None);
        assert_eq!(cell.marks, [Mark::PowerMissing]);
        assert!(cell.is_true(), "its throughput is the machine's all the same");
    }

    #[test]
    fn a_cell_says_what_is_wrong_with_it() {
        let mut cell = Cell::new(1024, 1.0);
        cell.judge(None);
        assert_eq!(cell.marks, [Mark::Nothing, Mark::FewWindows]);
        assert!(!cell.is_true());
        let bad = Window {
            failed: 100,
            wrong_size: 100,
            ..window(5_000, Some(10.0))
        };
        cell.windows = vec![bad; 3];
        cell.judge(Some(0.05));
        assert_eq!(cell.marks, [Mark::Failing, Mark::WrongSize]);
        assert!((cell.failed_share().unwrap() - 100.0 / 5_100.0).abs() < 1e-12);
    }

    #[test]
    fn windows_of_an_outage_are_set_aside_and_failures_of_its_own_are_not() {
        let mut cell = Cell::new(1024, 1.0);
        let away = Window {
            failed: 40,
            ..window(0, Some(8.0))
        };
        let erring = Window {
            failed: 200,
            ..window(3_000, Some(9.0))
        };
        cell.windows = vec![
            window(5_000, Some(10.0)),
            away,
            window(5_100, Some(10.0)),
            erring,
            window(4_900, Some(10.0)),
        ];
        cell.judge(Some(0.05));
        assert_eq!((cell.set_aside(), cell.is_failing()), (2, false));
        assert_eq!(cell.throughput_kb_per_s().unwrap().mean, 1_000.0);
        assert_eq!(cell.power_w().unwrap().mean, 10.0);
        assert_eq!((cell.failed_share(), cell.is_true()), (Some(0.0), true));
        assert!(cell.marks.is_empty(), "{:?}", cell.marks);
        // One that is whole less, and no more are whole than spoilt: which is the machine's own is not known.
        cell.windows.pop();
        cell.judge(Some(0.05));
        assert_eq!((cell.set_aside(), cell.is_failing()), (0, true));
        assert_eq!(cell.throughput_kb_per_s().unwrap().count, 4);
        assert!(cell.marks.contains(&Mark::Failing) && !cell.is_true());
        // One of a hundred may fail.
        let failing = |failed| Window {
            failed,
            ..window(9_900, None)
        };
        assert!(!failing(100).is_spoilt() && failing(101).is_spoilt());
    }

    #[test]
    fn a_density_that_was_another_is_known() {
        let mut cell = Cell::new(1024, 0.25);
        assert_eq!(cell.other_density(), None);
        let of = |share| Window {
            sending_share: share,
            ..window(5_000, None)
        };
        cell.windows = vec![of(0.25), of(0.28)];
        assert_eq!(cell.other_density(), None);
        cell.windows = vec![of(0.30), of(0.32)];
        assert!((cell.other_density().unwrap() - 0.31).abs() < 1e-12);
    }

    #[test]
    fn precise_is_three_windows_whose_interval_is_narrow() {
        let mut cell = Cell::new(1024, 0.5);
        cell.windows = vec![window(5_000, Some(10.0)), window(5_000, Some(10.0))];
        assert!(!cell.is_precise(0.5));
        cell.windows.push(window(5_100, Some(10.0)));
        assert!(cell.is_precise(0.05) && !cell.is_precise(0.01));
        // 5,000 to 9,000: an interval of more than half of its mean.
        cell.windows.push(window(9_000, Some(10.0)));
        cell.judge(Some(0.05));
        assert_eq!(cell.marks, [Mark::Wide]);
        // A meter that swings is as bad as a throughput that does.
        cell.windows = [10.0, 20.0, 10.0]
            .map(|power| window(5_000, Some(power)))
            .to_vec();
        assert!(!cell.is_precise(0.05));
    }
}
