//! What another source knows of itself, as a part and as a period.

use super::*;
use headroom_telemetry::{Lost, latency_histogram};

/// A source that gives one period, again and again.
struct Given(TelemetryPeriod);

impl Source for Given {
    fn take_period(&mut self, _patience: Duration) -> TelemetryPeriod {
        self.0.clone()
    }
}

fn take(period: TelemetryPeriod) -> (Option<TrafficPeriod>, Part) {
    let mut other = Other::new(Box::new(Given(period)), "haproxy", Ratio::new(0.95));
    let taken = other.take(Duration::ZERO);
    (taken, other.parts().remove(0))
}

/// A period of a second with 100 requests of 20 ms to the first byte and 300 ms to the last.
fn period() -> TelemetryPeriod {
    let of = |ms: u64| {
        let mut histogram = latency_histogram();
        histogram.saturating_record_n(ms * 1000, 100);
        Latency::Histogram(Box::new(histogram))
    };
    TelemetryPeriod {
        arrivals: 100,
        completions: 100,
        latency_to_last_byte: Some(of(300)),
        measured: "to the first byte".to_owned(),
        coverage: Some(0.97),
        dropped: Some(1),
        dropped_by_proxy: Some(2),
        malformed: 4,
        clock_behind: Some(Seconds::new(60.0)),
        lost: None,
        ..TelemetryPeriod::lost(Duration::from_secs(1), of(20), Lost::Query(String::new()))
    }
}

#[test]
fn what_the_source_knows_is_a_part() {
    let (taken, part) = take(period());
    assert_eq!(
        (part.role, part.state.as_deref()),
        (Role::Gateway, Some("connected"))
    );
    assert!(part.trouble.is_empty());
    for (sensor, value) in [
        (Sensor::LogCoverage, 0.97),
        (Sensor::LinesLost, 7.0),
        (Sensor::ClockBehind, 60.0),
        (Sensor::ArrivalRate, 100.0),
        (Sensor::LatencyAtSlo, 0.02),
        (Sensor::LatencyToLastByte, 0.3),
    ] {
        let known = part.get(sensor).unwrap();
        assert!((known / value - 1.0).abs() < 0.01, "{sensor:?}: {known}");
    }
    assert_eq!(part.facts["latency_is"].to_string(), "to the first byte");
    assert_eq!(part.facts["lines_dropped_by_proxy"].to_string(), "2");
    assert!(taken.is_some());
}

#[test]
fn what_is_in_flight_and_not_told_is_absent() {
    let (taken, part) = take(period());
    assert_eq!(
        (taken.unwrap().in_flight, part.get(Sensor::InFlight)),
        (None, None)
    );
    let with = TelemetryPeriod {
        in_flight: Some(0),
        ..period()
    };
    let (taken, part) = take(with);
    assert_eq!(
        (taken.unwrap().in_flight, part.get(Sensor::InFlight)),
        (Some(0), Some(0.0))
    );
}

#[test]
fn what_is_wrong_is_said_with_the_remedy_on_one_line() {
    let without = TelemetryPeriod {
        statistics_error: Some("no socket\n  there".to_owned()),
        ..period()
    };
    let (taken, part) = take(without.clone());
    assert!(taken.is_some());
    assert_eq!(part.state.as_deref(), Some("without statistics"));
    assert_eq!(part.trouble, ["no socket there"]);
    let low = TelemetryPeriod {
        coverage: Some(0.54),
        lost: Some(Lost::LowCoverage {
            logged: 54,
            counted: 100,
            by_proxy: 40,
            by_kernel: 0,
            malformed: 0,
        }),
        ..without
    };
    let (taken, part) = take(low);
    assert!(taken.is_none());
    assert_eq!(part.state.as_deref(), Some("not to be used"));
    assert!(
        part.trouble[0].contains("54 %") && part.trouble.len() == 2,
        "{:?}",
        part.trouble
    );
    // It is shown, but nothing of its requests is to be gone by.
    assert_eq!(part.get(Sensor::LogCoverage), Some(0.54));
    assert_eq!(part.get(Sensor::ArrivalRate), None);
}

#[test]
fn whose_telemetry_is_lost_is_said_apart_from_what_was_decided() {
    let part = |name: &str, state: &str, why: &str| Part {
        trouble: vec![why.to_owned()],
        ..Part::new(name, Role::Gateway).in_state(state)
    };
    assert_eq!(lost_words(&[], ""), "telemetry lost");
    let mut parts = vec![
        Part::new("g0", Role::Gateway).in_state("connected"),
        part("g1", "dead", "its process has ended"),
        part("g2", Part::JOINING, "refused"),
    ];
    assert_eq!(
        lost_words(&parts, "2 servers take them"),
        "telemetry lost; decided without it: 2 servers take them"
    );
    parts.push(part("g3", "unreachable", "no answer within 1 s"));
    assert_eq!(
        lost_words(&parts, "all on"),
        "telemetry lost (g3: no answer within 1 s); decided without it: all on"
    );
    parts.extend((4..9).map(|at| part(&format!("g{at}"), "unreachable", "cut")));
    assert_eq!(
        lost_words(&parts, ""),
        "telemetry lost (g3: no answer within 1 s; g4: cut; g5: cut; 3 more)"
    );
}
