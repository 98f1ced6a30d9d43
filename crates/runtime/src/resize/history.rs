//! What a report shows of a run: its periods, thinned to what a plot can show, and sums for each server and rule.

use super::news::{News, Newsroom};
use super::tick::{ServerTick, Tick};
use headroom_control::capacity::Capacity;
use headroom_control::resize::EnergyTotals;
use headroom_control::resize::PowerState;
use headroom_units::{PerSecond, Ratio};
use std::collections::{BTreeMap, VecDeque};

/// Points that are kept: where there are more, neighbours become one. With 256 servers they take some 30 MB.
const MAX_POINTS: usize = 1_200;
/// News that are kept: the latest.
const MAX_NEWS: usize = 300;
/// The words of the power states, in the order in which a server goes through them.
pub const STATES: [&str; 7] = [
    "off", "booting", "warming", "serving", "draining", "stopping", "failed",
];

/// The number of a state in [`STATES`].
pub const fn number_of(state: PowerState) -> usize {
    match state {
        PowerState::Off => 0,
        PowerState::Booting => 1,
        PowerState::Warming => 2,
        PowerState::Serving => 3,
        PowerState::Draining => 4,
        PowerState::Stopping => 5,
        PowerState::Failed(_) => 6,
    }
}

/// A mean over time, of the time in which a value was known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    sum: f64,
    seconds: f64,
}

impl Mean {
    fn add(&mut self, value: Option<f64>, seconds: f64) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.sum += value * seconds;
            self.seconds += seconds;
        }
    }

    fn merge(&mut self, other: Self) {
        self.sum += other.sum;
        self.seconds += other.seconds;
    }

    /// The mean; `None` where the value was never known.
    pub fn value(self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.sum / self.seconds)
    }
}

/// One server in a point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerPoint {
    /// Seconds in each state.
    pub state_s: [f64; 7],
    /// The length of its accept queue.
    pub queue: Mean,
    /// Attempts at its accept queue.
    pub attempts: f64,
    /// Those that were dropped.
    pub drops: f64,
}

impl ServerPoint {
    fn add(&mut self, server: &ServerTick, seconds: f64) {
        self.state_s[number_of(server.before)] += seconds;
        self.queue.add(server.queue_mean(), seconds);
        if let Some(counted) = server.counted {
            self.attempts += counted.arrivals;
            self.drops += counted.drops;
        }
    }

    fn merge(&mut self, other: &Self) {
        for (sum, part) in self.state_s.iter_mut().zip(other.state_s) {
            *sum += part;
        }
        self.queue.merge(other.queue);
        self.attempts += other.attempts;
        self.drops += other.drops;
    }

    /// The state in which it was longest.
    pub fn state(&self) -> usize {
        let longest = (0..7).max_by(|one, other| self.state_s[*one].total_cmp(&self.state_s[*other]));
        longest.unwrap_or_default()
    }

    /// The share of the attempts that were dropped; `None` where there were none.
    pub fn drop_ratio(&self) -> Option<Ratio> {
        (self.attempts > 0.0).then(|| Ratio::new(self.drops / self.attempts))
    }
}

/// One period, or several neighbours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// When it began, in seconds since the start of the run.
    pub from_s: f64,
    /// When it ended.
    pub to_s: f64,
    /// What arrived at the cluster, each second.
    pub arrival_rate: Mean,
    /// The known capacity of the servers that took requests.
    pub capacity: Mean,
    /// How many servers should be on.
    pub wanted: Mean,
    /// The periods' 95th percentiles of latency, in milliseconds.
    pub p95_ms: Mean,
    /// The estimated power, in watts, of the servers as they were.
    pub power_w: Mean,
    /// The same with every server on.
    pub always_on_w: Mean,
    /// The servers, in the run's order.
    pub servers: Vec<ServerPoint>,
}

impl Point {
    fn merge(&mut self, other: &Self) {
        self.to_s = other.to_s;
        self.arrival_rate.merge(other.arrival_rate);
        self.capacity.merge(other.capacity);
        self.wanted.merge(other.wanted);
        self.p95_ms.merge(other.p95_ms);
        self.power_w.merge(other.power_w);
        self.always_on_w.merge(other.always_on_w);
        for (server, other) in self.servers.iter_mut().zip(&other.servers) {
            server.merge(other);
        }
    }
}

/// One server over the whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerTotal {
    /// Its name.
    pub name: String,
    /// Its time in each state, its attempts and drops.
    pub all: ServerPoint,
    /// How often it was started, and how often it failed.
    pub starts: u64,
    /// How often it failed.
    pub failures: u64,
    /// The longest mean length of its accept queue in a period.
    pub queue_most: Option<f64>,
    /// Its capacity as it was last known, and whether it was given.
    pub capacity: Option<(Capacity, bool)>,
}

/// One rule over the whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleTotal {
    /// In how many periods it decided.
    pub periods: u64,
    /// When it did first, in seconds since the start, and what it said then.
    pub example: (f64, String),
}

/// A run.
#[derive(Clone, Debug, Default)]
pub struct History {
    points: Vec<Point>,
    /// Periods that a whole point stands for, and those that the last one has.
    each: u64,
    in_last: u64,
    before: Option<EnergyTotals>,
    newsroom: Newsroom,
    /// The latest news, and how many there were before them.
    pub news: VecDeque<News>,
    /// News before those.
    pub news_left_out: u64,
    /// The servers.
    pub servers: Vec<ServerTotal>,
    /// The rules that decided, by name.
    pub rules: BTreeMap<String, RuleTotal>,
    /// Periods.
    pub periods: u64,
}

impl History {
    /// Adds a period.
    pub fn tick(&mut self, tick: &Tick) {
        let seconds = tick.length.get();
        let mut point = Point {
            from_s: (tick.at - tick.length).get().max(0.0),
            to_s: tick.at.get(),
            ..Point::default()
        };
        point
            .arrival_rate
            .add(tick.arrival_rate.map(PerSecond::get), seconds);
        point.capacity.add(tick.capacity(), seconds);
        point.wanted.add(Some(tick.resize.servers as f64), seconds);
        point.p95_ms.add(tick.balancer.latency_ms.p95, seconds);
        if let Some(now) = tick.energy {
            // The first period of a record whose beginning is gone has nothing before it.
            let before = self
                .before
                .replace(now)
                .or((tick.period == 0).then(EnergyTotals::default));
            let power = before.and_then(|before| now.power_since(&before, tick.length));
            point.power_w.add(power.map(|(spent, _)| spent.get()), seconds);
            point
                .always_on_w
                .add(power.map(|(_, always_on)| always_on.get()), seconds);
        }
        for server in &tick.servers {
            let mut one = ServerPoint::default();
            one.add(server, seconds);
            point.servers.push(one);
        }
        self.total(tick, &point);
        self.push(point);
    }

    fn total(&mut self, tick: &Tick, point: &Point) {
        self.periods += 1;
        for (at, (server, one)) in tick.servers.iter().zip(&point.servers).enumerate() {
            if self.servers.len() == at {
                self.servers.push(ServerTotal {
                    name: server.name.clone(),
                    all: ServerPoint::default(),
                    starts: 0,
                    failures: 0,
                    queue_most: None,
                    capacity: None,
                });
            }
            let total = &mut self.servers[at];
            total.all.merge(one);
            if server.state != server.before {
                total.starts += u64::from(server.state == PowerState::Booting);
                total.failures += u64::from(matches!(server.state, PowerState::Failed(_)));
            }
            if let Some(queue) = server.queue_mean() {
                total.queue_most = Some(total.queue_most.unwrap_or_default().max(queue));
            }
            if server.capacity != Capacity::Unknown {
                total.capacity = Some((server.capacity, server.given));
            }
        }
        let reason = &tick.resize.reason;
        let rule = self
            .rules
            .entry(reason.rule.to_string())
            .or_insert_with(|| RuleTotal {
                periods: 0,
                example: (tick.at.get(), reason.text.clone()),
            });
        rule.periods += 1;
        for news in self.newsroom.read(tick) {
            if self.news.len() == MAX_NEWS {
                self.news.pop_front();
                self.news_left_out += 1;
            }
            self.news.push_back(news);
        }
    }

    fn push(&mut self, point: Point) {
        self.each = self.each.max(1);
        if let Some(last) = self.points.last_mut().filter(|_| self.in_last < self.each) {
            last.merge(&point);
            self.in_last += 1;
            return;
        }
        if self.points.len() == MAX_POINTS {
            let mut kept: Vec<Point> = Vec::with_capacity(MAX_POINTS);
            for pair in self.points.chunks(2) {
                let [one, rest @ ..] = pair else { continue };
                let mut one = one.clone();
                rest.iter().for_each(|other| one.merge(other));
                kept.push(one);
            }
            self.points = kept;
            self.each *= 2;
        }
        self.points.push(point);
        self.in_last = 1;
    }

    /// The points, from the first to the last.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// The periods that a point stands for.
    pub fn periods_per_point(&self) -> u64 {
        self.each.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resize::tick::tests::tick;
    use headroom_control::resize::Cause;

    #[test]
    fn a_long_run_is_thinned_and_loses_no_time_drop_or_energy() {
        let mut history = History::default();
        for period in 0..10_000 {
            let mut reported = tick(period, 1);
            reported.arrival_rate = Some(PerSecond::new(period as f64));
            history.tick(&reported);
        }
        let points = history.points();
        assert!(
            (MAX_POINTS / 2..=MAX_POINTS).contains(&points.len()),
            "{}",
            points.len()
        );
        assert_eq!(history.periods_per_point(), 16);
        assert_eq!((points[0].from_s, points.last().unwrap().to_s), (0.0, 10_000.0));
        for pair in points.windows(2) {
            assert_eq!(pair[0].to_s, pair[1].from_s);
        }
        assert_eq!(
            points[1].arrival_rate.value(),
            Some((16..32).sum::<u32>() as f64 / 16.0)
        );
        let drops: f64 = points.iter().map(|point| point.servers[0].drops).sum();
        assert_eq!((drops, history.servers[0].all.drops), (5_000.0, 5_000.0));
        let joules = |of: fn(&Point) -> Mean| -> f64 {
            let each = points
                .iter()
                .map(|point| of(point).value().unwrap() * (point.to_s - point.from_s));
            each.sum()
        };
        assert!((joules(|point| point.power_w) - 650_000.0).abs() < 1e-3);
        assert!((joules(|point| point.always_on_w) - 1_250_000.0).abs() < 1e-3);
        assert_eq!(
            history.servers[0].all.state_s[number_of(PowerState::Serving)],
            10_000.0
        );
        assert_eq!(history.rules["grow"].periods, 10_000);
        assert_eq!(
            history.rules["grow"].example,
            (1.0, "90.0/s of 100.0/s".to_owned())
        );
    }

    #[test]
    fn starts_failures_and_queues_are_told_for_each_server_and_old_news_go() {
        let mut history = History::default();
        for period in 0..1_000 {
            let mut reported = tick(period, 1 + period as usize % 2);
            reported.servers[1].before = PowerState::Off;
            reported.servers[1].state = match period % 3 {
                0 => PowerState::Booting,
                1 => PowerState::Failed(Cause::Lost),
                _ => PowerState::Off,
            };
            history.tick(&reported);
        }
        let [web1, web2] = &history.servers[..] else {
            panic!("two servers")
        };
        assert_eq!((web2.starts, web2.failures, web2.queue_most), (334, 333, None));
        assert_eq!((web1.starts, web1.failures, web1.queue_most), (0, 0, Some(2.5)));
        assert_eq!(
            web1.capacity,
            Some((Capacity::LowerBound(PerSecond::new(100.0)), false))
        );
        assert_eq!(web1.all.state(), number_of(PowerState::Serving));
        assert_eq!(history.news.len(), MAX_NEWS);
        // A change of the number each period, and two of web2 in three.
        assert_eq!(history.news_left_out, 1_000 + 667 - MAX_NEWS as u64);
    }

    #[test]
    fn the_power_of_a_record_without_its_beginning_starts_with_the_second_period() {
        let mut history = History::default();
        history.tick(&tick(500, 1));
        history.tick(&tick(501, 1));
        assert_eq!(history.points()[0].power_w.value(), None);
        assert_eq!(history.points()[1].power_w.value(), Some(65.0));
    }
}
