//! What happened in a period, for people: parts that changed their state, gateways that are lost, and another number of servers.

use super::tick::Tick;
use headroom_units::{Lever, Part, Role, Setting, Spread};
use std::collections::BTreeMap;

/// Tells the news of each period: at most one a part, and one a lever of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Newsroom {
    parts: BTreeMap<(Role, String), (Option<String>, bool)>,
    decided: Setting,
}

impl Newsroom {
    /// The news of the next period, a line each.
    pub fn read(&mut self, tick: &Tick) -> Vec<String> {
        let mut news = Vec::new();
        for part in &tick.parts {
            let now = (part.state.clone(), !part.trouble.is_empty());
            let before = self.parts.insert((part.role, part.name.clone()), now);
            news.extend(before.and_then(|(state, troubled)| change(part, state.as_ref(), troubled)));
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
            let read = |value: Option<f64>| value.map_or("-".to_owned(), |value| lever.info().read(value));
            let reason = tick.decision.reasons.first();
            let why = reason.map_or(String::new(), |reason| {
                format!(": {}: {}", reason.rule, reason.text)
            });
            news.push(format!("{} wanted, {} before{why}", read(decided), read(before)));
        }
        news
    }
}

/// What is new of a part.
fn change(part: &Part, before: Option<&String>, troubled: bool) -> Option<String> {
    let why = match part.trouble.is_empty() {
        true => String::new(),
        false => format!(": {}", part.trouble.join("; ")),
    };
    match (before, &part.state) {
        (Some(before), Some(now)) if before != now => {
            Some(format!("{}: {before} \u{2192} {now}{why}", part.name))
        }
        _ if !troubled && !part.trouble.is_empty() => Some(format!("{}{why}", part.name)),
        _ => None,
    }
}
