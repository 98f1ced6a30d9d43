//! Requests by the size of their answers: what gateways saw of them, and where they are to go.

use crate::observation::Latency;
use headroom_units::Seconds;
use serde::{Deserialize, Serialize};

/// The requests of one period by the size of their answers, at all gateways together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SizesObservation {
    /// The backends, always in the same order.
    pub backends: Vec<BackendObservation>,
    /// The classes of sizes, the smallest first, and last the requests whose size nobody knew when they came.
    pub classes: Vec<SizeClass>,
}

/// A backend of the gateways.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BackendObservation {
    /// Its URL, as the gateways are configured.
    pub url: String,
    /// Whether each gateway may send it requests: it is up, has a weight and is healthy.
    pub in_service: bool,
    /// Requests in flight there at the end of the period.
    pub in_flight: u64,
}

/// The requests whose answers are of one class of sizes, by what was known of their routes when they came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SizeClass {
    /// The largest content of the class, bytes; `None` of the largest class, and of requests whose size nobody knew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_to: Option<u64>,
    /// Whether the size was known when they came; false of the last class alone.
    pub known: bool,
    /// Requests that arrived.
    pub arrivals: u64,
    /// Requests answered.
    pub completions: u64,
    /// Requests that the service failed.
    pub failures: u64,
    /// The content of the answers, bytes.
    pub bytes: u64,
    /// Their latency; `None` where none ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// What each backend did of it, in the order of [`SizesObservation::backends`].
    pub backends: Vec<ClassOnBackend>,
}

/// What one backend did of one class in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassOnBackend {
    /// Requests that were sent there.
    pub arrivals: u64,
    /// Requests that it answered.
    pub completions: u64,
    /// Mean latency of these, from when they were sent there; `None` where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<Seconds>,
    /// The latency at the SLO's percentile of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_slo: Option<Seconds>,
}

/// Where requests go, by class and backend: what the lever [`Placement`](headroom_units::Lever::Placement) puts in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Routes {
    /// Of each class whose size is known, in their order, the weight of each backend, in the order of
    /// [`SizesObservation::backends`]. A class without a weight above 0 goes as the gateway is configured to balance.
    pub weights: Vec<Vec<u32>>,
    /// Of each of these classes how many requests, of all classes and all gateways, each backend may have in flight and be sent one of the
    /// class by its weight. A request for which none with a weight has room goes to the backend, of all, whose requests are the
    /// smallest share of this number; one with 0 takes none of these. Empty for no bounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub most_in_flight: Vec<Vec<u32>>,
}

impl SizeClass {
    /// The mean content of its answers, bytes; `None` where none was answered.
    pub fn mean_bytes(&self) -> Option<f64> {
        (self.completions > 0).then(|| self.bytes as f64 / self.completions as f64)
    }
}

/// What the second period adds to the one before it; where they are of other backends or classes, the second alone. A percentile is
/// the worse of the two, for percentiles of parts make none of the whole.
impl std::ops::Add for SizesObservation {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let urls = |of: &Self| of.backends.iter().map(|one| one.url.clone()).collect::<Vec<_>>();
        let bounds = |of: &Self| {
            of.classes
                .iter()
                .map(|class| (class.up_to, class.known))
                .collect::<Vec<_>>()
        };
        if urls(&self) != urls(&other) || bounds(&self) != bounds(&other) {
            return other;
        }
        let classes = self.classes.into_iter().zip(other.classes);
        Self {
            classes: classes.map(|(one, two)| one + two).collect(),
            backends: other.backends,
        }
    }
}

impl std::ops::Add for SizeClass {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let worse = match (self.latency, other.latency) {
            (Some(one), Some(two)) => Some(if one.at_slo > two.at_slo { one } else { two }),
            (one, two) => one.or(two),
        };
        let backends = self.backends.into_iter().zip(other.backends);
        Self {
            arrivals: self.arrivals + other.arrivals,
            completions: self.completions + other.completions,
            failures: self.failures + other.failures,
            bytes: self.bytes + other.bytes,
            latency: worse,
            backends: backends.map(|(one, two)| one + two).collect(),
            ..other
        }
    }
}

impl std::ops::Add for ClassOnBackend {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let completions = self.completions + other.completions;
        let part = |of: Self| of.mean.map(|mean| mean * of.completions as f64);
        let sum = match (part(self), part(other)) {
            (Some(one), Some(two)) => Some(one + two),
            (one, two) => one.or(two),
        };
        Self {
            arrivals: self.arrivals + other.arrivals,
            completions,
            mean: sum
                .filter(|_| completions > 0)
                .map(|sum| sum / completions as f64),
            at_slo: match (self.at_slo, other.at_slo) {
                (Some(one), Some(two)) => Some(one.max(two)),
                (one, two) => one.or(two),
            },
        }
    }
}

impl Routes {
    /// The largest weight.
    pub const MAX_WEIGHT: u32 = 1000;

    /// The share of a class that a backend is sent; `None` where the class goes as the gateway is configured to balance.
    pub fn share(&self, class: usize, backend: usize) -> Option<f64> {
        let row = self.weights.get(class)?;
        let sum: u32 = row.iter().sum();
        (sum > 0).then(|| f64::from(row.get(backend).copied().unwrap_or(0)) / f64::from(sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_without_a_weight_goes_where_the_fewest_are() {
        let routes = Routes {
            weights: vec![vec![3, 1], vec![0, 0]],
            ..Routes::default()
        };
        assert_eq!((routes.share(0, 0), routes.share(0, 1)), (Some(0.75), Some(0.25)));
        assert_eq!(
            (routes.share(0, 2), routes.share(1, 0), routes.share(2, 0)),
            (Some(0.0), None, None)
        );
    }

    #[test]
    fn two_periods_add_up_and_others_backends_do_not() {
        let period = |url: &str, completions, mean, at_slo| SizesObservation {
            backends: vec![BackendObservation {
                url: url.to_owned(),
                in_service: true,
                in_flight: completions,
            }],
            classes: vec![SizeClass {
                known: true,
                completions,
                bytes: completions * 10,
                backends: vec![ClassOnBackend {
                    arrivals: completions,
                    completions,
                    mean: Some(Seconds::new(mean)),
                    at_slo: Some(Seconds::new(at_slo)),
                }],
                ..SizeClass::default()
            }],
        };
        let both = period("a", 1, 0.4, 0.4) + period("a", 3, 0.2, 0.3);
        let class = &both.classes[0];
        assert_eq!(
            (class.completions, class.bytes, both.backends[0].in_flight),
            (4, 40, 3)
        );
        let backend = class.backends[0];
        assert!((backend.mean.unwrap().get() - 0.25).abs() < 1e-12);
        assert_eq!(backend.at_slo, Some(Seconds::new(0.4)));
        assert_eq!(
            period("a", 1, 0.4, 0.4) + period("b", 3, 0.2, 0.3),
            period("b", 3, 0.2, 0.3)
        );
    }

    #[test]
    fn no_answer_has_no_size() {
        let class = SizeClass {
            completions: 4,
            bytes: 4096,
            ..SizeClass::default()
        };
        assert_eq!(class.mean_bytes(), Some(1024.0));
        assert_eq!(SizeClass::default().mean_bytes(), None);
    }
}
