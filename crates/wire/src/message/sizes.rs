//! Requests of a gateway by the size of their answers: counts of each class, and where each class goes.

use super::gateway::{MAX_BACKENDS, MAX_LATENCIES, MAX_WEIGHT, latencies};
use crate::check::{Invalid, at_most, each};
use crate::proto;

/// The most classes whose size is known.
pub const MAX_SIZE_CLASSES: usize = 8;
/// Buckets of the latencies of one class at one backend.
pub const MAX_BUCKETS: usize = 168;

/// One class in a period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SizeClass {
    /// Requests that arrived.
    pub arrivals: u64,
    /// Requests answered.
    pub completions: u64,
    /// Requests that failed, whoever broke them off.
    pub failures: u64,
    /// Of these, the ones whose client went away.
    pub aborted_by_client: u64,
    /// Requests that the gateway itself refused.
    pub refused: u64,
    /// The content of the answers, bytes.
    pub bytes: u64,
    /// Requests in flight at the end.
    pub in_flight: u64,
    /// Latencies of the requests answered, in microseconds, growing, and how many had each. At most [`MAX_LATENCIES`].
    pub latencies: Vec<(u64, u64)>,
    /// What each backend did of it, in the order of the gateway's backends. At most [`MAX_BACKENDS`].
    pub backends: Vec<ClassOnBackend>,
}

/// What one backend did of one class in a period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassOnBackend {
    /// Requests sent to it.
    pub arrivals: u64,
    /// Requests that it answered.
    pub completions: u64,
    /// Those that ended otherwise.
    pub failures: u64,
    /// Requests in flight there at the end.
    pub in_flight: u64,
    /// The latencies of those answered together, microseconds.
    pub latency_us: u64,
    /// How many were in each bucket that is not empty, growing. At most [`MAX_BUCKETS`], each below it.
    pub buckets: Vec<(u32, u32)>,
}

/// Where the requests of one class go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassRoute {
    /// The weight of each backend, in the order of the gateway's backends, at most [`MAX_WEIGHT`].
    pub weights: Vec<u32>,
    /// How many requests of this gateway each backend may have in flight and be sent one by its weight; empty for no bounds.
    pub most_in_flight: Vec<u32>,
}

impl From<Vec<u32>> for ClassRoute {
    fn from(weights: Vec<u32>) -> Self {
        Self {
            weights,
            most_in_flight: Vec::new(),
        }
    }
}

/// Routes as a message has them.
pub(crate) fn routes_message(routes: Vec<ClassRoute>) -> Vec<proto::ClassRoutes> {
    let message = |route: ClassRoute| proto::ClassRoutes {
        weights: route.weights,
        most_in_flight: route.most_in_flight,
    };
    routes.into_iter().map(message).collect()
}

/// Where the requests of each class go.
///
/// # Errors
/// More classes than [`MAX_SIZE_CLASSES`] or backends than [`MAX_BACKENDS`], a weight above [`MAX_WEIGHT`].
pub fn routes(message: Vec<proto::ClassRoutes>) -> Result<Vec<ClassRoute>, Invalid> {
    let row = |class: proto::ClassRoutes| {
        let weights = at_most("routes.weights", class.weights, MAX_BACKENDS)?;
        match weights.iter().find(|weight| **weight > MAX_WEIGHT) {
            Some(weight) => Err(Invalid::new(
                "routes.weights",
                weight,
                format!("0 to {MAX_WEIGHT}"),
            )),
            None => Ok(ClassRoute {
                weights,
                most_in_flight: at_most("routes.most_in_flight", class.most_in_flight, MAX_BACKENDS)?,
            }),
        }
    };
    let classes = at_most("routes", message, MAX_SIZE_CLASSES)?;
    classes.into_iter().map(row).collect()
}

/// The upper bounds of classes: growing, and at most one less than there may be classes.
pub(crate) fn bounds(bounds: Vec<u64>) -> Result<Vec<u64>, Invalid> {
    let bounds = at_most("size_bounds", bounds, MAX_SIZE_CLASSES - 1)?;
    match bounds.windows(2).find(|pair| pair[0] >= pair[1]) {
        Some(pair) => Err(Invalid::new(
            "size_bounds",
            pair[1],
            format!("more than {} before it", pair[0]),
        )),
        None => Ok(bounds),
    }
}

impl From<SizeClass> for proto::SizeClass {
    fn from(class: SizeClass) -> Self {
        let (latency_us, latency_count) = class.latencies.into_iter().unzip();
        Self {
            arrivals: class.arrivals,
            completions: class.completions,
            failures: class.failures,
            aborted_by_client: class.aborted_by_client,
            refused: class.refused,
            bytes: class.bytes,
            in_flight: class.in_flight,
            latency_us,
            latency_count,
            backends: class.backends.into_iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<proto::SizeClass> for SizeClass {
    type Error = Invalid;
    fn try_from(message: proto::SizeClass) -> Result<Self, Invalid> {
        if message.aborted_by_client > message.failures {
            let expected = format!("at most the failures, {}", message.failures);
            return Err(Invalid::new(
                "sizes.aborted_by_client",
                message.aborted_by_client,
                expected,
            ));
        }
        Ok(Self {
            arrivals: message.arrivals,
            completions: message.completions,
            failures: message.failures,
            aborted_by_client: message.aborted_by_client,
            refused: message.refused,
            bytes: message.bytes,
            in_flight: message.in_flight,
            latencies: latencies(message.latency_us, message.latency_count, MAX_LATENCIES)?,
            backends: each("sizes.backends", message.backends, MAX_BACKENDS)?,
        })
    }
}

impl From<ClassOnBackend> for proto::ClassOnBackend {
    fn from(part: ClassOnBackend) -> Self {
        let (bucket, count) = part.buckets.into_iter().unzip();
        Self {
            arrivals: part.arrivals,
            completions: part.completions,
            failures: part.failures,
            in_flight: part.in_flight,
            latency_us: part.latency_us,
            bucket,
            count,
        }
    }
}

impl TryFrom<proto::ClassOnBackend> for ClassOnBackend {
    type Error = Invalid;
    fn try_from(message: proto::ClassOnBackend) -> Result<Self, Invalid> {
        let bucket = at_most("bucket", message.bucket, MAX_BUCKETS)?;
        if message.count.len() != bucket.len() {
            let expected = format!("as many as bucket, {}", bucket.len());
            return Err(Invalid::new(
                "count",
                format!("{} long", message.count.len()),
                expected,
            ));
        }
        if let Some(pair) = bucket.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(Invalid::new(
                "bucket",
                pair[1],
                format!("more than {} before it", pair[0]),
            ));
        }
        if let Some(last) = bucket.last().filter(|last| **last as usize >= MAX_BUCKETS) {
            return Err(Invalid::new("bucket", last, format!("below {MAX_BUCKETS}")));
        }
        Ok(Self {
            arrivals: message.arrivals,
            completions: message.completions,
            failures: message.failures,
            in_flight: message.in_flight,
            latency_us: message.latency_us,
            buckets: bucket.into_iter().zip(message.count).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_reads_as_it_was_written() {
        let class = SizeClass {
            arrivals: 9,
            completions: 5,
            failures: 3,
            aborted_by_client: 1,
            refused: 2,
            bytes: 500,
            in_flight: 1,
            latencies: vec![(10, 2), (30, 3)],
            backends: vec![ClassOnBackend {
                arrivals: 8,
                completions: 5,
                failures: 2,
                in_flight: 1,
                latency_us: 110,
                buckets: vec![(0, 2), (167, 3)],
            }],
        };
        assert_eq!(
            SizeClass::try_from(proto::SizeClass::from(class.clone())),
            Ok(class)
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let part = |bucket: Vec<u32>, count: Vec<u32>| proto::ClassOnBackend {
            bucket,
            count,
            ..proto::ClassOnBackend::default()
        };
        for (bucket, count, said) in [
            (vec![1, 2], vec![1], "count is 1 long"),
            (vec![2, 2], vec![1, 1], "bucket is 2: expected more than 2"),
            (vec![168], vec![1], "bucket is 168: expected below 168"),
            (vec![0; 169], vec![], "at most 168"),
        ] {
            let error = ClassOnBackend::try_from(part(bucket, count))
                .unwrap_err()
                .to_string();
            assert!(error.contains(said), "{error}");
        }
        let row = |weights: Vec<u32>| proto::ClassRoutes {
            most_in_flight: vec![7; weights.len().min(2)],
            weights,
        };
        let route = ClassRoute {
            weights: vec![0, 1000],
            most_in_flight: vec![7, 7],
        };
        let message = routes_message(vec![route.clone()]);
        assert_eq!(message, [row(vec![0, 1000])]);
        assert_eq!(routes(message), Ok(vec![route]));
        let bounds_of_many = proto::ClassRoutes {
            weights: vec![1],
            most_in_flight: vec![1; 257],
        };
        assert!(routes(vec![bounds_of_many]).is_err());
        for (message, said) in [
            (
                vec![row(vec![1001])],
                "routes.weights is 1001: expected 0 to 1000",
            ),
            (vec![row(vec![1; 257])], "at most 256"),
            (vec![row(vec![1]); 9], "at most 8"),
        ] {
            let error = routes(message).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        assert_eq!(bounds(vec![1, 2]), Ok(vec![1, 2]));
        assert!(bounds(vec![2, 2]).is_err() && bounds((1..9).collect()).is_err());
        let aborted = proto::SizeClass {
            aborted_by_client: 1,
            ..proto::SizeClass::default()
        };
        assert!(SizeClass::try_from(aborted).is_err());
    }
}
