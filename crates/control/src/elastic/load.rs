//! The load: what comes now, and what may come before another server could serve.

use super::days::Days;
use super::rates::Rates;
use crate::growth::{Growth, MAX_HORIZON_PERIODS, When};
use crate::headroom::forecast::Forecaster;
use crate::history::LoadHistory;
use crate::needed::Needed;
use crate::observation::Observation;

/// Silence counts as so many requests a second.
const SILENCE_PER_S: f64 = 0.1;
/// The load is foreseen to grow to so many times itself at most, or to the highest that there was.
const MAX_GROWTH: f64 = 2.0;
/// Before so many seconds of load were observed no growth is foreseen.
const LEARN_S: f64 = 1_800.0;
/// What came at most in so many seconds before an outage comes on.
const CAME_S: f64 = 60.0;
/// About as much comes as usual where so much of the highest load comes that came in as long as a boot is worth.
const USUAL: f64 = 0.85;

/// What may come, requests a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Foreseen {
    /// The mean of late, and what comes at least beyond the noise of its counts.
    pub mean: f64,
    pub sure: f64,
    /// The seconds that each of the two is over.
    pub mean_over_s: f64,
    pub sure_over_s: f64,
    /// At most, as far as the noise of the mean's count goes.
    pub at_most: f64,
    /// The highest until a server that is started now could serve, and what comes then.
    pub within: f64,
    pub at_end: f64,
    /// What the day before brought by then; 0 where nothing is known or believed of it.
    pub of_days: f64,
}

impl Foreseen {
    /// What is decided by as what comes now.
    pub(super) const fn now(&self) -> f64 {
        self.sure.max(self.mean)
    }

    /// The seconds that [`Self::now`] is over: it may all have come at their beginning.
    pub(super) const fn over_s(&self) -> f64 {
        match self.sure > self.mean {
            true => self.sure_over_s,
            false => self.mean_over_s,
        }
    }

    /// That in words: `at least 156.5/s came over the last 10 s`.
    pub(super) fn came(&self) -> String {
        let at_least = if self.sure > self.mean { "at least " } else { "" };
        let over_s = (10.0 * self.over_s()).round() / 10.0;
        format!("{at_least}{:.1}/s came over the last {over_s} s", self.now())
    }

    /// `, 220.0 may come`; nothing where that is no more than what came.
    pub(super) fn may_come(&self) -> String {
        match self.at_end > self.now() {
            true => format!(", {:.1} may come", self.at_end),
            false => String::new(),
        }
    }
}

/// What was observed of it.
#[derive(Clone, Debug)]
pub(super) struct Load {
    rates: Rates,
    forecaster: Forecaster,
    days: Days,
    /// What was recorded before, until the clock is known.
    recorded: Option<LoadHistory>,
    growth: Option<Growth>,
    /// So many periods ahead.
    foreseen_periods: usize,
    observed_s: f64,
    /// Length of a period.
    length_s: f64,
    /// The highest load of all that was observed.
    most: f64,
    /// The load of late, and the highest within as long as a boot is worth: requests in 1,000 s.
    of_late: Needed,
    highest_per_ks: usize,
    /// What came while servers last took it, and when.
    came: Option<(f64, f64)>,
}

impl Load {
    /// Of days of this length.
    pub(super) fn new(day_s: f64) -> Self {
        Self {
            rates: Rates::default(),
            forecaster: Forecaster::new(),
            days: Days::new(day_s),
            recorded: None,
            growth: None,
            foreseen_periods: 0,
            observed_s: 0.0,
            length_s: 1.0,
            most: 0.0,
            of_late: Needed::default(),
            highest_per_ks: 0,
            came: None,
        }
    }

    /// Takes what was recorded before the first period.
    pub(super) fn recall(&mut self, recorded: &LoadHistory) {
        self.recorded = Some(recorded.clone());
    }

    /// Learns of it the days, now that the clock is known.
    pub(super) fn recall_at(&mut self, clock_s: f64) {
        if let Some(recorded) = self.recorded.take() {
            self.days.recall(clock_s, &recorded);
        }
    }

    /// Takes what came in a period in which servers took it, where a boot takes so long.
    pub(super) fn observe(&mut self, observation: &Observation, rate: f64, boot_s: f64) {
        let (now_s, length_s) = (observation.at.get(), observation.length.get());
        if length_s > 0.0 {
            self.length_s = length_s;
            self.rates.observe(rate, length_s);
            self.observe_growth(observation.period, rate, self.horizon(boot_s));
            self.days.observe(observation.clock.get(), rate, length_s);
        }
        let mean = self.rates.mean();
        self.most = self.most.max(mean);
        if mean > 0.0 {
            // Servers that die one after another take what is counted with them: it is as it was at its most.
            let since = self
                .came
                .filter(|(at_s, came)| *came > mean && now_s - at_s <= CAME_S);
            self.came = Some(since.unwrap_or((now_s, mean)));
        }
    }

    fn horizon(&self, boot_s: f64) -> usize {
        let periods = (boot_s / self.length_s.max(1e-3)).ceil() as usize + 1;
        periods.min(MAX_HORIZON_PERIODS)
    }

    fn observe_growth(&mut self, period: u64, rate: f64, horizon: usize) {
        let length_s = self.length_s;
        self.observed_s += length_s;
        // Silence is a load too: without a rate nothing could be foreseen from it.
        let rate = rate.max(SILENCE_PER_S);
        self.forecaster.observe(period, rate, length_s);
        if self
            .growth
            .as_ref()
            .is_none_or(|_| 2 * horizon > 3 * self.foreseen_periods)
        {
            // Boots take longer than was thought: what was learned is for another time.
            if self.growth.is_some() {
                self.observed_s = 0.0;
            }
            (self.growth, self.foreseen_periods) = (Some(Growth::new(horizon)), horizon);
        }
        if let Some(growth) = &mut self.growth {
            growth.observe(rate, length_s, &self.forecaster);
        }
    }

    /// What may come while a server boots that takes so long, as rarely more as `exceeded` says, and `surge` times what comes at least.
    pub(super) fn foreseen(&self, clock_s: f64, boot_s: f64, (exceeded, surge): (f64, f64)) -> Foreseen {
        let mean = self.rates.mean();
        let of_days = self.days.foreseen(clock_s, boot_s).unwrap_or(0.0);
        let horizon = self.horizon(boot_s);
        let grown = |when| {
            let grown = self.grown(when, mean, horizon, exceeded);
            grown.max(surge * mean).max(of_days)
        };
        let (sure, sure_over_s) = self.rates.sure();
        Foreseen {
            mean,
            sure,
            mean_over_s: self.rates.mean_over_s(),
            sure_over_s,
            at_most: self.rates.at_most(),
            within: grown(When::Within),
            at_end: grown(When::AtEnd),
            of_days,
        }
    }

    /// What the load may grow to within the time of a boot, and at its end. Until it is known what it has risen by lately.
    fn grown(&self, when: When, now: f64, horizon: usize, exceeded: f64) -> f64 {
        let known = self
            .growth
            .as_ref()
            .filter(|_| self.observed_s >= LEARN_S)
            .and_then(|growth| growth.highest(when, &[exceeded]))
            .and_then(|rates| rates.first().copied());
        let grown = known.unwrap_or_else(|| now + self.rates.rise_within(horizon as f64 * self.length_s));
        // A step that is under way would be foreseen to go on as it began.
        grown.min(self.most.max(MAX_GROWTH * now))
    }

    /// Takes the mean of this period among those of so many: a boot is worth that many.
    pub(super) fn remember(&mut self, period: u64, away: u64) {
        let per_ks = (self.rates.mean() * 1e3) as usize;
        self.highest_per_ks = self.of_late.observe(period, per_ks, away);
    }

    /// Whether about as much comes as came at most in as long as a boot is worth: a moment in which little comes shows nothing of what
    /// fewer servers could do without the others.
    pub(super) fn is_usual(&self) -> bool {
        self.rates.at_most() >= USUAL * self.highest_per_ks as f64 / 1e3
    }

    /// When servers last took what came, and how much that was.
    pub(super) const fn came(&self) -> Option<(f64, f64)> {
        self.came
    }

    /// What may come when another could serve, of which nothing was seen since so much came: it goes on as its days do, however long that is
    /// ago.
    pub(super) fn unseen(&self, came: f64, clock_s: f64, boot_s: f64, (exceeded, surge): (f64, f64)) -> f64 {
        let horizon = self.horizon(boot_s);
        let grown = self.grown(When::AtEnd, came, horizon, exceeded).max(surge * came);
        let cycles = [
            self.forecaster.highest_of_season(horizon),
            self.days.foreseen(clock_s, boot_s),
        ];
        cycles.into_iter().flatten().fold(grown, f64::max)
    }

    /// Telemetry was lost: what comes now is not known.
    pub(super) fn forget(&mut self) {
        self.rates.forget();
        self.days.lose();
        self.forecaster.lose_telemetry();
        if let Some(growth) = &mut self.growth {
            growth.lose();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::elastic::ElasticTuning;
    use crate::elastic::tests::{World, exact, wide};
    use crate::law::Law;
    use crate::observation::Observation;
    use headroom_units::{PerSecond, Seconds};

    #[test]
    fn the_arrival_rate_is_that_of_the_period_and_others_have_their_time() {
        let mut world = World::new(wide(), 2, 2, exact(80.5));
        world.run(60, 150.0);
        let silence = Observation {
            period: 61,
            at: Seconds::new(61.0),
            length: Seconds::new(1.0),
            demand: Some(PerSecond::new(0.0)),
            nodes: world.nodes.clone(),
            ..Observation::default()
        };
        let reason = world.law.decide(&silence).reasons.remove(0);
        let number = |name: &str| reason.numbers.iter().find(|(of, _)| of == name).unwrap().1;
        assert_eq!(number("arrival_rate_per_s"), 0.0);
        assert_eq!((number("mean_per_s"), number("mean_over_s")), (112.5, 4.0));
        assert!(
            number("sure_per_s") > 112.5 && number("sure_over_s") == 30.0,
            "{reason:?}"
        );
    }

    #[test]
    fn what_came_is_said_with_its_time_and_no_less_may_come() {
        let tuning = ElasticTuning {
            margin: 0.1,
            ..wide()
        };
        let mut world = World::new(tuning, 2, 2, exact(80.5));
        world.run(60, 150.0);
        assert!(
            world
                .text
                .starts_with("150.0/s came over the last 3 s, 2 servers take 144.9 with 10 % kept free"),
            "{}",
            world.text
        );
        let figure = |text: &str, end: &str| {
            let before = text.split(end).next().filter(|_| text.contains(end))?;
            before.split(' ').next_back()?.parse::<f64>().ok()
        };
        // After the load has ended.
        for second in 1..=20 {
            world.run(1, 0.0);
            let text = &world.text;
            assert!(!text.contains("/s come"), "{text}");
            let came = figure(text, "/s came over the last ").unwrap();
            let over_s = figure(text, " s, ").unwrap();
            let in_the_time = 150.0 * (over_s - f64::from(second)).max(0.0) / over_s;
            assert!(came <= in_the_time + 0.05, "{second}: {text}");
            let may_come = figure(text, " may come");
            assert!(may_come.is_none_or(|may_come| may_come >= came), "{text}");
        }
        world.run(30, 0.0);
        assert!(
            world.text.starts_with("0.0/s came over the last 30 s, "),
            "{}",
            world.text
        );
    }

    #[test]
    fn what_is_subtracted_from_what_servers_take_is_said() {
        for (margin, reserve, survive_zone, wanted) in [
            (0.0, 0, false, ""),
            (0.1, 0, false, " with 10 % kept free"),
            (0.1, 1, false, " with 1 lost and 10 % kept free"),
            (0.0, 1, true, " with a zone lost"),
            (0.0, 2, true, " with a zone or 2 lost"),
        ] {
            let tuning = ElasticTuning {
                margin,
                reserve,
                survive_zone,
                ..wide()
            };
            assert_eq!(tuning.kept_free(), wanted);
        }
    }
}
