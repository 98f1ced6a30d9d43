//! What a delay would do, before it is tried: longer ones are tried only where what is known of shorter ones says that they will keep the
//! load and the SLO. Ours \[D\].

use crate::oncall::law::Point;
use crate::oncall::law::trial::Next;
use headroom_units::Seconds;

/// The share of the most queries per second that a delay leaves, above which it is not tried.
pub(super) const MOST_LOAD: f64 = 0.8;
/// The share of the target up to which the latency may grow as foretold.
const MARGIN: f64 = 0.85;

/// The share of what a server can serve under a delay D that so many queries per second are.
///
/// A round begins D after the last ended and answers N queries of each of the n connections that ask at most, so that n N / (D + n N s) is the most
/// throughput where all cores together take s for a query. The busy share of the cores is λ s, and so the share is λ D / (n N) beside it. A connection
/// cannot ask either while its query waits for something else, a disk or a row: that is for no longer than a query takes without a delay, L, and λ L / n of
/// them do at a time, by Little's law.
pub(super) fn load_under(
    (batch, delay): (u32, Seconds),
    rate: f64,
    (busy, undelayed): (Option<f64>, Option<Seconds>),
    asking: f64,
) -> f64 {
    let at_once = asking * f64::from(batch.max(1));
    let elsewhere = undelayed.map_or(0.0, |latency| rate * latency.get() / asking);
    busy.unwrap_or(0.0) + elsewhere + rate * delay.get() / at_once
}

/// What speaks against a delay, in words; `None` where nothing does.
pub(super) fn foretold(next: &Next<'_, Point>, target: Seconds) -> Option<String> {
    let Point { batch, delay, .. } = *next.setting;
    let rate = next.lately.rate()?;
    let asking = next.lately.asking();
    let costs = (next.lately.utilisation(), next.undelayed);
    let load = load_under((batch, delay), rate, costs, asking);
    // One that kept the load in a turn does, whatever a busy share says since.
    if !next.had_turn && load > MOST_LOAD {
        return Some(format!(
            "not tried: {rate:.0} queries/s would be {:.0} % of what the {asking:.0} connections that ask can have answered under it",
            load * 100.0
        ));
    }
    let latency = latency_under(delay, &next.measured)?;
    (latency > target * MARGIN).then(|| {
        format!(
            "not tried: it would take queries {:.1} ms, of {:.1} ms",
            latency.as_millis(),
            target.as_millis()
        )
    })
}

/// The latency under a delay: as measured, else as it grew from one measured delay to the next, and by no less than the delay itself.
fn latency_under(delay: Seconds, measured: &[(&Point, Seconds)]) -> Option<Seconds> {
    let (last, latency) = measured.last()?;
    if last.delay >= delay {
        return Some(*latency);
    }
    let growth = measured
        .len()
        .checked_sub(2)
        .map(|before| {
            let (before, then) = measured[before];
            (*latency - then) / (last.delay - before.delay)
        })
        .filter(|growth| growth.is_finite())
        .unwrap_or(1.0)
        .max(1.0);
    Some(*latency + (delay - last.delay) * growth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oncall::law::trial::{Lately, Sample};

    fn ms(value: f64) -> Seconds {
        Seconds::from_millis(value)
    }

    #[test]
    fn the_load_under_a_delay_is_what_its_rounds_leave() {
        // 64 connections and 0.05 ms a query: a round of all takes 3.2 ms, with 4.8 ms between two 8 ms, which is 8,000 a second.
        let at = |rate: f64, delay: f64| load_under((1, ms(delay)), rate, (Some(rate * 5e-5), None), 64.0);
        assert!((at(8_000.0, 4.8) - 1.0).abs() < 1e-9);
        // As measured live: 12,000 a second, which 9,265 were answered of.
        assert!(at(12_000.0, 4.8) > 1.2 && at(12_000.0, 0.6) < 0.75);
        // Two queries a round are twice as many; two clients that wait for their answers ask as fast as they can.
        assert!((load_under((2, ms(4.8)), 8_000.0, (None, None), 64.0) - 0.3).abs() < 1e-9);
        assert!(load_under((1, ms(0.6)), 16_000.0, (None, None), 2.0) > 4.0);
        // A tenth waits for a disk of 5 ms: 0.75 without it.
        let with_disk = load_under((1, ms(4.8)), 6_000.0, (Some(0.3), Some(ms(0.64))), 64.0);
        assert!((with_disk - 0.81).abs() < 1e-9, "{with_disk}");
    }

    #[test]
    fn what_had_a_turn_is_not_refused_for_its_load() {
        let setting = Point {
            delay: ms(1.2),
            ..Point::new(4, 1)
        };
        // Two connections that ask 4,000 times a second: 240 %.
        let mut lately = Lately::default();
        lately.add(&Sample {
            queries: 1_000,
            length: ms(250.0),
            connections: 64,
            asking: Some(2.0),
            ..Sample::default()
        });
        let foretold = |had_turn| {
            let next = Next {
                setting: &setting,
                measured: Vec::new(),
                undelayed: None,
                had_turn,
                lately,
            };
            foretold(&next, ms(20.0))
        };
        let why = foretold(false).unwrap();
        assert!(why.contains("240 % of what the 2 connections that ask"), "{why}");
        assert_eq!(foretold(true), None);
    }

    #[test]
    fn latency_grows_as_it_did_and_by_no_less_than_the_delay() {
        let points = [0.0, 0.6, 1.2].map(|delay| Point {
            delay: ms(delay),
            ..Point::new(4, 1)
        });
        let under = |delay: f64, measured: &[f64]| {
            let measured: Vec<_> = points.iter().zip(measured.iter().map(|at| ms(*at))).collect();
            latency_under(ms(delay), &measured).map(Seconds::as_millis)
        };
        assert_eq!(under(0.6, &[]), None);
        assert!((under(0.6, &[1.0]).unwrap() - 1.6).abs() < 1e-9);
        // 3 ms more for 0.6 ms: 6 ms more for 1.2 ms.
        assert!((under(2.4, &[1.0, 2.0, 5.0]).unwrap() - 11.0).abs() < 1e-9);
        // What was late because of something else does not make the next one early.
        assert!((under(2.4, &[1.0, 9.0, 5.0]).unwrap() - 6.2).abs() < 1e-9);
        assert!((under(1.2, &[1.0, 2.0, 5.0]).unwrap() - 5.0).abs() < 1e-9);
    }
}
