//! What a report draws: levers and sensors as they are recorded, and what is computed of them.

use crate::model::PeriodRecord;
use headroom_units::{
    CapacityKind, Cores, Hertz, Lever, Part, PerSecond, Quantity, QuantityInfo, Ratio, Role, Seconds, Sensor,
    Source, Watts,
};
use std::collections::BTreeMap;

/// What a column holds, in the order in which pages have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// Latency at the SLO's percentile.
    Slo,
    /// Median latency.
    P50,
    /// 99th percentile of the latency.
    P99,
    /// A lever in force.
    Of(Lever),
    /// Power, apart by source: watts of different sources are different quantities.
    Power(Source),
    /// Consumed over allocated power.
    PowerRatio,
    /// Any other sensor.
    By(Sensor),
    /// The capacity where it is only known to be this at least.
    CapacityAtLeast,
    /// The arrival rate that was expected.
    Forecast,
    /// The mean response time, where a batcher holds requests or a law predicts it.
    MeanResponse,
    /// That mean as the law predicted it.
    Predicted,
}

impl Key {
    /// The key of a quantity of something whose power is of a source.
    pub(crate) fn of(quantity: Quantity, source: Option<Source>) -> Self {
        match (quantity, source) {
            (Quantity::Lever(lever), _) => Self::Of(lever),
            (Quantity::Sensor(Sensor::LatencyAtSlo), _) => Self::Slo,
            (Quantity::Sensor(Sensor::Power), Some(source)) => Self::Power(source),
            (Quantity::Sensor(sensor), _) => Self::By(sensor),
        }
    }

    /// The key of a quantity of a part: what it takes at least is another quantity than what it takes.
    pub(crate) fn of_part(quantity: Quantity, part: &Part) -> Self {
        match Self::of(quantity, part.source) {
            Self::By(Sensor::Capacity) if CapacityKind::of(part) == Some(CapacityKind::AtLeast) => {
                Self::CapacityAtLeast
            }
            key => key,
        }
    }

    /// Whether a server that is off has none of it: a known zero, not an unknown value.
    pub(crate) const fn is_none_when_off(self) -> bool {
        use Sensor::{ArrivalRate, BusyCores, FailureRate, InFlight, ServiceRate};
        matches!(
            self,
            Self::Of(Lever::Cores | Lever::Cap)
                | Self::Power(_)
                | Self::By(ArrivalRate | ServiceRate | FailureRate | InFlight | BusyCores)
        )
    }

    fn info(self) -> QuantityInfo {
        let (sensor, title) = match self {
            Self::Of(lever) => return Quantity::Lever(lever).info(),
            Self::By(sensor) => return sensor.info(),
            Self::Slo => return Sensor::LatencyAtSlo.info(),
            Self::P50 => (Sensor::LatencyAtSlo, "P50"),
            Self::P99 => (Sensor::LatencyAtSlo, "P99"),
            Self::Power(_) => (Sensor::Power, "Power"),
            Self::PowerRatio => (Sensor::Utilisation, "Power ratio"),
            Self::CapacityAtLeast => (Sensor::Capacity, "Capacity, at least"),
            Self::Forecast => (Sensor::ArrivalRate, "Forecast"),
            Self::MeanResponse => (Sensor::LatencyAtSlo, "Mean response time"),
            Self::Predicted => (Sensor::LatencyAtSlo, "Predicted by the law"),
        };
        QuantityInfo {
            title,
            ..sensor.info()
        }
    }

    /// What a page calls it; power with its source.
    pub(crate) fn title(self) -> String {
        match self {
            Self::Power(source) => format!("Power, {source}"),
            Self::PowerRatio => "Power ratio: consumed / allocated".to_owned(),
            other => other.info().title.to_owned(),
        }
    }

    /// What stands above its column in a table: its title and unit.
    pub(crate) fn head(self) -> String {
        headed(&self.title(), self.unit())
    }

    /// The unit of its column.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::PowerRatio => "",
            other => other.info().shown.0,
        }
    }

    /// What it shares an axis with: what has the same unit, as metrics name it.
    pub(crate) fn axis(self) -> &'static str {
        match self {
            Self::PowerRatio => "power ratio",
            // Apart from the other times, so that the two are read against each other alone.
            Self::MeanResponse | Self::Predicted => "mean response time",
            other => other.info().unit,
        }
    }

    /// A value, in the unit of its metric, as the column has it.
    pub(crate) fn shown(self, value: f64) -> f64 {
        match self {
            Self::PowerRatio => value,
            other => value / other.info().shown.1,
        }
    }

    /// Whether it is a lever of a server on call, which is the run's where that has one such server.
    pub(crate) fn is_of_on_call(self) -> bool {
        matches!(self, Self::Of(lever) if ON_CALL.contains(&lever))
    }

    pub(crate) fn is_lever(self) -> bool {
        matches!(self, Self::Of(_))
    }

    /// Whether of several periods the largest value is shown, not the mean.
    pub(crate) fn is_peak(self) -> bool {
        matches!(self, Self::Slo | Self::P99)
    }

    /// Whether it stands in the record of the period in which it was said, and is of the next.
    pub(crate) fn is_foreseen(self) -> bool {
        matches!(self, Self::Forecast | Self::Predicted)
    }

    pub(crate) fn is_latency(self) -> bool {
        matches!(self, Self::Slo | Self::P50 | Self::P99)
    }
}

/// A title and its unit, where the title does not say it.
pub(crate) fn headed(title: &str, unit: &str) -> String {
    match title.split(' ').any(|word| word.eq_ignore_ascii_case(unit)) {
        true => title.to_owned(),
        false => format!("{title} {unit}").trim_end().to_owned(),
    }
}

/// The levers among some values.
pub(crate) fn levers(values: &BTreeMap<Key, f64>) -> Vec<(Lever, f64)> {
    let of = |(key, value): (&Key, &f64)| match key {
        Key::Of(lever) => Some((*lever, *value)),
        _ => None,
    };
    values.iter().filter_map(of).collect()
}

/// The mean response time that a law predicts for the next period, as its reason has it.
fn predicted(period: &PeriodRecord) -> Option<f64> {
    let mut numbers = period.reasons.iter().map(|reason| &reason.numbers);
    let ms = numbers.find_map(|numbers| numbers.get("predicted_ms"))?;
    ms.is_finite().then_some(ms / 1e3)
}

/// What a period says of the whole, each in the unit of its metric: its own fields, and where there is a cluster what that says.
pub(crate) fn of_period(period: &PeriodRecord) -> BTreeMap<Key, f64> {
    let length = period.duration.get();
    let per_second = |count: u64| (length > 0.0).then(|| count as f64 / length);
    let power = period.mean_power();
    let ratio = power
        .zip(period.cap)
        .filter(|(_, cap)| *cap > Watts::ZERO)
        .map(|(power, cap)| power.value / cap);
    let predicted = predicted(period);
    let mean = period.latency.map(|latency| latency.mean.get());
    let own = [
        (Key::Predicted, predicted),
        (Key::MeanResponse, mean),
        (Key::Slo, period.slo_latency.map(Seconds::get)),
        (Key::P50, period.latency.map(|latency| latency.p50.get())),
        (Key::P99, period.latency.map(|latency| latency.p99.get())),
        (Key::Of(Lever::Cores), period.cores.map(Cores::get)),
        (Key::Of(Lever::Cap), period.cap.map(Watts::get)),
        (Key::Of(Lever::Frequency), period.frequency_limit.map(Hertz::get)),
        (Key::PowerRatio, ratio),
        (Key::By(Sensor::Utilisation), period.utilisation.map(Ratio::get)),
        (Key::By(Sensor::Throttled), period.throttled.map(Ratio::get)),
        (Key::By(Sensor::FrequencyMean), period.frequency.map(Hertz::get)),
        (
            Key::By(Sensor::ArrivalRate),
            per_second(period.arrivals).filter(|_| !period.telemetry_lost || period.arrivals > 0),
        ),
        (Key::By(Sensor::FailureRate), per_second(period.failures)),
        (Key::Forecast, period.forecast.map(PerSecond::get)),
    ];
    let known = own.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let power = power.map(|power| (Key::Power(power.source), power.value.get()));
    let clusters = period.parts.iter().filter(|part| part.role == Role::Cluster);
    let of_clusters = clusters.flat_map(|part| {
        let values = part.values.iter();
        values.map(|(quantity, value)| (Key::of_part(*quantity, part), *value))
    });
    let mut values: BTreeMap<Key, f64> = known.chain(power).chain(of_clusters).collect();
    for lever in ON_CALL {
        if let Some(value) = of_the_one_server(period, lever) {
            values.entry(Key::Of(lever)).or_insert(value);
        }
    }
    values
}

/// The levers of a server on call.
const ON_CALL: [Lever; 3] = [Lever::Concurrency, Lever::QueryBatch, Lever::RoundDelay];

/// What a lever is set to at the only server that has it: of several each has its own.
fn of_the_one_server(period: &PeriodRecord, lever: Lever) -> Option<f64> {
    let mut having = period
        .parts
        .iter()
        .filter(|part| part.role == Role::Node)
        .filter_map(|part| part.get(lever));
    having.next().filter(|_| having.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LatencySummary, Reason};

    #[test]
    fn what_a_server_takes_at_least_is_no_capacity_and_a_record_without_the_kind_has_one() {
        let whole = Part::new("cluster", Role::Cluster).with(Sensor::Capacity, Some(15.0));
        let of = |part: &Part| {
            of_period(&PeriodRecord {
                parts: vec![part.clone()],
                ..PeriodRecord::default()
            })
        };
        let bound = of(&whole.clone().fact("capacity", "lower-bound"));
        assert_eq!(bound.get(&Key::CapacityAtLeast), Some(&15.0));
        assert!(!bound.contains_key(&Key::By(Sensor::Capacity)));
        for part in [whole.clone(), whole.fact("capacity", "about")] {
            assert_eq!(of(&part).get(&Key::By(Sensor::Capacity)), Some(&15.0));
        }
    }

    #[test]
    fn the_levers_of_the_one_server_on_call_are_the_runs() {
        let server = |name: &str| {
            Part::new(name, Role::Node)
                .with(Lever::Concurrency, Some(3.0))
                .with(Lever::RoundDelay, Some(0.002))
        };
        let of = |names: &[&str]| {
            levers(&of_period(&PeriodRecord {
                parts: names.iter().map(|name| server(name)).collect(),
                ..PeriodRecord::default()
            }))
        };
        assert_eq!(
            of(&["db"]),
            [(Lever::Concurrency, 3.0), (Lever::RoundDelay, 0.002)]
        );
        assert_eq!(of(&["db", "other"]), []);
    }

    #[test]
    fn the_mean_response_time_and_what_batches_take_are_a_periods_own() {
        let latency = LatencySummary {
            mean: Seconds::new(0.3),
            p50: Seconds::new(0.2),
            p95: Seconds::new(0.5),
            p99: Seconds::new(0.6),
            p999: Seconds::new(0.7),
            max: Seconds::new(0.8),
        };
        let plain = PeriodRecord {
            latency: Some(latency),
            ..PeriodRecord::default()
        };
        let held = Part::new("cluster", Role::Cluster)
            .with(Sensor::BatchWaiting, Some(0.1))
            .with(Sensor::BatchProcessing, Some(0.05))
            .with(Sensor::BatchGroupSize, Some(3.0));
        let batched = of_period(&PeriodRecord {
            parts: vec![held],
            ..plain.clone()
        });
        for (key, value) in [
            (Key::MeanResponse, 0.3),
            (Key::By(Sensor::BatchWaiting), 0.1),
            (Key::By(Sensor::BatchProcessing), 0.05),
            (Key::By(Sensor::BatchGroupSize), 3.0),
        ] {
            assert_eq!(batched.get(&key), Some(&value), "{key:?}");
        }

        let predicts = |ms: f64| {
            of_period(&PeriodRecord {
                reasons: vec![Reason::new(
                    "batching-predict",
                    "it is near",
                    &[("predicted_ms", ms)],
                )],
                ..plain.clone()
            })
        };
        assert_eq!(predicts(250.0).get(&Key::Predicted), Some(&0.25));
        assert_eq!(predicts(250.0).get(&Key::MeanResponse), Some(&0.3));
        assert!(!predicts(f64::NAN).contains_key(&Key::Predicted));
        assert!(Key::Predicted.is_foreseen() && Key::Predicted.axis() == Key::MeanResponse.axis());
    }
}
