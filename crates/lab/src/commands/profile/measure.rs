//! The measurement: baselines, then round after round a window of each cell that is not precise enough yet, in an order that a seed
//! shuffles, so that a machine which drifts drifts in all cells alike.

use super::failures;
use super::far_end::{FarEnd, Work};
use super::machine::{Machine, Reading, Used};
use super::target::Target;
use anyhow::anyhow;
use headroom_console::{Failure, Stop, say};
use headroom_load::LoadResult;
use headroom_record::profile::{Baseline, BaselineKind, Cell, Latencies, Link, Profile, Window, size_text};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::path::Path;
use std::time::{Duration, Instant};

/// The fewest windows of a cell: an interval of fewer that happens to be narrow says little.
pub const MIN_WINDOWS: usize = 5;
/// The most windows of a cell.
pub const MAX_WINDOWS: usize = 200;
/// Windows after which a cell that was answered nothing has to wait for the others.
const HOPELESS: usize = 2;
/// Windows that failures spoilt after which a cell is given up.
const GIVEN_UP: usize = 2 * MIN_WINDOWS;
/// For how long a server that takes no values is waited for.
const AWAY: Duration = Duration::from_secs(60);
/// A generator whose busiest thread was busy for this share of the sending is as busy as it can be.
const CLIENT_FULL: f64 = 0.95;

/// What is measured with, and until when.
pub struct Measurement<'a> {
    pub target: &'a Target,
    pub machine: &'a mut dyn Machine,
    /// Who keeps the cores busy and fills the link; `None` where nobody is there for it.
    pub far_end: Option<FarEnd>,
    pub profile: Profile,
    pub file: &'a Path,
    /// Half a 95 % interval over its mean that is narrow enough.
    pub precision: f64,
    /// When no other window begins.
    pub until: Instant,
    /// The link to count; by default the one that most passes in a window.
    pub link: Option<String>,
    /// What passed each link while the machine was idle.
    pub idle_links: Vec<(String, f64, f64)>,
    /// What says how far it is.
    pub progress: &'a dyn Fn(Progress),
    /// Since when the server takes no values.
    pub away: Option<Instant>,
}

/// Whether a cell needs a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// It is as it was asked for, or is given up.
    None,
    /// Failures spoilt at least half of its windows: it is tried again after the others, when an outage may be over.
    Later,
    /// It does.
    Now,
}

impl Need {
    fn of(cell: &Cell, precision: f64) -> Self {
        if cell.windows.len() >= MAX_WINDOWS {
            return Self::None;
        }
        if cell.is_failing() {
            let spoilt = cell.windows.iter().filter(|window| window.is_spoilt()).count();
            let answered = cell.windows.iter().any(|window| window.completed > 0);
            let patience = if answered { MIN_WINDOWS } else { HOPELESS };
            return match spoilt {
                spoilt if spoilt >= GIVEN_UP => Self::None,
                spoilt if spoilt >= patience => Self::Later,
                _ => Self::Now,
            };
        }
        match cell.counted().count() >= MIN_WINDOWS && cell.is_precise(precision) {
            true => Self::None,
            false => Self::Now,
        }
    }
}

/// How far a measurement is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Windows that were measured.
    pub windows: usize,
    /// Cells that need no other.
    pub done: usize,
    pub cells: usize,
    /// What it takes at least, and at most until the time is over.
    pub left_s: (f64, f64),
    /// What is measured now.
    pub now: String,
}

impl Measurement<'_> {
    /// Measures until every cell is precise, the time is over, or `stop` is raised; after each window the file is written.
    ///
    /// # Errors
    /// A load that cannot be started, a file that cannot be written.
    pub fn run(mut self, stop: &Stop) -> Result<Profile, Failure> {
        self.baselines(stop)?;
        while !stop.is_raised() {
            let mut open = self.needing(Need::Now);
            if open.is_empty() {
                open = self.needing(Need::Later);
            }
            if open.is_empty() {
                break;
            }
            let windows = self.windows();
            open.shuffle(&mut ChaCha8Rng::seed_from_u64(
                self.profile.plan.seed ^ windows as u64,
            ));
            for cell in open {
                if stop.is_raised() || self.is_late() {
                    break;
                }
                self.window(cell, stop)?;
            }
            if self.is_late() {
                break;
            }
        }
        let precision = self.precision;
        for cell in &mut self.profile.cells {
            cell.judge(Some(precision));
        }
        self.save()?;
        Ok(self.profile)
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.until
    }

    fn windows(&self) -> usize {
        self.profile.cells.iter().map(|cell| cell.windows.len()).sum()
    }

    fn needing(&self, need: Need) -> Vec<usize> {
        let cells = self.profile.cells.iter().enumerate();
        cells
            .filter(|(_, cell)| Need::of(cell, self.precision) == need)
            .map(|(at, _)| at)
            .collect()
    }

    fn save(&self) -> Result<(), Failure> {
        self.profile.write(self.file).map_err(Failure::from)
    }

    fn source(&self) -> Option<headroom_units::Source> {
        self.profile.meter.as_ref().map(|meter| meter.source)
    }

    fn say(&self, now: String) {
        let cells = &self.profile.cells;
        let window_s = self.profile.plan.window_s;
        let open = || {
            cells
                .iter()
                .filter(|cell| Need::of(cell, self.precision) != Need::None)
        };
        let fewest: usize = open()
            .map(|cell| MIN_WINDOWS.saturating_sub(cell.counted().count()).max(1))
            .sum();
        let most = self.until.saturating_duration_since(Instant::now()).as_secs_f64();
        (self.progress)(Progress {
            windows: self.windows(),
            done: cells.len() - open().count(),
            cells: cells.len(),
            left_s: ((fewest as f64 * window_s).min(most), most),
            now,
        });
    }

    /// Those baselines that are not there yet, as far as somebody is there for them.
    fn baselines(&mut self, stop: &Stop) -> Result<(), Failure> {
        let length_s = self.profile.plan.window_s;
        for kind in BaselineKind::ALL {
            if stop.is_raised() {
                return Ok(());
            }
            if self.profile.baseline(kind).is_some() || self.profile.machine.cores == 0 {
                continue;
            }
            let work = match (kind, &self.far_end) {
                (BaselineKind::Idle, _) => None,
                (BaselineKind::Cores, Some(far)) => Some((far, Work::Cores)),
                (BaselineKind::Network, Some(far)) => Some((far, Work::Stream)),
                (_, None) => continue,
            };
            self.say(format!("baseline: {}", kind.as_str()));
            let client = super::machine::own_cpu();
            let before = self.machine.read();
            let bytes = match work {
                None => {
                    stop.wait_until(Instant::now() + Duration::from_secs_f64(length_s));
                    None
                }
                Some((far, work)) => match far.work(work, length_s) {
                    Ok(bytes) => (work == Work::Stream).then_some(bytes),
                    Err(error) => {
                        let note = format!("the baseline {} is missing: {error:#}", kind.as_str());
                        say::note!("{note}");
                        self.profile.notes.push(note);
                        continue;
                    }
                },
            };
            let after = self.machine.read();
            if stop.is_raised() {
                return Ok(());
            }
            let used = after.since(&before, self.source());
            let client_cores = (super::machine::own_cpu() - client).get() / used.length_s;
            if kind == BaselineKind::Idle {
                self.idle_links.clone_from(&used.links);
            }
            self.profile.baselines.push(Baseline {
                length_s: used.length_s,
                power_w: used.power_w,
                busy_cores: self.without_client(&used, client_cores),
                softirq_cores: used.softirq_cores,
                link_bytes_per_s: bytes.map(|bytes| bytes as f64 / used.length_s),
                ..Baseline::new(kind)
            });
            if let (BaselineKind::Idle, Some(busy)) = (kind, self.profile.others_at_work()) {
                say::note!(
                    "other programs keep {busy:.1} of {} cores busy, so that `headroom place` will not take this profile: end them and begin anew \
                     (--fresh)",
                    self.profile.machine.cores
                );
            }
            self.save()?;
        }
        Ok(())
    }

    fn without_client(&self, used: &Used, client_cores: f64) -> Option<f64> {
        let own = if self.machine.has_client() {
            client_cores
        } else {
            0.0
        };
        Some((used.busy_cores? - own).max(0.0))
    }

    /// One window of a cell.
    fn window(&mut self, cell: usize, stop: &Stop) -> Result<(), Failure> {
        let (size, density, count) = {
            let cell = &self.profile.cells[cell];
            (cell.size_bytes, cell.density, cell.windows.len())
        };
        self.say(format!("{} at {:.0} %", size_text(size), density * 100.0));
        let plan = &self.profile.plan;
        // Values are stored when a size is first asked for, and again where the server lost some of them.
        let of_size = self.profile.cells.iter().filter(|one| one.size_bytes == size);
        let fills = of_size.clone().all(|one| one.windows.is_empty())
            || of_size
                .flat_map(|one| one.windows.last())
                .any(|last| last.failed > 0);
        let seed = plan.seed.wrapping_mul(0x9e37_79b9).wrapping_add(count as u64);
        let window_s = plan.window_s;
        let load = match self.target.start(plan, size, density, seed, fills) {
            Ok(load) => load,
            // Nothing was measured yet: that is no outage.
            Err(error) if self.windows() == 0 => return Err(error),
            Err(error) => return self.wait_for_the_server(error, stop),
        };
        self.away = None;
        // What came before it, opening connections and storing values, is no part of the window.
        let before = self.machine.read();
        let client = super::machine::own_cpu();
        let begun = before.at;
        while !load.is_finished() {
            if stop.wait_until(Instant::now() + Duration::from_millis(20)) {
                load.stop();
                break;
            }
        }
        let result = load.join()?;
        if stop.is_raised() {
            return Ok(());
        }
        let shape = Shape::of(&result, window_s, density);
        // A window ends with its pause: what was outstanding was answered within it.
        stop.wait_until(begun + Duration::from_secs_f64(shape.length_s));
        let after = self.machine.read();
        let client_cores = (super::machine::own_cpu() - client).get() / (after.at - before.at).as_secs_f64();
        if stop.is_raised() {
            return Ok(());
        }
        self.keep(cell, &result, &shape, (&before, &after), client_cores)
    }

    /// A memcached that takes no values any more, as one that is started anew, has a window's length of patience at a time, up to [`AWAY`] in all.
    fn wait_for_the_server(&mut self, error: Failure, stop: &Stop) -> Result<(), Failure> {
        if self.away.is_none() {
            say::note!("{error}: it is tried again for {} s", AWAY.as_secs());
        }
        let since = *self.away.get_or_insert_with(Instant::now);
        if since.elapsed() >= AWAY {
            return Err(error);
        }
        stop.wait_until(Instant::now() + Duration::from_secs_f64(self.profile.plan.window_s));
        Ok(())
    }

    fn keep(
        &mut self,
        index: usize,
        result: &LoadResult,
        shape: &Shape,
        (before, after): (&Reading, &Reading),
        client_cores: f64,
    ) -> Result<(), Failure> {
        let used = after.since(before, self.source());
        let (link, is_new) = self.link_of(&used);
        if let (Some(name), true) = (&link, is_new) {
            let bits_per_s = after
                .links
                .iter()
                .find(|one| &one.name == name)
                .and_then(|one| one.bits_per_s);
            self.profile.machine.link = Some(Link {
                name: name.clone(),
                bits_per_s,
            });
            // Which link it is was not known when the machine was idle.
            let idle = self.idle_links.iter().find(|(one, ..)| one == name);
            let idle = idle.map(|(_, received, sent)| received.max(*sent));
            let baselines = self.profile.baselines.iter_mut();
            for baseline in baselines.filter(|one| one.kind == BaselineKind::Idle) {
                baseline.link_bytes_per_s = idle;
            }
        }
        let passed = link.and_then(|name| used.links.iter().find(|(one, ..)| *one == name).cloned());
        let latency = &result.latency_ms;
        let ms = |value: Option<f64>| value.unwrap_or(0.0);
        let busy_cores = self.without_client(&used, client_cores);
        let cell = &mut self.profile.cells[index];
        let size_bytes = cell.size_bytes;
        cell.windows.push(Window {
            length_s: used.length_s,
            sending_share: (shape.sending_s / used.length_s).clamp(f64::MIN_POSITIVE, 1.0),
            completed: result.counts.completed,
            // Only answers of the size that was asked for are completed; content of others is none of the service's.
            content_bytes: result.counts.completed * size_bytes,
            failed: result.failed_total,
            wrong_size: result.counts.failed.wrong_size,
            latency: latency.mean.map(|mean| Latencies {
                mean_ms: mean,
                p50_ms: ms(latency.p50),
                p95_ms: ms(latency.p95),
                p99_ms: ms(latency.p99),
                p999_ms: ms(latency.p999),
            }),
            power_w: used.power_w,
            busy_cores,
            softirq_cores: used.softirq_cores,
            received_per_s: passed.as_ref().map(|(_, received, _)| *received),
            sent_per_s: passed.map(|(_, _, sent)| sent),
            client_cores,
            client_is_full: shape.client_is_full,
        });
        cell.judge(None);
        let spoilt = cell.windows.last().is_some_and(Window::is_spoilt);
        if let Some(why) = failures::reasons(result).filter(|_| spoilt) {
            self.profile.note_failures(index, &why);
        }
        self.save()
    }

    /// The link whose bytes count, and whether it was not known before.
    fn link_of(&self, used: &Used) -> (Option<String>, bool) {
        if let Some(known) = &self.profile.machine.link {
            return (Some(known.name.clone()), false);
        }
        let busiest = used
            .links
            .iter()
            .max_by(|one, two| (one.1 + one.2).total_cmp(&(two.1 + two.2)))
            .map(|(name, ..)| name.clone());
        (self.link.clone().or(busiest), true)
    }
}

/// How a window went at the clients.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shape {
    /// With its pause.
    length_s: f64,
    /// From the first request to the last answer.
    sending_s: f64,
    /// The busiest thread of the generator had no time left while they did.
    client_is_full: bool,
}

impl Shape {
    /// Connections send for `density` of the window, wait for their last answers, and pause for the rest of the window's length: the window
    /// is longer than asked by what the last answer of all took beyond. Until then the server is at work, and what it completed is of
    /// that time: were it the connections' mean, a server with a long queue that it works off would seem quicker than it is.
    fn of(result: &LoadResult, window_s: f64, density: f64) -> Self {
        let sending_s = result.duration_s.get();
        Self {
            length_s: window_s + (sending_s - window_s * density).max(0.0),
            sending_s,
            client_is_full: result.whole.busiest_thread_cpu.get() >= CLIENT_FULL * sending_s,
        }
    }
}

/// Why a profile cannot go on in a file that is there.
pub fn refusal(file: &Path, differing: &str) -> Failure {
    Failure::usage(anyhow!(
        "{}: holds a profile that is not of the same: {differing}. Give another file (--out), or begin anew in it (--fresh)",
        file.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(completed: u64, failed: u64) -> Window {
        Window {
            length_s: 5.0,
            sending_share: 1.0,
            completed,
            content_bytes: completed * 1024,
            failed,
            ..Window::default()
        }
    }

    fn need(windows: &[Window]) -> Need {
        let mut cell = Cell::new(1024, 1.0);
        cell.windows = windows.to_vec();
        Need::of(&cell, 0.03)
    }

    #[test]
    fn what_an_outage_spoilt_is_measured_in_its_place() {
        let (good, away) = (window(1_000, 0), window(0, 40));
        assert_eq!(need(&vec![good.clone(); 5]), Need::None);
        let mut windows = vec![good.clone(); 3];
        windows.extend([away.clone(), away.clone()]);
        assert_eq!(need(&windows), Need::Now, "three count");
        windows.extend([good.clone(), good.clone()]);
        assert_eq!(need(&windows), Need::None, "five count");
        // Away from the beginning on: later, and then as many as it takes.
        let mut windows = vec![away; 2];
        assert_eq!(need(&windows), Need::Later);
        windows.push(good.clone());
        assert_eq!(need(&windows), Need::Now);
        windows.extend(vec![good; 4]);
        assert_eq!(need(&windows), Need::None);
    }

    #[test]
    fn a_server_that_errs_in_every_window_is_given_up() {
        for (window, patience) in [(window(500, 500), MIN_WINDOWS), (window(0, 40), HOPELESS)] {
            let mut needs = Vec::new();
            let mut windows = Vec::new();
            while need(&windows) != Need::None {
                assert!(windows.len() < GIVEN_UP, "an endless loop");
                needs.push(need(&windows));
                windows.push(window.clone());
            }
            assert_eq!(windows.len(), GIVEN_UP);
            assert_eq!(needs.iter().filter(|need| **need == Need::Now).count(), patience);
        }
        // Every second window is spoilt, and what is answered swings: no interval is ever narrow.
        let mut windows = Vec::new();
        while need(&windows) != Need::None {
            assert!(windows.len() < MAX_WINDOWS, "an endless loop");
            let at = windows.len() as u64;
            windows.push(window(100 * (at % 7 + 1), 500 * (at % 2)));
        }
    }
}
