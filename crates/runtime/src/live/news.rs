//! What happened in a period, for people: parts that changed their state, gateways that are lost, and another number of servers.

use super::tick::Tick;
use crate::oncall::REST;
use headroom_control::resize::PowerState;
use headroom_units::{Lever, Part, Role, Seconds, Sensor, Setting, Spread};
use std::collections::BTreeMap;

/// Over how long it is looked whether a class of connections keeps its SLOs, and the share of that time above which it misses them and below
/// which it keeps them again: from period to period it may do both.
const CLASS_OVER: Seconds = Seconds::new(5.0);
const LONGEST_PERIOD: Seconds = Seconds::new(1.0);
const CLASS_MISSES: f64 = 0.5;
const CLASS_KEEPS: f64 = 0.1;

/// So long without a connection, while there are others, a class has clients that are not named as it thinks.
const CLASS_EMPTY: Seconds = Seconds::new(30.0);

/// Tells the news of each period: at most one a part, and one a lever of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Newsroom {
    parts: BTreeMap<(Role, String), Option<String>>,
    classes: BTreeMap<String, ClassNews>,
    decided: Setting,
}

/// Of a class: how much of the last seconds it missed an SLO, whether that was said, when it was looked at, for how long it was without a
/// connection while others had some, and whether that was said.
#[derive(Clone, Copy, Debug, Default)]
struct ClassNews {
    missed: f64,
    is_said: bool,
    at: Option<Seconds>,
    empty: Seconds,
    is_empty_said: bool,
}

impl ClassNews {
    /// What is new of a class at a time, beside so many connections of others.
    fn read(&mut self, part: &Part, beside: f64, at: Seconds) -> Option<String> {
        let before = self.at;
        self.lacks(part, beside, at)
            .or_else(|| self.misses(part, before, at))
    }

    /// That it has no connection, once.
    fn lacks(&mut self, part: &Part, beside: f64, at: Seconds) -> Option<String> {
        let before = self.at.replace(at);
        let is_amiss = part.get(Sensor::Connections) == Some(0.0) && beside > 0.0 && part.name != REST;
        let length = before.map_or(Seconds::ZERO, |before| at - before);
        self.empty = if is_amiss {
            self.empty + length
        } else {
            Seconds::ZERO
        };
        if self.empty < CLASS_EMPTY || std::mem::replace(&mut self.is_empty_said, true) {
            return None;
        }
        Some(format!(
            "class {}: no connection is in it, and {beside} are in others: /connections of the admin port has each one's address and user \
             as seen; no user is seen of a client that asked for TLS",
            part.name
        ))
    }

    fn misses(&mut self, part: &Part, before: Option<Seconds>, at: Seconds) -> Option<String> {
        let misses = match part.state.as_deref()? {
            "kept" => 0.0,
            "missed" => 1.0,
            _ => return None,
        };
        // What was not seen of it for a while was neither.
        let length = before.map_or(Seconds::ZERO, |before| (at - before).max(Seconds::ZERO));
        let length = length.min(LONGEST_PERIOD);
        self.missed += (1.0 - (-(length / CLASS_OVER)).exp()) * (misses - self.missed);
        let is_news = match self.is_said {
            false => self.missed > CLASS_MISSES,
            true => self.missed < CLASS_KEEPS,
        };
        if !is_news {
            return None;
        }
        self.is_said = !self.is_said;
        let what = match self.is_said {
            true => "SLOs missed for seconds",
            false => "SLOs kept again",
        };
        Some(format!(
            "class {}: {what}: {}",
            part.name,
            of_class(part, " an SLO by their last queries; all together: ")
        ))
    }
}

/// How a class of connections is served: how many of them are over an SLO, to which each is held alone, and after these words the figures of all
/// of them together: `3 of 4 connections over; all P99 52.0 of 40.0 ms, 120.0/s`.
pub(super) fn of_class(part: &Part, all_together: &str) -> String {
    let tails = [
        ("P95", Sensor::LatencyP95, Sensor::TargetP95),
        ("P99", Sensor::LatencyP99, Sensor::TargetP99),
        ("P99.9", Sensor::LatencyP999, Sensor::TargetP999),
    ];
    let tail = |(name, latency, target): (&str, Sensor, Sensor)| {
        let (target_ms, latency_ms) = (part.get(target)? * 1e3, part.get(latency)? * 1e3);
        // A target of microseconds is not to look like none.
        let digits = if target_ms < 1.0 { 3 } else { 1 };
        Some(format!("{name} {latency_ms:.digits$} of {target_ms:.digits$} ms"))
    };
    let mut together: Vec<String> = tails.into_iter().filter_map(tail).collect();
    if together.is_empty() {
        let p99 = part.get(Sensor::LatencyP99);
        together.extend(p99.map(|p99| format!("P99 {:.1} ms", p99 * 1e3)));
    }
    together.extend(part.get(Sensor::ServiceRate).map(|rate| format!("{rate:.1}/s")));
    let connections = part.get(Sensor::Connections).unwrap_or(0.0);
    let (of_each, then) = match part.get(Sensor::MissedSlo) {
        Some(missed) => (
            format!("{missed} of {connections} connections over"),
            all_together,
        ),
        None => (format!("{connections} connections"), ", "),
    };
    match together.is_empty() {
        true => of_each,
        false => format!("{of_each}{then}{}", together.join(", ")),
    }
}

impl Newsroom {
    /// The news of the next period, a line each.
    pub fn read(&mut self, tick: &Tick) -> Vec<String> {
        let mut news = Vec::new();
        let classes = || tick.parts.iter().filter(|part| part.role == Role::Class);
        let connections = |part: &Part| part.get(Sensor::Connections).unwrap_or(0.0);
        let all: f64 = classes().map(connections).sum();
        for part in classes() {
            let class = self.classes.entry(part.name.clone()).or_default();
            news.extend(class.read(part, all - connections(part), tick.at));
        }
        // What requests of a size there are is in the figures; where nothing is told of them is no recovery of anything.
        let has_state = |part: &&Part| !matches!(part.role, Role::Class | Role::Size | Role::Importance);
        for part in tick.parts.iter().filter(has_state) {
            let before = self
                .parts
                .insert((part.role, part.name.clone()), part.state.clone());
            news.extend(change(part, before.as_ref()));
        }
        // A part that is only there while something is wrong with it.
        let gone = |(role, name): &(Role, String)| {
            !tick
                .parts
                .iter()
                .any(|part| (part.role, &part.name) == (*role, name))
        };
        let gone: Vec<(Role, String)> = self.parts.keys().filter(|key| gone(key)).cloned().collect();
        for key in gone {
            let last = self.parts.remove(&key).flatten();
            // That one was taken away was said when it was.
            if last.as_deref() != Some(Part::LEFT) {
                news.push(format!("{} can be relied on again", key.1));
            }
        }
        for lever in Lever::ALL {
            let decided = tick.decision.setting.get(lever);
            let before = self.decided.get(lever);
            if lever.info().spread != Spread::Cluster || decided == before {
                continue;
            }
            self.decided = self.decided.with(lever, decided);
            let info = lever.info();
            let wanted = decided.map_or("-".to_owned(), |value| info.read(value));
            let before = before.map_or(String::new(), |value| format!(", {} before", info.read(value)));
            let reason = tick.decision.reason_of(lever);
            let why = reason.map_or(String::new(), |reason| {
                format!(": {}: {}", reason.rule, reason.text)
            });
            news.push(format!("{}: {wanted} wanted{before}{why}", info.name));
        }
        news
    }
}

/// The states of a server that is switched and has not failed.
const AS_COMMANDED: [PowerState; 8] = [
    PowerState::Off,
    PowerState::Booting,
    PowerState::Warming,
    PowerState::Serving,
    PowerState::Leaving,
    PowerState::Draining,
    PowerState::Stopping,
    PowerState::Maintenance,
];

/// Why a part is in its state, of what is wrong with it: a server that comes or goes as commanded does so whatever else is.
fn why(part: &Part) -> String {
    let is_commanded = |state: &str| AS_COMMANDED.iter().any(|one| state == one.name());
    let is_told = part.role == Role::Node && part.state.as_deref().is_some_and(is_commanded);
    match part.trouble.is_empty() || is_told {
        true => String::new(),
        false => format!(": {}", part.trouble.join("; ")),
    }
}

/// What is new of a part; `before` is its state in the period before, where it was there.
fn change(part: &Part, before: Option<&Option<String>>) -> Option<String> {
    let why = why(part);
    match (before, &part.state) {
        (Some(Some(before)), Some(now)) if before != now => {
            Some(format!("{}: {before} \u{2192} {now}{why}", part.name))
        }
        (None, Some(state)) if state == Part::JOINING => Some(format!("{}: {state}{why}", part.name)),
        (None, _) if part.role == Role::Gateway && !part.trouble.is_empty() => {
            Some(format!("{} cannot be relied on{why}", part.name))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_control::{Decision, Reason};

    #[test]
    fn a_switch_of_servers_has_the_reason_of_the_law_of_servers() {
        let of = |rule, lever| Reason::new(rule, "why".to_owned(), &[]).of(&[lever]);
        let mut decision = Decision::of(Setting::default().with(Lever::Servers, Some(2.0)));
        decision.reasons = vec![
            of("scale-down-power", Lever::Cap),
            of("scale-out", Lever::Servers),
        ];
        let mut newsroom = Newsroom::default();
        let news = newsroom.read(&Tick {
            decision: decision.clone(),
            ..Tick::default()
        });
        assert_eq!(news, ["servers: 2 wanted: scale-out: why"]);
        // Between two decisions of that law there is nothing to explain.
        decision.reasons.truncate(1);
        let news = newsroom.read(&Tick {
            decision,
            ..Tick::default()
        });
        assert_eq!(news, [""; 0]);
    }

    #[test]
    fn a_gateway_that_dies_joins_and_leaves_is_news_each_time_and_once() {
        let mut newsroom = Newsroom::default();
        let mut read = |state: Option<(&str, &str)>| {
            let part = state.map(|(state, trouble)| Part {
                trouble: Some(trouble)
                    .filter(|trouble| !trouble.is_empty())
                    .map(str::to_owned)
                    .into_iter()
                    .collect(),
                ..Part::new("g2", Role::Gateway).in_state(state)
            });
            newsroom.read(&Tick {
                parts: part.into_iter().collect(),
                ..Tick::default()
            })
        };
        assert_eq!(read(Some(("connected", ""))), [""; 0]);
        let said = read(Some(("dead", "out of the sum")));
        assert_eq!(said, ["g2: connected \u{2192} dead: out of the sum"]);
        assert_eq!(read(Some(("dead", "out of the sum"))), [""; 0]);
        assert_eq!(read(Some(("joining", ""))), ["g2: dead \u{2192} joining"]);
        assert_eq!(read(Some(("connected", ""))), ["g2: joining \u{2192} connected"]);
        assert_eq!(read(Some((Part::LEFT, ""))), ["g2: connected \u{2192} left"]);
        assert_eq!(read(None), [""; 0]);
        assert_eq!(read(Some((Part::JOINING, ""))), ["g2: joining"]);
    }

    #[test]
    fn a_class_that_misses_its_slo_now_and_then_is_no_news_and_one_that_does_for_seconds_is() {
        let mut newsroom = Newsroom::default();
        let mut at_s = 0.0;
        let mut read = |state: &str| {
            at_s += 0.25;
            let gold = Part::new("gold", Role::Class)
                .with(Sensor::LatencyP99, Some(0.052))
                .with(Sensor::TargetP99, Some(0.04))
                .with(Sensor::Connections, Some(4.0))
                .with(Sensor::MissedSlo, Some(3.0))
                .with(Sensor::ServiceRate, Some(120.0));
            let tick = Tick {
                at: Seconds::new(at_s),
                parts: vec![
                    gold.in_state(state),
                    Part::new("mariadbd", Role::Node).in_state("on"),
                ],
                ..Tick::default()
            };
            newsroom.read(&tick)
        };
        for _ in 0..40 {
            assert_eq!(read("kept"), [""; 0]);
            assert_eq!(read("missed"), [""; 0]);
            assert_eq!(read("kept"), [""; 0]);
        }
        let missed: Vec<String> = (0..60).flat_map(|_| read("missed")).collect();
        assert_eq!(
            missed,
            [
                "class gold: SLOs missed for seconds: 3 of 4 connections over an SLO by their last queries; all together: P99 52.0 of 40.0 ms, \
                 120.0/s"
            ]
        );
        assert_eq!((0..400).flat_map(|_| read("no queries")).count(), 0);
        let kept: Vec<String> = (0..60).flat_map(|_| read("kept")).collect();
        assert_eq!(kept.len(), 1);
        assert!(
            kept[0].starts_with("class gold: SLOs kept again: 3 of 4 connections over an SLO"),
            "{kept:?}"
        );
    }

    #[test]
    fn a_class_that_nobody_is_in_is_news_once_where_there_are_others() {
        let mut newsroom = Newsroom::default();
        let mut at_s = 0.0;
        let mut read = |gold: f64, rest: f64| {
            at_s += 1.0;
            let of = |name: &str, connections| {
                Part::new(name, Role::Class).with(Sensor::Connections, Some(connections))
            };
            newsroom.read(&Tick {
                at: Seconds::new(at_s),
                parts: vec![of("gold", gold), of("rest", rest)],
                ..Tick::default()
            })
        };
        let mut count = |gold, rest| (0..60).flat_map(|_| read(gold, rest)).collect::<Vec<_>>();
        // Before anybody came, and while nobody but it is there, nothing is amiss.
        assert_eq!(count(0.0, 0.0), [""; 0]);
        assert_eq!(count(3.0, 0.0), [""; 0]);
        let said = count(0.0, 64.0);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].starts_with("class gold: no connection is in it, and 64 are in others"),
            "{said:?}"
        );
        assert_eq!(count(0.0, 64.0), [""; 0]);
    }

    #[test]
    fn a_change_of_state_and_a_balancer_that_is_lost_are_news() {
        let part = Part::new("web2", Role::Node).in_state("failed (boot)");
        let part = Part {
            trouble: vec!["no answer".to_owned()],
            ..part
        };
        let booting = Some("booting".to_owned());
        assert_eq!(
            change(&part, Some(&booting)).unwrap(),
            "web2: booting \u{2192} failed (boot): no answer"
        );
        // It serves although its last check was not answered, say: that is no reason to.
        for state in ["warming", "serving", "off", "stopping"] {
            let part = part.clone().in_state(state);
            assert_eq!(
                change(&part, Some(&booting)).unwrap(),
                format!("web2: booting \u{2192} {state}")
            );
        }
        // What is wrong with one that stays as it is was logged when it began.
        assert_eq!(change(&part, Some(&part.state.clone())), None);
        let gateway = Part {
            role: Role::Gateway,
            ..part
        };
        assert_eq!(
            change(&gateway, None).unwrap(),
            "web2 cannot be relied on: no answer"
        );
    }
}
