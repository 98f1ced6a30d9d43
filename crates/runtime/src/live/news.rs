//! What happened in a period, for people: parts that changed their state, gateways that are lost, and another number of servers.

use super::tick::Tick;
use headroom_units::{Lever, Part, Role, Setting, Spread};
use std::collections::BTreeMap;

/// Tells the news of each period: at most one a part, and one a lever of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Newsroom {
    parts: BTreeMap<(Role, String), Option<String>>,
    decided: Setting,
}

impl Newsroom {
    /// The news of the next period, a line each.
    pub fn read(&mut self, tick: &Tick) -> Vec<String> {
        let mut news = Vec::new();
        // A class keeps and misses its SLOs from period to period: it is a figure, and no news.
        for part in tick.parts.iter().filter(|part| part.role != Role::Class) {
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
            self.parts.remove(&key);
            news.push(format!("{} can be relied on again", key.1));
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

/// What is new of a part; `before` is its state in the period before, where it was there.
fn change(part: &Part, before: Option<&Option<String>>) -> Option<String> {
    let why = match part.trouble.is_empty() {
        true => String::new(),
        false => format!(": {}", part.trouble.join("; ")),
    };
    match (before, &part.state) {
        (Some(Some(before)), Some(now)) if before != now => {
            Some(format!("{}: {before} \u{2192} {now}{why}", part.name))
        }
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
    fn a_class_that_misses_its_slo_now_and_then_is_no_news() {
        let tick = |state: &str| Tick {
            parts: vec![
                Part::new("gold", Role::Class).in_state(state),
                Part::new("mariadbd", Role::Node).in_state(state),
            ],
            ..Tick::default()
        };
        let mut newsroom = Newsroom::default();
        assert_eq!(newsroom.read(&tick("kept")), [""; 0]);
        assert_eq!(newsroom.read(&tick("missed")), ["mariadbd: kept \u{2192} missed"]);
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
