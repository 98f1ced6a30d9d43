//! Requests by the size of their answers: what gateways counted, as laws are given it and as parts show it.

use super::latency_of;
use headroom_control::placement::{BackendObservation, ClassOnBackend, SizeClass, SizesObservation};
use headroom_control::{Latency, Slo};
use headroom_gateway::{BackendState, COARSE_BUCKETS, ClassCounts, Counts, Handle, backend_histogram};
use headroom_units::{Fact, Part, Role, Seconds, Sensor};
use headroom_wire::message::{self, Backend, MAX_BUCKETS};

// A gateway's period says of each bucket which it is.
const _: () = assert!(MAX_BUCKETS == COARSE_BUCKETS);

/// A part's facts name so many backends at most: those that were sent the most.
const MAX_NAMED: usize = 8;

/// A backend of gateways, as classes are sent to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizedBackend {
    /// Its URL.
    pub url: String,
    /// Whether each gateway may send it requests.
    pub in_service: bool,
}

/// The classes of one period, of a gateway or of several together.
#[derive(Clone, Debug)]
pub struct SizesPeriod {
    /// The largest content of each class but the last, bytes.
    pub bounds: Vec<u64>,
    /// The backends.
    pub backends: Vec<SizedBackend>,
    /// The classes, the smallest first, and last what is of no known size.
    pub classes: Vec<ClassCounts>,
    /// Of each class whose size is known the weight of each backend, of the gateway that was read first; empty where they go as
    /// configured.
    pub routes: Vec<Vec<u32>>,
}

/// What a backend's URL is compared by.
fn same(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

/// What a class is called, of those with these bounds.
fn class_name(bounds: &[u64], at: usize) -> String {
    match (bounds.get(at), bounds.last()) {
        (Some(bytes), _) => format!("up to {bytes} bytes"),
        (None, Some(bytes)) if at == bounds.len() => format!("over {bytes} bytes"),
        _ => "of unknown size".to_owned(),
    }
}

/// The classes of an observation, each with what it is called.
pub(super) fn named(sizes: &SizesObservation) -> impl Iterator<Item = (String, &SizeClass)> {
    let bounds: Vec<u64> = sizes.classes.iter().filter_map(|class| class.up_to).collect();
    let classes = sizes.classes.iter().enumerate();
    classes.map(move |(at, class)| (class_name(&bounds, at), class))
}

impl SizesPeriod {
    /// What the gateway of this process counted; `None` where it looks at no sizes.
    pub fn of_gateway(gateway: &Handle, classes: Vec<ClassCounts>) -> Option<Self> {
        let bounds = gateway.config().sizes.bounds_bytes.clone();
        let backend = |health: headroom_gateway::BackendHealth| SizedBackend {
            in_service: health.state == BackendState::Up
                && health.weight > 0
                && health.healthy
                && health.ejected_for.is_none(),
            url: health.url,
        };
        (!bounds.is_empty()).then(|| Self {
            bounds,
            backends: gateway.backends_health().into_iter().map(backend).collect(),
            classes,
            routes: gateway.routes().into_iter().map(|route| route.weights).collect(),
        })
    }

    /// What a gateway with these classes and backends reported; `None` where it looks at no sizes, or its report does not fit what it is.
    pub fn of_report(
        bounds: &[u64],
        backends: &[Backend],
        healthy: &[bool],
        classes: Vec<message::SizeClass>,
        routes: Vec<message::ClassRoute>,
    ) -> Option<Self> {
        let fits = !bounds.is_empty()
            && classes.len() == bounds.len() + 2
            && classes.iter().all(|class| class.backends.len() == backends.len());
        let backend = |(at, backend): (usize, &Backend)| SizedBackend {
            url: backend.url.clone(),
            in_service: backend.state == message::BackendState::Up
                && backend.weight > 0
                && healthy.get(at).copied().unwrap_or(backend.healthy),
        };
        fits.then(|| Self {
            bounds: bounds.to_vec(),
            backends: backends.iter().enumerate().map(backend).collect(),
            classes: classes.into_iter().map(counts).collect(),
            routes: routes.into_iter().map(|route| route.weights).collect(),
        })
    }

    /// Adds the period that came next of the same gateway; where it has other classes or backends, that alone stays.
    pub fn follow(&mut self, mut next: Self) {
        let urls = |of: &Self| of.backends.iter().map(|one| one.url.clone()).collect::<Vec<_>>();
        if next.bounds == self.bounds && urls(&next) == urls(self) {
            for (class, before) in next.classes.iter_mut().zip(&mut self.classes) {
                before.gauges().for_each(|gauge| *gauge = 0);
                class.add(before);
            }
        }
        *self = next;
    }

    /// Adds another gateway's; whether that has the same classes. A backend that both send to is one.
    pub fn join(&mut self, other: &Self) -> bool {
        if self.bounds != other.bounds {
            return false;
        }
        for (from, backend) in other.backends.iter().enumerate() {
            let known = self.backends.iter().position(|one| same(&one.url, &backend.url));
            let to = known.unwrap_or_else(|| {
                self.backends.push(backend.clone());
                for class in &mut self.classes {
                    class.backends.push(headroom_gateway::ClassOnBackend::default());
                }
                for row in &mut self.routes {
                    row.push(0);
                }
                self.backends.len() - 1
            });
            self.backends[to].in_service &= backend.in_service;
            for (class, more) in self.classes.iter_mut().zip(&other.classes) {
                class.backends[to].add(&more.backends[from]);
            }
        }
        for (class, more) in self.classes.iter_mut().zip(&other.classes) {
            // What it has of backends was added above, where they are in another order.
            let of_service = ClassCounts {
                backends: Vec::new(),
                ..more.clone()
            };
            class.add(&of_service);
        }
        true
    }

    fn up_to(&self, class: usize) -> Option<u64> {
        self.bounds.get(class).copied()
    }

    fn is_known(&self, class: usize) -> bool {
        class <= self.bounds.len()
    }

    /// As laws are given it, with latencies at the SLO's percentile.
    pub fn observation(&self, slo: Slo) -> SizesObservation {
        let in_flight = |at: usize| {
            let parts = self.classes.iter().map(|class| class.backends[at].in_flight);
            parts.sum()
        };
        let backends = self.backends.iter().enumerate();
        SizesObservation {
            backends: backends
                .map(|(at, backend)| BackendObservation {
                    url: backend.url.clone(),
                    in_service: backend.in_service,
                    in_flight: in_flight(at),
                })
                .collect(),
            classes: (0..self.classes.len())
                .map(|class| self.class(class, slo))
                .collect(),
        }
    }

    fn class(&self, at: usize, slo: Slo) -> SizeClass {
        let class = &self.classes[at];
        let counts = &class.counts;
        let on_backend = |part: &headroom_gateway::ClassOnBackend| ClassOnBackend {
            arrivals: part.arrivals,
            completions: part.completions,
            mean: (part.completions > 0)
                .then(|| Seconds::from_micros(part.latency_us as f64 / part.completions as f64)),
            at_slo: part
                .histogram
                .quantile_us(slo.percentile().get())
                .map(Seconds::from_micros),
        };
        SizeClass {
            up_to: self.up_to(at),
            known: self.is_known(at),
            arrivals: demand(counts),
            completions: counts.completions,
            failures: counts.failed_by_service(),
            bytes: counts.response_bytes,
            latency: latency(class, slo),
            backends: class.backends.iter().map(on_backend).collect(),
        }
    }

    /// A part of each class of a period of this length: its rates, its latency, where it was sent and where it is to go.
    pub fn parts(&self, length: Seconds, slo: Slo) -> Vec<Part> {
        let of_class = |(at, class): (usize, &ClassCounts)| {
            let rate = |count: u64| (length > Seconds::ZERO).then(|| count as f64 / length.get());
            let mut part = Part::new(class_name(&self.bounds, at), Role::Size)
                .with(Sensor::ArrivalRate, rate(demand(&class.counts)))
                .with(Sensor::FailureRate, rate(class.counts.failures))
                .with(Sensor::InFlight, Some(class.counts.in_flight as f64))
                .with(
                    Sensor::LatencyAtSlo,
                    latency(class, slo).map(|latency| latency.at_slo.get()),
                );
            if class.counts.completions > 0 {
                let mean = class.counts.response_bytes as f64 / class.counts.completions as f64;
                part = part.fact("mean_bytes", mean);
            }
            let sent = class
                .backends
                .iter()
                .map(|part| part.arrivals)
                .collect::<Vec<_>>();
            let weights = self.routes.get(at).map_or(&[][..], Vec::as_slice);
            let weights: Vec<u64> = weights.iter().map(|weight| u64::from(*weight)).collect();
            for (name, parts) in [("sent_to", sent), ("weights", weights)] {
                if let Some(words) = self.shares(&parts) {
                    part = part.fact(name, Fact::Words(words));
                }
            }
            part
        };
        self.classes.iter().enumerate().map(of_class).collect()
    }

    /// Of which backends these are how large a share, the largest first; `None` of nothing.
    fn shares(&self, parts: &[u64]) -> Option<String> {
        let all: u64 = parts.iter().sum();
        let mut some: Vec<(&str, u64)> = self
            .backends
            .iter()
            .map(|one| one.url.as_str())
            .zip(parts.iter().copied())
            .collect();
        some.retain(|(_, part)| *part > 0);
        some.sort_by_key(|(_, part)| std::cmp::Reverse(*part));
        let left_out = some.len().saturating_sub(MAX_NAMED);
        some.truncate(MAX_NAMED);
        let percent = |part: u64| 100.0 * part as f64 / all as f64;
        let mut words: Vec<String> = some
            .iter()
            .map(|(url, part)| format!("{url} {:.0} %", percent(*part)))
            .collect();
        if left_out > 0 {
            words.push(format!("{left_out} more"));
        }
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// The latency of a class, the requests that the service failed being the slowest; `None` where none ended.
fn latency(class: &ClassCounts, slo: Slo) -> Option<Latency> {
    latency_of(&class.histogram, class.counts.failed_by_service(), slo)
}

/// The requests that arrived without those that the gateway refused, which are no work of the service.
fn demand(counts: &Counts) -> u64 {
    super::outcomes::demand(counts.arrivals, counts.refused)
}

/// What a report says of a class, as a gateway counts it.
fn counts(class: message::SizeClass) -> ClassCounts {
    let mut histogram = backend_histogram();
    for (value, count) in &class.latencies {
        histogram.saturating_record_n(*value, *count);
    }
    let on_backend = |part: message::ClassOnBackend| {
        let mut counted = headroom_gateway::ClassOnBackend {
            arrivals: part.arrivals,
            completions: part.completions,
            failures: part.failures,
            in_flight: part.in_flight,
            latency_us: part.latency_us,
            ..headroom_gateway::ClassOnBackend::default()
        };
        for (bucket, count) in part.buckets {
            // Each is one that there is, as the message was read.
            counted.histogram.add(bucket as usize, count);
        }
        counted
    };
    ClassCounts {
        counts: Counts {
            arrivals: class.arrivals,
            completions: class.completions,
            failures: class.failures,
            aborted_by_client: class.aborted_by_client,
            refused: class.refused,
            response_bytes: class.bytes,
            in_flight: class.in_flight,
            ..Counts::default()
        },
        histogram,
        backends: class.backends.into_iter().map(on_backend).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_units::Ratio;

    fn slo() -> Slo {
        Slo::new(Ratio::from_percent(95.0), Seconds::new(0.25)).unwrap()
    }

    /// A report of two classes and the unknown, of which the first had so many requests at the first backend.
    fn report(urls: &[&str], completions: u64, failures: u64) -> SizesPeriod {
        let backend = |url: &&str| Backend {
            url: (*url).to_owned(),
            state: message::BackendState::Up,
            weight: 1,
            healthy: true,
            most_in_flight: None,
        };
        let backends: Vec<Backend> = urls.iter().map(backend).collect();
        let class = |completions: u64, failures: u64| message::SizeClass {
            arrivals: completions + failures + 1,
            completions,
            failures,
            bytes: completions * 100,
            in_flight: 1,
            latencies: if completions > 0 {
                vec![(2000, completions)]
            } else {
                vec![]
            },
            backends: (0..urls.len())
                .map(|at| match at {
                    0 => message::ClassOnBackend {
                        arrivals: completions,
                        completions,
                        in_flight: 1,
                        latency_us: completions * 1000,
                        buckets: vec![(32, u32::try_from(completions).unwrap())],
                        ..message::ClassOnBackend::default()
                    },
                    _ => message::ClassOnBackend::default(),
                })
                .collect(),
            ..message::SizeClass::default()
        };
        let classes = vec![class(completions, failures), class(0, 0), class(0, 0)];
        SizesPeriod::of_report(
            &[4096],
            &backends,
            &[],
            classes,
            vec![vec![3; urls.len()].into(), vec![0; urls.len()].into()],
        )
        .unwrap()
    }

    #[test]
    fn a_law_is_given_each_class_and_what_each_backend_did_of_it() {
        let seen = report(&["http://a", "http://b"], 10, 0).observation(slo());
        assert_eq!(
            (
                seen.backends.len(),
                seen.backends[0].in_flight,
                seen.backends[0].in_service
            ),
            (2, 3, true)
        );
        let [small, large, unknown] = &seen.classes[..] else {
            panic!()
        };
        assert_eq!(
            (small.up_to, large.up_to, unknown.up_to),
            (Some(4096), None, None)
        );
        assert_eq!((small.known, large.known, unknown.known), (true, true, false));
        assert_eq!((small.arrivals, small.completions, small.bytes), (11, 10, 1000));
        assert_eq!(small.latency.as_ref().unwrap().at_slo.as_millis().round(), 2.0);
        let on = small.backends[0];
        assert_eq!(
            (on.arrivals, on.completions, on.mean),
            (10, 10, Some(Seconds::new(0.001)))
        );
        assert!(
            (on.at_slo.unwrap().as_millis() - 1.0).abs() < 0.2,
            "{:?}",
            on.at_slo
        );
        assert_eq!((small.backends[1].mean, small.backends[1].at_slo), (None, None));
        assert!(large.latency.is_none());
        // Where a tenth failed the percentile is missed.
        let failing = report(&["http://a"], 9, 1).observation(slo());
        let latency = failing.classes[0].latency.as_ref().unwrap();
        assert!(latency.missed && latency.at_slo > slo().target());
    }

    #[test]
    fn a_part_says_of_each_class_what_it_was_and_where_it_went() {
        let parts = report(&["http://a", "http://b"], 10, 0).parts(Seconds::new(2.0), slo());
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["up to 4096 bytes", "over 4096 bytes", "of unknown size"]);
        assert!(parts.iter().all(|part| part.role == Role::Size));
        let small = &parts[0];
        assert_eq!(small.get(Sensor::ArrivalRate), Some(5.5));
        assert_eq!(small.facts["mean_bytes"], Fact::Number(100.0));
        assert_eq!(small.facts["sent_to"], Fact::Words("http://a 100 %".into()));
        assert_eq!(
            small.facts["weights"],
            Fact::Words("http://a 50 %, http://b 50 %".into())
        );
        assert!(!parts[1].facts.contains_key("weights") && parts[1].get(Sensor::LatencyAtSlo).is_none());
    }

    #[test]
    fn gateways_are_joined_by_url_and_periods_follow_with_the_newest_in_flight() {
        let mut both = report(&["http://a", "http://b"], 10, 0);
        assert!(both.join(&report(&["http://b/", "http://c"], 5, 0)));
        let urls: Vec<&str> = both.backends.iter().map(|one| one.url.as_str()).collect();
        assert_eq!(urls, ["http://a", "http://b", "http://c"]);
        let sent: Vec<u64> = both.classes[0]
            .backends
            .iter()
            .map(|part| part.arrivals)
            .collect();
        assert_eq!((sent, both.classes[0].counts.completions), (vec![10, 5, 0], 15));
        assert_eq!(both.routes[0], [3, 3, 0]);

        let mut sum = report(&["http://a"], 10, 0);
        sum.follow(report(&["http://a"], 5, 0));
        assert_eq!(
            (sum.classes[0].counts.completions, sum.classes[0].counts.in_flight),
            (15, 1)
        );
        assert_eq!(
            (
                sum.classes[0].backends[0].completions,
                sum.classes[0].backends[0].in_flight
            ),
            (15, 1)
        );
        sum.follow(report(&["http://other"], 3, 0));
        assert_eq!(sum.classes[0].counts.completions, 3);

        let mut other = report(&["http://a"], 1, 0);
        other.bounds = vec![9];
        assert!(!both.join(&other));
    }

    #[test]
    fn a_report_that_does_not_fit_is_none() {
        let of = |bounds: &[u64], classes: usize| {
            SizesPeriod::of_report(
                bounds,
                &[],
                &[],
                vec![message::SizeClass::default(); classes],
                Vec::new(),
            )
        };
        assert!(of(&[], 0).is_none() && of(&[4096], 2).is_none());
        assert!(of(&[4096], 3).is_some());
    }
}
