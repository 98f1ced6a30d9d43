//! The classes of connections as they are now: an operator may give them other SLOs while the server runs.

use super::class::Class;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// For how long what an operator asked for is said in the decisions.
const NEWS_FOR: Duration = Duration::from_secs(5);
/// Sentences that are said at once; of more the newest.
const MAX_NEWS: usize = 8;

/// Classes that all who ask for them share, and that can be replaced while they do.
#[derive(Clone, Debug)]
pub struct ClassTable(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    classes: RwLock<Arc<[Class]>>,
    /// What came of a change that was asked for, and when.
    news: Mutex<VecDeque<(Instant, String)>>,
}

impl From<Vec<Class>> for ClassTable {
    fn from(classes: Vec<Class>) -> Self {
        Self(Arc::new(Shared {
            classes: RwLock::new(classes.into()),
            news: Mutex::default(),
        }))
    }
}

impl ClassTable {
    /// Those that hold now.
    pub fn now(&self) -> Arc<[Class]> {
        // A write is one assignment: who panicked in it left the old ones or the new.
        let classes = self.0.classes.read();
        Arc::clone(&classes.unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on these; with what has changed, in words, a line for each class. Where nothing has, nothing is replaced.
    pub fn replace(&self, classes: Vec<Class>) -> Vec<String> {
        let table = self.0.classes.write();
        let mut table = table.unwrap_or_else(PoisonError::into_inner);
        let changes = changes(&table, &classes);
        if table[..] != classes[..] {
            *table = classes.into();
        }
        changes
    }

    /// Has what came of a change that was asked for said for 5 s; of more than eight sentences the newest eight.
    pub fn tell(&self, what: String) {
        let mut news = self.0.news.lock().unwrap_or_else(PoisonError::into_inner);
        if news.len() == MAX_NEWS {
            news.pop_front();
        }
        news.push_back((Instant::now(), what));
    }

    /// What is to be said at a time, the oldest first.
    pub(super) fn news(&self, now: Instant) -> Vec<String> {
        let mut news = self.0.news.lock().unwrap_or_else(PoisonError::into_inner);
        news.retain(|(told, _)| now.saturating_duration_since(*told) < NEWS_FOR);
        news.iter().map(|(_, what)| what.clone()).collect()
    }
}

fn changes(before: &[Class], after: &[Class]) -> Vec<String> {
    let of = |all: &[Class], name: &str| all.iter().find(|class| class.name == name).cloned();
    let gone = before.iter().filter(|class| of(after, &class.name).is_none());
    let mut changes: Vec<String> = gone
        .map(|class| format!("class {}: no longer one", class.name))
        .collect();
    for class in after {
        match of(before, &class.name) {
            None => changes.push(format!("class {}: new, {}", class.name, slos(class))),
            Some(old) if old != *class => {
                let (was, is) = (slos(&old), slos(class));
                let of_slos = (was != is).then(|| format!("{is} (was {was})"));
                let of_others = Some(others(&old, class)).filter(|said| !said.is_empty());
                let all: Vec<String> = of_slos.into_iter().chain(of_others).collect();
                changes.push(format!("class {}: {}", class.name, all.join("; ")));
            }
            Some(_) => {}
        }
    }
    if changes.is_empty() && before != after {
        changes
            .push("classes: another order, and a connection is in the first that has its client".to_owned());
    }
    changes
}

/// What has changed of a class beside its percentiles.
fn others(old: &Class, new: &Class) -> String {
    let clients = |class: &Class| {
        class
            .clients
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let disengagement = |class: &Class| {
        class.disengagement.as_ref().map_or("none".to_owned(), |slo| {
            format!("{} by {:?}", slo.at_most, slo.points)
        })
    };
    let all = [
        ("clients", clients(old), clients(new)),
        ("weight", old.weight.to_string(), new.weight.to_string()),
        ("disengagement", disengagement(old), disengagement(new)),
    ];
    let changed = all.iter().filter(|(_, old, new)| old != new);
    let each = changed.map(|(what, old, new)| format!("{what} {new} (was {old})"));
    each.collect::<Vec<_>>().join(", ")
}

fn slos(class: &Class) -> String {
    let all = [
        ("P95", class.p95_ms),
        ("P99", class.p99_ms),
        ("P99.9", class.p999_ms),
    ];
    let given = all
        .iter()
        .filter_map(|(name, ms)| Some(format!("{name} {} ms", (*ms)?)));
    let given: Vec<String> = given.collect();
    match given.is_empty() {
        true => "no SLO of a percentile".to_owned(),
        false => given.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, p99_ms: f64) -> Class {
        Class {
            name: name.to_owned(),
            clients: vec!["unix".parse().unwrap()],
            weight: 1.0,
            p95_ms: None,
            p99_ms: Some(p99_ms),
            p999_ms: None,
            disengagement: None,
        }
    }

    #[test]
    fn what_is_told_is_said_for_a_while_and_is_bounded() {
        let table = ClassTable::from(Vec::new());
        let shared = table.clone();
        (0..MAX_NEWS + 2).for_each(|number| shared.tell(number.to_string()));
        let now = Instant::now();
        let news = table.news(now);
        assert_eq!((news.len(), news[0].as_str()), (MAX_NEWS, "2"));
        assert_eq!(table.news(now + NEWS_FOR), [""; 0]);
        assert_eq!(table.news(now), [""; 0]);
    }

    #[test]
    fn what_is_replaced_holds_for_all_who_share_it_and_is_said() {
        let table = ClassTable::from(vec![class("gold", 40.0), class("old", 9.0)]);
        let (shared, first) = (table.clone(), table.now());
        assert_eq!(table.replace(first.to_vec()), [""; 0]);
        assert!(Arc::ptr_eq(&first, &table.now()), "nothing has changed");
        let said = table.replace(vec![class("gold", 30.0), class("new", 5.0)]);
        assert_eq!(
            said,
            [
                "class old: no longer one",
                "class gold: P99 30 ms (was P99 40 ms)",
                "class new: new, P99 5 ms"
            ]
        );
        assert_eq!(shared.now()[0].p99_ms, Some(30.0));
        let heavier = Class {
            weight: 2.0,
            ..class("gold", 30.0)
        };
        let said = table.replace(vec![heavier.clone(), class("new", 5.0)]);
        assert_eq!(said, ["class gold: weight 2 (was 1)"]);
        let said = table.replace(vec![class("gold", 20.0), class("new", 5.0)]);
        assert_eq!(said, ["class gold: P99 20 ms (was P99 30 ms); weight 1 (was 2)"]);
        table.replace(vec![heavier.clone(), class("new", 5.0)]);
        let said = table.replace(vec![class("new", 5.0), heavier]);
        assert_eq!(said.len(), 1, "{said:?}");
    }
}
