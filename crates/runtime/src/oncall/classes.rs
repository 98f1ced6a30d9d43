//! Classes of connections: which connection belongs to which, and how each kept its SLOs.

use super::class::Class;
use super::class_table::ClassTable;
use headroom_control::ClassObservation;
use headroom_control::oncall::policy::{Connection, Kept};
use headroom_control::oncall::tail::TailSlo;
use headroom_oncall::ConnectionTotals;
use headroom_oncall::layout::KEPT;
use headroom_units::{Ratio, Seconds};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The class of connections that no other has.
pub const REST: &str = "rest";
/// Latencies that a connection must have before its variation says anything.
const MIN_LATENCIES: usize = 16;

/// The classes of a server, and what its connections had done before.
#[derive(Debug)]
pub struct Classes {
    table: ClassTable,
    /// Those of the last observation.
    classes: Arc<[Class]>,
    before: HashMap<u64, Before>,
    budgets: Budgets,
}

/// A connection at the last observation.
#[derive(Clone, Copy, Debug)]
struct Before {
    queries: u64,
    failures: u64,
    latency: Seconds,
    /// When it had a query last.
    asked: Instant,
}

/// After so long without a query a connection's last ones say nothing of how it is served.
const STALE: Duration = Duration::from_secs(5);

/// The name of the class that a connection is in.
pub(super) fn class_of<'a>(classes: &'a [Class], connection: &ConnectionTotals) -> &'a str {
    place_of(classes, connection).map_or(REST, |at| &classes[at].name)
}

/// The first class that holds a connection; `None` where it is one of the rest.
fn place_of(classes: &[Class], connection: &ConnectionTotals) -> Option<usize> {
    let holds = |class: &Class| class.clients.iter().any(|clients| clients.hold(connection));
    classes.iter().position(holds)
}

/// A connection's name: its place in the region and how many had that before.
pub(super) fn id(connection: &ConnectionTotals) -> u64 {
    (connection.place.0 as u64) << 32 | u64::from(connection.place.1)
}

impl Classes {
    /// These, the first that holds a connection first.
    pub fn new(classes: impl Into<ClassTable>) -> Self {
        let table = classes.into();
        Self {
            classes: table.now(),
            table,
            before: HashMap::new(),
            budgets: Budgets::default(),
        }
    }

    /// Whether any connection can be another class than all others.
    pub fn is_any(&self) -> bool {
        !self.table.now().is_empty()
    }

    /// What each connection did since the last call, and each class.
    pub fn observe(&mut self, connections: &[ConnectionTotals]) -> (Vec<Connection>, Vec<ClassObservation>) {
        let now = self.table.now();
        if !Arc::ptr_eq(&now, &self.classes) {
            (self.classes, self.budgets) = (now, Budgets::default());
        }
        let mut sums: Vec<(ClassObservation, Vec<Seconds>)> = self
            .classes
            .iter()
            .map(|class| (class.name.as_str(), class.targets()))
            .chain([(REST, [None; 3])])
            .map(|(name, targets)| {
                let of = ClassObservation {
                    name: name.to_owned(),
                    targets,
                    ..ClassObservation::default()
                };
                (of, Vec::new())
            })
            .collect();
        let before = std::mem::take(&mut self.before);
        let at_now = Instant::now();
        let mut each = Vec::with_capacity(connections.len());
        for connection in connections {
            let at = place_of(&self.classes, connection);
            let id = id(connection);
            let then = before.get(&id).copied().unwrap_or(Before {
                queries: 0,
                failures: 0,
                latency: Seconds::ZERO,
                asked: at_now,
            });
            let queries = connection.queries.saturating_sub(then.queries);
            let has_asked = queries > 0 || connection.unanswered.is_some();
            let failures = connection.failures.unwrap_or(0);
            let now = Before {
                queries: connection.queries,
                failures,
                latency: connection.latency,
                asked: if has_asked { at_now } else { then.asked },
            };
            self.before.insert(id, now);
            let failures = failures.saturating_sub(then.failures);
            let timed = queries.saturating_sub(failures);
            let is_stale = at_now.saturating_duration_since(now.asked) > STALE;
            let cv = variation(&connection.recent);
            // It has its SLOs all the same, for a policy to let it go first.
            let (recent, cv_of) = match is_stale {
                true => (&[][..], None),
                false => (connection.recent.as_slice(), cv),
            };
            let mut slos = at.map_or_else(Vec::new, |at| {
                self.budgets.kept((at, &self.classes[at]), recent, cv_of)
            });
            let (sum, latencies) = &mut sums[at.unwrap_or(self.classes.len())];
            sum.connections += 1;
            sum.queries += queries;
            let longest = at.and_then(|at| self.classes[at].longest());
            let is_stalled = queries == 0
                && longest
                    .zip(connection.unanswered)
                    .is_some_and(|(longest, unanswered)| unanswered > longest);
            if is_stalled {
                slos.iter_mut().for_each(Kept::stall);
            }
            sum.stalled += u64::from(is_stalled);
            let is_failed = at.is_some_and(|at| is_missed_by(failures, queries, &self.classes[at]));
            sum.missed += u64::from(is_stalled || is_failed || slos.iter().any(Kept::is_violated));
            latencies.extend_from_slice(recent);
            each.push(Connection {
                id,
                class: sum.name.clone(),
                weight: at.map_or(1.0, |at| self.classes[at].weight),
                queries,
                mean: (timed > 0).then(|| (now.latency - then.latency) / timed as f64),
                cv,
                slos,
                tokens: 0,
            });
        }
        let with_latency = |(mut class, mut latencies): (ClassObservation, Vec<Seconds>)| {
            latencies.sort_by(|one, two| one.get().total_cmp(&two.get()));
            class.latency = percentiles(&latencies);
            class
        };
        let classes = match !self.classes.is_empty() {
            true => sums.into_iter().map(with_latency).collect(),
            false => Vec::new(),
        };
        (each, classes)
    }
}

/// Whether so many failures among the queries of a period miss an SLO of a class, by each of which a failed query is late. As with what is
/// late, one of few says nothing.
fn is_missed_by(failures: u64, queries: u64, class: &Class) -> bool {
    let is_any = failures > 1 || failures == 1 && queries >= KEPT as u64;
    is_any
        && class
            .slos()
            .any(|(share, _)| failures as f64 > (1.0 - share) * queries as f64)
}

/// The mean budgets of classes' SLOs, by class, SLO and step of the coefficient of variation: few, and each costs milliseconds.
#[derive(Debug, Default)]
struct Budgets(HashMap<(usize, usize, u32), Option<Seconds>>);

/// The steps in which a coefficient of variation is rounded.
const CV_STEP: f64 = 0.1;

impl Budgets {
    fn of(&mut self, of: (usize, usize), slo: TailSlo, cv: Option<Ratio>) -> Option<Seconds> {
        // A class was checked before: without an estimate the measured violations are what counts.
        let estimate = |cv| Kept::percentile(slo, Ratio::ZERO, Some(cv)).ok()?.budget();
        self.at_step(of, cv, estimate)
    }

    /// What is estimated of a class's SLO at a coefficient of variation that is rounded.
    fn at_step(
        &mut self,
        (class, at): (usize, usize),
        cv: Option<Ratio>,
        estimate: impl FnOnce(Ratio) -> Option<Seconds>,
    ) -> Option<Seconds> {
        let step = (cv?.get() / CV_STEP).round() as u32;
        let cv = Ratio::new(f64::from(step) * CV_STEP);
        *self.0.entry((class, at, step)).or_insert_with(|| estimate(cv))
    }

    /// How a connection's last latencies keep its class's SLOs: one that had no answer yet misses none.
    fn kept(&mut self, (index, class): (usize, &Class), recent: &[Seconds], cv: Option<Ratio>) -> Vec<Kept> {
        let missed = |target: Seconds| {
            let late = recent.iter().filter(|latency| **latency > target).count();
            // One of few says nothing of one in a hundred.
            if late == 1 && recent.len() < KEPT {
                0.0
            } else {
                late as f64
            }
        };
        let slos = class.slos().enumerate();
        let table = class
            .disengagement
            .as_ref()
            .and_then(|slo| Some((slo, slo.table().ok()?)));
        let disengaged = table.map(|(slo, table)| {
            let measured = table.measured(recent).unwrap_or(Ratio::ZERO);
            let target = Ratio::new(slo.at_most);
            let budget = self.at_step((index, usize::MAX), cv, |cv| {
                Kept::disengagement(target, measured, &table, Some(cv)).budget()
            });
            Kept::Disengagement {
                target,
                measured,
                budget,
            }
        });
        let percentiles = slos.map(|(at, (share, target))| Kept::Percentile {
            percentile: Ratio::new(share),
            violations: Ratio::new(missed(target) / recent.len().max(1) as f64),
            budget: self.of(
                (index, at),
                TailSlo {
                    percentile: Ratio::new(share),
                    target,
                },
                cv,
            ),
        });
        percentiles.chain(disengaged).collect()
    }
}

/// The standard deviation over the mean.
fn variation(latencies: &[Seconds]) -> Option<Ratio> {
    if latencies.len() < MIN_LATENCIES {
        return None;
    }
    let count = latencies.len() as f64;
    let mean = latencies.iter().map(|latency| latency.get()).sum::<f64>() / count;
    let squares = latencies.iter().map(|latency| (latency.get() - mean).powi(2));
    let deviation = (squares.sum::<f64>() / (count - 1.0)).sqrt();
    (mean > 0.0).then(|| Ratio::new(deviation / mean))
}

fn percentiles(sorted: &[Seconds]) -> Option<[Seconds; 4]> {
    let at = |share: f64| sorted[((share * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len()) - 1];
    (!sorted.is_empty()).then(|| [0.5, 0.95, 0.99, 0.999].map(at))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{connection, gold};
    use super::*;
    use crate::oncall::DisengagementSlo;

    #[test]
    fn who_asked_nothing_for_seconds_misses_no_slo_and_has_them_all_the_same() {
        let mut classes = Classes::new(vec![gold()]);
        let late = [&[900.0; 5][..], &[1.0; 100]].concat();
        let one = connection(1, Some("10.1.0.1:7"), 105, &late);
        let observe = |classes: &mut Classes| {
            let (each, of) = classes.observe(std::slice::from_ref(&one));
            (each[0].slos.len(), of[0].missed)
        };
        assert_eq!(observe(&mut classes), (2, 1));
        classes
            .before
            .values_mut()
            .for_each(|before| before.asked -= STALE + Duration::from_millis(1));
        assert_eq!(
            observe(&mut classes),
            (2, 0),
            "without any it would yield to others"
        );
    }

    #[test]
    fn one_late_query_of_few_says_nothing_of_one_in_a_hundred() {
        let mut classes = Classes::new(vec![gold()]);
        let mut missed = |place: usize, late: usize, all: usize| {
            let recent = [vec![900.0; late], vec![1.0; all - late]].concat();
            let one = connection(place, Some("10.1.0.1:7"), all as u64, &recent);
            classes.observe(&[one]).1[0].missed
        };
        assert_eq!((missed(1, 1, 5), missed(2, 2, 5)), (0, 1));
        assert_eq!(missed(3, 1, KEPT), 1, "of P99.9, of as many as are kept");
    }

    #[test]
    fn a_class_of_users_that_give_up_stalls_where_all_have() {
        let class = Class {
            p95_ms: None,
            p999_ms: None,
            disengagement: Some(DisengagementSlo {
                at_most: 0.1,
                points: vec![(10.0, 0.0), (50.0, 1.0)],
            }),
            ..gold()
        };
        assert_eq!(class.longest(), Some(Seconds::from_millis(50.0)));
        assert_eq!(gold().longest(), Some(Seconds::from_millis(60.0)));
    }

    #[test]
    fn a_connection_whose_query_waits_beyond_its_targets_misses_them() {
        let mut classes = Classes::new(vec![Class {
            p99_ms: Some(5.0),
            p999_ms: None,
            ..gold()
        }]);
        let observe = |classes: &mut Classes, queries, unanswered: Option<f64>| {
            let one = ConnectionTotals {
                unanswered: unanswered.map(Seconds::from_millis),
                ..connection(1, Some("10.1.0.1:7"), queries, &[1.0])
            };
            let of = classes.observe(&[one]).1.swap_remove(0);
            (of.missed, of.stalled)
        };
        assert_eq!(observe(&mut classes, 1, Some(900.0)), (0, 0), "it had an answer");
        assert_eq!(observe(&mut classes, 1, Some(900.0)), (1, 1));
        assert_eq!(observe(&mut classes, 1, Some(4.0)), (0, 0));
        assert_eq!(observe(&mut classes, 1, None), (0, 0));
    }

    #[test]
    fn queries_that_the_server_fails_miss_the_slos_of_their_class_and_are_in_no_mean() {
        let mut classes = Classes::new(vec![gold()]);
        let mut observe = |queries, failures, latencies: &[f64]| {
            let one = ConnectionTotals {
                failures,
                ..connection(1, Some("10.1.0.1:7"), queries, latencies)
            };
            let (each, classes) = classes.observe(&[one]);
            (
                classes[0].missed,
                each[0].mean.map(|mean| mean.as_millis().round()),
            )
        };
        assert_eq!(observe(10, Some(0), &[2.0; 10]), (0, Some(2.0)));
        // One of few, and all.
        assert_eq!(observe(20, Some(1), &[2.0; 19]), (0, Some(2.0)));
        assert_eq!(observe(30, Some(11), &[2.0; 19]), (1, None));
        assert_eq!(observe(40, Some(11), &[2.0; 29]), (0, Some(2.0)));
        // Where they are not told apart.
        assert_eq!(observe(50, None, &[2.0; 39]), (0, Some(2.0)));
    }

    /// It is one with an SLO from its first period on, for a policy to let it go first.
    #[test]
    fn a_connection_without_an_answer_yet_misses_none_of_its_slos() {
        let mut classes = Classes::new(vec![gold()]);
        let (each, _) = classes.observe(&[connection(0, None, 0, &[])]);
        assert!(
            !each[0].slos.is_empty() && !each[0].violates(),
            "{:?}",
            each[0].slos
        );
    }

    #[test]
    fn users_who_give_up_are_an_slo_of_their_own() {
        let utslo = Class {
            p95_ms: None,
            p999_ms: None,
            disengagement: Some(DisengagementSlo {
                at_most: 0.1,
                points: vec![(0.0, 0.0), (10.0, 0.0), (110.0, 1.0)],
            }),
            ..gold()
        };
        assert_eq!(utslo.mistake(), None);
        assert!(utslo.has_slo() && !utslo.has_percentile());
        let mut classes = Classes::new(vec![utslo.clone()]);
        // Half of the queries take 60 ms, at which half of the users give up.
        let latencies = [5.0, 60.0].repeat(16);
        let (each, _) = classes.observe(&[connection(0, None, 32, &latencies)]);
        let [slo] = each[0].slos[..] else {
            panic!("{:?}", each[0].slos)
        };
        let Kept::Disengagement { measured, budget, .. } = slo else {
            panic!("{slo:?}")
        };
        assert!((measured.get() - 0.25).abs() < 1e-9 && slo.is_violated());
        let budget = budget.unwrap().as_millis();
        assert!(budget > 1.0 && budget < 32.5, "{budget}");
        let falls = DisengagementSlo {
            points: vec![(0.0, 0.5), (10.0, 0.0)],
            ..utslo.disengagement.clone().unwrap()
        };
        let wrong = Class {
            disengagement: Some(falls),
            ..utslo
        };
        assert_eq!(wrong.mistake().unwrap().0, "disengagement.points");
    }

    #[test]
    fn a_connection_belongs_to_the_first_class_that_holds_its_client() {
        let mut classes = Classes::new(vec![gold()]);
        let all = [
            connection(0, Some("10.1.2.3:999"), 4, &[1.0; 4]),
            connection(1, Some("10.2.2.3:999"), 4, &[1.0; 4]),
            connection(2, None, 2, &[30.0; 2]),
        ];
        let (each, sums) = classes.observe(&all);
        let names: Vec<&str> = each.iter().map(|one| one.class.as_str()).collect();
        assert_eq!(names, ["gold", REST, "gold"]);
        assert_eq!((sums[0].connections, sums[0].queries, sums[0].missed), (2, 6, 1));
        assert_eq!(sums[0].latency.unwrap()[3], Seconds::from_millis(30.0));
        assert_eq!(
            (each[0].weight, each[1].weight, each[1].slos.len()),
            (4.0, 1.0, 0)
        );
        // The next period has what came since.
        let (each, _) = classes.observe(&[connection(
            0,
            Some("10.1.2.3:999"),
            6,
            &[1.0, 1.0, 1.0, 1.0, 5.0, 3.0],
        )]);
        assert_eq!(
            (each[0].queries, each[0].mean.unwrap().as_millis().round()),
            (2, 4.0)
        );
    }
}
