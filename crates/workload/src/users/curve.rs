//! How many users there are over time.

use crate::generate::{ClarknetLike, clarknet_like};
use crate::trace::{Trace, TraceError};
use headroom_units::{PerSecond, Seconds};
use std::path::Path;

/// The most users at a time.
pub const MAX_USERS: f64 = 1e6;

/// The most steps that may be written out.
const MAX_STEPS: usize = 10_000;

/// What a curve may be, for those who wrote something else.
const REMEDY: &str = "write one of: 100; constant:users=100; ramp:from=0,to=300,over=5m; \
     sinusoid:mean=100,amplitude=80,period=10m[,start=2m]; steps:10/1m,50/2m; daily:mean=100,day=10m[,days=1,seed=1]; \
     trace:file=users.txt,step=10s (times in ms, s, m, h or d)";

/// What is wrong with a curve.
#[derive(Debug, thiserror::Error)]
pub enum CurveError {
    /// It cannot be read.
    #[error("`{text}` is no curve of users: {problem}; {REMEDY}")]
    Bad {
        /// What was written.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The file of a `trace:` cannot be used.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// The number of users over time, from the start of the load.
///
/// ```
/// use headroom_units::Seconds;
/// use headroom_workload::users::UserCurve;
///
/// let curve = UserCurve::parse("ramp:from=0,to=300,over=5m")?;
/// assert_eq!(curve.at(Seconds::new(150.0)), 150.0);
/// # Ok::<(), headroom_workload::users::CurveError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum UserCurve {
    /// Always as many.
    Constant(f64),
    /// A straight line, and its end's number from then on.
    Ramp {
        /// Users at the start.
        from: f64,
        /// Users at the end.
        to: f64,
        /// How long it takes.
        over: Seconds,
    },
    /// `mean + amplitude sin(2 pi (t + start) / period)`; below nobody there is nobody.
    Sinusoid {
        /// The middle.
        mean: f64,
        /// From the middle to the top.
        amplitude: f64,
        /// From top to top.
        period: Seconds,
        /// How far into the period the load begins: 0 at the middle, rising; three quarters of it at the bottom.
        start: Seconds,
    },
    /// Each number for its time, and nobody afterwards.
    Steps(Vec<(f64, Seconds)>),
    /// The values of a trace, as users. Nobody after its end.
    Trace(Trace),
}

impl UserCurve {
    /// The file that a curve names, as it is written on a command line; `None` where it names none.
    pub fn file_of(text: &str) -> Option<&Path> {
        let figures = text.strip_prefix("trace:")?;
        Figures::read(figures).ok()?.take("file").map(Path::new)
    }

    /// Reads a curve as it is written on a command line: a number, or a kind with its figures, as
    /// `sinusoid:mean=100,amplitude=80,period=10m`. `trace:` reads its file.
    ///
    /// # Errors
    /// [`CurveError`], which says what can be written.
    pub fn parse(text: &str) -> Result<Self, CurveError> {
        let bad = |problem: String| CurveError::Bad {
            text: text.chars().take(80).collect(),
            problem,
        };
        let Some((kind, rest)) = text.split_once(':') else {
            return Ok(Self::Constant(users(text.trim()).map_err(bad)?));
        };
        if kind == "steps" {
            return steps(rest).map_err(bad);
        }
        let mut figures = Figures::read(rest).map_err(bad)?;
        let curve = match kind {
            "constant" => Self::Constant(figures.users("users", None).map_err(bad)?),
            "ramp" => Self::Ramp {
                from: figures.users("from", Some(0.0)).map_err(bad)?,
                to: figures.users("to", None).map_err(bad)?,
                over: figures.time("over", None).map_err(bad)?,
            },
            "sinusoid" => {
                let period = figures.time("period", None).map_err(bad)?;
                Self::Sinusoid {
                    mean: figures.users("mean", None).map_err(bad)?,
                    amplitude: figures.users("amplitude", None).map_err(bad)?,
                    period,
                    start: figures.time("start", Some(Seconds::ZERO)).map_err(bad)?,
                }
            }
            "daily" => {
                let mean = figures.users("mean", None).map_err(bad)?;
                let day = figures.time("day", None).map_err(bad)?;
                let days = figures.whole("days", 1).map_err(bad)?;
                let seed = figures.whole("seed", 1).map_err(bad)?;
                Self::daily(mean, day, usize::try_from(days).unwrap_or(usize::MAX), seed)?
            }
            "trace" => {
                let file = figures
                    .take("file")
                    .ok_or_else(|| bad("it has no `file`".to_owned()))?;
                let step = figures.time("step", Some(Seconds::new(10.0))).map_err(bad)?;
                Self::Trace(Trace::from_file(Path::new(file), step)?)
            }
            other => return Err(bad(format!("`{other}` is no kind of curve"))),
        };
        if curve.peak() > MAX_USERS {
            return Err(bad(format!("its top is above {MAX_USERS} users")));
        }
        match figures.0.first() {
            Some((name, _)) => Err(bad(format!("`{name}` is no figure of it, or stands there twice"))),
            None => Ok(curve),
        }
    }

    /// Days like those of the ClarkNet log, the first a Monday, each lasting `day`, with this many users on average
    /// over a long time: the curve of the capacity paper's Section 7.5.
    ///
    /// # Errors
    /// [`CurveError::Trace`] where there is no day, or too many.
    pub fn daily(mean: f64, day: Seconds, days: usize, seed: u64) -> Result<Self, CurveError> {
        let whole = ClarknetLike::default();
        Ok(Self::Trace(clarknet_like(&ClarknetLike {
            days,
            mean: PerSecond::new(mean),
            step: day / whole.points_per_day as f64,
            seed,
            ..whole
        })?))
    }

    /// How many users there are at a time from the start; not rounded.
    pub fn at(&self, time: Seconds) -> f64 {
        let time_s = time.get();
        match self {
            Self::Constant(users) => *users,
            Self::Ramp { from, to, over } => from + (to - from) * (time_s / over.get()).clamp(0.0, 1.0),
            Self::Sinusoid {
                mean,
                amplitude,
                period,
                start,
            } => {
                let angle = std::f64::consts::TAU * ((time_s + start.get()) / period.get()).fract();
                (mean + amplitude * angle.sin()).max(0.0)
            }
            Self::Steps(steps) => {
                let mut end_s = 0.0;
                let current = steps.iter().find(|(_, length)| {
                    end_s += length.get();
                    time_s < end_s
                });
                current.map_or(0.0, |(users, _)| *users)
            }
            Self::Trace(trace) => trace.rate_at(time).get(),
        }
    }

    /// The most users that there ever are.
    pub fn peak(&self) -> f64 {
        match self {
            Self::Constant(users) => *users,
            Self::Ramp { from, to, .. } => from.max(*to),
            Self::Sinusoid { mean, amplitude, .. } => mean + amplitude,
            Self::Steps(steps) => steps.iter().map(|(users, _)| *users).fold(0.0, f64::max),
            Self::Trace(trace) => trace.peak().get(),
        }
    }

    /// How long the curve lasts by itself; none where it goes on for ever. Of a ramp, until its end is reached.
    pub fn duration(&self) -> Option<Seconds> {
        match self {
            Self::Constant(_) | Self::Sinusoid { .. } => None,
            Self::Ramp { over, .. } => Some(*over),
            Self::Steps(steps) => Some(steps.iter().map(|(_, length)| *length).sum()),
            Self::Trace(trace) => Some(trace.duration()),
        }
    }

    /// The curve as a trace of so many seconds, a value for each step: at the step's middle.
    ///
    /// # Errors
    /// [`TraceError`] where the duration or the step is not positive, or there would be too many values.
    pub fn trace(&self, duration: Seconds, step: Seconds) -> Result<Trace, TraceError> {
        let count = (duration.get() / step.get()).round();
        if count > crate::trace::MAX_VALUES as f64 {
            return Err(TraceError::TooManyValues {
                name: "curve".to_owned(),
                count: count as usize,
            });
        }
        // Of a step that is no length of time, Trace::new says so.
        let values = (0..count as usize).map(|index| PerSecond::new(self.at(step * (index as f64 + 0.5))));
        Trace::new("curve", step, values.collect())
    }
}

/// `name=value` pairs that are taken one by one.
struct Figures<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Figures<'a> {
    fn read(text: &'a str) -> Result<Self, String> {
        let pairs = text.split(',').map(|pair| {
            pair.split_once('=')
                .map(|(name, value)| (name.trim(), value.trim()))
                .ok_or_else(|| format!("`{pair}` is not name=value"))
        });
        pairs.collect::<Result<_, _>>().map(Self)
    }

    fn take(&mut self, name: &str) -> Option<&'a str> {
        let at = self.0.iter().position(|(known, _)| *known == name)?;
        Some(self.0.remove(at).1)
    }

    fn given<T>(
        &mut self,
        name: &str,
        default: Option<T>,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, String> {
        match (self.take(name), default) {
            (Some(value), _) => read(value).map_err(|problem| format!("{name}: {problem}")),
            (None, Some(default)) => Ok(default),
            (None, None) => Err(format!("it has no `{name}`")),
        }
    }

    fn users(&mut self, name: &str, default: Option<f64>) -> Result<f64, String> {
        self.given(name, default, users)
    }

    fn time(&mut self, name: &str, default: Option<Seconds>) -> Result<Seconds, String> {
        self.given(name, default, parse_duration)
    }

    fn whole(&mut self, name: &str, default: u64) -> Result<u64, String> {
        self.given(name, Some(default), |value| {
            value
                .parse()
                .map_err(|_| format!("`{value}` is not a whole number"))
        })
    }
}

fn users(text: &str) -> Result<f64, String> {
    let users = text
        .parse()
        .ok()
        .filter(|users| (0.0..=MAX_USERS).contains(users));
    users.ok_or_else(|| format!("`{text}` is not a number of users, from 0 to {MAX_USERS}"))
}

fn steps(text: &str) -> Result<UserCurve, String> {
    let steps: Vec<(f64, Seconds)> = text
        .split(',')
        .map(|step| {
            let (count, length) = step
                .split_once('/')
                .ok_or_else(|| format!("`{step}` is not USERS/TIME"))?;
            Ok((users(count.trim())?, parse_duration(length.trim())?))
        })
        .collect::<Result<_, String>>()?;
    if steps.len() > MAX_STEPS {
        return Err(format!(
            "more than {MAX_STEPS} steps; put them into a file for trace:"
        ));
    }
    Ok(UserCurve::Steps(steps))
}

/// A length of time that is more than nothing.
fn parse_duration(text: &str) -> Result<Seconds, String> {
    match text.parse()? {
        Seconds::ZERO => Err("give more than 0 seconds".to_owned()),
        length => Ok(length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(curve: &str, seconds: f64) -> f64 {
        UserCurve::parse(curve).unwrap().at(Seconds::new(seconds))
    }

    #[test]
    fn each_kind_has_its_values() {
        assert_eq!((at("100", 0.0), at("constant:users=7", 1e6)), (100.0, 7.0));
        let ramp = "ramp:from=0,to=300,over=5m";
        assert_eq!(
            (at(ramp, 0.0), at(ramp, 150.0), at(ramp, 900.0)),
            (0.0, 150.0, 300.0)
        );
        assert_eq!(at("ramp:from=10,to=0,over=10", 5.0), 5.0);
        let wave = "sinusoid:mean=100,amplitude=80,period=10m";
        for (seconds, users) in [
            (0.0, 100.0),
            (150.0, 180.0),
            (300.0, 100.0),
            (450.0, 20.0),
            (750.0, 180.0),
        ] {
            assert!((at(wave, seconds) - users).abs() < 1e-9, "{seconds}");
        }
        let from_below = "sinusoid:mean=10,amplitude=20,period=60s,start=45s";
        assert_eq!(at(from_below, 0.0), 0.0);
        assert!((at(from_below, 30.0) - 30.0).abs() < 1e-9);
        let steps = "steps:10/1m, 50/500ms";
        for (seconds, users) in [(0.0, 10.0), (59.9, 10.0), (60.0, 50.0), (60.5, 0.0)] {
            assert_eq!(at(steps, seconds), users, "{seconds}");
        }
    }

    #[test]
    fn a_daily_curve_is_clarknet_like_in_the_given_time() {
        let curve = UserCurve::parse("daily:mean=100,day=24m,days=2,seed=3").unwrap();
        assert_eq!(curve.duration(), Some(Seconds::new(2880.0)));
        let (night, noon) = (
            curve.at(Seconds::new(5.5 * 60.0)),
            curve.at(Seconds::new(12.5 * 60.0)),
        );
        assert!(
            noon > 3.0 * night && (100.0..220.0).contains(&noon),
            "{night} {noon}"
        );
        assert_eq!(
            curve,
            UserCurve::daily(100.0, Seconds::new(1440.0), 2, 3).unwrap()
        );
    }

    #[test]
    fn a_file_of_users_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users.txt");
        std::fs::write(&file, "5\n20\n").unwrap();
        let text = format!("trace:file={},step=2s", file.display());
        assert_eq!((at(&text, 1.0), at(&text, 2.0), at(&text, 4.0)), (5.0, 20.0, 0.0));
        assert_eq!(UserCurve::file_of(&text), Some(file.as_path()));
        assert_eq!(UserCurve::file_of("ramp:to=3,over=1m"), None);
        std::fs::write(&file, "5\nmany\n").unwrap();
        let message = UserCurve::parse(&text).unwrap_err().to_string();
        assert!(message.contains("users.txt:2"), "{message}");
    }

    #[test]
    fn peaks_and_durations() {
        for (text, peak, duration) in [
            ("5", 5.0, None),
            ("ramp:from=9,to=3,over=1m", 9.0, Some(60.0)),
            ("sinusoid:mean=5,amplitude=4,period=1h", 9.0, None),
            ("steps:1/1s,8/2s,0/3s", 8.0, Some(6.0)),
        ] {
            let curve = UserCurve::parse(text).unwrap();
            assert_eq!(
                (curve.peak(), curve.duration()),
                (peak, duration.map(Seconds::new)),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_curve_is_refused_with_the_way_to_write_one() {
        for (text, problem) in [
            ("", "`` is not a number of users"),
            ("-1", "`-1` is not a number"),
            ("NaN", "`NaN` is not"),
            ("wave:mean=1", "`wave` is no kind"),
            ("ramp:to=5", "no `over`"),
            ("ramp:to=5,over=5 parsecs", "over: `5 parsecs`"),
            ("ramp:to=5,over=0s", "over: give more than 0 seconds"),
            ("ramp:to=5,over=5m,slope=3", "`slope` is no figure"),
            (
                "ramp:to=5,to=6,over=5m",
                "`to` is no figure of it, or stands there twice",
            ),
            ("sinusoid:mean=1000000,amplitude=1,period=1m", "its top is above"),
            ("daily:mean=1000000,day=10m", "its top is above"),
            ("steps:5", "`5` is not USERS/TIME"),
            ("constant:100", "`100` is not name=value"),
            ("trace:step=1s", "no `file`"),
            ("daily:mean=5,day=1m,days=-1", "days: `-1`"),
        ] {
            let message = UserCurve::parse(text).unwrap_err().to_string();
            assert!(
                message.contains(problem) && message.contains("sinusoid:mean="),
                "{text}: {message}"
            );
        }
        assert!(UserCurve::parse("daily:mean=5,day=1m,days=99999999").is_err());
        assert!(UserCurve::parse("daily:mean=5,day=1m,days=0").is_err());
    }

    #[test]
    fn a_curve_becomes_a_trace() {
        let ramp = UserCurve::parse("ramp:to=100,over=100s").unwrap();
        let trace = ramp.trace(Seconds::new(100.0), Seconds::new(10.0)).unwrap();
        assert_eq!(
            (trace.rates().len(), trace.rate_at(Seconds::ZERO).get()),
            (10, 5.0)
        );
        assert!((trace.mean().get() - 50.0).abs() < 1e-9);
        assert!(ramp.trace(Seconds::new(1e9), Seconds::new(1e-3)).is_err());
        assert!(ramp.trace(Seconds::new(1.0), Seconds::ZERO).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(constant|ramp|sinusoid|steps|daily|)[:=,/.a-z0-9-]{0,40}|\\PC{0,30}") {
            if let Ok(curve) = UserCurve::parse(&text) {
                prop_assert!(curve.peak() <= MAX_USERS);
                for seconds in [0.0, 0.1, 7.0, 1e5, 1e9] {
                    let users = curve.at(Seconds::new(seconds));
                    prop_assert!((0.0..=curve.peak()).contains(&users), "{} at {}", users, seconds);
                }
            }
        }

        #[test]
        fn a_ramp_and_a_wave_stay_within_their_bounds(
            from in 0.0..1e4f64, to in 0.0..1e4f64, seconds in 1.0..1e4f64, time in 0.0..2e4f64
        ) {
            let ramp = UserCurve::parse(&format!("ramp:from={from},to={to},over={seconds}s")).unwrap();
            let users = ramp.at(Seconds::new(time));
            prop_assert!(users >= from.min(to) - 1e-9 && users <= from.max(to) + 1e-9);
            let wave = UserCurve::parse(&format!("sinusoid:mean={from},amplitude={to},period={seconds}s")).unwrap();
            let (now, later) = (wave.at(Seconds::new(time)), wave.at(Seconds::new(time + seconds)));
            prop_assert!((now - later).abs() <= 1e-6 * (1.0 + to));
        }
    }
}
