//! What a run that estimates a capacity says of it: not a number alone, but what kind of number, of what, how sure and how old.

use headroom_units::{Fact, Part, PerSecond, Seconds, Sensor};
use serde::{Deserialize, Serialize};

/// What an estimate says. Its own words are the same in the view, in tables and in reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacitySummary {
    /// `exact`, `about`, `lower-bound` or `unknown`.
    pub kind: String,
    /// The number, whatever it is; `None` where it is unknown.
    pub per_s: Option<PerSecond>,
    /// What is counted: `connections` or `requests`.
    pub unit: String,
    /// What it is within; `None` where the estimator has no interval, or only a lower bound is known.
    pub interval_per_s: Option<[PerSecond; 2]>,
    /// How long before that was last observed from which it follows; `None` where the estimator does not tell.
    pub age_s: Option<Seconds>,
    /// What it rests on that nothing has checked: it holds only if this does.
    pub assumes: Option<String>,
    /// The rule that gave it.
    pub rule: String,
    /// The same in words, with its numbers.
    pub why: String,
}

/// The rules of an estimate with which all is as usual: a line says any other.
const USUAL: [&str; 2] = ["busy-time", "utilisation"];

/// The rules of a lower bound of a server that is in difficulty: that its limit was not met would not be true.
const IN_DIFFICULTY: [&str; 3] = ["none-accepted", "queue-too-short", "held"];

impl CapacitySummary {
    /// The same as facts of the part that the estimate is of, with its number.
    pub fn on(&self, part: Part) -> Part {
        let numbers = [
            ("low_per_s", self.interval_per_s.map(|[low, _]| low.get())),
            ("high_per_s", self.interval_per_s.map(|[_, high]| high.get())),
            ("age_s", self.age_s.map(Seconds::get)),
        ];
        let part = part
            .with(Sensor::Capacity, self.per_s.map(PerSecond::get))
            .fact("capacity", self.in_short())
            .fact("kind", self.kind.as_str())
            .fact("unit", self.unit.as_str())
            .fact("why", format!("{}: {}", self.rule, self.why));
        let known = numbers.into_iter().filter_map(|(name, number)| {
            let number = number.filter(|number| number.is_finite())?;
            Some((name, Fact::from(number)))
        });
        let assumes = self.assumes.as_deref().map(|assumes| ("assumes", assumes.into()));
        known
            .chain(assumes)
            .fold(part, |part, (name, fact)| part.fact(name, fact))
    }

    /// What a part's facts say; `None` of a part that has none of them.
    pub(crate) fn of(part: &Part) -> Option<Self> {
        let words = |name: &str| match part.facts.get(name) {
            Some(Fact::Words(words)) => Some(words.clone()),
            _ => None,
        };
        let number = |name: &str| match part.facts.get(name) {
            Some(Fact::Number(number)) => Some(*number),
            // JSON has one kind of number.
            Some(Fact::Count(count)) => Some(*count as f64),
            _ => None,
        };
        let both = words("why")?;
        let (rule, why) = both.split_once(": ").unwrap_or((&both, ""));
        let interval = number("low_per_s").zip(number("high_per_s"));
        Some(Self {
            kind: words("kind")?,
            per_s: part.get(Sensor::Capacity).map(PerSecond::new),
            unit: words("unit")?,
            interval_per_s: interval.map(|(low, high)| [low, high].map(PerSecond::new)),
            age_s: number("age_s").map(Seconds::new),
            assumes: words("assumes"),
            rule: rule.to_owned(),
            why: why.to_owned(),
        })
    }

    /// For a line: `at least 49.1 connections/s`, `about 77.6 connections/s (70.2 to 85.0), 20 s ago [stale]`, `unknown
    /// [none-accepted]`.
    pub fn in_short(&self) -> String {
        self.words(&format!(" {}/s", self.unit))
    }

    /// The same without the unit, where that stands above it.
    pub fn without_unit(&self) -> String {
        self.words("")
    }

    fn words(&self, unit: &str) -> String {
        let rule = match USUAL.contains(&self.rule.as_str()) {
            true => String::new(),
            false => format!(" [{}]", self.rule),
        };
        let Some(number) = self.number() else {
            return format!("unknown{rule}");
        };
        let assumes = self.assumes.as_ref();
        let assumes = assumes.map_or_else(String::new, |assumes| format!("if {assumes}: "));
        let interval = self.interval_per_s.map_or_else(String::new, |[low, high]| {
            format!(" ({:.1} to {:.1})", low.get(), high.get())
        });
        let ago = self.ago().map_or_else(String::new, |ago| format!(", {ago}"));
        // How a number came about is told of ours alone: the published ones have one rule a step.
        let rule = if self.age_s.is_some() { rule } else { String::new() };
        format!("{assumes}{number}{unit}{interval}{ago}{rule}")
    }

    /// `at least 49.1`; `None` where nothing is known.
    fn number(&self) -> Option<String> {
        let value = self.per_s?.get();
        match self.kind.as_str() {
            "lower-bound" => Some(format!("at least {value:.1}")),
            // What it rests on says already that it may be another.
            "about" if self.assumes.is_none() || self.interval_per_s.is_some() => {
                Some(format!("about {value:.1}"))
            }
            "exact" | "about" => Some(format!("{value:.1}")),
            _ => None,
        }
    }

    fn ago(&self) -> Option<String> {
        let age_s = self.age_s.map(Seconds::get).filter(|age_s| *age_s >= 0.95)?;
        Some(format!("{age_s:.0} s ago"))
    }

    /// For a sentence: `at least 49.1 connections a second; its limit was not met`. `None` where nothing is known.
    pub(crate) fn in_a_sentence(&self) -> Option<String> {
        let unit = format!("{} a second", self.unit);
        let mut text = format!("{} {unit}", self.number()?);
        if let Some([low, high]) = self.interval_per_s {
            text.push_str(&format!(" ({:.1} to {:.1})", low.get(), high.get()));
        }
        if let Some(assumes) = &self.assumes {
            text.push_str(&format!(" if {assumes}, which was not checked"));
        }
        match (self.kind.as_str(), self.ago()) {
            ("lower-bound", _) if IN_DIFFICULTY.contains(&self.rule.as_str()) => {
                text.push_str(&format!("; {}", self.why));
            }
            ("lower-bound", _) => text.push_str("; its limit was not met"),
            (_, Some(ago)) => text.push_str(&format!(", measured {ago}")),
            _ => {}
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_units::Role;

    fn summary(kind: &str, per_s: f64) -> CapacitySummary {
        CapacitySummary {
            kind: kind.to_owned(),
            per_s: Some(PerSecond::new(per_s)),
            unit: "connections".to_owned(),
            interval_per_s: None,
            age_s: Some(Seconds::ZERO),
            assumes: None,
            rule: "busy-time".to_owned(),
            why: "as ever: so".to_owned(),
        }
    }

    #[test]
    fn a_number_is_never_without_its_kind_and_unit() {
        let bound = CapacitySummary {
            rule: "served".to_owned(),
            ..summary("lower-bound", 49.148)
        };
        assert_eq!(bound.in_short(), "at least 49.1 connections/s [served]");
        assert_eq!(
            bound.in_a_sentence().unwrap(),
            "at least 49.1 connections a second; its limit was not met"
        );
        let full = CapacitySummary {
            rule: "none-accepted".to_owned(),
            why: "12 wait, none accepted for 10 s".to_owned(),
            ..summary("lower-bound", 0.5)
        };
        assert_eq!(
            full.in_a_sentence().unwrap(),
            "at least 0.5 connections a second; 12 wait, none accepted for 10 s"
        );
        let stale = CapacitySummary {
            interval_per_s: Some([70.2, 85.0].map(PerSecond::new)),
            age_s: Some(Seconds::new(20.0)),
            rule: "stale".to_owned(),
            ..summary("about", 77.6)
        };
        assert_eq!(
            stale.in_short(),
            "about 77.6 connections/s (70.2 to 85.0), 20 s ago [stale]"
        );
        assert_eq!(
            stale.in_a_sentence().unwrap(),
            "about 77.6 connections a second (70.2 to 85.0), measured 20 s ago"
        );
        assert_eq!(summary("exact", 80.0).without_unit(), "80.0");
        let by_cpu = CapacitySummary {
            age_s: None,
            assumes: Some("CPU is the bottleneck".to_owned()),
            rule: "utilisation".to_owned(),
            ..summary("about", 542.9)
        };
        assert_eq!(by_cpu.without_unit(), "if CPU is the bottleneck: 542.9");
        let unknown = CapacitySummary {
            per_s: None,
            age_s: None,
            rule: "none-accepted".to_owned(),
            ..summary("unknown", 0.0)
        };
        assert_eq!(unknown.in_short(), "unknown [none-accepted]");
        assert_eq!(unknown.in_a_sentence(), None);
    }

    #[test]
    fn what_is_written_on_a_part_is_read_from_it() {
        let whole = CapacitySummary {
            interval_per_s: Some([70.0, 85.5].map(PerSecond::new)),
            age_s: Some(Seconds::new(3.0)),
            assumes: Some("no other port is used".to_owned()),
            ..summary("about", 77.5)
        };
        for one in [whole, summary("lower-bound", 12.0)] {
            let part = one.on(Part::new("port 80", Role::Cluster));
            let kept: Part = serde_json::from_str(&serde_json::to_string(&part).unwrap()).unwrap();
            assert_eq!(CapacitySummary::of(&kept), Some(one));
        }
        assert_eq!(CapacitySummary::of(&Part::new("cluster", Role::Cluster)), None);
    }
}
